//! Builders of traits and metadata. A metadata builder can reuse its memory for the next blob.

use alloc::vec::Vec;

use super::encode::MetadataEncoder;
use super::{
    Arity, CONTINUATION_BIT, FieldMetadata, TRAIT_DECODE_GUID, TRAIT_GROUP, TYPE_MASK, TYPE_STRUCT,
    WHAT_METADATA,
};
use crate::text::until_nul8;
use crate::wire::Put;
use crate::{Error, Guid, Result};

/// The largest traits blob, in bytes.
const MAX_TRAITS_BYTES: usize = 0xFFFF;
/// The largest metadata blob, in bytes. The size field could hold more, but the documented format
/// allows no larger size.
const MAX_METADATA_BYTES: usize = 0x7FFF;
/// The largest metadata blob that the size field can describe, in bytes.
const MAX_RAW_METADATA_BYTES: usize = 0xFFFF;

const TYPE_NULL: u8 = 0;
const TYPE_BINARY: u8 = 14;
const TYPE_POINTER: u8 = 16;

/// Builds provider traits.
///
/// ```
/// # use traceweir_format::{Guid, tracelogging::{Traits, TraitsBuilder}};
/// let group = Guid::from_provider_name("MyGroup");
/// let mut builder = TraitsBuilder::new("MyProvider");
/// let blob = builder.group(&group).finish()?;
/// assert_eq!(Traits::parse(blob)?.group(), Some(group));
/// # Ok::<(), traceweir_format::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TraitsBuilder {
    blob: Vec<u8>,
    error: Option<Error>,
}

impl TraitsBuilder {
    /// Starts with the provider's name, which is cut at its first NUL.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut blob = Vec::new();
        blob.put_u16(0);
        put_name(&mut blob, name.as_bytes());
        Self { blob, error: None }
    }

    /// Adds the group that the provider belongs to. There can be only one.
    pub fn group(&mut self, group: &Guid) -> &mut Self {
        self.add(TRAIT_GROUP, &group.to_bytes())
    }

    /// Adds the GUID under which the provider's events are decoded.
    pub fn decode_guid(&mut self, guid: &Guid) -> &mut Self {
        self.add(TRAIT_DECODE_GUID, &guid.to_bytes())
    }

    /// Adds a trait of any type.
    pub fn add(&mut self, kind: u8, data: &[u8]) -> &mut Self {
        let size = data.len().saturating_add(3);
        match u16::try_from(size) {
            Ok(size) => {
                self.blob.put_u16(size).put_u8(kind).put(data);
            }
            Err(_) => {
                let error = Error::TooLarge {
                    what: "provider trait",
                    size: size as u64,
                    limit: MAX_TRAITS_BYTES as u64,
                };
                self.error.get_or_insert(error);
            }
        }
        self
    }

    /// Returns the blob, or the first error.
    pub fn finish(&mut self) -> Result<&[u8]> {
        write_size(&mut self.blob, &self.error, "provider traits", MAX_TRAITS_BYTES)?;
        super::Traits::parse_strict(&self.blob)?;
        Ok(&self.blob)
    }
}

/// Builds event metadata.
///
/// Fields are encoded in the order in which they are added, and a structure before its members.
/// Fields that readers cannot decode are rejected: types above 31, structures without members or
/// with more than 127, arrays of binary or null values, pointers (type 16, which has no size).
///
/// ```
/// # use traceweir_format::tracelogging::{EventMetadata, MetadataBuilder};
/// let mut builder = MetadataBuilder::new("Request", 0);
/// let blob = builder.add_field("url", 1, 0, 0).add_struct("timing", 2, 0)
///     .add_field("start", 17, 0, 0)
///     .add_array("steps", 8, 0, 0).finish()?;
/// let metadata = EventMetadata::parse(blob)?;
/// assert_eq!((metadata.name, metadata.fields().count()), (&b"Request"[..], 4));
/// # Ok::<(), traceweir_format::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MetadataBuilder {
    blob: Vec<u8>,
    error: Option<Error>,
}

impl MetadataBuilder {
    /// Starts with the event's name, which is cut at its first NUL, and its tags, of which 28 bits
    /// are used.
    #[must_use]
    pub fn new(name: &str, tags: u32) -> Self {
        let mut builder = Self { blob: Vec::new(), error: None };
        builder.reset(name, tags);
        builder
    }

    /// Starts over with another event.
    pub fn reset(&mut self, name: &str, tags: u32) -> &mut Self {
        self.blob.clear();
        self.error = None;
        self.blob.put_u16(0);
        self.encode(|encoder| encoder.put_event(name, tags))
    }

    /// Reserves memory, so that the blob can grow to `bytes` bytes without an allocation.
    pub fn reserve(&mut self, bytes: usize) -> &mut Self {
        self.blob.reserve(bytes.saturating_sub(self.blob.len()));
        self
    }

    /// Adds a single value.
    pub fn add_field(&mut self, name: &str, in_type: u8, out: u8, tags: u32) -> &mut Self {
        self.add(&FieldMetadata::scalar(name, in_type, out, tags))
    }

    /// Adds an array whose count is in the payload.
    pub fn add_array(&mut self, name: &str, in_type: u8, out: u8, tags: u32) -> &mut Self {
        self.add(&FieldMetadata::array(name, in_type, out, tags))
    }

    /// Adds an array with a fixed count.
    pub fn add_fixed_array(&mut self, name: &str, in_type: u8, out: u8, tags: u32, count: u16) -> &mut Self {
        self.add(&FieldMetadata { name: name.as_bytes(), in_type, out, tags, arity: Arity::Fixed(count) })
    }

    /// Adds a structure of the next `members` fields. A structure among them counts once, without
    /// its members.
    pub fn add_struct(&mut self, name: &str, members: u8, tags: u32) -> &mut Self {
        self.add_field(name, TYPE_STRUCT, members, tags)
    }

    /// Adds an array of structures, with its count in the payload.
    pub fn add_struct_array(&mut self, name: &str, members: u8, tags: u32) -> &mut Self {
        self.add_array(name, TYPE_STRUCT, members, tags)
    }

    /// Adds bytes in a private encoding: `protocol` is its number, freely chosen from 5 to 31, and
    /// `schema` describes it to the decoder.
    pub fn add_custom(&mut self, name: &str, protocol: u8, tags: u32, schema: &[u8]) -> &mut Self {
        let arity = Arity::Custom(schema);
        self.add(&FieldMetadata { name: name.as_bytes(), in_type: protocol, out: 0, tags, arity })
    }

    /// Adds a field, after checking that readers can decode it.
    pub fn add(&mut self, field: &FieldMetadata<'_>) -> &mut Self {
        if let Some(reason) = find_defect(field) {
            let offset = self.blob.len() as u64;
            self.error.get_or_insert(Error::Invalid { what: "field metadata", offset, reason });
            return self;
        }
        self.add_raw(field)
    }

    /// Adds a field unchecked, for callers that build encodings unknown to this module.
    pub fn add_raw(&mut self, field: &FieldMetadata<'_>) -> &mut Self {
        self.encode(|encoder| encoder.put_field(field))
    }

    /// Appends the bytes that `write` produces. It is called twice: first to get the size.
    fn encode(&mut self, write: impl Fn(MetadataEncoder<'_>) -> MetadataEncoder<'_>) -> &mut Self {
        let start = self.blob.len();
        let end = start.saturating_add(write(MetadataEncoder::new(&mut [])).written);
        self.blob.resize(end, 0);
        if let Some(target) = self.blob.get_mut(start..) {
            write(MetadataEncoder::new(target));
        }
        self
    }

    /// Returns the blob, or the first error. More fields may be added afterwards.
    pub fn finish(&mut self) -> Result<&[u8]> {
        write_size(&mut self.blob, &self.error, WHAT_METADATA, MAX_METADATA_BYTES)?;
        Ok(&self.blob)
    }

    /// Like [`finish`](Self::finish), but up to the largest value of the size field.
    pub fn finish_raw(&mut self) -> Result<&[u8]> {
        write_size(&mut self.blob, &self.error, WHAT_METADATA, MAX_RAW_METADATA_BYTES)?;
        Ok(&self.blob)
    }
}

/// Returns the reason why readers cannot decode a field.
fn find_defect(field: &FieldMetadata<'_>) -> Option<&'static str> {
    let is_array = matches!(field.arity, Arity::Fixed(_) | Arity::Variable);
    match (field.arity, field.in_type) {
        (_, t) if t > TYPE_MASK => Some("in type above 31"),
        _ if field.out & CONTINUATION_BIT != 0 => Some("out type or member count above 127"),
        (Arity::Custom(schema), _) if schema.len() > MAX_METADATA_BYTES => {
            Some("schema above the limit of the metadata")
        }
        (Arity::Custom(_), _) => None,
        (_, TYPE_STRUCT) if field.out == 0 => Some("structure without members"),
        (_, TYPE_POINTER) => Some("pointer without a size"),
        (_, TYPE_BINARY) if is_array => Some("array of binary values"),
        (_, TYPE_NULL) if is_array => Some("array of null values"),
        _ => None,
    }
}

fn put_name(blob: &mut Vec<u8>, name: &[u8]) {
    blob.put(until_nul8(name)).put_u8(0);
}

/// Writes the size field, unless there is an error or the blob exceeds `limit`.
fn write_size(blob: &mut [u8], error: &Option<Error>, what: &'static str, limit: usize) -> Result<()> {
    if let Some(error) = error {
        return Err(error.clone());
    }
    let size = u16::try_from(blob.len()).ok().filter(|&s| usize::from(s) <= limit);
    let size = size.ok_or(Error::TooLarge { what, size: blob.len() as u64, limit: limit as u64 })?;
    if let Some(field) = blob.first_chunk_mut() {
        *field = size.to_le_bytes();
    }
    Ok(())
}
