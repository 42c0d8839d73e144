//! Tests that a recording of a command or of processes contains the kernel events of these processes
//! and of their descendants only, for root and for an ordinary user.
//!
//! ```text
//!   busy shells ──────────────┐ not in the file
//!   weir record -- workload ──┴─▶ file ──▶ report cpu, flame: the shares that the workload measured
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;

use serde_json::Value;

use crate::dumped::{Trace, parse_number};
use crate::own::User;
use crate::recordings::{Measurement, WorkloadOutput, compiled_workload, lock_measurements};
use crate::retry::retry;
use crate::util::daemon_process::DaemonProcess;
use crate::util::{Run, skip};

/// Processor time that the workload uses, in milliseconds; it is sampled every millisecond.
const WORK_MS: &str = "2500";
/// The smallest number of samples that the shares are computed from.
const MIN_SAMPLES: f64 = 1500.0;
/// How far a share may be from the expected one.
const TOLERANCE: f64 = 0.08;

/// The id of a thread outside of the recorded processes.
const UNKNOWN_THREAD: u64 = u32::MAX as u64;

const MAX_ATTEMPTS: u32 = 4;

/// Shells that keep all processors busy, until they are dropped.
struct OtherLoad(Vec<Child>);

impl OtherLoad {
    fn start() -> Self {
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        let start_shell = |_| {
            let mut shell = Command::new("/bin/sh");
            shell
                .args(["-c", "while :; do /bin/true; i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; done"]);
            shell.stdin(Stdio::null()).spawn().expect("a shell cannot be started")
        };
        Self((0..cpus).map(start_shell).collect())
    }
}

impl Drop for OtherLoad {
    fn drop(&mut self) {
        for shell in &mut self.0 {
            let _ = shell.kill().and_then(|()| shell.wait());
        }
    }
}

/// The account that records.
enum Account {
    Root(Measurement),
    Ordinary { user: User, _daemon: DaemonProcess, _lock: MutexGuard<'static, ()> },
}

/// An account with a daemon and the workload.
struct Recorder {
    account: Account,
    workload: PathBuf,
    file: PathBuf,
}

impl Recorder {
    /// Starts a daemon of root that captures the whole machine.
    fn privileged() -> Option<Self> {
        let measurement = Measurement::start()?;
        let (workload, file) = (compiled_workload()?, measurement.path("scope.etl"));
        Some(Self { account: Account::Root(measurement), workload, file })
    }

    /// Starts a daemon of an ordinary user.
    fn ordinary() -> Option<Self> {
        let lock = lock_measurements();
        let Some(compiled) = compiled_workload() else {
            skip("cc", "no C compiler is installed");
            return None;
        };
        let user = User::new();
        let workload = user.path("workload");
        // As in `User::new`, another process makes the copy.
        let copied = Command::new("cp").arg(compiled).arg(&workload).status().expect("cp cannot be started");
        assert!(copied.success(), "cp failed");
        let (daemon, file) = (user.start_daemon(), user.path("scope.etl"));
        let account = Account::Ordinary { user, _daemon: daemon, _lock: lock };
        Some(Self { account, workload, file })
    }

    fn weir(&self, args: &[&str]) -> Run {
        match &self.account {
            Account::Root(measurement) => measurement.daemon.weir(args),
            Account::Ordinary { user, .. } => user.weir(args),
        }
    }

    /// Records a command. Returns `None` and skips the test if kernel events are not available.
    fn record(&self, options: &[&str], command: &[&str]) -> Option<Run> {
        let mut args = vec!["record", "--interval", "1ms", "-o", as_text(&self.file)];
        args.extend_from_slice(options);
        args.push("--");
        args.extend_from_slice(command);
        let run = self.weir(&args);
        if run.code == 125 && run.stderr.contains("kernel events") {
            skip("kernel events", &run.stderr);
            return None;
        }
        assert_eq!(run.code, 0, "{}", run.stderr);
        Some(run)
    }

    fn report(&self) -> Vec<Value> {
        self.weir(&["report", "cpu", "--json", "--top", "0", as_text(&self.file)]).expect(0).json()
    }
}

fn as_text(path: &Path) -> &str {
    path.to_str().expect("a path is not UTF-8")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

#[track_caller]
fn assert_share(what: &str, share: f64, expected: f64) {
    assert!((share - expected).abs() <= TOLERANCE, "{what}: {share:.3} instead of {expected}");
}

/// Records the workload next to other load, and checks the shares of its two functions in the report
/// and in the flame graph.
fn check_shares(recorder: &Recorder) {
    let _load = OtherLoad::start();
    let workload = as_text(&recorder.workload);
    let Some(run) = recorder.record(&["--kernel", "cpu"], &[workload, "ratio", WORK_MS]) else { return };
    let output = WorkloadOutput::parse(&run.text());
    let pid = output.number("pid");
    let rows = recorder.report();
    let summary = rows.iter().find(|row| row["by"] == "summary").expect("the report has no summary");
    let samples = number(&summary["samples"]);
    assert!(samples >= MIN_SAMPLES, "too few samples: {summary}");
    let processes: Vec<&Value> = rows.iter().filter(|row| row["by"] == "process").collect();
    assert!(!processes.is_empty(), "the report has no processes");
    for row in &processes {
        assert_eq!(row["pid"].as_u64(), Some(pid), "another process was recorded: {row}");
    }
    let own_share = |function: &str| {
        let row = rows.iter().find(|row| row["by"] == "function" && row["function"] == function);
        row.map_or(0.0, |row| number(&row["own"]) / samples)
    };
    // The workload measures how long its functions take: a loop of one can be slower than that of the other.
    let (three, one) = (output.number("three") as f64, output.number("one") as f64);
    let (three, one) = (three / (three + one), one / (three + one));
    assert_share("three_parts in the report", own_share("three_parts"), three);
    assert_share("one_part in the report", own_share("one_part"), one);

    let flame = recorder.weir(&["flame", "--collapsed", as_text(&recorder.file)]).expect(0).text();
    let stacks: Vec<(&str, f64)> = flame
        .lines()
        .map(|line| {
            let (stack, weight) = line.rsplit_once(' ').expect("a line has no weight");
            (stack, weight.parse().expect("a weight is not a number"))
        })
        .collect();
    let total: f64 = stacks.iter().map(|(_, weight)| weight).sum();
    let share_of = |function: &str| {
        let is_inside = |stack: &str| stack.split(';').any(|frame| frame.contains(function));
        stacks.iter().filter(|(stack, _)| is_inside(stack)).map(|(_, weight)| weight).sum::<f64>() / total
    };
    assert_share("three_parts in the flame graph", share_of("three_parts"), three);
    assert_share("one_part in the flame graph", share_of("one_part"), one);
    assert_share("both functions in the flame graph", share_of("_part"), 1.0);
}

/// Records a command whose child loses its parent, and checks that the file contains the events of
/// the tree and no others.
fn check_tree(recorder: &Recorder) {
    let _load = OtherLoad::start();
    let (workload, folder) = (as_text(&recorder.workload), recorder.file.parent().expect("no folder"));
    let done = folder.join("done");
    let _ = std::fs::remove_file(&done);
    // The inner shell ends at once; the workload gets another parent.
    let script = format!(
        "sh -c '({workload} ratio 300 > {0}/out; touch {0}/done) &'; while [ ! -e {0}/done ]; do sleep 0.05; done",
        as_text(folder)
    );
    let Some(_) = recorder.record(&["--kernel", "sched"], &["sh", "-c", &script]) else { return };
    let output = std::fs::read_to_string(folder.join("out")).expect("the workload printed nothing");
    let orphan = WorkloadOutput::parse(&output).number("pid");
    let rows = recorder.report();
    let samples_of = |pid: u64| {
        let rows = rows.iter().filter(|row| row["by"] == "process" && row["pid"].as_u64() == Some(pid));
        rows.map(|row| number(&row["samples"])).sum::<f64>()
    };
    assert!(samples_of(orphan) >= 100.0, "the orphan has few samples: {rows:?}");
    let names: BTreeSet<&str> = rows
        .iter()
        .filter(|row| row["by"] == "process")
        .map(|row| row["name"].as_str().and_then(|name| name.split(' ').next()).unwrap_or_default())
        .collect();
    // The child of weir is a copy of weir until it executes the shell.
    let allowed = ["weir", "sh", "dash", "bash", "workload", "sleep", "touch"];
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
    let trace = Trace::read(&recorder.file, &[]);
    let ids_of = |prefix: &str, field: &str| -> BTreeSet<u64> {
        let events = trace.events.iter().filter(|event| event.name.starts_with(prefix));
        events.filter_map(|event| parse_number(&event.fields[field])).collect()
    };
    let processes = ids_of("Process/", "ProcessId");
    let others = [1, u64::from(std::process::id())];
    assert!(processes.contains(&orphan), "{processes:?}");
    assert!(others.iter().all(|pid| !processes.contains(pid)), "{processes:?}");
    let threads = ids_of("Thread/", "TThreadId");
    for switch in trace.events.iter().filter(|event| event.name == "Thread/CSwitch") {
        let ids = [switch.number("NewThreadId"), switch.number("OldThreadId")];
        let named: Vec<&u64> = ids.iter().filter(|id| **id != UNKNOWN_THREAD).collect();
        assert!(!named.is_empty(), "a switch names no thread");
        assert!(named.iter().all(|id| threads.contains(id)), "{named:?} is no thread of the trees");
    }
}

#[test]
fn root_sees_only_the_shares_of_the_recorded_command() {
    retry(MAX_ATTEMPTS, || {
        if let Some(recorder) = Recorder::privileged() {
            check_shares(&recorder);
        }
    });
}

#[test]
fn ordinary_user_sees_only_the_shares_of_the_recorded_command() {
    retry(MAX_ATTEMPTS, || {
        if let Some(recorder) = Recorder::ordinary() {
            check_shares(&recorder);
        }
    });
}

#[test]
fn orphans_of_a_command_are_recorded_and_other_processes_are_not() {
    retry(MAX_ATTEMPTS, || {
        for recorder in [Recorder::privileged, Recorder::ordinary] {
            if let Some(recorder) = recorder() {
                check_tree(&recorder);
            }
        }
    });
}
