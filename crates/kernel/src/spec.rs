//! The perf events that can be captured, and their samples.
//!
//! ```text
//!   PerfEventSpec {
//!     sched:sched_switch,   opened on each processor while one of the groups is enabled
//!     groups: [CSWITCH],
//!     hooks: [0x0524],      opened with a call chain if a stack of these hooks is enabled
//!     fields: [prev_pid, …] offsets come from the kernel's format description
//!   }
//! ```

use traceweir_format::wire::{u8_at, u16_at, u32_at, u64_at};

use crate::groups::{Group, Groups};
use crate::record::{self, PerfSample, SampleParts};
use crate::settings::HookSet;
use crate::tracefs::TracepointField;

/// The kind of a perf event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerfSource {
    /// A tracepoint, by system and name.
    Tracepoint(&'static str, &'static str),
    /// A software counter, by its number in `PERF_COUNT_SW_…`, sampled after every `period` counts.
    Software { counter: u64, period: u64 },
    /// The processor clock, sampled at the interval of profile source 0 (the timer).
    Profile,
    /// The profile source with this index in `CaptureSettings::profile_sources`, sampled at its
    /// interval.
    Counter(usize),
}

/// A perf event, and the kernel events that are made from it.
#[derive(Debug)]
pub(crate) struct PerfEventSpec {
    pub(crate) source: PerfSource,
    /// The event is open while one of these groups is enabled. An event without groups is open
    /// while the stack of one of its hooks is enabled.
    pub(crate) groups: &'static [Group],
    /// Kernel events made from this perf event. The perf event is opened with call chains if the
    /// stack of one of its kernel events is enabled.
    pub(crate) hooks: &'static [u16],
    /// Fields of the tracepoint; handlers use the index in this list. A leading `?` marks a field
    /// that may be missing.
    pub(crate) fields: &'static [&'static str],
    /// Extra sample parts. Samples of tracepoints always include their raw data.
    pub(crate) parts: SampleParts,
    /// Whether each record wakes the session at once, because the handler must inspect something
    /// that soon disappears.
    pub(crate) wakes_session: bool,
    /// Whether only captures of scope `Own` use this event; other captures use a tracepoint
    /// instead.
    pub(crate) is_own_scope_only: bool,
    /// A filter expression for the kernel, if only some of the events are needed.
    pub(crate) filter: Option<&'static str>,
}

impl PerfEventSpec {
    /// Returns whether the event has to be open.
    pub(crate) fn is_enabled(&self, groups: &Groups, stacks: &HookSet) -> bool {
        if self.groups.is_empty() { stacks.has_any(self.hooks) } else { groups.has_any(self.groups) }
    }

    /// Returns the name of the event for error messages.
    pub(crate) fn name(&self) -> String {
        match self.source {
            PerfSource::Tracepoint(system, name) => format!("{system}:{name}"),
            PerfSource::Software { counter, .. } => format!("software event {counter}"),
            PerfSource::Profile => "cpu-clock".to_owned(),
            PerfSource::Counter(index) => format!("profile source {index}"),
        }
    }
}

/// A sample, with the tracepoint fields that its specification lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleEvent<'a> {
    pub(crate) sample: PerfSample<'a>,
    pub(crate) fields: &'a [Option<TracepointField>],
    /// The id of the profile source for which the event was opened.
    pub(crate) source_id: u32,
}

impl<'a> SampleEvent<'a> {
    fn field(&self, index: usize) -> Option<TracepointField> {
        self.fields.get(index).copied().flatten()
    }

    /// Returns whether the kernel has an optional field.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.field(index).is_some()
    }

    /// Returns a number, sign-extended if the field is signed; 0 if the field is missing.
    #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)] // Sign extension is intended.
    pub(crate) fn number(&self, index: usize) -> i64 {
        let Some(TracepointField { offset, size, is_signed, .. }) = self.field(index) else { return 0 };
        let (offset, raw) = (usize::from(offset), self.sample.raw);
        match (size, is_signed) {
            (1, false) => i64::from(u8_at(raw, offset)),
            (1, true) => i64::from(u8_at(raw, offset) as i8),
            (2, false) => i64::from(u16_at(raw, offset)),
            (2, true) => i64::from(u16_at(raw, offset) as i16),
            (4, false) => i64::from(u32_at(raw, offset)),
            (4, true) => i64::from(u32_at(raw, offset) as i32),
            (8, _) => u64_at(raw, offset) as i64,
            _ => 0,
        }
    }

    /// Returns [`number`](Self::number) as an unsigned value.
    #[allow(clippy::cast_sign_loss)]
    pub(crate) fn u64(&self, index: usize) -> u64 {
        self.number(index) as u64
    }

    /// Returns the low 32 bits of [`number`](Self::number).
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn u32(&self, index: usize) -> u32 {
        self.number(index) as u32
    }

    /// Returns the bytes of an array field, or those that a `__data_loc` field points to.
    pub(crate) fn bytes(&self, index: usize) -> &'a [u8] {
        let Some(field) = self.field(index) else { return &[] };
        let (offset, size) = if field.is_data_loc {
            let location = u32_at(self.sample.raw, usize::from(field.offset));
            ((location & 0xFFFF) as usize, (location >> 16) as usize)
        } else {
            (usize::from(field.offset), usize::from(field.size))
        };
        self.sample.raw.get(offset..).map_or(&[], |tail| tail.get(..size).unwrap_or(tail))
    }

    /// Returns a text field without its terminator.
    pub(crate) fn text(&self, index: usize) -> &'a [u8] {
        record::until_nul(self.bytes(index))
    }
}
