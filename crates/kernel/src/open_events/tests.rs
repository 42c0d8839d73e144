use std::collections::BTreeMap;

use super::*;
use crate::groups::Group;
use crate::perf_ring::Ring;

#[path = "../../../../tests/support/skip.rs"]
mod skip;

/// Returns settings for the page faults of this user's own threads.
fn own_faults() -> CaptureSettings {
    let groups = Groups::new(&[Group::PAGE_FAULTS]);
    CaptureSettings { groups, scope: Scope::Own, ring_bytes: 64 << 10, ..CaptureSettings::default() }
}

/// Opens the ring of a processor; skips the test and returns `None` if that is not possible here.
fn ring(settings: &CaptureSettings, cpu: i32) -> Option<Ring> {
    let owner = Targets::owner(settings.scope);
    let event = PerfEvent::open(&tasks_attr(settings), owner, cpu);
    let ring = event.and_then(|event| Ring::new(event, settings.ring_bytes));
    ring.map_err(|error| skip::skip("perf events of one's own threads", &error.to_string())).ok()
}

#[test]
fn event_replaces_the_one_of_the_same_thread_and_processor() {
    let mut settings = own_faults();
    let Some(ring) = ring(&settings, 0) else { return };
    let rings = [Arc::clone(ring.event())];
    let mut open_events = OpenEvents::empty(&settings);
    open_events.change(&settings, &rings).expect("opened");
    let mut before = BTreeMap::new();
    for row in open_events.rows.values_mut() {
        // This order arises when threads with lower ids are found later.
        row.events.reverse();
        before.extend(row.events.iter().map(|(id, event)| ((event.target(), event.cpu()), *id)));
    }
    assert!(before.len() >= 2, "the threads of this test at least: {before:?}");
    settings.stacks = vec![0x020B];
    open_events.change(&settings, &rings).expect("opened anew");
    let mut followed = 0;
    for (id, event) in open_events.rows.values().flat_map(|row| &row.events) {
        let replaces = open_events.routes.get(id).expect("a route").replaces;
        // Threads that have ended meanwhile are gone; there are no new ones.
        assert_eq!(replaces, before.get(&(event.target(), event.cpu())).copied());
        followed += usize::from(replaces.is_some());
    }
    assert!(followed >= 2, "{followed}");
}

#[test]
fn only_the_rings_report_tasks_of_their_owner() {
    let settings = own_faults();
    let Some(ring) = ring(&settings, 0) else { return };
    let mut open_events = OpenEvents::empty(&settings);
    open_events.change(&settings, &[Arc::clone(ring.event())]).expect("opened");
    let this = rustix::thread::gettid().as_raw_nonzero().get();
    let task_events = |thread| open_events.tasks.iter().filter(|event| event.target() == thread).count();
    assert_eq!((task_events(this), task_events(Targets::owner(Scope::Own))), (1, 0));
    let faults = |thread| {
        let events = open_events.rows.values().flat_map(|row| &row.events);
        events.filter(|(_, event)| event.target() == thread).count()
    };
    assert_eq!((faults(this), faults(Targets::owner(Scope::Own))), (1, 1));
}

#[test]
fn tracepoint_with_other_fields_is_missing_but_no_error() {
    let mut settings = own_faults();
    settings.scope = Scope::Everything;
    let mut open_events = OpenEvents::empty(&settings);
    let format = Arc::new(Format::parse("name: page_fault_user\nID: 1\n").expect("a format"));
    for name in ["page_fault_user", "page_fault_kernel"] {
        open_events.formats.insert(("exceptions", name), Some(Arc::clone(&format)));
    }
    open_events.change(&settings, &[]).expect("the rest is opened");
    let has = |name: &str| open_events.missing.iter().any(|missing| missing == name);
    assert!(
        has("exceptions:page_fault_user") && has("exceptions:page_fault_kernel"),
        "{:?}",
        open_events.missing
    );
}

#[test]
fn rejected_filter_means_that_the_tracepoint_is_missing() {
    let mut specs = families::specs().map(|(_, spec)| spec);
    let spec = specs.find(|spec| spec.filter.is_some()).expect("a row with a filter");
    let failed = |number| filter_failed(spec, io::Error::from_raw_os_error(number));
    assert!(matches!(failed(libc::EINVAL), Error::NotSupported { .. }));
    assert!(matches!(failed(libc::EPERM), Error::NotPermitted { .. }));
    assert!(matches!(failed(libc::ENOMEM), Error::System { .. }));
}

#[test]
fn events_are_opened_on_the_processors_of_their_rings() {
    let settings = own_faults();
    // The rings look like this when processor 0 is offline.
    let Some(ring) = ring(&settings, 1) else { return };
    let mut open_events = OpenEvents::empty(&settings);
    open_events.change(&settings, &[Arc::clone(ring.event())]).expect("opened");
    let rows = open_events.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
    let all: Vec<i32> = rows.chain(&open_events.tasks).map(PerfEvent::cpu).collect();
    assert!(all.len() >= 3 && all.iter().all(|cpu| *cpu == 1), "{all:?}");
    assert_eq!(ring.cpu(), 1);
}

#[test]
fn only_limited_rings_limit_stack_copies() {
    let settings = CaptureSettings { stacks: vec![0x020B], stack_bytes: 64 << 10, ..own_faults() };
    let copies = |stack_limit| {
        let mut open_events = OpenEvents::empty(&settings);
        open_events.stack_limit = stack_limit;
        open_events.change(&settings, &[]).expect("opened on no processor");
        open_events.rows.values().map(|row| row.attr.sample_stack_user).collect::<Vec<u32>>()
    };
    assert_eq!(copies(None), [0xFFF0], "whatever the ring size");
    assert_eq!(copies(Some(2 << 10)), [2 << 10]);
}
