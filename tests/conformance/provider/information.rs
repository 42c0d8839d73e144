//! Rules for EventSetInformation: classes, lengths, handles, and the order of its checks. `rule.rs`
//! explains the rows.

use traceweir::controller::EnableParams;
use traceweir::provider::{DataDescriptor, set_information};
use traceweir::{Provider, Status};
use traceweir_format::spec::event::{EventInfoClass as Class, ExtType};

use crate::helpers::{Fixture, INVALID_PARAMETER, NOT_SUPPORTED, SUCCESS, event, new_guid, status};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 6", D, "a handle that is 0, unknown or unregistered → 87, not 6",
        wrong_handles_are_invalid_parameters),
    rule!("provider 6", D, "a length that is wrong for the class → 87",
        wrong_information_lengths_are_refused),
    rule!("provider 6", D, "an unknown class → 50", unknown_information_classes_are_refused),
    rule!("provider 6", P, "the class is checked before the handle and the buffer", class_is_checked_first),
    rule!("provider 6 #BinaryTrackInfo", D, "no buffer is used; one is tolerated", tracking_needs_no_buffer),
    rule!("provider 6 #SetReserved1", P, "the reserved class → 50", reserved_class_is_not_supported),
    rule!("provider 6 #SetTraits", D, "sets the traits, once", set_traits_class_sets_traits_once),
    rule!("provider 6 #SetTraits", D, "turns on descriptor types", traits_turn_types_on),
    rule!("provider 6 #UseDescriptorType", D, "TRUE: descriptor types apply; FALSE: they are ignored again",
        descriptor_types_switch_on_and_off),
    rule!("provider 6 #UseDescriptorType", D, "a size other than one byte → 87",
        use_descriptor_type_takes_one_byte),
    rule!("provider 6 #UseDescriptorType", P, "FALSE changes nothing where traits are set",
        traits_keep_types_on),
    rule!("provider 6 #UseDescriptorType", P, "any byte except 0 is TRUE", any_non_zero_byte_is_true),
    rule!("provider 6 #MaxEventInfo", D, "4 is the first unknown class → 50", max_event_info_is_invalid),
    rule!("provider 6", P, "a new registration begins without descriptor types",
        new_registration_has_no_descriptor_types),
];

const TRACK_INFO: u32 = Class::EventProviderBinaryTrackInfo.0;
const SET_TRAITS: u32 = Class::EventProviderSetTraits.0;
const USE_TYPES: u32 = Class::EventProviderUseDescriptorType.0;
/// A traits block with the name `n` and no trait.
const TRAITS: &[u8] = b"\x04\0n\0";

fn set_status(provider: &Provider, class: u32, info: Option<&[u8]>) -> Status {
    set_information(provider.handle().to_raw(), class, info)
}

fn register_provider() -> Provider {
    Provider::register(new_guid(), None).unwrap()
}

/// Returns whether descriptor types apply: then a write with an unknown type is refused.
fn has_types(provider: &Provider) -> bool {
    let block_of_unknown_type = DataDescriptor::of_kind(200, b"x");
    // SAFETY: the data descriptor refers to bytes of a constant.
    unsafe { provider.write_descriptors(&event(1), 0, 0, None, None, &[block_of_unknown_type]) }.is_err()
}

fn wrong_handles_are_invalid_parameters(_fixture: &Fixture) {
    let provider = register_provider();
    let handle = provider.handle();
    let stale_provider = handle.provider().unwrap();
    drop(provider);
    for class in [TRACK_INFO, SET_TRAITS, USE_TYPES] {
        for raw in [0, 1, u64::MAX, handle.to_raw()] {
            assert_eq!(set_information(raw, class, Some(&[1])), INVALID_PARAMETER, "class {class}, {raw:#x}");
        }
        let stale_status = status(stale_provider.set_information(class, Some(&[1])));
        assert_eq!(stale_status, INVALID_PARAMETER, "class {class}");
    }
}

fn wrong_information_lengths_are_refused(_fixture: &Fixture) {
    let provider = register_provider();
    for info in [None, Some(&[][..]), Some(&[0, 0]), Some(&[1, 0, 0, 0])] {
        assert_eq!(set_status(&provider, USE_TYPES, info), INVALID_PARAMETER, "{info:?}");
    }
    // Traits begin with their size in two bytes, which is wrong in the last three blocks.
    for info in [None, Some(&[][..]), Some(&[3, 0]), Some(&[5, 0, b'n', 0]), Some(&[3, 0, b'n', 0])] {
        assert_eq!(set_status(&provider, SET_TRAITS, info), INVALID_PARAMETER, "{info:?}");
    }
    assert_eq!(set_status(&provider, SET_TRAITS, Some(TRAITS)), SUCCESS, "one of the invalid traits was set");
}

fn unknown_information_classes_are_refused(_fixture: &Fixture) {
    let provider = register_provider();
    for class in [4, 5, 100, 0x8000_0000, u32::MAX] {
        assert_eq!(set_status(&provider, class, None), NOT_SUPPORTED, "class {class}");
        assert_eq!(set_status(&provider, class, Some(&[1])), NOT_SUPPORTED, "class {class}");
        assert_eq!(status(provider.set_information(class, None)), NOT_SUPPORTED, "class {class}");
    }
}

fn class_is_checked_first(_fixture: &Fixture) {
    for class in [1, 4, u32::MAX] {
        for raw in [0, u64::MAX] {
            assert_eq!(set_information(raw, class, None), NOT_SUPPORTED, "class {class}");
            assert_eq!(set_information(raw, class, Some(&[0; 3])), NOT_SUPPORTED, "class {class}");
        }
    }
}

fn tracking_needs_no_buffer(_fixture: &Fixture) {
    let provider = register_provider();
    for info in [None, Some(&[][..]), Some(&[1]), Some(&[0; 100])] {
        assert_eq!(set_status(&provider, TRACK_INFO, info), SUCCESS, "{info:?}");
    }
}

fn reserved_class_is_not_supported(_fixture: &Fixture) {
    let provider = register_provider();
    assert_eq!(set_status(&provider, 1, None), NOT_SUPPORTED);
    assert_eq!(set_status(&provider, 1, Some(&[1])), NOT_SUPPORTED);
}

fn set_traits_class_sets_traits_once(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    assert_eq!(set_status(&provider, SET_TRAITS, Some(TRAITS)), SUCCESS);
    assert_eq!(set_status(&provider, SET_TRAITS, Some(TRAITS)), INVALID_PARAMETER, "traits were set twice");
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session)[0].items, [(ExtType::PROV_TRAITS, TRAITS.to_vec())]);
}

fn traits_turn_types_on(fixture: &Fixture) {
    let (_session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    assert!(!has_types(&provider));
    assert_eq!(set_status(&provider, SET_TRAITS, Some(b"\x05\0n\0")), INVALID_PARAMETER);
    assert!(!has_types(&provider), "refused traits turned descriptor types on");
    assert_eq!(set_status(&provider, SET_TRAITS, Some(TRAITS)), SUCCESS);
    assert!(has_types(&provider));
    let with_traits = Provider::register_with_traits(guid, TRAITS, None).unwrap();
    assert!(has_types(&with_traits), "traits at registration did not turn descriptor types on");
}

fn descriptor_types_switch_on_and_off(fixture: &Fixture) {
    let (_session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    for (byte, is_on) in [(1, true), (1, true), (0, false), (0, false), (1, true)] {
        assert_eq!(set_status(&provider, USE_TYPES, Some(&[byte])), SUCCESS);
        assert_eq!(has_types(&provider), is_on);
    }
}

fn use_descriptor_type_takes_one_byte(fixture: &Fixture) {
    let (_session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    assert_eq!(
        set_status(&provider, USE_TYPES, Some(&[1, 0, 0, 0])),
        INVALID_PARAMETER,
        "a BOOL of four bytes was accepted"
    );
    assert_eq!(set_status(&provider, USE_TYPES, None), INVALID_PARAMETER);
    assert!(!has_types(&provider));
}

fn traits_keep_types_on(fixture: &Fixture) {
    let (_session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    assert_eq!(set_status(&provider, SET_TRAITS, Some(TRAITS)), SUCCESS);
    assert_eq!(set_status(&provider, USE_TYPES, Some(&[0])), SUCCESS);
    assert!(has_types(&provider));
}

fn any_non_zero_byte_is_true(fixture: &Fixture) {
    let (_session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    for byte in [2, 255] {
        assert_eq!(set_status(&provider, USE_TYPES, Some(&[0])), SUCCESS);
        assert_eq!(set_status(&provider, USE_TYPES, Some(&[byte])), SUCCESS);
        assert!(has_types(&provider), "byte {byte} did not turn descriptor types on");
    }
}

fn max_event_info_is_invalid(_fixture: &Fixture) {
    assert_eq!(Class::MaxEventInfo.0, 4);
    assert_eq!(set_status(&register_provider(), Class::MaxEventInfo.0, Some(&[1])), NOT_SUPPORTED);
}

fn new_registration_has_no_descriptor_types(fixture: &Fixture) {
    let (_session, first, guid) = fixture.start_with_provider(&EnableParams::default());
    assert_eq!(set_status(&first, USE_TYPES, Some(&[1])), SUCCESS);
    let second = Provider::register(guid, None).unwrap();
    assert!(has_types(&first) && !has_types(&second));
}
