//! Call stacks that are stored once: keys in place of stacks, and the events that define them.
//!
//! ```text
//!   event  … item STACK_TRACE64: match id u64, frames
//!      ▼
//!   event  … item STACK_KEY64: match id u64, key u64
//!   class StackWalk, type 0x22: key u64, frames            once
//! ```
//!
//! With TraceUnifiedStackCachingInfo, a session writes the definition before the first event with
//! the key, with the same stamp. If older buffers may be gone before newer ones are read (circular
//! logs, flight recorders, file sequences, live delivery), the session repeats the definition in
//! each buffer that uses the key. A key keeps its meaning throughout a session. A system logger of
//! Windows writes definitions after the events and reuses keys for other stacks. So a key means the
//! first definition at or after the event's time, or the last definition if there is none.
//!
//! Source: Documented ("EVENT_EXTENDED_ITEM_STACK_KEY64"); the defining event as in
//! `kernel/stack.rs`.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::Result;
use crate::header::Record;
use crate::header::extended::{ITEM_HEAD_BYTES, Item};
use crate::header::perfinfo::PerfInfoHeader;
use crate::kernel::hook::{
    STACK_KEY_CREATE, STACK_KEY_DELETE, STACK_KEY_KERNEL, STACK_KEY_RUNDOWN, STACK_KEY_USER,
};
use crate::spec::event::ExtType;
use crate::wire::{Put, u32_at, u64_at};

/// Offset of the key in the payload of an event that references a key ([`put_reference`]). Before
/// it are the time stamp, process and thread of the event that the stack belongs to.
pub const KEY_OFFSET: usize = 16;
/// The version of the events that define or reference a key.
const VERSION: u8 = 2;

/// Minimum number of frames of a stack that is replaced by a key.
pub const MIN_FRAMES: usize = 4;
/// Size of the extended data item that holds a key, in bytes.
pub const KEY_ITEM_BYTES: usize = ITEM_HEAD_BYTES + 16;
/// Bytes of definitions kept for all traces that are read together. Keys of further definitions are
/// not resolved.
const MAX_DEFINITION_BYTES: usize = 64 << 20;
/// Maximum number of definitions kept for one key.
const MAX_DEFINITIONS_PER_KEY: usize = 4096;
/// Bytes that a definition takes in addition to its frames.
const DEFINITION_OVERHEAD_BYTES: usize = 96;

/// The key in place of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackKey {
    /// 0, or the id that the kernel and the user part of one stack share.
    pub match_id: u64,
    /// The number of the stack.
    pub key: u64,
}

impl StackKey {
    /// Returns the key of an event, if it has one.
    #[must_use]
    pub fn from_record(record: &Record<'_>) -> Option<Self> {
        record.items().find_map(|Item { kind, data }| {
            let key = match kind {
                ExtType::STACK_KEY32 if data.len() >= 12 => u64::from(u32_at(data, 8)),
                ExtType::STACK_KEY64 if data.len() >= 16 => u64_at(data, 8),
                _ => return None,
            };
            Some(Self { match_id: u64_at(data, 0), key })
        })
    }
}

/// Appends the event that defines a key; `frames` are encoded as in the item of a 64-bit stack.
pub fn put_definition(key: u64, frames: &[u8], time: i64, out: &mut Vec<u8>) -> Result<()> {
    let mut payload = Vec::with_capacity(frames.len().saturating_add(8));
    payload.put_u64(key).put(frames);
    let header =
        PerfInfoHeader { pointer_size: 8, version: VERSION, hook: STACK_KEY_CREATE, time, counters: &[] };
    header.encode(&payload, out)
}

/// Appends the event that replaces a stack-walk event: time, process and thread of the event that
/// the stack belongs to, as in the stack-walk event, and the key. `is_kernel` is true for the
/// kernel part.
pub fn put_reference(
    event_ids: &[u8; KEY_OFFSET],
    key: u64,
    is_kernel: bool,
    time: i64,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut payload = Vec::with_capacity(KEY_OFFSET.saturating_add(8));
    payload.put(event_ids).put_u64(key);
    let hook = if is_kernel { STACK_KEY_KERNEL } else { STACK_KEY_USER };
    PerfInfoHeader { pointer_size: 8, version: VERSION, hook, time, counters: &[] }.encode(&payload, out)
}

/// Adds `delta` to the key that a record references or defines. `bytes` are the bytes of the
/// record, or begin with them. This keeps the keys of merged traces distinct.
pub fn shift_key(record: &Record<'_>, bytes: &mut [u8], delta: u64) {
    if let Some(offset) = key_offset(record) {
        let at = record.bytes().len().saturating_sub(record.payload().len()).saturating_add(offset);
        return add_to_field(bytes, at, record.pointer_size(), delta);
    }
    let begin = record.bytes().as_ptr().addr();
    for Item { kind, data } in record.items() {
        let key_bytes = match kind {
            ExtType::STACK_KEY32 if data.len() >= 12 => 4,
            ExtType::STACK_KEY64 if data.len() >= 16 => 8,
            _ => continue,
        };
        let at = data.as_ptr().addr().saturating_sub(begin).saturating_add(8);
        add_to_field(bytes, at, key_bytes, delta);
    }
}

/// Returns whether a record has a key to [shift](shift_key).
#[must_use]
pub fn has_key(record: &Record<'_>) -> bool {
    key_offset(record).is_some() || StackKey::from_record(record).is_some()
}

/// Returns the number of payload bytes before the key of a stack-walk event that defines or
/// references a key.
fn key_offset(record: &Record<'_>) -> Option<usize> {
    match record.hook()? {
        STACK_KEY_CREATE | STACK_KEY_DELETE | STACK_KEY_RUNDOWN => Some(0),
        STACK_KEY_KERNEL | STACK_KEY_USER => Some(KEY_OFFSET),
        _ => None,
    }
}

/// Adds to the number of 4 or 8 bytes at an offset.
fn add_to_field(bytes: &mut [u8], at: usize, key_bytes: usize, delta: u64) {
    let Some(field) = bytes.get_mut(at..at.saturating_add(key_bytes)) else { return };
    let old = if key_bytes == 4 { u64::from(u32_at(field, 0)) } else { u64_at(field, 0) };
    let new = old.wrapping_add(delta).to_le_bytes();
    field.iter_mut().zip(new).for_each(|(byte, new)| *byte = new);
}

/// The definitions of keys in one trace.
#[derive(Debug)]
pub struct Definitions {
    /// The definitions of each key, by time.
    by_key: BTreeMap<u64, Vec<KeyDefinition>>,
    /// Bytes that may still be used, shared with the other traces that are read together.
    bytes_left: Arc<AtomicUsize>,
}

impl Default for Definitions {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), bytes_left: Arc::new(AtomicUsize::new(MAX_DEFINITION_BYTES)) }
    }
}

/// The meaning of a key up to a time.
#[derive(Clone, Debug)]
struct KeyDefinition {
    time: i64,
    frames: Box<[u64]>,
}

impl Definitions {
    /// Returns empty definitions for another trace that is read together with this one. Both share
    /// one memory limit.
    #[must_use]
    pub fn with_shared_limit(&self) -> Self {
        Self { by_key: BTreeMap::new(), bytes_left: Arc::clone(&self.bytes_left) }
    }

    /// Returns whether [`observe`](Self::observe) can learn from an event.
    ///
    /// The hook id decides, because only sessions and system loggers can write it. A process may
    /// write events of any class and could otherwise forge the stacks of other processes.
    #[inline]
    #[must_use]
    pub fn is_informative(record: &Record<'_>) -> bool {
        matches!(record.hook(), Some(STACK_KEY_CREATE | STACK_KEY_DELETE | STACK_KEY_RUNDOWN))
    }

    /// Learns the meaning of a key from an event; ignores other events.
    #[inline]
    pub fn observe(&mut self, record: &Record<'_>) {
        if Self::is_informative(record) {
            self.add_definition(record);
        }
    }

    fn add_definition(&mut self, record: &Record<'_>) {
        let (payload, key_bytes) = (record.payload(), record.pointer_size());
        let words = payload.chunks_exact(key_bytes.max(1)).map(|word| match word.len() {
            4 => u64::from(u32_at(word, 0)),
            _ => u64_at(word, 0),
        });
        let mut words = words.collect::<Vec<u64>>().into_iter();
        let Some(key) = words.next() else { return };
        let frames: Box<[u64]> = words.collect();
        let definition_bytes = frames.len().saturating_mul(8).saturating_add(DEFINITION_OVERHEAD_BYTES);
        // If several threads read traces together, each may exceed the limit by one definition.
        let bytes_left = self.bytes_left.load(Ordering::Relaxed).checked_sub(definition_bytes);
        if bytes_left.is_none() && !self.by_key.contains_key(&key) {
            return;
        }
        let (time, definitions) = (record.time(), self.by_key.entry(key).or_default());
        let at = definitions.partition_point(|definition| definition.time <= time);
        // A repeated definition extends the previous one up to the new time.
        if let Some(previous) = at
            .checked_sub(1)
            .and_then(|at| definitions.get_mut(at))
            .filter(|definition| definition.frames == frames)
        {
            previous.time = time;
            return;
        }
        if let Some(bytes_left) = bytes_left.filter(|_| definitions.len() < MAX_DEFINITIONS_PER_KEY) {
            self.bytes_left.store(bytes_left, Ordering::Relaxed);
            definitions.insert(at, KeyDefinition { time, frames });
        }
    }

    /// Returns the frames of an event's stack, innermost first: those of the event, or of its
    /// key. `None` if the event has no stack, or if its key has no definition.
    #[must_use]
    pub fn frames<'a>(&'a self, record: &Record<'a>) -> Option<impl Iterator<Item = u64> + 'a> {
        let item = record.items().stack();
        let key_frames = if item.is_none() { self.frames_of_key(record) } else { None };
        if item.is_none() && key_frames.is_none() {
            return None;
        }
        let item = item.into_iter().flat_map(|stack| stack.frames());
        Some(item.chain(key_frames.into_iter().flatten().copied()))
    }

    fn frames_of_key(&self, record: &Record<'_>) -> Option<&[u64]> {
        self.frames_at(StackKey::from_record(record)?.key, record.time())
    }

    /// Returns the frames of a key at a time, innermost first; `None` if the key has no
    /// definition.
    #[must_use]
    pub fn frames_at(&self, key: u64, time: i64) -> Option<&[u64]> {
        let definitions = self.by_key.get(&key)?;
        let at = definitions.partition_point(|definition| definition.time < time);
        Some(&definitions.get(at).or_else(|| definitions.last())?.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::classic::ClassicHeader;
    use crate::header::event::EventHeader;
    use crate::kernel::hook::{STACK_WALK, type_of};
    use crate::spec::event::{EventDescriptor, class};
    use alloc::vec;

    #[test]
    fn shift_key_changes_every_form_of_key() {
        let walk = |hook: u16, key_bytes: usize| {
            let mut payload = Vec::new();
            if hook >= STACK_KEY_KERNEL {
                payload.put_u64(9).put_u32(1).put_u32(2);
            }
            payload.put(&5_u64.to_le_bytes()[..key_bytes]).put_u64(0x1000);
            let header = PerfInfoHeader {
                pointer_size: key_bytes as u8,
                version: VERSION,
                hook,
                time: 1,
                counters: &[],
            };
            let mut out = Vec::new();
            header.encode(&payload, &mut out).unwrap();
            (out, payload)
        };
        let keys = [
            (STACK_KEY_CREATE, 8),
            (STACK_KEY_DELETE, 4),
            (STACK_KEY_RUNDOWN, 8),
            (STACK_KEY_KERNEL, 8),
            (STACK_KEY_USER, 8),
            (STACK_KEY_USER, 4),
        ];
        for (hook, key_bytes) in keys {
            let (mut bytes, payload) = walk(hook, key_bytes);
            let before = bytes.clone();
            let record = Record::parse(&before, 0).unwrap();
            assert!(has_key(&record), "{hook:#x}");
            shift_key(&record, &mut bytes, 1 << 26);
            let shifted = Record::parse(&bytes, 0).unwrap();
            let at = if hook >= STACK_KEY_KERNEL { KEY_OFFSET } else { 0 };
            let mut expected = payload.clone();
            expected[at..at + key_bytes].copy_from_slice(&((1_u64 << 26) + 5).to_le_bytes()[..key_bytes]);
            assert_eq!(shifted.payload(), expected, "{hook:#x}");
        }
        let (other, _) = walk(STACK_WALK, 8);
        assert!(!has_key(&Record::parse(&other, 0).unwrap()));
    }

    fn encode_event(key: u64, time: i64) -> Vec<u8> {
        let mut data = Vec::new();
        data.put_u64(0).put_u64(key);
        let items = [Item { kind: ExtType::STACK_KEY64, data: &data }];
        let mut out = Vec::new();
        EventHeader { time, items: &items, ..EventHeader::default() }.encode(b"", &mut out).unwrap();
        out
    }

    fn encode_definition(key: u64, frames: &[u64], time: i64) -> Vec<u8> {
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_le_bytes()).collect();
        let mut out = Vec::new();
        put_definition(key, &bytes, time, &mut out).unwrap();
        out
    }

    #[test]
    fn key_means_first_definition_at_or_after_the_event_or_the_last() {
        let mut definitions = Definitions::default();
        for record in [
            encode_definition(7, &[1, 2, 3, 4], 10),
            encode_definition(7, &[1, 2, 3, 4], 11),
            encode_definition(7, &[9; 4], 20),
        ] {
            let record = Record::parse(&record, 0).unwrap();
            assert!(Definitions::is_informative(&record));
            definitions.observe(&record);
        }
        let frames = |key, time| {
            let event = encode_event(key, time);
            definitions.frames(&Record::parse(&event, 0).unwrap()).map(Iterator::collect::<Vec<u64>>)
        };
        assert_eq!((frames(7, 5), frames(7, 10)), (Some(vec![1, 2, 3, 4]), Some(vec![1, 2, 3, 4])));
        assert_eq!((frames(7, 15), frames(7, 30)), (Some(vec![9; 4]), Some(vec![9; 4])));
        assert_eq!(frames(8, 5), None);
    }

    #[test]
    fn keys_of_events_and_definitions_shift_together() {
        let mut shifted = Definitions::default();
        let (mut event, mut definition) = (encode_event(7, 5), encode_definition(7, &[1, 2, 3, 4], 5));
        for bytes in [&mut event, &mut definition] {
            let before = bytes.clone();
            let record = Record::parse(&before, 0).unwrap();
            assert!(has_key(&record));
            shift_key(&record, bytes, 1 << 26);
            assert_eq!(bytes.iter().zip(&before).filter(|(a, b)| a != b).count(), 1, "other bytes changed");
        }
        shifted.observe(&Record::parse(&definition, 0).unwrap());
        let event = Record::parse(&event, 0).unwrap();
        assert_eq!(StackKey::from_record(&event).unwrap().key, (1 << 26) + 7);
        assert_eq!(shifted.frames(&event).unwrap().collect::<Vec<u64>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn traces_read_together_share_one_memory_limit() {
        let first = Definitions::default();
        let mut traces = [first.with_shared_limit(), first.with_shared_limit(), first];
        let frames = [3; 6_000];
        for key in 0..1_500 {
            let bytes = encode_definition(key, &frames, 1);
            let trace = key as usize % traces.len();
            traces[trace].observe(&Record::parse(&bytes, 0).unwrap());
        }
        let count: usize = traces.iter().map(|trace| trace.by_key.len()).sum();
        assert_eq!(count, MAX_DEFINITION_BYTES / (frames.len() * 8 + DEFINITION_OVERHEAD_BYTES));
        assert!(traces.iter().all(|trace| trace.by_key.len() > 100), "a trace has few definitions");
    }

    #[test]
    fn events_of_a_process_define_no_key() {
        let payload = [7_u64, 0xBAD, 0xBAD, 0xBAD, 0xBAD].map(u64::to_le_bytes).concat();
        let (mut classic, mut modern) = (Vec::new(), Vec::new());
        ClassicHeader {
            opcode: type_of(STACK_KEY_CREATE),
            class: class::STACK_WALK,
            time: 10,
            ..ClassicHeader::default()
        }
        .encode(&payload, &mut classic)
        .unwrap();
        let descriptor = EventDescriptor { opcode: type_of(STACK_KEY_CREATE), ..EventDescriptor::default() };
        EventHeader { provider: class::STACK_WALK, descriptor, time: 10, ..EventHeader::default() }
            .encode(&payload, &mut modern)
            .unwrap();
        let mut definitions = Definitions::default();
        for forged in [classic, modern] {
            let forged = Record::parse(&forged, 0).unwrap();
            assert_eq!(
                (forged.provider(), forged.descriptor().opcode),
                (class::STACK_WALK, type_of(STACK_KEY_CREATE))
            );
            assert!(!Definitions::is_informative(&forged));
            definitions.observe(&forged);
        }
        let event = encode_event(7, 5);
        assert!(definitions.frames(&Record::parse(&event, 0).unwrap()).is_none());
    }

    #[test]
    fn stack_in_the_event_needs_no_definition() {
        let data = [0_u64, 5, 6].map(u64::to_le_bytes).concat();
        let items = [Item { kind: ExtType::STACK_TRACE64, data: &data }];
        let mut out = Vec::new();
        EventHeader { items: &items, ..EventHeader::default() }.encode(b"", &mut out).unwrap();
        let record = Record::parse(&out, 0).unwrap();
        let empty = Definitions::default();
        assert_eq!(empty.frames(&record).unwrap().collect::<Vec<u64>>(), [5, 6]);
        assert_eq!(StackKey::from_record(&record), None);
    }
}
