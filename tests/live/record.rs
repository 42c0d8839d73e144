//! Tests of `weir record` with commands, running processes, durations and Ctrl-C.

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use super::control::damage_warning;
use super::{
    EVENTS_PER_ORDER, SHOP, arg, running_sessions, shop_events_in, start_shop, wait_for_session_with_events,
};
use crate::util::{Daemon, Process, Run, eventually, weir};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

fn run_record(daemon: &Daemon, file: &Path, options: &[&str]) -> Run {
    let mut arguments = vec!["record", "-p", SHOP, "-o", arg(file)];
    arguments.extend(options);
    daemon.weir(arguments)
}

#[test]
fn record_exits_with_the_status_of_the_command() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let shop = [WEIR, "demo-shop", "--orders", "3", "--pause", "0", "--exit", "7"];
    let run = run_record(&daemon, &file, &[&["--"], &shop[..]].concat()).expect(7);
    assert!(run.stderr.contains("9 events"), "the summary is missing: {}", run.stderr);
    assert_eq!(shop_events_in(&file).len(), 3 * EVENTS_PER_ORDER);
    assert_eq!(running_sessions(&daemon).len(), 0, "a session still runs");

    run_record(&daemon, &file, &["--", "sh", "-c", "kill -9 $$"]).expect(128 + 9);
    run_record(&daemon, &file, &["--", "/no/such/program"]).expect(127);
    run_record(&daemon, &file, &["--", arg(daemon.folder())]).expect(126);
    assert_eq!(running_sessions(&daemon).len(), 0);
}

#[test]
fn failure_of_record_exits_with_125_with_a_command_and_1_without() {
    let daemon = Daemon::start();
    let missing_folder = daemon.path("no/such/folder.etl");
    run_record(&daemon, &missing_folder, &["--", "true"]).expect(125);
    run_record(&daemon, &missing_folder, &["--duration", "1ms"]).expect(1);
    assert!(
        run_record(&daemon, &missing_folder, &["--pid", "4194303"]).expect(1).stderr.contains("no process")
    );
}

#[test]
fn stacks_without_images_are_noted() {
    let daemon = Daemon::start();
    let provider = format!("{SHOP}@stack");
    let file = daemon.path("a.etl");
    let run = daemon.weir(["record", "-p", &provider, "-o", arg(&file), "--", "true"]);
    assert!(run.stderr.contains("--kernel image_load records the files of code"), "{}", run.stderr);
}

#[test]
fn children_of_the_command_are_recorded_too() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let script = format!("{WEIR} demo-shop --orders 2 & {WEIR} demo-shop --orders 3 --first 10; wait");
    run_record(&daemon, &file, &["--", "sh", "-c", &script]).expect(0);
    let events = shop_events_in(&file);
    assert_eq!(events.len(), 5 * EVENTS_PER_ORDER);
    let mut pids: Vec<_> = events.iter().map(|event| event["pid"].as_u64().unwrap()).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 2);
}

#[test]
fn daemon_starts_on_demand_and_exits_when_idle() {
    let absent = Daemon::not_started();
    // This script replaces the usual on-demand daemon with one that has a short idle timeout.
    let script = absent.path("weir-with-short-idle-timeout");
    std::fs::write(&script, format!("#!/bin/sh\nexec {WEIR} \"$@\" --idle-exit 5\n")).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let file = absent.path("a.etl");
    let mut command = absent.command(["record", "-p", SHOP, "-o", arg(&file), "--", WEIR, "demo-shop"]);
    command.env("TRACEWEIR_DAEMON", &script).stdout(Stdio::piped()).stderr(Stdio::piped());
    Process::start(&mut command).finish().expect(0);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER);
    eventually("the daemon has ended", || (!absent.path("control.sock").exists()).then_some(()));
}

#[test]
fn running_processes_are_recorded_until_ctrl_c() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let shop = start_shop(&daemon);
    let recording = daemon.spawn_weir(["record", "-p", SHOP, "-o", arg(&file), "--low-latency"]);
    wait_for_session_with_events(&daemon, "weir-record-");
    recording.signal(Signal::INT);
    let run = recording.finish().expect(0);
    assert!(run.stderr.contains("events in"), "{}", run.stderr);
    let events = shop_events_in(&file);
    assert!(!events.is_empty(), "no event was recorded");
    assert!(events.iter().all(|event| event["pid"] == shop.id()), "an event is from another process");
    assert_eq!(running_sessions(&daemon).len(), 0);
}

#[test]
fn second_ctrl_c_exits_at_once_with_a_finalised_file() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    // The stop waits a second for a process that does not answer. If the machine takes longer than
    // a second to deliver two signals, the stop completes first; then the test tries again.
    let exited_at_once = (0..10).any(|_| {
        let shop = start_shop(&daemon);
        let mut recording = daemon.spawn_weir(["record", "-p", SHOP, "-o", arg(&file), "--low-latency"]);
        wait_for_session_with_events(&daemon, "weir-record-");
        shop.signal(Signal::STOP);
        while recording.is_running() {
            recording.signal(Signal::INT);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let run = recording.finish();
        assert!(matches!(run.code, 0 | 130), "{}: {}", run.code, run.stderr);
        assert_eq!(run.code == 130, run.stderr.contains("the daemon finalises the file"), "{}", run.stderr);
        eventually("the session has ended", || running_sessions(&daemon).is_empty().then_some(()));
        assert!(!shop_events_in(&file).is_empty());
        run.code == 130
    });
    assert!(exited_at_once, "the second SIGINT never ended the command at once");
}

#[test]
fn ctrl_c_waits_for_the_last_events_of_the_command() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    // As with a terminal, weir and the command get SIGINT. The command has written two orders, the
    // default of the shop, and then writes one more.
    let script = format!(
        "trap '{WEIR} demo-shop --orders 1 --first 500; exit 3' INT; {WEIR} demo-shop; kill -INT $PPID; kill -INT $$; sleep 60"
    );
    let run = run_record(&daemon, &file, &["--low-latency", "--", "sh", "-c", &script]).expect(3);
    assert!(run.stderr.contains("events in"), "{}", run.stderr);
    assert_eq!(shop_events_in(&file).len(), 3 * EVENTS_PER_ORDER);
}

#[test]
fn duration_ends_the_recording() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    run_record(&daemon, &file, &["--duration", "50ms"]).expect(0);
    assert!(shop_events_in(&file).is_empty());
    // The command continues after the recording has ended, and `weir` exits with the status of the
    // command.
    let shop = [WEIR, "demo-shop", "--orders", "1", "--linger", "300", "--exit", "9"];
    run_record(&daemon, &file, &[&["--duration", "50ms", "--"], &shop[..]].concat()).expect(9);
    shop_events_in(&file);
}

#[test]
fn recording_of_a_process_ends_with_it() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let (selected, _other) = (start_shop(&daemon), start_shop(&daemon));
    let pid = selected.id().to_string();
    let recording =
        daemon.spawn_weir(["record", "-p", SHOP, "-o", arg(&file), "--low-latency", "--pid", &pid]);
    wait_for_session_with_events(&daemon, "weir-record-");
    let id = selected.id();
    drop(selected);
    recording.finish().expect(0);
    let events = shop_events_in(&file);
    assert!(!events.is_empty(), "no event was recorded");
    assert!(events.iter().all(|event| event["pid"] == id), "an event is from another process");
}

#[test]
fn full_file_ends_the_recording_and_later_events_are_counted() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let shop = [WEIR, "demo-shop", "--pause", "0", "--orders", "100000"];
    let run = run_record(&daemon, &file, &[&["--max-size", "1", "--"], &shop[..]].concat()).expect(0);
    assert!(run.stderr.contains("lost") && run.stderr.contains("limit of 1 MiB"), "{}", run.stderr);
    let dump = weir(["dump", "--format", "jsonl", "--provider", SHOP, arg(&file)]).expect(0);
    assert!(!dump.json().is_empty() && file.metadata().unwrap().len() <= 1 << 20);
    assert_eq!(running_sessions(&daemon).len(), 0);
}

#[test]
fn command_that_cannot_start_keeps_an_existing_trace() {
    let daemon = Daemon::start();
    let file = daemon.path("keep.etl");
    std::fs::write(&file, "precious").unwrap();
    run_record(&daemon, &file, &["--", "./no-such-program"]).expect(127);
    run_record(&daemon, &file, &["--", "no-such-program-on-any-path"]).expect(127);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn provider_without_a_process_is_named_at_the_end() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let providers = format!("{SHOP},Wrong.Name");
    let arguments = ["record", "-p", &providers, "-o", arg(&file), "--", WEIR, "demo-shop"];
    let run = daemon.weir(arguments).expect(0);
    assert!(run.stderr.contains("no process has registered provider Wrong.Name"), "{}", run.stderr);
    assert!(
        !run.stderr.contains(&format!("provider {SHOP}")),
        "a provider with a process is named: {}",
        run.stderr
    );
}

#[test]
fn process_without_the_provider_is_named() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let pid = std::process::id().to_string();
    let run = run_record(&daemon, &file, &["--pid", &pid, "--duration", "50ms"]).expect(0);
    assert!(run.stderr.contains(&format!("process {pid} has not registered {SHOP}")), "{}", run.stderr);
}

#[test]
fn premature_end_of_a_recording_names_its_cause() {
    let mut daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let _shop = start_shop(&daemon);
    let recording = daemon.spawn_weir(["record", "-p", SHOP, "-o", arg(&file), "--low-latency"]);
    let name = wait_for_session_with_events(&daemon, "weir-record-");
    daemon.weir(["stop", &name]).expect(0);
    let run = recording.finish().expect(0);
    assert!(run.stderr.contains("by another process"), "{}", run.stderr);
    assert!(!shop_events_in(&file).is_empty());

    let file = daemon.path("b.etl");
    // Events older than a second are in the file, even if the daemon is killed.
    let recording = daemon.spawn_weir(["record", "-p", SHOP, "-o", arg(&file)]);
    eventually("the file has events", || {
        let dump = weir(["dump", "--format", "jsonl", "--provider", SHOP, arg(&file)]);
        (!dump.json().is_empty()).then_some(())
    });
    daemon.kill();
    let run = recording.finish().expect(1);
    assert!(run.stderr.contains("has ended") && run.stderr.contains("weir repair"), "{}", run.stderr);
}

#[test]
fn file_removed_during_the_recording_is_reported() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let script = format!("rm {}", arg(&file));
    let run = run_record(&daemon, &file, &["--", "sh", "-c", &script]).expect(125);
    assert!(run.stderr.contains("a.etl no longer exists"), "{}", run.stderr);
}

#[test]
fn file_emptied_during_the_recording_is_reported() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let script = format!(": > {}", arg(&file));
    let run = run_record(&daemon, &file, &["--", "sh", "-c", &script]).expect(0);
    assert!(run.stderr.contains(&damage_warning(&file)), "{}", run.stderr);
}
