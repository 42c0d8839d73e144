//! What was set, of sessions and of the system, for as long as it counts.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::info::PeriodicCaptureState;
use traceweir_session::info::{Machine, Settings, System};

/// All that was set.
#[derive(Debug, Default)]
pub(in crate::service) struct Information {
    pub(super) sessions: BTreeMap<u64, Settings>,
    pub(super) periodic: BTreeMap<u64, Periodic>,
    pub(super) system: System,
    machine: OnceCell<Machine>,
}

/// Providers that are asked for their state.
#[derive(Debug)]
pub(super) struct Periodic {
    pub(super) every: Duration,
    pub(super) next: Instant,
    pub(super) providers: Vec<Guid>,
}

impl Information {
    /// When somebody is to be asked for its state.
    pub(in crate::service) fn deadline(&self) -> Option<Instant> {
        self.periodic.values().map(|it| it.next).min()
    }

    /// Whether nothing is set that outlives sessions.
    pub(in crate::service) fn is_of_sessions_only(&self) -> bool {
        self.system.is_as_usual()
    }

    /// A session begins to stop.
    pub(in crate::service) fn forget(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.periodic.remove(&session);
    }

    /// Whether a session is told where providers live.
    pub(in crate::service) fn tracks_binaries(&self, session: u64) -> bool {
        self.sessions.get(&session).is_some_and(Settings::tracks_binaries)
    }

    pub(super) fn machine(&self) -> &Machine {
        self.machine.get_or_init(Machine::look)
    }

    /// The settings of the system, and what the machine has.
    pub(in crate::service) fn of_system(&self) -> (&System, &Machine) {
        (&self.system, self.machine())
    }

    /// Keeps other settings of the system.
    pub(in crate::service) fn set_system(&mut self, system: System) {
        self.system = system;
    }

    /// Keeps the settings of a session.
    pub(in crate::service) fn keep(&mut self, session: u64, settings: Settings) {
        self.sessions.insert(session, settings);
    }

    /// The settings of a session.
    pub(in crate::service) fn settings(&self, session: u64) -> Settings {
        self.sessions.get(&session).cloned().unwrap_or_default()
    }

    pub(super) fn repeat(&mut self, session: u64, wish: Option<&PeriodicCaptureState>) {
        self.periodic.remove(&session);
        let Some(PeriodicCaptureState { seconds, providers }) = wish else { return };
        let every = Duration::from_secs(u64::from(*seconds));
        let (next, providers) = (Instant::now() + every, providers.clone());
        self.periodic.insert(session, Periodic { every, next, providers });
    }
}
