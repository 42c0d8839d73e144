//! Cleanup of the folder of provider sockets.
//!
//! Every user may create files in the folder of the system daemon, because every user's processes
//! may be traced. The folder lies on a small file system that the whole machine needs. Once a
//! minute a thread removes everything that is not a socket, and the sockets of each user beyond
//! [`MAX_SOCKETS`]. Within that minute a user can still fill the file system. Where that matters,
//! mount a separate file system at the folder (`docs/settings.md`).

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use traceweir_transport::runtime::{RuntimeDir, Scope};

use super::startup::MAX_SOCKETS;
use crate::log::{log_client, log_warning};

/// Time between two cleanups.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Stops the cleanup thread when dropped.
pub(super) struct Sweeper {
    _stop: Option<Sender<()>>,
}

impl Sweeper {
    /// Starts the thread, if every user may write to the folder.
    pub(super) fn start(runtime: &RuntimeDir) -> Self {
        if runtime.scope != Scope::System {
            return Self { _stop: None };
        }
        let (stop, stopped) = channel::<()>();
        let runtime = runtime.clone();
        let work = move || {
            while stopped.recv_timeout(SWEEP_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                match runtime.sweep_providers(MAX_SOCKETS) {
                    Ok(0) | Err(_) => {}
                    Ok(removed) => {
                        log_client!(
                            "files removed from {}: {removed} (no provider sockets, or too many of one user)",
                            runtime.providers().display()
                        );
                    }
                }
            }
        };
        if let Err(e) = std::thread::Builder::new().name("weir-sweep".into()).spawn(work) {
            log_warning!("the folder of provider sockets is not cleaned up: {e}");
        }
        Self { _stop: Some(stop) }
    }
}
