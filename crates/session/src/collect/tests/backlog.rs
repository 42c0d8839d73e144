//! Tests of regions that a process filled before it attached: the events keep their stamps, and
//! files with them are read in time order.

use super::*;

use proptest::prelude::*;
use proptest::sample::Index;
use traceweir_format::etl::{BufferInPlace, Options, Summary, Trace, Writer as EtlWriter};

const PAYLOAD: [u8; 8] = [0; 8];

/// Modes of sessions: with a sequential file, live, both, and a flight recorder.
const MODES: [u32; 4] = [SEQUENTIAL, REAL_TIME, SEQUENTIAL | REAL_TIME, BUFFERING];

impl CollectorFixture {
    fn with_mode(log_file_mode: u32) -> Self {
        Self::with_config(SessionConfig {
            name: "s".into(),
            log_file: (log_file_mode & SEQUENTIAL != 0).then(|| "log.etl".into()),
            log_file_mode,
            clock: raw_clock(),
            ring_bytes: 1,
            ..SessionConfig::default()
        })
    }

    /// Adopts and drains a region with records of these stamps on the first CPU.
    fn adopt(&mut self, process: u32, stamps: &[u64]) {
        let records: Vec<(u16, u64)> = stamps.iter().map(|&stamp| (0, stamp)).collect();
        let source = self.early_source(process, &records);
        self.collector.add_source(source);
        self.collector.drain(DrainReach::BeforeDrain);
    }

    /// Creates a region that a process filled before it attached, with records of these CPUs and
    /// raw stamps.
    fn early_source(&self, process: u32, records: &[(u16, u64)]) -> SessionSource {
        let (mut region, source) = Region::new(&self.collector.shared, process);
        for &(cpu, stamp) in records {
            region.publish(cpu, stamp, 0, &PAYLOAD);
        }
        SessionSource { backlog_streams: (0..usize::from(CPUS)).collect(), ..source }
    }

    /// Returns copies of the submitted buffers with sorted records. The pool gets the originals
    /// back.
    fn take_buffers(&self) -> Vec<Buffer> {
        self.take_buffers_and_pieces().0
    }

    /// Returns the submitted buffers, and the pieces that live consumers got. Asserts that the
    /// stamps in each of them are in order.
    fn take_buffers_and_pieces(&self) -> (Vec<Buffer>, Vec<Buffer>) {
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
                _ => panic!("an unexpected job was sent"),
            }
        }
        let live = pieces.iter().filter(|_| self.collector.shared.mode().is_real_time());
        for buffer in sent.iter().chain(live) {
            assert!(read_events(buffer).is_sorted_by_key(|(_, stamp)| *stamp), "{:?}", read_events(buffer));
            assert_eq!(read_events(buffer).last().map(|(_, stamp)| *stamp), Some(buffer.time));
        }
        (sent, pieces)
    }

    /// Collects the remaining records and returns the submitted buffers.
    fn collect_and_flush(&mut self) -> Vec<Buffer> {
        self.collector.drain(DrainReach::All);
        self.collector.flush();
        self.take_buffers()
    }
}

/// Returns process and stamp of each event in late buffers, or in the others.
fn event_stamps(buffers: &[Buffer], is_late: bool) -> Vec<(u32, i64)> {
    buffers.iter().filter(|buffer| buffer.is_late == is_late).flat_map(read_events).collect()
}

/// Writes the buffers to a file and returns process and stamp of each event that a reader returns.
fn write_and_read(buffers: Vec<Buffer>) -> Vec<(u32, i64)> {
    let buffer_size = u32::try_from(buffers[0].bytes.len()).unwrap();
    let options = Options { buffer_size, processors: CPUS.into(), ..Options::default() };
    let mut writer = EtlWriter::create(Vec::new(), options).unwrap();
    for mut buffer in buffers {
        let Buffer { cpu, time, loss_flags, filled, bytes, .. } = &mut buffer;
        let (cpu, time, loss_flags, filled) = (*cpu, *time, *loss_flags, *filled);
        writer.append_in_place(BufferInPlace { cpu, time, loss_flags, bytes, filled }).unwrap();
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
        let mut fixture = CollectorFixture::new(clock);
        let [first, second, third] = [(); 3].map(|()| {
            std::thread::sleep(Duration::from_millis(1));
            fixture.now()
        });
        fixture.publish(0, third, 0);
        let (_, complete) = fixture.deliver();
        let later = fixture.now();
        let source = fixture.early_source(2, &[(0, first), (0, second), (0, later), (1, first), (1, second)]);
        fixture.collector.add_source(source);
        let buffers = fixture.collect_and_flush();
        let [first, second, third, later] =
            [first, second, third, later].map(|raw| fixture.collector.clock.stamp(raw));
        assert_eq!(
            event_stamps(&buffers, true),
            [first, second, first, second].map(|stamp| (2, stamp)),
            "clock {clock}"
        );
        assert_eq!(event_stamps(&buffers, false), [(1, third), (2, later)], "clock {clock}");
        assert!(second < third && third <= complete && complete < later);
    }
}

#[test]
fn backlogs_share_a_buffer_even_if_stamps_decrease() {
    for mode in MODES {
        let mut fixture = CollectorFixture::with_mode(mode);
        let stamps: Vec<u64> = (0..6).map(|_| fixture.now()).collect();
        fixture.deliver();
        fixture.adopt(2, &stamps[1..3]);
        fixture.adopt(3, &stamps[3..6]);
        assert_eq!(fixture.take_buffers_and_pieces().0.len(), 0);
        fixture.adopt(4, &[stamps[0], stamps[3]]);
        let (buffers, pieces) = fixture.take_buffers_and_pieces();
        assert_eq!(buffers.len(), 0, "mode {mode:#x}");
        let stamp = |index: usize| stamps[index].cast_signed();
        let before = [(2, 1), (2, 2), (3, 3), (3, 4), (3, 5)].map(|(process, index)| (process, stamp(index)));
        let is_live = mode & REAL_TIME != 0;
        assert_eq!(event_stamps(&pieces, true), if is_live { before.to_vec() } else { Vec::new() });
        // Housekeeping submits all late buffers, except those of a flight recorder, whose history
        // has only full buffers.
        fixture.collector.do_housekeeping();
        let (mut buffers, pieces) = fixture.take_buffers_and_pieces();
        if mode == BUFFERING {
            assert_eq!(buffers.len(), 0);
            buffers = fixture.collector.take_partial();
            buffers.iter_mut().for_each(Buffer::sort_records);
        } else if is_live {
            assert_eq!(event_stamps(&pieces, true), [(4, stamp(0)), (4, stamp(3))]);
        }
        let expected = [(4, 0), (2, 1), (2, 2), (3, 3), (4, 3), (3, 4), (3, 5)];
        assert_eq!(
            event_stamps(&buffers, true),
            expected.map(|(process, index)| (process, stamp(index))),
            "mode {mode:#x}"
        );
        let mut late = fixture.collector.streams.iter().filter(|stream| stream.is_late);
        assert!(late.all(|stream| stream.buffer.is_none()));
    }
}

#[test]
fn single_late_events_do_not_displace_flight_recorder_history() {
    const PROCESSES: u32 = 30;
    let mut fixture = CollectorFixture::with_mode(BUFFERING);
    let stamps: Vec<u64> = (0..PROCESSES).map(|_| fixture.now()).collect();
    fixture.deliver();
    // Each event is older than the one before, and housekeeping follows each.
    for (process, &stamp) in (2..).zip(stamps.iter().rev()) {
        fixture.adopt(process, &[stamp]);
        assert_eq!(fixture.take_buffers().len(), 0, "submitted by the drain");
        fixture.collector.do_housekeeping();
        assert_eq!(fixture.take_buffers().len(), 0, "submitted by housekeeping");
    }
    let mut copied = fixture.collector.copy_partial().unwrap();
    copied.iter_mut().for_each(Buffer::sort_records);
    let expected: Vec<(u32, i64)> = stamps
        .iter()
        .zip((2..PROCESSES + 2).rev())
        .map(|(stamp, process)| (process, stamp.cast_signed()))
        .collect();
    assert_eq!(event_stamps(&copied, true), expected);
    assert_eq!(copied.iter().map(|buffer| buffer.time).max(), stamps.last().map(|stamp| stamp.cast_signed()));
}

#[test]
fn late_buffer_is_submitted_if_the_writer_takes_no_piece() {
    let mut fixture = CollectorFixture::with_mode(REAL_TIME);
    let [first, second] = [fixture.now(), fixture.now()];
    fixture.deliver();
    fixture.adopt(2, &[second]);
    let shared = Arc::clone(&fixture.collector.shared);
    let max_bytes = shared.pool.buffer_bytes() * shared.maximum_buffers();
    assert!(shared.reserve_piece(max_bytes));
    fixture.adopt(3, &[first]);
    shared.release_piece(max_bytes);
    assert_eq!(event_stamps(&fixture.take_buffers(), true), [(2, second.cast_signed())]);
    assert_eq!(event_stamps(&fixture.collect_and_flush(), true), [(3, first.cast_signed())]);
}

#[test]
fn forged_stamps_before_the_session_become_its_start_in_one_buffer() {
    let mut fixture = CollectorFixture::new(raw_clock());
    let now = fixture.now();
    fixture.publish(0, now, 0);
    fixture.deliver();
    // Stamps before the session, each earlier than the one before.
    let records: Vec<(u16, u64)> = (0..20).rev().map(|stamp| (0, stamp)).collect();
    let source = fixture.early_source(2, &records);
    fixture.collector.add_source(source);
    fixture.collector.drain(DrainReach::BeforeDrain);
    let start = fixture.collector.clock.anchor().counter.cast_signed();
    let late: Vec<Vec<(u32, i64)>> =
        fixture.collect_and_flush().iter().filter(|buffer| buffer.is_late).map(read_events).collect();
    assert_eq!(late, [vec![(2, start); 20]]);
}

#[test]
fn backlog_adopted_during_a_drain_is_collected_by_that_drain() {
    const LARGE_PAYLOAD: [u8; 8 << 10] = [0; 8 << 10];
    let mut fixture = CollectorFixture::with_config(SessionConfig {
        name: "s".into(),
        log_file_mode: REAL_TIME,
        clock: raw_clock(),
        ring_bytes: 1 << 20,
        buffer_size: 16,
        minimum_buffers: 4,
        maximum_buffers: 4,
        ..SessionConfig::default()
    });
    let early = fixture.now();
    fixture.deliver();
    // The first stream is done in the first turn; in the turn of the second, the collector has to
    // wait for a free buffer.
    for _ in 0..=SLICE_BYTES / LARGE_PAYLOAD.len() {
        let now = fixture.now();
        fixture.region.publish(1, now, 0, &LARGE_PAYLOAD);
    }
    let source = fixture.early_source(2, &[(0, early), (1, early)]);
    let CollectorFixture { mut collector, jobs, .. } = fixture;
    let shared = Arc::clone(&collector.shared);
    let late = std::thread::spawn(move || {
        let (mut source, mut late) = (Some(source), Vec::new());
        for job in jobs {
            let Job::Buffer(buffer) = job else { panic!("an unexpected job was sent") };
            if let Some(source) = source.take() {
                shared.attach(source).unwrap();
            }
            if buffer.is_late {
                late.extend(read_events(&buffer));
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
    let mut fixture = CollectorFixture::with_config(SessionConfig {
        name: "s".into(),
        log_file_mode: REAL_TIME,
        clock: raw_clock(),
        ring_bytes: 1 << 20,
        ..SessionConfig::default()
    });
    let early = fixture.now();
    fixture.deliver();
    let source = fixture.early_source(2, &[(0, early); 100]);
    fixture.collector.add_source(source);
    let mut outcome = MergeOutcome::default();
    let mut turns = 0;
    while fixture.collector.merge_stream(0, 1000, DrainReach::BeforeDrain, &mut outcome) {
        turns += 1;
        assert!(fixture.collector.has_backlog && turns < 100);
    }
    assert!(turns > 5, "{turns} turns");
    assert_eq!(event_stamps(&fixture.collect_and_flush(), true), vec![(2, early.cast_signed()); 100]);
}

#[test]
fn no_completeness_stamp_while_a_backlog_is_partly_collected() {
    const LARGE_PAYLOAD: [u8; 8 << 10] = [0; 8 << 10];
    let mut fixture = CollectorFixture::with_config(SessionConfig {
        name: "s".into(),
        log_file_mode: REAL_TIME,
        clock: raw_clock(),
        ring_bytes: 1 << 20,
        maximum_buffers: 16,
        ..SessionConfig::default()
    });
    fixture.collector.shared.stats.consumers.store(1, Relaxed);
    let early = fixture.now();
    fixture.deliver();
    let (mut region, source) = Region::new(&fixture.collector.shared, 2);
    for _ in 0..40 {
        region.publish(0, early, 0, &LARGE_PAYLOAD);
    }
    region.publish(1, early, 0, &PAYLOAD);
    fixture
        .collector
        .add_source(SessionSource { backlog_streams: (0..usize::from(CPUS)).collect(), ..source });
    assert!(
        fixture.collector.report_interval_bytes() <= SLICE_BYTES,
        "the first turn stays within the interval"
    );
    fixture.collector.drain(DrainReach::BeforeDrain);
    assert!(fixture.collector.deliver());
    let mut processors = BTreeSet::new();
    for job in fixture.jobs.try_iter() {
        match job {
            Job::Buffer(buffer) | Job::Live(buffer) => {
                processors.extend(buffer.is_late.then_some(buffer.cpu))
            }
            Job::Complete(_) => assert_eq!(processors.len(), 2, "the completeness stamp was sent too early"),
            _ => panic!("an unexpected job was sent"),
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

fn any_step() -> impl Strategy<Value = Step> {
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
    fn events_of_backlogs_are_read_from_a_file_in_time_order(
        steps in prop::collection::vec(any_step(), 1..10),
        mode in prop::sample::select(MODES.to_vec()),
    ) {
        let mut fixture = CollectorFixture::with_mode(mode);
        fixture.collector.shared.stats.consumers.store(1, Relaxed);
        let (mut moments, mut expected, mut buffers) = (Vec::new(), Vec::new(), Vec::new());
        let mut process = 1;
        for step in steps {
            moments.push(fixture.now());
            for cpu in step.writes {
                let now = fixture.now();
                fixture.publish(cpu, now, 0);
                expected.push((1, now.cast_signed()));
            }
            for early in step.adopted {
                process += 1;
                let mut records: Vec<(u16, u64)> =
                    early.iter().map(|(cpu, moment)| (*cpu, *moment.get(&moments))).collect();
                records.sort_unstable_by_key(|(_, stamp)| *stamp);
                expected.extend(records.iter().map(|(_, stamp)| (process, stamp.cast_signed())));
                let source = fixture.early_source(process, &records);
                fixture.collector.add_source(source);
            }
            fixture.collector.drain(DrainReach::BeforeDrain);
            match step.action {
                Action::Nothing => {}
                Action::Flush => {
                    fixture.collector.flush();
                    fixture.collector.report_complete();
                }
                Action::Deliver => prop_assert!(fixture.collector.deliver()),
                Action::ReportProgress => fixture.collector.report_progress(),
                Action::Housekeeping => fixture.collector.do_housekeeping(),
            }
            buffers.append(&mut fixture.take_buffers());
        }
        buffers.append(&mut fixture.collect_and_flush());
        // Expected: stamps as they were written, in order.
        expected.sort_unstable_by_key(|&(process, stamp)| (stamp, process));
        if !buffers.is_empty() {
            let read = write_and_read(buffers);
            prop_assert!(read.is_sorted_by_key(|(_, stamp)| *stamp), "{:?}", read);
            let mut read = read;
            read.sort_unstable_by_key(|&(process, stamp)| (stamp, process));
            prop_assert_eq!(read, expected);
        }
    }
}

#[test]
fn event_written_while_a_backlog_is_collected_keeps_its_stamp() {
    for reach in [DrainReach::BeforeDrain, DrainReach::All] {
        let mut fixture = CollectorFixture::with_mode(SEQUENTIAL);
        let early = fixture.now();
        let passed = fixture.now();
        fixture.publish(0, passed, 0);
        fixture.collector.drain(DrainReach::BeforeDrain);
        let (counter, frequency) = (fixture.collector.clock.counter(), fixture.collector.clock.frequency());
        let shared = Arc::clone(&fixture.collector.shared);
        let (mut other_region, source) = Region::new(&shared, 3);
        fixture.collector.add_source(source);
        let (sender, stamps) = channel();
        let mut new_process = Some(Region::new(&shared, 4));
        let action = move || {
            let Some((mut region, source)) = new_process.take() else { return };
            shared.attach(source).unwrap();
            let written = [counter.now(), wait_beyond_valid_stamps(counter, frequency)];
            region.publish(0, written[0], 0, &[]);
            other_region.publish(0, written[1], 0, &[]);
            sender.send(written.map(u64::cast_signed)).unwrap();
        };
        let source = fixture.early_source(2, &[(0, early)]);
        fixture.collector.add_source(call_while_collecting(source, 2, action));
        fixture.collector.drain(reach);
        let buffers = fixture.collect_and_flush();
        let [attached, other] = stamps.recv().unwrap();
        let mut events = [false, true].map(|is_late| event_stamps(&buffers, is_late)).concat();
        events.sort_unstable();
        let expected = [(1, passed.cast_signed()), (2, early.cast_signed()), (3, other), (4, attached)];
        assert_eq!(events, expected, "{reach:?}");
    }
}
