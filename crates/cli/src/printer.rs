//! Filters, formats and counts events from files and live sessions.

use std::collections::BTreeMap;

use anstream::eprintln;
use traceweir_decode::Undecoded;
use traceweir_decode::format::Style;

use crate::cli::{OutputFormat, ShownParts};
use crate::event::{DescribedEvent, ReadFlow};
use crate::export::{self, EventSink};
use crate::filter::EventFilter;
use crate::grep::Grep;
use crate::missing::MissingSchemas;
use crate::text::format_number;

/// Writes the events that pass the filters.
pub(crate) struct EventPrinter<'f> {
    filter: &'f EventFilter,
    grep: Grep<'f>,
    sink: Box<dyn EventSink + Send>,
    /// Number of events that `--head` still allows.
    remaining: u64,
    counts: DecodeCounts,
}

impl<'f> EventPrinter<'f> {
    pub(crate) fn new(
        filter: &'f EventFilter,
        format: OutputFormat,
        style: Style,
        show: ShownParts,
        is_colourful: bool,
    ) -> Self {
        let sink = export::create_sink(format, style, show, is_colourful);
        let remaining = filter.head.unwrap_or(u64::MAX);
        Self { filter, grep: Grep::new(filter, style), sink, remaining, counts: DecodeCounts::default() }
    }

    /// Writes the start of the output, before the first event.
    pub(crate) fn write_start(&mut self, out: &mut Vec<u8>) {
        self.sink.write_start(out);
    }

    /// Writes an event if it passes the filters; returns whether `--head` allows more.
    #[inline]
    pub(crate) fn print_event(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> ReadFlow {
        if !self.filter.accepts(event) || !self.grep.accepts(event) {
            self.counts.add_skipped(event);
            return ReadFlow::Continue;
        }
        let misfit = self.sink.write_event(event, out);
        self.counts.add_written(event, misfit.as_ref());
        self.remaining -= 1;
        if self.remaining == 0 { ReadFlow::Stop } else { ReadFlow::Continue }
    }

    /// Writes the end of the output, after the last event.
    pub(crate) fn write_end(&mut self, out: &mut Vec<u8>) {
        self.sink.write_end(out);
    }

    /// Prints to standard error how many events could not be decoded or compared.
    pub(crate) fn report_undecoded(&self) {
        self.counts.report(self.filter.uses_names());
    }
}

/// Counts written and undecoded events.
#[derive(Default)]
struct DecodeCounts {
    /// The number of events written so far.
    events: u64,
    /// Written events that could not be decoded.
    undecoded: u64,
    reasons: BTreeMap<&'static str, u64>,
    missing: MissingSchemas,
    /// Events without a schema that the filters rejected.
    without_schema: u64,
}

impl DecodeCounts {
    fn add_written(&mut self, event: &DescribedEvent<'_>, misfit: Option<&Undecoded>) {
        self.events += 1;
        if let Some(reason) = event.schema_match.as_ref().err().or(misfit) {
            self.undecoded += 1;
            *self.reasons.entry(describe_reason(reason)).or_default() += 1;
            self.missing.add(event, reason);
        }
    }

    fn add_skipped(&mut self, event: &DescribedEvent<'_>) {
        self.without_schema += u64::from(event.schema_match.is_err());
    }

    fn report(&self, uses_names: bool) {
        if uses_names && self.events == 0 {
            eprintln!("no event matched");
        }
        if uses_names && self.without_schema > 0 {
            let without_schema = format_number(self.without_schema);
            eprintln!(
                "{without_schema} events without a schema were not compared by name or decoded text: --manifest may help"
            );
        }
        if self.undecoded == 0 {
            return;
        }
        let (undecoded, events) = (format_number(self.undecoded), format_number(self.events));
        eprintln!("{undecoded} of {events} events could not be decoded:");
        for (reason, count) in &self.reasons {
            eprintln!("  {:>10}  {reason}", format_number(*count));
        }
        self.missing.report();
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
