//! Privileges: the token of this process, which shows what its user may do.
//!
//! Root has all privileges, always enabled; other users have none. Programs enable a privilege
//! before they trace the kernel. The call that starts the session reports whether tracing is
//! permitted.

use std::ffi::c_void;

use traceweir::Status;
use traceweir_format::security::Sid;

use super::{PROCESS_TOKEN, to_bool};
use crate::text::{self, TextUnit};
use crate::{last_error, ptr};

/// Published names of privileges with their numbers.
const PRIVILEGES: [(&str, u32); 35] = [
    ("SeCreateTokenPrivilege", 2),
    ("SeAssignPrimaryTokenPrivilege", 3),
    ("SeLockMemoryPrivilege", 4),
    ("SeIncreaseQuotaPrivilege", 5),
    ("SeMachineAccountPrivilege", 6),
    ("SeTcbPrivilege", 7),
    ("SeSecurityPrivilege", 8),
    ("SeTakeOwnershipPrivilege", 9),
    ("SeLoadDriverPrivilege", 10),
    ("SeSystemProfilePrivilege", 11),
    ("SeSystemtimePrivilege", 12),
    ("SeProfileSingleProcessPrivilege", 13),
    ("SeIncreaseBasePriorityPrivilege", 14),
    ("SeCreatePagefilePrivilege", 15),
    ("SeCreatePermanentPrivilege", 16),
    ("SeBackupPrivilege", 17),
    ("SeRestorePrivilege", 18),
    ("SeShutdownPrivilege", 19),
    ("SeDebugPrivilege", 20),
    ("SeAuditPrivilege", 21),
    ("SeSystemEnvironmentPrivilege", 22),
    ("SeChangeNotifyPrivilege", 23),
    ("SeRemoteShutdownPrivilege", 24),
    ("SeUndockPrivilege", 25),
    ("SeSyncAgentPrivilege", 26),
    ("SeEnableDelegationPrivilege", 27),
    ("SeManageVolumePrivilege", 28),
    ("SeImpersonatePrivilege", 29),
    ("SeCreateGlobalPrivilege", 30),
    ("SeTrustedCredManAccessPrivilege", 31),
    ("SeRelabelPrivilege", 32),
    ("SeIncreaseWorkingSetPrivilege", 33),
    ("SeTimeZonePrivilege", 34),
    ("SeCreateSymbolicLinkPrivilege", 35),
    ("SeDelegateSessionUserImpersonatePrivilege", 36),
];

/// Attributes of a privilege: enabled by default, and enabled.
const ENABLED: u32 = 0x3;

// Classes of GetTokenInformation, and values of TOKEN_ELEVATION_TYPE.
const TOKEN_USER: u32 = 1;
const TOKEN_PRIVILEGES: u32 = 3;
const TOKEN_ELEVATION_TYPE: u32 = 18;
const TOKEN_ELEVATION: u32 = 20;
const ELEVATION_TYPE_DEFAULT: u32 = 1;
const ELEVATION_TYPE_FULL: u32 = 2;

/// The published structure LUID: the number of a privilege.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Luid {
    low: u32,
    high: i32,
}

fn user_id() -> u32 {
    // SAFETY: the function has no requirements.
    unsafe { libc::geteuid() }
}

fn is_root() -> bool {
    user_id() == 0
}

/// Opens the token of the current process. Handles of processes come from elsewhere, such as the
/// .NET runtime, so any handle except NULL stands for the current process.
///
/// # Safety
///
/// `token` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenProcessToken(
    process: *mut c_void,
    _access: u32,
    token: *mut *mut c_void,
) -> i32 {
    to_bool(|| {
        if token.is_null() {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        if process.is_null() {
            return Err(Status::ERROR_INVALID_HANDLE);
        }
        // SAFETY: the caller passes NULL or a writable `token`.
        unsafe { ptr::store(token, std::ptr::without_provenance_mut(PROCESS_TOKEN)) };
        Ok(())
    })
}

/// Stores the number of a privilege by its name. Fails with ERROR_NO_SUCH_PRIVILEGE for an unknown
/// name.
///
/// # Safety
///
/// `system` is not read; `name` is NULL or has a terminator; `luid` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LookupPrivilegeValueA(_system: *const u8, name: *const u8, luid: *mut Luid) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `look_up_privilege` requires no more.
    to_bool(|| unsafe { look_up_privilege(name, luid) })
}

/// Like [`LookupPrivilegeValueA`], in UTF-16.
///
/// # Safety
///
/// As [`LookupPrivilegeValueA`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LookupPrivilegeValueW(
    _system: *const u16,
    name: *const u16,
    luid: *mut Luid,
) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `look_up_privilege` requires no more.
    to_bool(|| unsafe { look_up_privilege(name, luid) })
}

/// Stores the number of a privilege by its name.
///
/// # Safety
///
/// As [`LookupPrivilegeValueA`].
unsafe fn look_up_privilege<U: TextUnit>(name: *const U, luid: *mut Luid) -> Result<(), Status> {
    // SAFETY: the caller passes NULL or a text with a terminator as `name`.
    let name = unsafe { text::read_name(name) }?.unwrap_or_default();
    if luid.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let privilege = PRIVILEGES.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name));
    let (_, low) = privilege.ok_or(Status::ERROR_NO_SUCH_PRIVILEGE)?;
    // SAFETY: the caller passes NULL or a writable `luid`.
    unsafe { ptr::store(luid, Luid { low: *low, high: 0 }) };
    Ok(())
}

/// Accepts a request to enable or disable privileges, and changes nothing. With valid arguments it
/// succeeds, and sets the last error: ERROR_NOT_ALL_ASSIGNED if the call names privileges that the
/// user does not have, else ERROR_SUCCESS. The privileges of root stay enabled, so `previous`
/// receives an empty list.
///
/// # Safety
///
/// `state` is NULL or TOKEN_PRIVILEGES; `previous` is NULL or has `length` bytes; `required_bytes`
/// is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdjustTokenPrivileges(
    token: *mut c_void,
    disable_all: i32,
    state: *const u32,
    length: u32,
    previous: *mut u32,
    required_bytes: *mut u32,
) -> i32 {
    to_bool(|| {
        if token.addr() != PROCESS_TOKEN {
            return Err(Status::ERROR_INVALID_HANDLE);
        }
        // SAFETY: the caller passes NULL or a readable `state`, which begins with its count.
        let count = unsafe { ptr::read_value(state) }.unwrap_or(0);
        if disable_all == 0 && state.is_null() {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        // An empty list consists of its count, a u32.
        if !previous.is_null() && length < 4 {
            return Err(Status::ERROR_INSUFFICIENT_BUFFER);
        }
        // SAFETY: the caller passes NULL or writable addresses.
        unsafe {
            ptr::store(previous, 0);
            ptr::store(required_bytes, 4);
        }
        let lacks_privilege = disable_all == 0 && count > 0 && !is_root();
        last_error::set(if lacks_privilege { Status::ERROR_NOT_ALL_ASSIGNED } else { Status::ERROR_SUCCESS });
        Ok(())
    })
}

/// Returns information about the token: user, privileges, or whether it is elevated.
///
/// # Safety
///
/// `buffer` is NULL or has `length` bytes; `required_bytes` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetTokenInformation(
    token: *mut c_void,
    class: u32,
    buffer: *mut c_void,
    length: u32,
    required_bytes: *mut u32,
) -> i32 {
    to_bool(|| {
        if token.addr() != PROCESS_TOKEN {
            return Err(Status::ERROR_INVALID_HANDLE);
        }
        let answer = match class {
            TOKEN_USER => encode_user(buffer.addr()),
            TOKEN_PRIVILEGES => encode_privileges(),
            TOKEN_ELEVATION_TYPE => {
                let kind = if is_root() { ELEVATION_TYPE_FULL } else { ELEVATION_TYPE_DEFAULT };
                kind.to_ne_bytes().to_vec()
            }
            TOKEN_ELEVATION => u32::from(is_root()).to_ne_bytes().to_vec(),
            _ => return Err(Status::ERROR_INVALID_PARAMETER),
        };
        // SAFETY: the caller passes NULL or a writable `required_bytes`.
        unsafe { ptr::store(required_bytes, u32::try_from(answer.len()).unwrap_or(u32::MAX)) };
        if buffer.is_null() || answer.len() > length as usize {
            return Err(Status::ERROR_INSUFFICIENT_BUFFER);
        }
        // SAFETY: the buffer has at least the bytes of the answer.
        unsafe { ptr::write_bytes(buffer.cast(), &answer) };
        Ok(())
    })
}

/// Encodes a TOKEN_USER for memory at `buffer`: the address of the SID, its attributes, and the
/// SID.
fn encode_user(buffer: usize) -> Vec<u8> {
    // The SID is at offset 16: after its address (8 bytes), its attributes (4) and padding (4).
    let mut answer = buffer.wrapping_add(16).to_ne_bytes().to_vec();
    answer.extend_from_slice(&[0; 8]);
    answer.extend_from_slice(&Sid::user(user_id()).to_bytes());
    answer
}

/// Encodes TOKEN_PRIVILEGES: the count, then the number and the attributes of each privilege.
fn encode_privileges() -> Vec<u8> {
    let privileges = if is_root() { &PRIVILEGES[..] } else { &[] };
    let mut answer = u32::try_from(privileges.len()).unwrap_or(0).to_ne_bytes().to_vec();
    for (_, low) in privileges {
        for word in [*low, 0, ENABLED] {
            answer.extend_from_slice(&word.to_ne_bytes());
        }
    }
    answer
}
