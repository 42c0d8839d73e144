//! Formats wall time quickly: date and time of day are formatted only once per second.

use std::io::Write;

use traceweir_format::time::{FileTime, UNITS_PER_SECOND};

/// Formats wall time and caches the text of the latest second.
#[derive(Debug)]
pub(crate) struct TimeFormatter {
    second: Option<i64>,
    /// The text of `second`; each call replaces the fraction at its end.
    text: Vec<u8>,
    separator: u8,
}

const FRACTION_DIGITS: usize = 7;

impl TimeFormatter {
    /// Returns a formatter with `separator` between date and time of day.
    pub(crate) const fn new(separator: u8) -> Self {
        Self { second: None, text: Vec::new(), separator }
    }

    /// Appends a time such as `2020-07-29T00:07:00.6212345`.
    #[inline]
    pub(crate) fn push_time(&mut self, time: FileTime, out: &mut Vec<u8>) {
        let second = time.0.div_euclid(UNITS_PER_SECOND);
        if self.second != Some(second) {
            self.format_second(second);
        }
        let units = time.0.wrapping_sub(second.wrapping_mul(UNITS_PER_SECOND));
        if let Some(fraction) = self.text.last_chunk_mut::<FRACTION_DIGITS>() {
            *fraction = format_digits(u32::try_from(units).unwrap_or(0));
        }
        out.extend_from_slice(&self.text);
    }

    #[cold]
    fn format_second(&mut self, second: i64) {
        self.second = Some(second);
        self.text.clear();
        // Writing to a vector cannot fail.
        let _ = write!(self.text, "{}", FileTime(second.saturating_mul(UNITS_PER_SECOND)).civil());
        if let Some(t) = self.text.iter_mut().find(|b| **b == b'T') {
            *t = self.separator;
        }
    }
}

#[inline(always)]
fn format_digits<const N: usize>(mut value: u32) -> [u8; N] {
    let mut text = [b'0'; N];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    text
}

/// Appends nanoseconds as milliseconds with six decimals.
#[inline]
pub(crate) fn push_milliseconds(nanoseconds: i64, out: &mut Vec<u8>) {
    if nanoseconds < 0 {
        out.push(b'-');
    }
    let n = nanoseconds.unsigned_abs();
    traceweir_decode::format::push_decimal(n / 1_000_000, out);
    out.push(b'.');
    out.extend_from_slice(&format_digits::<6>((n % 1_000_000) as u32));
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
