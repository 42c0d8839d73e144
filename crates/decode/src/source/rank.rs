//! Decides which of several descriptions of one event applies.

use std::collections::HashMap;

use traceweir_format::time::FileTime;

/// The source of a schema that is found by provider, id and version; best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceRank {
    /// A manifest in the trace.
    InTrace,
    /// A schema that a merge embedded in the trace.
    Embedded,
    /// A manifest in a program that the trace names.
    Tracked,
    /// A manifest from outside the trace.
    External(Precedence),
    /// A built-in schema, which is used only if no other source describes the event.
    WellKnown,
}

/// The precedence of manifests from outside the trace, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    /// The calling program loaded the manifest.
    #[default]
    Loaded,
    /// The manifest is installed on the machine.
    Installed,
    /// The manifest was found in a program's file.
    Binary,
}

/// One version of an event in one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaCandidate {
    pub(super) version: u8,
    pub(super) rank: SourceRank,
    /// When a manifest in the trace was complete.
    pub(super) since: FileTime,
    /// The index of the schema in the decoder.
    pub(super) schema: u32,
}

/// Returns the best schema for a version: the same version, else the next lower one, else the next
/// higher one; of several sources with that version, the best.
pub(super) fn choose_schema(list: &[SchemaCandidate], version: u8) -> Option<u32> {
    let best = list.iter().min_by_key(|c| {
        let distance = match c.version.cmp(&version) {
            std::cmp::Ordering::Equal => (0, 0),
            std::cmp::Ordering::Less => (1, version.abs_diff(c.version)),
            std::cmp::Ordering::Greater => (2, c.version.abs_diff(version)),
        };
        (distance, c.rank)
    });
    best.map(|c| c.schema)
}

/// The time of a schema that applies to all events.
pub(super) const EARLIEST: FileTime = FileTime(i64::MIN);
/// The time of an event that gets the last schema.
pub(super) const LATEST: FileTime = FileTime(i64::MAX);

/// The schemas of events that several manifests in the trace describe, by the schema from the first
/// manifest that was found, which the caches hold.
#[derive(Clone, Debug, Default)]
pub(super) struct SchemaPeriods {
    /// Never empty lists, in the order of time.
    by_first: HashMap<u32, Vec<SchemaPeriod>>,
}

/// A schema that applies until the next one of the list begins.
#[derive(Clone, Copy, Debug)]
struct SchemaPeriod {
    since: FileTime,
    schema: u32,
}

impl SchemaPeriods {
    /// Adds a later schema of the same event. Of two schemas with the same time, the newer one
    /// remains.
    pub(super) fn add(&mut self, first: &SchemaCandidate, added: &SchemaCandidate) {
        let to_period = |c: &SchemaCandidate| SchemaPeriod { since: c.since, schema: c.schema };
        let periods = self.by_first.entry(first.schema).or_insert_with(|| vec![to_period(first)]);
        match periods.binary_search_by_key(&added.since, |period| period.since) {
            Ok(same) => periods.get_mut(same).into_iter().for_each(|period| *period = to_period(added)),
            Err(at) => periods.insert(at, to_period(added)),
        }
    }

    /// Returns the schema that applies at a time instead of the first one.
    #[inline]
    pub(super) fn schema_at(&self, first: u32, time: FileTime) -> u32 {
        if self.by_first.is_empty() {
            return first;
        }
        let Some(periods) = self.by_first.get(&first) else { return first };
        let begun = periods.partition_point(|period| period.since <= time);
        periods.get(begun.saturating_sub(1)).map_or(first, |period| period.schema)
    }
}
