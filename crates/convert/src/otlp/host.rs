//! The machine and the session of a trace, as attributes of resources.

use anyhow::Result;
use traceweir_analysis::hosts::{HostFacts, NeededFacts, read_hosts};
use traceweir_analysis::input::TraceInput;
use traceweir_analysis::traces::{TraceSet, describe_losses};

use super::attributes::Attributes;

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

impl Host {
    /// Reads the machines and sessions of the traces.
    pub(crate) fn read_all(traces: &TraceSet) -> Result<Vec<Self>> {
        let facts = read_hosts(traces, NeededFacts::NameAndSystem)?;
        let to_host = |(input, facts): (&TraceInput, HostFacts)| {
            let header = input.trace.header();
            Self {
                name: facts.name.unwrap_or_default(),
                system: facts.system.unwrap_or_default(),
                session: header.session_name.clone(),
                file: input.name.clone(),
                losses: describe_losses(&input.trace),
                lost_events: header.events_lost,
                lost_buffers: header.buffers_lost,
            }
        };
        Ok(traces.inputs.iter().zip(facts).map(to_host).collect())
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
