//! A daemon for one test, and control connections to it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use traceweir_format::Guid;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;
use traceweir_transport::live::{ConsumerEnds, QueueReader};
use traceweir_transport::message::{
    Control, EnableCode, EnableParams, Message, Properties, Role, SessionConfig, SessionRef, VERSIONS,
};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::{Connection, Envelope};

use crate::roles::{LEVEL_VERBOSE, PROVIDER, Report, Writer};
use crate::util::daemon_process::DaemonProcess;
pub(crate) use crate::util::daemon_process::weir;
use crate::util::eventually;
pub(crate) use crate::util::wait::{TEST_TIMEOUT, until};

/// A daemon in its own process and folder.
pub(crate) struct Daemon {
    process: DaemonProcess,
    folder: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        let folder =
            tempfile::Builder::new().prefix("weir-accounts-").tempdir().expect("no temporary folder");
        let process = DaemonProcess::start(&folder.path().join("run"), Stdio::inherit());
        Self { process, folder }
    }

    /// Starts another daemon in the same folder, after the previous daemon has ended.
    pub(crate) fn restart(&mut self) {
        self.process = DaemonProcess::start(&self.runtime(), Stdio::inherit());
    }

    pub(crate) fn runtime(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.process.wait()
    }

    /// Opens a connection with the role of a controller.
    pub(crate) fn connect(&self) -> DaemonConnection {
        DaemonConnection::open(&self.runtime(), Role::Controller)
    }

    /// Builds a command that runs this binary as a child with a role, connected to this daemon.
    pub(crate) fn role_command(&self, variable: (&str, String)) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("the test program has no path"));
        command.args(["--exact", "role", "--nocapture", "--test-threads=1"]);
        command.env("TRACEWEIR_RUNTIME_DIR", self.runtime()).env(variable.0, variable.1);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }

    /// Starts a writer process.
    pub(crate) fn spawn_writer(&self, writer: &Writer, path: WritePath) -> Child {
        let mut command = self.role_command(writer.role_variable());
        path.set_variable(&mut command);
        command.spawn().expect("a writer did not start")
    }
}

/// The two write paths of a provider: with restartable sequences (rseq) or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePath {
    Sequence,
    Lock,
}

impl WritePath {
    pub(crate) const BOTH: [Self; 2] = [Self::Sequence, Self::Lock];

    pub(crate) fn set_variable(self, command: &mut Command) {
        match self {
            Self::Sequence => command.env_remove("TRACEWEIR_NO_RSEQ"),
            Self::Lock => command.env("TRACEWEIR_NO_RSEQ", "1"),
        };
    }
}

/// A child process that is killed when this value is dropped.
pub(crate) struct KillOnDrop(pub(crate) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for writers, fails unless they succeed, and adds up their counts.
pub(crate) fn collect_reports(writers: Vec<Child>) -> Report {
    let mut sum = Report::default();
    for writer in writers {
        let output = writer.wait_with_output().expect("the output of a writer cannot be read");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "a writer failed ({}):\n{text}", output.status);
        let report = Report::parse(&text);
        sum.offered += report.offered;
        sum.refused += report.refused;
    }
    sum
}

/// A control connection that speaks the wire protocol without the library's client.
pub(crate) struct DaemonConnection {
    socket: Connection,
    last_request: u32,
}

impl DaemonConnection {
    pub(crate) fn open(runtime: &Path, role: Role) -> Self {
        let path = RuntimeDir::from_path(runtime).control_socket();
        let socket =
            eventually("a daemon that accepts connections", || Connection::connect(&path, TEST_TIMEOUT).ok());
        let mut connection = Self { socket, last_request: 0 };
        let hello = Message::Hello { versions: VERSIONS, role, instance: 1, program: "accounts".to_owned() };
        let answer = connection.ask(&hello, &[]).message;
        assert!(matches!(answer, Message::Welcome { .. }), "the answer is not Welcome: {answer:?}");
        connection
    }

    /// Sends one request and returns its answer.
    pub(crate) fn ask(&mut self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Envelope {
        self.last_request += 1;
        self.socket
            .send(self.last_request, message, descriptors, TEST_TIMEOUT)
            .expect("the request cannot be sent");
        let answer = self
            .socket
            .receive(TEST_TIMEOUT)
            .expect("the answer cannot be received")
            .expect("the answer timed out");
        assert_eq!(answer.request, self.last_request, "not the answer to the request: {:?}", answer.message);
        answer
    }

    #[track_caller]
    fn ask_for_properties(&mut self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Properties {
        match self.ask(message, descriptors).message {
            Message::Properties(properties) => *properties,
            message => panic!("unexpected reply: {message:?}"),
        }
    }

    /// Starts a session, enables the writers' provider and returns the session id.
    #[track_caller]
    pub(crate) fn start(&mut self, config: SessionConfig) -> u64 {
        let id = self.try_start(config).expect("the session did not start");
        self.enable(id, PROVIDER);
        id
    }

    /// Starts a session. Returns its id, or the status of the refusal.
    #[track_caller]
    pub(crate) fn try_start(&mut self, config: SessionConfig) -> Result<u64, u32> {
        let file = config.log_file.as_ref().map(|path| {
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)
                .expect("the log file cannot be opened")
        });
        let descriptors: Vec<BorrowedFd<'_>> = file.iter().map(|f| f.as_fd()).collect();
        match self.ask(&Message::Start(Box::new(config)), &descriptors).message {
            Message::Properties(properties) => Ok(properties.id),
            Message::Refused { status, .. } => Err(status),
            message => panic!("unexpected reply: {message:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn enable(&mut self, session: u64, provider: Guid) {
        let params = EnableParams { level: LEVEL_VERBOSE, ..EnableParams::default() };
        let message = Message::EnableProvider {
            session: SessionRef::Id(session),
            provider,
            code: EnableCode::Enable,
            params: Box::new(params),
            name: String::new(),
            timeout_ms: 60_000,
        };
        let answer = self.ask(&message, &[]).message;
        assert_eq!(answer, Message::Done);
    }

    #[track_caller]
    pub(crate) fn control(&mut self, session: u64, control: Control) -> Properties {
        self.ask_for_properties(&Message::Control { session: SessionRef::Id(session), control }, &[])
    }

    #[track_caller]
    pub(crate) fn stop(&mut self, session: u64) -> Properties {
        self.control(session, Control::Stop)
    }

    #[track_caller]
    pub(crate) fn query(&mut self, session: u64) -> Properties {
        self.control(session, Control::Query)
    }

    #[track_caller]
    pub(crate) fn flush(&mut self, session: u64) -> Properties {
        self.control(session, Control::Flush { log_file: None })
    }
}

/// Opens a live consumer without the library's client. Keep the connection open while reading.
pub(crate) fn open_consumer(daemon: &Daemon, session: u64) -> (DaemonConnection, QueueReader) {
    let mut connection = DaemonConnection::open(&daemon.runtime(), Role::Consumer);
    let answer = connection.ask(&Message::OpenConsumer { session: SessionRef::Id(session) }, &[]);
    let Message::Consumer { slots, buffer_bytes, .. } = answer.message else {
        panic!("unexpected reply: {:?}", answer.message)
    };
    let [queue, cursor, signal] = <[_; 3]>::try_from(answer.descriptors).expect("not three descriptors");
    let reader = QueueReader::open(ConsumerEnds { queue, cursor, signal }, slots, buffer_bytes)
        .expect("the queue cannot be opened");
    (connection, reader)
}

/// Returns the configuration of a session that writes a sequential file.
pub(crate) fn file_session_config(name: &str, path: &Path) -> SessionConfig {
    SessionConfig {
        name: name.to_owned(),
        log_file: Some(path.to_owned()),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        maximum_buffers: 64,
        ..SessionConfig::default()
    }
}
