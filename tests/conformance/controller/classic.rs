//! Classic providers and messages from the view of a session.

use std::sync::{Arc, Mutex};

use traceweir::classic::{
    self, Event, Notice, Registration, Request, TraceError, enable_flags, enable_level, trace, trace_message,
};
use traceweir::controller::SessionConfig;
use traceweir::{Guid, Status};
use traceweir_format::header::message::sequence;

use crate::rule::{Rule, rule};
use crate::stage::{Session, Stage, new_provider, wants};

pub(crate) const RULES: &[Rule] = &[
    rule!(
        "controller 6 #classic",
        D,
        "the level and the low 32 bits of MatchAny reach a classic provider, MatchAny 0 as 0",
        enable_level_and_flags
    ),
    rule!(
        "controller 6 #classic",
        D,
        "one session at a time: the newer enable takes over, the older session silently gets no more",
        the_newest_session
    ),
    rule!("controller 2 #0x8000", D, "messages are numbered by each session", local_numbers),
    rule!("controller 2 #0x4000", D, "messages are numbered through all sessions", global_numbers),
    rule!(
        "controller 2 #0x4000, #0x8000",
        D,
        "without either, messages have the number 0",
        session_numbers_nothing
    ),
];

const CLASS: Guid = Guid::from_u128(0xC1A5_5000);

/// A notice, with level and flags at that time.
type Received = (Notice, Option<u8>, Option<u32>);

fn registered(control: Guid) -> (Registration, Arc<Mutex<Vec<Received>>>) {
    let heard: Arc<Mutex<Vec<Received>>> = Arc::default();
    let to = Arc::clone(&heard);
    let callback = Box::new(move |notice: &Notice| {
        let (level, flags) = (enable_level(notice.logger).ok(), enable_flags(notice.logger).ok());
        to.lock().unwrap().push((*notice, level, flags));
        Status::ERROR_SUCCESS
    });
    (classic::register(control, &[CLASS], callback).unwrap(), heard)
}

fn last(heard: &Mutex<Vec<Received>>) -> Received {
    *heard.lock().unwrap().last().expect("the provider got a notice")
}

fn enable_level_and_flags(stage: &Stage) {
    let (control, session) = (new_provider(), stage.start(&stage.config()));
    let (_registration, heard) = registered(control);
    for (level, any, flags) in [(3, 0x1234_5678_9ABC_DEF0, 0x9ABC_DEF0), (7, 0, 0), (0, 1 << 40, 0)] {
        stage.enable(&session, control, &wants(level, any, 0x77));
        let (notice, its_level, its_flags) = last(&heard);
        assert_eq!((notice.request, its_level, its_flags), (Request::Enable, Some(level), Some(flags)));
    }
}

fn kinds(stage: &Stage, session: Session) -> Vec<u8> {
    stage.stop(session).iter().map(|seen| seen.descriptor.opcode).collect()
}

fn the_newest_session(stage: &Stage) {
    let control = new_provider();
    let (older, newer) = (stage.start(&stage.config()), stage.start(&stage.config()));
    let (_registration, heard) = registered(control);
    let event = |kind| Event { class: CLASS, kind, ..Event::default() };
    stage.enable(&older, control, &wants(1, 1, 0));
    let first = last(&heard).0.logger;
    trace(first, &event(1), &[]).unwrap();
    stage.enable(&newer, control, &wants(2, 2, 0));
    assert_eq!(trace(first, &event(2), &[]), Err(TraceError::InvalidHandle));
    trace(last(&heard).0.logger, &event(3), &[]).unwrap();
    assert_eq!((kinds(stage, older), kinds(stage, newer)), (vec![1], vec![3]));
}

/// Returns the sequence numbers of four messages in a session of this mode.
fn numbers(stage: &Stage, mode: u32) -> Vec<u32> {
    let config = SessionConfig { log_file_mode: mode | 0x1000_0001, ..stage.config() };
    let (control, session) = (new_provider(), stage.start(&config));
    let (_registration, heard) = registered(control);
    stage.enable(&session, control, &wants(0, 0, 0));
    for number in 1..=4 {
        trace_message(last(&heard).0.logger, 0x2B, &CLASS, number, &[b"text"]).unwrap();
    }
    stage.end(session);
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

fn local_numbers(stage: &Stage) {
    for _ in 0..2 {
        assert_eq!(numbers(stage, 0x8000), [1, 2, 3, 4]);
    }
}

fn global_numbers(stage: &Stage) {
    let (first, second) = (numbers(stage, 0x4000), numbers(stage, 0x4000));
    let all: Vec<u32> = first.iter().chain(&second).copied().collect();
    assert_eq!(all, (first[0]..first[0] + 8).collect::<Vec<_>>());
}

fn session_numbers_nothing(stage: &Stage) {
    assert_eq!(numbers(stage, 0), [0; 4]);
}
