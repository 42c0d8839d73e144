//! Tests of programs in a control group whose path contains a container id.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{SHOP, arg};
use crate::control_group::{self, CONTAINER, ControlGroup};
use crate::util::{Daemon, Process, eventually, skip, weir_command};

/// Starts the sample program in the group. The program serves orders until it is killed.
fn start_shop_in_group(daemon: &Daemon, group: &ControlGroup) -> Process {
    let shop = weir_command(["demo-shop", "--pause", "1", "--orders", "1000000"]);
    let mut command = Command::new("sh");
    // The shell enters the group and then becomes the program, so the program is in the group
    // before it registers.
    command.args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""]).arg(group.folder());
    command.arg(shop.get_program()).args(shop.get_args()).env("TRACEWEIR_RUNTIME_DIR", daemon.folder());
    Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}

#[test]
fn untraced_containers_are_reported_with_the_option_that_includes_them() {
    let Some(group) = ControlGroup::make() else {
        skip(control_group::SKIP_ARGUMENTS.0, control_group::SKIP_ARGUMENTS.1);
        return;
    };
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let shop = start_shop_in_group(&daemon, &group);
    let pid = shop.id().to_string();
    eventually("the provider is listed", || {
        let providers = daemon.weir(["providers", SHOP, "--json"]).expect(0).json();
        let has_process = |provider: &Value| provider["pids"].as_array().is_some_and(|pids| !pids.is_empty());
        providers.iter().any(has_process).then_some(())
    });

    let find_container_check = || -> Value {
        let checks = daemon.weir(["doctor", "--pid", &pid, "--json"]).json();
        let is_container_check = |check: &&Value| check["check"] == "process_container";
        checks.iter().find(is_container_check).unwrap_or_else(|| panic!("no such check: {checks:?}")).clone()
    };
    let check = find_container_check();
    assert_eq!(check["state"], "missing", "{check}");
    assert!(check.to_string().contains(CONTAINER) && check.to_string().contains("@silos"), "{check}");

    // The empty arguments only give both commands the same length.
    for arguments in [["start", "Left", "-o", arg(&file), "-p", SHOP], ["enable", "Left", SHOP, "", "", ""]] {
        let run = daemon.weir(arguments.iter().filter(|argument| !argument.is_empty())).expect(0);
        assert!(run.stderr.contains("1 process with provider"), "{}", run.stderr);
        assert!(run.stderr.contains(&format!("{SHOP}@silos")), "{}", run.stderr);
    }
    daemon.weir(["stop", "Left"]).expect(0);
    let record = ["record", "-o", arg(&file), "--duration", "1ms", "-p"];
    let run = daemon.weir(record.iter().chain(&[SHOP])).expect(0);
    assert_eq!(run.stderr.matches("not traced").count(), 1, "{}", run.stderr);

    let with_silos = format!("{SHOP}@silos");
    let run = daemon.weir(["start", "All", "-o", arg(&file), "-p", &with_silos]).expect(0);
    assert!(!run.stderr.contains("not traced"), "{}", run.stderr);
    eventually("the session has an event", || {
        let session = &daemon.weir(["query", "All", "--json"]).expect(0).json()[0];
        (session["events"].as_u64().unwrap() > 0).then_some(())
    });
    daemon.weir(["stop", "All"]).expect(0);
}

#[test]
fn record_reports_at_its_end_a_command_that_was_not_traced() {
    let Some(group) = ControlGroup::make() else {
        skip(control_group::SKIP_ARGUMENTS.0, control_group::SKIP_ARGUMENTS.1);
        return;
    };
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let shop = weir_command(["demo-shop", "--pause", "0", "--orders", "1"]);
    let enter_group = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
    let mut command =
        daemon.command(["record", "-a", "-p", SHOP, "-o", arg(&file), "--", "sh", "-c", enter_group]);
    command.arg(group.folder()).arg(shop.get_program()).args(shop.get_args());
    let run = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).finish().expect(0);
    assert!(
        run.stderr.contains("1 process with provider") && run.stderr.contains("@silos"),
        "{}",
        run.stderr
    );
}
