//! The capture that all enables of the kernel's manifest providers share.
//!
//! ```text
//!   enables of all sessions ──▶ EventHub::apply ──▶ one Capture: the union of groups and stacks
//!
//!   poll of any session ──▶ Capture::poll ──▶ SharedEvent ──▶ queue of each selecting session
//!                                                              │ taken at the session's own poll
//!                           EVENT record on the session's clock ◀┘ (subscription.rs)
//! ```
//!
//! - H1 The capture is open while a session enables one of the providers. It does not count as one
//!   of the system loggers.
//! - H2 A poll of any session reads the rings for all sessions. So after its own poll, a session
//!   has all events from before the poll. Polls wait for each other: a slow poll, such as one with
//!   a rundown, delays the collectors of all these sessions, whose other rings may overflow.
//! - H3 A change reads the rings before it applies, so that events from before a disable are kept.
//! - H4 Each queue is bounded. Events beyond the bound are counted as lost in that session. Events
//!   that the kernel dropped are counted in all sessions.
//! - H5 Opening and closing take long: [`EventHub::apply`] runs on a thread that may block.
//! - H6 A rundown goes to the sessions that requested it before its poll, from its first event to its
//!   last. A request during a poll waits for the rundown of the next poll.

mod facts;
mod queue;
mod source;
mod subscription;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll;
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::spec::system::NO_SYSCONFIG;
use traceweir_kernel::{CaptureScope, CaptureSettings, Groups, QueuedRecord};
use traceweir_session::groups::with_twins;
use traceweir_session::{Error, Result, Session};
use traceweir_transport::cpu;
use traceweir_transport::message::SessionConfig;

use self::facts::{EventTable, WallClock};
use self::queue::{EventQueue, SharedEvent};
use self::source::{EventSource, OpenSource, OpenedSource, SourceControl, open_capture};
use self::subscription::Subscription;
use super::selection::{ProviderEnables, Selection};
use super::{LockableMemory, memory_share, ring_bytes};
use crate::log::log_client;

/// Memory of the rings: this many KiB for each processor.
const RING_KIB: u32 = 4096;
/// Offset of the frames in the payload of a stack.
const FRAMES_OFFSET: usize = 0x10;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one session enables.
#[derive(Clone, Debug, Default)]
struct Wanted {
    enables: ProviderEnables,
    /// Bytes of user stack that are copied with each stack.
    stack_bytes: u32,
}

/// The enables of all sessions, and the capture that serves them.
pub(crate) struct EventHub {
    scope: CaptureScope,
    open_source: Box<OpenSource>,
    wanted: Mutex<BTreeMap<u64, Wanted>>,
    /// Locked during a change.
    state: Mutex<HubState>,
}

#[derive(Default)]
struct HubState {
    capture: Option<Arc<SharedCapture>>,
    queues: BTreeMap<u64, Arc<EventQueue>>,
}

impl EventHub {
    pub(crate) fn new(scope: CaptureScope) -> Self {
        Self::with_source(scope, Box::new(open_capture))
    }

    fn with_source(scope: CaptureScope, open_source: Box<OpenSource>) -> Self {
        Self { scope, open_source, wanted: Mutex::default(), state: Mutex::default() }
    }

    /// Returns the enables of a session.
    pub(crate) fn enables(&self, session: u64) -> ProviderEnables {
        lock(&self.wanted).get(&session).map(|wanted| wanted.enables.clone()).unwrap_or_default()
    }

    /// Replaces the enables of a session. They are in effect after [`apply`](Self::apply).
    pub(crate) fn set_enables(&self, session: u64, enables: ProviderEnables, stack_bytes: u32) {
        let mut all = lock(&self.wanted);
        if enables.is_empty() {
            all.remove(&session);
        } else {
            all.insert(session, Wanted { enables, stack_bytes });
        }
    }

    /// Opens, changes or closes the capture so that it serves the current enables. `session` gets a
    /// source of events if it has enables and no source yet.
    pub(crate) fn apply(&self, session: Option<(u64, Session)>) -> Result<()> {
        let mut state = lock(&self.state);
        let wanted = lock(&self.wanted).clone();
        let capture = match &state.capture {
            Some(capture) => {
                capture.poll(false);
                if !wanted.is_empty() {
                    let settings = self.capture_settings(&wanted);
                    capture.control.set(&settings)?;
                    // A poll applies the change, so that it is in effect for the caller's next step.
                    capture.poll(false);
                }
                Arc::clone(capture)
            }
            None if wanted.is_empty() => return Ok(()),
            None => {
                let opened = (self.open_source)(&self.capture_settings(&wanted))?;
                Arc::new(SharedCapture::new(opened))
            }
        };
        state.queues.retain(|id, queue| {
            let is_wanted = wanted.contains_key(id);
            if !is_wanted {
                queue.end();
            }
            is_wanted
        });
        for (id, queue) in &state.queues {
            let enables = wanted.get(id).map(|wanted| Selection::new(&wanted.enables));
            queue.set_selection(enables.unwrap_or_default());
        }
        if let Some((id, session)) = session
            && let Some(wanted) = wanted.get(&id).filter(|_| !state.queues.contains_key(&id))
        {
            let queue = Arc::new(EventQueue::new(Selection::new(&wanted.enables)));
            let streams = session_streams(&session);
            session.capture(Box::new(Subscription::new(Arc::clone(&capture), Arc::clone(&queue), streams)?));
            state.queues.insert(id, queue);
        }
        capture.log_missing_events();
        state.capture = (!wanted.is_empty()).then_some(capture);
        Ok(())
    }

    /// Requests the existing processes and open files for a session.
    pub(crate) fn run_down(&self, session: u64) {
        let state = lock(&self.state);
        if let (Some(queue), Some(capture)) = (state.queues.get(&session), &state.capture) {
            capture.run_down(queue);
        }
    }

    fn capture_settings(&self, wanted: &BTreeMap<u64, Wanted>) -> CaptureSettings {
        let cpus = cpu::possible();
        // The memory of a session in which each processor's share is `RING_KIB`.
        let memory = SessionConfig {
            buffer_size: RING_KIB,
            maximum_buffers: u32::from(cpus),
            ..SessionConfig::default()
        };
        let ring_bytes = ring_bytes(&memory, cpus, self.scope, LockableMemory::current);
        let mut groups = [NO_SYSCONFIG, 0, 0, 0, 0, 0, 0, 0];
        let mut stacks = Vec::new();
        for wanted in wanted.values() {
            let selection = Selection::new(&wanted.enables);
            selection.add_groups(&mut groups);
            stacks.extend(selection.stack_hooks());
        }
        stacks.sort_unstable();
        stacks.dedup();
        CaptureSettings {
            groups: Groups(with_twins(groups)),
            stacks,
            stack_bytes: wanted.values().map(|wanted| wanted.stack_bytes).max().unwrap_or(0),
            has_program_details: true,
            scope: self.scope,
            ring_bytes,
            relay_queue_bytes: usize::try_from(memory_share(&memory, cpus))
                .unwrap_or(usize::MAX)
                .max(ring_bytes),
            ..CaptureSettings::default()
        }
    }
}

/// Returns the number of streams of a session.
fn session_streams(session: &Session) -> u16 {
    traceweir_session::config::stream_count(&session.properties().config, cpu::possible())
}

/// The open capture.
struct SharedCapture {
    reader: Mutex<CaptureReader>,
    control: Box<dyn SourceControl>,
    logged_missing: Mutex<Vec<String>>,
}

/// The part of the capture that a poll uses.
struct CaptureReader {
    events: Box<dyn EventSource>,
    table: EventTable,
    queues: Vec<Arc<EventQueue>>,
    record: Vec<u8>,
}

impl SharedCapture {
    fn new(OpenedSource { events, control }: OpenedSource) -> Self {
        let (table, queues, record) = (EventTable::default(), Vec::new(), Vec::new());
        let reader = Mutex::new(CaptureReader { events, table, queues, record });
        Self { reader, control, logged_missing: Mutex::default() }
    }

    /// Adds a queue and returns a descriptor that is readable when the capture should be polled.
    fn subscribe(&self, queue: Arc<EventQueue>) -> Result<OwnedFd> {
        let to_error = |e: rustix::io::Errno| Error::Capture {
            status: traceweir_format::spec::status::Status::ERROR_NO_SYSTEM_RESOURCES,
            reason: format!("kernel events: {e}"),
        };
        let mut reader = lock(&self.reader);
        // Each session has a separate descriptor. When the session drops it, nothing watches the
        // capture for this session any more.
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(to_error)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&wake, reader.events.wake_fd(), data, epoll::EventFlags::IN).map_err(to_error)?;
        queue.set_lost_before(reader.events.losses());
        reader.queues.push(queue);
        Ok(wake)
    }

    fn unsubscribe(&self, queue: &Arc<EventQueue>) {
        lock(&self.reader).queues.retain(|other| !Arc::ptr_eq(other, queue));
    }

    /// Reads the rings and passes the events to all queues: the events up to now or, with
    /// `includes_newer`, also those that are written during the poll.
    fn poll(&self, includes_newer: bool) {
        let mut reader = lock(&self.reader);
        reader.events.poll(includes_newer);
        reader.distribute();
    }

    /// Requests a rundown for a queue at the next poll.
    fn run_down(&self, queue: &EventQueue) {
        // No poll is under way, so the queue takes part from the first event of the rundown (H6).
        let _reader = lock(&self.reader);
        queue.request_rundown();
        self.control.run_down();
    }

    fn log_missing_events(&self) {
        let (missing, mut logged) = (self.control.missing_events(), lock(&self.logged_missing));
        if *logged != missing {
            logged.clone_from(&missing);
            if !missing.is_empty() {
                log_client!("the kernel's providers: this kernel does not have {}", missing.join(", "));
            }
        }
    }
}

impl CaptureReader {
    fn distribute(&mut self) {
        let wall = WallClock::now();
        let mut last: Option<SharedEvent> = None;
        while let Some(next) = self.events.peek() {
            self.record.resize(next.length, 0);
            self.events.pop_into(&mut self.record);
            let Ok(record) = Record::parse(&self.record, 0) else { continue };
            // A stack follows its event.
            if next.is_stack {
                if let (Some(event), Some(hook::STACK_WALK)) = (&mut last, record.hook()) {
                    event.frames.extend_from_slice(record.payload().get(FRAMES_OFFSET..).unwrap_or_default());
                }
                continue;
            }
            offer(&self.queues, last.take());
            if record.hook() == Some(hook::RUNDOWN_COMPLETE) {
                self.queues.iter().for_each(|queue| queue.end_rundown());
            }
            last = build_event(&mut self.table, &self.queues, &wall, &record, &next);
        }
        offer(&self.queues, last);
        let losses = self.events.losses();
        for queue in &self.queues {
            // The event that ends the rundown may be lost (H6).
            queue.end_rundown();
            queue.set_lost(losses);
        }
    }
}

fn offer(queues: &[Arc<EventQueue>], event: Option<SharedEvent>) {
    if let Some(event) = event.map(Arc::new) {
        queues.iter().for_each(|queue| queue.offer(&event));
    }
}

/// Updates the table with a record, and returns the event if a queue selects it.
fn build_event(
    table: &mut EventTable,
    queues: &[Arc<EventQueue>],
    wall: &WallClock,
    record: &Record<'_>,
    next: &QueuedRecord,
) -> Option<SharedEvent> {
    let hook = record.hook()?;
    let facts = table.update(hook, record, next, wall);
    if !queues.iter().any(|queue| queue.selects(hook)) {
        return None;
    }
    let payload = record.payload().into();
    Some(SharedEvent { time_ns: next.raw, cpu: next.origin.cpu, hook, facts, payload, frames: Vec::new() })
}
