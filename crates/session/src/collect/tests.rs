//! Tests that events keep their stamps and order, and that completeness stamps of live consumers
//! stay true.

use super::*;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::header::classic::{self, ClassicHeader};
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE as BUFFERING, EVENT_TRACE_FILE_MODE_SEQUENTIAL as SEQUENTIAL,
    EVENT_TRACE_REAL_TIME_MODE as REAL_TIME,
};
use traceweir_format::wire::{i64_at, u32_at};
use traceweir_transport::abi::{KEEP_STAMP, Layout, PREFIX_BYTES, control, size_in_ring};
use traceweir_transport::clock::{Anchor, Counter};
use traceweir_transport::message::SessionConfig;

use crate::capture::{CaptureClock, CapturedRecord};
use crate::config::Config;
use crate::record::ThreadIdMapping;

mod backlog;
mod parallel;

const CPUS: u16 = 2;
/// Stamp in each record of a process, which the session replaces unless the record keeps it.
const RECORD_TIME: i64 = 5;

/// A collector with one region, and the jobs that it sends to the writer thread.
struct CollectorFixture {
    collector: Collector,
    jobs: Receiver<Job>,
    region: Region,
}

/// The writing side of a region.
struct Region {
    memory: File,
    layout: Layout,
    /// Head of each ring.
    heads: Vec<u64>,
}

impl Region {
    /// Creates a region for a process, and its source for the collector.
    fn new(shared: &SharedState, process: u32) -> (Self, SessionSource) {
        let (params, cost) = shared.regions.claim().unwrap();
        let (reader, memory) = RegionReader::create(&params).unwrap();
        let writer = RegionWriter::new(process, ThreadIdMapping::AsGiven);
        let id = RegionId(process.into());
        let source = SessionSource {
            id,
            writer,
            writer_copies: Vec::new(),
            reader: Some(reader),
            wake: None,
            cost,
            lost: 0,
            backlog_streams: BTreeSet::new(),
        };
        let heads = vec![0; params.layout.rings()];
        (Self { memory: File::from(memory), layout: params.layout, heads }, source)
    }

    /// Publishes a record on a CPU, like a process that read the counter at `stamp`.
    fn publish(&mut self, cpu: u16, stamp: u64, flags: u16, payload: &[u8]) {
        let mut record = Vec::new();
        EventHeader { time: RECORD_TIME, ..EventHeader::default() }.encode(payload, &mut record).unwrap();
        // The prefix: length, CPU and flags in one word, then the raw stamp.
        let word = record.len() as u64 | u64::from(cpu) << 32 | u64::from(flags) << 48;
        let bytes = [&word.to_le_bytes(), &stamp.to_le_bytes(), record.as_slice()].concat();
        assert_eq!(bytes.len(), PREFIX_BYTES + record.len());
        let ring = usize::from(cpu);
        let head = &mut self.heads[ring];
        self.memory.write_all_at(&bytes, self.layout.data_offset(ring) as u64 + *head).unwrap();
        *head += size_in_ring(record.len()) as u64;
        let head = *head;
        self.write_head(ring, head);
    }

    /// Breaks the rules of a ring: heads are multiples of eight.
    fn damage(&mut self, cpu: u16) {
        let ring = usize::from(cpu);
        self.write_head(ring, self.heads[ring] + 4);
    }

    fn write_head(&self, ring: usize, head: u64) {
        let at = self.layout.control_offset(ring) + control::HEAD;
        self.memory.write_all_at(&head.to_le_bytes(), at as u64).unwrap();
    }
}

/// Makes the collector call `action` while it collects an event of the process: instead of a
/// translation of thread ids.
fn call_while_collecting(
    source: SessionSource,
    process: u32,
    mut action: impl FnMut() + Send + 'static,
) -> SessionSource {
    let translate = move |thread: u32| {
        action();
        thread
    };
    let mapping = ThreadIdMapping::Translated(Arc::new(Mutex::new(translate)));
    SessionSource { writer: RegionWriter::new(process, mapping), ..source }
}

/// Waits until the counter is further ahead than the stamp of a waiting record can be.
fn wait_beyond_valid_stamps(counter: Counter, frequency: u64) -> u64 {
    let start = counter.now();
    let millis = u64::try_from(merge::MAX_FUTURE.as_millis()).unwrap();
    loop {
        let now = counter.now();
        if now - start > frequency * millis / 1000 {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// A job that was sent to the writer.
#[derive(Debug, PartialEq, Eq)]
enum SentJob {
    /// Stamps of the events in a piece or buffer.
    Piece(Vec<i64>),
    Complete(i64),
}

/// Reads process and stamp of each event in a buffer.
fn read_events(buffer: &Buffer) -> Vec<(u32, i64)> {
    let mut events = Vec::new();
    let mut at = HEADER_SIZE;
    while at < buffer.filled {
        // In an event header, the size is at 0, the process id at 0x0C and the time at 0x10.
        events.push((u32_at(&buffer.bytes, at + 0x0C), i64_at(&buffer.bytes, at + 0x10)));
        at += usize::from(u16::from_le_bytes([buffer.bytes[at], buffer.bytes[at + 1]]));
        at = at.next_multiple_of(8);
    }
    events
}

/// Returns the clock whose stamps are the raw counter: 3 (processor cycles) or 1 (performance
/// counter). Clock 2 is the system time.
fn raw_clock() -> u32 {
    match Counter::best() {
        Counter::Cycles => 3,
        Counter::Monotonic => 1,
    }
}

impl CollectorFixture {
    fn new(clock: u32) -> Self {
        let config = SessionConfig {
            name: "s".into(),
            log_file_mode: REAL_TIME,
            clock,
            // The session raises this to the size of the smallest rings.
            ring_bytes: 1,
            ..SessionConfig::default()
        };
        Self::with_config(config)
    }

    fn with_config(config: SessionConfig) -> Self {
        Self::with_cpus(config, CPUS)
    }

    fn with_cpus(config: SessionConfig, cpus: u16) -> Self {
        let clock = config.clock;
        let config = Config::new(config, cpus).unwrap();
        let counter = Counter::best();
        let shared = Arc::new(SharedState::new(1, &config, counter).unwrap());
        let (region, source) = Region::new(&shared, 1);
        let (sender, jobs) = channel();
        let mut collector = Collector::new(shared, sender, SessionClock::start(clock, counter));
        collector.add_source(source);
        Self { collector, jobs, region }
    }

    fn now(&self) -> u64 {
        self.collector.clock.counter().now()
    }

    fn publish(&mut self, cpu: u16, stamp: u64, flags: u16) {
        self.region.publish(cpu, stamp, flags, &[]);
    }

    fn take_sent_jobs(&self) -> Vec<SentJob> {
        let classify = |job| match job {
            Job::Live(piece) | Job::Buffer(piece) => {
                SentJob::Piece(read_events(&piece).into_iter().map(|(_, stamp)| stamp).collect())
            }
            Job::Complete(stamp) => SentJob::Complete(stamp),
            _ => panic!("an unexpected job was sent"),
        };
        self.jobs.try_iter().map(classify).collect()
    }

    /// Drains and delivers. Returns the stamps that were sent and the completeness stamp.
    fn deliver(&mut self) -> (Vec<i64>, i64) {
        self.collector.drain(DrainReach::BeforeDrain);
        assert!(self.collector.deliver());
        let mut sent = self.take_sent_jobs();
        let Some(SentJob::Complete(complete)) = sent.pop() else {
            panic!("the last job is not a completeness stamp")
        };
        let mut stamps = Vec::new();
        for job in sent {
            let SentJob::Piece(mut more) = job else { panic!("a completeness stamp precedes a piece") };
            stamps.append(&mut more);
        }
        (stamps, complete)
    }
}

#[test]
fn everything_up_to_the_completeness_stamp_was_sent_before() {
    let mut fixture = CollectorFixture::new(raw_clock());
    let (first, second) = (fixture.now(), fixture.now());
    fixture.publish(0, first, 0);
    fixture.publish(1, second, 0);
    let (stamps, complete) = fixture.deliver();
    assert_eq!(stamps, [first, second].map(u64::cast_signed));
    assert!(complete >= second.cast_signed());
}

#[test]
fn late_record_is_stamped_after_completeness_on_every_clock() {
    for clock in 1..=3 {
        let mut fixture = CollectorFixture::new(clock);
        let delayed = fixture.now();
        let on_time = fixture.now();
        fixture.publish(0, on_time, 0);
        let (_, complete) = fixture.deliver();
        // On a CPU without earlier records, and on one that has some.
        fixture.publish(1, delayed, 0);
        fixture.publish(0, delayed, 0);
        let (stamps, second_complete) = fixture.deliver();
        assert_eq!(stamps.len(), 2);
        assert!(stamps.iter().all(|&stamp| stamp > complete), "clock {clock}: {stamps:?} after {complete}");
        assert!(second_complete >= complete);
    }
}

#[test]
fn completeness_stamp_does_not_decrease_after_the_clock_is_set_back() {
    let mut fixture = CollectorFixture::new(2);
    let now = fixture.now();
    fixture.publish(0, now, 0);
    let (_, complete) = fixture.deliver();
    // 90,000 units of 100 ns are 9 ms.
    fixture.collector.clock.set_back(90_000);
    let now = fixture.now();
    fixture.publish(1, now, 0);
    let (stamps, second_complete) = fixture.deliver();
    assert!(stamps.iter().all(|&stamp| stamp > complete), "{stamps:?} after {complete}");
    assert!(second_complete >= complete, "{second_complete} after {complete}");
    let now = fixture.now();
    fixture.publish(0, now, 0);
    assert!(fixture.deliver().0.iter().all(|&stamp| stamp > second_complete));
}

#[test]
fn flush_completes_the_last_stamp_of_the_previous_flush() {
    let mut fixture = CollectorFixture::new(2);
    // A request also collects what is published while it drains, which can be later than the
    // completeness stamp. A stamp far in the future stands for such a record.
    fixture.publish(0, u64::MAX >> 1, 0);
    fixture.collector.drain(DrainReach::All);
    fixture.collector.flush();
    fixture.collector.report_complete();
    let [SentJob::Piece(stamps), SentJob::Complete(complete)] = &fixture.take_sent_jobs()[..] else {
        panic!("expected a piece and its completeness stamp")
    };
    let newest = stamps[0];
    assert!(newest > *complete);
    fixture.collector.clock.set_back(90_000);
    let (_, complete) = fixture.deliver();
    assert!(complete >= newest, "{complete} after {newest}");
    let now = fixture.now();
    fixture.publish(1, now, 0);
    assert!(fixture.deliver().0[0] > complete);
}

#[test]
fn record_with_keep_stamp_flag_keeps_its_stamp() {
    let mut fixture = CollectorFixture::new(raw_clock());
    fixture.deliver();
    let now = fixture.now();
    fixture.publish(0, now, KEEP_STAMP);
    assert_eq!(fixture.deliver().0, [RECORD_TIME]);
}

#[test]
fn no_completeness_stamp_while_a_piece_is_refused() {
    let mut fixture = CollectorFixture::new(raw_clock());
    let now = fixture.now();
    fixture.publish(0, now, 0);
    let (_, complete) = fixture.deliver();
    // The writer is busy and takes no more pieces.
    let shared = Arc::clone(&fixture.collector.shared);
    let max_bytes = shared.pool.buffer_bytes() * shared.maximum_buffers();
    while shared.reserve_piece(64) {}
    let now = fixture.now();
    fixture.publish(1, now, 0);
    fixture.collector.drain(DrainReach::BeforeDrain);
    assert!(!fixture.collector.deliver());
    assert_eq!(fixture.take_sent_jobs(), []);
    // The writer has caught up.
    shared.release_piece(max_bytes - 64);
    let (stamps, later) = fixture.deliver();
    assert_eq!(stamps, [now.cast_signed()]);
    assert!(later >= now.cast_signed() && later > complete);
}

#[test]
fn consumers_get_the_event_of_an_idle_cpu_in_time() {
    const PAYLOAD: [u8; 8 << 10] = [0; 8 << 10];
    let config = SessionConfig {
        name: "s".into(),
        log_file_mode: REAL_TIME,
        clock: raw_clock(),
        ring_bytes: 1 << 20,
        maximum_buffers: 16,
        ..SessionConfig::default()
    };
    let mut fixture = CollectorFixture::with_config(config);
    let shared = Arc::clone(&fixture.collector.shared);
    shared.stats.consumers.store(1, Relaxed);
    let idle_stamp = fixture.now();
    fixture.publish(1, idle_stamp, 0);
    let (mut sent, mut complete, mut has_idle_event) = (0, None, false);
    while complete.is_none() && sent < fixture.collector.report_interval_bytes() * 2 {
        for _ in 0..8 {
            let now = fixture.now();
            fixture.region.publish(0, now, 0, &PAYLOAD);
            sent += PAYLOAD.len();
        }
        fixture.collector.drain(DrainReach::BeforeDrain);
        for job in fixture.jobs.try_iter() {
            match job {
                Job::Buffer(buffer) | Job::Live(buffer) => {
                    let stamps: Vec<i64> = read_events(&buffer).into_iter().map(|(_, stamp)| stamp).collect();
                    has_idle_event |= stamps.contains(&idle_stamp.cast_signed());
                    assert!(complete.is_none_or(|complete| stamps.iter().all(|&stamp| stamp > complete)));
                }
                Job::Complete(stamp) => complete = Some(stamp),
                _ => panic!("an unexpected job was sent"),
            }
        }
    }
    assert!(
        has_idle_event && complete.is_some_and(|complete| complete >= idle_stamp.cast_signed()),
        "{complete:?}"
    );
}

#[test]
fn event_of_a_process_attached_during_a_drain_keeps_its_stamp() {
    const PAYLOAD: [u8; 8 << 10] = [0; 8 << 10];
    let config = SessionConfig {
        name: "s".into(),
        log_file_mode: REAL_TIME,
        clock: raw_clock(),
        ring_bytes: 1 << 20,
        buffer_size: 16,
        minimum_buffers: 4,
        maximum_buffers: 4,
        ..SessionConfig::default()
    };
    let CollectorFixture { mut collector, jobs, mut region } = CollectorFixture::with_config(config);
    let (counter, shared) = (collector.clock.counter(), Arc::clone(&collector.shared));
    let pool_bytes = shared.maximum_buffers() * shared.pool.buffer_bytes();
    assert!(pool_bytes < SLICE_BYTES, "the first turn does not wait for a buffer");
    for _ in 0..=SLICE_BYTES / PAYLOAD.len() {
        region.publish(0, counter.now(), 0, &PAYLOAD);
    }
    let (mut new_region, source) = Region::new(&shared, 2);
    let writer_thread = std::thread::spawn(move || {
        let (mut attached_stamp, mut source, mut events) = (0, Some(source), Vec::new());
        for job in jobs {
            let Job::Buffer(buffer) = job else { panic!("an unexpected job was sent") };
            if let Some(source) = source.take() {
                // In the first turn: one process attaches and writes, then the other one writes.
                shared.attach(source).unwrap();
                attached_stamp = counter.now();
                new_region.publish(0, attached_stamp, 0, &[]);
                region.publish(0, counter.now(), 0, &[]);
            }
            events.extend(read_events(&buffer));
            shared.pool.return_buffer(buffer);
            shared.pool.count_finished();
        }
        (attached_stamp.cast_signed(), events)
    });
    collector.drain(DrainReach::BeforeDrain);
    collector.drain(DrainReach::All);
    collector.flush();
    drop(collector);
    let (attached_stamp, events) = writer_thread.join().unwrap();
    assert!(events.is_sorted_by_key(|(_, stamp)| *stamp));
    let stamps: Vec<i64> =
        events.iter().filter(|(process, _)| *process == 2).map(|(_, stamp)| *stamp).collect();
    assert_eq!(stamps, [attached_stamp]);
}

/// A capture with slow polls: an event happens in the middle of each poll and is reported by
/// the next.
struct SlowCapture {
    wake: OwnedFd,
    poll_times: VecDeque<Duration>,
    happened: VecDeque<u64>,
    reported: VecDeque<u64>,
    /// Counter in the middle of each poll.
    middles: Arc<Mutex<Vec<i64>>>,
}

impl Capture for SlowCapture {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn poll(&mut self, clock: &dyn CaptureClock, _: bool) {
        self.reported.extend(self.happened.drain(..).map(|ns| clock.raw(ns)));
        let half = self.poll_times.pop_front().unwrap_or_default() / 2;
        std::thread::sleep(half);
        let now = Anchor::now(Counter::best());
        self.middles.lock().unwrap().push(now.counter.cast_signed());
        self.happened.push_back(now.monotonic_ns);
        std::thread::sleep(half);
    }

    fn peek(&self, stream: u16) -> Option<CapturedRecord> {
        let raw = *self.reported.front().filter(|_| stream == 0)?;
        Some(CapturedRecord { length: classic::SIZE, raw, is_stack: false })
    }

    fn take(&mut self, _: u16, out: &mut [u8]) {
        let mut record = Vec::new();
        ClassicHeader::default().encode(&[], &mut record).unwrap();
        assert_eq!(record.len(), classic::SIZE);
        out.copy_from_slice(&record);
        self.reported.pop_front();
    }

    fn lost(&self) -> u64 {
        0
    }

    fn end(&mut self, _: &dyn CaptureClock) {}
}

#[test]
fn events_during_a_slow_poll_keep_their_stamps() {
    let mut fixture = CollectorFixture::new(raw_clock());
    let middles = Arc::new(Mutex::new(Vec::new()));
    let poll_times = [60, 2, 2, 60, 60, 2].map(Duration::from_millis).into();
    let wake = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let (happened, reported) = (VecDeque::new(), VecDeque::new());
    let slow = SlowCapture { wake, poll_times, happened, reported, middles: Arc::clone(&middles) };
    fixture.collector.start_capture(Box::new(slow));
    let ticks = |millis: u64| millis * fixture.collector.clock.frequency() / 1000;
    let (write_delay_ticks, tolerance) = (ticks(45), ticks(1).cast_signed());
    // A process writes during the first poll, usually after the event in the middle of the poll.
    let written = fixture.now() + write_delay_ticks;
    fixture.publish(0, written, 0);
    let mut stamps = Vec::new();
    for _ in 0..4 {
        stamps.append(&mut fixture.deliver().0);
    }
    assert!(stamps.contains(&written.cast_signed()), "{stamps:?}");
    let mut expected = middles.lock().unwrap().clone();
    expected.push(written.cast_signed());
    expected.sort_unstable();
    assert!(stamps.len() >= 6, "{stamps:?}");
    for (stamp, expected) in stamps.iter().zip(&expected) {
        assert!((stamp - expected).abs() < tolerance, "{stamps:?}: {stamp} instead of {expected}");
    }
}
