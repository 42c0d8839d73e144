//! Running sessions: query, update, flush, and the reports of their threads. `start` and `end` hold
//! how sessions start and end.
//!
//! ```text
//!   Update, Flush, … ─▶ counted ─(own thread: check and empty the file)─▶ the session's thread
//!       ─▶ Changed ─▶ Properties
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
use super::{ReplyTo, Service, log_warning};
use crate::error::Refusal;
use crate::kernel::RequestedGroups;
use crate::logfile::{Claim, NamedFiles, OpenedFiles, PassedDescriptors, Terms, next_file};

/// Maximum number of updates and flushes of one session under way.
const MAX_CHANGES: usize = 64;
/// The refusal for a flush to a file of a session that is not a flight recorder.
const NO_SNAPSHOT: &str = "only a flight recorder writes snapshots";

impl Service {
    /// Carries out a control request.
    pub(super) fn control(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        control: Control,
        passed: PassedDescriptors,
    ) -> Result<(), Refusal> {
        self.check_control(reply_to.link, session, &control)?;
        match control {
            Control::Query => {
                let id = self.sessions.find(session)?;
                let properties = self.sessions.properties(id).ok_or_else(not_running)?;
                self.reply(reply_to, Message::Properties(Box::new(properties)));
                Ok(())
            }
            Control::Stop => {
                let id = self.sessions.find(session)?;
                self.stop(reply_to, id)
            }
            Control::Update(update) => self.update(reply_to, session, update, passed),
            Control::Flush { log_file } => self.flush(reply_to, session, log_file, passed),
            Control::Increment => self.change(reply_to, session, Session::increment),
            Control::ConvertToRealTime => self.change(reply_to, session, Session::convert_to_real_time),
            Control::Outcome => {
                let outcome = self.sessions.outcome(session)?.clone();
                self.reply(reply_to, Message::Properties(Box::new(outcome)));
                Ok(())
            }
        }
    }

    /// Carries out a change that needs no file.
    fn change(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        change: impl FnOnce(&Session, Done<Properties>),
    ) -> Result<(), Refusal> {
        let (id, session) = self.sessions.find_running(session)?;
        let session = session.clone();
        self.count_change(id)?;
        change(
            &session,
            self.promise_change(id, reply_to, false, None)
                .completed_by(|properties| (properties, None))
                .into_callback(),
        );
        Ok(())
    }

    fn update(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        mut update: Update,
        passed: PassedDescriptors,
    ) -> Result<(), Refusal> {
        let (id, session) = self.sessions.find_running(session)?;
        let config = session.properties().config;
        passed.check(NamedFiles::from_mode(config.log_file_mode, update.log_file.is_some()))?;
        match update.enable_flags.take_if(|_| is_system_logger(&config)) {
            Some(flags) => self.update_groups(reply_to, (id, &config), flags, update, passed),
            None => self.update_rest(reply_to, id, update, passed, None),
        }
    }

    /// Updates everything except the kernel events. `before`: the kernel groups requested before
    /// the same request changed them.
    pub(super) fn update_rest(
        &mut self,
        reply_to: ReplyTo,
        id: u64,
        mut update: Update,
        passed: PassedDescriptors,
        before: Option<RequestedGroups>,
    ) -> Result<(), Refusal> {
        let session = self.sessions.running_session(id).ok_or_else(not_running)?.clone();
        let config = session.properties().config;
        self.count_change(id)?;
        self.bound_pool(reply_to, id, &session, &mut update);
        let promise = self.promise_change(id, reply_to, true, before);
        if update.log_file.is_none() {
            session.update(
                update,
                None,
                promise.completed_by(|properties| (properties, None)).into_callback(),
            );
            return Ok(());
        }
        let (_, owner) = self.starter(reply_to.link).ok_or_else(not_running)?;
        let (files, terms) = (self.files.clone(), Terms::for_log(&config, owner.uid));
        spawn_file_thread(move || match passed.open(&files, &terms) {
            Ok(OpenedFiles { file, claim, folder, rights }) => {
                keep_room(&session, &terms);
                let done = promise.completed_by(|properties| (properties, claim)).into_callback();
                match (file, folder) {
                    (Some(file), Some(folder)) => {
                        let next_file = next_file(folder, owner.into(), rights, files, terms);
                        session.update_with_sequence(update, file, next_file, done);
                    }
                    (file, _) => session.update(update, file, done),
                }
            }
            Err(e) => promise.keep(Err(e)),
        });
        Ok(())
    }

    /// Limits a requested number of buffers to the memory available, and reserves that memory for
    /// the session.
    fn bound_pool(&mut self, reply_to: ReplyTo, id: u64, session: &Session, update: &mut Update) {
        let (raw, left) =
            (session.properties().config, self.sessions.pool_left(self.is_guest(reply_to.link)));
        let (Some(requested), Some(entry)) = (&mut update.maximum_buffers, self.sessions.get_mut(id)) else {
            return;
        };
        let most = buffers_in(left.saturating_add(entry.pool_bytes), &raw);
        *requested = (*requested).min(most.max(raw.maximum_buffers));
        entry.pool_bytes = entry.pool_bytes.max(pool_bytes(&raw, *requested));
    }

    fn flush(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        log_file: Option<PathBuf>,
        passed: PassedDescriptors,
    ) -> Result<(), Refusal> {
        let (id, session) = self.sessions.find_running(session)?;
        let session = session.clone();
        passed.check(NamedFiles::from_mode(0, log_file.is_some()))?;
        // Check before the file is emptied: a file that is not written stays unchanged.
        let mode = session.properties().config.log_file_mode;
        if log_file.is_some() && mode & EVENT_TRACE_BUFFERING_MODE == 0 {
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, NO_SNAPSHOT));
        }
        let (_, owner) = self.starter(reply_to.link).ok_or_else(not_running)?;
        let terms = Terms::for_snapshot(owner.uid);
        self.count_change(id)?;
        let promise = self.promise_change(id, reply_to, false, None);
        let Some(path) = log_file else {
            session.flush(None, promise.completed_by(|properties| (properties, None)).into_callback());
            return Ok(());
        };
        let files = self.files.clone();
        spawn_file_thread(move || match passed.open(&files, &terms) {
            Ok(OpenedFiles { file, claim, .. }) => {
                keep_room(&session, &terms);
                let done = promise.completed_by(|properties| (properties, claim)).into_callback();
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
        reply_to: ReplyTo,
        keeps_file: bool,
        before: Option<RequestedGroups>,
    ) -> Promise<(Properties, Option<Claim>)> {
        Promise::new(&self.post, move |outcome| Notice::Changed { id, reply_to, keeps_file, before, outcome })
    }

    /// Handles a report of a session's thread.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Started { id, outcome } => self.session_started(id, outcome),
            Notice::FileChecked { reply_to, refusal, outcome } => {
                self.file_checked(reply_to, refusal, outcome)
            }
            Notice::Ended { id, status } => self.session_ended(id, status),
            Notice::Changed { id, reply_to, keeps_file, before, outcome } => {
                let outcome = self.finish_session_change(id, keeps_file, outcome);
                if let (Err(_), Some(groups)) = (&outcome, before) {
                    self.restore_groups(id, groups);
                }
                self.reply_with_properties(reply_to, outcome);
            }
            Notice::KernelChanged { change, outcome } => self.kernel_changed(*change, outcome),
            Notice::Stopped { id, outcome } => self.session_stopped(id, outcome),
            Notice::ConsumerOpened { id, reply_to, outcome } => self.consumer_opened(id, reply_to, outcome),
            Notice::AccessSaved { outcome } => self.access_saved(outcome),
        }
    }

    /// Finishes a change. A file that the session no longer uses, or never used, becomes free for
    /// others.
    fn finish_session_change(
        &mut self,
        id: u64,
        keeps_file: bool,
        outcome: traceweir_session::Result<(Properties, Option<Claim>)>,
    ) -> traceweir_session::Result<Properties> {
        let Some(entry) = self.sessions.get_mut(id) else { return outcome.map(|(properties, _)| properties) };
        entry.changes = entry.changes.saturating_sub(1);
        let (properties, claim) = outcome?;
        if keeps_file {
            entry.file = claim.or(entry.file.take());
        }
        // A session converted to real time no longer uses its file.
        entry.file = entry.file.take().filter(|_| properties.config.log_file.is_some());
        if entry.changes == 0 {
            entry.pool_bytes = pool_bytes(&properties.config, properties.config.maximum_buffers);
        }
        Ok(entry.with_uncounted(properties))
    }

    pub(super) fn reply_with_properties(
        &mut self,
        reply_to: ReplyTo,
        outcome: traceweir_session::Result<Properties>,
    ) {
        match outcome {
            Ok(properties) => self.reply(reply_to, Message::Properties(Box::new(properties))),
            Err(e) => self.refuse(reply_to, e.into()),
        }
    }
}

/// Records the disk space terms of the file that the session uses next.
fn keep_room(session: &Session, terms: &Terms) {
    if !terms.has_roots_room() {
        session.give_up_reserved_blocks();
    }
}

/// Stack size of a thread for file operations.
pub(super) const FILE_STACK: usize = 2 << 20;

/// Runs file operations, which may block, on a thread of their own. If no thread can be created,
/// the closure is dropped, and its promise with it.
pub(super) fn spawn_file_thread(work: impl FnOnce() + Send + 'static) {
    // A new thread that finds no memory for its signal stack aborts the process.
    if let Err(e) = check_headroom(FILE_STACK) {
        log_warning!("no thread for a file: {e}");
        return;
    }
    if let Err(e) = std::thread::Builder::new().name("weir-file".into()).stack_size(FILE_STACK).spawn(work) {
        log_warning!("no thread for a file: {e}");
    }
}

/// Returns the size in bytes of a number of buffers of a session.
pub(super) fn pool_bytes(config: &SessionConfig, buffers: u32) -> u64 {
    u64::from(config.buffer_size).saturating_mul(1024).saturating_mul(u64::from(buffers))
}

/// Returns how many buffers of a session fit into a number of bytes.
pub(super) fn buffers_in(bytes: u64, config: &SessionConfig) -> u32 {
    let buffers = bytes.checked_div(pool_bytes(config, 1)).unwrap_or(0);
    u32::try_from(buffers).unwrap_or(u32::MAX)
}
