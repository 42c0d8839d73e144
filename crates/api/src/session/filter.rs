//! Filters of an enable.

use traceweir_format::filter::{Gate, encode};
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_CONTAINER, EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EVENT_NAME,
    EVENT_FILTER_TYPE_EXECUTABLE_NAME, EVENT_FILTER_TYPE_PID, EVENT_FILTER_TYPE_PROCESS_TREE,
    EVENT_FILTER_TYPE_STACKWALK, EVENT_FILTER_TYPE_STACKWALK_NAME,
};
use traceweir_transport::message;

/// A condition on events or processes, added to an enable by
/// [`Enable::filter`](super::Enable::filter).
///
/// ```no_run
/// use traceweir::Session;
/// use traceweir::session::Filter;
///
/// # fn enable(session: &Session) -> traceweir::Result<()> {
/// let quiet = Filter::except_event_ids(&[7, 8]);
/// session.enable("Contoso.Shop").filter(quiet).filter(Filter::executables(&["shop"])).apply()?;
/// # Ok(())
/// # }
/// ```
///
/// [`Enable::apply`](super::Enable::apply) checks the limits of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(message::Filter);

impl Filter {
    /// Takes, of the manifest events, only those with these ids; at most 64.
    #[must_use]
    pub fn event_ids(ids: &[u16]) -> Self {
        Self::from_parts(EVENT_FILTER_TYPE_EVENT_ID, encode::event_ids(true, ids))
    }

    /// Takes all events except manifest events with these ids; at most 64.
    #[must_use]
    pub fn except_event_ids(ids: &[u16]) -> Self {
        Self::from_parts(EVENT_FILTER_TYPE_EVENT_ID, encode::event_ids(false, ids))
    }

    /// Takes, of the self-describing events, only those with these names.
    #[must_use]
    pub fn event_names(names: &[&str]) -> Self {
        Self::from_parts(EVENT_FILTER_TYPE_EVENT_NAME, encode::event_names(Gate::default(), true, names))
    }

    /// Takes all events except self-describing ones with these names.
    #[must_use]
    pub fn except_event_names(names: &[&str]) -> Self {
        Self::from_parts(EVENT_FILTER_TYPE_EVENT_NAME, encode::event_names(Gate::default(), false, names))
    }

    /// Takes events of these processes only; at most 8.
    #[must_use]
    pub fn process_ids(pids: &[u32]) -> Self {
        Self::from_parts(EVENT_FILTER_TYPE_PID, encode::pids(pids))
    }

    /// Takes events of these processes and of their descendants only, also of later ones; at most 8.
    #[must_use]
    pub fn process_trees(pids: &[u32]) -> Self {
        Self::from_parts(EVENT_FILTER_TYPE_PROCESS_TREE, encode::pids(pids))
    }

    /// Takes events of processes that run these programs only, by file name.
    #[must_use]
    pub fn executables(names: &[&str]) -> Self {
        Self::from_parts(EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode::name_list(names))
    }

    /// Takes events of processes in these containers only.
    #[must_use]
    pub fn containers(names: &[&str]) -> Self {
        Self::from_parts(EVENT_FILTER_TYPE_CONTAINER, encode::name_list(names))
    }

    /// Limits the call stacks of manifest events to those with these ids, if the enable adds stacks.
    #[must_use]
    pub fn stacks_of_event_ids(ids: &[u16]) -> Self {
        Self::from_parts(EVENT_FILTER_TYPE_STACKWALK, encode::event_ids(true, ids))
    }

    /// Limits the call stacks of self-describing events to those with these names, if the enable
    /// adds stacks.
    #[must_use]
    pub fn stacks_of_event_names(names: &[&str]) -> Self {
        let data = encode::event_names(Gate::default(), true, names);
        Self::from_parts(EVENT_FILTER_TYPE_STACKWALK_NAME, data)
    }

    /// Creates a filter from its type (`EVENT_FILTER_TYPE_…`) and the bytes of that type. Types
    /// below 0x80000000 are defined by the provider.
    #[must_use]
    pub fn from_parts(kind: u32, data: Vec<u8>) -> Self {
        Self(message::Filter { kind, data })
    }

    /// Returns the type of the filter (`EVENT_FILTER_TYPE_…`).
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.0.kind
    }

    /// Returns the bytes of the filter. A filter that a daemon reports has none if it was too large
    /// for the message.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.0.data
    }

    pub(super) fn into_message(self) -> message::Filter {
        self.0
    }

    pub(super) fn from_message(filter: message::Filter) -> Self {
        Self(filter)
    }
}
