//! Tests that an ordinary user can record unwound stacks without losing events, although the rings
//! of an unprivileged daemon are small.

use std::cell::Cell;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, geteuid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use crate::retry::retry;
use crate::stopped_thread::StoppedThread;
use crate::util::daemon_process::{self, DaemonProcess};
use crate::util::{Process, Run, eventually, skip};

/// The user id that root switches to.
const USER_ID: u32 = 64_303;

/// The usual limit of locked memory, as for `ulimit -l`, in KiB.
const USUAL_LOCK_KIB: u32 = 8192;

/// Half of the time in which the samples of a processor fill its ring: a ring has space for 32
/// copies of 64 KiB, and a processor is sampled every millisecond.
const HALF_RING_FILL_TIME: Duration = Duration::from_millis(16);

const MAX_ATTEMPTS: u32 = 5;

/// A folder of an ordinary user, with a copy of the command.
pub(crate) struct User {
    folder: TempDir,
    weir: PathBuf,
}

impl User {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder cannot be made");
        let weir = folder.path().join("weir");
        // Another process makes the copy. If this process did, a child of another test might
        // inherit the descriptor that is open for writing, and the copy could not be executed.
        let copied =
            Command::new("cp").arg(daemon_process::weir()).arg(&weir).status().expect("cp cannot be started");
        assert!(copied.success(), "cp failed");
        if geteuid().is_root() {
            std::os::unix::fs::chown(folder.path(), Some(USER_ID), Some(USER_ID)).expect("chown failed");
            std::fs::set_permissions(&weir, std::fs::Permissions::from_mode(0o755)).expect("chmod failed");
        }
        Self { folder, weir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a command that runs as this user. If this process is root, the command switches to
    /// [`USER_ID`].
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("TRACEWEIR_RUNTIME_DIR", self.path("run"));
        if geteuid().is_root() {
            command.uid(USER_ID).gid(USER_ID);
        }
        command
    }

    pub(crate) fn start_daemon(&self) -> DaemonProcess {
        let mut limited = self.command("/bin/sh".as_ref());
        limited.args(["-c", &format!("ulimit -l {USUAL_LOCK_KIB}; exec \"$0\" \"$@\"")]).arg(&self.weir);
        DaemonProcess::start_by(limited, &self.path("run"), Stdio::null())
    }

    pub(crate) fn weir(&self, args: &[&str]) -> Run {
        let mut command = self.command(&self.weir);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::start(&mut command).finish()
    }

    /// Returns a shell script that waits for a file `go`, counts to `count` on each of these
    /// processors, makes a file `counted`, and waits for a file `end`.
    fn counting_script(cpus: &[usize], count: u32) -> String {
        let counter = format!("i=0; while [ $i -lt {count} ]; do i=$((i+1)); done");
        let start_on = |cpu: &usize| format!("taskset -c {cpu} sh -c '{counter}' &");
        let start_all: Vec<String> = cpus.iter().map(start_on).collect();
        let wait_for = |file: &str| format!("while [ ! -e {file} ]; do sleep 0.05; done");
        format!("{}; {} wait; touch counted; {}", wait_for("go"), start_all.join(" "), wait_for("end"))
    }
}

/// Returns the processors that this test may use.
fn allowed_processors() -> Vec<usize> {
    let allowed = sched_getaffinity(None).expect("the processors of this process cannot be read");
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// Keeps a thread from reading the rings, as a busy machine does: stops the thread until the result
/// is dropped. Without the right to stop the thread, pins it to this processor and lowers its
/// priority.
fn stop_or_slow_down(thread: u64, cpu: usize) -> Option<StoppedThread> {
    let thread = i32::try_from(thread).ok().and_then(Pid::from_raw).expect("the thread id is not valid");
    let stopped = StoppedThread::stop(thread.as_raw_pid()).ok();
    if stopped.is_none() {
        slow_down_thread(thread, cpu);
    }
    stopped
}

fn slow_down_thread(thread: Pid, cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(Some(thread), &cpus).expect("the thread cannot be pinned");
    setpriority_process(Some(thread), 19).expect("the priority cannot be lowered");
}

/// Runs `work`, and measures the longest time that another thread of this process waits for a
/// processor during `work`.
fn with_longest_delay<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    const PAUSE: Duration = Duration::from_millis(2);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let probe = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_done.load(Relaxed) {
                let start = Instant::now();
                std::thread::sleep(PAUSE);
                longest = longest.max(start.elapsed().saturating_sub(PAUSE));
            }
            longest
        });
        let result = catch_unwind(AssertUnwindSafe(work));
        is_done.store(true, Relaxed);
        let longest = probe.join().expect("the probe thread panicked");
        (result.unwrap_or_else(|panic| resume_unwind(panic)), longest)
    })
}

#[test]
fn ordinary_user_unwinds_without_losing_kernel_events() {
    if Command::new("taskset").arg("--version").output().is_err() {
        return skip("taskset", "taskset is not installed");
    }
    let _lock = crate::recordings::lock_measurements();
    let attempts = Cell::new(0);
    retry(MAX_ATTEMPTS, || {
        attempts.set(attempts.get() + 1);
        let user = User::new();
        let _daemon = user.start_daemon();
        let cpus = allowed_processors();
        let busy_cpus = &cpus[..cpus.len().min(2)];
        let script = User::counting_script(busy_cpus, 200_000);
        // Each buffer of 64 KiB has space for one sample. The script causes about a quarter as many
        // samples as there are buffers; other processes of the user are sampled, too.
        let sample_capacity = 1024 * cpus.len().min(16) as u64;
        let buffers = sample_capacity.to_string();
        // Requesting the interval that is already in force requires no privilege.
        let kernel = ["--kernel", "cpu", "--unwind", "64K", "--interval", "1ms", "--max-buffers", &buffers];
        let mut record = user.command(&user.weir);
        record.args(["record", "-o", "a.etl"]).args(kernel).args(["--", "sh", "-c", &script]);
        let mut recording = Process::start(record.stdin(Stdio::null()).stderr(Stdio::piped()));
        let session = format!("weir-record-{}", recording.id());
        let collector = eventually("the session exists", || {
            if !recording.is_running() {
                return Some(None);
            }
            let sessions = user.weir(&["query", &session, "--json"]).json();
            sessions.first()?["collector_thread"].as_u64().filter(|thread| *thread > 0).map(Some)
        });
        let Some(collector) = collector else {
            let run = recording.finish();
            assert!(run.stderr.contains("kernel events"), "{}", run.stderr);
            return skip("kernel events", &run.stderr);
        };
        let stopped = stop_or_slow_down(collector, cpus[0]);
        std::fs::write(user.path("go"), "").expect("a file cannot be written");
        let counting_ended = || user.path("counted").exists().then_some(());
        let ((), delay) = with_longest_delay(|| eventually("the counting has ended", counting_ended));
        drop(stopped);
        std::fs::write(user.path("end"), "").expect("a file cannot be written");
        let recorded = recording.finish().expect(0);
        let report = user.weir(&["report", "cpu", "--json", "a.etl"]);
        let summary = report.json().remove(0);
        let sample_count =
            summary["samples"].as_u64().unwrap_or(0) + summary["events_lost"].as_u64().unwrap_or(0);
        let has_losses = summary["events_lost"] != 0;
        let reason = format!(
            "{sample_count} samples, memory for {sample_capacity}, a thread waited {delay:?} for a processor"
        );
        // Losses for two causes say nothing about the rings: there are more samples than the
        // buffers hold, or the machine is so busy that no thread can empty a ring in time.
        if has_losses && (sample_count > sample_capacity || delay > HALF_RING_FILL_TIME) {
            assert_eq!(attempts.get(), MAX_ATTEMPTS, "this attempt says nothing: {reason}");
            return skip::record("a machine and an account that are not busy", &reason);
        }
        assert!(!recorded.stderr.contains("warning: lost"), "{}", recorded.stderr);
        report.expect(0);
        assert_eq!(summary["events_lost"], 0);
        assert!(
            summary["samples"].as_u64().is_some_and(|samples| samples > 100),
            "too few samples: {summary}"
        );
        let stats = user.weir(&["stats", "--top", "0", "a.etl"]).expect(0).text();
        assert!(stats.contains("StackWalk/Stack"), "{stats}");
    });
}

#[test]
fn limited_stack_copies_are_announced_with_the_command_that_lifts_the_limit() {
    let _lock = crate::recordings::lock_measurements();
    let user = User::new();
    let mut limited = user.command("/bin/sh".as_ref());
    limited.args(["-c", "ulimit -l 0; exec \"$0\" \"$@\""]).arg(&user.weir);
    let _daemon = DaemonProcess::start_by(limited, &user.path("run"), Stdio::null());
    let start = |size: &str| user.weir(&["start", "own", "--kernel", "cpu", "--unwind", size, "-o", "a.etl"]);
    let started = start("64K");
    if started.code != 0 {
        assert!(started.stderr.contains("kernel events"), "{}", started.stderr);
        return skip("kernel events", &started.stderr);
    }
    let is_limited = started.stderr.contains("warning: stack copies are limited to ");
    user.weir(&["stop", "own"]);
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb").unwrap_or_default();
    // 516 is the kernel's default.
    let lockable_kib: u64 = setting.trim().parse().unwrap_or(516);
    // The size of a ring is a power of two, plus a page: 32 copies of 64 KiB take 2 MiB.
    let needed_kib = 2048 + (rustix::param::page_size() as u64 >> 10);
    // If perf_event_paranoid is -1, the kernel enforces no limit.
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim() != "-1" {
        assert_eq!(is_limited, lockable_kib < needed_kib, "{}", started.stderr);
    }
    let command = format!("sudo sysctl kernel.perf_event_mlock_kb={needed_kib}");
    assert!(!is_limited || started.stderr.contains(&command), "{}", started.stderr);
    let small = start("1K").expect(0);
    assert!(!small.stderr.contains("stack copies"), "copies of 1 KiB are limited: {}", small.stderr);
    user.weir(&["stop", "own"]);
}
