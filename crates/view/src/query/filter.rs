//! The filter of the event list: the filter options of `weir dump`, and text.
//!
//! ```text
//!   --provider NAME  --event NAME  --level N  --keyword MASK  --pid N  --tid N  --cpu N
//!   provider:NAME    event:NAME …                          the same, shorter; names may have * and ?
//!   words, "several words"                                 text that the event contains
//! ```

use std::collections::BTreeSet;

use traceweir_analysis::text::matches_pattern;

use crate::index::Index;
use crate::index::kinds::Kind;
use crate::query::TimeSpan;
use crate::query::tracks::kind_label;

/// The longest filter in characters.
const MAX_CHARS: usize = 2000;

/// A parsed filter. Values of one option are alternatives.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventQuery {
    providers: Vec<String>,
    events: Vec<String>,
    level: Option<u8>,
    keyword: Option<u64>,
    pids: Vec<u32>,
    tids: Vec<u32>,
    cpus: Vec<u16>,
    /// Texts in lower case, all of which the event contains.
    pub(crate) texts: Vec<String>,
    /// Indices of kinds and threads, which links of the page use.
    kinds: Vec<u16>,
    threads: Vec<u32>,
    pub(crate) span: Option<(i64, i64)>,
}

/// What rows a filter accepts, without their text.
pub(crate) struct RowFilter {
    kinds: Option<Vec<bool>>,
    threads: Option<Vec<bool>>,
    cpus: Vec<u16>,
}

impl EventQuery {
    /// Parses a filter. The error names the part that is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.chars().count() > MAX_CHARS {
            return Err("the filter is too long".to_owned());
        }
        let mut query = Self::default();
        let mut words = split_words(text).into_iter().peekable();
        while let Some((word, is_quoted)) = words.next() {
            if is_quoted {
                query.texts.push(word.to_lowercase());
                continue;
            }
            if let Some(option) = word.strip_prefix("--") {
                let (name, value) = match option.split_once('=') {
                    Some((name, value)) => (name.to_owned(), value.to_owned()),
                    None => {
                        let value = words.next().ok_or_else(|| format!("--{option} needs a value"))?;
                        (option.to_owned(), value.0)
                    }
                };
                if !query.set(&name, &value)? {
                    return Err(format!("unknown option --{name}"));
                }
                continue;
            }
            let is_option = match word.split_once(':') {
                Some((name, value)) if !value.is_empty() => query.set(name, value)?,
                _ => false,
            };
            if !is_option {
                query.texts.push(word.to_lowercase());
            }
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let wrong = || format!("{name}: {value} is not a number");
        match name {
            "provider" => self.providers.push(value.to_lowercase()),
            "event" => self.events.push(value.to_lowercase()),
            "level" => self.level = Some(value.parse().map_err(|_| wrong())?),
            "keyword" => {
                let digits = value.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16));
                self.keyword = Some(digits.unwrap_or_else(|| value.parse()).map_err(|_| wrong())?);
            }
            "pid" => self.pids.push(value.parse().map_err(|_| wrong())?),
            "tid" => self.tids.push(value.parse().map_err(|_| wrong())?),
            "cpu" => self.cpus.push(value.parse().map_err(|_| wrong())?),
            "kind" => self.kinds.push(value.parse().map_err(|_| wrong())?),
            "thread" => self.threads.push(value.parse().map_err(|_| wrong())?),
            "grep" => self.texts.push(value.to_lowercase()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the same filter, limited to a time span.
    pub(crate) fn within(mut self, span: Option<TimeSpan>) -> Self {
        self.span = span.map(|span| (span.from, span.to));
        self
    }

    /// Returns whether the filter accepts all events.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self { span: self.span, ..Self::default() }
    }

    /// Prepares the filter for the kinds and threads of an index.
    pub(crate) fn to_row_filter(&self, index: &Index) -> RowFilter {
        let names_kinds = !self.providers.is_empty() || !self.events.is_empty() || !self.kinds.is_empty();
        let kinds = (names_kinds || self.level.is_some() || self.keyword.is_some()).then(|| {
            let all = index.kinds.kinds.iter().enumerate();
            all.map(|(number, kind)| self.accepts_kind(index, number, kind)).collect()
        });
        let has_threads = !self.pids.is_empty() || !self.tids.is_empty() || !self.threads.is_empty();
        let threads = has_threads.then(|| {
            let chosen: BTreeSet<u32> = self.threads.iter().copied().collect();
            let accepts = |(number, thread): (u32, &crate::index::threads::Thread)| {
                (self.pids.is_empty() || self.pids.contains(&thread.pid))
                    && (self.tids.is_empty() || self.tids.contains(&thread.tid))
                    && (chosen.is_empty() || chosen.contains(&number))
            };
            (0_u32..).zip(&index.threads.threads).map(accepts).collect()
        });
        RowFilter { kinds, threads, cpus: self.cpus.clone() }
    }

    fn accepts_kind(&self, index: &Index, number: usize, kind: &Kind) -> bool {
        let descriptor = &kind.descriptor;
        let provider = index.kinds.provider_of(kind);
        let accepts_provider = |pattern: &String| {
            provider.is_some_and(|provider| {
                let name = provider.name.to_lowercase();
                matches_pattern(pattern, &name)
                    || provider.guid.to_string() == *pattern
                    || name.split_once(" (").is_some_and(|(name, _)| matches_pattern(pattern, name))
            })
        };
        let name = kind_label(kind).to_lowercase();
        let accepts_event = |pattern: &String| {
            let part = name.rsplit_once('/').map(|(_, part)| part);
            let id = if kind.hook.is_some() { u16::from(descriptor.opcode) } else { descriptor.id };
            pattern.parse() == Ok(id)
                || matches_pattern(pattern, &name)
                || part.is_some_and(|part| matches_pattern(pattern, part))
        };
        let is_chosen = self.kinds.is_empty() || self.kinds.iter().any(|kind| usize::from(*kind) == number);
        is_chosen
            && (self.providers.is_empty() || self.providers.iter().any(accepts_provider))
            && (self.events.is_empty() || self.events.iter().any(accepts_event))
            && self.level.is_none_or(|level| descriptor.level <= level)
            && self.keyword.is_none_or(|mask| descriptor.keyword & mask != 0)
    }
}

impl RowFilter {
    /// Returns whether a row is accepted: values of the columns thread, kind and processor.
    #[inline]
    pub(crate) fn accepts(&self, thread: u64, kind: u64, cpu: u64) -> bool {
        let is_listed = |list: &Option<Vec<bool>>, number: u64| {
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            list.as_ref().is_none_or(|list| list.get(number).copied().unwrap_or(false))
        };
        is_listed(&self.kinds, kind)
            && is_listed(&self.threads, thread)
            && (self.cpus.is_empty() || self.cpus.iter().any(|known| u64::from(*known) == cpu))
    }
}

/// Splits a filter at spaces. Quotes keep spaces; the second value is whether a word was quoted.
fn split_words(text: &str) -> Vec<(String, bool)> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut is_open) = (false, false);
    for c in text.chars() {
        match c {
            '"' => {
                is_open = !is_open;
                quoted |= word.is_empty();
            }
            c if c.is_whitespace() && !is_open => {
                if !word.is_empty() {
                    words.push((std::mem::take(&mut word), quoted));
                }
                quoted = false;
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push((word, quoted));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_has_options_of_dump_and_words() {
        let query = EventQuery::parse("--provider Contoso.* event:Served pid:7 \"two words\" Soup").unwrap();
        assert_eq!(query.providers, ["contoso.*"]);
        assert_eq!(query.events, ["served"]);
        assert_eq!((query.pids, query.texts), (vec![7], vec!["two words".to_owned(), "soup".to_owned()]));
        assert!(EventQuery::parse("").unwrap().is_empty());
        assert!(EventQuery::parse("--pid x").is_err() && EventQuery::parse("--nosuch 1").is_err());
        assert_eq!(EventQuery::parse("http://x").unwrap().texts, ["http://x"]);
    }
}
