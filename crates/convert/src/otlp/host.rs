//! The machine and the session of a trace, as attributes of resources.

use anyhow::Result;
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::traces::{TraceSet, describe_losses, read_records};
use traceweir_decode::Decoder;
use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;

use super::attributes::Attributes;

/// The longest name in bytes.
const MAX_NAME_BYTES: usize = 512;

/// The machine and the session of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    name: String,
    system: String,
    session: String,
    file: String,
    /// The losses of the session, if there are any.
    pub(crate) losses: Option<String>,
    pub(crate) lost_events: u32,
    pub(crate) lost_buffers: u32,
}

/// Collects the text of a field.
struct TextOf<'n> {
    name: &'n str,
    text: Vec<u8>,
}

impl<'p> Visitor<'p> for TextOf<'_> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if &*field.name == self.name && self.text.is_empty() {
            push_text(field, &value, Style::default(), &mut self.text);
        }
    }
}

impl Host {
    /// Reads the machines and sessions of the traces.
    pub(crate) fn read_all(traces: &TraceSet) -> Result<Vec<Self>> {
        let to_host = |input: &traceweir_analysis::input::TraceInput| {
            let header = input.trace.header();
            Self {
                session: header.session_name.clone(),
                file: input.name.clone(),
                losses: describe_losses(&input.trace),
                lost_events: header.events_lost,
                lost_buffers: header.buffers_lost,
                ..Self::default()
            }
        };
        let mut hosts: Vec<Self> = traces.inputs.iter().map(to_host).collect();
        let (mut decoder, mut walker) = (Decoder::new(), Walker::default());
        let loading = traces.loading.as_ref();
        read_records(&traces.inputs, loading, &*traces.observer, |file, _, record| {
            if let Some(host) = hosts.get_mut(file) {
                host.observe(record, &mut decoder, &mut walker);
            }
            Ok(ReadFlow::Continue)
        })?;
        Ok(hosts)
    }

    fn observe(&mut self, record: &Record<'_>, decoder: &mut Decoder, walker: &mut Walker) {
        let (name, field) = match record.hook() {
            Some(hook::CONFIG_CPU) => (&mut self.name, "ComputerName"),
            Some(hook::BUILD_INFO) => (&mut self.system, "BuildString"),
            _ => return,
        };
        let Ok(schema_match) = decoder.find(record) else { return };
        let mut visitor = TextOf { name: field, text: Vec::new() };
        let schema = &schema_match.prepared.schema;
        // If the payload ends early, the fields before its end have been read.
        let _ = walker.walk(schema, schema_match.payload, record.pointer_size(), &mut visitor);
        let text = visitor.text.get(..MAX_NAME_BYTES).unwrap_or(&visitor.text);
        if name.is_empty() {
            *name = String::from_utf8_lossy(text).into_owned();
        }
    }

    /// Adds the attributes of the machine and of the session.
    pub(crate) fn add_to(&self, attributes: &mut Attributes) {
        if !self.name.is_empty() {
            attributes.add_text("host.name", &self.name);
        }
        if !self.system.is_empty() {
            let os = if self.system.starts_with("Linux") { "linux" } else { "windows" };
            attributes.add_text("os.type", os);
            attributes.add_text("os.description", &self.system);
        }
        attributes.add_text("etw.session", &self.session);
        attributes.add_text("etw.file", &self.file);
    }
}
