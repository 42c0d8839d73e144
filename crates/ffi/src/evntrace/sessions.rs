//! Finds the session that a call refers to, and the process that runs it.
//!
//! ```text
//!   session in this process, selected by
//!     its id, without a name ────────────────────────────────▶ that session, without a daemon
//!     its name, and its id or a private mode ────────────────▶ that session, without a daemon
//!   anything else ──▶ the running daemon; without one ───────▶ ERROR_WMI_INSTANCE_NOT_FOUND
//! ```
//!
//! 1. Only these calls start a daemon: StartTrace, StartKernelTrace, EventAccessControl,
//!    EventAccessRemove, and TraceSetInformation of a system-wide class.
//! 2. Each call opens its own connection. So a call that waits for a disk or a provider does not
//!    block other threads, and a forked child shares no connection with its parent.
//! 3. The table of sessions in this process is locked only for lookups and changes of the table.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use traceweir::controller::{Controller, EnableParams, Properties, SessionConfig, SessionRef, Update};
use traceweir::{ControlCode, Error, Guid, PrivateSession, Result, Status};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE,
};

/// The mode flags of a session in the process that starts it.
const IN_PROCESS_MODE: u32 = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;

/// Sessions that run in this process.
static IN_PROCESS_SESSIONS: Mutex<Vec<InProcessSession>> = Mutex::new(Vec::new());

struct InProcessSession {
    name: String,
    /// `None` while the session starts.
    session: Option<Arc<PrivateSession>>,
}

fn lock_in_process() -> MutexGuard<'static, Vec<InProcessSession>> {
    IN_PROCESS_SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes sessions from the table and returns them, so that they end outside of the lock.
fn remove_in_process(is_removed: impl Fn(&InProcessSession) -> bool) -> Vec<InProcessSession> {
    lock_in_process().extract_if(.., |entry| is_removed(entry)).collect()
}

/// The session that a call refers to.
pub(super) enum TargetSession {
    /// A session in this process.
    InProcess(Arc<PrivateSession>),
    /// A session of the daemon.
    InDaemon(SessionRef),
}

/// How a caller identifies a session.
pub(super) struct SessionSelector {
    pub(super) id: u64,
    /// Takes precedence over the id.
    pub(super) name: Option<String>,
    /// LogFileMode, which says whether the session is private.
    pub(super) mode: u32,
}

/// Starts a session, in this process or in the daemon.
pub(super) fn start(config: &SessionConfig) -> Result<Properties> {
    if config.log_file_mode & IN_PROCESS_MODE == IN_PROCESS_MODE {
        return start_in_process(config);
    }
    // Checked first, so that no daemon is started for an invalid configuration.
    Controller::check_start(config)?;
    Controller::find_or_start(None).inspect_err(explain_once)?.start(config)
}

/// Writes to standard error why no daemon could be started, once in a process: the status of the
/// call does not say it.
fn explain_once(error: &Error) {
    static EXPLAINED: Once = Once::new();
    EXPLAINED.call_once(|| eprintln!("libtraceweir: {error}"));
}

fn start_in_process(config: &SessionConfig) -> Result<Properties> {
    let has_name = |entry: &InProcessSession| is_same_name(&entry.name, &config.name);
    // A session that has ended by itself does not keep its name.
    drop(remove_in_process(|entry| {
        has_name(entry) && entry.session.as_ref().is_some_and(|session| !session.is_running())
    }));
    {
        let mut sessions = lock_in_process();
        if sessions.iter().any(has_name) {
            let reason = format!("this process runs a session {:?} already", config.name);
            return Err(Error::refused(Status::ERROR_ALREADY_EXISTS, reason));
        }
        sessions.push(InProcessSession { name: config.name.clone(), session: None });
    }
    let started = PrivateSession::start(config);
    let mut sessions = lock_in_process();
    match started {
        Ok(session) => {
            let session = Arc::new(session);
            let properties = session.query();
            sessions
                .iter_mut()
                .filter(|entry| has_name(entry))
                .for_each(|entry| entry.session = Some(session.clone()));
            Ok(properties)
        }
        Err(error) => {
            sessions.retain(|entry| !has_name(entry));
            Err(error)
        }
    }
}

fn is_same_name(first: &str, second: &str) -> bool {
    first.to_lowercase() == second.to_lowercase()
}

/// Finds the session that a caller identifies. Returns ERROR_INVALID_PARAMETER for a selector with
/// neither id nor name.
pub(super) fn find(selector: SessionSelector) -> Result<TargetSession> {
    let SessionSelector { id, name, mode } = selector;
    let name = name.filter(|name| !name.is_empty());
    if id == 0 && name.is_none() {
        let reason = "the call has neither a session id nor a session name";
        return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
    }
    let sessions: Vec<(bool, Arc<PrivateSession>)> = {
        let is_named =
            |entry: &InProcessSession| name.as_ref().is_some_and(|name| is_same_name(name, &entry.name));
        lock_in_process().iter().filter_map(|entry| Some((is_named(entry), entry.session.clone()?))).collect()
    };
    let is_selected = |is_named: bool, session: &PrivateSession| match &name {
        None => session.query().id == id,
        Some(_) => is_named && (mode & EVENT_TRACE_PRIVATE_LOGGER_MODE != 0 || session.query().id == id),
    };
    let selected = sessions.into_iter().find(|(is_named, session)| is_selected(*is_named, session));
    if let Some((_, session)) = selected {
        if session.is_running() {
            return Ok(TargetSession::InProcess(session));
        }
        drop(remove_in_process(|entry| {
            entry.session.as_ref().is_some_and(|entry_session| Arc::ptr_eq(entry_session, &session))
        }));
        return Err(not_running_error());
    }
    Ok(TargetSession::InDaemon(name.map_or_else(|| SessionRef::from_api_id(id), SessionRef::Name)))
}

/// Returns the session with an id, if it runs in this process.
pub(super) fn find_in_process(id: u64) -> Option<Arc<PrivateSession>> {
    match find(SessionSelector { id, name: None, mode: 0 }) {
        Ok(TargetSession::InProcess(session)) => Some(session),
        _ => None,
    }
}

fn not_running_error() -> Error {
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, "the session is not running")
}

/// Connects to the running daemon, for calls that do not start one.
fn connect_to_daemon() -> Result<Controller> {
    Controller::find(None)?.ok_or_else(not_running_error)
}

/// Returns the error of actions that only sessions of the daemon support.
fn refuse_in_process<T>() -> Result<T> {
    Err(Error::refused(Status::ERROR_INVALID_FUNCTION, "only sessions of the daemon support this action"))
}

impl TargetSession {
    pub(super) fn query(&self) -> Result<Properties> {
        match self {
            Self::InProcess(session) => Ok(session.query()),
            Self::InDaemon(session) => connect_to_daemon()?.query(session),
        }
    }

    pub(super) fn stop(&self) -> Result<Properties> {
        match self {
            Self::InProcess(session) => {
                let removed = remove_in_process(|entry| {
                    entry.session.as_ref().is_some_and(|entry_session| Arc::ptr_eq(entry_session, session))
                });
                if removed.is_empty() {
                    return Err(not_running_error());
                }
                session.end()
            }
            Self::InDaemon(session) => connect_to_daemon()?.stop(session),
        }
    }

    pub(super) fn update(&self, update: &Update) -> Result<Properties> {
        match self {
            Self::InProcess(session) => session.update(update),
            Self::InDaemon(session) => connect_to_daemon()?.update(session, update),
        }
    }

    /// Writes out the buffered events; a flight recorder writes them to the named file. `file`
    /// reads that name, and is `None` if the block has no area for a file name. For any other
    /// session the area is an output for the name of the session's log file, and is not read.
    pub(super) fn flush<F>(&self, file: Option<F>) -> Result<Properties>
    where
        F: FnOnce() -> Result<Option<PathBuf>>,
    {
        let is_flight_recorder =
            |properties: Properties| properties.config.log_file_mode & EVENT_TRACE_BUFFERING_MODE != 0;
        match self {
            Self::InProcess(session) => {
                let file =
                    file.filter(|_| is_flight_recorder(session.query())).map_or(Ok(None), |read| read())?;
                session.flush(file.as_deref())
            }
            Self::InDaemon(session) => {
                let mut daemon = connect_to_daemon()?;
                // A caller that may control a session but not query it cannot name a file.
                let can_name_file = |queried: Result<Properties>| match queried {
                    Err(error) if error.status() == Status::ERROR_ACCESS_DENIED => Ok(false),
                    queried => queried.map(is_flight_recorder),
                };
                let file = match file {
                    Some(read) if can_name_file(daemon.query(session))? => read()?,
                    _ => None,
                };
                daemon.flush(session, file)
            }
        }
    }

    pub(super) fn increment(&self) -> Result<Properties> {
        match self {
            Self::InProcess(_) => refuse_in_process(),
            Self::InDaemon(session) => connect_to_daemon()?.increment(session),
        }
    }

    pub(super) fn convert_to_real_time(&self) -> Result<Properties> {
        match self {
            Self::InProcess(_) => refuse_in_process(),
            Self::InDaemon(session) => connect_to_daemon()?.convert_to_real_time(session),
        }
    }

    pub(super) fn enable(
        &self,
        provider: Guid,
        code: ControlCode,
        params: &EnableParams,
        timeout_ms: u32,
    ) -> Result<()> {
        match (self, code) {
            (Self::InDaemon(session), code) => {
                connect_to_daemon()?.enable(session, provider, code, params, timeout_ms)
            }
            (Self::InProcess(session), ControlCode::Enable) => session.enable(provider, params),
            (Self::InProcess(session), ControlCode::Disable) => session.disable(provider),
            (Self::InProcess(session), ControlCode::CaptureState) => session.capture_state(provider, params),
        }
    }
}
