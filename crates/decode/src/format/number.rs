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
