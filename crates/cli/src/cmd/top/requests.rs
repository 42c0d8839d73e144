//! The providers that the session enables, and how a change of level changes them.
//!
//! A session combines its enables: a provider writes the events of all enables that cover it. So
//! `*` with all levels would hide a lower level of one provider. A change of level replaces such an
//! enable with one for each registered provider that it covers.

use anyhow::{Result, bail};
use traceweir::session::ProviderInfo;
use traceweir_format::{Guid, name_pattern};

use super::state::LevelTarget;
use crate::grammar::{EnableRequest, parse_provider};

/// The most enables that replace one for several providers.
const MAX_REPLACED: usize = 200;

/// Requests that carry out a change of level.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LevelChange {
    pub(super) enable: Vec<EnableRequest>,
    pub(super) disable: Vec<EnableRequest>,
    /// All enables after the change.
    pub(super) requests: Vec<EnableRequest>,
}

/// Returns whether a request enables a provider.
fn covers(request: &EnableRequest, provider: Guid, name: &str) -> bool {
    let covers_name = || match request.is_pattern() {
        true => name_pattern::is_match(&request.name, name),
        false => request.is_hashed() && request.guid.is_hash_of(name),
    };
    request.guid == provider || covers_name()
}

/// Returns the level that a provider is enabled with, 0 for all; `None` if no request enables it.
pub(super) fn find_level(requests: &[EnableRequest], provider: Guid, name: Option<&str>) -> Option<u8> {
    let covering = requests.iter().filter(|request| covers(request, provider, name.unwrap_or_default()));
    // The level 0 is higher than all others.
    covering.map(|request| request.level).max_by_key(|level| level.wrapping_sub(1))
}

/// Adds a request, which replaces an earlier one for the same provider.
pub(super) fn add_request(requests: &mut Vec<EnableRequest>, request: EnableRequest) {
    requests.retain(|earlier| earlier.guid != request.guid);
    requests.push(request);
}

/// Returns the requests that give a provider another level and leave the others as they are.
pub(super) fn change_level(
    requests: &[EnableRequest],
    target: &LevelTarget,
    level: u8,
    registered: &[ProviderInfo],
) -> Result<LevelChange> {
    let target_name = target.name.as_deref().unwrap_or_default();
    let is_replaced = |request: &EnableRequest| {
        request.guid != target.provider && covers(request, target.provider, target_name)
    };
    let mut change = LevelChange::default();
    for request in requests {
        if !is_replaced(request) {
            change.requests.push(request.clone());
            continue;
        }
        change.disable.push(request.clone());
        let is_other = |provider: &&ProviderInfo| {
            let is_known = requests.iter().any(|known| known.guid == provider.guid);
            !provider.is_group
                && !provider.pids.is_empty()
                && provider.guid != target.provider
                && !is_known
                && covers(request, provider.guid, &provider.name)
        };
        let replacements = registered.iter().filter(is_other);
        change.enable.extend(replacements.map(|other| for_provider(request, other.guid, &other.name)));
    }
    if change.enable.len() > MAX_REPLACED {
        bail!("too many providers are registered to enable each of them on its own");
    }
    let covering = requests.iter().find(|request| covers(request, target.provider, target_name));
    let mut request = match covering {
        Some(covering) => for_provider(covering, target.provider, target_name),
        None => for_guid(target.provider)?,
    };
    request.level = level;
    change.enable.push(request);
    for request in &change.enable {
        add_request(&mut change.requests, request.clone());
    }
    Ok(change)
}

/// Returns a request with the parameters of another, for one provider.
fn for_provider(request: &EnableRequest, provider: Guid, name: &str) -> EnableRequest {
    let name = if name.is_empty() { format!("{{{provider}}}") } else { name.to_owned() };
    EnableRequest { name, guid: provider, ..request.clone() }
}

fn for_guid(provider: Guid) -> Result<EnableRequest> {
    parse_provider(&format!("{{{provider}}}")).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str, guid: Guid) -> ProviderInfo {
        let mut provider = ProviderInfo::default();
        provider.name = name.to_owned();
        provider.guid = guid;
        provider.pids = vec![1];
        provider
    }

    fn by_hash(name: &str) -> ProviderInfo {
        provider(name, Guid::from_provider_name(name))
    }

    fn requests(texts: &[&str]) -> Vec<EnableRequest> {
        texts.iter().map(|text| parse_provider(text).unwrap()).collect()
    }

    fn target(provider: &ProviderInfo) -> LevelTarget {
        LevelTarget { provider: provider.guid, name: Some(provider.name.as_str().into()) }
    }

    fn describe(requests: &[EnableRequest]) -> Vec<(String, u8)> {
        requests.iter().map(|request| (request.name.clone(), request.level)).collect()
    }

    #[test]
    fn level_of_one_provider_replaces_the_pattern_that_covers_it() {
        let (own_guid, shop, cafe) =
            (provider("A.Own", Guid::from_u128(5)), by_hash("A.Shop"), by_hash("A.Cafe"));
        let registered = [own_guid.clone(), shop.clone(), cafe, by_hash("B.Else")];
        let before = requests(&["A.*::4", "C.Late"]);
        let change = change_level(&before, &target(&shop), 2, &registered).unwrap();
        let expected = [("A.Own", 4), ("A.Cafe", 4), ("A.Shop", 2)];
        assert_eq!(describe(&change.enable), expected.map(|(name, level)| (name.to_owned(), level)));
        assert_eq!(describe(&change.disable), [("A.*".to_owned(), 4)]);
        assert_eq!(change.requests.len(), 4, "{:?}", change.requests);
        let level_of =
            |provider: &ProviderInfo| find_level(&change.requests, provider.guid, Some(&provider.name));
        assert_eq!(registered.each_ref().map(level_of), [Some(4), Some(2), Some(4), None]);
        // A further change concerns only the enable of this provider.
        let again = change_level(&change.requests, &target(&own_guid), 0, &registered).unwrap();
        assert_eq!((describe(&again.enable), again.disable.len()), (vec![("A.Own".to_owned(), 0)], 0));
        assert_eq!(again.requests.len(), 4);
    }

    #[test]
    fn name_that_reaches_another_guid_is_replaced_too() {
        let other_guid = provider("A.Shop", Guid::from_u128(7));
        let change = change_level(
            &requests(&["A.Shop:0x10"]),
            &target(&other_guid),
            3,
            std::slice::from_ref(&other_guid),
        )
        .unwrap();
        assert_eq!((change.disable.len(), change.enable.len()), (1, 1));
        let [request] = &change.requests[..] else { panic!("{:?}", change.requests) };
        assert_eq!((request.guid, request.level, request.keywords), (other_guid.guid, 3, 0x10));
    }

    #[test]
    fn provider_that_no_request_covers_is_enabled() {
        let nameless = LevelTarget { provider: Guid::from_u128(9), name: None };
        let change = change_level(&[], &nameless, 5, &[]).unwrap();
        assert_eq!((change.enable[0].guid, change.enable[0].level), (nameless.provider, 5));
        assert_eq!(find_level(&change.requests, nameless.provider, None), Some(5));
        assert_eq!(find_level(&[], nameless.provider, None), None);
    }

    #[test]
    fn all_levels_are_more_than_any_level() {
        let shop = by_hash("A.Shop");
        for (texts, level) in [(["*::3", "A.Shop"], 0), (["*::3", "A.Shop::5"], 5), (["*", "A.Shop::1"], 0)] {
            assert_eq!(find_level(&requests(&texts), shop.guid, Some(&shop.name)), Some(level), "{texts:?}");
        }
    }

    #[test]
    fn too_many_replacements_change_nothing() {
        let registered: Vec<ProviderInfo> = (0..300).map(|n| by_hash(&format!("A.{n}"))).collect();
        assert!(change_level(&requests(&["*"]), &target(&registered[0]), 2, &registered).is_err());
    }
}
