//! Tests that captured records are merged by time with the records of processes.

use super::*;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use rustix::event::{EventfdFlags, eventfd};
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::kernel::hook;
use traceweir_transport::clock::{Anchor, Counter, frequency};

use crate::capture::{Capture, CaptureClock, CapturedRecord};

const SECOND_CAPTURE_HOOK: u16 = 0x0021;

/// An event to capture: nanoseconds of the monotonic clock, hook id, payload.
pub(super) type PendingEvent = (u64, u16, Vec<u8>);

/// A capture of the events that the test puts into `pending`, all on the first CPU.
pub(super) struct FakeCapture {
    pub(super) pending: Arc<Mutex<VecDeque<PendingEvent>>>,
    /// Encoded records: raw stamp, whether the record is a stack, bytes.
    pub(super) queue: VecDeque<(u64, bool, Vec<u8>)>,
    pub(super) wake: OwnedFd,
    pub(super) lost: Arc<Mutex<u64>>,
    /// Hook of an event that is captured when the capture ends.
    pub(super) last_hook: Option<u16>,
}

impl FakeCapture {
    fn encode_pending(&mut self, clock: &dyn CaptureClock) {
        for (ns, hook, payload) in self.pending.lock().unwrap().drain(..) {
            let mut record = Vec::new();
            let header = PerfInfoHeader { pointer_size: 8, version: 2, hook, time: 0, counters: &[] };
            header.encode(&payload, &mut record).unwrap();
            // Without padding after the payload.
            record.truncate(0x10 + payload.len());
            self.queue.push_back((clock.raw(ns), hook == hook::STACK_WALK, record));
        }
    }
}

impl Capture for FakeCapture {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn poll(&mut self, clock: &dyn CaptureClock, _: bool) {
        self.encode_pending(clock);
    }

    fn peek(&self, stream: u16) -> Option<CapturedRecord> {
        let (raw, is_stack, record) = self.queue.front().filter(|_| stream == 0)?;
        Some(CapturedRecord { length: record.len(), raw: *raw, is_stack: *is_stack })
    }

    fn take(&mut self, _: u16, out: &mut [u8]) {
        let (_, _, record) = self.queue.pop_front().unwrap();
        out.copy_from_slice(&record[..out.len()]);
    }

    fn lost(&self) -> u64 {
        *self.lost.lock().unwrap()
    }

    fn end(&mut self, clock: &dyn CaptureClock) {
        let now = Anchor::now(Counter::best()).monotonic_ns;
        if let Some(hook) = self.last_hook.take() {
            self.pending.lock().unwrap().push_back((now, hook, vec![]));
        }
        self.encode_pending(clock);
    }
}

#[test]
fn captured_and_written_records_are_merged_with_stacks_after_events() {
    let fixture = SessionFixture::with_file(session_config(0));
    let (pending, lost) = (Arc::new(Mutex::new(VecDeque::new())), Arc::new(Mutex::new(0)));
    let wake = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let source = FakeCapture {
        pending: Arc::clone(&pending),
        queue: VecDeque::new(),
        wake,
        lost: Arc::clone(&lost),
        last_hook: Some(hook::END_GROUP_MASKS),
    };
    fixture.session.capture(Box::new(source));
    // A session ignores a second capture of kernel events, so the losses of that capture do not
    // count.
    let second = FakeCapture {
        pending: Arc::default(),
        queue: VecDeque::new(),
        wake: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
        lost: Arc::new(Mutex::new(100)),
        last_hook: Some(SECOND_CAPTURE_HOOK),
    };
    fixture.session.capture(Box::new(second));
    let writer = fixture.attach_writer(4711);
    let now = || Anchor::now(Counter::best()).monotonic_ns;
    // Each number is captured and written, in turns.
    for number in 0..50_u64 {
        // The session replaces the first word with the stamp of the event.
        let stack: Vec<u8> = [0_u64, 9, 8, 7].iter().flat_map(|word| word.to_le_bytes()).collect();
        let time = now();
        let event = (time, hook::CONTEXT_SWITCH, number.to_le_bytes().to_vec());
        pending.lock().unwrap().extend([event, (time, hook::STACK_WALK, stack)]);
        std::thread::sleep(Duration::from_micros(200));
        writer.write(number, 0).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    *lost.lock().unwrap() = 3;
    let properties = fixture.stop();
    assert_eq!(properties.events_lost, 3);
    let trace = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap();
    let (mut events, mut records, mut last) = (trace.events(), Vec::new(), 0);
    while let Some(event) = events.next().unwrap() {
        match event.hook() {
            Some(hook::CONTEXT_SWITCH) => {
                last = event.time();
                records.push(("captured", u64::from_le_bytes(*event.payload().first_chunk().unwrap())));
            }
            Some(hook::STACK_WALK) => {
                assert_eq!(i64::from_le_bytes(*event.payload().first_chunk().unwrap()), last)
            }
            Some(hook::END_GROUP_MASKS) => records.push(("end", 0)),
            Some(SECOND_CAPTURE_HOOK) => panic!("the session used a second capture"),
            Some(_) => {}
            None => records.push(("written", u64::from_le_bytes(*event.payload().first_chunk().unwrap()))),
        }
    }
    let expected = (0..50).flat_map(|number| [("captured", number), ("written", number)]);
    let expected: Vec<_> = expected.chain([("end", 0)]).collect();
    assert_eq!(records, expected);
}

#[test]
fn captured_events_keep_their_monotonic_times() {
    let fixture = SessionFixture::with_file(session_config(0));
    let start = Anchor::now(Counter::best()).monotonic_ns;
    let times: Vec<u64> = (0..200).map(|number| start + number * 997).collect();
    let source = FakeCapture {
        pending: Arc::new(Mutex::new(
            times.iter().map(|time| (*time, hook::CONTEXT_SWITCH, time.to_le_bytes().to_vec())).collect(),
        )),
        queue: VecDeque::new(),
        wake: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
        lost: Arc::default(),
        last_hook: None,
    };
    // All events are in the past when the session polls them.
    std::thread::sleep(Duration::from_millis(1));
    fixture.session.capture(Box::new(source));
    fixture.stop();
    let trace = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap();
    assert_eq!(trace.header().perf_freq, 1_000_000_000);
    // A counter with less than a tick per nanosecond rounds times up to its next tick.
    let tick_ns = 1_000_000_000_u64.div_ceil(frequency(Counter::best())).cast_signed();
    let (mut events, mut count) = (trace.events(), 0);
    while let Some(event) = events.next().unwrap() {
        if event.hook() == Some(hook::CONTEXT_SWITCH) {
            let error_ns = event.time() - i64::from_le_bytes(*event.payload().first_chunk().unwrap());
            assert!((0..tick_ns).contains(&error_ns), "{error_ns} ns");
            count += 1;
        }
    }
    assert_eq!(count, times.len());
}

#[test]
fn stack_is_dropped_with_an_event_too_large_for_a_buffer() {
    let fixture = SessionFixture::with_file(session_config(0));
    let now = Anchor::now(Counter::best()).monotonic_ns;
    let stack = |number: u64| [0, number].iter().flat_map(|word| u64::to_le_bytes(*word)).collect();
    let event = |number: u64, size: usize| {
        let mut payload = number.to_le_bytes().to_vec();
        payload.resize(size, 0);
        payload
    };
    let pending = [
        (now, hook::CONTEXT_SWITCH, event(1, 8)),
        (now, hook::STACK_WALK, stack(1)),
        (now + 1000, hook::CONTEXT_SWITCH, event(2, 20 << 10)),
        (now + 1000, hook::STACK_WALK, stack(2)),
        (now + 1000, hook::STACK_WALK, stack(2)),
        (now + 2000, hook::CONTEXT_SWITCH, event(3, 8)),
        (now + 2000, hook::STACK_WALK, stack(3)),
    ];
    let source = FakeCapture {
        pending: Arc::new(Mutex::new(pending.into())),
        queue: VecDeque::new(),
        wake: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
        lost: Arc::default(),
        last_hook: None,
    };
    fixture.session.capture(Box::new(source));
    assert_eq!(fixture.stop().events_lost, 3, "not the event and both parts of its stack");
    let trace = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap();
    let (mut events, mut records) = (trace.events(), Vec::new());
    while let Some(event) = events.next().unwrap() {
        let number = |at: usize| u64::from_le_bytes(*event.payload()[at..].first_chunk().unwrap());
        match event.hook() {
            Some(hook::CONTEXT_SWITCH) => records.push((hook::CONTEXT_SWITCH, number(0))),
            Some(hook::STACK_WALK) => records.push((hook::STACK_WALK, number(8))),
            _ => {}
        }
    }
    assert_eq!(
        records,
        [(hook::CONTEXT_SWITCH, 1), (hook::STACK_WALK, 1), (hook::CONTEXT_SWITCH, 3), (hook::STACK_WALK, 3)]
    );
}

/// A capture whose drop waits until the sender of `may_close` is dropped, like a close of perf
/// events, which can take seconds.
struct SlowClosingCapture {
    inner: FakeCapture,
    may_close: Option<Receiver<()>>,
    closed: Sender<()>,
}

impl Capture for SlowClosingCapture {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.inner.wake_fd()
    }

    fn poll(&mut self, clock: &dyn CaptureClock, includes_newer: bool) {
        self.inner.poll(clock, includes_newer);
    }

    fn peek(&self, stream: u16) -> Option<CapturedRecord> {
        self.inner.peek(stream)
    }

    fn take(&mut self, stream: u16, out: &mut [u8]) {
        self.inner.take(stream, out);
    }

    fn lost(&self) -> u64 {
        self.inner.lost()
    }

    fn end(&mut self, clock: &dyn CaptureClock) {
        self.inner.end(clock);
    }
}

impl Drop for SlowClosingCapture {
    fn drop(&mut self) {
        // `recv` fails when the sender is dropped, which allows the close; `send` fails if the test
        // has ended.
        let _ = self.may_close.take().map(|may_close| may_close.recv());
        let _ = self.closed.send(());
    }
}

#[test]
fn closing_a_capture_does_not_delay_the_stop_or_the_end_time() {
    let fixture = SessionFixture::with_file(session_config(0));
    let (close, may_close) = channel();
    let (closed, close_notices) = channel();
    let inner = FakeCapture {
        pending: Arc::default(),
        queue: VecDeque::new(),
        wake: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
        lost: Arc::default(),
        last_hook: Some(hook::END_GROUP_MASKS),
    };
    fixture.session.capture(Box::new(SlowClosingCapture { inner, may_close: Some(may_close), closed }));
    let (done, stopped) = channel();
    fixture.session.stop(Box::new(move |outcome| {
        let _ = done.send(outcome.is_ok());
    }));
    let answer = stopped.recv_timeout(Duration::from_secs(60));
    let close_allowed = Anchor::now(Counter::best()).wall;
    drop(close);
    assert_eq!(answer, Ok(true), "the stop waited for the capture to close");
    assert_eq!(close_notices.recv_timeout(Duration::from_secs(60)), Ok(()), "the capture is not closed");
    let trace = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap();
    assert!(trace.header().end_time <= close_allowed);
    let (mut events, mut last) = (trace.events(), None);
    while let Some(event) = events.next().unwrap() {
        last = event.hook().or(last);
    }
    assert_eq!(last, Some(hook::END_GROUP_MASKS), "the final rundown is not in the file");
}
