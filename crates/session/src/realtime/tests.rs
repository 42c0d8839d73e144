//! Tests of live delivery: backlog, losses, pieces of buffers and late buffers.

use super::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use traceweir_format::header::event::EventHeader;

const BUFFER_BYTES: usize = 4096;

/// A consumer's queue that stores flags and event numbers of each buffer.
#[derive(Clone, Default)]
struct FakeQueue {
    state: Arc<Mutex<ReceivedState>>,
}

#[derive(Default)]
struct ReceivedState {
    capacity: usize,
    buffers: Vec<(u16, Vec<u32>)>,
    /// Stamps of the buffers.
    stamps: Vec<i64>,
    lost: (u64, u64),
    has_ended: bool,
}

impl FakeQueue {
    fn with_capacity(capacity: usize) -> Self {
        let queue = Self::default();
        queue.state.lock().unwrap().capacity = capacity;
        queue
    }

    fn numbers(&self) -> Vec<u32> {
        self.state.lock().unwrap().buffers.iter().flat_map(|(_, numbers)| numbers.clone()).collect()
    }

    fn stamps(&self) -> Vec<i64> {
        self.state.lock().unwrap().stamps.clone()
    }

    fn flags(&self) -> Vec<u16> {
        self.state.lock().unwrap().buffers.iter().map(|(flags, _)| flags & !BUFFER_FLAG_PROC_INDEX).collect()
    }
}

impl ConsumerQueue for FakeQueue {
    fn push(&mut self, buffer: &[u8]) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.buffers.len() >= state.capacity {
            return false;
        }
        let header = BufferHeader::parse(buffer.first_chunk().unwrap());
        assert_eq!(header.valid_bytes(buffer.len()), buffer.len());
        let mut records =
            traceweir_format::buffer::Records::new(buffer, HEADER_SIZE, 0, header.processor_index, false);
        let mut numbers = Vec::new();
        while let Some(record) = records.next().unwrap() {
            numbers.push(record.thread_id());
        }
        state.buffers.push((header.flags, numbers));
        state.stamps.push(header.time_stamp);
        true
    }

    fn set_complete(&mut self, _: i64) {}

    fn set_lost(&mut self, buffers: u64, events: u64) {
        self.state.lock().unwrap().lost = (buffers, events);
    }

    fn end(&mut self) {
        self.state.lock().unwrap().has_ended = true;
    }
}

fn add_events(buffer: &mut Buffer, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut record = Vec::new();
        EventHeader { thread_id: number, ..Default::default() }.encode(&[], &mut record).unwrap();
        let end = buffer.filled + record.len();
        buffer.bytes[buffer.filled..end].copy_from_slice(&record);
        (buffer.filled, buffer.events) = (end, buffer.events + 1);
    }
}

fn event_buffer(cpu: u16, numbers: std::ops::Range<u32>) -> Buffer {
    let mut buffer = Buffer { bytes: vec![0; BUFFER_BYTES].into(), ..Buffer::default() };
    buffer.reset(cpu);
    add_events(&mut buffer, numbers);
    buffer
}

fn loss_counts(stats: &SessionStats) -> (u32, u64) {
    (stats.real_time_buffers_lost.load(Relaxed), stats.real_time_events_lost.load(Relaxed))
}

#[test]
fn first_consumer_gets_the_backlog_and_later_ones_new_buffers() {
    // Arguments: bytes of a buffer, most buffers in the backlog, logger id.
    let (mut live, stats) = (Realtime::new(BUFFER_BYTES, 10, 1), SessionStats::default());
    live.deliver(&mut event_buffer(0, 0..5), &stats);
    live.deliver(&mut event_buffer(1, 5..7), &stats);
    live.deliver(&mut event_buffer(0, 7..9), &stats);
    assert_eq!(live.backlog_len(), 2, "small pieces of a CPU do not share a buffer");
    let (first, second) = (FakeQueue::with_capacity(9), FakeQueue::with_capacity(9));
    let id = live.open(first.clone(), &stats);
    live.open(second.clone(), &stats);
    live.deliver(&mut event_buffer(0, 9..12), &stats);
    assert_eq!(first.numbers(), [0, 1, 2, 3, 4, 7, 8, 5, 6, 9, 10, 11]);
    assert_eq!(second.numbers(), [9, 10, 11]);
    live.close(id);
    live.end(&stats);
    assert!(first.state.lock().unwrap().has_ended && second.state.lock().unwrap().has_ended);
    assert_eq!(loss_counts(&stats), (0, 0));
}

#[test]
fn full_backlog_drops_and_reports_the_newest() {
    let (mut live, stats) = (Realtime::new(BUFFER_BYTES, 2, 1), SessionStats::default());
    for at in 0..4 {
        // 46 events of 80 bytes fill a buffer so that no other 46 fit.
        live.deliver(&mut event_buffer(0, at * 46..at * 46 + 46), &stats);
        assert_eq!(live.is_full(), at >= 2, "not full exactly since the first dropped buffer");
    }
    assert_eq!(loss_counts(&stats), (2, 92));
    live.set_max_backlog(3);
    assert!(!live.is_full());
    live.set_max_backlog(2);
    assert!(live.is_full());
    let received = FakeQueue::with_capacity(9);
    live.open(received.clone(), &stats);
    assert!(!live.is_full());
    live.deliver(&mut event_buffer(0, 500..501), &stats);
    assert_eq!(received.numbers(), (0..92).chain([500]).collect::<Vec<_>>());
    assert_eq!(received.flags(), [0, 0, BUFFER_FLAG_BUFFER_LOST]);
    assert_eq!(
        (received.state.lock().unwrap().lost, loss_counts(&stats)),
        ((2, 92), (2, 92)),
        "counted twice"
    );
}

#[test]
fn consumer_that_does_not_read_loses_only_its_own_buffers() {
    let (mut live, stats) = (Realtime::new(BUFFER_BYTES, 2, 1), SessionStats::default());
    let (unread, read) = (FakeQueue::with_capacity(1), FakeQueue::with_capacity(99));
    live.open(unread.clone(), &stats);
    live.open(read.clone(), &stats);
    for at in 0..4 {
        live.deliver(&mut event_buffer(0, at * 3..at * 3 + 3), &stats);
    }
    assert_eq!((unread.numbers().len(), read.numbers().len()), (3, 12));
    assert_eq!((loss_counts(&stats), unread.state.lock().unwrap().lost), ((3, 9), (3, 9)));
    unread.state.lock().unwrap().capacity = 9;
    let mut with_loss = event_buffer(0, 20..21);
    with_loss.undelivered_loss = BUFFER_FLAG_EVENTS_LOST;
    live.deliver(&mut with_loss, &stats);
    live.deliver(&mut event_buffer(0, 21..22), &stats);
    assert_eq!(unread.flags(), [0, BUFFER_FLAG_BUFFER_LOST | BUFFER_FLAG_EVENTS_LOST, 0]);
    assert_eq!(read.flags()[4..], [BUFFER_FLAG_EVENTS_LOST, 0]);
}

#[test]
fn pieces_are_delivered_once_and_leave_the_buffer_unchanged() {
    let (mut live, stats) = (Realtime::new(BUFFER_BYTES, 2, 1), SessionStats::default());
    let received = FakeQueue::with_capacity(9);
    live.open(received.clone(), &stats);
    let mut partial = event_buffer(0, 0..4);
    live.deliver(&mut partial, &stats);
    live.deliver(&mut partial, &stats);
    add_events(&mut partial, 4..7);
    let expected = partial.bytes.clone();
    partial.ends_flush = true;
    live.deliver(&mut partial, &stats);
    assert_eq!(*partial.bytes, *expected);
    assert_eq!(received.numbers(), (0..7).collect::<Vec<_>>());
    assert_eq!(received.flags(), [0, BUFFER_FLAG_FLUSH_MARKER]);
}

/// Builds a late buffer with events of these stamps. The number of each event is its stamp.
fn late_buffer(stamps: &[u32]) -> Buffer {
    let mut late = Buffer { is_late: true, ..event_buffer(0, 0..0) };
    for &stamp in stamps {
        let start = late.filled;
        add_events(&mut late, stamp..stamp + 1);
        late.time = i64::from(stamp);
        // The stamp of the record.
        late.bytes[start + 0x10..start + 0x18].copy_from_slice(&i64::from(stamp).to_le_bytes());
    }
    late
}

#[test]
fn late_buffers_have_no_stamp_and_stay_separate_from_others() {
    let (mut live, stats) = (Realtime::new(BUFFER_BYTES, 10, 1), SessionStats::default());
    let deliver = |live: &mut Realtime<FakeQueue>, numbers, time| {
        live.deliver(&mut Buffer { time, ..event_buffer(0, numbers) }, &stats);
    };
    deliver(&mut live, 0..2, 100);
    live.deliver(&mut late_buffer(&[50, 51]), &stats);
    live.deliver(&mut late_buffer(&[40, 60]), &stats);
    deliver(&mut live, 6..8, 200);
    assert_eq!(live.backlog_len(), 2);
    let received = FakeQueue::with_capacity(9);
    live.open(received.clone(), &stats);
    live.deliver(&mut late_buffer(&[45]), &stats);
    assert_eq!(received.numbers(), [0, 1, 6, 7, 40, 50, 51, 60, 45]);
    assert_eq!(received.stamps(), [200, 0, 0]);
}

#[test]
fn single_late_events_do_not_fill_the_backlog() {
    let (mut live, stats) = (Realtime::new(BUFFER_BYTES, 2, 1), SessionStats::default());
    for stamp in (0..40).rev() {
        live.deliver(&mut late_buffer(&[stamp]), &stats);
    }
    live.deliver(&mut event_buffer(0, 100..103), &stats);
    assert_eq!((live.backlog_len(), live.is_full(), loss_counts(&stats)), (2, false, (0, 0)));
    let received = FakeQueue::with_capacity(2);
    live.open(received.clone(), &stats);
    assert_eq!(received.numbers(), (0..40).chain(100..103).collect::<Vec<_>>());
}

#[test]
fn unread_backlog_is_counted_at_the_end() {
    let (mut live, stats) = (Realtime::<FakeQueue>::new(BUFFER_BYTES, 2, 1), SessionStats::default());
    live.deliver(&mut event_buffer(0, 0..5), &stats);
    live.end(&stats);
    assert_eq!(loss_counts(&stats), (1, 5));
}
