//! Warnings about symbols. Each is reported once: a warning about one file immediately, a warning
//! that can concern many files at the end.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use traceweir_decode::symbols::SymbolTable;

use crate::observer::{FileList, ReadObserver, SymbolProblem, Warning};

/// Maximum number of warnings about single files.
const MAX_WARNINGS: usize = 32;

/// Maximum number of files that a warning at the end counts.
const MAX_COUNTED_FILES: usize = 1 << 14;
/// Maximum number of files that a warning at the end names.
const MAX_NAMED_FILES: usize = 3;

/// The warnings that were reported, and those for the end.
pub(super) struct SymbolWarnings {
    observer: Arc<dyn ReadObserver>,
    reported: HashSet<(String, SymbolProblem)>,
    was_limit_reported: bool,
    /// Files that are assumed to be the traced files, because of their path only.
    assumed_files: BTreeSet<String>,
    /// Files that cannot be opened.
    missing_files: BTreeSet<String>,
}

impl Drop for SymbolWarnings {
    fn drop(&mut self) {
        self.final_warnings().iter().for_each(|warning| self.observer.warn(warning));
    }
}

impl SymbolWarnings {
    pub(super) fn new(observer: Arc<dyn ReadObserver>) -> Self {
        Self {
            observer,
            reported: HashSet::new(),
            was_limit_reported: false,
            assumed_files: BTreeSet::new(),
            missing_files: BTreeSet::new(),
        }
    }

    /// Records that a file is assumed to be the traced file, because the trace has no build id.
    pub(super) fn note_assumed(&mut self, path: &str) {
        add_file(&mut self.assumed_files, path);
    }

    /// Records that neither a file nor a substitute can be opened.
    pub(super) fn note_missing(&mut self, path: &str) {
        add_file(&mut self.missing_files, path);
    }

    /// Returns the warnings about many files.
    fn final_warnings(&self) -> Vec<Warning> {
        let assumed = list_files(&self.assumed_files).map(Warning::AssumedFiles);
        assumed.into_iter().chain(list_files(&self.missing_files).map(Warning::MissingFiles)).collect()
    }

    /// Warns if a file has more symbols than are kept.
    pub(super) fn warn_if_truncated(&mut self, table: &SymbolTable, subject: &str) {
        if table.is_cut() {
            self.warn(subject, SymbolProblem::Truncated);
        }
    }

    /// Reports a problem of a file or the kernel, unless it was reported before.
    pub(super) fn warn(&mut self, subject: &str, problem: SymbolProblem) {
        let key = (subject.to_owned(), problem);
        if self.reported.contains(&key) || self.was_limit_reported {
            return;
        }
        if self.reported.len() >= MAX_WARNINGS {
            self.was_limit_reported = true;
            self.observer.warn(&Warning::MoreSymbols);
            return;
        }
        let (subject, problem) = key.clone();
        self.observer.warn(&Warning::Symbols { subject, problem });
        self.reported.insert(key);
    }
}

fn add_file(files: &mut BTreeSet<String>, path: &str) {
    if files.len() < MAX_COUNTED_FILES {
        files.insert(path.to_owned());
    }
}

/// Returns the first file names and the number of files; `None` without files.
fn list_files(files: &BTreeSet<String>) -> Option<FileList> {
    let names = files.iter().take(MAX_NAMED_FILES).cloned().collect();
    (!files.is_empty()).then_some(FileList { names, count: files.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_about_many_files_are_one_line_each() {
        let mut warnings = SymbolWarnings::new(Arc::new(()));
        assert!(warnings.final_warnings().is_empty());
        warnings.note_missing("/a");
        assert!(warnings.final_warnings()[0].to_string().starts_with("/a cannot be opened"));
        for index in 0..9 {
            warnings.note_missing("/a");
            warnings.note_assumed(&format!("/lib/{index}"));
        }
        let lines: Vec<String> = warnings.final_warnings().iter().map(Warning::to_string).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("/lib/0, /lib/1, /lib/2 and 6 more"), "{lines:?}");
    }
}
