//! Tests of providers: registration, callbacks, private sessions, and behaviour at fork, exit,
//! signals and library unload.
//!
//! Registrations belong to a process, so every test runs its scenario in a separate process: this
//! program, started again with the name of a scenario. The test checks what the scenario leaves in
//! its folder, or plays the daemon for it.

#[path = "../../../../tests/support/alarm.rs"]
mod alarm;
mod callbacks;
#[path = "../../../../tests/support/control_group.rs"]
mod control_group;
mod daemon;
#[path = "../../../../tests/support/daemon_thread.rs"]
mod daemon_thread;
mod descriptors;
mod early;
mod failures;
mod filters;
mod forbidden;
mod fork;
mod items;
mod late;
mod links;
mod own_socket;
mod private;
mod private_for_daemon;
#[path = "../../../../tests/support/sandbox.rs"]
mod sandbox;
mod scopes;
mod several;
#[path = "../../../../tests/support/skip.rs"]
mod skip;
mod slow_thread;
#[path = "../../../../tests/support/stopped_thread.rs"]
mod stopped_thread;
mod table;
mod traits;
mod unload;
#[path = "../../../../tests/support/wait.rs"]
mod wait;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::{EventDescriptor, Guid};
use traceweir_format::etl;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;

use wait::{TEST_TIMEOUT, eventually, until};

/// Environment variable with the name of the scenario that this process runs.
const SCENARIO: &str = "TRACEWEIR_TEST_SCENARIO";
/// Environment variable with the folder of the scenario.
const FOLDER: &str = "TRACEWEIR_TEST_FOLDER";

/// Runs the scenario that this process was started for, if any.
#[test]
fn scenario() {
    let Ok(name) = std::env::var(SCENARIO) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let scenarios = [
        callbacks::SCENARIOS,
        descriptors::SCENARIOS,
        early::SCENARIOS,
        failures::SCENARIOS,
        filters::SCENARIOS,
        forbidden::SCENARIOS,
        fork::SCENARIOS,
        items::SCENARIOS,
        late::SCENARIOS,
        links::SCENARIOS,
        private_for_daemon::SCENARIOS,
        own_socket::SCENARIOS,
        private::SCENARIOS,
        scopes::SCENARIOS,
        several::SCENARIOS,
        slow_thread::SCENARIOS,
        table::SCENARIOS,
        traits::SCENARIOS,
        unload::SCENARIOS,
    ]
    .concat();
    let (_, run) = scenarios.into_iter().find(|(scenario, _)| *scenario == name).unwrap();
    run(&folder);
}

/// The name of a scenario, and the function that runs it in a folder.
type Scenario = (&'static str, fn(&Path));

/// Runs scenarios in a temporary folder.
struct ScenarioRunner {
    folder: tempfile::TempDir,
}

impl ScenarioRunner {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the runtime directory that the providers and the daemon share.
    fn runtime(&self) -> PathBuf {
        self.path("run")
    }

    fn command(&self, scenario: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["scenario", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(SCENARIO, scenario).env(FOLDER, self.folder.path());
        command.env("TRACEWEIR_RUNTIME_DIR", self.runtime()).env_remove("TRACEWEIR_NO_RSEQ");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn set_mark(&self, name: &str) {
        set_mark(self.folder.path(), name);
    }

    fn wait_for_mark(&self, name: &str) {
        wait_for_mark(self.folder.path(), name);
    }

    fn spawn(&self, scenario: &str) -> RunningScenario {
        RunningScenario(Some(self.command(scenario).spawn().unwrap()))
    }

    /// Runs a scenario to its end, and asserts that it succeeds.
    fn run(&self, scenario: &str) {
        self.run_with(scenario, |_| ());
    }

    fn run_with(&self, scenario: &str, configure: impl FnOnce(&mut Command)) {
        let mut command = self.command(scenario);
        configure(&mut command);
        assert_success(&command.output().unwrap());
    }
}

/// A running scenario, which is killed if the test fails before the scenario ends.
struct RunningScenario(Option<Child>);

impl RunningScenario {
    fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    fn assert_success(mut self) {
        assert_success(&self.0.take().unwrap().wait_with_output().unwrap());
    }

    fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for RunningScenario {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn assert_success(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
}

/// Creates an empty file, for which another process waits with [`wait_for_mark`].
fn set_mark(folder: &Path, name: &str) {
    std::fs::write(folder.join(name), "").unwrap();
}

fn wait_for_mark(folder: &Path, name: &str) {
    until(name, || folder.join(name).exists());
}

const PROVIDER: Guid = Guid::from_u128(0x8a2f_61c4_0d3b_4e55_9c71_2b4d_6f80_a1e3);

/// TRACE_LEVEL_INFORMATION, the level of the events in these tests.
const INFORMATION: u8 = 4;

fn event(id: u16) -> EventDescriptor {
    EventDescriptor { id, level: INFORMATION, ..EventDescriptor::default() }
}

/// Returns the parameters of an enable of all levels and keywords.
fn all_events() -> EnableParams {
    EnableParams::default()
}

fn file_config(name: &str, file: PathBuf) -> SessionConfig {
    SessionConfig {
        name: name.to_owned(),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some(file),
        maximum_buffers: 400,
        ring_bytes: 1 << 20,
        ..SessionConfig::default()
    }
}

/// One event in a file.
#[derive(Debug)]
struct RecordedEvent {
    id: u16,
    thread: u32,
    process: u32,
    /// Timestamp in ticks of the session's clock.
    time: i64,
    flags: u16,
    payload: Vec<u8>,
    /// Whether the event has a call stack.
    has_stack: bool,
}

impl RecordedEvent {
    /// Returns the first eight bytes of the payload as a number.
    fn payload_number(&self) -> u64 {
        u64::from_le_bytes(self.payload[..8].try_into().unwrap())
    }
}

/// Returns the events of [`PROVIDER`] in a file, and the file's count of lost events. Asserts that
/// the file is finalised and breaks no rule.
fn read_events(path: &Path) -> (Vec<RecordedEvent>, u64) {
    read_events_of(path, PROVIDER)
}

/// Like [`read_events`], for another provider.
fn read_events_of(path: &Path, provider: Guid) -> (Vec<RecordedEvent>, u64) {
    let trace = etl::Trace::open(std::fs::File::open(path).unwrap()).unwrap();
    assert!(trace.is_finalised(), "{}", path.display());
    assert!(trace.defects().is_empty(), "{:?}", trace.defects());
    etl::check(&trace, &mut |finding| assert!(finding.rule.is_remark(), "{finding:?}")).unwrap();
    let mut recorded = Vec::new();
    let mut events = trace.events();
    while let Some(record) = events.next().unwrap() {
        if record.provider() == provider {
            recorded.push(RecordedEvent {
                id: record.descriptor().id,
                thread: record.thread_id(),
                process: record.process_id(),
                time: record.time(),
                flags: record.flags(),
                payload: record.payload().to_vec(),
                has_stack: record.items().stack().is_some(),
            });
        }
    }
    (recorded, u64::from(trace.header().events_lost))
}
