//! Skeleton: consumers of live sessions and files.

use std::ops::ControlFlow;
use std::path::Path;

use traceweir_format::header::Record;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::time::{Clock, FileTime};
use traceweir_transport::message::SessionRef;
use traceweir_transport::runtime::Scope;

use crate::error::Result;

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

/// Events or buffers were lost, noticed at this point of the stream.
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
    /// A loss.
    Lost(Lost),
}

/// An opened source of events: a file or a live session.
#[derive(Debug)]
pub struct Trace {
    _private: (),
}

/// Ends processing from another thread or from the callback.
#[derive(Clone, Debug)]
pub struct Closer {
    _private: (),
}

impl Closer {
    /// No callback is made after the return, unless called from within one. What is queued is dropped.
    pub fn close(&self) {
        todo!()
    }
}

impl Trace {
    /// Opens a file.
    pub fn open_file(path: &Path) -> Result<Self> {
        let _ = path;
        todo!()
    }

    /// Opens a live session. Events written after the return are delivered.
    pub fn open_live(scope: Option<Scope>, session: &SessionRef) -> Result<Self> {
        let _ = (scope, session);
        todo!()
    }

    /// What the file or session says about itself.
    #[must_use]
    pub fn header(&self) -> &LogFileHeader {
        todo!()
    }

    /// To close it while it is processed.
    #[must_use]
    pub fn closer(&self) -> Closer {
        todo!()
    }
}

/// Delivers the events of all traces in time order until all have ended, were closed, or the callback breaks.
/// Files and live sessions may not be mixed; several live sessions are merged with a short delay.
pub fn process(traces: Vec<Trace>, each: impl FnMut(Item<'_>) -> ControlFlow<()>) -> Result<()> {
    let _ = (traces, each);
    todo!()
}
