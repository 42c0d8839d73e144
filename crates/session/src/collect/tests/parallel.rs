//! Tests that several threads collect what one thread collects.

use super::*;

use proptest::prelude::*;

use crate::collect::parallel::MIN_PARALLEL_BYTES;

/// A record to publish: CPU, region, and whether a drain follows.
type Publication = (u16, usize, bool);

/// A collector with three regions whose streams are drained by one thread each, or all by one.
struct ParallelFixture {
    fixture: CollectorFixture,
    regions: Vec<Region>,
    is_parallel: bool,
}

impl ParallelFixture {
    fn new(is_parallel: bool, config: SessionConfig) -> Self {
        let mut fixture = CollectorFixture::with_config(config);
        if is_parallel {
            fixture.collector.streams_per_thread = 1;
        }
        let mut regions = Vec::new();
        for process in 2..5 {
            let (region, source) = Region::new(&fixture.collector.shared, process);
            fixture.collector.add_source(source);
            regions.push(region);
        }
        Self { fixture, regions, is_parallel }
    }

    fn drain(&mut self, reach: DrainReach) {
        let collector = &mut self.fixture.collector;
        collector.drained_bytes = MIN_PARALLEL_BYTES;
        collector.drain(reach);
        let copies: usize = collector.sources.iter().map(|source| source.writer_copies.len()).sum();
        assert_eq!(copies > 0, self.is_parallel, "the wrong number of threads drained");
    }

    /// Drains and flushes everything. Returns process and stamp of each event, by CPU.
    fn finish(mut self) -> Vec<Vec<(u32, i64)>> {
        self.drain(DrainReach::All);
        self.fixture.collector.flush();
        let mut events = vec![Vec::new(); usize::from(CPUS)];
        for job in self.fixture.jobs.try_iter() {
            if let Job::Buffer(buffer) = job {
                events[usize::from(buffer.cpu)].extend(read_events(&buffer));
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
    let writer = std::thread::spawn(move || {
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
