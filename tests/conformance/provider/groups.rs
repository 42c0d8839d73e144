//! Conformance of provider groups.

use traceweir::controller::{EnableCode, EnableParams, Filter, ProviderEntry};
use traceweir::{Guid, PrivateSession, Provider};
use traceweir_format::tracelogging::TraitsBuilder;

use crate::rule::{Rule, rule};
use crate::stage::{Call, Calls, Session, Stage, event, new_provider, status, until, wants};

pub(crate) const RULES: &[Rule] = &[
    rule!("provider 7", D, "enabling a group enables its members with its level and keywords", members),
    rule!("provider 7", D, "a member that registers later is enabled too", later_members),
    rule!("provider 7", D, "only members are enabled, and not by the group's GUID as a provider", no_members),
    rule!(
        "provider 7",
        D,
        "the enables of a provider and of its group combine like two sessions, and end apart",
        both_together
    ),
    rule!("provider 7", D, "a registration belongs to one group at most", one_group_each),
    rule!("provider 7", D, "private sessions cannot control groups → 87", groups_of_private_sessions),
    rule!(
        "provider 7",
        D,
        "filters of ids, names and payloads are not for groups → 87",
        no_filters_of_events
    ),
    rule!("provider 6", D, "traits that are set later join the group; the callback is called", joining_later),
];

const OF_GROUP: u32 = 0x20;

fn traits(group: &Guid) -> Vec<u8> {
    TraitsBuilder::new("Member").group(group).finish().unwrap().to_vec()
}

fn of_group(params: EnableParams) -> EnableParams {
    EnableParams { property: OF_GROUP, ..params }
}

fn disable(stage: &Stage, session: &Session, guid: Guid, property: u32) {
    let params = EnableParams { property, ..EnableParams::default() };
    stage.controller().enable(&session.id, guid, EnableCode::Disable, &params, 10_000).unwrap();
}

fn listed(stage: &Stage, guid: Guid, is_group: bool) -> Option<ProviderEntry> {
    let all = stage.controller().provider_entries().unwrap();
    all.into_iter().find(|entry| (entry.provider, entry.is_group) == (guid, is_group))
}

fn members(stage: &Stage) {
    let (group, session) = (new_provider(), stage.start(&stage.config()));
    let calls = [Calls::default(), Calls::default()];
    let members: Vec<Provider> = calls
        .iter()
        .map(|calls| {
            Provider::register_with_traits(new_provider(), &traits(&group), calls.callback()).unwrap()
        })
        .collect();
    stage.enable(&session, group, &of_group(wants(3, 6, 2)));
    assert!(calls.iter().all(|calls| calls.last().state() == (1, 3, 6, 2)));
    for (id, member) in (1..).zip(&members) {
        member.write(&event(id, 3, 2), &[]).unwrap();
        member.write(&event(100, 4, 2), &[]).unwrap();
        member.write(&event(100, 3, 4), &[]).unwrap();
    }
    let ids: Vec<u16> = stage.stop(session).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, [1, 2]);
}

fn later_members(stage: &Stage) {
    let (group, session, calls) = (new_provider(), stage.start(&stage.config()), Calls::default());
    stage.enable(&session, group, &of_group(wants(3, 0, 0)));
    let member = Provider::register_with_traits(new_provider(), &traits(&group), calls.callback()).unwrap();
    assert_eq!(calls.all().iter().map(Call::state).collect::<Vec<_>>(), [(1, 3, 0, 0)]);
    member.write(&event(1, 3, 1), &[]).unwrap();
    assert_eq!(stage.stop(session).len(), 1);
}

fn no_members(stage: &Stage) {
    let (group, session) = (new_provider(), stage.start(&stage.config()));
    let same = Provider::register(group, None).unwrap();
    let other = Provider::register_with_traits(new_provider(), &traits(&new_provider()), None).unwrap();
    let member = Provider::register_with_traits(new_provider(), &traits(&group), None).unwrap();
    stage.enable(&session, group, &of_group(wants(5, 0, 0)));
    assert!(!same.enabled(1, 1) && !other.enabled(1, 1) && member.enabled(1, 1));
    disable(stage, &session, group, OF_GROUP);
    stage.enable(&session, group, &wants(5, 0, 0));
    assert!(same.enabled(1, 1) && !other.enabled(1, 1) && !member.enabled(1, 1));
}

fn both_together(stage: &Stage) {
    let (group, guid, session) = (new_provider(), new_provider(), stage.start(&stage.config()));
    let calls = Calls::default();
    let member = Provider::register_with_traits(guid, &traits(&group), calls.callback()).unwrap();
    stage.enable(&session, group, &of_group(wants(2, 1, 0)));
    stage.enable(&session, guid, &wants(4, 6, 0));
    assert_eq!(calls.last().state(), (1, 4, 7, 0));
    member.write(&event(1, 2, 1), &[]).unwrap();
    member.write(&event(2, 4, 2), &[]).unwrap();
    disable(stage, &session, group, OF_GROUP);
    assert_eq!(calls.last().state(), (1, 4, 6, 0));
    stage.enable(&session, group, &of_group(wants(2, 1, 0)));
    disable(stage, &session, guid, 0);
    assert_eq!(calls.last().state(), (1, 2, 1, 0));
    disable(stage, &session, group, OF_GROUP);
    assert_eq!(calls.last().code, 0);
    let ids: Vec<u16> = stage.stop(session).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, [1, 2], "each event once");
}

fn one_group_each(stage: &Stage) {
    let (group, guid) = (new_provider(), new_provider());
    let member = Provider::register_with_traits(guid, &traits(&group), None).unwrap();
    assert_eq!(status(member.set_traits(&traits(&new_provider()))), 87);
    assert_eq!(listed(stage, guid, false).unwrap().groups, [group]);
    assert_eq!(listed(stage, group, true).unwrap().pids, [std::process::id()]);
    drop(member);
    until("it has left its group", || listed(stage, group, true).is_none());
}

fn groups_of_private_sessions(stage: &Stage) {
    let group = new_provider();
    let session = PrivateSession::start(&stage.config()).unwrap();
    let member = Provider::register_with_traits(new_provider(), &traits(&group), None).unwrap();
    assert_eq!(status(session.enable(group, &of_group(wants(5, 0, 0)))), 87);
    assert!(!member.enabled(1, 1));
}

fn no_filters_of_events(stage: &Stage) {
    let (group, session) = (new_provider(), stage.start(&stage.config()));
    let member = Provider::register_with_traits(new_provider(), &traits(&group), None).unwrap();
    let with = |kind, data: &[u8]| EnableParams {
        filters: vec![Filter { kind, data: data.to_vec() }],
        ..of_group(wants(5, 0, 0))
    };
    // Filters by id, by name and by payload.
    for kind in [0x8000_0200, 0x8000_0400, 0x8000_0100] {
        let params = with(kind, &[1, 0, 1, 0, 7, 0]);
        assert_eq!(status(stage.try_enable(&session, group, &params)), 87, "{kind:#x}");
    }
    assert!(!member.enabled(1, 1));
    let here = with(0x8000_0004, &std::process::id().to_le_bytes());
    assert_eq!(status(stage.try_enable(&session, group, &here)), 0, "processes can be picked");
    assert!(member.enabled(1, 1));
}

fn joining_later(stage: &Stage) {
    let (group, guid, session) = (new_provider(), new_provider(), stage.start(&stage.config()));
    stage.enable(&session, group, &of_group(wants(4, 0, 0)));
    let calls = Calls::default();
    let provider = Provider::register(guid, calls.callback()).unwrap();
    assert!(!provider.enabled(1, 1) && calls.all().is_empty());
    provider.set_traits(&traits(&group)).unwrap();
    assert_eq!(calls.all().iter().map(Call::state).collect::<Vec<_>>(), [(1, 4, 0, 0)]);
    provider.write(&event(1, 4, 1), &[]).unwrap();
    assert_eq!(stage.stop(session).len(), 1);
}
