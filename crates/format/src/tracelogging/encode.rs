//! Event metadata as bytes: the one place that writes them, for macros at compile time and for builders at run time.
//!
//! ```
//! use traceweir_format::tracelogging::{FieldMetadata, metadata, metadata_size};
//!
//! const FIELDS: &[FieldMetadata<'_>] = &[FieldMetadata::scalar("count", 8, 0, 0)];
//! static REQUEST: [u8; metadata_size("Request", 0, FIELDS)] = metadata("Request", 0, FIELDS);
//! assert_eq!(&REQUEST, b"\x12\0\0Request\0count\0\x08");
//! ```
//!
//! Everything is `const` and nothing is checked: what readers could not decode is refused by [`MetadataBuilder`](super::MetadataBuilder), or meant by whoever
//! asks for raw fields. Sizes and bytes come from the same walk, once into nothing and once into the memory for them, so they cannot disagree.

use super::{ARITY_CUSTOM, ARITY_FIXED, ARITY_VARIABLE, Arity, FieldMetadata, MORE, TAG_BITS};

/// The bytes that [`metadata`] has for the same event. More than 65,535 cannot be said in its size field.
#[must_use]
pub const fn metadata_size(name: &str, tags: u32, fields: &[FieldMetadata<'_>]) -> usize {
    Pen::new(&mut []).size(0).event(name, tags).fields(fields).written
}

/// The metadata of an event, `N` being its [`metadata_size`].
#[must_use]
pub const fn metadata<const N: usize>(name: &str, tags: u32, fields: &[FieldMetadata<'_>]) -> [u8; N] {
    let mut bytes = [0; N];
    // A size beyond its field is refused by whoever asks for `N`.
    Pen::new(&mut bytes).size(N as u16).event(name, tags).fields(fields);
    bytes
}

/// Writes byte after byte, and counts those for which there is no room.
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

    /// A name up to its first NUL, and its end.
    const fn name(mut self, mut name: &[u8]) -> Self {
        while let Some((byte, rest)) = name.split_first()
            && *byte != 0
        {
            self = self.byte(*byte);
            name = rest;
        }
        self.byte(0)
    }

    /// The shortest of 1, 2 and 4 bytes that keeps all set bits: tags fill from the high end, so it is the low ones that may go.
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

    /// What stands in front of the fields, behind the size.
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
