//! Tests of `weir start`, `stop`, `query`, `list`, `flush`, `enable` and `disable`.

use serde_json::Value;

use super::{EVENTS_PER_ORDER, SHOP, arg, run_shop, running_sessions, shop_events_in};
use crate::util::{Daemon, eventually, weir};

const LEVEL_WARNING: u8 = 3;

#[test]
fn session_is_started_listed_queried_and_stopped() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let run =
        daemon.weir(["start", "Morning", "-o", arg(&file), "-p", SHOP, "--buffer-size", "32"]).expect(0);
    assert!(
        run.stderr.contains("weir stop Morning"),
        "the output does not name the next command: {}",
        run.stderr
    );
    run_shop(&daemon, 5);

    let listed = running_sessions(&daemon);
    assert_eq!(listed.len(), 1);
    let table = daemon.weir(["list"]).expect(0).text();
    assert!(table.contains("Morning") && table.contains(arg(&file)), "{table}");

    let queried = &daemon.weir(["query", "morning", "--json"]).expect(0).json()[0];
    assert_eq!(queried["name"], "Morning");
    assert_eq!(queried["file"], arg(&file));
    assert_eq!(queried["modes"], "SEQUENTIAL");
    assert_eq!(queried["buffer_kib"], 32);
    let page = daemon.weir(["query", "Morning"]).expect(0).text();
    for word in [
        "Name:                   Morning\n",
        "Status:                 Running\n",
        &format!("Root Path:              {}\n", arg(daemon.folder())),
        "Buffer Size:            32 KiB\n",
        "Clock Type:             Performance\n",
        "(SEQUENTIAL)\n",
        "Events:                 15\n",
        "Events Lost:            0\n",
        "Provider:\n",
        "Level:                  0 (all)\n",
        "KeywordsAny:            0x0\n",
    ] {
        assert!(page.contains(word), "no {word} in {page}");
    }

    let run = daemon.weir(["stop", "Morning"]).expect(0);
    assert!(run.stderr.contains("15 events"), "{}", run.stderr);
    assert_eq!(shop_events_in(&file).len(), 5 * EVENTS_PER_ORDER);
    assert_eq!(running_sessions(&daemon), Vec::<Value>::new());
    assert!(daemon.weir(["list"]).expect(0).stderr.contains("no session"));
}

#[test]
fn provider_is_enabled_and_disabled_while_the_session_runs() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let run = daemon.weir(["start", "Later", "-o", arg(&file)]).expect(0);
    assert!(run.stderr.contains("weir enable Later"), "{}", run.stderr);
    run_shop(&daemon, 1);
    let run = daemon.weir(["enable", "Later", "Wrong.Name"]).expect(0);
    assert!(run.stderr.contains("no running process has registered provider Wrong.Name"), "{}", run.stderr);
    daemon.weir(["enable", "Later", SHOP, "--level", "info", "--keywords", "0x1"]).expect(0);
    run_shop(&daemon, 2);
    // No event of the shop has the keyword 0x2.
    daemon.weir(["enable", "Later", SHOP, "--keywords", "0x2"]).expect(0);
    run_shop(&daemon, 3);
    daemon.weir(["enable", "Later", SHOP]).expect(0);
    daemon.weir(["disable", "Later", SHOP]).expect(0);
    run_shop(&daemon, 4);
    daemon.weir(["stop", "Later"]).expect(0);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER);
}

#[test]
fn level_excludes_less_severe_events() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let provider = format!("{SHOP}::warning");
    daemon.weir(["start", "Warnings", "-o", arg(&file), "-p", &provider]).expect(0);
    run_shop(&daemon, 4);
    daemon.weir(["stop", "Warnings"]).expect(0);
    let events = shop_events_in(&file);
    assert_eq!(events.len(), 1, "not only the warning about the cold ristretto was recorded");
    assert_eq!(events[0]["level"], LEVEL_WARNING);
}

#[test]
fn flushed_flight_recorder_writes_a_snapshot() {
    let daemon = Daemon::start();
    let snapshot = daemon.path("snapshot.etl");
    let own_file = daemon.path("own.etl");
    let run = daemon.weir(["start", "Recorder", "--buffering", "-o", arg(&own_file), "-p", SHOP]).expect(0);
    assert!(run.stderr.contains("weir flush Recorder") && !run.stderr.contains("watch"), "{}", run.stderr);
    run_shop(&daemon, 2);
    let run = daemon.weir(["flush", "Recorder", "-o", arg(&snapshot)]).expect(0);
    assert!(run.stderr.contains("snapshot.etl: 6 events"), "{}", run.stderr);
    assert_eq!(shop_events_in(&snapshot).len(), 2 * EVENTS_PER_ORDER);
    daemon.weir(["stop", "Recorder"]).expect(0);
}

#[test]
fn stop_reports_the_events_that_circular_files_and_recorders_kept() {
    let daemon = Daemon::start();
    let circular = ["--circular", "--max-size", "1"];
    let recorder = ["--mode", "buffering", "--buffer-size", "4", "--max-buffers", "16"];
    // The sessions do not run at the same time: an event without space in one session is lost in
    // both.
    for (session, options) in [("Ring", &circular[..]), ("Recorder", &recorder)] {
        let file = daemon.path("kept.etl");
        daemon.weir([&["start", session, "-o", arg(&file), "-p", SHOP], options].concat()).expect(0);
        // Each process writes so few events that its memory holds them all, however late the
        // collector runs.
        for _ in 0..10 {
            run_shop(&daemon, 1_000);
        }
        let run = daemon.weir(["stop", session]);
        let kept_events = weir(["dump", "--format", "jsonl", "--provider", SHOP, arg(&file)]).json().len();
        assert!(kept_events < 30_000, "the file has all events, although not all fit");
        assert!(
            run.stderr.replace(',', "").contains(&format!("{kept_events} events in")),
            "{kept_events}: {}",
            run.stderr
        );
        assert!(run.stderr.contains("the newest of"), "{}", run.stderr);
    }
}

#[test]
fn query_of_an_ended_session_shows_its_end_and_last_state() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    daemon.weir(["start", "Full", "--max-size", "1", "-o", arg(&file), "-p", SHOP]).expect(0);
    run_shop(&daemon, 20_000);
    eventually("the session has ended", || running_sessions(&daemon).is_empty().then_some(()));
    let run = daemon.weir(["query", "full"]).expect(1);
    assert!(
        run.stderr.contains("session Full ended at 20"),
        "the time of the end is missing: {}",
        run.stderr
    );
    assert!(
        run.stderr.contains("its file reached its size limit"),
        "the cause of the end is missing: {}",
        run.stderr
    );
    assert!(
        run.text().contains("Status:                 Ended: its file reached its size limit"),
        "the last state is missing"
    );
    let ended = &daemon.weir(["query", "full", "--json"]).expect(1).json()[0];
    assert_eq!((&ended["status"], &ended["end_status"]), (&"ended".into(), &0.into()));
    // A new session replaces an ended session of the same name; `weir list` shows only the new one.
    daemon.weir(["start", "FULL", "-p", SHOP]).expect(0);
    let listed = daemon.weir(["list", "--json"]).expect(0).json();
    assert_eq!((listed.len(), &listed[0]["status"]), (1, &"running".into()));
    daemon.weir(["stop", "Full"]).expect(0);
}

/// Runs a session until its file is full and the session has ended.
fn run_until_full(daemon: &Daemon, name: &str) {
    let file = daemon.path(&format!("{name}.etl"));
    daemon.weir(["start", name, "--max-size", "1", "-o", arg(&file), "-p", SHOP]).expect(0);
    run_shop(daemon, 20_000);
    eventually("the session has ended", || running_sessions(daemon).is_empty().then_some(()));
}

/// Returns the names of the ended sessions that `weir list --json` prints.
fn ended_sessions(daemon: &Daemon) -> Vec<String> {
    let mut listed = daemon.weir(["list", "--json"]).expect(0).json();
    listed.retain(|session| session["status"] == "ended");
    listed.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn ended_session_is_listed_once() {
    let daemon = Daemon::start();
    run_until_full(&daemon, "First");
    run_until_full(&daemon, "Second");
    for _ in 0..2 {
        assert_eq!(ended_sessions(&daemon), ["Second", "First"], "JSON does not count as seen");
    }
    let table = daemon.weir(["list"]).expect(0).text();
    for name in ["First", "Second"] {
        assert!(table.contains(name), "{name} is not listed: {table}");
    }
    assert!(table.contains("Ended: its file reached its size limit"), "{table}");
    let run = daemon.weir(["list"]).expect(0);
    assert_eq!(run.text(), "", "ended sessions are listed a second time");
    assert_eq!(ended_sessions(&daemon), [""; 0]);
    // The final state is still known.
    daemon.weir(["query", "First"]).expect(1);
    run_until_full(&daemon, "first");
    assert_eq!(ended_sessions(&daemon), ["first"]);
    daemon.weir(["query", "First"]).expect(1);
    assert_eq!(ended_sessions(&daemon), [""; 0], "a session whose end was shown is still listed");
}

#[test]
fn stop_of_an_ended_session_reports_its_end() {
    let daemon = Daemon::start();
    run_until_full(&daemon, "Full");
    let run = daemon.weir(["stop", "full", "--json"]);
    let stopped = run.json().remove(0);
    let has_lost_events = stopped["session"]["events_lost"].as_u64().unwrap() > 0;
    let run = run.expect(if has_lost_events { 4 } else { 0 });
    for part in ["session Full had already ended by itself at 20", "Full.etl: ", "its limit of 1 MiB"] {
        assert!(run.stderr.contains(part), "no {part:?}: {}", run.stderr);
    }
    assert!(!run.stderr.contains("error"), "{}", run.stderr);
    assert_eq!((&stopped["ok"], &stopped["session"]["status"]), (&true.into(), &"ended".into()));
    assert_eq!(ended_sessions(&daemon), [""; 0], "a stopped session is still listed");
    // A session that was stopped while it ran is not running: stopping it again is an error.
    daemon.weir(["start", "Plain"]).expect(0);
    daemon.weir(["stop", "Plain"]).expect(0);
    let run = daemon.weir(["stop", "Plain"]).expect(1);
    assert!(run.stderr.contains("session Plain was stopped"), "{}", run.stderr);
    assert_eq!(run.stderr.matches("4201").count(), 1, "{}", run.stderr);
}

#[test]
fn recording_that_reached_its_limit_is_not_listed_afterwards() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let shop = [env!("CARGO_BIN_EXE_weir"), "demo-shop", "--pause", "0", "--orders", "20000"];
    let record = ["record", "-p", SHOP, "-o", arg(&file), "--max-size", "1", "--"];
    let run = daemon.weir([&record[..], &shop].concat());
    assert!(run.stderr.contains("limit of 1 MiB"), "{}", run.stderr);
    assert_eq!(ended_sessions(&daemon), [""; 0]);
}

#[test]
fn unknown_session_gets_a_suggestion_or_the_running_ones() {
    let daemon = Daemon::start();
    daemon.weir(["start", "Payments"]).expect(0);
    for arguments in [
        &["stop", "Paymets"][..],
        &["query", "Paymets"],
        &["flush", "Paymets"],
        &["update", "Paymets", "--flush-timer", "2"],
        &["enable", "Paymets", "P"],
        &["watch", "Paymets"],
    ] {
        let run = daemon.weir(arguments).expect(1);
        assert!(run.stderr.contains("Did you mean Payments?"), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stderr.matches("4201").count(), 1, "{arguments:?}: {}", run.stderr);
    }
    let run = daemon.weir(["stop", "Other"]).expect(1);
    assert!(run.stderr.contains("running: Payments"), "{}", run.stderr);
}

#[test]
fn flush_writes_buffered_events() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    daemon.weir(["start", "Flushed", "-o", arg(&file), "-p", SHOP]).expect(0);
    run_shop(&daemon, 2);
    let run = daemon.weir(["flush", "Flushed"]).expect(0);
    assert!(run.stderr.contains("6 events"), "{}", run.stderr);
    let dump = weir(["dump", "--format", "jsonl", "--provider", SHOP, arg(&file)]);
    assert_eq!(
        dump.json().len(),
        2 * EVENTS_PER_ORDER,
        "the flushed events cannot be read while the session runs"
    );
    daemon.weir(["stop", "Flushed"]).expect(0);
}

/// Every command about a session, with the name X of a session that does not exist.
const COMMANDS_ON_MISSING_SESSION: &[&[&str]] = &[
    &["stop", "X"],
    &["query", "X"],
    &["flush", "X"],
    &["update", "X", "--flush-timer", "2"],
    &["increment", "X"],
    &["convert-to-realtime", "X"],
    &["enable", "X", "P"],
    &["disable", "X", "P"],
    &["update", "X", "--next-file"],
    &["update", "X", "--to-real-time"],
    &["capture-state", "X", "-p", "P"],
    &["enable", "X", "P", "--capture-state"],
    &["watch", "X"],
];

#[test]
fn missing_daemon_or_session_is_reported_and_nothing_is_started() {
    let absent = Daemon::not_started();
    for arguments in COMMANDS_ON_MISSING_SESSION {
        let run = absent.weir(*arguments).expect(1);
        assert!(run.stderr.contains("no daemon"), "{arguments:?}: {}", run.stderr);
    }
    assert!(absent.weir(["list"]).expect(0).stderr.contains("no daemon"));
    for arguments in [&["list", "--providers"][..], &["providers"], &["providers", "X", "--json"]] {
        assert!(absent.weir(arguments).expect(0).stderr.contains("no provider is known"));
    }
    assert!(!absent.is_answering());

    let daemon = Daemon::start();
    for arguments in COMMANDS_ON_MISSING_SESSION {
        let run = daemon.weir(*arguments).expect(1);
        assert!(run.stderr.contains("weir list"), "{arguments:?} does not mention weir list: {}", run.stderr);
        assert!(run.stderr.contains("X"), "{arguments:?} does not name the session: {}", run.stderr);
    }
}

#[test]
fn refused_request_keeps_an_existing_trace() {
    let daemon = Daemon::start();
    let keep = daemon.path("keep.etl");
    std::fs::write(&keep, "old").unwrap();
    daemon.weir(["start", "Plain", "-o", arg(&daemon.path("a.etl")), "-p", SHOP]).expect(0);
    let run = daemon.weir(["flush", "Plain", "--force", "-o", arg(&keep)]).expect(1);
    assert!(run.stderr.contains("only a flight recorder writes snapshots"), "{}", run.stderr);
    for number in 2..=8 {
        daemon.weir(["start", &format!("Live{number}"), "-p", SHOP]).expect(0);
    }
    let run = daemon.weir(["start", "Ninth", "--force", "-o", arg(&keep), "-p", SHOP]).expect(1);
    assert!(
        run.stderr.contains("eight sessions") && run.stderr.contains("nothing was changed"),
        "{}",
        run.stderr
    );
    daemon.weir(["record", "--force", "-o", arg(&keep), "-p", SHOP, "--duration", "1s"]).expect(1);
    assert_eq!(std::fs::read(&keep).unwrap(), b"old");
    assert_eq!(running_sessions(&daemon).len(), 8);
}

#[test]
fn size_limit_below_two_buffers_is_refused() {
    let daemon = Daemon::start();
    let keep = daemon.path("keep.etl");
    std::fs::write(&keep, "old").unwrap();
    let limits = ["--max-size", "1", "--buffer-size", "1024"];
    let run = daemon.weir([&["start", "X", "--force", "-o", arg(&keep)], &limits[..]].concat()).expect(1);
    assert!(run.stderr.contains("two buffers"), "{}", run.stderr);
    assert_eq!(std::fs::read(&keep).unwrap(), b"old");
}

#[test]
fn name_or_file_in_use_is_refused() {
    let daemon = Daemon::start();
    let (first_file, second_file) = (daemon.path("1.etl"), daemon.path("2.etl"));
    daemon.weir(["start", "Taken", "-o", arg(&first_file)]).expect(0);
    let run = daemon.weir(["start", "taken", "-o", arg(&second_file)]).expect(1);
    assert!(run.stderr.contains("weir stop"), "{}", run.stderr);
    daemon.weir(["start", "Other", "-o", arg(&first_file)]).expect(1);
    daemon.weir(["start", "Nowhere", "-o", arg(&daemon.path("no/such/folder.etl"))]).expect(1);
    assert_eq!(running_sessions(&daemon).len(), 1);
}

#[test]
fn invalid_flags_are_refused_without_effect() {
    let absent = Daemon::not_started();
    for (arguments, word) in [
        (&["-o", "/nowhere/x.etl", "--mode", "circular"][..], "--max-size"),
        (&["-o", "/nowhere/x.etl", "--circular"], "--max-size"),
        (&["-o", "/nowhere/x.etl", "--preallocate"], "--max-size"),
        (&["-o", "x-%d.etl", "--new-file"], "--max-size"),
        (&["-o", "/nowhere/x.etl", "--new-file", "--max-size", "1"], "one %d"),
        (&["-o", "/nowhere/x.etl", "--append", "--clock", "qpc"], "system clock"),
        (&["--append"], "-o FILE"),
        (&["--mode", "sideways"], "circular"),
        (&["--guid", "12"], "--guid"),
        (&["--mode", "sequential"], "-o FILE"),
        (&["--min-buffers", "50", "--max-buffers", "3"], "more than"),
        (&["--max-size", "5T"], "MiB"),
        (&["--buffer-size", "1k"], "whole KiB"),
        (&["--flush-timer", "1s"], "whole seconds"),
    ] {
        let run = absent.weir([&["start", "X"], arguments].concat()).expect(2);
        assert!(run.stderr.contains(word), "{arguments:?}: {}", run.stderr);
    }
    assert!(!absent.is_answering());
}

#[test]
fn unwritable_file_is_named_once() {
    let daemon = Daemon::start();
    // Even root cannot write to /proc.
    let run = daemon.weir(["start", "X", "-o", "/proc/a.etl"]);
    assert_ne!(run.code, 0);
    assert_eq!(run.stderr.matches("/proc/a.etl").count(), 1, "{}", run.stderr);
    assert!(!run.stderr.contains("os error"), "two numbers for one error: {}", run.stderr);
    assert!(run.stderr.contains("/proc/a.etl") && !run.stderr.contains("--user"), "{}", run.stderr);
}

/// Starts a session whose file holds the events of two orders, and returns the file.
fn start_session_with_file(daemon: &Daemon, name: &str) -> std::path::PathBuf {
    let file = daemon.path(&format!("{name}.etl"));
    daemon.weir(["start", name, "-p", SHOP, "-o", arg(&file)]).expect(0);
    run_shop(daemon, 2);
    daemon.weir(["flush", name]).expect(0);
    file
}

/// Returns the warning about a log file that another process changed.
pub(super) fn damage_warning(file: &std::path::Path) -> String {
    format!("warning: another process truncated or overwrote {} while it was recorded\n", arg(file))
}

/// Stops a session whose log file is damaged, and returns the session's object in the answer.
fn stop_damaged(daemon: &Daemon, name: &str) -> Value {
    let run = daemon.weir(["stop", name, "--json"]).expect(3);
    assert!(run.stderr.contains(&damage_warning(&daemon.path(&format!("{name}.etl")))), "{}", run.stderr);
    let answer = run.json().remove(0);
    assert_eq!(answer["ok"], true, "{answer}");
    answer["session"].clone()
}

#[test]
fn log_file_emptied_by_another_process_is_reported() {
    let daemon = Daemon::start();
    let file = start_session_with_file(&daemon, "Emptied");
    std::fs::File::create(&file).unwrap();
    run_shop(&daemon, 3);
    let session = stop_damaged(&daemon, "Emptied");
    let lost = 2 * EVENTS_PER_ORDER as u64;
    assert_eq!(session["lost_by_cause"]["overwritten"], lost, "{session}");
    assert_eq!(session["events_lost"], lost, "{session}");
    assert!(session["overwritten_buffers"].as_u64().unwrap() >= 2, "{session}");
    // Later events are in the file, and its header counts the loss.
    let dump = weir(["dump", "--format", "jsonl", "--provider", SHOP, arg(&file)]).expect(3);
    assert_eq!(dump.json().len(), 3 * EVENTS_PER_ORDER);
    assert!(
        dump.stderr.replace(',', "").contains(&format!("the session lost {lost} events")),
        "{}",
        dump.stderr
    );
    assert!(dump.stderr.contains("hole at offset"), "{}", dump.stderr);
}

#[test]
fn log_file_overwritten_by_another_process_is_reported() {
    use std::os::unix::fs::FileExt;
    let daemon = Daemon::start();
    let file = start_session_with_file(&daemon, "Overwritten");
    let modification_time = |file: &std::path::Path| file.metadata().unwrap().modified().unwrap();
    let (before, size) = (modification_time(&file), file.metadata().unwrap().len() as usize);
    let other_writer = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    // Modification times of files are coarse, so one write may leave the time unchanged.
    eventually("the modification time changes", || {
        other_writer.write_all_at(&vec![b'x'; size], 0).unwrap();
        (modification_time(&file) != before).then_some(())
    });
    let session = stop_damaged(&daemon, "Overwritten");
    assert_eq!(session["lost_by_cause"]["overwritten"], 2 * EVENTS_PER_ORDER as u64, "{session}");
}

#[test]
fn counts_do_not_depend_on_the_location_of_the_log_file() {
    let daemon = Daemon::start();
    for (name, is_removed) in [("Renamed", false), ("Removed", true)] {
        let file = start_session_with_file(&daemon, name);
        if is_removed {
            std::fs::remove_file(&file).unwrap();
        } else {
            std::fs::rename(&file, daemon.path("elsewhere.etl")).unwrap();
        }
        let run = daemon.weir(["stop", name, "--json"]).expect(1);
        assert!(run.stderr.contains("no longer exists"), "{}", run.stderr);
        let answer = run.json().remove(0);
        assert_eq!((&answer["ok"], &answer["status"]), (&false.into(), &2.into()), "{answer}");
        assert_eq!(answer["session"]["events"], 2 * EVENTS_PER_ORDER as u64, "{answer}");
        assert_eq!(answer["session"]["events_lost"], 0, "{answer}");
    }
    assert_eq!(shop_events_in(&daemon.path("elsewhere.etl")).len(), 2 * EVENTS_PER_ORDER);
}
