//! One connection with its queue of unsent messages.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use traceweir_format::spec::status::Status;
use traceweir_transport::Error;
use traceweir_transport::message::Message;
use traceweir_transport::socket::{Connection, Envelope, Peer};

use crate::error::Refusal;
use crate::ids::LinkId;

/// Maximum bytes queued for a connection that does not read.
pub(super) const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Bytes that a queued descriptor counts for, since descriptors are scarcer than bytes.
const DESCRIPTOR_WEIGHT_BYTES: usize = 4096;
/// Bytes that a queued refusal counts for, if it replaces a reply that cannot be encoded.
const REFUSAL_WEIGHT_BYTES: usize = 256;
/// A queue of more bytes is long: its client gets a deadline to read it. If a request of a guest's
/// controller made the queue of another client long, the daemon does not read from the controller
/// until that queue is short again.
const LONG_QUEUE_BYTES: usize = MAX_QUEUED_BYTES / 2;

pub(super) struct ClientLink {
    connection: Connection,
    queue: VecDeque<QueuedMessage>,
    /// Bytes in `queue`; each descriptor counts as [`DESCRIPTOR_WEIGHT_BYTES`].
    weight: usize,
    /// The flags that are registered with epoll.
    watched: Option<EventFlags>,
    is_closing: bool,
    allows_descriptors: bool,
    /// The deadline for the client's next step, after which the link is dropped. The step is its
    /// `Hello`, or to read a long queue or the last messages of a link that is closing.
    pub(super) expires: Option<Instant>,
    /// Whether the queue became long, so that the client got a deadline to read it.
    pub(super) is_crowded: bool,
    /// Whether the loop does not read from the link for now.
    pub(super) is_reading_paused: bool,
    /// Whether the other end is closed, so that nothing is sent any more.
    is_write_closed: bool,
}

struct QueuedMessage {
    request: u32,
    message: Message,
    descriptors: Vec<OwnedFd>,
    weight: usize,
}

/// The result of reading from a link.
pub(super) enum Received {
    Message(Envelope),
    /// Nothing to read now.
    Nothing,
    /// Bytes that are not a valid message.
    Malformed(String),
    /// The other end has closed the connection.
    Closed,
}

impl ClientLink {
    /// Wraps a connection; the loop does not watch it yet.
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            queue: VecDeque::new(),
            weight: 0,
            watched: None,
            is_closing: false,
            allows_descriptors: false,
            expires: None,
            is_crowded: false,
            is_reading_paused: false,
            is_write_closed: false,
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.connection.peer()
    }

    /// Lets the client send descriptors from now on; returns `false` if the connection has failed.
    pub(super) fn allow_descriptors(&mut self) -> bool {
        if !self.allows_descriptors {
            self.allows_descriptors = self.connection.allow_descriptors().is_ok();
        }
        self.allows_descriptors
    }

    pub(super) fn receive(&self) -> Received {
        if self.is_closing || self.is_reading_paused {
            return Received::Nothing;
        }
        match self.connection.receive(Duration::ZERO) {
            Ok(Some(envelope)) => Received::Message(envelope),
            Ok(None) => Received::Nothing,
            Err(e @ (Error::Message(_) | Error::Unexpected(_) | Error::Invalid(_))) => {
                Received::Malformed(e.to_string())
            }
            Err(_) => Received::Closed,
        }
    }

    /// Queues a message; returns `false` if the client has left too much unread.
    pub(super) fn push(&mut self, request: u32, message: Message, descriptors: Vec<OwnedFd>) -> bool {
        if self.is_write_closed {
            return true;
        }
        let mut bytes = Vec::new();
        let queued = match message.encode(request, &mut bytes) {
            Ok(()) => {
                let weight = bytes.len() + descriptors.len() * DESCRIPTOR_WEIGHT_BYTES;
                QueuedMessage { request, message, descriptors, weight }
            }
            Err(e) => {
                let refusal = Refusal::new(Status::ERROR_MORE_DATA, format!("the reply cannot be sent: {e}"));
                QueuedMessage {
                    request,
                    message: refusal.into_message(),
                    descriptors: Vec::new(),
                    weight: REFUSAL_WEIGHT_BYTES,
                }
            }
        };
        self.weight += queued.weight;
        self.queue.push_back(queued);
        self.weight <= MAX_QUEUED_BYTES
    }

    /// Sends as much as the socket accepts; returns `false` if the connection has failed.
    pub(super) fn flush(&mut self) -> bool {
        while let Some(queued) = self.queue.front() {
            let descriptors: Vec<BorrowedFd<'_>> = queued.descriptors.iter().map(AsFd::as_fd).collect();
            match self.connection.send(queued.request, &queued.message, &descriptors, Duration::ZERO) {
                Ok(()) => {
                    self.weight = self.weight.saturating_sub(queued.weight);
                    self.queue.pop_front();
                }
                Err(Error::TimedOut) => return true,
                // The other end is closed, so only the queue is dropped. The link stays until the
                // messages that the other end sent before are read.
                Err(Error::Closed) if self.is_hung_up() => {
                    self.is_write_closed = true;
                    self.weight = 0;
                    self.queue.clear();
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Returns whether the other end is closed.
    fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.connection, PollFlags::empty())];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&no_wait)).is_ok_and(|_| fds[0].revents().contains(PollFlags::HUP))
    }

    /// Registers with epoll for messages to read, and for space to write if something is queued.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, id: LinkId) -> rustix::io::Result<()> {
        let mut flags =
            if self.is_closing || self.is_reading_paused { EventFlags::empty() } else { EventFlags::IN };
        flags.set(EventFlags::OUT, self.has_queued());
        let data = EventData::new_u64(id);
        match self.watched.replace(flags) {
            None => epoll::add(epoll, &self.connection, data, flags),
            Some(old_flags) if old_flags != flags => epoll::modify(epoll, &self.connection, data, flags),
            Some(_) => Ok(()),
        }
    }

    /// Stops reading from the link. The loop drops it once the queue was sent.
    pub(super) fn close(&mut self) {
        self.is_closing = true;
    }

    /// Returns whether the link is dropped once all was sent.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Returns whether the link is closed and all was sent.
    pub(super) fn is_finished(&self) -> bool {
        self.is_closing && self.queue.is_empty()
    }

    pub(super) fn has_long_queue(&self) -> bool {
        self.weight > LONG_QUEUE_BYTES
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }
}

impl AsFd for ClientLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
