//! Closes descriptors from other processes on threads that may wait.
//!
//! ```text
//!   close(fd) may wait as long as the creator of fd wants:  a TCP socket with SO_LINGER, a file of
//!   a FUSE server, …
//!   close(connection) also closes the unread descriptors in the connection, so it may wait as well
//!
//!   a thread that must not wait ──dispose──▶ queue ──▶ up to four threads, started when needed
//! ```
//!
//! 1. Handing over a descriptor never waits, except for a lock that is held only briefly.
//! 2. When all threads are stuck, further descriptors stay open until a thread gets free;
//!    [`Janitor::kept`] counts them. The process's descriptor limit bounds their number, because
//!    they are open descriptors of this process.
//! 3. A connection without unread data is closed at once on the calling thread. The janitor shuts
//!    it down for reading first, so no data can arrive between the check and the close.
//!
//! A janitor belongs to the process that created it. A forked child has none of its threads and
//! must create a new janitor.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recvmsg, sockopt};

const MAX_THREADS: usize = 4;
/// Time after which a thread without work ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Closes descriptors from other processes on separate threads. Clones are the same janitor.
#[derive(Clone, Debug, Default)]
pub struct Janitor(Arc<JanitorShared>);

#[derive(Debug, Default)]
struct JanitorShared {
    state: Mutex<JanitorState>,
    work_added: Condvar,
}

#[derive(Debug, Default)]
struct JanitorState {
    queue: VecDeque<OwnedFd>,
    threads: usize,
    /// Number of threads that wait for work.
    idle: usize,
}

impl Janitor {
    /// Creates a janitor without threads.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over descriptors to close them.
    pub fn dispose(&self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        let mut descriptors = descriptors.into_iter().peekable();
        if descriptors.peek().is_none() {
            return;
        }
        let mut state = self.0.lock();
        state.queue.extend(descriptors);
        self.0.work_added.notify_all();
        while state.idle < state.queue.len() && state.threads < MAX_THREADS && self.start_thread() {
            state.threads += 1;
            state.idle += 1;
        }
    }

    /// Closes a connection, at once if it has no unread data.
    pub(super) fn close(&self, socket: OwnedFd) {
        if shut_down_and_check_empty(&socket) {
            // Dropping it closes it.
            return;
        }
        self.dispose([socket]);
    }

    /// Returns the number of queued descriptors, without those that threads are closing.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.0.lock().queue.len()
    }

    /// Starts a thread. If that fails, the descriptors stay queued until a thread gets free or the
    /// next call of `dispose` starts one.
    fn start_thread(&self) -> bool {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("weir-close".into()).stack_size(256 * 1024);
        thread.spawn(move || shared.run_thread()).is_ok()
    }
}

impl JanitorShared {
    fn lock(&self) -> MutexGuard<'_, JanitorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop of a thread. The thread counts as idle at the start.
    fn run_thread(&self) {
        let mut state = self.lock();
        loop {
            if let Some(descriptor) = state.queue.pop_front() {
                state.idle -= 1;
                drop(state);
                close(descriptor);
                state = self.lock();
                state.idle += 1;
                continue;
            }
            let (guard, wait) =
                self.work_added.wait_timeout(state, IDLE_TIMEOUT).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if wait.timed_out() && state.queue.is_empty() {
                state.idle -= 1;
                state.threads -= 1;
                return;
            }
        }
    }
}

fn close(descriptor: OwnedFd) {
    // Turns off lingering, the most common reason for a close to wait; a sender that turns it on
    // again at the right moment blocks only this thread.
    let _ = sockopt::set_socket_linger(&descriptor, None);
    drop(descriptor);
}

/// Shuts a connection down for reading. Returns `true` if it has no unread data and can receive no
/// more, and `false` if it has unread data or the check fails.
fn shut_down_and_check_empty(socket: &OwnedFd) -> bool {
    // On a packet socket, an empty packet also reads as 0 bytes, like end-of-file. Credentials are
    // requested without space for them, so every packet sets MSG_CTRUNC and end-of-file does not.
    let check = || -> rustix::io::Result<bool> {
        sockopt::set_socket_passcred(socket, true)?;
        rustix::net::shutdown(socket, Shutdown::Read)?;
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = recvmsg(socket, &mut [], &mut RecvAncillaryBuffer::default(), flags)?;
        Ok(!peeked.flags.contains(ReturnFlags::CTRUNC))
    };
    check().unwrap_or(false)
}

#[cfg(test)]
mod tests;
