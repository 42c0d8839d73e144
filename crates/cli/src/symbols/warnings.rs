//! What people are told once: at once what is about one file, at the end, in one line each, what many files have in common.

use std::collections::{BTreeSet, HashSet};

use anstream::eprintln;
use traceweir_decode::symbols::Table;

use crate::export::plain;

/// Words that are said before the rest is only counted.
const MAX_SAID: usize = 32;

/// Files of one kind that are counted, and those that are named.
const MAX_FILES: usize = 1 << 14;
const NAMED: usize = 3;

/// What was said already, and what is to be said at the end.
#[derive(Default)]
pub(super) struct Warnings {
    said: HashSet<String>,
    is_full: bool,
    /// Files that were taken for those of the trace by their path alone.
    assumed: BTreeSet<String>,
    /// Files that are not there.
    gone: BTreeSet<String>,
}

impl Drop for Warnings {
    fn drop(&mut self) {
        self.common().iter().for_each(|line| eprintln!("{}", plain(line)));
    }
}

impl Warnings {
    /// Notes that a file is taken for the traced one although the trace has no build id to tell.
    pub(super) fn note_assumed(&mut self, path: &str) {
        note(&mut self.assumed, path);
    }

    /// Notes that a file is not there, nor anything that stands for it.
    pub(super) fn note_gone(&mut self, path: &str) {
        note(&mut self.gone, path);
    }

    /// What files have in common, one line each.
    fn common(&self) -> Vec<String> {
        let (assumed, gone) = (&self.assumed, &self.gone);
        let mut lines = Vec::new();
        if let Some(names) = some_of(assumed) {
            let it = if assumed.len() == 1 {
                "is at that path now is taken for it"
            } else {
                "is at those paths now is taken for them"
            };
            lines.push(format!("warning: the trace does not tell the build id of {names}: what {it}"));
        }
        if let Some(names) = some_of(gone) {
            let (are, it) = if gone.len() == 1 { ("is", "it") } else { ("are", "them") };
            lines.push(format!(
                "warning: {names} {are} not there (any more): functions in {it} have no names; --symbol-path may lead to {it}"
            ));
        }
        lines
    }

    /// Says of a file that it has more symbols than were taken, if that is so.
    pub(super) fn say_if_cut(&mut self, table: &Table, about: &str) {
        if table.is_cut() {
            self.say(about, "it has more symbols than are kept; functions may have no name, or that of another before them");
        }
    }

    /// Says something about a file or the kernel, unless it was said before.
    pub(super) fn say(&mut self, about: &str, what: &str) {
        let line = plain(&format!("warning: {about}: {what}"));
        if self.said.contains(&line) || self.is_full {
            return;
        }
        if self.said.len() >= MAX_SAID {
            self.is_full = true;
            eprintln!("warning: more files have no symbols that fit, which are not listed");
            return;
        }
        eprintln!("{line}");
        self.said.insert(line);
    }
}

fn note(files: &mut BTreeSet<String>, path: &str) {
    if files.len() < MAX_FILES {
        files.insert(path.to_owned());
    }
}

/// The first names of a row of files, and how many more there are.
fn some_of(files: &BTreeSet<String>) -> Option<String> {
    let mut names: Vec<&str> = files.iter().take(NAMED).map(String::as_str).collect();
    let last = names.pop()?;
    let more = files.len().saturating_sub(NAMED);
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
    fn what_many_files_have_in_common_is_one_line() {
        let mut warnings = Warnings::default();
        assert!(warnings.common().is_empty());
        warnings.note_gone("/a");
        assert!(warnings.common()[0].contains("warning: /a is not there"));
        for index in 0..9 {
            warnings.note_gone("/a");
            warnings.note_assumed(&format!("/lib/{index}"));
        }
        let lines = warnings.common();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("/lib/0, /lib/1, /lib/2 and 6 more"), "{lines:?}");
        warnings.assumed.clear();
        warnings.gone.clear();
    }
}
