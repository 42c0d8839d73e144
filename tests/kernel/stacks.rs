//! Perf and weir record in the same run, both with frame pointers and the same depth: their stacks
//! and the shares of functions must match.
//!
//! Perf and weir record the same events, so the k-th event of one kind of a thread on a processor
//! is the same event for perf and for weir. The stack of a switch is that of the thread that is
//! switched away from; weir writes it with the next switch to that thread. perf prints a stack as
//! one chain; weir has a kernel part and a user part, which `dumped.rs` joins.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::perf::{self, Sample};
use crate::recordings::{MAX_ATTEMPTS, Measurement};
use crate::retry::retry_alternately_with_busy_processors;

/// The `AdjustReason` of a ready event: the wait of the thread is over.
const ADJUST_UNWAIT: u64 = 1;
/// The end of the user half of the address space on x86-64.
const USER_SPACE_END: u64 = 1 << 47;

/// Processor, thread and kind of an event.
type EventKey = (u64, u64, &'static str);
type Stacks = BTreeMap<EventKey, Vec<Vec<u64>>>;

/// Returns the largest number of frames in a stack of weir, as text for an option: the kernel's
/// limit, but at most 192; 127 if the limit is unreadable.
fn max_stack_frames() -> String {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").unwrap_or_default();
    limit.trim().parse().map_or(127, |limit: u64| limit.min(192)).to_string()
}

#[test]
fn stacks_of_switches_and_wakeups_match_perf_frame_by_frame() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let data = measurement.path("perf.data");
        let on_disk = measurement.path("written");
        let depth = max_stack_frames();
        let events = ["sched:sched_switch", "sched:sched_waking", "block:block_rq_issue"];
        let events = events.map(|name| format!("{name}/max-stack={depth}/"));
        let mut options = vec!["--call-graph", "fp"];
        options.extend(events.iter().flat_map(|event| ["-e", event]));
        let workload = measurement.workload(["mixed".as_ref(), on_disk.as_os_str(), "1000".as_ref()]);
        let Some(command) = perf::record_around(&data, &options, &workload) else { return };
        let mut differences = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            let groups = "process,thread,image_load,cswitch,dispatcher,disk_io,disk_io_init";
            let hooks = "CSwitch,ReadyThread,DiskIo/WriteInit";
            let recording = measurement.record_complete(&["--kernel", groups, "--stacks", hooks], &command);
            let Some(samples) = perf::read_samples(&data, true) else { continue };
            let workload_threads: BTreeSet<u64> = recording.output.numbers("tids").iter().copied().collect();
            let mut by_perf = Stacks::new();
            for sample in &samples {
                if let Some(key) = perf_key(sample, &workload_threads) {
                    by_perf.entry(key).or_default().push(sample.stack.clone());
                }
            }
            let mut by_weir = Stacks::new();
            // The threads that are switched away from, with the key and index of that switch.
            let mut absent: BTreeMap<u64, (EventKey, usize)> = BTreeMap::new();
            // Switches from threads whose next switch is from them again: the kernel skipped the
            // record of the switch to them, which would have had the stack.
            let mut without_return = Vec::new();
            for event in &recording.trace().events {
                if event.name == "Thread/CSwitch"
                    && let Some((key, index)) = absent.remove(&event.number("NewThreadId"))
                {
                    by_weir.get_mut(&key).unwrap()[index].clone_from(&event.stack);
                }
                let key @ (_, thread, _) = match event.name.as_str() {
                    "Thread/CSwitch" => (event.cpu, event.number("OldThreadId"), "switch"),
                    "Thread/ReadyThread" if event.number("AdjustReason") == ADJUST_UNWAIT => {
                        (event.cpu, event.running_thread.unwrap_or(0), "wake")
                    }
                    "DiskIo/WriteInit" => (event.cpu, event.number("IssuingThreadId"), "write"),
                    _ => continue,
                };
                if workload_threads.contains(&thread) {
                    let stacks = by_weir.entry(key).or_default();
                    let is_switch = key.2 == "switch";
                    stacks.push(if is_switch { Vec::new() } else { event.stack.clone() });
                    if is_switch {
                        without_return.extend(absent.insert(thread, (key, stacks.len() - 1)));
                    }
                }
            }
            // The kernel may skip the record of a switch. Then weir does not know which thread woke
            // others, and the numbers of events differ: this key (processor, thread, kind) is left
            // out. Nine of ten stacks must remain.
            let stack_count: usize = by_perf.values().map(Vec::len).sum();
            differences = count_stacks(&by_perf)
                .into_iter()
                .filter(|(key, count)| by_weir.get(key).map_or(0, Vec::len) != *count)
                .collect();
            by_perf.retain(|key, stacks| {
                by_weir.get(key).is_some_and(|weir_stacks| weir_stacks.len() == stacks.len())
            });
            by_weir.retain(|key, _| by_perf.contains_key(key));
            // A thread that never ran again has no stack of its last switch. The last indices come
            // first, so that the others stay valid.
            without_return.extend(absent.into_values());
            without_return.sort_unstable_by_key(|(_, index)| Reverse(*index));
            for (key, index) in without_return {
                for stacks in [&mut by_perf, &mut by_weir] {
                    if let Some(stacks) = stacks.get_mut(&key) {
                        stacks.remove(index);
                    }
                }
            }
            if by_perf.values().map(Vec::len).sum::<usize>() * 10 >= stack_count * 9 {
                return compare_stacks(&by_perf, &by_weir);
            }
        }
        panic!(
            "in each attempt perf lost events, or more than a tenth of its stacks had no counterpart; \
             counts of perf that differ from those of weir: {differences:?}"
        );
    });
}

fn perf_key(sample: &Sample, workload_threads: &BTreeSet<u64>) -> Option<EventKey> {
    let kind = match sample.name.as_str() {
        "sched_switch" => "switch",
        "sched_waking" => "wake",
        "block_rq_issue"
            if sample
                .payload()
                .split(' ')
                .nth(1)
                .is_some_and(|operation| operation.trim_start_matches('F').starts_with('W')) =>
        {
            "write"
        }
        _ => return None,
    };
    // After a thread has exited, only the payload of the switch has its id.
    let thread = if kind == "switch" { sample.number("prev_pid") } else { sample.tid };
    workload_threads.contains(&thread).then_some((sample.cpu, thread, kind))
}

fn count_stacks(stacks_by_key: &Stacks) -> Vec<(EventKey, usize)> {
    stacks_by_key.iter().map(|(key, stacks)| (*key, stacks.len())).collect()
}

#[track_caller]
fn compare_stacks(by_perf: &Stacks, by_weir: &Stacks) {
    assert_eq!(
        count_stacks(by_perf),
        count_stacks(by_weir),
        "perf and weir have different numbers of events"
    );
    let mut counts_by_kind: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut first_difference = None;
    for (key, stacks) in by_perf {
        for (index, (perf, weir)) in stacks.iter().zip(&by_weir[key]).enumerate() {
            let (total, same) = counts_by_kind.entry(key.2).or_default();
            *total += 1;
            // While a program is being loaded, the return address of its first function is 0, which
            // weir leaves out.
            let perf = perf.strip_suffix(&[0]).unwrap_or(perf);
            if perf == weir {
                *same += 1;
            } else {
                first_difference
                    .get_or_insert_with(|| format!("{key:?} {index}: perf {perf:x?}, weir {weir:x?}"));
            }
        }
    }
    assert!(
        counts_by_kind["switch"].0 >= 2000 && counts_by_kind["wake"].0 >= 500,
        "too few stacks: {counts_by_kind:?}"
    );
    for (kind, (total, same)) in &counts_by_kind {
        assert!(
            same * 100 >= total * 99,
            "{kind}: only {same} of {total} stacks are the same; {}",
            first_difference.unwrap_or_default()
        );
    }
    let has_user_frame = |stack: &Vec<u64>| stack.iter().any(|frame| *frame < USER_SPACE_END);
    let switches =
        by_weir.iter().filter(|((_, _, kind), _)| *kind == "switch").flat_map(|(_, stacks)| stacks);
    let user_stacks = switches.filter(|stack| has_user_frame(stack)).count();
    assert!(
        user_stacks * 100 >= counts_by_kind["switch"].0 * 90,
        "only {user_stacks} stacks of switches have user frames: {counts_by_kind:?}"
    );
}

#[test]
fn function_shares_match_perf_within_three_standard_errors() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let data = measurement.path("perf.data");
        let workload = measurement.workload(["ratio", "3000"]);
        // perf samples at the same rate as weir: every 1,000,000 ns.
        let options = ["-e", "cpu-clock", "-c", "1000000", "--call-graph", "fp"];
        let Some(command) = perf::record_around(&data, &options, &workload) else { return };
        let (recording, samples) = (0..MAX_ATTEMPTS)
            .find_map(|_| {
                let recording =
                    measurement.record_complete(&["--kernel", "cpu", "--interval", "1ms"], &command);
                perf::read_samples(&data, false).map(|samples| (recording, samples))
            })
            .expect("perf lost events in each attempt");
        let pid = recording.output.number("pid");
        let rows = recording.report("cpu", &["--process", &pid.to_string()]);
        let summary = rows.iter().find(|row| row["by"] == "summary").expect("the report has no summary");
        let weir_samples = as_f64(&summary["samples"]);
        let by_perf: Vec<_> = samples.iter().filter(|sample| sample.tid == pid).collect();
        assert!(
            weir_samples >= 500.0 && by_perf.len() >= 500,
            "too few samples: {weir_samples} of weir and {} of perf",
            by_perf.len()
        );
        let symbols = perf::innermost_functions(&data, pid);
        for function in ["three_parts", "one_part"] {
            let row = rows.iter().find(|row| row["by"] == "function" && row["function"] == function);
            let row = row.unwrap_or_else(|| panic!("the report has no row of {function}"));
            let share = as_f64(&row["own"]) / weir_samples;
            let count = symbols.iter().filter(|symbol| *symbol == function).count();
            let perf_share = count as f64 / symbols.len() as f64;
            let error = (share * (1.0 - share) / weir_samples
                + perf_share * (1.0 - perf_share) / symbols.len() as f64)
                .sqrt();
            assert!(
                (share - perf_share).abs() <= 3.0 * error,
                "{function}: weir {share:.3}, perf {perf_share:.3}, ±{error:.4}"
            );
        }
    });
}

fn as_f64(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}
