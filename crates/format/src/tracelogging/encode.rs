//! Encodes event metadata, for macros at compile time and for builders at run time.
//!
//! ```
//! use traceweir_format::tracelogging::{FieldMetadata, metadata, metadata_size};
//!
//! const FIELDS: &[FieldMetadata<'_>] = &[FieldMetadata::scalar("count", 8, 0, 0)];
//! static REQUEST: [u8; metadata_size("Request", 0, FIELDS)] = metadata("Request", 0, FIELDS);
//! assert_eq!(&REQUEST, b"\x12\0\0Request\0count\0\x08");
//! ```
//!
//! Everything is `const` and nothing is checked: [`MetadataBuilder`](super::MetadataBuilder)
//! rejects fields that readers cannot decode, and callers that add raw fields intend them. Sizes
//! and bytes come from the same walk, once without and once with memory to write to, so they cannot
//! disagree.

use super::{ARITY_CUSTOM, ARITY_FIXED, ARITY_VARIABLE, Arity, FieldMetadata, MORE, TAG_BITS};

/// Returns the size of [`metadata`] for the same event in bytes. Its size field cannot hold more
/// than 65,535.
#[must_use]
pub const fn metadata_size(name: &str, tags: u32, fields: &[FieldMetadata<'_>]) -> usize {
    Pen::new(&mut []).size(0).event(name, tags).fields(fields).written
}

/// Returns the metadata of an event; `N` is its [`metadata_size`].
#[must_use]
pub const fn metadata<const N: usize>(name: &str, tags: u32, fields: &[FieldMetadata<'_>]) -> [u8; N] {
    let mut bytes = [0; N];
    // The caller that computes `N` rejects a size beyond the field.
    Pen::new(&mut bytes).size(N as u16).event(name, tags).fields(fields);
    bytes
}

/// Writes bytes one after the other, and counts those that do not fit.
pub(super) struct Pen<'a> {
    rest: &'a mut [u8],
    pub(super) written: usize,
}

impl<'a> Pen<'a> {
    pub(super) const fn new(rest: &'a mut [u8]) -> Self {
        Self { rest, written: 0 }
    }

    const fn byte(self, byte: u8) -> Self {
        let written = self.written.saturating_add(1);
        match self.rest.split_first_mut() {
            Some((to, rest)) => {
                *to = byte;
                Self { rest, written }
            }
            None => Self { rest: &mut [], written },
        }
    }

    const fn size(self, size: u16) -> Self {
        let [low, high] = size.to_le_bytes();
        self.byte(low).byte(high)
    }

    const fn bytes(mut self, mut bytes: &[u8]) -> Self {
        while let Some((byte, rest)) = bytes.split_first() {
            self = self.byte(*byte);
            bytes = rest;
        }
        self
    }

    /// Writes a name up to its first NUL, and the NUL.
    const fn name(mut self, mut name: &[u8]) -> Self {
        while let Some((byte, rest)) = name.split_first()
            && *byte != 0
        {
            self = self.byte(*byte);
            name = rest;
        }
        self.byte(0)
    }

    /// Writes the shortest of 1, 2 and 4 bytes that keeps all set bits: tags fill from the high
    /// end, so low bits may be omitted.
    const fn tags(self, tags: u32) -> Self {
        let a = (tags >> 21) as u8 & !MORE;
        let b = (tags >> 14) as u8 & !MORE;
        if tags & low_bits(21) == 0 {
            self.byte(a)
        } else if tags & low_bits(14) == 0 {
            self.byte(a | MORE).byte(b)
        } else {
            self.byte(a | MORE).byte(b | MORE).byte((tags >> 7) as u8 | MORE).byte(tags as u8 & !MORE)
        }
    }

    /// Writes the part between the size and the fields.
    pub(super) const fn event(self, name: &str, tags: u32) -> Self {
        self.tags(tags).name(name.as_bytes())
    }

    const fn fields(mut self, mut fields: &[FieldMetadata<'_>]) -> Self {
        while let Some((field, rest)) = fields.split_first() {
            self = self.field(field);
            fields = rest;
        }
        self
    }

    pub(super) const fn field(self, field: &FieldMetadata<'_>) -> Self {
        let tags = field.tags & low_bits(TAG_BITS);
        let out = field.out & !MORE;
        let input = field.in_type & !MORE
            | match field.arity {
                Arity::Scalar => 0,
                Arity::Fixed(_) => ARITY_FIXED,
                Arity::Variable => ARITY_VARIABLE,
                Arity::Custom(_) => ARITY_CUSTOM,
            };
        let named = self.name(field.name);
        let typed = if tags != 0 {
            named.byte(input | MORE).byte(out | MORE).tags(tags)
        } else if out != 0 {
            named.byte(input | MORE).byte(out)
        } else {
            named.byte(input)
        };
        match field.arity {
            Arity::Scalar | Arity::Variable => typed,
            Arity::Fixed(count) => typed.size(count),
            Arity::Custom(schema) => typed.size(schema.len() as u16).bytes(schema),
        }
    }
}

const fn low_bits(n: u32) -> u32 {
    u32::MAX >> (u32::BITS.saturating_sub(n))
}
