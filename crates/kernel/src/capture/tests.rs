//! Captures of forged rings, with contents that no kernel writes.

use super::*;
use crate::clock::NanosecondClock;
use crate::open_events::OpenEvents;
use crate::perf_ring::RECORD_HEAD;
use crate::record::Sample;
use traceweir_format::wire::Put;

/// Builds a record that is not a sample: its type, its fields, and the sample id fields after them.
fn record(kind: u32, body: &[u32]) -> Vec<u8> {
    let mut record = Vec::new();
    let length = RECORD_HEAD + 4 * body.len() + 24;
    record.put_u32(kind).put_u16(0).put_u16(u16::try_from(length).unwrap());
    for word in body {
        record.put_u32(*word);
    }
    record.put_u64(0).put_u64(1).put_u64(0);
    record
}

#[test]
fn modules_are_known_until_the_last_thread_of_their_process_ends() {
    const FORK: u32 = 7;
    const EXIT: u32 = 4;
    // Larger than any id that Linux assigns.
    let (process, thread) = (5_000_000, 5_000_001);
    let task = |kind, tid, parent| record(kind, &[process, parent, tid, parent, 0, 0]);
    let (mut families, mut unwinder) = (Families::default(), Unwinder::new().expect("a thread"));
    let (mut queues, extras, mut too_large) = ([Queue::default()], EventExtras::default(), 0);
    let mut handle = |record: Vec<u8>| {
        let mut rings = [RingSource::Mapped(Ring::forged(&record, 0))];
        let open_events = OpenEvents::empty(&CaptureSettings::default());
        let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut too_large);
        out.unwinder = Some(&mut unwinder);
        let sample = Sample { pid: process, user_regs: &[0; 64 * 8], ..Sample::default() };
        unwind(&mut out, &sample);
        let (families, rings, lost) = (&mut families, &mut rings, &mut [0]);
        let mut reader = Reader { rings, open_events: &open_events, families, lost, replaced: Vec::new() };
        reader.poll();
        reader.read(u64::MAX, &mut out);
        unwinder.has_process(process)
    };
    assert!(handle(task(FORK, process, 1)));
    assert!(handle(task(FORK, thread, process)));
    assert!(handle(task(EXIT, process, 1)), "another thread is still alive");
    assert!(!handle(task(EXIT, thread, 1)));
}

/// Unwinds a stack of a process.
fn unwind(out: &mut Out<'_>, sample: &Sample<'_>) {
    let unwinder = out.unwinder.as_deref_mut().expect("an unwinder");
    assert!(unwinder.put_frames(sample, 1, &mut Vec::new()));
}

/// Reads two rings with these bytes. Returns the losses of each, whether everything was read, and
/// whether state was dropped.
fn read(bytes: [&[u8]; 2]) -> (Vec<u64>, bool, bool) {
    let [first, second] = bytes;
    let mut rings = [Ring::forged(first, 0), Ring::forged(second, 1)].map(RingSource::Mapped);
    let (open_events, mut families, mut lost) =
        (OpenEvents::empty(&CaptureSettings::default()), Families::default(), vec![0; rings.len()]);
    families.context.activity.set_running(0, 7, 9);
    let (mut queues, extras, mut too_large) = ([Queue::default()], EventExtras::default(), 0);
    let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut too_large);
    let mut reader = Reader {
        rings: &mut rings,
        open_events: &open_events,
        families: &mut families,
        lost: &mut lost,
        replaced: Vec::new(),
    };
    for _ in 0..2 {
        reader.poll();
        reader.read(u64::MAX, &mut out);
    }
    let is_read = rings.iter_mut().all(|ring| ring.peek().is_none());
    (lost, is_read, families.context.activity.running_priority(0, 7) == 0)
}

#[test]
fn unparsable_rest_of_a_ring_counts_as_one_loss() {
    /// A record of an unknown kind: type, misc, size, and the sample id fields after them.
    const COMPLETE: [u8; 40] = {
        let mut record = [0; 40];
        (record[0], record[6]) = (200, 40);
        record
    };
    let (mut short, mut long) = (COMPLETE, COMPLETE);
    (short[6], long[6]) = (7, 41);
    assert_eq!(read([&COMPLETE, &[]]), (vec![0, 0], true, false));
    assert_eq!(read([&short, &COMPLETE]), (vec![1, 0], true, true), "shorter than its header");
    assert_eq!(
        read([&COMPLETE, &[COMPLETE, long].concat()]),
        (vec![0, 1], true, true),
        "after a valid record"
    );
}

#[test]
fn room_of_each_ring_is_released_independently() {
    /// Builds a record of an unknown kind.
    fn unknown_record<const N: usize>() -> [u8; N] {
        let mut record = [0; N];
        record[0] = 200;
        record[6..8].copy_from_slice(&u16::try_from(N).unwrap().to_le_bytes());
        record
    }
    let (busy, calm) = (unknown_record::<60_000>().repeat(3), unknown_record::<30_000>().repeat(3));
    let mut rings = [Ring::forged(&busy, 0), Ring::forged(&calm, 1)].map(RingSource::Mapped);
    rings.iter_mut().for_each(RingSource::poll);
    let (open_events, mut families, mut lost) =
        (OpenEvents::empty(&CaptureSettings::default()), Families::default(), vec![0; 2]);
    let (mut queues, extras, mut too_large) = ([Queue::default()], EventExtras::default(), 0);
    let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut too_large);
    let mut reader = Reader {
        rings: &mut rings,
        open_events: &open_events,
        families: &mut families,
        lost: &mut lost,
        replaced: Vec::new(),
    };
    for ring_index in [1, 0, 1, 0, 1, 0] {
        reader.handle(ring_index, 1, &mut out);
    }
    let released = |source: &RingSource| match source {
        RingSource::Mapped(ring) => ring.released(),
        RingSource::Relayed(_) => 0,
    };
    assert_eq!(rings.each_ref().map(released), [120_000, 90_000]);
}

#[test]
fn offline_processor_does_not_hide_later_ones() {
    let offline = |cpu: u16| Err(Error::NotSupported { what: format!("processor {cpu}") });
    let without = |gone: &'static [u16]| move |cpu| if gone.contains(&cpu) { offline(cpu) } else { Ok(cpu) };
    assert_eq!(open_on_online_cpus(4, without(&[0, 2])).expect("the others"), [1, 3]);
    assert_eq!(open_on_online_cpus(3, without(&[])).expect("all"), [0, 1, 2]);
    let none = open_on_online_cpus(2, without(&[0, 1]));
    assert!(matches!(none, Err(Error::NotSupported { .. })), "no processor is online");
    let refused =
        |cpu| if cpu == 1 { Err(Error::system("", std::io::ErrorKind::Other.into())) } else { Ok(()) };
    assert!(matches!(open_on_online_cpus(2, refused), Err(Error::System { .. })));
}
