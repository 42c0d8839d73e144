//! Sessions by their builders, and decoded events: in this process, and with a real daemon.

use std::time::Duration;

use traceweir::consumer::Kind;
use traceweir::controller::Controller;
use traceweir::decoded::{self, Schemas};
use traceweir::session::{Filter, ProviderId};
use traceweir::{
    ClockKind, ControlCode, EnableProperties, Error, EventDescriptor, Guid, Keywords, Level, LogFileMode,
    Provider, Result, Session, Status, Trace, define_provider, write_event,
};

use crate::support_daemon::{DaemonInThread, run_in_own_process};

define_provider!(TEST_PROVIDER, "Traceweir.Test.Sessions");

const PROVIDER_NAME: &str = "Traceweir.Test.Sessions";

fn register_provider() {
    // SAFETY: the provider is a static of this test program, which is never unloaded.
    assert_eq!(unsafe { TEST_PROVIDER.register() }, 0);
}

fn write_served(dish: &str, guests: u32) {
    let temperatures = [20_u16, 80];
    write_event!(
        TEST_PROVIDER,
        "Served",
        level(Informational),
        keyword(0x10),
        str8("dish", dish),
        u32("guests", &guests),
        u8_hex("mark", &0xAB),
        u16_slice("temperatures", &temperatures),
        struct("plate", { bool8("warm", &true), i32("size", &-3) }),
    );
}

#[test]
fn session_of_the_process_records_decodable_events() {
    run_in_own_process("sessions::session_of_the_process_records_decodable_events", |folder| {
        let file = folder.join("in-process.etl");
        let session = Session::builder("in process")
            .log_file(&file)
            .clock(ClockKind::SystemTime)
            .in_process()
            .start()
            .unwrap();
        session
            .enable(PROVIDER_NAME)
            .level(Level::Informational)
            .keywords(Keywords::new(0x10))
            .apply()
            .unwrap();
        register_provider();
        write_served("soup", 2);
        write_event!(TEST_PROVIDER, "Hidden", level(Verbose), keyword(0x10), u8("n", &1));
        write_event!(TEST_PROVIDER, "Hidden", level(Informational), keyword(0x20), u8("n", &2));
        session.disable(PROVIDER_NAME).unwrap();
        write_served("nothing", 0);
        let summary = session.stop().unwrap();
        assert_eq!((summary.events, summary.events_lost, summary.end_status), (1, 0, None));
        assert_eq!(summary.clock, Some(ClockKind::SystemTime));
        assert!(summary.mode.contains(LogFileMode::SEQUENTIAL), "{}", summary.mode);
        assert_eq!(summary.log_file.as_deref(), Some(file.as_path()));

        let mut decoded = Trace::open(&file).unwrap().decoded();
        let event = decoded.next().unwrap().unwrap();
        assert!(decoded.next().is_none() && decoded.next().is_none());
        assert_eq!(decoded.lost().events, 0);
        assert_eq!((event.provider(), event.name()), (PROVIDER_NAME, "Served"));
        assert_eq!(event.provider_guid(), Guid::from_provider_name(PROVIDER_NAME));
        assert_eq!((event.level(), event.keywords()), (Level::Informational, Keywords::new(0x10)));
        assert_eq!(event.process_id(), std::process::id());
        assert_eq!(event.field("dish").unwrap().as_str(), Some("soup"));
        assert_eq!(event.get::<u32>("guests").unwrap(), 2);
        assert_eq!(event.get::<String>("dish").unwrap(), "soup");
        let mark = event.field("mark").unwrap();
        assert_eq!((mark.as_u64(), mark.to_string().as_str()), (Some(0xAB), "0xAB"));
        let temperatures = event.field("temperatures").unwrap();
        assert_eq!(temperatures.as_array().unwrap()[1].as_u64(), Some(80));
        assert_eq!(temperatures.to_string(), "[20 80]");
        let plate = event.field("plate").unwrap();
        assert_eq!(plate.member("size").and_then(decoded::Value::as_i64), Some(-3));
        assert_eq!(plate.to_string(), "{warm=true size=-3}");
        assert!(matches!(event.field("price"), Err(Error::NoField { .. })));
        assert!(matches!(event.get::<u8>("dish"), Err(Error::ValueType { .. })));
        assert!(event.undecoded().is_none());
    });
}

#[test]
fn events_without_schema_keep_their_payload() {
    run_in_own_process("sessions::events_without_schema_keep_their_payload", |folder| {
        let file = folder.join("in-process.etl");
        let session = Session::builder("in process").log_file(&file).in_process().start().unwrap();
        let guid = Guid::from_u128(0x5f3c_0f1e_0000_4000_8000_0000_0000_0001);
        session.enable(guid).filter(Filter::except_event_ids(&[8])).apply().unwrap();
        let provider = Provider::register(guid, None).unwrap();
        for id in [7, 8] {
            let event = EventDescriptor { id, level: 4, ..EventDescriptor::default() };
            provider.write(&event, &[b"bytes"]).unwrap();
        }
        session.stop().unwrap();
        let events: Vec<_> =
            decoded::merge(vec![Trace::open(&file).unwrap()], Schemas::new()).collect::<Result<_>>().unwrap();
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!((event.provider(), event.name()), (guid.to_string().as_str(), "Event 7"));
        assert_eq!(event.payload(), b"bytes");
        assert!(event.undecoded().is_some());
        assert!(matches!(event.field("x"), Err(Error::Undecoded(_))));
    });
}

#[test]
fn live_session_delivers_decoded_events() {
    run_in_own_process("sessions::live_session_delivers_decoded_events", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let session = Session::builder("live")
            .real_time()
            .low_latency()
            .flush_timer(Duration::from_millis(900))
            .stop_on_drop()
            .daemon_at(folder)
            .start()
            .unwrap();
        session.enable(PROVIDER_NAME).stack_traces().properties(EnableProperties::SID).apply().unwrap();
        assert_eq!(Session::list().unwrap().len(), 1);
        let opened = Session::open("LIVE").unwrap();
        assert_eq!(opened.id().unwrap(), session.id().unwrap());
        // The 900 ms are rounded up to whole seconds.
        assert_eq!(opened.query().unwrap().flush_timer, Duration::from_secs(1));
        let updated = opened.update().flush_timer(Duration::from_secs(2)).apply().unwrap();
        assert_eq!(updated.flush_timer, Duration::from_secs(2));
        drop(opened);

        register_provider();
        let (first, second) = (session.trace().unwrap().decoded(), Trace::live("live").unwrap().decoded());
        write_served("soup", 2);
        write_served("pie", 1);
        let dishes = |events: decoded::Decoded| -> Vec<String> {
            events.take(2).map(|event| event.unwrap().get("dish").unwrap()).collect()
        };
        assert_eq!(dishes(first), ["soup", "pie"]);
        assert_eq!(dishes(second), ["soup", "pie"]);

        let later_events = session.trace().unwrap().decoded();
        let summary = session.stop().unwrap();
        assert_eq!((summary.events, summary.events_lost), (2, 0));
        assert_eq!(later_events.map(Result::unwrap).count(), 0, "an event arrived after the others");
        let error = Session::open("live").unwrap_err();
        assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    });
}

#[test]
fn dropped_session_stops_only_with_stop_on_drop() {
    run_in_own_process("sessions::dropped_session_stops_only_with_stop_on_drop", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let stopping = Session::builder("tied").real_time().stop_on_drop().start().unwrap();
        let remaining = Session::builder("free").real_time().start().unwrap();
        drop((stopping, remaining));
        let has_ended = || {
            Session::open("tied").is_err_and(|error| error.status() == Status::ERROR_WMI_INSTANCE_NOT_FOUND)
        };
        crate::support::until("the session has ended", has_ended);
        Session::open("free").unwrap().stop().unwrap();
    });
}

#[test]
fn controller_addresses_sessions_and_lists_providers_with_their_enables() {
    run_in_own_process(
        "sessions::controller_addresses_sessions_and_lists_providers_with_their_enables",
        |folder| {
            let _daemon = DaemonInThread::new(folder);
            let file = folder.join("by-controller.etl");
            let mut controller = Controller::find_at(folder).unwrap().expect("the daemon does not answer");
            let builder = Session::builder("Live").daemon(&controller).log_file(&file).real_time();
            let (started, summary) = builder.maximum_file_kib(2048).start_with_summary().unwrap();
            assert_eq!(summary.mode, LogFileMode::REAL_TIME | LogFileMode::USE_KBYTES_FOR_SIZE);
            assert_eq!(summary.maximum_file_bytes, Some(2 << 20));
            let by_name = controller.session("LIVE");
            assert_eq!(by_name.id().unwrap(), summary.id);
            assert_eq!(by_name.kernel_losses().unwrap(), []);
            assert_eq!(started.outcome().unwrap_err().status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);

            let guid = Guid::from_u128(0x51);
            let provider = ProviderId::from(guid).with_name("Contoso.Named");
            let filter = Filter::event_ids(&[7]);
            let enable = by_name.enable(provider).level(Level::Warning).all_keywords(Keywords::new(2));
            enable.keywords(Keywords::new(6)).filter(filter.clone()).apply().unwrap();
            let find_entry = |controller: &mut Controller| {
                controller.providers().unwrap().into_iter().find(|provider| provider.guid == guid)
            };
            let listed = find_entry(&mut controller).expect("the provider is not enabled");
            assert!(listed.pids.is_empty() && !listed.is_group);
            let [enable] = &listed.sessions[..] else { panic!("{listed:?}") };
            assert_eq!((enable.session, enable.level), (summary.id, Level::Warning));
            assert_eq!((enable.keywords, enable.all_keywords), (Keywords::new(6), Keywords::new(2)));
            assert_eq!((enable.name.as_str(), &enable.filters[..]), ("Contoso.Named", &[filter][..]));
            let request = by_name.request(guid, ControlCode::Disable);
            request.timeout(Duration::from_secs(30)).apply().unwrap();
            assert_eq!(find_entry(&mut controller), None);

            assert_eq!(controller.sessions().unwrap().len(), 1);
            let live = by_name.convert_to_real_time().unwrap();
            assert_eq!((live.log_file, live.mode.contains(LogFileMode::REAL_TIME)), (None, true));
            assert_eq!(Trace::live_at(folder, "live").unwrap().kind(), Kind::Live);
            started.stop().unwrap();
            let ended = by_name.outcome().unwrap();
            assert_eq!((ended.id, ended.end_status), (summary.id, None));
            assert_eq!(controller.ended_sessions().unwrap(), [ended]);
            assert_eq!(by_name.query().unwrap_err().status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
        },
    );
}

#[test]
fn builder_refuses_contradictory_modes() {
    let contradictory = LogFileMode::CIRCULAR | LogFileMode::SEQUENTIAL;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.etl");
    let start_status =
        |builder: traceweir::session::SessionBuilder| builder.in_process().start().unwrap_err().status();
    let builder = || Session::builder("refused");
    assert_eq!(start_status(builder().log_file(&file).mode(contradictory)), Status::ERROR_INVALID_PARAMETER);
    assert_eq!(start_status(builder().mode(LogFileMode::SEQUENTIAL)), Status::ERROR_BAD_PATHNAME);
    assert!(!file.exists());
}
