//! Groups records by process and provider, and writes them as lines.
//!
//! ```text
//!   {"resourceLogs":[
//!     {"resource":{"attributes":[ host, service, process ]},
//!      "scopeLogs":[{"scope":{"name": provider},"logRecords":[ record, … ]}]}]}
//! ```
//!
//! A line holds the records of a span of time, in time order within each group. The file exporter
//! of the OpenTelemetry collector writes such lines, and its file receiver reads them.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;

use super::attributes::{Attributes, push_separator, push_string};
use super::host::Host;

/// A line ends after this many bytes of records, providers and processes.
const LINE_BYTES: usize = 512 << 10;
/// A line ends after this many records, so that a reader gets parts of bounded size.
const LINE_RECORDS: usize = 2000;

/// Process of a trace. The name tells apart processes that had the same id.
pub(crate) type ResourceKey = (usize, u32, String);

/// The names of the lists, which differ between logs and spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchNames {
    pub(crate) resources: &'static str,
    pub(crate) scopes: &'static str,
    pub(crate) records: &'static str,
}

/// The records of one process.
struct ResourceRecords {
    /// JSON up to the list of scopes.
    json: Vec<u8>,
    /// JSON of each provider up to the end of its last record.
    scopes: Vec<Vec<u8>>,
    by_provider: HashMap<String, usize>,
}

/// The records of the next line.
pub(crate) struct Batch<'o> {
    names: BatchNames,
    hosts: Vec<Host>,
    resources: Vec<ResourceRecords>,
    by_key: HashMap<ResourceKey, usize>,
    /// Bytes of JSON of all resources.
    bytes: usize,
    records: usize,
    line: Vec<u8>,
    out: &'o mut dyn Write,
}

impl<'o> Batch<'o> {
    /// Creates a batch. `hosts` has an entry for each trace.
    pub(crate) fn new(names: BatchNames, hosts: Vec<Host>, out: &'o mut dyn Write) -> Self {
        Self {
            names,
            hosts,
            resources: Vec::new(),
            by_key: HashMap::new(),
            bytes: 0,
            records: 0,
            line: Vec::new(),
            out,
        }
    }

    /// Adds a record: a JSON object.
    pub(crate) fn add(&mut self, key: &ResourceKey, provider: &str, record: &[u8]) -> Result<()> {
        let next = self.resources.len();
        let index = match self.by_key.get(key) {
            Some(index) => *index,
            None => {
                let json = self.begin_resource(key);
                self.bytes = self.bytes.saturating_add(json.len());
                self.by_key.insert(key.clone(), next);
                self.resources.push(ResourceRecords {
                    json,
                    scopes: Vec::new(),
                    by_provider: HashMap::new(),
                });
                next
            }
        };
        let Some(resource) = self.resources.get_mut(index) else { return Ok(()) };
        let scope = match resource.by_provider.get(provider) {
            Some(index) => *index,
            None => {
                let (index, json) = (resource.scopes.len(), begin_scope(provider, self.names));
                self.bytes = self.bytes.saturating_add(json.len());
                resource.by_provider.insert(provider.to_owned(), index);
                resource.scopes.push(json);
                index
            }
        };
        if let Some(json) = resource.scopes.get_mut(scope) {
            push_separator(json);
            json.extend_from_slice(record);
        }
        self.bytes = self.bytes.saturating_add(record.len());
        self.records = self.records.saturating_add(1);
        if self.bytes >= LINE_BYTES || self.records >= LINE_RECORDS { self.flush() } else { Ok(()) }
    }

    /// Returns the JSON of a resource up to the list of its scopes.
    fn begin_resource(&self, (file, pid, name): &ResourceKey) -> Vec<u8> {
        let mut attributes = Attributes::default();
        if let Some(host) = self.hosts.get(*file) {
            host.add_to(&mut attributes);
        }
        add_process(*pid, name, &mut attributes);
        let end = format!("]}},\"{}\":[", self.names.scopes);
        [b"{\"resource\":{\"attributes\":[", attributes.json(), end.as_bytes()].concat()
    }

    /// Writes the line, if it has records.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        let line = &mut self.line;
        line.clear();
        line.extend_from_slice(format!("{{\"{}\":[", self.names.resources).as_bytes());
        for resource in self.resources.drain(..) {
            push_separator(line);
            line.extend_from_slice(&resource.json);
            for scope in resource.scopes {
                push_separator(line);
                line.extend_from_slice(&scope);
                line.extend_from_slice(b"]}");
            }
            line.extend_from_slice(b"]}");
        }
        line.extend_from_slice(b"]}\n");
        self.by_key.clear();
        (self.bytes, self.records) = (0, 0);
        self.out.write_all(line)?;
        Ok(())
    }
}

/// Returns the JSON of a provider up to the list of its records.
fn begin_scope(provider: &str, names: BatchNames) -> Vec<u8> {
    let mut json = b"{\"scope\":{\"name\":".to_vec();
    push_string(provider, &mut json);
    json.extend_from_slice(format!("}},\"{}\":[", names.records).as_bytes());
    json
}

/// Adds the attributes of a process.
fn add_process(pid: u32, name: &str, attributes: &mut Attributes) {
    use traceweir_format::header::NO_ID;
    let service = if name.is_empty() { "unknown_service" } else { name };
    attributes.add_text("service.name", service);
    if pid != NO_ID {
        attributes.add_integer("process.pid", pid.into());
    }
    if !name.is_empty() {
        attributes.add_text("process.executable.name", name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: BatchNames = BatchNames { resources: "r", scopes: "s", records: "l" };

    #[test]
    fn names_of_providers_and_processes_count_towards_the_size_of_a_line() {
        // A control character takes six bytes in JSON.
        let long = |number: u32| format!("{number}{}", "\u{1}".repeat(8000));
        for is_process in [false, true] {
            let mut out = Vec::new();
            let mut batch = Batch::new(NAMES, Vec::new(), &mut out);
            for number in 0..100 {
                let process = if is_process { long(number) } else { "p".to_owned() };
                let provider = if is_process { "q".to_owned() } else { long(number) };
                batch.add(&(0, 1, process), &provider, b"{}").unwrap();
            }
            batch.flush().unwrap();
            let lines: Vec<&[u8]> = out.split_inclusive(|byte| *byte == b'\n').collect();
            let mut records = 0;
            for line in &lines {
                assert!(line.len() < LINE_BYTES + 200_000, "{}", line.len());
                let line: serde_json::Value = serde_json::from_slice(line).unwrap();
                for resource in line["r"].as_array().unwrap() {
                    let scopes = resource["s"].as_array().unwrap();
                    records += scopes.iter().map(|scope| scope["l"].as_array().unwrap().len()).sum::<usize>();
                }
            }
            assert!(records == 100 && lines.len() > 5, "{records} in {}", lines.len());
        }
    }
}
