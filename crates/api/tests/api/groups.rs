//! Provider groups and traits with a real daemon: which enables apply to which providers, and which
//! events arrive.
//!
//! Each test runs in a separate process, because providers find daemons by the environment; the
//! daemon is another process.

use std::sync::{Arc, Mutex};

use traceweir::controller::{Controller, EnableCode, EnableParams, ProviderEntry, SessionConfig, SessionRef};
use traceweir::provider::EnableCallback;
use traceweir::{EventDescriptor, Guid, PrivateSession, Provider, Status};
use traceweir_format::etl;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP as OF_GROUP, EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_PID,
};
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Filter;

use crate::recording::Recording;
use crate::support::until;
use crate::support_daemon::{DaemonInProcess, run_in_own_process};

const GROUP: Guid = Guid::from_u128(0x6000);
const MEMBER: Guid = Guid::from_u128(0x6001);
const OTHER: Guid = Guid::from_u128(0x6002);

fn traits(name: &str) -> Vec<u8> {
    TraitsBuilder::new(name).group(&GROUP).finish().unwrap().to_vec()
}

fn event(id: u16, level: u8, keyword: u64) -> EventDescriptor {
    EventDescriptor { id, level, keyword, ..EventDescriptor::default() }
}

fn params(level: u8, any: u64, property: u32) -> EnableParams {
    EnableParams { level, match_any: any, property, ..EnableParams::default() }
}

type Calls = Arc<Mutex<Vec<(u32, u8, u64)>>>;

fn recorder() -> (Calls, EnableCallback) {
    let calls = Calls::default();
    let to = Arc::clone(&calls);
    (calls, Box::new(move |n| to.lock().unwrap().push((n.code, n.level, n.match_any))))
}

impl Recording<'_> {
    fn send_enable(&mut self, guid: Guid, code: EnableCode, params: &EnableParams) -> Status {
        let result = self.controller.enable(&self.session, guid, code, params, 30_000);
        result.map_or_else(|e| e.status(), |()| Status::ERROR_SUCCESS)
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

    fn entry(&mut self, guid: Guid, is_group: bool) -> Option<ProviderEntry> {
        let all = self.controller.provider_entries().unwrap();
        all.into_iter().find(|entry| (entry.provider, entry.is_group) == (guid, is_group))
    }

    /// Stops the session, and returns provider and id of all events.
    fn stop_and_list(self) -> Vec<(Guid, u16)> {
        self.stop(|record| {
            let provider = record.provider();
            [MEMBER, OTHER].contains(&provider).then(|| (provider, record.descriptor().id))
        })
    }
}

#[test]
fn group_enables_current_and_later_members_besides_direct_enables() {
    run_in_own_process("groups::group_enables_current_and_later_members_besides_direct_enables", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        let mut session = Recording::new(folder);
        let (calls, callback) = recorder();
        let member = Provider::register_with_traits(MEMBER, &traits("Member"), Some(callback)).unwrap();
        let alien = Provider::register(OTHER, None).unwrap();
        session.enable_at(GROUP, 2, 1, OF_GROUP);
        assert_eq!(*calls.lock().unwrap(), [(1, 2, 1)]);
        assert!(!alien.enabled(0, 0));
        member.write(&event(1, 2, 1), &[]).unwrap();
        member.write(&event(2, 3, 1), &[]).unwrap();
        let later = Provider::register_with_traits(OTHER, &traits("Later"), None).unwrap();
        later.write(&event(3, 2, 1), &[]).unwrap();

        // The provider is also enabled directly: both enables apply, and each ends separately.
        session.enable_at(MEMBER, 4, 6, 0);
        assert_eq!(calls.lock().unwrap().last(), Some(&(1, 4, 7)));
        member.write(&event(4, 4, 2), &[]).unwrap();
        later.write(&event(5, 4, 2), &[]).unwrap();
        session.disable(GROUP, OF_GROUP);
        assert_eq!(calls.lock().unwrap().last(), Some(&(1, 4, 6)));
        assert!(!later.enabled(0, 0));
        member.write(&event(6, 4, 1), &[]).unwrap();
        session.enable_at(GROUP, 0, 0, OF_GROUP);
        assert_eq!(calls.lock().unwrap().last(), Some(&(1, 255, u64::MAX)));
        session.disable(MEMBER, 0);
        assert_eq!(
            calls.lock().unwrap().last(),
            Some(&(1, 0, 0)),
            "the callback gets the settings of the group unchanged"
        );
        member.write(&event(7, 200, 1 << 40), &[]).unwrap();
        session.disable(MEMBER, 0);
        assert_eq!(calls.lock().unwrap().len(), 5, "no change");
        session.disable(GROUP, OF_GROUP);
        assert_eq!(calls.lock().unwrap().last(), Some(&(0, 0, 0)));
        member.write(&event(8, 0, 0), &[]).unwrap();
        assert_eq!(session.stop_and_list(), [(MEMBER, 1), (OTHER, 3), (MEMBER, 4), (MEMBER, 7)]);
    });
}

#[test]
fn traits_set_later_join_the_group_once() {
    run_in_own_process("groups::traits_set_later_join_the_group_once", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        let mut session = Recording::new(folder);
        session.enable_at(GROUP, 5, 0, OF_GROUP);
        let (calls, callback) = recorder();
        let provider = Provider::register(MEMBER, Some(callback)).unwrap();
        for wrong in [&[][..], &[3, 0, b'x'], &[9, 0, 0]] {
            assert_eq!(provider.set_traits(wrong).unwrap_err().status().0, 87);
        }
        assert!(!provider.enabled(0, 0) && calls.lock().unwrap().is_empty());
        provider.set_traits(&traits("Later")).unwrap();
        assert_eq!(*calls.lock().unwrap(), [(1, 5, 0)], "the callback runs before the call returns");
        provider.write(&event(1, 5, 1), &[]).unwrap();
        assert_eq!(provider.set_traits(&traits("Later")).unwrap_err().status().0, 87, "once");
        let with = Provider::register_with_traits(OTHER, &traits("With"), None).unwrap();
        assert_eq!(
            with.set_traits(&traits("With")).unwrap_err().status().0,
            87,
            "the provider has traits already"
        );

        let listed = session.entry(MEMBER, false).unwrap();
        assert_eq!((listed.name.as_str(), listed.groups), ("Later", vec![GROUP]));
        let group = session.entry(GROUP, true).unwrap();
        assert_eq!((group.pids, group.sessions.len()), (vec![std::process::id()], 1));
        drop((provider, with));
        until("they leave their group", || session.entry(GROUP, true).unwrap().pids.is_empty());
        assert_eq!(session.stop_and_list(), [(MEMBER, 1)]);
    });
}

#[test]
fn session_without_a_daemon_cannot_enable_groups() {
    run_in_own_process("groups::session_without_a_daemon_cannot_enable_groups", |folder| {
        let config = SessionConfig {
            name: "private".into(),
            log_file_mode: 1,
            log_file: Some(folder.join("private.etl")),
            ..SessionConfig::default()
        };
        let session = PrivateSession::start(&config).unwrap();
        assert_eq!(session.enable(GROUP, &params(0, 0, OF_GROUP)).unwrap_err().status().0, 87);
        // Traits can be set without a daemon.
        let provider = Provider::register(MEMBER, None).unwrap();
        provider.set_traits(&traits("Alone")).unwrap();
        assert_eq!(provider.set_traits(&traits("Alone")).unwrap_err().status().0, 87);
        let stale = provider.handle().provider().unwrap();
        drop(provider);
        assert_eq!(stale.set_traits(&traits("Alone")).unwrap_err().status().0, 87);
    });
}

#[test]
fn invalid_group_enable_is_refused_without_change() {
    run_in_own_process("groups::invalid_group_enable_is_refused_without_change", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        let mut session = Recording::new(folder);
        let member = Provider::register_with_traits(MEMBER, &traits("Member"), None).unwrap();
        let with = |kind, data: &[u8]| EnableParams {
            filters: vec![Filter { kind, data: data.to_vec() }],
            ..params(4, 0, OF_GROUP)
        };
        let by_id = with(EVENT_FILTER_TYPE_EVENT_ID, &[1, 0, 1, 0, 7, 0]);
        assert_eq!(session.send_enable(GROUP, EnableCode::Enable, &by_id).0, 87);
        let unknown = Guid::from_u128(0x7777);
        let capture = params(0, 0, OF_GROUP);
        assert_eq!(session.send_enable(unknown, EnableCode::CaptureState, &capture).0, 1);
        assert_eq!(
            session.send_enable(MEMBER, EnableCode::CaptureState, &capture).0,
            1,
            "no group of this GUID"
        );
        assert_eq!(session.send_enable(GROUP, EnableCode::CaptureState, &capture).0, 0, "known, not enabled");
        assert_eq!(session.entry(GROUP, true).unwrap().sessions, []);
        assert!(!member.enabled(0, 0));
        // A group enable can be limited to processes.
        let elsewhere = with(EVENT_FILTER_TYPE_PID, &1u32.to_le_bytes());
        assert_eq!(session.send_enable(GROUP, EnableCode::Enable, &elsewhere).0, 0);
        assert!(!member.enabled(0, 0));
        let here = with(EVENT_FILTER_TYPE_PID, &std::process::id().to_le_bytes());
        assert_eq!(session.send_enable(GROUP, EnableCode::Enable, &here).0, 0);
        assert!(member.enabled(4, 0));
    });
}

#[test]
fn events_are_decoded_by_the_guid_of_the_traits() {
    run_in_own_process("groups::events_are_decoded_by_the_guid_of_the_traits", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        let mut session = Recording::new(folder);
        let blob = TraitsBuilder::new("Decoded").decode_guid(&OTHER).finish().unwrap().to_vec();
        let provider = Provider::register(MEMBER, None).unwrap();
        session.enable_at(MEMBER, 0, 0, 0);
        provider.write(&event(1, 0, 0), &[b"own"]).unwrap();
        provider.set_traits(&blob).unwrap();
        provider.write(&event(2, 0, 0), &[b"other's"]).unwrap();
        drop(provider);
        let provider = Provider::register_with_traits(MEMBER, &blob, None).unwrap();
        provider.write(&event(3, 0, 0), &[b"from the start"]).unwrap();
        assert_eq!(session.stop_and_list(), [(MEMBER, 1), (OTHER, 2), (OTHER, 3)]);
        let trace = etl::Trace::open(std::fs::File::open(folder.join("trace.etl")).unwrap()).unwrap();
        let mut events = trace.events();
        while let Some(record) = events.next().unwrap() {
            if record.provider() == OTHER {
                let control = record.items().data_of(ExtType::CONTROL_GUID);
                assert_eq!(control, Some(&MEMBER.to_bytes()[..]));
                assert_eq!(record.items().data_of(ExtType::PROV_TRAITS), Some(&blob[..]));
            }
        }
    });
}

#[test]
fn maximum_number_of_sessions_all_get_the_events() {
    run_in_own_process("groups::maximum_number_of_sessions_all_get_the_events", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let member = Provider::register_with_traits(MEMBER, &traits("Member"), None).unwrap();
        let config = |name: String, log_file_mode, guid| {
            let log_file = Some(folder.join(format!("{name}.etl")));
            SessionConfig { name, log_file_mode, log_file, guid, ..SessionConfig::default() }
        };
        let mut sessions = Vec::new();
        // Eight sessions each: by the provider, by its group, and private ones that the process
        // runs for the controller.
        for (kind, mode, target, property) in
            [("own", 1, MEMBER, 0), ("group", 1, GROUP, OF_GROUP), ("private", 0x801, MEMBER, 0)]
        {
            for number in 0..8 {
                let guid = if mode == 1 { Guid::NULL } else { MEMBER };
                let id = controller.start(&config(format!("{kind} {number}"), mode, guid)).unwrap().id;
                sessions.push((kind, SessionRef::Id(id)));
                let wanted = params(4, 1, property);
                let (_, session) = sessions.last().unwrap();
                controller.enable(session, target, EnableCode::Enable, &wanted, 120_000).unwrap();
            }
        }
        let own: Vec<_> = (0..3)
            .map(|number| {
                let session = PrivateSession::start(&config(format!("in process {number}"), 1, Guid::NULL));
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
        for session in own {
            assert_eq!(session.stop().unwrap().events, 1, "in the process");
        }
    });
}
