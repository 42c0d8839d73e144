//! Functions of the kernel.
//!
//! ```text
//!   --symbol-path    vmlinux of the traced build, System.map                 moved by where the trace says that the kernel lay
//!   /proc/kallsyms   if the trace is of this boot: the kernel lies where the trace says, and is the same build; has the modules too
//!   debug folders    vmlinux by build id
//! ```
//!
//! A kernel lies elsewhere after each boot, so a trace of this build and place is of this boot, or nothing in it lies elsewhere.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use traceweir_decode::symbols::elf::{Parts, build_id_of_notes};
use traceweir_decode::symbols::{Dwarf, Elf, Table, demangle, listing};

use super::module::{frames, is_build, possible_builds};
use super::search;
use super::warnings::Warnings;
use super::{Frame, Options};
use crate::images::{DebugId, Image, Images};

/// Files of a folder that are looked at.
const MAX_ENTRIES: usize = 4096;
/// The longest block of notes.
const MAX_NOTES: u64 = 64 << 10;

/// What is known about the kernel's code.
#[derive(Default)]
pub(super) struct Kernel {
    /// The name of the kernel's own image.
    image: String,
    /// What was found, in the order in which it is asked.
    sources: Vec<Source>,
}

struct Source {
    table: Vec<Table>,
    dwarf: Option<Dwarf>,
    /// How far the code was moved.
    moved: u64,
    /// Whether it has modules too.
    has_modules: bool,
}

/// Whether an image is the kernel, or a module that the kernel lists.
pub(super) fn is_of_kernel(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let bare = [".xz", ".zst", ".gz"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    name.starts_with('[') || bare.ends_with(".ko") || is_kernel(path)
}

/// Whether an image is the kernel itself.
fn is_kernel(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with("[kernel") || name.starts_with("vmlinu")
}

impl Kernel {
    pub(super) fn load(options: &Options, images: &Images, warnings: &mut Warnings) -> Self {
        let Some((base, image)) = images.of_kernel(|image| is_kernel(&image.path)) else {
            warnings.say("the kernel", "the trace does not tell where it lay; its functions have no names");
            return Self::default();
        };
        let mut sources = named(options, base, image);
        match of_this_boot(options, base, image.id.as_ref()) {
            Ok(source) => sources.push(source),
            Err(why) if sources.is_empty() => {
                sources.extend(by_build(options, base, image));
                if sources.is_empty() {
                    warnings.say("the kernel", why);
                }
            }
            Err(_) => {}
        }
        for table in sources.iter().flat_map(|source| &source.table) {
            warnings.say_if_cut(table, "the kernel");
        }
        Self { image: image.name().to_owned(), sources }
    }

    /// The functions at an address in an image of the kernel.
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

/// What people named: files, and files of folders by their names.
fn named(options: &Options, base: u64, image: &Image) -> Vec<Source> {
    let mut sources = Vec::new();
    for path in &options.paths {
        let files = if path.is_dir() { kernels_in(path) } else { vec![path.clone()] };
        sources.extend(files.iter().filter_map(|file| read(options, file, base, image.id.as_ref())));
    }
    sources
}

/// The kernels and lists of their symbols in a folder.
fn kernels_in(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().take(MAX_ENTRIES).flatten();
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinux") || name.starts_with("System.map")
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).collect();
    files.sort();
    // Nothing in a list says which kernel it is of: of several, none is taken.
    let is_list = |path: &&PathBuf| path.file_name().is_some_and(|it| it.to_string_lossy().starts_with('S'));
    if files.iter().filter(is_list).count() > 1 {
        files.retain(|path| !is_list(&path));
    }
    files
}

/// A vmlinux of the traced build, or a System.map.
fn read(options: &Options, path: &Path, base: u64, id: Option<&DebugId>) -> Option<Source> {
    let parts = Parts { symbols: true, dwarf: !options.without_lines };
    let is_it = |build_id: &[u8]| id.is_none_or(|id| is_build(build_id, id));
    let (table, dwarf) = match Elf::read(search::open(path)?, parts, |identity| is_it(&identity.build_id)) {
        Ok(elf) => elf.map(|elf| (elf.symbols, elf.dwarf))?,
        Err(_) => (listing::of_kernel(search::open(path)?).ok()?, None),
    };
    let moved = base.wrapping_sub(table.kernel_start().next()?);
    Some(Source { table: vec![table], dwarf, moved, has_modules: false })
}

/// A vmlinux in the folders of debug files.
fn by_build(options: &Options, base: u64, image: &Image) -> Option<Source> {
    let builds = image.id.as_ref().map(possible_builds).unwrap_or_default();
    let files = builds.iter().flat_map(|build| search::debug_files(options, "", build, None));
    files.into_iter().find_map(|file| read(options, &file.path, base, image.id.as_ref()))
}

/// The running kernel, if it is the one of the trace; else why not.
fn of_this_boot(options: &Options, base: u64, id: Option<&DebugId>) -> Result<Source, &'static str> {
    let list = File::open(options.here("/proc/kallsyms")).and_then(listing::of_kernel);
    let table =
        list.map_err(|_| "its symbols cannot be read here; give a System.map or vmlinux with --symbol-path")?;
    if table.kernel_start().next().is_none_or(|first| first == 0) {
        return Err(
            "its symbols are hidden (/proc/kallsyms shows zeros): run as root, or allow them with 'sysctl kernel.kptr_restrict=0'",
        );
    }
    let own = notes(&options.here("/sys/kernel/notes"));
    let own = own.as_deref().and_then(build_id_of_notes);
    let is_same_build = id.zip(own).is_none_or(|(id, own)| is_build(own, id));
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
