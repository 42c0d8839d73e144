//! Well-known SIDs, and the functions that measure and compare SIDs.

use std::ffi::c_void;

use traceweir::Status;
use traceweir_format::security::Sid;

use super::to_bool;
use crate::{boundary, ptr};

// Identifier authorities.
const NULL: u8 = 0;
const WORLD: u8 = 1;
const LOCAL: u8 = 2;
const CREATOR: u8 = 3;
const NT: u8 = 5;
const LABEL: u8 = 16;

/// Bytes of a SID without subauthorities.
const HEAD_BYTES: usize = 8;
const MAX_SUBAUTHORITIES: u8 = 15;

/// Subauthority of the built-in domain.
const BUILTIN: u32 = 32;

/// Returns authority and subauthorities of a WELL_KNOWN_SID_TYPE that is the same on all machines.
/// Source: Documented ("WELL_KNOWN_SID_TYPE", "Well-known SIDs").
#[rustfmt::skip]
fn find_well_known(kind: u32) -> Option<(u8, Vec<u32>)> {
    let offset = |first: u32| kind.saturating_sub(first);
    let builtin = |relative_id: u32| (NT, vec![BUILTIN, relative_id]);
    Some(match kind {
        0 => (NULL, vec![0]),
        1 => (WORLD, vec![0]),
        2 => (LOCAL, vec![0]),
        // The creator's owner and group, also on servers.
        3..=6 => (CREATOR, vec![offset(3)]),
        7 => (NT, vec![]),
        // Dialup, network, batch, interactive; then service, anonymous, proxy, controllers, self,
        // authenticated users, restricted code, terminal server, remote logon.
        8..=11 => (NT, vec![offset(7)]),
        12..=20 => (NT, vec![offset(6)]),
        // Local system, local service, network service.
        22..=24 => (NT, vec![offset(4)]),
        25 => (NT, vec![BUILTIN]),
        26..=34 => builtin(544_u32.saturating_add(offset(26))),
        35..=37 => builtin(554_u32.saturating_add(offset(35))),
        // Authentication packages: NTLM, digest, secure channel.
        51 => (NT, vec![64, 10]),
        52 => (NT, vec![64, 21]),
        53 => (NT, vec![64, 14]),
        // This organization, other organization.
        54 => (NT, vec![15]),
        55 => (NT, vec![1000]),
        56..=61 => builtin(557_u32.saturating_add(offset(56))),
        62 => builtin(568),
        63 => (NT, vec![17]),
        64 => builtin(569),
        // Integrity levels.
        65..=69 => (LABEL, vec![offset(65).saturating_mul(0x1000)]),
        _ => return None,
    })
}

/// Returns the last subauthority of a WELL_KNOWN_SID_TYPE that belongs to a domain.
fn find_relative_id(kind: u32) -> Option<u32> {
    let offset = |first: u32| kind.saturating_sub(first);
    Some(match kind {
        38..=40 => 500_u32.saturating_add(offset(38)),
        41..=49 => 512_u32.saturating_add(offset(41)),
        50 => 553,
        _ => return None,
    })
}

/// Returns the bytes of a SID.
fn build_sid(authority: u8, subauthorities: &[u32]) -> Vec<u8> {
    let count = u8::try_from(subauthorities.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![1, count, 0, 0, 0, 0, 0, authority];
    bytes.extend(subauthorities.iter().flat_map(|part| part.to_le_bytes()));
    bytes
}

/// Reads a SID.
///
/// # Safety
///
/// `sid` is NULL or a SID.
unsafe fn read_sid<'a>(sid: *const c_void) -> Option<&'a [u8]> {
    // SAFETY: the caller passes NULL or a SID, which begins with its revision and its count of
    // subauthorities.
    let [revision, count] = unsafe { ptr::read_value(sid.cast::<[u8; 2]>()) }?;
    if revision != 1 || count > MAX_SUBAUTHORITIES {
        return None;
    }
    // SAFETY: a SID has as many bytes as its count says.
    let bytes = unsafe {
        ptr::read_array(sid.cast::<u8>(), HEAD_BYTES.saturating_add(usize::from(count).saturating_mul(4)))
    }?;
    Sid::parse(bytes).is_ok().then_some(bytes)
}

/// Stores a well-known SID. `*size` is the size of the memory, and becomes the size of the SID. If
/// the memory is too small, the last error is ERROR_INSUFFICIENT_BUFFER. Accounts and groups of a
/// domain need the SID of the domain: this system has none of its own.
///
/// # Safety
///
/// `domain` is NULL or a SID; `size` is NULL or can be read and written; `sid` is NULL or has
/// `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateWellKnownSid(
    kind: u32,
    domain: *const c_void,
    sid: *mut c_void,
    size: *mut u32,
) -> i32 {
    to_bool(|| {
        // SAFETY: the caller passes NULL or a readable `size`.
        let capacity = unsafe { ptr::read_value(size) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
        let bytes = if let Some((authority, subauthorities)) = find_well_known(kind) {
            build_sid(authority, &subauthorities)
        } else {
            let relative_id = find_relative_id(kind).ok_or(Status::ERROR_INVALID_PARAMETER)?;
            // SAFETY: the caller passes NULL or a SID.
            let domain = unsafe { read_sid(domain) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
            let mut bytes = domain.to_vec();
            let count = bytes.get_mut(1).ok_or(Status::ERROR_INVALID_PARAMETER)?;
            if *count == MAX_SUBAUTHORITIES {
                return Err(Status::ERROR_INVALID_PARAMETER);
            }
            *count = count.saturating_add(1);
            bytes.extend(relative_id.to_le_bytes());
            bytes
        };
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        // SAFETY: `size` is not NULL, so it can be written.
        unsafe { ptr::store(size, length) };
        if sid.is_null() || capacity < length {
            return Err(Status::ERROR_INSUFFICIENT_BUFFER);
        }
        // SAFETY: the caller guarantees that the memory has `capacity` bytes.
        unsafe { ptr::write_bytes(sid.cast(), &bytes) };
        Ok(())
    })
}

/// Returns whether memory holds a SID of revision 1 with at most 15 subauthorities.
///
/// # Safety
///
/// `sid` is NULL, or the bytes that a SID would have can be read there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn IsValidSid(sid: *const c_void) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `read_sid` requires no more.
    boundary::catch_panic(0, || i32::from(unsafe { read_sid(sid) }.is_some()))
}

/// Returns the size of a SID in bytes; 0 for memory that holds no valid SID.
///
/// # Safety
///
/// `sid` is NULL or a SID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetLengthSid(sid: *const c_void) -> u32 {
    boundary::catch_panic(0, || {
        // SAFETY: the caller fulfils the `# Safety` section; `read_sid` requires no more.
        unsafe { read_sid(sid) }.map_or(0, |bytes| u32::try_from(bytes.len()).unwrap_or(0))
    })
}

/// Returns whether two SIDs are equal.
///
/// # Safety
///
/// Each of `first` and `second` is NULL or a SID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EqualSid(first: *const c_void, second: *const c_void) -> i32 {
    to_bool(|| {
        // SAFETY: the caller passes NULL or a SID.
        let first = unsafe { read_sid(first) }.ok_or(Status::ERROR_INVALID_SID)?;
        // SAFETY: as above.
        let second = unsafe { read_sid(second) }.ok_or(Status::ERROR_INVALID_SID)?;
        if first == second { Ok(()) } else { Err(Status::ERROR_SUCCESS) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(kind: u32) -> Option<String> {
        let (authority, subauthorities) = find_well_known(kind)?;
        Some(Sid::parse(&build_sid(authority, &subauthorities)).unwrap().to_string())
    }

    #[test]
    fn well_known_sids_have_their_documented_values() {
        for (kind, text) in [
            (0, "S-1-0-0"),
            (1, "S-1-1-0"),
            (2, "S-1-2-0"),
            (3, "S-1-3-0"),
            (6, "S-1-3-3"),
            (8, "S-1-5-1"),
            (11, "S-1-5-4"),
            (12, "S-1-5-6"),
            (17, "S-1-5-11"),
            (20, "S-1-5-14"),
            (22, "S-1-5-18"),
            (24, "S-1-5-20"),
            (26, "S-1-5-32-544"),
            (34, "S-1-5-32-552"),
            (35, "S-1-5-32-554"),
            (37, "S-1-5-32-556"),
            (56, "S-1-5-32-557"),
            (58, "S-1-5-32-559"),
            (61, "S-1-5-32-562"),
            (65, "S-1-16-0"),
            (69, "S-1-16-16384"),
        ] {
            assert_eq!(format(kind).as_deref(), Some(text), "{kind}");
        }
        assert_eq!(format(21), None);
        assert_eq!((find_relative_id(38), find_relative_id(49)), (Some(500), Some(520)));
    }
}
