//! Exhaustive tables of which session gets which event, against the documented rules ([`rules`]).
//!
//! ```text
//!   plain     levels {0, 1, 4, 5, 255} × any 0–7 × all 0–7 × IGNORE_KEYWORD_0 on and off:
//!             640 sessions without filters
//!   events    levels {0, 1, 4, 5, 255} × keywords 0–7 × manifest and TraceLogging: 80
//!   filters   ids × names × payload: absent, passing, failing: 27
//!   stacks    wanted or not × by ids × by names × by level and keyword: absent, passing,
//!             failing: 54
//!   classes   two sessions: the first takes everything; the second has level 1, any 1, all 1 and
//!             IGNORE_KEYWORD_0
//!             their events: taken by both; rejected by the second because of their level, their
//!             keyword, or keyword 0
//!   others    no other session; one that takes everything; the second session of the classes;
//!             one whose filters fail
//! ```
//!
//! | Sessions | Combinations that are tested exhaustively | Tested result |
//! |---|---|---|
//! | none, one | plain × (filters, and more of their kinds) × events | the session's records |
//! | two | plain × plain × levels and keywords | decisions, enables of a later registration |
//! | two | (plain × filters) × others, in both orders, × events | decisions |
//! | two | (filters × schematized or not × classes)² × events of the classes | records |
//! | one | filters × stacks × schematized or not × events of the classes | records |
//! | two | stacks² × events of the classes | records |
//! | two | every step of one (enable, other filters, disable) from every state of both | records |
//!
//! Two sessions with all masks *and* all filters on both sides are not combined, as no code depends
//! on both. The decision (`SessionEnable::wants_event`) gets one session's enable and the event; of
//! the registration it reads the filters of that enable only. So the decision for a session is a
//! function of its own parameters. A table of one session together with sessions that differ in
//! every respect shows this: each of the 640 × 27 sessions makes the same decisions alone and
//! together with an open, a strict or a filtered session. Two sessions only share the hot words
//! (the part of the enable state that every write reads), which are tested for every pair of
//! masks, and the hint that all have filters, which is tested for every pair of filters.
//!
//! A registration that is made after the enables gets them one by one, like an earlier
//! registration. The test applies the enables of every pair of masks, in the other order, to a slot
//! that had other sessions.
//!
//! Daemons select processes (process ids, names of programs, packages, applications, containers):
//! `crates/api/tests/provider/scopes.rs` tests this end to end, with registrations after the
//! enable, and `crates/daemon/src/registry/tests/scopes.rs` for every pair of scopes.

mod rules;
mod table;

use super::*;
use rules::{CombinedRules, Ids, NAME, Names, RuleParams, TestEvent};
use table::{RuleTable, descriptor, params};

const LEVELS: [u8; 5] = [0, 1, 4, 5, 255];
/// The level/keyword part that includes all events.
const ALL: rules::Part = (0, 0, 0);

fn events() -> Vec<TestEvent> {
    let mut events = Vec::new();
    for level in LEVELS {
        for keyword in 0..8 {
            for is_tracelogging in [false, true] {
                events.push(TestEvent { level, keyword, is_tracelogging, number: 1 + events.len() as u64 });
            }
        }
    }
    events
}

/// Returns all sessions without filters.
fn sessions() -> Vec<RuleParams> {
    let mut sessions = Vec::new();
    for level in LEVELS {
        for masks in 0..64 {
            for ignore_keyword_0 in [false, true] {
                let (any, all) = (masks % 8, masks / 8);
                sessions.push(RuleParams { level, any, all, ignore_keyword_0, ..RuleParams::default() });
            }
        }
    }
    sessions
}

/// Returns no filter; then a passing and a failing list of included ids; then a passing and a
/// failing list of excluded ids. The id of the events is 7.
fn id_filters() -> [Option<Ids>; 5] {
    [None, Some((vec![3, 7], true)), Some((vec![8], true)), Some((vec![8], false)), Some((vec![3, 7], false))]
}

/// Like [`id_filters`], but excluded names come before included ones. The last two filters apply to
/// a part of the events only.
fn name_filters() -> [Option<Names>; 7] {
    let name_filter = |names: &[&'static str], filter_in, part| Some((names.to_vec(), filter_in, part));
    [
        None,
        name_filter(&["eight"], false, ALL),
        name_filter(&["six", NAME], false, ALL),
        name_filter(&["six", NAME], true, ALL),
        name_filter(&["eight"], true, ALL),
        name_filter(&["eight"], true, (1, 2, 4)),
        name_filter(&[NAME], false, (0, 2, 1)),
    ]
}

fn payload_limits() -> [Option<u64>; 3] {
    [None, Some(u64::MAX), Some(0)]
}

/// Returns every event filter absent, passing and failing, combined with all others.
fn with_event_filters(rules: &RuleParams) -> Vec<RuleParams> {
    let mut combinations = Vec::new();
    for ids in &id_filters()[..3] {
        for names in &name_filters()[..3] {
            for payload_up_to in payload_limits() {
                combinations.push(RuleParams {
                    ids: ids.clone(),
                    names: names.clone(),
                    payload_up_to,
                    ..rules.clone()
                });
            }
        }
    }
    combinations
}

/// Returns filters that [`with_event_filters`] does not use: each alone, and one combination of all
/// three kinds.
fn with_other_event_filters(rules: &RuleParams) -> Vec<RuleParams> {
    let mut combinations = Vec::new();
    combinations.extend(id_filters().into_iter().skip(3).map(|ids| RuleParams { ids, ..rules.clone() }));
    combinations
        .extend(name_filters().into_iter().skip(3).map(|names| RuleParams { names, ..rules.clone() }));
    combinations.push(RuleParams { payload_up_to: Some(20), ..rules.clone() });
    let [.., ids, _] = id_filters();
    let [.., names] = name_filters();
    combinations.push(RuleParams { ids, names, payload_up_to: Some(9), ..rules.clone() });
    combinations
}

/// Returns every stack filter absent, passing and failing, combined with all others; with and
/// without stacks.
fn with_stack_filters(rules: &RuleParams) -> Vec<RuleParams> {
    let mut combinations = Vec::new();
    for stack_part in [None, Some((ALL, true)), Some((ALL, false))] {
        for stack_ids in &id_filters()[..3] {
            for stack_names in &name_filters()[..3] {
                for wants_stacks in [false, true] {
                    let (stack_ids, stack_names) = (stack_ids.clone(), stack_names.clone());
                    combinations.push(RuleParams {
                        wants_stacks,
                        stack_part,
                        stack_ids,
                        stack_names,
                        ..rules.clone()
                    });
                }
            }
        }
    }
    combinations
}

fn with_and_without_schematized(rules: RuleParams) -> [RuleParams; 2] {
    [RuleParams { has_schematized: true, ..rules.clone() }, rules]
}

/// Returns a session that takes everything, and one that takes only the first two of
/// [`class_events`].
fn session_classes() -> [RuleParams; 2] {
    [
        RuleParams::default(),
        RuleParams { level: 1, any: 1, all: 1, ignore_keyword_0: true, ..RuleParams::default() },
    ]
}

/// Returns events that both [`session_classes`] take, then events that the second one rejects:
/// because of their level, because of its masks, and because of keyword 0.
fn class_events() -> Vec<TestEvent> {
    let mut events = Vec::new();
    for (level, keyword) in [(1, 1), (5, 1), (1, 2), (1, 0)] {
        for is_tracelogging in [false, true] {
            events.push(TestEvent { level, keyword, is_tracelogging, number: 1 + events.len() as u64 });
        }
    }
    events
}

#[test]
fn one_session_gets_events_by_the_rules() {
    let mut table = RuleTable::new(40, events());
    table.check([None, None]);
    for plain in sessions() {
        for rules in [with_event_filters(&plain), with_other_event_filters(&plain)].concat() {
            table.set_enable(0, Some(&rules));
            table.check([Some(&rules), None]);
        }
        table.set_enable(0, None);
    }
    table.check([None, None]);
}

#[test]
fn two_sessions_get_the_same_events_as_alone() {
    let (slot, late, sessions) = (RegistrationSlot::new(), RegistrationSlot::new(), sessions());
    let events: Vec<_> = events().into_iter().filter(|e| !e.is_tracelogging).collect();
    let descriptors: Vec<_> = events.iter().map(descriptor).collect();
    // Returns a mask with one bit for each event: set if the session gets the event.
    let bits =
        |gets: &dyn Fn(usize) -> bool| (0..events.len()).fold(0_u64, |b, i| b | u64::from(gets(i)) << i);
    let alone: Vec<u64> = sessions.iter().map(|s| bits(&|i| s.gets_event(&events[i]))).collect();
    let params: Vec<_> = sessions.iter().map(params).collect();
    for (index, rules) in sessions.iter().enumerate() {
        slot.enable_session(1, Ticket(1), &params[index]);
        for (other_index, other) in sessions.iter().enumerate() {
            slot.enable_session(2, Ticket(1), &params[other_index]);
            let (first, second) = (slot.find_enable(1).unwrap(), slot.find_enable(2).unwrap());
            let together = CombinedRules::combine(&[rules, other]);
            late.disable_sessions(u64::MAX);
            late.enable_session(2, Ticket(1), &params[other_index]);
            late.enable_session(1, Ticket(1), &params[index]);
            for (outlet, early) in [(1, &first), (2, &second)] {
                let late = late.find_enable(outlet).unwrap();
                let values = |enable: &SessionEnable| {
                    (enable.level, enable.any, enable.all, enable.property, enable.is_filtered)
                };
                assert_eq!(values(&late), values(early), "{rules:?} {other:?}");
            }
            let mut got = [0_u64; 2];
            for (i, (e, d)) in events.iter().zip(&descriptors).enumerate() {
                let is_enabled = slot.is_enabled(e.level, e.keyword);
                assert_eq!(is_enabled, together.is_enabled(e), "{rules:?} {other:?} {e:?}");
                assert_eq!(
                    is_enabled,
                    late.is_enabled(e.level, e.keyword),
                    "late: {rules:?} {other:?} {e:?}"
                );
                let event = CallerEvent::new(d, &[]);
                got[0] |= u64::from(is_enabled && first.wants_event(&event)) << i;
                got[1] |= u64::from(is_enabled && second.wants_event(&event)) << i;
            }
            assert_eq!(got, [alone[index], alone[other_index]], "{rules:?} {other:?}");
        }
    }
}

/// Returns no session, both [`session_classes`], and a session whose filters all fail.
fn other_sessions() -> [Option<RuleParams>; 4] {
    let [open, strict] = session_classes();
    let (ids, names) = (id_filters()[2].clone(), name_filters()[2].clone());
    let filtered = RuleParams { ids, names, payload_up_to: Some(0), ..RuleParams::default() };
    [None, Some(open), Some(strict), Some(filtered)]
}

#[test]
fn decision_for_a_session_ignores_other_sessions() {
    let (events, metadata) = (events(), metadata(NAME));
    let descriptors: Vec<_> = events.iter().map(descriptor).collect();
    let numbers: Vec<_> = events.iter().map(|e| e.number.to_le_bytes()).collect();
    let assert_decisions = |slot: &RegistrationSlot, outlet, rules: &RuleParams| {
        let enable = slot.find_enable(outlet).unwrap();
        for ((e, d), number) in events.iter().zip(&descriptors).zip(&numbers) {
            let blocks = [&number[..]];
            let event = CallerEvent {
                metadata: e.is_tracelogging.then_some(&metadata[..]),
                ..CallerEvent::new(d, &blocks)
            };
            assert_eq!(enable.wants_event(&event), rules.gets_event(e), "{rules:?} {e:?}");
        }
    };
    let slot = RegistrationSlot::new();
    for (outlet, other_outlet) in [(1, 2), (2, 1)] {
        for other in other_sessions() {
            slot.disable_sessions(u64::MAX);
            if let Some(other) = &other {
                slot.enable_session(other_outlet, Ticket(1), &params(other));
            }
            for rules in sessions().iter().flat_map(with_event_filters) {
                slot.enable_session(outlet, Ticket(1), &params(&rules));
                assert_decisions(&slot, outlet, &rules);
            }
            if let Some(other) = &other {
                assert_decisions(&slot, other_outlet, other);
            }
        }
    }
    slot.disable_sessions(u64::MAX);
}

#[test]
fn filters_of_two_sessions_are_independent() {
    let mut table = RuleTable::new(42, class_events());
    let rules: Vec<RuleParams> = session_classes()
        .iter()
        .flat_map(with_event_filters)
        .flat_map(with_and_without_schematized)
        .collect();
    for first in &rules {
        table.set_enable(0, Some(first));
        for second in &rules {
            table.set_enable(1, Some(second));
            table.check([Some(first), Some(second)]);
        }
    }
}

#[test]
fn stack_filters_select_stacks_and_reject_no_events() {
    let mut table = RuleTable::new(44, class_events());
    for rules in with_event_filters(&RuleParams::default())
        .iter()
        .flat_map(with_stack_filters)
        .flat_map(with_and_without_schematized)
    {
        table.set_enable(0, Some(&rules));
        table.check([Some(&rules), None]);
    }
    let rules = with_stack_filters(&RuleParams::default());
    for first in &rules {
        table.set_enable(0, Some(first));
        for second in &rules {
            table.set_enable(1, Some(second));
            table.check([Some(first), Some(second)]);
        }
    }
}

#[test]
fn last_enable_applies_from_every_state_of_two_sessions() {
    let mut table = RuleTable::new(46, class_events());
    let mut states = vec![None];
    for plain in session_classes() {
        states.push(Some(plain.clone()));
        for ids in id_filters().into_iter().take(3).skip(1) {
            states.push(Some(RuleParams { ids, ..plain.clone() }));
        }
        for names in name_filters().into_iter().take(3).skip(1) {
            states.push(Some(RuleParams { names, ..plain.clone() }));
        }
    }
    states.push(Some(RuleParams { has_schematized: true, payload_up_to: Some(0), ..RuleParams::default() }));
    for first in &states {
        for second in &states {
            for next in &states {
                table.set_enable(0, first.as_ref());
                table.set_enable(1, second.as_ref());
                table.set_enable(0, next.as_ref());
                table.check([next.as_ref(), second.as_ref()]);
                table.set_enable(0, first.as_ref());
                table.set_enable(1, next.as_ref());
                table.check([first.as_ref(), next.as_ref()]);
            }
        }
    }
}
