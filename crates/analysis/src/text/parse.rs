//! Parses user input: patterns, levels, masks, points in time and durations.

use std::time::Duration;

use traceweir_format::time::{Civil, FileTime, UNITS_PER_SECOND};

/// Returns whether a pattern with `*` and `?` matches a text.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut pattern_index, mut text_index) = (0, 0);
    // The last `*` in the pattern, and the position in the text up to which it matches so far.
    let mut retry: Option<(usize, usize)> = None;
    while text_index < text.len() {
        match pattern.get(pattern_index) {
            Some('*') => {
                retry = Some((pattern_index, text_index));
                pattern_index += 1;
            }
            Some(c) if *c == '?' || text.get(text_index) == Some(c) => {
                (pattern_index, text_index) = (pattern_index + 1, text_index + 1);
            }
            _ => match retry {
                Some((star, from)) => {
                    (pattern_index, text_index) = (star + 1, from + 1);
                    retry = Some((star, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(pattern_index).all(|c| *c == '*')
}

/// The hint for a level that [`parse_level`] rejects.
pub const EXPECTED_LEVEL: &str = "use 0 to 255, critical, error, warning, info or verbose";

/// Parses a level by name or number.
pub fn parse_level(text: &str) -> Result<u8, String> {
    let name = text.trim().to_ascii_lowercase();
    let name = name.strip_prefix("win:").unwrap_or(&name);
    Ok(match name {
        "logalways" => 0,
        "c" | "crit" | "critical" => 1,
        "e" | "err" | "error" => 2,
        "w" | "warn" | "warning" => 3,
        "i" | "info" | "information" | "informational" => 4,
        "v" | "verb" | "verbose" => 5,
        number => {
            let number = match number.strip_prefix("0x") {
                Some(hex) => u8::from_str_radix(hex, 16),
                None => number.parse(),
            };
            number.map_err(|_| EXPECTED_LEVEL.to_owned())?
        }
    })
}

pub fn parse_mask(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(&hex.replace('_', ""), 16),
        None => text.parse(),
    };
    number.map_err(|_| "use 0x… or a decimal number".to_owned())
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Wall time.
    Utc(FileTime),
    /// Units of 100 ns since the start of the trace.
    Offset(i64),
}

impl Moment {
    /// Returns the wall time in a trace that starts at `start`.
    pub fn to_wall_time(self, start: FileTime) -> FileTime {
        match self {
            Self::Utc(time) => time,
            Self::Offset(units) => FileTime(start.0.saturating_add(units)),
        }
    }
}

/// Parses a point in time: UTC, or an offset; a number without unit is in seconds.
pub fn parse_moment(text: &str) -> Result<Moment, String> {
    let nanoseconds = parse_nanoseconds(text).or_else(|| Some(text.trim().parse::<f64>().ok()? * 1e9));
    let units = nanoseconds.map(|n| (n / 100.0).round());
    // Larger numbers of units do not fit into an `i64`.
    if let Some(units) = units.filter(|units| units.abs() < 9e18) {
        return Ok(Moment::Offset(units as i64));
    }
    let hint = || "use 2020-07-29T00:07:01.5Z or an offset such as 1.5s or 200ms".to_owned();
    parse_utc(text).map(Moment::Utc).ok_or_else(hint)
}

/// Parses a duration; a number without unit is in seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().parse::<f64>().ok().or_else(|| parse_nanoseconds(text).map(|n| n / 1e9));
    let duration = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    duration.ok_or_else(|| "use a time such as 10s, 500ms or 2min".to_owned())
}

/// Parses a number with a unit of time and converts it to nanoseconds.
fn parse_nanoseconds(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 7] =
        [("ms", 1e6), ("us", 1e3), ("µs", 1e3), ("ns", 1.0), ("s", 1e9), ("min", 6e10), ("h", 3.6e12)];
    let mut spans = UNITS.iter().filter_map(|(unit, nanoseconds)| {
        let number = text.strip_suffix(unit)?.trim().parse::<f64>().ok()?;
        Some(number * nanoseconds)
    });
    spans.next()
}

fn parse_utc(text: &str) -> Option<FileTime> {
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (date, clock) = text.split_once(['T', 't', ' ']).unwrap_or((text, "0:0:0"));
    let mut date = date.split('-');
    let (year, month, day) = (date.next()?, date.next()?, date.next()?);
    let mut clock = clock.split(':');
    let (hour, minute, second) = (clock.next()?, clock.next().unwrap_or("0"), clock.next().unwrap_or("0"));
    let (second, fraction) = second.split_once('.').unwrap_or((second, ""));
    let digits: String = fraction.chars().chain("0000000".chars()).take(7).collect();
    let civil = Civil {
        year: year.parse().ok()?,
        month: month.parse().ok()?,
        day: day.parse().ok()?,
        hour: hour.parse().ok().filter(|h| *h < 24)?,
        minute: minute.parse().ok().filter(|m| *m < 60)?,
        second: second.parse().ok().filter(|s| *s < 60)?,
        units: digits.parse().ok().filter(|u: &u32| i64::from(*u) < UNITS_PER_SECOND)?,
    };
    if date.next().is_some() || clock.next().is_some() { None } else { FileTime::from_civil(&civil) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_with_wildcards() {
        for (pattern, text, is_match) in [
            ("perfview", "perfview", true),
            ("perf*", "perfview", true),
            ("*view", "perfview", true),
            ("p?rf*w", "perfview", true),
            ("perf", "perfview", false),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbxc", false),
            ("", "x", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), is_match, "{pattern} on {text}");
        }
    }

    #[test]
    fn times_parse_as_utc_or_offset() {
        let start = FileTime::from_unix(1_000_000_000, 0);
        assert_eq!(parse_moment("1.5s").unwrap().to_wall_time(start).0 - start.0, 15_000_000);
        assert_eq!(parse_moment("1.5").unwrap().to_wall_time(start).0 - start.0, 15_000_000);
        assert_eq!(parse_moment("200ms").unwrap().to_wall_time(start).0 - start.0, 2_000_000);
        assert_eq!(parse_moment("2001-09-09T01:46:40Z").unwrap().to_wall_time(start), start);
        assert_eq!(
            parse_moment("2001-09-09 01:46:40.25").unwrap().to_wall_time(start).0 - start.0,
            2_500_000
        );
        assert_eq!(
            parse_moment("2001-09-09").unwrap().to_wall_time(start).0,
            start.0 - 6400 * UNITS_PER_SECOND
        );
        for bad in ["", "yesterday", "2001-02-30", "2001-09-09T25:00:00", "inf", "nan"] {
            assert!(parse_moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_parse_with_unit_or_as_seconds() {
        for (text, milliseconds) in
            [("10s", 10_000), ("500ms", 500), ("2min", 120_000), ("1.5", 1500), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for bad in ["", "-1s", "soon", "NaN", "1e300s", "10 parsecs"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn levels_and_masks_parse_from_name_and_number() {
        assert_eq!((parse_level("Warning").unwrap(), parse_level("200").unwrap()), (3, 200));
        assert_eq!((parse_mask("0xFF").unwrap(), parse_mask("12").unwrap()), (255, 12));
        assert!(parse_level("loud").is_err() && parse_mask("0xZZ").is_err());
    }
}
