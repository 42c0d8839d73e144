//! Several files as one stream in time order. The order within a file is [`traceweir_format::etl::Events`]' work.

use std::fs::File;
use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard};

use traceweir_format::etl::{Events, Trace};
use traceweir_format::time::FileTime;

use super::close::Gate;
use super::{Buffer, Event, Handler, logger_of};
use crate::error::Result;

/// Memory for open buffers of all files together; beyond it, buffers are given back and loaded again.
const TOGETHER: usize = 256 << 20;

/// One file on its way through.
struct Stream<'t> {
    trace: &'t Trace<File>,
    gate: &'t Gate,
    events: Events<'t, File>,
    /// Whether the ends of buffers are told.
    tells_ends: bool,
    done: bool,
}

/// Delivers all events; damage in a file is skipped, as far as the format's reader can.
pub(super) fn process<H: Handler>(files: &[(Trace<File>, Arc<Gate>)], handler: &mut H) -> Result<()> {
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
        streams.push(Stream { trace, gate, events, tells_ends: interest.has_buffers(), done });
    }
    merge(&mut streams, handler)
}

fn merge<'t, H: Handler>(streams: &mut [Stream<'t>], handler: &mut H) -> Result<()> {
    let mut entered: Option<(usize, MutexGuard<'t, ()>)> = None;
    while let Some(index) = earliest(streams) {
        let Some(stream) = streams.get_mut(index) else { break };
        let gate = stream.gate;
        if entered.as_ref().is_none_or(|(at, _)| *at != index) {
            // The old gate is left before the new one is waited for.
            drop(entered.take());
            entered = Some((index, gate.enter()));
        }
        if gate.is_left() {
            stream.done = true;
            entered = None;
            continue;
        }
        if stream.tells_ends && tell_ends(index, stream, handler)?.is_break() {
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

/// Tells of the buffers behind whose last event the next one lies.
#[inline]
fn tell_ends<H: Handler>(index: usize, stream: &mut Stream<'_>, handler: &mut H) -> Result<ControlFlow<()>> {
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

/// Delivers the buffers alone.
fn buffers<H: Handler>(
    index: usize,
    trace: &Trace<File>,
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

/// The file whose next event is the earliest; the first of several.
#[inline]
fn earliest(streams: &mut [Stream<'_>]) -> Option<usize> {
    if let [only] = streams {
        return (!only.done).then_some(0);
    }
    let mut best: Option<(FileTime, usize)> = None;
    let mut resident = 0_usize;
    for (index, stream) in streams.iter_mut().enumerate().filter(|(_, s)| !s.done) {
        let Some(raw) = stream.events.likely_time() else {
            if stream.events.has_end() {
                return Some(index);
            }
            stream.done = true;
            continue;
        };
        // A file that may load nothing twice is read to the end of what it has open.
        if stream.events.is_hurried() && stream.events.resident_bytes() > 0 {
            return Some(index);
        }
        resident = resident.saturating_add(stream.events.resident_bytes());
        if resident > TOGETHER {
            stream.events.park();
        }
        let time = stream.trace.clock().file_time(raw);
        if best.is_none_or(|(earliest, _)| time < earliest) {
            best = Some((time, index));
        }
    }
    best.map(|b| b.1)
}
