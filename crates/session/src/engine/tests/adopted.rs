//! Tests of regions that processes made before the session knew of them, in each kind of log.

use super::*;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsFd;
use traceweir_transport::ring::create_memory;

const EACH: u64 = 40;

/// A process that writes into memory of its own, which no session has adopted yet.
struct Early {
    pen: Pen,
    memory: OwnedFd,
    params: RegionParams,
}

impl Stage {
    fn early(&self) -> Early {
        let params = self.session.next_region().expect("rings");
        let memory = create_memory(&params).expect("memory");
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let outlet: &'static Outlet = Box::leak(Box::new(Outlet::new()));
        let source = RegionSource::File { memory: memory.try_clone().expect("a descriptor"), wake };
        let ticket = outlet.open(source, &params).expect("opened");
        let pen = Pen { outlet, ticket, source: SourceId(0) };
        Early { pen, memory, params }
    }

    /// Two processes write in turns. The session has the memory of one of them, and adopts that of
    /// the other after everything was flushed and `between` was called.
    fn write_in_turns(&self, between: impl FnOnce()) {
        let (early, attached) = (self.early(), self.pen(1));
        for number in (0..EACH).step_by(2) {
            early.pen.write(number, 0).expect("written");
            attached.write(number + 1, 0).expect("written");
        }
        self.flush();
        between();
        self.session.adopt(early.memory.as_fd(), &early.params, 2, Threads::AsGiven, false).expect("adopted");
        self.flush();
        early.pen.write(EACH, 0).expect("written");
    }
}

/// Asserts that all events are in the file, in the order in which they were written.
fn assert_in_order(path: &Path) {
    let events = read_but(path, &[Rule::TimeAcrossBuffers]);
    let numbers: Vec<u64> = events.iter().map(|event| event.2).collect();
    assert_eq!(numbers, (0..=EACH).collect::<Vec<_>>(), "{}", path.display());
    assert!(events.is_sorted_by(|before, after| before.3 < after.3), "{events:?}");
}

#[test]
fn every_log_mode_keeps_time_of_adopted_events() {
    // Sequential, circular, live and file, one stream for all CPUs, compressed, flight recorder.
    for mode in [
        SEQUENTIAL,
        CIRCULAR | KBYTES,
        SEQUENTIAL | REAL_TIME,
        SEQUENTIAL | ONE_STREAM,
        SEQUENTIAL | COMPRESSED,
        BUFFERING,
    ] {
        let sizes = SessionConfig { maximum_file_size: 4096, minimum_buffers: 12, ..properties(mode) };
        let stage = Stage::with_file(sizes);
        stage.write_in_turns(|| {});
        let end = stage.stop();
        assert_eq!((end.events, end.events_lost), (EACH + 1, 0), "mode {mode:#x}");
        assert_in_order(&stage.log());
    }
}

#[test]
fn flight_recorder_sorts_backlogs_adopted_newest_first() {
    let stage = Stage::with_file(SessionConfig { minimum_buffers: 12, ..properties(0x400) });
    let (attached, early) = (stage.pen(1), [(); 10].map(|()| stage.early()));
    let mut next = 0..;
    for _ in 0..4 {
        for pen in early.iter().map(|early| &early.pen).chain([&attached]) {
            pen.write(next.next().unwrap(), 0).expect("written");
        }
    }
    stage.flush();
    for (process, early) in (2..).zip(early.iter().rev()) {
        let adopted =
            stage.session.adopt(early.memory.as_fd(), &early.params, process, Threads::AsGiven, false);
        adopted.expect("adopted");
        stage.flush();
    }
    stage.stop();
    // Stamps are in order within each buffer.
    let events = read_but(&stage.log(), &[Rule::TimeAcrossBuffers]);
    let numbers: Vec<u64> = events.iter().map(|event| event.2).collect();
    assert_eq!(numbers, (0..44).collect::<Vec<_>>());
}

#[test]
fn snapshot_contains_adopted_events_in_partial_buffers() {
    let stage = Stage::with_file(SessionConfig { minimum_buffers: 12, ..properties(0x400) });
    stage.write_in_turns(|| {});
    let path = stage.folder.path().join("snapshot.etl");
    let file = open(&path);
    answer(|done| stage.session.flush(Some((file, path.clone())), done)).unwrap();
    assert_in_order(&path);
    stage.stop();
}

#[test]
fn adopted_events_keep_their_time_in_the_next_file_of_a_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let files = [1, 2].map(|number| folder.path().join(format!("part-{number}.etl")));
    let first = open(&files[0]);
    let log_file = Some(folder.path().join("part-%d.etl"));
    let raw = SessionConfig { log_file, maximum_file_size: 1024, ..properties(8) };
    let next: NextFile = Box::new(|name| Ok(SequenceFile { file: open(name), claim: Box::new(()) }));
    let stage = Stage::start_row(raw, first, folder, next);
    stage.write_in_turns(|| drop(answer(|done| stage.session.increment(done)).unwrap()));
    stage.stop();
    let [before, after] = files.map(|path| read_but(&path, &[Rule::TimeAcrossBuffers]));
    let numbers = |events: &[(u32, u16, u64, i64)]| events.iter().map(|event| event.2).collect::<Vec<_>>();
    assert_eq!(numbers(&before), (1..EACH).step_by(2).collect::<Vec<_>>());
    assert_eq!(numbers(&after), (0..=EACH).step_by(2).collect::<Vec<_>>());
    let mut all = [before, after].concat();
    all.sort_by_key(|event| event.3);
    assert_eq!(numbers(&all), (0..=EACH).collect::<Vec<_>>());
}
