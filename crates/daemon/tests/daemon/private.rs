//! Private sessions passed on to processes that are played by hand: honest ones, slow ones, liars.

use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_transport::message::{Control, EnableCode, Message, Properties, SessionConfig, SessionRef};

use crate::util::*;

fn private(name: &str) -> SessionConfig {
    SessionConfig {
        name: name.into(),
        guid: PROVIDER,
        log_file_mode: 0x801,
        log_file: Some("/x/app.etl".into()),
        ..SessionConfig::default()
    }
}

fn start(config: SessionConfig) -> Message {
    Message::Start(Box::new(config))
}

/// A `PrivateStart` comes: order, session, configuration.
fn hear_start(provider: &mut Client) -> (u32, u64, SessionConfig) {
    match provider.hear() {
        Message::PrivateStart { order, session, config, .. } => (order, session, *config),
        other => panic!("no start: {other:?}"),
    }
}

fn hear_control(provider: &mut Client) -> (u32, Control) {
    match provider.hear() {
        Message::PrivateControl { order, control, .. } => (order, control),
        other => panic!("no control: {other:?}"),
    }
}

fn say_state(provider: &Client, order: u32, session: u64, status: u32, events: u64) {
    let properties = Box::new(Properties { events, id: 99, ..Properties::default() });
    let reason = if status == 0 { String::new() } else { "no".into() };
    let message = Message::PrivateState { order, session, status, reason, properties };
    provider.connection.send(0, &message, &[], PATIENCE).unwrap();
}

fn query(name: &str) -> Message {
    Message::Control { session: SessionRef::Name(name.into()), control: Control::Query }
}

#[test]
fn the_first_gets_the_name_later_ones_a_number_and_failures_give_it_back() {
    let daemon = Daemon::start();
    let (mut controller, mut one, mut two) = (daemon.controller(), daemon.provider(), daemon.provider());
    one.register_quietly(1, PROVIDER);
    two.register_quietly(1, PROVIDER);
    let request = controller.say(&start(private("App")));
    let (order, session, config) = hear_start(&mut one);
    assert_eq!(config.log_file.as_deref(), Some("/x/app.etl".as_ref()));
    let (_, _, config) = hear_start(&mut two);
    let numbered = format!("/x/app.etl_{}", std::process::id());
    assert_eq!(config.log_file.as_deref(), Some(numbered.as_ref()));
    say_state(&one, order, session, 112, 0);
    say_state(&two, order, session, 0, 5);
    let answer = controller.next();
    assert_eq!(answer.request, request);
    let now = properties(answer.message);
    assert_eq!((now.id, now.processes, now.events), (session, 1, 5), "one is enough");

    let mut three = daemon.provider();
    three.register(1, PROVIDER);
    let (order, _, config) = hear_start(&mut three);
    assert_eq!((order, config.log_file.as_deref()), (0, Some("/x/app.etl".as_ref())), "nobody has it");
    assert_eq!(three.hear(), Message::Registered { registration: 1 });
    three.register_quietly(2, PROVIDER);
    three.register_quietly(3, Guid::from_u128(1));
}

#[test]
fn sums_keep_what_those_who_left_had_said_and_nobody_waits_for_them() {
    let daemon = Daemon::start();
    let (mut controller, mut one, mut two) = (daemon.controller(), daemon.provider(), daemon.provider());
    one.register_quietly(1, PROVIDER);
    two.register_quietly(1, PROVIDER);
    controller.say(&start(private("App")));
    let (order, session, _) = hear_start(&mut one);
    hear_start(&mut two);
    say_state(&one, order, session, 0, 10);
    say_state(&two, order, session, 0, 20);
    assert_eq!(properties(controller.hear()).events, 30);
    // PeerName takes no part has nothing to say, and says it in vain.
    let stranger = daemon.provider();
    say_state(&stranger, order, session, 0, 1000);
    say_state(&one, 4711, session, 0, 11);
    say_state(&one, 0, 4711, 0, 1000);

    controller.say(&Message::Control { session: SessionRef::Id(session), control: Control::Stop });
    assert_eq!(hear_control(&mut one).1, Control::Stop);
    let (order, _) = hear_control(&mut two);
    drop(one);
    say_state(&two, order, session, 0, 22);
    let end = properties(controller.hear());
    assert_eq!((end.events, end.processes), (33, 1));
    assert_eq!(controller.status(query("App")), 4201);
}

#[test]
fn where_all_refuse_there_is_no_session_and_the_first_reason_is_told() {
    let daemon = Daemon::start();
    let (mut controller, mut one) = (daemon.controller(), daemon.provider());
    one.register_quietly(1, PROVIDER);
    controller.say(&start(private("App")));
    let (order, session, _) = hear_start(&mut one);
    say_state(&one, order, session, 1450, 0);
    assert_eq!(status(&controller.hear()), 1450);
    assert_eq!(controller.status(query("App")), 4201);
    one.assert_quiet();
}

#[test]
fn a_process_that_does_not_answer_is_not_waited_for_for_ever() {
    let daemon = Daemon::start();
    let (mut controller, mut one) = (daemon.controller(), daemon.provider());
    one.register_quietly(1, PROVIDER);
    let began = Instant::now();
    let now = properties(controller.ask(start(private("App"))));
    assert!(began.elapsed() > Duration::from_secs(4), "it is given time");
    assert_eq!(now.processes, 0);
    let (order, session, _) = hear_start(&mut one);
    say_state(&one, order, session, 0, 7);
    controller.say(&enable(session, PROVIDER, EnableCode::Enable, 50));
    assert_eq!(status(&controller.hear()), 1460, "the enable stands");
    assert!(matches!(one.hear(), Message::PrivateEnable { session: its, .. } if its == session));
    controller.say(&query("App"));
    let (order, _) = hear_control(&mut one);
    say_state(&one, order, session, 0, 8);
    assert_eq!(properties(controller.hear()).events, 8, "late is not never");
    let mut two = daemon.provider();
    two.register(1, PROVIDER);
    hear_start(&mut two);
    assert!(matches!(two.hear(), Message::PrivateEnable { order: 0, .. }), "for who comes later");
}

#[test]
fn sessions_are_not_counted_with_the_others_and_end_with_who_they_are_tied_to() {
    let daemon = Daemon::start_in(tempfile::tempdir().unwrap(), |options| options.max_sessions = 1);
    let mut controller = daemon.controller();
    controller.start(live("one"));
    let mut tied = daemon.controller();
    for n in 0..20 {
        let config = SessionConfig { tied: true, ..private(&format!("p{n}")) };
        assert_eq!(properties(tied.ask(start(config))).processes, 0);
    }
    assert_eq!(controller.status(start(live("two"))), 1450);
    assert_eq!(tied.status(start(private("ONE"))), 183, "a session has the name");
    match controller.ask(Message::QueryAll { from: 0 }) {
        Message::Sessions { total, .. } => assert_eq!(total, 1),
        other => panic!("{other:?}"),
    }
    drop(tied);
    until("they are gone", || controller.status(query("p19")) == 4201);
    for n in 0..256 {
        controller.ask(start(private(&format!("p{n}"))));
    }
    assert_eq!(controller.status(start(private("past"))), 1450);
}

#[test]
fn an_in_process_session_is_none_of_the_daemons_business() {
    let daemon = Daemon::start();
    let config = SessionConfig { log_file_mode: 0x2_0C00, log_file: None, ..private("App") };
    assert_eq!(daemon.controller().status(start(config)), 87);
}
