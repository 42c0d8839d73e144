//! Processes of reports: by number and name, each with an id of its own; and which of them a person wants.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::header::NO_ID;

use crate::filter::matches;

/// Processes that are told apart; further ones are one.
const MAX_PROCESSES: usize = 1 << 17;
/// Names of one number that are told apart.
const MAX_NAMES: usize = 64;

/// A process of a report. The default is what is beyond the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId(u32);

/// The processes that a report has met.
#[derive(Debug)]
pub(crate) struct Processes {
    all: Vec<(u32, Option<Arc<str>>)>,
    by_pid: HashMap<u32, Vec<ProcessId>>,
}

impl Default for Processes {
    fn default() -> Self {
        Self { all: vec![(NO_ID, Some("(other)".into()))], by_pid: HashMap::new() }
    }
}

impl Processes {
    /// The process of a number and a name.
    pub(crate) fn id(&mut self, pid: u32, name: Option<&str>) -> ProcessId {
        let known = self.by_pid.get(&pid).map(Vec::as_slice).unwrap_or_default();
        let all = &self.all;
        let is_it = |id: &&ProcessId| all.get(id.0 as usize).is_some_and(|(_, it)| it.as_deref() == name);
        if let Some(id) = known.iter().rev().find(is_it) {
            return *id;
        }
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        if self.all.len() >= MAX_PROCESSES || known.len() >= MAX_NAMES {
            return ProcessId::default();
        }
        self.all.push((pid, name.map(Arc::from)));
        self.by_pid.entry(pid).or_default().push(ProcessId(next));
        ProcessId(next)
    }

    /// Its number, where it has one.
    pub(crate) fn pid(&self, id: ProcessId) -> Option<u32> {
        self.all.get(id.0 as usize).map(|(pid, _)| *pid).filter(|pid| *pid != NO_ID)
    }

    /// Its name, where the trace tells one.
    pub(crate) fn name(&self, id: ProcessId) -> Option<&str> {
        self.all.get(id.0 as usize).and_then(|(_, name)| name.as_deref())
    }

    /// Both, for people.
    pub(crate) fn label(&self, id: ProcessId) -> String {
        match (self.pid(id), self.name(id)) {
            (Some(pid), Some(name)) => format!("{name} ({pid})"),
            (Some(pid), None) => format!("process {pid}"),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "(no process)".to_owned(),
        }
    }
}

/// Which processes and threads a person wants.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pids: Vec<u32>,
    patterns: Vec<String>,
    tids: Vec<u32>,
}

impl Wanted {
    /// Processes by number or by name with wildcards, threads by number; all where none is named.
    pub(crate) fn new(processes: &[String], threads: &[u32]) -> Self {
        let pids = processes.iter().filter_map(|text| text.parse().ok()).collect();
        let names = processes.iter().filter(|text| text.parse::<u32>().is_err());
        Self { pids, patterns: names.map(|text| text.to_lowercase()).collect(), tids: threads.to_vec() }
    }

    /// Whether any was named.
    pub(crate) fn is_some_only(&self) -> bool {
        !(self.pids.is_empty() && self.patterns.is_empty() && self.tids.is_empty())
    }

    /// Whether this one is.
    pub(crate) fn wants(&self, processes: &Processes, process: ProcessId, tid: u32) -> bool {
        let all = self.pids.is_empty() && self.patterns.is_empty();
        let by_pid = || processes.pid(process).is_some_and(|pid| self.pids.contains(&pid));
        let by_name = || {
            let name = processes.name(process).map(str::to_lowercase);
            name.is_some_and(|name| self.patterns.iter().any(|pattern| matches(pattern, &name)))
        };
        (self.tids.is_empty() || self.tids.contains(&tid)) && (all || by_pid() || by_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut all = Processes::default();
        let (a, b, c) = (all.id(7, Some("a")), all.id(7, Some("b")), all.id(7, None));
        assert!(a != b && b != c && all.id(7, Some("a")) == a && all.id(7, None) == c);
        assert_eq!((all.label(a), all.label(c)), ("a (7)".to_owned(), "process 7".to_owned()));
        let nobody = all.id(NO_ID, None);
        assert_eq!(all.label(nobody), "(no process)");
        for n in 0..MAX_PROCESSES as u32 {
            all.id(n, None);
        }
        assert_eq!(all.all.len(), MAX_PROCESSES);
        assert_eq!(
            all.label(all.by_pid.get(&u32::MAX).map_or(ProcessId::default(), |_| nobody)),
            "(no process)"
        );
    }

    #[test]
    fn processes_are_wanted_by_number_or_name_and_threads_by_number() {
        let mut all = Processes::default();
        let (a, b) = (all.id(7, Some("Alpha.exe")), all.id(8, None));
        let wants = |processes: &[&str], threads: &[u32], id, tid| {
            let typed: Vec<String> = processes.iter().map(|&p| p.to_owned()).collect();
            Wanted::new(&typed, threads).wants(&all, id, tid)
        };
        assert!(wants(&[], &[], a, 1) && wants(&["alpha*"], &[], a, 1) && wants(&["8"], &[], b, 1));
        assert!(!wants(&["alpha*"], &[], b, 1) && !wants(&["7"], &[], b, 1));
        assert!(wants(&["7"], &[1], a, 1) && !wants(&["7"], &[2], a, 1));
    }
}
