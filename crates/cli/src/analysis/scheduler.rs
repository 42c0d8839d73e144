//! Converts context switches and wakes to durations: which threads ran, which were away, and why.
//!
//! ```text
//!   processor 0   ──[ idle ]──┤ A runs ├──[ B ]──┤ A ├──   a switch: new and old thread, reason
//!   thread A                  └──Ran───┘  Away:  └ Back    waiting, or preempted and ready
//!                                         wait ─▶ ready ─▶ runs: latency counts from ready on
//! ```
//!
//! S1  A thread runs from the switch to it to the switch away from it on the same processor. If a
//!     switch in between was lost (another thread leaves than the one that ran there, or that
//!     thread is seen on another processor meanwhile), that time is not reported, and the gap is
//!     counted.
//! S2  A thread is away from the switch away from it to the next switch to it, on any processor.
//!     Absences that began before the trace or have not ended in it are not reported.
//! S3  A wake counts if the thread is not running; the first one after it left counts.
//! S4  The idle threads, which all have id 0, run but are never away.
//! S5  If a user records only their own threads, a switch names one thread and has [`NO_ID`] in
//!     place of the other, which neither runs nor is away. What the processor did in that time is
//!     unknown, and not a gap.
//!
//! The caller chooses the unit of time.

use std::collections::HashMap;

use traceweir_format::header::NO_ID;

/// Maximum number of threads to follow; events of further ones are counted.
const MAX_THREADS: usize = 1 << 18;

/// States of the old thread of a switch, by number ("CSwitch class").
const TERMINATED: u8 = 4;
const WAITING: u8 = 5;

/// A switch from one thread to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switch {
    pub(crate) cpu: u16,
    pub(crate) new: u32,
    pub(crate) old: u32,
    /// New state of the old thread.
    pub(crate) state: u8,
    /// What the old thread waits for, if it waits.
    pub(crate) reason: u8,
}

/// A time span in which a thread ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) thread: u32,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// When and why a thread stopped running, with the data that the caller keeps for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Away<S> {
    pub(crate) from: i64,
    /// What it waits for; `None` if it was preempted.
    pub(crate) reason: Option<u8>,
    pub(crate) stack: S,
}

/// A thread that runs again, or for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Back<S> {
    pub(crate) thread: u32,
    pub(crate) to: i64,
    pub(crate) away: Option<Away<S>>,
    /// When it was woken.
    pub(crate) readied: Option<i64>,
}

#[derive(Debug)]
struct Thread<S> {
    away: Option<Away<S>>,
    readied: Option<i64>,
    /// The processor that it runs on, if known.
    on: Option<u16>,
}

/// The thread on a processor, and since when it runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    thread: u32,
    since: i64,
}

/// Follows switches and wakes in time order.
#[derive(Debug)]
pub(crate) struct Scheduler<S> {
    cpus: HashMap<u16, Running>,
    threads: HashMap<u32, Thread<S>>,
    /// Time spans with a missing switch.
    pub(crate) gaps: u64,
    /// Switches to and from threads beyond the limit.
    pub(crate) beyond: u64,
}

impl<S> Default for Scheduler<S> {
    fn default() -> Self {
        Self { cpus: HashMap::new(), threads: HashMap::new(), gaps: 0, beyond: 0 }
    }
}

impl<S> Scheduler<S> {
    /// Processes a switch; `stack` is the caller's data for the thread that leaves. Returns the
    /// time that the old thread ran, and the return of the new one.
    pub(crate) fn switch(&mut self, time: i64, switch: Switch, stack: S) -> (Option<Ran>, Option<Back<S>>) {
        for thread in [switch.old, switch.new] {
            self.leave_elsewhere(thread, switch.cpu);
        }
        let before = self.cpus.insert(switch.cpu, Running { thread: switch.new, since: time });
        let ran = before.filter(|running| running.thread == switch.old && switch.old != NO_ID);
        if let Some(lost) = before.filter(|running| running.thread != switch.old) {
            self.gaps += 1;
            // It left at some time in between.
            self.threads.remove(&lost.thread);
        }
        self.leave(time, switch, stack);
        let ran = ran.map(|Running { thread, since }| Ran { thread, from: since.min(time), to: time });
        (ran, self.come(time, switch))
    }

    /// A thread that is seen on one processor no longer runs on another, whenever it left that one.
    fn leave_elsewhere(&mut self, thread: u32, cpu: u16) {
        let other_cpu = self.threads.get(&thread).and_then(|thread| thread.on).filter(|on| *on != cpu);
        if let Some(other_cpu) = other_cpu {
            self.gaps += 1;
            self.cpus.remove(&other_cpu);
            self.threads.remove(&thread);
        }
    }

    fn leave(&mut self, time: i64, switch: Switch, stack: S) {
        if is_never_away(switch.old) {
            return;
        }
        if switch.state == TERMINATED {
            self.threads.remove(&switch.old);
            return;
        }
        let reason = (switch.state == WAITING).then_some(switch.reason);
        let away = Some(Away { from: time, reason, stack });
        if let Some(thread) = self.follow(switch.old) {
            *thread = Thread { away, readied: None, on: None };
        }
    }

    fn come(&mut self, time: i64, switch: Switch) -> Option<Back<S>> {
        if is_never_away(switch.new) {
            return None;
        }
        let thread = self.follow(switch.new)?;
        let (away, readied) = (thread.away.take(), thread.readied.take());
        thread.on = Some(switch.cpu);
        Some(Back { thread: switch.new, to: time, away, readied })
    }

    /// Processes a wake of a thread.
    pub(crate) fn ready(&mut self, time: i64, thread: u32) {
        if is_never_away(thread) {
            return;
        }
        if let Some(thread) = self.follow(thread)
            && thread.on.is_none()
        {
            thread.readied.get_or_insert(time);
        }
    }

    fn follow(&mut self, thread: u32) -> Option<&mut Thread<S>> {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&thread) {
            self.beyond += 1;
            return None;
        }
        let unknown = || Thread { away: None, readied: None, on: None };
        Some(self.threads.entry(thread).or_insert_with(unknown))
    }
}

/// Returns whether it is an idle thread (S4) or [`NO_ID`] (S5).
const fn is_never_away(thread: u32) -> bool {
    matches!(thread, 0 | NO_ID)
}

#[cfg(test)]
mod tests;
