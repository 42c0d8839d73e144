//! Files mutated at random: every file that `repair` writes is sound, and its counts match the
//! readable events.

use std::collections::BTreeMap;

use super::*;
use traceweir_format::etl::check;

const MUTATED_FILES: usize = 5_000;

/// A small random generator that gives the same mutations in each run.
struct RandomGenerator(u64);

impl RandomGenerator {
    fn number_below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    /// Returns a range of up to `max_bytes` bytes of a file.
    fn byte_range(&mut self, length: usize, max_bytes: usize) -> std::ops::Range<usize> {
        let start = self.number_below(length);
        start..(start + 1 + self.number_below(max_bytes)).min(length)
    }

    /// Returns an offset in the header buffer, in the header or first record of a buffer, or
    /// anywhere in the file.
    fn field_offset(&mut self, file: &[u8]) -> usize {
        let offset = match self.number_below(3) {
            0 => self.number_below(0x1A0),
            1 => self.number_below(file.len() / 1024 + 1) * 1024 + self.number_below(0xA0),
            _ => self.number_below(file.len()),
        };
        offset.min(file.len() - 1)
    }

    fn mutate(&mut self, file: &mut Vec<u8>) {
        match self.number_below(9) {
            0 => {
                let at = self.field_offset(file);
                file[at] ^= 1 << self.number_below(8);
            }
            1 => {
                let at = self.field_offset(file);
                file[at] = self.number_below(256) as u8;
            }
            2 => {
                let range = self.byte_range(file.len(), 3000);
                file[range].fill(0);
            }
            3 => {
                let range = self.byte_range(file.len(), 600);
                for at in range {
                    file[at] = self.number_below(256) as u8;
                }
            }
            4 => file.truncate(1 + self.number_below(file.len())),
            5 => {
                let range = self.byte_range(file.len(), 2000);
                let (at, piece) = (self.number_below(file.len()), file[range].to_vec());
                file.splice(at..at, piece);
            }
            6 => drop(file.drain(self.byte_range(file.len(), 2000))),
            7 => {
                let at = self.field_offset(file) & !3;
                // Among them the sizes of a buffer header (0x48), an event header (0x50) and a
                // buffer.
                let value = [0, 1, 0x47, 0x48, 0x50, 1024, 4096, 0x7FFF_FFFF, u32::MAX][self.number_below(9)];
                if at + 4 <= file.len() {
                    overwrite(file, at, &u32::to_le_bytes(value));
                }
            }
            _ => {
                let (from, to) = (self.byte_range(file.len(), 1024), self.number_below(file.len()));
                let piece = file[from].to_vec();
                let end = (to + piece.len()).min(file.len());
                file[to..end].copy_from_slice(&piece[..end - to]);
            }
        }
    }
}

/// Returns traces of every kind, finalised and unfinalised.
fn original_files() -> Vec<Vec<u8>> {
    let mut files = vec![
        small_file(false),
        small_file(true),
        modes::circular_file(),
        modes::wrap_file(&modes::circular_file(), 4),
    ];
    files.push(old_layouts::windows_xp_file());
    let mut unfinalised = files.clone();
    unfinalised.iter_mut().for_each(|file| undo_finalising(file));
    files.extend(unfinalised);
    files
}

/// Repairs a file and returns all faults of the result.
fn find_faults(mutated: &[u8]) -> Vec<String> {
    let Ok(trace) = Trace::open(mutated) else { return Vec::new() };
    let mut sink = Vec::new();
    let report = match repair(&trace, &mut sink) {
        Ok(report) => report,
        Err(error) => return vec![format!("not repaired: {error}")],
    };
    let mut faults = Vec::new();
    let mut compare_counts = |what: &str, actual: u64, expected: u64| {
        if actual != expected {
            faults.push(format!("{what}: {actual} instead of {expected}"));
        }
    };
    let repaired = match Trace::open(sink.as_slice()) {
        Ok(repaired) => repaired,
        Err(error) => return vec![format!("cannot be opened: {error}")],
    };
    let mut events = repaired.events();
    let mut read = 0;
    while events.next().unwrap().is_some() {
        read += 1;
    }
    compare_counts("damage", events.damage().count, 0);
    compare_counts("events", report.events, read);
    let mut readable_before = 0;
    let mut events = trace.events();
    while events.next().unwrap().is_some() {
        readable_before += 1;
    }
    // Repair keeps the log-file header event even if its buffer ends before it.
    compare_counts(
        "events kept",
        read,
        if read == readable_before + 1 && report.salvaged > 0 { read } else { readable_before },
    );
    compare_counts("buffers", u64::from(report.buffers), repaired.buffers().len() as u64);
    compare_counts("bytes", report.bytes, sink.len() as u64);
    let header = repaired.header();
    compare_counts("BuffersWritten", header.buffers_written.into(), repaired.buffers().len() as u64);
    let loss_counts =
        |header: &LogFileHeader| (u64::from(header.events_lost), u64::from(header.buffers_lost));
    compare_counts("EventsLost", loss_counts(header).0, loss_counts(trace.header()).0);
    compare_counts("BuffersLost", loss_counts(header).1, loss_counts(trace.header()).1);
    // An event that ends with the fixed fields cannot hold terminated names.
    let first = Record::parse(&sink[HEADER_SIZE..], 0).unwrap();
    let fixed_bytes = if first.pointer_size() == 8 { 0x118 } else { 0x110 };
    let has_names = first.payload().len() >= fixed_bytes + 4;
    let mut findings = Vec::new();
    let checked_events = check(&repaired, &mut |finding| {
        // Repair changes neither the content of records nor the mode.
        let is_expected = finding.rule == Rule::ExtendedItems
            || finding.detail.contains("does not announce")
            || finding.rule == Rule::LogFileHeader && !has_names;
        if !finding.rule.is_remark() && !is_expected {
            findings.push(format!("{}: {}", finding.rule, finding.detail));
        }
    });
    compare_counts("checked events", checked_events.unwrap(), read);
    faults.extend(findings);
    faults
}

#[test]
fn repaired_files_are_sound_and_their_counts_match_the_readable_events() {
    let originals = original_files();
    let mut random = RandomGenerator(0x9E37_79B9_7F4A_7C15);
    let mut faults_by_kind: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for run in 0..MUTATED_FILES {
        let original = random.number_below(originals.len());
        let mut file = originals[original].clone();
        for _ in 0..=random.number_below(3) {
            random.mutate(&mut file);
            if file.is_empty() {
                break;
            }
        }
        for fault in find_faults(&file) {
            let kind = fault.split(':').next().unwrap_or_default().to_owned();
            faults_by_kind
                .entry(kind)
                .or_insert((0, format!("run {run} of original {original}: {fault}")))
                .0 += 1;
        }
    }
    assert!(faults_by_kind.is_empty(), "{faults_by_kind:#?}");
}
