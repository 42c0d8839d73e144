//! Rules for provider groups. `rule.rs` explains the rows.

use traceweir::controller::{EnableCode, EnableParams, Filter, ProviderEntry};
use traceweir::{Guid, PrivateSession, Provider};
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EVENT_NAME,
    EVENT_FILTER_TYPE_PAYLOAD, EVENT_FILTER_TYPE_PID,
};
use traceweir_format::tracelogging::TraitsBuilder;

use crate::helpers::{
    CallbackCall, CallbackLog, Fixture, INVALID_PARAMETER, SUCCESS, Session, enable_params, event,
    event_with, new_guid, status, until,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 7", D, "enabling a group enables its members with its level and keywords",
        group_enable_reaches_members),
    rule!("provider 7", D, "a member that registers later is enabled too", later_member_is_enabled),
    rule!("provider 7", D, "only members are enabled; an enable of the group's GUID as a provider does not reach them",
        only_members_are_enabled_by_group),
    rule!("provider 7", D, "the enables of a provider and of its group combine like two sessions, and end independently",
        group_and_direct_enables_combine),
    rule!("provider 7", D, "a registration belongs to one group at most", registration_has_one_group),
    rule!("provider 7", D, "an enable of a group by a private session → 87",
        private_sessions_cannot_enable_groups),
    rule!("provider 7", D, "an enable of a group with a filter of ids, names or payloads → 87",
        groups_refuse_event_filters),
    rule!("provider 6", D, "a registration whose traits are set later joins the group, and its callback is called",
        traits_set_later_join_the_group),
];

fn member_traits(group: &Guid) -> Vec<u8> {
    TraitsBuilder::new("Member").group(group).finish().unwrap().to_vec()
}

fn group_params(params: EnableParams) -> EnableParams {
    EnableParams { property: EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, ..params }
}

fn disable(fixture: &Fixture, session: &Session, guid: Guid, property: u32) {
    let params = EnableParams { property, ..EnableParams::default() };
    fixture.connect().enable(&session.id, guid, EnableCode::Disable, &params, 10_000).unwrap();
}

fn find_entry(fixture: &Fixture, guid: Guid, is_group: bool) -> Option<ProviderEntry> {
    let entries = fixture.connect().provider_entries().unwrap();
    entries.into_iter().find(|entry| (entry.provider, entry.is_group) == (guid, is_group))
}

fn group_enable_reaches_members(fixture: &Fixture) {
    let (group, session) = (new_guid(), fixture.start(&fixture.config()));
    let calls = [CallbackLog::default(), CallbackLog::default()];
    let members: Vec<Provider> = calls
        .iter()
        .map(|calls| {
            Provider::register_with_traits(new_guid(), &member_traits(&group), calls.callback()).unwrap()
        })
        .collect();
    fixture.enable(&session, group, &group_params(enable_params(3, 6, 2)));
    assert!(calls.iter().all(|calls| calls.last().code_level_masks() == (1, 3, 6, 2)));
    // The events 100 are not recorded: level 4 is too high, and keyword 4 lacks the bit of
    // MatchAll.
    for (id, member) in (1..).zip(&members) {
        member.write(&event_with(id, 3, 2), &[]).unwrap();
        member.write(&event_with(100, 4, 2), &[]).unwrap();
        member.write(&event_with(100, 3, 4), &[]).unwrap();
    }
    let ids: Vec<u16> = fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, [1, 2]);
}

fn later_member_is_enabled(fixture: &Fixture) {
    let (group, session, calls) = (new_guid(), fixture.start(&fixture.config()), CallbackLog::default());
    fixture.enable(&session, group, &group_params(enable_params(3, 0, 0)));
    let member =
        Provider::register_with_traits(new_guid(), &member_traits(&group), calls.callback()).unwrap();
    assert_eq!(calls.all().iter().map(CallbackCall::code_level_masks).collect::<Vec<_>>(), [(1, 3, 0, 0)]);
    member.write(&event_with(1, 3, 1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn only_members_are_enabled_by_group(fixture: &Fixture) {
    let (group, session) = (new_guid(), fixture.start(&fixture.config()));
    let same_guid = Provider::register(group, None).unwrap();
    let other_groups_member =
        Provider::register_with_traits(new_guid(), &member_traits(&new_guid()), None).unwrap();
    let member = Provider::register_with_traits(new_guid(), &member_traits(&group), None).unwrap();
    fixture.enable(&session, group, &group_params(enable_params(5, 0, 0)));
    assert!(!same_guid.enabled(1, 1) && !other_groups_member.enabled(1, 1) && member.enabled(1, 1));
    disable(fixture, &session, group, EVENT_ENABLE_PROPERTY_PROVIDER_GROUP);
    fixture.enable(&session, group, &enable_params(5, 0, 0));
    assert!(same_guid.enabled(1, 1) && !other_groups_member.enabled(1, 1) && !member.enabled(1, 1));
}

fn group_and_direct_enables_combine(fixture: &Fixture) {
    let (group, guid, session) = (new_guid(), new_guid(), fixture.start(&fixture.config()));
    let calls = CallbackLog::default();
    let member = Provider::register_with_traits(guid, &member_traits(&group), calls.callback()).unwrap();
    fixture.enable(&session, group, &group_params(enable_params(2, 1, 0)));
    fixture.enable(&session, guid, &enable_params(4, 6, 0));
    assert_eq!(calls.last().code_level_masks(), (1, 4, 7, 0));
    member.write(&event_with(1, 2, 1), &[]).unwrap();
    member.write(&event_with(2, 4, 2), &[]).unwrap();
    disable(fixture, &session, group, EVENT_ENABLE_PROPERTY_PROVIDER_GROUP);
    assert_eq!(calls.last().code_level_masks(), (1, 4, 6, 0));
    fixture.enable(&session, group, &group_params(enable_params(2, 1, 0)));
    disable(fixture, &session, guid, 0);
    assert_eq!(calls.last().code_level_masks(), (1, 2, 1, 0));
    disable(fixture, &session, group, EVENT_ENABLE_PROPERTY_PROVIDER_GROUP);
    assert_eq!(calls.last().code, 0);
    let ids: Vec<u16> = fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, [1, 2], "an event was recorded twice or is missing");
}

fn registration_has_one_group(fixture: &Fixture) {
    let (group, guid) = (new_guid(), new_guid());
    let member = Provider::register_with_traits(guid, &member_traits(&group), None).unwrap();
    assert_eq!(status(member.set_traits(&member_traits(&new_guid()))), INVALID_PARAMETER);
    assert_eq!(find_entry(fixture, guid, false).unwrap().groups, [group]);
    assert_eq!(find_entry(fixture, group, true).unwrap().pids, [std::process::id()]);
    drop(member);
    until("the member has left its group", || find_entry(fixture, group, true).is_none());
}

fn private_sessions_cannot_enable_groups(fixture: &Fixture) {
    let group = new_guid();
    let session = PrivateSession::start(&fixture.config()).unwrap();
    let member = Provider::register_with_traits(new_guid(), &member_traits(&group), None).unwrap();
    assert_eq!(status(session.enable(group, &group_params(enable_params(5, 0, 0)))), INVALID_PARAMETER);
    assert!(!member.enabled(1, 1));
}

fn groups_refuse_event_filters(fixture: &Fixture) {
    let (group, session) = (new_guid(), fixture.start(&fixture.config()));
    let member = Provider::register_with_traits(new_guid(), &member_traits(&group), None).unwrap();
    let with_filter = |kind, data: &[u8]| EnableParams {
        filters: vec![Filter { kind, data: data.to_vec() }],
        ..group_params(enable_params(5, 0, 0))
    };
    // As a filter of ids, the data is: FilterIn, reserved, Count 1, id 7.
    for kind in [EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EVENT_NAME, EVENT_FILTER_TYPE_PAYLOAD] {
        let params = with_filter(kind, &[1, 0, 1, 0, 7, 0]);
        assert_eq!(status(fixture.try_enable(&session, group, &params)), INVALID_PARAMETER, "type {kind:#x}");
    }
    assert!(!member.enabled(1, 1));
    let filtered = with_filter(EVENT_FILTER_TYPE_PID, &std::process::id().to_le_bytes());
    assert_eq!(
        status(fixture.try_enable(&session, group, &filtered)),
        SUCCESS,
        "a process filter was refused"
    );
    assert!(member.enabled(1, 1));
}

fn traits_set_later_join_the_group(fixture: &Fixture) {
    let (group, guid, session) = (new_guid(), new_guid(), fixture.start(&fixture.config()));
    fixture.enable(&session, group, &group_params(enable_params(4, 0, 0)));
    let calls = CallbackLog::default();
    let provider = Provider::register(guid, calls.callback()).unwrap();
    assert!(!provider.enabled(1, 1) && calls.all().is_empty());
    provider.set_traits(&member_traits(&group)).unwrap();
    assert_eq!(calls.all().iter().map(CallbackCall::code_level_masks).collect::<Vec<_>>(), [(1, 4, 0, 0)]);
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}
