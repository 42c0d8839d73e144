//! Compares the output of `weir doctor` with the machine that it runs on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{SHOP, check_documented};
use crate::util::{Daemon, eventually, skip, weir_command};

/// The user id of `nobody`, an unprivileged user.
const ORDINARY_USER: u32 = 65_534;

fn find_object<'a>(objects: &'a [Value], key: &str, name: &str) -> &'a Value {
    objects
        .iter()
        .find(|object| object[key] == name)
        .unwrap_or_else(|| panic!("the output has no {key} {name}"))
}

#[test]
fn machine_is_described_as_text_and_as_json() {
    let absent = Daemon::not_started();
    let page = absent.weir(["doctor"]).expect(0).text();
    assert!(page.starts_with("  events   yes"), "{page}");
    assert!(page.contains("it is started when it is needed"), "{page}");
    assert!(!absent.is_answering(), "weir doctor started a daemon");
    let objects = absent.weir(["doctor", "--json", "--need", "events"]).expect(0).json();
    objects.iter().for_each(|object| check_documented(object, "weir doctor --json"));
    assert_eq!(find_object(&objects, "need", "events")["asked"], true);
    assert_eq!(find_object(&objects, "check", "named_daemon")["state"], "ok");
    // The exit status says whether the requested need is met.
    for need in ["samples", "kernel", "stacks", "symbols"] {
        let is_met = find_object(&objects, "need", need)["met"] == true;
        absent.weir(["doctor", "--need", need]).expect(if is_met { 0 } else { 77 });
    }
    absent.weir(["doctor", "--need", "magic"]).expect(2);
}

#[test]
fn running_daemon_is_shown_with_its_process_and_program() {
    let daemon = Daemon::start();
    let objects = daemon.weir(["doctor", "--json"]).expect(0).json();
    let found = find_object(&objects, "check", "named_daemon")["found"].as_str().unwrap();
    assert!(found.contains("this very weir") && found.contains("runs in"), "{found}");
}

#[test]
fn folder_writable_by_others_prevents_events() {
    let daemon = Daemon::not_started();
    fs::set_permissions(daemon.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    let run = daemon.weir(["doctor"]).expect(77);
    assert!(run.text().contains("open to others"), "{}", run.text());
    fs::set_permissions(daemon.folder(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn process_is_described_by_its_providers_and_socket() {
    let daemon = Daemon::start();
    let shop = daemon.spawn_weir(["demo-shop", "--pause", "0", "--orders", "2", "--linger", "60000"]);
    let pid = shop.id().to_string();
    let objects = eventually("the daemon knows the shop", || {
        let objects = daemon.weir(["doctor", "--json", "--pid", &pid]).expect(0).json();
        (find_object(&objects, "check", "process_providers")["state"] == "ok").then_some(objects)
    });
    let found = find_object(&objects, "check", "process_providers")["found"].as_str().unwrap();
    assert!(found.contains(SHOP), "{found}");
    for check in ["process_socket", "process_user", "process_folder"] {
        assert_eq!(find_object(&objects, "check", check)["state"], "ok", "{check}");
    }
    // With another runtime folder, the report names the folder that the process uses.
    let other_daemon = Daemon::start();
    let objects = other_daemon.weir(["doctor", "--json", "--pid", &pid]).expect(0).json();
    assert_eq!(find_object(&objects, "check", "process_providers")["state"], "missing");
    let folder = find_object(&objects, "check", "process_folder");
    assert!(folder["now"].as_str().unwrap().contains(daemon.folder().to_str().unwrap()), "{folder}");
    // Linux has no process ids above 4194304.
    let missing = daemon.weir(["doctor", "--pid", "4194305"]).expect(1);
    assert!(missing.stderr.contains("there is no process 4194305"), "{}", missing.stderr);
    assert_eq!(missing.text(), "", "a report was printed for a process that does not exist");
}

/// Returns whether `perf record` succeeds with these arguments for this user.
fn perf_record_succeeds(uid: Option<u32>, folder: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new("perf");
    command.arg("record").args(["-o", "/dev/null"]).args(arguments).args(["--", "true"]);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid).env_clear().env("PATH", "/usr/bin:/bin:/usr/local/bin");
    }
    command.status().expect("perf cannot be started").success()
}

#[test]
fn needs_are_met_exactly_where_perf_succeeds() {
    if !rustix::process::geteuid().is_root() {
        return skip("root", "switching to another user requires root");
    }
    let perf_version =
        Command::new("perf").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let folder = tempfile::tempdir().unwrap();
    if !perf_version.is_ok_and(|status| status.success())
        || !perf_record_succeeds(None, folder.path(), &["-e", "cpu-clock:u"])
    {
        return skip("perf", "perf is not installed, or root may not use it here");
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("weir");
    // Another process makes the copy. If this process did, a child of another test might inherit
    // the descriptor that is open for writing, and the copy could not be executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_weir")).arg(&program).status();
    assert!(copied.expect("cp cannot be started").success(), "cp failed");
    for uid in [None, Some(ORDINARY_USER)] {
        let mut command = match uid {
            None => weir_command(["doctor", "--json", "--user"]),
            Some(uid) => {
                let mut command = Command::new(&program);
                command.args(["doctor", "--json", "--user"]).uid(uid).gid(uid);
                command
            }
        };
        let output =
            command.env_clear().env("TMPDIR", folder.path()).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if find_object(&objects, "check", "pid_namespace")["state"] != "ok" {
            return skip("perf", "in a PID namespace, weir doctor reports fewer capabilities than perf has");
        }
        for (need, perf_options) in [
            ("samples", &["-e", "cpu-clock:u"][..]),
            ("kernel", &["-a", "-e", "sched:sched_switch"]),
            ("stacks", &["-g", "-e", "cpu-clock:k"]),
        ] {
            // A daemon mounts tracefs for itself; perf does not.
            if need == "kernel" && uid.is_none() && !Path::new("/sys/kernel/tracing/events").is_dir() {
                continue;
            }
            let is_met = find_object(&objects, "need", need)["met"] == true;
            assert_eq!(is_met, perf_record_succeeds(uid, folder.path(), perf_options), "{need} for {uid:?}");
        }
    }
}
