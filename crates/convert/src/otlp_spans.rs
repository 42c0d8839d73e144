//! Converts pairs of start and stop events to spans of OpenTelemetry, in the JSON encoding of OTLP.
//!
//! ```text
//!   start (opcode 1) ──▶ open spans ──stop (opcode 2)──▶ span ──▶ batch ──▶ a line
//!
//!   parent  with an activity: the open span of the same activity; else the related activity of the
//!                             start event
//!           without one:      the open span of the same thread that has no activity either
//! ```
//!
//! Starts and stops pair as [`traceweir_analysis::pairs`] describes. A thread is identified by its
//! machine, process and thread id.
//!
//! 1. Each line is a complete request with one `resourceSpans` list. Spans are in the order of
//!    their ends.
//! 2. The span of an activity has the trace id and the span id that the logs of that activity have
//!    (`otlp::ids`). Further spans of the same activity, and spans without one, have
//!    ids made from process, thread and time.
//! 3. Attributes are the fields and the message of the start event, then those of the stop event. A
//!    field of the stop event whose name the start event has too gets the prefix `stop.`, and so does
//!    its message.
//! 4. A span has the status error if its stop event has the level error or critical.
//! 5. Starts without a stop, and stops without a start, are counted.
//!    The filters select spans by their start events. Those that they do not select take part in the
//!    pairing all the same.
//! 6. The memory of open spans is bounded. Beyond the limit, new starts are counted and left out.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::pairs::{Begun, OpenPair, OpenPairs, PairEvent, is_pair_event, pair_name};
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::text::format_count;
use traceweir_analysis::traces::TraceSet;
use traceweir_analysis::undecoded::UndecodedEvents;
use traceweir_decode::walk::Walker;
use traceweir_format::Guid;

use crate::activity::number_machines;
use crate::message::MessageReader;
use crate::otlp::attributes::{Attributes, push_key, push_string};
use crate::otlp::batch::{Batch, BatchNames, ResourceKey};
use crate::otlp::host::Host;
use crate::otlp::ids::{ActivityRoots, SpanId, TraceId};
use crate::otlp::{add_header, provider_of, resource_of};
use crate::{Conversion, ConvertInput};

const NAMES: BatchNames = BatchNames { resources: "resourceSpans", scopes: "scopeSpans", records: "spans" };

const LEVEL_ERROR: u8 = 2;
/// `SPAN_KIND_INTERNAL`.
const KIND_INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u8 = 2;
/// The most spans that are open on one thread.
const MAX_OPEN_PER_THREAD: usize = 1 << 10;
/// The most bytes of open spans.
const MAX_OPEN_BYTES: usize = 128 << 20;
/// The bytes of an open span in the tables that find it.
const TABLE_BYTES: usize = 256;

/// A thread by machine, process and thread id.
type ThreadKey = (u16, u32, u32);

/// The spans that can be the parents of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SpanOwner {
    /// Machine and activity.
    Activity(u16, Guid),
    /// The spans of a thread without an activity.
    Thread(ThreadKey),
}

/// A span that has begun.
struct OpenSpan {
    owner: SpanOwner,
    trace: TraceId,
    id: SpanId,
    parent: Option<SpanId>,
    name: String,
    start_ns: i128,
    resource: ResourceKey,
    provider: String,
    attributes: Attributes,
    /// Whether the start event was an error.
    is_error: bool,
}

impl OpenSpan {
    /// Returns the estimated memory of the span, in bytes.
    fn memory_bytes(&self) -> usize {
        let texts = [self.name.len(), self.provider.len(), self.resource.2.len()];
        let own =
            size_of::<Self>().saturating_add(TABLE_BYTES).saturating_add(self.attributes.memory_bytes());
        texts.into_iter().fold(own, usize::saturating_add)
    }
}

/// Converts the pairs of the traces to spans.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let hosts = Host::read_all(&traces)?;
    let machines = number_machines(traces.inputs.iter().map(|input| input.trace.header()));
    let filter = EventFilter::new(&input.criteria, traces.start());
    let mut selection = EventSelection::new(&filter);
    let start_ns = traces.start().unix_ns();
    let mut spans = SpanWriter::new(Batch::new(NAMES, hosts, out), machines, start_ns);
    // Other events are described until one of them is selected: then it is known that the filters match.
    let has_others = Cell::new(false);
    // Whether the filters select no more events, because there were as many as they allow.
    let mut is_full = false;
    let reading = traces.read(
        |record, time| match is_pair_event(record) {
            true => filter.accepts_time(time),
            false => !has_others.get() && !describes_file(record) && filter.accepts_header(record, time),
        },
        |event| {
            let is_selected =
                !is_full && filter.accepts_header(&event.record, event.time) && selection.accepts(event);
            if !is_pair_event(&event.record) {
                has_others.set(has_others.get() || is_selected);
                return Ok(ReadFlow::Continue);
            }
            spans.add_event(event, is_selected)?;
            if is_selected {
                is_full = selection.count(event) == ReadFlow::Stop;
            }
            let is_done = is_full && spans.selected_open == 0;
            Ok(if is_done { ReadFlow::Stop } else { ReadFlow::Continue })
        },
    )?;
    spans.batch.flush()?;
    let notes = spans.notes(&filter);
    let (events, written) = (spans.events.saturating_add(has_others.get().into()), spans.written);
    Ok(Conversion { events, written, written_noun: "span", notes, reading })
}

/// Returns the name of the span that a start event begins.
fn span_name(event: &DescribedEvent<'_>) -> String {
    let identity = event.identity();
    match identity.event_name {
        Some(name) => pair_name(name).to_owned(),
        None => format!("task {}", identity.descriptor.task),
    }
}

/// Adds the message of an event, or counts the event if it cannot be decoded.
fn add_message(
    event: &DescribedEvent<'_>,
    prefix: &str,
    attributes: &mut Attributes,
    messages: &mut MessageReader,
    undecoded: &mut UndecodedEvents,
) {
    match &event.schema_match {
        Ok(schema) => {
            if let Some(message) = messages.read(schema, event.record.pointer_size()) {
                attributes.add_prefixed_text(prefix, "message", &message);
            }
        }
        Err(reason) => undecoded.add(event, reason),
    }
}

/// Returns whether the level of an event is that of an error.
fn is_error(event: &DescribedEvent<'_>) -> bool {
    (1..=LEVEL_ERROR).contains(&event.record.descriptor().level)
}

/// Pairs starts with stops, and writes spans.
struct SpanWriter<'o> {
    batch: Batch<'o>,
    /// The number of the machine of each trace.
    machines: Vec<u16>,
    start_ns: i128,
    roots: ActivityRoots,
    /// Starts that the filters do not select have no span.
    open: OpenPairs<ThreadKey, Option<Box<OpenSpan>>>,
    /// Number of open spans.
    selected_open: usize,
    /// The open spans of each owner, the innermost last, with the ids of the pairs.
    by_owner: BTreeMap<(SpanOwner, u64), (SpanId, TraceId)>,
    open_bytes: usize,
    walker: Walker,
    messages: MessageReader,
    undecoded: UndecodedEvents,
    span: Vec<u8>,
    events: u64,
    written: u64,
    stops_without_start: u64,
    /// Selected stops of starts that the filters do not select.
    stops_of_unselected: u64,
    /// Starts that gave way to others.
    replaced: u64,
    /// Starts that the limit left out.
    left_out: u64,
}

impl<'o> SpanWriter<'o> {
    fn new(batch: Batch<'o>, machines: Vec<u16>, start_ns: i128) -> Self {
        Self {
            batch,
            machines,
            start_ns,
            roots: ActivityRoots::default(),
            open: OpenPairs::with_max_per_thread(MAX_OPEN_PER_THREAD),
            selected_open: 0,
            by_owner: BTreeMap::new(),
            open_bytes: 0,
            walker: Walker::default(),
            messages: MessageReader::default(),
            undecoded: UndecodedEvents::default(),
            span: Vec::new(),
            events: 0,
            written: 0,
            stops_without_start: 0,
            stops_of_unselected: 0,
            replaced: 0,
            left_out: 0,
        }
    }

    /// Adds a start or a stop, which the filters may not select.
    fn add_event(&mut self, event: &DescribedEvent<'_>, is_selected: bool) -> Result<()> {
        let record = &event.record;
        let machine = self.machines.get(event.file).copied().unwrap_or(u16::MAX);
        let thread = (machine, record.process_id(), record.thread_id());
        let Some(pair_event) = PairEvent::from_record(record, thread) else { return Ok(()) };
        if !pair_event.is_start {
            self.events = self.events.saturating_add(is_selected.into());
            return self.stop(event, &pair_event, is_selected);
        }
        if !is_selected {
            let replaced = match self.open.begin(&pair_event, |_, _| None) {
                Begun::Open { replaced, .. } => replaced,
                Begun::Repeated | Begun::Full => None,
            };
            self.forget_replaced(replaced);
            return Ok(());
        }
        self.events = self.events.saturating_add(1);
        let activity = self.roots.observe(record);
        if self.open_bytes >= MAX_OPEN_BYTES {
            self.left_out = self.left_out.saturating_add(1);
        } else {
            self.start(event, &pair_event, activity);
        }
        Ok(())
    }

    fn start(&mut self, event: &DescribedEvent<'_>, start: &PairEvent<ThreadKey>, activity: Option<Guid>) {
        let owner = match activity {
            Some(activity) => SpanOwner::Activity(start.thread.0, activity),
            None => SpanOwner::Thread(start.thread),
        };
        let (trace, id, parent) = self.find_ids(event, owner, activity);
        let Self { walker, messages, undecoded, .. } = self;
        let mut bytes = 0;
        let begun = self.open.begin(start, |_, _| {
            let mut attributes = Attributes::default();
            add_header(event, &mut attributes);
            attributes.add_fields(event, "", walker);
            add_message(event, "", &mut attributes, messages, undecoded);
            let span = OpenSpan {
                owner,
                trace,
                id,
                parent,
                name: span_name(event),
                start_ns: self.start_ns.saturating_add(event.ns_since_start().into()),
                resource: resource_of(event),
                provider: provider_of(event),
                attributes,
                is_error: is_error(event),
            };
            bytes = span.memory_bytes();
            Some(Box::new(span))
        });
        match begun {
            Begun::Open { id: pair, replaced } => {
                self.forget_replaced(replaced);
                self.selected_open = self.selected_open.saturating_add(1);
                self.open_bytes = self.open_bytes.saturating_add(bytes);
                self.by_owner.insert((owner, pair), (id, trace));
            }
            Begun::Repeated => {}
            Begun::Full => self.left_out = self.left_out.saturating_add(1),
        }
    }

    /// Returns the trace, the id and the parent of a new span.
    fn find_ids(
        &self,
        event: &DescribedEvent<'_>,
        owner: SpanOwner,
        activity: Option<Guid>,
    ) -> (TraceId, SpanId, Option<SpanId>) {
        let record = &event.record;
        let parts: [&[u8]; 5] = [
            &event.file.to_le_bytes(),
            &record.process_id().to_le_bytes(),
            &record.thread_id().to_le_bytes(),
            &record.time().to_le_bytes(),
            // Tells apart spans that begin at the same time.
            &self.events.to_le_bytes(),
        ];
        let outer = self.by_owner.range((owner, 0)..=(owner, u64::MAX)).next_back().map(|(_, ids)| *ids);
        let Some(activity) = activity else {
            let trace = outer.map_or_else(|| TraceId::from_parts(&parts), |(_, trace)| trace);
            return (trace, SpanId::from_parts(&parts), outer.map(|(id, _)| id));
        };
        let trace = self.roots.trace_of(activity);
        if let Some((outer, _)) = outer {
            return (trace, SpanId::from_parts(&parts), Some(outer));
        }
        let related = record.items().related_activity();
        let related = related.filter(|related| !related.is_null() && *related != activity);
        (trace, SpanId::from_activity(activity), related.map(SpanId::from_activity))
    }

    fn stop(
        &mut self,
        event: &DescribedEvent<'_>,
        stop: &PairEvent<ThreadKey>,
        is_selected: bool,
    ) -> Result<()> {
        let Some(OpenPair { id, data, .. }) = self.open.end(stop) else {
            self.stops_without_start = self.stops_without_start.saturating_add(is_selected.into());
            return Ok(());
        };
        let Some(mut span) = data else {
            self.stops_of_unselected = self.stops_of_unselected.saturating_add(is_selected.into());
            return Ok(());
        };
        self.forget(id, &span);
        let Self { walker, messages, undecoded, .. } = self;
        span.attributes.add_fields(event, "stop.", walker);
        add_message(event, "stop.", &mut span.attributes, messages, undecoded);
        let end_ns = self.start_ns.saturating_add(event.ns_since_start().into());
        self.write(&span, end_ns.max(span.start_ns), span.is_error || is_error(event))
    }

    /// Counts a start that gave way to another, if the filters select it.
    fn forget_replaced(&mut self, replaced: Option<OpenPair<ThreadKey, Option<Box<OpenSpan>>>>) {
        if let Some(OpenPair { id, data: Some(span), .. }) = replaced {
            self.replaced = self.replaced.saturating_add(1);
            self.forget(id, &span);
        }
    }

    /// Removes a span that is no longer open from the tables of open spans.
    fn forget(&mut self, pair: u64, span: &OpenSpan) {
        self.selected_open = self.selected_open.saturating_sub(1);
        self.by_owner.remove(&(span.owner, pair));
        self.open_bytes = self.open_bytes.saturating_sub(span.memory_bytes());
    }

    fn write(&mut self, span: &OpenSpan, end_ns: i128, is_error: bool) -> Result<()> {
        let to_ns = |ns: i128| u64::try_from(ns).unwrap_or(0);
        let (trace, id, start_ns, end_ns) = (span.trace, span.id, to_ns(span.start_ns), to_ns(end_ns));
        let out = &mut self.span;
        out.clear();
        out.extend_from_slice(format!("{{\"traceId\":\"{trace}\",\"spanId\":\"{id}\"").as_bytes());
        if let Some(parent) = span.parent {
            out.extend_from_slice(format!(",\"parentSpanId\":\"{parent}\"").as_bytes());
        }
        push_key("name", out);
        push_string(&span.name, out);
        let times = format!(
            ",\"kind\":{KIND_INTERNAL},\"startTimeUnixNano\":\"{start_ns}\",\"endTimeUnixNano\":\"{end_ns}\""
        );
        out.extend_from_slice(times.as_bytes());
        out.extend_from_slice(b",\"attributes\":[");
        out.extend_from_slice(span.attributes.json());
        out.push(b']');
        if span.attributes.dropped > 0 {
            let dropped = format!(",\"droppedAttributesCount\":{}", span.attributes.dropped);
            out.extend_from_slice(dropped.as_bytes());
        }
        let status =
            if is_error { format!(",\"status\":{{\"code\":{STATUS_ERROR}}}") } else { String::new() };
        out.extend_from_slice(status.as_bytes());
        out.push(b'}');
        self.written = self.written.saturating_add(1);
        self.batch.add(&span.resource, &span.provider, &self.span)
    }

    fn notes(&self, filter: &EventFilter) -> Vec<String> {
        let mut notes = self.undecoded.describe();
        if self.events == 0 {
            let subject = if filter.is_restrictive() { "the filters select" } else { "the traces contain" };
            notes.push(format!("{subject} neither start events nor stop events"));
        }
        let span = if filter.time_span() == (None, None) { "" } else { " in the time span" };
        let mut add = |count: u64, noun: &str, rest: &str| {
            if count > 0 {
                notes.push(format!("{} {rest}", format_count(count, noun)));
            }
        };
        let open = (self.selected_open as u64).saturating_add(self.replaced);
        add(open, "start event", &format!("without a stop event{span}"));
        add(self.stops_without_start, "stop event", &format!("without a start event{span}"));
        add(self.stops_of_unselected, "stop event", "whose start event the filters do not select");
        add(self.left_out, "start event", "left out: too many open spans");
        notes
    }
}
