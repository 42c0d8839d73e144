//! Files with damaged buffers: the reader returns all other buffers and reports each hole with its
//! offset and size.

use std::cell::Cell;
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use traceweir_format::Error;
use traceweir_format::etl::ReadAt;
use traceweir_format::spec::session::{BUFFER_FLAG_COMPRESSED, BUFFER_FLAG_PROC_INDEX};

use super::*;

/// Returns a file of `buffers` data buffers on three processors, with one to four events each.
fn numbered_file(buffers: usize, compressed: bool) -> Vec<u8> {
    let buffers: Vec<_> = (0..buffers)
        .map(|n| {
            let time = ANCHOR + 100 * n as i64;
            let events = (0..=n % 4).map(|k| encode_event(time + k as i64, 4 * n + k, 40 + n % 30));
            ((n % 3) as u16, events.collect())
        })
        .collect();
    build_file(Options { compressed, ..options() }, &buffers)
}

/// Returns the range of each buffer.
fn buffer_ranges(file: &[u8]) -> Vec<Range<usize>> {
    buffer_headers(file).into_iter().map(|(at, header)| at..at + header.buffer_size as usize).collect()
}

/// Computes the expected result: the records of the undamaged buffers, sorted by time, and the
/// damaged ranges, joined if they are adjacent. The offset of damage up to the end of the file is
/// returned separately.
fn expected_result(file: &[u8], damaged: &[bool]) -> (Vec<ReadEvent>, Vec<(u64, u64)>, Option<u64>) {
    let mut events = Vec::new();
    let mut holes: Vec<(u64, u64)> = Vec::new();
    for (range, damaged) in buffer_ranges(file).into_iter().zip(damaged) {
        if !damaged {
            let single_buffer = [&file[..buffer_ranges(file)[0].end], &file[range.clone()]].concat();
            events.extend(if range.start == 0 { Vec::new() } else { read_data_events(&single_buffer) });
            continue;
        }
        match holes.last_mut().filter(|(at, size)| at + size == range.start as u64) {
            Some((_, size)) => *size += range.len() as u64,
            None => holes.push((range.start as u64, range.len() as u64)),
        }
    }
    events.sort_by_key(|event| event.time);
    let tail = holes.pop_if(|(at, size)| *at + *size == file.len() as u64).map(|(at, _)| at);
    (events, holes, tail)
}

fn find_holes(file: &[u8]) -> Vec<(u64, u64)> {
    Trace::open(file).unwrap().holes().collect()
}

fn without_header_event(events: Vec<ReadEvent>) -> Vec<ReadEvent> {
    events.into_iter().filter(|event| !fake::is_log_file_header(&event.bytes)).collect()
}

/// Damages the chosen buffers and compares with the expected result.
fn assert_damage(intact: &[u8], damaged: &[bool], damage: impl Fn(&mut [u8])) {
    let mut damaged_file = intact.to_vec();
    for (range, _) in buffer_ranges(intact).into_iter().zip(damaged).filter(|(_, damaged)| **damaged) {
        damage(&mut damaged_file[range]);
    }
    let (events, mut holes, tail) = expected_result(intact, damaged);
    let (read, _) = read_damaged(&damaged_file);
    assert_eq!(without_header_event(read), events, "the events of undamaged buffers differ");
    let trace = Trace::open(damaged_file.as_slice()).unwrap();
    let reports_zeros = |defect: &Error| defect.to_string().contains("zeros to the end");
    let ends_with_zeros = trace.defects().iter().any(reports_zeros);
    if let Some(at) = tail.filter(|_| !ends_with_zeros) {
        holes.push((at, intact.len() as u64 - at));
    }
    assert!(!ends_with_zeros || tail.is_some(), "zeros reported in the middle: {:?}", trace.defects());
    assert_eq!(find_holes(&damaged_file), holes);
    assert_eq!(trace.defects().len(), holes.len() + usize::from(ends_with_zeros), "{:?}", trace.defects());
    let (repaired, report) = repair_file(&damaged_file);
    assert_eq!(check_file(&repaired), []);
    assert_eq!(read_data_events(&repaired), events);
    assert_eq!(report.events, 1 + events.len() as u64);
}

#[test]
fn adjacent_damaged_buffers_do_not_end_the_reading() {
    for compressed in [false, true] {
        let intact = numbered_file(48, compressed);
        for first in [1, 2, 20, 46] {
            // The header buffer and 48 data buffers.
            let damaged: Vec<_> = (0..49).map(|n| n == first || n == first + 1).collect();
            assert_damage(&intact, &damaged, |buffer| buffer.fill(0));
            assert_damage(&intact, &damaged, |buffer| buffer.fill(0x77));
        }
    }
}

#[test]
fn check_reports_each_hole_with_its_offset() {
    let mut file = numbered_file(20, false);
    file[3 * 1024..6 * 1024].fill(0);
    file[9 * 1024..10 * 1024].fill(b'x');
    let expected =
        [(Rule::BuffersWritten, 0x8C), (Rule::BufferSequence, 3 * 1024), (Rule::BufferSequence, 9 * 1024)];
    assert_eq!(check_file(&file), expected);
    let details: Vec<_> = Trace::open(&file).unwrap().defects().iter().map(ToString::to_string).collect();
    assert_eq!(
        details,
        [
            "hole at offset 0xc00: 3072 bytes of zeros",
            "hole at offset 0x2400: 1024 bytes that hold no buffer"
        ]
    );
}

#[test]
fn several_headers_with_wrong_sizes_lose_no_event_of_a_plain_file() {
    let intact = numbered_file(20, false);
    for value in [0, 1, 0x47, 500, 1023, 1025, 0x4000, u32::MAX] {
        let mut damaged_file = intact.clone();
        for n in [1, 4, 5, 6, 12, 19, 20] {
            overwrite(&mut damaged_file, n * 1024, &u32::to_le_bytes(value));
        }
        assert_eq!(without_header_event(read_damaged(&damaged_file).0), read_data_events(&intact), "{value}");
        assert_eq!(
            (find_holes(&damaged_file), Trace::open(&damaged_file).unwrap().defects().len()),
            (vec![], 7),
            "{value}"
        );
    }
}

#[test]
fn one_header_with_a_wrong_size_loses_no_other_buffer_of_a_compressed_file() {
    let intact = numbered_file(20, true);
    for n in 1..=20 {
        let range = buffer_ranges(&intact)[n].clone();
        // None is the sum of the sizes of neighbours: such a size leads to a valid later buffer, and
        // the buffers between are lost.
        for value in [0, 1, 0x47, 0x48, 305, 1023, 1024, 4000, 0x4000, u32::MAX] {
            let mut damaged_file = intact.clone();
            overwrite(&mut damaged_file, range.start, &u32::to_le_bytes(value));
            let damaged: Vec<_> = (0..21).map(|k| k == n).collect();
            let read = without_header_event(read_damaged(&damaged_file).0);
            let others = expected_result(&intact, &damaged).0;
            assert!(others.iter().all(|event| read.contains(event)), "size {value} of buffer {n}");
            assert!(!check_file(&damaged_file).is_empty());
        }
    }
}

#[test]
fn displaced_buffers_of_a_plain_file_are_found() {
    let intact = numbered_file(20, false);
    let mut damaged_file = intact[..5 * 1024].to_vec();
    damaged_file.extend_from_slice(&[0x77; 1500]);
    damaged_file.extend_from_slice(&intact[7 * 1024..12 * 1024]);
    damaged_file.extend_from_slice(&[0x77; 100]);
    damaged_file.extend_from_slice(&intact[14 * 1024..]);
    let damaged: Vec<_> = (0..21).map(|n| [5, 6, 12, 13].contains(&n)).collect();
    assert_eq!(without_header_event(read_damaged(&damaged_file).0), expected_result(&intact, &damaged).0);
    assert_eq!(find_holes(&damaged_file), [(5 * 1024, 1500), (5 * 1024 + 1500 + 5 * 1024, 100)]);
}

#[test]
fn old_files_are_read_after_a_hole() {
    let mut file = old_layouts::windows_xp_file();
    let buffer = file[1024..2048].to_vec();
    let intact = read_events(&file).len();
    file.extend_from_slice(&[0; 3 * 1024]);
    file.extend_from_slice(&buffer);
    assert_eq!(read_damaged(&file).0.len(), intact + 1);
    assert_eq!(find_holes(&file), [(3 * 1024, 3 * 1024)]);
}

/// Bytes with a range of zeros that takes no memory. Counts the bytes that are read.
struct SparseSource {
    bytes: Vec<u8>,
    hole: Range<u64>,
    read_bytes: Cell<u64>,
}

impl SparseSource {
    fn new(bytes: Vec<u8>, at: u64, size: u64) -> Self {
        Self { bytes, hole: at..at + size, read_bytes: Cell::new(0) }
    }
}

impl ReadAt for SparseSource {
    fn len(&self) -> u64 {
        self.bytes.len() as u64 + (self.hole.end - self.hole.start)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> traceweir_format::Result<usize> {
        let mut copied = 0;
        for (at, to) in (offset..self.len()).zip(buf) {
            *to = match at {
                at if at < self.hole.start => self.bytes[at as usize],
                at if at < self.hole.end => 0,
                at => self.bytes[(at - self.hole.end + self.hole.start) as usize],
            };
            copied += 1;
        }
        self.read_bytes.set(self.read_bytes.get() + copied as u64);
        Ok(copied)
    }

    fn next_data(&self, offset: u64) -> u64 {
        if self.hole.contains(&offset) { self.hole.end } else { offset }
    }
}

#[test]
fn holes_of_sparse_files_are_skipped_without_reading_them() {
    for compressed in [false, true] {
        let intact = numbered_file(40, compressed);
        let at = buffer_ranges(&intact)[10].start as u64;
        let size = 1 << 40;
        let sparse = SparseSource::new(intact.clone(), at, size);
        let trace = Trace::open(&sparse).unwrap();
        assert_eq!(trace.holes().collect::<Vec<_>>(), [(at, size)]);
        let mut events = trace.events();
        let mut count = 0;
        while events.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, read_events(&intact).len());
        let read = sparse.read_bytes.get();
        assert!(read < 8 * intact.len() as u64 + (1 << 18), "{read} bytes read");
    }
}

#[test]
fn indexing_hostile_bytes_reads_a_linear_number_of_bytes() {
    let header_buffer = |compressed| numbered_file(0, compressed);
    let size = 512 << 10;
    let header = |buffer_size: u32, flags: u16| traceweir_format::buffer::BufferHeader {
        buffer_size,
        saved_offset: HEADER_SIZE as u32,
        offset: HEADER_SIZE as u32,
        state: traceweir_format::buffer::STATE_FLUSH,
        flags,
        ..Default::default()
    };
    // Adjacent headers that all claim to be large, headers among other bytes, bytes that contain
    // the state of a header, and bytes without headers.
    let tiles: Vec<Vec<u8>> = vec![
        header(1024, BUFFER_FLAG_PROC_INDEX).to_bytes().to_vec(),
        header(1024, BUFFER_FLAG_PROC_INDEX | BUFFER_FLAG_COMPRESSED).to_bytes().to_vec(),
        [&header(72, BUFFER_FLAG_PROC_INDEX).to_bytes()[..], &[0x77; 32]].concat(),
        [&header(72, BUFFER_FLAG_PROC_INDEX).to_bytes()[..], &[0x77; 1500]].concat(),
        [&header(900, BUFFER_FLAG_PROC_INDEX).to_bytes()[..], &[0x77; 3000]].concat(),
        [3, 0, 0, 0].to_vec(),
        [3, 0, 0, 0, 0x48, 0, 0, 0, 0, 0, 0, 0].to_vec(),
        vec![0],
        vec![0x77],
    ];
    for compressed in [false, true] {
        for tile in &tiles {
            let mut bytes = header_buffer(compressed);
            let end = bytes.len();
            while bytes.len() < end + size {
                bytes.extend_from_slice(tile);
            }
            let counted = SparseSource::new(bytes, 0, 0);
            let trace = Trace::open(&counted).unwrap();
            let read = counted.read_bytes.get();
            // A candidate costs its header and the bytes of its first record.
            assert!(read < 80 * size as u64, "{read} bytes read, tile of {} bytes", tile.len());
            drop(trace);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn damaged_buffers_are_holes_and_all_others_are_read(
        damaged in vec(any::<bool>(), 1..40),
        damages_every_third: bool,
        compressed: bool,
        fill in prop_oneof![Just(0_u8), Just(0xFF), Just(0x77), Just(b'x')],
    ) {
        let intact = numbered_file(damaged.len(), compressed);
        let mut chosen = vec![false];
        chosen.extend(damaged.iter().enumerate().map(|(n, d)| *d && (damages_every_third || n % 3 != 0)));
        assert_damage(&intact, &chosen, |buffer| buffer.fill(fill));
    }
}
