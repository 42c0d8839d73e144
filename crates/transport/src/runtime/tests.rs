use std::os::unix::fs::symlink;

use super::*;

fn user_runtime_dir(path: &Path) -> RuntimeDir {
    RuntimeDir { scope: Scope::User, path: path.to_owned() }
}

fn file_mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn is_refused(result: Result<()>) -> bool {
    matches!(result, Err(Error::System { source, .. }) if source.raw_os_error() == Some(libc::EACCES))
}

#[test]
fn missing_folders_are_created_for_their_owner_only() {
    let root = tempfile::tempdir().unwrap();
    for dir in
        [RuntimeDir::from_path(&root.path().join("named")), user_runtime_dir(&root.path().join("user"))]
    {
        dir.ensure().unwrap();
        assert_eq!((file_mode(dir.path()), file_mode(&dir.providers())), (0o700, 0o700));
        dir.ensure().unwrap();
    }
}

#[test]
fn system_folder_is_shared() {
    let root = tempfile::tempdir().unwrap();
    let dir = RuntimeDir { scope: Scope::System, path: root.path().join("system") };
    // Only root may own this folder: another user creates the folder here, but then rejects it.
    let result = dir.ensure();
    assert_eq!(file_mode(dir.path()), 0o755);
    if own_uid() == 0 {
        result.unwrap();
        assert_eq!(file_mode(&dir.providers()), 0o1777);
    } else {
        assert!(is_refused(result));
    }
}

#[test]
fn linked_open_or_foreign_user_folder_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    let real = root.path().join("real");
    let link = root.path().join("link");
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    chmod(&real, 0o700);
    user_runtime_dir(&real).ensure().unwrap();
    assert!(is_refused(user_runtime_dir(&link).ensure()), "a link was accepted");
    for mode in [0o750, 0o701, 0o777] {
        chmod(&real, mode);
        assert!(is_refused(user_runtime_dir(&real).ensure()), "mode {mode:o} was accepted");
    }
    chmod(&real, 0o700);
    assert!(
        is_refused(user_runtime_dir(&real).check_folder(own_uid() + 1)),
        "a folder of another user was accepted"
    );
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    chmod(&file, 0o600);
    assert!(is_refused(user_runtime_dir(&file).ensure()), "a file was accepted");
}

#[test]
fn own_folder_is_used_only_by_the_daemons_user() {
    let root = tempfile::tempdir().unwrap();
    let dir = RuntimeDir::from_path(&root.path().join("run"));
    dir.ensure().unwrap();
    assert_eq!(dir.own_user_folder(), None, "a missing folder was returned");
    let own = dir.make_own().unwrap();
    assert_eq!(
        (dir.own_user_folder(), file_mode(own.path()), own.socket_mode()),
        (Some(own.clone()), 0o700, 0o600)
    );
    assert!(is_refused(own.check_folder(own_uid() + 1)), "a folder of another user was accepted");
    for mode in [0o710, 0o701, 0o777] {
        chmod(own.path(), mode);
        assert_eq!(dir.own_user_folder(), None, "mode {mode:o} was accepted");
        assert!(is_refused(dir.make_own().map(drop)), "mode {mode:o} was accepted");
    }
    chmod(own.path(), 0o700);
    chmod(dir.path(), 0o777);
    assert_eq!(dir.own_user_folder(), None, "a folder that others can replace was accepted");
    chmod(dir.path(), 0o755);
    fs::write(own.control_socket(), "").unwrap();
    #[cfg(not(loom))]
    crate::enabled::write(&own, &[]).unwrap();
    dir.remove_own();
    assert!(!own.path().exists());
    let elsewhere = root.path().join("elsewhere");
    fs::DirBuilder::new().mode(0o700).create(&elsewhere).unwrap();
    symlink(&elsewhere, own.path()).unwrap();
    assert_eq!(dir.own_user_folder(), None, "a link was accepted");
    dir.remove_own();
    assert!(elsewhere.exists());
}

#[test]
fn named_folder_may_be_readable_but_not_writable_for_others() {
    let root = tempfile::tempdir().unwrap();
    let dir = RuntimeDir::from_path(root.path());
    chmod(root.path(), 0o755);
    dir.ensure().unwrap();
    chmod(root.path(), 0o775);
    assert!(is_refused(dir.ensure()));
    chmod(root.path(), 0o700);
    chmod(&dir.providers(), 0o777);
    assert!(is_refused(dir.ensure()));
    chmod(&dir.providers(), 0o1777);
    dir.ensure().unwrap();
    let other_user = own_uid() + 1;
    assert_eq!(
        is_refused(dir.check_folder(other_user)),
        own_uid() != 0,
        "only a folder of root must be accepted for another user"
    );
}

#[test]
fn user_folder_is_in_xdg_runtime_dir_if_owned_by_the_user() {
    let root = tempfile::tempdir().unwrap();
    let uid = own_uid();
    let temporary = || PathBuf::from("/t");
    let folder = |runtime: Option<&Path>, uid| {
        user_folder(runtime.map(|p| p.as_os_str().to_owned()), temporary(), uid)
    };
    assert_eq!(folder(Some(root.path()), uid), root.path().join("traceweir"));
    let fallback = PathBuf::from(format!("/t/traceweir-{uid}"));
    assert_eq!(folder(None, uid), fallback);
    assert_eq!(folder(Some(&root.path().join("missing")), uid), fallback);
    assert_eq!(folder(Some(Path::new("relative")), uid), fallback);
    assert_eq!(folder(Some(root.path()), uid + 1), PathBuf::from(format!("/t/traceweir-{}", uid + 1)));
}

#[test]
fn provider_sockets_are_listed_and_stale_ones_removed() {
    let root = tempfile::tempdir().unwrap();
    let dir = RuntimeDir::from_path(root.path());
    assert!(dir.provider_sockets(9).unwrap().is_empty(), "a missing folder has sockets");
    dir.ensure().unwrap();
    let mut paths: Vec<PathBuf> = [17, 4].map(|pid| dir.new_provider_socket(pid)).into();
    let listeners: Vec<_> =
        paths.iter().map(|path| crate::socket::Listener::bind(path, 0o600).unwrap()).collect();
    symlink(&paths[0], dir.new_provider_socket(5)).unwrap();
    fs::write(dir.new_provider_socket(6), "").unwrap();
    for name in ["17.sock", ".0123", "x-0123456789abcdef.sock", "7-0123456789abcdef", "7-0123.sock"] {
        fs::write(dir.providers().join(name), "").unwrap();
        assert_eq!(parse_socket_pid(name), None);
    }
    let mut sockets = dir.provider_sockets(9).unwrap();
    sockets.sort_by(|a, b| a.path.cmp(&b.path));
    paths.sort();
    let socket_paths: Vec<_> = sockets.iter().map(|socket| &socket.path).collect();
    assert_eq!(socket_paths, paths.iter().collect::<Vec<_>>());
    assert!(sockets.iter().all(|socket| socket.uid == own_uid() && [4, 17].contains(&socket.pid)));
    assert_eq!(dir.provider_sockets(1).unwrap().len(), 1, "the limit of a user was not applied");
    for socket in &mut sockets {
        assert!(socket.connect(Duration::ZERO).is_ok());
        socket.uid += 1;
        assert!(
            socket.connect(Duration::ZERO).is_err(),
            "a listener that is not the owner of the socket was accepted"
        );
    }
    drop(listeners);
    for socket in sockets {
        assert!(socket.connect(Duration::ZERO).is_err());
        assert!(!socket.path.exists(), "a stale socket was not removed");
    }
}

#[test]
fn provider_socket_names_are_random() {
    let dir = RuntimeDir::from_path(Path::new("/run"));
    let name = dir.new_provider_socket(17);
    assert_ne!(name, dir.new_provider_socket(17));
    assert_eq!(parse_socket_pid(name.file_name().unwrap().to_str().unwrap()), Some(17));
}

#[test]
fn named_folder_takes_precedence_over_any_scope() {
    for requested in [None, Some(Scope::Named), Some(Scope::System), Some(Scope::User)] {
        assert_eq!(searched_scopes(requested, true), [Scope::Named], "{requested:?}");
    }
    assert_eq!(searched_scopes(None, false), [Scope::System, Scope::User]);
    for scope in [Scope::Named, Scope::System, Scope::User] {
        assert_eq!(searched_scopes(Some(scope), false), [scope]);
    }
}

#[test]
fn system_sockets_are_open_to_all_and_others_to_their_owner() {
    let socket_mode = |scope| RuntimeDir { scope, path: PathBuf::new() }.socket_mode();
    assert_eq!([Scope::System, Scope::User, Scope::Named].map(socket_mode), [0o666, 0o600, 0o600]);
}

#[test]
fn random_numbers_differ() {
    let mut numbers: Vec<u64> = (0..1000).map(|_| random()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 1000);
}

#[test]
fn sweep_removes_everything_except_provider_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let dir = RuntimeDir::from_path(&folder.path().join("run"));
    dir.ensure().unwrap();
    assert_eq!(dir.sweep_providers(9).unwrap(), 0);
    let outside = folder.path().join("kept");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "x").unwrap();
    let socket = dir.new_provider_socket(7);
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::write(dir.providers().join("hoard"), [0; 4096]).unwrap();
    fs::write(dir.new_provider_socket(8), "no socket").unwrap();
    fs::create_dir_all(dir.providers().join("a/b")).unwrap();
    fs::write(dir.providers().join("a/b/c"), [0; 4096]).unwrap();
    symlink(&outside, dir.providers().join("link")).unwrap();
    symlink(&outside, dir.providers().join("a/link")).unwrap();
    assert!(dir.sweep_providers(9).unwrap() >= 6);
    assert_eq!(fs::read_dir(dir.providers()).unwrap().count(), 1);
    assert!(socket.exists() && outside.join("file").exists(), "the sweep followed a link");
    let _further_listeners: Vec<_> = (0..3)
        .map(|pid| std::os::unix::net::UnixListener::bind(dir.new_provider_socket(pid)).unwrap())
        .collect();
    assert_eq!(dir.sweep_providers(2).unwrap(), 2, "sockets beyond the limit of a user were not removed");
    assert_eq!(dir.provider_sockets(9).unwrap().len(), 2);
}
