//! Fuzzes manifests in XML: loaded from a file, sent in chunks, compiled, and turned into code.
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
    // A manifest may be within its limits while its compiled form exceeds those of a reader.
    let Ok(read) = wevt::read_providers(&compiled.template, &messages) else { return };
    let event_count = |n: usize| definitions.get(n).map_or(0, |p| p.events.len());
    assert!(read.iter().enumerate().all(|(n, p)| p.events.len() == event_count(n)));
}

/// Checks that a manifest that compiles becomes code in which names and texts stay in their places.
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
    let descriptor = EventDescriptor { id: 0xFFFE, task: 0xFFFE, opcode: 0xFE, ..Default::default() };
    let chunk = [&[1, 1, 0, 0x5B, 1, 0, 0, 0], &data[..data.len().min(0xFF00 - 80)]].concat();
    let first = providers.first();
    let id = first.map_or(Guid::NULL, |p| p.id);
    let event = first.and_then(|p| p.events.first()).map(|e| e.descriptor).unwrap_or_default();
    for (descriptor, payload) in [(descriptor, &chunk[..]), (event, &data[..data.len().min(64)])] {
        let mut bytes = Vec::new();
        EventHeader { provider: id, descriptor, ..Default::default() }
            .encode(payload, &mut bytes)
            .expect("the event fits into a record");
        record_renderer.render_record(&Record::parse(&bytes, 0).expect("an encoded record can be parsed"));
    }
});
