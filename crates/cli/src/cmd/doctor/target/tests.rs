//! Processes that are not here, each with why its events do not arrive.

use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::super::check::State::{self, Fine, Limited, Missing};
use super::*;

const PID: u32 = 4711;
const ANNA: u32 = 1000;

/// Files of a process of Anna's that has registered.
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

fn again(root: &TempDir, name: &str, to: &str) {
    let path = root.path().join("proc/4711").join(name);
    fs::remove_file(&path).unwrap();
    symlink(to, path).unwrap();
}

/// Anna's own daemon, which knows the process.
fn meeting() -> Meeting {
    Meeting {
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
fn expect(root: &TempDir, meeting: &Meeting, name: &str, state: State, says: &str) {
    let checks = Target::at(root.path(), PID).checks(meeting);
    let check = checks.iter().find(|it| it.subject.name == name).expect("it is looked at");
    assert_eq!(check.state, state, "{}", check.found);
    assert!(check.found.contains(says), "{} has not {says:?}", check.found);
}

#[test]
fn a_process_that_is_known_has_nothing_in_its_way() {
    let checks = Target::at(process().path(), PID).checks(&meeting());
    for check in &checks {
        assert_eq!(check.state, Fine, "{}: {}", check.subject.name, check.found);
    }
    assert_eq!(checks.len(), 8);
    expect(&process(), &meeting(), "process_providers", Fine, "1 provider of process 4711: MyCompany.App");
    expect(&process(), &meeting(), "process_library", Fine, "/usr/lib/libtraceweir.so.0");
}

#[test]
fn a_process_that_is_not_there_is_all_that_is_told() {
    let checks = Target::at(process().path(), 5).checks(&meeting());
    assert_eq!(checks.len(), 1);
    assert!(checks[0].found.contains("no process 5"), "{}", checks[0].found);
}

#[test]
fn who_has_not_registered_is_told_apart_from_who_cannot_be_asked() {
    let silent = Meeting { registered: Some(Vec::new()), sockets: Some(Vec::new()), ..meeting() };
    expect(&process(), &silent, "process_providers", Missing, "no provider in process 4711");
    expect(&process(), &silent, "process_socket", Limited, "there is none");
    let nobody = Meeting { registered: None, sockets: None, ..meeting() };
    expect(&process(), &nobody, "process_providers", Limited, "no daemon");
    expect(&process(), &nobody, "process_socket", Limited, "cannot be read");
    // A socket of that name that somebody else has made is none of it.
    let forged = Meeting { sockets: Some(vec![(PID, 1001)]), ..meeting() };
    expect(&process(), &forged, "process_socket", Limited, "there is none");
}

#[test]
fn other_users_are_served_by_the_system_only() {
    let others = Meeting { own_user: 1001, ..meeting() };
    expect(&process(), &others, "process_user", Missing, "another's (uid 1000)");
    expect(&process(), &Meeting { is_system: true, ..others }, "process_user", Fine, "all users");
    let root = process();
    let program = root.path().join("proc/4711/exe");
    fs::set_permissions(program, fs::Permissions::from_mode(0o4755)).unwrap();
    expect(&root, &meeting(), "process_user", Missing, "set-user-id");
}

#[test]
fn another_folder_is_found_in_the_environment() {
    let root = process();
    put(&root, "environ", "A=1\0TRACEWEIR_RUNTIME_DIR=/srv/it's\0");
    expect(&root, &meeting(), "process_folder", Missing, "/srv/it's");
    let checks = Target::at(root.path(), PID).checks(&meeting());
    let now = checks.iter().find_map(|it| it.advice.as_ref().filter(|it| it.now.starts_with(VARIABLE)));
    assert_eq!(now.unwrap().now, "TRACEWEIR_RUNTIME_DIR='/srv/it'\\''s' weir …");
    let same = Meeting { named: Some("/srv/it's".into()), ..meeting() };
    expect(&root, &same, "process_folder", Fine, "");
    expect(&process(), &same, "process_folder", Missing, "yours is set");
    fs::remove_file(root.path().join("proc/4711/environ")).unwrap();
    expect(&root, &meeting(), "process_folder", Limited, "not shown");
}

#[test]
fn containers_sandboxes_and_replaced_libraries_are_told() {
    let root = process();
    put(&root, "status", "Uid:\t0\t1000\t1000\t1000\nNSpid:\t4711\t7\nSeccomp:\t2\n");
    put(&root, "maps", "7f02-7f03 r-xp 0 00:1 6 /opt/a b/libtraceweir.so.0 (deleted)\n");
    again(&root, "ns/pid", "pid:[9]");
    let inner = Meeting { sockets: Some(vec![(7, ANNA)]), ..meeting() };
    expect(&root, &inner, "process_namespace", Fine, "there it is 7");
    expect(&root, &inner, "process_socket", Fine, "there is one");
    expect(&root, &inner, "process_sandbox", Limited, "seccomp");
    expect(&root, &inner, "process_library", Limited, "/opt/a b/libtraceweir.so.0 was replaced");
    again(&root, "ns/mnt", "mnt:[9]");
    expect(&root, &inner, "process_namespace", Limited, "folders of its own");
    put(&root, "maps", &"7f02-7f03 r-xp 0 00:1 6 /usr/lib/other.so\n".repeat(50_000));
    expect(&root, &inner, "process_library", Limited, "too much");
    put(&root, "maps", "");
    expect(&root, &inner, "process_library", Fine, "not loaded");
}

/// A pipe that nobody writes to keeps who opens it waiting, as a process or a file system that hangs does.
#[test]
fn a_process_that_hangs_is_told_as_that_and_not_waited_for() {
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
    expect(&root, &meeting(), "process_folder", Limited, "its environment is not told within 2 s");
    assert!(began.elapsed() < 5 * PATIENCE, "{:?}", began.elapsed());
    let checks = Target::at(root.path(), PID).checks(&meeting());
    let state = |name: &str| checks.iter().find(|it| it.subject.name == name).unwrap().state;
    assert_eq!((state("process_library"), state("process_user")), (Limited, Fine), "the rest is told");
}

#[test]
fn process_that_the_daemon_sees_in_a_container_is_reported_with_the_way_to_include_it() {
    let contained = Meeting { is_contained: Some(true), ..meeting() };
    let root = process();
    expect(&root, &contained, "process_container", Missing, "another PID namespace");
    let id = "4f1d0c3b5a69788796a5b4c3d2e1f00f";
    put(&root, "cgroup", &format!("0::/process_api/{id}\n"));
    expect(&root, &contained, "process_container", Missing, id);
    let checks = Target::at(root.path(), PID).checks(&contained);
    let advice =
        checks.iter().find(|it| it.subject.name == "process_container").map(|it| format!("{:?}", it.advice));
    assert!(advice.is_some_and(|it| it.contains("@silos") && it.contains(&format!("@container={id}"))));
    let unknown = Meeting { is_contained: None, ..meeting() };
    assert_eq!(Target::at(root.path(), PID).checks(&unknown).len(), 7);
}
