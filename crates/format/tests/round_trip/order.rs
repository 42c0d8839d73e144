//! The order of events: ties, overlaps, decreasing stamps, and random files compared with a sort.

use proptest::prelude::*;

use super::*;

#[test]
fn ties_go_by_processor_then_by_file_offset() {
    let event_at_50 = |n| encode_event(ANCHOR + 50, n, 8);
    let bytes = build_file(
        options(),
        &[
            (1, vec![event_at_50(4), event_at_50(5)]),
            (0, vec![event_at_50(1)]),
            (1, vec![event_at_50(6)]),
            (0, vec![event_at_50(2), event_at_50(3)]),
        ],
    );
    assert_eq!(event_ids(&read_data_events(&bytes)), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn overlapping_and_misplaced_buffers_are_read_in_time_order() {
    let four_events = |from: i64, n: usize| {
        (0..4).map(|i| encode_event(ANCHOR + from + 10 * i, n + i as usize, 8)).collect::<Vec<_>>()
    };
    // The second buffer overlaps the first, the third is older than both.
    let bytes = build_file(
        options(),
        &[(0, four_events(100, 0)), (0, four_events(105, 10)), (0, four_events(20, 20))],
    );
    assert_eq!(event_ids(&read_data_events(&bytes)), [20, 21, 22, 23, 0, 10, 1, 11, 2, 12, 3, 13]);
}

#[test]
fn buffer_with_decreasing_stamps_is_sorted_stably() {
    // Stamp and event id.
    let records = [(5, 0), (9, 1), (7, 2), (9, 3), (7, 4), (6, 5)]
        .map(|(t, n)| encode_event(ANCHOR + t, n, 8))
        .to_vec();
    let bytes = build_file(options(), &[(0, records), (1, vec![encode_event(ANCHOR + 8, 6, 8)])]);
    assert_eq!(event_ids(&read_data_events(&bytes)), [0, 5, 2, 4, 6, 1, 3]);
}

#[test]
fn records_without_a_stamp_follow_the_record_before_them() {
    let bytes = build_file(
        Options { buffer_size: 2048, ..options() },
        &[
            (
                0,
                vec![
                    encode_event(ANCHOR + 10, 1, 8),
                    encode_unstamped_message(2),
                    encode_event(ANCHOR + 30, 3, 8),
                ],
            ),
            (1, vec![encode_event(ANCHOR + 5, 4, 8)]),
            (0, vec![encode_unstamped_message(5), encode_unstamped_message(6)]),
            (0, vec![encode_unstamped_message(7), encode_event(ANCHOR + 40, 8, 8)]),
            (1, vec![encode_event(ANCHOR + 20, 9, 8), encode_event(ANCHOR + 35, 10, 8)]),
        ],
    );
    let events = read_data_events(&bytes);
    assert_eq!(event_ids(&events), [4, 1, 2, 9, 3, 5, 6, 7, 10, 8]);
    let times: Vec<_> = events.iter().map(|event| event.time - ANCHOR).collect();
    assert_eq!(times, [5, 10, 10, 20, 30, 30, 30, 30, 35, 40]);

    // The same rule applies in a buffer whose stamps decrease.
    let shuffled = vec![
        encode_unstamped_message(1),
        encode_event(ANCHOR + 9, 2, 8),
        encode_unstamped_message(3),
        encode_unstamped_message(4),
        encode_event(ANCHOR + 6, 5, 8),
        encode_unstamped_message(6),
    ];
    assert_eq!(event_ids(&read_data_events(&build_file(options(), &[(0, shuffled)]))), [1, 5, 6, 2, 3, 4]);
}

#[test]
fn peek_time_returns_the_stamp_of_the_next_event() {
    let bytes = build_file(
        options(),
        &[(0, vec![encode_event(ANCHOR + 1, 1, 8)]), (1, vec![encode_event(ANCHOR + 2, 2, 8)])],
    );
    let trace = Trace::open(&bytes).unwrap();
    let mut events = trace.events();
    for expected in [Some(ANCHOR), Some(ANCHOR + 1), Some(ANCHOR + 2), None] {
        assert_eq!(events.peek_time().unwrap(), expected);
        assert_eq!(events.peek_time().unwrap(), expected);
        assert_eq!(events.next().unwrap().map(|r| r.time()), expected);
    }
    assert_eq!(events.bytes_read(), bytes.len() as u64);
}

fn event_ids(events: &[ReadEvent]) -> Vec<u16> {
    events.iter().map(|event| Record::parse(&event.bytes, 0).unwrap().descriptor().id).collect()
}

/// The plan of a buffer: processor, first stamp, steps from stamp to stamp, payload size.
type BufferPlan = (u16, i64, Vec<i64>, usize);

fn buffer_plans(steps: std::ops::Range<i64>, max_buffers: usize) -> impl Strategy<Value = Vec<BufferPlan>> {
    let plan = (0_u16..5, 0_i64..60, proptest::collection::vec(steps, 0..9), 0_usize..40);
    proptest::collection::vec(plan, 0..max_buffers)
}

fn build_from_plans(plans: &[BufferPlan], compressed: bool) -> (Vec<u8>, Vec<Buffer>) {
    let mut number = 0;
    let buffers: Vec<_> = plans
        .iter()
        .map(|(cpu, first, steps, payload)| {
            let mut time = ANCHOR + first;
            let mut records = vec![encode_event(time, number, *payload)];
            for step in steps {
                // Never before the first stamp: the reader sorts buffers by their first stamp.
                time = (time + step).max(ANCHOR + first);
                number += 1;
                records.push(encode_event(time, number, *payload));
            }
            number += 1;
            (*cpu, records)
        })
        .collect();
    let options = Options { compressed, buffer_size: 2048, ..options() };
    (build_file(options, &buffers), buffers)
}

/// Sorts all events by time and processor with one stable sort.
fn sort_all_events(buffers: &[Buffer]) -> Vec<ReadEvent> {
    let mut events: Vec<ReadEvent> = buffers
        .iter()
        .flat_map(|(cpu, records)| {
            records.iter().map(|r| ReadEvent::from_record(&Record::parse(r, *cpu).unwrap()))
        })
        .collect();
    events.sort_by_key(|event| (event.time, event.cpu));
    events
}

/// Sorts the buffers by their first stamp, ties in file order. If records of one processor have
/// equal stamps, the reader returns them in the order of these buffers.
fn sort_by_first_stamp(mut buffers: Vec<Buffer>) -> Vec<Buffer> {
    buffers.sort_by_key(|(_, records)| Record::parse(&records[0], 0).unwrap().time());
    buffers
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn merge_equals_a_stable_sort(plans in buffer_plans(0..12, 30), compressed: bool) {
        let (bytes, buffers) = build_from_plans(&plans, compressed);
        prop_assert_eq!(read_data_events(&bytes), sort_all_events(&sort_by_first_stamp(buffers)));
    }

    #[test]
    fn merge_equals_a_stable_sort_if_stamps_decrease_within_buffers(plans in buffer_plans(-12..12, 20), compressed: bool) {
        let (bytes, buffers) = build_from_plans(&plans, compressed);
        prop_assert_eq!(read_data_events(&bytes), sort_all_events(&sort_by_first_stamp(buffers)));
    }

    #[test]
    fn each_processor_keeps_the_order_of_its_writes(
        steps in proptest::collection::vec((0_u16..6, 0_i64..4, 0_usize..300), 0..200),
        compressed: bool,
    ) {
        let mut clocks = BTreeMap::new();
        let mut written: BTreeMap<u16, Vec<ReadEvent>> = BTreeMap::new();
        let mut writer = Writer::create(Vec::new(), Options { compressed, ..options() }).unwrap();
        for (number, (cpu, step, payload)) in steps.into_iter().enumerate() {
            let clock = clocks.entry(cpu).or_insert(ANCHOR);
            *clock += step;
            let record = encode_event(*clock, number, payload);
            writer.write_record(cpu, &record).unwrap();
            written.entry(cpu).or_default().push(ReadEvent::from_record(&Record::parse(&record, cpu).unwrap()));
        }
        let bytes = writer.finish(Summary::default()).unwrap();
        prop_assert_eq!(check_file(&bytes), []);
        let events = read_data_events(&bytes);
        prop_assert!(events.is_sorted_by_key(|event| (event.time, event.cpu)));
        for (cpu, expected) in written {
            let events_of_cpu: Vec<_> = events.iter().filter(|event| event.cpu == cpu).cloned().collect();
            prop_assert_eq!(events_of_cpu, expected);
        }
    }

    #[test]
    fn arbitrary_stamps_lose_no_event(stamps in proptest::collection::vec((0_u16..3, any::<i64>()), 0..80)) {
        let buffers: Vec<_> = stamps
            .chunks(4)
            .map(|chunk| {
                let records = chunk.iter().enumerate().map(|(n, (_, stamp))| encode_event(*stamp, n, 8));
                (chunk[0].0, records.collect::<Vec<_>>())
            })
            .collect();
        let bytes = build_file(options(), &buffers);
        let mut events = read_data_events(&bytes);
        let mut written = sort_all_events(&buffers);
        events.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        written.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        prop_assert_eq!(events.len(), written.len());
        let is_same = |read: &ReadEvent, written: &ReadEvent| (&read.bytes, read.time) == (&written.bytes, written.time);
        prop_assert!(events.iter().zip(&written).all(|(read, written)| is_same(read, written)));
    }
}
