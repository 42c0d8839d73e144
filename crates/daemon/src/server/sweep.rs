//! Keeps the folder of provider sockets free of what others put there.
//!
//! Everybody may make files in the folder of the system's daemon, as everybody may be traced, and it lies on a small file system that the whole machine needs. Once a
//! minute, on a thread of its own, all that is no socket is removed, and of each user what is past [`MAX_SOCKETS`]. What remains: within that minute a user can use up
//! what the file system has. Where that matters, the folder gets a file system of its own (`docs/settings.md`).

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use traceweir_transport::runtime::{RuntimeDir, Scope};

use super::startup::MAX_SOCKETS;
use crate::log::{log_client, log_warning};

/// Time between two rounds.
const EVERY: Duration = Duration::from_secs(60);

/// The thread lives as long as this.
pub(super) struct Sweeper {
    _stop: Option<Sender<()>>,
}

impl Sweeper {
    /// Begins, where the folder is everybody's.
    pub(super) fn start(runtime: &RuntimeDir) -> Self {
        if runtime.scope != Scope::System {
            return Self { _stop: None };
        }
        let (stop, stopped) = channel::<()>();
        let runtime = runtime.clone();
        let work = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                match runtime.sweep_providers(MAX_SOCKETS) {
                    Ok(0) | Err(_) => {}
                    Ok(removed) => {
                        log_client!(
                            "{removed} files that are no sockets of providers were removed from {}",
                            runtime.providers().display()
                        );
                    }
                }
            }
        };
        if let Err(e) = std::thread::Builder::new().name("weir-sweep".into()).spawn(work) {
            log_warning!("the folder of provider sockets is not kept clean: {e}");
        }
        Self { _stop: Some(stop) }
    }
}
