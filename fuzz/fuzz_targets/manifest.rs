//! Fuzzes XML manifests: parses them, reads them from chunks in a trace, compiles them, and
//! generates code from them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_build::{COptions, Manifest};
use traceweir_decode::source::messages::MessageTable;
use traceweir_decode::source::{PreparedSchema, manifest, wevt};
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::{Guid, Record};
use traceweir_fuzz::{RecordRenderer, Renderer, check_c, check_rust};

/// Checks that every compiled manifest reads back completely.
fn check_compiled(data: &[u8]) {
    let Ok(definitions) = manifest::read_definitions(data, "en-US") else { return };
    let Ok(compiled) = wevt::compile(&definitions) else { return };
    let messages = MessageTable::parse(&compiled.messages).expect("a compiled message table can be parsed");
    // A manifest may be within its limits while its compiled form exceeds the limits of a reader.
    let Ok(read) = wevt::read_providers(&compiled.template, &messages) else { return };
    let event_count = |index: usize| definitions.get(index).map_or(0, |provider| provider.events.len());
    assert!(read.iter().enumerate().all(|(index, provider)| provider.events.len() == event_count(index)));
}

/// Checks that the code generated from a manifest is well-formed, whatever its names and texts are.
fn check_generated_code(data: &[u8]) {
    let Ok(manifest) = Manifest::parse("fuzz.man", data, "en-US") else { return };
    check_c(&manifest.c_header(&COptions::default()));
    let (Ok(module), Ok(resource)) = (manifest.rust_module("fuzz.etw"), manifest.c_resource()) else {
        return;
    };
    check_rust(&module, manifest.providers().len());
    check_c(&resource);
}

fuzz_target!(|data: &[u8]| {
    check_compiled(data);
    check_generated_code(data);
    let Ok(providers) = manifest::parse(data) else { return };
    let mut renderer = Renderer::default();
    for provider in &providers {
        for event in provider.events.iter().take(64) {
            renderer.render_payload(
                &PreparedSchema::new(event.schema.clone()),
                &data[..data.len().min(128)],
                8,
                false,
            );
        }
    }
    let mut record_renderer = RecordRenderer::default();
    let chunk_descriptor = EventDescriptor { id: 0xFFFE, task: 0xFFFE, opcode: 0xFE, ..Default::default() };
    // Format, version 1.0, magic number; one chunk, with the number 0; text.
    let chunk = [&[1, 1, 0, 0x5B, 1, 0, 0, 0], &data[..data.len().min(0xFF00 - 80)]].concat();
    let first = providers.first();
    let id = first.map_or(Guid::NULL, |provider| provider.id);
    let first_event = first.and_then(|provider| provider.events.first());
    let event_descriptor = first_event.map(|event| event.descriptor).unwrap_or_default();
    let short_payload = &data[..data.len().min(64)];
    for (descriptor, payload) in [(chunk_descriptor, &chunk[..]), (event_descriptor, short_payload)] {
        let mut bytes = Vec::new();
        EventHeader { provider: id, descriptor, ..Default::default() }
            .encode(payload, &mut bytes)
            .expect("the event fits into a record");
        record_renderer.render_record(&Record::parse(&bytes, 0).expect("an encoded record can be parsed"));
    }
});
