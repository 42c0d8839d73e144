use std::os::unix::fs::symlink;

use super::*;

fn user(path: &Path) -> RuntimeDir {
    RuntimeDir { scope: Scope::User, path: path.to_owned() }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn is_refused(result: Result<()>) -> bool {
    matches!(result, Err(Error::System { source, .. }) if source.raw_os_error() == Some(libc::EACCES))
}

#[test]
fn missing_folders_are_made_for_their_owner_alone() {
    let root = tempfile::tempdir().unwrap();
    for dir in [RuntimeDir::at(&root.path().join("named")), user(&root.path().join("user"))] {
        dir.ensure().unwrap();
        assert_eq!((mode(dir.path()), mode(&dir.providers())), (0o700, 0o700));
        dir.ensure().unwrap();
    }
}

#[test]
fn the_folder_of_the_system_is_shared() {
    let root = tempfile::tempdir().unwrap();
    let dir = RuntimeDir { scope: Scope::System, path: root.path().join("system") };
    // Only root may own it: for others the folder is made here, and then refused.
    let made = dir.ensure();
    assert_eq!(mode(dir.path()), 0o755);
    if own_uid() == 0 {
        made.unwrap();
        assert_eq!(mode(&dir.providers()), 0o1777);
    } else {
        assert!(is_refused(made));
    }
}

#[test]
fn a_user_folder_that_is_a_link_or_open_or_foreign_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let real = root.path().join("real");
    let link = root.path().join("link");
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    chmod(&real, 0o700);
    user(&real).ensure().unwrap();
    assert!(is_refused(user(&link).ensure()), "a link");
    for open in [0o750, 0o701, 0o777] {
        chmod(&real, open);
        assert!(is_refused(user(&real).ensure()), "{open:o}");
    }
    chmod(&real, 0o700);
    assert!(is_refused(user(&real).check_folder(own_uid() + 1)), "a foreign owner");
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    chmod(&file, 0o600);
    assert!(is_refused(user(&file).ensure()), "a file");
}

#[test]
fn a_named_folder_may_be_readable_but_not_writable_for_others() {
    let root = tempfile::tempdir().unwrap();
    let dir = RuntimeDir::at(root.path());
    chmod(root.path(), 0o755);
    dir.ensure().unwrap();
    chmod(root.path(), 0o775);
    assert!(is_refused(dir.ensure()));
    chmod(root.path(), 0o700);
    chmod(&dir.providers(), 0o777);
    assert!(is_refused(dir.ensure()));
    chmod(&dir.providers(), 0o1777);
    dir.ensure().unwrap();
    let stranger = own_uid() + 1;
    assert_eq!(is_refused(dir.check_folder(stranger)), own_uid() != 0, "root's folders are good for all");
}

#[test]
fn the_users_folder_is_in_the_runtime_folder_if_that_is_the_users() {
    let root = tempfile::tempdir().unwrap();
    let uid = own_uid();
    let temporary = || PathBuf::from("/t");
    let of = |runtime: Option<&Path>, uid| users(runtime.map(|p| p.as_os_str().to_owned()), temporary(), uid);
    assert_eq!(of(Some(root.path()), uid), root.path().join("traceweir"));
    let fallback = PathBuf::from(format!("/t/traceweir-{uid}"));
    assert_eq!(of(None, uid), fallback);
    assert_eq!(of(Some(&root.path().join("missing")), uid), fallback);
    assert_eq!(of(Some(Path::new("relative")), uid), fallback);
    assert_eq!(of(Some(root.path()), uid + 1), PathBuf::from(format!("/t/traceweir-{}", uid + 1)));
}

#[test]
fn the_processes_with_a_socket_are_listed() {
    let root = tempfile::tempdir().unwrap();
    let dir = RuntimeDir::at(root.path());
    assert!(dir.provider_pids().unwrap().is_empty(), "no folder yet");
    dir.ensure().unwrap();
    for name in ["17.sock", "4.sock", ".0123", "x.sock", "5"] {
        fs::write(dir.providers().join(name), "").unwrap();
    }
    let mut pids = dir.provider_pids().unwrap();
    pids.sort_unstable();
    assert_eq!(pids, [4, 17]);
    assert!(dir.provider_socket(17).exists());
}
