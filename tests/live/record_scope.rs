//! Tests of what `weir record` records by default: process trees, name patterns, profiles, and the
//! conditions that end a recording.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::{
    EVENTS_PER_ORDER, SHOP, arg, run_shop, shop_events_in, start_shop, wait_for_session_with_events,
};
use crate::util::{Daemon, Process, Run, eventually, weir};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// Runs `weir` in this folder and with this daemon.
fn run_in(daemon: &Daemon, folder: &Path, arguments: &[&str]) -> Run {
    let mut command = daemon.command(arguments);
    command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    Process::start(&mut command).finish()
}

fn make_folder(daemon: &Daemon) -> PathBuf {
    let folder = daemon.path("work");
    std::fs::create_dir(&folder).unwrap();
    folder
}

fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn pids_of(events: &[Value]) -> Vec<u64> {
    let mut pids: Vec<u64> = events.iter().map(|event| event["pid"].as_u64().unwrap()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

#[test]
fn record_without_options_records_the_providers_of_the_command_only() {
    let daemon = Daemon::start();
    let folder = make_folder(&daemon);
    let other = start_shop(&daemon);
    let shop = [WEIR, "demo-shop", "--orders", "3", "--pause", "0"];
    let run = run_in(&daemon, &folder, &[&["record", "--no-kernel", "--"], &shop[..]].concat()).expect(0);
    let files = files_in(&folder);
    let [name] = &files[..] else { panic!("not one file: {files:?}") };
    assert!(name.starts_with("weir-2") && name.ends_with(".etl") && name.len() == 24, "{name}");
    let events = shop_events_in(&folder.join(name));
    assert_eq!(events.len(), 3 * EVENTS_PER_ORDER, "{}", run.stderr);
    assert!(!pids_of(&events).contains(&other.id().into()), "another process was recorded");
    assert!(run.stderr.contains(&format!("  {SHOP}/")), "the table is missing: {}", run.stderr);
    assert!(run.stderr.contains("recorded for "), "{}", run.stderr);
    let (_, commands) = run.stderr.split_once("next: ").unwrap_or_else(|| panic!("{}", run.stderr));
    // A build with the view names it too; it would wait for the browser.
    let commands = commands.lines().map(str::trim).filter(|line| !line.contains(" view "));
    let commands: Vec<&str> = commands.filter(|line| !line.is_empty()).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let output = Command::new("sh").args(["-c", command]).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
}

#[test]
fn failure_of_the_command_is_reported() {
    let daemon = Daemon::start();
    let folder = make_folder(&daemon);
    let run = run_in(&daemon, &folder, &["record", "--no-kernel", "--", "sh", "-c", "exit 7"]).expect(7);
    assert!(run.stderr.contains("the command exited with status 7"), "{}", run.stderr);
    let run =
        run_in(&daemon, &folder, &["record", "--no-kernel", "--", "sh", "-c", "kill -9 $$"]).expect(137);
    assert!(run.stderr.contains("signal 9 (SIGKILL) ended the command"), "{}", run.stderr);
}

/// The recorded command takes the name of the trace, as a hostile program could.
#[test]
fn events_in_memory_get_another_name_if_theirs_is_taken() {
    let daemon = Daemon::start();
    let folder = make_folder(&daemon);
    let script = format!("{WEIR} demo-shop --orders 3 --pause 0; echo text > a.etl");
    let record = ["record", "--no-kernel", "--flight", "1M", "-o", "a.etl", "--", "sh", "-c", &script];
    let run = run_in(&daemon, &folder, &record).expect(0);
    assert!(run.stderr.contains("the events are in "), "{}", run.stderr);
    assert_eq!(std::fs::read(folder.join("a.etl")).unwrap(), b"text\n");
    assert_eq!(shop_events_in(&folder.join("a-2.etl")).len(), 3 * EVENTS_PER_ORDER, "{}", run.stderr);
}

#[test]
fn old_trace_does_not_replace_the_log_file_of_a_session() {
    let daemon = Daemon::start();
    let folder = make_folder(&daemon);
    run_in(&daemon, &folder, &["record", "--no-kernel", "-o", "a.etl", "--", "true"]).expect(0);
    run_in(&daemon, &folder, &["start", "Old", "-o", "a.old.etl", "-p", SHOP]).expect(0);
    let run = run_in(&daemon, &folder, &["record", "--no-kernel", "-o", "a.etl", "--", "true"]).expect(125);
    assert!(run.stderr.contains("a.old.etl, to which a session writes"), "{}", run.stderr);
    daemon.weir(["stop", "Old"]).expect(0);
    let run = run_in(&daemon, &folder, &["record", "--no-kernel", "-o", "a.etl", "--", "true"]).expect(0);
    assert!(run.stderr.contains("and replaced the trace before it"), "{}", run.stderr);
    std::fs::write(folder.join("a.old.etl"), "text").unwrap();
    let run = run_in(&daemon, &folder, &["record", "--no-kernel", "-o", "a.etl", "--", "true"]).expect(125);
    assert!(run.stderr.contains("which is not a trace"), "{}", run.stderr);
}

#[test]
fn record_of_the_whole_machine_includes_other_processes() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let other = start_shop(&daemon);
    let script =
        format!("while ! {WEIR} dump {0} 2>/dev/null | grep -q Order; do sleep 0.1; done", arg(&file));
    let options = ["record", "-a", "--no-kernel", "-o", arg(&file), "--", "sh", "-c", &script];
    // The script ends when the file has events, which are written after a second.
    daemon.weir(options).expect(0);
    assert_eq!(pids_of(&shop_events_in(&file)), [u64::from(other.id())]);
}

#[test]
fn orphans_of_the_command_are_recorded() {
    let daemon = Daemon::start();
    let (file, orphaned, done) = (daemon.path("a.etl"), daemon.path("orphaned"), daemon.path("done"));
    // The parent of the sample program ends before the program starts.
    let script = format!(
        "(sh -c 'while [ ! -e {0} ]; do sleep 0.02; done; {WEIR} demo-shop --orders 2 --pause 0; touch {1}' &); \
         touch {0}; while [ ! -e {1} ]; do sleep 0.02; done",
        arg(&orphaned),
        arg(&done)
    );
    let run = daemon.weir(["record", "--no-kernel", "-o", arg(&file), "--", "sh", "-c", &script]).expect(0);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER, "{}", run.stderr);
}

#[test]
fn descendants_of_a_selected_process_are_recorded() {
    let daemon = Daemon::start();
    let (file, go) = (daemon.path("a.etl"), daemon.path("go"));
    let script = format!(
        "while [ ! -e {0} ]; do sleep 0.02; done; {WEIR} demo-shop --pause 1 --orders 1000000; true",
        arg(&go)
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("TRACEWEIR_RUNTIME_DIR", daemon.folder()).stdin(Stdio::null());
    let selected = Process::start(&mut command);
    let other = start_shop(&daemon);
    let pid = selected.id().to_string();
    let recording =
        daemon.spawn_weir(["record", "--no-kernel", "-o", arg(&file), "--low-latency", "--pid", &pid]);
    eventually("the session runs", || (!super::running_sessions(&daemon).is_empty()).then_some(()));
    std::fs::write(&go, "").unwrap();
    wait_for_session_with_events(&daemon, "weir-record-");
    recording.signal(Signal::INT);
    recording.finish().expect(0);
    let events = shop_events_in(&file);
    let pids = pids_of(&events);
    assert_eq!(pids.len(), 1, "{pids:?}");
    assert!(!pids.contains(&other.id().into()), "another process was recorded");
    for pid in pids {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
}

#[test]
fn patterns_match_registered_names_now_and_later() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let run =
        daemon.weir(["start", "P", "-o", arg(&file), "-p", "traceweir.*::info", "-p", "Nothing.*"]).expect(0);
    assert!(run.stderr.contains("has registered a provider Nothing.*"), "{}", run.stderr);
    run_shop(&daemon, 2);
    daemon.weir(["stop", "P"]).expect(0);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER);

    let _shop = start_shop(&daemon);
    let watched = daemon.weir(["watch", "-p", "*.CoffeeShop", "--head", "3", "--format", "jsonl"]).expect(0);
    assert!(watched.json().iter().all(|event| event["provider"] == SHOP));
    assert_eq!(watched.json().len(), 3);

    daemon.weir(["start", "E", "-o", arg(&daemon.path("e.etl")), "--low-latency"]).expect(0);
    daemon.weir(["enable", "E", "Trace*Shop"]).expect(0);
    wait_for_session_with_events(&daemon, "E");
    let query = daemon.weir(["query", "E"]).expect(0);
    assert!(query.text().contains(SHOP), "{}", query.text());
    daemon.weir(["disable", "E", "Trace*Shop"]).expect(0);
    daemon.weir(["stop", "E"]).expect(0);
}

#[test]
fn event_condition_ends_the_recording() {
    let daemon = Daemon::start();
    let (file, done) = (daemon.path("a.etl"), daemon.path("done"));
    let script =
        format!("{WEIR} demo-shop --orders 20 --pause 0; while [ ! -e {} ]; do sleep 0.02; done", arg(&done));
    let condition = format!("{SHOP}/*:12");
    let options = ["record", "--no-kernel", "-o", arg(&file), "--until", &condition];
    let mut recording = daemon.spawn_weir(options.iter().chain(&["--", "sh", "-c", &script]));
    eventually("the recording has ended", || {
        let has_started = file.exists();
        (has_started && super::running_sessions(&daemon).is_empty()).then_some(())
    });
    assert!(recording.is_running(), "weir did not wait for the command");
    std::fs::write(&done, "").unwrap();
    recording.finish().expect(0);
    assert!(!shop_events_in(&file).is_empty());
}

#[test]
fn created_file_and_signal_end_a_recording() {
    let daemon = Daemon::start();
    let (file, trigger) = (daemon.path("a.etl"), daemon.path("trigger"));
    let _shop = start_shop(&daemon);
    let until_file = format!("file:{}", arg(&trigger));
    let recording =
        daemon.spawn_weir(["record", "-p", SHOP, "-o", arg(&file), "--low-latency", "--until", &until_file]);
    wait_for_session_with_events(&daemon, "weir-record-");
    std::fs::write(&trigger, "").unwrap();
    recording.finish().expect(0);
    assert!(!shop_events_in(&file).is_empty());
    let run = daemon.weir(["record", "-p", SHOP, "-o", arg(&file), "--until", &until_file]).expect(1);
    assert!(run.stderr.contains("exists already"), "{}", run.stderr);

    let file = daemon.path("b.etl");
    let recording =
        daemon.spawn_weir(["record", "-p", SHOP, "-o", arg(&file), "--low-latency", "--until", "SIGUSR1"]);
    wait_for_session_with_events(&daemon, "weir-record-");
    recording.signal(Signal::USR1);
    recording.finish().expect(0);
    assert!(!shop_events_in(&file).is_empty());
}

#[test]
fn flight_recorder_is_written_at_the_end_or_if_the_command_fails() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let shop = |exit: &'static str| [WEIR, "demo-shop", "--orders", "2", "--pause", "0", "--exit", exit];
    let options = ["record", "--no-kernel", "-o", arg(&file), "--flight", "2M"];
    let until = ["--until", "exit!=0", "--"];
    let run = daemon.weir([&options[..], &until, &shop("0")].concat()).expect(0);
    assert!(!file.exists() && run.stderr.contains("was not met"), "{}", run.stderr);
    let run = daemon.weir([&options[..], &until, &shop("3")].concat()).expect(3);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER, "{}", run.stderr);
    let run = daemon.weir([&options[..], &["--"], &shop("0")].concat()).expect(0);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER, "{}", run.stderr);
    assert!(daemon.path("a.old.etl").exists());
    weir(["record", "--flight", "2M", "--circular", "--", "true"]).expect(2);
    weir(["record", "--until", "exit!=0", "-p", SHOP]).expect(2);
}

#[test]
fn recording_ends_after_a_number_of_events() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let _shop = start_shop(&daemon);
    daemon.weir(["record", "-p", SHOP, "-o", arg(&file), "--stop-after", "10"]).expect(0);
    assert!(shop_events_in(&file).len() >= 10);
}

#[test]
fn existing_trace_is_moved_and_other_files_are_refused() {
    let daemon = Daemon::start();
    let (file, old) = (daemon.path("a.etl"), daemon.path("a.old.etl"));
    let record = |options: &[&str], orders: &str| {
        let shop = ["--", WEIR, "demo-shop", "--pause", "0", "--orders", orders];
        daemon.weir([&["record", "--no-kernel", "-o", arg(&file)], options, &shop].concat())
    };
    record(&[], "1").expect(0);
    let run = record(&[], "2").expect(0);
    assert!(run.stderr.contains("a.old.etl"), "{}", run.stderr);
    assert_eq!(shop_events_in(&old).len(), EVENTS_PER_ORDER);
    assert_eq!(shop_events_in(&file).len(), 2 * EVENTS_PER_ORDER);
    record(&["--force"], "3").expect(0);
    assert_eq!(shop_events_in(&old).len(), EVENTS_PER_ORDER, "--force moved the trace");
    std::fs::write(&file, "notes").unwrap();
    let run = record(&[], "1").expect(125);
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    let run = daemon.weir(["start", "S", "-o", arg(&file), "-p", SHOP]).expect(1);
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    assert_eq!(std::fs::read(&file).unwrap(), b"notes");
    record(&["--force"], "1").expect(0);
    assert_eq!(shop_events_in(&file).len(), EVENTS_PER_ORDER);

    // The file of a running session is not moved.
    let used = daemon.path("used.etl");
    daemon.weir(["start", "S", "-o", arg(&used), "-p", SHOP]).expect(0);
    run_shop(&daemon, 1);
    daemon.weir(["flush", "S"]).expect(0);
    let run = daemon.weir(["start", "T", "-o", arg(&used), "-p", SHOP]).expect(1);
    assert!(run.stderr.contains("in use"), "{}", run.stderr);
    assert!(used.exists() && !daemon.path("used.old.etl").exists());
    // A failed start gives the old trace its name back.
    daemon.weir(["start", "S", "-o", arg(&old), "-p", SHOP]).expect(1);
    assert_eq!(shop_events_in(&old).len(), EVENTS_PER_ORDER);
    daemon.weir(["stop", "S"]).expect(0);
}

#[test]
fn outputs_other_than_traces_are_replaced_only_by_force() {
    let daemon = Daemon::start();
    let (file, text) = (daemon.path("a.etl"), daemon.path("a.txt"));
    daemon
        .weir(["record", "--no-kernel", "-o", arg(&file), "--", WEIR, "demo-shop", "--pause", "0"])
        .expect(0);
    weir(["dump", arg(&file), "-o", arg(&text)]).expect(0);
    let first = std::fs::read(&text).unwrap();
    std::fs::write(&text, "notes").unwrap();
    let run = weir(["dump", arg(&file), "-o", arg(&text)]).expect(1);
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    weir(["dump", arg(&file), "-o", arg(&text), "--force"]).expect(0);
    assert_eq!(std::fs::read(&text).unwrap(), first);
    weir(["dump", arg(&file), "-o", "/dev/null"]).expect(0);
}

#[test]
fn own_profiles_are_listed_checked_and_recorded() {
    let daemon = Daemon::start();
    let (config, file) = (daemon.path("config"), daemon.path("a.etl"));
    let folder = config.join("traceweir/profiles");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("shop.toml");
    std::fs::write(&path, format!("description = \"The shop\"\nproviders = ['{SHOP}::info']\n")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = daemon.command(arguments);
        command.env("XDG_CONFIG_HOME", &config).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::start(&mut command).finish()
    };
    let list = run(&["profiles"]).expect(0);
    for name in ["app", "cpu", "sched", "io", "net", "memory", "all", "shop", "The shop"] {
        assert!(list.text().contains(name), "{name} is missing: {}", list.text());
    }
    assert!(run(&["profiles", "shop"]).expect(0).text().contains(SHOP));
    let shop = [WEIR, "demo-shop", "--pause", "0", "--orders", "1"];
    run(&[&["record", "--profile", "shop", "-o", arg(&file), "--"], &shop[..]].concat()).expect(0);
    assert_eq!(shop_events_in(&file).len(), EVENTS_PER_ORDER);
    run(&["start", "S", "--profile", "shop", "-o", arg(&daemon.path("s.etl"))]).expect(0);
    assert!(daemon.weir(["query", "S"]).expect(0).text().contains(SHOP));
    daemon.weir(["stop", "S"]).expect(0);

    std::fs::write(&path, "providers = [\"A\"]\ncolour = \"red\"\n").unwrap();
    let error = run(&["profiles", "shop"]).expect(1).stderr;
    assert!(error.contains("shop.toml:2:1: unknown key \"colour\""), "{error}");
    assert!(error.contains("description, providers and kernel"), "{error}");
    // The other profiles are listed before the error.
    std::fs::write(folder.join("valid.toml"), "kernel = 'cpu'\ndescription = 'Mine'\n").unwrap();
    let list = run(&["profiles"]).expect(1);
    assert!(list.text().contains("memory") && list.text().contains("Mine"), "{}", list.text());
    assert!(list.stderr.contains("shop.toml:2:1: unknown key \"colour\""), "{}", list.stderr);
    let error = run(&["record", "--profile", "shops", "--", "true"]).expect(125).stderr;
    assert!(error.contains("no profile shops.") && error.contains("memory"), "{error}");
}

#[test]
fn record_needs_something_to_record() {
    assert!(weir(["record", "-o", "/nowhere/x.etl"]).expect(2).stderr.contains("--provider"));
    assert!(
        weir(["record", "--no-kernel", "--profile", "cpu", "--", "true"]).expect(2).stderr.contains("-p")
    );
    assert!(weir(["record", "--no-kernel", "-F", "99", "--", "true"]).expect(2).stderr.contains("-F"));
    weir(["record", "--max-size", "5T", "--", "true"]).expect(2);
}

#[test]
fn watch_of_a_process_shows_all_its_providers() {
    let daemon = Daemon::start();
    let (selected, _other) = (start_shop(&daemon), start_shop(&daemon));
    let pid = selected.id().to_string();
    let options = ["watch", "--pid", &pid, "--head", "3", "--format", "jsonl"];
    let events = daemon.weir(options).expect(0).json();
    assert!(events.iter().all(|event| event["provider"] == SHOP), "{events:?}");
    assert_eq!(pids_of(&events), [u64::from(selected.id())]);
}
