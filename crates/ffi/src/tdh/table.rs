//! Handles that C programs hold: numbers that were never used before, so that a stale or invented one is found out instead of followed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    things: HashMap<usize, T>,
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
        open.things.insert(open.last, thing);
        Ok(open.last)
    }

    /// Ends a handle; what it stood for.
    pub(super) fn remove(&self, handle: usize) -> Option<T> {
        self.lock().as_mut()?.things.remove(&handle)
    }

    /// Calls with what handles stand for; `None` if one stands for nothing.
    pub(super) fn with<R>(&self, handle: usize, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock().as_mut()?.things.get_mut(&handle).map(body)
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
        assert_eq!(TABLE.remove(first), Some(1));
        let second = TABLE.add(2).unwrap();
        assert_ne!(first, second);
        assert_eq!(
            (TABLE.remove(first), TABLE.with(0, |n| *n), TABLE.with(first, |n| *n)),
            (None, None, None)
        );
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
