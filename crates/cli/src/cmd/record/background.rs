//! A recording that another command runs beside its own work.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::setup::{self, RecordedEvents};
use super::stop_session;
use crate::cli::{DaemonChoice, KernelEvents, RecordArgs};
use crate::grammar::EnableRequest;
use crate::sessions::{self, SessionEnd, StartedSession};

/// A running recording. Dropping it stops the session, and the daemon finalises the file.
pub(in crate::cmd) struct BackgroundRecording {
    session: StartedSession,
    file: PathBuf,
}

impl BackgroundRecording {
    /// Starts to record to a new file in the current folder.
    pub(in crate::cmd) fn start(
        requests: Vec<EnableRequest>,
        kernel: KernelEvents,
        daemon_choice: DaemonChoice,
    ) -> Result<Self> {
        let options = RecordArgs { all: true, daemon_choice, ..RecordArgs::default() };
        let (plan, file) = setup::build_plan(&options)?;
        let events =
            RecordedEvents { requests, named_requests: Vec::new(), kernel, is_kernel_optional: false };
        let (session, ..) = events.start(&options, plan)?;
        Ok(Self { session, file })
    }

    /// Returns the file.
    pub(in crate::cmd) fn file(&self) -> &Path {
        &self.file
    }

    /// Ends the recording, and prints what the file contains to standard error.
    pub(in crate::cmd) fn stop(self) -> Result<()> {
        match stop_session(self.session, None, false)? {
            SessionEnd::ByUs(summary) | SessionEnd::BeforeStop(summary) => {
                sessions::print_summary(&summary, false)?;
            }
            SessionEnd::WithDaemon(socket) => {
                anyhow::bail!("{}", super::describe_daemon_end(&socket, &self.file));
            }
        }
        Ok(())
    }
}
