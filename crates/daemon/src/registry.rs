//! Who is there and what is enabled for whom.
//!
//! ```text
//!   processes      link ─▶ Process { registrations: number ─▶ Registration { provider, sessions that have it enabled }
//!                                    regions:       session ─▶ source
//!                                    awaited:       order ─▶ wait }
//!   registered     provider ─▶ { (link, registration) }          the same registrations by GUID
//!   enables        provider ─▶ session ─▶ Enable                 also for GUIDs that nobody has registered yet
//! ```
//!
//! Invariants:
//!
//! 1. `registered` holds exactly the registrations of `processes`.
//! 2. A registration's `sessions` holds a session only while `enables` has it for that GUID and the process is in its scope.
//! 3. `regions` of a process holds a session exactly while one of its registrations is enabled there (and a region could be made).
//!
//! Data only: what is sent, attached and waited for is the service's work.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging::Traits;
use traceweir_session::SourceId;
use traceweir_transport::message::{EnableParams, MAX_REGISTRATIONS, ProviderEntry};
use traceweir_transport::socket::Peer;

use crate::error::Refusal;
use crate::filter::{Facts, Scope};
use crate::process::ProcessKey;
use crate::service::LinkId;

/// Sessions that enable one provider.
pub(crate) const MAX_SESSIONS_PER_PROVIDER: usize = 8;
/// Providers that one session enables.
const MAX_ENABLES_PER_SESSION: usize = 4096;
/// Bytes of provider names kept for one process; a name past that is not kept.
const MAX_NAME_BYTES: usize = 32 * 1024;

/// A process that registers providers.
#[derive(Debug)]
pub(crate) struct Process {
    /// Who it is.
    pub(crate) peer: Peer,
    /// The number its library drew.
    instance: u64,
    /// The process itself, where `/proc` shows it.
    key: Option<ProcessKey>,
    /// What filters ask of it, once one did.
    facts: OnceCell<Facts>,
    /// Its registrations by their numbers.
    pub(crate) registrations: BTreeMap<u32, Registration>,
    /// Its open regions by session.
    pub(crate) regions: BTreeMap<u64, SourceId>,
    /// What its acknowledgements are waited for by.
    pub(crate) awaited: BTreeMap<u32, u64>,
    last_order: u32,
    name_bytes: usize,
}

/// One registration.
#[derive(Debug)]
pub(crate) struct Registration {
    /// Its GUID.
    pub(crate) provider: Guid,
    /// Sessions for which it is enabled.
    pub(crate) sessions: BTreeSet<u64>,
    name: String,
}

/// What one session wants from one provider.
#[derive(Clone, Debug)]
pub(crate) struct Enable {
    /// What.
    pub(crate) params: EnableParams,
    /// From whom.
    pub(crate) scope: Scope,
}

impl Process {
    /// A process that just said hello.
    pub(crate) fn new(peer: Peer, instance: u64) -> Self {
        Self {
            peer,
            instance,
            key: ProcessKey::of(peer.pid),
            facts: OnceCell::new(),
            registrations: BTreeMap::new(),
            regions: BTreeMap::new(),
            awaited: BTreeMap::new(),
            last_order: 0,
            name_bytes: 0,
        }
    }

    /// The next order number; 0 means "no order" and is left out.
    pub(crate) fn next_order(&mut self) -> u32 {
        self.last_order = self.last_order.checked_add(1).unwrap_or(1);
        self.last_order
    }

    /// Whether an enable of this scope is for this process.
    pub(crate) fn is_in(&self, scope: &Scope) -> bool {
        let facts = || self.facts.get_or_init(|| Facts::of(self.peer.pid));
        scope.as_ref().is_none_or(|conditions| conditions.are_met(self.key, facts))
    }

    /// Whether any registration is enabled for the session.
    pub(crate) fn uses(&self, session: u64) -> bool {
        self.registrations.values().any(|registration| registration.sessions.contains(&session))
    }

    /// The wait that an order counts for: the last order of each is awaited.
    pub(crate) fn waits_for(&self, order: u32) -> Option<u64> {
        self.awaited.range(order..).next().map(|(_, wait)| *wait)
    }

    /// The waits that an acknowledgement of everything up to this order ends.
    pub(crate) fn acknowledged(&mut self, order: u32) -> Vec<u64> {
        let later = order.checked_add(1).map(|next| self.awaited.split_off(&next)).unwrap_or_default();
        std::mem::replace(&mut self.awaited, later).into_values().collect()
    }
}

/// Who is there and what is enabled for whom.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Processes by connection.
    pub(crate) processes: BTreeMap<LinkId, Process>,
    registered: BTreeMap<Guid, BTreeSet<(LinkId, u32)>>,
    enables: BTreeMap<Guid, BTreeMap<u64, Enable>>,
}

impl Registry {
    /// Whether this process has a connection already.
    pub(crate) fn knows(&self, pid: u32, instance: u64) -> bool {
        self.processes.values().any(|process| process.peer.pid == pid && process.instance == instance)
    }

    /// Connections of one process.
    pub(crate) fn connections_of(&self, pid: u32) -> usize {
        self.processes.values().filter(|process| process.peer.pid == pid).count()
    }

    /// The registrations of a process that a session wants and does not have.
    pub(crate) fn wanting(&self, link: LinkId, session: u64) -> Vec<(u32, EnableParams)> {
        let Some(process) = self.processes.get(&link) else { return Vec::new() };
        let wanted = |registration: &Registration| {
            let enable = self.enable_of(&registration.provider, session)?;
            let is_meant = process.is_in(&enable.scope) && !registration.sessions.contains(&session);
            is_meant.then(|| enable.params.clone())
        };
        process.registrations.iter().filter_map(|(number, it)| Some((*number, wanted(it)?))).collect()
    }

    /// Adds a registration.
    pub(crate) fn register(
        &mut self,
        link: LinkId,
        number: u32,
        provider: Guid,
        traits: &[u8],
    ) -> Result<(), Refusal> {
        let Some(process) = self.processes.get_mut(&link) else { return Ok(()) };
        if process.registrations.contains_key(&number) {
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, "this registration is there already"));
        }
        if process.registrations.len() >= MAX_REGISTRATIONS {
            let why = format!("a process has at most {MAX_REGISTRATIONS} registrations");
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why));
        }
        let mut name =
            Traits::parse(traits).map(|t| String::from_utf8_lossy(t.name).into_owned()).unwrap_or_default();
        if process.name_bytes + name.len() > MAX_NAME_BYTES {
            name = String::new();
        }
        process.name_bytes += name.len();
        process.registrations.insert(number, Registration { provider, sessions: BTreeSet::new(), name });
        self.registered.entry(provider).or_default().insert((link, number));
        Ok(())
    }

    /// Takes a registration out.
    pub(crate) fn unregister(&mut self, link: LinkId, number: u32) -> Option<Registration> {
        let process = self.processes.get_mut(&link)?;
        let registration = process.registrations.remove(&number)?;
        process.name_bytes = process.name_bytes.saturating_sub(registration.name.len());
        self.forget(registration.provider, link, number);
        Some(registration)
    }

    /// Takes a process out with all its registrations.
    pub(crate) fn remove(&mut self, link: LinkId) -> Option<Process> {
        let process = self.processes.remove(&link)?;
        for (number, registration) in &process.registrations {
            self.forget(registration.provider, link, *number);
        }
        Some(process)
    }

    fn forget(&mut self, provider: Guid, link: LinkId, number: u32) {
        if let Some(all) = self.registered.get_mut(&provider) {
            all.remove(&(link, number));
            if all.is_empty() {
                self.registered.remove(&provider);
            }
        }
    }

    /// One registration.
    pub(crate) fn registration(&mut self, link: LinkId, number: u32) -> Option<&mut Registration> {
        self.processes.get_mut(&link)?.registrations.get_mut(&number)
    }

    /// All registrations of a provider.
    pub(crate) fn registrations_of(&self, provider: &Guid) -> Vec<(LinkId, u32)> {
        self.registered.get(provider).map(|all| all.iter().copied().collect()).unwrap_or_default()
    }

    /// A session is not enabled for a registration after all, or for none of the process.
    pub(crate) fn take_back(&mut self, link: LinkId, number: Option<u32>, session: u64) {
        let Some(process) = self.processes.get_mut(&link) else { return };
        for (its, registration) in &mut process.registrations {
            if number.is_none_or(|number| number == *its) {
                registration.sessions.remove(&session);
            }
        }
    }

    /// The sessions that enable a provider.
    pub(crate) fn enables_of(&self, provider: &Guid) -> Vec<(u64, Enable)> {
        let enables = self.enables.get(provider).into_iter().flatten();
        enables.map(|(session, enable)| (*session, enable.clone())).collect()
    }

    /// What one session wants from a provider.
    pub(crate) fn enable_of(&self, provider: &Guid, session: u64) -> Option<&Enable> {
        self.enables.get(provider)?.get(&session)
    }

    /// Whether anybody has registered or enabled the provider.
    pub(crate) fn is_known(&self, provider: &Guid) -> bool {
        self.registered.contains_key(provider) || self.enables.contains_key(provider)
    }

    /// Sets what a session wants from a provider; replaces what it wanted before.
    pub(crate) fn enable(&mut self, provider: Guid, session: u64, enable: Enable) -> Result<(), Refusal> {
        let of_session = self.enables.values().filter(|sessions| sessions.contains_key(&session)).count();
        let sessions = self.enables.get(&provider);
        if !sessions.is_some_and(|sessions| sessions.contains_key(&session)) {
            let full = |why| Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why));
            if sessions.is_some_and(|sessions| sessions.len() >= MAX_SESSIONS_PER_PROVIDER) {
                return full("eight sessions enable this provider already");
            }
            if of_session >= MAX_ENABLES_PER_SESSION {
                return full("a session enables at most 4096 providers");
            }
        }
        self.enables.entry(provider).or_default().insert(session, enable);
        Ok(())
    }

    /// A session wants a provider no more.
    pub(crate) fn disable(&mut self, provider: &Guid, session: u64) {
        if let Some(sessions) = self.enables.get_mut(provider) {
            sessions.remove(&session);
            if sessions.is_empty() {
                self.enables.remove(provider);
            }
        }
    }

    /// A session wants nothing more of anybody; the processes that had a region for it.
    pub(crate) fn forget_session(&mut self, session: u64) -> Vec<LinkId> {
        self.enables.retain(|_, sessions| {
            sessions.remove(&session);
            !sessions.is_empty()
        });
        let mut links = Vec::new();
        for (link, process) in &mut self.processes {
            for registration in process.registrations.values_mut() {
                registration.sessions.remove(&session);
            }
            if process.regions.remove(&session).is_some() {
                links.push(*link);
            }
        }
        links
    }

    /// All providers that are registered or enabled, by GUID.
    pub(crate) fn providers(&self) -> Vec<ProviderEntry> {
        let guids: BTreeSet<&Guid> = self.registered.keys().chain(self.enables.keys()).collect();
        guids.into_iter().map(|provider| self.entry(provider)).collect()
    }

    fn entry(&self, provider: &Guid) -> ProviderEntry {
        let mut name = String::new();
        let mut pids = BTreeSet::new();
        for (link, number) in self.registered.get(provider).into_iter().flatten() {
            let Some(process) = self.processes.get(link) else { continue };
            pids.insert(process.peer.pid);
            if let Some(registration) = process.registrations.get(number).filter(|_| name.is_empty()) {
                name.clone_from(&registration.name);
            }
        }
        let enables = self.enables.get(provider).into_iter().flatten();
        let sessions =
            enables.map(|(id, e)| (*id, e.params.level, e.params.match_any, e.params.match_all)).collect();
        let pids = pids.into_iter().collect();
        let (groups, is_group, is_classic) = (Vec::new(), false, false);
        ProviderEntry { provider: *provider, name, pids, sessions, groups, is_group, is_classic }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Conditions;

    const PROVIDER: Guid = Guid::from_u128(7);

    fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.processes.insert(1, Process::new(Peer { pid: std::process::id(), uid: 0, gid: 0 }, 99));
        registry
    }

    fn plain() -> Enable {
        Enable { params: EnableParams::default(), scope: None }
    }

    #[test]
    fn a_process_has_1024_registrations_and_gets_room_back() {
        let mut registry = registry();
        for number in 0..1024 {
            registry.register(1, number, PROVIDER, &[]).unwrap();
        }
        assert_eq!(registry.register(1, 1024, PROVIDER, &[]).unwrap_err().status.0, 1450);
        assert_eq!(registry.register(1, 5, PROVIDER, &[]).unwrap_err().status.0, 87, "a number twice");
        assert!(registry.unregister(1, 5).is_some());
        assert!(registry.unregister(1, 5).is_none());
        registry.register(1, 5, PROVIDER, &[]).unwrap();
        assert_eq!(registry.registrations_of(&PROVIDER).len(), 1024);
        assert_eq!(registry.remove(1).unwrap().registrations.len(), 1024);
        assert!(!registry.is_known(&PROVIDER));
    }

    #[test]
    fn names_of_one_process_take_bounded_room() {
        let mut registry = registry();
        let name = "n".repeat(20_000);
        let traits = traceweir_format::tracelogging::TraitsBuilder::new(&name).finish().unwrap().to_vec();
        registry.register(1, 0, PROVIDER, &traits).unwrap();
        registry.register(1, 1, Guid::from_u128(8), &traits).unwrap();
        let names: Vec<usize> = registry.providers().iter().map(|entry| entry.name.len()).collect();
        assert_eq!(names, [20_000, 0]);
        registry.unregister(1, 0).unwrap();
        registry.register(1, 2, PROVIDER, &traits).unwrap();
        assert_eq!(registry.providers().first().unwrap().name.len(), 20_000, "the room came back");
    }

    #[test]
    fn the_ninth_session_of_a_provider_is_refused_but_may_change() {
        let mut registry = registry();
        for session in 1..=8 {
            registry.enable(PROVIDER, session, plain()).unwrap();
        }
        assert_eq!(registry.enable(PROVIDER, 9, plain()).unwrap_err().status.0, 1450);
        registry.enable(PROVIDER, 8, plain()).unwrap();
        registry.disable(&PROVIDER, 3);
        registry.enable(PROVIDER, 9, plain()).unwrap();
        for session in 1..=9 {
            registry.forget_session(session);
        }
        assert!(!registry.is_known(&PROVIDER));
    }

    #[test]
    fn an_acknowledgement_covers_all_earlier_orders() {
        let mut process = Process::new(Peer { pid: 1, uid: 0, gid: 0 }, 0);
        process.awaited = BTreeMap::from([(1, 10), (3, 30), (7, 70)]);
        assert_eq!(process.acknowledged(0), []);
        assert_eq!(process.acknowledged(3), [10, 30]);
        assert_eq!(process.acknowledged(u32::MAX), [70]);
        process.last_order = u32::MAX;
        assert_eq!(process.next_order(), 1);
    }

    #[test]
    fn a_scope_holds_processes_not_ids() {
        let here = Process::new(Peer { pid: std::process::id(), uid: 0, gid: 0 }, 0);
        let gone = Process::new(Peer { pid: u32::MAX, uid: 0, gid: 0 }, 0);
        let scope = Some(Conditions::of(vec![ProcessKey::of(std::process::id()).unwrap()]));
        assert!(here.is_in(&scope) && !gone.is_in(&scope));
        assert!(here.is_in(&None) && gone.is_in(&None));
        assert!(!here.is_in(&Some(Conditions::of(vec![]))));
    }
}
