//! Tests with simulated processes: files in a temporary folder with the layout of `/proc`.

use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::super::check::CheckState::{self, Fine, Limited, Missing};
use super::*;

const PID: u32 = 4711;
const ANNA_UID: u32 = 1000;

/// Creates the files of a process of user Anna that has registered a provider.
fn new_process() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for pid_name in ["self", "4711"] {
        let process_folder = root.path().join("proc").join(pid_name);
        fs::create_dir_all(process_folder.join("ns")).unwrap();
        symlink("pid:[1]", process_folder.join("ns/pid")).unwrap();
        symlink("mnt:[2]", process_folder.join("ns/mnt")).unwrap();
    }
    // The real user is root, the effective user is Anna: the effective user counts.
    write(&root, "status", "Uid:\t0\t1000\t1000\t1000\nNSpid:\t4711\nSeccomp:\t0\n");
    // A variable whose name only ends with TRACEWEIR_RUNTIME_DIR is ignored.
    write(&root, "environ", "HOME=/home/anna\0XTRACEWEIR_RUNTIME_DIR=/no\0");
    write(
        &root,
        "maps",
        "7f00-7f01 r-xp 0 00:1 5 /usr/lib/libc.so.6\n7f02-7f03 r-xp 0 00:1 6 /usr/lib/libtraceweir.so.0\n",
    );
    write(&root, "exe", "a program");
    root
}

fn write(root: &TempDir, name: &str, text: &str) {
    fs::write(root.path().join("proc/4711").join(name), text).unwrap();
}

fn replace_link(root: &TempDir, name: &str, to: &str) {
    let path = root.path().join("proc/4711").join(name);
    fs::remove_file(&path).unwrap();
    symlink(to, path).unwrap();
}

/// Returns Anna's own daemon, which knows the process.
fn own_daemon() -> DaemonView {
    DaemonView {
        caller_uid: ANNA_UID,
        caller_runtime_dir: None,
        folder: "/run/user/1000/traceweir".into(),
        is_system: false,
        // The process id in the name of each socket, and the owner of the socket.
        sockets: Some(vec![(1, ANNA_UID), (PID, ANNA_UID)]),
        provider_names: Some(vec!["MyCompany.App".to_owned()]),
        is_contained: Some(false),
    }
}

#[track_caller]
fn expect(root: &TempDir, daemon: &DaemonView, name: &str, state: CheckState, text: &str) {
    let checks = TargetProcess::read(root.path(), PID).checks(daemon);
    let check = checks.iter().find(|check| check.subject.name == name);
    let check = check.unwrap_or_else(|| panic!("there is no check {name}"));
    assert_eq!(check.state, state, "{}", check.found);
    assert!(check.found.contains(text), "{} does not contain {text:?}", check.found);
}

#[test]
fn known_process_passes_every_check() {
    let checks = TargetProcess::read(new_process().path(), PID).checks(&own_daemon());
    for check in &checks {
        assert_eq!(check.state, Fine, "{}: {}", check.subject.name, check.found);
    }
    assert_eq!(checks.len(), 8);
    expect(
        &new_process(),
        &own_daemon(),
        "process_providers",
        Fine,
        "1 provider of process 4711: MyCompany.App",
    );
    expect(&new_process(), &own_daemon(), "process_library", Fine, "/usr/lib/libtraceweir.so.0");
}

#[test]
fn missing_process_is_the_only_finding() {
    let checks = TargetProcess::read(new_process().path(), 5).checks(&own_daemon());
    assert_eq!(checks.len(), 1);
    assert!(checks[0].found.contains("no process 5"), "{}", checks[0].found);
}

#[test]
fn unregistered_process_differs_from_unreachable_daemon() {
    let without_providers =
        DaemonView { provider_names: Some(Vec::new()), sockets: Some(Vec::new()), ..own_daemon() };
    expect(&new_process(), &without_providers, "process_providers", Missing, "no provider in process 4711");
    expect(&new_process(), &without_providers, "process_socket", Limited, "there is none");
    let no_daemon = DaemonView { provider_names: None, sockets: None, ..own_daemon() };
    expect(&new_process(), &no_daemon, "process_providers", Limited, "no daemon");
    expect(&new_process(), &no_daemon, "process_socket", Limited, "cannot be read");
    // A socket of another user does not count, even if its name has the pid of the process.
    let forged = DaemonView { sockets: Some(vec![(PID, 1001)]), ..own_daemon() };
    expect(&new_process(), &forged, "process_socket", Limited, "there is none");
}

#[test]
fn processes_of_other_callers_need_the_system_daemon() {
    let of_other_caller = DaemonView { caller_uid: 1001, ..own_daemon() };
    expect(&new_process(), &of_other_caller, "process_user", Missing, "another user's (uid 1000)");
    expect(
        &new_process(),
        &DaemonView { is_system: true, ..of_other_caller },
        "process_user",
        Fine,
        "all users",
    );
    let root = new_process();
    let program = root.path().join("proc/4711/exe");
    fs::set_permissions(program, fs::Permissions::from_mode(0o4755)).unwrap();
    expect(&root, &own_daemon(), "process_user", Missing, "set-user-id");
}

#[test]
fn different_runtime_dir_is_found_in_the_environment() {
    let root = new_process();
    write(&root, "environ", "A=1\0TRACEWEIR_RUNTIME_DIR=/srv/it's\0");
    expect(&root, &own_daemon(), "process_folder", Missing, "/srv/it's");
    let checks = TargetProcess::read(root.path(), PID).checks(&own_daemon());
    let advice = checks
        .iter()
        .find_map(|check| check.advice.as_ref().filter(|advice| advice.step.starts_with(RUNTIME_VARIABLE)));
    assert_eq!(advice.unwrap().step, "TRACEWEIR_RUNTIME_DIR='/srv/it'\\''s' weir …");
    let same_folder = DaemonView { caller_runtime_dir: Some("/srv/it's".into()), ..own_daemon() };
    expect(&root, &same_folder, "process_folder", Fine, "");
    expect(&new_process(), &same_folder, "process_folder", Missing, "yours is set");
    fs::remove_file(root.path().join("proc/4711/environ")).unwrap();
    expect(&root, &own_daemon(), "process_folder", Limited, "not shown");
}

#[test]
fn containers_sandboxes_and_replaced_libraries_are_reported() {
    let root = new_process();
    write(&root, "status", "Uid:\t0\t1000\t1000\t1000\nNSpid:\t4711\t7\nSeccomp:\t2\n");
    write(&root, "maps", "7f02-7f03 r-xp 0 00:1 6 /opt/a b/libtraceweir.so.0 (deleted)\n");
    replace_link(&root, "ns/pid", "pid:[9]");
    let knows_inner_pid = DaemonView { sockets: Some(vec![(7, ANNA_UID)]), ..own_daemon() };
    expect(&root, &knows_inner_pid, "process_namespace", Fine, "its pid is 7");
    expect(&root, &knows_inner_pid, "process_socket", Fine, "there is one");
    expect(&root, &knows_inner_pid, "process_sandbox", Limited, "seccomp");
    expect(
        &root,
        &knows_inner_pid,
        "process_library",
        Limited,
        "/opt/a b/libtraceweir.so.0 has been replaced",
    );
    replace_link(&root, "ns/mnt", "mnt:[9]");
    expect(&root, &knows_inner_pid, "process_namespace", Limited, "mount namespace of its own");
    write(&root, "maps", &"7f02-7f03 r-xp 0 00:1 6 /usr/lib/other.so\n".repeat(50_000));
    expect(&root, &knows_inner_pid, "process_library", Limited, "too long");
    write(&root, "maps", "");
    expect(&root, &knows_inner_pid, "process_library", Fine, "not loaded");
}

/// Opening a FIFO without a writer blocks, like reading from a process or a file system that hangs.
#[test]
fn hanging_process_is_reported_after_timeout() {
    let root = new_process();
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
    let start = Instant::now();
    expect(&root, &own_daemon(), "process_folder", Limited, "its environment is not readable within 2 s");
    assert!(start.elapsed() < 5 * ANSWER_TIMEOUT, "{:?}", start.elapsed());
    let checks = TargetProcess::read(root.path(), PID).checks(&own_daemon());
    let state_of = |name: &str| checks.iter().find(|check| check.subject.name == name).unwrap().state;
    assert_eq!(
        (state_of("process_library"), state_of("process_user")),
        (Limited, Fine),
        "the other checks must still be reported"
    );
}

#[test]
fn contained_process_is_reported_with_options_to_include_it() {
    let contained = DaemonView { is_contained: Some(true), ..own_daemon() };
    let root = new_process();
    expect(&root, &contained, "process_container", Missing, "PID namespace is not the daemon's");
    let id = "4f1d0c3b5a69788796a5b4c3d2e1f00f";
    write(&root, "cgroup", &format!("0::/process_api/{id}\n"));
    expect(&root, &contained, "process_container", Missing, id);
    let checks = TargetProcess::read(root.path(), PID).checks(&contained);
    let advice = checks
        .iter()
        .find(|check| check.subject.name == "process_container")
        .map(|check| format!("{:?}", check.advice));
    assert!(
        advice
            .is_some_and(|advice| advice.contains("@silos") && advice.contains(&format!("@container={id}")))
    );
    let unknown = DaemonView { is_contained: None, ..own_daemon() };
    assert_eq!(TargetProcess::read(root.path(), PID).checks(&unknown).len(), 7);
}
