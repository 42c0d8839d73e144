//! The control thread: one per process, asleep until a daemon or another thread has a request.
//!
//! ```text
//!   start: listen, connect ─▶ Hello ─▶ Welcome ─▶ Register … ─▶ Region, Enable …, Registered
//!   later: a daemon connects ─▶ Knock ─▶ Hello ─▶ Welcome ─▶ (the same)
//!   a daemon drops the connection but runs (`reconnect`) ─▶ connect ─▶ Hello ─▶ (the same)
//!   a daemon is full or lacks resources (`reconnect`) ─▶ wait ─▶ connect ─▶ Hello ─▶ (the same)
//! ```
//!
//! A daemon that already has a connection to this process refuses a second one; a daemon that
//! restarted welcomes this process, and the connection to its predecessor ends by itself. So
//! every connection is independent, and a session belongs to the connection over which it came.

mod at_load;
mod early;
mod orders;
mod private;
mod reconnect;
mod repair;

use std::convert::Infallible;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging::{self, TraitsBuilder};
use traceweir_transport::Error;
use traceweir_transport::enabled::ListedEnable;
use traceweir_transport::message::{EnableParams, Filter, Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::{Connection, Envelope};

use super::callbacks::CallbackThread;
use super::link::{ConnectionKind, DaemonFolder, DaemonPeer, PendingRequest};
use super::shared::{AwaitedAnswer, ControlCommand};
use super::wakers::Wakers;
use super::{Client, REPLY_TIMEOUT, notify_registrations};
use crate::process::promise::Promise;
use crate::process::{self, fork, outlets};
use crate::registration::{Handle, ProviderTraits};
use private::PrivateMember;
use reconnect::ReconnectSchedule;
use repair::MissedSessions;

/// Number of connections at which an accepted connection replaces another one: any process of root
/// or of this user may connect.
const MAX_PEERS: usize = 16;
/// How long a process without free descriptors waits before it opens its folders again.
const DESCRIPTOR_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Messages that are read from one connection before the other connections are read.
const MAX_MESSAGES_PER_BATCH: usize = 64;
/// Maximum size in bytes of traits that are sent unchanged: well below the limit of a message.
const MAX_TRAITS_BYTES: usize = 32 * 1024;

/// The state of the control thread, the only thread that uses sockets.
pub(super) struct ControlThread {
    client: &'static Client,
    folders: Vec<DaemonFolder>,
    reconnects: ReconnectSchedule,
    peers: Vec<DaemonPeer>,
    next_peer: u64,
    program: String,
    /// Private sessions that daemons started.
    members: Vec<PrivateMember>,
    /// The latest time at which a forked child drops the sessions that it inherited.
    inherited_sessions_deadline: Instant,
    /// Runs code of the program, such as callbacks, with the program's descriptor table, which this
    /// thread does not use.
    callbacks: CallbackThread,
    /// Writes eventfds for the threads of the program.
    wakers: &'static Wakers,
    /// When to retry folders that could not be opened because no descriptor was free.
    folder_retry_at: Option<Instant>,
    /// Threads that wait until the messages that daemons have sent are handled.
    catching_up: Vec<Promise<()>>,
    /// Sessions that missed events of this process. When such a session enables a registration of the
    /// process again, it counts the process among those that lost an unknown number of events.
    missed: MissedSessions,
}

/// When the control thread was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    AtRegistration,
    /// When the library was loaded, usually before any registration.
    AtLoad,
}

/// Runs the control thread. Returns only if the waking thread cannot be started.
pub(super) fn run(
    client: &'static Client,
    callbacks: CallbackThread,
    start: Start,
) -> std::io::Result<Infallible> {
    client.control_watch.watch_this_thread();
    process::separate_descriptors();
    let wakers = Wakers::start(client)?;
    let wakers = client.wakers.get_or_init(|| wakers);
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
    let mut control = ControlThread {
        client,
        folders: Vec::new(),
        reconnects: ReconnectSchedule::default(),
        peers: Vec::new(),
        next_peer: 1,
        members: Vec::new(),
        program: program.unwrap_or_default(),
        inherited_sessions_deadline: Instant::now() + REPLY_TIMEOUT,
        callbacks,
        wakers,
        folder_retry_at: None,
        catching_up: Vec::new(),
        missed: MissedSessions::default(),
    };
    control.wait_for_registration(start);
    control.open_folders();
    loop {
        control.drop_parent_sessions();
        control.flush_peers();
        control.wait_for_work();
        control.replace_closed_descriptors();
        control.run_commands();
        control.accept_daemons();
        if control.receive_messages() {
            control.catching_up.drain(..).for_each(|done| done.fulfil(()));
        }
        control.reconnect_due_folders();
        if control.folder_retry_at.is_some_and(|at| at <= Instant::now()) {
            control.open_untried_folders();
        }
    }
}

impl ControlThread {
    fn open_folders(&mut self) {
        self.folders = RuntimeDir::for_providers().into_iter().map(DaemonFolder::new).collect();
        self.open_untried_folders();
        let mut shared = self.client.lock();
        shared.is_starting = false;
        shared.registered_before_threads.clear();
        drop(shared);
        self.client.state_changed.notify_all();
    }

    /// Tries folders that were not tried yet or lacked a descriptor.
    fn open_untried_folders(&mut self) {
        for index in 0..self.folders.len() {
            if !self.folders[index].needs_attempt() {
                continue;
            }
            match self.folders[index].open() {
                Ok((connection, kind)) => self.greet_daemon(connection, kind, index),
                // The daemon runs, and its queue of connections is full.
                Err(Error::TimedOut) => self.reconnects.schedule_after_failure(index),
                Err(_) => {}
            }
            let (folder, mut shared) = (&self.folders[index], self.client.lock());
            shared.add_note(folder.description.clone());
            if let Some(socket) = folder.socket_path().filter(|socket| !shared.sockets.contains(socket)) {
                shared.sockets.push(socket);
            }
        }
        self.schedule_folder_retry();
    }

    /// Schedules another attempt for folders that lack a descriptor.
    pub(super) fn schedule_folder_retry(&mut self) {
        let needs_attempt = self.folders.iter().any(DaemonFolder::needs_attempt);
        self.folder_retry_at = needs_attempt.then(|| Instant::now() + DESCRIPTOR_RETRY_INTERVAL);
    }

    /// Greets a daemon that this process connected to.
    pub(super) fn greet_daemon(&mut self, connection: Connection, kind: ConnectionKind, folder: usize) {
        self.client.lock().unanswered_greetings += 1;
        self.add_peer(connection, folder, Some(kind));
        let index = self.peers.len() - 1;
        if self.reconnects.has_failed(folder) {
            self.mark_missed_registrations(index);
        }
        self.mark_registrations_before_threads(index);
        self.send_hello(index);
        // Queue the registrations right after Hello: the daemon reads them even if this process has
        // exited by then.
        let numbers: Vec<u32> = Handle::iter_current().map(|handle| handle.number()).collect();
        for number in numbers {
            self.announce_to(index, number);
        }
    }

    /// Announces a registration to one daemon, unless the daemon knows it.
    fn announce_to(&mut self, index: usize, number: u32) {
        if self.peers[index].announced_registrations.contains(&number) {
            return;
        }
        let traits = Handle::from_number(number).map(|handle| handle.slot().traits());
        let pending = PendingRequest::Register(number);
        let enables = self.prepare_early_enables(index, pending, traits.unwrap_or_default());
        let (peer, mut shared) = (&mut self.peers[index], self.client.lock());
        if queue_register(peer, number) {
            shared.awaited_registrations.push(AwaitedAnswer { peer: peer.id, registration: number });
        }
        drop(shared);
        self.send_and_enable_early(index, pending, &enables);
    }

    /// Sends the offered regions, then the request, and enables the registration last: the process
    /// may end at any time, and events in the regions must still reach the daemon.
    fn send_and_enable_early(&mut self, index: usize, pending: PendingRequest, enables: &[ListedEnable]) {
        let peer = &mut self.peers[index];
        // Ignore the error: `flush_peers` gets it again and drops the peer.
        let _ = peer.flush();
        if peer.has_sent_all() {
            self.apply_early_enables(index, pending, enables);
        }
    }

    fn add_peer(&mut self, connection: Connection, folder: usize, outgoing: Option<ConnectionKind>) {
        self.peers.push(DaemonPeer::new(self.next_peer, connection, folder, outgoing));
        self.next_peer += 1;
    }

    fn send_hello(&mut self, index: usize) {
        let program = self.program.chars().take(255).collect();
        let hello = Message::Hello {
            versions: VERSIONS,
            role: Role::Provider,
            instance: self.client.instance,
            program,
        };
        self.peers[index].queue_request(hello);
    }

    /// Forgets the parent's sessions in a forked child, once the daemons have sent their enables or
    /// the deadline has passed.
    fn drop_parent_sessions(&mut self) {
        if fork::may_write() {
            return;
        }
        let mut shared = self.client.lock();
        let is_waiting = shared.unanswered_greetings != 0 || !shared.awaited_registrations.is_empty();
        if is_waiting && Instant::now() < self.inherited_sessions_deadline {
            return;
        }
        let changed = shared.drop_inherited_sessions();
        drop(shared);
        self.client.state_changed.notify_all();
        self.run_callbacks(changed, Guid::NULL, None);
        outlets::forget_inherited_outlets();
    }

    fn flush_peers(&mut self) {
        for index in (0..self.peers.len()).rev() {
            if self.peers[index].flush().is_err() {
                self.read_refusal(index);
                self.drop_peer(index);
            }
        }
    }

    fn wait_for_work(&self) {
        let read = PollFlags::IN;
        let bell = self.wakers.bell();
        // A descriptor that the program closed could be ready forever.
        let mut fds: Vec<PollFd<'_>> =
            bell.is_intact().then(|| PollFd::new(&*bell, read)).into_iter().collect();
        fds.extend(
            self.folders
                .iter()
                .filter_map(DaemonFolder::active_listener)
                .filter(|listener| listener.is_intact())
                .map(|l| PollFd::from_borrowed_fd(l.as_fd(), read)),
        );
        fds.extend(self.peers.iter().filter(|p| p.connection.is_intact()).map(|p| {
            let flags = if p.has_sent_all() { read } else { read | PollFlags::OUT };
            PollFd::from_borrowed_fd(p.connection.as_fd(), flags)
        }));
        let fork_timeout = (!fork::may_write()).then_some(Duration::from_millis(100));
        let resume = self.folders.iter().filter_map(DaemonFolder::paused_until).min();
        let listener_timeout = resume.map(|until| until.saturating_duration_since(Instant::now()));
        let retry_timeout = self.folder_retry_at.map(|at| at.saturating_duration_since(Instant::now()));
        let timeouts = [
            fork_timeout,
            listener_timeout,
            retry_timeout,
            self.reconnects.time_until_next(),
            self.descriptor_check_interval(),
        ];
        let timeout = timeouts.into_iter().flatten().min();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if poll(&mut fds, timeout.as_ref()).is_err()
            || fds.iter().any(|f| f.revents().contains(PollFlags::NVAL))
        {
            // If this thread shares the program's descriptor table, the program may have closed
            // descriptors of this library; do not spin on that.
            std::thread::sleep(Duration::from_millis(100));
        }
        bell.drain();
    }

    /// Handles the requests of other threads.
    fn run_commands(&mut self) {
        let commands = std::mem::take(&mut self.client.lock().commands);
        for command in commands {
            match command {
                ControlCommand::Register(number) => self.announce(number),
                ControlCommand::Unregister(number) => {
                    for peer in &mut self.peers {
                        if peer.announced_registrations.remove(&number) {
                            peer.queue(Message::Unregister { registration: number });
                        }
                    }
                }
                ControlCommand::SetTraits(number, traits) => self.send_traits(number, traits),
                ControlCommand::Send { peer, message } => {
                    if let Some(peer) = self.peers.iter_mut().find(|candidate| candidate.id == peer) {
                        peer.queue(*message);
                    }
                }
                ControlCommand::CatchUp(done) => self.catching_up.push(done),
                ControlCommand::RunCallbacks { changed, source, filter, done } => {
                    self.run_callbacks(changed, source, filter.as_ref());
                    done.fulfil(());
                }
                ControlCommand::Capture { providers, outlet, params, done } => {
                    providers.into_iter().for_each(|handle| self.capture_state(handle, outlet, &params));
                    done.fulfil(());
                }
            }
        }
    }

    /// Runs callbacks for changed registrations on the callback thread.
    pub(super) fn run_callbacks(&self, mut changed: Vec<Handle>, source: Guid, filter: Option<&Filter>) {
        // Registrations without a callback run no code of the program: this thread updates them.
        let without_callback: Vec<Handle> =
            changed.extract_if(.., |handle| !handle.slot().has_callback()).collect();
        notify_registrations(&without_callback, source, filter);
        if !changed.is_empty() {
            let (filter, current) = (filter.cloned(), &self.client.callback);
            let _ = self.callbacks.run(move || {
                for handle in changed {
                    current.run(|| notify_registrations(&[handle], source, filter.as_ref()));
                }
            });
        }
    }

    /// Requests a provider's state on the callback thread.
    pub(super) fn capture_state(&self, handle: Handle, outlet: u8, params: &EnableParams) {
        let (params, current) = (params.clone(), &self.client.callback);
        let _ = self.callbacks.run(move || current.run(|| handle.slot().capture_state(outlet, &params)));
    }

    /// Announces a registration to all daemons.
    fn announce(&mut self, number: u32) {
        for index in 0..self.peers.len() {
            if self.peers[index].takes_registrations() {
                self.announce_to(index, number);
            }
        }
        let mut shared = self.client.lock();
        shared.awaited_registrations.retain(|a| *a != AwaitedAnswer::unsent(number));
        drop(shared);
        self.client.state_changed.notify_all();
    }

    fn accept_daemons(&mut self) {
        for index in 0..self.folders.len() {
            if self.folders[index].resume_if_due() {
                // While the listener was paused, a daemon may have failed to connect.
                self.reconnects.schedule_after_loss(index);
            }
            while let Some(connection) = self.folders[index].accept() {
                if self.peers.len() >= MAX_PEERS {
                    // Preferably a connection over which no daemon has sent a Welcome.
                    let replaced = self.peers.iter().position(|p| !p.has_welcomed).unwrap_or(0);
                    self.drop_peer(replaced);
                }
                self.add_peer(connection, index, None);
            }
        }
    }

    /// Handles the messages that daemons have sent; `false` if some may be left for the next call.
    fn receive_messages(&mut self) -> bool {
        let mut has_read_all = true;
        for index in (0..self.peers.len()).rev() {
            let mut left = MAX_MESSAGES_PER_BATCH;
            loop {
                if left == 0 {
                    has_read_all = false;
                    break;
                }
                left -= 1;
                match self.peers[index].connection.receive(Duration::ZERO) {
                    Ok(Some(envelope)) => {
                        if self.handle_message(index, envelope).is_err() {
                            self.drop_peer(index);
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.drop_peer(index);
                        break;
                    }
                }
            }
        }
        has_read_all
    }

    /// Handles a message; an error ends the connection.
    fn handle_message(&mut self, index: usize, envelope: Envelope) -> Result<(), Error> {
        self.peers[index].has_answered = true;
        match envelope.message {
            Message::Knock { .. } if !self.peers[index].has_welcomed && !self.peers[index].is_outgoing => {
                self.send_hello(index)
            }
            Message::Welcome { version, .. } if !self.peers[index].has_welcomed => {
                self.handle_welcome(index, version)?
            }
            Message::Refused { status, reason } => {
                self.handle_refused(index, envelope.request, Status(status), &reason)?
            }
            Message::Done if self.peers[index].has_welcomed => self.handle_done(index, envelope.request),
            message if self.peers[index].has_welcomed => {
                self.handle_order(index, message, envelope.descriptors)?
            }
            _ => return Err(Error::Invalid("a message before Welcome")),
        }
        Ok(())
    }

    /// Handles a refusal. A refused greeting ends the connection. A refused registration stays
    /// unknown to this daemon, as do refused traits.
    fn handle_refused(
        &mut self,
        index: usize,
        request: u32,
        status: Status,
        reason: &str,
    ) -> Result<(), Error> {
        let peer = &mut self.peers[index];
        let mut shared = self.client.lock();
        if !peer.has_welcomed {
            shared.add_note(format!("a daemon refuses this process: {reason}"));
            if status == Status::ERROR_NO_SYSTEM_RESOURCES {
                // The daemon may have resources later.
                self.reconnects.schedule_after_failure(peer.folder);
            }
            if status == Status::ERROR_ALREADY_EXISTS && peer.is_outgoing && process::shares_descriptors() {
                // The daemon has not noticed yet that the program closed the previous connection.
                self.reconnects.schedule_after_program_close(peer.folder);
            }
            return Err(Error::Closed);
        }
        let refusal = Some((status, reason.to_owned()));
        match peer.take_answered_request(request, true) {
            Some(PendingRequest::Register(registration)) => {
                shared.record_answer(peer.id, registration, refusal);
                shared.add_note(format!("a daemon refuses a registration: {reason}"));
                drop(shared);
                self.revert_unconfirmed_enables(index, PendingRequest::Register(registration));
            }
            Some(PendingRequest::SetTraits(registration)) => {
                shared.record_traits_answer(peer.id, registration, refusal);
                shared.add_note(format!("a daemon refuses the traits of a registration: {reason}"));
                drop(shared);
                self.revert_unconfirmed_enables(index, PendingRequest::SetTraits(registration));
            }
            None => return Ok(()),
        }
        self.client.state_changed.notify_all();
        Ok(())
    }

    /// Handles Done: the daemon accepted traits. Done for an Unregister is ignored.
    fn handle_done(&mut self, index: usize, request: u32) {
        let peer = &mut self.peers[index];
        if let Some(pending @ PendingRequest::SetTraits(registration)) =
            peer.take_answered_request(request, false)
        {
            self.client.lock().record_traits_answer(peer.id, registration, None);
            self.revert_unconfirmed_enables(index, pending);
            self.client.state_changed.notify_all();
        }
    }

    /// Sends the traits of a registration to all daemons that know it.
    fn send_traits(&mut self, number: u32, traits: &'static ProviderTraits) {
        for index in 0..self.peers.len() {
            if !self.peers[index].announced_registrations.contains(&number) {
                continue;
            }
            let pending = PendingRequest::SetTraits(number);
            let enables = self.prepare_early_enables(index, pending, traits.bytes());
            let peer = &mut self.peers[index];
            peer.queue_request(Message::SetTraits {
                registration: number,
                traits: traits_to_send(traits.bytes()),
            });
            self.client.lock().mark_traits_sent(number, Some(peer.id));
            self.send_and_enable_early(index, pending, &enables);
        }
        self.client.lock().mark_traits_sent(number, None);
        self.client.state_changed.notify_all();
    }

    /// Handles a Welcome: announces all registrations to the daemon.
    fn handle_welcome(&mut self, index: usize, version: u16) -> Result<(), Error> {
        if !(VERSIONS.0..=VERSIONS.1).contains(&version) {
            return Err(Error::Version { theirs: (version, version), ours: VERSIONS });
        }
        self.peers[index].has_welcomed = true;
        self.reconnects.cancel(self.peers[index].folder);
        let numbers: Vec<u32> = Handle::iter_current().map(|handle| handle.number()).collect();
        for number in &numbers {
            self.announce_to(index, *number);
        }
        let peer = &mut self.peers[index];
        let mut shared = self.client.lock();
        for number in numbers {
            shared.queue_pending_traits(peer, number);
        }
        shared.unanswered_greetings -= u32::from(peer.is_outgoing);
        shared.welcoming_daemons += 1;
        drop(shared);
        self.client.state_changed.notify_all();
        Ok(())
    }

    /// Drops a connection and ends the sessions that came over it.
    pub(super) fn drop_peer(&mut self, index: usize) {
        let is_closed_by_program = self.peers[index].is_closed_by_program();
        if is_closed_by_program {
            self.remember_missed_sessions(index);
        }
        let peer = self.peers.swap_remove(index);
        let mut shared = self.client.lock();
        shared.awaited_registrations.retain(|awaited| awaited.peer != peer.id);
        shared.late_registrations.retain(|late| late.peer != peer.id);
        shared.late_traits.retain(|late| late.peer != peer.id);
        shared.pending_traits.iter_mut().for_each(|pending| pending.awaited.retain(|p| *p != peer.id));
        shared.unanswered_greetings -= u32::from(peer.is_outgoing && !peer.has_welcomed);
        shared.welcoming_daemons -= u32::from(peer.has_welcomed);
        drop(shared);
        // The daemon may have exited before it accepted the connection. A service manager that owns
        // the socket starts another daemon.
        let has_never_answered = peer.kind == ConnectionKind::OwnUser && !peer.has_answered;
        if is_closed_by_program {
            self.reconnects.schedule_after_program_close(peer.folder);
        } else if peer.has_welcomed || has_never_answered {
            self.reconnects.schedule_after_loss(peer.folder);
        }
        self.client.state_changed.notify_all();
        self.end_sessions_of_peer(peer.id);
        self.end_private_sessions_of_peer(peer.id);
    }
}

/// Queues a Register message; `false` if the daemon knows the registration or it has ended.
fn queue_register(peer: &mut DaemonPeer, number: u32) -> bool {
    let Some(handle) = Handle::from_number(number) else { return false };
    let (provider, traits) = (handle.slot().provider(), traits_to_send(handle.slot().traits()));
    let is_new = peer.announced_registrations.insert(number);
    if is_new {
        peer.queue_request(Message::Register {
            registration: number,
            provider,
            traits,
            classic: handle.slot().is_classic(),
        });
    }
    is_new
}

/// Returns the traits for a daemon: all of them or, above [`MAX_TRAITS_BYTES`], the name (if it is
/// shorter than that) and the group, which are all that a daemon needs.
fn traits_to_send(traits: &[u8]) -> Vec<u8> {
    if traits.len() <= MAX_TRAITS_BYTES {
        return traits.to_vec();
    }
    let Ok(parsed) = tracelogging::Traits::parse(traits) else { return Vec::new() };
    let name = String::from_utf8_lossy(parsed.name);
    let mut reduced = TraitsBuilder::new(if name.len() <= MAX_TRAITS_BYTES { &name } else { "" });
    if let Some(group) = parsed.group() {
        reduced.group(&group);
    }
    reduced.finish().map(<[u8]>::to_vec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_traits_are_sent_as_name_and_group() {
        let group = Guid::from_u128(7);
        let small = TraitsBuilder::new("Small").add(200, b"own").finish().unwrap().to_vec();
        assert_eq!(traits_to_send(&small), small);
        assert_eq!(traits_to_send(&[]), []);
        let large =
            TraitsBuilder::new("Large").add(200, &[1; 60_000]).group(&group).finish().unwrap().to_vec();
        let sent = traits_to_send(&large);
        let parsed = tracelogging::Traits::parse_strict(&sent).unwrap();
        assert_eq!((parsed.name, parsed.group(), sent.len() < 64), (&b"Large"[..], Some(group), true));
        let long_name = TraitsBuilder::new(&"n".repeat(65_000)).group(&group).finish().unwrap().to_vec();
        let sent = traits_to_send(&long_name);
        let parsed = tracelogging::Traits::parse_strict(&sent).unwrap();
        assert_eq!((parsed.name, parsed.group()), (&b""[..], Some(group)));
    }
}
