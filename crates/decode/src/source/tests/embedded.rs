//! Schemas and maps that a merge put into the trace: precedence, damage and bounds.

use super::*;
use traceweir_format::kernel::hook;

#[test]
fn trace_manifest_precedes_embedded_schema_precedes_user_manifest() {
    let mut decoder = Decoder::new();
    let record = event(1, 0, &[]);
    assert_eq!(decoder.add_manifest(manifest(&[(1, 0, "given"), (1, 7, "given7")]).as_bytes()), Ok(2));
    has(&mut decoder, &record, &["given"]);
    observe(&mut decoder, &info(Guid::NULL, id_of(1, 0), "embedded", None));
    has(&mut decoder, &record, &["embedded"]);
    observe(&mut decoder, &chunks(&manifest(&[(1, 0, "in_trace")]), 1)[0]);
    has(&mut decoder, &record, &["in_trace"]);
    decoder.add_manifest(manifest(&[(1, 0, "given again")]).as_bytes()).unwrap();
    observe(&mut decoder, &info(Guid::NULL, id_of(1, 0), "embedded again", None));
    has(&mut decoder, &record, &["in_trace"]);
    has(&mut decoder, &event(1, 7, &[]), &["given7"]);
}

#[test]
fn maps_may_come_before_or_after_the_schemas_that_name_them() {
    let (described, its_map) = (info(Guid::NULL, id_of(3, 1), "f", Some("M")), map("M", 7, "Seven "));
    let record = event(3, 1, &[7, 0, 0, 0]);
    for order in [[&described, &its_map], [&its_map, &described]] {
        let mut decoder = Decoder::new();
        for learned in order {
            observe(&mut decoder, learned);
        }
        assert_eq!(named(&mut decoder, &record, 7).as_deref(), Some("Seven"));
        assert_eq!(decoder.provider_name(&PROVIDER), Some("Embedded-Provider"));
        assert_eq!(decoder.schemas.len(), 1, "a map makes no second schema");
    }
    let mut decoder = Decoder::new();
    observe(&mut decoder, &described);
    assert_eq!(named(&mut decoder, &record, 7), None);
    observe(&mut decoder, &map("Another", 7, "Wrong"));
    assert_eq!(named(&mut decoder, &record, 7), None);
    observe(&mut decoder, &its_map);
    observe(&mut decoder, &map("M", 7, "Too late"));
    assert_eq!(named(&mut decoder, &record, 7).as_deref(), Some("Seven"));
}

#[test]
fn damaged_embedded_schemas_are_left_out() {
    let mut decoder = Decoder::new();
    let sound = info(Guid::NULL, id_of(3, 1), "f", None);
    let payload = &sound[0x30..];
    for end in (0..0x88).step_by(5) {
        observe(&mut decoder, &classic(class::EVENT_METADATA, 32, 0, &payload[..end]));
        observe(&mut decoder, &classic(class::EVENT_METADATA, 33, 0, &payload[..end]));
    }
    observe(&mut decoder, &classic(class::EVENT_METADATA, 99, 0, payload));
    unknown(&mut decoder, &event(3, 1, &[]));
}

#[test]
fn embedded_schemas_cannot_fill_the_memory() {
    let mut decoder = Decoder::new();
    decoder.in_trace.leave(1000);
    for id in 0..2000 {
        observe(&mut decoder, &info(Guid::NULL, id_of(id, 0), "f", Some("M")));
        observe(&mut decoder, &map(&id.to_string(), 7, "Seven"));
    }
    assert!((10..1000).contains(&decoder.schemas.len()), "{}", decoder.schemas.len());
    observe(&mut decoder, &chunks(&manifest(&[(1, 0, "late")]), 1)[0]);
    has(&mut decoder, &event(1, 0, &[]), &["f"]);
}

#[test]
fn each_use_of_a_shared_text_counts_against_the_limit() {
    let long: Arc<str> = "n".repeat(60_000).into();
    let field = Field { name: long, ..Field::value("", InType::UINT8, OutType::NULL) };
    let schema = Schema::default().seal(vec![field; 50], 50).unwrap();
    let size = PreparedSchema::derived_bytes(&schema);
    assert!(size >= 50 * 60_000, "{size}");
    let mut decoder = Decoder { derived_bytes: MAX_DERIVED_BYTES - size - 1, ..Decoder::default() };
    assert!(decoder.keep(schema.clone()).is_ok());
    assert!(decoder.keep(schema).is_err());
    assert!(
        fields(&mut decoder, &system(hook::PROCESS_START, 4, false)).is_ok(),
        "kernel tables need no room"
    );
}

#[test]
fn schema_is_found_by_decode_guid_or_control_guid() {
    let mut decoder = Decoder::new();
    decoder.add_manifest(manifest(&[(1, 0, "a")]).as_bytes()).unwrap();
    let mut traits = TraitsBuilder::new("Controlled");
    let traits = traits.decode_guid(&PROVIDER).finish().unwrap().to_vec();
    let guid = PROVIDER.to_bytes();
    for item in [
        Item { kind: ExtType::PROV_TRAITS, data: &traits },
        Item { kind: ExtType::CONTROL_GUID, data: &guid },
    ] {
        let items = [item];
        let header =
            EventHeader { provider: OTHER, descriptor: id_of(1, 0), items: &items, ..Default::default() };
        has(&mut decoder, &encoded(&header, &[]), &["a"]);
    }
    let header = EventHeader { provider: OTHER, descriptor: id_of(1, 0), ..Default::default() };
    unknown(&mut decoder, &encoded(&header, &[]));
}
