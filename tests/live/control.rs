//! start, stop, query, list, enable, disable, flush.

use super::{EVENTS_PER_ORDER, SHOP, events_in, open_shop, serve, sessions, text};
use crate::util::{Daemon, eventually};

#[test]
fn a_session_is_started_listed_queried_and_stopped() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let run =
        daemon.weir(["start", "Morning", "-o", text(&file), "-p", SHOP, "--buffer-size", "32"]).expect(0);
    assert!(run.stderr.contains("weir stop Morning"), "it says what to do next: {}", run.stderr);
    serve(&daemon, 5);

    let listed = sessions(&daemon);
    assert_eq!(listed.len(), 1);
    let table = daemon.weir(["list"]).expect(0).text();
    assert!(table.contains("Morning") && table.contains(text(&file)), "{table}");

    let now = &daemon.weir(["query", "morning", "--json"]).expect(0).json()[0];
    assert_eq!(now["name"], "Morning");
    assert_eq!(now["file"], text(&file));
    assert_eq!(now["modes"], "SEQUENTIAL");
    assert_eq!(now["buffer_kib"], 32);
    let page = daemon.weir(["query", "Morning"]).expect(0).text();
    for word in ["Session", "SEQUENTIAL", "of 32 KiB", "Lost         nothing"] {
        assert!(page.contains(word), "{word} in {page}");
    }

    let run = daemon.weir(["stop", "Morning"]).expect(0);
    assert!(run.stderr.contains("15 events"), "{}", run.stderr);
    assert_eq!(events_in(&file).len(), 5 * EVENTS_PER_ORDER);
    assert_eq!(sessions(&daemon), Vec::<serde_json::Value>::new());
    assert!(daemon.weir(["list"]).expect(0).stderr.contains("no session"));
}

#[test]
fn a_provider_may_be_enabled_later_and_disabled_again() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let run = daemon.weir(["start", "Later", "-o", text(&file)]).expect(0);
    assert!(run.stderr.contains("weir enable Later"), "{}", run.stderr);
    serve(&daemon, 1);
    daemon.weir(["enable", "Later", SHOP, "--level", "info", "--keywords", "0x1"]).expect(0);
    serve(&daemon, 2);
    daemon.weir(["enable", "Later", SHOP, "--keywords", "0x2"]).expect(0);
    serve(&daemon, 3);
    daemon.weir(["enable", "Later", SHOP]).expect(0);
    daemon.weir(["disable", "Later", SHOP]).expect(0);
    serve(&daemon, 4);
    daemon.weir(["stop", "Later"]).expect(0);
    assert_eq!(events_in(&file).len(), 2 * EVENTS_PER_ORDER);
}

#[test]
fn a_level_keeps_the_less_severe_out() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let provider = format!("{SHOP}::warning");
    daemon.weir(["start", "Warnings", "-o", text(&file), "-p", &provider]).expect(0);
    serve(&daemon, 4);
    daemon.weir(["stop", "Warnings"]).expect(0);
    let events = events_in(&file);
    assert_eq!(events.len(), 1, "only the cold ristretto is a warning");
    assert_eq!(events[0]["level"], 3);
}

#[test]
fn providers_are_listed_with_their_processes_and_sessions() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Live", "--mode", "real-time", "-p", &format!("{SHOP}:0x1:info")]).expect(0);
    let shop = open_shop(&daemon);
    let entry = eventually("the provider in the list", || {
        let all = daemon.weir(["list", "--providers", "--json"]).expect(0).json();
        all.into_iter()
            .find(|p| p["pids"].as_array().is_some_and(|pids| pids.iter().any(|pid| pid == shop.id())))
    });
    assert_eq!(entry["name"], SHOP);
    assert_eq!(entry["sessions"][0]["name"], "Live");
    assert_eq!((&entry["sessions"][0]["any"], &entry["sessions"][0]["level"]), (&"0x1".into(), &4.into()));
    let table = daemon.weir(["list", "--providers"]).expect(0).text();
    assert!(table.contains(SHOP) && table.contains("Live:0x1:4"), "{table}");
}

#[test]
fn a_flight_recorder_writes_when_it_is_flushed() {
    let daemon = Daemon::start();
    let snapshot = daemon.path("snapshot.etl");
    let own = daemon.path("own.etl");
    daemon.weir(["start", "Recorder", "--mode", "buffering", "-o", text(&own), "-p", SHOP]).expect(0);
    serve(&daemon, 2);
    daemon.weir(["flush", "Recorder", "-o", text(&snapshot)]).expect(0);
    assert_eq!(events_in(&snapshot).len(), 2 * EVENTS_PER_ORDER);
    daemon.weir(["stop", "Recorder"]).expect(0);
}

#[test]
fn a_flush_writes_out_what_is_buffered() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    daemon.weir(["start", "Flushed", "-o", text(&file), "-p", SHOP]).expect(0);
    serve(&daemon, 2);
    let run = daemon.weir(["flush", "Flushed"]).expect(0);
    assert!(run.stderr.contains("6 events"), "{}", run.stderr);
    let dump = crate::util::weir(["dump", "--format", "jsonl", "--provider", SHOP, text(&file)]);
    assert_eq!(dump.json().len(), 2 * EVENTS_PER_ORDER, "readable while the session runs");
    daemon.weir(["stop", "Flushed"]).expect(0);
}

#[test]
fn what_is_not_there_is_said_and_nothing_is_started() {
    let nobody = Daemon::absent();
    for arguments in
        [&["stop", "X"][..], &["query", "X"], &["flush", "X"], &["enable", "X", "P"], &["watch", "X"]]
    {
        let run = nobody.weir(arguments).expect(1);
        assert!(run.stderr.contains("no daemon"), "{arguments:?}: {}", run.stderr);
    }
    assert!(nobody.weir(["list"]).expect(0).stderr.contains("no daemon"));
    assert!(!nobody.answers());

    let daemon = Daemon::start();
    for arguments in
        [&["stop", "X"][..], &["query", "X"], &["flush", "X"], &["disable", "X", "P"], &["watch", "X"]]
    {
        let run = daemon.weir(arguments).expect(1);
        assert!(run.stderr.contains("weir list"), "{arguments:?} says where to look: {}", run.stderr);
    }
}

#[test]
fn a_name_or_file_that_is_taken_is_refused() {
    let daemon = Daemon::start();
    let (one, two) = (daemon.path("1.etl"), daemon.path("2.etl"));
    daemon.weir(["start", "Taken", "-o", text(&one)]).expect(0);
    let run = daemon.weir(["start", "taken", "-o", text(&two)]).expect(1);
    assert!(run.stderr.contains("weir stop"), "{}", run.stderr);
    daemon.weir(["start", "Other", "-o", text(&one)]).expect(1);
    daemon.weir(["start", "Nowhere", "-o", text(&daemon.path("no/such/folder.etl"))]).expect(1);
    assert_eq!(sessions(&daemon).len(), 1);
}

#[test]
fn wrong_providers_are_refused_before_anything_happens() {
    for (provider, word) in [("My*", "wildcards"), ("#12", "GUID"), ("A:1:loud", "critical")] {
        let run = crate::util::weir(["record", "-o", "x.etl", "-p", provider]).expect(2);
        assert!(run.stderr.contains(word), "{provider}: {}", run.stderr);
    }
}
