//! Tests of panics: the session ends, requests are answered, and each unwritten event is counted.

use super::*;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::kernel::hook;
use traceweir_transport::clock::{Anchor, Counter};

use crate::capture::{Capture, CaptureClock, CapturedRecord};

/// A capture that panics in one of its calls, and when it is dropped.
struct PanickingCapture {
    wake: OwnedFd,
    /// Polls before the one that panics.
    polls: u32,
    panics_at_end: bool,
}

impl PanickingCapture {
    fn boxed(polls: u32, panics_at_end: bool) -> Box<Self> {
        Box::new(Self { wake: eventfd(0, EventfdFlags::NONBLOCK).unwrap(), polls, panics_at_end })
    }
}

impl Capture for PanickingCapture {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn poll(&mut self, _: &dyn CaptureClock, _: bool) {
        self.polls = self.polls.checked_sub(1).expect("panic of the test");
    }

    fn peek(&self, _: u16) -> Option<CapturedRecord> {
        None
    }

    fn take(&mut self, _: u16, _: &mut [u8]) {}

    fn lost(&self) -> u64 {
        0
    }

    fn end(&mut self, _: &dyn CaptureClock) {
        assert!(!self.panics_at_end, "panic of the test at the end");
    }
}

impl Drop for PanickingCapture {
    fn drop(&mut self) {
        panic!("panic of the test in drop");
    }
}

#[test]
fn collector_panic_ends_the_session_and_finishes_the_file() {
    let fixture = SessionFixture::with_file(session_config(0));
    let writer = fixture.attach_writer(4711);
    (0..3).for_each(|number| writer.write(number, 0).unwrap());
    fixture.flush();
    fixture.session.capture(PanickingCapture::boxed(0, false));
    assert_eq!(
        fixture.ended.recv_timeout(TIMEOUT).expect("the session did not end"),
        Ended { status: crate::FAULT }
    );
    assert!(matches!(wait_for_reply(|done| fixture.session.flush(None, done)), Err(Error::Ended)));
    assert_eq!(fixture.stop().end_status, crate::FAULT.0);
    assert!(
        matches!(wait_for_reply(|done| fixture.session.stop(done)), Err(Error::Ended)),
        "the stop was answered twice"
    );
    assert_eq!(read_numbers(&fixture.log_path()), [0, 1, 2]);
}

#[test]
fn collector_panic_counts_events_in_partly_filled_buffers_as_lost() {
    let fixture = SessionFixture::with_file(session_config(0));
    let writer = fixture.attach_writer(4711);
    fixture.session.capture(PanickingCapture::boxed(u32::MAX, true));
    (0..3).for_each(|number| writer.write(number, 0).unwrap());
    let deadline = std::time::Instant::now() + TIMEOUT;
    while fixture.session.properties().events < 3 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let properties = fixture.stop();
    assert_eq!((properties.end_status, properties.lost_by_cause.not_written), (crate::FAULT.0, 3));
    assert_eq!(properties.processes, 0, "regions are not dropped");
    assert_eq!(read_numbers(&fixture.log_path()), []);
}

#[test]
fn writer_panic_ends_the_session_and_leaves_the_file_unfinalised() {
    let fixture = SessionFixture::with_file(session_config(0));
    let writer = fixture.attach_writer(4711);
    (0..3).for_each(|number| writer.write(number, 0).unwrap());
    fixture.flush();
    fixture.session.flush(None, Box::new(|_| panic!("panic of the test on the writer thread")));
    assert_eq!(
        fixture.ended.recv_timeout(TIMEOUT).expect("the session did not end"),
        Ended { status: crate::FAULT }
    );
    assert!(matches!(wait_for_reply(|done| fixture.session.flush(None, done)), Err(Error::Ended)));
    // More than all buffers hold: the collector must not wait for a writer that has ended.
    for number in 0..20_000 {
        let _ = writer.write(number, 0);
    }
    let properties = fixture.stop();
    assert_eq!(properties.end_status, crate::FAULT.0);
    assert!(properties.lost_by_cause.not_written > 0, "{properties:?}");
    assert_eq!(count_unfinalised(&fixture.log_path()), 3);
    assert_eq!(properties.events, 3 + properties.lost_by_cause.not_written);
    assert!(properties.number_of_buffers <= properties.config.maximum_buffers, "{properties:?}");
}

/// Returns the number of events in a file that is not finalised.
fn count_unfinalised(path: &Path) -> u64 {
    let trace = Trace::open(File::open(path).unwrap()).unwrap();
    let (mut events, mut count) = (trace.events(), 0);
    while let Some(event) = events.next().unwrap() {
        count += u64::from(event.hook().is_none());
    }
    count
}

/// Makes the writer wait until the returned sender is dropped, so that later jobs queue up.
fn block_writer(fixture: &SessionFixture) -> std::sync::mpsc::Sender<()> {
    let (release, released) = channel::<()>();
    fixture.session.flush(
        None,
        Box::new(move |_| {
            let _ = released.recv();
        }),
    );
    release
}

/// Requests a stop and waits until it is in the writer's queue, after the last buffers.
fn request_queued_stop(fixture: &SessionFixture) -> Receiver<Result<Properties>> {
    let (sender, answers) = channel();
    fixture.session.stop(Box::new(move |answer| drop(sender.send(answer))));
    // Requests are refused once the last buffers are submitted; the stop follows at once.
    while !matches!(wait_for_reply(|done| fixture.session.increment(done)), Err(Error::Ended)) {}
    std::thread::sleep(Duration::from_millis(50));
    answers
}

#[test]
fn writer_panic_on_last_buffers_still_answers_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("part-1.etl");
    let log_file = Some(folder.path().join("part-%d.etl"));
    let config = SessionConfig {
        log_file,
        maximum_file_size: 64,
        minimum_buffers: 64,
        ..session_config(NEWFILE | KBYTES)
    };
    let next: NextFile = Box::new(|_| panic!("panic of the test"));
    let fixture = SessionFixture::start_with_sequence(config, open_file(&first), folder, next);
    let release = block_writer(&fixture);
    let writer = fixture.attach_writer(4711);
    // About seven buffers, of which three fit into the file.
    (0..100).for_each(|number| writer.write(number, 1000).unwrap());
    let answers = request_queued_stop(&fixture);
    drop(release);
    let properties = answers.recv_timeout(TIMEOUT).unwrap().expect("the stop failed");
    assert_eq!(fixture.ended.recv_timeout(TIMEOUT).unwrap(), Ended { status: crate::FAULT });
    assert_eq!(properties.end_status, crate::FAULT.0);
    let (written, lost) = (count_unfinalised(&first), properties.lost_by_cause.not_written);
    assert!(written > 0 && lost > 0, "{written} {lost}");
    assert_eq!(
        (properties.events, written + lost),
        (100, 100),
        "buffers that the writer had are not counted"
    );
    assert_eq!(properties.number_of_buffers, properties.free_buffers, "buffers are missing in the pool");
}

#[test]
fn writer_panic_counts_flight_recorder_history_as_lost() {
    let fixture =
        SessionFixture::with_file(SessionConfig { minimum_buffers: 64, ..session_config(BUFFERING) });
    let writer = fixture.attach_writer(4711);
    (0..100).for_each(|number| writer.write(number, 1000).unwrap());
    fixture.session.flush(None, Box::new(|_| panic!("panic of the test on the writer thread")));
    assert_eq!(
        fixture.ended.recv_timeout(TIMEOUT).expect("the session did not end"),
        Ended { status: crate::FAULT }
    );
    let properties = fixture.stop();
    assert_eq!((properties.events, properties.lost_by_cause.not_written), (100, 100));
}

/// A capture that panics when the fourth record is taken, and reports seven lost records.
struct PanicsOnFourthRecord {
    wake: OwnedFd,
    raw: Option<u64>,
    taken: u32,
}

impl Capture for PanicsOnFourthRecord {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn poll(&mut self, clock: &dyn CaptureClock, _: bool) {
        self.raw.get_or_insert_with(|| clock.raw(Anchor::now(Counter::best()).monotonic_ns));
    }

    fn peek(&self, stream: u16) -> Option<CapturedRecord> {
        let raw = self.raw.filter(|_| stream == 0)?;
        // `take` writes a header of 16 bytes and a payload of 8.
        Some(CapturedRecord { length: 0x18, raw, is_stack: false })
    }

    fn take(&mut self, _: u16, out: &mut [u8]) {
        self.taken += 1;
        assert!(self.taken < 4, "panic of the test");
        let header = PerfInfoHeader {
            pointer_size: 8,
            version: 2,
            hook: hook::CONTEXT_SWITCH,
            time: 0,
            counters: &[],
        };
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
fn collector_panic_in_a_drain_counts_collected_events_as_lost() {
    let fixture = SessionFixture::with_file(session_config(0));
    let wake = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    fixture.session.capture(Box::new(PanicsOnFourthRecord { wake, raw: None, taken: 0 }));
    assert_eq!(
        fixture.ended.recv_timeout(TIMEOUT).expect("the session did not end"),
        Ended { status: crate::FAULT }
    );
    let properties = fixture.stop();
    let lost = properties.lost_by_cause;
    assert_eq!((properties.events, lost.not_written, lost.no_room), (3, 3, 7));
}
