//! Tests of sessions inside one process: their files are complete after an exit of the process, and
//! valid after a kill.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use traceweir::Provider;
use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::private::PrivateSession;
use traceweir_format::etl::{Trace, repair};
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;

use crate::fixture::{WritePath, until};
use crate::roles::{PROVIDER, Progress, role_variable, write_event};
use crate::tally::{EventTally, assert_sound};

/// The child role, with the arguments `FILE EVENTS PROGRESS`: exits without stopping its session.
/// In PROGRESS, counter 0 is the number of written events, counter 1 that of flushed events.
pub(crate) fn run_role(words: &[&str]) {
    let config = SessionConfig {
        name: "private".to_owned(),
        log_file: Some(PathBuf::from(words[0])),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        flush_timer: 1,
        ..SessionConfig::default()
    };
    let session = PrivateSession::start(&config).expect("the private session did not start");
    session.enable(PROVIDER, &EnableParams::default()).expect("the provider cannot be enabled");
    let provider = Provider::register(PROVIDER, None).expect("the provider did not register");
    let progress = Progress::open(words[2].as_ref());
    for number in 0..words[1].parse().expect("the argument is not a number") {
        write_event(&provider, 0, 0, number, &[0x5A; 24]);
        progress.counter(0).store(number + 1, Ordering::Release);
        if number % 256 == 255 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if number % 4_096 == 4_095 {
            session.flush(None).expect("the session cannot be flushed");
            progress.counter(1).store(number + 1, Ordering::Release);
        }
    }
    // `exit` must finalise the file, even if no destructor stops the session.
    std::mem::forget(session);
}

fn private_session_command(folder: &std::path::Path, events: u64, path: WritePath) -> Command {
    let words =
        format!("private {} {events} {}", folder.join("p.etl").display(), folder.join("progress").display());
    let (name, value) = role_variable(&words);
    let mut command = Command::new(std::env::current_exe().expect("the test program has no path"));
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(name, value);
    // Private sessions need no daemon.
    command.env("TRACEWEIR_RUNTIME_DIR", folder.join("no-daemon")).stdin(Stdio::null()).stdout(Stdio::null());
    path.set_variable(&mut command);
    command
}

#[test]
fn private_session_is_finalised_at_exit_without_loss() {
    for path in WritePath::BOTH {
        let folder = tempfile::tempdir().expect("no temporary folder");
        let status = private_session_command(folder.path(), 20_000, path).status().expect("no child ran");
        assert!(status.success(), "the child failed: {status}");
        let file = folder.path().join("p.etl");
        assert_sound(&file);
        let tally = EventTally::read(&file);
        assert_eq!(tally.count_missing(0, 1, 20_000), tally.events_lost);
        assert!(tally.len() > 0);
    }
}

#[test]
fn killed_private_session_is_valid_to_its_last_flushed_buffer() {
    for path in WritePath::BOTH {
        let folder = tempfile::tempdir().expect("no temporary folder");
        let mut session_process =
            private_session_command(folder.path(), u64::MAX, path).spawn().expect("no child ran");
        let progress = Progress::open(&folder.path().join("progress"));
        until("the session has been flushed twice", || progress.counter(1).load(Ordering::Acquire) >= 8_192);
        session_process.kill().expect("the child cannot be killed");
        session_process.wait().expect("the child cannot be waited for");
        let flushed = progress.counter(1).load(Ordering::Acquire);
        let file = folder.path().join("p.etl");
        let trace =
            Trace::open(std::fs::File::open(&file).expect("cannot open")).expect("the file is not a trace");
        assert!(!trace.is_finalised());
        let repaired = folder.path().join("repaired.etl");
        repair(&trace, std::fs::File::create(&repaired).expect("a file cannot be created"))
            .expect("the trace cannot be repaired");
        assert_sound(&repaired);
        let numbers = EventTally::read(&repaired).event_numbers_of_thread(0, 0);
        // The margin of 500 allows for lost events, which the repaired file need not count.
        assert!(
            numbers.len() as u64 + 500 >= flushed,
            "the file has {} of {flushed} flushed events",
            numbers.len()
        );
        assert!(numbers.last().is_some_and(|&n| n <= progress.counter(0).load(Ordering::Acquire)));
    }
}
