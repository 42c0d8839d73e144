//! Open files, and the descriptors that refer to them.
//!
//! ```text
//!   process 10   3 ─┐
//!                4 ─┴▶ open file 7, two descriptors │ position │ name
//!   process 11   3 ───▶ open file 8, one descriptor
//!                5 ───▶ (no file)
//!
//!   open    a new open file                 fork    the child shares the parent's open files
//!   dup     one more descriptor             close   one descriptor fewer; the last closes the file
//! ```
//!
//! 1. An unknown descriptor is looked up in `/proc`, once: it may be older than the capture, or
//!    have arrived in a way that is not captured.
//! 2. The name of a descriptor made by fork or dup is read too, in case the first descriptor was
//!    closed before its name was read.
//! 3. A name that was read at some time is confirmed when all records up to that time are handled
//!    and none of them closed the descriptor ([`OpenFiles::confirm_next_name`]).
//! 4. `/proc` shows a later state than the records that are not handled yet. So if such a record
//!    closes the descriptor, it is about an earlier file, not about the file that `/proc` showed.
//! 5. When a bound is reached, all state is dropped; the numbers of open files are not reused.
//! 6. A child inherits at most [`MAX_INHERITED`] descriptors. From a parent with more it inherits
//!    none: the descriptors that it uses are looked up in `/proc` and count as new open files.

use std::collections::{BTreeMap, VecDeque};

use super::proc_fd;
use super::tables::DescriptorTables;
use crate::clock::now_ns;

/// The most descriptors that are kept.
const MAX_DESCRIPTORS: usize = 1 << 18;
/// The most descriptors that are copied at a fork. The bound keeps a program that forks a lot from
/// taking up the daemon's time.
const MAX_INHERITED: usize = 1 << 10;
/// The most bytes of names, confirmed or not, that are kept.
const MAX_NAME_BYTES: usize = 32 << 20;
/// Capacity of the queue of unconfirmed names that is kept when it is empty.
const KEPT_UNCONFIRMED: usize = 1 << 12;

/// The target of a descriptor.
#[derive(Clone, Copy, Debug)]
struct DescriptorTarget {
    /// Number of the open file; `None` if the target is not a file.
    key: Option<u64>,
    /// Whether an exec closes the descriptor, if that is known.
    closes_on_exec: Option<bool>,
    /// When the descriptor became valid, in nanoseconds.
    since: u64,
    /// Whether the name of the file is known or has been read from `/proc`.
    is_name_read: bool,
}

/// An open file description, which one open call creates.
#[derive(Debug, Default)]
struct OpenFile {
    /// Number of descriptors that refer to it.
    descriptor_count: u32,
    /// File offset of the next read or write, if it is known.
    position: Option<u64>,
    /// Whether writes go, or may go, to the end of the file, whose offset is unknown.
    is_append: bool,
    name: Option<Box<str>>,
    /// A name that is not confirmed yet.
    unconfirmed_name: Option<UnconfirmedName>,
}

impl OpenFile {
    /// Returns the bytes of the confirmed and the unconfirmed name.
    fn name_bytes(&self) -> usize {
        let unconfirmed = self.unconfirmed_name.as_ref().map_or(0, |unconfirmed| unconfirmed.name.len());
        self.name.as_ref().map_or(0, |name| name.len()).saturating_add(unconfirmed)
    }
}

/// A name that was read for a descriptor, from `/proc` or from the open call.
#[derive(Debug)]
struct UnconfirmedName {
    name: Box<str>,
    read_ns: u64,
    /// The number of the table and the descriptor that the name was read for.
    source: (u64, u32),
}

/// A file whose last descriptor was closed.
#[derive(Debug)]
pub(super) struct ClosedFile {
    pub(super) key: u64,
    pub(super) name: Option<Box<str>>,
}

/// The open files of all processes.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    tables: DescriptorTables<DescriptorTarget>,
    files: BTreeMap<u64, OpenFile>,
    /// Times at which unconfirmed names were read, with the numbers of their files.
    unconfirmed: VecDeque<(u64, u64)>,
    name_bytes: usize,
    /// Whether the position of some file is known.
    has_positions: bool,
    last_key: u64,
}

impl OpenFiles {
    /// Returns a new number for an open file.
    pub(super) fn next_key(&mut self) -> u64 {
        self.last_key = self.last_key.wrapping_add(1);
        self.last_key
    }

    /// Adds the file of a successful open call. `path`: the argument of the call, if it is known.
    pub(super) fn add_opened(
        &mut self,
        process: u32,
        descriptor: u32,
        key: u64,
        flags: Option<u32>,
        time: u64,
        path: Option<&str>,
    ) {
        let has = |flag: i32| flags.map(|flags| flags & u32::try_from(flag).unwrap_or(0) != 0);
        let file = OpenFile {
            position: Some(0),
            is_append: has(libc::O_APPEND).unwrap_or(true),
            ..OpenFile::default()
        };
        self.files.insert(key, file);
        self.has_positions = true;
        let closes_on_exec = has(libc::O_CLOEXEC);
        // An absolute path is the name, even if the file is closed already.
        let path = path.filter(|path| path.starts_with('/'));
        let is_name_read = path.is_some();
        let target = DescriptorTarget { key: Some(key), closes_on_exec, since: time, is_name_read };
        self.bind(process, descriptor, target);
        match path {
            Some(path) => self.add_unconfirmed_name(key, path.into(), time, process, descriptor),
            None => self.read_name(process, descriptor),
        }
    }

    /// Adds a file that `/proc` shows as open. Its name needs no confirmation, because the
    /// descriptor counts as valid only from now on.
    pub(super) fn add_existing(&mut self, process: u32, descriptor: u32, name: Box<str>) {
        let key = self.next_key();
        self.name_bytes = self.name_bytes.saturating_add(name.len());
        self.files.insert(key, OpenFile { name: Some(name), is_append: true, ..OpenFile::default() });
        let target =
            DescriptorTarget { key: Some(key), closes_on_exec: None, since: now_ns(), is_name_read: true };
        self.bind(process, descriptor, target);
    }

    /// Returns the number of a descriptor's open file; `None` if it is not a file. An unknown
    /// descriptor is looked up in `/proc`.
    pub(super) fn resolve_descriptor(&mut self, process: u32, descriptor: u32) -> Option<u64> {
        if let Some(entry) = self.tables.get(process, descriptor).copied() {
            if !entry.is_name_read {
                self.read_name(process, descriptor);
            }
            return entry.key;
        }
        let name = proc_fd::read_path(process, descriptor);
        let key = name.is_some().then(|| self.next_key());
        if let Some(key) = key {
            self.files.insert(key, OpenFile { is_append: true, ..OpenFile::default() });
        }
        let read_ns = now_ns();
        let target = DescriptorTarget { key, closes_on_exec: None, since: read_ns, is_name_read: true };
        self.bind(process, descriptor, target);
        if let (Some(key), Some(name)) = (key, name) {
            self.add_unconfirmed_name(key, name, read_ns, process, descriptor);
        }
        key
    }

    /// Reads the name of a known descriptor from `/proc`, unless its file has a name, confirmed or
    /// not.
    fn read_name(&mut self, process: u32, descriptor: u32) {
        let Some(entry) = self.tables.get_mut(process, descriptor) else { return };
        let Some((key, file)) = entry.key.and_then(|key| Some((key, self.files.get(&key)?))) else {
            entry.is_name_read = true;
            return;
        };
        // If that name is discarded later, the next use of this descriptor reads the name.
        if file.unconfirmed_name.is_some() {
            return;
        }
        entry.is_name_read = true;
        if file.name.is_none()
            && let Some(name) = proc_fd::read_path(process, descriptor)
        {
            self.add_unconfirmed_name(key, name, now_ns(), process, descriptor);
        }
    }

    /// Makes descriptor `to` refer to the open file of `from`. An old `to` must be closed first.
    pub(super) fn duplicate_descriptor(
        &mut self,
        process: u32,
        from: u32,
        to: u32,
        closes_on_exec: bool,
        since: u64,
    ) {
        if let Some(entry) = self.tables.get(process, from) {
            let closes_on_exec = Some(closes_on_exec);
            let is_name_read = false;
            self.bind(process, to, DescriptorTarget { key: entry.key, closes_on_exec, since, is_name_read });
            self.read_name(process, to);
        }
    }

    fn bind(&mut self, process: u32, descriptor: u32, target: DescriptorTarget) {
        // A file that is closed before its name is confirmed leaves its entry in `unconfirmed`.
        let entries = self.tables.descriptor_count().max(self.unconfirmed.len());
        if entries >= MAX_DESCRIPTORS || self.name_bytes >= MAX_NAME_BYTES {
            self.clear_except(target.key);
        }
        if let Some(file) = target.key.and_then(|key| self.files.get_mut(&key)) {
            file.descriptor_count = file.descriptor_count.saturating_add(1);
        }
        if let Some(old) = self.tables.insert(process, descriptor, target) {
            // The record that closed the old file was lost.
            drop(self.release(old));
        }
    }

    /// Drops everything, including the information which processes share a table.
    pub(super) fn clear(&mut self) {
        self.clear_except(None);
        self.tables = DescriptorTables::default();
    }

    /// Drops everything except one open file and the information which processes share a table.
    fn clear_except(&mut self, kept_key: Option<u64>) {
        let kept_file = kept_key.and_then(|key| Some((key, self.files.remove(&key)?)));
        self.tables.clear();
        self.files.clear();
        self.unconfirmed.clear();
        self.name_bytes = 0;
        self.unconfirmed.shrink_to(KEPT_UNCONFIRMED);
        if let Some((key, file)) = kept_file {
            self.name_bytes = file.name_bytes();
            self.unconfirmed.extend(file.unconfirmed_name.as_ref().map(|name| (name.read_ns, key)));
            self.files.insert(key, OpenFile { descriptor_count: 0, ..file });
        }
    }

    /// Handles the close of a descriptor. Returns the file if that was its last descriptor.
    pub(super) fn close_descriptor(
        &mut self,
        process: u32,
        descriptor: u32,
        time: u64,
    ) -> Option<ClosedFile> {
        let table = self.tables.table_number(process)?;
        let old = self.tables.remove(process, descriptor)?;
        self.discard_name_after_close((table, descriptor), &old, time);
        // If the descriptor is newer than this close, an earlier file was closed, which was never
        // seen.
        let closed = self.release(old);
        if time < old.since { None } else { closed }
    }

    /// Discards a name that was read after the descriptor was closed: it belongs to another file.
    fn discard_name_after_close(&mut self, source: (u64, u32), old: &DescriptorTarget, time: u64) {
        let Some(file) = old.key.and_then(|key| self.files.get_mut(&key)) else { return };
        let is_later = |name: &mut UnconfirmedName| name.source == source && name.read_ns >= time;
        if let Some(discarded) = file.unconfirmed_name.take_if(is_later) {
            self.name_bytes = self.name_bytes.saturating_sub(discarded.name.len());
        }
    }

    /// Subtracts one descriptor of a file. Returns the file if that was its last descriptor.
    fn release(&mut self, target: DescriptorTarget) -> Option<ClosedFile> {
        let key = target.key?;
        let file = self.files.get_mut(&key)?;
        file.descriptor_count = file.descriptor_count.saturating_sub(1);
        if file.descriptor_count > 0 {
            return None;
        }
        let file = self.files.remove(&key)?;
        self.name_bytes = self.name_bytes.saturating_sub(file.name_bytes());
        Some(ClosedFile { key, name: file.name })
    }

    /// Returns the known descriptors of a process from `first` to `last`.
    pub(super) fn descriptors_between(&self, process: u32, first: u32, last: u32) -> Vec<u32> {
        let Some(table) = self.tables.table(process).filter(|_| first <= last) else { return Vec::new() };
        table.range(first..=last).map(|(descriptor, _)| *descriptor).collect()
    }

    /// Sets whether an exec closes a descriptor.
    pub(super) fn set_closes_on_exec(&mut self, process: u32, descriptor: u32, closes_on_exec: bool) {
        if let Some(entry) = self.tables.get_mut(process, descriptor) {
            entry.closes_on_exec = Some(closes_on_exec);
        }
    }

    /// Gives a child a copy of its parent's table.
    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        // The id may have belonged to a process whose exit record was lost.
        drop(self.exit(child));
        let entries = self.copy_table(parent);
        self.bind_all(child, entries);
    }

    /// Lets a child share the table of its parent: opens and closes affect both.
    pub(super) fn share_table(&mut self, parent: u32, child: u32) {
        drop(self.exit(child));
        self.tables.share_table(parent, child);
    }

    /// Gives a process its own copy of the table that it shares.
    pub(super) fn unshare_table(&mut self, process: u32) {
        let copy = self.tables.is_shared(process).then(|| self.copy_table(process));
        if let Some(entries) = copy {
            self.tables.detach_process(process);
            self.bind_all(process, entries);
        }
    }

    /// Returns the descriptors of a process; none if there are too many to copy.
    fn copy_table(&self, process: u32) -> Vec<(u32, DescriptorTarget)> {
        let table = self.tables.table(process).filter(|table| table.len() <= MAX_INHERITED);
        table.into_iter().flatten().map(|(descriptor, target)| (*descriptor, *target)).collect()
    }

    fn bind_all(&mut self, process: u32, entries: Vec<(u32, DescriptorTarget)>) {
        for (descriptor, target) in entries {
            // Binding an earlier entry may have dropped files. Dropped files are looked up when
            // they are used.
            if target.key.is_none_or(|key| self.files.contains_key(&key)) {
                self.bind(process, descriptor, DescriptorTarget { is_name_read: false, ..target });
            }
        }
    }

    /// Handles an exec of a process. Returns the files that it closes.
    pub(super) fn exec(&mut self, process: u32) -> Vec<ClosedFile> {
        self.unshare_table(process);
        let mut closed = Vec::new();
        for descriptor in self.descriptors_between(process, 0, u32::MAX) {
            let closes = self.tables.get(process, descriptor).map(|target| target.closes_on_exec);
            if closes == Some(Some(false)) {
                continue;
            }
            let file = self.tables.remove(process, descriptor).and_then(|target| self.release(target));
            // If it is unknown whether the exec closes a descriptor, the entry is dropped without a
            // close: the next use looks the descriptor up again.
            closed.extend(file.filter(|_| closes == Some(Some(true))));
        }
        closed
    }

    /// Handles the end of a process. Returns the files that no other process has open.
    pub(super) fn exit(&mut self, process: u32) -> Vec<ClosedFile> {
        let table = self.tables.detach_process(process).unwrap_or_default();
        table.into_values().filter_map(|target| self.release(target)).collect()
    }

    /// Returns the file offset of the next transfer, if it is known.
    pub(super) fn position(&self, key: u64, is_write: bool) -> Option<u64> {
        let file = self.files.get(&key)?;
        if is_write && file.is_append { None } else { file.position }
    }

    /// Advances the position by the transferred bytes. After an append it is unknown.
    pub(super) fn advance_position(&mut self, key: u64, is_write: bool, bytes: u64) {
        if let Some(file) = self.files.get_mut(&key) {
            let is_append = is_write && file.is_append;
            let advanced = file.position.and_then(|position| position.checked_add(bytes));
            file.position = if is_append { None } else { advanced };
        }
    }

    pub(super) fn set_position(&mut self, key: u64, position: u64) {
        if let Some(file) = self.files.get_mut(&key) {
            file.position = Some(position);
            self.has_positions = true;
        }
    }

    /// Drops all positions: the calls that change them are no longer captured.
    pub(super) fn forget_positions(&mut self) {
        if std::mem::take(&mut self.has_positions) {
            self.files.values_mut().for_each(|file| file.position = None);
        }
    }

    /// Stores a name that a descriptor of a process had at the time `read_ns`.
    fn add_unconfirmed_name(
        &mut self,
        key: u64,
        name: Box<str>,
        read_ns: u64,
        process: u32,
        descriptor: u32,
    ) {
        let Some(table) = self.tables.table_number(process) else { return };
        let unconfirmed = UnconfirmedName { name, read_ns, source: (table, descriptor) };
        if let Some(file) = self.files.get_mut(&key) {
            self.unconfirmed.push_back((unconfirmed.read_ns, key));
            let bytes = self.name_bytes.saturating_add(unconfirmed.name.len());
            let old = file.unconfirmed_name.replace(unconfirmed);
            self.name_bytes = bytes.saturating_sub(old.map_or(0, |old| old.name.len()));
        }
    }

    /// Confirms and returns the next name that was read before `time`, up to which all records have
    /// been handled. To be called until it returns `None`.
    pub(super) fn confirm_next_name(&mut self, time: u64) -> Option<(u64, &str)> {
        loop {
            let (_, key) = self.unconfirmed.front().copied().filter(|(read, _)| *read < time)?;
            self.unconfirmed.pop_front();
            if self.unconfirmed.is_empty() {
                self.unconfirmed.shrink_to(KEPT_UNCONFIRMED);
            }
            let file = self.files.get_mut(&key);
            let name = file.and_then(|file| file.unconfirmed_name.take_if(|name| name.read_ns < time));
            let Some(confirmed) = name else {
                continue;
            };
            let file = self.files.get_mut(&key)?;
            let old = file.name.as_ref().map_or(0, |name| name.len());
            self.name_bytes = self.name_bytes.saturating_sub(old);
            return Some((key, file.name.insert(confirmed.name)));
        }
    }

    /// Returns the open files with confirmed names.
    pub(super) fn confirmed_names(&self) -> impl Iterator<Item = (u64, &str)> {
        self.files.iter().filter_map(|(key, file)| Some((*key, file.name.as_deref()?)))
    }
}

#[cfg(test)]
mod tests;
