//! Private sessions in other processes, which open the files themselves: only paths are sent.

use std::path::{Path, PathBuf};

use traceweir_format::spec::session::{EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE};
use traceweir_transport::message::{Control, Message, Properties, SessionConfig, SessionRef, Update};

use super::{Controller, DISK_TIMEOUT, REPLY_TIMEOUT};
use crate::error::{Error, Result};

/// Returns whether the processes of a provider run this session.
pub(super) fn is_private(config: &SessionConfig) -> bool {
    let modes = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;
    config.log_file_mode & modes == EVENT_TRACE_PRIVATE_LOGGER_MODE
}

impl Controller {
    /// Starts a validated session in the processes of a provider.
    pub(super) fn start_private(&mut self, config: &SessionConfig) -> Result<Properties> {
        let log_file = config.log_file.as_deref().map(make_absolute).transpose()?;
        let config = SessionConfig { log_file, ..config.clone() };
        let answer = self.ask(&Message::Start(Box::new(config)), &[], REPLY_TIMEOUT);
        self.properties(answer, None)
    }

    /// Changes a session, including its log file, in each process that runs it.
    pub(super) fn update_private(&mut self, session: &SessionRef, update: Update) -> Result<Properties> {
        let log_file = update.log_file.as_deref().map(make_absolute).transpose()?;
        self.control(session, Control::Update(Update { log_file, ..update }), None, DISK_TIMEOUT)
    }

    /// Makes each process that runs a session write its snapshot.
    pub(super) fn flush_private(&mut self, session: &SessionRef, path: &Path) -> Result<Properties> {
        let log_file = Some(make_absolute(path)?);
        self.control(session, Control::Flush { log_file }, None, DISK_TIMEOUT)
    }
}

fn make_absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::File { path: path.to_owned(), source })
}
