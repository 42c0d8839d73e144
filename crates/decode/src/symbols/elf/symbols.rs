//! Reads the functions among the symbols of a program or debug file.
//!
//! ```text
//!   .symtab, .dynsym   name ─┐ value, size, kind, section
//!   .strtab, .dynstr   ──────┴─▶ a text up to the next NUL, at most MAX_NAME_BYTES bytes
//! ```
//!
//! Invariants:
//! 1. Only the first table of each kind is read: the format allows one, and a hostile file may list
//!    thousands that overlap.
//! 2. A name ends within [`MAX_NAME_BYTES`] bytes or is ignored: if the strings have no NUL, each
//!    unbounded search would read all of them.
//! 3. A function of unknown size ends at the latest with its section: the bytes after the section,
//!    for example stubs, do not belong to the function.
//! 4. If reading ends before the last symbol (limits, work budget, a table that is too large), the
//!    result is marked as [cut](SymbolTable::is_cut).

use std::cell::Cell;
use std::time::Duration;

use object::elf::{
    SHF_EXECINSTR, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_GLOBAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC,
    STT_NOTYPE,
};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, ReadRef, SectionIndex};

use super::super::budget::WorkBudget;
use super::super::table::{MAX_NAME_BYTES, SymbolRank, SymbolTable};

/// The size limit of a symbol table and of its string table, in bytes.
const MAX_SECTION_BYTES: u64 = 256 << 20;
/// The most steps for all symbols of a file: one for each symbol, plus those of
/// [`WorkBudget::spend_for_bytes`] for its name.
const MAX_STEPS: u64 = 64 << 20;
/// The most time for all symbols of a file.
const MAX_TIME: Duration = Duration::from_secs(20);

/// Reads the functions in the symbol tables of a file; clears the address bits that are not in
/// `address_mask`.
pub(super) fn read_symbols<'data, Elf, R>(
    sections: &SectionTable<'data, Elf, R>,
    endian: Endianness,
    file: R,
    bytes_left: &Cell<u64>,
    machine: u16,
    address_mask: u64,
) -> SymbolTable
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut table = SymbolTable::default();
    let mut budget = WorkBudget::new(MAX_STEPS, MAX_TIME);
    let reader = SymbolReader { sections, endian, file, bytes_left, address_mask };
    // Recorded in the table at the end: until then, `is_cut` means that the table is full.
    let mut is_complete = true;
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        let Some(section) = sections.iter().find(|section| section.sh_type(endian) == kind) else { continue };
        // If one table is unreadable or too large, the other is still read.
        is_complete &= !matches!(reader.read_table(section, &mut budget, &mut table), Ok(None));
    }
    is_complete &= reader.add_stubs(machine, &mut budget, &mut table).is_some();
    if !is_complete {
        table.mark_cut();
    }
    table.finish_with_code_ends(code_section_ends(sections, endian));
    table
}

/// Returns the end addresses of code sections; no function of unknown size extends past them.
fn code_section_ends<'data, Elf, R>(sections: &SectionTable<'data, Elf, R>, endian: Endianness) -> Vec<u64>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let code =
        sections.iter().filter(|section| section.sh_flags(endian).into() & u64::from(SHF_EXECINSTR) != 0);
    let end_address = |section: &Elf::SectionHeader| {
        section.sh_addr(endian).into().saturating_add(section.sh_size(endian).into())
    };
    code.filter(|section| section.sh_size(endian).into() > 0).map(end_address).collect()
}

pub(super) struct SymbolReader<'s, 'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>> {
    pub(super) sections: &'s SectionTable<'data, Elf, R>,
    pub(super) endian: Endianness,
    pub(super) file: R,
    /// The number of bytes that may still be read.
    bytes_left: &'s Cell<u64>,
    address_mask: u64,
}

impl<'data, Elf, R> SymbolReader<'_, 'data, Elf, R>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    /// Adds the functions of one table; returns `None` if a limit ends the reading.
    fn read_table(
        &self,
        section: &'data Elf::SectionHeader,
        budget: &mut WorkBudget,
        to: &mut SymbolTable,
    ) -> object::Result<Option<()>> {
        let endian = self.endian;
        let strings = self.sections.section(SectionIndex(section.sh_link(endian) as usize))?;
        for part in [section, strings] {
            if part.sh_size(endian).into() > MAX_SECTION_BYTES {
                return Ok(None);
            }
            self.allow_section(part);
        }
        let symbols: &[Elf::Sym] = section.data_as_array(endian, self.file)?;
        let strings = strings.data(endian, self.file)?;
        for symbol in symbols {
            if budget.spend(1).is_none() || to.is_cut() {
                return Ok(None);
            }
            if !self.may_be_code(symbol) {
                continue;
            }
            let at = usize::try_from(symbol.st_name(endian)).unwrap_or(usize::MAX);
            let (name, bytes_read) = read_name_at(strings, at);
            if budget.spend_for_bytes(bytes_read).is_none() {
                return Ok(None);
            }
            let Some(name) = name.filter(|name| symbol.st_type() != STT_NOTYPE || !is_assembler_label(name))
            else {
                continue;
            };
            let rank = match symbol.st_bind() {
                STB_GLOBAL => SymbolRank::Global,
                STB_WEAK => SymbolRank::Weak,
                _ => SymbolRank::Local,
            };
            to.push(
                symbol.st_value(endian).into() & self.address_mask,
                symbol.st_size(endian).into(),
                name,
                rank,
            );
        }
        Ok(Some(()))
    }

    /// Adds the size of a section to the bytes that may be read.
    pub(super) fn allow_section(&self, section: &Elf::SectionHeader) {
        self.bytes_left.set(self.bytes_left.get().saturating_add(section.sh_size(self.endian).into()));
    }

    /// Returns whether a symbol is a function, or a label in code.
    fn may_be_code(&self, symbol: &Elf::Sym) -> bool {
        let endian = self.endian;
        let section_index = symbol.st_shndx(endian);
        let is_code_section =
            |section: &Elf::SectionHeader| section.sh_flags(endian).into() & u64::from(SHF_EXECINSTR) != 0;
        match symbol.st_type() {
            _ if section_index == SHN_UNDEF => false,
            STT_FUNC | STT_GNU_IFUNC => true,
            STT_NOTYPE => {
                self.sections.section(SectionIndex(usize::from(section_index))).is_ok_and(is_code_section)
            }
            _ => false,
        }
    }
}

/// Returns the text at an offset, if it ends within [`MAX_NAME_BYTES`] bytes, and the number of
/// bytes that were read.
pub(super) fn read_name_at(strings: &[u8], at: usize) -> (Option<&[u8]>, usize) {
    let bytes = strings.get(at..at.saturating_add(MAX_NAME_BYTES).saturating_add(1).min(strings.len()));
    let bytes = bytes.unwrap_or_default();
    match memchr::memchr(0, bytes) {
        Some(end) => (bytes.get(..end), end),
        None => (None, bytes.len()),
    }
}

/// Returns whether a name is a label of an assembler, or a mapping symbol that marks code or data.
fn is_assembler_label(name: &[u8]) -> bool {
    name.starts_with(b"$") || name.starts_with(b".L")
}
