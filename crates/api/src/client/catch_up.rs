//! Waiting until this process has handled what daemons have sent to it.
//!
//! ```text
//!   controller ──EnableProvider, timeout 0──▶ daemon ──Enable──▶ control thread of this process
//!   controller ◀──Done, after 50 ms at most── daemon ◀──Ack──── when callbacks have run
//!   controller ──CatchUp──▶ control thread: reads the Enable, if it has not run until now
//! ```
//!
//! Here the controller is a thread of this process, and CatchUp is a command to its control thread.
//! The daemon sends Enable before Done. So a control thread that reads its connections after Done
//! enables the provider, even if the machine was too busy to run it within the daemon's 50 ms.

use std::time::{Duration, Instant};

use super::shared::{ControlCommand, ControlThreadState};
use super::{CLIENT, REPLY_TIMEOUT, callbacks};
use crate::process::promise::Promise;
use crate::registration::Handle;

/// How long a callback may delay the wait: the callback may need a lock that the waiting thread
/// holds. No event is missed, because its registration is enabled before the callback runs.
const CALLBACK_LIMIT: Duration = Duration::from_millis(50);
/// How often the wait checks for such a callback.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until the registrations of this process have the state that daemons have sent by now.
///
/// Returns at once if nothing is registered and on threads that the control thread waits for, and
/// after a second if the control thread does not get to run.
pub(crate) fn catch_up_with_daemons() {
    let Some(client) = CLIENT.get() else { return };
    if !callbacks::may_wait_for_control() || Handle::iter_current().next().is_none() {
        return;
    }
    let done = Promise::new();
    let mut shared = client.lock();
    if !matches!(shared.control_thread, ControlThreadState::Running) {
        return;
    }
    shared.commands.push(ControlCommand::CatchUp(done.clone()));
    drop(shared);
    client.wake_control_thread();
    let deadline = Instant::now() + REPLY_TIMEOUT;
    while done.wait(CHECK_INTERVAL).is_none() {
        if Instant::now() >= deadline || client.callback.elapsed() >= CALLBACK_LIMIT {
            return;
        }
    }
}
