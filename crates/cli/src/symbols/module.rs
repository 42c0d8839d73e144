//! What is known about the code of one file: a program or library of Linux with its debug file, or an image of Windows by its PDB.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use flate2::Crc;
use traceweir_decode::symbols::elf::Parts;
use traceweir_decode::symbols::{Dwarf, Elf, Identity, Pdb, Table, demangle};

use super::search::{self, Candidate};
use super::vdso;
use super::warnings::Warnings;
use super::{Frame, Key, Options};
use crate::images::DebugId;

/// Bytes of a build id that a trace has.
const ID: usize = 20;
/// The largest file whose checksum is computed.
const MAX_CHECKED: u64 = 1 << 30;

/// The code of a file; empty where none fits.
#[derive(Default)]
pub(super) struct Module {
    /// Where the file's first byte lies by the linker's account.
    base: u64,
    /// Symbols, those of a debug file first.
    tables: Vec<Table>,
    dwarf: Option<Dwarf>,
    /// Where functions begin by the linker's account, ascending, where that is known without their names.
    starts: Vec<u64>,
}

/// The file that a trace tells of, without its folder.
pub(super) fn name_of(path: &str) -> Arc<str> {
    path.rsplit(['\\', '/']).next().unwrap_or_default().into()
}

/// A build id as a trace has it: cut, or filled with zeros.
pub(super) fn is_build(build_id: &[u8], told: &DebugId) -> bool {
    let mut padded = [0; ID];
    padded.iter_mut().zip(build_id).for_each(|(to, from)| *to = *from);
    !build_id.is_empty() && padded == told_bytes(told)
}

fn told_bytes(told: &DebugId) -> [u8; ID] {
    let mut bytes = [0; ID];
    let told = told.signature.to_bytes().into_iter().chain(told.age.to_le_bytes());
    bytes.iter_mut().zip(told).for_each(|(to, from)| *to = from);
    bytes
}

/// The build ids that a trace may mean: the zeros at the end may be part of it or not.
pub(super) fn possible_builds(told: &DebugId) -> Vec<Vec<u8>> {
    let bytes = told_bytes(told);
    let fits = |length: &usize| bytes.iter().skip(*length).all(|byte| *byte == 0);
    [ID, 16, 8].into_iter().filter(fits).map(|length| bytes.iter().take(length).copied().collect()).collect()
}

impl Module {
    /// Reads what there is about a file of which at least so many bytes were loaded.
    pub(super) fn load(options: &Options, (path, id): &Key, size: u64, warnings: &mut Warnings) -> Self {
        if path.starts_with('/') {
            return Self::of_linux(options, (path, id.as_ref()), size, warnings);
        }
        match id {
            Some(id) if vdso::is_one(path) => {
                let mut module = Self::default();
                vdso::own(id).into_iter().for_each(|own| module.take(own));
                module
            }
            Some(id) => Self::of_windows(options, id, warnings),
            None => Self::default(),
        }
    }

    fn of_linux(
        options: &Options,
        (path, id): (&str, Option<&DebugId>),
        size: u64,
        warnings: &mut Warnings,
    ) -> Self {
        let mut module = Self::default();
        let parts = Parts { symbols: true, dwarf: !options.without_lines };
        let program = find_program(options, (path, id), size, parts, warnings);
        let (builds, link) = match &program {
            Some(elf) => (vec![elf.identity.build_id.clone()], elf.identity.debug_link.clone()),
            None => (id.map(possible_builds).unwrap_or_default(), None),
        };
        let is_whole = program
            .as_ref()
            .is_some_and(|elf| !elf.is_stripped && (options.without_lines || elf.dwarf.is_some()));
        if !is_whole {
            for build_id in builds {
                let link = link.as_ref().map(|(name, checksum)| (name.as_str(), *checksum));
                if let Some(debug) = find_debug_file(options, path, (&build_id, link), parts) {
                    warnings.say_if_cut(&debug.symbols, path);
                    module.take(debug);
                    break;
                }
            }
        }
        if program.is_none() && module.tables.is_empty() && module.dwarf.is_none() && is_gone(options, path) {
            warnings.note_gone(path);
        }
        if let Some(program) = program {
            warnings.say_if_cut(&program.symbols, path);
            module.take(program);
        }
        module
    }

    /// Takes in a file: where it wants to lie, its symbols, and lines where there are none yet.
    fn take(&mut self, elf: Elf) {
        self.base = elf.identity.base;
        if !elf.symbols.is_empty() {
            self.tables.push(elf.symbols);
        }
        self.dwarf = self.dwarf.take().or(elf.dwarf);
        if !elf.starts.is_empty() {
            self.starts = elf.starts;
        }
    }

    fn of_windows(options: &Options, id: &DebugId, warnings: &mut Warnings) -> Self {
        for path in search::pdbs(options, &id.path, id.signature, id.age) {
            let Some(file) = search::open(&path) else { continue };
            let about = path.display().to_string();
            match Pdb::read_file(file, |signature, age| (signature, age) == (id.signature, id.age)) {
                Ok(Some(pdb)) => {
                    warnings.say_if_cut(&pdb.symbols, &about);
                    return Self { tables: vec![pdb.symbols], ..Self::default() };
                }
                Ok(None) => warnings
                    .say(&about, "it is not the PDB of the traced image: its signature or age is another"),
                Err(error) => warnings.say(&about, &format!("cannot be used for symbols: {error}")),
            }
        }
        Self::default()
    }

    /// The functions so far into the file, the innermost first; one without function where none is known.
    pub(super) fn frames(&mut self, name: &Arc<str>, offset: u64) -> Vec<Frame> {
        let linked = offset.wrapping_add(self.base);
        let mut frames = frames(name, offset, linked, &self.tables, self.dwarf.as_mut());
        let before = self.starts.partition_point(|start| *start <= linked);
        let start = before.checked_sub(1).and_then(|at| self.starts.get(at));
        for frame in frames.iter_mut().filter(|frame| frame.function.is_none()) {
            frame.start = start.map(|start| start.wrapping_sub(self.base));
        }
        frames
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let tables = self.tables.iter().map(Table::bytes).fold(0, usize::saturating_add);
        let starts = size_of::<u64>().saturating_mul(self.starts.capacity());
        tables.saturating_add(starts).saturating_add(self.dwarf.as_ref().map_or(0, Dwarf::bytes))
    }
}

/// The functions at an address by the linker's account.
pub(super) fn frames(
    name: &Arc<str>,
    offset: u64,
    linked: u64,
    tables: &[Table],
    dwarf: Option<&mut Dwarf>,
) -> Vec<Frame> {
    let symbol = tables.iter().find_map(|table| table.lookup(linked));
    let told = symbol.map(|symbol| (demangle(&symbol.text()), linked.wrapping_sub(symbol.start)));
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
        // A function that was split begins where its symbol does.
        if let Some((text, into)) = told.as_ref().filter(|_| !site.is_inlined) {
            frame.function = frame.function.or_else(|| Some(Arc::from(text.as_str())));
            frame.offset = *into;
        } else if frame.function.is_none() {
            frame.offset = offset;
        }
        frames.push(frame);
    }
    if frames.is_empty() {
        let (function, offset) = told.map_or((None, offset), |(text, into)| (Some(Arc::from(text)), into));
        frames.push(Frame { module: Some(Arc::clone(name)), function, offset, ..Frame::default() });
    }
    frames
}

/// Whether no file is at a path.
fn is_gone(options: &Options, path: &str) -> bool {
    search::programs(options, path).iter().all(|candidate| candidate.open().is_none())
}

fn find_program(
    options: &Options,
    (path, id): (&str, Option<&DebugId>),
    size: u64,
    parts: Parts,
    warnings: &mut Warnings,
) -> Option<Elf> {
    let builds = id.map(possible_builds).unwrap_or_default();
    let mut candidates = search::programs(options, path);
    candidates.extend(builds.iter().flat_map(|build| search::executables(options, build)));
    let mut other = None;
    for candidate in candidates {
        let Some(file) = candidate.open() else { continue };
        let is_it = |identity: &Identity| match id {
            Some(id) => is_build(&identity.build_id, id),
            None => identity.extent >= size,
        };
        match Elf::read(file, parts, is_it) {
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
        let what = "it is not the file that was traced, and has no names for it; --symbol-path may lead to the right one";
        warnings.say(&path.display().to_string(), what);
    }
    None
}

/// The debug file of a program with a build id, or with the checksum that its link has.
fn find_debug_file(
    options: &Options,
    path: &str,
    (build_id, link): (&[u8], Option<(&str, u32)>),
    parts: Parts,
) -> Option<Elf> {
    let candidates = search::debug_files(options, path, build_id, link.map(|(name, _)| name));
    candidates.into_iter().find_map(|candidate| {
        if build_id.is_empty() && checksum(candidate.open()?)? != link?.1 {
            return None;
        }
        Elf::read(candidate.open()?, parts, |identity| identity.build_id == build_id).ok()?
    })
}

/// The checksum of a file as `.gnu_debuglink` has it.
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
