//! The context of a call into the service: the time, the effects so far, and the sender of notices.
//!
//! The event loop passes the time in with each call; no part of the service reads a clock.

use std::os::fd::OwnedFd;
use std::time::Instant;

use traceweir_format::spec::status::Status;
use traceweir_session::Result;
use traceweir_transport::message::{Message, Properties};

use super::notice::{NoticePromise, NoticeSender, ThreadNotice};
use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};

/// An action on a connection that the service requests; effects are carried out in order.
#[derive(Debug)]
pub(crate) enum LinkEffect {
    Send {
        link: LinkId,
        /// Number of the request that the message answers; 0 if it answers none.
        request: u32,
        message: Message,
        /// File descriptors to send with the message.
        descriptors: Vec<OwnedFd>,
    },
    /// Close the connection once everything queued was sent.
    Close { link: LinkId },
}

/// The time of the current call, and the effects that the event loop has not carried out yet.
pub(super) struct ServiceTurn {
    pub(super) now: Instant,
    pub(super) effects: Vec<LinkEffect>,
    post: NoticeSender,
}

impl ServiceTurn {
    /// Creates a turn without effects; `post` receives the reports of other threads.
    pub(super) fn new(now: Instant, post: NoticeSender) -> Self {
        Self { now, effects: Vec::new(), post }
    }

    /// Sends a message that answers no request.
    pub(super) fn send(&mut self, link: LinkId, message: Message) {
        self.send_with(link, message, Vec::new());
    }

    /// Sends a message that answers no request, with file descriptors.
    pub(super) fn send_with(&mut self, link: LinkId, message: Message, descriptors: Vec<OwnedFd>) {
        self.effects.push(LinkEffect::Send { link, request: 0, message, descriptors });
    }

    pub(super) fn reply(&mut self, reply_to: ReplyTo, message: Message) {
        self.reply_with(reply_to, message, Vec::new());
    }

    /// Replies to a request with file descriptors.
    pub(super) fn reply_with(&mut self, reply_to: ReplyTo, message: Message, descriptors: Vec<OwnedFd>) {
        let ReplyTo { link, request } = reply_to;
        self.effects.push(LinkEffect::Send { link, request, message, descriptors });
    }

    pub(super) fn refuse(&mut self, reply_to: ReplyTo, refusal: Refusal) {
        self.reply(reply_to, refusal.into_message());
    }

    /// Replies with the properties of a session, or refuses the request.
    pub(super) fn reply_with_properties(&mut self, reply_to: ReplyTo, outcome: Result<Properties>) {
        match outcome {
            Ok(properties) => self.reply(reply_to, Message::Properties(Box::new(properties))),
            Err(e) => self.refuse(reply_to, e.into()),
        }
    }

    /// Replies that a request is done, or refuses it.
    pub(super) fn reply_done(&mut self, reply_to: ReplyTo, outcome: std::result::Result<(), Refusal>) {
        match outcome {
            Ok(()) => self.reply(reply_to, Message::Done),
            Err(refusal) => self.refuse(reply_to, refusal),
        }
    }

    /// Refuses a message that the sender's role does not allow, and closes its connection.
    pub(super) fn reject_out_of_role(&mut self, reply_to: ReplyTo) {
        let reason = "this message is not allowed in this role";
        self.refuse_and_close(reply_to, Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
    }

    /// Asks some registrations of a process to report their modules to a session.
    pub(super) fn request_modules(&mut self, link: LinkId, registrations: Vec<u32>, session: u64) {
        if !registrations.is_empty() {
            self.send(link, Message::ReportModules { registrations, session });
        }
    }

    /// Refuses a request and closes its connection.
    pub(super) fn refuse_and_close(&mut self, reply_to: ReplyTo, refusal: Refusal) {
        self.refuse(reply_to, refusal);
        self.effects.push(LinkEffect::Close { link: reply_to.link });
    }

    /// Returns a promise that posts the notice that `make` builds from the outcome.
    pub(super) fn promise<T>(
        &self,
        make: impl FnOnce(Result<T>) -> ThreadNotice + Send + 'static,
    ) -> NoticePromise<T> {
        NoticePromise::new(&self.post, make)
    }

    /// Returns the sender for notices of other threads.
    pub(super) fn post(&self) -> NoticeSender {
        self.post.clone()
    }
}
