//! The records of all rings in time order, each given to whom it concerns.
//!
//! ```text
//!   look: how far each ring is written ──▶ read: the oldest of all next ones ──▶ sample: the handler of its row
//!                                          until a moment                   └─▶ other: all families, and who unwinds stacks
//! ```
//!
//! 1. Times of one ring rise; the rings are merged by the time of their next record. 2. What is read is given back to the kernel now and then, and at the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::relay::RingSource;
use crate::family;
use crate::family::process::Tasks;
use crate::groups::Groups;
use crate::opened::{Opened, Route};
use crate::out::{Beside, Out};
use crate::perf_ring::{RECORD_HEAD, can_tell_build_ids};
use crate::record::{self, Other};
use crate::spec;
use crate::stack::register_count;
use crate::stack::unwind::Unwinder;
use crate::state::State;

/// Bytes read from a ring before they are given back to the kernel, at the latest.
const RELEASE_AFTER: u64 = 64 << 10;
/// Reads the rings in time order.
pub(super) struct Reader<'a> {
    pub(super) rings: &'a mut [RingSource],
    pub(super) opened: &'a Opened,
    pub(super) state: &'a mut State,
    pub(super) lost: &'a mut [u64],
    /// Events that are closed and whose successors have begun.
    pub(super) replaced: Vec<u64>,
}

impl Reader<'_> {
    /// Sees what has been written up to now.
    pub(super) fn look(&mut self) {
        for ring in &mut *self.rings {
            ring.look();
        }
    }

    /// Reads what was seen and happened before a change, as it was wanted then; and changes.
    pub(super) fn read_until_change<'o>(
        &mut self,
        time: u64,
        before: Groups,
        beside: &'o Beside,
        out: &mut Out<'o>,
    ) {
        let wanted = (self.state.groups, out.beside);
        (self.state.groups, out.beside) = (family::until_change(before, &wanted.0), beside);
        self.read(time, out);
        (self.state.groups, out.beside) = wanted;
        (out.cpu, out.time, out.sample) = (0, out.time.max(time), None);
        family::on_change(self.state, out);
    }

    /// Reads what was seen. Rings by their places, which are those of processors only where none is off.
    pub(super) fn read(&mut self, until: u64, out: &mut Out<'_>) {
        let mut turns: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::with_capacity(self.rings.len());
        for place in 0..self.rings.len() {
            if let Some(time) = self.next_time(place) {
                turns.push(Reverse((time, place)));
            }
        }
        while let Some(Reverse((time, place))) = turns.pop() {
            if time > until {
                break;
            }
            let limit = turns.peek().map_or(until, |Reverse((next, _))| until.min(*next));
            let mut time = time;
            loop {
                self.handle(place, time, out);
                match self.next_time(place) {
                    Some(next) if next <= limit => time = next,
                    Some(next) => {
                        turns.push(Reverse((next, place)));
                        break;
                    }
                    None => {
                        // What was lost behind this is told only when something is written here again.
                        if self.rings.get(place).is_some_and(RingSource::was_full) {
                            family::forget(self.state);
                        }
                        break;
                    }
                }
            }
        }
        self.rings.iter_mut().for_each(RingSource::release);
    }

    /// The time of the next record of a ring.
    fn next_time(&mut self, place: usize) -> Option<u64> {
        let opened = self.opened;
        let cpu = usize::from(self.rings.get(place)?.cpu());
        let Some(record) = self.rings.get_mut(place)?.peek() else {
            if self.rings.get_mut(place)?.take_broken() {
                lose(self.state, self.lost, cpu, 1);
            }
            return None;
        };
        if !record::is_sample(record) {
            return Some(record::time_of_other(record));
        }
        // What nobody knows is passed over at once.
        let route = opened.routes.get(&record::id_of(record));
        Some(route.map_or(0, |route| record::time_of_sample(record, route.parts)))
    }

    pub(super) fn handle(&mut self, place: usize, time: u64, out: &mut Out<'_>) {
        let Some(ring) = self.rings.get_mut(place) else { return };
        let cpu = ring.cpu();
        let Some(record) = ring.peek() else { return };
        let length = record.len();
        (out.cpu, out.time, out.sample) = (cpu, time, None);
        if record::is_sample(record) {
            let id = record::id_of(record);
            if let Some(route) = self.opened.routes.get(&id) {
                // An event and its successor are open together for a moment: the successor's word counts from its first on.
                self.replaced.extend(route.replaces.filter(|old| !self.replaced.contains(old)));
                if !self.replaced.contains(&id) {
                    dispatch(route, record, cpu, self.state, out);
                }
            }
        } else {
            match record::other(record, can_tell_build_ids()) {
                Some((_, Other::Lost(count))) => lose(self.state, self.lost, usize::from(cpu), count),
                Some((context, other)) => {
                    family::on_other(self.state, &context, &other, out);
                    if let Some(unwinder) = out.unwinder.as_deref_mut() {
                        follow(unwinder, &self.state.tasks, &other);
                    }
                }
                None => {}
            }
        }
        ring.skip(length.max(RECORD_HEAD));
        if ring.unreleased() > RELEASE_AFTER {
            ring.release();
        }
    }
}

/// So many records of a processor are lost, at least.
fn lose(state: &mut State, lost: &mut [u64], cpu: usize, count: u64) {
    family::forget(state);
    if let Some(sum) = lost.get_mut(cpu) {
        *sum = sum.saturating_add(count);
    }
}

/// Gives a sample to the handler of its row.
fn dispatch(route: &Route, record: &[u8], cpu: u16, state: &mut State, out: &mut Out<'_>) {
    let registers = register_count();
    let Some(sample) = record::sample(record, route.parts, cpu, (registers, registers)) else { return };
    let event = spec::Event { sample, fields: &route.fields, tag: route.tag };
    let mut with_sample = Out {
        queues: &mut *out.queues,
        clock: out.clock,
        beside: out.beside,
        max_frames: out.max_frames,
        unwinder: out.unwinder.as_deref_mut(),
        most: out.most,
        too_large: &mut *out.too_large,
        scratch: std::mem::take(&mut out.scratch),
        cpu,
        time: sample.time,
        sample: Some(sample),
    };
    (route.spec.on)(state, &event, &mut with_sample);
    out.scratch = with_sample.scratch;
}

/// Keeps the modules of processes up to date, for their stacks. `tasks`: who is alive behind this record.
fn follow(unwinder: &mut Unwinder, tasks: &Tasks, other: &Other<'_>) {
    match other {
        Other::Mmap(mmap) => unwinder.mapped(mmap),
        Other::Comm { pid, is_exec: true, .. } => unwinder.gone(*pid),
        // Its first thread may be gone long before the last.
        Other::Exit { pid, .. } if !tasks.knows(*pid) => unwinder.gone(*pid),
        _ => {}
    }
}
