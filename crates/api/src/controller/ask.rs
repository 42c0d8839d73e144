//! One request and its answer, also across a restart of the daemon.
//!
//! ```text
//!   ask ─▶ the link ──closed──▶ a daemon that runs now ──none──▶ start one, for a request that
//!            │                    depends on no sessions or registrations; else the answer that a
//!            │                    daemon without sessions and registrations would give
//!            └─ sent, and not a query: never repeated
//! ```

use std::os::fd::BorrowedFd;
use std::time::Duration;

use traceweir_transport::message::{Control, Message, Role};
use traceweir_transport::runtime::RuntimeDir;

use super::{Controller, DaemonLink, REPLY_TIMEOUT, connect_first, info, launch, not_running_error};
use crate::error::{Error, Result};
use traceweir_format::info::Query;

impl Controller {
    /// Requests page after page until all entries have arrived, or a page is empty.
    pub(super) fn request_pages<T>(
        &mut self,
        request_page: impl Fn(u32) -> Message,
        read_page: impl Fn(Message) -> std::result::Result<(u32, Vec<T>), Message>,
    ) -> Result<Vec<T>> {
        let mut entries = Vec::new();
        loop {
            let from = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            let answer = self.ask(&request_page(from), &[], REPLY_TIMEOUT)?;
            let (total, page) = read_page(answer).map_err(|other| self.unexpected_answer(&other))?;
            let is_last = page.is_empty();
            entries.extend(page);
            if is_last || entries.len() >= total as usize {
                return Ok(entries);
            }
        }
    }

    pub(super) fn ask(
        &mut self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<Message> {
        self.connection().ask(message, descriptors, timeout)
    }
}

/// The connection of a controller and its clones.
#[derive(Debug)]
pub(super) struct ControllerConnection {
    pub(super) link: DaemonLink,
    /// The folders that are searched for a daemon.
    pub(super) folders: Vec<RuntimeDir>,
    /// Whether a request may start a daemon if none runs (`find_or_start`).
    pub(super) may_start_daemon: bool,
}

impl ControllerConnection {
    fn ask(
        &mut self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<Message> {
        if !self.is_disconnected() {
            let answer = self.link.ask(message, descriptors, timeout);
            match answer {
                // A query may be repeated; any other request may have been carried out.
                Err(Error::Transport(traceweir_transport::Error::Closed)) if is_query(message) => {}
                other => return Ok(other?.message),
            }
        }
        match connect_first(&self.folders, Role::Controller)? {
            Some(link) => self.link = link,
            None if self.may_start_daemon && can_start_daemon_for(message) => {
                self.link = launch::start(&self.folders, &launch::DaemonSearch::from_environment())?;
            }
            None => return self.answer_without_daemon(message),
        }
        Ok(self.link.ask(message, descriptors, timeout)?.message)
    }

    /// Returns whether the daemon has closed the connection. Late answers in the connection are
    /// dropped.
    fn is_disconnected(&self) -> bool {
        loop {
            match self.link.connection.receive(Duration::ZERO) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Returns the answer that a daemon without sessions and registrations would give.
    fn answer_without_daemon(&self, message: &Message) -> Result<Message> {
        match message {
            Message::Control { session, .. } | Message::EnableProvider { session, .. } => {
                Err(not_running_error(session))
            }
            Message::QueryAll { .. } | Message::QueryEnded { .. } => {
                Ok(Message::Sessions { total: 0, sessions: Vec::new() })
            }
            Message::QueryProviders { .. } => Ok(Message::Providers { more: false, providers: Vec::new() }),
            Message::SetInformation { session, .. } if !session.names_no_session() => {
                Err(not_running_error(session))
            }
            Message::ConfigureBranches { session, .. } => Err(not_running_error(session)),
            Message::QueryInformation { session, class, input } => {
                let answer = info::answer_without_daemon(session, Query::new(*class, *input)?)?;
                Ok(Message::Information { data: answer.to_bytes() })
            }
            Message::QueryRegistrations { .. } => Err(info::unknown_provider_error()),
            _ => {
                let socket = self.link.socket().display();
                let reason = format!("the one at {socket} has exited since this program found it");
                Err(Error::NoDaemon { reason })
            }
        }
    }
}

/// Returns whether a request changes nothing.
fn is_query(message: &Message) -> bool {
    matches!(
        message,
        Message::Control { control: Control::Query | Control::Outcome, .. }
            | Message::QueryAll { .. }
            | Message::QueryEnded { .. }
            | Message::QueryProviders { .. }
            | Message::CheckEnables { .. }
            | Message::QueryAccess { .. }
            | Message::QueryAccessLists { .. }
            | Message::QueryInformation { .. }
            | Message::QueryRegistrations { .. }
    )
}

/// Returns whether a newly started daemon can carry out a request: the request depends on no
/// sessions or registrations.
fn can_start_daemon_for(message: &Message) -> bool {
    matches!(
        message,
        Message::Start(_)
            | Message::CheckEnables { .. }
            | Message::SetAccess { .. }
            | Message::RemoveAccess { .. }
    ) || matches!(message, Message::SetInformation { session, .. } if session.names_no_session())
}
