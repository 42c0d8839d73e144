//! `weir report net`: reports what processes sent and received.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail};
use traceweir_analysis::report::{
    Analysis, CallPaths, NeededEvents, NetworkKind, NetworkProtocol, NetworkTransfer, Occurrence, ProcessId,
    ReportEvent, ThreadSelection, TimeWindow, TraceFacts,
};
use traceweir_analysis::traces::ReadSummary;
use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::page::{EventSpan, ReportPage, format_name, format_recorded_time, put_process, summary_object};
use super::rows::{Rows, row_label};
use crate::cli::ReportNetArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::reading_outcome;
use crate::text::{JsonObject, format_count, format_number};

pub(super) fn run(options: &ReportNetArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { network: true, ..NeededEvents::default() };
    let selection = &options.selection;
    let mut analysis = Analysis::open(&selection.options(), needed, TerminalObserver::create(false))?;
    let thread_selection = selection.thread_selection();
    let mut network = NetworkReport { thread_selection, window: analysis.window, ..NetworkReport::default() };
    let reading = analysis.read(|facts, joined| network.add_event(facts, joined))?;
    network.check_not_empty()?;
    let mut page = ReportPage::new(options.tables);
    network.add_to_page(&analysis, &reading, &mut page);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Totals of network events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NetworkTotals {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
    retransmits: u64,
    /// Connections that were established, in either direction.
    connections: u64,
    failures: u64,
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
    const fn weight(&self) -> (u64, u64, u64) {
        (
            self.sent_bytes.saturating_add(self.received_bytes),
            self.sent.saturating_add(self.received),
            self.connections,
        )
    }

    fn put_into(&self, object: &mut JsonObject) {
        object.number("sent", self.sent).number("sent_bytes", self.sent_bytes);
        object.number("received", self.received).number("received_bytes", self.received_bytes);
        object.number("retransmits", self.retransmits).number("connections", self.connections);
        object.number("failures", self.failures);
    }

    fn cells(&self) -> [String; 6] {
        [self.sent, self.sent_bytes, self.received, self.received_bytes, self.retransmits, self.connections]
            .map(format_number)
    }
}

/// The two ends of the transfers of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Connection {
    process: ProcessId,
    protocol: NetworkProtocol,
    local: SocketAddr,
    remote: SocketAddr,
}

#[derive(Default)]
struct NetworkReport {
    paths: CallPaths,
    thread_selection: ThreadSelection,
    window: TimeWindow,
    totals: NetworkTotals,
    by_process: Rows<ProcessId, NetworkTotals>,
    by_connection: Rows<Connection, NetworkTotals>,
    by_peer: Rows<IpAddr, NetworkTotals>,
    events: u64,
    unselected: u64,
    span: EventSpan,
}

impl NetworkReport {
    fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
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

    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        if self.events == 0 && self.unselected > 0 {
            bail!("{}", self.thread_selection.no_match_message(&self.paths.processes, "network events"));
        }
        if self.events == 0 {
            bail!(
                "no network events: the trace has none of TCP and UDP, or none in the selected time; weir record --kernel net -- CMD records them (as root, or with CAP_PERFMON)"
            );
        }
        Ok(())
    }

    fn add_to_page(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let totals = &self.totals;
        let mut object = summary_object(analysis, reading);
        totals.put_into(&mut object);
        object.number("others", self.unselected);
        page.add_object(&object);
        let seconds = self.span.seconds();
        page.add_line(&format!(
            "{} from first to last in {seconds:.3} s, of {} recorded: {} of {} sent, {} of {} received",
            format_count(self.events, "event"),
            format_recorded_time(analysis),
            format_count(totals.sent, "packet"),
            format_count(totals.sent_bytes, "byte"),
            format_count(totals.received, "packet"),
            format_count(totals.received_bytes, "byte"),
        ));
        page.add_line(&format!(
            "{} established, {}, {}",
            format_count(totals.connections, "connection"),
            format_count(totals.retransmits, "retransmit"),
            format_count(totals.failures, "failure"),
        ));
        page.add_unselected(self.unselected);
        page.add_losses(analysis, reading);
        self.add_process_table(page);
        self.add_connection_table(page);
        self.add_peer_table(page);
    }

    fn add_process_table(&self, page: &mut ReportPage) {
        let rows = self.by_process.sorted_by_weight(NetworkTotals::weight);
        let label = |key: &Option<&ProcessId>| row_label(*key, |id| self.paths.processes.label(*id));
        page.add_table(
            "processes",
            columns("process"),
            &rows,
            |(key, totals)| to_cells(totals, &label(key)),
            |(key, totals)| {
                let mut object = row_object("process", &label(key), totals);
                put_process(&mut object, &self.paths.processes, key.copied());
                object
            },
        );
    }

    fn add_connection_table(&self, page: &mut ReportPage) {
        let rows = self.by_connection.sorted_by_weight(NetworkTotals::weight);
        let label = |key: &Option<&Connection>| {
            row_label(*key, |connection| {
                let Connection { process, protocol, local, remote } = connection;
                let process = self.paths.processes.label(*process);
                format!("{} {local} → {remote}  {process}", protocol_name(*protocol))
            })
        };
        page.add_table(
            "connections",
            columns("connection"),
            &rows,
            |(key, totals)| to_cells(totals, &label(key)),
            |(key, totals)| {
                let mut object = row_object("connection", &label(key), totals);
                if let Some(connection) = key {
                    object.text("protocol", protocol_name(connection.protocol));
                    object.text("local", &connection.local.to_string());
                    object.text("remote", &connection.remote.to_string());
                }
                let process = key.map(|connection| connection.process);
                put_process(&mut object, &self.paths.processes, process);
                object
            },
        );
    }

    fn add_peer_table(&self, page: &mut ReportPage) {
        let rows = self.by_peer.sorted_by_weight(NetworkTotals::weight);
        let label = |key: &Option<&IpAddr>| row_label(*key, IpAddr::to_string);
        page.add_table(
            "peers",
            columns("peer"),
            &rows,
            |(key, totals)| to_cells(totals, &label(key)),
            |(key, totals)| row_object("peer", &label(key), totals),
        );
    }
}

const fn protocol_name(protocol: NetworkProtocol) -> &'static str {
    match protocol {
        NetworkProtocol::Tcp => "tcp",
        NetworkProtocol::Udp => "udp",
    }
}

/// Returns the columns of a table, the last with this name.
const fn columns(last: &str) -> [(&str, bool); 7] {
    [
        ("sent", true),
        ("bytes", true),
        ("received", true),
        ("bytes", true),
        ("resent", true),
        ("connects", true),
        (last, false),
    ]
}

fn to_cells(totals: &NetworkTotals, label: &str) -> [String; 7] {
    let [sent, sent_bytes, received, received_bytes, retransmits, connections] = totals.cells();
    [sent, sent_bytes, received, received_bytes, retransmits, connections, format_name(label)]
}

fn row_object(by: &str, name: &str, totals: &NetworkTotals) -> JsonObject {
    let mut object = JsonObject::new();
    object.text("by", by).text("name", name);
    totals.put_into(&mut object);
    object
}
