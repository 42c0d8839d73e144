//! Symbols of one file: a Linux program or library with its debug file, or a Windows image with its
//! PDB.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use flate2::Crc;
use traceweir_decode::symbols::elf::ElfParts;
use traceweir_decode::symbols::{Dwarf, Elf, ElfIdentity, Pdb, SymbolTable, demangle};

use super::search::{self, Candidate};
use super::vdso;
use super::warnings::Warnings;
use super::{Frame, Key, Options};
use crate::images::DebugId;

/// Maximum size of a file whose checksum is computed.
const MAX_CHECKED: u64 = 1 << 30;

/// Symbols of a file; empty if no file matches.
#[derive(Default)]
pub(super) struct Module {
    /// Address of the first byte of the file in the ELF addresses.
    base: u64,
    /// Symbol tables, that of a debug file first.
    tables: Vec<SymbolTable>,
    dwarf: Option<Dwarf>,
    /// Start addresses of functions in ascending order, if known without their names.
    starts: Vec<u64>,
}

/// Returns the file name of a path.
pub(super) fn name_of(path: &str) -> Arc<str> {
    path.rsplit(['\\', '/']).next().unwrap_or_default().into()
}

impl Module {
    /// Loads the symbols of a file of which at least `size` bytes were mapped.
    pub(super) fn load(options: &Options, (path, id): &Key, size: u64, warnings: &mut Warnings) -> Self {
        if path.starts_with('/') {
            return Self::load_elf(options, (path, id.as_ref()), size, warnings);
        }
        match id {
            Some(id) if vdso::is_vdso(path) => {
                let mut module = Self::default();
                vdso::read_own(id).into_iter().for_each(|own| module.add_elf(own));
                module
            }
            Some(id) => Self::load_pdb(options, id, warnings),
            None => Self::default(),
        }
    }

    fn load_elf(
        options: &Options,
        (path, id): (&str, Option<&DebugId>),
        size: u64,
        warnings: &mut Warnings,
    ) -> Self {
        let mut module = Self::default();
        let parts = ElfParts { symbols: true, dwarf: !options.without_lines };
        let program = find_program(options, (path, id), size, parts, warnings);
        let (builds, link) = match &program {
            Some(elf) => (vec![elf.identity.build_id.clone()], elf.identity.debug_link.clone()),
            None => (id.map(DebugId::possible_builds).unwrap_or_default(), None),
        };
        let is_complete = program
            .as_ref()
            .is_some_and(|elf| !elf.is_stripped && (options.without_lines || elf.dwarf.is_some()));
        if !is_complete {
            for build_id in builds {
                let link = link.as_ref().map(|(name, checksum)| (name.as_str(), *checksum));
                if let Some(debug) = find_debug_file(options, path, (&build_id, link), parts) {
                    warnings.warn_if_truncated(&debug.symbols, path);
                    module.add_elf(debug);
                    break;
                }
            }
        }
        if program.is_none()
            && module.tables.is_empty()
            && module.dwarf.is_none()
            && is_missing(options, path)
        {
            warnings.note_missing(path);
        }
        if let Some(program) = program {
            warnings.warn_if_truncated(&program.symbols, path);
            module.add_elf(program);
        }
        module
    }

    /// Adds a file: its base, its symbols, and lines if there are none yet.
    fn add_elf(&mut self, elf: Elf) {
        self.base = elf.identity.base;
        if !elf.symbols.is_empty() {
            self.tables.push(elf.symbols);
        }
        self.dwarf = self.dwarf.take().or(elf.dwarf);
        if !elf.starts.is_empty() {
            self.starts = elf.starts;
        }
    }

    fn load_pdb(options: &Options, id: &DebugId, warnings: &mut Warnings) -> Self {
        for path in search::pdbs(options, &id.path, id.signature, id.age) {
            let Some(file) = search::open(&path) else { continue };
            let about = path.display().to_string();
            match Pdb::read_file(file, |signature, age| (signature, age) == (id.signature, id.age)) {
                Ok(Some(pdb)) => {
                    warnings.warn_if_truncated(&pdb.symbols, &about);
                    return Self { tables: vec![pdb.symbols], ..Self::default() };
                }
                Ok(None) => warnings
                    .warn(&about, "it is not the PDB of the traced image: its signature or age differs"),
                Err(error) => warnings.warn(&about, &format!("cannot be used for symbols: {error}")),
            }
        }
        Self::default()
    }

    /// Returns the functions at an offset, the innermost first; a frame without function if
    /// unknown.
    pub(super) fn frames(&mut self, name: &Arc<str>, offset: u64) -> Vec<Frame> {
        let linked = offset.wrapping_add(self.base);
        let mut frames = frames(name, offset, linked, &self.tables, self.dwarf.as_mut());
        let before = self.starts.partition_point(|start| *start <= linked);
        let start = before.checked_sub(1).and_then(|index| self.starts.get(index));
        for frame in frames.iter_mut().filter(|frame| frame.function.is_none()) {
            frame.start = start.map(|start| start.wrapping_sub(self.base));
        }
        frames
    }

    /// Returns its memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let tables = self.tables.iter().map(SymbolTable::bytes).fold(0, usize::saturating_add);
        let starts = size_of::<u64>().saturating_mul(self.starts.capacity());
        tables.saturating_add(starts).saturating_add(self.dwarf.as_ref().map_or(0, Dwarf::bytes))
    }
}

/// Returns the functions at an address of the ELF file.
pub(super) fn frames(
    name: &Arc<str>,
    offset: u64,
    linked: u64,
    tables: &[SymbolTable],
    dwarf: Option<&mut Dwarf>,
) -> Vec<Frame> {
    let symbol = tables.iter().find_map(|table| table.lookup(linked));
    let named = symbol.map(|symbol| (demangle(&symbol.text()), linked.wrapping_sub(symbol.start)));
    let sites = dwarf.map(|dwarf| dwarf.find(linked)).unwrap_or_default();
    let mut frames: Vec<Frame> = Vec::with_capacity(sites.len().max(1));
    for site in sites {
        let function = site.function.or_else(|| site.is_inlined.then(|| Arc::from("(inlined)")));
        let mut frame = Frame {
            module: Some(Arc::clone(name)),
            function,
            offset: linked.wrapping_sub(site.start),
            start: None,
            file: site.file,
            line: site.line,
            is_inlined: site.is_inlined,
        };
        // A function that was split begins where its symbol begins.
        if let Some((text, symbol_offset)) = named.as_ref().filter(|_| !site.is_inlined) {
            frame.function = frame.function.or_else(|| Some(Arc::from(text.as_str())));
            frame.offset = *symbol_offset;
        } else if frame.function.is_none() {
            frame.offset = offset;
        }
        frames.push(frame);
    }
    if frames.is_empty() {
        let (function, offset) = named.map_or((None, offset), |(text, into)| (Some(Arc::from(text)), into));
        frames.push(Frame { module: Some(Arc::clone(name)), function, offset, ..Frame::default() });
    }
    frames
}

/// Returns whether no file is at a path.
fn is_missing(options: &Options, path: &str) -> bool {
    search::programs(options, path).iter().all(|candidate| candidate.open().is_none())
}

fn find_program(
    options: &Options,
    (path, id): (&str, Option<&DebugId>),
    size: u64,
    parts: ElfParts,
    warnings: &mut Warnings,
) -> Option<Elf> {
    let builds = id.map(DebugId::possible_builds).unwrap_or_default();
    let mut candidates = search::programs(options, path);
    candidates.extend(builds.iter().flat_map(|build| search::executables(options, build)));
    let mut other = None;
    for candidate in candidates {
        let Some(file) = candidate.open() else { continue };
        let is_match = |identity: &ElfIdentity| match id {
            Some(id) => id.is_build(&identity.build_id),
            None => identity.extent >= size,
        };
        match Elf::read(file, parts, is_match) {
            Ok(Some(elf)) => {
                if id.is_none() {
                    warnings.note_assumed(path);
                }
                return Some(elf);
            }
            Ok(None) => other = other.or(Some(candidate)),
            Err(_) => {}
        }
    }
    if let Some(Candidate { path, .. }) = other {
        let reason = "it is not the file that was traced, so its symbols do not apply; give the right one with --symbol-path";
        warnings.warn(&path.display().to_string(), reason);
    }
    None
}

/// Finds the debug file of a program, by build id or by the checksum of its debug link.
fn find_debug_file(
    options: &Options,
    path: &str,
    (build_id, link): (&[u8], Option<(&str, u32)>),
    parts: ElfParts,
) -> Option<Elf> {
    let candidates = search::debug_files(options, path, build_id, link.map(|(name, _)| name));
    candidates.into_iter().find_map(|candidate| {
        if build_id.is_empty() && checksum(candidate.open()?)? != link?.1 {
            return None;
        }
        Elf::read(candidate.open()?, parts, |identity| identity.build_id == build_id).ok()?
    })
}

/// Returns the checksum of a file as in `.gnu_debuglink`.
fn checksum(mut file: File) -> Option<u32> {
    if file.metadata().ok()?.len() > MAX_CHECKED {
        return None;
    }
    let (mut sum, mut buffer) = (Crc::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(sum.sum()),
            read => sum.update(buffer.get(..read)?),
        }
    }
}
