//! Symbols by address.
//!
//! ```text
//!   start ──▶ sorted ──▶ the last start at or before an address, if its end lies behind it
//!   names     one block of bytes; an entry knows where its own stands
//!   groups    what a list tells the owner of a symbol to be: modules of a kernel
//! ```
//!
//! Invariants:
//! 1. Entries are sorted by start, one for each start: one with a size before one without, global before local, then the shorter name.
//! 2. A symbol whose size is not told reaches to the next one, but not behind the end of its section where that is told, nor further than [`MAX_REACH`].
//! 3. At most [`MAX_SYMBOLS`] entries and [`MAX_NAMES`] bytes of names are kept; what is beyond is left out, and the table says so ([`Table::is_cut`]).

use std::borrow::Cow;
use std::sync::Arc;

/// Symbols that are kept of a file.
pub const MAX_SYMBOLS: usize = 4 << 20;
/// Bytes of names that are kept of a file.
pub const MAX_NAMES: usize = 128 << 20;
/// The longest name; compilers make some of a few thousand bytes.
pub const MAX_NAME: usize = 16 << 10;
/// How far a symbol reaches whose size is not told, and behind which no other follows.
pub const MAX_REACH: u64 = 64 << 10;
/// Groups of a list.
const MAX_GROUPS: usize = 4096;
/// Entries before the nearest one that are looked at: symbols lie within each other at times.
const LOOK_BACK: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    /// First address behind it; the start itself until the table is finished, where no size is told.
    end: u64,
    name: u32,
    length: u16,
    group: u16,
    rank: u8,
}

/// A symbol that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'t> {
    /// Its name as the file has it.
    pub name: &'t [u8],
    /// Where it begins.
    pub start: u64,
    /// Who owns it, where a list tells.
    pub group: Option<&'t Arc<str>>,
}

impl<'t> Symbol<'t> {
    /// The name as text.
    #[must_use]
    pub fn text(&self) -> Cow<'t, str> {
        String::from_utf8_lossy(self.name)
    }
}

/// Which of several symbols at one address is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Known to other programs.
    Global,
    /// Known to its program alone.
    Local,
    /// May be replaced by another.
    Weak,
}

/// Symbols of one file.
#[derive(Debug, Default)]
pub struct Table {
    entries: Vec<Entry>,
    names: Vec<u8>,
    groups: Vec<Arc<str>>,
    /// Where the symbols of [`KERNEL_START`] are, whatever else is there.
    kernel_start: [Option<u64>; 2],
    is_cut: bool,
}

/// Names of the first byte of a kernel.
const KERNEL_START: [&[u8]; 2] = [b"_text", b"_stext"];

impl Table {
    /// Takes a symbol in: a size of 0 is one that is not told. What is beyond the bounds is left out.
    pub fn push(&mut self, start: u64, size: u64, name: &[u8], rank: Rank) {
        self.push_of(start, size, name, rank, None);
    }

    /// Takes a symbol in that belongs to somebody.
    pub fn push_of(&mut self, start: u64, size: u64, name: &[u8], rank: Rank, group: Option<&str>) {
        let all = self.names.len().saturating_add(name.len());
        if name.is_empty() || name.len() > MAX_NAME {
            return;
        }
        if self.entries.len() >= MAX_SYMBOLS || all > MAX_NAMES {
            self.cut();
            return;
        }
        let (Ok(at), Ok(length)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else {
            return;
        };
        let Some(group) = self.group(group) else {
            self.cut();
            return;
        };
        let rank = match rank {
            Rank::Global => 0,
            Rank::Local => 1,
            Rank::Weak => 2,
        };
        for (known, start_name) in self.kernel_start.iter_mut().zip(KERNEL_START) {
            if name == start_name && group == 0 {
                known.get_or_insert(start);
            }
        }
        self.names.extend_from_slice(name);
        self.entries.push(Entry { start, end: start.saturating_add(size), name: at, length, group, rank });
    }

    /// The number of a group, counted from 1; those of one group come one behind the other.
    fn group(&mut self, name: Option<&str>) -> Option<u16> {
        let Some(name) = name else { return Some(0) };
        let is_it = |it: &Arc<str>| **it == *name;
        if !self.groups.last().is_some_and(is_it) {
            if self.groups.len() >= MAX_GROUPS {
                return None;
            }
            self.groups.push(name.into());
        }
        u16::try_from(self.groups.len()).ok()
    }

    /// Makes the table ready to be asked.
    pub fn finish(&mut self) {
        self.finish_within(Vec::new());
    }

    /// Makes the table ready to be asked; no symbol whose size is not told goes on behind one of these ends.
    pub(super) fn finish_within(&mut self, mut ends: Vec<u64>) {
        ends.sort_unstable();
        let is_unsized = |entry: &Entry| entry.end == entry.start;
        self.entries.sort_by_key(|it| (it.start, is_unsized(it), it.rank, it.length));
        self.entries.dedup_by_key(|it| it.start);
        self.entries.shrink_to_fit();
        let mut next = u64::MAX;
        for entry in self.entries.iter_mut().rev() {
            if entry.end == entry.start {
                let behind = ends.partition_point(|end| *end <= entry.start);
                let end = ends.get(behind).copied().unwrap_or(u64::MAX);
                entry.end = next.min(end).min(entry.start.saturating_add(MAX_REACH));
            }
            next = entry.start;
        }
    }

    /// The symbol at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let behind = self.entries.partition_point(|entry| entry.start <= address);
        let before = self.entries.get(..behind)?.iter().rev().take(LOOK_BACK);
        let entry = before.into_iter().find(|entry| address < entry.end)?;
        Some(self.told(entry))
    }

    /// Where the first byte of a kernel lies, by each of the names that it has.
    pub fn kernel_start(&self) -> impl Iterator<Item = u64> {
        self.kernel_start.into_iter().flatten()
    }

    fn told(&self, entry: &Entry) -> Symbol<'_> {
        let at = usize::try_from(entry.name).unwrap_or(usize::MAX);
        let end = at.saturating_add(usize::from(entry.length));
        let group = usize::from(entry.group).checked_sub(1).and_then(|at| self.groups.get(at));
        Symbol { name: self.names.get(at..end).unwrap_or_default(), start: entry.start, group }
    }

    /// Notes that there are more symbols than are here.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Whether symbols were left out because there are more than are kept, or because looking at them took too long.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many symbols there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.capacity().saturating_mul(size_of::<Entry>()).saturating_add(self.names.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(table: &Table, address: u64) -> Option<String> {
        table.lookup(address).map(|symbol| symbol.text().into_owned())
    }

    #[test]
    fn an_address_belongs_to_the_symbol_around_it() {
        let mut table = Table::default();
        for (start, size, name, rank) in [
            (0x100, 0x40, "whole", Rank::Local),
            (0x110, 0x08, "within", Rank::Local),
            (0x100, 0x40, "Whole", Rank::Global),
            (0x100, 0, "label", Rank::Global),
            (0x200, 0, "open", Rank::Global),
            (0x300, 0x10, "last", Rank::Weak),
            (0x8_0000, 0, "end", Rank::Global),
        ] {
            table.push(start, size, name.as_bytes(), rank);
        }
        table.finish();
        for (address, expected) in [
            (0xFF, None),
            (0x100, Some("Whole")),
            (0x112, Some("within")),
            (0x118, Some("Whole")),
            (0x140, None),
            (0x2FF, Some("open")),
            (0x30F, Some("last")),
            (0x310, None),
            (0x8_0000 + MAX_REACH - 1, Some("end")),
            (0x8_0000 + MAX_REACH, None),
        ] {
            assert_eq!(name(&table, address).as_deref(), expected, "{address:#x}");
        }
    }

    #[test]
    fn a_symbol_without_size_ends_with_its_section() {
        let mut table = Table::default();
        table.push(0x100, 0, b"_init", Rank::Global);
        table.push(0x200, 0, b"_start", Rank::Global);
        table.push(0x230, 0, b"label", Rank::Local);
        table.push(0x240, 0x100, b"told", Rank::Local);
        table.finish_within(vec![0x280, 0x120, 0x100]);
        for (address, expected) in [
            (0x11F, Some("_init")),
            (0x120, None),
            (0x1FF, None),
            (0x22F, Some("_start")),
            (0x23F, Some("label")),
            (0x33F, Some("told")),
        ] {
            assert_eq!(name(&table, address).as_deref(), expected, "{address:#x}");
        }
    }

    #[test]
    fn groups_are_told_and_names_are_bounded() {
        let mut table = Table::default();
        table.push(1, 1, b"a", Rank::Global);
        table.push_of(2, 1, b"b", Rank::Global, Some("ext4"));
        table.push_of(3, 1, b"c", Rank::Global, Some("ext4"));
        table.push(4, 1, &[b'x'; MAX_NAME + 1], Rank::Global);
        table.push(5, 1, b"", Rank::Global);
        table.push(u64::MAX, 9, b"top", Rank::Global);
        table.push_of(7, 1, b"_text", Rank::Global, Some("ext4"));
        table.push(1, 1, b"_stext", Rank::Global);
        table.finish();
        assert_eq!(
            table.kernel_start().collect::<Vec<_>>(),
            [1],
            "of the kernel, though another name is shorter"
        );
        assert_eq!((table.len(), table.groups.len()), (5, 1));
        assert_eq!(table.lookup(3).and_then(|symbol| symbol.group).map(|it| &**it), Some("ext4"));
        assert_eq!(table.lookup(1).and_then(|symbol| symbol.group), None);
        assert_eq!(name(&table, u64::MAX), None, "nothing lies behind the end of memory");
    }
}
