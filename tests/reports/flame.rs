//! Tests the stacks and weights in each output format of `weir flame`, also with hostile names.

use std::path::Path;

use serde_json::Value;

use super::speedscope::{FILE, validate};
use super::trace_builder::{DELAY_EXECUTION, EXECUTIVE, KERNEL, READY, RUNNING, TraceBuilder, WAITING};
use crate::util::{Run, weir};

pub(super) const APP_BASE: u64 = 0x40_0000;
pub(super) const LIB_BASE: u64 = 0x7F00_0000_0000;

/// Names that try to break out of their context: an element, an attribute, and a JSON string or a
/// line of `--collapsed`.
pub(super) const HOSTILE: [&str; 3] = [
    "</script><script>document.title='owned'</script>",
    "\"><img src=x onerror=document.title='owned'>;",
    "a;b\\u003c 7",
];

/// Builds a trace with 60 samples of `app`: 30 in `app` itself, 20 in `lib.so` called by `app`, and
/// 10 in the kernel called by `lib.so`. It also has 25 samples of processes and images with hostile
/// names, and 5 samples of an idle processor.
pub(super) fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_thread(100, 101);
    trace.add_thread(100, 102);
    trace.add_image(100, APP_BASE, 0x1000, "/nowhere/app");
    trace.add_image(100, LIB_BASE, 0x1000, "/nowhere/lib.so");
    let mut time = 1000;
    let mut add_sample = |trace: &mut TraceBuilder, ids: (u32, u32), frames: &[u64]| {
        time += 100;
        trace.add_sample(time, 0, ids.1, frames[0]);
        trace.add_stack(time, 0, ids, frames);
    };
    for index in 0..60 {
        let tid = 101 + u32::from(index % 2 == 0);
        match index {
            0..30 => add_sample(&mut trace, (100, tid), &[APP_BASE + 0x10, APP_BASE + 0x20]),
            30..50 => add_sample(&mut trace, (100, tid), &[LIB_BASE + 0x10, APP_BASE + 0x20]),
            _ => add_sample(&mut trace, (100, tid), &[KERNEL + 0x10, LIB_BASE + 0x10, APP_BASE + 0x20]),
        }
    }
    for (pid, name) in (500..).zip(HOSTILE) {
        trace.add_process(pid, name);
        trace.add_thread(pid, pid + 50);
        trace.add_image(pid, APP_BASE, 0x1000, name);
    }
    for pid in [500, 501, 502, 500, 501] {
        (0..5).for_each(|_| add_sample(&mut trace, (pid, pid + 50), &[APP_BASE + 0x10]));
    }
    (0..5).for_each(|_| {
        time += 100;
        trace.add_sample(time, 1, 0, KERNEL);
    });
    trace
}

fn run_flame(path: &Path, arguments: &[&str]) -> Run {
    let mut command = vec!["flame", path.to_str().unwrap()];
    command.extend(arguments);
    weir(&command)
}

/// Runs `weir flame --collapsed` and returns the stacks with their weights.
fn run_collapsed(path: &Path, arguments: &[&str]) -> Vec<(String, u64)> {
    let mut options = vec!["--collapsed"];
    options.extend(arguments);
    let text = run_flame(path, &options).expect(0).text();
    let parse_line = |line: &str| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), weight.parse().unwrap())
    };
    text.lines().map(parse_line).collect()
}

#[test]
fn collapsed_stacks_are_lines_of_functions_and_a_weight() {
    let mut trace = build_trace();
    let path = trace.write();
    let stacks = run_collapsed(&path, &["--process", "app"]);
    let expected = [
        ("app (100);app+0x0;app+0x0", 30),
        ("app (100);app+0x0;lib.so+0x0", 20),
        ("app (100);app+0x0;lib.so+0x0;kernel+0x0", 10),
    ];
    assert_eq!(stacks, expected.map(|(stack, weight)| (stack.to_owned(), weight)));
    let all_stacks = run_collapsed(&path, &[]);
    assert_eq!(all_stacks.iter().map(|(_, weight)| weight).sum::<u64>(), 85);
    assert!(
        all_stacks.iter().all(|(stack, _)| stack.split(';').count() <= 4),
        "a name adds frames: {all_stacks:?}"
    );
    assert_eq!(run_collapsed(&path, &["--idle"]).iter().map(|(_, weight)| weight).sum::<u64>(), 90);
    let threads = run_collapsed(&path, &["--by-thread", "--thread", "102"]);
    assert_eq!(threads.iter().map(|(_, weight)| weight).sum::<u64>(), 30);
    assert!(
        threads.iter().all(|(stack, _)| stack.starts_with("app (100);thread 102;app+0x0")),
        "{threads:?}"
    );
}

#[test]
fn speedscope_files_follow_the_published_schema() {
    let mut trace = build_trace();
    let path = trace.write();
    let out = trace.folder().join("out.speedscope.json");
    run_flame(&path, &["-o", out.to_str().unwrap()]).expect(0);
    let file: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(validate(&file, &FILE, "file"), Ok(()));
    let (frames, profile) = (file["shared"]["frames"].as_array().unwrap(), &file["profiles"][0]);
    let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
    assert_eq!(samples.len(), weights.len());
    let frame_name =
        |index: &Value| frames[index.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
    let mut stacks: Vec<(String, u64)> = Vec::new();
    for (sample, weight) in samples.iter().zip(weights) {
        let names: Vec<String> = sample.as_array().unwrap().iter().map(frame_name).collect();
        stacks.push((names.join(";"), weight.as_u64().unwrap()));
    }
    assert_eq!(stacks.iter().map(|(_, weight)| weight).sum::<u64>(), profile["endValue"].as_u64().unwrap());
    assert!(stacks.contains(&("app (100);app+0x0;lib.so+0x0;kernel+0x0".to_owned(), 10)), "{stacks:?}");
    assert!(
        stacks.iter().any(|(stack, _)| stack.starts_with(HOSTILE[1])),
        "the name is not complete: {stacks:?}"
    );
}

#[test]
fn off_cpu_time_is_drawn_by_waiting_stack() {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_thread(100, 101);
    trace.add_image(100, APP_BASE, 0x1000, "/nowhere/app");
    trace.add_switch(1000, 0, (0, 101), RUNNING, EXECUTIVE);
    trace.add_switch(2000, 0, (101, 0), WAITING, DELAY_EXECUTION);
    trace.add_stack(2000, 0, (100, 101), &[KERNEL + 0x10, APP_BASE + 0x10]);
    trace.add_switch(5000, 0, (0, 101), RUNNING, EXECUTIVE);
    trace.add_switch(6000, 0, (101, 0), WAITING, DELAY_EXECUTION);
    trace.add_switch(6500, 1, (0, 101), RUNNING, EXECUTIVE);
    // A preempted thread does not wait.
    trace.add_switch(7000, 1, (101, 0), READY, EXECUTIVE);
    trace.add_switch(9000, 1, (0, 101), RUNNING, EXECUTIVE);
    // Weights are microseconds.
    let stacks = run_collapsed(&trace.write(), &["--kind", "off-cpu"]);
    let expected = [("app (100);(no stack)", 500), ("app (100);app+0x0;kernel+0x0", 3000)];
    assert_eq!(stacks, expected.map(|(stack, weight)| (stack.to_owned(), weight)));
}

#[test]
fn event_stacks_are_drawn_by_event_name() {
    let mut trace = build_trace();
    trace.add_ready_thread(20_000, 0, 101);
    // The stack of the event is that of the waking thread.
    trace.add_process(900, "waker");
    trace.add_stack(20_000, 0, (900, 901), &[KERNEL + 0x10, KERNEL + 0x20]);
    let path = trace.write();
    let stacks = run_collapsed(&path, &["--event", "ReadyThread"]);
    assert_eq!(stacks, [("waker (900);kernel+0x0;kernel+0x0".to_owned(), 1)]);
    let run = run_flame(&path, &["--event", "Nothing", "--collapsed"]).expect(1);
    assert!(run.stderr.contains("no such event"), "{}", run.stderr);
    let mut empty = TraceBuilder::new();
    let run = run_flame(&empty.write(), &["--collapsed"]).expect(1);
    assert!(run.stderr.contains("no samples"), "{}", run.stderr);
}

#[test]
fn events_with_stacks_are_named_if_the_requested_one_has_none() {
    let mut trace = build_trace();
    trace.add_ready_thread(20_000, 0, 101);
    let run = run_flame(&trace.write(), &["--event", "ReadyThread", "--collapsed"]).expect(0);
    assert!(
        run.stderr.contains("events of this trace that have stacks: ") && run.stderr.contains("SampleProf"),
        "{}",
        run.stderr
    );
    let mut without_stacks = TraceBuilder::new();
    without_stacks.add_ready_thread(20_000, 0, 101);
    let run = run_flame(&without_stacks.write(), &["--event", "ReadyThread", "--collapsed"]).expect(0);
    assert!(run.stderr.contains("no kernel event of this trace has stacks"), "{}", run.stderr);
}

#[test]
fn picture_file_names_are_refused_for_a_page() {
    let mut trace = build_trace();
    let picture = trace.folder().join("flame.SVG");
    let run = run_flame(&trace.write(), &["-o", picture.to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("flame.html") && run.stderr.contains("--collapsed"), "{}", run.stderr);
    assert!(!picture.exists());
    run_flame(&trace.write(), &["-o", picture.to_str().unwrap(), "--collapsed"]).expect(0);
    assert!(picture.exists(), "--collapsed refused a file name");
}

#[test]
fn truncated_stacks_are_marked_and_counted() {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_thread(100, 101);
    trace.add_image(100, APP_BASE, 0x1000, "/nowhere/app");
    // 127 and 192 are the frame limits of recorders: a stack of that length counts as truncated.
    for (time, frames) in [(1000, 127), (2000, 126), (3000, 192)] {
        trace.add_sample(time, 0, 101, APP_BASE + 0x10);
        trace.add_stack(time, 0, (100, 101), &vec![APP_BASE + 0x10; frames]);
    }
    let path = trace.write();
    let run = run_flame(&path, &["--collapsed"]).expect(0);
    assert!(
        run.stderr.contains("truncated at the frame limit: the stacks of 2 of 3 samples"),
        "{}",
        run.stderr
    );
    let lines = run.text();
    assert_eq!(
        lines.lines().filter(|line| line.starts_with("app (100);(cut);app+0x0;")).count(),
        2,
        "{lines}"
    );
    let page = weir(["report", "cpu", path.to_str().unwrap()]).expect(0).text();
    assert!(page.contains("truncated at the frame limit: 2 stacks (66.7 %)"), "{page}");
    assert!(!page.contains("(cut)"), "(cut) is reported as a function: {page}");
}

#[test]
fn hostile_names_stay_text_on_the_page() {
    let mut trace = build_trace();
    let path = trace.write();
    let out = trace.folder().join("flame.html");
    let run = run_flame(&path, &["-o", out.to_str().unwrap()]).expect(0);
    assert!(run.stderr.contains("85 samples"), "{}", run.stderr);
    let page = std::fs::read_to_string(&out).unwrap();
    assert_eq!(
        (page.matches("<script").count(), page.matches("</script").count()),
        (2, 2),
        "the page has more than its two scripts"
    );
    assert_eq!(page.matches("<img").count(), 0);
    for reference in ["http://", "https://", "src=\"", "href=", "url(", "@import"] {
        assert!(!page.contains(reference), "the page refers to other files with {reference}");
    }
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let labels: Vec<&str> =
        data["functions"].as_array().unwrap().iter().map(|function| function[0].as_str().unwrap()).collect();
    assert!(
        labels.contains(&format!("{} (500)", HOSTILE[0]).as_str()),
        "the name is not complete: {labels:?}"
    );
    // A node is [function, parent, own, total]; the first node is the root.
    assert_eq!(data["nodes"][0][3], 85);
}

#[test]
fn page_is_limited_to_the_requested_nodes_and_reports_it() {
    let mut trace = build_trace();
    let path = trace.write();
    let out = trace.folder().join("flame.html");
    let run = run_flame(&path, &["-o", out.to_str().unwrap(), "--nodes", "3"]).expect(0);
    assert!(run.stderr.contains("merged into (other)"), "{}", run.stderr);
    let page = std::fs::read_to_string(&out).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let nodes = data["nodes"].as_array().unwrap();
    // The root and three nodes, and one `(other)` below each.
    assert!(nodes.len() <= 2 * 3 + 2, "too many nodes: {nodes:?}");
    let below_root: u64 =
        nodes.iter().skip(1).filter(|node| node[1] == 0).map(|node| node[3].as_u64().unwrap()).sum();
    assert_eq!((below_root, &nodes[0][3]), (85, &85.into()), "merged nodes lost samples");
    assert!(data["note"].as_str().unwrap().contains("(other)"));
}

#[test]
fn input_is_never_overwritten() {
    let mut trace = build_trace();
    let path = trace.write();
    let before = std::fs::read(&path).unwrap();
    let run = run_flame(&path, &["-o", path.to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("is an input"), "{}", run.stderr);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
