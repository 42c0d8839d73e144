//! Tests of providers that are enabled by name although their GUID is not the hash of the name. C
//! programs may choose such GUIDs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::arg;
use crate::util::{Daemon, Process, eventually, root, weir};

const NAME: &str = "Traceweir.Test.OwnGuid";
const FIRST_GUID: &str = "5d3f1c01-1111-4222-8333-444455556601";
const SECOND_GUID: &str = "5d3f1c02-1111-4222-8333-444455556602";
/// A number of events that keeps the program running until it is killed.
const UNTIL_KILLED: &str = "100000000";

/// Compiles `own_guid.c` with the C library that cargo built for this test.
fn build_own_guid_program(daemon: &Daemon) -> PathBuf {
    let program = daemon.path("own_guid");
    let test_program = std::env::current_exe().unwrap();
    let library = test_program.parent().unwrap().join("libtraceweir_c.a");
    let mut compiler = Command::new("gcc");
    compiler.arg("-I").arg(root().join("crates/ffi/include")).arg(root().join("tests/live/own_guid.c"));
    compiler.arg("-o").arg(&program).arg(library).args(["-lpthread", "-ldl", "-lm"]);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn start_program(daemon: &Daemon, program: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(program);
    command.args(arguments).env("TRACEWEIR_RUNTIME_DIR", daemon.folder()).stdin(Stdio::null());
    Process::start(&mut command)
}

/// Returns the entries that `weir providers` lists for [`NAME`], ignoring case.
fn provider_entries(daemon: &Daemon) -> Vec<Value> {
    daemon.weir(["providers", NAME, "--json"]).expect(0).json()
}

/// Waits until the name has one entry, with `FIRST_GUID`, one process, and these sessions.
fn wait_for_only_entry(daemon: &Daemon, running_sessions: &[&str]) {
    eventually("the provider is listed", || {
        let entries = provider_entries(daemon);
        let [entry] = &entries[..] else { return None };
        let names: Vec<_> = entry["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|session| session["name"].as_str().unwrap())
            .collect();
        let is_registered =
            entry["guid"] == FIRST_GUID && entry["pids"].as_array().is_some_and(|pids| pids.len() == 1);
        (is_registered && names == running_sessions).then_some(())
    });
}

fn provider_guids_in(file: &Path) -> BTreeSet<String> {
    let events = weir(["dump", "--format", "jsonl", arg(file)]).expect(0).json();
    let events_of_provider = events
        .iter()
        .filter(|event| event["provider"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(NAME)));
    events_of_provider
        .map(|event| event["guid"].as_str().unwrap_or_else(|| panic!("no GUID: {event}")).to_owned())
        .collect()
}

#[test]
fn record_by_name_finds_a_program_that_chose_its_guid() {
    let daemon = Daemon::start();
    let (program, file) = (build_own_guid_program(&daemon), daemon.path("a.etl"));
    for name in [NAME, "TRACEWEIR.test.ownguid"] {
        let run = daemon.weir(["record", "-p", name, "-o", arg(&file), "--", arg(&program), "5"]).expect(0);
        assert!(!run.stderr.contains("no process with provider"), "{}", run.stderr);
        let events = weir(["dump", "--format", "jsonl", "--provider", NAME, arg(&file)]).expect(0).json();
        assert_eq!(events.len(), 5, "{}", run.stderr);
        assert_eq!(provider_guids_in(&file), BTreeSet::from([FIRST_GUID.to_owned()]));
    }
}

#[test]
fn running_program_is_enabled_listed_once_and_disabled_by_name() {
    let daemon = Daemon::start();
    let (program, file) = (build_own_guid_program(&daemon), daemon.path("a.etl"));
    let _running = start_program(&daemon, &program, &[UNTIL_KILLED]);
    wait_for_only_entry(&daemon, &[]);
    let start = daemon.weir(["start", "Named", "-o", arg(&file), "-p", &format!("{NAME}::4")]).expect(0);
    assert!(!start.stderr.contains("no process with provider"), "{}", start.stderr);
    wait_for_only_entry(&daemon, &["Named"]);
    let session = &daemon.weir(["query", "Named", "--json"]).expect(0).json()[0];
    let [provider] = &session["providers"].as_array().unwrap()[..] else {
        panic!("not one provider: {session}")
    };
    assert_eq!(
        (&provider["guid"], &provider["level"], &provider["traced"]),
        (&FIRST_GUID.into(), &4.into(), &1.into())
    );

    daemon.weir(["disable", "Named", "traceweir.test.ownguid"]).expect(0);
    wait_for_only_entry(&daemon, &[]);
    let enable = daemon.weir(["enable", "Named", NAME]).expect(0);
    assert!(!enable.stderr.contains("no process with provider"), "{}", enable.stderr);
    wait_for_only_entry(&daemon, &["Named"]);
    eventually("the session has an event", || {
        let session = &daemon.weir(["query", "Named", "--json"]).expect(0).json()[0];
        (session["events"].as_u64().unwrap() > 0).then_some(())
    });
    daemon.weir(["stop", "Named"]).expect(0);
    assert_eq!(provider_guids_in(&file), BTreeSet::from([FIRST_GUID.to_owned()]));
}

#[test]
fn two_guids_under_one_name_are_both_recorded_with_a_note() {
    let daemon = Daemon::start();
    let (program, file) = (build_own_guid_program(&daemon), daemon.path("a.etl"));
    let guids = BTreeSet::from([FIRST_GUID.to_owned(), SECOND_GUID.to_owned()]);
    daemon.weir(["record", "-p", NAME, "-o", arg(&file), "--", arg(&program), "5", "two"]).expect(0);
    assert_eq!(provider_guids_in(&file), guids);

    let _running = start_program(&daemon, &program, &[UNTIL_KILLED, "two"]);
    eventually("both providers are listed", || (provider_entries(&daemon).len() == 2).then_some(()));
    let start = daemon.weir(["start", "Both", "-o", arg(&file), "-p", NAME]).expect(0);
    for words in ["note: 2 providers are registered as", FIRST_GUID, SECOND_GUID] {
        assert!(start.stderr.contains(words), "no {words} in {}", start.stderr);
    }
    assert_eq!(provider_entries(&daemon).len(), 2);
    daemon.weir(["stop", "Both"]).expect(0);
}

#[test]
fn private_session_by_name_records_a_program_that_chose_its_guid() {
    let daemon = Daemon::start();
    let (program, file) = (build_own_guid_program(&daemon), daemon.path("own.etl"));
    let _running = start_program(&daemon, &program, &[UNTIL_KILLED]);
    wait_for_only_entry(&daemon, &[]);
    let start =
        daemon.weir(["start", "Own", "--mode", "private-logger", "-o", arg(&file), "-p", NAME]).expect(0);
    assert!(!start.stderr.contains("no process takes part"), "{}", start.stderr);
    eventually("the session has an event", || {
        let session = &daemon.weir(["query", "Own", "--json"]).expect(0).json()[0];
        (session["events"].as_u64().unwrap() > 0).then_some(())
    });
    daemon.weir(["stop", "Own"]).expect(0);
    assert_eq!(provider_guids_in(&file), BTreeSet::from([FIRST_GUID.to_owned()]));
}
