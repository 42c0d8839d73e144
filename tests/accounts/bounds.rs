//! Where space ends: the session stops cleanly, and the file up to there is valid.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use traceweir_transport::message::{Control, Message, Role, SessionConfig, SessionRef};

use crate::fixture::{Link, to_file, until};
use crate::ledger::{Ledger, assert_sound};
use crate::roles::Writer;

/// Ends its process with the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn writer(runtime: &Path, role: &Writer) -> Command {
    let (name, value) = role.role();
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]);
    command.env("TRACEWEIR_RUNTIME_DIR", runtime).env(name, value);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Writes until the session ends by itself, and checks what is left.
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
    let numbers = ledger.of(0, 0);
    assert!(numbers.len() > 500, "{} events", numbers.len());
    assert_eq!(numbers[0], 0);
    let last = *numbers.last().expect("events");
    assert!(last + 1 - numbers.len() as u64 <= u64::from(ledger.lost.0), "no uncounted gaps");
    assert!(ledger.lost.1 > 0, "buffers that could not be written are counted");
    // The daemon itself is well, and says how it came.
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

#[test]
fn a_file_that_may_not_grow_ends_its_session_cleanly() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = folder.path().join("run");
    // 24 MiB in blocks of 512 bytes (dash) or 1024 (bash); beyond, writes fail instead of killing the daemon.
    let script = r#"trap '' XFSZ; ulimit -f 49152; exec "$0" daemon --runtime-dir "$1""#;
    let _daemon = Guard(
        Command::new("sh")
            .args(["-c", script])
            .arg(crate::fixture::weir())
            .arg(&runtime)
            .stdin(Stdio::null())
            .spawn()
            .expect("sh starts"),
    );
    let status = fill(&runtime, folder.path().join("limited.etl"));
    assert_eq!(status, 112, "not enough disk space");
}

#[test]
fn a_full_disk_ends_its_session_cleanly() {
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
