//! Relogging of a live session into a file, with a real daemon.

use super::*;
use crate::support_daemon::{DaemonInThread, run_in_own_process};
use traceweir::controller::{Controller, EnableCode, EnableParams, SessionConfig, SessionRef};
use traceweir::{EventDescriptor, Provider};
use traceweir_format::header::Record;
use traceweir_format::spec::session::EVENT_TRACE_REAL_TIME_MODE;

#[test]
fn live_session_is_relogged_until_it_stops() {
    run_in_own_process("relog::live::live_session_is_relogged_until_it_stops", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let out = folder.join("out.etl");
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(PROVIDER, None).unwrap();
        let config = SessionConfig {
            name: "live".into(),
            log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
            flush_timer: 1,
            ..Default::default()
        };
        let session = SessionRef::Id(controller.start(&config).unwrap().id);
        controller.enable(&session, PROVIDER, EnableCode::Enable, &EnableParams::default(), 10_000).unwrap();
        let mut relogger = Relogger::new();
        relogger.add_live("live").unwrap();
        relogger.set_output(&out);
        let relogging = std::thread::spawn(move || relogger.process(keep_event));
        let descriptor = EventDescriptor { id: 1, level: 4, ..EventDescriptor::default() };
        for n in 0..3_000_u64 {
            provider.write(&descriptor, &[&n.to_le_bytes()]).unwrap();
        }
        controller.stop(&session).unwrap();
        let summary = relogging.join().unwrap().unwrap();
        assert_eq!((summary.events_lost, summary.buffers_lost), (0, 0));
        let numbers: Vec<u64> = read_events(&out)
            .iter()
            .filter_map(|(cpu, _, bytes)| {
                let record = Record::parse(bytes, *cpu).unwrap();
                let is_ours = record.provider() == PROVIDER;
                is_ours.then(|| u64::from_le_bytes(record.payload().try_into().unwrap()))
            })
            .collect();
        assert_eq!(numbers, (0..3_000).collect::<Vec<_>>());
        assert_eq!(broken_rules(&out), Vec::<String>::new());
    });
}
