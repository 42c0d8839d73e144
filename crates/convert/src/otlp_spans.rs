//! Converts pairs of start and stop events to spans of OpenTelemetry, in the JSON encoding of OTLP.
//!
//! ```text
//!   start (opcode 1) ──▶ open spans ──stop (opcode 2)──▶ span ──▶ batch ──▶ a line
//!
//!   pair    the last open start of the same provider, task and
//!             activity              if the events have an activity id
//!             process and thread    otherwise
//!   parent  the related activity of the start event; else the open span of the same activity;
//!           else the open span of the same thread
//! ```
//!
//! 1. Each line is a complete request with one `resourceSpans` list. Spans are in the order of
//!    their ends.
//! 2. The span of an activity has the trace id and the span id that the logs of that activity have
//!    (`otlp::ids`). Further spans of the same activity, and spans without one, have
//!    ids made from process, thread and time.
//! 3. Attributes are the fields of the start event, then those of the stop event. A field of the
//!    stop event whose name the start event has too gets the prefix `stop.`.
//! 4. A span has the status error if its stop event has the level error or critical.
//! 5. Starts without a stop, and stops without a start, are counted. Events of the kernel are no
//!    pairs: their opcodes 1 and 2 start and stop processes, threads and other objects.
//! 6. The memory of open spans is bounded. Beyond the limit, new starts are counted and left out.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, ReadFlow};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::text::format_count;
use traceweir_analysis::traces::TraceSet;
use traceweir_decode::walk::Walker;
use traceweir_format::Guid;
use traceweir_format::header::Record;

use crate::otlp::attributes::{Attributes, push_key, push_string};
use crate::otlp::batch::{Batch, BatchNames, ResourceKey};
use crate::otlp::host::Host;
use crate::otlp::ids::{ActivityRoots, SpanId, TraceId};
use crate::otlp::{add_header, provider_of, resource_of};
use crate::{Conversion, ConvertInput};

const NAMES: BatchNames = BatchNames { resources: "resourceSpans", scopes: "scopeSpans", records: "spans" };

const OPCODE_START: u8 = 1;
const OPCODE_STOP: u8 = 2;
const LEVEL_ERROR: u8 = 2;
/// `SPAN_KIND_INTERNAL`.
const KIND_INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u8 = 2;
/// The most open spans.
const MAX_OPEN_SPANS: usize = 1 << 16;
/// The most bytes of the attributes of open spans.
const MAX_OPEN_BYTES: usize = 64 << 20;

/// What the events of a pair share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SpanOwner {
    Activity(usize, Guid),
    /// Trace, process, thread.
    Thread(usize, u32, u32),
}

/// Provider, task and owner of a pair.
type PairKey = (Guid, u16, SpanOwner);

/// A span that has begun.
struct OpenSpan {
    key: PairKey,
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

/// Converts the pairs of the traces to spans.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let hosts = Host::read_all(&traces)?;
    let filter = EventFilter::new(&input.criteria, traces.start());
    let mut selection = EventSelection::new(&filter);
    let start_ns = traces.start().unix_ns();
    let mut spans = SpanWriter::new(Batch::new(NAMES, hosts, out), start_ns);
    let reading = traces.read(
        |record, time| is_start_or_stop(record) && filter.accepts_header(record, time),
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

fn is_start_or_stop(record: &Record<'_>) -> bool {
    matches!(record.descriptor().opcode, OPCODE_START | OPCODE_STOP) && record.hook().is_none()
}

/// Returns the name of a span: that of its start event without the mark of the start.
fn span_name(event: &DescribedEvent<'_>) -> String {
    let identity = event.identity();
    let Some(name) = identity.event_name else {
        return format!("task {}", identity.descriptor.task);
    };
    let base = ["/win:Start", "/Start", "_Start", "Start", "/Begin", "Begin"]
        .into_iter()
        .find_map(|end| name.strip_suffix(end))
        .filter(|base| !base.is_empty());
    base.unwrap_or(name).to_owned()
}

/// Pairs starts with stops, and writes spans.
struct SpanWriter<'o> {
    batch: Batch<'o>,
    start_ns: i128,
    roots: ActivityRoots,
    /// Open spans by their pair, the innermost last.
    open: HashMap<PairKey, Vec<OpenSpan>>,
    /// The open spans of each owner, the innermost last.
    by_owner: HashMap<SpanOwner, Vec<(SpanId, TraceId)>>,
    open_spans: usize,
    open_bytes: usize,
    walker: Walker,
    span: Vec<u8>,
    events: u64,
    written: u64,
    stops_without_start: u64,
    /// Starts that the limit left out.
    left_out: u64,
}

impl<'o> SpanWriter<'o> {
    fn new(batch: Batch<'o>, start_ns: i128) -> Self {
        Self {
            batch,
            start_ns,
            roots: ActivityRoots::default(),
            open: HashMap::new(),
            by_owner: HashMap::new(),
            open_spans: 0,
            open_bytes: 0,
            walker: Walker::default(),
            span: Vec::new(),
            events: 0,
            written: 0,
            stops_without_start: 0,
            left_out: 0,
        }
    }

    fn add_event(&mut self, event: &DescribedEvent<'_>) -> Result<()> {
        self.events = self.events.saturating_add(1);
        let activity = self.roots.observe(&event.record);
        let thread = SpanOwner::Thread(event.file, event.record.process_id(), event.record.thread_id());
        let owner = activity.map_or(thread, |activity| SpanOwner::Activity(event.file, activity));
        let descriptor = event.record.descriptor();
        let key = (event.record.provider(), descriptor.task, owner);
        if descriptor.opcode == OPCODE_STOP {
            return self.stop(event, key);
        }
        if self.open_spans >= MAX_OPEN_SPANS || self.open_bytes >= MAX_OPEN_BYTES {
            self.left_out = self.left_out.saturating_add(1);
            return Ok(());
        }
        self.start(event, key, activity);
        Ok(())
    }

    fn start(&mut self, event: &DescribedEvent<'_>, key: PairKey, activity: Option<Guid>) {
        let start_ns = self.start_ns.saturating_add(event.ns_since_start().into());
        let (trace, id, parent) = self.find_ids(event, key.2, activity);
        let mut attributes = Attributes::default();
        add_header(event, &mut attributes);
        attributes.add_fields(event, "", &mut self.walker);
        self.open_bytes = self.open_bytes.saturating_add(attributes.json().len());
        self.open_spans = self.open_spans.saturating_add(1);
        self.by_owner.entry(key.2).or_default().push((id, trace));
        let level = event.record.descriptor().level;
        let span = OpenSpan {
            key,
            trace,
            id,
            parent,
            name: span_name(event),
            start_ns,
            resource: resource_of(event),
            provider: provider_of(event),
            attributes,
            is_error: (1..=LEVEL_ERROR).contains(&level),
        };
        self.open.entry(key).or_default().push(span);
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
        let outer = self.by_owner.get(&owner).and_then(|spans| spans.last()).copied();
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

    fn stop(&mut self, event: &DescribedEvent<'_>, key: PairKey) -> Result<()> {
        let Some(mut span) = self.take_open(key) else {
            self.stops_without_start = self.stops_without_start.saturating_add(1);
            return Ok(());
        };
        span.attributes.add_fields(event, "stop.", &mut self.walker);
        let end_ns = self.start_ns.saturating_add(event.ns_since_start().into());
        let is_error = span.is_error || (1..=LEVEL_ERROR).contains(&event.record.descriptor().level);
        self.write(&span, end_ns.max(span.start_ns), is_error)
    }

    /// Removes the innermost open span of a pair.
    fn take_open(&mut self, key: PairKey) -> Option<OpenSpan> {
        let spans = self.open.get_mut(&key)?;
        let span = spans.pop()?;
        if spans.is_empty() {
            self.open.remove(&key);
        }
        if let Some(open) = self.by_owner.get_mut(&span.key.2) {
            if let Some(index) = open.iter().rposition(|(id, _)| *id == span.id) {
                open.remove(index);
            }
            if open.is_empty() {
                self.by_owner.remove(&span.key.2);
            }
        }
        self.open_spans = self.open_spans.saturating_sub(1);
        self.open_bytes = self.open_bytes.saturating_sub(span.attributes.json().len());
        Some(span)
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
        let mut add = |count: u64, noun: &str, rest: &str| {
            if count > 0 {
                notes.push(format!("{} {rest}", format_count(count, noun)));
            }
        };
        add(self.open_spans as u64, "start event", "without a stop event");
        add(self.stops_without_start, "stop event", "without a start event");
        add(self.left_out, "start event", "left out: too many open spans");
        notes
    }
}
