//! evntcons.h for controllers: access rights to a session, a provider or a group.
//!
//! EventAccessQuery returns an access list as a self-relative security descriptor. The daemon
//! stores the lists. If no daemon runs, a query returns the built-in list, and a change starts a
//! daemon.

use std::ffi::c_void;

use traceweir::controller::Controller;
use traceweir::controller::access::{self, Rights, SecurityOperation, Sid};
use traceweir::{Guid, Result, Status};

use crate::boundary::IntoStatus;
use crate::{boundary, ptr};

/// Bytes of a SID before its subauthorities.
const SID_HEADER_BYTES: usize = 8;
/// Bytes of a subauthority.
const SUBAUTHORITY_BYTES: usize = 4;

/// Sets or adds one entry of an object's access list, like [`Controller::set_access`].
///
/// # Safety
///
/// Pointers are NULL or valid; the SID has as many subauthorities as its count says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventAccessControl(
    object: *const Guid,
    operation: u32,
    account: *const c_void,
    rights: u32,
    allow: u8,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `object` and `account` are NULL or valid.
        let (object, account) = unsafe { (ptr::read_value(object), read_sid(account.cast())) };
        // `0..4`: the operations of EVENTSECURITYOPERATION.
        let (Some(object), Some(account), 0..4) = (object, account, operation) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let set_access = || {
            let mut daemon = Controller::find_or_start(None)?;
            daemon.set_access(object, SecurityOperation(operation), &account, Rights(rights), allow != 0)
        };
        set_access().into_status()
    })
}

/// Returns the access list that applies to an object, and its size, like [`Controller::access`].
/// Returns ERROR_MORE_DATA if the buffer is too small: callers pass a size of 0 to query the size.
///
/// # Safety
///
/// Pointers are NULL or valid: `buffer` has as many bytes as `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventAccessQuery(object: *const Guid, buffer: *mut c_void, size: *mut u32) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or readable values as `object` and `size`.
        let (Some(object), Some(capacity)) = (unsafe { (ptr::read_value(object), ptr::read_value(size)) })
        else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let list = match read_access_list(object) {
            Ok(list) => list,
            Err(error) => return error.status(),
        };
        // SAFETY: the caller passes NULL or a writable `size`.
        unsafe { ptr::store(size, u32::try_from(list.len()).unwrap_or(u32::MAX)) };
        if (capacity as usize) < list.len() {
            return Status::ERROR_MORE_DATA;
        }
        if buffer.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        // SAFETY: `buffer` is not NULL and has at least `list.len()` bytes.
        unsafe { std::ptr::copy_nonoverlapping(list.as_ptr(), buffer.cast::<u8>(), list.len()) };
        Status::ERROR_SUCCESS
    })
}

/// Removes the access list of an object, so that the default list applies again, like
/// [`Controller::remove_access`].
///
/// # Safety
///
/// `object` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventAccessRemove(object: *const Guid) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `object`.
        let Some(object) = (unsafe { ptr::read_value(object) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        Controller::find_or_start(None).and_then(|mut daemon| daemon.remove_access(object)).into_status()
    })
}

/// Returns the bytes of the access list that applies to an object.
fn read_access_list(object: Guid) -> Result<Vec<u8>> {
    let list = match Controller::find(None)? {
        Some(mut daemon) => daemon.access(object)?,
        None => access::without_daemon(),
    };
    Ok(list.to_bytes()?)
}

/// Reads the SID at an address. Returns `None` for NULL and for bytes that are not a SID.
///
/// # Safety
///
/// `at` is NULL, or a SID with as many subauthorities as its count says.
unsafe fn read_sid(at: *const u8) -> Option<Sid> {
    // SAFETY: the caller passes NULL or a SID, which begins with its revision and its count of
    // subauthorities.
    let [revision, subauthorities] = unsafe { ptr::read_value(at.cast::<[u8; 2]>()) }?;
    let bytes = SUBAUTHORITY_BYTES.saturating_mul(subauthorities.into()).saturating_add(SID_HEADER_BYTES);
    if revision != 1 || bytes > Sid::MAX_SIZE {
        return None;
    }
    // SAFETY: the caller guarantees a SID with this count of subauthorities, which has `bytes`
    // bytes.
    Sid::parse(unsafe { ptr::read_array(at, bytes) }?).ok()
}
