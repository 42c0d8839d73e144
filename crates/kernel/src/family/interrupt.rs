//! Interrupts and deferred procedure calls (DPCs).
//!
//! ```text
//!   irq:irq_handler_entry … exit           irq, return value  ──▶  0x0F43 interrupt of a device
//!   irq_vectors:local_timer_entry … exit   vector             ──▶  0x0F43 interrupt of the clock
//!                                                                  (group CLOCK_INTERRUPT)
//!   irq_vectors:reschedule_… and others    vector             ──▶  0x0F43 inter-processor
//!                                                                  interrupt (group IPI)
//!   irq:softirq_entry … exit               vec                ──▶  0x0F45 timer DPC for TIMER and
//!                                                                  HRTIMER, else 0x0F44 DPC
//! ```
//!
//! 1. An event is written at the exit and contains the time of the entry. Without a captured entry
//!    no event is written.
//! 2. The routine is the kernel's function for the softirq or vector, if the symbol table has it.
//!    The kernel does not report the handler of a device: the routine of a device interrupt is 0.

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;

use super::{Context, EventFamily, Row};
use crate::activity::{InterruptEntry, InterruptKind};
use crate::groups::Group;
use crate::kallsyms;
use crate::out::Out;
use crate::spec::SampleEvent;

/// The interrupt family. The entries in progress are in the context, because the profile family
/// writes them into the flags of samples.
#[derive(Debug, Default)]
pub(crate) struct InterruptFamily {
    /// Addresses of the routines, once a group has needed them.
    routines: Option<Routines>,
}

const INTERRUPT_LAYOUT: PayloadLayout = PayloadLayout::new(hook::ISR, 2);
const DPC_LAYOUT: PayloadLayout = PayloadLayout::shared(&[hook::DPC, hook::TIMER_DPC], 2);
/// TIMER_SOFTIRQ and HRTIMER_SOFTIRQ.
const TIMER_SOFTIRQS: [u32; 2] = [1, 8];

/// Functions of softirqs, by number. An entry with two names lists those of newer and older
/// kernels.
const SOFTIRQ_FUNCTIONS: [&[&str]; 10] = [
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
const VECTOR_FUNCTIONS: [&str; 5] = [
    "sysvec_apic_timer_interrupt",
    "sysvec_reschedule_ipi",
    "sysvec_call_function",
    "sysvec_call_function_single",
    "sysvec_irq_work",
];

/// Returns whether a symbol is one of the functions listed here.
pub(crate) fn is_routine(name: &str) -> bool {
    SOFTIRQ_FUNCTIONS
        .iter()
        .flat_map(|names| names.iter())
        .chain(&VECTOR_FUNCTIONS)
        .any(|routine| *routine == name)
}

/// Addresses of [`SOFTIRQ_FUNCTIONS`] and [`VECTOR_FUNCTIONS`].
#[derive(Debug, Default)]
struct Routines {
    softirqs: [u64; SOFTIRQ_FUNCTIONS.len()],
    vectors: [u64; VECTOR_FUNCTIONS.len()],
}

/// Builds the rows for entry and exit of a vector with this index in [`VECTOR_FUNCTIONS`].
macro_rules! vector {
    ($index:literal, $group:ident, $entry:literal, $exit:literal) => {{
        const ENTRY: Row<InterruptFamily> = Row::tracepoint(
            ("irq_vectors", $entry),
            &[Group::$group],
            &[],
            &["vector"],
            |_, event, context, _| on_entry(event, InterruptKind::Vector($index), context),
        );
        const EXIT: Row<InterruptFamily> = Row::tracepoint(
            ("irq_vectors", $exit),
            &[Group::$group],
            &[hook::ISR],
            &["vector"],
            |interrupts, event, context, out| {
                interrupts.on_exit(event, InterruptKind::Vector($index), context, out);
            },
        );
        (ENTRY, EXIT)
    }};
}

const LOCAL_TIMER: (Row<InterruptFamily>, Row<InterruptFamily>) =
    vector!(0, CLOCK_INTERRUPT, "local_timer_entry", "local_timer_exit");
const RESCHEDULE: (Row<InterruptFamily>, Row<InterruptFamily>) =
    vector!(1, IPI, "reschedule_entry", "reschedule_exit");
const CALL_FUNCTION: (Row<InterruptFamily>, Row<InterruptFamily>) =
    vector!(2, IPI, "call_function_entry", "call_function_exit");
const CALL_FUNCTION_SINGLE: (Row<InterruptFamily>, Row<InterruptFamily>) =
    vector!(3, IPI, "call_function_single_entry", "call_function_single_exit");
const IRQ_WORK: (Row<InterruptFamily>, Row<InterruptFamily>) =
    vector!(4, IPI, "irq_work_entry", "irq_work_exit");

/// Groups whose events contain addresses of kernel routines.
pub(crate) const ROUTINE_GROUPS: &[Group] = &[Group::DPC, Group::CLOCK_INTERRUPT, Group::IPI];

static ROWS: &[Row<InterruptFamily>] = &[
    Row::tracepoint(
        ("irq", "irq_handler_entry"),
        &[Group::INTERRUPT],
        &[],
        &["irq"],
        |_, event, context, _| on_entry(event, InterruptKind::Device, context),
    ),
    Row::tracepoint(
        ("irq", "irq_handler_exit"),
        &[Group::INTERRUPT],
        &[hook::ISR],
        &["irq", "ret"],
        |interrupts, event, context, out| interrupts.on_exit(event, InterruptKind::Device, context, out),
    ),
    Row::tracepoint(("irq", "softirq_entry"), &[Group::DPC], &[], &["vec"], |_, event, context, _| {
        on_entry(event, InterruptKind::Softirq, context);
    }),
    Row::tracepoint(
        ("irq", "softirq_exit"),
        &[Group::DPC],
        &[hook::DPC, hook::TIMER_DPC],
        &["vec"],
        InterruptFamily::on_softirq_exit,
    ),
    LOCAL_TIMER.0,
    LOCAL_TIMER.1,
    RESCHEDULE.0,
    RESCHEDULE.1,
    CALL_FUNCTION.0,
    CALL_FUNCTION.1,
    CALL_FUNCTION_SINGLE.0,
    CALL_FUNCTION_SINGLE.1,
    IRQ_WORK.0,
    IRQ_WORK.1,
];

/// Index of the interrupt number, the first field of all rows.
const NUMBER_FIELD: usize = 0;
const RETURNED_FIELD: usize = 1;

impl EventFamily for InterruptFamily {
    /// The state of each processor depends on all entries and exits.
    fn handles_all_processes(&self) -> bool {
        true
    }

    fn rows() -> &'static [Row<Self>] {
        ROWS
    }

    /// Drops all entries, whose exits may no longer be captured, and finds the routines if a group
    /// needs them.
    fn on_settings_change(&mut self, context: &mut Context, _: &mut Out<'_>) {
        context.activity.clear_entries();
        if self.routines.is_none() && context.groups.has_any(ROUTINE_GROUPS) {
            self.routines = Some(Routines::find_addresses());
        }
    }
}

impl Routines {
    fn find_addresses() -> Self {
        let mut routines = Self::default();
        for (address, names) in routines.softirqs.iter_mut().zip(SOFTIRQ_FUNCTIONS) {
            let mut addresses = names.iter().map(|name| kallsyms::find_address(name));
            *address = addresses.find(|address| *address != 0).unwrap_or(0);
        }
        for (address, name) in routines.vectors.iter_mut().zip(VECTOR_FUNCTIONS) {
            *address = kallsyms::find_address(name);
        }
        routines
    }
}

fn on_entry(event: &SampleEvent<'_>, kind: InterruptKind, context: &mut Context) {
    let entry = InterruptEntry { kind, number: event.u32(NUMBER_FIELD), time_ns: event.sample.time };
    let Some(cpu) = context.activity.cpu_mut(event.sample.cpu) else { return };
    match kind {
        // No softirq runs inside an interrupt: if an interrupt seems to be in progress, its exit
        // was lost.
        InterruptKind::Softirq => (cpu.interrupt, cpu.softirq) = (None, Some(entry)),
        _ => cpu.interrupt = Some(entry),
    }
}

/// Removes the entry in progress. Returns its time if it belongs to the exit `event`.
fn take_entry_time(event: &SampleEvent<'_>, kind: InterruptKind, context: &mut Context) -> Option<u64> {
    let cpu = context.activity.cpu_mut(event.sample.cpu)?;
    let slot = if kind == InterruptKind::Softirq { &mut cpu.softirq } else { &mut cpu.interrupt };
    let entry = slot.take()?;
    (entry.kind == kind && entry.number == event.u32(NUMBER_FIELD)).then_some(entry.time_ns)
}

impl InterruptFamily {
    fn on_exit(
        &mut self,
        event: &SampleEvent<'_>,
        kind: InterruptKind,
        context: &mut Context,
        out: &mut Out<'_>,
    ) {
        let Some(time) = take_entry_time(event, kind, context) else { return };
        let routines = self.routines.as_ref();
        let (routine, returned) = match kind {
            InterruptKind::Vector(index) => {
                // A vector reports no return value: 1 stands for a handled interrupt.
                (routines.and_then(|routines| routines.vectors.get(index).copied()), 1)
            }
            _ => (None, event.u32(RETURNED_FIELD)),
        };
        let mut payload = out.new_payload();
        put_kernel_event!(&mut payload, INTERRUPT_LAYOUT, {
            InitialTime: out.to_stamp(time),
            Routine: routine.unwrap_or(0),
            ReturnValue: u8::try_from(returned).unwrap_or(u8::MAX),
            Vector: u16::try_from(event.u32(NUMBER_FIELD)).unwrap_or(u16::MAX),
        });
        out.write_perfinfo(hook::ISR, INTERRUPT_LAYOUT.version(), payload);
    }

    fn on_softirq_exit(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let Some(time) = take_entry_time(event, InterruptKind::Softirq, context) else { return };
        let number = event.u32(NUMBER_FIELD);
        let routines = self.routines.as_ref();
        let routine = routines.and_then(|routines| routines.softirqs.get(number as usize).copied());
        let mut payload = out.new_payload();
        put_kernel_event!(&mut payload, DPC_LAYOUT, {
            InitialTime: out.to_stamp(time),
            Routine: routine.unwrap_or(0),
        });
        let hook = if TIMER_SOFTIRQS.contains(&number) { hook::TIMER_DPC } else { hook::DPC };
        out.write_perfinfo(hook, DPC_LAYOUT.version(), payload);
    }
}

#[cfg(test)]
mod tests {
    use traceweir_format::header::Record;
    use traceweir_format::wire::{u16_at, u64_at};

    use super::*;
    use crate::clock::NanosecondClock;
    use crate::family::testing::{assert_written, run_row_with_numbers};
    use crate::out::RecordQueue;
    use crate::record::PerfSample;
    use crate::settings::EventExtras;
    use crate::spec::PerfSource;
    use crate::tracefs::TracepointField;

    /// Passes samples, at times 1, 2 …, to the rows of their tracepoints. A step is a tracepoint, a
    /// processor and an interrupt number. Returns hook, entry time and vector of each event.
    fn write_steps(steps: &[(&str, u16, u32)]) -> Vec<(u16, u64, u16)> {
        let (mut interrupts, mut context) = (InterruptFamily::default(), Context::default());
        let mut queues = vec![RecordQueue::default()];
        let field = |offset| Some(TracepointField { offset, size: 4, is_signed: false, is_data_loc: false });
        let (extras, mut lost_records) = (EventExtras::default(), 0);
        for (time, (name, cpu, number)) in (1..).zip(steps) {
            let is_named =
                |row: &&Row<_>| matches!(row.spec.source, PerfSource::Tracepoint(_, point) if point == *name);
            let row = ROWS.iter().find(is_named);
            let raw = [number.to_le_bytes(), 1_u32.to_le_bytes()].concat();
            let sample = PerfSample { time, cpu: *cpu, raw: &raw, ..PerfSample::default() };
            let event = SampleEvent { sample, fields: &[field(0), field(4)], source_id: 0 };
            let out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
            let mut out = Out { cpu: *cpu, time, ..out };
            (row.expect("no row has this tracepoint").on_sample)(
                &mut interrupts,
                &event,
                &mut context,
                &mut out,
            );
        }
        let mut written = Vec::new();
        while let Some(next) = queues[0].peek() {
            let mut bytes = vec![0; next.length];
            queues[0].pop_into(&mut bytes);
            let record = Record::parse(&bytes, 0).expect("invalid record");
            let (hook, payload) = (record.hook().expect("the record has no hook"), record.payload());
            // The vector follows the entry time, the routine and the return value.
            let vector = if hook == hook::ISR { u16_at(payload, 17) } else { 0 };
            written.push((hook, u64_at(payload, 0), vector));
        }
        written
    }

    #[test]
    fn payloads_have_the_documented_layout() {
        let mut routines = Routines::default();
        (routines.softirqs[3], routines.vectors[0]) = (0xFFFF_8000_0000_1234, 0xFFFF_8000_0000_5678);
        let (mut interrupts, mut context) =
            (InterruptFamily { routines: Some(routines) }, Context::default());
        let write = |out: &mut Out<'_>| {
            let mut run = |name: &str, time, numbers: &[u64]| {
                let sample = PerfSample { time, ..PerfSample::default() };
                run_row_with_numbers(&mut interrupts, &mut context, name, sample, numbers, out);
            };
            run("irq:irq_handler_entry", 0x0111, &[0x0124]);
            run("irq:irq_handler_exit", 0x0222, &[0x0124, 2]);
            run("irq_vectors:local_timer_entry", 0x0333, &[236]);
            run("irq_vectors:local_timer_exit", 0x0444, &[236]);
            run("irq:softirq_entry", 0x0555, &[3]);
            run("irq:softirq_exit", 0x0666, &[3]);
        };
        // Hook id, version; entry time, routine and, for interrupts, return value and vector.
        assert_written(
            write,
            &[
                "0f43 02 1101000000000000 0000000000000000 02 2401 00",
                "0f43 02 3303000000000000 785600000080ffff 01 ec00 00",
                "0f44 02 5505000000000000 341200000080ffff",
            ],
        );
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
        assert_eq!(write_steps(&steps), [(hook::ISR, 2, 36), (hook::DPC, 1, 0), (hook::TIMER_DPC, 3, 0)]);
    }

    #[test]
    fn exit_without_its_entry_is_not_written() {
        assert_eq!(write_steps(&[("irq_handler_exit", 0, 36), ("softirq_exit", 0, 1)]), []);
        let other_number =
            [("irq_handler_entry", 0, 36), ("irq_handler_exit", 0, 37), ("irq_handler_exit", 0, 36)];
        assert_eq!(write_steps(&other_number), []);
        let other_vector = [("local_timer_entry", 0, 236), ("reschedule_exit", 0, 236)];
        assert_eq!(write_steps(&other_vector), []);
        let lost_exit = [("softirq_entry", 0, 1), ("softirq_entry", 0, 3), ("softirq_exit", 0, 3)];
        assert_eq!(write_steps(&lost_exit), [(hook::DPC, 2, 0)], "the first exit was lost");
    }
}
