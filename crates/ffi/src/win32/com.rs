//! COM: `CoInitializeEx`, `CoCreateInstance`, and the strings and variants that programs pass to
//! objects.
//!
//! There are no COM classes on this system. A program that can do without them sees
//! REGDB_E_CLASSNOTREG when it creates an object.

use std::cell::Cell;
use std::ffi::c_void;

use traceweir::Guid;

use super::{E_INVALIDARG, S_FALSE, S_OK};
use crate::held::HeldMemory;
use crate::{boundary, ptr};

// HRESULTs.
const REGDB_E_CLASSNOTREG: i32 = 0x8004_0154_u32.cast_signed();
const E_POINTER: i32 = 0x8000_4003_u32.cast_signed();
const DISP_E_BADVARTYPE: i32 = 0x8002_0008_u32.cast_signed();

/// Strings that programs have not freed yet. A string is preceded by its length in bytes.
static STRINGS: HeldMemory = HeldMemory::new();

/// Bytes of the length before a string.
const LENGTH_BYTES: usize = size_of::<u32>();
/// Bytes of the length and of the terminator.
const EXTRA_BYTES: usize = LENGTH_BYTES + size_of::<u16>();

thread_local! {
    /// How often this thread has initialised COM without ending it.
    static INITIALIZED: Cell<u32> = const { Cell::new(0) };
}

/// Initialises COM for the calling thread. Returns S_FALSE if the thread has done this before.
#[unsafe(no_mangle)]
pub extern "C" fn CoInitializeEx(reserved: *mut c_void, _model: u32) -> i32 {
    if !reserved.is_null() {
        return E_INVALIDARG;
    }
    let before = INITIALIZED.replace(INITIALIZED.get().saturating_add(1));
    if before == 0 { S_OK } else { S_FALSE }
}

/// Ends the use of COM by the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn CoUninitialize() {
    INITIALIZED.set(INITIALIZED.get().saturating_sub(1));
}

/// Reports that a class is not registered, as all classes are on this system.
///
/// # Safety
///
/// `object` is NULL or can be written. The other addresses are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CoCreateInstance(
    _class: *const Guid,
    _outer: *mut c_void,
    _context: u32,
    _interface: *const Guid,
    object: *mut *mut c_void,
) -> i32 {
    if object.is_null() {
        return E_POINTER;
    }
    // SAFETY: the caller passes NULL or a writable `object`.
    unsafe { ptr::store(object, std::ptr::null_mut()) };
    REGDB_E_CLASSNOTREG
}

/// Allocates a string of `units` UTF-16 units, and copies the units at `from` unless it is NULL.
///
/// # Safety
///
/// `from` is NULL or has `units` units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SysAllocStringLen(from: *const u16, units: u32) -> *mut u16 {
    boundary::catch_panic(std::ptr::null_mut(), || {
        let Some(bytes) = units.checked_mul(2) else {
            return std::ptr::null_mut();
        };
        let Some(memory) = STRINGS.allocate((bytes as usize).saturating_add(EXTRA_BYTES)) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the memory has room for the length, the units and a terminator, which is zero.
        unsafe {
            ptr::store(memory.cast::<u32>(), bytes);
            let text = memory.wrapping_byte_add(LENGTH_BYTES).cast::<u16>();
            if !from.is_null() {
                std::ptr::copy_nonoverlapping(from.cast::<u8>(), text.cast::<u8>(), bytes as usize);
            }
            text
        }
    })
}

/// Allocates a copy of a text. Returns NULL for NULL.
///
/// # Safety
///
/// `from` is NULL or has a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SysAllocString(from: *const u16) -> *mut u16 {
    if from.is_null() {
        return std::ptr::null_mut();
    }
    let mut units = 0_u32;
    // SAFETY: the caller guarantees a terminator, and units up to it.
    while unsafe { from.wrapping_add(units as usize).read_unaligned() } != 0 {
        units = units.saturating_add(1);
    }
    // SAFETY: `from` has `units` units.
    unsafe { SysAllocStringLen(from, units) }
}

/// Frees a string. Does nothing for NULL, or for an address that is not that of a string.
#[unsafe(no_mangle)]
pub extern "C" fn SysFreeString(string: *mut u16) {
    boundary::catch_panic((), || {
        if !string.is_null() {
            STRINGS.free(string.cast::<c_void>().wrapping_byte_sub(LENGTH_BYTES));
        }
    });
}

/// Returns the length of a string in bytes, or 0 for NULL.
///
/// # Safety
///
/// `string` is NULL or a string that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SysStringByteLen(string: *const u16) -> u32 {
    if string.is_null() {
        return 0;
    }
    // SAFETY: the length precedes the string.
    unsafe { ptr::read_value(string.cast::<u32>().wrapping_byte_sub(LENGTH_BYTES)) }.unwrap_or_default()
}

/// Returns the length of a string in UTF-16 units, or 0 for NULL.
///
/// # Safety
///
/// As [`SysStringByteLen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SysStringLen(string: *const u16) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section.
    unsafe { SysStringByteLen(string) / 2 }
}

/// The first 16 bytes of a VARIANT: type and value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VariantHead {
    kind: u16,
    reserved: [u16; 3],
    value: u64,
}

const VT_EMPTY: u16 = 0;
const VT_BSTR: u16 = 8;
/// Types up to this one, except VT_BSTR, VT_DISPATCH, VT_VARIANT and VT_UNKNOWN, own no memory.
const VT_UINT: u16 = 23;

/// Makes a variant empty.
///
/// # Safety
///
/// `variant` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VariantInit(variant: *mut VariantHead) {
    // SAFETY: the caller passes NULL or a writable `variant`.
    unsafe { ptr::store(variant, VariantHead { kind: VT_EMPTY, reserved: [0; 3], value: 0 }) };
}

/// Frees the string of a variant, if it has one, and makes the variant empty. Returns
/// DISP_E_BADVARTYPE for objects and arrays, which do not exist here.
///
/// # Safety
///
/// `variant` is NULL or can be read and written; if it is a string, the string was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VariantClear(variant: *mut VariantHead) -> i32 {
    // SAFETY: the caller passes NULL or a readable `variant`.
    let Some(head) = (unsafe { ptr::read_value(variant) }) else {
        return E_INVALIDARG;
    };
    match head.kind {
        VT_BSTR => {
            let address = usize::try_from(head.value).unwrap_or_default();
            SysFreeString(std::ptr::with_exposed_provenance_mut(address));
        }
        // VT_DISPATCH, VT_VARIANT, VT_UNKNOWN.
        9 | 12 | 13 => return DISP_E_BADVARTYPE,
        0..=VT_UINT => {}
        _ => return DISP_E_BADVARTYPE,
    }
    // SAFETY: the caller passes a writable `variant`.
    unsafe { VariantInit(variant) };
    S_OK
}
