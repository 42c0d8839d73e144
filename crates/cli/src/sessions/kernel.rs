//! Kernel events of a session: how they are asked for, and what is told of them.
//!
//! ```text
//!   --kernel ─▶ interval (class 5, which is the system's) ─▶ start: SYSTEM_LOGGER_MODE, EnableFlags, stacks ─▶ further groups (class 4)
//!   query    ◀─ groups (4), stacks (3), interval (5), losses by processor
//!   end      ─▶ stop ─▶ interval as it was
//! ```
//!
//! K1 From the first event on all holds that was asked for: what is said of a session that runs comes too late for some of its events. K2 What is refused is refused
//! before the start, which empties the file.

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::controller::info::{
    Answer, ClassicEventId, GroupMask, NO_SESSION, ProfileInterval, Query, Set,
};
use traceweir::controller::{Controller, SessionConfig, SessionRef};
use traceweir::{Error, Status};
use traceweir_format::spec::session::EVENT_TRACE_SYSTEM_LOGGER_MODE;
use traceweir_format::spec::system::{LIMITED_RING_COPIES, has_group, is_system_provider};

use crate::cli::{KernelChange, KernelEvents};
use crate::cmd::has_kprobes;
use crate::export::{Object, array};
use crate::grammar::{Kernel, Stacks, Wanted, absent_groups, default_stacks, event_names, group_names};

/// The source of samples that every machine has.
const TIMER: u32 = 0;
/// Samples of processors, as EnableFlags.
const PROFILE: u32 = 0x0100_0000;
/// DISK_FILE_IO, FILE_IO, FILE_IO_INIT.
const FILE_GROUPS: [u32; 3] = [0x200, 0x0200_0000, 0x0400_0000];
/// How often they are taken unless somebody has said otherwise, in 100 ns.
const USUAL_INTERVAL: u32 = 10_000;
/// In a millisecond, of 100 ns.
const UNITS: f64 = 10_000.0;

/// Makes a session that is to be started one that receives kernel events, where they or a system provider are asked for.
pub(super) fn with_kernel(
    config: &mut SessionConfig,
    events: &KernelEvents,
    kernel: Option<&Kernel>,
    providers: &[Wanted],
) {
    if kernel.is_some() || providers.iter().any(|wanted| is_system_provider(&wanted.guid)) {
        config.log_file_mode |= EVENT_TRACE_SYSTEM_LOGGER_MODE;
    }
    config.enable_flags = kernel.map_or(0, Kernel::flags);
    config.stack_bytes = events.unwind.unwrap_or(0);
    let stacks = kernel.map(|kernel| kernel.stacks(events.stacks.as_ref()));
    config.kernel_stacks = stacks.map(|stacks| Set::StackTracing(stacks).to_bytes()).unwrap_or_default();
}

/// What can be had where something was refused for want of a privilege: the groups that everybody may have of his own processes. Says what is left out.
pub(super) fn own_part(error: &anyhow::Error, kernel: Option<&Kernel>) -> Option<Kernel> {
    if error.downcast_ref::<Error>()?.status() != Status::ERROR_PRIVILEGE_NOT_HELD {
        return None;
    }
    let (part, rest) = kernel?.of_own()?;
    if !rest.is_empty() {
        eprintln!(
            "warning: without CAP_PERFMON kernel events are of your own processes, and there is no {} (weir doctor says what to type): this is --kernel {}",
            rest.join(", "),
            group_names(&part.groups).join(",").to_ascii_lowercase()
        );
    }
    Some(part)
}

/// Says what will not come of the groups that were asked for, and what may be missing of those that are given.
pub(super) fn tell_limits(asked: &GroupMask, given: &GroupMask) {
    absent_groups(asked).iter().for_each(|why| eprintln!("warning: {why}"));
    let names_files = FILE_GROUPS.iter().any(|group| has_group(given, *group));
    if names_files && has_kprobes() == Some(false) {
        eprintln!(
            "note: this kernel has no kprobes: names of files are best effort, and what is open for a moment only has none (weir doctor)"
        );
    }
}

/// Says that copies of stacks are smaller than asked for, and what makes them larger; `None` where they are as asked for.
pub(super) fn stack_limit_note(asked_bytes: u32, given_bytes: u32) -> Option<String> {
    if given_bytes >= asked_bytes {
        return None;
    }
    let ring_kib = |copy_bytes: u32| {
        let bytes = u64::from(copy_bytes).saturating_mul(u64::from(LIMITED_RING_COPIES));
        bytes.next_power_of_two() >> 10
    };
    // Beside its data a ring has one page.
    let page_kib = rustix::param::page_size() as u64 >> 10;
    Some(format!(
        "stack copies are limited to {} KiB instead of {} KiB: kernel.perf_event_mlock_kb and ulimit -l allow perf rings of \
         {} KiB; sudo sysctl kernel.perf_event_mlock_kb={} raises that",
        given_bytes >> 10,
        asked_bytes >> 10,
        ring_kib(given_bytes),
        ring_kib(asked_bytes).saturating_add(page_kib),
    ))
}

/// What a session that has just started is still to be told about kernel events.
pub(super) fn ask_further(controller: &mut Controller, session: &SessionRef, kernel: &Kernel) -> Result<()> {
    let done = if kernel.has_further() { set_groups(controller, session, kernel.groups) } else { Ok(()) };
    match done {
        Err(error) if own_part(&error, Some(kernel)).is_some() => Ok(()),
        done => done,
    }
}

/// Sets the interval of samples that is asked for, and says where it is another one; what it was before.
pub(super) fn choose_interval(controller: &mut Controller, events: &KernelEvents) -> Result<Option<u32>> {
    let Some(kernel) = &events.kernel else { return Ok(None) };
    let before = interval(controller);
    let Some(asked) = events.interval else {
        let samples = has_group(&kernel.groups, PROFILE);
        if let Some(other) = before.filter(|before| samples && *before != USUAL_INTERVAL) {
            eprintln!(
                "note: processors are sampled every {}, which was set before and holds for all sessions: --interval 1ms is the usual one",
                in_ms(other)
            );
        }
        return Ok(None);
    };
    let is_changed = change_interval(controller, asked)?;
    Ok(before.filter(|_| is_changed))
}

/// Sets how often processors are sampled, unless that is in force: a change takes a privilege. Prints a note where it
/// cannot be as often, or as seldom, as was asked for. Returns whether it has changed.
fn change_interval(controller: &mut Controller, asked: u32) -> Result<bool> {
    let bounds = bounds(controller);
    let wanted = bounds.map_or(asked, |(least, most)| asked.clamp(least, most));
    let is_changed = interval(controller) != Some(wanted);
    if is_changed {
        set_interval(controller, asked)?;
    }
    match (interval(controller), bounds) {
        (Some(taken), Some((least, most))) if taken != asked => eprintln!(
            "note: processors are sampled every {}, not every {}: this machine does {} to {} (8,190 samples a second at most, as on Windows, or \
             kernel.perf_event_max_sample_rate where that is less)",
            in_ms(taken),
            in_ms(asked),
            in_ms(least),
            in_ms(most)
        ),
        _ => {}
    }
    Ok(is_changed)
}

/// The shortest and the longest interval of samples.
fn bounds(controller: &mut Controller) -> Option<(u32, u32)> {
    let Ok(Answer::ProfileSourceList(all)) =
        controller.query_information(&NO_SESSION, Query::ProfileSourceList)
    else {
        return None;
    };
    all.iter().find(|it| it.source == TIMER).map(|timer| (timer.min_interval, timer.max_interval))
}

/// For people.
fn in_ms(interval: u32) -> String {
    format!("{} ms", f64::from(interval) / UNITS)
}

/// What a session that runs is told about kernel events.
pub(crate) fn change_kernel(
    controller: &mut Controller,
    session: &SessionRef,
    change: &KernelChange,
) -> Result<()> {
    let stacks = match (&change.kernel, &change.stacks) {
        (None, Some(Stacks::Default)) => {
            KernelState::of(controller, session).map(|state| default_stacks(&state.groups))
        }
        (None, Some(stacks)) => Some(Kernel::default().stacks(Some(stacks))),
        (Some(kernel), Some(stacks)) => Some(kernel.stacks(Some(stacks))),
        // Stacks stay as they are, unless what is asked for has some of its own.
        (Some(kernel), None) => Some(kernel.stacks(None)).filter(|stacks| !stacks.is_empty()),
        (None, None) => None,
    };
    if let Some(kernel) = &change.kernel {
        set_groups(controller, session, kernel.groups)?;
        tell_limits(&kernel.groups, &kernel.groups);
    }
    if let Some(stacks) = stacks {
        set_stacks(controller, session, stacks)?;
    }
    change.interval.map_or(Ok(()), |interval| change_interval(controller, interval).map(drop))
}

fn set_groups(controller: &mut Controller, session: &SessionRef, groups: GroupMask) -> Result<()> {
    let set = Set::SystemTraceEnableFlags(groups);
    controller.set_information(session, &set).context("cannot ask for these kernel events")
}

fn set_stacks(controller: &mut Controller, session: &SessionRef, stacks: Vec<ClassicEventId>) -> Result<()> {
    let set = Set::StackTracing(stacks);
    controller.set_information(session, &set).context("cannot ask for call stacks of kernel events")
}

/// Sets how often processors are sampled, in all sessions.
pub(super) fn set_interval(controller: &mut Controller, interval: u32) -> Result<()> {
    let set = Set::SampledProfileInterval(ProfileInterval { source: TIMER, interval });
    controller.set_information(&NO_SESSION, &set).context("cannot set the interval of samples")
}

/// How often processors are sampled, in 100 ns; `None` where that is not told.
pub(super) fn interval(controller: &mut Controller) -> Option<u32> {
    match controller.query_information(&NO_SESSION, Query::SampledProfileInterval(TIMER)) {
        Ok(Answer::SampledProfileInterval(it)) => Some(it.interval),
        _ => None,
    }
}

/// What a session gets of the kernel.
#[derive(Debug, Default)]
pub(crate) struct KernelState {
    pub(crate) groups: GroupMask,
    pub(crate) stacks: Vec<ClassicEventId>,
    /// In 100 ns.
    pub(crate) interval: Option<u32>,
    /// By processor.
    pub(crate) lost: Vec<u64>,
}

impl KernelState {
    /// Asks for it; `None` where the session is not one that receives kernel events.
    pub(crate) fn of(controller: &mut Controller, session: &SessionRef) -> Option<Self> {
        let groups = match controller.query_information(session, Query::SystemTraceEnableFlags) {
            Ok(Answer::SystemTraceEnableFlags(groups)) => groups,
            _ => return None,
        };
        let stacks = match controller.query_information(session, Query::StackTracing) {
            Ok(Answer::StackTracing(stacks)) => stacks,
            _ => Vec::new(),
        };
        let lost = controller.kernel_losses(session).unwrap_or_default();
        Some(Self { groups, stacks, interval: interval(controller), lost })
    }

    /// What an update can change, in one line.
    pub(crate) fn told(&self) -> String {
        let list = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let interval = self.interval.map_or_else(String::new, |it| format!(", sampled every {}", in_ms(it)));
        let (groups, stacks) = (list(group_names(&self.groups)), list(event_names(&self.stacks)));
        format!("kernel events {groups}, stacks of {stacks}{interval}")
    }

    /// Lines for people.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let list = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let mut lines = vec![
            ("Kernel Events", list(group_names(&self.groups))),
            ("  Stacks Of", list(event_names(&self.stacks))),
        ];
        if let Some(interval) = self.interval {
            lines.push(("  Sample Interval", in_ms(interval)));
        }
        let lost = self.lost.iter().enumerate().filter(|(_, lost)| **lost > 0);
        let lost: Vec<_> = lost.map(|(cpu, lost)| format!("processor {cpu}: {lost}")).collect();
        lines.push(("  Lost By Kernel", list(lost)));
        lines
    }

    /// An object for programs.
    pub(super) fn json(&self) -> String {
        let texts = |names: Vec<String>| array(names.iter().map(|name| format!("\"{name}\"")));
        let mut object = Object::new();
        object.raw("groups", &texts(group_names(&self.groups)));
        object.raw("masks", &texts(self.groups.iter().map(|word| format!("{word:#x}")).collect()));
        object.raw("stacks", &texts(event_names(&self.stacks)));
        match self.interval {
            Some(interval) => object.number("interval_100ns", interval),
            None => object.raw("interval_100ns", "null"),
        };
        object.raw("lost_by_processor", &array(self.lost.iter().map(ToString::to_string)));
        object.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_on_stack_copies_names_ring_and_sysctl() {
        assert_eq!(stack_limit_note(16 << 10, 16 << 10), None);
        assert_eq!(stack_limit_note(0, 0), None);
        let page_kib = rustix::param::page_size() >> 10;
        let note = stack_limit_note(64 << 10, 16 << 10).unwrap();
        let sysctl = format!("sudo sysctl kernel.perf_event_mlock_kb={} raises", 2048 + page_kib);
        for part in ["limited to 16 KiB instead of 64 KiB", "perf rings of 512 KiB", &sysctl] {
            assert!(note.contains(part), "{note}");
        }
        let note = stack_limit_note(20 << 10, 16 << 10).unwrap();
        assert!(note.contains(&format!("={} raises", 1024 + page_kib)), "rings are powers of two: {note}");
    }
}
