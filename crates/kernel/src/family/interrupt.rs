//! Interrupts and deferred calls.
//!
//! ```text
//!   irq:irq_handler_entry … exit            irq, what it returned        ──▶  0x0F43 interrupt, of a device
//!   irq_vectors:local_timer_entry … exit    vector                       ──▶  0x0F43 interrupt, of the clock (group CLOCK_INTERRUPT)
//!   irq_vectors:reschedule_… and the like   vector                       ──▶  0x0F43 interrupt, of another processor (group IPI)
//!   irq:softirq_entry … exit                vec                          ──▶  0x0F45 timer DPC for TIMER and HRTIMER, else 0x0F44 DPC
//! ```
//!
//! 1. An event is written at the end, with the time of the beginning in it; one whose beginning was not seen is not written.
//! 2. A processor handles at most one interrupt at a time, and one deferred call, which an interrupt may interrupt: two places a processor are all that is remembered.
//! 3. The routine is the kernel's own function where its table says which it is: that of each soft interrupt, and of each vector. The handler of a device is not told: 0.

use traceweir_format::wire::Put;

use crate::groups::Group;
use crate::kallsyms;
use crate::out::Out;
use crate::spec::{Event, Spec};
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// By processor.
    cpus: Vec<Cpu>,
    routines: Option<Routines>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    interrupt: Option<Begun>,
    deferred: Option<Begun>,
}

/// What a processor is in, and since when.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// Which interrupt of its kind it is.
    what: (Kind, u32),
    time: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Vector(usize),
    Deferred,
}

const INTERRUPT: u16 = 0x0F43;
const DPC: u16 = 0x0F44;
const TIMER_DPC: u16 = 0x0F45;
/// Soft interrupts that run timers.
const TIMERS: [u32; 2] = [1, 8];

/// Functions of soft interrupts, by number; two names are one function in older kernels and newer.
const DEFERRED: [&[&str]; 10] = [
    &["tasklet_hi_action"],
    &["run_timer_softirq"],
    &["net_tx_action"],
    &["net_rx_action"],
    &["blk_done_softirq"],
    &["irq_poll_softirq"],
    &["tasklet_action"],
    &["sched_balance_softirq", "run_rebalance_domains"],
    &["hrtimer_run_softirq"],
    &["rcu_core_si"],
];

/// Functions of vectors, by their place in [`SPECS`].
const VECTORS: [&str; 5] = [
    "sysvec_apic_timer_interrupt",
    "sysvec_reschedule_ipi",
    "sysvec_call_function",
    "sysvec_call_function_single",
    "sysvec_irq_work",
];

/// Whether it is one of the functions here, whose address is wanted.
pub(crate) fn is_routine(name: &str) -> bool {
    DEFERRED.iter().flat_map(|names| names.iter()).chain(&VECTORS).any(|it| *it == name)
}

/// Addresses of [`DEFERRED`] and [`VECTORS`].
#[derive(Debug, Default)]
struct Routines {
    deferred: [u64; DEFERRED.len()],
    vectors: [u64; VECTORS.len()],
}

/// Entry and exit of a vector, which belong to the same place of [`VECTORS`].
macro_rules! vector {
    ($place:literal, $group:ident, $entry:literal, $exit:literal) => {{
        const ENTRY: Spec = Spec::tracepoint(
            ("irq_vectors", $entry),
            &[Group::$group],
            &[],
            &["vector"],
            |state, event, _| {
                begin(state, event, Kind::Vector($place));
            },
        );
        const EXIT: Spec = Spec::tracepoint(
            ("irq_vectors", $exit),
            &[Group::$group],
            &[INTERRUPT],
            &["vector"],
            |state, event, out| end_interrupt(state, event, Kind::Vector($place), out),
        );
        (ENTRY, EXIT)
    }};
}

const CLOCK: (Spec, Spec) = vector!(0, CLOCK_INTERRUPT, "local_timer_entry", "local_timer_exit");
const RESCHEDULE: (Spec, Spec) = vector!(1, IPI, "reschedule_entry", "reschedule_exit");
const CALL: (Spec, Spec) = vector!(2, IPI, "call_function_entry", "call_function_exit");
const CALL_ONE: (Spec, Spec) = vector!(3, IPI, "call_function_single_entry", "call_function_single_exit");
const WORK: (Spec, Spec) = vector!(4, IPI, "irq_work_entry", "irq_work_exit");

/// Groups whose events name routines of the kernel.
pub(super) const ROUTINES: &[Group] = &[Group::DPC, Group::CLOCK_INTERRUPT, Group::IPI];

pub(crate) static SPECS: &[Spec] = &[
    Spec::tracepoint(("irq", "irq_handler_entry"), &[Group::INTERRUPT], &[], &["irq"], |state, event, _| {
        begin(state, event, Kind::Device);
    }),
    Spec::tracepoint(
        ("irq", "irq_handler_exit"),
        &[Group::INTERRUPT],
        &[INTERRUPT],
        &["irq", "ret"],
        |state, event, out| end_interrupt(state, event, Kind::Device, out),
    ),
    Spec::tracepoint(("irq", "softirq_entry"), &[Group::DPC], &[], &["vec"], |state, event, _| {
        begin(state, event, Kind::Deferred);
    }),
    Spec::tracepoint(("irq", "softirq_exit"), &[Group::DPC], &[DPC, TIMER_DPC], &["vec"], end_deferred),
    CLOCK.0,
    CLOCK.1,
    RESCHEDULE.0,
    RESCHEDULE.1,
    CALL.0,
    CALL.1,
    CALL_ONE.0,
    CALL_ONE.1,
    WORK.0,
    WORK.1,
];

/// Which interrupt: the number is the first field of all of them.
const NUMBER: usize = 0;
const RETURNED: usize = 1;

fn begin(state: &mut All, event: &Event<'_>, kind: Kind) {
    let begun = Begun { what: (kind, event.u32(NUMBER)), time: event.sample.time };
    let Some(cpu) = state.interrupts.cpu(event.sample.cpu) else { return };
    match kind {
        // Nothing is deferred out of the middle of an interrupt: what was open had its end lost.
        Kind::Deferred => *cpu = Cpu { interrupt: None, deferred: Some(begun) },
        _ => cpu.interrupt = Some(begun),
    }
}

/// When what ends now began, if that was seen.
fn ended(state: &mut All, event: &Event<'_>, kind: Kind) -> Option<u64> {
    let cpu = state.interrupts.cpu(event.sample.cpu)?;
    let slot = if kind == Kind::Deferred { &mut cpu.deferred } else { &mut cpu.interrupt };
    let begun = slot.take()?;
    (begun.what == (kind, event.u32(NUMBER))).then_some(begun.time)
}

fn end_interrupt(state: &mut All, event: &Event<'_>, kind: Kind, out: &mut Out<'_>) {
    let Some(time) = ended(state, event, kind) else { return };
    let (routine, returned) = match kind {
        Kind::Vector(place) => {
            (state.interrupts.routines.as_ref().and_then(|it| it.vectors.get(place).copied()), 1)
        }
        _ => (None, event.u32(RETURNED)),
    };
    let mut payload = out.payload();
    payload.put_i64(out.stamp(time)).put_u64(routine.unwrap_or(0));
    payload.put_u8(u8::try_from(returned).unwrap_or(u8::MAX));
    payload.put_u16(u16::try_from(event.u32(NUMBER)).unwrap_or(u16::MAX)).put_u8(0);
    out.perfinfo(INTERRUPT, 2, payload);
}

fn end_deferred(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let Some(time) = ended(state, event, Kind::Deferred) else { return };
    let number = event.u32(NUMBER);
    let routine = state.interrupts.routines.as_ref().and_then(|it| it.deferred.get(number as usize).copied());
    let mut payload = out.payload();
    payload.put_i64(out.stamp(time)).put_u64(routine.unwrap_or(0));
    out.perfinfo(if TIMERS.contains(&number) { TIMER_DPC } else { DPC }, 2, payload);
}

impl State {
    fn cpu(&mut self, cpu: u16) -> Option<&mut Cpu> {
        let index = usize::from(cpu);
        if self.cpus.len() <= index {
            self.cpus.resize(index.saturating_add(1), Cpu::default());
        }
        self.cpus.get_mut(index)
    }

    /// Whether a processor is in the interrupt of a device, and in a deferred call, as far as that was seen.
    pub(crate) fn within(&self, cpu: u16) -> (bool, bool) {
        let Some(cpu) = self.cpus.get(usize::from(cpu)) else { return (false, false) };
        let is_device = |it: &Begun| it.what.0 == Kind::Device;
        (cpu.interrupt.as_ref().is_some_and(is_device), cpu.deferred.is_some())
    }
}

/// Records were lost, ends among them perhaps: an end that comes is not that of the beginning that was seen.
pub(crate) fn forget(state: &mut All) {
    state.interrupts.cpus.clear();
}

/// Forgets what is open, whose end may never be seen, and learns where the routines are.
pub(crate) fn on_change(state: &mut All) {
    forget(state);
    if state.interrupts.routines.is_none() && state.groups.has_any(ROUTINES) {
        let mut routines = Routines::default();
        for (address, names) in routines.deferred.iter_mut().zip(DEFERRED) {
            *address = names.iter().map(|name| kallsyms::address(name)).find(|it| *it != 0).unwrap_or(0);
        }
        for (address, name) in routines.vectors.iter_mut().zip(VECTORS) {
            *address = kallsyms::address(name);
        }
        state.interrupts.routines = Some(routines);
    }
}

#[cfg(test)]
mod tests {
    use traceweir_format::header::Record;
    use traceweir_format::wire::{u16_at, u64_at};

    use super::*;
    use crate::Plain;
    use crate::out::{Beside, Queue};
    use crate::record::Sample;
    use crate::spec::Source;
    use crate::tracefs::Field;

    /// Hands what rows make of their tracepoints, at times 1, 2 …, to [`Record`]s: hook, beginning, vector.
    fn told(steps: &[(&str, u16, u32)]) -> Vec<(u16, u64, u16)> {
        let (mut state, mut queues) = (All::default(), vec![Queue::default()]);
        let field = |offset| Some(Field { offset, size: 4, is_signed: false, is_data_loc: false });
        let (nothing, mut too_large) = (Beside::default(), 0);
        for (time, (name, cpu, number)) in (1..).zip(steps) {
            let spec = SPECS.iter().find(|it| matches!(it.source, Source::Tracepoint(_, it) if it == *name));
            let raw = [number.to_le_bytes(), 1_u32.to_le_bytes()].concat();
            let sample = Sample { time, cpu: *cpu, raw: &raw, ..Sample::default() };
            let event = Event { sample, fields: &[field(0), field(4)], tag: 0 };
            let out = Out::new(&mut queues, &Plain, &nothing, &mut too_large);
            let mut out = Out { cpu: *cpu, time, ..out };
            (spec.expect("a row").on)(&mut state, &event, &mut out);
        }
        let mut all = Vec::new();
        while let Some(next) = queues[0].peek() {
            let mut bytes = vec![0; next.length];
            queues[0].take(&mut bytes);
            let record = Record::parse(&bytes, 0).expect("a record");
            let (hook, payload) = (record.hook().expect("a hook"), record.payload());
            let vector = if hook == INTERRUPT { u16_at(payload, 17) } else { 0 };
            all.push((hook, u64_at(payload, 0), vector));
        }
        all
    }

    #[test]
    fn an_interrupt_within_a_deferred_call_leaves_it_open() {
        let steps = [
            ("softirq_entry", 0, 3),
            ("irq_handler_entry", 0, 36),
            ("softirq_entry", 1, 1),
            ("irq_handler_exit", 0, 36),
            ("softirq_exit", 0, 3),
            ("softirq_exit", 1, 1),
        ];
        assert_eq!(told(&steps), [(INTERRUPT, 2, 36), (DPC, 1, 0), (TIMER_DPC, 3, 0)]);
    }

    #[test]
    fn a_loss_ends_what_is_under_way() {
        let mut state = All::default();
        let begun = Some(Begun { what: (Kind::Device, 36), time: 1 });
        *state.interrupts.cpu(1).expect("a processor") = Cpu { interrupt: begun, deferred: begun };
        assert_eq!(state.interrupts.within(1), (true, true));
        crate::family::forget(&mut state);
        assert_eq!(state.interrupts.within(1), (false, false));
    }

    #[test]
    fn an_end_without_its_beginning_is_not_told() {
        assert_eq!(told(&[("irq_handler_exit", 0, 36), ("softirq_exit", 0, 1)]), []);
        let lost = [("irq_handler_entry", 0, 36), ("irq_handler_exit", 0, 37), ("irq_handler_exit", 0, 36)];
        assert_eq!(told(&lost), []);
        let kinds = [("local_timer_entry", 0, 236), ("reschedule_exit", 0, 236)];
        assert_eq!(told(&kinds), []);
        let again = [("softirq_entry", 0, 1), ("softirq_entry", 0, 3), ("softirq_exit", 0, 3)];
        assert_eq!(told(&again), [(DPC, 2, 0)], "the first lost its end");
    }
}
