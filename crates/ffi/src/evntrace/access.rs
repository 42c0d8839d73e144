//! evntcons.h for controllers: access rights to a session, a provider or a group.
//!
//! An access list is returned as a self-relative security descriptor. The daemon holds the lists.
//! If none runs, the built-in list holds, and a change starts a daemon.

use std::ffi::c_void;

use traceweir::controller::Controller;
use traceweir::controller::access::{self, Rights, SecurityOperation, Sid};
use traceweir::{Guid, Result, Status};

use crate::{boundary, ptr};

/// Bytes of a SID before its subauthorities.
const SID_HEAD: usize = 8;
/// Bytes of a subauthority.
const SID_PART: usize = 4;

/// Sets or adds one entry of an object's access list; [`Controller::set_access`].
///
/// # Safety
///
/// Pointers are NULL or valid; the SID is as long as its count of subauthorities says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventAccessControl(
    object: *const Guid,
    operation: u32,
    account: *const c_void,
    rights: u32,
    allow: u8,
) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let (object, account) = unsafe { (ptr::copied(object), sid_at(account.cast())) };
        let (Some(object), Some(account), 0..4) = (object, account, operation) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let set = || {
            let mut daemon = Controller::find_or_start(None)?;
            daemon.set_access(object, SecurityOperation(operation), &account, Rights(rights), allow != 0)
        };
        outcome(set())
    })
}

/// Returns the access list that holds for an object, and its size; [`Controller::access`]. Returns
/// ERROR_MORE_DATA if the buffer is too small: callers pass a size of 0 to learn the size.
///
/// # Safety
///
/// Pointers are NULL or valid: `buffer` has as many bytes as `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventAccessQuery(object: *const Guid, buffer: *mut c_void, size: *mut u32) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let (Some(object), Some(room)) = (unsafe { (ptr::copied(object), ptr::copied(size)) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let list = match access_list(object) {
            Ok(list) => list,
            Err(error) => return error.status(),
        };
        // SAFETY: by the contract.
        unsafe { ptr::store(size, u32::try_from(list.len()).unwrap_or(u32::MAX)) };
        if (room as usize) < list.len() {
            return Status::ERROR_MORE_DATA;
        }
        if buffer.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        // SAFETY: the buffer has room for the list.
        unsafe { std::ptr::copy_nonoverlapping(list.as_ptr(), buffer.cast::<u8>(), list.len()) };
        Status::ERROR_SUCCESS
    })
}

/// Removes the access list of an object, so that the default holds again;
/// [`Controller::remove_access`].
///
/// # Safety
///
/// `object` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventAccessRemove(object: *const Guid) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let Some(object) = (unsafe { ptr::copied(object) }) else { return Status::ERROR_INVALID_PARAMETER };
        outcome(Controller::find_or_start(None).and_then(|mut daemon| daemon.remove_access(object)))
    })
}

fn outcome(result: Result<()>) -> Status {
    result.map_or_else(|error| error.status(), |()| Status::ERROR_SUCCESS)
}

/// Returns the bytes of the access list that holds for an object.
fn access_list(object: Guid) -> Result<Vec<u8>> {
    let list = match Controller::find(None)? {
        Some(mut daemon) => daemon.access(object)?,
        None => access::without_daemon(),
    };
    Ok(list.to_bytes()?)
}

/// Reads the SID at an address, if there is one.
///
/// # Safety
///
/// `at` is NULL, or a SID that is as long as its count of subauthorities says.
unsafe fn sid_at(at: *const u8) -> Option<Sid> {
    // SAFETY: by the contract. The revision shows that this is a SID, the count how long it is.
    let [revision, parts] = unsafe { ptr::copied(at.cast::<[u8; 2]>()) }?;
    let bytes = SID_PART.saturating_mul(parts.into()).saturating_add(SID_HEAD);
    if revision != 1 || bytes > Sid::MAX_SIZE {
        return None;
    }
    // SAFETY: by the contract.
    Sid::parse(unsafe { ptr::array(at, bytes) }?).ok()
}
