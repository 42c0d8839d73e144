use super::*;

use proptest::prelude::*;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook::{self, STACK_WALK};
use traceweir_format::stack_key::put_definition;
use traceweir_format::wire::Put;

/// The first kernel address.
const KERNEL: u64 = 0xFFFF_8000_0000_0000;

fn encode_perfinfo(hook: u16, time: i64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    PerfInfoHeader { pointer_size: 8, version: 2, hook, time, counters: &[] }
        .encode(payload, &mut out)
        .unwrap();
    out
}

/// Encodes a stack-walk event. The tuple is the time, process and thread of the event that the
/// stack belongs to; `words` are the frames of the stack, or its key.
fn encode_walk(
    hook: u16,
    time: i64,
    (event_time, process, thread): (i64, u32, u32),
    words: &[u64],
) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_i64(event_time).put_u32(process).put_u32(thread);
    words.iter().for_each(|word| {
        payload.put_u64(*word);
    });
    encode_perfinfo(hook, time, &payload)
}

fn encode_stack(time: i64, event: (i64, u32, u32), frames: &[u64]) -> Vec<u8> {
    encode_walk(STACK_WALK, time, event, frames)
}

fn encode_sample(time: i64, thread: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    // Instruction pointer, thread id, count.
    payload.put_u64(1).put_u32(thread).put_u32(1);
    encode_perfinfo(hook::SAMPLED_PROFILE, time, &payload)
}

/// A joiner with the stack definitions of its trace. The clock counts units of 100 ns.
#[derive(Default)]
struct JoinerTest {
    joiner: Joiner<&'static str>,
    definitions: Definitions,
}

impl JoinerTest {
    fn expect(&mut self, bytes: &[u8], cpu: u16, label: &'static str) {
        let record = Record::parse(bytes, cpu).unwrap();
        self.joiner.expect(StackClaim::from_record(&record, 0, record.time()), label, 0, std::iter::empty());
    }

    fn attach(&mut self, bytes: &[u8], cpu: u16) -> Option<&'static str> {
        let record = Record::parse(bytes, cpu).unwrap();
        let walk = StackWalk::parse(&record).unwrap();
        let mut event = None;
        let is_attached = self.joiner.attach(&walk, (0, cpu, record.time()), &self.definitions, |label| {
            event = Some(*label);
            0
        });
        assert_eq!(is_attached, event.is_some());
        event
    }

    fn release_all(&mut self) -> Vec<(&'static str, Vec<u64>)> {
        self.joiner.end();
        let released = std::iter::from_fn(|| self.joiner.next_ready());
        released.map(|joined| (joined.event, joined.stack.frames().collect())).collect()
    }
}

#[test]
fn kernel_and_user_part_become_one_stack_whatever_their_order_and_processor() {
    let mut test = JoinerTest::default();
    test.expect(&encode_sample(10, 7), 0, "a");
    test.expect(&encode_sample(10, 8), 1, "b");
    assert_eq!(test.attach(&encode_stack(12, (10, 4, 7), &[1, 2]), 3), Some("a"));
    assert_eq!(test.attach(&encode_stack(11, (10, 4, 7), &[KERNEL]), 0), Some("a"));
    assert_eq!(test.attach(&encode_stack(13, (10, 4, 8), &[3]), 1), Some("b"));
    assert_eq!(test.attach(&encode_stack(13, (10, 4, 8), &[3]), 1), None, "a part must not match twice");
    assert_eq!(test.attach(&encode_stack(13, (11, 4, 8), &[3]), 1), None, "another time must not match");
    assert_eq!(test.release_all(), [("a", vec![KERNEL, 1, 2]), ("b", vec![3])]);
}

#[test]
fn one_stack_walk_may_hold_both_parts() {
    let mut test = JoinerTest::default();
    test.expect(&encode_sample(10, 7), 0, "a");
    assert_eq!(test.attach(&encode_stack(11, (10, 4, 7), &[KERNEL, KERNEL + 1, 2, 3]), 0), Some("a"));
    assert_eq!(
        test.attach(&encode_stack(12, (10, 4, 7), &[9]), 0),
        None,
        "a second user part must not match"
    );
    test.joiner.end();
    let stack = test.joiner.next_ready().unwrap().stack;
    assert_eq!((stack.kernel, stack.user, stack.owner), (vec![KERNEL, KERNEL + 1], vec![2, 3], Some((4, 7))));
}

#[test]
fn stack_key_resolves_to_its_stack() {
    let mut test = JoinerTest::default();
    let mut definition = Vec::new();
    put_definition(5, &[1_u64, 2].map(u64::to_le_bytes).concat(), 30, &mut definition).unwrap();
    test.definitions.observe(&Record::parse(&definition, 0).unwrap());
    test.expect(&encode_sample(10, 7), 0, "a");
    assert_eq!(test.attach(&encode_walk(hook::STACK_KEY_USER, 12, (10, 4, 7), &[5]), 0), Some("a"));
    assert_eq!(
        test.attach(&encode_walk(hook::STACK_KEY_KERNEL, 12, (10, 4, 7), &[6]), 0),
        None,
        "an undefined key must not match"
    );
    assert_eq!(test.release_all(), [("a", vec![1, 2])]);
}

#[test]
fn switch_accepts_stacks_of_only_one_of_its_threads() {
    let switch = |time, new: u32, old: u32| {
        let mut payload = Vec::new();
        payload.put_u32(new).put_u32(old).put(&[0; 16]);
        encode_perfinfo(hook::CONTEXT_SWITCH, time, &payload)
    };
    // The labels name the thread of the switch whose stack is attached.
    let mut test = JoinerTest::default();
    test.expect(&switch(10, 7, 8), 0, "old thread");
    test.expect(&switch(20, 7, 8), 0, "new thread");
    assert_eq!(test.attach(&encode_stack(11, (10, 4, 8), &[KERNEL]), 0), Some("old thread"));
    assert_eq!(
        test.attach(&encode_stack(11, (10, 4, 7), &[1]), 0),
        None,
        "a stack of the other thread must not match"
    );
    assert_eq!(test.attach(&encode_stack(21, (20, 4, 7), &[2]), 0), Some("new thread"));
    assert_eq!(test.release_all(), [("old thread", vec![KERNEL]), ("new thread", vec![2])]);
}

#[test]
fn processor_decides_between_events_of_one_thread_and_stamp() {
    let switch = |new: u32, old: u32| {
        let mut payload = Vec::new();
        payload.put_u32(new).put_u32(old).put(&[0; 16]);
        encode_perfinfo(hook::CONTEXT_SWITCH, 10, &payload)
    };
    // The labels name the thread of the switch whose stack is attached.
    let mut test = JoinerTest::default();
    test.expect(&switch(0, 7), 0, "old thread");
    test.expect(&switch(7, 0), 1, "new thread");
    assert_eq!(test.attach(&encode_stack(11, (10, 4, 7), &[1]), 0), Some("old thread"));
    assert_eq!(test.attach(&encode_stack(11, (10, 4, 7), &[2]), 1), Some("new thread"));
}

#[test]
fn event_without_thread_gets_the_first_stack_of_its_processor() {
    let mut test = JoinerTest::default();
    let system = SystemHeader {
        pointer_size: 8,
        version: 2,
        hook: hook::PROCESS_START,
        thread_id: 9,
        process_id: 4,
        time: 10,
        cpu_times: None,
    };
    let mut bytes = Vec::new();
    system.encode(&[], &mut bytes).unwrap();
    test.expect(&encode_perfinfo(hook::SYSCALL_ENTER, 10, &[0; 8]), 0, "call");
    test.expect(&encode_perfinfo(hook::SYSCALL_ENTER, 10, &[0; 8]), 1, "other call");
    test.expect(&bytes, 2, "start");
    assert_eq!(test.attach(&encode_stack(11, (10, 4, 7), &[KERNEL]), 0), Some("call"));
    assert_eq!(
        test.attach(&encode_stack(11, (10, 4, 7), &[1]), 0),
        Some("call"),
        "the user part must join the kernel part"
    );
    assert_eq!(test.attach(&encode_stack(11, (10, 4, 9), &[2]), 2), Some("start"));
    assert_eq!(
        test.attach(&encode_stack(11, (10, 4, 3), &[KERNEL]), 5),
        None,
        "a stack of another processor must not match"
    );
    assert_eq!(test.release_all(), [("call", vec![KERNEL, 1]), ("other call", vec![]), ("start", vec![2])]);
}

#[test]
fn an_event_waits_for_the_window_and_no_longer() {
    let mut test = JoinerTest::default();
    test.expect(&encode_sample(0, 7), 0, "a");
    test.expect(&encode_sample(WINDOW_100NS, 7), 0, "b");
    assert!(test.joiner.next_ready().is_none());
    test.expect(&encode_sample(WINDOW_100NS + 1, 7), 0, "c");
    assert_eq!(test.joiner.next_ready().unwrap().event, "a");
    assert!(test.joiner.next_ready().is_none());
    assert_eq!(
        test.attach(&encode_stack(WINDOW_100NS + 2, (0, 4, 7), &[1]), 0),
        None,
        "a stack after the window must not match"
    );
}

#[test]
fn waiting_events_are_bounded() {
    let mut joiner = Joiner::default();
    let claim = StackClaim { source: 0, time: 5, wall: 5, cpu: 0, threads: StackThreads::One(1) };
    let mut released = 0;
    // All events have the same time stamp, so that no window ends.
    for number in 0..3 * MAX_WAITING_EVENTS {
        joiner.expect(claim, number, 0, std::iter::empty());
        while let Some(joined) = joiner.next_ready() {
            assert_eq!(joined.event, released);
            released += 1;
        }
    }
    assert!(joiner.waiting.len() <= MAX_WAITING_EVENTS && joiner.by_stamp.len() == 1);
    // Events of 1 MiB each, so that 64 of them reach MAX_WAITING_BYTES.
    for number in 0..10_000 {
        joiner.expect(claim, number, 1 << 20, std::iter::repeat_n(1, 1 << 20));
        while joiner.next_ready().is_some() {}
        assert!(joiner.bytes <= MAX_WAITING_BYTES);
    }
    assert!(joiner.waiting.len() <= 64);
    joiner.end();
    while joiner.next_ready().is_some() {}
    assert!(joiner.is_empty() && joiner.by_stamp.is_empty() && joiner.bytes == 0);
}

#[test]
fn oldest_event_is_complete_with_both_parts() {
    let mut test = JoinerTest::default();
    assert!(!test.joiner.is_oldest_complete(), "no event waits");
    test.expect(&encode_sample(10, 7), 0, "");
    assert!(!test.joiner.is_oldest_complete());
    assert!(test.attach(&encode_stack(11, (10, 4, 7), &[KERNEL]), 0).is_some());
    assert!(!test.joiner.is_oldest_complete());
    assert!(test.attach(&encode_stack(12, (10, 4, 7), &[1000]), 0).is_some());
    assert!(test.joiner.is_oldest_complete());
}

/// An event of a random trace, with the delay in ticks of each part of its stack.
#[derive(Clone, Debug)]
struct TestEvent {
    thread: u32,
    kernel_delay: Option<u8>,
    user_delay: Option<u8>,
}

fn test_event() -> impl Strategy<Value = TestEvent> {
    let delay = || proptest::option::of(1_u8..40);
    (0_u32..4, delay(), delay()).prop_map(|(thread, kernel_delay, user_delay)| TestEvent {
        thread,
        kernel_delay,
        user_delay,
    })
}

proptest! {
    #[test]
    fn every_event_gets_exactly_its_own_frames(events in proptest::collection::vec(test_event(), 0..60)) {
        // Events are ten ticks apart and their stacks up to 39 ticks late, so that the stacks of an
        // event may come after later events.
        let mut records: Vec<(i64, u16, Vec<u8>)> = Vec::new();
        let mut expected = Vec::new();
        for (index, event) in events.iter().enumerate() {
            let time = index as i64 * 10;
            let (kernel, user) = (KERNEL + index as u64, 1000 + index as u64);
            records.push((time, event.thread as u16, encode_sample(time, event.thread)));
            for (delay, frame, cpu) in
                [(event.kernel_delay, kernel, event.thread as u16), (event.user_delay, user, 9)]
            {
                if let Some(delay) = delay {
                    let at = time + i64::from(delay);
                    records.push((at, cpu, encode_stack(at, (time, 4, event.thread), &[frame])));
                }
            }
            let frames = [event.kernel_delay.map(|_| kernel), event.user_delay.map(|_| user)];
            expected.push(frames.into_iter().flatten().collect::<Vec<u64>>());
        }
        records.sort_by_key(|(time, ..)| *time);
        let mut test = JoinerTest::default();
        for (_, cpu, bytes) in &records {
            if StackWalk::is_stack_walk(&Record::parse(bytes, *cpu).unwrap()) {
                prop_assert!(test.attach(bytes, *cpu).is_some());
            } else {
                test.expect(bytes, *cpu, "");
            }
        }
        let released: Vec<Vec<u64>> = test.release_all().into_iter().map(|(_, frames)| frames).collect();
        prop_assert_eq!(released, expected);
    }
}
