//! Builds and starts sessions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::info::{ClassicEventId, Set};
use traceweir_format::spec::enable::{SESSION_FILTER_DESCRIBE_PROCESSES, SESSION_FILTER_PROCESS_TREES};
use traceweir_format::spec::session::LogFileMode;
use traceweir_format::time::ClockKind;
use traceweir_transport::message::{self, SessionConfig};
use traceweir_transport::runtime::Scope;

use super::{ProcessTree, Session, SessionHost, SessionSummary};
use crate::controller::Controller;
use crate::error::Result;
use crate::private::PrivateSession;

/// Modes that determine how a log file is written, or add live delivery.
const FILE_MODES: LogFileMode = LogFileMode::SEQUENTIAL
    .union(LogFileMode::CIRCULAR)
    .union(LogFileMode::APPEND)
    .union(LogFileMode::NEWFILE)
    .union(LogFileMode::BUFFERING)
    .union(LogFileMode::REAL_TIME);

/// The process in which a session is started.
#[derive(Clone, Debug)]
enum StartTarget {
    InProcess,
    Daemon(Option<Scope>),
    DaemonAt(PathBuf),
    Connected(Controller),
}

/// Settings of a session to be started; [`Session::builder`] creates it.
///
/// Unset settings have the defaults of ETW: buffers of 64 KiB, at least two for each processor and
/// up to 20 more, no size limit, the performance counter as clock.
///
/// ```no_run
/// use std::time::Duration;
/// use traceweir::{LogFileMode, Session};
///
/// // The newest 100 MiB of events, written at least once a second.
/// let session = Session::builder("ring")
///     .log_file("ring.etl")
///     .mode(LogFileMode::CIRCULAR)
///     .maximum_file_mib(100)
///     .flush_timer(Duration::from_secs(1))
///     .start()?;
/// # Ok::<(), traceweir::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a session does not run until it is started"]
pub struct SessionBuilder {
    target: StartTarget,
    config: SessionConfig,
}

impl SessionBuilder {
    pub(super) fn new(name: String) -> Self {
        let config = SessionConfig { name, ..SessionConfig::default() };
        Self { target: StartTarget::Daemon(None), config }
    }

    /// Runs the session in this process, without a daemon. It gets the events of this process only.
    ///
    /// A process can run three such sessions at a time.
    pub fn in_process(mut self) -> Self {
        self.target = StartTarget::InProcess;
        self
    }

    /// Runs the session in the daemon of this scope: that of the system, that of the user, or the
    /// one that `TRACEWEIR_RUNTIME_DIR` names.
    ///
    /// Without this call, a running daemon of the system is preferred if the user may control it.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.target = StartTarget::Daemon(Some(scope));
        self
    }

    /// Runs the session in the daemon of this runtime folder.
    pub fn daemon_at(mut self, folder: impl Into<PathBuf>) -> Self {
        self.target = StartTarget::DaemonAt(folder.into());
        self
    }

    /// Runs the session in the daemon that this controller is connected to.
    ///
    /// The session and the controller share one connection, so
    /// [`stop_on_drop`](Self::stop_on_drop) takes effect only when both are dropped.
    pub fn daemon(mut self, controller: &Controller) -> Self {
        self.target = StartTarget::Connected(controller.clone());
        self
    }

    /// Writes the events to this file, which is opened with the rights of this process.
    ///
    /// The log is sequential unless [`mode`](Self::mode) selects another kind.
    pub fn log_file(mut self, path: impl AsRef<Path>) -> Self {
        self.config.log_file = Some(path.as_ref().to_owned());
        self
    }

    /// Adds mode bits, such as [`LogFileMode::CIRCULAR`].
    pub fn mode(mut self, mode: LogFileMode) -> Self {
        self.config.log_file_mode |= mode.bits();
        self
    }

    /// Delivers the events live, to [`Session::trace`] or to another program; a log file may be
    /// written too.
    pub fn real_time(self) -> Self {
        self.mode(LogFileMode::REAL_TIME)
    }

    /// Keeps the newest events in memory only, until [`Session::snapshot`] writes them.
    pub fn flight_recorder(self) -> Self {
        self.mode(LogFileMode::BUFFERING)
    }

    /// Sets the GUID of the session; without one, it gets a random GUID.
    pub fn guid(mut self, guid: Guid) -> Self {
        self.config.guid = guid;
        self
    }

    /// Sets the clock of the time stamps.
    pub fn clock(mut self, clock: ClockKind) -> Self {
        self.config.clock = clock.number();
        self
    }

    /// Sets the size of a buffer in KiB, 4 to 16384.
    pub fn buffer_kib(mut self, kib: u32) -> Self {
        self.config.buffer_size = kib;
        self
    }

    /// Sets the smallest number of buffers.
    pub fn minimum_buffers(mut self, buffers: u32) -> Self {
        self.config.minimum_buffers = buffers;
        self
    }

    /// Sets the largest number of buffers.
    pub fn maximum_buffers(mut self, buffers: u32) -> Self {
        self.config.maximum_buffers = buffers;
        self
    }

    /// Sets the size limit of the log file in MiB. The mode determines what happens at the limit.
    pub fn maximum_file_mib(mut self, mib: u32) -> Self {
        self.config.log_file_mode &= !LogFileMode::USE_KBYTES_FOR_SIZE.bits();
        self.config.maximum_file_size = mib;
        self
    }

    /// Sets the size limit of the log file in KiB, like
    /// [`maximum_file_mib`](Self::maximum_file_mib) ([`LogFileMode::USE_KBYTES_FOR_SIZE`]).
    pub fn maximum_file_kib(mut self, kib: u32) -> Self {
        self.config.log_file_mode |= LogFileMode::USE_KBYTES_FOR_SIZE.bits();
        self.config.maximum_file_size = kib;
        self
    }

    /// Sets the time after which partly filled buffers are written, rounded up to whole seconds.
    ///
    /// Without it, only full buffers are written; a live session uses one second.
    pub fn flush_timer(mut self, timer: Duration) -> Self {
        self.config.flush_timer = round_up_to_seconds(timer);
        self
    }

    /// Sets the number of full buffers that are written together.
    pub fn flush_threshold(mut self, buffers: u32) -> Self {
        self.config.flush_threshold = buffers;
        self
    }

    /// Delivers each event within milliseconds, at the price of more processor time.
    pub fn low_latency(mut self) -> Self {
        self.config.low_latency = true;
        self
    }

    /// Selects groups of kernel events (EnableFlags), for system loggers.
    pub fn kernel_flags(mut self, flags: u32) -> Self {
        self.config.enable_flags = flags;
        self
    }

    /// Copies this many bytes of user stack with each stack of a kernel event, so that stacks of
    /// programs without frame pointers can be unwound.
    pub fn kernel_stack_bytes(mut self, bytes: u32) -> Self {
        self.config.stack_bytes = bytes;
        self
    }

    /// Records the call stack with each of these kernel events, from the start of the session; for
    /// system loggers.
    pub fn kernel_stacks(mut self, events: &[ClassicEventId]) -> Self {
        self.config.kernel_stacks = Set::StackTracing(events.to_vec()).to_bytes();
        self
    }

    /// Writes an event for each process that takes part to the front of the log file, so that readers
    /// can name the processes of events. The session does not count these events. Not for private
    /// sessions and system loggers.
    pub fn describe_processes(mut self) -> Self {
        if !self.config.describes_processes() {
            self.config
                .filters
                .push(message::Filter { kind: SESSION_FILTER_DESCRIBE_PROCESSES, data: Vec::new() });
        }
        self
    }

    /// Restricts kernel events to these process trees, for system loggers; without trees, kernel
    /// events cover all processes.
    ///
    /// Events belong to the process that was running. A context switch is recorded if one of its
    /// threads is in a tree. Disk requests and network events belong to the process that issued
    /// the request or owns the socket; the daemon leaves out those that it cannot attribute. The
    /// scope does not apply to the providers of a session.
    pub fn kernel_scope(mut self, trees: &[ProcessTree]) -> Self {
        self.config.filters.retain(|filter| filter.kind != SESSION_FILTER_PROCESS_TREES);
        if !trees.is_empty() {
            let trees: Vec<_> = trees.iter().map(|tree| tree.0).collect();
            self.config.filters.push(message::ProcessTree::encode(&trees));
        }
        self
    }

    /// Sets the size in bytes of each ring that processes write to.
    pub fn ring_bytes(mut self, bytes: u32) -> Self {
        self.config.ring_bytes = bytes;
        self
    }

    /// Stops a session of a daemon when its [`Session`] is dropped or this program ends, even by a
    /// crash. A session in this process always ends with its [`Session`] or with the program.
    pub fn stop_on_drop(mut self) -> Self {
        self.config.tied = true;
        self
    }

    /// Starts the session; starts a daemon if one is needed and none runs.
    ///
    /// Fails with `ERROR_ALREADY_EXISTS` if a session of this name runs; with
    /// `ERROR_INVALID_PARAMETER` for modes that contradict each other; with `ERROR_BAD_PATHNAME` if
    /// the mode needs a log file and none is set; with [`Error::NoDaemon`](crate::Error::NoDaemon)
    /// if no daemon could be started.
    pub fn start(self) -> Result<Session> {
        Ok(self.start_with_summary()?.0)
    }

    /// Starts the session like [`start`](Self::start), and also returns its adjusted settings,
    /// without a further call of [`Session::query`].
    pub fn start_with_summary(self) -> Result<(Session, SessionSummary)> {
        let Self { target, mut config } = self;
        if config.log_file.is_some() && !LogFileMode::new(config.log_file_mode).intersects(FILE_MODES) {
            config.log_file_mode |= LogFileMode::SEQUENTIAL.bits();
        }
        let mut controller = match target {
            StartTarget::InProcess => {
                let session = PrivateSession::start(&config)?;
                let summary = SessionSummary::from_message(session.query());
                return Ok((Session { host: SessionHost::InProcess(session) }, summary));
            }
            StartTarget::Daemon(scope) => Controller::find_or_start(scope)?,
            StartTarget::DaemonAt(folder) => Controller::find_or_start_at(&folder)?,
            StartTarget::Connected(controller) => controller,
        };
        let summary = SessionSummary::from_message(controller.start(&config)?);
        Ok((controller.session_with_id(summary.id), summary))
    }
}

pub(super) fn round_up_to_seconds(duration: Duration) -> u32 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() != 0));
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_timers_round_up_to_whole_seconds() {
        assert_eq!(round_up_to_seconds(Duration::ZERO), 0);
        assert_eq!(round_up_to_seconds(Duration::from_millis(1)), 1);
        assert_eq!(round_up_to_seconds(Duration::from_secs(3)), 3);
        assert_eq!(round_up_to_seconds(Duration::MAX), u32::MAX);
    }
}
