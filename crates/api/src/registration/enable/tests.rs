use traceweir_format::spec::enable::EVENT_FILTER_TYPE_EVENT_ID as EVENT_ID;
use traceweir_transport::message::Filter;

use super::*;

/// Returns a filter that includes one event id: include (1), reserved, count (u16), the id (u16).
fn event_id_filter(id: u8) -> Vec<u8> {
    vec![1, 0, 1, 0, id, 0]
}

fn params(level: u8, any: u64, all: u64) -> EnableParams {
    EnableParams { level, match_any: any, match_all: all, ..EnableParams::default() }
}

#[test]
fn new_registration_is_disabled() {
    let slot = RegistrationSlot::new();
    assert!(!slot.is_enabled(0, 0));
    assert!(!slot.is_enabled(255, u64::MAX));
    assert_eq!(slot.combine_enables(u64::MAX), None);
}

#[test]
fn one_session_accepts_events_by_level_and_keyword() {
    for (session_level, any, all) in
        [(0, 0, 0), (4, 0, 0), (255, 1, 0), (3, 6, 2), (5, 0, 8), (1, u64::MAX, u64::MAX)]
    {
        for ignore in [false, true] {
            let slot = RegistrationSlot::new();
            let mut enable_params = params(session_level, any, all);
            enable_params.property = if ignore { IGNORE_KEYWORD_0 } else { 0 };
            assert_eq!(slot.enable_session(3, Ticket(7), &enable_params), EnableChange::Changed);
            for level in [0, 1, 3, 4, 5, 16, 255] {
                for keyword in [0, 1, 2, 4, 6, 8, 10, u64::MAX] {
                    let is_level_accepted = session_level == 0 || level <= session_level;
                    let any = if any == 0 { u64::MAX } else { any };
                    let is_keyword_accepted =
                        if keyword == 0 { !ignore } else { keyword & any != 0 && keyword & all == all };
                    let is_wanted = is_level_accepted && is_keyword_accepted;
                    assert_eq!(
                        slot.is_enabled(level, keyword),
                        is_wanted,
                        "{session_level} {any} {all} {level} {keyword}"
                    );
                    assert_eq!(slot.find_enable(3).unwrap().accepts(level, keyword), is_wanted);
                }
            }
        }
    }
}

#[test]
fn parameters_of_two_sessions_are_combined() {
    let slot = RegistrationSlot::new();
    slot.enable_session(0, Ticket(1), &params(3, 1, 4));
    assert_eq!(slot.combine_enables(u64::MAX), Some(CombinedEnable { level: 3, any: 1, all: 4 }));
    slot.enable_session(9, Ticket(3), &params(5, 2, 6));
    assert_eq!(slot.combine_enables(u64::MAX), Some(CombinedEnable { level: 5, any: 3, all: 4 }));
    slot.enable_session(9, Ticket(3), &params(0, 0, 6));
    assert_eq!(slot.combine_enables(u64::MAX), Some(CombinedEnable { level: 255, any: u64::MAX, all: 4 }));
    assert!(slot.disable_sessions(1));
    assert_eq!(slot.combine_enables(u64::MAX), Some(CombinedEnable { level: 0, any: 0, all: 6 }));
    assert!(slot.is_enabled(255, 6));
    assert!(slot.disable_sessions(1 << 9));
    assert!(!slot.disable_sessions(1 << 9));
    assert!(!slot.is_enabled(0, 0));
}

#[test]
fn repeated_enable_is_no_change_unless_filters_differ() {
    let slot = RegistrationSlot::new();
    let mut enable_params = params(3, 1, 4);
    assert_eq!(slot.enable_session(0, Ticket(1), &enable_params), EnableChange::Changed);
    assert_eq!(slot.enable_session(0, Ticket(1), &enable_params), EnableChange::None);
    for (kind, data) in
        [(1, vec![]), (1, vec![7]), (EVENT_ID, event_id_filter(7)), (EVENT_ID, event_id_filter(8))]
    {
        enable_params.filters = vec![Filter { kind, data }];
        assert_eq!(
            slot.enable_session(0, Ticket(1), &enable_params),
            EnableChange::Changed,
            "{enable_params:?}"
        );
        assert_eq!(
            slot.enable_session(0, Ticket(1), &enable_params),
            EnableChange::None,
            "{enable_params:?}"
        );
        assert_eq!(slot.is_filtered(), kind == EVENT_ID);
    }
    enable_params.filters.clear();
    assert_eq!(slot.enable_session(0, Ticket(1), &enable_params), EnableChange::Changed);
    assert!(!slot.is_filtered());
}

#[test]
fn registration_is_filtered_only_while_every_session_has_filters() {
    let slot = RegistrationSlot::new();
    let mut filtered_params = params(3, 1, 4);
    filtered_params.filters = vec![Filter { kind: EVENT_ID, data: event_id_filter(9) }];
    slot.enable_session(0, Ticket(1), &filtered_params);
    slot.enable_session(1, Ticket(1), &filtered_params);
    // The cell is 0 because there are two sessions.
    assert!(slot.only_filter_cell() == Some(0));
    slot.enable_session(2, Ticket(1), &params(3, 1, 4));
    assert!(!slot.is_filtered());
    assert_eq!(slot.session_enables().count(), 3);
    slot.disable_sessions(1 << 2);
    assert!(slot.is_filtered() && slot.is_active());
    assert_eq!(slot.session_enables().count(), 2);
    slot.disable_sessions(1);
    assert_eq!(slot.only_filter_cell(), Some(slot.find_enable(1).unwrap().filters.cell));
    assert!(slot.only_filter_cell() != Some(0) && slot.is_filtered() && slot.is_active());
    assert_eq!(slot.session_enables().count(), 1);
    slot.disable_sessions(2);
    assert!(slot.only_filter_cell().is_none() && !slot.is_active());
}

#[test]
fn invalid_filters_disable_the_session() {
    let slot = RegistrationSlot::new();
    let mut enable_params = params(3, 1, 4);
    assert_eq!(slot.enable_session(0, Ticket(1), &enable_params), EnableChange::Changed);
    // The filter announces two ids and contains one.
    enable_params.filters = vec![Filter { kind: EVENT_ID, data: vec![1, 0, 2, 0, 9, 0] }];
    let change = slot.enable_session(0, Ticket(1), &enable_params);
    assert_eq!(change.refusal().map(|(status, _)| status), Some(Status::ERROR_INVALID_PARAMETER));
    assert!(!slot.is_active());
}

#[test]
fn more_sessions_than_entries_are_refused() {
    let slot = RegistrationSlot::new();
    for outlet in 0..MAX_ENABLE_ENTRIES as u8 {
        assert_eq!(slot.enable_session(outlet, Ticket(1), &params(0, 0, 0)), EnableChange::Changed);
    }
    assert_eq!(slot.enable_session(60, Ticket(1), &params(0, 0, 0)), EnableChange::Full);
    assert_eq!(slot.session_enables().count(), MAX_ENABLE_ENTRIES);
}
