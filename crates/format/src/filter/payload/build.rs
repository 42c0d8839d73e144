//! Builds payload-filter blobs.

use alloc::vec::Vec;

use super::{
    ANY_FLAG, BLOB_NAME, Field, HEAD_BYTES, MAGIC, MAX_FIELDS, REQUIRED_FLAG, Shape, Type, VERSION,
    takes_range,
};
use crate::spec::enable::{
    MAX_EVENT_FILTER_PAYLOAD_SIZE, MAX_PAYLOAD_PREDICATES, PayloadOperator as Operator,
};
use crate::wire::{Put, align8};
use crate::{Error, Guid, Result};

/// The value that a field is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand<'a> {
    /// A single number.
    Number(i128),
    /// The lower and the upper number, both included.
    Range(i128, i128),
    /// A 16-byte GUID.
    Guid(Guid),
    /// Text in UTF-8.
    Text(&'a str),
}

/// The filter of one event, under construction: its fields in the order of the payload, and
/// predicates on them.
#[derive(Clone, Debug, Default)]
pub struct Event {
    id: u16,
    version: u8,
    any: bool,
    fields: Vec<Field>,
    /// The field of each predicate, and the encoded predicate.
    predicates: Vec<(u8, Vec<u8>)>,
}

impl Event {
    /// Starts a filter without predicates. If `any`, one true predicate is enough; otherwise all
    /// must be true.
    #[must_use]
    pub fn new(id: u16, version: u8, any: bool) -> Self {
        Self { id, version, any, ..Self::default() }
    }

    /// Adds the next field of the payload. Returns its index. Predicates refer to the field
    /// by this index, and so do later fields whose length or count is the value of the field.
    pub fn add_field(&mut self, field: Field) -> Result<u8> {
        let index = self.fields.len();
        if index >= MAX_FIELDS {
            return Err(invalid("a payload must have at most 128 fields"));
        }
        if !field.refers_only_before(index) {
            return Err(invalid("a field must refer only to earlier fields"));
        }
        if matches!(field, Field { shape: Shape::Length { unit: 0, .. }, .. }) {
            return Err(invalid("a unit must have at least one byte"));
        }
        self.fields.push(field);
        to_u8(index)
    }

    /// Adds a comparison of a field, or of the first element of an array.
    pub fn add_predicate(
        &mut self,
        field: u8,
        kind: Type,
        operator: Operator,
        operand: Operand<'_>,
    ) -> Result<()> {
        if self.predicates.len() >= MAX_PAYLOAD_PREDICATES {
            return Err(invalid("there are eight predicates already"));
        }
        if usize::from(field) >= self.fields.len() || !kind.supports(operator) {
            return Err(invalid("there is no such field, or the operator does not suit its type"));
        }
        let value = encode_operand(kind, operator, operand)?;
        let size = align8(HEAD_BYTES.saturating_add(value.len()));
        let mut bytes = Vec::with_capacity(size);
        bytes.put_u16(to_u16(size)?).put_u8(field).put_u8(kind.to_byte()).put_u16(operator.0).put_u16(0);
        bytes.put(&value);
        bytes.resize(size, 0);
        self.predicates.push((field, bytes));
        Ok(())
    }

    fn encode(&self, required: bool) -> Result<Vec<u8>> {
        // Fields after the last one that a predicate uses are left out.
        let last = self.predicates.iter().map(|(field, _)| usize::from(*field)).max();
        let last = last.ok_or_else(|| invalid("there is no predicate"))?;
        let fields = self.fields.get(..=last).unwrap_or_default();
        let flags = if self.any { ANY_FLAG } else { 0 } | if required { REQUIRED_FLAG } else { 0 };
        let mut body: Vec<u8> = fields.iter().flat_map(|field| field.to_word().to_le_bytes()).collect();
        self.predicates.iter().for_each(|(_, bytes)| body.extend_from_slice(bytes));
        let mut out = Vec::with_capacity(HEAD_BYTES.saturating_add(body.len()));
        out.put_u16(to_u16(HEAD_BYTES.saturating_add(body.len()))?).put_u16(self.id).put_u8(self.version);
        out.put_u8(flags).put_u8(to_u8(fields.len())?).put_u8(to_u8(self.predicates.len())?).put(&body);
        Ok(out)
    }
}

/// A blob under construction.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    filters: Vec<u8>,
    count: u16,
}

impl Builder {
    /// Starts a blob without filters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a filter. An event passes if all `required` filters of its id and version hold and, if
    /// it has other filters, at least one of those holds.
    pub fn add(&mut self, filter: &Event, required: bool) -> Result<()> {
        let filter = filter.encode(required)?;
        let size = HEAD_BYTES.saturating_add(self.filters.len()).saturating_add(filter.len());
        if size > MAX_EVENT_FILTER_PAYLOAD_SIZE {
            let limit = MAX_EVENT_FILTER_PAYLOAD_SIZE as u64;
            return Err(Error::TooLarge { what: BLOB_NAME, size: size as u64, limit });
        }
        self.filters.extend_from_slice(&filter);
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// Returns the encoded blob.
    pub fn finish(&self) -> Result<Vec<u8>> {
        if self.count == 0 {
            return Err(invalid("there is no filter"));
        }
        let mut out = Vec::with_capacity(HEAD_BYTES.saturating_add(self.filters.len()));
        out.put_u32(MAGIC).put_u16(VERSION).put_u16(self.count).put(&self.filters);
        Ok(out)
    }
}

fn encode_operand(kind: Type, operator: Operator, operand: Operand<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    match (kind, operand) {
        (Type::Integer { bytes, signed }, Operand::Number(number)) if !takes_range(operator) => {
            if operator == Operator::MODULO && number == 0 {
                return Err(invalid("nothing can be divided by 0"));
            }
            out.put(&encode_number(number, bytes, signed)?);
        }
        (Type::Integer { bytes, signed }, Operand::Range(low, high)) if takes_range(operator) => {
            out.put(&encode_number(low, bytes, signed)?).put(&encode_number(high, bytes, signed)?);
        }
        (Type::Guid, Operand::Guid(guid)) => {
            out.put(&guid.to_bytes());
        }
        (Type::Utf16 | Type::Ansi, Operand::Text(text)) => {
            out.put_u16(to_u16(text.len())?).put(text.as_bytes());
        }
        _ => return Err(invalid("the value does not suit the field's type and the operator")),
    }
    Ok(out)
}

/// Encodes a number, if a field of this type can hold it.
fn encode_number(number: i128, bytes: u8, signed: bool) -> Result<[u8; 8]> {
    let bits = u32::from(bytes).saturating_mul(8).min(64);
    let value_count = 1_i128.checked_shl(bits).unwrap_or(i128::MAX);
    let (low, high) =
        if signed { (value_count.wrapping_neg() / 2, value_count / 2) } else { (0, value_count) };
    if !(low..high).contains(&number) {
        return Err(invalid("the number is outside of the field's range"));
    }
    let [b0, b1, b2, b3, b4, b5, b6, b7, ..] = number.to_le_bytes();
    Ok([b0, b1, b2, b3, b4, b5, b6, b7])
}

fn to_u16(n: usize) -> Result<u16> {
    u16::try_from(n).map_err(|_| Error::TooLarge {
        what: BLOB_NAME,
        size: n as u64,
        limit: u64::from(u16::MAX),
    })
}

fn to_u8(n: usize) -> Result<u8> {
    u8::try_from(n).map_err(|_| invalid("there are too many fields or predicates"))
}

const fn invalid(reason: &'static str) -> Error {
    Error::Invalid { what: BLOB_NAME, offset: 0, reason }
}
