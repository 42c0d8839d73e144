//! Fuzzes the traits, the metadata and the payload of an event: directly, and as a record with and
//! without extended data items.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_decode::source::{PreparedSchema, tracelogging};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::tracelogging::{EventMetadata, Traits};
use traceweir_format::{Guid, Record};
use traceweir_fuzz::arguments::split_event_input;
use traceweir_fuzz::{RecordRenderer, Renderer};

fuzz_target!(|data: &[u8]| {
    let Some((traits, metadata, payload)) = split_event_input(data) else { return };
    if let Ok(parsed) = Traits::parse(traits) {
        assert!(parsed.size() <= traits.len() && parsed.iter().count() <= traits.len());
        let _ = (parsed.group(), parsed.decode_guid(), Traits::parse_strict(traits).is_ok());
    }
    if let Ok(parsed) = EventMetadata::parse(metadata) {
        assert!(parsed.size() <= metadata.len() && parsed.fields().count() <= metadata.len());
        assert!(parsed.tags < 1 << 28, "tags have 28 bits");
    }
    if let Ok(schema) = tracelogging::build_schema(Guid::NULL, Some(traits), metadata) {
        Renderer::default().render_payload(&PreparedSchema::new(schema), payload, 8, false);
    }
    let descriptor = EventDescriptor { channel: CHANNEL_TRACELOGGING, ..Default::default() };
    let mut renderer = RecordRenderer::default();
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: traits },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata },
    ];
    let with_items = EventHeader { items: &items, descriptor, ..Default::default() };
    let payload_with_metadata = [traits, metadata, payload].concat();
    let without_items = EventHeader { descriptor, pointer_size: 4, ..Default::default() };
    // The record with items comes twice: the second time, the decoder has its schema in a cache.
    for (header, payload) in
        [(&with_items, payload), (&with_items, payload), (&without_items, &payload_with_metadata)]
    {
        let mut bytes = Vec::new();
        if header.encode(payload, &mut bytes).is_ok() {
            renderer.render_record(&Record::parse(&bytes, 0).expect("an encoded record can be parsed"));
        }
    }
});
