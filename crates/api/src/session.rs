//! Sessions: they record the events of providers to a file, or deliver them live.
//!
//! A session runs in this process, without a daemon, or in a daemon that is started on demand and
//! collects the events of all processes.
//!
//! ```
//! use traceweir::{EventDescriptor, Guid, Keywords, Level, Provider, Session};
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("lunch.etl");
//! let session = Session::builder("lunch").log_file(&file).in_process().start()?;
//! session.enable("Contoso.Shop").level(Level::Verbose).keywords(Keywords::new(0x10)).apply()?;
//!
//! let shop = Provider::register(Guid::from_provider_name("Contoso.Shop"), None)?;
//! let served = EventDescriptor { id: 1, level: 4, keyword: 0x10, ..EventDescriptor::default() };
//! shop.write(&served, &[b"soup\0"])?;
//!
//! let summary = session.stop()?;
//! assert_eq!((summary.events, summary.events_lost), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | | In this process | In a daemon |
//! |---|---|---|
//! | Events | of this process | of all processes that the user may trace, and of the kernel |
//! | Live delivery, provider groups | no | yes |
//! | When the [`Session`] is dropped | it stops | it continues, unless [`stop_on_drop`] was set |
//! | When the program ends | it stops | as when dropped |
//!
//! Sessions in a daemon are found again by name with [`Session::open`], also by other programs.
//! [`Controller::session`] does so in a daemon that was found before.
//!
//! [`stop_on_drop`]: SessionBuilder::stop_on_drop

mod builder;
mod enable;
mod filter;
mod process_tree;
mod providers;
mod summary;

pub use builder::SessionBuilder;
pub use enable::{Enable, ProviderId};
pub use filter::Filter;
pub use process_tree::ProcessTree;
pub use providers::{ProviderEnable, ProviderInfo};
pub use summary::{LostEvents, SessionSummary};
pub use traceweir_transport::message::MAX_PROVIDER_NAME_UNITS;
pub use traceweir_transport::runtime::Scope;

use std::path::Path;
use std::time::Duration;

use traceweir_format::spec::enable::ControlCode;
use traceweir_format::spec::session::SessionId;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Properties, SessionRef, Update as UpdateMessage};

use crate::consumer::Trace;
use crate::controller::info::{Answer, Query, Set};
use crate::controller::{Controller, not_running_error};
use crate::error::{Error, Result};
use crate::private::PrivateSession;
use builder::round_up_to_seconds;

/// A running session.
///
/// [`Session::builder`] starts one, [`Session::open`] finds one that a daemon runs.
#[derive(Debug)]
pub struct Session {
    host: SessionHost,
}

/// The process that runs a session.
#[derive(Debug)]
enum SessionHost {
    InProcess(PrivateSession),
    Daemon { controller: Controller, session: SessionRef },
}

impl Session {
    /// Returns a builder for a session of this name, which is unique among the sessions of a
    /// daemon.
    pub fn builder(name: impl Into<String>) -> SessionBuilder {
        SessionBuilder::new(name.into())
    }

    /// Opens a session that a daemon runs, by its name, ignoring case, or by its GUID in text form.
    ///
    /// Fails with `ERROR_WMI_INSTANCE_NOT_FOUND` if no such session runs.
    pub fn open(name: &str) -> Result<Self> {
        let session = SessionRef::Name(name.to_owned());
        let Some(mut controller) = Controller::find(None)? else { return Err(not_running_error(&session)) };
        let id = SessionId::new(controller.query(&session)?.id);
        Ok(controller.session_with_id(id))
    }

    /// Returns all sessions of the daemon that this user controls; none if no daemon runs.
    pub fn list() -> Result<Vec<SessionSummary>> {
        Controller::find(None)?.map_or_else(|| Ok(Vec::new()), |mut controller| controller.sessions())
    }

    fn in_daemon(controller: &Controller, session: SessionRef) -> Self {
        Self { host: SessionHost::Daemon { controller: controller.clone(), session } }
    }

    /// Returns the id of the session; each process and each daemon numbers its own sessions.
    ///
    /// Asks the daemon if the session was addressed by name ([`Controller::session`]).
    pub fn id(&self) -> Result<SessionId> {
        match &self.host {
            SessionHost::InProcess(session) => Ok(SessionId::new(session.id())),
            SessionHost::Daemon { session: SessionRef::Id(id), .. } => Ok(SessionId::new(*id)),
            SessionHost::Daemon { session: SessionRef::Name(_), .. } => Ok(self.query()?.id),
        }
    }

    /// Returns a builder that enables a provider, by GUID or by name, whether it is registered now
    /// or later.
    ///
    /// ```no_run
    /// # use traceweir::{Guid, Keywords, Level, Session};
    /// # fn enable(session: &Session) -> traceweir::Result<()> {
    /// session.enable("Contoso.Shop").level(Level::Warning).apply()?;
    /// session.enable(Guid::from_u128(0x68fdd900_4a3e_11d1_84f4_0000f80464e3)).apply()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn enable(&self, provider: impl Into<ProviderId>) -> Enable<'_> {
        self.request(provider, ControlCode::Enable)
    }

    /// Returns a builder for a request about a provider: enable, disable or capture state. Unlike
    /// [`disable`](Self::disable) and [`capture_state`](Self::capture_state), it accepts options.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use traceweir::{ControlCode, EnableProperties, Session};
    /// # fn disable(session: &Session) -> traceweir::Result<()> {
    /// let request = session.request("Contoso.Group", ControlCode::Disable);
    /// request.properties(EnableProperties::PROVIDER_GROUP).timeout(Duration::MAX).apply()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn request(&self, provider: impl Into<ProviderId>, code: ControlCode) -> Enable<'_> {
        Enable::new(self, provider.into(), code)
    }

    /// Disables a provider in this session.
    pub fn disable(&self, provider: impl Into<ProviderId>) -> Result<()> {
        self.request(provider, ControlCode::Disable).apply()
    }

    /// Requests that a provider write its state.
    ///
    /// Fails with `ERROR_INVALID_FUNCTION` if the provider is neither registered nor enabled.
    pub fn capture_state(&self, provider: impl Into<ProviderId>) -> Result<()> {
        self.request(provider, ControlCode::CaptureState).apply()
    }

    /// Returns the settings and counters of the session.
    pub fn query(&self) -> Result<SessionSummary> {
        self.control(|session| Ok(session.query()), |controller, session| controller.query(session))
    }

    /// Returns the final settings and counters of a session that ended recently; `end_status` gives
    /// the reason if it ended by itself.
    ///
    /// Fails with `ERROR_WMI_INSTANCE_NOT_FOUND` while it runs, when the daemon has forgotten it,
    /// and for a session in this process.
    pub fn outcome(&self) -> Result<SessionSummary> {
        self.control(
            |_| Err(Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, "the session is running")),
            |controller, session| controller.outcome(session),
        )
    }

    /// Returns the number of kernel events of the session that the kernel dropped, by processor.
    ///
    /// They are among the lost events of [`query`](Self::query). Empty if the session receives no
    /// kernel events.
    pub fn kernel_losses(&self) -> Result<Vec<u64>> {
        match &self.host {
            SessionHost::InProcess(_) => Ok(Vec::new()),
            SessionHost::Daemon { controller, session } => controller.clone().kernel_losses(session),
        }
    }

    /// Returns a builder that changes settings of the running session.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn change(session: &traceweir::Session) -> traceweir::Result<()> {
    /// session.update().flush_timer(Duration::from_secs(5)).log_file("dinner.etl").apply()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&self) -> SessionUpdate<'_> {
        SessionUpdate { session: self, changes: UpdateMessage::default() }
    }

    /// Writes all buffered events to the log file, or delivers them.
    pub fn flush(&self) -> Result<SessionSummary> {
        self.control(|session| session.flush(None), |controller, session| controller.flush(session, None))
    }

    /// Writes the memory of a flight recorder ([`LogFileMode::BUFFERING`]) to a file.
    ///
    /// Fails with `ERROR_INVALID_PARAMETER` for any other session.
    ///
    /// [`LogFileMode::BUFFERING`]: crate::LogFileMode::BUFFERING
    pub fn snapshot(&self, file: impl AsRef<Path>) -> Result<SessionSummary> {
        let file = file.as_ref();
        self.control(
            |session| session.flush(Some(file)),
            |controller, session| controller.flush(session, Some(file.to_owned())),
        )
    }

    /// Continues in the next file of a file sequence ([`LogFileMode::NEWFILE`]).
    ///
    /// Fails with `ERROR_INVALID_FUNCTION` if the session does not write a file sequence.
    ///
    /// [`LogFileMode::NEWFILE`]: crate::LogFileMode::NEWFILE
    pub fn next_file(&self) -> Result<SessionSummary> {
        let reason = "a session in this process writes one file";
        self.control(
            |_| Err(Error::refused(Status::ERROR_INVALID_FUNCTION, reason)),
            |controller, session| controller.increment(session),
        )
    }

    /// Finishes the log file of the session, which delivers live from now on.
    ///
    /// Fails with `ERROR_INVALID_FUNCTION` for a session that has no log file or runs in this
    /// process.
    pub fn convert_to_real_time(&self) -> Result<SessionSummary> {
        let reason = "a session in this process delivers nothing live";
        self.control(
            |_| Err(Error::refused(Status::ERROR_INVALID_FUNCTION, reason)),
            |controller, session| controller.convert_to_real_time(session),
        )
    }

    /// Sets an information class of the session (TraceSetInformation).
    ///
    /// Fails with `ERROR_NOT_SUPPORTED` if the machine lacks the hardware, and for most classes in
    /// a session of this process.
    pub fn set_information(&self, set: &Set) -> Result<()> {
        match &self.host {
            SessionHost::InProcess(session) => session.set_information(set),
            SessionHost::Daemon { controller, session } => controller.clone().set_information(session, set),
        }
    }

    /// Queries an information class of the session (TraceQueryInformation).
    ///
    /// Fails with `ERROR_NOT_SUPPORTED` for a session of this process.
    pub fn query_information(&self, query: Query) -> Result<Answer> {
        match &self.host {
            SessionHost::InProcess(_) => {
                let reason = "a session in this process has no information classes to query";
                Err(Error::refused(Status::ERROR_NOT_SUPPORTED, reason))
            }
            SessionHost::Daemon { controller, session } => {
                controller.clone().query_information(session, query)
            }
        }
    }

    /// Opens the live events of a session that was started with
    /// [`real_time`](SessionBuilder::real_time).
    ///
    /// Events written after this call returns are delivered. Fails with
    /// `ERROR_WMI_INSTANCE_NOT_FOUND` if the session does not deliver live, which sessions in this
    /// process never do.
    pub fn trace(&self) -> Result<Trace> {
        match &self.host {
            SessionHost::InProcess(_) => {
                let reason = "a session in this process writes to its file and delivers nothing live";
                Err(Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason))
            }
            SessionHost::Daemon { controller, session } => {
                Trace::open_live_in(&[controller.folder()], session)
            }
        }
    }

    /// Stops the session: every event written before the call is in its file or counted as lost.
    pub fn stop(self) -> Result<SessionSummary> {
        let properties = match self.host {
            SessionHost::InProcess(session) => session.stop()?,
            SessionHost::Daemon { mut controller, session } => controller.stop(&session)?,
        };
        Ok(SessionSummary::from_message(properties))
    }

    fn control(
        &self,
        in_process: impl FnOnce(&PrivateSession) -> Result<Properties>,
        in_daemon: impl FnOnce(&mut Controller, &SessionRef) -> Result<Properties>,
    ) -> Result<SessionSummary> {
        let properties = match &self.host {
            SessionHost::InProcess(session) => in_process(session)?,
            SessionHost::Daemon { controller, session } => in_daemon(&mut controller.clone(), session)?,
        };
        Ok(SessionSummary::from_message(properties))
    }
}

/// Sessions of the daemon that a controller is connected to.
impl Controller {
    /// Returns the session with this name, ignoring case, or with this GUID in text form, without
    /// asking the daemon.
    ///
    /// The name is looked up by each call on the session, which fails with
    /// `ERROR_WMI_INSTANCE_NOT_FOUND` if no such session runs.
    ///
    /// ```no_run
    /// use traceweir::controller::Controller;
    ///
    /// # fn main() -> traceweir::Result<()> {
    /// if let Some(controller) = Controller::find(None)? {
    ///     println!("{} events", controller.session("lunch").stop()?.events);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn session(&self, name: &str) -> Session {
        Session::in_daemon(self, SessionRef::Name(name.to_owned()))
    }

    /// Returns the session with this id, without asking the daemon.
    #[must_use]
    pub fn session_with_id(&self, id: SessionId) -> Session {
        Session::in_daemon(self, SessionRef::Id(id.number()))
    }

    /// Returns the settings and counters of all sessions.
    pub fn sessions(&mut self) -> Result<Vec<SessionSummary>> {
        Ok(self.query_all()?.into_iter().map(SessionSummary::from_message).collect())
    }

    /// Returns the recently ended sessions that the daemon remembers, the latest first; see
    /// [`Session::outcome`]. A [`stop`](Session::stop) of an ended session fails, and removes the
    /// session from this list.
    pub fn ended_sessions(&mut self) -> Result<Vec<SessionSummary>> {
        Ok(self.query_ended()?.into_iter().map(SessionSummary::from_message).collect())
    }
}

/// A builder of changes to a running session; [`Session::update`] creates it.
#[derive(Debug)]
#[must_use = "an update changes nothing until it is applied"]
pub struct SessionUpdate<'s> {
    session: &'s Session,
    changes: UpdateMessage,
}

impl SessionUpdate<'_> {
    /// Sets the time after which partly filled buffers are written, rounded up to whole seconds.
    pub fn flush_timer(mut self, timer: Duration) -> Self {
        self.changes.flush_timer = Some(round_up_to_seconds(timer));
        self
    }

    /// Sets the largest number of buffers.
    pub fn maximum_buffers(mut self, buffers: u32) -> Self {
        self.changes.maximum_buffers = Some(buffers);
        self
    }

    /// Switches live delivery on or off.
    pub fn real_time(mut self, on: bool) -> Self {
        self.changes.real_time = Some(on);
        self
    }

    /// Continues in another log file.
    pub fn log_file(mut self, path: impl AsRef<Path>) -> Self {
        self.changes.log_file = Some(path.as_ref().to_owned());
        self
    }

    /// Selects other groups of kernel events (EnableFlags); for system loggers only.
    pub fn kernel_flags(mut self, flags: u32) -> Self {
        self.changes.enable_flags = Some(flags);
        self
    }

    /// Applies the changes.
    pub fn apply(self) -> Result<SessionSummary> {
        let Self { session, changes } = self;
        session.control(
            |session| session.update(&changes),
            |controller, session| controller.update(session, &changes),
        )
    }
}
