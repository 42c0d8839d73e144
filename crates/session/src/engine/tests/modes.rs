//! Tests of log file modes, requests, and ends of sessions.

use super::*;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Writes numbers from two CPUs in turns. Returns which number was written where. Calls `pause`
/// after every 50 events.
fn offer(pen: &Pen, numbers: std::ops::Range<u64>, pause: impl Fn()) -> Vec<(u16, u64)> {
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).take(2).collect();
    let mut offered = Vec::new();
    for number in numbers {
        if number % 50 == 0 {
            pause();
        }
        let cpu = cpus[usize::try_from(number / 300).unwrap() % cpus.len()];
        if number % 300 == 0 {
            let mut here = CpuSet::new();
            here.set(cpu);
            sched_setaffinity(None, &here).unwrap();
        }
        pen.write(number, 100).unwrap();
        offered.push((u16::try_from(cpu).unwrap(), number));
    }
    sched_setaffinity(None, &allowed).unwrap();
    offered
}

/// Asserts that the file has the last events of each CPU without a gap. Returns their number.
fn assert_suffixes(path: &Path, offered: &[(u16, u64)]) -> usize {
    let events = read(path);
    for cpu in offered.iter().map(|o| o.0).collect::<BTreeSet<_>>() {
        let there: Vec<u64> = events.iter().filter(|e| e.1 == cpu).map(|e| e.2).collect();
        let written: Vec<u64> = offered.iter().filter(|o| o.0 == cpu).map(|o| o.1).collect();
        assert!(written.ends_with(&there), "processor {cpu}: {} of {} there", there.len(), written.len());
    }
    let newest = events.iter().map(|e| e.2).max();
    assert_eq!(newest, offered.last().map(|o| o.1), "the newest event is there");
    events.len()
}

#[test]
fn circular_log_keeps_newest_events() {
    let raw = SessionConfig { maximum_file_size: 160, ..properties(0x2002) };
    let stage = Stage::with_file(raw);
    let pen = stage.pen(1);
    let offered = offer(&pen, 0..5_000, || {});
    let after = stage.stop();
    assert!(stage.log().metadata().unwrap().len() <= 160 << 10);
    assert_eq!((after.events_lost, after.events), (0, 5_000));
    let there = assert_suffixes(&stage.log(), &offered);
    assert!((500..1000).contains(&there), "{there} events of some 200 bytes");
}

#[test]
fn flight_recorder_writes_snapshots_on_request() {
    let raw = SessionConfig { minimum_buffers: 12, ..properties(0x400) };
    let stage = Stage::with_file(raw);
    let pen = stage.pen(1);
    let snapshot = |name: &str| {
        let path = stage.folder.path().join(name);
        let file = open(&path);
        answer(|done| stage.session.flush(Some((file, path.clone())), done)).unwrap()
    };
    let mut offered = Vec::new();
    for round in 0..3_u64 {
        // Snapshots must not shorten the history.
        offered.extend(offer(&pen, round * 3000..(round + 1) * 3000, || drop(snapshot("scratch.etl"))));
        let name = format!("{round}.etl");
        assert_eq!(snapshot(&name).events_lost, 0);
        let path = stage.folder.path().join(name);
        let there = assert_suffixes(&path, &offered);
        assert!(there >= 200, "{there} events");
        let trace = Trace::open(File::open(&path).unwrap()).unwrap();
        assert_eq!(trace.header().file_name, path.to_str().unwrap());
        let most = stage.session.properties().config.minimum_buffers as usize + 1;
        assert!(trace.buffers().len() <= most, "{} buffers", trace.buffers().len());
    }
    stage.stop();
    assert_suffixes(&stage.log(), &offered);
}

#[test]
fn flight_recorder_without_a_file_rejects_flush() {
    let stage = Stage::without_file(properties(BUFFERING));
    let refused = answer(|done| stage.session.flush(None, done));
    assert_eq!(refused.unwrap_err().status(), Status::ERROR_BAD_PATHNAME);
    stage.stop();
}

#[test]
fn size_limit_ends_a_sequential_session_and_counts_the_rest() {
    let raw = SessionConfig { maximum_file_size: 64, ..properties(0x2001) };
    let stage = Stage::with_file(raw);
    let pen = stage.pen(1);
    for number in 0..2_000 {
        pen.write(number, 100).unwrap();
        if number % 100 == 0 {
            stage.flush();
        }
    }
    assert_eq!(stage.ended.recv_timeout(TIMEOUT).unwrap(), Ended { status: Status::ERROR_SUCCESS });
    let after = stage.stop();
    assert!(stage.log().metadata().unwrap().len() <= 64 << 10);
    let there = numbers(&stage.log());
    let prefix: Vec<u64> = (0..there.len() as u64).collect();
    assert_eq!(set(&there).len(), prefix.len());
    assert_eq!(there.len() as u64 + after.events_lost, 2_000);
    assert_eq!(after.lost_by_cause.not_written, after.events_lost);
    let header = Trace::open(File::open(stage.log()).unwrap()).unwrap().header().clone();
    assert_eq!(u64::from(header.events_lost), after.events_lost, "the header counts them too");
    assert_eq!(after.end_status, 0);
}

#[test]
fn unwritable_file_starts_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.etl");
    drop(open(&path));
    let file = File::options().read(true).open(&path).unwrap();
    let config = Config::new(SessionConfig { log_file: Some(path), ..properties(1) }, CPUS).unwrap();
    let options = StartOptions {
        id: 1,
        file: Some(file),
        next_file: None,
        may_use_reserved_blocks: true,
        starter: (0, 0),
        on_end: Box::new(|_| {}),
    };
    let refused = Session::start(config, options).unwrap_err();
    assert!(matches!(refused, Error::File(_)), "{refused}");
}

/// Set in the child process that has a small file size limit.
const SMALL_DISK: &str = "TRACEWEIR_TEST_SMALL_DISK";

#[test]
fn full_disk_ends_the_session_with_a_valid_file() {
    if std::env::var_os(SMALL_DISK).is_some() {
        return fill_the_disk();
    }
    // Blocks of 512 bytes: room for the region, which is a file too, and some buffers. A write
    // beyond fails instead of killing the process.
    let cpus = traceweir_transport::cpu::possible().max(CPUS);
    let config = Config::new(SessionConfig { log_file: Some("x".into()), ..small() }, cpus).unwrap();
    let regions = config.regions(traceweir_transport::clock::Counter::best()).unwrap();
    let region = regions.largest_params().layout.region_bytes();
    let blocks = (region + (100 << 10)) / 512;
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
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

fn small() -> SessionConfig {
    SessionConfig { buffer_size: 4, ring_bytes: 1, ..properties(1) }
}

fn fill_the_disk() {
    let stage = Stage::with_file(small());
    let pen = stage.pen(1);
    let mut offered = 0;
    let mut write_some = || {
        for _ in 0..20 {
            pen.write(offered, 100).unwrap();
            offered += 1;
        }
        stage.flush();
    };
    let ended = loop {
        write_some();
        if let Ok(ended) = stage.ended.try_recv() {
            break ended;
        }
    };
    assert_eq!(ended, Ended { status: Status::ERROR_DISK_FULL });
    write_some();
    let after = stage.stop();
    let there = set(&numbers(&stage.log()));
    assert!(!there.is_empty());
    assert_eq!(there.len() as u64 + after.events_lost, offered);
    assert!(after.log_buffers_lost > 0);
    assert_eq!(after.end_status, Status::ERROR_DISK_FULL.0);
    let header = Trace::open(File::open(stage.log()).unwrap()).unwrap().header().clone();
    assert_eq!(u64::from(header.events_lost), after.events_lost);
    assert_eq!(header.buffers_lost, after.log_buffers_lost);
}

#[test]
fn flush_writes_everything_published_before_it() {
    let stage = Stage::with_file(properties(SEQUENTIAL));
    let pen = stage.pen(1);
    for round in 1..=5 {
        for at in 0..10 {
            pen.write((round - 1) * 10 + at, 0).unwrap();
        }
        let now = stage.flush();
        assert_eq!(now.events, round * 10);
        // The file is not finalised yet, but its events are readable.
        let trace = Trace::open(File::open(stage.log()).unwrap()).unwrap();
        let mut events = trace.events();
        let mut there = 0;
        while let Some(event) = events.next().unwrap() {
            there += u64::from(event.hook().is_none());
        }
        assert_eq!(there, round * 10);
    }
    stage.stop();
}

#[test]
fn flush_timer_writes_partial_buffers() {
    let stage = Stage::with_file(SessionConfig { flush_timer: 1, ..properties(1) });
    stage.pen(1).write(5, 0).unwrap();
    let deadline = std::time::Instant::now() + TIMEOUT;
    while stage.session.properties().buffers_written < 2 {
        assert!(std::time::Instant::now() < deadline, "never written");
        std::thread::sleep(Duration::from_millis(20));
    }
    stage.stop();
    assert_eq!(numbers(&stage.log()), [5]);
}

#[test]
fn update_changes_file_and_buffer_numbers() {
    let stage = Stage::with_file(properties(SEQUENTIAL));
    let pen = stage.pen(1);
    pen.write(1, 0).unwrap();
    let second = stage.folder.path().join("second.etl");
    let update = |update: Update, file: Option<File>| {
        answer(|done| stage.session.update(update.clone(), file, done)).map_err(|e| e.status())
    };
    let change = Update {
        flush_timer: Some(7),
        maximum_buffers: Some(99),
        log_file: Some(second.clone()),
        ..Update::default()
    };
    let now = update(change.clone(), Some(open(&second))).unwrap();
    assert_eq!((now.config.flush_timer, now.config.maximum_buffers), (7, 99));
    assert_eq!(now.config.log_file.as_ref(), Some(&second));
    pen.write(2, 0).unwrap();
    assert_eq!(update(change, Some(open(&second))), Err(Status::ERROR_BAD_PATHNAME), "the same name again");
    let nameless = Update { log_file: Some("/x".into()), ..Update::default() };
    assert_eq!(update(nameless, None), Err(Status::ERROR_BAD_PATHNAME));
    let unchanged = update(Update { flush_timer: Some(0), ..Update::default() }, None).unwrap();
    assert_eq!(unchanged.config.flush_timer, 7);
    stage.stop();
    assert_eq!((numbers(&stage.log()), numbers(&second)), (vec![1], vec![2]));
}

#[test]
fn longest_names_fit_the_smallest_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let file = open(&folder.path().join("short.etl"));
    let raw = SessionConfig { name: "n".repeat(1023), buffer_size: 4, ..properties(1) };
    let stage =
        Stage::start(SessionConfig { log_file: Some("f".repeat(1023).into()), ..raw }, Some(file), folder);
    stage.stop();
    assert_eq!(numbers(&stage.folder.path().join("short.etl")), []);
}

#[test]
fn needless_wakes_do_not_disturb_the_session() {
    let stage = Stage::with_file(properties(SEQUENTIAL));
    let nuisance = stage.session.attach(2, Threads::AsGiven).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                // Fills the counter of its own eventfd and empties it again.
                let _ = rustix::io::write(&nuisance.wake, &(u64::MAX - 1).to_ne_bytes());
                let _ = rustix::io::read(&nuisance.wake, &mut [0_u8; 8]);
            }
        });
        let pen = stage.pen(1);
        for number in 0..50 {
            pen.write(number, 0).unwrap();
            assert_eq!(stage.flush().events, number + 1);
        }
        stop.store(true, Relaxed);
    });
    stage.stop();
    assert_eq!(set(&numbers(&stage.log())), (0..50).collect());
}

#[test]
fn requests_after_the_stop_are_refused() {
    let stage = Stage::with_file(properties(SEQUENTIAL));
    stage.stop();
    let ended = |error: Error| assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    ended(stage.session.attach(1, Threads::AsGiven).unwrap_err());
    ended(answer(|done| stage.session.flush(None, done)).unwrap_err());
    ended(answer(|done| stage.session.stop(done)).unwrap_err());
    ended(answer(|done| stage.session.open_consumer(done)).unwrap_err());
    ended(answer(|done| stage.session.update(Update::default(), None, done)).unwrap_err());
    stage.session.detach(SourceId(1));
    stage.session.close_consumer(ConsumerId(1));
}

#[test]
fn dropping_all_handles_finalises_the_file() {
    let Stage { session, folder, ended } = Stage::with_file(properties(SEQUENTIAL));
    let path = folder.path().join("log.etl");
    let stage = Stage { session: session.clone(), folder, ended };
    stage.pen(1).write(9, 0).unwrap();
    let shared = Arc::downgrade(&stage.session.handle.shared);
    let Stage { session: other, folder: _folder, .. } = stage;
    drop((session, other));
    let deadline = std::time::Instant::now() + TIMEOUT;
    while shared.strong_count() > 0 {
        assert!(std::time::Instant::now() < deadline, "threads still run");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(numbers(&path), [9]);
}

#[test]
fn private_session_reads_memory_of_its_own_process() {
    let stage = Stage::with_file(properties(SEQUENTIAL | PRIVATE | IN_PROC));
    let (params, wake) = stage.session.region_params().unwrap();
    let outlet: &'static Outlet = Box::leak(Box::new(Outlet::new()));
    let (ticket, region) = outlet.open_private(&params, wake).unwrap();
    let source = stage.session.attach_private(region, 4711).unwrap();
    let pen = Pen { outlet, ticket, source };
    for number in 0..1000 {
        pen.write(number, 0).unwrap();
    }
    assert!(outlet.close());
    stage.stop();
    let there = read(&stage.log());
    assert_eq!(there.iter().map(|e| e.2).collect::<BTreeSet<_>>(), (0..1000).collect());
    assert!(there.iter().all(|e| e.0 == 4711));
}

/// Properties with the buffers of a `weir record` session.
fn recording() -> SessionConfig {
    SessionConfig {
        buffer_size: 256,
        minimum_buffers: 16,
        maximum_buffers: 128,
        ring_bytes: 0,
        ..properties(1)
    }
}

#[test]
fn two_hundred_processes_get_rings_with_128_cpus() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.etl");
    let file = open(&path);
    let config = Config::new(SessionConfig { log_file: Some(path), ..recording() }, 128).unwrap();
    let options = StartOptions {
        id: 1,
        file: Some(file),
        next_file: None,
        may_use_reserved_blocks: true,
        starter: (0, 0),
        on_end: Box::new(|_| {}),
    };
    let session = Session::start(config, options).unwrap();
    let attached: Vec<_> =
        (0..200).map(|pid| session.attach(pid, Threads::AsGiven).expect("a region")).collect();
    for (number, one) in attached.iter().enumerate() {
        let (ring, record) = (one.params.layout.ring_bytes(), one.params.max_record);
        assert!(ring >= 2 * record, "process {number} has rings of {ring} bytes");
    }
    let after = answer(|done| session.stop(done)).unwrap();
    assert_eq!(after.events_lost, 0);
}

#[test]
fn region_beyond_the_memory_share_only_counts_losses() {
    let stage = Stage::with_file(properties(SEQUENTIAL));
    let shared = stage.session.shared();
    let normal = stage.pen(1);
    let claimed: Vec<_> = std::iter::repeat_with(|| shared.regions.claim().unwrap())
        .take_while(|(params, _)| params.layout.ring_bytes() > 0)
        .collect();
    let poor = stage.pen(2);
    assert!(poor.write(1, 0).is_err());
    assert!(poor.write(2, 0).is_err());
    normal.write(3, 0).unwrap();
    let now = stage.flush();
    assert_eq!((now.events_lost, now.lost_by_cause.no_region), (2, 2));
    for (_, cost) in claimed {
        shared.regions.give_back(cost);
    }
    let rich = stage.pen(3);
    rich.write(4, 0).unwrap();
    stage.stop();
    assert_eq!(set(&numbers(&stage.log())), [3, 4].into());
}

#[test]
fn update_has_the_same_buffer_limit_as_a_start() {
    let stage = Stage::with_file(properties(SEQUENTIAL));
    let most = |maximum_buffers| {
        let update = Update { maximum_buffers: Some(maximum_buffers), ..Update::default() };
        answer(|done| stage.session.update(update, None, done)).unwrap().config.maximum_buffers
    };
    let raw = SessionConfig { maximum_buffers: u32::MAX, log_file: Some("x".into()), ..properties(1) };
    let at_start = Config::new(raw, CPUS).unwrap().properties().maximum_buffers;
    assert_eq!(most(u32::MAX), at_start);
    let least = stage.session.properties().config.minimum_buffers;
    assert_eq!(most(1), least);
    stage.stop();
}
