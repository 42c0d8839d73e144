//! What is remembered of threads for a short time, in a place of a fixed size.
//!
//! ```text
//!   thread ──low bits──▶ one slot: thread │ value        another thread with the same low bits takes it over
//! ```
//!
//! 1. Threads come and go by the million; what is remembered never grows. 2. A slot that was taken over is as if nothing had been remembered, which readers bear.
//! 3. Ids are given in a row, so that neighbours do not meet.

/// A value of some threads.
#[derive(Debug)]
pub(crate) struct PerThread<T> {
    /// As many as a power of two, or none as long as nothing is remembered.
    slots: Vec<Option<(u32, T)>>,
}

/// Threads that are remembered at most.
const SLOTS: usize = 1 << 14;

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> PerThread<T> {
    const fn slot_of(thread: u32) -> usize {
        thread as usize & (SLOTS - 1)
    }

    /// Remembers a value instead of what there was.
    pub(crate) fn put(&mut self, thread: u32, value: T) {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        if let Some(slot) = self.slots.get_mut(Self::slot_of(thread)) {
            *slot = Some((thread, value));
        }
    }

    /// What is remembered, which is forgotten by that.
    pub(crate) fn take(&mut self, thread: u32) -> Option<T> {
        let slot = self.slots.get_mut(Self::slot_of(thread))?;
        slot.take_if(|(whose, _)| *whose == thread).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_its_threads_own_until_another_takes_the_slot() {
        let other = 7 + SLOTS as u32;
        let mut values = PerThread::default();
        assert_eq!(values.take(7), None);
        values.put(7, "seven");
        assert_eq!((values.take(other), values.take(7), values.take(7)), (None, Some("seven"), None));
        values.put(7, "seven");
        values.put(other, "other");
        assert_eq!((values.take(7), values.take(other)), (None, Some("other")));
        values.put(u32::MAX, "last");
        assert_eq!(values.take(u32::MAX), Some("last"));
    }
}
