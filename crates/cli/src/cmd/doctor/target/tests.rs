//! Tests with processes made of files, each with a reason why its events do not arrive.

use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::super::check::State::{self, Fine, Limited, Missing};
use super::*;

const PID: u32 = 4711;
const ANNA: u32 = 1000;

/// Creates the files of a process of user Anna that has registered a provider.
fn process() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for who in ["self", "4711"] {
        let own = root.path().join("proc").join(who);
        fs::create_dir_all(own.join("ns")).unwrap();
        symlink("pid:[1]", own.join("ns/pid")).unwrap();
        symlink("mnt:[2]", own.join("ns/mnt")).unwrap();
    }
    put(&root, "status", "Uid:\t0\t1000\t1000\t1000\nNSpid:\t4711\nSeccomp:\t0\n");
    put(&root, "environ", "HOME=/home/anna\0XTRACEWEIR_RUNTIME_DIR=/no\0");
    put(
        &root,
        "maps",
        "7f00-7f01 r-xp 0 00:1 5 /usr/lib/libc.so.6\n7f02-7f03 r-xp 0 00:1 6 /usr/lib/libtraceweir.so.0\n",
    );
    put(&root, "exe", "a program");
    root
}

fn put(root: &TempDir, name: &str, text: &str) {
    fs::write(root.path().join("proc/4711").join(name), text).unwrap();
}

fn relink(root: &TempDir, name: &str, to: &str) {
    let path = root.path().join("proc/4711").join(name);
    fs::remove_file(&path).unwrap();
    symlink(to, path).unwrap();
}

/// Returns Anna's own daemon, which knows the process.
fn daemon() -> DaemonView {
    DaemonView {
        own_user: ANNA,
        named: None,
        folder: "/run/user/1000/traceweir".into(),
        is_system: false,
        sockets: Some(vec![(1, ANNA), (PID, ANNA)]),
        registered: Some(vec!["MyCompany.App".to_owned()]),
        is_contained: Some(false),
    }
}

#[track_caller]
fn expect(root: &TempDir, daemon: &DaemonView, name: &str, state: State, text: &str) {
    let checks = Target::read(root.path(), PID).checks(daemon);
    let check = checks.iter().find(|check| check.subject.name == name).expect("it is checked");
    assert_eq!(check.state, state, "{}", check.found);
    assert!(check.found.contains(text), "{} does not contain {text:?}", check.found);
}

#[test]
fn known_process_passes_every_check() {
    let checks = Target::read(process().path(), PID).checks(&daemon());
    for check in &checks {
        assert_eq!(check.state, Fine, "{}: {}", check.subject.name, check.found);
    }
    assert_eq!(checks.len(), 8);
    expect(&process(), &daemon(), "process_providers", Fine, "1 provider of process 4711: MyCompany.App");
    expect(&process(), &daemon(), "process_library", Fine, "/usr/lib/libtraceweir.so.0");
}

#[test]
fn missing_process_is_the_only_finding() {
    let checks = Target::read(process().path(), 5).checks(&daemon());
    assert_eq!(checks.len(), 1);
    assert!(checks[0].found.contains("no process 5"), "{}", checks[0].found);
}

#[test]
fn unregistered_process_differs_from_unreachable_daemon() {
    let silent = DaemonView { registered: Some(Vec::new()), sockets: Some(Vec::new()), ..daemon() };
    expect(&process(), &silent, "process_providers", Missing, "no provider in process 4711");
    expect(&process(), &silent, "process_socket", Limited, "there is none");
    let no_daemon = DaemonView { registered: None, sockets: None, ..daemon() };
    expect(&process(), &no_daemon, "process_providers", Limited, "no daemon");
    expect(&process(), &no_daemon, "process_socket", Limited, "cannot be read");
    // A socket of that name that another user made does not count.
    let forged = DaemonView { sockets: Some(vec![(PID, 1001)]), ..daemon() };
    expect(&process(), &forged, "process_socket", Limited, "there is none");
}

#[test]
fn processes_of_other_users_need_the_system_daemon() {
    let others = DaemonView { own_user: 1001, ..daemon() };
    expect(&process(), &others, "process_user", Missing, "another user's (uid 1000)");
    expect(&process(), &DaemonView { is_system: true, ..others }, "process_user", Fine, "all users");
    let root = process();
    let program = root.path().join("proc/4711/exe");
    fs::set_permissions(program, fs::Permissions::from_mode(0o4755)).unwrap();
    expect(&root, &daemon(), "process_user", Missing, "set-user-id");
}

#[test]
fn different_runtime_dir_is_found_in_the_environment() {
    let root = process();
    put(&root, "environ", "A=1\0TRACEWEIR_RUNTIME_DIR=/srv/it's\0");
    expect(&root, &daemon(), "process_folder", Missing, "/srv/it's");
    let checks = Target::read(root.path(), PID).checks(&daemon());
    let now = checks
        .iter()
        .find_map(|check| check.advice.as_ref().filter(|advice| advice.now.starts_with(VARIABLE)));
    assert_eq!(now.unwrap().now, "TRACEWEIR_RUNTIME_DIR='/srv/it'\\''s' weir …");
    let same = DaemonView { named: Some("/srv/it's".into()), ..daemon() };
    expect(&root, &same, "process_folder", Fine, "");
    expect(&process(), &same, "process_folder", Missing, "yours is set");
    fs::remove_file(root.path().join("proc/4711/environ")).unwrap();
    expect(&root, &daemon(), "process_folder", Limited, "not shown");
}

#[test]
fn containers_sandboxes_and_replaced_libraries_are_reported() {
    let root = process();
    put(&root, "status", "Uid:\t0\t1000\t1000\t1000\nNSpid:\t4711\t7\nSeccomp:\t2\n");
    put(&root, "maps", "7f02-7f03 r-xp 0 00:1 6 /opt/a b/libtraceweir.so.0 (deleted)\n");
    relink(&root, "ns/pid", "pid:[9]");
    let inner = DaemonView { sockets: Some(vec![(7, ANNA)]), ..daemon() };
    expect(&root, &inner, "process_namespace", Fine, "its pid is 7");
    expect(&root, &inner, "process_socket", Fine, "there is one");
    expect(&root, &inner, "process_sandbox", Limited, "seccomp");
    expect(&root, &inner, "process_library", Limited, "/opt/a b/libtraceweir.so.0 was replaced");
    relink(&root, "ns/mnt", "mnt:[9]");
    expect(&root, &inner, "process_namespace", Limited, "mount namespace of its own");
    put(&root, "maps", &"7f02-7f03 r-xp 0 00:1 6 /usr/lib/other.so\n".repeat(50_000));
    expect(&root, &inner, "process_library", Limited, "too long");
    put(&root, "maps", "");
    expect(&root, &inner, "process_library", Fine, "not loaded");
}

/// Opening a FIFO without a writer blocks, like reading from a process or a file system that hangs.
#[test]
fn hanging_process_is_reported_after_timeout() {
    let root = process();
    for name in ["environ", "maps"] {
        let path = root.path().join("proc/4711").join(name);
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
    }
    let began = Instant::now();
    expect(&root, &daemon(), "process_folder", Limited, "its environment is not readable within 2 s");
    assert!(began.elapsed() < 5 * ANSWER_TIMEOUT, "{:?}", began.elapsed());
    let checks = Target::read(root.path(), PID).checks(&daemon());
    let state = |name: &str| checks.iter().find(|check| check.subject.name == name).unwrap().state;
    assert_eq!((state("process_library"), state("process_user")), (Limited, Fine), "the rest is reported");
}

#[test]
fn process_that_the_daemon_sees_in_a_container_is_reported_with_the_way_to_include_it() {
    let contained = DaemonView { is_contained: Some(true), ..daemon() };
    let root = process();
    expect(&root, &contained, "process_container", Missing, "another PID namespace");
    let id = "4f1d0c3b5a69788796a5b4c3d2e1f00f";
    put(&root, "cgroup", &format!("0::/process_api/{id}\n"));
    expect(&root, &contained, "process_container", Missing, id);
    let checks = Target::read(root.path(), PID).checks(&contained);
    let advice = checks
        .iter()
        .find(|check| check.subject.name == "process_container")
        .map(|check| format!("{:?}", check.advice));
    assert!(
        advice
            .is_some_and(|advice| advice.contains("@silos") && advice.contains(&format!("@container={id}")))
    );
    let unknown = DaemonView { is_contained: None, ..daemon() };
    assert_eq!(Target::read(root.path(), PID).checks(&unknown).len(), 7);
}
