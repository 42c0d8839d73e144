//! Rules for provider traits, passed to the registration or set later. `rule.rs` explains the rows.

use traceweir::controller::EnableParams;
use traceweir::{Guid, Provider, Status};
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging::{Traits, TraitsBuilder};

use crate::helpers::{
    Fixture, INVALID_PARAMETER, KEYWORD, LEVEL, RecordedEvent, SUCCESS, event, new_guid, status,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 6", D, "traits are attached to every event of the registration as item 12",
        traits_are_attached),
    rule!("provider 6", D, "traits are set once; a second set → 87 and changes nothing", traits_are_set_once),
    rule!("provider 6", D, "traits of a stale registration → 87, not 6",
        traits_of_a_stale_registration_are_refused),
    rule!("provider 6", D, "malformed traits → 87, and no traits are set", wrong_traits_are_not_set),
    rule!("provider 7", H, "with a decode GUID, the header has the decode GUID as provider, and item 14 has the registered GUID",
        decode_guid_replaces_the_provider),
    rule!("provider 7", D, "a trait is found by its type, unless a malformed trait precedes it",
        trait_is_found_by_type),
    rule!("provider 7", D, "TraitsSize other than the length, or below 3 → 87", wrong_traits_size_is_refused),
    rule!("provider 7", D, "a name without terminator → 87", unterminated_name_is_refused),
    rule!("provider 7", D, "a trait shorter than 3 bytes or past the end → 87", trait_beyond_the_end_is_refused),
    rule!("provider 7", D, "types 1 and 2 of other than 19 bytes → 87", guid_traits_have_19_bytes),
    rule!("provider 7", D, "two groups → 87", two_group_traits_are_refused),
    rule!("provider 7", D, "traits of reserved and provider-defined types are kept", unknown_types_are_kept),
    rule!("provider 7", D, "a name of just a NUL is accepted", empty_provider_name_is_accepted),
    rule!("api 4", D, "a traits block of up to 65,535 bytes is registered, and announced with its name",
        traits_of_65535_bytes_are_registered),
];

/// Returns the status of a registration with these traits.
fn registration_status(traits: &[u8]) -> Status {
    status(Provider::register_with_traits(new_guid(), traits, None))
}

/// Builds a traits block of a name and raw traits, with the correct size in front.
fn traits_block(name: &[u8], traits: &[u8]) -> Vec<u8> {
    let size = u16::try_from(2 + name.len() + traits.len()).unwrap();
    [&size.to_le_bytes()[..], name, traits].concat()
}

fn raw_trait(kind: u8, data: &[u8]) -> Vec<u8> {
    let size = u16::try_from(3 + data.len()).unwrap();
    [&size.to_le_bytes()[..], &[kind], data].concat()
}

fn traits_are_attached(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let traits = TraitsBuilder::new("Named").add(200, b"own").finish().unwrap().to_vec();
    let provider = Provider::register_with_traits(guid, &traits, None).unwrap();
    fixture.enable(&session, guid, &EnableParams::default());
    provider.write(&event(1), &[b"x"]).unwrap();
    // Metadata: its size, no tags, the name `ab`, no fields.
    provider.event(&event(2)).metadata(b"\x06\0\0ab\0").related(&Guid::from_u128(9)).write(&[]).unwrap();
    provider.write_string(4, 1, "text").unwrap();
    let seen = fixture.stop_and_read(session);
    assert_eq!(seen.len(), 3);
    for event in &seen {
        assert!(event.items.contains(&(ExtType::PROV_TRAITS, traits.clone())), "{event:?}");
    }
    assert!(seen[1].items.contains(&(ExtType::EVENT_SCHEMA_TL, b"\x06\0\0ab\0".to_vec())));
}

/// Returns the traits that an event carries.
fn traits_of_event(seen: &RecordedEvent) -> Vec<&[u8]> {
    let traits = seen.items.iter().filter(|(kind, _)| *kind == ExtType::PROV_TRAITS);
    traits.map(|(_, data)| &data[..]).collect()
}

fn traits_are_set_once(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let (first, second) = (traits_block(b"first\0", &[]), traits_block(b"second\0", &[]));
    provider.write(&event(1), &[]).unwrap();
    provider.set_traits(&first).unwrap();
    provider.write(&event(2), &[]).unwrap();
    assert_eq!(status(provider.set_traits(&second)), INVALID_PARAMETER);
    assert_eq!(status(provider.set_traits(&first)), INVALID_PARAMETER);
    provider.write(&event(3), &[]).unwrap();
    let seen = fixture.stop_and_read(session);
    let traits_of_events: Vec<_> = seen.iter().map(traits_of_event).collect();
    assert_eq!(traits_of_events, [vec![], vec![&first[..]], vec![&first[..]]]);
    let with_traits = Provider::register_with_traits(new_guid(), &first, None).unwrap();
    assert_eq!(
        status(with_traits.set_traits(&second)),
        INVALID_PARAMETER,
        "traits were set although the registration already has traits"
    );
}

fn traits_of_a_stale_registration_are_refused(_fixture: &Fixture) {
    let provider = Provider::register(new_guid(), None).unwrap();
    let stale_provider = provider.handle().provider().unwrap();
    drop(provider);
    assert_eq!(status(stale_provider.set_traits(&traits_block(b"n\0", &[]))), INVALID_PARAMETER);
}

fn wrong_traits_are_not_set(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    // No bytes, a name without a terminator, and a wrong size.
    for traits in [&[][..], &[3, 0, b'x'], &[9, 0, 0]] {
        assert_eq!(status(provider.set_traits(traits)), INVALID_PARAMETER, "traits {traits:?}");
    }
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session)[0].items, []);
    assert_eq!(status(provider.set_traits(&traits_block(b"n\0", &[]))), SUCCESS, "a refused call set traits");
}

fn decode_guid_replaces_the_provider(fixture: &Fixture) {
    let (guid, decode, session) = (new_guid(), new_guid(), fixture.start(&fixture.config()));
    let traits = TraitsBuilder::new("Decoded").decode_guid(&decode).finish().unwrap().to_vec();
    let provider = Provider::register_with_traits(guid, &traits, None).unwrap();
    fixture.enable(&session, guid, &EnableParams::default());
    provider.write(&event(1), &[b"x"]).unwrap();
    let seen = fixture.stop_and_read(session);
    assert_eq!((seen[0].provider, &seen[0].payload[..]), (decode, &b"x"[..]));
    let items = [(ExtType::CONTROL_GUID, guid.to_bytes().to_vec()), (ExtType::PROV_TRAITS, traits)];
    assert_eq!(seen[0].items, items);
}

fn trait_is_found_by_type(_fixture: &Fixture) {
    let valid_block = traits_block(
        b"n\0",
        &[raw_trait(200, b"first"), raw_trait(200, b"second"), raw_trait(7, b"")].concat(),
    );
    let traits = Traits::parse(&valid_block).unwrap();
    assert_eq!((traits.get(200), traits.get(7), traits.get(8)), (Some(&b"first"[..]), Some(&[][..]), None));
    // The second trait has the size 2, which is less than its header of 3 bytes.
    let malformed_block =
        traits_block(b"n\0", &[raw_trait(200, b"first"), vec![2, 0, 9], raw_trait(7, b"")].concat());
    let traits = Traits::parse(&malformed_block).unwrap();
    assert_eq!((traits.get(200), traits.get(9), traits.get(7)), (Some(&b"first"[..]), None, None));
}

fn wrong_traits_size_is_refused(_fixture: &Fixture) {
    let valid = traits_block(b"name\0", &[]);
    assert_eq!(registration_status(&valid), SUCCESS);
    // The correct size is 7.
    for size in [0u16, 1, 2, 6, 8, u16::MAX] {
        let mut traits = valid.clone();
        traits[..2].copy_from_slice(&size.to_le_bytes());
        assert_eq!(registration_status(&traits), INVALID_PARAMETER, "TraitsSize {size}");
    }
    for short in [&[][..], &[0], &[2, 0]] {
        assert_eq!(registration_status(short), INVALID_PARAMETER, "{short:?}");
    }
}

fn unterminated_name_is_refused(_fixture: &Fixture) {
    assert_eq!(registration_status(&traits_block(b"endless", &[])), INVALID_PARAMETER);
}

fn trait_beyond_the_end_is_refused(_fixture: &Fixture) {
    // A trait is its size (two bytes), its type and its data.
    for traits in [&[2, 0, 200][..], &[0, 0, 200], &[9, 0, 200, 1], &[3], &[3, 0]] {
        assert_eq!(registration_status(&traits_block(b"n\0", traits)), INVALID_PARAMETER, "{traits:?}");
    }
}

fn guid_traits_have_19_bytes(_fixture: &Fixture) {
    for kind in [1, 2] {
        assert_eq!(registration_status(&traits_block(b"n\0", &raw_trait(kind, &[7; 16]))), SUCCESS);
        for size in [0, 15, 17] {
            assert_eq!(
                registration_status(&traits_block(b"n\0", &raw_trait(kind, &vec![7; size]))),
                INVALID_PARAMETER,
                "type {kind} with {size} bytes of data"
            );
        }
    }
}

fn two_group_traits_are_refused(_fixture: &Fixture) {
    let group = raw_trait(1, &[7; 16]);
    assert_eq!(
        registration_status(&traits_block(b"n\0", &[group.clone(), group].concat())),
        INVALID_PARAMETER
    );
}

fn unknown_types_are_kept(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let traits =
        traits_block(b"n\0", &[raw_trait(3, b""), raw_trait(127, b"?"), raw_trait(255, b"mine")].concat());
    let provider = Provider::register_with_traits(guid, &traits, None).unwrap();
    fixture.enable(&session, guid, &EnableParams::default());
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session)[0].items, [(ExtType::PROV_TRAITS, traits)]);
}

fn empty_provider_name_is_accepted(_fixture: &Fixture) {
    assert_eq!(registration_status(&traits_block(b"\0", &[])), SUCCESS);
}

fn traits_of_65535_bytes_are_registered(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    // The block also has its size (2 bytes), its name (6) and the header of the trait (3).
    let data = vec![1; 65_535 - 2 - 6 - 3];
    let traits = traits_block(b"large\0", &raw_trait(200, &data));
    let provider = Provider::register_with_traits(guid, &traits, None).unwrap();
    let listed =
        fixture.connect().provider_entries().unwrap().into_iter().find(|entry| entry.provider == guid);
    assert_eq!(listed.map(|entry| entry.name), Some("large".to_owned()));
    fixture.enable(&session, guid, &EnableParams::default());
    assert!(provider.enabled(LEVEL, KEYWORD), "the daemon lost the connection to this process");
}
