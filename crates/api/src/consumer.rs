//! Consumers: the events of files and of live sessions, in time order.
//!
//! ```text
//!   Trace::open          files           ─ merged by time ─┐    process(…, |item| …)
//!   Trace::live          live sessions   ─ merged by time ─┼─▶    Event, Lost
//!   Trace::from_buffers  one trace of added buffers ───────┘    deliver(…, &mut handler)
//!                                                                 Event, Lost, Buffer
//! ```
//!
//! One call accepts traces of one kind only.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use traceweir::consumer::{Item, Trace, process};
//! # fn main() -> traceweir::Result<()> {
//! let trace = Trace::live("lunch")?;
//! process(vec![trace], |item| {
//!     match item {
//!         Item::Event(event) => println!("{} {:?}", event.time, event.record.provider()),
//!         Item::Lost(lost) => eprintln!("{} events lost", lost.events),
//!         _ => {}
//!     }
//!     ControlFlow::Continue(())
//! })
//! # }
//! ```
//!
//! 1. The first event of a trace is its log-file header (EventTraceGuid, opcode 0), in files and in
//!    live sessions alike.
//! 2. Events come in the order of their wall time, those of one trace in the order of its own
//!    clock. A live event is held back until no earlier one can follow: usually at most for the
//!    session's flush timer, or with `low_latency` for a few milliseconds. Events that a process
//!    wrote before a busy daemon took over its region may come after later events of other
//!    processes. They keep their own stamps, and are in order among each other.
//! 3. A slow consumer loses whole buffers, which is reported to it; it never makes a session wait.
//! 4. No callback for a trace runs after [`Closer::close`] has returned, unless `close` was called
//!    from within a callback.
//!
//! | File | Contents |
//! |---|---|
//! | `files` | several files as one stream |
//! | `live`, `merge` | one live session; several live sessions as one stream |
//! | `feed` | buffers that the program adds |
//! | `stream` | the buffers of one processor that wait for delivery |
//! | `handler`, `close` | the receiver of events; closing a trace while it is processed |
//! | `session_clock` | the current time on a live session's clock |
//! | `trace_file`, `program` | the file of a trace; programs that a trace names |
//!
//! This module does not interpret payloads; the module `decoded` does, on top of it.

mod close;
mod feed;
mod files;
mod handler;
mod live;
mod merge;
mod program;
mod session_clock;
mod stream;
mod trace_file;

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::etl::ReadAt;
use traceweir_format::header::Record;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::session::EVENT_TRACE_SYSTEM_LOGGER_MODE;
use traceweir_format::spec::status::Status;
use traceweir_format::time::{Clock, FileTime};
use traceweir_transport::message::SessionRef;
use traceweir_transport::runtime::{RuntimeDir, Scope};

use crate::controller::folders;
use crate::error::{Error, Result};
pub use close::Closer;
use close::{CloseGate, run_as_delivering};
use feed::Feed;
pub use feed::{Feeder, Lent};
pub use handler::{Buffer, Handler, Interest, Loss, Window};
use handler::{FunctionHandler, WindowHandler};
use live::LiveSession;
pub use program::open_program;
pub use trace_file::TraceFile;

/// Maximum number of traces that are processed together.
const MAX_TRACES: usize = 64;

/// One event, as a callback gets it.
#[non_exhaustive]
#[derive(Debug)]
pub struct Event<'e> {
    /// The record of the event.
    pub record: &'e Record<'e>,
    /// Wall time of the event.
    pub time: FileTime,
    /// Index of the trace that the event comes from.
    pub trace: usize,
    /// The clock of that trace.
    pub clock: &'e Clock,
}

/// Events or buffers that were lost before this point of the stream.
///
/// Both counts are 0 if a buffer only shows that there was a loss, not how much.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number of lost events, as far as they are counted.
    pub events: u64,
    /// Number of lost buffers.
    pub buffers: u64,
}

impl Lost {
    /// Creates the counts of a loss.
    #[must_use]
    pub const fn new(events: u64, buffers: u64) -> Self {
        Self { events, buffers }
    }
}

/// An item that a consumer gets.
#[non_exhaustive]
#[derive(Debug)]
pub enum Item<'e> {
    /// An event of a trace.
    Event(Event<'e>),
    /// A loss in a live session or in added buffers. For a file, the losses are in its
    /// [`header`](Trace::header).
    Lost(Lost),
}

/// An opened source of events: a file, a live session, or buffers that the program adds.
#[derive(Debug)]
pub struct Trace {
    source: TraceSource,
    gate: Arc<CloseGate>,
}

#[derive(Debug)]
enum TraceSource {
    File(Arc<traceweir_format::etl::Trace<TraceFile>>),
    Live(Box<LiveSession>),
    Fed(Arc<Feed>),
}

/// The kind of source that a trace comes from.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A log file.
    File,
    /// A live session.
    Live,
    /// Buffers that the program adds.
    Buffers,
}

impl Trace {
    /// Opens a log file.
    ///
    /// Fails with `ERROR_FILE_NOT_FOUND` if the file is missing; with `ERROR_PATH_NOT_FOUND` if its
    /// folder is; with `ERROR_FILE_CORRUPT` if the file is not a log; with `ERROR_BAD_PATHNAME` if
    /// it is not a regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        // Opening a pipe would wait for a writer, and opening a device may have effects.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
        let file = file.map_err(|errno| open_error(path, errno.into()))?;
        let kind = file.metadata().map_err(|source| open_error(path, source))?.file_type();
        if !kind.is_file() {
            let description =
                if kind.is_dir() { "a folder" } else { "a pipe or device: store its output in a file" };
            let reason = format!("{}: this is {description}", path.display());
            return Err(Error::refused(Status::ERROR_BAD_PATHNAME, reason));
        }
        let trace = traceweir_format::etl::Trace::open(TraceFile::from(file))?;
        Ok(Self { source: TraceSource::File(Arc::new(trace)), gate: CloseGate::new()? })
    }

    /// Opens a live session of a daemon by its name, ignoring case, or by its GUID in text form.
    ///
    /// Events written after this call returns are delivered. Fails with
    /// `ERROR_WMI_INSTANCE_NOT_FOUND` if no such session runs, no daemon runs, or the session is
    /// not real-time.
    pub fn live(name: &str) -> Result<Self> {
        Self::live_in(None, name)
    }

    /// Opens a live session like [`live`](Self::live), in the daemon of this scope.
    pub fn live_in(scope: Option<Scope>, name: &str) -> Result<Self> {
        Self::open_live_in(&folders(scope)?, &SessionRef::Name(name.to_owned()))
    }

    /// Opens a live session like [`live`](Self::live), in the daemon of this runtime folder,
    /// ignoring `TRACEWEIR_RUNTIME_DIR`.
    pub fn live_at(folder: &Path, name: &str) -> Result<Self> {
        Self::open_live_in(&[RuntimeDir::from_path(folder)], &SessionRef::Name(name.to_owned()))
    }

    pub(crate) fn open_live_in(folders: &[RuntimeDir], session: &SessionRef) -> Result<Self> {
        let live = LiveSession::open(folders, session)?;
        Ok(Self { source: TraceSource::Live(Box::new(live)), gate: CloseGate::new()? })
    }

    /// Raises the limit of memory that waiting buffers of a live session may take, so that an
    /// occasionally slow reader loses less.
    ///
    /// The default is the size of the session's queue, at least 1 MiB and at most 64 MiB; the
    /// highest limit is 1 GiB. A limit lower than the current one is ignored. The limit does not
    /// apply to traces of other kinds.
    pub fn set_queue_limit(&mut self, bytes: usize) {
        if let TraceSource::Live(live) = &mut self.source {
            live.raise_queue_limit(bytes);
        }
    }

    /// Creates a trace from buffers that the feeder adds. [`Closer::end`] ends the trace.
    pub fn from_buffers() -> Result<(Self, Feeder)> {
        let feed = Feed::new()?;
        let feeder = Feeder::new(Arc::clone(&feed));
        Ok((Self { source: TraceSource::Fed(feed), gate: CloseGate::new()? }, feeder))
    }

    /// Returns the log-file header. For added buffers, all fields are 0 until the first one has
    /// arrived.
    #[must_use]
    pub fn header(&self) -> &LogFileHeader {
        match &self.source {
            TraceSource::File(trace) => trace.header(),
            TraceSource::Live(live) => live.header(),
            TraceSource::Fed(feed) => feed.header(),
        }
    }

    /// Returns the kind of source.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.source {
            TraceSource::File(_) => Kind::File,
            TraceSource::Live(_) => Kind::Live,
            TraceSource::Fed(_) => Kind::Buffers,
        }
    }

    /// Returns whether the trace contains kernel events, as far as that is known before reading.
    ///
    /// The session's mode shows it, or the first events of a file's buffers.
    #[must_use]
    pub fn has_kernel_events(&self) -> bool {
        let is_system_logger = self.header().log_file_mode & EVENT_TRACE_SYSTEM_LOGGER_MODE != 0;
        let has_kernel_events =
            matches!(&self.source, TraceSource::File(trace) if trace.seems_to_hold_kernel_events());
        is_system_logger || has_kernel_events
    }

    /// Returns the processors that lost events, each with the stamp of its last buffer that reports
    /// a loss. Empty for traces that are not files.
    #[must_use]
    pub fn last_losses(&self) -> Vec<(u16, i64)> {
        match &self.source {
            TraceSource::File(trace) => trace.last_losses(),
            _ => Vec::new(),
        }
    }

    /// Returns the clock, which converts raw stamps to wall time. For added buffers, it is known
    /// from the first one on, like the header.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        match &self.source {
            TraceSource::File(trace) => trace.clock(),
            TraceSource::Live(live) => live.clock(),
            TraceSource::Fed(feed) => feed.clock(),
        }
    }

    /// Returns the file of a trace that is read from a file.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.as_file().map(|trace| trace.source().as_file())
    }

    /// Returns the reader of a trace that is read from a file.
    pub(crate) fn as_file(&self) -> Option<&traceweir_format::etl::Trace<TraceFile>> {
        match &self.source {
            TraceSource::File(trace) => Some(trace),
            TraceSource::Live(_) | TraceSource::Fed(_) => None,
        }
    }

    /// Returns a second trace of the same file, to process the file once more. Closing one of the two
    /// closes both. Returns `None` for other sources.
    #[must_use]
    pub fn clone_file(&self) -> Option<Self> {
        let TraceSource::File(trace) = &self.source else { return None };
        Some(Self { source: TraceSource::File(Arc::clone(trace)), gate: Arc::clone(&self.gate) })
    }

    /// Returns a handle that closes the trace while it is processed.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer { gate: Arc::clone(&self.gate) }
    }
}

fn open_error(path: &Path, source: io::Error) -> Error {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match source.kind() {
        io::ErrorKind::NotFound if !folder.is_dir() => {
            let reason = format!("{}: folder {} does not exist", path.display(), folder.display());
            Error::refused(Status::ERROR_PATH_NOT_FOUND, reason)
        }
        io::ErrorKind::NotADirectory => {
            let reason = format!("{}: a part of the path is not a folder", path.display());
            Error::refused(Status::ERROR_PATH_NOT_FOUND, reason)
        }
        _ => Error::File { path: path.to_owned(), source },
    }
}

/// Delivers the events of all traces in time order, until every trace has ended or was closed, or
/// until the callback breaks.
///
/// Files and live sessions may not be mixed; several live sessions are merged with a short delay.
///
/// Stopping a session ends its trace after the last event. If a daemon disconnects without notice,
/// its traces end after the events that have arrived. The other traces continue; when they have
/// ended too, `process` returns an error ([`traceweir_transport::Error::Closed`]).
///
/// A panic of the callback propagates to the caller; the traces are closed then.
pub fn process(traces: Vec<Trace>, each: impl FnMut(Item<'_>) -> ControlFlow<()>) -> Result<()> {
    deliver(traces, &Window::default(), &mut FunctionHandler(each))
}

/// Like [`process`], with a handler that can also get buffers, and a time window.
///
/// Fails with `ERROR_BAD_LENGTH` without traces or with more than 64; with
/// `ERROR_INVALID_PARAMETER` for mixed kinds of traces, or two traces of added buffers; with
/// `ERROR_INVALID_TIME` for a window that ends before it begins.
pub fn deliver<H: Handler>(traces: Vec<Trace>, window: &Window, handler: &mut H) -> Result<()> {
    if window.from.zip(window.to).is_some_and(|(from, to)| to < from) {
        return Err(Error::refused(
            Status::ERROR_INVALID_TIME,
            "the time to end at is before the time to start at",
        ));
    }
    // The handler may close a trace on this thread, and must not wait for this thread then.
    run_as_delivering(|| {
        if *window == Window::default() {
            deliver_all(traces, handler)
        } else {
            deliver_all(traces, &mut WindowHandler::new(handler, window))
        }
    })
}

fn deliver_all<H: Handler>(traces: Vec<Trace>, handler: &mut H) -> Result<()> {
    if traces.is_empty() || traces.len() > MAX_TRACES {
        return Err(Error::refused(Status::ERROR_BAD_LENGTH, "1 to 64 traces are processed together"));
    }
    let (mut files, mut lives, mut fed) = (Vec::new(), Vec::new(), Vec::new());
    for Trace { source, gate } in traces {
        match source {
            TraceSource::File(trace) => files.push((trace, gate)),
            TraceSource::Live(live) => lives.push((*live, gate)),
            TraceSource::Fed(feed) => fed.push((feed, gate)),
        }
    }
    match (files.is_empty(), lives.is_empty(), &fed[..]) {
        (false, true, []) => files::process(&files, handler),
        (true, false, []) => merge::process(lives, handler),
        (true, true, [(feed, gate)]) => feed::process(feed, gate, handler),
        _ => {
            let reason = "one call processes files only, live sessions only, or one trace of added buffers";
            Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason))
        }
    }
}

/// Returns the logger id of the session that wrote a file.
fn read_logger_id(file: &TraceFile) -> u16 {
    let mut header = [0; HEADER_SIZE];
    // Read errors are reported when the events are read.
    let _ = file.read_at(0, &mut header);
    BufferHeader::parse(&header).logger_id
}
