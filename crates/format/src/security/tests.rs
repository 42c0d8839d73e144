//! Hand-written bytes, round trips of every value, and untrusted bytes.

use super::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::string::ToString;

/// Owner and group root; everyone may register; user 1000 may not query.
const BYTES: [u8; 0x14 + 12 + 12 + 8 + 24 + 20] = [
    1, 0, 0x04, 0x80, 0x14, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0x2C, 0, 0, 0, // head
    1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0, // owner
    1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0, // group
    2, 0, 52, 0, 2, 0, 0, 0, // list
    1, 0, 24, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 0xE8, 3, 0, 0, // deny
    0, 0, 20, 0, 0, 8, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, // allow
];

fn sample_descriptor() -> SecurityDescriptor {
    let mut dacl = Acl::default();
    dacl.add(Ace::new(AceKind::Allow, Sid::EVERYONE, Rights::TRACELOG_REGISTER_GUIDS));
    dacl.add(Ace::new(AceKind::Deny, Sid::user(1000), Rights::WMIGUID_QUERY));
    SecurityDescriptor {
        owner: Some(Sid::SYSTEM),
        group: Some(Sid::SYSTEM),
        dacl: Some(dacl),
        ..SecurityDescriptor::default()
    }
}

#[test]
fn descriptor_has_the_published_bytes() {
    assert_eq!(sample_descriptor().to_bytes().unwrap(), BYTES);
    assert_eq!(SecurityDescriptor::parse(&BYTES), Ok(sample_descriptor()));
}

#[test]
fn sids_stand_for_users_and_groups_of_this_system() {
    for (text, principal) in [
        ("S-1-1-0", Principal::Everyone),
        ("S-1-5-18", Principal::System),
        ("S-1-22-1-1000", Principal::User(1000)),
        ("S-1-22-2-4294967295", Principal::Group(u32::MAX)),
        ("S-1-22-3-1", Principal::Other),
        ("S-1-22-1", Principal::Other),
        ("S-1-5-32-544", Principal::Other),
        ("S-1-0xFFFFFFFFFFFF", Principal::Other),
    ] {
        let sid: Sid = text.parse().unwrap();
        assert_eq!((sid.principal(), sid.to_string().as_str()), (principal, text));
        assert_eq!(Sid::parse(&sid.to_bytes()), Ok(sid));
    }
    assert_eq!(
        (Sid::user(7).to_string(), Sid::group(7).to_string()),
        ("S-1-22-1-7".into(), "S-1-22-2-7".into())
    );
}

#[test]
fn invalid_sid_is_rejected() {
    let sixteen = "S-1-5".to_string() + &"-1".repeat(16);
    for text in ["", "S", "S-1", "S-2-5-18", "X-1-5-18", "S-1-5-", "S-1-5-x", "S-1-5-4294967296", &sixteen] {
        assert_eq!(text.parse::<Sid>(), Err(ParseSidError), "{text}");
    }
    assert_eq!("S-1-0x1000000000000-1".parse::<Sid>(), Err(ParseSidError));
    assert!("S-1-5".parse::<Sid>().is_ok());
    assert!(Sid::parse(&[1, 16, 0, 0, 0, 0, 0, 5]).is_err(), "accepted too many parts");
    assert!(Sid::parse(&[2, 0, 0, 0, 0, 0, 0, 5]).is_err(), "accepted an unknown revision");
    assert!(Sid::parse(&[1, 0, 0, 0, 0, 0, 0, 5, 0]).is_err(), "accepted excess bytes");
}

#[test]
fn every_truncated_descriptor_is_an_error() {
    for end in 0..BYTES.len() {
        assert!(SecurityDescriptor::parse(&BYTES[..end]).is_err(), "parsed {end} bytes");
    }
}

#[test]
fn damaged_descriptors_and_unknown_entries_are_rejected() {
    let parse_damaged = |offset: usize, value: u8| {
        let mut bytes = BYTES;
        bytes[offset] = value;
        SecurityDescriptor::parse(&bytes)
    };
    for (offset, value, what) in [
        (0, 2, "revision"),
        (3, 0, "absolute form"),
        (4, 19, "the owner in the head"),
        (5, 0xFF, "the owner past the end"),
        (0x2C, 3, "revision of the list"),
        (0x2E, 7, "a list smaller than its head"),
        (0x2E, 53, "a list that ends past the bytes"),
        (0x30, 3, "more entries than the list holds"),
        (0x34, 5, "an entry for objects"),
        (0x36, 23, "an entry smaller than its content"),
        (0x36, 255, "an entry larger than the list"),
    ] {
        assert!(parse_damaged(offset, value).is_err(), "accepted: {what}");
    }
    assert_eq!(parse_damaged(2, 0).unwrap().dacl, None, "a list whose control bit is clear was read");
}

#[test]
fn empty_list_differs_from_missing_list() {
    for dacl in [None, Some(Acl::default())] {
        let descriptor = SecurityDescriptor { dacl, ..SecurityDescriptor::default() };
        let bytes = descriptor.to_bytes().unwrap();
        assert_eq!(SecurityDescriptor::parse(&bytes), Ok(descriptor));
    }
}

#[test]
fn padding_is_accepted_and_not_kept() {
    let mut bytes = BYTES.to_vec();
    bytes.extend([0xAA; 4]);
    bytes[0x2E] += 4; // the list
    let last = BYTES.len() - 20;
    bytes[last + 2] += 4; // its last entry
    assert_eq!(SecurityDescriptor::parse(&bytes), Ok(sample_descriptor()));
}

#[test]
fn oversized_descriptor_is_neither_written_nor_read() {
    let entry = Ace::new(AceKind::Allow, Sid::user(1), Rights(1));
    // With 24 bytes an entry, the list is larger than 64 KiB.
    let dacl = Some(Acl { entries: core::iter::repeat_n(entry, 2731).collect() });
    let descriptor = SecurityDescriptor { dacl, ..SecurityDescriptor::default() };
    assert!(matches!(descriptor.to_bytes(), Err(Error::TooLarge { .. })));
    assert!(matches!(SecurityDescriptor::parse(&[0; MAX_DESCRIPTOR_BYTES + 1]), Err(Error::TooLarge { .. })));
}

fn any_sid() -> impl Strategy<Value = Sid> {
    let any_parts = (0..=0xFFFF_FFFF_FFFF_u64, vec(any::<u32>(), 0..=15));
    prop_oneof![
        Just(Sid::EVERYONE),
        Just(Sid::SYSTEM),
        any::<u32>().prop_map(Sid::user),
        any::<u32>().prop_map(Sid::group),
        any_parts.prop_map(|(authority, parts)| Sid::new(authority, &parts).unwrap()),
    ]
}

fn any_acl() -> impl Strategy<Value = Acl> {
    let kind = prop_oneof![Just(AceKind::Allow), Just(AceKind::Deny), Just(AceKind::Audit)];
    let entry = (kind, any::<u8>(), any::<u32>(), any_sid()).prop_map(|(kind, flags, rights, sid)| Ace {
        kind,
        flags,
        rights: Rights(rights),
        sid,
    });
    vec(entry, 0..20).prop_map(|entries| Acl { entries })
}

fn any_descriptor() -> impl Strategy<Value = SecurityDescriptor> {
    let control =
        any::<u16>().prop_map(|bits| bits & !(SE_SELF_RELATIVE | SE_DACL_PRESENT | SE_SACL_PRESENT));
    (control, option::of(any_sid()), option::of(any_sid()), option::of(any_acl()), option::of(any_acl()))
        .prop_map(|(control, owner, group, sacl, dacl)| SecurityDescriptor {
            control,
            owner,
            group,
            sacl,
            dacl,
        })
}

proptest! {
    #[test]
    fn encoded_descriptor_reads_back(descriptor in any_descriptor()) {
        let bytes = descriptor.to_bytes().unwrap();
        let parsed = SecurityDescriptor::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.to_bytes().unwrap(), bytes);
        prop_assert_eq!(parsed, descriptor);
    }

    #[test]
    fn sid_text_parses_to_the_same_sid(sid in any_sid()) {
        prop_assert_eq!(sid.to_string().parse(), Ok(sid));
    }

    #[test]
    fn damaged_bytes_are_rejected_or_round_trip(
        descriptor in any_descriptor(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
    ) {
        let mut bytes = descriptor.to_bytes().unwrap();
        for (position, value) in damage {
            let at = position.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(read) = SecurityDescriptor::parse(&bytes) {
            // Parts may share bytes, so the encoded value may be longer than the input.
            if let Ok(written) = read.to_bytes() {
                prop_assert_eq!(SecurityDescriptor::parse(&written), Ok(read));
            }
        }
    }

    #[test]
    fn deny_entries_precede_allow_entries(kinds in vec(any::<bool>(), 0..20)) {
        let mut acl = Acl::default();
        for (number, denies) in (0..).zip(&kinds) {
            let kind = if *denies { AceKind::Deny } else { AceKind::Allow };
            acl.add(Ace::new(kind, Sid::user(number), Rights(1)));
        }
        prop_assert!(acl.entries.is_sorted_by_key(|entry| (entry.kind == AceKind::Allow, entry.sid)));
        prop_assert_eq!(acl.entries.len(), kinds.len());
    }
}
