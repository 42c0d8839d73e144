//! Sorts records by time with bounded memory.
//!
//! ```text
//!   records of one round, out of order ──add──▶ ┌ in memory ─┐
//!   end of the round ──▶ nothing older than the last round's newest record can follow:
//!                        those records leave in order
//!   too much in memory ──▶ sorted run in a temporary file ──▶ all runs are merged at the end
//!                          many short runs become one long run
//! ```
//!
//! S1  Records of the same time leave in the order in which they came.
//! S2  At most `max_bytes` of records are in memory, and one buffer for each run. A long run replaces
//!     [`MAX_SHORT_RUNS`] short ones, so there are few runs.
//! S3  Once a run exists, records leave only at the end, so that each record is written at most twice.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use anyhow::{Context, Result};

/// The estimated memory of a record besides its bytes.
const ENTRY_BYTES: usize = 96;
/// The most runs that hold what was in memory at one time.
const MAX_SHORT_RUNS: usize = 64;
/// The buffer of a run, in bytes.
const RUN_BUFFER_BYTES: usize = 128 << 10;

/// When and in which order a record came.
type SortKey = (u64, u64);

#[derive(Debug)]
struct Pending {
    key: SortKey,
    bytes: Box<[u8]>,
}

/// Sorts records.
#[derive(Debug)]
pub(super) struct RecordSorter {
    pending: Vec<Pending>,
    /// Estimated memory of `pending`.
    bytes: usize,
    max_bytes: usize,
    count: u64,
    /// The newest time of this round and of the round before.
    newest: u64,
    newest_of_last_round: u64,
    short_runs: Vec<File>,
    long_runs: Vec<File>,
}

impl RecordSorter {
    /// Creates a sorter that holds at most `max_bytes` in memory.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            pending: Vec::new(),
            bytes: 0,
            max_bytes,
            count: 0,
            newest: 0,
            newest_of_last_round: 0,
            short_runs: Vec::new(),
            long_runs: Vec::new(),
        }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, time: u64, bytes: &[u8]) -> Result<()> {
        self.newest = self.newest.max(time);
        self.bytes = self.bytes.saturating_add(bytes.len()).saturating_add(ENTRY_BYTES);
        self.pending.push(Pending { key: (time, self.count), bytes: bytes.into() });
        self.count = self.count.wrapping_add(1);
        if self.bytes > self.max_bytes {
            self.write_run().context("cannot sort in a temporary file")?;
        }
        Ok(())
    }

    fn has_runs(&self) -> bool {
        !self.short_runs.is_empty() || !self.long_runs.is_empty()
    }

    /// Ends a round, and passes the records that nothing can precede any more.
    pub(super) fn end_round(&mut self, mut emit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let limit = std::mem::replace(&mut self.newest_of_last_round, self.newest);
        if self.has_runs() {
            return Ok(());
        }
        self.pending.sort_unstable_by_key(|pending| pending.key);
        let due = self.pending.partition_point(|pending| pending.key.0 <= limit);
        for Pending { bytes, .. } in self.pending.drain(..due) {
            self.bytes = self.bytes.saturating_sub(bytes.len()).saturating_sub(ENTRY_BYTES);
            emit(&bytes)?;
        }
        Ok(())
    }

    /// Passes all records that are left.
    pub(super) fn finish(mut self, mut emit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.pending.sort_unstable_by_key(|pending| pending.key);
        if !self.has_runs() {
            return self.pending.iter().try_for_each(|pending| emit(&pending.bytes));
        }
        self.write_run().context("cannot sort in a temporary file")?;
        self.pending = Vec::new();
        let runs = self.long_runs.into_iter().chain(self.short_runs);
        merge_runs(runs, |_, bytes| emit(bytes)).context("cannot sort in a temporary file")
    }

    /// Writes the records in memory to a temporary file.
    fn write_run(&mut self) -> Result<()> {
        self.pending.sort_unstable_by_key(|pending| pending.key);
        let mut writer = RunWriter::create()?;
        self.pending.drain(..).try_for_each(|pending| writer.add(pending.key, &pending.bytes))?;
        self.bytes = 0;
        self.short_runs.push(writer.finish()?);
        if self.short_runs.len() >= MAX_SHORT_RUNS {
            let mut writer = RunWriter::create()?;
            merge_runs(self.short_runs.drain(..), |key, bytes| writer.add(key, bytes))?;
            self.long_runs.push(writer.finish()?);
        }
        Ok(())
    }
}

/// A run that is written.
struct RunWriter(BufWriter<File>);

impl RunWriter {
    fn create() -> Result<Self> {
        Ok(Self(BufWriter::with_capacity(RUN_BUFFER_BYTES, tempfile::tempfile()?)))
    }

    fn add(&mut self, (time, number): SortKey, bytes: &[u8]) -> Result<()> {
        self.0.write_all(&time.to_le_bytes())?;
        self.0.write_all(&number.to_le_bytes())?;
        self.0.write_all(&u32::try_from(bytes.len())?.to_le_bytes())?;
        Ok(self.0.write_all(bytes)?)
    }

    /// Returns the file, at its start.
    fn finish(self) -> Result<File> {
        let mut file = self.0.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }
}

/// A run that is read.
struct RunReader {
    file: BufReader<File>,
    bytes: Vec<u8>,
}

impl RunReader {
    /// Reads the next record; `None` at the end of the run.
    fn advance(&mut self) -> Result<Option<SortKey>> {
        let (mut time, mut number, mut length) = ([0; 8], [0; 8], [0; 4]);
        if self.file.read(&mut time[..1])? == 0 {
            return Ok(None);
        }
        self.file.read_exact(&mut time[1..])?;
        self.file.read_exact(&mut number)?;
        self.file.read_exact(&mut length)?;
        self.bytes.resize(usize::try_from(u32::from_le_bytes(length))?, 0);
        self.file.read_exact(&mut self.bytes)?;
        Ok(Some((u64::from_le_bytes(time), u64::from_le_bytes(number))))
    }
}

fn merge_runs(
    runs: impl Iterator<Item = File>,
    mut emit: impl FnMut(SortKey, &[u8]) -> Result<()>,
) -> Result<()> {
    let to_reader =
        |file| RunReader { file: BufReader::with_capacity(RUN_BUFFER_BYTES, file), bytes: Vec::new() };
    let mut readers: Vec<RunReader> = runs.map(to_reader).collect();
    let mut heads = BinaryHeap::new();
    for (index, reader) in readers.iter_mut().enumerate() {
        heads.extend(reader.advance()?.map(|key| Reverse((key, index))));
    }
    while let Some(Reverse((key, index))) = heads.pop() {
        let Some(reader) = readers.get_mut(index) else { break };
        emit(key, &reader.bytes)?;
        heads.extend(reader.advance()?.map(|key| Reverse((key, index))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sorts records, whose bytes are their time and number, with rounds at the given positions.
    fn sort(times: &[u64], rounds: &[usize], max_bytes: usize) -> Vec<(u64, usize)> {
        let mut sorter = RecordSorter::new(max_bytes);
        let mut sorted = Vec::new();
        let mut emit = |bytes: &[u8]| {
            let (time, number) = bytes.split_at(8);
            let number = u64::from_le_bytes(number.try_into().unwrap());
            sorted.push((u64::from_le_bytes(time.try_into().unwrap()), usize::try_from(number).unwrap()));
            Ok(())
        };
        for (number, time) in times.iter().enumerate() {
            if rounds.contains(&number) {
                sorter.end_round(&mut emit).unwrap();
            }
            let bytes: Vec<u8> =
                time.to_le_bytes().into_iter().chain((number as u64).to_le_bytes()).collect();
            sorter.add(*time, &bytes).unwrap();
        }
        sorter.finish(&mut emit).unwrap();
        sorted
    }

    fn expected(times: &[u64]) -> Vec<(u64, usize)> {
        let mut expected: Vec<(u64, usize)> = times.iter().copied().zip(0..).collect();
        expected.sort();
        expected
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn runs_in_files_give_the_order_of_a_stable_sort(
            times in proptest::collection::vec(0_u64..20, 0..3 * MAX_SHORT_RUNS),
            max_bytes in prop_oneof![Just(0), 0_usize..2000],
        ) {
            prop_assert_eq!(sort(&times, &[], max_bytes), expected(&times));
        }

        #[test]
        fn rounds_give_the_order_of_a_stable_sort(
            jitter in proptest::collection::vec(0_u64..10, 0..80),
            rounds in proptest::collection::vec(0_usize..80, 0..8),
            max_bytes in prop_oneof![Just(usize::MAX), 0_usize..2000],
        ) {
            // A record is at most ten units late, and a round has at least that many records.
            let times: Vec<u64> = jitter.iter().zip(0..).map(|(late, at): (_, u64)| at.saturating_sub(*late)).collect();
            let mut rounds = rounds;
            rounds.sort_unstable();
            rounds.dedup_by(|next, last| *next < *last + 10);
            prop_assert_eq!(sort(&times, &rounds, max_bytes), expected(&times));
        }
    }
}
