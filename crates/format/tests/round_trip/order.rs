//! Order: ties, overlaps, stamps that decrease, and random files against a naive sort.

use proptest::prelude::*;

use super::*;

#[test]
fn ties_go_by_processor_then_by_file_offset() {
    let at = |n| event(ANCHOR + 50, n, 8);
    let bytes = file(
        options(),
        &[(1, vec![at(4), at(5)]), (0, vec![at(1)]), (1, vec![at(6)]), (0, vec![at(2), at(3)])],
    );
    assert_eq!(ids(&data(&bytes)), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn overlapping_and_misplaced_buffers_still_come_in_time_order() {
    let run = |from: i64, n: usize| {
        (0..4).map(|i| event(ANCHOR + from + 10 * i, n + i as usize, 8)).collect::<Vec<_>>()
    };
    // The second buffer overlaps the first, the third is older than both.
    let bytes = file(options(), &[(0, run(100, 0)), (0, run(105, 10)), (0, run(20, 20))]);
    assert_eq!(ids(&data(&bytes)), [20, 21, 22, 23, 0, 10, 1, 11, 2, 12, 3, 13]);
}

#[test]
fn a_buffer_whose_stamps_decrease_is_sorted_stably() {
    let records =
        [(5, 0), (9, 1), (7, 2), (9, 3), (7, 4), (6, 5)].map(|(t, n)| event(ANCHOR + t, n, 8)).to_vec();
    let bytes = file(options(), &[(0, records), (1, vec![event(ANCHOR + 8, 6, 8)])]);
    assert_eq!(ids(&data(&bytes)), [0, 5, 2, 4, 6, 1, 3]);
}

#[test]
fn records_without_a_stamp_follow_the_record_before_them() {
    let bytes = file(
        Options { buffer_size: 2048, ..options() },
        &[
            (0, vec![event(ANCHOR + 10, 1, 8), unstamped(2), event(ANCHOR + 30, 3, 8)]),
            (1, vec![event(ANCHOR + 5, 4, 8)]),
            (0, vec![unstamped(5), unstamped(6)]),
            (0, vec![unstamped(7), event(ANCHOR + 40, 8, 8)]),
            (1, vec![event(ANCHOR + 20, 9, 8), event(ANCHOR + 35, 10, 8)]),
        ],
    );
    let seen = data(&bytes);
    assert_eq!(ids(&seen), [4, 1, 2, 9, 3, 5, 6, 7, 10, 8]);
    let times: Vec<_> = seen.iter().map(|s| s.time - ANCHOR).collect();
    assert_eq!(times, [5, 10, 10, 20, 30, 30, 30, 30, 35, 40]);

    // The same in a sorted buffer.
    let shuffled = vec![
        unstamped(1),
        event(ANCHOR + 9, 2, 8),
        unstamped(3),
        unstamped(4),
        event(ANCHOR + 6, 5, 8),
        unstamped(6),
    ];
    assert_eq!(ids(&data(&file(options(), &[(0, shuffled)]))), [1, 5, 6, 2, 3, 4]);
}

#[test]
fn peek_time_returns_the_stamp_of_the_next_event() {
    let bytes = file(options(), &[(0, vec![event(ANCHOR + 1, 1, 8)]), (1, vec![event(ANCHOR + 2, 2, 8)])]);
    let trace = Trace::open(&bytes).unwrap();
    let mut events = trace.events();
    for want in [Some(ANCHOR), Some(ANCHOR + 1), Some(ANCHOR + 2), None] {
        assert_eq!(events.peek_time().unwrap(), want);
        assert_eq!(events.peek_time().unwrap(), want);
        assert_eq!(events.next().unwrap().map(|r| r.time()), want);
    }
    assert_eq!(events.bytes_read(), bytes.len() as u64);
}

fn ids(seen: &[Seen]) -> Vec<u16> {
    seen.iter().map(|s| Record::parse(&s.bytes, 0).unwrap().descriptor().id).collect()
}

/// The plan of a buffer: processor, first stamp, steps from stamp to stamp, payload size.
type Plan = (u16, i64, Vec<i64>, usize);

fn plans(steps: std::ops::Range<i64>, most: usize) -> impl Strategy<Value = Vec<Plan>> {
    let plan = (0_u16..5, 0_i64..60, proptest::collection::vec(steps, 0..9), 0_usize..40);
    proptest::collection::vec(plan, 0..most)
}

fn build(plans: &[Plan], compressed: bool) -> (Vec<u8>, Vec<Buffer>) {
    let mut number = 0;
    let buffers: Vec<_> = plans
        .iter()
        .map(|(cpu, first, steps, payload)| {
            let mut time = ANCHOR + first;
            let mut records = vec![event(time, number, *payload)];
            for step in steps {
                // Never before the first stamp: a reader cannot know that without reading
                // everything.
                time = (time + step).max(ANCHOR + first);
                number += 1;
                records.push(event(time, number, *payload));
            }
            number += 1;
            (*cpu, records)
        })
        .collect();
    let options = Options { compressed, buffer_size: 2048, ..options() };
    (file(options, &buffers), buffers)
}

/// Sorts everything in memory by one stable sort, which the merge must equal.
fn naive(buffers: &[Buffer]) -> Vec<Seen> {
    let mut all: Vec<Seen> = buffers
        .iter()
        .flat_map(|(cpu, records)| {
            records.iter().map(|r| Seen::from_record(&Record::parse(r, *cpu).unwrap()))
        })
        .collect();
    all.sort_by_key(|s| (s.time, s.cpu));
    all
}

/// Returns the buffers in reading order of ties within a processor: by first stamp, then file
/// order.
fn by_first_stamp(mut buffers: Vec<Buffer>) -> Vec<Buffer> {
    buffers.sort_by_key(|(_, records)| Record::parse(&records[0], 0).unwrap().time());
    buffers
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn the_merge_equals_a_naive_sort(plans in plans(0..12, 30), compressed: bool) {
        let (bytes, buffers) = build(&plans, compressed);
        prop_assert_eq!(data(&bytes), naive(&by_first_stamp(buffers)));
    }

    #[test]
    fn so_it_does_when_stamps_decrease_within_buffers(plans in plans(-12..12, 20), compressed: bool) {
        let (bytes, buffers) = build(&plans, compressed);
        prop_assert_eq!(data(&bytes), naive(&by_first_stamp(buffers)));
    }

    #[test]
    fn each_processor_keeps_file_order_when_the_file_does(
        steps in proptest::collection::vec((0_u16..6, 0_i64..4, 0_usize..300), 0..200),
        compressed: bool,
    ) {
        let mut clocks = BTreeMap::new();
        let mut written: BTreeMap<u16, Vec<Seen>> = BTreeMap::new();
        let mut writer = Writer::create(Vec::new(), Options { compressed, ..options() }).unwrap();
        for (number, (cpu, step, payload)) in steps.into_iter().enumerate() {
            let clock = clocks.entry(cpu).or_insert(ANCHOR);
            *clock += step;
            let record = event(*clock, number, payload);
            writer.write_record(cpu, &record).unwrap();
            written.entry(cpu).or_default().push(Seen::from_record(&Record::parse(&record, cpu).unwrap()));
        }
        let bytes = writer.finish(Summary::default()).unwrap();
        prop_assert_eq!(findings(&bytes), []);
        let seen = data(&bytes);
        prop_assert!(seen.is_sorted_by_key(|s| (s.time, s.cpu)));
        for (cpu, expected) in written {
            let of_cpu: Vec<_> = seen.iter().filter(|s| s.cpu == cpu).cloned().collect();
            prop_assert_eq!(of_cpu, expected);
        }
    }

    #[test]
    fn nothing_is_lost_whatever_the_stamps(stamps in proptest::collection::vec((0_u16..3, any::<i64>()), 0..80)) {
        let buffers: Vec<_> = stamps
            .chunks(4)
            .map(|c| (c[0].0, c.iter().enumerate().map(|(n, s)| event(s.1, n, 8)).collect::<Vec<_>>()))
            .collect();
        let bytes = file(options(), &buffers);
        let mut seen = data(&bytes);
        let mut written = naive(&buffers);
        seen.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        written.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        prop_assert_eq!(seen.len(), written.len());
        prop_assert!(seen.iter().zip(&written).all(|(s, w)| s.bytes == w.bytes && s.time == w.time));
    }
}
