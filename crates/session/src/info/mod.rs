//! What TraceSetInformation sets, and how long it holds.
//!
//! ```text
//!   Set ──▶ platform: can this machine do it? (50) ──▶ content (87) ──▶ Settings of a session │ System
//!
//!   Settings   stacks, counters, branches, registers of kernel events; disallow list; caches of stacks             die with the session
//!   System     intervals of profile sources, counters that raise events                                           until they are changed, or who holds them ends
//!   Machine    what perf events offer here: sources, counters, branch records                                     read from the system when asked
//! ```
//!
//! 1. A setting that is refused changes nothing.
//! 2. What is about kernel events is kept, and told when it is asked for; it takes effect where kernel events are captured (`traceweir-kernel`, which the daemon
//!    has). A machine that could never do it says so: nothing is kept then.
//! 3. Which session is meant, who may, and what kind of session it is has been looked at by who calls.

mod machine;
mod system;

pub use machine::{Machine, TIMER};
pub use system::System;

use std::borrow::Borrow;

use traceweir_format::Guid;
use traceweir_format::info::{
    Answer, Branches, ClassicEventId, MAX_CAPTURE_STATE_PROVIDERS, MIN_CAPTURE_STATE_PERIOD, PmcSession,
    Query, Set, StackCaching,
};
use traceweir_format::spec::status::Status;

use crate::error::{Error, Result};
use crate::stacks::StacksOf;

/// The version of trace processing that `TraceVersionInfo` tells.
pub const PROCESSING_VERSION: u32 = 1;

/// The settings of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    stack_tracing: Vec<ClassicEventId>,
    pmc_events: Option<Vec<ClassicEventId>>,
    pmc_counters: Option<Vec<u32>>,
    disallowed: Vec<Guid>,
    lbr: Option<u32>,
    /// Kept: no question tells them, and nobody records branches.
    lbr_events: Vec<u32>,
    registers: Vec<ClassicEventId>,
    kernel_stacks: Option<StackCaching>,
    all_stacks: Option<StackCaching>,
    tracks_binaries: bool,
}

impl Settings {
    /// Sets something of the session: what the machine has, then what the buffer says. Settings of the system and those that others carry out as a whole are
    /// judged, and kept elsewhere.
    pub fn set(&mut self, set: &Set, machine: &Machine) -> Result<()> {
        machine.check(set)?;
        set.check()?;
        match set {
            Set::StackTracing(events) => self.stack_tracing.clone_from(events),
            Set::PmcEventList(events) => once(&mut self.pmc_events, events)?,
            Set::PmcCounterList(ids) => {
                machine.check_counters(ids)?;
                once(&mut self.pmc_counters, ids)?;
            }
            Set::DisallowList(guids) => self.disallowed.clone_from(guids),
            Set::ProviderBinaryTracking(on) => self.tracks_binaries = *on,
            Set::LbrConfiguration(bits) => self.lbr = Some(*bits),
            Set::LbrEventList(hooks) => match self.lbr {
                _ if hooks.is_empty() => self.lbr_events.clear(),
                Some(_) => self.lbr_events.clone_from(hooks),
                None => {
                    return invalid(
                        "which branches are recorded has to be said first (TraceLbrConfigurationInfo)",
                    );
                }
            },
            Set::StackCaching(it) => self.kernel_stacks = it.is_enabled.then(|| it.adjusted()),
            Set::UnifiedStackCaching(it) => self.all_stacks = it.is_enabled.then(|| it.adjusted()),
            Set::ContextRegister { events, .. } => self.registers.clone_from(events),
            // The session itself has them: its properties tell the first word.
            Set::SystemTraceEnableFlags(_) => {}
            // Those that are cut have been refused.
            Set::PeriodicCaptureState(_) | Set::CutPeriodicCaptureState => {}
            Set::SampledProfileInterval(_) | Set::ProfileSourceConfig(_) => {}
        }
        Ok(())
    }

    /// Sets which branches are recorded, and at which events: both, or nothing.
    pub fn set_branches(&mut self, branches: &Branches, machine: &Machine) -> Result<()> {
        let mut changed = self.clone();
        for set in branches.sets() {
            changed.set(&set, machine)?;
        }
        branches.check_events()?;
        *self = changed;
        Ok(())
    }

    /// The answer to a question about the settings; `None`: it is about something else.
    #[must_use]
    pub fn answer(&self, query: Query) -> Option<Answer> {
        match query {
            Query::StackTracing => Some(Answer::StackTracing(self.stack_tracing.clone())),
            Query::DisallowList => Some(Answer::DisallowList(self.disallowed.clone())),
            // Of the session as it runs.
            Query::StreamCount | Query::SystemTraceEnableFlags => None,
            // Of the system.
            Query::SampledProfileInterval(_) | Query::ProfileSourceList | Query::Version => None,
            Query::PeriodicCaptureState | Query::MaxLoggers | Query::MaxPmcCounter => None,
            Query::PmcCounterOwners(_) | Query::PmcSessions => None,
        }
    }

    /// Whether the session is told where providers live.
    #[must_use]
    pub const fn tracks_binaries(&self) -> bool {
        self.tracks_binaries
    }

    /// The cache for stacks, and whose: that of all goes before one of the kernel's alone.
    #[must_use]
    pub fn stack_cache(&self) -> (Option<StackCaching>, StacksOf) {
        match (self.all_stacks, self.kernel_stacks) {
            (Some(all), _) => (Some(all), StacksOf::All),
            (None, kernels) => (kernels, StacksOf::Kernel),
        }
    }

    /// Counters that are read, and at which kernel events, by their hooks: nothing while one of the two is not set.
    #[must_use]
    pub fn counting(&self) -> (&[u32], Vec<u16>) {
        match (&self.pmc_counters, &self.pmc_events) {
            (Some(counters), Some(events)) => (counters, hooks(events)),
            _ => (&[], Vec::new()),
        }
    }

    /// Kernel events that are followed by a call stack, by their hooks.
    #[must_use]
    pub fn stack_hooks(&self) -> Vec<u16> {
        hooks(&self.stack_tracing)
    }

    /// Kernel events that are followed by the registers, by their hooks.
    #[must_use]
    pub fn register_hooks(&self) -> Vec<u16> {
        hooks(&self.registers)
    }

    /// What the session has to do with counters, if it has.
    #[must_use]
    pub fn pmc_session(&self, logger_id: u16) -> Option<PmcSession> {
        if self.pmc_events.is_none() && self.pmc_counters.is_none() {
            return None;
        }
        let events = self.pmc_events.iter().flatten();
        Some(PmcSession {
            logger_id,
            sources: self.pmc_counters.clone().unwrap_or_default(),
            hook_ids: events.filter_map(ClassicEventId::hook_id).collect(),
        })
    }
}

/// A setting from the buffer of a call, judged in the published order as far as the call and this machine show, which is looked at only where that matters.
pub fn read_set<M: Borrow<Machine>>(
    class: u32,
    info: Option<&[u8]>,
    length: usize,
    machine: impl FnOnce() -> M,
) -> Result<Set> {
    let set = Set::from_bytes(class, info, length)?;
    if set.is_of_counters() {
        set.check_counters(machine().borrow().most_counters())?;
    }
    Ok(set)
}

/// Answers that depend on nobody but this machine, which is looked at only where that matters, and this library; `None`: another has to be asked.
pub fn local_answer<M: Borrow<Machine>>(query: Query, machine: impl FnOnce() -> M) -> Result<Option<Answer>> {
    Ok(Some(match query {
        Query::ProfileSourceList => Answer::ProfileSourceList(machine().borrow().sources().to_vec()),
        Query::Version => Answer::Version(PROCESSING_VERSION),
        Query::PeriodicCaptureState => Answer::PeriodicCaptureState {
            least_seconds: MIN_CAPTURE_STATE_PERIOD,
            most_providers: MAX_CAPTURE_STATE_PROVIDERS,
        },
        Query::MaxPmcCounter => Answer::MaxPmcCounter(machine().borrow().counters()),
        Query::PmcCounterOwners(processor) => machine().borrow().counter_owners(processor)?,
        // Of a session.
        Query::StackTracing | Query::SystemTraceEnableFlags => return Ok(None),
        Query::DisallowList | Query::StreamCount => return Ok(None),
        // Of who keeps sessions and the settings of the system.
        Query::SampledProfileInterval(_) | Query::MaxLoggers | Query::PmcSessions => return Ok(None),
    }))
}

/// The hooks of events; those of types that never happen have none.
fn hooks(events: &[ClassicEventId]) -> Vec<u16> {
    events.iter().filter_map(ClassicEventId::hook_id).collect()
}

/// What may be set once in the life of a session.
fn once<T: Clone>(place: &mut Option<Vec<T>>, list: &[T]) -> Result<()> {
    if place.is_some() {
        return invalid("this is set once in the life of a session");
    }
    *place = Some(list.to_vec());
    Ok(())
}

fn refuse<T>(status: Status, why: &'static str) -> Result<T> {
    Err(Error::Information { status, why })
}

fn invalid<T>(why: &'static str) -> Result<T> {
    refuse(Status::ERROR_INVALID_PARAMETER, why)
}

#[cfg(test)]
mod tests;
