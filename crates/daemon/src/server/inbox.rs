//! Messages of other threads to the event loop: a channel and an eventfd that signals new messages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use traceweir_transport::socket::Connection;

use crate::autologger::PrepareReport;
use crate::error::{Error, Result};
use crate::service::ThreadNotice;

/// Makes a daemon of this process shut down as SIGTERM does: all files are finalised first.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Creates a stopper that has not been used.
    pub fn new() -> Result<Self> {
        Ok(Self(Arc::new(create_eventfd()?)))
    }

    /// Makes the daemon shut down.
    pub fn stop(&self) {
        signal_eventfd(&self.0);
    }

    /// Returns a descriptor that is readable once the stopper was used. It stays readable: if a
    /// daemon is run with this stopper later, it stops at once.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A message of another thread to the loop.
pub(super) enum InboxMessage {
    /// Another thread has finished its work.
    Notice(Box<ThreadNotice>),
    /// The daemon has connected to a provider.
    Knocked(Connection),
    /// An autologger is ready to start, or the preparation of autologgers has ended.
    Prepared(PrepareReport),
}

/// The receiving end, owned by the loop.
pub(super) struct Inbox {
    sender: Sender<InboxMessage>,
    receiver: Receiver<InboxMessage>,
    wake: Arc<OwnedFd>,
}

impl Inbox {
    pub(super) fn new() -> Result<Self> {
        let (sender, receiver) = channel();
        Ok(Self { sender, receiver, wake: Arc::new(create_eventfd()?) })
    }

    /// Returns a function with which any thread can send a message to the loop.
    pub(super) fn sender<T: 'static>(&self, wrap: fn(T) -> InboxMessage) -> Arc<dyn Fn(T) + Send + Sync> {
        let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
        Arc::new(move |content| {
            // After the loop has ended there is no receiver.
            if sender.send(wrap(content)).is_ok() {
                signal_eventfd(&wake);
            }
        })
    }

    /// Removes and returns all messages. Clears the eventfd first, so that no later message is
    /// missed.
    pub(super) fn take_all(&self) -> Vec<InboxMessage> {
        // Fails only if the eventfd is already clear.
        let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        self.receiver.try_iter().collect()
    }

    /// Waits until a message arrives, at most for the given time.
    pub(super) fn wait(&self, within: Duration) {
        let timeout = Timespec::try_from(within).ok();
        let mut fds = [PollFd::new(&*self.wake, PollFlags::IN)];
        // An interrupted call only returns early.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Returns a descriptor that is readable when a message has arrived.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn create_eventfd() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| Error::system("eventfd", e))
}

fn signal_eventfd(flag: &OwnedFd) {
    // Fails only if the counter is full, and then it is already set.
    let _ = rustix::io::write(flag, &1u64.to_ne_bytes());
}
