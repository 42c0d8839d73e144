//! Memory that a process made before it attached: its events keep their stamps, and files of them
//! are read in time order.

use super::*;

use proptest::prelude::*;
use proptest::sample::Index;
use traceweir_format::etl::{InPlace, Options, Summary, Trace, Writer as EtlWriter};

const PAYLOAD: [u8; 8] = [0; 8];

impl Stage {
    /// Returns a region that a process made by itself, with records at these processors and raw
    /// stamps.
    fn early(&self, process: u32, records: &[(u16, u64)]) -> Source {
        let (mut region, source) = Region::new(&self.collector.shared, process);
        for &(cpu, stamp) in records {
            region.publish(cpu, stamp, 0, &PAYLOAD);
        }
        Source { backlog: (0..usize::from(CPUS)).collect(), ..source }
    }

    /// The buffers that were sent, which the pool gets back.
    fn buffers(&self) -> Vec<Buffer> {
        let pool = &self.collector.shared.pool;
        let mut sent = Vec::new();
        for job in self.jobs.try_iter() {
            match job {
                Job::Buffer(buffer) => {
                    sent.push(buffer.copy().unwrap());
                    pool.give(buffer);
                    pool.settled();
                }
                Job::Live(piece) => self.collector.shared.piece_arrived(piece.filled),
                Job::Complete(_) => {}
                _ => panic!("nothing else is sent"),
            }
        }
        sent
    }

    /// Collects the rest.
    fn finish(&mut self) -> Vec<Buffer> {
        self.collector.drain(Reach::All);
        self.collector.flush();
        self.buffers()
    }
}

/// Process and stamp of each event in late buffers, or in the others.
fn stamps(buffers: &[Buffer], late: bool) -> Vec<(u32, i64)> {
    buffers.iter().filter(|buffer| buffer.is_late == late).flat_map(events).collect()
}

/// Process and stamp of each event, as the reader of files gives them.
fn read(buffers: Vec<Buffer>) -> Vec<(u32, i64)> {
    let buffer_size = u32::try_from(buffers[0].bytes.len()).unwrap();
    let options = Options { buffer_size, processors: CPUS.into(), ..Options::default() };
    let mut writer = EtlWriter::create(Vec::new(), options).unwrap();
    for mut buffer in buffers {
        let Buffer { cpu, time, loss, filled, bytes, .. } = &mut buffer;
        let (cpu, time, loss, filled) = (*cpu, *time, *loss, *filled);
        writer.append_in_place(InPlace { cpu, time, loss, bytes, filled }).unwrap();
    }
    let trace = Trace::open(writer.finish(Summary::default()).unwrap()).unwrap();
    assert_eq!(trace.defects(), []);
    let mut read = Vec::new();
    let mut events = trace.events();
    while let Some(event) = events.next().unwrap() {
        if event.hook().is_none() {
            read.push((event.process_id(), event.time()));
        }
    }
    read
}

#[test]
fn events_from_before_an_adoption_keep_their_stamps_on_every_clock() {
    for clock in 1..=3 {
        let mut stage = Stage::new(clock);
        let [first, second, third] = [(); 3].map(|()| {
            std::thread::sleep(Duration::from_millis(1));
            stage.now()
        });
        stage.publish(0, third, 0);
        let (_, told) = stage.deliver();
        let later = stage.now();
        let source = stage.early(2, &[(0, first), (0, second), (0, later), (1, first), (1, second)]);
        stage.collector.add(source);
        let buffers = stage.finish();
        let [first, second, third, later] =
            [first, second, third, later].map(|raw| stage.collector.clock.stamp(raw));
        assert_eq!(
            stamps(&buffers, true),
            [first, second, first, second].map(|stamp| (2, stamp)),
            "clock {clock}"
        );
        assert_eq!(stamps(&buffers, false), [(1, third), (2, later)], "clock {clock}");
        assert!(second < third && third <= told && told < later);
    }
}

#[test]
fn backlogs_share_a_buffer_until_stamps_fall() {
    let mut stage = Stage::new(1);
    let at: Vec<u64> = (0..6).map(|_| stage.now()).collect();
    stage.deliver();
    let adopt = |stage: &mut Stage, process, stamps: &[u64]| {
        let records: Vec<(u16, u64)> = stamps.iter().map(|&stamp| (0, stamp)).collect();
        let source = stage.early(process, &records);
        stage.collector.add(source);
        stage.collector.drain(Reach::Settled);
    };
    adopt(&mut stage, 2, &at[1..3]);
    adopt(&mut stage, 3, &at[3..5]);
    assert_eq!(stage.buffers().len(), 0);
    adopt(&mut stage, 4, &[at[0], at[5]]);
    let first = stage.buffers();
    let stamp = |index: usize| at[index].cast_signed();
    assert_eq!(first.len(), 1);
    assert_eq!(events(&first[0]), [(2, stamp(1)), (2, stamp(2)), (3, stamp(3)), (3, stamp(4))]);
    // Once in a while what is left goes out, and nothing is held for the next.
    stage.collector.look_around();
    let second = stage.buffers();
    assert_eq!(stamps(&second, true), [(4, stamp(0)), (4, stamp(5))]);
    assert!(
        stage.collector.streams.iter().filter(|stream| stream.is_late).all(|stream| stream.buffer.is_none())
    );
}

#[test]
fn made_up_stamps_of_a_backlog_fill_one_buffer_and_stay_within_the_session() {
    let mut stage = Stage::new(1);
    let now = stage.now();
    stage.publish(0, now, 0);
    stage.deliver();
    // Before the session, and each earlier than the one before.
    let records: Vec<(u16, u64)> = (0..20).rev().map(|stamp| (0, stamp)).collect();
    let source = stage.early(2, &records);
    stage.collector.add(source);
    stage.collector.drain(Reach::Settled);
    let start = stage.collector.clock.anchor().counter.cast_signed();
    let late: Vec<Vec<(u32, i64)>> =
        stage.finish().iter().filter(|buffer| buffer.is_late).map(events).collect();
    assert_eq!(late, [vec![(2, start); 20]]);
}

#[test]
fn backlog_of_a_region_that_is_adopted_during_a_drain_is_collected_by_that_drain() {
    const LARGE: [u8; 8 << 10] = [0; 8 << 10];
    let mut stage = Stage::with(SessionConfig {
        name: "s".into(),
        log_file_mode: 0x100,
        clock: 1,
        ring_bytes: 1 << 20,
        buffer_size: 16,
        minimum_buffers: 4,
        maximum_buffers: 4,
        ..SessionConfig::default()
    });
    let early = stage.now();
    stage.deliver();
    // The first stream is done in the first turn; in that of the second all buffers are waited for.
    for _ in 0..=SLICE / LARGE.len() {
        let now = stage.now();
        stage.region.publish(1, now, 0, &LARGE);
    }
    let source = stage.early(2, &[(0, early), (1, early)]);
    let Stage { mut collector, jobs, .. } = stage;
    let shared = Arc::clone(&collector.shared);
    let late = std::thread::spawn(move || {
        let (mut source, mut late) = (Some(source), Vec::new());
        for job in jobs {
            let Job::Buffer(buffer) = job else { panic!("nothing else is sent") };
            if let Some(source) = source.take() {
                shared.attach(source).unwrap();
            }
            if buffer.is_late {
                late.extend(events(&buffer));
            }
            shared.pool.give(buffer);
            shared.pool.settled();
        }
        late
    });
    collector.drain(Reach::Settled);
    assert!(!collector.has_backlog);
    collector.flush();
    drop(collector);
    let early = early.cast_signed();
    assert_eq!(late.join().unwrap(), [(2, early), (2, early)]);
}

#[test]
fn large_backlog_takes_turns_with_other_streams() {
    let mut stage = Stage::with(SessionConfig {
        name: "s".into(),
        log_file_mode: 0x100,
        clock: 1,
        ring_bytes: 1 << 20,
        ..SessionConfig::default()
    });
    let early = stage.now();
    stage.deliver();
    let source = stage.early(2, &[(0, early); 100]);
    stage.collector.add(source);
    let mut outcome = Outcome::default();
    let mut turns = 0;
    while stage.collector.merge_stream(0, 1000, Reach::Settled, &mut outcome) {
        turns += 1;
        assert!(stage.collector.has_backlog && turns < 100);
    }
    assert!(turns > 5, "{turns} turns");
    assert_eq!(stamps(&stage.finish(), true), vec![(2, early.cast_signed()); 100]);
}

#[test]
fn nothing_is_told_while_a_backlog_is_half_collected() {
    const LARGE: [u8; 8 << 10] = [0; 8 << 10];
    let mut stage = Stage::with(SessionConfig {
        name: "s".into(),
        log_file_mode: 0x100,
        clock: 1,
        ring_bytes: 1 << 20,
        maximum_buffers: 16,
        ..SessionConfig::default()
    });
    stage.collector.shared.stats.consumers.store(1, Relaxed);
    let early = stage.now();
    stage.deliver();
    let (mut region, source) = Region::new(&stage.collector.shared, 2);
    for _ in 0..40 {
        region.publish(0, early, 0, &LARGE);
    }
    region.publish(1, early, 0, &PAYLOAD);
    stage.collector.add(Source { backlog: (0..usize::from(CPUS)).collect(), ..source });
    assert!(stage.collector.tell_after() <= SLICE, "the first turn is a reason to tell");
    stage.collector.drain(Reach::Settled);
    assert!(stage.collector.deliver());
    let mut processors = BTreeSet::new();
    for job in stage.jobs.try_iter() {
        match job {
            Job::Buffer(buffer) | Job::Live(buffer) => {
                processors.extend(buffer.is_late.then_some(buffer.cpu))
            }
            Job::Complete(_) => assert_eq!(processors.len(), 2, "told before all was sent"),
            _ => panic!("nothing else is sent"),
        }
    }
    assert_eq!(processors.len(), 2);
}

/// What happens in one step of a session.
#[derive(Clone, Debug)]
struct Step {
    /// Processors on which the attached process writes, each time now.
    writes: Vec<u16>,
    /// Events of the regions that are adopted: processor, and the step in which they were written.
    adopted: Vec<Vec<(u16, Index)>>,
    then: Then,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Nothing,
    Flush,
    Deliver,
    TellProgress,
    LookAround,
}

fn step() -> impl Strategy<Value = Step> {
    let early = prop::collection::vec((0..CPUS, any::<Index>()), 0..8);
    let adopted = prop::collection::vec(early, 0..3);
    let then = prop::sample::select(vec![
        Then::Nothing,
        Then::Flush,
        Then::Deliver,
        Then::TellProgress,
        Then::LookAround,
    ]);
    let parts = (prop::collection::vec(0..CPUS, 0..5), adopted, then);
    parts.prop_map(|(writes, adopted, then)| Step { writes, adopted, then })
}

proptest! {
    #[test]
    fn file_of_backlogs_is_read_as_if_all_events_were_sorted_by_their_true_stamps(
        steps in prop::collection::vec(step(), 1..10),
    ) {
        let mut stage = Stage::new(1);
        stage.collector.shared.stats.consumers.store(1, Relaxed);
        let (mut moments, mut expected, mut buffers) = (Vec::new(), Vec::new(), Vec::new());
        let mut process = 1;
        for step in steps {
            moments.push(stage.now());
            for cpu in step.writes {
                let now = stage.now();
                stage.publish(cpu, now, 0);
                expected.push((1, now.cast_signed()));
            }
            for early in step.adopted {
                process += 1;
                let mut records: Vec<(u16, u64)> =
                    early.iter().map(|(cpu, moment)| (*cpu, *moment.get(&moments))).collect();
                records.sort_unstable_by_key(|record| record.1);
                expected.extend(records.iter().map(|record| (process, record.1.cast_signed())));
                let source = stage.early(process, &records);
                stage.collector.add(source);
            }
            stage.collector.drain(Reach::Settled);
            match step.then {
                Then::Nothing => {}
                Then::Flush => {
                    stage.collector.flush();
                    stage.collector.tell_complete();
                }
                Then::Deliver => prop_assert!(stage.collector.deliver()),
                Then::TellProgress => stage.collector.tell_progress(),
                Then::LookAround => stage.collector.look_around(),
            }
            buffers.append(&mut stage.buffers());
        }
        buffers.append(&mut stage.finish());
        for buffer in &buffers {
            prop_assert!(events(buffer).is_sorted_by_key(|event| event.1));
        }
        // The oracle: stamps as they were written, in order.
        expected.sort_unstable_by_key(|&(process, stamp)| (stamp, process));
        if !buffers.is_empty() {
            let read = read(buffers);
            prop_assert!(read.is_sorted_by_key(|event| event.1), "{:?}", read);
            let mut read = read;
            read.sort_unstable_by_key(|&(process, stamp)| (stamp, process));
            prop_assert_eq!(read, expected);
        }
    }
}
