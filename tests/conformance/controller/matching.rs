//! Rules for the matching of events by level and keyword. `rule.rs` explains the rows.

use traceweir::controller::EnableParams;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0;

use crate::helpers::{Fixture, enable_params, event_with};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 6.2", D, "events pass by the published formula, for several mixes of level and masks",
        events_pass_by_the_published_formula),
    rule!("controller 6.2", D, "the formula holds for a whole table of levels, masks and keyword 0, in enabled checks and in recorded events",
        complete_truth_table_matches),
    rule!("controller 6.2", H, "a session level of 0 lets all levels through",
        session_level_0_passes_all_levels),
    rule!("controller 6.2", D, "an event level of 0 always passes", event_level_0_always_passes),
    rule!("decision 19", P, "MatchAny 0 counts as all ones; MatchAll still applies", any_0_is_all_ones),
    rule!("controller 6.2", D, "each of several sessions gets the events that it requested, and no more",
        sessions_are_matched_independently),
];

const LEVELS: [u8; 6] = [0, 1, 3, 4, 5, 255];
const KEYWORDS: [u64; 8] = [0, 1, 2, 3, 6, 8, 1 << 63, u64::MAX];

/// Returns whether an event passes by the documented formula, which is implemented here
/// independently of the library.
fn passes(session: &EnableParams, level: u8, keyword: u64) -> bool {
    let any = if session.match_any == 0 { u64::MAX } else { session.match_any };
    let level_passes = session.level == 0 || level <= session.level;
    let keyword_passes = match keyword {
        0 => session.property & EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 == 0,
        keyword => keyword & any != 0 && keyword & session.match_all == session.match_all,
    };
    level_passes && keyword_passes
}

/// Returns id, level and keyword of an event for each combination of level and keyword.
fn test_events() -> impl Iterator<Item = (u16, u8, u64)> {
    let pairs = LEVELS.iter().flat_map(|level| KEYWORDS.iter().map(move |keyword| (*level, *keyword)));
    pairs.zip(1..).map(|((level, keyword), id)| (id, level, keyword))
}

#[track_caller]
fn check_recorded_events(fixture: &Fixture, params: &EnableParams) {
    let (session, provider, _guid) = fixture.start_with_provider(params);
    for (id, level, keyword) in test_events() {
        provider.write(&event_with(id, level, keyword), &[]).unwrap();
    }
    let recorded: Vec<u16> = fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect();
    let expected: Vec<u16> = test_events()
        .filter(|(_, level, keyword)| passes(params, *level, *keyword))
        .map(|(id, ..)| id)
        .collect();
    assert_eq!(recorded, expected, "{params:?}");
}

fn events_pass_by_the_published_formula(fixture: &Fixture) {
    for (level, any, all) in [(4, 0, 0), (255, 1, 0), (3, 6, 2), (5, 0, 8), (1, u64::MAX, 1), (0, 1 << 63, 0)]
    {
        for property in [0, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0] {
            check_recorded_events(fixture, &EnableParams { property, ..enable_params(level, any, all) });
        }
    }
}

fn session_level_0_passes_all_levels(fixture: &Fixture) {
    check_recorded_events(fixture, &enable_params(0, 1, 0));
}

fn event_level_0_always_passes(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&enable_params(1, 0, 0));
    provider.write(&event_with(1, 0, 4), &[]).unwrap();
    provider.write(&event_with(2, 2, 4), &[]).unwrap();
    let ids: Vec<u16> = fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(ids, [1]);
}

fn any_0_is_all_ones(fixture: &Fixture) {
    check_recorded_events(fixture, &enable_params(0, 0, 0));
    check_recorded_events(fixture, &enable_params(0, 0, 2));
}

fn sessions_are_matched_independently(fixture: &Fixture) {
    let requests = [enable_params(3, 1, 0), enable_params(5, 2, 2), enable_params(0, 0, 8)];
    let (first, provider, guid) = fixture.start_with_provider(&requests[0]);
    let (second, third) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    fixture.enable(&second, guid, &requests[1]);
    fixture.enable(&third, guid, &requests[2]);
    for (id, level, keyword) in test_events() {
        provider.write(&event_with(id, level, keyword), &[]).unwrap();
    }
    for (session, params) in [first, second, third].into_iter().zip(&requests) {
        let recorded: Vec<u16> =
            fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect();
        let expected: Vec<u16> = test_events()
            .filter(|(_, level, keyword)| passes(params, *level, *keyword))
            .map(|(id, ..)| id)
            .collect();
        assert_eq!(recorded, expected, "{params:?}");
    }
}

/// Returns all combinations of the tested levels, masks and treatments of keyword 0.
fn all_enable_params() -> Vec<EnableParams> {
    let mut combinations = Vec::new();
    for level in LEVELS {
        for match_any in [0, 1, 6, 1 << 63, u64::MAX] {
            for match_all in [0, 1, 2, 6, 8, u64::MAX] {
                for property in [0, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0] {
                    combinations
                        .push(EnableParams { property, ..enable_params(level, match_any, match_all) });
                }
            }
        }
    }
    combinations
}

fn complete_truth_table_matches(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&enable_params(0, 0, 0));
    let mut expected = Vec::new();
    for (row, params) in (0u32..).zip(all_enable_params()) {
        fixture.enable(&session, guid, &params);
        for (id, level, keyword) in test_events() {
            let passes = passes(&params, level, keyword);
            assert_eq!(provider.enabled(level, keyword), passes, "{params:?}, {level}, {keyword:#x}");
            while provider.write(&event_with(id, level, keyword), &[&row.to_le_bytes()]).is_err() {
                std::thread::yield_now();
            }
            expected.extend(passes.then_some((row, id)));
        }
    }
    let row = |payload: &[u8]| u32::from_le_bytes(payload.try_into().unwrap());
    let mut recorded: Vec<(u32, u16)> =
        fixture.stop_and_read(session).iter().map(|seen| (row(&seen.payload), seen.descriptor.id)).collect();
    recorded.sort_unstable();
    assert_eq!(recorded, expected, "{} rows of {} events", all_enable_params().len(), test_events().count());
}
