//! The control thread: one for each process, asleep until a daemon or another thread wants something.
//!
//! ```text
//!   start: listen, connect ─▶ Hello ─▶ Welcome ─▶ Register … ─▶ Region, Enable …, Registered
//!   later: a daemon connects ─▶ Knock ─▶ Hello ─▶ Welcome ─▶ (the same)
//!   a daemon drops us, and is still there (`again`) ─▶ connect ─▶ Hello ─▶ Welcome ─▶ (the same)
//! ```
//!
//! A daemon that connects while we are connected to it refuses the second connection; one that started anew welcomes us, and the connection to its predecessor
//! ends by itself. So every connection stands for itself, and a session belongs to the connection over which it came.

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

use super::again::Again;
use super::callbacks::Callbacks;
use super::link::{Asked, Door, Link, Peer};
use super::private::Member;
use super::repair::Missed;
use super::wakers::Wakers;
use super::{Client, Command, PATIENCE, fork, orders, outlets, process, tell_all};
use crate::provider::{Handle, Traits};

/// Connections at most; a stranger could make more.
const MAX_PEERS: usize = 16;
/// How long a process without descriptors waits before it tries again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Messages taken from one connection before others have their turn.
const BATCH: usize = 64;
/// Bytes of traits that are told as they are: well below what a message holds.
const MAX_TOLD: usize = 32 * 1024;

/// What the control thread holds; nobody else touches a socket.
pub(super) struct Control {
    pub(super) client: &'static Client,
    pub(super) links: Vec<Link>,
    pub(super) again: Again,
    pub(super) peers: Vec<Peer>,
    next_peer: u64,
    program: String,
    /// Private sessions that daemons asked for.
    pub(super) members: Vec<Member>,
    /// In a forked child: when to give up waiting for sessions of its own.
    settle_by: Instant,
    /// Runs what needs the program's descriptors.
    pub(super) callbacks: Callbacks,
    /// Writes eventfds for the threads of the program.
    pub(super) wakers: &'static Wakers,
    /// When folders for which a descriptor was missing are tried again.
    try_at: Option<Instant>,
    /// Sessions that are to count this process when they enable it again.
    pub(super) missed: Missed,
}

/// The body of the control thread. Returns where the system refuses what it needs.
pub(super) fn run(client: &'static Client, callbacks: Callbacks) -> std::io::Result<Infallible> {
    process::separate_descriptors();
    let wakers = Wakers::start(client)?;
    let wakers = client.wakers.get_or_init(|| wakers);
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
    let mut control = Control {
        client,
        links: Vec::new(),
        again: Again::default(),
        peers: Vec::new(),
        next_peer: 1,
        members: Vec::new(),
        program: program.unwrap_or_default(),
        settle_by: Instant::now() + PATIENCE,
        callbacks,
        wakers,
        try_at: None,
        missed: Missed::default(),
    };
    control.open_links();
    loop {
        control.settle();
        control.flush();
        control.wait();
        control.repair();
        control.obey();
        control.accept();
        control.receive();
        control.come_back();
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

    /// Tries folders that were not tried yet, or for which a descriptor was missing.
    fn try_links(&mut self) {
        for at in 0..self.links.len() {
            if !self.links[at].is_starved() {
                continue;
            }
            if let Some((connection, door)) = self.links[at].open() {
                self.greet(connection, door, at);
            }
            let (link, mut shared) = (&self.links[at], self.client.lock());
            shared.note(link.state.clone());
            if let Some(socket) = link.socket().filter(|socket| !shared.sockets.contains(socket)) {
                shared.sockets.push(socket);
            }
        }
        self.plan_try();
    }

    /// Has folders tried again for which a descriptor is missing.
    pub(super) fn plan_try(&mut self) {
        let is_starved = self.links.iter().any(Link::is_starved);
        self.try_at = is_starved.then(|| Instant::now() + TRY_AGAIN);
    }

    /// Says hello to a daemon that we connected to.
    pub(super) fn greet(&mut self, connection: Connection, door: Door, link: usize) {
        self.client.lock().greeting += 1;
        self.add(connection, link, Some(door));
        let at = self.peers.len() - 1;
        self.hello(at);
        // After Hello in the connection, whenever the daemon reads it: a process that ends before that is known to have registered.
        let numbers: Vec<u32> = Handle::all().map(|handle| handle.number()).collect();
        for number in numbers {
            self.announce_to(at, number);
        }
    }

    /// Tells one daemon of a registration, unless it knows it.
    fn announce_to(&mut self, at: usize, number: u32) {
        if self.peers[at].announced.contains(&number) {
            return;
        }
        let traits = Handle::from_number(number).map(|handle| handle.slot().traits());
        let asked = Asked::Register(number);
        let wanted = self.prepare_early(at, asked, traits.unwrap_or_default());
        let (peer, mut shared) = (&mut self.peers[at], self.client.lock());
        if say_register(peer, number) {
            shared.awaited.push((peer.id, number));
        }
        drop(shared);
        self.send_early(at, asked, &wanted);
    }

    /// Sends a request with the memory before it, then enables its registration. Memory is sent
    /// first: the process may end at any time, and its events are to reach the daemon all the same.
    fn send_early(&mut self, at: usize, asked: Asked, wanted: &[Enabled]) {
        let peer = &mut self.peers[at];
        // A connection that is gone is noticed soon enough.
        let _ = peer.flush();
        if peer.has_sent_all() {
            self.enable_early(at, asked, wanted);
        }
    }

    fn add(&mut self, connection: Connection, link: usize, ours: Option<Door>) {
        self.peers.push(Peer::new(self.next_peer, connection, link, ours));
        self.next_peer += 1;
    }

    fn hello(&mut self, at: usize) {
        let program = self.program.chars().take(255).collect();
        let hello = Message::Hello {
            versions: VERSIONS,
            role: Role::Provider,
            instance: self.client.instance,
            program,
        };
        self.peers[at].ask(hello);
    }

    /// In a forked child: once the daemons have said what they want, or have not in time, the parent's sessions are forgotten.
    fn settle(&mut self) {
        if fork::is_ready() {
            return;
        }
        let mut shared = self.client.lock();
        let waiting = shared.greeting != 0 || !shared.awaited.is_empty();
        if waiting && Instant::now() < self.settle_by {
            return;
        }
        let changed = shared.drop_inherited();
        drop(shared);
        self.client.changed.notify_all();
        self.tell(changed, Guid::NULL, None);
        outlets::abandon();
    }

    fn flush(&mut self) {
        for at in (0..self.peers.len()).rev() {
            if self.peers[at].flush().is_err() {
                self.lose(at);
            }
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&self) {
        let read = PollFlags::IN;
        let bell = self.wakers.bell();
        // What the program has closed could be ready for ever.
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
        let settling = (!fork::is_ready()).then_some(Duration::from_millis(100));
        let rests = self.links.iter().filter_map(Link::rests_until).min();
        let resting = rests.map(|until| until.saturating_duration_since(Instant::now()));
        let trying = self.try_at.map(|at| at.saturating_duration_since(Instant::now()));
        let limits = [settling, resting, trying, self.again.within(), self.check_within()];
        let limit = limits.into_iter().flatten().min();
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        if poll(&mut fds, limit.as_ref()).is_err()
            || fds.iter().any(|f| f.revents().contains(PollFlags::NVAL))
        {
            // Where the descriptors are the program's too, it may have closed them; do not spin on that.
            std::thread::sleep(Duration::from_millis(100));
        }
        bell.drain();
    }

    /// Does what other threads asked for.
    fn obey(&mut self) {
        let commands = std::mem::take(&mut self.client.lock().commands);
        for command in commands {
            match command {
                Command::Register(number) => self.announce(number),
                Command::Unregister(number) => {
                    for peer in &mut self.peers {
                        if peer.announced.remove(&number) {
                            peer.say(Message::Unregister { registration: number });
                        }
                    }
                }
                Command::SetTraits(number, traits) => self.say_traits(number, traits),
                Command::Say { peer, message } => {
                    if let Some(peer) = self.peers.iter_mut().find(|it| it.id == peer) {
                        peer.say(*message);
                    }
                }
                Command::Tell { changed, source, filter, done } => {
                    self.tell(changed, source, filter.as_ref());
                    done.keep(());
                }
                Command::Capture { providers, outlet, params, done } => {
                    providers.into_iter().for_each(|handle| self.capture(handle, outlet, &params));
                    done.keep(());
                }
            }
        }
    }

    /// Tells callbacks what changed, on their thread.
    pub(super) fn tell(&self, mut changed: Vec<Handle>, source: Guid, filter: Option<&Filter>) {
        // Without a callback nothing of the program runs.
        let silent: Vec<Handle> = changed.extract_if(.., |handle| !handle.slot().has_callback()).collect();
        tell_all(&silent, source, filter);
        if !changed.is_empty() {
            let filter = filter.cloned();
            let _ = self.callbacks.run(move || tell_all(&changed, source, filter.as_ref()));
        }
    }

    /// Asks a provider for its state, on the thread of callbacks.
    pub(super) fn capture(&self, handle: Handle, outlet: u8, params: &EnableParams) {
        let params = params.clone();
        let _ = self.callbacks.run(move || orders::capture(handle, outlet, &params));
    }

    /// Tells all daemons of a registration.
    fn announce(&mut self, number: u32) {
        for at in 0..self.peers.len() {
            if self.peers[at].is_told() {
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
            if self.links[at].end_rest() {
                // A daemon may not have got through.
                self.again.lost(at);
            }
            while let Some(connection) = self.links[at].accept() {
                if self.peers.len() >= MAX_PEERS {
                    let oldest = self.peers.iter().position(|p| !p.ready).unwrap_or(0);
                    self.lose(oldest);
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
                            self.lose(at);
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.lose(at);
                        break;
                    }
                }
            }
        }
    }

    /// Carries a message out; an error ends the connection.
    fn handle(&mut self, at: usize, envelope: Envelope) -> Result<(), Error> {
        self.peers[at].has_answered = true;
        match envelope.message {
            Message::Knock { .. } if !self.peers[at].ready && !self.peers[at].ours => self.hello(at),
            Message::Welcome { version, .. } if !self.peers[at].ready => self.welcomed(at, version)?,
            Message::Refused { status, reason } => {
                self.refused(at, envelope.request, Status(status), &reason)?
            }
            Message::Done if self.peers[at].ready => self.done(at, envelope.request),
            message if self.peers[at].ready => self.order(at, message, envelope.descriptors)?,
            _ => return Err(Error::Invalid("a daemon says welcome first")),
        }
        Ok(())
    }

    /// A refused greeting is the end of the connection. A refused registration, or its traits, is no more than that: this daemon does not know it.
    fn refused(&mut self, at: usize, request: u32, status: Status, reason: &str) -> Result<(), Error> {
        let peer = &mut self.peers[at];
        let mut shared = self.client.lock();
        if !peer.ready {
            shared.note(format!("a daemon refuses this process: {reason}"));
            if status == Status::ERROR_ALREADY_EXISTS && peer.ours && process::shares_descriptors() {
                // It has not noticed yet that the program closed the connection before this one.
                self.again.closed_by_program(peer.link);
            }
            return Err(Error::Closed);
        }
        let why = Some((status, reason.to_owned()));
        match peer.answered(request, true) {
            Some(Asked::Register(registration)) => {
                shared.answered(peer.id, registration, why);
                shared.note(format!("a daemon refuses a registration: {reason}"));
                drop(shared);
                self.end_early(at, Asked::Register(registration));
            }
            Some(Asked::SetTraits(registration)) => {
                shared.traits_answered(peer.id, registration, why);
                shared.note(format!("a daemon refuses the traits of a registration: {reason}"));
                drop(shared);
                self.end_early(at, Asked::SetTraits(registration));
            }
            None => return Ok(()),
        }
        self.client.changed.notify_all();
        Ok(())
    }

    /// A request is carried out: traits are taken, or it was an Unregister, of which no answer was wanted.
    fn done(&mut self, at: usize, request: u32) {
        let peer = &mut self.peers[at];
        if let Some(asked @ Asked::SetTraits(registration)) = peer.answered(request, false) {
            self.client.lock().traits_answered(peer.id, registration, None);
            self.end_early(at, asked);
            self.client.changed.notify_all();
        }
    }

    /// Tells all daemons that know a registration of its traits.
    fn say_traits(&mut self, number: u32, traits: &'static Traits) {
        for at in 0..self.peers.len() {
            if !self.peers[at].announced.contains(&number) {
                continue;
            }
            let asked = Asked::SetTraits(number);
            let wanted = self.prepare_early(at, asked, traits.bytes());
            let peer = &mut self.peers[at];
            peer.ask(Message::SetTraits { registration: number, traits: traits_to_tell(traits.bytes()) });
            self.client.lock().traits_said(number, Some(peer.id));
            self.send_early(at, asked, &wanted);
        }
        self.client.lock().traits_said(number, None);
        self.client.changed.notify_all();
    }

    /// The daemon knows us: tell it everything that is registered.
    fn welcomed(&mut self, at: usize, version: u16) -> Result<(), Error> {
        if !(VERSIONS.0..=VERSIONS.1).contains(&version) {
            return Err(Error::Version { theirs: (version, version), ours: VERSIONS });
        }
        self.peers[at].ready = true;
        let numbers: Vec<u32> = Handle::all().map(|handle| handle.number()).collect();
        for number in &numbers {
            self.announce_to(at, *number);
        }
        let peer = &mut self.peers[at];
        let mut shared = self.client.lock();
        for number in numbers {
            shared.say_pending_traits(peer, number);
        }
        shared.greeting -= u32::from(peer.ours);
        shared.daemons += 1;
        drop(shared);
        self.client.changed.notify_all();
        Ok(())
    }

    /// Drops a connection and everything that came over it.
    pub(super) fn lose(&mut self, at: usize) {
        let is_taken = self.peers[at].is_closed_by_program();
        if is_taken {
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
        // A daemon that left before it accepted: at the socket for all users a service manager may
        // listen, which starts another.
        let is_unheard = peer.door == Door::Own && !peer.has_answered;
        if is_taken {
            self.again.closed_by_program(peer.link);
        } else if peer.ready || is_unheard {
            self.again.lost(peer.link);
        }
        self.client.changed.notify_all();
        self.end_peer(peer.id);
        self.end_private(peer.id);
    }
}

/// Tells one daemon of a registration; `false` when it knows it or it is gone.
fn say_register(peer: &mut Peer, number: u32) -> bool {
    let Some(handle) = Handle::from_number(number) else { return false };
    let (provider, traits) = (handle.slot().provider(), traits_to_tell(handle.slot().traits()));
    let new = peer.announced.insert(number);
    if new {
        peer.ask(Message::Register {
            registration: number,
            provider,
            traits,
            classic: handle.slot().is_classic(),
        });
    }
    new
}

/// What a daemon is told of traits: all of them or, where a message could not hold them, the name and the group, which are all it asks for.
fn traits_to_tell(traits: &[u8]) -> Vec<u8> {
    if traits.len() <= MAX_TOLD {
        return traits.to_vec();
    }
    let Ok(parsed) = tracelogging::Traits::parse(traits) else { return Vec::new() };
    let name = String::from_utf8_lossy(parsed.name);
    let mut told = TraitsBuilder::new(if name.len() <= MAX_TOLD { &name } else { "" });
    if let Some(group) = parsed.group() {
        told.group(&group);
    }
    told.finish().map(<[u8]>::to_vec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traits_that_no_message_holds_are_told_by_name_and_group() {
        let group = Guid::from_u128(7);
        let small = TraitsBuilder::new("Small").add(200, b"own").finish().unwrap().to_vec();
        assert_eq!(traits_to_tell(&small), small);
        assert_eq!(traits_to_tell(&[]), []);
        let large =
            TraitsBuilder::new("Large").add(200, &[1; 60_000]).group(&group).finish().unwrap().to_vec();
        let told = traits_to_tell(&large);
        let parsed = tracelogging::Traits::parse_strict(&told).unwrap();
        assert_eq!((parsed.name, parsed.group(), told.len() < 64), (&b"Large"[..], Some(group), true));
        let endless = TraitsBuilder::new(&"n".repeat(65_000)).group(&group).finish().unwrap().to_vec();
        let told = traits_to_tell(&endless);
        let parsed = tracelogging::Traits::parse_strict(&told).unwrap();
        assert_eq!((parsed.name, parsed.group()), (&b""[..], Some(group)));
    }
}
