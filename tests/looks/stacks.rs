//! `weir dump --stacks`: stacks of kernel events are printed below the events they belong to.

use super::scene::{KERNEL, Scene};
use crate::util::{sample, weir};

const APP: u64 = 0x40_0000;

fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.process(100, "app");
    scene.thread(100, 101);
    scene.image(100, APP, 0x1000, "/nowhere/app");
    scene.sample(1000, 0, 101, KERNEL + 0x10);
    scene.sample(1000, 1, 0, KERNEL + 0x90);
    scene.stack_at(1500, 1000, 1, (100, 101), &[APP + 0x20, APP + 0x30]);
    scene.stack(1000, 0, (100, 101), &[KERNEL + 0x10]);
    // The stack of a switch is that of the outgoing thread or of the incoming one.
    scene.switch(2000, 0, (101, 0), 5, 6);
    scene.stack(2000, 0, (100, 101), &[KERNEL + 0x40, APP + 0x50]);
    scene.switch(3000, 0, (0, 101), 2, 0);
    scene.stack(3000, 0, (100, 101), &[KERNEL + 0x60]);
    // The event of this stack is not in the trace.
    scene.stack(3500, 0, (100, 101), &[KERNEL + 0x70]);
    scene
}

/// Returns the lines of a dump without their times: the name of the event, or a frame.
fn lines(arguments: &[&str]) -> Vec<String> {
    let mut all = vec!["dump"];
    all.extend(arguments);
    let page = weir(&all).expect(0).text();
    let line = |line: &str| match line.strip_prefix("    ") {
        Some(frame) => frame.to_owned(),
        None => {
            let name = line.split("Windows Kernel/").nth(1).unwrap_or(line);
            name.split(' ').next().unwrap_or_default().to_owned()
        }
    };
    page.lines().map(line).collect()
}

#[test]
fn stack_is_printed_below_its_event_kernel_first() {
    let mut scene = scene();
    let path = scene.write();
    let path = path.to_str().unwrap();
    let printed = lines(&[path, "--stacks", "--from", "1ms"]);
    let wanted = [
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
    assert_eq!(printed, wanted);
}

#[test]
fn selected_events_keep_their_stacks_regardless_of_filters() {
    let mut scene = scene();
    let path = scene.write();
    let path = path.to_str().unwrap();
    let switches = ["Thread/CSwitch", "kernel+0x40", "app+0x50", "Thread/CSwitch", "kernel+0x60"];
    assert_eq!(lines(&[path, "--stacks", "--event", "CSwitch"]), switches);
    assert_eq!(lines(&[path, "--stacks", "--event", "CSwitch", "--head", "1"]), switches[..3]);
    assert_eq!(lines(&[path, "--stacks", "--event", "CSwitch", "--to", "2ms"]), switches[..3]);
    assert_eq!(
        lines(&[path, "--event", "CSwitch"]),
        ["Thread/CSwitch"; 2],
        "without the option there are none"
    );
}

#[test]
fn two_traces_are_merged_with_their_stacks() {
    let (mut one, mut other) = (scene(), scene());
    let (one, other) = (one.write(), other.write());
    let printed = lines(&[one.to_str().unwrap(), other.to_str().unwrap(), "--stacks", "--event", "CSwitch"]);
    let first = ["Thread/CSwitch", "kernel+0x40", "app+0x50"];
    let second = ["Thread/CSwitch", "kernel+0x60"];
    assert_eq!(printed, [&first[..], &first, &second, &second].concat());
}

#[test]
fn every_stack_of_a_windows_trace_finds_its_event() {
    let Some(path) = sample("net.4.5.2.x64.etl.zip") else { return };
    let path = path.to_str().unwrap();
    let (with, without) =
        (weir(["dump", path, "--stacks"]).expect(0).text(), weir(["dump", path]).expect(0).text());
    let of_stacks = |line: &&str| {
        ["Stack", "StackKeyKernel", "StackKeyUser"]
            .iter()
            .any(|name| line.contains(&format!("Windows Kernel/StackWalk/{name} ")))
    };
    assert_eq!(without.lines().filter(of_stacks).count(), 252 + 2061 + 7046);
    assert_eq!(with.lines().filter(of_stacks).count(), 0);
    let events: Vec<&str> = with.lines().filter(|line| !line.starts_with("    ")).collect();
    let plain: Vec<&str> = without.lines().filter(|line| !of_stacks(line)).collect();
    assert!(events == plain, "the events themselves are the same, in the same order");
}
