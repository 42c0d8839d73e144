//! `weir report net`: reports what processes sent and received.

use std::net::IpAddr;

use anyhow::{Result, bail};
use traceweir_analysis::report::network::{Connection, NetworkReport, NetworkTotals};
use traceweir_analysis::report::rows::row_label;
use traceweir_analysis::report::{Analysis, NeededEvents, NetworkProtocol, ProcessId};
use traceweir_analysis::traces::ReadSummary;

use super::page::{ReportPage, format_name, format_recorded_time, put_process, summary_object};
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
    let mut network = NetworkReport::new(thread_selection, analysis.window);
    let reading = analysis.read(|facts, joined| network.add_event(facts, joined))?;
    let tables = NetworkTables { report: &network };
    tables.check_not_empty()?;
    let mut page = ReportPage::new(options.tables);
    tables.add_to_page(&analysis, &reading, &mut page);
    page.add_marks(&analysis);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Prints the tables of a report.
struct NetworkTables<'r> {
    report: &'r NetworkReport,
}

impl NetworkTables<'_> {
    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        if self.report.events == 0 && self.report.unselected > 0 {
            bail!(
                "{}",
                self.report.thread_selection.no_match_message(&self.report.paths.processes, "network events")
            );
        }
        if self.report.events == 0 {
            bail!(
                "no network events: the trace has none of TCP and UDP, or none in the selected time; weir record --kernel net -- CMD records them (as root, or with CAP_PERFMON)"
            );
        }
        Ok(())
    }

    fn add_to_page(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let totals = &self.report.totals;
        let mut object = summary_object(analysis, reading);
        put_totals(totals, &mut object);
        object.number("others", self.report.unselected);
        page.add_object(&object);
        let seconds = self.report.span.seconds();
        page.add_line(&format!(
            "{} from first to last in {seconds:.3} s, of {} recorded: {} of {} sent, {} of {} received",
            format_count(self.report.events, "event"),
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
        page.add_unselected(self.report.unselected);
        page.add_losses(analysis, reading);
        self.add_process_table(page);
        self.add_connection_table(page);
        self.add_peer_table(page);
    }

    fn add_process_table(&self, page: &mut ReportPage) {
        let rows = self.report.by_process.sorted_by_weight(NetworkTotals::weight);
        let label = |key: &Option<&ProcessId>| row_label(*key, |id| self.report.paths.processes.label(*id));
        page.add_table(
            "processes",
            columns("process"),
            &rows,
            |(key, totals)| to_cells(totals, &label(key)),
            |(key, totals)| {
                let mut object = row_object("process", &label(key), totals);
                put_process(&mut object, &self.report.paths.processes, key.copied());
                object
            },
        );
    }

    fn add_connection_table(&self, page: &mut ReportPage) {
        let rows = self.report.by_connection.sorted_by_weight(NetworkTotals::weight);
        let label = |key: &Option<&Connection>| {
            row_label(*key, |connection| {
                let Connection { process, protocol, local, remote } = connection;
                let process = self.report.paths.processes.label(*process);
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
                put_process(&mut object, &self.report.paths.processes, process);
                object
            },
        );
    }

    fn add_peer_table(&self, page: &mut ReportPage) {
        let rows = self.report.by_peer.sorted_by_weight(NetworkTotals::weight);
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

fn put_totals(totals: &NetworkTotals, object: &mut JsonObject) {
    object.number("sent", totals.sent).number("sent_bytes", totals.sent_bytes);
    object.number("received", totals.received).number("received_bytes", totals.received_bytes);
    object.number("retransmits", totals.retransmits).number("connections", totals.connections);
    object.number("failures", totals.failures);
}

fn number_cells(totals: &NetworkTotals) -> [String; 6] {
    [
        totals.sent,
        totals.sent_bytes,
        totals.received,
        totals.received_bytes,
        totals.retransmits,
        totals.connections,
    ]
    .map(format_number)
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
    let [sent, sent_bytes, received, received_bytes, retransmits, connections] = number_cells(totals);
    [sent, sent_bytes, received, received_bytes, retransmits, connections, format_name(label)]
}

fn row_object(by: &str, name: &str, totals: &NetworkTotals) -> JsonObject {
    let mut object = JsonObject::new();
    object.text("by", by).text("name", name);
    put_totals(totals, &mut object);
    object
}
