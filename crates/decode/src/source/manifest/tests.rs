use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use traceweir_format::spec::types::{InType, OutType};

use super::parse;
use crate::Error;
use crate::schema::{Count, Field, FieldKind, Length, Schema, ValueMap};
use crate::source::ValueName;
use crate::source::provider::{EventSchema, ProviderSchemas};

const EVERYTHING: &[u8] = include_bytes!("../../../../../fixtures/manifests/everything.man");
const EVENT_SOURCE: &[u8] = include_bytes!("../../../../../fixtures/manifests/eventsource.man");

/// Builds a manifest with this text inside its provider.
fn manifest_of_provider(provider: &str) -> String {
    format!(
        r#"<instrumentationManifest xmlns:win="w"><instrumentation><events>
        <provider name="P" guid="{{6f0a4d5e-3c41-4a53-9c0b-1f2e3d4c5b6a}}">{provider}</provider>
        </events></instrumentation></instrumentationManifest>"#
    )
}

/// Builds a manifest with one event and one template of these fields.
fn manifest_of_template(fields: &str) -> String {
    manifest_of_provider(&format!(
        r#"<templates><template tid="T">{fields}</template></templates>
        <events><event value="1" template="T"/></events>"#
    ))
}

fn parse_first_event(xml: &str) -> EventSchema {
    parse(xml.as_bytes()).unwrap().remove(0).events.remove(0)
}

/// Returns the reason why a manifest is refused, and the text at the offset of the error.
fn parse_refusal(xml: &str) -> (String, String) {
    match parse(xml.as_bytes()) {
        Err(Error::Xml { offset, reason }) => (reason, xml[offset as usize..].chars().take(12).collect()),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted: {xml}"),
    }
}

/// Returns the in type and out type of each field; for a structure, its first member and their
/// number.
fn type_numbers(schema: &Schema) -> Vec<(u16, u16)> {
    let numbers = |field: &Field| match field.kind {
        FieldKind::Value { input, output, .. } => (input.0, output.0),
        FieldKind::Struct { first, members } => (first, members),
    };
    schema.fields().iter().map(numbers).collect()
}

fn value_map_of(field: &Field) -> Option<&ValueMap> {
    match &field.kind {
        FieldKind::Value { map, .. } => map.as_deref(),
        FieldKind::Struct { .. } => None,
    }
}

fn everything_provider() -> ProviderSchemas {
    parse(EVERYTHING).unwrap().remove(0)
}

#[test]
fn descriptor_has_the_numbers_of_the_names() {
    let provider = everything_provider();
    assert_eq!(provider.id.to_string(), "6f0a4d5e-3c41-4a53-9c0b-1f2e3d4c5b6a");
    assert_eq!(provider.name.as_deref(), Some("Traceweir-Example-Everything"));
    let numbers: Vec<_> = provider
        .events
        .iter()
        .map(|e| &e.descriptor)
        .map(|d| (d.id, d.version, d.channel, d.level, d.opcode, d.task, d.keyword))
        .collect();
    let expected = [
        (1, 2, 17, 2, 1, 10, 0x0010_0000_0000_0001),
        (2, 0, 0, 16, 30, 10, 9),
        (3, 0, 8, 0, 41, 0, 0),
        (4, 0, 18, 0, 40, 11, 0),
        (5, 0, 16, 20, 77, 0, 0),
    ];
    assert_eq!(numbers, expected);
}

#[test]
fn names_are_message_texts_if_these_exist() {
    let names: Vec<_> = everything_provider().events.into_iter().map(|e| e.schema.names).collect();
    let names_of = |index: usize| {
        let n = &names[index];
        [&n.event, &n.task, &n.opcode, &n.level, &n.channel].map(|name| name.as_deref().unwrap_or("-"))
    };
    assert_eq!(names_of(0), ["TypesEvent", "Connecting", "Start", "Error", "Traceweir-Example/Operational"]);
    assert_eq!(names_of(1), ["ArraysEvent", "Connecting", "Try again", "Talkative", "-"]);
    assert_eq!(names_of(2), ["MapsEvent", "-", "Refresh", "LogAlways", "System"]);
    assert_eq!(names_of(3), ["-", "Bare", "Retry", "-", "Traceweir-Example/Debug"]);
    assert_eq!(names_of(4), ["Numbers", "-", "-", "-", "Traceweir-Example/Fixed"]);
    let keywords =
        |index: usize| -> Vec<_> { names[index].keywords.iter().map(|(m, n)| (*m, &**n)).collect() };
    assert_eq!(keywords(0), [(1, "Network & more"), (0x0010_0000_0000_0000, "AuditFailure")]);
    assert_eq!(keywords(1), [(1, "Network & more"), (8, "Disk")]);
    assert!(names.iter().all(|n| n.provider.as_deref() == Some("Traceweir-Example-Everything")));
    let provider = everything_provider();
    assert_eq!(provider.levels().collect::<Vec<_>>(), [(16, "Chatty"), (16, "Talkative")]);
    let list_names =
        |names: &[ValueName]| names.iter().map(|n| (n.value, n.name.to_string())).collect::<Vec<_>>();
    let entry = |value, name: &str| (value, name.to_owned());
    assert_eq!(
        list_names(&provider.value_names.levels),
        [entry(0, "win:LogAlways"), entry(2, "win:Error"), entry(16, "Chatty")]
    );
    assert_eq!(list_names(&provider.value_names.tasks), [entry(10, "Connect"), entry(11, "Bare")]);
    // The opcode in the upper 16 bits; in the lower ones, the task that defines it, or 0.
    let opcodes = [
        entry(1 << 16, "win:Start"),
        entry(30 << 16 | 10, "Retry"),
        entry(40 << 16, "Retry"),
        entry(41 << 16, "Refresh"),
    ];
    assert_eq!(list_names(&provider.value_names.opcodes), opcodes);
    assert!(list_names(&provider.value_names.channels).contains(&entry(16, "Traceweir-Example/Fixed")));
}

#[test]
fn messages_come_from_the_string_tables() {
    let providers = parse(EVERYTHING).unwrap();
    let messages: Vec<_> =
        providers.iter().flat_map(|p| &p.events).map(|e| e.schema.message.as_deref()).collect();
    let expected =
        [Some("Types: %1 <%2>%n"), Some("Arrays of %1!d!"), None, None, None, Some("Nur hier: %1")];
    assert_eq!(messages, expected);
}

#[test]
fn every_type_has_its_number() {
    let provider = everything_provider();
    // The in type and the out type of each field; in type 14 (Binary, as an IPv6 address) is last.
    let mut expected: Vec<_> = (1..=13).chain(15..=23).map(|input| (input, 0)).collect();
    expected.extend([(25, 36), (14, 24)]);
    for (name, output) in [
        ("Ansi", 35),
        ("U8", 16),
        ("U16", 22),
        ("I32", 32),
        ("U32", 23),
        ("U64", 27),
        ("Double", 12),
        ("Guid", 14),
        ("Pointer", 37),
        ("FileTime", 38),
        ("SystemTime", 2),
        ("Hex32", 31),
        ("CountedUnicode", 34),
        ("CountedAnsi", 28),
    ] {
        let at = provider.events[0].schema.top().iter().position(|f| &*f.name == name).unwrap();
        expected[at].1 = output;
    }
    assert_eq!(type_numbers(&provider.events[0].schema), expected);
    let address = provider.events[0].schema.top().last().unwrap();
    assert_eq!(address.length, Length::Fixed(16));
}

#[test]
fn members_follow_the_top_level_and_references_are_indexes() {
    let provider = everything_provider();
    let schema = &provider.events[1].schema;
    let field = |index: usize| {
        let f = &schema.fields()[index];
        (&*f.name, f.count, f.length, f.is_referenced)
    };
    assert_eq!(schema.top().len(), 7);
    assert_eq!(field(0), ("Count", Count::One, Length::Natural, true));
    assert_eq!(field(1), ("Fixed", Count::Fixed(4), Length::Natural, false));
    assert_eq!(field(2), ("Counted", Count::Field(0), Length::Natural, false));
    assert_eq!(field(3), ("Name", Count::One, Length::Fixed(8), false));
    assert_eq!(field(4), ("Items", Count::Field(0), Length::Natural, false));
    assert_eq!(field(5), ("Pair", Count::Fixed(2), Length::Natural, false));
    assert_eq!(field(6), ("Last", Count::One, Length::Field(0), false));
    assert_eq!(field(7), ("Size", Count::One, Length::Natural, true));
    assert_eq!(field(8), ("Data", Count::One, Length::Field(7), false));
    assert_eq!(field(9), ("Inner", Count::One, Length::Natural, false));
    assert_eq!(field(10), ("Left", Count::One, Length::Natural, false));
    assert_eq!(field(11), ("Repeat", Count::Field(0), Length::Natural, false));
    assert_eq!(schema.fields()[4].kind, FieldKind::Struct { first: 7, members: 3 });
    assert_eq!(schema.fields()[5].kind, FieldKind::Struct { first: 10, members: 1 });
    assert_eq!(schema.fields()[9].kind, FieldKind::Struct { first: 11, members: 1 });
    assert_eq!(schema.fields().len(), 12);
}

#[test]
fn maps_name_values_and_bits() {
    let provider = everything_provider();
    let [state, access, version] = provider.events[2].schema.top() else { panic!("not three fields") };
    let state = value_map_of(state).unwrap();
    assert_eq!((&*state.name, state.is_bit_map, state.entries().len()), ("State", false, 2));
    assert_eq!((state.value(1), state.value(2), state.value(3)), (Some("Open"), Some("Closed"), None));
    let access = value_map_of(access).unwrap();
    let entries: Vec<_> = access.entries().iter().map(|(bit, name)| (*bit, &**name)).collect();
    assert_eq!((access.is_bit_map, entries), (true, vec![(4, "Execute"), (1, "Read")]));
    assert_eq!(value_map_of(version), None, "pattern maps must not name values");
}

#[test]
fn the_manifest_of_an_event_source_is_read() {
    let providers = parse(EVENT_SOURCE).unwrap();
    let events = &providers[0].events;
    let names: Vec<_> = events.iter().map(|e| e.schema.event_name().unwrap()).collect();
    assert_eq!(names, ["EventSourceMessage", "Order/Start", "Order/Stop", "Uploaded"]);
    assert_eq!(events[1].schema.message.as_deref(), Some("Order %1 paid by %2 \"100%%\""));
    assert_eq!(type_numbers(&events[1].schema), [(15, 0), (8, 0), (13, 0), (17, 0), (12, 0)]);
    assert_eq!(value_map_of(&events[1].schema.top()[1]).unwrap().value(2), Some("Cash"));
    assert_eq!(events[3].schema.top()[1].length, Length::Field(0));
    assert_eq!((events[3].descriptor.task, events[3].descriptor.opcode), (65531, 0));
    assert_eq!(events[2].descriptor.version, 1);
}

#[test]
fn every_encoding_gives_the_same_schemas() {
    let text = std::str::from_utf8(EVERYTHING).unwrap();
    let encode = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
        "\u{FEFF}".encode_utf16().chain(text.encode_utf16()).flat_map(unit).collect()
    };
    let expected = format!("{:?}", parse(EVERYTHING).unwrap());
    for bytes in [encode(u16::to_le_bytes), encode(u16::to_be_bytes), [b"\xEF\xBB\xBF", EVERYTHING].concat()]
    {
        assert_eq!(format!("{:?}", parse(&bytes).unwrap()), expected);
    }
    // In a trace, a line end and the terminator may follow the text.
    assert_eq!(format!("{:?}", parse(&[EVERYTHING, b"\r\n\0"].concat()).unwrap()), expected);
}

#[test]
fn error_offsets_count_bytes_of_the_file() {
    let text = manifest_of_provider("é𝄞<events><event/></events>");
    let at = text.find("<event/>").unwrap();
    let utf16: Vec<u8> =
        "\u{FEFF}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let expected = 2 + 2 * text[..at].encode_utf16().count() as u64;
    let Err(Error::Xml { offset, .. }) = parse(&utf16) else { panic!("accepted") };
    assert_eq!(offset, expected);
    let Err(Error::Xml { offset, .. }) = parse(&[b"\xEF\xBB\xBF", text.as_bytes()].concat()) else {
        panic!("accepted")
    };
    assert_eq!(offset, 3 + at as u64);
}

#[test]
fn prefixed_elements_of_other_namespaces_are_ignored() {
    let xml = r#"<e:instrumentationManifest xmlns:e="http://schemas.microsoft.com/win/2004/08/events" xmlns:x="x">
        <e:events><e:provider name="P" guid="{6f0a4d5e-3c41-4a53-9c0b-1f2e3d4c5b6a}">
        <e:events><e:event value="1"/><x:event value="2"/><y:event value="3"/></e:events></e:provider></e:events>
        </e:instrumentationManifest>"#;
    let ids: Vec<_> = parse(xml.as_bytes()).unwrap()[0].events.iter().map(|e| e.descriptor.id).collect();
    assert_eq!(ids, [1]);
}

#[test]
fn undefined_names_and_invalid_numbers_are_refused() {
    for (provider, reason) in [
        (r#"<events><event/></events>"#, "element event has no attribute value"),
        (r#"<events><event value="65536"/></events>"#, "value 65536 is not a number up to 65535"),
        (r#"<events><event value="1" version="-1"/></events>"#, "version -1 is not a number up to 255"),
        (r#"<events><event value="1" level="Loud"/></events>"#, "level Loud is not defined"),
        (r#"<events><event value="1" level="256"/></events>"#, "level 256 is out of range"),
        (r#"<events><event value="1" opcode="win:Unheard"/></events>"#, "opcode win:Unheard is not defined"),
        (r#"<events><event value="1" task="T"/></events>"#, "task T is not defined"),
        (r#"<events><event value="1" keywords="K"/></events>"#, "keyword K is not defined"),
        (r#"<events><event value="1" channel="C"/></events>"#, "channel C is not defined"),
        (r#"<events><event value="1" template="T"/></events>"#, "template T is not defined"),
        (r#"<levels><level name="L" value="256"/></levels>"#, "value 256 is not a number up to 255"),
        (r#"<keywords><keyword name="K" value="1"/></keywords>"#, "element keyword has no attribute mask"),
    ] {
        let (refusal, text_at_offset) = parse_refusal(&manifest_of_provider(provider));
        assert_eq!(refusal, reason);
        let is_element =
            ["<event", "<level ", "<keyword "].iter().any(|start| text_at_offset.starts_with(start));
        assert!(is_element, "the offset is not that of an element: {text_at_offset}");
    }
}

#[test]
fn templates_that_cannot_be_laid_out_are_refused() {
    let int = r#"<data name="n" inType="win:UInt32"/>"#;
    for (fields, reason) in [
        (r#"<data name="a"/>"#.to_owned(), "element data has no attribute inType"),
        (r#"<data name="a" inType="win:Magic"/>"#.to_owned(), "inType win:Magic is not known"),
        (
            format!(r#"<data name="a" inType="win:UInt8" count="n"/>{int}"#),
            "no field n stands before a, which refers to it",
        ),
        (
            r#"<data name="a" inType="win:UInt8" count="a"/>"#.to_owned(),
            "no field a stands before a, which refers to it",
        ),
        (
            r#"<data name="a" inType="win:UInt8" count="65536"/>"#.to_owned(),
            "count 65536 is not a number up to 65535",
        ),
        (
            r#"<data name="t" inType="win:UnicodeString"/><data name="a" inType="win:Binary" length="t"/>"#
                .to_owned(),
            "field t, a count or length, is not an integer",
        ),
        (
            format!(r#"<struct name="s">{int}</struct><data name="a" inType="win:UInt8" count="n"/>"#),
            "no field n stands before a, which refers to it",
        ),
        (r#"<struct name="s"/>"#.to_owned(), "structure s has no members"),
        (int.repeat(4097), "the template has too many fields"),
        (
            format!("{}{int}{}", r#"<struct name="s">"#.repeat(9), "</struct>".repeat(9)),
            "structures are nested too deeply",
        ),
    ] {
        assert_eq!(parse_refusal(&manifest_of_template(&fields)).0, reason, "{:.200}", fields);
    }
    assert_eq!(parse_first_event(&manifest_of_template(&int.repeat(4096))).schema.top().len(), 4096);
    let nested = format!("{}{int}{}", r#"<struct name="s">"#.repeat(8), "</struct>".repeat(8));
    assert_eq!(parse_first_event(&manifest_of_template(&nested)).schema.fields().len(), 9);
}

#[test]
fn lengths_of_fixed_size_types_are_ignored() {
    let schema = parse_first_event(&manifest_of_template(
        r#"<data name="a" inType="win:UInt32" outType="what:ever" length="2"/>"#,
    ))
    .schema;
    assert_eq!(schema.top()[0], Field::value("a", InType::UINT32, OutType::NULL));
}

#[test]
fn entities_and_document_types_are_refused() {
    let bomb = format!(
        r#"<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>{}"#,
        manifest_of_provider("<events>&b;</events>")
    );
    assert_eq!(parse_refusal(&bomb).0, "document type declarations are not accepted");
    let (reason, text_at_offset) =
        parse_refusal(&manifest_of_provider(r#"<events><event value="1" symbol="&b;"/></events>"#));
    assert!(reason.contains('b') && text_at_offset.starts_with("<event "), "{reason}");
    assert_eq!(parse_refusal(&manifest_of_provider("<events>&b;</events>")).1, "&b;</events>");
    let named = parse_first_event(&manifest_of_provider(
        r#"<events><event value="1" symbol="&lt;&#x41;&amp;"/></events>"#,
    ));
    assert_eq!(named.schema.names.event.as_deref(), Some("<A&"));
}

#[test]
fn text_without_a_manifest_is_refused() {
    let no_provider = "no provider element: this is not an instrumentation manifest";
    for (xml, reason) in [
        ("", no_provider),
        ("plain text", no_provider),
        ("<html><body/></html>", no_provider),
        ("<instrumentationManifest>", "the text ends inside an element"),
        ("<provider name='P'/>", "element provider has no attribute guid"),
        ("<provider guid='P'/>", "P is not a GUID"),
    ] {
        assert_eq!(parse_refusal(xml).0, reason, "{xml}");
    }
    for broken in ["<a></b>", "<a", "<a b='1' b='2'/>", "</a>", "<a b=1/>", "<!-- "] {
        assert!(parse(broken.as_bytes()).is_err(), "{broken}");
    }
}

#[test]
fn nesting_attributes_and_sizes_are_bounded() {
    assert_eq!(parse_refusal(&"<events>".repeat(1_000_000)).0, "elements are nested too deeply");
    assert_eq!(parse_refusal(&"<other><x>".repeat(1_000_000)).0, "elements are nested too deeply");
    let attributes: String = (0..100_000).fold(String::new(), |mut attributes, n| {
        let _ = write!(attributes, " a{n}=''");
        attributes
    });
    assert_eq!(parse_refusal(&format!("<events{attributes}/>")).0, "too many attributes");
    let namespaces = attributes.replace(" a", " xmlns:a");
    assert_eq!(parse_refusal(&format!("<events{namespaces}/>")).0, "too many namespace declarations");
    let names = r#"<string id="" value=""/>"#.repeat((1 << 19) + 1);
    let strings =
        format!("<localization><resources><stringTable>{names}</stringTable></resources></localization>");
    assert_eq!(parse_refusal(&strings).0, "too many definitions");
    let provider = "<provider guid='6f0a4d5e3c414a539c0b1f2e3d4c5b6a'/>".repeat(4097);
    assert_eq!(parse_refusal(&format!("<events>{provider}</events>")).0, "too many providers");
    assert!(matches!(parse(&vec![b' '; (64 << 20) + 1]), Err(Error::Xml { offset: 0x400_0000, .. })));
    assert!(parse_refusal(&format!("<provider guid='{}'/>", "x".repeat(5000))).0.len() < 250);
}

#[test]
fn one_definition_cannot_be_multiplied_without_bound() {
    let fields = r#"<data name="" inType="win:Int8"/>"#.repeat(4096);
    let events = r#"<event value="1" template="T"/>"#.repeat(5000);
    let xml = manifest_of_provider(&format!(
        r#"<templates><template tid="T">{fields}</template></templates><events>{events}</events>"#
    ));
    assert_eq!(parse_refusal(&xml).0, "the events have too many fields in all");

    let entries = r#"<map value="1" message="$(string.a)"/>"#.repeat(5000);
    let long = "x".repeat(1 << 20);
    let xml = manifest_of_provider(&format!(r#"<maps><valueMap name="M">{entries}</valueMap></maps>"#)).replace(
        "</instrumentation>",
        &format!(
            r#"</instrumentation><localization><resources><stringTable><string id="a" value="{long}"/></stringTable>
            </resources></localization>"#
        ),
    );
    assert_eq!(parse_refusal(&xml).0, "texts of maps are repeated too often");
}

/// Reads Microsoft's manifest of its QUIC implementation, a large one written by hand.
#[test]
fn manifest_of_msquic_is_read() {
    let samples = std::env::var_os("TRACEWEIR_SAMPLES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), Into::into);
    let Ok(xml) = std::fs::read(samples.join("MsQuicEtw.man")) else {
        return crate::skip::skip("samples", &format!("MsQuicEtw.man is not in {}", samples.display()));
    };
    let providers = parse(&xml).unwrap();
    assert_eq!(providers.len(), 1);
    assert_eq!(providers[0].name.as_deref(), Some("Microsoft-Quic"));
    let events = &providers[0].events;
    assert_eq!(
        events.len(),
        xml.windows(7).filter(|w| w.starts_with(b"<event") && w[6].is_ascii_whitespace()).count()
    );
    let entered = events.iter().find(|e| e.schema.names.event.as_deref() == Some("QuicApiEnter")).unwrap();
    let api = value_map_of(&entered.schema.top()[0]).unwrap();
    assert_eq!(api.value(0), Some("SET_PARAM"));
    assert!(events.iter().all(|e| e.schema.message.is_some() && !e.schema.names.keywords.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_manifests_never_panic(
        at in 0..EVERYTHING.len(),
        replacement in any::<[u8; 3]>(),
        is_truncated in any::<bool>(),
    ) {
        let mut bytes = EVERYTHING.to_vec();
        if is_truncated {
            bytes.truncate(at);
        } else {
            for (byte, new) in bytes[at..].iter_mut().zip(replacement) {
                *byte = new;
            }
        }
        match parse(&bytes) {
            Err(Error::Xml { offset, .. }) => prop_assert!(offset <= bytes.len() as u64),
            Err(other) => prop_assert!(false, "{}", other),
            Ok(providers) => prop_assert_eq!(providers.len(), 2),
        }
    }

    #[test]
    fn random_elements_never_panic(parts in prop::collection::vec(0..24_usize, 0..60)) {
        const PARTS: [&str; 24] = [
            "<instrumentationManifest>", "<events>", "<provider guid='6f0a4d5e3c414a539c0b1f2e3d4c5b6a'>",
            "</provider>", "</events>", "<templates>", "<template tid='T'>",
            "<data name='n' inType='win:Int8' count='n'/>", "<struct name='s'>", "</struct>", "</template>",
            "</templates>", "<event value='1' template='T' task='t' keywords='win:SQM'/>", "<tasks>",
            "<task name='t' value='1'>", "</task>", "</tasks>", "<opcodes>", "<opcode name='o' value='1'/>",
            "</opcodes>", "<maps>", "<bitMap name='m'>", "<map value='1'/>", "</bitMap>",
        ];
        let xml: String = parts.into_iter().map(|part| PARTS[part]).collect();
        let _ = parse(xml.as_bytes());
    }
}

#[test]
fn keywords_have_declared_names_and_message_texts() {
    let provider = everything_provider();
    let names: Vec<_> = provider.keywords().collect();
    assert_eq!(names, [(1, "Network"), (1, "Network & more"), (8, "Disk")]);
}
