//! Hostile bytes: errors or a report with offsets, never a panic, an endless loop or unbounded
//! memory.
//!
//! A counting allocator counts the memory of each test's own thread, so "bounded" is a number here.

mod bombs;
#[path = "../fake/mod.rs"]
mod fake;
mod streams;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;

use fake::{ANCHOR, Seen, buffers, encode, event, file, findings, options, put, read, salvage, small};
use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::etl::{Options, Summary, Trace, Writer, check, repair};
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::spec::session::{BUFFER_FLAG_COMPRESSED, BUFFER_FLAG_PROC_INDEX};
use traceweir_format::wire::Put;
use traceweir_format::{Error, Record};

const MIB: usize = 1 << 20;

struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    LIVE.with(|live| {
        live.set(live.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call goes to the system allocator unchanged; counting touches thread-local numbers
// only, which need no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the result of `work` and the most memory that it used at one time.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let done = work();
    (done, (PEAK.with(Cell::get) - before) as usize)
}

/// The numbers of events, defects and damage; the records themselves are not kept.
#[derive(Debug, Default)]
struct Outcome {
    events: u64,
    defects: Vec<Error>,
    finished: bool,
}

/// Reads, checks and repairs any bytes.
fn survive(bytes: &[u8]) -> Result<Outcome, Error> {
    let trace = Trace::open(bytes)?;
    let mut out = Outcome { defects: trace.defects().to_vec(), ..Outcome::default() };
    let mut events = trace.events();
    while let Some(record) = events.next()? {
        out.events += 1;
        let _ = (
            record.payload(),
            record.descriptor(),
            record.provider(),
            record.items().count(),
            record.instance(),
        );
        assert!(out.events <= 64 * MIB as u64, "endless");
    }
    out.defects.extend(events.damage().defects.iter().cloned());
    let readable = check(&trace, &mut |_| ())?;
    assert_eq!(readable, out.events, "the check counts what the reader gives");
    let mut sink = Vec::new();
    repair(&trace, &mut sink)?;
    out.finished = trace.is_finalised();
    Ok(out)
}

fn offset_of(error: &Error) -> u64 {
    match error {
        Error::Truncated { offset, .. } | Error::Invalid { offset, .. } | Error::NotAnEtl { offset, .. } => {
            *offset
        }
        other => panic!("no offset: {other}"),
    }
}

fn id_of(seen: &Seen) -> usize {
    usize::from(Record::parse(&seen.bytes, 0).unwrap().descriptor().id)
}

fn append_packed(bytes: &mut Vec<u8>, cpu: u16, offset: u32, sequence: i64, stream: &[u8]) {
    let head = BufferHeader {
        buffer_size: (HEADER_SIZE + stream.len()) as u32,
        saved_offset: offset,
        offset,
        sequence_number: sequence,
        processor_index: cpu,
        logger_id: 7,
        state: 3,
        flags: BUFFER_FLAG_PROC_INDEX | BUFFER_FLAG_COMPRESSED,
        ..BufferHeader::default()
    };
    bytes.put(&head.to_bytes()).put(stream);
}

#[test]
fn truncated_file_gives_its_whole_records_and_reports_the_end() {
    for compressed in [false, true] {
        let whole = small(compressed);
        let all = read(&whole);
        let starts = buffers(&whole);
        let first_event = HEADER_SIZE + Record::parse(&whole[HEADER_SIZE..], 0).unwrap().bytes().len();
        for length in 0..whole.len() {
            let cut = &whole[..length];
            let (outcome, peak) = peak_of(|| survive(cut));
            assert!(peak < MIB, "{peak} bytes for a file of {length}");
            let Ok(outcome) = outcome else {
                assert!(length < first_event, "cut at {length}: {outcome:?}");
                assert!(offset_of(&outcome.unwrap_err()) <= length as u64);
                continue;
            };
            assert!(length >= first_event);
            let end_of = |&(at, head): &(usize, BufferHeader)| at + head.buffer_size as usize;
            let whole_buffers = starts.iter().filter(|b| end_of(b) <= length).count();
            let certain = if whole_buffers == 0 { 1 } else { 1 + 2 * (whole_buffers as u64 - 1) };
            assert!(
                (certain..=certain + 2).contains(&outcome.events),
                "cut at {length}: {} events",
                outcome.events
            );
            let at_a_boundary = starts.iter().any(|b| end_of(b) == length);
            assert_eq!(outcome.defects.is_empty(), at_a_boundary, "cut at {length}: {:?}", outcome.defects);
            // Inside a compressed buffer, offsets count unpacked bytes.
            let end = if compressed { length + 1024 } else { length };
            assert!(outcome.defects.iter().all(|d| offset_of(d) <= end as u64));
            assert!(!findings(cut).is_empty());
            assert!(salvage(cut).0.iter().all(|s| all.contains(s)));
        }
    }
}

#[test]
fn flipped_bit_damages_no_other_buffer_of_a_plain_file() {
    let whole = small(false);
    let ids: BTreeSet<usize> = (0..24).collect();
    for (buffer, (at, _)) in buffers(&whole).into_iter().enumerate().filter(|(n, _)| [1, 6, 12].contains(n)) {
        let records = [HEADER_SIZE, HEADER_SIZE + 120].map(|r| r..r + 0x50);
        for byte in (0..HEADER_SIZE).chain(records.into_iter().flatten()) {
            for bit in 0..8 {
                let mut bad = whole.clone();
                bad[at + byte] ^= 1 << bit;
                let place = || format!("bit {bit} of byte {byte:#x} of buffer {buffer}");
                let outcome = survive(&bad).unwrap_or_else(|e| panic!("{}: {e}", place()));
                assert!(outcome.events <= 25, "{}", place());
                let others = |id: usize| id / 2 + 1 != buffer;
                let there: BTreeSet<_> =
                    salvage(&bad).0.iter().filter(|s| s.cpu < 3 && s.bytes[2] == 19).map(id_of).collect();
                assert!(
                    ids.iter().all(|&id| !others(id) || there.contains(&id)),
                    "{} spoils others",
                    place()
                );
            }
        }
    }
}

#[test]
fn flipped_bit_of_the_header_buffer_is_an_error_or_tolerated() {
    let whole = small(false);
    let mut refused = 0;
    for byte in 0..HEADER_SIZE + 0x180 {
        for bit in 0..8 {
            let mut bad = whole.clone();
            bad[byte] ^= 1 << bit;
            match survive(&bad) {
                Ok(outcome) => {
                    // Size and end of the buffer, size and type of its event, and size and version
                    // of the session.
                    let decides =
                        [0..4, 0x30..0x34, 0x48..0x50, 0x68..0x70].iter().any(|r| r.contains(&byte));
                    assert!(
                        decides || outcome.events == 25,
                        "bit {bit} of byte {byte:#x}: {}",
                        outcome.events
                    );
                }
                Err(error) => {
                    assert!((0x48..0x50).contains(&byte), "bit {bit} of byte {byte:#x}: {error}");
                    assert!(offset_of(&error) < whole.len() as u64);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 8);
}

#[test]
fn a_flipped_bit_anywhere_in_a_compressed_file_is_survived() {
    let whole = small(true);
    let starts = buffers(&whole);
    for byte in 0..whole.len() {
        let before =
            starts.iter().filter(|(at, _)| *at > 0 && *at + HEADER_SIZE <= byte).count().saturating_sub(1);
        for bit in 0..8 {
            let mut bad = whole.clone();
            bad[byte] ^= 1 << bit;
            let (outcome, peak) = peak_of(|| survive(&bad));
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
fn records_of_no_length_end_their_buffer_at_once() {
    // The marker of each family with a size of zero, and one too small for its header.
    for kind in 0..=255_u8 {
        for high in [0x00, 0x90, 0xB0, 0xC0, 0xFF] {
            for size in [0_u8, 7] {
                let record = vec![size, 0, kind, high, size, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                let bytes = file(
                    options(),
                    &[(0, vec![record, event(ANCHOR, 1, 8)]), (0, vec![event(ANCHOR, 2, 8)])],
                );
                let outcome = survive(&bytes).unwrap();
                let place = 1024 + HEADER_SIZE as u64;
                assert_eq!(outcome.events, 2, "{kind:#x} {high:#x}");
                assert_eq!(
                    outcome.defects.iter().map(offset_of).collect::<Vec<_>>(),
                    [place],
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
            let mut bad = small(compressed);
            for (at, _) in buffers(&small(compressed)) {
                for field in [0x04, 0x08, 0x30] {
                    put(&mut bad, at + field, &value.to_le_bytes());
                }
            }
            let (outcome, peak) = peak_of(|| survive(&bad).unwrap());
            assert!(outcome.events <= 25);
            assert!(peak < MIB, "{value:#x}: {peak}");
            if !compressed && value != 0x48 {
                assert_eq!(outcome.events, 25, "{value:#x}: filler ends the walk");
            }
        }
    }
}

#[test]
fn a_file_that_changes_under_the_reader_is_reported() {
    use std::cell::RefCell;
    use traceweir_format::etl::ReadAt;

    struct Changing(RefCell<Vec<u8>>);
    impl ReadAt for Changing {
        fn len(&self) -> u64 {
            self.0.borrow().len() as u64
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> traceweir_format::Result<usize> {
            self.0.borrow().read_at(offset, buf)
        }
    }

    let bytes = bombs::bombs(256 << 10);
    let source = Changing(RefCell::new(bytes.clone()));
    let trace = Trace::open(&source).unwrap();
    let mut events = trace.events();
    for _ in 0..2049 {
        assert!(events.next().unwrap().is_some());
    }
    source.0.borrow_mut().truncate(1024);
    let mut more = 0;
    while events.next().unwrap().is_some() {
        more += 1;
    }
    assert!(more < 512, "what was in memory can still be given");
    assert!(events.damage().count > 0);
}
