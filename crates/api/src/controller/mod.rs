//! Controllers: start, query, update, flush and stop sessions, enable providers in them.
//!
//! ```text
//!   Controller ──one request──▶ daemon            start: the log file is opened here, with the caller's rights,
//!              ◀──its answer───                          and its descriptor goes along; of a row of files
//!                                                       the first, and the folder for the others
//! ```
//!
//! | Call | Starts a daemon | No daemon |
//! |---|---|---|
//! | [`Controller::find`] | never | `Ok(None)`: an idle system, no sessions, no providers |
//! | [`Controller::find_or_start`] | the user's, for root the system's, or that of the named folder | [`Error::NoDaemon`], which says what to do |
//!
//! ```no_run
//! use traceweir::Guid;
//! use traceweir::controller::{Controller, EnableCode, EnableParams, SessionConfig, SessionRef};
//! # fn main() -> traceweir::Result<()> {
//! let mut controller = Controller::find_or_start(None)?;
//! let config = SessionConfig { name: "lunch".into(), log_file: Some("lunch.etl".into()), ..Default::default() };
//! let session = SessionRef::Id(controller.start(&config)?.id);
//! let provider = Guid::from_provider_name("Acme.Lunch");
//! controller.enable(&session, provider, EnableCode::Enable, &EnableParams::default(), 1000)?;
//! // … events are written …
//! let end = controller.stop(&session)?;
//! println!("{} events, {} lost", end.events, end.events_lost);
//! # Ok(())
//! # }
//! ```
//!
//! 1. A call is one request and its answer; answers are told apart by their request number, so a late answer to a request that was given
//!    up is never taken for another one.
//! 2. A request goes to the daemon that is there now: one that was restarted, or left because it was idle, is not noticed. A request that
//!    changes something and was handed over is never repeated.
//! 3. A session does not end with its controller.
//!
//! Private sessions of this process need none of this: they are in [`private`](crate::private). Those that are started from here in the processes of a
//! provider (`PRIVATE_LOGGER_MODE`, the GUID is the provider's) open their files there, with the rights of each process.

pub mod access;
mod ask;
mod find;
pub mod info;
mod launch;
pub(crate) mod logfile;
mod private;

use std::path::{Path, PathBuf};
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::spec::session::{EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_NEWFILE};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Control, Message, Role};
pub use traceweir_transport::message::{
    EnableCode, EnableEntry, EnableParams, Filter, LostByCause, MAX_PROVIDER_NAME, Properties, ProviderEntry,
    RegistrationEntry, SessionConfig, SessionRef, Update,
};
use traceweir_transport::runtime::RuntimeDir;
pub use traceweir_transport::runtime::{Scope, is_privileged_by_file};

use crate::error::{Error, Result};
pub(crate) use find::{Link, first_of, folders, unexpected};
use logfile::{Log, descriptors};
use private::is_private;

/// How long an ordinary answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer may take that has to wait for a disk.
const LONG_PATIENCE: Duration = Duration::from_secs(60);
/// Providers in one question.
const CHECKED_AT_ONCE: usize = 1024;
/// The timeout of an enable that waits for ever.
const INFINITE: u32 = u32::MAX;

/// A link to one daemon. Every call is one request and its answer.
#[derive(Debug)]
pub struct Controller {
    link: Link,
    /// Where the daemon was found.
    folders: Vec<RuntimeDir>,
    /// Whether one may be started.
    starts: bool,
}

impl Controller {
    /// The daemon of this scope (`None`: the named one, else the system's where permitted, else the user's), if one runs.
    pub fn find(scope: Option<Scope>) -> Result<Option<Self>> {
        Self::find_in(folders(scope)?)
    }

    /// As [`find`](Self::find), and starts the user's daemon where none runs, or for root the system's.
    pub fn find_or_start(scope: Option<Scope>) -> Result<Self> {
        Self::find_or_start_in(folders(scope)?)
    }

    /// Why a daemon that runs was passed over by [`find`](Self::find) and [`find_or_start`](Self::find_or_start), where one was: the system's, which does not let
    /// this user in.
    pub fn passed_over(scope: Option<Scope>) -> Result<Option<Error>> {
        Ok(find::refusal_of(&folders(scope)?, Role::Controller))
    }

    /// The daemon of this runtime folder, if one runs; `TRACEWEIR_RUNTIME_DIR` is not looked at.
    pub fn find_at(folder: &Path) -> Result<Option<Self>> {
        Self::find_in(vec![RuntimeDir::at(folder)])
    }

    /// As [`find_at`](Self::find_at), and starts one where none runs.
    pub fn find_or_start_at(folder: &Path) -> Result<Self> {
        Self::find_or_start_in(vec![RuntimeDir::at(folder)])
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

    /// The socket of the daemon.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.link.socket()
    }

    /// Judges a session by the rules that need no daemon, in the published order of errors: nobody need start a daemon to be refused.
    pub fn check_start(config: &SessionConfig) -> Result<()> {
        let judge = match is_private(config) {
            true => traceweir_session::Config::for_private,
            false => traceweir_session::Config::new,
        };
        judge(config.clone(), traceweir_transport::cpu::possible())?;
        Ok(())
    }

    /// Starts a session. The log file is opened here, with the rights of the caller. Relative paths count from the working directory.
    ///
    /// A log file that the call created is removed again when the daemon refuses.
    pub fn start(&mut self, config: &SessionConfig) -> Result<Properties> {
        // The published order of errors judges the properties before the file.
        Self::check_start(config)?;
        if is_private(config) {
            return self.start_private(config);
        }
        let mut config = config.clone();
        let log = config.log_file.as_deref().map(|path| Log::open(path, config.log_file_mode)).transpose();
        let log = log.map_err(|e| self.taken(&config).filter(|_| !is_denied(&e)).unwrap_or(e))?;
        config.log_file = log.as_ref().map(|log| log.name.clone());
        let answer = self.ask(&Message::Start(Box::new(config)), &descriptors(log.as_ref()), PATIENCE);
        self.properties(answer, log)
    }

    /// The refusal of a name or a GUID that is running, which the published order puts before a folder that is missing.
    fn taken(&mut self, config: &SessionConfig) -> Option<Error> {
        let guid = Some(config.guid).filter(|guid| !guid.is_null());
        let names = [Some(config.name.clone()), guid.map(|guid| guid.to_string())];
        let running =
            names.into_iter().flatten().find_map(|name| self.query(&SessionRef::Name(name)).ok())?;
        let why = format!("a session {:?} is running", running.config.name);
        Some(Error::refused(Status::ERROR_ALREADY_EXISTS, why)).filter(|_| !is_private(&running.config))
    }

    /// How a session is.
    pub fn query(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Query, None, PATIENCE)
    }

    /// How a session was at its end, where it has ended not long ago; `end_status` says why where it ended by itself.
    pub fn outcome(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Outcome, None, PATIENCE)
    }

    /// All sessions.
    pub fn query_all(&mut self) -> Result<Vec<Properties>> {
        self.pages(
            |from| Message::QueryAll { from },
            |answer| match answer {
                Message::Sessions { total, sessions } => Ok((total, sessions)),
                other => Err(other),
            },
        )
    }

    /// Sessions that have ended and are still remembered, the latest first; see [`outcome`](Self::outcome).
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
    pub fn update(&mut self, session: &SessionRef, update: &Update) -> Result<Properties> {
        let mut update = update.clone();
        let log = match &update.log_file {
            None => None,
            Some(path) => {
                let config = self.query(session)?.config;
                if is_private(&config) {
                    return self.update_private(session, update);
                }
                // Whether a name is that of a file or of a row is the session's to say.
                if config.log_file_mode & EVENT_TRACE_FILE_MODE_NEWFILE != 0 {
                    traceweir_session::config::check_row(path)?;
                }
                Some(Log::open(path, config.log_file_mode)?)
            }
        };
        update.log_file = log.as_ref().map(|log| log.name.clone());
        self.control(session, Control::Update(update), log, LONG_PATIENCE)
    }

    /// Writes out what is buffered; a flight recorder writes its snapshot to `file` or its own. Any other session writes none:
    /// a `file` is refused with `ERROR_INVALID_PARAMETER`, and stays as it is.
    pub fn flush(&mut self, session: &SessionRef, file: Option<PathBuf>) -> Result<Properties> {
        if let Some(path) = &file {
            let config = self.query(session)?.config;
            if config.log_file_mode & EVENT_TRACE_BUFFERING_MODE == 0 {
                let why = "only a flight recorder writes snapshots";
                return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why));
            }
            if is_private(&config) {
                return self.flush_private(session, path);
            }
        }
        let log = file.as_deref().map(|path| Log::open(path, 0)).transpose()?;
        let log_file = log.as_ref().map(|log| log.name.clone());
        self.control(session, Control::Flush { log_file }, log, LONG_PATIENCE)
    }

    /// Goes on in the next file of a row (`EVENT_TRACE_FILE_MODE_NEWFILE`) now. `ERROR_INVALID_FUNCTION` where the session writes none.
    pub fn increment(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Increment, None, LONG_PATIENCE)
    }

    /// Finishes the log file of a session, which delivers live from now on. `ERROR_INVALID_FUNCTION` where it has none.
    pub fn convert_to_real_time(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::ConvertToRealTime, None, LONG_PATIENCE)
    }

    /// Stops a session: everything written before the call is in its file or counted as lost.
    pub fn stop(&mut self, session: &SessionRef) -> Result<Properties> {
        self.control(session, Control::Stop, None, LONG_PATIENCE)
    }

    /// Enables, disables or asks a provider for its state; waits for all processes at most `timeout_ms` (0: not at all,
    /// `u32::MAX`: for ever). When the time is over the status is `ERROR_TIMEOUT`, and the enable stands.
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

    /// As [`enable`](Self::enable), and the daemon remembers what the provider is called here, where it has no name of its own to tell: shown by
    /// [`providers`](Self::providers) as [`EnableEntry::name`]. Empty: nothing new. `ERROR_INVALID_PARAMETER` past 255 UTF-16 units, and for control
    /// characters.
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
        let patience = match timeout_ms {
            INFINITE => Duration::MAX,
            ms => PATIENCE + Duration::from_millis(ms.into()),
        };
        match self.ask(&message, &[], patience)? {
            Message::Done => Ok(()),
            other => Err(unexpected(&self.link, &other)),
        }
    }

    /// Whether providers and groups may be enabled by who asks, before a session is started for them: a start empties its log file, and an enable that is
    /// refused afterwards would not bring the old log back.
    ///
    /// `ERROR_ACCESS_DENIED` where the right is missing on one of them; `ERROR_INVALID_PARAMETER` for what can be enabled by nobody.
    pub fn check_enables(&mut self, providers: &[Guid]) -> Result<()> {
        for providers in providers.chunks(CHECKED_AT_ONCE) {
            let message = Message::CheckEnables { providers: providers.to_vec() };
            match self.ask(&message, &[], PATIENCE)? {
                Message::Done => {}
                other => return Err(unexpected(&self.link, &other)),
            }
        }
        Ok(())
    }

    /// All providers that are registered or enabled.
    pub fn providers(&mut self) -> Result<Vec<ProviderEntry>> {
        let mut all: Vec<ProviderEntry> = Vec::new();
        loop {
            // By key and not by number: what comes and goes meanwhile moves nothing else.
            let after = all.last().map(|it| (it.provider, it.is_group));
            match self.ask(&Message::QueryProviders { after }, &[], PATIENCE)? {
                Message::Providers { more, providers } => {
                    let key = |it: &ProviderEntry| (it.is_group, it.provider);
                    // A daemon that comes no further is not asked for ever.
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
        patience: Duration,
    ) -> Result<Properties> {
        let message = Message::Control { session: session.clone(), control };
        let answer = self.ask(&message, &descriptors(log.as_ref()), patience);
        self.properties(answer, log)
    }

    /// The properties that an answer holds; a file that nobody took is removed if it is new.
    fn properties(&self, answer: Result<Message>, log: Option<Log>) -> Result<Properties> {
        match answer {
            Ok(Message::Properties(properties)) => Ok(*properties),
            Ok(other) => Err(unexpected(&self.link, &other)),
            Err(e) => {
                // Without a word from the daemon it may have taken the file all the same.
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

/// The answer of an idle system to a question about a session.
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
