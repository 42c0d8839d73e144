//! Consumers of live sessions against a daemon that is played by hand: order, loss, closing, ends.

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
    BUFFER_FLAG_BUFFER_LOST, BUFFER_FLAG_EVENTS_LOST, BUFFER_FLAG_FLUSH_MARKER,
};
use traceweir_format::time::FileTime;
use traceweir_transport::live::QueueWriter;
use traceweir_transport::message::Message;
use traceweir_transport::socket::{Connection, Envelope};

#[path = "consumer_support/mod.rs"]
mod support;
use support::{Fake, PATIENCE, reply, until};

const BUFFER: u32 = 4096;
const SLOTS: u32 = 8;
/// Ticks a second of the sessions' clock.
const RATE: i64 = 1_000_000;
const START: i64 = 132_400_000_000_000_000;

/// A session with a daemon of its own.
struct Session {
    fake: Fake,
    queues: Receiver<QueueWriter>,
}

impl Session {
    fn new(processors: u32, low_latency: bool, flush_timer: u32) -> Self {
        let (sender, queues) = channel();
        let sender = Mutex::new(sender);
        let fake = Fake::new(move |connection, Envelope { request, message, .. }| {
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
            let (writer, ends) = QueueWriter::create(SLOTS, BUFFER).unwrap();
            sender.lock().unwrap().send(writer).unwrap();
            let config = SessionConfig { name, low_latency, flush_timer, ..Default::default() };
            let answer = Message::Consumer {
                properties: Box::new(Properties { config, ..Default::default() }),
                slots: SLOTS,
                buffer_bytes: BUFFER,
                header: header(processors),
            };
            let descriptors = [ends.queue.as_fd(), ends.cursor.as_fd(), ends.signal.as_fd()];
            connection.send(request, &answer, &descriptors, PATIENCE).unwrap();
        });
        Self { fake, queues }
    }

    fn open(&self) -> (Trace, QueueWriter) {
        let trace = Trace::open_live_at(self.fake.path(), &SessionRef::Name("s".into())).unwrap();
        (trace, self.queues.recv_timeout(PATIENCE).unwrap())
    }
}

/// The header buffer of a session whose clock is at 0 at its start.
fn header(processors: u32) -> Vec<u8> {
    let options = Options {
        buffer_size: BUFFER,
        session_name: "s".into(),
        processors,
        perf_freq: RATE,
        start_time: FileTime(START),
        ..Default::default()
    };
    options.header_buffer().unwrap()
}

/// A buffer of a processor with events at these times, flushed at `flushed`.
fn buffer(cpu: u16, flushed: i64, flags: u16, times: &[i64]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_SIZE];
    for &time in times {
        let event = EventHeader { time, provider: Guid::NULL, ..EventHeader::default() };
        event.encode(&time.to_le_bytes(), &mut bytes).unwrap();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let offset = u32::try_from(bytes.len()).unwrap();
    let head = BufferHeader {
        buffer_size: BUFFER,
        saved_offset: offset,
        current_offset: offset,
        offset,
        time_stamp: flushed,
        processor_index: cpu,
        logger_id: 1,
        flags: flags | 0x20,
        ..BufferHeader::default()
    };
    bytes[..HEADER_SIZE].copy_from_slice(&head.to_bytes());
    bytes
}

/// What was delivered.
#[derive(Clone, Debug, PartialEq)]
enum Got {
    Header,
    Event { trace: usize, cpu: u16, time: i64 },
    Lost(Lost),
}

fn got(item: &Item<'_>) -> Got {
    match item {
        Item::Lost(lost) => Got::Lost(*lost),
        Item::Event(event) if event.record.hook() == Some(0) => Got::Header,
        Item::Event(event) => {
            let time = event.record.time();
            assert_eq!(event.time, FileTime(START + time * 10), "wall time follows from the clock");
            Got::Event { trace: event.trace, cpu: event.record.cpu(), time }
        }
    }
}

/// Processes in a thread; what was delivered can be watched.
fn consume(traces: Vec<Trace>) -> (JoinHandle<traceweir::Result<()>>, Arc<Mutex<Vec<Got>>>) {
    let delivered = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&delivered);
    let thread = std::thread::spawn(move || {
        process(traces, |item| {
            sink.lock().unwrap().push(got(&item));
            ControlFlow::Continue(())
        })
    });
    (thread, delivered)
}

fn times(delivered: &Mutex<Vec<Got>>) -> Vec<i64> {
    let time = |got: &Got| if let Got::Event { time, .. } = got { Some(*time) } else { None };
    delivered.lock().unwrap().iter().filter_map(time).collect()
}

#[test]
fn the_header_comes_first_and_a_stopped_session_ends_cleanly_after_its_last_event() {
    let session = Session::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    assert_eq!((trace.header().session_name.as_str(), trace.header().processors), ("s", 2));
    assert!(queue.push(&buffer(1, 50, 0, &[20, 40])));
    assert!(queue.push(&buffer(0, 60, 0, &[10, 30, 55])));
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    assert_eq!(delivered.lock().unwrap().first(), Some(&Got::Header));
    assert_eq!(times(&delivered), [10, 20, 30, 40, 55]);
}

#[test]
fn processors_are_waited_for_until_all_have_come_that_far() {
    let session = Session::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&buffer(0, 100, 0, &[10, 30, 90])));
    // The other processor is complete up to 40 now: 10, 20 and 30 are safe, 90 is not.
    assert!(queue.push(&buffer(1, 40, 0, &[20])));
    until("what is safe", || times(&delivered).len() == 3);
    assert!(queue.push(&buffer(1, 200, 0, &[50])));
    until("the rest", || times(&delivered).len() == 5);
    assert_eq!(times(&delivered), [10, 20, 30, 50, 90]);
    queue.end();
    thread.join().unwrap().unwrap();
}

#[test]
fn a_flush_shows_that_the_flushes_before_it_are_complete_also_where_processors_are_idle() {
    let session = Session::new(64, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&buffer(7, 90, 0, &[30, 90])));
    assert!(queue.push(&buffer(9, 60, BUFFER_FLAG_FLUSH_MARKER, &[20, 60])));
    // Between the looks at two processors the first may have written something earlier than what the second wrote.
    assert!(queue.push(&buffer(7, 150, 0, &[95, 150])));
    assert!(queue.push(&buffer(9, 140, BUFFER_FLAG_FLUSH_MARKER, &[80, 140])));
    until("all of the first flush", || times(&delivered).len() >= 5);
    assert_eq!(times(&delivered), [20, 30, 60, 80, 90]);
    queue.end();
    thread.join().unwrap().unwrap();
    assert_eq!(times(&delivered), [20, 30, 60, 80, 90, 95, 140, 150]);
}

#[test]
fn a_queue_says_outright_how_far_all_processors_are_complete() {
    let session = Session::new(64, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&buffer(7, 90, 0, &[30, 90])));
    queue.set_complete(70);
    until("what is complete", || !times(&delivered).is_empty());
    assert_eq!(times(&delivered), [30]);
    queue.end();
    thread.join().unwrap().unwrap();
}

#[test]
fn without_marks_an_event_is_held_for_the_flush_timer_at_most() {
    for low_latency in [false, true] {
        let session = Session::new(64, low_latency, 1);
        let (trace, mut queue) = session.open();
        let (thread, delivered) = consume(vec![trace]);
        assert!(queue.push(&buffer(7, 100, 0, &[90])));
        until("it to be old enough", || times(&delivered) == [90]);
        drop(queue);
        assert!(thread.join().unwrap().is_err());
    }
}

#[test]
fn made_up_stamps_keep_their_value_and_move_nobody_else() {
    let session = Session::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    assert!(queue.push(&buffer(0, 100, 0, &[10, 999_999, -5, 40])));
    assert!(queue.push(&buffer(1, 100, 0, &[20, 60, 80])));
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    let of_cpu_0: Vec<i64> = times(&delivered).into_iter().filter(|t| ![20, 60, 80].contains(t)).collect();
    assert_eq!(of_cpu_0, [10, 999_999, -5, 40], "the order of one processor is kept");
    let of_cpu_1: Vec<i64> = times(&delivered).into_iter().filter(|t| [20, 60, 80].contains(t)).collect();
    assert_eq!(of_cpu_1, [20, 60, 80]);
}

#[test]
fn losses_come_before_the_events_of_the_buffer_that_tells_of_them() {
    let session = Session::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    assert!(queue.push(&buffer(0, 10, 0, &[5])));
    assert!(queue.push(&buffer(0, 20, BUFFER_FLAG_EVENTS_LOST, &[15])));
    queue.set_lost(2, 30);
    assert!(queue.push(&buffer(0, 30, BUFFER_FLAG_BUFFER_LOST, &[25])));
    assert!(queue.push(&buffer(0, 40, BUFFER_FLAG_BUFFER_LOST, &[35])));
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    let delivered: Vec<Got> = delivered.lock().unwrap().split_off(1);
    let event = |time| Got::Event { trace: 0, cpu: 0, time };
    // All was pushed before the first look, so the first buffer with a flag tells the whole count.
    let whole = Got::Lost(Lost { events: 30, buffers: 2 });
    assert_eq!(delivered, [event(5), whole, event(15), event(25), event(35)]);
}

#[test]
fn a_loss_that_no_buffer_follows_is_told_at_the_end() {
    let session = Session::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    assert!(queue.push(&buffer(0, 10, 0, &[5])));
    queue.set_lost(1, 9);
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    assert_eq!(delivered.lock().unwrap().last(), Some(&Got::Lost(Lost { events: 9, buffers: 1 })));
}

#[test]
fn bytes_that_are_no_buffer_or_no_record_are_a_loss_and_nothing_worse() {
    let session = Session::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    let mut broken = buffer(0, 20, 0, &[11, 12]);
    let second = HEADER_SIZE + 88;
    broken[second..second + 4].copy_from_slice(&[0x34, 0x12, 0x13, 0xC0]);
    assert!(queue.push(&[1, 2, 3]));
    assert!(queue.push(&broken));
    assert!(queue.push(&buffer(0, 30, 0, &[])));
    assert!(queue.push(&buffer(0, 30, 0, &[25])));
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    assert_eq!(times(&delivered), [11, 25]);
    let losses = delivered.lock().unwrap().iter().filter(|g| matches!(g, Got::Lost(_))).count();
    assert_eq!(losses, 2);
}

#[test]
fn a_daemon_that_dies_is_an_error_after_everything_it_delivered() {
    let session = Session::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    assert!(queue.push(&buffer(0, 100, 0, &[10, 90])));
    let (thread, delivered) = consume(vec![trace]);
    drop(session);
    drop(queue);
    let error = thread.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Transport(traceweir_transport::Error::Closed)), "{error:?}");
    assert_eq!(times(&delivered), [10, 90]);
}

#[test]
fn two_sessions_are_merged_by_wall_time() {
    let (first, second) = (Session::new(1, false, 1000), Session::new(1, false, 1000));
    let ((a, mut queue_a), (b, mut queue_b)) = (first.open(), second.open());
    let (thread, delivered) = consume(vec![a, b]);
    assert!(queue_a.push(&buffer(0, 50, 0, &[10, 30, 50])));
    assert!(queue_b.push(&buffer(0, 45, 0, &[20, 40])));
    until("what both are complete for", || times(&delivered).len() == 4);
    queue_b.end();
    until("the rest", || times(&delivered).len() == 5);
    queue_a.end();
    thread.join().unwrap().unwrap();
    assert_eq!(times(&delivered), [10, 20, 30, 40, 50]);
    let traces: Vec<usize> = delivered
        .lock()
        .unwrap()
        .iter()
        .filter_map(|g| if let Got::Event { trace, .. } = g { Some(*trace) } else { None })
        .collect();
    assert_eq!(traces, [0, 1, 0, 1, 0]);
}

#[test]
fn no_callback_is_made_after_close_returned() {
    for _ in 0..20 {
        let session = Session::new(1, true, 1);
        let (trace, mut queue) = session.open();
        let closer = trace.closer();
        let (closed, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (was_closed, counter) = (Arc::clone(&closed), Arc::clone(&seen));
        let consumer = std::thread::spawn(move || {
            process(vec![trace], |_| {
                assert!(!was_closed.load(Ordering::SeqCst), "called after close");
                counter.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                assert!(!was_closed.load(Ordering::SeqCst), "close returned during a callback");
                ControlFlow::Continue(())
            })
        });
        let mut time = 0;
        until("some events", || {
            time += 10;
            queue.push(&buffer(0, time, 0, &[time - 5; 20]));
            seen.load(Ordering::SeqCst) > 30
        });
        closer.close();
        closed.store(true, Ordering::SeqCst);
        queue.push(&buffer(0, time + 10, 0, &[time; 20]));
        consumer.join().unwrap().unwrap();
    }
}

#[test]
fn close_ends_a_consumer_that_waits_and_one_that_has_not_begun() {
    let session = Session::new(1, false, 1000);
    let (trace, _queue) = session.open();
    let closer = trace.closer();
    let (thread, delivered) = consume(vec![trace]);
    until("the header", || !delivered.lock().unwrap().is_empty());
    closer.close();
    thread.join().unwrap().unwrap();

    let (trace, mut queue) = session.open();
    assert!(queue.push(&buffer(0, 10, 0, &[5])));
    trace.closer().close();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    assert!(delivered.lock().unwrap().is_empty());
}

#[test]
fn close_from_within_the_callback_returns_and_nothing_follows() {
    let session = Session::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    let closer = trace.closer();
    assert!(queue.push(&buffer(0, 100, 0, &[10, 20, 30])));
    let mut seen = Vec::new();
    process(vec![trace], |item| {
        seen.push(got(&item));
        if seen.len() == 2 {
            closer.close();
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen, [Got::Header, Got::Event { trace: 0, cpu: 0, time: 10 }]);
}

#[test]
fn closing_one_of_two_lets_the_other_go_on() {
    let (first, second) = (Session::new(1, false, 1000), Session::new(1, false, 1000));
    let ((a, mut queue_a), (b, mut queue_b)) = (first.open(), second.open());
    let closer = b.closer();
    assert!(queue_b.push(&buffer(0, 10, 0, &[5])));
    assert!(queue_a.push(&buffer(0, 20, 0, &[15])));
    let (thread, delivered) = consume(vec![a, b]);
    until("the first", || times(&delivered) == [5]);
    closer.close();
    until("the other's", || times(&delivered) == [5, 15]);
    queue_a.end();
    thread.join().unwrap().unwrap();
}

#[test]
fn a_callback_that_breaks_or_panics_closes_the_connection() {
    let session = Session::new(1, false, 1000);
    let (trace, _queue) = session.open();
    process(vec![trace], |_| ControlFlow::Break(())).unwrap();

    let (trace, _queue) = session.open();
    let closer = trace.closer();
    let panicked = catch_unwind(AssertUnwindSafe(|| process(vec![trace], |_| panic!("on purpose"))));
    assert!(panicked.is_err());
    // The gate is open and this thread is outside of callbacks again: this returns.
    closer.close();
}

#[test]
fn a_slow_consumer_is_told_what_it_lost() {
    let session = Session::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    // Nobody reads yet: the queue takes what it has slots for.
    let (mut pushed, mut lost) = (0, 0);
    for n in 0..20_i64 {
        let flags = if lost > 0 { BUFFER_FLAG_BUFFER_LOST } else { 0 };
        if queue.push(&buffer(0, n * 10 + 9, flags, &[n * 10, n * 10 + 5])) {
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
    assert_eq!(times(&delivered).len(), pushed);
    assert_eq!(delivered.lock().unwrap().last(), Some(&Got::Lost(Lost { events: lost * 2, buffers: lost })));
}

/// A small generator: the same numbers in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn whatever_the_processors_do_the_order_is_that_of_time_and_nothing_is_missing() {
    for seed in 0..20 {
        let session = Session::new(4, false, 1000);
        let (trace, mut queue) = session.open();
        let (thread, delivered) = consume(vec![trace]);
        let (mut dice, mut now, mut written) = (Dice(seed), 0_i64, Vec::new());
        let mut waiting: [Vec<i64>; 4] = Default::default();
        let mut push = |bytes: Vec<u8>| until("room in the queue", || queue.push(&bytes));
        for _ in 0..400 {
            now += i64::try_from(dice.below(5)).unwrap() + 1;
            let cpu = usize::try_from(dice.below(4)).unwrap();
            waiting[cpu].push(now);
            written.push(now);
            // A buffer runs full, or all are flushed.
            let full = waiting[cpu].len() > 12;
            let flush = dice.below(40) == 0;
            let cpus = if flush { 0..4 } else { cpu..cpu + 1 };
            let last = cpus.clone().rev().find(|&c| !waiting[c].is_empty());
            for c in cpus.filter(|_| full || flush) {
                let marker = if flush && Some(c) == last { BUFFER_FLAG_FLUSH_MARKER } else { 0 };
                let times = std::mem::take(&mut waiting[c]);
                if !times.is_empty() {
                    push(buffer(u16::try_from(c).unwrap(), now, marker, &times));
                }
            }
        }
        for (c, times) in waiting.iter().enumerate() {
            push(buffer(u16::try_from(c).unwrap(), now, 0, times));
        }
        queue.end();
        thread.join().unwrap().unwrap();
        assert_eq!(times(&delivered), written, "seed {seed}");
    }
}

#[test]
fn files_and_live_sessions_are_not_mixed() {
    let session = Session::new(1, false, 1);
    let path = session.fake.path().join("a.etl");
    let options = Options { processors: 1, ..Default::default() };
    std::fs::write(&path, options.header_buffer().unwrap()).unwrap();
    let traces = vec![session.open().0, Trace::open_file(&path).unwrap()];
    let error = process(traces, |_| panic!("nothing is delivered")).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_INVALID_PARAMETER);
}

#[test]
fn sessions_that_are_not_there_have_the_published_status() {
    let folder = tempfile::tempdir().unwrap();
    let name = SessionRef::Name("other".into());
    let error = Trace::open_live_at(folder.path(), &name).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    let session = Session::new(1, false, 1);
    let error = Trace::open_live_at(session.fake.path(), &name).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
}

#[test]
fn an_answer_without_its_descriptors_or_header_is_an_error() {
    let answer = |connection: &Connection, request, header: Vec<u8>, descriptors: bool| {
        let (_writer, ends) = QueueWriter::create(1, BUFFER).unwrap();
        let properties = Box::new(Properties::default());
        let answer = Message::Consumer { properties, slots: 1, buffer_bytes: BUFFER, header };
        let all = [ends.queue.as_fd(), ends.cursor.as_fd(), ends.signal.as_fd()];
        let sent = if descriptors { &all[..] } else { &all[..1] };
        connection.send(request, &answer, sent, PATIENCE).unwrap();
    };
    for (bytes, descriptors) in [(header(1), false), (Vec::new(), true), (vec![0; 200], true)] {
        let fake = Fake::new(move |c, e| answer(c, e.request, bytes.clone(), descriptors));
        assert!(Trace::open_live_at(fake.path(), &SessionRef::Id(1)).is_err());
    }
}
