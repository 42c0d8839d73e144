//! `weir dump`: every event, decoded, in time order.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use anstream::eprintln;
use anyhow::Result;
use memchr::memmem;
use traceweir_decode::Undecoded;
use traceweir_decode::format::Style;

use super::{grouped, warn};
use crate::cli::{Dump, Format};
use crate::exit::Outcome;
use crate::export::{self, Sink, Text};
use crate::filter::Filter;
use crate::output::Output;
use crate::traces::{Event, Flow, Traces};

/// Runs the command.
pub(super) fn run(options: &Dump) -> Result<Outcome> {
    let on_terminal = options.output.is_none() && std::io::stdout().is_terminal();
    let mut traces = Traces::open(&options.files.files, &options.schemas, on_terminal)?;
    let filter = Filter::new(&options.filters, traces.start())?;
    let mut output = Output::open(options.output.as_deref())?;
    let style = Style { numeric: options.numeric };
    let mut sink = export::sink(options.format, style, output.is_colourful());
    let mut grep = Grep::new(&filter, options.format, style);
    let mut left = filter.head.unwrap_or(u64::MAX);
    let mut tally = Tally::default();
    sink.begin(output.buffer());
    let reading = traces.read(
        |record, time| filter.wants(record, time),
        |event| {
            if !filter.accepts(event) {
                return Ok(Flow::Continue);
            }
            let start = output.buffer().len();
            sink.event(event, output.buffer());
            if !grep.accepts(event, &output.buffer()[start..]) {
                output.buffer().truncate(start);
                return Ok(Flow::Continue);
            }
            tally.count(event);
            output.settle()?;
            left -= 1;
            Ok(if left == 0 { Flow::Stop } else { Flow::Continue })
        },
    )?;
    sink.end(output.buffer());
    output.flush()?;
    tally.report();
    warn(&reading);
    Ok(reading.outcome)
}

/// Looks for text in events.
struct Grep<'f> {
    finder: Option<memmem::Finder<'f>>,
    /// Renders events as text when they are written in another form.
    text: Option<Text>,
    line: Vec<u8>,
}

impl<'f> Grep<'f> {
    fn new(filter: &'f Filter, format: Format, style: Style) -> Self {
        let finder = filter.grep.as_ref().map(|t| memmem::Finder::new(t.as_bytes()));
        let text = (finder.is_some() && format != Format::Text).then(|| Text::new(style, false));
        Self { finder, text, line: Vec::new() }
    }

    fn accepts(&mut self, event: &Event<'_>, written: &[u8]) -> bool {
        let Some(finder) = &self.finder else { return true };
        self.line.clear();
        match &mut self.text {
            Some(text) => text.event(event, &mut self.line),
            None => self.line.extend_from_slice(written),
        }
        let lower = String::from_utf8_lossy(&self.line).to_lowercase();
        finder.find(lower.as_bytes()).is_some()
    }
}

/// Counts what was written and what could not be decoded.
#[derive(Default)]
struct Tally {
    events: u64,
    undecoded: u64,
    reasons: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn count(&mut self, event: &Event<'_>) {
        self.events += 1;
        if let Err(reason) = &event.found {
            self.undecoded += 1;
            *self.reasons.entry(kind_of(reason)).or_default() += 1;
        }
    }

    fn report(&self) {
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
