//! The values of one event or span in their payload layout.
//!
//! ```text
//!   shape     one word for each value: number of its field << 3 │ kind; determines the metadata
//!   payload   the concatenated values                                           written unchanged
//!
//!   kind      in the payload                              TraceLogging type
//!   I64, U64  8 bytes                                     int64, uint64
//!   F64       8 bytes                                     double
//!   Bool      4 bytes                                     bool32
//!   Text      u16 count, UTF-8                            counted string, shown as UTF-8
//!   Binary    u16 count, bytes                            binary; also 128-bit numbers as 16
//!                                                         bytes, lowest first
//! ```
//!
//! A field without a value has no word in the shape. Texts and bytes share the space of an event:
//! the excess is cut (a text between two characters), and a `Debug` implementation is stopped
//! there. Space is reserved for numbers that follow.

use std::error::Error;
use std::fmt::{self, Debug, Write};

use traceweir_format::spec::types::{InType, OutType};
use tracing_core::field::{Field, Visit};

/// Maximum size of the values of one event in bytes. A record has 64 KiB; the other bytes are for
/// its header, the traits and the metadata.
const MAX_PAYLOAD_BYTES: usize = 62_000;
/// Maximum payload size after a text or byte field; the remaining bytes up to
/// [`MAX_PAYLOAD_BYTES`] are for numbers and counts.
const MAX_TEXT_BYTES: usize = 60_000;
/// Bytes that a thread reserves for its next event.
const RESERVED_BYTES: usize = 512;
/// Maximum number of bytes that a thread keeps for its next event.
const MAX_RESERVED_BYTES: usize = 16 << 10;

const KIND_BITS: u32 = 3;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum ValueKind {
    I64,
    U64,
    F64,
    Bool,
    Text,
    Binary,
}

/// A field's number and the kind of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedField(u16);

impl RecordedField {
    /// Combines field number and kind; `None` for fields after the 8192nd.
    fn new(field: &Field, kind: ValueKind) -> Option<Self> {
        let index = u16::try_from(field.index()).ok()?;
        let shifted = index << KIND_BITS;
        (shifted >> KIND_BITS == index).then_some(Self(shifted | kind as u16))
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0 >> KIND_BITS)
    }

    fn kind(self) -> ValueKind {
        match self.0 & ((1 << KIND_BITS) - 1) {
            0 => ValueKind::I64,
            1 => ValueKind::U64,
            2 => ValueKind::F64,
            3 => ValueKind::Bool,
            4 => ValueKind::Text,
            _ => ValueKind::Binary,
        }
    }

    /// Returns the word, for a hash.
    pub(super) fn word(self) -> u16 {
        self.0
    }

    /// Returns the in-type and out-type bytes of the field's metadata.
    #[allow(clippy::cast_possible_truncation)] // All of these have a byte in TraceLogging.
    pub(super) fn types(self) -> (u8, u8) {
        let (input, out) = match self.kind() {
            ValueKind::I64 => (InType::INT64, OutType::NULL),
            ValueKind::U64 => (InType::UINT64, OutType::NULL),
            ValueKind::F64 => (InType::DOUBLE, OutType::NULL),
            ValueKind::Bool => (InType::BOOLEAN, OutType::NULL),
            ValueKind::Text => (InType::COUNTEDANSISTRING, OutType::UTF8),
            ValueKind::Binary => (InType::BINARY, OutType::NULL),
        };
        (input.0 as u8, out.0 as u8)
    }

    /// Splits the value off the front of a payload.
    fn split(self, payload: &[u8]) -> Option<(&[u8], &[u8])> {
        let size = match self.kind() {
            ValueKind::I64 | ValueKind::U64 | ValueKind::F64 => 8,
            ValueKind::Bool => 4,
            ValueKind::Text | ValueKind::Binary => {
                let count = u16::from_le_bytes(*payload.first_chunk()?);
                usize::from(count).saturating_add(2)
            }
        };
        payload.split_at_checked(size)
    }
}

/// The values in the order in which they were recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct EventValues {
    shape: Vec<RecordedField>,
    payload: Vec<u8>,
}

impl EventValues {
    pub(super) fn shape(&self) -> &[RecordedField] {
        &self.shape
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Removes the values, and keeps memory for an event of the usual size.
    pub(super) fn clear(&mut self) {
        self.shape.clear();
        self.payload.clear();
        self.payload.shrink_to(MAX_RESERVED_BYTES);
        self.payload.reserve(RESERVED_BYTES);
    }

    /// Returns a copy without spare memory.
    pub(super) fn to_compact(&self) -> Self {
        Self { shape: self.shape.as_slice().to_vec(), payload: self.payload.as_slice().to_vec() }
    }

    /// Iterates over the values with their bytes.
    fn entries(&self) -> impl Iterator<Item = (RecordedField, &[u8])> {
        let mut remaining = self.payload.as_slice();
        self.shape.iter().map_while(move |recorded_field| {
            let (value, tail) = recorded_field.split(remaining)?;
            remaining = tail;
            Some((*recorded_field, value))
        })
    }

    /// Merges newer values: they replace older ones of the same field, or are inserted in field
    /// order. The excess is cut.
    pub(super) fn merge_newer(&mut self, newer: &Self) {
        let is_replaced = |index| newer.shape.iter().any(|recorded_field| recorded_field.index() == index);
        let older = self.entries().filter(|(recorded_field, _)| !is_replaced(recorded_field.index()));
        let mut entries: Vec<_> = older.chain(newer.entries()).collect();
        entries.sort_by_key(|(recorded_field, _)| recorded_field.index());
        let mut merged = Self::default();
        for (recorded_field, bytes) in entries {
            merged.append_entry(recorded_field, bytes);
        }
        *self = merged;
    }

    /// Returns the bytes of text that the payload may still take.
    fn free_text_bytes(&self) -> usize {
        MAX_TEXT_BYTES.saturating_sub(self.payload.len())
    }

    /// Returns whether a value of this many bytes, which cannot be cut, fits.
    fn can_append(&self, bytes: usize) -> bool {
        self.payload.len().saturating_add(bytes) <= MAX_PAYLOAD_BYTES
    }

    fn append_value(&mut self, field: &Field, kind: ValueKind, bytes: &[u8]) {
        if let Some(recorded_field) = RecordedField::new(field, kind) {
            self.append_uncut(recorded_field, bytes);
        }
    }

    fn append_uncut(&mut self, recorded_field: RecordedField, bytes: &[u8]) {
        if self.can_append(bytes.len()) {
            self.shape.push(recorded_field);
            self.payload.extend_from_slice(bytes);
        }
    }

    /// Appends a value of [`entries`](Self::entries).
    fn append_entry(&mut self, recorded_field: RecordedField, bytes: &[u8]) {
        match (recorded_field.kind(), bytes.split_at_checked(2)) {
            (ValueKind::Text, Some((_, text))) => {
                // The bytes were UTF-8 when they were recorded.
                self.append_counted(recorded_field, |values| {
                    values.append_text(str::from_utf8(text).unwrap_or_default())
                });
            }
            // A value of 16 bytes may be a 128-bit number, which must not be cut.
            (ValueKind::Binary, Some((_, value))) if value.len() > size_of::<u128>() => {
                self.append_counted(recorded_field, |values| values.append_bytes(value));
            }
            _ => self.append_uncut(recorded_field, bytes),
        }
    }

    /// Appends a value after its count, which is set when `fill` has appended the value.
    fn append_counted(&mut self, recorded_field: RecordedField, fill: impl FnOnce(&mut Self)) {
        if !self.can_append(2) {
            return;
        }
        let at = self.payload.len();
        self.payload.extend_from_slice(&[0; 2]);
        let start = self.payload.len();
        fill(self);
        // Below `MAX_PAYLOAD_BYTES`, so that 16 bits hold it.
        let count = u16::try_from(self.payload.len().saturating_sub(start)).unwrap_or(0);
        if let Some(place) = self.payload.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = count.to_le_bytes();
        }
        self.shape.push(recorded_field);
    }

    /// Appends as much of a text as fits.
    fn append_text(&mut self, text: &str) {
        let _ = TextAppender(self).write_str(text);
    }

    /// Appends as many bytes as fit.
    fn append_bytes(&mut self, value: &[u8]) {
        let fitting = value.get(..self.free_text_bytes()).unwrap_or(value);
        self.payload.extend_from_slice(fitting);
    }

    /// Appends the bytes of a number after their count.
    fn append_wide_number(&mut self, field: &Field, number: [u8; 16]) {
        let mut bytes = [0; 18];
        let (count, value) = bytes.split_at_mut(2);
        count.copy_from_slice(&16_u16.to_le_bytes());
        value.copy_from_slice(&number);
        self.append_value(field, ValueKind::Binary, &bytes);
    }

    fn append_display(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        let Some(recorded_field) = RecordedField::new(field, ValueKind::Text) else { return };
        self.append_counted(recorded_field, |values| {
            // A text that ends early, by its own error or for lack of space, is written up to
            // that point.
            let _ = TextAppender(values).write_fmt(text);
        });
    }
}

/// A writer that appends formatted text to a payload, as far as it fits.
struct TextAppender<'a>(&'a mut EventValues);

impl Write for TextAppender<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fitting = longest_prefix(text, self.0.free_text_bytes());
        self.0.payload.extend_from_slice(fitting.as_bytes());
        // An error ends the formatting: text after the cut would look as if nothing were missing.
        if fitting.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Returns as many whole characters as fit into `bytes` bytes.
fn longest_prefix(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    // A character has four bytes at most.
    (0..4).find_map(|less| text.get(..bytes.checked_sub(less)?)).unwrap_or_default()
}

impl Visit for EventValues {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.append_value(field, ValueKind::F64, &value.to_le_bytes());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.append_value(field, ValueKind::I64, &value.to_le_bytes());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.append_value(field, ValueKind::U64, &value.to_le_bytes());
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.append_wide_number(field, value.to_le_bytes());
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.append_wide_number(field, value.to_le_bytes());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.append_value(field, ValueKind::Bool, &u32::from(value).to_le_bytes());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(recorded_field) = RecordedField::new(field, ValueKind::Text) {
            self.append_counted(recorded_field, |values| values.append_text(value));
        }
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        if let Some(recorded_field) = RecordedField::new(field, ValueKind::Binary) {
            self.append_counted(recorded_field, |values| values.append_bytes(value));
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.append_display(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.append_display(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (bytes, expected) in
            [(0, ""), (1, "a"), (2, "a"), (3, "aä"), (6, "aä"), (7, "aä🚰"), (99, "aä🚰")]
        {
            assert_eq!(longest_prefix("aä🚰", bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn newer_values_replace_older_ones_within_the_event_size() {
        let make_values = |list: &[(u16, &str)]| {
            let mut values = EventValues::default();
            for (index, text) in list {
                values.shape.push(RecordedField(index << KIND_BITS | ValueKind::Text as u16));
                values.payload.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
                values.payload.extend_from_slice(text.as_bytes());
            }
            values
        };
        let read_texts = |values: &EventValues| -> Vec<(usize, String)> {
            values.entries().map(|(d, b)| (d.index(), String::from_utf8(b[2..].to_vec()).unwrap())).collect()
        };
        let mut values = make_values(&[(0, "a"), (2, "c")]);
        values.merge_newer(&make_values(&[(1, "b"), (2, "d")]));
        assert_eq!(read_texts(&values), [(0, "a".into()), (1, "b".into()), (2, "d".into())]);
        let long = "x".repeat(40_000);
        values.merge_newer(&make_values(&[(3, &long)]));
        values.merge_newer(&make_values(&[(4, &long), (5, "e")]));
        let sizes: Vec<_> = read_texts(&values).iter().map(|(index, text)| (*index, text.len())).collect();
        // Before the cut text: 40,003 bytes of text, and five counts of two bytes.
        let cut = MAX_TEXT_BYTES - (40_000 + 5 * 2 + 3);
        assert_eq!(
            sizes,
            [(0, 1), (1, 1), (2, 1), (3, 40_000), (4, cut), (5, 0)],
            "the last texts must be cut to the event size"
        );
        assert!(values.payload.len() <= MAX_PAYLOAD_BYTES);
    }
}
