//! Compares graphs with stacks that are resolved one by one, and draws graphs that are too large.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::kernel_trace::{KernelTraceLayout, KernelWriter};
use crate::probe::{build_view, endless_limits};
use crate::query::{FieldQuery, TableQuery, describe_field, fill_table};

fn open_view(path: &Path) -> TraceView {
    build_view(vec![File::open(path).unwrap()]).unwrap().0
}

fn write_example(path: &Path) {
    let layout = KernelTraceLayout { bytes: 2 << 20, cpus: 2, processes: 5, threads: 3, name_part: "" };
    crate::kernel_trace::write(path, layout).unwrap();
}

fn whole_trace(kind: FlameKind) -> FlameQuery {
    FlameQuery { span: TimeSpan { from: 0, to: i64::MAX }, kind, process: None, thread: None }
}

fn draw(view: &TraceView, query: &FlameQuery, limits: &QueryLimits) -> Value {
    let mut json = JsonWriter::default();
    draw_flame(view, query, limits, &mut json);
    serde_json::from_slice(&json.into_bytes()).unwrap()
}

/// Returns name, own weight and weight with callees of each function.
fn add_up_one_by_one(view: &TraceView, query: &FlameQuery) -> HashMap<String, (u64, u64)> {
    let index = view.index();
    let weights = add_up(&index, query, &endless_limits());
    let mut functions = FunctionTable::default();
    let mut symbols = view.symbols(&endless_limits()).unwrap();
    let mut totals: HashMap<String, (u64, u64)> = HashMap::new();
    for ((process, stack), (weight, thread, time)) in &weights.by_stack {
        let thread = index.threads.get(*thread).unwrap();
        let mut frames = Stack { owner: Some((thread.pid, 0)), ..Stack::default() };
        for (_, frame) in index.stacks.frames(*stack) {
            let part = if frame.is_kernel { &mut frames.kernel } else { &mut frames.user };
            part.push(frame.address);
        }
        let stamp = view.stamp_at(thread.last_stamp.0, *time);
        let code = ThreadCode { file: thread.last_stamp.0, pid: thread.pid, stamp };
        let program = index.threads.processes[*process as usize].name.as_deref();
        let mut path = Vec::new();
        symbols.resolve_stack(&mut functions, &frames, code, program, &mut path);
        for id in path.iter().collect::<HashSet<_>>() {
            totals.entry(functions.get(*id).label()).or_default().1 += weight;
        }
        if let Some(last) = path.last() {
            totals.entry(functions.get(*last).label()).or_default().0 += weight;
        }
    }
    totals
}

#[test]
fn functions_have_the_weights_of_their_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.etl");
    write_example(&path);
    let view = open_view(&path);
    for kind in [FlameKind::Cpu, FlameKind::Waits] {
        let query = whole_trace(kind);
        let answer = draw(&view, &query, &endless_limits());
        let rows = answer["functions"].as_array().unwrap();
        let drawn: HashMap<String, (u64, u64)> = rows
            .iter()
            .map(|row| {
                let number = |column: usize| row[column].as_u64().unwrap();
                (row[0].as_str().unwrap().to_owned(), (number(2), number(3)))
            })
            .collect();
        let expected = add_up_one_by_one(&view, &query);
        assert!(rows.len() > 10 && rows.len() < MAX_FUNCTIONS, "{} functions", rows.len());
        assert_eq!(drawn, expected);
        assert_eq!(answer["partial"], false);
        assert_eq!(answer["nodes"][0][3], answer["total"]);
    }
}

#[test]
fn common_frames_of_stacks_are_resolved_once() {
    const STACKS: u64 = 3000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep.etl");
    let mut writer = KernelWriter::create(&path, 1).unwrap();
    writer.put_process(70, "deep.exe", "").unwrap();
    writer.put_thread(70, 71).unwrap();
    let mut frames: Vec<u64> = (0..150).map(|number| 0x7FF6_0000_0000 - number * 0x1000).collect();
    for number in 0..STACKS {
        let (time, leaf) = (100 + number.cast_signed() * 10, 0x7FF7_0000_0000 + number * 0x1000);
        frames[0] = leaf;
        writer.put_sample(0, time, 71, leaf).unwrap();
        writer.put_stack(0, time, 70, 71, &frames).unwrap();
    }
    writer.finish(100_000, 0).unwrap();
    let view = open_view(&path);
    let (query, limits) = (whole_trace(FlameKind::Cpu), endless_limits());
    let index = view.index();
    let weights = add_up(&index, &query, &limits);
    assert_eq!((weights.by_stack.len() as u64, weights.total), (STACKS, STACKS));
    let stacks = StackFrames::collect(&view, &index, &weights, &limits);
    assert_eq!(stacks.frames.len() as u64, 149 + STACKS);
    assert_eq!(stacks.left_out, 0);
    drop(index);
    assert_eq!(draw(&view, &query, &limits)["count"], STACKS);
}

#[test]
fn answers_after_the_deadline_say_that_they_are_partial() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.etl");
    write_example(&path);
    let view = open_view(&path);
    let over = QueryLimits::new(Duration::ZERO, Arc::default());
    for kind in [FlameKind::Cpu, FlameKind::Waits] {
        let answer = draw(&view, &whole_trace(kind), &over);
        assert_eq!(answer["partial"], true);
        assert!(answer["count"].as_u64().unwrap() <= 1024);
    }
    let ask = |question: &dyn Fn(&mut JsonWriter) -> bool| {
        let mut json = JsonWriter::default();
        assert!(question(&mut json));
        serde_json::from_slice::<Value>(&json.into_bytes()).unwrap()
    };
    let span = TimeSpan { from: 0, to: i64::MAX };
    for name in ["processes", "threads", "events", "files"] {
        let query = TableQuery { name: name.to_owned(), span, search: String::new(), sort: None };
        assert_eq!(ask(&|json| fill_table(&view, &query, &over, json))["partial"], true, "{name}");
        assert_eq!(ask(&|json| fill_table(&view, &query, &endless_limits(), json))["partial"], false);
    }
    let kind = view.index().kinds.kinds.iter().position(|kind| !kind.marks.is_empty()).unwrap();
    let kind = u16::try_from(kind).unwrap();
    let query = FieldQuery { kind, field: "ProcessId".to_owned(), span };
    let answer = ask(&|json| describe_field(&view, &query, &over, json));
    assert_eq!((&answer["partial"], &answer["read"]), (&Value::from(true), &Value::from(0)));
}
