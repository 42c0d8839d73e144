//! One-time initialization (INIT_ONCE).
//!
//! The lowest two bits of the word are the state; the others are the context, the value that the
//! initialization produced:
//!
//! ```text
//!   0 ──begin──▶ RUNNING ──complete──▶ context | DONE
//!   0 ──begin, async──▶ PENDING (any number of threads) ──complete, async──▶ context | DONE
//! ```

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use traceweir::Status;

use super::super::to_bool;
use super::futex::{self, Deadline};
use crate::{last_error, ptr};

// Flags of InitOnceBeginInitialize and InitOnceComplete.
const CHECK_ONLY: u32 = 0x1;
const ASYNC: u32 = 0x2;
const INIT_FAILED: u32 = 0x4;

// States.
const RUNNING: usize = 1;
const DONE: usize = 2;
const PENDING: usize = 3;
const STATE_MASK: usize = 3;

/// The published union RTL_RUN_ONCE.
#[derive(Debug)]
#[repr(C)]
pub struct InitOnce {
    word: AtomicUsize,
}

const _: () = assert!(size_of::<InitOnce>() == 8);

/// The function of InitOnceExecuteOnce. It may unwind, as C++ exceptions do.
pub type InitRoutine = unsafe extern "C-unwind" fn(*const InitOnce, *mut c_void, *mut usize) -> i32;

/// What a thread that begins the initialization finds.
enum Progress {
    /// The calling thread has to initialize.
    Mine,
    Done {
        context: usize,
    },
}

impl InitOnce {
    /// The address of the half of the word that has the state.
    fn state_address(&self) -> *const u32 {
        let offset = if cfg!(target_endian = "big") { 4 } else { 0 };
        self.word.as_ptr().wrapping_byte_add(offset).cast()
    }

    fn replace(&self, from: usize, to: usize) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Begins the initialization, or waits until another thread has ended it.
    fn begin(&self, is_async: bool) -> Result<Progress, Status> {
        let begun = if is_async { PENDING } else { RUNNING };
        loop {
            let word = self.word.load(Ordering::Acquire);
            match word & STATE_MASK {
                DONE => return Ok(Progress::Done { context: word & !STATE_MASK }),
                0 if self.replace(word, begun) => return Ok(Progress::Mine),
                0 => {}
                PENDING if is_async => return Ok(Progress::Mine),
                RUNNING if !is_async => {
                    futex::wait(self.state_address(), RUNNING as u32, Deadline::NEVER);
                }
                // Some threads initialize alone, and others together.
                _ => return Err(Status::ERROR_INVALID_PARAMETER),
            }
        }
    }

    fn complete(&self, flags: u32, context: usize) -> Result<(), Status> {
        let (is_async, has_failed) = (flags & ASYNC != 0, flags & INIT_FAILED != 0);
        let is_wrong = flags & !(ASYNC | INIT_FAILED) != 0
            || is_async && has_failed
            || has_failed && context != 0
            || context & STATE_MASK != 0;
        if is_wrong {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        let begun = if is_async { PENDING } else { RUNNING };
        let ended = if has_failed { 0 } else { context | DONE };
        if !self.replace(begun, ended) {
            // Another thread was first, or the initialization was not begun.
            return Err(Status::ERROR_GEN_FAILURE);
        }
        futex::wake(self.state_address(), i32::MAX);
        Ok(())
    }
}

/// Initializes the structure for a one-time initialization.
///
/// # Safety
///
/// `once` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitOnceInitialize(once: *mut InitOnce) {
    // SAFETY: the caller passes NULL or a writable `once`.
    unsafe { super::initialize(once, InitOnce { word: AtomicUsize::new(0) }) };
}

/// Begins a one-time initialization. Stores whether the calling thread has to do it, or the context
/// of an initialization that is done. INIT_ONCE_CHECK_ONLY fails with ERROR_GEN_FAILURE if it is not
/// done.
///
/// # Safety
///
/// `once` is NULL or initialized; `pending` and `context` are NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitOnceBeginInitialize(
    once: *const InitOnce,
    flags: u32,
    pending: *mut i32,
    context: *mut usize,
) -> i32 {
    // SAFETY: the caller passes NULL or initialized memory, whose member is atomic.
    let once = unsafe { once.as_ref() };
    to_bool(|| {
        let once = once.filter(|_| !pending.is_null()).ok_or(Status::ERROR_INVALID_PARAMETER)?;
        let progress = match flags {
            CHECK_ONLY => match once.word.load(Ordering::Acquire) {
                word if word & STATE_MASK == DONE => Progress::Done { context: word & !STATE_MASK },
                _ => return Err(Status::ERROR_GEN_FAILURE),
            },
            0 | ASYNC => once.begin(flags == ASYNC)?,
            _ => return Err(Status::ERROR_INVALID_PARAMETER),
        };
        // SAFETY: the caller passes NULL or writable addresses.
        unsafe {
            match progress {
                Progress::Mine => ptr::store(pending, 1),
                Progress::Done { context: value } => {
                    ptr::store(pending, 0);
                    ptr::store(context, value);
                }
            }
        }
        Ok(())
    })
}

/// Ends a one-time initialization that the calling thread has begun.
///
/// # Safety
///
/// `once` is NULL or initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitOnceComplete(once: *const InitOnce, flags: u32, context: *mut c_void) -> i32 {
    // SAFETY: the caller passes NULL or initialized memory, whose member is atomic.
    let once = unsafe { once.as_ref() };
    to_bool(|| once.ok_or(Status::ERROR_INVALID_PARAMETER)?.complete(flags, context.addr()))
}

/// Calls a function in the first thread that comes here, while other threads wait. If the function
/// returns FALSE, so does this one, and the next thread calls the function again.
///
/// # Safety
///
/// `once` is NULL or initialized; `routine` may be called with `parameter`; `context` is NULL or can
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn InitOnceExecuteOnce(
    once: *const InitOnce,
    routine: Option<InitRoutine>,
    parameter: *mut c_void,
    context: *mut usize,
) -> i32 {
    // SAFETY: the caller passes NULL or initialized memory, whose member is atomic.
    let (Some(shared), Some(routine)) = (unsafe { once.as_ref() }, routine) else {
        last_error::set(Status::ERROR_INVALID_PARAMETER);
        return 0;
    };
    let mut value = 0;
    let ended = match shared.begin(false) {
        Ok(Progress::Done { context }) => {
            value = context;
            Ok(())
        }
        Ok(Progress::Mine) => {
            // SAFETY: the caller permits the call. Nothing here has a destructor, so it may unwind.
            if unsafe { routine(once, parameter, &raw mut value) } == 0 {
                // The last error is that of the program's function.
                let _ = shared.complete(INIT_FAILED, 0);
                return 0;
            }
            let completed = shared.complete(0, value);
            if completed.is_err() {
                // The context is not valid. Other threads must not wait for ever.
                let _ = shared.complete(INIT_FAILED, 0);
            }
            completed
        }
        Err(status) => Err(status),
    };
    if let Err(status) = ended {
        last_error::set(status);
        return 0;
    }
    // SAFETY: the caller passes NULL or a writable `context`.
    unsafe { ptr::store(context, value) };
    1
}
