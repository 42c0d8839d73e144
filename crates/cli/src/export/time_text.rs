//! Formats wall time quickly: date and time of day are formatted only once per second.

use std::io::Write;

use traceweir_format::time::{FileTime, UNITS_PER_SECOND};

/// Formats wall time and caches the text of the latest second.
#[derive(Debug)]
pub(crate) struct TimeFormatter {
    second: Option<i64>,
    /// The text of `second`, without a fraction.
    text: Vec<u8>,
    separator: u8,
}

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
        out.extend_from_slice(&self.text);
        // The fraction has seven digits, so the first of the eight is free for the point.
        let [_, digits @ ..] = format_digits(u32::try_from(units).unwrap_or(0));
        let [a, b, c, d, e, f, g] = digits;
        out.extend_from_slice(&[b'.', a, b, c, d, e, f, g]);
    }

    #[cold]
    fn format_second(&mut self, second: i64) {
        self.second = Some(second);
        self.text.clear();
        // Writing to a vector cannot fail.
        let _ = write!(self.text, "{}", FileTime(second.saturating_mul(UNITS_PER_SECOND)).civil());
        if let Some(point) = self.text.iter().position(|b| *b == b'.') {
            self.text.truncate(point);
        }
        if let Some(t) = self.text.iter_mut().find(|b| **b == b'T') {
            *t = self.separator;
        }
    }
}

/// Returns the last eight decimal digits of a number, with leading zeros.
///
/// The digits are computed side by side in one word: two numbers of four digits, then four of two
/// digits, then eight digits. The first is in the lowest bits.
#[inline(always)]
fn format_digits(value: u32) -> [u8; 8] {
    let fours = u64::from(value / 10_000 % 10_000) | u64::from(value % 10_000) << 32;
    // For each n below 10,000, n × 10,486 / 2²⁰ is n / 100; for each n below 100, n × 103 / 2¹⁰ is
    // n / 10.
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let twos = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((twos * 103) >> 10) & 0x000F_000F_000F_000F;
    let ones = tens | (twos - tens * 10) << 8;
    (ones | 0x3030_3030_3030_3030).to_le_bytes()
}

/// Appends nanoseconds as milliseconds with six decimals.
#[inline]
pub(crate) fn push_milliseconds(nanoseconds: i64, out: &mut Vec<u8>) {
    if nanoseconds < 0 {
        out.push(b'-');
    }
    let n = nanoseconds.unsigned_abs();
    traceweir_decode::format::push_decimal(n / 1_000_000, out);
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
    fn digits_are_those_of_the_number() {
        for number in (0..100_000_000).step_by(997).chain(99_990_000..100_000_000) {
            assert_eq!(format_digits(number), *format!("{number:08}").as_bytes());
        }
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
