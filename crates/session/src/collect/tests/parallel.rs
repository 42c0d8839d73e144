//! Tests that several threads collect what one thread collects.

use super::*;

use std::thread;

use proptest::prelude::*;

use crate::collect::parallel::MIN_PARALLEL_BYTES;

/// A record to publish: CPU, region, and whether a drain follows.
type Publication = (u16, usize, bool);

/// Payload of an event of which 32 fill the slice of a turn.
const LARGE_PAYLOAD: [u8; 8 << 10] = [0; 8 << 10];
/// Name of the helping threads.
const HELPER_NAME: &str = "weir-collect";
/// Process of the region that [`ParallelFixture::add_observed_region`] adds.
const OBSERVED_PROCESS: u32 = 7;

/// A collector with three regions whose streams are drained by several threads, or all by one.
struct ParallelFixture {
    fixture: CollectorFixture,
    regions: Vec<Region>,
    is_parallel: bool,
}

impl ParallelFixture {
    /// Creates a collector with [`CPUS`] streams and, if several threads are to drain, as many
    /// threads.
    fn new(is_parallel: bool, config: SessionConfig) -> Self {
        Self::with_streams_per_thread(is_parallel.then_some(1), config, CPUS)
    }

    /// `None` drains with one thread.
    fn with_streams_per_thread(streams_per_thread: Option<usize>, config: SessionConfig, cpus: u16) -> Self {
        let mut fixture = CollectorFixture::with_cpus(config, cpus);
        if let Some(streams) = streams_per_thread {
            fixture.collector.streams_per_thread = streams;
        }
        let mut regions = Vec::new();
        for process in 2..5 {
            let (region, source) = Region::new(&fixture.collector.shared, process);
            fixture.collector.add_source(source);
            regions.push(region);
        }
        Self { fixture, regions, is_parallel: streams_per_thread.is_some() }
    }

    /// Adds a region, and calls `action` while an event of the region is collected.
    fn add_observed_region(&mut self, action: impl FnMut() + Send + 'static) -> Region {
        let collector = &mut self.fixture.collector;
        let (region, source) = Region::new(&collector.shared, OBSERVED_PROCESS);
        collector.add_source(call_while_collecting(source, OBSERVED_PROCESS, action));
        region
    }

    /// Publishes an event of a region on a CPU now, and returns its stamp.
    fn publish(&mut self, region: usize, cpu: u16, payload: &[u8]) -> i64 {
        let now = self.fixture.now();
        self.regions[region].publish(cpu, now, 0, payload);
        now.cast_signed()
    }

    /// Makes the first turn of the next drain one of several threads, if they may drain.
    fn allow_parallel_turn(&mut self) {
        let collector = &mut self.fixture.collector;
        (collector.drained_bytes, collector.needs_lone_turn) = (MIN_PARALLEL_BYTES, false);
    }

    fn drain(&mut self, reach: DrainReach) {
        self.allow_parallel_turn();
        let turns = self.fixture.collector.parallel_turns;
        self.fixture.collector.drain(reach);
        let has_parallel_turns = self.fixture.collector.parallel_turns > turns;
        assert_eq!(has_parallel_turns, self.is_parallel, "the wrong number of threads drained");
    }

    /// Drains everything, like [`collected_events`](Self::collected_events).
    fn finish(mut self) -> Vec<Vec<(u32, i64)>> {
        self.drain(DrainReach::All);
        self.collected_events()
    }

    /// Flushes. Returns process and stamp of each event, by CPU; the late streams follow.
    fn collected_events(mut self) -> Vec<Vec<(u32, i64)>> {
        self.fixture.collector.flush();
        let streams = usize::from(self.fixture.collector.shared.streams);
        let mut events = vec![Vec::new(); streams * 2];
        for job in self.fixture.jobs.try_iter() {
            if let Job::Buffer(buffer) = job {
                let late = if buffer.is_late { streams } else { 0 };
                events[late + usize::from(buffer.cpu)].extend(read_events(&buffer));
            }
        }
        events
    }
}

fn file_session() -> SessionConfig {
    SessionConfig {
        name: "s".into(),
        log_file: Some("log.etl".into()),
        log_file_mode: SEQUENTIAL,
        clock: raw_clock(),
        ring_bytes: 1 << 20,
        ..SessionConfig::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn threads_collect_the_events_of_one_thread(
        publications in prop::collection::vec((0..CPUS, 0..3_usize, prop::bool::weighted(0.05)), 1..300),
    ) {
        let publications: Vec<Publication> = publications;
        let [expected, actual] = [false, true].map(|is_parallel| {
            let mut fixture = ParallelFixture::new(is_parallel, file_session());
            // Each run has its own stamps, so the positions of the records stand for them.
            let mut stamps = Vec::new();
            for (cpu, region, is_drained) in &publications {
                let now = fixture.fixture.now();
                stamps.push(now.cast_signed());
                fixture.regions[*region].publish(*cpu, now, 0, &[7; 8]);
                if *is_drained {
                    fixture.drain(DrainReach::BeforeDrain);
                }
            }
            let position = |stamp: i64| stamps.iter().position(|known| *known == stamp);
            let events = fixture.finish().into_iter();
            events.map(|cpu| cpu.into_iter().map(|(process, stamp)| (process, position(stamp))).collect())
                .collect::<Vec<Vec<_>>>()
        });
        prop_assert_eq!(&expected, &actual);
        prop_assert_eq!(actual.iter().map(Vec::len).sum::<usize>(), publications.len());
    }
}

#[test]
fn threads_without_a_free_buffer_lose_nothing() {
    const EVENTS: usize = 2000;
    let config = SessionConfig { buffer_size: 4, maximum_buffers: 2, minimum_buffers: 2, ..file_session() };
    let mut fixture = ParallelFixture::new(true, config);
    let shared = Arc::clone(&fixture.fixture.collector.shared);
    let jobs = std::mem::replace(&mut fixture.fixture.jobs, channel().1);
    // The writer thread, which gives the buffers back.
    let writer = thread::spawn(move || {
        let mut events = 0;
        for job in jobs {
            if let Job::Buffer(buffer) = job {
                events += read_events(&buffer).len();
                shared.pool.return_buffer(buffer);
                shared.pool.count_finished();
            }
        }
        events
    });
    for number in 0..EVENTS {
        let now = fixture.fixture.now();
        let cpu = u16::try_from(number % usize::from(CPUS)).unwrap();
        fixture.regions[number % 3].publish(cpu, now, 0, &[7; 64]);
    }
    fixture.drain(DrainReach::BeforeDrain);
    fixture.drain(DrainReach::All);
    fixture.fixture.collector.flush();
    drop(fixture);
    assert_eq!(writer.join().unwrap(), EVENTS);
}

#[test]
fn panic_of_a_helping_thread_becomes_one_of_the_collector() {
    let mut fixture = ParallelFixture::new(true, file_session());
    let (sender, names) = channel();
    let mut region = fixture.add_observed_region(move || {
        sender.send(thread::current().name().map(str::to_owned)).unwrap();
        panic!("panic of the test");
    });
    region.publish(0, fixture.fixture.now(), 0, &[]);
    fixture.publish(0, 1, &[]);
    assert!(!contain_panic(|| fixture.drain(DrainReach::BeforeDrain)), "the panic was lost");
    assert_eq!(names.recv().unwrap().as_deref(), Some(HELPER_NAME));
    // As after each panic of the collector, collected events are counted as lost.
    let collector = &mut fixture.fixture.collector;
    collector.abandon();
    let stats = &collector.shared.stats;
    assert_eq!((stats.events.load(Relaxed), stats.not_written.load(Relaxed)), (1, 1));
    assert_eq!((collector.shared.pool.counts().1, stats.processes.load(Relaxed)), (0, 0));
}

#[test]
fn collector_drains_streams_whose_thread_cannot_start() {
    const EVENTS: usize = 20;
    for can_start in [true, false] {
        let mut fixture = ParallelFixture::with_streams_per_thread(Some(1), file_session(), 3);
        if !can_start {
            // More than any address space has.
            fixture.fixture.collector.helper_stack_bytes = 1 << 60;
        }
        let (sender, names) = channel();
        let mut region = fixture.add_observed_region(move || {
            sender.send(thread::current().name() == Some(HELPER_NAME)).unwrap();
        });
        let mut expected = vec![Vec::new(); 6];
        for number in 0..EVENTS {
            for cpu in 0..3 {
                let stamp = fixture.publish(number % 3, cpu, &[]);
                expected[usize::from(cpu)].push((2 + (number % 3) as u32, stamp));
            }
        }
        region.publish(1, fixture.fixture.now(), 0, &[]);
        fixture.allow_parallel_turn();
        fixture.fixture.collector.drain(DrainReach::BeforeDrain);
        assert_eq!(fixture.fixture.collector.parallel_turns, 1);
        let is_helper: Vec<bool> = names.try_iter().collect();
        assert_eq!(is_helper, [can_start]);
        assert!(!fixture.fixture.collector.needs_lone_turn, "the drain ended before the collector's turn");
        let mut events = fixture.finish();
        events[1].retain(|(process, _)| *process != OBSERVED_PROCESS);
        assert_eq!(events, expected);
    }
}

#[test]
fn consumers_get_completeness_stamps_between_parallel_turns() {
    const EVENTS: usize = 48;
    let config = SessionConfig {
        name: "s".into(),
        log_file_mode: REAL_TIME,
        clock: raw_clock(),
        ring_bytes: 1 << 20,
        maximum_buffers: 16,
        ..SessionConfig::default()
    };
    let mut fixture = ParallelFixture::with_streams_per_thread(Some(1), config, 3);
    let shared = Arc::clone(&fixture.fixture.collector.shared);
    shared.stats.consumers.store(1, Relaxed);
    let interval = fixture.fixture.collector.report_interval_bytes();
    let mut published = vec![fixture.publish(0, 2, &[])];
    for number in 0..EVENTS {
        published.extend([0, 1].map(|cpu| fixture.publish(number % 3, cpu, &LARGE_PAYLOAD)));
    }
    fixture.drain(DrainReach::BeforeDrain);
    assert!(fixture.fixture.collector.parallel_turns >= 3);
    assert!(!fixture.fixture.collector.needs_lone_turn);
    fixture.fixture.collector.flush();
    let (mut stamps, mut complete, mut bytes_since, mut reports) = (Vec::new(), i64::MIN, 0, 0);
    for job in fixture.fixture.jobs.try_iter() {
        match job {
            // The part that was not delivered as a piece before.
            Job::Buffer(buffer) | Job::Live(buffer) => {
                let piece = buffer.copy_from(buffer.delivered, 0).unwrap();
                let new_stamps: Vec<i64> = read_events(&piece).into_iter().map(|(_, stamp)| stamp).collect();
                assert!(new_stamps.iter().all(|&stamp| stamp > complete), "{new_stamps:?} after {complete}");
                bytes_since += piece.filled - HEADER_SIZE;
                stamps.extend(new_stamps);
            }
            Job::Complete(stamp) => {
                assert!(stamp > complete);
                let (before, after): (Vec<i64>, Vec<i64>) =
                    published.iter().partition(|known| **known <= stamp);
                assert!(before.iter().all(|known| stamps.contains(known)), "{stamp} is not complete");
                assert!(!after.is_empty(), "the stamp came after the drain");
                assert!(bytes_since < 2 * interval, "{bytes_since} bytes without a completeness stamp");
                (complete, bytes_since, reports) = (stamp, 0, reports + 1);
            }
            _ => panic!("an unexpected job was sent"),
        }
    }
    assert!(reports >= 2, "{reports} completeness stamps");
    stamps.sort_unstable();
    assert_eq!(stamps, published);
}

#[test]
fn process_attached_during_a_parallel_turn_takes_part_in_the_next() {
    for reach in [DrainReach::BeforeDrain, DrainReach::All] {
        let mut fixture = ParallelFixture::new(true, file_session());
        let (counter, shared) =
            (fixture.fixture.collector.clock.counter(), Arc::clone(&fixture.fixture.collector.shared));
        let (sender, attached_stamps) = channel();
        let mut new_process = Some(Region::new(&shared, 8));
        let mut region = fixture.add_observed_region(move || {
            if let Some((mut region, source)) = new_process.take() {
                shared.attach(source).unwrap();
                let now = counter.now();
                region.publish(0, now, 0, &[]);
                sender.send(now.cast_signed()).unwrap();
            }
        });
        region.publish(0, fixture.fixture.now(), 0, &[]);
        // More than one turn takes.
        for _ in 0..=SLICE_BYTES / LARGE_PAYLOAD.len() {
            fixture.publish(0, 0, &LARGE_PAYLOAD);
            fixture.publish(0, 1, &LARGE_PAYLOAD);
        }
        fixture.drain(reach);
        assert_eq!(fixture.fixture.collector.parallel_turns, 2);
        let attached_stamp = attached_stamps.recv().unwrap();
        let collected = fixture.collected_events().concat();
        let events: Vec<_> = collected.into_iter().filter(|(process, _)| *process == 8).collect();
        assert_eq!(events, [(8, attached_stamp)], "{reach:?}");
    }
}

#[test]
fn large_backlog_is_collected_by_one_thread() {
    let mut fixture = ParallelFixture::new(true, file_session());
    let early: Vec<u64> = (0..=SLICE_BYTES / LARGE_PAYLOAD.len()).map(|_| fixture.fixture.now()).collect();
    let mut expected = vec![Vec::new(); usize::from(CPUS) * 2];
    for cpu in [0, 1] {
        expected[usize::from(cpu)].push((2, fixture.publish(0, cpu, &[])));
    }
    fixture.drain(DrainReach::BeforeDrain);
    let (mut region, source) = Region::new(&fixture.fixture.collector.shared, 8);
    for &stamp in &early {
        region.publish(0, stamp, 0, &LARGE_PAYLOAD);
        expected[usize::from(CPUS)].push((8, stamp.cast_signed()));
    }
    let backlog_streams = (0..usize::from(CPUS)).collect();
    fixture.fixture.collector.shared.attach(SessionSource { backlog_streams, ..source }).unwrap();
    for cpu in [0, 1] {
        expected[usize::from(cpu)].push((3, fixture.publish(1, cpu, &[])));
    }
    fixture.allow_parallel_turn();
    fixture.fixture.collector.drain(DrainReach::BeforeDrain);
    assert_eq!(fixture.fixture.collector.parallel_turns, 1, "threads started in spite of the backlog");
    assert!(!fixture.fixture.collector.has_backlog);
    assert_eq!(fixture.collected_events(), expected);
}

#[test]
fn event_of_a_process_attached_during_a_turn_keeps_its_stamp() {
    for streams_per_thread in [Some(2), None] {
        for reach in [DrainReach::BeforeDrain, DrainReach::All] {
            let mut fixture = ParallelFixture::with_streams_per_thread(streams_per_thread, file_session(), 4);
            let (counter, shared) =
                (fixture.fixture.collector.clock.counter(), Arc::clone(&fixture.fixture.collector.shared));
            let (sender, stamps) = channel();
            let (mut other_region, source) = Region::new(&shared, 9);
            fixture.fixture.collector.add_source(source);
            let mut new_process = Some(Region::new(&shared, 8));
            let mut region = fixture.add_observed_region(move || {
                let Some((mut region, source)) = new_process.take() else { return };
                // The collector has not polled the second stream yet.
                shared.attach(source).unwrap();
                let written = [counter.now(), counter.now()];
                region.publish(1, written[0], 0, &[]);
                other_region.publish(1, written[1], 0, &[]);
                sender.send(written).unwrap();
            });
            region.publish(0, fixture.fixture.now(), 0, &[]);
            fixture.publish(0, 2, &[]);
            fixture.drain(reach);
            let [attached, other] = stamps.recv().unwrap().map(u64::cast_signed);
            let mut events = fixture.finish();
            let events: Vec<(u32, i64)> = events.drain(..).flatten().collect();
            assert!(events.contains(&(8, attached)) && events.contains(&(9, other)), "{reach:?}: {events:?}");
            assert_eq!(events.len(), 4);
        }
    }
}

#[test]
fn event_written_long_after_the_start_of_a_turn_keeps_its_stamp() {
    let mut fixture = ParallelFixture::with_streams_per_thread(Some(2), file_session(), 4);
    let clock = &fixture.fixture.collector.clock;
    let (counter, frequency) = (clock.counter(), clock.frequency());
    let (sender, stamps) = channel();
    let (mut other_region, source) = Region::new(&fixture.fixture.collector.shared, 9);
    fixture.fixture.collector.add_source(source);
    let mut is_first = true;
    let mut region = fixture.add_observed_region(move || {
        if std::mem::take(&mut is_first) {
            let now = wait_beyond_valid_stamps(counter, frequency);
            other_region.publish(1, now, 0, &[]);
            sender.send(now.cast_signed()).unwrap();
        }
    });
    region.publish(0, fixture.fixture.now(), 0, &[]);
    fixture.publish(0, 2, &[]);
    fixture.drain(DrainReach::BeforeDrain);
    let stamp = stamps.recv().unwrap();
    assert_eq!(fixture.finish()[1], [(9, stamp)]);
}

#[test]
fn damaged_ring_of_a_helping_thread_ends_only_its_region() {
    const EVENTS: usize = 20;
    let mut fixture = ParallelFixture::with_streams_per_thread(Some(1), file_session(), 3);
    let (mut damaged_region, source) = Region::new(&fixture.fixture.collector.shared, 9);
    fixture.fixture.collector.add_source(source);
    let mut expected = vec![Vec::new(); 6];
    for number in 0..EVENTS {
        for cpu in 0..3 {
            let stamp = fixture.publish(number % 3, cpu, &[]);
            expected[usize::from(cpu)].push((2 + (number % 3) as u32, stamp));
        }
    }
    damaged_region.damage(0);
    fixture.drain(DrainReach::BeforeDrain);
    let collector = &fixture.fixture.collector;
    assert_eq!(collector.shared.stats.damaged_regions.load(Relaxed), 1);
    let readers: Vec<bool> = collector.sources.iter().map(|source| source.reader.is_some()).collect();
    assert_eq!(readers, [true, true, true, true, false]);
    damaged_region.publish(1, fixture.fixture.now(), 0, &[]);
    let stamp = fixture.publish(0, 1, &[]);
    expected[1].push((2, stamp));
    assert_eq!(fixture.finish(), expected);
}
