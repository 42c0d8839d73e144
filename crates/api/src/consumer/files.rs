//! Several files as one stream in time order. The order within a file is [`traceweir_format::etl::Events`]' work.

use std::fs::File;
use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard};

use traceweir_format::etl::{Events, Trace};
use traceweir_format::time::FileTime;

use super::close::{Gate, inside};
use super::{Event, Item};
use crate::error::Result;

/// Memory for open buffers of all files together; beyond it, buffers are given back and loaded again.
const TOGETHER: usize = 256 << 20;

/// One file on its way through.
struct Stream<'t> {
    trace: &'t Trace<File>,
    gate: &'t Gate,
    events: Events<'t, File>,
    done: bool,
}

/// Delivers all events; damage in a file is skipped, as far as the format's reader can.
pub(super) fn process(
    files: &[(Trace<File>, Arc<Gate>)],
    mut each: impl FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut streams: Vec<Stream<'_>> = files
        .iter()
        .map(|(trace, gate)| Stream { trace, gate, events: trace.events(), done: false })
        .collect();
    let mut entered: Option<(usize, MutexGuard<'_, ()>)> = None;
    while let Some(index) = earliest(&mut streams) {
        let Some(Stream { trace, gate, events, done }) = streams.get_mut(index) else { break };
        if entered.as_ref().is_none_or(|(at, _)| *at != index) {
            // The old gate is left before the new one is waited for.
            drop(entered.take());
            entered = Some((index, gate.enter()));
        }
        if gate.is_closed() {
            *done = true;
            entered = None;
            continue;
        }
        let Some(record) = events.next()? else {
            *done = true;
            continue;
        };
        let clock = trace.clock();
        let event = Event { record: &record, time: clock.file_time(record.time()), trace: index, clock };
        if inside(|| each(Item::Event(event))).is_break() {
            break;
        }
    }
    Ok(())
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
