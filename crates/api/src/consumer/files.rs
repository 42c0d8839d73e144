//! Several files as one stream in time order. [`traceweir_format::etl::Events`] orders the events
//! within a file.

use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard};

use traceweir_format::etl::{Events, MergedFiles, Trace};

use super::close::CloseGate;
use super::{Buffer, Event, Handler, TraceFile, read_logger_id};
use crate::error::Result;

/// One file during processing.
struct FileStream<'t> {
    trace: &'t Trace<TraceFile>,
    gate: &'t CloseGate,
    /// The handler wants each buffer after its last event.
    reports_ends: bool,
}

/// Delivers all events; skips damage in a file as far as the format's reader can.
pub(super) fn process<H: Handler>(
    files: &[(Arc<Trace<TraceFile>>, Arc<CloseGate>)],
    handler: &mut H,
) -> Result<()> {
    let mut merged = MergedFiles::new(files.iter().map(|(trace, _)| &**trace));
    if handler.uses_raw_stamps() {
        merged.share_clocks();
    }
    let mut streams = Vec::with_capacity(files.len());
    for (index, (trace, gate)) in files.iter().enumerate() {
        let interest = handler.interest(index);
        if let Some(events) = merged.events_mut(index).filter(|_| interest.has_buffers()) {
            events.note_ends();
        }
        handler.begins(index, trace.header(), read_logger_id(trace.source()));
        if !interest.has_events() {
            merged.end(index);
            if deliver_buffers(index, trace, gate, handler)?.is_break() {
                return Ok(());
            }
        }
        streams.push(FileStream { trace, gate, reports_ends: interest.has_buffers() });
    }
    merge(&mut merged, &streams, handler)
}

fn merge<'t, H: Handler>(
    merged: &mut MergedFiles<'t, TraceFile>,
    streams: &[FileStream<'t>],
    handler: &mut H,
) -> Result<()> {
    let mut entered: Option<(usize, MutexGuard<'t, ()>)> = None;
    while let Some(index) = merged.next_file() {
        let Some(stream) = streams.get(index) else { break };
        let gate = stream.gate;
        if entered.as_ref().is_none_or(|(at, _)| *at != index) {
            // The old gate is released before the new one is locked.
            drop(entered.take());
            entered = Some((index, gate.lock()));
        }
        if gate.is_closed_or_ending() {
            merged.end(index);
            entered = None;
            continue;
        }
        if stream.reports_ends
            && let Some(events) = merged.events_mut(index)
            && report_ends(index, stream, events, handler)?.is_break()
        {
            break;
        }
        let Some(record) = merged.read(index)? else { continue };
        let clock = stream.trace.clock();
        let event = Event { record: &record, time: clock.file_time(record.time()), trace: index, clock };
        if handler.event(event).is_break() {
            break;
        }
    }
    Ok(())
}

/// Reports the buffers whose last event precedes the next event.
#[inline]
fn report_ends<H: Handler>(
    index: usize,
    stream: &FileStream<'_>,
    events: &mut Events<'_, TraceFile>,
    handler: &mut H,
) -> Result<ControlFlow<()>> {
    // Moves past the current event, so that a buffer of which it was the last event has ended.
    events.peek_time()?;
    while events.has_end() && !stream.gate.is_closed_or_ending() {
        let Some(end) = events.next_end() else { break };
        let buffer = Buffer::in_file(index, stream.trace, end)?;
        if handler.buffer(buffer).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Delivers the buffers without their events.
fn deliver_buffers<H: Handler>(
    index: usize,
    trace: &Trace<TraceFile>,
    gate: &CloseGate,
    handler: &mut H,
) -> Result<ControlFlow<()>> {
    let _entered = gate.lock();
    for buffer_ref in trace.buffers_as_written() {
        if gate.is_closed_or_ending() {
            break;
        }
        let buffer = Buffer::in_file(index, trace, buffer_ref)?;
        if handler.buffer(buffer).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
