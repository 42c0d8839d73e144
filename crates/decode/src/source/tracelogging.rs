//! Builds schemas from provider traits and event metadata of TraceLogging events.
//!
//! In metadata, members directly follow their structure, at any depth; in a [`Schema`], the members
//! of each structure are adjacent and come after all fields of the level above. So the tree is read
//! depth first and laid out breadth first:
//!
//! ```text
//!   metadata   a │ S (2 members) │ b │ T (1 member) │ c │ d
//!   tree       a   S ─┬─ b                              d
//!                     └─ T ─── c
//!   schema   [ a │ S (3..5) │ d │ b │ T (5..6) │ c ]
//!             └─── top = 3 ────┘
//! ```
//!
//! Everything here comes from the process that wrote the event and is hostile. This module bounds
//! the number of fields; [`Schema::seal`] bounds the depth. Metadata that cannot be laid out is an
//! error, because a wrong guess about one field would misread all that follow. Traits only add the
//! provider's name and group, so unreadable traits are ignored instead.
//!
//! Source: [`traceweir_format::tracelogging`] describes the layout.

use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::text::decode_ansi;
use traceweir_format::tracelogging::{Arity, EventMetadata, FieldMetadata, Traits};

use crate::schema::{Count, Field, FieldKind, MAX_FIELDS, Schema, SchemaOrigin};
use crate::{Error, Result};

/// Builds the schema of an event of `provider` with these traits and this metadata.
///
/// ```
/// # use traceweir_decode::source::tracelogging::build_schema;
/// # use traceweir_format::{Guid, tracelogging::MetadataBuilder};
/// let mut builder = MetadataBuilder::new("Request", 0);
/// let metadata = builder.add_field("url", 1, 0, 0).finish()?;
/// let schema = build_schema(Guid::NULL, None, metadata)?;
/// assert_eq!(schema.event_name().as_deref(), Some("Request"));
/// assert_eq!(&*schema.top()[0].name, "url");
/// # Ok::<(), traceweir_decode::Error>(())
/// ```
pub fn build_schema(provider: Guid, traits: Option<&[u8]>, metadata: &[u8]) -> Result<Schema> {
    let traits = traits.and_then(|t| Traits::parse(t).ok());
    let metadata = EventMetadata::parse(metadata)?;
    let (fields, top) = FieldTree::read(&metadata)?.lay_out()?;
    let mut schema = Schema::default();
    schema.origin = SchemaOrigin::TraceLogging;
    schema.provider = provider;
    schema.group = traits.and_then(|t| t.group());
    schema.names.provider = traits.and_then(|t| parse_name(t.name));
    schema.names.event = parse_name(metadata.name);
    schema.tags = metadata.tags;
    schema.seal(fields, top)
}

fn parse_name(bytes: &[u8]) -> Option<Arc<str>> {
    (!bytes.is_empty()).then(|| decode_ansi(bytes).into())
}

struct FieldTree<'a> {
    nodes: Vec<FieldNode<'a>>,
    /// Indexes of the fields outside any structure.
    top: Vec<usize>,
}

struct FieldNode<'a> {
    field: FieldMetadata<'a>,
    members: Vec<usize>,
}

impl<'a> FieldTree<'a> {
    fn read(metadata: &EventMetadata<'a>) -> Result<Self> {
        let mut tree = Self { nodes: Vec::new(), top: Vec::new() };
        // Structures that still miss members, the innermost last, with the number of members that
        // each misses.
        let mut structs: Vec<(usize, u8)> = Vec::new();
        for field in metadata.fields() {
            let field = field?;
            let index = tree.nodes.len();
            if index >= MAX_FIELDS {
                return Err(Error::Schema("too many fields"));
            }
            match structs.last_mut() {
                Some((parent, missing)) => {
                    *missing = missing.saturating_sub(1);
                    if let Some(node) = tree.nodes.get_mut(*parent) {
                        node.members.push(index);
                    }
                }
                None => tree.top.push(index),
            }
            structs.pop_if(|(_, missing)| *missing == 0);
            if let Some(members @ 1..) = field.members() {
                structs.push((index, members));
            }
            tree.nodes.push(FieldNode { field, members: Vec::new() });
        }
        if structs.is_empty() { Ok(tree) } else { Err(Error::Schema("structure without all of its members")) }
    }

    /// Returns the fields of a schema, and how many of them are outside any structure.
    fn lay_out(self) -> Result<(Vec<Field>, usize)> {
        let top = self.top.len();
        let mut order = self.top;
        let mut fields = Vec::with_capacity(self.nodes.len());
        while let Some(node) = order.get(fields.len()).and_then(|&n| self.nodes.get(n)) {
            fields.push(to_field(&node.field, order.len())?);
            order.extend(&node.members);
        }
        Ok((fields, top))
    }
}

/// Converts a field; `first` is the index that its first member will get, if it has members.
fn to_field(field: &FieldMetadata<'_>, first: usize) -> Result<Field> {
    let kind = match field.members() {
        Some(members) => {
            let first = u16::try_from(first).map_err(|_| Error::Schema("too many fields"))?;
            FieldKind::Struct { first, members: members.into() }
        }
        None => {
            let input = layout_type(field)?;
            FieldKind::Value { input, output: OutType::from_tracelogging(field.out, input), map: None }
        }
    };
    let count = match field.arity {
        Arity::Scalar | Arity::Custom(_) => Count::One,
        Arity::Fixed(n) => Count::Fixed(n),
        Arity::Variable => Count::Prefixed,
    };
    // An array of elements without bytes could claim any number of elements.
    let has_no_bytes =
        matches!(kind, FieldKind::Struct { members: 0, .. } | FieldKind::Value { input: InType::NULL, .. });
    if has_no_bytes && count != Count::One {
        return Err(Error::Schema("array of elements without bytes"));
    }
    let mut out = Field::new(&decode_ansi(field.name), kind).with_count(count);
    out.tags = field.tags;
    out.has_listed_length =
        matches!(field.arity, Arity::Custom(_)) || InType(field.in_type.into()) == InType::BINARY;
    Ok(out)
}

/// Returns the layout of a value. A 16-bit count of bytes precedes binary and custom values; other
/// sources call this layout counted binary.
fn layout_type(field: &FieldMetadata<'_>) -> Result<InType> {
    if matches!(field.arity, Arity::Custom(_)) {
        return Ok(InType::COUNTEDBINARY);
    }
    match InType(field.in_type.into()) {
        InType::BINARY if field.arity != Arity::Scalar => Err(Error::Schema("array of binary values")),
        InType::BINARY => Ok(InType::COUNTEDBINARY),
        known @ InType(..=25) => Ok(known),
        _ => Err(Error::Schema("in type without a layout")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};

    use super::*;
    use crate::schema::MAX_DEPTH;

    fn schema_from_builder(add_fields: impl FnOnce(&mut MetadataBuilder)) -> Result<Schema> {
        let mut builder = MetadataBuilder::new("event", 0);
        add_fields(&mut builder);
        build_schema(Guid::NULL, None, builder.finish().unwrap())
    }

    fn field_names(fields: &[Field]) -> Vec<&str> {
        fields.iter().map(|f| &*f.name).collect()
    }

    fn members_of<'s>(schema: &'s Schema, field: &Field) -> &'s [Field] {
        match field.kind {
            FieldKind::Struct { first, members } => schema.members(first, members),
            FieldKind::Value { .. } => panic!("{} is not a structure", field.name),
        }
    }

    /// Builds metadata with these field bytes.
    fn encode_metadata(fields: &[u8]) -> Vec<u8> {
        [&(fields.len() as u16 + 5).to_le_bytes()[..], b"\0e\0", fields].concat()
    }

    #[test]
    fn names_tags_and_group_come_from_traits_and_metadata() {
        let (id, group) = (Guid::from_provider_name("p"), Guid::from_provider_name("g"));
        let mut traits = TraitsBuilder::new("Provider");
        let traits = traits.group(&group).finish().unwrap();
        let mut metadata = MetadataBuilder::new("Event", 0x0123_4567);
        let metadata = metadata.add_field("f", 8, 5, 0x0200_0000).finish().unwrap();
        let schema = build_schema(id, Some(traits), metadata).unwrap();
        assert_eq!(
            (schema.origin, schema.provider, schema.group),
            (SchemaOrigin::TraceLogging, id, Some(group))
        );
        assert_eq!(schema.names.provider.as_deref(), Some("Provider"));
        assert_eq!(schema.names.event.as_deref(), Some("Event"));
        let field = Field { tags: 0x0200_0000, ..Field::value("f", InType::UINT32, OutType::PID) };
        assert_eq!((schema.tags, schema.fields()), (0x0123_4567, &[field][..]));
    }

    #[test]
    fn unreadable_traits_lose_only_the_name() {
        let mut metadata = MetadataBuilder::new("e", 0);
        let schema = build_schema(Guid::NULL, Some(&[9, 0, b'x']), metadata.finish().unwrap()).unwrap();
        assert_eq!((schema.names.provider, schema.names.event.as_deref()), (None, Some("e")));
    }

    #[test]
    fn every_in_type_has_its_layout() {
        for code in 0..32_u8 {
            let result = build_schema(Guid::NULL, None, &encode_metadata(&[b'f', 0, code]));
            let Ok(schema) = result else {
                assert!(code > 25, "in type {code}");
                continue;
            };
            let expected = match code {
                14 => InType::COUNTEDBINARY,
                24 => {
                    assert_eq!(members_of(&schema, &schema.top()[0]).len(), 0);
                    continue;
                }
                26.. => panic!("in type {code} was accepted"),
                _ => InType(code.into()),
            };
            assert_eq!(schema.fields(), [Field::value("f", expected, OutType::NULL)]);
        }
    }

    #[test]
    fn out_types_are_translated() {
        for (input, out, expected) in [
            (InType::UINT8, 2, OutType::STRING),
            (InType::UINT8, 3, OutType::BOOLEAN),
            (InType::UINT16, 4, OutType::HEXINT16),
            (InType::UINT16, 7, OutType::PORT),
            (InType::ANSISTRING, 35, OutType::UTF8),
            (InType::COUNTEDANSISTRING, 35, OutType::UTF8),
            (InType::COUNTEDANSISTRING, 12, OutType::JSON),
            (InType::COUNTEDBINARY, 9, OutType::IPV6),
            (InType::HEXINT64, 37, OutType::CODE_POINTER),
        ] {
            let schema = schema_from_builder(|b| discard(b.add_field("f", input.0 as u8, out, 0))).unwrap();
            assert_eq!(schema.fields(), [Field::value("f", input, expected)]);
        }
        let schema = schema_from_builder(|b| discard(b.add_field("address", 14, 9, 0))).unwrap();
        assert_eq!(schema.fields(), [Field::value("address", InType::COUNTEDBINARY, OutType::IPV6)]);
    }

    /// Lets a closure that calls the builder return nothing.
    fn discard(_: &mut MetadataBuilder) {}

    #[test]
    fn every_arity_has_its_count() {
        let schema = schema_from_builder(|b| {
            b.add_field("one", 8, 0, 0).add_fixed_array("fixed", 8, 0, 0, 7).add_array("variable", 6, 2, 0);
            b.add_custom("custom", 24, 0, b"schema");
        });
        let int = |name, count| Field::value(name, InType::UINT32, OutType::NULL).with_count(count);
        let expected = [
            int("one", Count::One),
            int("fixed", Count::Fixed(7)),
            Field::value("variable", InType::UINT16, OutType::STRING).with_count(Count::Prefixed),
            Field::value("custom", InType::COUNTEDBINARY, OutType::NULL),
        ];
        assert_eq!(schema.unwrap().fields(), expected);
    }

    #[test]
    fn nested_structures_are_laid_out_level_by_level() {
        let schema = schema_from_builder(|b| {
            b.add_field("a", 8, 0, 0).add_struct("S", 2, 0).add_field("b", 8, 0, 0).add_struct("T", 1, 0);
            b.add_field("c", 8, 0, 0).add_field("d", 8, 0, 0).add_struct("U", 1, 0).add_field("e", 8, 0, 0);
        });
        let schema = schema.unwrap();
        assert_eq!(field_names(schema.fields()), ["a", "S", "d", "U", "b", "T", "e", "c"]);
        assert_eq!(field_names(schema.top()), ["a", "S", "d", "U"]);
        let s = members_of(&schema, &schema.top()[1]);
        assert_eq!(field_names(s), ["b", "T"]);
        assert_eq!(field_names(members_of(&schema, &s[1])), ["c"]);
        assert_eq!(field_names(members_of(&schema, &schema.top()[3])), ["e"]);
    }

    #[test]
    fn structures_may_be_arrays() {
        let schema = schema_from_builder(|b| {
            b.add_struct_array("v", 1, 0).add_fixed_array("f", 24, 2, 9, 3);
            b.add_field("x", 8, 0, 0).add_field("y", 8, 0, 0).add_field("z", 8, 0, 0);
        });
        let schema = schema.unwrap();
        assert_eq!(field_names(schema.fields()), ["v", "z", "f", "x", "y"]);
        assert_eq!((schema.fields()[0].count, schema.fields()[2].count), (Count::Prefixed, Count::Fixed(3)));
        assert_eq!(schema.fields()[2].tags, 9);
    }

    #[test]
    fn structures_must_be_complete_and_not_too_deep() {
        let chain = |depth: usize, leaves: usize| {
            schema_from_builder(|b| {
                (0..depth).for_each(|_| discard(b.add_struct("s", 1, 0)));
                (0..leaves).for_each(|_| discard(b.add_field("leaf", 8, 0, 0)));
            })
        };
        assert!(chain(MAX_DEPTH, 1).is_ok());
        assert!(chain(MAX_DEPTH + 1, 1).is_err());
        assert!(chain(2, 0).is_err());
        assert!(schema_from_builder(|b| discard(b.add_struct("s", 127, 0).add_field("m", 8, 0, 0))).is_err());
    }

    #[test]
    fn invalid_layouts_are_refused() {
        for (fields, reason) in [
            (&b"f\0\x4e"[..], "variable array of binary"),
            (b"f\0\x2e\x02\0", "fixed array of binary"),
            (b"f\0\x40", "array of null"),
            (b"f\0\x58", "array of empty structures"),
            (b"f\0\x1a", "in type 26"),
            (b"f\0", "no in type"),
            (b"f\0\x88", "no out type"),
            (b"f\0\x28\x01", "half a count"),
            (b"f\0\x60\x04\0abc", "type information too short"),
        ] {
            assert!(build_schema(Guid::NULL, None, &encode_metadata(fields)).is_err(), "{reason}");
        }
        assert!(build_schema(Guid::NULL, None, &encode_metadata(&b"\0\x08".repeat(MAX_FIELDS))).is_ok());
        assert!(build_schema(Guid::NULL, None, &encode_metadata(&b"\0\x08".repeat(MAX_FIELDS + 1))).is_err());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let mut builder = MetadataBuilder::new("event", 3);
        builder
            .add_field("a", 8, 4, 3)
            .add_struct("s", 2, 0)
            .add_fixed_array("b", 8, 0, 0, 2)
            .add_custom("c", 5, 0, b"x");
        let blob = builder.finish().unwrap();
        assert_eq!(build_schema(Guid::NULL, None, blob).unwrap().fields().len(), 4);
        for end in 0..blob.len() {
            assert!(build_schema(Guid::NULL, None, &blob[..end]).is_err(), "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn any_fields_give_a_bounded_schema_or_an_error(
            fields in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0x98), 1_u8..26], 0..300),
            traits in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        ) {
            if let Ok(schema) = build_schema(Guid::NULL, traits.as_deref(), &encode_metadata(&fields)) {
                prop_assert!(schema.fields().len() <= fields.len());
                let members: usize = schema.fields().iter().map(|f| match f.kind {
                    FieldKind::Struct { members, .. } => usize::from(members),
                    FieldKind::Value { .. } => 0,
                }).sum();
                prop_assert_eq!(schema.top().len() + members, schema.fields().len(), "each field must have exactly one parent");
            }
        }
    }
}
