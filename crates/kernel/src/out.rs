//! Writes finished records into a queue per processor, from which the session takes them.
//!
//! ```text
//!   handler ──payload──▶ Out: header │ payload ──▶ queue of the processor ──▶ session
//!                         │                                       (writes the time)
//!                         └ stacks enabled for the hook: stack-walk records follow the event,
//!                           kernel part and user part
//! ```
//!
//! - O1 The time in a header is 0: the session writes it.
//! - O2 A stack-walk record is marked ([`QueuedRecord::is_stack`]), because it repeats the time of
//!   its event, which the session writes too.
//! - O3 A record that would be larger than 64 KiB is counted as lost. So are its stack and its
//!   registers, because they would be attributed to another event.
//! - O4 A process can cause records much larger than its ring data (command lines, names). So all
//!   queues together are bounded, a share is reserved for each queue, and records beyond the bound
//!   are counted as lost.
//! - O5 Records that the session has taken do not count towards the bound, and their memory is
//!   freed ([`queue`]).
//! - O6 The session takes records only between polls. Within a poll, a written record can still be
//!   completed.

mod queue;

pub(crate) use self::queue::RecordQueue;
pub use self::queue::{QueuedRecord, RecordOrigin};

use traceweir_format::Guid;
use traceweir_format::header::classic::{self, ClassicHeader};
use traceweir_format::header::perfinfo::{self, PerfInfoHeader};
use traceweir_format::header::system::{self, SystemHeader};
use traceweir_format::kernel::hook;
use traceweir_format::put_kernel_event;
use traceweir_format::wire::u64_at;

use crate::clock::{Clock, now_ns};
use crate::counter::MAX_COUNTERS;
use crate::record::PerfSample;
use crate::settings::EventExtras;
use crate::stack::unwind::StackUnwinder;
use crate::stack::{self, KERNEL_MARKER, STACK_LAYOUT, USER_MARKER, registers};
use crate::tasks::TaskIds;

/// The largest number of bytes in all queues, not counting an allowance for [ring
/// contents](max_queued_bytes).
const MAX_QUEUED_BYTES: usize = 512 << 20;
/// The queues use at most the machine's memory divided by this number.
const MEMORY_DIVISOR: u64 = 8;

/// Returns the largest number of bytes in all queues for rings of this total size. A ring record
/// can turn into several records with headers, so four times the ring size is added.
pub(crate) fn max_queued_bytes(ring_bytes: usize) -> usize {
    let system = rustix::system::sysinfo();
    max_queued_for_memory(ring_bytes, system.totalram.saturating_mul(u64::from(system.mem_unit)))
}

fn max_queued_for_memory(ring_bytes: usize, memory: u64) -> usize {
    let bytes = MAX_QUEUED_BYTES.saturating_add(ring_bytes.saturating_mul(4));
    bytes.min(usize::try_from(memory / MEMORY_DIVISOR).unwrap_or(usize::MAX))
}

/// The position of a payload in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadPosition {
    queue_index: usize,
    payload_start: usize,
}

/// The call stack of a thread, kept until the event that it belongs to.
#[derive(Debug)]
pub(crate) struct KeptStack {
    /// The payloads of stack-walk events: kernel part and user part. A part may be empty.
    parts: [Box<[u8]>; 2],
}

/// Returns the ids of this process and thread, the writer of events with no other originator.
pub(crate) fn writer_ids() -> TaskIds {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    TaskIds { pid: std::process::id(), tid: u32::try_from(thread).unwrap_or(0) }
}

/// The output of handlers.
pub(crate) struct Out<'a> {
    pub(crate) queues: &'a mut [RecordQueue],
    pub(crate) clock: &'a dyn Clock,
    /// The events that are recorded with additional data.
    pub(crate) extras: &'a EventExtras,
    /// The largest number of frames in a stack.
    pub(crate) max_frames: usize,
    /// Unwinds user stacks, if samples contain stack copies.
    pub(crate) unwinder: Option<&'a mut StackUnwinder>,
    /// The largest number of bytes in all queues.
    pub(crate) max_bytes: usize,
    /// The number of records that were too large or exceeded a bound.
    pub(crate) lost_records: &'a mut u64,
    /// Memory that [`new_payload`](Self::new_payload) reuses.
    pub(crate) scratch: Vec<u8>,
    pub(crate) cpu: u16,
    /// The time of the events that are being written, in nanoseconds.
    pub(crate) time: u64,
    /// The sample that is being handled, which contains the stack.
    pub(crate) sample: Option<PerfSample<'a>>,
    /// While a record other than a sample is handled: the thread that ran when it was written.
    pub(crate) current: Option<TaskIds>,
    /// Whether events are written. Events of processes outside the scope of the capture are not.
    pub(crate) is_in_scope: bool,
}

impl<'a> Out<'a> {
    /// Creates an output to these queues, without a sample.
    pub(crate) fn new(
        queues: &'a mut [RecordQueue],
        clock: &'a dyn Clock,
        extras: &'a EventExtras,
        lost_records: &'a mut u64,
    ) -> Self {
        Self {
            queues,
            clock,
            extras,
            max_frames: 0,
            unwinder: None,
            max_bytes: MAX_QUEUED_BYTES,
            lost_records,
            scratch: Vec::new(),
            cpu: 0,
            time: now_ns(),
            sample: None,
            current: None,
            is_in_scope: true,
        }
    }
}

impl Out<'_> {
    /// Sets the processor and time of the following events, which belong to no sample and are in
    /// scope.
    pub(crate) fn set_origin(&mut self, cpu: u16, time: u64) {
        self.is_in_scope = true;
        (self.cpu, self.time, self.sample, self.current) = (cpu, time, None, None);
    }

    fn origin(&self) -> RecordOrigin {
        let sampled = self.sample.map(|sample| TaskIds { pid: sample.pid, tid: sample.tid });
        let TaskIds { pid: process_id, tid: thread_id } =
            sampled.or(self.current).unwrap_or(TaskIds { pid: u32::MAX, tid: u32::MAX });
        RecordOrigin { cpu: self.cpu, process_id, thread_id }
    }

    /// Returns an empty payload to fill and pass to one of the methods below.
    pub(crate) fn new_payload(&mut self) -> Vec<u8> {
        let mut payload = std::mem::take(&mut self.scratch);
        payload.clear();
        payload
    }

    /// Converts a time to the session's clock.
    pub(crate) fn to_stamp(&self, ns: u64) -> i64 {
        self.clock.stamp(ns)
    }

    /// Writes an event with process and thread id in its header.
    pub(crate) fn write_system(&mut self, hook: u16, version: u8, ids: TaskIds, payload: Vec<u8>) {
        if !self.is_in_scope {
            self.scratch = payload;
            return;
        }
        let (process_id, thread_id) = (ids.pid, ids.tid);
        let cpu_times = Some((0, 0));
        let header =
            SystemHeader { pointer_size: 8, version, hook, thread_id, process_id, time: 0, cpu_times };
        let is_written =
            self.append_record(system::SIZE, &payload, false, |out| header.encode(&payload, out));
        self.scratch = payload;
        self.put_stacks(hook, is_written);
    }

    /// Writes an event with only a time in its header.
    pub(crate) fn write_perfinfo(&mut self, hook: u16, version: u8, payload: Vec<u8>) {
        self.write_completable_perfinfo(hook, version, payload);
    }

    /// Writes an event like [`write_perfinfo`](Self::write_perfinfo) and returns its position, so
    /// that it can be [completed](Self::complete_payload) later. Returns `None` if the event was
    /// lost or is out of scope.
    pub(crate) fn write_completable_perfinfo(
        &mut self,
        hook: u16,
        version: u8,
        payload: Vec<u8>,
    ) -> Option<PayloadPosition> {
        if !self.is_in_scope {
            self.scratch = payload;
            return None;
        }
        let position = self.append_perfinfo(hook, version, payload);
        self.put_stacks(hook, position.is_some());
        position
    }

    /// Writes an event like [`write_perfinfo`](Self::write_perfinfo), with a kept stack instead of
    /// the stack of the sample.
    pub(crate) fn write_perfinfo_with_stack(
        &mut self,
        hook: u16,
        version: u8,
        payload: Vec<u8>,
        stack: Option<&KeptStack>,
    ) {
        if !self.is_in_scope {
            self.scratch = payload;
            return;
        }
        let is_written = self.append_perfinfo(hook, version, payload).is_some();
        let stack = stack.filter(|_| self.extras.stacks.has(hook));
        for part in stack.iter().flat_map(|stack| &stack.parts).filter(|part| !part.is_empty()) {
            let mut payload = self.new_payload();
            payload.extend_from_slice(part);
            self.put_following(hook::STACK_WALK, STACK_LAYOUT.version(), payload, is_written);
        }
        self.put_registers(hook, is_written);
    }

    /// Returns the stack of the sample, to be written with a later event of this hook as the stack
    /// of the thread `tid`; `None` if such events have no stacks, or the sample has none. The sample
    /// itself does not name a thread that is ending.
    pub(crate) fn keep_stack(&mut self, hook: u16, tid: u32) -> Option<KeptStack> {
        let sample = self.sample.filter(|_| self.extras.stacks.has(hook))?;
        let sample = PerfSample { tid, ..sample };
        let parts: [Box<[u8]>; 2] = [KERNEL_MARKER, USER_MARKER].map(|marker| {
            let payload = self.build_stack(&sample, marker);
            let part = payload.as_deref().map(Box::from).unwrap_or_default();
            self.scratch = payload.unwrap_or_default();
            part
        });
        parts.iter().any(|part| !part.is_empty()).then_some(KeptStack { parts })
    }

    /// Appends an event with only a time in its header. Returns `None` if the event was lost.
    fn append_perfinfo(&mut self, hook: u16, version: u8, payload: Vec<u8>) -> Option<PayloadPosition> {
        let mut values = [0; MAX_COUNTERS];
        let counters = self.copy_counters(hook, &mut values);
        let header = PerfInfoHeader { pointer_size: 8, version, hook, time: 0, counters };
        let size = perfinfo::SIZE.saturating_add(size_of_val(counters));
        let is_written = self.append_record(size, &payload, false, |out| header.encode(&payload, out));
        self.scratch = payload;
        let queue_index = self.queue_index();
        let start =
            self.queues.get(queue_index).and_then(RecordQueue::last_record_start).filter(|_| is_written);
        start.map(|start| PayloadPosition { queue_index, payload_start: start.saturating_add(size) })
    }

    /// Sets the first four bytes of a payload. This works only in the poll that wrote the payload;
    /// after that the session takes it.
    pub(crate) fn complete_payload(&mut self, position: PayloadPosition, first_word: u32) {
        if let Some(queue) = self.queues.get_mut(position.queue_index) {
            queue.overwrite_u32(position.payload_start, first_word);
        }
    }

    /// Returns the index of the processor's queue. With a single stream there is only the first.
    fn queue_index(&self) -> usize {
        usize::from(self.cpu).min(self.queues.len().saturating_sub(1))
    }

    /// Returns the counters that were read with the sample, if events with this hook carry them.
    fn copy_counters<'v>(&self, hook: u16, values: &'v mut [u64; MAX_COUNTERS]) -> &'v [u64] {
        let bytes = self.sample.map_or(&[][..], |sample| sample.counters);
        if bytes.is_empty() || !self.extras.counters.has(hook) {
            return &[];
        }
        let mut count = 0_usize;
        for (value, word) in values.iter_mut().zip(bytes.chunks_exact(8)) {
            *value = u64_at(word, 0);
            count = count.saturating_add(1);
        }
        values.get(..count).unwrap_or_default()
    }

    /// Writes an event of a class that has no hook.
    pub(crate) fn write_classic(
        &mut self,
        class: Guid,
        opcode: u8,
        version: u16,
        ids: TaskIds,
        payload: Vec<u8>,
    ) {
        if !self.is_in_scope {
            self.scratch = payload;
            return;
        }
        let (process_id, thread_id) = (ids.pid, ids.tid);
        let header =
            ClassicHeader { class, opcode, version, process_id, thread_id, ..ClassicHeader::default() };
        self.append_record(classic::SIZE, &payload, false, |out| header.encode(&payload, out));
        self.scratch = payload;
    }

    /// Writes the stacks and registers of an event, if they are enabled for its hook and the sample
    /// has them. `is_written` is whether the event itself was written.
    fn put_stacks(&mut self, hook: u16, is_written: bool) {
        let Some(sample) = self.sample else { return };
        if self.extras.stacks.has(hook) {
            self.put_stack(&sample, KERNEL_MARKER, is_written);
            self.put_stack(&sample, USER_MARKER, is_written);
        }
        self.put_registers(hook, is_written);
    }

    fn put_registers(&mut self, hook: u16, is_written: bool) {
        let Some(sample) = self.sample else { return };
        if !sample.regs.is_empty() && self.extras.registers.has(hook) {
            let mut payload = self.new_payload();
            registers::put_payload(sample.pid, sample.tid, sample.regs, &mut payload);
            let version = registers::LAYOUT.version();
            self.put_following(hook::CONTEXT_REGISTERS, version, payload, is_written);
        }
    }

    fn put_stack(&mut self, sample: &PerfSample<'_>, marker: u64, is_written: bool) {
        if let Some(payload) = self.build_stack(sample, marker) {
            self.put_following(hook::STACK_WALK, STACK_LAYOUT.version(), payload, is_written);
        }
    }

    /// Returns the payload of a stack-walk event with the frames after a marker; `None` without
    /// frames.
    fn build_stack(&mut self, sample: &PerfSample<'_>, marker: u64) -> Option<Vec<u8>> {
        let mut payload = self.new_payload();
        put_kernel_event!(&mut payload, STACK_LAYOUT, { ProcessId: sample.pid, ThreadId: sample.tid });
        let length_before = payload.len();
        let has_stack_copy = marker == USER_MARKER && !sample.user_stack.is_empty();
        let max_frames = self.max_frames;
        let is_unwound = has_stack_copy
            && self
                .unwinder
                .as_mut()
                .is_some_and(|unwinder| unwinder.put_frames(sample, max_frames, &mut payload));
        if !is_unwound {
            payload.truncate(length_before);
            stack::put_frames_after(marker, sample.callchain, &mut payload);
        }
        if payload.len() > length_before {
            return Some(payload);
        }
        self.scratch = payload;
        None
    }

    /// Writes a record that belongs to the event before it. If that event was not written, counts
    /// the record as lost.
    fn put_following(&mut self, hook: u16, version: u8, payload: Vec<u8>, is_written: bool) {
        let header = PerfInfoHeader { pointer_size: 8, version, hook, time: 0, counters: &[] };
        if is_written {
            self.append_record(perfinfo::SIZE, &payload, true, |out| header.encode(&payload, out));
        } else {
            *self.lost_records = self.lost_records.saturating_add(1);
        }
        self.scratch = payload;
    }

    /// Appends a record to the queue of its processor. Returns `false` and counts the record as
    /// lost if it is too large or the queue is full.
    fn append_record(
        &mut self,
        header_bytes: usize,
        payload: &[u8],
        is_stack: bool,
        encode: impl FnOnce(&mut Vec<u8>) -> traceweir_format::Result<()>,
    ) -> bool {
        let raw = self.clock.raw(self.time);
        let queue_index = self.queue_index();
        let next = QueuedRecord {
            length: header_bytes.saturating_add(payload.len()),
            raw,
            is_stack,
            origin: self.origin(),
        };
        let has_space = self.has_space(queue_index, RecordQueue::cost_bytes(next.length));
        let Some(queue) = self.queues.get_mut(queue_index) else { return false };
        let is_written = has_space && queue.push(next, encode);
        if !is_written {
            *self.lost_records = self.lost_records.saturating_add(1);
        }
        is_written
    }

    /// Returns whether a queue may grow by `cost_bytes`. One half of the bound is reserved in equal
    /// shares for the queues. The other half goes to the queues that need it first.
    fn has_space(&self, queue_index: usize, cost_bytes: usize) -> bool {
        let reserved = (self.max_bytes / 2).checked_div(self.queues.len()).unwrap_or(0);
        let waiting_bytes =
            self.queues.get(queue_index).map_or(0, RecordQueue::waiting_bytes).saturating_add(cost_bytes);
        if waiting_bytes <= reserved {
            return true;
        }
        let others = self.queues.iter().enumerate().filter(|(index, _)| *index != queue_index);
        let others = others.map(|(_, queue)| queue.waiting_bytes().max(reserved));
        others.fold(waiting_bytes, usize::saturating_add) <= self.max_bytes
    }
}

#[cfg(test)]
mod tests;
