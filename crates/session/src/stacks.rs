//! Stores equal call stacks once (TraceUnifiedStackCachingInfo): replaces the stack of a newly
//! stored record with a key.
//!
//! ```text
//!   in the buffer  │ … │ event, stack │   ──▶   │ … │ definition │ event, key │   the first time
//!                                         ──▶   │ … │ event, key │                from then on
//! ```
//!
//! - S1 A key stands for one stack as long as the session lives. A full cache forgets all stacks; a
//!   forgotten stack that occurs again gets a new key.
//! - S2 If older buffers may be gone before newer ones are read, each buffer defines the keys that
//!   it uses.
//! - S3 Each stream defines the keys that it uses. The collector empties one stream after the other,
//!   so a definition in another stream may have a later time than the event.
//! - S4 If the definition does not fit into the buffer, the event stays unchanged.
//! - S5 Processes can fill the cache, but cannot make it larger.
//!
//! The stacks of kernel events are separate events (stack walks). A new stack becomes two events:
//! its definition, and an event that names its key. A known stack becomes only the event that names
//! its key. TraceUnifiedStackCachingInfo applies to the stacks of all events, TraceStackCachingInfo
//! only to the stacks of kernel events.
//!
//! Stacks of 32-bit processes stay unchanged: their items hold only 32 bits of a key.

use std::collections::{HashMap, HashSet};
use std::time::{SystemTime, UNIX_EPOCH};

use traceweir_format::header::extended::ITEM_HEAD_BYTES;
use traceweir_format::header::{Record, event, perfinfo};
use traceweir_format::info::StackCaching;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_EXTENDED_INFO, ExtType, HeaderType};
use traceweir_format::stack_key::{KEY_ITEM_BYTES, KEY_OFFSET, MIN_FRAMES, put_definition, put_reference};
use traceweir_format::wire::{u8_at, u16_at, u64_at};

/// Bytes of a cache entry in addition to its frames.
const ENTRY_OVERHEAD_BYTES: usize = 64;

/// The stacks that are stored once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedStacks {
    /// Stacks of kernel events.
    Kernel,
    /// Stacks of all events.
    All,
}

/// The stack cache of a session.
#[derive(Debug)]
pub(crate) struct StackCache {
    cached_stacks: CachedStacks,
    keys: HashMap<Box<[u8]>, u64>,
    last_key: u64,
    bytes: usize,
    max_bytes: usize,
    /// Keys that the file defines, each with the stream that defines it; `None` if each buffer must
    /// define its own.
    defined: Option<HashSet<(usize, u64)>>,
}

/// Position of a stack in a record; `frames` are the start and end of its frames.
enum StackPosition {
    /// The stack is an extended data item with this start and end.
    Item { item: (usize, usize), frames: (usize, usize) },
    /// The record is a stack-walk event.
    Walk { frames: (usize, usize) },
}

impl StackCache {
    /// Creates an empty cache. Each buffer defines the keys that it uses until
    /// [`forget_definitions`](Self::forget_definitions) changes that.
    pub(crate) fn new(cache: StackCaching, cached_stacks: CachedStacks) -> Self {
        let max_bytes = cache.bytes as usize;
        let capacity = (cache.buckets as usize).min(max_bytes / ENTRY_OVERHEAD_BYTES);
        // Keys must differ from those of other sessions in the same file and of earlier caches, so
        // they start at the current time.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last_key = u64::try_from(since_epoch.as_nanos()).unwrap_or(0);
        Self {
            cached_stacks,
            keys: HashMap::with_capacity(capacity),
            last_key,
            bytes: 0,
            max_bytes,
            defined: None,
        }
    }

    /// Returns whether stacks of events that programs write are stored once.
    pub(crate) fn includes_user_events(&self) -> bool {
        self.cached_stacks == CachedStacks::All
    }

    /// Forgets which keys are defined, because the next records go to another file or reader.
    /// `is_lossy` means that older buffers may be gone before newer ones are read.
    pub(crate) fn forget_definitions(&mut self, is_lossy: bool) {
        self.defined = (!is_lossy).then(HashSet::new);
    }

    /// Replaces the stack of the record from `start` to `end`, including its padding, with a key.
    /// `end` is the fill of the buffer; `buffer_keys` are the keys that the buffer defines; `stream`
    /// is the number of its stream. Returns the new fill and the number of added records.
    pub(crate) fn replace(
        &mut self,
        bytes: &mut [u8],
        (start, end): (usize, usize),
        time: i64,
        stream: usize,
        buffer_keys: &mut HashSet<u64>,
    ) -> (usize, u32) {
        self.try_replace(bytes, (start, end), time, stream, buffer_keys).unwrap_or((end, 0))
    }

    fn try_replace(
        &mut self,
        bytes: &mut [u8],
        (start, end): (usize, usize),
        time: i64,
        stream: usize,
        buffer_keys: &mut HashSet<u64>,
    ) -> Option<(usize, u32)> {
        let record = bytes.get(start..end)?;
        let position = find_stack(record)?;
        let frames: Box<[u8]> = match &position {
            StackPosition::Item { frames, .. } | StackPosition::Walk { frames } => {
                record.get(frames.0..frames.1)?.into()
            }
        };
        let key = self.find_or_assign_key(&frames);
        let mut out = Vec::new();
        let is_new = match &self.defined {
            Some(defined) => !defined.contains(&(stream, key)),
            None => !buffer_keys.contains(&key),
        };
        if is_new {
            put_definition(key, &frames, time, &mut out).ok()?;
        }
        match position {
            StackPosition::Item { item, .. } => put_with_key(record, item, key, &mut out)?,
            StackPosition::Walk { .. } => put_walk_with_key(record, &frames, key, time, &mut out)?,
        }
        let filled = start.checked_add(out.len())?;
        bytes.get_mut(start..filled)?.copy_from_slice(&out);
        match &mut self.defined {
            Some(defined) => defined.insert((stream, key)),
            None => buffer_keys.insert(key),
        };
        Some((filled, u32::from(is_new)))
    }

    fn find_or_assign_key(&mut self, frames: &[u8]) -> u64 {
        if let Some(key) = self.keys.get(frames) {
            return *key;
        }
        let entry_bytes = frames.len().saturating_add(ENTRY_OVERHEAD_BYTES);
        if self.bytes.saturating_add(entry_bytes) > self.max_bytes {
            self.keys.clear();
            self.bytes = 0;
            self.defined.iter_mut().for_each(HashSet::clear);
        }
        self.last_key = self.last_key.saturating_add(1);
        self.bytes = self.bytes.saturating_add(entry_bytes);
        self.keys.insert(frames.into(), self.last_key);
        self.last_key
    }
}

/// Finds a stack that is long enough for a key, in a 64-bit stack-walk event or in an extended data
/// item of a 64-bit event.
///
/// Offsets: both headers have the header type at 2. A PERFINFO header has its size at 4 and the
/// hook id at 6; an event header has its flags at 4.
fn find_stack(record: &[u8]) -> Option<StackPosition> {
    if HeaderType(u8_at(record, 2)) == HeaderType::PERFINFO64 {
        let is_walk = u16_at(record, 6) == hook::STACK_WALK;
        let (begin, end) = (perfinfo::SIZE.checked_add(KEY_OFFSET)?, usize::from(u16_at(record, 4)));
        let is_long_enough = end.checked_sub(begin)? >= MIN_FRAMES.saturating_mul(8);
        return (is_walk && is_long_enough).then_some(StackPosition::Walk { frames: (begin, end) });
    }
    let is_event = HeaderType(u8_at(record, 2)) == HeaderType::EVENT_HEADER64;
    if !is_event || u16_at(record, 4) & EVENT_HEADER_FLAG_EXTENDED_INFO == 0 {
        return None;
    }
    let view = Record::parse(record, 0).ok()?;
    let mut at = event::SIZE;
    for item in view.items() {
        let next = at.checked_add(usize::from(u16_at(record, at)))?;
        if item.kind == ExtType::STACK_TRACE64 {
            let data = at.checked_add(ITEM_HEAD_BYTES)?;
            // The match id, 8 bytes, comes before the frames.
            let frames = (data.checked_add(8)?, data.checked_add(item.data.len())?);
            let is_long_enough = item.data.len() >= MIN_FRAMES.saturating_add(1).saturating_mul(8);
            return is_long_enough.then_some(StackPosition::Item { item: (at, next), frames });
        }
        at = next;
    }
    None
}

/// Appends the record, padded, with a key instead of its stack.
fn put_with_key(record: &[u8], item_range: (usize, usize), key: u64, out: &mut Vec<u8>) -> Option<()> {
    let begin = out.len();
    let length = usize::from(u16_at(record, 0));
    let (item, tail) = (record.get(item_range.0..)?, record.get(item_range.1..length)?);
    let linkage = u16_at(item, 4);
    out.extend_from_slice(record.get(..item_range.0)?);
    for word in
        [KEY_ITEM_BYTES as u16, ExtType::STACK_KEY64.0, linkage, (KEY_ITEM_BYTES - ITEM_HEAD_BYTES) as u16]
    {
        out.extend_from_slice(&word.to_le_bytes());
    }
    // The match id stays.
    out.extend_from_slice(item.get(ITEM_HEAD_BYTES..ITEM_HEAD_BYTES.checked_add(8)?)?);
    out.extend_from_slice(&key.to_le_bytes());
    out.extend_from_slice(tail);
    let size = u16::try_from(out.len().checked_sub(begin)?).ok()?;
    out.get_mut(begin..)?.first_chunk_mut::<2>()?.copy_from_slice(&size.to_le_bytes());
    out.resize(begin.checked_add(usize::from(size).next_multiple_of(8))?, 0);
    Some(())
}

/// Appends an event that replaces a stack-walk event and names the key of its stack.
fn put_walk_with_key(record: &[u8], frames: &[u8], key: u64, time: i64, out: &mut Vec<u8>) -> Option<()> {
    // Time stamp, process and thread of the event that the stack belongs to.
    let event_id = record.get(perfinfo::SIZE..)?.first_chunk::<KEY_OFFSET>()?;
    // Kernel addresses are in the upper half of the address space.
    let is_kernel = u64_at(frames, 0) >> 63 != 0;
    put_reference(event_id, key, is_kernel, time, out).ok()
}

#[cfg(test)]
mod tests;
