//! Who is there and what is enabled for whom.
//!
//! ```text
//!   processes      link ─▶ Process { registrations: number ─▶ Registration { provider, group, sessions that have it enabled }
//!                                    regions:       session ─▶ source
//!                                    awaited:       order ─▶ wait }
//!   registered     target ─▶ { (link, registration) }            the same registrations by GUID, members by the GUID of their group
//!   named          hash of a name ─▶ { (link, registration) }    those that have the name and another GUID than its hash
//!   enables        target ─▶ session ─▶ Enable                   also for GUIDs that nobody has registered yet
//!   disallowed     session ─▶ { provider }                       those that the session does not have enabled by their group
//!
//!   Target         Provider(GUID) │ Group(GUID)                  one GUID may name both
//! ```
//!
//! Invariants:
//!
//! 1. `registered` holds exactly the registrations of `processes`: each under its provider, and under its group if it has one.
//! 2. A registration's `sessions` holds a session only while [`Registry::wish`] says that the session wants it. A classic registration has one
//!    at most: the one that was enabled last.
//! 3. A session's enable of a provider by name (`registry/by_name.rs`) reaches a registration with that name and a GUID of its own only while
//!    the registration's `by_name` holds the session.
//! 4. `regions` of a process holds a session exactly while one of its registrations is enabled there (and a region could be made).
//!
//! What a session wants of a registration, put together from all its enables, is in `registry/wish.rs`. Data only: what is sent, attached
//! and waited for is the service's work.

mod by_name;
mod disallow;
mod process;
mod told;
mod wish;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use traceweir_format::Guid;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging::Traits;
use traceweir_transport::message::{EnableEntry, EnableParams, MAX_REGISTRATIONS, ProviderEntry};

use crate::access::Identity;
use crate::error::Refusal;
use crate::filter::{Conditions, Scope};
use crate::limits::MAX_REGISTRATIONS_OF_USER;
use crate::service::LinkId;
pub(crate) use by_name::NameMatch;
pub(crate) use process::Process;

/// Sessions that enable one provider directly, or one group.
const MAX_SESSIONS_PER_TARGET: usize = 8;
/// Providers that one session enables.
const MAX_ENABLES_PER_SESSION: usize = 4096;
/// Bytes of provider names kept for one process; a name past that is not kept.
const MAX_NAME_BYTES: usize = 32 * 1024;

/// One registration.
#[derive(Debug)]
pub(crate) struct Registration {
    /// Its GUID.
    pub(crate) provider: Guid,
    /// The group that its traits name.
    pub(crate) group: Option<Guid>,
    /// It takes orders from one session at a time, and of those the level and 32 flags only.
    pub(crate) classic: bool,
    /// Sessions for which it is enabled.
    pub(crate) sessions: BTreeSet<u64>,
    has_traits: bool,
    name: String,
    /// The hash of its name, where its GUID is another.
    name_hash: Option<Guid>,
    /// Sessions that enable it by its name and have the right to.
    by_name: BTreeSet<u64>,
}

impl Registration {
    /// What enables it.
    fn targets(&self) -> impl Iterator<Item = Target> + use<> {
        [Some(Target::Provider(self.provider)), self.group.map(Target::Group)].into_iter().flatten()
    }
}

/// What the GUID of an enable call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// The registrations of this GUID.
    Provider(Guid),
    /// The registrations whose traits name this group.
    Group(Guid),
}

impl Target {
    /// By the GUID and the property bits of a call.
    pub(crate) fn of_call(guid: Guid, property: u32) -> Self {
        Self::of(guid, property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0)
    }

    fn of(guid: Guid, is_group: bool) -> Self {
        if is_group { Self::Group(guid) } else { Self::Provider(guid) }
    }

    fn guid(self) -> Guid {
        match self {
            Self::Provider(guid) | Self::Group(guid) => guid,
        }
    }
}

/// What one session wants from one target.
#[derive(Clone, Debug)]
pub(crate) struct Enable {
    /// What.
    pub(crate) params: EnableParams,
    /// From whom.
    pub(crate) scope: Scope,
    /// What the provider was called by who asked; empty: nothing.
    name: String,
    /// The controller of an enable by name: its rights are checked for each GUID that is registered under the name.
    controller: Option<Identity>,
    /// Processes that it left out because they run in a container.
    left_out: u32,
    /// Later calls have higher numbers.
    since: u64,
}

impl Enable {
    /// As it is told, for a session.
    fn entry(&self, session: u64) -> EnableEntry {
        let EnableParams { level, match_any, match_all, property, ref filters, .. } = self.params;
        let of_processes = self.scope.iter().flat_map(Conditions::asked);
        let (filters, name) = (of_processes.chain(filters).cloned().collect(), self.name.clone());
        let (any, all, left_out) = (match_any, match_all, self.left_out);
        EnableEntry { session, level, any, all, property, filters, name, traced: 0, left_out }
    }
}

/// Who is there and what is enabled for whom.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Processes by connection.
    pub(crate) processes: BTreeMap<LinkId, Process>,
    registered: BTreeMap<Target, BTreeSet<(LinkId, u32)>>,
    named: BTreeMap<Guid, BTreeSet<(LinkId, u32)>>,
    enables: BTreeMap<Target, BTreeMap<u64, Enable>>,
    disallowed: BTreeMap<u64, BTreeSet<Guid>>,
    /// Registrations of each user that has some.
    of_users: BTreeMap<u32, usize>,
    calls: u64,
    /// `enables` has changed since [`Registry::take_changed`].
    is_changed: bool,
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

    /// Adds a registration.
    pub(crate) fn register(
        &mut self,
        link: LinkId,
        number: u32,
        provider: Guid,
        traits: &[u8],
        classic: bool,
    ) -> Result<(), Refusal> {
        let Some(process) = self.processes.get_mut(&link) else { return Ok(()) };
        if process.registrations.contains_key(&number) {
            return Err(invalid("this registration is there already"));
        }
        if process.registrations.len() >= MAX_REGISTRATIONS {
            let why = format!("a process has at most {MAX_REGISTRATIONS} registrations");
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why));
        }
        let of_user = self.of_users.entry(process.peer.uid).or_default();
        if *of_user >= MAX_REGISTRATIONS_OF_USER {
            let uid = process.peer.uid;
            let why = format!(
                "the processes of uid {uid} have {MAX_REGISTRATIONS_OF_USER} registrations, which is the limit for one user: \
                 end some of them"
            );
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why));
        }
        *of_user = of_user.saturating_add(1);
        let new = Registration {
            provider,
            group: None,
            classic,
            sessions: BTreeSet::new(),
            has_traits: false,
            name: String::new(),
            name_hash: None,
            by_name: BTreeSet::new(),
        };
        process.registrations.insert(number, new);
        self.registered.entry(Target::Provider(provider)).or_default().insert((link, number));
        if !traits.is_empty() && !classic {
            self.give_traits(link, number, traits);
        }
        Ok(())
    }

    /// Gives a registration the traits that it came without; whoever has some keeps them.
    pub(crate) fn set_traits(&mut self, link: LinkId, number: u32, traits: &[u8]) -> Result<(), Refusal> {
        Traits::parse_strict(traits).map_err(|e| invalid(&e.to_string()))?;
        match self.registration(link, number) {
            None => Err(invalid("this registration is not there")),
            Some(it) if it.classic => Err(invalid("a classic provider has no traits")),
            Some(it) if it.has_traits => Err(invalid("the traits of a registration are set once")),
            Some(_) => {
                self.give_traits(link, number, traits);
                Ok(())
            }
        }
    }

    /// Takes over what can be read of the traits: a name, a group.
    fn give_traits(&mut self, link: LinkId, number: u32, traits: &[u8]) {
        let Some(process) = self.processes.get_mut(&link) else { return };
        let Some(registration) = process.registrations.get_mut(&number) else { return };
        registration.has_traits = true;
        let Ok(traits) = Traits::parse(traits) else { return };
        let name = String::from_utf8_lossy(traits.name).into_owned();
        if process.name_bytes.saturating_add(name.len()) <= MAX_NAME_BYTES {
            process.name_bytes = process.name_bytes.saturating_add(name.len());
            registration.name_hash =
                by_name::hash_of_name(&name).filter(|hash| *hash != registration.provider);
            registration.name = name;
        }
        if let Some(hash) = registration.name_hash {
            self.named.entry(hash).or_default().insert((link, number));
        }
        registration.group = traits.group();
        if let Some(group) = registration.group {
            self.registered.entry(Target::Group(group)).or_default().insert((link, number));
        }
    }

    /// Takes a registration out.
    pub(crate) fn unregister(&mut self, link: LinkId, number: u32) -> Option<Registration> {
        let process = self.processes.get_mut(&link)?;
        let registration = process.registrations.remove(&number)?;
        process.name_bytes = process.name_bytes.saturating_sub(registration.name.len());
        let uid = process.peer.uid;
        self.forget(&registration, link, number);
        self.give_back(uid, 1);
        Some(registration)
    }

    /// Takes a process out with all its registrations.
    pub(crate) fn remove(&mut self, link: LinkId) -> Option<Process> {
        let process = self.processes.remove(&link)?;
        for (number, registration) in &process.registrations {
            self.forget(registration, link, *number);
        }
        self.give_back(process.peer.uid, process.registrations.len());
        Some(process)
    }

    /// A user has so many registrations less.
    fn give_back(&mut self, uid: u32, count: usize) {
        if let Some(of_user) = self.of_users.get_mut(&uid) {
            *of_user = of_user.saturating_sub(count);
            if *of_user == 0 {
                self.of_users.remove(&uid);
            }
        }
    }

    fn forget(&mut self, registration: &Registration, link: LinkId, number: u32) {
        for target in registration.targets() {
            remove_from(&mut self.registered, &target, (link, number));
        }
        if let Some(hash) = &registration.name_hash {
            remove_from(&mut self.named, hash, (link, number));
        }
    }

    /// One registration.
    pub(crate) fn registration(&mut self, link: LinkId, number: u32) -> Option<&mut Registration> {
        self.processes.get_mut(&link)?.registrations.get_mut(&number)
    }

    /// All registrations of a provider, or members of a group.
    pub(crate) fn registrations_of(&self, target: Target) -> Vec<(LinkId, u32)> {
        self.registered.get(&target).map(|all| all.iter().copied().collect()).unwrap_or_default()
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

    /// Whether anybody has registered or enabled the provider, or joined or enabled the group.
    pub(crate) fn is_known(&self, target: Target) -> bool {
        self.registered.contains_key(&target) || self.enables.contains_key(&target)
    }

    /// Sets what a session wants from a target; replaces what it wanted before. A name that was given once stays while none is given.
    pub(crate) fn enable(
        &mut self,
        target: Target,
        session: u64,
        params: EnableParams,
        scope: Scope,
        name: &str,
    ) -> Result<(), Refusal> {
        let of_session = self.enables.values().filter(|sessions| sessions.contains_key(&session)).count();
        let sessions = self.enables.get(&target);
        if !sessions.is_some_and(|sessions| sessions.contains_key(&session)) {
            let full = |why| Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why));
            if sessions.is_some_and(|sessions| sessions.len() >= MAX_SESSIONS_PER_TARGET) {
                return full(match target {
                    Target::Provider(_) => "eight sessions enable this provider already",
                    Target::Group(_) => "eight sessions enable this group already",
                });
            }
            if of_session >= MAX_ENABLES_PER_SESSION {
                return full("a session enables at most 4096 providers");
            }
        }
        self.calls = self.calls.wrapping_add(1);
        let sessions = self.enables.entry(target).or_default();
        let before = sessions.remove(&session).map(|it| it.name).filter(|_| name.is_empty());
        let name = before.unwrap_or_else(|| name.to_owned());
        sessions.insert(
            session,
            Enable { params, scope, name, controller: None, left_out: 0, since: self.calls },
        );
        for process in self.processes.values_mut() {
            process.left_out_of.remove(&(target, session));
        }
        self.is_changed = true;
        Ok(())
    }

    /// Whether what is enabled has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// All that is enabled for every process, the latest call last: GUID, name if there is one, session, and what the session wants. The property
    /// says which are groups. What only the daemon can decide is left out: enables for some processes, and groups of which members are disallowed.
    /// A name stands there only if `may_name` says so of its controller: the daemon checks the rights of others for each GUID that has the name.
    pub(crate) fn enabled(
        &self,
        may_name: impl Fn(&Identity) -> bool,
    ) -> Vec<(Guid, String, u64, EnableParams)> {
        let all = self.enables.iter().flat_map(|(target, sessions)| {
            sessions.iter().map(move |(session, enable)| (*target, *session, enable))
        });
        let is_for_all = |(target, session, enable): &(Target, u64, &Enable)| {
            let is_group = matches!(target, Target::Group(_));
            enable.scope.is_none() && !(is_group && self.disallowed.contains_key(session))
        };
        let mut all: Vec<(Target, u64, &Enable)> = all.filter(is_for_all).collect();
        all.sort_by_key(|(_, _, enable)| enable.since);
        let with_group = |target: Target, enable: &Enable| {
            let group =
                if matches!(target, Target::Group(_)) { EVENT_ENABLE_PROPERTY_PROVIDER_GROUP } else { 0 };
            EnableParams {
                property: enable.params.property | group,
                source: Guid::NULL,
                ..enable.params.clone()
            }
        };
        all.into_iter()
            .map(|(target, session, enable)| {
                let is_named = enable.controller.as_ref().is_some_and(&may_name);
                let name = if is_named { enable.name.clone() } else { String::new() };
                (target.guid(), name, session, with_group(target, enable))
            })
            .collect()
    }

    /// A session wants a target no more; whether it did.
    pub(crate) fn disable(&mut self, target: Target, session: u64) -> bool {
        let Some(sessions) = self.enables.get_mut(&target) else { return false };
        let did = sessions.remove(&session).is_some();
        self.is_changed |= did;
        if sessions.is_empty() {
            self.enables.remove(&target);
        }
        self.forget_matches(target, session);
        did
    }

    /// A session wants nothing more of anybody; the processes that had a region for it.
    pub(crate) fn forget_session(&mut self, session: u64) -> Vec<LinkId> {
        self.enables.retain(|_, sessions| {
            self.is_changed |= sessions.remove(&session).is_some();
            !sessions.is_empty()
        });
        self.disallowed.remove(&session);
        for process in self.processes.values_mut() {
            process.left_out_of.retain(|(_, its)| *its != session);
        }
        let mut links = Vec::new();
        for (link, process) in &mut self.processes {
            for registration in process.registrations.values_mut() {
                registration.sessions.remove(&session);
                registration.by_name.remove(&session);
            }
            if process.regions.remove(&session).is_some() {
                links.push(*link);
            }
        }
        links
    }

    /// All providers and groups that are registered or enabled, and these others, behind this one; each is put together when it is asked for.
    pub(crate) fn providers<'a>(
        &'a self,
        after: Option<(Guid, bool)>,
        others: &'a BTreeSet<Target>,
    ) -> impl Iterator<Item = ProviderEntry> + use<'a> {
        let after = after.map(|(guid, is_group)| Target::of(guid, is_group));
        let mut next = (after.map_or(Unbounded, Excluded), Unbounded);
        std::iter::from_fn(move || {
            let registered = self.registered.range(next).next().map(|(target, _)| *target);
            let enabled = self.enables.range(next).next().map(|(target, _)| *target);
            let other = others.range(next).next().copied();
            let target = [registered, enabled, other].into_iter().flatten().min()?;
            next.0 = Excluded(target);
            Some(self.entry(target))
        })
    }

    fn entry(&self, target: Target) -> ProviderEntry {
        let is_group = matches!(target, Target::Group(_));
        let mut entry = ProviderEntry { provider: target.guid(), is_group, ..ProviderEntry::default() };
        let (mut pids, mut contained, mut groups) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (link, number) in self.registered.get(&target).into_iter().flatten() {
            let Some(process) = self.processes.get(link) else { continue };
            pids.insert(process.peer.pid);
            if process.is_contained() {
                contained.insert(process.peer.pid);
            }
            let Some(registration) = process.registrations.get(number).filter(|_| !is_group) else {
                continue;
            };
            groups.extend(registration.group);
            entry.is_classic |= registration.classic;
            if entry.name.is_empty() {
                entry.name.clone_from(&registration.name);
            }
        }
        let mut enables = self.enables_by_name(target);
        enables.extend(self.enables.get(&target).into_iter().flatten().map(|(id, enable)| (*id, enable)));
        entry.sessions = enables.into_iter().map(|(id, enable)| enable.entry(id)).collect();
        for enable in &mut entry.sessions {
            enable.traced = self.processes_of(target, |it| it.sessions.contains(&enable.session));
        }
        entry.pids = pids.into_iter().collect();
        entry.contained = contained.into_iter().collect();
        entry.groups = groups.into_iter().collect();
        entry
    }
}

impl Registry {
    /// Processes with a registration of a target that passes a test.
    fn processes_of(&self, target: Target, test: impl Fn(&Registration) -> bool) -> u32 {
        let passing = self.registered.get(&target).into_iter().flatten().filter_map(|(link, number)| {
            let process = self.processes.get(link)?;
            test(process.registrations.get(number)?).then_some(process.peer.pid)
        });
        u32::try_from(passing.collect::<BTreeSet<u32>>().len()).unwrap_or(u32::MAX)
    }
}

fn remove_from<K: Ord>(
    index: &mut BTreeMap<K, BTreeSet<(LinkId, u32)>>,
    key: &K,
    registration: (LinkId, u32),
) {
    if let Some(all) = index.get_mut(key) {
        all.remove(&registration);
        if all.is_empty() {
            index.remove(key);
        }
    }
}

fn invalid(why: &str) -> Refusal {
    Refusal::new(Status::ERROR_INVALID_PARAMETER, why)
}

#[cfg(test)]
mod tests;
