//! Samples of running code, and the names and intervals of their sources.
//!
//! ```text
//!   the event that measures CPU time best   ──▶ 0x0F2E sample, source 0
//!   every other event that is no tracepoint ──▶ 0x0F2F counter sample, source 1, 2, …
//!   at the start, for each of them          ──▶ 0x0F49 source, interval, name
//! ```
//!
//! The field `Count` of a sample is its weight (`period`).

use traceweir_format::etl::WriteAt;
use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;

use super::attr::{EventTable, RecordedEvent};
use super::output::{Moment, TaskIds, TraceOutput};
use super::period::PeriodWeights;
use super::record::Sample;
use super::stacks::CallStack;
use super::survey::Survey;

const SAMPLE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::SAMPLED_PROFILE, 2);
const COUNTER_SAMPLE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PMC_PROFILE, 2);
const COLLECTION_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PROFILE_START, 3);

const NS_PER_UNIT: u64 = 100;

/// Writes samples.
#[derive(Debug, Default)]
pub(super) struct Profile {
    /// The index of the event that becomes the sampled profile.
    main: Option<usize>,
    weights: PeriodWeights,
    payload: Vec<u8>,
    /// Number of samples of the sampled profile.
    pub(super) samples: u64,
    /// Number of samples of the sampled profile whose periods are too short for a weight.
    pub(super) short_samples: u64,
    /// Number of samples of other events.
    pub(super) counter_samples: u64,
}

impl Profile {
    pub(super) fn new(survey: &Survey) -> Self {
        let has_frequency = survey.events.main_event().is_some_and(|event| event.attr.has_frequency());
        let duration_ns = survey.times.map_or(0, |(first, last)| last.saturating_sub(first));
        let weights = match has_frequency {
            true => PeriodWeights::new(&survey.periods, duration_ns),
            false => PeriodWeights::default(),
        };
        Self { main: survey.events.main(), weights, ..Self::default() }
    }

    /// Returns whether the time between two samples of the sampled profile is unknown.
    pub(super) fn lacks_interval(&self, events: &EventTable) -> bool {
        self.samples > 0 && events.main_event().is_some_and(|event| event.attr.interval_ns().is_none())
    }

    /// Writes the sources of samples with their intervals.
    pub(super) fn begin<W: WriteAt>(
        &mut self,
        events: &[RecordedEvent],
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<()> {
        for (index, event) in events.iter().enumerate().filter(|(_, event)| event.attr.takes_samples()) {
            let interval = match self.main == Some(index) {
                true => event.attr.interval_ns().unwrap_or(0).div_euclid(NS_PER_UNIT),
                false => event.attr.fixed_period(),
            };
            let interval = u32::try_from(interval).unwrap_or(u32::MAX);
            self.payload.clear();
            put_kernel_event!(
                &mut self.payload,
                COLLECTION_LAYOUT,
                {
                    Source: u32::from(self.source_of(index)),
                    NewInterval: interval,
                    OldInterval: interval,
                },
                { SourceName: event.name.as_str() }
            );
            let kind = (hook::PROFILE_START, COLLECTION_LAYOUT.version());
            out.write_system(at, kind, TaskIds::default(), &self.payload)?;
        }
        Ok(())
    }

    /// Returns the number of the source of an event: 0 is the timer.
    fn source_of(&self, index: usize) -> u16 {
        if self.main == Some(index) {
            return 0;
        }
        u16::try_from(index.saturating_add(1)).unwrap_or(u16::MAX)
    }

    /// Writes a sample and its stack.
    pub(super) fn write<W: WriteAt>(
        &mut self,
        index: usize,
        (sample, stack): (&Sample<'_>, &CallStack),
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<()> {
        let tid = sample.origin.tid;
        self.payload.clear();
        let (hook, layout) = if self.main == Some(index) {
            let weight = self.weights.next(sample.period);
            if weight == 0 {
                self.short_samples = self.short_samples.saturating_add(1);
                return Ok(());
            }
            self.samples = self.samples.saturating_add(1);
            put_kernel_event!(
                &mut self.payload,
                SAMPLE_LAYOUT,
                { InstructionPointer: sample.ip, ThreadId: tid, Count: weight }
            );
            (hook::SAMPLED_PROFILE, SAMPLE_LAYOUT)
        } else {
            self.counter_samples = self.counter_samples.saturating_add(1);
            put_kernel_event!(
                &mut self.payload,
                COUNTER_SAMPLE_LAYOUT,
                { InstructionPointer: sample.ip, ThreadId: tid, ProfileSource: self.source_of(index) }
            );
            (hook::PMC_PROFILE, COUNTER_SAMPLE_LAYOUT)
        };
        if out.write_perfinfo(at, (hook, layout.version()), &self.payload)? {
            stack.write(tid, at, &mut self.payload, out)?;
        }
        Ok(())
    }
}
