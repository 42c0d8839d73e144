//! Private sessions that a process runs for a daemon: which users' sessions it runs, in which
//! order, and what it refuses.

use std::path::Path;

use traceweir::Provider;
use traceweir::controller::{EnableCode, EnableParams, Properties, SessionConfig, Update};
use traceweir_transport::message::{Control, Message};

use crate::daemon::{Process, listen};
use crate::{PROVIDER, Scenario, Stage, event, mark, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] = &[("one event at once", one_event_at_once)];

const SESSION: u64 = 0x7_0001;

fn start(session: u64, starter: u32, file: &Path) -> Message {
    let config = SessionConfig {
        name: "outside".into(),
        guid: PROVIDER,
        log_file_mode: 0x801,
        log_file: Some(file.into()),
        ..SessionConfig::default()
    };
    Message::PrivateStart { order: 1, session, starter, config: Box::new(config) }
}

fn enable(order: u32, session: u64) -> Message {
    let params = Box::new(EnableParams::default());
    Message::PrivateEnable { order, session, provider: PROVIDER, code: EnableCode::Enable, params }
}

fn control(order: u32, session: u64, control: Control) -> Message {
    Message::PrivateControl { order, session, user: me(), control }
}

/// Waits for `PrivateState`, and returns its order, status and properties.
fn state(process: &mut Process) -> (u32, u32, Properties) {
    match process.next() {
        Message::PrivateState { order, status, reason, properties, .. } => {
            assert_eq!(status == 0, reason.is_empty(), "{reason}");
            (order, status, *properties)
        }
        other => panic!("{other:?} instead of PrivateState"),
    }
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn private_session_started_before_registration_reply_gets_first_event() {
    let stage = Stage::new();
    let (listener, file) = (listen(&stage.runtime()), stage.path("a.etl"));
    let scenario = stage.spawn("one event at once");
    let mut process = Process::accept(&listener);
    let registration = process.await_register();
    process.send(&start(SESSION, me(), &file));
    process.send(&enable(0, SESSION));
    process.answer(&Message::Registered { registration });
    let (order, status, properties) = state(&mut process);
    assert_eq!((order, status, properties.config.log_file_mode), (1, 0, 0x801));
    assert_eq!(state(&mut process).1, 0);
    wait_for_mark(stage.folder.path(), "written");
    process.send(&control(2, SESSION, Control::Stop));
    let (order, status, properties) = state(&mut process);
    assert_eq!((order, status, properties.events, properties.events_lost), (2, 0, 1, 0));
    for gone in [control(3, SESSION, Control::Query), enable(3, SESSION), control(3, 99, Control::Stop)] {
        process.send(&gone);
        assert_eq!(state(&mut process).1, 4201);
    }
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

#[test]
fn private_sessions_of_other_users_and_invalid_ones_are_refused_without_file() {
    let stage = Stage::new();
    let (listener, file) = (listen(&stage.runtime()), stage.path("a.etl"));
    let scenario = stage.spawn("one event at once");
    let mut process = Process::accept(&listener);
    let registration = process.await_register();
    process.answer(&Message::Registered { registration });
    wait_for_mark(stage.folder.path(), "written");
    process.send(&start(SESSION, me() + 1, &file));
    assert_eq!(state(&mut process).1, 5, "another user");
    if me() != 0 {
        process.send(&start(SESSION, 0, &file));
        assert_eq!(state(&mut process).1, 5, "only root's daemon can act for root");
    }
    // Both processes run as the same user, which is root if root runs the test.
    let Message::PrivateStart { config, .. } = start(SESSION, me(), &file) else { unreachable!() };
    let live = Box::new(SessionConfig { log_file_mode: 0x900, ..*config.clone() });
    process.send(&Message::PrivateStart { order: 1, session: SESSION, starter: me(), config: live });
    assert_eq!(state(&mut process).1, 87, "real-time");
    process.send(&start(SESSION, me(), &stage.path("none/a.etl")));
    assert_eq!(state(&mut process).1, 3);
    assert!(!file.exists());

    process.send(&start(SESSION, me(), &file));
    assert_eq!(state(&mut process).1, 0, "the user itself");
    process.send(&start(SESSION, me(), &stage.path("b.etl")));
    assert_eq!(state(&mut process).1, 183);
    process.send(&start(SESSION + 1, me(), &file));
    assert_eq!(state(&mut process).1, 161, "the log file is in use");
    let update = Update { log_file: Some(stage.path("none/a.etl")), ..Update::default() };
    process.send(&control(5, SESSION, Control::Update(update)));
    assert_eq!(state(&mut process).1, 3);
    let log_file = Some(stage.path("theirs.etl"));
    let update = Control::Update(Update { log_file: log_file.clone(), ..Update::default() });
    for control in [update, Control::Flush { log_file }] {
        process.send(&Message::PrivateControl { order: 5, session: SESSION, user: me() + 1, control });
        assert_eq!(state(&mut process).1, 5, "another user cannot name a file");
    }
    assert!(!stage.path("theirs.etl").exists());
    let own = Update { log_file: Some(file.clone()), ..Update::default() };
    process.send(&control(5, SESSION, Control::Update(own)));
    assert_eq!(state(&mut process).1, 161, "the log file is in use");
    let update = Update { log_file: Some(stage.path("c.etl")), ..Update::default() };
    process.send(&control(5, SESSION, Control::Update(update)));
    let (_, status, properties) = state(&mut process);
    assert_eq!((status, properties.config.log_file), (0, Some(stage.path("c.etl"))));
    process.send(&start(SESSION + 1, me(), &stage.path("c.etl")));
    assert_eq!(state(&mut process).1, 161, "the session now writes to it");
    for odd in [Control::Increment, Control::ConvertToRealTime, Control::Outcome] {
        process.send(&control(5, SESSION, odd));
        assert_eq!(state(&mut process).1, 1);
    }
    assert!(!process.is_gone());
    // The daemon closes the connection without a message: the session ends as if it had been
    // stopped.
    drop(process);
    crate::until("a final file", || {
        crate::etl::Trace::open(std::fs::File::open(stage.path("c.etl")).unwrap())
            .is_ok_and(|t| t.is_finalised())
    });
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

fn one_event_at_once(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    // Writes nothing unless a session is enabled.
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    mark(folder, "written");
    wait_for_mark(folder, "done");
}
