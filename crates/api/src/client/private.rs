//! Private sessions that a controller starts from outside: a daemon passes the request on, this process runs the session.
//!
//! ```text
//!   PrivateStart ────▶ session in this process's memory, file opened with its rights ──▶ PrivateState
//!   PrivateEnable ───▶ providers of this process                                     ──▶ PrivateState
//!   PrivateControl ──▶ query: at once; update, flush, stop: on a thread of their own ──▶ PrivateState
//!   the daemon is gone ─▶ the session ends, its file is finalised
//! ```
//!
//! 1. Starting and enabling are done by the control thread, in order, enabling with the help of the thread of callbacks: what a daemon says before `Registered` has been carried out when a
//!    registration returns, so a process that comes later records its first event.
//! 2. What waits for a disk never holds up the control thread; a few such orders may be under way, the next is told that we are busy.
//! 3. A session is run, and goes on in another file, only for this process's user and for root, and where this process has more rights than its user only for
//!    root: nobody else chooses which files are written with our rights (`rights`). What becomes of a file is `private`'s business, whoever asked.
//! 4. The descriptors of a private session are the library's (`private`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{
    Control as Wanted, EnableCode, EnableParams, Message, Properties, SessionConfig, Update,
};

use super::control::Control;
use super::outlets::Owner;
use super::rights::Voice;
use super::shared::Command;
use super::{Client, orders, process};
use crate::error::{Error, Result};
use crate::private::PrivateSession;
use crate::provider::Handle;

/// Orders that wait for a disk at the same time.
const MAX_UNDER_WAY: usize = 16;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// A session that a daemon asked for.
#[derive(Debug)]
pub(super) struct Member {
    peer: u64,
    /// As the daemon numbers it.
    session: u64,
    run: Arc<PrivateSession>,
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
struct Question {
    peer: u64,
    order: u32,
    session: u64,
}

impl Question {
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
    /// Runs a session for whoever controls a daemon.
    pub(super) fn private_start(
        &mut self,
        at: usize,
        order: u32,
        session: u64,
        starter: u32,
        config: &SessionConfig,
    ) {
        let question = self.question(at, order, session);
        let voice = self.voice(at);
        let outcome = self.begin_private(question, &voice, starter, config);
        self.peers[at].say(question.answer(outcome));
    }

    fn begin_private(
        &mut self,
        question: Question,
        voice: &Voice,
        starter: u32,
        config: &SessionConfig,
    ) -> Result<Properties> {
        let is_known = self.member(question).is_some();
        // Rights are checked on the thread that opens the file.
        voice.check(starter)?;
        if is_known {
            let why = "this process runs the private session already";
            return Err(Error::refused(Status::ERROR_ALREADY_EXISTS, why));
        }
        let run = PrivateSession::start_from_outside(config)?;
        let properties = run.query();
        self.members.push(Member { peer: question.peer, session: question.session, run: Arc::new(run) });
        Ok(properties)
    }

    /// Enables, disables or asks for state.
    pub(super) fn private_enable(
        &mut self,
        at: usize,
        (order, session): (u32, u64),
        provider: traceweir_format::Guid,
        code: EnableCode,
        params: &EnableParams,
    ) {
        let question = self.question(at, order, session);
        let (client, params) = (self.client, params.clone());
        let outcome = self.member(question).ok_or_else(gone).and_then(|run| {
            self.in_program(move || {
                match code {
                    EnableCode::Enable => run.enable(provider, &params)?,
                    EnableCode::Disable => run.disable(provider)?,
                    EnableCode::CaptureState => {
                        let open = client.lock().table.find(Owner::Private, run.id()).map(|open| open.outlet);
                        let outlet = open.ok_or_else(gone)?;
                        for handle in Handle::all().filter(|handle| handle.slot().provider() == provider) {
                            orders::capture(handle, outlet, &params);
                        }
                    }
                }
                Ok(run.query())
            })
        });
        self.peers[at].say(question.answer(outcome));
    }

    /// Queries, changes or ends a session.
    pub(super) fn private_control(
        &mut self,
        at: usize,
        (order, session): (u32, u64),
        asker: u32,
        wanted: Wanted,
    ) {
        let question = self.question(at, order, session);
        let Some(run) = self.member(question) else {
            return self.peers[at].say(question.answer(Err(gone())));
        };
        let voice = self.voice(at);
        match wanted {
            Wanted::Query => self.peers[at].say(question.answer(Ok(run.query()))),
            Wanted::Stop => {
                self.members.retain(|it| (it.peer, it.session) != (question.peer, session));
                self.apart(at, question, move || run.end());
            }
            Wanted::Update(Update { flush_timer, log_file, .. }) => self.apart(at, question, move || {
                log_file.as_ref().map_or(Ok(()), |_| voice.check(asker))?;
                // The others were refused by the daemon where they would have changed anything.
                run.update(&Update { flush_timer, log_file, ..Update::default() })
            }),
            Wanted::Flush { log_file } => self.apart(at, question, move || {
                log_file.as_ref().map_or(Ok(()), |_| voice.check(asker))?;
                run.flush(log_file.as_deref())
            }),
            Wanted::Outcome | Wanted::Increment | Wanted::ConvertToRealTime => {
                let why = "a private session has no such thing";
                self.peers[at].say(question.answer(Err(Error::refused(Status::ERROR_INVALID_FUNCTION, why))));
            }
        }
    }

    /// Where the memory of a session is that a daemon numbers so: its own, or, of one that is run here, ours.
    pub(super) fn place_of(&self, at: usize, session: u64) -> (Owner, u64) {
        match self.member(self.question(at, 0, session)) {
            Some(run) => (Owner::Private, run.id()),
            None => (Owner::Peer(self.peers[at].id), session),
        }
    }

    /// A daemon is gone: its sessions end here, as if it had stopped them.
    pub(super) fn end_private(&mut self, peer: u64) {
        let (ended, rest) = std::mem::take(&mut self.members).into_iter().partition(|it| it.peer == peer);
        self.members = rest;
        let ended: Vec<Member> = ended;
        if !ended.is_empty() {
            // Dropping a session finalises its file; where there is no thread for that it is done here.
            let _ = process::spawn_quiet("traceweir-end", move || drop(ended));
        }
    }

    fn question(&self, at: usize, order: u32, session: u64) -> Question {
        Question { peer: self.peers[at].id, order, session }
    }

    fn voice(&self, at: usize) -> Voice {
        Voice::of(&self.peers[at].connection)
    }

    fn member(&self, question: Question) -> Option<Arc<PrivateSession>> {
        let is_meant = |it: &&Member| (it.peer, it.session) == (question.peer, question.session);
        self.members.iter().find(is_meant).map(|it| Arc::clone(&it.run))
    }

    /// Has something done that runs callbacks.
    fn in_program<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let failed =
            || Err(Error::refused(Status::ERROR_NO_SYSTEM_RESOURCES, "the request ended in a panic"));
        self.callbacks.run(work).unwrap_or_else(failed)
    }

    /// Does what may wait for a disk on a thread of its own.
    fn apart(
        &mut self,
        at: usize,
        question: Question,
        work: impl FnOnce() -> Result<Properties> + Send + 'static,
    ) {
        let client = self.client;
        let busy =
            || Error::refused(Status::ERROR_BUSY, "too many changes of private sessions are under way");
        if UNDER_WAY.fetch_add(1, Ordering::Relaxed) >= MAX_UNDER_WAY {
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
            return self.peers[at].say(question.answer(Err(busy())));
        }
        let spawned = process::spawn_quiet("traceweir-priv", move || {
            let answer = question.answer(work());
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
            client.say_later(question.peer, answer);
        });
        if spawned.is_err() {
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
            self.peers[at].say(question.answer(Err(busy())));
        }
    }
}

impl Client {
    /// Has the control thread say something to a daemon, if it is still there.
    fn say_later(&self, peer: u64, message: Message) {
        self.lock().commands.push(Command::Say { peer, message: Box::new(message) });
        self.wake();
    }
}

fn gone() -> Error {
    let why = "this process does not run the private session";
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, why)
}
