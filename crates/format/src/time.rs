//! FILETIME, the three session clocks, and the conversion of raw stamps to wall time.
//!
//! ```text
//!   raw stamp t ──(t − anchor) × 10⁷ / rate──▶ + StartTime ──▶ FILETIME (100 ns since 1601, UTC)
//! ```
//!
//! The anchor is the stamp of the file's first event; it corresponds to the header's StartTime.
//! Stamps before the anchor are legal. Stamps of the system time are FILETIMEs already.
//!
//! Source: Documented ("TRACE_LOGFILE_HEADER", "Retrieving event data"), Observed on clock types 1
//! and 2.

use core::fmt;

/// The start of 1970 as a [`FileTime`]: 100 ns units since the start of 1601.
pub const UNIX_EPOCH_AS_FILETIME: i64 = 116_444_736_000_000_000;

/// 100 ns units in a second.
pub const UNITS_PER_SECOND: i64 = 10_000_000;

/// Nanoseconds in a unit of [`FileTime`].
const NS_PER_UNIT: i128 = 100;

/// A point in time: 100 ns units since 1601-01-01 00:00 UTC.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime(pub i64);

impl FileTime {
    /// Returns the calendar form in UTC.
    #[must_use]
    pub fn civil(self) -> Civil {
        let seconds = self.0.div_euclid(UNITS_PER_SECOND);
        let units = self.0.rem_euclid(UNITS_PER_SECOND);
        let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = date_from_days(days);
        Civil {
            year,
            month,
            day,
            hour: to_u8(second_of_day / 3600),
            minute: to_u8(second_of_day / 60 % 60),
            second: to_u8(second_of_day % 60),
            units: u32::try_from(units).unwrap_or(0),
        }
    }

    /// Converts the seconds and nanoseconds of a Unix clock.
    #[must_use]
    pub fn from_unix(seconds: i64, nanos: u32) -> Self {
        let units = seconds.saturating_mul(UNITS_PER_SECOND).saturating_add(i64::from(nanos / 100));
        Self(units.saturating_add(UNIX_EPOCH_AS_FILETIME))
    }

    /// Converts nanoseconds since 1970, rounded down to units of 100 ns and limited to the range of a
    /// FILETIME.
    #[must_use]
    pub fn from_unix_ns(ns: i128) -> Self {
        let units = ns.div_euclid(NS_PER_UNIT);
        Self(saturate(units.saturating_add(i128::from(UNIX_EPOCH_AS_FILETIME))))
    }

    /// Returns nanoseconds since 1970.
    #[must_use]
    pub const fn unix_ns(self) -> i128 {
        (self.0 as i128).saturating_sub(UNIX_EPOCH_AS_FILETIME as i128).saturating_mul(NS_PER_UNIT)
    }

    /// Returns the current time.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn now() -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self::from_unix_ns(i128::try_from(since_1970.unwrap_or_default().as_nanos()).unwrap_or(i128::MAX))
    }

    /// Converts a date and time of day in UTC; `None` if the day does not exist or the result is
    /// outside of the range of a FILETIME. The ranges of the time of day are not checked.
    #[must_use]
    pub fn from_civil(c: &Civil) -> Option<Self> {
        let days = days_from_date(c.year, c.month, c.day)?;
        let second_of_day =
            i64::from(c.hour).checked_mul(3600)?.checked_add(i64::from(c.minute).checked_mul(60)?)?;
        let seconds =
            days.checked_mul(86_400)?.checked_add(second_of_day)?.checked_add(i64::from(c.second))?;
        Some(Self(seconds.checked_mul(UNITS_PER_SECOND)?.checked_add(i64::from(c.units))?))
    }
}

impl fmt::Display for FileTime {
    /// Formats as RFC 3339 in UTC with seven digits of a second: `2020-07-29T00:07:00.6212345Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Z", self.civil())
    }
}

#[cfg(feature = "std")]
impl From<FileTime> for std::time::SystemTime {
    fn from(time: FileTime) -> Self {
        let units = time.0.saturating_sub(UNIX_EPOCH_AS_FILETIME);
        // 100 ns units of an `i64` are less than 2⁶⁴ microseconds.
        let distance = core::time::Duration::from_micros(units.unsigned_abs() / 10).saturating_add(
            core::time::Duration::from_nanos((units.unsigned_abs() % 10).saturating_mul(100)),
        );
        let time = if units < 0 {
            Self::UNIX_EPOCH.checked_sub(distance)
        } else {
            Self::UNIX_EPOCH.checked_add(distance)
        };
        time.unwrap_or(Self::UNIX_EPOCH)
    }
}

impl fmt::Debug for FileTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A date and time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Year in the proleptic Gregorian calendar.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
    /// 100 ns units within the second.
    pub units: u32,
}

impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second, units } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{units:07}")
    }
}

fn to_u8(n: i64) -> u8 {
    u8::try_from(n).unwrap_or(0)
}

/// Days from 0000-03-01 to 1601-01-01 in the proleptic Gregorian calendar.
const DAYS_BEFORE_1601: i64 = 584_694;
const DAYS_IN_400_YEARS: i64 = 146_097;

/// Returns year, month and day of a day counted from 1601-01-01. The computation lets years start
/// in March, so that the leap day is the last day of a year.
#[allow(clippy::arithmetic_side_effects)] // A FILETIME spans ± 30,000 years: nothing here leaves an i64.
fn date_from_days(days: i64) -> (i32, u8, u8) {
    let days = days + DAYS_BEFORE_1601;
    let (era, day) = (days.div_euclid(DAYS_IN_400_YEARS), days.rem_euclid(DAYS_IN_400_YEARS));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let day = day - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    (i32::try_from(year).unwrap_or(0), to_u8(month), to_u8(day))
}

/// Returns the number of days from 1601-01-01 to a date; `None` if the date does not exist.
fn days_from_date(year: i32, month: u8, day: u8) -> Option<i64> {
    let (year, month_number, day) = (i64::from(year), i64::from(month), i64::from(day));
    let is_leap = (year.rem_euclid(4) == 0 && year.rem_euclid(100) != 0) || year.rem_euclid(400) == 0;
    let length = match month {
        2 => 28_i64.checked_add(i64::from(is_leap))?,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let year = year.checked_sub(i64::from(month <= 2))?;
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let march_month = month_number.checked_add(9)?.rem_euclid(12);
    let day_of_year =
        march_month.checked_mul(153)?.checked_add(2)?.div_euclid(5).checked_add(day)?.checked_sub(1)?;
    let leap_days = year_of_era.div_euclid(4).checked_sub(year_of_era.div_euclid(100))?;
    let day_of_era = year_of_era.checked_mul(365)?.checked_add(leap_days)?.checked_add(day_of_year)?;
    era.checked_mul(DAYS_IN_400_YEARS)?.checked_add(day_of_era)?.checked_sub(DAYS_BEFORE_1601)
}

/// The unit of a session's stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClockKind {
    /// The performance counter, `PerfFreq` ticks per second.
    Qpc,
    /// FILETIME: 100 ns since 1601.
    SystemTime,
    /// CPU cycles, `CpuSpeedInMHz` million per second.
    CpuCycles,
}

impl ClockKind {
    /// Returns the number of this clock type in a log-file header.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Qpc => 1,
            Self::SystemTime => 2,
            Self::CpuCycles => 3,
        }
    }

    /// Returns the clock type with a number in a log-file header; `None` for an unknown number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Qpc,
            2 => Self::SystemTime,
            3 => Self::CpuCycles,
            _ => return None,
        })
    }
}

impl fmt::Display for ClockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qpc => "performance counter",
            Self::SystemTime => "system time",
            Self::CpuCycles => "CPU cycles",
        })
    }
}

impl From<ClockKind> for u32 {
    fn from(kind: ClockKind) -> Self {
        kind.number()
    }
}

/// Converts raw stamps of one file to wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The unit of the stamps.
    pub kind: ClockKind,
    /// Ticks per second; never 0.
    pub rate: u64,
    /// The raw stamp that corresponds to `start`.
    pub anchor: i64,
    /// The wall time of the anchor.
    pub start: FileTime,
}

impl Clock {
    /// Returns the wall time of a raw stamp. Saturates if a damaged stamp exceeds the range of a
    /// FILETIME.
    #[inline]
    #[must_use]
    pub fn file_time(&self, raw: i64) -> FileTime {
        if self.kind == ClockKind::SystemTime {
            return FileTime(raw);
        }
        FileTime(self.start.0.saturating_add(self.scale(raw, UNITS_PER_SECOND)))
    }

    /// Returns the nanoseconds from the anchor to a raw stamp.
    #[inline]
    #[must_use]
    pub fn nanos_since_start(&self, raw: i64) -> i64 {
        self.scale(raw, 1_000_000_000)
    }

    /// Returns the raw stamp of a wall time, the inverse of [`Clock::file_time`] up to rounding.
    #[must_use]
    pub fn raw(&self, time: FileTime) -> i64 {
        if self.kind == ClockKind::SystemTime {
            return time.0;
        }
        let units = i128::from(time.0).saturating_sub(i128::from(self.start.0));
        let ticks = units.saturating_mul(i128::from(self.rate)).div_euclid(i128::from(UNITS_PER_SECOND));
        saturate(ticks.saturating_add(i128::from(self.anchor)))
    }

    /// Returns the first raw stamp whose wall time is not before `time`. Times mapped this way keep
    /// their order.
    #[must_use]
    pub fn first_raw(&self, time: FileTime) -> i64 {
        let raw = self.raw(time);
        if self.file_time(raw) < time { raw.saturating_add(1) } else { raw }
    }

    /// Returns the time from the anchor to a raw stamp, in units of which a second has
    /// `per_second`.
    #[inline]
    fn scale(&self, raw: i64, per_second: i64) -> i64 {
        let rate = self.rate.max(1);
        if rate == per_second.unsigned_abs() {
            return raw.saturating_sub(self.anchor);
        }
        // Short spans fit 64 bits and need no 128-bit division.
        let product = raw.checked_sub(self.anchor).and_then(|ticks| ticks.checked_mul(per_second));
        if let (Some(product), Ok(rate)) = (product, i64::try_from(rate)) {
            return product.checked_div_euclid(rate).unwrap_or(0);
        }
        let ticks = i128::from(raw).saturating_sub(i128::from(self.anchor));
        saturate(ticks.saturating_mul(i128::from(per_second)).div_euclid(i128::from(rate)))
    }
}

fn saturate(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn known_dates_print_as_rfc_3339() {
        assert_eq!(FileTime(0).to_string(), "1601-01-01T00:00:00.0000000Z");
        assert_eq!(FileTime(UNIX_EPOCH_AS_FILETIME).to_string(), "1970-01-01T00:00:00.0000000Z");
        assert_eq!(
            FileTime::from_unix(1_582_934_400, 123_456_789).to_string(),
            "2020-02-29T00:00:00.1234567Z"
        );
        assert_eq!(FileTime(-1).to_string(), "1600-12-31T23:59:59.9999999Z");
    }

    #[test]
    fn unix_nanoseconds_convert_without_loss_of_units() {
        for units in [i64::MIN, -1, 0, UNIX_EPOCH_AS_FILETIME - 1, UNIX_EPOCH_AS_FILETIME + 1, i64::MAX] {
            assert_eq!(FileTime::from_unix_ns(FileTime(units).unix_ns()), FileTime(units));
        }
        assert_eq!(FileTime::from_unix_ns(-1), FileTime(UNIX_EPOCH_AS_FILETIME - 1), "rounded down");
        assert_eq!(FileTime::from_unix_ns(i128::MIN), FileTime(i64::MIN));
        assert_eq!(FileTime::from_unix_ns(i128::MAX), FileTime(i64::MAX));
    }

    #[test]
    fn each_clock_gives_the_documented_wall_time() {
        let start = FileTime::from_unix(1_000_000, 0);
        let qpc = Clock { kind: ClockKind::Qpc, rate: 2_000_000, anchor: 500, start };
        assert_eq!(qpc.file_time(2_000_500), FileTime(start.0 + UNITS_PER_SECOND));
        assert_eq!(qpc.file_time(499), FileTime(start.0 - 5), "a stamp before the anchor");
        let cycles = Clock { kind: ClockKind::CpuCycles, rate: 3_000_000_000, anchor: 0, start };
        assert_eq!(cycles.file_time(i64::MAX / 4).0, start.0 + i64::MAX / 4 / 300);
        let system = Clock { kind: ClockKind::SystemTime, rate: 1, anchor: 7, start };
        assert_eq!(system.file_time(42), FileTime(42));
    }

    proptest! {
        #[test]
        fn dates_round_trip(t in -900_000_000_000_000_000_i64..900_000_000_000_000_000) {
            prop_assert_eq!(FileTime::from_civil(&FileTime(t).civil()), Some(FileTime(t)));
        }

        #[test]
        fn first_raw_is_the_earliest_stamp_at_or_after_the_time(
            units in 0_i64..1 << 50, rate in 1_000_u64..5_000_000_000, anchor in -1_000_000_i64..1 << 40
        ) {
            let clock = Clock { kind: ClockKind::Qpc, rate, anchor, start: FileTime(UNIX_EPOCH_AS_FILETIME) };
            let time = FileTime(UNIX_EPOCH_AS_FILETIME + units);
            let first = clock.first_raw(time);
            prop_assert!(clock.file_time(first) >= time && clock.file_time(first - 1) < time);
        }

        #[test]
        fn any_stamp_converts_without_panic(raw: i64, anchor: i64, rate: u64, start: i64) {
            let clock = Clock { kind: ClockKind::Qpc, rate, anchor, start: FileTime(start) };
            let _ = clock.first_raw(clock.file_time(raw));
            let _ = clock.file_time(raw).to_string();
            let _ = clock.nanos_since_start(raw);
        }
    }
}
