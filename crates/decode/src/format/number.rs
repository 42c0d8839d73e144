//! Formats numbers and bytes as digits.

use std::io::Write;

const UPPER_DIGITS: &[u8; 16] = b"0123456789ABCDEF";
const LOWER_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Returns the hexadecimal digit for the low four bits of `nibble`.
fn hex_digit(table: &[u8; 16], nibble: u8) -> u8 {
    table.get(usize::from(nibble & 15)).copied().unwrap_or(b'0')
}

/// Appends a number in decimal.
#[inline]
pub fn push_decimal(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// One more than the largest number of eight digits.
const EIGHT_DIGITS: u64 = 100_000_000;

/// Appends an unsigned number in decimal. Faster than [`push_decimal`].
#[inline]
pub fn push_u64(value: u64, out: &mut Vec<u8>) {
    if value < EIGHT_DIGITS {
        return push_short(value as u32, out);
    }
    let high = value / EIGHT_DIGITS;
    if high < EIGHT_DIGITS {
        push_short(high as u32, out);
        out.extend_from_slice(&format_digits((value % EIGHT_DIGITS) as u32));
    } else {
        push_decimal(value, out);
    }
}

/// Appends a number of at most eight digits.
#[inline(always)]
fn push_short(value: u32, out: &mut Vec<u8>) {
    let digits = u64::from_le_bytes(format_digits(value));
    // The highest byte is the last digit, which is also shown if it is 0.
    let leading_zeros = ((digits ^ ASCII_ZEROS) | 1 << 56).trailing_zeros() / 8;
    let end = out.len().wrapping_add(8).wrapping_sub(leading_zeros as usize);
    out.extend_from_slice(&digits.wrapping_shr(leading_zeros.wrapping_mul(8)).to_le_bytes());
    out.truncate(end);
}

/// Eight digits 0.
const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;

/// Returns the last eight decimal digits of a number, with leading zeros.
///
/// The digits are computed side by side in one word: two numbers of four digits, then four of two
/// digits, then eight digits. The first is in the lowest bits.
#[inline(always)]
#[must_use]
pub fn format_digits(value: u32) -> [u8; 8] {
    let fours = u64::from(value / 10_000 % 10_000) | u64::from(value % 10_000) << 32;
    // For each n below 10,000, n × 10,486 / 2²⁰ is n / 100; for each n below 100, n × 103 / 2¹⁰ is
    // n / 10. No sum or difference leaves its bits.
    let hundreds = (fours.wrapping_mul(10_486) >> 20) & 0x0000_007F_0000_007F;
    let twos = hundreds | fours.wrapping_sub(hundreds.wrapping_mul(100)) << 16;
    let tens = (twos.wrapping_mul(103) >> 10) & 0x000F_000F_000F_000F;
    let ones = tens | twos.wrapping_sub(tens.wrapping_mul(10)) << 8;
    (ones | ASCII_ZEROS).to_le_bytes()
}

#[inline]
fn push_hex(table: &[u8; 16], mut value: u64, out: &mut Vec<u8>) {
    let mut text = [b'0'; 16];
    let mut start = text.len();
    for (index, digit) in text.iter_mut().enumerate().rev() {
        *digit = hex_digit(table, value.to_le_bytes()[0]);
        start = index;
        value >>= 4;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(text.get(start..).unwrap_or_default());
}

/// Appends a number in hexadecimal, upper case, without leading zeros.
pub fn hex_upper(value: u64, out: &mut Vec<u8>) {
    push_hex(UPPER_DIGITS, value, out);
}

/// Appends a number in hexadecimal, lower case, without leading zeros.
pub fn hex_lower(value: u64, out: &mut Vec<u8>) {
    push_hex(LOWER_DIGITS, value, out);
}

/// Appends bytes as pairs of upper-case hexadecimal digits.
pub(super) fn push_bytes_upper(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.extend_from_slice(&[hex_digit(UPPER_DIGITS, byte >> 4), hex_digit(UPPER_DIGITS, *byte)]);
    }
}

/// Appends bytes as pairs of lower-case hexadecimal digits.
pub(super) fn push_bytes_lower(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.extend_from_slice(&[hex_digit(LOWER_DIGITS, byte >> 4), hex_digit(LOWER_DIGITS, *byte)]);
    }
}

/// Appends the shortest text that reads back equal; very large and very small numbers get an
/// exponent.
pub fn push_float<F: Into<f64> + std::fmt::Display + std::fmt::LowerExp + Copy>(value: F, out: &mut Vec<u8>) {
    let magnitude = value.into().abs();
    let is_plain = magnitude == 0.0 || (1e-5..1e16).contains(&magnitude) || !magnitude.is_finite();
    // Writing to a vector cannot fail.
    let _ = if is_plain { write!(out, "{value}") } else { write!(out, "{value:e}") };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        for number in (0..100_000_000).step_by(997).chain(99_990_000..100_000_000) {
            assert_eq!(format_digits(number), *format!("{number:08}").as_bytes());
        }
    }

    #[test]
    fn numbers_of_every_length_have_no_leading_zeros() {
        let powers = (0..20).map(|exponent| 10_u64.pow(exponent));
        let numbers = powers.flat_map(|power| [power - 1, power, power.saturating_mul(7).saturating_add(6)]);
        for number in numbers.chain([u64::MAX]) {
            let mut out = b"=".to_vec();
            push_u64(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("={number}"));
        }
    }
}
