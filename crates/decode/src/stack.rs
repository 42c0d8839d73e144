//! Call stacks that are events of their own, joined to the events they belong to.
//!
//! ```text
//!   records in time order
//!     sample  t=10 thread 7 ──expect──▶ ┌ waiting, oldest first ──────────┐
//!     stack of (10, 7), kernel ─attach─▶│ sample 10/7: kernel, user       │──next──▶ sample, its whole stack
//!     stack of (10, 7), user ──attach──▶│ switch 12/8|9: …                │          once its time is over
//!                                       └─────────────────────────────────┘
//! ```
//!
//! A stack follows its event with the event's stamp and thread; its user part may come later and on another processor, once the thread is back in its program. Nothing says
//! which part is the last, so an event waits for [`WINDOW`] before it is given out.
//!
//! J1  Events are given out in the order in which they were expected, each exactly once, with or without a stack.
//! J2  A stack belongs to the newest event of its stamp whose thread fits and that lacks this part; one of its own processor comes before others.
//! J3  What waits is bounded in number and bytes: behind that the oldest event is given out before its time. Stacks that come after that are counted as late.
//!
//! A context switch has two threads: Windows walks the stack of the one that is switched in, a trace of Linux has that of the one that is switched out. Events whose
//! record names no thread (PERFINFO headers) happened in whatever thread ran there: the first stack from their processor says which.
//!
//! Sources: Documented ("StackWalk_Event class"); that user parts come late and from other processors is Observed.

use std::collections::{HashMap, VecDeque};

use traceweir_format::header::{NO_ID, Record};
use traceweir_format::stack_key::Definitions;
use traceweir_format::stack_walk::{StackWalk, is_kernel_address};
use traceweir_format::time::UNITS_PER_SECOND;
use traceweir_format::wire::u32_at;

/// How long an event waits for its stack, in units of 100 ns. In the traces that were looked at nothing came later than a tenth of it.
pub const WINDOW: i64 = 2 * UNITS_PER_SECOND;
/// Events that wait at most.
const MAX_WAITING: usize = 1 << 17;
/// Bytes that wait at most.
const MAX_BYTES: usize = 64 << 20;
/// Frames of one part that are kept; recorders take 192 at most.
const MAX_FRAMES: usize = 1024;
/// Events of one stamp that are looked at for one stack; real traces have two or three.
const MAX_ALIKE: usize = 64;
/// What waiting takes beside frames and what the caller counts.
const OVERHEAD: usize = 160;

/// Group and type of a context switch, of a sample, and of a sample by a counter.
const SWITCH: u16 = 0x0524;
const SAMPLE: u16 = 0x0F2E;
const COUNTER_SAMPLE: u16 = 0x0F2F;

/// Whose stacks an event may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Those of the thread that ran on its processor, whichever that was.
    Running,
    /// Those of this thread.
    One(u32),
    /// Those of either of two: the new and the old thread of a context switch.
    Either(u32, u32),
}

impl Threads {
    /// Those of a record.
    #[must_use]
    pub fn of(record: &Record<'_>) -> Self {
        let payload = record.payload();
        match record.hook() {
            Some(SWITCH) => Self::Either(u32_at(payload, 0), u32_at(payload, 4)),
            Some(SAMPLE | COUNTER_SAMPLE) => Self::One(u32_at(payload, record.pointer_size())),
            _ if record.thread_id() == NO_ID => Self::Running,
            _ => Self::One(record.thread_id()),
        }
    }

    const fn fit(self, thread: u32) -> bool {
        match self {
            Self::Running => true,
            Self::One(one) => one == thread,
            Self::Either(new, old) => new == thread || old == thread,
        }
    }
}

/// What tells an event from the others that wait.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Which trace it comes from.
    pub source: usize,
    /// Its stamp there.
    pub time: i64,
    /// Its wall time, in units of 100 ns.
    pub wall: i64,
    /// Its processor.
    pub cpu: u16,
    /// Whose stacks it may have.
    pub threads: Threads,
}

impl Claim {
    /// That of a record of trace `source`, at the wall time `wall`.
    #[must_use]
    pub fn of(record: &Record<'_>, source: usize, wall: i64) -> Self {
        Self { source, time: record.time(), wall, cpu: record.cpu(), threads: Threads::of(record) }
    }
}

/// A whole stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Process and thread whose stack it is, where a stack-walk event said so.
    pub owner: Option<(u32, u32)>,
    /// The frames in the kernel, innermost first.
    pub kernel: Vec<u64>,
    /// The frames in the program, innermost first.
    pub user: Vec<u64>,
}

impl Stack {
    /// All frames, innermost first.
    pub fn frames(&self) -> impl Iterator<Item = u64> {
        self.kernel.iter().chain(&self.user).copied()
    }

    /// Adds what a stack-walk event holds, from the first frame of the program on to the program's part; gives the number of frames.
    fn add(&mut self, walk: &StackWalk<'_>, frames: impl Iterator<Item = u64>) -> usize {
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

    /// Whether there is no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kernel.is_empty() && self.user.is_empty()
    }
}

/// An event with its stack.
#[derive(Debug)]
pub struct Joined<T> {
    /// What was kept of the event.
    pub what: T,
    /// Its stack, as far as it has come.
    pub stack: Stack,
}

#[derive(Debug)]
struct Waiting<T> {
    claim: Claim,
    joined: Joined<T>,
    bytes: usize,
    has_kernel: bool,
    has_user: bool,
}

/// Events that wait for their stacks. `T` is what is kept of an event.
#[derive(Debug)]
pub struct Joiner<T> {
    waiting: VecDeque<Waiting<T>>,
    /// The number of the oldest that waits.
    first: u64,
    /// Numbers of waiting events by trace and stamp, oldest first.
    by_stamp: HashMap<(usize, i64), VecDeque<u64>>,
    bytes: usize,
    /// The latest wall time.
    now: i64,
    late: u64,
    is_over: bool,
}

impl<T> Default for Joiner<T> {
    fn default() -> Self {
        let (waiting, by_stamp) = (VecDeque::new(), HashMap::new());
        Self { waiting, first: 0, by_stamp, bytes: 0, now: i64::MIN, late: 0, is_over: false }
    }
}

impl<T> Joiner<T> {
    /// An event that may have a stack. `own` are frames that it carries itself, `bytes` what `what` holds besides its own size.
    pub fn expect(&mut self, claim: Claim, what: T, bytes: usize, own: impl Iterator<Item = u64>) {
        let number = self.first.saturating_add(self.waiting.len() as u64);
        self.by_stamp.entry((claim.source, claim.time)).or_default().push_back(number);
        let stack = Stack { user: own.take(MAX_FRAMES).collect(), ..Stack::default() };
        let frames = stack.user.len();
        self.put(claim, Joined { what, stack }, bytes.saturating_add(frames.saturating_mul(8)), frames > 0);
    }

    /// An event that has no stack, but keeps its place among those that do.
    pub fn pass(&mut self, claim: Claim, what: T, bytes: usize) {
        self.put(claim, Joined { what, stack: Stack::default() }, bytes, true);
    }

    fn put(&mut self, claim: Claim, joined: Joined<T>, bytes: usize, has_user: bool) {
        let bytes = bytes.saturating_add(OVERHEAD).saturating_add(size_of::<T>());
        self.bytes = self.bytes.saturating_add(bytes);
        self.now = self.now.max(claim.wall);
        self.waiting.push_back(Waiting { claim, joined, bytes, has_kernel: has_user, has_user });
    }

    /// A stack from trace `source`, from processor `cpu`, at the wall time `wall`; whether an event that waits has it now. `found` is shown what was kept of that event and
    /// says how many bytes it holds more after that.
    pub fn attach(
        &mut self,
        walk: &StackWalk<'_>,
        (source, cpu, wall): (usize, u16, i64),
        definitions: &Definitions,
        found: impl FnOnce(&mut T) -> usize,
    ) -> bool {
        self.now = self.now.max(wall);
        let owner = self.owner(walk, source, cpu).and_then(|at| self.waiting.get_mut(at));
        let (Some(waiting), Some(frames)) = (owner, walk.frames(definitions)) else {
            self.late = self.late.saturating_add(1);
            return false;
        };
        let stack = &mut waiting.joined.stack;
        stack.owner = Some((walk.process_id, walk.thread_id));
        // From here on it is known whose stack it is.
        waiting.claim.threads = Threads::One(walk.thread_id);
        let taken = stack.add(walk, frames.take(MAX_FRAMES)).saturating_mul(8);
        // One event may hold both parts.
        waiting.has_kernel |= walk.is_kernel();
        waiting.has_user |= !stack.user.is_empty();
        let taken = taken.saturating_add(found(&mut waiting.joined.what));
        waiting.bytes = waiting.bytes.saturating_add(taken);
        self.bytes = self.bytes.saturating_add(taken);
        true
    }

    /// The place of the event that a stack belongs to (J2).
    fn owner(&self, walk: &StackWalk<'_>, source: usize, cpu: u16) -> Option<usize> {
        let numbers = self.by_stamp.get(&(source, walk.event_time))?;
        let lacks = |it: &Waiting<T>| if walk.is_kernel() { !it.has_kernel } else { !it.has_user };
        let mut elsewhere = None;
        for number in numbers.iter().rev().take(MAX_ALIKE) {
            let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok())?;
            let Some(it) = self.waiting.get(at) else { continue };
            if !it.claim.threads.fit(walk.thread_id) || !lacks(it) {
                continue;
            }
            if it.claim.cpu == cpu {
                return Some(at);
            }
            // What the kernel did is told from where it was done; only that tells whose an event without a thread is.
            if it.claim.threads != Threads::Running || !walk.is_kernel() {
                elsewhere = elsewhere.or(Some(at));
            }
        }
        elsewhere
    }

    /// An event that need not wait any longer, the oldest first (J1).
    pub fn next_ready(&mut self) -> Option<Joined<T>> {
        let oldest = self.waiting.front()?;
        let is_due = self.is_over
            || self.now.saturating_sub(oldest.claim.wall) > WINDOW
            || self.waiting.len() > MAX_WAITING
            || self.bytes > MAX_BYTES;
        if !is_due {
            return None;
        }
        let Waiting { claim, joined, bytes, .. } = self.waiting.pop_front()?;
        let key = (claim.source, claim.time);
        if let Some(numbers) = self.by_stamp.get_mut(&key) {
            if numbers.front() == Some(&self.first) {
                numbers.pop_front();
            }
            if numbers.is_empty() {
                self.by_stamp.remove(&key);
            }
        }
        self.first = self.first.saturating_add(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(joined)
    }

    /// No more will come: what waits is given out.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether all has been given out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Stacks that no event was waiting for, or whose key nothing defines.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests;
