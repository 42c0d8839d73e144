//! The model of an event layout that all schema sources produce.
//!
//! Fields are kept in one flat list, top-level fields first, as in TRACE_EVENT_INFO: a structure
//! names the range of its members, and a count or length may be the value of an earlier field.
//!
//! ```text
//!   fields   [ Count │ Values (struct 2..4, count = field 0) │ TypeId │ Name ]
//!             └──── top = 2 ────────────────────────────────┘└─ members ────┘
//! ```
//!
//! [`Schema::seal`] checks what the walker relies on: member ranges lie inside the list and after
//! their structure (so there is no cycle), no two structures share members, nesting and size are
//! bounded, and references point at values.

use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::text::{until_nul8, until_nul16};

use crate::value::Value;
use crate::{Error, Result};

/// The largest number of fields of one event.
pub const MAX_FIELDS: usize = 4096;
/// The deepest nesting of structures.
pub const MAX_DEPTH: usize = 8;

/// The kind of source that a schema came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemaOrigin {
    /// An instrumentation manifest: XML, compiled, or carried by the trace.
    #[default]
    Manifest,
    /// TraceLogging metadata in the event itself.
    TraceLogging,
    /// A classic event class that this project has a table for.
    Kernel,
    /// A TRACE_EVENT_INFO that a merge of traces put into the trace.
    Embedded,
    /// A WPP message format.
    Wpp,
    /// A plain string event.
    StringOnly,
}

/// Names that describe an event besides its fields. All are optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaNames {
    /// Name of the provider.
    pub provider: Option<Arc<str>>,
    /// The event's own name: TraceLogging name, manifest symbol, `Class/Type` of kernel events.
    pub event: Option<Arc<str>>,
    /// Name of the task.
    pub task: Option<Arc<str>>,
    /// Name of the opcode.
    pub opcode: Option<Arc<str>>,
    /// Name of the level.
    pub level: Option<Arc<str>>,
    /// Name of the channel.
    pub channel: Option<Arc<str>>,
    /// Keyword bits and their names.
    pub keywords: Vec<(u64, Arc<str>)>,
}

/// The layout and the names of one kind of event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// The kind of source that the schema came from.
    pub origin: SchemaOrigin,
    /// The provider, class or message GUID.
    pub provider: Guid,
    /// The provider group, where the traits name one.
    pub group: Option<Guid>,
    /// Names of the event and its attributes.
    pub names: SchemaNames,
    /// The message with `%1` inserts.
    pub message: Option<Arc<str>>,
    /// Event tags of TraceLogging, 28 bits.
    pub tags: u32,
    fields: Vec<Field>,
    top: usize,
    has_references: bool,
    has_fast_paths: bool,
    /// Whether the schema describes the log-file header event, two pointers of which stand for
    /// names: see [`walk`](crate::walk).
    pub(crate) is_log_file_header: bool,
}

/// One field of a payload.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name of the field.
    pub name: Arc<str>,
    /// A value, or a structure of other fields.
    pub kind: FieldKind,
    /// How many values the field has.
    pub count: Count,
    /// The length of each value.
    pub length: Length,
    /// Field tags of TraceLogging, 28 bits.
    pub tags: u32,
    /// Whether TDH lists the 16-bit length before the bytes as a separate property.
    pub has_listed_length: bool,
    /// Whether another field takes its count or length from this one. Set by [`Schema::seal`].
    pub is_referenced: bool,
    /// The fast path for the most common kinds. Set by [`Schema::seal`].
    pub(crate) fast_path: FastPath,
}

impl PartialEq for Field {
    /// Compares the descriptions, without `fast_path` and `has_listed_length`.
    fn eq(&self, other: &Self) -> bool {
        let sizes_and_tags = |f: &Self| (f.count, f.length, f.tags, f.is_referenced);
        self.name == other.name && self.kind == other.kind && sizes_and_tags(self) == sizes_and_tags(other)
    }
}

/// The fast path for a field with one value of a common type and natural length, to which no other
/// field refers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of `Value`.
pub enum FastPath {
    /// The field has no fast path.
    #[default]
    No,
    U8,
    U16,
    U32,
    I32,
    U64,
    Pointer,
    Text8,
    Text16,
}

impl FastPath {
    fn for_field(field: &Field) -> Self {
        let is_plain = field.count == Count::One && field.length == Length::Natural && !field.is_referenced;
        match field.kind {
            FieldKind::Value { input, .. } if is_plain => match input {
                InType::UINT8 => Self::U8,
                InType::UINT16 => Self::U16,
                InType::UINT32 | InType::HEXINT32 => Self::U32,
                InType::INT32 => Self::I32,
                InType::UINT64 | InType::HEXINT64 => Self::U64,
                InType::POINTER | InType::SIZET => Self::Pointer,
                InType::ANSISTRING => Self::Text8,
                InType::UNICODESTRING => Self::Text16,
                _ => Self::No,
            },
            _ => Self::No,
        }
    }

    /// Reads the value at the start of `bytes`, and returns it with the bytes after it; `None`
    /// without a fast path or enough bytes.
    #[inline(always)]
    #[must_use]
    pub fn split_value(self, bytes: &[u8], pointer_size: usize) -> Option<(Value<'_>, &[u8])> {
        Some(match self {
            Self::No => return None,
            Self::U8 => {
                let (value, rest) = bytes.split_first()?;
                (Value::U8(*value), rest)
            }
            Self::U16 => {
                let (value, rest) = bytes.split_first_chunk()?;
                (Value::U16(u16::from_le_bytes(*value)), rest)
            }
            Self::U32 => {
                let (value, rest) = bytes.split_first_chunk()?;
                (Value::U32(u32::from_le_bytes(*value)), rest)
            }
            Self::I32 => {
                let (value, rest) = bytes.split_first_chunk()?;
                (Value::I32(i32::from_le_bytes(*value)), rest)
            }
            Self::U64 => {
                let (value, rest) = bytes.split_first_chunk()?;
                (Value::U64(u64::from_le_bytes(*value)), rest)
            }
            Self::Pointer if pointer_size == 4 => {
                let (value, rest) = bytes.split_first_chunk()?;
                (Value::Pointer(u32::from_le_bytes(*value).into()), rest)
            }
            Self::Pointer => {
                let (value, rest) = bytes.split_first_chunk()?;
                (Value::Pointer(u64::from_le_bytes(*value)), rest)
            }
            Self::Text8 => {
                let text = until_nul8(bytes);
                (Value::Text8(text), bytes.get(text.len().wrapping_add(1)..).unwrap_or_default())
            }
            Self::Text16 => {
                let text = until_nul16(bytes);
                (Value::Text16(text), bytes.get(text.len().wrapping_add(2)..).unwrap_or_default())
            }
        })
    }
}

/// The kind of a field: a value or a structure.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldKind {
    /// A single value or an array of values.
    Value {
        /// Layout in the payload.
        input: InType,
        /// Format for display; [`OutType::NULL`] is the default format of `input`.
        output: OutType,
        /// Names of the values.
        map: Option<Arc<ValueMap>>,
    },
    /// A structure: the fields `first .. first + members`.
    Struct {
        /// Index of the first member.
        first: u16,
        /// Number of direct members.
        members: u16,
    },
}

/// The number of values of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// One value, shown as a value and not as an array.
    #[default]
    One,
    /// A fixed number of values.
    Fixed(u16),
    /// The number in an earlier field, by index.
    Field(u16),
    /// The 16-bit number before the values.
    Prefixed,
    /// As many values as fit until the end of the payload.
    ToEnd,
}

/// The length of a value, in units of its type: characters for UTF-16, bytes otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// The length that the type defines by its size, its terminator or its own prefix.
    #[default]
    Natural,
    /// A fixed length.
    Fixed(u16),
    /// The number in an earlier field, by index.
    Field(u16),
}

/// Names of the values or bits of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueMap {
    /// Name of the map itself.
    pub name: Arc<str>,
    /// Whether each entry names bits instead of a value.
    pub is_bit_map: bool,
    entries: Vec<(u64, Arc<str>)>,
}

impl ValueMap {
    /// Creates a map of `entries`. Cuts trailing blanks, which compiled maps carry, from the texts.
    #[must_use]
    pub fn new(name: &str, bits: bool, entries: impl IntoIterator<Item = (u64, String)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().map(|(v, t)| (v, Arc::from(t.trim_end()))).collect();
        if !bits {
            entries.sort_by_key(|e| e.0);
        }
        Self { name: name.into(), is_bit_map: bits, entries }
    }

    /// Returns the entries: values in ascending order, bits in the order of the manifest.
    #[must_use]
    pub fn entries(&self) -> &[(u64, Arc<str>)] {
        &self.entries
    }

    /// Returns the name of a value, in a map that does not name bits.
    #[must_use]
    pub fn value(&self, value: u64) -> Option<&str> {
        let at = self.entries.binary_search_by_key(&value, |e| e.0).ok()?;
        self.entries.get(at).map(|e| &*e.1)
    }
}

impl Field {
    /// Creates a field with one value of natural length.
    #[must_use]
    pub fn value(name: &str, input: InType, output: OutType) -> Self {
        Self::new(name, FieldKind::Value { input, output, map: None })
    }

    /// Creates a field of a kind, with one value of natural length.
    #[must_use]
    pub fn new(name: &str, kind: FieldKind) -> Self {
        let (count, length) = (Count::One, Length::Natural);
        Self {
            name: name.into(),
            kind,
            count,
            length,
            tags: 0,
            has_listed_length: false,
            is_referenced: false,
            fast_path: FastPath::No,
        }
    }

    /// Returns how to read the field without a walk, if it is of a common kind. Known after
    /// [`Schema::seal`].
    #[inline]
    #[must_use]
    pub const fn fast_path(&self) -> FastPath {
        self.fast_path
    }

    /// Returns the field with this count.
    #[must_use]
    pub fn with_count(mut self, count: Count) -> Self {
        self.count = count;
        self
    }

    /// Returns the field with this length.
    #[must_use]
    pub fn with_length(mut self, length: Length) -> Self {
        self.length = length;
        self
    }

    /// Returns the field with this map; structures have none.
    #[must_use]
    pub fn with_map(mut self, map: Option<Arc<ValueMap>>) -> Self {
        if let FieldKind::Value { map: slot, .. } = &mut self.kind {
            *slot = map;
        }
        self
    }
}

impl Schema {
    /// Returns whether a field is padding of a kernel event, which outputs leave out. Fields that a
    /// provider hides (`NOPRINT`) are still data for programs.
    #[must_use]
    #[inline]
    pub fn is_padding(&self, field: &Field) -> bool {
        self.origin == SchemaOrigin::Kernel
            && matches!(field.kind, FieldKind::Value { output: OutType::NOPRINT, .. })
    }

    /// Sets the fields and checks them. The first `top` fields are the top-level fields, in the
    /// order of the payload.
    pub fn seal(mut self, mut fields: Vec<Field>, top: usize) -> Result<Self> {
        if fields.len() > MAX_FIELDS {
            return Err(Error::Schema("too many fields"));
        }
        if top > fields.len() {
            return Err(Error::Schema("more top-level fields than fields"));
        }
        let mut depths = vec![0_usize; fields.len()];
        let mut references = Vec::new();
        for (index, field) in fields.iter().enumerate() {
            if let FieldKind::Struct { first, members } = field.kind {
                let (first, members) = (usize::from(first), usize::from(members));
                let member_depth = depths.get(index).copied().unwrap_or(0).saturating_add(1);
                // Members come after their structure, so depths are known in list order and cycles
                // are impossible.
                if first <= index || first < top || first.saturating_add(members) > fields.len() {
                    return Err(Error::Schema("structure members out of range"));
                }
                if member_depth > MAX_DEPTH {
                    return Err(Error::Schema("structures nested too deeply"));
                }
                for depth in depths.iter_mut().skip(first).take(members) {
                    // Shared members would describe a tree that is exponentially larger than its
                    // list.
                    if *depth != 0 {
                        return Err(Error::Schema("structures share members"));
                    }
                    *depth = member_depth;
                }
            }
            references.extend(match field.count {
                Count::Field(index) => Some(index),
                _ => None,
            });
            references.extend(match field.length {
                Length::Field(index) => Some(index),
                _ => None,
            });
        }
        for index in references {
            match fields.get_mut(usize::from(index)) {
                Some(field) if matches!(field.kind, FieldKind::Value { .. }) => field.is_referenced = true,
                _ => return Err(Error::Schema("count or length refers to no value")),
            }
        }
        self.has_references = fields.iter().any(|f| f.is_referenced);
        fields.iter_mut().for_each(|f| f.fast_path = FastPath::for_field(f));
        self.has_fast_paths = fields.iter().take(top).all(|field| field.fast_path != FastPath::No);
        self.fields = fields;
        self.top = top;
        Ok(self)
    }

    /// Returns whether every top-level field has a [fast path](Field::fast_path()), so that a loop
    /// over the fields visits what a walk does.
    #[inline]
    #[must_use]
    pub const fn is_flat(&self) -> bool {
        self.has_fast_paths && !self.is_log_file_header
    }

    /// Gives a map to a field; does nothing for structures and indexes past the end.
    pub(crate) fn set_map(&mut self, index: usize, map: &Arc<ValueMap>) {
        if let Some(Field { kind: FieldKind::Value { map: slot, .. }, .. }) = self.fields.get_mut(index) {
            *slot = Some(map.clone());
        }
    }

    /// Returns whether a count or length is the value of another field.
    #[must_use]
    pub const fn has_references(&self) -> bool {
        self.has_references
    }

    /// Returns all fields, top-level ones first.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the top-level fields, in the order of the payload.
    #[must_use]
    pub fn top(&self) -> &[Field] {
        self.fields.get(..self.top).unwrap_or_default()
    }

    /// Returns the members of a structure.
    #[must_use]
    pub fn members(&self, first: u16, members: u16) -> &[Field] {
        let first = usize::from(first);
        self.fields.get(first..first.saturating_add(usize::from(members))).unwrap_or_default()
    }

    /// Returns the event's display name: `Task/Opcode` or the task, else the event's own name, else
    /// the opcode.
    #[must_use]
    pub fn event_name(&self) -> Option<String> {
        match (&self.names.task, &self.names.opcode, &self.names.event) {
            (Some(task), Some(opcode), _) if !opcode.is_empty() && !is_info(opcode) => {
                Some(format!("{task}/{opcode}"))
            }
            (Some(task), ..) => Some(task.to_string()),
            (None, _, Some(event)) => Some(event.to_string()),
            (None, Some(opcode), None) => Some(opcode.to_string()),
            (None, None, None) => None,
        }
    }
}

/// Returns whether the opcode is the default one, which adds nothing to a name.
fn is_info(opcode: &str) -> bool {
    opcode.eq_ignore_ascii_case("info") || opcode.eq_ignore_ascii_case("win:info")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int_field(name: &str) -> Field {
        Field::value(name, InType::UINT32, OutType::NULL)
    }

    #[test]
    fn members_must_come_after_their_structure() {
        let structure_at = |first| Field::new("s", FieldKind::Struct { first, members: 1 });
        assert!(Schema::default().seal(vec![structure_at(1), int_field("m")], 1).is_ok());
        assert!(
            Schema::default().seal(vec![structure_at(0), int_field("m")], 1).is_err(),
            "a structure must not contain itself"
        );
        assert!(
            Schema::default().seal(vec![int_field("m"), structure_at(0)], 2).is_err(),
            "members must not come before the structure"
        );
        assert!(
            Schema::default().seal(vec![structure_at(2), int_field("m")], 1).is_err(),
            "members must not lie past the end"
        );
    }

    #[test]
    fn nesting_is_bounded() {
        let seal_nested = |depth: u16| {
            let structure = |index| Field::new("s", FieldKind::Struct { first: index + 1, members: 1 });
            let mut fields: Vec<_> = (0..depth).map(structure).collect();
            fields.push(int_field("leaf"));
            Schema::default().seal(fields, 1)
        };
        assert!(seal_nested(8).is_ok());
        assert!(seal_nested(9).is_err());
    }

    #[test]
    fn structures_cannot_share_members() {
        let structure = |first, members| Field::new("s", FieldKind::Struct { first, members });
        let is_valid = |fields, top| Schema::default().seal(fields, top).is_ok();
        assert!(is_valid(vec![structure(2, 1), structure(3, 1), int_field("a"), int_field("b")], 2));
        assert!(!is_valid(vec![structure(2, 2), structure(3, 1), int_field("a"), int_field("b")], 2));
        assert!(!is_valid(vec![structure(2, 1), structure(2, 1), int_field("a")], 2));
    }

    #[test]
    fn references_must_name_an_existing_field() {
        let counted_by = |i| int_field("a").with_count(Count::Field(i));
        let sealed = Schema::default().seal(vec![int_field("n"), counted_by(0)], 2).unwrap();
        assert!(sealed.fields()[0].is_referenced && !sealed.fields()[1].is_referenced);
        assert!(Schema::default().seal(vec![int_field("n"), counted_by(2)], 2).is_err());
    }
}
