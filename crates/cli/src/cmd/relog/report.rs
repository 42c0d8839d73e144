//! The summary and the warnings at the end of `weir relog`.

use traceweir::relog::Summary;
use traceweir_format::time::FileTime;

use super::Tally;
use crate::filter::Filter;
use crate::text::{counted, grouped};
use crate::traces::Traces;

/// Formats what was written, and how many of the events read are not in it.
pub(super) fn line(path: &str, done: &Summary, tally: &Tally) -> String {
    let (events, buffers) = (counted(done.events, "event"), counted(u64::from(done.buffers), "buffer"));
    let (bytes, span) = (counted(done.bytes, "byte"), format!("{} to {}", done.start, done.end));
    // The header of the output is an event that was not read; all its other events were read.
    let there = done.events.saturating_sub(1).saturating_sub(done.injected).saturating_add(done.folded);
    let out = match tally.read.saturating_sub(there) {
        0 => String::new(),
        out => format!("; {} left out", grouped(out)),
    };
    format!("{path}: {events} in {buffers}, {bytes}, {span}{out}")
}

/// Returns a warning about events whose extended data items were invalid.
pub(super) fn mended(done: &Summary) -> Option<String> {
    let events = counted(done.items_dropped, "event");
    (done.items_dropped > 0).then(|| {
        format!("{events} had inconsistent extended data items: their bytes are now the beginning of the payload, as readers interpret them")
    })
}

/// Returns when the inputs begin and end, by their headers and their events.
pub(super) fn span(traces: &Traces, tally: &Tally) -> (FileTime, FileTime) {
    let ends = traces.inputs.iter().map(|input| input.trace.header().end_time);
    let (first, last) = tally.span.unwrap_or((traces.start(), traces.start()));
    (traces.start().min(first), ends.fold(last, FileTime::max))
}

/// Returns a warning if no event passed the filters.
pub(super) fn silence(tally: &Tally, filter: &Filter) -> Option<String> {
    let (first, last) = tally.span.filter(|_| tally.judged > 0 && tally.passed == 0)?;
    let (from, to) = filter.span();
    let is_outside = from.is_some_and(|from| from > last) || to.is_some_and(|to| to < first);
    Some(if is_outside {
        format!("no event is in the range of --from and --to: the events are from {first} to {last}")
    } else {
        "no event passed the filters".to_owned()
    })
}
