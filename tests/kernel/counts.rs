//! Compares the event counts of perf and weir over the same period. They must be equal for each
//! kind of event and each thread of the workload.
//!
//! ```text
//!   perf                        counted for    weir                       counted for
//!
//!   sched_switch                next, prev     Thread/CSwitch             new, old
//!   sched_waking, _wakeup_new   pid            Thread/ReadyThread         thread
//!   sched_process_fork, exec    child, tid     Thread/Start               thread (3)
//!   sched_process_exit, exec    tid            Thread/End                 thread (3)
//!   sys_enter, sys_exit         tid            PerfInfo/SysClEnter, Exit  running thread (4)
//!   block_rq_issue, complete    tid, sector    DiskIo/…Init, DiskIo/…     issuing thread
//!   sock_send_length, recv      tid            TcpIp, UdpIp               process (1)
//!   inet_sock_set_state         port           TcpIp/Connect, Accept      port
//!   softirq_exit                processor (2)  PerfInfo/DPC, TimerDPC     processor (2)
//!   irq_handler_exit            processor (2)  PerfInfo/ISR               processor (2)
//!
//!   (1) only AF_INET and AF_INET6, and only results above 0; the leader makes all these calls, so
//!       its process id is its thread id
//!   (2) between the first and the last switch to the workload on the processor
//!   (3) an exec ends a thread and starts it again
//!   (4) according to the context switches
//! ```
//!
//! The workload's leader is a child that starts after the recordings of perf and weir began, and
//! ends before they stop. So each recording has all events of the leader and its descendants. The
//! process that waits for the leader, and perf itself, are not compared.
//!
//! The kernel occasionally skips an event while it handles another one, and does so separately for
//! each listener: even recordings of perf alone have switches from threads that were never switched
//! to. A run with such differences is measured again.

use std::collections::{BTreeMap, BTreeSet};

use crate::dumped::{Event, Trace};
use crate::perf::{self, Sample, count_by_key};
use crate::recordings::{MAX_ATTEMPTS, Measurement, WorkloadOutput};
use crate::retry::retry_alternately_with_busy_processors;

const KERNEL: &str =
    "process,thread,cswitch,dispatcher,systemcall,disk_io,disk_io_init,network_tcpip,dpc,interrupt";
const TRACEPOINTS: [&str; 15] = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup_new",
    "sched:sched_process_fork",
    "sched:sched_process_exec",
    "sched:sched_process_exit",
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
    "irq:irq_handler_exit",
    "irq:softirq_exit",
    "block:block_rq_issue",
    "block:block_rq_complete",
    "sock:sock_send_length",
    "sock:sock_recv_length",
    "sock:inet_sock_set_state",
];

/// A kind of event, and the thread that it concerns.
type EventKey = (&'static str, u64);

#[test]
fn event_counts_of_each_kind_and_thread_match_perf() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let data = measurement.path("perf.data");
        let on_disk = measurement.path("written");
        let workload = measurement.workload(["mixed".as_ref(), on_disk.as_os_str(), "2000".as_ref()]);
        let events: Vec<&str> = TRACEPOINTS.iter().flat_map(|name| ["-e", name]).collect();
        let Some(command) = perf::record_around(&data, &events, &workload) else { return };
        let mut differences = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            let recording = measurement.record_complete(&["--kernel", KERNEL, "--stacks", "none"], &command);
            let Some(samples) = perf::read_samples(&data, false) else { continue };
            let workload_threads: BTreeSet<u64> = recording.output.numbers("tids").iter().copied().collect();
            let trace = recording.trace();
            differences = compare_threads(&samples, &trace, &workload_threads, &recording.output);
            differences.extend(compare_processors(&samples, &trace, &workload_threads));
            compare_connections(&samples, &trace, recording.output.number("tcp"));
            if differences.is_empty() {
                return;
            }
        }
        panic!(
            "in each attempt perf lost events, or its counts differ from those of weir:\n{}",
            differences.join("\n")
        );
    });
}

/// Returns the differences by thread. Fails if weir's totals do not match the known behaviour of
/// the workload.
#[track_caller]
fn compare_threads(
    samples: &[Sample],
    trace: &Trace,
    workload_threads: &BTreeSet<u64>,
    output: &WorkloadOutput,
) -> Vec<String> {
    let in_workload = |(_, thread): &EventKey| workload_threads.contains(thread);
    let mut issued = BTreeSet::new();
    let by_perf = samples
        .iter()
        .flat_map(|sample| perf_keys(sample, workload_threads, &mut issued))
        .filter(in_workload);
    let by_perf = count_by_key(by_perf);
    let by_weir = count_by_key(trace.events.iter().flat_map(weir_keys).filter(in_workload));
    let differences = list_differences(&by_perf, &by_weir);
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    by_weir.iter().for_each(|((kind, _), count)| *totals.entry(kind).or_default() += count);
    let starts = output.numbers("tids").len() as u64 + 10;
    assert_eq!(
        (totals["start"], totals["end"]),
        (starts, starts),
        "wrong numbers of thread starts and ends, including those of 10 exec calls"
    );
    assert!(totals["switch to"] >= 2000 && totals["ready"] >= 1000, "too few switches: {totals:?}");
    // 40 by TCP and 20 by UDP.
    assert_eq!((totals["send"], totals["receive"]), (60, 60));
    assert!(totals["enter"] >= 8000, "too few system calls: {totals:?}");
    differences
}

fn list_differences<K: Ord + std::fmt::Debug>(
    by_perf: &BTreeMap<K, u64>,
    by_weir: &BTreeMap<K, u64>,
) -> Vec<String> {
    let keys: BTreeSet<&K> = by_perf.keys().chain(by_weir.keys()).collect();
    let different = keys.into_iter().filter(|key| by_perf.get(key) != by_weir.get(key));
    different
        .map(|key| format!("{key:?}: perf {:?}, weir {:?}", by_perf.get(key), by_weir.get(key)))
        .collect()
}

/// Returns the kinds and threads for which an event of perf is counted. `issued` has the disk
/// requests of the workload that are not complete.
fn perf_keys(
    sample: &Sample,
    workload_threads: &BTreeSet<u64>,
    issued: &mut BTreeSet<(String, u64)>,
) -> Vec<EventKey> {
    let tid = sample.tid;
    match sample.name.as_str() {
        "sched_switch" => {
            vec![("switch to", sample.number("next_pid")), ("switch from", sample.number("prev_pid"))]
        }
        "sched_waking" | "sched_wakeup_new" => vec![("ready", sample.number("pid"))],
        "sched_process_fork" => vec![("start", sample.number("child_pid"))],
        "sched_process_exec" => vec![("start", tid), ("end", tid)],
        "sched_process_exit" => vec![("end", tid)],
        "sys_enter" => vec![("enter", tid)],
        "sys_exit" => vec![("exit", tid)],
        "sock_send_length" | "sock_recv_length" => {
            let is_internet = matches!(sample.text("family"), Some("AF_INET" | "AF_INET6"));
            let has_bytes = sample
                .text("length")
                .and_then(|length| length.parse::<i64>().ok())
                .is_some_and(|length| length > 0);
            let kind = if sample.name == "sock_send_length" { "send" } else { "receive" };
            if is_internet && has_bytes { vec![(kind, tid)] } else { Vec::new() }
        }
        "block_rq_issue" if workload_threads.contains(&tid) => {
            let request = parse_disk_request(sample, 4);
            // Discards and similar requests have no event.
            let kind = request.as_ref().and_then(|(letters, _)| disk_kind(letters));
            issued.extend(request);
            kind.map(|kind| (kind, tid)).into_iter().collect()
        }
        "block_rq_complete" => match parse_disk_request(sample, 3).filter(|key| issued.remove(key)) {
            // A completion interrupts an arbitrary thread, so the completion is counted for the
            // first thread of the workload, the leader.
            Some(_) => workload_threads.first().map(|first| ("disk done", *first)).into_iter().collect(),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Parses the operation and the sector of a disk request: `254,0 WS 4096 () 363947968 + 8`. The
/// text of a completion lacks the size (`4096`).
fn parse_disk_request(sample: &Sample, sector_index: usize) -> Option<(String, u64)> {
    let words: Vec<&str> = sample.payload().split_whitespace().collect();
    Some(((*words.get(1)?).to_owned(), words.get(sector_index)?.parse().ok()?))
}

/// Returns the kind of a disk request by the letters of its operation. An `F` before other letters
/// requests a flush before the operation.
fn disk_kind(letters: &str) -> Option<&'static str> {
    let letters = if letters.len() > 1 { letters.trim_start_matches('F') } else { letters };
    match letters.chars().next() {
        Some('R') => Some("disk read"),
        Some('W') => Some("disk write"),
        _ => None,
    }
}

/// Returns the kinds and threads for which an event of weir is counted.
fn weir_keys(event: &Event) -> Vec<EventKey> {
    let running_key = |kind| event.running_thread.map(|thread| (kind, thread)).into_iter().collect();
    match event.name.as_str() {
        "Thread/CSwitch" => {
            vec![("switch to", event.number("NewThreadId")), ("switch from", event.number("OldThreadId"))]
        }
        "Thread/ReadyThread" => vec![("ready", event.number("ThreadId"))],
        "Thread/Start" => vec![("start", event.number("TThreadId"))],
        "Thread/End" => vec![("end", event.number("TThreadId"))],
        "PerfInfo/SysClEnter" => running_key("enter"),
        "PerfInfo/SysClExit" => running_key("exit"),
        "TcpIp/Send" | "UdpIp/Send" => vec![("send", event.number("PID"))],
        "TcpIp/Recv" | "UdpIp/Recv" => vec![("receive", event.number("PID"))],
        "DiskIo/ReadInit" => vec![("disk read", event.number("IssuingThreadId"))],
        "DiskIo/WriteInit" => vec![("disk write", event.number("IssuingThreadId"))],
        "DiskIo/Read" | "DiskIo/Write" => vec![("disk done", event.number("IssuingThreadId"))],
        _ => Vec::new(),
    }
}

/// Compares the connections to the port that the workload listened on.
#[track_caller]
fn compare_connections(samples: &[Sample], trace: &Trace, port: u64) {
    let is_established = |sample: &Sample, old_state: &str, port_field: &str| {
        sample.name == "inet_sock_set_state"
            && sample.text("oldstate") == Some(old_state)
            && sample.text("newstate") == Some("TCP_ESTABLISHED")
            && sample.number(port_field) == port
    };
    for (name, old_state, port_field) in
        [("TcpIp/Connect", "TCP_SYN_SENT", "dport"), ("TcpIp/Accept", "TCP_SYN_RECV", "sport")]
    {
        let by_perf = samples.iter().filter(|sample| is_established(sample, old_state, port_field)).count();
        let by_weir = trace.events_named(name).filter(|event| event.number(port_field) == port).count();
        assert_eq!((by_perf, by_weir), (1, 1), "{name}");
    }
}

/// An event on a processor.
struct ProcessorEvent<'a> {
    cpu: u64,
    /// `None` for events that are not compared.
    kind: Option<&'a str>,
    /// Whether the event is a switch to a thread of the workload.
    is_mark: bool,
}

/// Compares events that concern no thread: on each processor, those between the first and the last
/// switch to the workload. Returns the differences.
#[track_caller]
fn compare_processors(samples: &[Sample], trace: &Trace, workload_threads: &BTreeSet<u64>) -> Vec<String> {
    let by_perf: Vec<ProcessorEvent<'_>> = samples
        .iter()
        .map(|sample| {
            let kind = match sample.name.as_str() {
                "softirq_exit" => Some("deferred"),
                "irq_handler_exit" => Some("interrupt"),
                _ => None,
            };
            let is_mark =
                sample.name == "sched_switch" && workload_threads.contains(&sample.number("next_pid"));
            ProcessorEvent { cpu: sample.cpu, kind, is_mark }
        })
        .collect();
    let by_weir: Vec<ProcessorEvent<'_>> = trace
        .events
        .iter()
        .map(|event| {
            let kind = match event.name.as_str() {
                "PerfInfo/DPC" | "PerfInfo/TimerDPC" => Some("deferred"),
                "PerfInfo/ISR" => Some("interrupt"),
                _ => None,
            };
            let is_mark =
                event.name == "Thread/CSwitch" && workload_threads.contains(&event.number("NewThreadId"));
            ProcessorEvent { cpu: event.cpu, kind, is_mark }
        })
        .collect();
    let (by_perf, by_weir) = (count_between_marks(&by_perf), count_between_marks(&by_weir));
    assert!(!by_weir.is_empty(), "weir recorded no interrupt");
    list_differences(&by_perf, &by_weir)
}

/// Counts events by processor and kind, from the first to the last mark on each processor.
fn count_between_marks<'a>(events: &[ProcessorEvent<'a>]) -> BTreeMap<(u64, &'a str), u64> {
    let cpus: BTreeSet<u64> = events.iter().filter(|event| event.is_mark).map(|event| event.cpu).collect();
    let mut counts = BTreeMap::new();
    for cpu in cpus {
        let on_cpu: Vec<_> = events.iter().filter(|event| event.cpu == cpu).collect();
        let first = on_cpu.iter().position(|event| event.is_mark).unwrap_or(0);
        let last = on_cpu.iter().rposition(|event| event.is_mark).unwrap_or(0);
        for kind in on_cpu[first..=last].iter().filter_map(|event| event.kind) {
            *counts.entry((cpu, kind)).or_insert(0) += 1;
        }
    }
    counts
}
