//! Selects events by a filter: its criteria, its text, and the number of events.

use traceweir_decode::format::Style;
use traceweir_decode::source::prepared::SchemaId;
use traceweir_format::Guid;
use traceweir_format::header::Record;

use crate::event::{DescribedEvent, ReadFlow, describes_file};
use crate::filter::EventFilter;
use crate::grep::Grep;

/// The number of recent kinds of events for which a decision is remembered.
const DECISION_SLOTS: usize = 64;

/// Whether the events of a schema and provider pass; the Boolean of the key says whether they are
/// kernel events.
type Decision = ((SchemaId, Guid, bool), bool);

/// Selects the events of one pass over traces.
///
/// A reader describes the records that [`EventFilter::accepts_header`] accepts, uses the events that
/// [`accepts`](Self::accepts) accepts, and then returns the result of [`count`](Self::count).
pub struct EventSelection<'f> {
    filter: &'f EventFilter,
    grep: Grep<'f>,
    needs_description: bool,
    needs_only_provider: bool,
    decisions: [Option<Decision>; DECISION_SLOTS],
    /// Number of events that `head` still allows, if the filter has it.
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
            needs_only_provider: filter.needs_only_provider(),
            decisions: [None; DECISION_SLOTS],
            remaining: filter.head.unwrap_or_default(),
        }
    }

    /// Returns whether an event passes the filters that need a description.
    #[inline]
    pub fn accepts(&mut self, event: &DescribedEvent<'_>) -> bool {
        if !self.needs_description {
            return true;
        }
        // A schema that names its provider gives all its events the same name.
        let prepared = event.schema_match.as_ref().ok().map(|schema_match| schema_match.prepared);
        let prepared = prepared.filter(|prepared| prepared.schema.names.provider.is_some());
        match prepared {
            Some(prepared) if self.needs_only_provider => {
                let key = (prepared.id(), event.record.provider(), event.record.hook().is_some());
                let slot = prepared.id().number() as usize % DECISION_SLOTS;
                match self.decisions.get(slot) {
                    Some(Some((known, accepts))) if *known == key => *accepts,
                    _ => self.decide(event, key, slot),
                }
            }
            _ => self.filter.accepts(event) && self.grep.accepts(event),
        }
    }

    #[cold]
    fn decide(&mut self, event: &DescribedEvent<'_>, key: (SchemaId, Guid, bool), slot: usize) -> bool {
        let accepts = self.filter.accepts(event);
        if let Some(decision) = self.decisions.get_mut(slot) {
            *decision = Some((key, accepts));
        }
        accepts
    }

    /// Counts an accepted event, and returns whether the filter allows more. Events that describe
    /// the log file do not count.
    #[inline]
    pub fn count(&mut self, event: &DescribedEvent<'_>) -> ReadFlow {
        self.count_record(&event.record)
    }

    /// Counts the record of an accepted event, as [`count`](Self::count) does.
    #[inline]
    pub fn count_record(&mut self, record: &Record<'_>) -> ReadFlow {
        if self.filter.head.is_none() {
            return ReadFlow::Continue;
        }
        self.remaining = self.remaining.saturating_sub(u64::from(!describes_file(record)));
        if self.remaining == 0 { ReadFlow::Stop } else { ReadFlow::Continue }
    }
}
