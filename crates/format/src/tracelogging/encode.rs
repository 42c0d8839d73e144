//! Encodes event metadata, for macros at compile time and for builders at run time.
//!
//! ```
//! use traceweir_format::tracelogging::{FieldMetadata, encode_metadata, metadata_size};
//!
//! const FIELDS: &[FieldMetadata<'_>] = &[FieldMetadata::scalar("count", 8, 0, 0)];
//! const SIZE: usize = metadata_size("Request", 0, FIELDS);
//! static REQUEST: [u8; SIZE] = encode_metadata("Request", 0, FIELDS);
//! assert_eq!(&REQUEST, b"\x12\0\0Request\0count\0\x08");
//! ```
//!
//! All functions are `const` and check nothing: [`MetadataBuilder`](super::MetadataBuilder) rejects
//! fields that readers cannot decode. The same functions compute the size, without memory to write
//! to, and then write the bytes, so the size is always right.

use super::{ARITY_CUSTOM, ARITY_FIXED, ARITY_VARIABLE, Arity, CONTINUATION_BIT, FieldMetadata, TAG_BITS};

/// Returns the size in bytes of the [metadata](encode_metadata) of an event. The size field of the
/// metadata holds at most 65,535.
#[must_use]
pub const fn metadata_size(name: &str, tags: u32, fields: &[FieldMetadata<'_>]) -> usize {
    MetadataEncoder::new(&mut []).put_u16(0).put_event(name, tags).put_fields(fields).written
}

/// Returns the metadata of an event; `N` is its [`metadata_size`].
#[must_use]
pub const fn encode_metadata<const N: usize>(name: &str, tags: u32, fields: &[FieldMetadata<'_>]) -> [u8; N] {
    let mut bytes = [0; N];
    // The caller has computed `N` and rejects a size that the field cannot hold.
    MetadataEncoder::new(&mut bytes).put_u16(N as u16).put_event(name, tags).put_fields(fields);
    bytes
}

/// Writes metadata into `target` and counts all bytes, including those that do not fit.
pub(super) struct MetadataEncoder<'a> {
    target: &'a mut [u8],
    pub(super) written: usize,
}

impl<'a> MetadataEncoder<'a> {
    pub(super) const fn new(target: &'a mut [u8]) -> Self {
        Self { target, written: 0 }
    }

    const fn put_byte(self, byte: u8) -> Self {
        let written = self.written.saturating_add(1);
        match self.target.split_first_mut() {
            Some((to, target)) => {
                *to = byte;
                Self { target, written }
            }
            None => Self { target: &mut [], written },
        }
    }

    const fn put_u16(self, number: u16) -> Self {
        let [low, high] = number.to_le_bytes();
        self.put_byte(low).put_byte(high)
    }

    const fn put_bytes(mut self, mut bytes: &[u8]) -> Self {
        while let Some((byte, remaining)) = bytes.split_first() {
            self = self.put_byte(*byte);
            bytes = remaining;
        }
        self
    }

    /// Writes a name up to its first NUL, and the NUL.
    const fn put_name(mut self, mut name: &[u8]) -> Self {
        while let Some((byte, remaining)) = name.split_first()
            && *byte != 0
        {
            self = self.put_byte(*byte);
            name = remaining;
        }
        self.put_byte(0)
    }

    /// Writes the 28 bits of tags in the shortest form of 1, 2 or 4 bytes that keeps all set bits.
    /// The high bits come first, so low bits of 0 may be omitted.
    const fn put_tags(self, tags: u32) -> Self {
        let first = (tags >> 21) as u8 & !CONTINUATION_BIT;
        let second = (tags >> 14) as u8 & !CONTINUATION_BIT;
        if tags & low_bits(21) == 0 {
            self.put_byte(first)
        } else if tags & low_bits(14) == 0 {
            self.put_byte(first | CONTINUATION_BIT).put_byte(second)
        } else {
            self.put_byte(first | CONTINUATION_BIT)
                .put_byte(second | CONTINUATION_BIT)
                .put_byte((tags >> 7) as u8 | CONTINUATION_BIT)
                .put_byte(tags as u8 & !CONTINUATION_BIT)
        }
    }

    /// Writes the part between the size and the fields.
    pub(super) const fn put_event(self, name: &str, tags: u32) -> Self {
        self.put_tags(tags).put_name(name.as_bytes())
    }

    const fn put_fields(mut self, mut fields: &[FieldMetadata<'_>]) -> Self {
        while let Some((field, remaining)) = fields.split_first() {
            self = self.put_field(field);
            fields = remaining;
        }
        self
    }

    pub(super) const fn put_field(self, field: &FieldMetadata<'_>) -> Self {
        let tags = field.tags & low_bits(TAG_BITS);
        let out = field.out & !CONTINUATION_BIT;
        let input = field.in_type & !CONTINUATION_BIT
            | match field.arity {
                Arity::Scalar => 0,
                Arity::Fixed(_) => ARITY_FIXED,
                Arity::Variable => ARITY_VARIABLE,
                Arity::Custom(_) => ARITY_CUSTOM,
            };
        let encoder = self.put_name(field.name);
        let encoder = if tags != 0 {
            encoder.put_byte(input | CONTINUATION_BIT).put_byte(out | CONTINUATION_BIT).put_tags(tags)
        } else if out != 0 {
            encoder.put_byte(input | CONTINUATION_BIT).put_byte(out)
        } else {
            encoder.put_byte(input)
        };
        match field.arity {
            Arity::Scalar | Arity::Variable => encoder,
            Arity::Fixed(count) => encoder.put_u16(count),
            Arity::Custom(schema) => encoder.put_u16(schema.len() as u16).put_bytes(schema),
        }
    }
}

const fn low_bits(n: u32) -> u32 {
    u32::MAX >> (u32::BITS.saturating_sub(n))
}
