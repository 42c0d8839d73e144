//! Providers that a session enables by name, whatever GUID they are registered with.
//!
//! An enable by name uses the hash of the name as GUID. The daemon lists it under that GUID, and
//! under each GUID that it reaches.

use std::collections::BTreeSet;

use anstream::eprintln;
use traceweir::Guid;
use traceweir::session::{ProviderEnable, ProviderInfo};

use crate::grammar::EnableRequest;
use crate::text::plain;

/// Returns the GUIDs that enables of a registered provider may use: its own, and the hash of each
/// name that it is enabled by.
pub(super) fn enabled_as(provider: &ProviderInfo) -> BTreeSet<Guid> {
    let names = provider.sessions.iter().map(|enable| &enable.name).filter(|name| !name.is_empty());
    names.map(|name| Guid::from_provider_name(name)).chain([provider.guid]).collect()
}

/// Returns whether an enable of an unregistered provider reaches others by its name, and so is
/// listed with them.
pub(super) fn is_listed_with_others(
    provider: &ProviderInfo,
    enable: &ProviderEnable,
    all: &[ProviderInfo],
) -> bool {
    let is_by_name = provider.guid.is_hash_of(&enable.name);
    let is_reached = |other: &ProviderInfo| {
        !other.is_group
            && !other.pids.is_empty()
            && other.guid != provider.guid
            && provider.guid.is_hash_of(&other.name)
            && other.sessions.iter().any(|other_enable| other_enable.session == enable.session)
    };
    !provider.is_group && provider.pids.is_empty() && is_by_name && all.iter().any(is_reached)
}

/// Removes the hashes of names that no process has registered, if all their enables are listed with
/// other GUIDs.
pub(crate) fn list_once(all: Vec<ProviderInfo>) -> Vec<ProviderInfo> {
    let is_elsewhere = |provider: &ProviderInfo| {
        provider.private_sessions.is_empty()
            && !provider.sessions.is_empty()
            && provider.sessions.iter().all(|enable| is_listed_with_others(provider, enable, &all))
    };
    let is_kept: Vec<bool> = all.iter().map(|provider| !is_elsewhere(provider)).collect();
    all.into_iter().zip(is_kept).filter(|(_, is_kept)| *is_kept).map(|(provider, _)| provider).collect()
}

/// Prints a note if a name means several providers; returns whether it did.
pub(crate) fn note_same_names(all: &[ProviderInfo], wanted: &[EnableRequest]) -> bool {
    let by_name = wanted.iter().filter(|wanted| wanted.is_hashed());
    let notes: Vec<String> = by_name.filter_map(|wanted| same_names(all, wanted)).collect();
    for note in &notes {
        eprintln!("{note}");
    }
    !notes.is_empty()
}

fn same_names(all: &[ProviderInfo], wanted: &EnableRequest) -> Option<String> {
    let registered = all.iter().filter(|provider| !provider.is_group && !provider.pids.is_empty());
    let reached = registered.filter(|provider| enabled_as(provider).contains(&wanted.guid));
    let guids: Vec<String> = reached.map(|provider| format!("{{{}}}", provider.guid)).collect();
    let (last, others) = guids.split_last().filter(|(_, others)| !others.is_empty())?;
    let (name, count, both) =
        (plain(&wanted.name), guids.len(), if others.len() == 1 { "both" } else { "all" });
    Some(format!(
        "note: {count} providers are registered as {name}: {} and {last}; {both} are enabled. Use a GUID instead of the name \
         to enable one of them",
        others.join(", ")
    ))
}

/// Returns the GUID of a provider with this name that the caller may not enable.
pub(super) fn forbidden(all: &[ProviderInfo], wanted: &EnableRequest) -> Option<Guid> {
    let is_namesake = |provider: &&ProviderInfo| {
        !provider.is_group
            && !provider.pids.is_empty()
            && wanted.guid.is_hash_of(&provider.name)
            && !enabled_as(provider).contains(&wanted.guid)
    };
    all.iter().find(is_namesake).map(|provider| provider.guid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::parse_provider;
    use traceweir::SessionId;

    const NAME: &str = "Some.App";

    fn registered(guid: u128, name: &str, sessions: &[u64]) -> ProviderInfo {
        let mut provider = ProviderInfo::default();
        provider.guid = Guid::from_u128(guid);
        provider.name = name.to_owned();
        provider.pids = vec![1];
        provider.sessions = enables(sessions);
        provider
    }

    fn enables(sessions: &[u64]) -> Vec<ProviderEnable> {
        let enable = |session: &u64| {
            let mut enable = ProviderEnable::default();
            enable.session = SessionId::new(*session);
            enable.name = NAME.to_owned();
            enable
        };
        sessions.iter().map(enable).collect()
    }

    /// Returns the hash of the name, which no process has registered.
    fn ahead(sessions: &[u64]) -> ProviderInfo {
        let mut provider = ProviderInfo::default();
        provider.guid = Guid::from_provider_name(NAME);
        provider.sessions = enables(sessions);
        provider
    }

    #[test]
    fn hash_is_listed_while_an_enable_reaches_nothing_else() {
        let listed = |all: &[ProviderInfo]| list_once(all.to_vec()).len();
        assert_eq!(listed(&[ahead(&[5])]), 1, "enabled ahead");
        assert_eq!(listed(&[ahead(&[5]), registered(1, "SOME.APP", &[5])]), 1);
        assert_eq!(
            listed(&[ahead(&[5, 6]), registered(1, NAME, &[5])]),
            2,
            "session 6 is shown nowhere else"
        );
        assert_eq!(listed(&[ahead(&[5]), registered(1, "Some.Other", &[5])]), 2);
        let mut both = ahead(&[5]);
        both.pids = vec![2];
        assert_eq!(listed(&[both, registered(1, NAME, &[5])]), 2, "registered with both GUIDs");
    }

    #[test]
    fn a_name_with_two_guids_is_noted_with_both() {
        let wanted = parse_provider(NAME).unwrap();
        let (one, two) = (registered(1, NAME, &[5]), registered(2, NAME, &[5]));
        assert_eq!(same_names(&[ahead(&[5]), one.clone()], &wanted), None);
        let note = same_names(&[one.clone(), two], &wanted).unwrap();
        assert!(note.contains("2 providers") && note.contains("both"), "{note}");
        assert!(note.contains(&format!("{{{}}}", Guid::from_u128(1))), "{note}");
        assert_eq!(forbidden(&[one], &wanted), None);
        assert_eq!(forbidden(&[registered(3, NAME, &[])], &wanted), Some(Guid::from_u128(3)));
    }
}
