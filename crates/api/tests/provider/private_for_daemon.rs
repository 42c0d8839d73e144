//! Private sessions that a process runs for a daemon: which users' sessions it runs, which event is
//! the first, and what it refuses.

use std::path::Path;

use traceweir::controller::{EnableCode, EnableParams, Properties, SessionConfig, Update};
use traceweir::{Provider, Status};
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_PRIVATE_LOGGER_MODE, EVENT_TRACE_REAL_TIME_MODE,
};
use traceweir_transport::message::{Control, Message};

use crate::daemon::{ProcessConnection, listen};
use crate::{PROVIDER, Scenario, ScenarioRunner, event, set_mark, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] = &[("one event at once", write_one_event)];

const SESSION: u64 = 0x7_0001;
const PRIVATE_FILE_MODE: u32 = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL;

fn start_message(session: u64, starter: u32, file: &Path) -> Message {
    let config = SessionConfig {
        name: "outside".into(),
        guid: PROVIDER,
        log_file_mode: PRIVATE_FILE_MODE,
        log_file: Some(file.into()),
        ..SessionConfig::default()
    };
    Message::PrivateStart { order: 1, session, starter, config: Box::new(config) }
}

fn enable_message(order: u32, session: u64) -> Message {
    let params = Box::new(EnableParams::default());
    Message::PrivateEnable { order, session, provider: PROVIDER, code: EnableCode::Enable, params }
}

fn control_message(order: u32, session: u64, control: Control) -> Message {
    Message::PrivateControl { order, session, user: current_uid(), control }
}

/// The answer of a process to an order about its private session.
struct PrivateState {
    order: u32,
    status: Status,
    properties: Properties,
}

fn expect_state(process: &mut ProcessConnection) -> PrivateState {
    match process.receive() {
        Message::PrivateState { order, status, reason, properties, .. } => {
            assert_eq!(status == 0, reason.is_empty(), "{reason}");
            PrivateState { order, status: Status(status), properties: *properties }
        }
        other => panic!("{other:?} instead of PrivateState"),
    }
}

/// Asserts that the next `PrivateState` has this status.
#[track_caller]
fn assert_status(process: &mut ProcessConnection, expected: Status, message: &str) {
    assert_eq!(expect_state(process).status, expected, "{message}");
}

fn current_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn private_session_started_before_registration_reply_gets_first_event() {
    let runner = ScenarioRunner::new();
    let (listener, file) = (listen(&runner.runtime()), runner.path("a.etl"));
    let scenario = runner.spawn("one event at once");
    let mut process = ProcessConnection::accept(&listener);
    let registration = process.await_register();
    process.send(&start_message(SESSION, current_uid(), &file));
    process.send(&enable_message(0, SESSION));
    process.answer(&Message::Registered { registration });
    let started = expect_state(&mut process);
    assert_eq!((started.order, started.status), (1, Status::ERROR_SUCCESS));
    assert_eq!(started.properties.config.log_file_mode, PRIVATE_FILE_MODE);
    assert_status(&mut process, Status::ERROR_SUCCESS, "");
    runner.wait_for_mark("written");
    process.send(&control_message(2, SESSION, Control::Stop));
    let stopped = expect_state(&mut process);
    assert_eq!((stopped.order, stopped.status), (2, Status::ERROR_SUCCESS));
    assert_eq!((stopped.properties.events, stopped.properties.events_lost), (1, 0));
    for order_to_ended_session in [
        control_message(3, SESSION, Control::Query),
        enable_message(3, SESSION),
        control_message(3, 99, Control::Stop),
    ] {
        process.send(&order_to_ended_session);
        assert_status(&mut process, Status::ERROR_WMI_INSTANCE_NOT_FOUND, "");
    }
    runner.set_mark("done");
    scenario.assert_success();
}

#[test]
fn private_sessions_of_other_users_and_invalid_ones_are_refused_without_file() {
    let runner = ScenarioRunner::new();
    let (listener, file) = (listen(&runner.runtime()), runner.path("a.etl"));
    let scenario = runner.spawn("one event at once");
    let mut process = ProcessConnection::accept(&listener);
    let registration = process.await_register();
    process.answer(&Message::Registered { registration });
    runner.wait_for_mark("written");
    process.send(&start_message(SESSION, current_uid() + 1, &file));
    assert_status(&mut process, Status::ERROR_ACCESS_DENIED, "another user cannot start a session");
    if current_uid() != 0 {
        process.send(&start_message(SESSION, 0, &file));
        assert_status(&mut process, Status::ERROR_ACCESS_DENIED, "only root's daemon can act for root");
    }
    // The test, which plays the daemon, and the scenario run as the same user, so the process
    // accepts this starter. The sessions are refused for other reasons.
    let Message::PrivateStart { config, .. } = start_message(SESSION, current_uid(), &file) else {
        unreachable!()
    };
    let live = Box::new(SessionConfig {
        log_file_mode: EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_REAL_TIME_MODE,
        ..*config.clone()
    });
    process.send(&Message::PrivateStart { order: 1, session: SESSION, starter: current_uid(), config: live });
    assert_status(&mut process, Status::ERROR_INVALID_PARAMETER, "a private session cannot be real-time");
    process.send(&start_message(SESSION, current_uid(), &runner.path("none/a.etl")));
    assert_status(&mut process, Status::ERROR_PATH_NOT_FOUND, "");
    assert!(!file.exists());

    process.send(&start_message(SESSION, current_uid(), &file));
    assert_status(&mut process, Status::ERROR_SUCCESS, "the user of the process can start a session");
    process.send(&start_message(SESSION, current_uid(), &runner.path("b.etl")));
    assert_status(&mut process, Status::ERROR_ALREADY_EXISTS, "");
    process.send(&start_message(SESSION + 1, current_uid(), &file));
    assert_status(&mut process, Status::ERROR_BAD_PATHNAME, "the log file is in use");
    let update = Update { log_file: Some(runner.path("none/a.etl")), ..Update::default() };
    process.send(&control_message(5, SESSION, Control::Update(update)));
    assert_status(&mut process, Status::ERROR_PATH_NOT_FOUND, "");
    let log_file = Some(runner.path("theirs.etl"));
    let update = Control::Update(Update { log_file: log_file.clone(), ..Update::default() });
    for control in [update, Control::Flush { log_file }] {
        process.send(&Message::PrivateControl {
            order: 5,
            session: SESSION,
            user: current_uid() + 1,
            control,
        });
        assert_status(&mut process, Status::ERROR_ACCESS_DENIED, "another user cannot name a file");
    }
    assert!(!runner.path("theirs.etl").exists());
    let same_file = Update { log_file: Some(file.clone()), ..Update::default() };
    process.send(&control_message(5, SESSION, Control::Update(same_file)));
    assert_status(&mut process, Status::ERROR_BAD_PATHNAME, "the log file is in use");
    let update = Update { log_file: Some(runner.path("c.etl")), ..Update::default() };
    process.send(&control_message(5, SESSION, Control::Update(update)));
    let updated = expect_state(&mut process);
    assert_eq!(updated.status, Status::ERROR_SUCCESS);
    assert_eq!(updated.properties.config.log_file, Some(runner.path("c.etl")));
    process.send(&start_message(SESSION + 1, current_uid(), &runner.path("c.etl")));
    assert_status(&mut process, Status::ERROR_BAD_PATHNAME, "the first session now writes this file");
    for unsupported in [Control::Increment, Control::ConvertToRealTime, Control::Outcome] {
        process.send(&control_message(5, SESSION, unsupported));
        assert_status(&mut process, Status::ERROR_INVALID_FUNCTION, "");
    }
    assert!(!process.has_disconnected());
    // The daemon closes the connection without a message: the session ends as if it had been
    // stopped.
    drop(process);
    crate::until("the file is finalised", || {
        crate::etl::Trace::open(std::fs::File::open(runner.path("c.etl")).unwrap())
            .is_ok_and(|trace| trace.is_finalised())
    });
    runner.set_mark("done");
    scenario.assert_success();
}

fn write_one_event(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    // Writes nothing unless a session enables the provider.
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    set_mark(folder, "written");
    wait_for_mark(folder, "done");
}
