//! Live sessions as one stream in time order.
//!
//! ```text
//!   session 0 ─ stream ─┐                     an item is released when
//!             ─ stream ─┼─▶ heap (earliest) ─▶   every session is complete up to its time, or
//!   session 1 ─ stream ─┘                        it is older than records can wait in any session,
//!                                                or its session holds too many bytes
//! ```
//!
//! 1. The heap has one position for each stream that is not empty, under the time of its next item.
//! 2. Delivery polls the queues every few hundred items, so that a queue does not run full while
//!    this consumer may hold more bytes of its session.
//! 3. Between two waits everything that can be released is released.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use traceweir_format::time::FileTime;

use super::close::CloseGate;
use super::live::{LiveEnd, LiveSession};
use super::stream::NextItem;
use super::{Buffer, Event, Handler, Loss};
use crate::error::Result;

/// Maximum number of items that are delivered between two polls of the queues.
const ITEMS_PER_POLL: usize = 256;
/// The longest wait, which bounds the cost of a lost signal.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A position in the order of delivery: by wall time, then trace, stamp and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DeliveryPosition {
    time: FileTime,
    trace: usize,
    raw: i64,
    stream: usize,
}

struct LiveMerge {
    /// `None` once closed or ended.
    sessions: Vec<Option<LiveSession>>,
    heap: BinaryHeap<Reverse<DeliveryPosition>>,
    /// The error of the first trace that ended without a stop of its session.
    first_error: Option<crate::error::Error>,
}

/// Delivers events until every session has ended or was closed.
pub(super) fn process<H: Handler>(
    mut sessions: Vec<(LiveSession, Arc<CloseGate>)>,
    handler: &mut H,
) -> Result<()> {
    for (trace, (live, _)) in sessions.iter_mut().enumerate() {
        live.set_interest(handler.interest(trace));
        handler.begins(trace, live.header(), live.logger());
    }
    let (sessions, gates): (Vec<_>, Vec<_>) =
        sessions.into_iter().map(|(live, gate)| (Some(live), gate)).unzip();
    let mut merge = LiveMerge { sessions, heap: BinaryHeap::new(), first_error: None };
    if merge.deliver_header_events(&gates, handler).is_break() {
        return Ok(());
    }
    while merge.sessions.iter().any(Option::is_some) {
        merge.fill(&gates);
        let mut delivered = 0;
        if merge.deliver(&gates, &mut delivered, handler).is_break() {
            return Ok(());
        }
        merge.drop_ended();
        if delivered < ITEMS_PER_POLL {
            merge.wait(&gates)?;
        }
    }
    merge.first_error.map_or(Ok(()), Err)
}

impl LiveMerge {
    /// Delivers the log-file header events, which come first.
    fn deliver_header_events<H: Handler>(
        &mut self,
        gates: &[Arc<CloseGate>],
        handler: &mut H,
    ) -> ControlFlow<()> {
        for (trace, (live, gate)) in self.sessions.iter().zip(gates).enumerate() {
            let Some(live) = live else { continue };
            let (mut records, clock) = (live.header_records(), live.clock());
            let interest = handler.interest(trace);
            let _entered = gate.lock();
            while let Ok(Some(record)) = records.next() {
                if gate.is_closed() || !interest.has_events() {
                    break;
                }
                let time = clock.file_time(record.time());
                handler.event(Event { record: &record, time, trace, clock })?;
            }
            if interest.has_buffers()
                && !gate.is_closed()
                && let Some(buffer) = Buffer::in_memory(trace, live.header_buffer_bytes())
            {
                handler.buffer(buffer)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn fill(&mut self, gates: &[Arc<CloseGate>]) {
        for (trace, (slot, gate)) in self.sessions.iter_mut().zip(gates).enumerate() {
            if gate.is_closed() {
                *slot = None;
            }
            let Some(live) = slot else { continue };
            live.check_daemon();
            let (clock, heap) = (*live.clock(), &mut self.heap);
            let mut on_nonempty = |stream, raw| {
                heap.push(Reverse(DeliveryPosition { time: clock.file_time(raw), trace, raw, stream }));
            };
            // Read this flag before the queue: everything that arrived by then is delivered.
            let is_ending = gate.is_ending();
            live.fill(&mut on_nonempty);
            if is_ending {
                live.stop_input(&mut on_nonempty);
            }
        }
    }

    /// Delivers the items that can be released, at most [`ITEMS_PER_POLL`].
    fn deliver<'g, H: Handler>(
        &mut self,
        gates: &'g [Arc<CloseGate>],
        delivered: &mut usize,
        handler: &mut H,
    ) -> ControlFlow<()> {
        let complete_time = self.complete_time();
        // Some traces have no events, or the handler does not want their events. Their buffers are
        // delivered here.
        for (trace, gate) in gates.iter().enumerate() {
            let _entered = gate.lock();
            self.deliver_finished(trace, gate, handler)?;
        }
        let mut entered: Option<(usize, MutexGuard<'g, ()>)> = None;
        while *delivered < ITEMS_PER_POLL {
            let Some(&Reverse(position)) = self.heap.peek() else { break };
            if position.time > complete_time && !self.is_due(&position) {
                break;
            }
            let Some(gate) = gates.get(position.trace) else { break };
            if entered.as_ref().is_none_or(|(trace, _)| *trace != position.trace) {
                // The old gate is released before the new one is locked.
                drop(entered.take());
                entered = Some((position.trace, gate.lock()));
            }
            if gate.is_closed() {
                entered = None;
                self.drop_trace(position.trace);
                continue;
            }
            *delivered += 1;
            self.deliver_one(position, handler)?;
            self.deliver_finished(position.trace, gate, handler)?;
        }
        ControlFlow::Continue(())
    }

    /// Delivers the finished buffers of a trace; the caller holds its gate.
    #[inline]
    fn deliver_finished<H: Handler>(
        &mut self,
        trace: usize,
        gate: &CloseGate,
        handler: &mut H,
    ) -> ControlFlow<()> {
        let Some(live) = self.sessions.get_mut(trace).and_then(Option::as_mut) else {
            return ControlFlow::Continue(());
        };
        while !gate.is_closed()
            && let Some(bytes) = live.take_finished()
        {
            if let Some(buffer) = Buffer::in_memory(trace, &bytes) {
                handler.buffer(buffer)?;
            }
            live.give_back(bytes);
        }
        ControlFlow::Continue(())
    }

    fn deliver_one<H: Handler>(&mut self, position: DeliveryPosition, handler: &mut H) -> ControlFlow<()> {
        let DeliveryPosition { trace, stream, .. } = position;
        let Some(live) = self.sessions.get_mut(trace).and_then(Option::as_mut) else {
            self.heap.pop();
            return ControlFlow::Continue(());
        };
        let clock = live.clock();
        let flow = match live.stream(stream).and_then(|s| s.front()) {
            Some(NextItem::Lost(lost)) => {
                let loss = Loss { lost, trace, raw: position.raw, time: position.time };
                handler.lost(loss)
            }
            Some(NextItem::Record(record)) => {
                let time = clock.file_time(record.time());
                handler.event(Event { record: &record, time, trace, clock })
            }
            None => ControlFlow::Continue(()),
        };
        let clock = *clock;
        match (live.step(stream), self.heap.peek_mut()) {
            (Some(raw), Some(mut top)) => {
                *top = Reverse(DeliveryPosition { time: clock.file_time(raw), trace, raw, stream });
            }
            (None, Some(top)) => {
                std::collections::binary_heap::PeekMut::pop(top);
            }
            (_, None) => {}
        }
        flow
    }

    /// Returns the time up to which all sessions are complete.
    fn complete_time(&self) -> FileTime {
        self.sessions.iter().flatten().map(complete_time_of).min().unwrap_or(FileTime(i64::MAX))
    }

    /// Returns whether the item need not wait for earlier ones any more.
    fn is_due(&self, position: &DeliveryPosition) -> bool {
        let Some(live) = self.sessions.get(position.trace).and_then(Option::as_ref) else { return true };
        live.is_full() || self.until_due(position).is_none_or(|left| left.is_zero())
    }

    /// Returns how long the item still has to wait for earlier ones; `None` if unknown.
    fn until_due(&self, position: &DeliveryPosition) -> Option<Duration> {
        let open = self.sessions.iter().enumerate().filter_map(|(trace, live)| Some((trace, live.as_ref()?)));
        let incomplete = open.filter(|(_, live)| complete_time_of(live) < position.time);
        let wait =
            incomplete.map(|(trace, live)| live.max_wait(trace == position.trace)).max().unwrap_or_default();
        self.sessions.get(position.trace)?.as_ref()?.until_aged(position.raw, wait)
    }

    /// Drops a trace that was closed.
    fn drop_trace(&mut self, trace: usize) {
        if let Some(slot) = self.sessions.get_mut(trace) {
            *slot = None;
        }
        self.heap.retain(|Reverse(position)| position.trace != trace);
    }

    /// Drops traces that have ended and have nothing left.
    fn drop_ended(&mut self) {
        for (trace, slot) in self.sessions.iter_mut().enumerate() {
            let has_ended = slot.as_ref().is_some_and(|live| live.end.is_some());
            if !has_ended || self.heap.iter().any(|Reverse(position)| position.trace == trace) {
                continue;
            }
            if let Some(LiveEnd::Broken(reason)) = slot.take().and_then(|live| live.end) {
                self.first_error.get_or_insert(reason);
            }
        }
    }

    /// Waits until a queue has a buffer, a trace is closed or ending, a daemon disconnects, the
    /// next item is due, or [`LONGEST_WAIT`] has passed.
    fn wait(&self, gates: &[Arc<CloseGate>]) -> Result<()> {
        let mut descriptors = Vec::new();
        for (live, gate) in self.sessions.iter().zip(gates) {
            let Some(live) = live else { continue };
            descriptors.push(PollFd::from_borrowed_fd(gate.signal(), PollFlags::IN));
            if live.end.is_none() && !live.is_full() {
                descriptors.extend(live.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            }
        }
        if descriptors.is_empty() {
            return Ok(());
        }
        let due = self.heap.peek().and_then(|Reverse(position)| {
            if position.time <= self.complete_time() {
                Some(Duration::ZERO)
            } else {
                self.until_due(position)
            }
        });
        let wait = due.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        let timeout = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        match rustix::event::poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(traceweir_transport::Error::system("poll", e).into()),
        }
    }
}

/// Returns the time up to which a session is complete.
fn complete_time_of(live: &LiveSession) -> FileTime {
    match live.complete_stamp() {
        i64::MAX => FileTime(i64::MAX),
        i64::MIN => FileTime(i64::MIN),
        raw => live.clock().file_time(raw),
    }
}
