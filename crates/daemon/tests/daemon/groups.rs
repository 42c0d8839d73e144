//! Provider groups and classic providers, message by message as a process receives them.

use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP as PROVIDER_GROUP;
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::{EnableCode, EnableParams, Message, ProviderEntry};

use crate::util::*;

const GROUP: Guid = Guid::from_u128(0x6000);
const OTHER_GROUP: Guid = Guid::from_u128(0x6001);

fn group_traits(group: Guid) -> Vec<u8> {
    TraitsBuilder::new("member").group(&group).finish().unwrap().to_vec()
}

fn group_params(level: u8) -> EnableParams {
    EnableParams { level, property: PROVIDER_GROUP, ..EnableParams::default() }
}

fn enable_group_message(session: u64, code: EnableCode, level: u8, timeout_ms: u32) -> Message {
    enable_message_with(session, GROUP, code, group_params(level), timeout_ms)
}

fn register_member(provider: &mut Client, registration: u32, provider_id: Guid) {
    let (traits, classic) = (group_traits(GROUP), false);
    provider.send(&Message::Register { registration, provider: provider_id, traits, classic });
}

fn register_classic(provider: &mut Client, registration: u32) {
    let (traits, classic) = (Vec::new(), true);
    provider.send(&Message::Register { registration, provider: PROVIDER, traits, classic });
}

fn list_providers(controller: &mut Client) -> Vec<ProviderEntry> {
    match controller.request(Message::QueryProviders { after: None }) {
        Message::Providers { providers, .. } => providers,
        other => panic!("{other:?}"),
    }
}

#[test]
fn group_enable_waits_for_every_member_in_every_process() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let (mut first_process, mut second_process) = (daemon.provider(), daemon.provider());
    register_member(&mut first_process, 1, PROVIDER);
    assert_eq!(first_process.receive(), Message::Registered { registration: 1 });
    first_process.register_unenabled(2, PROVIDER);
    register_member(&mut second_process, 1, Guid::from_u128(5));
    assert_eq!(second_process.receive(), Message::Registered { registration: 1 });

    controller.send(&enable_group_message(session, EnableCode::Enable, 3, u32::MAX));
    first_process.receive_region(session);
    let enable = first_process.receive_enable();
    assert_eq!(
        (enable.registration(), enable.params.level, enable.params.property),
        (1, 3, 0),
        "a member receives the same as for a direct enable"
    );
    first_process.acknowledge(enable.order);
    first_process.assert_quiet();
    controller.assert_quiet();
    second_process.receive_region(session);
    let enable = second_process.receive_enable();
    second_process.acknowledge(enable.order);
    assert_eq!(controller.receive(), Message::Done);

    // An additional direct enable affects only the registrations of its provider.
    let params = EnableParams { level: 5, match_any: 6, match_all: 4, ..EnableParams::default() };
    assert_eq!(
        controller.request(enable_message_with(session, PROVIDER, EnableCode::Enable, params, 0)),
        Message::Done
    );
    // Registration 1 gets the combination with the group's enable, whose masks 0 mean "all".
    let (first, second) = (first_process.receive_enable(), first_process.receive_enable());
    assert_eq!(
        (first.registration(), first.params.level, first.params.match_any, first.params.match_all),
        (1, 5, u64::MAX, 0)
    );
    assert_eq!(
        (second.registration(), second.params.level, second.params.match_any, second.params.match_all),
        (2, 5, 6, 4)
    );
    second_process.assert_quiet();

    controller.send(&enable_group_message(session, EnableCode::Disable, 0, 600_000));
    let enable = first_process.receive_enable();
    assert_eq!(
        (enable.registration(), enable.code, enable.params.level),
        (1, EnableCode::Enable, 5),
        "the direct enable is left"
    );
    first_process.acknowledge(enable.order);
    let enable = second_process.receive_enable();
    assert_eq!(enable.code, EnableCode::Disable);
    second_process.receive_close(session);
    second_process.acknowledge(enable.order);
    assert_eq!(controller.receive(), Message::Done);
    // A provider with the group's GUID is another target: this changes nothing.
    controller.disable(session, GROUP);
    first_process.assert_quiet();
}

#[test]
fn session_limit_applies_per_provider_and_per_group() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let ids: Vec<u64> = (0..9).map(|i| controller.start(real_time_config(&i.to_string())).id).collect();
    let mut provider = daemon.provider();
    register_member(&mut provider, 1, GROUP);
    assert_eq!(provider.receive(), Message::Registered { registration: 1 });
    for id in &ids[..8] {
        assert_eq!(controller.request(enable_group_message(*id, EnableCode::Enable, 1, 0)), Message::Done);
        provider.receive_region(*id);
        provider.receive_enable();
    }
    let providers_before = list_providers(&mut controller);
    assert_eq!(
        controller.status(enable_group_message(ids[8], EnableCode::Enable, 1, 600_000)),
        NO_SYSTEM_RESOURCES
    );
    assert_eq!(list_providers(&mut controller), providers_before);
    provider.assert_quiet();
    // The limit of eight sessions counts separately for a provider with the same GUID.
    assert_eq!(controller.request(enable_message(ids[8], GROUP, EnableCode::Enable, 0)), Message::Done);
    provider.receive_region(ids[8]);
    assert_eq!(provider.receive_enable().session, ids[8]);
    let providers = list_providers(&mut controller);
    assert_eq!(
        providers.iter().map(|entry| (entry.is_group, entry.sessions.len())).collect::<Vec<_>>(),
        [(false, 1), (true, 8)]
    );
    assert_eq!(providers[0].groups, [GROUP]);
}

#[test]
fn traits_are_set_once_and_take_effect_at_once() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    controller.request(enable_group_message(session, EnableCode::Enable, 2, 0));
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    register_classic(&mut provider, 2);
    assert_eq!(provider.receive(), Message::Registered { registration: 2 });
    let set_traits =
        |registration, traits: &[u8]| Message::SetTraits { registration, traits: traits.to_vec() };
    // Appends the group a second time: it follows the size (2 bytes) and the name (7 bytes).
    let mut traits_with_two_groups = group_traits(GROUP);
    traits_with_two_groups.extend_from_slice(&group_traits(GROUP)[9..]);
    let size = u16::try_from(traits_with_two_groups.len()).unwrap();
    traits_with_two_groups[..2].copy_from_slice(&size.to_le_bytes());
    // No bytes, a name without terminator, two groups, a classic registration, an unknown one.
    for invalid_request in [
        set_traits(1, &[]),
        set_traits(1, &[3, 0, 7]),
        set_traits(1, &traits_with_two_groups),
        set_traits(2, &group_traits(GROUP)),
        set_traits(9, &group_traits(GROUP)),
    ] {
        assert_eq!(provider.status(invalid_request.clone()), INVALID_PARAMETER, "{invalid_request:?}");
    }
    provider.send(&set_traits(1, &group_traits(GROUP)));
    provider.receive_region(session);
    let enable = provider.receive_enable();
    assert_eq!((enable.order, enable.registration(), enable.params.level), (0, 1, 2));
    assert_eq!(provider.receive(), Message::Done);
    assert_eq!(provider.status(set_traits(1, &group_traits(OTHER_GROUP))), INVALID_PARAMETER);
    assert_eq!(list_providers(&mut controller)[0].groups, [GROUP]);
    // A registration that is removed also leaves its group.
    provider.send(&Message::Unregister { registration: 1 });
    provider.receive_close(session);
    assert_eq!(provider.receive(), Message::Done);
    let group = list_providers(&mut controller).pop().unwrap();
    assert_eq!((group.provider, group.is_group, group.pids), (GROUP, true, vec![]));
}

#[test]
fn latest_session_takes_over_a_classic_provider() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (a, b) = (controller.start(real_time_config("a")).id, controller.start(real_time_config("b")).id);
    let mut provider = daemon.provider();
    register_classic(&mut provider, 1);
    assert_eq!(provider.receive(), Message::Registered { registration: 1 });
    let params = EnableParams {
        level: 0,
        match_any: 0xF_0000_0000,
        match_all: 3,
        property: 1,
        source: Guid::from_u128(4),
        ..EnableParams::default()
    };
    controller.request(enable_message_with(a, PROVIDER, EnableCode::Enable, params.clone(), 0));
    provider.receive_region(a);
    let params = provider.receive_enable().params;
    assert_eq!(
        (params.level, params.match_any, params.match_all, params.property),
        (0, 0, 0, 0),
        "only the low 32 bits of the mask"
    );
    controller.enable(b, PROVIDER);
    provider.receive_region(b);
    let enable = provider.receive_enable();
    assert_eq!((enable.session, enable.code), (b, EnableCode::Enable), "no message about the other session");
    provider.receive_close(a);
    // A later registration gets the latest session (b) too. When b disables the provider, existing
    // registrations are disabled; only those made after that get session a again.
    register_classic(&mut provider, 2);
    assert_eq!(provider.receive_enable().session, b);
    assert_eq!(provider.receive(), Message::Registered { registration: 2 });
    controller.disable(b, PROVIDER);
    let enables = provider.receive_enables();
    assert_eq!((enables.registrations, enables.code), (vec![1, 2], EnableCode::Disable));
    provider.receive_close(b);
    register_classic(&mut provider, 3);
    provider.receive_region(a);
    assert_eq!(provider.receive_enable().session, a);
    assert_eq!(provider.receive(), Message::Registered { registration: 3 });
    assert!(list_providers(&mut controller)[0].is_classic);
}

#[test]
fn enable_waits_no_longer_than_its_timeout() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("s")).id;
    let mut provider = daemon.provider();
    register_member(&mut provider, 1, PROVIDER);
    assert_eq!(provider.receive(), Message::Registered { registration: 1 });
    // The process acknowledges nothing.
    for new_message in
        [enable_message, |session, _, code, timeout| enable_group_message(session, code, 1, timeout)]
    {
        assert_eq!(controller.request(new_message(session, PROVIDER, EnableCode::Enable, 0)), Message::Done);
        let start = Instant::now();
        assert_eq!(controller.status(new_message(session, PROVIDER, EnableCode::Enable, 60)), TIMEOUT);
        assert!(start.elapsed() >= Duration::from_millis(60));
        assert_eq!(controller.status(new_message(session, PROVIDER, EnableCode::CaptureState, 10)), TIMEOUT);
        assert_eq!(controller.status(new_message(session, PROVIDER, EnableCode::Disable, 10)), TIMEOUT);
        let listed = list_providers(&mut controller);
        assert!(
            listed.iter().all(|entry| entry.sessions.is_empty()),
            "a disable that timed out was not applied: {listed:?}"
        );
        assert_eq!(
            controller.request(new_message(session, PROVIDER, EnableCode::Disable, u32::MAX)),
            Message::Done,
            "nothing to do"
        );
    }
}
