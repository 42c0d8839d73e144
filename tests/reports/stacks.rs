//! Tests that `weir dump --stacks` prints stacks of kernel events below their events.

use super::trace_builder::{EXECUTIVE, KERNEL, RUNNING, TraceBuilder, USER_REQUEST, WAITING};
use crate::util::{sample, weir};

const APP_BASE: u64 = 0x40_0000;

fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_thread(100, 101);
    trace.add_image(100, APP_BASE, 0x1000, "/nowhere/app");
    trace.add_sample(1000, 0, 101, KERNEL + 0x10);
    trace.add_sample(1000, 1, 0, KERNEL + 0x90);
    trace.add_stack_at(1500, 1000, 1, (100, 101), &[APP_BASE + 0x20, APP_BASE + 0x30]);
    trace.add_stack(1000, 0, (100, 101), &[KERNEL + 0x10]);
    // The stack of a switch may be that of the outgoing thread, as at 2 ms, or of the incoming
    // thread, as at 3 ms.
    trace.add_switch(2000, 0, (101, 0), WAITING, USER_REQUEST);
    trace.add_stack(2000, 0, (100, 101), &[KERNEL + 0x40, APP_BASE + 0x50]);
    trace.add_switch(3000, 0, (0, 101), RUNNING, EXECUTIVE);
    trace.add_stack(3000, 0, (100, 101), &[KERNEL + 0x60]);
    // The event of this stack is not in the trace.
    trace.add_stack(3500, 0, (100, 101), &[KERNEL + 0x70]);
    trace
}

/// Returns the lines of a dump without their times: the name of the event, or a frame.
fn dump_lines(arguments: &[&str]) -> Vec<String> {
    let mut command = vec!["dump"];
    command.extend(arguments);
    let text = weir(&command).expect(0).text();
    let shorten_line = |line: &str| match line.strip_prefix("    ") {
        Some(frame) => frame.to_owned(),
        None => {
            let name = line.split("Windows Kernel/").nth(1).unwrap_or(line);
            name.split(' ').next().unwrap_or_default().to_owned()
        }
    };
    text.lines().map(shorten_line).collect()
}

#[test]
fn stack_is_printed_below_its_event_kernel_first() {
    let mut trace = build_trace();
    let path = trace.write();
    let path = path.to_str().unwrap();
    let printed = dump_lines(&[path, "--stacks", "--from", "1ms"]);
    let expected = [
        "PerfInfo/SampleProf",
        "kernel+0x10",
        "app+0x20",
        "app+0x30",
        "PerfInfo/SampleProf",
        "Thread/CSwitch",
        "kernel+0x40",
        "app+0x50",
        "Thread/CSwitch",
        "kernel+0x60",
        "StackWalk/Stack",
    ];
    assert_eq!(printed, expected);
}

#[test]
fn selected_events_keep_their_stacks_regardless_of_filters() {
    let mut trace = build_trace();
    let path = trace.write();
    let path = path.to_str().unwrap();
    let switches = ["Thread/CSwitch", "kernel+0x40", "app+0x50", "Thread/CSwitch", "kernel+0x60"];
    assert_eq!(dump_lines(&[path, "--stacks", "--event", "CSwitch"]), switches);
    assert_eq!(dump_lines(&[path, "--stacks", "--event", "CSwitch", "--head", "1"]), switches[..3]);
    assert_eq!(dump_lines(&[path, "--stacks", "--event", "CSwitch", "--to", "2ms"]), switches[..3]);
    assert_eq!(
        dump_lines(&[path, "--event", "CSwitch"]),
        ["Thread/CSwitch"; 2],
        "stacks are printed without --stacks"
    );
}

#[test]
fn two_traces_are_merged_with_their_stacks() {
    let (mut trace_a, mut trace_b) = (build_trace(), build_trace());
    let (path_a, path_b) = (trace_a.write(), trace_b.write());
    let printed =
        dump_lines(&[path_a.to_str().unwrap(), path_b.to_str().unwrap(), "--stacks", "--event", "CSwitch"]);
    let first_switch = ["Thread/CSwitch", "kernel+0x40", "app+0x50"];
    let second_switch = ["Thread/CSwitch", "kernel+0x60"];
    assert_eq!(printed, [&first_switch[..], &first_switch, &second_switch, &second_switch].concat());
}

#[test]
fn every_stack_of_a_windows_trace_finds_its_event() {
    let Some(path) = sample("net.4.5.2.x64.etl.zip") else { return };
    let path = path.to_str().unwrap();
    let (with_stacks, without_stacks) =
        (weir(["dump", path, "--stacks"]).expect(0).text(), weir(["dump", path]).expect(0).text());
    let is_stack_event = |line: &&str| {
        ["Stack", "StackKeyKernel", "StackKeyUser"]
            .iter()
            .any(|name| line.contains(&format!("Windows Kernel/StackWalk/{name} ")))
    };
    // The numbers of the three kinds, in the order above.
    assert_eq!(without_stacks.lines().filter(is_stack_event).count(), 252 + 2061 + 7046);
    assert_eq!(with_stacks.lines().filter(is_stack_event).count(), 0);
    let events: Vec<&str> = with_stacks.lines().filter(|line| !line.starts_with("    ")).collect();
    let expected: Vec<&str> = without_stacks.lines().filter(|line| !is_stack_event(line)).collect();
    assert!(events == expected, "--stacks changes the events or their order");
}
