//! Closes what came from others, where waiting hurts nobody.
//!
//! ```text
//!   close(fd) may wait as long as who made fd likes:  a TCP socket with SO_LINGER, a file of a FUSE server, …
//!   close(connection) closes what is unread in it, descriptors included: the same
//!
//!   a thread that must not wait ──dispose──▶ waiting ──▶ up to four threads, started when needed, gone when idle
//! ```
//!
//! 1. Handing over never waits, but for a lock that is held for moments.
//! 2. When all threads are stuck, what follows is kept open and counted ([`Janitor::kept`]), and closed when one gets free. The
//!    bound on that is the process's limit of descriptors: what is kept was received, and takes a number.
//! 3. A connection in which nothing is unread needs no janitor, and is closed at once: it is shut for reading first, so nothing
//!    can come between the look and the close.
//!
//! A janitor belongs to the process that made it: a forked child has none of its threads, and makes its own.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recvmsg, sockopt};

/// Threads at most.
const MAX_THREADS: usize = 4;
/// How long a thread waits for more.
const IDLE: Duration = Duration::from_secs(1);

/// Closes what came from others, on threads of its own. Clones are the same janitor.
#[derive(Clone, Debug, Default)]
pub struct Janitor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
    /// Threads that wait for more.
    idle: usize,
}

impl Janitor {
    /// A janitor without threads.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes descriptors of others over, to be closed.
    pub fn dispose(&self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        let mut descriptors = descriptors.into_iter().peekable();
        if descriptors.peek().is_none() {
            return;
        }
        let mut state = self.0.lock();
        state.waiting.extend(descriptors);
        self.0.more.notify_all();
        while state.idle < state.waiting.len() && state.threads < MAX_THREADS && self.start_thread() {
            state.threads += 1;
            state.idle += 1;
        }
    }

    /// Closes a connection.
    pub(super) fn close(&self, socket: OwnedFd) {
        if is_drained(&socket) {
            return;
        }
        self.dispose([socket]);
    }

    /// Descriptors that are open because the threads are stuck, or have not come to them yet.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Without a thread the descriptors stay for the next try.
    fn start_thread(&self) -> bool {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("weir-close".into()).stack_size(256 * 1024);
        thread.spawn(move || shared.work()).is_ok()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a thread. It begins idle, as whoever started it has counted.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(descriptor) = state.waiting.pop_front() {
                state.idle -= 1;
                drop(state);
                close(descriptor);
                state = self.lock();
                state.idle += 1;
                continue;
            }
            let (held, wait) = self.more.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = held;
            if wait.timed_out() && state.waiting.is_empty() {
                state.idle -= 1;
                state.threads -= 1;
                return;
            }
        }
    }
}

fn close(descriptor: OwnedFd) {
    // Most that could make us wait is asked not to; who asks for it again at the right moment holds up this thread.
    let _ = sockopt::set_socket_linger(&descriptor, None);
    drop(descriptor);
}

/// Whether nothing is unread in a connection, and never will be.
fn is_drained(socket: &OwnedFd) -> bool {
    // A packet without bytes looks like the end, and what is behind it cannot be seen. With credentials asked for and no room for
    // them, every packet says that something was left out; the end does not.
    let look = || -> rustix::io::Result<bool> {
        sockopt::set_socket_passcred(socket, true)?;
        rustix::net::shutdown(socket, Shutdown::Read)?;
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let found = recvmsg(socket, &mut [], &mut RecvAncillaryBuffer::default(), flags)?;
        Ok(!found.flags.contains(ReturnFlags::CTRUNC))
    };
    look().unwrap_or(false)
}

#[cfg(test)]
mod tests;
