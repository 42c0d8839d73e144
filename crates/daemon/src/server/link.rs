//! One connection with what it has not taken yet.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use traceweir_format::spec::status::Status;
use traceweir_transport::Error;
use traceweir_transport::message::Message;
use traceweir_transport::socket::{Connection, Envelope, Peer};

use super::LinkId;
use crate::error::Refusal;

/// What is held for a connection that does not read.
pub(super) const MAX_QUEUED: usize = 1 << 20;
/// What a descriptor on its way counts for: there are fewer of them than bytes.
const DESCRIPTOR_WEIGHT: usize = 4096;
/// A queue that is long: who fills it has to wait, and who does not read it has not for ever.
const LONG: usize = MAX_QUEUED / 2;

/// One connection.
pub(super) struct Link {
    connection: Connection,
    queue: VecDeque<Parcel>,
    weight: usize,
    watched: Option<EventFlags>,
    closing: bool,
    takes_descriptors: bool,
    /// When it is dropped unless something happens before.
    pub(super) expires: Option<Instant>,
    /// Its queue has been long, and it was given a while.
    pub(super) is_crowded: bool,
    /// It is not listened to for now.
    pub(super) is_held: bool,
    /// The other end is closed, and nothing is sent any more.
    is_deaf: bool,
}

struct Parcel {
    request: u32,
    message: Message,
    descriptors: Vec<OwnedFd>,
    weight: usize,
}

/// What came.
pub(super) enum Received {
    /// A message.
    Message(Envelope),
    /// Nothing now.
    Nothing,
    /// Something that is no message.
    Malformed(String),
    /// The end.
    Closed,
}

impl Link {
    /// A connection to be watched.
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            queue: VecDeque::new(),
            weight: 0,
            watched: None,
            closing: false,
            takes_descriptors: false,
            expires: None,
            is_crowded: false,
            is_held: false,
            is_deaf: false,
        }
    }

    /// PeerName is at the other end.
    pub(super) fn peer(&self) -> Peer {
        self.connection.peer()
    }

    /// It may send descriptors from now on; `false` when the connection is of no use.
    pub(super) fn take_descriptors(&mut self) -> bool {
        if !self.takes_descriptors {
            self.takes_descriptors = self.connection.take_descriptors().is_ok();
        }
        self.takes_descriptors
    }

    /// The next message.
    pub(super) fn receive(&self) -> Received {
        if self.closing || self.is_held {
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

    /// Queues a message; `false` when the other end has left too much unread.
    pub(super) fn push(&mut self, request: u32, message: Message, descriptors: Vec<OwnedFd>) -> bool {
        if self.is_deaf {
            return true;
        }
        let mut bytes = Vec::new();
        let parcel = match message.encode(request, &mut bytes) {
            Ok(()) => {
                let weight = bytes.len() + descriptors.len() * DESCRIPTOR_WEIGHT;
                Parcel { request, message, descriptors, weight }
            }
            Err(e) => {
                let refusal =
                    Refusal::new(Status::ERROR_MORE_DATA, format!("the answer cannot be sent: {e}"));
                Parcel { request, message: refusal.message(), descriptors: Vec::new(), weight: 256 }
            }
        };
        self.weight += parcel.weight;
        self.queue.push_back(parcel);
        self.weight <= MAX_QUEUED
    }

    /// Sends as much as the socket takes; `false` when the connection is gone.
    pub(super) fn flush(&mut self) -> bool {
        while let Some(parcel) = self.queue.front() {
            let descriptors: Vec<BorrowedFd<'_>> = parcel.descriptors.iter().map(AsFd::as_fd).collect();
            match self.connection.send(parcel.request, &parcel.message, &descriptors, Duration::ZERO) {
                Ok(()) => {
                    self.weight = self.weight.saturating_sub(parcel.weight);
                    self.queue.pop_front();
                }
                Err(Error::TimedOut) => return true,
                // What a process said before it ended still counts: it is read to the end first.
                Err(Error::Closed) if self.is_hung_up() => {
                    self.is_deaf = true;
                    self.weight = 0;
                    self.queue.clear();
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether the other end is closed.
    fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.connection, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|_| fds[0].revents().contains(PollFlags::HUP))
    }

    /// Has the loop told when there is something to read, or room for what is queued.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, id: LinkId) -> rustix::io::Result<()> {
        let mut wanted = if self.closing || self.is_held { EventFlags::empty() } else { EventFlags::IN };
        wanted.set(EventFlags::OUT, self.has_queued());
        let data = EventData::new_u64(id);
        match self.watched.replace(wanted) {
            None => epoll::add(epoll, &self.connection, data, wanted),
            Some(before) if before != wanted => epoll::modify(epoll, &self.connection, data, wanted),
            Some(_) => Ok(()),
        }
    }

    /// Reads no more.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Whether it is to be dropped once all was sent.
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether it is closed and all was sent.
    pub(super) fn is_over(&self) -> bool {
        self.closing && self.queue.is_empty()
    }

    /// Whether much waits for room.
    pub(super) fn is_long(&self) -> bool {
        self.weight > LONG
    }

    /// Whether something waits for room.
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
