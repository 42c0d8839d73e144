//! Tests of file sequences, appended files, sessions that become live, and flush thresholds.

use super::*;

use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Starts a session that writes a file sequence `part-N.etl`; only `files` files can be created.
fn start_sequence(maximum_kib: u32, raw: SessionConfig, files: u32) -> Stage {
    let folder = tempfile::tempdir().expect("a folder");
    let pattern = folder.path().join("part-%d.etl");
    let first = open(&folder.path().join("part-1.etl"));
    let raw = SessionConfig { log_file: Some(pattern), maximum_file_size: maximum_kib, ..raw };
    Stage::start_row(raw, first, folder, next_file(files))
}

/// Opens up to `most` files, then fails.
fn next_file(most: u32) -> NextFile {
    let mut made = 1;
    Box::new(move |name| {
        made += 1;
        if made > most {
            return Err(Error::File(std::io::Error::from_raw_os_error(13)));
        }
        Ok(SequenceFile { file: open(name), claim: Box::new(()) })
    })
}

/// Returns the numbers in each file of a sequence, and the sums of their headers: events lost,
/// buffers lost, buffers written.
fn read_sequence(stage: &Stage, files: u32) -> (Vec<Vec<u64>>, (u64, u64, u64)) {
    let mut sums = (0, 0, 0);
    let all = (1..=files).map(|number| {
        let path = stage.folder.path().join(format!("part-{number}.etl"));
        let trace = Trace::open(File::open(&path).expect("a file")).expect("a trace");
        let h = trace.header();
        assert_eq!(h.file_name, path.to_str().expect("a name"));
        sums.0 += u64::from(h.events_lost);
        sums.1 += u64::from(h.buffers_lost);
        sums.2 += u64::from(h.buffers_written);
        let first = trace.events().next().expect("read").map(|event| event.hook());
        assert_eq!(first, Some(Some(0)), "the header is the first event");
        numbers(&path)
    });
    (all.collect(), sums)
}

fn number_of_files(stage: &Stage) -> u32 {
    let name = stage.session.properties().config.log_file.expect("a name");
    let name = name.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
    name.trim_start_matches("part-").trim_end_matches(".etl").parse().expect("a number")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn file_sequence_holds_each_offered_event_once(
        maximum in 32..200_u32,
        sizes in proptest::collection::vec(0..3000_usize, 1..800),
        compressed: bool,
        increments in proptest::collection::btree_set(0..800_usize, 0..4),
    ) {
        let mode = if compressed { NEWFILE | KBYTES | COMPRESSED } else { NEWFILE | KBYTES };
        let stage = start_sequence(maximum, properties(mode), u32::MAX);
        let pen = stage.pen(1);
        for (number, &size) in sizes.iter().enumerate() {
            pen.write(number as u64, size).expect("room");
            if increments.contains(&number) {
                answer(|done| stage.session.increment(done)).expect("the next file");
            }
        }
        let after = stage.stop();
        let files = number_of_files(&stage);
        let (there, sums) = read_sequence(&stage, files);
        prop_assert_eq!(after.events_lost, 0);
        prop_assert_eq!((sums.0, sums.1), (0, 0));
        prop_assert_eq!(set(&there.concat()), (0..sizes.len() as u64).collect());
        for number in 1..=files {
            let path = stage.folder.path().join(format!("part-{number}.etl"));
            prop_assert!(path.metadata().expect("there").len() <= u64::from(maximum) << 10);
        }
    }
}

#[test]
fn increment_begins_the_next_file_at_once() {
    let stage = start_sequence(1 << 20, properties(NEWFILE | KBYTES), u32::MAX);
    let pen = stage.pen(1);
    pen.write(1, 0).unwrap();
    let now = answer(|done| stage.session.increment(done)).unwrap();
    assert_eq!(now.config.log_file, Some(stage.folder.path().join("part-2.etl")));
    assert_eq!(numbers(&stage.folder.path().join("part-1.etl")), [1], "final");
    pen.write(2, 0).unwrap();
    stage.stop();
    assert_eq!(numbers(&stage.folder.path().join("part-2.etl")), [2]);
    let plain = Stage::with_file(properties(SEQUENTIAL));
    let refused = answer(|done| plain.session.increment(done)).unwrap_err();
    assert_eq!(refused.status(), Status::ERROR_INVALID_FUNCTION);
    plain.stop();
}

#[test]
fn failed_increment_leaves_the_session_unchanged() {
    let stage = start_sequence(1 << 20, properties(NEWFILE | KBYTES), 1);
    let pen = stage.pen(1);
    pen.write(1, 0).unwrap();
    let refused = answer(|done| stage.session.increment(done)).unwrap_err();
    assert_eq!(refused.status(), Status::ERROR_ACCESS_DENIED);
    pen.write(2, 0).unwrap();
    stage.stop();
    assert_eq!(numbers(&stage.folder.path().join("part-1.etl")), [1, 2]);
    assert!(stage.ended.try_recv().is_err());
}

#[test]
fn file_sequence_ends_if_next_file_cannot_be_opened() {
    let stage = start_sequence(48, properties(NEWFILE | KBYTES), 3);
    let pen = stage.pen(1);
    for number in 0..2_000 {
        pen.write(number, 100).unwrap();
        if number % 50 == 0 {
            stage.flush();
        }
    }
    let ended = stage.ended.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(ended, Ended { status: Status::ERROR_ACCESS_DENIED });
    let after = stage.stop();
    assert_eq!(after.end_status, Status::ERROR_ACCESS_DENIED.0);
    let (there, sums) = read_sequence(&stage, 3);
    assert_eq!(set(&there.concat()).len() as u64 + after.events_lost, 2_000);
    assert_eq!((sums.0, sums.1), (after.events_lost, u64::from(after.log_buffers_lost)));
}

#[test]
fn file_sequence_needs_a_file_opener_and_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let raw =
        SessionConfig { log_file: Some(folder.path().join("%d.etl")), maximum_file_size: 1, ..properties(8) };
    let config = Config::new(raw, CPUS).unwrap();
    let file = Some(open(&folder.path().join("1.etl")));
    let options = StartOptions {
        id: 1,
        file,
        next_file: None,
        may_use_reserved_blocks: true,
        starter: (0, 0),
        on_end: Box::new(|_| {}),
    };
    assert_eq!(Session::start(config, options).unwrap_err().status(), Status::ERROR_BAD_PATHNAME);

    let stage = start_sequence(1 << 20, properties(NEWFILE | KBYTES), u32::MAX);
    let pen = stage.pen(1);
    pen.write(1, 0).unwrap();
    let to = |name: &str| {
        let pattern = stage.folder.path().join(name);
        let first = open(&crate::config::sequence_file_name(&pattern, 1));
        let update = Update { log_file: Some(pattern), ..Update::default() };
        answer(|done| stage.session.update_with_sequence(update, first, next_file(9), done))
            .map_err(|e| e.status())
    };
    assert_eq!(to("plain.etl"), Err(Status::ERROR_INVALID_PARAMETER));
    let now = to("other-%d.etl").unwrap();
    assert_eq!(now.config.log_file, Some(stage.folder.path().join("other-1.etl")));
    assert_eq!(to("other-%d.etl"), Err(Status::ERROR_BAD_PATHNAME), "the same name again");
    pen.write(2, 0).unwrap();
    answer(|done| stage.session.increment(done)).unwrap();
    pen.write(3, 0).unwrap();
    stage.stop();
    let read = |name: &str| numbers(&stage.folder.path().join(name));
    assert_eq!((read("part-1.etl"), read("other-1.etl"), read("other-2.etl")), (vec![1], vec![2], vec![3]));
}

/// Properties of an appending session.
fn appending() -> SessionConfig {
    SessionConfig { clock: 2, ..properties(4) }
}

fn append_to(folder: tempfile::TempDir, raw: SessionConfig) -> Result<Stage, (Error, tempfile::TempDir)> {
    let path = folder.path().join("log.etl");
    Stage::try_start(SessionConfig { log_file: Some(path.clone()), ..raw }, Some(open(&path)), None, folder)
}

#[test]
fn file_can_be_appended_to_repeatedly() {
    let mut folder = tempfile::tempdir().unwrap();
    for round in 0..4_u64 {
        let stage = append_to(folder, appending()).expect("a session");
        let pen = stage.pen(u32::try_from(round).unwrap() + 1);
        for at in 0..500 {
            pen.write(round * 500 + at, 60).unwrap();
        }
        let after = stage.stop();
        let there = numbers(&stage.log());
        assert_eq!(there, (0..(round + 1) * 500).collect::<Vec<_>>(), "in time order");
        let header = Trace::open(File::open(stage.log()).unwrap()).unwrap().header().clone();
        assert_eq!(header.buffers_written, after.buffers_written);
        folder = stage.folder;
    }
}

#[test]
fn losses_of_an_appended_file_are_summed() {
    let mut folder = tempfile::tempdir().unwrap();
    let mut lost = 0;
    for _ in 0..2 {
        let stage = append_to(folder, SessionConfig { ring_bytes: 1, ..appending() }).unwrap();
        let pen = stage.pen(1);
        for number in 0..20_000 {
            let _ = pen.write(number, 900);
        }
        lost += stage.stop().events_lost;
        let header = Trace::open(File::open(stage.log()).unwrap()).unwrap().header().clone();
        assert_eq!(u64::from(header.events_lost), lost);
        folder = stage.folder;
    }
}

#[test]
fn file_left_by_a_crash_is_continued_after_its_last_whole_buffer() {
    let stage = append_to(tempfile::tempdir().unwrap(), appending()).unwrap();
    let pen = stage.pen(1);
    for number in 0..100 {
        pen.write(number, 60).unwrap();
    }
    stage.flush();
    // State after a crash: no final header, and half a buffer.
    let left = std::fs::read(stage.log()).unwrap();
    stage.stop();
    let torn = [left.clone(), left[left.len() - 5000..].to_vec()].concat();
    std::fs::write(stage.log(), torn).unwrap();
    let stage = append_to(stage.folder, appending()).unwrap();
    stage.pen(1).write(100, 60).unwrap();
    stage.stop();
    assert_eq!(numbers(&stage.log()), (0..=100).collect::<Vec<_>>());
}

#[test]
fn unsuitable_file_is_rejected_and_stays_unchanged() {
    let stage = append_to(tempfile::tempdir().unwrap(), appending()).unwrap();
    stage.pen(1).write(1, 0).unwrap();
    stage.stop();
    let folder = stage.folder.path().to_owned();
    let path = folder.join("log.etl");
    let good = std::fs::read(&path).unwrap();
    let try_with = |raw: SessionConfig, bytes: &[u8]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.etl");
        std::fs::write(&path, bytes).unwrap();
        match append_to(folder, raw) {
            Ok(stage) => {
                stage.stop();
                Status::ERROR_SUCCESS
            }
            Err((error, folder)) => {
                assert_eq!(std::fs::read(folder.path().join("log.etl")).unwrap(), bytes, "untouched");
                error.status()
            }
        }
    };
    let invalid = Status::ERROR_INVALID_PARAMETER;
    assert_eq!(try_with(appending(), &good), Status::ERROR_SUCCESS);
    assert_eq!(try_with(SessionConfig { buffer_size: 32, ..appending() }, &good), invalid);
    assert_eq!(try_with(SessionConfig { log_file_mode: APPEND | ONE_STREAM, ..appending() }, &good), invalid);
    assert_eq!(try_with(appending(), b"a letter to a friend"), invalid);
    assert_eq!(try_with(appending(), &good[..good.len() - 1]), invalid);
    for other in [properties(SEQUENTIAL), SessionConfig { clock: 2, maximum_file_size: 1, ..properties(2) }] {
        let stage = Stage::with_file(other);
        stage.stop();
        assert_eq!(try_with(appending(), &std::fs::read(stage.log()).unwrap()), invalid);
    }
}

#[test]
fn session_with_a_file_can_become_live() {
    let stage = Stage::with_file(properties(SEQUENTIAL));
    let pen = stage.pen(1);
    for number in 0..100 {
        pen.write(number, 0).unwrap();
    }
    let now = answer(|done| stage.session.convert_to_real_time(done)).unwrap();
    assert_eq!((now.config.log_file_mode, now.config.log_file, now.config.flush_timer), (REAL_TIME, None, 1));
    assert_eq!(numbers(&stage.log()), (0..100).collect::<Vec<_>>(), "the file is final");
    let live = answer(|done| stage.session.open_consumer(done)).unwrap();
    let mut queue = QueueReader::open(live.ends, live.slots, live.buffer_bytes).unwrap();
    pen.write(100, 0).unwrap();
    stage.flush();
    let mut bytes = Vec::new();
    assert!(matches!(queue.pop(&mut bytes), Ok(Next::Buffer(_))), "the next event is live");
    let twice = answer(|done| stage.session.convert_to_real_time(done)).unwrap_err();
    assert_eq!(twice.status(), Status::ERROR_INVALID_FUNCTION);
    assert_eq!(stage.stop().events, 101);
    assert_eq!(numbers(&stage.log()).len(), 100);
    for raw in [properties(BUFFERING), properties(SEQUENTIAL | PRIVATE | IN_PROC)] {
        let stage = Stage::with_file(raw);
        let refused = answer(|done| stage.session.convert_to_real_time(done)).unwrap_err();
        assert_eq!(refused.status(), Status::ERROR_INVALID_FUNCTION);
        stage.stop();
    }
}

#[test]
fn full_buffers_wait_for_the_threshold_or_a_flush() {
    let raw = SessionConfig { flush_threshold: 6, minimum_buffers: 40, ..properties(0x1000_0001) };
    let stage = Stage::with_file(raw);
    let pen = stage.pen(1);
    let mut seen = BTreeSet::new();
    let mut offered = 0;
    while stage.session.properties().buffers_written < 13 {
        pen.write(offered, 2000).unwrap();
        offered += 1;
        seen.insert(stage.session.properties().buffers_written);
        std::thread::sleep(Duration::from_micros(200));
    }
    seen.insert(stage.session.properties().buffers_written);
    let gathered = |written: &u32| *written == 1 || *written >= 7;
    assert!(seen.iter().all(gathered), "the header, then six at least: {seen:?}");
    pen.write(offered, 0).unwrap();
    stage.flush();
    assert!(stage.session.properties().buffers_written > 13);
    stage.stop();
    assert_eq!(set(&numbers(&stage.log())).len() as u64, offered + 1);
}

#[test]
fn threshold_never_starves_a_session_of_few_buffers() {
    let raw = SessionConfig { flush_threshold: u32::MAX, maximum_buffers: 1, ..properties(1) };
    let stage = Stage::with_file(raw);
    let pen = stage.pen(1);
    for number in 0..3_000 {
        pen.write(number, 900).unwrap();
        if number == 1_500 {
            let fewer = Update { maximum_buffers: Some(1), ..Update::default() };
            answer(|done| stage.session.update(fewer, None, done)).unwrap();
        }
    }
    stage.stop();
    assert_eq!(set(&numbers(&stage.log())).len(), 3_000);
}

#[test]
fn the_largest_buffers_work() {
    let raw = SessionConfig { buffer_size: 16_384, minimum_buffers: 2, ..properties(0x1000_0001) };
    let stage = Stage::with_file(raw);
    let pen = stage.pen(1);
    assert_eq!(stage.session.properties().config.buffer_size, 16_384);
    for number in 0..400 {
        while pen.write(number, 60_000).is_err() {
            stage.flush();
        }
    }
    stage.stop();
    assert_eq!(set(&numbers(&stage.log())).len(), 400);
    assert!(stage.log().metadata().unwrap().len().is_multiple_of(16 << 20));
}

#[test]
fn preallocated_file_has_length_and_blocks_from_the_start() {
    use std::os::unix::fs::MetadataExt;
    for mode in [SEQUENTIAL | PREALLOCATE | KBYTES, CIRCULAR | PREALLOCATE | KBYTES] {
        let stage = Stage::with_file(SessionConfig { maximum_file_size: 512, ..properties(mode) });
        let start = stage.log().metadata().unwrap();
        assert!(start.len() == 512 << 10 && start.blocks() >= 1024, "{} blocks", start.blocks());
        stage.pen(1).write(7, 0).unwrap();
        stage.stop();
        assert_eq!(stage.log().metadata().unwrap().len(), 32 << 10);
        assert_eq!(numbers(&stage.log()), [7]);
    }
}

#[test]
fn claim_on_a_file_ends_with_the_file() {
    struct Claim(Arc<AtomicUsize>);
    impl Drop for Claim {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let claims = Arc::new(AtomicUsize::new(0));
    let folder = tempfile::tempdir().unwrap();
    let first = open(&folder.path().join("part-1.etl"));
    let log_file = Some(folder.path().join("part-%d.etl"));
    let raw = SessionConfig { log_file, maximum_file_size: 100, ..properties(8) };
    let held = Arc::clone(&claims);
    let next: NextFile = Box::new(move |name| {
        held.fetch_add(1, SeqCst);
        Ok(SequenceFile { file: open(name), claim: Box::new(Claim(Arc::clone(&held))) })
    });
    let stage = Stage::start_row(raw, first, folder, next);
    for _ in 0..5 {
        answer(|done| stage.session.increment(done)).unwrap();
        assert_eq!(claims.load(SeqCst), 1);
    }
    stage.stop();
}

#[test]
fn update_follows_the_published_rules() {
    let update = |stage: &Stage, update: Update| {
        answer(|done| stage.session.update(update, None, done)).map_err(|e| e.status())
    };
    let flags = |enable_flags| Update { enable_flags: Some(enable_flags), ..Update::default() };
    let live = |on| Update { real_time: Some(on), ..Update::default() };
    let invalid = Some(Status::ERROR_INVALID_PARAMETER);
    let stage = Stage::with_file(properties(SEQUENTIAL));
    assert_eq!(update(&stage, flags(1)).err(), invalid);
    assert_eq!(update(&stage, flags(0)).err(), None);
    assert_eq!(update(&stage, live(true)).unwrap().config.log_file_mode, SEQUENTIAL | REAL_TIME);
    assert_eq!(update(&stage, live(false)).unwrap().config.log_file_mode, SEQUENTIAL);
    let zeros = Update { flush_timer: Some(0), maximum_buffers: Some(0), ..Update::default() };
    let (before, after) = (stage.session.properties(), update(&stage, zeros).unwrap());
    assert_eq!(before.config, after.config);
    stage.stop();
    let stage = append_to(tempfile::tempdir().unwrap(), appending()).unwrap();
    assert_eq!(update(&stage, live(true)).err(), invalid, "append and real-time");
    stage.stop();
    let stage = Stage::with_file(properties(SEQUENTIAL | PRIVATE | IN_PROC));
    let more = Update { maximum_buffers: Some(50), ..Update::default() };
    assert_eq!((update(&stage, more).err(), update(&stage, live(true)).err()), (invalid, invalid), "private");
    stage.stop();
}
