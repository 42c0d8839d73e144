//! Names the stubs through which a program calls functions of shared libraries.
//!
//! ```text
//!   .plt, .plt.sec, .plt.got   [endbr64] [bnd] jmp *slot(%rip)     x86-64
//!                              [bti c] adrp x16, page; ldr x17, [x16, offset]     AArch64
//!                                        └─▶ slot ──.rela.plt, .rela.dyn──▶ symbol ──▶ "name@plt"
//! ```
//!
//! Linkers write stubs and relocations in any order, so their positions mean nothing: a stub is
//! named by the slot that its code jumps through.
//!
//! Invariants:
//! 1. A stub whose code has another form, or whose slot no relocation fills with a symbol, has no
//!    name.
//! 2. Slots ([`MAX_SLOTS`]) and bytes of each section ([`MAX_SECTION_BYTES`],
//!    [`MAX_STUB_SECTION_BYTES`]) are bounded; each stub and each relocation is subtracted from the
//!    budget.

use std::collections::HashMap;

use object::elf::{
    EM_AARCH64, EM_X86_64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT,
    SHT_NOBITS,
};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use object::{Endianness, ReadRef, SectionIndex};

use super::super::budget::WorkBudget;
use super::super::table::{SymbolRank, SymbolTable};
use super::symbols::{SymbolReader, read_name_at};

/// The most slots that are kept.
const MAX_SLOTS: usize = 1 << 18;
/// The size limit of a section of relocations, symbols or names, in bytes.
const MAX_SECTION_BYTES: u64 = 64 << 20;
/// The size limit of a section of stubs, in bytes.
const MAX_STUB_SECTION_BYTES: u64 = 8 << 20;
/// The sections of stubs, each with the section of relocations that fill its slots.
const STUB_SECTIONS: [(&[u8], &[u8]); 3] =
    [(b".plt", b".rela.plt"), (b".plt.sec", b".rela.plt"), (b".plt.got", b".rela.dyn")];
/// The size of a stub in bytes if the section has no usual entry size.
const DEFAULT_STUB_BYTES: usize = 16;

/// Returns the slot that a stub at an address jumps through.
fn find_slot(machine: u16, code: &[u8], address: u64) -> Option<u64> {
    match machine {
        EM_X86_64 => find_x86_64_slot(code, address),
        EM_AARCH64 => find_aarch64_slot(code, address),
        _ => None,
    }
}

/// Returns whether a relocation writes the address of a function into the slot of a stub.
const fn is_slot_relocation(machine: u16, kind: u32) -> bool {
    match machine {
        EM_X86_64 => matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT),
        _ => matches!(kind, R_AARCH64_GLOB_DAT | R_AARCH64_JUMP_SLOT),
    }
}

fn find_x86_64_slot(code: &[u8], address: u64) -> Option<u64> {
    // endbr64 and the prefix bnd, both optional, then jmp *distance(%rip).
    let jump = code.strip_prefix(&[0xF3, 0x0F, 0x1E, 0xFA]).unwrap_or(code);
    let jump = jump.strip_prefix(&[0xF2]).unwrap_or(jump);
    let (distance, after) = jump.strip_prefix(&[0xFF, 0x25])?.split_first_chunk::<4>()?;
    // The offset counts from the next instruction.
    let next = address.wrapping_add(u64::try_from(code.len().checked_sub(after.len())?).ok()?);
    Some(next.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance))))
}

fn find_aarch64_slot(code: &[u8], address: u64) -> Option<u64> {
    const BTI_C: u32 = 0xD503_245F;
    let word = |at: usize| code.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let at = if word(0)? == BTI_C { 4 } else { 0 };
    let (adrp, ldr) = (word(at)?, word(at.checked_add(4)?)?);
    // adrp x16, page; ldr x17, [x16, #offset]
    if adrp & 0x9F00_001F != 0x9000_0010 || ldr & 0xFFC0_03FF != 0xF940_0211 {
        return None;
    }
    let pages = (adrp >> 5 & 0x7_FFFF) << 2 | (adrp >> 29 & 3);
    // The page offset has 21 bits with a sign.
    let pages = i64::from((pages << 11).cast_signed() >> 11);
    let stub_page = address.wrapping_add(u64::try_from(at).ok()?) & !0xFFF;
    let page = stub_page.wrapping_add_signed(pages.checked_mul(4096)?);
    Some(page.wrapping_add(u64::from(ldr >> 10 & 0xFFF) << 3))
}

impl<'data, Elf, R> SymbolReader<'_, 'data, Elf, R>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    /// Adds the stubs of a program to the table; returns `None` if a limit ends the reading.
    pub(super) fn add_stubs(
        &self,
        machine: u16,
        budget: &mut WorkBudget,
        table: &mut SymbolTable,
    ) -> Option<()> {
        let section_named = |name: &[u8], max_bytes| {
            let (_, section) = self.sections.section_by_name(self.endian, name)?;
            self.is_within(section, max_bytes).then_some(section)
        };
        let present = STUB_SECTIONS.iter().filter_map(|(name, relocations)| {
            Some((section_named(name, MAX_STUB_SECTION_BYTES)?, *relocations))
        });
        let (stubs, mut relocations): (Vec<_>, Vec<_>) = present.unzip();
        if !matches!(machine, EM_X86_64 | EM_AARCH64) {
            return Some(());
        }
        let mut slots = HashMap::new();
        // `.plt` and `.plt.sec` have the same section of relocations.
        relocations.dedup();
        for section in relocations.into_iter().filter_map(|name| section_named(name, MAX_SECTION_BYTES)) {
            self.read_slots((machine, section), budget, &mut slots)?;
        }
        for section in stubs {
            self.name_stubs((machine, section), &slots, budget, table)?;
        }
        Some(())
    }

    fn is_within(&self, section: &Elf::SectionHeader, max_bytes: u64) -> bool {
        section.sh_type(self.endian) != SHT_NOBITS && section.sh_size(self.endian).into() <= max_bytes
    }

    /// Maps slots to the names of the symbols that fill them.
    fn read_slots(
        &self,
        (machine, section): (u16, &'data Elf::SectionHeader),
        budget: &mut WorkBudget,
        slots: &mut HashMap<u64, &'data [u8]>,
    ) -> Option<()> {
        self.allow_section(section);
        let Ok(Some((relocations, link))) = section.rela(self.endian, self.file) else { return Some(()) };
        let Some((symbols, strings)) = self.read_linked_symbols(link) else { return Some(()) };
        for relocation in relocations {
            budget.spend(1)?;
            if !is_slot_relocation(machine, relocation.r_type(self.endian, false)) {
                continue;
            }
            let Some(index) = relocation.symbol(self.endian, false) else { continue };
            let Some(symbol) = symbols.get(index.0) else { continue };
            let at = usize::try_from(symbol.st_name(self.endian)).unwrap_or(usize::MAX);
            let (name, bytes_read) = read_name_at(strings, at);
            budget.spend_for_bytes(bytes_read)?;
            if slots.len() >= MAX_SLOTS {
                return None;
            }
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                slots.insert(relocation.r_offset(self.endian).into(), name);
            }
        }
        Some(())
    }

    /// Returns the symbols that relocations refer to, and their names.
    fn read_linked_symbols(&self, link: SectionIndex) -> Option<(&'data [Elf::Sym], &'data [u8])> {
        let symbols =
            self.sections.section(link).ok().filter(|section| self.is_within(section, MAX_SECTION_BYTES))?;
        let strings = self.sections.section(SectionIndex(symbols.sh_link(self.endian) as usize));
        let strings = strings.ok().filter(|section| self.is_within(section, MAX_SECTION_BYTES))?;
        self.allow_section(symbols);
        self.allow_section(strings);
        let symbols = symbols.data_as_array(self.endian, self.file).ok()?;
        Some((symbols, strings.data(self.endian, self.file).ok()?))
    }

    fn name_stubs(
        &self,
        (machine, section): (u16, &'data Elf::SectionHeader),
        slots: &HashMap<u64, &[u8]>,
        budget: &mut WorkBudget,
        table: &mut SymbolTable,
    ) -> Option<()> {
        self.allow_section(section);
        let Ok(code) = section.data(self.endian, self.file) else { return Some(()) };
        let start: u64 = section.sh_addr(self.endian).into();
        let entry_size = usize::try_from(section.sh_entsize(self.endian).into()).unwrap_or(0);
        let size = if matches!(entry_size, 8 | 16 | 24) { entry_size } else { DEFAULT_STUB_BYTES };
        let mut name = Vec::new();
        for (address, stub) in (start..).step_by(size).zip(code.chunks_exact(size)) {
            budget.spend(1)?;
            let slot = find_slot(machine, stub, address);
            let Some(function) = slot.and_then(|slot| slots.get(&slot)) else { continue };
            budget.spend_for_bytes(function.len())?;
            name.clear();
            name.extend_from_slice(function);
            name.extend_from_slice(b"@plt");
            table.push(address, u64::try_from(size).unwrap_or(0), &name, SymbolRank::Local);
            if table.is_cut() {
                return None;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_found_in_the_code_of_a_stub() {
        let x86 = |code: &[u8]| find_slot(EM_X86_64, code, 0x1020);
        // jmp *0x2fe2(%rip); push 0; jmp
        assert_eq!(x86(b"\xFF\x25\xE2\x2F\0\0\x68\0\0\0\0\xE9\xE0\xFF\xFF\xFF"), Some(0x4008));
        // endbr64; jmp *0x2fde(%rip); nop — and with bnd
        assert_eq!(x86(b"\xF3\x0F\x1E\xFA\xFF\x25\xDE\x2F\0\0\x66\x0F\x1F\x44\0\0"), Some(0x4008));
        assert_eq!(x86(b"\xF3\x0F\x1E\xFA\xF2\xFF\x25\xDD\x2F\0\0\x0F\x1F\x44\0\0"), Some(0x4008));
        assert_eq!(
            x86(b"\xFF\x25\xE2\xFF\xFF\xFF\x66\x90"),
            Some(0x1008),
            "a slot at a lower address than its stub must be found"
        );
        // The first stub of lazy binding, one that only pushes, and one that is truncated.
        assert_eq!(x86(b"\xFF\x35\xE2\x2F\0\0\xFF\x25\xE4\x2F\0\0\x0F\x1F\x40\0"), None);
        assert_eq!(x86(b"\xF3\x0F\x1E\xFA\x68\0\0\0\0\xF2\xE9\xE1\xFF\xFF\xFF\x90"), None);
        assert_eq!(x86(b"\xFF\x25\xE2\x2F"), None);
        let arm = |words: &[u32], address| {
            let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            find_slot(EM_AARCH64, &code, address)
        };
        // adrp x16, +0x10000; ldr x17, [x16, #0xfa8]; add x16, x16, #0xfa8; br x17
        let stub = [0x9000_0090, 0xF947_D611, 0x913E_A210, 0xD61F_0220];
        assert_eq!(arm(&stub, 0x5D0), Some(0x1_0FA8));
        let with_bti = [0xD503_245F, 0x9000_0090, 0xF947_D611, 0x913E_A210, 0xD61F_0220, 0xD503_201F];
        assert_eq!(arm(&with_bti, 0x5D0), Some(0x1_0FA8));
        // adrp x16, -0x1000
        assert_eq!(arm(&[0xF0FF_FFF0, 0xF947_D611, 0, 0], 0x1_05D0), Some(0xF_FA8));
        assert_eq!(
            arm(&[0xA9BF_7BF0, 0x9000_0090, 0xF947_FE11, 0], 0x5B0),
            None,
            "the first stub of lazy binding must have no slot"
        );
        assert_eq!(find_slot(0, b"\xFF\x25\xE2\x2F\0\0\x66\x90", 0), None, "the machine must be known");
    }
}
