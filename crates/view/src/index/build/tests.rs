//! Builds indexes of small traces, and checks counters and slices.

use std::fs::File;

use serde_json::{Value, json};
use traceweir_format::Guid;
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::kernel::hook::class_of;
use traceweir_format::spec::event::EventDescriptor;

use super::*;
use crate::kernel_trace::{self, KernelTraceLayout, KernelWriter, MemoryChange, Packet};
use crate::probe::{build_view, endless_limits};
use crate::query::{TableQuery, TimeSpan, fill_table, list_tracks};
use crate::test_trace::ask;
use crate::trace::TraceView;

const PROVIDER: Guid = Guid::from_u128(0xAAAA);
/// Opcodes of events that begin and end an activity.
const START: u8 = 1;
const STOP: u8 = 2;

/// Builds the index of a trace.
fn build(write: impl FnOnce(&mut KernelWriter)) -> TraceView {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.etl");
    let mut writer = KernelWriter::create(&path, 1).unwrap();
    writer.put_process(70, "app.exe", "").unwrap();
    write(&mut writer);
    writer.finish(20_000, 0).unwrap();
    build_view(vec![File::open(&path).unwrap()]).unwrap().0
}

/// Returns name, unit and sum of each counter.
fn counters_of(view: &TraceView) -> Vec<(String, String, i64)> {
    let index = view.index();
    let describe = |counter: &super::super::Counter| {
        let [sum, ..] = counter.series.summarize(0, i64::MAX, &index.store).totals;
        (counter.name.clone(), counter.unit.clone(), sum)
    };
    index.counters.iter().map(describe).collect()
}

#[test]
fn memory_faults_and_packets_are_counted() {
    let view = build(|writer| {
        for (time, bytes, is_freed) in [(10, 4096, false), (20, 8192, false), (30, 4096, true)] {
            writer.put_memory(0, time, MemoryChange { pid: 70, bytes, is_freed }).unwrap();
        }
        // A size that no memory has does not become negative.
        writer.put_memory(0, 40, MemoryChange { pid: 70, bytes: u64::MAX, is_freed: true }).unwrap();
        writer.put_fault(0, 50).unwrap();
        writer.put_fault(0, 60).unwrap();
        writer.put_packet(0, 70, Packet { pid: 70, bytes: 5, local_port: 50_000, is_sent: true }).unwrap();
        writer.put_packet(0, 80, Packet { pid: 70, bytes: 7, local_port: 50_000, is_sent: false }).unwrap();
    });
    let expected = [
        ("Memory allocated", "bytes", 12_288),
        ("Memory freed", "bytes", i64::MAX),
        ("Page faults", "", 2),
        ("Network sent", "bytes", 5),
        ("Network received", "bytes", 7),
    ];
    assert_eq!(counters_of(&view), expected.map(|(name, unit, sum)| (name.to_owned(), unit.to_owned(), sum)));
    let tracks = ask(|json| list_tracks(&view, "", json));
    assert_eq!(tracks["counters"][2], json!({"id": 2, "name": "Page faults", "unit": ""}));
    let span = TimeSpan { from: 0, to: i64::MAX };
    let query = TableQuery { name: "connections".to_owned(), span, search: String::new(), sort: None };
    let table = ask(|json| assert!(fill_table(&view, &query, &endless_limits(), json)));
    assert_eq!(table["rows"][0][0][2], "192.0.2.1:50000 ↔ 198.51.100.7:443");
    assert_eq!(table["rows"][0].as_array().unwrap()[1..], [7, 1, 5, 1].map(Value::from));
}

#[test]
fn generated_trace_has_all_counters_and_connections() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.etl");
    let layout = KernelTraceLayout { bytes: 1 << 20, cpus: 2, processes: 5, threads: 3, name_part: "" };
    kernel_trace::write(&path, layout).unwrap();
    let (view, _) = build_view(vec![File::open(&path).unwrap()]).unwrap();
    let counters = counters_of(&view);
    assert_eq!(counters.len(), 7, "{counters:?}");
    assert!(counters.iter().all(|(.., sum)| *sum > 0), "{counters:?}");
}

/// Returns the slices of the thread of an id, outer ones first: start, end and lane. A tick is 100 ns.
fn slices_of(view: &TraceView, tid: u32) -> Vec<(i64, i64, usize)> {
    let index = view.index();
    let thread = index.threads.threads.iter().find(|thread| thread.tid == tid).unwrap();
    let mut slices = Vec::new();
    for (lane, series) in thread.lanes.iter().enumerate() {
        series.for_each(0, i64::MAX, &index.store, |item| {
            slices.push((item.start / 100, item.end() / 100, lane));
            true
        });
    }
    slices
}

/// Writes the start (1) or stop (2) of a task.
fn put_activity(writer: &mut KernelWriter, time: i64, thread_id: u32, opcode: u8, activity: u128) {
    let descriptor = EventDescriptor { id: u16::from(opcode), opcode, task: 1, ..EventDescriptor::default() };
    let activity = Guid::from_u128(activity);
    let (provider, process_id) = (PROVIDER, 70);
    let header =
        EventHeader { provider, descriptor, process_id, thread_id, time, activity, ..EventHeader::default() };
    writer.payload.clear();
    writer.put_event(&header, 0).unwrap();
}

#[test]
fn stop_on_another_thread_ends_the_last_start_of_the_activity() {
    let view = build(|writer| {
        for thread in 0..20 {
            put_activity(writer, 10 + i64::from(thread), 100 + thread, START, 0xA);
        }
        // An activity of another id, and one without id, which only its thread can end.
        put_activity(writer, 40, 201, START, 0xB);
        put_activity(writer, 41, 202, START, 0);
        for time in [50, 60] {
            put_activity(writer, time, 300, STOP, 0xA);
        }
        put_activity(writer, 70, 300, STOP, 0);
        put_activity(writer, 80, 105, STOP, 0xA);
        put_activity(writer, 90, 300, STOP, 0xB);
    });
    assert_eq!(slices_of(&view, 119), [(29, 50, 0)]);
    assert_eq!(slices_of(&view, 118), [(28, 60, 0)]);
    // Its own thread comes first.
    assert_eq!(slices_of(&view, 105), [(15, 80, 0)]);
    assert_eq!(slices_of(&view, 201), [(40, 90, 0)]);
    // What has no stop lasts until the end of the trace.
    for (thread, start) in [(100, 10), (117, 27), (202, 41)] {
        assert_eq!(slices_of(&view, thread), [(start, 90, 0)]);
    }
}

#[test]
fn two_versions_of_a_start_are_one_slice() {
    let view = build(|writer| {
        let mut put = |time, opcode, version| {
            let id = u16::from(opcode);
            let descriptor = EventDescriptor { id, version, opcode, task: 1, ..EventDescriptor::default() };
            let (provider, process_id, thread_id) = (PROVIDER, 70, 71);
            let header =
                EventHeader { provider, descriptor, process_id, thread_id, time, ..EventHeader::default() };
            writer.payload.clear();
            writer.put_event(&header, 0).unwrap();
        };
        for time in [10, 50] {
            put(time, START, 1);
            put(time + 1, START, 2);
            put(time + 10, STOP, 1);
        }
    });
    assert_eq!(slices_of(&view, 71), [(10, 20, 0), (50, 60, 0)]);
}

#[test]
fn classic_events_nest_by_thread_and_class() {
    let (outer, inner, kernel) =
        (Guid::from_u128(0xC1), Guid::from_u128(0xC2), class_of(hook::PROCESS_START));
    let view = build(|writer| {
        let mut put = |time, thread_id, class, opcode| {
            let header =
                ClassicHeader { class, opcode, thread_id, process_id: 70, time, ..ClassicHeader::default() };
            writer.payload.clear();
            writer.put_classic(&header, 0).unwrap();
        };
        put(10, 71, outer, START);
        put(20, 71, inner, START);
        put(25, 72, inner, START);
        put(30, 71, inner, STOP);
        put(35, 72, inner, STOP);
        put(40, 71, outer, STOP);
        // A process starts on one thread and ends on another: both are no slices.
        put(50, 73, kernel, START);
        put(60, 73, kernel, STOP);
        put(70, 74, outer, 3);
    });
    assert_eq!(slices_of(&view, 71), [(10, 40, 0), (20, 30, 1)]);
    assert_eq!(slices_of(&view, 72), [(25, 35, 0)]);
    for thread in [73, 74] {
        assert_eq!(slices_of(&view, thread), []);
    }
}
