//! Storage for the settings of sessions and of the system.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::info::PeriodicCaptureState;
use traceweir_format::info::Set;
use traceweir_format::spec::info::InfoClass;
use traceweir_session::info::{Machine, Settings, System};
use traceweir_transport::message::SessionConfig;

use super::{check_kind, not_done, refusal};
use crate::error::Refusal;

/// All settings of sessions and of the system.
#[derive(Debug, Default)]
pub(in crate::service) struct Information {
    pub(super) sessions: BTreeMap<u64, Settings>,
    pub(super) periodic: BTreeMap<u64, Periodic>,
    pub(super) system: System,
    machine: OnceCell<Machine>,
}

/// The providers whose state a session requests periodically.
#[derive(Debug)]
pub(super) struct Periodic {
    pub(super) every: Duration,
    pub(super) next: Instant,
    pub(super) providers: Vec<Guid>,
}

impl Information {
    /// Returns when the next periodic state request is due.
    pub(in crate::service) fn deadline(&self) -> Option<Instant> {
        self.periodic.values().map(|periodic| periodic.next).min()
    }

    /// Returns whether no setting is stored that outlives sessions.
    pub(in crate::service) fn has_no_system_settings(&self) -> bool {
        self.system.is_as_usual()
    }

    /// Removes the settings of a session that begins to stop.
    pub(in crate::service) fn forget(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.periodic.remove(&session);
    }

    /// Returns whether a session records the modules of its providers.
    pub(in crate::service) fn tracks_binaries(&self, session: u64) -> bool {
        self.sessions.get(&session).is_some_and(Settings::tracks_binaries)
    }

    pub(super) fn machine(&self) -> &Machine {
        self.machine.get_or_init(Machine::look)
    }

    /// Returns the settings of the system, and the features of the machine.
    pub(in crate::service) fn system_and_machine(&self) -> (&System, &Machine) {
        (&self.system, self.machine())
    }

    /// Returns the settings of a session at its start: stacks of kernel events, if it asks for
    /// some.
    pub(in crate::service) fn settings_at_start(
        &self,
        config: &SessionConfig,
        stacks: &[u8],
    ) -> Result<Option<Settings>, Refusal> {
        if stacks.is_empty() {
            return Ok(None);
        }
        let class = InfoClass::TraceStackTracingInfo;
        check_kind(class.rules(), config)?;
        let set = Set::from_bytes(class.number(), Some(stacks), stacks.len()).map_err(refusal)?;
        let mut settings = Settings::default();
        settings.set(&set, self.machine()).map_err(|e| not_done(class, e.into()))?;
        Ok(Some(settings))
    }

    /// Replaces the settings of the system.
    pub(in crate::service) fn set_system(&mut self, system: System) {
        self.system = system;
    }

    /// Stores the settings of a session.
    pub(in crate::service) fn keep(&mut self, session: u64, settings: Settings) {
        self.sessions.insert(session, settings);
    }

    pub(in crate::service) fn settings(&self, session: u64) -> Settings {
        self.sessions.get(&session).cloned().unwrap_or_default()
    }

    /// Sets whose state a session requests periodically, from `now` on.
    pub(super) fn repeat(&mut self, session: u64, periodic: Option<&PeriodicCaptureState>, now: Instant) {
        self.periodic.remove(&session);
        let Some(PeriodicCaptureState { seconds, providers }) = periodic else { return };
        let every = Duration::from_secs(u64::from(*seconds));
        let (next, providers) = (now + every, providers.clone());
        self.periodic.insert(session, Periodic { every, next, providers });
    }
}
