//! Samples of running code, and the sampling intervals.
//!
//! ```text
//!   cpu-clock every `interval`  ──▶  0x0F2E sample: instruction pointer, thread, count,
//!                                    flags (priority, in a DPC, in an ISR)
//!   a counter every n counts    ──▶  0x0F2F sample of that source
//!   start, change, end          ──▶  0x0F49, 0x0F48, 0x0F4A: source, new and old interval, name
//!   counters read with events   ──▶  0x0F30: their names
//! ```
//!
//! 1. Idle time is sampled too, as thread 0, so that the shares of a processor's time add up to
//!    one.
//! 2. The flags follow the last context switches and interrupts that were captured on the
//!    processor. If these are not captured, the priority or the DPC and ISR bits are 0.
//! 3. An event is written when a source starts, when its interval changes, and when it ends. The
//!    last written interval of each source is kept, because the event of a change contains it.

use traceweir_format::kernel::{PayloadLayout, RepeatedValues, hook};
use traceweir_format::put_kernel_event;

use super::{Context, EventFamily, Row, Rundown};
use crate::counter::Counter;
use crate::groups::Group;
use crate::out::Out;
use crate::record::SampleParts;
use crate::spec::{PerfSource, SampleEvent};
use crate::tasks::TaskIds;

/// The sampling family: the sources and counters that have been written.
#[derive(Debug, Default)]
pub(crate) struct ProfileFamily {
    /// Active sources, with the intervals last written.
    sources: Vec<Counter>,
    /// The counters read with events, as last written.
    counters: Vec<Counter>,
}

const SAMPLE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::SAMPLED_PROFILE, 2);
const COUNTER_SAMPLE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PMC_PROFILE, 2);
const COUNTERS_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PMC_CONFIG, 2);
const INTERVAL_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PROFILE_SET_INTERVAL, 2);
const COLLECTION_LAYOUT: PayloadLayout = PayloadLayout::shared(&[hook::PROFILE_START, hook::PROFILE_END], 3);

// Flags of a sample: bits 0 and 1, and the priority from bit 3 on.
const IN_DPC: u8 = 1;
const IN_ISR: u8 = 2;
const PRIORITY_SHIFT: u32 = 3;

/// Id and name of the timer as a source.
const TIMER: (u32, &str) = (0, "Timer");

/// Builds the row of the counter at an index of the profile sources.
const fn counter_row(index: usize) -> Row<ProfileFamily> {
    let source = PerfSource::Counter(index);
    Row::new(source, &[Group::PMC_PROFILE], &[hook::PMC_PROFILE], SampleParts::IP, |_, event, _, out| {
        write_counter_sample(event, out);
    })
}

static ROWS: &[Row<ProfileFamily>] = &[
    Row::new(
        PerfSource::Profile,
        &[Group::PROFILE],
        &[hook::SAMPLED_PROFILE],
        SampleParts::IP,
        |_, event, context, out| {
            write_sample(event, context, out);
        },
    ),
    // One row for each of the `MAX_COUNTERS` sources.
    counter_row(0),
    counter_row(1),
    counter_row(2),
    counter_row(3),
    counter_row(4),
    counter_row(5),
    counter_row(6),
];

impl EventFamily for ProfileFamily {
    fn rows() -> &'static [Row<Self>] {
        ROWS
    }

    /// Writes the start or the end of all sources; at the start also the names of the counters.
    fn run_down(&mut self, when: Rundown, context: &mut Context, out: &mut Out<'_>) {
        let hook = match when {
            Rundown::Start => {
                *self = Self::new(context);
                write_counter_names(&self.counters, out);
                hook::PROFILE_START
            }
            Rundown::End => hook::PROFILE_END,
        };
        for source in &self.sources {
            write_collection(hook, source, out);
        }
    }

    /// Writes the sources that start, end or have a new interval, and the names of new counters.
    fn on_settings_change(&mut self, context: &mut Context, out: &mut Out<'_>) {
        let current = Self::new(context);
        for old in &self.sources {
            match current.sources.iter().find(|source| source.id == old.id) {
                Some(source) if source.interval != old.interval => {
                    write_interval_change(source, old.interval, out);
                }
                Some(_) => {}
                None => write_collection(hook::PROFILE_END, old, out),
            }
        }
        for source in &current.sources {
            if !self.sources.iter().any(|old| old.id == source.id) {
                write_collection(hook::PROFILE_START, source, out);
            }
        }
        if self.counters != current.counters {
            write_counter_names(&current.counters, out);
        }
        *self = current;
    }
}

impl ProfileFamily {
    /// Returns the sources and counters that the settings select.
    fn new(context: &Context) -> Self {
        let (settings, groups) = (&context.settings, &context.groups);
        let (id, name) = TIMER;
        let timer = Counter { id, name: name.to_owned(), interval: settings.interval };
        let mut sources = Vec::new();
        if groups.has(Group::PROFILE) {
            sources.push(timer);
        }
        if groups.has(Group::PMC_PROFILE) {
            sources.extend_from_slice(&settings.profile_sources);
        }
        Self { sources, counters: settings.counters.clone() }
    }
}

fn write_sample(event: &SampleEvent<'_>, context: &Context, out: &mut Out<'_>) {
    let (sample, activity) = (event.sample, &context.activity);
    let mut flags = activity.running_priority(sample.cpu, sample.tid) << PRIORITY_SHIFT;
    flags |= if activity.is_in_softirq(sample.cpu) { IN_DPC } else { 0 };
    flags |= if activity.is_in_device_interrupt(sample.cpu) { IN_ISR } else { 0 };
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, SAMPLE_LAYOUT, {
        InstructionPointer: sample.ip,
        ThreadId: sample.tid,
        Count: 1_u16,
        Flags: flags,
    });
    out.write_perfinfo(hook::SAMPLED_PROFILE, SAMPLE_LAYOUT.version(), payload);
}

fn write_counter_sample(event: &SampleEvent<'_>, out: &mut Out<'_>) {
    let sample = event.sample;
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, COUNTER_SAMPLE_LAYOUT, {
        InstructionPointer: sample.ip,
        ThreadId: sample.tid,
        ProfileSource: u16::try_from(event.source_id).unwrap_or(u16::MAX),
    });
    out.write_perfinfo(hook::PMC_PROFILE, COUNTER_SAMPLE_LAYOUT.version(), payload);
}

/// Writes the start or the end of a source, with its interval and its name.
fn write_collection(hook: u16, source: &Counter, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    put_kernel_event!(
        &mut payload,
        COLLECTION_LAYOUT,
        { Source: source.id, NewInterval: source.interval, OldInterval: source.interval },
        { SourceName: source.name.as_str() }
    );
    out.write_system(hook, COLLECTION_LAYOUT.version(), TaskIds::default(), payload);
}

fn write_interval_change(source: &Counter, old: u32, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, INTERVAL_LAYOUT, {
        Source: source.id,
        NewInterval: source.interval,
        OldInterval: old,
    });
    out.write_system(hook::PROFILE_SET_INTERVAL, INTERVAL_LAYOUT.version(), TaskIds::default(), payload);
}

/// Writes the names of the counters read with events, if there are any.
fn write_counter_names(counters: &[Counter], out: &mut Out<'_>) {
    let Ok(count @ 1..) = u32::try_from(counters.len()) else { return };
    let mut payload = out.new_payload();
    let names = counters.iter().map(|counter| counter.name.as_str());
    put_kernel_event!(
        &mut payload,
        COUNTERS_LAYOUT,
        { CounterCount: count },
        { CounterName: RepeatedValues(names) }
    );
    out.write_system(hook::PMC_CONFIG, COUNTERS_LAYOUT.version(), TaskIds::default(), payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::testing::{assert_written, run_row_with_numbers};
    use crate::groups::Groups;
    use crate::record::PerfSample;

    #[test]
    fn payloads_have_the_documented_layout() {
        let (mut profile, mut context) = (ProfileFamily::default(), Context::default());
        let sample = PerfSample { cpu: 1, tid: 0x0A11, ip: 0xFFFF_8000_0000_1234, ..PerfSample::default() };
        context.activity.set_running(1, 0x0A11, 9);
        context.groups = Groups::new(&[Group::PROFILE, Group::PMC_PROFILE]);
        let counter = |id, name: &str, interval| Counter { id, name: name.to_owned(), interval };
        context.settings.profile_sources = vec![counter(2, "a", 5000)];
        context.settings.counters = vec![counter(3, "bc", 0), counter(4, "d", 0)];
        let write = |out: &mut Out<'_>| {
            run_row_with_numbers(&mut profile, &mut context, "cpu-clock", sample, &[], out);
            run_row_with_numbers(&mut profile, &mut context, "profile source 0", sample, &[], out);
            profile.run_down(Rundown::Start, &mut context, out);
            context.settings.profile_sources[0].interval = 6000;
            profile.on_settings_change(&mut context, out);
        };
        // Hook id, version, payload. `run_row_with_numbers` sets the source id 19.
        assert_written(
            write,
            &[
                "0f2e 02 341200000080ffff 110a0000 0100 48 00",
                "0f2f 02 341200000080ffff 110a0000 1300 0000",
                "0f30 02 02000000 62006300000064000000",
                "0f49 03 00000000 10270000 10270000 540069006d00650072000000",
                "0f49 03 02000000 88130000 88130000 61000000",
                "0f48 02 02000000 70170000 88130000",
            ],
        );
    }
}
