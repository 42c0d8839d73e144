//! Events that carry their own metadata (TraceLogging): the schema cache, bad metadata, and
//! metadata in the payload.

use super::*;

#[test]
fn tracelogging_events_describe_themselves() {
    let mut traits = TraitsBuilder::new("Self.Provider");
    let mut metadata = MetadataBuilder::new("Request", 0);
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: traits.finish().unwrap() },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata.add_field("url", 1, 0, 0).finish().unwrap() },
    ];
    let record = encode_event_with_items(
        &items,
        EventDescriptor { channel: CHANNEL_TRACELOGGING, ..Default::default() },
        b"x\0\0\0",
    );
    let mut decoder = Decoder::new();
    let found = decoder.find(&Record::parse(&record, 0).unwrap()).unwrap();
    assert_eq!((found.prepared.schema.origin, found.payload), (SchemaOrigin::TraceLogging, &b"x\0\0\0"[..]));
    assert_eq!(found.prepared.event_name.as_deref(), Some("Request"));
    assert_eq!(found.prepared.schema.names.provider.as_deref(), Some("Self.Provider"));
    assert_eq!(found.prepared.json_key(0), b"\"url\":");
    let first: *const PreparedSchema = found.prepared;
    let again = decoder.find(&Record::parse(&record, 0).unwrap()).unwrap();
    assert!(std::ptr::eq(first, again.prepared), "the second lookup must use the cache");
}

#[test]
fn metadata_with_equal_hashes_stays_distinct() {
    // The cheap hash reads only the start and the end of metadata; these events differ in the
    // middle.
    let metadata = |middle: char| {
        let mut builder = MetadataBuilder::new("AnEventOfALongName", 0);
        builder.add_field(&format!("{middle}{middle}"), 8, 0, 0).add_field("AFieldOfALongName", 8, 0, 0);
        builder.finish().unwrap().to_vec()
    };
    let mut decoder = Decoder::new();
    for middle in ['a', 'b', 'a', 'b'] {
        let blob = metadata(middle);
        let items = [Item { kind: ExtType::EVENT_SCHEMA_TL, data: &blob }];
        let record = encode_event_with_items(&items, EventDescriptor::default(), &[]);
        assert_fields(&mut decoder, &record, &[&format!("{middle}{middle}"), "AFieldOfALongName"]);
    }
}

#[test]
fn schemas_differ_by_provider_and_traits() {
    let mut metadata = MetadataBuilder::new("e", 0);
    let metadata = metadata.finish().unwrap();
    let mut decoder = Decoder::new();
    for (provider, name) in [(PROVIDER, "A"), (PROVIDER, "B"), (OTHER_PROVIDER, "A"), (PROVIDER, "A")] {
        let mut traits = TraitsBuilder::new(name);
        let items = [
            Item { kind: ExtType::PROV_TRAITS, data: traits.finish().unwrap() },
            Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata },
        ];
        let record = encode_event(&EventHeader { provider, items: &items, ..Default::default() }, &[]);
        let found = decoder.find(&Record::parse(&record, 0).unwrap()).unwrap();
        assert_eq!(found.prepared.schema.names.provider.as_deref(), Some(name));
        assert_eq!(found.prepared.schema.provider, provider);
    }
}

#[test]
fn bad_metadata_is_reported() {
    // The metadata declares 200 bytes and has 3.
    let items = [Item { kind: ExtType::EVENT_SCHEMA_TL, data: &[200, 0, 0] }];
    let record = encode_event_with_items(&items, EventDescriptor::default(), &[]);
    assert!(matches!(schema_field_names(&mut Decoder::new(), &record), Err(Undecoded::BadMetadata(_))));
}

#[test]
fn metadata_in_the_payload_is_found_only_on_the_tracelogging_channel() {
    let mut traits = TraitsBuilder::new("Late.Provider");
    let mut metadata = MetadataBuilder::new("Late", 0);
    let metadata = metadata.add_field("n", 8, 0, 0).finish().unwrap();
    let payload = [traits.finish().unwrap(), metadata, &[5, 0, 0, 0]].concat();
    let record =
        |channel| encode_event_with_items(&[], EventDescriptor { channel, ..Default::default() }, &payload);
    let mut decoder = Decoder::new();
    let (on_channel, off_channel) = (record(CHANNEL_TRACELOGGING), record(0));
    let found = decoder.find(&Record::parse(&on_channel, 0).unwrap()).unwrap();
    assert_eq!((found.prepared.event_name.as_deref(), found.payload), (Some("Late"), &[5, 0, 0, 0][..]));
    assert_eq!(found.prepared.schema.names.provider.as_deref(), Some("Late.Provider"));
    assert_no_schema(&mut decoder, &off_channel);
    for payload_len in [0, 1, 2, 10, traits.finish().unwrap().len() + 3] {
        let record = encode_event_with_items(
            &[],
            EventDescriptor { channel: CHANNEL_TRACELOGGING, ..Default::default() },
            &payload[..payload_len],
        );
        assert_no_schema(&mut decoder, &record);
    }
}
