//! Fuzzes compiled manifests, alone and in PE and ELF files, message tables, and the schemas and
//! maps that merged traces contain.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_decode::schema::Schema;
use traceweir_decode::source::messages::MessageTable;
use traceweir_decode::source::{PreparedSchema, ProviderSchemas, binary, embedded, wevt};
use traceweir_fuzz::Renderer;

fn render_events(providers: &[ProviderSchemas], payload: &[u8]) {
    for event in providers.iter().flat_map(|provider| &provider.events).take(64) {
        render_schema(&event.schema, payload);
    }
}

fn render_schema(schema: &Schema, payload: &[u8]) {
    Renderer::default().render_payload(
        &PreparedSchema::new(schema.clone()),
        &payload[..payload.len().min(128)],
        8,
        false,
    );
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 5 {
        0 => {
            if let Ok(providers) = wevt::read_providers(bytes, &MessageTable::default()) {
                render_events(&providers, bytes);
            }
        }
        1 => {
            if let Ok(table) = MessageTable::parse(bytes) {
                assert!(table.len() <= bytes.len() / 4, "there are more entries than the bytes can hold");
            }
        }
        2 => {
            let _ = binary::detect_file_kind(bytes);
            if let Ok(providers) = binary::load(bytes) {
                render_events(&providers, bytes);
            }
        }
        3 => {
            if let Ok(event) = embedded::parse_event_info(bytes) {
                render_schema(&event.schema, bytes);
            }
        }
        _ => {
            if let Ok((_, map)) = embedded::parse_event_map(bytes) {
                assert!(map.entries().len() <= bytes.len() / 8);
            }
        }
    }
});
