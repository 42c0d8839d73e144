//! The calls of the C interface: sessions, enables and providers as control messages contain them.
//!
//! These calls are hidden. They are meant for the crate `traceweir-ffi`, which fills C structures
//! from these messages without a conversion, and for the conformance tests. Programs use
//! [`Session`](crate::Session) and the documented methods of [`Controller`], which are built on
//! these calls.

mod bytes;

use std::path::PathBuf;
use std::time::Duration;

pub use bytes::{
    InformationAnswer, OutputBuffer, Responder, configure_last_branch_record_bytes, enumerate_bytes,
    query_bytes, set_bytes,
};
use traceweir_format::Guid;
use traceweir_format::info::{Answer, Branches, Query, Set};
use traceweir_format::spec::session::{EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_NEWFILE};
use traceweir_format::spec::status::Status;
use traceweir_session::info::{Machine, answer_locally};
use traceweir_transport::message::{Control, Message};
pub use traceweir_transport::message::{
    EnableCode, EnableEntry, EnableParams, Filter, LostByCause, Properties, ProviderEntry, RegistrationEntry,
    SessionConfig, SessionRef, Update,
};

use super::info::{ClassicEventId, check_session_required};
use super::private::is_private;
use super::{Controller, DISK_TIMEOUT, INFINITE_MS, REPLY_TIMEOUT, SYSTEM_SESSION};
use crate::error::{Error, Result};
use crate::logfile::{SessionLog, descriptors};

/// The session reference for requests about the system.
pub const NO_SESSION: SessionRef = SYSTEM_SESSION;

#[doc(hidden)]
impl Controller {
    /// Validates a session by the rules that need no daemon, in the documented order of errors.
    pub fn check_start(config: &SessionConfig) -> Result<()> {
        let validate = match is_private(config) {
            true => traceweir_session::Config::for_private,
            false => traceweir_session::Config::new,
        };
        validate(config.clone(), traceweir_transport::cpu::possible())?;
        Ok(())
    }

    /// Starts a session.
    ///
    /// The log file is opened here, with the rights of the caller; a relative path starts at the
    /// working directory. If the daemon refuses, a log file that the call created is removed again.
    pub fn start(&mut self, config: &SessionConfig) -> Result<Properties> {
        // In the documented order of errors the properties come before the file.
        Self::check_start(config)?;
        if is_private(config) {
            return self.start_private(config);
        }
        let mut config = config.clone();
        let log =
            config.log_file.as_deref().map(|path| SessionLog::open(path, config.log_file_mode)).transpose();
        let log =
            log.map_err(|e| self.find_name_conflict(&config).filter(|_| !is_denied(&e)).unwrap_or(e))?;
        config.log_file = log.as_ref().map(|log| log.name.clone());
        let answer = self.ask(&Message::Start(Box::new(config)), &descriptors(log.as_ref()), REPLY_TIMEOUT);
        self.properties(answer, log)
    }

    /// Returns the error for a name or GUID that a session (not a private one) uses already. In the
    /// documented order it precedes the error for a missing folder.
    fn find_name_conflict(&mut self, config: &SessionConfig) -> Option<Error> {
        let guid = Some(config.guid).filter(|guid| !guid.is_null());
        let names = [Some(config.name.clone()), guid.map(|guid| guid.to_string())];
        let running =
            names.into_iter().flatten().find_map(|name| self.query(&SessionRef::Name(name)).ok())?;
        let reason = format!("a session {:?} is running", running.config.name);
        Some(Error::refused(Status::ERROR_ALREADY_EXISTS, reason)).filter(|_| !is_private(&running.config))
    }

    /// Returns the properties and statistics of a session.
    pub fn query(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Query, None, REPLY_TIMEOUT)
    }

    /// Returns the final properties of a session that ended recently; `end_status` gives the reason
    /// if it ended by itself.
    pub(crate) fn outcome(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Outcome, None, REPLY_TIMEOUT)
    }

    /// Returns the properties of all sessions.
    pub fn query_all(&mut self) -> Result<Vec<Properties>> {
        self.request_pages(
            |from| Message::QueryAll { from },
            |answer| match answer {
                Message::Sessions { total, sessions } => Ok((total, sessions)),
                other => Err(other),
            },
        )
    }

    /// Returns the recently ended sessions that the daemon remembers, the latest first; see
    /// [`outcome`](Self::outcome).
    pub(crate) fn query_ended(&mut self) -> Result<Vec<Properties>> {
        self.request_pages(
            |from| Message::QueryEnded { from },
            |answer| match answer {
                Message::Sessions { total, sessions } => Ok((total, sessions)),
                other => Err(other),
            },
        )
    }

    /// Changes a session. A new log file is opened here, as in [`start`](Self::start).
    pub fn update(&mut self, session: &SessionRef, update: &Update) -> Result<Properties> {
        let mut update = update.clone();
        let log = match &update.log_file {
            None => None,
            Some(path) => {
                let config = self.query(session)?.config;
                if is_private(&config) {
                    return self.update_private(session, update);
                }
                // The session determines whether a name is that of a file or of a file sequence.
                if config.log_file_mode & EVENT_TRACE_FILE_MODE_NEWFILE != 0 {
                    traceweir_session::config::check_sequence_pattern(path)?;
                }
                Some(SessionLog::open(path, config.log_file_mode)?)
            }
        };
        update.log_file = log.as_ref().map(|log| log.name.clone());
        self.control(session, Control::Update(update), log, DISK_TIMEOUT)
    }

    /// Writes buffered events to the log file. A flight recorder writes its snapshot to `file` or,
    /// if that is `None`, to its log file.
    ///
    /// For any other session, a `file` is refused with `ERROR_INVALID_PARAMETER` and stays
    /// unchanged.
    pub fn flush(&mut self, session: &SessionRef, file: Option<PathBuf>) -> Result<Properties> {
        if let Some(path) = &file {
            let config = self.query(session)?.config;
            if config.log_file_mode & EVENT_TRACE_BUFFERING_MODE == 0 {
                let reason = "only a flight recorder writes snapshots";
                return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
            }
            if is_private(&config) {
                return self.flush_private(session, path);
            }
        }
        let log = file.as_deref().map(|path| SessionLog::open(path, 0)).transpose()?;
        let log_file = log.as_ref().map(|log| log.name.clone());
        self.control(session, Control::Flush { log_file }, log, DISK_TIMEOUT)
    }

    /// Continues in the next file of a sequence (`EVENT_TRACE_FILE_MODE_NEWFILE`) now.
    ///
    /// Fails with `ERROR_INVALID_FUNCTION` if the session does not write a file sequence.
    pub fn increment(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Increment, None, DISK_TIMEOUT)
    }

    /// Finishes the log file of a session, which delivers live from now on.
    ///
    /// Fails with `ERROR_INVALID_FUNCTION` if the session has no log file.
    pub fn convert_to_real_time(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::ConvertToRealTime, None, DISK_TIMEOUT)
    }

    /// Stops a session: every event written before the call is in its file or counted as lost.
    pub fn stop(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Stop, None, DISK_TIMEOUT)
    }

    /// Enables or disables a provider, or requests its state.
    ///
    /// Waits for all processes for at most `timeout_ms` (`u32::MAX`: forever). After a timeout the
    /// status is `ERROR_TIMEOUT`, and the enable stays in effect. With 0 it waits only until the
    /// providers of the caller's own process are enabled, so that the first event after the call is
    /// recorded, and for no callback longer than 50 ms; it never fails with `ERROR_TIMEOUT`.
    pub fn enable(
        &mut self,
        session: &SessionRef,
        provider: Guid,
        code: EnableCode,
        params: &EnableParams,
        timeout_ms: u32,
    ) -> Result<()> {
        self.enable_named(session, provider, "", code, params, timeout_ms)
    }

    /// Enables a provider like [`enable`](Self::enable), and stores a name for it.
    ///
    /// The name is for providers that report none; [`provider_entries`](Self::provider_entries)
    /// returns it as [`EnableEntry::name`]. An empty name changes nothing. Fails with
    /// `ERROR_INVALID_PARAMETER` for more than 255 UTF-16 units, and for control characters.
    pub(crate) fn enable_named(
        &mut self,
        session: &SessionRef,
        provider: Guid,
        name: &str,
        code: EnableCode,
        params: &EnableParams,
        timeout_ms: u32,
    ) -> Result<()> {
        let (session, params, name) = (session.clone(), Box::new(params.clone()), name.to_owned());
        let message = Message::EnableProvider { session, provider, code, params, name, timeout_ms };
        let timeout = match timeout_ms {
            INFINITE_MS => Duration::MAX,
            ms => REPLY_TIMEOUT + Duration::from_millis(ms.into()),
        };
        match self.ask(&message, &[], timeout)? {
            Message::Done => {
                // Otherwise the daemon has waited for all processes, and so for this one.
                if timeout_ms == 0 {
                    crate::client::catch_up_with_daemons();
                }
                Ok(())
            }
            other => Err(self.unexpected_answer(&other)),
        }
    }

    /// Returns all providers that are registered or enabled.
    pub fn provider_entries(&mut self) -> Result<Vec<ProviderEntry>> {
        let mut entries: Vec<ProviderEntry> = Vec::new();
        loop {
            // Pages continue after a key, not a number: other entries may appear or vanish
            // meanwhile.
            let after = entries.last().map(|entry| (entry.provider, entry.is_group));
            match self.ask(&Message::QueryProviders { after }, &[], REPLY_TIMEOUT)? {
                Message::Providers { more, providers } => {
                    let key = |entry: &ProviderEntry| (entry.is_group, entry.provider);
                    // Stops if a daemon makes no progress.
                    let makes_progress = providers.first().map(key) > entries.last().map(key);
                    entries.extend(providers.into_iter().filter(|_| makes_progress));
                    if !more || !makes_progress {
                        return Ok(entries);
                    }
                }
                other => return Err(self.unexpected_answer(&other)),
            }
        }
    }

    /// Sets an information class of a session, or of the system (id 0). A failure changes
    /// nothing.
    ///
    /// Fails with `ERROR_NOT_SUPPORTED` if the machine lacks the hardware, and for classes that
    /// private sessions do not have; with `ERROR_INVALID_PARAMETER` for a session of the wrong
    /// kind, and for meaningless contents; with `ERROR_PRIVILEGE_NOT_HELD` if profiling the system
    /// is not allowed.
    pub fn set_information(&mut self, session: &SessionRef, set: &Set) -> Result<()> {
        let (class, data) = (set.class().number(), set.to_bytes());
        // Refuses lists that are too long for the class, among them all that no message can hold.
        Set::from_bytes(class, Some(&data), data.len())?;
        let session = session.clone();
        match self.ask(&Message::SetInformation { session, class, data }, &[], REPLY_TIMEOUT)? {
            Message::Done => Ok(()),
            other => Err(self.unexpected_answer(&other)),
        }
    }

    /// Queries an information class of a session, or of the system (id 0).
    pub fn query_information(&mut self, session: &SessionRef, query: Query) -> Result<Answer> {
        check_session_required(session, query.class())?;
        if let Some(answer) = answer_locally(query, Machine::inspect)? {
            return Ok(answer);
        }
        let (class, input, session) = (query.class().number(), query.input(), session.clone());
        match self.ask(&Message::QueryInformation { session, class, input }, &[], REPLY_TIMEOUT)? {
            Message::Information { data } => Ok(Answer::from_bytes(query, &data)?),
            other => Err(self.unexpected_answer(&other)),
        }
    }

    /// Returns the number of kernel events of a session that the kernel dropped, by processor.
    ///
    /// They are among the lost events in the session's properties. Empty if the session receives no
    /// kernel events.
    pub(crate) fn kernel_losses(&mut self, session: &SessionRef) -> Result<Vec<u64>> {
        let session = session.clone();
        match self.ask(&Message::QueryKernelLosses { session }, &[], REPLY_TIMEOUT)? {
            Message::KernelLosses { lost } => Ok(lost),
            other => Err(self.unexpected_answer(&other)),
        }
    }

    /// Makes a session record the last branches at these kernel events
    /// (TraceConfigureLastBranchRecord).
    ///
    /// Sets [`Set::LbrConfiguration`] and [`Set::LbrEventList`] in one call. If one is refused, the
    /// other is not set either.
    pub(crate) fn configure_last_branch_record(
        &mut self,
        session: &SessionRef,
        configuration: u32,
        events: &[ClassicEventId],
    ) -> Result<()> {
        let events = Branches { configuration, events: events.to_vec() }.event_bytes();
        // Too many events are refused here and not sent.
        Branches::from_bytes(configuration, &events)?;
        let session = session.clone();
        match self.ask(&Message::ConfigureBranches { session, configuration, events }, &[], REPLY_TIMEOUT)? {
            Message::Done => Ok(()),
            other => Err(self.unexpected_answer(&other)),
        }
    }

    /// Returns the registrations of a provider, each with its enables.
    ///
    /// Fails with `ERROR_WMI_GUID_NOT_FOUND` if it is neither registered nor enabled.
    pub fn registrations(&mut self, provider: Guid) -> Result<Vec<RegistrationEntry>> {
        self.request_pages(
            |from| Message::QueryRegistrations { provider, from },
            |answer| match answer {
                Message::Registrations { total, registrations } => Ok((total, registrations)),
                other => Err(other),
            },
        )
    }
}

impl Controller {
    pub(super) fn control(
        &mut self,
        session: &SessionRef,
        control: Control,
        log: Option<SessionLog>,
        timeout: Duration,
    ) -> Result<Properties> {
        let message = Message::Control { session: session.clone(), control };
        let answer = self.ask(&message, &descriptors(log.as_ref()), timeout);
        self.properties(answer, log)
    }

    /// Returns the properties in an answer; removes a new log file that the daemon refused.
    pub(super) fn properties(&self, answer: Result<Message>, log: Option<SessionLog>) -> Result<Properties> {
        match answer {
            Ok(Message::Properties(properties)) => Ok(*properties),
            Ok(other) => Err(self.unexpected_answer(&other)),
            Err(e) => {
                // Without an answer the daemon may have taken the file.
                if let (Error::Refused { .. }, Some(log)) = (&e, log) {
                    log.file.discard();
                }
                Err(e)
            }
        }
    }
}

fn is_denied(error: &Error) -> bool {
    error.status() == Status::ERROR_ACCESS_DENIED
}
