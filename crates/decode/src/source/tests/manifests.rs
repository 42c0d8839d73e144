//! Manifests that come in the trace, in chunks: order, repetition, bounds, and which version
//! applies.

use super::*;

#[test]
fn a_manifest_in_the_trace_arrives_in_chunks() {
    let mut decoder = Decoder::new();
    let record = event(1, 0, &[0; 4]);
    unknown(&mut decoder, &record);
    for chunk in chunks(&manifest(&[(1, 0, "a")]), 3) {
        unknown(&mut decoder, &record);
        observe(&mut decoder, &chunk);
    }
    has(&mut decoder, &record, &["a"]);
    assert_eq!(decoder.provider_name(&PROVIDER), Some("Test-Provider"));
    let chunk = chunks("<x/>", 1).remove(0);
    has(
        &mut decoder,
        &chunk,
        &["Format", "MajorVersion", "MinorVersion", "Magic", "TotalChunks", "ChunkNumber", "Manifest"],
    );
}

#[test]
fn provider_id_comes_from_the_event_not_the_manifest() {
    let mut decoder = Decoder::new();
    observe(&mut decoder, &chunk_of(OTHER, 1, 0, &manifest(&[(1, 0, "a")])));
    unknown(&mut decoder, &event(1, 0, &[]));
    let header = EventHeader { provider: OTHER, descriptor: id_of(1, 0), ..Default::default() };
    has(&mut decoder, &encoded(&header, &[]), &["a"]);
}

#[test]
fn chunks_out_of_order_wait_for_the_next_set() {
    let mut decoder = Decoder::new();
    let record = event(1, 0, &[]);
    let set = chunks(&manifest(&[(1, 0, "a")]), 3);
    for n in [1, 0, 2] {
        observe(&mut decoder, &set[n]);
    }
    unknown(&mut decoder, &record);
    for n in [1, 2] {
        observe(&mut decoder, &set[n]);
    }
    has(&mut decoder, &record, &["a"]);
}

#[test]
fn partial_chunks_are_dropped_when_a_new_set_begins() {
    let mut decoder = Decoder::new();
    let (old, new) = (chunks(&manifest(&[(1, 0, "old")]), 3), chunks(&manifest(&[(1, 0, "new")]), 3));
    for chunk in [&old[0], &old[1], &new[0], &new[1], &new[2], &old[2]] {
        observe(&mut decoder, chunk);
    }
    has(&mut decoder, &event(1, 0, &[]), &["new"]);
}

#[test]
fn two_processes_may_send_one_manifest_at_the_same_time() {
    let mut decoder = Decoder::new();
    let set = chunks(&manifest(&[(1, 0, "a")]), 2);
    for n in [0, 0, 1, 1] {
        observe(&mut decoder, &set[n]);
    }
    has(&mut decoder, &event(1, 0, &[]), &["a"]);
}

#[test]
fn last_complete_manifest_wins_and_repetitions_are_free() {
    let mut decoder = Decoder::new();
    let first = chunks(&manifest(&[(1, 0, "first"), (2, 0, "kept")]), 2);
    (0..50).for_each(|_| first.iter().for_each(|c| observe(&mut decoder, c)));
    assert_eq!(decoder.schemas.len(), 2);
    for chunk in chunks(&manifest(&[(1, 0, "second")]), 1) {
        observe(&mut decoder, &chunk);
    }
    has(&mut decoder, &event(1, 0, &[]), &["second"]);
    has(&mut decoder, &event(2, 0, &[]), &["kept"]);
}

#[test]
fn invalid_chunks_are_ignored() {
    let mut decoder = Decoder::new();
    let xml = manifest(&[(1, 0, "a")]);
    let sound = chunk_of(PROVIDER, 1, 0, &xml);
    for (at, value) in [(0x50, 2), (0x53, 0), (0x54, 0), (0x56, 9)] {
        let mut bad = sound.clone();
        bad[at] = value;
        observe(&mut decoder, &bad);
        unknown(&mut decoder, &event(1, 0, &[]));
    }
    observe(&mut decoder, &chunk_of(PROVIDER, 1, 0, "<instrumentationManifest><broken"));
    observe(&mut decoder, &encoded(&EventHeader { descriptor: CHUNK, ..Default::default() }, &[1, 1]));
    unknown(&mut decoder, &event(1, 0, &[]));
    observe(&mut decoder, &sound);
    has(&mut decoder, &event(1, 0, &[]), &["a"]);
}

#[test]
fn incomplete_manifests_are_bounded() {
    let mut decoder = Decoder::new();
    let body = "x".repeat(60_000);
    for sender in 0..1200_u32 {
        let provider = Guid { data1: sender, ..PROVIDER };
        observe(&mut decoder, &chunk_of(provider, 2, 0, &body));
    }
    assert!(decoder.in_trace.arriving() <= 64 << 20, "{}", decoder.in_trace.arriving());
    assert!(decoder.in_trace.arriving() > 60 << 20);
}

#[test]
fn other_versions_are_read_with_the_nearest_lower_layout() {
    let mut decoder = Decoder::new();
    decoder.add_manifest(manifest(&[(1, 2, "two"), (1, 5, "five"), (1, 9, "nine")]).as_bytes()).unwrap();
    for (version, field) in
        [(2, "two"), (3, "two"), (4, "two"), (5, "five"), (8, "five"), (9, "nine"), (255, "nine")]
    {
        has(&mut decoder, &event(1, version, &[]), &[field]);
    }
    has(&mut decoder, &event(1, 0, &[]), &["two"]);
    unknown(&mut decoder, &event(2, 2, &[]));
}
