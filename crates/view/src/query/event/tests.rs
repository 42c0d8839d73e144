//! Finds the stacks of events among those of other events and threads.

use std::fs::File;

use serde_json::Value;
use traceweir_format::kernel::hook;

use crate::json::JsonWriter;
use crate::kernel_trace::KernelWriter;
use crate::probe::build_view;
use crate::query::describe_event;
use crate::trace::TraceView;

const KERNEL_FRAME: u64 = 0xFFFF_F800_0000_1000;
const USER_FRAME: u64 = 0x7FF6_0000_1000;
const OTHER_FRAME: u64 = 0x7FF6_0000_2000;

fn put_late_stack(writer: &mut KernelWriter, event_time: i64, time: i64, tid: u32, frame: u64) {
    // The stack-walk event of `put_stack` has the time after that of its event.
    writer.payload.clear();
    writer.payload.extend_from_slice(&event_time.to_le_bytes());
    writer.payload.extend_from_slice(&70_u32.to_le_bytes());
    writer.payload.extend_from_slice(&tid.to_le_bytes());
    writer.payload.extend_from_slice(&frame.to_le_bytes());
    writer.put_perfinfo(hook::STACK_WALK, 2, 0, time).unwrap();
}

fn stack_of(view: &TraceView, row: u64) -> Vec<String> {
    let mut json = JsonWriter::default();
    assert!(describe_event(view, row, &mut json));
    let event: Value = serde_json::from_slice(&json.into_bytes()).unwrap();
    assert_eq!(event["partial"], false);
    let frames = event["stack"].as_array().unwrap().iter();
    frames.map(|frame| frame[0].as_str().unwrap().to_owned()).collect()
}

/// Returns the row of the first sample.
fn first_sample(view: &TraceView) -> u64 {
    let index = view.index();
    let mut kinds = index.kinds.kinds.iter();
    kinds.find(|kind| kind.hook == Some(hook::SAMPLED_PROFILE)).unwrap().first_row
}

#[test]
fn late_part_of_a_stack_is_found_among_those_of_other_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stacks.etl");
    let mut writer = KernelWriter::create(&path, 1).unwrap();
    writer.put_process(70, "app.exe", "").unwrap();
    for tid in [71, 72] {
        writer.put_thread(70, tid).unwrap();
    }
    writer.put_sample(0, 100, 71, KERNEL_FRAME).unwrap();
    put_late_stack(&mut writer, 100, 101, 71, KERNEL_FRAME);
    // More stacks of another thread than are read for one event.
    for number in 0..2000 {
        put_late_stack(&mut writer, 100, 102 + number, 72, OTHER_FRAME);
    }
    put_late_stack(&mut writer, 100, 5000, 71, USER_FRAME);
    put_late_stack(&mut writer, 100, 5001, 71, OTHER_FRAME);
    writer.finish(10_000, 0).unwrap();
    let (view, _) = build_view(vec![File::open(&path).unwrap()]).unwrap();
    let row = first_sample(&view);
    assert_eq!(stack_of(&view, row), [format!("{KERNEL_FRAME:#x}"), format!("{USER_FRAME:#x}")]);
}

#[test]
fn event_without_stack_has_none_of_later_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stacks.etl");
    let mut writer = KernelWriter::create(&path, 1).unwrap();
    writer.put_process(70, "app.exe", "").unwrap();
    writer.put_thread(70, 71).unwrap();
    writer.put_sample(0, 100, 71, USER_FRAME).unwrap();
    writer.put_sample(0, 200, 71, USER_FRAME).unwrap();
    writer.put_stack(0, 200, 70, 71, &[USER_FRAME]).unwrap();
    writer.finish(10_000, 0).unwrap();
    let (view, _) = build_view(vec![File::open(&path).unwrap()]).unwrap();
    let row = first_sample(&view);
    assert!(stack_of(&view, row).is_empty());
    assert_eq!(stack_of(&view, row + 1), [format!("{USER_FRAME:#x}")]);
}
