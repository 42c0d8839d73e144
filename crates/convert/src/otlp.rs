//! Converts events to logs of OpenTelemetry, in the JSON encoding of OTLP.
//!
//! ```text
//!   event ──▶ log record: time, severity, name, body, attributes, trace id, span id
//!               │
//!               └──▶ batch: resource (machine, process) ─▶ scope (provider) ─▶ records ─▶ a line
//! ```
//!
//! 1. Each line is a complete request with one `resourceLogs` list.
//! 2. Severity comes from the level: critical 21, error 17, warning 13, information 9, verbose 5,
//!    higher levels 1; level 0, which always passes filters, is 9.
//! 3. The body is the message of the event or, without one, its name.
//! 4. Attributes are the fields by name, and facts of the header with the prefix `etw.`.
//! 5. Trace id and span id come from the activity id (`ids`).
//! 6. At the end of each trace with losses, one record of severity 13 reports them.

pub(crate) mod attributes;
pub(crate) mod batch;
pub(crate) mod host;
pub(crate) mod ids;
#[cfg(test)]
pub(crate) mod tests;

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::text::format_count;
use traceweir_analysis::traces::TraceSet;
use traceweir_analysis::undecoded::MissingSchemas;
use traceweir_decode::walk::Walker;
use traceweir_format::header::NO_ID;

use self::attributes::{Attributes, push_key, push_string};
use self::batch::{Batch, BatchNames, ResourceKey};
use self::host::Host;
use self::ids::{ActivityRoots, SpanId};
use crate::message::MessageReader;
use crate::{Conversion, ConvertInput};

const NAMES: BatchNames =
    BatchNames { resources: "resourceLogs", scopes: "scopeLogs", records: "logRecords" };

/// The scope of records that this program makes.
const OWN_SCOPE: &str = "traceweir";
const SEVERITY_WARNING: u8 = 13;

/// Converts the events of the traces to logs.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let hosts = Host::read_all(&traces)?;
    let filter = EventFilter::new(&input.criteria, traces.start());
    let mut selection = EventSelection::new(&filter);
    let start_ns = traces.start().unix_ns();
    let mut logs = LogWriter::new(Batch::new(NAMES, hosts.clone(), out), start_ns);
    let reading = traces.read(
        |record, time| !describes_file(record) && filter.accepts_header(record, time),
        |event| {
            if !selection.accepts(event) {
                return Ok(ReadFlow::Continue);
            }
            logs.write(event)?;
            Ok(selection.count(event))
        },
    )?;
    logs.write_losses(&hosts)?;
    logs.batch.flush()?;
    let mut notes = Vec::new();
    if logs.cut > 0 {
        notes.push(format!("{} without some of their attributes", format_count(logs.cut, "record")));
    }
    if logs.undecoded > 0 {
        notes.push(format!("{} without decoded fields", format_count(logs.undecoded, "record")));
        notes.extend(logs.missing.describe());
    }
    let (events, written) = (logs.events, logs.written);
    Ok(Conversion { events, written, written_noun: "log record", notes, reading })
}

/// Returns the process that an event belongs to.
pub(crate) fn resource_of(event: &DescribedEvent<'_>) -> ResourceKey {
    let (pid, _) = event.concerned_ids();
    (event.file, pid, event.process.unwrap_or_default().to_owned())
}

/// Returns the name of the provider, or else its GUID.
pub(crate) fn provider_of(event: &DescribedEvent<'_>) -> String {
    event.provider.map_or_else(|| event.record.provider().to_string(), str::to_owned)
}

/// Adds the facts of the header of an event.
pub(crate) fn add_header(event: &DescribedEvent<'_>, attributes: &mut Attributes) {
    let (record, descriptor) = (&event.record, event.record.descriptor());
    let (_, tid) = event.concerned_ids();
    if tid != NO_ID {
        attributes.add_integer("thread.id", tid.into());
    }
    attributes.add_integer("cpu.logical_number", record.cpu().into());
    attributes.add_integer("etw.id", descriptor.id.into());
    attributes.add_integer("etw.version", descriptor.version.into());
    attributes.add_integer("etw.opcode", descriptor.opcode.into());
    attributes.add_integer("etw.task", descriptor.task.into());
    if descriptor.keyword != 0 {
        attributes.add_text("etw.keyword", &format!("{:#x}", descriptor.keyword));
    }
}

/// Returns the number and the text of the severity of a level.
const fn severity_of(level: u8) -> (u8, &'static str) {
    match level {
        0 => (9, "always"),
        1 => (21, "critical"),
        2 => (17, "error"),
        3 => (SEVERITY_WARNING, "warning"),
        4 => (9, "information"),
        5 => (5, "verbose"),
        _ => (1, "trace"),
    }
}

/// Writes log records.
struct LogWriter<'o> {
    batch: Batch<'o>,
    start_ns: i128,
    roots: ActivityRoots,
    attributes: Attributes,
    walker: Walker,
    messages: MessageReader,
    record: Vec<u8>,
    last_ns: i128,
    events: u64,
    written: u64,
    /// Number of records without some of their attributes.
    cut: u64,
    undecoded: u64,
    missing: MissingSchemas,
}

impl<'o> LogWriter<'o> {
    fn new(batch: Batch<'o>, start_ns: i128) -> Self {
        Self {
            batch,
            start_ns,
            roots: ActivityRoots::default(),
            attributes: Attributes::default(),
            walker: Walker::default(),
            messages: MessageReader::default(),
            record: Vec::new(),
            last_ns: start_ns,
            events: 0,
            written: 0,
            cut: 0,
            undecoded: 0,
            missing: MissingSchemas::default(),
        }
    }

    fn write(&mut self, event: &DescribedEvent<'_>) -> Result<()> {
        self.events = self.events.saturating_add(1);
        let time_ns = self.start_ns.saturating_add(event.ns_since_start().into());
        self.last_ns = self.last_ns.max(time_ns);
        let (number, text) = severity_of(event.record.descriptor().level);
        self.begin_record(time_ns, number, text);
        let name = event.identity().event_name.map(str::to_owned);
        let out = &mut self.record;
        if let Some(name) = &name {
            push_key("eventName", out);
            push_string(name, out);
        }
        let message = match &event.schema_match {
            Ok(schema_match) => self.messages.read(schema_match, event.record.pointer_size()),
            Err(reason) => {
                self.missing.add(event, reason);
                None
            }
        };
        if let Some(body) = message.or(name).filter(|body| !body.is_empty()) {
            push_key("body", out);
            out.extend_from_slice(b"{\"stringValue\":");
            push_string(&body, out);
            out.push(b'}');
        }
        self.attributes.clear();
        add_header(event, &mut self.attributes);
        let is_decoded = self.attributes.add_fields(event, "", &mut self.walker);
        self.undecoded = self.undecoded.saturating_add(u64::from(!is_decoded));
        self.put_attributes();
        if let Some(activity) = self.roots.observe(&event.record) {
            let (trace, span) = (self.roots.trace_of(activity), SpanId::from_activity(activity));
            self.record
                .extend_from_slice(format!(",\"traceId\":\"{trace}\",\"spanId\":\"{span}\"").as_bytes());
        }
        self.end_record(&resource_of(event), &provider_of(event))
    }

    fn begin_record(&mut self, time_ns: i128, severity: u8, severity_text: &str) {
        let time_ns = u64::try_from(time_ns).unwrap_or(0);
        self.record.clear();
        let head = format!(
            "{{\"timeUnixNano\":\"{time_ns}\",\"observedTimeUnixNano\":\"{time_ns}\",\
             \"severityNumber\":{severity},\"severityText\":\"{severity_text}\""
        );
        self.record.extend_from_slice(head.as_bytes());
    }

    fn put_attributes(&mut self) {
        push_key("attributes", &mut self.record);
        self.record.push(b'[');
        self.record.extend_from_slice(self.attributes.json());
        self.record.push(b']');
        if self.attributes.dropped > 0 {
            self.cut = self.cut.saturating_add(1);
            let count = format!(",\"droppedAttributesCount\":{}", self.attributes.dropped);
            self.record.extend_from_slice(count.as_bytes());
        }
    }

    fn end_record(&mut self, resource: &ResourceKey, provider: &str) -> Result<()> {
        self.record.push(b'}');
        self.written = self.written.saturating_add(1);
        self.batch.add(resource, provider, &self.record)
    }

    /// Writes a record for each trace with losses.
    fn write_losses(&mut self, hosts: &[Host]) -> Result<()> {
        for (file, host) in hosts.iter().enumerate() {
            let Some(losses) = &host.losses else { continue };
            self.begin_record(self.last_ns, SEVERITY_WARNING, "warning");
            push_key("eventName", &mut self.record);
            push_string("etw.losses", &mut self.record);
            push_key("body", &mut self.record);
            self.record.extend_from_slice(b"{\"stringValue\":");
            push_string(losses, &mut self.record);
            self.record.push(b'}');
            self.attributes.clear();
            self.attributes.add_integer("etw.lost_events", host.lost_events.into());
            self.attributes.add_integer("etw.lost_buffers", host.lost_buffers.into());
            self.put_attributes();
            self.end_record(&(file, NO_ID, String::new()), OWN_SCOPE)?;
        }
        Ok(())
    }
}
