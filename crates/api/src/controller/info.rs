//! Information about sessions, providers and the system: TraceSetInformation,
//! TraceQueryInformation, EnumerateTraceGuidsEx.
//!
//! ```text
//!   Set ──────▶ Session::set_information, Controller::set_system ────▶ daemon
//!   Query ────▶ Session::query_information, Controller::query_system ─▶ daemon, or this machine
//!                                                                        ─▶ Answer
//!   GUID ─────▶ Controller::group_info
//! ```
//!
//! | About | Session | Classes |
//! |---|---|---|
//! | a session | its id or name | 3, 4, 8, 9, 10, 14, 16, 18, 20, 21, 23, 24, 26, 28 |
//! | the system | none | 5, 6, 7, 11, 25, 27 |
//! | the system, whatever session is named | any | 17, 19, 22 |
//!
//! The numbers are those of [`InfoClass`]. Classes 0, 1, 2, 12 and 13 list providers and groups and
//! need no session. Private sessions support class 18 only.
//!
//! ```no_run
//! use traceweir::Session;
//! use traceweir::controller::Controller;
//! use traceweir::controller::info::{Answer, Query, Set};
//! # fn main() -> traceweir::Result<()> {
//! let session = Session::open("lunch")?;
//! session.set_information(&Set::ProviderBinaryTracking(true))?;
//! if let Answer::StreamCount(streams) = session.query_information(Query::StreamCount)? {
//!     println!("{streams} streams");
//! }
//! println!("{:?}", Controller::find_or_start(None)?.query_system(Query::MaxLoggers)?);
//! # Ok(())
//! # }
//! ```

pub use traceweir_format::info::{
    Answer, ClassicEventId, CounterOwner, EnableInfo, GroupInfo, GroupMask, GuidInfo, InstanceInfo,
    PeriodicCaptureState, PmcSession, ProfileInterval, ProfileSource, Query, Set, StackCaching,
};
pub use traceweir_format::spec::info::InfoClass;

use std::collections::BTreeSet;

use traceweir_format::Guid;
use traceweir_format::spec::info::RequiredSession;
use traceweir_format::spec::status::Status;
use traceweir_session::config::DEFAULT_MAX_SESSIONS;
use traceweir_session::info::{Machine, System, answer_locally};
use traceweir_transport::message::{EnableEntry, RegistrationEntry, SessionRef};

use super::{Controller, SYSTEM_SESSION, not_running_error};
use crate::error::{Error, Result};
use crate::registration::Handle;

impl Controller {
    /// Sets an information class of the system; see [`Session::set_information`] for one of a
    /// session.
    ///
    /// [`Session::set_information`]: crate::Session::set_information
    pub fn set_system(&mut self, set: &Set) -> Result<()> {
        self.set_information(&SYSTEM_SESSION, set)
    }

    /// Queries an information class of the system.
    pub fn query_system(&mut self, query: Query) -> Result<Answer> {
        self.query_information(&SYSTEM_SESSION, query)
    }

    /// Returns the sessions that enable a provider group, and the providers that have joined it.
    ///
    /// Fails with `ERROR_WMI_GUID_NOT_FOUND` if the group has neither.
    pub fn group_info(&mut self, group: Guid) -> Result<GroupInfo> {
        let entries = self.provider_entries()?;
        let Some(entry) = entries.iter().find(|entry| entry.is_group && entry.provider == group) else {
            return Err(unknown_provider_error());
        };
        let members = entries.iter().filter(|entry| !entry.is_group && entry.groups.contains(&group));
        Ok(GroupInfo {
            enables: entry.sessions.iter().map(enable_info).collect(),
            members: members.map(|entry| entry.provider).collect(),
        })
    }
}

/// Returns the providers that this process has registered, without asking a daemon.
#[must_use]
pub fn own_providers() -> Vec<Guid> {
    let providers: BTreeSet<Guid> = Handle::iter_current().map(|handle| handle.slot().provider()).collect();
    providers.into_iter().collect()
}

/// Checks that a session is named if the class is about a session, and none if it is about the
/// system.
pub(super) fn check_session_required(session: &SessionRef, class: InfoClass) -> Result<()> {
    let reason = match (class.rules().required_session, session.names_no_session()) {
        (RequiredSession::Session, true) => "no session is named: give its name, or its id, which is not 0",
        (RequiredSession::System, false) => "this information is about the system: the session id must be 0",
        _ => return Ok(()),
    };
    Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason))
}

/// Answers a query about the system while no daemon runs, as a daemon without sessions and
/// registrations would.
pub fn query_system_without_daemon(query: Query) -> Result<Answer> {
    answer_without_daemon(&SYSTEM_SESSION, query)
}

/// Returns the answer that a daemon without sessions and registrations would give.
pub(super) fn answer_without_daemon(session: &SessionRef, query: Query) -> Result<Answer> {
    check_session_required(session, query.class())?;
    if let Some(answer) = answer_locally(query, Machine::inspect)? {
        return Ok(answer);
    }
    match query {
        Query::SampledProfileInterval(source) => {
            Ok(System::default().answer_interval(source, &Machine::inspect())?)
        }
        Query::MaxLoggers => Ok(Answer::MaxLoggers(DEFAULT_MAX_SESSIONS)),
        Query::PmcSessions => Ok(Answer::PmcSessions(Vec::new())),
        Query::StackTracing | Query::SystemTraceEnableFlags => Err(not_running_error(session)),
        Query::DisallowList | Query::StreamCount => Err(not_running_error(session)),
        // Answered above, by this machine.
        Query::ProfileSourceList | Query::Version | Query::PeriodicCaptureState => Err(not_queryable_error()),
        Query::MaxPmcCounter | Query::PmcCounterOwners(_) => Err(not_queryable_error()),
    }
}

fn not_queryable_error() -> Error {
    Error::refused(Status::ERROR_NOT_SUPPORTED, "this information class cannot be queried")
}

pub(super) fn unknown_provider_error() -> Error {
    Error::refused(Status::ERROR_WMI_GUID_NOT_FOUND, "this GUID is not registered, joined or enabled")
}

fn enable_info(entry: &EnableEntry) -> EnableInfo {
    EnableInfo {
        level: entry.level,
        logger_id: (entry.session & 0xFFFF) as u16,
        property: entry.property,
        match_any: entry.any,
        match_all: entry.all,
    }
}

pub(super) fn guid_info(registrations: Vec<RegistrationEntry>) -> GuidInfo {
    let to_instance = |entry: RegistrationEntry| InstanceInfo {
        pid: entry.pid,
        is_classic: entry.is_classic,
        is_pre_enabled: entry.is_pre_enabled,
        enables: entry.sessions.iter().map(enable_info).collect(),
    };
    GuidInfo { instances: registrations.into_iter().map(to_instance).collect() }
}
