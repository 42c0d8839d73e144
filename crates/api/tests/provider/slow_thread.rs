//! Registrations and enables of a process whose control thread does not run for a while, as on a
//! machine with hundreds of busy processes. The tests stop only this thread, with `ptrace`.

use std::path::Path;
use std::time::Duration;

use traceweir::Provider;
use traceweir::controller::{Controller, EnableCode, EnableParams};

use crate::early::{DaemonProcess, EVENT_COUNT, OTHER_PROVIDER, session};
use crate::skip::holds_or_skip;
use crate::stopped_thread::StoppedThread;
use crate::{INFORMATION, PROVIDER, Scenario, event, eventually, set_mark, until, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("register while the control thread is stopped", register_while_thread_is_stopped),
    ("enable while the control thread is stopped", enable_while_thread_is_stopped),
];

/// How long the thread is stopped: longer than a registration waits for a reply, but much shorter
/// than it waits for the thread to send its request.
const STOP_DURATION: Duration = Duration::from_secs(3);
/// How long the thread is stopped during an enable with timeout 0: longer than the daemon waits for
/// the controller's own process.
const ENABLE_STOP_DURATION: Duration = Duration::from_millis(300);

#[test]
fn registration_waits_for_a_control_thread_that_does_not_run() {
    let daemon_process = DaemonProcess::start();
    let folder = daemon_process.runner.folder.path().to_owned();
    let scenario = daemon_process.runner.spawn("register while the control thread is stopped");
    wait_for_mark(&folder, "connected");
    let stopped = StoppedThread::stop(wait_for_idle_control_thread(scenario.id()));
    set_mark(&folder, "stopped");
    wait_for_mark(&folder, "registering");
    if holds_or_skip(stopped.is_ok(), "ptrace", "stopping one thread of a child process takes ptrace") {
        std::thread::sleep(STOP_DURATION);
        let has_returned = folder.join("registered").exists();
        assert!(!has_returned, "the registration returned although the thread has not sent it");
    }
    drop(stopped);
    scenario.assert_success();
    assert_eq!(daemon_process.end(EVENT_COUNT), (EVENT_COUNT, 0));
}

fn register_while_thread_is_stopped(folder: &Path) {
    // Starts the control thread; no session enables this provider.
    let _other = Provider::register(OTHER_PROVIDER, None).unwrap();
    set_mark(folder, "connected");
    wait_for_mark(folder, "stopped");
    set_mark(folder, "registering");
    let provider = Provider::register(PROVIDER, None).unwrap();
    set_mark(folder, "registered");
    assert!(provider.enabled(INFORMATION, 0), "the registration returned before it was enabled");
    for n in 0..EVENT_COUNT {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
}

#[test]
fn enable_with_timeout_0_waits_for_a_control_thread_that_does_not_run() {
    let daemon_process = DaemonProcess::start();
    let folder = daemon_process.runner.folder.path().to_owned();
    let scenario = daemon_process.runner.spawn("enable while the control thread is stopped");
    wait_for_mark(&folder, "connected");
    let stopped = StoppedThread::stop(wait_for_idle_control_thread(scenario.id()));
    set_mark(&folder, "stopped");
    wait_for_mark(&folder, "enabling");
    if holds_or_skip(stopped.is_ok(), "ptrace", "stopping one thread of a child process takes ptrace") {
        std::thread::sleep(ENABLE_STOP_DURATION);
    }
    drop(stopped);
    scenario.assert_success();
    assert_eq!(daemon_process.end(EVENT_COUNT), (EVENT_COUNT, 0));
}

fn enable_while_thread_is_stopped(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let mut controller = Controller::find_at(&folder.join("run")).unwrap().unwrap();
    let params = EnableParams::default();
    controller.enable(&session(), PROVIDER, EnableCode::Disable, &params, 60_000).unwrap();
    assert!(!provider.enabled(INFORMATION, 0));
    set_mark(folder, "connected");
    wait_for_mark(folder, "stopped");
    set_mark(folder, "enabling");
    controller.enable(&session(), PROVIDER, EnableCode::Enable, &params, 0).unwrap();
    assert!(provider.enabled(INFORMATION, 0), "the call returned before the provider was enabled");
    for n in 0..EVENT_COUNT {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
}

/// Returns the id of a process's control thread once the thread waits for requests.
fn wait_for_idle_control_thread(process: u32) -> libc::pid_t {
    let tasks = format!("/proc/{process}/task");
    let thread = eventually("the control thread exists", || {
        std::fs::read_dir(&tasks).unwrap().map(|task| task.unwrap()).find(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "traceweir\n")
        })
    });
    until("the control thread waits", || {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    });
    thread.file_name().to_str().unwrap().parse().unwrap()
}
