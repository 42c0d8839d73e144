//! How other threads reach the loop: a channel and an eventfd that says when to look into it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use traceweir_transport::socket::Connection;

use crate::autologger::Prepared;
use crate::error::{Error, Result};
use crate::service::Notice;

/// Makes a daemon of this process leave as SIGTERM does: all files are finalised first.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// A stopper that has not been used.
    pub fn new() -> Result<Self> {
        Ok(Self(Arc::new(flag()?)))
    }

    /// Makes it leave.
    pub fn stop(&self) {
        raise(&self.0);
    }

    /// Readable once it was used. It stays so: whoever runs with it leaves at once.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What other threads send to the loop.
pub(super) enum Incoming {
    /// A session has finished something.
    Notice(Box<Notice>),
    /// A provider was connected to.
    Knocked(Connection),
    /// An autologger can be started.
    Prepared(Prepared),
}

/// The loop's end.
pub(super) struct Inbox {
    sender: Sender<Incoming>,
    receiver: Receiver<Incoming>,
    wake: Arc<OwnedFd>,
}

impl Inbox {
    /// An empty inbox.
    pub(super) fn new() -> Result<Self> {
        let (sender, receiver) = channel();
        Ok(Self { sender, receiver, wake: Arc::new(flag()?) })
    }

    /// A way for any thread to send something.
    pub(super) fn sender<T: 'static>(&self, wrap: fn(T) -> Incoming) -> Arc<dyn Fn(T) + Send + Sync> {
        let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
        Arc::new(move |it| {
            // After the loop has ended nobody is left to be told.
            if sender.send(wrap(it)).is_ok() {
                raise(&wake);
            }
        })
    }

    /// All that has come. Lowers the flag first, so that nothing that comes meanwhile is overlooked.
    pub(super) fn take(&self) -> Vec<Incoming> {
        // Fails only when it is lowered already.
        let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        self.receiver.try_iter().collect()
    }

    /// Waits until something has come, at most so long.
    pub(super) fn wait(&self, within: Duration) {
        let timeout = Timespec::try_from(within).ok();
        let mut fds = [PollFd::new(&*self.wake, PollFlags::IN)];
        // An interruption is an early return, as good as any.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Readable when something has come.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn flag() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| Error::system("eventfd", e))
}

fn raise(flag: &OwnedFd) {
    // Fails only when the counter is full, and then it is raised already.
    let _ = rustix::io::write(flag, &1u64.to_ne_bytes());
}
