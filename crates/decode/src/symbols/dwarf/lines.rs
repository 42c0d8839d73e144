//! Reads the line table of a unit.
//!
//! ```text
//!   row       address, file, line: valid up to the next row
//!   sequence  rows with ascending addresses, and the end of the last one
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{AttributeValue, LineProgramHeader, Range};

use super::super::budget::WorkBudget;
use super::{Info, Slice, Unit, is_code, read_text};

/// The most rows of a unit.
const MAX_ROWS: usize = 8 << 20;
/// The most source files of a unit.
const MAX_FILES: usize = 1 << 15;
/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// The most bytes of all paths of a unit together.
const MAX_TOTAL_PATH_BYTES: usize = 8 << 20;

#[derive(Debug)]
struct LineRow {
    address: u64,
    file: u32,
    line: u32,
}

#[derive(Debug)]
struct LineSequence {
    begin: u64,
    end: u64,
    /// The rows of the sequence in [`LineTable::rows`].
    rows: std::ops::Range<usize>,
}

#[derive(Debug, Default)]
pub(super) struct LineTable {
    rows: Vec<LineRow>,
    /// Sequences sorted by start address.
    sequences: Vec<LineSequence>,
    files: HashMap<u64, Arc<str>>,
    path_bytes: usize,
}

impl LineTable {
    pub(super) fn read<'a>(info: &Info<'a>, unit: &Unit<'a>, budget: &mut WorkBudget) -> Self {
        let mut lines = Self::default();
        // An error ends the reading; the rows read so far are kept.
        let _ = lines.read_rows(info, unit, budget);
        lines.sequences.sort_by_key(|sequence| sequence.begin);
        lines.rows.shrink_to_fit();
        lines
    }

    fn read_rows<'a>(&mut self, info: &Info<'a>, unit: &Unit<'a>, budget: &mut WorkBudget) -> Option<()> {
        let program = unit.line_program.clone()?;
        self.add_files(info, unit, program.header(), budget)?;
        let mut rows = program.rows();
        let mut first = 0;
        while let Some((_, row)) = rows.next_row().ok()? {
            budget.spend(1)?;
            if row.end_sequence() {
                self.end_sequence(first, row.address());
                first = self.rows.len();
            } else if self.rows.len() < MAX_ROWS {
                let file = u32::try_from(row.file_index()).unwrap_or(u32::MAX);
                let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
                self.rows.push(LineRow { address: row.address(), file, line });
            }
        }
        Some(())
    }

    /// Adds the sequence of the rows from `first` on, which ends at address `end`. Drops the
    /// sequence if it has no code.
    fn end_sequence(&mut self, first: usize, end: u64) {
        let after = self.rows.len();
        let Some(rows) = self.rows.get_mut(first..) else { return };
        if !rows.is_sorted_by_key(|row| row.address) {
            rows.sort_by_key(|row| row.address);
        }
        let begin = rows.first().map_or(0, |row| row.address);
        if is_code(&Range { begin, end }) {
            self.sequences.push(LineSequence { begin, end, rows: first..after });
        }
    }

    fn add_files<'a>(
        &mut self,
        info: &Info<'a>,
        unit: &Unit<'a>,
        header: &LineProgramHeader<Slice<'a>>,
        budget: &mut WorkBudget,
    ) -> Option<()> {
        let count = u64::try_from(header.file_names().len().min(MAX_FILES)).ok()?;
        // File numbers begin at 0 in DWARF 5, and at 1 in earlier versions.
        for number in 0..=count {
            budget.spend(1)?;
            let Some(file) = header.file(number) else { continue };
            let read_path = |value: AttributeValue<Slice<'a>>| read_text(info, unit, value, MAX_PATH_BYTES);
            let folder = file.directory(header).and_then(read_path);
            let Some(name) = read_path(file.path_name()) else { continue };
            let parts = [unit.comp_dir, folder, Some(name)];
            let path = join_path(parts.into_iter().flatten());
            self.path_bytes = self.path_bytes.saturating_add(path.len());
            if self.path_bytes > MAX_TOTAL_PATH_BYTES {
                return Some(());
            }
            self.files.insert(number, path.into());
        }
        Some(())
    }

    /// Returns source file and line at an address.
    pub(super) fn find(&self, address: u64) -> (Option<Arc<str>>, Option<u32>) {
        let find_row = || {
            let after = self.sequences.partition_point(|sequence| sequence.begin <= address);
            let sequence =
                self.sequences.get(after.checked_sub(1)?).filter(|sequence| address < sequence.end)?;
            let rows = self.rows.get(sequence.rows.clone())?;
            rows.get(rows.partition_point(|row| row.address <= address).checked_sub(1)?)
        };
        // Line 0 marks compiler-generated code without a line.
        find_row().map_or((None, None), |row| {
            (self.file(row.file.into()), Some(row.line).filter(|line| *line != 0))
        })
    }

    /// Returns a source file by its number.
    pub(super) fn file(&self, number: u64) -> Option<Arc<str>> {
        self.files.get(&number).cloned()
    }

    /// Returns the memory that the table takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let rows = self.rows.capacity().saturating_mul(size_of::<LineRow>());
        let sequences = self.sequences.capacity().saturating_mul(size_of::<LineSequence>());
        rows.saturating_add(sequences).saturating_add(self.path_bytes)
    }
}

/// Joins the parts of a path, beginning with the last absolute part. Returns an empty path if the
/// result is longer than [`MAX_PATH_BYTES`].
fn join_path<'a>(parts: impl Iterator<Item = Slice<'a>>) -> String {
    let mut path = String::new();
    for part in parts {
        let part = part.get(..part.len().min(MAX_PATH_BYTES)).unwrap_or_default();
        let part = String::from_utf8_lossy(part);
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(&part);
    }
    if path.len() > MAX_PATH_BYTES { String::new() } else { path }
}
