//! Tests that the packets and bytes of `weir report net` match the trace.

use std::net::{Ipv4Addr, Ipv6Addr};

use traceweir_format::kernel::hook;
use traceweir_format::wire::Put;

use super::trace_builder::TraceBuilder;
use super::{find_row, number, rows_by, run_report};
use crate::util::{sample, skip, weir};

/// A process and the bytes of a transfer.
type Transfer = (u32, u32);

/// Adds an event of version 2 with IPv4 addresses; `source` and `destination` are address and port.
fn add_event(
    trace: &mut TraceBuilder,
    time: i64,
    hook: u16,
    (pid, bytes): Transfer,
    (source, destination): ((&str, u16), (&str, u16)),
) {
    let octets = |address: &str| address.parse::<Ipv4Addr>().unwrap().octets();
    let mut payload = Vec::new();
    payload.put_u32(pid).put_u32(bytes).put(&octets(destination.0)).put(&octets(source.0));
    payload.put(&destination.1.to_be_bytes()).put(&source.1.to_be_bytes());
    // A send also has start and end; all end with sequence number and connection.
    if hook == hook::TCP_SEND {
        payload.put_u32(0).put_u32(0);
    }
    payload.put_u32(0).put_u64(0);
    trace.add_perfinfo_event(time, 0, hook, 2, &payload);
}

/// Builds a trace in which `app` sends and receives by TCP with one peer, and `dns` by UDP.
fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_process(200, "dns");
    let (own, peer) = (("10.0.0.1", 40_000), ("192.0.2.7", 443));
    for index in 0..10 {
        add_event(&mut trace, 1000 + index, hook::TCP_SEND, (100, 100), (own, peer));
    }
    // The remote end of TCP is the destination in both directions.
    for index in 0..4 {
        add_event(&mut trace, 2000 + index, hook::TCP_RECEIVE, (100, 1000), (own, peer));
    }
    add_event(&mut trace, 2500, hook::TCP_RETRANSMIT, (100, 0), (own, peer));
    // The source of a UDP packet is its sender.
    let (resolver, server) = (("10.0.0.1", 5353), ("192.0.2.53", 53));
    add_event(&mut trace, 3000, hook::UDP_SEND, (200, 40), (resolver, server));
    add_event(&mut trace, 3001, hook::UDP_RECEIVE, (200, 300), (server, resolver));
    let mut payload = Vec::new();
    let address = Ipv6Addr::LOCALHOST.octets();
    payload.put_u32(200).put_u32(9).put(&address).put(&address);
    payload.put(&53_u16.to_be_bytes()).put(&1000_u16.to_be_bytes()).put_u32(0).put_u64(0);
    trace.add_perfinfo_event(3002, 0, hook::to_ipv6(hook::UDP_SEND), 2, &payload);
    trace
}

#[test]
fn packets_and_bytes_are_counted_by_process_connection_and_peer() {
    let mut trace = build_trace();
    let report = run_report("net", &trace.write(), &[]);
    let sums = |row: &serde_json::Value| {
        ["sent", "sent_bytes", "received", "received_bytes", "retransmits"].map(|key| number(row, key))
    };
    assert_eq!(sums(find_row(&report, "process", "app (100)")), [10, 1000, 4, 4000, 1]);
    assert_eq!(sums(find_row(&report, "process", "dns (200)")), [2, 49, 1, 300, 0]);
    let connection = "tcp 10.0.0.1:40000 → 192.0.2.7:443  app (100)";
    assert_eq!(sums(find_row(&report, "connection", connection)), [10, 1000, 4, 4000, 1]);
    let connection = find_row(&report, "connection", "udp 10.0.0.1:5353 → 192.0.2.53:53  dns (200)");
    assert_eq!(sums(connection), [1, 40, 1, 300, 0]);
    assert_eq!((&connection["local"], &connection["pid"]), (&"10.0.0.1:5353".into(), &200.into()));
    assert_eq!(sums(find_row(&report, "peer", "192.0.2.53")), [1, 40, 1, 300, 0]);
    assert_eq!(sums(find_row(&report, "peer", "::1")), [1, 9, 0, 0, 0]);
    assert_eq!(sums(rows_by(&report, "summary")[0]), [12, 1049, 5, 4300, 1]);
    assert_eq!(rows_by(&report, "process")[0]["name"], "app (100)", "the most bytes come first");
}

#[test]
fn selection_limits_the_report_and_empty_reports_say_what_to_record() {
    let mut trace = build_trace();
    let path = trace.write();
    let report = run_report("net", &path, &["--process", "dns"]);
    assert_eq!(rows_by(&report, "process").len(), 1);
    assert_eq!(number(rows_by(&report, "summary")[0], "others"), 15);
    let report = run_report("net", &path, &["--from", "2.9ms"]);
    assert_eq!(number(rows_by(&report, "summary")[0], "sent"), 2);
    let run = weir(["report", "net", path.to_str().unwrap(), "--process", "nobody"]).expect(1);
    assert!(run.stderr.contains("no network events of process nobody"), "{}", run.stderr);
    let mut without = TraceBuilder::new();
    let run = weir(["report", "net", without.write().to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("weir record --kernel net"), "{}", run.stderr);
    let text = weir(["report", "net", path.to_str().unwrap()]).expect(0).text();
    for part in ["12 packets of 1,049 bytes sent", "1 retransmit", "\nprocesses\n", "\npeers\n"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn windows_trace_has_network_totals() {
    let Some(path) = sample("net.4.5.2.x64.etl.zip") else {
        return skip("windows-net", "the sample net.4.5.2.x64.etl.zip is missing");
    };
    let report = run_report("net", &path, &[]);
    let summary = rows_by(&report, "summary")[0];
    // The trace has 240 sends and 250 receives of TCP over IPv6, and 36 events of UDP.
    let packets = number(summary, "sent") + number(summary, "received");
    assert_eq!(packets, 526, "{summary}");
    let by_process = rows_by(&report, "process");
    assert_eq!(by_process.iter().map(|row| number(row, "sent")).sum::<u64>(), number(summary, "sent"));
}
