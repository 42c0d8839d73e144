//! Exhausted space: the session stops cleanly, and the file up to that point is valid.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use traceweir_transport::message::{Control, Message, Role, SessionConfig, SessionRef, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Connection;

use crate::fixture::{Link, PATIENCE, reports, to_file, until};
use crate::ledger::{Ledger, assert_sound};
use crate::roles::{Writer, other_role};

/// A child process that drop kills.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds a command that runs this binary as a child with a role.
fn role_command(runtime: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]);
    command.env("TRACEWEIR_RUNTIME_DIR", runtime);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn writer(runtime: &Path, role: &Writer) -> Command {
    let (name, value) = role.role();
    let mut command = role_command(runtime);
    command.env(name, value);
    command
}

/// Writes until the session ends by itself, checks the file and the reported losses, and returns
/// the status of the end.
fn fill(runtime: &Path, file: PathBuf) -> u32 {
    let mut control = Link::open(runtime, Role::Controller);
    let config = SessionConfig { maximum_buffers: 32, ..to_file("full", &file) };
    let session = control.start(config);
    let mut role = Writer::new(0, 1, u64::MAX);
    (role.filler, role.burst, role.pause_ms) = (4_000, 50, 2);
    let mut child = Guard(writer(runtime, &role).spawn().expect("a writer starts"));
    until("the session ends by itself", || {
        let query = Message::Control { session: SessionRef::Id(session), control: Control::Query };
        match control.ask(&query, &[]).message {
            Message::Refused { status, .. } => {
                assert_eq!(status, 4201);
                true
            }
            _ => false,
        }
    });
    child.0.kill().expect("the writer is there");
    assert_sound(&file);
    let ledger = Ledger::read(&file);
    let numbers = ledger.thread_numbers(0, 0);
    assert!(numbers.len() > 500, "{} events", numbers.len());
    assert_eq!(numbers[0], 0);
    let last = *numbers.last().expect("events");
    assert!(last + 1 - numbers.len() as u64 <= u64::from(ledger.lost.0), "no uncounted gaps");
    assert!(ledger.lost.1 > 0, "buffers that could not be written are counted");
    // The daemon itself still works, and reports how the session ended.
    let mut control = Link::open(runtime, Role::Controller);
    let outcome = control.control(session, Control::Outcome);
    assert_eq!(outcome.events_lost, u64::from(ledger.lost.0));
    assert_eq!(outcome.log_buffers_lost, ledger.lost.1);
    assert!(matches!(
        control.ask(&Message::QueryAll { from: 0 }, &[]).message,
        Message::Sessions { total: 0, .. }
    ));
    outcome.end_status
}

/// Starts a daemon after these shell commands, which limit it.
fn limited_daemon(limits: &str, runtime: &Path) -> Guard {
    let script = format!(r#"{limits}; exec "$0" daemon --runtime-dir "$1""#);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(crate::fixture::weir()).arg(runtime).stdin(Stdio::null());
    Guard(command.spawn().expect("sh starts"))
}

#[test]
fn daemon_without_address_space_refuses_requests_and_keeps_its_sessions() {
    const REFUSED: u32 = 8;
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = folder.path().join("run");
    let mut daemon = limited_daemon("ulimit -v 500000", &runtime);
    let mut control = Link::open(&runtime, Role::Controller);
    let file = folder.path().join("first.etl");
    let first = control.start(to_file("first", &file));
    let mut role = Writer::new(0, 1, 20_000);
    (role.burst, role.pause_ms) = (250, 1);
    let early = writer(&runtime, &role).stdout(Stdio::piped()).spawn().expect("a writer starts");
    // Each session takes 64 MiB, so that a few exhaust the address space.
    let mut started = Vec::new();
    let status = (0..64).find_map(|n| {
        let name = folder.path().join(format!("{n}.etl"));
        let config =
            SessionConfig { buffer_size: 1024, minimum_buffers: 64, ..to_file(&format!("large {n}"), &name) };
        match control.try_start(config) {
            Ok(session) => started.push(session),
            Err(status) => return Some(status),
        }
        None
    });
    assert_eq!(status, Some(REFUSED), "after {} sessions", started.len());
    assert!(daemon.0.try_wait().expect("a status").is_none(), "the daemon runs on");
    // A process that registers now may get no region, which must end nothing.
    let late = writer(&runtime, &Writer::new(1, 1, 1_000)).stdout(Stdio::piped()).spawn();
    reports(vec![early, late.expect("a writer starts")]);
    for session in started {
        control.stop(session);
    }
    let last = control.stop(first);
    assert_sound(&file);
    let ledger = Ledger::read(&file);
    assert_eq!(ledger.missing(0, 1, 20_000), u64::from(ledger.lost.0), "no uncounted gaps");
    assert!(last.events >= 20_000 - last.events_lost);
    assert_eq!(last.events_lost, u64::from(ledger.lost.0), "answer and file header agree");
}

#[test]
fn providers_leave_descriptors_for_controllers() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = folder.path().join("run");
    let daemon = limited_daemon("ulimit -n 96", &runtime);
    drop(Link::open(&runtime, Role::Controller));
    let providers = (0..14).map(|_| {
        let (name, value) = other_role(&format!("providers {}", runtime.display()));
        let mut command = role_command(&runtime);
        Guard(command.env(name, value).stdin(Stdio::piped()).spawn().expect("providers start"))
    });
    let providers: Vec<Guard> = providers.collect();
    let descriptors = format!("/proc/{}/fd", daemon.0.id());
    until("the daemon has few descriptors left", || {
        std::fs::read_dir(&descriptors).is_ok_and(|entries| entries.count() >= 64)
    });
    let mut control = Link::open(&runtime, Role::Controller);
    let file = folder.path().join("late.etl");
    let session = control.start(to_file("late", &file));
    control.stop(session);
    assert_sound(&file);
    drop(providers);
}

/// The child of the test above: opens as many connections as one process may have, and waits to be
/// killed.
pub(crate) fn play(words: &[&str]) {
    let socket = RuntimeDir::from_path(words[0].as_ref()).control_socket();
    let connect = |instance| {
        let connection = Connection::connect(&socket, PATIENCE).ok()?;
        let (role, program) = (Role::Provider, "providers".to_owned());
        let hello = Message::Hello { versions: VERSIONS, role, instance, program };
        connection.send(1, &hello, &[], PATIENCE).ok()?;
        Some(connection)
    };
    let connections: Vec<_> = (0..8).filter_map(connect).collect();
    // The parent kills this process, or the process ends when the parent does.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(connections);
}

#[test]
fn file_size_limit_ends_the_session_cleanly() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = folder.path().join("run");
    // 24 MiB in blocks of 512 bytes (dash) or 1024 (bash); beyond that, writes fail instead of
    // killing the daemon.
    let _daemon = limited_daemon("trap '' XFSZ; ulimit -f 49152", &runtime);
    let status = fill(&runtime, folder.path().join("limited.etl"));
    assert_eq!(status, 112, "not enough disk space");
}

#[test]
fn full_disk_ends_the_session_cleanly() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "weir-test"]).arg(&disk).output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        crate::util::skip("root", "a small file system cannot be mounted without root");
        return;
    }
    let runtime = folder.path().join("run");
    let outcome = std::panic::catch_unwind(|| {
        let _daemon = Guard(
            Command::new(crate::fixture::weir())
                .args(["daemon", "--runtime-dir"])
                .arg(&runtime)
                .stdin(Stdio::null())
                .spawn()
                .expect("weir daemon starts"),
        );
        let status = fill(&runtime, disk.join("full.etl"));
        assert_eq!(status, 112, "not enough disk space");
    });
    let unmounted = Command::new("umount").arg("-l").arg(&disk).status().expect("umount runs");
    if let Err(failure) = outcome {
        std::panic::resume_unwind(failure);
    }
    assert!(unmounted.success());
}
