//! Tests of the modes of log files and sessions, which flags select.

use std::path::PathBuf;

use serde_json::Value;

use super::{EVENTS_PER_ORDER, SHOP, arg, run_shop, shop_events_in, start_shop};
use crate::util::{Daemon, eventually, weir};

fn query_session(daemon: &Daemon, name: &str) -> Value {
    daemon.weir(["query", name, "--json"]).expect(0).json().remove(0)
}

#[test]
fn flags_become_modes() {
    let daemon = Daemon::start();
    for (number, (flags, modes)) in [
        (&["--compressed"][..], "SEQUENTIAL COMPRESSED"),
        (&["--independent"], "SEQUENTIAL INDEPENDENT_SESSION"),
        (&["--no-per-processor"], "SEQUENTIAL NO_PER_PROCESSOR_BUFFERING"),
        (&["--sequential", "--real-time"], "SEQUENTIAL REAL_TIME"),
        (&["--secure"], "SEQUENTIAL SECURE"),
        (&["--preallocate", "--max-size", "1"], "SEQUENTIAL PREALLOCATE"),
        (&["--circular", "--max-size", "1"], "CIRCULAR"),
        (&["--append"], "APPEND"),
        (&["--buffering"], "BUFFERING"),
        (&["--mode", "0x8001"], "SEQUENTIAL USE_LOCAL_SEQUENCE"),
        (
            &["--mode", "use-local-sequence,use-paged-memory"],
            "SEQUENTIAL USE_LOCAL_SEQUENCE USE_PAGED_MEMORY",
        ),
        (&["--flush-threshold", "3", "--clock", "system"], "SEQUENTIAL"),
    ]
    .into_iter()
    .enumerate()
    {
        let (name, file) = (format!("Kind{number}"), daemon.path(&format!("{number}.etl")));
        let arguments = [&["start", &name, "-o", arg(&file), "-p", SHOP], flags].concat();
        daemon.weir(arguments).expect(0);
        let session = query_session(&daemon, &name);
        assert_eq!(session["modes"], modes, "{flags:?}");
        let page = daemon.weir(["query", &name]).expect(0).text();
        assert!(page.contains(&format!("({modes})")), "{page}");
        daemon.weir(["stop", &name]).expect(0);
    }
    let guid = "b3864c38-4273-58c5-545b-8b3608343471";
    daemon.weir(["start", "Known", "--guid", guid]).expect(0);
    assert_eq!(
        query_session(&daemon, &format!("{{{guid}}}"))["name"],
        "Known",
        "the session is not found by its GUID"
    );
    daemon.weir(["start", "Twice", "--guid", guid]).expect(1);
}

#[test]
fn increment_starts_the_next_file_of_a_sequence() {
    let daemon = Daemon::start();
    let pattern = daemon.path("row-%d.etl");
    let file = |number: u32| daemon.path(&format!("row-{number}.etl"));
    daemon.weir(["start", "Row", "-o", arg(&pattern), "--new-file", "--max-size", "1", "-p", SHOP]).expect(0);
    run_shop(&daemon, 2);
    let run = daemon.weir(["update", "Row", "--next-file"]).expect(0);
    assert!(
        run.stderr.contains("row-1.etl is finished") && run.stderr.contains("continues in"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("row-2.etl"), "{}", run.stderr);
    run_shop(&daemon, 3);
    let page = daemon.weir(["query", "row"]).expect(0).text();
    assert!(
        page.contains("Segment:                On") && page.contains("Segment Max Size:       1 MiB"),
        "{page}"
    );
    let run = daemon.weir(["stop", "Row"]).expect(0);
    assert!(
        run.stderr.contains("row-1.etl to ") && run.stderr.contains("row-2.etl: 15 events in all"),
        "{}",
        run.stderr
    );
    assert_eq!(shop_events_in(&file(1)).len(), 2 * EVENTS_PER_ORDER);
    assert_eq!(shop_events_in(&file(2)).len(), 3 * EVENTS_PER_ORDER);
}

#[test]
fn file_sequence_in_a_removed_folder_is_reported() {
    let daemon = Daemon::start();
    let folder = daemon.path("gone");
    std::fs::create_dir(&folder).unwrap();
    let pattern = folder.join("row-%d.etl");
    daemon.weir(["start", "Row", "-o", arg(&pattern), "--new-file", "--max-size", "1", "-p", SHOP]).expect(0);
    std::fs::remove_dir_all(&folder).unwrap();
    let run = daemon.weir(["increment", "Row"]);
    assert!(run.code != 0 && run.stderr.contains("row-1.etl"), "{}", run.stderr);
    let run = daemon.weir(["stop", "Row"]).expect(1);
    assert!(run.stderr.contains("row-1.etl no longer exists"), "{}", run.stderr);
}

#[test]
fn percent_d_in_a_name_is_literal_without_new_file() {
    let daemon = Daemon::start();
    let run = daemon.weir(["start", "One", "-o", arg(&daemon.path("one-%d.etl"))]).expect(0);
    assert!(run.stderr.contains("literal") && run.stderr.contains("--new-file"), "{}", run.stderr);
    let run = daemon.weir(["info", arg(&daemon.path("one-%d.etl"))]).expect(0);
    assert!(run.text().contains("or still being written"), "{}", run.text());
    daemon.weir(["stop", "One"]).expect(0);
}

#[test]
fn second_session_appends_to_a_file() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    for orders in [2, 3] {
        daemon.weir(["start", "More", "-o", arg(&file), "--append", "-p", SHOP]).expect(0);
        run_shop(&daemon, orders);
        daemon.weir(["stop", "More"]).expect(0);
    }
    assert_eq!(shop_events_in(&file).len(), 5 * EVENTS_PER_ORDER);
    let run = daemon.weir(["start", "Odd", "-o", arg(&file), "--append", "--buffer-size", "128"]).expect(1);
    assert!(run.stderr.contains("cannot start session Odd"), "{}", run.stderr);
    assert!(run.stderr.contains("--buffer-size 64"), "{}", run.stderr);
    assert_eq!(shop_events_in(&file).len(), 5 * EVENTS_PER_ORDER, "the refused session changed the file");
}

#[test]
fn append_to_a_file_with_another_clock_names_the_way_that_works() {
    let daemon = Daemon::start();
    let (first, next, both) = (daemon.path("first.etl"), daemon.path("NEXT.etl"), daemon.path("BOTH.etl"));
    for file in [&first, &next] {
        daemon.weir(["start", "More", "-o", arg(file), "-p", SHOP]).expect(0);
        run_shop(&daemon, 2);
        daemon.weir(["stop", "More"]).expect(0);
    }
    let run = daemon.weir(["start", "More", "-o", arg(&first), "--append"]).expect(1);
    assert!(run.stderr.contains("--clock system"), "{}", run.stderr);
    let start = run.stderr.find("weir relog").expect("no command is suggested");
    let suggested: Vec<&str> = run.stderr[start..].split_whitespace().skip(1).collect();
    assert_eq!(suggested[..3], ["relog", arg(&first), "NEXT.etl"], "{}", run.stderr);
    let mut command = daemon.command(suggested);
    assert!(command.current_dir(daemon.folder()).status().unwrap().success());
    assert_eq!(shop_events_in(&both).len(), 4 * EVENTS_PER_ORDER);
}

#[test]
fn converted_session_finalises_its_file_and_delivers_live() {
    let daemon = Daemon::start();
    let file: PathBuf = daemon.path("a.etl");
    daemon.weir(["start", "Turning", "-o", arg(&file), "-p", SHOP, "--low-latency"]).expect(0);
    run_shop(&daemon, 2);
    let run = daemon.weir(["update", "Turning", "--to-real-time"]).expect(0);
    assert!(
        run.stderr.contains("a.etl is finished") && run.stderr.contains("weir watch Turning"),
        "{}",
        run.stderr
    );
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER);
    let _shop = start_shop(&daemon);
    daemon.weir(["watch", "Turning", "--head", "1"]).expect(0);
    let session = query_session(&daemon, "Turning");
    assert!(session["modes"].as_str().unwrap().contains("REAL_TIME"), "{session}");
    daemon.weir(["convert-to-realtime", "Turning"]).expect(1);
    daemon.weir(["stop", "Turning"]);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER, "events were added to the finished file");
}

#[test]
fn preallocated_files_are_truncated_to_their_content() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    daemon
        .weir(["start", "Reserved", "-o", arg(&file), "--preallocate", "--max-size", "8", "-p", SHOP])
        .expect(0);
    run_shop(&daemon, 2);
    eventually("the session has events", || {
        (query_session(&daemon, "Reserved")["events"] == 2 * EVENTS_PER_ORDER).then_some(())
    });
    daemon.weir(["stop", "Reserved"]).expect(0);
    assert!(file.metadata().unwrap().len() < 8 << 20, "the file was not truncated");
    assert_eq!(weir(["info", arg(&file), "--json"]).expect(0).json().len(), 1);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER);
}
