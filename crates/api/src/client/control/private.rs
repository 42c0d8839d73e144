//! Private sessions that a controller starts from outside: a daemon forwards the request, and this
//! process runs the session.
//!
//! ```text
//!   PrivateStart ──▶ session in this process's memory, file opened with its rights ┐
//!   PrivateEnable ─▶ providers of this process                                     ├▶ PrivateState
//!   PrivateControl ▶ query: at once; update, flush, stop: on a separate thread     ┘
//!   the daemon disconnects ─▶ the session ends, its file is finalised
//! ```
//!
//! 1. The control thread starts and enables sessions in the order of the requests; enables run on
//!    the callback thread. So orders that a daemon sends before `Registered` are done when a
//!    registration returns. If the process starts after the session, the session gets its events
//!    from the first one on.
//! 2. Work that waits for a disk never blocks the control thread. A few such orders may be in
//!    progress; the next one is refused as busy.
//! 3. Only root and the user of this process may start a session here, or have it continue in
//!    another file; only root may if this process is more privileged than its user. So no other
//!    user chooses files that this process writes with its rights (`rights`). `client::private`
//!    opens the files.
//! 4. The descriptors of a private session are in the library's table (`client::private`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{
    Control as Operation, EnableCode, EnableParams, Message, Properties, SessionConfig, Update,
};

use super::ControlThread;
use crate::client::Client;
use crate::client::private::PrivateSession;
use crate::client::rights::DaemonCredentials;
use crate::client::shared::ControlCommand;
use crate::error::{Error, Result};
use crate::process;
use crate::process::outlets::SessionOwner;
use crate::registration::Handle;

/// Maximum number of orders that wait for a disk at the same time.
const MAX_DISK_ORDERS: usize = 16;

static DISK_ORDERS: AtomicUsize = AtomicUsize::new(0);

/// A session that a daemon started in this process.
#[derive(Debug)]
pub(super) struct PrivateMember {
    peer: u64,
    /// The number that the daemon gave the session.
    session: u64,
    private_session: Arc<PrivateSession>,
}

/// The connection and order that a reply goes to.
#[derive(Clone, Copy, Debug)]
struct ReplyTarget {
    peer: u64,
    order: u32,
    session: u64,
}

impl ReplyTarget {
    fn make_reply(self, outcome: Result<Properties>) -> Message {
        let Self { order, session, .. } = self;
        let (status, reason, properties) = match outcome {
            Ok(properties) => (0, String::new(), properties),
            Err(e) => (e.status().0, e.to_string().chars().take(1000).collect(), Properties::default()),
        };
        Message::PrivateState { order, session, status, reason, properties: Box::new(properties) }
    }
}

impl ControlThread {
    /// Starts a private session that a controller requested through a daemon.
    pub(super) fn start_private_session(
        &mut self,
        index: usize,
        order: u32,
        session: u64,
        starting_user: u32,
        config: &SessionConfig,
    ) {
        let target = self.reply_target(index, order, session);
        let daemon = self.daemon_credentials(index);
        let outcome = self.begin_private_session(target, &daemon, starting_user, config);
        self.peers[index].queue(target.make_reply(outcome));
    }

    fn begin_private_session(
        &mut self,
        target: ReplyTarget,
        daemon: &DaemonCredentials,
        starting_user: u32,
        config: &SessionConfig,
    ) -> Result<Properties> {
        let is_running = self.find_member(target).is_some();
        // Rights are checked on the thread that opens the file.
        daemon.check(starting_user)?;
        if is_running {
            let reason = "this process runs the private session already";
            return Err(Error::refused(Status::ERROR_ALREADY_EXISTS, reason));
        }
        let private_session = PrivateSession::start_for_controller(config)?;
        let properties = private_session.query();
        self.members.push(PrivateMember {
            peer: target.peer,
            session: target.session,
            private_session: Arc::new(private_session),
        });
        Ok(properties)
    }

    /// Enables or disables a provider, or requests its state.
    pub(super) fn enable_private_session(
        &mut self,
        index: usize,
        order: u32,
        session: u64,
        provider: traceweir_format::Guid,
        code: EnableCode,
        params: &EnableParams,
    ) {
        let target = self.reply_target(index, order, session);
        let (client, params) = (self.client, params.clone());
        let outcome = self.find_member(target).ok_or_else(session_not_found).and_then(|private_session| {
            self.run_in_program(move || {
                match code {
                    EnableCode::Enable => private_session.enable(provider, &params)?,
                    EnableCode::Disable => private_session.disable(provider)?,
                    EnableCode::CaptureState => {
                        let outlet = client
                            .lock()
                            .outlets
                            .find(SessionOwner::Private, private_session.id())
                            .map(|open| open.outlet);
                        let outlet = outlet.ok_or_else(session_not_found)?;
                        for handle in
                            Handle::iter_current().filter(|handle| handle.slot().provider() == provider)
                        {
                            handle.slot().capture_state(outlet, &params);
                        }
                    }
                }
                Ok(private_session.query())
            })
        });
        self.peers[index].queue(target.make_reply(outcome));
    }

    /// Queries, changes or ends a session.
    pub(super) fn control_private_session(
        &mut self,
        index: usize,
        order: u32,
        session: u64,
        requesting_user: u32,
        operation: Operation,
    ) {
        let target = self.reply_target(index, order, session);
        let Some(private_session) = self.find_member(target) else {
            return self.peers[index].queue(target.make_reply(Err(session_not_found())));
        };
        let daemon = self.daemon_credentials(index);
        match operation {
            Operation::Query => self.peers[index].queue(target.make_reply(Ok(private_session.query()))),
            Operation::Stop => {
                self.members.retain(|member| (member.peer, member.session) != (target.peer, session));
                self.run_on_separate_thread(index, target, move || private_session.end());
            }
            Operation::Update(Update { flush_timer, log_file, .. }) => {
                self.run_on_separate_thread(index, target, move || {
                    log_file.as_ref().map_or(Ok(()), |_| daemon.check(requesting_user))?;
                    // The daemon has refused other changes that would have had an effect.
                    private_session.update(&Update { flush_timer, log_file, ..Update::default() })
                })
            }
            Operation::Flush { log_file } => self.run_on_separate_thread(index, target, move || {
                log_file.as_ref().map_or(Ok(()), |_| daemon.check(requesting_user))?;
                private_session.flush(log_file.as_deref())
            }),
            Operation::Outcome | Operation::Increment | Operation::ConvertToRealTime => {
                let reason = "private sessions do not support this operation";
                self.peers[index]
                    .queue(target.make_reply(Err(Error::refused(Status::ERROR_INVALID_FUNCTION, reason))));
            }
        }
    }

    /// Returns the owner and number of a session that a daemon names: a session of the daemon, or a
    /// private session in this process.
    pub(super) fn find_session_owner(&self, index: usize, session: u64) -> (SessionOwner, u64) {
        match self.find_member(self.reply_target(index, 0, session)) {
            Some(private_session) => (SessionOwner::Private, private_session.id()),
            None => (SessionOwner::Peer(self.peers[index].id), session),
        }
    }

    /// Ends the sessions of a daemon that has disconnected, as if it had stopped them.
    pub(super) fn end_private_sessions_of_peer(&mut self, peer: u64) {
        let (ended, remaining) =
            std::mem::take(&mut self.members).into_iter().partition(|member| member.peer == peer);
        self.members = remaining;
        let ended: Vec<PrivateMember> = ended;
        if !ended.is_empty() {
            // Dropping a session finalises its file. If no thread starts, the sessions are dropped
            // on this thread.
            let _ = process::spawn_without_signals("traceweir-end", move || drop(ended));
        }
    }

    fn reply_target(&self, index: usize, order: u32, session: u64) -> ReplyTarget {
        ReplyTarget { peer: self.peers[index].id, order, session }
    }

    fn daemon_credentials(&self, index: usize) -> DaemonCredentials {
        DaemonCredentials::from_connection(&self.peers[index].connection)
    }

    fn find_member(&self, target: ReplyTarget) -> Option<Arc<PrivateSession>> {
        let is_meant =
            |member: &&PrivateMember| (member.peer, member.session) == (target.peer, target.session);
        self.members.iter().find(is_meant).map(|member| Arc::clone(&member.private_session))
    }

    /// Runs `work`, which runs callbacks, on the callback thread.
    fn run_in_program<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let panic_error =
            || Err(Error::refused(Status::ERROR_NO_SYSTEM_RESOURCES, "the request ended in a panic"));
        self.callbacks.run(work).unwrap_or_else(panic_error)
    }

    /// Runs work that may wait for a disk on a separate thread.
    fn run_on_separate_thread(
        &mut self,
        index: usize,
        target: ReplyTarget,
        work: impl FnOnce() -> Result<Properties> + Send + 'static,
    ) {
        let client = self.client;
        let busy_error =
            || Error::refused(Status::ERROR_BUSY, "too many changes of private sessions are under way");
        if DISK_ORDERS.fetch_add(1, Ordering::Relaxed) >= MAX_DISK_ORDERS {
            DISK_ORDERS.fetch_sub(1, Ordering::Relaxed);
            return self.peers[index].queue(target.make_reply(Err(busy_error())));
        }
        let spawned = process::spawn_without_signals("traceweir-priv", move || {
            let reply = target.make_reply(work());
            DISK_ORDERS.fetch_sub(1, Ordering::Relaxed);
            client.queue_message(target.peer, reply);
        });
        if spawned.is_err() {
            DISK_ORDERS.fetch_sub(1, Ordering::Relaxed);
            self.peers[index].queue(target.make_reply(Err(busy_error())));
        }
    }
}

impl Client {
    /// Sends a message through the control thread to a daemon, if the daemon is still connected.
    fn queue_message(&self, peer: u64, message: Message) {
        self.lock().commands.push(ControlCommand::Send { peer, message: Box::new(message) });
        self.wake_control_thread();
    }
}

fn session_not_found() -> Error {
    let reason = "this process does not run the private session";
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason)
}
