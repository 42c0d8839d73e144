//! Tests of log files: modes, limits, full disks, snapshots, and changes by other processes.

use super::*;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::etl::{Finding, Trace, check};
use traceweir_format::header::event::EventHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE as BUFFERING, EVENT_TRACE_COMPRESSED_MODE as COMPRESSED,
    EVENT_TRACE_FILE_MODE_CIRCULAR as CIRCULAR, EVENT_TRACE_FILE_MODE_NEWFILE as NEWFILE,
    EVENT_TRACE_FILE_MODE_PREALLOCATE as PREALLOCATE, EVENT_TRACE_FILE_MODE_SEQUENTIAL as SEQUENTIAL,
    EVENT_TRACE_USE_KBYTES_FOR_SIZE as KBYTES,
};
use traceweir_transport::clock::Counter;
use traceweir_transport::message::SessionConfig;

use crate::storage::FileState;

const BUFFER_BYTES: usize = 4096;

/// Storage in memory with room for `capacity` bytes.
#[derive(Clone)]
struct MemoryStorage {
    bytes: Arc<Mutex<Vec<u8>>>,
    capacity: usize,
    /// Number of changes, in place of the modification time.
    changes: Arc<AtomicI64>,
}

impl MemoryStorage {
    fn new(capacity: usize) -> Self {
        Self { bytes: Arc::default(), capacity, changes: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap()
    }

    /// Changes the bytes like another process.
    fn change_as_other_process(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.lock());
        self.changes.fetch_add(1, Relaxed);
    }
}

impl Storage for MemoryStorage {
    /// Writes what fits before it fails, like a disk.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        let fits = bytes.len().min(self.capacity.saturating_sub(start));
        self.changes.fetch_add(1, Relaxed);
        self.lock().write_at(offset, &bytes[..fits]).unwrap();
        if fits < bytes.len() { Err(rustix::io::Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn preallocate(&mut self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).unwrap();
        if length > self.capacity {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        self.lock().resize(length, 0);
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.lock().truncate(usize::try_from(length).unwrap());
        self.changes.fetch_add(1, Relaxed);
        Ok(())
    }

    fn state(&self) -> Option<FileState> {
        Some(FileState { size: self.lock().len() as u64, changed: (self.changes.load(Relaxed), 0) })
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(traceweir_format::etl::ReadAt::read_at(&*self.lock(), offset, bytes).unwrap())
    }
}

fn test_facts(mode: u32, maximum_kib: u32) -> SessionFacts {
    let config = SessionConfig {
        name: "session".into(),
        log_file_mode: mode | KBYTES,
        buffer_size: 4,
        maximum_file_size: maximum_kib,
        ..Default::default()
    };
    let clock = SessionClock::start(1, Counter::best());
    SessionFacts {
        config,
        logger_id: 3,
        processors: 2,
        starter: (10, 11),
        clock,
        modules: Vec::new(),
        groups: None,
    }
}

/// Returns a buffer with events whose thread ids are these numbers.
fn event_buffer(facts: &SessionFacts, cpu: u16, numbers: std::ops::Range<u32>) -> Buffer {
    let base = facts.clock.anchor_stamp(facts.clock.anchor());
    let mut bytes = vec![0; HEADER_SIZE];
    let (mut events, mut time) = (0, 0);
    for number in numbers {
        time = base + i64::from(number);
        EventHeader { thread_id: number, time, ..Default::default() }.encode(&[], &mut bytes).unwrap();
        events += 1;
    }
    let filled = bytes.len();
    bytes.resize(BUFFER_BYTES, 0xAA);
    Buffer { bytes: bytes.into(), filled, cpu, events, time, delivered: HEADER_SIZE, ..Buffer::default() }
}

fn create_log(facts: &SessionFacts, storage: &MemoryStorage) -> LogFile {
    let name = Some(Path::new("/logs/a.etl"));
    LogFile::create(Box::new(storage.clone()), facts, name, *facts.clock.anchor()).unwrap()
}

fn check_file(bytes: &[u8]) -> Vec<Finding> {
    let mut findings = Vec::new();
    check(&Trace::open(bytes).unwrap(), &mut |finding| findings.push(finding)).unwrap();
    findings
}

/// Returns the numbers of a CPU in the file, in time order.
fn read_numbers(bytes: &[u8], cpu: u16) -> Vec<u32> {
    let trace = Trace::open(bytes).unwrap();
    let mut events = trace.events();
    let mut numbers = Vec::new();
    while let Some(event) = events.next().unwrap() {
        if event.cpu() == cpu && event.hook().is_none() {
            numbers.push(event.thread_id());
        }
    }
    numbers
}

/// Returns the system name in the file.
fn system_name(trace: &Trace<&[u8]>) -> String {
    let mut events = trace.events();
    while let Some(event) = events.next().unwrap() {
        if event.hook() == Some(hook::BUILD_INFO) {
            let text = traceweir_format::text::until_nul8(event.payload());
            return String::from_utf8_lossy(text).into_owned();
        }
    }
    String::new()
}

#[test]
fn sequential_file_conforms_to_the_format() {
    let (facts, storage) = (test_facts(SEQUENTIAL, 0), MemoryStorage::new(usize::MAX));
    let mut file = create_log(&facts, &storage);
    for at in 0..5 {
        let mut buffer = event_buffer(&facts, at % 2, u32::from(at) * 10..u32::from(at) * 10 + 10);
        assert_eq!(file.append(&mut buffer, || (0, 0)), AppendResult::Appended);
    }
    assert_eq!(file.finalise((77, 3)), None);
    let bytes = storage.lock();
    assert_eq!(check_file(&bytes), []);
    assert_eq!(read_numbers(&bytes, 1), (10..20).chain(30..40).collect::<Vec<_>>());
    let trace = Trace::open(bytes.as_slice()).unwrap();
    let header = trace.header();
    assert_eq!((header.buffers_written, header.events_lost, header.buffers_lost), (6, 77, 3));
    assert_eq!((header.session_name.as_str(), header.file_name.as_str()), ("session", "/logs/a.etl"));
    assert_eq!(trace.starter(), (11, 10), "wrong thread or process");
    let system = system_name(&trace);
    assert!(system.contains(" (traceweir ") && !system.starts_with("Windows"), "{system}");
}

#[test]
fn limit_ends_a_sequential_file_and_later_counts_reach_its_header() {
    // 15 KiB hold the header buffer and two buffers of 4 KiB.
    let (facts, storage) = (test_facts(SEQUENTIAL, 15), MemoryStorage::new(usize::MAX));
    let mut file = create_log(&facts, &storage);
    assert_eq!(file.append(&mut event_buffer(&facts, 0, 0..9), || (0, 0)), AppendResult::Appended);
    assert_eq!(file.append(&mut event_buffer(&facts, 0, 9..18), || (0, 0)), AppendResult::Appended);
    assert_eq!(
        file.append(&mut event_buffer(&facts, 0, 18..27), || (9, 1)),
        AppendResult::Ended(Status::ERROR_SUCCESS)
    );
    assert_eq!(check_file(&storage.lock()), []);
    assert_eq!(file.append(&mut event_buffer(&facts, 0, 27..30), || (0, 0)), AppendResult::AlreadyEnded);
    assert_eq!(file.finalise((12, 2)), None);
    let bytes = storage.lock();
    assert!(bytes.len() <= 15 << 10);
    assert_eq!(check_file(&bytes), []);
    assert_eq!(read_numbers(&bytes, 0), (0..18).collect::<Vec<_>>());
    assert_eq!(Trace::open(bytes.as_slice()).unwrap().header().events_lost, 12);
}

#[test]
fn circular_file_keeps_the_last_buffers_of_each_cpu() {
    for total in 1..20 {
        let (facts, storage) = (test_facts(CIRCULAR, 24), MemoryStorage::new(usize::MAX));
        let mut file = create_log(&facts, &storage);
        for at in 0..total {
            let cpu = u16::from(at % 3 == 0);
            assert_eq!(
                file.append(&mut event_buffer(&facts, cpu, at * 5..at * 5 + 5), || (0, 0)),
                AppendResult::Appended
            );
        }
        assert_eq!(file.finalise((0, 0)), None);
        let bytes = storage.lock();
        assert!(bytes.len() <= 24 << 10);
        assert_eq!(check_file(&bytes), [], "{total}");
        // 24 KiB hold the header buffer and five buffers of 4 KiB.
        let first_kept = total.saturating_sub(5);
        for cpu in 0..2 {
            let expected: Vec<u32> = (first_kept..total)
                .filter(|at| u16::from(at % 3 == 0) == cpu)
                .flat_map(|at| at * 5..at * 5 + 5)
                .collect();
            assert_eq!(read_numbers(&bytes, cpu), expected, "{total} buffers, processor {cpu}");
        }
        assert_eq!(Trace::open(bytes.as_slice()).unwrap().header().buffers_written, total + 1);
    }
}

#[test]
fn full_disk_leaves_a_valid_file() {
    for capacity in
        [BUFFER_BYTES, BUFFER_BYTES + 1, 2 * BUFFER_BYTES + 100, 3 * BUFFER_BYTES - 1, 3 * BUFFER_BYTES]
    {
        let (facts, storage) = (test_facts(SEQUENTIAL, 0), MemoryStorage::new(capacity));
        let mut file = create_log(&facts, &storage);
        // The header buffer takes the room of one.
        let buffers_that_fit = u32::try_from(capacity / BUFFER_BYTES).unwrap() - 1;
        for at in 0..buffers_that_fit {
            assert_eq!(
                file.append(&mut event_buffer(&facts, 0, at * 5..at * 5 + 5), || (0, 0)),
                AppendResult::Appended
            );
        }
        let ended = file.append(&mut event_buffer(&facts, 0, 500..505), || (5, 1));
        assert_eq!(ended, AppendResult::Ended(Status::ERROR_DISK_FULL));
        assert_eq!(
            file.append(&mut event_buffer(&facts, 0, 505..506), || (0, 0)),
            AppendResult::AlreadyEnded
        );
        let bytes = storage.lock();
        assert_eq!(check_file(&bytes), [], "room for {capacity}");
        assert_eq!(read_numbers(&bytes, 0), (0..buffers_that_fit * 5).collect::<Vec<_>>());
        assert_eq!(Trace::open(bytes.as_slice()).unwrap().header().events_lost, 5);
    }
    let result = LogFile::create(
        Box::new(MemoryStorage::new(100)),
        &test_facts(SEQUENTIAL, 0),
        None,
        *test_facts(SEQUENTIAL, 0).clock.anchor(),
    );
    assert_eq!(result.err().map(|e| e.status()), Some(Status::ERROR_DISK_FULL));
}

#[test]
fn snapshot_is_a_complete_file_and_repeatable() {
    let facts = test_facts(BUFFERING, 0);
    let mut flight = FlightRecorder::default();
    for at in 0..6 {
        flight.keep(event_buffer(&facts, 0, at * 5..at * 5 + 5));
    }
    let _ = (flight.take_oldest(), flight.take_oldest());
    for extra in [3, 4] {
        let storage = MemoryStorage::new(usize::MAX);
        let mut partial = [event_buffer(&facts, 0, 30..30 + extra), event_buffer(&facts, 1, 0..extra)];
        let written = flight.snapshot(Box::new(storage.clone()), &facts, None, &mut partial, (4, 0)).unwrap();
        let bytes = storage.lock();
        // The header buffer, four buffers of the history and two partial ones.
        assert_eq!((check_file(&bytes), written), (vec![], 7));
        assert_eq!(read_numbers(&bytes, 0), (10..30 + extra).collect::<Vec<_>>());
        assert_eq!(read_numbers(&bytes, 1), (0..extra).collect::<Vec<_>>());
    }
    let full = flight.snapshot(Box::new(MemoryStorage::new(2 * BUFFER_BYTES)), &facts, None, &mut [], (0, 0));
    assert_eq!(full.err().map(|e| e.status()), Some(Status::ERROR_DISK_FULL));
}

#[test]
fn preallocated_file_has_full_length_until_finalised() {
    for mode in [SEQUENTIAL | PREALLOCATE, CIRCULAR | PREALLOCATE] {
        let (facts, storage) = (test_facts(mode, 24), MemoryStorage::new(24 << 10));
        let mut file = create_log(&facts, &storage);
        assert_eq!(storage.lock().len(), 24 << 10);
        for at in 0..2 {
            assert_eq!(
                file.append(&mut event_buffer(&facts, 0, at * 5..at * 5 + 5), || (0, 0)),
                AppendResult::Appended
            );
        }
        assert_eq!(file.finalise((0, 0)), None);
        let bytes = storage.lock();
        assert_eq!((bytes.len(), check_file(&bytes)), (3 * BUFFER_BYTES, vec![]));
        assert_eq!(read_numbers(&bytes, 0), (0..10).collect::<Vec<_>>());
    }
    let (facts, storage) = (test_facts(SEQUENTIAL | PREALLOCATE, 24), MemoryStorage::new(23 << 10));
    let result = LogFile::create(Box::new(storage.clone()), &facts, None, *facts.clock.anchor());
    assert_eq!(result.err().map(|e| e.status()), Some(Status::ERROR_DISK_FULL));
    assert!(storage.lock().len() <= BUFFER_BYTES, "blocks stay preallocated");
}

#[test]
fn file_counts_only_losses_after_its_start() {
    let (facts, storage) = (test_facts(NEWFILE, 16), MemoryStorage::new(usize::MAX));
    let mut file = create_log(&facts, &storage);
    file.set_losses_in_earlier_files((100, 3));
    assert_eq!(file.append(&mut event_buffer(&facts, 0, 0..5), || (0, 0)), AppendResult::Appended);
    assert_eq!(file.finalise((142, 4)), None);
    let bytes = storage.lock();
    let header = Trace::open(bytes.as_slice()).unwrap().header().clone();
    assert_eq!((header.events_lost, header.buffers_lost), (42, 1));
}

#[test]
fn file_of_a_sequence_is_full_but_not_ended_at_its_limit() {
    let (facts, storage) = (test_facts(NEWFILE, 12), MemoryStorage::new(usize::MAX));
    let mut file = create_log(&facts, &storage);
    for at in 0..2 {
        assert_eq!(
            file.append(&mut event_buffer(&facts, 0, at * 5..at * 5 + 5), || (0, 0)),
            AppendResult::Appended
        );
    }
    for _ in 0..2 {
        assert_eq!(file.append(&mut event_buffer(&facts, 0, 10..15), || (0, 0)), AppendResult::Full);
    }
    assert_eq!(file.finalise((0, 0)), None);
    assert_eq!(check_file(&storage.lock()), []);
}

/// Returns a buffer whose second half has lower stamps than the first.
fn unsorted_buffer(facts: &SessionFacts, numbers: std::ops::Range<u32>) -> Buffer {
    let middle = numbers.start.midpoint(numbers.end);
    let mut buffer = event_buffer(facts, 0, middle..numbers.end);
    buffer.expect_lower_stamps();
    let lower = event_buffer(facts, 0, numbers.start..middle);
    let records = &lower.bytes[HEADER_SIZE..lower.filled];
    let end = buffer.filled + records.len();
    buffer.bytes[buffer.filled..end].copy_from_slice(records);
    (buffer.filled, buffer.time, buffer.events) = (end, lower.time, buffer.events + lower.events);
    buffer
}

#[test]
fn buffers_with_decreasing_stamps_are_written_sorted() {
    for mode in [SEQUENTIAL, SEQUENTIAL | COMPRESSED] {
        for is_batch in [false, true] {
            let (facts, storage) = (test_facts(mode, 0), MemoryStorage::new(usize::MAX));
            let mut file = create_log(&facts, &storage);
            let mut buffers = [0, 20, 40].map(|at| unsorted_buffer(&facts, at..at + 20));
            if !is_batch || !file.append_batch(&mut buffers) {
                for buffer in &mut buffers {
                    assert_eq!(file.append(buffer, || (0, 0)), AppendResult::Appended);
                }
            }
            let last = facts.clock.anchor_stamp(facts.clock.anchor()) + 59;
            assert_eq!(buffers[2].time, last, "the stamp of the buffer is not the latest");
            assert_eq!(file.finalise((0, 0)), None);
            assert_eq!(check_file(&storage.lock()), [], "mode {mode:#x}, in a batch: {is_batch}");
            assert_eq!(read_numbers(&storage.lock(), 0), (0..60).collect::<Vec<_>>());
        }
    }
}

/// Returns a file of six buffers of ten events each, in this mode.
fn write_six_buffers(mode: u32, kib: u32) -> (SessionFacts, MemoryStorage, LogFile) {
    let (facts, storage) = (test_facts(mode, kib), MemoryStorage::new(usize::MAX));
    let mut file = create_log(&facts, &storage);
    for at in 0..6 {
        let mut buffer = event_buffer(&facts, 0, at * 10..at * 10 + 10);
        assert_eq!(file.append(&mut buffer, || (0, 0)), AppendResult::Appended);
    }
    (facts, storage, file)
}

const INTACT: Overwritten = Overwritten { buffers: 0, events: 0 };

#[test]
fn file_written_only_by_its_session_is_intact() {
    for (mode, kib) in
        [(SEQUENTIAL, 0), (CIRCULAR, 20), (SEQUENTIAL | PREALLOCATE, 64), (SEQUENTIAL | COMPRESSED, 0)]
    {
        let (facts, _, mut file) = write_six_buffers(mode, kib);
        assert_eq!(file.take_overwritten(), INTACT, "mode {mode:#x}");
        let mut batch = [60, 70].map(|at| event_buffer(&facts, 1, at..at + 10));
        file.append_batch(&mut batch);
        assert_eq!(file.take_overwritten(), INTACT, "mode {mode:#x}");
        file.finalise((0, 0));
        assert_eq!(file.take_overwritten(), INTACT, "mode {mode:#x}");
    }
}

#[test]
fn changed_modification_time_alone_is_not_damage() {
    let (_, storage, mut file) = write_six_buffers(SEQUENTIAL, 0);
    storage.change_as_other_process(|_| ());
    assert_eq!(file.take_overwritten(), INTACT);
}

#[test]
fn buffers_cut_off_by_another_process_are_counted_once() {
    for size in [0, 100, BUFFER_BYTES, 3 * BUFFER_BYTES, 4 * BUFFER_BYTES - 1] {
        let buffers_that_fit = (size / BUFFER_BYTES) as u32;
        // The header buffer, without events, and six buffers of ten events.
        let lost = Overwritten {
            buffers: 7 - buffers_that_fit,
            events: u64::from(6 - buffers_that_fit.saturating_sub(1)) * 10,
        };
        // The session notices the cut at once, or at the next write, which makes the file as long
        // as before.
        for continues in [false, true] {
            let (facts, storage, mut file) = write_six_buffers(SEQUENTIAL, 0);
            storage.change_as_other_process(|bytes| bytes.truncate(size));
            if continues {
                assert_eq!(
                    file.append(&mut event_buffer(&facts, 0, 60..70), || (0, 0)),
                    AppendResult::Appended
                );
            }
            assert_eq!(file.take_overwritten(), lost, "cut to {size}, continues: {continues}");
            assert_eq!(file.take_overwritten(), INTACT, "counted twice");
        }
    }
}

#[test]
fn buffers_overwritten_by_another_process_are_counted() {
    let (facts, storage, mut file) = write_six_buffers(SEQUENTIAL, 0);
    storage.change_as_other_process(|bytes| bytes[2 * BUFFER_BYTES..4 * BUFFER_BYTES + 100].fill(0));
    assert_eq!(file.append(&mut event_buffer(&facts, 0, 60..70), || (0, 0)), AppendResult::Appended);
    assert_eq!(file.take_overwritten(), Overwritten { buffers: 3, events: 30 });
    storage.change_as_other_process(|bytes| bytes[..BUFFER_BYTES].fill(b'x'));
    assert_eq!(file.take_overwritten(), Overwritten { buffers: 1, events: 0 }, "header not counted");
}

#[test]
fn replacement_by_another_trace_is_noticed() {
    let (_, storage, mut file) = write_six_buffers(SEQUENTIAL, 0);
    let (_, other, mut other_file) = write_six_buffers(SEQUENTIAL, 0);
    let other_bytes = {
        other_file.finalise((0, 0));
        let mut bytes = other.lock().clone();
        // Sessions at other times have other stamps, at 0x10 of each buffer.
        for at in (1..7).map(|n| n * BUFFER_BYTES + 0x10) {
            bytes[at] ^= 0x55;
        }
        bytes
    };
    storage.change_as_other_process(|bytes| *bytes = other_bytes);
    assert_eq!(file.take_overwritten(), Overwritten { buffers: 6, events: 60 });
}

#[test]
fn circular_log_counts_only_buffers_overwritten_by_another_process() {
    // 20 KiB hold the header buffer and four buffers of 4 KiB.
    let (facts, storage, mut file) = write_six_buffers(CIRCULAR, 20);
    for at in 6..20 {
        assert_eq!(
            file.append(&mut event_buffer(&facts, 0, at * 10..at * 10 + 10), || (0, 0)),
            AppendResult::Appended
        );
    }
    storage.change_as_other_process(|bytes| bytes[BUFFER_BYTES..2 * BUFFER_BYTES].fill(0));
    assert_eq!(file.take_overwritten(), Overwritten { buffers: 1, events: 10 });
}

#[test]
fn changes_after_finalising_are_not_counted() {
    let (_, storage, mut file) = write_six_buffers(SEQUENTIAL, 0);
    file.finalise((0, 0));
    storage.change_as_other_process(Vec::clear);
    assert_eq!(file.take_overwritten(), INTACT);
}
