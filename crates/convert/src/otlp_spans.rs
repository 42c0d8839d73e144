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
//! 3. Attributes are the fields of the start event, then those of the stop event. A field of the
//!    stop event whose name the start event has too gets the prefix `stop.`.
//! 4. A span has the status error if its stop event has the level error or critical.
//! 5. Starts without a stop, and stops without a start, are counted.
//! 6. The memory of open spans is bounded. Beyond the limit, new starts are counted and left out.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, ReadFlow};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::pairs::{Begun, OpenPair, OpenPairs, PairEvent, is_pair_event, pair_name};
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::text::format_count;
use traceweir_analysis::traces::TraceSet;
use traceweir_decode::walk::Walker;
use traceweir_format::Guid;

use crate::activity::number_machines;
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
    let reading = traces.read(
        |record, time| is_pair_event(record) && filter.accepts_header(record, time),
        |event| {
            if !selection.accepts(event) {
                return Ok(ReadFlow::Continue);
            }
            spans.add_event(event)?;
            Ok(selection.count(event))
        },
    )?;
    spans.batch.flush()?;
    let notes = spans.notes();
    let (events, written) = (spans.events, spans.written);
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
    open: OpenPairs<ThreadKey, OpenSpan>,
    /// The open spans of each owner, the innermost last, with the ids of the pairs.
    by_owner: BTreeMap<(SpanOwner, u64), (SpanId, TraceId)>,
    open_bytes: usize,
    walker: Walker,
    span: Vec<u8>,
    events: u64,
    written: u64,
    stops_without_start: u64,
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
            by_owner: BTreeMap::new(),
            open_bytes: 0,
            walker: Walker::default(),
            span: Vec::new(),
            events: 0,
            written: 0,
            stops_without_start: 0,
            replaced: 0,
            left_out: 0,
        }
    }

    fn add_event(&mut self, event: &DescribedEvent<'_>) -> Result<()> {
        self.events = self.events.saturating_add(1);
        let record = &event.record;
        let activity = self.roots.observe(record);
        let machine = self.machines.get(event.file).copied().unwrap_or(u16::MAX);
        let thread = (machine, record.process_id(), record.thread_id());
        let Some(pair_event) = PairEvent::from_record(record, thread) else { return Ok(()) };
        if !pair_event.is_start {
            return self.stop(event, &pair_event);
        }
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
        let (walker, mut bytes) = (&mut self.walker, 0);
        let begun = self.open.begin(start, |_, _| {
            let mut attributes = Attributes::default();
            add_header(event, &mut attributes);
            attributes.add_fields(event, "", walker);
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
            span
        });
        match begun {
            Begun::Open { id: pair, replaced } => {
                if let Some(OpenPair { id, data, .. }) = replaced {
                    self.replaced = self.replaced.saturating_add(1);
                    self.forget(id, &data);
                }
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

    fn stop(&mut self, event: &DescribedEvent<'_>, stop: &PairEvent<ThreadKey>) -> Result<()> {
        let Some(OpenPair { id, data: mut span, .. }) = self.open.end(stop) else {
            self.stops_without_start = self.stops_without_start.saturating_add(1);
            return Ok(());
        };
        self.forget(id, &span);
        span.attributes.add_fields(event, "stop.", &mut self.walker);
        let end_ns = self.start_ns.saturating_add(event.ns_since_start().into());
        self.write(&span, end_ns.max(span.start_ns), span.is_error || is_error(event))
    }

    /// Removes a span that is no longer open from the tables of open spans.
    fn forget(&mut self, pair: u64, span: &OpenSpan) {
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

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.events == 0 {
            notes.push("the traces contain neither start events nor stop events".to_owned());
        }
        let mut add = |count: u64, noun: &str, rest: &str| {
            if count > 0 {
                notes.push(format!("{} {rest}", format_count(count, noun)));
            }
        };
        add((self.open.len() as u64).saturating_add(self.replaced), "start event", "without a stop event");
        add(self.stops_without_start, "stop event", "without a start event");
        add(self.left_out, "start event", "left out: too many open spans");
        notes
    }
}
