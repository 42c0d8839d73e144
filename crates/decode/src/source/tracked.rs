//! Compiled manifests of the programs that a trace names: providers tell sessions which file they live in.
//!
//! ```text
//!   FULL EventTraceGuid 0x43: GUIDs, path, build id ──observe──▶ a list ──take_tracked──▶ whoever may open files
//!                                                                                              │
//!   schemas of those GUIDs ◀── section .etw_manifest ◀── same build id? ◀──add_tracked── the file
//! ```
//!
//! A trace may come from a stranger, and so may the paths in it. This module opens nothing; it says what a trace names, and looks into what it is
//! given. Only a file that has the very build id which the event names is believed, and only what it says about the GUIDs of the event.
//!
//! Invariants: each file is named once, and at most [`MAX_TRACKED`] are; what their schemas take is paid from the budget of the trace.

use std::collections::HashMap;
use std::io::{Read, Seek};

use traceweir_format::Guid;
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::header::Record;

use super::{Decoder, Rank, binary};
use crate::{Error, Result};

/// The most files that a trace may name.
pub const MAX_TRACKED: usize = 256;

/// Files that a trace names, each once.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    /// The GUIDs that were told for a path and build id.
    seen: HashMap<(String, String), Vec<Guid>>,
    waiting: Vec<BinaryPath>,
}

impl Tracked {
    /// Notes a file, and once more if it has a provider that was not told of it before.
    fn note(&mut self, mut told: BinaryPath) {
        // A file without a build id cannot be told from any other that has its name now.
        if told.build_id.is_empty() || told.path.is_empty() {
            return;
        }
        let key = (told.path.clone(), told.build_id.clone());
        if self.seen.len() >= MAX_TRACKED && !self.seen.contains_key(&key) {
            return;
        }
        let known = self.seen.entry(key).or_default();
        told.guids.retain(|guid| !known.contains(guid));
        if told.guids.is_empty() || known.len() >= MAX_TRACKED {
            return;
        }
        known.extend_from_slice(&told.guids);
        self.waiting.push(told);
    }
}

impl Decoder {
    /// Learns from an event that names a file.
    pub(super) fn observe_binary_path(&mut self, record: &Record<'_>) {
        if let Ok(told) = BinaryPath::parse(record.payload()) {
            self.tracked.note(told);
        }
    }

    /// The files that the trace named since the last call, which [`add_tracked`](Self::add_tracked) can learn from.
    #[must_use]
    pub fn take_tracked(&mut self) -> Vec<BinaryPath> {
        std::mem::take(&mut self.tracked.waiting)
    }

    /// Whether the trace named files since the last call of [`take_tracked`](Self::take_tracked).
    #[must_use]
    pub fn has_tracked(&self) -> bool {
        !self.tracked.waiting.is_empty()
    }

    /// Takes in what a file says about the providers that were told to live in it. Returns the number of events.
    ///
    /// An error where it is not the file that was meant, or says nothing about them.
    pub fn add_tracked<R: Read + Seek>(&mut self, told: &BinaryPath, file: R) -> Result<usize> {
        let mut events = 0_usize;
        for provider in binary::load_identified(file, &told.build_id)? {
            if !told.guids.contains(&provider.id) {
                continue;
            }
            let fields = provider.events.iter().map(|e| e.schema.fields().len().saturating_add(1));
            if !self.in_trace.pay(fields.sum(), 0) {
                return Err(Error::Schema("the programs of the trace describe too many fields"));
            }
            events = events.saturating_add(provider.events.len());
            self.add_provider(provider, Rank::Tracked)?;
        }
        Ok(events)
    }
}
