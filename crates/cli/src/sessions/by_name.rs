//! Providers that a session enables by name, whatever their GUIDs are.
//!
//! An enable by name uses the hash of the name as GUID. The daemon lists it under this hash, and
//! under the GUID of each provider that it reaches.

use std::collections::BTreeSet;

use anstream::eprintln;
use traceweir::Guid;
use traceweir::session::{ProviderEnable, ProviderInfo};
use traceweir_format::name_pattern;

use crate::grammar::EnableRequest;
use crate::text::escape;

/// Returns the GUIDs that enables of a registered provider may use: the GUID of the provider, and
/// the hash of each name that enables it.
pub(super) fn enable_guids(provider: &ProviderInfo) -> BTreeSet<Guid> {
    let names = provider.sessions.iter().map(|enable| &enable.name).filter(|name| !name.is_empty());
    names.map(|name| Guid::from_provider_name(name)).chain([provider.guid]).collect()
}

/// Returns whether an enable of an unregistered provider reaches other providers by name. Such an
/// enable is listed with these providers.
pub(super) fn is_listed_with_others(
    provider: &ProviderInfo,
    enable: &ProviderEnable,
    providers: &[ProviderInfo],
) -> bool {
    let is_by_name = provider.guid.is_hash_of(&enable.name);
    let is_reached = |other: &ProviderInfo| {
        !other.is_group
            && !other.pids.is_empty()
            && other.guid != provider.guid
            && other.sessions.iter().any(|other_enable| {
                let is_same = name_pattern::is_pattern(&enable.name)
                    && Guid::from_provider_name(&other_enable.name) == provider.guid;
                other_enable.session == enable.session && (provider.guid.is_hash_of(&other.name) || is_same)
            })
    };
    !provider.is_group && provider.pids.is_empty() && is_by_name && providers.iter().any(is_reached)
}

/// Removes providers that no process has registered and whose GUID is the hash of a name, if all
/// their enables are listed with other providers.
pub(crate) fn remove_duplicate_listings(providers: Vec<ProviderInfo>) -> Vec<ProviderInfo> {
    let is_duplicate = |provider: &ProviderInfo| {
        provider.private_sessions.is_empty()
            && !provider.sessions.is_empty()
            && provider.sessions.iter().all(|enable| is_listed_with_others(provider, enable, &providers))
    };
    let is_kept: Vec<bool> = providers.iter().map(|provider| !is_duplicate(provider)).collect();
    providers.into_iter().zip(is_kept).filter(|(_, is_kept)| *is_kept).map(|(provider, _)| provider).collect()
}

/// Prints a note if a name means several providers; returns whether a note was printed.
pub(crate) fn note_same_names(providers: &[ProviderInfo], requests: &[EnableRequest]) -> bool {
    let by_name = requests.iter().filter(|request| request.is_hashed() && !request.is_pattern());
    let notes: Vec<String> = by_name.filter_map(|request| same_name_note(providers, request)).collect();
    for note in &notes {
        eprintln!("{note}");
    }
    !notes.is_empty()
}

fn same_name_note(providers: &[ProviderInfo], request: &EnableRequest) -> Option<String> {
    let registered = providers.iter().filter(|provider| !provider.is_group && !provider.pids.is_empty());
    let reached = registered.filter(|provider| enable_guids(provider).contains(&request.guid));
    let guids: Vec<String> = reached.map(|provider| format!("{{{}}}", provider.guid)).collect();
    let (last, others) = guids.split_last().filter(|(_, others)| !others.is_empty())?;
    let (name, count) = (escape(&request.name), guids.len());
    let both_or_all = if others.len() == 1 { "both" } else { "all" };
    Some(format!(
        "note: {count} providers are registered as {name}: {} and {last}; {both_or_all} are enabled. Use a GUID instead of the name \
         to enable one of them",
        others.join(", ")
    ))
}

/// Returns the GUID of a registered provider with this name that an enable by name did not reach,
/// because the caller may not enable it.
pub(super) fn find_forbidden_guid(providers: &[ProviderInfo], request: &EnableRequest) -> Option<Guid> {
    let is_forbidden = |provider: &&ProviderInfo| {
        !provider.is_group
            && !provider.pids.is_empty()
            && request.guid.is_hash_of(&provider.name)
            && !enable_guids(provider).contains(&request.guid)
    };
    providers.iter().find(is_forbidden).map(|provider| provider.guid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::parse_provider;
    use traceweir::SessionId;

    const NAME: &str = "Some.App";

    fn registered_provider(guid: u128, name: &str, sessions: &[u64]) -> ProviderInfo {
        let mut provider = ProviderInfo::default();
        provider.guid = Guid::from_u128(guid);
        provider.name = name.to_owned();
        provider.pids = vec![1];
        provider.sessions = enables_by_name(sessions);
        provider
    }

    fn enables_by_name(sessions: &[u64]) -> Vec<ProviderEnable> {
        let enable = |session: &u64| {
            let mut enable = ProviderEnable::default();
            enable.session = SessionId::new(*session);
            enable.name = NAME.to_owned();
            enable
        };
        sessions.iter().map(enable).collect()
    }

    /// Returns an unregistered provider whose GUID is the hash of the name.
    fn unregistered_provider(sessions: &[u64]) -> ProviderInfo {
        let mut provider = ProviderInfo::default();
        provider.guid = Guid::from_provider_name(NAME);
        provider.sessions = enables_by_name(sessions);
        provider
    }

    #[test]
    fn name_hash_is_listed_unless_all_its_enables_reach_other_providers() {
        let count_listed = |providers: &[ProviderInfo]| remove_duplicate_listings(providers.to_vec()).len();
        assert_eq!(
            count_listed(&[unregistered_provider(&[5])]),
            1,
            "the hash of an unregistered name must be listed"
        );
        assert_eq!(count_listed(&[unregistered_provider(&[5]), registered_provider(1, "SOME.APP", &[5])]), 1);
        assert_eq!(
            count_listed(&[unregistered_provider(&[5, 6]), registered_provider(1, NAME, &[5])]),
            2,
            "the hash must be listed, because session 6 has no other entry"
        );
        assert_eq!(
            count_listed(&[unregistered_provider(&[5]), registered_provider(1, "Some.Other", &[5])]),
            2
        );
        let mut registered_hash = unregistered_provider(&[5]);
        registered_hash.pids = vec![2];
        assert_eq!(
            count_listed(&[registered_hash, registered_provider(1, NAME, &[5])]),
            2,
            "a registered hash must be listed"
        );
    }

    #[test]
    fn note_lists_both_guids_of_a_name() {
        let request = parse_provider(NAME).unwrap();
        let (one, two) = (registered_provider(1, NAME, &[5]), registered_provider(2, NAME, &[5]));
        assert_eq!(same_name_note(&[unregistered_provider(&[5]), one.clone()], &request), None);
        let note = same_name_note(&[one.clone(), two], &request).unwrap();
        assert!(note.contains("2 providers") && note.contains("both"), "{note}");
        assert!(note.contains(&format!("{{{}}}", Guid::from_u128(1))), "{note}");
        assert_eq!(find_forbidden_guid(&[one], &request), None);
        assert_eq!(
            find_forbidden_guid(&[registered_provider(3, NAME, &[])], &request),
            Some(Guid::from_u128(3))
        );
    }
}
