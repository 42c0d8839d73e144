//! Skeleton: the daemon.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::time::Duration;

use traceweir_transport::runtime::RuntimeDir;

pub mod error;

pub use error::{Error, Result};

/// How a daemon runs.
#[derive(Debug)]
pub struct Options {
    /// Where it is found.
    pub runtime: RuntimeDir,
    /// Leaves after so long without session, pre-enable or consumer; `None`: stays.
    pub idle_exit: Option<Duration>,
    /// A listening socket passed by a service manager.
    pub listener: Option<OwnedFd>,
    /// Sessions at most.
    pub max_sessions: usize,
}

/// Runs a daemon until SIGTERM, SIGINT or idleness; finalises every file before it returns.
pub fn run(options: Options) -> Result<()> {
    let _ = options;
    todo!()
}
