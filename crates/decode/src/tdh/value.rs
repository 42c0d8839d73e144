//! Formats one value as text without any schema, as TdhFormatProperty does.

use traceweir_format::Guid;
use traceweir_format::spec::types::{InType, OutType};

use super::{Answer, Refusal};
use crate::format::{self, Style};
use crate::schema::{Field, FieldKind, Length, Schema};
use crate::source::kernel;
use crate::value::Value;
use crate::walk::{Visitor, Walker, header_names};

/// A value that was read from the start of some bytes.
#[derive(Clone, Debug)]
pub struct DecodedValue<'p> {
    /// The decoded value.
    pub value: Value<'p>,
    /// The number of bytes read, including terminators and counts.
    pub consumed: usize,
    field: Field,
}

/// Reads the value at the start of `data`. `length` is the length of its property: in UTF-16 code
/// units for UNICODESTRING, in bytes for ANSISTRING and BINARY; other types ignore it. 0 means the
/// length that the type defines. Binary data of length 0 is empty, unless it is an IPv6 address.
pub fn decode_value(
    input: InType,
    output: OutType,
    length: u16,
    pointer_size: usize,
    data: &[u8],
) -> Answer<DecodedValue<'_>> {
    let can_have_length = matches!(input, InType::UNICODESTRING | InType::ANSISTRING | InType::BINARY);
    // Binary data of length 0 is empty: the length comes from another property that is 0.
    let has_fixed_length =
        can_have_length && (length != 0 || (input == InType::BINARY && output != OutType::IPV6));
    let field = Field::value("", input, output).with_length(if has_fixed_length {
        Length::Fixed(length)
    } else {
        Length::Natural
    });
    let schema = Schema::default().seal(vec![field.clone()], 1)?;
    let mut first = FirstValue(None);
    let remaining = Walker::default().walk(&schema, data, pointer_size, &mut first)?;
    // If the event ends before a NUL-terminated text, the text is empty: events of older versions
    // lack their last texts.
    let empty_text = match input {
        InType::UNICODESTRING if !has_fixed_length => Some(Value::Text16(&[])),
        InType::ANSISTRING if !has_fixed_length => Some(Value::Text8(&[])),
        _ => None,
    };
    let value = first.0.or(empty_text).ok_or(Refusal::Data("there is no data for the property"))?;
    Ok(DecodedValue { value, consumed: data.len().saturating_sub(remaining.len()), field })
}

impl<'p> DecodedValue<'p> {
    /// Returns the value as an event of `class` and `opcode` shows it: `LoggerName` and
    /// `LogFileName` of the log-file header event become the names that the pointers stand for.
    /// `remaining` is the event's payload from this value to its end.
    #[must_use]
    pub fn shown_in(mut self, class: &Guid, opcode: u8, pointer_size: usize, remaining: &'p [u8]) -> Self {
        let is_pointer = matches!(self.field.kind, FieldKind::Value { input: InType::POINTER, .. });
        if is_pointer
            && header_names::is_log_file_header(class, opcode)
            && let Some(schema) = kernel::build_schema(class, opcode, 0)
            && let Some(name) = header_names::find_name_of_pointer(&schema, remaining, pointer_size)
        {
            self.value = name;
            self.field = Field::value("", InType::UNICODESTRING, OutType::NULL);
        }
        self
    }

    /// Appends the value as text.
    pub fn text(&self, out: &mut Vec<u8>) {
        format::push_text(&self.field, &self.value, Style::default(), out);
    }
}

struct FirstValue<'p>(Option<Value<'p>>);

impl<'p> Visitor<'p> for FirstValue<'p> {
    fn value(&mut self, _index: usize, _field: &Field, value: Value<'p>) {
        self.0 = Some(value);
    }
}

/// The most names that are returned for a number. Bits that only later entries name count as
/// unnamed.
const MAX_MAP_NAMES: usize = 64;

/// Returns the names of a number in a map: one name for a value, or in a bit map those of all
/// entries whose bits are set. Returns an error if the number or one of its bits has no name; the
/// caller then shows the number.
pub fn map_names<T>(
    is_bit_map: bool,
    entries: impl Iterator<Item = (u32, T)>,
    value: &Value<'_>,
) -> Answer<Vec<T>> {
    const NO_NAME: Refusal = Refusal::Data("the map has no name for the value");
    let number = value.bits().and_then(|bits| u32::try_from(bits).ok()).ok_or(NO_NAME)?;
    let mut unnamed_bits = number;
    let mut names = Vec::new();
    for (entry, name) in entries {
        let is_named = if is_bit_map && entry != 0 { number & entry == entry } else { number == entry };
        if is_named && names.len() < MAX_MAP_NAMES {
            names.push(name);
            unnamed_bits &= !entry;
            if !is_bit_map {
                return Ok(names);
            }
        }
    }
    if names.is_empty() || unnamed_bits != 0 { Err(NO_NAME) } else { Ok(names) }
}
