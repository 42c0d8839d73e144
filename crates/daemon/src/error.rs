//! Why a daemon cannot run.

use std::path::PathBuf;

/// The result of anything here that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A failure to run the daemon.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another daemon serves this folder.
    #[error("a daemon is already running at {}", .0.display())]
    AlreadyRunning(PathBuf),
    /// Sockets, memory, folders.
    #[error(transparent)]
    Transport(#[from] traceweir_transport::Error),
    /// Signals could not be taken over.
    #[error("signals: {0}")]
    Signals(std::io::Error),
}
