//! Events on their way from a reader thread to Python.

use std::collections::VecDeque;
use std::sync::Arc;

use traceweir_analysis::event::{DescribedEvent, describes_file};
use traceweir_analysis::frames::{ResolvedAddress, resolve_stack};
use traceweir_analysis::symbols::SymbolFrame;
use traceweir_decode::actors::Actor;
use traceweir_decode::format::Style;
use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::time::FileTime;

use crate::kind::{EventKind, KindCache};

/// A batch is full with this many bytes of records and stacks.
const BATCH_BYTES: usize = 256 << 10;
/// A batch is full with this many events.
const MAX_BATCH_EVENTS: usize = 4 << 10;
/// A batch is full when the kinds that were made for it take this many bytes.
const MAX_NEW_KIND_BYTES: usize = 4 << 20;

/// A frame of a call stack.
#[derive(Clone)]
pub(crate) struct FrameData {
    pub(crate) address: u64,
    /// The function, if symbols were requested.
    pub(crate) function: Option<FunctionData>,
}

/// A function of a frame. Inlined functions have frames of their own, innermost first.
#[derive(Clone)]
pub(crate) struct FunctionData {
    /// The functions at the address.
    pub(crate) frames: Arc<[SymbolFrame]>,
    /// Index of the function among them.
    pub(crate) index: usize,
    /// Distance between the resolved address and the address of the frame.
    pub(crate) lookup_offset: u64,
}

/// The header of an event, the names that belong to it, and its record.
pub(crate) struct EventData {
    pub(crate) time: FileTime,
    pub(crate) ns_since_start: i64,
    pub(crate) provider: Guid,
    pub(crate) descriptor: EventDescriptor,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) actor: Option<Actor>,
    pub(crate) cpu: u16,
    pub(crate) pointer_size: u8,
    pub(crate) is_kernel: bool,
    pub(crate) describes_file: bool,
    /// Index of the trace.
    pub(crate) file: usize,
    pub(crate) activity: Option<Guid>,
    /// The schema, or the reason why there is none.
    pub(crate) kind: Result<Arc<EventKind>, Arc<str>>,
    pub(crate) provider_name: Option<Arc<str>>,
    pub(crate) process: Option<Arc<str>>,
    pub(crate) stack: Option<Box<[FrameData]>>,
    payload_start: usize,
    payload_end: usize,
    /// The bytes of the record, and after them the payload if it is not a part of the record.
    bytes: Box<[u8]>,
    record_len: usize,
}

impl EventData {
    /// Returns the payload that the schema describes.
    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes.get(self.payload_start..self.payload_end).unwrap_or_default()
    }

    /// Returns the record, without the time that a record without a stamp inherits.
    pub(crate) fn record(&self) -> Option<Record<'_>> {
        Record::parse(self.bytes.get(..self.record_len)?, self.cpu).ok()
    }

    /// Returns the ids of the process and the thread that the event concerns.
    pub(crate) fn concerned(&self) -> Actor {
        self.actor.unwrap_or(Actor { pid: self.pid, tid: self.tid })
    }
}

/// A copy of an event without the bytes of its record.
pub(crate) struct CopiedEvent {
    pub(crate) data: EventData,
    /// The payload, if it is not a part of the record.
    other_payload: Vec<u8>,
    /// The part of a batch that the kinds fill that were made for the event.
    kind_cost: usize,
}

/// Events in the order in which they were added.
#[derive(Default)]
pub(crate) struct EventBatch {
    /// The bytes of all events, each copied to its event when it is taken out.
    arena: Vec<u8>,
    events: VecDeque<(EventData, usize)>,
    /// Bytes that the batch takes besides the arena.
    other_bytes: usize,
    /// Position in the arena of the next event to take out.
    taken_bytes: usize,
}

impl EventBatch {
    /// Returns whether no further event belongs into the batch.
    pub(crate) fn is_full(&self) -> bool {
        self.arena.len().saturating_add(self.other_bytes) >= BATCH_BYTES
            || self.events.len() >= MAX_BATCH_EVENTS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Adds an event.
    pub(crate) fn push(&mut self, copied: CopiedEvent, record: &[u8]) {
        let frames = copied.data.stack.as_ref().map_or(0, |frames| frames.len());
        let cost = frames.saturating_mul(size_of::<FrameData>()).saturating_add(copied.kind_cost);
        self.other_bytes = self.other_bytes.saturating_add(cost);
        self.arena.extend_from_slice(record);
        self.arena.extend_from_slice(&copied.other_payload);
        let len = record.len().saturating_add(copied.other_payload.len());
        self.events.push_back((copied.data, len));
    }

    /// Takes the first event out of the batch.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<EventData> {
        let (mut event, len) = self.events.pop_front()?;
        let start = self.taken_bytes;
        self.taken_bytes = start.saturating_add(len);
        event.bytes = self.arena.get(start..self.taken_bytes).unwrap_or_default().into();
        Some(event)
    }

    /// Removes all events and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        self.events.clear();
        (self.other_bytes, self.taken_bytes) = (0, 0);
    }
}

/// Copies events, and keeps the names and schemas that events share.
pub(crate) struct EventCopier {
    kinds: KindCache,
    provider_name: Option<Arc<str>>,
    /// Names of processes, in slots by process id.
    processes: Vec<Option<Arc<str>>>,
    last_reason: Arc<str>,
}

/// Number of slots for names of processes.
const PROCESS_SLOTS: usize = 256;

impl EventCopier {
    pub(crate) fn new(style: Style) -> Self {
        let kinds = KindCache::new(style);
        Self { kinds, provider_name: None, processes: vec![None; PROCESS_SLOTS], last_reason: "".into() }
    }

    /// Copies what an event consists of besides the bytes of its record.
    pub(crate) fn copy(&mut self, event: &DescribedEvent<'_>) -> CopiedEvent {
        let record = &event.record;
        let (kind, payload) = match &event.schema_match {
            Ok(schema_match) => (Ok(self.kinds.find(schema_match.prepared)), schema_match.payload),
            Err(reason) => (Err(self.share_reason(reason.to_string())), record.payload()),
        };
        let position = position_in(record.bytes(), payload);
        let payload_start = position.unwrap_or(record.bytes().len());
        let data = EventData {
            time: event.time,
            ns_since_start: event.ns_since_start(),
            provider: record.provider(),
            descriptor: record.descriptor(),
            pid: record.process_id(),
            tid: record.thread_id(),
            actor: event.actor,
            cpu: record.cpu(),
            pointer_size: u8::try_from(record.pointer_size()).unwrap_or(8),
            is_kernel: record.hook().is_some(),
            describes_file: describes_file(record),
            file: event.file,
            activity: record.activity(),
            kind,
            provider_name: event.provider.map(|name| share(&mut self.provider_name, name)),
            process: event.process.map(|name| {
                let pid = event.actor.map_or(record.process_id(), |actor| actor.pid);
                let slot = (pid ^ (pid >> 8)) as usize % PROCESS_SLOTS;
                match self.processes.get_mut(slot) {
                    Some(slot) => share(slot, name),
                    None => name.into(),
                }
            }),
            stack: copy_stack(event),
            payload_start,
            payload_end: payload_start.saturating_add(payload.len()),
            bytes: Box::default(),
            record_len: record.bytes().len(),
        };
        let other_payload = if position.is_none() { payload.to_vec() } else { Vec::new() };
        let kind_cost = self.kinds.take_new_bytes().saturating_mul(BATCH_BYTES) / MAX_NEW_KIND_BYTES;
        CopiedEvent { data, other_payload, kind_cost }
    }

    fn share_reason(&mut self, reason: String) -> Arc<str> {
        if *self.last_reason != *reason {
            self.last_reason = reason.into();
        }
        Arc::clone(&self.last_reason)
    }
}

/// Returns the text that a slot shares, after replacing it if it differs from `text`.
#[inline]
fn share(slot: &mut Option<Arc<str>>, text: &str) -> Arc<str> {
    match slot {
        Some(shared) if **shared == *text => Arc::clone(shared),
        _ => Arc::clone(slot.insert(text.into())),
    }
}

/// Returns the position of a part in the bytes that it was taken from; `None` if it was not.
fn position_in(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let position = part.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
    (position.checked_add(part.len())? <= bytes.len()).then_some(position)
}

/// Returns the call stack of an event, innermost frame first.
pub(crate) fn copy_stack(event: &DescribedEvent<'_>) -> Option<Box<[FrameData]>> {
    if event.symbols.is_some() {
        let resolved = resolve_stack(event)?;
        return Some(resolved.into_iter().flat_map(to_frames).collect());
    }
    if !event.may_have_items {
        return None;
    }
    let to_frame = |address| FrameData { address, function: None };
    if let Some(walk) = StackWalk::parse(&event.record) {
        return Some(walk.frames(event.definitions())?.map(to_frame).collect());
    }
    Some(event.frames()?.map(to_frame).collect())
}

/// Returns the frames at an address: one for each inlined function and one for the outermost.
fn to_frames(resolved: ResolvedAddress) -> impl Iterator<Item = FrameData> {
    let ResolvedAddress { address, frames, lookup_offset } = resolved;
    // An address without a function is a frame, too.
    (0..frames.len().max(1)).map(move |index| FrameData {
        address,
        function: (index < frames.len()).then(|| FunctionData {
            frames: Arc::clone(&frames),
            index,
            lookup_offset,
        }),
    })
}
