//! A table of symbols by address.
//!
//! ```text
//!   entries   sorted by start; the symbol at an address is the last entry that contains it
//!   names     one block of bytes; an entry has the offset of its name
//!   groups    the kernel modules that symbols of a list belong to
//! ```
//!
//! Invariants:
//! 1. Entries are sorted by start, one for each start: a symbol with a size wins over one without,
//!    global over local over weak, then the shorter name.
//! 2. A symbol of unknown size extends to the next one, but not past the end of its section if that
//!    is known, nor further than [`MAX_UNSIZED_BYTES`].
//! 3. At most [`MAX_SYMBOLS`] entries and [`MAX_TOTAL_NAME_BYTES`] bytes of names are kept; other
//!    symbols are left out, and [`SymbolTable::is_cut`] returns true.

use std::borrow::Cow;
use std::sync::Arc;

/// The most symbols that are kept of a file.
pub const MAX_SYMBOLS: usize = 4 << 20;
/// The most bytes of names that are kept of a file.
pub const MAX_TOTAL_NAME_BYTES: usize = 128 << 20;
/// The longest name in bytes; compilers make some of a few thousand bytes.
pub const MAX_NAME_BYTES: usize = 16 << 10;
/// The largest extent in bytes of a symbol of unknown size.
pub const MAX_UNSIZED_BYTES: u64 = 64 << 10;
/// The most groups of a list.
const MAX_GROUPS: usize = 4096;
/// The most entries that a lookup checks, backwards from the nearest, because symbols may overlap.
const MAX_OVERLAPPING_SYMBOLS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct SymbolEntry {
    start: u64,
    /// The first address after the symbol; equal to the start for an unknown size until the table
    /// is finished.
    end: u64,
    name_offset: u32,
    name_bytes: u16,
    group: u16,
    rank: u8,
}

/// A symbol that a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'t> {
    /// Name as the file has it.
    pub name: &'t [u8],
    /// Start address of the symbol.
    pub start: u64,
    /// The kernel module of the symbol, if a list names one.
    pub group: Option<&'t Arc<str>>,
}

impl<'t> Symbol<'t> {
    /// Returns the name as text.
    #[must_use]
    pub fn text(&self) -> Cow<'t, str> {
        String::from_utf8_lossy(self.name)
    }
}

/// The rank of a symbol among several at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolRank {
    /// A symbol that other programs can use.
    Global,
    /// A symbol that only its own program can use.
    Local,
    /// A symbol that another symbol may replace.
    Weak,
}

/// The symbols of one file.
#[derive(Debug, Default)]
pub struct SymbolTable {
    entries: Vec<SymbolEntry>,
    names: Vec<u8>,
    groups: Vec<Arc<str>>,
    /// The addresses of the symbols of [`KERNEL_START_NAMES`].
    kernel_starts: [Option<u64>; 2],
    is_cut: bool,
}

/// The names of the symbols at the start of a kernel's code.
const KERNEL_START_NAMES: [&[u8]; 2] = [b"_text", b"_stext"];

impl SymbolTable {
    /// Adds a symbol; a size of 0 means unknown. Symbols beyond the limits are left out.
    pub fn push(&mut self, start: u64, size: u64, name: &[u8], rank: SymbolRank) {
        self.push_in_group(start, size, name, rank, None);
    }

    /// Adds a symbol that belongs to a group.
    pub fn push_in_group(
        &mut self,
        start: u64,
        size: u64,
        name: &[u8],
        rank: SymbolRank,
        group: Option<&str>,
    ) {
        let total_name_bytes = self.names.len().saturating_add(name.len());
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return;
        }
        if self.entries.len() >= MAX_SYMBOLS || total_name_bytes > MAX_TOTAL_NAME_BYTES {
            self.mark_cut();
            return;
        }
        let (Ok(name_offset), Ok(name_bytes)) = (u32::try_from(self.names.len()), u16::try_from(name.len()))
        else {
            return;
        };
        let Some(group) = self.find_or_add_group(group) else {
            self.mark_cut();
            return;
        };
        let rank = match rank {
            SymbolRank::Global => 0,
            SymbolRank::Local => 1,
            SymbolRank::Weak => 2,
        };
        for (address, start_name) in self.kernel_starts.iter_mut().zip(KERNEL_START_NAMES) {
            if name == start_name && group == 0 {
                address.get_or_insert(start);
            }
        }
        self.names.extend_from_slice(name);
        self.entries.push(SymbolEntry {
            start,
            end: start.saturating_add(size),
            name_offset,
            name_bytes,
            group,
            rank,
        });
    }

    /// Returns the number of a group, counted from 1, or 0 for no group. Symbols of one group are
    /// added one after the other, so only the last group is compared.
    fn find_or_add_group(&mut self, name: Option<&str>) -> Option<u16> {
        let Some(name) = name else { return Some(0) };
        let has_name = |group: &Arc<str>| **group == *name;
        if !self.groups.last().is_some_and(has_name) {
            if self.groups.len() >= MAX_GROUPS {
                return None;
            }
            self.groups.push(name.into());
        }
        u16::try_from(self.groups.len()).ok()
    }

    /// Prepares the table for lookups.
    pub fn finish(&mut self) {
        self.finish_with_code_ends(Vec::new());
    }

    /// Prepares the table for lookups; no symbol of unknown size extends past one of these ends.
    pub(super) fn finish_with_code_ends(&mut self, mut ends: Vec<u64>) {
        ends.sort_unstable();
        let is_unsized = |entry: &SymbolEntry| entry.end == entry.start;
        self.entries.sort_by_key(|entry| (entry.start, is_unsized(entry), entry.rank, entry.name_bytes));
        self.entries.dedup_by_key(|entry| entry.start);
        self.entries.shrink_to_fit();
        let mut next = u64::MAX;
        for entry in self.entries.iter_mut().rev() {
            if entry.end == entry.start {
                let after = ends.partition_point(|end| *end <= entry.start);
                let end = ends.get(after).copied().unwrap_or(u64::MAX);
                entry.end = next.min(end).min(entry.start.saturating_add(MAX_UNSIZED_BYTES));
            }
            next = entry.start;
        }
    }

    /// Returns the symbol at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        let before = self.entries.get(..after)?.iter().rev().take(MAX_OVERLAPPING_SYMBOLS);
        let entry = before.into_iter().find(|entry| address < entry.end)?;
        Some(self.symbol_of_entry(entry))
    }

    /// Returns the addresses of `_text` and `_stext` of the kernel, if the table has them.
    pub fn kernel_starts(&self) -> impl Iterator<Item = u64> {
        self.kernel_starts.into_iter().flatten()
    }

    fn symbol_of_entry(&self, entry: &SymbolEntry) -> Symbol<'_> {
        let at = usize::try_from(entry.name_offset).unwrap_or(usize::MAX);
        let end = at.saturating_add(usize::from(entry.name_bytes));
        let group = usize::from(entry.group).checked_sub(1).and_then(|at| self.groups.get(at));
        Symbol { name: self.names.get(at..end).unwrap_or_default(), start: entry.start, group }
    }

    pub(super) fn mark_cut(&mut self) {
        self.is_cut = true;
    }

    /// Returns whether symbols were left out because there are too many, or because reading them
    /// took too long.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns whether the table has no symbols.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory that the table takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.capacity().saturating_mul(size_of::<SymbolEntry>()).saturating_add(self.names.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_at(table: &SymbolTable, address: u64) -> Option<String> {
        table.lookup(address).map(|symbol| symbol.text().into_owned())
    }

    #[test]
    fn an_address_belongs_to_the_symbol_around_it() {
        let mut table = SymbolTable::default();
        for (start, size, name, rank) in [
            (0x100, 0x40, "whole", SymbolRank::Local),
            (0x110, 0x08, "within", SymbolRank::Local),
            (0x100, 0x40, "Whole", SymbolRank::Global),
            (0x100, 0, "label", SymbolRank::Global),
            (0x200, 0, "open", SymbolRank::Global),
            (0x300, 0x10, "last", SymbolRank::Weak),
            (0x8_0000, 0, "end", SymbolRank::Global),
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
            (0x8_0000 + MAX_UNSIZED_BYTES - 1, Some("end")),
            (0x8_0000 + MAX_UNSIZED_BYTES, None),
        ] {
            assert_eq!(name_at(&table, address).as_deref(), expected, "{address:#x}");
        }
    }

    #[test]
    fn a_symbol_without_size_ends_with_its_section() {
        let mut table = SymbolTable::default();
        table.push(0x100, 0, b"_init", SymbolRank::Global);
        table.push(0x200, 0, b"_start", SymbolRank::Global);
        table.push(0x230, 0, b"label", SymbolRank::Local);
        table.push(0x240, 0x100, b"sized", SymbolRank::Local);
        table.finish_with_code_ends(vec![0x280, 0x120, 0x100]);
        for (address, expected) in [
            (0x11F, Some("_init")),
            (0x120, None),
            (0x1FF, None),
            (0x22F, Some("_start")),
            (0x23F, Some("label")),
            (0x33F, Some("sized")),
        ] {
            assert_eq!(name_at(&table, address).as_deref(), expected, "{address:#x}");
        }
    }

    #[test]
    fn groups_are_kept_and_names_are_bounded() {
        let mut table = SymbolTable::default();
        table.push(1, 1, b"a", SymbolRank::Global);
        table.push_in_group(2, 1, b"b", SymbolRank::Global, Some("ext4"));
        table.push_in_group(3, 1, b"c", SymbolRank::Global, Some("ext4"));
        table.push(4, 1, &[b'x'; MAX_NAME_BYTES + 1], SymbolRank::Global);
        table.push(5, 1, b"", SymbolRank::Global);
        table.push(u64::MAX, 9, b"top", SymbolRank::Global);
        table.push_in_group(7, 1, b"_text", SymbolRank::Global, Some("ext4"));
        table.push(1, 1, b"_stext", SymbolRank::Global);
        table.finish();
        assert_eq!(
            table.kernel_starts().collect::<Vec<_>>(),
            [1],
            "the symbol of the kernel itself must be used, not that of a module"
        );
        assert_eq!((table.len(), table.groups.len()), (5, 1));
        assert_eq!(table.lookup(3).and_then(|symbol| symbol.group).map(|group| &**group), Some("ext4"));
        assert_eq!(table.lookup(1).and_then(|symbol| symbol.group), None);
        assert_eq!(name_at(&table, u64::MAX), None, "a symbol must not extend past the end of memory");
    }
}
