//! `weir dump`: prints every event, decoded, in time order.

mod joined;

use std::cell::RefCell;
use std::io::IsTerminal;

use anyhow::{Result, bail};
use traceweir_decode::format::Style;

use self::joined::Lines;
use crate::cli::{DumpArgs, OutputFormat, ShownParts};
use crate::exit::Outcome;
use crate::filter::Filter;
use crate::input::is_same_file;
use crate::output::Output;
use crate::printer::Printer;
use crate::symbols;
use crate::traces::Traces;

/// Runs `weir dump`.
pub(super) fn run(options: &DumpArgs) -> Result<Outcome> {
    let on_terminal = options.output.is_none() && std::io::stdout().is_terminal();
    let mut traces = Traces::open(&options.files.files, &options.schemas, on_terminal)?;
    if options.show.stacks && options.format == OutputFormat::Text {
        traces.learn_images();
    }
    if options.names_functions() {
        traces.learn_symbols(&symbols::Options::from(&options.symbol));
    }
    let filter = Filter::new(&options.filters, traces.start());
    if let Some(output) = &options.output
        && options.inputs().any(|input| is_same_file(input, output))
    {
        bail!("{} is an input; name another file with -o", output.display());
    }
    let mut output = Output::open(options.output.as_deref())?;
    let style = Style { numeric: options.numeric };
    if options.show.stacks && options.format == OutputFormat::Text {
        return with_stacks(options, &mut traces, &filter, &mut output);
    }
    let mut printer = Printer::new(&filter, options.format, style, options.show, output.is_colourful());
    printer.begin(output.buffer());
    let reading = traces.read(
        |record, time| filter.wants(record, time),
        |event| {
            let flow = printer.event(event, output.buffer());
            output.flush_if_full()?;
            Ok(flow)
        },
    )?;
    printer.end(output.buffer());
    output.flush()?;
    printer.report();
    reading.print_warnings();
    Ok(reading.outcome)
}

/// Like [`run`], but prints the stacks of kernel events, which are separate events, below the
/// events that they belong to.
fn with_stacks(
    options: &DumpArgs,
    traces: &mut Traces,
    filter: &Filter,
    output: &mut Output,
) -> Result<Outcome> {
    let style = Style { numeric: options.numeric };
    let show = ShownParts { stacks: false, ..options.show };
    let printer = Printer::new(filter, options.format, style, show, output.is_colourful());
    let lines = RefCell::new(Lines::new(printer, filter));
    let reading = traces.read(
        |record, time| lines.borrow().wants(record, time),
        |event| {
            let flow = lines.borrow_mut().event(event, output.buffer());
            output.flush_if_full()?;
            Ok(flow)
        },
    )?;
    lines.into_inner().end(output.buffer());
    output.flush()?;
    reading.print_warnings();
    Ok(reading.outcome)
}
