//! A daemon, the workload, and recordings of the workload.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::dumped::Trace;
use crate::util::{Daemon, Run, skip, weir};

/// Number of measurements after which a test fails, if other load spoils each of them.
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
    /// Waits until no other test measures, and starts a daemon. If kernel events or a C compiler
    /// are missing, skips the test and returns `None`.
    pub(crate) fn start() -> Option<Self> {
        let lock = lock_measurements();
        let daemon = Daemon::start();
        // The trial requests interrupts of the whole machine: without privilege, only context
        // switches of the user's own processes are available.
        let trial = daemon.weir(["start", "trial", "--kernel", "interrupt", "--real-time"]);
        if trial.code != 0 {
            skip("kernel events", &trial.stderr);
            return None;
        }
        daemon.weir(["stop", "trial"]).expect(0);
        let Some(workload) = compiled_workload() else {
            skip("cc", "no C compiler is installed");
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

    /// Records the whole machine while a command runs; `options` select the kernel events.
    pub(crate) fn record(&self, options: &[&str], command: &[OsString]) -> Recording {
        let file = self.path("a.etl");
        let mut arguments: Vec<OsString> =
            vec!["record".into(), "-a".into(), "-o".into(), file.clone().into()];
        arguments.extend(options.iter().map(OsString::from));
        arguments.push("--".into());
        arguments.extend_from_slice(command);
        let run = self.daemon.weir(arguments);
        Recording { file, output: WorkloadOutput::parse(&run.text()), run }
    }

    /// Records a command, and repeats the recording if events were lost on a busy machine.
    #[track_caller]
    pub(crate) fn record_complete(&self, options: &[&str], command: &[OsString]) -> Recording {
        for _ in 0..MAX_ATTEMPTS {
            let recording = self.record(options, command);
            // The exit status is that of the recorded command.
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
    pub(crate) fn report(&self, report: &str, options: &[&str]) -> Vec<serde_json::Value> {
        let mut arguments: Vec<&OsStr> = vec!["report".as_ref(), report.as_ref(), "--json".as_ref()];
        arguments.extend(["--top", "0"].map(OsStr::new));
        arguments.extend(options.iter().map(OsStr::new));
        arguments.push(self.file.as_os_str());
        weir(arguments).expect(0).json()
    }
}

/// The lines that the workload printed. Each line has a name and numbers.
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

/// Returns the path of the workload, or `None` without a compiler. The first call compiles the
/// workload.
pub(crate) fn compiled_workload() -> Option<PathBuf> {
    static WORKLOAD: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let workload = WORKLOAD.get_or_init(|| {
        let folder = tempfile::tempdir().expect("the temporary folder cannot be made");
        let program = folder.path().join("workload");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kernel/workload.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-inline"]);
        let status = compiler.args(["-pthread", "-o"]).arg(&program).arg(source).status().ok()?;
        assert!(status.success(), "the workload does not compile");
        Some((folder, program))
    });
    workload.as_ref().map(|(_, program)| program.clone())
}
