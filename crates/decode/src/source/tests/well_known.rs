//! Built-in schemas of well-known providers: they apply only if nothing else describes an event.

use super::*;

/// Microsoft-Windows-DotNETRuntime.
const RUNTIME: Guid = Guid::from_u128(0xe13c0d23_ccbc_4e12_931b_d9cc2eee27e4);

/// The fields of GCEnd_V1.
const GC_END: &[&str] = &["Count", "Depth", "ClrInstanceID"];

fn runtime_event(id: u16, version: u8) -> Vec<u8> {
    let descriptor = descriptor_of(id, version);
    encode_event(&EventHeader { provider: RUNTIME, descriptor, ..Default::default() }, &[])
}

fn runtime_manifest(events: &[(u16, u8, &str)]) -> String {
    build_manifest_xml(events).replace(&PROVIDER.to_string(), &RUNTIME.to_string())
}

#[test]
fn well_known_event_needs_no_manifest() {
    let mut decoder = Decoder::new();
    assert_eq!(decoder.provider_name(&RUNTIME), Some("Microsoft-Windows-DotNETRuntime"));
    let record = runtime_event(2, 1);
    let found = decoder.find(&Record::parse(&record, 0).unwrap()).unwrap();
    assert_eq!(found.prepared.event_name.as_deref(), Some("GC/Stop"));
    assert_eq!(
        found.prepared.title.as_ref().map(|title| title.as_bytes()),
        Some(&b"Microsoft-Windows-DotNETRuntime/GC/Stop"[..])
    );
    assert_fields(&mut decoder, &record, GC_END);
    // An unknown version uses the newest layout below it. Event 60,000 does not exist.
    assert_fields(&mut decoder, &runtime_event(2, 200), GC_END);
    assert_no_schema(&mut decoder, &runtime_event(60_000, 0));
    assert_no_schema(&mut Decoder::without_well_known(), &record);
}

#[test]
fn manifest_in_the_trace_wins_over_the_built_in_schema() {
    let mut decoder = Decoder::new();
    let record = runtime_event(2, 1);
    assert_fields(&mut decoder, &record, GC_END);
    observe_record(&mut decoder, &encode_chunk(RUNTIME, 1, 0, &runtime_manifest(&[(2, 0, "own")])));
    assert_fields(&mut decoder, &record, &["own"]);
    // The manifest does not describe this event.
    assert_fields(&mut decoder, &runtime_event(3, 1), &["ClrInstanceID"]);
}

#[test]
fn loaded_manifest_wins_over_the_built_in_schema() {
    let record = runtime_event(2, 1);
    for precedence in [Precedence::Loaded, Precedence::Installed, Precedence::Binary] {
        let mut decoder = Decoder::new();
        let providers = read_manifest(runtime_manifest(&[(2, 7, "given")]).as_bytes()).unwrap();
        decoder.add_providers(providers, precedence).unwrap();
        assert_fields(&mut decoder, &record, &["given"]);
    }
}

#[test]
fn tracelogging_metadata_wins_over_the_built_in_schema() {
    let mut decoder = Decoder::new();
    let mut metadata = MetadataBuilder::new("Own", 0);
    let metadata = metadata.add_field("x", 4, 0, 0).finish().unwrap();
    let items = [Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata }];
    let descriptor = descriptor_of(2, 1);
    let header = EventHeader { provider: RUNTIME, descriptor, items: &items, ..Default::default() };
    assert_fields(&mut decoder, &encode_event(&header, &[0]), &["x"]);
}
