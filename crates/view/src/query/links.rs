//! Threads and processes in filters, by the ids and names that the page shows.
//!
//! ```text
//!   thread:18156      all threads that had this id
//!   thread:18156@2    the second of them, in the order of the index
//!   process:python3   all processes of this name, with the wildcards * and ?
//! ```

use std::collections::HashMap;

use traceweir_analysis::text::matches_pattern;

use crate::index::Index;
use crate::index::threads::Thread;
use crate::query::{file_name, process_label, thread_label};

/// The threads or processes that an option of a filter names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LinkTarget {
    Id {
        id: u32,
        /// Which of those with this id, counted from 1; `None` for all.
        number: Option<u32>,
    },
    /// In lower case.
    Name(String),
}

impl LinkTarget {
    /// Parses the value of an option; `None` if it has a number that is out of range.
    pub(super) fn parse(value: &str) -> Option<Self> {
        let (id, number) = value.split_once('@').map_or((value, None), |(id, number)| (id, Some(number)));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(id) || !number.is_none_or(is_number) {
            return Some(Self::Name(value.to_lowercase()));
        }
        let number = number.map(|number| number.parse().ok().filter(|number| *number > 0));
        match number {
            Some(None) => None,
            number => Some(Self::Id { id: id.parse().ok()?, number: number.flatten() }),
        }
    }

    fn accepts(&self, (id, number): (u32, u32), names: impl Fn() -> [String; 3]) -> bool {
        match self {
            Self::Id { id: wanted, number: chosen } => {
                *wanted == id && chosen.is_none_or(|chosen| chosen == number)
            }
            Self::Name(pattern) => {
                names().iter().any(|name| !name.is_empty() && matches_pattern(pattern, &name.to_lowercase()))
            }
        }
    }
}

/// The ids of all threads or processes, some of which were reused.
pub(super) struct LinkIds {
    /// The id of each, and which of those with this id it is, counted from 1.
    ids: Vec<(u32, u32)>,
    counts: HashMap<u32, u32>,
}

impl LinkIds {
    pub(super) fn of_threads(index: &Index) -> Self {
        Self::new(index.threads.threads.iter().map(|thread| thread.tid))
    }

    pub(super) fn of_processes(index: &Index) -> Self {
        Self::new(index.threads.processes.iter().map(|process| process.pid))
    }

    fn new(ids: impl Iterator<Item = u32>) -> Self {
        let mut counts: HashMap<u32, u32> = HashMap::new();
        let to_numbered = |id: u32| {
            let count = counts.entry(id).or_default();
            *count = count.saturating_add(1);
            (id, *count)
        };
        let ids = ids.map(to_numbered).collect();
        Self { ids, counts }
    }

    /// Returns the value of the option that names a thread or process by its index, such as `18156`
    /// or, if the id was reused, `18156@2`.
    pub(super) fn value(&self, index: u32) -> String {
        let Some((id, number)) = self.ids.get(index as usize) else { return String::new() };
        match self.counts.get(id) {
            Some(count) if *count > 1 => format!("{id}@{number}"),
            _ => id.to_string(),
        }
    }
}

/// Returns which threads the options `thread` and `process` of a filter name together.
pub(super) fn choose_threads(index: &Index, threads: &[LinkTarget], processes: &[LinkTarget]) -> Vec<bool> {
    let path = |name: Option<&str>| name.unwrap_or_default().to_owned();
    let by_process: Vec<bool> = (0_u32..)
        .zip(&LinkIds::of_processes(index).ids)
        .zip(&index.threads.processes)
        .map(|((number, id), process)| {
            let name = process.name.as_deref();
            let names = || [path(name), path(name.map(file_name)), process_label(index, number)];
            processes.iter().any(|target| target.accepts(*id, names))
        })
        .collect();
    let is_chosen = |(id, thread): (&(u32, u32), &Thread)| {
        let names = || [path(thread.name.as_deref()), thread_label(thread), String::new()];
        (processes.is_empty() || by_process.get(thread.process as usize) == Some(&true))
            && (threads.is_empty() || threads.iter().any(|target| target.accepts(*id, names)))
    };
    LinkIds::of_threads(index).ids.iter().zip(&index.threads.threads).map(is_chosen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_ids_are_numbered() {
        let ids = LinkIds::new([0, 7, 9, 7].into_iter());
        assert_eq!([0, 1, 2, 3, 4].map(|index| ids.value(index)), ["0", "7@1", "9", "7@2", ""]);
    }

    #[test]
    fn values_are_ids_or_names() {
        let id = |id, number| Some(LinkTarget::Id { id, number });
        assert_eq!(LinkTarget::parse("18156"), id(18156, None));
        assert_eq!(LinkTarget::parse("18156@2"), id(18156, Some(2)));
        for name in ["python3", "user@host", "7@", "@7", "-1", "python3 (7)"] {
            assert_eq!(LinkTarget::parse(name), Some(LinkTarget::Name(name.to_owned())));
        }
        for wrong in ["4294967296", "7@0", "7@4294967296"] {
            assert_eq!(LinkTarget::parse(wrong), None, "{wrong}");
        }
    }
}
