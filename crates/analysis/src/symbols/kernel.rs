//! Symbols of the kernel.
//!
//! ```text
//!   chosen files     vmlinux of the traced build, System.map; relocated to the traced kernel
//!   /proc/kallsyms   if the trace is of this boot (same address and build); includes modules
//!   debug folders    vmlinux by build id, if neither of the above has symbols
//! ```
//!
//! With address randomisation, the kernel has another address after each boot. If a trace has the
//! build and address of the running kernel, it is of this boot, or addresses are not randomised.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use traceweir_decode::symbols::elf::{ElfParts, find_build_id};
use traceweir_decode::symbols::{Dwarf, Elf, SymbolTable, demangle, listing};

use super::module::find_elf_frames;
use super::search;
use super::warnings::SymbolWarnings;
use super::{SymbolFrame, SymbolOptions};
use crate::images::{DebugId, LoadedImage, LoadedImages};
use crate::observer::SymbolProblem;

/// Maximum number of files of a folder to inspect.
const MAX_FOLDER_ENTRIES: usize = 4096;
/// Maximum size of the ELF notes of the kernel.
const MAX_NOTES_BYTES: u64 = 64 << 10;

#[derive(Default)]
pub(super) struct KernelSymbols {
    /// Name of the image of the kernel, as opposed to its modules.
    image: String,
    /// Sources of symbols, in the order of use.
    sources: Vec<KernelSymbolSource>,
}

struct KernelSymbolSource {
    tables: Vec<SymbolTable>,
    dwarf: Option<Dwarf>,
    /// Actual address minus linked address.
    load_offset: u64,
    /// Whether the tables include kernel modules.
    has_modules: bool,
}

/// Returns whether an image of process 0 is the kernel or a kernel module, by its name. Other
/// processes have images such as `[vdso]`, whose names look the same.
pub(super) fn is_kernel_or_module(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let uncompressed = [".xz", ".zst", ".gz"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    name.starts_with('[') || uncompressed.ends_with(".ko") || is_kernel(path)
}

/// Returns whether an image is the kernel itself.
fn is_kernel(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with("[kernel") || name.starts_with("vmlinu")
}

impl KernelSymbols {
    pub(super) fn load(
        options: &SymbolOptions,
        images: &LoadedImages,
        warnings: &mut SymbolWarnings,
    ) -> Self {
        let Some((base, image)) = images.find_kernel_image(|image| is_kernel(&image.path)) else {
            warnings.warn("the kernel", SymbolProblem::NoKernelAddress);
            return Self::default();
        };
        let mut sources = read_symbol_paths(options, base, image);
        match read_running_kernel(options, base, image.id.as_ref()) {
            Ok(source) => sources.push(source),
            Err(problem) if sources.is_empty() => {
                sources.extend(find_by_build_id(options, base, image));
                if sources.is_empty() {
                    warnings.warn("the kernel", problem);
                }
            }
            Err(_) => {}
        }
        for table in sources.iter().flat_map(|source| &source.tables) {
            warnings.warn_if_truncated(table, "the kernel");
        }
        Self { image: image.name().to_owned(), sources }
    }

    /// Returns the functions at an address in `image`, which is the kernel or a kernel module.
    pub(super) fn find_frames(&mut self, image: &str, address: u64) -> Option<Vec<SymbolFrame>> {
        let is_main = image == self.image;
        self.sources.iter_mut().filter(|source| is_main || source.has_modules).find_map(|source| {
            let linked_address = address.wrapping_sub(source.load_offset);
            let symbol = source.tables.iter().find_map(|table| table.lookup(linked_address))?;
            let module: Arc<str> = symbol.group.map_or(image.into(), |group| format!("[{group}]").into());
            if source.dwarf.is_some() {
                return Some(find_elf_frames(
                    &module,
                    0,
                    linked_address,
                    &source.tables,
                    source.dwarf.as_mut(),
                ));
            }
            let function = Some(Arc::from(demangle(&symbol.text())));
            let offset = linked_address.wrapping_sub(symbol.start);
            Some(vec![SymbolFrame { module: Some(module), function, offset, ..SymbolFrame::default() }])
        })
    }
}

/// Reads the files that the user named, and matching files of named folders.
fn read_symbol_paths(options: &SymbolOptions, base: u64, image: &LoadedImage) -> Vec<KernelSymbolSource> {
    let mut sources = Vec::new();
    for path in &options.paths {
        let files = if path.is_dir() { list_kernel_files(path) } else { vec![path.clone()] };
        sources
            .extend(files.iter().filter_map(|file| read_kernel_file(options, file, base, image.id.as_ref())));
    }
    sources
}

/// Returns the kernels and symbol lists in a folder.
fn list_kernel_files(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().take(MAX_FOLDER_ENTRIES).flatten();
    let is_kernel_file = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinux") || name.starts_with("System.map")
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_kernel_file).collect();
    files.sort();
    // A list does not identify its kernel, so if there are several lists, none is used.
    let is_list = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("System.map"))
    };
    if files.iter().filter(is_list).count() > 1 {
        files.retain(|path| !is_list(&path));
    }
    files
}

/// Reads a vmlinux of the traced build, or a System.map.
fn read_kernel_file(
    options: &SymbolOptions,
    path: &Path,
    base: u64,
    id: Option<&DebugId>,
) -> Option<KernelSymbolSource> {
    let parts = ElfParts { symbols: true, dwarf: !options.omits_lines };
    let is_match = |build_id: &[u8]| id.is_none_or(|id| id.matches_build_id(build_id));
    let (table, dwarf) = match Elf::read(search::open(path)?, parts, |identity| is_match(&identity.build_id))
    {
        Ok(elf) => elf.map(|elf| (elf.symbols, elf.dwarf))?,
        Err(_) => (listing::read_kernel_symbols(search::open(path)?).ok()?, None),
    };
    let load_offset = base.wrapping_sub(table.kernel_starts().next()?);
    Some(KernelSymbolSource { tables: vec![table], dwarf, load_offset, has_modules: false })
}

/// Finds a vmlinux in the folders of debug files.
fn find_by_build_id(options: &SymbolOptions, base: u64, image: &LoadedImage) -> Option<KernelSymbolSource> {
    let build_ids = image.id.as_ref().map(DebugId::possible_build_ids).unwrap_or_default();
    let files = build_ids.iter().flat_map(|build_id| search::list_debug_files(options, "", build_id, None));
    files.into_iter().find_map(|file| read_kernel_file(options, &file.path, base, image.id.as_ref()))
}

/// Reads the symbols of the running kernel, if the trace is of this boot; else returns the problem.
fn read_running_kernel(
    options: &SymbolOptions,
    base: u64,
    id: Option<&DebugId>,
) -> Result<KernelSymbolSource, SymbolProblem> {
    let list = File::open(options.local_path("/proc/kallsyms")).and_then(listing::read_kernel_symbols);
    let table = list.map_err(|_| SymbolProblem::UnreadableKernel)?;
    if table.kernel_starts().next().is_none_or(|first| first == 0) {
        return Err(SymbolProblem::HiddenKernel);
    }
    let running_id = read_notes(&options.local_path("/sys/kernel/notes"));
    let running_id = running_id.as_deref().and_then(find_build_id);
    let is_same_build = id.zip(running_id).is_none_or(|(id, running)| id.matches_build_id(running));
    if !is_same_build || !table.kernel_starts().any(|first| first == base) {
        return Err(SymbolProblem::OtherKernel);
    }
    Ok(KernelSymbolSource { tables: vec![table], dwarf: None, load_offset: 0, has_modules: true })
}

fn read_notes(path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_NOTES_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
