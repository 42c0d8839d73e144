//! Sockets and the event loop around the service.
//!
//! ```text
//!            ┌────────────── epoll ──────────────┐
//!   control.sock,  links   inbox (eventfd)   signals   stopper
//!   own/control.sock │          │                │        │
//!        │           │          │                │        │
//!      accept     receive    Notice, knocked   shut down ◀┘
//!        └───────────┴─────┬────┘
//!                       service ──effects──▶ out-queue of each link ──▶ socket
//! ```
//!
//! 1. One thread; no call in the loop blocks. Sessions, and connecting to providers at startup,
//!    have separate threads.
//! 2. All ready events are read at once, and connections that were hung up come first, so that a
//!    process that reconnects finds its old connection removed.
//! 3. A janitor closes the descriptors that clients sent: a close may block for as long as the
//!    creator of the descriptor likes. If the kernel lets a socket refuse descriptors, the only
//!    guests that can send any are controllers. On a connection that the system daemon has not
//!    accepted yet, descriptors can be sent only at `own/control.sock`, which no guest can reach.
//! 4. The daemon queues up to [`link::MAX_QUEUED_BYTES`] bytes for a link that does not read, then
//!    drops the link. It does not read from a guest's controller while that controller's requests
//!    fill the queue of another client, so that no client is dropped because of requests that
//!    others make.
//! 5. Root and the daemon's own user are served first. Each guest is then served for a few
//!    milliseconds per turn (`turns`).
//! 6. The daemon holds the lock file while it serves the socket. The lock decides which process is
//!    the daemon; the socket file does not.
//!
//! The daemon exits in this order: stop all sessions, wait for their files, send queued messages,
//! wait until kernel events are closed, remove the sockets, release the lock.

mod accept;
mod autologgers;
mod closing;
mod inbox;
mod link;
mod startup;
mod sweep;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use traceweir_transport::runtime::{RuntimeDir, random};
use traceweir_transport::socket::Janitor;

use crate::access::AccessRules;
use crate::autologger::AutologgerStarter;
use crate::error::{Error, Result};
use crate::folders::DaemonFolders;
use crate::ids::LinkId;
use crate::limits::DescriptorLimit;
use crate::log::{log_client, log_info, log_warning};
use crate::service::{LinkEffect, OWN_LINK, Service};
use crate::settings::DaemonSettings;
pub use inbox::Stopper;
use inbox::{Inbox, InboxMessage};
use link::ClientLink;

/// Options of a daemon.
#[derive(Debug)]
pub struct Options {
    /// The folder with the daemon's sockets.
    pub runtime: RuntimeDir,
    /// The daemon exits after this time without sessions, consumers and system settings; `None`: it
    /// stays.
    pub idle_exit: Option<Duration>,
    /// A listening socket passed by a service manager.
    pub listener: Option<OwnedFd>,
    /// Maximum number of sessions.
    pub max_sessions: usize,
    /// MB that a starting session must leave free on the file system of `/`, in addition to the
    /// maximum size of its log; 0: no reserve.
    pub reserve_mb: u32,
}

impl Options {
    /// Creates the options of a daemon that stays, with the default limits; [`DaemonSettings`]
    /// holds what administrators set.
    #[must_use]
    pub fn new(runtime: RuntimeDir) -> Self {
        let DaemonSettings { max_sessions, reserve_mb, .. } = DaemonSettings::default();
        Self { runtime, idle_exit: None, listener: None, max_sessions: max_sessions as usize, reserve_mb }
    }
}

/// Runs a daemon until SIGTERM or SIGINT comes, its terminal is closed, or it has been idle for
/// long enough. Finalises all files before it returns, unless that takes more than a minute or a
/// second signal comes.
pub fn run(options: Options) -> Result<()> {
    run_until(options, &Stopper::new()?)
}

/// Like [`run`], and stops when the stopper is used.
pub fn run_until(options: Options, stopper: &Stopper) -> Result<()> {
    run_with_ready(options, stopper, || {})
}

/// Like [`run_until`], and calls `ready` once new connections will be answered.
pub fn run_with_ready(options: Options, stopper: &Stopper, ready: impl FnOnce()) -> Result<()> {
    let runtime = options.runtime.clone();
    // Installed before clients can connect, so that a signal never ends a reachable daemon
    // abruptly.
    let signals = startup::install_signal_handlers()?;
    let served_folder = startup::ServedFolder::acquire(&runtime, options.listener)?;
    let mut server =
        Server::new(&runtime, served_folder, signals, stopper, options.idle_exit, options.max_sessions)?;
    server.service.set_reserve_mb(options.reserve_mb);
    server.start_autologgers();
    ready();
    log_info!("daemon {} serves {}", std::process::id(), runtime.path().display());
    let outcome = server.serve();
    server.served_folder.remove_sockets();
    log_info!("daemon {} exits", std::process::id());
    outcome
}

/// How long a connection may take to send `Hello`. Also how long a connection that is closed or
/// crowded (has a long queue) may take to read its queued messages.
const LINK_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of unclosed descriptors from which on the janitor counts as stuck.
const MANY_UNCLOSED: usize = 64;
/// How often a daemon that was started on demand checks that no other process has replaced its
/// socket file.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long sessions may take to finish their files when the daemon exits.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);
/// How long kernel events may take to be closed when the daemon exits.
const CLOSE_KERNEL_TIMEOUT: Duration = Duration::from_secs(20);
/// How long clients may take to read queued messages when the daemon exits.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

// Epoll tokens; those of links are higher than `FIRST_LINK`.
const LISTENER: u64 = 0;
const INBOX: u64 = 1;
const SIGNALS: u64 = 2;
const STOPPER: u64 = 3;
const HANGUPS: u64 = 4;
const OWN_LISTENER: u64 = 5;
const FIRST_LINK: LinkId = 16;

struct Server {
    epoll: OwnedFd,
    served_folder: startup::ServedFolder,
    service: Service,
    links: BTreeMap<LinkId, ClientLink>,
    last_link: LinkId,
    /// The deadlines of the links that have one, earliest first.
    expiries: BTreeSet<(Instant, LinkId)>,
    starter: AutologgerStarter,
    janitor: Janitor,
    descriptors: DescriptorLimit,
    /// Whether the log already reports that the janitor is stuck.
    is_janitor_stuck: bool,
    inbox: Inbox,
    signals: startup::Signals,
    stop_requests: u32,
    /// Until when the listeners pause, because no descriptor was left.
    paused_until: Option<Instant>,
    idle_exit: Option<Duration>,
    /// When the socket file was last checked.
    socket_checked: Instant,
    turns: turns::TurnSchedule,
    _sweeper: sweep::Sweeper,
}

impl Server {
    fn new(
        runtime: &RuntimeDir,
        served_folder: startup::ServedFolder,
        signals: startup::Signals,
        stopper: &Stopper,
        idle_exit: Option<Duration>,
        max_sessions: usize,
    ) -> Result<Self> {
        let system_error = |operation| move |e: Errno| Error::system(operation, e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system_error("epoll_create"))?;
        let inbox = Inbox::new()?;
        let hangups = signals.hangups.iter().map(|hangups| (hangups.as_fd(), HANGUPS));
        let listeners = served_folder.listeners().map(|(token, listener)| (listener.as_fd(), token));
        let watched = [(inbox.as_fd(), INBOX), (signals.stops.as_fd(), SIGNALS), (stopper.as_fd(), STOPPER)];
        for (fd, token) in watched.into_iter().chain(listeners).chain(hangups) {
            let data = epoll::EventData::new_u64(token);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(system_error("epoll_ctl"))?;
        }
        let janitor = Janitor::new();
        let access = AccessRules::open(runtime, rustix::process::geteuid().as_raw());
        let post = inbox.sender(|notice| InboxMessage::Notice(Box::new(notice)));
        let service = Service::new(
            access,
            max_sessions,
            random(),
            post,
            janitor.clone(),
            Instant::now(),
            SystemTime::now(),
        );
        startup::knock(runtime.clone(), janitor.clone(), inbox.sender(InboxMessage::Knocked));
        Ok(Self {
            epoll,
            served_folder,
            service,
            links: BTreeMap::new(),
            last_link: FIRST_LINK,
            expiries: BTreeSet::new(),
            starter: AutologgerStarter::new(DaemonFolders::for_runtime(runtime)),
            janitor,
            descriptors: DescriptorLimit::current(),
            is_janitor_stuck: false,
            inbox,
            signals,
            stop_requests: 0,
            paused_until: None,
            idle_exit,
            socket_checked: Instant::now(),
            turns: turns::TurnSchedule::default(),
            _sweeper: sweep::Sweeper::start(runtime),
        })
    }

    fn serve(&mut self) -> Result<()> {
        let mut exit_deadline = None;
        loop {
            self.apply_effects();
            let now = Instant::now();
            if self.stop_requests > 0 && exit_deadline.is_none() {
                self.service.shut_down(now);
                exit_deadline = Some(now + FINISH_TIMEOUT);
                continue;
            }
            if self.service.is_finished() || self.should_exit_idle(now) || self.is_superseded(now) {
                break;
            }
            if exit_deadline.is_some_and(|by| by <= now) || self.stop_requests > 1 {
                log_warning!("exiting without having finished {:?}", self.service.unfinished_names());
                break;
            }
            let next = [exit_deadline, self.next_deadline()].into_iter().flatten().min();
            self.run_turn(next)?;
        }
        self.flush_all();
        if self.stop_requests < 2 && !traceweir_kernel::wait_until_closed(CLOSE_KERNEL_TIMEOUT) {
            log_warning!("exiting while kernel events are being closed");
        }
        Ok(())
    }

    /// Waits for events, at most until the given time, and handles them.
    fn run_turn(&mut self, until: Option<Instant>) -> Result<()> {
        let mut events = Vec::with_capacity(self.links.len() + 8);
        let timeout = until.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::system("epoll_wait", e)),
        }
        self.serve_ready(events.iter().map(|event| (event.data.u64(), event.flags)));
        self.tick(Instant::now());
        Ok(())
    }

    /// Carries out the effects of the service until there are none.
    fn apply_effects(&mut self) {
        loop {
            // Before any reply: a client that learns of an enable can rely on the published file.
            if let Some(enables) = self.service.changed_enables() {
                self.served_folder.publish_enables(&enables);
            }
            let effects = self.service.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    LinkEffect::Send { link: OWN_LINK, request, message, .. } => {
                        let requests = self.starter.handle_reply(request, message);
                        self.request_as_daemon(requests);
                    }
                    LinkEffect::Send { link, request, message, descriptors } => {
                        let Some(target) = self.links.get_mut(&link) else { continue };
                        if target.push(request, message, descriptors) {
                            self.flush_link(link);
                            self.mark_crowded(link);
                        } else {
                            self.drop_unread(link);
                        }
                    }
                    LinkEffect::Close { link } => self.close_link(link),
                }
            }
        }
    }

    fn handle_inbox(&mut self) {
        for incoming in self.inbox.take_all() {
            match incoming {
                InboxMessage::Notice(notice) => self.service.handle_notice(*notice, Instant::now()),
                InboxMessage::Knocked(connection) => self.add_link(connection, true),
                InboxMessage::Prepared(prepared) => {
                    let requests = self.starter.handle_prepared(prepared);
                    self.request_as_daemon(requests);
                }
            }
            self.apply_effects();
        }
    }

    /// Counts the signals: each one has written a byte.
    fn read_signals(&mut self) {
        let mut bytes = [0; 16];
        let count = (&self.signals.stops).read(&mut bytes).unwrap_or(0);
        self.stop_requests = self.stop_requests.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Shuts down as after the first SIGTERM, however many hangups come: kernel and shell may both
    /// send one.
    fn read_hangups(&mut self) {
        let mut bytes = [0; 16];
        let Some(mut hangups) = self.signals.hangups.as_ref() else { return };
        if hangups.read(&mut bytes).is_ok_and(|count| count > 0) {
            self.stop_requests = self.stop_requests.max(1);
        }
    }

    fn tick(&mut self, now: Instant) {
        self.service.tick(now);
        self.watch_janitor();
        while let Some((at, id)) = self.expiries.first().copied().filter(|(at, _)| *at <= now) {
            self.expiries.remove(&(at, id));
            if self.links.get(&id).is_some_and(|link| link.is_crowded) {
                self.drop_unread(id);
            } else {
                self.drop_expired(id, at);
            }
        }
        self.resume_uncrowded();
        self.resume_listening(now);
    }

    /// Logs once when the descriptors that clients sent cannot be closed, and once when they can
    /// again.
    fn watch_janitor(&mut self) {
        let unclosed = self.janitor.kept();
        let is_stuck = unclosed >= MANY_UNCLOSED;
        if is_stuck && !self.is_janitor_stuck {
            log_client!("{unclosed} file descriptors that clients sent cannot be closed yet");
        } else if self.is_janitor_stuck && !is_stuck {
            log_client!("file descriptors that clients sent are being closed again");
        }
        self.is_janitor_stuck = is_stuck;
    }

    fn next_deadline(&self) -> Option<Instant> {
        let expiry = self.expiries.first().map(|(at, _)| *at);
        let idle = self.idle_exit.and_then(|after| self.service.idle_since().map(|since| since + after));
        let socket_check = self.idle_exit.map(|_| self.socket_checked + SOCKET_CHECK_INTERVAL);
        [self.service.deadline(), expiry, self.paused_until, idle, socket_check].into_iter().flatten().min()
    }

    /// Returns whether the daemon has been idle for long enough, and still is after it has accepted
    /// the connections that were waiting.
    fn should_exit_idle(&mut self, now: Instant) -> bool {
        if !self.is_idle(now) {
            return false;
        }
        self.accept_all();
        self.apply_effects();
        self.is_idle(now)
    }

    /// Returns whether this daemon was started on demand, a service manager listens in its place,
    /// and no work is left.
    fn is_superseded(&mut self, now: Instant) -> bool {
        if self.idle_exit.is_none() || now < self.socket_checked + SOCKET_CHECK_INTERVAL {
            return false;
        }
        self.socket_checked = now;
        if !self.served_folder.is_replaced() || !self.is_without_work(now) {
            return false;
        }
        // Clients that connected before the socket was replaced are served.
        self.accept_all();
        self.apply_effects();
        let is_superseded = self.is_without_work(now);
        if is_superseded {
            log_info!("a service manager has taken over the socket");
        }
        is_superseded
    }

    /// Returns whether there is no work, and no controller has sent a message for
    /// [`SOCKET_CHECK_INTERVAL`].
    fn is_without_work(&self, now: Instant) -> bool {
        self.service.is_idle_for(SOCKET_CHECK_INTERVAL, now)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.idle_exit.is_some_and(|after| self.service.is_idle_for(after, now))
    }
}

fn timespec(wait: Duration) -> Timespec {
    // Rounded up, so that the loop does not wake up just before a deadline.
    let wait = wait + Duration::from_micros(100);
    Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_nanos()),
    }
}
