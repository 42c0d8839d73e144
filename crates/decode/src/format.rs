//! Formats values by out type and map, as text for people and JSON for programs.
//!
//! *Text* is what `TdhFormatProperty` produces; *JSON* keeps numbers as numbers. The functions for
//! text and for JSON append UTF-8 to a byte vector; most values need no other allocation.
//!
//! | value | text | JSON |
//! |---|---|---|
//! | integer | decimal | number; above 2⁵³ a string |
//! | hexadecimal, up to 32 bits | `0x1F` | number |
//! | 64-bit hexadecimal, pointer | `0x1F` | `"0x1f"` |
//! | mapped | the name; the number where the map has none | the same |
//! | date | `2020-07-29T00:07:00.6212345`, with `Z` if the out type says UTC | always with `Z` |
//! | GUID | `{XXXXXXXX-…}` | lower case, no braces |
//! | bytes | `0x1F8B` | `"1f8b"` |

mod address;
mod json;
mod number;
mod padded;
mod text;
mod word;

pub use json::{is_plain_json, push_json, push_json_string};
pub use number::{format_digits, hex_lower, hex_upper, push_decimal, push_float, push_u64};
pub use padded::PaddedText;
pub use text::{push_text, push_utf16_text};
pub use word::{is_plain_word, push_escaped_text, push_word};

use traceweir_format::spec::types::{InType, OutType};

use crate::schema::{Field, FieldKind, ValueMap};
use crate::value::Value;

/// Options for the display of values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Whether mapped values are shown as numbers.
    pub numeric: bool,
}

/// Returns the out type and the map that a field is displayed with; structures have neither.
fn display_type(field: &Field, style: Style) -> (OutType, Option<&ValueMap>) {
    match &field.kind {
        FieldKind::Value { input, output, map } => {
            (effective_out_type(*input, *output), map.as_deref().filter(|_| !style.numeric))
        }
        FieldKind::Struct { .. } => (OutType::NULL, None),
    }
}

/// Returns the out type that applies to a value. Values of hexadecimal types are shown in
/// hexadecimal unless their out type can show integers; other values keep their out type.
#[inline]
const fn effective_out_type(input: InType, output: OutType) -> OutType {
    match input {
        InType::HEXINT32 if !is_integer_out_type(output) => OutType::HEXINT32,
        InType::HEXINT64 if !is_integer_out_type(output) => OutType::HEXINT64,
        _ => output,
    }
}

/// Returns whether an out type can show an integer.
const fn is_integer_out_type(output: OutType) -> bool {
    match output {
        OutType::DATETIME
        | OutType::CIMDATETIME
        | OutType::DATETIME_UTC
        | OutType::ETWTIME
        | OutType::BOOLEAN => true,
        OutType::HEXINT8
        | OutType::HEXINT16
        | OutType::HEXINT32
        | OutType::HEXINT64
        | OutType::CODE_POINTER => true,
        OutType::ERRORCODE | OutType::WIN32ERROR | OutType::NTSTATUS | OutType::HRESULT => true,
        OutType::PORT | OutType::IPV4 => true,
        _ => text::is_signed_out_type(output) || text::is_unsigned_out_type(output),
    }
}

/// The size limit of the names that are shown for a number, in bytes.
const MAX_NAMES_BYTES: usize = 4096;

/// Appends the names that a map gives a value, joined by `|`; unnamed bits follow in hexadecimal.
/// Returns `false` if the map names neither the value nor any of its bits, or if the names are too
/// long.
fn push_map_names(map: &ValueMap, value: &Value<'_>, out: &mut Vec<u8>) -> bool {
    let Some(bits) = value.bits() else { return false };
    if !map.is_bit_map {
        let Some(name) = map.value(bits) else { return false };
        out.extend_from_slice(name.as_bytes());
        return true;
    }
    let start = out.len();
    let mut unnamed = bits;
    for (mask, name) in map.entries() {
        let is_match = if *mask == 0 { bits == 0 } else { bits & mask == *mask };
        if is_match {
            if out.len() > start {
                out.push(b'|');
            }
            out.extend_from_slice(name.as_bytes());
            unnamed &= !mask;
            // A map may give one bit a thousand names; the number is then easier to read.
            if out.len().saturating_sub(start) > MAX_NAMES_BYTES {
                out.truncate(start);
                return false;
            }
        }
    }
    if out.len() > start && unnamed != 0 {
        out.extend_from_slice(b"|0x");
        hex_lower(unnamed, out);
    }
    out.len() > start
}

#[cfg(test)]
mod tests;
