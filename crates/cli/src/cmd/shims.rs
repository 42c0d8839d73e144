//! `weir shims`: creates links with the names of Windows libraries, for programs that load these
//! libraries at run time.
//!
//! ```text
//!   DIR/libadvapi32.so       ─▶ …/libtraceweir.so.0   dlopen("libadvapi32.so"),
//!                                                     [DllImport("advapi32")]
//!   DIR/advapi32.dll         ─▶ …                     [DllImport("advapi32.dll")], ctypes
//!   DIR/libadvapi32.dll.so   ─▶ …                     the name that .NET derives
//!   DIR/tdh.dll …            the other libraries likewise
//! ```
//!
//! 1. A link is ours if the file name of its target begins with `libtraceweir`, even if the target
//!    does not exist. Only such links are removed, or replaced without `--force`.
//! 2. All names are checked before the first is changed: if one is taken, nothing is changed.
//! 3. The folder is opened once, and all names are resolved in the opened folder.
//! 4. A link appears under its name atomically (created under a temporary name, then renamed). A
//!    program that starts at the same time finds the old link or the new link.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anstream::{eprintln, println};
use anyhow::{Context, Result, bail};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, openat, readlinkat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::cli::ShimsArgs;
use crate::exit::CommandOutcome;

/// Windows libraries of which libtraceweir has functions, in the spelling that programs use.
const WINDOWS_LIBRARIES: [&str; 6] =
    ["advapi32", "sechost", "tdh", "ntdll", "kernel32", "KernelTraceControl"];
/// File names of the library: soname, and name for linking.
const LIBRARY_FILE_NAMES: [&str; 2] = ["libtraceweir.so.0", "libtraceweir.so"];
/// Prefix of the file names that our links lead to.
const LIBRARY_FILE_PREFIX: &str = "libtraceweir";

/// Prefixes and suffixes of library names in file names.
const NAME_PATTERNS: [(&str, &str); 6] =
    [("lib", ".so"), ("", ".so"), ("", ".dll"), ("lib", ".dll"), ("", ".dll.so"), ("lib", ".dll.so")];

/// Returns every file name under which a program may search for a library.
fn link_names() -> impl Iterator<Item = String> {
    WINDOWS_LIBRARIES
        .into_iter()
        .flat_map(|library| NAME_PATTERNS.map(|(before, after)| format!("{before}{library}{after}")))
}

pub(super) fn run(options: &ShimsArgs) -> Result<CommandOutcome> {
    if options.remove { remove_links(&options.folder) } else { create_links(options) }
}

/// The entry that a name has in the folder.
#[derive(Debug, PartialEq, Eq)]
enum ShimEntry {
    Nothing,
    /// A link to the library, with its target.
    Ours(PathBuf),
    /// Any other file or link.
    Foreign,
    /// A folder, which is never replaced.
    Folder,
}

/// The opened folder of the links.
struct ShimFolder<'a> {
    path: &'a Path,
    fd: OwnedFd,
}

impl<'a> ShimFolder<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { path, fd }),
            Err(Errno::NOTDIR | Errno::NOENT) => bail!("{} is not a folder", path.display()),
            Err(error) => Err(error).with_context(|| format!("cannot open the folder {}", path.display())),
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn inspect_entry(&self, name: &str) -> Result<ShimEntry> {
        let kind = match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(ShimEntry::Nothing),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot inspect {}", self.path_of(name).display()));
            }
        };
        if kind == FileType::Directory {
            return Ok(ShimEntry::Folder);
        }
        let target =
            if kind == FileType::Symlink { readlinkat(&self.fd, name, Vec::new()).ok() } else { None };
        let target = target.map(|target| PathBuf::from(OsString::from_vec(target.into_bytes())));
        let is_ours = |target: &PathBuf| {
            target
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(LIBRARY_FILE_PREFIX.as_bytes()))
        };
        Ok(target.filter(is_ours).map_or(ShimEntry::Foreign, ShimEntry::Ours))
    }

    /// Creates a link, or replaces the entry of that name.
    fn put_link(&self, library: &Path, name: &str) -> rustix::io::Result<()> {
        let temporary_name = format!("{name}.{}.new", std::process::id());
        symlinkat(library, &self.fd, &temporary_name)?;
        renameat(&self.fd, &temporary_name, &self.fd, name).inspect_err(|_| {
            let _ = unlinkat(&self.fd, &temporary_name, AtFlags::empty());
        })
    }
}

fn create_links(options: &ShimsArgs) -> Result<CommandOutcome> {
    let library = find_library(options.lib.as_deref())?;
    let folder = &options.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let open_folder = ShimFolder::open(folder)?;
    let mut links = Vec::new();
    for name in link_names() {
        let (path, entry) = (open_folder.path_of(&name), open_folder.inspect_entry(&name)?);
        match entry {
            ShimEntry::Folder => bail!("{} is a folder; nothing was changed", path.display()),
            ShimEntry::Foreign if !options.force => {
                bail!(
                    "{} exists and is not a link to the library; nothing was changed (--force replaces it)",
                    path.display()
                )
            }
            _ => links.push((name, path, entry)),
        }
    }
    for (name, path, entry) in links {
        let action = match entry {
            ShimEntry::Ours(target) if target == library => "kept",
            ShimEntry::Nothing => "made",
            _ => "replaced",
        };
        if action != "kept" {
            open_folder
                .put_link(&library, &name)
                .with_context(|| format!("cannot create the link {}", path.display()))?;
        }
        println!("{action} {} -> {}", path.display(), library.display());
    }
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
    eprintln!("programs find the links with LD_LIBRARY_PATH={}", absolute.display());
    Ok(CommandOutcome::Fine)
}

fn remove_links(folder: &Path) -> Result<CommandOutcome> {
    let folder = ShimFolder::open(folder)?;
    for name in link_names() {
        let path = folder.path_of(&name);
        match folder.inspect_entry(&name)? {
            ShimEntry::Nothing => {}
            ShimEntry::Ours(_) => {
                unlinkat(&folder.fd, &name, AtFlags::empty())
                    .with_context(|| format!("cannot remove {}", path.display()))?;
                println!("removed {}", path.display());
            }
            ShimEntry::Foreign | ShimEntry::Folder => {
                eprintln!("{} stays: it is not a link to the library", path.display())
            }
        }
    }
    Ok(CommandOutcome::Fine)
}

/// Finds the library. Returns an absolute path whose last component stays a link if it is one, so
/// that links follow updates of the library.
fn find_library(requested: Option<&Path>) -> Result<PathBuf> {
    let candidate = match requested {
        Some(path) if path.is_dir() => find_library_in(path)
            .with_context(|| format!("no {} in {}", LIBRARY_FILE_NAMES.join(" or "), path.display()))?,
        Some(path) => path.to_owned(),
        None => library_folders().iter().find_map(|folder| find_library_in(folder)).context(
            "libtraceweir.so is neither beside weir nor in the system's library folders; name it with --lib, or install it \
             (crates/ffi/install.sh)",
        )?,
    };
    let library =
        resolve_folder(&candidate).with_context(|| format!("cannot find {}", candidate.display()))?;
    let is_ours = library
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(LIBRARY_FILE_PREFIX.as_bytes()));
    if !is_ours {
        bail!(
            "the name of {} does not begin with {LIBRARY_FILE_PREFIX}: links to it could not be recognised later",
            candidate.display()
        );
    }
    let mut magic = [0; 4];
    let read = fs::File::open(&library).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    match read {
        Ok(()) if magic == *b"\x7FELF" => Ok(library),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
            Err(error).with_context(|| format!("cannot read {}", candidate.display()))
        }
        _ => bail!("{} is not a shared library", candidate.display()),
    }
}

/// Returns the path of a file in its canonical folder.
fn resolve_folder(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.canonicalize()?.join(name)),
        _ => Ok(path),
    }
}

fn find_library_in(folder: &Path) -> Option<PathBuf> {
    LIBRARY_FILE_NAMES.map(|name| folder.join(name)).into_iter().find(|path| path.is_file())
}

/// Returns the folders that are searched for the library, in this order: the folder of this program
/// (a build), the library folders beside it (an installation), the system's library folders.
pub(super) fn library_folders() -> Vec<PathBuf> {
    let near_program = program_folder()
        .into_iter()
        .flat_map(|folder| ["", "../lib", "../lib64"].map(|path| folder.join(path)));
    near_program.chain(system_library_folders()).collect()
}

/// Returns the folders that the dynamic loader searches.
pub(super) fn system_library_folders() -> [PathBuf; 5] {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    ["/usr/local/lib", "/usr/local/lib64", &multiarch, "/usr/lib64", "/usr/lib"].map(PathBuf::from)
}

/// Returns the folder of this program.
pub(super) fn program_folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_library_has_the_file_names_that_loaders_try() {
        let names: Vec<String> = link_names().collect();
        for name in [
            "libadvapi32.so",
            "advapi32.dll",
            "libadvapi32.dll.so",
            "sechost.dll",
            "libsechost.so",
            "libtdh.so",
            "tdh.dll.so",
            "ntdll.dll",
            "libkernel32.so",
            "KernelTraceControl.dll",
        ] {
            assert!(names.iter().any(|link| link == name), "there is no {name} in {names:?}");
        }
        assert_eq!(names.len(), 36);
    }

    #[test]
    fn entries_are_inspected_in_the_opened_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shims");
        fs::create_dir(&path).unwrap();
        let open_folder = ShimFolder::open(&path).unwrap();
        let path_of = |name: &str| path.join(name);
        fs::write(path_of("file"), "x").unwrap();
        fs::create_dir(path_of("folder")).unwrap();
        symlink("/lib/libc.so.6", path_of("foreign")).unwrap();
        symlink("/nowhere/libtraceweir.so.0", path_of("ours")).unwrap();
        // Another folder replaces the opened folder under the same path.
        fs::rename(&path, folder.path().join("before")).unwrap();
        fs::create_dir(&path).unwrap();
        symlink("/nowhere/libtraceweir.so.0", path_of("none")).unwrap();
        let inspect = |name: &str| open_folder.inspect_entry(name).unwrap();
        assert_eq!(inspect("none"), ShimEntry::Nothing);
        assert_eq!(inspect("file"), ShimEntry::Foreign);
        assert_eq!(inspect("folder"), ShimEntry::Folder);
        assert_eq!(inspect("foreign"), ShimEntry::Foreign);
        assert_eq!(inspect("ours"), ShimEntry::Ours("/nowhere/libtraceweir.so.0".into()));
        open_folder.put_link(Path::new("/nowhere/libtraceweir.so.1"), "none").unwrap();
        assert_eq!(inspect("none"), ShimEntry::Ours("/nowhere/libtraceweir.so.1".into()));
        assert_eq!(fs::read_link(path_of("none")).unwrap(), Path::new("/nowhere/libtraceweir.so.0"));
    }
}
