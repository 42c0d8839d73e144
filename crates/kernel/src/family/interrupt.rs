//! Interrupts and deferred procedure calls (DPCs).
//!
//! ```text
//!   irq:irq_handler_entry … exit           irq, return value  ──▶  0x0F43 interrupt of a device
//!   irq_vectors:local_timer_entry … exit   vector             ──▶  0x0F43 interrupt of the clock
//!                                                                  (group CLOCK_INTERRUPT)
//!   irq_vectors:reschedule_… and others    vector             ──▶  0x0F43 interrupt of another
//!                                                                  processor (group IPI)
//!   irq:softirq_entry … exit               vec                ──▶  0x0F45 timer DPC for TIMER and
//!                                                                  HRTIMER, else 0x0F44 DPC
//! ```
//!
//! 1. An event is written at the exit and contains the time of the entry. Without a captured entry
//!    no event is written.
//! 2. A processor handles at most one interrupt and one softirq at a time, and an interrupt may
//!    interrupt a softirq: two slots for each processor are enough.
//! 3. The routine is the kernel's function for the softirq or vector, if the symbol table has it.
//!    The kernel does not report the handler of a device: 0.

use traceweir_format::kernel::hook;
use traceweir_format::wire::Put;

use crate::groups::Group;
use crate::kallsyms;
use crate::out::Out;
use crate::spec::{Event, Spec};
use crate::state::State as All;

/// Interrupts and softirqs in progress, and the addresses of their routines.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Entries in progress, by processor number.
    cpus: Vec<Cpu>,
    routines: Option<Routines>,
}

/// The interrupt and the softirq that a processor is in.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    interrupt: Option<Entry>,
    softirq: Option<Entry>,
}

/// An entry whose exit has not been seen.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The kind, and the number of the interrupt within it.
    source: (Kind, u32),
    time: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Vector(usize),
    Softirq,
}

const INTERRUPT: u16 = hook::ISR;
const DPC: u16 = hook::DPC;
const TIMER_DPC: u16 = hook::TIMER_DPC;
/// The softirqs that run timers.
const TIMERS: [u32; 2] = [1, 8];

/// Functions of softirqs, by number. An entry with two names lists those of newer and older
/// kernels.
const SOFTIRQS: [&[&str]; 10] = [
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

/// Functions of vectors, by the index that `vector!` uses.
const VECTORS: [&str; 5] = [
    "sysvec_apic_timer_interrupt",
    "sysvec_reschedule_ipi",
    "sysvec_call_function",
    "sysvec_call_function_single",
    "sysvec_irq_work",
];

/// Whether a symbol is one of the functions listed here.
pub(crate) fn is_routine(name: &str) -> bool {
    SOFTIRQS.iter().flat_map(|names| names.iter()).chain(&VECTORS).any(|routine| *routine == name)
}

/// Addresses of [`SOFTIRQS`] and [`VECTORS`].
#[derive(Debug, Default)]
struct Routines {
    softirqs: [u64; SOFTIRQS.len()],
    vectors: [u64; VECTORS.len()],
}

/// Builds the rows for entry and exit of a vector with this index in [`VECTORS`].
macro_rules! vector {
    ($index:literal, $group:ident, $entry:literal, $exit:literal) => {{
        const ENTRY: Spec = Spec::tracepoint(
            ("irq_vectors", $entry),
            &[Group::$group],
            &[],
            &["vector"],
            |state, event, _| {
                on_entry(state, event, Kind::Vector($index));
            },
        );
        const EXIT: Spec = Spec::tracepoint(
            ("irq_vectors", $exit),
            &[Group::$group],
            &[INTERRUPT],
            &["vector"],
            |state, event, out| on_interrupt_exit(state, event, Kind::Vector($index), out),
        );
        (ENTRY, EXIT)
    }};
}

const CLOCK: (Spec, Spec) = vector!(0, CLOCK_INTERRUPT, "local_timer_entry", "local_timer_exit");
const RESCHEDULE: (Spec, Spec) = vector!(1, IPI, "reschedule_entry", "reschedule_exit");
const CALL: (Spec, Spec) = vector!(2, IPI, "call_function_entry", "call_function_exit");
const CALL_ONE: (Spec, Spec) = vector!(3, IPI, "call_function_single_entry", "call_function_single_exit");
const WORK: (Spec, Spec) = vector!(4, IPI, "irq_work_entry", "irq_work_exit");

/// Groups whose events contain addresses of kernel routines.
pub(super) const ROUTINE_GROUPS: &[Group] = &[Group::DPC, Group::CLOCK_INTERRUPT, Group::IPI];

pub(crate) static SPECS: &[Spec] = &[
    Spec::tracepoint(("irq", "irq_handler_entry"), &[Group::INTERRUPT], &[], &["irq"], |state, event, _| {
        on_entry(state, event, Kind::Device);
    }),
    Spec::tracepoint(
        ("irq", "irq_handler_exit"),
        &[Group::INTERRUPT],
        &[INTERRUPT],
        &["irq", "ret"],
        |state, event, out| on_interrupt_exit(state, event, Kind::Device, out),
    ),
    Spec::tracepoint(("irq", "softirq_entry"), &[Group::DPC], &[], &["vec"], |state, event, _| {
        on_entry(state, event, Kind::Softirq);
    }),
    Spec::tracepoint(("irq", "softirq_exit"), &[Group::DPC], &[DPC, TIMER_DPC], &["vec"], on_softirq_exit),
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

/// Index of the interrupt number, the first field of all rows.
const NUMBER: usize = 0;
const RETURNED: usize = 1;

fn on_entry(state: &mut All, event: &Event<'_>, kind: Kind) {
    let entry = Entry { source: (kind, event.u32(NUMBER)), time: event.sample.time };
    let Some(cpu) = state.interrupts.cpu(event.sample.cpu) else { return };
    match kind {
        // No softirq runs inside an interrupt: the exit of an interrupt in progress was lost.
        Kind::Softirq => *cpu = Cpu { interrupt: None, softirq: Some(entry) },
        _ => cpu.interrupt = Some(entry),
    }
}

/// Removes the entry that belongs to an exit. Returns its time, if the entry was captured.
fn take_entry_time(state: &mut All, event: &Event<'_>, kind: Kind) -> Option<u64> {
    let cpu = state.interrupts.cpu(event.sample.cpu)?;
    let slot = if kind == Kind::Softirq { &mut cpu.softirq } else { &mut cpu.interrupt };
    let entry = slot.take()?;
    (entry.source == (kind, event.u32(NUMBER))).then_some(entry.time)
}

fn on_interrupt_exit(state: &mut All, event: &Event<'_>, kind: Kind, out: &mut Out<'_>) {
    let Some(time) = take_entry_time(state, event, kind) else { return };
    let routines = state.interrupts.routines.as_ref();
    let (routine, returned) = match kind {
        Kind::Vector(index) => (routines.and_then(|routines| routines.vectors.get(index).copied()), 1),
        _ => (None, event.u32(RETURNED)),
    };
    let mut payload = out.payload();
    payload.put_i64(out.stamp(time)).put_u64(routine.unwrap_or(0));
    payload.put_u8(u8::try_from(returned).unwrap_or(u8::MAX));
    payload.put_u16(u16::try_from(event.u32(NUMBER)).unwrap_or(u16::MAX)).put_u8(0);
    out.perfinfo(INTERRUPT, 2, payload);
}

fn on_softirq_exit(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let Some(time) = take_entry_time(state, event, Kind::Softirq) else { return };
    let number = event.u32(NUMBER);
    let routines = state.interrupts.routines.as_ref();
    let routine = routines.and_then(|routines| routines.softirqs.get(number as usize).copied());
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

    /// Returns whether a processor is in the interrupt of a device, and whether it is in a softirq,
    /// as far as entries were captured.
    pub(crate) fn activity_on(&self, cpu: u16) -> (bool, bool) {
        let Some(cpu) = self.cpus.get(usize::from(cpu)) else { return (false, false) };
        let is_device = |entry: &Entry| entry.source.0 == Kind::Device;
        (cpu.interrupt.as_ref().is_some_and(is_device), cpu.softirq.is_some())
    }
}

/// Drops all entries after lost records: the next exit may belong to another entry.
pub(crate) fn forget(state: &mut All) {
    state.interrupts.cpus.clear();
}

/// Drops all entries, whose exits may no longer be captured, and finds the routines if a group
/// needs them.
pub(crate) fn on_change(state: &mut All) {
    forget(state);
    if state.interrupts.routines.is_none() && state.groups.has_any(ROUTINE_GROUPS) {
        let mut routines = Routines::default();
        for (address, names) in routines.softirqs.iter_mut().zip(SOFTIRQS) {
            let mut addresses = names.iter().map(|name| kallsyms::address(name));
            *address = addresses.find(|address| *address != 0).unwrap_or(0);
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

    /// Passes samples of tracepoints, at times 1, 2 …, to their rows. Returns hook, entry time and
    /// vector of each event written.
    fn run_steps(steps: &[(&str, u16, u32)]) -> Vec<(u16, u64, u16)> {
        let (mut state, mut queues) = (All::default(), vec![Queue::default()]);
        let field = |offset| Some(Field { offset, size: 4, is_signed: false, is_data_loc: false });
        let (nothing, mut too_large) = (Beside::default(), 0);
        for (time, (name, cpu, number)) in (1..).zip(steps) {
            let is_named =
                |spec: &&Spec| matches!(spec.source, Source::Tracepoint(_, point) if point == *name);
            let spec = SPECS.iter().find(is_named);
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
    fn interrupt_inside_a_softirq_leaves_it_in_progress() {
        let steps = [
            ("softirq_entry", 0, 3),
            ("irq_handler_entry", 0, 36),
            ("softirq_entry", 1, 1),
            ("irq_handler_exit", 0, 36),
            ("softirq_exit", 0, 3),
            ("softirq_exit", 1, 1),
        ];
        assert_eq!(run_steps(&steps), [(INTERRUPT, 2, 36), (DPC, 1, 0), (TIMER_DPC, 3, 0)]);
    }

    #[test]
    fn lost_records_drop_entries() {
        let mut state = All::default();
        let entry = Some(Entry { source: (Kind::Device, 36), time: 1 });
        *state.interrupts.cpu(1).expect("a processor") = Cpu { interrupt: entry, softirq: entry };
        assert_eq!(state.interrupts.activity_on(1), (true, true));
        crate::family::forget(&mut state);
        assert_eq!(state.interrupts.activity_on(1), (false, false));
    }

    #[test]
    fn exit_without_its_entry_is_not_written() {
        assert_eq!(run_steps(&[("irq_handler_exit", 0, 36), ("softirq_exit", 0, 1)]), []);
        let lost = [("irq_handler_entry", 0, 36), ("irq_handler_exit", 0, 37), ("irq_handler_exit", 0, 36)];
        assert_eq!(run_steps(&lost), []);
        let kinds = [("local_timer_entry", 0, 236), ("reschedule_exit", 0, 236)];
        assert_eq!(run_steps(&kinds), []);
        let again = [("softirq_entry", 0, 1), ("softirq_entry", 0, 3), ("softirq_exit", 0, 3)];
        assert_eq!(run_steps(&again), [(DPC, 2, 0)], "the first exit was lost");
    }
}
