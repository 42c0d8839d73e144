//! Reads the compiled manifest of an ELF file that a trace names. The file is as untrusted as the
//! trace.
//!
//! ```text
//!   ELF header ─▶ section headers ─▶ notes: build id ─▶ as expected? ─▶ .etw_manifest ─▶ providers
//!   └────────────── at most MAX_HEADER_BYTES ─────────────────────┘   └ at most MAX_SECTION_BYTES ┘
//! ```
//!
//! The writer of the trace chooses which file is read, how much of it and how often, and a file may
//! be sparse. So each byte is subtracted from a budget before memory is allocated for it. Symbols
//! and other sections are not read, so a large program costs as little as a small one.

use std::cell::Cell;
use std::io::{Read, Seek};
use std::ops::Range;

use object::elf::{ELF_NOTE_GNU, ELFCLASS32, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, SHT_NOTE};
use object::read::elf::{FileHeader, SectionHeader, SectionTable};
use object::{Endianness, ReadCache, ReadRef};

use super::binary::{ELF_SECTION, read_section_providers, unreadable_binary};
use super::provider::ProviderSchemas;
use crate::{Error, Result};

/// The size limit of the section with manifests, in bytes.
const MAX_SECTION_BYTES: u64 = 64 << 20;
/// The most bytes that are read of a file besides that section.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// The most sections of a file; linkers create a few dozen.
pub(crate) const MAX_SECTIONS: usize = 2048;
/// The size limit of a section of notes, in bytes. A section with a build id has 36.
const MAX_NOTES_BYTES: u64 = 64 << 10;
/// The bytes that reading one name subtracts from the budget.
const NAME_READ_BYTES: u64 = 4096;

/// Reads the providers that an ELF file describes, if its GNU build id is `build_id` in hexadecimal
/// digits.
///
/// Reads only the headers, the notes and the section `.etw_manifest`, whatever the size of the file
/// and the sizes in its headers.
pub(super) fn load_identified(file: impl Read + Seek, build_id: &str) -> Result<Vec<ProviderSchemas>> {
    let (cache, bytes_left) = (ReadCache::new(file), Cell::new(MAX_HEADER_BYTES));
    let file = LimitedReader { file: &cache, bytes_left: &bytes_left };
    match file.read_bytes_at(0, 16).map_err(|()| Error::Binary("not an ELF file".into()))? {
        [0x7F, b'E', b'L', b'F', ELFCLASS32, ..] => {
            load_if_build_id_matches::<FileHeader32<Endianness>, _>(file, build_id, &bytes_left)
        }
        [0x7F, b'E', b'L', b'F', ..] => {
            load_if_build_id_matches::<FileHeader64<Endianness>, _>(file, build_id, &bytes_left)
        }
        _ => Err(Error::Binary("not an ELF file".into())),
    }
}

fn load_if_build_id_matches<'data, Elf, R>(
    file: R,
    build_id: &str,
    bytes_left: &Cell<u64>,
) -> Result<Vec<ProviderSchemas>>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(file).map_err(unreadable_binary)?;
    let endian = header.endian().map_err(unreadable_binary)?;
    let sections = header.sections(endian, file).map_err(unreadable_binary)?;
    if sections.len() > MAX_SECTIONS {
        return Err(Error::Binary("too many sections".into()));
    }
    let section = sections.section_by_name(endian, ELF_SECTION.as_bytes());
    let (_, section) =
        section.ok_or_else(|| Error::NoMetadata(format!("the ELF file has no section {ELF_SECTION}")))?;
    let file_build_id = read_build_id(&sections, endian, file)?;
    let digits: String = file_build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    if file_build_id.is_empty() || !digits.eq_ignore_ascii_case(build_id) {
        return Err(Error::Binary("not the file that was traced: it has another build id or none".into()));
    }
    let size: u64 = section.sh_size(endian).into();
    if size > MAX_SECTION_BYTES {
        return Err(Error::Binary(format!("section {ELF_SECTION} is larger than 64 MiB")));
    }
    bytes_left.set(bytes_left.get().saturating_add(size));
    read_section_providers(section.data(endian, file).map_err(unreadable_binary)?)
}

/// Returns the build id of a file; empty if there is none.
pub(crate) fn read_build_id<'data, Elf, R>(
    sections: &SectionTable<'data, Elf, R>,
    endian: Endianness,
    file: R,
) -> Result<&'data [u8]>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let is_small_note_section = |section: &&Elf::SectionHeader| {
        section.sh_type(endian) == SHT_NOTE && Into::<u64>::into(section.sh_size(endian)) <= MAX_NOTES_BYTES
    };
    for section in sections.iter().filter(is_small_note_section) {
        let Some(mut notes) = section.notes(endian, file).map_err(unreadable_binary)? else { continue };
        while let Some(note) = notes.next().map_err(unreadable_binary)? {
            if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                return Ok(note.desc());
            }
        }
    }
    Ok(&[])
}

/// A file with a limit on the number of bytes read.
pub(crate) struct LimitedReader<'a, R: Read + Seek> {
    pub(crate) file: &'a ReadCache<R>,
    /// The number of bytes that may still be read.
    pub(crate) bytes_left: &'a Cell<u64>,
}

impl<R: Read + Seek> Clone for LimitedReader<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Read + Seek> Copy for LimitedReader<'_, R> {}

impl<R: Read + Seek> LimitedReader<'_, R> {
    fn spend_bytes(&self, bytes: u64) -> std::result::Result<(), ()> {
        self.bytes_left.set(self.bytes_left.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }
}

impl<'a, R: Read + Seek> ReadRef<'a> for LimitedReader<'a, R> {
    fn len(self) -> std::result::Result<u64, ()> {
        self.file.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> std::result::Result<&'a [u8], ()> {
        self.spend_bytes(size)?;
        self.file.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> std::result::Result<&'a [u8], ()> {
        self.spend_bytes(NAME_READ_BYTES)?;
        self.file.read_bytes_at_until(range, delimiter)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, SeekFrom};

    use object::elf::{SHT_DYNSYM, SHT_SYMTAB};

    use super::*;
    use crate::source::binary::tests::build_elf_with_sections;
    use crate::source::wevt::build::compile_test_manifest;

    /// A file that continues with zeros up to one gibibyte, like a sparse file, and that counts the
    /// bytes read.
    struct SparseFile<'a> {
        bytes: Cursor<Vec<u8>>,
        at: u64,
        bytes_read: &'a Cell<u64>,
    }

    impl Read for SparseFile<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            to.fill(0);
            self.bytes.set_position(self.at);
            let _ = self.bytes.read(to)?;
            self.at += to.len() as u64;
            self.bytes_read.set(self.bytes_read.get() + to.len() as u64);
            Ok(to.len())
        }
    }

    impl Seek for SparseFile<'_> {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            self.at = match to {
                SeekFrom::Start(at) => at,
                SeekFrom::End(_) => 1 << 30,
                SeekFrom::Current(_) => self.at,
            };
            Ok(self.at)
        }
    }

    #[test]
    fn claimed_section_sizes_do_not_increase_the_bytes_read() {
        let manifest = compile_test_manifest(true);
        for (kind, section_count) in [(SHT_NOTE, 64), (SHT_SYMTAB, 64), (SHT_DYNSYM, 64), (SHT_NOTE, 1)] {
            let names: Vec<String> = (0..section_count).map(|n| format!(".huge{n}")).collect();
            let mut sections: Vec<(&str, u32, &[u8])> =
                names.iter().map(|name| (&name[..], kind, &[0; 24][..])).collect();
            sections.push((ELF_SECTION, 1, &manifest));
            let mut bytes = build_elf_with_sections(true, &sections);
            // Each section of this kind claims nearly the whole file, which ends at 1 GiB.
            let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
            let count = u16::from_le_bytes(bytes[0x3C..0x3E].try_into().unwrap());
            for index in 0..usize::from(count) {
                let at = table + 64 * index;
                if u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) == kind {
                    bytes[at + 0x20..at + 0x28].copy_from_slice(&((1_u64 << 30) - (1 << 20)).to_le_bytes());
                }
            }
            let bytes_read = Cell::new(0);
            let file = SparseFile { bytes: Cursor::new(bytes), at: 0, bytes_read: &bytes_read };
            assert!(load_identified(file, "00").is_err());
            let bytes_read = bytes_read.get();
            assert!(
                bytes_read < 1 << 20,
                "{bytes_read} bytes read for {section_count} sections of type {kind}"
            );
        }
    }
}
