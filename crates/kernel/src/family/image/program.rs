//! Files that are mapped as code: opened with care, read sparingly, cached for later mappings.
//!
//! ```text
//!   mapping of a process ──▶ regular file (crate::plain) ──▶ used if its build id, or its inode,
//!                                                            is that of the mapping
//!   ELF header ─▶ program headers ─▶ segments; notes ─▶ build id
//!       at most MAX_HEADERS headers and MAX_NOTE_BYTES bytes, whatever the file claims
//! ```
//!
//! 1. The process that maps a file chose it. The file is opened by the rules of [`crate::plain`],
//!    and with a timeout.
//! 2. The key of the first cache is the version of the file (device, inode, change time, size). The
//!    second cache is used only if the file cannot be read or may not be opened (rule 3). Its key
//!    is the build id that the kernel reported, together with the name, because any user can make a
//!    file with the build id of another file.
//! 3. Both caches are bounded: a full one is emptied. The number of files opened between two polls
//!    is bounded too; the layout of further images that are not cached follows from their mappings.

use std::collections::HashMap;
use std::sync::Arc;

use crate::blocking::{self, READ_TIMEOUT};
use crate::maps::page_size;
use crate::plain::{self, FileVersion, RegularFile};
use object::elf::{
    ELF_NOTE_GNU, ELFCLASS32, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD, PT_NOTE,
};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};
use traceweir_format::linux::image::{ImageLayout, Segment};

/// The most program headers of a file; linkers make a dozen.
const MAX_HEADERS: u16 = 512;
/// The largest note segment that is read.
const MAX_NOTE_BYTES: u64 = 64 << 10;
/// The most segments of a file that are kept.
const MAX_SEGMENTS: usize = 64;
/// The most files in each of the two caches.
const MAX_CACHED_FILES: usize = 1 << 14;

/// The longest build id that the kernel keeps.
pub(crate) const MAX_BUILD_ID_BYTES: usize = 20;

/// A GNU build id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BuildId {
    bytes: [u8; MAX_BUILD_ID_BYTES],
    length: u8,
}

impl BuildId {
    /// Creates a build id from the first twenty bytes of `id`; `None` if `id` is empty.
    pub(crate) fn new(id: &[u8]) -> Option<Self> {
        let id = id.get(..MAX_BUILD_ID_BYTES).unwrap_or(id);
        let mut bytes = [0; MAX_BUILD_ID_BYTES];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        let length = u8::try_from(id.len()).ok().filter(|length| *length > 0)?;
        Some(Self { bytes, length })
    }

    /// Returns all twenty bytes; missing ones are 0.
    pub(crate) const fn padded_bytes(&self) -> &[u8; MAX_BUILD_ID_BYTES] {
        &self.bytes
    }

    /// Finds the build id in notes as files below `/sys` contain them.
    pub(crate) fn from_notes(notes: &[u8]) -> Option<Self> {
        let endian = Endianness::default();
        Self::find_in_notes(NoteIterator::<FileHeader64<Endianness>>::new(endian, 4, notes).ok()?, endian)
    }

    fn find_in_notes<Elf>(mut notes: NoteIterator<'_, Elf>, endian: Endianness) -> Option<Self>
    where
        Elf: FileHeader<Endian = Endianness>,
    {
        while let Some(note) = notes.next().ok()? {
            if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                return Self::new(note.desc());
            }
        }
        None
    }
}

/// Build id and segments of a program or library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramFile {
    pub(crate) build_id: Option<BuildId>,
    /// The segments whose contents come from the file.
    segments: Vec<Segment>,
}

impl ProgramFile {
    /// Returns the layout of the image of which `length` bytes from file offset `offset` are mapped
    /// as code at `start`.
    pub(crate) fn find_layout(&self, start: u64, length: u64, offset: u64) -> ImageLayout {
        ImageLayout::from_segments(&self.segments, page_size(), start, offset)
            .unwrap_or_else(|| ImageLayout::from_mapping(start, length, offset))
    }

    /// Reads segments and build id of an ELF file; any other file has neither.
    pub(crate) fn read<'data>(file: impl ReadRef<'data>) -> Self {
        let program = match file.read_bytes_at(0, 16) {
            Ok([0x7F, b'E', b'L', b'F', ELFCLASS32, ..]) => read_elf::<FileHeader32<Endianness>, _>(file),
            Ok([0x7F, b'E', b'L', b'F', ..]) => read_elf::<FileHeader64<Endianness>, _>(file),
            _ => None,
        };
        program.unwrap_or_default()
    }
}

fn read_elf<'data, Elf, R>(file: R) -> Option<ProgramFile>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(file).ok()?;
    let endian = header.endian().ok()?;
    if header.e_phnum(endian) > MAX_HEADERS {
        return None;
    }
    let mut program = ProgramFile::default();
    for segment in header.program_headers(endian, file).ok()? {
        let (address, offset) = (segment.p_vaddr(endian).into(), segment.p_offset(endian).into());
        let length: u64 = segment.p_filesz(endian).into();
        match segment.p_type(endian) {
            PT_LOAD if length > 0 && program.segments.len() < MAX_SEGMENTS => {
                let is_code = segment.p_flags(endian) & PF_X != 0;
                program.segments.push(Segment { address, offset, length, is_code });
            }
            PT_NOTE if program.build_id.is_none() && length <= MAX_NOTE_BYTES => {
                let notes = segment.notes(endian, file).ok().flatten();
                program.build_id = notes.and_then(|notes| BuildId::find_in_notes(notes, endian));
            }
            _ => {}
        }
    }
    Some(program)
}

/// The identity of a mapped file, as the kernel reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileIdentity {
    BuildId(BuildId),
    Inode(u64),
}

/// A mapping of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileMapping<'a> {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) path: &'a str,
    pub(crate) identity: FileIdentity,
}

/// Cache of the programs that were read.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    by_file: HashMap<FileVersion, Arc<ProgramFile>>,
    by_build_id: HashMap<(BuildId, Box<str>), Arc<ProgramFile>>,
    /// Files that may be opened until [`allow_reads`](Self::allow_reads) is called again.
    reads_left: usize,
}

impl Programs {
    /// Sets how many files may be opened from now on.
    pub(crate) fn allow_reads(&mut self, count: usize) {
        self.reads_left = count;
    }

    /// Returns build id and segments of a mapped file, as far as they are known.
    pub(crate) fn find_program(&mut self, mapping: &FileMapping<'_>) -> Arc<ProgramFile> {
        let key = match mapping.identity {
            FileIdentity::BuildId(id) => Some((id, Box::from(mapping.path))),
            FileIdentity::Inode(_) => None,
        };
        let is_allowed = self.reads_left > 0;
        self.reads_left = self.reads_left.saturating_sub(1);
        let Some(program) = is_allowed.then(|| self.read_mapping(mapping)).flatten() else {
            let cached = key.as_ref().and_then(|key| self.by_build_id.get(key));
            return cached.map_or_else(
                || Arc::new(ProgramFile { build_id: key.map(|(id, _)| id), segments: Vec::new() }),
                Arc::clone,
            );
        };
        if let Some(key) = key {
            insert_bounded(&mut self.by_build_id, key, &program);
        }
        program
    }

    /// Opens and reads the file of a mapping; `None` if no file with its identity is found.
    fn read_mapping(&mut self, mapping: &FileMapping<'_>) -> Option<Arc<ProgramFile>> {
        let FileMapping { pid, start, end, path, .. } = *mapping;
        let paths = plain::mapped_file_paths(pid, &(start..end), path);
        for (path, flags) in paths {
            let file =
                blocking::run_for_process(pid, READ_TIMEOUT, move || plain::find_regular_file(&path, flags))?;
            let Some(file) = file else { continue };
            let version = file.version;
            let program = self.read_file(pid, file);
            if let Some(program) = program.filter(|program| mapping.is_mapped_file(&version, program)) {
                return Some(program);
            }
        }
        None
    }

    /// Returns the program in a file, from the cache if the file has not changed.
    fn read_file(&mut self, pid: u32, file: RegularFile) -> Option<Arc<ProgramFile>> {
        if let Some(cached) = self.by_file.get(&file.version) {
            return Some(Arc::clone(cached));
        }
        let version = file.version;
        let read = move || Some(ProgramFile::read(&ReadCache::new(file.open()?)));
        let program = Arc::new(blocking::run_for_process(pid, READ_TIMEOUT, read)??);
        insert_bounded(&mut self.by_file, version, &program);
        Some(program)
    }
}

impl FileMapping<'_> {
    /// Returns whether a file is the mapped one. Some file systems report different devices for a
    /// file and for its mapping, so only the inode is compared.
    fn is_mapped_file(&self, version: &FileVersion, program: &ProgramFile) -> bool {
        match self.identity {
            FileIdentity::BuildId(id) => program.build_id == Some(id),
            FileIdentity::Inode(inode) => inode == version.inode,
        }
    }
}

/// Inserts into a cache, which is emptied first if it is full.
fn insert_bounded<K: std::hash::Hash + Eq>(
    cache: &mut HashMap<K, Arc<ProgramFile>>,
    key: K,
    program: &Arc<ProgramFile>,
) {
    if cache.len() >= MAX_CACHED_FILES {
        cache.clear();
    }
    cache.insert(key, Arc::clone(program));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::OFlags;

    #[test]
    fn damaged_file_is_read_without_panic() {
        let program_bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let program_bytes = &program_bytes[..program_bytes.len().min(1 << 13)];
        assert!(!ProgramFile::read(program_bytes).segments.is_empty());
        for length in (0..0x400).chain([program_bytes.len() / 2]) {
            let _ = ProgramFile::read(&program_bytes[..length]);
        }
        for at in 0..0x400 {
            for byte in [0, 0x7F, 0xFF] {
                let mut broken = program_bytes.to_vec();
                broken[at] = byte;
                let program = ProgramFile::read(&*broken);
                assert!(program.segments.len() <= MAX_SEGMENTS);
                let _ = program.find_layout(0x7F00_0000_0000, 0x1000, 0x1000);
            }
        }
    }

    #[test]
    fn build_id_is_cut_at_twenty_bytes() {
        assert_eq!(BuildId::new(&[]), None);
        assert_eq!(BuildId::new(&[1; 32]), BuildId::new(&[1; 20]));
        assert_ne!(BuildId::new(&[1; 8]), BuildId::new(&[1; 9]));
        assert_eq!(BuildId::new(&[9; 4]).unwrap().padded_bytes()[..5], [9, 9, 9, 9, 0]);
        assert_eq!(BuildId::from_notes(&[0xFF; 64]), None);
    }

    #[test]
    fn file_with_another_inode_or_build_id_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        std::fs::copy(std::env::current_exe().unwrap(), &plain).unwrap();
        let path = plain.to_str().unwrap();
        let file = plain::find_regular_file(path, OFlags::NOFOLLOW).expect("not a regular file");
        let inode = file.version.inode;
        let mut programs = Programs::default();
        let identity = FileIdentity::Inode(inode);
        let mapping = FileMapping { pid: u32::MAX, start: 0x1000, end: 0x2000, path, identity };
        assert!(programs.find_program(&mapping).segments.is_empty(), "opened a file beyond the bound");
        programs.allow_reads(3);
        assert!(!programs.find_program(&mapping).segments.is_empty());
        let other = FileMapping { identity: FileIdentity::Inode(inode + 1), ..mapping };
        assert!(programs.find_program(&other).segments.is_empty(), "used another file with that name");
        let id = BuildId::new(&[7; 20]).unwrap();
        let program = programs.find_program(&FileMapping { identity: FileIdentity::BuildId(id), ..mapping });
        assert_eq!(
            (program.build_id, program.segments.len()),
            (Some(id), 0),
            "the kernel's build id is not kept"
        );
    }
}
