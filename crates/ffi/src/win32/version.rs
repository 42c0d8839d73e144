//! The version of Windows that programs see: Windows 10.

use traceweir::Status;

use super::to_bool;
use crate::ptr;

const MAJOR: u32 = 10;
const MINOR: u32 = 0;
const BUILD: u32 = 19045;
const PLATFORM_NT: u32 = 2;
const PRODUCT_WORKSTATION: u8 = 1;

// Bits of type masks. The condition for bit n is at bits 3n to 3n + 2 of a condition mask.
const VER_MINORVERSION: u32 = 0x1;
const VER_MAJORVERSION: u32 = 0x2;
const VER_BUILDNUMBER: u32 = 0x4;
const VER_PLATFORMID: u32 = 0x8;
const VER_SERVICEPACKMINOR: u32 = 0x10;
const VER_SERVICEPACKMAJOR: u32 = 0x20;
const VER_SUITENAME: u32 = 0x40;
const VER_PRODUCT_TYPE: u32 = 0x80;

// Conditions.
const VER_EQUAL: u64 = 1;
const VER_GREATER: u64 = 2;
const VER_GREATER_EQUAL: u64 = 3;
const VER_LESS: u64 = 4;
const VER_LESS_EQUAL: u64 = 5;

/// The first five members of every OSVERSIONINFO structure.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct VersionHead {
    size: u32,
    major: u32,
    minor: u32,
    build: u32,
    platform: u32,
}

/// The members of OSVERSIONINFOEX after the text of 128 characters.
#[derive(Clone, Copy)]
#[repr(C)]
struct VersionTail {
    service_pack_major: u16,
    service_pack_minor: u16,
    suite: u16,
    product: u8,
    reserved: u8,
}

const TAIL: VersionTail = VersionTail {
    service_pack_major: 0,
    service_pack_minor: 0,
    suite: 0,
    product: PRODUCT_WORKSTATION,
    reserved: 0,
};

/// The number of characters of the text between head and tail.
const TEXT_CHARACTERS: usize = 128;

/// Adds a condition for some members to a mask.
#[unsafe(no_mangle)]
pub extern "C" fn VerSetConditionMask(mask: u64, types: u32, condition: u8) -> u64 {
    (0_u32..8)
        .filter(|bit| types & (1 << bit) != 0)
        .fold(mask, |mask, bit| mask | u64::from(condition & 7).wrapping_shl(bit.saturating_mul(3)))
}

/// Compares members of a version with the version of this system. If the condition does not hold,
/// the last error is ERROR_OLD_WIN_VERSION.
///
/// # Safety
///
/// `version` is NULL or an OSVERSIONINFOEXA.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VerifyVersionInfoA(version: *const VersionHead, types: u32, conditions: u64) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `verify` requires no more.
    to_bool(|| unsafe { verify(version, TEXT_CHARACTERS, types, conditions) })
}

/// Like [`VerifyVersionInfoA`], with an OSVERSIONINFOEXW.
///
/// # Safety
///
/// `version` is NULL or an OSVERSIONINFOEXW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VerifyVersionInfoW(version: *const VersionHead, types: u32, conditions: u64) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `verify` requires no more.
    to_bool(|| unsafe { verify(version, 2 * TEXT_CHARACTERS, types, conditions) })
}

/// Compares the members that `types` selects with the version of this system.
///
/// # Safety
///
/// `version` is NULL, or a head, `text_bytes` bytes and a tail can be read there.
unsafe fn verify(
    version: *const VersionHead,
    text_bytes: usize,
    types: u32,
    conditions: u64,
) -> Result<(), Status> {
    // SAFETY: the caller passes NULL or a readable `version`.
    let given_version = unsafe { ptr::read_value(version) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    let tail = version.wrapping_byte_add(size_of::<VersionHead>().saturating_add(text_bytes));
    // SAFETY: the caller guarantees that a tail can be read after the text.
    let tail =
        unsafe { ptr::read_value(tail.cast::<VersionTail>()) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    if types == 0 || types > 0xFF {
        return Err(Status::ERROR_BAD_ARGUMENTS);
    }
    let condition = |bit: u32| conditions.wrapping_shr(bit.trailing_zeros().saturating_mul(3)) & 7;
    // The selected parts of a version number are compared as one number, with the condition of the
    // first: a part counts only if the parts before it are equal. Each tuple has the bit of a part,
    // our value and the caller's value.
    let parts = [
        (VER_MAJORVERSION, MAJOR, given_version.major),
        (VER_MINORVERSION, MINOR, given_version.minor),
        (VER_SERVICEPACKMAJOR, 0, u32::from(tail.service_pack_major)),
        (VER_SERVICEPACKMINOR, 0, u32::from(tail.service_pack_minor)),
    ];
    let tested: Vec<_> = parts.into_iter().filter(|(bit, ..)| types & bit != 0).collect();
    let mut holds = true;
    if let Some((first, ..)) = tested.first() {
        let ours: Vec<u32> = tested.iter().map(|(_, ours, _)| *ours).collect();
        let theirs: Vec<u32> = tested.iter().map(|(.., theirs)| *theirs).collect();
        holds &= compare(condition(*first), &ours, &theirs)?;
    }
    let single = [
        (VER_BUILDNUMBER, BUILD, given_version.build),
        (VER_PLATFORMID, PLATFORM_NT, given_version.platform),
        (VER_PRODUCT_TYPE, u32::from(PRODUCT_WORKSTATION), u32::from(tail.product)),
    ];
    for (bit, ours, theirs) in single.into_iter().filter(|(bit, ..)| types & bit != 0) {
        holds &= compare(condition(bit), &ours, &theirs)?;
    }
    // This system has no suites.
    holds &= types & VER_SUITENAME == 0 || tail.suite == 0;
    if holds { Ok(()) } else { Err(Status::ERROR_OLD_WIN_VERSION) }
}

/// Returns whether `ours` and `theirs` fulfil a condition.
fn compare<T: Ord + ?Sized>(condition: u64, ours: &T, theirs: &T) -> Result<bool, Status> {
    Ok(match condition {
        VER_EQUAL => ours == theirs,
        VER_GREATER => ours > theirs,
        VER_GREATER_EQUAL => ours >= theirs,
        VER_LESS => ours < theirs,
        VER_LESS_EQUAL => ours <= theirs,
        _ => return Err(Status::ERROR_BAD_ARGUMENTS),
    })
}

/// Fills an OSVERSIONINFOW or OSVERSIONINFOEXW and returns STATUS_SUCCESS. Returns
/// STATUS_INVALID_PARAMETER for NULL.
///
/// # Safety
///
/// `version` is NULL or a structure with as many bytes as its first member says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlGetVersion(version: *mut VersionHead) -> i32 {
    // SAFETY: the caller passes NULL or a readable `version`.
    let Some(VersionHead { size, .. }) = (unsafe { ptr::read_value(version) }) else {
        return 0xC000_000D_u32.cast_signed();
    };
    let head = VersionHead { size, major: MAJOR, minor: MINOR, build: BUILD, platform: PLATFORM_NT };
    // SAFETY: the caller passes NULL or a writable `version`.
    unsafe { ptr::store(version, head) };
    let text_end = size_of::<VersionHead>().saturating_add(2 * TEXT_CHARACTERS);
    // SAFETY: every such structure has the text.
    unsafe { ptr::store(version.wrapping_byte_add(size_of::<VersionHead>()).cast::<u16>(), 0) };
    if size as usize >= text_end.saturating_add(size_of::<VersionTail>()) {
        // SAFETY: the size of the structure includes the tail.
        unsafe { ptr::store(version.wrapping_byte_add(text_end).cast::<VersionTail>(), TAIL) };
    }
    0
}

/// Fills an OSVERSIONINFOW or OSVERSIONINFOEXW. Fails with ERROR_INSUFFICIENT_BUFFER if its size is
/// that of neither.
///
/// # Safety
///
/// `version` is NULL or a structure with as many bytes as its first member says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetVersionExW(version: *mut VersionHead) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `fill` requires no more.
    to_bool(|| unsafe { fill(version, 2 * TEXT_CHARACTERS) })
}

/// Like [`GetVersionExW`], for an OSVERSIONINFOA or OSVERSIONINFOEXA.
///
/// # Safety
///
/// As [`GetVersionExW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetVersionExA(version: *mut VersionHead) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section; `fill` requires no more.
    to_bool(|| unsafe { fill(version, TEXT_CHARACTERS) })
}

/// Fills a structure whose text has `text_bytes` bytes.
///
/// # Safety
///
/// As [`GetVersionExW`].
unsafe fn fill(version: *mut VersionHead, text_bytes: usize) -> Result<(), Status> {
    // SAFETY: the caller passes NULL or a readable `version`.
    let VersionHead { size, .. } =
        unsafe { ptr::read_value(version) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    let text_end = size_of::<VersionHead>().saturating_add(text_bytes);
    let has_tail = size as usize == text_end.saturating_add(size_of::<VersionTail>());
    if size as usize != text_end && !has_tail {
        return Err(Status::ERROR_INSUFFICIENT_BUFFER);
    }
    let head = VersionHead { size, major: MAJOR, minor: MINOR, build: BUILD, platform: PLATFORM_NT };
    // SAFETY: the structure has at least the head and the text, which becomes empty.
    unsafe {
        ptr::store(version, head);
        ptr::store(version.wrapping_byte_add(size_of::<VersionHead>()).cast::<u16>(), 0);
    }
    if has_tail {
        // SAFETY: the size of the structure includes the tail.
        unsafe { ptr::store(version.wrapping_byte_add(text_end).cast::<VersionTail>(), TAIL) };
    }
    Ok(())
}
