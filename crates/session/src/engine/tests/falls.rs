//! A thread of a session panics: the session ends, whoever asks is answered, and everything is counted.

use super::*;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_transport::clock::{Anchor, Counter};

use crate::capture::{Capture, CaptureClock, Captured};

/// Panics at one of its calls, and when it is dropped.
struct Stumbling {
    wake: OwnedFd,
    looks: u32,
    at_end: bool,
}

impl Stumbling {
    fn boxed(looks: u32, at_end: bool) -> Box<Self> {
        Box::new(Self { wake: eventfd(0, EventfdFlags::NONBLOCK).unwrap(), looks, at_end })
    }
}

impl Capture for Stumbling {
    fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn look(&mut self, _: &dyn CaptureClock, _: bool) {
        self.looks = self.looks.checked_sub(1).expect("it stumbles");
    }

    fn peek(&self, _: u16) -> Option<Captured> {
        None
    }

    fn take(&mut self, _: u16, _: &mut [u8]) {}

    fn lost(&self) -> u64 {
        0
    }

    fn end(&mut self, _: &dyn CaptureClock) {
        assert!(!self.at_end, "it stumbles at the end");
    }
}

impl Drop for Stumbling {
    fn drop(&mut self) {
        panic!("and when it goes");
    }
}

#[test]
fn a_collector_that_panics_ends_its_session_and_the_file_holds_what_was_written() {
    let stage = Stage::with_file(properties(0));
    let pen = stage.pen(4711);
    (0..3).for_each(|number| pen.write(number, 0).unwrap());
    stage.flush();
    stage.session.capture(Stumbling::boxed(0, false));
    assert_eq!(stage.ended.recv_timeout(PATIENCE).expect("it ends"), Ended { status: crate::FAULT });
    assert!(matches!(answer(|done| stage.session.flush(None, done)), Err(Error::Ended)));
    assert_eq!(stage.stop().end_status, crate::FAULT.0);
    assert!(matches!(answer(|done| stage.session.stop(done)), Err(Error::Ended)), "once");
    assert_eq!(numbers(&stage.log()), [0, 1, 2]);
}

#[test]
fn a_collector_that_panics_counts_what_it_was_filling() {
    let stage = Stage::with_file(properties(0));
    let pen = stage.pen(4711);
    stage.session.capture(Stumbling::boxed(u32::MAX, true));
    (0..3).for_each(|number| pen.write(number, 0).unwrap());
    let deadline = std::time::Instant::now() + PATIENCE;
    while stage.session.properties().events < 3 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let properties = stage.stop();
    assert_eq!((properties.end_status, properties.lost_by_cause.not_written), (crate::FAULT.0, 3));
    assert_eq!(properties.processes, 0, "regions are given up");
    assert_eq!(numbers(&stage.log()), []);
}

#[test]
fn a_writer_that_panics_ends_its_session_and_leaves_the_file_as_it_is() {
    let stage = Stage::with_file(properties(0));
    let pen = stage.pen(4711);
    (0..3).for_each(|number| pen.write(number, 0).unwrap());
    stage.flush();
    stage.session.flush(None, Box::new(|_| panic!("on the writer's thread")));
    assert_eq!(stage.ended.recv_timeout(PATIENCE).expect("it ends"), Ended { status: crate::FAULT });
    assert!(matches!(answer(|done| stage.session.flush(None, done)), Err(Error::Ended)));
    // More than all buffers hold: the collector is not to wait for a writer that is gone.
    for number in 0..20_000 {
        let _ = pen.write(number, 0);
    }
    let properties = stage.stop();
    assert_eq!(properties.end_status, crate::FAULT.0);
    assert!(properties.lost_by_cause.not_written > 0, "{properties:?}");
    assert_eq!(left_in(&stage.log()), 3);
    assert_eq!(properties.events, 3 + properties.lost_by_cause.not_written);
    assert!(properties.number_of_buffers <= properties.config.maximum_buffers, "{properties:?}");
}

/// How many events a file has that nobody has finished.
fn left_in(path: &Path) -> u64 {
    let trace = Trace::open(File::open(path).unwrap()).unwrap();
    let (mut events, mut seen) = (trace.events(), 0);
    while let Some(event) = events.next().unwrap() {
        seen += u64::from(event.hook().is_none());
    }
    seen
}

/// Has the writer wait until what comes behind is queued: the way on.
fn hold_writer(stage: &Stage) -> std::sync::mpsc::Sender<()> {
    let (go, wait) = channel::<()>();
    stage.session.flush(
        None,
        Box::new(move |_| {
            let _ = wait.recv();
        }),
    );
    go
}

/// A request to stop that has come to the writer's queue, behind the last buffers.
fn stop_queued(stage: &Stage) -> Receiver<Result<Properties>> {
    let (tell, told) = channel();
    stage.session.stop(Box::new(move |answer| drop(tell.send(answer))));
    // Nothing more is taken once the last buffers are out; the stop follows them at once.
    while !matches!(answer(|done| stage.session.increment(done)), Err(Error::Ended)) {}
    std::thread::sleep(Duration::from_millis(50));
    told
}

#[test]
fn a_writer_that_panics_over_the_last_buffers_answers_the_stop_behind_them() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("row-1.etl");
    let log_file = Some(folder.path().join("row-%d.etl"));
    let raw =
        SessionConfig { log_file, maximum_file_size: 64, minimum_buffers: 64, ..properties(8 | 0x2000) };
    let next: NextFile = Box::new(|_| panic!("a test makes it"));
    let stage = Stage::start_row(raw, open(&first), folder, next);
    let go = hold_writer(&stage);
    let pen = stage.pen(4711);
    // Some seven buffers, of which three fit the file.
    (0..100).for_each(|number| pen.write(number, 1000).unwrap());
    let told = stop_queued(&stage);
    drop(go);
    let properties = told.recv_timeout(PATIENCE).unwrap().expect("an answer as to any stop");
    assert_eq!(stage.ended.recv_timeout(PATIENCE).unwrap(), Ended { status: crate::FAULT });
    assert_eq!(properties.end_status, crate::FAULT.0);
    let (written, lost) = (left_in(&first), properties.lost_by_cause.not_written);
    assert!(written > 0 && lost > 0, "{written} {lost}");
    assert_eq!((properties.events, written + lost), (100, 100), "what was in hand is counted");
    assert_eq!(properties.number_of_buffers, properties.free_buffers, "and back in the pool");
}

#[test]
fn what_a_flight_recorder_keeps_is_counted_when_its_writer_panics() {
    let stage = Stage::with_file(SessionConfig { minimum_buffers: 64, ..properties(0x400) });
    let pen = stage.pen(4711);
    (0..100).for_each(|number| pen.write(number, 1000).unwrap());
    stage.session.flush(None, Box::new(|_| panic!("on the writer's thread")));
    assert_eq!(stage.ended.recv_timeout(PATIENCE).expect("it ends"), Ended { status: crate::FAULT });
    let properties = stage.stop();
    assert_eq!((properties.events, properties.lost_by_cause.not_written), (100, 100));
}

/// Panics when the fourth record is taken, and has lost seven.
struct Partway {
    wake: OwnedFd,
    raw: Option<u64>,
    taken: u32,
}

impl Capture for Partway {
    fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn look(&mut self, clock: &dyn CaptureClock, _: bool) {
        self.raw.get_or_insert_with(|| clock.raw(Anchor::now(Counter::best()).monotonic_ns));
    }

    fn peek(&self, stream: u16) -> Option<Captured> {
        let raw = self.raw.filter(|_| stream == 0)?;
        Some(Captured { length: 0x18, raw, is_stack: false })
    }

    fn take(&mut self, _: u16, out: &mut [u8]) {
        self.taken += 1;
        assert!(self.taken < 4, "it stumbles");
        let header = PerfInfoHeader { pointer_size: 8, version: 2, hook: 0x0524, time: 0, counters: &[] };
        let mut record = Vec::new();
        header.encode(&[0; 8], &mut record).unwrap();
        out.copy_from_slice(&record[..out.len()]);
    }

    fn lost(&self) -> u64 {
        7
    }

    fn end(&mut self, _: &dyn CaptureClock) {}
}

#[test]
fn a_collector_that_panics_within_a_drain_has_counted_what_it_took() {
    let stage = Stage::with_file(properties(0));
    let wake = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    stage.session.capture(Box::new(Partway { wake, raw: None, taken: 0 }));
    assert_eq!(stage.ended.recv_timeout(PATIENCE).expect("it ends"), Ended { status: crate::FAULT });
    let properties = stage.stop();
    let lost = properties.lost_by_cause;
    assert_eq!((properties.events, lost.not_written, lost.no_room), (3, 3, 7));
}
