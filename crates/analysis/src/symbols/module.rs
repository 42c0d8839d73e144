//! Symbols of one file: a Linux program or library with its debug file, or a Windows image with its
//! PDB.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use flate2::Crc;
use traceweir_decode::symbols::elf::ElfParts;
use traceweir_decode::symbols::{Dwarf, Elf, ElfIdentity, Pdb, SymbolTable, demangle};

use super::search::{self, SymbolFile};
use super::vdso;
use super::warnings::SymbolWarnings;
use super::{ModuleKey, SymbolFrame, SymbolOptions};
use crate::images::DebugId;
use crate::observer::SymbolProblem;

/// Maximum size of a file to compute a checksum for.
const MAX_CHECKSUM_FILE_BYTES: u64 = 1 << 30;

/// Symbols of a traced file; empty if no file here matches it.
#[derive(Default)]
pub(super) struct ModuleSymbols {
    /// ELF virtual address of the first byte of the file.
    base: u64,
    /// Symbol tables, that of a debug file first.
    tables: Vec<SymbolTable>,
    dwarf: Option<Dwarf>,
    /// Start addresses of functions in ascending order, as far as they are known without symbols.
    starts: Vec<u64>,
}

pub(super) fn file_name_of(path: &str) -> Arc<str> {
    path.rsplit(['\\', '/']).next().unwrap_or_default().into()
}

impl ModuleSymbols {
    /// Loads the symbols of a file. If the trace has no build id for it, a program matches if it
    /// takes at least `min_size` bytes of address space.
    pub(super) fn load(
        options: &SymbolOptions,
        (path, id): &ModuleKey,
        min_size: u64,
        warnings: &mut SymbolWarnings,
    ) -> Self {
        if path.starts_with('/') {
            return Self::load_elf(options, (path, id.as_ref()), min_size, warnings);
        }
        match id {
            Some(id) if vdso::is_vdso(path) => {
                let mut module = Self::default();
                vdso::read_matching(id).into_iter().for_each(|elf| module.add_elf(elf));
                module
            }
            Some(id) => Self::load_pdb(options, id, warnings),
            None => Self::default(),
        }
    }

    fn load_elf(
        options: &SymbolOptions,
        (path, id): (&str, Option<&DebugId>),
        min_size: u64,
        warnings: &mut SymbolWarnings,
    ) -> Self {
        let mut module = Self::default();
        let parts = ElfParts { symbols: true, dwarf: !options.omits_lines };
        let program = find_program(options, (path, id), min_size, parts, warnings);
        let (build_ids, link) = match &program {
            Some(elf) => (vec![elf.identity.build_id.clone()], elf.identity.debug_link.clone()),
            None => (id.map(DebugId::possible_build_ids).unwrap_or_default(), None),
        };
        let is_complete = program
            .as_ref()
            .is_some_and(|elf| !elf.is_stripped && (options.omits_lines || elf.dwarf.is_some()));
        if !is_complete {
            for build_id in build_ids {
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
            && is_program_missing(options, path)
        {
            warnings.note_missing(path);
        }
        if let Some(program) = program {
            warnings.warn_if_truncated(&program.symbols, path);
            module.add_elf(program);
        }
        module
    }

    /// Adds the symbols of a file, and its lines unless another file had lines. Base and function
    /// starts are those of the file that is added last: the program, if it was found.
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

    fn load_pdb(options: &SymbolOptions, id: &DebugId, warnings: &mut SymbolWarnings) -> Self {
        for path in search::list_pdbs(options, &id.path, id.signature, id.age) {
            let Some(file) = search::open(&path) else { continue };
            let name = path.display().to_string();
            match Pdb::read_file(file, |signature, age| (signature, age) == (id.signature, id.age)) {
                Ok(Some(pdb)) => {
                    warnings.warn_if_truncated(&pdb.symbols, &name);
                    return Self { tables: vec![pdb.symbols], ..Self::default() };
                }
                Ok(None) => warnings.warn(&name, SymbolProblem::OtherPdb),
                Err(error) => warnings.warn(&name, SymbolProblem::UnreadablePdb(error.to_string())),
            }
        }
        Self::default()
    }

    /// Returns the functions at an offset, the innermost first; a frame without function if
    /// unknown.
    pub(super) fn find_frames(&mut self, name: &Arc<str>, offset: u64) -> Vec<SymbolFrame> {
        let linked_address = offset.wrapping_add(self.base);
        let mut frames = find_elf_frames(name, offset, linked_address, &self.tables, self.dwarf.as_mut());
        let next = self.starts.partition_point(|start| *start <= linked_address);
        let start = next.checked_sub(1).and_then(|index| self.starts.get(index));
        for frame in frames.iter_mut().filter(|frame| frame.function.is_none()) {
            frame.start = start.map(|start| start.wrapping_sub(self.base));
        }
        frames
    }

    /// Drops lines and inlined functions, which take most of the memory.
    pub(super) fn drop_lines(&mut self) {
        self.dwarf = None;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let tables = self.tables.iter().map(SymbolTable::bytes).fold(0, usize::saturating_add);
        let starts = size_of::<u64>().saturating_mul(self.starts.capacity());
        tables.saturating_add(starts).saturating_add(self.dwarf.as_ref().map_or(0, Dwarf::bytes))
    }
}

/// Returns the functions at a linked address, or one frame without a function and with `offset`.
pub(super) fn find_elf_frames(
    name: &Arc<str>,
    offset: u64,
    linked_address: u64,
    tables: &[SymbolTable],
    dwarf: Option<&mut Dwarf>,
) -> Vec<SymbolFrame> {
    let symbol = tables.iter().find_map(|table| table.lookup(linked_address));
    let symbol_match =
        symbol.map(|symbol| (demangle(&symbol.text()), linked_address.wrapping_sub(symbol.start)));
    let sites = dwarf.map(|dwarf| dwarf.find(linked_address)).unwrap_or_default();
    let mut frames: Vec<SymbolFrame> = Vec::with_capacity(sites.len().max(1));
    for site in sites {
        let function = site.function.or_else(|| site.is_inlined.then(|| Arc::from("(inlined)")));
        let mut frame = SymbolFrame {
            module: Some(Arc::clone(name)),
            function,
            offset: linked_address.wrapping_sub(site.start),
            start: None,
            file: site.file,
            line: site.line,
            is_inlined: site.is_inlined,
        };
        // For a split function, DWARF may have the start of another part. The symbol has the start
        // of this part.
        if let Some((text, symbol_offset)) = symbol_match.as_ref().filter(|_| !site.is_inlined) {
            frame.function = frame.function.or_else(|| Some(Arc::from(text.as_str())));
            frame.offset = *symbol_offset;
        } else if frame.function.is_none() {
            frame.offset = offset;
        }
        frames.push(frame);
    }
    if frames.is_empty() {
        let (function, offset) = symbol_match
            .map_or((None, offset), |(text, symbol_offset)| (Some(Arc::from(text)), symbol_offset));
        frames.push(SymbolFrame {
            module: Some(Arc::clone(name)),
            function,
            offset,
            ..SymbolFrame::default()
        });
    }
    frames
}

/// Returns whether none of the files that may be the program can be opened.
fn is_program_missing(options: &SymbolOptions, path: &str) -> bool {
    search::list_programs(options, path).iter().all(|candidate| candidate.open().is_none())
}

fn find_program(
    options: &SymbolOptions,
    (path, id): (&str, Option<&DebugId>),
    min_size: u64,
    parts: ElfParts,
    warnings: &mut SymbolWarnings,
) -> Option<Elf> {
    let build_ids = id.map(DebugId::possible_build_ids).unwrap_or_default();
    let mut candidates = search::list_programs(options, path);
    candidates.extend(build_ids.iter().flat_map(|build_id| search::list_executables(options, build_id)));
    let mut mismatch = None;
    for candidate in candidates {
        let Some(file) = candidate.open() else { continue };
        let is_match = |identity: &ElfIdentity| match id {
            Some(id) => id.matches_build_id(&identity.build_id),
            None => identity.extent >= min_size,
        };
        match Elf::read(file, parts, is_match) {
            Ok(Some(elf)) => {
                if id.is_none() {
                    warnings.note_assumed(path);
                }
                return Some(elf);
            }
            Ok(None) => mismatch = mismatch.or(Some(candidate)),
            Err(_) => {}
        }
    }
    if let Some(SymbolFile { path, .. }) = mismatch {
        warnings.warn(&path.display().to_string(), SymbolProblem::OtherFile);
    }
    None
}

/// Finds the debug file of a program, by build id or by the checksum of its debug link.
fn find_debug_file(
    options: &SymbolOptions,
    path: &str,
    (build_id, link): (&[u8], Option<(&str, u32)>),
    parts: ElfParts,
) -> Option<Elf> {
    let candidates = search::list_debug_files(options, path, build_id, link.map(|(name, _)| name));
    candidates.into_iter().find_map(|candidate| {
        if build_id.is_empty() && compute_checksum(candidate.open()?)? != link?.1 {
            return None;
        }
        Elf::read(candidate.open()?, parts, |identity| identity.build_id == build_id).ok()?
    })
}

/// Returns the checksum of a file as in `.gnu_debuglink`.
fn compute_checksum(mut file: File) -> Option<u32> {
    if file.metadata().ok()?.len() > MAX_CHECKSUM_FILE_BYTES {
        return None;
    }
    let (mut sum, mut buffer) = (Crc::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(sum.sum()),
            count => sum.update(buffer.get(..count)?),
        }
    }
}
