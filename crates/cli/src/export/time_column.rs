//! The first column of the text format: the time of an event in the style of `--time`.

use traceweir_analysis::event::DescribedEvent;
use traceweir_format::time::{FileTime, UNITS_PER_SECOND};

use super::TimeFormatter;
use crate::cli::TimeStyle;
use crate::text::TimeZone;

/// Number of nanoseconds in the unit of [`FileTime`].
const NS_PER_UNIT: i64 = 100;
/// Width of whole seconds.
const SECONDS_WIDTH: usize = 5;
/// The offset of a time zone changes at whole minutes.
const UNITS_PER_MINUTE: i64 = 60 * UNITS_PER_SECOND;

/// Writes times in one style.
#[derive(Debug)]
pub(super) struct TimeColumn {
    style: TimeStyle,
    formatter: TimeFormatter,
    zone: TimeZone,
    /// A minute, and the offset of the time zone in it in units of [`FileTime`].
    last_offset: Option<(i64, i64)>,
    /// The time of the event written before.
    previous: Option<FileTime>,
}

impl TimeColumn {
    pub(super) fn new(style: TimeStyle) -> Self {
        let zone = if style == TimeStyle::Local { TimeZone::local() } else { TimeZone::default() };
        Self { style, formatter: TimeFormatter::new(b' '), zone, last_offset: None, previous: None }
    }

    #[inline]
    pub(super) fn push_time(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
        match self.style {
            TimeStyle::Abs => self.formatter.push_time(event.time, out),
            TimeStyle::Local => self.push_local(event.time, out),
            TimeStyle::Rel => push_seconds(event.ns_since_start().div_euclid(NS_PER_UNIT), out),
            TimeStyle::Delta => {
                let previous = self.previous.replace(event.time).unwrap_or(event.time);
                push_seconds(event.time.0.saturating_sub(previous.0), out);
            }
        }
    }

    fn push_local(&mut self, time: FileTime, out: &mut Vec<u8>) {
        let minute = time.0.div_euclid(UNITS_PER_MINUTE);
        let offset = match self.last_offset {
            Some((last_minute, offset)) if last_minute == minute => offset,
            _ => self.zone.offset_at(time).saturating_mul(UNITS_PER_SECOND),
        };
        self.last_offset = Some((minute, offset));
        self.formatter.push_time(FileTime(time.0.saturating_add(offset)), out);
    }
}

/// Appends a time span in units of [`FileTime`] as seconds with seven decimals.
fn push_seconds(units: i64, out: &mut Vec<u8>) {
    let sign = if units < 0 { "-" } else { "" };
    let (units, per_second) = (units.unsigned_abs(), UNITS_PER_SECOND.unsigned_abs());
    let seconds = format!("{sign}{}", units / per_second);
    out.extend_from_slice(format!("{seconds:>SECONDS_WIDTH$}.{:07}", units % per_second).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_aligned_seconds() {
        let mut out = Vec::new();
        for units in [0, 1, 123_456_789, -15_000_000, 1_234_567_890_123] {
            push_seconds(units, &mut out);
            out.push(b'\n');
        }
        let expected = "    0.0000000\n    0.0000001\n   12.3456789\n   -1.5000000\n123456.7890123\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
