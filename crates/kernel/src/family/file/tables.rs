//! Tables of descriptors, and the processes that have them.
//!
//! ```text
//!   process 10 ─┬▶ table 1   3 4 7        clone with CLONE_FILES: one table, several processes
//!   process 11 ─┘
//!   process 12 ──▶ table 2   3 4          fork: a table of its own
//! ```
//!
//! 1. A process has one table, which goes with the last process that has it. 2. No number of a table is used again. 3. `descriptors` is the sum of all.

use std::collections::{BTreeMap, HashMap};

/// What descriptors lead to, by their numbers.
pub(super) type Table<T> = BTreeMap<u32, T>;

/// A table, and how many processes have it.
#[derive(Debug)]
struct Shared<T> {
    users: u32,
    table: Table<T>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Tables<T> {
    /// The table of a process.
    processes: HashMap<u32, u64>,
    tables: HashMap<u64, Shared<T>>,
    descriptors: usize,
    last: u64,
}

impl<T> Default for Tables<T> {
    fn default() -> Self {
        Self { processes: HashMap::new(), tables: HashMap::new(), descriptors: 0, last: 0 }
    }
}

impl<T> Tables<T> {
    /// Descriptors of all tables.
    pub(super) fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// The number of the table that a process has.
    pub(super) fn number_of(&self, process: u32) -> Option<u64> {
        self.processes.get(&process).copied()
    }

    pub(super) fn of(&self, process: u32) -> Option<&Table<T>> {
        Some(&self.tables.get(&self.number_of(process)?)?.table)
    }

    pub(super) fn get(&self, process: u32, descriptor: u32) -> Option<&T> {
        self.of(process)?.get(&descriptor)
    }

    pub(super) fn get_mut(&mut self, process: u32, descriptor: u32) -> Option<&mut T> {
        let number = self.number_of(process)?;
        self.tables.get_mut(&number)?.table.get_mut(&descriptor)
    }

    /// The number of the table of a process, which has one from now on.
    fn of_some(&mut self, process: u32) -> u64 {
        if let Some(number) = self.number_of(process) {
            return number;
        }
        self.last = self.last.wrapping_add(1);
        self.processes.insert(process, self.last);
        self.tables.insert(self.last, Shared { users: 1, table: Table::new() });
        self.last
    }

    /// A descriptor of a process leads there; what it led to.
    pub(super) fn insert(&mut self, process: u32, descriptor: u32, to: T) -> Option<T> {
        let number = self.of_some(process);
        let old = self.tables.get_mut(&number)?.table.insert(descriptor, to);
        if old.is_none() {
            self.descriptors = self.descriptors.saturating_add(1);
        }
        old
    }

    pub(super) fn remove(&mut self, process: u32, descriptor: u32) -> Option<T> {
        let number = self.number_of(process)?;
        let old = self.tables.get_mut(&number)?.table.remove(&descriptor)?;
        self.descriptors = self.descriptors.saturating_sub(1);
        Some(old)
    }

    /// A process has the table of another. It must have left its own before.
    pub(super) fn share(&mut self, of: u32, process: u32) {
        let number = self.of_some(of);
        if let Some(shared) = self.tables.get_mut(&number) {
            shared.users = shared.users.saturating_add(1);
            self.processes.insert(process, number);
        }
    }

    /// Whether others have the table of a process too.
    pub(super) fn is_shared(&self, process: u32) -> bool {
        let shared = self.number_of(process).and_then(|number| self.tables.get(&number));
        shared.is_some_and(|shared| shared.users > 1)
    }

    /// A process has no table any more. What was in it, where it was the last that had it.
    pub(super) fn leave(&mut self, process: u32) -> Option<Table<T>> {
        let number = self.processes.remove(&process)?;
        let shared = self.tables.get_mut(&number)?;
        shared.users = shared.users.saturating_sub(1);
        if shared.users > 0 {
            return None;
        }
        let table = self.tables.remove(&number)?.table;
        self.descriptors = self.descriptors.saturating_sub(table.len());
        Some(table)
    }

    /// Forgets everything but the tables that are shared, which are empty then.
    pub(super) fn clear(&mut self) {
        let is_shared = |shared: &Shared<T>| shared.users > 1;
        self.tables.retain(|_, shared| is_shared(shared));
        self.tables.values_mut().for_each(|shared| shared.table = Table::new());
        let tables = &self.tables;
        self.processes.retain(|_, number| tables.contains_key(number));
        self.descriptors = 0;
    }
}
