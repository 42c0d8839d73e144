//! Prints a request in the syntax of the command line. The text parses to an equal request, except
//! that a name is lost if the GUID is not its hash.

use std::fmt::{self, Display, Formatter};

use traceweir::Guid;

use super::EnableRequest;
use super::filters::InclusionList;
use super::option::PROPERTY_OPTIONS;
use super::spelling::is_number;

impl Display for EnableRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_hashed() {
            f.write_str(&quote(&self.name))?
        } else {
            write!(f, "{{{}}}", self.guid)?
        }
        match (self.keywords, self.level) {
            (0, 0) => {}
            (0, level) => write!(f, "::{level}")?,
            (any, 0) => write!(f, ":{any:#x}")?,
            (any, level) => write!(f, ":{any:#x}:{level}")?,
        }
        if self.all_keywords != 0 {
            write!(f, "@all={:#x}", self.all_keywords)?;
        }
        for (name, _) in PROPERTY_OPTIONS.iter().filter(|(_, bit)| self.property & bit != 0) {
            write!(f, "@{name}")?;
        }
        if !self.source.is_null() {
            write!(f, "@source={}", self.source)?;
        }
        self.write_filters(f)
    }
}

impl EnableRequest {
    /// Returns whether the GUID is the hash of the name.
    pub(crate) fn is_hashed(&self) -> bool {
        self.guid.is_hash_of(&self.name)
    }

    fn write_filters(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let filters = &self.filters;
        let pids: Vec<_> = filters.pids.iter().map(ToString::to_string).collect();
        write_numbers(f, "pid", &pids)?;
        for (option, list) in [
            ("exe", &filters.exes),
            ("package", &filters.packages),
            ("app", &filters.apps),
            ("container", &filters.containers),
        ] {
            write_texts(f, option, list)?;
        }
        if let Some(InclusionList { includes, list }) = &filters.ids {
            write_numbers(f, if *includes { "ids" } else { "not-ids" }, &format_ranges(list))?;
        }
        if let Some(InclusionList { includes, list }) = &filters.names {
            write_texts(f, if *includes { "names" } else { "not-names" }, list)?;
        }
        write_numbers(f, "stack-ids", &format_ranges(&filters.stack_ids))?;
        write_texts(f, "stack-names", &filters.stack_names)?;
        for (option, bytes) in [("payload", &filters.payload), ("schematized", &filters.schematized)] {
            if !bytes.is_empty() {
                write!(f, "@{option}=0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            }
        }
        if let Some(level) = filters.stack_level {
            write!(f, "@stack-level={level}")?;
        }
        if let Some(bits) = filters.stack_keywords {
            write!(f, "@stack-keywords={bits:#x}")?;
        }
        Ok(())
    }
}

fn write_numbers(f: &mut Formatter<'_>, option: &str, list: &[String]) -> fmt::Result {
    if list.is_empty() { Ok(()) } else { write!(f, "@{option}={}", list.join(",")) }
}

fn write_texts(f: &mut Formatter<'_>, option: &str, list: &[String]) -> fmt::Result {
    list.iter().try_for_each(|text| write!(f, "@{option}={}", quote(text)))
}

/// Returns a text unchanged if it has no special characters, or else in quotes.
pub(crate) fn quote(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    // A name that looks like a GUID or a number must be quoted.
    let is_ambiguous = text.parse::<Guid>().is_ok() || is_number(text);
    if !text.is_empty() && text.chars().all(is_plain) && !is_ambiguous {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        if matches!(c, '"' | '\\' | ',' | ';') || c.is_whitespace() {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

/// Formats sorted ids, with consecutive ids as ranges.
fn format_ranges(ids: &[u16]) -> Vec<String> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => ranges.push((*id, *id)),
        }
    }
    let format_range = |(first, last): &(u16, u16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(format_range).collect()
}
