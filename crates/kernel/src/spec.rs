//! What can be captured: one row for each perf event that a family of kernel events is made of.
//!
//! ```text
//!   Spec { sched:sched_switch, groups: [CSWITCH], hooks: [0x0524], fields: [prev_pid, …], on: switched }
//!           │ opened on each processor        │ stacks of these hooks     │ found in the   │ called for each sample
//!           │ while one of the groups is      │ give it a call chain      │ kernel's format│
//! ```

use traceweir_format::wire::{u8_at, u16_at, u32_at, u64_at};

use crate::groups::{Group, Groups};
use crate::out::{Hooks, Out};
use crate::record::{self, Parts, Sample};
use crate::state::State;
use crate::tracefs::Field;

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A tracepoint: its system and name.
    Tracepoint(&'static str, &'static str),
    /// One of the kernel's own counters, by its number in `PERF_COUNT_SW_…`, each time it has counted `period`.
    Software { counter: u64, period: u64 },
    /// A processor's clock, at the interval that is set for the profile source (0: the timer).
    Profile,
    /// The profile source at this place of those that are wanted, at its interval.
    Counter(usize),
}

/// Called for each sample.
pub(crate) type Handler = fn(&mut State, &Event<'_>, &mut Out<'_>);

/// One perf event and what is made of it.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) source: Source,
    /// It is open while one of these is wanted; a row without groups while the stack of one of its hooks is.
    pub(crate) groups: &'static [Group],
    /// Kernel events that are made of it: where the stack of one is wanted, it is opened with call chains.
    pub(crate) hooks: &'static [u16],
    /// Fields of the tracepoint, asked for by their place here. One that begins with `?` may be missing.
    pub(crate) fields: &'static [&'static str],
    /// What its samples have beside the usual; tracepoints have their raw data always.
    pub(crate) parts: Parts,
    /// Whether each of its records wakes the session at once: something must be looked at while it is there.
    pub(crate) wakes: bool,
    /// Whether it is for captures of a user's own threads alone, where others have a tracepoint for it.
    pub(crate) is_for_own: bool,
    /// The kernel's filter language, where not all of its events matter.
    pub(crate) filter: Option<&'static str>,
    pub(crate) on: Handler,
}

impl Spec {
    /// A tracepoint with no more than its data.
    pub(crate) const fn tracepoint(
        (system, name): (&'static str, &'static str),
        groups: &'static [Group],
        hooks: &'static [u16],
        fields: &'static [&'static str],
        on: Handler,
    ) -> Self {
        let source = Source::Tracepoint(system, name);
        Self {
            source,
            groups,
            hooks,
            fields,
            parts: Parts(0),
            wakes: false,
            is_for_own: false,
            filter: None,
            on,
        }
    }

    /// Whether it has to be open.
    pub(crate) fn is_wanted(&self, groups: &Groups, stacks: &Hooks) -> bool {
        if self.groups.is_empty() { stacks.has_any(self.hooks) } else { groups.has_any(self.groups) }
    }
}

/// A sample, with the fields that its row names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    pub(crate) sample: Sample<'a>,
    pub(crate) fields: &'a [Option<Field>],
    /// The id of the profile source that the event was opened for.
    pub(crate) tag: u32,
}

impl<'a> Event<'a> {
    fn field(&self, index: usize) -> Option<Field> {
        self.fields.get(index).copied().flatten()
    }

    /// Whether the kernel has an optional field.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.field(index).is_some()
    }

    /// A number, widened by its sign; 0 where the field is missing.
    #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)] // That is the purpose.
    pub(crate) fn number(&self, index: usize) -> i64 {
        let Some(Field { offset, size, is_signed, .. }) = self.field(index) else { return 0 };
        let (at, raw) = (usize::from(offset), self.sample.raw);
        match (size, is_signed) {
            (1, false) => i64::from(u8_at(raw, at)),
            (1, true) => i64::from(u8_at(raw, at) as i8),
            (2, false) => i64::from(u16_at(raw, at)),
            (2, true) => i64::from(u16_at(raw, at) as i16),
            (4, false) => i64::from(u32_at(raw, at)),
            (4, true) => i64::from(u32_at(raw, at) as i32),
            (8, _) => u64_at(raw, at) as i64,
            _ => 0,
        }
    }

    /// The same as 64 bits without a sign.
    #[allow(clippy::cast_sign_loss)]
    pub(crate) fn u64(&self, index: usize) -> u64 {
        self.number(index) as u64
    }

    /// Its low 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn u32(&self, index: usize) -> u32 {
        self.number(index) as u32
    }

    /// The bytes of an array, or of what the field tells the place of.
    pub(crate) fn bytes(&self, index: usize) -> &'a [u8] {
        let Some(field) = self.field(index) else { return &[] };
        let (at, size) = if field.is_data_loc {
            let place = u32_at(self.sample.raw, usize::from(field.offset));
            ((place & 0xFFFF) as usize, (place >> 16) as usize)
        } else {
            (usize::from(field.offset), usize::from(field.size))
        };
        self.sample.raw.get(at..).map_or(&[], |rest| rest.get(..size).unwrap_or(rest))
    }

    /// A text without its terminator.
    pub(crate) fn text(&self, index: usize) -> &'a [u8] {
        record::text(self.bytes(index))
    }
}
