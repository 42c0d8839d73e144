//! How a session starts.
//!
//! ```text
//!   Start ─▶ checks, in the published order ─▶ Starting
//!       │      └─(own thread: kernel events, check and empty the file, Session::start)─▶ Started
//!       │             ─▶ Properties
//!       └─ no room: the file is checked nevertheless, because a full disk is reported first
//!              ─▶ FileChecked ─▶ Refused
//! ```

use traceweir_format::Guid;
use traceweir_format::spec::access::DEFAULT_TRACE_SECURITY;
use traceweir_format::spec::status::Status;
use traceweir_kernel::CaptureSettings;
use traceweir_session::config::is_system_logger;
use traceweir_session::{Config, Session, StartOptions};
use traceweir_transport::map::check_headroom;
use traceweir_transport::message::SessionConfig;

use super::access::rights_to_run;
use super::control::{FILE_STACK, buffers_in, pool_bytes, spawn_file_thread};
use super::notice::{Notice, Promise, Started};
use super::sessions::{Entry, State, Uncounted, not_running};
use super::{ReplyTo, Service, log_warning, own};
use crate::access::Identity;
use crate::error::Refusal;
use crate::kernel::{self, OpenCapture, RequestedGroups};
use crate::logfile::{NamedFiles, OpenedFiles, PassedDescriptors, Terms, next_file};

/// Maximum number of file checks under way for sessions that are about to be refused.
const MAX_FILE_CHECKS: usize = 16;

impl Service {
    /// Starts a session.
    pub(super) fn start(
        &mut self,
        reply_to: ReplyTo,
        mut config: SessionConfig,
        passed: PassedDescriptors,
    ) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        let generated = if config.guid.is_null() { Some(random_guid()?) } else { None };
        config.guid = generated.unwrap_or(config.guid);
        // From here on the settings hold the stack configuration.
        let stacks = std::mem::take(&mut config.kernel_stacks);
        let config = own::check_config(reply_to, config)?;
        let raw = config.properties();
        // A session name can imply a fixed GUID, which then replaces the generated one.
        let is_generated = generated == Some(raw.guid);
        // A generated GUID has no access list of its own; the default list applies.
        let access_object = if is_generated { DEFAULT_TRACE_SECURITY } else { raw.guid };
        self.check_right(reply_to.link, access_object, rights_to_run(raw))?;
        let requested = is_system_logger(raw).then(|| RequestedGroups::from_flags(raw.enable_flags));
        if let Some(requested) = &requested {
            self.check_kernel_access(reply_to.link, raw)?;
            self.check_kernel_events(reply_to.link, &requested.combined())?;
        }
        let settings = self.settings_at_start(raw, &stacks)?;
        self.sessions.check_name(&raw.name, &raw.guid)?;
        self.privates.check_name(&raw.name)?;
        let (pid, owner) = self.starter(reply_to.link).ok_or_else(not_running)?;
        passed.check(NamedFiles::from_mode(raw.log_file_mode, raw.log_file.is_some()))?;
        let (name, guid) = (raw.name.clone(), raw.guid);
        // The published order checks disk space before the number of sessions and their memory.
        let terms = Terms::for_log(raw, owner.uid);
        let claimant = self.claimant(reply_to);
        let room = self.sessions.check_room(claimant);
        let room = room.and_then(|()| requested.as_ref().map_or(Ok(()), |_| self.kernels.check_room(raw)));
        let config = match room.and_then(|()| self.fit_pool(config, claimant.is_guest)) {
            Ok(config) => config,
            Err(refusal) => return self.refuse_after_file_check(reply_to, passed, terms, refusal),
        };
        let raw = config.properties();
        let id = self.sessions.next_id();
        let state = State::Starting { reply_to, ended: None };
        let tied_to = raw.tied.then_some(reply_to.link);
        let pool_bytes = pool_bytes(raw, raw.maximum_buffers);
        let (file, changes, starter) = (None, 0, self.peer_name(reply_to.link));
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
        let wanted =
            requested.map(|requested| self.kernels.add(id, config.properties(), requested, information));
        self.launch(id, config, wanted, (passed, terms), (pid, owner));
        Ok(())
    }

    /// Reduces the maximum number of buffers if all sessions together would use too much memory.
    pub(super) fn fit_pool(&self, config: Config, is_guest: bool) -> Result<Config, Refusal> {
        let (raw, left) = (config.properties(), self.sessions.pool_left(is_guest));
        check_headroom(FILE_STACK.saturating_add(usize::try_from(pool_bytes(raw, 1)).unwrap_or(usize::MAX)))
            .map_err(|e| Refusal::new(e.status(), e.to_string()))?;
        if pool_bytes(raw, raw.maximum_buffers) <= left {
            return Ok(config);
        }
        if pool_bytes(raw, raw.minimum_buffers) > left {
            let reason = "the buffers of all sessions would take more than half of the memory";
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        let maximum_buffers = buffers_in(left, raw).max(raw.minimum_buffers);
        Ok(config.with_maximum_buffers(maximum_buffers))
    }

    /// Starts a session on a thread of its own: checking and emptying a file and writing the header
    /// may take long.
    pub(super) fn launch(
        &self,
        id: u64,
        config: Config,
        wanted: Option<CaptureSettings>,
        (passed, terms): (PassedDescriptors, Terms),
        (pid, owner): (u32, Identity),
    ) {
        let promise = Promise::new(&self.post, move |outcome| Notice::Started { id, outcome });
        let (post, files) = (self.post.clone(), self.files.clone());
        spawn_file_thread(move || {
            // Before the file is opened, because opening empties it.
            let begun = match wanted.map(|wanted| capture(&wanted, &config)).transpose() {
                Ok(begun) => begun.flatten(),
                Err(e) => return promise.keep(Err(e)),
            };
            let opened = passed.open(&files, &terms);
            promise.keep(opened.and_then(|OpenedFiles { file, claim, folder, rights }| {
                let on_end = Box::new(move |ended: traceweir_session::Ended| {
                    post(Notice::Ended { id, status: ended.status });
                });
                let next_file = folder.map(|folder| next_file(folder, owner.into(), rights, files, terms));
                let starter = (pid, pid);
                let may_use_reserved_blocks = terms.has_roots_room();
                let options = StartOptions { id, file, next_file, may_use_reserved_blocks, starter, on_end };
                // The session reports the stack size that it actually gets.
                let config = match &begun {
                    Some(begun) => config.with_stack_bytes(begun.stack_bytes),
                    None => config,
                };
                let session = Session::start(config, options)?;
                let kernel = begun.map(|OpenCapture { source, control, losses, .. }| {
                    session.capture(source);
                    (control, losses)
                });
                Ok(Started { session, claim, kernel })
            }));
        });
    }

    /// Refuses a session for which there is no room; the refusal is about disk space if that is
    /// missing too. The file is not changed.
    pub(super) fn refuse_after_file_check(
        &mut self,
        reply_to: ReplyTo,
        passed: PassedDescriptors,
        terms: Terms,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        if passed.is_empty() || self.file_checks >= MAX_FILE_CHECKS {
            return Err(refusal);
        }
        self.file_checks += 1;
        let promise =
            Promise::new(&self.post, move |outcome| Notice::FileChecked { reply_to, refusal, outcome });
        let files = self.files.clone();
        spawn_file_thread(move || promise.keep(passed.check_file(&files, &terms).map(drop)));
        Ok(())
    }

    /// Sends the refusal once the file has been checked.
    pub(super) fn file_checked(
        &mut self,
        reply_to: ReplyTo,
        refusal: Refusal,
        outcome: traceweir_session::Result<()>,
    ) {
        self.file_checks = self.file_checks.saturating_sub(1);
        let refusal = match outcome {
            // `Ended`: the file could not be checked.
            Ok(()) | Err(traceweir_session::Error::Ended) => refusal,
            Err(e) => e.into(),
        };
        self.refuse(reply_to, refusal);
    }

    /// Sets how many MB stay free on the system's own file system when sessions start.
    pub(crate) fn set_reserve_mb(&self, reserve: u32) {
        self.files.set_reserve(u64::from(reserve) << 20);
    }
}

/// Opens the kernel capture of a session. A session that wants no events runs without one if none
/// can be opened.
fn capture(wanted: &CaptureSettings, config: &Config) -> traceweir_session::Result<Option<OpenCapture>> {
    match kernel::begin(wanted, config.properties()) {
        Err(e) if !kernel::wants_events(&wanted.groups.0) => {
            log_warning!("session {:?} gets no kernel events: {e}", config.properties().name);
            Ok(None)
        }
        begun => begun.map(Some),
    }
}

fn random_guid() -> Result<Guid, Refusal> {
    let none = || Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "no random numbers");
    traceweir_session::config::new_guid().ok_or_else(none)
}
