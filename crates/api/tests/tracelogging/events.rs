//! Options of events, structures, raw fields, and when values are evaluated.

use std::cell::Cell;
use std::pin::pin;

use traceweir::tracelogging::dynamic::{EventBuilder, Provider as DynamicProvider};
use traceweir::tracelogging::{Channel, Level, Opcode, OutType, Provider};
use traceweir::{EventDescriptor, Guid, define_provider, provider_enabled, write_event};

use traceweir_format::spec::event::CHANNEL_TRACELOGGING;

use super::{encode_metadata, record_events};

define_provider!(EVENTS, "Traceweir.Test.Events", group_id("12345678-9abc-def0-1234-56789abcdef0"));

const ERROR_INVALID_HANDLE: u32 = 6;
const ERROR_ARITHMETIC_OVERFLOW: u32 = 534;
const KEYWORD: u64 = 0x20;
const ERROR_LEVEL: Level = Level::Error;

/// A module that names the provider by a path.
mod other_module {
    pub(super) fn write() {
        traceweir::write_event!(super::EVENTS, "\u{e4}\x41\\", level(LogAlways), keyword(0));
    }
}

#[test]
fn options_set_the_descriptor_and_have_documented_defaults() {
    let (activity, related) = (Provider::create_activity_id(), Guid::from_u128(7));
    let thread_activity = Provider::create_activity_id();
    let written = record_events(&[*EVENTS.id()], || {
        // SAFETY: the provider is a static, which is never dropped.
        assert_eq!(unsafe { EVENTS.register() }, 0);
        let before = Provider::set_current_thread_activity_id(&thread_activity);
        write_event!(EVENTS, "Default");
        write_event!(
            EVENTS,
            "All",
            level(Warning),
            keyword(0x10),
            keyword(KEYWORD),
            opcode(Start),
            task(9),
            id_version(23, 2),
            channel(TraceLogging),
            tag(0x0FE0_0000),
            activity_id(&activity),
            related_id(&related.to_bytes()),
        );
        write_event!(
            EVENTS,
            "Paths",
            level(Level::Warning),
            opcode(Opcode::Reply),
            channel(Channel::TraceClassic)
        );
        write_event!(EVENTS, "Numbers", level(3), opcode(6), channel(0),);
        write_event!(EVENTS, "Constants", level(ERROR_LEVEL), keyword(KEYWORD << 1));
        other_module::write();
        assert_eq!(Provider::set_current_thread_activity_id(&before), thread_activity);
        EVENTS.unregister();
    });
    let default =
        EventDescriptor { channel: CHANNEL_TRACELOGGING, level: 5, keyword: 1, ..EventDescriptor::default() };
    let all_options = EventDescriptor {
        id: 23,
        version: 2,
        channel: CHANNEL_TRACELOGGING,
        level: 3,
        opcode: 1,
        task: 9,
        keyword: 0x30,
    };
    let numbers = EventDescriptor { channel: 0, level: 3, opcode: 6, ..default };
    let descriptors: Vec<_> = written.iter().map(|event| event.descriptor).collect();
    let constants = EventDescriptor { level: 2, keyword: 0x40, ..default };
    let log_always = EventDescriptor { level: 0, keyword: 0, ..default };
    assert_eq!(descriptors, [default, all_options, numbers, numbers, constants, log_always]);
    assert_eq!((written[0].activity, written[0].related), (Some(thread_activity), None));
    assert_eq!((written[1].activity, written[1].related), (Some(activity), Some(related)));
    assert_eq!(written[0].metadata, encode_metadata("Default", &[]));
    // The size, the tag in groups of seven bits, the name.
    assert_eq!(written[1].metadata, b"\x07\0\x7FAll\0");
    assert_eq!(written[5].metadata, encode_metadata("\u{e4}A\\", &[]));
    // A trait: its size, its type (1: group), the GUID.
    let group = b"\x13\0\x01\x78\x56\x34\x12\xbc\x9a\xf0\xde\x12\x34\x56\x78\x9a\xbc\xde\xf0";
    let traits = [&b"\x2b\0"[..], b"Traceweir.Test.Events\0", group].concat();
    assert!(written.iter().all(|event| event.traits == traits && EVENTS.raw_meta() == traits));
}

define_provider!(STRUCTURES, "Traceweir.Test.Parts");

#[test]
fn structures_and_raw_parts_are_written_as_documented() {
    // In the expected metadata, a field is its name, its in type, its out type (if bit 0x80 of the
    // in type is set) and its tag (if bit 0x80 of the out type is set).
    let written = record_events(&[*STRUCTURES.id()], || {
        // SAFETY: the provider is a static, which is never dropped.
        assert_eq!(unsafe { STRUCTURES.register() }, 0);
        write_event!(STRUCTURES, "S", u8("a", &1), struct("s", tag(0x0020_0000), {
            u8("b", &2),
            struct("t", { u16("c", &3), }),
        }), u8("d", &4));
        write_event!(
            STRUCTURES,
            "R",
            raw_field("a", U8, &[65], format(String), tag(0x0FE0_0000)),
            raw_field_slice("b", U8, &[1, 0, 66]),
            raw_meta("c", traceweir::tracelogging::InType::U32, format(Hex)),
            raw_meta_slice("d", 4),
            raw_data(&[1, 2, 3, 4, 0, 0]),
            raw_struct("e", 1),
            raw_field("f", U8, &[7]),
            raw_struct_slice("g", 1, tag(0x0020_0000)),
            raw_meta("h", U8),
            raw_data(&[1, 0, 9]),
        );
        write_event!(STRUCTURES, "Empty", struct("s", {}));
        STRUCTURES.unregister();
    });
    assert_eq!(
        written[0].metadata,
        encode_metadata("S", b"a\0\x04s\0\x98\x82\x01b\0\x04t\0\x98\x01c\0\x06d\0\x04")
    );
    assert_eq!(written[0].payload, [1, 2, 3, 0, 4]);
    let raw = b"a\0\x84\x82\x7Fb\0\x44c\0\x88\x04d\0\x44e\0\x98\x01f\0\x04g\0\xD8\x81\x01h\0\x04";
    assert_eq!(written[1].metadata, encode_metadata("R", raw));
    assert_eq!(written[1].payload, [65, 1, 0, 66, 1, 2, 3, 4, 0, 0, 7, 1, 0, 9]);
    assert_eq!(written[2].metadata, encode_metadata("Empty", b"s\0\x18"));
}

define_provider!(LAZY, "Traceweir.Test.Lazy");

#[test]
fn values_are_evaluated_once_and_only_if_enabled() {
    let count = Cell::new(0);
    let next_number = || {
        count.set(count.get() + 1);
        count.get()
    };
    let next_text = || format!("{}", next_number());
    let write = || {
        write_event!(
            LAZY,
            "E",
            level(Verbose),
            u32("n", &next_number()),
            str8("s", &next_text()),
            str8("t", next_text().trim())
        )
    };
    assert_eq!((write(), count.get()), (0, 0), "the provider is not registered");
    let written = record_events(&[*LAZY.id()], || {
        // SAFETY: the provider is a static, which is never dropped.
        assert_eq!(unsafe { LAZY.register() }, 0);
        assert!(
            provider_enabled!(LAZY, Level::Verbose, KEYWORD) && !LAZY.enabled(Level::from_int(6), KEYWORD)
        );
        assert_eq!((write(), count.get()), (0, 3));
        assert_eq!(write_event!(LAZY, "E", level(6), u32("n", &next_number())), 0);
        assert_eq!(count.get(), 3, "the session does not enable this level");
    });
    assert_eq!((write(), count.get()), (0, 3), "the session has ended");
    assert!(!provider_enabled!(LAZY, Level::LogAlways, 0));
    LAZY.unregister();
    assert_eq!(written.len(), 1);
    // The number 1, then the texts "2" and "3", each after its length.
    assert_eq!(written[0].payload, b"\x01\0\0\0\x01\x002\x01\x003");
}

define_provider!(LARGE, "Traceweir.Test.Large");

#[test]
fn write_returns_the_status_of_the_runtime() {
    let dynamic = pin!(DynamicProvider::new("Traceweir.Test.Large.Dynamic", &DynamicProvider::options()));
    let data = vec![7_u8; 65_535];
    let written = record_events(&[*LARGE.id(), *dynamic.id()], || {
        // SAFETY: one provider is a static; the other is pinned, and dropped before its memory is
        // freed.
        assert_eq!(unsafe { [LARGE.register(), dynamic.as_ref().register()] }, [0, 0]);
        assert_eq!(write_event!(LARGE, "TooLarge", binary("data", &data)), ERROR_ARITHMETIC_OVERFLOW);
        let mut builder = EventBuilder::new();
        builder.reset("TooLarge", Level::Verbose, 1, 0).add_binary("data", &data, OutType::Default, 0);
        assert!(builder.raw_meta().is_some(), "the builder refused the size of the data");
        assert_eq!(builder.write(&dynamic, None, None), ERROR_ARITHMETIC_OVERFLOW);
        assert_eq!(write_event!(LARGE, "Small", u8("n", &1)), 0);
        assert_eq!([LARGE.unregister(), dynamic.unregister()], [0, 0]);
    });
    assert_eq!(
        written.iter().map(|event| event.metadata.clone()).collect::<Vec<_>>(),
        [encode_metadata("Small", b"n\0\x04")]
    );
    assert_eq!(
        write_event!(LARGE, "Gone", binary("data", &data)),
        0,
        "an unregistered provider returned an error"
    );
}

define_provider!(SIDS, "Traceweir.Test.Sids");

#[test]
fn short_sid_panics_if_enabled() {
    // The SID announces two sub-authorities and has one.
    let short = [1, 2, 0, 0, 0, 0, 0, 5, 1, 0, 0, 0];
    assert_eq!(write_event!(SIDS, "E", win_sid("s", &short)), 0, "the value was checked without a session");
    let written = record_events(&[*SIDS.id()], || {
        // SAFETY: the provider is a static, which is never dropped.
        assert_eq!(unsafe { SIDS.register() }, 0);
        let panicked = std::panic::catch_unwind(|| write_event!(SIDS, "E", win_sid("s", &short)));
        assert!(panicked.is_err());
        SIDS.unregister();
    });
    assert_eq!(written, []);
}

#[test]
fn builder_can_be_reused_for_further_events() {
    let mut options = DynamicProvider::options();
    let provider =
        pin!(DynamicProvider::new("Traceweir.Test.Builder", options.group_id(&Guid::from_u128(1))));
    let (activity, related) = (Guid::from_u128(2), Guid::from_u128(3));
    let mut builder = EventBuilder::new_with_capacity(0, 0);
    let unregistered = builder.reset("None", Level::Verbose, 1, 0).write(&provider, None, None);
    assert_eq!(unregistered, ERROR_INVALID_HANDLE);
    let long = "n".repeat(40_000);
    let written = record_events(&[*provider.id()], || {
        // SAFETY: the provider is pinned, and dropped before its memory is freed.
        assert_eq!(unsafe { provider.as_ref().register() }, 0);
        builder.reset("First", Level::Error, 0x8, 0x0020_0000);
        builder.id_version(1, 2).channel(Channel::TraceClassic).opcode(Opcode::Stop).task(3);
        builder.add_u8("a", 1, OutType::Default, 0);
        assert_eq!(builder.write(&provider, Some(&activity), Some(&related)), 0);
        assert_eq!(
            builder.add_u8("b", 2, OutType::Default, 0).write(&provider, None, None),
            0,
            "the same event with one more field"
        );
        builder.reset("Second", Level::Verbose, 1, 0);
        assert_eq!(builder.write(&provider, None, None), 0);
        builder.add_u8(&long, 1, OutType::Default, 0).add_u8(&long, 1, OutType::Default, 0);
        assert_eq!(
            builder.write(&provider, None, None),
            ERROR_ARITHMETIC_OVERFLOW,
            "the metadata has more than 65,535 bytes"
        );
        assert!(builder.raw_meta().is_none());
        builder.reset("Third", Level::Verbose, 1, 0);
        assert_eq!(builder.write(&provider, None, None), 0);
        provider.unregister();
    });
    let first = EventDescriptor { id: 1, version: 2, channel: 0, level: 2, opcode: 2, task: 3, keyword: 8 };
    assert_eq!(
        (written[0].descriptor, written[0].activity, written[0].related),
        (first, Some(activity), Some(related))
    );
    assert_eq!(written[0].metadata, b"\x0c\0\x01First\0a\0\x04");
    assert_eq!(
        (&written[1].metadata[..], &written[1].payload[..]),
        (&b"\x0f\0\x01First\0a\0\x04b\0\x04"[..], &[1, 2][..])
    );
    assert_eq!(
        (written[2].metadata.clone(), written[2].descriptor.channel),
        (encode_metadata("Second", &[]), CHANNEL_TRACELOGGING)
    );
    assert_eq!((written.len(), &written[3].metadata), (4, &encode_metadata("Third", &[])));
    assert_eq!(written[0].traits, provider.raw_meta());
}
