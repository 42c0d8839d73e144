//! The unwind tables of a program, read from its file.
//!
//! ```text
//!   /proc/PID/map_files/START-END ──(not permitted: /proc/PID/root/PATH)──▶ ELF ──▶ .eh_frame_hdr, .eh_frame, .text addresses
//! ```
//!
//! Files belong to strangers, and their file systems too: whoever reads them may hang, so this runs on a thread of its own ([`super::unwind`]). Only regular files are
//! read, only the sections that matter, and of those only so much.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader};

/// The largest table that is read: that of a browser is about 10 MiB.
const MAX_TABLE: u64 = 64 << 20;
/// Section headers and their names.
const MAX_HEADERS: u64 = 4 << 20;
/// The most sections of a program that are looked at.
const MAX_SECTIONS: usize = 4096;

/// What is needed to unwind through a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    /// Where its lowest segment wants to be, and the offset of that segment in the file.
    pub(crate) base: u64,
    pub(crate) text: Option<Range<u64>>,
    pub(crate) eh_frame: Option<(Range<u64>, Arc<[u8]>)>,
    pub(crate) eh_frame_hdr: Option<(Range<u64>, Arc<[u8]>)>,
    pub(crate) got: Option<Range<u64>>,
}

impl Tables {
    /// Bytes that they take.
    pub(crate) fn size(&self) -> usize {
        let size =
            |table: &Option<(Range<u64>, Arc<[u8]>)>| table.as_ref().map_or(0, |(_, bytes)| bytes.len());
        size(&self.eh_frame).saturating_add(size(&self.eh_frame_hdr))
    }
}

/// Opens what a process has mapped there.
pub(crate) fn open(process: u32, range: &Range<u64>, path: &str) -> io::Result<File> {
    let mapped = format!("/proc/{process}/map_files/{:x}-{:x}", range.start, range.end);
    let named = PathBuf::from(format!("/proc/{process}/root")).join(path.trim_start_matches('/'));
    let open = |path: PathBuf| {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        File::options().read(true).custom_flags(flags).open(path)
    };
    let file = open(mapped.into()).or_else(|_| open(named))?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(file)
}

fn read_at(file: &mut File, offset: u64, size: u64, most: u64) -> io::Result<Vec<u8>> {
    if size > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads the tables of a program.
pub(crate) fn read(file: &mut File) -> io::Result<Tables> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    type Header = elf::FileHeader64<object::Endianness>;
    let head = read_at(file, 0, size_of::<Header>() as u64, MAX_HEADERS)?;
    let header = Header::parse(head.as_slice()).map_err(invalid)?;
    let endian = header.endian().map_err(invalid)?;
    let mut tables = Tables { base: lowest_segment(file, header, endian)?, ..Tables::default() };
    let (offset, size, count) =
        (header.e_shoff(endian), u64::from(header.e_shentsize(endian)), u64::from(header.e_shnum(endian)));
    if size != size_of::<elf::SectionHeader64<object::Endianness>>() as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = read_at(file, offset, size.saturating_mul(count), MAX_HEADERS)?;
    let sections: &[elf::SectionHeader64<object::Endianness>] =
        object::slice_from_all_bytes(&bytes).map_err(|()| io::Error::from(io::ErrorKind::InvalidData))?;
    let names = sections.get(usize::from(header.e_shstrndx(endian)));
    let names = names.ok_or(io::ErrorKind::InvalidData)?;
    let names = read_at(file, names.sh_offset(endian), names.sh_size(endian), MAX_HEADERS)?;
    for section in sections.iter().take(MAX_SECTIONS) {
        let at = usize::try_from(section.sh_name(endian)).unwrap_or(usize::MAX);
        let name = names.get(at..).and_then(|rest| rest.split(|byte| *byte == 0).next()).unwrap_or_default();
        let (start, size) = (section.sh_addr(endian), section.sh_size(endian));
        let range = start..start.saturating_add(size);
        let mut content = || -> Option<Arc<[u8]>> {
            let has_bytes = section.sh_type(endian) != elf::SHT_NOBITS;
            let bytes =
                read_at(file, section.sh_offset(endian), size, MAX_TABLE).ok().filter(|_| has_bytes)?;
            Some(bytes.into())
        };
        match name {
            b".text" => tables.text = Some(range),
            b".got" => tables.got = Some(range),
            b".eh_frame" => tables.eh_frame = content().map(|bytes| (range, bytes)),
            b".eh_frame_hdr" => tables.eh_frame_hdr = content().map(|bytes| (range, bytes)),
            _ => {}
        }
    }
    Ok(tables)
}

/// The address of the file's first byte, as the program says: the lowest address of its segments less their offset.
fn lowest_segment(
    file: &mut File,
    header: &elf::FileHeader64<object::Endianness>,
    endian: object::Endianness,
) -> io::Result<u64> {
    use object::read::elf::ProgramHeader;
    let count = u64::from(header.e_phnum(endian));
    let size = size_of::<elf::ProgramHeader64<object::Endianness>>() as u64;
    let bytes = read_at(file, header.e_phoff(endian), size.saturating_mul(count), MAX_HEADERS)?;
    let segments: &[elf::ProgramHeader64<object::Endianness>] =
        object::slice_from_all_bytes(&bytes).map_err(|()| io::Error::from(io::ErrorKind::InvalidData))?;
    let loaded = segments.iter().filter(|it| it.p_type(endian) == elf::PT_LOAD);
    let lowest = loaded.min_by_key(|it| it.p_vaddr(endian));
    Ok(lowest.map_or(0, |it| it.p_vaddr(endian).saturating_sub(it.p_offset(endian))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_tables() {
        let mut file = File::open("/proc/self/exe").expect("this program");
        let tables = read(&mut file).expect("its tables");
        assert!(tables.eh_frame.is_some() && tables.text.is_some_and(|text| !text.is_empty()));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let mut file = tempfile::tempfile().expect("a file");
        assert!(read(&mut file).is_err());
        let mut bytes = std::fs::read("/proc/self/exe").expect("this program");
        for (cut, at) in [(64, 40), (200, 0), (4096, 56)] {
            bytes.truncate(bytes.len().min(1 << 20));
            let mut wrong = bytes.get(..cut).unwrap_or(&bytes).to_vec();
            if let Some(byte) = wrong.get_mut(at) {
                *byte = 0xFF;
            }
            let mut file = tempfile::tempfile().expect("a file");
            io::Write::write_all(&mut file, &wrong).expect("written");
            assert!(read(&mut file).is_err(), "{cut}");
        }
    }
}
