//! Tests of log file modes, requests, and ends of sessions.

use super::*;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Writes numbers from two CPUs, 300 at a time. Returns the CPU of each number. Calls `pause`
/// before every 50th number.
fn write_from_two_cpus(
    writer: &TestWriter,
    numbers: std::ops::Range<u64>,
    pause: impl Fn(),
) -> Vec<(u16, u64)> {
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).take(2).collect();
    let mut offered = Vec::new();
    for number in numbers {
        if number % 50 == 0 {
            pause();
        }
        let cpu = cpus[usize::try_from(number / 300).unwrap() % cpus.len()];
        if number % 300 == 0 {
            let mut single_cpu = CpuSet::new();
            single_cpu.set(cpu);
            sched_setaffinity(None, &single_cpu).unwrap();
        }
        writer.write(number, 100).unwrap();
        offered.push((u16::try_from(cpu).unwrap(), number));
    }
    sched_setaffinity(None, &allowed).unwrap();
    offered
}

/// Asserts that the file has the last events of each CPU without a gap. Returns their number.
fn assert_suffixes(path: &Path, offered: &[(u16, u64)]) -> usize {
    let events = read_log(path);
    for cpu in offered.iter().map(|(cpu, _)| *cpu).collect::<BTreeSet<_>>() {
        let read: Vec<u64> =
            events.iter().filter(|event| event.cpu == cpu).map(|event| event.number).collect();
        let written: Vec<u64> =
            offered.iter().filter(|(written_on, _)| *written_on == cpu).map(|(_, number)| *number).collect();
        assert!(written.ends_with(&read), "processor {cpu}: older or missing events: {read:?}");
    }
    let newest = events.iter().map(|event| event.number).max();
    assert_eq!(newest, offered.last().map(|(_, number)| *number), "the newest event is missing");
    events.len()
}

#[test]
fn circular_log_keeps_newest_events() {
    let config = SessionConfig { maximum_file_size: 160, ..session_config(CIRCULAR | KBYTES) };
    let fixture = SessionFixture::with_file(config);
    let writer = fixture.attach_writer(1);
    let offered = write_from_two_cpus(&writer, 0..5_000, || {});
    let after = fixture.stop();
    assert!(fixture.log_path().metadata().unwrap().len() <= 160 << 10);
    assert_eq!((after.events_lost, after.events), (0, 5_000));
    let read = assert_suffixes(&fixture.log_path(), &offered);
    assert!((500..1000).contains(&read), "{read} events of some 200 bytes");
}

#[test]
fn flight_recorder_writes_snapshots_on_request() {
    let config = SessionConfig { minimum_buffers: 12, ..session_config(BUFFERING) };
    let fixture = SessionFixture::with_file(config);
    let writer = fixture.attach_writer(1);
    let snapshot = |name: &str| {
        let path = fixture.folder.path().join(name);
        let file = open_file(&path);
        wait_for_reply(|done| fixture.session.flush(Some((file, path.clone())), done)).unwrap()
    };
    let mut offered = Vec::new();
    for round in 0..3_u64 {
        // Snapshots must not shorten the history.
        offered.extend(write_from_two_cpus(&writer, round * 3000..(round + 1) * 3000, || {
            drop(snapshot("scratch.etl"))
        }));
        let name = format!("{round}.etl");
        assert_eq!(snapshot(&name).events_lost, 0);
        let path = fixture.folder.path().join(name);
        let read = assert_suffixes(&path, &offered);
        assert!(read >= 200, "{read} events");
        let trace = Trace::open(File::open(&path).unwrap()).unwrap();
        assert_eq!(trace.header().file_name, path.to_str().unwrap());
        // The buffers in memory and the header buffer.
        let max_buffers = fixture.session.properties().config.minimum_buffers as usize + 1;
        assert!(trace.buffers().len() <= max_buffers, "{} buffers", trace.buffers().len());
    }
    fixture.stop();
    assert_suffixes(&fixture.log_path(), &offered);
}

#[test]
fn flight_recorder_without_a_file_rejects_flush() {
    let fixture = SessionFixture::without_file(session_config(BUFFERING));
    let error = wait_for_reply(|done| fixture.session.flush(None, done));
    assert_eq!(error.unwrap_err().status(), Status::ERROR_BAD_PATHNAME);
    fixture.stop();
}

#[test]
fn size_limit_ends_a_sequential_session_and_counts_later_events() {
    let config = SessionConfig { maximum_file_size: 64, ..session_config(SEQUENTIAL | KBYTES) };
    let fixture = SessionFixture::with_file(config);
    let writer = fixture.attach_writer(1);
    for number in 0..2_000 {
        writer.write(number, 100).unwrap();
        if number % 100 == 0 {
            fixture.flush();
        }
    }
    assert_eq!(fixture.ended.recv_timeout(TIMEOUT).unwrap(), Ended { status: Status::ERROR_SUCCESS });
    let after = fixture.stop();
    assert!(fixture.log_path().metadata().unwrap().len() <= 64 << 10);
    let read = unique_numbers(&read_numbers(&fixture.log_path()));
    assert_eq!(read.len() as u64 + after.events_lost, 2_000);
    assert_eq!(after.lost_by_cause.not_written, after.events_lost);
    let header = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap().header().clone();
    assert_eq!(u64::from(header.events_lost), after.events_lost, "the header has a different count");
    assert_eq!(after.end_status, 0);
}

#[test]
fn unwritable_file_starts_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.etl");
    drop(open_file(&path));
    let file = File::options().read(true).open(&path).unwrap();
    let config =
        Config::new(SessionConfig { log_file: Some(path), ..session_config(SEQUENTIAL) }, CPUS).unwrap();
    let options = StartOptions {
        id: 1,
        file: Some(file),
        next_file: None,
        may_use_reserved_blocks: true,
        starter: (0, 0),
        on_end: Box::new(|_| {}),
    };
    let error = Session::start(config, options).unwrap_err();
    assert!(matches!(error, Error::File(_)), "{error}");
}

/// Set in the child process that has a small file size limit.
const SMALL_DISK: &str = "TRACEWEIR_TEST_SMALL_DISK";

#[test]
fn full_disk_ends_the_session_with_a_valid_file() {
    if std::env::var_os(SMALL_DISK).is_some() {
        return fill_the_disk();
    }
    // The limit in blocks of 512 bytes has room for the region, which is a file too, and for some
    // buffers. A write beyond the limit fails instead of killing the process.
    let cpus = traceweir_transport::cpu::possible().max(CPUS);
    let config = Config::new(SessionConfig { log_file: Some("x".into()), ..small_config() }, cpus).unwrap();
    let regions = config.regions(traceweir_transport::clock::Counter::best()).unwrap();
    let region_bytes = regions.largest_params().layout.region_bytes();
    let blocks = (region_bytes + (100 << 10)) / 512;
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" --exact \"$1\"");
    let name = "engine::tests::modes::full_disk_ends_the_session_with_a_valid_file";
    let program = std::env::current_exe().unwrap();
    let child = std::process::Command::new("sh")
        .args(["-c", &script])
        .arg(program)
        .arg(name)
        .env(SMALL_DISK, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

fn small_config() -> SessionConfig {
    SessionConfig { buffer_size: 4, ring_bytes: 1, ..session_config(SEQUENTIAL) }
}

fn fill_the_disk() {
    let fixture = SessionFixture::with_file(small_config());
    let writer = fixture.attach_writer(1);
    let mut offered = 0;
    let mut write_some = || {
        for _ in 0..20 {
            writer.write(offered, 100).unwrap();
            offered += 1;
        }
        fixture.flush();
    };
    let ended = loop {
        write_some();
        if let Ok(ended) = fixture.ended.try_recv() {
            break ended;
        }
    };
    assert_eq!(ended, Ended { status: Status::ERROR_DISK_FULL });
    write_some();
    let after = fixture.stop();
    let read = unique_numbers(&read_numbers(&fixture.log_path()));
    assert!(!read.is_empty());
    assert_eq!(read.len() as u64 + after.events_lost, offered);
    assert!(after.log_buffers_lost > 0);
    assert_eq!(after.end_status, Status::ERROR_DISK_FULL.0);
    let header = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap().header().clone();
    assert_eq!(u64::from(header.events_lost), after.events_lost);
    assert_eq!(header.buffers_lost, after.log_buffers_lost);
}

#[test]
fn flush_writes_everything_published_before_it() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    let writer = fixture.attach_writer(1);
    for round in 1..=5 {
        for at in 0..10 {
            writer.write((round - 1) * 10 + at, 0).unwrap();
        }
        let flushed = fixture.flush();
        assert_eq!(flushed.events, round * 10);
        // The file is not finalised yet, but its events are readable.
        let trace = Trace::open(File::open(fixture.log_path()).unwrap()).unwrap();
        let mut events = trace.events();
        let mut read = 0;
        while let Some(event) = events.next().unwrap() {
            read += u64::from(event.hook().is_none());
        }
        assert_eq!(read, round * 10);
    }
    fixture.stop();
}

#[test]
fn flush_timer_writes_partial_buffers() {
    let fixture = SessionFixture::with_file(SessionConfig { flush_timer: 1, ..session_config(SEQUENTIAL) });
    fixture.attach_writer(1).write(5, 0).unwrap();
    let deadline = std::time::Instant::now() + TIMEOUT;
    // The first buffer is the header buffer.
    while fixture.session.properties().buffers_written < 2 {
        assert!(std::time::Instant::now() < deadline, "the flush timer wrote no buffer");
        std::thread::sleep(Duration::from_millis(20));
    }
    fixture.stop();
    assert_eq!(read_numbers(&fixture.log_path()), [5]);
}

#[test]
fn update_changes_file_flush_timer_and_maximum_buffers() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    let writer = fixture.attach_writer(1);
    writer.write(1, 0).unwrap();
    let second = fixture.folder.path().join("second.etl");
    let update = |update: Update, file: Option<File>| {
        wait_for_reply(|done| fixture.session.update(update.clone(), file, done)).map_err(|e| e.status())
    };
    let change = Update {
        flush_timer: Some(7),
        maximum_buffers: Some(99),
        log_file: Some(second.clone()),
        ..Update::default()
    };
    let after = update(change.clone(), Some(open_file(&second))).unwrap();
    assert_eq!((after.config.flush_timer, after.config.maximum_buffers), (7, 99));
    assert_eq!(after.config.log_file.as_ref(), Some(&second));
    writer.write(2, 0).unwrap();
    assert_eq!(
        update(change, Some(open_file(&second))),
        Err(Status::ERROR_BAD_PATHNAME),
        "accepted the name of the current file"
    );
    let without_file = Update { log_file: Some("/x".into()), ..Update::default() };
    assert_eq!(update(without_file, None), Err(Status::ERROR_BAD_PATHNAME));
    // In an update, 0 leaves the flush timer unchanged.
    let unchanged = update(Update { flush_timer: Some(0), ..Update::default() }, None).unwrap();
    assert_eq!(unchanged.config.flush_timer, 7);
    fixture.stop();
    assert_eq!((read_numbers(&fixture.log_path()), read_numbers(&second)), (vec![1], vec![2]));
}

#[test]
fn longest_names_fit_the_smallest_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let file = open_file(&folder.path().join("short.etl"));
    let config = SessionConfig { name: "n".repeat(1023), buffer_size: 4, ..session_config(SEQUENTIAL) };
    let fixture = SessionFixture::start(
        SessionConfig { log_file: Some("f".repeat(1023).into()), ..config },
        Some(file),
        folder,
    );
    fixture.stop();
    assert_eq!(read_numbers(&fixture.folder.path().join("short.etl")), []);
}

#[test]
fn needless_wakes_do_not_disturb_the_session() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    let waking_process = fixture.session.attach(2, ThreadIdMapping::AsGiven).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                // Fills the counter of the eventfd of its region and empties it again.
                let _ = rustix::io::write(&waking_process.wake, &(u64::MAX - 1).to_ne_bytes());
                let _ = rustix::io::read(&waking_process.wake, &mut [0_u8; 8]);
            }
        });
        let writer = fixture.attach_writer(1);
        for number in 0..50 {
            writer.write(number, 0).unwrap();
            assert_eq!(fixture.flush().events, number + 1);
        }
        stop.store(true, Relaxed);
    });
    fixture.stop();
    assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())), (0..50).collect());
}

#[test]
fn requests_after_the_stop_are_refused() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    fixture.stop();
    let assert_ended = |error: Error| assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    assert_ended(fixture.session.attach(1, ThreadIdMapping::AsGiven).unwrap_err());
    assert_ended(wait_for_reply(|done| fixture.session.flush(None, done)).unwrap_err());
    assert_ended(wait_for_reply(|done| fixture.session.stop(done)).unwrap_err());
    assert_ended(wait_for_reply(|done| fixture.session.open_consumer(done)).unwrap_err());
    assert_ended(wait_for_reply(|done| fixture.session.update(Update::default(), None, done)).unwrap_err());
    fixture.session.detach(RegionId(1));
    fixture.session.close_consumer(ConsumerId(1));
}

#[test]
fn dropping_all_handles_finalises_the_file() {
    let SessionFixture { session, folder, ended } = SessionFixture::with_file(session_config(SEQUENTIAL));
    let path = folder.path().join("log.etl");
    let fixture = SessionFixture { session: session.clone(), folder, ended };
    fixture.attach_writer(1).write(9, 0).unwrap();
    let shared = Arc::downgrade(&fixture.session.inner.shared);
    let SessionFixture { session: other, folder: _folder, .. } = fixture;
    drop((session, other));
    let deadline = std::time::Instant::now() + TIMEOUT;
    while shared.strong_count() > 0 {
        assert!(std::time::Instant::now() < deadline, "the threads of the session still run");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(read_numbers(&path), [9]);
}

#[test]
fn private_session_reads_memory_of_its_own_process() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL | PRIVATE | IN_PROC));
    let (params, wake) = fixture.session.region_params().unwrap();
    let outlet: &'static Outlet = Box::leak(Box::new(Outlet::new()));
    let (ticket, region) = outlet.open_private(&params, wake).unwrap();
    let region = fixture.session.attach_private(region, 4711).unwrap();
    let writer = TestWriter { outlet, ticket, region };
    for number in 0..1000 {
        writer.write(number, 0).unwrap();
    }
    assert!(outlet.close());
    fixture.stop();
    let read = read_log(&fixture.log_path());
    assert_eq!(read.iter().map(|event| event.number).collect::<BTreeSet<_>>(), (0..1000).collect());
    assert!(read.iter().all(|event| event.process_id == 4711));
}

/// Returns a configuration with the buffers of a `weir record` session.
fn record_config() -> SessionConfig {
    SessionConfig {
        buffer_size: 256,
        minimum_buffers: 16,
        maximum_buffers: 128,
        ring_bytes: 0,
        ..session_config(SEQUENTIAL)
    }
}

#[test]
fn two_hundred_processes_get_rings_with_128_cpus() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.etl");
    let file = open_file(&path);
    let config = Config::new(SessionConfig { log_file: Some(path), ..record_config() }, 128).unwrap();
    let options = StartOptions {
        id: 1,
        file: Some(file),
        next_file: None,
        may_use_reserved_blocks: true,
        starter: (0, 0),
        on_end: Box::new(|_| {}),
    };
    let session = Session::start(config, options).unwrap();
    let attached: Vec<_> = (0..200)
        .map(|pid| session.attach(pid, ThreadIdMapping::AsGiven).expect("the session attached no process"))
        .collect();
    for (number, region) in attached.iter().enumerate() {
        let (ring, record) = (region.params.layout.ring_bytes(), region.params.max_record);
        assert!(ring >= 2 * record, "process {number} has rings of {ring} bytes");
    }
    let after = wait_for_reply(|done| session.stop(done)).unwrap();
    assert_eq!(after.events_lost, 0);
}

#[test]
fn region_beyond_the_memory_share_only_counts_losses() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    let shared = fixture.session.shared();
    let normal = fixture.attach_writer(1);
    let claimed: Vec<_> = std::iter::repeat_with(|| shared.regions.claim().unwrap())
        .take_while(|(params, _)| params.layout.ring_bytes() > 0)
        .collect();
    let without_rings = fixture.attach_writer(2);
    assert!(without_rings.write(1, 0).is_err());
    assert!(without_rings.write(2, 0).is_err());
    normal.write(3, 0).unwrap();
    let flushed = fixture.flush();
    assert_eq!((flushed.events_lost, flushed.lost_by_cause.no_region), (2, 2));
    for (_, cost) in claimed {
        shared.regions.give_back(cost);
    }
    let with_rings = fixture.attach_writer(3);
    with_rings.write(4, 0).unwrap();
    fixture.stop();
    assert_eq!(unique_numbers(&read_numbers(&fixture.log_path())), [3, 4].into());
}

#[test]
fn update_has_the_same_buffer_limit_as_a_start() {
    let fixture = SessionFixture::with_file(session_config(SEQUENTIAL));
    let set_maximum = |maximum_buffers| {
        let update = Update { maximum_buffers: Some(maximum_buffers), ..Update::default() };
        wait_for_reply(|done| fixture.session.update(update, None, done)).unwrap().config.maximum_buffers
    };
    let config =
        SessionConfig { maximum_buffers: u32::MAX, log_file: Some("x".into()), ..session_config(SEQUENTIAL) };
    let at_start = Config::new(config, CPUS).unwrap().properties().maximum_buffers;
    assert_eq!(set_maximum(u32::MAX), at_start);
    let minimum = fixture.session.properties().config.minimum_buffers;
    assert_eq!(set_maximum(1), minimum);
    fixture.stop();
}
