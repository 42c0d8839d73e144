//! What the threads of a process share under the client's lock: how far the control thread is, what it is asked to do, which sessions are open.

use std::path::PathBuf;

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableParams, Filter, Message};

use super::fork;
use super::outlets::{Owner, Table};
use super::promise::Promise;
use crate::private::Running;
use crate::provider::{Classes, Decoding, Handle, Module, Traits};

/// Lines for people at most.
const MAX_NOTES: usize = 32;

/// Something to be done on a thread of its own.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Everything under the lock.
#[derive(Default)]
pub(crate) struct Shared {
    pub(super) thread: Thread,
    /// The control thread has not yet tried all daemons.
    pub(super) starting: bool,
    /// Daemons that we connected to and that have not answered yet.
    pub(super) greeting: u32,
    /// Registrations that daemons have not confirmed: connection (0: not yet sent) and number.
    pub(super) awaited: Vec<(u64, u32)>,
    /// A daemon let a registration wait for too long: until it answers, nobody waits for it.
    pub(super) silent: bool,
    /// Registrations that went on before a daemon had answered: connection (0: not yet sent) and number.
    pub(super) late: Vec<(u64, u32)>,
    /// Registrations that went on before a daemon had answered their traits, likewise.
    pub(super) late_traits: Vec<(u64, u32)>,
    pub(super) commands: Vec<Command>,
    /// What waits for a thread that shares the library's descriptors.
    pub(super) jobs: Vec<Job>,
    pub(crate) table: Table,
    pub(super) interned: Interned,
    /// Traits that daemons have been told and have not all accepted.
    pub(super) settings: Vec<Setting>,
    /// What daemons said to registrations that are waited for: number, and why it was refused.
    pub(super) verdicts: Vec<(u32, Option<(Status, String)>)>,
    /// Filters that came for registrations whose threads will call the callback themselves.
    pub(super) filters: Vec<(u32, Filter)>,
    /// Provider sockets, to be removed at exit.
    pub(super) sockets: Vec<PathBuf>,
    /// Private sessions that run, and how many were started.
    pub(crate) private: Vec<Running>,
    pub(crate) private_started: u64,
    /// Daemons that welcomed us.
    pub(super) daemons: u32,
    /// Sessions whose memory this process could not use.
    pub(super) refused: Vec<Refused>,
    /// For people: each folder and what became of it, and what else went wrong.
    pub(super) links: Vec<String>,
}

/// What registrations refer to for the life of the process, each kind once.
#[derive(Debug, Default)]
pub(super) struct Interned {
    traits: Vec<&'static Traits>,
    decodings: Vec<&'static Decoding>,
    classes: Vec<&'static Classes>,
    modules: Vec<&'static Module>,
}

impl Interned {
    pub(super) fn traits(&mut self, traits: &[u8]) -> &'static Traits {
        keep(&mut self.traits, |known| *known.bytes() == *traits, || Traits::new(traits))
    }

    pub(super) fn decoding(&mut self, decoding: Decoding) -> &'static Decoding {
        let known = self.decodings.iter().find(|known| ***known == decoding).copied();
        known.unwrap_or_else(|| keep(&mut self.decodings, |_| false, || decoding))
    }

    pub(super) fn module(&mut self, module: Module) -> &'static Module {
        let known = self.modules.iter().find(|known| ***known == module).copied();
        known.unwrap_or_else(|| keep(&mut self.modules, |_| false, || module))
    }

    pub(super) fn classes(&mut self, classes: &[Guid]) -> &'static Classes {
        keep(&mut self.classes, |known| *known.0 == *classes, || Classes(classes.into()))
    }
}

/// The one that is known already, or a new one.
fn keep<T>(all: &mut Vec<&'static T>, is_it: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &'static T {
    if let Some(known) = all.iter().find(|known| is_it(known)) {
        return known;
    }
    let new: &'static T = Box::leak(Box::new(make()));
    all.push(new);
    new
}

/// Traits on their way to the daemons.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) registration: u32,
    pub(super) traits: &'static Traits,
    /// The control thread has told all daemons that know the registration.
    pub(super) said: bool,
    /// Connections whose answers are missing.
    pub(super) awaited: Vec<u64>,
    /// A daemon took them.
    pub(super) accepted: bool,
    /// Why a daemon did not.
    pub(super) refused: Option<(Status, String)>,
}

/// A session that this process cannot write to, until its daemon closes it.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) owner: Owner,
    pub(super) session: u64,
    pub(super) status: Status,
    pub(super) reason: String,
}

#[derive(Debug, Default)]
pub(super) enum Thread {
    #[default]
    None,
    Running,
    Failed(String),
}

/// What other threads ask of the control thread.
#[derive(Debug)]
pub(super) enum Command {
    Register(u32),
    Unregister(u32),
    /// Tell daemons of traits that were set after the registration.
    SetTraits(u32, &'static Traits),
    /// Say something to a daemon.
    Say {
        peer: u64,
        message: Box<Message>,
    },
    /// Run callbacks.
    Tell {
        changed: Vec<Handle>,
        source: Guid,
        filter: Option<Filter>,
        done: Promise<()>,
    },
    /// Run callbacks that write their providers' state to the session of an outlet.
    Capture {
        providers: Vec<Handle>,
        outlet: u8,
        params: Box<EnableParams>,
        done: Promise<()>,
    },
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("thread", &self.thread)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Adds a line for people; the first ones matter most.
    pub(super) fn note(&mut self, line: String) {
        if self.links.len() < MAX_NOTES && !self.links.contains(&line) {
            self.links.push(line);
        }
    }

    /// A daemon has answered a registration. What it said matters while somebody waits for it.
    pub(super) fn answered(&mut self, peer: u64, registration: u32, refused: Option<(Status, String)>) {
        let before = self.awaited.len();
        self.awaited.retain(|a| *a != (peer, registration));
        let is_waited_for = Handle::from_number(registration).is_some_and(|h| h.slot().is_registering());
        if self.awaited.len() < before && is_waited_for {
            self.verdicts.push((registration, refused));
        }
        self.silent = false;
    }

    /// Whether a registration went on before a daemon had answered it, or its traits.
    pub(super) fn is_late(&self, peer: u64, registration: u32) -> bool {
        let mut late = self.late.iter().chain(&self.late_traits);
        late.any(|(p, number)| *number == registration && (*p == peer || *p == 0))
    }

    /// What came of a registration: refused where a daemon forbids it and none takes it.
    pub(super) fn verdict(&mut self, registration: u32) -> crate::error::Result<()> {
        let of_it = |(number, _): &mut (u32, _)| *number == registration;
        let said: Vec<Option<(Status, String)>> =
            self.verdicts.extract_if(.., of_it).map(|(_, refused)| refused).collect();
        if said.iter().any(Option::is_none) {
            return Ok(());
        }
        let forbidden = said.into_iter().flatten().find(|(status, _)| *status == Status::ERROR_ACCESS_DENIED);
        forbidden.map_or(Ok(()), |(status, reason)| Err(crate::Error::refused(status, reason)))
    }

    /// The filter that came for a registration while its thread waited.
    pub(super) fn take_filter(&mut self, registration: u32) -> Option<Filter> {
        let found = self.filters.iter().position(|(number, _)| *number == registration);
        found.map(|at| self.filters.swap_remove(at).1)
    }

    /// Whether the control thread has not yet told the daemons of a registration.
    pub(super) fn is_unsent(&self, number: u32) -> bool {
        self.starting || self.awaited.contains(&(0, number))
    }

    pub(super) fn is_pending(&self, number: u32) -> bool {
        let asked = self.starting || self.greeting != 0 || self.awaited.iter().any(|(_, n)| *n == number);
        // In a forked child, until the parent's sessions have made room for its own.
        asked || !fork::is_ready()
    }

    /// Private sessions of this process may want a new registration.
    pub(super) fn apply_private(&mut self, handle: Handle) {
        let provider = handle.slot().provider();
        for open in self.table.open.iter().filter(|o| o.owner == Owner::Private) {
            for (_, params) in open.enables.iter().filter(|(p, _)| *p == provider) {
                handle.enable_session(open.outlet, open.ticket, params);
            }
        }
    }

    /// In a forked child, when its own sessions are known: those of the parent are forgotten. The registrations for which that is a change.
    pub(super) fn drop_inherited(&mut self) -> Vec<Handle> {
        if fork::is_ready() {
            return Vec::new();
        }
        let inherited = fork::inherited();
        let mut changed = Vec::new();
        for handle in Handle::all() {
            let before = handle.slot().combined(inherited);
            handle.slot().disable_sessions(inherited);
            if handle.slot().combined(u64::MAX) == before {
                handle.slot().forget_changes();
            } else {
                changed.push(handle);
            }
        }
        fork::set_ready();
        changed
    }
}
