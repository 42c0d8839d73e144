//! The shared capture as a source of one session: converts the events that the session selects to
//! EVENT records.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::kernel::providers::EventFacts;
use traceweir_format::spec::event::ExtType;
use traceweir_format::wire::{Put, u16_at};
use traceweir_session::Result;
use traceweir_session::capture::{self, CaptureClock, CapturedRecord};

use super::SharedCapture;
use super::queue::{EventQueue, QueuedEvent};
use crate::kernel::selection::SelectedEvent;

/// Maximum number of bytes of addresses in a stack: 192 frames.
const MAX_FRAME_BYTES: usize = 192 * 8;

/// A finished record of a stream.
struct EventRecord {
    raw: u64,
    /// The record, with its padding.
    bytes: Vec<u8>,
    length: usize,
}

/// A session's source of events.
pub(super) struct Subscription {
    /// `None` while the subscription is being dropped.
    capture: Option<Arc<SharedCapture>>,
    queue: Arc<EventQueue>,
    wake: OwnedFd,
    /// Records by stream.
    streams: Vec<VecDeque<EventRecord>>,
    payload: Vec<u8>,
}

impl Subscription {
    pub(super) fn new(capture: Arc<SharedCapture>, queue: Arc<EventQueue>, streams: u16) -> Result<Self> {
        let wake = capture.subscribe(Arc::clone(&queue))?;
        let streams = (0..streams.max(1)).map(|_| VecDeque::new()).collect();
        Ok(Self { capture: Some(capture), queue, wake, streams, payload: Vec::new() })
    }

    fn take_events(&mut self, clock: &dyn CaptureClock) {
        for queued in self.queue.take_waiting() {
            let stream = usize::from(queued.event.cpu).min(self.streams.len().saturating_sub(1));
            for selected in queued.selection.events_of_hook(queued.event.hook) {
                match build_record(&queued, selected, clock, &mut self.payload) {
                    Some(record) => {
                        if let Some(records) = self.streams.get_mut(stream) {
                            records.push_back(record);
                        }
                    }
                    None => self.queue.count_dropped(),
                }
            }
        }
    }

    fn unsubscribe(&self) {
        self.queue.end();
        if let Some(capture) = &self.capture {
            capture.unsubscribe(&self.queue);
        }
    }
}

/// Builds the EVENT record of an event. Returns `None` if the event is too large.
fn build_record(
    queued: &QueuedEvent,
    selected: &SelectedEvent,
    clock: &dyn CaptureClock,
    payload: &mut Vec<u8>,
) -> Option<EventRecord> {
    let (event, facts) = (&queued.event, &queued.event.facts);
    payload.clear();
    let converted = EventFacts {
        time: facts.time,
        create_time: facts.create_time,
        parent_key: facts.parent_key,
        to_ticks: &|ns| clock.ticks(ns),
    };
    if !selected.event.convert(&event.payload, &converted, payload) {
        return None;
    }
    let mut stack = Vec::new();
    if selected.has_stack && !event.frames.is_empty() {
        // The match id is 0: the stack is complete.
        stack.put_u64(0).put(event.frames.get(..MAX_FRAME_BYTES).unwrap_or(&event.frames));
    }
    let items = [Item { kind: ExtType::STACK_TRACE64, data: &stack }];
    let header = EventHeader {
        thread_id: facts.thread_id,
        process_id: facts.process_id,
        provider: selected.event.provider,
        descriptor: selected.event.descriptor,
        items: if stack.is_empty() { &[] } else { &items },
        ..EventHeader::default()
    };
    let mut bytes = Vec::new();
    header.encode(payload, &mut bytes).ok()?;
    // The first field of a record is its size without padding.
    let length = usize::from(u16_at(&bytes, 0));
    Some(EventRecord { raw: clock.raw(queued.time_ns), bytes, length })
}

impl capture::Capture for Subscription {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn begin(&mut self) {
        self.queue.begin();
    }

    fn has_complete_events(&self) -> bool {
        true
    }

    fn is_finished(&self) -> bool {
        self.queue.is_finished() && self.streams.iter().all(VecDeque::is_empty)
    }

    fn poll(&mut self, clock: &dyn CaptureClock, includes_newer: bool) {
        if let Some(capture) = &self.capture {
            capture.poll(includes_newer);
        }
        self.take_events(clock);
    }

    fn peek(&self, stream: u16) -> Option<CapturedRecord> {
        let record = self.streams.get(usize::from(stream))?.front()?;
        Some(CapturedRecord { length: record.length, raw: record.raw, is_stack: false })
    }

    fn take(&mut self, stream: u16, out: &mut [u8]) {
        let Some(records) = self.streams.get_mut(usize::from(stream)) else { return };
        let Some(record) = records.pop_front() else { return };
        let length = record.length.min(out.len());
        if let (Some(from), Some(to)) = (record.bytes.get(..length), out.get_mut(..length)) {
            to.copy_from_slice(from);
        }
    }

    fn lost(&self) -> u64 {
        self.queue.losses().all
    }

    fn lost_in_kernel(&self) -> u64 {
        self.queue.losses().in_kernel
    }

    fn end(&mut self, clock: &dyn CaptureClock) {
        self.poll(clock, true);
        self.unsubscribe();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.unsubscribe();
        // Closing the capture takes long, and this is a thread of the session.
        if let Some(last) = self.capture.take().and_then(Arc::into_inner) {
            let close = std::thread::Builder::new().name("weir-close".into());
            // If no thread can be created, the capture is closed here.
            let _ = close.spawn(move || drop(last));
        }
    }
}
