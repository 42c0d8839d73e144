//! Joins events with the call stacks that follow them as events of their own.

use traceweir_analysis::event::DescribedEvent;
use traceweir_decode::stack::{Joined, Joiner, StackClaim};
use traceweir_format::stack_walk::StackWalk;

use crate::batch::{CopiedEvent, FrameData, copy_stack};

/// Events that wait for their stacks. Their number and size are bounded by [`Joiner`].
#[derive(Default)]
pub(crate) struct StackCollector {
    joiner: Joiner<WaitingEvent>,
}

/// An event and the parts of its stack that have arrived, innermost frame first.
struct WaitingEvent {
    copied: CopiedEvent,
    record: Box<[u8]>,
    kernel: Vec<FrameData>,
    user: Vec<FrameData>,
}

impl StackCollector {
    /// Adds the stack of a stack event to the event that it belongs to. Returns false for other
    /// events, and for a stack whose event is not there.
    pub(crate) fn attach(&mut self, event: &DescribedEvent<'_>) -> bool {
        let record = &event.record;
        let Some(walk) = StackWalk::parse(record) else { return false };
        let position = (event.file, record.cpu(), event.time.0);
        self.joiner.attach(&walk, position, event.definitions(), |waiting| {
            let frames = copy_stack(event).unwrap_or_default();
            let bytes = frames.len().saturating_mul(size_of::<FrameData>());
            if walk.is_kernel() { &mut waiting.kernel } else { &mut waiting.user }.extend(frames);
            bytes
        })
    }

    /// Adds an event, which may get a stack.
    pub(crate) fn add(&mut self, event: &DescribedEvent<'_>, copied: CopiedEvent) {
        let claim = StackClaim::from_record(&event.record, event.file, event.time.0);
        let record: Box<[u8]> = event.record.bytes().into();
        let frames = copied.data.stack.as_ref().map_or(0, |frames| frames.len());
        let bytes = record.len().saturating_add(frames.saturating_mul(size_of::<FrameData>()));
        let waiting = WaitingEvent { copied, record, kernel: Vec::new(), user: Vec::new() };
        if StackWalk::is_stack_walk(&event.record) {
            self.joiner.add_without_stack(claim, waiting, bytes);
        } else {
            self.joiner.expect(claim, waiting, bytes, event.frames().into_iter().flatten());
        }
    }

    /// Passes on the events that get no further stack.
    pub(crate) fn release(&mut self, push: &mut impl FnMut(CopiedEvent, &[u8])) {
        while let Some(joined) = self.joiner.next_ready() {
            push_joined(joined, push);
        }
    }

    /// Passes on all events.
    pub(crate) fn end(&mut self, push: &mut impl FnMut(CopiedEvent, &[u8])) {
        self.joiner.end();
        self.release(push);
    }
}

fn push_joined(joined: Joined<WaitingEvent>, push: &mut impl FnMut(CopiedEvent, &[u8])) {
    let WaitingEvent { mut copied, record, mut kernel, user } = joined.event;
    if !(kernel.is_empty() && user.is_empty()) {
        kernel.extend(user);
        copied.data.stack = Some(kernel.into());
    }
    push(copied, &record);
}
