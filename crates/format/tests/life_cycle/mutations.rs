//! Files mutated at random: every file that `repair` writes is sound, and its counts match the
//! readable events.

use std::collections::BTreeMap;

use super::*;
use traceweir_format::etl::check;

const RUNS: usize = 5_000;

/// A small random generator that gives the same mutations in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    /// Returns a range of up to `most` bytes of a file.
    fn range(&mut self, length: usize, most: usize) -> std::ops::Range<usize> {
        let start = self.below(length);
        start..(start + 1 + self.below(most)).min(length)
    }

    /// Returns the offset of a field of a header or a record.
    fn field(&mut self, file: &[u8]) -> usize {
        let place = match self.below(3) {
            0 => self.below(0x1A0),
            1 => self.below(file.len() / 1024 + 1) * 1024 + self.below(0xA0),
            _ => self.below(file.len()),
        };
        place.min(file.len() - 1)
    }

    fn mutate(&mut self, file: &mut Vec<u8>) {
        match self.below(9) {
            0 => {
                let at = self.field(file);
                file[at] ^= 1 << self.below(8);
            }
            1 => {
                let at = self.field(file);
                file[at] = self.below(256) as u8;
            }
            2 => {
                let range = self.range(file.len(), 3000);
                file[range].fill(0);
            }
            3 => {
                let range = self.range(file.len(), 600);
                for at in range {
                    file[at] = self.below(256) as u8;
                }
            }
            4 => file.truncate(1 + self.below(file.len())),
            5 => {
                let range = self.range(file.len(), 2000);
                let (at, piece) = (self.below(file.len()), file[range].to_vec());
                file.splice(at..at, piece);
            }
            6 => drop(file.drain(self.range(file.len(), 2000))),
            7 => {
                let at = self.field(file) & !3;
                let value = [0, 1, 0x47, 0x48, 0x50, 1024, 4096, 0x7FFF_FFFF, u32::MAX][self.below(9)];
                if at + 4 <= file.len() {
                    put(file, at, &u32::to_le_bytes(value));
                }
            }
            _ => {
                let (from, to) = (self.range(file.len(), 1024), self.below(file.len()));
                let piece = file[from].to_vec();
                let end = (to + piece.len()).min(file.len());
                file[to..end].copy_from_slice(&piece[..end - to]);
            }
        }
    }
}

/// Returns traces of every kind.
fn originals() -> Vec<Vec<u8>> {
    let mut all = vec![small(false), small(true), modes::circular(), modes::wrapped(&modes::circular(), 4)];
    all.push(old_layouts::xp());
    let mut more = all.clone();
    more.iter_mut().for_each(|file| crash(file));
    all.extend(more);
    all
}

/// Returns all faults of a repaired file.
fn faults(mutated: &[u8]) -> Vec<String> {
    let Ok(trace) = Trace::open(mutated) else { return Vec::new() };
    let mut sink = Vec::new();
    let done = match repair(&trace, &mut sink) {
        Ok(done) => done,
        Err(error) => return vec![format!("not repaired: {error}")],
    };
    let mut faults = Vec::new();
    let mut compare = |what: &str, is: u64, should_be: u64| {
        if is != should_be {
            faults.push(format!("{what}: {is} instead of {should_be}"));
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
    compare("damage", events.damage().count, 0);
    compare("events", done.events, read);
    let mut before = 0;
    let mut events = trace.events();
    while events.next().unwrap().is_some() {
        before += 1;
    }
    // The log-file header event counts even where its buffer ends before it.
    compare("events kept", read, if read == before + 1 && done.salvaged > 0 { read } else { before });
    compare("buffers", u64::from(done.buffers), repaired.buffers().len() as u64);
    compare("bytes", done.bytes, sink.len() as u64);
    let header = repaired.header();
    compare("BuffersWritten", header.buffers_written.into(), repaired.buffers().len() as u64);
    let lost = |trace: &LogFileHeader| (u64::from(trace.events_lost), u64::from(trace.buffers_lost));
    compare("EventsLost", lost(header).0, lost(trace.header()).0);
    compare("BuffersLost", lost(header).1, lost(trace.header()).1);
    // An event that ends with the fixed fields has no room for terminated names.
    let first = Record::parse(&sink[HEADER_SIZE..], 0).unwrap();
    let fixed = if first.pointer_size() == 8 { 0x118 } else { 0x110 };
    let has_names = first.payload().len() >= fixed + 4;
    let mut found = Vec::new();
    let counted = check(&repaired, &mut |finding| {
        // Repair changes neither the content of records nor the mode.
        let stays = finding.rule == Rule::ExtendedItems
            || finding.detail.contains("does not announce")
            || finding.rule == Rule::LogFileHeader && !has_names;
        if !finding.rule.is_remark() && !stays {
            found.push(format!("{}: {}", finding.rule, finding.detail));
        }
    });
    compare("checked events", counted.unwrap(), read);
    faults.extend(found);
    faults
}

#[test]
fn repaired_files_are_sound_and_their_counts_match_the_readable_events() {
    let originals = originals();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut kinds: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for run in 0..RUNS {
        let which = random.below(originals.len());
        let mut file = originals[which].clone();
        for _ in 0..=random.below(3) {
            random.mutate(&mut file);
            if file.is_empty() {
                break;
            }
        }
        for fault in faults(&file) {
            let kind = fault.split(':').next().unwrap_or_default().to_owned();
            kinds.entry(kind).or_insert((0, format!("run {run} of original {which}: {fault}"))).0 += 1;
        }
    }
    assert!(kinds.is_empty(), "{kinds:#?}");
}
