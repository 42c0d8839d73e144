//! Wall time as text, quickly: the date and time of day are written once a second.

use std::io::Write;

use traceweir_format::time::{FileTime, UNITS_PER_SECOND};

/// Remembers the text of the last second.
#[derive(Debug, Default)]
pub(crate) struct Stamp {
    second: Option<i64>,
    text: Vec<u8>,
}

impl Stamp {
    /// Appends `2020-07-29T00:07:00.6212345`.
    #[inline]
    pub(crate) fn push(&mut self, time: FileTime, out: &mut Vec<u8>) {
        let second = time.0.div_euclid(UNITS_PER_SECOND);
        if self.second != Some(second) {
            self.second = Some(second);
            self.text.clear();
            // Writing to a vector cannot fail; the last eight characters are the fraction.
            let _ = write!(self.text, "{}", FileTime(second.saturating_mul(UNITS_PER_SECOND)).civil());
            self.text.truncate(self.text.len().saturating_sub(7));
        }
        out.extend_from_slice(&self.text);
        push_digits(time.0.rem_euclid(UNITS_PER_SECOND).unsigned_abs(), 7, out);
    }
}

/// Appends a number with leading zeros.
#[inline]
pub(crate) fn push_digits(mut value: u64, digits: usize, out: &mut Vec<u8>) {
    let mut text = [b'0'; 20];
    let digits = digits.min(text.len());
    for place in (0..digits).rev() {
        text[place] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&text[..digits]);
}

/// Appends nanoseconds as milliseconds with six decimals.
#[inline]
pub(crate) fn push_milliseconds(nanoseconds: i64, out: &mut Vec<u8>) {
    if nanoseconds < 0 {
        out.push(b'-');
    }
    let n = nanoseconds.unsigned_abs();
    traceweir_decode::format::decimal(n / 1_000_000, out);
    out.push(b'.');
    push_digits(n % 1_000_000, 6, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_seven_digits_of_a_second() {
        let mut stamp = Stamp::default();
        let mut out = Vec::new();
        let base = FileTime::from_unix(1_595_981_220, 0);
        for units in [0, 1, 9_999_999, 10_000_000] {
            stamp.push(FileTime(base.0 + units), &mut out);
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
