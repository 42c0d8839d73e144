//! Blobs of real traces, limits, malformed input and round trips.

use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn parse_fields(blob: &[u8]) -> Vec<FieldMetadata<'_>> {
    EventMetadata::parse(blob).unwrap().fields().collect::<Result<_>>().unwrap()
}

fn field_named(name: &str) -> FieldMetadata<'_> {
    FieldMetadata { name: name.as_bytes(), ..Default::default() }
}

#[test]
fn built_metadata_has_the_bytes_of_a_real_trace() {
    let mut builder = MetadataBuilder::new("PrimitiveTypesTest", 0);
    let blob = builder.add_field("string_type", 2, 0, 0).add_field("boolean_type", 4, 3, 0).finish().unwrap();
    assert_eq!(blob[2..], *b"\0PrimitiveTypesTest\0string_type\0\x02boolean_type\0\x84\x03");
    assert_eq!(usize::from(blob[0]), blob.len());
    let boolean = FieldMetadata { in_type: 4, out: 3, ..field_named("boolean_type") };
    assert_eq!(parse_fields(blob), [FieldMetadata { in_type: 2, ..field_named("string_type") }, boolean]);
}

#[test]
fn built_traits_have_the_bytes_of_a_real_trace() {
    let group: Guid = "4f50731a-89cf-4782-b3e0-dce8c90476ba".parse().unwrap();
    let mut builder = TraitsBuilder::new("Microsoft.Windows.Subsystem.LxCore");
    let blob = builder.group(&group).finish().unwrap();
    // The size of the traits; after the name, the size and type of the group trait.
    assert_eq!((blob.len(), &blob[..2], &blob[37..40]), (56, &[56, 0][..], &[19, 0, 1][..]));
    let traits = Traits::parse(blob).unwrap();
    assert_eq!((traits.group(), traits.decode_guid(), traits.size()), (Some(group), None, 56));
    assert_eq!(traits.name, b"Microsoft.Windows.Subsystem.LxCore");
}

#[test]
fn tags_take_one_two_or_four_bytes() {
    for (tags, bytes) in [
        (0, &[0][..]),
        (0x0FE0_0000, &[0x7F]),
        (0x0010_0000, &[0x80, 0x40]),
        (0x0000_4000, &[0x80, 0x01]),
        (0x0000_2000, &[0x80, 0x80, 0xC0, 0x00]),
        (0x0000_0001, &[0x80, 0x80, 0x80, 0x01]),
        (0xFFFF_FFFF, &[0xFF, 0xFF, 0xFF, 0x7F]),
    ] {
        let mut builder = MetadataBuilder::new("e", tags);
        let blob = builder.add_field("f", 8, 0, tags).finish().unwrap();
        assert_eq!(blob[2..][..bytes.len()], *bytes, "{tags:#x}");
        assert_eq!(EventMetadata::parse(blob).unwrap().tags, tags & 0x0FFF_FFFF);
        assert_eq!(parse_fields(blob)[0].tags, tags & 0x0FFF_FFFF);
    }
}

#[test]
fn tags_in_more_bytes_than_needed_are_read() {
    let tags = |bytes: &[u8]| {
        let blob = [&[bytes.len() as u8 + 4, 0], bytes, b"e\0"].concat();
        let metadata = EventMetadata::parse(&blob).unwrap();
        assert_eq!(metadata.name, b"e");
        metadata.tags
    };
    assert_eq!(tags(&[0x80, 0x00]), 0, "the form of a real trace");
    assert_eq!(tags(&[0x81, 0x80, 0x00]), 1 << 21);
    assert_eq!(tags(&[0x80, 0x80, 0x80, 0x81, 0xFF, 0x7F]), 1, "bytes after the fourth are not ignored");
}

#[test]
fn every_arity_reads_back() {
    let mut builder = MetadataBuilder::new("e", 0);
    builder.add_field("scalar", 8, 0, 0).add_array("array", 6, 2, 0).add_fixed_array("fixed", 15, 0, 5, 300);
    let blob =
        builder.add_custom("custom", 31, 0, b"schema").add_struct_array("structs", 127, 0).finish().unwrap();
    let expected = [
        FieldMetadata { in_type: 8, ..field_named("scalar") },
        FieldMetadata { in_type: 6, out: 2, arity: Arity::Variable, ..field_named("array") },
        FieldMetadata { in_type: 15, tags: 5, arity: Arity::Fixed(300), ..field_named("fixed") },
        FieldMetadata { in_type: 31, arity: Arity::Custom(b"schema"), ..field_named("custom") },
        FieldMetadata { in_type: 24, out: 127, arity: Arity::Variable, ..field_named("structs") },
    ];
    assert_eq!(parse_fields(blob), expected);
    assert_eq!(expected.map(|f| f.members()), [None, None, None, None, Some(127)]);
}

#[test]
fn custom_protocol_24_is_not_a_structure() {
    let field = FieldMetadata { in_type: 24, arity: Arity::Custom(&[]), ..field_named("f") };
    assert_eq!(field.members(), None);
}

#[test]
fn builder_rejects_fields_that_readers_cannot_decode() {
    let is_rejected = |f: &dyn Fn(&mut MetadataBuilder)| {
        let mut builder = MetadataBuilder::new("e", 0);
        f(&mut builder);
        builder.add_field("later", 8, 0, 0).finish().is_err()
    };
    // Structures need 1 to 127 members. BINARY (14) and NULL (0) have no arrays, and the types 16
    // and 32 do not exist. A schema cannot be longer than metadata.
    assert!(is_rejected(&|b| {
        b.add_struct("s", 0, 0);
    }));
    assert!(is_rejected(&|b| {
        b.add_struct("s", 128, 0);
    }));
    assert!(is_rejected(&|b| {
        b.add_array("a", 14, 0, 0);
    }));
    assert!(is_rejected(&|b| {
        b.add_fixed_array("a", 0, 0, 0, 9);
    }));
    assert!(is_rejected(&|b| {
        b.add_field("p", 16, 0, 0);
    }));
    assert!(is_rejected(&|b| {
        b.add_field("p", 32, 0, 0);
    }));
    assert!(is_rejected(&|b| {
        b.add_custom("c", 5, 0, &[0; 70_000]);
    }));
    assert!(!is_rejected(&|b| {
        b.add_field("b", 14, 0, 0);
    }));
}

#[test]
fn blobs_above_their_limits_are_rejected() {
    let name = |n: usize| String::from_utf8(std::vec![b'n'; n]).unwrap();
    let too_large = |size, limit, what| Err(Error::TooLarge { what, size, limit });
    // Metadata have four bytes besides the name (size, tags, NUL), traits three (size, NUL).
    assert_eq!(MetadataBuilder::new(&name(32_763), 0).finish().map(<[u8]>::len), Ok(32_767));
    assert_eq!(
        MetadataBuilder::new(&name(32_764), 0).finish().map(<[u8]>::len),
        too_large(32_768, 32_767, "event metadata")
    );
    assert_eq!(TraitsBuilder::new(&name(65_532)).finish().map(<[u8]>::len), Ok(65_535));
    assert_eq!(
        TraitsBuilder::new(&name(65_533)).finish().map(<[u8]>::len),
        too_large(65_536, 65_535, "provider traits")
    );
    assert!(TraitsBuilder::new("p").add(200, &[0; 65_533]).finish().is_err());
}

#[test]
fn builder_can_be_reset_after_an_error() {
    let mut builder = MetadataBuilder::new("first", 1);
    assert!(builder.add_struct("s", 0, 0).finish().is_err());
    let blob = builder.reset("second", 0).add_field("f", 8, 0, 0).finish().unwrap();
    assert_eq!(blob, b"\x0d\0\0second\0f\0\x08");
}

#[test]
fn names_are_truncated_at_a_nul() {
    assert_eq!(Traits::parse(TraitsBuilder::new("a\0b").finish().unwrap()).unwrap().name, b"a");
    assert_eq!(
        MetadataBuilder::new("a\0b", 0).add_field("c\0d", 8, 0, 0).finish().unwrap(),
        b"\x08\0\0a\0c\0\x08"
    );
}

#[test]
fn parse_ignores_bytes_after_the_size() {
    let mut builder = MetadataBuilder::new("e", 0);
    let mut bytes = builder.add_field("f", 8, 0, 0).finish().unwrap().to_vec();
    bytes.extend(b"payload");
    assert_eq!((parse_fields(&bytes).len(), EventMetadata::parse(&bytes).unwrap().size()), (1, 8));
    let mut bytes = TraitsBuilder::new("p").finish().unwrap().to_vec();
    bytes.extend([3, 0, 9]);
    let traits = Traits::parse(&bytes).unwrap();
    assert_eq!((traits.size(), traits.iter().count()), (4, 0));
    assert!(Traits::parse_strict(&bytes).is_err());
}

#[test]
fn strict_parse_rejects_what_parse_tolerates() {
    let guid = [7; 16];
    let group = [&[19, 0, 1][..], &guid].concat();
    let blob = |traits: &[u8]| [&[traits.len() as u8 + 4, 0, b'p', 0], traits].concat();
    // The number of traits that `parse` returns. The faults are: one type twice, a size past the
    // end, a size below 3, half a size, a size of 0, and a decode GUID (2) of one byte.
    for (traits, trait_count) in [
        (group.repeat(2), 2),
        ([19, 0, 1].to_vec(), 0),
        ([2, 0].to_vec(), 0),
        ([3].to_vec(), 0),
        ([0, 0, 0].to_vec(), 0),
        ([&group[..], &[4, 0, 2, 9]].concat(), 2),
    ] {
        let blob = blob(&traits);
        assert_eq!(Traits::parse(&blob).unwrap().iter().count(), trait_count, "{traits:x?}");
        assert!(Traits::parse_strict(&blob).is_err(), "{traits:x?}");
    }
    let valid = blob(&[&group[..], &[4, 0, 77, 9], &[3, 0, 200]].concat());
    let traits = Traits::parse_strict(&valid).unwrap();
    assert_eq!((traits.get(77), traits.get(200), traits.get(2)), (Some(&[9][..]), Some(&[][..]), None));
    assert!(Traits::parse_strict(&[3, 0, b'p']).is_err(), "accepted an unterminated name");
    assert!(Traits::parse_strict(&[3, 0, 0]).is_ok(), "rejected an empty name");
}

#[test]
fn truncated_metadata_is_an_error_or_ends_early() {
    let mut builder = MetadataBuilder::new("event", 1);
    builder.add_field("a", 8, 4, 3).add_fixed_array("b", 8, 0, 0, 2).add_custom("c", 5, 0, b"xyz");
    let blob = builder.finish().unwrap().to_vec();
    for end in 0..blob.len() {
        assert!(EventMetadata::parse(&blob[..end]).is_err(), "accepted a size beyond the {end} bytes");
        let mut truncated = blob[..end].to_vec();
        if let Some(size) = truncated.first_chunk_mut() {
            *size = (end as u16).to_le_bytes();
        }
        if let Ok(metadata) = EventMetadata::parse(&truncated) {
            let fields: Vec<_> = metadata.fields().collect();
            assert!(fields.len() <= 3 && fields.iter().rev().skip(1).all(Result::is_ok), "cut at {end}");
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_parsed_within_bounds(mut bytes in prop::collection::vec(any::<u8>(), 2..200)) {
        bytes[1] = 0;
        if let Ok(metadata) = EventMetadata::parse(&bytes) {
            prop_assert!(metadata.fields().count() <= bytes.len());
        }
        if let Ok(traits) = Traits::parse(&bytes) {
            prop_assert!(traits.iter().map(|t| t.1.len() + 3).sum::<usize>() <= bytes.len());
            let _ = (traits.group(), traits.decode_guid(), Traits::parse_strict(&bytes));
        }
    }

    #[test]
    fn built_metadata_reads_back(
        tags in any::<u32>(),
        list in prop::collection::vec(("[a-z]{0,9}", 1_u8..14, 0_u8..128, 0_u32..1 << 28, 0_u8..4, any::<u16>()), 0..30),
    ) {
        let schema = [1, 2, 3];
        let expected: Vec<_> = list.iter().map(|(name, in_type, out, tags, arity, count)| FieldMetadata {
            name: name.as_bytes(),
            in_type: *in_type,
            out: *out,
            tags: *tags,
            arity: [Arity::Scalar, Arity::Fixed(*count), Arity::Variable, Arity::Custom(&schema)][usize::from(*arity)],
        }).collect();
        let mut builder = MetadataBuilder::new("name", tags);
        for field in &expected {
            builder.add(field);
        }
        let blob = builder.finish().unwrap();
        prop_assert_eq!(EventMetadata::parse(blob).unwrap().tags, tags & 0x0FFF_FFFF);
        prop_assert_eq!(parse_fields(blob), expected);
    }
}
