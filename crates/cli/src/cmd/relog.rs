//! `weir relog`: writes one trace from others, cut, filtered, merged or compressed.
//!
//! ```text
//!   traces ──in time order──▶ context? ──yes──▶ kept, unless --bare or dropped
//!                                └──no──▶ filters on the header ──▶ those by names ──▶ kept
//! ```
//!
//! A mark is an event that weir adds, written before the first event after its time. Events are
//! decoded only if the filters need it.

mod marks;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::eprintln;
use anyhow::{Result, bail};
use traceweir::relog::{self, Input, Output, Settings, is_context};
use traceweir::{Error, Status};
use traceweir_decode::format::Style;
use traceweir_format::header::Record;
use traceweir_format::time::FileTime;

use crate::cli::{FilterArgs, RelogArgs};
use crate::event::{Event, Flow};
use crate::exit::{self, Outcome};
use crate::filter::Filter;
use crate::grep::Grep;
use crate::signals::{INTERRUPTED, on_interrupt};
use crate::text::plain_path;
use crate::traces::{Reading, Traces, walk};
use marks::Marks;

/// Runs `weir relog`.
pub(super) fn run(options: &RelogArgs) -> Result<Outcome> {
    let path = plain_path(&options.output);
    check_output(options, &path)?;
    let mut traces = Traces::open(&options.files.files, &options.schemas, false)?;
    let chosen = Choice::new(options, traces.start());
    check_span(&chosen.filter)?;
    let inputs = traces.inputs.iter().map(|input| Input::from_file(&input.trace));
    let inputs = inputs.collect::<traceweir::Result<Vec<_>>>()?;
    let settings = settings(options, &traces, &chosen.filter);
    // From here on, Ctrl-C must remove the incomplete output.
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    on_interrupt(move |_| stop.store(true, Ordering::Relaxed))?;
    let output = Output::create(&options.output, &options.inputs(), &inputs, &settings)?;
    let marks = Marks::new(&options.mark, traces.start());
    let tally = Tally { left: chosen.filter.head.unwrap_or(u64::MAX), ..Tally::default() };
    let mut sink = Sink { output, tally, marks };
    let is_stopped = || stopped.load(Ordering::Relaxed);
    let reading = if chosen.needs_description() {
        by_description(&mut traces, &chosen, &mut sink, is_stopped)?
    } else {
        by_header(&traces, &chosen, &mut sink, is_stopped)?
    };
    if is_stopped() {
        eprintln!("{path}: interrupted; nothing was written");
        return Ok(Outcome::Status(INTERRUPTED));
    }
    let Sink { mut output, tally, mut marks } = sink;
    marks.put_rest(&mut output)?;
    let done = output.finish()?;
    eprintln!("{}", report::line(&path, &done, &tally));
    reading.print_warnings();
    let outside = Marks::new(&options.mark, traces.start()).outside(report::span(&traces, &tally));
    let silence = report::silence(&tally, &chosen.filter);
    report::mended(&done).into_iter().chain(silence).chain(outside).for_each(|text| exit::warn(&text));
    Ok(reading.outcome)
}

/// Rejects an impossible output, or one that only `--force` may replace, before anything is read.
fn check_output(options: &RelogArgs, path: &str) -> Result<()> {
    if options.output.as_os_str() == "-" {
        let reason = "the header of a trace is written last, so the output must be a file, not standard output; use ./- for a file of that name";
        return Err(Error::refused(Status::ERROR_BAD_PATHNAME, reason).into());
    }
    Output::check(&options.output, &options.inputs())?;
    // A dangling link counts as an existing file.
    if options.output.symlink_metadata().is_ok() && !options.force {
        bail!("cannot write {path} (--force replaces it): it exists already");
    }
    Ok(())
}

fn check_span(filter: &Filter) -> Result<()> {
    match filter.span() {
        (Some(from), Some(to)) if from > to => {
            let reason = format!("--from ({from}) is later than --to ({to}): nothing can be between them");
            Err(Error::refused(Status::ERROR_INVALID_TIME, reason).into())
        }
        _ => Ok(()),
    }
}

fn settings(options: &RelogArgs, traces: &Traces, filter: &Filter) -> Settings {
    let is_input_compressed = || traces.inputs.iter().any(|input| input.trace.is_compressed());
    let (from, to) = filter.span();
    let compressed = options.compress || !options.decompress && is_input_compressed();
    Settings::default().compressed(compressed).window(from, to).new_file(!options.force)
}

/// Which events are kept.
struct Choice {
    filter: Filter,
    /// Providers that are left out.
    dropped: Option<Filter>,
    bare: bool,
}

impl Choice {
    fn new(options: &RelogArgs, start: FileTime) -> Self {
        let dropped = FilterArgs { provider: options.drop.clone(), ..FilterArgs::default() };
        Self {
            filter: Filter::new(&options.filters, start),
            dropped: (!options.drop.is_empty()).then(|| Filter::new(&dropped, start)),
            bare: options.bare,
        }
    }

    fn needs_description(&self) -> bool {
        self.filter.needs_description() || self.dropped.is_some()
    }

    /// Returns whether an event is kept without asking the filters.
    fn is_always_kept(&self, record: &Record<'_>) -> bool {
        relog::is_log_file_header(record) || !self.bare && is_context(record)
    }

    fn is_dropped(&self, event: &Event<'_>) -> bool {
        let is_header = relog::is_log_file_header(&event.record);
        !is_header && self.dropped.as_ref().is_some_and(|dropped| dropped.accepts(event))
    }
}

/// The output and the counts of events.
struct Sink {
    output: Output,
    tally: Tally,
    marks: Marks,
}

impl Sink {
    /// Writes a record, after the marks that precede it.
    fn keep(&mut self, file: usize, record: &Record<'_>, time: FileTime) -> Result<()> {
        if !relog::is_log_file_header(record) {
            self.marks.put_before(time, &mut self.output)?;
        }
        Ok(self.output.keep_record(file, record)?)
    }
}

/// Counts of events.
#[derive(Default)]
struct Tally {
    /// Number of events that may still be kept.
    left: u64,
    /// Number of events read, including log-file headers.
    read: u64,
    /// Times of the first and the last event read.
    span: Option<(FileTime, FileTime)>,
    /// Number of events that the filters judged.
    judged: u64,
    /// Number of events that passed the filters.
    passed: u64,
}

impl Tally {
    /// Counts an event that was read.
    fn read(&mut self, time: FileTime) {
        self.read += 1;
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
    }

    /// Counts an event that the filters judged; returns whether more are wanted.
    fn judge(&mut self, kept: bool) -> Flow {
        self.judged += 1;
        if !kept {
            return Flow::Continue;
        }
        self.passed += 1;
        self.left -= 1;
        if self.left == 0 { Flow::Stop } else { Flow::Continue }
    }
}

fn by_header(
    traces: &Traces,
    chosen: &Choice,
    sink: &mut Sink,
    is_stopped: impl Fn() -> bool,
) -> Result<Reading> {
    walk(&traces.inputs, false, |file, clock, record| {
        if is_stopped() {
            return Ok(Flow::Stop);
        }
        let (always_kept, time) = (chosen.is_always_kept(record), clock.file_time(record.time()));
        sink.tally.read(time);
        let kept = always_kept || chosen.filter.wants(record, time);
        if kept {
            sink.keep(file, record, time)?;
        }
        Ok(if always_kept { Flow::Continue } else { sink.tally.judge(kept) })
    })
}

fn by_description(
    traces: &mut Traces,
    chosen: &Choice,
    sink: &mut Sink,
    is_stopped: impl Fn() -> bool,
) -> Result<Reading> {
    let mut grep = Grep::new(&chosen.filter, Style::default());
    let mut skipped = Tally::default();
    let reading = traces.read(
        |record, time| {
            skipped.read(time);
            let wanted = chosen.is_always_kept(record) || chosen.filter.wants(record, time);
            skipped.judged += u64::from(!wanted);
            wanted || is_stopped()
        },
        |event| {
            if is_stopped() {
                return Ok(Flow::Stop);
            }
            let (always_kept, dropped) = (chosen.is_always_kept(&event.record), chosen.is_dropped(event));
            let kept = !dropped && (always_kept || chosen.filter.accepts(event) && grep.accepts(event));
            if kept {
                sink.keep(event.file, &event.record, event.time)?;
            }
            Ok(if always_kept { Flow::Continue } else { sink.tally.judge(kept) })
        },
    )?;
    (sink.tally.read, sink.tally.span) = (skipped.read, skipped.span);
    sink.tally.judged += skipped.judged;
    Ok(reading)
}
