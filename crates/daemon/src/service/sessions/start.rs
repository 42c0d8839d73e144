//! How a session starts on a separate thread, or is refused because of a limit.
//!
//! ```text
//!   Start ─▶ checks, in the documented order of StartTrace's errors ─▶ Starting
//!       │      └─(own thread: open capture, check and empty the file, Session::start)─▶ Started
//!       │             ─▶ Properties
//!       └─ limit reached: the file is checked nevertheless, because a full disk takes precedence
//!              ─▶ FileChecked ─▶ Refused
//! ```

use traceweir_format::spec::session::EVENT_TRACE_PRIVATE_IN_PROC;
use traceweir_format::spec::status::Status;
use traceweir_kernel::CaptureSettings;
use traceweir_session::{Config, Session, StartOptions};
use traceweir_transport::cpu;
use traceweir_transport::map::check_headroom;
use traceweir_transport::message::SessionConfig;

use super::control::{buffers_in, pool_bytes};
use super::{SessionEntry, SessionPhase, SessionTable, UncountedProcesses};
use crate::access::UserIdentity;
use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};
use crate::kernel::{self, OpenCapture};
use crate::limits::Claimant;
use crate::log::log_warning;
use crate::logfile::{FileTerms, OpenedFiles, PassedDescriptors, next_file};
use crate::service::access::{AccessControl, OWN_LINK};
use crate::service::notice::{FILE_THREAD_STACK_BYTES, StartedSession, ThreadNotice, spawn_file_thread};
use crate::service::turn::ServiceTurn;

/// Maximum number of file checks under way for sessions that are about to be refused.
const MAX_FILE_CHECKS: usize = 16;

/// The log file of a session that is about to start, and the process that starts it.
pub(in crate::service) struct RequestedLogFile {
    pub(in crate::service) passed: PassedDescriptors,
    pub(in crate::service) terms: FileTerms,
    pub(in crate::service) pid: u32,
    pub(in crate::service) identity: UserIdentity,
}

impl SessionTable {
    /// Adds a session that is being started; returns its id.
    pub(in crate::service) fn add(
        &mut self,
        access: &AccessControl,
        reply_to: ReplyTo,
        claimant: Claimant,
        config: &SessionConfig,
    ) -> u64 {
        let id = self.next_id();
        let entry = SessionEntry {
            name: config.name.clone(),
            guid: config.guid,
            file: None,
            pool_bytes: pool_bytes(config, config.maximum_buffers),
            uncounted: UncountedProcesses::default(),
            changes: 0,
            tied_to: config.tied.then_some(reply_to.link),
            starter: access.peer_name(reply_to.link),
            claimant,
            has_kernel_events: false,
            phase: SessionPhase::Starting { reply_to, ended: None },
        };
        self.insert(id, entry);
        id
    }

    /// Reduces the maximum number of buffers if all sessions together would use too much memory;
    /// refuses the session if even its minimum number does not fit.
    pub(in crate::service) fn reduce_pool(&self, config: Config, is_guest: bool) -> Result<Config, Refusal> {
        let (properties, free_bytes) = (config.properties(), self.free_pool_bytes(is_guest));
        check_headroom(
            FILE_THREAD_STACK_BYTES
                .saturating_add(usize::try_from(pool_bytes(properties, 1)).unwrap_or(usize::MAX)),
        )
        .map_err(|e| Refusal::new(e.status(), e.to_string()))?;
        if pool_bytes(properties, properties.maximum_buffers) <= free_bytes {
            return Ok(config);
        }
        if pool_bytes(properties, properties.minimum_buffers) > free_bytes {
            let reason = "the buffers of all sessions would take more memory than sessions may use";
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        let maximum_buffers = buffers_in(free_bytes, properties).max(properties.minimum_buffers);
        Ok(config.with_maximum_buffers(maximum_buffers))
    }

    /// Starts a session on a separate thread: checking and emptying a file and writing the header
    /// may take long.
    pub(in crate::service) fn launch(
        &self,
        turn: &ServiceTurn,
        id: u64,
        config: Config,
        capture_settings: Option<CaptureSettings>,
        log_file: RequestedLogFile,
    ) {
        let RequestedLogFile { passed, terms, pid, identity } = log_file;
        let promise = turn.promise(move |outcome| ThreadNotice::Started { id, outcome });
        let (post, files) = (turn.post(), self.files.clone());
        spawn_file_thread(move || {
            // The capture comes first: if it fails, the file must not have been emptied.
            let kernel_capture = capture_settings.map(|settings| open_capture(&settings, &config));
            let kernel_capture = match kernel_capture.transpose() {
                Ok(kernel_capture) => kernel_capture.flatten(),
                Err(e) => return promise.deliver(Err(e)),
            };
            let opened = passed.open(&files, &terms);
            promise.deliver(opened.and_then(|OpenedFiles { file, claim, folder, rights }| {
                let on_end = Box::new(move |ended: traceweir_session::Ended| {
                    post(ThreadNotice::Ended { id, status: ended.status });
                });
                let next_file = folder.map(|folder| next_file(folder, identity.into(), rights, files, terms));
                // The thread is not known, so the main thread stands for it.
                let starter = (pid, pid);
                let may_use_reserved_blocks = terms.may_use_reserved_blocks();
                let options = StartOptions { id, file, next_file, may_use_reserved_blocks, starter, on_end };
                // The properties report how many stack bytes the capture actually copies.
                let config = match &kernel_capture {
                    Some(kernel_capture) => config.with_stack_bytes(kernel_capture.stack_bytes),
                    None => config,
                };
                let session = Session::start(config, options)?;
                let kernel = kernel_capture.map(|OpenCapture { source, control, losses, .. }| {
                    session.capture(source);
                    (control, losses)
                });
                Ok(StartedSession { session, claim, kernel })
            }));
        });
    }

    /// Refuses a session that exceeds a limit. If its file cannot be used either, for instance for
    /// lack of disk space, the refusal reports that instead. The file is not changed.
    pub(in crate::service) fn refuse_after_file_check(
        &mut self,
        turn: &ServiceTurn,
        reply_to: ReplyTo,
        passed: PassedDescriptors,
        terms: FileTerms,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        if passed.is_empty() || self.file_checks >= MAX_FILE_CHECKS {
            return Err(refusal);
        }
        self.file_checks += 1;
        let promise = turn.promise(move |outcome| ThreadNotice::FileChecked { reply_to, refusal, outcome });
        let files = self.files.clone();
        spawn_file_thread(move || promise.deliver(passed.check_file(&files, &terms).map(drop)));
        Ok(())
    }

    /// Sends the refusal once the file has been checked.
    pub(in crate::service) fn handle_file_check(
        &mut self,
        turn: &mut ServiceTurn,
        reply_to: ReplyTo,
        refusal: Refusal,
        outcome: traceweir_session::Result<()>,
    ) {
        self.file_checks = self.file_checks.saturating_sub(1);
        let refusal = match outcome {
            // `Ended` means that the check did not run.
            Ok(()) | Err(traceweir_session::Error::Ended) => refusal,
            Err(e) => e.into(),
        };
        turn.refuse(reply_to, refusal);
    }

    /// Sets the reserve: the MB that a log file on the file system of `/` must leave free.
    pub(in crate::service) fn set_reserve_mb(&self, reserve: u32) {
        self.files.set_reserve(u64::from(reserve) << 20);
    }
}

/// Opens the kernel capture of a session. A session that wants no kernel events runs without a
/// capture if none can be opened.
fn open_capture(
    settings: &CaptureSettings,
    config: &Config,
) -> traceweir_session::Result<Option<OpenCapture>> {
    match kernel::open_capture(settings, config.properties()) {
        Err(e) if !kernel::wants_events(&settings.groups.0) => {
            log_warning!("session {:?} gets no kernel events: {e}", config.properties().name);
            Ok(None)
        }
        kernel_capture => kernel_capture.map(Some),
    }
}

/// Checks the configuration of a session; refuses in-process sessions. Only an autologger, which
/// the daemon's own link starts, may be non-stoppable.
pub(in crate::service) fn check_config(link: LinkId, config: SessionConfig) -> Result<Config, Refusal> {
    if config.log_file_mode & EVENT_TRACE_PRIVATE_IN_PROC != 0 {
        let reason = "an in-process session is started by its own process, and needs no daemon";
        return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
    }
    let cpus = cpu::possible();
    let checked =
        if link == OWN_LINK { Config::for_autologger(config, cpus) } else { Config::new(config, cpus) };
    Ok(checked?)
}
