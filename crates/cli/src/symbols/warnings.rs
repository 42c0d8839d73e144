//! What people are told once.

use std::collections::HashSet;

use anstream::eprintln;
use traceweir_decode::symbols::Table;

use crate::export::plain;

/// Words that are said before the rest is only counted.
const MAX_SAID: usize = 32;

/// What was said already.
#[derive(Default)]
pub(super) struct Warnings {
    said: HashSet<String>,
    is_full: bool,
}

impl Warnings {
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
