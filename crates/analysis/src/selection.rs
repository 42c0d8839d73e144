//! Selects events by a filter: its criteria, its text, and the number of events.

use traceweir_decode::format::Style;

use crate::event::{DescribedEvent, ReadFlow, describes_file};
use crate::filter::EventFilter;
use crate::grep::Grep;

/// Selects the events of one pass over traces.
///
/// A reader describes the records that [`EventFilter::accepts_header`] accepts, uses the events that
/// [`accepts`](Self::accepts) accepts, and then returns the result of [`count`](Self::count).
pub struct EventSelection<'f> {
    filter: &'f EventFilter,
    grep: Grep<'f>,
    needs_description: bool,
    /// Number of events that `head` still allows.
    remaining: u64,
}

impl<'f> EventSelection<'f> {
    /// Begins a pass. The text of the filter is compared with values in the default style.
    pub fn new(filter: &'f EventFilter) -> Self {
        Self::with_style(filter, Style::default())
    }

    /// Begins a pass. The text of the filter is compared with values in this style.
    pub fn with_style(filter: &'f EventFilter, style: Style) -> Self {
        Self {
            filter,
            grep: Grep::new(filter, style),
            needs_description: filter.needs_description(),
            remaining: filter.head.unwrap_or(u64::MAX),
        }
    }

    /// Returns whether an event passes the filters that need a description.
    #[inline]
    pub fn accepts(&mut self, event: &DescribedEvent<'_>) -> bool {
        !self.needs_description || (self.filter.accepts(event) && self.grep.accepts(event))
    }

    /// Counts an accepted event, and returns whether the filter allows more. Events that describe
    /// the log file do not count.
    #[inline]
    pub fn count(&mut self, event: &DescribedEvent<'_>) -> ReadFlow {
        self.remaining = self.remaining.saturating_sub(u64::from(!describes_file(&event.record)));
        if self.remaining == 0 { ReadFlow::Stop } else { ReadFlow::Continue }
    }
}
