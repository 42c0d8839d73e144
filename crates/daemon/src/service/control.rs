//! Sessions: start, query, update, flush, stop.
//!
//! ```text
//!   Start ─▶ checks, in the published order ─▶ Starting ─(own thread: empty the file, Session::start)─▶ Started ─▶ Properties
//!   Stop  ─▶ Stopping, CloseSession to all ─▶ Acks, or a second ─▶ Session::stop ─▶ Stopped ─▶ Properties
//!   end by itself, shut down ─▶ as Stop, for nobody
//! ```

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_session::{Config, Error, Place, Session};
use traceweir_transport::cpu;
use traceweir_transport::message::{Control, Message, Properties, SessionConfig, SessionRef, Update};

use super::notice::{Notice, Promise};
use super::sessions::{Entry, State, not_running};
use super::wait::Purpose;
use super::{Asker, CLOSE_WITHIN, Service, info, warning};
use crate::error::Refusal;
use crate::logfile::{self, FileKey, LogFile};

/// Updates and flushes of one session that may be under way.
const MAX_CHANGES: usize = 64;

impl Service {
    /// Starts a session.
    pub(super) fn start(
        &mut self,
        asker: Asker,
        mut config: SessionConfig,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        if config.guid.is_null() {
            config.guid = random_guid()?;
        }
        let config = Config::new(config, cpu::possible())?;
        let raw = config.properties();
        let (name, guid) = (raw.name.clone(), raw.guid);
        let file = logfile::accept(raw.log_file.is_some(), descriptors)?;
        let key = file.as_ref().map(|file| file.key);
        self.sessions.check(&name, &guid, key)?;
        let id = self.sessions.next_id();
        let state = State::Starting { asker, ended: None };
        let tied_to = raw.tied.then_some(asker.link);
        let files = key.into_iter().collect();
        self.sessions.insert(id, Entry { name, guid, files, file: key, changes: 0, tied_to, state });
        let pid = self.peer(asker.link).map_or(0, |peer| peer.pid);
        self.launch(id, config, file, pid);
        Ok(())
    }

    /// Emptying an old file and writing the header may take their time: they have a thread of their own.
    fn launch(&self, id: u64, config: Config, file: Option<LogFile>, pid: u32) {
        let promise = Promise::new(&self.post, move |outcome| Notice::Started { id, outcome });
        let post = self.post.clone();
        apart(move || {
            promise.keep(emptied(file).and_then(|file| {
                let on_end = Box::new(move |ended: traceweir_session::Ended| {
                    post(Notice::Ended { id, status: ended.status });
                });
                Session::start(config, Place { id, file, starter: (pid, pid), on_end })
            }));
        });
    }

    /// Controls a session.
    pub(super) fn control(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        control: Control,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        match control {
            Control::Query => {
                let id = self.sessions.find(session)?;
                let properties =
                    self.sessions.session(id).map(Session::properties).ok_or_else(not_running)?;
                self.reply(asker, Message::Properties(Box::new(properties)));
                Ok(())
            }
            Control::Stop => {
                let id = self.sessions.find(session)?;
                self.stop(asker, id)
            }
            Control::Update(update) => self.update(asker, session, update, descriptors),
            Control::Flush { log_file } => self.flush(asker, session, log_file, descriptors),
            Control::Outcome => {
                let outcome = self.sessions.outcome(session)?.clone();
                self.reply(asker, Message::Properties(Box::new(outcome)));
                Ok(())
            }
        }
    }

    fn update(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        update: Update,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let (id, session) = self.sessions.find_running(session)?;
        let session = session.clone();
        let file = self.reserve(id, update.log_file.is_some(), descriptors)?;
        let promise = self.promise_change(id, asker, file.as_ref(), true);
        if file.is_none() {
            session.update(update, None, promise.done());
            return Ok(());
        }
        apart(move || match emptied(file) {
            Ok(file) => session.update(update, file, promise.done()),
            Err(e) => promise.keep(Err(e)),
        });
        Ok(())
    }

    fn flush(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        log_file: Option<PathBuf>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let (id, session) = self.sessions.find_running(session)?;
        let session = session.clone();
        let file = self.reserve(id, log_file.is_some(), descriptors)?;
        let promise = self.promise_change(id, asker, file.as_ref(), false);
        let Some(path) = log_file else {
            session.flush(None, promise.done());
            return Ok(());
        };
        apart(move || match emptied(file) {
            Ok(file) => session.flush(file.map(|file| (file, path)), promise.done()),
            Err(e) => promise.keep(Err(e)),
        });
        Ok(())
    }

    /// Counts a change, checks the file that came along and keeps others from using it meanwhile.
    fn reserve(
        &mut self,
        id: u64,
        named: bool,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Option<LogFile>, Refusal> {
        let file = logfile::accept(named, descriptors)?;
        let key = file.as_ref().map(|file| file.key);
        self.sessions.check_file(key)?;
        let entry = self.sessions.get_mut(id).ok_or_else(not_running)?;
        if entry.changes >= MAX_CHANGES {
            return Err(Refusal::new(Status::ERROR_BUSY, "too many changes of this session are under way"));
        }
        entry.changes += 1;
        entry.files.extend(key);
        Ok(file)
    }

    fn promise_change(
        &self,
        id: u64,
        asker: Asker,
        file: Option<&LogFile>,
        keeps_file: bool,
    ) -> Promise<Properties> {
        let file = file.map(|file| file.key);
        Promise::new(&self.post, move |outcome| Notice::Changed { id, asker, file, keeps_file, outcome })
    }

    fn stop(&mut self, asker: Asker, id: u64) -> Result<(), Refusal> {
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
            Notice::Changed { id, asker, file, keeps_file, outcome } => {
                self.changed(id, file, keeps_file && outcome.is_ok());
                self.answer(asker, outcome);
            }
            Notice::Stopped { id, outcome } => self.stopped(id, outcome),
            Notice::Opened { id, asker, outcome } => self.opened(id, asker, outcome),
        }
    }

    /// A change is over: the file that is not the session's any more, or never was, is free for others.
    fn changed(&mut self, id: u64, file: Option<FileKey>, keeps_file: bool) {
        let Some(entry) = self.sessions.get_mut(id) else { return };
        entry.changes = entry.changes.saturating_sub(1);
        let Some(key) = file else { return };
        let released = if keeps_file { entry.file.replace(key) } else { Some(key) };
        if let Some(released) = released {
            entry.files.remove(&released);
        }
    }

    fn started(&mut self, id: u64, outcome: traceweir_session::Result<Session>) {
        let Some(entry) = self.sessions.get_mut(id) else { return };
        let State::Starting { asker, ended } = entry.state else { return };
        match outcome {
            Ok(session) => {
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
fn apart(work: impl FnOnce() + Send + 'static) {
    if let Err(e) = std::thread::Builder::new().name("weir-file".into()).spawn(work) {
        warning!("no thread for a file: {e}");
    }
}

/// The file, without its old content.
fn emptied(file: Option<LogFile>) -> traceweir_session::Result<Option<File>> {
    let Some(LogFile { file, .. }) = file else { return Ok(None) };
    file.set_len(0).map_err(Error::File)?;
    Ok(Some(file))
}

fn random_guid() -> Result<Guid, Refusal> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|_| Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "no random numbers"))?;
    // The marks of a random GUID (RFC 9562, version 4): it never equals one that was derived from a name.
    let [_, _, _, _, _, _, _, version, variant, ..] = &mut bytes;
    *version = *version & 0x0F | 0x40;
    *variant = *variant & 0x3F | 0x80;
    Ok(Guid::from_bytes(&bytes))
}
