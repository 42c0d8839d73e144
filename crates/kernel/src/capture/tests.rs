//! Rings as no kernel writes them.

use super::*;
use crate::Plain;
use crate::opened::Opened;
use crate::perf_ring::RECORD_HEAD;
use crate::record::Sample;
use traceweir_format::wire::Put;

/// A record that is no sample, of this type, with its fields and the identity behind them.
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
    // Above the largest id that Linux gives.
    let (process, thread) = (5_000_000, 5_000_001);
    let task = |kind, tid, parent| record(kind, &[process, parent, tid, parent, 0, 0]);
    let (mut state, mut unwinder) = (State::default(), Unwinder::new().expect("a thread"));
    let (mut queues, nothing, mut too_large) = ([Queue::default()], Beside::default(), 0);
    let mut hear = |record: Vec<u8>| {
        let mut rings = [RingSource::Mapped(Ring::forged(&record, 0))];
        let opened = Opened::nothing(&Wanted::default());
        let mut out = Out::new(&mut queues, &Plain, &nothing, &mut too_large);
        out.unwinder = Some(&mut unwinder);
        let sample = Sample { pid: process, user_regs: &[0; 64 * 8], ..Sample::default() };
        unwound(&mut out, &sample);
        let (state, rings, lost) = (&mut state, &mut rings, &mut [0]);
        let mut reader = Reader { rings, opened: &opened, state, lost, replaced: Vec::new() };
        reader.look();
        reader.read(u64::MAX, &mut out);
        unwinder.knows(process)
    };
    assert!(hear(task(FORK, process, 1)));
    assert!(hear(task(FORK, thread, process)));
    assert!(hear(task(EXIT, process, 1)), "another thread lives on");
    assert!(!hear(task(EXIT, thread, 1)));
}

/// A stack of a process is unwound.
fn unwound(out: &mut Out<'_>, sample: &Sample<'_>) {
    let unwinder = out.unwinder.as_deref_mut().expect("one that unwinds");
    assert!(unwinder.put_frames(sample, 1, &mut Vec::new()));
}

/// What is lost when rings hold these bytes; whether all is read, and whether what is remembered is forgotten.
fn read(bytes: [&[u8]; 2]) -> (Vec<u64>, bool, bool) {
    let [first, second] = bytes;
    let mut rings = [Ring::forged(first, 0), Ring::forged(second, 1)].map(RingSource::Mapped);
    let (opened, mut state, mut lost) =
        (Opened::nothing(&Wanted::default()), State::default(), vec![0; rings.len()]);
    state.schedule.runs_on(0, (7, 9));
    let (mut queues, nothing, mut too_large) = ([Queue::default()], Beside::default(), 0);
    let mut out = Out::new(&mut queues, &Plain, &nothing, &mut too_large);
    let mut reader = Reader {
        rings: &mut rings,
        opened: &opened,
        state: &mut state,
        lost: &mut lost,
        replaced: Vec::new(),
    };
    for _ in 0..2 {
        reader.look();
        reader.read(u64::MAX, &mut out);
    }
    let is_read = rings.iter_mut().all(|ring| ring.peek().is_none());
    (lost, is_read, state.schedule.priority_on(0, 7) == 0)
}

#[test]
fn what_cannot_be_understood_is_lost_once() {
    /// A record of a kind that nobody knows: type, misc, size, and the identity behind it.
    const WHOLE: [u8; 40] = {
        let mut record = [0; 40];
        (record[0], record[6]) = (200, 40);
        record
    };
    let (mut short, mut long) = (WHOLE, WHOLE);
    (short[6], long[6]) = (7, 41);
    assert_eq!(read([&WHOLE, &[]]), (vec![0, 0], true, false));
    assert_eq!(read([&short, &WHOLE]), (vec![1, 0], true, true), "shorter than its head");
    assert_eq!(
        read([&WHOLE, &[WHOLE, long].concat()]),
        (vec![0, 1], true, true),
        "behind what is understood"
    );
}

#[test]
fn what_is_read_of_a_ring_is_given_back_whatever_is_read_of_others() {
    /// Records of a kind that nobody knows.
    fn of_size<const N: usize>() -> [u8; N] {
        let mut record = [0; N];
        record[0] = 200;
        record[6..8].copy_from_slice(&u16::try_from(N).unwrap().to_le_bytes());
        record
    }
    let (busy, calm) = (of_size::<60_000>().repeat(3), of_size::<30_000>().repeat(3));
    let mut rings = [Ring::forged(&busy, 0), Ring::forged(&calm, 1)].map(RingSource::Mapped);
    rings.iter_mut().for_each(RingSource::look);
    let (opened, mut state, mut lost) = (Opened::nothing(&Wanted::default()), State::default(), vec![0; 2]);
    let (mut queues, nothing, mut too_large) = ([Queue::default()], Beside::default(), 0);
    let mut out = Out::new(&mut queues, &Plain, &nothing, &mut too_large);
    let mut reader = Reader {
        rings: &mut rings,
        opened: &opened,
        state: &mut state,
        lost: &mut lost,
        replaced: Vec::new(),
    };
    for place in [1, 0, 1, 0, 1, 0] {
        reader.handle(place, 1, &mut out);
    }
    let given_back = |source: &RingSource| match source {
        RingSource::Mapped(ring) => ring.given_back(),
        RingSource::Relayed(_) => 0,
    };
    assert_eq!(rings.each_ref().map(given_back), [120_000, 90_000]);
}

#[test]
fn a_processor_that_is_off_does_not_hide_those_behind_it() {
    let off = |cpu: u16| Err(Error::NotSupported { what: format!("processor {cpu}") });
    let some = |gone: &'static [u16]| move |cpu| if gone.contains(&cpu) { off(cpu) } else { Ok(cpu) };
    assert_eq!(of_all_there(4, some(&[0, 2])).expect("the others"), [1, 3]);
    assert_eq!(of_all_there(3, some(&[])).expect("all"), [0, 1, 2]);
    assert!(matches!(of_all_there(2, some(&[0, 1])), Err(Error::NotSupported { .. })), "none at all");
    let refused =
        |cpu| if cpu == 1 { Err(Error::system("", std::io::ErrorKind::Other.into())) } else { Ok(()) };
    assert!(matches!(of_all_there(2, refused), Err(Error::System { .. })));
}
