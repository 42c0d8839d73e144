//! Estimates the memory of a profile that is being built.
//!
//! The estimates come from the tables of `fxprof-processed-profile` 0.8: columns of numbers, which have
//! up to twice the capacity that they need, and hash tables. A text of a thread is stored four times:
//! in a list and in a table of the profile, and in those of the thread.

use std::collections::HashSet;

use fxprof_processed_profile::{StackHandle, StringHandle, ThreadHandle};

/// The most bytes of a profile.
const MAX_PROFILE_BYTES: usize = 224 << 20;

const SAMPLE_BYTES: usize = 72;
const STACK_BYTES: usize = 160;
/// A text that is new to its thread, without its characters, and the function of that name.
const TEXT_BYTES: usize = 256;
const TEXT_COPIES: usize = 4;
const MARKER_BYTES: usize = 128;
const MARKER_VALUE_BYTES: usize = 16;
const COUNTER_BYTES: usize = 256;
const COUNTER_NAME_COPIES: usize = 3;
const COUNTER_VALUE_BYTES: usize = 40;
const THREAD_BYTES: usize = 2048;

/// The estimated memory of a profile.
#[derive(Debug)]
pub(super) struct ProfileMemory {
    bytes: usize,
    max_bytes: usize,
    stacks: HashSet<StackHandle>,
    texts: HashSet<(ThreadHandle, StringHandle)>,
}

impl Default for ProfileMemory {
    fn default() -> Self {
        Self::with_limit(MAX_PROFILE_BYTES)
    }
}

impl ProfileMemory {
    /// Creates an empty profile of at most this many bytes.
    pub(super) fn with_limit(max_bytes: usize) -> Self {
        Self { bytes: 0, max_bytes, stacks: HashSet::new(), texts: HashSet::new() }
    }

    /// Returns whether nothing more should be added.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes >= self.max_bytes
    }

    /// Returns the number of stacks.
    pub(super) fn stacks(&self) -> usize {
        self.stacks.len()
    }

    const fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) const fn add_sample(&mut self) {
        self.add(SAMPLE_BYTES);
    }

    pub(super) fn add_stack(&mut self, stack: StackHandle) {
        if self.stacks.insert(stack) {
            self.add(STACK_BYTES);
        }
    }

    /// Adds a text of a thread, unless the thread has it.
    pub(super) fn add_text(&mut self, thread: ThreadHandle, handle: StringHandle, text: &str) {
        if self.texts.insert((thread, handle)) {
            self.add(TEXT_BYTES.saturating_add(text.len().saturating_mul(TEXT_COPIES)));
        }
    }

    pub(super) const fn add_marker(&mut self, values: usize) {
        self.add(MARKER_BYTES.saturating_add(values.saturating_mul(MARKER_VALUE_BYTES)));
    }

    pub(super) const fn add_counter(&mut self, name: &str) {
        self.add(COUNTER_BYTES.saturating_add(name.len().saturating_mul(COUNTER_NAME_COPIES)));
    }

    pub(super) const fn add_counter_value(&mut self) {
        self.add(COUNTER_VALUE_BYTES);
    }

    pub(super) const fn add_thread(&mut self) {
        self.add(THREAD_BYTES);
    }
}
