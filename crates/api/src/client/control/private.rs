//! Private sessions that a controller starts from outside: a daemon forwards the request, and this
//! process runs the session.
//!
//! ```text
//!   PrivateStart ──▶ session in this process's memory, file opened with its rights ┐
//!   PrivateEnable ─▶ providers of this process                                     ├▶ PrivateState
//!   PrivateControl ▶ query: at once; update, flush, stop: on a separate thread     ┘
//!   the daemon is gone ─▶ the session ends, its file is finalised
//! ```
//!
//! 1. The control thread starts and enables sessions in order, with the callback thread for
//!    enables: orders that a daemon sends before `Registered` are done when a registration returns,
//!    so a process that starts later records its first event.
//! 2. Work that waits for a disk never blocks the control thread. A few such orders may be in
//!    progress; the next one is refused as busy.
//! 3. A session runs, and continues in another file, only for this process's user and for root, and
//!    if this process is more privileged than its user, only for root: no other user chooses which
//!    files are written with its rights (`rights`). `private` handles the file in all cases.
//! 4. The descriptors of a private session belong to the library (`private`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{
    Control as Operation, EnableCode, EnableParams, Message, Properties, SessionConfig, Update,
};

use super::Control;
use crate::client::Client;
use crate::client::private::PrivateSession;
use crate::client::rights::DaemonCredentials;
use crate::client::shared::Command;
use crate::error::{Error, Result};
use crate::process;
use crate::process::outlets::Owner;
use crate::registration::Handle;

/// Maximum number of orders that wait for a disk at the same time.
const MAX_UNDER_WAY: usize = 16;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// A session that a daemon started in this process.
#[derive(Debug)]
pub(super) struct Member {
    peer: u64,
    /// The number that the daemon gave it.
    session: u64,
    run: Arc<PrivateSession>,
}

/// The connection and order that a reply goes to.
#[derive(Clone, Copy, Debug)]
struct ReplyTarget {
    peer: u64,
    order: u32,
    session: u64,
}

impl ReplyTarget {
    fn answer(self, outcome: Result<Properties>) -> Message {
        let Self { order, session, .. } = self;
        let (status, reason, properties) = match outcome {
            Ok(properties) => (0, String::new(), properties),
            Err(e) => (e.status().0, e.to_string().chars().take(1000).collect(), Properties::default()),
        };
        Message::PrivateState { order, session, status, reason, properties: Box::new(properties) }
    }
}

impl Control {
    /// Runs a session for a controller of a daemon.
    pub(super) fn private_start(
        &mut self,
        at: usize,
        order: u32,
        session: u64,
        starter: u32,
        config: &SessionConfig,
    ) {
        let target = self.reply_target(at, order, session);
        let daemon = self.daemon_credentials(at);
        let outcome = self.begin_private(target, &daemon, starter, config);
        self.peers[at].queue(target.answer(outcome));
    }

    fn begin_private(
        &mut self,
        target: ReplyTarget,
        daemon: &DaemonCredentials,
        starter: u32,
        config: &SessionConfig,
    ) -> Result<Properties> {
        let is_known = self.member(target).is_some();
        // Rights are checked on the thread that opens the file.
        daemon.check(starter)?;
        if is_known {
            let reason = "this process runs the private session already";
            return Err(Error::refused(Status::ERROR_ALREADY_EXISTS, reason));
        }
        let run = PrivateSession::start_from_outside(config)?;
        let properties = run.query();
        self.members.push(Member { peer: target.peer, session: target.session, run: Arc::new(run) });
        Ok(properties)
    }

    /// Enables or disables a provider, or requests its state.
    pub(super) fn private_enable(
        &mut self,
        at: usize,
        (order, session): (u32, u64),
        provider: traceweir_format::Guid,
        code: EnableCode,
        params: &EnableParams,
    ) {
        let target = self.reply_target(at, order, session);
        let (client, params) = (self.client, params.clone());
        let outcome = self.member(target).ok_or_else(gone).and_then(|run| {
            self.in_program(move || {
                match code {
                    EnableCode::Enable => run.enable(provider, &params)?,
                    EnableCode::Disable => run.disable(provider)?,
                    EnableCode::CaptureState => {
                        let open = client.lock().table.find(Owner::Private, run.id()).map(|open| open.outlet);
                        let outlet = open.ok_or_else(gone)?;
                        for handle in Handle::all().filter(|handle| handle.slot().provider() == provider) {
                            handle.slot().capture_state(outlet, &params);
                        }
                    }
                }
                Ok(run.query())
            })
        });
        self.peers[at].queue(target.answer(outcome));
    }

    /// Queries, changes or ends a session.
    pub(super) fn private_control(
        &mut self,
        at: usize,
        (order, session): (u32, u64),
        asker: u32,
        operation: Operation,
    ) {
        let target = self.reply_target(at, order, session);
        let Some(run) = self.member(target) else {
            return self.peers[at].queue(target.answer(Err(gone())));
        };
        let daemon = self.daemon_credentials(at);
        match operation {
            Operation::Query => self.peers[at].queue(target.answer(Ok(run.query()))),
            Operation::Stop => {
                self.members.retain(|member| (member.peer, member.session) != (target.peer, session));
                self.run_apart(at, target, move || run.end());
            }
            Operation::Update(Update { flush_timer, log_file, .. }) => {
                self.run_apart(at, target, move || {
                    log_file.as_ref().map_or(Ok(()), |_| daemon.check(asker))?;
                    // The daemon has refused other changes that would have had an effect.
                    run.update(&Update { flush_timer, log_file, ..Update::default() })
                })
            }
            Operation::Flush { log_file } => self.run_apart(at, target, move || {
                log_file.as_ref().map_or(Ok(()), |_| daemon.check(asker))?;
                run.flush(log_file.as_deref())
            }),
            Operation::Outcome | Operation::Increment | Operation::ConvertToRealTime => {
                let reason = "private sessions do not support this operation";
                self.peers[at]
                    .queue(target.answer(Err(Error::refused(Status::ERROR_INVALID_FUNCTION, reason))));
            }
        }
    }

    /// Returns the owner and number of a session that a daemon names: the daemon's, or a private
    /// one that runs here.
    pub(super) fn owner_of(&self, at: usize, session: u64) -> (Owner, u64) {
        match self.member(self.reply_target(at, 0, session)) {
            Some(run) => (Owner::Private, run.id()),
            None => (Owner::Peer(self.peers[at].id), session),
        }
    }

    /// Ends the sessions of a daemon that is gone, as if it had stopped them.
    pub(super) fn end_private(&mut self, peer: u64) {
        let (ended, rest) =
            std::mem::take(&mut self.members).into_iter().partition(|member| member.peer == peer);
        self.members = rest;
        let ended: Vec<Member> = ended;
        if !ended.is_empty() {
            // Dropping a session finalises its file; without a thread for that, it happens here.
            let _ = process::spawn_quiet("traceweir-end", move || drop(ended));
        }
    }

    fn reply_target(&self, at: usize, order: u32, session: u64) -> ReplyTarget {
        ReplyTarget { peer: self.peers[at].id, order, session }
    }

    fn daemon_credentials(&self, at: usize) -> DaemonCredentials {
        DaemonCredentials::from_connection(&self.peers[at].connection)
    }

    fn member(&self, target: ReplyTarget) -> Option<Arc<PrivateSession>> {
        let is_meant = |member: &&Member| (member.peer, member.session) == (target.peer, target.session);
        self.members.iter().find(is_meant).map(|member| Arc::clone(&member.run))
    }

    /// Runs `work`, which runs callbacks, on the callback thread.
    fn in_program<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let failed =
            || Err(Error::refused(Status::ERROR_NO_SYSTEM_RESOURCES, "the request ended in a panic"));
        self.callbacks.run(work).unwrap_or_else(failed)
    }

    /// Runs work that may wait for a disk on a separate thread.
    fn run_apart(
        &mut self,
        at: usize,
        target: ReplyTarget,
        work: impl FnOnce() -> Result<Properties> + Send + 'static,
    ) {
        let client = self.client;
        let busy =
            || Error::refused(Status::ERROR_BUSY, "too many changes of private sessions are under way");
        if UNDER_WAY.fetch_add(1, Ordering::Relaxed) >= MAX_UNDER_WAY {
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
            return self.peers[at].queue(target.answer(Err(busy())));
        }
        let spawned = process::spawn_quiet("traceweir-priv", move || {
            let answer = target.answer(work());
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
            client.send_later(target.peer, answer);
        });
        if spawned.is_err() {
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
            self.peers[at].queue(target.answer(Err(busy())));
        }
    }
}

impl Client {
    /// Sends a message to a daemon through the control thread, if it is still connected.
    fn send_later(&self, peer: u64, message: Message) {
        self.lock().commands.push(Command::Send { peer, message: Box::new(message) });
        self.wake();
    }
}

fn gone() -> Error {
    let reason = "this process does not run the private session";
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason)
}
