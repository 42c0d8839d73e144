//! Reads the unwind tables of a program from its file.
//!
//! ```text
//!   mapping ──▶ regular file (crate::plain) with the mapping's inode ──▶ trusted? ──▶ ELF
//!           ──▶ .eh_frame_hdr, .eh_frame, .text addresses
//! ```
//!
//! 1. Files and their file systems may belong to other users, and reading them may hang. So this
//!    runs on a separate thread ([`super::reader`]).
//! 2. A file found by path is the mapped one only if the inode matches: the path may lead to
//!    another file by now.
//! 3. Tables are programs that the unwinder executes, and they may loop forever: only tables of
//!    [trusted](crate::plain::RegularFile::is_trusted) files are used.
//! 4. Only the needed sections are read, the first of each name, up to a size limit. Tables without
//!    an index (`.eh_frame_hdr`) are ignored, because every lookup would scan the whole table.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader};

use crate::plain::{self, RegularFile};

/// The largest table that is read, in bytes. The table of a browser has about 10 MiB.
const MAX_TABLE_BYTES: u64 = 16 << 20;
/// The largest size of section headers, and of section names, in bytes.
const MAX_HEADER_BYTES: u64 = 4 << 20;
/// The largest number of sections that are checked.
const MAX_SECTIONS: usize = 4096;

/// The sections and addresses that unwinding through a program needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnwindTables {
    /// The virtual address of the lowest segment minus its offset in the file.
    pub(crate) base: u64,
    pub(crate) text: Option<Range<u64>>,
    pub(crate) eh_frame: Option<(Range<u64>, Arc<[u8]>)>,
    pub(crate) eh_frame_hdr: Option<(Range<u64>, Arc<[u8]>)>,
    pub(crate) got: Option<Range<u64>>,
}

impl UnwindTables {
    /// Returns the number of bytes in the tables.
    pub(crate) fn table_bytes(&self) -> usize {
        let size =
            |table: &Option<(Range<u64>, Arc<[u8]>)>| table.as_ref().map_or(0, |(_, bytes)| bytes.len());
        size(&self.eh_frame).saturating_add(size(&self.eh_frame_hdr))
    }
}

/// Reads the tables of a file that a process has mapped. Returns `Some(None)` if the file has no
/// trusted tables, and `None` if the file was not found.
pub(crate) fn read_tables(
    process: u32,
    range: &Range<u64>,
    path: &str,
    inode: u64,
) -> Option<Option<UnwindTables>> {
    let paths = plain::mapped_file_paths(process, range, path).into_iter();
    let mut files = paths.filter_map(|(path, flags)| plain::find_regular_file(&path, flags));
    let file = files.find(|file| file.version.inode == inode)?;
    Some(read_trusted_tables(&file))
}

/// Reads the tables of a file if it is trusted.
fn read_trusted_tables(regular_file: &RegularFile) -> Option<UnwindTables> {
    let mut file = regular_file.is_trusted.then(|| regular_file.open()).flatten()?;
    read_elf_tables(&mut file).ok()
}

/// Reads `size` bytes at an offset, or fails if that is more than `max_bytes` or beyond the end.
fn read_at(file: &mut File, offset: u64, size: u64, max_bytes: u64) -> io::Result<Vec<u8>> {
    if size > max_bytes {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn read_elf_tables(file: &mut File) -> io::Result<UnwindTables> {
    let to_error = |_| io::Error::from(io::ErrorKind::InvalidData);
    type ElfHeader = elf::FileHeader64<object::Endianness>;
    let header_bytes = read_at(file, 0, size_of::<ElfHeader>() as u64, MAX_HEADER_BYTES)?;
    let header = ElfHeader::parse(header_bytes.as_slice()).map_err(to_error)?;
    let endian = header.endian().map_err(to_error)?;
    let mut tables = UnwindTables { base: read_load_base(file, header, endian)?, ..UnwindTables::default() };
    let (offset, size, count) =
        (header.e_shoff(endian), u64::from(header.e_shentsize(endian)), u64::from(header.e_shnum(endian)));
    if size != size_of::<elf::SectionHeader64<object::Endianness>>() as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = read_at(file, offset, size.saturating_mul(count), MAX_HEADER_BYTES)?;
    let sections: &[elf::SectionHeader64<object::Endianness>] =
        object::slice_from_all_bytes(&bytes).map_err(|()| io::Error::from(io::ErrorKind::InvalidData))?;
    let names = sections.get(usize::from(header.e_shstrndx(endian)));
    let names = names.ok_or(io::ErrorKind::InvalidData)?;
    let names = read_at(file, names.sh_offset(endian), names.sh_size(endian), MAX_HEADER_BYTES)?;
    for section in sections.iter().take(MAX_SECTIONS) {
        let from = usize::try_from(section.sh_name(endian)).unwrap_or(usize::MAX);
        let name =
            names.get(from..).and_then(|tail| tail.split(|byte| *byte == 0).next()).unwrap_or_default();
        let (start, size) = (section.sh_addr(endian), section.sh_size(endian));
        let range = start..start.saturating_add(size);
        let mut read_content = || -> io::Result<Arc<[u8]>> {
            let has_bytes = section.sh_type(endian) != elf::SHT_NOBITS;
            let max_bytes = if has_bytes { MAX_TABLE_BYTES } else { 0 };
            Ok(read_at(file, section.sh_offset(endian), size, max_bytes)?.into())
        };
        match name {
            b".text" if tables.text.is_none() => tables.text = Some(range),
            b".got" if tables.got.is_none() => tables.got = Some(range),
            b".eh_frame" if tables.eh_frame.is_none() => tables.eh_frame = Some((range, read_content()?)),
            b".eh_frame_hdr" if tables.eh_frame_hdr.is_none() => {
                tables.eh_frame_hdr = Some((range, read_content()?));
            }
            _ => {}
        }
    }
    if tables.eh_frame_hdr.is_none() || tables.eh_frame.is_none() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(tables)
}

/// Returns the lowest address of the loaded segments minus the file offset of that segment, which
/// is the address of the file's first byte.
fn read_load_base(
    file: &mut File,
    header: &elf::FileHeader64<object::Endianness>,
    endian: object::Endianness,
) -> io::Result<u64> {
    use object::read::elf::ProgramHeader;
    let count = u64::from(header.e_phnum(endian));
    let size = size_of::<elf::ProgramHeader64<object::Endianness>>() as u64;
    let bytes = read_at(file, header.e_phoff(endian), size.saturating_mul(count), MAX_HEADER_BYTES)?;
    let segments: &[elf::ProgramHeader64<object::Endianness>] =
        object::slice_from_all_bytes(&bytes).map_err(|()| io::Error::from(io::ErrorKind::InvalidData))?;
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
    let lowest = loaded.min_by_key(|segment| segment.p_vaddr(endian));
    Ok(lowest.map_or(0, |segment| segment.p_vaddr(endian).saturating_sub(segment.p_offset(endian))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_program_has_tables() {
        let mut file = File::open("/proc/self/exe").expect("this program is not readable");
        let tables = read_elf_tables(&mut file).expect("this program has no tables");
        assert!(tables.eh_frame.is_some() && tables.text.is_some_and(|text| !text.is_empty()));
    }

    struct ProgramCopy {
        _folder: tempfile::TempDir,
        path: String,
        inode: u64,
    }

    /// Copies this program to a file that only this user may write.
    fn copy_own_program() -> ProgramCopy {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let folder = tempfile::tempdir().expect("no folder is created");
        let path = folder.path().join("copy");
        std::fs::copy("/proc/self/exe", &path).expect("the program is not copied");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("the mode is not set");
        let inode = std::fs::metadata(&path).expect("the copy does not exist").ino();
        let path = path.to_str().expect("the path is not UTF-8").to_owned();
        ProgramCopy { _folder: folder, path, inode }
    }

    #[test]
    fn file_is_accepted_by_inode_and_trust() {
        let ProgramCopy { _folder, path, inode } = copy_own_program();
        let range = 0x1000..0x2000;
        let mut file =
            plain::find_regular_file(&path, rustix::fs::OFlags::NOFOLLOW).expect("not a regular file");
        file.is_trusted = true;
        assert!(read_trusted_tables(&file).is_some());
        file.is_trusted = false;
        assert!(read_trusted_tables(&file).is_none(), "read a file that is not trusted");
        assert!(read_tables(u32::MAX, &range, &path, inode).is_some());
        assert!(read_tables(u32::MAX, &range, &path, inode + 1).is_none(), "read another file");
        assert!(read_tables(u32::MAX, &range, "/dev/zero", 1).is_none());
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("the mode is not set");
        let answer = read_tables(u32::MAX, &range, &path, inode);
        assert!(answer.is_some_and(|tables| tables.is_none()), "trusted a file that all may write");
    }

    #[test]
    fn table_without_index_or_too_large_is_rejected() {
        let program = std::fs::read("/proc/self/exe").expect("this program is not readable");
        let is_rejected = |name: &[u8], replacement: &[u8]| {
            let mut bytes = program.clone();
            let mut windows = bytes.windows(name.len());
            let at = windows.rposition(|window| window == name).expect("no such section name");
            bytes[at..at + replacement.len()].copy_from_slice(replacement);
            let mut file = tempfile::tempfile().expect("no file is created");
            io::Write::write_all(&mut file, &bytes).expect("the bytes are not written");
            read_elf_tables(&mut file).is_err()
        };
        assert!(is_rejected(b".eh_frame_hdr\0", b".xh"));
        assert!(!is_rejected(b".eh_frame_hdr\0", b".eh"), "rejected the unchanged program");
        let mut file = tempfile::tempfile().expect("no file is created");
        file.set_len(MAX_TABLE_BYTES + 1).expect("the length is not set");
        assert!(read_at(&mut file, 0, MAX_TABLE_BYTES + 1, MAX_TABLE_BYTES).is_err());
    }

    #[test]
    fn file_that_is_not_valid_elf_is_rejected() {
        let mut file = tempfile::tempfile().expect("no file is created");
        assert!(read_elf_tables(&mut file).is_err());
        let mut bytes = std::fs::read("/proc/self/exe").expect("this program is not readable");
        // Bytes that are kept, and the byte that is changed: in the offset of the sections, in the
        // magic number, in the number of program headers.
        for (cut, at) in [(64, 40), (200, 0), (4096, 56)] {
            bytes.truncate(bytes.len().min(1 << 20));
            let mut wrong = bytes.get(..cut).unwrap_or(&bytes).to_vec();
            if let Some(byte) = wrong.get_mut(at) {
                *byte = 0xFF;
            }
            let mut file = tempfile::tempfile().expect("no file is created");
            io::Write::write_all(&mut file, &wrong).expect("the bytes are not written");
            assert!(read_elf_tables(&mut file).is_err(), "{cut}");
        }
    }
}
