//! Writes batches into the files of a dataset, on threads of their own.
//!
//! ```text
//!   jobs (folder, batch) ──by folder──▶ thread ──▶ FileSet ──▶ folder/part-ID-N.parquet
//!                                                    │ at most 64 open files; the least recently
//!                                                    └ used is closed, and a further part begun
//! ```
//!
//! F1  Files have hidden names until all files of the conversion are complete.
//! F2  The rows of a row group are sorted by time. A batch that begins before the last one begins a
//!     row group.
//! F3  The row groups in memory have a limit in all files; the largest is written first.
//! F4  A conversion replaces the parts with its own id that an earlier run left in a folder, after
//!     its own parts are complete.

mod batch_writer;
mod file_set;
mod format;
mod parts;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use arrow_array::RecordBatch;

pub(crate) use self::batch_writer::{BatchWriter, ipc_options};
use self::file_set::FileSet;
pub use self::format::FileFormat;
use self::parts::HiddenParts;
pub(crate) use self::parts::{FileTarget, create_folder};

/// The most columns of all open files. Each has a compressor of its own, which takes up to 700 KiB.
const MAX_OPEN_COLUMNS: usize = 384;
/// Batches that wait for a thread.
const QUEUED_JOBS: usize = 2;
/// The most threads that write.
const MAX_THREADS: usize = 4;

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

/// The threads that write.
pub(crate) struct WriterPool {
    /// Whether all rows were sent. Otherwise the files are removed.
    is_complete: Arc<AtomicBool>,
    senders: Vec<SyncSender<WriteJob>>,
    threads: Vec<JoinHandle<Result<(WriteTotals, HiddenParts)>>>,
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

    /// Passes a job to the thread of its folder. One thread writes all wide tables, so that only one
    /// file has more columns than the share of its thread.
    pub(crate) fn send(&mut self, job: WriteJob) -> Result<()> {
        let threads = self.senders.len().max(1);
        let is_wide = job.batch.num_columns() > MAX_OPEN_COLUMNS / threads;
        let index = if is_wide { 0 } else { hash_folder(&job.folder) % threads };
        let sender = self.senders.get(index).context("no thread writes files")?;
        if sender.send(job).is_err() {
            // The thread ended early, and its result says why.
            self.join()?;
            bail!("a thread that writes files ended early");
        }
        Ok(())
    }

    fn join(&mut self) -> Result<(WriteTotals, Vec<HiddenParts>)> {
        self.senders.clear();
        let (mut totals, mut parts) = (WriteTotals::default(), Vec::new());
        let mut failure = None;
        for thread in self.threads.drain(..) {
            match thread.join().map_err(|_| anyhow!("a thread that writes files panicked"))? {
                Ok((added, added_parts)) => {
                    totals.files = totals.files.saturating_add(added.files);
                    totals.rows = totals.rows.saturating_add(added.rows);
                    totals.bytes = totals.bytes.saturating_add(added.bytes);
                    parts.push(added_parts);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok((totals, parts)), Err)
    }

    /// Waits until all files are complete, and gives them their names.
    pub(crate) fn finish(mut self) -> Result<WriteTotals> {
        self.is_complete.store(true, Ordering::Release);
        let (totals, parts) = self.join()?;
        parts.into_iter().try_for_each(HiddenParts::publish)?;
        Ok(totals)
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
) -> Result<(WriteTotals, HiddenParts)> {
    for job in jobs {
        files.write(job)?;
    }
    // The flag is set before the channel is closed; the channel orders both.
    if !is_complete.load(Ordering::Acquire) {
        bail!("the conversion ended early");
    }
    files.finish()
}

fn hash_folder(folder: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    // The low bits suffice to choose a thread.
    usize::from(hasher.finish() as u16)
}
