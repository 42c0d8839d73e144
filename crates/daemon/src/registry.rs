//! Connected processes, their registrations, and what each session has enabled.
//!
//! ```text
//!   processes     link ─▶ ProviderProcess
//!                         registrations   number ─▶ ProviderRegistration
//!                         regions         session ─▶ region
//!                         awaited         order ─▶ wait
//!   registered    target ─▶ { (link, number) }   all registrations by GUID; group members also by
//!                                                the GUID of their group
//!   by_name_hash  hash ─▶ { (link, number) }     registrations whose name has a hash other than
//!                                                their GUID
//!   patterns      hash ─▶ pattern                names of enables that match several names
//!   enables       target ─▶ session ─▶ enable    also for GUIDs that no process has registered
//!   disallowed    session ─▶ { provider }        providers that group enables leave out
//!
//!   target        Provider(GUID) │ Group(GUID)   one GUID may name both
//! ```
//!
//! Invariants:
//!
//! 1. `registered` holds exactly the registrations of `processes`: each under its provider, and
//!    under its group if it has one.
//! 2. A registration's `sessions` holds a session only while [`Registry::combined_params`] returns
//!    parameters for that session. A classic registration has at most one session: the one that
//!    enabled it last.
//! 3. A session's enable of a provider by name (`registry/by_name.rs`) reaches a registration with
//!    that name and another GUID, or whose name the pattern matches, only while the registration's
//!    `by_name` holds the target of the enable and the session.
//! 4. `regions` of a process holds a session exactly while one of its registrations is enabled
//!    there (and a region could be created).
//!
//! `registry/combine.rs` combines all enables of a session into the parameters for one
//! registration. This module holds data only: sending, attaching and waiting are the service's
//! work.

mod by_name;
mod combine;
mod disallow;
mod listing;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use traceweir_format::Guid;
use traceweir_format::kernel::providers::kernel_provider_name;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging::Traits;
use traceweir_transport::message::{EnableEntry, EnableParams, MAX_REGISTRATIONS, ProviderEntry};

use crate::access::UserIdentity;
use crate::error::Refusal;
use crate::filter::{Conditions, ProcessScope};
use crate::ids::LinkId;
use crate::limits::MAX_REGISTRATIONS_OF_USER;
pub(crate) use by_name::NameMatch;
pub(crate) use process::ProviderProcess;

/// Maximum number of sessions that enable one provider directly, or one group.
const MAX_SESSIONS_PER_TARGET: usize = 8;
/// Maximum number of providers and groups that one session enables.
const MAX_ENABLES_PER_SESSION: usize = 4096;
/// Maximum number of name patterns that one session enables; each is compared with every new name.
const MAX_PATTERNS_PER_SESSION: usize = 64;
/// Maximum total length of the provider names kept for one process; further names are not kept.
const MAX_NAME_BYTES: usize = 32 * 1024;

#[derive(Debug)]
pub(crate) struct ProviderRegistration {
    pub(crate) provider: Guid,
    /// The group named by the provider's traits.
    pub(crate) group: Option<Guid>,
    /// A classic registration follows one session at a time, and gets only a level and 32 flags.
    pub(crate) is_classic: bool,
    /// Sessions for which the registration is enabled.
    pub(crate) sessions: BTreeSet<u64>,
    has_traits: bool,
    name: String,
    /// The hash of the provider's name, if it differs from the GUID.
    name_hash: Option<Guid>,
    /// Enables by name that match the registration and whose controllers have the right to enable
    /// its GUID: the hash of the name or pattern, and the session.
    by_name: BTreeSet<(Guid, u64)>,
}

impl ProviderRegistration {
    /// Returns the targets under which `Registry::registered` lists this registration. An enable by
    /// name has another target.
    fn targets(&self) -> impl Iterator<Item = EnableTarget> + use<> {
        [Some(EnableTarget::Provider(self.provider)), self.group.map(EnableTarget::Group)]
            .into_iter()
            .flatten()
    }
}

/// The provider or group that the GUID of an enable call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EnableTarget {
    Provider(Guid),
    /// All registrations whose traits name this group.
    Group(Guid),
}

impl EnableTarget {
    /// Returns the target for the GUID and the property bits of an enable call.
    pub(crate) fn from_call(guid: Guid, property: u32) -> Self {
        Self::new(guid, property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0)
    }

    fn new(guid: Guid, is_group: bool) -> Self {
        if is_group { Self::Group(guid) } else { Self::Provider(guid) }
    }

    fn guid(self) -> Guid {
        match self {
            Self::Provider(guid) | Self::Group(guid) => guid,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TargetEnable {
    pub(crate) params: EnableParams,
    /// The processes that the enable applies to.
    pub(crate) scope: ProcessScope,
    /// The provider name given in this call or, if it gave none, in an earlier one; else empty.
    name: String,
    /// The controller of an enable by name; its rights are checked for each GUID registered under
    /// the name.
    controller: Option<UserIdentity>,
    /// Number of processes left out because they run in a container.
    left_out: u32,
    /// Sequence number of the call; later calls have higher numbers.
    call_number: u64,
}

impl TargetEnable {
    /// Returns this enable as an entry of a provider listing; the caller fills in `traced`.
    fn to_entry(&self, session: u64) -> EnableEntry {
        let EnableParams { level, match_any, match_all, property, ref filters, .. } = self.params;
        let process_filters = self.scope.iter().flat_map(Conditions::filters);
        let (filters, name) = (process_filters.chain(filters).cloned().collect(), self.name.clone());
        let (any, all, left_out) = (match_any, match_all, self.left_out);
        EnableEntry { session, level, any, all, property, filters, name, traced: 0, left_out }
    }
}

/// An enable that processes may apply as an early enable, before the daemon answers them.
#[derive(Debug)]
pub(crate) struct PublishedEnable {
    pub(crate) target: Guid,
    /// The provider name; empty if the daemon must check rights for each GUID of the name.
    pub(crate) name: String,
    pub(crate) session: u64,
    pub(crate) params: EnableParams,
}

/// Connected processes, their registrations, and what each session has enabled.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) processes: BTreeMap<LinkId, ProviderProcess>,
    registered: BTreeMap<EnableTarget, BTreeSet<(LinkId, u32)>>,
    by_name_hash: BTreeMap<Guid, BTreeSet<(LinkId, u32)>>,
    /// Enabled patterns of names, by the hash of the pattern. Entries of patterns that are no
    /// longer enabled are removed.
    patterns: BTreeMap<Guid, String>,
    enables: BTreeMap<EnableTarget, BTreeMap<u64, TargetEnable>>,
    disallowed: BTreeMap<u64, BTreeSet<Guid>>,
    /// Number of registrations per user; users without registrations have no entry.
    user_counts: BTreeMap<u32, usize>,
    last_call_number: u64,
    /// Whether `enables` has changed since the last [`Registry::take_changed`].
    is_changed: bool,
}

impl Registry {
    /// Returns whether this copy of the provider library already has a connection.
    pub(crate) fn has_process(&self, pid: u32, instance: u64) -> bool {
        self.processes.values().any(|process| process.peer.pid == pid && process.instance == instance)
    }

    /// Returns the number of connections of one process.
    pub(crate) fn connection_count(&self, pid: u32) -> usize {
        self.processes.values().filter(|process| process.peer.pid == pid).count()
    }

    /// Adds a registration. Does nothing for an unknown connection.
    pub(crate) fn register(
        &mut self,
        link: LinkId,
        number: u32,
        provider: Guid,
        traits: &[u8],
        is_classic: bool,
    ) -> Result<(), Refusal> {
        let Some(process) = self.processes.get_mut(&link) else { return Ok(()) };
        if process.registrations.contains_key(&number) {
            return Err(invalid_parameter("this registration number is already in use"));
        }
        if process.registrations.len() >= MAX_REGISTRATIONS {
            let reason = format!("a process has at most {MAX_REGISTRATIONS} registrations");
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        let user_count = self.user_counts.entry(process.peer.uid).or_default();
        if *user_count >= MAX_REGISTRATIONS_OF_USER {
            let uid = process.peer.uid;
            let reason = format!(
                "the processes of uid {uid} have {MAX_REGISTRATIONS_OF_USER} registrations, the limit for one user: \
                 end some of them"
            );
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        *user_count = user_count.saturating_add(1);
        let registration = ProviderRegistration {
            provider,
            group: None,
            is_classic,
            sessions: BTreeSet::new(),
            has_traits: false,
            name: String::new(),
            name_hash: None,
            by_name: BTreeSet::new(),
        };
        process.registrations.insert(number, registration);
        self.registered.entry(EnableTarget::Provider(provider)).or_default().insert((link, number));
        if !traits.is_empty() && !is_classic {
            self.apply_traits(link, number, traits);
        }
        Ok(())
    }

    /// Sets the traits of a registration that has none yet.
    pub(crate) fn set_traits(&mut self, link: LinkId, number: u32, traits: &[u8]) -> Result<(), Refusal> {
        Traits::parse_strict(traits).map_err(|e| invalid_parameter(&e.to_string()))?;
        match self.registration_mut(link, number) {
            None => Err(invalid_parameter("no such registration")),
            Some(registration) if registration.is_classic => {
                Err(invalid_parameter("a classic provider has no traits"))
            }
            Some(registration) if registration.has_traits => {
                Err(invalid_parameter("the traits of a registration are set once"))
            }
            Some(_) => {
                self.apply_traits(link, number, traits);
                Ok(())
            }
        }
    }

    /// Copies the name and the group from the traits, as far as they can be parsed.
    fn apply_traits(&mut self, link: LinkId, number: u32, traits: &[u8]) {
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
            self.by_name_hash.entry(hash).or_default().insert((link, number));
        }
        registration.group = traits.group();
        if let Some(group) = registration.group {
            self.registered.entry(EnableTarget::Group(group)).or_default().insert((link, number));
        }
    }

    pub(crate) fn unregister(&mut self, link: LinkId, number: u32) -> Option<ProviderRegistration> {
        let process = self.processes.get_mut(&link)?;
        let registration = process.registrations.remove(&number)?;
        process.name_bytes = process.name_bytes.saturating_sub(registration.name.len());
        let uid = process.peer.uid;
        self.remove_from_indexes(&registration, link, number);
        self.release_registrations(uid, 1);
        Some(registration)
    }

    pub(crate) fn remove_process(&mut self, link: LinkId) -> Option<ProviderProcess> {
        let process = self.processes.remove(&link)?;
        for (number, registration) in &process.registrations {
            self.remove_from_indexes(registration, link, *number);
        }
        self.release_registrations(process.peer.uid, process.registrations.len());
        Some(process)
    }

    /// Subtracts `count` from the registrations counted for a user.
    fn release_registrations(&mut self, uid: u32, count: usize) {
        if let Some(user_count) = self.user_counts.get_mut(&uid) {
            *user_count = user_count.saturating_sub(count);
            if *user_count == 0 {
                self.user_counts.remove(&uid);
            }
        }
    }

    fn remove_from_indexes(&mut self, registration: &ProviderRegistration, link: LinkId, number: u32) {
        for target in registration.targets() {
            remove_from_index(&mut self.registered, &target, (link, number));
        }
        if let Some(hash) = &registration.name_hash {
            remove_from_index(&mut self.by_name_hash, hash, (link, number));
        }
    }

    pub(crate) fn registration_mut(
        &mut self,
        link: LinkId,
        number: u32,
    ) -> Option<&mut ProviderRegistration> {
        self.processes.get_mut(&link)?.registrations.get_mut(&number)
    }

    /// Returns all registrations of a provider, or all members of a group.
    pub(crate) fn registrations_of_target(&self, target: EnableTarget) -> Vec<(LinkId, u32)> {
        self.registered
            .get(&target)
            .map(|registrations| registrations.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Marks one registration of a process, or all of them, as not enabled for a session.
    pub(crate) fn clear_enabled(&mut self, link: LinkId, number: Option<u32>, session: u64) {
        let Some(process) = self.processes.get_mut(&link) else { return };
        for (registered, registration) in &mut process.registrations {
            if number.is_none_or(|number| number == *registered) {
                registration.sessions.remove(&session);
            }
        }
    }

    /// Returns whether a provider is registered or enabled, or a group has members or is enabled.
    pub(crate) fn is_known(&self, target: EnableTarget) -> bool {
        self.registered.contains_key(&target) || self.enables.contains_key(&target)
    }

    /// Stores a session's enable of a target, which replaces the previous one. If the new call
    /// gives no name, the previous name stays.
    pub(crate) fn enable(
        &mut self,
        target: EnableTarget,
        session: u64,
        params: EnableParams,
        scope: ProcessScope,
        name: &str,
    ) -> Result<(), Refusal> {
        let enable_count = self.enables.values().filter(|sessions| sessions.contains_key(&session)).count();
        let sessions = self.enables.get(&target);
        if !sessions.is_some_and(|sessions| sessions.contains_key(&session)) {
            let limit_refusal = |reason| Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
            if sessions.is_some_and(|sessions| sessions.len() >= MAX_SESSIONS_PER_TARGET) {
                return limit_refusal(match target {
                    EnableTarget::Provider(_) => "eight sessions enable this provider already",
                    EnableTarget::Group(_) => "eight sessions enable this group already",
                });
            }
            if enable_count >= MAX_ENABLES_PER_SESSION {
                return limit_refusal("a session enables at most 4096 providers and groups");
            }
            if by_name::is_pattern_of(target, name) && self.pattern_count(session) >= MAX_PATTERNS_PER_SESSION
            {
                return limit_refusal("a session enables at most 64 patterns of provider names");
            }
        }
        self.last_call_number = self.last_call_number.wrapping_add(1);
        let sessions = self.enables.entry(target).or_default();
        let previous_name = sessions.remove(&session).map(|enable| enable.name).filter(|_| name.is_empty());
        let name = previous_name.unwrap_or_else(|| name.to_owned());
        sessions.insert(
            session,
            TargetEnable {
                params,
                scope,
                name,
                controller: None,
                left_out: 0,
                call_number: self.last_call_number,
            },
        );
        // The new enable counts anew which processes it leaves out.
        for process in self.processes.values_mut() {
            process.left_out_of.remove(&(target, session));
        }
        self.is_changed = true;
        Ok(())
    }

    pub(crate) fn has_enables(&self, session: u64) -> bool {
        self.enables.values().any(|sessions| sessions.contains_key(&session))
    }

    /// Returns whether the enables have changed since the last call of this function.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Returns everything that is enabled for all processes, the latest call last.
    ///
    /// The property bits mark groups. The list leaves out what only the daemon can decide: enables
    /// for some processes only, and group enables of sessions with a disallow list. The name is
    /// filled in only if `may_name` accepts the controller; for other controllers the daemon checks
    /// the rights for each GUID registered under the name.
    pub(crate) fn published_enables(&self, may_name: impl Fn(&UserIdentity) -> bool) -> Vec<PublishedEnable> {
        let enables = self.enables.iter().flat_map(|(target, sessions)| {
            sessions.iter().map(move |(session, enable)| (*target, *session, enable))
        });
        let is_for_all = |(target, session, enable): &(EnableTarget, u64, &TargetEnable)| {
            let is_group = matches!(target, EnableTarget::Group(_));
            enable.scope.is_none() && !(is_group && self.disallowed.contains_key(session))
        };
        let mut enables: Vec<(EnableTarget, u64, &TargetEnable)> = enables.filter(is_for_all).collect();
        enables.sort_by_key(|(_, _, enable)| enable.call_number);
        let params_with_group = |target: EnableTarget, enable: &TargetEnable| {
            let group = if matches!(target, EnableTarget::Group(_)) {
                EVENT_ENABLE_PROPERTY_PROVIDER_GROUP
            } else {
                0
            };
            EnableParams {
                property: enable.params.property | group,
                source: Guid::NULL,
                ..enable.params.clone()
            }
        };
        enables
            .into_iter()
            .map(|(target, session, enable)| {
                let is_named = enable.controller.as_ref().is_some_and(&may_name);
                let name = if is_named { enable.name.clone() } else { String::new() };
                PublishedEnable {
                    target: target.guid(),
                    name,
                    session,
                    params: params_with_group(target, enable),
                }
            })
            .collect()
    }

    /// Removes a session's enable of a target; returns whether the enable existed.
    pub(crate) fn disable(&mut self, target: EnableTarget, session: u64) -> bool {
        let Some(sessions) = self.enables.get_mut(&target) else { return false };
        let was_enabled = sessions.remove(&session).is_some();
        self.is_changed |= was_enabled;
        if sessions.is_empty() {
            self.enables.remove(&target);
        }
        self.forget_matches(target, session);
        self.remove_unused_patterns();
        was_enabled
    }

    /// Removes all enables of a session; returns the processes that had a region for it.
    pub(crate) fn forget_session(&mut self, session: u64) -> Vec<LinkId> {
        self.enables.retain(|_, sessions| {
            self.is_changed |= sessions.remove(&session).is_some();
            !sessions.is_empty()
        });
        self.disallowed.remove(&session);
        self.remove_unused_patterns();
        for process in self.processes.values_mut() {
            process.left_out_of.retain(|(_, enabling)| *enabling != session);
        }
        let mut links = Vec::new();
        for (link, process) in &mut self.processes {
            for registration in process.registrations.values_mut() {
                registration.sessions.remove(&session);
                registration.by_name.retain(|(_, enabling)| *enabling != session);
            }
            if process.regions.remove(&session).is_some() {
                links.push(*link);
            }
        }
        links
    }

    /// Returns all providers and then all groups that are registered, enabled or in `others`,
    /// sorted by GUID and starting after `after`. Each entry is built when the iterator reaches it.
    pub(crate) fn providers<'a>(
        &'a self,
        after: Option<(Guid, bool)>,
        others: &'a BTreeSet<EnableTarget>,
    ) -> impl Iterator<Item = ProviderEntry> + use<'a> {
        let after = after.map(|(guid, is_group)| EnableTarget::new(guid, is_group));
        let mut next = (after.map_or(Unbounded, Excluded), Unbounded);
        std::iter::from_fn(move || {
            let registered = self.registered.range(next).next().map(|(target, _)| *target);
            let enabled = self.enables.range(next).next().map(|(target, _)| *target);
            let other = others.range(next).next().copied();
            let target = [registered, enabled, other].into_iter().flatten().min()?;
            next.0 = Excluded(target);
            Some(self.provider_entry(target))
        })
    }

    fn provider_entry(&self, target: EnableTarget) -> ProviderEntry {
        let is_group = matches!(target, EnableTarget::Group(_));
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
            entry.is_classic |= registration.is_classic;
            if entry.name.is_empty() {
                entry.name.clone_from(&registration.name);
            }
        }
        if let Some(name) =
            kernel_provider_name(&entry.provider).filter(|_| !is_group && entry.name.is_empty())
        {
            entry.name = name.to_owned();
        }
        // Of two enables of one session, the listing shows the direct one, not the one by name.
        let mut enables = self.enables_by_name(target);
        enables.extend(self.enables.get(&target).into_iter().flatten().map(|(id, enable)| (*id, enable)));
        entry.sessions = enables.into_iter().map(|(id, enable)| enable.to_entry(id)).collect();
        for enable in &mut entry.sessions {
            enable.traced =
                self.count_processes(target, |registration| registration.sessions.contains(&enable.session));
        }
        entry.pids = pids.into_iter().collect();
        entry.contained = contained.into_iter().collect();
        entry.groups = groups.into_iter().collect();
        entry
    }
}

impl Registry {
    /// Returns the number of processes with a registration of a target that passes the test.
    fn count_processes(&self, target: EnableTarget, test: impl Fn(&ProviderRegistration) -> bool) -> u32 {
        let passing = self.registered.get(&target).into_iter().flatten().filter_map(|(link, number)| {
            let process = self.processes.get(link)?;
            test(process.registrations.get(number)?).then_some(process.peer.pid)
        });
        u32::try_from(passing.collect::<BTreeSet<u32>>().len()).unwrap_or(u32::MAX)
    }
}

fn remove_from_index<K: Ord>(
    index: &mut BTreeMap<K, BTreeSet<(LinkId, u32)>>,
    key: &K,
    registration: (LinkId, u32),
) {
    if let Some(registrations) = index.get_mut(key) {
        registrations.remove(&registration);
        if registrations.is_empty() {
            index.remove(key);
        }
    }
}

fn invalid_parameter(reason: &str) -> Refusal {
    Refusal::new(Status::ERROR_INVALID_PARAMETER, reason)
}

#[cfg(test)]
mod tests;
