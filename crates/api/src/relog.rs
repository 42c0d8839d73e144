//! Relogging: copies the events of files or live sessions into a new file, filtered, changed, or
//! with added events.
//!
//! ```text
//!   add_file ─┐                        callback                     output
//!   add_file ─┼─ in time order ──▶ event(&event, output) ──▶ keep(event)       writes it
//!   add_live ─┘                                              inject(&event)    writes a changed
//!                                                                              copy, or a new event
//!                                                            (neither)         drops it
//! ```
//!
//! ```
//! # use traceweir::consumer::Event;
//! use traceweir::relog::{Output, Relogger};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (from, to) = (folder.path().join("a.etl"), folder.path().join("b.etl"));
//! # let file = std::fs::File::create(&from)?;
//! # traceweir_format::etl::Writer::create(file, Default::default())?.finish(Default::default())?;
//! let mut relogger = Relogger::new();
//! relogger.add_file(&from)?;
//! relogger.set_output(&to);
//! let summary = relogger.process(|event: &Event<'_>, output: &mut Output| {
//!     if event.record.process_id() == 4711 { output.keep(event) } else { Ok(()) }
//! })?;
//! println!("{} events in {} bytes", summary.events, summary.bytes);
//! # Ok(())
//! # }
//! ```
//!
//! 1. The log-file header is written anew. With several inputs, the one that starts first gives
//!    clock, machine and boot time; records that name the system of another machine are skipped.
//!    The other records in the header buffer of the first input stay in the output's header buffer,
//!    whatever the callback does with events: they describe the system of the file.
//! 2. A kept event has its original bytes, in the buffers of its processor. If an input's clock
//!    differs from the output's, its stamps are converted by wall time: to the same 100 ns, or the
//!    same tick if the output's clock is coarser. Stamps in known places of kernel payloads are
//!    converted too. Stack keys get an offset for each input, so that the keys of two inputs
//!    differ. Extended data items that do not fit their record become the beginning of the payload,
//!    as readers treat them, and are counted.
//! 3. Lost events and buffers of all inputs are summed. If a buffer of an input has a loss flag, a
//!    buffer of processor 0 in the output gets the flag.
//! 4. The output appears under its name when it is complete, and replaces the former file. A
//!    failure or panic leaves nothing behind. An input is never replaced.
//!
//! | File | Contents |
//! |---|---|
//! | `input` | the properties of an input that the output needs |
//! | `event` | an event that the caller may change |
//! | `output`, `head` | the new file, and its header |
//! | `file` | the output on disk, under a temporary name until it is complete |
//! | `context` | events that a cut trace should keep |
//!
//! This module does not interpret payloads: if a payload also contains a time, process or processor
//! of the header, a change of the header does not change it.

mod context;
mod event;
mod file;
mod head;
mod input;
mod output;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use traceweir_format::spec::status::Status;
use traceweir_format::time::FileTime;

use crate::consumer::{self, Closer, Event, Item, Trace};
use crate::error::{Error, Result};
pub use context::is_context;
pub use event::{EventKind, TraceEvent};
pub use input::{Input, is_log_file_header};
pub use output::{Output, Summary};

/// Settings of the output.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether to compress the buffers of the output.
    pub compressed: bool,
    /// Bytes of a buffer, a multiple of 1,024 from 1 KiB to 16 MiB; `None` for the size of the
    /// inputs, up to 1 MiB.
    pub buffer_size: Option<u32>,
    /// The earliest wanted time. It drops no events: only the start in the header moves up to it,
    /// in whole seconds and not past the first written event.
    pub from: Option<FileTime>,
    /// The latest wanted time. It drops no events: if it is set, the end in the header is that of
    /// the last written event instead of the end of the inputs.
    pub to: Option<FileTime>,
    /// The file must not exist, not even as a link, when it gets its name (`ERROR_ALREADY_EXISTS`);
    /// otherwise it replaces the former file, following links.
    pub new: bool,
    /// Number of threads that compress. The file does not depend on it.
    pub threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { compressed: true, buffer_size: None, from: None, to: None, new: false, threads: 1 }
    }
}

impl Settings {
    /// Sets whether buffers are compressed.
    #[must_use]
    pub const fn compressed(mut self, compressed: bool) -> Self {
        self.compressed = compressed;
        self
    }

    /// Sets the size of a buffer in bytes.
    #[must_use]
    pub const fn buffer_bytes(mut self, bytes: u32) -> Self {
        self.buffer_size = Some(bytes);
        self
    }

    /// Sets the earliest and the latest wanted time; `None` is no limit.
    #[must_use]
    pub const fn window(mut self, from: Option<FileTime>, to: Option<FileTime>) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// Sets the number of threads that compress.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets whether the output must be a new file.
    #[must_use]
    pub const fn new_file(mut self, new: bool) -> Self {
        self.new = new;
        self
    }
}

/// The code that decides about events. Closures that take an event and the output implement this
/// trait.
pub trait Callback {
    /// Handles the log-file header of an input, before its events. The output has one already.
    fn begin(&mut self, header: &Event<'_>, output: &mut Output) -> Result<()> {
        let _ = (header, output);
        Ok(())
    }

    /// Handles an event. It is dropped unless it is [kept](Output::keep) or
    /// [injected](Output::inject); an error ends processing.
    fn event(&mut self, event: &Event<'_>, output: &mut Output) -> Result<()>;

    /// Runs after the last event, as the last chance to inject events.
    fn finish(&mut self, output: &mut Output) -> Result<()> {
        let _ = output;
        Ok(())
    }
}

impl<F: FnMut(&Event<'_>, &mut Output) -> Result<()>> Callback for F {
    fn event(&mut self, event: &Event<'_>, output: &mut Output) -> Result<()> {
        self(event, output)
    }
}

/// Reads traces and writes one file from them.
#[derive(Debug, Default)]
pub struct Relogger {
    traces: Vec<Trace>,
    /// Paths of the inputs that are files.
    paths: Vec<PathBuf>,
    output: Option<PathBuf>,
    settings: Settings,
    shared: Arc<CancelState>,
}

#[derive(Debug, Default)]
struct CancelState {
    is_cancelled: AtomicBool,
    closers: Mutex<Vec<Closer>>,
}

impl Relogger {
    /// Creates a relogger without inputs, with compressed output.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file and returns its index, which is the [`Event::trace`] of its events. Fails like
    /// [`Trace::open`].
    pub fn add_file(&mut self, path: &Path) -> Result<usize> {
        let trace = Trace::open(path)?;
        self.paths.push(path.to_owned());
        Ok(self.add(trace))
    }

    /// Adds a live session by its name. Files and live sessions cannot be mixed. Fails like
    /// [`Trace::live`].
    pub fn add_live(&mut self, session: &str) -> Result<usize> {
        Ok(self.add(Trace::live(session)?))
    }

    /// Adds an open trace and returns its index.
    pub fn add(&mut self, trace: Trace) -> usize {
        let mut closers = self.shared.closers.lock().unwrap_or_else(PoisonError::into_inner);
        closers.push(trace.closer());
        self.traces.push(trace);
        self.traces.len().saturating_sub(1)
    }

    /// Sets the output path. An existing file is replaced when the output is complete.
    pub fn set_output(&mut self, path: &Path) {
        self.output = Some(path.to_owned());
    }

    /// Sets whether the output is compressed, which is the default.
    pub fn set_compression(&mut self, compressed: bool) {
        self.settings.compressed = compressed;
    }

    /// Sets all settings of the output.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Returns a handle that ends processing from another thread or from the callback.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { shared: Arc::clone(&self.shared) }
    }

    /// Reads all traces to their ends, or until cancelled, and passes each event to the callback.
    ///
    /// A live session ends when it is stopped.
    ///
    /// Fails with `ERROR_INVALID_PARAMETER` without an input or an output; with
    /// `ERROR_SHARING_VIOLATION` if the output is an input; with `ERROR_BAD_PATHNAME` if it cannot
    /// be a file; with `ERROR_DISK_FULL`; and with errors of the callback.
    pub fn process(self, mut callback: impl Callback) -> Result<Summary> {
        let Self { traces, paths, output, settings, shared } = self;
        let refuse = |reason: &str| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
        let Some(path) = output else {
            return refuse("no output is set: call set_output");
        };
        if traces.is_empty() {
            return refuse("there is no input: call add_file or add_live");
        }
        let inputs = traces.iter().map(Input::from_trace).collect::<Result<Vec<_>>>()?;
        let mut output = Output::create(&path, &paths, &inputs, &settings)?;
        let mut has_begun = vec![false; inputs.len()];
        let mut failure = None;
        consumer::process(traces, |item| match relog(item, &mut has_begun, &mut callback, &mut output) {
            Ok(()) if shared.is_cancelled.load(Ordering::Relaxed) => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        callback.finish(&mut output)?;
        output.finish()
    }
}

fn relog(
    item: Item<'_>,
    has_begun: &mut [bool],
    callback: &mut impl Callback,
    output: &mut Output,
) -> Result<()> {
    let event = match item {
        Item::Event(event) => event,
        Item::Lost(lost) => return output.note_loss(lost),
    };
    output.set_current_time(event.time);
    if is_log_file_header(event.record) {
        return match has_begun.get_mut(event.trace).map(|has_begun| std::mem::replace(has_begun, true)) {
            Some(false) => callback.begin(&event, output),
            // A session that was appended to the file: its events follow, its header is dropped.
            _ => Ok(()),
        };
    }
    if output.take_header_record(event.trace, event.record) {
        return Ok(());
    }
    callback.event(&event, output)
}

/// Ends [`Relogger::process`], which returns with a complete file of the events so far.
#[derive(Clone, Debug)]
pub struct Canceller {
    shared: Arc<CancelState>,
}

impl Canceller {
    /// Cancels processing. The callback gets no event after this call returns, unless the callback
    /// itself made the call.
    pub fn cancel(&self) {
        self.shared.is_cancelled.store(true, Ordering::Relaxed);
        let closers = self.shared.closers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        closers.iter().for_each(Closer::close);
    }
}
