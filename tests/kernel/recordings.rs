//! A daemon, the workload, and recordings of the workload.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::dumped::Trace;
use crate::util::{Daemon, Run, skip, weir};

/// Number of measurements that other load may spoil before the test fails.
pub(crate) const MAX_ATTEMPTS: usize = 5;

static MEASUREMENT_LOCK: Mutex<()> = Mutex::new(());

/// A daemon for one test, with the exclusive right to measure.
pub(crate) struct Measurement {
    pub(crate) daemon: Daemon,
    workload: PathBuf,
    _lock: MutexGuard<'static, ()>,
}

/// Waits until no other test measures.
pub(crate) fn lock_measurements() -> MutexGuard<'static, ()> {
    MEASUREMENT_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Measurement {
    /// Starts a daemon. Returns `None` with a skip where kernel events or a C compiler are missing.
    pub(crate) fn start() -> Option<Self> {
        let lock = lock_measurements();
        let daemon = Daemon::start();
        // Interrupts of the whole machine: without privilege, only context switches of the user's
        // own processes are available.
        let trial = daemon.weir(["start", "trial", "--kernel", "interrupt", "--real-time"]);
        if trial.code != 0 {
            skip("kernel events", &trial.stderr);
            return None;
        }
        daemon.weir(["stop", "trial"]).expect(0);
        let Some(workload) = compiled_workload() else {
            skip("cc", "no C compiler");
            return None;
        };
        Some(Self { daemon, workload, _lock: lock })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.daemon.path(name)
    }

    /// Returns the workload and its arguments.
    pub(crate) fn workload<I: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Vec<OsString> {
        let program = self.workload.clone().into_os_string();
        std::iter::once(program)
            .chain(args.into_iter().map(|argument| argument.as_ref().to_owned()))
            .collect()
    }

    /// Records a command; `options` select the kernel events.
    pub(crate) fn record(&self, options: &[&str], command: &[OsString]) -> Recording {
        let file = self.path("a.etl");
        let mut all: Vec<OsString> = vec!["record".into(), "-o".into(), file.clone().into()];
        all.extend(options.iter().map(OsString::from));
        all.push("--".into());
        all.extend_from_slice(command);
        let run = self.daemon.weir(all);
        Recording { file, output: WorkloadOutput::parse(&run.text()), run }
    }

    /// Records a command, again if events were lost on a busy machine.
    #[track_caller]
    pub(crate) fn record_complete(&self, options: &[&str], command: &[OsString]) -> Recording {
        for _ in 0..MAX_ATTEMPTS {
            let recording = self.record(options, command);
            // The exit status is that of the command.
            assert_eq!(recording.run.code, 0, "{}", recording.run.stderr);
            if !recording.run.stderr.contains("warning: lost") {
                return recording;
            }
        }
        panic!("events were lost in each attempt");
    }
}

/// A recording, and the output of the workload.
pub(crate) struct Recording {
    pub(crate) file: PathBuf,
    pub(crate) output: WorkloadOutput,
    pub(crate) run: Run,
}

impl Recording {
    /// Returns the events of the file. Fails unless the file is sound.
    #[track_caller]
    pub(crate) fn trace(&self) -> Trace {
        weir(["check".as_ref(), self.file.as_os_str()]).expect(0);
        Trace::read(&self.file, &[])
    }

    /// Returns the rows of a report.
    #[track_caller]
    pub(crate) fn report(&self, about: &str, options: &[&str]) -> Vec<serde_json::Value> {
        let mut all: Vec<&OsStr> = vec!["report".as_ref(), about.as_ref(), "--json".as_ref()];
        all.extend(["--top", "0"].map(OsStr::new));
        all.extend(options.iter().map(OsStr::new));
        all.push(self.file.as_os_str());
        weir(all).expect(0).json()
    }
}

/// Lines that the workload printed: a name and numbers each.
#[derive(Debug)]
pub(crate) struct WorkloadOutput(BTreeMap<String, Vec<u64>>);

impl WorkloadOutput {
    pub(crate) fn parse(text: &str) -> Self {
        let parse_line = |line: &str| {
            let (name, numbers) = line.split_once(' ')?;
            let numbers: Option<Vec<u64>> = numbers.split(' ').map(|number| number.parse().ok()).collect();
            Some((name.to_owned(), numbers?))
        };
        Self(text.lines().filter_map(parse_line).collect())
    }

    #[track_caller]
    pub(crate) fn numbers(&self, name: &str) -> &[u64] {
        self.0.get(name).unwrap_or_else(|| panic!("the workload did not print {name}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.numbers(name)[0]
    }
}

/// Returns the compiled workload, which is compiled once for all tests, or `None` without a
/// compiler.
fn compiled_workload() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("no temporary folder");
        let program = folder.path().join("workload");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kernel/workload.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-inline"]);
        let status = compiler.args(["-pthread", "-o"]).arg(&program).arg(source).status().ok()?;
        assert!(status.success(), "the workload does not compile");
        Some((folder, program))
    });
    built.as_ref().map(|(_, program)| program.clone())
}
