//! A value that another thread provides, awaited with a timeout.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A single value that one thread provides and another awaits. A channel would do, but waiting on
/// one uses thread-local state that is gone in an exit handler.
#[derive(Debug)]
pub(crate) struct Promise<T>(Arc<(Mutex<Option<T>>, Condvar)>);

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Promise<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Mutex::new(None), Condvar::new())))
    }

    /// Provides the value.
    pub(crate) fn fulfil(&self, value: T) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        self.0.1.notify_all();
    }

    /// Waits for the value, for at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut value = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if value.is_some() {
                return value.take();
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            value = self.0.1.wait_timeout(value, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
