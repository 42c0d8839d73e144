//! Settings of TraceSetInformation, and how long they last.
//!
//! ```text
//!   Set ──▶ supported? (or error 50) ──▶ valid? (or error 87) ──▶ Settings of a session │ System
//!
//!   Settings   stacks, counters, branches, registers of kernel    end with the session
//!              events; disallow list; caches of stacks;
//!              tracking of provider binaries
//!   System     intervals of profile sources, counters that raise  until changed, or until the
//!              events                                             daemon ends
//!   Machine    perf event support: sources, counters, branches    read from the system on request
//! ```
//!
//! 1. A rejected setting changes nothing.
//! 2. Settings of kernel events are stored and returned on request; they take effect where kernel
//!    events are captured (`traceweir-kernel`, which the daemon has). A machine that does not
//!    support a setting rejects it, and nothing is stored.
//! 3. The caller has found the session and checked access rights and the kind of session.

mod machine;
mod system;

pub use machine::{Machine, TIMER};
pub use system::System;

use std::borrow::Borrow;

use traceweir_format::Guid;
use traceweir_format::info::{
    Answer, Branches, ClassicEventId, MAX_CAPTURE_STATE_PROVIDERS, MIN_CAPTURE_STATE_SECONDS, PmcSession,
    Query, Set, StackCaching,
};
use traceweir_format::spec::status::Status;

use crate::error::{Error, Result};
use crate::stacks::CachedStacks;

/// Version of trace processing that `TraceVersionInfo` returns.
pub const PROCESSING_VERSION: u32 = 1;

/// The settings of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    stack_tracing: Vec<ClassicEventId>,
    pmc_events: Option<Vec<ClassicEventId>>,
    pmc_counters: Option<Vec<u32>>,
    disallowed: Vec<Guid>,
    /// Configuration of last branch records. Only stored, like `lbr_events`: no query returns it,
    /// and no component records branches.
    lbr: Option<u32>,
    /// Hook ids of the kernel events at which branches would be recorded.
    lbr_events: Vec<u32>,
    registers: Vec<ClassicEventId>,
    kernel_stacks: Option<StackCaching>,
    all_stacks: Option<StackCaching>,
    tracks_binaries: bool,
}

impl Settings {
    /// Changes a setting of the session, after checking that the machine supports it and that its
    /// values are valid. Settings of the system, and settings that other components carry out, are
    /// only checked; they are stored elsewhere.
    pub fn set(&mut self, set: &Set, machine: &Machine) -> Result<()> {
        machine.check(set)?;
        set.check()?;
        match set {
            Set::StackTracing(events) => self.stack_tracing.clone_from(events),
            Set::PmcEventList(events) => set_once(&mut self.pmc_events, events)?,
            Set::PmcCounterList(ids) => {
                machine.check_counters(ids)?;
                set_once(&mut self.pmc_counters, ids)?;
            }
            Set::DisallowList(guids) => self.disallowed.clone_from(guids),
            Set::ProviderBinaryTracking(is_enabled) => self.tracks_binaries = *is_enabled,
            Set::LbrConfiguration(bits) => self.lbr = Some(*bits),
            Set::LbrEventList(hooks) => match self.lbr {
                _ if hooks.is_empty() => self.lbr_events.clear(),
                Some(_) => self.lbr_events.clone_from(hooks),
                None => {
                    return invalid("set TraceLbrConfigurationInfo before TraceLbrEventListInfo");
                }
            },
            Set::StackCaching(caching) => self.kernel_stacks = caching.is_enabled.then(|| caching.adjust()),
            Set::UnifiedStackCaching(caching) => {
                self.all_stacks = caching.is_enabled.then(|| caching.adjust())
            }
            Set::ContextRegister { events, .. } => self.registers.clone_from(events),
            // The session stores the group masks; EnableFlags is their first word.
            Set::SystemTraceEnableFlags(_) => {}
            // `check` has rejected a truncated list; the daemon carries out a complete one.
            Set::PeriodicCaptureState(_) | Set::TruncatedPeriodicCaptureState => {}
            Set::SampledProfileInterval(_) | Set::ProfileSourceConfig(_) => {}
        }
        Ok(())
    }

    /// Sets which branches are recorded and at which events. If one of the two settings is refused,
    /// changes neither.
    pub fn set_branches(&mut self, branches: &Branches, machine: &Machine) -> Result<()> {
        let mut changed = self.clone();
        for set in branches.sets() {
            changed.set(&set, machine)?;
        }
        branches.check_events()?;
        *self = changed;
        Ok(())
    }

    /// Answers a query about the settings; `None` if another component answers it.
    #[must_use]
    pub fn answer(&self, query: Query) -> Option<Answer> {
        match query {
            Query::StackTracing => Some(Answer::StackTracing(self.stack_tracing.clone())),
            Query::DisallowList => Some(Answer::DisallowList(self.disallowed.clone())),
            // About the running session.
            Query::StreamCount | Query::SystemTraceEnableFlags => None,
            // About the system.
            Query::SampledProfileInterval(_) | Query::ProfileSourceList | Query::Version => None,
            Query::PeriodicCaptureState | Query::MaxLoggers | Query::MaxPmcCounter => None,
            Query::PmcCounterOwners(_) | Query::PmcSessions => None,
        }
    }

    /// Returns whether the session records which modules contain providers.
    #[must_use]
    pub const fn tracks_binaries(&self) -> bool {
        self.tracks_binaries
    }

    /// Returns the stack cache and the stacks that it stores. A cache for all stacks takes
    /// precedence over a cache for kernel stacks.
    #[must_use]
    pub fn stack_cache(&self) -> (Option<StackCaching>, CachedStacks) {
        match (self.all_stacks, self.kernel_stacks) {
            (Some(unified), _) => (Some(unified), CachedStacks::All),
            (None, kernel) => (kernel, CachedStacks::Kernel),
        }
    }

    /// Returns the counters that are read and the hooks of the kernel events at which they are
    /// read; empty until both are set.
    #[must_use]
    pub fn counters_and_hooks(&self) -> (&[u32], Vec<u16>) {
        match (&self.pmc_counters, &self.pmc_events) {
            (Some(counters), Some(events)) => (counters, hook_ids(events)),
            _ => (&[], Vec::new()),
        }
    }

    /// Returns the hooks of kernel events that are followed by a call stack.
    #[must_use]
    pub fn stack_hooks(&self) -> Vec<u16> {
        hook_ids(&self.stack_tracing)
    }

    /// Returns the hooks of kernel events that are followed by the registers.
    #[must_use]
    pub fn register_hooks(&self) -> Vec<u16> {
        hook_ids(&self.registers)
    }

    /// Returns the session's use of counters, if any.
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

/// Parses a setting from the buffer of a call, and checks the rules that depend only on the call
/// and this machine, in the order of ETW. Inspects the machine only if needed.
pub fn read_set<M: Borrow<Machine>>(
    class: u32,
    info: Option<&[u8]>,
    length: usize,
    machine: impl FnOnce() -> M,
) -> Result<Set> {
    let set = Set::from_bytes(class, info, length)?;
    if set.is_about_counters() {
        set.check_counters(machine().borrow().max_counters())?;
    }
    Ok(set)
}

/// Answers queries that depend only on this library and this machine, which is inspected only if
/// needed; `None` if another component has to answer.
pub fn answer_locally<M: Borrow<Machine>>(
    query: Query,
    machine: impl FnOnce() -> M,
) -> Result<Option<Answer>> {
    Ok(Some(match query {
        Query::ProfileSourceList => Answer::ProfileSourceList(machine().borrow().sources().to_vec()),
        Query::Version => Answer::Version(PROCESSING_VERSION),
        Query::PeriodicCaptureState => Answer::PeriodicCaptureState {
            least_seconds: MIN_CAPTURE_STATE_SECONDS,
            most_providers: MAX_CAPTURE_STATE_PROVIDERS,
        },
        Query::MaxPmcCounter => Answer::MaxPmcCounter(machine().borrow().counters()),
        Query::PmcCounterOwners(processor) => machine().borrow().counter_owners(processor)?,
        // About a session.
        Query::StackTracing | Query::SystemTraceEnableFlags => return Ok(None),
        Query::DisallowList | Query::StreamCount => return Ok(None),
        // About all sessions or the system settings, which the daemon knows.
        Query::SampledProfileInterval(_) | Query::MaxLoggers | Query::PmcSessions => return Ok(None),
    }))
}

/// Returns the hook ids of events, without events that never occur and so have none.
fn hook_ids(events: &[ClassicEventId]) -> Vec<u16> {
    events.iter().filter_map(ClassicEventId::hook_id).collect()
}

/// Sets a list that may be set once in the life of a session.
fn set_once<T: Clone>(setting: &mut Option<Vec<T>>, list: &[T]) -> Result<()> {
    if setting.is_some() {
        return invalid("this can be set only once in the life of a session");
    }
    *setting = Some(list.to_vec());
    Ok(())
}

fn refuse<T>(status: Status, reason: &'static str) -> Result<T> {
    Err(Error::Information { status, reason })
}

fn invalid<T>(reason: &'static str) -> Result<T> {
    refuse(Status::ERROR_INVALID_PARAMETER, reason)
}

#[cfg(test)]
mod tests;
