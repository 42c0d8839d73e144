//! Collects the text of events, and keeps only the last ones with `--tail`.

use std::collections::VecDeque;

use anyhow::Result;

use crate::output::BufferedOutput;

/// The output of `weir dump`.
pub(super) struct EventOutput<'o> {
    output: &'o mut BufferedOutput,
    tail: Option<Tail>,
}

/// The last events so far.
struct Tail {
    limit: usize,
    events: VecDeque<Vec<u8>>,
}

impl<'o> EventOutput<'o> {
    pub(super) fn new(output: &'o mut BufferedOutput, tail: Option<u64>) -> Self {
        let limit = tail.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Self { output, tail: limit.map(|limit| Tail { limit, events: VecDeque::new() }) }
    }

    /// Calls `append` with the memory for the text of one event.
    pub(super) fn write_event<T>(&mut self, append: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let Some(Tail { limit, events }) = &mut self.tail else { return append(self.output.buffer()) };
        let mut text = Vec::new();
        let result = append(&mut text);
        if !text.is_empty() {
            if events.len() >= *limit {
                events.pop_front();
            }
            events.push_back(text);
        }
        result
    }

    /// Writes the last events, and all later ones from now on.
    pub(super) fn end_tail(&mut self) {
        for text in self.tail.take().into_iter().flat_map(|tail| tail.events) {
            self.output.buffer().extend_from_slice(&text);
        }
    }

    pub(super) fn flush_if_full(&mut self) -> Result<()> {
        self.output.flush_if_full()
    }

    /// Returns the memory for text that belongs to no event.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        self.output.buffer()
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.output.flush()
    }
}
