//! Answers that may be longer than a message: as many entries as fit, from the index that was asked for.
//!
//! ```text
//!   QueryAll { from: 0 }  ──▶  Sessions { total: 64, sessions: 0 … 40 }
//!   QueryAll { from: 41 } ──▶  Sessions { total: 64, sessions: 41 … 63 }
//! ```
//!
//! 1. A page holds at least one entry unless there is none behind its index, so asking ends: no entry is larger than a page.
//! 2. The list may change between two questions; an entry may then be missed or seen twice.

use traceweir_format::Guid;

use super::wire::{HEAD_BYTES, Wire, short};
use super::{EnableEntry, MAX_FILTERS, MAX_MESSAGE, Message, Properties, ProviderEntry};

/// Room for entries behind the head, the total and the count.
const ROOM: usize = MAX_MESSAGE - HEAD_BYTES - 6;
/// The most processes that the entry of one provider names.
pub const MAX_PIDS: usize = 8192;
/// The most sessions that it names.
const MAX_ENABLES: usize = 128;

impl Message {
    /// The answer to `QueryAll { from }`, out of all sessions.
    #[must_use]
    pub fn sessions_page(all: &[Properties], from: u32) -> Self {
        Self::Sessions { total: total(all), sessions: page(all.iter().cloned(), from) }
    }

    /// The answer to `QueryProviders { from }`, out of all providers; an entry names [`MAX_PIDS`] processes at most.
    #[must_use]
    pub fn providers_page(all: &[ProviderEntry], from: u32) -> Self {
        let short = all.iter().map(|entry| ProviderEntry {
            provider: entry.provider,
            name: short(&entry.name),
            pids: entry.pids.iter().take(MAX_PIDS).copied().collect(),
            sessions: entry.sessions.iter().take(MAX_ENABLES).map(short_enable).collect(),
            groups: entry.groups.iter().take(MAX_ENABLES).copied().collect(),
            is_group: entry.is_group,
            is_classic: entry.is_classic,
        });
        Self::Providers { total: total(all), providers: page(short, from) }
    }

    /// The answer to `QueryAccessLists { from }`, out of all objects.
    #[must_use]
    pub fn access_lists_page(all: &[Guid], from: u32) -> Self {
        Self::AccessLists { total: total(all), objects: page(all.iter().copied(), from) }
    }
}

fn short_enable(enable: &EnableEntry) -> EnableEntry {
    EnableEntry { filters: enable.filters.iter().take(MAX_FILTERS).copied().collect(), ..*enable }
}

fn total<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

/// The entries from an index on that fit one message.
fn page<T: Wire>(all: impl Iterator<Item = T>, from: u32) -> Vec<T> {
    let mut bytes = Vec::new();
    all.skip(from as usize).take_while(|entry| entry.put(&mut bytes).is_ok() && bytes.len() <= ROOM).collect()
}
