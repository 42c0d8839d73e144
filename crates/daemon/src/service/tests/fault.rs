//! A session whose thread panics ends; the daemon and its other sessions continue, and the name
//! becomes free.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::mpsc::Receiver;

use rustix::event::{EventfdFlags, eventfd};
use traceweir_session::FAULT;
use traceweir_session::capture::{Capture, CaptureClock, CapturedRecord};

use super::*;

/// A capture that panics when it is polled.
struct PanickingCapture(OwnedFd);

impl Capture for PanickingCapture {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn poll(&mut self, _: &dyn CaptureClock, _: bool) {
        panic!("deliberate panic of a test");
    }

    fn peek(&self, _: u16) -> Option<CapturedRecord> {
        None
    }

    fn take(&mut self, _: u16, _: &mut [u8]) {}

    fn lost(&self) -> u64 {
        0
    }

    fn end(&mut self, _: &dyn CaptureClock) {}
}

fn start(service: &mut Service, notices: &Receiver<ThreadNotice>, name: &str) -> u64 {
    let config = SessionConfig {
        name: name.into(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        ..SessionConfig::default()
    };
    send(service, 1, Message::Start(Box::new(config)));
    deliver_notice(service, notices);
    let answers = take_sent(service);
    assert!(answers.len() == 1 && answers[0].contains("Properties"), "{answers:?}");
    service.core.sessions.find(&SessionRef::Name(name.into())).unwrap()
}

#[test]
fn session_whose_collector_panics_fails_and_frees_its_name() {
    let (mut service, notices) = service_with_controller();
    take_sent(&mut service);
    let (failing, healthy) =
        (start(&mut service, &notices, "failing"), start(&mut service, &notices, "healthy"));
    let capture = PanickingCapture(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
    service.core.sessions.session(failing).unwrap().capture(Box::new(capture));
    let next = || notices.recv_timeout(Duration::from_secs(30)).unwrap();
    while service.core.sessions.session(failing).is_some() {
        service.handle_notice(next(), service.now());
    }
    let outcome = service.core.sessions.outcome(&SessionRef::Id(failing)).expect("the outcome was not kept");
    assert_eq!(outcome.end_status, FAULT.0);
    assert_eq!(service.core.sessions.running_ids(), [healthy]);
    let flush =
        Message::Control { session: SessionRef::Id(healthy), control: Control::Flush { log_file: None } };
    send(&mut service, 1, flush);
    service.handle_notice(next(), service.now());
    assert!(take_sent(&mut service)[0].contains("Properties"), "the other session works");
    assert_ne!(start(&mut service, &notices, "failing"), failing);
}

/// Environment variable that makes a thread of the test process panic.
const PANICKING_THREAD: &str = "TRACEWEIR_TEST_PANICKING_THREAD";

/// Runs the test below again in a process where the given thread panics.
fn run_with_panic_in(thread: &str) -> Output {
    let test = "service::tests::fault::panic_ends_the_program_unless_contained";
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture"]).env(PANICKING_THREAD, thread).output().unwrap()
}

#[test]
fn panic_ends_the_program_unless_contained() {
    let Some(thread) = std::env::var_os(PANICKING_THREAD) else {
        let ended = run_with_panic_in("a thread");
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:?}");
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(stderr.contains("uncontained panic"), "{stderr}");
        let ended = run_with_panic_in("a session");
        assert!(ended.status.success(), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("deliberate panic of a test"), "{ended:?}");
        return;
    };
    crate::end_at_panics();
    if thread == "a session" {
        return session_whose_collector_panics_fails_and_frees_its_name();
    }
    let thread = std::thread::spawn(|| panic!("uncontained panic"));
    assert!(thread.join().is_err(), "the program did not abort");
}
