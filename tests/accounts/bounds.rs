//! Tests of exhausted disk space, address space and descriptors: sessions end with valid files, and
//! the daemon continues.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Control, Message, Role, SessionConfig, SessionRef, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Connection;

use crate::fixture::{
    DaemonConnection, KillOnDrop, TEST_TIMEOUT, collect_reports, file_session_config, until,
};
use crate::roles::{Writer, role_variable};
use crate::tally::{EventTally, assert_sound};

/// Builds a command that runs this binary as a child with a role.
fn role_command(runtime: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test program has no path"));
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]);
    command.env("TRACEWEIR_RUNTIME_DIR", runtime);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn writer_command(runtime: &Path, role: &Writer) -> Command {
    let (name, value) = role.role_variable();
    let mut command = role_command(runtime);
    command.env(name, value);
    command
}

/// Writes until the session ends because the file cannot grow. Checks the file and the reported
/// losses, and returns the end status of the session.
fn fill_until_session_ends(runtime: &Path, file: PathBuf) -> u32 {
    let mut control = DaemonConnection::open(runtime, Role::Controller);
    let config = SessionConfig { maximum_buffers: 32, ..file_session_config("full", &file) };
    let session = control.start(config);
    let mut role = Writer::new(0, 1, u64::MAX);
    (role.filler_bytes, role.burst_events, role.pause_ms) = (4_000, 50, 2);
    let mut child = KillOnDrop(writer_command(runtime, &role).spawn().expect("a writer did not start"));
    until("the session ends by itself", || {
        let query = Message::Control { session: SessionRef::Id(session), control: Control::Query };
        match control.ask(&query, &[]).message {
            Message::Refused { status, .. } => {
                assert_eq!(status, Status::ERROR_WMI_INSTANCE_NOT_FOUND.0);
                true
            }
            _ => false,
        }
    });
    child.0.kill().expect("the writer cannot be killed");
    assert_sound(&file);
    let tally = EventTally::read(&file);
    let numbers = tally.event_numbers_of_thread(0, 0);
    assert!(numbers.len() > 500, "the file has only {} events", numbers.len());
    assert_eq!(numbers[0], 0);
    let last = *numbers.last().expect("the file has no events");
    assert!(last + 1 - numbers.len() as u64 <= tally.events_lost, "missing events are not counted as lost");
    assert!(tally.buffers_lost > 0, "buffers that could not be written are not counted");
    // The daemon itself still works, and reports how the session ended.
    let mut control = DaemonConnection::open(runtime, Role::Controller);
    let outcome = control.control(session, Control::Outcome);
    assert_eq!(outcome.events_lost, tally.events_lost);
    assert_eq!(outcome.log_buffers_lost, tally.buffers_lost);
    assert!(matches!(
        control.ask(&Message::QueryAll { from: 0 }, &[]).message,
        Message::Sessions { total: 0, .. }
    ));
    outcome.end_status
}

/// Starts a daemon in a shell that first runs `limits`, such as `ulimit` commands.
fn start_limited_daemon(limits: &str, runtime: &Path) -> KillOnDrop {
    let script = format!(r#"{limits}; exec "$0" daemon --runtime-dir "$1""#);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(crate::fixture::weir()).arg(runtime).stdin(Stdio::null());
    KillOnDrop(command.spawn().expect("sh did not start"))
}

#[test]
fn daemon_without_address_space_refuses_requests_and_keeps_its_sessions() {
    let folder = tempfile::tempdir().expect("no temporary folder");
    let runtime = folder.path().join("run");
    // The unit of the limit is KiB.
    let mut daemon = start_limited_daemon("ulimit -v 500000", &runtime);
    let mut control = DaemonConnection::open(&runtime, Role::Controller);
    let file = folder.path().join("first.etl");
    let first = control.start(file_session_config("first", &file));
    let mut role = Writer::new(0, 1, 20_000);
    (role.burst_events, role.pause_ms) = (250, 1);
    let first_writer =
        writer_command(&runtime, &role).stdout(Stdio::piped()).spawn().expect("a writer did not start");
    // Each session takes 64 MiB (64 buffers of 1,024 KiB), so a few exhaust the address space.
    let mut started = Vec::new();
    let status = (0..64).find_map(|n| {
        let name = folder.path().join(format!("{n}.etl"));
        let config = SessionConfig {
            buffer_size: 1024,
            minimum_buffers: 64,
            ..file_session_config(&format!("large {n}"), &name)
        };
        match control.try_start(config) {
            Ok(session) => started.push(session),
            Err(status) => return Some(status),
        }
        None
    });
    assert_eq!(
        status,
        Some(Status::ERROR_NOT_ENOUGH_MEMORY.0),
        "wrong status after {} sessions",
        started.len()
    );
    assert!(daemon.0.try_wait().expect("the daemon cannot be waited for").is_none(), "the daemon ended");
    // A process that registers now may get no region, which must not end the daemon or a session.
    let second_writer = writer_command(&runtime, &Writer::new(1, 1, 1_000)).stdout(Stdio::piped()).spawn();
    collect_reports(vec![first_writer, second_writer.expect("a writer did not start")]);
    for session in started {
        control.stop(session);
    }
    let last = control.stop(first);
    assert_sound(&file);
    let tally = EventTally::read(&file);
    assert_eq!(
        tally.count_missing(0, 1, 20_000),
        tally.events_lost,
        "missing events are not counted as lost"
    );
    assert!(last.events >= 20_000 - last.events_lost);
    assert_eq!(last.events_lost, tally.events_lost, "reply and file header count different losses");
}

#[test]
fn providers_leave_descriptors_for_controllers() {
    let folder = tempfile::tempdir().expect("no temporary folder");
    let runtime = folder.path().join("run");
    let daemon = start_limited_daemon("ulimit -n 96", &runtime);
    drop(DaemonConnection::open(&runtime, Role::Controller));
    // Together, these processes try to open 14 × 8 connections, which is more than the 96
    // descriptors that the daemon may have.
    let providers = (0..14).map(|_| {
        let (name, value) = role_variable(&format!("providers {}", runtime.display()));
        let mut command = role_command(&runtime);
        KillOnDrop(command.env(name, value).stdin(Stdio::piped()).spawn().expect("providers did not start"))
    });
    let providers: Vec<KillOnDrop> = providers.collect();
    let descriptors = format!("/proc/{}/fd", daemon.0.id());
    until("the daemon has few descriptors left", || {
        std::fs::read_dir(&descriptors).is_ok_and(|entries| entries.count() >= 64)
    });
    let mut control = DaemonConnection::open(&runtime, Role::Controller);
    let file = folder.path().join("late.etl");
    let session = control.start(file_session_config("late", &file));
    control.stop(session);
    assert_sound(&file);
    drop(providers);
}

/// The child role of `providers_leave_descriptors_for_controllers`: tries to open eight connections
/// as a provider, as many as one process may have, and waits to be killed.
pub(crate) fn run_role(words: &[&str]) {
    let socket = RuntimeDir::from_path(words[0].as_ref()).control_socket();
    let connect = |instance| {
        let connection = Connection::connect(&socket, TEST_TIMEOUT).ok()?;
        let (role, program) = (Role::Provider, "providers".to_owned());
        let hello = Message::Hello { versions: VERSIONS, role, instance, program };
        connection.send(1, &hello, &[], TEST_TIMEOUT).ok()?;
        Some(connection)
    };
    let connections: Vec<_> = (0..8).filter_map(connect).collect();
    // The parent kills this process, or the process ends when the parent does.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(connections);
}

#[test]
fn file_size_limit_ends_the_session_cleanly() {
    let folder = tempfile::tempdir().expect("no temporary folder");
    let runtime = folder.path().join("run");
    // The limit is 24 MiB if the shell counts blocks of 512 bytes (dash), and 48 MiB if it counts
    // blocks of 1,024 (bash). Because the signal XFSZ is ignored, a write beyond the limit fails
    // instead of killing the daemon.
    let _daemon = start_limited_daemon("trap '' XFSZ; ulimit -f 49152", &runtime);
    let status = fill_until_session_ends(&runtime, folder.path().join("limited.etl"));
    assert_eq!(status, Status::ERROR_DISK_FULL.0);
}

#[test]
fn full_disk_ends_the_session_cleanly() {
    let folder = tempfile::tempdir().expect("no temporary folder");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("no temporary folder");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "weir-test"]).arg(&disk).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        crate::util::skip("root", "a small file system cannot be mounted without root");
        return;
    }
    let runtime = folder.path().join("run");
    let outcome = std::panic::catch_unwind(|| {
        let _daemon = KillOnDrop(
            Command::new(crate::fixture::weir())
                .args(["daemon", "--runtime-dir"])
                .arg(&runtime)
                .stdin(Stdio::null())
                .spawn()
                .expect("weir daemon did not start"),
        );
        let status = fill_until_session_ends(&runtime, disk.join("full.etl"));
        assert_eq!(status, Status::ERROR_DISK_FULL.0);
    });
    let unmounted = Command::new("umount").arg("-l").arg(&disk).status().expect("umount did not run");
    if let Err(failure) = outcome {
        std::panic::resume_unwind(failure);
    }
    assert!(unmounted.success());
}
