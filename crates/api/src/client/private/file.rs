//! The log files of private sessions: no two sessions write or reserve the same file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use traceweir_format::spec::status::Status;

use crate::client::Client;
use crate::client::shared::FileId;
use crate::error::{Error, Result};
use crate::logfile::OpenedLogFile;

pub(super) fn file_id(file: &File) -> Option<FileId> {
    file.metadata().ok().map(|m| (m.dev(), m.ino()))
}

/// A file that a flush or update is about to write, reserved for one session.
pub(super) struct ReservedFile {
    client: &'static Client,
    session: u64,
    pub(super) log: OpenedLogFile,
    identity: Option<FileId>,
}

impl ReservedFile {
    pub(super) fn clone_file(&self) -> Result<File> {
        self.log.file().try_clone().map_err(|e| traceweir_session::Error::File(e).into())
    }

    /// Makes this file the log file of the session.
    pub(super) fn make_log_file(&self) {
        let mut shared = self.client.lock();
        shared
            .private_sessions
            .iter_mut()
            .filter(|running| running.id == self.session)
            .for_each(|running| running.file = self.identity);
    }

    /// Ends the reservation. An unused file is removed if it is new.
    pub(super) fn release(self, is_unused: bool) {
        let mut shared = self.client.lock();
        for running in shared.private_sessions.iter_mut().filter(|running| running.id == self.session) {
            running.reserved.retain(|id| Some(*id) != self.identity);
        }
        drop(shared);
        if is_unused {
            self.log.discard();
        }
    }

    /// Opens and reserves a file that no private session writes or has reserved.
    pub(super) fn open(client: &'static Client, session: u64, path: &Path) -> Result<Self> {
        let log = OpenedLogFile::open(path)?;
        let identity = file_id(log.file());
        let mut shared = client.lock();
        let is_in_use = shared.private_sessions.iter().any(|running| running.uses_file(identity));
        if !is_in_use
            && let Some(running) = shared.private_sessions.iter_mut().find(|running| running.id == session)
        {
            running.reserved.extend(identity);
            return Ok(Self { client, session, log, identity });
        }
        drop(shared);
        log.discard();
        let reason = "a private session writes this file";
        Err(if is_in_use {
            Error::refused(Status::ERROR_BAD_PATHNAME, reason)
        } else {
            traceweir_session::Error::Ended.into()
        })
    }
}
