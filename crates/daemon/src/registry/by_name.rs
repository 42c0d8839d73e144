//! Enabling a provider by name, whichever GUID it has registered under that name.
//!
//! ```text
//!   EnableProvider { provider: hash of NAME, name: NAME }
//!      ├─▶ registrations of that GUID                      as for any GUID
//!      └─▶ registrations named NAME that have another GUID where the controller has the right
//!                                                          to enable that GUID
//! ```
//!
//! The controller's rights are checked for each matching registration: when the provider is
//! enabled, and later when a process registers the name (`Register`) or sets it (`SetTraits`).
//! Names are compared by their hash, which ignores case. Providers without traits have no name and
//! never match.
//!
//! A NAME with `*` is a pattern (`traceweir_format::name_pattern`). It reaches all registrations
//! whose name it matches, whatever their GUID is; `*` also reaches providers without a name. The
//! providers of the kernel are not matched.

use std::collections::BTreeMap;

use traceweir_format::kernel::providers::kernel_provider_name;
use traceweir_format::{Guid, name_pattern};

use super::{EnableTarget, ProviderRegistration, Registry, TargetEnable};
use crate::access::UserIdentity;
use crate::ids::LinkId;

/// A registration that an enable by name matches.
#[derive(Clone, Debug)]
pub(crate) struct NameMatch {
    /// The connection of its process.
    pub(crate) link: LinkId,
    pub(crate) number: u32,
    pub(crate) provider: Guid,
    /// The hash of the name or pattern that is enabled.
    pub(crate) hash: Guid,
    /// The session that enables its name.
    pub(crate) session: u64,
    /// The controller that enabled the name.
    pub(crate) controller: UserIdentity,
}

/// Returns the GUID that a provider of this name has by default; `None` for an empty name.
pub(super) fn hash_of_name(name: &str) -> Option<Guid> {
    (!name.is_empty()).then(|| Guid::from_provider_name(name))
}

/// Returns whether an enable of this target with this name enables a pattern.
pub(super) fn is_pattern_of(target: EnableTarget, name: &str) -> bool {
    matches!(target, EnableTarget::Provider(provider)
        if name_pattern::is_pattern(name) && provider.is_hash_of(name))
}

/// Returns whether a pattern matches a registration. The kernel alone writes the events of its
/// providers.
fn is_matched(registration: &ProviderRegistration, pattern: &str) -> bool {
    kernel_provider_name(&registration.provider).is_none()
        && name_pattern::is_match(pattern, &registration.name)
}

impl Registry {
    /// Stores the controller of an enable if it is an enable by name.
    pub(crate) fn set_controller(&mut self, target: EnableTarget, session: u64, controller: UserIdentity) {
        let Some(enable) = self.enables.get_mut(&target).and_then(|sessions| sessions.get_mut(&session))
        else {
            return;
        };
        if let EnableTarget::Provider(provider) = target
            && provider.is_hash_of(&enable.name)
        {
            enable.controller = Some(controller);
            if name_pattern::is_pattern(&enable.name) {
                self.patterns.insert(provider, enable.name.clone());
            }
        }
    }

    /// Returns the number of patterns that a session enables.
    pub(super) fn pattern_count(&self, session: u64) -> usize {
        let targets = self.patterns.keys().map(|hash| EnableTarget::Provider(*hash));
        let enables = targets.filter_map(|target| self.enables.get(&target));
        enables.filter(|sessions| sessions.contains_key(&session)).count()
    }

    pub(super) fn remove_unused_patterns(&mut self) {
        let enables = &self.enables;
        self.patterns.retain(|hash, _| enables.contains_key(&EnableTarget::Provider(*hash)));
    }

    /// Returns the registrations that an enable of a name or pattern can match, except those of the
    /// GUID that is the hash of the name.
    fn registrations_named(&self, hash: Guid) -> Vec<(LinkId, u32)> {
        let Some(pattern) = self.patterns.get(&hash) else {
            return self.by_name_hash.get(&hash).into_iter().flatten().copied().collect();
        };
        let processes = self.processes.iter();
        let matching = processes.flat_map(|(link, process)| {
            let registrations = process.registrations.iter();
            let matching = registrations.filter(|(_, registration)| is_matched(registration, pattern));
            matching.map(|(number, _)| (*link, *number))
        });
        matching.collect()
    }

    /// Returns the registrations that an enable matches by name.
    pub(crate) fn matches_of_enable(&self, target: EnableTarget, session: u64) -> Vec<NameMatch> {
        let EnableTarget::Provider(hash) = target else { return Vec::new() };
        let named = self.registrations_named(hash).into_iter();
        named
            .flat_map(|(link, number)| self.name_matches(link, number))
            .filter(|name_match| name_match.session == session && name_match.hash == hash)
            .collect()
    }

    /// Returns the enables that match a registration by name.
    pub(crate) fn matches_of_registration(&self, link: LinkId, number: u32) -> Vec<NameMatch> {
        self.name_matches(link, number).collect()
    }

    fn name_matches(&self, link: LinkId, number: u32) -> impl Iterator<Item = NameMatch> {
        let registration = self.processes.get(&link).and_then(|process| process.registrations.get(&number));
        registration.into_iter().flat_map(move |registration| {
            let matching = self.patterns.iter().filter(|(_, pattern)| is_matched(registration, pattern));
            let hashes = registration.name_hash.into_iter().chain(matching.map(|(hash, _)| *hash));
            hashes.flat_map(move |hash| {
                let enables = self.enables.get(&EnableTarget::Provider(hash)).into_iter().flatten();
                enables.filter_map(move |(session, enable)| {
                    let (provider, session) = (registration.provider, *session);
                    let controller = enable.controller.clone()?;
                    Some(NameMatch { link, number, provider, hash, session, controller })
                })
            })
        })
    }

    /// Returns the hash of a registration's name and its GUID, if they differ.
    pub(crate) fn name_hash_and_guid(&self, link: LinkId, number: u32) -> Option<(Guid, Guid)> {
        let registration = self.processes.get(&link)?.registrations.get(&number)?;
        Some((registration.name_hash?, registration.provider))
    }

    /// Returns the hashes of the names under which a process has registered a GUID, in the order of
    /// the registrations.
    pub(crate) fn name_hashes_of_guid(&self, link: LinkId, provider: Guid) -> impl Iterator<Item = Guid> {
        let numbers = self.registration_numbers(link, provider);
        numbers.filter_map(move |number| self.name_hash_and_guid(link, number)).map(|(hash, _)| hash)
    }

    /// Returns the GUIDs that a process has registered under the name with this hash, except the
    /// hash itself.
    pub(crate) fn guids_with_name(&self, link: LinkId, hash: Guid) -> impl Iterator<Item = Guid> {
        let named = self.by_name_hash.get(&hash).into_iter();
        let numbers = named.flat_map(move |registrations| registrations.range((link, 0)..=(link, u32::MAX)));
        numbers
            .filter_map(|(link, number)| self.name_hash_and_guid(*link, *number))
            .map(|(_, provider)| provider)
    }

    pub(crate) fn registration_numbers(&self, link: LinkId, provider: Guid) -> impl Iterator<Item = u32> {
        let registered = self.registered.get(&EnableTarget::Provider(provider)).into_iter();
        let numbers =
            registered.flat_map(move |registrations| registrations.range((link, 0)..=(link, u32::MAX)));
        numbers.map(|(_, number)| *number)
    }

    /// Returns the connections whose processes have registered a name under a GUID other than its
    /// hash, each with that GUID.
    pub(crate) fn registrations_with_name(&self, hash: Guid) -> Vec<(LinkId, Guid)> {
        let named = self.by_name_hash.get(&hash).into_iter().flatten();
        named.filter_map(|(link, number)| Some((*link, self.name_hash_and_guid(*link, *number)?.1))).collect()
    }

    /// Sets whether an enable by name reaches a registration that it matches; returns whether it
    /// did before.
    pub(crate) fn set_reached(&mut self, name_match: &NameMatch, is_reached: bool) -> bool {
        let NameMatch { link, number, hash, session, .. } = *name_match;
        let Some(registration) = self.registration_mut(link, number) else { return false };
        let enable = (hash, session);
        if is_reached { !registration.by_name.insert(enable) } else { registration.by_name.remove(&enable) }
    }

    /// Removes the matches of a session that no longer enables this name.
    pub(super) fn forget_matches(&mut self, target: EnableTarget, session: u64) {
        let EnableTarget::Provider(hash) = target else { return };
        for (link, number) in self.registrations_named(hash) {
            if let Some(registration) = self.registration_mut(link, number) {
                registration.by_name.remove(&(hash, session));
            }
        }
    }

    /// Returns the registrations that a session reaches by enabling a target: those of the GUID or
    /// group, and those matched by name.
    pub(crate) fn registrations_reached(&self, target: EnableTarget, session: u64) -> Vec<(LinkId, u32)> {
        let mut reached = self.registrations_of_target(target);
        if let EnableTarget::Provider(hash) = target {
            let named = self.registrations_named(hash).into_iter();
            reached.extend(named.filter(|(link, number)| {
                let registration =
                    self.processes.get(link).and_then(|process| process.registrations.get(number));
                registration.is_some_and(|registration| registration.by_name.contains(&(hash, session)))
            }));
            reached.sort_unstable();
            reached.dedup();
        }
        reached
    }

    /// Returns the enables by name that reach registrations of this GUID, by session.
    pub(super) fn enables_by_name(&self, target: EnableTarget) -> BTreeMap<u64, &TargetEnable> {
        let EnableTarget::Provider(_) = target else { return BTreeMap::new() };
        let mut reaching = BTreeMap::new();
        for (link, number) in self.registered.get(&target).into_iter().flatten() {
            let registration = self.processes.get(link).and_then(|process| process.registrations.get(number));
            let by_name = registration.into_iter().flat_map(|registration| &registration.by_name);
            let enables = by_name.filter_map(|(hash, session)| {
                let enables = self.enables.get(&EnableTarget::Provider(*hash))?;
                Some((*session, enables.get(session)?))
            });
            reaching.extend(enables);
        }
        reaching
    }
}
