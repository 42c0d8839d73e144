//! Providers of targets that appear at run time.
//!
//! ```text
//!   a new target ──▶ the program's rule: a name? ──▶ registered, unless it is already
//!                ──▶ a permanent entry
//!   a known target ──▶ its entry; no lock
//! ```
//!
//! Invariants
//!
//! 1. Entries are filled one after the other, so the first empty one ends the search.
//! 2. There are [`MAX_TARGETS`] entries. Targets that find no free entry, that the rule does not
//!    name, or whose provider cannot be registered use the layer's own provider.
//! 3. Registering waits for the daemons and the callback thread. It happens when an event or span
//!    is about to be written and never while `tracing` asks about callsites, which it does under a
//!    lock.
//! 4. An enable callback that runs while its thread names and registers a provider rebuilds
//!    nothing: callsites of an unknown target ask for each event anyway.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::{Provider, Result};

/// Maximum number of targets of a layer, separately for each of three kinds: targets with a
/// keyword, targets with a provider, and targets for which the rule was called.
pub const MAX_TARGETS: usize = 256;

thread_local! {
    static IS_NAMING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread is naming or registering a provider while it writes an event.
pub(super) fn is_naming() -> bool {
    IS_NAMING.try_with(Cell::get).unwrap_or(true)
}

type NameProvider = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The program's rule that names the provider of a target.
#[derive(Clone)]
pub(super) struct NamingRule(pub(super) Arc<NameProvider>);

impl fmt::Debug for NamingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NamingRule")
    }
}

type RegisterProvider = Box<dyn Fn(&str) -> Result<Provider> + Send + Sync>;

/// The targets that were named so far.
pub(super) struct NamedProviders {
    rule: NamingRule,
    register: RegisterProvider,
    entries: Vec<OnceLock<NamedTarget>>,
    /// Locked while an entry is filled.
    add_lock: Mutex<()>,
}

struct NamedTarget {
    target: String,
    /// Name and provider; `None` for the layer's own.
    provider: Option<(String, Arc<Provider>)>,
}

impl fmt::Debug for NamedProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.used_entries().map(|entry| (&entry.target, &entry.provider))).finish()
    }
}

impl NamedProviders {
    pub(super) fn new(rule: NamingRule, register: RegisterProvider) -> Self {
        let entries = std::iter::repeat_with(OnceLock::new).take(MAX_TARGETS).collect();
        Self { rule, register, entries, add_lock: Mutex::new(()) }
    }

    fn used_entries(&self) -> impl Iterator<Item = &NamedTarget> {
        self.entries.iter().map_while(OnceLock::get)
    }

    fn find_target(&self, target: &str) -> Option<&NamedTarget> {
        self.used_entries().find(|entry| entry.target == target)
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.last().is_none_or(|entry| entry.get().is_some())
    }

    /// Returns whether the provider of a target cannot change any more: the rule was called for the
    /// target, or is not called for further targets.
    pub(super) fn is_final(&self, target: &str) -> bool {
        self.find_target(target).is_some() || self.is_full()
    }

    pub(super) fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.used_entries().filter_map(|entry| entry.provider.as_ref()).map(|(_, provider)| &**provider)
    }

    /// Returns the provider of a target, registering it if it is new; `None` for the layer's own.
    pub(super) fn find_or_register(&self, target: &str) -> Option<&Provider> {
        let entry = self.find_target(target).or_else(|| self.add_target(target))?;
        entry.provider.as_ref().map(|(_, provider)| &**provider)
    }

    #[cold]
    fn add_target(&self, target: &str) -> Option<&NamedTarget> {
        // A rule that writes events would be called for their targets, without end.
        if self.is_full() || is_naming() {
            return None;
        }
        let _naming = NamingGuard::begin();
        let name = self.rule.0(target).filter(|name| !name.is_empty() && !name.contains('\0'));
        let _adding = self.add_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = self.find_target(target) {
            return Some(entry);
        }
        let provider = name.and_then(|name| {
            let known =
                self.used_entries().filter_map(|entry| entry.provider.as_ref()).find(|(n, _)| *n == name);
            let provider = match known {
                Some((_, provider)) => Arc::clone(provider),
                None => Arc::new((self.register)(&name).ok()?),
            };
            Some((name, provider))
        });
        let entry = self.entries.iter().find(|entry| entry.get().is_none())?;
        Some(entry.get_or_init(|| NamedTarget { target: target.to_owned(), provider }))
    }
}

/// Marks the naming until drop, even if the rule panics.
struct NamingGuard;

impl NamingGuard {
    fn begin() -> Self {
        let _ = IS_NAMING.try_with(|naming| naming.set(true));
        Self
    }
}

impl Drop for NamingGuard {
    fn drop(&mut self) {
        let _ = IS_NAMING.try_with(|naming| naming.set(false));
    }
}
