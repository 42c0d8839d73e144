//! Walks the bytes of a payload by its schema and passes the values to a visitor.
//!
//! ```text
//!   fields in order ──▶ count? length? ──▶ value ──▶ Visitor
//!                          ▲                  │
//!                          └── values of fields that other fields refer to
//! ```
//!
//! Invariants
//! * The walk never reads past the payload; a field that would is [`Undecoded::PayloadTooShort`].
//! * A payload may end at a field boundary: older layouts are prefixes of newer ones. The walk
//!   returns the bytes that remain.
//! * The payload bounds everything that takes bytes. An allowance of twice the bytes and fields,
//!   plus 64, bounds the values that take none (empty texts, structures and arrays without
//!   content). So the walk trusts no count in a payload or a schema.
//! * A schema without references causes no allocation.

pub(crate) mod header_names;
mod value;

use traceweir_format::spec::types::InType;
use traceweir_format::text::{until_nul8, until_nul16};
use traceweir_format::wire::chunk;

use crate::error::Undecoded;
use crate::schema::{Count, FastPath, Field, FieldKind, Length, Schema};
use crate::value::Value;

/// Receives the values of a payload in order. `index` is the field's index in [`Schema::fields`].
pub trait Visitor<'p> {
    /// Receives a value, alone or as an element of the array that was begun.
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>);
    /// Announces an array of at most `count` values or structures. Fewer follow if the payload ends
    /// inside the array, or if the array extends to the end of the payload and its values vary in
    /// size.
    fn begin_array(&mut self, _index: usize, _field: &Field, _count: usize) {}
    /// Marks the end of the array.
    fn end_array(&mut self, _index: usize, _field: &Field) {}
    /// Announces a structure: its members follow, then [`Visitor::end_struct`].
    fn begin_struct(&mut self, _index: usize, _field: &Field) {}
    /// Marks the end of the structure.
    fn end_struct(&mut self, _index: usize, _field: &Field) {}
    /// Receives the byte offset that the walk has reached: before and after each field and each
    /// element, and before the end of arrays and structures.
    #[inline(always)]
    fn set_offset(&mut self, _offset: usize) {}
    /// Returns whether the visitor accepts no more values: the walk then ends with
    /// [`Undecoded::TooLarge`]. A few bytes can describe many values, so visitors that gather
    /// values in memory set a bound.
    #[inline]
    fn is_full(&self) -> bool {
        false
    }
}

/// Walks payloads; keeps the memory for referenced values between events.
#[derive(Debug, Default)]
pub struct Walker {
    /// The values of fields that other fields refer to, by field index.
    referenced: Vec<Option<u64>>,
}

impl Walker {
    /// Visits the fields of a payload and returns the bytes that no field claimed.
    ///
    /// By the schema, `LoggerName` and `LogFileName` of the log-file header event are pointers; the
    /// visitor gets the names that follow them in the payload instead.
    #[inline]
    pub fn walk<'p, V: Visitor<'p>>(
        &mut self,
        schema: &Schema,
        payload: &'p [u8],
        pointer_size: usize,
        visitor: &mut V,
    ) -> Result<&'p [u8], Undecoded> {
        if schema.is_log_file_header {
            return self.walk_header(schema, payload, pointer_size, visitor);
        }
        self.walk_bytes(schema, payload, pointer_size, visitor)
    }

    /// Visits the fields exactly as the schema describes them.
    #[inline]
    fn walk_bytes<'p, V: Visitor<'p>>(
        &mut self,
        schema: &Schema,
        payload: &'p [u8],
        pointer_size: usize,
        visitor: &mut V,
    ) -> Result<&'p [u8], Undecoded> {
        if schema.has_references() {
            self.referenced.clear();
            self.referenced.resize(schema.fields().len(), None);
        }
        // Both lengths are far below `usize::MAX / 2`, so nothing wraps.
        let allowance = payload.len().wrapping_add(schema.fields().len()).wrapping_mul(2).wrapping_add(64);
        let mut walk = PayloadWalk {
            schema,
            payload,
            offset: 0,
            pointer_size,
            allowance,
            referenced: &mut self.referenced,
            visitor,
            fault: None,
        };
        match walk.visit_top_level() {
            Ok(()) => Ok(payload.get(walk.offset..).unwrap_or_default()),
            Err(WalkEnded) => Err(walk.fault.map_or(Undecoded::NoSchema, |fault| *fault)),
        }
    }
}

const TOO_MANY_ELEMENTS: &str = "more elements than the payload can hold";

struct PayloadWalk<'w, 'p, V> {
    schema: &'w Schema,
    payload: &'p [u8],
    offset: usize,
    pointer_size: usize,
    /// The number of values, arrays and structures without bytes that the walk may still visit.
    allowance: usize,
    referenced: &'w mut Vec<Option<u64>>,
    visitor: &'w mut V,
    /// The reason why the walk ended early.
    fault: Option<Box<Undecoded>>,
}

/// Marks that a walk ended early. The reason is in [`PayloadWalk::fault`], which keeps results on
/// the fast path small.
struct WalkEnded;

type WalkResult<T> = Result<T, WalkEnded>;

impl<'p, V: Visitor<'p>> PayloadWalk<'_, 'p, V> {
    /// Visits the top-level fields; the payload may end before any of them.
    #[inline(always)]
    fn visit_top_level(&mut self) -> WalkResult<()> {
        let schema = self.schema;
        for (index, field) in schema.top().iter().enumerate() {
            if self.offset >= self.payload.len() && !self.needs_no_bytes(field) {
                return Ok(());
            }
            self.visitor.set_offset(self.offset);
            if !self.visit_fast_path(index, field)? {
                self.visit_field(index, field)?;
            }
            self.visitor.set_offset(self.offset);
            self.check_visitor()?;
        }
        Ok(())
    }

    fn visit_fields(&mut self, first: usize, count: usize) -> WalkResult<()> {
        let schema = self.schema;
        let fields = schema.fields().get(first..first.saturating_add(count)).unwrap_or_default();
        for (offset, field) in fields.iter().enumerate() {
            self.visitor.set_offset(self.offset);
            self.visit_field(first.saturating_add(offset), field)?;
            self.visitor.set_offset(self.offset);
            self.check_visitor()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn check_visitor(&mut self) -> WalkResult<()> {
        if self.visitor.is_full() { Err(self.fail_full()) } else { Ok(()) }
    }

    /// Visits a field of one of the most common kinds; returns false for others.
    ///
    /// Each kind makes its own call, so that a visitor that is inlined here is specialised for it.
    #[inline(always)]
    fn visit_fast_path(&mut self, index: usize, field: &Field) -> WalkResult<bool> {
        match field.fast_path {
            FastPath::U8 => {
                let value = u8::from_le_bytes(*self.take_array(field)?);
                self.visitor.value(index, field, Value::U8(value));
            }
            FastPath::U16 => {
                let value = u16::from_le_bytes(*self.take_array(field)?);
                self.visitor.value(index, field, Value::U16(value));
            }
            FastPath::U32 => {
                let value = u32::from_le_bytes(*self.take_array(field)?);
                self.visitor.value(index, field, Value::U32(value));
            }
            FastPath::I32 => {
                let value = i32::from_le_bytes(*self.take_array(field)?);
                self.visitor.value(index, field, Value::I32(value));
            }
            FastPath::U64 => {
                let value = u64::from_le_bytes(*self.take_array(field)?);
                self.visitor.value(index, field, Value::U64(value));
            }
            FastPath::Pointer => {
                let value = if self.pointer_size == 4 {
                    u64::from(u32::from_le_bytes(*self.take_array(field)?))
                } else {
                    u64::from_le_bytes(*self.take_array(field)?)
                };
                self.visitor.value(index, field, Value::Pointer(value));
            }
            FastPath::Text8 => {
                let text = until_nul8(self.remaining());
                self.skip(text.len().wrapping_add(1));
                self.visitor.value(index, field, Value::Text8(text));
            }
            FastPath::Text16 => {
                let text = until_nul16(self.remaining());
                self.skip(text.len().wrapping_add(2));
                self.visitor.value(index, field, Value::Text16(text));
            }
            FastPath::No => return Ok(false),
        }
        Ok(true)
    }

    /// Returns whether a field needs no bytes: an array without elements, or a value of length 0.
    #[cold]
    fn needs_no_bytes(&self, field: &Field) -> bool {
        match (field.count, &field.kind) {
            (Count::Fixed(0) | Count::ToEnd, _) => true,
            (Count::Field(i), _) => self.referenced.get(usize::from(i)).copied().flatten() == Some(0),
            (_, FieldKind::Value { input: InType::NULL, .. }) => true,
            (
                Count::One,
                FieldKind::Value {
                    input: InType::UNICODESTRING | InType::ANSISTRING | InType::BINARY, ..
                },
            ) => match field.length {
                Length::Natural => false,
                Length::Fixed(n) => n == 0,
                Length::Field(i) => self.referenced.get(usize::from(i)).copied().flatten() == Some(0),
            },
            _ => false,
        }
    }

    #[inline(never)]
    fn visit_field(&mut self, index: usize, field: &Field) -> WalkResult<()> {
        match (&field.kind, field.count) {
            (FieldKind::Value { input, output, .. }, Count::One) => {
                let value = self.read_value(field, *input, *output)?;
                if field.is_referenced
                    && let Some(slot) = self.referenced.get_mut(index)
                {
                    *slot = value.as_u64();
                }
                self.visitor.value(index, field, value);
                Ok(())
            }
            (FieldKind::Struct { first, members }, Count::One) => {
                self.visit_structure(index, field, usize::from(*first), usize::from(*members))
            }
            (_, count) => self.visit_array(index, field, count),
        }
    }

    fn visit_structure(
        &mut self,
        index: usize,
        field: &Field,
        first: usize,
        members: usize,
    ) -> WalkResult<()> {
        let before = self.offset;
        self.visitor.begin_struct(index, field);
        let result = self.visit_fields(first, members);
        self.visitor.set_offset(self.offset);
        self.visitor.end_struct(index, field);
        result?;
        if self.offset == before { self.spend_allowance(field) } else { Ok(()) }
    }

    fn visit_array(&mut self, index: usize, field: &Field, count: Count) -> WalkResult<()> {
        if count == Count::ToEnd {
            return self.visit_array_to_end(index, field);
        }
        let count = match count {
            Count::Fixed(n) => usize::from(n),
            Count::Prefixed => usize::from(u16::from_le_bytes(*self.take_array::<2>(field)?)),
            Count::Field(i) => self.read_reference(field, i)?,
            Count::One | Count::ToEnd => 1,
        };
        if count == 0 {
            self.spend_allowance(field)?;
        }
        if count > self.remaining().len().saturating_add(self.allowance) {
            return Err(self.fail_field(field, TOO_MANY_ELEMENTS));
        }
        let start = self.offset;
        if let Some(text) = self.read_characters(field, count)? {
            self.visitor.set_offset(start);
            self.visitor.value(index, field, text);
            return Ok(());
        }
        self.visitor.set_offset(self.offset);
        self.visitor.begin_array(index, field, count);
        let mut result = Ok(());
        for _ in 0..count {
            result = self.visit_element(index, field);
            if result.is_err() {
                break;
            }
        }
        self.visitor.set_offset(self.offset);
        self.visitor.end_array(index, field);
        result
    }

    fn visit_array_to_end(&mut self, index: usize, field: &Field) -> WalkResult<()> {
        let bytes_left = self.remaining().len();
        let size = match &field.kind {
            FieldKind::Value { input, .. } => input.size(self.pointer_size).unwrap_or(1).max(1),
            FieldKind::Struct { .. } => 1,
        };
        let count = bytes_left.checked_div(size).unwrap_or(0);
        if count == 0 {
            self.spend_allowance(field)?;
        }
        let start = self.offset;
        if let Some(text) = self.read_characters(field, count)? {
            self.visitor.set_offset(start);
            self.visitor.value(index, field, text);
            return Ok(());
        }
        self.visitor.set_offset(self.offset);
        self.visitor.begin_array(index, field, count);
        let mut result = Ok(());
        while result.is_ok() && self.remaining().len() >= size {
            let before = self.offset;
            result = self.visit_element(index, field);
            if self.offset == before {
                break;
            }
        }
        self.visitor.set_offset(self.offset);
        self.visitor.end_array(index, field);
        result
    }

    #[inline]
    fn visit_element(&mut self, index: usize, field: &Field) -> WalkResult<()> {
        self.visitor.set_offset(self.offset);
        match &field.kind {
            FieldKind::Value { input, output, .. } => {
                // The last string may lack its terminator, but each string that a count claims
                // needs at least one byte.
                if self.remaining().is_empty() && is_terminated(*input) && field.length == Length::Natural {
                    return Err(self.fail_too_short(field));
                }
                let value = self.read_value(field, *input, *output)?;
                self.visitor.value(index, field, value);
                self.visitor.set_offset(self.offset);
                self.check_visitor()
            }
            FieldKind::Struct { first, members } => {
                self.visit_structure(index, field, usize::from(*first), usize::from(*members))?;
                self.check_visitor()
            }
        }
    }
}

const fn is_terminated(input: InType) -> bool {
    matches!(input, InType::UNICODESTRING | InType::ANSISTRING)
}

/// The position in the payload, the allowance, and the errors that end a walk.
impl<'p, V: Visitor<'p>> PayloadWalk<'_, 'p, V> {
    #[inline]
    fn remaining(&self) -> &'p [u8] {
        self.payload.get(self.offset..).unwrap_or_default()
    }

    #[inline]
    fn skip(&mut self, n: usize) {
        self.offset = self.offset.wrapping_add(n).min(self.payload.len());
    }

    #[inline]
    fn take_bytes(&mut self, field: &Field, n: usize) -> WalkResult<&'p [u8]> {
        let out = self.remaining().get(..n).ok_or_else(|| self.fail_too_short(field))?;
        self.offset = self.offset.saturating_add(n);
        Ok(out)
    }

    #[inline(always)]
    fn take_array<const N: usize>(&mut self, field: &Field) -> WalkResult<&'p [u8; N]> {
        let out = chunk(self.payload, self.offset).ok_or_else(|| self.fail_too_short(field))?;
        self.offset = self.offset.wrapping_add(N);
        Ok(out)
    }

    /// Subtracts one from the allowance, for a value, array or structure that took no bytes.
    #[cold]
    fn spend_allowance(&mut self, field: &Field) -> WalkResult<()> {
        match self.allowance.checked_sub(1) {
            Some(allowance) => {
                self.allowance = allowance;
                Ok(())
            }
            None => Err(self.fail_field(field, TOO_MANY_ELEMENTS)),
        }
    }

    #[cold]
    fn fail_full(&mut self) -> WalkEnded {
        self.fault = Some(Box::new(Undecoded::TooLarge));
        WalkEnded
    }

    #[cold]
    fn fail_too_short(&mut self, field: &Field) -> WalkEnded {
        let fault = Undecoded::PayloadTooShort { field: field.name.to_string(), offset: self.offset };
        self.fault = Some(Box::new(fault));
        WalkEnded
    }

    #[cold]
    fn fail_field(&mut self, field: &Field, reason: &'static str) -> WalkEnded {
        let fault = Undecoded::BadField { field: field.name.to_string(), offset: self.offset, reason };
        self.fault = Some(Box::new(fault));
        WalkEnded
    }
}

#[cfg(test)]
mod tests;
