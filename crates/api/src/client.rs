//! The lazy link of a traced process to the daemons, and what all registrations of the process share.
//!
//! ```text
//!   register, unregister (any thread) ──commands──▶ control thread ──Register, Ack──▶ daemon(s)
//!        ▲ waits for Registered, at most 1 s            │  ◀──Region, Enable, CloseSession──
//!        └──────────────── changed ─────────────────────┘
//!                                                       └──▶ slots (entries, hot words), outlets; callbacks on their thread
//!   write (any thread) ──doorbell──▶ waking thread ──eventfd──▶ daemon(s)
//! ```
//!
//! | File | What it knows |
//! |---|---|
//! | `control` | the thread: sockets, greeting, announcing |
//! | `again` | the way back to a daemon that dropped us |
//! | `early` | registrations that do not wait for a daemon that is busy |
//! | `orders` | what daemons ask for, and what follows when one is gone |
//! | `traits` | traits that are set after the registration |
//! | `shared` | what the threads of the process share under one lock |
//! | `outlets` | which session is written to through which outlet |
//! | `private` | sessions that a daemon has this process run by itself |
//! | `rights` | for whom files are opened, and who is believed |
//! | `fork` | whether this is still the process that made all this |
//! | `callbacks` | the thread that runs callbacks, with the program's descriptors |
//! | `wakers` | the thread that writes eventfds for writers |
//! | `tokens` | the descriptors of that thread |
//! | `repair` | descriptors that the program has closed, where it can |
//! | `process` | signals, fork and exit handlers, staying loaded |
//!
//! Invariants
//!
//! 1. Nothing starts before the first registration; a process without one pays nothing. The control thread sleeps without a time limit, but
//!    for a moment when a daemon has dropped it twice in a row, and where it has to check its descriptors.
//! 2. Entries of slots and the table of outlets change under the lock of `shared`. It is never held while a callback runs or a socket is waited for.
//! 3. Registering succeeds whatever the system refuses (socket, folder, thread); the reason is kept for [`link_state`]. It fails where a daemon forbids it
//!    and none allows it, in the time that a registration waits.
//! 4. A process uses only the client it made itself; see `fork`.
//! 5. No descriptor of the link is in the program's table: the program may close every number and use it for files of its own (`process`). Where a sandbox refuses both
//!    `close_range` and `unshare` they are there, under high numbers, and each is checked before it is used or closed (`repair`).

mod again;
mod callbacks;
pub(crate) mod control;
mod early;
pub(crate) mod fork;
mod link;
mod orders;
pub(crate) mod outlets;
mod private;
pub(crate) mod process;
pub(crate) mod promise;
mod repair;
mod rights;
mod shared;
pub(crate) mod thread;
mod tokens;
mod traits;
mod wakers;

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableParams, Filter};
use traceweir_transport::runtime::random;

use crate::error::{Error, Result};
use crate::provider::{Decoding, EnableCallback, Handle, New};
use callbacks::Callbacks;
use outlets::Open;
use promise::Promise;
pub(crate) use shared::Shared;
use shared::{Command, Refused, Thread};
pub(crate) use traits::set_traits;
pub(crate) use wakers::DOORBELL;
use wakers::Wakers;

/// The longest that a registration waits for daemons.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest that `fork` waits in a child whose parent was traced.
const FORK_PATIENCE: Duration = Duration::from_millis(200);
/// A child whose parent was not traced registers after this: most children call `exec` before.
const FORK_DELAY: Duration = Duration::from_millis(20);

static CLIENT: fork::PerProcess<Client> = fork::PerProcess::new();

/// What the registrations of this process share.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Mutex<Shared>,
    changed: Condvar,
    /// Tells this process's library from that of one with the same id.
    instance: u64,
    /// Not a forked child of a process that used the library.
    first: bool,
    /// Used, as the descriptors in it, only by threads that share the library's descriptors.
    wakers: OnceLock<Wakers>,
}

/// What came of ending sessions.
pub(crate) struct Closed {
    /// Registrations whose callbacks are to be told.
    pub(crate) changed: Vec<Handle>,
    /// No write was under way any more.
    pub(crate) quiet: bool,
}

/// For people: how this process reaches daemons, or why it does not.
#[must_use]
pub fn link_state() -> Vec<String> {
    let Some(client) = CLIENT.get() else { return vec!["nothing was registered in this process".to_owned()] };
    let shared = client.lock();
    let mut lines = shared.links.clone();
    lines.extend(
        shared.refused.iter().map(|r| format!("session {:#x} cannot be written to: {}", r.session, r.reason)),
    );
    lines.push(format!("daemons that know this process: {}", shared.daemons));
    match &shared.thread {
        Thread::Failed(reason) => lines.push(format!("no control thread: {reason}")),
        Thread::None => lines.push("the control thread was not started yet".to_owned()),
        Thread::Running => {}
    }
    lines
}

/// Registers a provider and waits until every daemon that answers knows it; `known` is told its handle before the callback is called.
pub(crate) fn register(
    provider: Guid,
    traits: Option<&[u8]>,
    callback: Option<EnableCallback>,
    origin: usize,
    known: impl FnOnce(Handle),
) -> Result<Handle> {
    let mut shared = Client::get().lock();
    let decoding = traits.and_then(|traits| Decoding::from_traits(traits, provider));
    let decoding = decoding.map(|decoding| shared.interned.decoding(decoding));
    let traits = traits.map(|traits| shared.interned.traits(traits));
    drop(shared);
    enter(Handle::claim_for(New { provider, traits, decoding, classes: None, callback, origin })?, known)
}

/// Registers a classic provider; `known` is told its handle before the callback is called.
pub(crate) fn register_classic(
    provider: Guid,
    classes: &[Guid],
    callback: EnableCallback,
    known: impl FnOnce(Handle),
) -> Result<Handle> {
    let classes = Some(Client::get().lock().interned.classes(classes));
    let new = New { provider, traits: None, decoding: None, classes, callback: Some(callback), origin: 0 };
    enter(Handle::claim_for(new)?, known)
}

/// Announces a registration, hands it to its owner, and only then tells the callback what is enabled already: it may write events, and they need the handle.
fn enter(handle: Handle, known: impl FnOnce(Handle)) -> Result<Handle> {
    let client = Client::get();
    let verdict = client.announce(handle);
    if verdict.is_ok() {
        known(handle);
    }
    // After `known`, which may set traits: sessions that come by them bring filters too.
    let filter = client.lock().take_filter(handle.number());
    match verdict {
        Ok(()) => {
            handle.slot().registered(filter.as_ref());
            Ok(handle)
        }
        Err(e) => {
            unregister(handle);
            Err(e)
        }
    }
}

/// Has every session that collects from a registration told which module it lives in, now and whenever another one comes.
///
/// The module is found before the lock is taken: looking for it takes the loader's, and a library that registers while it is loaded holds that one already.
pub(crate) fn track_binary(handle: Handle) -> Result<()> {
    let module = handle.find_module();
    let mut shared = Client::get().lock();
    if !handle.is_current() {
        return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, "the registration is gone"));
    }
    let module = shared.interned.module(module);
    handle.slot().set_module(Some(module));
    handle.slot().send_module_to_all();
    Ok(())
}

/// Ends a registration; `false` when it was gone already.
pub(crate) fn unregister(handle: Handle) -> bool {
    if !handle.retire() {
        return false;
    }
    // A forked child that unregisters its last provider need not first register it anew.
    if fork::is_forked() && Handle::all().next().is_none() {
        handle.slot().disable_sessions(u64::MAX);
    } else {
        Client::get().renounce(handle);
    }
    handle.release();
    true
}

impl Client {
    /// The client of this process; made where there is none.
    pub(crate) fn get() -> &'static Self {
        let client = CLIENT.get_or_make(Self::new);
        if client.first && !fork::is_ready() {
            fork::set_ready();
        }
        client
    }

    /// The client of this process, if it has one.
    pub(crate) fn existing() -> Option<&'static Self> {
        CLIENT.get()
    }

    fn new(first: bool) -> Self {
        process::watch(after_fork, at_exit);
        process::pin();
        if !first {
            process::close_inherited();
            Handle::all().for_each(|h| h.slot().abandon_registering());
        }
        Self {
            shared: Mutex::default(),
            changed: Condvar::new(),
            instance: random(),
            first,
            wakers: OnceLock::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, unless somebody holds it for too long: in exit handlers, which may have interrupted the holder.
    pub(crate) fn lock_for(&self, within: Duration) -> Option<MutexGuard<'_, Shared>> {
        let deadline = Instant::now() + within;
        loop {
            match self.shared.try_lock() {
                Ok(shared) => return Some(shared),
                Err(TryLockError::Poisoned(e)) => return Some(e.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    /// Announces a registration and waits for the daemons. The filter that came along for its callback. An error: it is forbidden.
    fn announce(&'static self, handle: Handle) -> Result<()> {
        let number = handle.number();
        self.lock().apply_private(handle);
        self.send_module_to_private(handle);
        let mut shared = self.lock();
        self.start_thread(&mut shared, Duration::ZERO);
        if matches!(shared.thread, Thread::Running) {
            shared.awaited.push((0, number));
            shared.commands.push(Command::Register(number));
            self.wake();
            if callbacks::may_wait_for_control() {
                shared = self.await_registered(shared, number);
            }
        }
        shared.verdict(number)
    }

    fn await_registered<'s>(
        &'s self,
        mut shared: MutexGuard<'s, Shared>,
        number: u32,
    ) -> MutexGuard<'s, Shared> {
        let deadline = Instant::now() + PATIENCE;
        // The control thread is waited for in any case: it enables what a daemon's file says, without an answer.
        while shared.is_unsent(number) || (!shared.silent && shared.is_pending(number)) {
            match deadline.checked_duration_since(Instant::now()) {
                Some(left) => shared = self.wait(shared, left),
                None => {
                    shared.silent = true;
                    break;
                }
            }
        }
        if shared.is_pending(number) {
            let unanswered = |(_, awaited): &(u64, u32)| *awaited == number;
            let mut late: Vec<(u64, u32)> = shared.awaited.iter().copied().filter(unanswered).collect();
            if late.is_empty() {
                late.push((0, number));
            }
            shared.late.append(&mut late);
        }
        shared.awaited.retain(|(_, n)| *n != number);
        shared
    }

    fn wait<'s>(&'s self, shared: MutexGuard<'s, Shared>, left: Duration) -> MutexGuard<'s, Shared> {
        self.changed.wait_timeout(shared, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// A retired registration: its sessions are forgotten, the daemons told.
    fn renounce(&'static self, handle: Handle) {
        let mut shared = self.lock();
        handle.slot().disable_sessions(u64::MAX);
        shared.awaited.retain(|(_, n)| *n != handle.number());
        shared.late.retain(|(_, n)| *n != handle.number());
        shared.late_traits.retain(|(_, n)| *n != handle.number());
        shared.verdicts.retain(|(n, _)| *n != handle.number());
        if !fork::is_ready() {
            self.start_thread(&mut shared, Duration::ZERO);
        }
        if matches!(shared.thread, Thread::Running) {
            shared.commands.push(Command::Unregister(handle.number()));
            self.wake();
        }
    }

    fn start_thread(&'static self, shared: &mut Shared, delay: Duration) {
        if matches!(shared.thread, Thread::Running) {
            return;
        }
        let started = Callbacks::start().and_then(|callbacks| {
            process::spawn_quiet("traceweir", move || {
                callbacks::forbid_waiting_for_control();
                std::thread::sleep(delay);
                let Err(e) = control::run(self, callbacks);
                let mut shared = self.lock();
                shared.thread = Thread::Failed(e.to_string());
                shared.starting = false;
                shared.awaited.clear();
                shared.drop_inherited();
                drop(shared);
                self.changed.notify_all();
                self.start_jobs();
            })
        });
        match started {
            Ok(()) => (shared.thread, shared.starting) = (Thread::Running, true),
            Err(e) => {
                shared.thread = Thread::Failed(e.to_string());
                shared.drop_inherited();
            }
        }
    }

    fn wake(&self) {
        DOORBELL.ring_requests();
    }

    /// Runs callbacks on the control thread and waits for them a while; on this thread where there is no other.
    pub(crate) fn tell(&'static self, changed: Vec<Handle>, source: Guid, filter: Option<Filter>) {
        if changed.is_empty() {
            return;
        }
        let elsewhere = callbacks::may_wait_for_control() && matches!(self.lock().thread, Thread::Running);
        if !elsewhere {
            return tell_all(&changed, source, filter.as_ref());
        }
        let done = Promise::new();
        self.lock().commands.push(Command::Tell { changed, source, filter, done: done.clone() });
        self.wake();
        let _ = done.wait(PATIENCE);
    }

    /// Asks providers for their state, as [`tell`](Self::tell) tells them of changes.
    pub(crate) fn capture(&'static self, providers: Vec<Handle>, outlet: u8, params: &EnableParams) {
        if !callbacks::may_wait_for_control() || !matches!(self.lock().thread, Thread::Running) {
            return providers.into_iter().for_each(|it| orders::capture(it, outlet, params));
        }
        let (params, done) = (Box::new(params.clone()), Promise::new());
        self.lock().commands.push(Command::Capture { providers, outlet, params, done: done.clone() });
        self.wake();
        let _ = done.wait(PATIENCE);
    }

    /// Has the rings of an outlet written to an eventfd, which is the library's; `false` where there is no thread for it.
    pub(crate) fn set_wake(&self, outlet: u8, wake: OwnedFd) -> bool {
        self.wakers.get().map(|wakers| wakers.set(outlet, wake)).is_some()
    }

    /// Has the control thread run callbacks, without waiting.
    pub(crate) fn tell_later(&'static self, changed: Vec<Handle>) {
        if !changed.is_empty() {
            let done = Promise::new();
            self.lock().commands.push(Command::Tell { changed, source: Guid::NULL, filter: None, done });
            self.wake();
        }
    }

    /// Ends sessions: no entry names them and no writer publishes to them any more.
    ///
    /// Not quiet: a thread was stopped in the middle of a write for longer than closing an outlet waits. What it writes goes nowhere by now, also
    /// when it goes on, but its event is neither stored nor counted.
    pub(crate) fn end_sessions(&self, which: impl Fn(&Open) -> bool) -> Closed {
        let mut shared = self.lock();
        let outlets = shared.table.take(which);
        let changed = Handle::all().filter(|h| outlets != 0 && h.slot().disable_sessions(outlets)).collect();
        drop(shared);
        let mut quiet = true;
        for outlet in outlets::numbers(outlets) {
            quiet &= outlets::get(outlet).close();
        }
        // Before the outlets are free for others. Eventfds that no thread of the library gets to close here are closed when their outlets are used again.
        if let Some(wakers) = self.wakers.get().filter(|_| process::is_library_thread()) {
            wakers.clear(outlets);
        }
        let mut shared = self.lock();
        shared.table.free(outlets);
        if !quiet {
            shared
                .note("a session was closed while a thread was stopped in the middle of a write".to_owned());
        }
        Closed { changed, quiet }
    }
}

/// Tells callbacks what changed, on this thread, which shares the program's descriptors.
fn tell_all(changed: &[Handle], source: Guid, filter: Option<&Filter>) {
    for handle in changed {
        if handle.is_current() {
            handle.slot().notify(source, filter);
        }
    }
}

/// In the child of `fork`.
extern "C" fn after_fork() {
    fork::wipe();
    process::close_inherited();
    if !fork::is_forked() || Handle::all().next().is_none() {
        return;
    }
    let traced = Handle::all().any(|h| h.slot().is_active());
    let client = Client::get();
    let mut shared = client.lock();
    client.start_thread(&mut shared, if traced { Duration::ZERO } else { FORK_DELAY });
    if traced {
        let deadline = Instant::now() + FORK_PATIENCE;
        while !fork::is_ready()
            && let Some(left) = deadline.checked_duration_since(Instant::now())
        {
            shared = client.wait(shared, left);
        }
    }
}

/// At the exit of the process. A forked child that has no client of its own does nothing: all it sees is its parent's.
extern "C" fn at_exit() {
    let Some(client) = CLIENT.get() else { return };
    crate::private::finish_all();
    // The exiting thread may have been interrupted inside the lock; leaving a socket file behind is no harm, a daemon removes it.
    if let Some(shared) = client.lock_for(Duration::from_millis(100)) {
        for socket in &shared.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}
