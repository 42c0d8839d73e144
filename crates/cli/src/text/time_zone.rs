//! The local time zone: its offset from UTC at any time.
//!
//! ```text
//!   TZ unset ─────────▶ /etc/localtime ──────────┐
//!   TZ=Europe/Rome ───▶ /usr/share/zoneinfo/… ───┴▶ TZif: transitions, then a rule for later times
//!   TZ=CET-1CEST,… ───────────────────────────────▶ a rule
//! ```

use std::path::{Path, PathBuf};

use traceweir_format::time::{Civil, FileTime, UNITS_PER_SECOND};

const ZONE_FOLDER: &str = "/usr/share/zoneinfo";
const LOCAL_ZONE_FILE: &str = "/etc/localtime";
const SECONDS_PER_DAY: i64 = 86_400;
/// Seconds from the epoch of FILETIME to that of Unix.
const UNIX_EPOCH_SECONDS: i64 = traceweir_format::time::UNIX_EPOCH_AS_FILETIME / UNITS_PER_SECOND;

/// A time zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeZone {
    /// Offset from UTC before the first transition, in seconds.
    first_offset: i64,
    /// Time of each transition in Unix seconds, ascending, and the offset after it.
    transitions: Vec<(i64, i64)>,
    /// The rule after the last transition.
    rule: Option<ZoneRule>,
}

impl TimeZone {
    /// Returns the local time zone; UTC if it is unknown.
    pub(crate) fn local() -> Self {
        let variable = std::env::var("TZ").ok();
        Self::from_variable(variable.as_deref()).unwrap_or_default()
    }

    fn from_variable(variable: Option<&str>) -> Option<Self> {
        let Some(name) = variable.map(|text| text.strip_prefix(':').unwrap_or(text)) else {
            return Self::from_file(Path::new(LOCAL_ZONE_FILE));
        };
        let is_relative = !name.is_empty() && !name.split('/').any(|part| part == "..");
        let path = is_relative.then(|| PathBuf::from(ZONE_FOLDER).join(name));
        let from_rule = || Some(Self { rule: Some(ZoneRule::parse(name)?), ..Self::default() });
        path.and_then(|path| Self::from_file(&path)).or_else(from_rule)
    }

    fn from_file(path: &Path) -> Option<Self> {
        // Zone files have a few kilobytes.
        let is_small_file =
            path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() < 1 << 20);
        is_small_file.then(|| std::fs::read(path).ok()).flatten().and_then(|bytes| Self::parse(&bytes))
    }

    /// Returns the offset from UTC at a time, in seconds.
    pub(crate) fn offset_at(&self, time: FileTime) -> i64 {
        let seconds = time.0.div_euclid(UNITS_PER_SECOND).saturating_sub(UNIX_EPOCH_SECONDS);
        let count = self.transitions.partition_point(|(transition, _)| *transition <= seconds);
        match (&self.rule, count.checked_sub(1)) {
            (Some(rule), _) if count == self.transitions.len() => rule.offset_at(seconds),
            (_, Some(index)) => self.transitions.get(index).map_or(self.first_offset, |(_, offset)| *offset),
            (_, None) => self.first_offset,
        }
    }

    /// Parses a TZif file (RFC 8536).
    fn parse(bytes: &[u8]) -> Option<Self> {
        let counts = BlockCounts::parse(bytes)?;
        if counts.version == 0 {
            return Self::parse_block(bytes.get(HEADER_BYTES..)?, &counts, 4);
        }
        // The first block has 32-bit times; the second one has 64-bit times and is followed by the
        // rule.
        let second = bytes.get(HEADER_BYTES.checked_add(counts.block_bytes(4)?)?..)?;
        let counts = BlockCounts::parse(second)?;
        let block = second.get(HEADER_BYTES..)?;
        let mut zone = Self::parse_block(block, &counts, 8)?;
        let footer = std::str::from_utf8(block.get(counts.block_bytes(8)?..)?).ok()?;
        zone.rule = ZoneRule::parse(footer.trim_matches('\n'));
        Some(zone)
    }

    fn parse_block(block: &[u8], counts: &BlockCounts, time_bytes: usize) -> Option<Self> {
        let (times, rest) = block.split_at_checked(counts.times.checked_mul(time_bytes)?)?;
        let (kinds, rest) = rest.split_at_checked(counts.times)?;
        let offset_of = |kind: usize| -> Option<i64> {
            let entry = rest.get(kind.checked_mul(TYPE_BYTES)?..)?;
            (kind < counts.types)
                .then(|| entry.first_chunk().map(|raw| i32::from_be_bytes(*raw).into()))
                .flatten()
        };
        let parse_time = |raw: &[u8]| match raw.first_chunk::<8>() {
            Some(raw) => Some(i64::from_be_bytes(*raw)),
            None => raw.first_chunk::<4>().map(|raw| i32::from_be_bytes(*raw).into()),
        };
        let mut transitions = Vec::with_capacity(counts.times);
        for (raw, kind) in times.chunks_exact(time_bytes).zip(kinds) {
            transitions.push((parse_time(raw)?, offset_of(usize::from(*kind))?));
        }
        Some(Self { first_offset: offset_of(0)?, transitions, rule: None })
    }
}

/// Size of the header of a TZif block.
const HEADER_BYTES: usize = 44;
/// Size of a local time type in a TZif block.
const TYPE_BYTES: usize = 6;

/// The numbers of entries of a TZif block.
struct BlockCounts {
    version: u8,
    /// UT/local indicators and standard/wall indicators.
    indicators: usize,
    leap_seconds: usize,
    times: usize,
    types: usize,
    characters: usize,
}

impl BlockCounts {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_BYTES).filter(|header| header.starts_with(b"TZif"))?;
        let count = |index: usize| -> Option<usize> {
            let raw = header.get(20 + 4 * index..)?.first_chunk()?;
            usize::try_from(u32::from_be_bytes(*raw)).ok()
        };
        Some(Self {
            version: *header.get(4)?,
            indicators: count(0)?.checked_add(count(1)?)?,
            leap_seconds: count(2)?,
            times: count(3)?,
            types: count(4)?,
            characters: count(5)?,
        })
    }

    /// Returns the size of the data after the header.
    fn block_bytes(&self, time_bytes: usize) -> Option<usize> {
        let times = self.times.checked_mul(time_bytes.checked_add(1)?)?;
        let types = self.types.checked_mul(TYPE_BYTES)?;
        let leap_seconds = self.leap_seconds.checked_mul(time_bytes.checked_add(4)?)?;
        times
            .checked_add(types)?
            .checked_add(self.characters)?
            .checked_add(leap_seconds)?
            .checked_add(self.indicators)
    }
}

/// A rule in the format of POSIX: `CET-1CEST,M3.5.0,M10.5.0/3`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ZoneRule {
    /// Offset of standard time from UTC, in seconds.
    standard: i64,
    daylight: Option<DaylightRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct DaylightRule {
    offset: i64,
    start: YearlyTime,
    end: YearlyTime,
}

/// A time that comes once a year.
#[derive(Clone, Debug, PartialEq, Eq)]
struct YearlyTime {
    day: YearlyDay,
    /// Seconds after the midnight before the day; may be negative or more than a day.
    seconds: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum YearlyDay {
    /// Day of the year, 1 to 365, without 29 February.
    Julian(i64),
    /// Day of the year, 0 to 365.
    DayOfYear(i64),
    /// Month, week (5 is the last) and day of the week (0 is Sunday).
    Weekday { month: u8, week: i64, weekday: i64 },
}

impl ZoneRule {
    fn parse(text: &str) -> Option<Self> {
        let rest = skip_name(text)?;
        let (standard, rest) = parse_offset(rest)?;
        // POSIX counts offsets to the west.
        let standard = -standard;
        if rest.is_empty() {
            return Some(Self { standard, daylight: None });
        }
        let rest = skip_name(rest)?;
        let (offset, rest) = match parse_offset(rest) {
            Some((offset, rest)) => (-offset, rest),
            None => (standard + 3600, rest),
        };
        let mut times = rest.strip_prefix(',')?.split(',').map(YearlyTime::parse);
        let (start, end) = (times.next()??, times.next()??);
        times
            .next()
            .is_none()
            .then_some(Self { standard, daylight: Some(DaylightRule { offset, start, end }) })
    }

    /// Returns the offset at a time in Unix seconds.
    fn offset_at(&self, seconds: i64) -> i64 {
        let Some(DaylightRule { offset, start, end }) = &self.daylight else { return self.standard };
        let local = seconds.saturating_add(self.standard).saturating_add(UNIX_EPOCH_SECONDS);
        let year = FileTime(local.saturating_mul(UNITS_PER_SECOND)).civil().year;
        let (Some(start), Some(end)) = (start.in_year(year), end.in_year(year)) else { return self.standard };
        let (start, end) = (start - self.standard, end - offset);
        let is_daylight = if start <= end {
            (start..end).contains(&seconds)
        } else {
            // The southern summer includes the end of the year.
            !(end..start).contains(&seconds)
        };
        if is_daylight { *offset } else { self.standard }
    }
}

impl YearlyTime {
    fn parse(text: &str) -> Option<Self> {
        let (day, time) = text.split_once('/').map_or((text, None), |(day, time)| (day, Some(time)));
        let seconds = match time {
            Some(time) => parse_offset(time).filter(|(_, rest)| rest.is_empty())?.0,
            None => 2 * 3600,
        };
        let number = |text: &str, max: i64| text.parse().ok().filter(|number| (0..=max).contains(number));
        let day = if let Some(parts) = day.strip_prefix('M') {
            let mut parts = parts.split('.');
            let (month, week) = (number(parts.next()?, 12)?, number(parts.next()?, 5)?);
            let weekday = number(parts.next()?, 6)?;
            let is_valid = parts.next().is_none() && month > 0 && week > 0;
            let month = u8::try_from(month).ok().filter(|_| is_valid)?;
            YearlyDay::Weekday { month, week, weekday }
        } else if let Some(day) = day.strip_prefix('J') {
            YearlyDay::Julian(number(day, 365).filter(|day| *day > 0)?)
        } else {
            YearlyDay::DayOfYear(number(day, 365)?)
        };
        Some(Self { day, seconds })
    }

    /// Returns the local time in a year, in seconds since 1970.
    fn in_year(&self, year: i32) -> Option<i64> {
        let days = match self.day {
            YearlyDay::DayOfYear(day) => first_day(year, 1)?.checked_add(day)?,
            YearlyDay::Julian(day) => {
                let first = first_day(year, 1)?;
                let has_leap_day = first_day(year.checked_add(1)?, 1)? - first == 366;
                // Day 60 is 1 March.
                first.checked_add(day - 1 + i64::from(has_leap_day && day >= 60))?
            }
            YearlyDay::Weekday { month, week, weekday } => {
                let first = first_day(year, month)?;
                let next = if month == 12 {
                    first_day(year.checked_add(1)?, 1)?
                } else {
                    first_day(year, month + 1)?
                };
                // 1 January 1970 was a Thursday.
                let first_match = first + (weekday - (first + 4)).rem_euclid(7);
                let day = first_match + 7 * (week - 1);
                if day < next { day } else { day - 7 }
            }
        };
        days.checked_mul(SECONDS_PER_DAY)?.checked_add(self.seconds)
    }
}

/// Returns the first day of a month, in days since 1970.
fn first_day(year: i32, month: u8) -> Option<i64> {
    let midnight = Civil { year, month, day: 1, hour: 0, minute: 0, second: 0, units: 0 };
    let seconds = FileTime::from_civil(&midnight)?.0.div_euclid(UNITS_PER_SECOND);
    Some(seconds.checked_sub(UNIX_EPOCH_SECONDS)?.div_euclid(SECONDS_PER_DAY))
}

/// Skips the name of a zone: letters, or any text in angle brackets.
fn skip_name(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('<') {
        return quoted.split_once('>').map(|(_, rest)| rest);
    }
    let rest = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    (text.len() - rest.len() >= 3).then_some(rest)
}

/// Parses `[+|-]hh[:mm[:ss]]` to seconds, and returns the text after it.
fn parse_offset(text: &str) -> Option<(i64, &str)> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut seconds = 0;
    for (index, unit) in [3600, 60, 1].into_iter().enumerate() {
        let Some(digits) = (if index == 0 { Some(rest) } else { rest.strip_prefix(':') }) else { break };
        let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = digits.get(..digits.len() - after.len())?;
        // A time of a rule has at most 167 hours.
        seconds += number.parse::<i64>().ok().filter(|number| *number <= 167)? * unit;
        rest = after;
    }
    Some((sign * seconds, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset_hours(zone: &TimeZone, date: (i32, u8, u8), hour: u8) -> f64 {
        let (year, month, day) = date;
        let civil = Civil { year, month, day, hour, minute: 0, second: 0, units: 0 };
        zone.offset_at(FileTime::from_civil(&civil).unwrap()) as f64 / 3600.0
    }

    fn rule_zone(text: &str) -> TimeZone {
        TimeZone { rule: Some(ZoneRule::parse(text).unwrap()), ..TimeZone::default() }
    }

    #[test]
    fn rules_of_both_hemispheres_are_followed() {
        let rome = rule_zone("CET-1CEST,M3.5.0,M10.5.0/3");
        assert_eq!(offset_hours(&rome, (2024, 1, 15), 12), 1.0);
        assert_eq!(offset_hours(&rome, (2024, 7, 15), 12), 2.0);
        // Daylight saving time lasts from 31 March to 27 October 2024, 01:00 UTC.
        assert_eq!(offset_hours(&rome, (2024, 3, 31), 0), 1.0);
        assert_eq!(offset_hours(&rome, (2024, 3, 31), 1), 2.0);
        assert_eq!(offset_hours(&rome, (2024, 10, 27), 0), 2.0);
        assert_eq!(offset_hours(&rome, (2024, 10, 27), 1), 1.0);
        let sydney = rule_zone("AEST-10AEDT,M10.1.0,M4.1.0/3");
        assert_eq!(offset_hours(&sydney, (2024, 1, 15), 12), 11.0);
        assert_eq!(offset_hours(&sydney, (2024, 7, 15), 12), 10.0);
        assert_eq!(offset_hours(&rule_zone("<-0330>3:30"), (2024, 7, 15), 12), -3.5);
        assert_eq!(offset_hours(&rule_zone("EST5EDT,J60/0,300/0"), (2024, 3, 1), 12), -4.0);
        assert_eq!(offset_hours(&rule_zone("EST5EDT,J60/0,300/0"), (2024, 2, 29), 12), -5.0);
    }

    #[test]
    fn damaged_rules_and_files_are_refused() {
        for text in ["", "X", "CET", "CET-1CEST", "CET-1CEST,M3.5.0", "CET-1CEST,M13.1.0,M1.1.0", "CET999"] {
            assert_eq!(ZoneRule::parse(text), None, "{text}");
        }
        let file = make_file(&[(0, 1)], &[0, 7200], "UTC0");
        assert!(TimeZone::parse(&file).is_some());
        for length in 0..file.len() - "\nUTC0\n".len() {
            assert_eq!(TimeZone::parse(&file[..length]), None, "{length}");
        }
    }

    /// Builds a TZif file with an empty first block. `transitions` has times and types.
    fn make_file(transitions: &[(i64, u8)], offsets: &[i32], rule: &str) -> Vec<u8> {
        let header = |times: usize, types: usize| {
            let mut bytes = b"TZif2".to_vec();
            bytes.extend([0; 15]);
            for count in [0, 0, 0, times, types, 4] {
                bytes.extend(u32::try_from(count).unwrap().to_be_bytes());
            }
            bytes
        };
        let mut file = header(0, 0);
        file.extend(b"UTC\0");
        file.extend(header(transitions.len(), offsets.len()));
        transitions.iter().for_each(|(time, _)| file.extend(time.to_be_bytes()));
        file.extend(transitions.iter().map(|(_, kind)| *kind));
        for offset in offsets {
            file.extend(offset.to_be_bytes());
            file.extend([0, 0]);
        }
        file.extend(b"UTC\0");
        file.extend(format!("\n{rule}\n").bytes());
        file
    }

    #[test]
    fn file_has_transitions_and_a_rule_for_later_times() {
        // One hour from 1970 on, two hours from 2001-09-09T01:46:40 on, then the rule.
        let file = make_file(&[(0, 1), (1_000_000_000, 2), (1_500_000_000, 0)], &[0, 3600, 7200], "XYZ-5");
        let zone = TimeZone::parse(&file).unwrap();
        assert_eq!(offset_hours(&zone, (1960, 1, 1), 0), 0.0);
        assert_eq!(offset_hours(&zone, (1980, 1, 1), 0), 1.0);
        assert_eq!(offset_hours(&zone, (2010, 1, 1), 0), 2.0);
        assert_eq!(offset_hours(&zone, (2024, 1, 1), 0), 5.0);
    }

    #[test]
    fn zone_comes_from_the_variable() {
        let zone = TimeZone::from_variable(Some("IST-5:30")).unwrap();
        assert_eq!(offset_hours(&zone, (2024, 1, 1), 0), 5.5);
        assert_eq!(TimeZone::from_variable(Some("")), None);
        assert_eq!(TimeZone::from_variable(Some("../../etc/passwd")), None);
    }
}
