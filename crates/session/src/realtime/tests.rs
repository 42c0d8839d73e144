use super::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use traceweir_format::header::event::EventHeader;

const SIZE: usize = 4096;

/// The buffers that a consumer got: flags and numbers of each.
#[derive(Clone, Default)]
struct Received {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    room: usize,
    buffers: Vec<(u16, Vec<u32>)>,
    /// Stamps of the buffers.
    stamps: Vec<i64>,
    lost: (u64, u64),
    ended: bool,
}

impl Received {
    fn with_room(room: usize) -> Self {
        let received = Self::default();
        received.state.lock().unwrap().room = room;
        received
    }

    fn numbers(&self) -> Vec<u32> {
        self.state.lock().unwrap().buffers.iter().flat_map(|b| b.1.clone()).collect()
    }

    fn stamps(&self) -> Vec<i64> {
        self.state.lock().unwrap().stamps.clone()
    }

    fn flags(&self) -> Vec<u16> {
        self.state.lock().unwrap().buffers.iter().map(|b| b.0 & !BUFFER_FLAG_PROC_INDEX).collect()
    }
}

impl Queue for Received {
    fn push(&mut self, buffer: &[u8]) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.buffers.len() >= state.room {
            return false;
        }
        let head = BufferHeader::parse(buffer.first_chunk().unwrap());
        assert_eq!(head.valid_bytes(buffer.len()), buffer.len());
        let mut records =
            traceweir_format::buffer::Records::new(buffer, HEADER_SIZE, 0, head.processor_index, false);
        let mut numbers = Vec::new();
        while let Some(record) = records.next().unwrap() {
            numbers.push(record.thread_id());
        }
        state.buffers.push((head.flags, numbers));
        state.stamps.push(head.time_stamp);
        true
    }

    fn set_complete(&mut self, _: i64) {}

    fn set_lost(&mut self, buffers: u64, events: u64) {
        self.state.lock().unwrap().lost = (buffers, events);
    }

    fn end(&mut self) {
        self.state.lock().unwrap().ended = true;
    }
}

fn add(buffer: &mut Buffer, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut record = Vec::new();
        EventHeader { thread_id: number, ..Default::default() }.encode(&[], &mut record).unwrap();
        let end = buffer.filled + record.len();
        buffer.bytes[buffer.filled..end].copy_from_slice(&record);
        (buffer.filled, buffer.events) = (end, buffer.events + 1);
    }
}

fn buffer(cpu: u16, numbers: std::ops::Range<u32>) -> Buffer {
    let mut buffer = Buffer { bytes: vec![0; SIZE].into(), ..Buffer::default() };
    buffer.reset(cpu);
    add(&mut buffer, numbers);
    buffer
}

fn lost(stats: &Stats) -> (u32, u64) {
    (stats.real_time_buffers_lost.load(Relaxed), stats.real_time_events_lost.load(Relaxed))
}

#[test]
fn first_consumer_gets_the_backlog_and_later_ones_new_buffers() {
    let (mut live, stats) = (Realtime::new(SIZE, 10, 1), Stats::default());
    live.deliver(&mut buffer(0, 0..5), &stats);
    live.deliver(&mut buffer(1, 5..7), &stats);
    live.deliver(&mut buffer(0, 7..9), &stats);
    assert_eq!(live.backlog(), 2, "small pieces of a CPU share a buffer");
    let (first, second) = (Received::with_room(9), Received::with_room(9));
    let id = live.open(first.clone(), &stats);
    live.open(second.clone(), &stats);
    live.deliver(&mut buffer(0, 9..12), &stats);
    assert_eq!(first.numbers(), [0, 1, 2, 3, 4, 7, 8, 5, 6, 9, 10, 11]);
    assert_eq!(second.numbers(), [9, 10, 11]);
    live.close(id);
    live.end(&stats);
    assert!(first.state.lock().unwrap().ended && second.state.lock().unwrap().ended);
    assert_eq!(lost(&stats), (0, 0));
}

#[test]
fn full_backlog_loses_and_reports_the_newest() {
    let (mut live, stats) = (Realtime::new(SIZE, 2, 1), Stats::default());
    for at in 0..4 {
        // 46 events of 80 bytes fill a buffer so that no other 46 fit.
        live.deliver(&mut buffer(0, at * 46..at * 46 + 46), &stats);
        assert_eq!(live.is_full(), at >= 2, "from the first refusal on");
    }
    assert_eq!(lost(&stats), (2, 92));
    live.set_room(3);
    assert!(!live.is_full());
    live.set_room(2);
    assert!(live.is_full());
    let received = Received::with_room(9);
    live.open(received.clone(), &stats);
    assert!(!live.is_full());
    live.deliver(&mut buffer(0, 500..501), &stats);
    assert_eq!(received.numbers(), (0..92).chain([500]).collect::<Vec<_>>());
    assert_eq!(received.flags(), [0, 0, BUFFER_FLAG_BUFFER_LOST]);
    assert_eq!((received.state.lock().unwrap().lost, lost(&stats)), ((2, 92), (2, 92)), "counted once");
}

#[test]
fn consumer_that_does_not_read_loses_only_its_own_buffers() {
    let (mut live, stats) = (Realtime::new(SIZE, 2, 1), Stats::default());
    let (lazy, eager) = (Received::with_room(1), Received::with_room(99));
    live.open(lazy.clone(), &stats);
    live.open(eager.clone(), &stats);
    for at in 0..4 {
        live.deliver(&mut buffer(0, at * 3..at * 3 + 3), &stats);
    }
    assert_eq!((lazy.numbers().len(), eager.numbers().len()), (3, 12));
    assert_eq!((lost(&stats), lazy.state.lock().unwrap().lost), ((3, 9), (3, 9)));
    lazy.state.lock().unwrap().room = 9;
    let mut with_news = buffer(0, 20..21);
    with_news.news = BUFFER_FLAG_EVENTS_LOST;
    live.deliver(&mut with_news, &stats);
    live.deliver(&mut buffer(0, 21..22), &stats);
    assert_eq!(lazy.flags(), [0, BUFFER_FLAG_BUFFER_LOST | BUFFER_FLAG_EVENTS_LOST, 0]);
    assert_eq!(eager.flags()[4..], [BUFFER_FLAG_EVENTS_LOST, 0]);
}

#[test]
fn pieces_are_delivered_once_and_leave_the_buffer_unchanged() {
    let (mut live, stats) = (Realtime::new(SIZE, 2, 1), Stats::default());
    let received = Received::with_room(9);
    live.open(received.clone(), &stats);
    let mut one = buffer(0, 0..4);
    live.deliver(&mut one, &stats);
    live.deliver(&mut one, &stats);
    add(&mut one, 4..7);
    let whole = one.bytes.clone();
    one.ends_flush = true;
    live.deliver(&mut one, &stats);
    assert_eq!(*one.bytes, *whole);
    assert_eq!(received.numbers(), (0..7).collect::<Vec<_>>());
    assert_eq!(received.flags(), [0, BUFFER_FLAG_FLUSH_MARKER]);
}

/// Returns a late buffer with events of these stamps, each with its stamp as number.
fn late(stamps: &[u32]) -> Buffer {
    let mut late = Buffer { is_late: true, ..buffer(0, 0..0) };
    for &stamp in stamps {
        let start = late.filled;
        add(&mut late, stamp..stamp + 1);
        late.time = i64::from(stamp);
        late.bytes[start + 0x10..start + 0x18].copy_from_slice(&i64::from(stamp).to_le_bytes());
    }
    late
}

#[test]
fn late_buffers_have_no_stamp_and_stay_separate() {
    let (mut live, stats) = (Realtime::new(SIZE, 10, 1), Stats::default());
    let deliver = |live: &mut Realtime<Received>, numbers, time| {
        live.deliver(&mut Buffer { time, ..buffer(0, numbers) }, &stats);
    };
    deliver(&mut live, 0..2, 100);
    live.deliver(&mut late(&[50, 51]), &stats);
    live.deliver(&mut late(&[40, 60]), &stats);
    deliver(&mut live, 6..8, 200);
    assert_eq!(live.backlog(), 2);
    let received = Received::with_room(9);
    live.open(received.clone(), &stats);
    live.deliver(&mut late(&[45]), &stats);
    assert_eq!(received.numbers(), [0, 1, 6, 7, 40, 50, 51, 60, 45]);
    assert_eq!(received.stamps(), [200, 0, 0]);
}

#[test]
fn single_late_events_do_not_fill_the_backlog() {
    let (mut live, stats) = (Realtime::new(SIZE, 2, 1), Stats::default());
    for stamp in (0..40).rev() {
        live.deliver(&mut late(&[stamp]), &stats);
    }
    live.deliver(&mut buffer(0, 100..103), &stats);
    assert_eq!((live.backlog(), live.is_full(), lost(&stats)), (2, false, (0, 0)));
    let received = Received::with_room(2);
    live.open(received.clone(), &stats);
    assert_eq!(received.numbers(), (0..40).chain(100..103).collect::<Vec<_>>());
}

#[test]
fn unread_backlog_is_counted_at_the_end() {
    let (mut live, stats) = (Realtime::<Received>::new(SIZE, 2, 1), Stats::default());
    live.deliver(&mut buffer(0, 0..5), &stats);
    live.end(&stats);
    assert_eq!(lost(&stats), (1, 5));
}
