//! Tests of replaced events, processors of events, missing tracepoints and sizes of stack copies.

use std::collections::BTreeMap;

use traceweir_format::kernel::hook;

use super::*;
use crate::groups::Group;
use crate::perf_ring::PerfRing;

#[path = "../../../../tests/support/skip.rs"]
mod skip;

/// Returns settings for the page faults of this user's own threads.
fn own_fault_settings() -> CaptureSettings {
    let groups = Groups::new(&[Group::PAGE_FAULTS]);
    CaptureSettings { groups, scope: CaptureScope::Own, ring_bytes: 64 << 10, ..CaptureSettings::default() }
}

/// Opens the ring of a processor; skips the test and returns `None` if that is not possible here.
fn open_ring_or_skip(settings: &CaptureSettings, cpu: i32) -> Option<PerfRing> {
    let target = Targets::ring_target(settings.scope);
    let event = PerfEvent::open(&task_records_attr(settings), target, cpu);
    let ring = event.and_then(|event| PerfRing::new(event, settings.ring_bytes));
    ring.map_err(|error| skip::skip("perf events of one's own threads", &error.to_string())).ok()
}

#[test]
fn event_replaces_the_one_of_the_same_thread_and_processor() {
    let mut settings = own_fault_settings();
    let Some(ring) = open_ring_or_skip(&settings, 0) else { return };
    let rings = [Arc::clone(ring.event())];
    let mut open_events = OpenEvents::new_empty(&settings);
    open_events.apply_settings(&settings, &rings).expect("the events do not open");
    let mut before = BTreeMap::new();
    for row in open_events.rows.values_mut() {
        // This order arises when threads with lower ids are found later.
        row.events.reverse();
        before.extend(row.events.iter().map(|(id, event)| ((event.target(), event.cpu()), *id)));
    }
    assert!(before.len() >= 2, "fewer than two threads have events: {before:?}");
    settings.stacks = vec![hook::DEMAND_ZERO_FAULT];
    open_events.apply_settings(&settings, &rings).expect("the events do not open again");
    let mut replacing_count = 0;
    for (id, event) in open_events.rows.values().flat_map(|row| &row.events) {
        let replaces = open_events.routes.get(id).expect("an open event has no route").replaces;
        // Threads that have ended meanwhile have no event; events of new threads replace none.
        assert_eq!(replaces, before.get(&(event.target(), event.cpu())).copied());
        replacing_count += usize::from(replaces.is_some());
    }
    assert!(replacing_count >= 2, "{replacing_count} events replace another");
}

#[test]
fn ring_target_has_no_separate_task_event() {
    let settings = own_fault_settings();
    let Some(ring) = open_ring_or_skip(&settings, 0) else { return };
    let mut open_events = OpenEvents::new_empty(&settings);
    open_events.apply_settings(&settings, &[Arc::clone(ring.event())]).expect("the events do not open");
    let own_tid = rustix::thread::gettid().as_raw_nonzero().get();
    let task_count = |thread| open_events.task_events.iter().filter(|event| event.target() == thread).count();
    assert_eq!((task_count(own_tid), task_count(Targets::ring_target(CaptureScope::Own))), (1, 0));
    let fault_count = |thread| {
        let events = open_events.rows.values().flat_map(|row| &row.events);
        events.filter(|(_, event)| event.target() == thread).count()
    };
    assert_eq!((fault_count(own_tid), fault_count(Targets::ring_target(CaptureScope::Own))), (1, 1));
}

#[test]
fn tracepoint_with_other_fields_counts_as_missing() {
    let mut settings = own_fault_settings();
    settings.scope = CaptureScope::Everything;
    let mut open_events = OpenEvents::new_empty(&settings);
    let format = Arc::new(TracepointFormat::parse("name: page_fault_user\nID: 1\n").expect("invalid format"));
    for name in ["page_fault_user", "page_fault_kernel"] {
        open_events.formats.insert(("exceptions", name), Some(Arc::clone(&format)));
    }
    open_events.apply_settings(&settings, &[]).expect("the other events do not open");
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
    let spec = specs.find(|spec| spec.filter.is_some()).expect("no row has a filter");
    let to_error = |number| convert_filter_error(spec, io::Error::from_raw_os_error(number));
    assert!(matches!(to_error(libc::EINVAL), Error::NotSupported { .. }));
    assert!(matches!(to_error(libc::EPERM), Error::NotPermitted { .. }));
    assert!(matches!(to_error(libc::ENOMEM), Error::System { .. }));
}

#[test]
fn events_are_opened_on_the_processors_of_their_rings() {
    let settings = own_fault_settings();
    // Processor 0 has no ring while it is offline.
    let Some(ring) = open_ring_or_skip(&settings, 1) else { return };
    let mut open_events = OpenEvents::new_empty(&settings);
    open_events.apply_settings(&settings, &[Arc::clone(ring.event())]).expect("the events do not open");
    let row_events = open_events.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
    let cpus: Vec<i32> = row_events.chain(&open_events.task_events).map(PerfEvent::cpu).collect();
    assert!(cpus.len() >= 3 && cpus.iter().all(|cpu| *cpu == 1), "{cpus:?}");
    assert_eq!(ring.cpu(), 1);
}

#[test]
fn only_limited_rings_limit_stack_copies() {
    let settings = CaptureSettings {
        stacks: vec![hook::DEMAND_ZERO_FAULT],
        stack_bytes: 64 << 10,
        ..own_fault_settings()
    };
    let copy_sizes = |stack_limit_bytes| {
        let mut open_events = OpenEvents::new_empty(&settings);
        open_events.stack_limit_bytes = stack_limit_bytes;
        open_events.apply_settings(&settings, &[]).expect("the row does not open");
        open_events.rows.values().map(|row| row.attr.sample_stack_user).collect::<Vec<u32>>()
    };
    assert_eq!(copy_sizes(None), [0xFFF0], "another limit than the kernel's applies");
    assert_eq!(copy_sizes(Some(2 << 10)), [2 << 10]);
}
