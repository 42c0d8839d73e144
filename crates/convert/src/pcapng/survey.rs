//! The first pass over the traces: whether they hold packets, the names of components, and drops.

use std::collections::HashMap;

use anyhow::{Result, bail};
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::report::is_network_event;
use traceweir_analysis::text::format_count;
use traceweir_analysis::traces::{TraceSet, read_records};
use traceweir_format::header::Record;
use traceweir_format::text::chars16;
use traceweir_format::wire::{Cursor, u16_at};

use super::packet::{self, Drop, KERNEL_NETWORK, PACKET_MONITOR, PacketEvent};

/// The event of the packet monitor that names a component.
const COMPONENT_INFO: u16 = 20;
/// The most components that are kept.
const MAX_COMPONENTS: usize = 1 << 14;
/// The most drops that are kept. Further ones are written as packets of their own.
const MAX_DROPS: usize = 1 << 19;
const MAX_NAME_CHARS: usize = 256;

/// Trace, group and number of a packet of the packet monitor.
pub(super) type FrameKey = (usize, u64, u16);

/// What the first pass finds.
#[derive(Debug, Default)]
pub(super) struct PacketSurvey {
    /// Names of components, with their descriptions, by trace and id.
    pub(super) components: HashMap<(usize, u16), (String, String)>,
    /// The first drop of each packet.
    pub(super) drops: HashMap<FrameKey, Drop>,
    packet_events: u64,
    network_events: u64,
}

impl PacketSurvey {
    /// Reads the traces once. Fails if they hold no packets.
    pub(super) fn read(traces: &TraceSet) -> Result<Self> {
        let mut survey = Self::default();
        let loading = traces.loading.as_ref();
        read_records(&traces.inputs, loading, &*traces.observer, |file, _, record| {
            survey.observe(file, record);
            Ok(ReadFlow::Continue)
        })?;
        survey.check()?;
        Ok(survey)
    }

    fn observe(&mut self, file: usize, record: &Record<'_>) {
        let provider = record.provider();
        if packet::is_packet_event(record) {
            self.packet_events = self.packet_events.saturating_add(1);
            if let PacketEvent::Frame(frame) = packet::parse(record)
                && let Some(drop) = frame.drop
                && self.drops.len() < MAX_DROPS
            {
                self.drops.entry((file, frame.id.0, frame.id.1)).or_insert(drop);
            }
        } else if provider == PACKET_MONITOR && record.descriptor().id == COMPONENT_INFO {
            self.add_component(file, record.payload());
        } else if provider == KERNEL_NETWORK || record.hook().is_some_and(is_network_event) {
            self.network_events = self.network_events.saturating_add(1);
        }
    }

    /// Adds the name of a component: u16 id, u16 type, name, description.
    fn add_component(&mut self, file: usize, payload: &[u8]) {
        let mut cursor = Cursor::new("component", payload);
        let is_complete = cursor.bytes(4).is_ok();
        if is_complete && self.components.len() < MAX_COMPONENTS {
            let mut next_text = || chars16(cursor.wide_z()).take(MAX_NAME_CHARS).collect::<String>();
            let names = (next_text(), next_text());
            self.components.insert((file, u16_at(payload, 0)), names);
        }
    }

    fn check(&self) -> Result<()> {
        if self.packet_events > 0 {
            return Ok(());
        }
        const HOW_TO_RECORD: &str =
            "record packets on Windows with `netsh trace start capture=yes` or `pktmon start --capture`";
        if self.network_events > 0 {
            let events = format_count(self.network_events, "event");
            bail!("no packets: {events} of TCP and UDP only count the bytes of transfers; {HOW_TO_RECORD}");
        }
        bail!("no packets; {HOW_TO_RECORD}");
    }
}
