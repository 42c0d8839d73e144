//! `weir shims`: creates links with the names of Windows libraries, for programs that load those at
//! run time.
//!
//! ```text
//!   DIR/libadvapi32.so       ─▶ …/libtraceweir.so.0   dlopen("libadvapi32.so"),
//!                                                     [DllImport("advapi32")]
//!   DIR/advapi32.dll         ─▶ …                     [DllImport("advapi32.dll")], ctypes
//!   DIR/libadvapi32.dll.so   ─▶ …                     the name that .NET derives from it
//!   DIR/tdh.dll …            sechost and tdh likewise
//! ```
//!
//! 1. A link is ours if its target is called `libtraceweir…`, whether it exists or not: only such
//!    links are replaced and removed without `--force`.
//! 2. All names are checked before the first is changed: if one is taken, nothing is changed.
//! 3. The folder is opened once and names are resolved in it, whatever its path leads to later.
//! 4. A link appears under its name atomically (created aside, then renamed), so that a program
//!    that starts at the same time finds the old link or the new one.

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
use crate::exit::Outcome;

/// Windows libraries with tracing functions.
const LIBRARIES: [&str; 3] = ["advapi32", "sechost", "tdh"];
/// The library, by its soname and by the name for linking.
const NAMES: [&str; 2] = ["libtraceweir.so.0", "libtraceweir.so"];
/// Prefix of the file names that our links lead to.
const STEM: &str = "libtraceweir";

/// Prefixes and suffixes of library names in file names.
const SPELLINGS: [(&str, &str); 6] =
    [("lib", ".so"), ("", ".so"), ("", ".dll"), ("lib", ".dll"), ("", ".dll.so"), ("lib", ".dll.so")];

/// Returns every file name under which a program may search a library.
fn spellings() -> impl Iterator<Item = String> {
    LIBRARIES
        .into_iter()
        .flat_map(|library| SPELLINGS.map(|(before, after)| format!("{before}{library}{after}")))
}

/// Runs `weir shims`.
pub(super) fn run(options: &ShimsArgs) -> Result<Outcome> {
    if options.remove { remove(&options.folder) } else { create_links(options) }
}

/// The entry of a name in the folder.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Nothing,
    /// A link to the library, with its target.
    Ours(PathBuf),
    /// Any other file or link.
    Foreign,
    /// A folder, which is never replaced.
    Folder,
}

/// The opened folder of the links.
struct Folder<'a> {
    path: &'a Path,
    open: OwnedFd,
}

impl<'a> Folder<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(open) => Ok(Self { path, open }),
            Err(Errno::NOTDIR | Errno::NOENT) => bail!("{} is not a folder", path.display()),
            Err(error) => Err(error).with_context(|| format!("cannot open the folder {}", path.display())),
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn inspect(&self, name: &str) -> Result<Entry> {
        let kind = match statat(&self.open, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => FileType::from_raw_mode(there.st_mode),
            Err(Errno::NOENT) => return Ok(Entry::Nothing),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot inspect {}", self.path_of(name).display()));
            }
        };
        if kind == FileType::Directory {
            return Ok(Entry::Folder);
        }
        let target =
            if kind == FileType::Symlink { readlinkat(&self.open, name, Vec::new()).ok() } else { None };
        let target = target.map(|target| PathBuf::from(OsString::from_vec(target.into_bytes())));
        let is_ours = |target: &PathBuf| {
            target.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(STEM.as_bytes()))
        };
        Ok(target.filter(is_ours).map_or(Entry::Foreign, Entry::Ours))
    }

    /// Creates a link, or replaces the entry of that name.
    fn put_link(&self, library: &Path, name: &str) -> rustix::io::Result<()> {
        let aside = format!("{name}.{}.new", std::process::id());
        symlinkat(library, &self.open, &aside)?;
        renameat(&self.open, &aside, &self.open, name).inspect_err(|_| {
            let _ = unlinkat(&self.open, &aside, AtFlags::empty());
        })
    }
}

fn create_links(options: &ShimsArgs) -> Result<Outcome> {
    let library = find_library(options.lib.as_deref())?;
    let folder = &options.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let open = Folder::open(folder)?;
    let mut wanted = Vec::new();
    for name in spellings() {
        let (path, found) = (open.path_of(&name), open.inspect(&name)?);
        match found {
            Entry::Folder => bail!("{} is a folder; nothing was changed", path.display()),
            Entry::Foreign if !options.force => {
                bail!(
                    "{} exists and is not a link to the library; nothing was changed (--force replaces it)",
                    path.display()
                )
            }
            _ => wanted.push((name, path, found)),
        }
    }
    for (name, path, found) in wanted {
        let done = match found {
            Entry::Ours(target) if target == library => "kept",
            Entry::Nothing => "made",
            _ => "replaced",
        };
        if done != "kept" {
            open.put_link(&library, &name)
                .with_context(|| format!("cannot create the link {}", path.display()))?;
        }
        println!("{done} {} -> {}", path.display(), library.display());
    }
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
    eprintln!("programs find them with LD_LIBRARY_PATH={}", absolute.display());
    Ok(Outcome::Fine)
}

fn remove(folder: &Path) -> Result<Outcome> {
    let folder = Folder::open(folder)?;
    for name in spellings() {
        let path = folder.path_of(&name);
        match folder.inspect(&name)? {
            Entry::Nothing => {}
            Entry::Ours(_) => {
                unlinkat(&folder.open, &name, AtFlags::empty())
                    .with_context(|| format!("cannot remove {}", path.display()))?;
                println!("removed {}", path.display());
            }
            Entry::Foreign | Entry::Folder => {
                eprintln!("{} stays: it is not a link to the library", path.display())
            }
        }
    }
    Ok(Outcome::Fine)
}

/// Finds the library. Returns an absolute path whose last component stays a link if it is one, so
/// that links follow updates of the library.
fn find_library(given: Option<&Path>) -> Result<PathBuf> {
    let found = match given {
        Some(path) if path.is_dir() => in_folder(path)
            .with_context(|| format!("no {} in {}", NAMES.join(" or "), path.display()))?,
        Some(path) => path.to_owned(),
        None => library_folders().iter().find_map(|folder| in_folder(folder)).context(
            "libtraceweir.so is neither beside weir nor in the system's library folders; name it with --lib, or install it \
             (crates/ffi/install.sh)",
        )?,
    };
    let library = resolve_folder(&found).with_context(|| format!("cannot find {}", found.display()))?;
    let is_ours =
        library.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(STEM.as_bytes()));
    if !is_ours {
        bail!(
            "the name of {} does not begin with {STEM}: links to it could not be recognised later",
            found.display()
        );
    }
    let mut magic = [0; 4];
    let read = fs::File::open(&library).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    match read {
        Ok(()) if magic == *b"\x7FELF" => Ok(library),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
            Err(error).with_context(|| format!("cannot read {}", found.display()))
        }
        _ => bail!("{} is not a shared library", found.display()),
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

fn in_folder(folder: &Path) -> Option<PathBuf> {
    NAMES.map(|name| folder.join(name)).into_iter().find(|path| path.is_file())
}

/// Returns the folders in which the library is searched: beside this program, as in a build and in
/// an installation, then the system's library folders.
fn library_folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    let own = beside.into_iter().flat_map(|folder| ["", "../lib", "../lib64"].map(|way| folder.join(way)));
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let system =
        ["/usr/local/lib", "/usr/local/lib64", &multiarch, "/usr/lib64", "/usr/lib"].map(PathBuf::from);
    own.chain(system).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_library_has_the_file_names_that_loaders_try() {
        let all: Vec<String> = spellings().collect();
        for name in [
            "libadvapi32.so",
            "advapi32.dll",
            "libadvapi32.dll.so",
            "sechost.dll",
            "libsechost.so",
            "libtdh.so",
            "tdh.dll.so",
        ] {
            assert!(all.iter().any(|known| known == name), "{name} in {all:?}");
        }
        assert_eq!(all.len(), 18);
    }

    #[test]
    fn only_links_to_the_library_are_ours_in_the_opened_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shims");
        fs::create_dir(&path).unwrap();
        let open = Folder::open(&path).unwrap();
        let at = |name: &str| path.join(name);
        fs::write(at("file"), "x").unwrap();
        fs::create_dir(at("folder")).unwrap();
        symlink("/lib/libc.so.6", at("foreign")).unwrap();
        symlink("/nowhere/libtraceweir.so.0", at("ours")).unwrap();
        // Another folder takes its path.
        fs::rename(&path, folder.path().join("before")).unwrap();
        fs::create_dir(&path).unwrap();
        symlink("/nowhere/libtraceweir.so.0", at("none")).unwrap();
        let inspect = |name: &str| open.inspect(name).unwrap();
        assert_eq!(inspect("none"), Entry::Nothing);
        assert_eq!(inspect("file"), Entry::Foreign);
        assert_eq!(inspect("folder"), Entry::Folder);
        assert_eq!(inspect("foreign"), Entry::Foreign);
        assert_eq!(inspect("ours"), Entry::Ours("/nowhere/libtraceweir.so.0".into()));
        open.put_link(Path::new("/nowhere/libtraceweir.so.1"), "none").unwrap();
        assert_eq!(inspect("none"), Entry::Ours("/nowhere/libtraceweir.so.1".into()));
        assert_eq!(fs::read_link(at("none")).unwrap(), Path::new("/nowhere/libtraceweir.so.0"));
    }
}
