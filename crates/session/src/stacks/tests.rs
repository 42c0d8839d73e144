//! Tests of records with stacks in a buffer.

use super::*;
use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::kernel::hook;
use traceweir_format::stack_key::{Definitions, StackKey};

const ACTIVITY: [u8; 16] = [5; 16];

/// Encodes an event with a stack of match id 7, between two other items.
fn encode_event(frames: &[u64]) -> Vec<u8> {
    let data: Vec<u8> = [7_u64].iter().chain(frames).flat_map(|word| word.to_le_bytes()).collect();
    let items = [
        Item { kind: ExtType::PROCESS_START_KEY, data: &[1; 8] },
        Item { kind: ExtType::STACK_TRACE64, data: &data },
        Item { kind: ExtType::RELATED_ACTIVITYID, data: &ACTIVITY },
    ];
    let mut out = Vec::new();
    EventHeader { time: 99, items: &items, ..EventHeader::default() }.encode(b"payload", &mut out).unwrap();
    out
}

/// A buffer of a stream, with the keys that it defines.
struct StackBuffer {
    stream: usize,
    bytes: Vec<u8>,
    filled: usize,
    buffer_keys: HashSet<u64>,
}

impl StackBuffer {
    fn new(size: usize) -> Self {
        Self { stream: 0, bytes: vec![0; size], filled: HEADER_SIZE, buffer_keys: HashSet::new() }
    }

    /// Stores a record. Returns how many records were added.
    fn put(&mut self, stacks: &mut StackCache, record: &[u8]) -> u32 {
        let (start, end) = (self.filled, self.filled + record.len());
        self.bytes[start..end].copy_from_slice(record);
        let (filled, added) =
            stacks.replace(&mut self.bytes, (start, end), 99, self.stream, &mut self.buffer_keys);
        self.filled = filled;
        added
    }

    /// Returns the frames and the key of each event, and checks the other parts of the event.
    /// Definitions are only used to find the frames.
    fn events(&self) -> Vec<(Option<Vec<u64>>, Option<u64>)> {
        let (mut definitions, mut records, mut at) = (Definitions::default(), Vec::new(), HEADER_SIZE);
        while at < self.filled {
            let record = Record::parse(&self.bytes[at..self.filled], 0).unwrap();
            at += record.bytes().len().next_multiple_of(8);
            if Definitions::is_informative(&record) {
                assert_eq!(record.time(), 99);
                definitions.observe(&record);
                continue;
            }
            assert!(!record.has_damaged_items());
            assert_eq!(record.payload(), b"payload");
            assert_eq!(record.items().data_of(ExtType::RELATED_ACTIVITYID), Some(&ACTIVITY[..]));
            let key = StackKey::from_record(&record).map(|reference| {
                assert_eq!(reference.match_id, 7);
                reference.key
            });
            records.push((definitions.frames(&record).map(Iterator::collect), key));
        }
        assert_eq!(at, self.filled);
        records
    }
}

fn new_cache(bytes: u32, is_lossy: bool) -> StackCache {
    let mut stacks =
        StackCache::new(StackCaching { is_enabled: true, bytes, buckets: 16 }, CachedStacks::All);
    stacks.forget_definitions(is_lossy);
    stacks
}

#[test]
fn stack_is_defined_once_and_each_event_refers_to_it() {
    let mut stacks = new_cache(1 << 20, false);
    let mut buffer = StackBuffer::new(4096);
    let (first, second) = ([1, 2, 3, 4, 5], [6, 7, 8, 9]);
    let added = [&first[..], &first, &second, &first, &[1, 2, 3]]
        .map(|frames| buffer.put(&mut stacks, &encode_event(frames)));
    assert_eq!(added, [1, 0, 1, 0, 0]);
    let events = buffer.events();
    let frames: Vec<_> = events.iter().map(|(frames, _)| frames.clone().unwrap()).collect();
    assert_eq!(frames, [&first[..], &first, &second, &first, &[1, 2, 3]]);
    let keys: Vec<_> = events.iter().map(|(_, key)| *key).collect();
    assert!(keys[0].is_some() && keys[0] == keys[1] && keys[1] == keys[3] && keys[2] != keys[0]);
    assert_eq!(keys[4], None, "a short stack has a key");
    let mut next = StackBuffer::new(4096);
    assert_eq!(next.put(&mut stacks, &encode_event(&first)), 0, "the file defines the key twice");
    stacks.forget_definitions(false);
    assert_eq!(next.put(&mut stacks, &encode_event(&first)), 1, "another file lacks the definition");
}

#[test]
fn each_stream_defines_the_keys_that_it_uses() {
    let mut stacks = new_cache(1 << 20, false);
    let mut later_stream = StackBuffer { stream: 1, ..StackBuffer::new(4096) };
    assert_eq!(later_stream.put(&mut stacks, &encode_event(&[1, 2, 3, 4])), 1);
    // The collector empties this stream after the other one, but the event in this stream may be
    // older.
    let mut earlier_stream = StackBuffer::new(4096);
    assert_eq!(earlier_stream.put(&mut stacks, &encode_event(&[1, 2, 3, 4])), 1);
    assert_eq!(earlier_stream.events()[0].0.as_deref(), Some(&[1, 2, 3, 4][..]));
    assert_eq!(earlier_stream.events()[0].1, later_stream.events()[0].1, "the keys differ");
}

#[test]
fn each_buffer_defines_its_keys_if_older_buffers_may_be_gone() {
    let mut stacks = new_cache(1 << 20, true);
    let mut keys = Vec::new();
    for _ in 0..2 {
        let mut buffer = StackBuffer::new(4096);
        let added = [0; 3].map(|_| buffer.put(&mut stacks, &encode_event(&[1, 2, 3, 4])));
        assert_eq!(added, [1, 0, 0]);
        let events = buffer.events();
        assert!(events.iter().all(|(frames, _)| frames.as_deref() == Some(&[1, 2, 3, 4])));
        keys.push(events[0].1);
    }
    assert_eq!(keys[0], keys[1], "the keys differ");
}

#[test]
fn event_stays_unchanged_if_definition_does_not_fit() {
    let stored = encode_event(&[1, 2, 3, 4]);
    for spare in 0..64 {
        let mut stacks = new_cache(1 << 20, false);
        let mut buffer = StackBuffer::new(HEADER_SIZE + stored.len() + spare);
        let added = buffer.put(&mut stacks, &stored);
        assert_eq!(buffer.events()[0].0.as_deref(), Some(&[1, 2, 3, 4][..]), "{spare} spare bytes");
        // The definition takes 56 bytes; the key takes 24 bytes less than the stack.
        assert_eq!(added, u32::from(spare >= 56 - 24), "{spare} spare bytes");
    }
}

#[test]
fn full_cache_forgets_stacks_and_assigns_new_keys() {
    let mut stacks = new_cache(64 << 10, false);
    let mut keys = HashSet::new();
    for round in 0..2 {
        for number in 0..1000_u64 {
            let mut buffer = StackBuffer::new(4096);
            assert_eq!(buffer.put(&mut stacks, &encode_event(&[number, 2, 3, 4])), 1, "{round} {number}");
            assert!(keys.insert(buffer.events()[0].1));
            assert!(stacks.bytes <= 64 << 10);
        }
    }
}

/// Encodes the stack walk of an event that thread 6 of process 5 wrote at time 77.
fn encode_walk(frames: &[u64]) -> Vec<u8> {
    let mut payload = 77_i64.to_le_bytes().to_vec();
    payload.extend([5, 0, 0, 0, 6, 0, 0, 0]);
    payload.extend(frames.iter().flat_map(|frame| frame.to_le_bytes()));
    let mut record = Vec::new();
    let header =
        PerfInfoHeader { pointer_size: 8, version: 2, hook: hook::STACK_WALK, time: 99, counters: &[] };
    header.encode(&payload, &mut record).unwrap();
    record
}

#[test]
fn kernel_and_user_stack_walks_become_key_events_of_their_kind() {
    let mut stacks = new_cache(1 << 20, false);
    let kernel = [0xFFFF_FFFF_8100_0000, 2, 3, 4];
    let program = [0x5555_0000, 2, 3, 4];
    let mut bytes = vec![0; 4096];
    let mut filled = HEADER_SIZE;
    for frames in [&kernel[..], &program, &kernel, &[0x5555_0000, 2]] {
        let record = encode_walk(frames);
        let end = filled + record.len();
        bytes[filled..end].copy_from_slice(&record);
        filled = stacks.replace(&mut bytes, (filled, end), 99, 0, &mut HashSet::new()).0;
    }
    let mut records = Vec::new();
    let mut at = HEADER_SIZE;
    while at < filled {
        let record = Record::parse(&bytes[at..filled], 0).unwrap();
        assert_eq!(record.time(), 99);
        let words = record.payload().chunks_exact(8).map(|word| u64_at(word, 0)).collect::<Vec<_>>();
        records.push((record.hook().unwrap(), words));
        at += record.bytes().len().next_multiple_of(8);
    }
    let hooks: Vec<u16> = records.iter().map(|record| record.0).collect();
    assert_eq!(
        hooks,
        [
            hook::STACK_KEY_CREATE,
            hook::STACK_KEY_KERNEL,
            hook::STACK_KEY_CREATE,
            hook::STACK_KEY_USER,
            hook::STACK_KEY_KERNEL,
            hook::STACK_WALK
        ]
    );
    let (event_time, thread) = (77, 6 << 32 | 5);
    let key = records[0].1[0];
    assert_eq!(records[0].1[1..], kernel);
    assert_eq!(records[1].1, [event_time, thread, key]);
    assert_eq!(records[4].1, [event_time, thread, key]);
    assert_ne!(records[2].1[0], key);
}

#[test]
fn records_without_a_valid_stack_stay_unchanged() {
    let mut stacks = new_cache(1 << 20, false);
    let mut plain = Vec::new();
    EventHeader { time: 99, ..EventHeader::default() }.encode(b"payload!", &mut plain).unwrap();
    let mut hostile = encode_event(&[1, 2, 3, 4]);
    // The size of the first item exceeds the record.
    hostile[event::SIZE] = 0xF8;
    for record in [plain, hostile, vec![0xFF; 64], vec![0; 64]] {
        let mut bytes = [vec![0; HEADER_SIZE], record.clone()].concat();
        let range = (HEADER_SIZE, bytes.len());
        assert_eq!(stacks.replace(&mut bytes, range, 99, 0, &mut HashSet::new()), (range.1, 0));
        assert_eq!(bytes[HEADER_SIZE..], record);
    }
}
