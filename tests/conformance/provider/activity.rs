//! Activity ids.

use std::collections::HashSet;

use traceweir::Guid;
use traceweir::provider::activity;

use crate::rule::{Rule, rule};
use crate::stage::Stage;

pub(crate) const RULES: &[Rule] = &[
    rule!(
        "provider 4.5 #GET_ID, #SET_ID, #GET_SET_ID",
        D,
        "the thread's id is set, read and swapped",
        set_and_get
    ),
    rule!("provider 4.5", D, "new threads start at zero", threads_start_at_zero),
    rule!("provider 4.5 #CREATE_ID", D, "new ids are unique, also between threads", ids_are_unique),
    rule!("provider 4.5", P, "a new id is never equal to a random UUID", ids_are_no_random_uuids),
];

fn set_and_get(_stage: &Stage) {
    let (one, two) = (Guid::from_u128(1), Guid::from_u128(2));
    let before = activity::set(one);
    assert_eq!(activity::current(), one);
    assert_eq!(activity::set(two), one);
    assert_eq!(activity::set(before), two);
}

fn threads_start_at_zero(_stage: &Stage) {
    let before = activity::set(Guid::from_u128(1));
    assert_eq!(std::thread::spawn(activity::current).join().unwrap(), Guid::NULL);
    activity::set(before);
}

fn ids_are_unique(_stage: &Stage) {
    let make = || (0..10_000).map(|_| activity::create()).collect::<Vec<_>>();
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make)).collect();
    let ids: HashSet<Guid> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
    assert_eq!(ids.len(), 40_000);
}

fn ids_are_no_random_uuids(_stage: &Stage) {
    // The version of a random UUID is 4.
    assert!((0..1_000).all(|_| activity::create().data3 >> 12 != 4));
}
