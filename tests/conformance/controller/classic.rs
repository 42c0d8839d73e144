//! Rules for sessions that enable classic providers and record messages. `rule.rs` explains the
//! rows.

use std::sync::{Arc, Mutex};

use traceweir::Guid;
use traceweir::classic::{
    self, Event, Notice, Registration, Request, TraceError, enable_flags, enable_level, trace, trace_message,
};
use traceweir::controller::SessionConfig;
use traceweir_format::header::message::sequence;
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING,
    EVENT_TRACE_USE_GLOBAL_SEQUENCE, EVENT_TRACE_USE_LOCAL_SEQUENCE,
};

use crate::helpers::{Fixture, SUCCESS, Session, enable_params, new_guid};
use crate::provider::classic::ReceivedNotice;
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 6 #classic", D, "the level and the low 32 bits of MatchAny reach a classic provider, MatchAny 0 as 0",
        enable_level_and_flags),
    rule!("controller 6 #classic", D, "one session at a time: the newer session gets the events, the older one gets no more",
        newest_session_takes_the_classic_provider),
    rule!("controller 2 #0x8000", D, "messages are numbered by each session",
        messages_are_numbered_by_session),
    rule!("controller 2 #0x4000", D, "messages are numbered across all sessions",
        messages_are_numbered_across_all_sessions),
    rule!("controller 2 #0x4000, #0x8000", D, "without either of these modes, messages have the number 0",
        messages_have_no_numbers_by_default),
];

const CLASS: Guid = Guid::from_u128(0xC1A5_5000);
/// Messages have a sequence number, a GUID, a time stamp, and process and thread ids.
const MESSAGE_FLAGS: u32 = 0x2B;

fn register_with_log(control: Guid) -> (Registration, Arc<Mutex<Vec<ReceivedNotice>>>) {
    let notices: Arc<Mutex<Vec<ReceivedNotice>>> = Arc::default();
    let received = Arc::clone(&notices);
    let callback = Box::new(move |notice: &Notice| {
        let (level, flags) = (enable_level(notice.logger).ok(), enable_flags(notice.logger).ok());
        received.lock().unwrap().push(ReceivedNotice { notice: *notice, level, flags });
        SUCCESS
    });
    (classic::register(control, &[CLASS], callback).unwrap(), notices)
}

fn last_notice(notices: &Mutex<Vec<ReceivedNotice>>) -> ReceivedNotice {
    *notices.lock().unwrap().last().expect("the provider got no notice")
}

fn enable_level_and_flags(fixture: &Fixture) {
    let (control, session) = (new_guid(), fixture.start(&fixture.config()));
    let (_registration, notices) = register_with_log(control);
    for (level, any, flags) in [(3, 0x1234_5678_9ABC_DEF0, 0x9ABC_DEF0), (7, 0, 0), (0, 1 << 40, 0)] {
        fixture.enable(&session, control, &enable_params(level, any, 0x77));
        let received = last_notice(&notices);
        assert_eq!(
            (received.notice.request, received.level, received.flags),
            (Request::Enable, Some(level), Some(flags))
        );
    }
}

fn stop_and_read_types(fixture: &Fixture, session: Session) -> Vec<u8> {
    fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.opcode).collect()
}

fn newest_session_takes_the_classic_provider(fixture: &Fixture) {
    let control = new_guid();
    let (older, newer) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    let (_registration, notices) = register_with_log(control);
    let event = |kind| Event { class: CLASS, kind, ..Event::default() };
    fixture.enable(&older, control, &enable_params(1, 1, 0));
    let first = last_notice(&notices).notice.logger;
    trace(first, &event(1), &[]).unwrap();
    fixture.enable(&newer, control, &enable_params(2, 2, 0));
    assert_eq!(trace(first, &event(2), &[]), Err(TraceError::InvalidHandle));
    trace(last_notice(&notices).notice.logger, &event(3), &[]).unwrap();
    assert_eq!(
        (stop_and_read_types(fixture, older), stop_and_read_types(fixture, newer)),
        (vec![1], vec![3])
    );
}

/// Returns the sequence numbers of four messages in a session of this mode.
fn message_numbers(fixture: &Fixture, mode: u32) -> Vec<u32> {
    let config = SessionConfig {
        log_file_mode: mode | EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        ..fixture.config()
    };
    let (control, session) = (new_guid(), fixture.start(&config));
    let (_registration, notices) = register_with_log(control);
    fixture.enable(&session, control, &enable_params(0, 0, 0));
    for number in 1..=4 {
        trace_message(last_notice(&notices).notice.logger, MESSAGE_FLAGS, &CLASS, number, &[b"text"])
            .unwrap();
    }
    fixture.stop(session);
    let file = std::fs::File::open(config.log_file.unwrap()).unwrap();
    let trace = traceweir_format::etl::Trace::open(file).unwrap();
    let (mut events, mut numbers) = (trace.events(), Vec::new());
    while let Some(record) = events.next().unwrap() {
        numbers.extend(
            Some(&record)
                .filter(|record| record.provider() == CLASS)
                .and_then(|record| sequence(record.bytes())),
        );
    }
    assert_eq!(numbers.len(), 4);
    numbers
}

fn messages_are_numbered_by_session(fixture: &Fixture) {
    for _ in 0..2 {
        assert_eq!(message_numbers(fixture, EVENT_TRACE_USE_LOCAL_SEQUENCE), [1, 2, 3, 4]);
    }
}

fn messages_are_numbered_across_all_sessions(fixture: &Fixture) {
    let (first, second) = (
        message_numbers(fixture, EVENT_TRACE_USE_GLOBAL_SEQUENCE),
        message_numbers(fixture, EVENT_TRACE_USE_GLOBAL_SEQUENCE),
    );
    let numbers: Vec<u32> = first.iter().chain(&second).copied().collect();
    assert_eq!(numbers, (first[0]..first[0] + 8).collect::<Vec<_>>());
}

fn messages_have_no_numbers_by_default(fixture: &Fixture) {
    assert_eq!(message_numbers(fixture, 0), [0; 4]);
}
