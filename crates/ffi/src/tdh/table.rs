//! Handles that C programs hold: numbers that were never used before, so that a stale or invented one is found out instead of followed.
//!
//! Each thing has a lock of its own: who works with one, and be it that a file is slow, keeps nobody from the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use traceweir::Status;

/// The most things that a program may have open.
const MAX_OPEN: usize = 4096;

/// Things by their handle.
#[derive(Debug)]
pub(super) struct Table<T> {
    open: Mutex<Option<Open<T>>>,
}

#[derive(Debug)]
struct Open<T> {
    things: HashMap<usize, Arc<Mutex<T>>>,
    last: usize,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self { open: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a new thing.
    pub(super) fn add(&self, thing: T) -> Result<usize, Status> {
        /// Aligned as an address would be.
        const STEP: usize = 16;
        let mut open = self.lock();
        let open = open.get_or_insert_with(|| Open { things: HashMap::new(), last: 0 });
        if open.things.len() >= MAX_OPEN {
            return Err(Status::ERROR_NOT_ENOUGH_MEMORY);
        }
        open.last = open.last.checked_add(STEP).ok_or(Status::ERROR_NOT_ENOUGH_MEMORY)?;
        open.things.insert(open.last, Arc::new(Mutex::new(thing)));
        Ok(open.last)
    }

    /// Ends a handle; `None` if it stands for nothing. Who works with it still ends that.
    pub(super) fn remove(&self, handle: usize) -> Option<()> {
        let removed = self.lock().as_mut()?.things.remove(&handle);
        removed.map(drop)
    }

    /// Calls with what handles stand for; `None` if one stands for nothing.
    pub(super) fn with<R>(&self, handle: usize, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        let thing = self.lock().as_ref()?.things.get(&handle).map(Arc::clone)?;
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
