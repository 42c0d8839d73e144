//! Finds the stacks of events among those of other events and threads.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use traceweir_format::kernel::hook;

use super::*;
use crate::kernel_trace::KernelWriter;
use crate::probe::build_view;
use crate::test_trace::ask;

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

fn frames_of(event: &Value) -> Vec<String> {
    let frames = event["stack"].as_array().unwrap().iter();
    frames.map(|frame| frame[0].as_str().unwrap().to_owned()).collect()
}

fn stack_of(view: &TraceView, row: u64) -> Vec<String> {
    let event = ask(|json| assert!(describe_event(view, row, json)));
    assert_eq!(event["partial"], false);
    frames_of(&event)
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
fn event_has_the_number_of_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let view = write_divided_stack(&folder.path().join("process.etl"), 1);
    let event = ask(|json| assert!(describe_event(&view, first_sample(&view), json)));
    let number = event["process_id"].as_u64().unwrap() as usize;
    assert_eq!(view.index().threads.processes[number].pid, 70);
    assert_eq!(event["process"], "app.exe (70)");
}

/// Writes a sample with the first part of its stack, and after many stacks of another thread the
/// other part.
fn write_divided_stack(path: &Path, others: i64) -> TraceView {
    let mut writer = KernelWriter::create(path, 1).unwrap();
    writer.put_process(70, "app.exe", "").unwrap();
    for tid in [71, 72] {
        writer.put_thread(70, tid).unwrap();
    }
    writer.put_sample(0, 100, 71, KERNEL_FRAME).unwrap();
    put_late_stack(&mut writer, 100, 101, 71, KERNEL_FRAME);
    for number in 0..others {
        put_late_stack(&mut writer, 100, 102 + number, 72, OTHER_FRAME);
    }
    put_late_stack(&mut writer, 100, 102 + others, 71, USER_FRAME);
    writer.finish(102 + others, 0).unwrap();
    build_view(vec![File::open(path).unwrap()]).unwrap().0
}

#[test]
fn stack_is_partial_if_the_search_ends_at_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    for (others, expected) in [(MAX_STACK_ROWS as i64 - 2, 2), (MAX_STACK_ROWS as i64, 1)] {
        let view = write_divided_stack(&folder.path().join("stacks.etl"), others);
        let event = ask(|json| assert!(describe_event(&view, first_sample(&view), json)));
        assert_eq!((frames_of(&event).len(), &event["partial"]), (expected, &(expected == 1).into()));
    }
}

#[test]
fn index_is_not_locked_while_stacks_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let view = write_divided_stack(&folder.path().join("stacks.etl"), 10);
    let row = first_sample(&view);
    let labels = EventLabels::read(&view.index(), row).unwrap();
    let read = |record: &Record<'_>| read_parts(record, 0, &mut view.facts());
    let parts = view.with_record(labels.position, labels.time, read).unwrap();
    // The first stack-walk event waits for the facts.
    let facts = view.facts();
    std::thread::scope(|scope| {
        let search = scope.spawn(|| find_stack(&view, row, &labels, &parts, &QueryLimits::unlimited()));
        std::thread::sleep(Duration::from_millis(300));
        let is_waiting = !search.is_finished();
        let is_locked = view.is_index_locked();
        drop(facts);
        assert!(is_waiting && !is_locked);
        assert_eq!(search.join().unwrap().stack.frames().count(), 2);
    });
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
