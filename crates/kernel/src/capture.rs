//! Reads the rings of all processors in time order and passes the records to the families.
//!
//! ```text
//!   ring 0  10 ── 14 ── 30 ┐
//!                          ├─▶ 10 11 14 …  ──▶ handler of the row ──▶ queue 0, queue 1 ──▶ session
//!   ring 1  11 ── 33 ──────┘     (records newer than the poll wait for the next poll)
//! ```
//!
//! - C1 The ring of a processor belongs to an event that counts nothing and reports forks, exits,
//!   names and mappings. All other events of the processor write into this ring.
//! - C2 A poll handles the records that were written before it began, and then ends.
//! - C3 Losses are summed per processor from the kernel's loss records, plus one when a ring cannot
//!   be parsed. At the end the kernel is made to report outstanding losses, and the loss counts of
//!   the events themselves are read.
//! - C4 When an event replaces another, both are open for a moment. From the first record of the
//!   new event on, records of the old one are ignored.
//! - C5 Events that do not come from the rings carry the time up to which the rings have been
//!   handled. Later records from the rings are newer and keep their own time.
//! - C6 Records from before a change of settings are handled with the old settings. Of several
//!   changes between two polls, the last one applies from the time of the first.

mod reader;
mod relay;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use traceweir_format::kernel::hook;
use traceweir_format::logfile::group_masks;

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

/// How often a capture searches for threads that are not descendants of watched threads.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// The smallest ring size, however little memory may be locked.
const LEAST_RING_BYTES: usize = 64 << 10;

/// A description of the next record of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Length in bytes, without padding.
    pub length: usize,
    /// The time of the event, in raw counter units.
    pub raw: u64,
    /// Whether this is the stack of the preceding record, whose time it repeats in the first eight
    /// bytes of its payload.
    pub is_stack: bool,
}

/// A capture of kernel events for one session.
#[derive(Debug)]
pub struct Capture {
    rings: Vec<RingSource>,
    /// The thread that empties rings whose size is limited by locked memory.
    relay: Option<Relay>,
    queues: Vec<Queue>,
    state: State,
    control: Control,
    /// Readable when a ring has filled up to its watermark.
    waiting: OwnedFd,
    /// Lost records by processor.
    lost: Vec<u64>,
    /// The largest number of bytes that wait for the session.
    most_queued: usize,
    too_large: u64,
    scratch: Vec<u8>,
    max_frames: usize,
    stack_limit: Option<u32>,
    unwinder: Option<Unwinder>,
    has_begun: bool,
    /// Whether the start rundown has been written.
    has_run_down: bool,
    /// The time of the last search for threads that are not descendants of watched threads.
    searched: Instant,
    /// Time in nanoseconds up to which all records have been handled.
    handled: u64,
}

impl Capture {
    /// Opens the events that `wanted` selects and begins to capture.
    pub fn start(wanted: &Wanted, cpus: u16, streams: u16) -> Result<(Self, Control)> {
        let (mut capture, control) = Self::open(wanted, cpus, streams)?;
        capture.begin();
        Ok((capture, control))
    }

    /// Opens the events that `wanted` selects on processors `0..cpus`. They report nothing before
    /// [`begin`](Self::begin).
    ///
    /// `streams` is the number of queues for finished records: one, or one per processor.
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
            has_run_down: false,
            handled: now_ns(),
            searched: Instant::now(),
        };
        Ok((capture, control))
    }

    /// Begins to capture; does nothing if the capture has begun.
    ///
    /// The rundown at the first poll carries this time, so that all other events are newer (C5).
    /// [`look`](Self::look) calls this itself.
    pub fn begin(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let mut opened = self.control.shared.opened();
        self.handled = now_ns();
        for ring in &self.rings {
            // Not expected to fail: the same credentials have just opened the event.
            let _ = ring.event().enable();
        }
        opened.begin();
    }

    /// Returns a descriptor that is readable when a ring has filled up or a record is urgent.
    #[must_use]
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }

    /// Polls the capture: handles what the kernel has written up to now, or with `all` also records
    /// that are newer than the start of the poll.
    pub fn look(&mut self, clock: &dyn Clock, all: bool) {
        patient::begin();
        self.poll_rings(clock, all);
        self.control.shared.add_unread(patient::end());
    }

    fn poll_rings(&mut self, clock: &dyn Clock, all: bool) {
        self.begin();
        self.relay.iter().for_each(Relay::clear_wakes);
        family::beside(&mut self.state);
        let shared = Arc::clone(&self.control.shared);
        let mut opened = shared.opened();
        // Present if the settings have changed since the last poll.
        let change = opened.before.take();
        if opened.wanted.stack_bytes > 0 && self.unwinder.is_none() {
            self.unwinder = Unwinder::new();
        }
        // Taken under the lock: events that were closed before wrote nothing newer than this.
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
        let is_changed = self.state.apply_settings(&opened.wanted, opened.changes);
        let is_due = shared.is_rundown_due.swap(false, Relaxed);
        if !std::mem::replace(&mut self.has_run_down, true) || is_due {
            family::run_down(&mut self.state, Rundown::Start, &mut out);
            let payload = out.payload();
            out.perfinfo(hook::RUNDOWN_COMPLETE, 2, payload);
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
        reader.poll();
        if let Some((time, beside)) = &change {
            reader.read_until_change(*time, before, beside, &mut out);
        }
        reader.read(until, &mut out);
        // Records that were not read are newer than this, however many more were read.
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
            opened.watch_new_threads(&shared.rings, |process| tasks.knows(process));
            shared.publish(&opened);
        }
    }

    /// Writes the end rundown and stops all events. Call it once, after the last poll.
    pub fn end(&mut self, clock: &dyn Clock) {
        self.look(clock, true);
        let owing = self.rings.iter().filter(|ring| ring.owes_losses());
        let owing: Vec<usize> = owing.map(|ring| usize::from(ring.cpu())).collect();
        if !owing.is_empty() {
            provoke_records_on(owing);
            self.look(clock, true);
        }
        self.count_unreported_losses();
        patient::begin();
        let beside = Beside::default();
        let mut out = Out::new(&mut self.queues, clock, &beside, &mut self.too_large);
        out.most = self.most_queued;
        family::run_down(&mut self.state, Rundown::End, &mut out);
        let mut payload = out.payload();
        payload.extend_from_slice(&group_masks(&self.state.groups.0));
        out.perfinfo(hook::END_GROUP_MASKS, 2, payload);
        self.control.shared.add_unread(patient::end());
        self.release();
    }

    /// Stops all events and unmaps the rings. This frees the locked memory before the events are
    /// closed, which may take seconds.
    fn release(&mut self) {
        for ring in &self.rings {
            // Errors are ignored as in `begin`.
            let _ = ring.event().disable();
        }
        self.relay = None;
        self.rings.clear();
        self.control.shared.opened().end();
    }

    /// Adds losses after the last record of a ring, which the kernel reports only before the next
    /// record.
    fn count_unreported_losses(&mut self) {
        let opened = self.control.shared.opened();
        for ring in &self.rings {
            let all = opened.lost_on(ring.event().cpu()).saturating_add(ring.event().lost().unwrap_or(0));
            if let Some(lost) = self.lost.get_mut(usize::from(ring.cpu())) {
                *lost = (*lost).max(all);
            }
        }
    }

    /// Returns the next record of a stream.
    #[must_use]
    pub fn peek(&self, stream: u16) -> Option<Captured> {
        self.queues.get(usize::from(stream))?.peek()
    }

    /// Copies the next record of a stream to `out` and removes it from the stream.
    pub fn take(&mut self, stream: u16, out: &mut [u8]) {
        if let Some(queue) = self.queues.get_mut(usize::from(stream)) {
            queue.take(out);
        }
    }

    /// Returns the largest stack copy per event, if locked memory limits it.
    #[must_use]
    pub fn stack_limit(&self) -> Option<u32> {
        self.stack_limit
    }

    /// Returns the records that the kernel had no room for, by processor.
    #[must_use]
    pub fn lost_by_cpu(&self) -> &[u64] {
        &self.lost
    }

    /// Returns the number of all lost records, including those that found no room in the queues.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.iter().fold(self.too_large, |sum, lost| sum.saturating_add(*lost))
    }
}

/// Opens something on each processor that is online and skips processors that are offline.
fn open_on_online_cpus<T>(cpus: u16, mut open: impl FnMut(u16) -> Result<T>) -> Result<Vec<T>> {
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
    /// Bytes of each ring: the requested size, or as much as may be locked.
    ring_bytes: usize,
    /// Whether the limit on locked memory restricts the rings.
    is_limited: bool,
}

impl Rings {
    fn open(wanted: &Wanted, cpus: u16) -> Result<Self> {
        let mut smaller = wanted.clone();
        let rings = loop {
            match open_on_online_cpus(cpus, |cpu| open_ring(&smaller, cpu)) {
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

/// Opens the ring of a processor, with the event that reports tasks and mappings.
fn open_ring(wanted: &Wanted, cpu: u16) -> Result<Ring> {
    let failed = |e| Error::system("capturing kernel events", e);
    let event = Event::open(&tasks_attr(wanted), Targets::owner(wanted.scope), i32::from(cpu));
    let event = event.map_err(failed)?;
    Ring::new(event, wanted.ring_bytes).map_err(|e| Error::system("ring for kernel events", e))
}

/// Makes the kernel write a record on each of these processors, preceded by a loss record: a thread
/// of this process sets its name there.
fn provoke_records_on(cpus: Vec<usize>) {
    let visit = move || {
        for cpu in cpus {
            let mut only = rustix::thread::CpuSet::new();
            if cpu < rustix::thread::CpuSet::MAX_CPU {
                only.set(cpu);
            }
            // If the thread cannot run there, the kernel reports nothing.
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
