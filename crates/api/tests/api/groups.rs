//! Provider groups and traits with a real daemon: which enables apply to which providers, and which
//! events arrive.
//!
//! Each test runs in a separate process, because providers find their daemon through an environment
//! variable. The daemon is another process.

use std::sync::{Arc, Mutex};

use traceweir::controller::{Controller, EnableCode, EnableParams, ProviderEntry, SessionConfig, SessionRef};
use traceweir::provider::EnableCallback;
use traceweir::{EventDescriptor, Guid, PrivateSession, Provider, Status};
use traceweir_format::etl;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP as OF_GROUP, EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_PID,
};
use traceweir_format::spec::event::ExtType;
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_PRIVATE_LOGGER_MODE};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Filter;

use crate::recording::Recording;
use crate::support::until;
use crate::support_daemon::{SeparateDaemon, run_in_own_process};

const GROUP: Guid = Guid::from_u128(0x6000);
const MEMBER: Guid = Guid::from_u128(0x6001);
const OTHER_PROVIDER: Guid = Guid::from_u128(0x6002);

fn group_traits(name: &str) -> Vec<u8> {
    TraitsBuilder::new(name).group(&GROUP).finish().unwrap().to_vec()
}

fn event(id: u16, level: u8, keyword: u64) -> EventDescriptor {
    EventDescriptor { id, level, keyword, ..EventDescriptor::default() }
}

fn params(level: u8, any: u64, property: u32) -> EnableParams {
    EnableParams { level, match_any: any, property, ..EnableParams::default() }
}

/// The code (1 enable, 0 disable), level and match-any mask of each call of a callback.
type RecordedCalls = Arc<Mutex<Vec<(u32, u8, u64)>>>;

/// Returns a callback, and the list to which it adds its calls.
fn recording_callback() -> (RecordedCalls, EnableCallback) {
    let calls = RecordedCalls::default();
    let recorded = Arc::clone(&calls);
    (
        calls,
        Box::new(move |notice| recorded.lock().unwrap().push((notice.code, notice.level, notice.match_any))),
    )
}

impl Recording<'_> {
    fn send_enable(&mut self, guid: Guid, code: EnableCode, params: &EnableParams) -> Status {
        let result = self.controller.enable(&self.session, guid, code, params, 30_000);
        result.map_or_else(|error| error.status(), |()| Status::ERROR_SUCCESS)
    }

    fn enable_at(&mut self, guid: Guid, level: u8, any: u64, property: u32) {
        let status = self.send_enable(guid, EnableCode::Enable, &params(level, any, property));
        assert_eq!(status, Status::ERROR_SUCCESS);
    }

    fn disable(&mut self, guid: Guid, property: u32) {
        assert_eq!(
            self.send_enable(guid, EnableCode::Disable, &params(0, 0, property)),
            Status::ERROR_SUCCESS
        );
    }

    fn find_entry(&mut self, guid: Guid, is_group: bool) -> Option<ProviderEntry> {
        let entries = self.controller.provider_entries().unwrap();
        entries.into_iter().find(|entry| (entry.provider, entry.is_group) == (guid, is_group))
    }

    /// Stops the session, and returns provider and id of the events of both providers.
    fn stop_and_list(self) -> Vec<(Guid, u16)> {
        self.stop(|record| {
            let provider = record.provider();
            [MEMBER, OTHER_PROVIDER].contains(&provider).then(|| (provider, record.descriptor().id))
        })
    }
}

#[test]
fn group_enables_current_and_later_members_besides_direct_enables() {
    run_in_own_process("groups::group_enables_current_and_later_members_besides_direct_enables", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut recording = Recording::new(folder);
        let (calls, callback) = recording_callback();
        let member = Provider::register_with_traits(MEMBER, &group_traits("Member"), Some(callback)).unwrap();
        let outsider = Provider::register(OTHER_PROVIDER, None).unwrap();
        recording.enable_at(GROUP, 2, 1, OF_GROUP);
        assert_eq!(*calls.lock().unwrap(), [(1, 2, 1)]);
        assert!(!outsider.enabled(0, 0));
        member.write(&event(1, 2, 1), &[]).unwrap();
        member.write(&event(2, 3, 1), &[]).unwrap();
        let later = Provider::register_with_traits(OTHER_PROVIDER, &group_traits("Later"), None).unwrap();
        later.write(&event(3, 2, 1), &[]).unwrap();

        // The provider is also enabled directly: both enables apply, and each ends separately.
        recording.enable_at(MEMBER, 4, 6, 0);
        assert_eq!(calls.lock().unwrap().last(), Some(&(1, 4, 7)));
        member.write(&event(4, 4, 2), &[]).unwrap();
        later.write(&event(5, 4, 2), &[]).unwrap();
        recording.disable(GROUP, OF_GROUP);
        assert_eq!(calls.lock().unwrap().last(), Some(&(1, 4, 6)));
        assert!(!later.enabled(0, 0));
        member.write(&event(6, 4, 1), &[]).unwrap();
        // Level 0 and mask 0 select everything. Combined with another enable, they become the
        // highest values.
        recording.enable_at(GROUP, 0, 0, OF_GROUP);
        assert_eq!(calls.lock().unwrap().last(), Some(&(1, 255, u64::MAX)));
        recording.disable(MEMBER, 0);
        assert_eq!(
            calls.lock().unwrap().last(),
            Some(&(1, 0, 0)),
            "the callback did not get the settings of the group unchanged"
        );
        member.write(&event(7, 200, 1 << 40), &[]).unwrap();
        recording.disable(MEMBER, 0);
        assert_eq!(calls.lock().unwrap().len(), 5, "a disable without an enable called the callback");
        recording.disable(GROUP, OF_GROUP);
        assert_eq!(calls.lock().unwrap().last(), Some(&(0, 0, 0)));
        member.write(&event(8, 0, 0), &[]).unwrap();
        assert_eq!(recording.stop_and_list(), [(MEMBER, 1), (OTHER_PROVIDER, 3), (MEMBER, 4), (MEMBER, 7)]);
    });
}

#[test]
fn registration_joins_group_once_by_traits_set_later() {
    run_in_own_process("groups::registration_joins_group_once_by_traits_set_later", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut recording = Recording::new(folder);
        recording.enable_at(GROUP, 5, 0, OF_GROUP);
        let (calls, callback) = recording_callback();
        let provider = Provider::register(MEMBER, Some(callback)).unwrap();
        // No bytes, a name without its terminator, and a size beyond the bytes.
        for wrong in [&[][..], &[3, 0, b'x'], &[9, 0, 0]] {
            assert_eq!(provider.set_traits(wrong).unwrap_err().status(), Status::ERROR_INVALID_PARAMETER);
        }
        assert!(!provider.enabled(0, 0) && calls.lock().unwrap().is_empty());
        provider.set_traits(&group_traits("Later")).unwrap();
        assert_eq!(*calls.lock().unwrap(), [(1, 5, 0)], "the callback did not run before the call returned");
        provider.write(&event(1, 5, 1), &[]).unwrap();
        assert_eq!(
            provider.set_traits(&group_traits("Later")).unwrap_err().status(),
            Status::ERROR_INVALID_PARAMETER,
            "traits were set twice"
        );
        let named = Provider::register_with_traits(OTHER_PROVIDER, &group_traits("With"), None).unwrap();
        assert_eq!(
            named.set_traits(&group_traits("With")).unwrap_err().status(),
            Status::ERROR_INVALID_PARAMETER,
            "traits were set although the registration has some"
        );

        let listed = recording.find_entry(MEMBER, false).unwrap();
        assert_eq!((listed.name.as_str(), listed.groups), ("Later", vec![GROUP]));
        let group = recording.find_entry(GROUP, true).unwrap();
        assert_eq!((group.pids, group.sessions.len()), (vec![std::process::id()], 1));
        drop((provider, named));
        until("both providers have left the group", || {
            recording.find_entry(GROUP, true).unwrap().pids.is_empty()
        });
        assert_eq!(recording.stop_and_list(), [(MEMBER, 1)]);
    });
}

#[test]
fn session_without_a_daemon_cannot_enable_groups() {
    run_in_own_process("groups::session_without_a_daemon_cannot_enable_groups", |folder| {
        let config = SessionConfig {
            name: "private".into(),
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            log_file: Some(folder.join("private.etl")),
            ..SessionConfig::default()
        };
        let session = PrivateSession::start(&config).unwrap();
        assert_eq!(
            session.enable(GROUP, &params(0, 0, OF_GROUP)).unwrap_err().status(),
            Status::ERROR_INVALID_PARAMETER
        );
        // Traits can be set without a daemon.
        let provider = Provider::register(MEMBER, None).unwrap();
        provider.set_traits(&group_traits("Alone")).unwrap();
        assert_eq!(
            provider.set_traits(&group_traits("Alone")).unwrap_err().status(),
            Status::ERROR_INVALID_PARAMETER
        );
        let stale = provider.handle().provider().unwrap();
        drop(provider);
        assert_eq!(
            stale.set_traits(&group_traits("Alone")).unwrap_err().status(),
            Status::ERROR_INVALID_PARAMETER
        );
    });
}

#[test]
fn group_enable_accepts_process_filters_and_refuses_event_filters() {
    run_in_own_process("groups::group_enable_accepts_process_filters_and_refuses_event_filters", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut recording = Recording::new(folder);
        let member = Provider::register_with_traits(MEMBER, &group_traits("Member"), None).unwrap();
        let params_with_filter = |kind, data: &[u8]| EnableParams {
            filters: vec![Filter { kind, data: data.to_vec() }],
            ..params(4, 0, OF_GROUP)
        };
        // A filter that includes the event id 7: groups cannot be filtered by events.
        let by_id = params_with_filter(EVENT_FILTER_TYPE_EVENT_ID, &[1, 0, 1, 0, 7, 0]);
        assert_eq!(recording.send_enable(GROUP, EnableCode::Enable, &by_id), Status::ERROR_INVALID_PARAMETER);
        let unknown = Guid::from_u128(0x7777);
        let capture = params(0, 0, OF_GROUP);
        assert_eq!(
            recording.send_enable(unknown, EnableCode::CaptureState, &capture),
            Status::ERROR_INVALID_FUNCTION
        );
        assert_eq!(
            recording.send_enable(MEMBER, EnableCode::CaptureState, &capture),
            Status::ERROR_INVALID_FUNCTION,
            "the GUID of a provider was accepted as that of a group"
        );
        assert_eq!(
            recording.send_enable(GROUP, EnableCode::CaptureState, &capture),
            Status::ERROR_SUCCESS,
            "the request for the state of a group that is not enabled was refused"
        );
        assert_eq!(recording.find_entry(GROUP, true).unwrap().sessions, []);
        assert!(!member.enabled(0, 0));
        // A group enable can be limited to processes.
        let elsewhere = params_with_filter(EVENT_FILTER_TYPE_PID, &1u32.to_le_bytes());
        assert_eq!(recording.send_enable(GROUP, EnableCode::Enable, &elsewhere), Status::ERROR_SUCCESS);
        assert!(!member.enabled(0, 0));
        let here = params_with_filter(EVENT_FILTER_TYPE_PID, &std::process::id().to_le_bytes());
        assert_eq!(recording.send_enable(GROUP, EnableCode::Enable, &here), Status::ERROR_SUCCESS);
        assert!(member.enabled(4, 0));
    });
}

#[test]
fn events_carry_the_decode_guid_of_the_traits() {
    run_in_own_process("groups::events_carry_the_decode_guid_of_the_traits", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut recording = Recording::new(folder);
        let blob = TraitsBuilder::new("Decoded").decode_guid(&OTHER_PROVIDER).finish().unwrap().to_vec();
        let provider = Provider::register(MEMBER, None).unwrap();
        recording.enable_at(MEMBER, 0, 0, 0);
        provider.write(&event(1, 0, 0), &[b"own"]).unwrap();
        provider.set_traits(&blob).unwrap();
        provider.write(&event(2, 0, 0), &[b"other's"]).unwrap();
        drop(provider);
        let provider = Provider::register_with_traits(MEMBER, &blob, None).unwrap();
        provider.write(&event(3, 0, 0), &[b"from the start"]).unwrap();
        assert_eq!(recording.stop_and_list(), [(MEMBER, 1), (OTHER_PROVIDER, 2), (OTHER_PROVIDER, 3)]);
        let trace = etl::Trace::open(std::fs::File::open(folder.join("trace.etl")).unwrap()).unwrap();
        let mut events = trace.events();
        while let Some(record) = events.next().unwrap() {
            if record.provider() == OTHER_PROVIDER {
                let control_guid = record.items().data_of(ExtType::CONTROL_GUID);
                assert_eq!(control_guid, Some(&MEMBER.to_bytes()[..]));
                assert_eq!(record.items().data_of(ExtType::PROV_TRAITS), Some(&blob[..]));
            }
        }
    });
}

#[test]
fn every_session_up_to_the_maximum_gets_the_event() {
    run_in_own_process("groups::every_session_up_to_the_maximum_gets_the_event", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("the daemon does not answer");
        let member = Provider::register_with_traits(MEMBER, &group_traits("Member"), None).unwrap();
        let config = |name: String, log_file_mode, guid| {
            let log_file = Some(folder.join(format!("{name}.etl")));
            SessionConfig { name, log_file_mode, log_file, guid, ..SessionConfig::default() }
        };
        let mut sessions = Vec::new();
        // Eight sessions that enable the provider, eight that enable its group, and eight private
        // ones that the process runs for the controller.
        for (kind, mode, target, property) in [
            ("direct", EVENT_TRACE_FILE_MODE_SEQUENTIAL, MEMBER, 0),
            ("group", EVENT_TRACE_FILE_MODE_SEQUENTIAL, GROUP, OF_GROUP),
            ("private", EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL, MEMBER, 0),
        ] {
            for number in 0..8 {
                let guid = if mode & EVENT_TRACE_PRIVATE_LOGGER_MODE == 0 { Guid::NULL } else { MEMBER };
                let id = controller.start(&config(format!("{kind} {number}"), mode, guid)).unwrap().id;
                sessions.push((kind, SessionRef::Id(id)));
                let enable_params = params(4, 1, property);
                let (_, session) = sessions.last().unwrap();
                controller.enable(session, target, EnableCode::Enable, &enable_params, 120_000).unwrap();
            }
        }
        let in_process_sessions: Vec<_> = (0..3)
            .map(|number| {
                let session = PrivateSession::start(&config(
                    format!("in process {number}"),
                    EVENT_TRACE_FILE_MODE_SEQUENTIAL,
                    Guid::NULL,
                ));
                let session = session.unwrap();
                session.enable(MEMBER, &params(4, 1, 0)).unwrap();
                session
            })
            .collect();
        member.write(&event(1, 4, 1), &[]).unwrap();
        for (kind, session) in &sessions {
            let end = controller.stop(session).unwrap();
            assert_eq!((end.events, end.events_lost), (1, 0), "{kind}: {}", end.config.name);
        }
        for session in in_process_sessions {
            assert_eq!(session.stop().unwrap().events, 1, "a session in the process");
        }
    });
}
