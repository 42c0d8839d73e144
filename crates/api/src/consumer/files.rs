//! Several files as one stream in time order. [`traceweir_format::etl::Events`] orders the events
//! within a file.

use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard};

use traceweir_format::etl::{Events, FileQueue, Trace};

use super::close::Gate;
use super::{Buffer, Event, Handler, TraceFile, logger_of};
use crate::error::Result;

/// One file during processing.
struct Stream<'t> {
    trace: &'t Trace<TraceFile>,
    gate: &'t Gate,
    events: Events<'t, TraceFile>,
    /// The handler wants the ends of buffers.
    reports_ends: bool,
    done: bool,
}

/// Delivers all events; skips damage in a file as far as the format's reader can.
pub(super) fn process<H: Handler>(files: &[(Trace<TraceFile>, Arc<Gate>)], handler: &mut H) -> Result<()> {
    let mut streams = Vec::with_capacity(files.len());
    for (index, (trace, gate)) in files.iter().enumerate() {
        let interest = handler.interest(index);
        let mut events = trace.events();
        if interest.has_buffers() {
            events.note_ends();
        }
        handler.begins(index, trace.header(), logger_of(trace.source()));
        let done = !interest.has_events();
        if done && buffers(index, trace, gate, handler)?.is_break() {
            return Ok(());
        }
        streams.push(Stream { trace, gate, events, reports_ends: interest.has_buffers(), done });
    }
    merge(&mut streams, handler)
}

fn merge<'t, H: Handler>(streams: &mut [Stream<'t>], handler: &mut H) -> Result<()> {
    let mut entered: Option<(usize, MutexGuard<'t, ()>)> = None;
    let mut turns = Turns::new(streams);
    while let Some(index) = turns.next(streams) {
        let Some(stream) = streams.get_mut(index) else { break };
        let gate = stream.gate;
        if entered.as_ref().is_none_or(|(at, _)| *at != index) {
            // The old gate is released before the new one is locked.
            drop(entered.take());
            entered = Some((index, gate.enter()));
        }
        if gate.is_left() {
            stream.done = true;
            entered = None;
            continue;
        }
        if stream.reports_ends && report_ends(index, stream, handler)?.is_break() {
            break;
        }
        let Stream { trace, events, done, .. } = stream;
        let Some(record) = events.next()? else {
            *done = true;
            continue;
        };
        let clock = trace.clock();
        let event = Event { record: &record, time: clock.file_time(record.time()), trace: index, clock };
        if handler.event(event).is_break() {
            break;
        }
    }
    Ok(())
}

/// The file that is next: a single file, or the earliest of several.
enum Turns {
    Alone,
    Several { queue: FileQueue, last: Option<usize> },
}

impl Turns {
    fn new(streams: &mut [Stream<'_>]) -> Self {
        if streams.len() == 1 {
            return Self::Alone;
        }
        let mut queue = FileQueue::default();
        for (index, stream) in streams.iter_mut().enumerate() {
            schedule(&mut queue, index, stream);
        }
        Self::Several { queue, last: None }
    }

    /// Returns the file whose next event is the earliest; the first of several.
    #[inline(always)]
    fn next(&mut self, streams: &mut [Stream<'_>]) -> Option<usize> {
        match self {
            Self::Alone => streams.first().filter(|only| !only.done).map(|_| 0),
            Self::Several { queue, last } => Self::earliest(queue, last, streams),
        }
    }

    #[inline(never)]
    fn earliest(
        queue: &mut FileQueue,
        last: &mut Option<usize>,
        streams: &mut [Stream<'_>],
    ) -> Option<usize> {
        if let Some((index, stream)) = last.and_then(|index| Some((index, streams.get_mut(index)?))) {
            schedule(queue, index, stream);
            while let Some(stream) = queue.excess().and_then(|index| streams.get_mut(index)) {
                stream.events.park();
            }
        }
        *last = queue.pop();
        *last
    }
}

/// Schedules the next turn of a file that was read. A file without further events still reports its
/// last buffers.
#[inline]
fn schedule(queue: &mut FileQueue, index: usize, stream: &mut Stream<'_>) {
    if stream.done || queue.push(index, &mut stream.events, stream.trace.clock()) {
        return;
    }
    if stream.events.has_end() {
        queue.push_front(index);
    } else {
        stream.done = true;
    }
}

/// Reports the buffers whose last event precedes the next event.
#[inline]
fn report_ends<H: Handler>(
    index: usize,
    stream: &mut Stream<'_>,
    handler: &mut H,
) -> Result<ControlFlow<()>> {
    stream.events.peek_time()?;
    while stream.events.has_end() && !stream.gate.is_left() {
        let Some(end) = stream.events.next_end() else { break };
        let buffer = Buffer::in_file(index, stream.trace, end)?;
        if handler.buffer(buffer).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Delivers the buffers without their events.
fn buffers<H: Handler>(
    index: usize,
    trace: &Trace<TraceFile>,
    gate: &Gate,
    handler: &mut H,
) -> Result<ControlFlow<()>> {
    let _entered = gate.enter();
    for at in trace.buffers_as_written() {
        if gate.is_left() {
            break;
        }
        let buffer = Buffer::in_file(index, trace, at)?;
        if handler.buffer(buffer).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
