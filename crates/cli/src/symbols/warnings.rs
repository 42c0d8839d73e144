//! Warnings about symbols. Each is printed once: a warning about one file immediately, a warning
//! that can concern many files in one line at the end.

use std::collections::{BTreeSet, HashSet};

use anstream::eprintln;
use traceweir_decode::symbols::SymbolTable;

use crate::text::escape;

/// Maximum number of warnings about single files.
const MAX_WARNINGS: usize = 32;

/// Maximum number of files that a line at the end counts.
const MAX_COUNTED_FILES: usize = 1 << 14;
/// Maximum number of files that a line at the end names.
const MAX_NAMED_FILES: usize = 3;

/// The warnings that were printed, and those for the end.
#[derive(Default)]
pub(super) struct SymbolWarnings {
    printed: HashSet<String>,
    was_limit_reported: bool,
    /// Files that are assumed to be the traced files, because of their path only.
    assumed_files: BTreeSet<String>,
    /// Files that cannot be opened.
    missing_files: BTreeSet<String>,
}

impl Drop for SymbolWarnings {
    fn drop(&mut self) {
        self.summary_lines().iter().for_each(|line| eprintln!("{}", escape(line)));
    }
}

impl SymbolWarnings {
    /// Records that a file is assumed to be the traced file, because the trace has no build id.
    pub(super) fn note_assumed(&mut self, path: &str) {
        add_file(&mut self.assumed_files, path);
    }

    /// Records that neither a file nor a substitute can be opened.
    pub(super) fn note_missing(&mut self, path: &str) {
        add_file(&mut self.missing_files, path);
    }

    /// Returns the warnings about many files, one line each.
    fn summary_lines(&self) -> Vec<String> {
        let (assumed, missing) = (&self.assumed_files, &self.missing_files);
        let mut lines = Vec::new();
        if let Some(names) = format_file_list(assumed) {
            let paths = if assumed.len() == 1 { "the file at that path" } else { "the files at those paths" };
            lines.push(format!("warning: the trace does not contain the build id of {names}: using {paths}"));
        }
        if let Some(names) = format_file_list(missing) {
            let pronoun = if missing.len() == 1 { "it" } else { "them" };
            lines.push(format!(
                "warning: {names} cannot be opened: functions in {pronoun} have no names; --symbol-path may help to find {pronoun}"
            ));
        }
        lines
    }

    /// Warns if a file has more symbols than are kept.
    pub(super) fn warn_if_truncated(&mut self, table: &SymbolTable, subject: &str) {
        if table.is_cut() {
            self.warn(subject, "it has more symbols than are kept; functions may have no name, or that of an earlier function");
        }
    }

    /// Prints a warning about a file or the kernel, unless it was printed before.
    pub(super) fn warn(&mut self, subject: &str, reason: &str) {
        let line = escape(&format!("warning: {subject}: {reason}"));
        if self.printed.contains(&line) || self.was_limit_reported {
            return;
        }
        if self.printed.len() >= MAX_WARNINGS {
            self.was_limit_reported = true;
            eprintln!("warning: further warnings about symbols are not shown");
            return;
        }
        eprintln!("{line}");
        self.printed.insert(line);
    }
}

fn add_file(files: &mut BTreeSet<String>, path: &str) {
    if files.len() < MAX_COUNTED_FILES {
        files.insert(path.to_owned());
    }
}

/// Returns the first file names, and how many more there are.
fn format_file_list(files: &BTreeSet<String>) -> Option<String> {
    let mut names: Vec<&str> = files.iter().take(MAX_NAMED_FILES).map(String::as_str).collect();
    let last = names.pop()?;
    let more = files.len().saturating_sub(MAX_NAMED_FILES);
    Some(match (names.is_empty(), more) {
        (true, _) => last.to_owned(),
        (false, 0) => format!("{} and {last}", names.join(", ")),
        (false, _) => format!("{}, {last} and {more} more", names.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_about_many_files_are_one_line_each() {
        let mut warnings = SymbolWarnings::default();
        assert!(warnings.summary_lines().is_empty());
        warnings.note_missing("/a");
        assert!(warnings.summary_lines()[0].contains("warning: /a cannot be opened"));
        for index in 0..9 {
            warnings.note_missing("/a");
            warnings.note_assumed(&format!("/lib/{index}"));
        }
        let lines = warnings.summary_lines();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("/lib/0, /lib/1, /lib/2 and 6 more"), "{lines:?}");
        warnings.assumed_files.clear();
        warnings.missing_files.clear();
    }
}
