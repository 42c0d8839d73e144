//! The control thread: one per process, asleep until a daemon or another thread has a request.
//!
//! ```text
//!   start: listen, connect ─▶ Hello ─▶ Welcome ─▶ Register … ─▶ Region, Enable …, Registered
//!   later: a daemon connects ─▶ Knock ─▶ Hello ─▶ Welcome ─▶ (the same)
//!   a daemon drops the connection but runs (`reconnect`) ─▶ connect ─▶ Hello ─▶ (the same)
//!   its queue is full, or it has no room (`reconnect`) ─▶ wait ─▶ connect ─▶ Hello ─▶ (the same)
//! ```
//!
//! A daemon that already has a connection to this process refuses a second one; a daemon that
//! restarted welcomes this process, and the connection to its predecessor ends by itself. So
//! every connection is independent, and a session belongs to the connection over which it came.

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
use traceweir_transport::enabled::Enabled;
use traceweir_transport::message::{EnableParams, Filter, Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::{Connection, Envelope};

use super::callbacks::Callbacks;
use super::link::{ConnectionKind, Link, Peer, PendingRequest};
use super::shared::Command;
use super::wakers::Wakers;
use super::{Client, REPLY_TIMEOUT, notify_callbacks};
use crate::process::{self, fork, outlets};
use crate::registration::{Handle, Traits};
use private::Member;
use reconnect::Reconnects;
use repair::MissedSessions;

/// Maximum number of connections; an untrusted process could make more.
const MAX_PEERS: usize = 16;
/// How long a process without free descriptors waits before it tries again.
const DESCRIPTOR_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Messages read from one connection before others have their turn.
const BATCH: usize = 64;
/// Maximum size in bytes of traits that are sent unchanged: well below the limit of a message.
const MAX_TRAITS_BYTES: usize = 32 * 1024;

/// The state of the control thread, the only thread that uses sockets.
pub(super) struct Control {
    client: &'static Client,
    links: Vec<Link>,
    reconnects: Reconnects,
    peers: Vec<Peer>,
    next_peer: u64,
    program: String,
    /// Private sessions that daemons started.
    members: Vec<Member>,
    /// When a forked child drops the sessions that it inherited.
    inherited_sessions_deadline: Instant,
    /// Runs work that needs the program's descriptors.
    callbacks: Callbacks,
    /// Writes eventfds for the threads of the program.
    wakers: &'static Wakers,
    /// When to retry folders that could not be opened because no descriptor was free.
    try_at: Option<Instant>,
    /// Sessions that missed events of this process, and count it when they enable it again.
    missed: MissedSessions,
}

/// Runs the control thread. Returns only if its helper thread cannot be started.
pub(super) fn run(client: &'static Client, callbacks: Callbacks) -> std::io::Result<Infallible> {
    process::separate_descriptors();
    let wakers = Wakers::start(client)?;
    let wakers = client.wakers.get_or_init(|| wakers);
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
    let mut control = Control {
        client,
        links: Vec::new(),
        reconnects: Reconnects::default(),
        peers: Vec::new(),
        next_peer: 1,
        members: Vec::new(),
        program: program.unwrap_or_default(),
        inherited_sessions_deadline: Instant::now() + REPLY_TIMEOUT,
        callbacks,
        wakers,
        try_at: None,
        missed: MissedSessions::default(),
    };
    control.open_links();
    loop {
        control.drop_parent_sessions();
        control.flush();
        control.wait();
        control.repair();
        control.run_commands();
        control.accept();
        control.receive();
        control.reconnect_due();
        if control.try_at.is_some_and(|at| at <= Instant::now()) {
            control.try_links();
        }
    }
}

impl Control {
    fn open_links(&mut self) {
        self.links = RuntimeDir::for_providers().into_iter().map(Link::new).collect();
        self.try_links();
        self.client.lock().starting = false;
        self.client.changed.notify_all();
    }

    /// Tries folders that were not tried yet or lacked a descriptor.
    fn try_links(&mut self) {
        for at in 0..self.links.len() {
            if !self.links[at].needs_attempt() {
                continue;
            }
            match self.links[at].open() {
                Ok((connection, kind)) => self.greet(connection, kind, at),
                // The daemon runs, and its queue of connections is full.
                Err(Error::TimedOut) => self.reconnects.failed(at),
                Err(_) => {}
            }
            let (link, mut shared) = (&self.links[at], self.client.lock());
            shared.note(link.state.clone());
            if let Some(socket) = link.socket().filter(|socket| !shared.sockets.contains(socket)) {
                shared.sockets.push(socket);
            }
        }
        self.plan_try();
    }

    /// Schedules another attempt for folders that lack a descriptor.
    pub(super) fn plan_try(&mut self) {
        let needs_attempt = self.links.iter().any(Link::needs_attempt);
        self.try_at = needs_attempt.then(|| Instant::now() + DESCRIPTOR_RETRY_INTERVAL);
    }

    /// Greets a daemon that this process connected to.
    pub(super) fn greet(&mut self, connection: Connection, kind: ConnectionKind, link: usize) {
        self.client.lock().greeting += 1;
        self.add(connection, link, Some(kind));
        let at = self.peers.len() - 1;
        if self.reconnects.has_failed(link) {
            self.note_unreached(at);
        }
        self.send_hello(at);
        // Queue the registrations right after Hello: the daemon reads them even if this process has
        // exited by then.
        let numbers: Vec<u32> = Handle::all().map(|handle| handle.number()).collect();
        for number in numbers {
            self.announce_to(at, number);
        }
    }

    /// Announces a registration to one daemon, unless it knows it.
    fn announce_to(&mut self, at: usize, number: u32) {
        if self.peers[at].announced.contains(&number) {
            return;
        }
        let traits = Handle::from_number(number).map(|handle| handle.slot().traits());
        let pending = PendingRequest::Register(number);
        let wanted = self.prepare_early(at, pending, traits.unwrap_or_default());
        let (peer, mut shared) = (&mut self.peers[at], self.client.lock());
        if queue_register(peer, number) {
            shared.awaited.push((peer.id, number));
        }
        drop(shared);
        self.send_early(at, pending, &wanted);
    }

    /// Sends the memory of the regions, then the request, and enables the registration. The memory
    /// goes first: the process may end at any time, and its events must still reach the daemon.
    fn send_early(&mut self, at: usize, pending: PendingRequest, wanted: &[Enabled]) {
        let peer = &mut self.peers[at];
        // Ignore the error: the next `flush` reports it and drops the peer.
        let _ = peer.flush();
        if peer.has_sent_all() {
            self.enable_early(at, pending, wanted);
        }
    }

    fn add(&mut self, connection: Connection, link: usize, ours: Option<ConnectionKind>) {
        self.peers.push(Peer::new(self.next_peer, connection, link, ours));
        self.next_peer += 1;
    }

    fn send_hello(&mut self, at: usize) {
        let program = self.program.chars().take(255).collect();
        let hello = Message::Hello {
            versions: VERSIONS,
            role: Role::Provider,
            instance: self.client.instance,
            program,
        };
        self.peers[at].queue_request(hello);
    }

    /// Forgets the parent's sessions in a forked child, once the daemons have sent their enables or
    /// the deadline has passed.
    fn drop_parent_sessions(&mut self) {
        if fork::is_ready() {
            return;
        }
        let mut shared = self.client.lock();
        let waiting = shared.greeting != 0 || !shared.awaited.is_empty();
        if waiting && Instant::now() < self.inherited_sessions_deadline {
            return;
        }
        let changed = shared.drop_inherited();
        drop(shared);
        self.client.changed.notify_all();
        self.run_callbacks(changed, Guid::NULL, None);
        outlets::abandon();
    }

    fn flush(&mut self) {
        for at in (0..self.peers.len()).rev() {
            if self.peers[at].flush().is_err() {
                self.read_refusal(at);
                self.drop_peer(at);
            }
        }
    }

    /// Sleeps until there is work.
    fn wait(&self) {
        let read = PollFlags::IN;
        let bell = self.wakers.bell();
        // A descriptor that the program closed could be ready forever.
        let mut fds: Vec<PollFd<'_>> = bell.is_own().then(|| PollFd::new(&*bell, read)).into_iter().collect();
        fds.extend(
            self.links
                .iter()
                .filter_map(Link::waiting_listener)
                .filter(|listener| listener.is_own())
                .map(|l| PollFd::from_borrowed_fd(l.as_fd(), read)),
        );
        fds.extend(self.peers.iter().filter(|p| p.connection.is_own()).map(|p| {
            let flags = if p.has_more() { read | PollFlags::OUT } else { read };
            PollFd::from_borrowed_fd(p.connection.as_fd(), flags)
        }));
        let fork_timeout = (!fork::is_ready()).then_some(Duration::from_millis(100));
        let resume = self.links.iter().filter_map(Link::rests_until).min();
        let listener_timeout = resume.map(|until| until.saturating_duration_since(Instant::now()));
        let retry_timeout = self.try_at.map(|at| at.saturating_duration_since(Instant::now()));
        let timeouts =
            [fork_timeout, listener_timeout, retry_timeout, self.reconnects.within(), self.check_within()];
        let timeout = timeouts.into_iter().flatten().min();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if poll(&mut fds, timeout.as_ref()).is_err()
            || fds.iter().any(|f| f.revents().contains(PollFlags::NVAL))
        {
            // If the descriptors are in the program's table, it may have closed them; do not spin
            // on that.
            std::thread::sleep(Duration::from_millis(100));
        }
        bell.drain();
    }

    /// Handles the requests of other threads.
    fn run_commands(&mut self) {
        let commands = std::mem::take(&mut self.client.lock().commands);
        for command in commands {
            match command {
                Command::Register(number) => self.announce(number),
                Command::Unregister(number) => {
                    for peer in &mut self.peers {
                        if peer.announced.remove(&number) {
                            peer.queue(Message::Unregister { registration: number });
                        }
                    }
                }
                Command::SetTraits(number, traits) => self.send_traits(number, traits),
                Command::Send { peer, message } => {
                    if let Some(peer) = self.peers.iter_mut().find(|candidate| candidate.id == peer) {
                        peer.queue(*message);
                    }
                }
                Command::RunCallbacks { changed, source, filter, done } => {
                    self.run_callbacks(changed, source, filter.as_ref());
                    done.fulfil(());
                }
                Command::Capture { providers, outlet, params, done } => {
                    providers.into_iter().for_each(|handle| self.capture_state(handle, outlet, &params));
                    done.fulfil(());
                }
            }
        }
    }

    /// Runs callbacks for changed registrations on the callback thread.
    pub(super) fn run_callbacks(&self, mut changed: Vec<Handle>, source: Guid, filter: Option<&Filter>) {
        // Without a callback, no code of the program runs.
        let without_callback: Vec<Handle> =
            changed.extract_if(.., |handle| !handle.slot().has_callback()).collect();
        notify_callbacks(&without_callback, source, filter);
        if !changed.is_empty() {
            let (filter, current) = (filter.cloned(), &self.client.callback);
            let _ = self.callbacks.run(move || {
                for handle in changed {
                    current.run(|| notify_callbacks(&[handle], source, filter.as_ref()));
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
        for at in 0..self.peers.len() {
            if self.peers[at].takes_registrations() {
                self.announce_to(at, number);
            }
        }
        let mut shared = self.client.lock();
        shared.awaited.retain(|a| *a != (0, number));
        drop(shared);
        self.client.changed.notify_all();
    }

    fn accept(&mut self) {
        for at in 0..self.links.len() {
            if self.links[at].resume_if_due() {
                // While the listener was paused, a daemon may have failed to connect.
                self.reconnects.lost(at);
            }
            while let Some(connection) = self.links[at].accept() {
                if self.peers.len() >= MAX_PEERS {
                    let oldest = self.peers.iter().position(|p| !p.ready).unwrap_or(0);
                    self.drop_peer(oldest);
                }
                self.add(connection, at, None);
            }
        }
    }

    fn receive(&mut self) {
        for at in (0..self.peers.len()).rev() {
            for _ in 0..BATCH {
                match self.peers[at].connection.receive(Duration::ZERO) {
                    Ok(Some(envelope)) => {
                        if self.handle(at, envelope).is_err() {
                            self.drop_peer(at);
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.drop_peer(at);
                        break;
                    }
                }
            }
        }
    }

    /// Handles a message; an error ends the connection.
    fn handle(&mut self, at: usize, envelope: Envelope) -> Result<(), Error> {
        self.peers[at].has_answered = true;
        match envelope.message {
            Message::Knock { .. } if !self.peers[at].ready && !self.peers[at].ours => self.send_hello(at),
            Message::Welcome { version, .. } if !self.peers[at].ready => self.handle_welcome(at, version)?,
            Message::Refused { status, reason } => {
                self.handle_refused(at, envelope.request, Status(status), &reason)?
            }
            Message::Done if self.peers[at].ready => self.handle_done(at, envelope.request),
            message if self.peers[at].ready => self.handle_order(at, message, envelope.descriptors)?,
            _ => return Err(Error::Invalid("a message before Welcome")),
        }
        Ok(())
    }

    /// Handles a refusal. A refused greeting ends the connection. A refused registration, or
    /// refused traits, only mean that this daemon does not know them.
    fn handle_refused(&mut self, at: usize, request: u32, status: Status, reason: &str) -> Result<(), Error> {
        let peer = &mut self.peers[at];
        let mut shared = self.client.lock();
        if !peer.ready {
            shared.note(format!("a daemon refuses this process: {reason}"));
            if status == Status::ERROR_NO_SYSTEM_RESOURCES {
                // There may be room later.
                self.reconnects.failed(peer.link);
            }
            if status == Status::ERROR_ALREADY_EXISTS && peer.ours && process::shares_descriptors() {
                // The daemon has not noticed yet that the program closed the previous connection.
                self.reconnects.closed_by_program(peer.link);
            }
            return Err(Error::Closed);
        }
        let refusal = Some((status, reason.to_owned()));
        match peer.answered(request, true) {
            Some(PendingRequest::Register(registration)) => {
                shared.answered(peer.id, registration, refusal);
                shared.note(format!("a daemon refuses a registration: {reason}"));
                drop(shared);
                self.end_early(at, PendingRequest::Register(registration));
            }
            Some(PendingRequest::SetTraits(registration)) => {
                shared.traits_answered(peer.id, registration, refusal);
                shared.note(format!("a daemon refuses the traits of a registration: {reason}"));
                drop(shared);
                self.end_early(at, PendingRequest::SetTraits(registration));
            }
            None => return Ok(()),
        }
        self.client.changed.notify_all();
        Ok(())
    }

    /// Handles Done: the daemon accepted traits. Done for an Unregister is ignored.
    fn handle_done(&mut self, at: usize, request: u32) {
        let peer = &mut self.peers[at];
        if let Some(pending @ PendingRequest::SetTraits(registration)) = peer.answered(request, false) {
            self.client.lock().traits_answered(peer.id, registration, None);
            self.end_early(at, pending);
            self.client.changed.notify_all();
        }
    }

    /// Sends the traits of a registration to all daemons that know it.
    fn send_traits(&mut self, number: u32, traits: &'static Traits) {
        for at in 0..self.peers.len() {
            if !self.peers[at].announced.contains(&number) {
                continue;
            }
            let pending = PendingRequest::SetTraits(number);
            let wanted = self.prepare_early(at, pending, traits.bytes());
            let peer = &mut self.peers[at];
            peer.queue_request(Message::SetTraits {
                registration: number,
                traits: traits_to_send(traits.bytes()),
            });
            self.client.lock().mark_traits_sent(number, Some(peer.id));
            self.send_early(at, pending, &wanted);
        }
        self.client.lock().mark_traits_sent(number, None);
        self.client.changed.notify_all();
    }

    /// Handles a Welcome: announces all registrations to the daemon.
    fn handle_welcome(&mut self, at: usize, version: u16) -> Result<(), Error> {
        if !(VERSIONS.0..=VERSIONS.1).contains(&version) {
            return Err(Error::Version { theirs: (version, version), ours: VERSIONS });
        }
        self.peers[at].ready = true;
        self.reconnects.reached(self.peers[at].link);
        let numbers: Vec<u32> = Handle::all().map(|handle| handle.number()).collect();
        for number in &numbers {
            self.announce_to(at, *number);
        }
        let peer = &mut self.peers[at];
        let mut shared = self.client.lock();
        for number in numbers {
            shared.queue_pending_traits(peer, number);
        }
        shared.greeting -= u32::from(peer.ours);
        shared.daemons += 1;
        drop(shared);
        self.client.changed.notify_all();
        Ok(())
    }

    /// Drops a connection and everything that came over it.
    pub(super) fn drop_peer(&mut self, at: usize) {
        let is_closed_by_program = self.peers[at].is_closed_by_program();
        if is_closed_by_program {
            self.note_missed(at);
        }
        let peer = self.peers.swap_remove(at);
        let mut shared = self.client.lock();
        shared.awaited.retain(|(p, _)| *p != peer.id);
        shared.late.retain(|(p, _)| *p != peer.id);
        shared.late_traits.retain(|(p, _)| *p != peer.id);
        shared.settings.iter_mut().for_each(|setting| setting.awaited.retain(|p| *p != peer.id));
        shared.greeting -= u32::from(peer.ours && !peer.ready);
        shared.daemons -= u32::from(peer.ready);
        drop(shared);
        // The daemon exited before it accepted the connection. A service manager that owns the
        // socket starts another daemon.
        let has_never_answered = peer.kind == ConnectionKind::Own && !peer.has_answered;
        if is_closed_by_program {
            self.reconnects.closed_by_program(peer.link);
        } else if peer.ready || has_never_answered {
            self.reconnects.lost(peer.link);
        }
        self.client.changed.notify_all();
        self.end_peer(peer.id);
        self.end_private(peer.id);
    }
}

/// Queues a Register message; `false` if the daemon knows the registration or it has ended.
fn queue_register(peer: &mut Peer, number: u32) -> bool {
    let Some(handle) = Handle::from_number(number) else { return false };
    let (provider, traits) = (handle.slot().provider(), traits_to_send(handle.slot().traits()));
    let new = peer.announced.insert(number);
    if new {
        peer.queue_request(Message::Register {
            registration: number,
            provider,
            traits,
            classic: handle.slot().is_classic(),
        });
    }
    new
}

/// Returns the traits for a daemon: all of them or, if a message cannot hold them, the name and the
/// group, which are all it needs.
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
