//! Tests with forged rings: records of processes that do not exist, and invalid contents.

use super::*;
use crate::clock::NanosecondClock;
use crate::open_events::OpenEvents;
use crate::perf_ring::RECORD_HEADER_BYTES;
use crate::record::PerfSample;
use perf_event_open_sys::bindings::{PERF_RECORD_EXIT, PERF_RECORD_FORK};
use traceweir_format::wire::Put;

/// Builds a record that is not a sample: its type, its fields, and the sample id fields after them
/// (process and thread 0, time 1, event id 0).
fn build_sideband_record(kind: u32, body: &[u32]) -> Vec<u8> {
    let mut record = Vec::new();
    let length = RECORD_HEADER_BYTES + 4 * body.len() + 24;
    record.put_u32(kind).put_u16(0).put_u16(u16::try_from(length).unwrap());
    for word in body {
        record.put_u32(*word);
    }
    record.put_u64(0).put_u64(1).put_u64(0);
    record
}

#[test]
fn unwinder_keeps_modules_until_the_last_thread_exits() {
    // Larger than any id that Linux assigns.
    let (process, thread) = (5_000_000, 5_000_001);
    // Process, parent process, thread, parent thread, and the time in two words.
    let task_record = |kind, tid, parent| build_sideband_record(kind, &[process, parent, tid, parent, 0, 0]);
    let (mut families, mut unwinder) =
        (Families::default(), StackUnwinder::new().expect("the reader thread does not start"));
    let (mut queues, extras, mut lost_records) = ([RecordQueue::default()], EventExtras::default(), 0);
    let mut handle = |record: Vec<u8>| {
        let mut rings = [RingSource::Mapped(PerfRing::from_bytes(&record, 0))];
        let open_events = OpenEvents::new_empty(&CaptureSettings::default());
        let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
        out.unwinder = Some(&mut unwinder);
        let sample = PerfSample { pid: process, user_regs: &[0; 64 * 8], ..PerfSample::default() };
        let out_unwinder = out.unwinder.as_deref_mut().expect("the output has no unwinder");
        assert!(out_unwinder.put_frames(&sample, 1, &mut Vec::new()));
        let (families, rings, lost) = (&mut families, &mut rings, &mut [0]);
        let mut merger =
            RingMerger { rings, open_events: &open_events, families, lost, replaced: Vec::new() };
        merger.poll();
        merger.read_until(u64::MAX, &mut out);
        unwinder.has_process(process)
    };
    assert!(handle(task_record(PERF_RECORD_FORK, process, 1)));
    assert!(handle(task_record(PERF_RECORD_FORK, thread, process)));
    assert!(handle(task_record(PERF_RECORD_EXIT, process, 1)), "dropped before the last exit");
    assert!(!handle(task_record(PERF_RECORD_EXIT, thread, 1)));
}

/// Reads two rings with these bytes to their ends. Returns the losses of each ring, and whether the
/// families dropped their state.
fn read_rings(bytes: [&[u8]; 2]) -> (Vec<u64>, bool) {
    let [first, second] = bytes;
    let mut rings = [PerfRing::from_bytes(first, 0), PerfRing::from_bytes(second, 1)].map(RingSource::Mapped);
    let (open_events, mut families, mut lost) =
        (OpenEvents::new_empty(&CaptureSettings::default()), Families::default(), vec![0; rings.len()]);
    // Processor 0 runs thread 7 with priority 9. The families forget this when they drop their
    // state.
    families.context.activity.set_running(0, 7, 9);
    let (mut queues, extras, mut lost_records) = ([RecordQueue::default()], EventExtras::default(), 0);
    let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
    let mut merger = RingMerger {
        rings: &mut rings,
        open_events: &open_events,
        families: &mut families,
        lost: &mut lost,
        replaced: Vec::new(),
    };
    for _ in 0..2 {
        merger.poll();
        merger.read_until(u64::MAX, &mut out);
    }
    assert!(rings.iter_mut().all(|ring| ring.peek().is_none()), "a ring has unread records");
    (lost, families.context.activity.running_priority(0, 7) == 0)
}

/// Builds a record of N bytes with a type that perf does not define.
fn unknown_record<const N: usize>() -> [u8; N] {
    let mut record = [0; N];
    record[0] = 200;
    record[6..8].copy_from_slice(&u16::try_from(N).unwrap().to_le_bytes());
    record
}

#[test]
fn unparsable_end_of_a_ring_counts_as_one_loss() {
    let complete = unknown_record::<40>();
    let (mut short, mut long) = (complete, complete);
    // The size of a record is at offset 6: smaller than a record header, larger than the ring.
    (short[6], long[6]) = (7, 41);
    assert_eq!(read_rings([&complete, &[]]), (vec![0, 0], false));
    assert_eq!(read_rings([&short, &complete]), (vec![1, 0], true), "a short record is no loss");
    let invalid_after_valid = [complete, long].concat();
    assert_eq!(read_rings([&complete, &invalid_after_valid]), (vec![0, 1], true));
}

#[test]
fn bytes_of_each_ring_are_released_independently() {
    let (busy, calm) = (unknown_record::<60_000>().repeat(3), unknown_record::<30_000>().repeat(3));
    let mut rings = [PerfRing::from_bytes(&busy, 0), PerfRing::from_bytes(&calm, 1)].map(RingSource::Mapped);
    rings.iter_mut().for_each(RingSource::poll);
    let (open_events, mut families, mut lost) =
        (OpenEvents::new_empty(&CaptureSettings::default()), Families::default(), vec![0; 2]);
    let (mut queues, extras, mut lost_records) = ([RecordQueue::default()], EventExtras::default(), 0);
    let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
    let mut merger = RingMerger {
        rings: &mut rings,
        open_events: &open_events,
        families: &mut families,
        lost: &mut lost,
        replaced: Vec::new(),
    };
    for ring_index in [1, 0, 1, 0, 1, 0] {
        merger.handle_next_record(ring_index, 1, &mut out);
    }
    let released_bytes = |source: &RingSource| match source {
        RingSource::Mapped(ring) => ring.read_tail(),
        RingSource::Relayed(_) => 0,
    };
    // A ring releases its bytes when they exceed 64 KiB: two records of 60,000 bytes, or three of
    // 30,000.
    assert_eq!(rings.each_ref().map(released_bytes), [120_000, 90_000]);
}

#[test]
fn offline_processor_does_not_hide_later_ones() {
    let offline = |cpu: u16| Err(Error::NotSupported { what: format!("processor {cpu}") });
    let open_except =
        |missing: &'static [u16]| move |cpu| if missing.contains(&cpu) { offline(cpu) } else { Ok(cpu) };
    assert_eq!(
        open_on_online_cpus(4, open_except(&[0, 2])).expect("the other processors are not opened"),
        [1, 3]
    );
    assert_eq!(open_on_online_cpus(3, open_except(&[])).expect("not all processors are opened"), [0, 1, 2]);
    let result = open_on_online_cpus(2, open_except(&[0, 1]));
    assert!(matches!(result, Err(Error::NotSupported { .. })), "opened without an online processor");
    let fail_on_cpu_1 =
        |cpu| if cpu == 1 { Err(Error::system("", std::io::ErrorKind::Other.into())) } else { Ok(()) };
    assert!(matches!(open_on_online_cpus(2, fail_on_cpu_1), Err(Error::System { .. })));
}
