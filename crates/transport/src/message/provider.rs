//! Providers in messages: what sessions want of them, and what a daemon knows of them.

use traceweir_format::Guid;

/// What an enable call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnableCode {
    /// EVENT_CONTROL_CODE_DISABLE_PROVIDER.
    Disable,
    /// EVENT_CONTROL_CODE_ENABLE_PROVIDER.
    Enable,
    /// EVENT_CONTROL_CODE_CAPTURE_STATE.
    CaptureState,
}

/// One filter of an enable call (EVENT_FILTER_DESCRIPTOR).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// EVENT_FILTER_TYPE_….
    pub kind: u32,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A property from a daemon to a process, beside those that controllers ask for: the session is independent, and neither withholds an event from other
/// sessions nor has it withheld by them.
pub const PROPERTY_INDEPENDENT: u32 = 0x8000_0000;

/// What a session wants from a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnableParams {
    /// Highest level; 0: all.
    pub level: u8,
    /// Any of these bits; 0: all.
    pub match_any: u64,
    /// All of these bits.
    pub match_all: u64,
    /// `EVENT_ENABLE_PROPERTY_…`.
    pub property: u32,
    /// Who asks.
    pub source: Guid,
    /// At most [`MAX_FILTERS`](super::MAX_FILTERS).
    pub filters: Vec<Filter>,
}

/// What a session wants of a provider, as a daemon tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnableEntry {
    /// The session's id.
    pub session: u64,
    /// Highest level; 0: all.
    pub level: u8,
    /// Any of these keywords; 0: all.
    pub any: u64,
    /// All of these keywords.
    pub all: u64,
    /// `EVENT_ENABLE_PROPERTY_…`.
    pub property: u32,
    /// Its filters as they were asked for, at most [`MAX_FILTERS`](super::MAX_FILTERS); one without data was too large to be told.
    pub filters: Vec<Filter>,
    /// What the provider was called by who enabled it; empty: nothing.
    pub name: String,
    /// Registered processes whose events the session gets: those that filters leave out are not counted.
    pub traced: u32,
    /// Processes that have registered it, now or before, and that the enable leaves out because they run in a container.
    pub left_out: u32,
}

/// A provider as a daemon knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderEntry {
    /// Its GUID.
    pub provider: Guid,
    /// Its name, where its traits give one.
    pub name: String,
    /// Processes that have it registered (empty: enabled ahead).
    pub pids: Vec<u32>,
    /// Sessions that enable it.
    pub sessions: Vec<EnableEntry>,
    /// Private sessions of other processes that enable it, as far as they are the asker's to control.
    pub privates: Vec<EnableEntry>,
    /// Groups that registrations of it have joined by their traits.
    pub groups: Vec<Guid>,
    /// Whether this is the GUID of a group: its `pids` are those of the members.
    pub is_group: bool,
    /// Whether its registrations are classic ones.
    pub is_classic: bool,
    /// Those of its processes that run in a container, as the daemon sees them: an enable without `EVENT_ENABLE_PROPERTY_ENABLE_SILOS` is not
    /// for them.
    pub contained: Vec<u32>,
}

/// One registration of a provider, as a daemon knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationEntry {
    /// The process; 0: it cannot be seen from the daemon's.
    pub pid: u32,
    /// Nobody has registered the provider: some session has enabled it ahead.
    pub is_ahead: bool,
    /// Whether it is a classic one.
    pub is_classic: bool,
    /// What each session that has it enabled wants of it; names and filters are not told here.
    pub sessions: Vec<EnableEntry>,
}
