//! The handler that gets the contents of traces, and the order of its calls.
//!
//! ```text
//!   begins(0, …)  begins(1, …)                  once for each trace, before its first event
//!   event  event  lost  event … buffer          a buffer after the last of its events
//! ```
//!
//! The processing thread calls all methods, one at a time. `ControlFlow::Break` ends the processing
//! of all traces.

use std::ops::ControlFlow;

use traceweir_format::buffer::BufferHeader;
use traceweir_format::etl::{BufferRef, Trace};
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::time::FileTime;

use super::{Event, Item, Lost, TraceFile};
use crate::error::Result;

/// The items that a handler wants from a trace.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interest {
    /// Events, but no buffers.
    #[default]
    Events,
    /// Events, and each buffer after its last event.
    EventsAndBuffers,
    /// Buffers as the session wrote them, without reading their contents.
    Buffers,
}

impl Interest {
    pub(super) fn has_events(self) -> bool {
        self != Self::Buffers
    }

    pub(super) fn has_buffers(self) -> bool {
        self != Self::Events
    }
}

/// A loss, and the position in the stream where it was noticed.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// The lost events and buffers.
    pub lost: Lost,
    /// Index of the trace.
    pub trace: usize,
    /// Time at which the loss was noticed, on the session's clock.
    pub raw: i64,
    /// The same time as wall time.
    pub time: FileTime,
}

/// A receiver of everything that [`deliver`](super::deliver) reads.
pub trait Handler {
    /// Returns which items of a trace the handler wants. It can be called more than once and must
    /// always return the same value for a trace.
    fn interest(&self, trace: usize) -> Interest {
        let _ = trace;
        Interest::Events
    }

    /// Returns whether the handler uses the stamps of events ([`Record::time`]) and not their wall
    /// times. Events of files that have the same counter are then delivered in the order of their
    /// stamps, which the rounded wall times of several files may contradict.
    ///
    /// [`Record::time`]: traceweir_format::header::Record::time
    fn uses_raw_stamps(&self) -> bool {
        false
    }

    /// Handles the beginning of a trace: its log-file header and logger id.
    fn begins(&mut self, trace: usize, header: &LogFileHeader, logger: u16) {
        let _ = (trace, header, logger);
    }

    /// Handles an event.
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()>;

    /// Handles a loss of events or buffers in a live session or in added buffers.
    fn lost(&mut self, loss: Loss) -> ControlFlow<()>;

    /// Handles a buffer after all its events.
    fn buffer(&mut self, buffer: Buffer<'_>) -> ControlFlow<()> {
        let _ = buffer;
        ControlFlow::Continue(())
    }
}

/// A handler that calls a function for each item.
pub(super) struct FunctionHandler<F>(pub(super) F);

impl<F: FnMut(Item<'_>) -> ControlFlow<()>> Handler for FunctionHandler<F> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        (self.0)(Item::Event(event))
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        (self.0)(Item::Lost(loss.lost))
    }
}

/// The wall times between which events are delivered, both inclusive.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The earliest time, if limited.
    pub from: Option<FileTime>,
    /// The latest time, if limited.
    pub to: Option<FileTime>,
}

impl Window {
    /// Creates a window; `None` is no limit.
    #[must_use]
    pub const fn new(from: Option<FileTime>, to: Option<FileTime>) -> Self {
        Self { from, to }
    }
}

/// A handler that gets only the events and losses within a window, and all buffers.
pub(super) struct WindowHandler<'h, H> {
    handler: &'h mut H,
    from: FileTime,
    to: FileTime,
}

impl<'h, H: Handler> WindowHandler<'h, H> {
    pub(super) fn new(handler: &'h mut H, window: &Window) -> Self {
        let (earliest, latest) = (FileTime(i64::MIN), FileTime(i64::MAX));
        Self { handler, from: window.from.unwrap_or(earliest), to: window.to.unwrap_or(latest) }
    }

    fn contains(&self, time: FileTime) -> bool {
        (self.from..=self.to).contains(&time)
    }
}

impl<H: Handler> Handler for WindowHandler<'_, H> {
    fn interest(&self, trace: usize) -> Interest {
        self.handler.interest(trace)
    }

    fn uses_raw_stamps(&self) -> bool {
        self.handler.uses_raw_stamps()
    }

    fn begins(&mut self, trace: usize, header: &LogFileHeader, logger: u16) {
        self.handler.begins(trace, header, logger);
    }

    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        if self.contains(event.time) { self.handler.event(event) } else { ControlFlow::Continue(()) }
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        if self.contains(loss.time) { self.handler.lost(loss) } else { ControlFlow::Continue(()) }
    }

    fn buffer(&mut self, buffer: Buffer<'_>) -> ControlFlow<()> {
        self.handler.buffer(buffer)
    }
}

/// A buffer whose events have been delivered, if the handler wants them.
#[non_exhaustive]
#[derive(Debug)]
pub struct Buffer<'b> {
    /// Index of the trace.
    pub trace: usize,
    /// Header of the buffer; for a compressed one, as it is in the file.
    pub header: BufferHeader,
    bytes: BufferBytes<'b>,
}

#[derive(Debug)]
enum BufferBytes<'b> {
    InMemory(&'b [u8]),
    InFile(&'b Trace<TraceFile>, BufferRef),
}

impl<'b> Buffer<'b> {
    /// Wraps a buffer in memory; `None` if the bytes are not a buffer.
    pub(super) fn in_memory(trace: usize, bytes: &'b [u8]) -> Option<Self> {
        let header = BufferHeader::parse(bytes.first_chunk()?);
        let valid = bytes.get(..header.valid_bytes(bytes.len()))?;
        Some(Self { trace, header, bytes: BufferBytes::InMemory(valid) })
    }

    /// Refers to a buffer in a file.
    pub(super) fn in_file(trace: usize, file: &'b Trace<TraceFile>, at: BufferRef) -> Result<Self> {
        Ok(Self { trace, header: file.buffer_header(&at)?, bytes: BufferBytes::InFile(file, at) })
    }

    /// Replaces the contents of `into` with the uncompressed buffer: its header, then the records.
    pub fn copy_to(&self, into: &mut Vec<u8>) -> Result<()> {
        match &self.bytes {
            BufferBytes::InMemory(bytes) => {
                into.clear();
                into.extend_from_slice(bytes);
            }
            BufferBytes::InFile(file, at) => {
                file.load(at, into)?;
            }
        }
        Ok(())
    }

    /// Calls `read` with the bytes of the uncompressed buffer, which are copied into `room` only if
    /// they are not in memory already.
    pub fn with_bytes<T>(&self, room: &mut Vec<u8>, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        match &self.bytes {
            BufferBytes::InMemory(bytes) => Ok(read(bytes)),
            BufferBytes::InFile(..) => self.copy_to(room).map(|()| read(room)),
        }
    }
}
