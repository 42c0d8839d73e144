//! Relogging: the events of files or of live sessions into a new file, on the way looked at, left out, changed, and joined by others.
//!
//! ```text
//!   add_file ─┐                        callback                     output
//!   add_file ─┼─ in time order ──▶ event(&event, output) ──▶ keep(event)      its bytes as they are
//!   add_live ─┘                                              inject(&changed)  a copy that was changed, or a new event
//!                                                            (neither)         left out
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
//! let done = relogger.process(|event: &Event<'_>, output: &mut Output| {
//!     if event.record.process_id() == 4711 { output.keep(event) } else { Ok(()) }
//! })?;
//! println!("{} events in {} bytes", done.events, done.bytes);
//! # Ok(())
//! # }
//! ```
//!
//! 1. The log-file header is written anew; of several inputs the one that starts first gives clock, machine and boot time, and what names the system of another
//!    machine is passed over. Its other records of the header buffer stay in front, whatever the callback thinks of events: they say what system the file is of.
//! 2. An event that is kept has the bytes it had, in the buffers of its processor. Where an input's clock is not the output's, its stamps are converted by wall time: to
//!    the same 100 ns, or the same tick where the output's clock is coarser. Stamps that kernel events have in known places of their payloads go with them.
//!    Keys of stacks that are stored once are moved, so that those of one input are not those of another. Extended items that contradict their event become the
//!    beginning of its payload, which readers take them for, and are counted.
//! 3. Lost events and buffers of all inputs are summed; a loss that was flagged stays flagged.
//! 4. The output appears under its name when it is whole, in place of what was there. Whatever fails, or panics, leaves nothing behind. An input is never replaced.
//!
//! What a payload means is not for this module, nor is a payload that holds text about times, processes or processors changed with the header.

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
use traceweir_transport::message::SessionRef;
use traceweir_transport::runtime::Scope;

use crate::consumer::{self, Closer, Event, Item, Trace};
use crate::error::{Error, Result};
pub use context::is_context;
pub use event::{EventKind, TraceEvent};
pub use input::{Input, is_log_file_header};
pub use output::{Output, Summary};

/// How the output is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether buffers are compressed.
    pub compressed: bool,
    /// Bytes of a buffer, a multiple of 1,024 from 1 KiB to 16 MiB; `None`: those of the inputs, up to 1 MiB.
    pub buffer_size: Option<u32>,
    /// Nothing from before is wanted: the start in the header moves up to this, in whole seconds and as far as no event that is written is from before.
    pub from: Option<FileTime>,
    /// Nothing from after is wanted: the end in the header is not later, unless an event is.
    pub to: Option<FileTime>,
    /// The file must not be there yet, not even as a link, when it is put in its place (183); else it replaces what is there, behind links.
    pub new: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { compressed: true, buffer_size: None, from: None, to: None, new: false }
    }
}

/// Who decides about events. A closure that takes an event and the output is one.
pub trait Callback {
    /// The log-file header of an input, before its events. The output has one already.
    fn begin(&mut self, header: &Event<'_>, output: &mut Output) -> Result<()> {
        let _ = (header, output);
        Ok(())
    }

    /// An event. What is neither [kept](Output::keep) nor [injected](Output::inject) is left out; an error ends it all.
    fn event(&mut self, event: &Event<'_>, output: &mut Output) -> Result<()>;

    /// After the last event: the last chance to inject.
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

/// Reads traces and writes one file of them.
#[derive(Debug, Default)]
pub struct Relogger {
    traces: Vec<Trace>,
    /// Paths of the inputs that are files.
    paths: Vec<PathBuf>,
    output: Option<PathBuf>,
    settings: Settings,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    cancelled: AtomicBool,
    closers: Mutex<Vec<Closer>>,
}

impl Relogger {
    /// Nothing to read yet. Output is compressed unless told.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file; its number is what [`Event::trace`] says. Errors as of [`Trace::open_file`].
    pub fn add_file(&mut self, path: &Path) -> Result<usize> {
        let trace = Trace::open_file(path)?;
        self.paths.push(path.to_owned());
        Ok(self.add(trace))
    }

    /// Adds a live session. Files and live sessions do not go together. Errors as of [`Trace::open_live`].
    pub fn add_live(&mut self, scope: Option<Scope>, session: &SessionRef) -> Result<usize> {
        Ok(self.add(Trace::open_live(scope, session)?))
    }

    /// Adds a trace that is open already.
    pub fn add(&mut self, trace: Trace) -> usize {
        let mut closers = self.shared.closers.lock().unwrap_or_else(PoisonError::into_inner);
        closers.push(trace.closer());
        self.traces.push(trace);
        self.traces.len().saturating_sub(1)
    }

    /// Where the output goes. What is there is replaced, when the output is whole.
    pub fn set_output(&mut self, path: &Path) {
        self.output = Some(path.to_owned());
    }

    /// Whether the output is compressed; it is, unless told.
    pub fn set_compression(&mut self, compressed: bool) {
        self.settings.compressed = compressed;
    }

    /// All there is to say about the output.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// To end processing from elsewhere, or from the callback.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { shared: Arc::clone(&self.shared) }
    }

    /// Reads all traces to their ends, or until it is cancelled, and gives each event to the callback. A live session ends when it is stopped.
    ///
    /// Statuses: `ERROR_INVALID_PARAMETER` without an input or an output; `ERROR_SHARING_VIOLATION` where the output is an input; `ERROR_BAD_PATHNAME` where it can be
    /// no file; `ERROR_DISK_FULL`; and what the callback returns.
    pub fn process(self, mut callback: impl Callback) -> Result<Summary> {
        let Self { traces, paths, output, settings, shared } = self;
        let refused = |why: &str| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why));
        let Some(path) = output else {
            return refused("nothing says where the output goes: set_output names the file");
        };
        if traces.is_empty() {
            return refused("there is nothing to relog: add_file or add_live names an input");
        }
        let inputs = traces.iter().map(Input::of).collect::<Result<Vec<_>>>()?;
        let mut output = Output::create(&path, &paths, &inputs, &settings)?;
        let mut begun = vec![false; inputs.len()];
        let mut failure = None;
        consumer::process(traces, |item| match relog(item, &mut begun, &mut callback, &mut output) {
            Ok(()) if shared.cancelled.load(Ordering::Relaxed) => ControlFlow::Break(()),
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
    begun: &mut [bool],
    callback: &mut impl Callback,
    output: &mut Output,
) -> Result<()> {
    let event = match item {
        Item::Event(event) => event,
        Item::Lost(lost) => return output.note_loss(lost),
    };
    output.reach(event.time);
    if is_log_file_header(event.record) {
        return match begun.get_mut(event.trace).map(|begun| std::mem::replace(begun, true)) {
            Some(false) => callback.begin(&event, output),
            // A session that was appended to the file: its events follow, its header has no place.
            _ => Ok(()),
        };
    }
    if output.has_in_front(event.trace, event.record) {
        return Ok(());
    }
    callback.event(&event, output)
}

/// Ends [`Relogger::process`], which returns with a whole file of what came so far.
#[derive(Clone, Debug)]
pub struct Canceller {
    shared: Arc<Shared>,
}

impl Canceller {
    /// No event is given to the callback after the return, unless called from within it.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
        let closers = self.shared.closers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        closers.iter().for_each(Closer::close);
    }
}
