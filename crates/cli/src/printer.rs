//! Events as they are printed, whether from files or live: chosen, written in a format, and counted.

use std::collections::BTreeMap;

use anstream::eprintln;
use traceweir_decode::Undecoded;
use traceweir_decode::format::Style;

use crate::cli::{Format, Show};
use crate::cmd::grouped;
use crate::event::{Event, Flow};
use crate::export::{self, Sink};
use crate::filter::Filter;
use crate::grep::Grep;

/// Writes the events that the filters let through.
pub(crate) struct Printer<'f> {
    filter: &'f Filter,
    grep: Grep<'f>,
    sink: Box<dyn Sink + Send>,
    /// Events that may still be written.
    left: u64,
    tally: Tally,
}

impl<'f> Printer<'f> {
    pub(crate) fn new(filter: &'f Filter, format: Format, style: Style, show: Show, colour: bool) -> Self {
        let sink = export::sink(format, style, show, colour);
        let left = filter.head.unwrap_or(u64::MAX);
        Self { filter, grep: Grep::new(filter, style), sink, left, tally: Tally::default() }
    }

    /// What stands before the first event.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        self.sink.begin(out);
    }

    /// Writes an event, if it is wanted, and says whether more are.
    #[inline]
    pub(crate) fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Flow {
        if !self.filter.accepts(event) || !self.grep.accepts(event) {
            self.tally.pass_over(event);
            return Flow::Continue;
        }
        let misfit = self.sink.event(event, out);
        self.tally.count(event, misfit.as_ref());
        self.left -= 1;
        if self.left == 0 { Flow::Stop } else { Flow::Continue }
    }

    /// What stands after the last event.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) {
        self.sink.end(out);
    }

    /// Says on standard error what could not be decoded or compared.
    pub(crate) fn report(&self) {
        self.tally.report(self.filter.goes_by_names());
    }
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
