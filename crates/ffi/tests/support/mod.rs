//! Support for tests of the C interface: compilers, the library as it was just built, and a daemon
//! with a session to write to.
#![allow(dead_code)] // Each test program uses a part of this module.

pub(crate) mod library;
#[path = "../../../../tests/support/skip.rs"]
pub(crate) mod skip;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use traceweir::Guid;
use traceweir::controller::{Controller, EnableCode, EnableParams, Scope, SessionConfig, SessionRef};
use traceweir_daemon::{Options, RuntimeDir, Stopper, run_until};
use traceweir_format::etl;
use traceweir_format::header::Record;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;

pub(crate) use skip::skip;

/// A generous limit for any step on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Flags that every source of this project compiles with.
pub(crate) const STRICT_FLAGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"];

/// Returns whether an optional program is installed; reports a skip if not.
#[track_caller]
pub(crate) fn has_program(program: &str) -> bool {
    let is_installed = Command::new(program).arg("--version").output().is_ok_and(|run| run.status.success());
    if !is_installed {
        skip(program, &format!("{program} is not installed"));
    }
    is_installed
}

/// Flags for the sanitizers.
pub(crate) const SANITIZER_FLAGS: [&str; 3] =
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

/// Returns whether a compiler has sanitizers; reports a skip if not.
#[track_caller]
pub(crate) fn has_sanitizers(compiler: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let (probe, program) = (folder.path().join("probe.c"), folder.path().join("probe"));
    std::fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
    let mut command = Command::new(compiler);
    command.args(SANITIZER_FLAGS).args(["-xc"]).arg(&probe).arg("-o").arg(&program);
    let can_link = command.output().is_ok_and(|linked| linked.status.success());
    if !can_link {
        skip("sanitizers", &format!("{compiler} has no sanitizers"));
    }
    can_link
}

/// Returns the number of rows (checked calls or values) that a C program printed at its end. Tests
/// compare it with a lower limit, so that a program which checks too little does not pass.
#[track_caller]
pub(crate) fn checked_rows(output: &str) -> u32 {
    let line = output.lines().find_map(|line| line.strip_prefix("rows: "));
    line.unwrap_or_else(|| panic!("the program did not print its rows: {output}")).parse().unwrap()
}

/// Returns the path of a file or folder of this crate.
pub(crate) fn crate_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A language with its compilers. `gcc` is required to build the project; the others are optional.
pub(crate) struct Language {
    pub(crate) extension: &'static str,
    pub(crate) compilers: [&'static str; 2],
    pub(crate) standards: [&'static str; 2],
}

pub(crate) const C: Language =
    Language { extension: "c", compilers: ["gcc", "clang"], standards: ["c11", "c17"] };
pub(crate) const CPP: Language =
    Language { extension: "cc", compilers: ["g++", "clang++"], standards: ["c++17", "c++20"] };

impl Language {
    /// Returns the installed compilers.
    #[track_caller]
    pub(crate) fn compilers(&self) -> impl Iterator<Item = &'static str> {
        self.compilers.into_iter().filter(|compiler| *compiler == "gcc" || has_program(compiler))
    }
}

/// How a program is linked with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Shared,
    Static,
}

/// A folder with programs, and the library under the names that C uses.
pub(crate) struct ProgramFolder {
    pub(crate) folder: TempDir,
}

impl ProgramFolder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = library_folder();
        for (name, file) in [
            ("libtraceweir.so", "libtraceweir_c.so"),
            ("libtraceweir.so.0", "libtraceweir_c.so"),
            ("libtraceweir.a", "libtraceweir_c.a"),
        ] {
            symlink(library.join(file), folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a source with strict flags into a program next to the library.
    #[track_caller]
    pub(crate) fn build(&self, compiler: &str, source: &Path, flags: &[&str], link: Link) -> PathBuf {
        let program = self.path(&format!("{}-{compiler}", source.file_stem().unwrap().to_string_lossy()));
        let mut command = Command::new(compiler);
        command
            .args(STRICT_FLAGS)
            .args(flags)
            .arg("-g")
            .arg("-I")
            .arg(crate_path("include"))
            .arg(source)
            .arg("-o")
            .arg(&program);
        match link {
            Link::Shared => {
                // The old kind of run path precedes LD_LIBRARY_PATH, in which cargo may have
                // another build of the library.
                command
                    .arg("-L")
                    .arg(self.folder.path())
                    .arg("-ltraceweir")
                    .arg("-Wl,-rpath,$ORIGIN,--disable-new-dtags");
            }
            Link::Static => {
                command.arg(self.path("libtraceweir.a")).args([
                    "-lgcc_s",
                    "-lutil",
                    "-lrt",
                    "-lpthread",
                    "-lm",
                    "-ldl",
                ]);
            }
        }
        expect_success(&mut command);
        program
    }
}

/// Returns the folder of an optimized library that is tested instead of the library built with
/// these tests.
pub(crate) fn optimized_library_folder() -> Option<PathBuf> {
    std::env::var_os("TRACEWEIR_OPTIMIZED_LIBRARY").map(PathBuf::from)
}

/// Returns the folder of the library, which is the folder of this program unless an optimized
/// library is tested.
fn library_folder() -> PathBuf {
    if let Some(folder) = optimized_library_folder() {
        return std::path::absolute(folder).unwrap();
    }
    let test_program = std::env::current_exe().unwrap();
    test_program.parent().expect("the test program is in no folder").to_owned()
}

/// Returns the folder of `libtraceweir-wide.a`. The first call builds the library if it is out of
/// date.
pub(crate) fn wide_library_folder() -> &'static Path {
    static FOLDER: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        expect_success(Command::new(crate_path("wide/build.sh")).arg(&folder));
        folder
    })
}

/// Runs a command that must succeed.
#[track_caller]
pub(crate) fn expect_success(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{out}\n{err}");
    out.into_owned()
}

/// A daemon in a thread, with a temporary runtime directory; stops on drop.
pub(crate) struct TestDaemon {
    pub(crate) folder: TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl TestDaemon {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::from_path(folder.path());
        Self::start(folder, runtime)
    }

    /// Starts a system daemon, which other users may use as guests; needs root.
    pub(crate) fn for_all_users() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mut runtime = RuntimeDir::from_path(folder.path());
        runtime.scope = Scope::System;
        Self::start(folder, runtime)
    }

    fn start(folder: TempDir, runtime: RuntimeDir) -> Self {
        let stopper = Stopper::new().unwrap();
        let (options, thread_stopper) = (Options::new(runtime), stopper.clone());
        let thread = std::thread::spawn(move || run_until(options, &thread_stopper).unwrap());
        let start = Instant::now();
        while !Controller::find_at(folder.path()).is_ok_and(|controller| controller.is_some()) {
            assert!(start.elapsed() < STEP_TIMEOUT, "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(2));
        }
        Self { folder, stopper, thread: Some(thread) }
    }

    pub(crate) fn controller(&self) -> Controller {
        Controller::find_at(self.folder.path()).unwrap().expect("the daemon does not answer")
    }

    /// Makes a command for a program whose providers find this daemon.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("TRACEWEIR_RUNTIME_DIR", self.folder.path());
        command
    }

    /// Starts a session that records all events of some providers into a file.
    pub(crate) fn record(
        &self,
        name: &str,
        providers: &[Guid],
        params: &EnableParams,
    ) -> RecordingSession<'_> {
        self.record_with_config(name, providers, params, SessionConfig::default())
    }

    /// Like [`Self::record`], with the other settings of `config`.
    pub(crate) fn record_with_config(
        &self,
        name: &str,
        providers: &[Guid],
        params: &EnableParams,
        config: SessionConfig,
    ) -> RecordingSession<'_> {
        let file = self.folder.path().join(name).with_extension("etl");
        let mut controller = self.controller();
        let config = SessionConfig {
            name: name.to_owned(),
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            log_file: Some(file.clone()),
            ..config
        };
        let session = SessionRef::Id(controller.start(&config).unwrap().id);
        for provider in providers {
            controller.enable(&session, *provider, EnableCode::Enable, params, 30_000).unwrap();
        }
        RecordingSession { daemon: self, session, file }
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            assert!(result.is_ok() || std::thread::panicking());
        }
    }
}

/// A running session that records into a file.
pub(crate) struct RecordingSession<'a> {
    daemon: &'a TestDaemon,
    session: SessionRef,
    file: PathBuf,
}

impl RecordingSession<'_> {
    /// Requests the state of a provider.
    pub(crate) fn capture_state(&self, provider: Guid, params: &EnableParams) {
        let mut controller = self.daemon.controller();
        controller.enable(&self.session, provider, EnableCode::CaptureState, params, 30_000).unwrap();
    }

    /// Stops the session and returns a view of each provider event, in time order. Asserts that
    /// `expected_lost` events were lost.
    pub(crate) fn stop<T>(self, expected_lost: u64, view: impl FnMut(&Record<'_>) -> T) -> Vec<T> {
        self.stop_with(expected_lost, |_| (), view)
    }

    /// Like [`Self::stop`], and passes the events that the session itself wrote to
    /// `on_session_event`.
    pub(crate) fn stop_with<T>(
        self,
        expected_lost: u64,
        on_session_event: impl FnMut(&Record<'_>),
        view: impl FnMut(&Record<'_>) -> T,
    ) -> Vec<T> {
        self.stop_and_check(Some(expected_lost), on_session_event, view)
    }

    /// Like [`Self::stop`], with any number of lost events.
    pub(crate) fn stop_with_any_loss<T>(self, view: impl FnMut(&Record<'_>) -> T) -> Vec<T> {
        self.stop_and_check(None, |_| (), view)
    }

    fn stop_and_check<T>(
        self,
        expected_lost: Option<u64>,
        mut on_session_event: impl FnMut(&Record<'_>),
        mut view: impl FnMut(&Record<'_>) -> T,
    ) -> Vec<T> {
        let end = self.daemon.controller().stop(&self.session).unwrap();
        assert!(
            expected_lost.is_none_or(|lost| end.events_lost == lost),
            "{} events were lost, not {expected_lost:?}",
            end.events_lost
        );
        let trace = etl::Trace::open(std::fs::File::open(&self.file).unwrap()).unwrap();
        let mut events = trace.events();
        let mut views = Vec::new();
        while let Some(record) = events.next().unwrap() {
            if record.provider() == traceweir_format::spec::event::class::EVENT_TRACE {
                on_session_event(&record);
            } else {
                views.push(view(&record));
            }
        }
        views
    }
}
