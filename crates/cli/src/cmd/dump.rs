//! `weir dump`: prints every event, decoded, in time order.

mod joined;

use std::cell::RefCell;
use std::io::IsTerminal;

use anyhow::{Result, bail};
use traceweir_decode::format::Style;

use self::joined::JoinedPrinter;
use crate::cli::{DumpArgs, OutputFormat, ShownParts};
use crate::existing_output;
use crate::exit::CommandOutcome;
use crate::filter::EventFilter;
use crate::input::is_same_file;
use crate::output::BufferedOutput;
use crate::printer::EventPrinter;
use crate::symbols;
use crate::traces::TraceSet;

pub(super) fn run(options: &DumpArgs) -> Result<CommandOutcome> {
    let is_on_terminal = options.output.is_none() && std::io::stdout().is_terminal();
    let mut traces = TraceSet::open(&options.files.files, &options.schemas, is_on_terminal)?;
    if options.show.stacks && options.format == OutputFormat::Text {
        traces.collect_images();
    }
    if options.resolves_functions() {
        traces.collect_symbols(&symbols::SymbolOptions::from(&options.symbol));
    }
    let filter = EventFilter::new(&options.filters, traces.start());
    if let Some(output) = &options.output {
        if options.input_paths().any(|input| is_same_file(input, output)) {
            bail!("{} is an input; name another file with -o", output.display());
        }
        existing_output::check_other(output, options.force)?;
    }
    let mut output = BufferedOutput::open(options.output.as_deref())?;
    let style = Style { numeric: options.numeric };
    if options.show.stacks && options.format == OutputFormat::Text {
        return run_with_stacks(options, &mut traces, &filter, &mut output);
    }
    let mut printer = EventPrinter::new(&filter, options.format, style, options.show, output.is_colourful());
    printer.write_start(output.buffer());
    let reading = traces.read(
        |record, time| filter.accepts_header(record, time),
        |event| {
            let flow = printer.print_event(event, output.buffer());
            output.flush_if_full()?;
            Ok(flow)
        },
    )?;
    printer.write_end(output.buffer());
    output.flush()?;
    printer.report_undecoded();
    reading.print_warnings();
    Ok(reading.outcome)
}

/// Like [`run`], but prints the stacks of kernel events, which are separate events, below the
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
    let printer = EventPrinter::new(filter, options.format, style, show, output.is_colourful());
    let joined = RefCell::new(JoinedPrinter::new(printer, filter));
    let reading = traces.read(
        |record, time| joined.borrow().needs_record(record, time),
        |event| {
            let flow = joined.borrow_mut().add_event(event, output.buffer());
            output.flush_if_full()?;
            Ok(flow)
        },
    )?;
    joined.into_inner().end(output.buffer());
    output.flush()?;
    reading.print_warnings();
    Ok(reading.outcome)
}
