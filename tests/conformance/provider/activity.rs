//! Rules for activity ids (EventActivityIdControl). `rule.rs` explains the rows.

use std::collections::HashSet;

use traceweir::Guid;
use traceweir::provider::activity;

use crate::helpers::{Fixture, new_guid};
use crate::processes::OtherProcess;
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 4.5 #GET_ID, #SET_ID, #GET_SET_ID", D, "the thread's id is set, read and swapped",
        activity_id_is_set_and_read),
    rule!("provider 4.5", D, "new threads start at zero", new_threads_have_activity_zero),
    rule!("provider 4.5 #CREATE_ID", D, "new ids are unique, also between threads", activity_ids_are_unique),
    rule!("provider 4.5", D, "codes 1 to 5: get, set, create, swap, create and set",
        activity_codes_get_set_create_and_swap),
    rule!("provider 4.5", P, "an unknown code → 87, and nothing changes", unknown_activity_codes_are_refused),
    rule!("provider 4.5", D, "ids of two processes are never equal", activity_ids_of_processes_differ),
    rule!("provider 4.5", P, "48 bits identify the process, 64 are a counter",
        activity_ids_have_process_bits_and_a_counter),
    rule!("provider 4.5", P, "a new id is never equal to a random UUID", activity_ids_are_not_random_uuids),
];

fn activity_id_is_set_and_read(_fixture: &Fixture) {
    let (first, second) = (Guid::from_u128(1), Guid::from_u128(2));
    let before = activity::set(first);
    assert_eq!(activity::current(), first);
    assert_eq!(activity::set(second), first);
    assert_eq!(activity::set(before), second);
}

fn new_threads_have_activity_zero(_fixture: &Fixture) {
    let before = activity::set(Guid::from_u128(1));
    assert_eq!(std::thread::spawn(activity::current).join().unwrap(), Guid::NULL);
    activity::set(before);
}

fn activity_ids_are_unique(_fixture: &Fixture) {
    let make = || (0..10_000).map(|_| activity::create()).collect::<Vec<_>>();
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make)).collect();
    let ids: HashSet<Guid> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(ids.len(), 40_000);
}

/// Calls EventActivityIdControl in a thread with the activity id `before`. Returns the status, and
/// the argument and the thread's activity id after the call.
fn control(code: u32, before: Guid, argument: Guid) -> (u32, Guid, Guid) {
    let (outer, mut id) = (activity::set(before), argument);
    let status = activity::control(code, &mut id).0;
    (status, id, activity::set(outer))
}

fn activity_codes_get_set_create_and_swap(_fixture: &Fixture) {
    let (thread, argument) = (Guid::from_u128(1), Guid::from_u128(2));
    assert_eq!(control(1, thread, argument), (0, thread, thread));
    assert_eq!(control(2, thread, argument), (0, argument, argument));
    let (status, new, after) = control(3, thread, argument);
    assert!(status == 0 && after == thread && ![thread, argument, Guid::NULL].contains(&new));
    assert_eq!(control(4, thread, argument), (0, thread, argument));
    let (status, old, new) = control(5, thread, argument);
    assert!(status == 0 && old == thread && ![thread, argument, Guid::NULL].contains(&new));
}

fn unknown_activity_codes_are_refused(_fixture: &Fixture) {
    let (thread, argument) = (Guid::from_u128(1), Guid::from_u128(2));
    for code in [0, 6, 7, u32::MAX] {
        assert_eq!(control(code, thread, argument), (87, argument, thread), "code {code}");
    }
}

/// Returns the bits that identify the process.
fn process_bits(id: Guid) -> (u32, u16) {
    (id.data1, id.data2)
}

fn activity_ids_of_processes_differ(_fixture: &Fixture) {
    let (first, second) = (OtherProcess::start(new_guid(), None), OtherProcess::start(new_guid(), None));
    let processes = [activity::create(), first.activity(), second.activity()].map(process_bits);
    assert_eq!(processes.iter().collect::<HashSet<_>>().len(), 3, "{processes:?}");
}

fn activity_ids_have_process_bits_and_a_counter(_fixture: &Fixture) {
    let ids: Vec<Guid> = (0..100).map(|_| activity::create()).collect();
    assert!(ids.iter().all(|id| process_bits(*id) == process_bits(ids[0])));
    let counts: Vec<u64> = ids.iter().map(|id| u64::from_be_bytes(id.data4)).collect();
    assert!(counts.is_sorted_by(|count, next| count < next), "the counter does not rise: {counts:x?}");
}

fn activity_ids_are_not_random_uuids(_fixture: &Fixture) {
    // The version of a random UUID is 4.
    assert!((0..1_000).all(|_| activity::create().data3 >> 12 != 4));
}
