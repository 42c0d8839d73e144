//! Sessions that run: query, update, flush, and what their threads report. How they begin is in `start`, how they end in `end`.
//!
//! ```text
//!   Update, Flush, … ─▶ counted ─(own thread: check and empty the file)─▶ the session's thread ─▶ Changed ─▶ Properties
//! ```

use std::path::PathBuf;

use traceweir_format::spec::session::EVENT_TRACE_BUFFERING_MODE;
use traceweir_format::spec::status::Status;
use traceweir_session::config::is_system_logger;
use traceweir_session::{Done, Session};
use traceweir_transport::map::check_headroom;
use traceweir_transport::message::{Control, Message, Properties, SessionConfig, SessionRef, Update};

use super::notice::{Notice, Promise};
use super::sessions::not_running;
use super::{Asker, Service, warning};
use crate::error::Refusal;
use crate::kernel::Wishes;
use crate::logfile::{Claim, Named, Opened, Passed, Terms, next_file};

/// Updates and flushes of one session that may be under way.
const MAX_CHANGES: usize = 64;
/// Why a flush to a file is refused.
const NO_SNAPSHOT: &str = "only a flight recorder writes snapshots";

impl Service {
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
        change(&session, self.promise_change(id, asker, false, None).completed_by(|it| (it, None)).done());
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
        let config = session.properties().config;
        passed.check(Named::by(config.log_file_mode, update.log_file.is_some()))?;
        match update.enable_flags.take_if(|_| is_system_logger(&config)) {
            Some(flags) => self.update_groups(asker, (id, &config), flags, update, passed),
            None => self.update_rest(asker, id, update, passed, None),
        }
    }

    /// An update of what is not the kernel's; `before`: what the session wished of it before the same request.
    pub(super) fn update_rest(
        &mut self,
        asker: Asker,
        id: u64,
        mut update: Update,
        passed: Passed,
        before: Option<Wishes>,
    ) -> Result<(), Refusal> {
        let session = self.sessions.running_session(id).ok_or_else(not_running)?.clone();
        let config = session.properties().config;
        self.count_change(id)?;
        self.bound_pool(asker, id, &session, &mut update);
        let promise = self.promise_change(id, asker, true, before);
        if update.log_file.is_none() {
            session.update(update, None, promise.completed_by(|it| (it, None)).done());
            return Ok(());
        }
        let (_, owner) = self.starter(asker.link).ok_or_else(not_running)?;
        let (files, terms) = (self.files.clone(), Terms::of_log(&config, owner.uid));
        apart(move || match passed.open(&files, &terms) {
            Ok(Opened { file, claim, folder, rights }) => {
                keep_room(&session, &terms);
                let done = promise.completed_by(|it| (it, claim)).done();
                match (file, folder) {
                    (Some(file), Some(folder)) => {
                        let next_file = next_file(folder, owner.into(), rights, files, terms);
                        session.update_row(update, file, next_file, done);
                    }
                    (file, _) => session.update(update, file, done),
                }
            }
            Err(e) => promise.keep(Err(e)),
        });
        Ok(())
    }

    /// A session may get more buffers as far as there is memory; what it may get is its own from now on.
    fn bound_pool(&mut self, asker: Asker, id: u64, session: &Session, update: &mut Update) {
        let (raw, left) = (session.properties().config, self.sessions.pool_left(self.is_guest(asker.link)));
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
        let (_, owner) = self.starter(asker.link).ok_or_else(not_running)?;
        let terms = Terms::of_snapshot(owner.uid);
        self.count_change(id)?;
        let promise = self.promise_change(id, asker, false, None);
        let Some(path) = log_file else {
            session.flush(None, promise.completed_by(|it| (it, None)).done());
            return Ok(());
        };
        let files = self.files.clone();
        apart(move || match passed.open(&files, &terms) {
            Ok(Opened { file, claim, .. }) => {
                keep_room(&session, &terms);
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
        before: Option<Wishes>,
    ) -> Promise<(Properties, Option<Claim>)> {
        Promise::new(&self.post, move |outcome| Notice::Changed { id, asker, keeps_file, before, outcome })
    }

    /// A session's thread has finished something.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Started { id, outcome } => self.started(id, outcome),
            Notice::Looked { asker, refusal, outcome } => self.looked(asker, refusal, outcome),
            Notice::Ended { id, status } => self.ended(id, status),
            Notice::Changed { id, asker, keeps_file, before, outcome } => {
                let outcome = self.changed(id, keeps_file, outcome);
                if let (Err(_), Some(wishes)) = (&outcome, before) {
                    self.take_back(id, wishes);
                }
                self.answer(asker, outcome);
            }
            Notice::KernelChanged { change, outcome } => self.kernel_changed(*change, outcome),
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
        Ok(entry.with_uncounted(properties))
    }

    pub(super) fn answer(&mut self, asker: Asker, outcome: traceweir_session::Result<Properties>) {
        match outcome {
            Ok(properties) => self.reply(asker, Message::Properties(Box::new(properties))),
            Err(e) => self.refuse(asker, e.into()),
        }
    }
}

/// A file that was opened on these terms is the session's next.
fn keep_room(session: &Session, terms: &Terms) {
    if !terms.has_roots_room() {
        session.give_up_roots_room();
    }
}

/// Stack of a thread for files.
pub(super) const FILE_STACK: usize = 2 << 20;

/// Runs what may wait for a disk on a thread of its own. Where none can be had the closure is dropped, and its promise with it.
pub(super) fn apart(work: impl FnOnce() + Send + 'static) {
    // A new thread that finds no memory for its signal stack aborts the process.
    if let Err(e) = check_headroom(FILE_STACK) {
        warning!("no thread for a file: {e}");
        return;
    }
    if let Err(e) = std::thread::Builder::new().name("weir-file".into()).stack_size(FILE_STACK).spawn(work) {
        warning!("no thread for a file: {e}");
    }
}

/// Bytes of so many buffers of a session.
pub(super) fn pool_bytes(config: &SessionConfig, buffers: u32) -> u64 {
    u64::from(config.buffer_size).saturating_mul(1024).saturating_mul(u64::from(buffers))
}

/// Buffers of a session that so many bytes hold.
pub(super) fn buffers_in(bytes: u64, config: &SessionConfig) -> u32 {
    let buffers = bytes.checked_div(pool_bytes(config, 1)).unwrap_or(0);
    u32::try_from(buffers).unwrap_or(u32::MAX)
}
