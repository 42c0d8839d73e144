//! Consumers of live sessions with a fake daemon. This file tests loss, session ends and refusals;
//! modules test order and closing.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use traceweir::consumer::{Item, Lost, Trace, process};
use traceweir::controller::{Properties, SessionConfig, SessionRef};
use traceweir::{Error, Guid, Status};
use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::etl::Options;
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::session::{
    BUFFER_FLAG_BUFFER_LOST, BUFFER_FLAG_EVENTS_LOST, BUFFER_FLAG_FLUSH_MARKER, BUFFER_FLAG_PROC_INDEX,
};
use traceweir_format::time::FileTime;
use traceweir_transport::live::QueueWriter;
use traceweir_transport::message::Message;
use traceweir_transport::socket::{Connection, Envelope};

mod closing;
mod order;
use crate::support::{FakeDaemon, TEST_TIMEOUT, reply, until};

const BUFFER_BYTES: u32 = 4096;
const SLOTS: u32 = 8;
/// Ticks per second of the sessions' clock.
const TICKS_PER_SECOND: i64 = 1_000_000;
const START_TIME: i64 = 132_400_000_000_000_000;

/// A session at a fake daemon.
struct FakeSession {
    daemon: FakeDaemon,
    queues: Receiver<QueueWriter>,
}

impl FakeSession {
    /// `flush_timer` is in seconds; one of 1,000 does not expire during a test.
    fn new(processors: u32, low_latency: bool, flush_timer: u32) -> Self {
        let (sender, queues) = channel();
        let sender = Mutex::new(sender);
        let daemon = FakeDaemon::new(move |connection, Envelope { request, message, .. }| {
            let Message::OpenConsumer { session: SessionRef::Name(name) } = message else {
                panic!("{message:?}")
            };
            if name != "s" {
                let status = Status::ERROR_WMI_INSTANCE_NOT_FOUND.0;
                return reply(
                    connection,
                    request,
                    &Message::Refused { status, reason: "no such session".into() },
                );
            }
            let (writer, ends) = QueueWriter::create(SLOTS, BUFFER_BYTES).unwrap();
            sender.lock().unwrap().send(writer).unwrap();
            let config = SessionConfig { name, low_latency, flush_timer, ..Default::default() };
            let answer = Message::Consumer {
                properties: Box::new(Properties { config, ..Default::default() }),
                slots: SLOTS,
                buffer_bytes: BUFFER_BYTES,
                header: header_buffer(processors),
            };
            let descriptors = [ends.queue.as_fd(), ends.cursor.as_fd(), ends.signal.as_fd()];
            connection.send(request, &answer, &descriptors, TEST_TIMEOUT).unwrap();
        });
        Self { daemon, queues }
    }

    fn open(&self) -> (Trace, QueueWriter) {
        let trace = Trace::live_at(self.daemon.path(), "s").unwrap();
        (trace, self.queues.recv_timeout(TEST_TIMEOUT).unwrap())
    }
}

/// Returns the header buffer of a session whose clock starts at 0.
fn header_buffer(processors: u32) -> Vec<u8> {
    let options = Options {
        buffer_size: BUFFER_BYTES,
        session_name: "s".into(),
        processors,
        perf_freq: TICKS_PER_SECOND,
        start_time: FileTime(START_TIME),
        ..Default::default()
    };
    options.header_buffer().unwrap()
}

/// Returns a buffer of a processor with events at these times, flushed at `flushed`.
fn encode_buffer(cpu: u16, flushed: i64, flags: u16, times: &[i64]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_SIZE];
    for &time in times {
        let event = EventHeader { time, provider: Guid::NULL, ..EventHeader::default() };
        event.encode(&time.to_le_bytes(), &mut bytes).unwrap();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let offset = u32::try_from(bytes.len()).unwrap();
    let header = BufferHeader {
        buffer_size: BUFFER_BYTES,
        saved_offset: offset,
        current_offset: offset,
        offset,
        time_stamp: flushed,
        processor_index: cpu,
        logger_id: 1,
        flags: flags | BUFFER_FLAG_PROC_INDEX,
        ..BufferHeader::default()
    };
    bytes[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
    bytes
}

/// An item that the consumer delivered.
#[derive(Clone, Debug, PartialEq)]
enum DeliveredItem {
    Header,
    Event { trace: usize, cpu: u16, time: i64 },
    Lost(Lost),
}

fn copy_item(item: &Item<'_>) -> DeliveredItem {
    match item {
        Item::Lost(lost) => DeliveredItem::Lost(*lost),
        Item::Event(event) if event.record.hook() == Some(0) => DeliveredItem::Header,
        Item::Event(event) => {
            let time = event.record.time();
            assert_eq!(event.time, FileTime(START_TIME + time * 10), "the wall time differs from the clock");
            DeliveredItem::Event { trace: event.trace, cpu: event.record.cpu(), time }
        }
        other => panic!("{other:?}"),
    }
}

/// Consumes traces in a thread, which adds each delivered item to the returned list.
fn consume(traces: Vec<Trace>) -> (JoinHandle<traceweir::Result<()>>, Arc<Mutex<Vec<DeliveredItem>>>) {
    let delivered = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&delivered);
    let thread = std::thread::spawn(move || {
        process(traces, |item| {
            sink.lock().unwrap().push(copy_item(&item));
            ControlFlow::Continue(())
        })
    });
    (thread, delivered)
}

fn event_times(delivered: &Mutex<Vec<DeliveredItem>>) -> Vec<i64> {
    let event_time =
        |item: &DeliveredItem| if let DeliveredItem::Event { time, .. } = item { Some(*time) } else { None };
    delivered.lock().unwrap().iter().filter_map(event_time).collect()
}

#[test]
fn header_comes_first_and_stopped_session_ends_after_last_event() {
    let session = FakeSession::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    assert_eq!((trace.header().session_name.as_str(), trace.header().processors), ("s", 2));
    assert!(queue.push(&encode_buffer(1, 50, 0, &[20, 40])));
    assert!(queue.push(&encode_buffer(0, 60, 0, &[10, 30, 55])));
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    assert_eq!(delivered.lock().unwrap().first(), Some(&DeliveredItem::Header));
    assert_eq!(event_times(&delivered), [10, 20, 30, 40, 55]);
}

#[test]
fn late_buffers_are_merged_once_the_session_is_complete() {
    let session = FakeSession::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&encode_buffer(0, 200, 0, &[100, 200])));
    assert!(queue.push(&encode_buffer(1, 200, 0, &[150, 200])));
    queue.set_complete(200);
    until("the complete events are delivered", || event_times(&delivered).len() == 4);
    // A buffer without a timestamp holds events that are older than those its processor has
    // delivered.
    assert!(queue.push(&encode_buffer(0, 0, 0, &[50, 70])));
    assert!(queue.push(&encode_buffer(0, 250, 0, &[250])));
    assert!(queue.push(&encode_buffer(1, 260, 0, &[260])));
    until("the event after a late buffer is delivered", || event_times(&delivered).len() == 5);
    assert_eq!(
        event_times(&delivered),
        [100, 150, 200, 200, 250],
        "an event was delivered although late buffers of the other processor may follow"
    );
    assert!(queue.push(&encode_buffer(1, 0, 0, &[40, 60])));
    assert!(queue.push(&encode_buffer(0, 0, 0, &[30, 45])));
    queue.set_complete(260);
    until("all late buffers are delivered", || event_times(&delivered).len() == 12);
    assert_eq!(event_times(&delivered)[5..], [30, 40, 45, 50, 60, 70, 260]);
    // The end of the session ends the wait for late buffers, too.
    assert!(queue.push(&encode_buffer(1, 0, 0, &[20])));
    assert!(queue.push(&encode_buffer(0, 300, 0, &[300])));
    queue.end();
    thread.join().unwrap().unwrap();
    assert_eq!(event_times(&delivered)[12..], [20, 300]);
}

#[test]
fn losses_precede_events_of_the_buffer_that_reports_them() {
    let session = FakeSession::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    assert!(queue.push(&encode_buffer(0, 10, 0, &[5])));
    assert!(queue.push(&encode_buffer(0, 20, BUFFER_FLAG_EVENTS_LOST, &[15])));
    // Two buffers with 30 events were lost.
    queue.set_lost(2, 30);
    assert!(queue.push(&encode_buffer(0, 30, BUFFER_FLAG_BUFFER_LOST, &[25])));
    assert!(queue.push(&encode_buffer(0, 40, BUFFER_FLAG_BUFFER_LOST, &[35])));
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    let delivered: Vec<DeliveredItem> = delivered.lock().unwrap().split_off(1);
    let event = |time| DeliveredItem::Event { trace: 0, cpu: 0, time };
    // All buffers are in the queue before the consumer reads the first, so the first buffer with a
    // flag reports the total.
    let total = DeliveredItem::Lost(Lost::new(30, 2));
    assert_eq!(delivered, [event(5), total, event(15), event(25), event(35)]);
}

#[test]
fn loss_without_following_buffer_is_reported_at_the_end() {
    let session = FakeSession::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    assert!(queue.push(&encode_buffer(0, 10, 0, &[5])));
    queue.set_lost(1, 9);
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    assert_eq!(delivered.lock().unwrap().last(), Some(&DeliveredItem::Lost(Lost::new(9, 1))));
}

#[test]
fn invalid_buffers_and_records_count_as_lost() {
    let session = FakeSession::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    let mut broken = encode_buffer(0, 20, 0, &[11, 12]);
    // A record has 80 bytes of header and 8 bytes of payload.
    let second_record = HEADER_SIZE + 88;
    // The size 0x1234 lies beyond the buffer; 0x13 and 0xC0 mark the record of an event.
    broken[second_record..second_record + 4].copy_from_slice(&[0x34, 0x12, 0x13, 0xC0]);
    assert!(queue.push(&[1, 2, 3]));
    assert!(queue.push(&broken));
    assert!(queue.push(&encode_buffer(0, 30, 0, &[])));
    assert!(queue.push(&encode_buffer(0, 30, 0, &[25])));
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    assert_eq!(event_times(&delivered), [11, 25]);
    let losses =
        delivered.lock().unwrap().iter().filter(|item| matches!(item, DeliveredItem::Lost(_))).count();
    // One for the buffer of three bytes, one for the rest of `broken`.
    assert_eq!(losses, 2);
}

#[test]
fn killed_daemon_is_an_error_after_all_delivered_events() {
    let session = FakeSession::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    assert!(queue.push(&encode_buffer(0, 100, 0, &[10, 90])));
    let (thread, delivered) = consume(vec![trace]);
    drop(session);
    drop(queue);
    let error = thread.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Transport(traceweir_transport::Error::Closed)), "{error:?}");
    assert_eq!(event_times(&delivered), [10, 90]);
}

#[test]
fn slow_consumer_gets_count_of_its_losses() {
    let session = FakeSession::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    // No consumer reads yet: the queue accepts as many buffers as it has slots.
    let (mut pushed, mut lost) = (0, 0);
    for n in 0..20_i64 {
        let flags = if lost > 0 { BUFFER_FLAG_BUFFER_LOST } else { 0 };
        if queue.push(&encode_buffer(0, n * 10 + 9, flags, &[n * 10, n * 10 + 5])) {
            pushed += 2;
        } else {
            lost += 1;
            queue.set_lost(lost, lost * 2);
        }
    }
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    assert_eq!((pushed, lost), (2 * SLOTS as usize, 20 - u64::from(SLOTS)));
    assert_eq!(event_times(&delivered).len(), pushed);
    assert_eq!(delivered.lock().unwrap().last(), Some(&DeliveredItem::Lost(Lost::new(lost * 2, lost))));
}

#[test]
fn files_and_live_sessions_cannot_be_mixed() {
    let session = FakeSession::new(1, false, 1);
    let path = session.daemon.path().join("a.etl");
    let options = Options { processors: 1, ..Default::default() };
    std::fs::write(&path, options.header_buffer().unwrap()).unwrap();
    let traces = vec![session.open().0, Trace::open(&path).unwrap()];
    let error = process(traces, |_| panic!("an item was delivered")).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_INVALID_PARAMETER);
}

#[test]
fn unknown_session_has_the_documented_status() {
    let folder = tempfile::tempdir().unwrap();
    let error = Trace::live_at(folder.path(), "other").unwrap_err();
    assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    let session = FakeSession::new(1, false, 1);
    let error = Trace::live_at(session.daemon.path(), "other").unwrap_err();
    assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
}

#[test]
fn answer_without_descriptors_or_header_is_an_error() {
    let send_answer = |connection: &Connection, request, header: Vec<u8>, has_descriptors: bool| {
        let (_writer, ends) = QueueWriter::create(1, BUFFER_BYTES).unwrap();
        let properties = Box::new(Properties::default());
        let answer = Message::Consumer { properties, slots: 1, buffer_bytes: BUFFER_BYTES, header };
        let descriptors = [ends.queue.as_fd(), ends.cursor.as_fd(), ends.signal.as_fd()];
        let sent = if has_descriptors { &descriptors[..] } else { &descriptors[..1] };
        connection.send(request, &answer, sent, TEST_TIMEOUT).unwrap();
    };
    for (bytes, has_descriptors) in [(header_buffer(1), false), (Vec::new(), true), (vec![0; 200], true)] {
        let daemon = FakeDaemon::new(move |connection, envelope| {
            send_answer(connection, envelope.request, bytes.clone(), has_descriptors)
        });
        assert!(Trace::live_at(daemon.path(), "s").is_err());
    }
}
