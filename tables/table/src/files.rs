//! Writes batches into the files of a dataset, on threads of their own.
//!
//! ```text
//!   jobs (folder, batch) ──by folder──▶ thread ──▶ FileSet ──▶ folder/part-ID-N.parquet
//!                                                    │ at most 64 open files; the least recently
//!                                                    └ used is closed, and a further part begun
//! ```
//!
//! F1  A file has its name only when it is complete; before, its name ends with `.tmp`.
//! F2  The rows of a row group are sorted by time. A batch that begins before the last one begins a
//!     row group.
//! F3  Row groups in memory take at most [`MAX_MEMORY_BYTES`] in all files; the largest is written
//!     first.
//! F4  A conversion replaces the parts with its own id that an earlier run left in a folder.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::{take, take_record_batch};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::names::hash_text;

/// The most files that are open at the same time.
const MAX_OPEN_FILES: usize = 64;
/// The most columns of all open files. Each has a compressor of its own, which takes up to 700 KiB.
const MAX_OPEN_COLUMNS: usize = 384;
/// The most memory of row groups that are not written yet.
const MAX_MEMORY_BYTES: usize = 96 << 20;
/// A row group with this many bytes is written.
const ROW_GROUP_BYTES: usize = 32 << 20;
/// The most rows of a row group.
const ROW_GROUP_ROWS: usize = 1 << 20;
/// A file with this many bytes is closed, and a further part begun.
const MAX_FILE_BYTES: usize = 1 << 30;
/// Batches that wait for a thread.
const QUEUED_JOBS: usize = 4;
/// The most threads that write.
const MAX_THREADS: usize = 4;

/// The format of the files of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Apache Parquet.
    Parquet,
    /// The file format of Arrow IPC, which is also Feather version 2.
    Arrow,
    /// The stream format of Arrow IPC; only for single files.
    ArrowStream,
}

impl FileFormat {
    /// Returns the extension of files.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::ArrowStream => "arrows",
        }
    }
}

/// A batch and the folder whose files it belongs to, relative to the dataset.
pub(crate) struct WriteJob {
    pub(crate) folder: Arc<str>,
    pub(crate) batch: RecordBatch,
}

/// What the threads wrote.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteTotals {
    /// Number of files.
    pub(crate) files: u64,
    /// Number of rows.
    pub(crate) rows: u64,
    /// Size of the files.
    pub(crate) bytes: u64,
}

/// Where the files of a dataset are, and how they are named.
#[derive(Clone, Debug)]
pub(crate) struct FileTarget {
    pub(crate) root: PathBuf,
    pub(crate) format: FileFormat,
    /// Distinguishes the parts of this conversion from those of others in the same folders.
    pub(crate) id: String,
}

/// The threads that write.
pub(crate) struct WriterPool {
    /// Whether all rows were sent. Otherwise the files are removed.
    is_complete: Arc<AtomicBool>,
    senders: Vec<SyncSender<WriteJob>>,
    threads: Vec<JoinHandle<Result<WriteTotals>>>,
}

impl WriterPool {
    /// Starts threads: one less than there are processors, since the caller decodes.
    pub(crate) fn start(target: &FileTarget) -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = processors.saturating_sub(1).clamp(1, MAX_THREADS);
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        let is_complete = Arc::new(AtomicBool::new(false));
        for _ in 0..count {
            let (sender, jobs) = sync_channel(QUEUED_JOBS);
            let files = FileSet::new(target.clone(), count);
            let thread = std::thread::Builder::new().name("parquet".to_owned());
            let is_complete = Arc::clone(&is_complete);
            threads.push(thread.spawn(move || run_writer(files, &jobs, &is_complete))?);
            senders.push(sender);
        }
        Ok(Self { is_complete, senders, threads })
    }

    /// Passes a job to the thread of its folder.
    pub(crate) fn send(&mut self, job: WriteJob) -> Result<()> {
        let index = hash_text(&job.folder) as usize % self.senders.len().max(1);
        let sender = self.senders.get(index).context("no thread writes files")?;
        if sender.send(job).is_err() {
            // The thread ended early, and its result says why.
            self.join()?;
            bail!("a thread that writes files ended early");
        }
        Ok(())
    }

    fn join(&mut self) -> Result<WriteTotals> {
        self.senders.clear();
        let mut totals = WriteTotals::default();
        let mut failure = None;
        for thread in self.threads.drain(..) {
            match thread.join().map_err(|_| anyhow!("a thread that writes files panicked"))? {
                Ok(added) => {
                    totals.files = totals.files.saturating_add(added.files);
                    totals.rows = totals.rows.saturating_add(added.rows);
                    totals.bytes = totals.bytes.saturating_add(added.bytes);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(totals), Err)
    }

    /// Waits until all files are complete.
    pub(crate) fn finish(mut self) -> Result<WriteTotals> {
        self.is_complete.store(true, Ordering::Release);
        self.join()
    }
}

impl Drop for WriterPool {
    /// After an error, waits until the threads have removed their incomplete files.
    fn drop(&mut self) {
        self.senders.clear();
        for thread in self.threads.drain(..) {
            // The error that ended the conversion is reported, not that of the thread.
            let _ = thread.join();
        }
    }
}

fn run_writer(
    mut files: FileSet,
    jobs: &Receiver<WriteJob>,
    is_complete: &AtomicBool,
) -> Result<WriteTotals> {
    for job in jobs {
        files.write(job)?;
    }
    // The flag is set before the channel is closed; the channel orders both.
    if !is_complete.load(Ordering::Acquire) {
        bail!("the conversion ended early");
    }
    files.finish()
}

/// Writes to one file in any format.
pub(crate) enum BatchWriter<W: std::io::Write + Send> {
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<FileWriter<W>>),
}

impl<W: std::io::Write + Send> BatchWriter<W> {
    pub(crate) fn new(out: W, format: FileFormat, schema: &SchemaRef) -> Result<Self> {
        Ok(match format {
            FileFormat::Parquet => {
                let writer =
                    ArrowWriter::try_new(out, Arc::clone(schema), Some(parquet_properties(schema)?))?;
                Self::Parquet(Box::new(writer))
            }
            FileFormat::Arrow | FileFormat::ArrowStream => {
                let schema = without_dictionaries(schema);
                Self::Arrow(Box::new(FileWriter::try_new_with_options(out, &schema, ipc_options()?)?))
            }
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::Parquet(writer) => {
                writer.write(batch)?;
                if writer.in_progress_size() >= ROW_GROUP_BYTES || writer.in_progress_rows() >= ROW_GROUP_ROWS
                {
                    writer.flush()?;
                }
            }
            Self::Arrow(writer) => writer.write(&unpack_dictionaries(batch)?)?,
        }
        Ok(())
    }

    /// Writes the row group that is in memory.
    fn end_row_group(&mut self) -> Result<()> {
        if let Self::Parquet(writer) = self {
            writer.flush()?;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Parquet(writer) => writer.memory_size(),
            Self::Arrow(_) => 0,
        }
    }

    pub(crate) fn finish(self) -> Result<W> {
        Ok(match self {
            Self::Parquet(writer) => writer.into_inner()?,
            Self::Arrow(mut writer) => {
                writer.finish()?;
                writer.into_inner()?
            }
        })
    }
}

pub(crate) fn ipc_options() -> Result<IpcWriteOptions> {
    Ok(IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?)
}

/// Returns a schema with text in place of dictionaries. A file of Arrow IPC has one dictionary for
/// each column, but the dictionaries of a long trace change.
fn without_dictionaries(schema: &SchemaRef) -> SchemaRef {
    let unpack = |field: &Arc<Field>| match field.data_type() {
        DataType::Dictionary(_, values) => {
            Arc::new(field.as_ref().clone().with_data_type((**values).clone()))
        }
        DataType::List(item) if matches!(item.data_type(), DataType::Dictionary(..)) => {
            let item = Arc::new(Field::new(item.name(), DataType::Utf8, true));
            Arc::new(field.as_ref().clone().with_data_type(DataType::List(item)))
        }
        _ => Arc::clone(field),
    };
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(unpack).collect();
    Arc::new(Schema::new(fields))
}

fn unpack_dictionaries(batch: &RecordBatch) -> Result<RecordBatch> {
    let unpack = |array: &Arc<dyn Array>| -> Result<Arc<dyn Array>> {
        match array.data_type() {
            DataType::Dictionary(..) => {
                let dictionary = array.as_dictionary::<arrow_array::types::Int32Type>();
                Ok(take(dictionary.values(), dictionary.keys(), None)?)
            }
            DataType::List(item) if matches!(item.data_type(), DataType::Dictionary(..)) => {
                let list = array.as_list::<i32>();
                let items = list.values().as_dictionary::<arrow_array::types::Int32Type>();
                let texts = take(items.values(), items.keys(), None)?;
                let item = Arc::new(Field::new(item.name(), DataType::Utf8, true));
                let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
                Ok(Arc::new(arrow_array::ListArray::try_new(item, offsets, texts, nulls)?))
            }
            _ => Ok(Arc::clone(array)),
        }
    };
    let columns = batch.columns().iter().map(unpack).collect::<Result<Vec<_>>>()?;
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(without_dictionaries(&batch.schema()), columns, &options)?)
}

/// Columns with Bloom filters, and the number of values that the filters are made for.
const FILTERED_COLUMNS: [(&str, u64); 5] = [
    ("provider", 256),
    ("provider_id", 256),
    ("event", 4096),
    ("activity", 100_000),
    ("related_activity", 100_000),
];
/// Columns of long, different texts, for which neither dictionaries nor statistics help.
const LONG_COLUMNS: [&str; 3] = ["payload", "message", "raw"];

fn parquet_properties(schema: &SchemaRef) -> Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::Page);
    for field in schema.fields() {
        let name = field.name().as_str();
        let path = || ColumnPath::from(name);
        if matches!(field.data_type(), DataType::Timestamp(..)) {
            builder = builder
                .set_column_dictionary_enabled(path(), false)
                .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED);
        }
        if LONG_COLUMNS.contains(&name) {
            builder = builder
                .set_column_dictionary_enabled(path(), false)
                .set_column_statistics_enabled(path(), EnabledStatistics::None);
        }
        if let Some((_, values)) = FILTERED_COLUMNS.iter().find(|(column, _)| *column == name) {
            builder = builder
                .set_column_bloom_filter_enabled(path(), true)
                .set_column_bloom_filter_max_ndv(path(), *values);
        }
    }
    if has_time_first(schema) {
        let by_time = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
        builder = builder.set_sorting_columns(Some(vec![by_time]));
    }
    Ok(builder.build())
}

/// Returns whether the first column is the time of a row.
fn has_time_first(schema: &Schema) -> bool {
    schema.fields().first().is_some_and(|field| field.name() == "time")
}

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
    temporary: PathBuf,
    path: PathBuf,
    schema: SchemaRef,
    last_time: i64,
    last_used: u64,
    memory: usize,
}

/// The files of one thread.
struct FileSet {
    target: FileTarget,
    open: HashMap<Arc<str>, OpenFile>,
    /// The number of the next part of each folder.
    parts: HashMap<Arc<str>, u32>,
    clock: u64,
    max_files: usize,
    max_columns: usize,
    max_memory: usize,
    totals: WriteTotals,
}

impl FileSet {
    fn new(target: FileTarget, threads: usize) -> Self {
        let share = |total: usize| (total / threads.max(1)).max(1);
        Self {
            target,
            open: HashMap::new(),
            parts: HashMap::new(),
            clock: 0,
            max_files: share(MAX_OPEN_FILES),
            max_columns: share(MAX_OPEN_COLUMNS),
            max_memory: share(MAX_MEMORY_BYTES),
            totals: WriteTotals::default(),
        }
    }

    fn write(&mut self, WriteJob { folder, batch }: WriteJob) -> Result<()> {
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
        if let BatchWriter::Parquet(writer) = &file.writer
            && writer.bytes_written() > MAX_FILE_BYTES
        {
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
        let path = self.target.root.join(&**folder);
        let context = || path.display().to_string();
        if !self.parts.contains_key(folder) {
            fs::create_dir_all(&path).with_context(context)?;
            remove_parts(&path, &self.target)?;
        }
        let part = self.parts.entry(Arc::clone(folder)).or_insert(0);
        let name = format!("part-{}-{:04}.{}", self.target.id, *part, self.target.format.extension());
        *part = part.saturating_add(1);
        let (temporary, path) = (path.join(format!(".{name}.tmp")), path.join(name));
        let out = BufWriter::new(File::create(&temporary).with_context(|| temporary.display().to_string())?);
        let writer = BatchWriter::new(out, self.target.format, schema)?;
        let schema = Arc::clone(schema);
        Ok(OpenFile {
            writer,
            temporary,
            path,
            schema,
            last_time: i64::MIN,
            last_used: self.clock,
            memory: 0,
        })
    }

    fn close(&mut self, folder: &Arc<str>) -> Result<()> {
        let Some(file) = self.open.remove(folder) else { return Ok(()) };
        let out = file.writer.finish().with_context(|| file.path.display().to_string())?;
        let out = out.into_inner().map_err(|error| error.into_error())?;
        self.totals.bytes = self.totals.bytes.saturating_add(out.metadata()?.len());
        self.totals.files = self.totals.files.saturating_add(1);
        drop(out);
        fs::rename(&file.temporary, &file.path).with_context(|| file.path.display().to_string())
    }

    fn finish(mut self) -> Result<WriteTotals> {
        let folders: Vec<Arc<str>> = self.open.keys().cloned().collect();
        for folder in folders {
            self.close(&folder)?;
        }
        Ok(self.totals)
    }
}

impl Drop for FileSet {
    /// Removes files that an error left incomplete.
    fn drop(&mut self) {
        for file in self.open.values() {
            // The error that ended the conversion is reported, not this one.
            let _ = fs::remove_file(&file.temporary);
        }
    }
}

/// Removes the parts that an earlier run of the same conversion left in a folder.
fn remove_parts(folder: &Path, target: &FileTarget) -> Result<()> {
    let prefix = format!("part-{}-", target.id);
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.trim_start_matches('.').starts_with(&prefix) {
            fs::remove_file(entry.path()).with_context(|| entry.path().display().to_string())?;
        }
    }
    Ok(())
}
