//! Reads several traces as one stream of decoded events.
//!
//! ```text
//!   traces ──each in time order──▶ merged by wall time ──▶ schema, attribution ──▶ DescribedEvent
//!                                                     │
//!                 survey: a first pass over all traces for the schemas,
//!                 processes and threads they contain, and the programs they name
//! ```
//!
//! Schemas and rundown events may be at the end of a trace, so a first pass is needed. It precedes
//! the first event if the traces are short or contain kernel events, or if images or symbols are
//! needed. Otherwise it happens at the first event that does not describe itself, so long traces of
//! self-describing events need no survey.

pub mod follow;
pub mod parallel;

use std::cell::RefCell;
use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use traceweir::consumer::TraceFile;
use traceweir_decode::Decoder;
use traceweir_decode::actors::Actors;
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::etl::{BufferThreads, Events, MergedFiles, Trace};
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::{ExtType, class};
use traceweir_format::stack_key::{Definitions, StackKey};
use traceweir_format::time::{Clock, FileTime};

use crate::event::{DescribedEvent, EventContext, ReadFlow, describe_record, describe_repeated};
use crate::images::LoadedImages;
use crate::input::{self, TraceInput};
use crate::observer::{Pass, ReadObserver, ReadPass};
use crate::schema_files::{SchemaFiles, load_schemas, load_traced_programs};
use crate::symbols::{SymbolOptions, TraceSymbols};
use crate::text::{format_count, format_number};

/// Traces of up to this size in total are surveyed before the first event.
pub(crate) const MAX_SHORT_TRACE_BYTES: u64 = 32 << 20;

/// Traces of less than this size in total are read by one thread: starting others takes longer.
const MIN_PARALLEL_BYTES: u64 = 4 << 20;

/// The most threads that decode events. One thread merges the traces, which limits the others.
const MAX_THREADS: usize = 64;

/// The number of decoding threads for each thread that loads buffers.
const DECODING_PER_LOADING_THREAD: usize = 4;

/// Maximum number of defects of a trace to print.
const MAX_SHOWN_DEFECTS: usize = 20;

/// Opened traces, with the schemas, processes and images of their events.
pub struct TraceSet {
    /// The opened traces.
    pub inputs: Vec<TraceInput>,
    /// The decoder with the schemas that are known so far.
    pub decoder: Decoder,
    actors: Vec<Actors>,
    /// The images of each trace; empty unless needed.
    images: Vec<LoadedImages>,
    /// The symbols of each trace; empty unless needed.
    symbols: Vec<RefCell<TraceSymbols>>,
    /// The stack definitions of each trace.
    stacks: Vec<Definitions>,
    is_surveyed: bool,
    /// Whether schemas are read from programs that the traces name.
    reads_programs: bool,
    /// Receives progress and warnings.
    pub observer: Arc<dyn ReadObserver>,
    /// The threads that load buffers, if there are any.
    pub loading: Option<BufferThreads>,
}

/// The result of reading traces.
#[derive(Debug, Default)]
pub struct ReadSummary {
    /// Whether a trace is damaged. The readable part was read. Lost events are no damage.
    pub is_damaged: bool,
    /// Defects, one line each.
    pub warnings: Vec<ReadWarning>,
    /// Losses, one line for each trace that reports any.
    pub losses: Vec<String>,
}

/// A defect of a trace, or a sign that it is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadWarning {
    /// One defect.
    Defect {
        /// Name of the trace.
        input: String,
        /// What is wrong.
        description: String,
    },
    /// Defects without a warning of their own.
    MoreDefects {
        /// Name of the trace.
        input: String,
        /// Number of these defects.
        count: u64,
    },
}

impl fmt::Display for ReadWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defect { input, description } => write!(f, "{input}: {description}"),
            Self::MoreDefects { input, count } => {
                write!(f, "{input}: and {}", format_count(*count, "more defect"))
            }
        }
    }
}

impl TraceSet {
    /// Opens traces and loads schemas. An archive may contain several traces.
    pub fn open(paths: &[PathBuf], schemas: &SchemaFiles, observer: Arc<dyn ReadObserver>) -> Result<Self> {
        let inputs = input::open_paths(paths)?;
        let mut decoder = Decoder::new();
        load_schemas(&mut decoder, schemas, &*observer)?;
        let actors = inputs.iter().map(|_| Actors::default()).collect();
        let definitions = Definitions::default();
        let stacks = inputs.iter().map(|_| definitions.with_shared_limit()).collect();
        let (images, symbols, reads_programs) = (Vec::new(), Vec::new(), !schemas.ignores_programs);
        let is_surveyed = false;
        Ok(Self {
            inputs,
            decoder,
            actors,
            images,
            symbols,
            stacks,
            is_surveyed,
            reads_programs,
            observer,
            loading: None,
        })
    }

    /// Makes the survey also collect loaded images.
    pub fn collect_images(&mut self) {
        self.images.resize_with(self.inputs.len(), LoadedImages::default);
    }

    /// Makes the survey also collect the data that symbols need.
    pub fn collect_symbols(&mut self, options: &SymbolOptions) {
        let observer = &self.observer;
        self.symbols.resize_with(self.inputs.len(), || {
            RefCell::new(TraceSymbols::new(options.clone(), Arc::clone(observer)))
        });
    }

    /// Returns whether symbols are collected and no trace names files of code, so that no address
    /// gets a name.
    pub fn lacks_images(&self) -> bool {
        let has_images = self.symbols.iter().any(|symbols| symbols.borrow().has_images());
        !self.symbols.is_empty() && !has_images
    }

    /// Returns the wall time at which the earliest trace starts.
    pub fn start(&self) -> FileTime {
        self.inputs
            .iter()
            .map(|i| i.trace.clock().file_time(i.trace.clock().anchor))
            .min()
            .unwrap_or_default()
    }

    /// Chooses the number of threads that decode the events, and returns it: the requested number,
    /// or else one for each processor, but one for short traces. With more than one, further
    /// threads load the buffers.
    pub fn choose_threads(&mut self, requested: Option<NonZero<usize>>) -> usize {
        let total: u64 = self.inputs.iter().map(|input| input.trace.file_size()).sum();
        let threads = match requested {
            Some(threads) => threads.get().min(MAX_THREADS),
            None if total < MIN_PARALLEL_BYTES => 1,
            None => std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS),
        };
        let loading_threads = threads.div_ceil(DECODING_PER_LOADING_THREAD);
        self.loading = (threads > 1).then(|| BufferThreads::start(loading_threads));
        threads
    }

    /// Calls `on_event` for every record that `accepts` returns true for, in time order.
    pub fn read(
        &mut self,
        mut accepts: impl FnMut(&Record<'_>, FileTime) -> bool,
        mut on_event: impl FnMut(&DescribedEvent<'_>) -> Result<ReadFlow>,
    ) -> Result<ReadSummary> {
        let start = self.start();
        let Self {
            inputs,
            decoder,
            actors,
            images,
            symbols,
            stacks,
            is_surveyed,
            reads_programs,
            observer,
            loading,
        } = self;
        let observer = &**observer;
        let loading = loading.as_ref();
        let traces: Vec<&Trace<TraceFile>> = inputs.iter().map(|i| &i.trace).collect();
        let total = traces.iter().map(|t| t.file_size()).sum();
        if !*is_surveyed && (should_survey_first(&traces, total) || !images.is_empty() || !symbols.is_empty())
        {
            *is_surveyed = true;
            survey_traces(
                &traces,
                decoder,
                SurveyTargets { actors, images, symbols, stacks },
                loading,
                observer,
            )?;
            if *reads_programs {
                load_traced_programs(decoder, observer);
            }
        }
        read_records(inputs, loading, observer, |file, clock, record| {
            let time = clock.file_time(record.time());
            // Most events repeat the metadata of an earlier one, and need no survey.
            if let Some(schema_match) = decoder.find_repeated(record) {
                let (Some(actors), Some(stacks)) = (actors.get(file), stacks.get(file)) else {
                    return Ok(ReadFlow::Continue);
                };
                if !accepts(record, time) {
                    return Ok(ReadFlow::Continue);
                }
                let (images, symbols) = (images.get(file), symbols.get(file));
                let context = EventContext { file, clock, time, start, images, symbols, stacks };
                return on_event(&describe_repeated(record, context, decoder, actors, schema_match));
            }
            // The survey comes before the filter, so that the output of an event does not depend on
            // the filter.
            if !*is_surveyed && needs_survey(record) {
                *is_surveyed = true;
                survey_traces(
                    &traces,
                    decoder,
                    SurveyTargets { actors, images, symbols, stacks },
                    loading,
                    observer,
                )?;
                if *reads_programs {
                    load_traced_programs(decoder, observer);
                }
            }
            let Some(actors) = actors.get_mut(file) else { return Ok(ReadFlow::Continue) };
            if !accepts(record, time) {
                actors.follow(record);
                return Ok(ReadFlow::Continue);
            }
            let Some(stacks) = stacks.get(file) else { return Ok(ReadFlow::Continue) };
            let (images, symbols) = (images.get(file), symbols.get(file));
            let context = EventContext { file, clock, time, start, images, symbols, stacks };
            on_event(&describe_record(record, context, decoder, actors))
        })
    }
}

/// Calls `on_record` for every record of the traces, in time order, with the index and the clock of
/// its trace. Nothing is decoded.
#[inline]
pub fn read_records(
    inputs: &[TraceInput],
    loading: Option<&BufferThreads>,
    observer: &dyn ReadObserver,
    mut on_record: impl FnMut(usize, &Clock, &Record<'_>) -> Result<ReadFlow>,
) -> Result<ReadSummary> {
    let traces: Vec<&Trace<TraceFile>> = inputs.iter().map(|i| &i.trace).collect();
    let total = traces.iter().map(|t| t.file_size()).sum();
    let mut files = MergedFiles::new(traces.iter().copied());
    if let Some(threads) = loading {
        files.load_with(threads);
    }
    let mut pass = Pass::begin(observer, ReadPass::Events, total);
    while let Some(file) = files.next_file() {
        pass.update(|| files.bytes_read());
        let (Some(record), Some(trace)) = (files.read(file)?, traces.get(file)) else { continue };
        if on_record(file, trace.clock(), &record)? == ReadFlow::Stop {
            break;
        }
    }
    drop(pass);
    Ok(collect_defects(inputs, files.events()))
}

/// Returns whether to survey before the first event. The survey of short traces costs little, and
/// kernel events contain the processes and threads of their trace.
fn should_survey_first(traces: &[&Trace<TraceFile>], total: u64) -> bool {
    total <= MAX_SHORT_TRACE_BYTES || traces.iter().any(|t| t.seems_to_hold_kernel_events())
}

/// Returns whether decoding an event may need other events of the trace, or others may need it.
#[inline]
fn needs_survey(record: &Record<'_>) -> bool {
    match record.family() {
        Family::Event => {
            record.items().data_of(ExtType::EVENT_SCHEMA_TL).is_none()
                || record.descriptor().is_manifest_chunk()
                || StackKey::from_record(record).is_some()
        }
        Family::Message | Family::Other(_) => false,
        // The path of a program matters only to events that do not describe themselves.
        Family::Full | Family::Instance => !BinaryPath::is_in(record),
        Family::System | Family::Compact | Family::PerfInfo => record.provider() != class::EVENT_TRACE,
    }
}

/// The tables that the survey fills, with one entry per trace.
struct SurveyTargets<'l> {
    actors: &'l mut [Actors],
    images: &'l mut [LoadedImages],
    symbols: &'l mut [RefCell<TraceSymbols>],
    stacks: &'l mut [Definitions],
}

fn survey_traces(
    traces: &[&Trace<TraceFile>],
    decoder: &mut Decoder,
    SurveyTargets { actors, images, symbols, stacks }: SurveyTargets<'_>,
    loading: Option<&BufferThreads>,
    observer: &dyn ReadObserver,
) -> Result<()> {
    let total = traces.iter().map(|t| t.file_size()).sum();
    let mut pass = Pass::begin(observer, ReadPass::Survey, total);
    let mut earlier_bytes = 0_u64;
    let (mut all_images, mut all_symbols) = (images.iter_mut(), symbols.iter_mut());
    for ((trace, actors), stacks) in traces.iter().zip(actors).zip(stacks) {
        let mut images = all_images.next();
        let mut symbols = all_symbols.next().map(RefCell::get_mut);
        let mut events = match loading {
            Some(threads) => trace.events_with(threads),
            None => trace.events(),
        };
        loop {
            let bytes_read = events.bytes_read();
            pass.update(|| earlier_bytes.saturating_add(bytes_read));
            let Some(record) = events.next()? else { break };
            let tables = SurveyTables {
                actors,
                images: images.as_deref_mut(),
                symbols: symbols.as_deref_mut(),
                stacks,
            };
            survey_record(&record, trace.clock().file_time(record.time()), decoder, tables);
        }
        earlier_bytes = earlier_bytes.saturating_add(trace.file_size());
    }
    Ok(())
}

/// The tables of one trace that the survey fills.
struct SurveyTables<'l> {
    actors: &'l mut Actors,
    images: Option<&'l mut LoadedImages>,
    symbols: Option<&'l mut TraceSymbols>,
    stacks: &'l mut Definitions,
}

/// Collects from a record what other events need: schemas, processes, images and stacks.
fn survey_record(record: &Record<'_>, time: FileTime, decoder: &mut Decoder, tables: SurveyTables<'_>) {
    let SurveyTables { actors, images, symbols, stacks } = tables;
    if let Some(symbols) = symbols {
        symbols.observe(record);
    }
    actors.read_switch_ahead(record);
    if Actors::is_informative(record) {
        if let Ok(schema_match) = decoder.find(record) {
            actors.observe(record, &schema_match);
        }
        return;
    }
    decoder.observe_at(record, time);
    stacks.observe(record);
    if let Some(images) = images.filter(|_| LoadedImages::is_informative(record))
        && let Ok(schema_match) = decoder.find(record)
    {
        images.observe(record, &schema_match);
    }
}

fn collect_defects<'t>(
    inputs: &'t [TraceInput],
    streams: impl Iterator<Item = &'t Events<'t, TraceFile>>,
) -> ReadSummary {
    let mut reading = ReadSummary::default();
    for (input, stream) in inputs.iter().zip(streams) {
        let trace = &input.trace;
        let damage = stream.damage();
        let defect = |description: String| ReadWarning::Defect { input: input.name.clone(), description };
        if let Some(archive_damage) = &input.damage {
            reading.warnings.push(defect(archive_damage.clone()));
            reading.is_damaged = true;
        }
        let defects = trace.defects().iter().chain(&damage.defects);
        let uncollected = damage.count.saturating_sub(damage.defects.len() as u64);
        for found in defects.take(MAX_SHOWN_DEFECTS) {
            reading.warnings.push(defect(found.to_string()));
        }
        let defect_count = trace.defects().len().saturating_add(damage.defects.len());
        if defect_count > MAX_SHOWN_DEFECTS || uncollected > 0 {
            let count = (defect_count.saturating_sub(MAX_SHOWN_DEFECTS) as u64).saturating_add(uncollected);
            reading.warnings.push(ReadWarning::MoreDefects { input: input.name.clone(), count });
        }
        if defect_count > 0 {
            reading.is_damaged = true;
        }
        if !trace.is_finalised() {
            // This alone is not damage: a log that is still being written looks the same.
            let description = "the session never finalised the file, or it is still being written";
            reading.warnings.push(defect(description.to_owned()));
        }
        if let Some((written, present)) = trace.missing_buffers() {
            let (written, present) = (format_count(written, "buffer"), format_number(present));
            reading.warnings.push(defect(format!("the header counts {written}, the file has {present}")));
            reading.is_damaged = true;
        }
        if let Some(loss) = describe_losses(trace) {
            reading.losses.push(format!("{}: {loss}", input.name));
        }
    }
    reading
}

/// Describes the losses that a trace reports; `None` if it reports none.
pub fn describe_losses(trace: &Trace<TraceFile>) -> Option<String> {
    let (events, buffers) = (trace.header().events_lost, trace.header().buffers_lost);
    if events > 0 || buffers > 0 {
        let (events, buffers) =
            (format_count(events.into(), "event"), format_count(buffers.into(), "buffer"));
        return Some(format!("the session lost {events} and {buffers}"));
    }
    let has_flags = trace.loss_flags() != 0;
    has_flags.then(|| "the session lost events; the file does not contain how many".to_owned())
}
