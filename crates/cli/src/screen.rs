//! Standard output for live events.
//!
//! ```text
//!   event ──▶ printer ──▶ Screen   flushed at most 10 ms after the first byte
//! ```

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::output::BufferedOutput;

/// How long output is collected before it is written.
const FLUSH_DELAY: Duration = Duration::from_millis(10);
/// How long the flushing thread waits before it checks whether the screen still exists.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(1);

/// Standard output for live events. On a terminal, each event is written at once. Otherwise, events
/// that arrive together are written together, and a single event after [`FLUSH_DELAY`].
#[derive(Clone)]
pub(crate) struct Screen {
    shared: Arc<SharedScreen>,
}

struct SharedScreen {
    state: Mutex<ScreenState>,
    output_added: Condvar,
}

struct ScreenState {
    output: BufferedOutput,
    /// The error of the last flush, until it is returned.
    failure: Option<anyhow::Error>,
}

impl Screen {
    pub(crate) fn open() -> Result<Self> {
        let state = Mutex::new(ScreenState { output: BufferedOutput::open(None)?, failure: None });
        let shared = Arc::new(SharedScreen { state, output_added: Condvar::new() });
        let weak = Arc::downgrade(&shared);
        let flush_repeatedly = move || {
            while let Some(shared) = weak.upgrade() {
                shared.flush_when_written();
            }
        };
        std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(flush_repeatedly)
            .context("cannot start a thread")?;
        Ok(Self { shared })
    }

    /// Returns whether the output may have colours.
    pub(crate) fn is_colourful(&self) -> bool {
        self.shared.lock().output.is_colourful()
    }

    /// Calls `append` with the output buffer; fails if earlier output could not be written.
    pub(crate) fn write_with<T>(&self, append: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T> {
        let mut state = self.shared.lock();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let result = append(state.output.buffer());
        state.output.flush_if_full()?;
        if !state.output.buffer().is_empty() {
            self.shared.output_added.notify_one();
        }
        Ok(result)
    }

    /// Writes the remaining output.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut state = self.shared.lock();
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => state.output.flush(),
        }
    }
}

impl SharedScreen {
    fn lock(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for output, then for more output during [`FLUSH_DELAY`], and writes all of it.
    fn flush_when_written(&self) {
        let state = self.lock();
        let is_idle = |state: &mut ScreenState| state.output.buffer().is_empty();
        let waited = self.output_added.wait_timeout_while(state, MAX_IDLE_WAIT, is_idle);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        if waited.timed_out() {
            return;
        }
        std::thread::sleep(FLUSH_DELAY);
        let mut state = self.lock();
        if let Err(error) = state.output.flush() {
            state.output.buffer().clear();
            state.failure = Some(error);
        }
    }
}
