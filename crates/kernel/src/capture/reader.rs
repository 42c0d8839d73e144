//! Merges the records of all rings in time order and dispatches them.
//!
//! ```text
//!   poll: how far each ring ──▶ read_until: the oldest ──▶ sample: handler of its row
//!         is written            of the next records   └──▶ side-band: all families, unwinder
//! ```
//!
//! 1. Times within a ring increase. The rings are merged by the time of their next record.
//! 2. Bytes that were read are released to the kernel every [`RELEASE_AFTER_BYTES`] bytes and at
//!    the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::relay::RingSource;
use crate::families::Families;
use crate::groups::Groups;
use crate::open_events::{EventRoute, OpenEvents, PendingChange};
use crate::out::Out;
use crate::perf_ring::{RECORD_HEADER_BYTES, can_report_build_ids};
use crate::record::{self, RegisterCounts, Sideband, SidebandRecord};
use crate::spec::SampleEvent;
use crate::stack::registers;
use crate::stack::unwind::StackUnwinder;
use crate::tasks::{TaskIds, Tasks};

/// Number of read bytes after which a ring releases them to the kernel.
const RELEASE_AFTER_BYTES: u64 = 64 << 10;

/// Reads the rings in time order.
pub(super) struct RingMerger<'a> {
    pub(super) rings: &'a mut [RingSource],
    pub(super) open_events: &'a OpenEvents,
    pub(super) families: &'a mut Families,
    /// Lost records, by processor.
    pub(super) lost: &'a mut [u64],
    /// Ids of events that are closed and whose successors have written a record.
    pub(super) replaced: Vec<u64>,
}

impl RingMerger<'_> {
    /// Makes the records that the kernel has written so far available to `read_until`.
    pub(super) fn poll(&mut self) {
        for ring in &mut *self.rings {
            ring.poll();
        }
    }

    /// Handles the polled records from before a change with the old settings, then applies the
    /// change.
    pub(super) fn read_until_change<'o>(
        &mut self,
        change: &'o PendingChange,
        groups_before: Groups,
        out: &mut Out<'o>,
    ) {
        let (groups, extras) = (self.families.context.groups, out.extras);
        self.families.context.groups = self.families.groups_until_change(groups_before);
        out.extras = &change.extras_before;
        self.read_until(change.time_ns, out);
        (self.families.context.groups, out.extras) = (groups, extras);
        out.set_origin(0, out.time.max(change.time_ns));
        self.families.on_settings_change(out);
    }

    /// Handles the polled records up to a time.
    pub(super) fn read_until(&mut self, until_ns: u64, out: &mut Out<'_>) {
        // A ring index is not a processor number: an offline processor has no ring.
        let mut next_records: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::with_capacity(self.rings.len());
        for ring_index in 0..self.rings.len() {
            if let Some(time) = self.next_record_time(ring_index) {
                next_records.push(Reverse((time, ring_index)));
            }
        }
        while let Some(Reverse((time, ring_index))) = next_records.pop() {
            if time > until_ns {
                break;
            }
            let limit = next_records.peek().map_or(until_ns, |Reverse((next, _))| until_ns.min(*next));
            let mut time = time;
            loop {
                self.handle_next_record(ring_index, time, out);
                match self.next_record_time(ring_index) {
                    Some(next) if next <= limit => time = next,
                    Some(next) => {
                        next_records.push(Reverse((next, ring_index)));
                        break;
                    }
                    None => {
                        // A full ring may have lost records, which the kernel reports only before
                        // its next record.
                        if self.rings.get(ring_index).is_some_and(RingSource::was_full) {
                            self.families.forget_after_loss();
                        }
                        break;
                    }
                }
            }
        }
        self.rings.iter_mut().for_each(RingSource::release);
    }

    /// Returns the time of the next record of a ring.
    fn next_record_time(&mut self, ring_index: usize) -> Option<u64> {
        let open_events = self.open_events;
        let cpu = usize::from(self.rings.get(ring_index)?.cpu());
        let Some(record) = self.rings.get_mut(ring_index)?.peek() else {
            if self.rings.get_mut(ring_index)?.take_damage() {
                count_lost(self.families, self.lost, cpu, 1);
            }
            return None;
        };
        if !record::is_sample(record) {
            return Some(record::sideband_time(record));
        }
        // A sample of an unknown event gets time 0: the merge takes it next, and it is skipped.
        let route = open_events.routes.get(&record::event_id(record));
        Some(route.map_or(0, |route| record::sample_time(record, route.parts)))
    }

    pub(super) fn handle_next_record(&mut self, ring_index: usize, time: u64, out: &mut Out<'_>) {
        let Some(ring) = self.rings.get_mut(ring_index) else { return };
        let cpu = ring.cpu();
        let Some(record) = ring.peek() else { return };
        let length = record.len();
        out.set_origin(cpu, time);
        if record::is_sample(record) {
            let id = record::event_id(record);
            if let Some(route) = self.open_events.routes.get(&id) {
                // The old and the new event are open together for a moment. From the first record
                // of the new event on, only the new event counts (C4 of `capture`).
                self.replaced.extend(route.replaces.filter(|old| !self.replaced.contains(old)));
                if !self.replaced.contains(&id) {
                    dispatch_sample(route, record, cpu, self.families, out);
                }
            }
        } else {
            match record::parse_sideband(record, can_report_build_ids()) {
                Some(SidebandRecord { body: Sideband::Lost(count), .. }) => {
                    count_lost(self.families, self.lost, usize::from(cpu), count)
                }
                Some(sideband) => {
                    out.current = Some(TaskIds { pid: sideband.pid, tid: sideband.tid });
                    self.families.on_sideband(&sideband, out);
                    if let Some(unwinder) = out.unwinder.as_deref_mut().filter(|_| out.is_in_scope) {
                        update_unwinder(unwinder, &self.families.context.tasks, &sideband.body);
                    }
                }
                None => {}
            }
        }
        ring.skip(length.max(RECORD_HEADER_BYTES));
        if ring.unreleased_bytes() > RELEASE_AFTER_BYTES {
            ring.release();
        }
    }
}

/// Counts lost records of a processor, and drops state that those records may have changed.
fn count_lost(families: &mut Families, lost: &mut [u64], cpu: usize, count: u64) {
    families.forget_after_loss();
    if let Some(sum) = lost.get_mut(cpu) {
        *sum = sum.saturating_add(count);
    }
}

/// Passes a sample to the handler of its row.
fn dispatch_sample(route: &EventRoute, record: &[u8], cpu: u16, families: &mut Families, out: &mut Out<'_>) {
    let counts = RegisterCounts { user: registers::count(), interrupted: registers::count() };
    let Some(sample) = record::parse_sample(record, route.parts, cpu, counts) else { return };
    let event = SampleEvent { sample, fields: &route.fields, source_id: route.source_id };
    let mut with_sample = Out {
        queues: &mut *out.queues,
        clock: out.clock,
        extras: out.extras,
        max_frames: out.max_frames,
        unwinder: out.unwinder.as_deref_mut(),
        max_bytes: out.max_bytes,
        lost_records: &mut *out.lost_records,
        scratch: std::mem::take(&mut out.scratch),
        cpu,
        time: sample.time,
        sample: Some(sample),
        current: None,
        is_in_scope: true,
    };
    families.on_sample(route.row, &event, &mut with_sample);
    out.scratch = with_sample.scratch;
}

/// Updates the modules that the unwinder keeps for each process. `tasks` is the state after this
/// record.
fn update_unwinder(unwinder: &mut StackUnwinder, tasks: &Tasks, record: &Sideband<'_>) {
    match record {
        Sideband::Mmap(mmap) => unwinder.note_mapping(mmap),
        Sideband::Comm { pid, is_exec: true, .. } => unwinder.forget_process(*pid),
        // The first thread may exit long before the last one.
        Sideband::Exit { pid, .. } if !tasks.has_process(*pid) => unwinder.forget_process(*pid),
        _ => {}
    }
}
