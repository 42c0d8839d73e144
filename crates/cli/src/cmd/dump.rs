//! `weir dump`: prints every event, decoded, in time order.

mod event_output;
mod joined;

use std::cell::RefCell;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anstream::eprintln;
use anyhow::{Result, bail};
use traceweir_analysis::event::{DescribedEvent, ReadFlow};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::traces::TraceSet;
use traceweir_analysis::traces::follow::FollowedTrace;
use traceweir_decode::format::Style;
use traceweir_format::header::Record;

use self::event_output::EventOutput;
use self::joined::JoinedPrinter;
use crate::cli::{DumpArgs, OutputFormat, ShownParts, TimeStyle};
use crate::existing_output::{self, is_same_file};
use crate::exit::{self, CommandOutcome};
use crate::filter::check_times;
use crate::output::BufferedOutput;
use crate::printer::EventPrinter;
use crate::progress::TerminalObserver;
use crate::reading::{
    explain_follow_error, print_defects, print_warnings, reading_outcome, warn_of_missing_images,
};
use crate::signals;
use crate::text::{escape_path, format_count};

/// How often a followed file is read again.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);
/// How often, and how many times, a file is opened again that ends within a buffer, because its
/// session may be writing this buffer.
const REOPEN_INTERVAL: Duration = Duration::from_millis(10);
const MAX_REOPENS: u32 = 50;

pub(super) fn run(options: &DumpArgs) -> Result<CommandOutcome> {
    let outcome = print_events(options)?;
    let file = options.output.as_ref().and_then(|path| Some((path, path.metadata().ok()?)));
    if let Some((path, metadata)) = file.filter(|(_, metadata)| metadata.is_file()) {
        eprintln!("{}: {}", escape_path(path), format_count(metadata.len(), "byte"));
        let note = options.other_format_note(path);
        note.iter().for_each(|note| eprintln!("note: {note}"));
    }
    Ok(outcome)
}

fn print_events(options: &DumpArgs) -> Result<CommandOutcome> {
    let mut traces = open_traces(options)?;
    let outcome = print_events_of(options, &mut traces)?;
    warn_of_missing_images(&traces);
    Ok(outcome)
}

fn print_events_of(options: &DumpArgs, traces: &mut TraceSet) -> Result<CommandOutcome> {
    let following = if options.follow { Some(Following::new(traces)?) } else { None };
    let filter = EventFilter::new(&options.filters.criteria(), traces.start());
    check_times(&filter, "--to");
    if let Some(output) = &options.output {
        if options.input_paths().any(|input| is_same_file(input, output)) {
            bail!("{} is an input; name another file with -o", output.display());
        }
        existing_output::check_other(output, options.force)?;
    }
    let mut output = BufferedOutput::open(options.output.as_deref())?;
    print_followed(options, traces, &filter, following, &mut output)
}

/// Prints the events of traces that are not followed.
pub(super) fn print_traces(
    options: &DumpArgs,
    traces: &mut TraceSet,
    filter: &EventFilter,
    output: &mut BufferedOutput,
) -> Result<CommandOutcome> {
    print_followed(options, traces, filter, None, output)
}

/// Prints the events of traces and, if a trace is followed, those that are added to it.
fn print_followed(
    options: &DumpArgs,
    traces: &mut TraceSet,
    filter: &EventFilter,
    mut following: Option<Following>,
    output: &mut BufferedOutput,
) -> Result<CommandOutcome> {
    if options.show.stacks && options.output_format() == OutputFormat::Text {
        traces.collect_images();
    }
    if options.resolves_functions() {
        traces.collect_symbols(&options.symbol.options());
    }
    let style = Style { numeric: options.numeric };
    if options.show.stacks && options.output_format() == OutputFormat::Text {
        return run_with_stacks(options, traces, filter, output);
    }
    let threads =
        if can_be_parallel(options, output) { traces.choose_threads(options.threads.requested) } else { 1 };
    if threads > 1 {
        return print_in_parallel(options, traces, filter, output, threads);
    }
    let mut printer =
        EventPrinter::new(filter, options.output_format(), style, options.show, output.is_colourful());
    if options.hides_file_events() {
        printer.hide_file_events();
    }
    let mut dump = DumpOutput { printer, output: EventOutput::new(output, options.tail) };
    dump.printer.write_start(dump.output.buffer());
    let mut last_flow = ReadFlow::Continue;
    let reading = traces.read(
        |record, time| filter.accepts_header(record, time),
        |event| {
            last_flow = dump.print_event(event)?;
            if following.as_ref().is_some_and(|following| following.interrupted.try_recv().is_ok()) {
                last_flow = ReadFlow::Stop;
            }
            Ok(last_flow)
        },
    )?;
    dump.output.end_tail();
    let Some(mut following) = following.take() else {
        dump.end()?;
        print_warnings(&reading);
        return Ok(reading_outcome(&reading));
    };
    if last_flow == ReadFlow::Continue {
        following.print_added(traces, filter, &mut dump)?;
    }
    dump.end()?;
    // Without damage, the only warning is that the file was not finalised.
    if reading.is_damaged {
        print_defects(&reading);
    }
    if let Some(loss) = following.trace.losses() {
        exit::print_warning(loss);
    }
    Ok(reading_outcome(&reading))
}

/// Returns whether several threads may print: whether no event depends on those before it, and
/// nobody waits for single events.
fn can_be_parallel(options: &DumpArgs, output: &BufferedOutput) -> bool {
    let is_independent = options.filters.events.head.is_none()
        && options.tail.is_none()
        && !options.follow
        && !options.resolves_functions()
        && options.show.time != TimeStyle::Delta;
    is_independent && !output.is_terminal()
}

/// Like [`print_events`], with several threads.
fn print_in_parallel(
    options: &DumpArgs,
    traces: &mut TraceSet,
    filter: &EventFilter,
    output: &mut BufferedOutput,
    threads: usize,
) -> Result<CommandOutcome> {
    let (style, is_colourful) = (Style { numeric: options.numeric }, output.is_colourful());
    let create_printer = || {
        let mut printer =
            EventPrinter::new(filter, options.output_format(), style, options.show, is_colourful);
        if options.hides_file_events() {
            printer.hide_file_events();
        }
        printer
    };
    let mut printer = create_printer();
    printer.write_start(output.buffer());
    let mut workers: Vec<EventPrinter<'_>> = (0..threads).map(|_| create_printer()).collect();
    let reading = traces.read_in_parallel(
        &mut workers,
        |record, time| filter.accepts_header(record, time),
        |text| {
            output.buffer().extend_from_slice(text);
            output.flush_if_full()
        },
    )?;
    workers.into_iter().for_each(|worker| printer.add_counts(worker));
    printer.write_end(output.buffer());
    output.flush()?;
    printer.report_undecoded();
    print_warnings(&reading);
    Ok(reading_outcome(&reading))
}

/// Opens the traces. A file that is followed is opened again while its session writes its last
/// buffer, so that the buffer is read once and completely.
fn open_traces(options: &DumpArgs) -> Result<TraceSet> {
    let is_on_terminal = options.output.is_none() && std::io::stdout().is_terminal();
    let open = || {
        TraceSet::open(
            &options.files.files,
            &options.schemas.files(),
            TerminalObserver::create(is_on_terminal),
        )
    };
    let mut traces = open()?;
    for _ in 0..if options.follow { MAX_REOPENS } else { 0 } {
        if traces.ends_with_whole_buffers() {
            break;
        }
        std::thread::sleep(REOPEN_INTERVAL);
        traces = open()?;
    }
    Ok(traces)
}

/// The printer of `weir dump`, and where it prints to.
struct DumpOutput<'f, 'o> {
    printer: EventPrinter<'f>,
    output: EventOutput<'o>,
}

impl DumpOutput<'_, '_> {
    fn print_event(&mut self, event: &DescribedEvent<'_>) -> Result<ReadFlow> {
        let flow = self.output.write_event(|out| self.printer.print_event(event, out));
        self.output.flush_if_full()?;
        Ok(flow)
    }

    fn end(&mut self) -> Result<()> {
        self.printer.write_end(self.output.buffer());
        self.output.flush()?;
        self.printer.report_undecoded();
        Ok(())
    }
}

/// A file that is followed.
struct Following {
    trace: FollowedTrace,
    interrupted: Receiver<()>,
}

impl Following {
    fn new(traces: &TraceSet) -> Result<Self> {
        let trace = traces.follow().map_err(explain_follow_error)?;
        let (interrupts, interrupted) = channel();
        signals::handle_interrupts(move |_| {
            let _ = interrupts.send(());
        })?;
        Ok(Self { trace, interrupted })
    }

    /// Prints the events that a session adds to the file, until it finalises the file or Ctrl-C.
    fn print_added(
        &mut self,
        traces: &mut TraceSet,
        filter: &EventFilter,
        dump: &mut DumpOutput<'_, '_>,
    ) -> Result<()> {
        loop {
            // On a pipe, too, events appear soon after their buffer.
            dump.output.flush()?;
            if self.trace.is_finalised() || self.interrupted.recv_timeout(FOLLOW_INTERVAL).is_ok() {
                return Ok(());
            }
            let accepts = |record: &Record<'_>, time| filter.accepts_header(record, time);
            let flow = traces.read_added(&mut self.trace, accepts, |event| dump.print_event(event))?;
            if flow == ReadFlow::Stop {
                return Ok(());
            }
        }
    }
}

/// Like [`print_events`], but prints the stacks of kernel events, which are separate events, below the
/// events that they belong to.
fn run_with_stacks(
    options: &DumpArgs,
    traces: &mut TraceSet,
    filter: &EventFilter,
    output: &mut BufferedOutput,
) -> Result<CommandOutcome> {
    let style = Style { numeric: options.numeric };
    // `JoinedPrinter` prints the stacks.
    let show = ShownParts { stacks: false, ..options.show };
    let mut printer = EventPrinter::new(filter, options.output_format(), style, show, output.is_colourful());
    if options.hides_file_events() {
        printer.hide_file_events();
    }
    let mut output = EventOutput::new(output, options.tail);
    let joined = RefCell::new(JoinedPrinter::new(printer, filter));
    let reading = traces.read(
        |record, time| joined.borrow().needs_record(record, time),
        |event| {
            let flow = joined.borrow_mut().add_event(event, &mut output);
            output.flush_if_full()?;
            Ok(flow)
        },
    )?;
    joined.into_inner().end(&mut output);
    output.end_tail();
    output.flush()?;
    print_warnings(&reading);
    Ok(reading_outcome(&reading))
}
