//! `weir shims`: links under the names of Windows' libraries, for programs that load those at run time.
//!
//! ```text
//!   DIR/libadvapi32.so       ─▶ /usr/local/lib/libtraceweir.so.0      dlopen("libadvapi32.so"), [DllImport("advapi32")]
//!   DIR/advapi32.dll         ─▶ …                                     [DllImport("advapi32.dll")], ctypes
//!   DIR/libadvapi32.dll.so   ─▶ …                                     what .NET makes of that name
//!   DIR/tdh.dll …            sechost and tdh likewise
//! ```
//!
//! 1. A link is ours if it leads to a file called `libtraceweir…`, there or not: only such are replaced and removed unasked.
//! 2. All names are looked at before the first one is touched: where one is taken, nothing is done.
//! 3. The folder is opened once and names are those in it, whatever its path leads to meanwhile.
//! 4. A link appears under its name whole (made aside, then renamed), so that a program that starts meanwhile finds the old one or the new one.

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

use crate::cli::Shims;
use crate::exit::Outcome;

/// The libraries of Windows that have functions of tracing.
const LIBRARIES: [&str; 3] = ["advapi32", "sechost", "tdh"];
/// The library, by the name that the loader knows and by the one that compilers look for.
const NAMES: [&str; 2] = ["libtraceweir.so.0", "libtraceweir.so"];
/// What the names of files begin with that links of ours lead to.
const STEM: &str = "libtraceweir";

/// What stands around the name of a library in names of files.
const SPELLINGS: [(&str, &str); 6] =
    [("lib", ".so"), ("", ".so"), ("", ".dll"), ("lib", ".dll"), ("", ".dll.so"), ("lib", ".dll.so")];

/// Every name under which a program may look for a library.
fn spellings() -> impl Iterator<Item = String> {
    LIBRARIES
        .into_iter()
        .flat_map(|library| SPELLINGS.map(|(before, after)| format!("{before}{library}{after}")))
}

/// Runs the command.
pub(super) fn run(options: &Shims) -> Result<Outcome> {
    if options.remove { remove(&options.folder) } else { lay(options) }
}

/// What has a name in the folder.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A link to the library, and where it leads.
    Ours(PathBuf),
    /// Something of somebody else's.
    Foreign,
    /// A folder, which is never replaced.
    Folder,
}

/// The folder of the links, opened.
struct Folder<'a> {
    path: &'a Path,
    open: OwnedFd,
}

impl<'a> Folder<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(open) => Ok(Self { path, open }),
            Err(Errno::NOTDIR | Errno::NOENT) => bail!("{} is no folder", path.display()),
            Err(why) => Err(why).with_context(|| format!("cannot open the folder {}", path.display())),
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn look(&self, name: &str) -> Result<Found> {
        let kind = match statat(&self.open, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => FileType::from_raw_mode(there.st_mode),
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            Err(why) => {
                return Err(why).with_context(|| format!("cannot look at {}", self.path_of(name).display()));
            }
        };
        if kind == FileType::Directory {
            return Ok(Found::Folder);
        }
        let target =
            if kind == FileType::Symlink { readlinkat(&self.open, name, Vec::new()).ok() } else { None };
        let target = target.map(|target| PathBuf::from(OsString::from_vec(target.into_bytes())));
        let is_ours = |target: &PathBuf| {
            target.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(STEM.as_bytes()))
        };
        Ok(target.filter(is_ours).map_or(Found::Foreign, Found::Ours))
    }

    /// Makes a link, or puts it in the place of what is there.
    fn place(&self, library: &Path, name: &str) -> rustix::io::Result<()> {
        let aside = format!("{name}.{}.new", std::process::id());
        symlinkat(library, &self.open, &aside)?;
        renameat(&self.open, &aside, &self.open, name).inspect_err(|_| {
            let _ = unlinkat(&self.open, &aside, AtFlags::empty());
        })
    }
}

fn lay(options: &Shims) -> Result<Outcome> {
    let library = find(options.lib.as_deref())?;
    let folder = &options.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let open = Folder::open(folder)?;
    let mut wanted = Vec::new();
    for name in spellings() {
        let (path, found) = (open.path_of(&name), open.look(&name)?);
        match found {
            Found::Folder => bail!("{} is a folder; nothing was changed", path.display()),
            Found::Foreign if !options.force => {
                bail!(
                    "{} is there and no link to the library; nothing was changed (--force replaces it)",
                    path.display()
                )
            }
            _ => wanted.push((name, path, found)),
        }
    }
    for (name, path, found) in wanted {
        let done = match found {
            Found::Ours(target) if target == library => "kept",
            Found::Nothing => "made",
            _ => "replaced",
        };
        if done != "kept" {
            open.place(&library, &name)
                .with_context(|| format!("cannot make the link {}", path.display()))?;
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
        match folder.look(&name)? {
            Found::Nothing => {}
            Found::Ours(_) => {
                unlinkat(&folder.open, &name, AtFlags::empty())
                    .with_context(|| format!("cannot remove {}", path.display()))?;
                println!("removed {}", path.display());
            }
            Found::Foreign | Found::Folder => {
                eprintln!("{} stays: it is no link to the library", path.display())
            }
        }
    }
    Ok(Outcome::Fine)
}

/// The library, as an absolute path whose last part stays a link where it is one, so that updates of the library are followed.
fn find(given: Option<&Path>) -> Result<PathBuf> {
    let found = match given {
        Some(path) if path.is_dir() => in_folder(path)
            .with_context(|| format!("there is no {} in {}", NAMES.join(" or "), path.display()))?,
        Some(path) => path.to_owned(),
        None => places().iter().find_map(|place| in_folder(place)).context(
            "libtraceweir.so is neither beside weir nor where the system keeps libraries; name it with --lib, or install it \
             (crates/ffi/install.sh)",
        )?,
    };
    let library = in_place(&found).with_context(|| format!("cannot find {}", found.display()))?;
    let is_ours =
        library.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(STEM.as_bytes()));
    if !is_ours {
        bail!(
            "{} is not called {STEM}…: links to it could not be told from those of others",
            found.display()
        );
    }
    let mut magic = [0; 4];
    let read = fs::File::open(&library).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    match read {
        Ok(()) if magic == *b"\x7FELF" => Ok(library),
        Err(why) if why.kind() != ErrorKind::UnexpectedEof => {
            Err(why).with_context(|| format!("cannot read {}", found.display()))
        }
        _ => bail!("{} is no shared library", found.display()),
    }
}

/// The path of a file by way of its real folder, without dots and detours.
fn in_place(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.canonicalize()?.join(name)),
        _ => Ok(path),
    }
}

fn in_folder(folder: &Path) -> Option<PathBuf> {
    NAMES.map(|name| folder.join(name)).into_iter().find(|path| path.is_file())
}

/// Where the library is looked for: beside this program, as a build and as an installation have it, then where systems keep libraries.
fn places() -> Vec<PathBuf> {
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
    fn every_library_has_the_spellings_that_loaders_try() {
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
    fn only_links_to_the_library_are_ours_in_the_folder_that_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shims");
        fs::create_dir(&path).unwrap();
        let open = Folder::open(&path).unwrap();
        let at = |name: &str| path.join(name);
        fs::write(at("file"), "x").unwrap();
        fs::create_dir(at("folder")).unwrap();
        symlink("/lib/libc.so.6", at("foreign")).unwrap();
        symlink("/nowhere/libtraceweir.so.0", at("ours")).unwrap();
        // Another folder takes its place.
        fs::rename(&path, folder.path().join("before")).unwrap();
        fs::create_dir(&path).unwrap();
        symlink("/nowhere/libtraceweir.so.0", at("none")).unwrap();
        let look = |name: &str| open.look(name).unwrap();
        assert_eq!(look("none"), Found::Nothing);
        assert_eq!(look("file"), Found::Foreign);
        assert_eq!(look("folder"), Found::Folder);
        assert_eq!(look("foreign"), Found::Foreign);
        assert_eq!(look("ours"), Found::Ours("/nowhere/libtraceweir.so.0".into()));
        open.place(Path::new("/nowhere/libtraceweir.so.1"), "none").unwrap();
        assert_eq!(look("none"), Found::Ours("/nowhere/libtraceweir.so.1".into()));
        assert_eq!(fs::read_link(at("none")).unwrap(), Path::new("/nowhere/libtraceweir.so.0"));
    }
}
