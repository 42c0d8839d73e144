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

/// A line ends after this many bytes of records.
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

/// The records of one provider: elements of a JSON array.
struct ScopeRecords {
    provider: String,
    json: Vec<u8>,
}

/// The records of one process.
struct ResourceRecords {
    key: ResourceKey,
    scopes: Vec<ScopeRecords>,
    by_provider: HashMap<String, usize>,
}

/// The records of the next line.
pub(crate) struct Batch<'o> {
    names: BatchNames,
    hosts: Vec<Host>,
    resources: Vec<ResourceRecords>,
    by_key: HashMap<ResourceKey, usize>,
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
                self.by_key.insert(key.clone(), next);
                let (scopes, by_provider) = (Vec::new(), HashMap::new());
                self.resources.push(ResourceRecords { key: key.clone(), scopes, by_provider });
                next
            }
        };
        let Some(resource) = self.resources.get_mut(index) else { return Ok(()) };
        let scope = match resource.by_provider.get(provider) {
            Some(index) => *index,
            None => {
                let index = resource.scopes.len();
                resource.by_provider.insert(provider.to_owned(), index);
                resource.scopes.push(ScopeRecords { provider: provider.to_owned(), json: Vec::new() });
                index
            }
        };
        if let Some(scope) = resource.scopes.get_mut(scope) {
            if !scope.json.is_empty() {
                scope.json.push(b',');
            }
            scope.json.extend_from_slice(record);
        }
        self.bytes = self.bytes.saturating_add(record.len());
        self.records = self.records.saturating_add(1);
        if self.bytes >= LINE_BYTES || self.records >= LINE_RECORDS { self.flush() } else { Ok(()) }
    }

    /// Writes the line, if it has records.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        let BatchNames { resources, scopes, records } = self.names;
        let line = &mut self.line;
        line.clear();
        line.extend_from_slice(format!("{{\"{resources}\":[").as_bytes());
        for resource in self.resources.drain(..) {
            push_separator(line);
            line.extend_from_slice(b"{\"resource\":{\"attributes\":[");
            let mut attributes = Attributes::default();
            let (file, pid, name) = &resource.key;
            if let Some(host) = self.hosts.get(*file) {
                host.add_to(&mut attributes);
            }
            add_process(*pid, name, &mut attributes);
            line.extend_from_slice(attributes.json());
            line.extend_from_slice(format!("]}},\"{scopes}\":[").as_bytes());
            for scope in resource.scopes {
                push_separator(line);
                line.extend_from_slice(b"{\"scope\":{\"name\":");
                push_string(&scope.provider, line);
                line.extend_from_slice(format!("}},\"{records}\":[").as_bytes());
                line.extend_from_slice(&scope.json);
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
