//! Openings of files, and the descriptors that lead to them.
//!
//! ```text
//!   process 10   3 ─┐                                        open     a new opening, one use
//!                4 ─┴▶ opening 7, two uses │ position │ name  dup      one use more
//!   process 11   3 ───▶ opening 8, one use                    fork     the child has all descriptors of its parent: uses of the same openings
//!                5 ───▶ (no file)                             close    one use less; the last one ends the opening
//! ```
//!
//! 1. A descriptor that nobody told of is looked up in /proc, once: it may be older than the capture, or have come by a way that is not watched.
//! 2. A descriptor that came by fork or dup is asked for the name too, where the first was closed too soon.
//! 3. A name that was read at a moment is sure when everything up to that moment has been handled and the descriptor was not closed ([`Openings::next_sure`]).
//! 4. What /proc said of a descriptor is younger than records that have not been handled yet: one that closes it was about an older one.
//! 5. When there is too much of anything, everything is forgotten; numbers of openings go on.
//! 6. A child gets at most [`MAX_INHERITED`] descriptors of its parent. Of one that has more it gets none: those that it uses are looked up, as other openings.

use std::collections::{BTreeMap, VecDeque};

use super::look;
use super::tables::Tables;
use crate::now_ns;

/// Descriptors that are remembered.
const MAX_DESCRIPTORS: usize = 1 << 18;
/// Descriptors that are copied when a process is made, which whoever makes many of them pays for with our time.
const MAX_INHERITED: usize = 1 << 10;
/// Bytes of names that are remembered, sure or not.
const MAX_NAMES: usize = 32 << 20;
/// Names that are not sure yet and that there is room for when there are none.
const KEPT_UNSURE: usize = 1 << 12;

/// What a descriptor leads to.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    /// `None`: no file.
    key: Option<u64>,
    /// Whether another program that the process runs does not get it, where that is known.
    closes_on_exec: Option<bool>,
    /// It leads there since then, in nanoseconds.
    since: u64,
    /// /proc need not be asked for its name any more.
    is_looked_at: bool,
}

/// What one open call made.
#[derive(Debug, Default)]
struct Opening {
    /// Descriptors that lead to it.
    uses: u32,
    /// Where the next read or write is, if that is known.
    position: Option<u64>,
    /// Writes go to the end, wherever that is.
    is_append: bool,
    name: Option<Box<str>>,
    /// A name that is not sure yet.
    perhaps: Option<Supposed>,
}

impl Opening {
    /// Bytes of its names, sure or not.
    fn name_bytes(&self) -> usize {
        let perhaps = self.perhaps.as_ref().map_or(0, |it| it.name.len());
        self.name.as_ref().map_or(0, |name| name.len()).saturating_add(perhaps)
    }
}

/// What /proc said of a descriptor.
#[derive(Debug)]
struct Supposed {
    name: Box<str>,
    /// When, in nanoseconds.
    read: u64,
    /// The number of the table, and the descriptor.
    of: (u64, u32),
}

/// An opening that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) key: u64,
    pub(super) name: Option<Box<str>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Openings {
    tables: Tables<Descriptor>,
    openings: BTreeMap<u64, Opening>,
    /// Names that are not sure yet: when they were read.
    unsure: VecDeque<(u64, u64)>,
    name_bytes: usize,
    /// Some position is known.
    has_positions: bool,
    last_key: u64,
}

impl Openings {
    /// The number of an opening that is to be.
    pub(super) fn next_key(&mut self) -> u64 {
        self.last_key = self.last_key.wrapping_add(1);
        self.last_key
    }

    /// An open call has succeeded. `path`: what it was given, if that is known.
    pub(super) fn opened(
        &mut self,
        (process, descriptor): (u32, u32),
        key: u64,
        flags: Option<u32>,
        time: u64,
        path: Option<&str>,
    ) {
        let has = |flag: i32| flags.map(|flags| flags & u32::try_from(flag).unwrap_or(0) != 0);
        let opening = Opening {
            position: Some(0),
            is_append: has(libc::O_APPEND).unwrap_or(true),
            ..Opening::default()
        };
        self.openings.insert(key, opening);
        self.has_positions = true;
        let closes_on_exec = has(libc::O_CLOEXEC);
        // A path that does not depend on the folder of its process is its name even if the file is not there any more.
        let path = path.filter(|path| path.starts_with('/'));
        let is_looked_at = path.is_some();
        let to = Descriptor { key: Some(key), closes_on_exec, since: time, is_looked_at };
        self.bind((process, descriptor), to);
        match path {
            Some(path) => self.suppose(key, path.into(), time, (process, descriptor)),
            None => self.look_at(process, descriptor),
        }
    }

    /// A file was open when somebody looked: the name belongs to what is there now.
    pub(super) fn found(&mut self, process: u32, descriptor: u32, name: Box<str>) {
        let key = self.next_key();
        self.name_bytes = self.name_bytes.saturating_add(name.len());
        self.openings.insert(key, Opening { name: Some(name), is_append: true, ..Opening::default() });
        let to = Descriptor { key: Some(key), closes_on_exec: None, since: now_ns(), is_looked_at: true };
        self.bind((process, descriptor), to);
    }

    /// The opening that a descriptor leads to; `None`: it is no file.
    pub(super) fn of(&mut self, process: u32, descriptor: u32) -> Option<u64> {
        if let Some(known) = self.tables.get(process, descriptor).copied() {
            if !known.is_looked_at {
                self.look_at(process, descriptor);
            }
            return known.key;
        }
        let name = look::path(process, descriptor);
        let key = name.is_some().then(|| self.next_key());
        if let Some(key) = key {
            self.openings.insert(key, Opening { is_append: true, ..Opening::default() });
        }
        let read = now_ns();
        let to = Descriptor { key, closes_on_exec: None, since: read, is_looked_at: true };
        self.bind((process, descriptor), to);
        if let (Some(key), Some(name)) = (key, name) {
            self.suppose(key, name, read, (process, descriptor));
        }
        key
    }

    /// Asks /proc for the name of a known descriptor, unless the opening has one, or may have.
    fn look_at(&mut self, process: u32, descriptor: u32) {
        let Some(known) = self.tables.get_mut(process, descriptor) else { return };
        let Some((key, opening)) = known.key.and_then(|key| Some((key, self.openings.get(&key)?))) else {
            known.is_looked_at = true;
            return;
        };
        if opening.perhaps.is_some() {
            return;
        }
        known.is_looked_at = true;
        if opening.name.is_none()
            && let Some(name) = look::path(process, descriptor)
        {
            self.suppose(key, name, now_ns(), (process, descriptor));
        }
    }

    /// A descriptor leads to what another leads to. What the first led to must be unbound before.
    pub(super) fn share(&mut self, process: u32, (to, from): (u32, u32), closes_on_exec: bool, since: u64) {
        if let Some(known) = self.tables.get(process, from) {
            let closes_on_exec = Some(closes_on_exec);
            let is_looked_at = false;
            self.bind((process, to), Descriptor { key: known.key, closes_on_exec, since, is_looked_at });
            self.look_at(process, to);
        }
    }

    fn bind(&mut self, (process, descriptor): (u32, u32), to: Descriptor) {
        // Of what is closed before its name is sure, the number stays until then.
        let most = self.tables.descriptors().max(self.unsure.len());
        if most >= MAX_DESCRIPTORS || self.name_bytes >= MAX_NAMES {
            self.forget(to.key);
        }
        if let Some(opening) = to.key.and_then(|key| self.openings.get_mut(&key)) {
            opening.uses = opening.uses.saturating_add(1);
        }
        if let Some(old) = self.tables.insert(process, descriptor, to) {
            // Its end was not seen.
            drop(self.release(old));
        }
    }

    /// Forgets everything: nobody knows which processes still share what.
    pub(super) fn forget_all(&mut self) {
        self.forget(None);
        self.tables = Tables::default();
    }

    /// Makes room: forgets everything but one opening, and who shares a table.
    fn forget(&mut self, but: Option<u64>) {
        let kept = but.and_then(|key| Some((key, self.openings.remove(&key)?)));
        self.tables.clear();
        self.openings.clear();
        self.unsure.clear();
        self.name_bytes = 0;
        self.unsure.shrink_to(KEPT_UNSURE);
        if let Some((key, opening)) = kept {
            self.name_bytes = opening.name_bytes();
            self.unsure.extend(opening.perhaps.as_ref().map(|it| (it.read, key)));
            self.openings.insert(key, Opening { uses: 0, ..opening });
        }
    }

    /// A descriptor is closed; what has ended by that.
    pub(super) fn unbind(&mut self, process: u32, descriptor: u32, time: u64) -> Option<Ended> {
        let table = self.tables.number_of(process)?;
        let old = self.tables.remove(process, descriptor)?;
        self.closed_at((table, descriptor), &old, time);
        // It is younger than this close, which was of something that nobody has seen.
        let ended = self.release(old);
        if time < old.since { None } else { ended }
    }

    /// What was read of a descriptor after it was closed was of another.
    fn closed_at(&mut self, of: (u64, u32), old: &Descriptor, time: u64) {
        let opening = old.key.and_then(|key| self.openings.get_mut(&key));
        if let Some(not) = opening.and_then(|it| it.perhaps.take_if(|it| it.of == of && it.read >= time)) {
            self.name_bytes = self.name_bytes.saturating_sub(not.name.len());
        }
    }

    fn release(&mut self, descriptor: Descriptor) -> Option<Ended> {
        let key = descriptor.key?;
        let opening = self.openings.get_mut(&key)?;
        opening.uses = opening.uses.saturating_sub(1);
        if opening.uses > 0 {
            return None;
        }
        let ended = self.openings.remove(&key)?;
        self.name_bytes = self.name_bytes.saturating_sub(ended.name_bytes());
        Some(Ended { key, name: ended.name })
    }

    /// Descriptors of a process between two numbers.
    pub(super) fn between(&self, process: u32, first: u32, last: u32) -> Vec<u32> {
        let Some(all) = self.tables.of(process).filter(|_| first <= last) else { return Vec::new() };
        all.range(first..=last).map(|(descriptor, _)| *descriptor).collect()
    }

    /// Whether a descriptor survives when its process runs another program.
    pub(super) fn set_closes_on_exec(&mut self, process: u32, descriptor: u32, closes: bool) {
        if let Some(known) = self.tables.get_mut(process, descriptor) {
            known.closes_on_exec = Some(closes);
        }
    }

    /// A child has all descriptors of its parent, in a table of its own.
    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        // Its number may have been another's, whose end was not seen.
        drop(self.exit(child));
        let all = self.inherited(parent);
        self.bind_all(child, all);
    }

    /// A child has the table of its parent: what one opens or closes, both have or have not.
    pub(super) fn share_all(&mut self, parent: u32, child: u32) {
        drop(self.exit(child));
        self.tables.share(parent, child);
    }

    /// A process has a table of its own from now on, with what is in the one that it shares.
    pub(super) fn unshare(&mut self, process: u32) {
        let other = self.tables.is_shared(process).then(|| self.inherited(process));
        if let Some(all) = other {
            self.tables.leave(process);
            self.bind_all(process, all);
        }
    }

    /// What a process that gets a copy of this one's table is known to have.
    fn inherited(&self, process: u32) -> Vec<(u32, Descriptor)> {
        let all = self.tables.of(process).filter(|all| all.len() <= MAX_INHERITED);
        all.into_iter().flatten().map(|(descriptor, to)| (*descriptor, *to)).collect()
    }

    fn bind_all(&mut self, process: u32, all: Vec<(u32, Descriptor)>) {
        for (descriptor, to) in all {
            // Room may have been made for one of those before: what is forgotten is looked up when it is used.
            if to.key.is_none_or(|key| self.openings.contains_key(&key)) {
                self.bind((process, descriptor), Descriptor { is_looked_at: false, ..to });
            }
        }
    }

    /// A process runs another program; what has ended by that.
    pub(super) fn exec(&mut self, process: u32) -> Vec<Ended> {
        self.unshare(process);
        let mut ended = Vec::new();
        for descriptor in self.between(process, 0, u32::MAX) {
            let closes = self.tables.get(process, descriptor).map(|to| to.closes_on_exec);
            if closes == Some(Some(false)) {
                continue;
            }
            let end = self.tables.remove(process, descriptor).and_then(|to| self.release(to));
            // Whether one of which it is not known is still there, the next use of it will show.
            ended.extend(end.filter(|_| closes == Some(Some(true))));
        }
        ended
    }

    /// A process has ended, and what it had open alone.
    pub(super) fn exit(&mut self, process: u32) -> Vec<Ended> {
        let all = self.tables.leave(process).unwrap_or_default();
        all.into_values().filter_map(|descriptor| self.release(descriptor)).collect()
    }

    /// Where the next transfer of an opening is, if that is known.
    pub(super) fn position(&self, key: u64, is_write: bool) -> Option<u64> {
        let opening = self.openings.get(&key)?;
        if is_write && opening.is_append { None } else { opening.position }
    }

    /// So many bytes were transferred from there.
    pub(super) fn moved(&mut self, key: u64, is_write: bool, bytes: u64) {
        if let Some(opening) = self.openings.get_mut(&key) {
            let is_lost = is_write && opening.is_append;
            opening.position =
                if is_lost { None } else { opening.position.and_then(|it| it.checked_add(bytes)) };
        }
    }

    pub(super) fn set_position(&mut self, key: u64, position: u64) {
        if let Some(opening) = self.openings.get_mut(&key) {
            opening.position = Some(position);
            self.has_positions = true;
        }
    }

    /// Nobody watches where openings are.
    pub(super) fn forget_positions(&mut self) {
        if std::mem::take(&mut self.has_positions) {
            self.openings.values_mut().for_each(|opening| opening.position = None);
        }
    }

    /// A descriptor of a process had this name at a moment.
    fn suppose(&mut self, key: u64, name: Box<str>, read: u64, (process, descriptor): (u32, u32)) {
        let Some(table) = self.tables.number_of(process) else { return };
        let supposed = Supposed { name, read, of: (table, descriptor) };
        if let Some(opening) = self.openings.get_mut(&key) {
            self.unsure.push_back((supposed.read, key));
            let bytes = self.name_bytes.saturating_add(supposed.name.len());
            let old = opening.perhaps.replace(supposed);
            self.name_bytes = bytes.saturating_sub(old.map_or(0, |it| it.name.len()));
        }
    }

    /// Everything before a moment has been handled: a name that was read before it, and is sure now. Ask until there is none.
    pub(super) fn next_sure(&mut self, time: u64) -> Option<(u64, &str)> {
        loop {
            let (_, key) = self.unsure.front().copied().filter(|(read, _)| *read < time)?;
            self.unsure.pop_front();
            if self.unsure.is_empty() {
                self.unsure.shrink_to(KEPT_UNSURE);
            }
            let opening = self.openings.get_mut(&key);
            let Some(supposed) = opening.and_then(|it| it.perhaps.take_if(|it| it.read < time)) else {
                continue;
            };
            let opening = self.openings.get_mut(&key)?;
            let old = opening.name.as_ref().map_or(0, |name| name.len());
            self.name_bytes = self.name_bytes.saturating_sub(old);
            return Some((key, opening.name.insert(supposed.name)));
        }
    }

    /// Openings whose names are sure.
    pub(super) fn named(&self) -> impl Iterator<Item = (u64, &str)> {
        self.openings.iter().filter_map(|(key, opening)| Some((*key, opening.name.as_deref()?)))
    }
}

#[cfg(test)]
#[path = "openings_tests.rs"]
mod tests;
