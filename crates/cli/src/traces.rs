//! Reads several traces as one stream of decoded events.
//!
//! ```text
//!   traces ──each in time order──▶ merged by wall time ──▶ schema, attribution ──▶ Event
//!                                                     │
//!                 survey: a first pass over all traces for the schemas,
//!                 processes and threads they contain, and the programs they name
//! ```
//!
//! Schemas and rundown events may be at the end of a trace, so a first pass is needed: at once for
//! short traces and those with kernel events, else at the first event that does not describe
//! itself. A long trace of self-describing events needs none.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use traceweir::consumer::TraceFile;
use traceweir_decode::Decoder;
use traceweir_decode::actors::Actors;
use traceweir_decode::plain;
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::etl::{Events, MergedFiles, Trace};
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::{ExtType, class};
use traceweir_format::stack_key::{Definitions, StackKey};
use traceweir_format::time::{Clock, FileTime};

use crate::cli::SchemaArgs;
use crate::event::{DescribedEvent, EventContext, ReadFlow, describe_record};
use crate::exit::{self, Outcome};
use crate::images::Images;
use crate::input::{self, Input};
use crate::progress::Progress;
use crate::schema_files::{list_files, list_manifest_files, load_traced_programs, read_schema_file};
use crate::symbols::{self, Symbols};
use crate::text::plain_path;

/// Traces up to this size are always surveyed first.
const SHORT: u64 = 32 << 20;

/// Opened traces, with what is known about their events.
pub(crate) struct Traces {
    pub(crate) inputs: Vec<Input>,
    pub(crate) decoder: Decoder,
    actors: Vec<Actors>,
    /// The images of each trace; empty unless needed.
    images: Vec<Images>,
    /// The symbols of each trace; empty unless needed.
    symbols: Vec<RefCell<Symbols>>,
    /// The stack definitions of each trace.
    stacks: Vec<Definitions>,
    surveyed: bool,
    /// Whether schemas are read from programs that the traces name.
    binaries: bool,
    /// Whether data goes to the terminal, where a progress bar would disturb.
    data_on_terminal: bool,
}

/// Result of reading, besides the events.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) outcome: Outcome,
    /// Defects, one line each.
    pub(crate) warnings: Vec<String>,
}

impl Reading {
    /// Prints the defects to standard error.
    pub(crate) fn print_warnings(&self) {
        self.warnings.iter().for_each(|warning| exit::print_warning(warning));
    }
}

impl Traces {
    pub(crate) fn open(paths: &[PathBuf], schemas: &SchemaArgs, data_on_terminal: bool) -> Result<Self> {
        let inputs = input::open_all(paths)?;
        let mut decoder = Decoder::new();
        load_schemas(&mut decoder, schemas)?;
        let actors = inputs.iter().map(|_| Actors::default()).collect();
        let first = Definitions::default();
        let stacks = inputs.iter().map(|_| first.with_shared_limit()).collect();
        let (images, symbols, binaries) = (Vec::new(), Vec::new(), !schemas.no_binaries);
        let surveyed = false;
        Ok(Self { inputs, decoder, actors, images, symbols, stacks, surveyed, binaries, data_on_terminal })
    }

    /// Makes the survey also collect loaded images.
    pub(crate) fn learn_images(&mut self) {
        self.images.resize_with(self.inputs.len(), Images::default);
    }

    /// Makes the survey also collect what symbols need.
    pub(crate) fn learn_symbols(&mut self, options: &symbols::Options) {
        self.symbols.resize_with(self.inputs.len(), || RefCell::new(Symbols::new(options.clone())));
    }

    /// Returns the wall time at which the earliest trace starts.
    pub(crate) fn start(&self) -> FileTime {
        self.inputs
            .iter()
            .map(|i| i.trace.clock().file_time(i.trace.clock().anchor))
            .min()
            .unwrap_or_default()
    }

    /// Calls `each` for every event that passes `wanted`, in time order.
    pub(crate) fn read(
        &mut self,
        mut wanted: impl FnMut(&Record<'_>, FileTime) -> bool,
        mut each: impl FnMut(&DescribedEvent<'_>) -> Result<ReadFlow>,
    ) -> Result<Reading> {
        let start = self.start();
        let Self { inputs, decoder, actors, images, symbols, stacks, surveyed, binaries, data_on_terminal } =
            self;
        let traces: Vec<&Trace<TraceFile>> = inputs.iter().map(|i| &i.trace).collect();
        let total = traces.iter().map(|t| t.file_size()).sum();
        if !*surveyed && (survey_pays(&traces, total) || !images.is_empty() || !symbols.is_empty()) {
            *surveyed = true;
            survey(&traces, decoder, SurveyTargets { actors, images, symbols, stacks }, *data_on_terminal)?;
            if *binaries {
                load_traced_programs(decoder);
            }
        }
        walk(inputs, *data_on_terminal, |file, clock, record| {
            let time = clock.file_time(record.time());
            // How an event is shown must not depend on the filter, so the filter comes second.
            if !*surveyed && needs_survey(record) {
                *surveyed = true;
                survey(
                    &traces,
                    decoder,
                    SurveyTargets { actors, images, symbols, stacks },
                    *data_on_terminal,
                )?;
                if *binaries {
                    load_traced_programs(decoder);
                }
            }
            let Some(actors) = actors.get_mut(file) else { return Ok(ReadFlow::Continue) };
            if !wanted(record, time) {
                actors.follow(record);
                return Ok(ReadFlow::Continue);
            }
            let Some(stacks) = stacks.get(file) else { return Ok(ReadFlow::Continue) };
            let (images, symbols) = (images.get(file), symbols.get(file));
            let context = EventContext { file, clock, time, start, images, symbols, stacks };
            each(&describe_record(record, context, decoder, actors))
        })
    }
}

/// Calls `each` for every record of the traces, in time order, with the index and the clock of its
/// trace. Nothing is decoded.
#[inline]
pub(crate) fn walk(
    inputs: &[Input],
    data_on_terminal: bool,
    mut each: impl FnMut(usize, &Clock, &Record<'_>) -> Result<ReadFlow>,
) -> Result<Reading> {
    let traces: Vec<&Trace<TraceFile>> = inputs.iter().map(|i| &i.trace).collect();
    let total = traces.iter().map(|t| t.file_size()).sum();
    let mut files = MergedFiles::new(traces.iter().copied());
    let mut progress = Progress::new(total, "reading", data_on_terminal);
    while let Some(file) = files.next_file() {
        progress.update(|| files.bytes_read());
        let (Some(record), Some(trace)) = (files.read(file)?, traces.get(file)) else { continue };
        if each(file, trace.clock(), &record)? == ReadFlow::Stop {
            break;
        }
    }
    progress.finish();
    Ok(collect_defects(inputs, files.events()))
}

/// Returns whether to survey before the first event: a short trace costs little, and kernel events
/// name the processes and threads of their trace.
fn survey_pays(traces: &[&Trace<TraceFile>], total: u64) -> bool {
    total <= SHORT || traces.iter().any(|t| t.seems_to_hold_kernel_events())
}

/// Returns whether decoding an event may need something from elsewhere in the trace.
#[inline]
fn needs_survey(record: &Record<'_>) -> bool {
    match record.family() {
        Family::Event => {
            record.items().data_of(ExtType::EVENT_SCHEMA_TL).is_none()
                || StackKey::from_record(record).is_some()
        }
        Family::Message | Family::Other(_) => false,
        // The path of a program matters only to events that do not describe themselves.
        Family::Full | Family::Instance => !BinaryPath::is_in(record),
        Family::System | Family::Compact | Family::PerfInfo => record.provider() != class::EVENT_TRACE,
    }
}

/// What the survey fills, for each trace.
struct SurveyTargets<'l> {
    actors: &'l mut [Actors],
    images: &'l mut [Images],
    symbols: &'l mut [RefCell<Symbols>],
    stacks: &'l mut [Definitions],
}

fn survey(
    traces: &[&Trace<TraceFile>],
    decoder: &mut Decoder,
    SurveyTargets { actors, images, symbols, stacks }: SurveyTargets<'_>,
    quiet: bool,
) -> Result<()> {
    let total = traces.iter().map(|t| t.file_size()).sum();
    let mut progress = Progress::new(total, "looking for schemas", quiet);
    let mut before = 0_u64;
    let (mut all_images, mut all_symbols) = (images.iter_mut(), symbols.iter_mut());
    for ((trace, actors), stacks) in traces.iter().zip(actors).zip(stacks) {
        let mut images = all_images.next();
        let mut names = all_symbols.next().map(RefCell::get_mut);
        let mut events = trace.events();
        loop {
            let read = events.bytes_read();
            progress.update(|| before.saturating_add(read));
            let Some(record) = events.next()? else { break };
            if let Some(names) = &mut names {
                names.observe(&record);
            }
            actors.foresee(&record);
            if Actors::is_informative(&record) {
                if let Ok(found) = decoder.find(&record) {
                    actors.observe(&record, &found);
                }
                continue;
            }
            decoder.observe(&record);
            stacks.observe(&record);
            if let Some(images) = images.as_mut().filter(|_| Images::is_informative(&record))
                && let Ok(found) = decoder.find(&record)
            {
                images.observe(&record, &found);
            }
        }
        before = before.saturating_add(trace.file_size());
    }
    progress.finish();
    Ok(())
}

fn collect_defects<'t>(
    inputs: &'t [Input],
    streams: impl Iterator<Item = &'t Events<'t, TraceFile>>,
) -> Reading {
    let mut reading = Reading::default();
    for (input, stream) in inputs.iter().zip(streams) {
        let trace = &input.trace;
        let damage = stream.damage();
        if let Some(archive) = &input.damage {
            reading.warnings.push(format!("{}: {archive}", input.name));
            reading.outcome = reading.outcome.max(Outcome::Damaged);
        }
        let defects = trace.defects().iter().chain(&damage.defects);
        let hidden = damage.count.saturating_sub(damage.defects.len() as u64);
        for defect in defects.take(20) {
            reading.warnings.push(format!("{}: {defect}", input.name));
        }
        let all = trace.defects().len().saturating_add(damage.defects.len());
        if all > 20 || hidden > 0 {
            let more = (all.saturating_sub(20) as u64).saturating_add(hidden);
            reading.warnings.push(format!("{}: and {more} more defects (weir check lists them)", input.name));
        }
        if all > 0 {
            reading.outcome = reading.outcome.max(Outcome::Damaged);
        }
        if !trace.is_finalised() {
            // This alone is no damage: a log that is still being written looks the same.
            reading.warnings.push(format!(
                "{}: the session never finalised the file, or it is still being written",
                input.name
            ));
        }
        if let Some((written, present)) = trace.missing_buffers() {
            let gone = format!("{}: the header counts {written} buffers, the file has {present}", input.name);
            reading.warnings.push(gone);
            reading.outcome = reading.outcome.max(Outcome::Damaged);
        }
        if trace.loss_flags() != 0 {
            reading
                .warnings
                .push(format!("{}: buffers report that events were lost before them", input.name));
            reading.outcome = reading.outcome.max(Outcome::EventsLost);
        }
        let header = trace.header();
        if header.events_lost > 0 || header.buffers_lost > 0 {
            let (events, buffers) = (header.events_lost, header.buffers_lost);
            let lost = format!("{}: the session lost {events} events and {buffers} buffers", input.name);
            reading.warnings.push(lost);
            reading.outcome = reading.outcome.max(Outcome::EventsLost);
        }
    }
    reading
}

/// Loads the schemas that the command line names.
pub(crate) fn load_schemas(decoder: &mut Decoder, schemas: &SchemaArgs) -> Result<()> {
    for path in &schemas.manifest {
        let is_folder = path.is_dir();
        for file in list_manifest_files(path)? {
            let bytes = read_schema_file(&file)?;
            match decoder.add_manifest(&bytes) {
                Ok(_) => {}
                // A folder may contain binaries without any metadata.
                Err(_) if is_folder => {}
                Err(e) => {
                    return Err(e).with_context(|| format!("cannot use {} as a manifest", file.display()));
                }
            }
        }
    }
    for path in &schemas.tmf {
        for file in list_files(path, &["tmf"])? {
            let bytes = read_schema_file(&file)?;
            let added = decoder.add_tmf(&bytes).with_context(|| format!("cannot use {}", file.display()))?;
            warn_of_lines(&file, &added.warnings);
        }
    }
    for path in &schemas.pdb {
        let file = plain::open(path).with_context(|| path.display().to_string())?;
        let added = decoder.add_pdb(file).with_context(|| format!("cannot use {}", path.display()))?;
        warn_of_lines(path, &added.warnings);
        if added.formats == 0 {
            bail!("{} contains no WPP message formats", path.display());
        }
    }
    Ok(())
}

/// Warns about lines of a message format file that could not be used: the first few, and how many
/// more.
fn warn_of_lines(file: &Path, warnings: &[(usize, &'static str)]) {
    const SHOWN: usize = 5;
    for (line, reason) in warnings.iter().take(SHOWN) {
        anstream::eprintln!("warning: {}:{line}: {reason}", plain_path(file));
    }
    if warnings.len() > SHOWN {
        anstream::eprintln!("warning: {}: and {} more", plain_path(file), warnings.len() - SHOWN);
    }
}
