//! `weir flame`: every output form shows the same stacks and escapes hostile names.

use std::path::Path;

use serde_json::Value;

use super::scene::{KERNEL, Scene};
use super::speedscope::{FILE, validate};
use crate::util::{Run, weir};

pub(super) const APP: u64 = 0x40_0000;
pub(super) const LIB: u64 = 0x7F00_0000_0000;

/// Names that try to break out of their context: element, attribute, string, line.
pub(super) const HOSTILE: [&str; 3] = [
    "</script><script>document.title='owned'</script>",
    "\"><img src=x onerror=document.title='owned'>;",
    "a;b\\u003c 7",
];

/// Builds a trace with 60 samples of `app`: 30 in `app` itself, 20 in `lib.so` below it, 10 in the
/// kernel below that; 25 samples of a process and an image with hostile names; 5 idle.
pub(super) fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.process(100, "app");
    scene.thread(100, 101);
    scene.thread(100, 102);
    scene.image(100, APP, 0x1000, "/nowhere/app");
    scene.image(100, LIB, 0x1000, "/nowhere/lib.so");
    let mut time = 1000;
    let mut sample = |scene: &mut Scene, ids: (u32, u32), frames: &[u64]| {
        time += 100;
        scene.sample(time, 0, ids.1, frames[0]);
        scene.stack(time, 0, ids, frames);
    };
    for index in 0..60 {
        let tid = 101 + u32::from(index % 2 == 0);
        match index {
            0..30 => sample(&mut scene, (100, tid), &[APP + 0x10, APP + 0x20]),
            30..50 => sample(&mut scene, (100, tid), &[LIB + 0x10, APP + 0x20]),
            _ => sample(&mut scene, (100, tid), &[KERNEL + 0x10, LIB + 0x10, APP + 0x20]),
        }
    }
    for (pid, name) in (500..).zip(HOSTILE) {
        scene.process(pid, name);
        scene.thread(pid, pid + 50);
        scene.image(pid, APP, 0x1000, name);
    }
    for pid in [500, 501, 502, 500, 501] {
        (0..5).for_each(|_| sample(&mut scene, (pid, pid + 50), &[APP + 0x10]));
    }
    (0..5).for_each(|_| {
        time += 100;
        scene.sample(time, 1, 0, KERNEL);
    });
    scene
}

fn flame(path: &Path, arguments: &[&str]) -> Run {
    let mut all = vec!["flame", path.to_str().unwrap()];
    all.extend(arguments);
    weir(&all)
}

/// Returns the stacks of the collapsed form with their weights.
fn collapsed(path: &Path, arguments: &[&str]) -> Vec<(String, u64)> {
    let mut all = vec!["--collapsed"];
    all.extend(arguments);
    let page = flame(path, &all).expect(0).text();
    let line = |line: &str| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), weight.parse().unwrap())
    };
    page.lines().map(line).collect()
}

#[test]
fn collapsed_stacks_are_lines_of_functions_and_a_weight() {
    let mut scene = scene();
    let path = scene.write();
    let stacks = collapsed(&path, &["--process", "app"]);
    let wanted = [
        ("app (100);app+0x0;app+0x0", 30),
        ("app (100);app+0x0;lib.so+0x0", 20),
        ("app (100);app+0x0;lib.so+0x0;kernel+0x0", 10),
    ];
    assert_eq!(stacks, wanted.map(|(stack, weight)| (stack.to_owned(), weight)));
    let all = collapsed(&path, &[]);
    assert_eq!(all.iter().map(|stack| stack.1).sum::<u64>(), 85);
    assert!(
        all.iter().all(|(stack, _)| stack.split(';').count() <= 4),
        "no name makes places of its own: {all:?}"
    );
    assert_eq!(collapsed(&path, &["--idle"]).iter().map(|stack| stack.1).sum::<u64>(), 90);
    let threads = collapsed(&path, &["--by-thread", "--thread", "102"]);
    assert_eq!(threads.iter().map(|stack| stack.1).sum::<u64>(), 30);
    assert!(
        threads.iter().all(|(stack, _)| stack.starts_with("app (100);thread 102;app+0x0")),
        "{threads:?}"
    );
}

#[test]
fn speedscope_files_follow_the_published_schema() {
    let mut scene = scene();
    let path = scene.write();
    let out = scene.folder().join("out.speedscope.json");
    flame(&path, &["-o", out.to_str().unwrap()]).expect(0);
    let file: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(validate(&file, &FILE, "file"), Ok(()));
    let (frames, profile) = (file["shared"]["frames"].as_array().unwrap(), &file["profiles"][0]);
    let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
    assert_eq!(samples.len(), weights.len());
    let label = |at: &Value| frames[at.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
    let mut stacks: Vec<(String, u64)> = Vec::new();
    for (sample, weight) in samples.iter().zip(weights) {
        let names: Vec<String> = sample.as_array().unwrap().iter().map(label).collect();
        stacks.push((names.join(";"), weight.as_u64().unwrap()));
    }
    assert_eq!(stacks.iter().map(|stack| stack.1).sum::<u64>(), profile["endValue"].as_u64().unwrap());
    assert!(stacks.contains(&("app (100);app+0x0;lib.so+0x0;kernel+0x0".to_owned(), 10)), "{stacks:?}");
    assert!(stacks.iter().any(|(stack, _)| stack.starts_with(HOSTILE[1])), "names are whole: {stacks:?}");
}

#[test]
fn off_cpu_time_is_drawn_by_waiting_stack() {
    let mut scene = Scene::new();
    scene.process(100, "app");
    scene.thread(100, 101);
    scene.image(100, APP, 0x1000, "/nowhere/app");
    scene.switch(1000, 0, (0, 101), 2, 0);
    scene.switch(2000, 0, (101, 0), 5, 4);
    scene.stack(2000, 0, (100, 101), &[KERNEL + 0x10, APP + 0x10]);
    scene.switch(5000, 0, (0, 101), 2, 0);
    scene.switch(6000, 0, (101, 0), 5, 4);
    scene.switch(6500, 1, (0, 101), 2, 0);
    // Preempted, which is no wait.
    scene.switch(7000, 1, (101, 0), 1, 0);
    scene.switch(9000, 1, (0, 101), 2, 0);
    let stacks = collapsed(&scene.write(), &["--kind", "off-cpu"]);
    let wanted = [("app (100);(no stack)", 500), ("app (100);app+0x0;kernel+0x0", 3000)];
    assert_eq!(stacks, wanted.map(|(stack, weight)| (stack.to_owned(), weight)));
}

#[test]
fn event_stacks_are_drawn_by_event_name() {
    let mut scene = scene();
    scene.ready(20_000, 0, 101);
    // The stack is that of the waking thread.
    scene.process(900, "waker");
    scene.stack(20_000, 0, (900, 901), &[KERNEL + 0x10, KERNEL + 0x20]);
    let path = scene.write();
    let stacks = collapsed(&path, &["--event", "ReadyThread"]);
    assert_eq!(stacks, [("waker (900);kernel+0x0;kernel+0x0".to_owned(), 1)]);
    let run = flame(&path, &["--event", "Nothing", "--collapsed"]).expect(1);
    assert!(run.stderr.contains("no such event"), "{}", run.stderr);
    let mut empty = Scene::new();
    let run = flame(&empty.write(), &["--collapsed"]).expect(1);
    assert!(run.stderr.contains("no samples"), "{}", run.stderr);
}

#[test]
fn events_with_stacks_are_named_if_the_requested_one_has_none() {
    let mut scene = scene();
    scene.ready(20_000, 0, 101);
    let run = flame(&scene.write(), &["--event", "ReadyThread", "--collapsed"]).expect(0);
    assert!(
        run.stderr.contains("events of this trace that have stacks: ") && run.stderr.contains("SampleProf"),
        "{}",
        run.stderr
    );
    let mut bare = Scene::new();
    bare.ready(20_000, 0, 101);
    let run = flame(&bare.write(), &["--event", "ReadyThread", "--collapsed"]).expect(0);
    assert!(run.stderr.contains("no kernel event of this trace has stacks"), "{}", run.stderr);
}

#[test]
fn picture_file_names_are_refused_for_a_page() {
    let mut scene = scene();
    let picture = scene.folder().join("flame.SVG");
    let run = flame(&scene.write(), &["-o", picture.to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("flame.html") && run.stderr.contains("--collapsed"), "{}", run.stderr);
    assert!(!picture.exists());
    flame(&scene.write(), &["-o", picture.to_str().unwrap(), "--collapsed"]).expect(0);
    assert!(picture.exists(), "--collapsed accepts any file name");
}

#[test]
fn truncated_stacks_are_marked_and_counted() {
    let mut scene = Scene::new();
    scene.process(100, "app");
    scene.thread(100, 101);
    scene.image(100, APP, 0x1000, "/nowhere/app");
    for (time, frames) in [(1000, 127), (2000, 126), (3000, 192)] {
        scene.sample(time, 0, 101, APP + 0x10);
        scene.stack(time, 0, (100, 101), &vec![APP + 0x10; frames]);
    }
    let path = scene.write();
    let run = flame(&path, &["--collapsed"]).expect(0);
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
    assert!(!page.contains("(cut)"), "it is no function: {page}");
}

#[test]
fn hostile_names_stay_text_on_the_page() {
    let mut scene = scene();
    let path = scene.write();
    let out = scene.folder().join("flame.html");
    let run = flame(&path, &["-o", out.to_str().unwrap()]).expect(0);
    assert!(run.stderr.contains("85 samples"), "{}", run.stderr);
    let page = std::fs::read_to_string(&out).unwrap();
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2), "ours");
    assert_eq!(page.matches("<img").count(), 0);
    for outside in ["http://", "https://", "src=\"", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}: the page loads nothing");
    }
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let labels: Vec<&str> =
        data["functions"].as_array().unwrap().iter().map(|function| function[0].as_str().unwrap()).collect();
    assert!(labels.contains(&format!("{} (500)", HOSTILE[0]).as_str()), "names are whole: {labels:?}");
    assert_eq!(data["nodes"][0][3], 85);
}

#[test]
fn page_is_limited_to_the_requested_nodes_and_reports_it() {
    let mut scene = scene();
    let path = scene.write();
    let out = scene.folder().join("flame.html");
    let run = flame(&path, &["-o", out.to_str().unwrap(), "--nodes", "3"]).expect(0);
    assert!(run.stderr.contains("merged into (other)"), "{}", run.stderr);
    let page = std::fs::read_to_string(&out).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let nodes = data["nodes"].as_array().unwrap();
    assert!(nodes.len() <= 2 * 3 + 2, "{nodes:?}");
    let below_root: u64 =
        nodes.iter().skip(1).filter(|node| node[1] == 0).map(|node| node[3].as_u64().unwrap()).sum();
    assert_eq!((below_root, &nodes[0][3]), (85, &85.into()), "nothing is lost by that");
    assert!(data["note"].as_str().unwrap().contains("(other)"));
}

#[test]
fn input_is_never_overwritten() {
    let mut scene = scene();
    let path = scene.write();
    let before = std::fs::read(&path).unwrap();
    let run = flame(&path, &["-o", path.to_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("is an input"), "{}", run.stderr);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
