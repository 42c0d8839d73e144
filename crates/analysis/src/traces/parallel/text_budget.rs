//! Limits the bytes of the texts that workers fill or that wait for the writer.
//!
//! ```text
//!   worker: begin_part ──events──▶ end_part ──TextPart──▶ writer: release_text … end_batch
//!           reserves the expected size             counts the real size
//! ```
//!
//! Workers wait while the limit is reached, except the worker whose batch is the next to be written:
//! the writer waits for its text, so that no two threads wait for each other. An event can have more
//! text than a part is expected to have, so each worker can exceed the limit by one event.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A worker passes its text on when it has this size, and at the end of a batch.
pub(super) const PART_BYTES: usize = 256 << 10;
/// The usual capacity of a text: the last event may exceed `PART_BYTES`.
const TEXT_CAPACITY: usize = PART_BYTES + PART_BYTES / 8;
/// The most bytes of all texts.
const MAX_TEXT_BYTES: usize = 32 << 20;
/// Texts with a larger capacity are not filled again.
const MAX_SPARE_CAPACITY: usize = 2 * PART_BYTES;

/// A text that a worker fills, and the bytes that are reserved for it.
#[derive(Debug)]
pub(super) struct UnfinishedPart {
    pub(super) text: Vec<u8>,
    reserved_bytes: usize,
}

/// A part of the text of a batch.
#[derive(Debug)]
pub(super) struct TextPart {
    pub(super) text: Vec<u8>,
    pub(super) is_last: bool,
}

/// The texts that one run of the workers uses.
#[derive(Debug, Default)]
pub(super) struct TextBudget {
    state: Mutex<BudgetState>,
    changed: Condvar,
}

#[derive(Debug)]
struct BudgetState {
    /// The capacity of all texts in use, or what is reserved for them.
    used_bytes: usize,
    /// The bytes to reserve for the next part.
    expected_bytes: usize,
    /// The number of the batch that the writer writes or waits for.
    batch_in_turn: usize,
    /// Emptied texts, and their capacity.
    spare_texts: Vec<Vec<u8>>,
    spare_bytes: usize,
    is_closed: bool,
}

impl Default for BudgetState {
    fn default() -> Self {
        Self {
            used_bytes: 0,
            expected_bytes: TEXT_CAPACITY,
            batch_in_turn: 0,
            spare_texts: Vec::new(),
            spare_bytes: 0,
            is_closed: false,
        }
    }
}

impl BudgetState {
    /// Returns an empty text for a batch, unless the limit is reached.
    fn try_begin_part(&mut self, batch: usize) -> Option<UnfinishedPart> {
        let reserved_bytes = self.expected_bytes;
        let used_bytes = self.used_bytes.saturating_add(reserved_bytes);
        if used_bytes > MAX_TEXT_BYTES && batch != self.batch_in_turn {
            return None;
        }
        self.used_bytes = used_bytes;
        let text = match self.spare_texts.pop() {
            Some(spare) => {
                self.spare_bytes = self.spare_bytes.saturating_sub(spare.capacity());
                spare
            }
            None => Vec::with_capacity(TEXT_CAPACITY),
        };
        Some(UnfinishedPart { text, reserved_bytes })
    }

    /// Replaces the reserved bytes by the real ones. The expectation follows an increase at once and
    /// a decrease slowly.
    fn end_part(&mut self, part: &UnfinishedPart) {
        let real_bytes = part.text.capacity();
        self.used_bytes = self.used_bytes.saturating_sub(part.reserved_bytes).saturating_add(real_bytes);
        let decreased = self.expected_bytes.saturating_sub(self.expected_bytes / 8);
        self.expected_bytes = decreased.max(real_bytes).max(TEXT_CAPACITY);
    }

    fn release_text(&mut self, mut text: Vec<u8>) {
        let capacity = text.capacity();
        self.used_bytes = self.used_bytes.saturating_sub(capacity);
        let kept_bytes = self.used_bytes.saturating_add(self.spare_bytes).saturating_add(capacity);
        if capacity <= MAX_SPARE_CAPACITY && kept_bytes <= MAX_TEXT_BYTES {
            text.clear();
            self.spare_bytes = self.spare_bytes.saturating_add(capacity);
            self.spare_texts.push(text);
        }
    }
}

impl TextBudget {
    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BudgetState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Returns an empty text for a part of a batch, and waits for it while the limit is reached.
    /// Returns `None` if the writer has ended.
    pub(super) fn begin_part(&self, batch: usize) -> Option<UnfinishedPart> {
        let mut state = self.lock();
        while !state.is_closed {
            if let Some(part) = state.try_begin_part(batch) {
                return Some(part);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Counts the text of a part as waiting.
    pub(super) fn end_part(&self, part: UnfinishedPart, is_last: bool) -> TextPart {
        self.change(|state| state.end_part(&part));
        TextPart { text: part.text, is_last }
    }

    /// Takes a text back that has been written.
    pub(super) fn release_text(&self, text: Vec<u8>) {
        self.change(|state| state.release_text(text));
    }

    /// Gives the turn to the next batch.
    pub(super) fn end_batch(&self) {
        self.change(|state| state.batch_in_turn = state.batch_in_turn.saturating_add(1));
    }

    /// Ends the waiting of all workers when the returned value is dropped.
    pub(super) const fn close_on_drop(&self) -> CloseOnDrop<'_> {
        CloseOnDrop(self)
    }
}

/// Closes a budget when the writer ends, for whatever reason.
pub(super) struct CloseOnDrop<'b>(&'b TextBudget);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.is_closed = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT_BYTES: usize = 4 << 20;

    fn fill(part: &mut UnfinishedPart, bytes: usize) {
        part.text.resize(bytes, b'x');
    }

    #[test]
    fn texts_in_use_are_limited_in_bytes() {
        let mut state = BudgetState::default();
        // As many workers as there may be, each with parts of one event. The first batch has its turn.
        let mut waiting = Vec::new();
        for batch in (1..=64).cycle() {
            let Some(mut part) = state.try_begin_part(batch) else { break };
            fill(&mut part, EVENT_BYTES);
            state.end_part(&part);
            waiting.push(part.text);
        }
        let total = |texts: &[Vec<u8>]| texts.iter().map(Vec::capacity).sum::<usize>();
        assert_eq!(state.used_bytes, total(&waiting));
        assert!((MAX_TEXT_BYTES / 2..=MAX_TEXT_BYTES).contains(&total(&waiting)), "{}", total(&waiting));
        let mut part = state.try_begin_part(0).expect("the batch in turn needs no room");
        fill(&mut part, EVENT_BYTES);
        state.end_part(&part);
        state.release_text(part.text);
        for text in waiting {
            state.release_text(text);
        }
        assert_eq!((state.used_bytes, state.spare_texts.len()), (0, 0), "large texts must not be kept");
        assert!(state.try_begin_part(1).is_some());
    }

    #[test]
    fn spare_texts_are_limited_in_bytes_and_filled_again() {
        let mut state = BudgetState::default();
        let parts: Vec<UnfinishedPart> = std::iter::from_fn(|| state.try_begin_part(1)).collect();
        assert_eq!(parts.len(), MAX_TEXT_BYTES / TEXT_CAPACITY);
        for mut part in parts {
            part.text.reserve_exact(MAX_SPARE_CAPACITY);
            state.end_part(&part);
            state.release_text(part.text);
            assert!(state.spare_bytes <= MAX_TEXT_BYTES);
        }
        let spare_count = state.spare_texts.len();
        assert_eq!(spare_count, MAX_TEXT_BYTES / MAX_SPARE_CAPACITY);
        let part = state.try_begin_part(1).unwrap();
        assert_eq!((part.text.capacity(), part.text.len()), (MAX_SPARE_CAPACITY, 0));
        assert_eq!(state.spare_texts.len(), spare_count - 1);
    }

    #[test]
    fn usual_parts_are_expected_again_after_large_ones() {
        let mut state = BudgetState::default();
        for bytes in [EVENT_BYTES].into_iter().chain([1; 64]) {
            let mut part = state.try_begin_part(0).unwrap();
            fill(&mut part, bytes);
            state.end_part(&part);
            state.release_text(part.text);
        }
        assert_eq!((state.used_bytes, state.expected_bytes), (0, TEXT_CAPACITY));
    }

    #[test]
    fn waiting_worker_continues_in_its_turn_and_ends_with_the_writer() {
        let budget = TextBudget::default();
        let first = budget.begin_part(0).unwrap();
        budget.lock().used_bytes = MAX_TEXT_BYTES;
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| (budget.begin_part(1).is_some(), budget.begin_part(2).is_some()));
            let closing = budget.close_on_drop();
            drop(budget.end_part(first, true));
            budget.end_batch();
            // The worker of batch 1 has its turn now, or gets it when it asks.
            while budget.lock().used_bytes <= MAX_TEXT_BYTES {
                std::thread::yield_now();
            }
            drop(closing);
            assert_eq!(worker.join().unwrap(), (true, false));
        });
    }
}
