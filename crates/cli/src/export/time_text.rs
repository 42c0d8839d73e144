//! Formats wall time quickly: date and time of day are formatted only once per second.

use std::io::Write;

use traceweir_decode::format::{PaddedText, format_digits, push_u64};
use traceweir_format::time::{FileTime, UNITS_PER_SECOND};

/// Formats wall time and caches the text of the latest second.
#[derive(Debug)]
pub(crate) struct TimeFormatter {
    /// The start of the latest second, and its text without a fraction.
    second: Option<(FileTime, PaddedText)>,
    separator: u8,
}

impl TimeFormatter {
    /// Returns a formatter with `separator` between date and time of day.
    pub(crate) const fn new(separator: u8) -> Self {
        Self { second: None, separator }
    }

    /// Appends a time such as `2020-07-29T00:07:00.6212345`.
    #[inline]
    pub(crate) fn push_time(&mut self, time: FileTime, out: &mut Vec<u8>) {
        let (units, text) = match &self.second {
            Some((start, text)) if is_second_of(*start, time) => (time.0.wrapping_sub(start.0), text),
            _ => self.format_second(time),
        };
        text.push(out);
        // The fraction has seven digits, so the first of the eight is free for the point.
        let [_, digits @ ..] = format_digits(units as u32);
        let [a, b, c, d, e, f, g] = digits;
        out.extend_from_slice(&[b'.', a, b, c, d, e, f, g]);
    }

    /// Formats the second of a time. Returns the units within the second, and its text.
    #[cold]
    fn format_second(&mut self, time: FileTime) -> (i64, &PaddedText) {
        let units = time.0.rem_euclid(UNITS_PER_SECOND);
        let start = FileTime(time.0.wrapping_sub(units));
        let mut text = Vec::new();
        // Writing to a vector cannot fail.
        let _ = write!(text, "{}", time.civil());
        if let Some(point) = text.iter().position(|b| *b == b'.') {
            text.truncate(point);
        }
        if let Some(t) = text.iter_mut().find(|b| **b == b'T') {
            *t = self.separator;
        }
        let (_, text) = self.second.insert((start, PaddedText::new(&text)));
        (units, text)
    }
}

/// Returns whether a time is in the second that begins at `start`.
#[inline]
fn is_second_of(start: FileTime, time: FileTime) -> bool {
    time.0.wrapping_sub(start.0).cast_unsigned() < UNITS_PER_SECOND.unsigned_abs()
}

/// Appends nanoseconds as milliseconds with six decimals.
#[inline]
pub(crate) fn push_milliseconds(nanoseconds: i64, out: &mut Vec<u8>) {
    if nanoseconds < 0 {
        out.push(b'-');
    }
    let n = nanoseconds.unsigned_abs();
    push_u64(n / 1_000_000, out);
    let [_, _, digits @ ..] = format_digits((n % 1_000_000) as u32);
    let [a, b, c, d, e, f] = digits;
    out.extend_from_slice(&[b'.', a, b, c, d, e, f]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_seven_digits_of_a_second() {
        let mut formatter = TimeFormatter::new(b'T');
        let mut out = Vec::new();
        let base = FileTime::from_unix(1_595_981_220, 0);
        for units in [0, 1, 9_999_999, 10_000_000] {
            formatter.push_time(FileTime(base.0 + units), &mut out);
            out.push(b'\n');
        }
        let expected = "2020-07-29T00:07:00.0000000\n2020-07-29T00:07:00.0000001\n\
                        2020-07-29T00:07:00.9999999\n2020-07-29T00:07:01.0000000\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn milliseconds_may_be_negative() {
        let mut out = Vec::new();
        push_milliseconds(-1_500_000, &mut out);
        out.push(b' ');
        push_milliseconds(12_345, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "-1.500000 0.012345");
    }
}
