//! The state that the threads of a process share under the client's lock: progress of the control
//! thread, its requests, open sessions.

use std::path::PathBuf;

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_session::Session;
use traceweir_transport::message::{EnableParams, Filter, Message};
use traceweir_transport::ring::Ticket;

use crate::process::fork;
use crate::process::outlets::{Owner, Table};
use crate::process::promise::Promise;
use crate::registration::enable::Change;
use crate::registration::{Classes, Decoding, Handle, Module, Traits, provider_filter};

/// Maximum number of lines for people.
const MAX_NOTES: usize = 32;

/// Work for a separate thread.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The state under the lock.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) thread: Thread,
    /// The control thread has not yet tried all daemons.
    pub(super) starting: bool,
    /// Daemons that this process connected to and that have not answered yet.
    pub(super) greeting: u32,
    /// Registrations that daemons have not confirmed: connection (0: not yet sent) and number.
    pub(super) awaited: Vec<(u64, u32)>,
    /// A daemon made a registration wait too long: until it answers, no thread waits for it.
    pub(super) silent: bool,
    /// Registrations that continued before a daemon had answered: connection (0: not yet sent) and
    /// number.
    pub(super) late: Vec<(u64, u32)>,
    /// Registrations that continued before a daemon had answered their traits, likewise.
    pub(super) late_traits: Vec<(u64, u32)>,
    pub(super) commands: Vec<Command>,
    /// Work that waits for a thread that shares the library's descriptors.
    pub(super) jobs: Vec<Job>,
    pub(super) table: Table,
    pub(super) interned: Interned,
    /// Traits that were sent to daemons and that not all have accepted.
    pub(super) settings: Vec<PendingTraits>,
    /// The daemons' answers to awaited registrations: number, and the reason of a refusal.
    pub(super) verdicts: Vec<(u32, Option<(Status, String)>)>,
    /// Filters that arrived for registrations whose threads will call the callback themselves.
    pub(super) filters: Vec<(u32, Filter)>,
    /// Provider sockets, to be removed at exit.
    pub(super) sockets: Vec<PathBuf>,
    /// Running private sessions, and the number started so far.
    pub(super) private: Vec<Running>,
    pub(super) private_started: u64,
    /// Number of daemons that sent a Welcome.
    pub(super) daemons: u32,
    /// Sessions whose memory this process could not use.
    pub(super) refused: Vec<Refused>,
    /// Lines for people: each folder and its state, and other failures.
    pub(super) links: Vec<String>,
}

/// Values that registrations refer to for the life of the process, each stored once.
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

/// Returns an equal value that is stored already, or stores a new one.
fn keep<T>(all: &mut Vec<&'static T>, is_equal: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &'static T {
    if let Some(known) = all.iter().find(|known| is_equal(known)) {
        return known;
    }
    let new: &'static T = Box::leak(Box::new(make()));
    all.push(new);
    new
}

/// Traits on their way to the daemons.
#[derive(Debug)]
pub(super) struct PendingTraits {
    pub(super) registration: u32,
    pub(super) traits: &'static Traits,
    /// The control thread has sent them to all daemons that know the registration.
    pub(super) is_sent: bool,
    /// Connections whose answers are missing.
    pub(super) awaited: Vec<u64>,
    /// A daemon accepted them.
    pub(super) accepted: bool,
    /// The reason of a daemon's refusal.
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

/// Device and inode of a file.
pub(super) type FileId = (u64, u64);

/// A private session of this process.
pub(super) struct Running {
    pub(super) id: u64,
    /// Missing while it starts.
    pub(super) session: Option<Session>,
    /// Identity of its log file.
    pub(super) file: Option<FileId>,
    /// Identities of files that changes in progress have reserved.
    pub(super) reserved: Vec<FileId>,
    /// A controller started it through a daemon.
    pub(super) from_outside: bool,
}

impl Running {
    /// Returns whether it writes a file or has reserved it.
    pub(super) fn writes(&self, file: Option<FileId>) -> bool {
        file.is_some_and(|id| self.file == Some(id) || self.reserved.contains(&id))
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("id", &self.id).field("file", &self.file).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(super) enum Thread {
    #[default]
    None,
    Running,
    Failed(String),
}

/// A request to the control thread.
#[derive(Debug)]
pub(super) enum Command {
    Register(u32),
    Unregister(u32),
    /// Send traits that were set after the registration to the daemons.
    SetTraits(u32, &'static Traits),
    /// Send a message to a daemon.
    Send {
        peer: u64,
        message: Box<Message>,
    },
    /// Run the callbacks of changed registrations.
    RunCallbacks {
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

    /// Records a daemon's answer to a registration, which matters while a thread waits for it.
    pub(super) fn answered(&mut self, peer: u64, registration: u32, refused: Option<(Status, String)>) {
        let before = self.awaited.len();
        self.awaited.retain(|a| *a != (peer, registration));
        let is_waited_for = Handle::from_number(registration).is_some_and(|h| h.slot().is_registering());
        if self.awaited.len() < before && is_waited_for {
            self.verdicts.push((registration, refused));
        }
        self.silent = false;
    }

    /// Returns whether a registration continued before a daemon had answered it, or its traits.
    pub(super) fn is_late(&self, peer: u64, registration: u32) -> bool {
        let mut late = self.late.iter().chain(&self.late_traits);
        late.any(|(p, number)| *number == registration && (*p == peer || *p == 0))
    }

    /// Returns the result of a registration: refused if a daemon forbids it and none accepts it.
    pub(super) fn verdict(&mut self, registration: u32) -> crate::error::Result<()> {
        let of_it = |(number, _): &mut (u32, _)| *number == registration;
        let answers: Vec<Option<(Status, String)>> =
            self.verdicts.extract_if(.., of_it).map(|(_, refused)| refused).collect();
        if answers.iter().any(Option::is_none) {
            return Ok(());
        }
        let forbidden =
            answers.into_iter().flatten().find(|(status, _)| *status == Status::ERROR_ACCESS_DENIED);
        forbidden.map_or(Ok(()), |(status, reason)| Err(crate::Error::refused(status, reason)))
    }

    /// Removes and returns the filter that arrived for a registration while its thread waited.
    pub(super) fn take_filter(&mut self, registration: u32) -> Option<Filter> {
        let found = self.filters.iter().position(|(number, _)| *number == registration);
        found.map(|at| self.filters.swap_remove(at).1)
    }

    /// Returns whether the control thread has not yet sent a registration to the daemons.
    pub(super) fn is_unsent(&self, number: u32) -> bool {
        self.starting || self.awaited.contains(&(0, number))
    }

    pub(super) fn is_pending(&self, number: u32) -> bool {
        let is_unanswered =
            self.starting || self.greeting != 0 || self.awaited.iter().any(|(_, n)| *n == number);
        // In a forked child, until the child's own sessions have replaced the parent's.
        is_unanswered || !fork::is_ready()
    }

    /// Enables a registration for a session and returns the result.
    pub(super) fn enable(
        &mut self,
        handle: Handle,
        outlet: u8,
        ticket: Ticket,
        params: &EnableParams,
    ) -> Change {
        let change = handle.enable_session(outlet, ticket, params);
        if let Some(filter) = provider_filter(&params.filters)
            && handle.slot().is_registering()
        {
            // With several sessions the last filter, as with a callback that runs for each.
            self.filters.retain(|(number, _)| *number != handle.number());
            self.filters.push((handle.number(), filter.clone()));
        }
        change
    }

    /// Enables a new registration for the private sessions of this process that want it.
    pub(super) fn apply_private(&mut self, handle: Handle) {
        let provider = handle.slot().provider();
        for open in self.table.open.iter().filter(|o| o.owner == Owner::Private) {
            for (_, params) in open.enables.iter().filter(|(p, _)| *p == provider) {
                handle.enable_session(open.outlet, open.ticket, params);
            }
        }
    }

    /// Forgets the parent's sessions in a forked child when its own sessions are known, and returns
    /// the changed registrations.
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
