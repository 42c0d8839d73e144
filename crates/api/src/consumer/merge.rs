//! Live sessions as one stream in time order.
//!
//! ```text
//!   Live 0 ─ stream ─┐                      released when
//!          ─ stream ─┼─▶ heap (earliest) ──▶   every session is complete up to its time, or
//!   Live 1 ─ stream ─┘                         it is older than records can wait in any, or
//!                                              more is held than should be
//! ```
//!
//! 1. The heap has one turn for each stream that is not empty, under the time of its next item.
//! 2. Delivery polls the queues every few hundred events, so that they do not run full while there
//!    is room here.
//! 3. Between two waits everything that can be released is released.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use traceweir_format::time::FileTime;

use super::close::Gate;
use super::live::{End, Live};
use super::stream::Front;
use super::{Buffer, Event, Handler, Loss};
use crate::error::Result;

/// Events between two polls of the queues.
const RUN: usize = 256;
/// The longest wait, which bounds the cost of a lost signal.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A position in the order of delivery: wall time, then trace, its own clock, and the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    time: FileTime,
    trace: usize,
    raw: i64,
    stream: usize,
}

struct Merge {
    /// `None` once closed or ended.
    lives: Vec<Option<Live>>,
    heap: BinaryHeap<Reverse<Turn>>,
    /// The reason why a trace ended that was not stopped.
    broken: Option<crate::error::Error>,
}

/// Delivers events until every session has ended or was closed.
pub(super) fn process<H: Handler>(mut lives: Vec<(Live, Arc<Gate>)>, handler: &mut H) -> Result<()> {
    for (trace, (live, _)) in lives.iter_mut().enumerate() {
        live.set_interest(handler.interest(trace));
        handler.begins(trace, live.header(), live.logger());
    }
    let (lives, gates): (Vec<_>, Vec<_>) = lives.into_iter().map(|(live, gate)| (Some(live), gate)).unzip();
    let mut merge = Merge { lives, heap: BinaryHeap::new(), broken: None };
    if merge.deliver_heads(&gates, handler).is_break() {
        return Ok(());
    }
    while merge.lives.iter().any(Option::is_some) {
        merge.fill(&gates);
        let mut delivered = 0;
        if merge.deliver(&gates, &mut delivered, handler).is_break() {
            return Ok(());
        }
        merge.drop_ended();
        if delivered < RUN {
            merge.wait(&gates)?;
        }
    }
    merge.broken.map_or(Ok(()), Err)
}

impl Merge {
    /// Delivers the log-file header events, which come first.
    fn deliver_heads<H: Handler>(&mut self, gates: &[Arc<Gate>], handler: &mut H) -> ControlFlow<()> {
        for (trace, (live, gate)) in self.lives.iter().zip(gates).enumerate() {
            let Some(live) = live else { continue };
            let (mut records, clock) = (live.head(), live.clock());
            let interest = handler.interest(trace);
            let _entered = gate.enter();
            while let Ok(Some(record)) = records.next() {
                if gate.is_closed() || !interest.has_events() {
                    break;
                }
                let time = clock.file_time(record.time());
                handler.event(Event { record: &record, time, trace, clock })?;
            }
            if interest.has_buffers()
                && !gate.is_closed()
                && let Some(buffer) = Buffer::here(trace, live.head_bytes())
            {
                handler.buffer(buffer)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn fill(&mut self, gates: &[Arc<Gate>]) {
        for (trace, (slot, gate)) in self.lives.iter_mut().zip(gates).enumerate() {
            if gate.is_closed() {
                *slot = None;
            }
            let Some(live) = slot else { continue };
            live.check_daemon();
            let (clock, heap) = (*live.clock(), &mut self.heap);
            let mut woke = |stream, raw| {
                heap.push(Reverse(Turn { time: clock.file_time(raw), trace, raw, stream }));
            };
            // Read before the queue: everything that arrived by then is delivered.
            let is_ending = gate.is_ending();
            live.fill(&mut woke);
            if is_ending {
                live.stop_here(&mut woke);
            }
        }
    }

    /// Delivers what can be released, at most one run of events.
    fn deliver<'g, H: Handler>(
        &mut self,
        gates: &'g [Arc<Gate>],
        delivered: &mut usize,
        handler: &mut H,
    ) -> ControlFlow<()> {
        let exact = self.exact();
        // For traces without events, or whose events the handler does not want.
        for (trace, gate) in gates.iter().enumerate() {
            let _entered = gate.enter();
            self.deliver_ends(trace, gate, handler)?;
        }
        let mut entered: Option<(usize, MutexGuard<'g, ()>)> = None;
        while *delivered < RUN {
            let Some(&Reverse(turn)) = self.heap.peek() else { break };
            if turn.time > exact && !self.is_due(&turn) {
                break;
            }
            let Some(gate) = gates.get(turn.trace) else { break };
            if entered.as_ref().is_none_or(|(trace, _)| *trace != turn.trace) {
                // The old gate is released before the new one is locked.
                drop(entered.take());
                entered = Some((turn.trace, gate.enter()));
            }
            if gate.is_closed() {
                entered = None;
                self.forget(turn.trace);
                continue;
            }
            *delivered += 1;
            self.deliver_one(turn, handler)?;
            self.deliver_ends(turn.trace, gate, handler)?;
        }
        ControlFlow::Continue(())
    }

    /// Reports buffers that ended, under the gate of their trace.
    #[inline]
    fn deliver_ends<H: Handler>(&mut self, trace: usize, gate: &Gate, handler: &mut H) -> ControlFlow<()> {
        let Some(live) = self.lives.get_mut(trace).and_then(Option::as_mut) else {
            return ControlFlow::Continue(());
        };
        while !gate.is_closed()
            && let Some(bytes) = live.take_finished()
        {
            if let Some(buffer) = Buffer::here(trace, &bytes) {
                handler.buffer(buffer)?;
            }
            live.give_back(bytes);
        }
        ControlFlow::Continue(())
    }

    fn deliver_one<H: Handler>(&mut self, turn: Turn, handler: &mut H) -> ControlFlow<()> {
        let Turn { trace, stream, .. } = turn;
        let Some(live) = self.lives.get_mut(trace).and_then(Option::as_mut) else {
            self.heap.pop();
            return ControlFlow::Continue(());
        };
        let clock = live.clock();
        let flow = match live.stream(stream).and_then(|s| s.front()) {
            Some(Front::Lost(lost)) => {
                let loss = Loss { lost, trace, raw: turn.raw, time: turn.time };
                handler.lost(loss)
            }
            Some(Front::Record(record)) => {
                let time = clock.file_time(record.time());
                handler.event(Event { record: &record, time, trace, clock })
            }
            None => ControlFlow::Continue(()),
        };
        let clock = *clock;
        match (live.step(stream), self.heap.peek_mut()) {
            (Some(raw), Some(mut top)) => {
                *top = Reverse(Turn { time: clock.file_time(raw), trace, raw, stream });
            }
            (None, Some(top)) => {
                std::collections::binary_heap::PeekMut::pop(top);
            }
            (_, None) => {}
        }
        flow
    }

    /// Returns the time up to which all sessions are complete, by the stamps of their buffers.
    fn exact(&self) -> FileTime {
        self.lives.iter().flatten().map(complete).min().unwrap_or(FileTime(i64::MAX))
    }

    /// Returns whether the item need not wait for earlier ones any more.
    fn is_due(&self, turn: &Turn) -> bool {
        let Some(live) = self.lives.get(turn.trace).and_then(Option::as_ref) else { return true };
        live.is_full() || self.until_due(turn).is_none_or(|left| left.is_zero())
    }

    /// Returns the time until the item need not wait any more; `None` if unknown.
    fn until_due(&self, turn: &Turn) -> Option<Duration> {
        let others = self.lives.iter().enumerate().filter_map(|(trace, live)| Some((trace, live.as_ref()?)));
        let incomplete = others.filter(|(_, live)| complete(live) < turn.time);
        let wait = incomplete.map(|(trace, live)| live.wait(trace == turn.trace)).max().unwrap_or_default();
        self.lives.get(turn.trace)?.as_ref()?.until_aged(turn.raw, wait)
    }

    /// Drops a trace that was closed.
    fn forget(&mut self, trace: usize) {
        if let Some(slot) = self.lives.get_mut(trace) {
            *slot = None;
        }
        self.heap.retain(|Reverse(turn)| turn.trace != trace);
    }

    /// Drops traces that have ended and have nothing left.
    fn drop_ended(&mut self) {
        for (trace, slot) in self.lives.iter_mut().enumerate() {
            let ended = slot.as_ref().is_some_and(|live| live.end.is_some());
            if !ended || self.heap.iter().any(|Reverse(turn)| turn.trace == trace) {
                continue;
            }
            if let Some(End::Broken(reason)) = slot.take().and_then(|live| live.end) {
                self.broken.get_or_insert(reason);
            }
        }
    }

    /// Waits until a queue has a buffer, a trace is closed, a daemon disconnects, or the next event
    /// is due.
    fn wait(&self, gates: &[Arc<Gate>]) -> Result<()> {
        let mut waited_for = Vec::new();
        for (live, gate) in self.lives.iter().zip(gates) {
            let Some(live) = live else { continue };
            waited_for.push(PollFd::from_borrowed_fd(gate.signal(), PollFlags::IN));
            if live.end.is_none() && !live.is_full() {
                waited_for.extend(live.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            }
        }
        if waited_for.is_empty() {
            return Ok(());
        }
        let due = self.heap.peek().and_then(|Reverse(turn)| {
            if turn.time <= self.exact() { Some(Duration::ZERO) } else { self.until_due(turn) }
        });
        let wait = due.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        let timeout = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        match rustix::event::poll(&mut waited_for, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(traceweir_transport::Error::system("poll", e).into()),
        }
    }
}

/// Returns the time up to which a session is complete.
fn complete(live: &Live) -> FileTime {
    match live.exact() {
        i64::MAX => FileTime(i64::MAX),
        i64::MIN => FileTime(i64::MIN),
        raw => live.clock().file_time(raw),
    }
}
