//! Descriptor tables, and the processes that use them.
//!
//! ```text
//!   process 10 ─┬▶ table 1   3 4 7        clone with CLONE_FILES: one table, several processes
//!   process 11 ─┘
//!   process 12 ──▶ table 2   3 4          fork: a separate table
//! ```
//!
//! 1. A process has one table, which is dropped with the last process that uses it.
//! 2. Table numbers are not reused.

use std::collections::{BTreeMap, HashMap};

/// The targets of descriptors, by descriptor number.
pub(super) type DescriptorTable<T> = BTreeMap<u32, T>;

/// A table, and the number of processes that use it.
#[derive(Debug)]
struct SharedTable<T> {
    process_count: u32,
    table: DescriptorTable<T>,
}

/// The descriptor tables of all processes.
#[derive(Debug)]
pub(super) struct DescriptorTables<T> {
    /// The number of each process's table.
    processes: HashMap<u32, u64>,
    tables: HashMap<u64, SharedTable<T>>,
    descriptor_count: usize,
    last_number: u64,
}

impl<T> Default for DescriptorTables<T> {
    fn default() -> Self {
        Self { processes: HashMap::new(), tables: HashMap::new(), descriptor_count: 0, last_number: 0 }
    }
}

impl<T> DescriptorTables<T> {
    /// Returns the number of descriptors in all tables.
    pub(super) fn descriptor_count(&self) -> usize {
        self.descriptor_count
    }

    /// Returns the number of a process's table.
    pub(super) fn table_number(&self, process: u32) -> Option<u64> {
        self.processes.get(&process).copied()
    }

    pub(super) fn table(&self, process: u32) -> Option<&DescriptorTable<T>> {
        Some(&self.tables.get(&self.table_number(process)?)?.table)
    }

    pub(super) fn get(&self, process: u32, descriptor: u32) -> Option<&T> {
        self.table(process)?.get(&descriptor)
    }

    pub(super) fn get_mut(&mut self, process: u32, descriptor: u32) -> Option<&mut T> {
        let number = self.table_number(process)?;
        self.tables.get_mut(&number)?.table.get_mut(&descriptor)
    }

    /// Returns the number of a process's table, which is created if there is none.
    fn ensure_table(&mut self, process: u32) -> u64 {
        if let Some(number) = self.table_number(process) {
            return number;
        }
        self.last_number = self.last_number.wrapping_add(1);
        self.processes.insert(process, self.last_number);
        self.tables.insert(self.last_number, SharedTable { process_count: 1, table: DescriptorTable::new() });
        self.last_number
    }

    /// Sets the target of a descriptor. Returns the old target.
    pub(super) fn insert(&mut self, process: u32, descriptor: u32, target: T) -> Option<T> {
        let number = self.ensure_table(process);
        let old = self.tables.get_mut(&number)?.table.insert(descriptor, target);
        if old.is_none() {
            self.descriptor_count = self.descriptor_count.saturating_add(1);
        }
        old
    }

    pub(super) fn remove(&mut self, process: u32, descriptor: u32) -> Option<T> {
        let number = self.table_number(process)?;
        let old = self.tables.get_mut(&number)?.table.remove(&descriptor)?;
        self.descriptor_count = self.descriptor_count.saturating_sub(1);
        Some(old)
    }

    /// Lets `process`, which must have no table, use the table of `other`.
    pub(super) fn share_table(&mut self, other: u32, process: u32) {
        let number = self.ensure_table(other);
        if let Some(shared) = self.tables.get_mut(&number) {
            shared.process_count = shared.process_count.saturating_add(1);
            self.processes.insert(process, number);
        }
    }

    /// Returns whether other processes use the table of a process too.
    pub(super) fn is_shared(&self, process: u32) -> bool {
        let shared = self.table_number(process).and_then(|number| self.tables.get(&number));
        shared.is_some_and(|shared| shared.process_count > 1)
    }

    /// Takes the table from a process. Returns its contents if no other process uses it.
    pub(super) fn detach_process(&mut self, process: u32) -> Option<DescriptorTable<T>> {
        let number = self.processes.remove(&process)?;
        let shared = self.tables.get_mut(&number)?;
        shared.process_count = shared.process_count.saturating_sub(1);
        if shared.process_count > 0 {
            return None;
        }
        let table = self.tables.remove(&number)?.table;
        self.descriptor_count = self.descriptor_count.saturating_sub(table.len());
        Some(table)
    }

    /// Drops everything except the tables that are shared, which are emptied.
    pub(super) fn clear(&mut self) {
        let is_shared = |shared: &SharedTable<T>| shared.process_count > 1;
        self.tables.retain(|_, shared| is_shared(shared));
        self.tables.values_mut().for_each(|shared| shared.table = DescriptorTable::new());
        let tables = &self.tables;
        self.processes.retain(|_, number| tables.contains_key(number));
        self.descriptor_count = 0;
    }
}
