//! Providers that a daemon knows: those that processes have registered, and those that sessions
//! enable.

use traceweir_format::Guid;
use traceweir_format::spec::enable::EnableProperties;
use traceweir_format::spec::event::Keywords;
use traceweir_format::spec::session::SessionId;
use traceweir_transport::message::{EnableEntry, ProviderEntry};

use super::Filter;
use crate::controller::Controller;
use crate::error::Result;
use crate::tracelogging::Level;

/// A provider or provider group that is registered or enabled; [`Controller::providers`] returns
/// them.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderInfo {
    /// GUID of the provider or group.
    pub guid: Guid,
    /// Name from the traits of the provider; may be empty.
    pub name: String,
    /// Processes that have registered the provider or, for a group, one of its members.
    pub pids: Vec<u32>,
    /// Sessions that enable the provider or group.
    pub sessions: Vec<ProviderEnable>,
    /// Private sessions of other processes that enable it, as far as the caller may control them.
    pub private_sessions: Vec<ProviderEnable>,
    /// Groups that the provider has joined.
    pub groups: Vec<Guid>,
    /// Whether this is a group.
    pub is_group: bool,
    /// Whether it is registered as a classic provider.
    pub is_classic: bool,
    /// The processes of `pids` that run in a container, as the daemon sees it. An enable without
    /// [`EnableProperties::ENABLE_SILOS`] excludes them.
    pub contained_pids: Vec<u32>,
}

/// The enable of a provider by one session.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderEnable {
    /// Id of the session.
    pub session: SessionId,
    /// Highest level; [`Level::LogAlways`] for all.
    pub level: Level,
    /// Keywords of which an event must have at least one; no keywords for all events.
    pub keywords: Keywords,
    /// Keywords of which an event must have all.
    pub all_keywords: Keywords,
    /// Properties of the enable.
    pub properties: EnableProperties,
    /// Filters as requested.
    pub filters: Vec<Filter>,
    /// Name of the provider in the enable call; may be empty.
    pub name: String,
    /// Number of registered processes whose events the session gets, without those that filters
    /// exclude.
    pub traced: u32,
    /// Number of processes, running or ended, that registered the provider and that the enable
    /// excludes because they run in a container.
    pub left_out: u32,
}

impl Default for ProviderEnable {
    fn default() -> Self {
        Self::from_message(EnableEntry::default())
    }
}

impl Controller {
    /// Returns all providers and groups that are registered or enabled.
    pub fn providers(&mut self) -> Result<Vec<ProviderInfo>> {
        Ok(self.provider_entries()?.into_iter().map(ProviderInfo::from_message).collect())
    }
}

impl ProviderInfo {
    fn from_message(entry: ProviderEntry) -> Self {
        let convert =
            |entries: Vec<EnableEntry>| entries.into_iter().map(ProviderEnable::from_message).collect();
        Self {
            guid: entry.provider,
            name: entry.name,
            pids: entry.pids,
            sessions: convert(entry.sessions),
            private_sessions: convert(entry.privates),
            groups: entry.groups,
            is_group: entry.is_group,
            is_classic: entry.is_classic,
            contained_pids: entry.contained,
        }
    }
}

impl ProviderEnable {
    fn from_message(entry: EnableEntry) -> Self {
        Self {
            session: SessionId::new(entry.session),
            level: Level::from_int(entry.level),
            keywords: Keywords::new(entry.any),
            all_keywords: Keywords::new(entry.all),
            properties: EnableProperties::new(entry.property),
            filters: entry.filters.into_iter().map(Filter::from_message).collect(),
            name: entry.name,
            traced: entry.traced,
            left_out: entry.left_out,
        }
    }
}
