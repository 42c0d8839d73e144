//! Payload filters, which select events by the values of their fields.
//!
//! ```text
//! blob        "EPF1" │ u16 version = 1 │ u16 filters │ filter…
//! filter      u16 size of the filter │ u16 event id │ u8 event version │ u8 flags │ u8 fields │
//!             u8 predicates │ field… │ predicate…
//! flags       1: one true predicate is enough (otherwise all must be true)
//!             2: this filter must hold (otherwise one of the filters without this flag must)
//! field       u8 shape │ u8 field with the length │ u16 bytes │ u8 kind of count │
//!             u8 field with the count │ u16 count
//! predicate   u16 size of the predicate │ u8 field │ u8 type │ u16 operator │ u16 0 │
//!             operand, zeros up to a multiple of eight
//! operand     a number of 8 bytes, two numbers for (NOT)BETWEEN │ a GUID │
//!             UTF-8 text after its u16 length
//! ```
//!
//! The fields are those of the event's payload from its start to the last field that a predicate
//! uses, so that the writer of the event finds a field without knowing a schema. The sizes of
//! filters and predicates are multiples of eight.
//!
//! An event passes if all filters of its id and version with flag 2 hold and, if there are filters
//! without this flag, at least one of them holds. Events without a filter pass. A payload too short
//! for a field fails the predicate. String comparison ignores case ([`fold_case`]).
//!
//! The layout is private to this project: callers get the blob from the functions that build
//! payload filters and pass it on unchanged.

mod build;
#[cfg(test)]
pub(super) mod tests;

pub use build::{Builder, Event, Operand};

use crate::spec::enable::{
    MAX_EVENT_FILTER_PAYLOAD_SIZE, MAX_PAYLOAD_PREDICATES, PayloadOperator as Operator,
};
use crate::wire::Cursor;
use crate::{Guid, Result};

/// The first four bytes of a blob.
const MAGIC: u32 = u32::from_le_bytes(*b"EPF1");
const VERSION: u16 = 1;
/// The most fields, up to and including the last one that a predicate uses.
pub const MAX_FIELDS: usize = 128;
/// Bytes of a blob before its filters, of a filter before its fields, and of a predicate before its
/// operand.
const HEAD_BYTES: usize = 8;

const ANY_FLAG: u8 = 1;
const REQUIRED_FLAG: u8 = 2;

/// The layout of one element of a field, which determines where the element ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A fixed number of bytes.
    Fixed(u16),
    /// 16-bit units up to a NUL.
    Utf16Z,
    /// Bytes up to a NUL.
    AnsiZ,
    /// A 16-bit byte count, then that many bytes.
    Counted,
    /// A security identifier.
    Sid,
    /// As many units as the value of an earlier number field.
    Length {
        /// Index of the earlier field.
        field: u8,
        /// Size of a unit in bytes.
        unit: u16,
    },
}

/// Number of elements of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// A fixed number of elements.
    Fixed(u16),
    /// As many elements as the value of an earlier number field.
    Field(u8),
}

/// A field of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The layout of an element.
    pub shape: Shape,
    /// The number of elements.
    pub count: Count,
}

impl Field {
    /// Returns a field of one element.
    #[must_use]
    pub const fn single(shape: Shape) -> Self {
        Self { shape, count: Count::Fixed(1) }
    }

    /// Encodes the field for a blob.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        let (shape, length_of, bytes) = match self.shape {
            Shape::Fixed(bytes) => (0_u8, 0, bytes),
            Shape::Utf16Z => (1, 0, 0),
            Shape::AnsiZ => (2, 0, 0),
            Shape::Counted => (3, 0, 0),
            Shape::Sid => (4, 0, 0),
            Shape::Length { field, unit } => (5, field, unit),
        };
        let (count_kind, count_of, count) = match self.count {
            Count::Fixed(count) => (0_u8, 0, count),
            Count::Field(field) => (1, field, 0),
        };
        let [b0, b1] = bytes.to_le_bytes();
        let [c0, c1] = count.to_le_bytes();
        u64::from_le_bytes([shape, length_of, b0, b1, count_kind, count_of, c0, c1])
    }

    /// Decodes a field of a blob.
    #[must_use]
    pub const fn from_word(word: u64) -> Option<Self> {
        let [shape, length_of, b0, b1, count_kind, count_of, c0, c1] = word.to_le_bytes();
        let bytes = u16::from_le_bytes([b0, b1]);
        let shape = match shape {
            0 => Shape::Fixed(bytes),
            1 => Shape::Utf16Z,
            2 => Shape::AnsiZ,
            3 => Shape::Counted,
            4 => Shape::Sid,
            5 => Shape::Length { field: length_of, unit: bytes },
            _ => return None,
        };
        let count = match count_kind {
            0 => Count::Fixed(u16::from_le_bytes([c0, c1])),
            1 => Count::Field(count_of),
            _ => return None,
        };
        Some(Self { shape, count })
    }

    /// Returns whether a field at `index` refers only to earlier fields.
    const fn refers_only_before(&self, index: usize) -> bool {
        let is_length_earlier = match self.shape {
            Shape::Length { field, .. } => (field as usize) < index,
            _ => true,
        };
        is_length_earlier
            && match self.count {
                Count::Field(field) => (field as usize) < index,
                Count::Fixed(_) => true,
            }
    }
}

/// The type of a field's first element in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number of 1, 2, 4 or 8 bytes.
    Integer {
        /// Size in bytes.
        bytes: u8,
        /// Whether the number has a sign.
        signed: bool,
    },
    /// A 16-byte GUID.
    Guid,
    /// Text in UTF-16.
    Utf16,
    /// 8-bit text, which is UTF-8 here.
    Ansi,
}

impl Type {
    /// Encodes the type for a blob.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Integer { bytes, signed } => bytes | (signed as u8) << 4,
            Self::Guid => 32,
            Self::Utf16 => 33,
            Self::Ansi => 34,
        }
    }

    /// Decodes a type of a blob.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 | 2 | 4 | 8 => Self::Integer { bytes: byte, signed: false },
            17 | 18 | 20 | 24 => Self::Integer { bytes: byte & 15, signed: true },
            32 => Self::Guid,
            33 => Self::Utf16,
            34 => Self::Ansi,
            _ => return None,
        })
    }

    /// Returns whether an operator can compare values of this type.
    const fn supports(self, operator: Operator) -> bool {
        match self {
            Self::Integer { .. } => {
                operator.0 <= Operator::MODULO.0 || matches!(operator, Operator::IS | Operator::ISNOT)
            }
            Self::Guid => matches!(operator, Operator::IS | Operator::ISNOT),
            Self::Utf16 | Self::Ansi => matches!(
                operator,
                Operator::CONTAINS | Operator::DOESNTCONTAIN | Operator::IS | Operator::ISNOT
            ),
        }
    }
}

/// The value that a field is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The lower and the upper bound; both are equal for a single number. The type decides whether
    /// the numbers are signed.
    Numbers(i128, i128),
    /// A 16-byte GUID.
    Guid(Guid),
    /// Text in UTF-8.
    Text(&'a str),
}

/// One comparison of a field with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicate<'a> {
    /// Index of the field.
    pub field: u8,
    /// The type of the field.
    pub kind: Type,
    /// The comparison operator.
    pub operator: Operator,
    /// The value to compare with.
    pub value: Value<'a>,
}

/// One filter of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a> {
    /// The id of the events that the filter applies to.
    pub event_id: u16,
    /// The version of the events that the filter applies to.
    pub event_version: u8,
    /// Whether one predicate that holds is enough.
    pub any: bool,
    /// Whether this filter must hold. Of the filters that are not required, one must hold.
    pub required: bool,
    fields: &'a [[u8; 8]],
    predicates: &'a [u8],
}

impl<'a> Filter<'a> {
    /// Returns the fields up to the last one that a predicate uses.
    pub fn fields(&self) -> impl Iterator<Item = Field> + use<'a> {
        self.fields.iter().map_while(|word| Field::from_word(u64::from_le_bytes(*word)))
    }

    /// Returns the predicates of the filter.
    pub fn predicates(&self) -> impl Iterator<Item = Predicate<'a>> + use<'a> {
        let mut cursor = Cursor::new(BLOB_NAME, self.predicates);
        core::iter::from_fn(move || if cursor.is_empty() { None } else { read_predicate(&mut cursor).ok() })
    }
}

/// The filters of a blob whose bytes have all been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filters<'a> {
    filters: &'a [u8],
}

const BLOB_NAME: &str = "payload filter";

impl<'a> Filters<'a> {
    /// Views the bytes of a blob.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        super::check_max_size(BLOB_NAME, bytes, MAX_EVENT_FILTER_PAYLOAD_SIZE)?;
        let mut cursor = Cursor::new(BLOB_NAME, bytes);
        if cursor.u32()? != MAGIC || cursor.u16()? != VERSION {
            return Err(
                cursor.invalid("it was built by another version of the functions for payload filters")
            );
        }
        let count = cursor.u16()?;
        let filters = cursor.rest();
        for _ in 0..count {
            let filter = read_filter(&mut cursor)?;
            check_filter(&filter, &cursor)?;
        }
        if count == 0 || !cursor.is_empty() {
            return Err(cursor.invalid("the count does not match the filters"));
        }
        Ok(Self { filters })
    }

    /// Returns the filters in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Filter<'a>> + use<'a> {
        let mut cursor = Cursor::new(BLOB_NAME, self.filters);
        core::iter::from_fn(move || if cursor.is_empty() { None } else { read_filter(&mut cursor).ok() })
    }
}

fn read_filter<'a>(cursor: &mut Cursor<'a>) -> Result<Filter<'a>> {
    let (size, event_id, event_version) = (usize::from(cursor.u16()?), cursor.u16()?, cursor.u8()?);
    let (flags, fields, predicates) = (cursor.u8()?, usize::from(cursor.u8()?), cursor.u8()?);
    let Some(body_bytes) = size.checked_sub(HEAD_BYTES).filter(|_| size.is_multiple_of(8)) else {
        return Err(cursor.invalid("the size of a filter is too small or not a multiple of eight"));
    };
    let body = cursor.bytes(body_bytes)?;
    let Some((fields, predicate_chunks)) = body.as_chunks().0.split_at_checked(fields) else {
        return Err(cursor.invalid("a filter has no room for its fields"));
    };
    if flags & !(ANY_FLAG | REQUIRED_FLAG) != 0
        || !(1..=MAX_PAYLOAD_PREDICATES).contains(&usize::from(predicates))
    {
        return Err(cursor.invalid("a filter must have 1 to 8 predicates and no unknown flag"));
    }
    let (any, required) = (flags & ANY_FLAG != 0, flags & REQUIRED_FLAG != 0);
    let filter = Filter {
        event_id,
        event_version,
        any,
        required,
        fields,
        predicates: predicate_chunks.as_flattened(),
    };
    if filter.predicates().count() != usize::from(predicates) {
        return Err(cursor.invalid("the count does not match the predicates"));
    }
    Ok(filter)
}

fn check_filter(filter: &Filter<'_>, cursor: &Cursor<'_>) -> Result<()> {
    let count = filter.fields.len();
    let are_references_valid =
        filter.fields().enumerate().filter(|(index, field)| field.refers_only_before(*index)).count()
            == count;
    if !are_references_valid
        || count > MAX_FIELDS
        || filter.predicates().any(|predicate| usize::from(predicate.field) >= count)
    {
        return Err(cursor.invalid("a filter has too many or invalid fields, or refers to a missing one"));
    }
    let mut remaining = Cursor::new(BLOB_NAME, filter.predicates);
    while !remaining.is_empty() {
        read_predicate(&mut remaining)?;
    }
    Ok(())
}

fn read_predicate<'a>(cursor: &mut Cursor<'a>) -> Result<Predicate<'a>> {
    let (size, field, kind, operator) =
        (usize::from(cursor.u16()?), cursor.u8()?, cursor.u8()?, Operator(cursor.u16()?));
    cursor.u16()?;
    let kind = Type::from_byte(kind).filter(|kind| kind.supports(operator));
    let (Some(kind), Some(body_bytes)) = (kind, size.checked_sub(HEAD_BYTES)) else {
        return Err(cursor.invalid("the type, operator or size of a predicate is invalid"));
    };
    let mut operand = Cursor::new(BLOB_NAME, cursor.bytes(body_bytes)?);
    let value = match kind {
        Type::Integer { signed, .. } => {
            let low = read_number(&mut operand, signed)?;
            let high = if takes_range(operator) { read_number(&mut operand, signed)? } else { low };
            Value::Numbers(low, high)
        }
        Type::Guid => Value::Guid(operand.guid()?),
        Type::Utf16 | Type::Ansi => {
            let length = operand.u16()?;
            let text = core::str::from_utf8(operand.bytes(usize::from(length))?);
            Value::Text(text.map_err(|_| cursor.invalid("a text is not UTF-8"))?)
        }
    };
    let padding = operand.rest();
    if padding.len() >= 8 || !size.is_multiple_of(8) || padding.iter().any(|byte| *byte != 0) {
        return Err(cursor.invalid("the size of a predicate does not match its operand"));
    }
    if operator == Operator::MODULO && value == Value::Numbers(0, 0) {
        return Err(cursor.invalid("nothing can be divided by 0"));
    }
    Ok(Predicate { field, kind, operator, value })
}

fn read_number(cursor: &mut Cursor<'_>, signed: bool) -> Result<i128> {
    Ok(if signed { i128::from(cursor.i64()?) } else { i128::from(cursor.u64()?) })
}

const fn takes_range(operator: Operator) -> bool {
    matches!(operator, Operator::BETWEEN | Operator::NOTBETWEEN)
}

/// Maps a character for case-insensitive comparison: to upper case, if that is one character.
#[inline]
#[must_use]
pub fn fold_case(character: u32) -> u32 {
    if character < 0x80 {
        let is_lower = character.wrapping_sub(u32::from(b'a')) < 26;
        return character ^ u32::from(is_lower) << 5;
    }
    let Some(c) = char::from_u32(character) else { return character };
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => u32::from(upper),
        _ => character,
    }
}
