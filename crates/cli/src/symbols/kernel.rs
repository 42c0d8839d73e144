//! Symbols of the kernel.
//!
//! ```text
//!   --symbol-path    vmlinux of the traced build, System.map; relocated to the traced kernel
//!   /proc/kallsyms   if the trace is of this boot (same address and build); includes modules
//!   debug folders    vmlinux by build id
//! ```
//!
//! With address randomisation, the kernel has another address after each boot. A trace with this
//! build and address is therefore of this boot, or the kernel is never moved.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use traceweir_decode::symbols::elf::{ElfParts, build_id_of_notes};
use traceweir_decode::symbols::{Dwarf, Elf, SymbolTable, demangle, listing};

use super::module::frames;
use super::search;
use super::warnings::Warnings;
use super::{Frame, Options};
use crate::images::{DebugId, Image, Images};

/// Maximum number of files of a folder to inspect.
const MAX_ENTRIES: usize = 4096;
/// Maximum size of the notes, in bytes.
const MAX_NOTES: u64 = 64 << 10;

/// Symbols of the kernel.
#[derive(Default)]
pub(super) struct Kernel {
    /// Name of the kernel's own image.
    image: String,
    /// Sources of symbols, in the order of use.
    sources: Vec<Source>,
}

struct Source {
    table: Vec<SymbolTable>,
    dwarf: Option<Dwarf>,
    /// Distance between linked and actual addresses.
    moved: u64,
    /// Whether it includes modules.
    has_modules: bool,
}

/// Returns whether an image is the kernel, or a module that the kernel lists.
pub(super) fn is_kernel_or_module(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let bare = [".xz", ".zst", ".gz"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    name.starts_with('[') || bare.ends_with(".ko") || is_kernel(path)
}

/// Returns whether an image is the kernel itself.
fn is_kernel(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with("[kernel") || name.starts_with("vmlinu")
}

impl Kernel {
    pub(super) fn load(options: &Options, images: &Images, warnings: &mut Warnings) -> Self {
        let Some((base, image)) = images.find_kernel_image(|image| is_kernel(&image.path)) else {
            warnings
                .warn("the kernel", "the trace does not contain its address; its functions have no names");
            return Self::default();
        };
        let mut sources = read_named(options, base, image);
        match read_running_kernel(options, base, image.id.as_ref()) {
            Ok(source) => sources.push(source),
            Err(reason) if sources.is_empty() => {
                sources.extend(by_build(options, base, image));
                if sources.is_empty() {
                    warnings.warn("the kernel", reason);
                }
            }
            Err(_) => {}
        }
        for table in sources.iter().flat_map(|source| &source.table) {
            warnings.warn_if_truncated(table, "the kernel");
        }
        Self { image: image.name().to_owned(), sources }
    }

    /// Returns the functions at an address in an image of the kernel.
    pub(super) fn frames(&mut self, image: &str, address: u64) -> Option<Vec<Frame>> {
        let is_main = image == self.image;
        self.sources.iter_mut().filter(|source| is_main || source.has_modules).find_map(|source| {
            let linked = address.wrapping_sub(source.moved);
            let symbol = source.table.iter().find_map(|table| table.lookup(linked))?;
            let module: Arc<str> = symbol.group.map_or(image.into(), |group| format!("[{group}]").into());
            if source.dwarf.is_some() {
                return Some(frames(&module, 0, linked, &source.table, source.dwarf.as_mut()));
            }
            let function = Some(Arc::from(demangle(&symbol.text())));
            let offset = linked.wrapping_sub(symbol.start);
            Some(vec![Frame { module: Some(module), function, offset, ..Frame::default() }])
        })
    }
}

/// Reads the files that the user named, and matching files of named folders.
fn read_named(options: &Options, base: u64, image: &Image) -> Vec<Source> {
    let mut sources = Vec::new();
    for path in &options.paths {
        let files = if path.is_dir() { kernels_in(path) } else { vec![path.clone()] };
        sources.extend(files.iter().filter_map(|file| read(options, file, base, image.id.as_ref())));
    }
    sources
}

/// Returns the kernels and symbol lists in a folder.
fn kernels_in(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().take(MAX_ENTRIES).flatten();
    let is_kernel_file = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinux") || name.starts_with("System.map")
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_kernel_file).collect();
    files.sort();
    // A list does not contain its kernel's identity, so of several lists none is used.
    let is_list =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('S'));
    if files.iter().filter(is_list).count() > 1 {
        files.retain(|path| !is_list(&path));
    }
    files
}

/// Reads a vmlinux of the traced build, or a System.map.
fn read(options: &Options, path: &Path, base: u64, id: Option<&DebugId>) -> Option<Source> {
    let parts = ElfParts { symbols: true, dwarf: !options.without_lines };
    let is_match = |build_id: &[u8]| id.is_none_or(|id| id.is_build(build_id));
    let (table, dwarf) = match Elf::read(search::open(path)?, parts, |identity| is_match(&identity.build_id))
    {
        Ok(elf) => elf.map(|elf| (elf.symbols, elf.dwarf))?,
        Err(_) => (listing::read_kernel_symbols(search::open(path)?).ok()?, None),
    };
    let moved = base.wrapping_sub(table.kernel_start().next()?);
    Some(Source { table: vec![table], dwarf, moved, has_modules: false })
}

/// Finds a vmlinux in the folders of debug files.
fn by_build(options: &Options, base: u64, image: &Image) -> Option<Source> {
    let builds = image.id.as_ref().map(DebugId::possible_builds).unwrap_or_default();
    let files = builds.iter().flat_map(|build| search::debug_files(options, "", build, None));
    files.into_iter().find_map(|file| read(options, &file.path, base, image.id.as_ref()))
}

/// Reads the symbols of the running kernel, if it is the one in the trace; else returns why not.
fn read_running_kernel(options: &Options, base: u64, id: Option<&DebugId>) -> Result<Source, &'static str> {
    let list = File::open(options.local_path("/proc/kallsyms")).and_then(listing::read_kernel_symbols);
    let table =
        list.map_err(|_| "its symbols cannot be read here; give a System.map or vmlinux with --symbol-path")?;
    if table.kernel_start().next().is_none_or(|first| first == 0) {
        return Err(
            "its symbols are hidden (/proc/kallsyms shows zeros): run as root, or allow them with 'sysctl kernel.kptr_restrict=0'",
        );
    }
    let own = notes(&options.local_path("/sys/kernel/notes"));
    let own = own.as_deref().and_then(build_id_of_notes);
    let is_same_build = id.zip(own).is_none_or(|(id, own)| id.is_build(own));
    if !is_same_build || !table.kernel_start().any(|first| first == base) {
        return Err(
            "the trace is of another boot or machine, whose symbols are not here; give its System.map or vmlinux with --symbol-path",
        );
    }
    Ok(Source { table: vec![table], dwarf: None, moved: 0, has_modules: true })
}

fn notes(path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_NOTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
