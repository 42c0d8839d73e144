//! `weir relog`: one file of others, cut, filtered, merged, compressed.
//!
//! ```text
//!   traces ──in time order──▶ context? ──yes──▶ kept, unless --bare or dropped
//!                                └──no──▶ filters on the header ──▶ those by names ──▶ kept
//! ```
//!
//! Marks are events of our own, each put in front of the first event after its time. Nothing is decoded where the filters ask for nothing that takes it.

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

use super::{print_warning, warn};
use crate::cli::{Filters, Relog};
use crate::event::{Event, Flow};
use crate::exit::Outcome;
use crate::export::plain_path;
use crate::filter::Filter;
use crate::grep::Grep;
use crate::signals::{INTERRUPTED, on_interrupt};
use crate::traces::{Reading, Traces, walk};
use marks::Marks;

/// Runs the command.
pub(super) fn run(options: &Relog) -> Result<Outcome> {
    let path = plain_path(&options.output);
    check_output(options, &path)?;
    let mut traces = Traces::open(&options.files.files, &options.schemas, false)?;
    let chosen = Choice::new(options, traces.start());
    check_span(&chosen.filter)?;
    let inputs = traces.inputs.iter().map(|input| Input::of_file(&input.trace));
    let inputs = inputs.collect::<traceweir::Result<Vec<_>>>()?;
    let settings = settings(options, &traces, &chosen.filter);
    // From here on there is something to be taken away where Ctrl-C ends it.
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    on_interrupt(move |_| stop.store(true, Ordering::Relaxed))?;
    let output = Output::create(&options.output, &options.inputs(), &inputs, &settings)?;
    let marks = Marks::new(&options.mark, traces.start());
    let tally = Tally { left: chosen.filter.head.unwrap_or(u64::MAX), ..Tally::default() };
    let mut to = To { output, tally, marks };
    let is_stopped = || stopped.load(Ordering::Relaxed);
    let reading = if chosen.needs_description() {
        by_description(&mut traces, &chosen, &mut to, is_stopped)?
    } else {
        by_header(&traces, &chosen, &mut to, is_stopped)?
    };
    if is_stopped() {
        eprintln!("{path}: interrupted; nothing was written");
        return Ok(Outcome::Status(INTERRUPTED));
    }
    let To { mut output, tally, mut marks } = to;
    marks.put_rest(&mut output)?;
    let done = output.finish()?;
    eprintln!("{}", report::line(&path, &done, &tally));
    warn(&reading);
    let outside = Marks::new(&options.mark, traces.start()).outside(report::span(&traces, &tally));
    let silence = report::silence(&tally, &chosen.filter);
    report::mended(&done).into_iter().chain(silence).chain(outside).for_each(|text| print_warning(&text));
    Ok(reading.outcome)
}

/// Refuses, before anything is read, what can be no output, and what `--force` would have to replace.
fn check_output(options: &Relog, path: &str) -> Result<()> {
    if options.output.as_os_str() == "-" {
        let why = "the header of a trace is written last, so the output has to be a file, not standard output; ./- is a file of that name";
        return Err(Error::refused(Status::ERROR_BAD_PATHNAME, why).into());
    }
    Output::check(&options.output, &options.inputs())?;
    // A link that leads nowhere is something, too.
    if options.output.symlink_metadata().is_ok() && !options.force {
        bail!("cannot write {path} (--force replaces it): it is there already");
    }
    Ok(())
}

fn check_span(filter: &Filter) -> Result<()> {
    match filter.span() {
        (Some(from), Some(to)) if from > to => {
            let why = format!("--from ({from}) is later than --to ({to}): nothing can be between them");
            Err(Error::refused(Status::ERROR_INVALID_TIME, why).into())
        }
        _ => Ok(()),
    }
}

fn settings(options: &Relog, traces: &Traces, filter: &Filter) -> Settings {
    let as_before = || traces.inputs.iter().any(|input| input.trace.is_compressed());
    let (from, to) = filter.span();
    let compressed = options.compress || !options.decompress && as_before();
    Settings { compressed, from, to, new: !options.force, ..Settings::default() }
}

/// What is wanted.
struct Choice {
    filter: Filter,
    /// Providers to be left out.
    dropped: Option<Filter>,
    bare: bool,
}

impl Choice {
    fn new(options: &Relog, start: FileTime) -> Self {
        let dropped = Filters { provider: options.drop.clone(), ..Filters::default() };
        Self {
            filter: Filter::new(&options.filters, start),
            dropped: (!options.drop.is_empty()).then(|| Filter::new(&dropped, start)),
            bare: options.bare,
        }
    }

    fn needs_description(&self) -> bool {
        self.filter.needs_description() || self.dropped.is_some()
    }

    /// Whether the filters are not asked about an event.
    fn stays(&self, record: &Record<'_>) -> bool {
        relog::is_log_file_header(record) || !self.bare && is_context(record)
    }

    fn drops(&self, event: &Event<'_>) -> bool {
        let is_header = relog::is_log_file_header(&event.record);
        !is_header && self.dropped.as_ref().is_some_and(|dropped| dropped.accepts(event))
    }
}

/// Where the events go.
struct To {
    output: Output,
    tally: Tally,
    marks: Marks,
}

impl To {
    /// Writes a record, behind the marks that come before it.
    fn keep(&mut self, file: usize, record: &Record<'_>, time: FileTime) -> Result<()> {
        if !relog::is_log_file_header(record) {
            self.marks.put_before(time, &mut self.output)?;
        }
        Ok(self.output.keep_record(file, record)?)
    }
}

/// What became of the events.
#[derive(Default)]
struct Tally {
    /// Events that may still be kept.
    left: u64,
    /// Events that were read, log-file headers included, and when the first and the last of them was.
    read: u64,
    span: Option<(FileTime, FileTime)>,
    /// Events that the filters were asked about, and those they let through.
    judged: u64,
    passed: u64,
}

impl Tally {
    /// Counts an event that was read.
    fn read(&mut self, time: FileTime) {
        self.read += 1;
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
    }

    /// Counts an event that the filters have judged; whether more are wanted.
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
    to: &mut To,
    is_stopped: impl Fn() -> bool,
) -> Result<Reading> {
    walk(&traces.inputs, false, |file, clock, record| {
        if is_stopped() {
            return Ok(Flow::Stop);
        }
        let (stays, time) = (chosen.stays(record), clock.file_time(record.time()));
        to.tally.read(time);
        let kept = stays || chosen.filter.wants(record, time);
        if kept {
            to.keep(file, record, time)?;
        }
        Ok(if stays { Flow::Continue } else { to.tally.judge(kept) })
    })
}

fn by_description(
    traces: &mut Traces,
    chosen: &Choice,
    to: &mut To,
    is_stopped: impl Fn() -> bool,
) -> Result<Reading> {
    let mut grep = Grep::new(&chosen.filter, Style::default());
    let mut passed_by = Tally::default();
    let reading = traces.read(
        |record, time| {
            passed_by.read(time);
            let wanted = chosen.stays(record) || chosen.filter.wants(record, time);
            passed_by.judged += u64::from(!wanted);
            wanted || is_stopped()
        },
        |event| {
            if is_stopped() {
                return Ok(Flow::Stop);
            }
            let (stays, drops) = (chosen.stays(&event.record), chosen.drops(event));
            let kept = !drops && (stays || chosen.filter.accepts(event) && grep.accepts(event));
            if kept {
                to.keep(event.file, &event.record, event.time)?;
            }
            Ok(if stays { Flow::Continue } else { to.tally.judge(kept) })
        },
    )?;
    (to.tally.read, to.tally.span) = (passed_by.read, passed_by.span);
    to.tally.judged += passed_by.judged;
    Ok(reading)
}
