//! The rings of all processors, read in time order and handed to the families.
//!
//! ```text
//!   ring 0  10 ── 14 ── 30 ┐
//!                          ├─▶ 10 11 14 …  ──▶ handler of the event's row ──▶ queue 0, queue 1 ──▶ session
//!   ring 1  11 ── 33 ──────┘        (what is younger than the look waits for the next)
//! ```
//!
//! C1 The ring of a processor belongs to an event that counts nothing and tells of forks, exits, names and mappings; all others write into it. C2 A look handles what was
//! written before it began, and ends. C3 Losses are added per processor, from the records in which the kernel tells them, and one where a ring cannot be understood; at the end it is made to tell
//! what it still owes, and the events themselves are asked what they have counted. C4 Where an event is opened in the place of another, both are open for a
//! moment: from the first record of the new one on, the old one is not listened to. C5 What is told beside the rings bears the time up to which they have been handled:
//! what comes from them afterwards is younger, and keeps its own time. C6 What happened before something else was wanted is told as it was wanted then. Of several changes
//! between two looks the last is the one that counts from the first on.

mod reader;
mod relay;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use traceweir_format::logfile::{END_GROUP_MASKS_HOOK, RUNDOWN_COMPLETE_HOOK, group_masks};

use self::reader::Reader;
use self::relay::{Relay, RingSource};
use crate::Clock;
use crate::asked::{max_frames, stack_limit, tasks_attr};
use crate::control::{Control, Scope, Wanted};
use crate::error::{Error, Result};
use crate::family::{self, Rundown};
use crate::now_ns;
use crate::out::{Beside, Out, Queue, most_queued};
use crate::patient;
use crate::perf_ring::{Event, Ring};
use crate::stack::unwind::Unwinder;
use crate::state::State;
use crate::targets::Targets;

/// How often threads are looked for that are not children of those that are watched.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// Rings are not made smaller than this, however little may be locked.
const LEAST_RING_BYTES: usize = 64 << 10;

/// The next record of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its bytes, without padding.
    pub length: usize,
    /// When it happened, by the raw counter.
    pub raw: u64,
    /// It is the stack of the record before it, whose time it repeats in the first eight bytes of its payload.
    pub is_stack: bool,
}

/// Kernel events of one session.
#[derive(Debug)]
pub struct Capture {
    rings: Vec<RingSource>,
    /// The thread that empties rings which may lock little memory.
    relay: Option<Relay>,
    queues: Vec<Queue>,
    state: State,
    control: Control,
    /// Readable when a ring has filled up to its mark.
    waiting: OwnedFd,
    /// By processor.
    lost: Vec<u64>,
    /// Bytes that wait for the session, at most.
    most_queued: usize,
    too_large: u64,
    scratch: Vec<u8>,
    max_frames: usize,
    stack_limit: Option<u32>,
    unwinder: Option<Unwinder>,
    has_begun: bool,
    /// Whether what was there at the start has been told.
    is_told: bool,
    /// When threads that came otherwise were looked for.
    searched: Instant,
    /// What happened up to this time has been handled, in nanoseconds.
    handled: u64,
}

impl Capture {
    /// Opens what is wanted, and begins.
    pub fn start(wanted: &Wanted, cpus: u16, streams: u16) -> Result<(Self, Control)> {
        let (mut capture, control) = Self::open(wanted, cpus, streams)?;
        capture.begin();
        Ok((capture, control))
    }

    /// Opens what is wanted on all of so many processors; nothing is told before it [begins](Self::begin). `streams`: queues that records are sorted into, one or as many as
    /// processors.
    pub fn open(wanted: &Wanted, cpus: u16, streams: u16) -> Result<(Self, Control)> {
        let mut state = State::default();
        (state.groups, state.scope) = (wanted.groups, wanted.scope);
        family::prepare_state(&mut state);
        let failed = |e: rustix::io::Errno| Error::system("waiting for rings", e.into());
        let waiting = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let Rings { sources: rings, relay, ring_bytes, is_limited } = Rings::open(wanted, cpus)?;
        let wanted = &Wanted { ring_bytes, ..wanted.clone() };
        let stack_limit = is_limited.then(|| stack_limit(ring_bytes));
        let add = |wake: BorrowedFd<'_>| {
            epoll::add(&waiting, wake, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(failed)
        };
        match &relay {
            Some(relay) => add(relay.wake())?,
            None => rings.iter().try_for_each(|ring| add(ring.event().as_fd()))?,
        }
        let events = rings.iter().map(|ring| Arc::clone(ring.event())).collect();
        let control = Control::new(wanted, events);
        control.shared.opened().stack_limit = stack_limit;
        control.set(wanted)?;
        let queues = (0..streams.max(1)).map(|_| Queue::default()).collect();
        let lost = vec![0; rings.last().map_or(0, |ring| usize::from(ring.cpu()).saturating_add(1))];
        let most_queued = most_queued(wanted.ring_bytes.saturating_mul(rings.len()));
        let capture = Self {
            rings,
            relay,
            queues,
            state,
            control: control.clone(),
            waiting,
            lost,
            most_queued,
            too_large: 0,
            scratch: Vec::new(),
            max_frames: usize::from(max_frames()),
            stack_limit,
            unwinder: None,
            has_begun: false,
            is_told: false,
            handled: now_ns(),
            searched: Instant::now(),
        };
        Ok((capture, control))
    }

    /// What happens from now on is captured. What is there already is told at the first look, and has this time: everything else is younger (C5). A look begins by itself.
    pub fn begin(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let mut opened = self.control.shared.opened();
        self.handled = now_ns();
        for ring in &self.rings {
            // An event that cannot be switched on was just opened by the same rights.
            let _ = ring.event().enable();
        }
        opened.begin();
    }

    /// Becomes readable when there is much to look at, or something that will not wait.
    #[must_use]
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }

    /// Takes in what the kernel has written up to now; `all`: however young.
    pub fn look(&mut self, clock: &dyn Clock, all: bool) {
        patient::begin();
        self.look_at(clock, all);
        self.control.shared.not_read(patient::end());
    }

    fn look_at(&mut self, clock: &dyn Clock, all: bool) {
        self.begin();
        self.relay.iter().for_each(Relay::begin_look);
        family::beside(&mut self.state);
        let shared = Arc::clone(&self.control.shared);
        let mut opened = shared.opened();
        // Of a change that has not been seen.
        let change = opened.before.take();
        if opened.wanted.stack_bytes > 0 && self.unwinder.is_none() {
            self.unwinder = Unwinder::new();
        }
        // Behind the lock: what was closed before has written nothing that is younger.
        let begun = now_ns();
        let until = if all { u64::MAX } else { begun };
        let mut out = Out {
            max_frames: self.max_frames,
            unwinder: self.unwinder.as_mut(),
            scratch: std::mem::take(&mut self.scratch),
            time: self.handled,
            most: self.most_queued,
            ..Out::new(&mut self.queues, clock, &opened.beside, &mut self.too_large)
        };
        let before = self.state.groups;
        let is_changed = self.state.see(&opened.wanted, opened.changes);
        let is_due = shared.is_rundown_due.swap(false, Relaxed);
        if !std::mem::replace(&mut self.is_told, true) || is_due {
            family::run_down(&mut self.state, Rundown::Start, &mut out);
            let payload = out.payload();
            out.perfinfo(RUNDOWN_COMPLETE_HOOK, 2, payload);
        } else if is_changed {
            family::run_down_new(&mut self.state, &before, &mut out);
        }
        let mut reader = Reader {
            rings: &mut self.rings,
            opened: &opened,
            state: &mut self.state,
            lost: &mut self.lost,
            replaced: Vec::new(),
        };
        reader.look();
        if let Some((time, beside)) = &change {
            reader.read_until_change(*time, before, beside, &mut out);
        }
        reader.read(until, &mut out);
        // However much more was read: what has not been is younger than this.
        self.handled = begun;
        (out.cpu, out.time, out.sample) = (0, self.handled, None);
        family::settle(&mut self.state, &mut out);
        self.scratch = out.scratch;
        if is_changed {
            opened.forget_closed();
        }
        if self.searched.elapsed() > SEARCH_EVERY {
            self.searched = Instant::now();
            let tasks = &self.state.tasks;
            opened.look_for_more(&shared.rings, |process| tasks.knows(process));
            shared.tell(&opened);
        }
    }

    /// Tells what is to be told at the end: call once, behind the last look.
    pub fn end(&mut self, clock: &dyn Clock) {
        self.look(clock, true);
        let owing = self.rings.iter().filter(|ring| ring.owes_losses());
        let owing: Vec<usize> = owing.map(|ring| usize::from(ring.cpu())).collect();
        if !owing.is_empty() {
            write_on(owing);
            self.look(clock, true);
        }
        self.count_unsaid();
        patient::begin();
        let nothing = Beside::default();
        let mut out = Out::new(&mut self.queues, clock, &nothing, &mut self.too_large);
        out.most = self.most_queued;
        family::run_down(&mut self.state, Rundown::End, &mut out);
        let mut payload = out.payload();
        payload.extend_from_slice(&group_masks(&self.state.groups.0));
        out.perfinfo(END_GROUP_MASKS_HOOK, 2, payload);
        self.control.shared.not_read(patient::end());
        self.release();
    }

    /// Stops all events and unmaps the rings: the memory that a user may lock is free again before the events are
    /// closed, which may take seconds.
    fn release(&mut self) {
        for ring in &self.rings {
            // As in `begin`.
            let _ = ring.event().disable();
        }
        self.relay = None;
        self.rings.clear();
        self.control.shared.opened().end();
    }

    /// Counts what was lost behind the last record of a ring: the kernel tells of losses in front of the next one.
    fn count_unsaid(&mut self) {
        let opened = self.control.shared.opened();
        for ring in &self.rings {
            let all = opened.lost_on(ring.event().cpu()).saturating_add(ring.event().lost().unwrap_or(0));
            if let Some(lost) = self.lost.get_mut(usize::from(ring.cpu())) {
                *lost = (*lost).max(all);
            }
        }
    }

    /// The next record of a stream.
    #[must_use]
    pub fn peek(&self, stream: u16) -> Option<Captured> {
        self.queues.get(usize::from(stream))?.peek()
    }

    /// Takes it.
    pub fn take(&mut self, stream: u16, out: &mut [u8]) {
        if let Some(queue) = self.queues.get_mut(usize::from(stream)) {
            queue.take(out);
        }
    }

    /// The most bytes of a program's stack that come with an event, where the memory that may be locked limits that.
    #[must_use]
    pub fn stack_limit(&self) -> Option<u32> {
        self.stack_limit
    }

    /// Records that the kernel had no room for, by processor.
    #[must_use]
    pub fn lost_by_cpu(&self) -> &[u64] {
        &self.lost
    }

    /// All records that are lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.iter().fold(self.too_large, |sum, lost| sum.saturating_add(*lost))
    }
}

/// What is opened on each processor that is there; those that are switched off are gaps between the others.
fn of_all_there<T>(cpus: u16, mut open: impl FnMut(u16) -> Result<T>) -> Result<Vec<T>> {
    let (mut all, mut missing) = (Vec::new(), None);
    for cpu in 0..cpus {
        match open(cpu) {
            Ok(opened) => all.push(opened),
            Err(error @ Error::NotSupported { .. }) => missing = Some(error),
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// The rings of all processors.
struct Rings {
    sources: Vec<RingSource>,
    relay: Option<Relay>,
    /// Bytes of each ring: what is wanted, or as much as may be locked.
    ring_bytes: usize,
    /// Whether the memory that may be locked limits them.
    is_limited: bool,
}

impl Rings {
    fn open(wanted: &Wanted, cpus: u16) -> Result<Self> {
        let mut smaller = wanted.clone();
        let rings = loop {
            match of_all_there(cpus, |cpu| open_ring(&smaller, cpu)) {
                Err(Error::NotPermitted { .. }) if smaller.ring_bytes > LEAST_RING_BYTES => {
                    smaller.ring_bytes /= 2;
                }
                opened => break opened?,
            }
        };
        let ring_bytes = smaller.ring_bytes;
        let is_limited = wanted.scope == Scope::Own || ring_bytes < wanted.ring_bytes;
        if !is_limited {
            let sources = rings.into_iter().map(RingSource::Mapped).collect();
            return Ok(Self { sources, relay: None, ring_bytes, is_limited });
        }
        let (relay, sources) = Relay::start(rings, wanted.backlog_bytes)?;
        Ok(Self { sources, relay: Some(relay), ring_bytes, is_limited })
    }
}

/// The ring of a processor, with the event that tells of tasks and mappings.
fn open_ring(wanted: &Wanted, cpu: u16) -> Result<Ring> {
    let failed = |e| Error::system("capturing kernel events", e);
    let event = Event::open(&tasks_attr(wanted), Targets::owner(wanted.scope), i32::from(cpu));
    let event = event.map_err(failed)?;
    Ring::new(event, wanted.ring_bytes).map_err(|e| Error::system("a ring for kernel events", e))
}

/// Has the kernel write a record on each of these processors, with the losses that it tells in front of it: a thread of ours takes a name there.
fn write_on(cpus: Vec<usize>) {
    let visit = move || {
        for cpu in cpus {
            let mut only = rustix::thread::CpuSet::new();
            if cpu < rustix::thread::CpuSet::MAX_CPU {
                only.set(cpu);
            }
            // Where we may not go nothing is told.
            if rustix::thread::sched_setaffinity(None, &only).is_ok() {
                let _ = rustix::thread::set_name(c"weir-losses");
            }
        }
    };
    if let Ok(thread) = std::thread::Builder::new().name("weir-losses".to_owned()).spawn(visit) {
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests;
