//! Tests of file sequences, appended files, sessions that become live, and flush thresholds.

use super::*;

use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Starts a session that writes a file sequence `part-N.etl`; only `files` files can be created.
fn start_sequence(maximum_kib: u32, config: SessionConfig, files: u32) -> SessionFixture {
    let folder = tempfile::tempdir().expect("no temporary folder could be created");
    let pattern = folder.path().join("part-%d.etl");
    let first = open_file(&folder.path().join("part-1.etl"));
    let config = SessionConfig { log_file: Some(pattern), maximum_file_size: maximum_kib, ..config };
    SessionFixture::start_with_sequence(config, first, folder, file_opener(files))
}

/// Returns a function that opens files until `max_files` exist, and then fails.
fn file_opener(max_files: u32) -> NextFile {
    let mut opened = 1;
    Box::new(move |name| {
        opened += 1;
        if opened > max_files {
            return Err(Error::File(rustix::io::Errno::ACCESS.into()));
        }
        Ok(SequenceFile { file: open_file(name), claim: Box::new(()) })
    })
}

/// Returns the event numbers in each file of a sequence, and the lost events and buffers that the
/// headers count together.
fn read_sequence(fixture: &SessionFixture, files: u32) -> (Vec<Vec<u64>>, (u64, u64)) {
    let mut losses = (0, 0);
    let events = (1..=files).map(|number| {
        let path = fixture.folder.path().join(format!("part-{number}.etl"));
        let trace =
            Trace::open(File::open(&path).expect("the file is missing")).expect("the file is not a trace");
        let header = trace.header();
        assert_eq!(header.file_name, path.to_str().expect("the file has no name"));
        losses.0 += u64::from(header.events_lost);
        losses.1 += u64::from(header.buffers_lost);
        let first = trace.events().next().expect("the event cannot be read").map(|event| event.hook());
        assert_eq!(first, Some(Some(0)), "the header is not the first event");
        read_numbers(&path)
    });
    (events.collect(), losses)
}

fn current_file_number(fixture: &SessionFixture) -> u32 {
    let name = fixture.session.properties().config.log_file.expect("the file has no name");
    let name = name.file_name().and_then(|n| n.to_str()).expect("the file has no name").to_owned();
    name.trim_start_matches("part-").trim_end_matches(".etl").parse().expect("the file name has no number")
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
        let fixture = start_sequence(maximum, session_config(mode), u32::MAX);
        let writer = fixture.attach_writer(1);
        for (number, &size) in sizes.iter().enumerate() {
            writer.write(number as u64, size).expect("the event was not written");
            if increments.contains(&number) {
                wait_for_reply(|done| fixture.session.increment(done)).expect("the next file did not begin");
            }
        }
        let after = fixture.stop();
        let files = current_file_number(&fixture);
        let (read, losses) = read_sequence(&fixture, files);
        prop_assert_eq!(after.events_lost, 0);
        prop_assert_eq!(losses, (0, 0));
        prop_assert_eq!(unique_numbers(&read.concat()), (0..sizes.len() as u64).collect());
        for number in 1..=files {
            let path = fixture.folder.path().join(format!("part-{number}.etl"));
            prop_assert!(path.metadata().expect("the file is missing").len() <= u64::from(maximum) << 10);
        }
    }
}

#[test]
fn increment_begins_the_next_file_at_once() {
    let fixture = start_sequence(1 << 20, session_config(NEWFILE | KBYTES), u32::MAX);
    let writer = fixture.attach_writer(1);
    writer.write(1, 0).unwrap();
    let after = wait_for_reply(|done| fixture.session.increment(done)).unwrap();
    assert_eq!(after.config.log_file, Some(fixture.folder.path().join("part-2.etl")));
    assert_eq!(
        read_numbers(&fixture.folder.path().join("part-1.etl")),
        [1],
        "the first file is not finalised"
    );
    writer.write(2, 0).unwrap();
    fixture.stop();
    assert_eq!(read_numbers(&fixture.folder.path().join("part-2.etl")), [2]);
    let plain = SessionFixture::with_file(session_config(SEQUENTIAL));
    let error = wait_for_reply(|done| plain.session.increment(done)).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_INVALID_FUNCTION);
    plain.stop();
}

#[test]
fn failed_increment_leaves_the_session_unchanged() {
    let fixture = start_sequence(1 << 20, session_config(NEWFILE | KBYTES), 1);
    let writer = fixture.attach_writer(1);
    writer.write(1, 0).unwrap();
    let error = wait_for_reply(|done| fixture.session.increment(done)).unwrap_err();
    assert_eq!(error.status(), Status::ERROR_ACCESS_DENIED);
    writer.write(2, 0).unwrap();
    fixture.stop();
    assert_eq!(read_numbers(&fixture.folder.path().join("part-1.etl")), [1, 2]);
    assert!(fixture.ended.try_recv().is_err());
}

#[test]
fn file_sequence_ends_if_next_file_cannot_be_opened() {
    let fixture = start_sequence(48, session_config(NEWFILE | KBYTES), 3);
    let writer = fixture.attach_writer(1);
    for number in 0..2_000 {
        writer.write(number, 100).unwrap();
        if number % 50 == 0 {
            fixture.flush();
        }
    }
    let ended = fixture.ended.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(ended, Ended { status: Status::ERROR_ACCESS_DENIED });
    let after = fixture.stop();
    assert_eq!(after.end_status, Status::ERROR_ACCESS_DENIED.0);
    let (read, losses) = read_sequence(&fixture, 3);
    assert_eq!(unique_numbers(&read.concat()).len() as u64 + after.events_lost, 2_000);
    assert_eq!(losses, (after.events_lost, u64::from(after.log_buffers_lost)));
}

#[test]
fn file_sequence_needs_a_file_opener_and_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let config = SessionConfig {
        log_file: Some(folder.path().join("%d.etl")),
        maximum_file_size: 1,
        ..session_config(NEWFILE)
    };
    let config = Config::new(config, CPUS).unwrap();
    let file = Some(open_file(&folder.path().join("1.etl")));
    let options = StartOptions {
        id: 1,
        file,
        next_file: None,
        may_use_reserved_blocks: true,
        starter: (0, 0),
        on_end: Box::new(|_| {}),
    };
    assert_eq!(Session::start(config, options).unwrap_err().status(), Status::ERROR_BAD_PATHNAME);

    let fixture = start_sequence(1 << 20, session_config(NEWFILE | KBYTES), u32::MAX);
    let writer = fixture.attach_writer(1);
    writer.write(1, 0).unwrap();
    let switch_to = |name: &str| {
        let pattern = fixture.folder.path().join(name);
        let first = open_file(&crate::config::sequence_file_name(&pattern, 1));
        let update = Update { log_file: Some(pattern), ..Update::default() };
        wait_for_reply(|done| fixture.session.update_with_sequence(update, first, file_opener(9), done))
            .map_err(|e| e.status())
    };
    assert_eq!(switch_to("plain.etl"), Err(Status::ERROR_INVALID_PARAMETER));
    let after = switch_to("other-%d.etl").unwrap();
    assert_eq!(after.config.log_file, Some(fixture.folder.path().join("other-1.etl")));
    assert_eq!(
        switch_to("other-%d.etl"),
        Err(Status::ERROR_BAD_PATHNAME),
        "accepted the name of the current file"
    );
    writer.write(2, 0).unwrap();
    wait_for_reply(|done| fixture.session.increment(done)).unwrap();
    writer.write(3, 0).unwrap();
    fixture.stop();
    let read = |name: &str| read_numbers(&fixture.folder.path().join(name));
    assert_eq!((read("part-1.etl"), read("other-1.etl"), read("other-2.etl")), (vec![1], vec![2], vec![3]));
}

/// Returns the configuration of an appending session, whose clock must be the system time (2).
fn append_config() -> SessionConfig {
    SessionConfig { clock: 2, ..session_config(APPEND) }
}

fn append_to(
    folder: tempfile::TempDir,
    config: SessionConfig,
) -> Result<SessionFixture, (Error, tempfile::TempDir)> {
    let path = folder.path().join("log.etl");
    SessionFixture::try_start(
        SessionConfig { log_file: Some(path.clone()), ..config },
        Some(open_file(&path)),
        None,
        folder,
    )
}

#[test]
fn file_can_be_appended_to_repeatedly() {
    let mut folder = tempfile::tempdir().unwrap();
    for round in 0..4_u64 {
        let fixture = append_to(folder, append_config()).expect("the session did not start");
        let writer = fixture.attach_writer(u32::try_from(round).unwrap() + 1);
        for at in 0..500 {
            writer.write(round * 500 + at, 60).unwrap();
        }
        let after = fixture.stop();
        let read = read_numbers(&fixture.log_path());
        assert_eq!(read, (0..(round + 1) * 500).collect::<Vec<_>>(), "the events are not in time order");
        let header = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap().header().clone();
        assert_eq!(header.buffers_written, after.buffers_written);
        folder = fixture.folder;
    }
}

#[test]
fn losses_of_an_appended_file_are_summed() {
    let mut folder = tempfile::tempdir().unwrap();
    let mut lost = 0;
    for _ in 0..2 {
        let fixture = append_to(folder, SessionConfig { ring_bytes: 1, ..append_config() }).unwrap();
        let writer = fixture.attach_writer(1);
        for number in 0..20_000 {
            let _ = writer.write(number, 900);
        }
        lost += fixture.stop().events_lost;
        let header = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap().header().clone();
        assert_eq!(u64::from(header.events_lost), lost);
        folder = fixture.folder;
    }
}

#[test]
fn file_left_by_a_crash_is_continued_after_its_last_whole_buffer() {
    let fixture = append_to(tempfile::tempdir().unwrap(), append_config()).unwrap();
    let writer = fixture.attach_writer(1);
    for number in 0..100 {
        writer.write(number, 60).unwrap();
    }
    fixture.flush();
    // State after a crash: no final header, and a part of a buffer at the end.
    let crashed = std::fs::read(fixture.log_path()).unwrap();
    fixture.stop();
    let torn = [crashed.clone(), crashed[crashed.len() - 5000..].to_vec()].concat();
    std::fs::write(fixture.log_path(), torn).unwrap();
    let fixture = append_to(fixture.folder, append_config()).unwrap();
    fixture.attach_writer(1).write(100, 60).unwrap();
    fixture.stop();
    assert_eq!(read_numbers(&fixture.log_path()), (0..=100).collect::<Vec<_>>());
}

/// Returns the file with another PerfFreq.
fn with_counter_rate(file: &[u8], ticks_per_second: i64) -> Vec<u8> {
    let old = Trace::open(file).unwrap().header().perf_freq.to_le_bytes();
    let at = file.windows(8).position(|bytes| bytes == old).unwrap();
    let mut changed = file.to_vec();
    changed[at..at + 8].copy_from_slice(&ticks_per_second.to_le_bytes());
    assert_eq!(Trace::open(&changed[..]).unwrap().header().perf_freq, ticks_per_second);
    changed
}

#[test]
fn unsuitable_file_is_rejected_and_stays_unchanged() {
    let fixture = append_to(tempfile::tempdir().unwrap(), append_config()).unwrap();
    fixture.attach_writer(1).write(1, 0).unwrap();
    fixture.stop();
    let folder = fixture.folder.path().to_owned();
    let path = folder.join("log.etl");
    let good = std::fs::read(&path).unwrap();
    let try_with = |config: SessionConfig, bytes: &[u8]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.etl");
        std::fs::write(&path, bytes).unwrap();
        match append_to(folder, config) {
            Ok(fixture) => {
                fixture.stop();
                Status::ERROR_SUCCESS
            }
            Err((error, folder)) => {
                assert_eq!(
                    std::fs::read(folder.path().join("log.etl")).unwrap(),
                    bytes,
                    "a rejected file was changed"
                );
                error.status()
            }
        }
    };
    let invalid = Status::ERROR_INVALID_PARAMETER;
    assert_eq!(try_with(append_config(), &good), Status::ERROR_SUCCESS);
    assert_eq!(try_with(SessionConfig { buffer_size: 32, ..append_config() }, &good), invalid);
    assert_eq!(
        try_with(SessionConfig { log_file_mode: APPEND | ONE_STREAM, ..append_config() }, &good),
        invalid
    );
    // The performance counter of all sessions with this clock has 10⁹ Hz.
    assert_eq!(try_with(append_config(), &with_counter_rate(&good, 1_000_000_000)), Status::ERROR_SUCCESS);
    assert_eq!(try_with(append_config(), &with_counter_rate(&good, 3_000_000_000)), invalid);
    assert_eq!(try_with(append_config(), b"a letter to a friend"), invalid);
    assert_eq!(try_with(append_config(), &good[..good.len() - 1]), invalid);
    for other in [
        session_config(SEQUENTIAL),
        SessionConfig { clock: 2, maximum_file_size: 1, ..session_config(CIRCULAR) },
    ] {
        let fixture = SessionFixture::with_file(other);
        fixture.stop();
        assert_eq!(try_with(append_config(), &std::fs::read(fixture.log_path()).unwrap()), invalid);
    }
}

#[test]
fn session_with_a_file_can_become_live() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    let writer = fixture.attach_writer(1);
    for number in 0..100 {
        writer.write(number, 0).unwrap();
    }
    let after = wait_for_reply(|done| fixture.session.convert_to_real_time(done)).unwrap();
    assert_eq!(
        (after.config.log_file_mode, after.config.log_file, after.config.flush_timer),
        (REAL_TIME, None, 1)
    );
    assert_eq!(read_numbers(&fixture.log_path()), (0..100).collect::<Vec<_>>(), "the file is not finalised");
    let live = wait_for_reply(|done| fixture.session.open_consumer(done)).unwrap();
    let mut queue = QueueReader::open(live.ends, live.slots, live.buffer_bytes).unwrap();
    writer.write(100, 0).unwrap();
    fixture.flush();
    let mut bytes = Vec::new();
    assert!(matches!(queue.pop(&mut bytes), Ok(Next::Buffer(_))), "the next event is not live");
    let twice = wait_for_reply(|done| fixture.session.convert_to_real_time(done)).unwrap_err();
    assert_eq!(twice.status(), Status::ERROR_INVALID_FUNCTION);
    assert_eq!(fixture.stop().events, 101);
    assert_eq!(read_numbers(&fixture.log_path()).len(), 100);
    for config in [session_config(BUFFERING), session_config(SEQUENTIAL | PRIVATE | IN_PROC)] {
        let fixture = SessionFixture::with_file(config);
        let error = wait_for_reply(|done| fixture.session.convert_to_real_time(done)).unwrap_err();
        assert_eq!(error.status(), Status::ERROR_INVALID_FUNCTION);
        fixture.stop();
    }
}

#[test]
fn full_buffers_wait_for_the_flush_threshold_or_a_flush() {
    let config =
        SessionConfig { flush_threshold: 6, minimum_buffers: 40, ..session_config(SEQUENTIAL | ONE_STREAM) };
    let fixture = SessionFixture::with_file(config);
    let writer = fixture.attach_writer(1);
    let mut written_counts = BTreeSet::new();
    let mut offered = 0;
    while fixture.session.properties().buffers_written < 13 {
        writer.write(offered, 2000).unwrap();
        offered += 1;
        written_counts.insert(fixture.session.properties().buffers_written);
        std::thread::sleep(Duration::from_micros(200));
    }
    written_counts.insert(fixture.session.properties().buffers_written);
    // The header buffer alone, or with at least the six buffers of the threshold.
    let is_whole_batch = |written: &u32| *written == 1 || *written >= 7;
    assert!(written_counts.iter().all(is_whole_batch), "a batch is too small: {written_counts:?}");
    writer.write(offered, 0).unwrap();
    fixture.flush();
    assert!(fixture.session.properties().buffers_written > 13);
    fixture.stop();
    assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())).len() as u64, offered + 1);
}

#[test]
fn flush_threshold_does_not_block_a_session_of_few_buffers() {
    let config =
        SessionConfig { flush_threshold: u32::MAX, maximum_buffers: 1, ..session_config(SEQUENTIAL) };
    let fixture = SessionFixture::with_file(config);
    let writer = fixture.attach_writer(1);
    for number in 0..3_000 {
        writer.write(number, 900).unwrap();
        if number == 1_500 {
            // The start raised the maximum to the minimum, and the update does the same.
            let fewer = Update { maximum_buffers: Some(1), ..Update::default() };
            wait_for_reply(|done| fixture.session.update(fewer, None, done)).unwrap();
        }
    }
    fixture.stop();
    assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())).len(), 3_000);
}

#[test]
fn largest_buffers_can_be_written() {
    let config =
        SessionConfig { buffer_size: 16_384, minimum_buffers: 2, ..session_config(SEQUENTIAL | ONE_STREAM) };
    let fixture = SessionFixture::with_file(config);
    let writer = fixture.attach_writer(1);
    assert_eq!(fixture.session.properties().config.buffer_size, 16_384);
    for number in 0..400 {
        while writer.write(number, 60_000).is_err() {
            fixture.flush();
        }
    }
    fixture.stop();
    assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())).len(), 400);
    assert!(fixture.log_path().metadata().unwrap().len().is_multiple_of(16 << 20));
}

#[test]
fn preallocated_file_has_length_and_blocks_from_the_start() {
    use std::os::unix::fs::MetadataExt;
    for mode in [SEQUENTIAL | PREALLOCATE | KBYTES, CIRCULAR | PREALLOCATE | KBYTES] {
        let fixture =
            SessionFixture::with_file(SessionConfig { maximum_file_size: 512, ..session_config(mode) });
        let start = fixture.log_path().metadata().unwrap();
        assert!(start.len() == 512 << 10 && start.blocks() >= 1024, "{} blocks", start.blocks());
        fixture.attach_writer(1).write(7, 0).unwrap();
        fixture.stop();
        // The header buffer and one data buffer.
        assert_eq!(fixture.log_path().metadata().unwrap().len(), 32 << 10);
        assert_eq!(read_numbers(&fixture.log_path()), [7]);
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
    let first = open_file(&folder.path().join("part-1.etl"));
    let log_file = Some(folder.path().join("part-%d.etl"));
    let config = SessionConfig { log_file, maximum_file_size: 100, ..session_config(NEWFILE) };
    let claim_count = Arc::clone(&claims);
    let next: NextFile = Box::new(move |name| {
        claim_count.fetch_add(1, SeqCst);
        Ok(SequenceFile { file: open_file(name), claim: Box::new(Claim(Arc::clone(&claim_count))) })
    });
    let fixture = SessionFixture::start_with_sequence(config, first, folder, next);
    for _ in 0..5 {
        wait_for_reply(|done| fixture.session.increment(done)).unwrap();
        assert_eq!(claims.load(SeqCst), 1);
    }
    fixture.stop();
}

#[test]
fn update_follows_the_documented_rules_of_etw() {
    let update = |fixture: &SessionFixture, update: Update| {
        wait_for_reply(|done| fixture.session.update(update, None, done)).map_err(|e| e.status())
    };
    let flags = |enable_flags| Update { enable_flags: Some(enable_flags), ..Update::default() };
    let live = |on| Update { real_time: Some(on), ..Update::default() };
    let invalid = Some(Status::ERROR_INVALID_PARAMETER);
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    assert_eq!(update(&fixture, flags(1)).err(), invalid);
    assert_eq!(update(&fixture, flags(0)).err(), None);
    assert_eq!(update(&fixture, live(true)).unwrap().config.log_file_mode, SEQUENTIAL | REAL_TIME);
    assert_eq!(update(&fixture, live(false)).unwrap().config.log_file_mode, SEQUENTIAL);
    let zeros = Update { flush_timer: Some(0), maximum_buffers: Some(0), ..Update::default() };
    let (before, after) = (fixture.session.properties(), update(&fixture, zeros).unwrap());
    assert_eq!(before.config, after.config);
    fixture.stop();
    let fixture = append_to(tempfile::tempdir().unwrap(), append_config()).unwrap();
    assert_eq!(update(&fixture, live(true)).err(), invalid, "append and real-time");
    fixture.stop();
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL | PRIVATE | IN_PROC));
    let more_buffers = Update { maximum_buffers: Some(50), ..Update::default() };
    assert_eq!(
        (update(&fixture, more_buffers).err(), update(&fixture, live(true)).err()),
        (invalid, invalid),
        "private"
    );
    fixture.stop();
}
