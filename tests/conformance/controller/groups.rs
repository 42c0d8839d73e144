//! Rules for provider groups. `rule.rs` explains the rows.

use traceweir::controller::{EnableCode, EnableParams};
use traceweir::{Guid, Provider};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::tracelogging::TraitsBuilder;

use crate::helpers::{Fixture, KEYWORD, LEVEL, SUCCESS, enable_params, event, event_with, new_guid, status};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 6 #PROVIDER_GROUP", D, "the GUID names a group: its members are enabled",
        a_group_is_enabled),
    rule!("controller 6 #PROVIDER_GROUP", D, "a member that registers later is enabled too, a provider with the group's GUID is not",
        later_group_member_is_enabled),
    rule!("controller 6 #PROVIDER_GROUP", D, "disabling the group disables its members", a_group_is_disabled),
];

fn register_member(group: Guid) -> Provider {
    let traits = TraitsBuilder::new("Member").group(&group).finish().unwrap().to_vec();
    Provider::register_with_traits(new_guid(), &traits, None).unwrap()
}

fn group_params(level: u8) -> EnableParams {
    EnableParams { property: EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, ..enable_params(level, 0, 0) }
}

fn a_group_is_enabled(fixture: &Fixture) {
    let (group, session) = (new_guid(), fixture.start(&fixture.config()));
    let (first, second, other_groups_member) =
        (register_member(group), register_member(group), register_member(new_guid()));
    fixture.enable(&session, group, &group_params(3));
    // The group is enabled with level 3. Event 9 has level 4 and is not recorded.
    for (id, provider) in [&first, &second, &other_groups_member].into_iter().enumerate() {
        provider.write(&event_with(u16::try_from(id).unwrap(), 3, 1), &[]).unwrap();
        provider.write(&event(9), &[]).unwrap();
    }
    let ids: Vec<u16> = fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, [0, 1]);
}

fn later_group_member_is_enabled(fixture: &Fixture) {
    let (group, session) = (new_guid(), fixture.start(&fixture.config()));
    fixture.enable(&session, group, &group_params(0));
    assert!(register_member(group).enabled(LEVEL, KEYWORD), "the later member is not enabled");
    assert!(
        !Provider::register(group, None).unwrap().enabled(LEVEL, KEYWORD),
        "a provider that is not a member is enabled"
    );
}

fn a_group_is_disabled(fixture: &Fixture) {
    let (group, session) = (new_guid(), fixture.start(&fixture.config()));
    let provider = register_member(group);
    fixture.enable(&session, group, &group_params(0));
    assert!(provider.enabled(LEVEL, KEYWORD));
    let disabled =
        fixture.connect().enable(&session.id, group, EnableCode::Disable, &group_params(0), 10_000);
    assert_eq!(status(disabled), SUCCESS);
    assert!(!provider.enabled(LEVEL, KEYWORD), "the member is still enabled");
}
