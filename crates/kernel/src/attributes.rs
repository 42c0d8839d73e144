//! The attributes of a perf event: its type, its sampling period and the parts of each sample.

use perf_event_open_sys::bindings as sys;
use traceweir_format::spec::system::LIMITED_RING_COPIES;

use crate::counter::{Counter, CounterCode, MAX_COUNTERS};
use crate::error::{Error, Result};
use crate::perf_ring::{Attr, can_report_build_ids};
use crate::record::SampleParts;
use crate::settings::{CaptureScope, CaptureSettings, EventExtras, HookSet};
use crate::spec::{PerfEventSpec, PerfSource};
use crate::targets::Targets;
use crate::tracefs::{TracepointField, TracepointFormat};

/// The largest number of frames in a stack, even if the kernel allows more.
const MAX_FRAMES: u16 = 192;
/// The kernel's default for `perf_event_max_stack`.
const DEFAULT_KERNEL_FRAMES: u16 = 127;
/// The largest number of bytes of a user stack that an event can carry.
const MAX_STACK_BYTES: u32 = 0xFFF0;

/// Ring bytes that wake the reader in scope [`CaptureScope::Own`]: four stack copies of 16 KiB.
const OWN_WATERMARK_BYTES: u32 = 64 << 10;

/// Returns the attributes of the event that counts nothing and reports forks, exits, names,
/// mappings and, in scope `Own`, context switches.
///
/// Every event that reports mappings requests build ids, because otherwise the flag that marks a
/// build id in a record is not valid ([`record::parse_sideband`](crate::record::parse_sideband)).
pub(crate) fn task_records_attr(settings: &CaptureSettings) -> Attr {
    let mut attr = Attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: u64::from(sys::PERF_COUNT_SW_DUMMY),
        sample_type: SampleParts::ALWAYS.0,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attr::default()
    };
    Targets::restrict_attr(settings.scope, &mut attr);
    attr.set_disabled(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_build_id(u64::from(can_report_build_ids()));
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr.set_context_switch(u64::from(settings.scope == CaptureScope::Own));
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = watermark_bytes(settings);
    attr
}

/// Returns the number of ring bytes that wakes the reader.
///
/// In scope `Own` the rings are small and the reader has ordinary priority, so it is woken earlier.
pub(crate) fn watermark_bytes(settings: &CaptureSettings) -> u32 {
    let quarter = u32::try_from(settings.ring_bytes / 4).unwrap_or(u32::MAX);
    match settings.scope {
        CaptureScope::Everything => quarter,
        CaptureScope::Own => quarter.min(OWN_WATERMARK_BYTES),
    }
}

/// Returns the largest stack copy per event when the limit on locked memory restricts rings to
/// `limited_ring_bytes`: [`LIMITED_RING_COPIES`] copies fit into a ring.
pub(crate) fn stack_limit_bytes(limited_ring_bytes: usize) -> u32 {
    u32::try_from(limited_ring_bytes).unwrap_or(u32::MAX) / LIMITED_RING_COPIES
}

/// Returns the bytes of user stack in each record: the requested size, bounded by the kernel's
/// limit and by `limit_bytes`, as a multiple of eight. If the whole record would exceed 64 KiB, the
/// kernel copies less.
pub(crate) fn stack_copy_bytes(stack_bytes: u32, limit_bytes: Option<u32>) -> u32 {
    let max_bytes = limit_bytes.unwrap_or(u32::MAX).min(MAX_STACK_BYTES);
    stack_bytes.min(max_bytes).next_multiple_of(8)
}

/// Returns whether an event has to be open for these settings.
pub(crate) fn is_event_needed(spec: &PerfEventSpec, settings: &CaptureSettings, stacks: &HookSet) -> bool {
    let is_available = match spec.source {
        PerfSource::Counter(index) => settings.profile_sources.get(index).is_some(),
        _ => true,
    };
    let is_allowed = match settings.scope {
        CaptureScope::Everything => !spec.is_own_scope_only,
        CaptureScope::Own => !matches!(spec.source, PerfSource::Tracepoint(..)),
    };
    is_available && is_allowed && spec.is_enabled(&settings.groups, stacks)
}

/// Returns the codes of the counters that are read with events.
pub(crate) fn find_counter_codes(settings: &CaptureSettings) -> Result<Vec<CounterCode>> {
    let not_found = |counter: &Counter| Error::NotSupported { what: format!("counter {}", counter.name) };
    let counters = settings.counters.iter().take(MAX_COUNTERS);
    counters.map(|counter| counter.find_code().ok_or_else(|| not_found(counter))).collect()
}

/// Finds the fields of a tracepoint in the kernel's description of its format; `None` for an
/// optional field that is missing.
pub(crate) fn find_fields(
    spec: &PerfEventSpec,
    format: &TracepointFormat,
) -> Result<Vec<Option<TracepointField>>> {
    let find = |name: &&str| match name.strip_prefix('?') {
        Some(optional) => Ok(format.find_field(optional)),
        None => match format.find_field(name) {
            Some(field) => Ok(Some(field)),
            None => Err(Error::Format { name: spec.name(), field: (*name).to_owned() }),
        },
    };
    spec.fields.iter().map(find).collect()
}

/// Returns the largest number of frames in a stack: the kernel's limit or [`MAX_FRAMES`],
/// whichever is smaller.
pub(crate) fn max_frames() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").unwrap_or_default();
    text.trim().parse::<u16>().unwrap_or(DEFAULT_KERNEL_FRAMES).min(MAX_FRAMES)
}

/// The settings with which an event is open. If one of them changes, the event is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventKey {
    pub(crate) parts: SampleParts,
    /// Counts between two samples (nanoseconds for clocks), for events whose period can be set.
    pub(crate) period: u64,
    /// The profile source for which the event is opened.
    pub(crate) source: Option<Counter>,
    /// Counters that are read with the event.
    pub(crate) counters: Vec<CounterCode>,
    pub(crate) stack_bytes: u32,
}

impl EventKey {
    /// Returns the settings with which an event is opened.
    pub(crate) fn new(
        spec: &PerfEventSpec,
        settings: &CaptureSettings,
        extras: &EventExtras,
        counters: &[CounterCode],
    ) -> Self {
        let counters = if extras.counters.has_any(spec.hooks) { counters } else { &[] };
        let mut parts = SampleParts::ALWAYS.with(spec.parts);
        if matches!(spec.source, PerfSource::Tracepoint(..)) {
            parts = parts.with(SampleParts::RAW);
        }
        if extras.stacks.has_any(spec.hooks) {
            parts = parts.with(SampleParts::CALLCHAIN);
        }
        if parts.has(SampleParts::CALLCHAIN) && settings.stack_bytes > 0 {
            parts = parts.with(SampleParts::REGS_USER).with(SampleParts::STACK_USER);
        }
        if extras.registers.has_any(spec.hooks) {
            parts = parts.with(SampleParts::REGS_INTR);
        }
        if !counters.is_empty() {
            parts = parts.with(SampleParts::READ);
        }
        let (source, period) = match spec.source {
            // The interval has units of 100 ns.
            PerfSource::Profile => (None, u64::from(settings.interval.max(1)).saturating_mul(100)),
            PerfSource::Counter(index) => {
                let source = settings.profile_sources.get(index).cloned();
                let period = source.as_ref().map_or(0, Counter::period);
                (source, period)
            }
            _ => (None, 0),
        };
        let stack_bytes = if parts.has(SampleParts::STACK_USER) { settings.stack_bytes } else { 0 };
        Self { parts, period, source, counters: counters.to_vec(), stack_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_scope_wakes_sooner_and_small_rings_limit_stack_copies() {
        let settings =
            |scope, ring_bytes| CaptureSettings { scope, ring_bytes, ..CaptureSettings::default() };
        assert_eq!(watermark_bytes(&settings(CaptureScope::Everything, 16 << 20)), 4 << 20);
        assert_eq!(watermark_bytes(&settings(CaptureScope::Own, 2 << 20)), 64 << 10);
        assert_eq!(watermark_bytes(&settings(CaptureScope::Own, 64 << 10)), 16 << 10);
        let limited_copy_bytes =
            |stack_bytes, ring_bytes| stack_copy_bytes(stack_bytes, Some(stack_limit_bytes(ring_bytes)));
        assert_eq!(limited_copy_bytes(16 << 10, 2 << 20), 16 << 10);
        assert_eq!(limited_copy_bytes(64 << 10, 16 << 20), MAX_STACK_BYTES);
        assert_eq!(limited_copy_bytes(64 << 10, 512 << 10), 16 << 10);
        assert_eq!(limited_copy_bytes(16 << 10, 64 << 10), 2 << 10);
        assert_eq!(limited_copy_bytes(1001, 2 << 20), 1008);
        assert_eq!(stack_copy_bytes(64 << 10, None), MAX_STACK_BYTES, "another limit applies");
    }
}
