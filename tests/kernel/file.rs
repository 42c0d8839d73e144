//! Checks that a file of kernel events has the events that CPU analysis needs, in the required
//! order.

use std::collections::BTreeSet;

use crate::dumped::{Event, Trace};
use crate::recordings::Measurement;
use crate::retry::retry_alternately_with_busy_processors;

/// The first events of these names come in this order: the rundown before samples.
const FIRST_EVENTS: [&str; 6] = [
    "EventTrace/Header",
    "EventTrace/Extension",
    "Process/DCStart",
    "Image/DCStart",
    "PerfInfo/CollectionStart",
    "PerfInfo/SampleProf",
];
/// The last events of these names come in this order.
const LAST_EVENTS: [&str; 5] = [
    "PerfInfo/SampleProf",
    "Process/DCEnd",
    "Image/DCEnd",
    "PerfInfo/CollectionEnd",
    "EventTrace/EndExtension",
];
/// Events of these names must be in the file.
const REQUIRED_EVENTS: [&str; 14] = [
    "Thread/DCStart",
    "Thread/Start",
    "Thread/End",
    "Thread/DCEnd",
    "Process/End",
    "Image/Load",
    "Image/UnLoad",
    "Image/DCEnd",
    "ImageID",
    "ImageID/DbgID_RSDS",
    "SystemConfig/CPU",
    "Thread/CSwitch",
    "Thread/ReadyThread",
    "EventTrace/BuildInfo",
];

/// The kernel groups of `--kernel sched`: PROCESS, THREAD, IMAGE_LOAD, CSWITCH, DISPATCHER and
/// PROFILE.
const SCHED_GROUPS: u64 = 0x0100_0817;

#[test]
fn file_has_everything_that_analysis_needs_in_order() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let on_disk = measurement.path("written");
        let command = measurement.workload(["mixed".as_ref(), on_disk.as_os_str(), "100".as_ref()]);
        let recording = measurement.record_complete(&["--kernel", "sched"], &command);
        let trace = recording.trace();
        let position = |name: &str, is_last: bool| {
            let has_name = |event: &Event| event.name == name;
            let index = if is_last {
                trace.events.iter().rposition(has_name)
            } else {
                trace.events.iter().position(has_name)
            };
            index.unwrap_or_else(|| panic!("the file has no {name}"))
        };
        let first: Vec<_> = FIRST_EVENTS.iter().map(|name| (position(name, false), name)).collect();
        assert!(first.is_sorted(), "the first events are not in order: {first:?}");
        let last: Vec<_> = LAST_EVENTS.iter().map(|name| (position(name, true), name)).collect();
        assert!(last.is_sorted(), "the last events are not in order: {last:?}");
        assert_eq!(last.last().unwrap().0, trace.events.len() - 1, "the file does not end with {last:?}");
        REQUIRED_EVENTS.iter().for_each(|name| _ = position(name, false));
        for name in ["EventTrace/Extension", "EventTrace/EndExtension"] {
            assert_eq!(
                trace.events[position(name, false)].number("GroupMask1") & SCHED_GROUPS,
                SCHED_GROUPS,
                "{name}"
            );
        }
        check_kernel_images_come_first(&trace);
        check_images_are_identified(&trace);
        check_end_rundown(&trace);
        let stack_count = |name| trace.events_named(name).filter(|event| !event.stack.is_empty()).count();
        assert!(stack_count("Thread/CSwitch") > 100 && stack_count("Thread/ReadyThread") > 100);
    });
}

/// Fails unless images of the kernel come before images of programs.
#[track_caller]
fn check_kernel_images_come_first(trace: &Trace) {
    let owners: Vec<u64> =
        trace.events_named("Image/DCStart").map(|event| event.number("ProcessId")).collect();
    // Images of the kernel belong to process 0.
    let kernel_images = owners.iter().take_while(|owner| **owner == 0).count();
    assert!(
        kernel_images > 0 && owners[kernel_images..].iter().all(|owner| *owner != 0),
        "images of the kernel do not come first; the rundown starts with {kernel_images} of them"
    );
}

/// Fails unless each image has an id event, or an event that says that the image has no id.
#[track_caller]
fn check_images_are_identified(trace: &Trace) {
    let key = |event: &Event| (event.number("ProcessId"), event.number("ImageBase"));
    let ids = ["ImageID/DbgID_RSDS", "ImageID/None"];
    let identified: BTreeSet<_> = ids.iter().flat_map(|name| trace.events_named(name)).map(key).collect();
    let images = trace.events_named("Image/DCStart").chain(trace.events_named("Image/Load"));
    let missing: Vec<_> = images.filter(|event| !identified.contains(&key(event))).collect();
    assert!(
        missing.is_empty(),
        "{} images have no id event; the first is {}",
        missing.len(),
        missing[0].fields
    );
}

/// Fails unless every process, thread and image of the end rundown has a start event or is in the
/// start rundown. Objects that began after the session read its last events are only in the end
/// rundown. They are ignored; the check recognises them because no context switch leads to them.
#[track_caller]
fn check_end_rundown(trace: &Trace) {
    let switched_to: BTreeSet<u64> =
        trace.events_named("Thread/CSwitch").map(|event| event.number("NewThreadId")).collect();
    for (class, field) in [("Process", "ProcessId"), ("Thread", "TThreadId"), ("Image", "ImageBase")] {
        let key = |event: &Event| (event.number("ProcessId"), event.number(field));
        let start = if class == "Image" { "Load" } else { "Start" };
        let (start_event, rundown_event) = (format!("{class}/{start}"), format!("{class}/DCStart"));
        let known: BTreeSet<_> =
            trace.events_named(&start_event).chain(trace.events_named(&rundown_event)).map(key).collect();
        let end_event = format!("{class}/DCEnd");
        let unexpected: Vec<_> = trace
            .events_named(&end_event)
            .map(key)
            .filter(|key| {
                !known.contains(key) && switched_to.contains(if class == "Thread" { &key.1 } else { &key.0 })
            })
            .collect();
        assert!(unexpected.is_empty(), "{class} in the end rundown only: {unexpected:x?}");
    }
}
