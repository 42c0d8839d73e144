//! The summary and the warnings at the end of `weir relog`.

use traceweir::relog::Summary;
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::traces::TraceSet;
use traceweir_format::time::FileTime;

use super::EventCounts;
use crate::text::{format_count, format_number};

/// Formats the summary of the output, and the number of events that were left out.
pub(super) fn format_summary(path: &str, summary: &Summary, counts: &EventCounts) -> String {
    // Records are the events and those that describe the file itself.
    let (records, buffers) =
        (format_count(summary.events, "record"), format_count(u64::from(summary.buffers), "buffer"));
    let (bytes, span) =
        (format_count(summary.bytes, "byte"), format!("{} to {}", summary.start, summary.end));
    // The output contains the log-file header and the marks, which were not read. `folded` counts
    // records that were read and that the output's header replaces.
    let kept =
        summary.events.saturating_sub(1).saturating_sub(summary.injected).saturating_add(summary.folded);
    let left_out = match counts.read.saturating_sub(kept) {
        0 => String::new(),
        count => format!("; {} left out", format_number(count)),
    };
    format!("{path}: {records} in {buffers}, {bytes}, {span}{left_out}")
}

/// Returns a warning about events whose extended data items were invalid.
pub(super) fn invalid_items_warning(summary: &Summary) -> Option<String> {
    let events = format_count(summary.items_dropped, "event");
    (summary.items_dropped > 0).then(|| {
        format!("{events} had inconsistent extended data items: their bytes are now the beginning of the payload, as readers interpret them")
    })
}

/// Returns the time span of the inputs, by their headers and events.
pub(super) fn input_span(traces: &TraceSet, counts: &EventCounts) -> (FileTime, FileTime) {
    let ends = traces.inputs.iter().map(|input| input.trace.header().end_time);
    let (first, last) = counts.span.unwrap_or((traces.start(), traces.start()));
    (traces.start().min(first), ends.fold(last, FileTime::max))
}

/// Returns a warning if no event passed the filters.
pub(super) fn no_event_warning(counts: &EventCounts, filter: &EventFilter) -> Option<String> {
    let (first, last) = counts.span.filter(|_| counts.tested > 0 && counts.passed == 0)?;
    let (from, to) = filter.time_span();
    let is_outside = from.is_some_and(|from| from > last) || to.is_some_and(|to| to < first);
    Some(if is_outside {
        format!("no event is in the range of --from and --to: the events are from {first} to {last}")
    } else {
        "no event passed the filters".to_owned()
    })
}
