use std::collections::BTreeMap;

use super::*;
use crate::asked::tasks_attr;
use crate::control::Scope;
use crate::groups::Group;
use crate::perf_ring::Ring;

#[path = "../../../../tests/support/skip.rs"]
mod skip;

/// Returns settings for the page faults of this user's own threads.
fn own_faults() -> Wanted {
    let mut groups = Groups::default();
    let Group(faults) = Group::PAGE_FAULTS;
    groups.0[(faults >> 29) as usize] |= faults & 0x1FFF_FFFF;
    Wanted { groups, scope: Scope::Own, ring_bytes: 64 << 10, ..Wanted::default() }
}

/// Opens the ring of a processor; skips the test and returns `None` if that is not possible here.
fn ring(wanted: &Wanted, cpu: i32) -> Option<Ring> {
    let owner = Targets::owner(wanted.scope);
    let event = Event::open(&tasks_attr(wanted), owner, cpu);
    let ring = event.and_then(|event| Ring::new(event, wanted.ring_bytes));
    ring.map_err(|error| skip::skip("perf events of one's own threads", &error.to_string())).ok()
}

#[test]
fn event_replaces_the_one_of_the_same_thread_and_processor() {
    let mut wanted = own_faults();
    let Some(ring) = ring(&wanted, 0) else { return };
    let rings = [Arc::clone(ring.event())];
    let mut opened = Opened::empty(&wanted);
    opened.change(&wanted, &rings).expect("opened");
    let mut before = BTreeMap::new();
    for row in opened.rows.values_mut() {
        // This order arises when threads with lower ids are found later.
        row.events.reverse();
        before.extend(row.events.iter().map(|(id, event)| ((event.target(), event.cpu()), *id)));
    }
    assert!(before.len() >= 2, "the threads of this test at least: {before:?}");
    wanted.stacks = vec![0x020B];
    opened.change(&wanted, &rings).expect("opened anew");
    let mut followed = 0;
    for (id, event) in opened.rows.values().flat_map(|row| &row.events) {
        let replaces = opened.routes.get(id).expect("a route").replaces;
        // Threads that have ended meanwhile are gone; there are no new ones.
        assert_eq!(replaces, before.get(&(event.target(), event.cpu())).copied());
        followed += usize::from(replaces.is_some());
    }
    assert!(followed >= 2, "{followed}");
}

#[test]
fn only_the_rings_report_tasks_of_their_owner() {
    let wanted = own_faults();
    let Some(ring) = ring(&wanted, 0) else { return };
    let mut opened = Opened::empty(&wanted);
    opened.change(&wanted, &[Arc::clone(ring.event())]).expect("opened");
    let this = rustix::thread::gettid().as_raw_nonzero().get();
    let task_events = |thread| opened.tasks.iter().filter(|event| event.target() == thread).count();
    assert_eq!((task_events(this), task_events(Targets::owner(Scope::Own))), (1, 0));
    let faults = |thread| {
        let events = opened.rows.values().flat_map(|row| &row.events);
        events.filter(|(_, event)| event.target() == thread).count()
    };
    assert_eq!((faults(this), faults(Targets::owner(Scope::Own))), (1, 1));
}

#[test]
fn tracepoint_with_other_fields_is_missing_but_no_error() {
    let mut wanted = own_faults();
    wanted.scope = Scope::Everything;
    let mut opened = Opened::empty(&wanted);
    let format = Arc::new(Format::parse("name: page_fault_user\nID: 1\n").expect("a format"));
    for name in ["page_fault_user", "page_fault_kernel"] {
        opened.formats.insert(("exceptions", name), Some(Arc::clone(&format)));
    }
    opened.change(&wanted, &[]).expect("the rest is opened");
    let has = |name: &str| opened.missing.iter().any(|missing| missing == name);
    assert!(has("exceptions:page_fault_user") && has("exceptions:page_fault_kernel"), "{:?}", opened.missing);
}

#[test]
fn rejected_filter_means_that_the_tracepoint_is_missing() {
    let spec = family::specs().find(|spec| spec.filter.is_some()).expect("a row with a filter");
    let failed = |number| filter_failed(spec, io::Error::from_raw_os_error(number));
    assert!(matches!(failed(libc::EINVAL), Error::NotSupported { .. }));
    assert!(matches!(failed(libc::EPERM), Error::NotPermitted { .. }));
    assert!(matches!(failed(libc::ENOMEM), Error::System { .. }));
}

#[test]
fn events_are_opened_on_the_processors_of_their_rings() {
    let wanted = own_faults();
    // The rings look like this when processor 0 is offline.
    let Some(ring) = ring(&wanted, 1) else { return };
    let mut opened = Opened::empty(&wanted);
    opened.change(&wanted, &[Arc::clone(ring.event())]).expect("opened");
    let rows = opened.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
    let all: Vec<i32> = rows.chain(&opened.tasks).map(Event::cpu).collect();
    assert!(all.len() >= 3 && all.iter().all(|cpu| *cpu == 1), "{all:?}");
    assert_eq!(ring.cpu(), 1);
}

#[test]
fn only_limited_rings_limit_stack_copies() {
    let wanted = Wanted { stacks: vec![0x020B], stack_bytes: 64 << 10, ..own_faults() };
    let copies = |stack_limit| {
        let mut opened = Opened::empty(&wanted);
        opened.stack_limit = stack_limit;
        opened.change(&wanted, &[]).expect("opened on no processor");
        opened.rows.values().map(|row| row.attr.sample_stack_user).collect::<Vec<u32>>()
    };
    assert_eq!(copies(None), [0xFFF0], "whatever the ring size");
    assert_eq!(copies(Some(2 << 10)), [2 << 10]);
}
