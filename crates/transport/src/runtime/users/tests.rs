use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::runtime::{RuntimeDir, Scope};
use crate::socket::Listener;

/// A line of the kernel's list without the path: Num, RefCount, Protocol, Flags, Type, St, Inode.
const LISTENING_LINE: &str = "0000000000000000: 00000002 00000000 00010000 0005 01 12345";

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Creates a folder of this user with a socket in it.
fn create_user_folder(root: &Path) -> (RuntimeDir, PathBuf, Listener) {
    let dir = RuntimeDir { scope: Scope::User, path: root.join(format!("traceweir-{}", own_uid())) };
    dir.ensure().unwrap();
    let socket = dir.new_provider_socket(7);
    let listener = Listener::bind(&socket, 0o600).unwrap();
    (dir, socket, listener)
}

fn list_sockets(folder: &Path) -> Option<Vec<UserSocket>> {
    user_sockets(folder, 100).ok().map(Iterator::collect)
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn listening_socket_is_found_by_the_kernels_list_and_connected_to() {
    // The path of the temporary folder may contain a link, so it is resolved first.
    let root = tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap();
    let (dir, _, listener) = create_user_folder(root.path());
    let local_mounts = Mounts(vec![("/".into(), true)]);
    let list = File::open(SOCKET_LIST).unwrap();
    let find_owner = |folder: &Path| open_checked(folder).ok().map(|(_, uid)| uid);
    // The list has the path under which a socket was bound. A path that is too long for an address
    // is replaced by one through the descriptor of its folder, so the folder is not found.
    let is_listed = dir.providers().join(".0123456789abcdef").as_os_str().len() < 108;
    assert_eq!(
        find_folders(BufReader::new(list), &local_mounts, find_owner, u64::from).contains(&dir.providers()),
        is_listed
    );
    let sockets = list_sockets(&dir.providers()).unwrap();
    let [socket] = &sockets[..] else { panic!("not exactly one socket: {sockets:?}") };
    assert_eq!((socket.pid, socket.uid), (7, own_uid()));
    socket.connect(Duration::ZERO).unwrap();
    drop(listener);
}

#[test]
fn stale_socket_stays() {
    let root = tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap();
    let (dir, path, listener) = create_user_folder(root.path());
    drop(listener);
    let sockets = list_sockets(&dir.providers()).unwrap();
    assert!(sockets[0].connect(Duration::ZERO).is_err());
    assert!(fs::symlink_metadata(path).is_ok());
}

#[test]
fn links_other_files_and_writable_folders_are_ignored() {
    let root = tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap();
    let (dir, socket, _listener) = create_user_folder(root.path());
    let providers = dir.providers();
    let named = |number: u32| providers.join(format!("{number}-0123456789abcdef.sock"));
    symlink(&socket, named(1)).unwrap();
    fs::write(named(2), "no socket").unwrap();
    fs::create_dir(named(3)).unwrap();
    fs::write(providers.join("other"), "").unwrap();
    assert_eq!(list_sockets(&providers).unwrap().len(), 1);

    for (path, mode) in [(dir.path(), 0o755), (dir.path(), 0o770), (&providers, 0o777)] {
        chmod(path, mode);
        assert!(list_sockets(&providers).is_none(), "mode {mode:o} was accepted");
        chmod(path, 0o700);
    }
    let elsewhere = root.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(root.path(), elsewhere.join("link")).unwrap();
    let name = dir.path().file_name().unwrap();
    let linked_path = elsewhere.join("link").join(name).join("providers");
    assert!(linked_path.is_dir());
    assert!(list_sockets(&linked_path).is_none(), "a path through a link was accepted");
    fs::rename(&providers, root.path().join("moved")).unwrap();
    symlink(root.path().join("moved"), &providers).unwrap();
    assert!(list_sockets(&providers).is_none(), "a link in place of the folder was accepted");
}

#[test]
fn name_and_owner_of_a_folder_must_agree() {
    let root = tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap();
    let (dir, _, _listener) = create_user_folder(root.path());
    for (name, mode, is_found) in [
        (format!("traceweir-{}", own_uid() + 1), 0o700, false),
        ("traceweir".to_owned(), 0o755, false),
        ("traceweir".to_owned(), 0o700, true),
    ] {
        let renamed_path = root.path().join(&name);
        fs::rename(dir.path(), &renamed_path).unwrap();
        chmod(root.path(), mode);
        assert_eq!(list_sockets(&renamed_path.join("providers")).is_some(), is_found, "{name} {mode:o}");
        fs::rename(renamed_path, dir.path()).unwrap();
    }
}

#[test]
fn only_listening_sockets_in_user_folders_count() {
    for (line, folder) in [
        (format!("{LISTENING_LINE} /tmp/traceweir-7/providers/.0123"), Some("/tmp/traceweir-7/providers")),
        (
            format!("{LISTENING_LINE} /run/user/7/traceweir/providers/.01"),
            Some("/run/user/7/traceweir/providers"),
        ),
        (format!("{LISTENING_LINE} /a b/traceweir/providers/.01"), Some("/a b/traceweir/providers")),
        (format!("{LISTENING_LINE} /tmp/.tmpabc/providers/.01"), None),
        (format!("{LISTENING_LINE} /tmp/traceweir-x/providers/.01"), None),
        (format!("{LISTENING_LINE} traceweir/providers/.01"), None),
        (format!("{LISTENING_LINE} @/traceweir/providers/.01"), None),
        (format!("{LISTENING_LINE} /traceweir/others/.01"), None),
        (LISTENING_LINE.to_owned(), None),
        // A stream socket instead of SEQPACKET (5), and a socket that does not listen.
        (LISTENING_LINE.replace("0005", "0001") + " /traceweir/providers/.01", None),
        (LISTENING_LINE.replace("00010000", "00000000") + " /traceweir/providers/.01", None),
        (String::new(), None),
    ] {
        assert_eq!(parse_provider_folder(line.as_bytes()), folder.map(Path::new), "{line}");
    }
}

#[test]
fn folders_on_remote_file_systems_are_ignored() {
    let mounts = Mounts::parse(
        b"21 1 0:20 / / rw,relatime shared:1 - 9p /dev/root rw\n\
          22 21 0:21 / /run rw - tmpfs tmpfs rw\n\
          23 22 0:22 / /run/user/7/doc rw - fuse.portal portal rw\n\
          24 21 0:23 / /net rw shared:2 master:1 - autofs auto rw\n\
          25 21 0:24 / /with\\040blank rw - fuse x rw\n\
          26 24 0:25 / /net/below rw - tmpfs x rw\n\
          broken\n",
    );
    for (path, is_local) in [
        ("/tmp/traceweir-7/providers", true),
        ("/run/user/7/traceweir/providers", true),
        ("/run/user/7/doc/traceweir/providers", false),
        ("/net/host/traceweir-7/providers", false),
        // The mount itself is local, but one above it is not.
        ("/net/below/traceweir-7/providers", false),
        ("/with blank/traceweir-7/providers", false),
        ("/network/traceweir-7/providers", true),
    ] {
        assert_eq!(mounts.is_local(Path::new(path)), is_local, "{path}");
    }
    assert!(!Mounts::default().is_local(Path::new("/tmp")));
    let list = format!(
        "{LISTENING_LINE} /net/traceweir-7/providers/.1\n{LISTENING_LINE} /a/traceweir-7/providers/.1\n"
    )
    .repeat(2);
    assert_eq!(
        find_folders(list.as_bytes(), &mounts, |_| Some(7), u64::from),
        [PathBuf::from("/a/traceweir-7/providers")]
    );
    assert!(find_folders(list.as_bytes(), &mounts, |_| None, u64::from).is_empty());
}

#[test]
fn user_with_many_folders_hides_no_other_user() {
    let line =
        |number: u32, uid: u32| format!("{LISTENING_LINE} /tmp/{number}/traceweir-{uid}/providers/.1\n");
    let many: String = (0..100).map(|number| line(number, 8)).chain([line(0, 7), line(0, 9)]).collect();
    let find_owner = |folder: &Path| parse_folder_uid(folder.parent()?.file_name()?);
    let folders = find_folders(many.as_bytes(), &Mounts(vec![("/".into(), true)]), find_owner, u64::from);
    assert_eq!(folders.len(), 1 + MAX_FOLDERS_OF_USER + 1);
    // One folder of user 7, sixteen of user 8, one of user 9.
    assert!(folders[0].starts_with("/tmp/0/traceweir-7") && folders[17].starts_with("/tmp/0/traceweir-9"));
}

#[test]
fn excess_folders_are_dropped_from_largest_users_then_at_random() {
    let line =
        |number: u32, uid: u32| format!("{LISTENING_LINE} /tmp/{number}/traceweir-{uid}/providers/.1\n");
    let find_owner = |folder: &Path| parse_folder_uid(folder.parent()?.file_name()?);
    let local_mounts = Mounts(vec![("/".into(), true)]);
    let count_by_owner = |list: &str, random_rank: fn(u32) -> u64| -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for folder in find_folders(list.as_bytes(), &local_mounts, find_owner, random_rank) {
            *counts.entry(find_owner(&folder).unwrap()).or_default() += 1;
        }
        assert_eq!(counts.values().sum::<usize>(), MAX_FOLDERS);
        counts
    };
    const MANY_UIDS: std::ops::Range<u32> = 100_000..100_000 + MAX_FOLDERS as u32;
    const HIGHEST_UID: u32 = 4_000_000_000;
    // Many user ids have two folders each, and a user with a higher id has one folder, listed first
    // or last.
    let twice: String = MANY_UIDS.step_by(2).flat_map(|uid| [line(0, uid), line(1, uid)]).collect();
    for list in [line(0, HIGHEST_UID) + &twice, twice + &line(0, HIGHEST_UID)] {
        assert_eq!(count_by_owner(&list, u64::from)[&HIGHEST_UID], 1);
    }
    // All users have one folder each: the random number decides, not the user id.
    let once: String = MANY_UIDS.map(|uid| line(0, uid)).collect();
    for list in [line(0, HIGHEST_UID) + &once, once + &line(0, HIGHEST_UID)] {
        assert!(!count_by_owner(&list, u64::from).contains_key(&HIGHEST_UID));
        let counts = count_by_owner(&list, |uid| u64::from(u32::MAX - uid));
        assert!(counts.contains_key(&HIGHEST_UID) && !counts.contains_key(&MANY_UIDS.start));
    }
}

#[test]
fn last_steps_enter_no_mount_and_no_link() {
    let root = open_without_links(Path::new("/")).unwrap();
    let proc = open_without_links(Path::new("/proc")).expect("a mount above the folder is refused");
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let is_missing = openat2(&root, ".", flags, Mode::empty(), ResolveFlags::NO_XDEV).is_err();
    if !crate::skip::holds_or_skip(
        !is_missing,
        "openat2",
        "the kernel or a filter of system calls refuses openat2",
    ) {
        return;
    }
    assert_eq!(open_in_mount(&root, OsStr::new("proc"), flags).unwrap_err(), Errno::XDEV);
    assert!(open_in_mount(&proc, OsStr::new("self"), flags).is_err(), "a link was followed");
    open_in_mount(&proc, OsStr::new("sys"), flags).expect("a folder of the same mount cannot be opened");
}

#[test]
fn folder_socket_and_process_must_have_one_owner() {
    if !crate::skip::holds_or_skip(own_uid() == 0, "root", "giving files to other users requires root") {
        return;
    }
    const FIRST_USER: u32 = 64_321;
    const SECOND_USER: u32 = 64_322;
    let root = tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap();
    let (created, socket, _listener) = create_user_folder(root.path());
    let dir = RuntimeDir { scope: Scope::User, path: root.path().join(format!("traceweir-{FIRST_USER}")) };
    fs::rename(created.path(), dir.path()).unwrap();
    let socket = dir.providers().join(socket.file_name().unwrap());
    let chown = |path: &Path, uid: u32| std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
    for path in [dir.path(), &dir.providers(), &socket] {
        chown(path, FIRST_USER);
    }
    let sockets = list_sockets(&dir.providers()).unwrap();
    assert_eq!(sockets.len(), 1);
    // The first user owns the folder and the socket, but root listens.
    let refused = sockets[0].connect(Duration::ZERO).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    chown(&socket, SECOND_USER);
    assert_eq!(list_sockets(&dir.providers()).unwrap().len(), 0, "a socket of another user was listed");
    chown(&socket, FIRST_USER);
    for path in [dir.path(), &dir.providers()] {
        chown(path, SECOND_USER);
        assert!(list_sockets(&dir.providers()).is_none(), "{}", path.display());
        chown(path, FIRST_USER);
    }
}
