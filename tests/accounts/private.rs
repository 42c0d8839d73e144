//! Sessions inside one process: complete after exit, valid after a kill.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use traceweir::Provider;
use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::private::PrivateSession;
use traceweir_format::etl::{Trace, repair};

use crate::fixture::{WritePath, until};
use crate::ledger::{Ledger, assert_sound};
use crate::roles::{PROVIDER, Progress, other_role, write_one};

/// The child role, with the arguments `FILE EVENTS PROGRESS`: exits without stopping its session.
pub(crate) fn play(words: &[&str]) {
    let config = SessionConfig {
        name: "private".to_owned(),
        log_file: Some(PathBuf::from(words[0])),
        log_file_mode: 1,
        flush_timer: 1,
        ..SessionConfig::default()
    };
    let session = PrivateSession::start(&config).expect("a private session");
    session.enable(PROVIDER, &EnableParams::default()).expect("enabled");
    let provider = Provider::register(PROVIDER, None).expect("registered");
    let progress = Progress::open(words[2].as_ref());
    for number in 0..words[1].parse().expect("a number") {
        write_one(&provider, 0, 0, number, &[0x5A; 24]);
        progress.counter(0).store(number + 1, Ordering::Release);
        if number % 256 == 255 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if number % 4_096 == 4_095 {
            session.flush(None).expect("flushed");
            progress.counter(1).store(number + 1, Ordering::Release);
        }
    }
    // `exit` must finalise the file, without the help of a destructor.
    std::mem::forget(session);
}

fn child(folder: &std::path::Path, events: u64, path: WritePath) -> Command {
    let words =
        format!("private {} {events} {}", folder.join("p.etl").display(), folder.join("progress").display());
    let (name, value) = other_role(&words);
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(name, value);
    // No daemon can be found, and none is needed.
    command.env("TRACEWEIR_RUNTIME_DIR", folder.join("nobody")).stdin(Stdio::null()).stdout(Stdio::null());
    path.apply(&mut command);
    command
}

#[test]
fn private_session_is_finalised_at_exit_without_loss() {
    for path in WritePath::BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let status = child(folder.path(), 20_000, path).status().expect("the child runs");
        assert!(status.success(), "{status}");
        let file = folder.path().join("p.etl");
        assert_sound(&file);
        let ledger = Ledger::read(&file);
        assert_eq!(ledger.missing(0, 1, 20_000), u64::from(ledger.lost.0));
        assert!(ledger.len() > 0);
    }
}

#[test]
fn killed_private_session_is_valid_to_its_last_flushed_buffer() {
    for path in WritePath::BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let mut owner = child(folder.path(), u64::MAX, path).spawn().expect("the child runs");
        let progress = Progress::open(&folder.path().join("progress"));
        until("two flushes", || progress.counter(1).load(Ordering::Acquire) >= 8_192);
        owner.kill().expect("the owner is there");
        owner.wait().expect("the owner ends");
        let flushed = progress.counter(1).load(Ordering::Acquire);
        let file = folder.path().join("p.etl");
        let trace = Trace::open(std::fs::File::open(&file).expect("the file")).expect("a trace");
        assert!(!trace.is_finalised());
        let mended = folder.path().join("mended.etl");
        repair(&trace, std::fs::File::create(&mended).expect("a new file")).expect("repaired");
        assert_sound(&mended);
        let numbers = Ledger::read(&mended).thread_numbers(0, 0);
        assert!(numbers.len() as u64 + 500 >= flushed, "{} of {flushed} flushed events", numbers.len());
        assert!(numbers.last().is_some_and(|&n| n <= progress.counter(0).load(Ordering::Acquire)));
    }
}
