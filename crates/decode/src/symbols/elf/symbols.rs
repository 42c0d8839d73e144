//! The functions among the symbols of a program or debug file.
//!
//! ```text
//!   .symtab, .dynsym   name ─┐ value, size, kind, section
//!   .strtab, .dynstr   ──────┴─▶ a text up to the next NUL, if that is near
//! ```
//!
//! Invariants:
//! 1. One table of each kind is read, as the format has it: a stranger's file may list thousands that lie over each other.
//! 2. A name ends within [`MAX_NAME`] bytes or is none: where no NUL stands in the whole block, looking for it again and again is what takes time.
//! 3. A function whose size is not told ends with its section: what lies behind is another's, stubs for example.
//! 4. What ends the look before the last symbol (bounds, effort, a table that is too large) marks the result as [cut](Table::is_cut).

use std::cell::Cell;
use std::time::Duration;

use object::elf::{
    SHF_EXECINSTR, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_GLOBAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC,
    STT_NOTYPE,
};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, ReadRef, SectionIndex};

use super::super::effort::Effort;
use super::super::table::{MAX_NAME, Rank, Table};

/// The largest table of symbols, and the largest block of their names.
const MAX_SECTION: u64 = 256 << 20;
/// Steps and time for all symbols of a file: one step for each, and what [`Effort::pay_for_bytes`] takes for its name.
const STEPS: u64 = 64 << 20;
const TIME: Duration = Duration::from_secs(20);

/// The functions that the tables of a file tell; addresses lose the bits that are not in `mask`.
pub(super) fn read<'data, Elf, R>(
    sections: &SectionTable<'data, Elf, R>,
    (endian, file): (Endianness, R),
    left: &Cell<u64>,
    (machine, mask): (u16, u64),
) -> Table
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut table = Table::default();
    let mut effort = Effort::new(STEPS, TIME);
    let taker = Taker { sections, endian, file, left, mask };
    // Told at the end: until then a table that is cut is one that is full.
    let mut is_all = true;
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        let Some(section) = sections.iter().find(|it| it.sh_type(endian) == kind) else { continue };
        // A table that cannot be read, or is too large, leaves the other.
        is_all &= !matches!(taker.take(section, &mut effort, &mut table), Ok(None));
    }
    is_all &= taker.take_stubs(machine, &mut effort, &mut table).is_some();
    if !is_all {
        table.cut();
    }
    table.finish_within(ends_of_code(sections, endian));
    table
}

/// Where sections of code end: no function goes on behind that.
fn ends_of_code<'data, Elf, R>(sections: &SectionTable<'data, Elf, R>, endian: Endianness) -> Vec<u64>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let code = sections.iter().filter(|it| it.sh_flags(endian).into() & u64::from(SHF_EXECINSTR) != 0);
    let end = |it: &Elf::SectionHeader| it.sh_addr(endian).into().saturating_add(it.sh_size(endian).into());
    code.filter(|it| it.sh_size(endian).into() > 0).map(end).collect()
}

/// Reads tables of one file.
pub(super) struct Taker<'s, 'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>> {
    pub(super) sections: &'s SectionTable<'data, Elf, R>,
    pub(super) endian: Endianness,
    pub(super) file: R,
    /// Bytes that may still be read.
    left: &'s Cell<u64>,
    mask: u64,
}

impl<'data, Elf, R> Taker<'_, 'data, Elf, R>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    /// Takes in the functions of one table; `None` where there is more than is taken.
    fn take(
        &self,
        section: &'data Elf::SectionHeader,
        effort: &mut Effort,
        to: &mut Table,
    ) -> object::Result<Option<()>> {
        let endian = self.endian;
        let strings = self.sections.section(SectionIndex(section.sh_link(endian) as usize))?;
        for part in [section, strings] {
            if part.sh_size(endian).into() > MAX_SECTION {
                return Ok(None);
            }
            self.allow(part);
        }
        let symbols: &[Elf::Sym] = section.data_as_array(endian, self.file)?;
        let strings = strings.data(endian, self.file)?;
        for symbol in symbols {
            if effort.pay(1).is_none() || to.is_cut() {
                return Ok(None);
            }
            if !self.may_be_code(symbol) {
                continue;
            }
            let at = usize::try_from(symbol.st_name(endian)).unwrap_or(usize::MAX);
            let (name, looked_at) = name_at(strings, at);
            if effort.pay_for_bytes(looked_at).is_none() {
                return Ok(None);
            }
            let Some(name) = name.filter(|name| symbol.st_type() != STT_NOTYPE || !is_made_up(name)) else {
                continue;
            };
            let rank = match symbol.st_bind() {
                STB_GLOBAL => Rank::Global,
                STB_WEAK => Rank::Weak,
                _ => Rank::Local,
            };
            to.push(symbol.st_value(endian).into() & self.mask, symbol.st_size(endian).into(), name, rank);
        }
        Ok(Some(()))
    }

    /// Lets the bytes of a section be read.
    pub(super) fn allow(&self, section: &Elf::SectionHeader) {
        self.left.set(self.left.get().saturating_add(section.sh_size(self.endian).into()));
    }

    /// Whether it is a function, or a label in code.
    fn may_be_code(&self, symbol: &Elf::Sym) -> bool {
        let endian = self.endian;
        let place = symbol.st_shndx(endian);
        let of_code = |it: &Elf::SectionHeader| it.sh_flags(endian).into() & u64::from(SHF_EXECINSTR) != 0;
        match symbol.st_type() {
            _ if place == SHN_UNDEF => false,
            STT_FUNC | STT_GNU_IFUNC => true,
            STT_NOTYPE => self.sections.section(SectionIndex(usize::from(place))).is_ok_and(of_code),
            _ => false,
        }
    }
}

/// The text at an offset, if it ends soon enough, and the bytes that were looked at.
pub(super) fn name_at(strings: &[u8], at: usize) -> (Option<&[u8]>, usize) {
    let near = strings.get(at..at.saturating_add(MAX_NAME).saturating_add(1).min(strings.len()));
    let near = near.unwrap_or_default();
    match memchr::memchr(0, near) {
        Some(end) => (near.get(..end), end),
        None => (None, near.len()),
    }
}

/// Labels that assemblers make, and marks of what is code and what is data.
fn is_made_up(name: &[u8]) -> bool {
    name.starts_with(b"$") || name.starts_with(b".L")
}
