//! The buffers that queries have loaded, and the bytes that a question may load.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use traceweir_format::header::Record;

use super::TraceView;
use crate::index::RowPosition;
use crate::live::{Cursor, LiveTrace, record_at};

/// Memory for buffers that queries have loaded.
const MAX_LOADED_BYTES: usize = 48 << 20;
/// The most bytes that a question loads.
const MAX_QUESTION_BYTES: usize = 256 << 20;

/// A trace, and a buffer in it.
type BufferKey = (usize, usize);

/// Buffers that queries have loaded, the most recent one last.
#[derive(Debug, Default)]
pub(super) struct LoadedBuffers {
    buffers: VecDeque<(BufferKey, Arc<Vec<u8>>)>,
    bytes: usize,
}

/// The bytes that a question may still load.
#[derive(Debug)]
pub(crate) struct LoadBudget {
    pub(super) bytes_left: usize,
}

impl Default for LoadBudget {
    fn default() -> Self {
        Self { bytes_left: MAX_QUESTION_BYTES }
    }
}

impl LoadBudget {
    /// Returns whether only buffers that are loaded can be read.
    pub(crate) const fn is_spent(&self) -> bool {
        self.bytes_left == 0
    }

    fn charge(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes.max(1));
    }
}

impl TraceView {
    /// Calls a function with the record at a position; `None` if there is none. `time` is the stamp
    /// of a record whose header has none.
    pub(crate) fn with_record<T>(
        &self,
        position: RowPosition,
        time: i64,
        on_record: impl FnOnce(&Record<'_>) -> T,
    ) -> Option<T> {
        let mut unlimited = LoadBudget { bytes_left: usize::MAX };
        self.with_record_within(&mut unlimited, position, time, on_record)
    }

    /// Like [`with_record`](Self::with_record), but loads no buffer when the budget is spent.
    pub(crate) fn with_record_within<T>(
        &self,
        budget: &mut LoadBudget,
        position: RowPosition,
        time: i64,
        on_record: impl FnOnce(&Record<'_>) -> T,
    ) -> Option<T> {
        if let Some(live) = &self.live {
            let block = self.load_block(live, position, budget)?;
            return Some(on_record(&record_at(&block, position.offset())?));
        }
        let trace = &self.traces.get(position.file())?.trace;
        let buffer = trace.buffers().get(position.buffer())?;
        let key = (position.file(), position.buffer());
        let loaded = self.lock_buffers().find(key);
        let loaded = match loaded {
            Some(loaded) => loaded,
            None if budget.is_spent() => return None,
            None => {
                let mut bytes = Vec::new();
                let result = trace.load(buffer, &mut bytes);
                budget.charge(bytes.len().max(buffer.size as usize));
                result.ok()?;
                let bytes = Arc::new(bytes);
                self.lock_buffers().add(key, Arc::clone(&bytes));
                bytes
            }
        };
        let time = self.stamp_at(position.file(), time);
        let record = trace.record_at(&loaded, position.offset(), buffer.cpu, time)?;
        Some(on_record(&record))
    }

    /// Loads the block of a session's records that contains a position.
    fn load_block(
        &self,
        live: &LiveTrace,
        position: RowPosition,
        budget: &mut LoadBudget,
    ) -> Option<Arc<Vec<u8>>> {
        let key = (0, position.buffer());
        if let Some(loaded) = self.lock_buffers().find(key) {
            return Some(loaded);
        }
        if budget.is_spent() {
            return None;
        }
        let chunk = live.read(Cursor { block: u32::try_from(position.buffer()).ok()?, offset: 0 }).ok()?;
        let is_complete = chunk.ends_block();
        let bytes = Arc::new(chunk.into_bytes());
        budget.charge(bytes.len());
        if is_complete {
            self.lock_buffers().add(key, Arc::clone(&bytes));
        }
        Some(bytes)
    }

    pub(super) fn lock_buffers(&self) -> MutexGuard<'_, LoadedBuffers> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadedBuffers {
    fn find(&self, key: (usize, usize)) -> Option<Arc<Vec<u8>>> {
        self.buffers.iter().rev().find(|(known, _)| *known == key).map(|(_, bytes)| Arc::clone(bytes))
    }

    fn add(&mut self, key: (usize, usize), bytes: Arc<Vec<u8>>) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        self.buffers.push_back((key, bytes));
        while self.bytes > MAX_LOADED_BYTES && self.buffers.len() > 1 {
            let Some((_, oldest)) = self.buffers.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.len());
        }
    }
}
