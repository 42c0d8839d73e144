//! Tests of `weir watch`, which decodes and prints live events.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use serde_json::Value;

use super::{SHOP, arg, running_sessions, start_shop};
use crate::util::{Daemon, eventually};

const LEVEL_WARNING: u8 = 3;

#[test]
fn events_appear_while_the_program_runs_and_the_session_is_removed() {
    let daemon = Daemon::start();
    let mut watch = daemon.spawn_weir(["watch", "-p", SHOP, "--format", "jsonl"]);
    let mut lines = BufReader::new(watch.stdout()).lines();
    let mut shop = start_shop(&daemon);
    let line = lines.next().unwrap().unwrap();
    assert!(shop.is_running(), "the event arrived only after its program ended");
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["provider"], &event["pid"]), (&SHOP.into(), &shop.id().into()));
    assert!(
        event["fields"]["number"].is_u64() || event["fields"]["celsius"].is_number(),
        "the event is not decoded: {line}"
    );
    watch.signal(Signal::INT);
    for line in lines {
        serde_json::from_str::<Value>(&line.unwrap()).expect("a line is not complete JSON");
    }
    watch.finish().expect(0);
    assert_eq!(running_sessions(&daemon).len(), 0);
}

#[test]
fn session_continues_after_watch_ends() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Live", "--mode", "real-time", "--low-latency", "-p", SHOP]).expect(0);
    let _shop = start_shop(&daemon);
    let run = daemon.weir(["watch", "live", "--head", "3", "--event", "Brew"]).expect(0);
    let text = run.text();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().all(|line| line.contains("Traceweir.Demo.CoffeeShop/Brew dose={grams=")), "{text}");

    let mut watch = daemon.spawn_weir(["watch", "Live", "--format", "csv"]);
    let mut lines = BufReader::new(watch.stdout()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("time,"), "the first line is not the CSV header");
    lines.next().unwrap().unwrap();
    watch.signal(Signal::INT);
    lines.for_each(drop);
    watch.finish().expect(0);
    assert_eq!(running_sessions(&daemon)[0]["name"], "Live");
    eventually("the consumer disconnects", || (running_sessions(&daemon)[0]["consumers"] == 0).then_some(()));

    // Events that arrive while no consumer watches are counted, and are not lost events.
    let event_count = |session: &Value| session["events"].as_u64().unwrap();
    let before = event_count(&running_sessions(&daemon)[0]);
    eventually("the session has more events", || {
        (event_count(&running_sessions(&daemon)[0]) > before).then_some(())
    });
    let run = daemon.weir(["stop", "Live"]).expect(0);
    assert!(run.stderr.contains("no consumer was connected"), "{}", run.stderr);
}

#[test]
fn end_of_the_session_ends_watch() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Short", "--low-latency", "-p", SHOP]).expect(0);
    let watch = daemon.spawn_weir(["watch", "Short", "--format", "xml"]);
    eventually("a consumer is connected", || (running_sessions(&daemon)[0]["consumers"] == 1).then_some(()));
    super::run_shop(&daemon, 2);
    daemon.weir(["stop", "Short"]).expect(0);
    let text = watch.finish().expect(0).text();
    assert_eq!(text.matches("<EventName>Brew").count().max(text.matches(">Brew<").count()), 2, "{text}");
    assert!(text.trim_end().ends_with("</Events>"), "the XML document is not closed");
}

#[test]
fn duration_or_closed_pipe_ends_watch() {
    let daemon = Daemon::start();
    let run = daemon.weir(["watch", "-p", SHOP, "--duration", "50ms"]).expect(0);
    assert_eq!(run.text(), "");
    let _shop = start_shop(&daemon);
    let mut watch = daemon.spawn_weir(["watch", "-p", SHOP]);
    drop(watch.stdout());
    watch.finish().expect(0);
    assert_eq!(running_sessions(&daemon).len(), 0);
}

#[test]
fn watch_can_show_one_provider_of_a_session() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Both", "--low-latency", "-p", SHOP]).expect(0);
    let _shop = start_shop(&daemon);
    let warnings = format!("{SHOP}::warning");
    let run = daemon.weir(["watch", "Both", "-p", &warnings, "--format", "jsonl", "--head", "2"]).expect(0);
    assert!(run.json().iter().all(|event| event["level"] == LEVEL_WARNING), "{}", run.text());
    assert_eq!(daemon.weir(["watch", "Both", "-p", "Another", "--duration", "300ms"]).expect(0).text(), "");
}

#[test]
fn early_end_of_watch_names_its_cause() {
    let mut daemon = Daemon::start();
    let watch = daemon.spawn_weir(["watch", "-p", SHOP]);
    let name = eventually("the session exists", || {
        Some(running_sessions(&daemon).first()?["name"].as_str()?.to_owned())
    });
    eventually("a consumer is connected", || (running_sessions(&daemon)[0]["consumers"] == 1).then_some(()));
    daemon.weir(["stop", &name]).expect(0);
    let run = watch.finish().expect(0);
    assert!(run.stderr.contains("by another process"), "{}", run.stderr);

    let watch = daemon.spawn_weir(["watch", "-p", SHOP]);
    eventually("a consumer is connected", || {
        (running_sessions(&daemon).first()?["consumers"] == 1).then_some(())
    });
    daemon.kill();
    let run = watch.finish().expect(1);
    assert!(run.stderr.contains("daemon") && run.stderr.contains("has ended"), "{}", run.stderr);
}

#[test]
fn watch_of_a_missing_process_is_an_error() {
    let run = Daemon::start().weir(["watch", "-p", SHOP, "--pid", "4194305"]).expect(1);
    assert!(run.stderr.contains("cannot watch process 4194305: no process has this id"), "{}", run.stderr);
}

#[test]
fn watch_needs_a_session_or_a_provider() {
    let run = crate::util::weir(["watch"]).expect(2);
    assert!(run.stderr.contains("--provider"), "{}", run.stderr);
}

#[test]
fn watch_of_a_file_session_suggests_a_command_that_works() {
    let daemon = Daemon::start();
    daemon
        .weir(["start", "To file", "-o", arg(&daemon.path("a.etl")), "-p", SHOP, "--low-latency"])
        .expect(0);
    let run = daemon.weir(["watch", "To file"]).expect(1);
    let hint = run.stderr.lines().last().unwrap();
    let suggested = hint.trim().strip_prefix("weir ").expect("no command is suggested");
    let suggested =
        suggested.strip_suffix(" delivers its events live, too").expect("the hint has another form");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{} {suggested}", env!("CARGO_BIN_EXE_weir"))]);
    assert!(shell.env("TRACEWEIR_RUNTIME_DIR", daemon.folder()).status().unwrap().success(), "{suggested}");
    let mut watch =
        daemon.spawn_weir(["watch", "To file", "--provider", SHOP, "--format", "jsonl", "--head", "1"]);
    let _shop = start_shop(&daemon);
    let mut line = String::new();
    BufReader::new(watch.stdout()).read_line(&mut line).unwrap();
    assert!(line.contains(SHOP), "{line}");
    watch.finish().expect(0);
    daemon.weir(["stop", "To file"]).expect(0);
}

#[test]
fn watch_of_a_flight_recorder_suggests_a_snapshot() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Recorder", "--buffering"]).expect(0);
    let run = daemon.weir(["watch", "Recorder"]).expect(1);
    assert!(run.stderr.contains("weir flush Recorder -o FILE"), "{}", run.stderr);
    daemon.weir(["stop", "Recorder"]).expect(0);
}
