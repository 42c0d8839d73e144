//! The waits of a time span.

use super::TimeSpan;
use super::loop_guard::LoopGuard;
use crate::index::Index;

/// A wait that overlaps a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) end: i64,
    pub(super) thread: u64,
    pub(super) stack: u64,
    /// The time in the span.
    pub(super) overlap_ns: u64,
}

/// Calls `on_wait` for each wait that overlaps a span, as long as the guard allows.
pub(super) fn for_waits(
    index: &Index,
    span: TimeSpan,
    guard: &mut LoopGuard<'_>,
    mut on_wait: impl FnMut(Wait),
) {
    let TimeSpan { from, to } = span;
    index.waits.for_spans(from, to, &index.store, |values| {
        if let &[end, duration, thread, stack, ..] = values {
            let end = end.cast_signed();
            let start = end.saturating_sub_unsigned(duration);
            let overlap_ns = u64::try_from(end.min(to).saturating_sub(start.max(from))).unwrap_or(0);
            if overlap_ns > 0 {
                on_wait(Wait { end, thread, stack, overlap_ns });
            }
        }
        guard.may_continue()
    });
}
