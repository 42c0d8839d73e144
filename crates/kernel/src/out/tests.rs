//! Tests of the order of records and of the bounds of queues.

use super::*;
use crate::clock::NanosecondClock;
use crate::family::testing::assert_queued;
use crate::settings::HookSet;

#[test]
fn stack_is_lost_with_its_event() {
    const HOOK: u16 = hook::CONTEXT_SWITCH;
    let (mut queues, mut lost_records) = ([RecordQueue::default()], 0);
    let extras = EventExtras {
        stacks: HookSet::new(&[HOOK]),
        registers: HookSet::new(&[HOOK]),
        ..EventExtras::default()
    };
    // One kernel frame and one user frame.
    let chain = [KERNEL_MARKER, 0xFFFF_8000_0000_0000, USER_MARKER, 0x5555_0000];
    let chain: Vec<u8> = chain.iter().flat_map(|word| word.to_le_bytes()).collect();
    let sample = PerfSample { callchain: &chain, regs: &[0; 64 * 8], ..PerfSample::default() };
    let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
    (out.sample, out.max_frames) = (Some(sample), 8);
    for size in [8, 0x1_0000, 8] {
        out.write_perfinfo(HOOK, 2, vec![0; size]);
        out.write_system(HOOK, 2, TaskIds { pid: 1, tid: 2 }, vec![0; size]);
    }
    assert_eq!(lost_records, 2 * 4, "a lost event did not lose both parts of its stack and its registers");
    let mut stacks = Vec::new();
    while let Some(next) = queues[0].peek() {
        queues[0].pop_into(&mut []);
        stacks.push(next.is_stack);
    }
    assert_eq!(stacks, [false, true, true, true].repeat(4));
}

#[test]
fn written_event_can_be_completed_after_its_stack() {
    const HOOK: u16 = hook::TCP_ACCEPT;
    let (mut queues, mut lost_records) = ([RecordQueue::default()], 0);
    let extras = EventExtras { stacks: HookSet::new(&[HOOK]), ..EventExtras::default() };
    let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
    let chain = [USER_MARKER, 0x5555_0000].map(u64::to_le_bytes).concat();
    (out.sample, out.max_frames) = (Some(PerfSample { callchain: &chain, ..PerfSample::default() }), 8);
    let [first, second] = [1, 2].map(|byte| out.write_completable_perfinfo(HOOK, 2, vec![byte; 8]));
    out.complete_payload(second.expect("the event is not written"), 0x0A0B_0C0D);
    out.complete_payload(PayloadPosition { queue_index: 0, payload_start: 1 << 20 }, 7);
    let payload = first.expect("the event is not written").payload_start;
    assert_eq!(queues[0].bytes()[payload..payload + 8], [1; 8]);
    let payload = second.expect("the event is not written").payload_start;
    assert_eq!(queues[0].bytes()[payload..payload + 8], [0x0D, 0x0C, 0x0B, 0x0A, 2, 2, 2, 2]);
    assert_eq!(queues[0].len(), 4, "an event has no stack");
}

#[test]
fn queues_are_bounded_together() {
    const RECORDS: usize = 10_000;
    let (mut queues, mut lost_records) = ([RecordQueue::default(), RecordQueue::default()], 0);
    let extras = EventExtras::default();
    let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
    out.max_bytes = 8 << 20;
    for number in 0..RECORDS {
        out.cpu = u16::from(number % 4 == 0);
        out.write_perfinfo(hook::PROCESS_START, 2, vec![0; 1 << 10]);
    }
    let bytes: usize = queues.iter().map(RecordQueue::waiting_bytes).sum();
    let written: usize = queues.iter().map(RecordQueue::len).sum();
    assert!((8 << 20) - (2 << 10) < bytes && bytes <= 8 << 20, "{bytes}");
    assert_eq!(written + usize::try_from(lost_records).unwrap(), RECORDS, "not all lost records are counted");
    assert!(lost_records > 0);
}

#[test]
fn first_queue_leaves_the_others_their_shares() {
    const MAX_BYTES: usize = 8 << 20;
    let extras = EventExtras::default();
    for size in [0, 1 << 10, 60 << 10] {
        let (mut queues, mut lost_records) = (std::array::from_fn::<_, 4, _>(|_| RecordQueue::default()), 0);
        for cpu in 0..4 {
            let before = lost_records;
            while lost_records == before {
                let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
                (out.max_bytes, out.cpu) = (MAX_BYTES, cpu);
                out.write_perfinfo(hook::PROCESS_START, 2, vec![0; size]);
            }
        }
        let waiting = queues.each_ref().map(RecordQueue::waiting_bytes);
        let is_nearly = |bytes: usize, expected: usize| bytes.abs_diff(expected) < 64 << 10;
        assert!(is_nearly(waiting[0], MAX_BYTES - 3 * (MAX_BYTES / 8)), "{waiting:?}");
        assert!(waiting[1..].iter().all(|bytes| is_nearly(*bytes, MAX_BYTES / 8)), "{waiting:?}");
        assert!(waiting.iter().sum::<usize>() <= MAX_BYTES, "{waiting:?}");
    }
}

#[test]
fn queues_use_at_most_a_part_of_the_machines_memory() {
    // Bytes of all rings, bytes of memory. Four times the rings are added, up to an eighth of
    // memory.
    assert_eq!(max_queued_for_memory(0, 64 << 30), MAX_QUEUED_BYTES);
    assert_eq!(max_queued_for_memory(128 << 20, 64 << 30), MAX_QUEUED_BYTES + (512 << 20));
    assert_eq!(max_queued_for_memory(16 * (64 << 20), 8 << 30), 1 << 30);
    assert_eq!(max_queued_for_memory(usize::MAX, 1 << 30), 128 << 20);
    assert!(max_queued_bytes(0) > 0);
}

#[test]
fn taken_records_free_space_while_another_one_waits() {
    const PAYLOAD_BYTES: usize = 16 << 10;
    let (mut queues, mut lost_records) = ([RecordQueue::default(), RecordQueue::default()], 0);
    let extras = EventExtras::default();
    // Writes many times the bound of the queues.
    for poll in 0..200_u64 {
        let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
        (out.max_bytes, out.cpu, out.time) = (8 << 20, 1, poll);
        for _ in 0..64 {
            out.write_perfinfo(hook::PROCESS_START, 2, vec![0; PAYLOAD_BYTES]);
        }
        while queues[1].len() > 1 {
            queues[1].pop_into(&mut []);
        }
    }
    assert_eq!(lost_records, 0);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn stacks_and_registers_have_the_documented_layout() {
    const HOOK: u16 = hook::CONTEXT_SWITCH;
    let (mut queues, mut lost_records) = ([RecordQueue::default()], 0);
    let hooks = || HookSet::new(&[HOOK]);
    let extras = EventExtras { stacks: hooks(), registers: hooks(), ..EventExtras::default() };
    let chain = [KERNEL_MARKER, 0xFFFF_8000_0000_1234, USER_MARKER, 0x5555_0000, 0x5555_1111]
        .map(u64::to_le_bytes)
        .concat();
    let regs = (0..20).flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    let sample =
        PerfSample { pid: 0x0A11, tid: 0x0A12, callchain: &chain, regs: &regs, ..PerfSample::default() };
    let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
    (out.sample, out.max_frames) = (Some(sample), 8);
    out.write_perfinfo(HOOK, 2, Vec::new());
    // Hook id, version, payload. The last event has the kinds of registers (3: control and
    // integer), their number (20) and the registers. The value of each is its index in the sample.
    assert_queued(
        &mut queues[0],
        &[
            "0524 02",
            "1820 02 0000000000000000 110a0000 120a0000 341200000080ffff",
            "1820 02 0000000000000000 110a0000 120a0000 0000555500000000 1111555500000000",
            "1830 02 0000000000000000 110a0000 120a0000 03000000 14000000 0800000000000000 \
             0a00000000000000 0b00000000000000 0700000000000000 0900000000000000 0000000000000000 \
             0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000 \
             0600000000000000 0c00000000000000 0d00000000000000 0e00000000000000 0f00000000000000 \
             1000000000000000 1100000000000000 1200000000000000 1300000000000000",
        ],
    );
}
