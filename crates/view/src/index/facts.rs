//! What the events of a trace need to be understood, and what other events of the trace provide:
//! schemas, processes, and the definitions of stack keys.
//!
//! ```text
//!   first time       every record ──observe──▶ Facts; the index lists the rows that taught something
//!   from the cache   only the listed rows ──observe──▶ Facts
//! ```

use std::sync::Arc;

use traceweir_decode::Decoder;
use traceweir_decode::actors::Actors;
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::stack_key::Definitions;

use crate::symbols::{SymbolQueue, Symbols};

/// The facts of one trace file.
#[derive(Debug)]
pub(crate) struct FileFacts {
    pub(crate) actors: Actors,
    pub(crate) stacks: Definitions,
    /// Frequency of the performance counter, in Hz.
    counter_hz: u64,
    /// Processors whose first context switch was observed, a bit each.
    switched: Vec<u64>,
}

impl FileFacts {
    /// Returns whether a record is the first context switch of its processor, which names the thread
    /// that ran before it.
    #[inline]
    fn is_first_switch(&mut self, record: &Record<'_>) -> bool {
        if record.hook() != Some(hook::CONTEXT_SWITCH) {
            return false;
        }
        let (word, bit) = (usize::from(record.cpu() / 64), 1_u64 << (record.cpu() % 64));
        if self.switched.len() <= word {
            self.switched.resize(word.saturating_add(1), 0);
        }
        let Some(seen) = self.switched.get_mut(word) else { return false };
        let is_first = *seen & bit == 0;
        *seen |= bit;
        is_first
    }
}

/// The facts of all traces.
pub(crate) struct Facts {
    pub(crate) decoder: Decoder,
    pub(crate) files: Vec<FileFacts>,
    symbols: Arc<SymbolQueue>,
}

impl Facts {
    /// Creates the facts of traces of which nothing has been read; `counter_hz` returns the frequency
    /// of the performance counter of each. Records about code go to the queue of the symbols.
    pub(crate) fn new(
        files: usize,
        decoder: Decoder,
        symbols: Arc<SymbolQueue>,
        counter_hz: impl Fn(usize) -> u64,
    ) -> Self {
        let definitions = Definitions::default();
        let new_file = |file| {
            let mut actors = Actors::default();
            actors.share_limits(files);
            FileFacts {
                actors,
                stacks: definitions.with_shared_limit(),
                counter_hz: counter_hz(file),
                switched: Vec::new(),
            }
        };
        Self { decoder, files: (0..files).map(new_file).collect(), symbols }
    }

    /// Learns from a record. Returns whether it taught something.
    #[inline]
    pub(crate) fn observe(&mut self, file: usize, record: &Record<'_>) -> bool {
        let mut is_informative = self.decoder.observe(record);
        if Symbols::is_informative(record) {
            self.symbols.push(file, record);
            is_informative = true;
        }
        let Some(facts) = self.files.get_mut(file) else { return is_informative };
        if Definitions::is_informative(record) {
            facts.stacks.observe(record);
            is_informative = true;
        }
        if facts.is_first_switch(record) {
            facts.actors.read_switch_ahead(record);
            is_informative = true;
        }
        if Actors::is_informative(record)
            && let Ok(schema) = self.decoder.find(record)
        {
            facts.actors.observe(record, &schema);
            is_informative = true;
        }
        is_informative
    }

    pub(crate) fn counter_hz(&self, file: usize) -> u64 {
        self.files.get(file).map_or(0, |facts| facts.counter_hz)
    }
}
