//! Tests of memory that a process made before it attached: its events keep their stamps, and files
//! with them are read in time order.

use super::*;

use proptest::prelude::*;
use proptest::sample::Index;
use traceweir_format::etl::{InPlace, Options, Summary, Trace, Writer as EtlWriter};

const PAYLOAD: [u8; 8] = [0; 8];

/// Modes of a session with a sequential file, a live one, one with both, and a flight recorder.
const MODES: [u32; 4] = [SEQUENTIAL, REAL_TIME, SEQUENTIAL | REAL_TIME, BUFFERING];

impl Stage {
    fn with_mode(log_file_mode: u32) -> Self {
        Self::with(SessionConfig {
            name: "s".into(),
            log_file: (log_file_mode & SEQUENTIAL != 0).then(|| "log.etl".into()),
            log_file_mode,
            clock: 1,
            ring_bytes: 1,
            ..SessionConfig::default()
        })
    }

    /// Adopts and drains a region with records of these stamps on the first CPU.
    fn adopt(&mut self, process: u32, stamps: &[u64]) {
        let records: Vec<(u16, u64)> = stamps.iter().map(|&stamp| (0, stamp)).collect();
        let source = self.early(process, &records);
        self.collector.add_source(source);
        self.collector.drain(DrainReach::BeforeDrain);
    }

    /// Returns a region that a process made by itself, with records on these CPUs and with these
    /// raw stamps.
    fn early(&self, process: u32, records: &[(u16, u64)]) -> SessionSource {
        let (mut region, source) = Region::new(&self.collector.shared, process);
        for &(cpu, stamp) in records {
            region.publish(cpu, stamp, 0, &PAYLOAD);
        }
        SessionSource { backlog: (0..usize::from(CPUS)).collect(), ..source }
    }

    /// Returns the submitted buffers as files have them. The pool gets the originals back.
    fn buffers(&self) -> Vec<Buffer> {
        self.buffers_and_pieces().0
    }

    /// Returns the submitted buffers, and the pieces that live consumers got. Asserts that stamps
    /// of all are in order.
    fn buffers_and_pieces(&self) -> (Vec<Buffer>, Vec<Buffer>) {
        let pool = &self.collector.shared.pool;
        let (mut sent, mut pieces) = (Vec::new(), Vec::new());
        for job in self.jobs.try_iter() {
            match job {
                Job::Buffer(buffer) => {
                    let mut copy = buffer.copy().unwrap();
                    copy.sort_records();
                    sent.push(copy);
                    pieces.extend(buffer.copy_from(buffer.delivered, 0).filter(|piece| !piece.is_empty()));
                    pool.return_buffer(buffer);
                    pool.count_finished();
                }
                Job::Live(piece) => {
                    self.collector.shared.release_piece(piece.filled);
                    pieces.push(piece);
                }
                Job::Complete(_) => {}
                _ => panic!("nothing else is sent"),
            }
        }
        let live = pieces.iter().filter(|_| self.collector.shared.mode().is_real_time());
        for buffer in sent.iter().chain(live) {
            assert!(events(buffer).is_sorted_by_key(|event| event.1), "{:?}", events(buffer));
            assert_eq!(events(buffer).last().map(|event| event.1), Some(buffer.time));
        }
        (sent, pieces)
    }

    /// Collects the rest and returns the submitted buffers.
    fn finish(&mut self) -> Vec<Buffer> {
        self.collector.drain(DrainReach::All);
        self.collector.flush();
        self.buffers()
    }
}

/// Returns process and stamp of each event in late buffers, or in the others.
fn stamps(buffers: &[Buffer], late: bool) -> Vec<(u32, i64)> {
    buffers.iter().filter(|buffer| buffer.is_late == late).flat_map(events).collect()
}

/// Returns process and stamp of each event, as a file reader returns them.
fn read(buffers: Vec<Buffer>) -> Vec<(u32, i64)> {
    let buffer_size = u32::try_from(buffers[0].bytes.len()).unwrap();
    let options = Options { buffer_size, processors: CPUS.into(), ..Options::default() };
    let mut writer = EtlWriter::create(Vec::new(), options).unwrap();
    for mut buffer in buffers {
        let Buffer { cpu, time, loss_flags, filled, bytes, .. } = &mut buffer;
        let (cpu, time, loss_flags, filled) = (*cpu, *time, *loss_flags, *filled);
        writer.append_in_place(InPlace { cpu, time, loss_flags, bytes, filled }).unwrap();
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
fn events_before_adoption_keep_their_stamps_on_every_clock() {
    for clock in 1..=3 {
        let mut stage = Stage::new(clock);
        let [first, second, third] = [(); 3].map(|()| {
            std::thread::sleep(Duration::from_millis(1));
            stage.now()
        });
        stage.publish(0, third, 0);
        let (_, complete) = stage.deliver();
        let later = stage.now();
        let source = stage.early(2, &[(0, first), (0, second), (0, later), (1, first), (1, second)]);
        stage.collector.add_source(source);
        let buffers = stage.finish();
        let [first, second, third, later] =
            [first, second, third, later].map(|raw| stage.collector.clock.stamp(raw));
        assert_eq!(
            stamps(&buffers, true),
            [first, second, first, second].map(|stamp| (2, stamp)),
            "clock {clock}"
        );
        assert_eq!(stamps(&buffers, false), [(1, third), (2, later)], "clock {clock}");
        assert!(second < third && third <= complete && complete < later);
    }
}

#[test]
fn backlogs_share_a_buffer_even_if_stamps_decrease() {
    for mode in MODES {
        let mut stage = Stage::with_mode(mode);
        let at: Vec<u64> = (0..6).map(|_| stage.now()).collect();
        stage.deliver();
        stage.adopt(2, &at[1..3]);
        stage.adopt(3, &at[3..6]);
        assert_eq!(stage.buffers_and_pieces().0.len(), 0);
        stage.adopt(4, &[at[0], at[3]]);
        let (buffers, pieces) = stage.buffers_and_pieces();
        assert_eq!(buffers.len(), 0, "mode {mode:#x}");
        let stamp = |index: usize| at[index].cast_signed();
        let before = [(2, 1), (2, 2), (3, 3), (3, 4), (3, 5)].map(|(process, at)| (process, stamp(at)));
        let is_live = mode & REAL_TIME != 0;
        assert_eq!(stamps(&pieces, true), if is_live { before.to_vec() } else { Vec::new() });
        // Housekeeping submits what is left and holds nothing back; but the history of a flight
        // recorder is for full buffers.
        stage.collector.do_housekeeping();
        let (mut buffers, pieces) = stage.buffers_and_pieces();
        if mode == BUFFERING {
            assert_eq!(buffers.len(), 0);
            buffers = stage.collector.take_partial();
            buffers.iter_mut().for_each(Buffer::sort_records);
        } else if is_live {
            assert_eq!(stamps(&pieces, true), [(4, stamp(0)), (4, stamp(3))]);
        }
        let all = [(4, 0), (2, 1), (2, 2), (3, 3), (4, 3), (3, 4), (3, 5)];
        assert_eq!(stamps(&buffers, true), all.map(|(process, at)| (process, stamp(at))), "mode {mode:#x}");
        let mut late = stage.collector.streams.iter().filter(|stream| stream.is_late);
        assert!(late.all(|stream| stream.buffer.is_none()));
    }
}

#[test]
fn single_late_events_do_not_displace_flight_recorder_history() {
    const PROCESSES: u32 = 30;
    let mut stage = Stage::with_mode(BUFFERING);
    let at: Vec<u64> = (0..PROCESSES).map(|_| stage.now()).collect();
    stage.deliver();
    // Each event is older than the one before, and housekeeping follows each.
    for (process, &stamp) in (2..).zip(at.iter().rev()) {
        stage.adopt(process, &[stamp]);
        assert_eq!(stage.buffers().len(), 0, "submitted by the drain");
        stage.collector.do_housekeeping();
        assert_eq!(stage.buffers().len(), 0, "submitted by housekeeping");
    }
    let mut copied = stage.collector.copy_partial().unwrap();
    copied.iter_mut().for_each(Buffer::sort_records);
    let expected: Vec<(u32, i64)> = at
        .iter()
        .zip((2..PROCESSES + 2).rev())
        .map(|(stamp, process)| (process, stamp.cast_signed()))
        .collect();
    assert_eq!(stamps(&copied, true), expected);
    assert_eq!(copied.iter().map(|buffer| buffer.time).max(), at.last().map(|stamp| stamp.cast_signed()));
}

#[test]
fn late_buffer_is_submitted_if_the_writer_takes_no_piece() {
    let mut stage = Stage::with_mode(REAL_TIME);
    let [first, second] = [stage.now(), stage.now()];
    stage.deliver();
    stage.adopt(2, &[second]);
    let shared = Arc::clone(&stage.collector.shared);
    let max_bytes = shared.pool.buffer_bytes() * shared.maximum_buffers();
    assert!(shared.reserve_piece(max_bytes));
    stage.adopt(3, &[first]);
    shared.release_piece(max_bytes);
    assert_eq!(stamps(&stage.buffers(), true), [(2, second.cast_signed())]);
    assert_eq!(stamps(&stage.finish(), true), [(3, first.cast_signed())]);
}

#[test]
fn forged_stamps_of_a_backlog_share_one_buffer_within_the_session() {
    let mut stage = Stage::new(1);
    let now = stage.now();
    stage.publish(0, now, 0);
    stage.deliver();
    // Stamps before the session, each earlier than the one before.
    let records: Vec<(u16, u64)> = (0..20).rev().map(|stamp| (0, stamp)).collect();
    let source = stage.early(2, &records);
    stage.collector.add_source(source);
    stage.collector.drain(DrainReach::BeforeDrain);
    let start = stage.collector.clock.anchor().counter.cast_signed();
    let late: Vec<Vec<(u32, i64)>> =
        stage.finish().iter().filter(|buffer| buffer.is_late).map(events).collect();
    assert_eq!(late, [vec![(2, start); 20]]);
}

#[test]
fn backlog_adopted_during_a_drain_is_collected_by_that_drain() {
    const LARGE: [u8; 8 << 10] = [0; 8 << 10];
    let mut stage = Stage::with(SessionConfig {
        name: "s".into(),
        log_file_mode: REAL_TIME,
        clock: 1,
        ring_bytes: 1 << 20,
        buffer_size: 16,
        minimum_buffers: 4,
        maximum_buffers: 4,
        ..SessionConfig::default()
    });
    let early = stage.now();
    stage.deliver();
    // The first stream is done in the first turn; in the turn of the second, the collector waits
    // for all buffers.
    for _ in 0..=SLICE_BYTES / LARGE.len() {
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
            shared.pool.return_buffer(buffer);
            shared.pool.count_finished();
        }
        late
    });
    collector.drain(DrainReach::BeforeDrain);
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
        log_file_mode: REAL_TIME,
        clock: 1,
        ring_bytes: 1 << 20,
        ..SessionConfig::default()
    });
    let early = stage.now();
    stage.deliver();
    let source = stage.early(2, &[(0, early); 100]);
    stage.collector.add_source(source);
    let mut outcome = MergeOutcome::default();
    let mut turns = 0;
    while stage.collector.merge_stream(0, 1000, DrainReach::BeforeDrain, &mut outcome) {
        turns += 1;
        assert!(stage.collector.has_backlog && turns < 100);
    }
    assert!(turns > 5, "{turns} turns");
    assert_eq!(stamps(&stage.finish(), true), vec![(2, early.cast_signed()); 100]);
}

#[test]
fn no_completeness_stamp_while_a_backlog_is_partly_collected() {
    const LARGE: [u8; 8 << 10] = [0; 8 << 10];
    let mut stage = Stage::with(SessionConfig {
        name: "s".into(),
        log_file_mode: REAL_TIME,
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
    stage.collector.add_source(SessionSource { backlog: (0..usize::from(CPUS)).collect(), ..source });
    assert!(stage.collector.report_interval_bytes() <= SLICE_BYTES, "the first turn exceeds the interval");
    stage.collector.drain(DrainReach::BeforeDrain);
    assert!(stage.collector.deliver());
    let mut processors = BTreeSet::new();
    for job in stage.jobs.try_iter() {
        match job {
            Job::Buffer(buffer) | Job::Live(buffer) => {
                processors.extend(buffer.is_late.then_some(buffer.cpu))
            }
            Job::Complete(_) => assert_eq!(processors.len(), 2, "complete before all was sent"),
            _ => panic!("nothing else is sent"),
        }
    }
    assert_eq!(processors.len(), 2);
}

/// One step of a session.
#[derive(Clone, Debug)]
struct Step {
    /// CPUs on which the attached process writes, each time now.
    writes: Vec<u16>,
    /// Events of the regions that are adopted: CPU, and the step in which they were written.
    adopted: Vec<Vec<(u16, Index)>>,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Nothing,
    Flush,
    Deliver,
    ReportProgress,
    Housekeeping,
}

fn step() -> impl Strategy<Value = Step> {
    let early = prop::collection::vec((0..CPUS, any::<Index>()), 0..8);
    let adopted = prop::collection::vec(early, 0..3);
    let action = prop::sample::select(vec![
        Action::Nothing,
        Action::Flush,
        Action::Deliver,
        Action::ReportProgress,
        Action::Housekeeping,
    ]);
    let parts = (prop::collection::vec(0..CPUS, 0..5), adopted, action);
    parts.prop_map(|(writes, adopted, action)| Step { writes, adopted, action })
}

proptest! {
    #[test]
    fn file_with_backlogs_is_read_in_order_of_true_stamps(
        steps in prop::collection::vec(step(), 1..10),
        mode in prop::sample::select(MODES.to_vec()),
    ) {
        let mut stage = Stage::with_mode(mode);
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
                stage.collector.add_source(source);
            }
            stage.collector.drain(DrainReach::BeforeDrain);
            match step.action {
                Action::Nothing => {}
                Action::Flush => {
                    stage.collector.flush();
                    stage.collector.report_complete();
                }
                Action::Deliver => prop_assert!(stage.collector.deliver()),
                Action::ReportProgress => stage.collector.report_progress(),
                Action::Housekeeping => stage.collector.do_housekeeping(),
            }
            buffers.append(&mut stage.buffers());
        }
        buffers.append(&mut stage.finish());
        // Expected: stamps as they were written, in order.
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
