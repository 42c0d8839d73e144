//! The connections of a traced process to the daemons, made with the first registration, and the
//! state that all registrations share.
//!
//! ```text
//!   register, unregister (any thread) ──commands──▶ control thread ──Register, Ack──▶ daemon(s)
//!        ▲ waits until it is sent (10 s at most),       │  ◀──Region, Enable, CloseSession──
//!        │ then for Registered (1 s at most)            │
//!        └───────────── state_changed ──────────────────┘
//!                                                       └──▶ slots (enable entries), outlets;
//!                                                            callbacks on their thread
//!   write (any thread) ──doorbell──▶ waking thread ──eventfd──▶ daemon(s)
//! ```
//!
//! | File | Contents |
//! |---|---|
//! | `shared` | the state that all threads share under one lock |
//! | `control` | the control thread: sockets, greeting, announcing |
//! | `control/at_load` | a control thread that started with the library, before any registration |
//! | `control/reconnect` | reconnecting to a daemon that dropped the connection or lacked resources |
//! | `control/early` | enables from a daemon's file, applied before the daemon answers |
//! | `control/orders` | orders of daemons; cleanup after a daemon disconnects |
//! | `control/private` | private sessions that a daemon starts in this process |
//! | `control/repair` | recovery from descriptors that the program closed |
//! | `link` | the folders and connections of daemons |
//! | `rights` | the users for which files are opened; which daemons are trusted |
//! | `private` | sessions in this process, their log files and the modules that they record |
//! | `traits` | traits that are set after the registration |
//! | `catch_up` | waiting until the messages that daemons have sent are handled |
//! | `load` | threads that start with the library, in a program that replaces `malloc` |
//! | `foreign_lock` | detection of a control thread that waits for a lock of the program |
//! | `callbacks` | the thread that runs callbacks, with the program's descriptors |
//! | `wakers` | the thread that writes eventfds for writers |
//! | `eventfds` | the descriptors of that thread |
//!
//! Invariants
//!
//! 1. Nothing starts before the first registration; a process without one pays nothing, except that
//!    `libtraceweir` starts its threads when it is loaded into a program that replaces `malloc`
//!    (`load`). The control thread sleeps without a timeout unless an attempt or a check is due
//!    (`ControlThread::wait_for_work`).
//! 2. Entries of slots and the table of outlets change under the lock of `shared`. No thread holds
//!    it while a callback runs or while it waits for a socket.
//! 3. A registration succeeds whatever the system refuses (socket, folder, thread); [`link_state`]
//!    returns the reason. A registration fails only if all slots are in use, or if a daemon forbids
//!    it and no daemon accepts it while it waits.
//! 4. A process uses only the client that it made itself; see `process::fork`.
//! 5. A registering thread may hold a lock of the program, so it does not wait for a thread that
//!    may need this lock. The threads that `libtraceweir` starts when it is loaded never call a
//!    replaced `malloc` once they wait for registrations. If the control thread waits for any lock
//!    of the program, the registering thread stops waiting for it (`foreign_lock`).
//! 6. No descriptor of the library is in the program's descriptor table: the program may close any
//!    descriptor and reuse its number for its own files (`process`). If a sandbox refuses both
//!    `close_range` and `unshare`, the library's descriptors are in the program's table, under high
//!    numbers, and the library checks each before it uses or closes it (`control/repair`).

mod callbacks;
mod catch_up;
mod control;
mod eventfds;
mod foreign_lock;
mod link;
mod load;
pub(crate) mod private;
mod rights;
mod shared;
mod traits;
mod wakers;

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableParams, Filter};
use traceweir_transport::runtime::random;

use crate::enable_notice::EnableCallback;
use crate::error::{Error, Result};
use crate::process::outlets::OpenSession;
use crate::process::promise::Promise;
use crate::process::{self, fork, load as loading, outlets};
use crate::registration::{DecodeGuidWords, Handle, NewRegistration};
use callbacks::{CallbackThread, CurrentCallback};
pub(crate) use catch_up::catch_up_with_daemons;
use control::Start;
use foreign_lock::{ControlThreadWatch, LockChecks};
pub(crate) use load::start_at_load;
use shared::{AwaitedAnswer, ControlCommand, ControlThreadState, SharedState};
pub(crate) use traits::set_traits;
use wakers::{DOORBELL, Wakers};

/// The longest time that a registration waits for daemons, once it was sent.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time that a registration waits for the control thread to send it. On a machine with
/// hundreds of busy processes the thread waits seconds for a processor; events written before the
/// registration is sent reach no session. The control thread also waits for callbacks of the
/// program, which may wait for the registering thread: see [`CurrentCallback::is_stuck`].
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time that `fork` waits in a child whose parent was traced.
const FORK_TIMEOUT: Duration = Duration::from_millis(200);
/// The delay after which a child whose parent was not traced registers. Most children call `exec`
/// earlier.
const FORK_DELAY: Duration = Duration::from_millis(20);

static CLIENT: fork::PerProcess<Client> = fork::PerProcess::new();

/// The state that the registrations of this process share.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Mutex<SharedState>,
    state_changed: Condvar,
    /// The callback that the control thread waits for.
    callback: CurrentCallback,
    control_watch: ControlThreadWatch,
    /// Distinguishes this process from another one with the same id.
    instance: u64,
    /// Whether this process is not a forked child of a process that used the library.
    is_original_process: bool,
    /// Only library threads may use this: its descriptors are in the library's table.
    wakers: OnceLock<Wakers>,
}

/// The result of ending sessions.
struct EndedSessions {
    /// Registrations whose callbacks must run.
    changed: Vec<Handle>,
    /// Whether all writes to the sessions have finished.
    have_writers_finished: bool,
}

/// Describes how this process reaches daemons, or why it does not, as lines of text.
#[must_use]
pub fn link_state() -> Vec<String> {
    let Some(client) = CLIENT.get() else { return vec!["nothing was registered in this process".to_owned()] };
    let shared = client.lock();
    let mut lines = shared.notes.clone();
    lines.extend(shared.unusable_sessions.iter().map(|unusable| {
        format!("session {:#x} cannot be written to: {}", unusable.session, unusable.reason)
    }));
    lines.push(format!("daemons that know this process: {}", shared.welcoming_daemons));
    match &shared.control_thread {
        ControlThreadState::Failed(reason) => lines.push(format!("no control thread: {reason}")),
        ControlThreadState::NotStarted => lines.push("the control thread was not started yet".to_owned()),
        ControlThreadState::Running => {}
    }
    lines
}

/// Registers a provider and waits until every responsive daemon knows it; `store_handle`
/// gets the handle before the callback runs.
pub(crate) fn register(
    provider: Guid,
    traits: Option<&[u8]>,
    callback: Option<EnableCallback>,
    origin: usize,
    store_handle: impl FnOnce(Handle),
) -> Result<Handle> {
    let mut shared = Client::get().lock();
    let decoding = traits.and_then(|traits| DecodeGuidWords::from_traits(traits, provider));
    let decoding = decoding.map(|decoding| shared.interned.intern_decoding(decoding));
    let traits = traits.map(|traits| shared.interned.intern_traits(traits));
    drop(shared);
    announce_and_notify(
        Handle::claim_slot(NewRegistration { provider, traits, decoding, classes: None, callback, origin })?,
        store_handle,
    )
}

/// Registers a classic provider; `store_handle` gets the handle before the callback runs.
pub(crate) fn register_classic(
    provider: Guid,
    classes: &[Guid],
    callback: EnableCallback,
    store_handle: impl FnOnce(Handle),
) -> Result<Handle> {
    let classes = Some(Client::get().lock().interned.intern_classes(classes));
    let new = NewRegistration {
        provider,
        traits: None,
        decoding: None,
        classes,
        callback: Some(callback),
        origin: 0,
    };
    announce_and_notify(Handle::claim_slot(new)?, store_handle)
}

/// Announces a registration, passes the handle to `store_handle`, and only then calls the callback
/// with the sessions that have it enabled already: the callback may write events, which need the
/// handle.
fn announce_and_notify(handle: Handle, store_handle: impl FnOnce(Handle)) -> Result<Handle> {
    let client = Client::get();
    let result = client.announce(handle);
    if result.is_ok() {
        store_handle(handle);
    }
    // Read the filter after `store_handle`: it may set traits, and sessions that enable the new
    // name or group add filters.
    let filter = client.lock().take_filter(handle.number());
    match result {
        Ok(()) => {
            handle.slot().finish_registering(filter.as_ref());
            Ok(handle)
        }
        Err(e) => {
            unregister(handle);
            Err(e)
        }
    }
}

/// Sends the module of a registration to every session that has it enabled now or enables it later.
///
/// The module is found before the lock is taken: finding it takes the loader's lock, which a
/// library that registers while it is loaded holds already.
pub(crate) fn track_binary(handle: Handle) -> Result<()> {
    let module = handle.find_module();
    let mut shared = Client::get().lock();
    if !handle.is_current() {
        return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, "the registration has ended"));
    }
    let module = shared.interned.intern_module(module);
    handle.slot().set_module(Some(module));
    handle.slot().send_module_to_all();
    Ok(())
}

/// Ends a registration; `false` if it had ended already.
pub(crate) fn unregister(handle: Handle) -> bool {
    if !handle.retire() {
        return false;
    }
    // A forked child that unregisters its last provider need not register it again first.
    if fork::is_forked() && Handle::iter_current().next().is_none() {
        handle.slot().disable_sessions(u64::MAX);
    } else {
        Client::get().queue_unregister(handle);
    }
    handle.release();
    true
}

/// The end of a wait: first for the control thread to send a request, then for the replies.
struct RequestDeadline {
    ends_at: Instant,
    is_sent: bool,
    lock_checks: LockChecks,
}

impl RequestDeadline {
    fn new() -> Self {
        Self { ends_at: Instant::now() + SEND_TIMEOUT, is_sent: false, lock_checks: LockChecks::new() }
    }

    /// Returns how long to wait before the next call; `None` if the wait is over. The reply timeout
    /// starts when `is_sent` becomes true.
    fn remaining_wait(&mut self, is_sent: bool, client: &Client) -> Option<Duration> {
        if is_sent && !self.is_sent {
            (self.ends_at, self.is_sent) = (Instant::now() + REPLY_TIMEOUT, true);
        }
        let left = self.ends_at.checked_duration_since(Instant::now())?;
        let is_pointless =
            self.lock_checks.is_control_thread_blocked(client) || (!is_sent && client.callback.is_stuck());
        (!is_pointless).then_some(left.min(foreign_lock::CHECK_INTERVAL))
    }
}

impl Client {
    /// Returns the client of this process, and makes it if there is none.
    pub(crate) fn get() -> &'static Self {
        let client = CLIENT.get_or_make(Self::new);
        if client.is_original_process && !fork::may_write() {
            fork::set_ready();
        }
        client
    }

    fn new(is_original_process: bool) -> Self {
        // These may call `malloc`. While the library is loading, the load handler calls them later.
        if !loading::is_loading() {
            process::install_fork_and_exit_handlers(after_fork, at_exit);
            process::keep_module_loaded();
        }
        if !is_original_process {
            process::close_inherited_sockets();
            Handle::iter_current().for_each(|handle| handle.slot().abandon_registering());
        }
        Self {
            shared: Mutex::default(),
            state_changed: Condvar::new(),
            callback: CurrentCallback::new(),
            control_watch: ControlThreadWatch::default(),
            instance: random(),
            is_original_process,
            wakers: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock; `None` if it is not free within `timeout`. Exit handlers use this, because
    /// they may have interrupted the thread that holds the lock.
    fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, SharedState>> {
        let deadline = Instant::now() + timeout;
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

    /// Announces a registration and waits for the daemons; fails if they forbid it.
    fn announce(&'static self, handle: Handle) -> Result<()> {
        let number = handle.number();
        self.lock().enable_for_private_sessions(handle);
        self.send_module_to_private(handle);
        let mut shared = self.lock();
        self.start_thread(&mut shared, Duration::ZERO);
        if loading::is_before_loading() {
            shared.registered_before_threads.push(number);
        }
        if loading::is_loading() || matches!(shared.control_thread, ControlThreadState::Running) {
            shared.awaited_registrations.push(AwaitedAnswer::unsent(number));
            shared.commands.push(ControlCommand::Register(number));
            self.wake_control_thread();
            if callbacks::may_wait_for_control() {
                shared = self.await_registered(shared, number);
            }
        }
        shared.take_registration_result(number)
    }

    fn await_registered<'s>(
        &'s self,
        mut shared: MutexGuard<'s, SharedState>,
        number: u32,
    ) -> MutexGuard<'s, SharedState> {
        // Wait for the control thread even if a daemon is unresponsive: it applies the enables that
        // the daemon's file lists, without waiting for the daemon.
        let mut deadline = RequestDeadline::new();
        while shared.is_unsent(number) || (!shared.has_unresponsive_daemon && shared.is_unanswered(number)) {
            match deadline.remaining_wait(!shared.is_unsent(number), self) {
                Some(left) => shared = self.wait_for_change(shared, left),
                None => {
                    // A daemon that got no request is not unresponsive.
                    shared.has_unresponsive_daemon |= deadline.is_sent;
                    break;
                }
            }
        }
        if shared.is_unanswered(number) {
            let mut late = shared.awaited_registrations.clone();
            late.retain(|awaited| awaited.registration == number);
            if late.is_empty() {
                late.push(AwaitedAnswer::unsent(number));
            }
            shared.late_registrations.append(&mut late);
        }
        shared.awaited_registrations.retain(|awaited| awaited.registration != number);
        shared
    }

    fn wait_for_change<'s>(
        &'s self,
        shared: MutexGuard<'s, SharedState>,
        left: Duration,
    ) -> MutexGuard<'s, SharedState> {
        self.state_changed.wait_timeout(shared, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Disables a retired registration for its sessions and queues its Unregister for the daemons.
    fn queue_unregister(&'static self, handle: Handle) {
        let mut shared = self.lock();
        handle.slot().disable_sessions(u64::MAX);
        shared.awaited_registrations.retain(|awaited| awaited.registration != handle.number());
        shared.late_registrations.retain(|late| late.registration != handle.number());
        shared.late_traits.retain(|late| late.registration != handle.number());
        shared.registration_answers.retain(|(n, _)| *n != handle.number());
        if !fork::may_write() {
            self.start_thread(&mut shared, Duration::ZERO);
        }
        if matches!(shared.control_thread, ControlThreadState::Running) {
            shared.commands.push(ControlCommand::Unregister(handle.number()));
            self.wake_control_thread();
        }
    }

    fn start_thread(&'static self, shared: &mut SharedState, delay: Duration) {
        if loading::is_loading() || matches!(shared.control_thread, ControlThreadState::Running) {
            return;
        }
        match self.spawn_threads(delay, Start::AtRegistration) {
            Ok(()) => shared.expect_start(),
            Err(e) => {
                shared.control_thread = ControlThreadState::Failed(e.to_string());
                shared.drop_inherited_sessions();
            }
        }
    }

    fn spawn_threads(&'static self, delay: Duration, start: Start) -> std::io::Result<()> {
        let callbacks = CallbackThread::start(&self.control_watch)?;
        process::spawn_without_signals("traceweir", move || {
            callbacks::forbid_waiting_for_control();
            std::thread::sleep(delay);
            let Err(e) = control::run(self, callbacks, start);
            let mut shared = self.lock();
            shared.control_thread = ControlThreadState::Failed(e.to_string());
            shared.is_starting = false;
            shared.awaited_registrations.clear();
            shared.drop_inherited_sessions();
            drop(shared);
            self.state_changed.notify_all();
            self.start_jobs();
        })
    }

    fn wake_control_thread(&self) {
        DOORBELL.ring_requests();
    }

    /// Has the control thread run callbacks (on the callback thread) and waits for at most
    /// [`REPLY_TIMEOUT`]. Runs them on this thread if there is no control thread, or if this thread
    /// must not wait for it.
    fn run_callbacks(&'static self, changed: Vec<Handle>, source: Guid, filter: Option<Filter>) {
        if changed.is_empty() {
            return;
        }
        let can_delegate = callbacks::may_wait_for_control()
            && matches!(self.lock().control_thread, ControlThreadState::Running);
        if !can_delegate {
            return notify_registrations(&changed, source, filter.as_ref());
        }
        let done = Promise::new();
        self.lock().commands.push(ControlCommand::RunCallbacks {
            changed,
            source,
            filter,
            done: done.clone(),
        });
        self.wake_control_thread();
        let _ = done.wait(REPLY_TIMEOUT);
    }

    /// Requests the state of providers, in the same way as [`run_callbacks`](Self::run_callbacks).
    fn capture_state(&'static self, providers: Vec<Handle>, outlet: u8, params: &EnableParams) {
        if !callbacks::may_wait_for_control()
            || !matches!(self.lock().control_thread, ControlThreadState::Running)
        {
            return providers.into_iter().for_each(|handle| handle.slot().capture_state(outlet, params));
        }
        let (params, done) = (Box::new(params.clone()), Promise::new());
        self.lock().commands.push(ControlCommand::Capture { providers, outlet, params, done: done.clone() });
        self.wake_control_thread();
        let _ = done.wait(REPLY_TIMEOUT);
    }

    /// Sets the eventfd of the library that wakes the owner of an outlet; `false` if there is no
    /// waking thread.
    fn set_wake_eventfd(&self, outlet: u8, wake: OwnedFd) -> bool {
        self.wakers.get().map(|wakers| wakers.set(outlet, wake)).is_some()
    }

    /// Queues callbacks and does not wait for them.
    fn run_callbacks_later(&'static self, changed: Vec<Handle>) {
        if !changed.is_empty() {
            let done = Promise::new();
            self.lock().commands.push(ControlCommand::RunCallbacks {
                changed,
                source: Guid::NULL,
                filter: None,
                done,
            });
            self.wake_control_thread();
        }
    }

    /// Ends sessions, so that no entry names them and no writer publishes to them any more.
    ///
    /// If not all writers finished, a thread was stopped in the middle of a write for longer than
    /// closing an outlet waits. The remainder of its write has no effect, but its event is neither
    /// stored nor counted.
    fn end_sessions(&self, is_ended: impl Fn(&OpenSession) -> bool) -> EndedSessions {
        let mut shared = self.lock();
        let outlets = shared.outlets.remove(is_ended);
        let changed = Handle::iter_current()
            .filter(|handle| outlets != 0 && handle.slot().disable_sessions(outlets))
            .collect();
        drop(shared);
        let mut have_writers_finished = true;
        for outlet in outlets::outlet_numbers(outlets) {
            have_writers_finished &= outlets::get(outlet).close();
        }
        // Close the eventfds before other sessions can use the outlets. If this is not a library
        // thread, they are closed when their outlets are used again.
        if let Some(wakers) = self.wakers.get().filter(|_| process::is_library_thread()) {
            wakers.clear(outlets);
        }
        let mut shared = self.lock();
        shared.outlets.free(outlets);
        if !have_writers_finished {
            shared.add_note(
                "a session was closed while a thread was stopped in the middle of a write".to_owned(),
            );
        }
        EndedSessions { changed, have_writers_finished }
    }
}

/// Runs callbacks on this thread. If any of the registrations has a callback, this thread must
/// share the program's descriptors.
fn notify_registrations(changed: &[Handle], source: Guid, filter: Option<&Filter>) {
    for handle in changed {
        if handle.is_current() {
            handle.slot().notify(source, filter);
        }
    }
}

/// Runs in the child after `fork`.
extern "C" fn after_fork() {
    fork::wipe_page();
    process::close_inherited_sockets();
    if !fork::is_forked() || Handle::iter_current().next().is_none() {
        return;
    }
    let is_traced = Handle::iter_current().any(|handle| handle.slot().is_active());
    let client = Client::get();
    let mut shared = client.lock();
    client.start_thread(&mut shared, if is_traced { Duration::ZERO } else { FORK_DELAY });
    if is_traced {
        let deadline = Instant::now() + FORK_TIMEOUT;
        while !fork::may_write()
            && let Some(left) = deadline.checked_duration_since(Instant::now())
        {
            shared = client.wait_for_change(shared, left);
        }
    }
}

/// Runs at the exit of the process. A forked child without a client does nothing: the sessions and
/// sockets that it inherited belong to its parent.
extern "C" fn at_exit() {
    let Some(client) = CLIENT.get() else { return };
    private::finish_all(client);
    // The exiting thread may have been interrupted inside the lock. A socket file left behind is
    // harmless: a daemon removes it.
    if let Some(shared) = client.try_lock_for(Duration::from_millis(100)) {
        for socket in &shared.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}
