//! Prints events, from files or live: filters, formats and counts them.

use std::collections::BTreeMap;

use anstream::eprintln;
use traceweir_decode::Undecoded;
use traceweir_decode::format::Style;

use crate::cli::{OutputFormat, ShownParts};
use crate::event::{Event, Flow};
use crate::export::{self, Sink};
use crate::filter::Filter;
use crate::grep::Grep;
use crate::text::grouped;

/// Writes the events that pass the filters.
pub(crate) struct Printer<'f> {
    filter: &'f Filter,
    grep: Grep<'f>,
    sink: Box<dyn Sink + Send>,
    /// Number of events that may still be written.
    left: u64,
    tally: Tally,
}

impl<'f> Printer<'f> {
    pub(crate) fn new(
        filter: &'f Filter,
        format: OutputFormat,
        style: Style,
        show: ShownParts,
        colour: bool,
    ) -> Self {
        let sink = export::sink(format, style, show, colour);
        let left = filter.head.unwrap_or(u64::MAX);
        Self { filter, grep: Grep::new(filter, style), sink, left, tally: Tally::default() }
    }

    /// Writes what precedes the first event.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        self.sink.begin(out);
    }

    /// Writes an event if it passes the filters; returns whether more are wanted.
    #[inline]
    pub(crate) fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Flow {
        if !self.filter.accepts(event) || !self.grep.accepts(event) {
            self.tally.skip(event);
            return Flow::Continue;
        }
        let misfit = self.sink.event(event, out);
        self.tally.count(event, misfit.as_ref());
        self.left -= 1;
        if self.left == 0 { Flow::Stop } else { Flow::Continue }
    }

    /// Writes what follows the last event.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) {
        self.sink.end(out);
    }

    /// Prints to standard error what could not be decoded or compared.
    pub(crate) fn report(&self) {
        self.tally.report(self.filter.uses_names());
    }
}

/// Counts written and undecoded events.
#[derive(Default)]
struct Tally {
    events: u64,
    undecoded: u64,
    reasons: BTreeMap<&'static str, u64>,
    /// Events without a schema that passed no filter.
    without_schema: u64,
}

impl Tally {
    fn count(&mut self, event: &Event<'_>, misfit: Option<&Undecoded>) {
        self.events += 1;
        if let Some(reason) = event.found.as_ref().err().or(misfit) {
            self.undecoded += 1;
            *self.reasons.entry(describe_reason(reason)).or_default() += 1;
        }
    }

    fn skip(&mut self, event: &Event<'_>) {
        self.without_schema += u64::from(event.found.is_err());
    }

    fn report(&self, by_names: bool) {
        if by_names && self.events == 0 {
            eprintln!("no event matched");
        }
        if by_names && self.without_schema > 0 {
            let without_schema = grouped(self.without_schema);
            eprintln!(
                "{without_schema} events without a schema were not compared by name or decoded text: --manifest may help"
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

fn describe_reason(reason: &Undecoded) -> &'static str {
    match reason {
        Undecoded::NoSchema => "no schema: give the provider's manifest or binary with --manifest",
        Undecoded::NoKernelLayout { .. } => "kernel events without a published layout",
        Undecoded::NoMessageFormat => "WPP messages without a format: give --tmf or --pdb",
        Undecoded::BadMetadata(_) => "damaged metadata in the event",
        Undecoded::UnknownRecord(_) => "records of a type without a published layout",
        _ => "payloads that do not fit their schema",
    }
}
