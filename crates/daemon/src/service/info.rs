//! Settings by information class: those of sessions, and those of the system.
//!
//! Settings of a session are forgotten when it begins to stop. Settings of the system last as long
//! as the daemon runs; the daemon does not exit by itself while a setting of the system differs
//! from its default. `route/information` checks the requests.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::info::{Answer, PeriodicCaptureState, Query, Set};
use traceweir_format::spec::info::{InfoClass, Rules};
use traceweir_format::spec::status::Status;
use traceweir_session::Session;
use traceweir_session::config::{is_system_logger, stream_count};
use traceweir_session::info::{Machine, Settings, System, answer_locally};
use traceweir_transport::cpu;
use traceweir_transport::message::{Properties, SessionConfig};

use super::sessions::SessionTable;
use crate::error::Refusal;
use crate::log::log_client;

/// All settings of sessions and of the system.
#[derive(Debug, Default)]
pub(super) struct Information {
    sessions: BTreeMap<u64, Settings>,
    periodic: BTreeMap<u64, PeriodicCapture>,
    system: System,
    machine: OnceCell<Machine>,
}

/// The providers whose state a session requests periodically.
#[derive(Debug)]
struct PeriodicCapture {
    period: Duration,
    due_at: Instant,
    providers: Vec<Guid>,
}

impl Information {
    /// Returns when the next periodic state request is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.periodic.values().map(|periodic| periodic.due_at).min()
    }

    /// Returns whether the system has its default settings.
    pub(super) fn has_no_system_settings(&self) -> bool {
        self.system.is_default()
    }

    /// Removes the settings of a session that begins to stop.
    pub(super) fn forget(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.periodic.remove(&session);
    }

    /// Returns the sessions whose period has elapsed, with the providers whose state is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(u64, Vec<Guid>)> {
        let mut due = Vec::new();
        for (session, periodic) in self.periodic.iter_mut().filter(|(_, periodic)| periodic.due_at <= now) {
            // A daemon that was delayed requests the state once, not once per missed period.
            let on_schedule = periodic.due_at + periodic.period;
            periodic.due_at = if on_schedule > now { on_schedule } else { now + periodic.period };
            due.push((*session, periodic.providers.clone()));
        }
        due
    }

    /// Returns whether a session records the modules of its providers.
    pub(super) fn tracks_binaries(&self, session: u64) -> bool {
        self.sessions.get(&session).is_some_and(Settings::tracks_binaries)
    }

    pub(super) fn machine(&self) -> &Machine {
        self.machine.get_or_init(Machine::inspect)
    }

    /// Returns the settings of the system, and the features of the machine.
    pub(super) fn system_and_machine(&self) -> (&System, &Machine) {
        (&self.system, self.machine())
    }

    /// Returns the settings that a session starts with: the stack configuration of its start
    /// request, if it has one.
    pub(super) fn settings_at_start(
        &self,
        config: &SessionConfig,
        stacks: &[u8],
    ) -> Result<Option<Settings>, Refusal> {
        if stacks.is_empty() {
            return Ok(None);
        }
        let class = InfoClass::TraceStackTracingInfo;
        check_kind(class.rules(), config)?;
        let set = Set::from_bytes(class.number(), Some(stacks), stacks.len()).map_err(refuse_malformed)?;
        let mut settings = Settings::default();
        settings.set(&set, self.machine()).map_err(|e| log_if_unsupported(class, e.into()))?;
        Ok(Some(settings))
    }

    pub(super) fn set_system(&mut self, system: System) {
        self.system = system;
    }

    pub(super) fn store_settings(&mut self, session: u64, settings: Settings) {
        self.sessions.insert(session, settings);
    }

    pub(super) fn settings(&self, session: u64) -> Settings {
        self.sessions.get(&session).cloned().unwrap_or_default()
    }

    /// Sets the providers whose state a session requests periodically, from `now` on.
    pub(super) fn set_periodic_capture(
        &mut self,
        session: u64,
        periodic: Option<&PeriodicCaptureState>,
        now: Instant,
    ) {
        self.periodic.remove(&session);
        let Some(PeriodicCaptureState { seconds, providers }) = periodic else { return };
        let period = Duration::from_secs(u64::from(*seconds));
        let (due_at, providers) = (now + period, providers.clone());
        self.periodic.insert(session, PeriodicCapture { period, due_at, providers });
    }

    pub(super) fn answer_about_session(
        &self,
        sessions: &SessionTable,
        id: u64,
        config: &SessionConfig,
        query: Query,
    ) -> Result<Answer, Refusal> {
        check_kind(query.class().rules(), config)?;
        let groups = || sessions.running_session(id).map(Session::groups).unwrap_or_default();
        match query {
            Query::SystemTraceEnableFlags => Ok(Answer::SystemTraceEnableFlags(groups())),
            Query::StreamCount => Ok(Answer::StreamCount(stream_count(config, cpu::possible()).into())),
            query => self.settings(id).answer(query).ok_or_else(not_queryable),
        }
    }

    /// Answers a query about the system. `shown_sessions`: the sessions that the requester may
    /// query.
    pub(super) fn answer_about_system(
        &self,
        sessions: &SessionTable,
        shown_sessions: impl FnOnce() -> Vec<Properties>,
        query: Query,
    ) -> Result<Answer, Refusal> {
        let machine = self.machine();
        Ok(match query {
            Query::SampledProfileInterval(source) => self.system.answer_interval(source, machine)?,
            Query::MaxLoggers => {
                Answer::MaxLoggers(u32::try_from(sessions.max_sessions()).unwrap_or(u32::MAX))
            }
            Query::PmcSessions => {
                let shown = shown_sessions().into_iter();
                let pmc_sessions = shown.filter_map(|properties| {
                    let logger_id = (properties.id & 0xFFFF) as u16;
                    self.sessions.get(&properties.id)?.pmc_session(logger_id)
                });
                Answer::PmcSessions(pmc_sessions.collect())
            }
            query => answer_locally(query, || machine)?.ok_or_else(not_queryable)?,
        })
    }
}

/// Checks that a session is of a kind that supports an information class.
pub(super) fn check_kind(rules: Rules, config: &SessionConfig) -> Result<(), Refusal> {
    if rules.needs_system_logger && !is_system_logger(config) {
        let reason = "this is about kernel events, which only a SYSTEM_LOGGER_MODE session receives";
        return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
    }
    Ok(())
}

fn not_queryable() -> Refusal {
    Refusal::new(Status::ERROR_NOT_SUPPORTED, "this information class cannot be queried")
}

pub(super) fn refuse_malformed(e: traceweir_format::Error) -> Refusal {
    Refusal::new(e.status(), e.to_string())
}

/// Returns the refusal, and logs it if it is about something that the machine does not support.
pub(super) fn log_if_unsupported(class: InfoClass, refusal: Refusal) -> Refusal {
    if refusal.status == Status::ERROR_NOT_SUPPORTED {
        log_client!("{} is not set: {refusal}", class.name());
    }
    refusal
}
