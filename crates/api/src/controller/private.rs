//! Private sessions in other processes: their files are opened there, so only names go along.

use std::path::{Path, PathBuf};

use traceweir_format::spec::session::{EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE};
use traceweir_transport::message::{Control, Message, Properties, SessionConfig, SessionRef, Update};

use super::{Controller, LONG_PATIENCE, PATIENCE};
use crate::error::{Error, Result};

/// Whether the processes of a provider run this session.
pub(super) fn is_private(config: &SessionConfig) -> bool {
    let kind = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;
    config.log_file_mode & kind == EVENT_TRACE_PRIVATE_LOGGER_MODE
}

impl Controller {
    /// Has the processes of a provider run a session that was judged.
    pub(super) fn start_private(&mut self, config: &SessionConfig) -> Result<Properties> {
        let log_file = config.log_file.as_deref().map(absolute).transpose()?;
        let config = SessionConfig { log_file, ..config.clone() };
        let answer = self.ask(&Message::Start(Box::new(config)), &[], PATIENCE);
        self.properties(answer, None)
    }

    /// Has them change their log files.
    pub(super) fn update_private(&mut self, session: &SessionRef, update: Update) -> Result<Properties> {
        let log_file = update.log_file.as_deref().map(absolute).transpose()?;
        self.control(session, Control::Update(Update { log_file, ..update }), None, LONG_PATIENCE)
    }

    /// Has them write their snapshots.
    pub(super) fn flush_private(&mut self, session: &SessionRef, path: &Path) -> Result<Properties> {
        let log_file = Some(absolute(path)?);
        self.control(session, Control::Flush { log_file }, None, LONG_PATIENCE)
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::File { path: path.to_owned(), source })
}
