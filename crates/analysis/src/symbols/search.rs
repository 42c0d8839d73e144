//! Lists the files that may contain symbols.
//!
//! ```text
//!   program      its path in the trace (open_program) · PATH/its/path · PATH/name
//!                by build id   in debuginfod's cache and in PATH: ID/executable
//!   debug file   by build id   /usr/lib/debug/.build-id/ab/cdef.debug
//!                              in debuginfod's cache and in PATH: .build-id/ab/cdef.debug ·
//!                              ab/cdef.debug · ID/debuginfo
//!                by link       next to the program · in .debug/ there
//!                              in /usr/lib/debug and in PATH: its/folder/name · name
//!   PDB          PATH/name.pdb/SIGNATUREAGE/name.pdb · PATH/name.pdb
//! ```
//!
//! PATH is a chosen folder, ID a build id in hexadecimal (here abcdef). Names come from
//! traces and from files that traces name, so only plain names and paths without `..` are appended
//! to a folder.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use traceweir::consumer::open_program;
use traceweir_decode::plain;
use traceweir_format::Guid;

use super::SymbolOptions;
use crate::user_folders::user_folder;

/// The debug folder of distributions.
const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// Maximum size of a file with symbols.
const MAX_FILE_BYTES: u64 = 4 << 30;

/// Opens a file whose path does not come from a trace; `None` if it is empty or too large.
pub(super) fn open(path: &Path) -> Option<File> {
    let file = plain::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    (length > 0 && length <= MAX_FILE_BYTES).then_some(file)
}

/// Returns a path without its root, to append to a folder; `None` if it is empty or contains `..`.
fn relative_path(path: &str) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    (!clean.as_os_str().is_empty()).then_some(clean)
}

/// Returns a name if it is a plain file name, without a folder.
fn check_plain_name(name: &str) -> Option<&str> {
    let is_plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    is_plain.then_some(name)
}

/// Returns the paths where the program at `path` in the trace may be found.
pub(super) fn list_programs(options: &SymbolOptions, path: &str) -> Vec<SymbolFile> {
    let mut candidates = Vec::new();
    if path.starts_with('/') {
        candidates.push(SymbolFile { path: options.local_path(path), is_named_by_trace: true });
    }
    let mut add = |path| candidates.push(SymbolFile { path, is_named_by_trace: false });
    for folder in &options.paths {
        if let Some(clean) = relative_path(path) {
            add(folder.join(&clean));
        }
        if let Some(name) = path.rsplit('/').next().and_then(check_plain_name) {
            add(folder.join(name));
        }
    }
    candidates
}

/// Returns the paths in caches and chosen folders where a program with this build id may
/// be found.
pub(super) fn list_executables(options: &SymbolOptions, build_id: &[u8]) -> Vec<SymbolFile> {
    let id = format_hex(build_id);
    let folders = list_caches(options).into_iter().chain(options.paths.iter().cloned());
    let executable = |folder: PathBuf| folder.join(&id).join("executable");
    folders.map(|folder| SymbolFile { path: executable(folder), is_named_by_trace: false }).collect()
}

/// Returns the files that may be the debug file of a program.
pub(super) fn list_debug_files(
    options: &SymbolOptions,
    path: &str,
    build_id: &[u8],
    link: Option<&str>,
) -> Vec<SymbolFile> {
    let mut candidates = Vec::new();
    let mut near_program = Vec::new();
    let system = options.local_path(DEBUG_FOLDER);
    if let Some((first, tail)) = build_id.split_first().filter(|(_, tail)| !tail.is_empty()) {
        let by_id = Path::new(&format_hex(&[*first])).join(format!("{}.debug", format_hex(tail)));
        candidates.push(system.join(".build-id").join(&by_id));
        for folder in list_caches(options).iter().chain(&options.paths) {
            candidates.push(folder.join(".build-id").join(&by_id));
            candidates.push(folder.join(&by_id));
            candidates.push(folder.join(format_hex(build_id)).join("debuginfo"));
        }
    }
    if let Some(link) = link.and_then(check_plain_name) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        if path.starts_with('/') {
            let folder = options.local_path(&format!("{folder}/"));
            near_program.extend([folder.join(link), folder.join(".debug").join(link)]);
        }
        for base in std::iter::once(&system).chain(&options.paths) {
            if let Some(folder) = relative_path(folder) {
                candidates.push(base.join(folder).join(link));
            }
            candidates.push(base.join(link));
        }
    }
    let to_file = |is_named_by_trace| move |path| SymbolFile { path, is_named_by_trace };
    near_program.into_iter().map(to_file(true)).chain(candidates.into_iter().map(to_file(false))).collect()
}

/// Returns the files that may be a PDB.
pub(super) fn list_pdbs(options: &SymbolOptions, path: &str, signature: Guid, age: u32) -> Vec<PathBuf> {
    let Some(name) = path.rsplit(['\\', '/']).next().and_then(check_plain_name) else { return Vec::new() };
    let signature = signature.to_string().replace(['-', '{', '}'], "").to_uppercase();
    let store_folder = format!("{signature}{age:X}");
    let mut candidates = Vec::new();
    for folder in &options.paths {
        for name in [name, &name.to_lowercase()] {
            candidates.push(folder.join(name).join(&store_folder).join(name));
            candidates.push(folder.join(name));
        }
    }
    candidates.dedup();
    candidates
}

/// A file that may contain the symbols.
pub(super) struct SymbolFile {
    pub(super) path: PathBuf,
    /// Whether the path comes from the trace, and not from the user or the system.
    pub(super) is_named_by_trace: bool,
}

impl SymbolFile {
    pub(super) fn open(&self) -> Option<File> {
        if self.is_named_by_trace { open_program(&self.path) } else { open(&self.path) }
    }
}

/// Returns the caches of the debuginfod client.
fn list_caches(options: &SymbolOptions) -> Vec<PathBuf> {
    if let Some(root) = &options.root {
        return vec![root.join("cache/debuginfod_client")];
    }
    let read_variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = read_variable("HOME");
    let configured = read_variable("DEBUGINFOD_CACHE_PATH");
    let default = user_folder("XDG_CACHE_HOME", ".cache").map(|cache| cache.join("debuginfod_client"));
    let older = home.map(|home| home.join(".debuginfod_client_cache"));
    [configured, default, older].into_iter().flatten().collect()
}

fn format_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_names_do_not_leave_a_folder() {
        let options = SymbolOptions { paths: vec!["/sym".into()], ..SymbolOptions::default() };
        let to_paths = |candidates: Vec<SymbolFile>| {
            candidates.into_iter().map(|candidate| candidate.path).collect::<Vec<_>>()
        };
        for path in ["/../etc/passwd", "../../x", "..", "/", "a/../../b", ".", ""] {
            let candidates = to_paths(list_programs(&options, path));
            let in_folder = candidates.iter().skip(usize::from(path.starts_with('/')));
            assert!(
                in_folder.clone().all(|path| !path.to_string_lossy().contains("..")),
                "{path}: {candidates:?}"
            );
        }
        for link in ["../x", "a/b", "..", ".", "", "a\0b"] {
            assert!(to_paths(list_debug_files(&options, "/bin/x", &[], Some(link))).is_empty(), "{link:?}");
        }
        for name in ["c:\\a\\..", "..", "c:/x/"] {
            assert!(list_pdbs(&options, name, Guid::NULL, 1).is_empty(), "{name}");
        }
    }

    #[test]
    fn debug_files_are_listed_by_build_id_and_by_link() {
        let options =
            SymbolOptions { paths: vec!["/sym".into()], root: Some("/r".into()), ..SymbolOptions::default() };
        let candidates = list_debug_files(&options, "/usr/bin/x", &[0xAB, 0xCD, 0xEF], Some("x.debug"));
        let candidates: Vec<_> =
            candidates.iter().map(|candidate| candidate.path.to_str().unwrap()).collect();
        for path in [
            "/r/usr/lib/debug/.build-id/ab/cdef.debug",
            "/r/cache/debuginfod_client/abcdef/debuginfo",
            "/sym/.build-id/ab/cdef.debug",
            "/sym/ab/cdef.debug",
            "/r/usr/bin/x.debug",
            "/r/usr/bin/.debug/x.debug",
            "/r/usr/lib/debug/usr/bin/x.debug",
            "/sym/x.debug",
        ] {
            assert!(candidates.contains(&path), "{path}: {candidates:?}");
        }
    }

    #[test]
    fn pdbs_are_listed_in_symbol_store_layout() {
        let options = SymbolOptions { paths: vec!["/sym".into()], ..SymbolOptions::default() };
        let guid = Guid::from_u128(0x3844DBB9_2017_4967_BE7A_A4A2C20430FA);
        let candidates = list_pdbs(&options, "C:\\build\\Shop.pdb", guid, 0x1F);
        let first = Path::new("/sym/Shop.pdb/3844DBB920174967BE7AA4A2C20430FA1F/Shop.pdb");
        assert_eq!((candidates[0].as_path(), candidates[1].as_path()), (first, Path::new("/sym/Shop.pdb")));
    }
}
