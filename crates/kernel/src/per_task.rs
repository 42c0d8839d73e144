//! A table of short-lived values per task (a thread or a process), with a fixed size.
//!
//! ```text
//!   id ──low bits──▶ one slot: id │ value
//!                    (another task with the same low bits replaces the entry)
//! ```
//!
//! 1. Tasks come and go by the million, but the table never grows.
//! 2. A replaced entry reads as if it had never been stored; callers must cope with that.
//! 3. The kernel assigns ids consecutively, so tasks created together use different slots.

/// A bounded map from thread ids or process ids to values.
#[derive(Debug)]
pub(crate) struct PerTask<T> {
    /// Empty until the first value is stored, then [`SLOT_COUNT`] slots.
    slots: Vec<Option<(u32, T)>>,
}

/// The largest number of tasks with a stored value; a power of two.
const SLOT_COUNT: usize = 1 << 14;

impl<T> Default for PerTask<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> PerTask<T> {
    const fn slot_index(id: u32) -> usize {
        id as usize & (SLOT_COUNT - 1)
    }

    /// Stores a value for a task, replacing the entry of its slot.
    pub(crate) fn put(&mut self, id: u32, value: T) {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOT_COUNT, || None);
        }
        if let Some(slot) = self.slots.get_mut(Self::slot_index(id)) {
            *slot = Some((id, value));
        }
    }

    /// Returns whether a task has a value.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.slots
            .get(Self::slot_index(id))
            .is_some_and(|slot| slot.as_ref().is_some_and(|(stored, _)| *stored == id))
    }

    /// Removes and returns the value of a task.
    pub(crate) fn take(&mut self, id: u32) -> Option<T> {
        let slot = self.slots.get_mut(Self::slot_index(id))?;
        slot.take_if(|(stored, _)| *stored == id).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_kept_until_another_task_replaces_it() {
        let other = 7 + SLOT_COUNT as u32;
        let mut values = PerTask::default();
        assert_eq!(values.take(7), None);
        values.put(7, "seven");
        assert_eq!((values.take(other), values.take(7), values.take(7)), (None, Some("seven"), None));
        values.put(7, "seven");
        values.put(other, "other");
        assert_eq!((values.take(7), values.take(other)), (None, Some("other")));
        values.put(u32::MAX, "last");
        assert!(values.has(u32::MAX) && !values.has(other));
        assert_eq!(values.take(u32::MAX), Some("last"));
    }
}
