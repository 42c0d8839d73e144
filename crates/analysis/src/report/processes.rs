//! The processes of a report, by pid and name, each with an id; and the selection of processes and
//! threads.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::header::NO_ID;

use crate::text::matches_pattern;

/// Maximum number of processes; further ones are merged into one.
const MAX_PROCESSES: usize = 1 << 17;
const MAX_SUGGESTIONS: usize = 5;
/// Maximum number of characters of a name to compare.
const MAX_COMPARED_CHARS: usize = 64;
const MAX_NAMES_PER_PID: usize = 64;

/// The id of a process in a report. The default stands for processes beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(u32);

#[derive(Debug)]
pub struct ProcessTable {
    /// Pids and names by id.
    entries: Vec<(u32, Option<Arc<str>>)>,
    by_pid: HashMap<u32, Vec<ProcessId>>,
}

impl Default for ProcessTable {
    fn default() -> Self {
        Self { entries: vec![(NO_ID, Some("(other)".into()))], by_pid: HashMap::new() }
    }
}

impl ProcessTable {
    /// Returns the id of the process with a pid and a name, and adds the process if it is new.
    pub fn find_or_add(&mut self, pid: u32, name: Option<&str>) -> ProcessId {
        let name = name.filter(|name| !name.is_empty());
        let ids = self.by_pid.get(&pid).map(Vec::as_slice).unwrap_or_default();
        let entries = &self.entries;
        let has_name = |id: &&ProcessId| {
            entries.get(id.0 as usize).is_some_and(|(_, entry_name)| entry_name.as_deref() == name)
        };
        if let Some(id) = ids.iter().rev().find(has_name) {
            return *id;
        }
        let next = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        if self.entries.len() >= MAX_PROCESSES || ids.len() >= MAX_NAMES_PER_PID {
            return ProcessId::default();
        }
        self.entries.push((pid, name.map(Arc::from)));
        self.by_pid.entry(pid).or_default().push(ProcessId(next));
        ProcessId(next)
    }

    /// Returns the pid; `None` for events without a process and for processes beyond the limit.
    pub fn pid(&self, id: ProcessId) -> Option<u32> {
        self.entries.get(id.0 as usize).map(|(pid, _)| *pid).filter(|pid| *pid != NO_ID)
    }

    pub fn name(&self, id: ProcessId) -> Option<&str> {
        self.entries.get(id.0 as usize).and_then(|(_, name)| name.as_deref())
    }

    /// Formats name and pid for people.
    pub fn label(&self, id: ProcessId) -> String {
        match (self.pid(id), self.name(id)) {
            (Some(pid), Some(name)) => format!("{name} ({pid})"),
            (Some(pid), None) => format!("process {pid}"),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "(no process)".to_owned(),
        }
    }
}

/// The processes and threads that the user selected.
#[derive(Debug, Default)]
pub struct ThreadSelection {
    pids: Vec<u32>,
    patterns: Vec<String>,
    tids: Vec<u32>,
}

impl ThreadSelection {
    /// Selects processes by pid or by name with wildcards, and threads by id; selects all if both
    /// lists are empty.
    pub fn new(processes: &[String], threads: &[u32]) -> Self {
        let pids = processes.iter().filter_map(|text| text.parse().ok()).collect();
        let names = processes.iter().filter(|text| text.parse::<u32>().is_err());
        Self { pids, patterns: names.map(|text| text.to_lowercase()).collect(), tids: threads.to_vec() }
    }

    /// Returns whether the user selected any process or thread.
    pub fn is_limited(&self) -> bool {
        !(self.pids.is_empty() && self.patterns.is_empty() && self.tids.is_empty())
    }

    /// Returns whether a thread of a process is selected.
    pub fn contains(&self, processes: &ProcessTable, process: ProcessId, tid: u32) -> bool {
        let is_any_process = self.pids.is_empty() && self.patterns.is_empty();
        let has_pid = || processes.pid(process).is_some_and(|pid| self.pids.contains(&pid));
        let has_name = || {
            let name = processes.name(process).map(str::to_lowercase);
            name.is_some_and(|name| self.patterns.iter().any(|pattern| matches_pattern(pattern, &name)))
        };
        (self.tids.is_empty() || self.tids.contains(&tid)) && (is_any_process || has_pid() || has_name())
    }

    /// Explains that the selection matches nothing, and suggests similar names. `noun` names the
    /// events in the trace, such as "samples".
    pub fn no_match_message(&self, processes: &ProcessTable, noun: &str) -> String {
        let pids = self.pids.iter().map(u32::to_string);
        let requested: Vec<String> = self.patterns.iter().cloned().chain(pids).collect();
        let threads: Vec<String> = self.tids.iter().map(u32::to_string).collect();
        let mut text = format!("no {noun}");
        for (kind, names) in [("process", requested), ("thread", threads)] {
            if !names.is_empty() {
                text.push_str(&format!(" of {kind} {}", names.join(", ")));
            }
        }
        // Similar names first, processes without a name last.
        let mut candidates: Vec<(bool, bool, String)> = Vec::new();
        for (index, (_, name)) in processes.entries.iter().enumerate().skip(1) {
            let id = ProcessId(u32::try_from(index).unwrap_or_default());
            let is_similar = name
                .as_ref()
                .is_some_and(|name| self.patterns.iter().any(|pattern| is_similar(pattern, name)));
            candidates.push((!is_similar, name.is_none(), processes.label(id)));
        }
        candidates.sort();
        let similar_count = candidates.iter().filter(|(is_dissimilar, ..)| !is_dissimilar).count();
        let (intro, count) = if similar_count > 0 {
            ("there is", similar_count)
        } else {
            ("others have them:", candidates.len())
        };
        let names: Vec<&str> =
            candidates.iter().take(count.min(MAX_SUGGESTIONS)).map(|(.., name)| name.as_str()).collect();
        if !names.is_empty() {
            text.push_str(&format!("; {intro} {}", names.join(", ")));
        }
        if count > MAX_SUGGESTIONS {
            text.push_str(&format!(" and {} more", count - MAX_SUGGESTIONS));
        }
        text
    }
}

/// Returns whether a file name is similar to a pattern whose wildcards are ignored: the pattern is
/// part of the name, or the name is part of the pattern and has at least three characters, or they
/// differ in at most two characters (one, if the pattern has at most four).
fn is_similar(pattern: &str, name: &str) -> bool {
    let comparable_chars = |text: &str| {
        text.chars().filter(|c| !matches!(c, '*' | '?')).take(MAX_COMPARED_CHARS).collect::<Vec<_>>()
    };
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name).to_lowercase();
    let (pattern_chars, name_chars) = (comparable_chars(pattern), comparable_chars(&name));
    if pattern_chars.is_empty() || name_chars.is_empty() {
        return false;
    }
    let is_part = |part: &[char], whole: &[char]| whole.windows(part.len()).any(|window| window == part);
    is_part(&pattern_chars, &name_chars)
        || (name_chars.len() > 2 && is_part(&name_chars, &pattern_chars))
        || edit_distance(&pattern_chars, &name_chars) <= pattern_chars.len().div_ceil(4).min(2)
}

/// Returns the edit distance: the number of characters to insert, remove or change.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (to, above) in b.iter().zip(row.iter_mut().skip(1)) {
            let changed = diagonal + usize::from(from != to);
            diagonal = *above;
            *above = changed.min(left + 1).min(diagonal + 1);
            left = *above;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_pid_is_another_process() {
        let mut table = ProcessTable::default();
        let (a, b, c) =
            (table.find_or_add(7, Some("a")), table.find_or_add(7, Some("b")), table.find_or_add(7, None));
        assert!(a != b && b != c && table.find_or_add(7, Some("a")) == a && table.find_or_add(7, None) == c);
        assert_eq!((table.label(a), table.label(c)), ("a (7)".to_owned(), "process 7".to_owned()));
        assert_eq!(table.find_or_add(7, Some("")), c, "an empty name must count as no name");
        let no_process = table.find_or_add(NO_ID, None);
        assert_eq!(table.label(no_process), "(no process)");
        for n in 0..MAX_PROCESSES as u32 {
            table.find_or_add(n, None);
        }
        assert_eq!(table.entries.len(), MAX_PROCESSES);
    }

    #[test]
    fn selection_matches_processes_by_pid_or_name_and_threads_by_id() {
        let mut table = ProcessTable::default();
        let (a, b) = (table.find_or_add(7, Some("Alpha.exe")), table.find_or_add(8, None));
        let is_selected = |processes: &[&str], threads: &[u32], id, tid| {
            let typed: Vec<String> = processes.iter().map(|&p| p.to_owned()).collect();
            ThreadSelection::new(&typed, threads).contains(&table, id, tid)
        };
        assert!(
            is_selected(&[], &[], a, 1)
                && is_selected(&["alpha*"], &[], a, 1)
                && is_selected(&["8"], &[], b, 1)
        );
        assert!(!is_selected(&["alpha*"], &[], b, 1) && !is_selected(&["7"], &[], b, 1));
        assert!(is_selected(&["7"], &[1], a, 1) && !is_selected(&["7"], &[2], a, 1));
    }

    #[test]
    fn similar_names_are_suggested() {
        let mut table = ProcessTable::default();
        for (pid, name) in [(7, "python3.11"), (8, "/usr/bin/postgres"), (9, "sh")] {
            table.find_or_add(pid, Some(name));
        }
        let no_match_message =
            |typed: &str| ThreadSelection::new(&[typed.to_owned()], &[]).no_match_message(&table, "samples");
        assert_eq!(no_match_message("python"), "no samples of process python; there is python3.11 (7)");
        assert_eq!(
            no_match_message("Postgers"),
            "no samples of process postgers; there is /usr/bin/postgres (8)"
        );
        let others = "others have them: /usr/bin/postgres (8), python3.11 (7), sh (9)";
        assert_eq!(no_match_message("nosuch"), format!("no samples of process nosuch; {others}"));
        assert_eq!(no_match_message("12"), format!("no samples of process 12; {others}"));
        let by_thread =
            ThreadSelection::new(&[], &[5]).no_match_message(&ProcessTable::default(), "switches");
        assert_eq!(by_thread, "no switches of thread 5");
        let mut many = ProcessTable::default();
        (0..9).for_each(|pid| {
            many.find_or_add(pid, Some("python"));
        });
        let text = ThreadSelection::new(&["pyton*".to_owned()], &[]).no_match_message(&many, "samples");
        assert!(text.ends_with("python (3), python (4) and 4 more"), "{text}");
    }

    #[test]
    fn edit_distance_counts_changes() {
        let count =
            |a: &str, b: &str| edit_distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!((count("", ""), count("abc", ""), count("", "ab")), (0, 3, 2));
        assert_eq!((count("kitten", "sitting"), count("same", "same")), (3, 0));
    }
}
