//! Storage for the settings of sessions and of the system.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::info::PeriodicCaptureState;
use traceweir_session::info::{Machine, Settings, System};

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
        self.system.is_default()
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
        self.machine.get_or_init(Machine::inspect)
    }

    /// Returns the settings of the system, and the features of the machine.
    pub(in crate::service) fn system_and_machine(&self) -> (&System, &Machine) {
        (&self.system, self.machine())
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

    pub(super) fn repeat(&mut self, session: u64, periodic: Option<&PeriodicCaptureState>) {
        self.periodic.remove(&session);
        let Some(PeriodicCaptureState { seconds, providers }) = periodic else { return };
        let every = Duration::from_secs(u64::from(*seconds));
        let (next, providers) = (Instant::now() + every, providers.clone());
        self.periodic.insert(session, Periodic { every, next, providers });
    }
}
