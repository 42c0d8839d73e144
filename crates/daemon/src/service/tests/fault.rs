//! A session whose thread panics ends; the daemon, its other sessions and the name go on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::mpsc::Receiver;

use rustix::event::{EventfdFlags, eventfd};
use traceweir_session::FAULT;
use traceweir_session::capture::{Capture, CaptureClock, Captured};

use super::*;

/// A capture that panics when it is looked at.
struct Stumbling(OwnedFd);

impl Capture for Stumbling {
    fn wake(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn look(&mut self, _: &dyn CaptureClock, _: bool) {
        panic!("a test makes it");
    }

    fn peek(&self, _: u16) -> Option<Captured> {
        None
    }

    fn take(&mut self, _: u16, _: &mut [u8]) {}

    fn lost(&self) -> u64 {
        0
    }

    fn end(&mut self, _: &dyn CaptureClock) {}
}

fn start(service: &mut Service, notices: &Receiver<Notice>, name: &str) -> u64 {
    let config = SessionConfig { name: name.into(), log_file_mode: 0x100, ..SessionConfig::default() };
    say(service, 1, Message::Start(Box::new(config)));
    service.notice(notices.recv_timeout(Duration::from_secs(30)).unwrap());
    let answers = heard(service);
    assert!(answers.len() == 1 && answers[0].contains("Properties"), "{answers:?}");
    service.sessions.find(&SessionRef::Name(name.into())).unwrap()
}

#[test]
fn a_session_whose_collector_panics_ends_as_failed_and_its_name_is_free_again() {
    let (mut service, notices) = with_notices();
    heard(&mut service);
    let (falls, stays) = (start(&mut service, &notices, "falls"), start(&mut service, &notices, "stays"));
    let capture = Stumbling(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
    service.sessions.session(falls).unwrap().capture(Box::new(capture));
    let next = || notices.recv_timeout(Duration::from_secs(30)).unwrap();
    while service.sessions.session(falls).is_some() {
        service.notice(next());
    }
    let outcome = service.sessions.outcome(&SessionRef::Id(falls)).expect("it is remembered");
    assert_eq!(outcome.end_status, FAULT.0);
    assert_eq!(service.sessions.running(), [stays]);
    let query =
        Message::Control { session: SessionRef::Id(stays), control: Control::Flush { log_file: None } };
    say(&mut service, 1, query);
    service.notice(next());
    assert!(heard(&mut service)[0].contains("Properties"), "the other works");
    assert_ne!(start(&mut service, &notices, "falls"), falls);
}

/// Says what panics, in a process of its own.
const WHO: &str = "TRACEWEIR_TEST_WHO_PANICS";

/// Runs the test below again, in a process where this panics.
fn where_panics(who: &str) -> Output {
    let test = "service::tests::fault::a_panic_ends_the_program_unless_it_is_contained";
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture"]).env(WHO, who).output().unwrap()
}

#[test]
fn a_panic_ends_the_program_unless_it_is_contained() {
    let Some(who) = std::env::var_os(WHO) else {
        let ended = where_panics("a thread");
        assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(told.contains("nobody contains it"), "{told}");
        let ended = where_panics("a session");
        assert!(ended.status.success(), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("a test makes it"), "{ended:?}");
        return;
    };
    crate::end_at_panics();
    if who == "a session" {
        return a_session_whose_collector_panics_ends_as_failed_and_its_name_is_free_again();
    }
    let alone = std::thread::spawn(|| panic!("nobody contains it"));
    assert!(alone.join().is_err(), "the program goes on");
}
