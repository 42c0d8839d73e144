//! Tests that root records programs of other users on a machine without a system daemon.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::util::{root, skip};

/// Returns the output of a step of root.sh. Fails unless the step ended with this status.
#[track_caller]
fn step_output(work: &Path, name: &str, status: &str) -> String {
    let text = std::fs::read_to_string(work.join("out").join(name)).unwrap();
    let code = std::fs::read_to_string(work.join("out").join(format!("{name}.code"))).unwrap();
    assert_eq!(code.trim(), status, "{name}: {text}");
    text
}

fn parse_json_lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn root_records_running_and_later_programs_of_other_users() {
    if !rustix::process::geteuid().is_root() {
        skip("root", "switching to other users requires root");
        return;
    }
    let can_unshare = Command::new("unshare").args(["-m", "-n", "true"]).output();
    if !can_unshare.is_ok_and(|run| run.status.success()) {
        skip("namespaces", "private mount and network namespaces are not allowed here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path();
    std::fs::set_permissions(work, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Every user can run this copy. Another process makes it: if this process did, a child of
    // another test might inherit the descriptor that is open for writing, and the copy could not be
    // executed.
    let weir = work.join("weir");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_weir")).arg(&weir).status();
    assert!(copied.unwrap().success(), "cp failed");
    let mut command = Command::new("unshare");
    command.args(["-m", "-n", "sh"]).arg(root().join("tests/live/root.sh")).arg(&weir).arg(work);
    let script_run = command.env_remove("TRACEWEIR_RUNTIME_DIR").output().unwrap();
    assert!(script_run.status.success(), "{}", String::from_utf8_lossy(&script_run.stderr));
    let pid = |name: &str| -> u64 {
        let text = std::fs::read_to_string(work.join("out").join(format!("{name}.pid"))).unwrap();
        text.trim().parse().unwrap()
    };

    let output = step_output(work, "record", "0");
    let writers: BTreeSet<u64> = parse_json_lines(&step_output(work, "dump", "0"))
        .iter()
        .map(|event| event["pid"].as_u64().unwrap())
        .collect();
    assert_eq!(
        writers,
        BTreeSet::from([pid("running"), pid("other")]),
        "the events are not those of the two users' programs: {output}"
    );

    let output = step_output(work, "start", "0");
    assert!(!output.contains("no process with provider"), "{output}");
    let entries = parse_json_lines(&step_output(work, "providers", "0"));
    let [entry] = &entries[..] else { panic!("not one provider: {entries:?}") };
    let pids: BTreeSet<u64> =
        entry["pids"].as_array().unwrap().iter().map(|pid| pid.as_u64().unwrap()).collect();
    assert_eq!(pids, BTreeSet::from([pid("running"), pid("other"), pid("later")]));
    let output = step_output(work, "pid", "0");
    assert!(!output.contains("another user") && !output.contains("has not registered"), "{output}");
    step_output(work, "stop", "0");
    let daemon = std::fs::read_to_string(work.join("out/daemon")).unwrap();
    assert!(daemon.contains("daemon --on-demand --system"), "{daemon}");

    // The system's folder cannot be made, so root gets a daemon of its own.
    step_output(work, "fallback", "0");
    step_output(work, "fallback-stop", "0");

    // The users gained no rights, and nothing in their folders was changed: the socket of the
    // killed program and the target of the link are still there.
    for name in ["list-as-user", "stop-as-user"] {
        let code = std::fs::read_to_string(work.join("out").join(format!("{name}.code"))).unwrap();
        assert_ne!(code.trim(), "0", "{name} succeeded");
    }
    let folder_listing = |name: &str| std::fs::read_to_string(work.join("out").join(name)).unwrap();
    let stale_prefix = format!("{}-", pid("killed"));
    assert_eq!(folder_listing("before"), folder_listing("after"), "the folder of a user was changed");
    assert!(
        folder_listing("after").lines().any(|line| line.starts_with(&stale_prefix)),
        "{}",
        folder_listing("after")
    );
    assert_eq!(std::fs::read_to_string(work.join("precious")).unwrap(), "precious\n");
}
