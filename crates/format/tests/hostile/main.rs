//! Hostile bytes cause errors or defects with offsets, never a panic, an endless loop or unbounded
//! memory.
//!
//! A counting allocator counts the memory of the thread of each test, so that tests can assert
//! limits.

mod bombs;
#[path = "../fake/mod.rs"]
mod fake;
mod streams;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;

use fake::{
    ANCHOR, ReadEvent, buffer_headers, build_file, check_file, encode_event, encode_record, options,
    overwrite, read_damaged, read_events, small_file,
};
use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, STATE_FLUSH};
use traceweir_format::etl::{Options, Summary, Trace, Writer, check, repair};
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::spec::session::{BUFFER_FLAG_COMPRESSED, BUFFER_FLAG_PROC_INDEX};
use traceweir_format::wire::Put;
use traceweir_format::{Error, Record};

const MIB: usize = 1 << 20;

struct CountingAllocator;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count_bytes(bytes: isize) {
    LIVE_BYTES.with(|live| {
        live.set(live.get() + bytes);
        PEAK_BYTES.with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every method passes its arguments unchanged to the system allocator and returns its
// result, so it keeps the contract of `GlobalAlloc`. Counting changes thread-local numbers, which
// need no allocation and no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_bytes(layout.size() as isize);
        // SAFETY: the caller guarantees that `layout` has a size other than 0.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_bytes(layout.size() as isize);
        // SAFETY: the caller guarantees that `layout` has a size other than 0.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_bytes(-(layout.size() as isize));
        // SAFETY: the caller guarantees that this allocator, and so the system allocator, returned
        // `pointer` for `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_bytes(size as isize - layout.size() as isize);
        // SAFETY: the caller guarantees that this allocator, and so the system allocator, returned
        // `pointer` for `layout`, and that `size` is valid.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns the result of `work` and its peak memory in bytes.
fn measure_peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE_BYTES.with(Cell::get);
    PEAK_BYTES.with(|peak| peak.set(before));
    let result = work();
    (result, (PEAK_BYTES.with(Cell::get) - before) as usize)
}

/// The number of events and all defects of a file.
#[derive(Debug, Default)]
struct ReadReport {
    events: u64,
    defects: Vec<Error>,
}

/// Reads, checks and repairs any bytes.
fn read_check_and_repair(bytes: &[u8]) -> Result<ReadReport, Error> {
    let trace = Trace::open(bytes)?;
    let mut report = ReadReport { defects: trace.defects().to_vec(), ..ReadReport::default() };
    let mut events = trace.events();
    while let Some(record) = events.next()? {
        report.events += 1;
        let _ = (
            record.payload(),
            record.descriptor(),
            record.provider(),
            record.items().count(),
            record.instance(),
        );
        assert!(report.events <= 64 * MIB as u64, "the reader returns too many events");
    }
    report.defects.extend(events.damage().defects.iter().cloned());
    let readable = check(&trace, &mut |_| ())?;
    assert_eq!(readable, report.events, "checker and reader count different events");
    let mut sink = Vec::new();
    repair(&trace, &mut sink)?;
    Ok(report)
}

fn offset_of(error: &Error) -> u64 {
    match error {
        Error::Truncated { offset, .. } | Error::Invalid { offset, .. } | Error::NotAnEtl { offset, .. } => {
            *offset
        }
        other => panic!("no offset: {other}"),
    }
}

fn event_id(event: &ReadEvent) -> usize {
    usize::from(Record::parse(&event.bytes, 0).unwrap().descriptor().id)
}

fn append_compressed_buffer(bytes: &mut Vec<u8>, cpu: u16, offset: u32, sequence: i64, stream: &[u8]) {
    let header = BufferHeader {
        buffer_size: (HEADER_SIZE + stream.len()) as u32,
        saved_offset: offset,
        offset,
        sequence_number: sequence,
        processor_index: cpu,
        logger_id: 7,
        state: STATE_FLUSH,
        flags: BUFFER_FLAG_PROC_INDEX | BUFFER_FLAG_COMPRESSED,
        ..BufferHeader::default()
    };
    bytes.put(&header.to_bytes()).put(stream);
}

#[test]
fn truncated_file_gives_its_whole_records_and_reports_the_end() {
    for compressed in [false, true] {
        let original = small_file(compressed);
        let original_events = read_events(&original);
        let starts = buffer_headers(&original);
        let first_event = HEADER_SIZE + Record::parse(&original[HEADER_SIZE..], 0).unwrap().bytes().len();
        for length in 0..original.len() {
            let truncated = &original[..length];
            let (outcome, peak) = measure_peak(|| read_check_and_repair(truncated));
            assert!(peak < MIB, "{peak} bytes for a file of {length}");
            let Ok(outcome) = outcome else {
                assert!(length < first_event, "cut at {length}: {outcome:?}");
                assert!(offset_of(&outcome.unwrap_err()) <= length as u64);
                continue;
            };
            assert!(length >= first_event);
            let end_of = |&(at, header): &(usize, BufferHeader)| at + header.buffer_size as usize;
            let whole_buffers = starts.iter().filter(|b| end_of(b) <= length).count();
            // The header buffer has one event, each data buffer two.
            let min_events = if whole_buffers == 0 { 1 } else { 1 + 2 * (whole_buffers as u64 - 1) };
            assert!(
                (min_events..=min_events + 2).contains(&outcome.events),
                "cut at {length}: {} events",
                outcome.events
            );
            let ends_at_buffer = starts.iter().any(|b| end_of(b) == length);
            assert_eq!(outcome.defects.is_empty(), ends_at_buffer, "cut at {length}: {:?}", outcome.defects);
            // Inside a compressed buffer, offsets count unpacked bytes.
            let end = if compressed { length + 1024 } else { length };
            assert!(outcome.defects.iter().all(|d| offset_of(d) <= end as u64));
            assert!(!check_file(truncated).is_empty());
            assert!(read_damaged(truncated).0.iter().all(|event| original_events.contains(event)));
        }
    }
}

#[test]
fn flipped_bit_damages_no_other_buffer_of_a_plain_file() {
    let original = small_file(false);
    let ids: BTreeSet<usize> = (0..24).collect();
    for (buffer, (at, _)) in
        buffer_headers(&original).into_iter().enumerate().filter(|(n, _)| [1, 6, 12].contains(n))
    {
        // The headers of the buffer's two records. The first record has 0x50 + 40 bytes.
        let records = [HEADER_SIZE, HEADER_SIZE + 120].map(|r| r..r + 0x50);
        for byte in (0..HEADER_SIZE).chain(records.into_iter().flatten()) {
            for bit in 0..8 {
                let mut damaged = original.clone();
                damaged[at + byte] ^= 1 << bit;
                let position = || format!("bit {bit} of byte {byte:#x} of buffer {buffer}");
                let outcome =
                    read_check_and_repair(&damaged).unwrap_or_else(|e| panic!("{}: {e}", position()));
                // 24 events and the header event.
                assert!(outcome.events <= 25, "{}", position());
                let is_in_other_buffer = |id: usize| id / 2 + 1 != buffer;
                // Header type 19 is a 64-bit EVENT_HEADER.
                let read_ids: BTreeSet<_> = read_damaged(&damaged)
                    .0
                    .iter()
                    .filter(|event| event.cpu < 3 && event.bytes[2] == 19)
                    .map(event_id)
                    .collect();
                assert!(
                    ids.iter().all(|&id| !is_in_other_buffer(id) || read_ids.contains(&id)),
                    "{} damages other buffers",
                    position()
                );
            }
        }
    }
}

#[test]
fn flipped_bit_of_the_header_buffer_is_an_error_or_tolerated() {
    let original = small_file(false);
    let mut rejected = 0;
    for byte in 0..HEADER_SIZE + 0x180 {
        for bit in 0..8 {
            let mut damaged = original.clone();
            damaged[byte] ^= 1 << bit;
            match read_check_and_repair(&damaged) {
                Ok(outcome) => {
                    // Bytes of the buffer's size and offset, of its event's size and type, and of
                    // the session's buffer size and version.
                    let affects_layout =
                        [0..4, 0x30..0x34, 0x48..0x50, 0x68..0x70].iter().any(|r| r.contains(&byte));
                    assert!(
                        affects_layout || outcome.events == 25,
                        "bit {bit} of byte {byte:#x}: {}",
                        outcome.events
                    );
                }
                Err(error) => {
                    assert!((0x48..0x50).contains(&byte), "bit {bit} of byte {byte:#x}: {error}");
                    assert!(offset_of(&error) < original.len() as u64);
                    rejected += 1;
                }
            }
        }
    }
    assert!(rejected > 8, "only {rejected} files were rejected");
}

#[test]
fn flipped_bit_in_a_compressed_file_keeps_earlier_buffers() {
    let original = small_file(true);
    let starts = buffer_headers(&original);
    for byte in 0..original.len() {
        // Data buffers before the one that contains the byte.
        let before =
            starts.iter().filter(|(at, _)| *at > 0 && *at + HEADER_SIZE <= byte).count().saturating_sub(1);
        for bit in 0..8 {
            let mut damaged = original.clone();
            damaged[byte] ^= 1 << bit;
            let (outcome, peak) = measure_peak(|| read_check_and_repair(&damaged));
            assert!(peak < 36 * MIB, "bit {bit} of byte {byte:#x} takes {peak} bytes");
            match outcome {
                Ok(outcome) if byte >= starts[1].0 => {
                    assert!(outcome.events > 2 * before as u64, "byte {byte:#x}")
                }
                Ok(_) => {}
                Err(error) => assert!(byte < starts[1].0, "bit {bit} of byte {byte:#x}: {error}"),
            }
        }
    }
}

#[test]
fn record_with_impossible_size_ends_its_buffer() {
    // Known and unknown markers, with a size of 0 and with a size smaller than any header.
    for kind in 0..=255_u8 {
        for high in [0x00, 0x90, 0xB0, 0xC0, 0xFF] {
            for size in [0_u8, 7] {
                let record = vec![size, 0, kind, high, size, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                let bytes = build_file(
                    options(),
                    &[(0, vec![record, encode_event(ANCHOR, 1, 8)]), (0, vec![encode_event(ANCHOR, 2, 8)])],
                );
                let outcome = read_check_and_repair(&bytes).unwrap();
                let position = 1024 + HEADER_SIZE as u64;
                assert_eq!(outcome.events, 2, "{kind:#x} {high:#x}");
                assert_eq!(
                    outcome.defects.iter().map(offset_of).collect::<Vec<_>>(),
                    [position],
                    "{kind:#x} {high:#x}"
                );
            }
        }
    }
}

#[test]
fn offsets_past_the_end_are_not_followed() {
    for compressed in [false, true] {
        for value in [0, 1, 0x47, 0x48, 0x1000, 0x7FFF_FFFF, 0x8000_0000, u32::MAX] {
            let mut damaged = small_file(compressed);
            for (at, _) in buffer_headers(&small_file(compressed)) {
                // SavedOffset, CurrentOffset and Offset of a buffer header.
                for field in [0x04, 0x08, 0x30] {
                    overwrite(&mut damaged, at + field, &value.to_le_bytes());
                }
            }
            let (outcome, peak) = measure_peak(|| read_check_and_repair(&damaged).unwrap());
            assert!(outcome.events <= 25);
            assert!(peak < MIB, "{value:#x}: {peak}");
            // 0x48 is valid and means an empty buffer. With any other value, the reader goes on to
            // the filler.
            if !compressed && value != 0x48 {
                assert_eq!(outcome.events, 25, "{value:#x}: filler does not end the walk");
            }
        }
    }
}

#[test]
fn file_truncated_while_reading_is_reported() {
    use std::cell::RefCell;
    use traceweir_format::etl::ReadAt;

    struct ChangingFile(RefCell<Vec<u8>>);
    impl ReadAt for ChangingFile {
        fn len(&self) -> u64 {
            self.0.borrow().len() as u64
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> traceweir_format::Result<usize> {
            self.0.borrow().read_at(offset, buf)
        }
    }

    let bytes = bombs::file_of_bombs(256 << 10);
    let source = ChangingFile(RefCell::new(bytes.clone()));
    let trace = Trace::open(&source).unwrap();
    let mut events = trace.events();
    // The header event and the first event of each buffer. 512 events remain.
    for _ in 0..2049 {
        assert!(events.next().unwrap().is_some());
    }
    source.0.borrow_mut().truncate(1024);
    let mut remaining_events = 0;
    while events.next().unwrap().is_some() {
        remaining_events += 1;
    }
    assert!(remaining_events < 512, "buffers that are not in memory were read");
    assert!(events.damage().count > 0);
}
