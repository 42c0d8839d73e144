//! Files that are mapped as code: opened with care, read sparingly, kept for whoever maps them next.
//!
//! ```text
//!   mapping of a process ──▶ a plain file (crate::plain) ──▶ believed where build id, or inode, are those of the mapping
//!   ELF header ─▶ program headers ─▶ where segments go; notes ─▶ build id
//!       at most MAX_HEADERS, MAX_NOTES bytes, whatever they claim
//! ```
//!
//! 1. Whoever maps a file chose it: it is found as [`crate::plain`] does it, and with patience.
//! 2. What is kept is found by what the file is now (device, inode, change time, size). Only where the file cannot be reached any more the build id that the kernel told,
//!    together with the name, will do: anybody can make a file with the id of another.
//! 3. Both stores have bounds: a full one is emptied. So many files are looked at in a row and no more; the rest are placed by what the mapping says.

use std::collections::HashMap;
use std::sync::Arc;

use crate::patient::{self, PATIENCE};
use crate::plain::{self, Found, Now};
use object::elf::{
    ELF_NOTE_GNU, ELFCLASS32, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD, PT_NOTE,
};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};

/// The most program headers of a file; linkers make a dozen.
const MAX_HEADERS: u16 = 512;
/// The largest segment of notes that is looked at.
const MAX_NOTES: u64 = 64 << 10;
/// Segments that are kept of a file.
const MAX_SEGMENTS: usize = 64;
/// Files that are kept, by each of the two keys.
const MAX_KEPT: usize = 1 << 14;

/// The longest build id that is told: the kernel keeps no more.
pub(crate) const MAX_BUILD_ID: usize = 20;

/// A GNU build id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BuildId {
    bytes: [u8; MAX_BUILD_ID],
    length: u8,
}

impl BuildId {
    /// From its bytes, of which the first twenty count; `None` where there are none.
    pub(crate) fn new(from: &[u8]) -> Option<Self> {
        let from = from.get(..MAX_BUILD_ID).unwrap_or(from);
        let mut bytes = [0; MAX_BUILD_ID];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        let length = u8::try_from(from.len()).ok().filter(|length| *length > 0)?;
        Some(Self { bytes, length })
    }

    /// All twenty bytes; those that it does not have are 0.
    pub(crate) const fn padded(&self) -> &[u8; MAX_BUILD_ID] {
        &self.bytes
    }

    /// From notes as they lie below /sys.
    pub(crate) fn in_notes(notes: &[u8]) -> Option<Self> {
        let endian = Endianness::default();
        Self::among(NoteIterator::<FileHeader64<Endianness>>::new(endian, 4, notes).ok()?, endian)
    }

    fn among<Elf>(mut notes: NoteIterator<'_, Elf>, endian: Endianness) -> Option<Self>
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

/// What is known of a program or library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) build_id: Option<BuildId>,
    /// Segments that come from the file.
    segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: u64,
    length: u64,
    is_code: bool,
}

/// Where an image lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where the file's first byte is, or would be.
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// Where it would lie by its own headers.
    pub(crate) default_base: u64,
}

/// Bytes of a page, as files are mapped.
fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096).max(1)
}

/// The beginning of the page that an address is in.
fn page_of(address: u64) -> u64 {
    address & !page_size().wrapping_sub(1)
}

impl Program {
    /// Where the first byte of the file would lie by its headers.
    fn default_base(&self) -> Option<u64> {
        let lowest = self.segments.iter().min_by_key(|segment| segment.address)?;
        page_of(lowest.address).checked_sub(page_of(lowest.offset))
    }

    /// Where the image lies of which `length` bytes from `offset` on are mapped as code at `start`.
    pub(crate) fn place(&self, start: u64, length: u64, offset: u64) -> Place {
        self.by_headers(start, offset).unwrap_or_else(|| {
            let (base, before) = start.checked_sub(offset).map_or((start, 0), |base| (base, offset));
            Place { base, size: before.saturating_add(length), default_base: 0 }
        })
    }

    fn by_headers(&self, start: u64, offset: u64) -> Option<Place> {
        let holds = |segment: &&Segment| {
            page_of(segment.offset) <= offset && offset < segment.offset.saturating_add(segment.length)
        };
        let code = self.segments.iter().filter(|it| it.is_code).find(holds);
        let segment = code.or_else(|| self.segments.iter().find(holds))?;
        let default_base = self.default_base()?;
        let within = offset.checked_sub(page_of(segment.offset))?;
        let by_file = page_of(segment.address).checked_add(within)?.checked_sub(default_base)?;
        let base = start.checked_sub(by_file)?;
        let ends = self.segments.iter().map(|it| it.address.saturating_add(it.length));
        let end = page_of(ends.max()?.checked_add(page_size().wrapping_sub(1))?);
        let size = end.checked_sub(default_base)?;
        base.checked_add(size)?;
        Some(Place { base, size, default_base })
    }

    /// Reads what counts of an ELF file; anything else has neither segments nor id.
    pub(crate) fn read<'data>(file: impl ReadRef<'data>) -> Self {
        let found = match file.read_bytes_at(0, 16) {
            Ok([0x7F, b'E', b'L', b'F', ELFCLASS32, ..]) => read_elf::<FileHeader32<Endianness>, _>(file),
            Ok([0x7F, b'E', b'L', b'F', ..]) => read_elf::<FileHeader64<Endianness>, _>(file),
            _ => None,
        };
        found.unwrap_or_default()
    }
}

fn read_elf<'data, Elf, R>(file: R) -> Option<Program>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(file).ok()?;
    let endian = header.endian().ok()?;
    if header.e_phnum(endian) > MAX_HEADERS {
        return None;
    }
    let mut program = Program::default();
    for it in header.program_headers(endian, file).ok()? {
        let (address, offset) = (it.p_vaddr(endian).into(), it.p_offset(endian).into());
        let length: u64 = it.p_filesz(endian).into();
        match it.p_type(endian) {
            PT_LOAD if length > 0 && program.segments.len() < MAX_SEGMENTS => {
                let is_code = it.p_flags(endian) & PF_X != 0;
                program.segments.push(Segment { address, offset, length, is_code });
            }
            PT_NOTE if program.build_id.is_none() && length <= MAX_NOTES => {
                let notes = it.notes(endian, file).ok().flatten();
                program.build_id = notes.and_then(|notes| BuildId::among(notes, endian));
            }
            _ => {}
        }
    }
    Some(program)
}

/// Which file is mapped, as the kernel told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    BuildId(BuildId),
    Inode(u64),
}

/// A mapping of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping<'a> {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) path: &'a str,
    pub(crate) which: Which,
}

/// Programs that were looked into.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    by_file: HashMap<Now, Arc<Program>>,
    by_build_id: HashMap<(BuildId, Box<str>), Arc<Program>>,
    /// Files that may be looked at until [`allow`](Self::allow) is called again.
    looks: usize,
}

impl Programs {
    /// So many files may be looked at from now on.
    pub(crate) fn allow(&mut self, looks: usize) {
        self.looks = looks;
    }

    /// What is known of the file of a mapping.
    pub(crate) fn of(&mut self, mapping: &Mapping<'_>) -> Arc<Program> {
        let told = match mapping.which {
            Which::BuildId(id) => Some((id, Box::from(mapping.path))),
            Which::Inode(_) => None,
        };
        let is_allowed = self.looks > 0;
        self.looks = self.looks.saturating_sub(1);
        let Some(program) = is_allowed.then(|| self.look(mapping)).flatten() else {
            let known = told.as_ref().and_then(|told| self.by_build_id.get(told));
            return known.map_or_else(
                || Arc::new(Program { build_id: told.map(|(id, _)| id), segments: Vec::new() }),
                Arc::clone,
            );
        };
        if let Some(told) = told {
            keep(&mut self.by_build_id, told, &program);
        }
        program
    }

    fn look(&mut self, mapping: &Mapping<'_>) -> Option<Arc<Program>> {
        let Mapping { pid, start, end, path, .. } = *mapping;
        let ways = plain::ways(pid, &(start..end), path);
        for (way, flags) in ways {
            let found = patient::within_of(pid, PATIENCE, move || plain::find(&way, flags))?;
            let Some(found) = found else { continue };
            let now = found.now;
            if let Some(program) = self.read(pid, found).filter(|it| mapping.admits(&now, it)) {
                return Some(program);
            }
        }
        None
    }

    fn read(&mut self, pid: u32, found: Found) -> Option<Arc<Program>> {
        if let Some(known) = self.by_file.get(&found.now) {
            return Some(Arc::clone(known));
        }
        let now = found.now;
        let program = Arc::new(patient::within_of(pid, PATIENCE, move || read(&found))??);
        keep(&mut self.by_file, now, &program);
        Some(program)
    }
}

impl Mapping<'_> {
    /// Whether a file is the mapped one. Some file systems tell another device of a file than of its mapping, so the inode has to do.
    fn admits(&self, now: &Now, program: &Program) -> bool {
        match self.which {
            Which::BuildId(id) => program.build_id == Some(id),
            Which::Inode(inode) => inode == now.inode,
        }
    }
}

fn keep<K: std::hash::Hash + Eq>(kept: &mut HashMap<K, Arc<Program>>, key: K, program: &Arc<Program>) {
    if kept.len() >= MAX_KEPT {
        kept.clear();
    }
    kept.insert(key, Arc::clone(program));
}

/// Reads a file that was found.
fn read(found: &Found) -> Option<Program> {
    Some(Program::read(&ReadCache::new(found.open()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::OFlags;

    /// A library as linkers make them that do not keep addresses and offsets alike.
    fn library() -> Program {
        let segment = |address, offset, length, is_code| Segment { address, offset, length, is_code };
        let segments = vec![
            segment(0, 0, 0x5C4, false),
            segment(0x15C8, 0x5C8, 0x158, true),
            segment(0x2720, 0x720, 0x160, false),
        ];
        Program { build_id: None, segments }
    }

    #[test]
    fn an_image_is_placed_by_the_segments_of_its_file() {
        let base = 0x7F00_0000_0000;
        let place = library().place(base + 0x1000, 0x1000, 0);
        assert_eq!(
            place,
            Place { base, size: 0x3000, default_base: 0 },
            "not where offset 0 is mapped as code"
        );
        let mut program = library();
        program.segments.iter_mut().for_each(|it| it.address += 0x40_0000);
        let place = program.place(0x40_1000, 0x1000, 0);
        assert_eq!(place, Place { base: 0x40_0000, size: 0x3000, default_base: 0x40_0000 });
    }

    #[test]
    fn what_has_no_headers_or_lies_about_them_is_placed_by_its_mapping() {
        let by_mapping = Place { base: 0x1_0000, size: 0x3000, default_base: 0 };
        assert_eq!(Program::default().place(0x1_2000, 0x1000, 0x2000), by_mapping);
        assert_eq!(Program::default().place(0x1000, 0x1000, 0x2000).base, 0x1000, "before the beginning");
        for (address, offset, length) in [(u64::MAX, 0, u64::MAX), (0, u64::MAX, 1), (1 << 63, 0, 1 << 63)] {
            let segments = vec![Segment { address, offset, length, is_code: true }];
            let program = Program { build_id: None, segments };
            let Place { base, size, .. } = program.place(0x1_2000, 0x1000, 0x2000);
            assert!(base.checked_add(size).is_some());
            let _ = program.place(u64::MAX, u64::MAX, u64::MAX);
        }
    }

    #[test]
    fn a_broken_file_is_no_trouble() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let own = &own[..own.len().min(1 << 13)];
        assert!(!Program::read(own).segments.is_empty());
        for length in (0..0x400).chain([own.len() / 2]) {
            let _ = Program::read(&own[..length]);
        }
        for at in 0..0x400 {
            for byte in [0, 0x7F, 0xFF] {
                let mut broken = own.to_vec();
                broken[at] = byte;
                let program = Program::read(&*broken);
                assert!(program.segments.len() <= MAX_SEGMENTS);
                let _ = program.place(0x7F00_0000_0000, 0x1000, 0x1000);
            }
        }
    }

    #[test]
    fn a_build_id_is_cut_after_what_the_kernel_tells() {
        assert_eq!(BuildId::new(&[]), None);
        assert_eq!(BuildId::new(&[1; 32]), BuildId::new(&[1; 20]));
        assert_ne!(BuildId::new(&[1; 8]), BuildId::new(&[1; 9]));
        assert_eq!(BuildId::new(&[9; 4]).unwrap().padded()[..5], [9, 9, 9, 9, 0]);
        assert_eq!(BuildId::in_notes(&[0xFF; 64]), None);
    }

    #[test]
    fn a_file_is_believed_by_its_id() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        std::fs::copy(std::env::current_exe().unwrap(), &plain).unwrap();
        let path = plain.to_str().unwrap();
        let inode = plain::find(path, OFlags::NOFOLLOW).expect("a plain file").now.inode;
        let mut programs = Programs::default();
        let gone = Mapping { pid: u32::MAX, start: 0x1000, end: 0x2000, path, which: Which::Inode(inode) };
        assert!(programs.of(&gone).segments.is_empty(), "nothing is looked at before it is allowed");
        programs.allow(3);
        assert!(!programs.of(&gone).segments.is_empty());
        let other = Mapping { which: Which::Inode(inode + 1), ..gone };
        assert!(programs.of(&other).segments.is_empty(), "another file by that name");
        let id = BuildId::new(&[7; 20]).unwrap();
        let told = programs.of(&Mapping { which: Which::BuildId(id), ..gone });
        assert_eq!((told.build_id, told.segments.len()), (Some(id), 0), "what the kernel told is kept");
    }
}
