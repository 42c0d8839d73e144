//! Finished records on their way to the session: a queue for each processor.
//!
//! ```text
//!   handler ──payload──▶ Out: header │ payload ──▶ queue of the processor ──peek, take──▶ session (writes the time)
//!                             └ hook wants stacks ─▶ stack-walk records, kernel part and user part, right behind
//! ```
//!
//! O1 The time in a header is 0: the session writes it. O2 A stack-walk record says so ([`Captured::is_stack`]), because the time of its event, which it repeats, is the
//! session's too. O3 A record that would be larger than 64 KiB is cut where that makes sense (stacks), else counted as lost;
//! so is what was to stand behind it, which would be taken for another event's. O4 What programs make to be told is more than what the rings hold, by as much as they like
//! (command lines, names): all queues together are bounded, each has a part of its own, and what is more is counted as lost. O5 What was taken does not count, and its room is given back ([`queue`]). O6 The session takes
//! records between looks: within one, what is written can still be completed.

mod queue;

pub(crate) use queue::Queue;
use traceweir_format::Guid;
use traceweir_format::header::classic::{self, ClassicHeader};
use traceweir_format::header::perfinfo::{self, PerfInfoHeader};
use traceweir_format::header::system::{self, SystemHeader};
use traceweir_format::wire::{Put, u64_at};

use crate::Clock;
use crate::capture::Captured;
use crate::counter::MAX_COUNTERS;
use crate::now_ns;
use crate::record::Sample;
use crate::stack::unwind::Unwinder;
use crate::stack::{self, KERNEL, REGISTERS, STACK_WALK, USER};

/// Bytes that wait in all queues together, at most, beside [what the rings hold](most_queued).
const MAX_QUEUED: usize = 512 << 20;
/// So much of the machine's memory, at most: one part of this many.
const MEMORY_PART: u64 = 8;

/// Bytes that wait in all queues together, at most, where rings hold so many: records are told as several, and with headers.
pub(crate) fn most_queued(ring_bytes: usize) -> usize {
    let system = rustix::system::sysinfo();
    most_queued_of(ring_bytes, system.totalram.saturating_mul(u64::from(system.mem_unit)))
}

fn most_queued_of(ring_bytes: usize, memory: u64) -> usize {
    let wanted = MAX_QUEUED.saturating_add(ring_bytes.saturating_mul(4));
    wanted.min(usize::try_from(memory / MEMORY_PART).unwrap_or(usize::MAX))
}

/// Where the payload of a record lies that waits in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    queue: usize,
    payload: usize,
}

/// Hooks of kernel events, as a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hooks(Vec<u16>);

impl Hooks {
    pub(crate) fn new(hooks: &[u16]) -> Self {
        let mut hooks = hooks.to_vec();
        hooks.sort_unstable();
        hooks.dedup();
        Self(hooks)
    }

    pub(crate) fn has(&self, hook: u16) -> bool {
        self.0.binary_search(&hook).is_ok()
    }

    pub(crate) fn has_any(&self, hooks: &[u16]) -> bool {
        hooks.iter().any(|hook| self.has(*hook))
    }
}

/// What is wanted beside events, by their hooks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// Events whose stacks are wanted.
    pub(crate) stacks: Hooks,
    /// Events whose registers are wanted.
    pub(crate) registers: Hooks,
    /// Events whose headers carry counters.
    pub(crate) counted: Hooks,
}

/// Takes what handlers make.
pub(crate) struct Out<'a> {
    pub(crate) queues: &'a mut [Queue],
    pub(crate) clock: &'a dyn Clock,
    /// What is wanted beside events.
    pub(crate) beside: &'a Beside,
    /// Frames of a stack at most.
    pub(crate) max_frames: usize,
    /// Unwinds stacks of programs, where their bytes come along.
    pub(crate) unwinder: Option<&'a mut Unwinder>,
    /// Bytes of all queues together at most.
    pub(crate) most: usize,
    /// Records that were too large, or too many.
    pub(crate) too_large: &'a mut u64,
    /// Used again and again by [`payload`](Self::payload).
    pub(crate) scratch: Vec<u8>,
    pub(crate) cpu: u16,
    /// When what is written now happened, in nanoseconds.
    pub(crate) time: u64,
    /// The sample that is being handled, for its stack.
    pub(crate) sample: Option<Sample<'a>>,
}

impl<'a> Out<'a> {
    /// Writes into queues, for now without a sample.
    pub(crate) fn new(
        queues: &'a mut [Queue],
        clock: &'a dyn Clock,
        beside: &'a Beside,
        too_large: &'a mut u64,
    ) -> Self {
        Self {
            queues,
            clock,
            beside,
            max_frames: 0,
            unwinder: None,
            most: MAX_QUEUED,
            too_large,
            scratch: Vec::new(),
            cpu: 0,
            time: now_ns(),
            sample: None,
        }
    }
}

impl Out<'_> {
    /// An empty payload to be filled and handed over.
    pub(crate) fn payload(&mut self) -> Vec<u8> {
        let mut payload = std::mem::take(&mut self.scratch);
        payload.clear();
        payload
    }

    /// A moment on the session's clock.
    pub(crate) fn stamp(&self, ns: u64) -> i64 {
        self.clock.stamp(ns)
    }

    /// An event that names process and thread in its header.
    pub(crate) fn system(
        &mut self,
        hook: u16,
        version: u8,
        (process_id, thread_id): (u32, u32),
        payload: Vec<u8>,
    ) {
        let cpu_times = Some((0, 0));
        let header =
            SystemHeader { pointer_size: 8, version, hook, thread_id, process_id, time: 0, cpu_times };
        let is_told = self.put(system::SIZE, &payload, false, |out| header.encode(&payload, out));
        self.scratch = payload;
        self.stack_of(hook, is_told);
    }

    /// An event with nothing but a time in its header.
    pub(crate) fn perfinfo(&mut self, hook: u16, version: u8, payload: Vec<u8>) {
        self.perfinfo_to_complete(hook, version, payload);
    }

    /// The same, of which something is known only later; where it is, unless it was lost.
    pub(crate) fn perfinfo_to_complete(
        &mut self,
        hook: u16,
        version: u8,
        payload: Vec<u8>,
    ) -> Option<Written> {
        let mut values = [0; MAX_COUNTERS];
        let counters = self.counters_of(hook, &mut values);
        let header = PerfInfoHeader { pointer_size: 8, version, hook, time: 0, counters };
        let size = perfinfo::SIZE.saturating_add(size_of_val(counters));
        let is_told = self.put(size, &payload, false, |out| header.encode(&payload, out));
        self.scratch = payload;
        let queue = self.place();
        let start = self.queues.get(queue).and_then(Queue::last_start).filter(|_| is_told);
        let written = start.map(|start| Written { queue, payload: start.saturating_add(size) });
        self.stack_of(hook, is_told);
        written
    }

    /// Sets the first four bytes of a payload: in the look in which it was written, for then the session takes it.
    pub(crate) fn complete(&mut self, written: Written, first: u32) {
        if let Some(queue) = self.queues.get_mut(written.queue) {
            queue.set(written.payload, first);
        }
    }

    /// The queue of the processor. One stream: everything is in the first.
    fn place(&self) -> usize {
        usize::from(self.cpu).min(self.queues.len().saturating_sub(1))
    }

    /// The counters that were read with the event with this hook, where they are wanted.
    fn counters_of<'v>(&self, hook: u16, values: &'v mut [u64; MAX_COUNTERS]) -> &'v [u64] {
        let read = self.sample.map_or(&[][..], |it| it.counters);
        if read.is_empty() || !self.beside.counted.has(hook) {
            return &[];
        }
        let mut count = 0_usize;
        for (value, word) in values.iter_mut().zip(read.chunks_exact(8)) {
            *value = u64_at(word, 0);
            count = count.saturating_add(1);
        }
        values.get(..count).unwrap_or_default()
    }

    /// An event of a class that has no hook.
    pub(crate) fn classic(
        &mut self,
        class: Guid,
        opcode: u8,
        version: u16,
        (process_id, thread_id): (u32, u32),
        payload: Vec<u8>,
    ) {
        let header =
            ClassicHeader { class, opcode, version, process_id, thread_id, ..ClassicHeader::default() };
        self.put(classic::SIZE, &payload, false, |out| header.encode(&payload, out));
        self.scratch = payload;
    }

    /// What the stack of the event with this hook is, and its registers, where they are wanted and known. `is_told`: the event is.
    fn stack_of(&mut self, hook: u16, is_told: bool) {
        let Some(sample) = self.sample else { return };
        if self.beside.stacks.has(hook) {
            self.put_stack(&sample, KERNEL, is_told);
            self.put_stack(&sample, USER, is_told);
        }
        if !sample.regs.is_empty() && self.beside.registers.has(hook) {
            let mut payload = self.payload();
            stack::put_registers(sample.pid, sample.tid, sample.regs, &mut payload);
            self.put_beside(REGISTERS, payload, is_told);
        }
    }

    fn put_stack(&mut self, sample: &Sample<'_>, part: u64, is_told: bool) {
        let mut payload = self.payload();
        payload.put_i64(0).put_u32(sample.pid).put_u32(sample.tid);
        let empty = payload.len();
        let by_tables = part == USER && !sample.user_stack.is_empty();
        let is_unwound = by_tables
            && self.unwinder.as_mut().is_some_and(|it| it.put_frames(sample, self.max_frames, &mut payload));
        if !is_unwound {
            payload.truncate(empty);
            stack::put_part(sample.callchain, part, &mut payload);
        }
        if payload.len() > empty {
            self.put_beside(STACK_WALK, payload, is_told);
        } else {
            self.scratch = payload;
        }
    }

    /// A record that says something more of the one before, which goes with it where that is not told.
    fn put_beside(&mut self, (hook, version): (u16, u8), payload: Vec<u8>, is_told: bool) {
        let header = PerfInfoHeader { pointer_size: 8, version, hook, time: 0, counters: &[] };
        if is_told {
            self.put(perfinfo::SIZE, &payload, true, |out| header.encode(&payload, out));
        } else {
            *self.too_large = self.too_large.saturating_add(1);
        }
        self.scratch = payload;
    }

    /// Appends a record to the queue of its processor. Whether it is there: what is too large is counted.
    fn put(
        &mut self,
        header: usize,
        payload: &[u8],
        is_stack: bool,
        encode: impl FnOnce(&mut Vec<u8>) -> traceweir_format::Result<()>,
    ) -> bool {
        let raw = self.clock.raw(self.time);
        let place = self.place();
        let next = Captured { length: header.saturating_add(payload.len()), raw, is_stack };
        let has_room = self.has_room(place, Queue::cost(next.length));
        let Some(queue) = self.queues.get_mut(place) else { return false };
        let is_told = has_room && queue.push(next, encode);
        if !is_told {
            *self.too_large = self.too_large.saturating_add(1);
        }
        is_told
    }

    /// Whether a queue may take so many bytes more. Half of all is shared out, and kept for a queue until it has its part; the rest is for those that come first.
    fn has_room(&self, place: usize, cost: usize) -> bool {
        let part = (self.most / 2).checked_div(self.queues.len()).unwrap_or(0);
        let would_wait = self.queues.get(place).map_or(0, Queue::waiting).saturating_add(cost);
        if would_wait <= part {
            return true;
        }
        let others = self.queues.iter().enumerate().filter(|(number, _)| *number != place);
        let others = others.map(|(_, queue)| queue.waiting().max(part));
        others.fold(would_wait, usize::saturating_add) <= self.most
    }
}

#[cfg(test)]
mod tests;
