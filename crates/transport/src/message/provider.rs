//! Providers in messages: enable parameters, and the state that a daemon reports.

use traceweir_format::Guid;
pub use traceweir_format::spec::enable::ControlCode as EnableCode;

/// One filter of an enable call (EVENT_FILTER_DESCRIPTOR).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Type of the filter (EVENT_FILTER_TYPE_…).
    pub kind: u32,
    /// Data of the filter.
    pub data: Vec<u8>,
}

/// Property that only a daemon sends to a process: the session is independent. If one of the
/// sessions without this property cannot take an event, none of them gets it. An independent
/// session gets every event that it can take, and its failures do not affect other sessions.
pub const PROPERTY_INDEPENDENT: u32 = 0x8000_0000;

/// The events that a session wants from a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnableParams {
    /// Highest level; 0 for all.
    pub level: u8,
    /// Keywords of which an event must have at least one; 0 for all events.
    pub match_any: u64,
    /// Keywords that an event must have, all of them.
    pub match_all: u64,
    /// Properties of the enable (`EVENT_ENABLE_PROPERTY_…`).
    pub property: u32,
    /// GUID of the caller (SourceId).
    pub source: Guid,
    /// Filters of the enable, at most [`MAX_FILTERS`](super::MAX_FILTERS).
    pub filters: Vec<Filter>,
}

/// The enable of a provider by a session, as a daemon reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnableEntry {
    /// Id of the session.
    pub session: u64,
    /// Highest level; 0 for all.
    pub level: u8,
    /// Keywords of which an event must have at least one; 0 for all events.
    pub any: u64,
    /// Keywords that an event must have, all of them.
    pub all: u64,
    /// Properties of the enable (`EVENT_ENABLE_PROPERTY_…`).
    pub property: u32,
    /// Filters as requested, at most [`MAX_FILTERS`](super::MAX_FILTERS). The data of a filter is
    /// empty if it was too large for the message.
    pub filters: Vec<Filter>,
    /// Name of the provider in the enable call; may be empty.
    pub name: String,
    /// Number of registered processes whose events the session gets. Processes that a filter
    /// excludes are not counted.
    pub traced: u32,
    /// Number of processes, running or ended, that registered the provider and that the enable
    /// excludes because they run in a container.
    pub left_out: u32,
}

/// A provider, as a daemon reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderEntry {
    /// GUID of the provider.
    pub provider: Guid,
    /// Name from its traits, if any.
    pub name: String,
    /// Processes that have registered it (empty if it is only enabled ahead of registrations).
    pub pids: Vec<u32>,
    /// Sessions that enable it.
    pub sessions: Vec<EnableEntry>,
    /// Private sessions of other processes that enable it, as far as the caller may control them.
    pub privates: Vec<EnableEntry>,
    /// Groups that its registrations have joined by their traits.
    pub groups: Vec<Guid>,
    /// Whether this is a group: `pids` are then the processes of its members.
    pub is_group: bool,
    /// Whether its registrations are classic ones.
    pub is_classic: bool,
    /// Processes of the provider that run in a container, as the daemon sees them: an enable
    /// without `EVENT_ENABLE_PROPERTY_ENABLE_SILOS` excludes them.
    pub contained: Vec<u32>,
}

/// A registration of a provider, as a daemon reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationEntry {
    /// Process id; 0 if the process is not visible in the daemon's namespace.
    pub pid: u32,
    /// Whether a session has enabled the provider before any process registered it.
    pub is_pre_enabled: bool,
    /// Whether it is a classic registration.
    pub is_classic: bool,
    /// Enables by session; without names and filters.
    pub sessions: Vec<EnableEntry>,
}
