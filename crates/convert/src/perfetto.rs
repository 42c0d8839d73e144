//! Perfetto traces: a stream of `TracePacket` messages, for <https://ui.perfetto.dev> and
//! `trace_processor`.
//!
//! ```text
//!   clock snapshot, process tree      names, parents, real time
//!   track descriptors                 processes, threads, tasks, disks, counters
//!   ftrace bundle of a processor      sched_switch, sched_waking, sched_process_free
//!   track events                      slices, instants, counters; fields are debug annotations
//!   perf samples                      CPU samples with their stacks
//! ```
//!
//! Documented: the messages of `protos/perfetto/trace` in the repository of Perfetto.
//!
//! P1  All packets are of one sequence. Names, frames and stacks are interned in it. When they reach a
//!     limit, or after a loss, the sequence begins again with the flag
//!     `SEQ_INCREMENTAL_STATE_CLEARED`.
//! P2  Times are nanoseconds since the machine started, if the trace contains that time, else since
//!     1970. A clock snapshot relates them to real time.
//! P3  Slices of a track nest. Slices that overlap are on tracks of the same name, which the page shows
//!     as one.

mod descriptors;
mod fields;
mod interning;
mod scheduling;
mod slices;
mod tracks;
mod writer;

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;

use self::fields::event;
use self::tracks::TrackKey;
use self::writer::PerfettoWriter;
use crate::activity::{Activity, ActivityEvent, ActivityTables, FieldValue, NeededActivity, read_activity};
use crate::{Conversion, ConvertInput};

/// Writes traces as a Perfetto trace.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut writer = PerfettoWriter::new(out);
    let needed = NeededActivity { events: true, event_stacks: true };
    let summary = read_activity(input, needed, |tables, activity| writer.add(tables, activity))?;
    if summary.end_ns >= summary.tables.from_ns {
        writer.write_first_switches(&summary.tables)?;
    }
    writer.write_bundles()?;
    writer.flush()?;
    let mut notes = summary.notes;
    writer.describe_missing(&mut notes);
    Ok(Conversion {
        events: summary.events,
        written: writer.packets,
        written_noun: "packet",
        notes,
        reading: summary.reading,
    })
}

impl PerfettoWriter<'_> {
    /// Writes an activity.
    fn add(&mut self, tables: &ActivityTables, activity_event: &ActivityEvent) -> Result<()> {
        let start_ns = match self.start_ns {
            Some(start_ns) => start_ns,
            None => self.write_start(tables)?,
        };
        let ActivityEvent { time_ns, machine, cpu, is_selected, stack, activity } = activity_event;
        let at = start_ns.saturating_add(u64::try_from(*time_ns).unwrap_or(0));
        let cpu = tables.output_cpu(*machine, *cpu);
        if *time_ns < tables.from_ns {
            if let Activity::Switch(switch) = activity {
                self.first_switches.insert(cpu, (*time_ns, *switch));
            }
            return Ok(());
        }
        self.write_first_switches(tables)?;
        if !is_selected && !matches!(activity, Activity::Switch(_)) {
            return Ok(());
        }
        match activity {
            Activity::ProcessStart(process) => self.write_tree(tables, &[*process], &[]),
            Activity::ThreadStart(thread) => self.write_tree(tables, &[], &[*thread]),
            Activity::ProcessEnd(_) => Ok(()),
            Activity::ThreadEnd(thread) => self.add_thread_end(tables, at, cpu, *thread),
            Activity::Switch(switch) => self.add_switch(tables, at, cpu, switch),
            Activity::Wake { thread, waker } => self.add_wake(tables, at, cpu, (*thread, *waker)),
            Activity::Sample(sample) => self.add_sample(tables, at, cpu, sample, stack),
            Activity::SliceBegin(slice) => self.begin_slice(tables, at, slice, stack),
            Activity::SliceEnd { slice, stop } => self.end_slice(tables, at, slice, stop.as_deref()),
            Activity::Instant { thread, detail } => {
                let track = self.thread_track(tables, *thread)?;
                let stack = self.intern_stack(tables, stack);
                self.write_event(at, event::INSTANT, track, Some(&detail.name), Some(detail), stack)
            }
            Activity::Counters { process, values } => {
                for (name, value) in values {
                    self.add_counter(tables, at, *process, name, *value)?;
                }
                Ok(())
            }
            Activity::Disk { thread, transfer } => {
                let begin = at.saturating_sub(transfer.duration_ns.unwrap_or(0));
                let name = format!("Disk {}", transfer.disk);
                let (begin, lane) = self.tracks.take_disk_lane(*machine, transfer.disk, begin, at);
                let track = self.find_track(tables, &TrackKey::disk(*machine, transfer.disk, lane), &name)?;
                let (pid, tid) = tables.output_ids(*thread);
                let number =
                    |name: &str, value: Option<u64>| Some((Arc::from(name), FieldValue::Unsigned(value?)));
                let values = [
                    number("bytes", Some(transfer.bytes)),
                    number("pid", pid.map(u64::from)),
                    number("tid", tid.map(u64::from)),
                ];
                let values: Vec<(Arc<str>, FieldValue)> = values.into_iter().flatten().collect();
                self.write_named(begin, event::SLICE_BEGIN, track, ("disk", transfer.operation), &values)?;
                self.write_event(at, event::SLICE_END, track, None, None, None)?;
                let counter = format!("Disk {} {} bytes", transfer.disk, transfer.operation);
                self.add_total(tables, at, counter, transfer.bytes)
            }
            Activity::Network { process, transfer } => self.add_network(tables, at, *process, transfer),
            Activity::Loss(loss) => self.add_loss(tables, at, loss),
        }
    }
}

#[cfg(test)]
mod tests;
