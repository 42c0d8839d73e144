//! Passes events, losses and buffers from the crate `traceweir` to the callbacks of the program.
//!
//! Each trace has a [`TraceConsumer`]: its callbacks, and the structures that they receive. A
//! [`TraceDelivery`] holds the consumers of all traces that are processed together.

use std::ffi::c_void;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use traceweir::consumer::{Buffer, Event, Handler, Interest, Kind, Loss};
use traceweir_decode::Decoder;
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::{Family, Record};
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::event::class;
use traceweir_format::spec::session::BUFFER_FLAGS_OF_LOSS;

use super::details::TraceDetails;
use super::layout::{
    BufferCallback, BufferCallbackInformation, EventCallback, EventRecordCallback, EventTrace,
    EventTraceLogfile, LogfileBufferCallback, TraceLogfileHeader,
};
use super::record::Assembler;
use super::schemas::ThreadDelivery;
use super::{aligned::AlignedBytes, classes, references};

/// Type of the classic event that reports lost events.
const EVENTS_LOST_TYPE: u8 = 32;
/// Type of the classic event that reports lost buffers.
const BUFFERS_LOST_TYPE: u8 = 33;

/// The callback that receives events.
#[derive(Clone, Copy)]
pub(super) enum OnEvent {
    Ignore,
    Record(EventRecordCallback),
    Classic(EventCallback),
}

/// The callback that receives buffers.
pub(super) enum OnBuffer {
    Ignore,
    /// Receives a copy of the structure that the trace was opened with.
    Logfile(LogfileBufferCallback, Box<LogfileWithNames>),
    /// Receives the buffer itself.
    Bytes(BufferCallback, *mut c_void),
}

/// An EVENT_TRACE_LOGFILE for buffer callbacks, and the names that it points to.
pub(super) struct LogfileWithNames {
    pub(super) structure: EventTraceLogfile,
    _names: [Option<Box<[u16]>>; 2],
}

/// The callbacks of one trace, and the structures that they receive.
pub(super) struct TraceConsumer {
    pub(super) handle: u64,
    /// Whether events have stamps of the session's clock, not FILETIMEs.
    pub(super) has_raw_stamps: bool,
    on_event: OnEvent,
    on_buffer: OnBuffer,
    assembler: Assembler,
    header: TraceLogfileHeader,
    details: Option<Arc<TraceDetails>>,
    buffers_read: u32,
    events_lost: u32,
    last_time: i64,
    /// The bytes of the buffer that a callback receives.
    buffer_bytes: AlignedBytes,
    /// Memory to read a buffer from a file.
    read_buffer: Vec<u8>,
}

// SAFETY: the library never dereferences the program's contexts; addresses of structures point into
// the consumer itself or into the buffer that is being delivered. The caller that opens the trace
// permits the processing thread to use functions and contexts.
unsafe impl Send for TraceConsumer {}

impl TraceConsumer {
    pub(super) fn new(
        on_event: OnEvent,
        on_buffer: OnBuffer,
        has_raw_stamps: bool,
        context: *mut c_void,
    ) -> Self {
        Self {
            handle: 0,
            has_raw_stamps,
            on_event,
            on_buffer,
            assembler: Assembler::new(context),
            header: TraceLogfileHeader::from(&LogFileHeader::default()),
            details: None,
            buffers_read: 0,
            events_lost: 0,
            last_time: 0,
            buffer_bytes: AlignedBytes::default(),
            read_buffer: Vec::new(),
        }
    }

    /// Resets the counts, before a file is processed once more.
    pub(super) fn rewind(&mut self) {
        (self.buffers_read, self.events_lost) = (0, 0);
    }

    #[inline(always)]
    fn call_event_callbacks(&mut self, record: &Record<'_>, stamp: i64) {
        if classes::has_any() && is_classic(record) {
            self.call_class_callback(record, stamp);
        }
        match self.on_event {
            // SAFETY: the program opened the trace with a function of this type; its argument
            // lives until it returns.
            OnEvent::Record(function) => unsafe { function(self.assembler.fill_record(record, stamp)) },
            // SAFETY: as for `OnEvent::Record`.
            OnEvent::Classic(function) => unsafe { function(self.assembler.fill_trace(record, stamp)) },
            OnEvent::Ignore => {}
        }
    }

    #[cold]
    fn call_class_callback(&mut self, record: &Record<'_>, stamp: i64) {
        if let Some(function) = classes::find_callback(&record.provider()) {
            // SAFETY: the function has this type by the contract of `SetTraceCallback`; its
            // argument lives until it returns.
            unsafe { function(self.assembler.fill_trace(record, stamp)) };
        }
    }

    /// Delivers a loss as events of the class LOST_EVENT, without a payload.
    fn deliver_loss(&mut self, loss: &Loss) {
        let stamp = if self.has_raw_stamps { loss.raw } else { loss.time.0 };
        // A loss without numbers counts as a loss of events.
        let loss_types = [
            (loss.lost.events > 0 || loss.lost.buffers == 0, EVENTS_LOST_TYPE),
            (loss.lost.buffers > 0, BUFFERS_LOST_TYPE),
        ];
        for (_, loss_type) in loss_types.into_iter().filter(|(happened, _)| *happened) {
            let mut bytes = Vec::new();
            let header = ClassicHeader {
                class: class::LOST_EVENT,
                opcode: loss_type,
                time: loss.raw,
                ..ClassicHeader::default()
            };
            if header.encode(&[], &mut bytes).is_ok()
                && let Ok(record) = Record::parse(&bytes, 0)
            {
                self.call_event_callbacks(&record, stamp);
            }
        }
    }

    /// Calls the buffer callback and returns whether to continue.
    fn call_buffer_callback(&mut self, buffer: &Buffer<'_>) -> bool {
        self.buffers_read = self.buffers_read.saturating_add(1);
        match &mut self.on_buffer {
            OnBuffer::Ignore => true,
            OnBuffer::Logfile(function, logfile) => {
                let log = &mut logfile.structure;
                log.buffers_read = self.buffers_read;
                log.filled = buffer.header.offset;
                log.events_lost = self.header.events_lost.saturating_add(self.events_lost);
                log.current_time = self.last_time;
                log.current_event = self.assembler.last_trace();
                // SAFETY: the program opened the trace with a function of this type; the structure
                // and its names live as long as the consumer.
                unsafe { function(log) != 0 }
            }
            OnBuffer::Bytes(function, context) => {
                let (function, context) = (*function, *context);
                self.call_with_bytes(buffer, function, context)
            }
        }
    }

    fn call_with_bytes(
        &mut self,
        buffer: &Buffer<'_>,
        function: BufferCallback,
        context: *mut c_void,
    ) -> bool {
        let buffer_bytes = &mut self.buffer_bytes;
        if buffer.with_bytes(&mut self.read_buffer, |bytes| buffer_bytes.fill(bytes)).is_err() {
            // The file changed after the events of the buffer were read, so there are no bytes
            // to pass on.
            return true;
        }
        let information = BufferCallbackInformation {
            trace_handle: self.handle,
            logfile_header: &raw const self.header,
            buffers_read: self.buffers_read,
        };
        let at = self.buffer_bytes.address();
        let size = u32::try_from(self.buffer_bytes.length_bytes()).unwrap_or(u32::MAX);
        let current = references::CurrentBuffer::new(self.handle, at.addr());
        // SAFETY: the program opened the trace with a function of this type; its arguments live
        // until it returns.
        let should_continue = unsafe { function(at, size, &information, context) != 0 };
        // If the bytes move to `references`, their address stays the same.
        current.end_callback(&mut self.buffer_bytes);
        should_continue
    }
}

fn is_classic(record: &Record<'_>) -> bool {
    record.family().has_hook() || matches!(record.family(), Family::Full | Family::Instance)
}

/// The consumers of all traces that are processed together.
pub(super) struct TraceDelivery {
    pub(super) consumers: Vec<TraceConsumer>,
    /// Whether a buffer callback ended the delivery.
    pub(super) is_cancelled: bool,
    thread_delivery: Rc<ThreadDelivery>,
}

impl TraceDelivery {
    pub(super) fn new(thread_delivery: Rc<ThreadDelivery>) -> Self {
        Self { consumers: Vec::new(), is_cancelled: false, thread_delivery }
    }

    pub(super) fn add(&mut self, mut consumer: TraceConsumer, details: Arc<TraceDetails>) {
        consumer.details = Some(details);
        self.consumers.push(consumer);
    }
}

impl Handler for TraceDelivery {
    fn interest(&self, trace: usize) -> Interest {
        let Some(consumer) = self.consumers.get(trace) else { return Interest::Events };
        let is_file = consumer.details.as_ref().is_some_and(|details| details.kind == Kind::File);
        match (&consumer.on_event, &consumer.on_buffer) {
            // A trace opened with options and without an event callback needs no decoding.
            (OnEvent::Ignore, OnBuffer::Bytes(..)) => Interest::Buffers,
            // The losses of a file were read when it was opened.
            (_, OnBuffer::Ignore) if is_file => Interest::Events,
            _ => Interest::EventsAndBuffers,
        }
    }

    fn uses_raw_stamps(&self) -> bool {
        self.consumers.iter().all(|consumer| consumer.has_raw_stamps)
    }

    fn begins(&mut self, trace: usize, header: &LogFileHeader, logger: u16) {
        let Some(consumer) = self.consumers.get_mut(trace) else { return };
        consumer.assembler.begin_session(header, logger);
        consumer.header = TraceLogfileHeader::from(header);
        consumer.last_time = header.start_time.0;
    }

    #[inline(always)]
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        if let Some(consumer) = self.consumers.get_mut(event.trace) {
            let stamp = if consumer.has_raw_stamps { event.record.time() } else { event.time.0 };
            consumer.last_time = event.time.0;
            self.thread_delivery.select_trace(event.trace);
            if Decoder::is_informative(event.record)
                && let Some(details) = &consumer.details
            {
                details.schemas.observe(event.record);
            }
            consumer.call_event_callbacks(event.record, stamp);
        }
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        if let Some(consumer) = self.consumers.get_mut(loss.trace) {
            let lost = u32::try_from(loss.lost.events).unwrap_or(u32::MAX);
            consumer.events_lost = consumer.events_lost.saturating_add(lost);
            self.thread_delivery.select_trace(loss.trace);
            consumer.deliver_loss(&loss);
        }
        ControlFlow::Continue(())
    }

    fn buffer(&mut self, buffer: Buffer<'_>) -> ControlFlow<()> {
        let Some(consumer) = self.consumers.get_mut(buffer.trace) else { return ControlFlow::Continue(()) };
        if buffer.header.flags & BUFFER_FLAGS_OF_LOSS != 0
            && let Some(details) = consumer.details.as_ref().filter(|details| details.kind != Kind::File)
        {
            details.record_loss(buffer.header.processor_index, buffer.header.time_stamp);
        }
        if consumer.call_buffer_callback(&buffer) {
            return ControlFlow::Continue(());
        }
        self.is_cancelled = true;
        ControlFlow::Break(())
    }
}

impl LogfileWithNames {
    /// Copies the structure of a program that opens a trace, with copies of its names.
    pub(super) fn new(structure: &EventTraceLogfile, names: [Option<Box<[u16]>>; 2]) -> Box<Self> {
        let address = |name: &Option<Box<[u16]>>| {
            name.as_ref().map_or(std::ptr::null_mut(), |name| name.as_ptr().cast_mut().cast())
        };
        let [log_file_name, logger_name] = names.each_ref().map(address);
        let structure =
            EventTraceLogfile { log_file_name, logger_name, current_event: EventTrace::NONE, ..*structure };
        Box::new(Self { structure, _names: names })
    }
}
