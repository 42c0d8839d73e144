//! Finds provider sockets in the folders of all users, for a root daemon that serves all users.
//!
//! ```text
//!   /proc/net/unix            listening sockets: folders …/traceweir-UID/providers and
//!      │                      …/traceweir/providers
//!      ▼
//!   folders                   on a local file system, opened without following links
//!      ▼
//!   sockets in them           of the same user
//!      ▼
//!   connections               to processes of the same user
//! ```
//!
//! A process that registered before the system's folder existed listens only in its user's folder.
//! That user can change the folder while it is inspected, so:
//!
//! 1. Each folder on the way is opened below the previous one, without following a link. The
//!    folder, the folder of sockets, the socket and the process that listens must all belong to one
//!    user, and no other user may write to the folders.
//! 2. A socket is opened first and connected to by its descriptor, so the connection goes to the
//!    file that was checked.
//! 3. Nothing is created, changed or removed, not even a stale socket.
//! 4. Folders are opened on local file systems only: the owner of a remote or FUSE file system
//!    could make this process wait. The list of mounts may be out of date, so the last steps, from
//!    the folder above the user's to the socket, enter no mount (`RESOLVE_NO_XDEV`). Kernels before
//!    5.6 have no such flag; with them, only the list of mounts is checked.
//! 5. A folder that `TRACEWEIR_RUNTIME_DIR` names is not searched: processes with this variable
//!    must be found only through that folder. Folders are recognised by name only, so a named
//!    folder that has the name of a user's folder is searched nevertheless.
//! 6. If there are more folders than [`MAX_FOLDERS`], the user with the most folders loses one.
//!    Among users with equally many, a random user loses it, chosen again in each search. So a user
//!    with many folders does not hide the folders of others. A user with many user ids (of user
//!    namespaces) can hide folders of others, but not the same ones in each search.
//!
//! `/proc/net/unix` lists the names under which sockets were bound, before they were renamed within
//! their folder. So only the folders are taken from it. Any user can make it list any name, so each
//! folder is checked. A socket whose name is too long for a socket address is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use super::parse_socket_pid;
use crate::error::{Error, Result};
use crate::socket::Connection;

/// The kernel's list of sockets.
const SOCKET_LIST: &str = "/proc/net/unix";
/// The kernel's list of mounted file systems.
const MOUNT_LIST: &str = "/proc/self/mountinfo";
/// File systems that do not depend on another program or machine.
const LOCAL_FILE_SYSTEMS: [&[u8]; 15] = [
    b"tmpfs",
    b"ramfs",
    b"rootfs",
    b"ext2",
    b"ext3",
    b"ext4",
    b"xfs",
    b"btrfs",
    b"f2fs",
    b"zfs",
    b"bcachefs",
    b"jfs",
    b"overlay",
    b"squashfs",
    b"erofs",
];
/// Largest number of folders of one user that are searched; usually there is one.
const MAX_FOLDERS_OF_USER: usize = 16;
/// Largest number of folders of all users that are searched.
const MAX_FOLDERS: usize = 65_536;
/// Largest number of entries of one folder that are inspected.
const MAX_ENTRIES: usize = 16_384;

/// A socket in the folder of a user's provider sockets.
#[derive(Debug)]
pub struct UserSocket {
    /// The socket file, opened with O_PATH.
    file: OwnedFd,
    /// Device and inode of the file, which no other file has at the same time.
    pub file_id: (u64, u64),
    /// Process id in its name, in the process's own namespace.
    pub pid: u32,
    /// The owner of the file and of its folder.
    pub uid: u32,
}

impl UserSocket {
    /// Connects to the process that listens, which must belong to the owner, and accepts no
    /// descriptors from it. Does not remove a stale socket.
    pub fn connect(&self, timeout: Duration) -> Result<Connection> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let connection = Connection::connect_without_descriptors(Path::new(&path), timeout)?;
        if connection.peer().uid == self.uid {
            Ok(connection)
        } else {
            Err(Error::Invalid("the listener of a provider socket is not the socket's owner"))
        }
    }
}

/// Returns the folders of provider sockets in which processes of this network namespace listen, if
/// their names are those of user folders.
pub fn user_folders() -> Result<Vec<PathBuf>> {
    let to_error = |e| Error::system("reading the lists of sockets and mounts", e);
    let mounts = std::fs::read(MOUNT_LIST).map_err(to_error)?;
    let sockets = File::open(SOCKET_LIST).map_err(to_error)?;
    let find_owner = |folder: &Path| open_checked(folder).ok().map(|(_, uid)| uid);
    let random_rank = RandomState::new();
    Ok(find_folders(BufReader::new(sockets), &Mounts::parse(&mounts), find_owner, |uid| {
        random_rank.hash_one(uid)
    }))
}

/// Returns up to `max_sockets` sockets of a folder that [`user_folders`] returned.
pub fn user_sockets(folder: &Path, max_sockets: usize) -> Result<impl Iterator<Item = UserSocket>> {
    let to_error =
        |e: Errno| Error::system("opening the folder of a user's providers", std::io::Error::from(e));
    let (folder, uid) = open_checked(folder).map_err(to_error)?;
    let entries = Dir::read_from(&folder).map_err(to_error)?;
    let sockets = entries.take(MAX_ENTRIES).filter_map(move |entry| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let pid = parse_socket_pid(name.to_str().ok()?)?;
        let file = open_in_mount(&folder, OsStr::from_bytes(name.to_bytes()), OFlags::PATH).ok()?;
        let stat = fstat(&file).ok()?;
        let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        let file_id = (stat.st_dev, stat.st_ino);
        (is_socket && stat.st_uid == uid).then_some(UserSocket { file, file_id, pid, uid })
    });
    Ok(sockets.take(max_sockets))
}

/// Opens a folder of provider sockets that belongs to one user alone. Returns the folder and the
/// user.
fn open_checked(path: &Path) -> rustix::io::Result<(OwnedFd, u32)> {
    let (Some(runtime), Some(providers)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let (Some(parent), Some(name)) = (runtime.parent(), runtime.file_name()) else {
        return Err(Errno::INVAL);
    };
    let parent = open_without_links(parent)?;
    let runtime = open_in_mount(&parent, name, OFlags::PATH | OFlags::DIRECTORY)?;
    let (parent_stat, stat) = (fstat(&parent)?, fstat(&runtime)?);
    let uid = stat.st_uid;
    let is_private = |mode: rustix::fs::RawMode| mode & 0o077 == 0;
    let is_named = match parse_folder_uid(name) {
        Some(claimed) => claimed == uid,
        // A folder `traceweir` must be in $XDG_RUNTIME_DIR, which only its owner can use.
        None => parent_stat.st_uid == uid && is_private(parent_stat.st_mode),
    };
    // O_PATH opens the folder without involving its file system, and does not enter a mount on it.
    let before = fstat(open_in_mount(&runtime, providers, OFlags::PATH | OFlags::DIRECTORY)?)?;
    if !is_named || !is_private(stat.st_mode) || before.st_uid != uid || before.st_mode & 0o022 != 0 {
        return Err(Errno::ACCESS);
    }
    let folder = open_in_mount(&runtime, providers, OFlags::RDONLY | OFlags::DIRECTORY)?;
    // The folder may have been replaced after the check.
    let after = fstat(&folder)?;
    if (after.st_dev, after.st_ino) == (before.st_dev, before.st_ino) {
        Ok((folder, uid))
    } else {
        Err(Errno::ACCESS)
    }
}

fn open_without_links(path: &Path) -> rustix::io::Result<OwnedFd> {
    let mut folder = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => folder = open_subfolder(&folder, name, OFlags::PATH)?,
            _ => return Err(Errno::INVAL),
        }
    }
    Ok(folder)
}

/// Opens a folder in a folder, on any file system.
fn open_subfolder(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(folder, name, flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a file in a folder, on the folder's own mount. Fails with `XDEV` if a file system is
/// mounted on the file.
fn open_in_mount(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match openat2(folder, name, flags, Mode::empty(), resolve) {
        // An old kernel, or a filter of system calls that does not know openat2.
        Err(Errno::NOSYS | Errno::PERM) => openat(folder, name, flags, Mode::empty()),
        opened => opened,
    }
}

/// Returns the user id in a folder name of the form `traceweir-UID`.
fn parse_folder_uid(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix("traceweir-")?.parse().ok()
}

/// Returns the folders of users in a list of sockets, each once, in the order of the owners that
/// `find_owner` returns. Beyond [`MAX_FOLDERS`], folders of users with the most folders are left
/// out; among users with equally many, those with the highest `random_rank` lose folders first.
fn find_folders(
    mut sockets: impl BufRead,
    mounts: &Mounts,
    find_owner: impl Fn(&Path) -> Option<u32>,
    random_rank: impl Fn(u32) -> u64,
) -> Vec<PathBuf> {
    let mut folders = UserFolders::default();
    let (mut line, mut last) = (Vec::new(), PathBuf::new());
    while let Ok(1..) = sockets.read_until(b'\n', &mut line) {
        let folder = parse_provider_folder(line.trim_ascii_end())
            .filter(|folder| **folder != last && mounts.is_local(folder));
        if let Some((uid, folder)) = folder.and_then(|folder| Some((find_owner(folder)?, folder.to_owned())))
        {
            last.clone_from(&folder);
            folders.add(uid, random_rank(uid), folder);
        }
        line.clear();
    }
    folders.by_user.into_values().flatten().collect()
}

/// Folders by owner, at most [`MAX_FOLDERS`].
#[derive(Default)]
struct UserFolders {
    by_user: BTreeMap<u32, BTreeSet<PathBuf>>,
    /// Number of folders, random number and id of each user. The last user of this order loses a
    /// folder first.
    ranks: BTreeSet<(usize, u64, u32)>,
    count: usize,
}

impl UserFolders {
    fn add(&mut self, uid: u32, random_rank: u64, folder: PathBuf) {
        let folders_of_user = self.by_user.entry(uid).or_default();
        let before = folders_of_user.len();
        if before >= MAX_FOLDERS_OF_USER || !folders_of_user.insert(folder) {
            return;
        }
        self.ranks.remove(&(before, random_rank, uid));
        self.ranks.insert((folders_of_user.len(), random_rank, uid));
        self.count = self.count.saturating_add(1);
        if self.count > MAX_FOLDERS {
            self.drop_excess_folder();
        }
    }

    fn drop_excess_folder(&mut self) {
        let Some((folder_count, random_rank, uid)) = self.ranks.pop_last() else { return };
        self.count = self.count.saturating_sub(1);
        if let Some(remaining_count) = folder_count.checked_sub(1).filter(|count| *count > 0) {
            self.ranks.insert((remaining_count, random_rank, uid));
            self.by_user.entry(uid).or_default().pop_last();
        } else {
            self.by_user.remove(&uid);
        }
    }
}

/// Returns the folder of a user's provider socket in a line of the kernel's list.
fn parse_provider_folder(line: &[u8]) -> Option<&Path> {
    // Num: RefCount Protocol Flags Type St Inode Path
    let mut remaining = line;
    let mut words = [b"".as_slice(); 7];
    for word in &mut words {
        remaining = remaining.trim_ascii_start();
        let end = remaining.iter().position(u8::is_ascii_whitespace)?;
        (*word, remaining) = remaining.split_at(end);
    }
    // Flags 00010000: the socket listens. Type 0005: SOCK_SEQPACKET.
    let [_, _, _, b"00010000", b"0005", _, _] = words else { return None };
    let path = Path::new(OsStr::from_bytes(remaining.strip_prefix(b" ")?));
    let folder = path.parent().filter(|folder| folder.is_absolute() && folder.ends_with("providers"))?;
    let runtime = folder.parent()?.file_name()?;
    (runtime == "traceweir" || parse_folder_uid(runtime).is_some()).then_some(folder)
}

/// The mounted file systems by folder, with whether each is local.
#[derive(Debug, Default)]
struct Mounts(Vec<(PathBuf, bool)>);

impl Mounts {
    fn parse(list: &[u8]) -> Self {
        let mounts = list.split(|byte| *byte == b'\n').filter_map(|line| {
            // ID parent major:minor root FOLDER options … - TYPE source options
            let mut words = line.split(|byte| *byte == b' ');
            let folder = words.nth(4)?;
            let kind = words.skip_while(|word| *word != b"-").nth(1)?;
            let folder = PathBuf::from(OsStr::from_bytes(&unescape_octal(folder)));
            // The root file system counts as local, because the machine needs it anyway.
            let is_local = LOCAL_FILE_SYSTEMS.contains(&kind) || folder == Path::new("/");
            Some((folder, is_local))
        });
        Self(mounts.collect())
    }

    /// Returns whether a path is on a local file system, and so are all mounts above it.
    fn is_local(&self, path: &Path) -> bool {
        let mut covering = self.0.iter().filter(|(folder, _)| path.starts_with(folder)).peekable();
        covering.peek().is_some() && covering.all(|(_, is_local)| *is_local)
    }
}

/// Decodes a name in the kernel's list of mounts, in which a blank or backslash is written as a
/// backslash and three octal digits.
fn unescape_octal(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut remaining = name;
    while let Some((first, others)) = remaining.split_first() {
        let digits = others.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped =
            digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(escaped.unwrap_or(*first));
        remaining = if escaped.is_some() { others.get(3..).unwrap_or_default() } else { others };
    }
    plain
}

#[cfg(test)]
mod tests;
