//! Sessions: start, query, update, flush, stop.
//!
//! ```text
//!   Start ─▶ checks, in the published order ─▶ Starting ─(own thread: check and empty the file, Session::start)─▶ Started ─▶ Properties
//!   Stop  ─▶ Stopping, CloseSession to all ─▶ Acks, or a second ─▶ Session::stop ─▶ Stopped ─▶ Properties
//!   end by itself, shut down ─▶ as Stop, for nobody
//! ```

use std::path::PathBuf;
use std::time::Instant;

use traceweir_format::Guid;
use traceweir_format::spec::access::DEFAULT_TRACE_SECURITY;
use traceweir_format::spec::session::{EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_NONSTOPPABLE_MODE};
use traceweir_format::spec::status::Status;
use traceweir_session::{Config, Done, Place, Session};
use traceweir_transport::message::{Control, Message, Properties, SessionConfig, SessionRef, Update};

use super::access::rights_to_run;
use super::notice::{Notice, Promise};
use super::sessions::{Entry, State, not_running};
use super::wait::Purpose;
use super::{Asker, CLOSE_WITHIN, Service, info, own, warning};
use crate::access::Identity;
use crate::error::Refusal;
use crate::logfile::{Claim, Named, Opened, Passed, Terms, next_file};

/// Updates and flushes of one session that may be under way.
const MAX_CHANGES: usize = 64;
/// Why a flush to a file is refused.
const NO_SNAPSHOT: &str = "only a flight recorder writes snapshots";

impl Service {
    /// Starts a session.
    pub(super) fn start(
        &mut self,
        asker: Asker,
        mut config: SessionConfig,
        passed: Passed,
    ) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        // What gets a GUID that nobody knows has no list but the default.
        let judged_by = if config.guid.is_null() { DEFAULT_TRACE_SECURITY } else { config.guid };
        if config.guid.is_null() {
            config.guid = random_guid()?;
        }
        let config = own::checked(asker, config)?;
        let raw = config.properties();
        self.check_right(asker.link, judged_by, rights_to_run(raw))?;
        self.sessions.check(&raw.name, &raw.guid)?;
        self.privates.check_name(&raw.name)?;
        let (pid, owner) = self.starter(asker.link).ok_or_else(not_running)?;
        passed.check(Named::by(raw.log_file_mode, raw.log_file.is_some()))?;
        let (name, guid) = (raw.name.clone(), raw.guid);
        let config = self.fit(config)?;
        let raw = config.properties();
        let id = self.sessions.next_id();
        let state = State::Starting { asker, ended: None };
        let tied_to = raw.tied.then_some(asker.link);
        let pool_bytes = pool_bytes(raw, raw.maximum_buffers);
        let (file, changes, turned_away) = (None, 0, 0);
        self.sessions
            .insert(id, Entry { name, guid, file, pool_bytes, turned_away, changes, tied_to, state });
        self.launch(id, config, passed, (pid, owner));
        Ok(())
    }

    /// With fewer buffers at most, where all sessions together would take too much of the memory.
    fn fit(&self, config: Config) -> Result<Config, Refusal> {
        let (raw, left) = (config.properties(), self.sessions.pool_left());
        if pool_bytes(raw, raw.maximum_buffers) <= left {
            return Ok(config);
        }
        if pool_bytes(raw, raw.minimum_buffers) > left {
            let why = "the buffers of all sessions would take more than half of the memory";
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why));
        }
        let maximum_buffers = buffers_in(left, raw).max(raw.minimum_buffers);
        Ok(config.with_maximum_buffers(maximum_buffers))
    }

    /// Looking at a file, emptying it and writing the header may take their time: they have a thread of their own.
    fn launch(&self, id: u64, config: Config, passed: Passed, (pid, owner): (u32, Identity)) {
        let promise = Promise::new(&self.post, move |outcome| Notice::Started { id, outcome });
        let (post, files) = (self.post.clone(), self.files.clone());
        apart(move || {
            let opened = passed.open(&files, &Terms::to_start(config.properties()));
            promise.keep(opened.and_then(|Opened { file, claim, folder, rights }| {
                let on_end = Box::new(move |ended: traceweir_session::Ended| {
                    post(Notice::Ended { id, status: ended.status });
                });
                let next_file = folder.map(|folder| next_file(folder, owner.into(), rights, files));
                let starter = (pid, pid);
                let session = Session::start(config, Place { id, file, next_file, starter, on_end })?;
                Ok((session, claim))
            }));
        });
    }

    /// Keeps so many MB free on the system's own file system when sessions start.
    pub(crate) fn set_reserve_mb(&self, reserve: u32) {
        self.files.set_reserve(u64::from(reserve) << 20);
    }

    /// Controls a session.
    pub(super) fn control(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        control: Control,
        passed: Passed,
    ) -> Result<(), Refusal> {
        self.check_control(asker.link, session, &control)?;
        match control {
            Control::Query => {
                let id = self.sessions.find(session)?;
                let properties = self.sessions.properties(id).ok_or_else(not_running)?;
                self.reply(asker, Message::Properties(Box::new(properties)));
                Ok(())
            }
            Control::Stop => {
                let id = self.sessions.find(session)?;
                self.stop(asker, id)
            }
            Control::Update(update) => self.update(asker, session, update, passed),
            Control::Flush { log_file } => self.flush(asker, session, log_file, passed),
            Control::Increment => self.change(asker, session, Session::increment),
            Control::ConvertToRealTime => self.change(asker, session, Session::convert_to_real_time),
            Control::Outcome => {
                let outcome = self.sessions.outcome(session)?.clone();
                self.reply(asker, Message::Properties(Box::new(outcome)));
                Ok(())
            }
        }
    }

    /// A change that needs no file.
    fn change(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        change: impl FnOnce(&Session, Done<Properties>),
    ) -> Result<(), Refusal> {
        let (id, session) = self.sessions.find_running(session)?;
        let session = session.clone();
        self.count_change(id)?;
        change(&session, self.promise_change(id, asker, false).completed_by(|it| (it, None)).done());
        Ok(())
    }

    fn update(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        mut update: Update,
        passed: Passed,
    ) -> Result<(), Refusal> {
        let (id, session) = self.sessions.find_running(session)?;
        let session = session.clone();
        let config = session.properties().config;
        passed.check(Named::by(config.log_file_mode, update.log_file.is_some()))?;
        self.count_change(id)?;
        self.bound_pool(id, &session, &mut update);
        let promise = self.promise_change(id, asker, true);
        if update.log_file.is_none() {
            session.update(update, None, promise.completed_by(|it| (it, None)).done());
            return Ok(());
        }
        let (files, starter) = (self.files.clone(), self.starter(asker.link));
        apart(move || match passed.open(&files, &Terms::to_change(&config)) {
            Ok(Opened { file, claim, folder, rights }) => {
                let done = promise.completed_by(|it| (it, claim)).done();
                match (file, folder, starter) {
                    (Some(file), Some(folder), Some((_, owner))) => {
                        session.update_row(
                            update,
                            file,
                            next_file(folder, owner.into(), rights, files),
                            done,
                        );
                    }
                    (file, ..) => session.update(update, file, done),
                }
            }
            Err(e) => promise.keep(Err(e)),
        });
        Ok(())
    }

    /// A session may get more buffers as far as there is memory; what it may get is its own from now on.
    fn bound_pool(&mut self, id: u64, session: &Session, update: &mut Update) {
        let (raw, left) = (session.properties().config, self.sessions.pool_left());
        let (Some(asked), Some(entry)) = (&mut update.maximum_buffers, self.sessions.get_mut(id)) else {
            return;
        };
        let most = buffers_in(left.saturating_add(entry.pool_bytes), &raw);
        *asked = (*asked).min(most.max(raw.maximum_buffers));
        entry.pool_bytes = entry.pool_bytes.max(pool_bytes(&raw, *asked));
    }

    fn flush(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        log_file: Option<PathBuf>,
        passed: Passed,
    ) -> Result<(), Refusal> {
        let (id, session) = self.sessions.find_running(session)?;
        let session = session.clone();
        passed.check(Named::by(0, log_file.is_some()))?;
        // Before the file is emptied: what nobody writes stays as it is.
        let mode = session.properties().config.log_file_mode;
        if log_file.is_some() && mode & EVENT_TRACE_BUFFERING_MODE == 0 {
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, NO_SNAPSHOT));
        }
        self.count_change(id)?;
        let promise = self.promise_change(id, asker, false);
        let Some(path) = log_file else {
            session.flush(None, promise.completed_by(|it| (it, None)).done());
            return Ok(());
        };
        let files = self.files.clone();
        apart(move || match passed.open(&files, &Terms::default()) {
            Ok(Opened { file, claim, .. }) => {
                let done = promise.completed_by(|it| (it, claim)).done();
                session.flush(file.map(|file| (file, path)), done);
            }
            Err(e) => promise.keep(Err(e)),
        });
        Ok(())
    }

    fn count_change(&mut self, id: u64) -> Result<(), Refusal> {
        let entry = self.sessions.get_mut(id).ok_or_else(not_running)?;
        if entry.changes >= MAX_CHANGES {
            return Err(Refusal::new(Status::ERROR_BUSY, "too many changes of this session are under way"));
        }
        entry.changes += 1;
        Ok(())
    }

    fn promise_change(
        &self,
        id: u64,
        asker: Asker,
        keeps_file: bool,
    ) -> Promise<(Properties, Option<Claim>)> {
        Promise::new(&self.post, move |outcome| Notice::Changed { id, asker, keeps_file, outcome })
    }

    fn stop(&mut self, asker: Asker, id: u64) -> Result<(), Refusal> {
        let mode = self.sessions.session(id).map_or(0, |session| session.properties().config.log_file_mode);
        if mode & EVENT_TRACE_NONSTOPPABLE_MODE != 0 {
            let why = "the session is non-stoppable: it runs for as long as its daemon";
            return Err(Refusal::new(Status::ERROR_ACCESS_DENIED, why));
        }
        match self.sessions.get_mut(id).map(|entry| &mut entry.state) {
            Some(State::Running(_)) => self.begin_stop(id, Some(asker)),
            // It is ending by itself: the first who asks gets the outcome.
            Some(State::Stopping { asker: waiting @ None, .. }) => *waiting = Some(asker),
            Some(State::Stopping { .. }) => {
                let why = "the session is already stopping";
                return Err(Refusal::new(Status::ERROR_ACTIVE_CONNECTIONS, why));
            }
            Some(State::Starting { .. }) | None => return Err(not_running()),
        }
        Ok(())
    }

    /// Tells all processes to write no more; the session is stopped when they have said so.
    pub(super) fn begin_stop(&mut self, id: u64, asker: Option<Asker>) {
        let Some(session) = self.sessions.running_session(id).cloned() else { return };
        let Some(entry) = self.sessions.get_mut(id) else { return };
        entry.state = State::Stopping { session, asker };
        let wait = self.waits.next_id();
        let mut waiting = 0;
        for link in self.registry.forget_session(id) {
            let Some(process) = self.registry.processes.get_mut(&link) else { continue };
            let order = process.next_order();
            process.awaited.insert(order, wait);
            self.waits.is_for(wait, link);
            waiting += 1;
            self.send(link, 0, Message::CloseSession { order, session: id });
        }
        if waiting == 0 {
            self.finish_stop(id);
        } else {
            self.waits.begin(wait, waiting, Some(Instant::now() + CLOSE_WITHIN), Purpose::Stop(id), None);
        }
    }

    /// Nobody writes to the session any more: collect the rest and finish the file.
    pub(super) fn finish_stop(&mut self, id: u64) {
        if let Some(session) = self.sessions.session(id) {
            session.stop(Promise::new(&self.post, move |outcome| Notice::Stopped { id, outcome }).done());
        }
    }

    /// A session's thread has finished something.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Started { id, outcome } => self.started(id, outcome),
            Notice::Ended { id, status } => self.ended(id, status),
            Notice::Changed { id, asker, keeps_file, outcome } => {
                let outcome = self.changed(id, keeps_file, outcome);
                self.answer(asker, outcome);
            }
            Notice::Stopped { id, outcome } => self.stopped(id, outcome),
            Notice::Opened { id, asker, outcome } => self.opened(id, asker, outcome),
            Notice::AccessSaved { outcome } => self.access_saved(outcome),
        }
    }

    /// A change is over: the file that is not the session's any more, or never was, is free for others.
    fn changed(
        &mut self,
        id: u64,
        keeps_file: bool,
        outcome: traceweir_session::Result<(Properties, Option<Claim>)>,
    ) -> traceweir_session::Result<Properties> {
        let Some(entry) = self.sessions.get_mut(id) else { return outcome.map(|(it, _)| it) };
        entry.changes = entry.changes.saturating_sub(1);
        let (properties, claim) = outcome?;
        if keeps_file {
            entry.file = claim.or(entry.file.take());
        }
        // A session that became a live one is done with its file.
        entry.file = entry.file.take().filter(|_| properties.config.log_file.is_some());
        if entry.changes == 0 {
            entry.pool_bytes = pool_bytes(&properties.config, properties.config.maximum_buffers);
        }
        Ok(entry.with_turned_away(properties))
    }

    fn started(&mut self, id: u64, outcome: traceweir_session::Result<(Session, Option<Claim>)>) {
        let Some(entry) = self.sessions.get_mut(id) else { return };
        let State::Starting { asker, ended } = entry.state else { return };
        match outcome {
            Ok((session, claim)) => {
                entry.file = claim;
                info!("session {:?} started by connection {}", entry.name, asker.link);
                let properties = session.properties();
                entry.state = State::Running(session);
                self.answer(asker, Ok(properties));
                let is_left = self.is_left(id);
                if ended.is_some() || self.leaving || is_left {
                    self.begin_stop(id, None);
                }
            }
            Err(e) => {
                self.sessions.remove(id);
                self.answer(asker, Err(e));
            }
        }
    }

    /// Whether the connection that a session is tied to ended while it started.
    fn is_left(&mut self, id: u64) -> bool {
        let tied_to = self.sessions.get_mut(id).and_then(|entry| entry.tied_to);
        tied_to.is_some_and(|link| !self.clients.contains_key(&link))
    }

    fn ended(&mut self, id: u64, status: Status) {
        let Some(entry) = self.sessions.get_mut(id) else { return };
        info!("session {:?} ended by itself: {status}", entry.name);
        match &mut entry.state {
            State::Starting { ended, .. } => *ended = Some(status),
            State::Running(_) => self.begin_stop(id, None),
            State::Stopping { .. } => {}
        }
    }

    fn stopped(&mut self, id: u64, outcome: traceweir_session::Result<Properties>) {
        let Some(entry) = self.sessions.remove(id) else { return };
        let outcome = outcome.map(|properties| entry.with_turned_away(properties));
        match &outcome {
            Ok(it) => {
                info!("session {:?} stopped: {} events, {} lost", entry.name, it.events, it.events_lost);
                self.sessions.remember(it.clone());
            }
            Err(e) => warning!("session {:?} stopped: {e}", entry.name),
        }
        self.used = Instant::now();
        if let State::Stopping { asker: Some(asker), .. } = entry.state {
            self.answer(asker, outcome);
        }
    }

    fn answer(&mut self, asker: Asker, outcome: traceweir_session::Result<Properties>) {
        match outcome {
            Ok(properties) => self.reply(asker, Message::Properties(Box::new(properties))),
            Err(e) => self.refuse(asker, e.into()),
        }
    }
}

/// Runs what may wait for a disk on a thread of its own. Where none can be had the closure is dropped, and its promise with it.
pub(super) fn apart(work: impl FnOnce() + Send + 'static) {
    if let Err(e) = std::thread::Builder::new().name("weir-file".into()).spawn(work) {
        warning!("no thread for a file: {e}");
    }
}

/// Bytes of so many buffers of a session.
fn pool_bytes(config: &SessionConfig, buffers: u32) -> u64 {
    u64::from(config.buffer_size).saturating_mul(1024).saturating_mul(u64::from(buffers))
}

/// Buffers of a session that so many bytes hold.
fn buffers_in(bytes: u64, config: &SessionConfig) -> u32 {
    let buffers = bytes.checked_div(pool_bytes(config, 1)).unwrap_or(0);
    u32::try_from(buffers).unwrap_or(u32::MAX)
}

fn random_guid() -> Result<Guid, Refusal> {
    let none = || Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "no random numbers");
    traceweir_session::config::new_guid().ok_or_else(none)
}
