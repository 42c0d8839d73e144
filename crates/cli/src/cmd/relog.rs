//! `weir relog`: writes one trace from others, cut, filtered, merged or compressed.
//!
//! ```text
//!   traces ──in time order──▶ context, without --bare? ──yes──────────────────────────▶ kept
//!                                └──no──▶ filters on the header ──▶ filters by name ──▶ kept
//! ```
//!
//! Events of a provider that `--drop` names are left out in both cases.
//!
//! Context events, such as schemas and rundowns, are needed to read other events. A mark is an
//! event that weir adds. It is written before the first event that has a later time. Events are
//! decoded only if the filters need it.

mod marks;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::eprintln;
use anyhow::Result;
use traceweir::relog::{self, Input, Output, Settings, is_context};
use traceweir::{Error, Status};
use traceweir_analysis::event::{DescribedEvent, ReadFlow};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::traces::{ReadSummary, TraceSet, read_records};
use traceweir_format::header::Record;
use traceweir_format::time::FileTime;

use crate::cli::{FilterArgs, RelogArgs};
use crate::existing_output;
use crate::exit::{self, CommandOutcome};
use crate::progress::TerminalObserver;
use crate::reading::{print_warnings, reading_outcome};
use crate::signals::{INTERRUPTED, handle_interrupts};
use crate::text::escape_path;
use marks::Marks;

pub(super) fn run(options: &RelogArgs) -> Result<CommandOutcome> {
    let path = escape_path(&options.output);
    check_output(options)?;
    let mut traces =
        TraceSet::open(&options.files.files, &options.schemas.files(), TerminalObserver::create(false))?;
    let threads = traces.choose_threads(options.threads.requested);
    let rules = KeepRules::new(options, traces.start());
    check_span(&rules.filter)?;
    let inputs = traces.inputs.iter().map(|input| Input::from_file(&input.trace));
    let inputs = inputs.collect::<traceweir::Result<Vec<_>>>()?;
    let settings = build_settings(options, &traces, &rules.filter, threads);
    // From here on, Ctrl-C must remove the incomplete output.
    let stopped = Arc::new(AtomicBool::new(false));
    let stop_flag = Arc::clone(&stopped);
    handle_interrupts(move |_| stop_flag.store(true, Ordering::Relaxed))?;
    let moved = existing_output::make_room(&options.output, options.force)?;
    let output = Output::create(&options.output, &options.input_paths(), &inputs, &settings)?;
    let marks = Marks::new(&options.mark, traces.start());
    let counts = EventCounts { remaining: rules.filter.head.unwrap_or(u64::MAX), ..EventCounts::default() };
    let mut out = RelogOutput { output, counts, marks };
    let is_stopped = || stopped.load(Ordering::Relaxed);
    let reading = if rules.needs_description() {
        relog_by_description(&mut traces, &rules, &mut out, is_stopped)?
    } else {
        relog_by_header(&traces, &rules, &mut out, is_stopped)?
    };
    if is_stopped() {
        eprintln!("{path}: interrupted; nothing was written");
        return Ok(CommandOutcome::Status(INTERRUPTED));
    }
    let RelogOutput { mut output, counts, mut marks } = out;
    marks.write_remaining(&mut output)?;
    let summary = output.finish()?;
    moved.keep();
    eprintln!("{}", report::format_summary(&path, &summary, &counts));
    print_warnings(&reading);
    let outside_warnings =
        Marks::new(&options.mark, traces.start()).warnings_outside(report::input_span(&traces, &counts));
    let no_event_warning = report::no_event_warning(&counts, &rules.filter);
    report::invalid_items_warning(&summary)
        .into_iter()
        .chain(no_event_warning)
        .chain(outside_warnings)
        .for_each(|text| exit::print_warning(&text));
    Ok(reading_outcome(&reading))
}

/// Rejects an impossible output, or an existing file that would be refused, before any input is read.
fn check_output(options: &RelogArgs) -> Result<()> {
    if options.output.as_os_str() == "-" {
        let reason = "the header of a trace is written last, so the output must be a file, not standard output; use ./- for a file of that name";
        return Err(Error::refused(Status::ERROR_BAD_PATHNAME, reason).into());
    }
    Output::check(&options.output, &options.input_paths())?;
    existing_output::check_trace(&options.output, options.force)
}

fn check_span(filter: &EventFilter) -> Result<()> {
    match filter.time_span() {
        (Some(from), Some(to)) if from > to => {
            let reason = format!("--from ({from}) is later than --to ({to}): nothing can be between them");
            Err(Error::refused(Status::ERROR_INVALID_TIME, reason).into())
        }
        _ => Ok(()),
    }
}

fn build_settings(options: &RelogArgs, traces: &TraceSet, filter: &EventFilter, threads: usize) -> Settings {
    let is_input_compressed = || traces.inputs.iter().any(|input| input.trace.is_compressed());
    let (from, to) = filter.time_span();
    let compressed = options.compress || !options.decompress && is_input_compressed();
    Settings::default().compressed(compressed).window(from, to).new_file(!options.force).threads(threads)
}

/// Decides which events are kept.
struct KeepRules {
    filter: EventFilter,
    /// Providers that are left out.
    dropped: Option<EventFilter>,
    is_bare: bool,
}

impl KeepRules {
    fn new(options: &RelogArgs, start: FileTime) -> Self {
        let dropped = FilterArgs { provider: options.drop.clone(), ..FilterArgs::default() };
        Self {
            filter: EventFilter::new(&options.filters.criteria(), start),
            dropped: (!options.drop.is_empty()).then(|| EventFilter::new(&dropped.criteria(), start)),
            is_bare: options.bare,
        }
    }

    fn needs_description(&self) -> bool {
        self.filter.needs_description() || self.dropped.is_some()
    }

    /// Returns whether an event is kept without applying the filters (`--drop` still applies).
    fn is_always_kept(&self, record: &Record<'_>) -> bool {
        relog::is_log_file_header(record) || !self.is_bare && is_context(record)
    }

    fn is_dropped(&self, event: &DescribedEvent<'_>) -> bool {
        let is_header = relog::is_log_file_header(&event.record);
        !is_header && self.dropped.as_ref().is_some_and(|dropped| dropped.accepts(event))
    }
}

/// The output, the counts of events, and the marks to add.
struct RelogOutput {
    output: Output,
    counts: EventCounts,
    marks: Marks,
}

impl RelogOutput {
    /// Writes a record, after the marks that precede it.
    fn write_record(&mut self, file: usize, record: &Record<'_>, time: FileTime) -> Result<()> {
        if !relog::is_log_file_header(record) {
            self.marks.write_before(time, &mut self.output)?;
        }
        Ok(self.output.keep_record(file, record)?)
    }
}

#[derive(Default)]
struct EventCounts {
    /// Number of events that `--head` still allows.
    remaining: u64,
    /// Number of events read, including log-file headers.
    read: u64,
    /// Times of the first and the last event read.
    span: Option<(FileTime, FileTime)>,
    /// Number of events that the filters were applied to.
    tested: u64,
    /// Number of events that passed the filters.
    passed: u64,
}

impl EventCounts {
    fn add_read(&mut self, time: FileTime) {
        self.read += 1;
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
    }

    /// Counts an event that the filters were applied to; returns whether `--head` allows more.
    fn add_tested(&mut self, is_kept: bool) -> ReadFlow {
        self.tested += 1;
        if !is_kept {
            return ReadFlow::Continue;
        }
        self.passed += 1;
        self.remaining -= 1;
        if self.remaining == 0 { ReadFlow::Stop } else { ReadFlow::Continue }
    }
}

fn relog_by_header(
    traces: &TraceSet,
    rules: &KeepRules,
    out: &mut RelogOutput,
    is_stopped: impl Fn() -> bool,
) -> Result<ReadSummary> {
    read_records(&traces.inputs, traces.loading.as_ref(), &*traces.observer, |file, clock, record| {
        if is_stopped() {
            return Ok(ReadFlow::Stop);
        }
        let (is_always_kept, time) = (rules.is_always_kept(record), clock.file_time(record.time()));
        out.counts.add_read(time);
        let is_kept = is_always_kept || rules.filter.accepts_header(record, time);
        if is_kept {
            out.write_record(file, record, time)?;
        }
        Ok(if is_always_kept { ReadFlow::Continue } else { out.counts.add_tested(is_kept) })
    })
}

fn relog_by_description(
    traces: &mut TraceSet,
    rules: &KeepRules,
    out: &mut RelogOutput,
    is_stopped: impl Fn() -> bool,
) -> Result<ReadSummary> {
    let mut selection = EventSelection::new(&rules.filter);
    // Counts in the first closure below. It cannot use `out`, which the second closure borrows.
    let mut read_counts = EventCounts::default();
    let reading = traces.read(
        |record, time| {
            read_counts.add_read(time);
            let is_candidate = rules.is_always_kept(record) || rules.filter.accepts_header(record, time);
            read_counts.tested += u64::from(!is_candidate);
            // After Ctrl-C, the next record is passed on to the function below, which ends the
            // reading.
            is_candidate || is_stopped()
        },
        |event| {
            if is_stopped() {
                return Ok(ReadFlow::Stop);
            }
            let (is_always_kept, is_dropped) = (rules.is_always_kept(&event.record), rules.is_dropped(event));
            let is_kept = !is_dropped && (is_always_kept || selection.accepts(event));
            if is_kept {
                out.write_record(event.file, &event.record, event.time)?;
            }
            Ok(if is_always_kept { ReadFlow::Continue } else { out.counts.add_tested(is_kept) })
        },
    )?;
    (out.counts.read, out.counts.span) = (read_counts.read, read_counts.span);
    out.counts.tested += read_counts.tested;
    Ok(reading)
}
