//! A process that registers providers: its identity, its registrations and regions, and the
//! acknowledgements that the daemon expects from it.
//!
//! The identity is fixed when the process connects. Later information found by process id counts
//! only while the id still belongs to the same process.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_ENABLE_SILOS;
use traceweir_session::RegionId;
use traceweir_transport::abi::RegionParams;
use traceweir_transport::socket::Peer;

use super::{EnableTarget, ProviderRegistration, TargetEnable};
use crate::filter::{Conditions, ProcessFacts, ProcessScope};
use crate::process::{self, ProcessKey};

#[derive(Debug)]
pub(crate) struct ProviderProcess {
    pub(crate) peer: Peer,
    /// The random number that the process's provider library chose.
    pub(super) instance: u64,
    /// Key of the process, if `/proc` showed the process when it connected;
    /// [`ProcessKey::ENDED`] if it had ended by then.
    pub(super) key: Option<ProcessKey>,
    /// Process properties that scope filters test; read on first use.
    facts: OnceCell<ProcessFacts>,
    /// The process and its ancestors; read on first use. Ancestors that end later stay listed.
    ancestry: OnceCell<Vec<ProcessKey>>,
    /// Whether the process runs in a container; determined on first use.
    contained: OnceCell<bool>,
    pub(crate) registrations: BTreeMap<u32, ProviderRegistration>,
    /// Open regions by session.
    pub(crate) regions: BTreeMap<u64, RegionId>,
    /// Enables that leave the process out because it runs in a container.
    pub(super) left_out_of: BTreeSet<(EnableTarget, u64)>,
    /// Regions that the process created before the daemon answered, by session.
    pub(crate) offered: BTreeMap<u64, (RegionParams, OwnedFd)>,
    /// The wait that each awaited acknowledgement belongs to, by order number.
    pub(crate) awaited: BTreeMap<u32, u64>,
    pub(super) last_order: u32,
    pub(super) name_bytes: usize,
}

impl ProviderProcess {
    /// Creates the entry for a process that has just sent `Hello`, with the key it had when it
    /// connected.
    pub(crate) fn new(peer: Peer, key: Option<ProcessKey>, instance: u64) -> Self {
        Self {
            peer,
            instance,
            key,
            facts: OnceCell::new(),
            ancestry: OnceCell::new(),
            contained: OnceCell::new(),
            registrations: BTreeMap::new(),
            regions: BTreeMap::new(),
            left_out_of: BTreeSet::new(),
            offered: BTreeMap::new(),
            awaited: BTreeMap::new(),
            last_order: 0,
            name_bytes: 0,
        }
    }

    /// Returns the process with fixed facts in place of those read from the system.
    #[cfg(test)]
    pub(crate) fn with_facts(self, facts: ProcessFacts, contained: bool) -> Self {
        Self { facts: OnceCell::from(facts), contained: OnceCell::from(contained), ..self }
    }

    /// Returns the next order number. 0 means "no order" and is skipped.
    pub(crate) fn next_order(&mut self) -> u32 {
        self.last_order = self.last_order.checked_add(1).unwrap_or(1);
        self.last_order
    }

    pub(crate) fn is_in_scope(&self, scope: &ProcessScope) -> bool {
        let facts = || self.facts.get_or_init(|| self.inspect(ProcessFacts::from_pid).unwrap_or_default());
        let ancestry = || self.ancestry.get_or_init(|| self.read_ancestry()).as_slice();
        scope.as_ref().is_none_or(|conditions| conditions.are_met(self.key, facts, ancestry))
    }

    fn read_ancestry(&self) -> Vec<ProcessKey> {
        self.inspect(process::read_ancestry).unwrap_or_else(|| self.key.into_iter().collect())
    }

    /// Returns whether an enable applies to this process. Processes in containers need an enable
    /// that names them or that includes containers.
    pub(super) fn is_included_by(&self, enable: &TargetEnable) -> bool {
        self.is_in_scope(&enable.scope) && (enable.is_for_containers() || !self.is_contained())
    }

    /// Returns whether an enable leaves this process out only because it runs in a container.
    pub(super) fn is_left_out_by(&self, enable: &TargetEnable) -> bool {
        self.is_in_scope(&enable.scope) && !enable.is_for_containers() && self.is_contained()
    }

    /// Returns whether the process runs in a container that the daemon is not in.
    pub(super) fn is_contained(&self) -> bool {
        let is_contained = || self.inspect(process::is_contained).unwrap_or(self.peer.pid == 0);
        *self.contained.get_or_init(is_contained)
    }

    /// Calls `inspect` with the process id; returns `None` if the process has ended by now, because
    /// the id may belong to another process.
    pub(crate) fn inspect<T>(&self, inspect: impl FnOnce(u32) -> T) -> Option<T> {
        let result = inspect(self.peer.pid);
        // Check afterwards: the process that has the id now also had it during the inspection.
        let key = ProcessKey::from_pid(self.peer.pid);
        // If neither key exists, `/proc` hides the process, or the process was reaped.
        let is_same = key == self.key && (key.is_some() || process::may_exist(self.peer.pid));
        is_same.then_some(result)
    }

    pub(crate) fn has_ended(&self) -> bool {
        process::has_ended(self.peer.pid, self.key)
    }

    pub(crate) fn is_enabled_for(&self, session: u64) -> bool {
        self.registrations.values().any(|registration| registration.sessions.contains(&session))
    }

    /// Returns the wait that an order belongs to. Only the last order of each wait is recorded.
    pub(crate) fn wait_for_order(&self, order: u32) -> Option<u64> {
        self.awaited.range(order..).next().map(|(_, wait)| *wait)
    }

    /// Removes and returns the waits that end with an acknowledgement of all orders up to this one.
    pub(crate) fn acknowledge(&mut self, order: u32) -> Vec<u64> {
        let later = order.checked_add(1).map(|next| self.awaited.split_off(&next)).unwrap_or_default();
        std::mem::replace(&mut self.awaited, later).into_values().collect()
    }
}

impl TargetEnable {
    /// Returns whether the enable includes processes in containers: its property says so, or its
    /// scope names processes or containers.
    fn is_for_containers(&self) -> bool {
        self.params.property & EVENT_ENABLE_PROPERTY_ENABLE_SILOS != 0
            || self.scope.as_ref().is_some_and(Conditions::includes_containers)
    }
}
