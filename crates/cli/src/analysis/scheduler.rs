//! Context switches and wakes, as times: who ran, who was away, and why.
//!
//! ```text
//!   processor 0   ──[ idle ]──┤ A runs ├──[ B ]──┤ A ├──     a switch: new and old thread, and why the old one stopped
//!   thread A                  └──Ran───┘  Away:  └ Back      waiting for something, or ready and pushed aside
//!                                         wait ─▶ ready ─▶ runs: the time from ready is its latency
//! ```
//!
//! S1  A thread ran from the switch to it up to the switch from it on the same processor. Where a switch between was lost (another thread leaves than the one that ran
//!     there, or that one is seen on another processor meanwhile), nothing is said about that time, and the gap is counted.
//! S2  A thread was away from the switch from it up to the next switch to it, wherever that is. What began before the trace, or has not ended in it, is not told.
//! S3  A wake counts if the thread is not running; the first one after it left does.
//! S4  The idle threads, all of number 0, run but are never away.
//! S5  Where a user records his own threads alone, a switch names one thread, and [`NO_ID`] in the place of the other: nobody, who neither runs nor is away. What a processor
//!     did for nobody is not known, and no gap.
//!
//! What the time is counted in is the caller's business.

use std::collections::HashMap;

use traceweir_format::header::NO_ID;

/// Threads that are followed at a time; further ones are counted.
const MAX_THREADS: usize = 1 << 18;

/// States of a thread that is switched from, by number ("CSwitch class").
const TERMINATED: u8 = 4;
const WAITING: u8 = 5;

/// A switch from one thread to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switch {
    pub(crate) cpu: u16,
    pub(crate) new: u32,
    pub(crate) old: u32,
    /// What the old thread is now, and what it waits for if it does.
    pub(crate) state: u8,
    pub(crate) reason: u8,
}

/// A thread ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) thread: u32,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// When and why a thread stopped running, with what the caller kept of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Away<S> {
    pub(crate) from: i64,
    /// What it waits for; `None` if it would have run on.
    pub(crate) reason: Option<u8>,
    pub(crate) stack: S,
}

/// A thread runs again, or for the first time.
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
    /// The processor that it runs on, as far as is known.
    on: Option<u16>,
}

/// What runs on a processor, and since when.
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
    /// Times of which a switch is missing.
    pub(crate) gaps: u64,
    /// Switches to and from threads beyond those that are followed.
    pub(crate) beyond: u64,
}

impl<S> Default for Scheduler<S> {
    fn default() -> Self {
        Self { cpus: HashMap::new(), threads: HashMap::new(), gaps: 0, beyond: 0 }
    }
}

impl<S> Scheduler<S> {
    /// Takes in a switch; `stack` is what the caller keeps for the thread that leaves. Tells of the time that the old thread ran, and of the return of the new one.
    pub(crate) fn switch(&mut self, time: i64, it: Switch, stack: S) -> (Option<Ran>, Option<Back<S>>) {
        for thread in [it.old, it.new] {
            self.leave_elsewhere(thread, it.cpu);
        }
        let before = self.cpus.insert(it.cpu, Running { thread: it.new, since: time });
        let ran = before.filter(|running| running.thread == it.old && it.old != NO_ID);
        if let Some(lost) = before.filter(|running| running.thread != it.old) {
            self.gaps += 1;
            // It has left at some time in between.
            self.threads.remove(&lost.thread);
        }
        self.leave(time, it, stack);
        let ran = ran.map(|Running { thread, since }| Ran { thread, from: since.min(time), to: time });
        (ran, self.come(time, it))
    }

    /// A thread that is seen on one processor does not run on another any more, whenever it left that.
    fn leave_elsewhere(&mut self, thread: u32, cpu: u16) {
        let there = self.threads.get(&thread).and_then(|it| it.on).filter(|on| *on != cpu);
        if let Some(there) = there {
            self.gaps += 1;
            self.cpus.remove(&there);
            self.threads.remove(&thread);
        }
    }

    fn leave(&mut self, time: i64, it: Switch, stack: S) {
        if is_never_away(it.old) {
            return;
        }
        if it.state == TERMINATED {
            self.threads.remove(&it.old);
            return;
        }
        let reason = (it.state == WAITING).then_some(it.reason);
        let away = Some(Away { from: time, reason, stack });
        if let Some(thread) = self.follow(it.old) {
            *thread = Thread { away, readied: None, on: None };
        }
    }

    fn come(&mut self, time: i64, it: Switch) -> Option<Back<S>> {
        if is_never_away(it.new) {
            return None;
        }
        let thread = self.follow(it.new)?;
        let (away, readied) = (thread.away.take(), thread.readied.take());
        thread.on = Some(it.cpu);
        Some(Back { thread: it.new, to: time, away, readied })
    }

    /// A thread is woken.
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

/// Whether it is an idle thread (S4) or nobody (S5).
const fn is_never_away(thread: u32) -> bool {
    matches!(thread, 0 | NO_ID)
}

#[cfg(test)]
mod tests;
