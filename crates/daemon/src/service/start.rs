//! How a session begins.
//!
//! ```text
//!   Start ─▶ checks, in the published order ─▶ Starting ─(own thread: kernel events, check and empty the file, Session::start)─▶ Started ─▶ Properties
//!                       └─ no place: the file is looked at all the same, for a full disk is told first ─▶ Looked ─▶ Refused
//! ```

use traceweir_format::Guid;
use traceweir_format::spec::access::DEFAULT_TRACE_SECURITY;
use traceweir_format::spec::status::Status;
use traceweir_kernel::Wanted;
use traceweir_session::config::is_system_logger;
use traceweir_session::{Config, Place, Session};
use traceweir_transport::map::check_headroom;
use traceweir_transport::message::SessionConfig;

use super::access::rights_to_run;
use super::control::{FILE_STACK, apart, buffers_in, pool_bytes};
use super::notice::{Notice, Promise, Started};
use super::sessions::{Entry, State, Uncounted, not_running};
use super::{Asker, Service, own, warning};
use crate::access::Identity;
use crate::error::Refusal;
use crate::kernel::{self, Begun, Wishes};
use crate::logfile::{Named, Opened, Passed, Terms, next_file};

/// Files of sessions that there is no place for that may be looked at.
const MAX_LOOKS: usize = 16;

impl Service {
    /// Starts a session.
    pub(super) fn start(
        &mut self,
        asker: Asker,
        mut config: SessionConfig,
        passed: Passed,
    ) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        let generated = if config.guid.is_null() { Some(random_guid()?) } else { None };
        config.guid = generated.unwrap_or(config.guid);
        // Settings tell it from now on.
        let stacks = std::mem::take(&mut config.kernel_stacks);
        let config = own::checked(asker, config)?;
        let raw = config.properties();
        // A name may have a GUID of its own.
        let is_generated = generated == Some(raw.guid);
        // What gets a GUID that nobody knows has no list but the default.
        let judged_by = if is_generated { DEFAULT_TRACE_SECURITY } else { raw.guid };
        self.check_right(asker.link, judged_by, rights_to_run(raw))?;
        let wishes = is_system_logger(raw).then(|| Wishes::of_flags(raw.enable_flags));
        if let Some(wishes) = &wishes {
            self.check_sight(asker.link, raw)?;
            self.check_kernel_events(asker.link, &wishes.sum())?;
        }
        let settings = self.settings_at_start(raw, &stacks)?;
        self.sessions.check_name(&raw.name, &raw.guid)?;
        self.privates.check_name(&raw.name)?;
        let (pid, owner) = self.starter(asker.link).ok_or_else(not_running)?;
        passed.check(Named::by(raw.log_file_mode, raw.log_file.is_some()))?;
        let (name, guid) = (raw.name.clone(), raw.guid);
        // The published order puts the room on the disk before the number of sessions and their memory.
        let terms = Terms::of_log(raw, owner.uid);
        let claimant = self.claimant(asker);
        let room = self.sessions.check_room(claimant);
        let room = room.and_then(|()| wishes.as_ref().map_or(Ok(()), |_| self.kernels.check_room(raw)));
        let config = match room.and_then(|()| self.fit(config, claimant.is_guest)) {
            Ok(config) => config,
            Err(refusal) => return self.refuse_after_look(asker, passed, terms, refusal),
        };
        let raw = config.properties();
        let id = self.sessions.next_id();
        let state = State::Starting { asker, ended: None };
        let tied_to = raw.tied.then_some(asker.link);
        let pool_bytes = pool_bytes(raw, raw.maximum_buffers);
        let (file, changes, starter) = (None, 0, self.who(asker.link));
        if is_generated {
            self.sessions.generated.insert(guid);
        }
        let entry = Entry {
            name,
            guid,
            file,
            pool_bytes,
            uncounted: Uncounted::default(),
            changes,
            tied_to,
            starter,
            owner: claimant,
            state,
        };
        self.sessions.insert(id, entry);
        if let Some(settings) = settings {
            self.information.keep(id, settings);
        }
        let information = &self.information;
        let wanted = wishes.map(|wishes| self.kernels.add(id, config.properties(), wishes, information));
        self.launch(id, config, wanted, (passed, terms), (pid, owner));
        Ok(())
    }

    /// With fewer buffers at most, where all sessions together would take too much of the memory.
    pub(super) fn fit(&self, config: Config, is_guest: bool) -> Result<Config, Refusal> {
        let (raw, left) = (config.properties(), self.sessions.pool_left(is_guest));
        check_headroom(FILE_STACK.saturating_add(usize::try_from(pool_bytes(raw, 1)).unwrap_or(usize::MAX)))
            .map_err(|e| Refusal::new(e.status(), e.to_string()))?;
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
    pub(super) fn launch(
        &self,
        id: u64,
        config: Config,
        wanted: Option<Wanted>,
        (passed, terms): (Passed, Terms),
        (pid, owner): (u32, Identity),
    ) {
        let promise = Promise::new(&self.post, move |outcome| Notice::Started { id, outcome });
        let (post, files) = (self.post.clone(), self.files.clone());
        apart(move || {
            // Before the file, which is emptied when it is opened.
            let begun = match wanted.map(|wanted| capture(&wanted, &config)).transpose() {
                Ok(begun) => begun.flatten(),
                Err(e) => return promise.keep(Err(e)),
            };
            let opened = passed.open(&files, &terms);
            promise.keep(opened.and_then(|Opened { file, claim, folder, rights }| {
                let on_end = Box::new(move |ended: traceweir_session::Ended| {
                    post(Notice::Ended { id, status: ended.status });
                });
                let next_file = folder.map(|folder| next_file(folder, owner.into(), rights, files, terms));
                let starter = (pid, pid);
                let has_roots_room = terms.has_roots_room();
                let place = Place { id, file, next_file, has_roots_room, starter, on_end };
                // What the session reports of itself is what it gets.
                let config = match &begun {
                    Some(begun) => config.with_stack_bytes(begun.stack_bytes),
                    None => config,
                };
                let session = Session::start(config, place)?;
                let kernel = begun.map(|Begun { source, control, losses, .. }| {
                    session.capture(source);
                    (control, losses)
                });
                Ok(Started { session, claim, kernel })
            }));
        });
    }

    /// There is no place for a session: it is refused, for want of room on the disk where that is missing too. The file stays as it is.
    pub(super) fn refuse_after_look(
        &mut self,
        asker: Asker,
        passed: Passed,
        terms: Terms,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        if passed.is_empty() || self.looking >= MAX_LOOKS {
            return Err(refusal);
        }
        self.looking += 1;
        let promise = Promise::new(&self.post, move |outcome| Notice::Looked { asker, refusal, outcome });
        let files = self.files.clone();
        apart(move || promise.keep(passed.look(&files, &terms).map(drop)));
        Ok(())
    }

    /// The file of a session that there is no place for was looked at.
    pub(super) fn looked(&mut self, asker: Asker, refusal: Refusal, outcome: traceweir_session::Result<()>) {
        self.looking = self.looking.saturating_sub(1);
        let refusal = match outcome {
            // Nobody could look.
            Ok(()) | Err(traceweir_session::Error::Ended) => refusal,
            Err(e) => e.into(),
        };
        self.refuse(asker, refusal);
    }

    /// Keeps so many MB free on the system's own file system when sessions start.
    pub(crate) fn set_reserve_mb(&self, reserve: u32) {
        self.files.set_reserve(u64::from(reserve) << 20);
    }
}

/// What is captured of the kernel for a session. One that wants no events runs without, where there is nothing to be had.
fn capture(wanted: &Wanted, config: &Config) -> traceweir_session::Result<Option<Begun>> {
    match kernel::begin(wanted, config.properties()) {
        Err(e) if !kernel::wants_events(&wanted.groups.0) => {
            warning!("session {:?} gets no kernel events: {e}", config.properties().name);
            Ok(None)
        }
        begun => begun.map(Some),
    }
}

fn random_guid() -> Result<Guid, Refusal> {
    let none = || Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "no random numbers");
    traceweir_session::config::new_guid().ok_or_else(none)
}
