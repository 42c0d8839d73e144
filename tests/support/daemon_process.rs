//! A `weir daemon` in its own process, which tests stop, kill and restart in the same folder.
#![allow(dead_code)] // Each test program uses only some of these functions.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Connection;

use super::wait::{TEST_TIMEOUT, until};

/// Returns the path of the command under test.
pub(crate) fn weir() -> PathBuf {
    env!("CARGO_BIN_EXE_weir").into()
}

/// A daemon process that accepts connections. Dropping this value kills the daemon.
pub(crate) struct DaemonProcess(Child);

impl DaemonProcess {
    /// Starts a daemon in this folder and sends its standard error to `log`.
    #[track_caller]
    pub(crate) fn start(runtime: &Path, log: impl Into<Stdio>) -> Self {
        Self::start_by(Command::new(weir()), runtime, log)
    }

    /// Like [`start`](Self::start), but with a command that runs `weir` as another user or with
    /// other limits.
    #[track_caller]
    pub(crate) fn start_by(mut command: Command, runtime: &Path, log: impl Into<Stdio>) -> Self {
        command.args(["daemon", "--runtime-dir"]).arg(runtime);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut daemon = Self(command.spawn().expect("weir daemon did not start"));
        let socket = RuntimeDir::from_path(runtime).control_socket();
        until("the daemon accepts connections", || {
            let status = daemon.try_exit_status();
            assert!(status.is_none(), "the daemon ended: {status:?}");
            Connection::connect(&socket, TEST_TIMEOUT).is_ok()
        });
        daemon
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("the daemon has ended");
    }

    /// Returns the exit status if the daemon has ended.
    pub(crate) fn try_exit_status(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("the daemon cannot be waited for")
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.0.wait().expect("the daemon cannot be waited for")
    }

    /// Ends the daemon with SIGTERM, as a service manager does, and waits for it.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        // The daemon may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
