//! Pages of answers that may be longer than a message: as many entries as fit, from the requested
//! index on or after the last entry of the previous page.
//!
//! ```text
//!   QueryAll { from: 0 }  ──▶  Sessions { total: 64, sessions: 0 … 40 }
//!   QueryAll { from: 41 } ──▶  Sessions { total: 64, sessions: 41 … 63 }
//!
//!   QueryProviders { after: none }          ──▶  Providers { more: yes, providers: A … M }
//!   QueryProviders { after: (M, no group) } ──▶  Providers { more: no, providers: N … Z }
//! ```
//!
//! 1. No entry is larger than a page. So every page holds at least one entry, unless the list has
//!    ended, and paging always ends.
//! 2. The list may change between two requests. If pages are requested by index, an entry may then
//!    be missed or returned twice.
//! 3. Any user can register providers, so the list of providers can be long. Its pages are
//!    requested by key, so that the cost of a page depends only on its own entries.

use traceweir_format::Guid;

use super::wire::{HEADER_BYTES, Wire, shorten_text};
use super::{
    EnableEntry, MAX_FILTERS, MAX_MESSAGE_BYTES, Message, Properties, ProviderEntry, RegistrationEntry,
};

/// Bytes for entries after the header, the total (4 bytes) and the count (2 bytes).
const MAX_PAGE_BYTES: usize = MAX_MESSAGE_BYTES - HEADER_BYTES - 6;
/// Largest number of processes in the entry of one provider.
pub const MAX_PIDS: usize = 8192;
/// Largest number of processes that run in containers, in the entry of one provider.
const MAX_CONTAINED: usize = 2048;
/// Largest number of enables in an entry, those of private sessions included; also the largest
/// number of groups.
const MAX_ENABLES: usize = 64;
/// Largest number of bytes of names and filter data in an entry. Names and data beyond it are left
/// out; the types of filters are kept.
const DETAIL_BYTES: usize = 8 * 1024;

impl Message {
    /// Creates the answer to `QueryAll` or `QueryEnded` from all sessions and the requested index.
    #[must_use]
    pub fn sessions_page(sessions: &[Properties], from: u32) -> Self {
        let total = count_entries(sessions);
        Self::Sessions { total, sessions: take_page(sessions.iter().cloned(), from) }
    }

    /// Creates the answer to `QueryProviders { after }` from the entries that follow `after`. An
    /// entry of the answer names at most [`MAX_PIDS`] processes. Takes one more entry from the
    /// iterator than the page holds.
    #[must_use]
    pub fn providers_page(entries: impl IntoIterator<Item = ProviderEntry>) -> Self {
        let mut entries = entries.into_iter().map(shorten_provider).peekable();
        let (mut bytes, mut providers) = (Vec::new(), Vec::new());
        let mut fits = |entry: &ProviderEntry| entry.put(&mut bytes).is_ok() && bytes.len() <= MAX_PAGE_BYTES;
        while let Some(entry) = entries.next_if(&mut fits) {
            providers.push(entry);
        }
        Self::Providers { more: entries.peek().is_some(), providers }
    }

    /// Creates the answer to `QueryRegistrations` from the total number and the entries from the
    /// requested index on. Takes one more entry from the iterator than the page holds.
    #[must_use]
    pub fn registrations_page(total: usize, entries: impl Iterator<Item = RegistrationEntry>) -> Self {
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        let shortened = entries.map(|mut entry| {
            entry.sessions.truncate(MAX_ENABLES);
            entry
        });
        Self::Registrations { total, registrations: take_page(shortened, 0) }
    }

    /// Creates the answer to `QueryAccessLists { from }` from all objects.
    #[must_use]
    pub fn access_lists_page(objects: &[Guid], from: u32) -> Self {
        let total = count_entries(objects);
        Self::AccessLists { total, objects: take_page(objects.iter().copied(), from) }
    }
}

fn shorten_provider(mut entry: ProviderEntry) -> ProviderEntry {
    entry.name = shorten_text(&entry.name);
    entry.pids.truncate(MAX_PIDS);
    entry.contained.truncate(MAX_CONTAINED);
    entry.sessions.truncate(MAX_ENABLES);
    entry.privates.truncate(MAX_ENABLES.saturating_sub(entry.sessions.len()));
    let mut remaining_bytes = DETAIL_BYTES;
    for enable in entry.sessions.iter_mut().chain(&mut entry.privates) {
        shorten_enable(enable, &mut remaining_bytes);
    }
    entry.groups.truncate(MAX_ENABLES);
    entry
}

/// Removes the name and the filter data that do not fit into the remaining bytes.
fn shorten_enable(enable: &mut EnableEntry, remaining_bytes: &mut usize) {
    enable.filters.truncate(MAX_FILTERS);
    enable.name = shorten_text(&enable.name);
    match remaining_bytes.checked_sub(enable.name.len()) {
        Some(bytes) => *remaining_bytes = bytes,
        None => enable.name.clear(),
    }
    for filter in &mut enable.filters {
        match remaining_bytes.checked_sub(filter.data.len()) {
            Some(bytes) => *remaining_bytes = bytes,
            None => filter.data.clear(),
        }
    }
}

fn count_entries<T>(entries: &[T]) -> u32 {
    u32::try_from(entries.len()).unwrap_or(u32::MAX)
}

/// Returns the entries from an index on that fit into one message.
fn take_page<T: Wire>(entries: impl Iterator<Item = T>, from: u32) -> Vec<T> {
    let mut bytes = Vec::new();
    entries
        .skip(from as usize)
        .take_while(|entry| entry.put(&mut bytes).is_ok() && bytes.len() <= MAX_PAGE_BYTES)
        .collect()
}
