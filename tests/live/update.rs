//! Tests of `weir update`, `increment` and `convert-to-realtime`, which change running sessions.

use super::{EVENTS_PER_ORDER, SHOP, arg, run_shop, shop_events_in, start_shop};
use crate::util::Daemon;

#[test]
fn update_changes_timer_and_buffers_only() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Changing", "-o", arg(&daemon.path("a.etl")), "-p", SHOP]).expect(0);
    let before = daemon.weir(["query", "Changing", "--json"]).expect(0).json().remove(0);
    let run = daemon.weir(["update", "changing", "--flush-timer", "7"]).expect(0);
    assert!(run.stderr.contains("flush timer 7 s") && run.stderr.contains("real-time off"), "{}", run.stderr);
    let queried = daemon.weir(["query", "Changing", "--json"]).expect(0).json().remove(0);
    assert_eq!(
        (&queried["flush_timer"], &queried["maximum_buffers"]),
        (&7.into(), &before["maximum_buffers"])
    );
    daemon.weir(["update", "Changing", "--max-buffers", "600"]).expect(0);
    let queried = daemon.weir(["query", "Changing", "--json"]).expect(0).json().remove(0);
    assert_eq!((&queried["flush_timer"], &queried["maximum_buffers"]), (&7.into(), &600.into()));
    daemon.weir(["stop", "Changing"]).expect(0);
}

#[test]
fn update_of_a_flight_recorder_reports_its_buffers() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Flight", "--buffering", "--min-buffers", "32"]).expect(0);
    // A flight recorder has its minimum number of buffers: 32 of 64 KiB.
    let run = daemon.weir(["update", "Flight", "--max-buffers", "8"]).expect(0);
    assert!(run.stderr.contains("keeps the newest 2,048 KiB"), "{}", run.stderr);
    assert!(run.stderr.contains("32 buffers, not 8"), "{}", run.stderr);
    let run = daemon.weir(["update", "Flight", "--max-buffers", "64"]).expect(0);
    assert!(run.stderr.contains("keeps the newest 2,048 KiB"), "{}", run.stderr);
    assert!(run.stderr.contains("(--min-buffers): 32 buffers, not 64"), "{}", run.stderr);
    let run = daemon.weir(["flush", "Flight"]).expect(1);
    assert!(run.stderr.contains("weir flush NAME -o FILE"), "{}", run.stderr);
}

#[test]
fn update_switches_to_another_file() {
    let daemon = Daemon::start();
    let (first_file, second_file) = (daemon.path("1.etl"), daemon.path("2.etl"));
    daemon.weir(["start", "Moving", "-o", arg(&first_file), "-p", SHOP]).expect(0);
    run_shop(&daemon, 2);
    let run = daemon.weir(["update", "Moving", "-o", arg(&second_file)]).expect(0);
    assert!(run.stderr.contains("2.etl"), "{}", run.stderr);
    run_shop(&daemon, 3);
    let run = daemon.weir(["update", "Moving", "-o", arg(&second_file)]).expect(1);
    assert!(
        run.stderr.contains("cannot update session Moving"),
        "the current file was not refused: {}",
        run.stderr
    );
    daemon.weir(["stop", "Moving"]).expect(0);
    assert_eq!(shop_events_in(&first_file).len(), 2 * EVENTS_PER_ORDER);
    assert_eq!(shop_events_in(&second_file).len(), 3 * EVENTS_PER_ORDER);
}

#[test]
fn file_sequence_needs_a_name_with_a_number() {
    let daemon = Daemon::start();
    let pattern = daemon.path("row-%d.etl");
    daemon.weir(["start", "Row", "-o", arg(&pattern), "--new-file", "--max-size", "1"]).expect(0);
    let run = daemon.weir(["update", "Row", "-o", arg(&daemon.path("other.etl"))]).expect(1);
    assert!(run.stderr.contains("one %d"), "{}", run.stderr);
    assert!(!daemon.path("other.etl").exists(), "the refused update made a file");
}

#[test]
fn update_switches_live_delivery_on_and_off() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Both", "-o", arg(&daemon.path("a.etl")), "-p", SHOP, "--low-latency"]).expect(0);
    daemon.weir(["watch", "Both", "--head", "1"]).expect(1);
    let run = daemon.weir(["update", "Both", "--real-time", "on"]).expect(0);
    assert!(run.stderr.contains("real-time on"), "{}", run.stderr);
    let _shop = start_shop(&daemon);
    daemon.weir(["watch", "Both", "--head", "1"]).expect(0);
    daemon.weir(["update", "Both", "--real-time", "off"]).expect(0);
    daemon.weir(["watch", "Both", "--head", "1"]).expect(1);
}

#[test]
fn update_needs_something_to_change() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Same"]).expect(0);
    let run = daemon.weir(["update", "Same"]).expect(2);
    assert!(run.stderr.contains("--flush-timer"), "{}", run.stderr);
    let run = daemon.weir(["update", "Same", "--flush-timer", "0"]).expect(0);
    assert!(run.stderr.contains("0 leaves a value as it is"), "{}", run.stderr);
    daemon.weir(["update", "Same", "--real-time", "perhaps"]).expect(2);
    daemon.weir(["update", "Same", "--max-buffers", "few"]).expect(2);
}

#[test]
fn increment_needs_a_file_sequence_and_conversion_needs_a_file() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Plain", "-o", arg(&daemon.path("a.etl"))]).expect(0);
    for arguments in [&["increment", "Plain"][..], &["update", "Plain", "--next-file"]] {
        let run = daemon.weir(arguments).expect(1);
        assert!(run.stderr.contains("next file of session Plain"), "{}", run.stderr);
        assert!(run.stderr.contains("--new-file"), "{}", run.stderr);
    }
    daemon.weir(["start", "Live"]).expect(0);
    for arguments in [&["convert-to-realtime", "Live"][..], &["update", "Live", "--to-real-time"]] {
        let run = daemon.weir(arguments).expect(1);
        assert!(run.stderr.contains("cannot convert session Live"), "{}", run.stderr);
    }
    for conflict in [&["--next-file", "--to-real-time"][..], &["--next-file", "--flush-timer", "2"]] {
        daemon.weir([&["update", "Plain"], conflict].concat()).expect(2);
    }
}
