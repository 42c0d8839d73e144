//! Counts events that cannot be decoded, and lists the providers whose events lack a schema with the
//! option that supplies one.

use std::collections::BTreeMap;

use traceweir_decode::Undecoded;

use crate::event::DescribedEvent;
use crate::text::{escape, format_count};

/// Maximum number of providers that are counted; a hostile trace may name any number.
const MAX_PROVIDERS: usize = 1000;
/// Maximum length of the name of a provider, in characters.
const MAX_NAME_CHARS: usize = 256;
/// Maximum number of providers that the report lists.
const MAX_LISTED_PROVIDERS: usize = 20;

/// The kind of schema that an event lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SchemaKind {
    Manifest,
    MessageFormat,
}

/// Counts events that could not be decoded.
#[derive(Debug, Default)]
pub struct UndecodedEvents {
    count: u64,
    missing: MissingSchemas,
}

impl UndecodedEvents {
    /// Counts an event that could not be decoded.
    pub fn add(&mut self, event: &DescribedEvent<'_>, reason: &Undecoded) {
        self.count = self.count.saturating_add(1);
        self.missing.add(event, reason);
    }

    /// Describes the events, one line each: their number, then the providers without a schema. Returns
    /// nothing if there are none.
    pub fn describe(&self) -> Vec<String> {
        if self.count == 0 {
            return Vec::new();
        }
        let count =
            format!("without fields: {} that could not be decoded", format_count(self.count, "event"));
        std::iter::once(count).chain(self.missing.describe()).collect()
    }
}

/// Counts events without a schema by provider.
#[derive(Debug, Default)]
pub struct MissingSchemas {
    /// Name and number of events by kind and GUID.
    providers: BTreeMap<(SchemaKind, [u8; 16]), (String, u64)>,
    has_more: bool,
}

impl MissingSchemas {
    /// Counts an event that could not be decoded, if the reason is a missing schema.
    pub fn add(&mut self, event: &DescribedEvent<'_>, reason: &Undecoded) {
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
                Some(name) => {
                    format!("{} {{{id}}}", escape(&name.chars().take(MAX_NAME_CHARS).collect::<String>()))
                }
                None => format!("{{{id}}}"),
            };
            self.providers.insert(key, (name, 1));
        } else {
            self.has_more = true;
        }
    }

    /// Adds the events that another thread counted.
    pub fn merge(&mut self, other: Self) {
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

    /// Describes each provider in a line.
    pub fn describe(&self) -> Vec<String> {
        let describe_provider = |((kind, _), (name, events)): (&(SchemaKind, _), &(String, u64))| match kind {
            SchemaKind::Manifest => format!(
                "no schema of provider {name} ({}): --manifest FILE, its manifest or the program that contains it",
                format_count(*events, "event")
            ),
            SchemaKind::MessageFormat => format!(
                "no formats of WPP messages {name} ({}): --tmf FILE or --pdb FILE",
                format_count(*events, "message")
            ),
        };
        let mut lines: Vec<String> =
            self.providers.iter().take(MAX_LISTED_PROVIDERS).map(describe_provider).collect();
        let unlisted = self.providers.len().saturating_sub(MAX_LISTED_PROVIDERS) as u64;
        if self.has_more || unlisted > 0 {
            let at_least = if self.has_more { "at least " } else { "" };
            lines.push(format!("and {at_least}{} without a schema", format_count(unlisted, "more provider")));
        }
        lines
    }
}
