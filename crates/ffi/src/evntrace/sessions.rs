//! Which session a call is about, and who runs it.
//!
//! ```text
//!   id of a session in this process ────────────────────────────▶ that session            needs no daemon
//!   name, and a mode that says private, of a session in here ───▶ the same
//!   anything else ──▶ the daemon that is there ─ none ──────────▶ ERROR_WMI_INSTANCE_NOT_FOUND
//! ```
//!
//! 1. Only what begins something starts a daemon: StartTrace, EventAccessControl, EventAccessRemove, and TraceSetInformation of what is about the system.
//! 2. Each call has a connection of its own: one that waits for a disk, or for ever for a provider, keeps no other thread waiting; and a forked child has none of
//!    its parent's.
//! 3. The table of sessions in this process is locked for looking and noting only.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use traceweir::controller::{
    Controller, EnableCode, EnableParams, Properties, SessionConfig, SessionRef, Update,
};
use traceweir::{Error, Guid, PrivateSession, Result, Status};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE,
};

/// The modes of a session in the process that starts it.
const IN_PROCESS: u32 = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;

/// Sessions that this process runs itself.
static OWN: Mutex<Vec<Own>> = Mutex::new(Vec::new());

struct Own {
    name: String,
    /// Missing while it starts.
    session: Option<Arc<PrivateSession>>,
}

fn own() -> MutexGuard<'static, Vec<Own>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets sessions; they end outside of the lock.
fn forget(which: impl Fn(&Own) -> bool) -> Vec<Own> {
    own().extract_if(.., |entry| which(entry)).collect()
}

/// A session that a call is about.
pub(super) enum Target {
    /// Of this process.
    Own(Arc<PrivateSession>),
    /// Of a daemon.
    Other(SessionRef),
}

/// What a caller says about the session that it means.
pub(super) struct Meant {
    pub(super) id: u64,
    /// Goes before the id.
    pub(super) name: Option<String>,
    /// LogFileMode, as far as it says that the session is private.
    pub(super) mode: u32,
}

/// Starts a session, here or by a daemon.
pub(super) fn start(config: &SessionConfig) -> Result<Properties> {
    if config.log_file_mode & IN_PROCESS == IN_PROCESS {
        return start_own(config);
    }
    // Before a daemon is started for nothing.
    Controller::check_start(config)?;
    Controller::find_or_start(None)?.start(config)
}

fn start_own(config: &SessionConfig) -> Result<Properties> {
    let is_it = |entry: &Own| same_name(&entry.name, &config.name);
    // One that has ended by itself has no claim to its name.
    drop(forget(|entry| is_it(entry) && entry.session.as_ref().is_some_and(|session| !session.is_running())));
    {
        let mut own = own();
        if own.iter().any(is_it) {
            let why = format!("this process runs a session {:?} already", config.name);
            return Err(Error::refused(Status::ERROR_ALREADY_EXISTS, why));
        }
        own.push(Own { name: config.name.clone(), session: None });
    }
    let begun = PrivateSession::start(config);
    let mut own = own();
    match begun {
        Ok(session) => {
            let session = Arc::new(session);
            let properties = session.query();
            own.iter_mut()
                .filter(|entry| is_it(entry))
                .for_each(|entry| entry.session = Some(session.clone()));
            Ok(properties)
        }
        Err(error) => {
            own.retain(|entry| !is_it(entry));
            Err(error)
        }
    }
}

fn same_name(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Finds the session that is meant. ERROR_INVALID_PARAMETER where none is.
pub(super) fn find(meant: Meant) -> Result<Target> {
    let Meant { id, name, mode } = meant;
    let name = name.filter(|name| !name.is_empty());
    if id == 0 && name.is_none() {
        let why = "no session is meant: there is neither an id nor a name";
        return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why));
    }
    let sessions: Vec<(bool, Arc<PrivateSession>)> = {
        let is_named = |entry: &Own| name.as_ref().is_some_and(|name| same_name(name, &entry.name));
        own().iter().filter_map(|entry| Some((is_named(entry), entry.session.clone()?))).collect()
    };
    let is_meant = |is_named: bool, session: &PrivateSession| match &name {
        None => session.query().id == id,
        Some(_) => is_named && (mode & EVENT_TRACE_PRIVATE_LOGGER_MODE != 0 || session.query().id == id),
    };
    let found = sessions.into_iter().find(|(is_named, session)| is_meant(*is_named, session));
    if let Some((_, session)) = found {
        if session.is_running() {
            return Ok(Target::Own(session));
        }
        drop(forget(|entry| entry.session.as_ref().is_some_and(|it| Arc::ptr_eq(it, &session))));
        return Err(not_running());
    }
    Ok(Target::Other(name.map_or_else(|| SessionRef::of_call(id), SessionRef::Name)))
}

/// The session of an id, if this process runs it.
pub(super) fn own_of(id: u64) -> Option<Arc<PrivateSession>> {
    match find(Meant { id, name: None, mode: 0 }) {
        Ok(Target::Own(session)) => Some(session),
        _ => None,
    }
}

fn not_running() -> Error {
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, "the session is not running")
}

/// The daemon that is there, for something that is about what runs already.
fn daemon() -> Result<Controller> {
    Controller::find(None)?.ok_or_else(not_running)
}

/// Something that only sessions of a daemon can do.
fn not_in_process<T>() -> Result<T> {
    Err(Error::refused(Status::ERROR_INVALID_FUNCTION, "a session in its own process has no such files"))
}

impl Target {
    pub(super) fn query(&self) -> Result<Properties> {
        match self {
            Self::Own(session) => Ok(session.query()),
            Self::Other(session) => daemon()?.query(session),
        }
    }

    pub(super) fn stop(&self) -> Result<Properties> {
        match self {
            Self::Own(session) => {
                let ended = forget(|entry| entry.session.as_ref().is_some_and(|it| Arc::ptr_eq(it, session)));
                if ended.is_empty() {
                    return Err(not_running());
                }
                session.end()
            }
            Self::Other(session) => daemon()?.stop(session),
        }
    }

    pub(super) fn update(&self, update: &Update) -> Result<Properties> {
        match self {
            Self::Own(session) => session.update(update),
            Self::Other(session) => daemon()?.update(session, update),
        }
    }

    /// Writes out what is buffered: a flight recorder to the file that is named. Of any other session the place is room for the name of its own, and what stands
    /// there is not read; `None`: there is no such place.
    pub(super) fn flush<F>(&self, file: Option<F>) -> Result<Properties>
    where
        F: FnOnce() -> Result<Option<PathBuf>>,
    {
        let records = |now: Properties| now.config.log_file_mode & EVENT_TRACE_BUFFERING_MODE != 0;
        match self {
            Self::Own(session) => {
                let file = file.filter(|_| records(session.query())).map_or(Ok(None), |read| read())?;
                session.flush(file.as_deref())
            }
            Self::Other(session) => {
                let mut daemon = daemon()?;
                // Whoever may control a session and not look at it has no name to give.
                let may_record = |now: Result<Properties>| match now {
                    Err(error) if error.status() == Status::ERROR_ACCESS_DENIED => Ok(false),
                    now => now.map(records),
                };
                let file = match file {
                    Some(read) if may_record(daemon.query(session))? => read()?,
                    _ => None,
                };
                daemon.flush(session, file)
            }
        }
    }

    pub(super) fn increment(&self) -> Result<Properties> {
        match self {
            Self::Own(_) => not_in_process(),
            Self::Other(session) => daemon()?.increment(session),
        }
    }

    pub(super) fn convert_to_real_time(&self) -> Result<Properties> {
        match self {
            Self::Own(_) => not_in_process(),
            Self::Other(session) => daemon()?.convert_to_real_time(session),
        }
    }

    pub(super) fn enable(
        &self,
        provider: Guid,
        code: EnableCode,
        params: &EnableParams,
        timeout_ms: u32,
    ) -> Result<()> {
        match (self, code) {
            (Self::Other(session), code) => daemon()?.enable(session, provider, code, params, timeout_ms),
            (Self::Own(session), EnableCode::Enable) => session.enable(provider, params),
            (Self::Own(session), EnableCode::Disable) => session.disable(provider),
            (Self::Own(session), EnableCode::CaptureState) => session.capture_state(provider, params),
        }
    }
}
