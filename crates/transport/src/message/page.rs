//! Pages of answers that may be longer than a message: as many entries as fit, from the requested
//! index on or after the last entry of the previous page.
//!
//! ```text
//!   QueryAll { from: 0 }  ──▶  Sessions { total: 64, sessions: 0 … 40 }
//!   QueryAll { from: 41 } ──▶  Sessions { total: 64, sessions: 41 … 63 }
//!
//!   QueryProviders { after: none }        ──▶  Providers { more: yes, providers: A … M }
//!   QueryProviders { after: (M, no group) } ──▶  Providers { more: no, providers: N … Z }
//! ```
//!
//! 1. A page holds at least one entry unless there is none after its index, so paging ends: no
//!    entry is larger than a page.
//! 2. The list may change between two requests; by index, an entry may then be missed or seen
//!    twice.
//! 3. Any user can register providers: a page of them is requested by key, so that the cost of a
//!    page depends only on its own entries.

use traceweir_format::Guid;

use super::wire::{HEADER_BYTES, Wire, shorten_text};
use super::{
    EnableEntry, MAX_FILTERS, MAX_MESSAGE_BYTES, Message, Properties, ProviderEntry, RegistrationEntry,
};

/// Bytes for entries after the header, the total and the count.
const MAX_PAGE_BYTES: usize = MAX_MESSAGE_BYTES - HEADER_BYTES - 6;
/// Largest number of processes in the entry of one provider.
pub const MAX_PIDS: usize = 8192;
/// Largest number of processes in containers in an entry.
const MAX_CONTAINED: usize = 2048;
/// Largest number of sessions, private ones included, and of groups in an entry.
const MAX_ENABLES: usize = 64;
/// Bytes of names and filters in an entry; more are left out, except the types of filters.
const DETAIL_BYTES: usize = 8 * 1024;

impl Message {
    /// Creates the answer to `QueryAll { from }` from all sessions.
    #[must_use]
    pub fn sessions_page(all: &[Properties], from: u32) -> Self {
        Self::Sessions { total: count_entries(all), sessions: take_page(all.iter().cloned(), from) }
    }

    /// Creates the answer to `QueryProviders { after }` from the entries after that one; an entry
    /// names at most [`MAX_PIDS`] processes. Takes one more entry from the iterator than the page
    /// holds.
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
    pub fn access_lists_page(all: &[Guid], from: u32) -> Self {
        Self::AccessLists { total: count_entries(all), objects: take_page(all.iter().copied(), from) }
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

/// Removes name and filter data that exceed the bytes left.
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

fn count_entries<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

/// Returns the entries from an index on that fit into one message.
fn take_page<T: Wire>(all: impl Iterator<Item = T>, from: u32) -> Vec<T> {
    let mut bytes = Vec::new();
    all.skip(from as usize)
        .take_while(|entry| entry.put(&mut bytes).is_ok() && bytes.len() <= MAX_PAGE_BYTES)
        .collect()
}
