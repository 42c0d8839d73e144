//! Names from traced programs and from `/proc`, escaped and shortened, as a table keeps them.

use std::sync::Arc;

use traceweir_analysis::processes;

use super::history::Second;
use crate::text::escape;

/// The most bytes of a name. A longer name ends with `…`.
const MAX_NAME_BYTES: usize = 200;
/// After this time, the name of a process is read again: a process can start another program.
const MAX_NAME_AGE_SECONDS: i64 = 5;

/// Escapes and shortens a name.
pub(super) fn shown_name(name: &str) -> Arc<str> {
    let is_long = name.len() > MAX_NAME_BYTES;
    // Escapes make a name longer, so a name of any length is shortened before and after.
    let escaped = escape(truncate(name, MAX_NAME_BYTES));
    if is_long || escaped.len() > MAX_NAME_BYTES {
        return format!("{}…", truncate(&escaped, MAX_NAME_BYTES - '…'.len_utf8())).into();
    }
    escaped.into()
}

/// Returns the first part of a text, of at most this many bytes.
fn truncate(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The name of a process, and when it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessName {
    pub(super) name: Option<Arc<str>>,
    read: Option<Second>,
}

impl ProcessName {
    /// Reads the name again if it is old. A process that has ended keeps its name.
    #[inline]
    pub(super) fn refresh(&mut self, now: Second, find_name: impl FnOnce() -> Option<String>) {
        if self.read.is_some_and(|read| now.0.saturating_sub(read.0) < MAX_NAME_AGE_SECONDS) {
            return;
        }
        self.read = Some(now);
        if let Some(name) = find_name() {
            self.name = Some(shown_name(&name));
        }
    }
}

/// Returns the name of the program that a running process runs.
pub(super) fn find_program_name(pid: u32) -> Option<String> {
    let program = processes::program_of(pid)?;
    Some(file_name(&program).to_owned())
}

/// Returns the last part of the path of a program. A kernel thread has no path, and its name may
/// contain slashes.
fn file_name(program: &str) -> &str {
    match program.strip_prefix('/') {
        Some(path) => path.rsplit('/').next().unwrap_or(path),
        None => program,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_are_escaped_and_long_names_are_cut() {
        assert_eq!(&*shown_name("a\x1b[2J\u{202e}b"), "a\\x1b[2J\\u{202e}b");
        let long = shown_name(&"é".repeat(60_000));
        assert!(long.len() <= MAX_NAME_BYTES && long.ends_with('…'), "{long}");
    }

    proptest! {
        #[test]
        fn shown_names_are_short_and_printable(chars in proptest::collection::vec(any::<char>(), 0..300)) {
            let name: String = chars.into_iter().collect();
            let shown = shown_name(&name);
            prop_assert!(shown.len() <= MAX_NAME_BYTES);
            prop_assert!(!shown.chars().any(char::is_control), "{:?}", shown);
        }
    }

    #[test]
    fn only_a_path_is_reduced_to_its_last_part() {
        assert_eq!(["/usr/bin/app", "kworker/0:1", "/"].map(file_name), ["app", "kworker/0:1", ""]);
    }

    #[test]
    fn name_of_an_ended_process_is_kept() {
        let mut name = ProcessName::default();
        name.refresh(Second(10), || Some("app".to_owned()));
        name.refresh(Second(12), || panic!("the name is read too often"));
        name.refresh(Second(15), || None);
        assert_eq!(name.name.as_deref(), Some("app"));
    }
}
