//! What processes sent and received.

use std::net::{IpAddr, SocketAddr};

use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::rows::Rows;
use super::span::EventSpan;
use super::{
    CallPaths, NetworkKind, NetworkProtocol, NetworkTransfer, Occurrence, ProcessId, ReportEvent,
    ThreadSelection, TimeWindow, TraceFacts,
};

/// Totals of network events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkTotals {
    /// Number of sent packets.
    pub sent: u64,
    /// Bytes of sent packets.
    pub sent_bytes: u64,
    /// Number of received packets.
    pub received: u64,
    /// Bytes of received packets.
    pub received_bytes: u64,
    /// Number of packets that were sent again.
    pub retransmits: u64,
    /// Connections that were established, in either direction.
    pub connections: u64,
    /// Number of failures.
    pub failures: u64,
}

impl NetworkTotals {
    fn add_transfer(&mut self, transfer: &NetworkTransfer) {
        match transfer.kind {
            NetworkKind::Send => {
                self.sent += 1;
                self.sent_bytes = self.sent_bytes.saturating_add(transfer.bytes);
            }
            NetworkKind::Receive => {
                self.received += 1;
                self.received_bytes = self.received_bytes.saturating_add(transfer.bytes);
            }
            NetworkKind::Retransmit => self.retransmits += 1,
            NetworkKind::Connect | NetworkKind::Accept => self.connections += 1,
            NetworkKind::Fail => self.failures += 1,
            NetworkKind::Disconnect => {}
        }
    }

    /// Returns the key by which rows are sorted: bytes, then packets.
    pub const fn weight(&self) -> (u64, u64, u64) {
        (
            self.sent_bytes.saturating_add(self.received_bytes),
            self.sent.saturating_add(self.received),
            self.connections,
        )
    }
}

/// The two ends of the transfers of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection {
    /// The process of this machine.
    pub process: ProcessId,
    /// The protocol.
    pub protocol: NetworkProtocol,
    /// The address and port of this machine.
    pub local: SocketAddr,
    /// The address and port of the peer.
    pub remote: SocketAddr,
}

/// The network events of a trace by process, connection and peer.
#[derive(Default)]
pub struct NetworkReport {
    /// The functions and processes of the report.
    pub paths: CallPaths,
    /// The processes and threads that the report covers.
    pub thread_selection: ThreadSelection,
    window: TimeWindow,
    /// The totals of all rows.
    pub totals: NetworkTotals,
    /// One row per process.
    pub by_process: Rows<ProcessId, NetworkTotals>,
    /// One row per connection.
    pub by_connection: Rows<Connection, NetworkTotals>,
    /// One row per address of a peer.
    pub by_peer: Rows<IpAddr, NetworkTotals>,
    /// Number of counted events.
    pub events: u64,
    /// Events of processes and threads that are not selected.
    pub unselected: u64,
    /// The time from the first to the last counted event.
    pub span: EventSpan,
}

impl NetworkReport {
    /// Creates a report of the selected processes and threads in a time window.
    pub fn new(thread_selection: ThreadSelection, window: TimeWindow) -> Self {
        Self { thread_selection, window, ..Self::default() }
    }

    /// Adds an event of a trace. Events arrive in time order.
    pub fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let event = &joined.event;
        let Occurrence::Network(transfer) = &event.occurrence else { return };
        if !self.window.contains(event.time_ns) {
            return;
        }
        let process = self.paths.find_process(facts, event, transfer.pid.unwrap_or(NO_ID));
        // Network events do not name a thread, except by their stack.
        let thread = joined.stack.owner.map_or(NO_ID, |(_, thread)| thread);
        if !self.thread_selection.contains(&self.paths.processes, process, thread) {
            self.unselected += 1;
            return;
        }
        self.span.add(event.time_ns);
        self.events += 1;
        self.totals.add_transfer(transfer);
        self.by_process.get_mut(process).add_transfer(transfer);
        if let Some((local, remote)) = transfer.ends {
            let connection = Connection { process, protocol: transfer.protocol, local, remote };
            self.by_connection.get_mut(connection).add_transfer(transfer);
            self.by_peer.get_mut(remote.ip()).add_transfer(transfer);
        }
    }
}
