//! Kernel and classic events: by table, by class and type, by schemas that a merge embedded.

use super::*;
use traceweir_format::kernel::hook;

#[test]
fn kernel_events_get_schemas_from_the_tables() {
    let mut decoder = Decoder::new();
    let event_name = |decoder: &mut Decoder, record: &[u8]| {
        decoder.find(&Record::parse(record, 0).unwrap()).unwrap().prepared.event_name.clone()
    };
    for is_compact in [false, true] {
        assert_eq!(
            event_name(&mut decoder, &encode_system(hook::PROCESS_START, 4, is_compact)).as_deref(),
            Some("Process/Start")
        );
    }
    let mut sample = Vec::new();
    let header =
        PerfInfoHeader { pointer_size: 8, version: 2, hook: hook::SAMPLED_PROFILE, time: 0, counters: &[] };
    header.encode(&[0; 16], &mut sample).unwrap();
    assert!(event_name(&mut decoder, &sample).is_some());
    assert_eq!(
        event_name(&mut decoder, &encode_classic(class::PROCESS, 1, 4, &[])).as_deref(),
        Some("Process/Start")
    );
    let mut instance = Vec::new();
    let header = ClassicHeader {
        pointer_size: 8,
        opcode: 1,
        level: 0,
        version: 4,
        thread_id: 0,
        process_id: 0,
        time: 0,
        class: class::PROCESS,
        cpu_times: (0, 0),
        instance: Some(Instance { id: 1, parent_id: 0, parent_class: Guid::NULL }),
    };
    header.encode(&[], &mut instance).unwrap();
    assert_eq!(event_name(&mut decoder, &instance).as_deref(), Some("Process/Start"));
}

#[test]
fn kernel_versions_past_the_tables_use_the_newest_layout() {
    let mut decoder = Decoder::new();
    let newest = schema_field_names(&mut decoder, &encode_system(hook::PROCESS_START, 4, false)).unwrap();
    for version in 5..=255 {
        assert_eq!(
            schema_field_names(&mut decoder, &encode_system(hook::PROCESS_START, version, false)).unwrap(),
            newest
        );
    }
    assert_eq!(decoder.schemas.len(), 1, "versions of one layout must share a schema");
    assert_ne!(
        schema_field_names(&mut decoder, &encode_system(hook::PROCESS_START, 1, false)).unwrap(),
        newest
    );
    // No table has a layout for hook id 0x1020.
    let error = Err(Undecoded::NoKernelLayout { hook: 0x1020, version: 2 });
    assert_eq!(schema_field_names(&mut decoder, &encode_system(0x1020, 2, false)), error);
    assert_eq!(
        schema_field_names(&mut decoder, &encode_system(0x1020, 2, false)),
        error,
        "the cached result must be equal"
    );
}

#[test]
fn embedded_schemas_describe_classic_events_by_class_and_type() {
    let mut decoder = Decoder::new();
    let descriptor = |opcode, version| EventDescriptor { opcode, version, ..Default::default() };
    let record = encode_classic(CLASS, 10, 2, &[0; 4]);
    assert_no_schema(&mut decoder, &record);
    observe_record(&mut decoder, &encode_info(CLASS, descriptor(10, 2), "ten", Some("M")));
    observe_record(&mut decoder, &encode_info(CLASS, descriptor(11, 2), "eleven", None));
    assert_fields(&mut decoder, &record, &["ten"]);
    assert_fields(&mut decoder, &encode_classic(CLASS, 11, 2, &[]), &["eleven"]);
    assert_no_schema(&mut decoder, &encode_classic(CLASS, 12, 2, &[]));
    observe_record(&mut decoder, &encode_map("M", 1, "One"));
    assert_eq!(find_value_name(&mut decoder, &record, 1).as_deref(), Some("One"));
}

#[test]
fn a_manifest_event_may_name_the_guid_of_its_task() {
    let mut decoder = Decoder::new();
    // Decoding source 0 is a manifest. The GUID of its task must not describe classic events.
    observe_record(&mut decoder, &encode_info_from(0, CLASS, descriptor_of(5, 1), "f", None));
    assert_fields(&mut decoder, &encode_plain_event(5, 1, &[]), &["f"]);
    assert_no_schema(&mut decoder, &encode_classic(CLASS, 0, 1, &[]));
}

#[test]
fn no_embedded_schema_overrides_a_kernel_table() {
    let mut decoder = Decoder::new();
    let before = schema_field_names(&mut decoder, &encode_system(hook::PROCESS_START, 4, false)).unwrap();
    let descriptor = EventDescriptor { opcode: 1, version: 4, ..Default::default() };
    observe_record(&mut decoder, &encode_info(class::PROCESS, descriptor, "forged", None));
    assert_eq!(
        schema_field_names(&mut decoder, &encode_system(hook::PROCESS_START, 4, false)).unwrap(),
        before
    );
    let mut fresh = Decoder::new();
    observe_record(&mut fresh, &encode_info(class::PROCESS, descriptor, "forged", None));
    assert_eq!(
        schema_field_names(&mut fresh, &encode_system(hook::PROCESS_START, 4, false)).unwrap(),
        before
    );
}
