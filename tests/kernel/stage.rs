//! A daemon, the workload, and recordings of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::dumped::Trace;
use crate::util::{Daemon, Run, skip, weir};

/// Measurements that noise may spoil before one is a failure.
pub(crate) const ATTEMPTS: usize = 5;

static TURN: Mutex<()> = Mutex::new(());

/// A daemon of one's own, and nobody else measures.
pub(crate) struct Stage {
    pub(crate) daemon: Daemon,
    workload: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// Waits until no other test measures.
pub(crate) fn take_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    /// `None` where kernel events cannot be had, which is said.
    pub(crate) fn set() -> Option<Self> {
        let turn = take_turn();
        let daemon = Daemon::start();
        // Of the whole machine: without privilege there are context switches of one's own processes.
        let trial = daemon.weir(["start", "trial", "--kernel", "interrupt", "--real-time"]);
        if trial.code != 0 {
            skip("kernel events", &trial.stderr);
            return None;
        }
        daemon.weir(["stop", "trial"]).expect(0);
        let Some(workload) = workload() else {
            skip("cc", "no C compiler");
            return None;
        };
        Some(Self { daemon, workload, _turn: turn })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.daemon.path(name)
    }

    /// The workload and its arguments.
    pub(crate) fn workload<I: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Vec<OsString> {
        let program = self.workload.clone().into_os_string();
        std::iter::once(program).chain(args.into_iter().map(|it| it.as_ref().to_owned())).collect()
    }

    /// Records a command; `options` say which kernel events.
    pub(crate) fn record(&self, options: &[&str], command: &[OsString]) -> Recording {
        let file = self.path("a.etl");
        let mut all: Vec<OsString> = vec!["record".into(), "-o".into(), file.clone().into()];
        all.extend(options.iter().map(OsString::from));
        all.push("--".into());
        all.extend_from_slice(command);
        let run = self.daemon.weir(all);
        Recording { file, truth: Truth::of(&run.text()), run }
    }

    /// Records a command until nothing is lost, as happens where the machine is busy with other things.
    #[track_caller]
    pub(crate) fn record_whole(&self, options: &[&str], command: &[OsString]) -> Recording {
        for _ in 0..ATTEMPTS {
            let recording = self.record(options, command);
            // The status is the command's.
            assert_eq!(recording.run.code, 0, "{}", recording.run.stderr);
            if !recording.run.stderr.contains("warning: lost") {
                return recording;
            }
        }
        panic!("events are lost each time");
    }
}

/// What was recorded, and what the workload said about itself.
pub(crate) struct Recording {
    pub(crate) file: PathBuf,
    pub(crate) truth: Truth,
    pub(crate) run: Run,
}

impl Recording {
    /// The events of a file that must be sound.
    #[track_caller]
    pub(crate) fn trace(&self) -> Trace {
        weir(["check".as_ref(), self.file.as_os_str()]).expect(0);
        Trace::read(&self.file, &[])
    }

    /// A report as rows.
    #[track_caller]
    pub(crate) fn report(&self, about: &str, options: &[&str]) -> Vec<serde_json::Value> {
        let mut all: Vec<&OsStr> = vec!["report".as_ref(), about.as_ref(), "--json".as_ref()];
        all.extend(["--top", "0"].map(OsStr::new));
        all.extend(options.iter().map(OsStr::new));
        all.push(self.file.as_os_str());
        weir(all).expect(0).json()
    }
}

/// Lines of a name and numbers.
#[derive(Debug)]
pub(crate) struct Truth(BTreeMap<String, Vec<u64>>);

impl Truth {
    pub(crate) fn of(text: &str) -> Self {
        let line = |line: &str| {
            let (name, numbers) = line.split_once(' ')?;
            let numbers: Option<Vec<u64>> = numbers.split(' ').map(|it| it.parse().ok()).collect();
            Some((name.to_owned(), numbers?))
        };
        Self(text.lines().filter_map(line).collect())
    }

    #[track_caller]
    pub(crate) fn all(&self, name: &str) -> &[u64] {
        self.0.get(name).unwrap_or_else(|| panic!("the workload does not tell {name}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn one(&self, name: &str) -> u64 {
        self.all(name)[0]
    }
}

/// The compiled program, once for all tests; `None` where there is no compiler.
fn workload() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("workload");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kernel/workload.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-inline"]);
        let status = compiler.args(["-pthread", "-o"]).arg(&program).arg(source).status().ok()?;
        assert!(status.success(), "the workload compiles");
        Some((folder, program))
    });
    built.as_ref().map(|(_, program)| program.clone())
}
