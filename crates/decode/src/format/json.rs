//! Formats values as JSON.

use traceweir_format::spec::types::OutType;
use traceweir_format::text::{chars16, cp1252};
use traceweir_format::time::FileTime;

use super::number::{bytes_lower, decimal, hex_lower, push_float};
use super::text::{
    PORT_MAX, U32_MAX, is_character, is_narrow, is_utf8, push_char, signed, signed_of, unpacked_text,
    unsigned,
};
use super::{Style, address, mapped, shown_as, text_of_utf16};
use crate::schema::Field;
use crate::value::Value;

/// The largest integer that every JSON reader represents exactly.
const EXACT: u64 = 1 << 53;

/// Appends a value as JSON.
#[inline]
pub fn json(field: &Field, value: &Value<'_>, style: Style, out: &mut Vec<u8>) {
    let (output, map) = shown_as(field, style);
    if let Some(map) = map {
        let mut name = Vec::new();
        if mapped(map, value, &mut name) {
            return json_string(std::str::from_utf8(&name).unwrap_or_default(), out);
        }
    }
    plain(output, value, out);
}

/// Appends a string in quotes, with JSON's escapes.
#[inline]
pub fn json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escape(text.as_bytes(), out);
    out.push(b'"');
}

fn plain(output: OutType, value: &Value<'_>, out: &mut Vec<u8>) {
    match *value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
        Value::F32(v) if v.is_finite() => push_float(v, out),
        Value::F64(v) if v.is_finite() => push_float(v, out),
        Value::F32(v) => non_finite(f64::from(v), out),
        Value::F64(v) => non_finite(v, out),
        Value::Pointer(v) if output == OutType::UNSIGNEDLONG => unsigned_number(v, out),
        Value::Pointer(v) => quoted(out, |out| hex(v, out)),
        Value::Text16(bytes) => quoted(out, |out| escape16(bytes, out)),
        Value::Text8(bytes) => quoted(out, |out| escape8(bytes, output, out)),
        Value::Guid(guid) => quoted(out, |out| out.extend_from_slice(&guid.to_ascii())),
        Value::FileTime(v) if output == OutType::ETWTIME => signed_number(v, out),
        Value::FileTime(v) => quoted(out, |out| address::date(&FileTime(v).civil(), true, out)),
        Value::SystemTime(words) => match address::system_time(words) {
            Some(civil) => quoted(out, |out| address::date(&civil, true, out)),
            None => out.extend_from_slice(b"null"),
        },
        Value::Sid(bytes) => quoted(out, |out| address::sid(bytes, out)),
        Value::Bytes(bytes) => quoted(out, |out| binary(bytes, output, out)),
        _ => integer(output, value, out),
    }
}

fn integer(output: OutType, value: &Value<'_>, out: &mut Vec<u8>) {
    let bits = value.bits().unwrap_or(0);
    match output {
        OutType::BOOLEAN => out.extend_from_slice(if bits == 0 { b"false" } else { b"true" }),
        OutType::STRING if is_character(value) => quoted(out, |out| {
            let unit = u16::try_from(bits).unwrap_or(0);
            match u8::try_from(bits) {
                Ok(0) => {}
                Ok(byte) if is_narrow(value) => escape_char(cp1252(byte), out),
                _ => escape16(&unit.to_le_bytes(), out),
            }
        }),
        OutType::PORT if bits <= PORT_MAX => decimal(u16::try_from(bits).unwrap_or(0).swap_bytes(), out),
        OutType::IPV4 if bits <= U32_MAX => {
            quoted(out, |out| address::ipv4(u32::try_from(bits).unwrap_or(0).to_le_bytes(), out));
        }
        OutType::HEXINT64 | OutType::CODE_POINTER if is_64_bit(value) => quoted(out, |out| hex(bits, out)),
        OutType::DATETIME | OutType::DATETIME_UTC | OutType::CIMDATETIME if bits > U32_MAX => {
            quoted(out, |out| address::date(&FileTime(bits.cast_signed()).civil(), true, out));
        }
        _ if unsigned(output) => unsigned_number(bits, out),
        _ if value.is_signed() || signed(output) => signed_number(signed_of(value), out),
        _ => unsigned_number(bits, out),
    }
}

const fn is_64_bit(value: &Value<'_>) -> bool {
    matches!(value, Value::U64(_) | Value::I64(_))
}

fn hex(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0x");
    hex_lower(value, out);
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

fn unsigned_number(value: u64, out: &mut Vec<u8>) {
    if value <= EXACT { decimal(value, out) } else { quoted(out, |out| decimal(value, out)) }
}

fn signed_number(value: i64, out: &mut Vec<u8>) {
    if value.unsigned_abs() <= EXACT { decimal(value, out) } else { quoted(out, |out| decimal(value, out)) }
}

fn non_finite(value: f64, out: &mut Vec<u8>) {
    let name = if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    json_string(name, out);
}

fn binary(bytes: &[u8], output: OutType, out: &mut Vec<u8>) {
    match output {
        OutType::IPV6 if address::ipv6(bytes, out) => {}
        OutType::SOCKETADDRESS if address::socket_address(bytes, out) => {}
        OutType::STRING | OutType::UTF8 | OutType::JSON => escape8(bytes, output, out),
        OutType::XML => match unpacked_text(bytes) {
            Some(text) => escape16(&text, out),
            None => escape8(bytes, output, out),
        },
        _ => bytes_lower(bytes, out),
    }
}

/// Appends valid UTF-8 with JSON's escapes.
#[inline]
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    // 0xC2 begins the control characters beyond ASCII, which some terminals obey.
    let plain = |b: &u8| *b >= 0x20 && !matches!(*b, b'"' | b'\\' | 0x7F | 0xC2);
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|b| !plain(b)) {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before);
        rest = match after {
            [0xC2, control @ 0x80..=0x9F, after @ ..] => {
                escape_byte(*control, out);
                after
            }
            [0xC2, after @ ..] => {
                out.push(0xC2);
                after
            }
            [special, after @ ..] => {
                escape_byte(*special, out);
                after
            }
            [] => &[],
        };
    }
    out.extend_from_slice(rest);
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        _ => {
            out.extend_from_slice(b"\\u00");
            bytes_lower(&[byte], out);
        }
    }
}

fn escape_char(c: char, out: &mut Vec<u8>) {
    escape(c.encode_utf8(&mut [0; 4]).as_bytes(), out);
}

fn escape16(bytes: &[u8], out: &mut Vec<u8>) {
    let clean = |u: &[u8]| matches!(u, [lo, 0] if (0x20..0x7F).contains(lo) && *lo != b'"' && *lo != b'\\');
    if bytes.chunks_exact(2).all(clean) {
        text_of_utf16(bytes, out);
    } else {
        chars16(bytes).for_each(|c| {
            if c.is_control() || c == '"' || c == '\\' { escape_char(c, out) } else { push_char(c, out) }
        });
    }
}

fn escape8(bytes: &[u8], output: OutType, out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => escape(text.as_bytes(), out),
        Err(_) if is_utf8(output) => escape(String::from_utf8_lossy(bytes).as_bytes(), out),
        Err(_) => bytes.iter().for_each(|&b| escape_char(cp1252(b), out)),
    }
}
