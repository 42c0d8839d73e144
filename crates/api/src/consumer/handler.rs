//! Who is told what comes out of traces, and when.
//!
//! ```text
//!   begins(0, …)  begins(1, …)                  once for each trace, before its first event
//!   event  event  lost  event … buffer          a buffer after the last of its events
//! ```
//!
//! All methods are called by the thread that processes, one at a time. Breaking ends the processing of all traces.

use std::ops::ControlFlow;

use traceweir_format::buffer::BufferHeader;
use traceweir_format::etl::{BufferRef, Trace};
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::time::FileTime;

use super::{Event, Item, Lost, TraceFile};
use crate::error::Result;

/// What a handler wants of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interest {
    /// Events.
    #[default]
    Events,
    /// Events, and the buffers after them.
    EventsAndBuffers,
    /// Buffers as the session wrote them; nothing in them is looked at.
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

/// A loss, and where in the stream it was noticed.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// How much.
    pub lost: Lost,
    /// Which of the traces.
    pub trace: usize,
    /// When it was noticed, on the session's clock.
    pub raw: i64,
    /// The same as wall time.
    pub time: FileTime,
}

/// What [`deliver`](super::deliver) tells.
pub trait Handler {
    /// What is wanted of a trace; asked once, before anything else.
    fn interest(&self, trace: usize) -> Interest {
        let _ = trace;
        Interest::Events
    }

    /// A trace begins: its log-file header and the number of its session.
    fn begins(&mut self, trace: usize, header: &LogFileHeader, logger: u16) {
        let _ = (trace, header, logger);
    }

    /// An event.
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()>;

    /// Events or buffers of a live session were lost.
    fn lost(&mut self, loss: Loss) -> ControlFlow<()>;

    /// All events of a buffer have been told.
    fn buffer(&mut self, buffer: Buffer<'_>) -> ControlFlow<()> {
        let _ = buffer;
        ControlFlow::Continue(())
    }
}

/// A function of items as a handler.
pub(super) struct Each<F>(pub(super) F);

impl<F: FnMut(Item<'_>) -> ControlFlow<()>> Handler for Each<F> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        (self.0)(Item::Event(event))
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        (self.0)(Item::Lost(loss.lost))
    }
}

/// The wall times between which events are delivered; both belong to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Nothing before.
    pub from: Option<FileTime>,
    /// Nothing after.
    pub to: Option<FileTime>,
}

/// A handler that is told only what happened in a window.
pub(super) struct Within<'h, H> {
    handler: &'h mut H,
    from: FileTime,
    to: FileTime,
}

impl<'h, H: Handler> Within<'h, H> {
    pub(super) fn new(handler: &'h mut H, window: &Window) -> Self {
        let (least, most) = (FileTime(i64::MIN), FileTime(i64::MAX));
        Self { handler, from: window.from.unwrap_or(least), to: window.to.unwrap_or(most) }
    }

    fn has(&self, time: FileTime) -> bool {
        (self.from..=self.to).contains(&time)
    }
}

impl<H: Handler> Handler for Within<'_, H> {
    fn interest(&self, trace: usize) -> Interest {
        self.handler.interest(trace)
    }

    fn begins(&mut self, trace: usize, header: &LogFileHeader, logger: u16) {
        self.handler.begins(trace, header, logger);
    }

    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        if self.has(event.time) { self.handler.event(event) } else { ControlFlow::Continue(()) }
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        if self.has(loss.time) { self.handler.lost(loss) } else { ControlFlow::Continue(()) }
    }

    fn buffer(&mut self, buffer: Buffer<'_>) -> ControlFlow<()> {
        self.handler.buffer(buffer)
    }
}

/// A buffer whose events have been told.
#[derive(Debug)]
pub struct Buffer<'b> {
    /// Which of the traces.
    pub trace: usize,
    /// Its header; of a compressed one as it is in the file.
    pub header: BufferHeader,
    bytes: Bytes<'b>,
}

#[derive(Debug)]
enum Bytes<'b> {
    Here(&'b [u8]),
    InFile(&'b Trace<TraceFile>, BufferRef),
}

impl<'b> Buffer<'b> {
    /// A buffer in memory; `None` if it is none.
    pub(super) fn here(trace: usize, bytes: &'b [u8]) -> Option<Self> {
        let header = BufferHeader::parse(bytes.first_chunk()?);
        let valid = bytes.get(..header.valid_bytes(bytes.len()))?;
        Some(Self { trace, header, bytes: Bytes::Here(valid) })
    }

    /// A buffer in a file.
    pub(super) fn in_file(trace: usize, file: &'b Trace<TraceFile>, at: BufferRef) -> Result<Self> {
        Ok(Self { trace, header: file.buffer_header(&at)?, bytes: Bytes::InFile(file, at) })
    }

    /// The buffer as it was in memory: its header, then the records, unpacked; of a file, read from there.
    pub fn copy_to(&self, into: &mut Vec<u8>) -> Result<()> {
        match &self.bytes {
            Bytes::Here(bytes) => {
                into.clear();
                into.extend_from_slice(bytes);
            }
            Bytes::InFile(file, at) => {
                file.load(at, into)?;
            }
        }
        Ok(())
    }

    /// Looks at its bytes, which are read into `room` only where they are not in memory already.
    pub fn with_bytes<T>(&self, room: &mut Vec<u8>, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        match &self.bytes {
            Bytes::Here(bytes) => Ok(look(bytes)),
            Bytes::InFile(..) => self.copy_to(room).map(|()| look(room)),
        }
    }
}
