//! Checks that a file of kernel events holds what CPU analysis needs, and in which order.

use std::collections::BTreeSet;

use crate::again::again;
use crate::dumped::{Event, Trace};
use crate::stage::Stage;

/// The first events of these names come in this order: processes and threads before their activity.
const AT_THE_START: [&str; 6] = [
    "EventTrace/Header",
    "EventTrace/Extension",
    "Process/DCStart",
    "Image/DCStart",
    "PerfInfo/CollectionStart",
    "PerfInfo/SampleProf",
];
/// The last events of these names come in this order.
const AT_THE_END: [&str; 5] = [
    "PerfInfo/SampleProf",
    "Process/DCEnd",
    "Image/DCEnd",
    "PerfInfo/CollectionEnd",
    "EventTrace/EndExtension",
];
/// Events of these names must be in the file.
const SOMEWHERE: [&str; 14] = [
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

/// The groups PROCESS, THREAD, IMAGE_LOAD, CSWITCH, DISPATCHER and PROFILE.
const SCHED: u64 = 0x0100_0817;

#[test]
fn file_has_everything_that_analysis_needs_in_order() {
    again(5, || {
        let Some(stage) = Stage::start() else { return };
        let on_disk = stage.path("written");
        let command = stage.workload(["mixed".as_ref(), on_disk.as_os_str(), "100".as_ref()]);
        let recording = stage.record_complete(&["--kernel", "sched"], &command);
        let trace = recording.trace();
        let position = |name: &str, last: bool| {
            let is = |event: &Event| event.name == name;
            let at = if last { trace.0.iter().rposition(is) } else { trace.0.iter().position(is) };
            at.unwrap_or_else(|| panic!("no {name}"))
        };
        let first: Vec<_> = AT_THE_START.iter().map(|name| (position(name, false), name)).collect();
        assert!(first.is_sorted(), "{first:?}");
        let last: Vec<_> = AT_THE_END.iter().map(|name| (position(name, true), name)).collect();
        assert!(last.is_sorted() && last.last().unwrap().0 == trace.0.len() - 1, "{last:?}");
        SOMEWHERE.iter().for_each(|name| _ = position(name, false));
        for name in ["EventTrace/Extension", "EventTrace/EndExtension"] {
            assert_eq!(trace.0[position(name, false)].number("GroupMask1") & SCHED, SCHED, "{name}");
        }
        kernel_comes_first(&trace);
        images_are_identified(&trace);
        ends_match_beginnings(&trace);
        let stacks = |name| trace.named(name).filter(|event| !event.stack.is_empty()).count();
        assert!(stacks("Thread/CSwitch") > 100 && stacks("Thread/ReadyThread") > 100);
    });
}

/// Fails unless images of the kernel come before those of programs.
#[track_caller]
fn kernel_comes_first(trace: &Trace) {
    let owners: Vec<u64> = trace.named("Image/DCStart").map(|event| event.number("ProcessId")).collect();
    let kernels = owners.iter().take_while(|owner| matches!(owner, 0 | 4)).count();
    assert!(kernels > 0 && owners[kernels..].iter().all(|owner| !matches!(owner, 0 | 4)), "{kernels}");
}

/// Fails unless each image of the rundown or loaded later has an id event, or an event that says it
/// has none.
#[track_caller]
fn images_are_identified(trace: &Trace) {
    let key = |event: &Event| (event.number("ProcessId"), event.number("ImageBase"));
    let ids = ["ImageID/DbgID_RSDS", "ImageID/None"];
    let identified: BTreeSet<_> = ids.iter().flat_map(|name| trace.named(name)).map(key).collect();
    let images = trace.named("Image/DCStart").chain(trace.named("Image/Load"));
    let missing: Vec<_> = images.filter(|event| !identified.contains(&key(event))).collect();
    assert!(missing.is_empty(), "{} images without an id, such as {}", missing.len(), missing[0].fields);
}

/// Fails unless every process, thread and image of the end rundown has a start event or is in the
/// start rundown. One that began after the last events were read has no other event, and was never
/// switched to: it is ignored.
#[track_caller]
fn ends_match_beginnings(trace: &Trace) {
    let ran: BTreeSet<u64> = trace.named("Thread/CSwitch").map(|event| event.number("NewThreadId")).collect();
    for (class, field) in [("Process", "ProcessId"), ("Thread", "TThreadId"), ("Image", "ImageBase")] {
        let key = |event: &Event| (event.number("ProcessId"), event.number(field));
        let start = if class == "Image" { "Load" } else { "Start" };
        let (begun, there) = (format!("{class}/{start}"), format!("{class}/DCStart"));
        let known: BTreeSet<_> = trace.named(&begun).chain(trace.named(&there)).map(key).collect();
        let at_end = format!("{class}/DCEnd");
        let strange: Vec<_> = trace
            .named(&at_end)
            .map(key)
            .filter(|key| {
                !known.contains(key) && ran.contains(if class == "Thread" { &key.1 } else { &key.0 })
            })
            .collect();
        assert!(strange.is_empty(), "{class} at the end only: {strange:x?}");
    }
}
