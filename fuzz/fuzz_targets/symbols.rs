//! Fuzzes all sources of function names: ELF files with their symbols and lines, PDB files, lists,
//! mangled names.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use traceweir_decode::symbols::elf::{ElfParts, find_build_id};
use traceweir_decode::symbols::table::{MAX_SYMBOLS, MAX_TOTAL_NAME_BYTES};
use traceweir_decode::symbols::{Dwarf, Elf, Pdb, SymbolTable, demangle, listing};

/// The number of queried addresses at the start of the address space.
const ADDRESS_COUNT: u64 = 64;
/// Largest number of functions at one address.
const MAX_SITES: usize = 128;
/// The longest demangled name, in bytes.
const MAX_NAME_BYTES: usize = 4096;

fn check_table(table: &SymbolTable) {
    assert!(table.len() <= MAX_SYMBOLS && table.bytes() <= 2 * MAX_TOTAL_NAME_BYTES);
    for address in (0..ADDRESS_COUNT).map(|at| at * 8).chain([u64::MAX, 1 << 63]) {
        if let Some(symbol) = table.lookup(address) {
            assert!(symbol.start <= address && !symbol.name.is_empty());
            assert!(demangle(&symbol.text()).len() <= MAX_NAME_BYTES);
        }
    }
}

fn check_dwarf(dwarf: &mut Dwarf) {
    for address in (0..ADDRESS_COUNT).map(|at| at * 8 + 2).chain([0x1000, 0x40_1000, u64::MAX]) {
        let sites = dwarf.find(address);
        assert!(sites.len() <= MAX_SITES);
        // All functions except the outermost are inlined.
        assert!(sites.iter().rev().skip(1).all(|site| site.is_inlined));
        assert!(
            sites.iter().all(|site| site.function.as_ref().is_none_or(|name| name.len() <= MAX_NAME_BYTES))
        );
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    match kind {
        0 => {
            let parts = ElfParts { symbols: true, dwarf: true };
            if let Ok(Some(mut elf)) = Elf::read(Cursor::new(data), parts, |_| true) {
                check_table(&elf.symbols);
                if let Some(dwarf) = &mut elf.dwarf {
                    check_dwarf(dwarf);
                }
            }
        }
        1 => {
            if let Ok(Some(pdb)) = Pdb::read(Cursor::new(data), |_, _| true) {
                check_table(&pdb.symbols);
            }
        }
        2 => check_table(&listing::read_kernel_symbols(data).expect("reading from memory cannot fail")),
        3 => check_table(&listing::read_perf_map(data).expect("reading from memory cannot fail")),
        4 => assert!(demangle(&String::from_utf8_lossy(data)).len() <= MAX_NAME_BYTES),
        _ => {
            if let Some(id) = find_build_id(data) {
                assert!(id.len() <= data.len());
            }
        }
    }
});
