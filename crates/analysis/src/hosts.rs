//! The computers that wrote traces.

use anyhow::Result;
use traceweir_decode::Decoder;
use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;

use crate::event::ReadFlow;
use crate::traces::{MAX_SHORT_TRACE_BYTES, TraceSet, read_records};

/// The longest text, in characters. Windows allows 63 for each part of a computer's name.
const MAX_TEXT_CHARS: usize = 255;

/// What the kernel events of a trace say about its computer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Name of the computer.
    pub name: Option<String>,
    /// Name and build of the operating system.
    pub system: Option<String>,
}

/// Which facts a caller needs. Reading ends when they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeededFacts {
    /// Only the name of the computer.
    Name,
    /// Its name and its operating system.
    NameAndSystem,
}

/// Returns the facts about the computer of each trace.
///
/// Only kernel traces have the events that name it. Long traces that do not seem to be kernel traces
/// are not read.
pub fn read_hosts(traces: &TraceSet, needed: NeededFacts) -> Result<Vec<HostFacts>> {
    let mut hosts = vec![HostFacts::default(); traces.inputs.len()];
    let is_searched: Vec<bool> = traces
        .inputs
        .iter()
        .map(|input| &input.trace)
        .map(|trace| trace.seems_to_hold_kernel_events() || trace.file_size() <= MAX_SHORT_TRACE_BYTES)
        .collect();
    let mut missing = is_searched.iter().filter(|is_searched| **is_searched).count();
    if missing == 0 {
        return Ok(hosts);
    }
    let (mut decoder, mut walker) = (Decoder::new(), Walker::default());
    read_records(&traces.inputs, traces.loading.as_ref(), &*traces.observer, |file, _, record| {
        if !matches!(record.hook(), Some(hook::CONFIG_CPU | hook::BUILD_INFO)) {
            return Ok(ReadFlow::Continue);
        }
        let Some(host) = hosts.get_mut(file).filter(|host| !host.has(needed)) else {
            return Ok(ReadFlow::Continue);
        };
        host.observe(record, &mut decoder, &mut walker);
        if host.has(needed) && is_searched.get(file) == Some(&true) {
            missing = missing.saturating_sub(1);
        }
        Ok(if missing == 0 { ReadFlow::Stop } else { ReadFlow::Continue })
    })?;
    Ok(hosts)
}

impl HostFacts {
    fn has(&self, needed: NeededFacts) -> bool {
        self.name.is_some() && (needed == NeededFacts::Name || self.system.is_some())
    }

    fn observe(&mut self, record: &Record<'_>, decoder: &mut Decoder, walker: &mut Walker) {
        let (fact, field) = match record.hook() {
            Some(hook::CONFIG_CPU) => (&mut self.name, "ComputerName"),
            Some(hook::BUILD_INFO) => (&mut self.system, "BuildString"),
            _ => return,
        };
        let Ok(schema_match) = decoder.find(record) else { return };
        let mut visitor = FieldText { name: field, text: None };
        let schema = &schema_match.prepared.schema;
        // If the payload ends early, the fields before its end have been read.
        let _ = walker.walk(schema, schema_match.payload, record.pointer_size(), &mut visitor);
        if fact.is_none() {
            *fact = visitor.text.filter(|text| !text.trim().is_empty());
        }
    }
}

/// Collects the text of a field.
struct FieldText<'n> {
    name: &'n str,
    text: Option<String>,
}

impl<'p> Visitor<'p> for FieldText<'_> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if &*field.name == self.name && self.text.is_none() {
            let mut text = Vec::new();
            push_text(field, &value, Style::default(), &mut text);
            self.text = Some(String::from_utf8_lossy(&text).chars().take(MAX_TEXT_CHARS).collect());
        }
    }
}
