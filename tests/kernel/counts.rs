//! Compares event counts of perf and weir over the same period: equal for each kind and each thread
//! of the workload.
//!
//! ```text
//!   sched_switch             next, prev        Thread/CSwitch             new, old
//!   sched_waking, _wakeup_new   pid            Thread/ReadyThread         thread
//!   sched_process_fork, exec    child, pid     Thread/Start               (3)
//!   sched_process_exit, exec    pid            Thread/End
//!   sys_enter, sys_exit         tid            PerfInfo/SysClEnter, Exit  running thread (4)
//!   block_rq_issue, complete    tid, sector    DiskIo/…Init, DiskIo/…     issuing thread
//!   sock_send_length, recv      tid            TcpIp, UdpIp               process (1)
//!   softirq_exit, irq_handler_exit             PerfInfo/DPC, TimerDPC, ISR  processor (2)
//!
//!   (1) only AF_INET and AF_INET6, and only results above 0
//!   (2) between the first and the last switch to the workload on the processor
//!   (3) an exec ends a thread and starts it again
//!   (4) according to the context switches
//! ```
//!
//! Edges: the workload's leader is a child that starts when both record and ends before they stop,
//! so both record everything about it and its descendants. The process that waits for the leader,
//! and perf itself, are not covered. The kernel occasionally skips an event while it handles
//! another one, and does so separately for each listener: perf alone shows switches from threads
//! that were never switched to. Such a run is measured again.

use std::collections::{BTreeMap, BTreeSet};

use crate::again::again;
use crate::dumped::{Event, Trace};
use crate::perf::{self, Sample, tally};
use crate::stage::{ATTEMPTS, Stage, Truth};

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

/// A kind of event, and the thread it concerns.
type Key = (&'static str, u64);

#[test]
fn event_counts_of_each_kind_and_thread_match_perf() {
    again(5, || {
        let Some(stage) = Stage::start() else { return };
        let data = stage.path("perf.data");
        let on_disk = stage.path("written");
        let workload = stage.workload(["mixed".as_ref(), on_disk.as_os_str(), "2000".as_ref()]);
        let events: Vec<&str> = TRACEPOINTS.iter().flat_map(|name| ["-e", name]).collect();
        let Some(command) = perf::record_around(&data, &events, &workload) else { return };
        let mut differ = Vec::new();
        for _ in 0..ATTEMPTS {
            let recording = stage.record_complete(&["--kernel", KERNEL, "--stacks", "none"], &command);
            let Some(samples) = perf::script(&data, false) else { continue };
            let ours: BTreeSet<u64> = recording.truth.all("tids").iter().copied().collect();
            let trace = recording.trace();
            differ = compare_threads(&samples, &trace, &ours, &recording.truth);
            differ.extend(compare_processors(&samples, &trace, &ours));
            compare_connections(&samples, &trace, recording.truth.one("tcp"));
            if differ.is_empty() {
                return;
            }
        }
        panic!("perf loses events each time, or counts others:\n{}", differ.join("\n"));
    });
}

/// Returns the differences by thread. Fails where there is nothing to compare.
#[track_caller]
fn compare_threads(samples: &[Sample], trace: &Trace, ours: &BTreeSet<u64>, truth: &Truth) -> Vec<String> {
    let concerns = |(_, thread): &Key| ours.contains(thread);
    let mut issued = BTreeSet::new();
    let by_perf = samples.iter().flat_map(|sample| perf_keys(sample, ours, &mut issued)).filter(concerns);
    let by_perf = tally(by_perf);
    let by_weir = tally(trace.0.iter().flat_map(weir_keys).filter(concerns));
    let differ = difference(&by_perf, &by_weir);
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    by_weir.iter().for_each(|((kind, _), count)| *sums.entry(kind).or_default() += count);
    let starts = truth.all("tids").len() as u64 + 10;
    assert_eq!((sums["start"], sums["end"]), (starts, starts), "10 of them run another program");
    assert!(sums["switch to"] >= 2000 && sums["ready"] >= 1000, "{sums:?}");
    assert_eq!((sums["send"], sums["receive"]), (60, 60));
    assert!(sums["enter"] >= 8000, "{sums:?}");
    differ
}

fn difference<K: Ord + std::fmt::Debug>(
    by_perf: &BTreeMap<K, u64>,
    by_weir: &BTreeMap<K, u64>,
) -> Vec<String> {
    let keys: BTreeSet<&K> = by_perf.keys().chain(by_weir.keys()).collect();
    let others = keys.into_iter().filter(|key| by_perf.get(key) != by_weir.get(key));
    others.map(|key| format!("{key:?}: perf {:?}, weir {:?}", by_perf.get(key), by_weir.get(key))).collect()
}

/// Returns the kinds and threads that an event of perf stands for.
fn perf_keys(sample: &Sample, ours: &BTreeSet<u64>, issued: &mut BTreeSet<(String, u64)>) -> Vec<Key> {
    let own = sample.tid;
    match sample.name.as_str() {
        "sched_switch" => {
            vec![("switch to", sample.number("next_pid")), ("switch from", sample.number("prev_pid"))]
        }
        "sched_waking" | "sched_wakeup_new" => vec![("ready", sample.number("pid"))],
        "sched_process_fork" => vec![("start", sample.number("child_pid"))],
        "sched_process_exec" => vec![("start", own), ("end", own)],
        "sched_process_exit" => vec![("end", own)],
        "sys_enter" => vec![("enter", own)],
        "sys_exit" => vec![("exit", own)],
        "sock_send_length" | "sock_recv_length" => {
            let is_internet = matches!(sample.text("family"), Some("AF_INET" | "AF_INET6"));
            let moved = sample
                .text("length")
                .and_then(|length| length.parse::<i64>().ok())
                .is_some_and(|length| length > 0);
            let kind = if sample.name == "sock_send_length" { "send" } else { "receive" };
            if is_internet && moved { vec![(kind, own)] } else { Vec::new() }
        }
        "block_rq_issue" if ours.contains(&own) => {
            let request = request(sample, 4);
            // Discards and similar requests have no event.
            let kind = request.as_ref().and_then(|(letters, _)| disk_kind(letters));
            issued.extend(request);
            kind.map(|kind| (kind, own)).into_iter().collect()
        }
        "block_rq_complete" => match request(sample, 3).filter(|key| issued.remove(key)) {
            // The thread that the completion interrupts is arbitrary, so it is counted for the
            // first thread.
            Some(_) => ours.first().map(|first| ("disk done", *first)).into_iter().collect(),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Parses operation and sector of a disk request: `254,0 WS 4096 () 363947968 + 8`.
fn request(sample: &Sample, sector_index: usize) -> Option<(String, u64)> {
    let words: Vec<&str> = sample.payload().split_whitespace().collect();
    Some(((*words.get(1)?).to_owned(), words.get(sector_index)?.parse().ok()?))
}

fn disk_kind(letters: &str) -> Option<&'static str> {
    let letters = if letters.len() > 1 { letters.trim_start_matches('F') } else { letters };
    match letters.chars().next() {
        Some('R') => Some("disk read"),
        Some('W') => Some("disk write"),
        _ => None,
    }
}

/// Returns the kinds and threads that an event of weir stands for.
fn weir_keys(event: &Event) -> Vec<Key> {
    let running = |kind| event.running.map(|thread| (kind, thread)).into_iter().collect();
    match event.name.as_str() {
        "Thread/CSwitch" => {
            vec![("switch to", event.number("NewThreadId")), ("switch from", event.number("OldThreadId"))]
        }
        "Thread/ReadyThread" => vec![("ready", event.number("ThreadId"))],
        "Thread/Start" => vec![("start", event.number("TThreadId"))],
        "Thread/End" => vec![("end", event.number("TThreadId"))],
        "PerfInfo/SysClEnter" => running("enter"),
        "PerfInfo/SysClExit" => running("exit"),
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
    let state = |sample: &Sample, from: &str, end: &str| {
        sample.name == "inet_sock_set_state"
            && sample.text("oldstate") == Some(from)
            && sample.text("newstate") == Some("TCP_ESTABLISHED")
            && sample.number(end) == port
    };
    for (name, from, end) in
        [("TcpIp/Connect", "TCP_SYN_SENT", "dport"), ("TcpIp/Accept", "TCP_SYN_RECV", "sport")]
    {
        let by_perf = samples.iter().filter(|sample| state(sample, from, end)).count();
        let by_weir = trace.named(name).filter(|event| event.number(end) == port).count();
        assert_eq!((by_perf, by_weir), (1, 1), "{name}");
    }
}

/// Compares events that concern no thread, on each processor between the first and the last switch
/// to the workload there. Returns the differences.
#[track_caller]
fn compare_processors(samples: &[Sample], trace: &Trace, ours: &BTreeSet<u64>) -> Vec<String> {
    let by_perf: Vec<(u64, Option<&str>, bool)> = samples
        .iter()
        .map(|sample| {
            let kind = match sample.name.as_str() {
                "softirq_exit" => Some("deferred"),
                "irq_handler_exit" => Some("interrupt"),
                _ => None,
            };
            (sample.cpu, kind, sample.name == "sched_switch" && ours.contains(&sample.number("next_pid")))
        })
        .collect();
    let by_weir: Vec<(u64, Option<&str>, bool)> = trace
        .0
        .iter()
        .map(|event| {
            let kind = match event.name.as_str() {
                "PerfInfo/DPC" | "PerfInfo/TimerDPC" => Some("deferred"),
                "PerfInfo/ISR" => Some("interrupt"),
                _ => None,
            };
            (event.cpu, kind, event.name == "Thread/CSwitch" && ours.contains(&event.number("NewThreadId")))
        })
        .collect();
    let (by_perf, by_weir) = (between_marks(&by_perf), between_marks(&by_weir));
    assert!(!by_weir.is_empty(), "nothing was interrupted");
    difference(&by_perf, &by_weir)
}

/// Counts events by processor and kind, from the first to the last mark on each processor.
fn between_marks<'a>(events: &[(u64, Option<&'a str>, bool)]) -> BTreeMap<(u64, &'a str), u64> {
    let cpus: BTreeSet<u64> = events.iter().filter(|(.., is_mark)| *is_mark).map(|event| event.0).collect();
    let mut counts = BTreeMap::new();
    for cpu in cpus {
        let here: Vec<_> = events.iter().filter(|event| event.0 == cpu).collect();
        let first = here.iter().position(|event| event.2).unwrap_or(0);
        let last = here.iter().rposition(|event| event.2).unwrap_or(0);
        for kind in here[first..=last].iter().filter_map(|event| event.1) {
            *counts.entry((cpu, kind)).or_insert(0) += 1;
        }
    }
    counts
}
