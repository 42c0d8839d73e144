//! Events, mutexes and semaphores; [`waits`] has the functions that wait for them and for threads.
//!
//! Objects with a name are shared only within the process. Security attributes, access rights and
//! inheritance have no effect.

pub(super) mod current;
pub(super) mod registry;
pub mod waits;

use std::ffi::c_void;

use traceweir::Status;

use self::current::{find_target, register_thread};
use self::registry::ObjectState;
use super::to_bool;
use crate::text::{self, TextUnit};
use crate::{boundary, last_error, ptr};

// Flags of CreateEventEx and CreateMutexEx.
const CREATE_EVENT_MANUAL_RESET: u32 = 0x1;
const CREATE_EVENT_INITIAL_SET: u32 = 0x2;
const CREATE_MUTEX_INITIAL_OWNER: u32 = 0x1;

/// The namespace of objects without another prefix.
const LOCAL_PREFIX: &str = "Local\\";

/// Runs a function that returns a handle. On failure it sets the last error and returns NULL.
pub(super) fn to_handle(body: impl FnOnce() -> Result<usize, Status>) -> *mut c_void {
    match boundary::catch_panic(Err(Status::ERROR_NOACCESS), body) {
        Ok(handle) => std::ptr::without_provenance_mut(handle),
        Err(status) => {
            last_error::set(status);
            std::ptr::null_mut()
        }
    }
}

/// Reads the name of an object. NULL and an empty name mean that it has none.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
unsafe fn read_object_name<U: TextUnit>(name: *const U) -> Result<Option<String>, Status> {
    // SAFETY: the caller passes NULL or a text with a terminator.
    let name = unsafe { text::read_name(name) }?.filter(|name| !name.is_empty());
    Ok(name.map(|name| name.strip_prefix(LOCAL_PREFIX).map(str::to_owned).unwrap_or(name)))
}

/// Creates an object, or opens the one that has the name. The last error is ERROR_ALREADY_EXISTS if
/// it existed, else 0.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
unsafe fn create<U: TextUnit>(state: Result<ObjectState, Status>, name: *const U) -> *mut c_void {
    to_handle(|| {
        // SAFETY: the caller passes NULL or a text with a terminator.
        let (handle, existed) = registry::create(state?, unsafe { read_object_name(name) }?)?;
        last_error::set(if existed { Status::ERROR_ALREADY_EXISTS } else { Status::ERROR_SUCCESS });
        Ok(handle)
    })
}

/// Opens the object that has the name, if `is_kind` holds for it.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
unsafe fn open<U: TextUnit>(name: *const U, is_kind: fn(&ObjectState) -> bool) -> *mut c_void {
    to_handle(|| {
        // SAFETY: the caller passes NULL or a text with a terminator.
        let name = unsafe { read_object_name(name) }?.ok_or(Status::ERROR_INVALID_PARAMETER)?;
        registry::open(&name, is_kind)
    })
}

fn new_event(flags: u32) -> Result<ObjectState, Status> {
    if flags & !(CREATE_EVENT_MANUAL_RESET | CREATE_EVENT_INITIAL_SET) != 0 {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    Ok(ObjectState::Event {
        is_manual: flags & CREATE_EVENT_MANUAL_RESET != 0,
        is_set: flags & CREATE_EVENT_INITIAL_SET != 0,
    })
}

fn event_flags(is_manual: i32, is_set: i32) -> u32 {
    let flag = |value: i32, flag: u32| if value != 0 { flag } else { 0 };
    flag(is_manual, CREATE_EVENT_MANUAL_RESET) | flag(is_set, CREATE_EVENT_INITIAL_SET)
}

fn new_mutex(flags: u32) -> Result<ObjectState, Status> {
    if flags & !CREATE_MUTEX_INITIAL_OWNER != 0 {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let owner = (flags & CREATE_MUTEX_INITIAL_OWNER != 0).then(register_thread);
    Ok(ObjectState::Mutex { owner, depth: owner.is_some().into(), is_abandoned: false })
}

fn new_semaphore(count: i32, maximum: i32) -> Result<ObjectState, Status> {
    if maximum <= 0 || !(0..=maximum).contains(&count) {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    Ok(ObjectState::Semaphore { count, maximum })
}

/// Creates an event. Returns NULL on failure.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateEventW(
    _security: *mut c_void,
    is_manual: i32,
    is_set: i32,
    name: *const u16,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_event(event_flags(is_manual, is_set)), name) }
}

/// Like [`CreateEventW`], in UTF-8.
///
/// # Safety
///
/// As [`CreateEventW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateEventA(
    _security: *mut c_void,
    is_manual: i32,
    is_set: i32,
    name: *const u8,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_event(event_flags(is_manual, is_set)), name) }
}

/// Like [`CreateEventW`], with flags.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateEventExW(
    _security: *mut c_void,
    name: *const u16,
    flags: u32,
    _access: u32,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_event(flags), name) }
}

/// Like [`CreateEventExW`], in UTF-8.
///
/// # Safety
///
/// As [`CreateEventExW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateEventExA(
    _security: *mut c_void,
    name: *const u8,
    flags: u32,
    _access: u32,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_event(flags), name) }
}

/// Opens an event by its name. Returns NULL on failure.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenEventW(_access: u32, _inherit: i32, name: *const u16) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { open(name, |state| matches!(state, ObjectState::Event { .. })) }
}

/// Like [`OpenEventW`], in UTF-8.
///
/// # Safety
///
/// As [`OpenEventW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenEventA(_access: u32, _inherit: i32, name: *const u8) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { open(name, |state| matches!(state, ObjectState::Event { .. })) }
}

/// Sets or resets an event.
fn set_event(event: *mut c_void, value: bool) -> Result<(), Status> {
    registry::with_state(find_target(event), |state| match state {
        ObjectState::Event { is_set, .. } => {
            *is_set = value;
            Ok(())
        }
        _ => Err(Status::ERROR_INVALID_HANDLE),
    })
}

/// Makes an event signaled: one wait completes, or all if the event is reset by hand.
#[unsafe(no_mangle)]
pub extern "C" fn SetEvent(event: *mut c_void) -> i32 {
    to_bool(|| set_event(event, true))
}

/// Makes an event not signaled.
#[unsafe(no_mangle)]
pub extern "C" fn ResetEvent(event: *mut c_void) -> i32 {
    to_bool(|| set_event(event, false))
}

/// Creates a mutex, which the calling thread owns if `is_owned`. A mutex that exists is only opened.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateMutexW(
    _security: *mut c_void,
    is_owned: i32,
    name: *const u16,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_mutex((is_owned != 0).into()), name) }
}

/// Like [`CreateMutexW`], in UTF-8.
///
/// # Safety
///
/// As [`CreateMutexW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateMutexA(_security: *mut c_void, is_owned: i32, name: *const u8) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_mutex((is_owned != 0).into()), name) }
}

/// Like [`CreateMutexW`], with flags.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateMutexExW(
    _security: *mut c_void,
    name: *const u16,
    flags: u32,
    _access: u32,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_mutex(flags), name) }
}

/// Like [`CreateMutexExW`], in UTF-8.
///
/// # Safety
///
/// As [`CreateMutexExW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateMutexExA(
    _security: *mut c_void,
    name: *const u8,
    flags: u32,
    _access: u32,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_mutex(flags), name) }
}

/// Opens a mutex by its name. Returns NULL on failure.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenMutexW(_access: u32, _inherit: i32, name: *const u16) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { open(name, |state| matches!(state, ObjectState::Mutex { .. })) }
}

/// Like [`OpenMutexW`], in UTF-8.
///
/// # Safety
///
/// As [`OpenMutexW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenMutexA(_access: u32, _inherit: i32, name: *const u8) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { open(name, |state| matches!(state, ObjectState::Mutex { .. })) }
}

/// Releases a mutex once. Fails with ERROR_NOT_OWNER in a thread that does not own it.
#[unsafe(no_mangle)]
pub extern "C" fn ReleaseMutex(mutex: *mut c_void) -> i32 {
    to_bool(|| {
        let thread = register_thread();
        registry::with_state(find_target(mutex), |state| match state {
            ObjectState::Mutex { owner, depth, .. } if *owner == Some(thread) => {
                *depth = depth.saturating_sub(1);
                if *depth == 0 {
                    *owner = None;
                }
                Ok(())
            }
            ObjectState::Mutex { .. } => Err(Status::ERROR_NOT_OWNER),
            _ => Err(Status::ERROR_INVALID_HANDLE),
        })
    })
}

/// Creates a semaphore. Returns NULL on failure.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateSemaphoreW(
    _security: *mut c_void,
    count: i32,
    maximum: i32,
    name: *const u16,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_semaphore(count, maximum), name) }
}

/// Like [`CreateSemaphoreW`], in UTF-8.
///
/// # Safety
///
/// As [`CreateSemaphoreW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateSemaphoreA(
    _security: *mut c_void,
    count: i32,
    maximum: i32,
    name: *const u8,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(new_semaphore(count, maximum), name) }
}

/// Like [`CreateSemaphoreW`]; there are no flags.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateSemaphoreExW(
    _security: *mut c_void,
    count: i32,
    maximum: i32,
    name: *const u16,
    flags: u32,
    _access: u32,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(refuse_flags(flags).and_then(|()| new_semaphore(count, maximum)), name) }
}

/// Like [`CreateSemaphoreExW`], in UTF-8.
///
/// # Safety
///
/// As [`CreateSemaphoreExW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateSemaphoreExA(
    _security: *mut c_void,
    count: i32,
    maximum: i32,
    name: *const u8,
    flags: u32,
    _access: u32,
) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { create(refuse_flags(flags).and_then(|()| new_semaphore(count, maximum)), name) }
}

/// Opens a semaphore by its name. Returns NULL on failure.
///
/// # Safety
///
/// `name` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenSemaphoreW(_access: u32, _inherit: i32, name: *const u16) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { open(name, |state| matches!(state, ObjectState::Semaphore { .. })) }
}

/// Like [`OpenSemaphoreW`], in UTF-8.
///
/// # Safety
///
/// As [`OpenSemaphoreW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenSemaphoreA(_access: u32, _inherit: i32, name: *const u8) -> *mut c_void {
    // SAFETY: the caller fulfils the `# Safety` section; the function requires no more.
    unsafe { open(name, |state| matches!(state, ObjectState::Semaphore { .. })) }
}

fn refuse_flags(flags: u32) -> Result<(), Status> {
    if flags == 0 { Ok(()) } else { Err(Status::ERROR_INVALID_PARAMETER) }
}

/// Increases the count of a semaphore. Fails with ERROR_TOO_MANY_POSTS, and changes nothing, if the
/// count would exceed its maximum.
///
/// # Safety
///
/// `previous` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ReleaseSemaphore(semaphore: *mut c_void, added: i32, previous: *mut i32) -> i32 {
    to_bool(|| {
        if added <= 0 {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        let before = registry::with_state(find_target(semaphore), |state| match state {
            ObjectState::Semaphore { count, maximum } => {
                let sum = count.checked_add(added).filter(|sum| sum <= maximum);
                Ok(std::mem::replace(count, sum.ok_or(Status::ERROR_TOO_MANY_POSTS)?))
            }
            _ => Err(Status::ERROR_INVALID_HANDLE),
        })?;
        // SAFETY: the caller passes NULL or a writable `previous`.
        unsafe { ptr::store(previous, before) };
        Ok(())
    })
}
