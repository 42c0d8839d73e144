//! Handles that C programs hold: numbers that were never used before, in no table, so that a stale, foreign or invented one is found out instead of followed.
//!
//! Each thing has a lock of its own: who works with one, and be it that a file is slow, keeps nobody from the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use traceweir::Status;

/// The most things that a program may have open.
const MAX_OPEN: usize = 4096;

/// Aligned as an address would be.
const STEP: usize = 16;
/// The next handle of whichever table: what one table gave is no handle of another.
static NEXT: AtomicUsize = AtomicUsize::new(STEP);

/// Things by their handle.
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

    /// The handle of a new thing.
    pub(super) fn add(&self, thing: T) -> Result<usize, Status> {
        let mut open = self.lock();
        let things = open.get_or_insert_with(HashMap::new);
        if things.len() >= MAX_OPEN {
            return Err(Status::ERROR_NOT_ENOUGH_MEMORY);
        }
        // Relaxed: only that each is given once matters.
        let handle = NEXT.fetch_add(STEP, Ordering::Relaxed);
        things.insert(handle, Arc::new(Mutex::new(thing)));
        Ok(handle)
    }

    /// Ends a handle; `None` if it stands for nothing. Who works with it still ends that.
    pub(super) fn remove(&self, handle: usize) -> Option<()> {
        let removed = self.lock().as_mut()?.remove(&handle);
        removed.map(drop)
    }

    /// Calls with what handles stand for; `None` if one stands for nothing.
    pub(super) fn with<R>(&self, handle: usize, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        let thing = self.lock().as_ref()?.get(&handle).map(Arc::clone)?;
        let mut thing = thing.lock().unwrap_or_else(PoisonError::into_inner);
        Some(body(&mut thing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_never_used_again() {
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
    fn a_handle_of_one_table_is_none_of_another() {
        static ONE: Table<u32> = Table::new();
        static OTHER: Table<u32> = Table::new();
        let (first, second) = (ONE.add(1).unwrap(), OTHER.add(2).unwrap());
        assert_eq!((OTHER.remove(first), ONE.remove(second)), (None, None));
    }

    #[test]
    fn work_with_one_keeps_nobody_from_the_others() {
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
    fn there_are_only_so_many() {
        let table = Table::new();
        let all: Vec<_> = (0..MAX_OPEN).map(|_| table.add(()).unwrap()).collect();
        assert_eq!(table.add(()), Err(Status::ERROR_NOT_ENOUGH_MEMORY));
        assert_eq!(table.remove(all[0]), Some(()));
        assert!(table.add(()).is_ok());
    }
}
