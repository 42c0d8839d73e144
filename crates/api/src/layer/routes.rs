//! The provider and keyword of a target's events.
//!
//! ```text
//!   target of an event ──▶ written at all (`only_targets`)?
//!     ├──▶ provider: of the closest target that has one, or by the rule, or the layer's own
//!     └──▶ keyword:  of the closest target that has one, or the default
//! ```
//!
//! A named target includes its modules: `app` is the closest target of `app::net`, unless `app::net`
//! was named itself. `app` does not match `application`.

use std::sync::Arc;

use tracing_core::Level;

use super::naming::NamedProviders;
use crate::Provider;

/// Levels of `tracing` from the least to the most verbose, with their ETW levels.
pub(super) const LEVELS: [(Level, u8); 5] =
    [(Level::ERROR, 2), (Level::WARN, 3), (Level::INFO, 4), (Level::DEBUG, 5), (Level::TRACE, 6)];

/// Returns the ETW level: 2 error, 3 warning, 4 information, 5 verbose for DEBUG, and 6 for TRACE,
/// as in `tracing-etw`.
pub(super) fn etw_level(level: Level) -> u8 {
    LEVELS.iter().find(|(known, _)| *known == level).map_or(6, |(_, etw)| *etw)
}

/// The provider and keyword of one target.
#[derive(Clone, Copy)]
pub(super) struct TargetRoute<'a> {
    pub(super) provider: &'a Provider,
    pub(super) keyword: u64,
}

impl TargetRoute<'_> {
    pub(super) fn is_enabled(&self, level: Level) -> bool {
        self.provider.enabled(etw_level(level), self.keyword)
    }
}

/// Values by target, the longest target first, so that the first match is the closest.
#[derive(Clone, Debug)]
pub(super) struct ByTarget<T>(Vec<(String, T)>);

impl<T> Default for ByTarget<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ByTarget<T> {
    pub(super) fn set(&mut self, target: &str, value: T) {
        self.0.retain(|(named, _)| named != target);
        self.0.push((target.to_owned(), value));
        self.0.sort_by_key(|(named, _)| std::cmp::Reverse(named.len()));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(named, value)| (named.as_str(), value))
    }

    fn find(&self, target: &str) -> Option<&T> {
        self.0.iter().find(|(named, _)| is_within(target, named)).map(|(_, value)| value)
    }
}

/// All routes of a layer.
#[derive(Debug)]
pub(super) struct LayerRoutes {
    /// The layer's own provider.
    pub(super) provider: Provider,
    /// The providers of named targets.
    pub(super) target_providers: ByTarget<Arc<Provider>>,
    /// The providers that the rule names.
    pub(super) rule_providers: Option<NamedProviders>,
    pub(super) default_keyword: u64,
    pub(super) keywords: ByTarget<u64>,
    /// If not empty, the only targets that are written.
    pub(super) only_targets: ByTarget<()>,
}

impl LayerRoutes {
    /// Returns the route of a target; `None` if its events are not written.
    pub(super) fn find(&self, target: &str) -> Option<TargetRoute<'_>> {
        if self.only_targets.len() != 0 && self.only_targets.find(target).is_none() {
            return None;
        }
        let separate = self.target_providers.find(target).map(|provider| &**provider);
        let separate = separate.or_else(|| self.rule_providers.as_ref()?.find_or_register(target));
        let provider = separate.unwrap_or(&self.provider);
        Some(TargetRoute {
            provider,
            keyword: self.keywords.find(target).copied().unwrap_or(self.default_keyword),
        })
    }

    /// Returns whether the route of a target cannot change any more: no rule, or the rule has named
    /// its provider already.
    pub(super) fn is_final(&self, target: &str) -> bool {
        self.rule_providers
            .as_ref()
            .is_none_or(|named| self.target_providers.find(target).is_some() || named.is_final(target))
    }

    /// Returns the most verbose level that any session may want from any target.
    pub(super) fn most_verbose_level(&self) -> Option<Level> {
        if self.rule_providers.as_ref().is_some_and(|named| !named.is_full()) {
            return Some(Level::TRACE);
        }
        let is_wanted = |level: &Level| self.all_routes().any(|route| route.is_enabled(*level));
        LEVELS.iter().rev().map(|(level, _)| *level).find(is_wanted)
    }

    /// Iterates over every provider with every keyword: a superset of the existing routes.
    fn all_routes(&self) -> impl Iterator<Item = TargetRoute<'_>> {
        let target_providers = self.target_providers.iter().map(|(_, provider)| &**provider);
        let keywords = || self.keywords.iter().map(|(_, keyword)| *keyword).chain([self.default_keyword]);
        target_providers
            .chain(self.rule_providers.iter().flat_map(NamedProviders::providers))
            .chain([&self.provider])
            .flat_map(move |provider| keywords().map(move |keyword| TargetRoute { provider, keyword }))
    }
}

/// Returns whether a target is the named one or a module in it.
fn is_within(target: &str, named: &str) -> bool {
    target
        .strip_prefix(named)
        .is_some_and(|suffix| suffix.is_empty() || named.is_empty() || suffix.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_includes_its_modules_but_not_names_with_its_prefix() {
        for (target, named, expected) in [
            ("app", "app", true),
            ("app::net", "app", true),
            ("application", "app", false),
            ("app", "app::net", false),
            ("anything", "", true),
        ] {
            assert_eq!(is_within(target, named), expected, "{target} in {named}");
        }
    }

    #[test]
    fn levels_map_to_etw_levels_in_order() {
        assert_eq!(LEVELS.map(|(level, _)| etw_level(level)), [2, 3, 4, 5, 6]);
    }
}
