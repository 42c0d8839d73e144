//! Appends values of payloads to columns.

use std::borrow::Cow;

use traceweir_decode::format::{Style, push_json, push_text};
use traceweir_decode::schema::{Field, FieldKind};
use traceweir_decode::value::Value;
use traceweir_format::spec::types::OutType;
use traceweir_format::text::{chars16, decode_cp1252};
use traceweir_format::time::{Civil, FileTime};

use super::layout::Conversion;
use crate::column::Column;

/// Appends a value to the column of its field.
#[inline]
pub(super) fn push_value(
    column: &mut Column,
    conversion: Conversion,
    field: &Field,
    value: &Value<'_>,
    scratch: &mut Vec<u8>,
) {
    match conversion {
        Conversion::Unsigned => match value.bits() {
            Some(bits) => column.push_unsigned(bits),
            None => column.push_null(),
        },
        Conversion::Signed => column.push_signed(sign_extend(value)),
        Conversion::Bool => match value.bits() {
            Some(bits) => column.push_bool(bits != 0),
            None => column.push_null(),
        },
        Conversion::Port => match value {
            Value::U16(port) => column.push_unsigned(port.swap_bytes().into()),
            Value::I16(port) => column.push_unsigned(port.cast_unsigned().swap_bytes().into()),
            _ => column.push_null(),
        },
        Conversion::Float => match *value {
            Value::F32(number) => column.push_float(number.into()),
            Value::F64(number) => column.push_float(number),
            _ => column.push_null(),
        },
        Conversion::Time => match to_time(value) {
            Some(time) => column.push_time(time),
            None => column.push_null(),
        },
        Conversion::Bytes => match value {
            Value::Bytes(bytes) => column.push_bytes(bytes),
            _ => column.push_null(),
        },
        Conversion::Text | Conversion::Json => push_text_value(column, field, value, scratch),
    }
}

/// Returns an integer, sign-extended from the width of its type.
fn sign_extend(value: &Value<'_>) -> Option<i64> {
    Some(match *value {
        Value::U8(v) => v.cast_signed().into(),
        Value::U16(v) => v.cast_signed().into(),
        Value::U32(v) => v.cast_signed().into(),
        Value::FileTime(v) => v,
        _ => value.as_u64()?.cast_signed(),
    })
}

fn to_time(value: &Value<'_>) -> Option<FileTime> {
    match *value {
        Value::FileTime(time) => Some(FileTime(time)),
        Value::U64(time) => Some(FileTime(i64::try_from(time).ok()?)),
        Value::I64(time) => Some(FileTime(time)),
        Value::SystemTime([year, month, _, day, hour, minute, second, millisecond]) => {
            let small = |number: u16| u8::try_from(number).ok();
            let is_time = hour < 24 && minute < 60 && second < 60 && millisecond < 1000;
            FileTime::from_civil(&Civil {
                year: i32::from(year),
                month: small(month)?,
                day: small(day)?,
                hour: small(hour)?,
                minute: small(minute)?,
                second: small(second)?,
                units: u32::from(millisecond).saturating_mul(10_000),
            })
            .filter(|_| is_time)
        }
        _ => None,
    }
}

/// Appends a value as text. Texts of the payload keep every character.
fn push_text_value(column: &mut Column, field: &Field, value: &Value<'_>, scratch: &mut Vec<u8>) {
    let has_map = matches!(&field.kind, FieldKind::Value { map: Some(_), .. });
    if let (Column::Text(column), false) = (&mut *column, has_map) {
        let out = column.open_value();
        match value {
            Value::Text8(bytes) if bytes.is_ascii() => out.extend_from_slice(bytes),
            Value::Text8(bytes) => push_8_bit_text(field, bytes, out),
            Value::Text16(bytes) => push_utf16(bytes, out),
            Value::Guid(guid) => out.extend_from_slice(&guid.to_ascii()),
            Value::Null => return column.push_null(),
            value => out.extend_from_slice(shown_text(field, value, scratch).as_bytes()),
        }
        return column.end_value();
    }
    column.push_text(&shown_text(field, value, scratch));
}

/// Returns a value as JSON shows it, without quotes: a name, a number, digits of bytes.
fn shown_text<'s>(field: &Field, value: &Value<'_>, scratch: &'s mut Vec<u8>) -> Cow<'s, str> {
    scratch.clear();
    push_json(field, value, Style::default(), scratch);
    let is_quoted = scratch.first() == Some(&b'"');
    if is_quoted && scratch.contains(&b'\\') {
        scratch.clear();
        push_text(field, value, Style::default(), scratch);
        return String::from_utf8_lossy(scratch);
    }
    let end = scratch.len().saturating_sub(1);
    let shown = if is_quoted { scratch.get(1..end) } else { Some(scratch.as_slice()) };
    String::from_utf8_lossy(shown.unwrap_or_default())
}

fn push_8_bit_text(field: &Field, bytes: &[u8], out: &mut Vec<u8>) {
    let is_utf8 =
        matches!(field.kind, FieldKind::Value { output: OutType::UTF8 | OutType::JSON | OutType::XML, .. });
    match std::str::from_utf8(bytes) {
        Ok(text) => out.extend_from_slice(text.as_bytes()),
        Err(_) if is_utf8 => out.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes()),
        Err(_) => {
            let text: String = bytes.iter().map(|byte| decode_cp1252(*byte)).collect();
            out.extend_from_slice(text.as_bytes());
        }
    }
}

fn push_utf16(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.chunks_exact(2).all(|unit| matches!(unit, [low, 0] if low.is_ascii())) {
        out.extend(bytes.iter().step_by(2).take(bytes.len() / 2));
    } else {
        for c in chars16(bytes) {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}
