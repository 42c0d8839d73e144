//! Handles that C programs hold: numbers that no table has used before, so that a stale, foreign or
//! invented handle is detected instead of followed.
//!
//! Each entry has a separate lock: slow work with one entry does not block the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use traceweir::Status;

/// The most entries of one table.
const MAX_ENTRIES: usize = 4096;

/// The distance between handles, which are aligned as addresses would be.
const HANDLE_STEP: usize = 16;
/// The next handle of any table: a handle of one table is not valid in another.
static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(HANDLE_STEP);

/// Entries by their handle.
#[derive(Debug)]
pub(super) struct HandleTable<T> {
    entries: Mutex<Option<HashMap<usize, Arc<Mutex<T>>>>>,
}

impl<T> HandleTable<T> {
    pub(super) const fn new() -> Self {
        Self { entries: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<usize, Arc<Mutex<T>>>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry and returns its handle.
    pub(super) fn add(&self, entry: T) -> Result<usize, Status> {
        let mut table = self.lock();
        let entries = table.get_or_insert_with(HashMap::new);
        if entries.len() >= MAX_ENTRIES {
            return Err(Status::ERROR_NOT_ENOUGH_MEMORY);
        }
        // Relaxed: the only requirement is that no handle is used twice.
        let handle = NEXT_HANDLE.fetch_add(HANDLE_STEP, Ordering::Relaxed);
        entries.insert(handle, Arc::new(Mutex::new(entry)));
        Ok(handle)
    }

    /// Removes a handle. Returns `None` if it is not valid. A thread that still uses the entry can
    /// finish.
    pub(super) fn remove(&self, handle: usize) -> Option<()> {
        let removed = self.lock().as_mut()?.remove(&handle);
        removed.map(drop)
    }

    /// Calls `body` with the entry of a handle. Returns `None` if the handle is not valid.
    pub(super) fn with_entry<R>(&self, handle: usize, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        let entry = self.lock().as_ref()?.get(&handle).map(Arc::clone)?;
        let mut entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
        Some(body(&mut entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_is_never_reused() {
        static TABLE: HandleTable<u32> = HandleTable::new();
        let first = TABLE.add(1).unwrap();
        assert_eq!(TABLE.with_entry(first, |value| *value), Some(1));
        assert_eq!(TABLE.remove(first), Some(()));
        let second = TABLE.add(2).unwrap();
        assert_ne!(first, second);
        assert_eq!(
            (
                TABLE.remove(first),
                TABLE.with_entry(0, |value| *value),
                TABLE.with_entry(first, |value| *value)
            ),
            (None, None, None)
        );
    }

    #[test]
    fn handle_is_not_valid_in_another_table() {
        static FIRST: HandleTable<u32> = HandleTable::new();
        static SECOND: HandleTable<u32> = HandleTable::new();
        let (first, second) = (FIRST.add(1).unwrap(), SECOND.add(2).unwrap());
        assert_eq!((SECOND.remove(first), FIRST.remove(second)), (None, None));
    }

    #[test]
    fn work_with_one_entry_does_not_block_the_others() {
        static TABLE: HandleTable<u32> = HandleTable::new();
        let (first, second) = (TABLE.add(1).unwrap(), TABLE.add(2).unwrap());
        let inside = TABLE.with_entry(first, |_| {
            let thread = std::thread::spawn(move || {
                (TABLE.with_entry(second, |value| *value), TABLE.remove(first), TABLE.add(3).is_ok())
            });
            thread.join().unwrap()
        });
        assert_eq!(inside, Some((Some(2), Some(()), true)));
    }

    #[test]
    fn table_refuses_more_than_max_entries() {
        let table = HandleTable::new();
        let handles: Vec<_> = (0..MAX_ENTRIES).map(|_| table.add(()).unwrap()).collect();
        assert_eq!(table.add(()), Err(Status::ERROR_NOT_ENOUGH_MEMORY));
        assert_eq!(table.remove(handles[0]), Some(()));
        assert!(table.add(()).is_ok());
    }
}
