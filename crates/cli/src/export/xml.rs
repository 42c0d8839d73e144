//! The XML format of tracerpt: System, EventData, RenderingInfo.
//!
//! Characters that XML 1.0 does not allow are replaced with U+FFFD.

use std::io::Write;

use traceweir_analysis::event::DescribedEvent;
use traceweir_analysis::grep::MAX_FIELDS_BYTES;
use traceweir_decode::Undecoded;
use traceweir_decode::expand::MessageExpander;
use traceweir_decode::format::{Style, hex_lower, push_text};
use traceweir_decode::schema::{Field, Schema};
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Family;
use traceweir_format::spec::event::class;

use super::{EventSink, TimeFormatter, describe_undecoded, items, push_hex};

const EVENT_NAMESPACE: &str = "http://schemas.microsoft.com/win/2004/08/events/event";
const TRACE_NAMESPACE: &str = "http://schemas.microsoft.com/win/2004/08/events/trace";

pub(super) struct XmlSink {
    style: Style,
    time_formatter: TimeFormatter,
    walker: Walker,
    messages: MessageExpander,
    scratch: Vec<u8>,
}

impl XmlSink {
    pub(super) fn new(style: Style) -> Self {
        let (walker, messages, scratch) = (Walker::default(), MessageExpander::default(), Vec::new());
        Self { style, time_formatter: TimeFormatter::new(b'T'), walker, messages, scratch }
    }

    fn write_system(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) {
        let record = &event.record;
        let descriptor = record.descriptor();
        out.extend_from_slice(b"\t<System>\r\n\t\t<Provider");
        // Kernel events belong to one provider; `write_event` writes the GUID of their class last.
        let is_kernel_event = record.hook().is_some();
        if let Some(name) = event.provider.filter(|_| !is_kernel_event) {
            out.extend_from_slice(b" Name=\"");
            write_escaped(name.as_bytes(), out);
            out.push(b'"');
        }
        let guid = if is_kernel_event { class::SYSTEM_TRACE_CONTROL } else { record.provider() };
        let _ = write!(out, " Guid=\"{{{guid}}}\" />\r\n\t\t<EventID>{}</EventID>\r\n", descriptor.id);
        let _ = write!(
            out,
            "\t\t<Version>{}</Version>\r\n\t\t<Level>{}</Level>\r\n",
            descriptor.version, descriptor.level
        );
        let _ = write!(
            out,
            "\t\t<Task>{}</Task>\r\n\t\t<Opcode>{}</Opcode>\r\n",
            descriptor.task, descriptor.opcode
        );
        out.extend_from_slice(b"\t\t<Keywords>0x");
        hex_lower(descriptor.keyword, out);
        out.extend_from_slice(b"</Keywords>\r\n\t\t<TimeCreated SystemTime=\"");
        self.time_formatter.push_time(event.time, out);
        out.extend_from_slice(b"Z\" />\r\n\t\t<Correlation");
        let _ = write!(out, " ActivityID=\"{{{}}}\"", record.activity().unwrap_or_default());
        if let Some(related) = record.items().related_activity() {
            let _ = write!(out, " RelatedActivityID=\"{{{related}}}\"");
        }
        let (kernel, user) = record.cpu_times().unwrap_or((0, 0));
        let (pid, tid, cpu) = (record.process_id(), record.thread_id(), record.cpu());
        let _ = write!(
            out,
            " />\r\n\t\t<Execution ProcessID=\"{pid}\" ThreadID=\"{tid}\" ProcessorID=\"{cpu}\" \
             KernelTime=\"{kernel}\" UserTime=\"{user}\" />\r\n"
        );
        let channel = event
            .schema_match
            .as_ref()
            .ok()
            .and_then(|schema_match| schema_match.prepared.schema.names.channel.as_deref());
        write_element("\t\t", "Channel", channel.unwrap_or_default(), out);
        out.extend_from_slice(b"\t\t<Computer />\r\n");
        if let Some(sid) = items::find_sid(record) {
            let _ = write!(out, "\t\t<Security UserID=\"{sid}\" />\r\n");
        }
        out.extend_from_slice(b"\t</System>\r\n");
    }

    fn write_event_data(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        let schema_match = match &event.schema_match {
            Ok(schema_match) => schema_match,
            Err(reason) => {
                out.extend_from_slice(b"\t<BinaryEventData>");
                push_hex(event.record.payload(), out);
                out.extend_from_slice(b"</BinaryEventData>\r\n\t<ProcessingErrorData>\r\n");
                write_element("\t\t", "ErrorCode", &reason.status().0.to_string(), out);
                write_element("\t\t", "DataItemName", &describe_undecoded(reason), out);
                out.extend_from_slice(b"\t</ProcessingErrorData>\r\n");
                return None;
            }
        };
        out.extend_from_slice(b"\t<EventData>\r\n");
        let max_len = out.len().saturating_add(MAX_FIELDS_BYTES);
        let mut data = XmlFields {
            out,
            schema: &schema_match.prepared.schema,
            style: self.style,
            scratch: &mut self.scratch,
            depth: 2,
            array_len: None,
            max_len,
        };
        let walked = self.walker.walk(
            &schema_match.prepared.schema,
            schema_match.payload,
            event.record.pointer_size(),
            &mut data,
        );
        out.extend_from_slice(b"\t</EventData>\r\n");
        match &walked {
            Ok([]) => {}
            Ok(extra) => {
                out.extend_from_slice(b"\t<BinaryEventData>");
                push_hex(extra, out);
                out.extend_from_slice(b"</BinaryEventData>\r\n");
            }
            Err(reason) => {
                out.extend_from_slice(b"\t<ProcessingErrorData>\r\n");
                write_element("\t\t", "ErrorCode", &reason.status().0.to_string(), out);
                write_element("\t\t", "DataItemName", &describe_undecoded(reason), out);
                out.extend_from_slice(b"\t\t<EventPayload>");
                push_hex(schema_match.payload, out);
                out.extend_from_slice(b"</EventPayload>\r\n\t</ProcessingErrorData>\r\n");
            }
        }
        walked.err()
    }

    fn write_rendering_info(
        &mut self,
        event: &DescribedEvent<'_>,
        schema_match: &SchemaMatch<'_, '_>,
        out: &mut Vec<u8>,
    ) {
        let names = &schema_match.prepared.schema.names;
        out.extend_from_slice(b"\t<RenderingInfo Culture=\"en-US\">\r\n");
        for (tag, name) in [("Level", &names.level), ("Opcode", &names.opcode), ("Task", &names.task)] {
            // The task name of a kernel event is its class, which is written as EventName instead.
            let is_shown = !(event.record.hook().is_some() && tag == "Task");
            if let Some(name) = name.as_ref().filter(|_| is_shown) {
                write_element("\t\t", tag, name, out);
            }
        }
        if !names.keywords.is_empty() {
            out.extend_from_slice(b"\t\t<Keywords>\r\n");
            let max_len = out.len().saturating_add(MAX_FIELDS_BYTES);
            for (_, name) in &names.keywords {
                if out.len() < max_len {
                    write_element("\t\t\t", "Keyword", name, out);
                }
            }
            out.extend_from_slice(b"\t\t</Keywords>\r\n");
        }
        if let Some(channel) = &names.channel {
            write_element("\t\t", "Channel", channel, out);
        }
        let is_kernel_event = event.record.hook().is_some();
        if let Some(provider) = event.provider {
            write_element(
                "\t\t",
                "Provider",
                if is_kernel_event { "MSNT_SystemTrace" } else { provider },
                out,
            );
        }
        let class = names.task.as_deref().filter(|_| is_kernel_event);
        if let Some(name) = class.or(schema_match.prepared.event_name.as_deref()) {
            let _ = write!(out, "\t\t<EventName xmlns=\"{TRACE_NAMESPACE}\">");
            write_escaped(name.as_bytes(), out);
            out.extend_from_slice(b"</EventName>\r\n");
        }
        self.scratch.clear();
        if self
            .messages
            .expand(schema_match, event.record.pointer_size(), self.style, &mut self.scratch)
            .is_some()
        {
            write_element("\t\t", "Message", &String::from_utf8_lossy(&self.scratch), out);
        }
        out.extend_from_slice(b"\t</RenderingInfo>\r\n");
    }
}

impl EventSink for XmlSink {
    fn write_start(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<Events>\r\n");
    }

    fn write_event(&mut self, event: &DescribedEvent<'_>, out: &mut Vec<u8>) -> Option<Undecoded> {
        let _ = write!(out, "<Event xmlns=\"{EVENT_NAMESPACE}\">\r\n");
        self.write_system(event, out);
        let misfit = self.write_event_data(event, out);
        if let Ok(schema_match) = &event.schema_match {
            self.write_rendering_info(event, schema_match, out);
        }
        if !matches!(event.record.family(), Family::Event) {
            let _ = write!(out, "\t<ExtendedTracingInfo xmlns=\"{TRACE_NAMESPACE}\">\r\n\t\t<EventGuid>");
            let _ =
                write!(out, "{{{}}}</EventGuid>\r\n\t</ExtendedTracingInfo>\r\n", event.record.provider());
        }
        out.extend_from_slice(b"</Event>\r\n");
        misfit
    }

    fn write_end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"</Events>\r\n");
    }
}

/// Writes `<Data Name="…">value</Data>`; structures become `ComplexData`.
struct XmlFields<'a> {
    out: &'a mut Vec<u8>,
    schema: &'a Schema,
    style: Style,
    scratch: &'a mut Vec<u8>,
    /// Number of tabs before an element.
    depth: usize,
    /// Number of values of the open array so far; `None` outside of arrays and in arrays of
    /// structures.
    array_len: Option<usize>,
    max_len: usize,
}

impl XmlFields<'_> {
    fn write_indent(&mut self) {
        self.out.extend(std::iter::repeat_n(b'\t', self.depth));
    }
}

impl<'p> Visitor<'p> for XmlFields<'_> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if self.schema.is_padding(field) {
            return;
        }
        self.write_indent();
        self.out.extend_from_slice(b"<Data Name=\"");
        write_escaped(field.name.as_bytes(), self.out);
        self.out.extend_from_slice(b"\">");
        self.scratch.clear();
        push_text(field, &value, self.style, self.scratch);
        write_escaped(self.scratch, self.out);
        self.out.extend_from_slice(b"</Data>\r\n");
        if let Some(n) = &mut self.array_len {
            *n = n.saturating_add(1);
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {
        self.array_len = Some(0);
    }
    fn end_array(&mut self, _: usize, field: &Field) {
        if self.array_len.take() == Some(0) {
            self.write_indent();
            self.out.extend_from_slice(b"<Data Name=\"");
            write_escaped(field.name.as_bytes(), self.out);
            self.out.extend_from_slice(b"\" />\r\n");
        }
    }
    fn begin_struct(&mut self, _: usize, field: &Field) {
        self.array_len = None;
        self.write_indent();
        self.out.extend_from_slice(b"<ComplexData Name=\"");
        write_escaped(field.name.as_bytes(), self.out);
        self.out.extend_from_slice(b"\">\r\n");
        self.depth = self.depth.saturating_add(1);
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.depth = self.depth.saturating_sub(1);
        self.write_indent();
        self.out.extend_from_slice(b"</ComplexData>\r\n");
    }
    fn is_full(&self) -> bool {
        self.out.len() > self.max_len
    }
}

fn write_element(indent: &str, tag: &str, text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(indent.as_bytes());
    if text.is_empty() {
        let _ = write!(out, "<{tag} />\r\n");
        return;
    }
    let _ = write!(out, "<{tag}>");
    write_escaped(text.as_bytes(), out);
    let _ = write!(out, "</{tag}>\r\n");
}

fn write_escaped(text: &[u8], out: &mut Vec<u8>) {
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '&' => out.extend_from_slice(b"&amp;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\r' => out.extend_from_slice(b"&#13;"),
            '\t' | '\n' | ' '..='\u{FFFD}' | '\u{10000}'.. => {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => out.extend_from_slice("\u{FFFD}".as_bytes()),
        }
    }
}
