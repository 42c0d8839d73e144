//! Rules for EventEnabled and EventProviderEnabled. `rule.rs` explains the rows.

use traceweir::Provider;
use traceweir::controller::{EnableParams, Filter};
use traceweir_format::spec::enable::{EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0, EVENT_FILTER_TYPE_EVENT_ID};

use crate::helpers::{Fixture, KEYWORD, LEVEL, enable_params, event, event_with, new_guid};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 5", D, "EventProviderEnabled returns FALSE while no session has enabled the provider",
        never_enabled_without_session),
    rule!("provider 5", D, "the published formula applies to the combined values",
        enabled_applies_the_formula_to_combined_values),
    rule!("provider 5", H, "a level of 0 counts as 255", combined_level_0_is_all),
    rule!("provider 5", P, "with IGNORE_KEYWORD_0 on every session a keyword of 0 is not enabled; on one of two it is",
        keyword_0_is_enabled_unless_all_sessions_ignore_it),
    rule!("provider 5", D, "EventProviderEnabled may return TRUE although no session gets the event", enabled_event_may_reach_no_session),
    rule!("provider 5", D, "EventEnabled returns what EventProviderEnabled returns for level and keyword",
        event_enabled_matches_provider_enabled),
    rule!("provider 5", P, "EventEnabled applies filters of ids if every session has one",
        event_enabled_applies_id_filters),
    rule!("provider 5", D, "EventProviderEnabled never returns FALSE for an event that a session would record",
        enabled_never_misses_a_session),
];

fn never_enabled_without_session(_fixture: &Fixture) {
    let provider = Provider::register(new_guid(), None).unwrap();
    assert!(
        [0, 1, 255].iter().all(|level| !provider.enabled(*level, 0) && !provider.enabled(*level, u64::MAX))
    );
}

fn enabled_applies_the_formula_to_combined_values(fixture: &Fixture) {
    let (_first, provider, guid) = fixture.start_with_provider(&enable_params(3, 1, 0b1100));
    let second = fixture.start(&fixture.config());
    fixture.enable(&second, guid, &enable_params(5, 2, 0b0110));
    // The combined values of both sessions.
    let (level, any, all) = (5, 0b11, 0b0100);
    for event_level in [0, 3, 4, 5, 6, 255] {
        for keyword in [0, 1, 2, 4, 5, 6, 7, 12, u64::MAX] {
            let expected =
                event_level <= level && (keyword == 0 || keyword & any != 0 && keyword & all == all);
            assert_eq!(
                provider.enabled(event_level, keyword),
                expected,
                "level {event_level}, keyword {keyword:#b}"
            );
        }
    }
}

fn combined_level_0_is_all(fixture: &Fixture) {
    let (_session, provider, _guid) = fixture.start_with_provider(&enable_params(0, 0, 0));
    assert!(provider.enabled(255, 1) && provider.enabled(0, 0));
}

fn keyword_0_is_enabled_unless_all_sessions_ignore_it(fixture: &Fixture) {
    let ignore_keyword_0 =
        EnableParams { property: EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0, ..EnableParams::default() };
    let (_first, provider, guid) = fixture.start_with_provider(&ignore_keyword_0);
    assert!(!provider.enabled(4, 0) && provider.enabled(LEVEL, KEYWORD));
    let second = fixture.start(&fixture.config());
    fixture.enable(&second, guid, &EnableParams::default());
    assert!(provider.enabled(4, 0));
    fixture.enable(&second, guid, &ignore_keyword_0);
    assert!(!provider.enabled(4, 0));
}

fn enabled_event_may_reach_no_session(fixture: &Fixture) {
    let (first, provider, guid) = fixture.start_with_provider(&enable_params(5, 1, 0));
    let second = fixture.start(&fixture.config());
    fixture.enable(&second, guid, &enable_params(3, 2, 0));
    assert!(provider.enabled(5, 2), "the combined values do not enable the event");
    assert_eq!(provider.write(&event_with(1, 5, 2), &[]), Ok(()));
    assert_eq!((fixture.stop_and_read(first), fixture.stop_and_read(second)), (vec![], vec![]));
}

fn event_enabled_matches_provider_enabled(fixture: &Fixture) {
    let (_session, provider, _guid) = fixture.start_with_provider(&enable_params(3, 6, 2));
    for level in [0, 3, 4, 255] {
        for keyword in 0..8 {
            let is_enabled = provider.event_enabled(&event_with(1, level, keyword));
            assert_eq!(is_enabled, provider.enabled(level, keyword), "level {level}, keyword {keyword:#b}");
            assert_eq!(is_enabled, level <= 3 && (keyword == 0 || keyword & 2 != 0));
        }
    }
    let handle = provider.handle();
    drop(provider);
    assert!(
        !handle.provider().is_ok_and(|provider| provider.event_enabled(&event_with(1, 3, 2))),
        "a stale handle is enabled"
    );
}

fn event_enabled_applies_id_filters(fixture: &Fixture) {
    // FilterIn 1 admits only `id`; 0 admits all other ids.
    let by_id = |filter_in: u8, id: u8| EnableParams {
        filters: vec![Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data: vec![filter_in, 0, 1, 0, id, 0] }],
        ..EnableParams::default()
    };
    let (session, provider, guid) = fixture.start_with_provider(&by_id(1, 7));
    let is_enabled = |id| provider.event_enabled(&event(id));
    assert!(is_enabled(7) && !is_enabled(8));
    assert!(provider.enabled(LEVEL, KEYWORD), "the id filter affects the check of level and keyword");
    fixture.enable(&session, guid, &by_id(0, 7));
    assert!(!is_enabled(7) && is_enabled(8));
    let plain = fixture.start(&fixture.config());
    fixture.enable(&plain, guid, &EnableParams::default());
    assert!(is_enabled(7) && is_enabled(8), "a session without a filter does not enable all events");
}

fn enabled_never_misses_a_session(fixture: &Fixture) {
    let requests = [enable_params(2, 1, 1), enable_params(4, 0, 8), enable_params(1, 6, 2)];
    let (_first, provider, guid) = fixture.start_with_provider(&requests[0]);
    let (second, third) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    fixture.enable(&second, guid, &requests[1]);
    fixture.enable(&third, guid, &requests[2]);
    for params in requests {
        let any = if params.match_any == 0 { u64::MAX } else { params.match_any };
        for keyword in 1..16 {
            if keyword & any != 0 && keyword & params.match_all == params.match_all {
                assert!(provider.enabled(params.level, keyword), "{params:?}, keyword {keyword:#b}");
            }
        }
    }
}
