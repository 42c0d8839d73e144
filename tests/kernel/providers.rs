//! Tests of the kernel's manifest providers, which the command line records by name.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use traceweir_format::etl::Trace;
use traceweir_format::kernel::providers::KERNEL_PROCESS;
use traceweir_format::wire::u32_at;

use crate::own::User;
use crate::recordings::lock_measurements;
use crate::retry::retry_alternately_with_busy_processors;
use crate::util::{Daemon, skip};

const PROCESS_PROVIDER: &str = "Microsoft-Windows-Kernel-Process";
/// Prints the ids of the shell and of a child. The last command (`:`) keeps the shell from becoming
/// the child.
const SCRIPT: &str = "echo $$; sh -c 'echo $$'; :";

/// Returns the ids of the events of the process provider, and the processes that stopped.
fn read_trace(path: &Path) -> (BTreeSet<u16>, BTreeSet<u32>) {
    let trace = Trace::open(File::open(path).expect("no trace")).expect("not a trace");
    let (mut ids, mut stopped) = (BTreeSet::new(), BTreeSet::new());
    let mut records = trace.events();
    while let Some(record) = records.next().expect("a damaged trace") {
        if record.provider() == KERNEL_PROCESS {
            ids.insert(record.descriptor().id);
            // ProcessStop, whose payload begins with the process id.
            if record.descriptor().id == 2 {
                stopped.insert(u32_at(record.payload(), 0));
            }
        }
    }
    (ids, stopped)
}

fn parse_pids(text: &str) -> Vec<u32> {
    text.lines().map(|line| line.trim().parse().expect("not a process id")).collect()
}

#[test]
fn record_by_name_has_the_events_of_the_command() {
    retry_alternately_with_busy_processors(5, || {
        let _lock = lock_measurements();
        let daemon = Daemon::start();
        let file = daemon.path("a.etl");
        let options = ["record".as_ref(), "-o".as_ref(), file.as_os_str(), "-p".as_ref()];
        // Keywords 0x10 and 0x40: the start and stop of processes, the load and unload of images.
        let provider = format!("{PROCESS_PROVIDER}:0x50:4");
        let command = [provider.as_ref(), "--".as_ref(), "sh".as_ref(), "-c".as_ref(), SCRIPT.as_ref()];
        let run = daemon.weir(options.into_iter().chain(command));
        if run.stderr.contains("kernel events") {
            return skip("kernel events", &run.stderr);
        }
        assert_eq!(run.code, 0, "{}", run.stderr);
        let (ids, stopped) = read_trace(&file);
        let pids = parse_pids(&run.text());
        // ProcessStart, ProcessStop, ImageLoad, ImageUnload.
        assert_eq!(ids, BTreeSet::from([1, 2, 5, 6]));
        assert!(pids.len() == 2 && pids.iter().all(|pid| stopped.contains(pid)), "{pids:?}: {stopped:?}");
        // No process registers this provider, so `weir` does not warn that none has registered it.
        assert!(!run.stderr.contains("has registered"), "{}", run.stderr);
        let listed = daemon.weir(["start", "s", "--real-time", "-p", PROCESS_PROVIDER]);
        assert_eq!(listed.code, 0, "{}", listed.stderr);
        let providers = daemon.weir(["providers", "--json"]).json();
        let is_listed = |provider: &&serde_json::Value| provider["name"] == PROCESS_PROVIDER;
        let provider = providers.iter().find(is_listed).expect("the provider is not listed");
        assert_eq!(provider["kind"], "kernel");
        assert_eq!(provider["guid"], KERNEL_PROCESS.to_string());
        daemon.weir(["stop", "s"]).expect(0);
    });
}

#[test]
fn ordinary_user_gets_events_of_own_processes() {
    retry_alternately_with_busy_processors(5, || {
        let _lock = lock_measurements();
        let user = User::new();
        let _daemon = user.start_daemon();
        let disk = user.weir(&["record", "-o", "d.etl", "-p", "Microsoft-Windows-Kernel-Disk", "--", "true"]);
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            assert_ne!(disk.code, 0, "an ordinary user records disk requests of all");
            assert!(disk.stderr.contains("CAP_PERFMON"), "{}", disk.stderr);
        }
        let provider = format!("{PROCESS_PROVIDER}:0x10");
        let script = format!("{SCRIPT}; touch started; while [ ! -e end ]; do sleep 0.02; done");
        let path = user.path("a.etl");
        let (run, foreign) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let end = user.path("end");
                crate::util::eventually("the recorded command", || {
                    user.path("started").exists().then_some(())
                });
                let mut child = Command::new("true").spawn().expect("true does not start");
                child.wait().expect("true does not end");
                std::fs::write(end, "").expect("a file cannot be written");
                child.id()
            });
            let run = user.weir(&["record", "-o", "a.etl", "-p", &provider, "--", "sh", "-c", &script]);
            // If the recording was refused, the command did not run.
            if run.code != 0 {
                std::fs::write(user.path("started"), "").expect("a file cannot be written");
            }
            (run, other.join().expect("the other process failed"))
        });
        if run.stderr.contains("kernel events") {
            return skip("kernel events", &run.stderr);
        }
        let pids = parse_pids(&run.expect(0).text());
        let (ids, stopped) = read_trace(&path);
        assert_eq!(ids, BTreeSet::from([1, 2]));
        assert!(pids.iter().all(|pid| stopped.contains(pid)), "{pids:?}: {stopped:?}");
        assert!(!is_root || !stopped.contains(&foreign), "a process of another user");
    });
}
