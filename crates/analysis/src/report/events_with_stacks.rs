//! Finds out which kernel events of a trace have stacks.
//!
//! ```text
//!   … DiskIo/Read at 90 │ PerfInfo/SampleProf at 100 │ stack at 100 ──▶ SampleProf has stacks
//! ```
//!
//! The result is a hint for users who chose events without stacks. A stack contains the timestamp
//! of its event; it is counted for the newest of the recent events with this timestamp.

use std::collections::{BTreeMap, VecDeque};

use traceweir_decode::Decoder;
use traceweir_format::header::Record;
use traceweir_format::stack_walk::StackWalk;

/// Number of recent events to search.
const MAX_RECENT_EVENTS: usize = 256;
/// Maximum number of hook ids whose stacks are counted.
const MAX_HOOK_IDS: usize = 256;

/// The kernel events that have stacks.
#[derive(Debug, Default)]
pub(super) struct EventsWithStacks {
    /// Trace index, timestamp and hook id of the newest events.
    recent: VecDeque<(usize, i64, u16)>,
    /// Names by hook id.
    names: BTreeMap<u16, Option<String>>,
    /// Number of stacks by hook id.
    stacks: BTreeMap<u16, u64>,
}

impl EventsWithStacks {
    /// Counts a stack for the event that it belongs to.
    pub(super) fn observe_stack(&mut self, file: usize, stack: &StackWalk<'_>) {
        let event = self
            .recent
            .iter()
            .rev()
            .find(|(event_file, time, _)| (*event_file, *time) == (file, stack.event_time));
        if let Some((.., hook)) = event {
            let count = self.stacks.entry(*hook).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Remembers an event that a following stack may belong to.
    pub(super) fn observe_event(&mut self, file: usize, record: &Record<'_>, decoder: &mut Decoder) {
        let Some(hook) = record.hook() else { return };
        if !self.names.contains_key(&hook) {
            if self.names.len() >= MAX_HOOK_IDS {
                return;
            }
            let name = decoder
                .find(record)
                .ok()
                .and_then(|schema_match| schema_match.prepared.event_name.as_deref().map(str::to_owned));
            self.names.insert(hook, name);
        }
        if self.recent.len() >= MAX_RECENT_EVENTS {
            self.recent.pop_front();
        }
        self.recent.push_back((file, record.time(), hook));
    }

    /// Returns the names of the events with stacks, those with the most stacks first.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut counted_names: Vec<(u64, &str)> = Vec::new();
        for (hook, count) in &self.stacks {
            if let Some(Some(name)) = self.names.get(hook) {
                counted_names.push((*count, name));
            }
        }
        counted_names.sort_by_key(|(count, name)| (u64::MAX - count, *name));
        counted_names.into_iter().map(|(_, name)| name).collect()
    }
}
