//! Handlers for Ctrl+C and for the end of the program: `SetConsoleCtrlHandler`.
//!
//! ```text
//!   SIGINT, SIGTERM, SIGHUP ──▶ catch_signal: counts the signal, posts a semaphore
//!                                        │
//!                dispatcher thread ◀─────┘ starts one thread for each signal
//!                       │
//!                       ▼ the handlers, the newest first, until one returns TRUE
//!                 none did, or the event was CTRL_CLOSE_EVENT: the signal ends the process
//! ```
//!
//! The signals are caught and the dispatcher runs only in a program that has installed a handler.
//! A signal that was ignored before, as `nohup` does with SIGHUP, stays ignored.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use traceweir::Status;

use super::threads::spawn_detached;
use super::to_bool;

// Events of handlers.
const CTRL_C_EVENT: u32 = 0;
const CTRL_CLOSE_EVENT: u32 = 2;

/// A handler of the program. It may unwind, because it may end its thread.
pub type HandlerRoutine = unsafe extern "C-unwind" fn(u32) -> i32;

/// A signal that is caught, and the event that it becomes.
struct CaughtSignal {
    number: c_int,
    event: u32,
    /// Signals that the dispatcher has not taken yet.
    arrived: AtomicU32,
}

const fn caught(number: c_int, event: u32) -> CaughtSignal {
    CaughtSignal { number, event, arrived: AtomicU32::new(0) }
}

static SIGNALS: [CaughtSignal; 3] = [
    caught(libc::SIGINT, CTRL_C_EVENT),
    caught(libc::SIGTERM, CTRL_CLOSE_EVENT),
    caught(libc::SIGHUP, CTRL_CLOSE_EVENT),
];

/// The handlers, and the actions of the signals.
struct Console {
    handlers: Vec<HandlerRoutine>,
    ignores_interrupt: bool,
    /// For each signal the action before it was caught or ignored here, while it is.
    previous: [Option<libc::sigaction>; 3],
}

static CONSOLE: Mutex<Console> =
    Mutex::new(Console { handlers: Vec::new(), ignores_interrupt: false, previous: [None; 3] });

/// The process that has the dispatcher. The child of a fork has none.
static DISPATCHER_PROCESS: AtomicI32 = AtomicI32::new(0);

fn lock_console() -> MutexGuard<'static, Console> {
    CONSOLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The semaphore that the signal handler posts. It is never destroyed.
struct Semaphore(*mut libc::sem_t);

// SAFETY: the functions of semaphores may be called in all threads at once.
unsafe impl Send for Semaphore {}
// SAFETY: as above.
unsafe impl Sync for Semaphore {}

static SEMAPHORE: OnceLock<Semaphore> = OnceLock::new();

/// The mask of signals that threads of handlers have: that of the thread that installed the first
/// handler.
static HANDLER_MASK: OnceLock<libc::sigset_t> = OnceLock::new();

/// Handles the signals. Calls only functions that a signal handler may call.
extern "C" fn catch_signal(number: c_int) {
    // SAFETY: the function has no requirements.
    if unsafe { libc::getpid() } != DISPATCHER_PROCESS.load(Ordering::Relaxed) {
        // The child of a fork: no thread would take the signal.
        end_process(number);
        return;
    }
    if let Some(signal) = SIGNALS.iter().find(|signal| signal.number == number) {
        signal.arrived.fetch_add(1, Ordering::Release);
    }
    if let Some(semaphore) = SEMAPHORE.get() {
        // SAFETY: the semaphore is initialized and never destroyed. `errno` belongs to this thread.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::sem_post(semaphore.0);
            *errno = before;
        }
    }
}

/// Ends the process by a signal, as if it were not caught.
fn end_process(number: c_int) {
    // SAFETY: all bits 0 is the default action. The calls get valid pointers.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, &raw const action, std::ptr::null_mut());
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), number);
        libc::kill(libc::getpid(), number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// The dispatcher thread: starts a thread for each signal.
extern "C-unwind" fn run_dispatcher(_argument: *mut c_void) -> *mut c_void {
    let Some(semaphore) = SEMAPHORE.get() else { return std::ptr::null_mut() };
    loop {
        // SAFETY: the semaphore is initialized and never destroyed.
        while unsafe { libc::sem_wait(semaphore.0) } != 0 {}
        for signal in &SIGNALS {
            let take = |count: u32| count.checked_sub(1);
            while signal.arrived.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_ok() {
                let argument = std::ptr::from_ref(signal).cast_mut().cast();
                // SAFETY: the signal is static.
                if !unsafe { spawn_detached(run_handlers, argument, None) } {
                    end_process(signal.number);
                }
            }
        }
    }
}

/// The thread of one signal. Nothing here has a destructor while a handler runs.
extern "C-unwind" fn run_handlers(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the dispatcher passes a static signal.
    let Some(signal) = (unsafe { argument.cast::<CaughtSignal>().as_ref() }) else { return argument };
    if let Some(mask) = HANDLER_MASK.get() {
        // SAFETY: the mask is initialized.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
    }
    // A handler may add and remove handlers, so the list is read again for each.
    let mut number = lock_console().handlers.len();
    let mut is_handled = false;
    while !is_handled && number > 0 {
        number = number.saturating_sub(1);
        let handler = lock_console().handlers.get(number).copied();
        if let Some(handler) = handler {
            // SAFETY: the program passed the handler for this call.
            is_handled = unsafe { handler(signal.event) } != 0;
        }
    }
    if !is_handled || signal.event == CTRL_CLOSE_EVENT {
        end_process(signal.number);
    }
    std::ptr::null_mut()
}

/// Starts the dispatcher, unless this process has it already.
fn start_dispatcher() -> Result<(), Status> {
    static IS_SEMAPHORE_MADE: AtomicBool = AtomicBool::new(false);
    let process = std::process::id().cast_signed();
    if DISPATCHER_PROCESS.load(Ordering::Relaxed) == process {
        return Ok(());
    }
    if !IS_SEMAPHORE_MADE.swap(true, Ordering::Relaxed) {
        let memory = Box::leak(Box::new(MaybeUninit::<libc::sem_t>::uninit())).as_mut_ptr();
        // SAFETY: the memory has the size of a semaphore and is never freed.
        unsafe { libc::sem_init(memory, 0, 0) };
        let _ = SEMAPHORE.set(Semaphore(memory));
    }
    // The dispatcher takes no signals of the program.
    let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the sets are initialized before they are read. `run_dispatcher` takes no argument.
    let is_started = unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), mask.as_mut_ptr());
        let is_started = spawn_detached(run_dispatcher, std::ptr::null_mut(), None);
        libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut());
        let _ = HANDLER_MASK.set(mask.assume_init());
        is_started
    };
    if !is_started {
        return Err(Status::ERROR_NOT_ENOUGH_MEMORY);
    }
    DISPATCHER_PROCESS.store(process, Ordering::Relaxed);
    Ok(())
}

/// What this module does with a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Treatment {
    Catch,
    Ignore,
    Restore,
}

impl Console {
    /// Sets the actions of the signals for the current handlers.
    fn update_signals(&mut self) {
        for (signal, previous) in SIGNALS.iter().zip(&mut self.previous) {
            let treatment = if signal.event == CTRL_C_EVENT && self.ignores_interrupt {
                Treatment::Ignore
            } else if self.handlers.is_empty() {
                Treatment::Restore
            } else {
                Treatment::Catch
            };
            set_treatment(signal.number, previous, treatment);
        }
    }
}

fn set_treatment(number: c_int, previous: &mut Option<libc::sigaction>, treatment: Treatment) {
    // SAFETY: all bits 0 is a valid action. The calls get valid pointers.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &raw mut current);
        let mut action: libc::sigaction = std::mem::zeroed();
        match (treatment, *previous) {
            (Treatment::Restore, Some(before)) => {
                let is_ours =
                    [catch_signal as *const () as usize, libc::SIG_IGN].contains(&current.sa_sigaction);
                // The program may have set another action since.
                if is_ours {
                    libc::sigaction(number, &raw const before, std::ptr::null_mut());
                }
                *previous = None;
                return;
            }
            (Treatment::Restore, None) => return,
            // A signal that is ignored stays ignored.
            (Treatment::Catch, None) if current.sa_sigaction == libc::SIG_IGN => return,
            (Treatment::Catch, _) => {
                action.sa_sigaction = catch_signal as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
            }
            (Treatment::Ignore, _) => action.sa_sigaction = libc::SIG_IGN,
        }
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(number, &raw const action, std::ptr::null_mut());
        previous.get_or_insert(current);
    }
}

/// Adds or removes a handler. NULL stands for a handler that ignores SIGINT.
///
/// # Safety
///
/// `handler` is NULL, or may be called in another thread until it is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SetConsoleCtrlHandler(handler: Option<HandlerRoutine>, adds: i32) -> i32 {
    to_bool(|| {
        let mut console = lock_console();
        match (handler, adds != 0) {
            (None, ignores) => console.ignores_interrupt = ignores,
            (Some(handler), true) => {
                start_dispatcher()?;
                console.handlers.push(handler);
            }
            (Some(handler), false) => {
                let same = |known: &HandlerRoutine| std::ptr::fn_addr_eq(*known, handler);
                let index = console.handlers.iter().rposition(same).ok_or(Status::ERROR_INVALID_PARAMETER)?;
                console.handlers.remove(index);
            }
        }
        console.update_signals();
        Ok(())
    })
}
