//! The values of one event or span as they stand in a payload.
//!
//! ```text
//!   shape     one word for each value: number of its field << 3 │ kind          what the metadata is made of
//!   payload   the values one after the other                                    what is written
//!
//!   kind      in the payload                              TraceLogging type
//!   I64, U64  8 bytes                                     int64, uint64
//!   F64       8 bytes                                     double
//!   Bool      4 bytes                                     bool32
//!   Text      u16 count, UTF-8                            counted string, shown as UTF-8
//!   Binary    u16 count, bytes                            binary; also the 16 bytes of numbers of 128 bits, lowest first
//! ```
//!
//! A field without a value has no word in the shape. Texts and bytes share what an event has room for: what goes beyond is cut, at the border of a
//! character, and a `Debug` that would go on is stopped there.

use std::error::Error;
use std::fmt::{self, Debug, Write};

use traceweir_format::spec::types::{InType, OutType};
use tracing_core::field::{Field, Visit};

/// Bytes that the values of one event have. A record has 64 KiB; the rest is for its header, the traits and the metadata.
pub(super) const MAX_PAYLOAD: usize = 60_000;

const KIND_BITS: u32 = 3;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Kind {
    I64,
    U64,
    F64,
    Bool,
    Text,
    Binary,
}

/// A field's number and the kind of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Described(u16);

impl Described {
    /// `None` for a field beyond the 8192nd.
    fn new(field: &Field, kind: Kind) -> Option<Self> {
        let index = u16::try_from(field.index()).ok()?;
        let shifted = index << KIND_BITS;
        (shifted >> KIND_BITS == index).then_some(Self(shifted | kind as u16))
    }

    /// The field's number at its callsite.
    pub(super) fn index(self) -> usize {
        usize::from(self.0 >> KIND_BITS)
    }

    fn kind(self) -> Kind {
        match self.0 & ((1 << KIND_BITS) - 1) {
            0 => Kind::I64,
            1 => Kind::U64,
            2 => Kind::F64,
            3 => Kind::Bool,
            4 => Kind::Text,
            _ => Kind::Binary,
        }
    }

    /// The number itself, for a hash.
    pub(super) fn word(self) -> u16 {
        self.0
    }

    /// In type and out byte of its metadata.
    #[allow(clippy::cast_possible_truncation)] // All of these have a byte in TraceLogging.
    pub(super) fn types(self) -> (u8, u8) {
        let (input, out) = match self.kind() {
            Kind::I64 => (InType::INT64, OutType::NULL),
            Kind::U64 => (InType::UINT64, OutType::NULL),
            Kind::F64 => (InType::DOUBLE, OutType::NULL),
            Kind::Bool => (InType::BOOLEAN, OutType::NULL),
            Kind::Text => (InType::COUNTEDANSISTRING, OutType::UTF8),
            Kind::Binary => (InType::BINARY, OutType::NULL),
        };
        (input.0 as u8, out.0 as u8)
    }

    /// Splits the value off the front of a payload.
    fn split(self, payload: &[u8]) -> Option<(&[u8], &[u8])> {
        let size = match self.kind() {
            Kind::I64 | Kind::U64 | Kind::F64 => 8,
            Kind::Bool => 4,
            Kind::Text | Kind::Binary => {
                let count = u16::from_le_bytes(*payload.first_chunk()?);
                usize::from(count).saturating_add(2)
            }
        };
        payload.split_at_checked(size)
    }
}

/// Values in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    shape: Vec<Described>,
    payload: Vec<u8>,
}

impl Values {
    pub(super) fn shape(&self) -> &[Described] {
        &self.shape
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Forgets the values, not the memory.
    pub(super) fn clear(&mut self) {
        self.shape.clear();
        self.payload.clear();
    }

    /// A copy that takes no more memory than it needs.
    pub(super) fn to_kept(&self) -> Self {
        Self { shape: self.shape.as_slice().to_vec(), payload: self.payload.as_slice().to_vec() }
    }

    /// Each value with its bytes.
    fn entries(&self) -> impl Iterator<Item = (Described, &[u8])> {
        let mut rest = self.payload.as_slice();
        self.shape.iter().map_while(move |described| {
            let (value, behind) = described.split(rest)?;
            rest = behind;
            Some((*described, value))
        })
    }

    /// Takes newer values: in place of older ones of the same field, or beside them, in the order of the fields. What an event has no room for is left out.
    pub(super) fn take_newer(&mut self, newer: &Self) {
        let replaced = |index| newer.shape.iter().any(|described| described.index() == index);
        let kept = self.entries().filter(|(described, _)| !replaced(described.index()));
        let mut all: Vec<_> = kept.chain(newer.entries()).collect();
        all.sort_by_key(|(described, _)| described.index());
        let mut merged = Self::default();
        for (described, bytes) in all {
            if merged.payload.len().saturating_add(bytes.len()) <= MAX_PAYLOAD {
                merged.shape.push(described);
                merged.payload.extend_from_slice(bytes);
            }
        }
        *self = merged;
    }

    /// Bytes that the payload may still take.
    fn room(&self) -> usize {
        MAX_PAYLOAD.saturating_sub(self.payload.len())
    }

    fn put(&mut self, field: &Field, kind: Kind, bytes: &[u8]) {
        if let Some(described) = Described::new(field, kind)
            && bytes.len() <= self.room()
        {
            self.shape.push(described);
            self.payload.extend_from_slice(bytes);
        }
    }

    /// A value behind its count, which is filled in when `fill` has appended it.
    fn put_counted(&mut self, field: &Field, kind: Kind, fill: impl FnOnce(&mut Self)) {
        let Some(described) = Described::new(field, kind) else { return };
        if self.room() < 2 {
            return;
        }
        let at = self.payload.len();
        self.payload.extend_from_slice(&[0; 2]);
        let start = self.payload.len();
        fill(self);
        // Below `MAX_PAYLOAD`, so that a word holds it.
        let count = u16::try_from(self.payload.len().saturating_sub(start)).unwrap_or(0);
        if let Some(place) = self.payload.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = count.to_le_bytes();
        }
        self.shape.push(described);
    }

    fn put_display(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        self.put_counted(field, Kind::Text, |values| {
            // A text that ends early, by its own fault or for want of room, is written as far as it came.
            let _ = Appended(values).write_fmt(text);
        });
    }
}

/// Text that is appended to a payload, as far as there is room.
struct Appended<'a>(&'a mut Values);

impl Write for Appended<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fitting = prefix(text, self.0.room());
        self.0.payload.extend_from_slice(fitting.as_bytes());
        // An error ends the formatting: what came behind the cut would stand as if nothing were missing.
        if fitting.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// As many whole characters as these bytes hold.
fn prefix(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    // A character has four bytes at most.
    (0..4).find_map(|less| text.get(..bytes.checked_sub(less)?)).unwrap_or_default()
}

impl Visit for Values {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Kind::F64, &value.to_le_bytes());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Kind::I64, &value.to_le_bytes());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Kind::U64, &value.to_le_bytes());
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.record_bytes(field, &value.to_le_bytes());
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.record_bytes(field, &value.to_le_bytes());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Kind::Bool, &u32::from(value).to_le_bytes());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_counted(field, Kind::Text, |values| {
            let _ = Appended(values).write_str(value);
        });
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.put_counted(field, Kind::Binary, |values| {
            let fitting = value.get(..values.room()).unwrap_or(value);
            values.payload.extend_from_slice(fitting);
        });
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put_display(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put_display(field, format_args!("{value:?}"));
    }
}
