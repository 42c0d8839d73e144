use traceweir_format::spec::enable::EVENT_FILTER_TYPE_EVENT_ID as EVENT_ID;
use traceweir_transport::message::Filter;

use super::*;

fn params(level: u8, any: u64, all: u64) -> EnableParams {
    EnableParams { level, match_any: any, match_all: all, ..EnableParams::default() }
}

#[test]
fn new_registration_is_disabled() {
    let slot = Slot::new();
    assert!(!slot.enabled(0, 0));
    assert!(!slot.enabled(255, u64::MAX));
    assert_eq!(slot.combined(u64::MAX), None);
}

#[test]
fn one_session_matches_by_published_formula() {
    for (s_level, any, all) in
        [(0, 0, 0), (4, 0, 0), (255, 1, 0), (3, 6, 2), (5, 0, 8), (1, u64::MAX, u64::MAX)]
    {
        for ignore in [false, true] {
            let slot = Slot::new();
            let mut p = params(s_level, any, all);
            p.property = if ignore { IGNORE_KEYWORD_0 } else { 0 };
            assert_eq!(slot.enable_session(3, Ticket(7), &p), Change::Changed);
            for level in [0, 1, 3, 4, 5, 16, 255] {
                for keyword in [0, 1, 2, 4, 6, 8, 10, u64::MAX] {
                    let level_ok = s_level == 0 || level <= s_level;
                    let any = if any == 0 { u64::MAX } else { any };
                    let keyword_ok =
                        if keyword == 0 { !ignore } else { keyword & any != 0 && keyword & all == all };
                    let want = level_ok && keyword_ok;
                    assert_eq!(slot.enabled(level, keyword), want, "{s_level} {any} {all} {level} {keyword}");
                    assert_eq!(slot.enable_of_outlet(3).unwrap().takes(level, keyword), want);
                }
            }
        }
    }
}

#[test]
fn two_sessions_combine_while_one_keeps_its_values() {
    let slot = Slot::new();
    slot.enable_session(0, Ticket(1), &params(3, 1, 4));
    assert_eq!(slot.combined(u64::MAX), Some(Combined { level: 3, any: 1, all: 4 }));
    slot.enable_session(9, Ticket(3), &params(5, 2, 6));
    assert_eq!(slot.combined(u64::MAX), Some(Combined { level: 5, any: 3, all: 4 }));
    slot.enable_session(9, Ticket(3), &params(0, 0, 6));
    assert_eq!(slot.combined(u64::MAX), Some(Combined { level: 255, any: u64::MAX, all: 4 }));
    assert!(slot.disable_sessions(1));
    assert_eq!(slot.combined(u64::MAX), Some(Combined { level: 0, any: 0, all: 6 }));
    assert!(slot.enabled(255, 6));
    assert!(slot.disable_sessions(1 << 9));
    assert!(!slot.disable_sessions(1 << 9));
    assert!(!slot.enabled(0, 0));
}

#[test]
fn repeated_enable_is_no_change_but_new_filters_are() {
    let slot = Slot::new();
    let mut p = params(3, 1, 4);
    assert_eq!(slot.enable_session(0, Ticket(1), &p), Change::Changed);
    assert_eq!(slot.enable_session(0, Ticket(1), &p), Change::None);
    for (kind, data) in
        [(1, vec![]), (1, vec![7]), (EVENT_ID, vec![1, 0, 1, 0, 7, 0]), (EVENT_ID, vec![1, 0, 1, 0, 8, 0])]
    {
        p.filters = vec![Filter { kind, data }];
        assert_eq!(slot.enable_session(0, Ticket(1), &p), Change::Changed, "{p:?}");
        assert_eq!(slot.enable_session(0, Ticket(1), &p), Change::None, "{p:?}");
        assert_eq!(slot.is_filtered(), kind == EVENT_ID);
    }
    p.filters.clear();
    assert_eq!(slot.enable_session(0, Ticket(1), &p), Change::Changed);
    assert!(!slot.is_filtered());
}

#[test]
fn registration_is_filtered_only_while_each_session_is() {
    let slot = Slot::new();
    let mut filtered = params(3, 1, 4);
    filtered.filters = vec![Filter { kind: EVENT_ID, data: vec![1, 0, 1, 0, 9, 0] }];
    slot.enable_session(0, Ticket(1), &filtered);
    slot.enable_session(1, Ticket(1), &filtered);
    assert!(slot.filters_of_all() == Some(0));
    slot.enable_session(2, Ticket(1), &params(3, 1, 4));
    assert!(!slot.is_filtered());
    assert_eq!(slot.session_enables().count(), 3);
    slot.disable_sessions(1 << 2);
    assert!(slot.is_filtered() && slot.is_active());
    assert_eq!(slot.session_enables().count(), 2);
    slot.disable_sessions(1);
    assert_eq!(slot.filters_of_all(), Some(slot.enable_of_outlet(1).unwrap().filters.number));
    assert!(slot.filters_of_all() != Some(0) && slot.is_filtered() && slot.is_active());
    assert_eq!(slot.session_enables().count(), 1);
    slot.disable_sessions(2);
    assert!(slot.filters_of_all().is_none() && !slot.is_active());
}

#[test]
fn invalid_filters_disable_the_session() {
    let slot = Slot::new();
    let mut p = params(3, 1, 4);
    assert_eq!(slot.enable_session(0, Ticket(1), &p), Change::Changed);
    p.filters = vec![Filter { kind: EVENT_ID, data: vec![1, 0, 2, 0, 9, 0] }];
    let change = slot.enable_session(0, Ticket(1), &p);
    assert_eq!(change.refusal().map(|(status, _)| status), Some(Status::ERROR_INVALID_PARAMETER));
    assert!(!slot.is_active());
}

#[test]
fn more_sessions_than_entries_are_refused() {
    let slot = Slot::new();
    for outlet in 0..MAX_ENTRIES as u8 {
        assert_eq!(slot.enable_session(outlet, Ticket(1), &params(0, 0, 0)), Change::Changed);
    }
    assert_eq!(slot.enable_session(60, Ticket(1), &params(0, 0, 0)), Change::Full);
    assert_eq!(slot.session_enables().count(), MAX_ENTRIES);
}
