//! Answers that may be longer than a message: as many entries as fit, from the index that was asked for, or behind the last one that was told.
//!
//! ```text
//!   QueryAll { from: 0 }  ──▶  Sessions { total: 64, sessions: 0 … 40 }
//!   QueryAll { from: 41 } ──▶  Sessions { total: 64, sessions: 41 … 63 }
//!
//!   QueryProviders { after: none }        ──▶  Providers { more: yes, providers: A … M }
//!   QueryProviders { after: (M, no group) } ──▶  Providers { more: no, providers: N … Z }
//! ```
//!
//! 1. A page holds at least one entry unless there is none behind its index, so asking ends: no entry is larger than a page.
//! 2. The list may change between two questions; by index an entry may then be missed or seen twice.
//! 3. Anybody can register providers: a page of them is asked for by key, so that it takes what is on it to make and not all that there is.

use traceweir_format::Guid;

use super::wire::{HEAD_BYTES, Wire, short};
use super::{EnableEntry, MAX_FILTERS, MAX_MESSAGE, Message, Properties, ProviderEntry, RegistrationEntry};

/// Room for entries behind the head, the total and the count.
const ROOM: usize = MAX_MESSAGE - HEAD_BYTES - 6;
/// The most processes that the entry of one provider names.
pub const MAX_PIDS: usize = 8192;
/// The most processes in containers that it names.
const MAX_CONTAINED: usize = 2048;
/// The most sessions that it names, and the most groups.
const MAX_ENABLES: usize = 64;
/// Bytes of names and filters that it tells; what is too much is left out, the types of filters are told in any case.
const DETAIL_BYTES: usize = 8 * 1024;

impl Message {
    /// The answer to `QueryAll { from }`, out of all sessions.
    #[must_use]
    pub fn sessions_page(all: &[Properties], from: u32) -> Self {
        Self::Sessions { total: total(all), sessions: page(all.iter().cloned(), from) }
    }

    /// The answer to `QueryProviders { after }`, out of those behind that one; an entry names [`MAX_PIDS`] processes at most. No more are taken than are told, and
    /// one.
    #[must_use]
    pub fn providers_page(entries: impl IntoIterator<Item = ProviderEntry>) -> Self {
        let mut entries = entries.into_iter().map(short_provider).peekable();
        let (mut bytes, mut providers) = (Vec::new(), Vec::new());
        let mut fits = |entry: &ProviderEntry| entry.put(&mut bytes).is_ok() && bytes.len() <= ROOM;
        while let Some(entry) = entries.next_if(&mut fits) {
            providers.push(entry);
        }
        Self::Providers { more: entries.peek().is_some(), providers }
    }

    /// The answer to `QueryRegistrations`: how many there are, and those from the index on that was asked for. No more are taken than are told, and one.
    #[must_use]
    pub fn registrations_page(total: usize, from_there: impl Iterator<Item = RegistrationEntry>) -> Self {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        let short = from_there.map(|mut entry| {
            entry.sessions.truncate(MAX_ENABLES);
            entry
        });
        Self::Registrations { total, registrations: page(short, 0) }
    }

    /// The answer to `QueryAccessLists { from }`, out of all objects.
    #[must_use]
    pub fn access_lists_page(all: &[Guid], from: u32) -> Self {
        Self::AccessLists { total: total(all), objects: page(all.iter().copied(), from) }
    }
}

fn short_provider(mut entry: ProviderEntry) -> ProviderEntry {
    entry.name = short(&entry.name);
    entry.pids.truncate(MAX_PIDS);
    entry.contained.truncate(MAX_CONTAINED);
    entry.sessions.truncate(MAX_ENABLES);
    entry.privates.truncate(MAX_ENABLES.saturating_sub(entry.sessions.len()));
    let mut left = DETAIL_BYTES;
    for enable in entry.sessions.iter_mut().chain(&mut entry.privates) {
        shorten(enable, &mut left);
    }
    entry.groups.truncate(MAX_ENABLES);
    entry
}

/// Leaves out what there is no room left for.
fn shorten(enable: &mut EnableEntry, left: &mut usize) {
    enable.filters.truncate(MAX_FILTERS);
    enable.name = short(&enable.name);
    match left.checked_sub(enable.name.len()) {
        Some(rest) => *left = rest,
        None => enable.name.clear(),
    }
    for filter in &mut enable.filters {
        match left.checked_sub(filter.data.len()) {
            Some(rest) => *left = rest,
            None => filter.data.clear(),
        }
    }
}

fn total<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

/// The entries from an index on that fit one message.
fn page<T: Wire>(all: impl Iterator<Item = T>, from: u32) -> Vec<T> {
    let mut bytes = Vec::new();
    all.skip(from as usize).take_while(|entry| entry.put(&mut bytes).is_ok() && bytes.len() <= ROOM).collect()
}
