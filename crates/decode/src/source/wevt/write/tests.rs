use std::fmt::Write;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::schema::SchemaNames;
use crate::source::binary;
use crate::source::manifest::read_definitions;
use crate::source::messages::MessageTable;
use crate::source::provider::{EventSchema, ProviderSchemas};
use crate::source::wevt::build::for_each_damaged_copy;
use crate::source::wevt::read_providers;

const WORKSHOP: &[u8] = include_bytes!("../../../../../../fixtures/manifests/workshop.man");

fn read_compiled(compiled: &CompiledManifest) -> Vec<ProviderSchemas> {
    read_providers(&compiled.template, &MessageTable::parse(&compiled.messages).unwrap()).unwrap()
}

/// Checks that the reader returns the written event. If the manifest has no name for a value, such
/// as a level, the reader may still return one.
fn assert_same_event(written: &EventSchema, read: &EventSchema) {
    assert_eq!(written.descriptor, read.descriptor);
    let trimmed =
        |text: &Option<Arc<str>>| text.as_deref().map(|t| t.trim_end().to_owned()).filter(|t| !t.is_empty());
    let (w, r) = (&written.schema, &read.schema);
    assert_eq!(w.fields(), r.fields());
    assert_eq!(w.top().len(), r.top().len());
    assert_eq!(trimmed(&w.message), trimmed(&r.message));
    let names =
        |n: &SchemaNames| [&n.provider, &n.event, &n.task, &n.opcode, &n.level, &n.channel].map(trimmed);
    for (written, read) in names(&w.names).into_iter().zip(names(&r.names)) {
        assert!(written.is_none() || written == read, "{written:?} became {read:?}");
    }
    assert_eq!(w.names.keywords, r.names.keywords);
}

fn assert_reads_back(xml: &[u8]) {
    let written = read_definitions(xml, "en-US").unwrap();
    let compiled = compile(&written).unwrap();
    let read = read_compiled(&compiled);
    assert_eq!(written.len(), read.len());
    for (written, read) in written.iter().zip(&read) {
        assert_eq!((written.id, &written.name), (read.id, &read.name));
        let mut events: Vec<_> = written.events.iter().map(|e| &e.event).collect();
        events.sort_by_key(|e| (e.descriptor.id, e.descriptor.version));
        assert_eq!(events.len(), read.events.len());
        for (written, read) in events.into_iter().zip(&read.events) {
            assert_same_event(written, read);
        }
        for keyword in &written.keywords {
            assert!(read.keywords().any(|(mask, name)| mask == keyword.value && name == keyword.display()));
        }
    }
}

#[test]
fn full_manifest_reads_back_equal() {
    assert_reads_back(WORKSHOP);
}

#[test]
fn xml_and_compiled_manifest_give_the_same_events() {
    let parsed = crate::source::manifest::parse(WORKSHOP).unwrap();
    let read = read_compiled(&compile(&read_definitions(WORKSHOP, "en-US").unwrap()).unwrap());
    for (mut parsed, mut read) in parsed.into_iter().zip(read) {
        // Only the compiler sets the keyword bits of the two channels.
        const CHANNEL_BITS: u64 = 3 << 62;
        parsed.events.iter_mut().for_each(|e| e.descriptor.keyword &= !CHANNEL_BITS);
        read.events.iter_mut().for_each(|e| e.descriptor.keyword &= !CHANNEL_BITS);
        assert_eq!(parsed.events.len(), read.events.len());
        parsed.events.sort_by_key(|e| (e.descriptor.id, e.descriptor.version));
        parsed.events.iter().zip(&read.events).for_each(|(parsed, read)| assert_same_event(parsed, read));
    }
}

#[test]
fn texts_are_those_of_the_requested_culture() {
    let message = |culture: &str| {
        let invoices = read_definitions(WORKSHOP, culture).unwrap().remove(1).events;
        let paid = invoices.iter().find(|e| e.event.descriptor.id == 1).unwrap();
        paid.event.schema.message.clone()
    };
    assert_eq!(message("en-US").as_deref(), Some("Invoice %1 is paid"));
    assert_eq!(message("de-de").as_deref(), Some("Rechnung %1 bezahlt"));
}

#[test]
fn concatenated_sections_are_read_in_order() {
    let compiled = compile(&read_definitions(WORKSHOP, "en-US").unwrap()).unwrap();
    let section = binary::encode_elf_section(&compiled);
    let alone = binary::read_section_providers(&section).unwrap();
    let mut without_messages = compiled.clone();
    without_messages.messages.clear();
    let concatenated =
        [&section[..], &[0; 12], &binary::encode_elf_section(&without_messages), &section, &[0; 4]].concat();
    let providers = binary::read_section_providers(&concatenated).unwrap();
    assert_eq!(providers.len(), alone.len() * 3);
    assert_eq!(providers[0].events[0].schema, providers[alone.len() * 2].events[0].schema);
    assert!(providers[alone.len()].events.iter().all(|e| e.schema.message.is_none()));
}

#[test]
fn damaged_compiled_manifests_never_panic() {
    let small = r#"<instrumentationManifest><instrumentation><events>
        <provider name="P" guid="{11223344-5566-7788-99aa-bbccddeeff00}">
        <maps><bitMap name="M"><map value="1" message="one"/></bitMap></maps>
        <templates><template tid="T"><data name="N" inType="win:UInt8" map="M"/>
        <struct name="S" count="N"><data name="B" inType="win:Binary" length="N"/></struct></template></templates>
        <events><event value="1" symbol="One" level="win:Error" template="T" message="%1"/></events>
        </provider></events></instrumentation></instrumentationManifest>"#;
    let section =
        binary::encode_elf_section(&compile(&read_definitions(small.as_bytes(), "en-US").unwrap()).unwrap());
    for_each_damaged_copy(&section, |bytes| {
        let _ = binary::read_section_providers(bytes);
    });
}

#[test]
fn a_message_that_no_table_can_hold_is_refused() {
    let xml = format!(
        r#"<instrumentationManifest><provider name="P" guid="{{11223344-5566-7788-99aa-bbccddeeff00}}">
        <events><event value="1" message="{}"/></events></provider></instrumentationManifest>"#,
        "x".repeat(40_000)
    );
    assert!(compile(&read_definitions(xml.as_bytes(), "en-US").unwrap()).is_err());
}

/// One field: the indexes of its in type and out type, and numbers that select a count or map, and
/// a length (see `write_field`).
type FieldChoice = (usize, usize, u8, u8);

const IN_TYPES: [&str; 20] = [
    "UnicodeString",
    "AnsiString",
    "Int8",
    "UInt8",
    "Int16",
    "UInt16",
    "Int32",
    "UInt32",
    "Int64",
    "UInt64",
    "Float",
    "Double",
    "Boolean",
    "GUID",
    "Pointer",
    "FILETIME",
    "SYSTEMTIME",
    "SID",
    "HexInt32",
    "CountedUnicodeString",
];
const OUT_TYPES: [&str; 6] = ["", "xs:string", "win:HexInt8", "win:HResult", "win:PID", "win:Json"];

fn write_field(xml: &mut String, index: usize, (input, output, count, length): FieldChoice) {
    let _ = write!(xml, r#"<data name="F{index}" inType="win:{}""#, IN_TYPES[input]);
    if !OUT_TYPES[output].is_empty() {
        let _ = write!(xml, r#" outType="{}""#, OUT_TYPES[output]);
    }
    let _ = match count {
        0 => write!(xml, r#" count="3""#),
        1 => write!(xml, r#" count="N""#),
        // Only integers have maps.
        2 if matches!(input, 2..=9 | 14 | 18) => write!(xml, r#" map="M""#),
        _ => Ok(()),
    };
    // The first two types are strings.
    let _ = match length {
        0 if input < 2 => write!(xml, r#" length="12""#),
        1 if input < 2 => write!(xml, r#" length="N""#),
        _ => Ok(()),
    };
    xml.push_str("/>");
}

/// Builds a manifest. A template has fields, and members of one structure. An event has an id, a
/// version, the index of its template, and flags that select its other attributes.
fn build_manifest_xml(
    templates: &[(Vec<FieldChoice>, Vec<FieldChoice>)],
    events: &[(u16, u8, usize, u8)],
    texts: &[String],
) -> String {
    let text = |i: usize| quick_xml::escape::escape(texts[i % texts.len()].as_str()).into_owned();
    let mut xml = format!(
        r#"<instrumentationManifest><provider name="{}" guid="{{11223344-5566-7788-99aa-bbccddeeff00}}">
        <levels><level name="L" value="17" message="{}"/></levels>
        <tasks><task name="T" value="5"><opcodes><opcode name="O" value="12" message="{}"/></opcodes></task></tasks>
        <opcodes><opcode name="P" value="12"/></opcodes>
        <keywords><keyword name="K" mask="0x4"/><keyword name="Q" mask="0x80000000" message="{}"/></keywords>
        <channels><channel name="P/C" chid="C" type="Debug"/></channels>
        <maps><valueMap name="M"><map value="7" message="{}"/><map value="0" message="zero"/></valueMap></maps><templates>"#,
        text(0),
        text(1),
        text(2),
        text(3),
        text(4)
    );
    for (at, (fields, members)) in templates.iter().enumerate() {
        let _ = write!(xml, r#"<template tid="T{at}"><data name="N" inType="win:UInt16"/>"#);
        fields.iter().enumerate().for_each(|(i, choice)| write_field(&mut xml, i, *choice));
        if !members.is_empty() {
            xml.push_str(r#"<struct name="S" count="N">"#);
            members.iter().enumerate().for_each(|(i, choice)| write_field(&mut xml, i, *choice));
            xml.push_str("</struct>");
        }
        xml.push_str("</template>");
    }
    xml.push_str("</templates><events>");
    let mut seen = std::collections::HashSet::new();
    for (at, (id, version, template, flags)) in events.iter().enumerate() {
        if !seen.insert((id, version)) {
            continue;
        }
        let _ = write!(xml, r#"<event value="{id}" version="{version}" message="{}""#, text(at));
        for (bit, attribute) in
            [r#" level="L""#, r#" task="T" opcode="O""#, r#" keywords="K Q win:SQM""#, r#" channel="C""#]
                .iter()
                .enumerate()
        {
            if flags & (1 << bit) != 0 {
                xml.push_str(attribute);
            }
        }
        match flags & 0x30 {
            0x10 => xml.push_str(r#" symbol="S"#),
            _ => xml.push_str(r#" symbol="E"#),
        }
        let _ = write!(xml, r#"{at}""#);
        if *template < templates.len() {
            let _ = write!(xml, r#" template="T{template}""#);
        }
        xml.push_str("/>");
    }
    xml.push_str("</events></provider></instrumentationManifest>");
    xml
}

proptest! {
    #[test]
    fn any_manifest_reads_back(
        templates in prop::collection::vec((prop::collection::vec((0..20_usize, 0..6_usize, 0..5_u8, 0..3_u8), 0..9),
            prop::collection::vec((0..20_usize, 0..6_usize, 0..5_u8, 0..3_u8), 0..5)), 0..5),
        events in prop::collection::vec((any::<u16>(), 0..3_u8, 0..6_usize, any::<u8>()), 0..20),
        texts in prop::collection::vec("[a-zA-Z0-9 %äö𝄞<&\"]{1,20}x", 5..9),
    ) {
        assert_reads_back(build_manifest_xml(&templates, &events, &texts).as_bytes());
    }
}
