//! Controllers: find or start a daemon, and control its sessions, providers and access rights.
//!
//! ```text
//!   Controller ──one request──▶ daemon     start: the log file is opened here, with the caller's
//!              ◀──its answer───                   rights, and its descriptor is sent along; for
//!                                                 a file sequence the first file and its folder
//! ```
//!
//! Programs use [`Session`](crate::Session) for sessions. A controller is for requests about the
//! whole daemon: its sessions ([`Controller::session`], [`Controller::sessions`]) and providers
//! ([`Controller::providers`]), access rights ([`access`]) and information about the system
//! ([`info`]).
//!
//! | Call | Starts a daemon | Result without a daemon |
//! |---|---|---|
//! | [`Controller::find`] | never | `Ok(None)`: no sessions run |
//! | [`Controller::find_or_start`] | if none runs | [`Error::NoDaemon`] |
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
//!    to an abandoned request is never taken for the answer to another request.
//! 2. A request goes to the daemon that runs now: callers do not notice that a daemon was restarted
//!    or exited when idle. A request that changes something is never sent twice.
//! 3. A session does not end with its controller, unless it was started with
//!    [`stop_on_drop`](crate::session::SessionBuilder::stop_on_drop).
//!
//! | File | Contents |
//! |---|---|
//! | `find`, `launch` | finds a daemon and greets it; starts one on demand |
//! | `ask` | one request and its answer, also across a restart of the daemon |
//! | `raw` | the calls of the C interface |
//! | `private` | private sessions in other processes |
//!
//! Sessions in this process need no controller. Private sessions that a controller starts in the
//! processes of a provider (`PRIVATE_LOGGER_MODE`, with the provider's GUID) open their files
//! there, with the rights of each process.

pub mod access;
mod ask;
mod find;
pub mod info;
mod launch;
mod private;
mod raw;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Message, Role};
use traceweir_transport::runtime::RuntimeDir;
pub use traceweir_transport::runtime::{Scope, is_privileged_by_file};

use crate::error::{Error, Result};
use ask::ControllerConnection;
pub(crate) use find::{DaemonLink, connect_first, folders, unexpected_answer};
// For the C interface only.
#[doc(hidden)]
pub use raw::*;

/// Timeout of an ordinary answer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of an answer that has to wait for a disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of providers in one request.
const MAX_PROVIDERS_PER_CHECK: usize = 1024;
/// The timeout of an enable that waits forever.
const INFINITE_MS: u32 = u32::MAX;
/// The session reference of requests about the system.
const SYSTEM_SESSION: SessionRef = SessionRef::Id(0);

/// A connection to one daemon, on which every call is one request and its answer.
///
/// Clones, and the sessions that a controller returns, share the connection: a call waits while
/// another one waits for its answer.
#[derive(Clone, Debug)]
pub struct Controller {
    connection: Arc<Mutex<ControllerConnection>>,
}

impl Controller {
    /// Finds the running daemon of this scope.
    ///
    /// If `TRACEWEIR_RUNTIME_DIR` is set, this is the daemon of that folder, whatever the scope.
    /// Without a scope, it is the system's if this user may control it, else the user's.
    pub fn find(scope: Option<Scope>) -> Result<Option<Self>> {
        Self::find_in(folders(scope)?)
    }

    /// Finds a daemon like [`find`](Self::find), and starts one if none runs: the daemon that
    /// `TRACEWEIR_RUNTIME_DIR` names, else the one of the scope; without a scope, the system's for
    /// root and the user's for other users.
    pub fn find_or_start(scope: Option<Scope>) -> Result<Self> {
        Self::find_or_start_in(folders(scope)?)
    }

    /// Returns the refusal of the system's daemon if it runs but [`find`](Self::find) and
    /// [`find_or_start`](Self::find_or_start) skip it, because it refuses this user.
    pub fn skipped_daemon_error(scope: Option<Scope>) -> Result<Option<Error>> {
        Ok(find::find_refusal(&folders(scope)?, Role::Controller))
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
        Ok(connect_first(&folders, Role::Controller)?.map(|link| Self::new(link, folders, false)))
    }

    fn find_or_start_in(folders: Vec<RuntimeDir>) -> Result<Self> {
        let link = match connect_first(&folders, Role::Controller)? {
            Some(link) => link,
            None => launch::start(&folders, &launch::DaemonSearch::from_environment())?,
        };
        Ok(Self::new(link, folders, true))
    }

    fn new(link: DaemonLink, folders: Vec<RuntimeDir>, may_start_daemon: bool) -> Self {
        Self { connection: Arc::new(Mutex::new(ControllerConnection { link, folders, may_start_daemon })) }
    }

    fn connection(&self) -> MutexGuard<'_, ControllerConnection> {
        // A panic during a call leaves an abandoned request, whose answer is ignored.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unexpected_answer(&self, message: &Message) -> Error {
        unexpected_answer(&self.connection().link, message)
    }

    /// Returns the path of the daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.connection().link.socket().to_owned()
    }

    /// Returns the runtime folder of the daemon.
    pub(crate) fn folder(&self) -> RuntimeDir {
        let connection = self.connection();
        let socket = connection.link.socket();
        let folder = connection.folders.iter().find(|folder| folder.control_socket() == socket);
        folder.cloned().unwrap_or_else(|| RuntimeDir::from_path(socket.parent().unwrap_or(Path::new("."))))
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
        for providers in providers.chunks(MAX_PROVIDERS_PER_CHECK) {
            let message = Message::CheckEnables { providers: providers.to_vec() };
            match self.ask(&message, &[], REPLY_TIMEOUT)? {
                Message::Done => {}
                other => return Err(self.unexpected_answer(&other)),
            }
        }
        Ok(())
    }
}

/// Returns the error of a request about a session while no daemon runs.
pub(crate) fn not_running_error(session: &SessionRef) -> Error {
    if session.names_no_session() {
        return Error::refused(Status::ERROR_INVALID_PARAMETER, "no session is named");
    }
    let name = match session {
        SessionRef::Id(id) => format!("session {id:#x}"),
        SessionRef::Name(name) => format!("session {name:?}"),
    };
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, format!("{name} is not running: no daemon answers"))
}
