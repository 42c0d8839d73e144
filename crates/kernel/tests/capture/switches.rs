//! Context switches, changes of groups and detached mounts of tracefs. These tests need access to
//! tracepoints.

use std::time::{Duration, Instant};

use traceweir_format::kernel::hook::{
    CONTEXT_SWITCH, FILE_NAME, IMAGE_DC_START, KERNEL_BASE, PROCESS_DC_START, READY_THREAD, THREAD_DC_START,
};
use traceweir_format::wire::{u32_at, u64_at};
use traceweir_kernel::{CaptureSettings, Group, Groups};

use crate::retry::retry_alternately_with_busy_processors;
use crate::support;
use crate::support::{CapturedEvent, capture, capture_with_changes, select_hooks};

#[test]
fn switches_between_two_threads_are_recorded() {
    retry_alternately_with_busy_processors(5, || {
        const ROUNDS: usize = 200;
        let settings = CaptureSettings {
            groups: Groups::new(&[Group::CSWITCH, Group::DISPATCHER]),
            stacks: vec![CONTEXT_SWITCH],
            ..CaptureSettings::default()
        };
        let send_back_and_forth = || {
            let (to, from) = (std::sync::mpsc::sync_channel::<()>(0), std::sync::mpsc::sync_channel::<()>(0));
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for () in to.1 {
                        from.0.send(()).expect("the other thread does not run");
                    }
                });
                for _ in 0..ROUNDS {
                    to.0.send(()).expect("the other thread does not run");
                    from.1.recv().expect("the other thread does not run");
                }
                drop(to.0);
            });
        };
        let start = Instant::now();
        let Some((events, capture)) = capture(&settings, send_back_and_forth) else { return };
        assert!(start.elapsed() < Duration::from_secs(30));
        let switches = events.iter().filter(|event| event.hook == CONTEXT_SWITCH).count();
        let ready = events.iter().filter(|event| event.hook == READY_THREAD).count();
        assert!(switches >= ROUNDS && ready >= ROUNDS, "{switches} switches, {ready} ready");
        assert_eq!(capture.lost(), 0);
        let stacks = events.iter().filter(|event| event.is_stack).count();
        assert!(stacks >= ROUNDS, "{stacks} stacks");
        for pair in events.windows(2).filter(|pair| pair[0].cpu == pair[1].cpu) {
            assert!(
                !pair[1].is_stack || pair[0].hook == CONTEXT_SWITCH || pair[0].is_stack,
                "a stack does not follow its event"
            );
            assert!(pair[0].stamp <= pair[1].stamp + 100_000, "not in time order");
        }
        assert!(events.iter().all(|event| event.hook != CONTEXT_SWITCH || event.payload.len() == 24));
    });
}

#[test]
fn rundown_is_written_once_when_its_groups_are_enabled() {
    retry_alternately_with_busy_processors(5, || {
        let no_groups = support::settings_for(&[]);
        let (tasks, image_groups) =
            ([Group::PROCESS, Group::THREAD], [Group::PROCESS, Group::THREAD, Group::IMAGE_LOAD]);
        let file = std::env::current_exe().and_then(std::fs::File::open).expect("the file operation fails");
        let changes = [
            support::settings_for(&tasks),
            support::settings_for(&image_groups),
            support::settings_for(&[&image_groups[..], &[Group::DISK_FILE_IO]].concat()),
            support::settings_for(&[&image_groups[..], &[Group::DISK_FILE_IO, Group::FILE_IO]].concat()),
        ];
        let mut is_set = true;
        let captured = capture_with_changes(&no_groups, |control, poll| {
            for settings in &changes {
                is_set &= control.set(settings).is_ok();
                poll();
                poll();
            }
        });
        let Some((events, capture)) = captured else { return };
        drop(file);
        assert!(is_set && capture.lost() == 0, "{} lost", capture.lost());
        let own_pid = std::process::id();
        let count = |hook, is_own: &dyn Fn(&CapturedEvent) -> bool| {
            select_hooks(&events, &[hook]).into_iter().filter(|event| is_own(event)).count()
        };
        assert_eq!(
            count(PROCESS_DC_START, &|event| event.fields().number("ProcessId") == u64::from(own_pid)),
            1,
            "rundowns of this process"
        );
        assert_eq!(
            count(THREAD_DC_START, &|event| u32_at(&event.payload, 4) == support::this_thread_id()),
            1,
            "rundowns of this thread"
        );
        // An image event begins with base, size and process.
        let images: Vec<u64> = select_hooks(&events, &[IMAGE_DC_START])
            .iter()
            .filter(|event| u32_at(&event.payload, 16) == own_pid)
            .map(|event| u64_at(&event.payload, 0))
            .collect();
        let distinct: std::collections::BTreeSet<u64> = images.iter().copied().collect();
        assert!(!images.is_empty() && images.len() == distinct.len(), "an image occurs twice: {images:x?}");
        assert_eq!(count(KERNEL_BASE, &|_| true), 2, "not once when images are enabled and once at the end");
        let names: Vec<String> = select_hooks(&events, &[FILE_NAME])
            .iter()
            .map(|event| event.fields().text("FileName").to_owned())
            .collect();
        let program = std::env::current_exe().expect("the path is not known").display().to_string();
        assert!(names.contains(&program), "{program} is missing: {names:?}");
        let keys: std::collections::BTreeSet<u64> = select_hooks(&events, &[FILE_NAME])
            .iter()
            .map(|event| event.fields().number("FileObject"))
            .collect();
        assert_eq!(keys.len(), names.len(), "an open file has two names");
    });
}

/// The environment variable of the child of [`tracefs_that_is_not_mounted_is_mounted_detached`],
/// which has a mount namespace of its own.
const WITHOUT_TRACEFS: &str = "TRACEWEIR_TEST_WITHOUT_TRACEFS";

#[test]
fn tracefs_that_is_not_mounted_is_mounted_detached() {
    let name = "switches::tracefs_that_is_not_mounted_is_mounted_detached";
    if std::env::var_os(WITHOUT_TRACEFS).is_some() {
        return capture_without_tracefs();
    }
    // The mount points are removed in a separate namespace, so other processes keep them. The
    // script exits with 99 if tracefs cannot be mounted at the folder that is its first argument.
    let script = "for at in /sys/kernel/tracing /sys/kernel/debug; do \
                  while umount -l $at 2>/dev/null; do :; done; done; \
                  mount -t tracefs tracefs \"$0\" && umount \"$0\" || exit 99; exec \"$@\"";
    let folder = tempfile::tempdir().expect("no folder is created");
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(folder.path());
    command.arg(std::env::current_exe().expect("the path of this program is not known")).args([
        "--exact",
        name,
        "--nocapture",
    ]);
    let can_unshare = std::process::Command::new("unshare")
        .args(["--mount", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if support::skip::holds_or_skip(can_unshare, "root", "a mount namespace needs root and unshare") {
        let run = command.env(WITHOUT_TRACEFS, "1").output().expect("the start fails");
        if run.status.code() == Some(99) {
            return support::skip::skip("kernel events", "tracefs cannot be mounted here");
        }
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(
            run.status.success() && output.contains("1 passed"),
            "{output}{}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
}

fn capture_without_tracefs() {
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts are not readable");
    let before = mounts();
    let is_tracefs = |line: &str| line.contains(" - tracefs ");
    assert!(!before.lines().any(is_tracefs), "{before}");
    let settings = CaptureSettings {
        groups: Groups::new(&[Group::CSWITCH, Group::DISPATCHER]),
        ..CaptureSettings::default()
    };
    let started = traceweir_kernel::Capture::start(&settings, support::cpu_count(), 1);
    let (mut capture, control) = match started {
        Ok(started) => started,
        // The parent has seen that tracefs can be mounted; perf events may be forbidden all the
        // same.
        Err(error) => {
            assert!(!error.to_string().contains("tracefs"), "{error}");
            return support::skip::skip("kernel events", &error.to_string());
        }
    };
    assert_eq!(control.missing_events(), Vec::<String>::new());
    assert_eq!(mounts(), before, "a mount is visible during the capture");
    let has_switch = |capture: &mut traceweir_kernel::Capture| {
        std::thread::sleep(Duration::from_millis(1));
        capture.poll(&support::NanosecondClock, true);
        while let Some((_, bytes)) = support::pop_record(capture, 0) {
            let record = traceweir_format::header::Record::parse(&bytes, 0).expect("invalid record");
            if record.hook() == Some(CONTEXT_SWITCH) {
                return true;
            }
        }
        false
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !has_switch(&mut capture) {
        assert!(Instant::now() < deadline, "no context switch was captured");
    }
    capture.end(&support::NanosecondClock);
    assert_eq!(mounts(), before, "a mount is left at the end");
}
