//! Reads functions from PDB files of Windows.
//!
//! ```text
//!   PDB stream: signature (GUID) ─┐
//!   DBI stream: age ──────────────┴─▶ accepted?  ─▶ sections: number ─▶ address in the image
//!   modules: S_GPROC32, S_LPROC32 … length, offset, section, name        functions, undecorated
//!   globals: S_PUB32                 flags, offset, section, name        public symbols, decorated
//! ```
//!
//! | offset | procedure | public |
//! |---|---|---|
//! | 0 | u16 kind | u16 kind 0x110E |
//! | 2 | u32 parent, end, next | u32 flags: 2 is a function |
//! | 14 / 6 | u32 length | u32 offset |
//! | 18 / – | u32 debug start, u32 debug end, u32 type | |
//! | 30 / – | u32 offset | |
//! | 34 / 10 | u16 section | u16 section |
//! | 36 / 12 | u8 flags, then the name | the name |
//!
//! Where a row has two offsets, the first is for procedures and the second for public symbols.
//!
//! As with messages ([`wpp::pdb`](crate::source::wpp::pdb)), `pdb2` reads the container and this
//! module parses the records. Not supported: lines, inlined functions, and images whose code was
//! moved after linking (OMAP), which get no names.
//!
//! Source: Documented (CodeView symbol records in the published `microsoft-pdb` headers).

use std::fs::File;
use std::io::{BufReader, Read, Seek};

use pdb2::{FallibleIterator, PDB, StreamIndex, SymbolIter};
use traceweir_format::{Guid, text, wire};

use super::table::{MAX_SYMBOLS, SymbolRank, SymbolTable};
use crate::source::wpp::pdb::{BoundedFile, effective_file_length};
use crate::{Error, Result};

const S_PUB32: u16 = 0x110E;
/// Local procedures, with a type or with an id.
const S_LOCAL_PROCEDURES: [u16; 2] = [0x110F, 0x1146];
/// Global procedures, with a type or with an id.
const S_GLOBAL_PROCEDURES: [u16; 2] = [0x1110, 0x1147];
/// The flag of a public symbol that is a function.
const PUBLIC_FUNCTION_FLAG: u32 = 2;
/// The number of the stream of debug information, which lists optional streams.
const DEBUG_STREAM: u16 = 3;
/// The index of the stream that maps moved code, in the list of optional streams.
const OMAP_STREAM: usize = 4;
/// The index of the stream of section headers, in the list of optional streams.
const SECTION_HEADERS_STREAM: usize = 5;
/// The size of a section header, in bytes.
const SECTION_HEADER_BYTES: usize = 40;
/// Byte offset in a section header of the section's address relative to the image.
const SECTION_ADDRESS_OFFSET: usize = 12;
/// The most modules that are read: stream numbers have 16 bits.
const MAX_MODULES: usize = 1 << 16;

/// The functions of a PDB.
#[derive(Debug)]
pub struct Pdb {
    /// Symbols by their offset from the image's base.
    pub symbols: SymbolTable,
}

fn unreadable_pdb(error: impl std::fmt::Display) -> Error {
    Error::Binary(error.to_string())
}

impl Pdb {
    /// Like [`Pdb::read`], for a regular file on disk.
    pub fn read_file(file: File, accept: impl FnOnce(Guid, u32) -> bool) -> Result<Option<Self>> {
        let max_length = effective_file_length(&file)?;
        Self::read_with_max_length(BufReader::new(file), max_length, accept)
    }

    /// Reads a file if `accept` returns true for its signature and age; returns `None` otherwise.
    pub fn read<R: Read + Seek + Send>(
        file: R,
        accept: impl FnOnce(Guid, u32) -> bool,
    ) -> Result<Option<Self>> {
        Self::read_with_max_length(file, u64::MAX, accept)
    }

    fn read_with_max_length<R: Read + Seek + Send>(
        file: R,
        max_length: u64,
        accept: impl FnOnce(Guid, u32) -> bool,
    ) -> Result<Option<Self>> {
        let mut pdb =
            PDB::open(BoundedFile::new(file, max_length).map_err(unreadable_pdb)?).map_err(unreadable_pdb)?;
        let information = pdb.pdb_information().map_err(unreadable_pdb)?;
        let debug = pdb.debug_information().map_err(unreadable_pdb)?;
        let signature = Guid::from_bytes(&information.guid.to_bytes_le());
        if !accept(signature, debug.age().unwrap_or(information.age)) {
            return Ok(None);
        }
        let stream = pdb.raw_stream(StreamIndex(DEBUG_STREAM)).map_err(unreadable_pdb)?;
        let optional_stream = |index| stream.as_ref().and_then(|stream| find_optional_stream(stream, index));
        if optional_stream(OMAP_STREAM).is_some() {
            return Err(Error::Binary("the code of the image was moved after linking".into()));
        }
        let headers = optional_stream(SECTION_HEADERS_STREAM).map(|index| pdb.raw_stream(StreamIndex(index)));
        let headers = headers.transpose().map_err(unreadable_pdb)?.flatten();
        let headers: &[u8] = headers.as_ref().map_or(&[], |headers| headers);
        let section_addresses: Vec<u32> = headers
            .chunks_exact(SECTION_HEADER_BYTES)
            .map(|header| wire::u32_at(header, SECTION_ADDRESS_OFFSET))
            .collect();
        let mut symbols = SymbolTable::default();
        let mut modules = debug.modules().map_err(unreadable_pdb)?;
        for _ in 0..MAX_MODULES {
            let Ok(Some(module)) = modules.next() else { break };
            // A stripped PDB lists modules whose streams are missing.
            if let Ok(Some(info)) = pdb.module_info(&module)
                && let Ok(records) = info.symbols()
            {
                add_functions(records, &section_addresses, &mut symbols);
            }
        }
        if let Ok(globals) = pdb.global_symbols() {
            add_functions(globals.iter(), &section_addresses, &mut symbols);
        }
        symbols.finish();
        Ok(Some(Self { symbols }))
    }
}

/// Returns the number of an optional stream, by its index in the list of the stream of debug
/// information.
fn find_optional_stream(stream: &[u8], index: usize) -> Option<u16> {
    /// Byte offsets of the sizes of the parts before the list of optional streams.
    const SIZE_OFFSETS: [usize; 6] = [24, 28, 32, 36, 40, 52];
    const LIST_SIZE_OFFSET: usize = 48;
    const HEADER_BYTES: usize = 64;
    let size = |at| usize::try_from(wire::u32_at(stream, at)).unwrap_or(usize::MAX);
    let list = SIZE_OFFSETS.iter().map(|at| size(*at)).fold(HEADER_BYTES, usize::saturating_add);
    let list = stream.get(list..list.saturating_add(size(LIST_SIZE_OFFSET)))?;
    list.as_chunks::<2>()
        .0
        .get(index)
        .map(|number| u16::from_le_bytes(*number))
        .filter(|number| *number != u16::MAX)
}

/// Adds the functions among records to the table, up to the first unreadable record.
fn add_functions(mut records: SymbolIter<'_>, section_addresses: &[u32], to: &mut SymbolTable) {
    while let Ok(Some(record)) = records.next() {
        if to.len() >= MAX_SYMBOLS {
            to.mark_cut();
            return;
        }
        let bytes = record.raw_bytes();
        let (length, at, rank) = match wire::u16_at(bytes, 0) {
            S_PUB32 if wire::u32_at(bytes, 2) & PUBLIC_FUNCTION_FLAG != 0 => (0, 6, SymbolRank::Weak),
            kind if S_GLOBAL_PROCEDURES.contains(&kind) => (wire::u32_at(bytes, 14), 30, SymbolRank::Global),
            kind if S_LOCAL_PROCEDURES.contains(&kind) => (wire::u32_at(bytes, 14), 30, SymbolRank::Local),
            _ => continue,
        };
        let (offset, section) = (wire::u32_at(bytes, at), wire::u16_at(bytes, at.saturating_add(4)));
        // Procedures have flags before their name.
        let name_offset = at.saturating_add(if length == 0 && rank == SymbolRank::Weak { 6 } else { 7 });
        let name = text::until_nul8(bytes.get(name_offset..).unwrap_or_default());
        let address = usize::from(section).checked_sub(1).and_then(|index| section_addresses.get(index));
        if let Some(start) = address.and_then(|address| address.checked_add(offset)) {
            to.push(start.into(), length.into(), name, rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::pdb_file::{AGE, SIGNATURE, functions};

    #[test]
    fn functions_are_found_by_offset_from_the_image_base() {
        let read = Pdb::read(Cursor::new(functions(u16::MAX)), |signature, age| {
            (signature, age) == (SIGNATURE, AGE)
        });
        let table = read.unwrap().unwrap().symbols;
        let name = |address| table.lookup(address).map(|symbol| (symbol.text().into_owned(), symbol.start));
        assert_eq!(name(0x1100), Some(("shop::sell".into(), 0x1100)));
        assert_eq!(name(0x113F), Some(("shop::sell".into(), 0x1100)));
        assert_eq!(name(0x1140), None);
        assert_eq!(name(0x1210), Some(("?other@shop@@YAXXZ".into(), 0x1200)));
        assert_eq!(name(0x5010), Some(("helper".into(), 0x5010)));
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn pdbs_with_other_age_or_moved_code_are_not_read() {
        assert!(Pdb::read(Cursor::new(functions(u16::MAX)), |_, age| age != AGE).unwrap().is_none());
        assert!(Pdb::read(Cursor::new(functions(8)), |_, _| true).is_err());
    }

    #[test]
    fn damaged_pdbs_never_panic() {
        let sound = functions(u16::MAX);
        let mut random = 7_u64;
        for at in (0..sound.len()).step_by(97) {
            let mut bad = sound.clone();
            for _ in 0..4 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let offset = (random >> 33) as usize % bad.len();
                bad[offset] = (random >> 20) as u8;
            }
            bad[at] ^= 0xFF;
            let _ = Pdb::read(Cursor::new(&bad), |_, _| true);
            let _ = Pdb::read(Cursor::new(&sound[..at]), |_, _| true);
        }
    }
}
