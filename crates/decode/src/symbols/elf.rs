//! Reads programs, libraries and debug files of Linux.
//!
//! ```text
//!   headers ─▶ ElfIdentity: build id, base, debug files ─▶ accepted? ─▶ symbols ─▶ .debug_*
//!   └──── at most MAX_HEADER_BYTES ────┘                   no: nothing more is read
//! ```
//!
//! The loader decides where a program is in memory; symbols have the addresses that the linker
//! assigned. [`ElfIdentity::base`] is the linked address of the first byte of the file, so `linked
//! = address - loaded base + ElfIdentity::base`.
//!
//! Not supported: symbols in a compressed `.gnu_debugdata`, sections compressed with anything but
//! zlib, DWARF in separate files for each unit (`.dwo`).

mod plt;
mod starts;
mod symbols;

use std::cell::Cell;
use std::io::{Read, Seek, SeekFrom};

use flate2::read::ZlibDecoder;
use gimli::{RunTimeEndian, SectionId};
use object::elf::{
    ELFCLASS32, ELFCOMPRESS_ZLIB, EM_ARM, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PT_LOAD,
    SHF_COMPRESSED, SHT_NOBITS, SHT_SYMTAB,
};
use object::read::elf::{CompressionHeader, FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{Endianness, ReadCache, ReadRef};

use traceweir_format::wire;

use super::dwarf::{Dwarf, Sections};
use super::table::SymbolTable;
use crate::source::identified::{LimitedReader, MAX_SECTIONS, read_build_id};
use crate::{Error, Result};

/// The most bytes of headers, notes and names that are read.
const MAX_HEADER_BYTES: u64 = 32 << 20;
/// The size limit of all DWARF sections, uncompressed, in bytes.
const MAX_DWARF_BYTES: u64 = 768 << 20;
/// The largest compression ratio: zlib reaches about a thousand.
const MAX_COMPRESSION_RATIO: u64 = 1100;
/// The longest name of a debug file, in bytes.
const MAX_DEBUG_LINK_BYTES: u64 = 4096;
/// The smallest page size of loaders, in bytes.
const PAGE_BYTES: u64 = 4096;

/// The properties that identify a file, and its linked addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElfIdentity {
    /// The GNU build id; empty if the file has none.
    pub build_id: Vec<u8>,
    /// The linked address of the first byte.
    pub base: u64,
    /// The number of bytes from the base to the end of the last loaded segment.
    pub extent: u64,
    /// The name of the separate debug file, and its checksum.
    pub debug_link: Option<(String, u32)>,
}

/// The parts of a file to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElfParts {
    /// Whether to read the symbols.
    pub symbols: bool,
    /// Whether to read inlined functions and lines.
    pub dwarf: bool,
}

/// A program, library or debug file.
#[derive(Debug)]
pub struct Elf {
    /// The properties that identify the file.
    pub identity: ElfIdentity,
    /// Functions by address; empty if not requested, and [cut](SymbolTable::is_cut) if there are
    /// too many.
    pub symbols: SymbolTable,
    /// Whether the file has only the symbols that other programs need (no `.symtab`).
    pub is_stripped: bool,
    /// Linked start addresses of functions, ascending, from the unwind tables; for stripped files
    /// only.
    pub starts: Vec<u64>,
    /// Inlined functions and lines, if requested and present.
    pub dwarf: Option<Dwarf>,
}

/// Finds the GNU build id in ELF notes. A kernel shows its own notes in this form.
#[must_use]
pub fn find_build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const NOTE_HEADER_BYTES: usize = 12;
    while let Some(head) = notes.first_chunk::<NOTE_HEADER_BYTES>() {
        let word = |at| usize::try_from(wire::u32_at(head, at)).unwrap_or(usize::MAX);
        let (name_bytes, data_bytes, kind) = (word(0), word(4), word(8));
        let data_at = NOTE_HEADER_BYTES.checked_add(name_bytes)?.checked_next_multiple_of(4)?;
        let end = data_at.checked_add(data_bytes)?;
        if kind == NT_GNU_BUILD_ID as usize
            && notes.get(NOTE_HEADER_BYTES..NOTE_HEADER_BYTES.checked_add(name_bytes)?)? == b"GNU\0"
        {
            return notes.get(data_at..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

/// The location of a DWARF section in the file.
#[derive(Clone, Copy)]
struct DwarfSection {
    id: SectionId,
    offset: u64,
    size: u64,
    /// The uncompressed size, if the section is compressed.
    unpacked_bytes: Option<u64>,
}

/// The result of reading the headers and symbols.
struct ElfContents {
    identity: ElfIdentity,
    symbols: SymbolTable,
    is_stripped: bool,
    starts: Vec<u64>,
    dwarf_sections: Vec<DwarfSection>,
    endian: RunTimeEndian,
}

fn unreadable_elf(error: object::Error) -> Error {
    Error::Binary(error.to_string())
}

impl Elf {
    /// Reads a file if `accept` returns true for its identity; returns `None` otherwise.
    pub fn read<R: Read + Seek>(
        file: R,
        parts: ElfParts,
        accept: impl FnOnce(&ElfIdentity) -> bool,
    ) -> Result<Option<Self>> {
        let (cache, bytes_left) = (ReadCache::new(file), Cell::new(MAX_HEADER_BYTES));
        let reader = LimitedReader { file: &cache, bytes_left: &bytes_left };
        let elf = match reader.read_bytes_at(0, 16).map_err(|()| Error::Binary("not an ELF file".into()))? {
            [0x7F, b'E', b'L', b'F', ELFCLASS32, ..] => {
                read_contents::<FileHeader32<Endianness>, _>(reader, &bytes_left, parts, accept)?
            }
            [0x7F, b'E', b'L', b'F', ..] => {
                read_contents::<FileHeader64<Endianness>, _>(reader, &bytes_left, parts, accept)?
            }
            _ => return Err(Error::Binary("not an ELF file".into())),
        };
        let Some(ElfContents { identity, symbols, is_stripped, starts, dwarf_sections, endian }) = elf else {
            return Ok(None);
        };
        let dwarf = read_dwarf_sections(cache.into_inner(), &dwarf_sections)
            .map(|sections| Dwarf::new(sections, endian));
        Ok(Some(Self { identity, symbols, is_stripped, starts, dwarf }))
    }

    /// Returns the memory that symbols, starts and DWARF data take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let starts = size_of::<u64>().saturating_mul(self.starts.capacity());
        let dwarf = self.dwarf.as_ref().map_or(0, Dwarf::bytes);
        self.symbols.bytes().saturating_add(starts).saturating_add(dwarf)
    }
}

fn read_contents<'data, Header, R>(
    file: R,
    bytes_left: &Cell<u64>,
    parts: ElfParts,
    accept: impl FnOnce(&ElfIdentity) -> bool,
) -> Result<Option<ElfContents>>
where
    Header: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Header::parse(file).map_err(unreadable_elf)?;
    let endian = header.endian().map_err(unreadable_elf)?;
    let sections = header.sections(endian, file).map_err(unreadable_elf)?;
    if sections.len() > MAX_SECTIONS {
        return Err(Error::Binary("too many sections".into()));
    }
    let identity = read_identity(header, &sections, endian, file)?;
    if !accept(&identity) {
        return Ok(None);
    }
    let is_stripped = !sections.iter().any(|section| section.sh_type(endian) == SHT_SYMTAB);
    let symbols = if parts.symbols {
        let machine = header.e_machine(endian);
        // On ARM, bit 0 of an address marks Thumb code.
        let mask = if machine == EM_ARM { !1 } else { u64::MAX };
        symbols::read_symbols::<Header, R>(&sections, endian, file, bytes_left, machine, mask)
    } else {
        SymbolTable::default()
    };
    let starts =
        if parts.symbols && is_stripped { starts::read_starts(&sections, endian, file) } else { Vec::new() };
    let dwarf_sections =
        if parts.dwarf { locate_dwarf_sections::<Header, R>(&sections, endian, file) } else { Vec::new() };
    let endian = if endian == Endianness::Big { RunTimeEndian::Big } else { RunTimeEndian::Little };
    Ok(Some(ElfContents { identity, symbols, is_stripped, starts, dwarf_sections, endian }))
}

fn read_identity<'data, Header, R>(
    header: &Header,
    sections: &SectionTable<'data, Header, R>,
    endian: Endianness,
    file: R,
) -> Result<ElfIdentity>
where
    Header: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let (mut first, mut end) = (None, 0_u64);
    for segment in header.program_headers(endian, file).map_err(unreadable_elf)? {
        if segment.p_type(endian) != PT_LOAD {
            continue;
        }
        let (at, offset): (u64, u64) = (segment.p_vaddr(endian).into(), segment.p_offset(endian).into());
        if first.is_none_or(|(lowest, _)| at < lowest) {
            first = Some((at, offset));
        }
        end = end.max(at.saturating_add(segment.p_memsz(endian).into()));
    }
    // Loaders map whole pages, so address and offset are rounded down.
    let base = first.map_or(0, |(at, offset)| {
        let page = at.saturating_sub(at.checked_rem(PAGE_BYTES).unwrap_or(0));
        let offset_page = offset.saturating_sub(offset.checked_rem(PAGE_BYTES).unwrap_or(0));
        page.checked_sub(offset_page).unwrap_or(page)
    });
    let build_id = read_build_id(sections, endian, file).unwrap_or_default().to_vec();
    let debug_link = read_debug_link(sections, endian, file);
    Ok(ElfIdentity { build_id, base, extent: end.saturating_sub(base), debug_link })
}

/// Returns the name in `.gnu_debuglink` and the checksum, which follows at the next multiple of
/// four.
fn read_debug_link<'data, Header, R>(
    sections: &SectionTable<'data, Header, R>,
    endian: Endianness,
    file: R,
) -> Option<(String, u32)>
where
    Header: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let (_, section) = sections.section_by_name(endian, b".gnu_debuglink")?;
    if section.sh_size(endian).into() > MAX_DEBUG_LINK_BYTES {
        return None;
    }
    let data = section.data(endian, file).ok()?;
    let length = data.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(data.get(..length)?).ok()?;
    let checksum = data.get(length.saturating_add(1).next_multiple_of(4)..)?.first_chunk()?;
    let checksum = match endian {
        Endianness::Little => u32::from_le_bytes(*checksum),
        Endianness::Big => u32::from_be_bytes(*checksum),
    };
    Some((name.to_owned(), checksum))
}

/// Locates the DWARF sections; returns none if they are too large together, or if one is compressed
/// with anything but zlib.
fn locate_dwarf_sections<'data, Header, R>(
    sections: &SectionTable<'data, Header, R>,
    endian: Endianness,
    file: R,
) -> Vec<DwarfSection>
where
    Header: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut located = Vec::new();
    let mut bytes_left = MAX_DWARF_BYTES;
    for id in Sections::IDS {
        let Some((_, section)) = sections.section_by_name(endian, id.name().as_bytes()) else { continue };
        if section.sh_type(endian) == SHT_NOBITS {
            continue;
        }
        let (mut offset, mut size): (u64, u64) =
            (section.sh_offset(endian).into(), section.sh_size(endian).into());
        let mut unpacked_bytes = None;
        if section.sh_flags(endian).into() & u64::from(SHF_COMPRESSED) != 0 {
            let Ok(Some((packed, at, stored))) = section.compression(endian, file) else { return Vec::new() };
            let unpacked_size: u64 = packed.ch_size(endian).into();
            if packed.ch_type(endian) != ELFCOMPRESS_ZLIB
                || unpacked_size > stored.saturating_mul(MAX_COMPRESSION_RATIO)
            {
                return Vec::new();
            }
            (offset, size, unpacked_bytes) = (at, stored, Some(unpacked_size));
        }
        match bytes_left.checked_sub(unpacked_bytes.unwrap_or(size).max(size)) {
            Some(remaining) => bytes_left = remaining,
            None => return Vec::new(),
        }
        located.push(DwarfSection { id, offset, size, unpacked_bytes });
    }
    located
}

/// Reads sections; returns `None` if none describes functions, or if one cannot be read.
fn read_dwarf_sections<R: Read + Seek>(mut file: R, located: &[DwarfSection]) -> Option<Sections> {
    let length = file.seek(SeekFrom::End(0)).ok()?;
    let mut sections = Sections::default();
    for section in located {
        if section.offset.checked_add(section.size)? > length {
            return None;
        }
        file.seek(SeekFrom::Start(section.offset)).ok()?;
        let stored = (&mut file).take(section.size);
        let bytes = match section.unpacked_bytes {
            None => read_exactly(stored, section.size)?,
            Some(unpacked_size) => read_exactly(ZlibDecoder::new(stored), unpacked_size)?,
        };
        sections.add(section.id, bytes);
    }
    sections.has_units().then_some(sections)
}

/// Reads exactly `size` bytes; the memory grows with the bytes that are present.
fn read_exactly(from: impl Read, size: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(size).read_to_end(&mut bytes).ok()?;
    (u64::try_from(bytes.len()).ok()? == size).then_some(bytes)
}

#[cfg(test)]
mod tests;
