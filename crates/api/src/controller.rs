//! Controllers: find or start a daemon, and control its sessions, providers and access rights.
//!
//! ```text
//!   Controller ──one request──▶ daemon     start: the log file is opened here, with the caller's
//!              ◀──its answer───                   rights, and its descriptor is sent along; for
//!                                                 a file sequence the first one, and the folder
//!                                                 for the others
//! ```
//!
//! Programs use [`Session`](crate::Session) for sessions. A controller is for what concerns the
//! daemon as a whole: access rights ([`access`]) and information about the system ([`info`]).
//!
//! | Call | Starts a daemon | No daemon |
//! |---|---|---|
//! | [`Controller::find`] | never | `Ok(None)`: an idle system, no sessions, no providers |
//! | [`Controller::find_or_start`] | the user's, for root the system's, or that of the named folder
//! | [`Error::NoDaemon`] |
//!
//! ```no_run
//! use traceweir::Guid;
//! use traceweir::controller::Controller;
//! # fn main() -> traceweir::Result<()> {
//! let mut controller = Controller::find_or_start(None)?;
//! let provider = Guid::from_provider_name("Contoso.Shop");
//! println!("{:?}", controller.access(provider)?);
//! # Ok(())
//! # }
//! ```
//!
//! 1. A call is one request and its answer. Request numbers distinguish answers, so a late answer
//!    to an abandoned request is never taken for another one.
//! 2. A request goes to the daemon that runs now: a restart, or an exit when idle, is not noticed.
//!    A request that changes something and was sent is never repeated.
//! 3. A session does not end with its controller.
//!
//! Sessions in this process need no controller. Private sessions that a controller starts in the
//! processes of a provider (`PRIVATE_LOGGER_MODE`, with the provider's GUID) open their files there,
//! with the rights of each process.

pub mod access;
mod ask;
mod find;
pub mod info;
mod launch;
mod private;

use std::path::{Path, PathBuf};
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::spec::session::{EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_NEWFILE};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Control, Message, Role};
#[doc(hidden)]
pub use traceweir_transport::message::{
    EnableCode, EnableEntry, EnableParams, Filter, LostByCause, MAX_PROVIDER_NAME, Properties, ProviderEntry,
    RegistrationEntry, SessionConfig, SessionRef, Update,
};
use traceweir_transport::runtime::RuntimeDir;
pub use traceweir_transport::runtime::{Scope, is_privileged_by_file};

use crate::error::{Error, Result};
use crate::logfile::{Log, descriptors};
pub(crate) use find::{Link, first_of, folders, unexpected};
use private::is_private;

/// Timeout of an ordinary answer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of an answer that has to wait for a disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of providers in one request.
const CHECKED_AT_ONCE: usize = 1024;
/// The timeout of an enable that waits forever.
const INFINITE: u32 = u32::MAX;

/// A connection to one daemon, on which every call is one request and its answer.
#[derive(Debug)]
pub struct Controller {
    link: Link,
    /// The folders in which a daemon is looked for.
    folders: Vec<RuntimeDir>,
    /// A daemon may be started.
    starts: bool,
}

impl Controller {
    /// Finds the running daemon of this scope.
    ///
    /// Without a scope, this is the named one, else the system's if permitted, else the user's.
    pub fn find(scope: Option<Scope>) -> Result<Option<Self>> {
        Self::find_in(folders(scope)?)
    }

    /// Finds a daemon like [`find`](Self::find), and starts the user's daemon if none runs, or for
    /// root the system's.
    pub fn find_or_start(scope: Option<Scope>) -> Result<Self> {
        Self::find_or_start_in(folders(scope)?)
    }

    /// Returns why [`find`](Self::find) and [`find_or_start`](Self::find_or_start) skip a running
    /// daemon, if they do: the system's daemon refuses this user.
    pub fn passed_over(scope: Option<Scope>) -> Result<Option<Error>> {
        Ok(find::refusal_of(&folders(scope)?, Role::Controller))
    }

    /// Finds the running daemon of this runtime folder, ignoring `TRACEWEIR_RUNTIME_DIR`.
    pub fn find_at(folder: &Path) -> Result<Option<Self>> {
        Self::find_in(vec![RuntimeDir::from_path(folder)])
    }

    /// Finds a daemon like [`find_at`](Self::find_at), and starts one if none runs.
    pub fn find_or_start_at(folder: &Path) -> Result<Self> {
        Self::find_or_start_in(vec![RuntimeDir::from_path(folder)])
    }

    fn find_in(folders: Vec<RuntimeDir>) -> Result<Option<Self>> {
        Ok(first_of(&folders, Role::Controller)?.map(|link| Self { link, folders, starts: false }))
    }

    fn find_or_start_in(folders: Vec<RuntimeDir>) -> Result<Self> {
        let link = match first_of(&folders, Role::Controller)? {
            Some(link) => link,
            None => launch::start(&folders, &launch::Search::usual())?,
        };
        Ok(Self { link, folders, starts: true })
    }

    /// Returns the path of the daemon's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.link.socket()
    }

    /// Returns the runtime folder of the daemon.
    pub(crate) fn folder(&self) -> RuntimeDir {
        let socket = self.link.socket();
        let folder = self.folders.iter().find(|folder| folder.control_socket() == socket);
        folder.cloned().unwrap_or_else(|| RuntimeDir::from_path(socket.parent().unwrap_or(Path::new("."))))
    }

    /// Validates a session by the rules that need no daemon, in the published order of errors,
    /// without starting a daemon.
    #[doc(hidden)]
    pub fn check_start(config: &SessionConfig) -> Result<()> {
        let judge = match is_private(config) {
            true => traceweir_session::Config::for_private,
            false => traceweir_session::Config::new,
        };
        judge(config.clone(), traceweir_transport::cpu::possible())?;
        Ok(())
    }

    /// Starts a session.
    ///
    /// The log file is opened here, with the rights of the caller. Relative paths count from the
    /// working directory. If the daemon refuses, a log file that the call created is removed again.
    #[doc(hidden)]
    pub fn start(&mut self, config: &SessionConfig) -> Result<Properties> {
        // In the published order of errors the properties come before the file.
        Self::check_start(config)?;
        if is_private(config) {
            return self.start_private(config);
        }
        let mut config = config.clone();
        let log = config.log_file.as_deref().map(|path| Log::open(path, config.log_file_mode)).transpose();
        let log = log.map_err(|e| self.taken(&config).filter(|_| !is_denied(&e)).unwrap_or(e))?;
        config.log_file = log.as_ref().map(|log| log.name.clone());
        let answer = self.ask(&Message::Start(Box::new(config)), &descriptors(log.as_ref()), REPLY_TIMEOUT);
        self.properties(answer, log)
    }

    /// Returns the refusal of a name or GUID that is in use, which in the published order precedes
    /// a missing folder.
    fn taken(&mut self, config: &SessionConfig) -> Option<Error> {
        let guid = Some(config.guid).filter(|guid| !guid.is_null());
        let names = [Some(config.name.clone()), guid.map(|guid| guid.to_string())];
        let running =
            names.into_iter().flatten().find_map(|name| self.query(&SessionRef::Name(name)).ok())?;
        let reason = format!("a session {:?} is running", running.config.name);
        Some(Error::refused(Status::ERROR_ALREADY_EXISTS, reason)).filter(|_| !is_private(&running.config))
    }

    /// Returns the properties and statistics of a session.
    #[doc(hidden)]
    pub fn query(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Query, None, REPLY_TIMEOUT)
    }

    /// Returns the final properties of a session that ended recently; `end_status` gives the reason
    /// if it ended by itself.
    #[doc(hidden)]
    pub fn outcome(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Outcome, None, REPLY_TIMEOUT)
    }

    /// Returns the properties of all sessions.
    #[doc(hidden)]
    pub fn query_all(&mut self) -> Result<Vec<Properties>> {
        self.pages(
            |from| Message::QueryAll { from },
            |answer| match answer {
                Message::Sessions { total, sessions } => Ok((total, sessions)),
                other => Err(other),
            },
        )
    }

    /// Returns the recently ended sessions that the daemon remembers, the latest first; see
    /// [`outcome`](Self::outcome).
    #[doc(hidden)]
    pub fn ended(&mut self) -> Result<Vec<Properties>> {
        self.pages(
            |from| Message::QueryEnded { from },
            |answer| match answer {
                Message::Sessions { total, sessions } => Ok((total, sessions)),
                other => Err(other),
            },
        )
    }

    /// Changes a session. A new log file is opened here, as in [`start`](Self::start).
    #[doc(hidden)]
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
                Some(Log::open(path, config.log_file_mode)?)
            }
        };
        update.log_file = log.as_ref().map(|log| log.name.clone());
        self.control(session, Control::Update(update), log, DISK_TIMEOUT)
    }

    /// Writes buffered events to the file; a flight recorder writes its snapshot to `file` or its
    /// own.
    ///
    /// For any other session, a `file` is refused with `ERROR_INVALID_PARAMETER` and stays
    /// unchanged.
    #[doc(hidden)]
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
        let log = file.as_deref().map(|path| Log::open(path, 0)).transpose()?;
        let log_file = log.as_ref().map(|log| log.name.clone());
        self.control(session, Control::Flush { log_file }, log, DISK_TIMEOUT)
    }

    /// Continues in the next file of a sequence (`EVENT_TRACE_FILE_MODE_NEWFILE`) now.
    ///
    /// Fails with `ERROR_INVALID_FUNCTION` if the session writes no sequence.
    #[doc(hidden)]
    pub fn increment(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Increment, None, DISK_TIMEOUT)
    }

    /// Finishes the log file of a session, which delivers live from now on.
    ///
    /// Fails with `ERROR_INVALID_FUNCTION` if it has none.
    #[doc(hidden)]
    pub fn convert_to_real_time(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::ConvertToRealTime, None, DISK_TIMEOUT)
    }

    /// Stops a session: every event written before the call is in its file or counted as lost.
    #[doc(hidden)]
    pub fn stop(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Stop, None, DISK_TIMEOUT)
    }

    /// Enables or disables a provider, or requests its state.
    ///
    /// Waits for all processes for at most `timeout_ms` (0: not at all, `u32::MAX`: forever). After
    /// a timeout the status is `ERROR_TIMEOUT`, and the enable stays in effect.
    #[doc(hidden)]
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
    /// The name is for providers that report none; [`providers`](Self::providers) returns it as
    /// [`EnableEntry::name`]. An empty name changes nothing. Fails with `ERROR_INVALID_PARAMETER`
    /// past 255 UTF-16 units, and for control characters.
    #[doc(hidden)]
    pub fn enable_named(
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
            INFINITE => Duration::MAX,
            ms => REPLY_TIMEOUT + Duration::from_millis(ms.into()),
        };
        match self.ask(&message, &[], timeout)? {
            Message::Done => Ok(()),
            other => Err(unexpected(&self.link, &other)),
        }
    }

    /// Checks whether the caller may enable providers and groups, before a session is started for
    /// them.
    ///
    /// A start empties its log file, and an enable that is refused afterwards would not restore the
    /// old log.
    ///
    /// Fails with `ERROR_ACCESS_DENIED` if the right is missing on one of them, and with
    /// `ERROR_INVALID_PARAMETER` for GUIDs that cannot be enabled.
    pub fn check_enables(&mut self, providers: &[Guid]) -> Result<()> {
        for providers in providers.chunks(CHECKED_AT_ONCE) {
            let message = Message::CheckEnables { providers: providers.to_vec() };
            match self.ask(&message, &[], REPLY_TIMEOUT)? {
                Message::Done => {}
                other => return Err(unexpected(&self.link, &other)),
            }
        }
        Ok(())
    }

    /// Returns all providers that are registered or enabled.
    #[doc(hidden)]
    pub fn providers(&mut self) -> Result<Vec<ProviderEntry>> {
        let mut all: Vec<ProviderEntry> = Vec::new();
        loop {
            // By key and not by number: entries that come and go meanwhile move no others.
            let after = all.last().map(|entry| (entry.provider, entry.is_group));
            match self.ask(&Message::QueryProviders { after }, &[], REPLY_TIMEOUT)? {
                Message::Providers { more, providers } => {
                    let key = |entry: &ProviderEntry| (entry.is_group, entry.provider);
                    // Stops if a daemon makes no progress.
                    let goes_on = providers.first().map(key) > all.last().map(key);
                    all.extend(providers.into_iter().filter(|_| goes_on));
                    if !more || !goes_on {
                        return Ok(all);
                    }
                }
                other => return Err(unexpected(&self.link, &other)),
            }
        }
    }

    fn control(
        &mut self,
        session: &SessionRef,
        control: Control,
        log: Option<Log>,
        timeout: Duration,
    ) -> Result<Properties> {
        let message = Message::Control { session: session.clone(), control };
        let answer = self.ask(&message, &descriptors(log.as_ref()), timeout);
        self.properties(answer, log)
    }

    /// Returns the properties in an answer; removes a new log file that the daemon refused.
    fn properties(&self, answer: Result<Message>, log: Option<Log>) -> Result<Properties> {
        match answer {
            Ok(Message::Properties(properties)) => Ok(*properties),
            Ok(other) => Err(unexpected(&self.link, &other)),
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

/// Returns the answer of an idle system to a request about a session.
pub(crate) fn not_running(session: &SessionRef) -> Error {
    if session.is_nothing() {
        return Error::refused(Status::ERROR_INVALID_PARAMETER, "no session is named");
    }
    let name = match session {
        SessionRef::Id(id) => format!("session {id:#x}"),
        SessionRef::Name(name) => format!("session {name:?}"),
    };
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, format!("{name} is not running: no daemon answers"))
}
