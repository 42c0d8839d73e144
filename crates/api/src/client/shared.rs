//! What the threads of a process share under the client's lock: how far the control thread is, what it is asked to do, which sessions are open.

use std::path::PathBuf;

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Filter, Message};

use super::fork;
use super::outlets::{Owner, Table};
use super::promise::Promise;
use crate::private::Running;
use crate::provider::{Handle, Traits};

/// Lines for people at most.
const MAX_NOTES: usize = 32;

/// Everything under the lock.
#[derive(Debug, Default)]
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
    pub(super) commands: Vec<Command>,
    pub(crate) table: Table,
    pub(super) traits: Vec<&'static Traits>,
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
}

impl Shared {
    /// Adds a line for people; the first ones matter most.
    pub(super) fn note(&mut self, line: String) {
        if self.links.len() < MAX_NOTES && !self.links.contains(&line) {
            self.links.push(line);
        }
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
                handle.slot().wish(open.outlet, open.ticket, params);
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
            handle.slot().unwish(inherited);
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
