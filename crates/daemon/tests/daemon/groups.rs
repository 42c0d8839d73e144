//! Groups of providers and classic providers as a process hears of them: message by message.

use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP as OF_GROUP;
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::{EnableCode, EnableParams, Message, ProviderEntry};

use crate::util::*;

const GROUP: Guid = Guid::from_u128(0x6000);
const OTHER_GROUP: Guid = Guid::from_u128(0x6001);

fn traits(group: Guid) -> Vec<u8> {
    TraitsBuilder::new("member").group(&group).finish().unwrap().to_vec()
}

fn of_group(level: u8) -> EnableParams {
    EnableParams { level, property: OF_GROUP, ..EnableParams::default() }
}

fn group(session: u64, code: EnableCode, level: u8, timeout_ms: u32) -> Message {
    enable_with(session, GROUP, code, of_group(level), timeout_ms)
}

fn member(provider: &mut Client, registration: u32, provider_id: Guid) {
    let (traits, classic) = (traits(GROUP), false);
    provider.say(&Message::Register { registration, provider: provider_id, traits, classic });
}

fn classic(provider: &mut Client, registration: u32) {
    let (traits, classic) = (Vec::new(), true);
    provider.say(&Message::Register { registration, provider: PROVIDER, traits, classic });
}

fn listed(controller: &mut Client) -> Vec<ProviderEntry> {
    match controller.ask(Message::QueryProviders { after: None }) {
        Message::Providers { providers, .. } => providers,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_member_in_every_process_is_told_and_waited_for() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let (mut one, mut two) = (daemon.provider(), daemon.provider());
    member(&mut one, 1, PROVIDER);
    assert_eq!(one.hear(), Message::Registered { registration: 1 });
    one.register_quietly(2, PROVIDER);
    member(&mut two, 1, Guid::from_u128(5));
    assert_eq!(two.hear(), Message::Registered { registration: 1 });

    controller.say(&group(session, EnableCode::Enable, 3, u32::MAX));
    one.hear_region(session);
    let told = one.hear_enable();
    assert_eq!(
        (told.1, told.4.level, told.4.property),
        (1, 3, 0),
        "a member is told what it would be told alone"
    );
    one.acknowledge(told.0);
    one.assert_quiet();
    controller.assert_quiet();
    two.hear_region(session);
    let told = two.hear_enable();
    two.acknowledge(told.0);
    assert_eq!(controller.hear(), Message::Done);

    // A direct enable beside it is a change for those registrations alone; the sum is told, without waiting.
    let params = EnableParams { level: 5, match_any: 6, match_all: 4, ..EnableParams::default() };
    assert_eq!(controller.ask(enable_with(session, PROVIDER, EnableCode::Enable, params, 0)), Message::Done);
    let (first, second) = (one.hear_enable(), one.hear_enable());
    assert_eq!(
        (first.0, first.1, first.4.level, first.4.match_any, first.4.match_all),
        (0, 1, 5, u64::MAX, 0)
    );
    assert_eq!((second.1, second.4.level, second.4.match_any, second.4.match_all), (2, 5, 6, 4));
    two.assert_quiet();

    controller.say(&group(session, EnableCode::Disable, 0, 600_000));
    let told = one.hear_enable();
    assert_eq!((told.1, told.3, told.4.level), (1, EnableCode::Enable, 5), "what is left");
    one.acknowledge(told.0);
    let told = two.hear_enable();
    assert_eq!(told.3, EnableCode::Disable);
    two.hear_close(session);
    two.acknowledge(told.0);
    assert_eq!(controller.hear(), Message::Done);
    controller.disable(session, GROUP);
    one.assert_quiet();
}

#[test]
fn sessions_are_counted_for_each_provider_and_each_group() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let ids: Vec<u64> = (0..9).map(|i| controller.start(live(&i.to_string())).id).collect();
    let mut provider = daemon.provider();
    member(&mut provider, 1, GROUP);
    assert_eq!(provider.hear(), Message::Registered { registration: 1 });
    for id in &ids[..8] {
        assert_eq!(controller.ask(group(*id, EnableCode::Enable, 1, 0)), Message::Done);
        provider.hear_region(*id);
        provider.hear_enable();
    }
    let before = listed(&mut controller);
    assert_eq!(controller.status(group(ids[8], EnableCode::Enable, 1, 600_000)), 1450);
    assert_eq!(listed(&mut controller), before);
    provider.assert_quiet();
    // The same GUID as a provider has eight places of its own.
    assert_eq!(controller.ask(enable(ids[8], GROUP, EnableCode::Enable, 0)), Message::Done);
    provider.hear_region(ids[8]);
    assert_eq!(provider.hear_enable().2, ids[8]);
    let after = listed(&mut controller);
    assert_eq!(
        after.iter().map(|it| (it.is_group, it.sessions.len())).collect::<Vec<_>>(),
        [(false, 1), (true, 8)]
    );
    assert_eq!(after[0].groups, [GROUP]);
}

#[test]
fn traits_come_once_and_join_at_once() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    controller.ask(group(session, EnableCode::Enable, 2, 0));
    let mut provider = daemon.provider();
    provider.register_quietly(1, PROVIDER);
    classic(&mut provider, 2);
    assert_eq!(provider.hear(), Message::Registered { registration: 2 });
    let set = |registration, traits: &[u8]| Message::SetTraits { registration, traits: traits.to_vec() };
    let mut twice = traits(GROUP);
    twice.extend_from_slice(&traits(GROUP)[9..]);
    let size = u16::try_from(twice.len()).unwrap();
    twice[..2].copy_from_slice(&size.to_le_bytes());
    for wrong in
        [set(1, &[]), set(1, &[3, 0, 7]), set(1, &twice), set(2, &traits(GROUP)), set(9, &traits(GROUP))]
    {
        assert_eq!(provider.status(wrong.clone()), 87, "{wrong:?}");
    }
    provider.say(&set(1, &traits(GROUP)));
    provider.hear_region(session);
    let told = provider.hear_enable();
    assert_eq!((told.0, told.1, told.4.level), (0, 1, 2));
    assert_eq!(provider.hear(), Message::Done);
    assert_eq!(provider.status(set(1, &traits(OTHER_GROUP))), 87);
    assert_eq!(listed(&mut controller)[0].groups, [GROUP]);
    // Whoever leaves takes its membership along.
    provider.say(&Message::Unregister { registration: 1 });
    provider.hear_close(session);
    assert_eq!(provider.hear(), Message::Done);
    let group = listed(&mut controller).pop().unwrap();
    assert_eq!((group.provider, group.is_group, group.pids), (GROUP, true, vec![]));
}

#[test]
fn the_newest_session_has_a_classic_provider_and_the_older_is_closed_there() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (a, b) = (controller.start(live("a")).id, controller.start(live("b")).id);
    let mut provider = daemon.provider();
    classic(&mut provider, 1);
    assert_eq!(provider.hear(), Message::Registered { registration: 1 });
    let params = EnableParams {
        level: 0,
        match_any: 0xF_0000_0000,
        match_all: 3,
        property: 1,
        source: Guid::from_u128(4),
        ..EnableParams::default()
    };
    controller.ask(enable_with(a, PROVIDER, EnableCode::Enable, params.clone(), 0));
    provider.hear_region(a);
    let told = provider.hear_enable().4;
    assert_eq!(
        (told.level, told.match_any, told.match_all, told.property),
        (0, 0, 0, 0),
        "32 bits, and no more"
    );
    controller.enable(b, PROVIDER);
    provider.hear_region(b);
    let told = provider.hear_enable();
    assert_eq!((told.2, told.3), (b, EnableCode::Enable), "nothing is said of the other");
    provider.hear_close(a);
    // A registration that comes later gets the newest too; the older one still stands for it when that is gone.
    classic(&mut provider, 2);
    assert_eq!(provider.hear_enable().2, b);
    assert_eq!(provider.hear(), Message::Registered { registration: 2 });
    controller.disable(b, PROVIDER);
    let told = provider.hear_enables();
    assert_eq!((told.1, told.3), (vec![1, 2], EnableCode::Disable));
    provider.hear_close(b);
    classic(&mut provider, 3);
    provider.hear_region(a);
    assert_eq!(provider.hear_enable().2, a);
    assert_eq!(provider.hear(), Message::Registered { registration: 3 });
    assert!(listed(&mut controller)[0].is_classic);
}

#[test]
fn who_does_not_wait_is_answered_at_once_and_who_waits_not_for_longer_than_asked() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(live("s")).id;
    let mut provider = daemon.provider();
    member(&mut provider, 1, PROVIDER);
    assert_eq!(provider.hear(), Message::Registered { registration: 1 });
    // The process says nothing all the time.
    for target in [enable, |session, _, code, timeout| group(session, code, 1, timeout)] {
        assert_eq!(controller.ask(target(session, PROVIDER, EnableCode::Enable, 0)), Message::Done);
        let begun = Instant::now();
        assert_eq!(controller.status(target(session, PROVIDER, EnableCode::Enable, 60)), 1460);
        assert!(begun.elapsed() >= Duration::from_millis(60));
        assert_eq!(controller.status(target(session, PROVIDER, EnableCode::CaptureState, 10)), 1460);
        assert_eq!(controller.status(target(session, PROVIDER, EnableCode::Disable, 10)), 1460);
        let still = listed(&mut controller);
        assert!(still.iter().all(|it| it.sessions.is_empty()), "late, and done: {still:?}");
        assert_eq!(
            controller.ask(target(session, PROVIDER, EnableCode::Disable, u32::MAX)),
            Message::Done,
            "nothing to do"
        );
    }
}
