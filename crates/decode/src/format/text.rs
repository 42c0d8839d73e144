//! Formats values as text, one element at a time.

use traceweir_format::spec::status::Status;
use traceweir_format::spec::types::OutType;
use traceweir_format::text::{chars16, decode_cp1252, until_nul16};
use traceweir_format::time::FileTime;
use traceweir_format::{Guid, lznt1};

use super::number::{hex_upper, push_bytes_upper, push_decimal, push_float};
use super::{Style, address, display_type, push_map_names};
use crate::schema::Field;
use crate::value::Value;

/// The size limit of text that a compressed value unpacks to, in bytes.
const MAX_UNPACKED_BYTES: usize = 1 << 20;

/// Appends a value as text.
#[inline]
pub fn push_text(field: &Field, value: &Value<'_>, style: Style, out: &mut Vec<u8>) {
    let (out_type, map) = display_type(field, style);
    if map.is_some_and(|m| push_map_names(m, value, out)) {
        return;
    }
    push_unmapped(out_type, value, out);
}

fn push_unmapped(out_type: OutType, value: &Value<'_>, out: &mut Vec<u8>) {
    match *value {
        Value::Null => {}
        Value::Text16(bytes) => push_utf16_text(bytes, out),
        Value::Text8(bytes) => push_8bit_text(bytes, out_type, out),
        Value::F32(v) => push_float(v, out),
        Value::F64(v) => push_float(v, out),
        Value::Bool(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
        Value::Guid(guid) => push_guid(guid, out),
        Value::FileTime(v) if out_type == OutType::ETWTIME => push_decimal(v, out),
        Value::FileTime(v) => {
            address::push_date(&FileTime(v).civil(), out_type == OutType::DATETIME_UTC, out)
        }
        Value::SystemTime(words) => match address::parse_system_time(words) {
            Some(civil) => address::push_date(&civil, out_type == OutType::DATETIME_UTC, out),
            None => out.extend_from_slice(b"(no date)"),
        },
        Value::Sid(bytes) => address::push_sid(bytes, out),
        Value::Bytes(bytes) => push_binary(bytes, out_type, out),
        Value::Pointer(v) if out_type == OutType::UNSIGNEDLONG => push_decimal(v, out),
        Value::Pointer(v) => push_hex(v, out),
        _ => push_integer(out_type, value, out),
    }
}

fn push_hex(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0x");
    hex_upper(value, out);
}

/// The largest port number; a larger number is not shown as a port.
pub(super) const PORT_MAX: u64 = 0xFFFF;
/// The largest 32-bit number. Only numbers up to it are shown as IPv4 addresses and status codes;
/// only larger numbers are shown as dates.
pub(super) const U32_MAX: u64 = 0xFFFF_FFFF;

/// Returns whether a number has the width of a character: 8 or 16 bits.
pub(super) const fn is_character(value: &Value<'_>) -> bool {
    is_8_bit(value) || matches!(value, Value::U16(_) | Value::I16(_))
}

pub(super) const fn is_8_bit(value: &Value<'_>) -> bool {
    matches!(value, Value::U8(_) | Value::I8(_))
}

fn push_integer(out_type: OutType, value: &Value<'_>, out: &mut Vec<u8>) {
    let (extended, bits) = (value.as_u64().unwrap_or(0), value.bits().unwrap_or(0));
    match out_type {
        OutType::HEXINT8
        | OutType::HEXINT16
        | OutType::HEXINT32
        | OutType::HEXINT64
        | OutType::CODE_POINTER => {
            push_hex(bits, out);
        }
        OutType::BOOLEAN => out.extend_from_slice(if extended == 0 { b"false" } else { b"true" }),
        OutType::STRING if is_character(value) => push_character(bits, is_8_bit(value), out),
        // Ports and IPv4 addresses are in network byte order.
        OutType::PORT if bits <= PORT_MAX => push_decimal(u16::try_from(bits).unwrap_or(0).swap_bytes(), out),
        OutType::IPV4 if bits <= U32_MAX => {
            address::push_ipv4(u32::try_from(bits).unwrap_or(0).to_le_bytes(), out)
        }
        OutType::WIN32ERROR => {
            push_decimal(bits, out);
            push_meaning(u32::try_from(bits).ok(), out);
        }
        OutType::NTSTATUS | OutType::HRESULT | OutType::ERRORCODE if bits <= U32_MAX => {
            let code = u32::try_from(bits).unwrap_or(0);
            push_padded_hex(code, out);
            // An ERRORCODE may be a code of any kind, so it gets no meaning. Neither does an
            // NTSTATUS or HRESULT with a zero high half, except 0: it is not the Win32 code with
            // the same number.
            let has_meaning = out_type != OutType::ERRORCODE && (code == 0 || code >> 16 != 0);
            push_meaning(has_meaning.then_some(code), out);
        }
        OutType::DATETIME | OutType::DATETIME_UTC | OutType::CIMDATETIME if bits > U32_MAX => {
            address::push_date(
                &FileTime(extended.cast_signed()).civil(),
                out_type == OutType::DATETIME_UTC,
                out,
            );
        }
        _ if is_unsigned_out_type(out_type) => push_decimal(bits, out),
        _ if value.is_signed() || is_signed_out_type(out_type) => push_decimal(sign_extend(value), out),
        _ => push_decimal(bits, out),
    }
}

/// Returns the integer, sign-extended from the width of its type.
pub(super) fn sign_extend(value: &Value<'_>) -> i64 {
    match *value {
        Value::U8(v) => i64::from(v.cast_signed()),
        Value::U16(v) => i64::from(v.cast_signed()),
        Value::U32(v) => i64::from(v.cast_signed()),
        _ => value.as_u64().unwrap_or(0).cast_signed(),
    }
}

pub(super) const fn is_signed_out_type(out_type: OutType) -> bool {
    matches!(out_type, OutType::BYTE | OutType::SHORT | OutType::INT | OutType::LONG)
}

pub(super) const fn is_unsigned_out_type(out_type: OutType) -> bool {
    matches!(
        out_type,
        OutType::UNSIGNEDBYTE
            | OutType::UNSIGNEDSHORT
            | OutType::UNSIGNEDINT
            | OutType::UNSIGNEDLONG
            | OutType::PID
            | OutType::TID
    )
}

fn push_padded_hex(code: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0x");
    push_bytes_upper(&code.to_be_bytes(), out);
}

fn push_meaning(code: Option<u32>, out: &mut Vec<u8>) {
    if let Some(text) = code.and_then(|c| Status(c).meaning()) {
        out.extend_from_slice(b": ");
        out.extend_from_slice(text.as_bytes());
    }
}

fn push_character(bits: u64, is_narrow: bool, out: &mut Vec<u8>) {
    let c = if is_narrow {
        decode_cp1252(u8::try_from(bits).unwrap_or(0))
    } else {
        u32::try_from(bits).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    if c != '\0' {
        push_char(c, out);
    }
}

pub(super) fn push_char(c: char, out: &mut Vec<u8>) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Appends UTF-16LE as UTF-8; replaces invalid characters.
#[inline]
pub fn push_utf16_text(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.chunks_exact(2).all(|u| matches!(u, [lo, 0] if *lo < 0x80)) {
        out.extend(bytes.iter().step_by(2).take(bytes.len() / 2));
    } else {
        chars16(bytes).for_each(|c| push_char(c, out));
    }
}

fn push_8bit_text(bytes: &[u8], out_type: OutType, out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => out.extend_from_slice(text.as_bytes()),
        Err(_) if is_utf8(out_type) => {
            out.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes());
        }
        Err(_) => bytes.iter().for_each(|&b| push_char(decode_cp1252(b), out)),
    }
}

/// Returns whether 8-bit text of this out type is UTF-8, valid or not.
pub(super) const fn is_utf8(out_type: OutType) -> bool {
    matches!(out_type, OutType::XML | OutType::JSON | OutType::UTF8)
}

fn push_guid(guid: Guid, out: &mut Vec<u8>) {
    out.push(b'{');
    out.extend(guid.to_ascii().iter().map(u8::to_ascii_uppercase));
    out.push(b'}');
}

fn push_binary(bytes: &[u8], out_type: OutType, out: &mut Vec<u8>) {
    match out_type {
        OutType::IPV6 if address::push_ipv6(bytes, out) => {}
        OutType::SOCKETADDRESS if address::push_socket_address(bytes, out) => {}
        OutType::STRING | OutType::UTF8 | OutType::JSON => push_8bit_text(bytes, out_type, out),
        OutType::XML => match unpack_text(bytes) {
            Some(text) => push_utf16_text(&text, out),
            None => push_8bit_text(bytes, out_type, out),
        },
        _ if bytes.is_empty() => {}
        _ => {
            out.extend_from_slice(b"0x");
            push_bytes_upper(bytes, out);
        }
    }
}

/// Unpacks UTF-16 text from a 4-byte unpacked size and an LZNT1 stream, the form of benchmark
/// results in merged traces.
pub(super) fn unpack_text(bytes: &[u8]) -> Option<Vec<u8>> {
    let size = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    let mut text = Vec::new();
    lznt1::decompress(bytes.get(4..)?, size.min(MAX_UNPACKED_BYTES), &mut text).ok()?;
    // The unpacked size includes a terminator.
    text.truncate(until_nul16(&text).len());
    (!text.is_empty()).then_some(text)
}
