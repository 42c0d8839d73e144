//! The cost of an event that a filter rejects, and of a site (the place in a program that writes an
//! event) in an excluded process.
//!
//! ```text
//!   filtered_id_vs_write             an event that a filter rejects: the larger of the costs with
//!                                    64 ids and with 16 names
//!                                    vs. the same event, written
//!   filtered_pid_extra_instructions  a site in a process that a process-id filter excludes
//!                                    vs. a site that is not enabled
//! ```

use traceweir::Session;
use traceweir::session::Filter;

use crate::error::Result;
use crate::write::ours::{self, BenchDaemon};

/// A session that enables the bench's provider only in this process. The measured process is a
/// child, which the filter excludes.
pub(crate) struct ExcludingSession {
    session: Session,
}

impl ExcludingSession {
    pub(crate) fn start(daemon: &BenchDaemon, file: &std::path::Path) -> Result<Self> {
        let session = ours::plain_session(file).daemon_at(daemon.runtime());
        let filter = Filter::process_ids(&[std::process::id()]);
        Ok(Self { session: ours::start_session(session, Some(filter))? })
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.session.stop()?;
        Ok(())
    }
}
