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
//! - C2 A poll handles the records that were written before it began, and newer ones only on
//!   request.
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

use self::reader::RingMerger;
use self::relay::{Relay, RingSource};
use crate::attributes::{max_frames, stack_limit_bytes, task_records_attr};
use crate::blocking;
use crate::clock::{Clock, now_ns};
use crate::control::CaptureControl;
use crate::error::{Error, Result};
use crate::families::Families;
use crate::family::Rundown;
use crate::out::{Out, QueuedRecord, RecordQueue, max_queued_bytes};
use crate::perf_ring::{PerfEvent, PerfRing};
use crate::settings::{CaptureScope, CaptureSettings, EventExtras};
use crate::stack::unwind::StackUnwinder;
use crate::targets::Targets;

/// How often a capture searches for threads that are not descendants of watched threads.
const THREAD_SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// The smallest ring size, however little memory may be locked.
const MIN_RING_BYTES: usize = 64 << 10;

/// A capture of kernel events for one session.
#[derive(Debug)]
pub struct Capture {
    rings: Vec<RingSource>,
    /// The thread that empties rings whose size is limited by locked memory.
    relay: Option<Relay>,
    queues: Vec<RecordQueue>,
    families: Families,
    control: CaptureControl,
    /// See [`wake_fd`](Self::wake_fd).
    epoll_fd: OwnedFd,
    lost_by_cpu: Vec<u64>,
    /// The largest number of bytes that wait for the session.
    max_queued_bytes: usize,
    /// Records that were lost after they had been read from the rings.
    lost_records: u64,
    scratch: Vec<u8>,
    max_frames: usize,
    stack_limit_bytes: Option<u32>,
    unwinder: Option<StackUnwinder>,
    has_begun: bool,
    /// The number of the last change of settings that was applied.
    applied_change: u64,
    /// Whether the start rundown has been written.
    has_run_down: bool,
    /// The time of the last search for threads that are not descendants of watched threads.
    last_thread_search: Instant,
    /// Time in nanoseconds up to which all records have been handled.
    handled_until_ns: u64,
}

impl Capture {
    /// Opens the events that `settings` selects and begins to capture.
    pub fn start(settings: &CaptureSettings, cpus: u16, streams: u16) -> Result<(Self, CaptureControl)> {
        let (mut capture, control) = Self::open(settings, cpus, streams)?;
        capture.begin();
        Ok((capture, control))
    }

    /// Opens the events that `settings` selects on processors `0..cpus`. They report nothing before
    /// [`begin`](Self::begin).
    ///
    /// `streams` is the number of queues for finished records: one, or one per processor.
    pub fn open(settings: &CaptureSettings, cpus: u16, streams: u16) -> Result<(Self, CaptureControl)> {
        let families = Families::new(settings);
        let to_error = |e: rustix::io::Errno| Error::system("waiting for rings", e.into());
        let epoll_fd = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(to_error)?;
        let OpenedRings { sources: rings, relay, ring_bytes, is_limited } =
            OpenedRings::open(settings, cpus)?;
        let settings = &CaptureSettings { ring_bytes, ..settings.clone() };
        let stack_limit_bytes = is_limited.then(|| stack_limit_bytes(ring_bytes));
        let watch = |wake: BorrowedFd<'_>| {
            epoll::add(&epoll_fd, wake, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(to_error)
        };
        match &relay {
            Some(relay) => watch(relay.wake_fd())?,
            None => rings.iter().try_for_each(|ring| watch(ring.event().as_fd()))?,
        }
        let events = rings.iter().map(|ring| Arc::clone(ring.event())).collect();
        let control = CaptureControl::new(settings, events);
        control.shared.lock_events().stack_limit_bytes = stack_limit_bytes;
        control.set(settings)?;
        let queues = (0..streams.max(1)).map(|_| RecordQueue::default()).collect();
        let lost_by_cpu = vec![0; rings.last().map_or(0, |ring| usize::from(ring.cpu()).saturating_add(1))];
        let max_queued_bytes = max_queued_bytes(settings.ring_bytes.saturating_mul(rings.len()));
        let capture = Self {
            rings,
            relay,
            queues,
            families,
            control: control.clone(),
            epoll_fd,
            lost_by_cpu,
            max_queued_bytes,
            lost_records: 0,
            scratch: Vec::new(),
            max_frames: usize::from(max_frames()),
            stack_limit_bytes,
            unwinder: None,
            has_begun: false,
            applied_change: 0,
            has_run_down: false,
            handled_until_ns: now_ns(),
            last_thread_search: Instant::now(),
        };
        Ok((capture, control))
    }

    /// Begins to capture; does nothing if the capture has begun.
    ///
    /// The rundown at the first poll carries this time, so that all other events are newer (C5).
    /// [`poll`](Self::poll) calls this itself.
    pub fn begin(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let mut open_events = self.control.shared.lock_events();
        self.handled_until_ns = now_ns();
        for ring in &self.rings {
            // Not expected to fail: the same credentials have just opened the event.
            let _ = ring.event().enable();
        }
        open_events.begin();
    }

    /// Returns a descriptor that is readable when a ring has reached its watermark or received a
    /// record that wakes the session; with a relay, when the relay has moved records.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.epoll_fd.as_fd()
    }

    /// Handles the records that the kernel has written up to now; with `includes_newer`, also those
    /// that are newer than the start of the poll.
    pub fn poll(&mut self, clock: &dyn Clock, includes_newer: bool) {
        blocking::begin_poll();
        self.poll_rings(clock, includes_newer);
        self.control.shared.add_abandoned_reads(blocking::end_poll());
    }

    fn poll_rings(&mut self, clock: &dyn Clock, includes_newer: bool) {
        self.begin();
        self.relay.iter().for_each(Relay::clear_wakes);
        self.families.begin_poll();
        let shared = Arc::clone(&self.control.shared);
        let mut open_events = shared.lock_events();
        let change = open_events.pending_change.take();
        if open_events.settings.stack_bytes > 0 && self.unwinder.is_none() {
            self.unwinder = StackUnwinder::new();
        }
        // The time is taken under the lock: events that were closed before wrote nothing newer.
        let poll_start_ns = now_ns();
        let until_ns = if includes_newer { u64::MAX } else { poll_start_ns };
        let mut out = Out {
            max_frames: self.max_frames,
            unwinder: self.unwinder.as_mut(),
            scratch: std::mem::take(&mut self.scratch),
            time: self.handled_until_ns,
            max_bytes: self.max_queued_bytes,
            ..Out::new(&mut self.queues, clock, &open_events.extras, &mut self.lost_records)
        };
        let groups_before = self.families.context.groups;
        let is_changed = self.applied_change != open_events.changes;
        if is_changed {
            self.applied_change = open_events.changes;
            self.families.apply_settings(&open_events.settings);
        }
        let is_rundown_due = shared.is_rundown_due.swap(false, Relaxed);
        if !std::mem::replace(&mut self.has_run_down, true) || is_rundown_due {
            self.families.run_down(Rundown::Start, &mut out);
        } else if is_changed {
            self.families.run_down_new_groups(&groups_before, &mut out);
        }
        let mut merger = RingMerger {
            rings: &mut self.rings,
            open_events: &open_events,
            families: &mut self.families,
            lost: &mut self.lost_by_cpu,
            replaced: Vec::new(),
        };
        merger.poll();
        if let Some(change) = &change {
            merger.read_until_change(change, groups_before, &mut out);
        }
        merger.read_until(until_ns, &mut out);
        // Unread records are newer than this. With `includes_newer`, newer records have been read
        // too.
        self.handled_until_ns = poll_start_ns;
        out.set_origin(0, self.handled_until_ns);
        self.families.finish_poll(&mut out);
        self.scratch = out.scratch;
        if is_changed {
            open_events.forget_closed_events();
        }
        let has_own_scope = open_events.settings.scope == CaptureScope::Own;
        if self.last_thread_search.elapsed() > THREAD_SEARCH_INTERVAL {
            self.last_thread_search = Instant::now();
            let context = &mut self.families.context;
            if let Some(scope) = context.scope.as_mut().filter(|_| has_own_scope) {
                // The threads of a process that was forked before its parent was watched.
                scope.adopt_from_proc();
            }
            let (scope, tasks) = (context.scope.as_ref(), &context.tasks);
            open_events.watch_new_threads(&shared.ring_events, scope, |process| tasks.has_process(process));
            shared.publish(&open_events);
        }
        if let Some(scope) = &self.families.context.scope {
            shared.set_unattributed_events(scope.unattributed_events());
        }
    }

    /// Polls a last time, writes the end rundown and stops all events. Call it once.
    pub fn end(&mut self, clock: &dyn Clock) {
        self.poll(clock, true);
        let unreported = self.rings.iter().filter(|ring| ring.has_unreported_losses());
        let unreported: Vec<usize> = unreported.map(|ring| usize::from(ring.cpu())).collect();
        if !unreported.is_empty() {
            provoke_records_on(unreported);
            self.poll(clock, true);
        }
        self.count_unreported_losses();
        blocking::begin_poll();
        let extras = EventExtras::default();
        let mut out = Out::new(&mut self.queues, clock, &extras, &mut self.lost_records);
        out.max_bytes = self.max_queued_bytes;
        self.families.run_down(Rundown::End, &mut out);
        self.control.shared.add_abandoned_reads(blocking::end_poll());
        self.release();
    }

    /// Stops all events and unmaps the rings. This frees the locked memory early: closing the
    /// events may take seconds.
    fn release(&mut self) {
        for ring in &self.rings {
            // Errors are ignored as in `begin`.
            let _ = ring.event().disable();
        }
        self.relay = None;
        self.rings.clear();
        self.control.shared.lock_events().end();
    }

    /// Raises the losses of each processor to the counts of its events. These include losses after
    /// the last record of a ring, which the kernel reports only before the next record.
    fn count_unreported_losses(&mut self) {
        let open_events = self.control.shared.lock_events();
        for ring in &self.rings {
            let event_losses = open_events
                .lost_records_on(ring.event().cpu())
                .saturating_add(ring.event().lost_records().unwrap_or(0));
            if let Some(lost) = self.lost_by_cpu.get_mut(usize::from(ring.cpu())) {
                *lost = (*lost).max(event_losses);
            }
        }
    }

    /// Returns the next record of a stream.
    #[must_use]
    pub fn peek(&self, stream: u16) -> Option<QueuedRecord> {
        self.queues.get(usize::from(stream))?.peek()
    }

    /// Copies the next record of a stream to `out` and removes it from the stream.
    pub fn pop_into(&mut self, stream: u16, out: &mut [u8]) {
        if let Some(queue) = self.queues.get_mut(usize::from(stream)) {
            queue.pop_into(out);
        }
    }

    /// Returns the largest stack copy per event in bytes, if locked memory limits it.
    #[must_use]
    pub fn stack_limit_bytes(&self) -> Option<u32> {
        self.stack_limit_bytes
    }

    /// Returns the number of records that were lost in the rings, by processor (C3).
    #[must_use]
    pub fn lost_by_cpu(&self) -> &[u64] {
        &self.lost_by_cpu
    }

    /// Returns the number of all lost records, including those that did not fit into the queues.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost_by_cpu.iter().fold(self.lost_records, |sum, lost| sum.saturating_add(*lost))
    }
}

/// Calls `open` for each processor. Skips offline processors, for which `open` returns
/// `NotSupported`.
fn open_on_online_cpus<T>(cpus: u16, mut open: impl FnMut(u16) -> Result<T>) -> Result<Vec<T>> {
    let (mut items, mut offline) = (Vec::new(), None);
    for cpu in 0..cpus {
        match open(cpu) {
            Ok(item) => items.push(item),
            Err(error @ Error::NotSupported { .. }) => offline = Some(error),
            Err(error) => return Err(error),
        }
    }
    match offline {
        Some(error) if items.is_empty() => Err(error),
        _ => Ok(items),
    }
}

struct OpenedRings {
    sources: Vec<RingSource>,
    relay: Option<Relay>,
    /// Bytes of each ring: the requested size, or as much as may be locked.
    ring_bytes: usize,
    /// Whether the limit on locked memory reduced the rings, or the scope is `Own`.
    is_limited: bool,
}

impl OpenedRings {
    fn open(settings: &CaptureSettings, cpus: u16) -> Result<Self> {
        let mut smaller = settings.clone();
        let rings = loop {
            match open_on_online_cpus(cpus, |cpu| open_ring(&smaller, cpu)) {
                Err(Error::NotPermitted { .. }) if smaller.ring_bytes > MIN_RING_BYTES => {
                    smaller.ring_bytes /= 2;
                }
                opened => break opened?,
            }
        };
        let ring_bytes = smaller.ring_bytes;
        let is_limited = settings.scope == CaptureScope::Own || ring_bytes < settings.ring_bytes;
        if !is_limited {
            let sources = rings.into_iter().map(RingSource::Mapped).collect();
            return Ok(Self { sources, relay: None, ring_bytes, is_limited });
        }
        let (relay, sources) = Relay::start(rings, settings.relay_queue_bytes)?;
        Ok(Self { sources, relay: Some(relay), ring_bytes, is_limited })
    }
}

/// Opens the ring of a processor, with the event that reports tasks and mappings.
fn open_ring(settings: &CaptureSettings, cpu: u16) -> Result<PerfRing> {
    let to_error = |e| Error::system("capturing kernel events", e);
    let event =
        PerfEvent::open(&task_records_attr(settings), Targets::ring_target(settings.scope), i32::from(cpu));
    let event = event.map_err(to_error)?;
    PerfRing::new(event, settings.ring_bytes).map_err(|e| Error::system("ring for kernel events", e))
}

/// Makes the kernel write a record, preceded by a loss record, on each of these processors: a
/// thread of this process sets its name there.
fn provoke_records_on(cpus: Vec<usize>) {
    let visit = move || {
        for cpu in cpus {
            let mut cpu_set = rustix::thread::CpuSet::new();
            if cpu < rustix::thread::CpuSet::MAX_CPU {
                cpu_set.set(cpu);
            }
            // If the thread cannot run there, the kernel reports nothing.
            if rustix::thread::sched_setaffinity(None, &cpu_set).is_ok() {
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
