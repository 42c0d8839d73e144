//! Handles that C programs hold: numbers that no table has used before, so that a stale, foreign or
//! invented handle is detected instead of followed.
//!
//! Each entry has a lock of its own: work with one, even if a slow file is involved, does not block
//! the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use traceweir::Status;

/// The most entries that a program may have open.
const MAX_OPEN: usize = 4096;

/// The distance between handles, which are aligned as addresses would be.
const STEP: usize = 16;
/// The next handle of any table: a handle of one table is not valid in another.
static NEXT: AtomicUsize = AtomicUsize::new(STEP);

/// Entries by their handle.
#[derive(Debug)]
pub(super) struct Table<T> {
    open: Mutex<Option<HashMap<usize, Arc<Mutex<T>>>>>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self { open: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<usize, Arc<Mutex<T>>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry and returns its handle.
    pub(super) fn add(&self, entry: T) -> Result<usize, Status> {
        let mut open = self.lock();
        let entries = open.get_or_insert_with(HashMap::new);
        if entries.len() >= MAX_OPEN {
            return Err(Status::ERROR_NOT_ENOUGH_MEMORY);
        }
        // Relaxed: it only matters that each handle is used once.
        let handle = NEXT.fetch_add(STEP, Ordering::Relaxed);
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
    pub(super) fn with<R>(&self, handle: usize, body: impl FnOnce(&mut T) -> R) -> Option<R> {
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
        static TABLE: Table<u32> = Table::new();
        let first = TABLE.add(1).unwrap();
        assert_eq!(TABLE.with(first, |n| *n), Some(1));
        assert_eq!(TABLE.remove(first), Some(()));
        let second = TABLE.add(2).unwrap();
        assert_ne!(first, second);
        assert_eq!(
            (TABLE.remove(first), TABLE.with(0, |n| *n), TABLE.with(first, |n| *n)),
            (None, None, None)
        );
    }

    #[test]
    fn handle_is_not_valid_in_another_table() {
        static ONE: Table<u32> = Table::new();
        static OTHER: Table<u32> = Table::new();
        let (first, second) = (ONE.add(1).unwrap(), OTHER.add(2).unwrap());
        assert_eq!((OTHER.remove(first), ONE.remove(second)), (None, None));
    }

    #[test]
    fn work_with_one_entry_does_not_block_the_others() {
        static TABLE: Table<u32> = Table::new();
        let (first, second) = (TABLE.add(1).unwrap(), TABLE.add(2).unwrap());
        let inside = TABLE.with(first, |_| {
            let other = std::thread::spawn(move || {
                (TABLE.with(second, |n| *n), TABLE.remove(first), TABLE.add(3).is_ok())
            });
            other.join().unwrap()
        });
        assert_eq!(inside, Some((Some(2), Some(()), true)));
    }

    #[test]
    fn number_of_entries_is_limited() {
        let table = Table::new();
        let all: Vec<_> = (0..MAX_OPEN).map(|_| table.add(()).unwrap()).collect();
        assert_eq!(table.add(()), Err(Status::ERROR_NOT_ENOUGH_MEMORY));
        assert_eq!(table.remove(all[0]), Some(()));
        assert!(table.add(()).is_ok());
    }
}
