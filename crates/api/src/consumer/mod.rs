//! Consumers: the events of files and of live sessions, in time order.
//!
//! ```text
//!   Trace::open_file ──▶ format::etl ───────────────┐
//!                                                   ├─ merged by time ──▶ process(…, |item| …)
//!   Trace::open_live ──▶ queue of finished buffers ─┘    Event, Lost
//!
//!   Trace::from_buffers ──▶ buffers that the program gives ──▶ deliver(…, &mut handler)      Event, Lost, Buffer
//! ```
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use traceweir::consumer::{Item, Trace, process};
//! use traceweir::controller::SessionRef;
//! # fn main() -> traceweir::Result<()> {
//! let trace = Trace::open_live(None, &SessionRef::Name("lunch".into()))?;
//! process(vec![trace], |item| {
//!     match item {
//!         Item::Event(event) => println!("{} {:?}", event.time, event.record.provider()),
//!         Item::Lost(lost) => eprintln!("{} events lost", lost.events),
//!     }
//!     ControlFlow::Continue(())
//! })
//! # }
//! ```
//!
//! 1. The first event of a trace is its log-file header (EventTraceGuid, opcode 0), of files and of live sessions alike.
//! 2. Events come in the order of their wall time, those of one trace in the order of its own clock. Live, an event is held back until
//!    nothing earlier can follow, at most for the session's flush timer, with `low_latency` for a few milliseconds.
//!    Events that a process wrote before a busy daemon had its memory may come after later ones of
//!    other processes. They have their own stamps, and are in order among each other.
//! 3. A consumer that is too slow loses whole buffers and is told so; it never makes a session wait.
//! 4. No callback is made after [`Closer::close`] has returned, unless it was called from within a callback.
//!
//! What an event's payload means is not for this module.

mod close;
mod fed;
mod files;
mod handler;
mod live;
mod merge;
mod now;
mod program;
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
use close::{Gate, inside};
use fed::Feed;
pub use fed::{Feeder, Lent};
pub use handler::{Buffer, Handler, Interest, Loss, Window};
use handler::{Each, Within};
use live::Live;
pub use program::open_program;
pub use trace_file::TraceFile;

/// The most traces that are processed together.
const MAX_TRACES: usize = 64;

/// One event on its way to a callback.
#[derive(Debug)]
pub struct Event<'e> {
    /// The record.
    pub record: &'e Record<'e>,
    /// Its wall time.
    pub time: FileTime,
    /// Which of the traces it comes from.
    pub trace: usize,
    /// The clock of that trace.
    pub clock: &'e Clock,
}

/// Events or buffers were lost, noticed at this point of the stream. Both 0: a buffer says that there was a loss, not how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Events, as far as they are counted.
    pub events: u64,
    /// Buffers.
    pub buffers: u64,
}

/// What a consumer is given.
#[derive(Debug)]
pub enum Item<'e> {
    /// An event.
    Event(Event<'e>),
    /// A loss in a live session. What a file's session lost is in the file's [`header`](Trace::header).
    Lost(Lost),
}

/// An opened source of events: a file or a live session.
#[derive(Debug)]
pub struct Trace {
    source: Source,
    gate: Arc<Gate>,
}

#[derive(Debug)]
enum Source {
    File(Box<traceweir_format::etl::Trace<TraceFile>>),
    Live(Box<Live>),
    Fed(Arc<Feed>),
}

/// Where a trace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A live session.
    Live,
    /// Buffers that the program gives.
    Buffers,
}

impl Trace {
    /// Opens a file.
    ///
    /// Statuses: `ERROR_FILE_NOT_FOUND`; `ERROR_PATH_NOT_FOUND` where its folder is missing; `ERROR_FILE_CORRUPT` for what is no log; `ERROR_BAD_PATHNAME` for what is
    /// no plain file.
    pub fn open_file(path: &Path) -> Result<Self> {
        // Opening a pipe would wait for who writes to it, and a device may do something.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
        let file = file.map_err(|errno| missing(path, errno.into()))?;
        let kind = file.metadata().map_err(|source| missing(path, source))?.file_type();
        if !kind.is_file() {
            let what = if kind.is_dir() {
                "a folder"
            } else {
                "a pipe or device: store what comes out of it in a file"
            };
            let why = format!("{}: this is {what}", path.display());
            return Err(Error::refused(Status::ERROR_BAD_PATHNAME, why));
        }
        let trace = traceweir_format::etl::Trace::open(TraceFile::from(file))?;
        Ok(Self { source: Source::File(Box::new(trace)), gate: Gate::new()? })
    }

    /// Opens a live session. Events written after the return are delivered.
    ///
    /// Statuses: `ERROR_WMI_INSTANCE_NOT_FOUND` where no such session runs, also when no daemon does, or when it is not real-time.
    pub fn open_live(scope: Option<Scope>, session: &SessionRef) -> Result<Self> {
        Self::open_live_in(&folders(scope)?, session)
    }

    /// Opens a live session of the daemon of this runtime folder; `TRACEWEIR_RUNTIME_DIR` is not looked at.
    pub fn open_live_at(folder: &Path, session: &SessionRef) -> Result<Self> {
        Self::open_live_in(&[RuntimeDir::at(folder)], session)
    }

    fn open_live_in(folders: &[RuntimeDir], session: &SessionRef) -> Result<Self> {
        let live = Live::open(folders, session)?;
        Ok(Self { source: Source::Live(Box::new(live)), gate: Gate::new()? })
    }

    /// Lets the buffers of a live session that have come and wait for their turn take so much memory: a reader that is slow now and then loses less. It is
    /// never less than the session's own queue has, and at most 1 GiB. Other traces hold no more than they need.
    pub fn hold_up_to(&mut self, bytes: usize) {
        if let Source::Live(live) = &mut self.source {
            live.hold_up_to(bytes);
        }
    }

    /// Makes a trace of the buffers that the feeder is given; it ends when it is told to ([`Closer::end`]).
    pub fn from_buffers() -> Result<(Self, Feeder)> {
        let feed = Feed::new()?;
        let feeder = Feeder::new(Arc::clone(&feed));
        Ok((Self { source: Source::Fed(feed), gate: Gate::new()? }, feeder))
    }

    /// What the file or session says about itself. A stream of buffers says it with the first of them: until then, all is 0.
    #[must_use]
    pub fn header(&self) -> &LogFileHeader {
        match &self.source {
            Source::File(trace) => trace.header(),
            Source::Live(live) => live.header(),
            Source::Fed(feed) => feed.header(),
        }
    }

    /// Where it comes from.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.source {
            Source::File(_) => Kind::File,
            Source::Live(_) => Kind::Live,
            Source::Fed(_) => Kind::Buffers,
        }
    }

    /// Whether the system's own events are in it, as far as that is known before reading: by the session's mode, or by the first
    /// events of a file's buffers.
    #[must_use]
    pub fn is_of_the_system(&self) -> bool {
        let by_mode = self.header().log_file_mode & EVENT_TRACE_SYSTEM_LOGGER_MODE != 0;
        let seen = matches!(&self.source, Source::File(trace) if trace.seems_to_hold_kernel_events());
        by_mode || seen
    }

    /// Of a file: for each processor that lost events the stamp of the buffer with which its session said so for the last time.
    #[must_use]
    pub fn last_losses(&self) -> Vec<(u16, i64)> {
        match &self.source {
            Source::File(trace) => trace.last_losses(),
            _ => Vec::new(),
        }
    }

    /// From its raw stamps to wall time. A stream of buffers has it with the first of them, as its header.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        match &self.source {
            Source::File(trace) => trace.clock(),
            Source::Live(live) => live.clock(),
            Source::Fed(feed) => feed.clock(),
        }
    }

    /// The file that it is read from, where it is one.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.as_file().map(|trace| trace.source().as_file())
    }

    /// The reader of that file.
    pub(crate) fn as_file(&self) -> Option<&traceweir_format::etl::Trace<TraceFile>> {
        match &self.source {
            Source::File(trace) => Some(trace),
            Source::Live(_) | Source::Fed(_) => None,
        }
    }

    /// To close it while it is processed.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer { gate: Arc::clone(&self.gate) }
    }
}

fn missing(path: &Path, source: io::Error) -> Error {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match source.kind() {
        io::ErrorKind::NotFound if !folder.is_dir() => {
            let why = format!("{}: there is no folder {}", path.display(), folder.display());
            Error::refused(Status::ERROR_PATH_NOT_FOUND, why)
        }
        io::ErrorKind::NotADirectory => {
            let why = format!("{}: a part of the path is no folder", path.display());
            Error::refused(Status::ERROR_PATH_NOT_FOUND, why)
        }
        _ => Error::File { path: path.to_owned(), source },
    }
}

/// Delivers the events of all traces in time order until all have ended, were closed, or the callback breaks.
/// Files and live sessions may not be mixed; several live sessions are merged with a short delay.
///
/// A session that is stopped ends its trace after the last event. A daemon that goes without a word ends its traces too, after what it
/// had delivered, and is an error ([`traceweir_transport::Error::Closed`]) when all is processed.
///
/// A panic of the callback goes on to the caller; the traces are closed then.
pub fn process(traces: Vec<Trace>, each: impl FnMut(Item<'_>) -> ControlFlow<()>) -> Result<()> {
    deliver(traces, &Window::default(), &mut Each(each))
}

/// [`process`] for who wants more: the ends of buffers, only what happened in some time, or buffers of its own.
///
/// Statuses: `ERROR_BAD_LENGTH` without traces or with more than 64; `ERROR_INVALID_PARAMETER` for different kinds of them together, or
/// two streams of buffers; `ERROR_INVALID_TIME` for a window that ends before it begins.
pub fn deliver<H: Handler>(traces: Vec<Trace>, window: &Window, handler: &mut H) -> Result<()> {
    if window.from.zip(window.to).is_some_and(|(from, to)| to < from) {
        return Err(Error::refused(
            Status::ERROR_INVALID_TIME,
            "the time to end at is before the time to start at",
        ));
    }
    // All that this thread calls from here on is the handler: it may close, but not wait for itself.
    inside(|| {
        if *window == Window::default() {
            deliver_all(traces, handler)
        } else {
            deliver_all(traces, &mut Within::new(handler, window))
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
            Source::File(trace) => files.push((*trace, gate)),
            Source::Live(live) => lives.push((*live, gate)),
            Source::Fed(feed) => fed.push((feed, gate)),
        }
    }
    match (files.is_empty(), lives.is_empty(), &fed[..]) {
        (false, true, []) => files::process(&files, handler),
        (true, false, []) => merge::process(lives, handler),
        (true, true, [(feed, gate)]) => fed::process(feed, gate, handler),
        _ => {
            let why = "files, live sessions and streams of buffers are not processed together";
            Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why))
        }
    }
}

/// The number of the session that wrote a file.
fn logger_of(file: &TraceFile) -> u16 {
    let mut head = [0; HEADER_SIZE];
    // What cannot be read now is told by whoever reads the events.
    let _ = file.read_at(0, &mut head);
    BufferHeader::parse(&head).logger_id
}
