//! `weir dump`: every event, decoded, in time order.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use anstream::eprintln;
use anyhow::{Result, bail};
use traceweir_decode::Undecoded;
use traceweir_decode::format::Style;

use super::grep::Grep;
use super::{grouped, warn};
use crate::cli::Dump;
use crate::exit::Outcome;
use crate::export;
use crate::filter::Filter;
use crate::input::is_same_file;
use crate::output::Output;
use crate::traces::{Event, Flow, Traces};

/// Runs the command.
pub(super) fn run(options: &Dump) -> Result<Outcome> {
    let on_terminal = options.output.is_none() && std::io::stdout().is_terminal();
    let mut traces = Traces::open(&options.files.files, &options.schemas, on_terminal)?;
    let filter = Filter::new(&options.filters, traces.start());
    if let Some(output) = &options.output
        && options.inputs().any(|input| is_same_file(input, output))
    {
        bail!("{} is an input; name another file with -o", output.display());
    }
    let mut output = Output::open(options.output.as_deref())?;
    let style = Style { numeric: options.numeric };
    let mut sink = export::sink(options.format, style, output.is_colourful());
    let mut grep = Grep::new(&filter, style);
    let mut left = filter.head.unwrap_or(u64::MAX);
    let mut tally = Tally::default();
    sink.begin(output.buffer());
    let reading = traces.read(
        |record, time| filter.wants(record, time),
        |event| {
            if !filter.accepts(event) || !grep.accepts(event) {
                tally.pass_over(event);
                return Ok(Flow::Continue);
            }
            let misfit = sink.event(event, output.buffer());
            tally.count(event, misfit.as_ref());
            output.settle()?;
            left -= 1;
            Ok(if left == 0 { Flow::Stop } else { Flow::Continue })
        },
    )?;
    sink.end(output.buffer());
    output.flush()?;
    tally.report(filter.goes_by_names());
    warn(&reading);
    Ok(reading.outcome)
}

/// Counts what was written and what could not be decoded.
#[derive(Default)]
struct Tally {
    events: u64,
    undecoded: u64,
    reasons: BTreeMap<&'static str, u64>,
    /// Events that no filter let through, though nothing says what they are called.
    nameless: u64,
}

impl Tally {
    fn count(&mut self, event: &Event<'_>, misfit: Option<&Undecoded>) {
        self.events += 1;
        if let Some(reason) = event.found.as_ref().err().or(misfit) {
            self.undecoded += 1;
            *self.reasons.entry(kind_of(reason)).or_default() += 1;
        }
    }

    fn pass_over(&mut self, event: &Event<'_>) {
        self.nameless += u64::from(event.found.is_err());
    }

    fn report(&self, by_names: bool) {
        if by_names && self.events == 0 {
            eprintln!("no event matched");
        }
        if by_names && self.nameless > 0 {
            let nameless = grouped(self.nameless);
            eprintln!(
                "{nameless} events without a schema were not compared by name or decoded text: --manifest may help"
            );
        }
        if self.undecoded == 0 {
            return;
        }
        let (undecoded, events) = (grouped(self.undecoded), grouped(self.events));
        eprintln!("{undecoded} of {events} events could not be decoded:");
        for (reason, count) in &self.reasons {
            eprintln!("  {:>10}  {reason}", grouped(*count));
        }
    }
}

fn kind_of(reason: &Undecoded) -> &'static str {
    match reason {
        Undecoded::NoSchema => "no schema: give the provider's manifest or binary with --manifest",
        Undecoded::NoKernelLayout { .. } => "kernel events without a published layout",
        Undecoded::NoMessageFormat => "WPP messages without a format: give --tmf or --pdb",
        Undecoded::BadMetadata(_) => "damaged metadata in the event",
        Undecoded::UnknownRecord(_) => "records of a type without a published layout",
        _ => "payloads that do not fit their schema",
    }
}
