//! Tests of kernel events that the command line records: their selection, notes and errors, and
//! files that also have events of programs.

use std::process::Command;

use super::{SHOP, arg};
use crate::retry::retry_alternately_with_busy_processors;
use crate::util::{Daemon, Run, skip, weir};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// Returns whether a run succeeded. If the machine refused kernel events, reports that the test is
/// skipped. Fails if the error does not name the status and what was refused.
fn has_kernel_events(run: &Run) -> bool {
    if run.code == 0 {
        return true;
    }
    // ERROR_PRIVILEGE_NOT_HELD and ERROR_NOT_SUPPORTED.
    let is_refused = ["1314", "(50 "].iter().any(|status| run.stderr.contains(status));
    let has_subject =
        ["kernel events", "the sampling interval"].iter().any(|subject| run.stderr.contains(subject));
    assert!(is_refused && has_subject, "{}", run.stderr);
    skip("kernel events", "this machine does not allow kernel events");
    false
}

#[test]
fn wrong_arguments_are_answered_with_valid_ones() {
    for (args, word) in [
        (&["record", "--kernel", "swtich", "-o", "/nowhere/x.etl"][..], "cswitch"),
        (&["record", "--kernel", "cpu", "--stacks", "Start", "-o", "/nowhere/x.etl"], "Process/Start"),
        (&["record", "--kernel", "cpu", "--interval", "fast", "-o", "/nowhere/x.etl"], "125us"),
        (&["record", "--kernel", "cpu", "--interval", "1", "-o", "/nowhere/x.etl"], "1 has no unit"),
        (&["record", "-p", SHOP, "--stacks", "all", "-o", "/nowhere/x.etl"], "--kernel"),
        (&["start", "K", "-p", "SystemProcess:NOTHING"], "THREAD"),
        (
            &["record", "-p", "Microsoft-Windows-Kernel-Process", "--pid", "1", "-o", "/nowhere/x.etl"],
            "weir record --kernel cpu --pid PID",
        ),
    ] {
        let run = weir(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn query_names_the_kernel_events_of_a_session() {
    let daemon = Daemon::start();
    daemon.weir(["start", "K", "--kernel", "none", "--stacks", "CSwitch,DiskIo/Read"]).expect(0);
    let page = daemon.weir(["query", "K"]).expect(0).text();
    for line in ["Kernel Events:          none\n", "  Stacks Of:            Thread/CSwitch, DiskIo/Read\n"] {
        assert!(page.contains(line), "{page}");
    }
    let run = daemon.weir(["update", "K", "--kernel", "no_sysconfig", "--stacks", "none"]).expect(0);
    assert!(!run.stderr.contains("warning"), "{}", run.stderr);
    assert!(
        run.stderr.contains("kernel events NO_SYSCONFIG, stacks of none, sampled every 1 ms"),
        "{}",
        run.stderr
    );
    let run = daemon.weir(["update", "K", "--stacks", "default"]).expect(0);
    assert!(run.stderr.contains("stacks of none"), "stacks of other events are named: {}", run.stderr);
    let kernel = daemon.weir(["query", "K", "--json"]).expect(0).json()[0]["kernel"].clone();
    assert_eq!(kernel["groups"][0], "NO_SYSCONFIG");
    assert_eq!(kernel["stacks"].as_array().map(Vec::len), Some(0));
    daemon.weir(["stop", "K"]).expect(0);
}

#[test]
fn kernel_and_program_events_share_one_file() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let file = daemon.path("a.etl");
        let record = ["record", "--kernel", "cswitch,dispatcher", "--stacks", "CSwitch", "-p", SHOP, "-o"];
        let shop = [arg(&file), "--", WEIR, "demo-shop", "--orders", "3", "--pause", "5"];
        let run = daemon.weir(record.iter().chain(&shop).copied());
        if !has_kernel_events(&run) {
            return;
        }
        weir(["check", arg(&file)]).expect(0);
        let stats = weir(["stats", arg(&file)]).expect(0).text();
        // An unprivileged daemon delivers context switches without stacks, and no wakeups.
        let is_unprivileged = run.stderr.contains("cannot record dispatcher");
        for (name, is_expected) in [
            (SHOP, true),
            ("Thread/CSwitch", true),
            ("Thread/ReadyThread", !is_unprivileged),
            ("StackWalk/Stack", !is_unprivileged),
        ] {
            assert_eq!(stats.contains(name), is_expected, "{name}: {stats}");
        }
    });
}

#[test]
fn kernel_events_can_be_changed_while_a_session_runs() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let file = daemon.path("a.etl");
        daemon.weir(["start", "K", "--kernel", "none", "-o", arg(&file)]).expect(0);
        let update = daemon.weir(["update", "K", "--kernel", "cswitch", "--stacks", "CSwitch"]);
        if !has_kernel_events(&update) {
            return;
        }
        let run = daemon.weir(["update", "K", "--stacks", "default"]).expect(0);
        assert!(run.stderr.contains("kernel events CSWITCH, stacks of Thread/CSwitch"), "{}", run.stderr);
        // An unprivileged daemon delivers context switches and no wakeups.
        if !has_kernel_events(&daemon.weir(["enable", "K", "SystemScheduler:DISPATCHER"])) {
            return;
        }
        let page = daemon.weir(["query", "K"]).expect(0).text();
        assert!(page.contains("Kernel Events:          CSWITCH, DISPATCHER\n"), "{page}");
        assert!(
            page.contains("SystemScheduler") && page.contains("Kind:                   system\n"),
            "{page}"
        );
        daemon.weir(["disable", "K", "SystemScheduler"]).expect(0);
        let page = daemon.weir(["query", "K"]).expect(0).text();
        assert!(page.contains("Kernel Events:          CSWITCH\n"), "{page}");
        daemon.weir(["stop", "K"]).expect(0);
        let stats = weir(["stats", arg(&file)]).expect(0).text();
        assert!(stats.contains("Thread/CSwitch") && stats.contains("StackWalk/Stack"), "{stats}");
    });
}

/// Commands of a shell that use a processor for long enough to be sampled, then wait.
const SPIN_AND_SLEEP: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.1";

#[test]
fn stacks_and_interval_apply_from_the_first_sample() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let file = daemon.path("a.etl");
        let options =
            ["--kernel", "profile", "--stacks", "SampleProf", "--interval", "2ms", "-o", arg(&file)];
        let busy = ["--", "sh", "-c", SPIN_AND_SLEEP];
        let run = daemon.weir(["record"].iter().chain(&options).chain(&busy));
        if !has_kernel_events(&run) {
            return;
        }
        let summary = weir(["report", "cpu", "--json", arg(&file)]).expect(0).json().remove(0);
        assert_eq!(summary["without_stack"], 0, "{summary}");
        assert_eq!(summary["interval_ns"], 2_000_000, "{summary}");
        assert!(summary["samples"].as_u64().unwrap() + summary["idle"].as_u64().unwrap() > 0, "{summary}");
        let stats = weir(["stats", "--top", "0", arg(&file)]).expect(0).text();
        assert!(!stats.contains("SetInterval"), "the recording changed the interval: {stats}");
        let interval = daemon.weir(["ask", "5"]).expect(0).text();
        assert!(
            interval.contains("Timer: every 10,000 of 100 ns"),
            "the interval of the daemon changed: {interval}"
        );
    });
}

/// Set for the child process of `daemon_that_may_mount_needs_no_mounted_tracefs`, which runs in its
/// own mount namespace.
const WITHOUT_TRACEFS: &str = "TRACEWEIR_TEST_WITHOUT_TRACEFS";
/// Unmounts tracefs everywhere and checks that it can be mounted, at the folder in `$0`; if not,
/// exits with 99. Then runs a command without a mounted tracefs.
const UNMOUNT_TRACEFS: &str = r#"
    for at in /sys/kernel/tracing /sys/kernel/debug; do
        while umount -l $at 2>/dev/null; do :; done
    done
    mount -t tracefs tracefs "$0" && umount "$0" || exit 99
    exec "$@""#;

#[test]
fn daemon_that_may_mount_needs_no_mounted_tracefs() {
    if std::env::var_os(WITHOUT_TRACEFS).is_some() {
        return record_without_tracefs();
    }
    // The child runs in its own mount namespace, so that no other process loses the mount.
    let can_unshare = Command::new("unshare").args(["--mount", "true"]).output();
    if !can_unshare.is_ok_and(|run| run.status.success()) {
        skip("root", "a mount namespace requires root and unshare");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", UNMOUNT_TRACEFS]);
    command.arg(folder.path()).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "live::kernel::daemon_that_may_mount_needs_no_mounted_tracefs", "--nocapture"]);
    let run = command.env(WITHOUT_TRACEFS, "1").output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    match run.status.code() {
        Some(99) => skip("kernel events", "tracefs cannot be mounted here"),
        code => assert!(code == Some(0) && stdout.contains("1 passed"), "{code:?}: {stdout}\n{stderr}"),
    }
}

fn record_without_tracefs() {
    let is_tracefs = |line: &str| line.contains(" - tracefs ");
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts().lines().any(is_tracefs), "{}", mounts());
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    // Wakeups come from tracepoints, which need a readable tracefs.
    let record = ["record", "--kernel", "dispatcher", "-o", arg(&file), "--", "sleep", "0.1"];
    let run = daemon.weir(record);
    assert!(!run.stderr.contains("tracefs"), "{}", run.stderr);
    assert!(!mounts().lines().any(is_tracefs), "{}", mounts());
    if has_kernel_events(&run) {
        let stats = weir(["stats", arg(&file)]).expect(0).text();
        assert!(stats.contains("Thread/ReadyThread"), "{stats}");
    }
}

#[test]
fn setting_the_current_sampling_interval_needs_no_privilege() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let options = ["--kernel", "profile", "--interval", "1ms", "-o", arg(&file), "--", "true"];
    let run = daemon.weir(["record"].iter().chain(&options));
    assert!(!run.stderr.contains("the sampling interval"), "{}", run.stderr);
    if has_kernel_events(&run) {
        daemon.weir(["start", "K", "--kernel", "none"]).expect(0);
        daemon.weir(["update", "K", "--interval", "1ms"]).expect(0);
    }
}

#[test]
fn pid_applies_to_providers_and_kernel_events() {
    let daemon = Daemon::start();
    let (file, own_pid) = (daemon.path("a.etl"), std::process::id().to_string());
    let record = ["record", "--kernel", "none", "--pid", &own_pid, "--duration", "50ms", "-o", arg(&file)];
    let run = daemon.weir(record).expect(0);
    assert!(!run.stderr.contains("--pid") && !run.stderr.contains("registered"), "{}", run.stderr);
    let run = daemon.weir(record.iter().chain(&["-p", SHOP])).expect(0);
    assert!(run.stderr.contains(&format!("has not registered {SHOP} so far")), "{}", run.stderr);
    let options = ["-p", "SystemProcess", "--pid", &own_pid, "--duration", "50ms", "-o", arg(&file)];
    let run = daemon.weir(["record"].iter().chain(&options));
    assert!(run.code == 0 || !has_kernel_events(&run), "{}", run.stderr);
}

#[test]
fn reported_event_count_is_that_of_the_file() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let file = daemon.path("a.etl");
        let run = daemon.weir(["record", "--kernel", "process", "-o", arg(&file), "--", "true"]);
        if !has_kernel_events(&run) {
            return;
        }
        assert!(
            !run.stderr.contains("collected"),
            "the summary counts events outside of the file: {}",
            run.stderr
        );
        assert!(run.stderr.contains("a.etl: ") && run.stderr.contains(" events in "), "{}", run.stderr);
    });
}

#[test]
fn unavailable_or_earlier_sampling_interval_is_reported() {
    let daemon = Daemon::start();
    let run = daemon.weir(["start", "K", "--kernel", "none", "--interval", "100us"]);
    assert!(run.stderr.contains(" ms, not every 0.1 ms: this machine supports "), "{}", run.stderr);
    daemon.weir(["stop", "K"]).expect(0);
    let run = daemon.weir(["start", "K", "--kernel", "none"]).expect(0);
    assert!(!run.stderr.contains("sampled"), "a session without samples reports an interval: {}", run.stderr);
    daemon.weir(["stop", "K"]).expect(0);
    let run = daemon.weir(["start", "K", "--kernel", "profile"]);
    if has_kernel_events(&run) {
        assert!(run.stderr.contains("an earlier setting that applies to all sessions"), "{}", run.stderr);
        daemon.weir(["stop", "K"]).expect(0);
    }
}

#[test]
fn event_groups_that_linux_lacks_are_reported() {
    let daemon = Daemon::start();
    let run = daemon.weir(["start", "K", "--kernel", "EVENT_TRACE_FLAG_REGISTRY+cswitch"]);
    if has_kernel_events(&run) {
        assert!(run.stderr.contains("warning: REGISTRY: Linux has no registry\n"), "{}", run.stderr);
        assert!(
            !run.stderr.contains("CSWITCH") && !run.stderr.contains("weir cannot record"),
            "{}",
            run.stderr
        );
        daemon.weir(["stop", "K"]).expect(0);
    }
}

#[test]
fn without_privilege_the_permitted_events_are_recorded() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let file = daemon.path("a.etl");
        let run =
            daemon.weir(["record", "--kernel", "sched", "-o", arg(&file), "--", "sh", "-c", SPIN_AND_SLEEP]);
        if !has_kernel_events(&run) {
            return;
        }
        let is_unprivileged = run.stderr.contains("cannot record dispatcher (weir doctor");
        let expected = "recording --kernel process,thread,image_load,cswitch,profile";
        assert_eq!(run.stderr.contains(expected), is_unprivileged, "{}", run.stderr);
        let stats = weir(["stats", "--top", "0", arg(&file)]).expect(0).text();
        assert!(stats.contains("Thread/CSwitch") && stats.contains("StackWalk/Stack"), "{stats}");
        assert!(!is_unprivileged || !stats.contains("Thread/ReadyThread"), "{stats}");
    });
}

#[test]
fn file_names_are_best_effort_without_probes() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    let run = daemon.weir(["record", "--kernel", "disk_file_io", "-o", arg(&file), "--", "true"]);
    if has_kernel_events(&run) {
        let tracefs = std::path::Path::new("/sys/kernel/tracing");
        // Without a mounted tracefs, the daemon uses a mount of its own, which may have probes.
        let may_have_probes = !tracefs.join("events").is_dir() || tracefs.join("kprobe_events").exists();
        assert_eq!(run.stderr.contains("file names are best effort"), !may_have_probes, "{}", run.stderr);
    }
}

/// The scope of `--pid` includes the children that the shell starts while weir watches.
#[test]
fn watch_prints_kernel_events_of_a_process_tree_with_process_names() {
    let daemon = Daemon::start();
    let mut shell = Command::new("sh").args(["-c", "while :; do sleep 0.05; done"]).spawn().unwrap();
    let pid = shell.id().to_string();
    let watch = ["watch", "--kernel", "process", "--pid", &pid, "--event", "Process/Start"];
    let run = daemon.weir(watch.iter().chain(&["--head", "4", "--duration", "60s"]).copied());
    shell.kill().unwrap();
    shell.wait().unwrap();
    if !has_kernel_events(&run) {
        return;
    }
    let text = run.text();
    assert_eq!(text.lines().count(), 4, "{text}");
    for line in text.lines() {
        assert!(line.contains(&format!("ParentId={pid} ")), "{line} is not about a child of {pid}");
    }
    assert!(text.contains(" sleep  Windows Kernel/Process/Start "), "{text}");
}

#[test]
fn text_of_watch_leaves_out_the_rundown() {
    let daemon = Daemon::start();
    let mut shell = Command::new("sh").args(["-c", "while :; do sleep 0.05; done"]).spawn().unwrap();
    let pid = shell.id().to_string();
    let watch = ["watch", "--kernel", "process", "--pid", &pid, "--duration", "60s"];
    let json = ["--format", "jsonl", "--event", "Process/DCStart", "--head", "1"];
    let run = daemon.weir(watch.iter().chain(&json).copied());
    let text = daemon.weir(watch.iter().chain(&["--head", "5"]).copied());
    shell.kill().unwrap();
    shell.wait().unwrap();
    if !has_kernel_events(&run) {
        return;
    }
    assert_eq!(run.json().len(), 1, "{}", run.stderr);
    let text = text.expect(0).text();
    assert!(text.contains("/Start ") && !text.contains("/DCStart "), "{text}");
}
