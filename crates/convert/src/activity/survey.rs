//! The first pass over traces: what later events refer to may be at the end of a trace.

use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::images::LoadedImages;
use traceweir_analysis::pairs::PairTask;
use traceweir_analysis::report::{KernelEvent, read_kernel_event};
use traceweir_analysis::schema_files::load_traced_programs;
use traceweir_analysis::symbols::TraceSymbols;
use traceweir_analysis::traces::{TraceSet, read_records};
use traceweir_decode::Decoder;
use traceweir_decode::actors::Actors;
use traceweir_decode::walk::Walker;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::hook;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::stack_key::Definitions;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::time::{Clock, FileTime};

use super::lives::{Lives, MachineTime};
use super::slices::{SliceSurvey, SliceTasks, slice_event};
use super::stacks::TraceCode;
use super::{ActivityTables, StackResolver, TraceFacts};
use crate::ConvertInput;

/// Boot times of one machine differ this much when its clock is adjusted, in units of 100 ns.
const MAX_BOOT_TIME_DIFFERENCE: u64 = 20_000_000;
/// The most bytes of symbols of all traces.
const MAX_SYMBOL_BYTES: usize = 128 << 20;

/// What the survey found out about a trace.
pub(super) struct TraceContext {
    pub(super) actors: Actors,
    pub(super) stacks: Definitions,
    pub(super) code: TraceCode,
    pub(super) machine: u16,
    /// Nanoseconds from the start of the first trace to the start of this one.
    pub(super) offset_ns: i64,
    /// Frequency of the performance counter, in Hz.
    pub(super) counter_hz: u64,
    /// The first sampling interval, in nanoseconds.
    pub(super) interval_ns: Option<u64>,
    /// Processors with losses, and when their last buffer with a loss begins.
    pub(super) losses: Vec<(u16, i64)>,
}

/// The result of the survey.
pub(super) struct Survey {
    pub(super) contexts: Vec<TraceContext>,
    pub(super) tables: ActivityTables,
    pub(super) tasks: SliceTasks,
    /// Whether the traces contain stacks as events of their own.
    pub(super) has_stack_events: bool,
}

/// Returns nanoseconds from the start of the first trace to a record.
pub(super) fn time_of(record: &Record<'_>, clock: &Clock, offset_ns: i64) -> i64 {
    offset_ns.saturating_add(clock.nanos_since_start(record.time())).max(0)
}

/// Returns nanoseconds from one time to another.
pub(super) const fn ns_between(from: FileTime, to: FileTime) -> i64 {
    to.0.saturating_sub(from.0).saturating_mul(100)
}

/// Reads traces once.
pub(super) fn survey_traces(input: &ConvertInput, traces: &mut TraceSet) -> Result<Survey> {
    let start = traces.start();
    let count = traces.inputs.len();
    let machines = number_machines(traces.inputs.iter().map(|input| input.trace.header()));
    let definitions = Definitions::default();
    let mut contexts = Vec::new();
    for (trace, machine) in traces.inputs.iter().zip(&machines) {
        let (header, clock) = (trace.trace.header(), trace.trace.clock());
        let mut actors = Actors::default();
        actors.share_limits(count);
        let mut symbols = TraceSymbols::new(input.symbols.clone(), Arc::clone(&input.observer));
        symbols.limit_loaded_bytes(MAX_SYMBOL_BYTES.checked_div(count).unwrap_or(MAX_SYMBOL_BYTES));
        symbols.share_limits(count);
        let mut images = LoadedImages::default();
        images.share_limits(count);
        contexts.push(TraceContext {
            actors,
            stacks: definitions.with_shared_limit(),
            code: TraceCode { symbols, images },
            machine: *machine,
            offset_ns: ns_between(start, clock.start),
            counter_hz: u64::try_from(header.perf_freq).unwrap_or(0),
            interval_ns: None,
            losses: trace.trace.last_losses(),
        });
    }
    let mut surveyor = Surveyor {
        lives: Lives::default(),
        slices: SliceSurvey::new(),
        walker: Walker::default(),
        has_stack_events: false,
    };
    let TraceSet { inputs, decoder, loading, observer, .. } = traces;
    read_records(inputs, loading.as_ref(), &**observer, |file, clock, record| {
        if let Some(context) = contexts.get_mut(file) {
            surveyor.observe(context, clock, record, decoder);
        }
        Ok(ReadFlow::Continue)
    })?;
    if !input.schemas.ignores_programs {
        load_traced_programs(decoder, &**observer);
    }
    let facts = inputs.iter().zip(&contexts).map(|(input, context)| TraceFacts {
        name: input.name.as_str().into(),
        machine: context.machine,
        is_linux: context.code.symbols.is_linux(),
        processors: input.trace.header().processors,
    });
    let facts: Vec<TraceFacts> = facts.collect();
    let first_cpus = number_processors(&facts);
    let boot_to_start = inputs.first().and_then(|first| boot_to_start_ns(first.trace.header(), start));
    let tables = ActivityTables {
        lives: surveyor.lives,
        stacks: StackResolver::default(),
        traces: facts,
        start,
        boot_to_start_ns: boot_to_start,
        from_ns: 0,
        first_cpus,
    };
    let has_stack_events = surveyor.has_stack_events;
    Ok(Survey { contexts, tables, tasks: surveyor.slices.finish(), has_stack_events })
}

/// Returns the time from boot to a start, if the header contains a boot time before it.
fn boot_to_start_ns(header: &LogFileHeader, start: FileTime) -> Option<i64> {
    let units = start.0.checked_sub(header.boot_time.0).filter(|units| *units >= 0)?;
    (header.boot_time.0 > 0).then(|| units.saturating_mul(100))
}

/// Returns the number of the first processor of each machine, if the processors of all machines are
/// numbered one after another.
fn number_processors(traces: &[TraceFacts]) -> Vec<u32> {
    let mut counts: Vec<u32> = Vec::new();
    for trace in traces {
        let machine = usize::from(trace.machine);
        counts.resize(counts.len().max(machine.saturating_add(1)), 0);
        if let Some(count) = counts.get_mut(machine) {
            *count = (*count).max(trace.processors.min(u16::MAX.into()));
        }
    }
    let mut next = 0_u32;
    let mut first_cpus = Vec::with_capacity(counts.len());
    for count in counts {
        first_cpus.push(next);
        next = next.saturating_add(count);
    }
    first_cpus
}

/// Numbers the machines that traces come from: a machine has one version and one boot time.
pub(crate) fn number_machines<'h>(headers: impl Iterator<Item = &'h LogFileHeader>) -> Vec<u16> {
    let mut first_headers: Vec<&LogFileHeader> = Vec::new();
    let mut machines = Vec::new();
    for header in headers {
        let is_same = |first: &&LogFileHeader| {
            let version = |header: &LogFileHeader| {
                let [major, minor, ..] = header.versions;
                (major, minor, header.provider_version)
            };
            version(first) == version(header)
                && first.boot_time.0.abs_diff(header.boot_time.0) <= MAX_BOOT_TIME_DIFFERENCE
        };
        let machine = first_headers.iter().position(is_same).unwrap_or_else(|| {
            first_headers.push(header);
            first_headers.len() - 1
        });
        machines.push(u16::try_from(machine).unwrap_or(u16::MAX));
    }
    machines
}

/// Learns from the records of all traces.
struct Surveyor {
    lives: Lives,
    slices: SliceSurvey,
    walker: Walker,
    has_stack_events: bool,
}

impl Surveyor {
    fn observe(
        &mut self,
        context: &mut TraceContext,
        clock: &Clock,
        record: &Record<'_>,
        decoder: &mut Decoder,
    ) {
        context.code.symbols.observe(record);
        context.actors.read_switch_ahead(record);
        decoder.observe_at(record, clock.file_time(record.time()));
        context.stacks.observe(record);
        if StackWalk::is_stack_walk(record) {
            self.has_stack_events = true;
            // A trace may have the stacks of threads that it does not describe.
            if let Some(walk) = StackWalk::parse(record)
                && walk.process_id != NO_ID
            {
                let since_start = clock.nanos_since_start(walk.event_time);
                let time_ns = context.offset_ns.saturating_add(since_start).max(0);
                let at = MachineTime { machine: context.machine, time_ns };
                self.lives.observe_stack(at, walk.thread_id, walk.process_id);
            }
            return;
        }
        if let Some(event) = slice_event(record, context.machine) {
            self.slices.observe(&event);
        }
        if LoadedImages::is_relevant(record)
            && let Ok(schema) = decoder.find(record)
        {
            context.code.images.observe_all(record, &schema);
        }
        let Some(hook) = record.hook() else { return };
        match hook {
            hook::SYSCALL_EXIT => self.slices.add_system_calls(PairTask::of_provider(record.provider())),
            hook::PROFILE_START | hook::PROFILE_SET_INTERVAL | hook::PROFILE_END
                if context.interval_ns.is_none() =>
            {
                let schema = decoder.find(record).ok();
                let event = schema.and_then(|schema| read_kernel_event(&mut self.walker, record, &schema));
                if let Some(KernelEvent::Interval(interval)) = event {
                    context.interval_ns = Some(interval.saturating_mul(100));
                }
            }
            _ => {}
        }
        if (Actors::is_informative(record) || hook == hook::THREAD_SET_NAME)
            && let Ok(schema) = decoder.find(record)
        {
            context.actors.observe(record, &schema);
            let time_ns = time_of(record, clock, context.offset_ns);
            let at = MachineTime { machine: context.machine, time_ns };
            match read_kernel_event(&mut self.walker, record, &schema) {
                Some(KernelEvent::Process(event)) => self.lives.observe_process(at, &event),
                Some(KernelEvent::Thread(event)) => self.lives.observe_thread(at, &event),
                _ => {}
            }
        }
    }
}
