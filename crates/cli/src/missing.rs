//! Lists the providers whose events lack a schema, and the option that supplies one.

use std::collections::BTreeMap;

use anstream::eprintln;
use traceweir_analysis::event::DescribedEvent;
use traceweir_decode::Undecoded;

use crate::text::{escape, format_count};

/// Maximum number of providers that are counted; a hostile trace may name any number.
const MAX_PROVIDERS: usize = 1000;
/// Maximum number of providers that the report lists.
const MAX_LISTED_PROVIDERS: usize = 20;

/// The kind of schema that an event lacks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SchemaKind {
    Manifest,
    MessageFormat,
}

/// Counts events without a schema by provider.
#[derive(Default)]
pub(crate) struct MissingSchemas {
    /// Name and number of events by kind and GUID.
    providers: BTreeMap<(SchemaKind, [u8; 16]), (String, u64)>,
    has_more: bool,
}

impl MissingSchemas {
    /// Counts an event that could not be decoded, if the reason is a missing schema.
    pub(crate) fn add(&mut self, event: &DescribedEvent<'_>, reason: &Undecoded) {
        let kind = match reason {
            Undecoded::NoSchema => SchemaKind::Manifest,
            Undecoded::NoMessageFormat => SchemaKind::MessageFormat,
            _ => return,
        };
        let id = event.record.provider();
        let key = (kind, id.to_bytes());
        if let Some((_, events)) = self.providers.get_mut(&key) {
            *events = events.saturating_add(1);
        } else if self.providers.len() < MAX_PROVIDERS {
            let name = match event.provider {
                Some(name) => format!("{} {{{id}}}", escape(name)),
                None => format!("{{{id}}}"),
            };
            self.providers.insert(key, (name, 1));
        } else {
            self.has_more = true;
        }
    }

    /// Adds the events that another thread counted.
    pub(crate) fn merge(&mut self, other: Self) {
        self.has_more |= other.has_more;
        for (key, (name, count)) in other.providers {
            if let Some((_, events)) = self.providers.get_mut(&key) {
                *events = events.saturating_add(count);
            } else if self.providers.len() < MAX_PROVIDERS {
                self.providers.insert(key, (name, count));
            } else {
                self.has_more = true;
            }
        }
    }

    /// Prints one line for each provider to standard error.
    pub(crate) fn report(&self) {
        for ((kind, _), (name, events)) in self.providers.iter().take(MAX_LISTED_PROVIDERS) {
            match kind {
                SchemaKind::Manifest => eprintln!(
                    "no schema of provider {name} ({}): --manifest FILE, its manifest or the program that contains it",
                    format_count(*events, "event")
                ),
                SchemaKind::MessageFormat => eprintln!(
                    "no formats of WPP messages {name} ({}): --tmf FILE or --pdb FILE",
                    format_count(*events, "message")
                ),
            }
        }
        let unlisted = self.providers.len().saturating_sub(MAX_LISTED_PROVIDERS) as u64;
        if self.has_more || unlisted > 0 {
            let at_least = if self.has_more { "at least " } else { "" };
            eprintln!("and {at_least}{} without a schema", format_count(unlisted, "more provider"));
        }
    }
}
