//! The files of one thread.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;

use super::batch_writer::{BatchWriter, has_time_first};
use super::format::FileFormat;
use super::parts::{FileTarget, HiddenParts};
use super::{MAX_OPEN_COLUMNS, WriteJob, WriteTotals};

/// The most files that are open at the same time.
const MAX_OPEN_FILES: usize = 64;
/// The most memory of row groups that are not written yet.
const MAX_MEMORY_BYTES: usize = 96 << 20;
/// A file with this many bytes is closed, and a further part begun.
const MAX_FILE_BYTES: usize = 1 << 30;

/// Returns the times of a batch, if it has any rows and its first column is the time.
fn times(batch: &RecordBatch) -> Option<&[i64]> {
    if !has_time_first(&batch.schema()) {
        return None;
    }
    let times = batch.column(0).as_primitive_opt::<TimestampNanosecondType>()?;
    Some(times.values().as_ref()).filter(|times| !times.is_empty())
}

/// Returns a batch with its rows in the order of time; rows of the same time keep their order.
fn sort_by_time(batch: RecordBatch) -> Result<RecordBatch> {
    let Some(times) = times(&batch).filter(|times| !times.is_sorted()) else { return Ok(batch) };
    let mut order: Vec<(i64, u32)> = times.iter().copied().zip(0_u32..).collect();
    order.sort_unstable();
    let indices = UInt32Array::from_iter_values(order.into_iter().map(|(_, index)| index));
    Ok(take_record_batch(&batch, &indices)?)
}

/// A file that is being written.
struct OpenFile {
    writer: BatchWriter<BufWriter<File>>,
    /// The hidden name, for messages.
    path: PathBuf,
    schema: SchemaRef,
    last_time: i64,
    last_used: u64,
    memory: usize,
}

/// The files of one thread.
pub(super) struct FileSet {
    format: FileFormat,
    open: HashMap<Arc<str>, OpenFile>,
    parts: HiddenParts,
    clock: u64,
    max_files: usize,
    max_columns: usize,
    max_memory: usize,
    totals: WriteTotals,
}

impl FileSet {
    pub(super) fn new(target: FileTarget, threads: usize) -> Self {
        let share = |total: usize| (total / threads.max(1)).max(1);
        Self {
            format: target.format,
            open: HashMap::new(),
            parts: HiddenParts::new(target),
            clock: 0,
            max_files: share(MAX_OPEN_FILES),
            max_columns: share(MAX_OPEN_COLUMNS),
            max_memory: share(MAX_MEMORY_BYTES),
            totals: WriteTotals::default(),
        }
    }

    pub(super) fn write(&mut self, WriteJob { folder, batch }: WriteJob) -> Result<()> {
        let batch = sort_by_time(batch)?;
        self.clock = self.clock.saturating_add(1);
        if self.open.get(&folder).is_some_and(|file| file.schema != batch.schema()) {
            self.close(&folder)?;
        }
        if !self.open.contains_key(&folder) {
            self.make_room(batch.num_columns())?;
            let file = self.begin_part(&folder, &batch.schema())?;
            self.open.insert(Arc::clone(&folder), file);
        }
        let clock = self.clock;
        let file = self.open.get_mut(&folder).context("the file is open")?;
        file.last_used = clock;
        if let Some(times) = times(&batch) {
            if times.first().is_some_and(|first| *first < file.last_time) {
                file.writer.end_row_group()?;
            }
            file.last_time = times.last().copied().unwrap_or(i64::MIN);
        }
        file.writer.write(&batch).with_context(|| file.path.display().to_string())?;
        file.memory = file.writer.memory_bytes();
        self.totals.rows = self.totals.rows.saturating_add(batch.num_rows() as u64);
        if file.writer.written_bytes() > MAX_FILE_BYTES {
            self.close(&folder)?;
        }
        self.limit_memory()
    }

    /// Writes the largest row groups until the rest fits into memory.
    fn limit_memory(&mut self) -> Result<()> {
        while self.open.values().map(|file| file.memory).sum::<usize>() > self.max_memory {
            let Some(largest) = self.open.values_mut().max_by_key(|file| file.memory) else { break };
            largest.writer.end_row_group()?;
            // What remains are filters and the index of the file, until it is closed.
            let memory = largest.writer.memory_bytes();
            if memory >= largest.memory {
                let oldest = self.oldest();
                if let Some(folder) = oldest {
                    self.close(&folder)?;
                }
            } else {
                largest.memory = memory;
            }
        }
        Ok(())
    }

    fn oldest(&self) -> Option<Arc<str>> {
        self.open.iter().min_by_key(|(_, file)| file.last_used).map(|(folder, _)| Arc::clone(folder))
    }

    /// Closes files until another one with this many columns may be opened.
    fn make_room(&mut self, columns: usize) -> Result<()> {
        loop {
            let open_columns: usize = self.open.values().map(|file| file.schema.fields().len()).sum();
            let is_full =
                self.open.len() >= self.max_files || open_columns.saturating_add(columns) > self.max_columns;
            match self.oldest().filter(|_| is_full) {
                Some(folder) => self.close(&folder)?,
                None => return Ok(()),
            }
        }
    }

    fn begin_part(&mut self, folder: &Arc<str>, schema: &SchemaRef) -> Result<OpenFile> {
        let (path, file) = self.parts.begin(folder)?;
        let writer = BatchWriter::new(BufWriter::new(file), self.format, schema)?;
        let (schema, last_used) = (Arc::clone(schema), self.clock);
        Ok(OpenFile { writer, path, schema, last_time: i64::MIN, last_used, memory: 0 })
    }

    fn close(&mut self, folder: &Arc<str>) -> Result<()> {
        let Some(file) = self.open.remove(folder) else { return Ok(()) };
        let out = file.writer.finish().with_context(|| file.path.display().to_string())?;
        let out = out.into_inner().map_err(|error| error.into_error())?;
        self.totals.bytes = self.totals.bytes.saturating_add(out.metadata()?.len());
        self.totals.files = self.totals.files.saturating_add(1);
        Ok(())
    }

    /// Closes all files.
    pub(super) fn finish(mut self) -> Result<(WriteTotals, HiddenParts)> {
        let folders: Vec<Arc<str>> = self.open.keys().cloned().collect();
        for folder in folders {
            self.close(&folder)?;
        }
        Ok((self.totals, self.parts))
    }
}
