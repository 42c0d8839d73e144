//! Exhaustive tables of which session gets which event, against the published rules ([`rules`]).
//!
//! ```text
//!   all       levels {0, 1, 4, 5, 255} × any 0–7 × all 0–7 × IGNORE_KEYWORD_0 on and off:
//!             640 sessions without filters
//!   events    levels {0, 1, 4, 5, 255} × keywords 0–7 × manifest and TraceLogging: 80
//!   filters   ids × names × payload: absent, passing, failing: 27
//!   stacks    wanted or not × by ids × by names × by level and keyword: absent, passing,
//!             failing: 54
//!   classes   everything; level 1, keyword 1 and not 0
//!             events: taken by both, rejected by level, by mask, as keyword 0
//!   others    nothing, everything, a strict one, one whose filters fail
//! ```
//!
//! | Sessions | Combinations that are tested exhaustively | Tested result |
//! |---|---|---|
//! | none, one | all × (filters, and others of their kinds) × events | the memory of the session |
//! | two | all × all × levels and keywords | each decision, and the enables of a later registration
//! |
//! | two | (all × filters) × others, in both orders, × events | each session's decision |
//! | two | (filters × schematized or not × classes)² × events of the classes | the memory of each |
//! | one | filters × stacks × schematized or not × events of the classes | the session's memory |
//! | two | stacks² × events of the classes | the memory of each |
//! | two | every step of one (enable, other filters, disable) from every state of both | the memory
//! |
//!
//! Two sessions with all masks *and* all filters on both sides are not combined, as no code depends
//! on both. The decision (`SessionEnable::wants`) gets one session's enable and the event; of the
//! registration it reads the filters of that enable only. So the decision for a session is a
//! function of its own parameters, and a table of one session beside others that differ in every
//! respect shows this: each of the 640 × 27 beside none, an open, a strict and a filtered session
//! decides as it does alone. Two sessions only share the hot words, which are tested for every pair
//! of masks, and the hint that all have filters, which is tested for every pair of filters.
//!
//! A registration after the enables gets them one by one, like an earlier one: for every pair of
//! masks they are applied to a slot that had other sessions, in the other order.
//!
//! Daemons select processes (process ids, names of programs, packages, applications, containers):
//! `tests/provider/scopes.rs` tests this end to end, with registrations after the enable, and
//! `traceweir_daemon::filter::truth` for every pair of scopes.

mod rules;
mod table;

use super::*;
use rules::{Asked, Ids, NAME, Names, Offered, Together};
use table::{Table, descriptor, params};

const LEVELS: [u8; 5] = [0, 1, 4, 5, 255];
/// The level/keyword part that includes all events.
const ALL: rules::Part = (0, 0, 0);

/// Returns all events.
fn events() -> Vec<Offered> {
    let mut all = Vec::new();
    for level in LEVELS {
        for keyword in 0..8 {
            for tracelogging in [false, true] {
                all.push(Offered { level, keyword, tracelogging, number: 1 + all.len() as u64 });
            }
        }
    }
    all
}

/// Returns all sessions without filters.
fn sessions() -> Vec<Asked> {
    let mut all = Vec::new();
    for level in LEVELS {
        for masks in 0..64 {
            for ignore_keyword_0 in [false, true] {
                let (any, all_of) = (masks % 8, masks / 8);
                all.push(Asked { level, any, all: all_of, ignore_keyword_0, ..Asked::default() });
            }
        }
    }
    all
}

/// Returns absent, passing and failing filters; then passing and failing ones of the other kind of
/// list.
fn of_ids() -> [Option<Ids>; 5] {
    [None, Some((vec![3, 7], true)), Some((vec![8], true)), Some((vec![8], false)), Some((vec![3, 7], false))]
}

/// Like [`of_ids`]; the last two apply to a part of all events.
fn of_names() -> [Option<Names>; 7] {
    let listed = |names: &[&'static str], filter_in, part| Some((names.to_vec(), filter_in, part));
    [
        None,
        listed(&["eight"], false, ALL),
        listed(&["six", NAME], false, ALL),
        listed(&["six", NAME], true, ALL),
        listed(&["eight"], true, ALL),
        listed(&["eight"], true, (1, 2, 4)),
        listed(&[NAME], false, (0, 2, 1)),
    ]
}

fn of_payloads() -> [Option<u64>; 3] {
    [None, Some(u64::MAX), Some(0)]
}

/// Returns every event filter absent, passing and failing, combined with all others.
fn filters(asked: &Asked) -> Vec<Asked> {
    let mut all = Vec::new();
    for ids in &of_ids()[..3] {
        for names in &of_names()[..3] {
            for payload_up_to in of_payloads() {
                all.push(Asked { ids: ids.clone(), names: names.clone(), payload_up_to, ..asked.clone() });
            }
        }
    }
    all
}

/// Returns other filters of the same kinds, alone and together.
fn other_filters(asked: &Asked) -> Vec<Asked> {
    let mut all = Vec::new();
    all.extend(of_ids().into_iter().skip(3).map(|ids| Asked { ids, ..asked.clone() }));
    all.extend(of_names().into_iter().skip(3).map(|names| Asked { names, ..asked.clone() }));
    all.push(Asked { payload_up_to: Some(20), ..asked.clone() });
    let [.., ids, _] = of_ids();
    let [.., names] = of_names();
    all.push(Asked { ids, names, payload_up_to: Some(9), ..asked.clone() });
    all
}

/// Returns every stack filter absent, passing and failing, combined with all others; with and
/// without stacks.
fn stacks(asked: &Asked) -> Vec<Asked> {
    let mut all = Vec::new();
    for stack_part in [None, Some((ALL, true)), Some((ALL, false))] {
        for stack_ids in &of_ids()[..3] {
            for stack_names in &of_names()[..3] {
                for stacks in [false, true] {
                    let (stack_ids, stack_names) = (stack_ids.clone(), stack_names.clone());
                    all.push(Asked { stacks, stack_part, stack_ids, stack_names, ..asked.clone() });
                }
            }
        }
    }
    all
}

fn with_and_without_schematized(asked: Asked) -> [Asked; 2] {
    [Asked { schematized: true, ..asked.clone() }, asked]
}

/// Returns a session that takes everything, and one that takes only the first event of its class.
fn classes() -> [Asked; 2] {
    [Asked::default(), Asked { level: 1, any: 1, all: 1, ignore_keyword_0: true, ..Asked::default() }]
}

/// Returns events that both take, and that the second rejects by level, by masks, by keyword 0.
fn events_of_classes() -> Vec<Offered> {
    let mut all = Vec::new();
    for (level, keyword) in [(1, 1), (5, 1), (1, 2), (1, 0)] {
        for tracelogging in [false, true] {
            all.push(Offered { level, keyword, tracelogging, number: 1 + all.len() as u64 });
        }
    }
    all
}

#[test]
fn one_session_gets_events_by_the_rules() {
    let mut table = Table::new(40, events());
    table.check([None, None]);
    for plain in sessions() {
        for asked in [filters(&plain), other_filters(&plain)].concat() {
            table.ask(0, Some(&asked));
            table.check([Some(&asked), None]);
        }
        table.ask(0, None);
    }
    table.check([None, None]);
}

#[test]
fn two_sessions_get_the_same_events_as_alone() {
    let (slot, late, sessions) = (Slot::new(), Slot::new(), sessions());
    let events: Vec<_> = events().into_iter().filter(|e| !e.tracelogging).collect();
    let descriptors: Vec<_> = events.iter().map(descriptor).collect();
    // A bit for each event.
    let bits =
        |gets: &dyn Fn(usize) -> bool| (0..events.len()).fold(0_u64, |b, i| b | u64::from(gets(i)) << i);
    let alone: Vec<u64> = sessions.iter().map(|s| bits(&|i| s.gets(&events[i]))).collect();
    let params: Vec<_> = sessions.iter().map(params).collect();
    for (one, asked) in sessions.iter().enumerate() {
        slot.enable_session(1, Ticket(1), &params[one]);
        for (two, other) in sessions.iter().enumerate() {
            slot.enable_session(2, Ticket(1), &params[two]);
            let (first, second) = (slot.enable_of_outlet(1).unwrap(), slot.enable_of_outlet(2).unwrap());
            let together = Together::combine(&[asked, other]);
            late.disable_sessions(u64::MAX);
            late.enable_session(2, Ticket(1), &params[two]);
            late.enable_session(1, Ticket(1), &params[one]);
            for (outlet, early) in [(1, &first), (2, &second)] {
                let late = late.enable_of_outlet(outlet).unwrap();
                let values = |enable: &SessionEnable| {
                    (enable.level, enable.any, enable.all, enable.property, enable.filtered)
                };
                assert_eq!(values(&late), values(early), "{asked:?} {other:?}");
            }
            let mut got = [0_u64; 2];
            for (i, (e, d)) in events.iter().zip(&descriptors).enumerate() {
                let may = slot.enabled(e.level, e.keyword);
                assert_eq!(may, together.enabled(e), "{asked:?} {other:?} {e:?}");
                assert_eq!(may, late.enabled(e.level, e.keyword), "late: {asked:?} {other:?} {e:?}");
                let event = Event::new(d, &[]);
                got[0] |= u64::from(may && first.wants(&event)) << i;
                got[1] |= u64::from(may && second.wants(&event)) << i;
            }
            assert_eq!(got, [alone[one], alone[two]], "{asked:?} {other:?}");
        }
    }
}

/// Returns sessions that differ from most in every respect: none, an open one, a strict one, one
/// whose filters all fail.
fn others() -> [Option<Asked>; 4] {
    let [open, strict] = classes();
    let (ids, names) = (of_ids()[2].clone(), of_names()[2].clone());
    let filtered = Asked { ids, names, payload_up_to: Some(0), ..Asked::default() };
    [None, Some(open), Some(strict), Some(filtered)]
}

#[test]
fn decision_for_a_session_ignores_other_sessions() {
    let (events, metadata) = (events(), metadata(NAME));
    let descriptors: Vec<_> = events.iter().map(descriptor).collect();
    let numbers: Vec<_> = events.iter().map(|e| e.number.to_le_bytes()).collect();
    let decides = |slot: &Slot, outlet, asked: &Asked| {
        let enable = slot.enable_of_outlet(outlet).unwrap();
        for ((e, d), number) in events.iter().zip(&descriptors).zip(&numbers) {
            let blocks = [&number[..]];
            let event = Event { metadata: e.tracelogging.then_some(&metadata[..]), ..Event::new(d, &blocks) };
            assert_eq!(enable.wants(&event), asked.gets(e), "{asked:?} {e:?}");
        }
    };
    let slot = Slot::new();
    for (one, two) in [(1, 2), (2, 1)] {
        for other in others() {
            slot.disable_sessions(u64::MAX);
            if let Some(other) = &other {
                slot.enable_session(two, Ticket(1), &params(other));
            }
            for asked in sessions().iter().flat_map(filters) {
                slot.enable_session(one, Ticket(1), &params(&asked));
                decides(&slot, one, &asked);
            }
            if let Some(other) = &other {
                decides(&slot, two, other);
            }
        }
    }
    slot.disable_sessions(u64::MAX);
}

#[test]
fn filters_of_two_sessions_are_independent() {
    let mut table = Table::new(42, events_of_classes());
    let asked: Vec<Asked> =
        classes().iter().flat_map(filters).flat_map(with_and_without_schematized).collect();
    for one in &asked {
        table.ask(0, Some(one));
        for two in &asked {
            table.ask(1, Some(two));
            table.check([Some(one), Some(two)]);
        }
    }
}

#[test]
fn stack_filters_select_stacks_and_reject_no_events() {
    let mut table = Table::new(44, events_of_classes());
    for asked in filters(&Asked::default()).iter().flat_map(stacks).flat_map(with_and_without_schematized) {
        table.ask(0, Some(&asked));
        table.check([Some(&asked), None]);
    }
    let asked = stacks(&Asked::default());
    for one in &asked {
        table.ask(0, Some(one));
        for two in &asked {
            table.ask(1, Some(two));
            table.check([Some(one), Some(two)]);
        }
    }
}

#[test]
fn last_enable_counts_from_every_state_of_two_sessions() {
    let mut table = Table::new(46, events_of_classes());
    let mut states = vec![None];
    for plain in classes() {
        states.push(Some(plain.clone()));
        for ids in of_ids().into_iter().take(3).skip(1) {
            states.push(Some(Asked { ids, ..plain.clone() }));
        }
        for names in of_names().into_iter().take(3).skip(1) {
            states.push(Some(Asked { names, ..plain.clone() }));
        }
    }
    states.push(Some(Asked { schematized: true, payload_up_to: Some(0), ..Asked::default() }));
    for one in &states {
        for two in &states {
            for next in &states {
                table.ask(0, one.as_ref());
                table.ask(1, two.as_ref());
                table.ask(0, next.as_ref());
                table.check([next.as_ref(), two.as_ref()]);
                table.ask(0, one.as_ref());
                table.ask(1, next.as_ref());
                table.check([one.as_ref(), next.as_ref()]);
            }
        }
    }
}
