//! Filters, formats and counts events from files and live sessions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use anstream::eprintln;
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::traces::parallel::EventWorker;
use traceweir_analysis::undecoded::MissingSchemas;
use traceweir_decode::Undecoded;
use traceweir_decode::format::Style;
use traceweir_format::Guid;
use traceweir_format::kernel::class_name;

use crate::cli::{OutputFormat, ShownParts};
use crate::export::{self, EventSink};
use crate::filter::{no_match_hint, suggest_providers};
use crate::text::{escape, format_count, format_number};

/// Maximum number of providers that are remembered and listed if no event matched.
const MAX_SKIPPED_PROVIDERS: usize = 1000;
const MAX_LISTED_PROVIDERS: usize = 5;

/// Writes the events that pass the filters.
pub(crate) struct EventPrinter<'f> {
    filter: &'f EventFilter,
    selection: EventSelection<'f>,
    sink: Box<dyn EventSink + Send>,
    /// Whether events that describe the log file are left out.
    hides_file_events: bool,
    counts: DecodeCounts,
    skipped_providers: SkippedProviders,
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
        Self {
            filter,
            selection: EventSelection::with_style(filter, style),
            sink,
            hides_file_events: false,
            counts: DecodeCounts::default(),
            skipped_providers: SkippedProviders::default(),
        }
    }

    /// Leaves out events that describe the log file.
    pub(crate) fn hide_file_events(&mut self) {
        self.hides_file_events = true;
    }

    /// Writes the start of the output, before the first event.
    pub(crate) fn write_start(&mut self, out: &mut Vec<u8>) {
        self.sink.write_start(out);
    }

    /// Writes an event if it passes the filters; returns whether `--head` allows more.
    #[inline]
    pub(crate) fn print_event(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> ReadFlow {
        let describes_file = describes_file(&event.record);
        if self.hides_file_events && describes_file {
            return ReadFlow::Continue;
        }
        if !self.selection.accepts(event) {
            self.counts.add_skipped(event);
            if self.filter.has_providers() {
                self.skipped_providers.add(event, self.filter);
            }
            return ReadFlow::Continue;
        }
        let misfit = self.sink.write_event(event, out);
        self.counts.has_written = true;
        if !describes_file {
            self.counts.add_written(event, misfit.as_ref());
        }
        self.selection.count(event)
    }

    /// Writes the end of the output, after the last event.
    pub(crate) fn write_end(&mut self, out: &mut Vec<u8>) {
        self.sink.write_end(out);
    }

    /// Adds the counts of a printer that printed other events of the same traces.
    pub(crate) fn add_counts(&mut self, other: Self) {
        self.counts.add(other.counts);
        self.skipped_providers.merge(other.skipped_providers);
    }

    /// Prints to standard error how many events could not be decoded or compared.
    pub(crate) fn report_undecoded(&self) {
        if self.counts.events == 0 && self.filter.is_restrictive() {
            let providers = self.skipped_providers.describe(self.filter);
            eprintln!("no event matched{providers}{}", no_match_hint(self.filter));
        }
        if self.counts.without_level > 0 && self.filter.passes_level_0_by_rule() {
            let events = format_count(self.counts.without_level, "event");
            eprintln!(
                "note: {events} of level 0, which --level always shows: most kernel events have it; --provider NAME selects others"
            );
        }
        self.counts.report(self.filter.uses_names() && !self.filter.selects_kernel_names());
    }
}

impl EventWorker for EventPrinter<'_> {
    fn add_event(&mut self, event: &DescribedEvent<'_>, _: u64, out: &mut Vec<u8>) {
        self.print_event(event, out);
    }
}

/// Counts written and undecoded events.
#[derive(Default)]
struct DecodeCounts {
    /// Whether any event was written.
    has_written: bool,
    /// The number of events written so far, without those that describe the log file.
    events: u64,
    /// Those of level 0.
    without_level: u64,
    /// Written events that could not be decoded.
    undecoded: u64,
    reasons: BTreeMap<&'static str, u64>,
    missing: MissingSchemas,
    /// Events without a schema that the filters rejected.
    without_schema: u64,
}

impl DecodeCounts {
    /// Counts an event that does not describe the log file.
    #[inline]
    fn add_written(&mut self, event: &DescribedEvent<'_>, misfit: Option<&Undecoded>) {
        self.events += 1;
        self.without_level += u64::from(event.record.descriptor().level == 0);
        if let Some(reason) = event.schema_match.as_ref().err().or(misfit) {
            self.undecoded += 1;
            *self.reasons.entry(describe_reason(reason)).or_default() += 1;
            self.missing.add(event, reason);
        }
    }

    fn add(&mut self, other: Self) {
        self.has_written |= other.has_written;
        self.events = self.events.saturating_add(other.events);
        self.without_level = self.without_level.saturating_add(other.without_level);
        self.undecoded = self.undecoded.saturating_add(other.undecoded);
        self.without_schema = self.without_schema.saturating_add(other.without_schema);
        for (reason, count) in other.reasons {
            let sum = self.reasons.entry(reason).or_default();
            *sum = sum.saturating_add(count);
        }
        self.missing.merge(other.missing);
    }

    fn add_skipped(&mut self, event: &DescribedEvent<'_>) {
        self.without_schema += u64::from(event.schema_match.is_err());
    }

    fn report(&self, uses_names: bool) {
        if uses_names && self.without_schema > 0 {
            let events = format_count(self.without_schema, "event");
            let were = if self.without_schema == 1 { "was" } else { "were" };
            eprintln!(
                "{events} without a schema {were} not compared by name or decoded text: --manifest may help"
            );
        }
        if self.undecoded == 0 {
            return;
        }
        let (undecoded, events) = (format_number(self.undecoded), format_count(self.events, "event"));
        eprintln!("{undecoded} of {events} could not be decoded:");
        for (reason, count) in &self.reasons {
            eprintln!("  {:>10}  {reason}", format_number(*count));
        }
        self.missing.describe().iter().for_each(|line| eprintln!("{line}"));
    }
}

/// The providers that `--provider` rejected, to list them if no event matched.
#[derive(Default)]
struct SkippedProviders {
    /// Name and number of events by GUID.
    providers: HashMap<Guid, (String, u64)>,
    /// Whether another filter rejected an event of a requested provider.
    has_requested: bool,
}

impl SkippedProviders {
    fn add(&mut self, event: &DescribedEvent<'_>, filter: &EventFilter) {
        let guid = event.record.provider();
        if let Some((_, count)) = self.providers.get_mut(&guid) {
            *count += 1;
        } else if filter.accepts_provider(event) {
            self.has_requested = true;
        } else if self.providers.len() < MAX_SKIPPED_PROVIDERS && !describes_file(&event.record) {
            let class = class_name(&guid).map_or_else(String::new, |class| format!(" ({class})"));
            let name = event.provider.map_or_else(|| format!("{{{guid}}}"), |name| format!("{name}{class}"));
            self.providers.insert(guid, (name, 1));
        }
    }

    fn merge(&mut self, other: Self) {
        self.has_requested |= other.has_requested;
        for (guid, (name, count)) in other.providers {
            if let Some((_, sum)) = self.providers.get_mut(&guid) {
                *sum = sum.saturating_add(count);
            } else if self.providers.len() < MAX_SKIPPED_PROVIDERS {
                self.providers.insert(guid, (name, count));
            }
        }
    }

    /// Describes the providers, to follow "no event matched"; empty if a requested provider has
    /// events.
    fn describe(&self, filter: &EventFilter) -> String {
        if self.has_requested || self.providers.is_empty() {
            return String::new();
        }
        let mut providers: Vec<&(String, u64)> = self.providers.values().collect();
        providers.sort_by_key(|(name, count)| (Reverse(*count), name));
        let mut names: Vec<String> = Vec::new();
        for (name, _) in providers {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let shown: Vec<String> = names.iter().take(MAX_LISTED_PROVIDERS).map(|name| escape(name)).collect();
        let more = match names.len().saturating_sub(shown.len()) {
            0 => String::new(),
            more => format!(" and {} more", format_number(more as u64)),
        };
        let question = suggest_providers(filter, &names).map_or_else(String::new, |text| format!(". {text}"));
        format!(": the trace has events of {}{more}{question}", shown.join(", "))
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
