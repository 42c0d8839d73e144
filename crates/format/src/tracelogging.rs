//! Self-describing TraceLogging events: builders and views of provider traits and event metadata.
//!
//! ```text
//! traits     u16 size of the blob │ provider name NUL │ trait…
//! trait      u16 size of the trait │ u8 type │ data
//!            type: 1 group GUID, 2 decode GUID, 3-127 reserved, 128- free
//!
//! metadata   u16 size of the blob │ tags │ event name NUL │ field…
//! tags       bytes until one with bit 7 clear, 7 bits each: bits 27-21, 20-14, 13-7, 6-0;
//!            bytes after the fourth are ignored
//! field      name NUL │ u8 in │ [u8 out, if in bit 7] │ [tags, if out bit 7] │ [u16 count] │
//!            [u16 size, type information]
//!
//! in         bits 0-4 type │ bits 5-6 arity │ bit 7: out follows
//! arity      00 one value │ 20 fixed count, which follows │ 40 count in the payload │
//!            60 private encoding: size and type information follow
//! out        bits 0-6 out type, or members of a structure │ bit 7: tags follow
//! ```
//!
//! Members of a structure follow it, and a structure among them counts as one member. Names are
//! usually but not always UTF-8. Bytes after the size of a blob are ignored. Views copy nothing,
//! check every bound and accept unusual but readable input, such as tags in more bytes than they
//! need. Builders write the shortest form and reject fields that readers cannot decode.
//!
//! This module does not interpret payloads; the decoder builds a schema from the metadata.
//!
//! Source: Documented (TraceLoggingProvider.h, "Provider Traits"). Observed on traces with groups,
//! tags, arrays and structures.

mod build;
mod encode;
#[cfg(test)]
mod tests;

pub use build::{MetadataBuilder, TraitsBuilder};
pub use encode::{encode_metadata, metadata_size};

use crate::wire::{Cursor, chunk};
use crate::{Error, Guid, Result};

/// Trait type of the provider group.
pub const TRAIT_GROUP: u8 = 1;
/// Trait type of the GUID under which events are decoded, if it differs from the control GUID of
/// the provider.
pub const TRAIT_DECODE_GUID: u8 = 2;

/// The in type of structures; their out byte is the number of members.
pub const TYPE_STRUCT: u8 = 24;
const TYPE_MASK: u8 = 0x1F;
const ARITY_MASK: u8 = 0x60;
const ARITY_FIXED: u8 = 0x20;
const ARITY_VARIABLE: u8 = 0x40;
const ARITY_CUSTOM: u8 = 0x60;
/// In an in byte: an out byte follows. In an out byte: tags follow. In a byte of tags: another byte
/// of tags follows.
const CONTINUATION_BIT: u8 = 0x80;
/// Event and field tags have this many bits.
const TAG_BITS: u32 = 28;

/// The traits of a provider: its name and its trait list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits<'a> {
    /// The provider's name, without its NUL.
    pub name: &'a [u8],
    traits: &'a [u8],
    size: usize,
}

impl<'a> Traits<'a> {
    /// Views the traits at the start of `bytes`; only the size is checked.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut blob = open_blob("provider traits", bytes)?;
        let name = blob.ansi_z();
        let traits = blob.rest();
        Ok(Self { name, traits, size: blob.position().saturating_add(traits.len()) })
    }

    /// Like [`parse`](Self::parse), for the traits of a registration, which must be valid: `bytes`
    /// are exactly the blob, the name is terminated, each trait lies inside, GUIDs are complete and
    /// there is at most one group.
    pub fn parse_strict(bytes: &'a [u8]) -> Result<Self> {
        let traits = Self::parse(bytes)?;
        let invalid = |offset, reason| Err(Error::Invalid { what: "provider traits", offset, reason });
        if traits.size != bytes.len() {
            return invalid(0, "size is not that of the blob");
        }
        if memchr::memchr(0, bytes.get(2..).unwrap_or_default()).is_none() {
            return invalid(2, "name is unterminated");
        }
        let mut iter = traits.iter();
        let mut groups = 0_u32;
        for (kind, data) in iter.by_ref() {
            groups = groups.saturating_add(u32::from(kind == TRAIT_GROUP));
            if groups > 1 {
                return invalid(0, "more than one group");
            }
            if matches!(kind, TRAIT_GROUP | TRAIT_DECODE_GUID) && data.len() != 16 {
                return invalid(0, "GUID does not have 16 bytes");
            }
        }
        if !iter.remaining.is_empty() {
            return invalid(
                bytes.len().saturating_sub(iter.remaining.len()) as u64,
                "trait exceeds the blob",
            );
        }
        Ok(traits)
    }

    /// Returns the size of the blob in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns type and data of each trait, up to the first malformed one.
    #[must_use]
    pub fn iter(&self) -> TraitIter<'a> {
        TraitIter { remaining: self.traits }
    }

    /// Returns the data of the first trait of a type.
    #[must_use]
    pub fn get(&self, kind: u8) -> Option<&'a [u8]> {
        self.iter().find(|(trait_type, _)| *trait_type == kind).map(|(_, data)| data)
    }

    /// Returns the group that the provider belongs to.
    #[must_use]
    pub fn group(&self) -> Option<Guid> {
        self.get(TRAIT_GROUP).and_then(|d| chunk(d, 0)).map(Guid::from_bytes)
    }

    /// Returns the GUID under which events are decoded, if it differs from the control GUID of the
    /// provider.
    #[must_use]
    pub fn decode_guid(&self) -> Option<Guid> {
        self.get(TRAIT_DECODE_GUID).and_then(|d| chunk(d, 0)).map(Guid::from_bytes)
    }
}

impl<'a> IntoIterator for &Traits<'a> {
    type Item = (u8, &'a [u8]);
    type IntoIter = TraitIter<'a>;

    fn into_iter(self) -> TraitIter<'a> {
        self.iter()
    }
}

/// Type and data of each trait of a blob. See [`Traits::iter`].
#[derive(Clone, Debug)]
pub struct TraitIter<'a> {
    remaining: &'a [u8],
}

impl<'a> Iterator for TraitIter<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let size = usize::from(u16::from_le_bytes(*chunk(self.remaining, 0)?));
        let (entry, remaining) = self.remaining.split_at_checked(size)?;
        let (_, [kind, data @ ..]) = entry.split_at_checked(2)? else {
            return None;
        };
        self.remaining = remaining;
        Some((*kind, data))
    }
}

/// The metadata of an event: name, tags and fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMetadata<'a> {
    /// Event tags, 28 bits.
    pub tags: u32,
    /// The event's name, without its NUL.
    pub name: &'a [u8],
    blob: &'a [u8],
    /// Offset of the fields in the blob.
    fields: usize,
}

const WHAT_METADATA: &str = "event metadata";

impl<'a> EventMetadata<'a> {
    /// Views the metadata at the start of `bytes`; fields are parsed on demand.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = open_blob(WHAT_METADATA, bytes)?;
        let tags = read_tags(&mut cursor)?;
        let name = cursor.ansi_z();
        let size = cursor.position().saturating_add(cursor.rest().len());
        Ok(Self { tags, name, blob: bytes.get(..size).unwrap_or(bytes), fields: cursor.position() })
    }

    /// Returns the size of the blob in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.blob.len()
    }

    /// Returns the fields in the order in which they are written, members after their structure.
    /// Ends after the first error.
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        let mut cursor = Cursor::new(WHAT_METADATA, self.blob);
        let has_failed = cursor.seek(self.fields).is_err();
        Fields { cursor, has_failed }
    }
}

/// The fields of an event. See [`EventMetadata::fields`].
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    cursor: Cursor<'a>,
    has_failed: bool,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<FieldMetadata<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed || self.cursor.is_empty() {
            return None;
        }
        let field = FieldMetadata::read(&mut self.cursor);
        self.has_failed = field.is_err();
        Some(field)
    }
}

/// The description of one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldMetadata<'a> {
    /// Name of the field, without its NUL.
    pub name: &'a [u8],
    /// In type, 5 bits; with [`Arity::Custom`], the protocol instead.
    pub in_type: u8,
    /// Out type in the numbers of TraceLogging, 7 bits; for a structure, the number of its members.
    pub out: u8,
    /// Field tags, 28 bits.
    pub tags: u32,
    /// The number of values.
    pub arity: Arity<'a>,
}

/// The number of values of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arity<'a> {
    /// A single value.
    #[default]
    Scalar,
    /// A fixed number of values, which the payload does not repeat.
    Fixed(u16),
    /// As many values as the 16-bit number before them in the payload.
    Variable,
    /// Bytes in a private encoding after their 16-bit count, with a description for its decoder.
    Custom(&'a [u8]),
}

impl<'a> FieldMetadata<'a> {
    /// Describes a single value.
    #[must_use]
    pub const fn scalar(name: &'a str, in_type: u8, out: u8, tags: u32) -> Self {
        Self { name: name.as_bytes(), in_type, out, tags, arity: Arity::Scalar }
    }

    /// Describes an array whose count is in the payload.
    #[must_use]
    pub const fn array(name: &'a str, in_type: u8, out: u8, tags: u32) -> Self {
        Self { name: name.as_bytes(), in_type, out, tags, arity: Arity::Variable }
    }

    /// Returns the number of direct members, if the field is a structure.
    #[must_use]
    pub fn members(&self) -> Option<u8> {
        let is_structure = self.in_type == TYPE_STRUCT && !matches!(self.arity, Arity::Custom(_));
        is_structure.then_some(self.out)
    }

    fn read(cursor: &mut Cursor<'a>) -> Result<Self> {
        let name = cursor.ansi_z();
        let input = cursor.u8()?;
        let out = if input & CONTINUATION_BIT != 0 { cursor.u8()? } else { 0 };
        let tags = if out & CONTINUATION_BIT != 0 { read_tags(cursor)? } else { 0 };
        let arity = match input & ARITY_MASK {
            ARITY_FIXED => Arity::Fixed(cursor.u16()?),
            ARITY_VARIABLE => Arity::Variable,
            ARITY_CUSTOM => {
                let size = cursor.u16()?;
                Arity::Custom(cursor.bytes(usize::from(size))?)
            }
            _ => Arity::Scalar,
        };
        Ok(Self { name, in_type: input & TYPE_MASK, out: out & !CONTINUATION_BIT, tags, arity })
    }
}

/// Returns a cursor over exactly the blob at the start of `bytes`, after its size.
fn open_blob<'a>(what: &'static str, bytes: &'a [u8]) -> Result<Cursor<'a>> {
    let size = Cursor::new(what, bytes).u16()?;
    let mut cursor = Cursor::new(what, Cursor::new(what, bytes).bytes(usize::from(size))?);
    cursor.u16()?;
    Ok(cursor)
}

fn read_tags(cursor: &mut Cursor<'_>) -> Result<u32> {
    let (mut tags, mut shift) = (0_u32, TAG_BITS);
    loop {
        let byte = cursor.u8()?;
        if let Some(s) = shift.checked_sub(7) {
            tags |= u32::from(byte & !CONTINUATION_BIT).wrapping_shl(s);
            shift = s;
        }
        if byte & CONTINUATION_BIT == 0 {
            return Ok(tags);
        }
    }
}
