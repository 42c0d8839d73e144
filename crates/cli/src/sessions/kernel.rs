//! Kernel events of a session: requests them and formats their state.
//!
//! ```text
//!   --kernel ─▶ interval (class 5, for the whole system)
//!            ─▶ start: SYSTEM_LOGGER_MODE, EnableFlags, stacks ─▶ further groups (class 4)
//!   query    ◀─ groups (4), stacks (3), interval (5), losses by processor
//!   end      ─▶ stop ─▶ interval restored
//! ```
//!
//! Numbers in parentheses are information classes.
//!
//! K1 The start request contains as many groups and stacks as possible: a setting made later misses
//! the first events.
//!
//! K2 Requests that may be refused precede the start if possible, because the start truncates the
//! file.

use anstream::eprintln;
use anyhow::{Context, Result};
use rustix::thread::CapabilitySet;
use traceweir::controller::Controller;
use traceweir::controller::info::{Answer, ClassicEventId, GroupMask, ProfileInterval, Query, Set};
use traceweir::{Error, LogFileMode, Session, Status};
use traceweir_format::spec::system::{LIMITED_RING_COPIES, NO_SYSCONFIG, has_group, is_system_provider};

use super::{SessionPlan, is_system_daemon};
use crate::cli::{KernelChange, KernelEvents};
use crate::grammar::{
    EnableRequest, KernelSelection, StackSelection, default_stacks, describe_absent_groups, event_names,
    group_names,
};
use crate::text::{JsonObject, json_array};
use crate::tracefs::has_kprobes;

/// Profile source of the timer, which every machine has.
const TIMER_SOURCE: u32 = 0;
/// The profile group in EnableFlags.
const PROFILE_GROUP: u32 = 0x0100_0000;
/// Groups whose events have file names: DISK_FILE_IO, FILE_IO, FILE_IO_INIT.
const FILE_GROUPS: [u32; 3] = [0x200, 0x0200_0000, 0x0400_0000];
const DEFAULT_INTERVAL_100NS: u32 = 10_000;
const INTERVAL_UNITS_PER_MS: f64 = 10_000.0;

/// Sets up a session for kernel events, if kernel events or a system provider are requested.
pub(super) fn add_kernel_events(
    plan: &mut SessionPlan,
    events: &KernelEvents,
    kernel: Option<&KernelSelection>,
    providers: &[EnableRequest],
) {
    if kernel.is_some() || providers.iter().any(|request| is_system_provider(&request.guid)) {
        plan.mode |= LogFileMode::SYSTEM_LOGGER;
    }
    plan.kernel_flags = kernel.map_or(0, KernelSelection::flags);
    plan.kernel_stack_bytes = events.unwind.unwrap_or(0);
    plan.kernel_stacks = kernel.map(|kernel| kernel.events_with_stacks(events.stacks.as_ref()));
}

/// Returns the groups that are allowed for a user's own processes, if `error` is a missing
/// privilege. Prints which groups are left out.
pub(super) fn find_allowed_part(
    error: &anyhow::Error,
    kernel: Option<&KernelSelection>,
) -> Option<KernelSelection> {
    if !is_privilege_missing(error) {
        return None;
    }
    let (part, left_out) = kernel?.allowed_for_own_processes()?;
    if !left_out.is_empty() {
        eprintln!(
            "warning: without CAP_PERFMON, weir cannot record {} (weir doctor shows how to get it), and kernel events cover only your own processes: recording --kernel {}",
            left_out.join(", ").to_ascii_lowercase(),
            group_names(&part.groups).join(",").to_ascii_lowercase()
        );
    }
    Some(part)
}

/// Warns if kernel events of the whole machine were requested, and the daemon sees those of
/// its own user only.
pub(super) fn warn_of_own_processes(controller: &Controller, kernel: &KernelSelection) {
    let has_events = kernel.flags() & !NO_SYSCONFIG != 0 || kernel.has_extra_groups();
    // A daemon that this user started has the capabilities of this process.
    let can_profile = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN));
    if has_events && !is_system_daemon(controller) && !can_profile {
        eprintln!(
            "warning: without CAP_PERFMON kernel events cover only your own processes (weir doctor shows how to get all)"
        );
    }
}

fn is_privilege_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| error.status() == Status::ERROR_PRIVILEGE_NOT_HELD)
}

/// Warns about requested groups that have no events on Linux, and about limits of recorded groups.
pub(super) fn warn_of_limits(requested: &GroupMask, recorded: &GroupMask) {
    describe_absent_groups(requested).iter().for_each(|reason| eprintln!("warning: {reason}"));
    let has_file_names = FILE_GROUPS.iter().any(|group| has_group(recorded, *group));
    if has_file_names && has_kprobes() == Some(false) {
        eprintln!(
            "warning: this kernel has no kprobes: file names are best effort, and files that are open only briefly have none (weir doctor)"
        );
    }
}

/// Returns a warning with the fix if stack copies are smaller than requested.
pub(super) fn stack_limit_warning(requested_bytes: u32, granted_bytes: u32) -> Option<String> {
    if granted_bytes >= requested_bytes {
        return None;
    }
    // The smallest ring that holds `LIMITED_RING_COPIES` stack copies of this size.
    let ring_kib = |copy_bytes: u32| {
        let bytes = u64::from(copy_bytes).saturating_mul(u64::from(LIMITED_RING_COPIES));
        bytes.next_power_of_two() >> 10
    };
    // A ring has one page in addition to its data.
    let page_kib = rustix::param::page_size() as u64 >> 10;
    Some(format!(
        "stack copies are limited to {} KiB instead of {} KiB: kernel.perf_event_mlock_kb and ulimit -l allow perf rings of \
         {} KiB; sudo sysctl kernel.perf_event_mlock_kb={} raises that",
        granted_bytes >> 10,
        requested_bytes >> 10,
        ring_kib(granted_bytes),
        ring_kib(requested_bytes).saturating_add(page_kib),
    ))
}

/// Enables the groups beyond the EnableFlags, which the start request cannot contain. If only the
/// privilege for them is missing, prints a warning instead of failing.
pub(super) fn request_extra_groups(session: &Session, kernel: &KernelSelection) -> Result<()> {
    let result = if kernel.has_extra_groups() { set_groups(session, kernel.groups) } else { Ok(()) };
    match result {
        Err(error) if find_allowed_part(&error, Some(kernel)).is_some() => Ok(()),
        result => result,
    }
}

/// Sets the requested sampling interval. If samples are requested without an interval, prints a
/// note if the current interval is not the default. Returns the previous interval if it was
/// changed.
pub(super) fn choose_interval(controller: &mut Controller, events: &KernelEvents) -> Result<Option<u32>> {
    let Some(kernel) = &events.kernel else { return Ok(None) };
    let previous = query_interval(controller);
    let Some(requested) = events.requested_interval() else {
        let has_samples = has_group(&kernel.groups, PROFILE_GROUP);
        if let Some(interval) = previous.filter(|interval| has_samples && *interval != DEFAULT_INTERVAL_100NS)
        {
            eprintln!(
                "note: processors are sampled every {}, an earlier setting that applies to all sessions: --interval 1ms is the default",
                format_ms(interval)
            );
        }
        return Ok(None);
    };
    match change_interval(controller, requested) {
        Ok(is_changed) => Ok(previous.filter(|_| is_changed)),
        // Another user's daemon keeps its interval for the users that it serves.
        Err(error) if is_privilege_missing(&error) => {
            let interval =
                previous.map_or_else(String::new, |interval| format!(" every {}", format_ms(interval)));
            eprintln!(
                "warning: processors are sampled{interval}: you may not change the interval of this daemon"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Sets the sampling interval, unless it already has the requested value, because a change needs a
/// privilege. Warns if the machine does not support the interval. Returns whether the
/// interval was changed.
fn change_interval(controller: &mut Controller, requested: u32) -> Result<bool> {
    let bounds = interval_bounds(controller);
    let supported = bounds.map_or(requested, |(least, most)| requested.clamp(least, most));
    let is_changed = query_interval(controller) != Some(supported);
    if is_changed {
        set_interval(controller, requested)?;
    }
    match (query_interval(controller), bounds) {
        (Some(current), Some((least, most))) if current != requested => eprintln!(
            "warning: processors are sampled every {}, not every {}: this machine supports {} to {} (8,190 samples per second at most, as on Windows, or \
             kernel.perf_event_max_sample_rate if that is less)",
            format_ms(current),
            format_ms(requested),
            format_ms(least),
            format_ms(most)
        ),
        _ => {}
    }
    Ok(is_changed)
}

/// Returns the shortest and the longest sampling interval.
fn interval_bounds(controller: &mut Controller) -> Option<(u32, u32)> {
    let Ok(Answer::ProfileSourceList(sources)) = controller.query_system(Query::ProfileSourceList) else {
        return None;
    };
    sources
        .iter()
        .find(|source| source.source == TIMER_SOURCE)
        .map(|timer| (timer.min_interval, timer.max_interval))
}

fn format_ms(interval_100ns: u32) -> String {
    format!("{} ms", f64::from(interval_100ns) / INTERVAL_UNITS_PER_MS)
}

pub(crate) fn change_kernel(
    controller: &mut Controller,
    session: &Session,
    change: &KernelChange,
) -> Result<()> {
    let stacks = match (&change.kernel, &change.stacks) {
        (None, Some(StackSelection::Default)) => {
            KernelState::query(controller, session).map(|state| default_stacks(&state.groups))
        }
        (None, Some(stacks)) => Some(KernelSelection::default().events_with_stacks(Some(stacks))),
        (Some(kernel), Some(stacks)) => Some(kernel.events_with_stacks(Some(stacks))),
        // Stacks stay unchanged, unless the requested groups have default stacks.
        (Some(kernel), None) => Some(kernel.events_with_stacks(None)).filter(|stacks| !stacks.is_empty()),
        (None, None) => None,
    };
    if let Some(kernel) = &change.kernel {
        set_groups(session, kernel.groups)?;
        warn_of_limits(&kernel.groups, &kernel.groups);
    }
    if let Some(stacks) = stacks {
        set_stacks(session, stacks)?;
    }
    change.interval.map_or(Ok(()), |interval| change_interval(controller, interval).map(drop))
}

fn set_groups(session: &Session, groups: GroupMask) -> Result<()> {
    let set = Set::SystemTraceEnableFlags(groups);
    session.set_information(&set).context("cannot enable these kernel events")
}

fn set_stacks(session: &Session, stacks: Vec<ClassicEventId>) -> Result<()> {
    let set = Set::StackTracing(stacks);
    session.set_information(&set).context("cannot enable call stacks of kernel events")
}

/// Sets the sampling interval, for all sessions.
pub(super) fn set_interval(controller: &mut Controller, interval: u32) -> Result<()> {
    let set = Set::SampledProfileInterval(ProfileInterval { source: TIMER_SOURCE, interval });
    controller.set_system(&set).context("cannot set the sampling interval")
}

/// Returns the sampling interval in units of 100 ns; `None` if unknown.
pub(super) fn query_interval(controller: &mut Controller) -> Option<u32> {
    match controller.query_system(Query::SampledProfileInterval(TIMER_SOURCE)) {
        Ok(Answer::SampledProfileInterval(sampled)) => Some(sampled.interval),
        _ => None,
    }
}

fn join_or_none(names: Vec<String>) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[derive(Debug, Default)]
pub(crate) struct KernelState {
    pub(crate) groups: GroupMask,
    pub(crate) stacks: Vec<ClassicEventId>,
    pub(crate) interval_100ns: Option<u32>,
    /// Lost events, by processor.
    pub(crate) lost: Vec<u64>,
}

impl KernelState {
    /// Queries the state; `None` if the session does not receive kernel events.
    pub(crate) fn query(controller: &mut Controller, session: &Session) -> Option<Self> {
        let groups = match session.query_information(Query::SystemTraceEnableFlags) {
            Ok(Answer::SystemTraceEnableFlags(groups)) => groups,
            _ => return None,
        };
        let stacks = match session.query_information(Query::StackTracing) {
            Ok(Answer::StackTracing(stacks)) => stacks,
            _ => Vec::new(),
        };
        let lost = session.kernel_losses().unwrap_or_default();
        Some(Self { groups, stacks, interval_100ns: query_interval(controller), lost })
    }

    /// Formats the settings that an update can change, in one line.
    pub(crate) fn format_summary(&self) -> String {
        let interval = self
            .interval_100ns
            .map_or_else(String::new, |interval| format!(", sampled every {}", format_ms(interval)));
        let (groups, stacks) =
            (join_or_none(group_names(&self.groups)), join_or_none(event_names(&self.stacks)));
        format!("kernel events {groups}, stacks of {stacks}{interval}")
    }

    /// Returns the lines for the page of a session.
    pub(super) fn format_lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("Kernel Events", join_or_none(group_names(&self.groups))),
            ("  Stacks Of", join_or_none(event_names(&self.stacks))),
        ];
        if let Some(interval) = self.interval_100ns {
            lines.push(("  Sample Interval", format_ms(interval)));
        }
        let lost = self.lost.iter().enumerate().filter(|(_, lost)| **lost > 0);
        let lost: Vec<_> = lost.map(|(cpu, lost)| format!("processor {cpu}: {lost}")).collect();
        lines.push(("  Lost By Kernel", join_or_none(lost)));
        lines
    }

    pub(super) fn format_json(&self) -> String {
        let quote_all = |names: Vec<String>| json_array(names.iter().map(|name| format!("\"{name}\"")));
        let mut object = JsonObject::new();
        object.raw("groups", &quote_all(group_names(&self.groups)));
        object.raw("masks", &quote_all(self.groups.iter().map(|word| format!("{word:#x}")).collect()));
        object.raw("stacks", &quote_all(event_names(&self.stacks)));
        match self.interval_100ns {
            Some(interval) => object.number("interval_100ns", interval),
            None => object.raw("interval_100ns", "null"),
        };
        object.raw("lost_by_processor", &json_array(self.lost.iter().map(ToString::to_string)));
        object.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_limit_warning_contains_ring_size_and_sysctl() {
        assert_eq!(stack_limit_warning(16 << 10, 16 << 10), None);
        assert_eq!(stack_limit_warning(0, 0), None);
        let page_kib = rustix::param::page_size() >> 10;
        let note = stack_limit_warning(64 << 10, 16 << 10).unwrap();
        let sysctl = format!("sudo sysctl kernel.perf_event_mlock_kb={} raises", 2048 + page_kib);
        for part in ["limited to 16 KiB instead of 64 KiB", "perf rings of 512 KiB", &sysctl] {
            assert!(note.contains(part), "{note}");
        }
        let note = stack_limit_warning(20 << 10, 16 << 10).unwrap();
        assert!(note.contains(&format!("={} raises", 1024 + page_kib)), "rings are powers of two: {note}");
    }
}
