//! Threads that start with the library, in a program that replaces `malloc`.
//!
//! ```text
//!   load handler ──starts──▶ control, callback and waking thread ──▶ wait for the first registration
//!   EventRegister under an allocator's lock ──commands──▶ control thread, which never calls malloc
//! ```
//!
//! If the allocator registers a provider before these threads are ready, they send the registration
//! later. Then the load handler waits for the daemons, and the registering thread does not. Events
//! that are written before the daemons answer may be missing: as after a register call that
//! returned without an answer, the process sends Failed 1460 for each session that enables the
//! registration.

use std::time::{Duration, Instant};

use super::control::Start;
use super::shared::ControlThreadState;
use super::{Client, REPLY_TIMEOUT, after_fork, at_exit};
use crate::process::{self, load};
use crate::registration::Handle;

/// Starts the threads of the library, if the program replaces `malloc`. Called once, when the
/// library is loaded.
pub(crate) fn start_at_load() {
    if !load::is_malloc_replaced() {
        return;
    }
    let stage = load::begin_loading();
    let client = Client::get();
    process::install_fork_and_exit_handlers(after_fork, at_exit);
    process::keep_module_loaded();
    // The client's lock is released before the threads start: starting a thread takes the
    // allocator's lock, and a thread that holds that lock may be registering a provider, for which
    // it needs the client's lock.
    client.lock().expect_start();
    if let Err(e) = client.spawn_threads(Duration::ZERO, Start::AtLoad) {
        client.lock().control_thread = ControlThreadState::Failed(e.to_string());
    }
    client.await_control_thread_ready();
    drop(stage);
    for handle in Handle::iter_current() {
        drop(client.await_registered(client.lock(), handle.number()));
    }
}

impl Client {
    /// Waits until the control thread waits for a registration, or handles one.
    fn await_control_thread_ready(&self) {
        let deadline = Instant::now() + REPLY_TIMEOUT;
        let mut shared = self.lock();
        while !shared.has_started_at_load
            && matches!(shared.control_thread, ControlThreadState::Running)
            && let Some(left) = deadline.checked_duration_since(Instant::now())
        {
            shared = self.wait_for_change(shared, left);
        }
    }
}
