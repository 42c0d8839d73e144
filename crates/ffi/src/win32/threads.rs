//! Threads that programs create, and their storage.
//!
//! A thread is a detached thread of Linux. Its end makes its object signaled, however it ends:
//! `current` notices it.

pub mod storage;

use std::ffi::{c_int, c_void};
use std::sync::{Arc, MutexGuard, PoisonError};

use traceweir::Status;

use super::objects::current::{self, find_target};
use super::objects::registry::{self, ObjectId, ObjectState, StartGate, StartState, Target, ThreadState};
use super::objects::to_handle;
use super::to_bool;
use crate::{boundary, last_error, ptr};

// Flags of CreateThread.
const CREATE_SUSPENDED: u32 = 0x4;
const STACK_SIZE_PARAM_IS_A_RESERVATION: u32 = 0x1_0000;

/// STILL_ACTIVE, the exit code of a thread that runs.
const STILL_ACTIVE: u32 = 259;

/// The smallest stack of a thread. Windows also reserves this much for smaller requests.
const MIN_STACK_BYTES: usize = 1 << 20;

/// The function that a thread runs. It may unwind, because [`ExitThread`] does.
pub type StartRoutine = unsafe extern "C-unwind" fn(*mut c_void) -> u32;

type RawStartRoutine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

unsafe extern "C" {
    // Unlike the declaration of the libc crate, it takes a function that may unwind.
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: RawStartRoutine,
        argument: *mut c_void,
    ) -> c_int;
}

unsafe extern "C-unwind" {
    // The thread ends by unwinding its stack.
    fn pthread_exit(result: *mut c_void) -> !;
}

/// The arguments of a new thread.
struct ThreadStart {
    routine: StartRoutine,
    parameter: *mut c_void,
    object: ObjectId,
    gate: Arc<StartGate>,
}

fn lock_gate(gate: &StartGate) -> MutexGuard<'_, StartState> {
    gate.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a detached thread. Returns `false` if the system refuses it.
///
/// # Safety
///
/// `routine` may be called with `argument` in another thread.
pub(super) unsafe fn spawn_detached(
    routine: RawStartRoutine,
    argument: *mut c_void,
    stack_bytes: Option<usize>,
) -> bool {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = 0;
    // SAFETY: the attributes are initialized before they are used, and destroyed once.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let has_size = stack_bytes
            .is_none_or(|bytes| libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), bytes) == 0);
        let is_started =
            has_size && pthread_create(&raw mut thread, attributes.as_ptr(), routine, argument) == 0;
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        is_started
    }
}

/// Runs in the new thread. Nothing here has a destructor while the program's function runs, so that
/// [`ExitThread`] can unwind.
extern "C-unwind" fn run_thread(argument: *mut c_void) -> *mut c_void {
    let (routine, parameter) = begin_thread(argument);
    // SAFETY: the program passed the function for this call.
    current::set_exit_code(unsafe { routine(parameter) });
    std::ptr::null_mut()
}

/// Reports the id of the new thread, and waits for its start.
#[inline(never)]
fn begin_thread(argument: *mut c_void) -> (StartRoutine, *mut c_void) {
    // SAFETY: `create_thread` passes a `Box` to exactly one thread.
    let start = *unsafe { Box::from_raw(argument.cast::<ThreadStart>()) };
    let mut state = lock_gate(&start.gate);
    // The creator waits for the id, and may hold the lock of the loader, which `set_object` takes. So
    // the id comes first.
    state.thread_id = Some(current::thread_id());
    start.gate.changed.notify_all();
    drop(state);
    current::set_object(start.object);
    let mut state = lock_gate(&start.gate);
    while !state.may_start {
        state = start.gate.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    drop(state);
    (start.routine, start.parameter)
}

/// Creates a thread. Returns its handle and its id.
///
/// # Safety
///
/// `routine` may be called with `parameter` in another thread.
unsafe fn create_thread(
    stack_bytes: usize,
    routine: Option<StartRoutine>,
    parameter: *mut c_void,
    flags: u32,
) -> Result<(usize, u32), Status> {
    if flags & !(CREATE_SUSPENDED | STACK_SIZE_PARAM_IS_A_RESERVATION) != 0 {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let routine = routine.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    let is_suspended = flags & CREATE_SUSPENDED != 0;
    let gate = Arc::new(StartGate::default());
    lock_gate(&gate).may_start = !is_suspended;
    let state = ThreadState { gate: is_suspended.then(|| Arc::clone(&gate)), ..ThreadState::default() };
    let object = registry::add_unnamed(ObjectState::Thread(state));
    let handle = registry::duplicate(Target::Object(object))?;
    let start = Box::new(ThreadStart { routine, parameter, object, gate: Arc::clone(&gate) });
    let argument = Box::into_raw(start);
    let stack_bytes = (stack_bytes != 0).then(|| stack_bytes.max(MIN_STACK_BYTES));
    // SAFETY: `run_thread` takes the box; the caller permits to call `routine`.
    if !unsafe { spawn_detached(run_thread, argument.cast(), stack_bytes) } {
        // SAFETY: no thread was started, so the box is still owned here.
        drop(unsafe { Box::from_raw(argument) });
        registry::close(handle);
        registry::remove_reference(object);
        return Err(Status::ERROR_NOT_ENOUGH_MEMORY);
    }
    let mut state = lock_gate(&gate);
    let id = loop {
        match state.thread_id {
            Some(id) => break id,
            None => state = gate.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    };
    drop(state);
    with_thread(Target::Handle(handle), |thread| thread.id = id)?;
    Ok((handle, id))
}

/// Reads or changes the state of a thread. Fails for other objects.
fn with_thread<T>(target: Target, change: impl FnOnce(&mut ThreadState) -> T) -> Result<T, Status> {
    registry::with_state(target, |state| match state {
        ObjectState::Thread(thread) => Ok(change(thread)),
        _ => Err(Status::ERROR_INVALID_HANDLE),
    })
}

/// Creates a thread. Returns NULL on failure, with the reason in the last error.
///
/// # Safety
///
/// `routine` may be called with `parameter` in another thread; `id` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateThread(
    _security: *mut c_void,
    stack_bytes: usize,
    routine: Option<StartRoutine>,
    parameter: *mut c_void,
    flags: u32,
    id: *mut u32,
) -> *mut c_void {
    to_handle(|| {
        // SAFETY: the caller fulfils the `# Safety` section; `create_thread` requires no more.
        let (handle, thread_id) = unsafe { create_thread(stack_bytes, routine, parameter, flags) }?;
        // SAFETY: the caller passes NULL or a writable `id`.
        unsafe { ptr::store(id, thread_id) };
        Ok(handle)
    })
}

/// Creates a thread, with the interface of the C library of Windows. Returns 0 on failure, with the
/// reason in `errno`.
///
/// # Safety
///
/// As [`CreateThread`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _beginthreadex(
    _security: *mut c_void,
    stack_bytes: u32,
    routine: Option<StartRoutine>,
    parameter: *mut c_void,
    flags: u32,
    id: *mut u32,
) -> usize {
    // SAFETY: the caller fulfils the `# Safety` section; `create_thread` requires no more.
    let create = || unsafe { create_thread(stack_bytes as usize, routine, parameter, flags) };
    match boundary::catch_panic(Err(Status::ERROR_NOACCESS), create) {
        Ok((handle, thread_id)) => {
            // SAFETY: the caller passes NULL or a writable `id`.
            unsafe { ptr::store(id, thread_id) };
            handle
        }
        Err(status) => {
            last_error::set(status);
            let is_invalid = status == Status::ERROR_INVALID_PARAMETER;
            let error = if is_invalid { libc::EINVAL } else { libc::EAGAIN };
            // SAFETY: the function returns the address of this thread's `errno`.
            unsafe { *libc::__errno_location() = error };
            0
        }
    }
}

/// Ends the calling thread with an exit code.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ExitThread(code: u32) -> ! {
    current::set_exit_code(code);
    // SAFETY: the frames of this library between the program and here have no destructors.
    unsafe { pthread_exit(std::ptr::null_mut()) }
}

/// Ends the calling thread with an exit code, like [`ExitThread`].
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _endthreadex(code: u32) -> ! {
    current::set_exit_code(code);
    // SAFETY: the frames of this library between the program and here have no destructors.
    unsafe { pthread_exit(std::ptr::null_mut()) }
}

/// Stores the exit code of a thread; STILL_ACTIVE while it runs.
///
/// # Safety
///
/// `code` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetExitCodeThread(thread: *mut c_void, code: *mut u32) -> i32 {
    to_bool(|| {
        if code.is_null() {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        let exit_code = with_thread(find_target(thread), |thread| thread.exit_code)?;
        // SAFETY: the caller passes NULL or a writable `code`.
        unsafe { ptr::store(code, exit_code.unwrap_or(STILL_ACTIVE)) };
        Ok(())
    })
}

/// Starts a thread that was created suspended. Returns how often the thread was suspended before: 1,
/// or 0 if it was not. Returns -1 on failure, with the reason in the last error.
#[unsafe(no_mangle)]
pub extern "C" fn ResumeThread(thread: *mut c_void) -> u32 {
    let resume = || {
        let gate = with_thread(find_target(thread), |thread| thread.gate.take())?;
        if let Some(gate) = &gate {
            lock_gate(gate).may_start = true;
            gate.changed.notify_all();
        }
        Ok(gate.is_some().into())
    };
    boundary::catch_panic(Err(Status::ERROR_NOACCESS), resume).unwrap_or_else(|status| {
        last_error::set(status);
        u32::MAX
    })
}

/// Returns the id of a thread. Returns 0 on failure, with the reason in the last error.
#[unsafe(no_mangle)]
pub extern "C" fn GetThreadId(thread: *mut c_void) -> u32 {
    let find = || with_thread(find_target(thread), |thread| thread.id);
    boundary::catch_panic(Err(Status::ERROR_NOACCESS), find).unwrap_or_else(|status| {
        last_error::set(status);
        0
    })
}

/// Returns the id of the calling thread, which is that of Linux.
#[unsafe(no_mangle)]
pub extern "C" fn GetCurrentThreadId() -> u32 {
    current::thread_id()
}

/// Returns the id of the process.
#[unsafe(no_mangle)]
pub extern "C" fn GetCurrentProcessId() -> u32 {
    std::process::id()
}
