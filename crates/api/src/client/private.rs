//! The sessions that run in this process, for its own code and for daemons (`control/private`).
//!
//! Files and eventfds of a session are in the library's descriptor table (`process`), where the
//! program cannot close them: code that uses or drops them runs on threads that share that table
//! (`Client::run_in_library`). If a sandbox refuses such a table, they are in the program's table,
//! and the program must not close them: only the eventfd that wakes the session is checked.

mod file;
mod track;

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::session::{EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE};
use traceweir_format::spec::status::Status;
use traceweir_format::spec::system::is_system_provider;
use traceweir_format::{Guid, filter};
use traceweir_session::{Config, Done, Identity, Session, StartOptions};
use traceweir_transport::cpu;
use traceweir_transport::message::{EnableParams, Filter, Properties, SessionConfig, Update};

use super::shared::{FileId, RunningPrivateSession, SharedState};
use super::wakers::DOORBELL;
use super::{CLIENT, Client};
use crate::error::{Error, Result};
use crate::logfile::OpenedLogFile;
use crate::process::outlets::{OpenSession, SessionOwner};
use crate::process::promise::Promise;
use crate::process::{self, fork, thread};
use crate::registration::enable::EnableChange;
use crate::registration::{Handle, provider_filter};
use file::{ReservedFile, file_id};
pub(crate) use track::unsupported_class_error;

/// Maximum number of private sessions that a process starts itself.
pub const MAX_PRIVATE: usize = 3;
/// Maximum number of private sessions of one process that controllers start from outside.
pub const MAX_PRIVATE_FROM_OUTSIDE: usize = 8;

/// Mode flags of every private session that the process starts itself.
const PRIVATE_MODES: u32 = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;

/// The longest time that an operation on a session waits for the disk.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(3600);
/// The longest time that the exit of the process waits for the disk.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A session in this process, which needs no daemon.
///
/// It is finalised by `stop`, on drop, or at the exit of the process.
#[derive(Debug)]
pub struct PrivateSession {
    id: u64,
    /// Serial number (`process::fork`) of the process that started the session.
    serial: u32,
    /// Whether dropping this value stops the session.
    needs_stop: bool,
}

/// Sends a session a request and waits for its result.
fn wait_for_session(send_request: impl FnOnce(Done<Properties>)) -> Result<Properties> {
    let answer = Promise::new();
    let promise = answer.clone();
    send_request(Box::new(move |result| promise.fulfil(result)));
    Ok(answer.wait(OPERATION_TIMEOUT).unwrap_or(Err(traceweir_session::Error::Ended))?)
}

impl PrivateSession {
    /// Starts a private session.
    ///
    /// Adds PRIVATE_LOGGER_MODE | PRIVATE_IN_PROC to the mode. A process can run three such
    /// sessions at a time.
    pub fn start(config: &SessionConfig) -> Result<Self> {
        let mut raw = config.clone();
        raw.log_file_mode |= PRIVATE_MODES;
        Self::start_with(raw, Config::new, false)
    }

    /// Starts a session that a controller requested through a daemon. A process can run eight such
    /// sessions at a time.
    pub(crate) fn start_for_controller(config: &SessionConfig) -> Result<Self> {
        Self::start_with(config.clone(), Config::for_private, true)
    }

    fn start_with(
        mut raw: SessionConfig,
        validate: fn(SessionConfig, u16) -> traceweir_session::Result<Config>,
        is_from_controller: bool,
    ) -> Result<Self> {
        let client = Client::get();
        if let Some(path) = &mut raw.log_file {
            *path =
                std::path::absolute(&*path).map_err(|source| Error::File { path: path.clone(), source })?;
        }
        // Validated before the file is opened: a wrong configuration leaves no empty file behind.
        let config = validate(raw, cpu::possible())?;
        let starting_thread = thread::thread_id();
        let result = client.run_in_library(OPERATION_TIMEOUT, move || {
            open_file_and_start(client, config, starting_thread, is_from_controller)
        });
        let id = result.unwrap_or_else(|| Err(no_thread_error()))?;
        Ok(Self { id, serial: fork::serial(), needs_stop: true })
    }

    /// Enables a provider of this process, whether it is registered now or later.
    pub fn enable(&self, provider: Guid, params: &EnableParams) -> Result<()> {
        let client = self.client()?;
        if provider.is_null() || params.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0 {
            let reason = "a private session enables providers by GUID, not groups";
            return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
        }
        if is_system_provider(&provider) {
            let reason = "a system provider is enabled on a system logger only";
            return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
        }
        check_filters(provider, &params.filters)?;
        let mut shared = client.lock();
        let open = shared.find_private(self.id)?;
        open.enables.retain(|(p, _)| *p != provider);
        // Later registrations are enabled with these parameters; their callbacks get no source.
        open.enables.push((provider, params.clone()));
        let (outlet, ticket, tracks_binaries) = (open.outlet, open.ticket, open.tracks_binaries);
        let mut changed = Vec::new();
        let mut refused = None;
        for handle in Handle::iter_current().filter(|handle| handle.slot().provider() == provider) {
            let change = shared.enable(handle, outlet, ticket, params);
            if change != EnableChange::None {
                changed.push(handle);
            }
            refused = refused.or(change.refusal());
        }
        drop(shared);
        if tracks_binaries {
            client.send_modules(self.id, |handle| handle.slot().provider() == provider);
        }
        client.run_callbacks(changed, params.source, provider_filter(&params.filters).cloned());
        refused.map_or(Ok(()), |(status, reason)| Err(Error::refused(status, reason)))
    }

    /// Disables a provider for this session.
    pub fn disable(&self, provider: Guid) -> Result<()> {
        let client = self.client()?;
        let mut shared = client.lock();
        let open = shared.find_private(self.id)?;
        open.enables.retain(|(p, _)| *p != provider);
        let outlet = open.outlet;
        let changed = Handle::iter_current()
            .filter(|handle| {
                handle.slot().provider() == provider && handle.slot().disable_sessions(1 << outlet)
            })
            .collect();
        drop(shared);
        client.run_callbacks(changed, Guid::NULL, None);
        Ok(())
    }

    /// Requests that a provider of this process write its state.
    ///
    /// Fails with `ERROR_INVALID_FUNCTION` if the provider is neither registered nor enabled.
    pub fn capture_state(&self, provider: Guid, params: &EnableParams) -> Result<()> {
        let client = self.client()?;
        check_filters(provider, &params.filters)?;
        let handles: Vec<Handle> =
            Handle::iter_current().filter(|handle| handle.slot().provider() == provider).collect();
        let mut shared = client.lock();
        let open = shared.find_private(self.id)?;
        if handles.is_empty() && !open.enables.iter().any(|(enabled, _)| *enabled == provider) {
            let reason = "the provider is neither registered nor enabled";
            return Err(Error::refused(Status::ERROR_INVALID_FUNCTION, reason));
        }
        let outlet = open.outlet;
        drop(shared);
        client.capture_state(handles, outlet, params);
        Ok(())
    }

    /// Returns the properties and statistics of the session; defaults in a forked child.
    #[must_use]
    pub fn query(&self) -> Properties {
        let Ok(client) = self.client() else { return Properties::default() };
        let id = self.id;
        let query = move || find_session(client, id).map(|session| session.properties()).unwrap_or_default();
        client.run_in_library(OPERATION_TIMEOUT, query).unwrap_or_default()
    }

    /// Returns whether the session accepts events.
    ///
    /// A session accepts events until it is stopped or ends by itself, at the limit of its file or
    /// after a write error. Always `false` in a forked child.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.client().is_ok_and(|client| client.lock().outlets.find(SessionOwner::Private, self.id).is_some())
    }

    /// Writes buffered events to the log file. A flight recorder writes its snapshot to `file` or,
    /// if that is `None`, to its log file.
    ///
    /// `file` is opened in the same way as the log file of a new session.
    pub fn flush(&self, file: Option<&Path>) -> Result<Properties> {
        let (client, id, file) = (self.client()?, self.id, file.map(Path::to_owned));
        let flush = move || {
            let session = find_session(client, id)?;
            let reserved = file.map(|path| ReservedFile::open(client, id, &path)).transpose()?;
            let file = reserved
                .as_ref()
                .map(|file| Ok::<_, Error>((file.clone_file()?, file.log.path().to_owned())));
            let result = file.transpose().and_then(|file| wait_for_session(|done| session.flush(file, done)));
            if let Some(reserved) = reserved {
                reserved.release(result.is_err());
            }
            result
        };
        client.run_in_library(OPERATION_TIMEOUT, flush).unwrap_or_else(|| Err(no_thread_error()))
    }

    /// Changes the flush timer or continues in another log file.
    ///
    /// Nothing else can be changed in a private session. The file is opened in the same way as the
    /// log file of a new session.
    pub fn update(&self, update: &Update) -> Result<Properties> {
        let (client, id, update) = (self.client()?, self.id, update.clone());
        let change = move || {
            let session = find_session(client, id)?;
            let reserved =
                update.log_file.as_deref().map(|path| ReservedFile::open(client, id, path)).transpose()?;
            let log_file = reserved.as_ref().map(|reserved| reserved.log.path().to_owned());
            let update = Update { log_file, ..update };
            let file = reserved.as_ref().map(ReservedFile::clone_file).transpose();
            let result = file.and_then(|file| wait_for_session(|done| session.update(update, file, done)));
            if let Some(reserved) = reserved {
                if result.is_ok() {
                    reserved.make_log_file();
                }
                reserved.release(result.is_err());
            }
            result
        };
        client.run_in_library(OPERATION_TIMEOUT, change).unwrap_or_else(|| Err(no_thread_error()))
    }

    /// Collects all events and finalises the file.
    pub fn stop(mut self) -> Result<Properties> {
        let client = self.client()?;
        self.needs_stop = false;
        finish_session(client, self.id, OPERATION_TIMEOUT)
            .unwrap_or(Err(traceweir_session::Error::Ended.into()))
    }

    fn client(&self) -> Result<&'static Client> {
        let own_client = CLIENT.get().filter(|_| fork::serial() == self.serial);
        own_client.ok_or_else(|| {
            let reason = "a private session belongs to the process that started it";
            Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason)
        })
    }

    /// Returns the number of the session in this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Stops the session like [`stop`](Self::stop), but does not consume it: later calls fail.
    pub fn end(&self) -> Result<Properties> {
        finish_session(self.client()?, self.id, OPERATION_TIMEOUT)
            .unwrap_or(Err(traceweir_session::Error::Ended.into()))
    }
}

/// Returns a running session. It must be used and dropped on threads that share the library's
/// descriptors.
fn find_session(client: &Client, id: u64) -> Result<Session> {
    let shared = client.lock();
    let running = shared.private_sessions.iter().find(|running| running.id == id);
    running.and_then(|running| running.session.clone()).ok_or_else(|| traceweir_session::Error::Ended.into())
}

fn no_thread_error() -> Error {
    Error::refused(Status::ERROR_NO_SYSTEM_RESOURCES, "this process has no thread for private sessions")
}

/// Opens the log file and starts the session.
fn open_file_and_start(
    client: &'static Client,
    config: Config,
    starting_thread: u32,
    is_from_controller: bool,
) -> Result<u64> {
    let log = config.properties().log_file.as_deref().map(OpenedLogFile::open).transpose()?;
    let file = log.as_ref().map(|l| l.file().try_clone()).transpose();
    let result = file
        .map_err(|e| traceweir_session::Error::File(e).into())
        .and_then(|f| start_session(client, config, f, starting_thread, is_from_controller));
    if result.is_err()
        && let Some(log) = log
    {
        log.discard();
    }
    result
}

impl Drop for PrivateSession {
    fn drop(&mut self) {
        if self.needs_stop
            && let Ok(client) = self.client()
        {
            let _ = finish_session(client, self.id, OPERATION_TIMEOUT);
        }
    }
}

/// Checks the rules of filters, and refuses filters that select processes: they make no sense in a
/// session of one process.
fn check_filters(provider: Guid, filters: &[Filter]) -> Result<()> {
    let refuse = |reason: String| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
    if filters.iter().any(|entry| filter::is_scope(entry.kind)) {
        return refuse(
            "a private session runs in one process: enable the provider without process filters".to_owned(),
        );
    }
    let kinds_and_data = filters.iter().map(|entry| (entry.kind, entry.data.as_slice()));
    filter::check_all(kinds_and_data, &provider, false).or_else(|e| refuse(e.to_string()))
}

/// Starts the session and opens its outlet. The caller must not hold the client's lock: the
/// session's threads may call `on_end`, which takes the lock, while they start.
fn start_session(
    client: &'static Client,
    config: Config,
    file: Option<File>,
    starting_thread: u32,
    is_from_controller: bool,
) -> Result<u64> {
    let identity = file.as_ref().and_then(file_id);
    let id = client.lock().reserve_private(identity, is_from_controller)?;
    let starter = (std::process::id(), starting_thread);
    let on_end = Box::new(move |_| {
        let closed = client.end_sessions(is_private(id));
        client.run_callbacks_later(closed.changed);
    });
    let options = StartOptions { id, file, next_file: None, may_use_reserved_blocks: true, starter, on_end };
    let result = process::run_with_signals_blocked(|| Session::start(config, options))
        .map_err(Error::from)
        .and_then(|session| {
            client
                .lock()
                .private_sessions
                .iter_mut()
                .filter(|running| running.id == id)
                .for_each(|running| running.session = Some(session.clone()));
            open_outlet(client, id, &session)
        });
    if let Err(e) = result {
        finish_session(client, id, OPERATION_TIMEOUT);
        return Err(e);
    }
    Ok(id)
}

fn open_outlet(client: &Client, id: u64, session: &Session) -> Result<()> {
    let (params, wake) = session.region_params()?;
    let reader = client.lock().outlets.open(SessionOwner::Private, id, |line, outlet| {
        if !client.set_wake_eventfd(line, wake) {
            return Err(no_thread_error());
        }
        Ok(outlet.open_private_with_doorbell(&params, &DOORBELL, line)?)
    })?;
    let process_identity = Identity::read(std::process::id(), rustix::process::getuid().as_raw());
    session.attach_private(reader, process_identity)?;
    Ok(())
}

fn is_private(id: u64) -> impl Fn(&OpenSession) -> bool {
    move |open| open.owner == SessionOwner::Private && open.session == id
}

/// Closes the session to writers, runs callbacks, collects the remaining events and finalises the
/// file. `None` if the session did not end in time, or another thread ended it.
fn finish_session(client: &'static Client, id: u64, timeout: Duration) -> Option<Result<Properties>> {
    let closed = client.end_sessions(is_private(id));
    client.run_callbacks(closed.changed, Guid::NULL, None);
    let stop = move || {
        let mut shared = client.lock();
        let at = shared.private_sessions.iter().position(|running| running.id == id)?;
        let session = shared.private_sessions.swap_remove(at).session;
        drop(shared);
        let answer = Promise::new();
        let promise = answer.clone();
        session?.stop(Box::new(move |result| promise.fulfil(result)));
        answer.wait(timeout).map(|result| result.map_err(Error::from))
    };
    client.run_in_library(timeout, stop).flatten()
}

/// Finalises all running private sessions at the exit of the process.
pub(super) fn finish_all(client: &'static Client) {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    let Some(ids) = client
        .try_lock_for(Duration::from_secs(1))
        .map(|s| s.private_sessions.iter().map(|running| running.id).collect::<Vec<_>>())
    else {
        return;
    };
    for id in ids {
        let _ = finish_session(client, id, deadline.saturating_duration_since(Instant::now()));
    }
}

impl SharedState {
    /// Finds a private session that accepts events.
    fn find_private(&mut self, id: u64) -> Result<&mut OpenSession> {
        self.outlets.find(SessionOwner::Private, id).ok_or_else(|| traceweir_session::Error::Ended.into())
    }

    /// Adds a private session and returns its number. Fails at the limit of sessions, and if another
    /// session writes the same file.
    fn reserve_private(&mut self, file: Option<FileId>, is_from_controller: bool) -> Result<u64> {
        let maximum = if is_from_controller { MAX_PRIVATE_FROM_OUTSIDE } else { MAX_PRIVATE };
        if self
            .private_sessions
            .iter()
            .filter(|running| running.is_from_controller == is_from_controller)
            .count()
            >= maximum
        {
            let reason = format!("this process has {maximum} private sessions already");
            return Err(Error::refused(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        if self.private_sessions.iter().any(|running| running.uses_file(file)) {
            return Err(Error::refused(
                Status::ERROR_BAD_PATHNAME,
                "another private session writes this file",
            ));
        }
        self.private_sessions_started += 1;
        // The logger id is the lowest free one; the upper bits distinguish sessions that have the
        // same logger id one after the other.
        let is_taken =
            |logger: u64| self.private_sessions.iter().any(|running| running.id & 0xFFFF == logger);
        let logger = (1..).find(|l| !is_taken(*l)).unwrap_or(1);
        let id = self.private_sessions_started << 16 | logger;
        self.private_sessions.push(RunningPrivateSession {
            id,
            session: None,
            file,
            reserved: Vec::new(),
            is_from_controller,
        });
        Ok(id)
    }
}
