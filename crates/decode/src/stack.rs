//! Joins stack-walk events to the events whose call stacks they hold.
//!
//! ```text
//!   records in time order
//!     sample  t=10 thread 7 ──expect──▶ ┌ waiting, oldest first ─────┐
//!     stack of (10, 7), kernel ─attach─▶│ sample 10/7: kernel, user  │─next─▶ sample with stack
//!     stack of (10, 7), user ──attach──▶│ switch 12/8|9: …           │        after the window
//!                                       └────────────────────────────┘
//! ```
//!
//! In the picture, 10/7 is the time stamp and the thread of an event; 12/8|9 is a context switch
//! between the threads 8 and 9.
//!
//! A stack-walk event follows its event and has the event's time stamp and thread. The user part of
//! the stack may come later and from another processor, once the thread has returned to user mode.
//! Nothing marks the last part, so an event waits for [`WINDOW_100NS`] before it is released.
//!
//! J1  Events are released in the order in which they were added, each exactly once, with or
//! without a stack.
//! J2  A part of a stack belongs to the newest event that has the stack's time stamp, may have its
//! thread, and lacks this part. An event of the same processor is preferred.
//! J3  The number and the bytes of waiting events are bounded: beyond the limit the oldest event is
//! released early. A stack that comes after that belongs to no event.
//!
//! A context switch names two threads. Its stack belongs to the thread that is switched in; a stack
//! of the thread that is switched out is accepted too. An event whose record names no thread
//! (PERFINFO headers) belongs to the thread that ran on its processor: the first stack from that
//! processor names this thread.
//!
//! Sources: Documented ("StackWalk_Event class"); that user parts come late and from other
//! processors is Observed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::hook;
use traceweir_format::stack_key::Definitions;
use traceweir_format::stack_walk::{StackWalk, is_kernel_address};
use traceweir_format::time::UNITS_PER_SECOND;
use traceweir_format::wire::u32_at;

/// The time that an event waits for its stack, in units of 100 ns. In the traces examined, no stack
/// came later than a tenth of this time.
pub const WINDOW_100NS: i64 = 2 * UNITS_PER_SECOND;
/// The most events that wait for their stacks.
const MAX_WAITING_EVENTS: usize = 1 << 17;
/// The most bytes that waiting events hold.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// The most frames that are kept of one part; recorders write at most 192.
const MAX_FRAMES: usize = 1024;
/// The most events of one time stamp that are checked for one stack; real traces have two or three.
const MAX_EVENTS_PER_STAMP: usize = 64;
/// Bytes that a waiting event takes besides its frames and the bytes that the caller counts.
const EVENT_OVERHEAD_BYTES: usize = 160;

/// The threads whose stacks an event may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackThreads {
    /// The thread that ran on the event's processor; the record does not name it.
    Running,
    /// The thread with this id.
    One(u32),
    /// Either of two threads: the new and the old thread of a context switch.
    Either(u32, u32),
}

impl StackThreads {
    /// Returns the threads whose stacks a record may have.
    #[must_use]
    pub fn from_record(record: &Record<'_>) -> Self {
        let payload = record.payload();
        match record.hook() {
            Some(hook::CONTEXT_SWITCH) => Self::Either(u32_at(payload, 0), u32_at(payload, 4)),
            Some(hook::SAMPLED_PROFILE | hook::PMC_PROFILE) => {
                Self::One(u32_at(payload, record.pointer_size()))
            }
            _ if record.thread_id() == NO_ID => Self::Running,
            _ => Self::One(record.thread_id()),
        }
    }

    /// Returns whether the stack of a thread may belong to the event.
    #[must_use]
    pub const fn contains(self, thread: u32) -> bool {
        match self {
            Self::Running => true,
            Self::One(id) => id == thread,
            Self::Either(new, old) => new == thread || old == thread,
        }
    }
}

/// The properties of a waiting event that decide which stacks belong to it.
#[derive(Clone, Copy, Debug)]
pub struct StackClaim {
    /// The trace that the event comes from.
    pub source: usize,
    /// The event's time stamp in that trace.
    pub time: i64,
    /// The event's wall time, in units of 100 ns.
    pub wall: i64,
    /// The processor of the event.
    pub cpu: u16,
    /// The threads whose stacks the event may have.
    pub threads: StackThreads,
}

impl StackClaim {
    /// Creates the claim of a record of trace `source`, at the wall time `wall`.
    #[must_use]
    pub fn from_record(record: &Record<'_>, source: usize, wall: i64) -> Self {
        Self {
            source,
            time: record.time(),
            wall,
            cpu: record.cpu(),
            threads: StackThreads::from_record(record),
        }
    }
}

/// A call stack: kernel and user part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Process and thread of the stack, if a stack-walk event named them.
    pub owner: Option<(u32, u32)>,
    /// The kernel frames, innermost first.
    pub kernel: Vec<u64>,
    /// The user frames, innermost first.
    pub user: Vec<u64>,
}

impl Stack {
    /// Returns all frames, innermost first.
    pub fn frames(&self) -> impl Iterator<Item = u64> {
        self.kernel.iter().chain(&self.user).copied()
    }

    /// Adds the frames of a stack-walk event; from the first user frame on they go to the user
    /// part. Returns the number of frames.
    fn add_frames(&mut self, walk: &StackWalk<'_>, frames: impl Iterator<Item = u64>) -> usize {
        let mut is_kernel = walk.is_kernel();
        let mut number = 0_usize;
        for frame in frames {
            is_kernel = is_kernel && is_kernel_address(frame, walk.pointer_size);
            if is_kernel {
                self.kernel.push(frame)
            } else {
                self.user.push(frame)
            }
            number = number.saturating_add(1);
        }
        number
    }

    /// Returns whether the stack has no frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kernel.is_empty() && self.user.is_empty()
    }
}

/// An event with its stack.
#[derive(Debug)]
pub struct Joined<T> {
    /// The caller's data about the event.
    pub event: T,
    /// The frames of the stack that have arrived.
    pub stack: Stack,
}

#[derive(Debug)]
struct WaitingEvent<T> {
    claim: StackClaim,
    joined: Joined<T>,
    bytes: usize,
    has_kernel: bool,
    has_user: bool,
    /// The sequence number of the event before with the same trace and time stamp.
    previous: Option<u64>,
}

/// Events that wait for their stacks. `T` is the caller's data about an event.
#[derive(Debug)]
pub struct Joiner<T> {
    waiting: VecDeque<WaitingEvent<T>>,
    /// The sequence number of the oldest waiting event.
    first: u64,
    /// The sequence number of the newest waiting event of each trace and time stamp. It leads to the
    /// others with this stamp.
    by_stamp: HashMap<(usize, i64), u64>,
    bytes: usize,
    /// The latest wall time.
    now: i64,
    has_ended: bool,
}

impl<T> Default for Joiner<T> {
    fn default() -> Self {
        let (waiting, by_stamp) = (VecDeque::new(), HashMap::new());
        Self { waiting, first: 0, by_stamp, bytes: 0, now: i64::MIN, has_ended: false }
    }
}

impl<T> Joiner<T> {
    /// Adds an event that may have a stack. `own_frames` are the frames that the event itself
    /// carries; an event with such frames accepts no other stack. `bytes` is the memory that
    /// `event` holds outside of its own struct.
    pub fn expect(
        &mut self,
        claim: StackClaim,
        event: T,
        bytes: usize,
        own_frames: impl Iterator<Item = u64>,
    ) {
        let number = self.first.saturating_add(self.waiting.len() as u64);
        let previous = self.by_stamp.insert((claim.source, claim.time), number);
        let stack = Stack { user: own_frames.take(MAX_FRAMES).collect(), ..Stack::default() };
        let frames = stack.user.len();
        self.push_event(
            claim,
            Joined { event, stack },
            bytes.saturating_add(frames.saturating_mul(8)),
            frames > 0,
            previous,
        );
    }

    /// Adds an event that has no stack, to keep its position in the order.
    pub fn add_without_stack(&mut self, claim: StackClaim, event: T, bytes: usize) {
        self.push_event(claim, Joined { event, stack: Stack::default() }, bytes, true, None);
    }

    fn push_event(
        &mut self,
        claim: StackClaim,
        joined: Joined<T>,
        bytes: usize,
        is_complete: bool,
        previous: Option<u64>,
    ) {
        let bytes = bytes.saturating_add(EVENT_OVERHEAD_BYTES).saturating_add(size_of::<T>());
        self.bytes = self.bytes.saturating_add(bytes);
        self.now = self.now.max(claim.wall);
        let (has_kernel, has_user) = (is_complete, is_complete);
        self.waiting.push_back(WaitingEvent { claim, joined, bytes, has_kernel, has_user, previous });
    }

    /// Adds a stack from trace `source`, processor `cpu`, at the wall time `wall`. Returns whether
    /// the stack belongs to a waiting event. `update` may change the caller's data about that
    /// event, and returns by how many bytes the data grew.
    pub fn attach(
        &mut self,
        walk: &StackWalk<'_>,
        (source, cpu, wall): (usize, u16, i64),
        definitions: &Definitions,
        update: impl FnOnce(&mut T) -> usize,
    ) -> bool {
        self.now = self.now.max(wall);
        let waiting = self.find_waiting(walk, source, cpu).and_then(|at| self.waiting.get_mut(at));
        let (Some(waiting), Some(frames)) = (waiting, walk.frames(definitions)) else {
            return false;
        };
        let stack = &mut waiting.joined.stack;
        stack.owner = Some((walk.process_id, walk.thread_id));
        // From here on, only stacks of this thread match.
        waiting.claim.threads = StackThreads::One(walk.thread_id);
        let frame_bytes = stack.add_frames(walk, frames.take(MAX_FRAMES)).saturating_mul(8);
        // One stack-walk event may hold both parts.
        waiting.has_kernel |= walk.is_kernel();
        waiting.has_user |= !stack.user.is_empty();
        let added_bytes = frame_bytes.saturating_add(update(&mut waiting.joined.event));
        waiting.bytes = waiting.bytes.saturating_add(added_bytes);
        self.bytes = self.bytes.saturating_add(added_bytes);
        true
    }

    /// Returns the index of the waiting event that a stack belongs to (J2).
    fn find_waiting(&self, walk: &StackWalk<'_>, source: usize, cpu: u16) -> Option<usize> {
        let mut next = self.by_stamp.get(&(source, walk.event_time)).copied();
        let lacks_part =
            |event: &WaitingEvent<T>| if walk.is_kernel() { !event.has_kernel } else { !event.has_user };
        let mut on_other_cpu = None;
        for _ in 0..MAX_EVENTS_PER_STAMP {
            // Older events have been released.
            let at = next.and_then(|number| usize::try_from(number.checked_sub(self.first)?).ok());
            let Some((at, event)) = at.and_then(|at| Some((at, self.waiting.get(at)?))) else { break };
            next = event.previous;
            if !event.claim.threads.contains(walk.thread_id) || !lacks_part(event) {
                continue;
            }
            if event.claim.cpu == cpu {
                return Some(at);
            }
            // A kernel part comes from the processor of its event, so it cannot belong to an event
            // of another processor whose thread is unknown.
            if event.claim.threads != StackThreads::Running || !walk.is_kernel() {
                on_other_cpu = on_other_cpu.or(Some(at));
            }
        }
        on_other_cpu
    }

    /// Returns whether the oldest waiting event has all parts of its stack.
    #[must_use]
    pub fn is_oldest_complete(&self) -> bool {
        self.waiting.front().is_some_and(|oldest| oldest.has_kernel && oldest.has_user)
    }

    /// Releases the oldest event if its waiting time has passed, a limit is exceeded (J3) or the
    /// input has ended.
    pub fn next_ready(&mut self) -> Option<Joined<T>> {
        let oldest = self.waiting.front()?;
        let is_due = self.has_ended
            || self.now.saturating_sub(oldest.claim.wall) > WINDOW_100NS
            || self.waiting.len() > MAX_WAITING_EVENTS
            || self.bytes > MAX_WAITING_BYTES;
        if !is_due {
            return None;
        }
        let WaitingEvent { claim, joined, bytes, .. } = self.waiting.pop_front()?;
        let key = (claim.source, claim.time);
        // A newer event with the same stamp keeps its entry.
        if let Entry::Occupied(newest) = self.by_stamp.entry(key)
            && *newest.get() == self.first
        {
            newest.remove();
        }
        self.first = self.first.saturating_add(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(joined)
    }

    /// Marks the end of the input: all waiting events may be released.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns whether no event is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests;
