//! Tests of `weir mark` with real sessions.

use serde_json::Value;

use super::{arg, fixture_path, make_folder};
use crate::util::{Daemon, weir};

const PROVIDER: &str = "Traceweir.Marks";

/// Returns the texts of the marks in a file.
fn marks_in(daemon: &Daemon, file: &str) -> Vec<String> {
    let path = daemon.path(file);
    weir(["check", arg(&path)]).expect(0);
    let dump = weir(["dump", "--format", "jsonl", "--provider", PROVIDER, arg(&path)]);
    let text = |event: Value| {
        assert_eq!(event["event"], "Mark");
        event["fields"]["text"].as_str().unwrap().to_owned()
    };
    dump.expect(0).json().into_iter().map(text).collect()
}

#[test]
fn mark_goes_once_to_each_running_session() {
    let daemon = Daemon::start();
    let files = ["a.etl", "b.etl", "c.etl"].map(|name| daemon.path(name));
    daemon.weir(["start", "A", "-o", arg(&files[0])]).expect(0);
    daemon.weir(["start", "B", "-o", arg(&files[1]), "-p", "*::info"]).expect(0);
    daemon.weir(["start", "C", "-o", arg(&files[2]), "--buffering"]).expect(0);
    let run = daemon.weir(["mark", "load test\nbegins, über"]).expect(0);
    let printed = run.text();
    let mut marked: Vec<&str> = printed.trim().rsplit(": ").next().unwrap().split(", ").collect();
    marked.sort_unstable();
    assert_eq!(marked, ["A", "B", "C"], "{printed}");
    daemon.weir(["mark", "second"]).expect(0);
    for name in ["A", "B", "C"] {
        daemon.weir(["stop", name]).expect(0);
    }
    for file in ["a.etl", "b.etl", "c.etl"] {
        assert_eq!(marks_in(&daemon, file), ["load test\nbegins, über", "second"], "{file}");
    }
}

#[test]
fn marks_of_simultaneous_commands_are_all_recorded() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    daemon.weir(["start", "A", "-o", arg(&file)]).expect(0);
    let processes: Vec<_> = (0..6).map(|n| daemon.spawn_weir(["mark", &format!("mark {n}")])).collect();
    for process in processes {
        process.finish().expect(0);
    }
    daemon.weir(["stop", "A"]).expect(0);
    let mut marks = marks_in(&daemon, "a.etl");
    marks.sort();
    assert_eq!(marks, (0..6).map(|n| format!("mark {n}")).collect::<Vec<_>>());
}

#[test]
fn mark_without_a_session_says_what_to_do() {
    let daemon = Daemon::not_started();
    let run = daemon.weir(["mark", "x"]).expect(1);
    assert!(
        run.stderr.contains("no session is running") && run.stderr.contains("weir start"),
        "{}",
        run.stderr
    );
    assert!(!daemon.is_answering(), "weir mark started a daemon");
    let daemon = Daemon::start();
    let run = daemon.weir(["mark", "x"]).expect(1);
    assert!(run.stderr.contains("no session is running"), "{}", run.stderr);
    for wrong in ["", " ", &"x".repeat(513)] {
        daemon.weir(["mark", wrong]).expect(2);
    }
}

#[test]
fn marks_are_on_the_timelines_of_other_tools() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    daemon.weir(["start", "A", "-o", arg(&file)]).expect(0);
    daemon.weir(["mark", "here it hangs"]).expect(0);
    daemon.weir(["stop", "A"]).expect(0);
    let out = daemon.path("a.json");
    weir(["convert", arg(&file), "--to", "chrome", "-o", arg(&out)]).expect(0);
    let trace: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let is_mark = |event: &&Value| {
        event["ph"] == "i" && event["name"] == "Mark" && event["args"]["text"] == "here it hangs"
    };
    assert_eq!(trace["traceEvents"].as_array().unwrap().iter().filter(is_mark).count(), 1);
}

#[test]
fn reports_list_the_marks_of_a_trace() {
    let folder = make_folder();
    let out = folder.path().join("out.etl");
    let mark = "200us=here\u{1b}[31m it hangs";
    weir(["relog", arg(&fixture_path("kernel")), "-o", arg(&out), "--mark", mark]).expect(0);
    let page = weir(["report", "cpu", arg(&out)]).expect(0).text();
    assert!(page.contains("\nmarks\n") && page.contains("0.000200  here\\x1b[31m it hangs"), "{page}");
    let rows = weir(["report", "sched", "--json", arg(&out)]).expect(0).json();
    let marks: Vec<&Value> = rows.iter().filter(|row| row["by"] == "mark").collect();
    assert_eq!(marks.len(), 1, "{rows:?}");
    assert_eq!(
        (marks[0]["time_ns"].as_i64(), marks[0]["text"].as_str()),
        (Some(200_000), Some("here\u{1b}[31m it hangs"))
    );
    let page = weir(["report", "cpu", "--from", "250us", arg(&out)]).expect(0).text();
    assert!(!page.contains("it hangs"), "a mark outside the time span is listed: {page}");
}
