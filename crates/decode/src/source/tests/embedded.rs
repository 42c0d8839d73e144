//! Schemas and maps that a merge put into the trace: precedence, damage and bounds. Also schemas
//! that are found by another GUID of the event.

use super::*;
use traceweir_format::kernel::hook;

#[test]
fn precedence_is_trace_manifest_then_embedded_schema_then_user_manifest() {
    let mut decoder = Decoder::new();
    let record = encode_plain_event(1, 0, &[]);
    assert_eq!(
        decoder.add_manifest(build_manifest_xml(&[(1, 0, "given"), (1, 7, "given7")]).as_bytes()),
        Ok(2)
    );
    assert_fields(&mut decoder, &record, &["given"]);
    observe_record(&mut decoder, &encode_info(Guid::NULL, descriptor_of(1, 0), "embedded", None));
    assert_fields(&mut decoder, &record, &["embedded"]);
    observe_record(&mut decoder, &encode_chunks(&build_manifest_xml(&[(1, 0, "in_trace")]), 1)[0]);
    assert_fields(&mut decoder, &record, &["in_trace"]);
    decoder.add_manifest(build_manifest_xml(&[(1, 0, "given again")]).as_bytes()).unwrap();
    observe_record(&mut decoder, &encode_info(Guid::NULL, descriptor_of(1, 0), "embedded again", None));
    assert_fields(&mut decoder, &record, &["in_trace"]);
    assert_fields(&mut decoder, &encode_plain_event(1, 7, &[]), &["given7"]);
}

#[test]
fn maps_may_come_before_or_after_the_schemas_that_name_them() {
    let (schema, map) =
        (encode_info(Guid::NULL, descriptor_of(3, 1), "f", Some("M")), encode_map("M", 7, "Seven "));
    let record = encode_plain_event(3, 1, &[7, 0, 0, 0]);
    for order in [[&schema, &map], [&map, &schema]] {
        let mut decoder = Decoder::new();
        for record in order {
            observe_record(&mut decoder, record);
        }
        assert_eq!(find_value_name(&mut decoder, &record, 7).as_deref(), Some("Seven"));
        assert_eq!(decoder.provider_name(&PROVIDER), Some("Embedded-Provider"));
        assert_eq!(decoder.schemas.len(), 1, "a map must not create a second schema");
    }
    let mut decoder = Decoder::new();
    observe_record(&mut decoder, &schema);
    assert_eq!(find_value_name(&mut decoder, &record, 7), None);
    observe_record(&mut decoder, &encode_map("Another", 7, "Wrong"));
    assert_eq!(find_value_name(&mut decoder, &record, 7), None);
    observe_record(&mut decoder, &map);
    observe_record(&mut decoder, &encode_map("M", 7, "Too late"));
    assert_eq!(find_value_name(&mut decoder, &record, 7).as_deref(), Some("Seven"));
}

#[test]
fn damaged_embedded_schemas_are_left_out() {
    let mut decoder = Decoder::new();
    let sound = encode_info(Guid::NULL, descriptor_of(3, 1), "f", None);
    let payload = &sound[0x30..];
    // The part before the texts has 0x88 bytes.
    for end in (0..0x88).step_by(5) {
        observe_record(
            &mut decoder,
            &encode_classic(class::EVENT_METADATA, in_trace::OPCODE_EVENT_INFO, 0, &payload[..end]),
        );
        observe_record(
            &mut decoder,
            &encode_classic(class::EVENT_METADATA, in_trace::OPCODE_EVENT_MAP, 0, &payload[..end]),
        );
    }
    observe_record(&mut decoder, &encode_classic(class::EVENT_METADATA, 99, 0, payload));
    assert_no_schema(&mut decoder, &encode_plain_event(3, 1, &[]));
}

#[test]
fn embedded_schemas_cannot_fill_the_memory() {
    let mut decoder = Decoder::new();
    decoder.in_trace.set_remaining_budget(1000);
    for id in 0..2000 {
        observe_record(&mut decoder, &encode_info(Guid::NULL, descriptor_of(id, 0), "f", Some("M")));
        observe_record(&mut decoder, &encode_map(&id.to_string(), 7, "Seven"));
    }
    assert!((10..1000).contains(&decoder.schemas.len()), "{}", decoder.schemas.len());
    // The budget is used up, so the manifest is not read, and the event keeps its schema.
    observe_record(&mut decoder, &encode_chunks(&build_manifest_xml(&[(1, 0, "late")]), 1)[0]);
    assert_fields(&mut decoder, &encode_plain_event(1, 0, &[]), &["f"]);
}

#[test]
fn each_use_of_a_shared_text_counts_against_the_limit() {
    let long: Arc<str> = "n".repeat(60_000).into();
    let field = Field { name: long, ..Field::value("", InType::UINT8, OutType::NULL) };
    let schema = Schema::default().seal(vec![field; 50], 50).unwrap();
    let size = PreparedSchema::derived_bytes(&schema);
    assert!(size >= 50 * 60_000, "{size}");
    let mut decoder = Decoder { derived_bytes: MAX_DERIVED_BYTES - size - 1, ..Decoder::default() };
    assert!(decoder.store_schema(schema.clone()).is_ok());
    assert!(decoder.store_schema(schema).is_err());
    assert!(
        schema_field_names(&mut decoder, &encode_system(hook::PROCESS_START, 4, false)).is_ok(),
        "kernel tables must not count against the limit"
    );
}

#[test]
fn schema_is_found_by_decode_guid_or_control_guid() {
    let mut decoder = Decoder::new();
    decoder.add_manifest(build_manifest_xml(&[(1, 0, "a")]).as_bytes()).unwrap();
    let mut traits = TraitsBuilder::new("Controlled");
    let traits = traits.decode_guid(&PROVIDER).finish().unwrap().to_vec();
    let guid = PROVIDER.to_bytes();
    for item in [
        Item { kind: ExtType::PROV_TRAITS, data: &traits },
        Item { kind: ExtType::CONTROL_GUID, data: &guid },
    ] {
        let items = [item];
        let header = EventHeader {
            provider: OTHER_PROVIDER,
            descriptor: descriptor_of(1, 0),
            items: &items,
            ..Default::default()
        };
        assert_fields(&mut decoder, &encode_event(&header, &[]), &["a"]);
    }
    let header =
        EventHeader { provider: OTHER_PROVIDER, descriptor: descriptor_of(1, 0), ..Default::default() };
    assert_no_schema(&mut decoder, &encode_event(&header, &[]));
}
