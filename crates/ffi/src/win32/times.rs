//! Conversions between FILETIME and SYSTEMTIME: `FileTimeToSystemTime`, `SystemTimeToFileTime`.

use traceweir::Status;
use traceweir_format::time::{Civil, FileTime};

use super::to_bool;
use crate::ptr;

/// A SYSTEMTIME: a date and time of day.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SystemTime {
    year: u16,
    month: u16,
    day_of_week: u16,
    day: u16,
    hour: u16,
    minute: u16,
    second: u16,
    milliseconds: u16,
}

/// 100 ns units in a millisecond.
const UNITS_PER_MILLISECOND: u32 = 10_000;
/// 100 ns units in a day.
const UNITS_PER_DAY: i64 = 864_000_000_000;
/// The years that a SYSTEMTIME can have.
const YEARS: std::ops::RangeInclusive<u16> = 1601..=30827;

/// Converts a time, unless it is negative or its year is too high.
fn to_system_time(time: FileTime) -> Option<SystemTime> {
    let civil = time.civil();
    let year = u16::try_from(civil.year).ok().filter(|year| YEARS.contains(year))?;
    // 1601 began with a Monday.
    let day_of_week = time.0.div_euclid(UNITS_PER_DAY).saturating_add(1).rem_euclid(7);
    Some(SystemTime {
        year,
        month: civil.month.into(),
        day_of_week: u16::try_from(day_of_week).ok()?,
        day: civil.day.into(),
        hour: civil.hour.into(),
        minute: civil.minute.into(),
        second: civil.second.into(),
        milliseconds: u16::try_from(civil.units / UNITS_PER_MILLISECOND).ok()?,
    })
}

/// Converts a date and time of day, if it exists. The day of the week is not used.
fn to_file_time(parts: &SystemTime) -> Option<FileTime> {
    let is_valid = YEARS.contains(&parts.year)
        && parts.hour < 24
        && parts.minute < 60
        && parts.second < 60
        && parts.milliseconds < 1000;
    if !is_valid {
        return None;
    }
    FileTime::from_civil(&Civil {
        year: parts.year.into(),
        month: u8::try_from(parts.month).ok()?,
        day: u8::try_from(parts.day).ok()?,
        hour: u8::try_from(parts.hour).ok()?,
        minute: u8::try_from(parts.minute).ok()?,
        second: u8::try_from(parts.second).ok()?,
        units: u32::from(parts.milliseconds).saturating_mul(UNITS_PER_MILLISECOND),
    })
}

/// Converts a FILETIME, given as two numbers of 32 bits, to a date and time of day in UTC.
///
/// # Safety
///
/// `from` is NULL or can be read; `to` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FileTimeToSystemTime(from: *const [u32; 2], to: *mut SystemTime) -> i32 {
    to_bool(|| {
        // SAFETY: the caller passes NULL or a readable `from`.
        let time = unsafe { ptr::read_value(from) }.filter(|_| !to.is_null());
        let [low, high] = time.ok_or(Status::ERROR_INVALID_PARAMETER)?;
        let time = FileTime((u64::from(high) << 32 | u64::from(low)).cast_signed());
        let parts = to_system_time(time).ok_or(Status::ERROR_INVALID_PARAMETER)?;
        // SAFETY: the caller passes a writable `to`.
        unsafe { ptr::store(to, parts) };
        Ok(())
    })
}

/// Converts a date and time of day in UTC to a FILETIME. Fails with ERROR_INVALID_PARAMETER if the
/// date does not exist.
///
/// # Safety
///
/// `from` is NULL or can be read; `to` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SystemTimeToFileTime(from: *const SystemTime, to: *mut [u32; 2]) -> i32 {
    to_bool(|| {
        // SAFETY: the caller passes NULL or a readable `from`.
        let parts = unsafe { ptr::read_value(from) }.filter(|_| !to.is_null());
        let time = parts.as_ref().and_then(to_file_time).ok_or(Status::ERROR_INVALID_PARAMETER)?;
        let [b0, b1, b2, b3, high @ ..] = time.0.to_le_bytes();
        let halves = [u32::from_le_bytes([b0, b1, b2, b3]), u32::from_le_bytes(high)];
        // SAFETY: the caller passes a writable `to`.
        unsafe { ptr::store(to, halves) };
        Ok(())
    })
}
