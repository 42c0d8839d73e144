//! The log files of private sessions: no two sessions write one, nor does a change take what another is about to.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use traceweir_format::spec::status::Status;

use crate::client::Client;
use crate::controller::logfile::LogFile;
use crate::error::{Error, Result};

/// Device and inode.
pub(super) type FileId = (u64, u64);

pub(super) fn identity(file: &File) -> Option<FileId> {
    file.metadata().ok().map(|m| (m.dev(), m.ino()))
}

/// A file that a change is about to write: nobody else takes it meanwhile.
pub(super) struct Taken {
    client: &'static Client,
    session: u64,
    pub(super) log: LogFile,
    identity: Option<FileId>,
}

impl Taken {
    pub(super) fn clone_file(&self) -> Result<File> {
        self.log.file().try_clone().map_err(|e| traceweir_session::Error::File(e).into())
    }

    /// The session goes on in it.
    pub(super) fn becomes_log(&self) {
        let mut shared = self.client.lock();
        shared.private.iter_mut().filter(|r| r.id == self.session).for_each(|r| r.file = self.identity);
    }

    /// The change is over. A file that was not used is removed if it is new.
    pub(super) fn release(self, is_unused: bool) {
        let mut shared = self.client.lock();
        for running in shared.private.iter_mut().filter(|r| r.id == self.session) {
            running.coming.retain(|id| Some(*id) != self.identity);
        }
        drop(shared);
        if is_unused {
            self.log.discard();
        }
    }
}

impl Taken {
    /// Opens a file that no private session writes, or is about to, for one of them.
    pub(super) fn open(client: &'static Client, session: u64, path: &Path) -> Result<Self> {
        let log = LogFile::open(path)?;
        let identity = identity(log.file());
        let mut shared = client.lock();
        let is_written = shared.private.iter().any(|r| r.writes(identity));
        if !is_written && let Some(own) = shared.private.iter_mut().find(|r| r.id == session) {
            own.coming.extend(identity);
            return Ok(Self { client, session, log, identity });
        }
        drop(shared);
        log.discard();
        let why = "a private session writes this file";
        Err(if is_written {
            Error::refused(Status::ERROR_BAD_PATHNAME, why)
        } else {
            traceweir_session::Error::Ended.into()
        })
    }
}
