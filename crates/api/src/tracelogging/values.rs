//! Values as the bytes they have in an event.
//!
//! ```text
//!   scalar            its bytes
//!   slice             u16 count of elements │ their bytes      65,535 elements at most
//!   counted           u16 count of bytes │ the bytes           65,535 bytes at most
//!   until a zero      units up to the first zero │ a zero      65,535 units at most
//! ```
//!
//! `unsafe` is allowed here for one thing: reading a value as bytes. [`Plain`] marks the types for
//! which that is sound.
#![allow(unsafe_code)]

use std::time::SystemTime;

use traceweir_format::Guid;
use traceweir_format::time::{UNITS_PER_SECOND, UNIX_EPOCH_AS_FILETIME};

/// Maximum of the 16-bit counts of elements and bytes.
const MAX_COUNT: usize = 0xFFFF;
/// The last FILETIME with a calendar date: the end of the year 30827.
const LAST_FILETIME: i64 = 0x7FFF_35F4_F06C_7FFF;

/// A value that consists of its bytes only.
///
/// # Safety
///
/// Every byte of a value is initialised: there is no padding.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($of:ty),*) => {
        // SAFETY: primitive types, and a structure whose fields leave no gap between them.
        $(unsafe impl Plain for $of {})*
    };
}

plain!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64, bool, Guid);

// SAFETY: elements lie side by side.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Two values without padding between them.
#[repr(C, packed)]
#[derive(Clone, Copy)]
pub struct Packed<A, B>(pub A, pub B);

// SAFETY: packed, so there is no gap between the two.
unsafe impl<A: Plain, B: Plain> Plain for Packed<A, B> {}

/// Returns the bytes of a value.
#[inline(always)]
pub fn bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: a value of as many initialised bytes (`Plain`), borrowed as long as the result.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

#[inline(always)]
fn all_bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: initialised bytes without padding (`Plain`), side by side, borrowed as long as the
    // result.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

#[inline(always)]
fn take_prefix<T>(values: &[T], max_count: usize) -> &[T] {
    values.get(..max_count).unwrap_or(values)
}

/// Returns the number of elements of a slice that are written.
#[inline(always)]
pub fn slice_count<T>(values: &[T]) -> u16 {
    values.len().min(MAX_COUNT) as u16
}

/// Returns the bytes of the elements of a slice that are written.
#[inline(always)]
pub fn elements<T: Plain>(values: &[T]) -> &[u8] {
    all_bytes(take_prefix(values, MAX_COUNT))
}

/// Returns the number of bytes of counted values that are written: whole values only.
#[inline(always)]
pub fn counted_size<T>(values: &[T]) -> u16 {
    size_of_val(take_prefix(values, MAX_COUNT / size_of::<T>().max(1))) as u16
}

/// Returns the bytes of counted values that are written.
#[inline(always)]
pub fn counted<T: Plain>(values: &[T]) -> &[u8] {
    all_bytes(take_prefix(values, MAX_COUNT / size_of::<T>().max(1)))
}

/// Returns the bytes of values up to the first zero.
#[inline]
pub fn until_zero<T: Plain + Default + PartialEq>(values: &[T]) -> &[u8] {
    let values = take_prefix(values, MAX_COUNT);
    let zero = T::default();
    let end = values.iter().position(|v| *v == zero).unwrap_or(values.len());
    all_bytes(take_prefix(values, end))
}

/// Returns the bytes of a SID, by its count of subauthorities.
///
/// # Panics
///
/// Panics if there are fewer bytes, as documented.
#[inline]
#[track_caller]
pub fn sid(value: &[u8]) -> &[u8] {
    let size = value.get(1).map_or(usize::MAX, |&count| 8 + 4 * usize::from(count));
    value.get(..size).expect("a SID has 8 bytes and 4 for each subauthority: here are fewer")
}

/// Converts seconds since 1970 to FILETIME.
#[inline]
#[must_use]
pub const fn filetime_from_time32(seconds: &i32) -> i64 {
    filetime_from_time64(&(*seconds as i64))
}

/// Converts 64-bit seconds since 1970 to FILETIME, limited to the years 1601 to 30827.
#[inline]
#[must_use]
pub const fn filetime_from_time64(seconds: &i64) -> i64 {
    clamp_filetime(*seconds as i128 * UNITS_PER_SECOND as i128)
}

/// Converts a time to FILETIME, rounded down and limited to the years 1601 to 30827.
#[inline]
#[must_use]
pub fn filetime_from_systemtime(time: &SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => filetime_from_duration_after_1970(after),
        Err(before) => filetime_from_duration_before_1970(before.duration()),
    }
}

/// Converts a duration after 1970 to FILETIME.
#[must_use]
pub const fn filetime_from_duration_after_1970(duration: std::time::Duration) -> i64 {
    clamp_filetime((duration.as_nanos() / 100) as i128)
}

/// Converts a duration before 1970 to FILETIME, rounded down.
#[must_use]
pub const fn filetime_from_duration_before_1970(duration: std::time::Duration) -> i64 {
    clamp_filetime(-(duration.as_nanos().div_ceil(100) as i128))
}

/// Converts units of 100 ns since 1970, limited to the valid range.
const fn clamp_filetime(units: i128) -> i64 {
    let units = units + UNIX_EPOCH_AS_FILETIME as i128;
    if units < 0 {
        0
    } else if units > LAST_FILETIME as i128 {
        LAST_FILETIME
    } else {
        units as i64
    }
}

/// A GUID type: this crate's own, or one of a crate that re-exports the macros.
pub trait Id: Plain + From<Guid> + Into<Guid> + Send + Sync + 'static {
    /// Whether `set_information` of providers with ids of this type sets information. If not, it
    /// returns HRESULT_FROM_WIN32(ERROR_NOT_SUPPORTED).
    const CAN_SET_INFORMATION: bool = true;
}

impl Id for Guid {}

/// A value that can be passed as an activity id.
pub trait ActivityId {
    /// Returns the id as a GUID.
    fn guid(&self) -> Guid;
}

impl ActivityId for Guid {
    #[inline(always)]
    fn guid(&self) -> Guid {
        *self
    }
}

impl ActivityId for [u8; 16] {
    #[inline(always)]
    fn guid(&self) -> Guid {
        Guid::from_bytes(self)
    }
}

impl<T: ActivityId> ActivityId for &T {
    #[inline(always)]
    fn guid(&self) -> Guid {
        T::guid(self)
    }
}

/// Returns the activity id that was passed.
#[inline(always)]
pub fn activity<T: ActivityId>(id: &T) -> Guid {
    id.guid()
}

/// Appends a value that may contain padding, whose bytes are arbitrary.
pub(super) fn append_any<T: Copy>(to: &mut Vec<u8>, value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    to.extend((0..size_of::<T>()).map(|at| {
        // SAFETY: inside the value, which is borrowed. A volatile read returns the memory's
        // contents, also where nothing was written.
        unsafe { start.add(at).read_volatile() }
    }));
}
