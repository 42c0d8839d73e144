//! Samples of what runs, and the intervals they are taken at.
//!
//! ```text
//!   cpu-clock every `interval`  ──▶  0x0F2E sample: instruction pointer, thread, count, flags (priority, in a DPC, in an ISR)
//!   a counter every n counts    ──▶  0x0F2F sample of that source
//!   start, change, end          ──▶  0x0F49, 0x0F48, 0x0F4A: source, new interval, old interval, name
//!   counters read with events   ──▶  0x0F30: their names
//! ```
//!
//! 1. Idle time is sampled as everything is, as thread 0: shares of a processor's time add up to one.
//! 2. Priority and DPC are what other families saw last on the processor: without context switches the priority is 0, without interrupts the bits are.
//! 3. A source is told when it begins to sample, whenever its interval changes, and when it ends; what was told is remembered until then.

use traceweir_format::wire::Put;

use super::Rundown;
use crate::counter::Counter;
use crate::groups::Group;
use crate::out::Out;
use crate::record::Parts;
use crate::spec::{Event, Source, Spec};
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Sources that sample, as they were told.
    told: Vec<Counter>,
    /// Names of the counters that are read with events, as they were told.
    counters: Vec<Counter>,
}

const SAMPLE: u16 = 0x0F2E;
const COUNTER_SAMPLE: u16 = 0x0F2F;
const COUNTERS: u16 = 0x0F30;
const INTERVAL_SET: u16 = 0x0F48;
const COLLECTION_START: u16 = 0x0F49;
const COLLECTION_END: u16 = 0x0F4A;

/// Bits of a sample's flags.
const IN_DPC: u8 = 1;
const IN_ISR: u8 = 2;
const PRIORITY_SHIFT: u32 = 3;

/// The timer as a source.
const TIMER: (u32, &str) = (0, "Timer");

const fn counter(place: usize) -> Spec {
    Spec {
        source: Source::Counter(place),
        groups: &[Group::PMC_PROFILE],
        hooks: &[COUNTER_SAMPLE],
        fields: &[],
        parts: Parts::IP,
        wakes: false,
        is_for_own: false,
        filter: None,
        on: counted,
    }
}

pub(crate) static SPECS: &[Spec] = &[
    Spec {
        source: Source::Profile,
        groups: &[Group::PROFILE],
        hooks: &[SAMPLE],
        fields: &[],
        parts: Parts::IP,
        wakes: false,
        is_for_own: false,
        filter: None,
        on: sampled,
    },
    counter(0),
    counter(1),
    counter(2),
    counter(3),
    counter(4),
    counter(5),
    counter(6),
];

fn sampled(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let sample = event.sample;
    let mut flags = state.schedule.priority_on(sample.cpu, sample.tid) << PRIORITY_SHIFT;
    let (is_in_interrupt, is_in_deferred) = state.interrupts.within(sample.cpu);
    flags |= if is_in_deferred { IN_DPC } else { 0 };
    flags |= if is_in_interrupt { IN_ISR } else { 0 };
    let mut payload = out.payload();
    payload.put_u64(sample.ip).put_u32(sample.tid).put_u16(1).put_u8(flags).put_u8(0);
    out.perfinfo(SAMPLE, 2, payload);
}

fn counted(_: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let sample = event.sample;
    let mut payload = out.payload();
    payload.put_u64(sample.ip).put_u32(sample.tid);
    payload.put_u16(u16::try_from(event.tag).unwrap_or(u16::MAX)).put_u16(0);
    out.perfinfo(COUNTER_SAMPLE, 2, payload);
}

/// Sources that are to sample now.
fn sources(state: &All) -> Vec<Counter> {
    let (id, name) = TIMER;
    let timer = state.groups.has(Group::PROFILE).then(|| Counter {
        id,
        name: name.to_owned(),
        interval: state.interval,
    });
    let others = state.groups.has(Group::PMC_PROFILE).then(|| state.profile_sources.iter().cloned());
    timer.into_iter().chain(others.into_iter().flatten()).collect()
}

/// Tells of an interval. With a name in the versions that have one.
fn interval(hook: u16, source: &Counter, old: u32, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u32(source.id).put_u32(source.interval).put_u32(old);
    let version = if hook == INTERVAL_SET { 2 } else { 3 };
    if version == 3 {
        put_name(&mut payload, &source.name);
    }
    out.system(hook, version, (0, 0), payload);
}

fn put_name(payload: &mut Vec<u8>, name: &str) {
    for unit in name.encode_utf16().chain([0]) {
        payload.put_u16(unit);
    }
}

/// Tells which counters are read with events, where there are any.
fn names(counters: &[Counter], out: &mut Out<'_>) {
    let Ok(count @ 1..) = u32::try_from(counters.len()) else { return };
    let mut payload = out.payload();
    payload.put_u32(count);
    counters.iter().for_each(|it| put_name(&mut payload, &it.name));
    out.system(COUNTERS, 2, (0, 0), payload);
}

pub(crate) fn run_down(state: &mut All, when: Rundown, out: &mut Out<'_>) {
    let hook = match when {
        Rundown::Start => {
            state.profile = State { told: sources(state), counters: state.counters.clone() };
            names(&state.profile.counters, out);
            COLLECTION_START
        }
        Rundown::End => COLLECTION_END,
    };
    state.profile.told.iter().for_each(|it| interval(hook, it, it.interval, out));
}

/// Tells of sources that begin, end or sample at other intervals than they did.
pub(crate) fn on_change(state: &mut All, out: &mut Out<'_>) {
    let now = sources(state);
    for before in &state.profile.told {
        match now.iter().find(|it| it.id == before.id) {
            Some(it) if it.interval != before.interval => interval(INTERVAL_SET, it, before.interval, out),
            Some(_) => {}
            None => interval(COLLECTION_END, before, before.interval, out),
        }
    }
    for it in &now {
        if !state.profile.told.iter().any(|before| before.id == it.id) {
            interval(COLLECTION_START, it, it.interval, out);
        }
    }
    if state.profile.counters != state.counters {
        names(&state.counters, out);
    }
    state.profile = State { told: now, counters: state.counters.clone() };
}
