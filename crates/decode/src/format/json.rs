//! Formats values as JSON.

use traceweir_format::spec::types::OutType;
use traceweir_format::text::{chars16, decode_cp1252};
use traceweir_format::time::FileTime;

use super::number::{hex_lower, push_bytes_lower, push_decimal, push_float};
use super::text::{
    PORT_MAX, U32_MAX, is_8_bit, is_character, is_signed_out_type, is_unsigned_out_type, is_utf8, push_char,
    sign_extend, unpack_text,
};
use super::{Style, address, display_type, push_map_names, push_utf16_text};
use crate::schema::Field;
use crate::value::Value;

/// The largest integer up to which JSON readers that use `f64` represent every integer exactly.
const MAX_EXACT_INTEGER: u64 = 1 << 53;

/// Appends a value as JSON.
#[inline]
pub fn push_json(field: &Field, value: &Value<'_>, style: Style, out: &mut Vec<u8>) {
    let (out_type, map) = display_type(field, style);
    if let Some(map) = map {
        let mut name = Vec::new();
        if push_map_names(map, value, &mut name) {
            return push_json_string(std::str::from_utf8(&name).unwrap_or_default(), out);
        }
    }
    push_unmapped(out_type, value, out);
}

/// Appends a string in quotes, with JSON's escapes.
#[inline]
pub fn push_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    push_escaped(text.as_bytes(), out);
    out.push(b'"');
}

/// Returns whether a text is printable ASCII without characters that JSON escapes.
#[inline]
#[must_use]
pub fn is_plain_json(text: &[u8]) -> bool {
    let is_plain = |b: u8| (b' '..0x7F).contains(&b) & (b != b'"') & (b != b'\\');
    // Without an early exit the compiler checks many bytes at a time.
    text.iter().fold(true, |plain, b| plain & is_plain(*b))
}

fn push_unmapped(out_type: OutType, value: &Value<'_>, out: &mut Vec<u8>) {
    match *value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
        Value::F32(v) if v.is_finite() => push_float(v, out),
        Value::F64(v) if v.is_finite() => push_float(v, out),
        Value::F32(v) => push_non_finite(f64::from(v), out),
        Value::F64(v) => push_non_finite(v, out),
        Value::Pointer(v) if out_type == OutType::UNSIGNEDLONG => push_unsigned(v, out),
        Value::Pointer(v) => push_quoted(out, |out| push_hex(v, out)),
        Value::Text16(bytes) => push_quoted(out, |out| push_escaped_utf16(bytes, out)),
        Value::Text8(bytes) => push_quoted(out, |out| push_escaped_8bit(bytes, out_type, out)),
        Value::Guid(guid) => push_quoted(out, |out| out.extend_from_slice(&guid.to_ascii())),
        Value::FileTime(v) if out_type == OutType::ETWTIME => push_signed(v, out),
        Value::FileTime(v) => push_quoted(out, |out| address::push_date(&FileTime(v).civil(), true, out)),
        Value::SystemTime(words) => match address::parse_system_time(words) {
            Some(civil) => push_quoted(out, |out| address::push_date(&civil, true, out)),
            None => out.extend_from_slice(b"null"),
        },
        Value::Sid(bytes) => push_quoted(out, |out| address::push_sid(bytes, out)),
        Value::Bytes(bytes) => push_quoted(out, |out| push_binary(bytes, out_type, out)),
        _ => push_integer(out_type, value, out),
    }
}

fn push_integer(out_type: OutType, value: &Value<'_>, out: &mut Vec<u8>) {
    let bits = value.bits().unwrap_or(0);
    match out_type {
        OutType::BOOLEAN => out.extend_from_slice(if bits == 0 { b"false" } else { b"true" }),
        OutType::STRING if is_character(value) => push_quoted(out, |out| {
            let unit = u16::try_from(bits).unwrap_or(0);
            match u8::try_from(bits) {
                Ok(0) => {}
                Ok(byte) if is_8_bit(value) => push_escaped_char(decode_cp1252(byte), out),
                _ => push_escaped_utf16(&unit.to_le_bytes(), out),
            }
        }),
        // Ports and IPv4 addresses are in network byte order.
        OutType::PORT if bits <= PORT_MAX => push_decimal(u16::try_from(bits).unwrap_or(0).swap_bytes(), out),
        OutType::IPV4 if bits <= U32_MAX => {
            push_quoted(out, |out| address::push_ipv4(u32::try_from(bits).unwrap_or(0).to_le_bytes(), out));
        }
        OutType::HEXINT64 | OutType::CODE_POINTER if is_64_bit(value) => {
            push_quoted(out, |out| push_hex(bits, out))
        }
        OutType::DATETIME | OutType::DATETIME_UTC | OutType::CIMDATETIME if bits > U32_MAX => {
            push_quoted(out, |out| address::push_date(&FileTime(bits.cast_signed()).civil(), true, out));
        }
        _ if is_unsigned_out_type(out_type) => push_unsigned(bits, out),
        _ if value.is_signed() || is_signed_out_type(out_type) => push_signed(sign_extend(value), out),
        _ => push_unsigned(bits, out),
    }
}

const fn is_64_bit(value: &Value<'_>) -> bool {
    matches!(value, Value::U64(_) | Value::I64(_))
}

fn push_hex(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0x");
    hex_lower(value, out);
}

fn push_quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

fn push_unsigned(value: u64, out: &mut Vec<u8>) {
    if value <= MAX_EXACT_INTEGER {
        push_decimal(value, out)
    } else {
        push_quoted(out, |out| push_decimal(value, out))
    }
}

fn push_signed(value: i64, out: &mut Vec<u8>) {
    if value.unsigned_abs() <= MAX_EXACT_INTEGER {
        push_decimal(value, out)
    } else {
        push_quoted(out, |out| push_decimal(value, out))
    }
}

fn push_non_finite(value: f64, out: &mut Vec<u8>) {
    let name = if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    push_json_string(name, out);
}

fn push_binary(bytes: &[u8], out_type: OutType, out: &mut Vec<u8>) {
    match out_type {
        OutType::IPV6 if address::push_ipv6(bytes, out) => {}
        OutType::SOCKETADDRESS if address::push_socket_address(bytes, out) => {}
        OutType::STRING | OutType::UTF8 | OutType::JSON => push_escaped_8bit(bytes, out_type, out),
        OutType::XML => match unpack_text(bytes) {
            Some(text) => push_escaped_utf16(&text, out),
            None => push_escaped_8bit(bytes, out_type, out),
        },
        _ => push_bytes_lower(bytes, out),
    }
}

/// Appends valid UTF-8 with JSON's escapes.
#[inline]
fn push_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    if is_plain_json(bytes) {
        return out.extend_from_slice(bytes);
    }
    // In UTF-8, 0xC2 begins the control characters beyond ASCII, which some terminals obey.
    let needs_no_escape = |b: &u8| *b >= 0x20 && !matches!(*b, b'"' | b'\\' | 0x7F | 0xC2);
    let mut remaining = bytes;
    while let Some(at) = remaining.iter().position(|b| !needs_no_escape(b)) {
        let (before, after) = remaining.split_at(at);
        out.extend_from_slice(before);
        remaining = match after {
            [0xC2, control @ 0x80..=0x9F, after @ ..] => {
                push_escaped_byte(*control, out);
                after
            }
            [0xC2, after @ ..] => {
                out.push(0xC2);
                after
            }
            [special, after @ ..] => {
                push_escaped_byte(*special, out);
                after
            }
            [] => &[],
        };
    }
    out.extend_from_slice(remaining);
}

fn push_escaped_byte(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        _ => {
            out.extend_from_slice(b"\\u00");
            push_bytes_lower(&[byte], out);
        }
    }
}

fn push_escaped_char(c: char, out: &mut Vec<u8>) {
    push_escaped(c.encode_utf8(&mut [0; 4]).as_bytes(), out);
}

fn push_escaped_utf16(bytes: &[u8], out: &mut Vec<u8>) {
    let needs_no_escape =
        |u: &[u8]| matches!(u, [lo, 0] if (0x20..0x7F).contains(lo) && *lo != b'"' && *lo != b'\\');
    if bytes.chunks_exact(2).all(needs_no_escape) {
        push_utf16_text(bytes, out);
    } else {
        chars16(bytes).for_each(|c| {
            if c.is_control() || c == '"' || c == '\\' {
                push_escaped_char(c, out)
            } else {
                push_char(c, out)
            }
        });
    }
}

fn push_escaped_8bit(bytes: &[u8], out_type: OutType, out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => push_escaped(text.as_bytes(), out),
        Err(_) if is_utf8(out_type) => push_escaped(String::from_utf8_lossy(bytes).as_bytes(), out),
        Err(_) => bytes.iter().for_each(|&b| push_escaped_char(decode_cp1252(b), out)),
    }
}
