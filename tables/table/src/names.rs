//! Names of columns, tables and folders, made from names in traces.
//!
//! Names in a trace are untrusted. A column name consists of letters, digits and underscores; a
//! folder name of a few more characters. Neither can end a string, leave its folder or be hidden.

use std::collections::{HashMap, HashSet};

use traceweir_format::Guid;

/// The longest column or table name, in characters, before a number is added.
const MAX_NAME_CHARS: usize = 60;
/// The longest value of a partition, in characters, before a digest is added.
const MAX_PARTITION_CHARS: usize = 80;
/// The hexadecimal digits of a [`digest`].
const DIGEST_DIGITS: usize = 32;

/// The value that Hive and its successors read as "no value".
pub const NULL_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// Returns a name of letters, digits and underscores that does not begin with a digit. Other
/// characters become underscores.
#[must_use]
pub fn column_name(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars().take(MAX_NAME_CHARS) {
        if out.is_empty() && c.is_numeric() {
            out.push('_');
        }
        out.push(if c.is_alphanumeric() { c } else { '_' });
    }
    if out.is_empty() { "field".to_owned() } else { out }
}

/// Returns a name for the table of an event type: lower-case ASCII letters, digits and
/// underscores, so that it is one word in SQL and a plain folder.
#[must_use]
pub fn table_name(provider: &str, event: &str, version: u8) -> String {
    let word = |text: &str| {
        let mut out = String::new();
        for c in text.chars().take(MAX_NAME_CHARS) {
            match c {
                c if c.is_ascii_alphanumeric() => out.push(c.to_ascii_lowercase()),
                _ if out.ends_with('_') => {}
                _ => out.push('_'),
            }
        }
        out.trim_matches('_').to_owned()
    };
    let (provider, event) = (word(provider), word(event));
    let name = format!("{provider}_{event}");
    let name = name.trim_matches('_');
    let name = if name.is_empty() { "event" } else { name };
    let is_number = name.starts_with(|c: char| c.is_ascii_digit());
    let prefix = if is_number { "t_" } else { "" };
    if version == 0 { format!("{prefix}{name}") } else { format!("{prefix}{name}_v{version}") }
}

/// Returns the value of a partition as a part of a path. A value that needed a change ends with the
/// digest of the original, and so does a value that looks as if it ended with one: two values never
/// share a folder.
#[must_use]
pub fn partition_value(value: &str) -> String {
    if value.is_empty() {
        return NULL_PARTITION.to_owned();
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.');
    let plain: String =
        value.chars().take(MAX_PARTITION_CHARS).map(|c| if is_plain(c) { c } else { '_' }).collect();
    let trimmed = plain.trim_matches([' ', '.']);
    if trimmed == value && !value.starts_with("__") && !ends_with_digest(value) {
        return plain;
    }
    format!("{trimmed}-{}", digest(value.as_bytes()))
}

fn ends_with_digest(value: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    value.rsplit_once('-').is_some_and(|(_, end)| end.len() == DIGEST_DIGITS && end.chars().all(is_digit))
}

/// Returns the first 128 bits of a SHA-1 digest as hexadecimal digits; four of the bits are fixed.
#[must_use]
pub(crate) fn digest(bytes: &[u8]) -> String {
    // The hash of provider names ignores case, so it gets hexadecimal digits.
    let hex_digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    let hex: String = bytes.iter().flat_map(|byte| [hex_digit(byte >> 4), hex_digit(byte & 15)]).collect();
    Guid::from_provider_name(&hex).to_string().replace('-', "")
}

/// Names that are already in use, compared without case, because most engines ignore case.
#[derive(Clone, Debug, Default)]
pub struct UniqueNames {
    used: HashSet<String>,
    /// The last number that each repeated name got.
    numbers: HashMap<String, u32>,
}

impl UniqueNames {
    /// Returns the names of a list as used names.
    #[must_use]
    pub fn with(names: &[&str]) -> Self {
        Self { used: names.iter().map(|name| name.to_lowercase()).collect(), numbers: HashMap::new() }
    }

    /// Returns the name, or the name with the lowest free number from 2 on, and marks it as used.
    pub fn insert(&mut self, name: &str) -> String {
        let lower = name.to_lowercase();
        if self.used.insert(lower.clone()) {
            return name.to_owned();
        }
        let number = self.numbers.entry(lower.clone()).or_insert(1);
        loop {
            *number = number.saturating_add(1);
            if self.used.insert(format!("{lower}_{number}")) {
                return format!("{name}_{number}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_become_words() {
        assert_eq!(column_name("ProcessId"), "ProcessId");
        assert_eq!(column_name("a\"; DROP TABLE x; --"), "a___DROP_TABLE_x____");
        assert_eq!(column_name("../../etc"), "______etc");
        assert_eq!(column_name("1st"), "_1st");
        assert_eq!(column_name(""), "field");
        assert_eq!(column_name("é\0\u{202e}"), "é__");
        assert!(column_name(&"x".repeat(100_000)).len() <= 61);
    }

    #[test]
    fn columns_that_differ_in_case_get_different_names() {
        let mut names = UniqueNames::with(&["time"]);
        assert_eq!(names.insert("Time"), "Time_2");
        assert_eq!(names.insert("a"), "a");
        assert_eq!(names.insert("A"), "A_2");
        assert_eq!(names.insert("a_2"), "a_2_2");
        assert_eq!(names.insert("a"), "a_3");
    }

    #[test]
    fn numbering_of_repeated_names_is_fast() {
        let mut names = UniqueNames::default();
        // Tried from 2 on each time, the names would need 5,000,000,000 attempts.
        let last = (0..100_000).map(|_| names.insert("a")).last();
        assert_eq!(last.as_deref(), Some("a_100000"));
    }

    #[test]
    fn tables_have_plain_names_with_their_version() {
        let name = table_name("Microsoft-Windows-Kernel-Process", "ProcessStart/Start", 3);
        assert_eq!(name, "microsoft_windows_kernel_process_processstart_start_v3");
        assert_eq!(table_name("", "", 0), "event");
        assert_eq!(table_name("7", "../..", 0), "t_7");
    }

    #[test]
    fn partition_values_stay_in_their_folder_and_differ() {
        assert_eq!(partition_value("Windows Kernel"), "Windows Kernel");
        assert_eq!(partition_value(""), NULL_PARTITION);
        for hostile in ["..", ".", "/", "a/b", "a\\b", "a=b", "%2F", " x", "x.", "\0", NULL_PARTITION, "é"] {
            let value = partition_value(hostile);
            assert_ne!(value, hostile);
            assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || " -_.".contains(c)), "{value}");
            assert!(!value.starts_with('.') && value.len() <= MAX_PARTITION_CHARS + 1 + DIGEST_DIGITS);
        }
        assert_ne!(partition_value("a/b"), partition_value("a\\b"));
        let long = "x".repeat(500);
        assert_ne!(partition_value(&long), partition_value(&format!("{long}y")));
        assert_ne!(partition_value("A/b"), partition_value("a/b"));
        // These two have the same 32-bit FNV-1a hash.
        assert_ne!(partition_value("/=+/=+++//"), partition_value("+++/:/++:/"));
        let folder = partition_value("a/b");
        assert_ne!(partition_value(&folder), folder, "a value is not the folder of another");
    }
}
