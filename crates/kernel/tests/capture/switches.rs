//! Real captures on this machine: an extra, which needs the right to open tracepoints.
//!
//! Whoever changes a family adds what must be seen here, with programs of known behaviour.

use std::time::{Duration, Instant};

use traceweir_format::wire::{u32_at, u64_at};
use traceweir_kernel::{Group, Wanted};

use crate::again::again;
use crate::support;
use crate::support::{Seen, capture, capture_changing, groups, of};

#[test]
fn switches_of_two_threads_that_play_ping_pong_are_seen() {
    again(5, || {
        const ROUNDS: usize = 200;
        let wanted = Wanted {
            groups: groups(&[Group::CSWITCH, Group::DISPATCHER]),
            stacks: vec![0x0524],
            ..Wanted::default()
        };
        let play = || {
            let (to, from) = (std::sync::mpsc::sync_channel::<()>(0), std::sync::mpsc::sync_channel::<()>(0));
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for () in to.1 {
                        from.0.send(()).expect("a player");
                    }
                });
                for _ in 0..ROUNDS {
                    to.0.send(()).expect("a player");
                    from.1.recv().expect("a player");
                }
                drop(to.0);
            });
        };
        let begun = Instant::now();
        let Some((seen, capture)) = capture(&wanted, play) else { return };
        assert!(begun.elapsed() < Duration::from_secs(30));
        let switches = seen.iter().filter(|it| it.hook == 0x0524).count();
        let ready = seen.iter().filter(|it| it.hook == 0x0532).count();
        assert!(switches >= ROUNDS && ready >= ROUNDS, "{switches} switches, {ready} ready");
        assert_eq!(capture.lost(), 0);
        let stacks = seen.iter().filter(|it| it.is_stack).count();
        assert!(stacks >= ROUNDS, "{stacks} stacks");
        for pair in seen.windows(2).filter(|pair| pair[0].cpu == pair[1].cpu) {
            assert!(
                !pair[1].is_stack || pair[0].hook == 0x0524 || pair[0].is_stack,
                "a stack behind its event"
            );
            assert!(pair[0].raw <= pair[1].raw + 100_000, "in order");
        }
        assert!(seen.iter().all(|it| it.hook != 0x0524 || it.payload.len() == 24));
    });
}

#[test]
fn what_is_there_is_told_once_when_its_groups_are_switched_on() {
    again(5, || {
        let nothing = support::wanting(&[]);
        let (tasks, all) =
            ([Group::PROCESS, Group::THREAD], [Group::PROCESS, Group::THREAD, Group::IMAGE_LOAD]);
        let file = std::env::current_exe().and_then(std::fs::File::open).expect("a file");
        let changes = [
            support::wanting(&tasks),
            support::wanting(&all),
            support::wanting(&[&all[..], &[Group::DISK_FILE_IO]].concat()),
            support::wanting(&[&all[..], &[Group::DISK_FILE_IO, Group::FILE_IO]].concat()),
        ];
        let mut is_wanted = true;
        let captured = capture_changing(&nothing, |control, look| {
            for wanted in &changes {
                is_wanted &= control.set(wanted).is_ok();
                look();
                look();
            }
        });
        let Some((seen, capture)) = captured else { return };
        drop(file);
        assert!(is_wanted && capture.lost() == 0, "{} lost", capture.lost());
        let own = std::process::id();
        let count = |hook, is_own: &dyn Fn(&Seen) -> bool| {
            of(&seen, &[hook]).into_iter().filter(|it| is_own(it)).count()
        };
        assert_eq!(count(0x0303, &|it| it.fields().number("ProcessId") == u64::from(own)), 1, "this process");
        assert_eq!(count(0x0503, &|it| u32_at(&it.payload, 4) == support::this_thread()), 1, "this thread");
        let images: Vec<u64> = of(&seen, &[0x1403])
            .iter()
            .filter(|it| u32_at(&it.payload, 16) == own)
            .map(|it| u64_at(&it.payload, 0))
            .collect();
        let different: std::collections::BTreeSet<u64> = images.iter().copied().collect();
        assert!(!images.is_empty() && images.len() == different.len(), "each image once: {images:x?}");
        assert_eq!(count(0x1421, &|_| true), 2, "the kernel, when images are switched on and at the end");
        let names: Vec<String> =
            of(&seen, &[0x0400]).iter().map(|it| it.fields().text("FileName").to_owned()).collect();
        let own = std::env::current_exe().expect("a path").display().to_string();
        assert!(names.contains(&own), "{own} is open: {names:?}");
        let keys: std::collections::BTreeSet<u64> =
            of(&seen, &[0x0400]).iter().map(|it| it.fields().number("FileObject")).collect();
        assert_eq!(keys.len(), names.len(), "each name once");
    });
}

/// Set for the process of [`tracefs_that_is_not_mounted_is_mounted_detached`] that has a mount namespace of its own.
const WITHOUT_TRACEFS: &str = "TRACEWEIR_TEST_WITHOUT_TRACEFS";

#[test]
fn tracefs_that_is_not_mounted_is_mounted_detached() {
    let name = "switches::tracefs_that_is_not_mounted_is_mounted_detached";
    if std::env::var_os(WITHOUT_TRACEFS).is_some() {
        return capture_without_tracefs();
    }
    // Mount points are removed in a namespace of its own: no other process loses them.
    let script = "for at in /sys/kernel/tracing /sys/kernel/debug; do \
                  while umount -l $at 2>/dev/null; do :; done; done; exec \"$@\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    command.arg(std::env::current_exe().expect("this program")).args(["--exact", name, "--nocapture"]);
    let can_unshare = std::process::Command::new("unshare")
        .args(["--mount", "true"])
        .output()
        .is_ok_and(|it| it.status.success());
    if support::skip::can(can_unshare, "root", "a mount namespace takes root and unshare") {
        let run = command.env(WITHOUT_TRACEFS, "1").output().expect("a program");
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(
            run.status.success() && output.contains("1 passed"),
            "{output}{}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
}

fn capture_without_tracefs() {
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let before = mounts();
    let is_tracefs = |line: &str| line.contains(" - tracefs ");
    assert!(!before.lines().any(is_tracefs), "{before}");
    let wanted = Wanted { groups: groups(&[Group::CSWITCH, Group::DISPATCHER]), ..Wanted::default() };
    let started = traceweir_kernel::Capture::start(&wanted, support::cpus(), 1);
    let (mut capture, control) = match started {
        Ok(started) => started,
        // Root without the right to tracepoints, as in a container: the command is named.
        Err(error) => {
            assert!(error.to_string().contains("mount -t tracefs"), "{error}");
            return support::skip::skip("kernel events", &error.to_string());
        }
    };
    assert_eq!(control.missing(), Vec::<String>::new());
    assert_eq!(mounts(), before, "while it captures");
    let is_seen = |capture: &mut traceweir_kernel::Capture| {
        std::thread::sleep(Duration::from_millis(1));
        capture.look(&support::Plain, true);
        while let Some(next) = capture.peek(0) {
            let mut bytes = vec![0; next.length];
            capture.take(0, &mut bytes);
            let record = traceweir_format::header::Record::parse(&bytes, 0).expect("a record");
            if record.hook() == Some(0x0524) {
                return true;
            }
        }
        false
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_seen(&mut capture) {
        assert!(Instant::now() < deadline, "no context switch was captured");
    }
    capture.end(&support::Plain);
    assert_eq!(mounts(), before, "at the end");
}
