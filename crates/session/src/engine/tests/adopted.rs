//! Tests of regions that processes created before the session adopted them, in each kind of log.

use super::*;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsFd;
use traceweir_transport::ring::create_memory;

/// Events that the early and the attached process together write before the adoption.
const EARLY_EVENTS: u64 = 40;

/// A process that writes to its region before a session adopts the region.
struct EarlyProcess {
    writer: TestWriter,
    memory: OwnedFd,
    params: RegionParams,
}

impl SessionFixture {
    fn start_early_process(&self) -> EarlyProcess {
        let params = self.session.next_region().expect("the next region has no rings");
        let memory = create_memory(&params).expect("the region memory cannot be created");
        let wake =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("no eventfd could be created");
        let outlet: &'static Outlet = Box::leak(Box::new(Outlet::new()));
        let source = RegionSource::File {
            memory: memory.try_clone().expect("the descriptor cannot be duplicated"),
            wake,
        };
        let ticket = outlet.open(source, &params).expect("the outlet did not open the region");
        let writer = TestWriter { outlet, ticket, region: RegionId(0) };
        EarlyProcess { writer, memory, params }
    }

    /// An attached and an early process write in turns. After a flush and a call of
    /// `before_adoption`, the session adopts the region of the early process, which then writes one
    /// more event.
    fn write_and_adopt(&self, before_adoption: impl FnOnce()) {
        let (early, attached) = (self.start_early_process(), self.attach_writer(1));
        for number in (0..EARLY_EVENTS).step_by(2) {
            early.writer.write(number, 0).expect("the event was not written");
            attached.write(number + 1, 0).expect("the event was not written");
        }
        self.flush();
        before_adoption();
        self.session
            .adopt(early.memory.as_fd(), &early.params, 2, ThreadIdMapping::AsGiven, false)
            .expect("the session did not adopt the region");
        self.flush();
        early.writer.write(EARLY_EVENTS, 0).expect("the event was not written");
    }
}

/// Asserts that all events are in the file, in the order in which they were written.
/// Late buffers may have lower stamps than the buffers before them.
fn assert_in_order(path: &Path) {
    let events = read_log_except(path, &[Rule::TimeAcrossBuffers]);
    let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (0..=EARLY_EVENTS).collect::<Vec<_>>(), "{}", path.display());
    assert!(events.is_sorted_by(|before, after| before.stamp < after.stamp), "{events:?}");
}

#[test]
fn adopted_events_are_read_in_time_order_in_every_log_mode() {
    for mode in [
        SEQUENTIAL,
        CIRCULAR | KBYTES,
        SEQUENTIAL | REAL_TIME,
        SEQUENTIAL | ONE_STREAM,
        SEQUENTIAL | COMPRESSED,
        BUFFERING,
    ] {
        let config = SessionConfig { maximum_file_size: 4096, minimum_buffers: 12, ..session_config(mode) };
        let fixture = SessionFixture::with_file(config);
        fixture.write_and_adopt(|| {});
        let end = fixture.stop();
        assert_eq!((end.events, end.events_lost), (EARLY_EVENTS + 1, 0), "mode {mode:#x}");
        assert_in_order(&fixture.log_path());
    }
}

#[test]
fn flight_recorder_sorts_backlogs_adopted_in_reverse_order() {
    let fixture =
        SessionFixture::with_file(SessionConfig { minimum_buffers: 12, ..session_config(BUFFERING) });
    let (attached, early) = (fixture.attach_writer(1), [(); 10].map(|()| fixture.start_early_process()));
    let mut numbers = 0..;
    for _ in 0..4 {
        for writer in early.iter().map(|early| &early.writer).chain([&attached]) {
            writer.write(numbers.next().unwrap(), 0).expect("the event was not written");
        }
    }
    fixture.flush();
    for (process, early) in (2..).zip(early.iter().rev()) {
        let (memory, thread_ids) = (early.memory.as_fd(), ThreadIdMapping::AsGiven);
        let adopted = fixture.session.adopt(memory, &early.params, process, thread_ids, false);
        adopted.expect("the session did not adopt the region");
        fixture.flush();
    }
    fixture.stop();
    // Stamps may decrease from one buffer to the next, but not within a buffer.
    let events = read_log_except(&fixture.log_path(), &[Rule::TimeAcrossBuffers]);
    let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
    // Four events of each of eleven processes.
    assert_eq!(numbers, (0..44).collect::<Vec<_>>());
}

#[test]
fn snapshot_contains_adopted_events_in_partial_buffers() {
    let fixture =
        SessionFixture::with_file(SessionConfig { minimum_buffers: 12, ..session_config(BUFFERING) });
    fixture.write_and_adopt(|| {});
    let path = fixture.folder.path().join("snapshot.etl");
    let file = open_file(&path);
    wait_for_reply(|done| fixture.session.flush(Some((file, path.clone())), done)).unwrap();
    assert_in_order(&path);
    fixture.stop();
}

#[test]
fn adopted_events_keep_their_stamps_in_the_next_file_of_a_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let files = [1, 2].map(|number| folder.path().join(format!("part-{number}.etl")));
    let first = open_file(&files[0]);
    let log_file = Some(folder.path().join("part-%d.etl"));
    let config = SessionConfig { log_file, maximum_file_size: 1024, ..session_config(NEWFILE) };
    let next: NextFile = Box::new(|name| Ok(SequenceFile { file: open_file(name), claim: Box::new(()) }));
    let fixture = SessionFixture::start_with_sequence(config, first, folder, next);
    fixture.write_and_adopt(|| drop(wait_for_reply(|done| fixture.session.increment(done)).unwrap()));
    fixture.stop();
    let [before, after] = files.map(|path| read_log_except(&path, &[Rule::TimeAcrossBuffers]));
    let event_numbers = |events: &[LoggedEvent]| events.iter().map(|event| event.number).collect::<Vec<_>>();
    assert_eq!(event_numbers(&before), (1..EARLY_EVENTS).step_by(2).collect::<Vec<_>>());
    assert_eq!(event_numbers(&after), (0..=EARLY_EVENTS).step_by(2).collect::<Vec<_>>());
    let mut events = [before, after].concat();
    events.sort_by_key(|event| event.stamp);
    assert_eq!(event_numbers(&events), (0..=EARLY_EVENTS).collect::<Vec<_>>());
}
