//! Manifests that come in the trace, in chunks: order, repetition, bounds, and which version
//! applies.

use super::*;

#[test]
fn a_manifest_in_the_trace_arrives_in_chunks() {
    let mut decoder = Decoder::new();
    let record = encode_plain_event(1, 0, &[0; 4]);
    assert_no_schema(&mut decoder, &record);
    for chunk in encode_chunks(&build_manifest_xml(&[(1, 0, "a")]), 3) {
        assert_no_schema(&mut decoder, &record);
        observe_record(&mut decoder, &chunk);
    }
    assert_fields(&mut decoder, &record, &["a"]);
    assert_eq!(decoder.provider_name(&PROVIDER), Some("Test-Provider"));
    let chunk = encode_chunks("<x/>", 1).remove(0);
    assert_fields(
        &mut decoder,
        &chunk,
        &["Format", "MajorVersion", "MinorVersion", "Magic", "TotalChunks", "ChunkNumber", "Manifest"],
    );
}

#[test]
fn provider_id_comes_from_the_event_not_the_manifest() {
    let mut decoder = Decoder::new();
    observe_record(&mut decoder, &encode_chunk(OTHER_PROVIDER, 1, 0, &build_manifest_xml(&[(1, 0, "a")])));
    assert_no_schema(&mut decoder, &encode_plain_event(1, 0, &[]));
    let header =
        EventHeader { provider: OTHER_PROVIDER, descriptor: descriptor_of(1, 0), ..Default::default() };
    assert_fields(&mut decoder, &encode_event(&header, &[]), &["a"]);
}

#[test]
fn chunks_out_of_order_are_dropped() {
    let mut decoder = Decoder::new();
    let record = encode_plain_event(1, 0, &[]);
    let set = encode_chunks(&build_manifest_xml(&[(1, 0, "a")]), 3);
    // Chunk 1 comes before chunk 0, and chunk 2 does not follow chunk 0: only chunk 0 is kept.
    for n in [1, 0, 2] {
        observe_record(&mut decoder, &set[n]);
    }
    assert_no_schema(&mut decoder, &record);
    for n in [1, 2] {
        observe_record(&mut decoder, &set[n]);
    }
    assert_fields(&mut decoder, &record, &["a"]);
}

#[test]
fn partial_chunks_are_dropped_when_a_new_set_begins() {
    let mut decoder = Decoder::new();
    let (old, new) = (
        encode_chunks(&build_manifest_xml(&[(1, 0, "old")]), 3),
        encode_chunks(&build_manifest_xml(&[(1, 0, "new")]), 3),
    );
    for chunk in [&old[0], &old[1], &new[0], &new[1], &new[2], &old[2]] {
        observe_record(&mut decoder, chunk);
    }
    assert_fields(&mut decoder, &encode_plain_event(1, 0, &[]), &["new"]);
}

#[test]
fn two_processes_may_send_one_manifest_at_the_same_time() {
    let mut decoder = Decoder::new();
    let set = encode_chunks(&build_manifest_xml(&[(1, 0, "a")]), 2);
    for n in [0, 0, 1, 1] {
        observe_record(&mut decoder, &set[n]);
    }
    assert_fields(&mut decoder, &encode_plain_event(1, 0, &[]), &["a"]);
}

#[test]
fn last_complete_manifest_wins_and_repetitions_are_free() {
    let mut decoder = Decoder::new();
    let first = encode_chunks(&build_manifest_xml(&[(1, 0, "first"), (2, 0, "kept")]), 2);
    (0..50).for_each(|_| first.iter().for_each(|c| observe_record(&mut decoder, c)));
    assert_eq!(decoder.schemas.len(), 2);
    for chunk in encode_chunks(&build_manifest_xml(&[(1, 0, "second")]), 1) {
        observe_record(&mut decoder, &chunk);
    }
    assert_fields(&mut decoder, &encode_plain_event(1, 0, &[]), &["second"]);
    assert_fields(&mut decoder, &encode_plain_event(2, 0, &[]), &["kept"]);
}

#[test]
fn time_of_event_selects_among_manifests() {
    let mut decoder = Decoder::new();
    // The traces that are read together are surveyed one after the other.
    for (time, field) in [(20, "second"), (40, "wrong"), (40, "last"), (10, "first")] {
        let chunk = encode_chunks(&build_manifest_xml(&[(1, 0, field)]), 1).remove(0);
        assert!(decoder.observe_at(&Record::parse(&chunk, 0).unwrap(), FileTime(time)));
    }
    let record = encode_plain_event(1, 0, &[]);
    let mut fork = decoder.fork(NonZero::<usize>::MIN);
    for _ in 0..2 {
        for (time, field) in
            [(0, "first"), (10, "first"), (19, "first"), (20, "second"), (39, "second"), (40, "last")]
        {
            for decoder in [&mut decoder, &mut fork] {
                let located = decoder.locate_at(&Record::parse(&record, 0).unwrap(), FileTime(time)).unwrap();
                assert_eq!(&*decoder.get(&located).prepared.schema.top()[0].name, field, "{time}");
            }
        }
    }
    assert_fields(&mut decoder, &record, &["last"]);
}

#[test]
fn invalid_chunks_are_ignored() {
    let mut decoder = Decoder::new();
    let xml = build_manifest_xml(&[(1, 0, "a")]);
    let sound = encode_chunk(PROVIDER, 1, 0, &xml);
    // Record offset and bad value of the format, the magic byte, the number of chunks and the
    // chunk's number.
    for (at, value) in [(0x50, 2), (0x53, 0), (0x54, 0), (0x56, 9)] {
        let mut bad = sound.clone();
        bad[at] = value;
        observe_record(&mut decoder, &bad);
        assert_no_schema(&mut decoder, &encode_plain_event(1, 0, &[]));
    }
    observe_record(&mut decoder, &encode_chunk(PROVIDER, 1, 0, "<instrumentationManifest><broken"));
    observe_record(
        &mut decoder,
        &encode_event(&EventHeader { descriptor: CHUNK_DESCRIPTOR, ..Default::default() }, &[1, 1]),
    );
    assert_no_schema(&mut decoder, &encode_plain_event(1, 0, &[]));
    observe_record(&mut decoder, &sound);
    assert_fields(&mut decoder, &encode_plain_event(1, 0, &[]), &["a"]);
}

#[test]
fn incomplete_manifests_are_bounded() {
    let mut decoder = Decoder::new();
    let body = "x".repeat(60_000);
    // The first of two chunks, from more providers than fit into the limit of 64 MiB.
    for sender in 0..1200_u32 {
        let provider = Guid { data1: sender, ..PROVIDER };
        observe_record(&mut decoder, &encode_chunk(provider, 2, 0, &body));
    }
    assert!(decoder.in_trace.incomplete_bytes() <= 64 << 20, "{}", decoder.in_trace.incomplete_bytes());
    assert!(decoder.in_trace.incomplete_bytes() > 60 << 20);
}

#[test]
fn missing_version_uses_the_next_lower_layout_or_else_the_next_higher() {
    let mut decoder = Decoder::new();
    decoder
        .add_manifest(build_manifest_xml(&[(1, 2, "two"), (1, 5, "five"), (1, 9, "nine")]).as_bytes())
        .unwrap();
    for (version, field) in
        [(2, "two"), (3, "two"), (4, "two"), (5, "five"), (8, "five"), (9, "nine"), (255, "nine")]
    {
        assert_fields(&mut decoder, &encode_plain_event(1, version, &[]), &[field]);
    }
    assert_fields(&mut decoder, &encode_plain_event(1, 0, &[]), &["two"]);
    assert_no_schema(&mut decoder, &encode_plain_event(2, 2, &[]));
}
