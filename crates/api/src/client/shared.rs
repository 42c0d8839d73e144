//! The state that the threads of a process share under the client's lock: progress of the control
//! thread, requests to it, open sessions.

use std::path::PathBuf;

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_session::Session;
use traceweir_transport::message::{EnableParams, Filter, Message};
use traceweir_transport::ring::Ticket;

use crate::process::fork;
use crate::process::outlets::{OutletTable, SessionOwner};
use crate::process::promise::Promise;
use crate::registration::enable::EnableChange;
use crate::registration::{
    Classes, DecodeGuidWords, Handle, ProviderModule, ProviderTraits, provider_filter,
};

/// Maximum number of notes, which are the first lines that `link_state` returns.
const MAX_NOTES: usize = 32;

/// The `AwaitedAnswer::peer` of a registration that was not sent to a daemon yet.
pub(super) const UNSENT: u64 = 0;

/// A registration that a daemon has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AwaitedAnswer {
    /// The number of the connection to the daemon, or [`UNSENT`].
    pub(super) peer: u64,
    pub(super) registration: u32,
}

impl AwaitedAnswer {
    pub(super) fn unsent(registration: u32) -> Self {
        Self { peer: UNSENT, registration }
    }
}

/// Work for a separate thread.
pub(super) type LibraryJob = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(super) struct SharedState {
    pub(super) control_thread: ControlThreadState,
    /// The control thread has not yet tried all daemons.
    pub(super) is_starting: bool,
    /// The threads that start with the library are ready for registrations.
    pub(super) has_started_at_load: bool,
    /// Registrations that were made before the load handler started the threads of the library.
    pub(super) registered_before_threads: Vec<u32>,
    /// Daemons that this process connected to and that have not sent a Welcome yet.
    pub(super) unanswered_greetings: u32,
    /// Registrations that daemons have not confirmed.
    pub(super) awaited_registrations: Vec<AwaitedAnswer>,
    /// A daemon made a registration wait too long: until a daemon answers, no thread waits for
    /// answers.
    pub(super) has_unresponsive_daemon: bool,
    /// Registrations that continued (their calls returned) before a daemon had answered.
    pub(super) late_registrations: Vec<AwaitedAnswer>,
    /// Registrations that continued before a daemon had answered their traits.
    pub(super) late_traits: Vec<AwaitedAnswer>,
    pub(super) commands: Vec<ControlCommand>,
    /// Work that waits for a thread that shares the library's descriptors.
    pub(super) jobs: Vec<LibraryJob>,
    pub(super) outlets: OutletTable,
    pub(super) interned: Interned,
    /// Traits that a thread is setting, while it waits for the daemons' answers.
    pub(super) pending_traits: Vec<PendingTraits>,
    /// The daemons' answers to awaited registrations: registration, and status and reason of a
    /// refusal, or `None` if the daemon accepted it.
    pub(super) registration_answers: Vec<(u32, Option<(Status, String)>)>,
    /// Filters that arrived during a registration call. The registering thread passes them to the
    /// callback.
    pub(super) pending_filters: Vec<(u32, Filter)>,
    /// Provider sockets, to be removed at exit.
    pub(super) sockets: Vec<PathBuf>,
    /// Running private sessions.
    pub(super) private_sessions: Vec<RunningPrivateSession>,
    /// Number of private sessions started so far.
    pub(super) private_sessions_started: u64,
    /// Number of daemons that sent a Welcome.
    pub(super) welcoming_daemons: u32,
    /// Sessions whose memory this process could not use.
    pub(super) unusable_sessions: Vec<UnusableSession>,
    /// Lines of [`link_state`](super::link_state): each folder and its state, and other failures.
    pub(super) notes: Vec<String>,
}

/// Values that registrations refer to for the life of the process, each stored once.
#[derive(Debug, Default)]
pub(super) struct Interned {
    traits: Vec<&'static ProviderTraits>,
    decodings: Vec<&'static DecodeGuidWords>,
    classes: Vec<&'static Classes>,
    modules: Vec<&'static ProviderModule>,
}

impl Interned {
    pub(super) fn intern_traits(&mut self, traits: &[u8]) -> &'static ProviderTraits {
        intern(&mut self.traits, |known| *known.bytes() == *traits, || ProviderTraits::new(traits))
    }

    // This function and the next search by themselves: the closure `make` of `intern` takes the
    // value, so the closure `is_equal` cannot borrow it.
    pub(super) fn intern_decoding(&mut self, decoding: DecodeGuidWords) -> &'static DecodeGuidWords {
        let known = self.decodings.iter().find(|known| ***known == decoding).copied();
        known.unwrap_or_else(|| intern(&mut self.decodings, |_| false, || decoding))
    }

    pub(super) fn intern_module(&mut self, module: ProviderModule) -> &'static ProviderModule {
        let known = self.modules.iter().find(|known| ***known == module).copied();
        known.unwrap_or_else(|| intern(&mut self.modules, |_| false, || module))
    }

    pub(super) fn intern_classes(&mut self, classes: &[Guid]) -> &'static Classes {
        intern(&mut self.classes, |known| *known.0 == *classes, || Classes(classes.into()))
    }
}

/// Returns an equal value that is stored already, or stores a new one.
fn intern<T>(
    stored: &mut Vec<&'static T>,
    is_equal: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> &'static T {
    if let Some(known) = stored.iter().find(|known| is_equal(known)) {
        return known;
    }
    let new: &'static T = Box::leak(Box::new(make()));
    stored.push(new);
    new
}

/// Traits on their way to the daemons.
#[derive(Debug)]
pub(super) struct PendingTraits {
    pub(super) registration: u32,
    pub(super) traits: &'static ProviderTraits,
    /// The control thread has sent the traits to all daemons that know the registration.
    pub(super) is_sent: bool,
    /// Connections whose answers are missing.
    pub(super) awaited: Vec<u64>,
    /// A daemon accepted the traits.
    pub(super) is_accepted: bool,
    /// The status and reason of a daemon's refusal.
    pub(super) refusal: Option<(Status, String)>,
}

/// A session that this process cannot write to, until its daemon closes it.
#[derive(Debug)]
pub(super) struct UnusableSession {
    pub(super) owner: SessionOwner,
    pub(super) session: u64,
    pub(super) status: Status,
    pub(super) reason: String,
}

/// Device and inode of a file.
pub(super) type FileId = (u64, u64);

/// A private session of this process.
pub(super) struct RunningPrivateSession {
    pub(super) id: u64,
    /// Missing while the session starts.
    pub(super) session: Option<Session>,
    /// Identity of its log file.
    pub(super) file: Option<FileId>,
    /// Identities of files that changes in progress have reserved.
    pub(super) reserved: Vec<FileId>,
    /// Whether a controller started the session, and not this process.
    pub(super) is_from_controller: bool,
}

impl RunningPrivateSession {
    /// Returns whether the session writes a file or has reserved it.
    pub(super) fn uses_file(&self, file: Option<FileId>) -> bool {
        file.is_some_and(|id| self.file == Some(id) || self.reserved.contains(&id))
    }
}

impl std::fmt::Debug for RunningPrivateSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningPrivateSession")
            .field("id", &self.id)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(super) enum ControlThreadState {
    #[default]
    NotStarted,
    Running,
    Failed(String),
}

/// A request to the control thread.
#[derive(Debug)]
pub(super) enum ControlCommand {
    Register(u32),
    Unregister(u32),
    /// Send traits that were set after the registration to the daemons.
    SetTraits(u32, &'static ProviderTraits),
    /// Send a message to a daemon.
    Send {
        peer: u64,
        message: Box<Message>,
    },
    /// Fulfil the promise once all messages that daemons had sent before are handled.
    CatchUp(Promise<()>),
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

impl std::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedState")
            .field("control_thread", &self.control_thread)
            .field("outlets", &self.outlets)
            .finish_non_exhaustive()
    }
}

impl SharedState {
    /// Adds a line for [`link_state`](super::link_state), unless there are enough: the first ones
    /// matter most.
    pub(super) fn add_note(&mut self, line: String) {
        if self.notes.len() < MAX_NOTES && !self.notes.contains(&line) {
            self.notes.push(line);
        }
    }

    /// Records that the control thread is being started.
    pub(super) fn expect_start(&mut self) {
        (self.control_thread, self.is_starting) = (ControlThreadState::Running, true);
    }

    /// Records a daemon's answer to a registration. The answer is kept only if a thread waits for it.
    pub(super) fn record_answer(&mut self, peer: u64, registration: u32, refusal: Option<(Status, String)>) {
        let before = self.awaited_registrations.len();
        self.awaited_registrations.retain(|awaited| *awaited != AwaitedAnswer { peer, registration });
        let is_waited_for =
            Handle::from_number(registration).is_some_and(|handle| handle.slot().is_registering());
        if self.awaited_registrations.len() < before && is_waited_for {
            self.registration_answers.push((registration, refusal));
        }
        self.has_unresponsive_daemon = false;
    }

    /// Returns whether a registration continued before a daemon had answered it, or its traits.
    pub(super) fn is_late(&self, peer: u64, registration: u32) -> bool {
        let mut late = self.late_registrations.iter().chain(&self.late_traits);
        late.any(|late| late.registration == registration && (late.peer == peer || late.peer == UNSENT))
    }

    /// Removes a registration's answers and returns its result: an error if a daemon forbids the
    /// registration and none accepts it.
    pub(super) fn take_registration_result(&mut self, registration: u32) -> crate::error::Result<()> {
        let is_meant = |(number, _): &mut (u32, _)| *number == registration;
        let answers: Vec<Option<(Status, String)>> =
            self.registration_answers.extract_if(.., is_meant).map(|(_, refusal)| refusal).collect();
        if answers.iter().any(Option::is_none) {
            return Ok(());
        }
        let denial = answers.into_iter().flatten().find(|(status, _)| *status == Status::ERROR_ACCESS_DENIED);
        denial.map_or(Ok(()), |(status, reason)| Err(crate::Error::refused(status, reason)))
    }

    /// Removes and returns the filter that arrived for a registration while its thread waited.
    pub(super) fn take_filter(&mut self, registration: u32) -> Option<Filter> {
        let index = self.pending_filters.iter().position(|(number, _)| *number == registration)?;
        Some(self.pending_filters.swap_remove(index).1)
    }

    /// Returns whether the control thread has not yet sent a registration to the daemons.
    pub(super) fn is_unsent(&self, number: u32) -> bool {
        self.is_starting || self.awaited_registrations.contains(&AwaitedAnswer::unsent(number))
    }

    pub(super) fn is_unanswered(&self, number: u32) -> bool {
        let is_awaiting = self.is_starting
            || self.unanswered_greetings != 0
            || self.awaited_registrations.iter().any(|awaited| awaited.registration == number);
        // A forked child waits until its own sessions have replaced the parent's.
        is_awaiting || !fork::may_write()
    }

    /// Enables a registration for a session and returns the result.
    pub(super) fn enable(
        &mut self,
        handle: Handle,
        outlet: u8,
        ticket: Ticket,
        params: &EnableParams,
    ) -> EnableChange {
        let change = handle.enable_session(outlet, ticket, params);
        if let Some(filter) = provider_filter(&params.filters)
            && handle.slot().is_registering()
        {
            // The filter of the last session stays, as if the callback ran for each session.
            self.pending_filters.retain(|(number, _)| *number != handle.number());
            self.pending_filters.push((handle.number(), filter.clone()));
        }
        change
    }

    /// Enables a new registration for the private sessions of this process that enable its
    /// provider.
    pub(super) fn enable_for_private_sessions(&mut self, handle: Handle) {
        let provider = handle.slot().provider();
        for open in self.outlets.sessions.iter().filter(|open| open.owner == SessionOwner::Private) {
            for (_, params) in open.enables.iter().filter(|(p, _)| *p == provider) {
                handle.enable_session(open.outlet, open.ticket, params);
            }
        }
    }

    /// Forgets the parent's sessions in a forked child when its own sessions are known, and returns
    /// the changed registrations.
    pub(super) fn drop_inherited_sessions(&mut self) -> Vec<Handle> {
        if fork::may_write() {
            return Vec::new();
        }
        let inherited = fork::inherited_outlets();
        let mut changed = Vec::new();
        for handle in Handle::iter_current() {
            let before = handle.slot().combine_enables(inherited);
            handle.slot().disable_sessions(inherited);
            if handle.slot().combine_enables(u64::MAX) == before {
                handle.slot().mark_changes_reported();
            } else {
                changed.push(handle);
            }
        }
        fork::set_ready();
        changed
    }
}
