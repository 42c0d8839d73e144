//! Indexes traces that are made to take memory, time or the page, and checks the limits of answers
//! in `docs/spec/view-protocol.md`.

use std::fs::File;

use serde_json::Value;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::NO_ID;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::PayloadLayout;
use traceweir_format::kernel::hook;
use traceweir_format::put_kernel_event;
use traceweir_format::security::Sid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::time::FileTime;
use traceweir_format::{Guid, dotnet};

use crate::json::JsonWriter;
use crate::probe::{ask_all, build_view, endless_limits, open_view};
use crate::query::{
    TableQuery, TimeSpan, TimelineQuery, describe_event, describe_trace, draw_timeline, fill_table,
    list_tracks,
};
use crate::trace::TraceView;

const PROCESS_LAYOUT: PayloadLayout = PayloadLayout::new(hook::PROCESS_DC_START, 4);
const SWITCH_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONTEXT_SWITCH, 2);
const MARKUP: &str = "</script><img src=x onerror=alert(1)>\u{202E}\"'&\u{0}\u{2028}";

/// A trace under construction.
struct TestTrace {
    writer: Writer<File>,
    file: File,
    record: Vec<u8>,
}

impl TestTrace {
    fn new(boot_time: i64) -> Self {
        let file = tempfile::tempfile().unwrap();
        let start_time = FileTime::from_unix(1_700_000_000, 0);
        let options = Options {
            buffer_size: 256 << 10,
            session_name: MARKUP.into(),
            processors: 2,
            perf_freq: 10_000_000,
            start_time,
            boot_time: FileTime(boot_time),
            ..Options::default()
        };
        let writer = Writer::create(file.try_clone().unwrap(), options).unwrap();
        Self { writer, file, record: Vec::new() }
    }

    fn write(&mut self, cpu: u16, time: i64) {
        self.writer.write(cpu, time, &self.record).unwrap();
        self.record.clear();
    }

    fn add_process(&mut self, time: i64, pid: u32, name: &str) {
        let mut payload = Vec::new();
        put_kernel_event!(
            &mut payload,
            PROCESS_LAYOUT,
            { ProcessId: pid, ParentId: 4_u32, SessionId: 1_u32 },
            { UserSID: None::<&Sid>, ImageFileName: name, CommandLine: "", PackageFullName: "", ApplicationId: "" }
        );
        let header = SystemHeader {
            pointer_size: 8,
            version: PROCESS_LAYOUT.version(),
            hook: hook::PROCESS_DC_START,
            thread_id: NO_ID,
            process_id: NO_ID,
            time,
            cpu_times: Some((0, 0)),
        };
        header.encode(&payload, &mut self.record).unwrap();
        self.write(0, time);
    }

    fn add_switch(&mut self, time: i64, cpu: u16, (old, new): (u32, u32), state: i8) {
        let mut payload = Vec::new();
        put_kernel_event!(&mut payload, SWITCH_LAYOUT, {
            NewThreadId: new,
            OldThreadId: old,
            OldThreadWaitReason: 6_i8,
            OldThreadState: state,
        });
        let (version, hook) = (SWITCH_LAYOUT.version(), hook::CONTEXT_SWITCH);
        PerfInfoHeader { pointer_size: 8, version, hook, time, counters: &[] }
            .encode(&payload, &mut self.record)
            .unwrap();
        self.write(cpu, time);
    }

    fn add_event(
        &mut self,
        time: i64,
        provider: Guid,
        (id, opcode): (u16, u8),
        ids: (u32, u32),
        payload: &[u8],
    ) {
        let descriptor = EventDescriptor { id, opcode, task: 1, level: 4, ..EventDescriptor::default() };
        let (process_id, thread_id) = ids;
        let header =
            EventHeader { provider, descriptor, process_id, thread_id, time, ..EventHeader::default() };
        header.encode(payload, &mut self.record).unwrap();
        self.write(0, time);
    }

    fn finish(self) -> File {
        self.writer.finish(Summary::default()).unwrap();
        self.file
    }
}

fn ask(question: impl Fn(&mut JsonWriter)) -> Value {
    let mut json = JsonWriter::default();
    question(&mut json);
    serde_json::from_slice(&json.into_bytes()).unwrap()
}

fn view_of(traces: Vec<TestTrace>) -> TraceView {
    build_view(traces.into_iter().map(TestTrace::finish).collect()).unwrap().0
}

fn tracks_of(view: &TraceView) -> Value {
    ask(|json| list_tracks(view, "", json))
}

fn draw(view: &TraceView, span: TimeSpan, tracks: &str) -> Value {
    let query = TimelineQuery { span, pixels: 1000, tracks: tracks.to_owned(), overview: false };
    ask(|json| draw_timeline(view, &query, json))
}

#[test]
fn answers_about_a_million_processes_are_bounded() {
    let mut trace = TestTrace::new(0);
    for number in 0..1_000_000_u32 {
        trace.add_process(i64::from(number), 4 + number, if number % 3 == 0 { MARKUP } else { "p.exe" });
    }
    let view = view_of(vec![trace]);
    assert!(view.index().threads.threads.len() <= 1 << 17);
    assert_eq!(view.index().events.rows(), 1_000_000);
    let tracks = tracks_of(&view);
    assert_eq!(tracks["processes"].as_array().unwrap().len(), 200);
    assert!(tracks["more_processes"].as_u64().unwrap() > 100_000);
    for name in ["processes", "threads", "events"] {
        let span = TimeSpan { from: 0, to: i64::MAX };
        let query = TableQuery { name: name.to_owned(), span, search: String::new(), sort: None };
        let table = ask(|json| assert!(fill_table(&view, &query, &endless_limits(), json)));
        assert!(table["rows"].as_array().unwrap().len() <= 500);
    }
    let drawn = draw(&view, TimeSpan { from: 0, to: i64::MAX }, "c0,t2,s2,k1,v1");
    assert!(drawn.to_string().len() < 1 << 20);
}

#[test]
fn huge_and_strange_events_are_bounded() {
    let mut trace = TestTrace::new(0);
    for number in 0..300_u32 {
        let provider = Guid::from_u128(u128::from(number));
        let payload = vec![b'<'; 60_000];
        trace.add_event(i64::from(number), provider, (7, 0), (1, 2), &payload);
    }
    let huge_name = MARKUP.repeat(100);
    trace.add_process(3000, 77, &huge_name);
    let view = view_of(vec![trace]);
    let answers = ask_all(&view);
    for answer in &answers {
        assert!(answer.len() < 1 << 20, "an answer has {} bytes", answer.len());
        if !answer.is_empty() {
            serde_json::from_slice::<Value>(answer).unwrap();
        }
    }
    let tracks = tracks_of(&view);
    assert_eq!(tracks["providers"].as_array().unwrap().len(), 200);
    let event = ask(|json| assert!(describe_event(&view, 0, json)));
    assert_eq!(event["raw"].as_str().unwrap().len(), 2 * 4096);
}

#[test]
fn negative_and_backward_times_are_put_in_order() {
    let mut trace = TestTrace::new(0);
    for time in [50, -1_000_000, 40, i64::MIN / 2, 60, 10, 0] {
        trace.add_switch(time, 0, (10, 11), 5);
        trace.add_event(time, Guid::from_u128(1), (1, 1), (5, 6), &[]);
    }
    let view = view_of(vec![trace]);
    let index = view.index();
    let mut times = Vec::new();
    index.events.for_rows(0, u64::MAX, &index.store, |_, values| {
        times.push(values[0].cast_signed());
        true
    });
    drop(index);
    assert!(times.len() == 14 && times.is_sorted() && times[0] >= 0, "{times:?}");
    let answers = ask_all(&view);
    assert!(answers.iter().all(|answer| answer.len() < 1 << 18));
}

#[test]
fn traces_of_two_machines_stay_apart() {
    let mut traces = [TestTrace::new(1 << 40), TestTrace::new(1 << 50)];
    for (trace, name) in traces.iter_mut().zip(["one.exe", "two.exe"]) {
        trace.add_process(1, 100, name);
        trace.add_event(2, Guid::from_u128(1), (1, 0), (100, 7), &[]);
        trace.add_switch(10, 0, (0, 7), 5);
        trace.add_switch(30, 0, (7, 0), 5);
    }
    let view = view_of(traces.into());
    let tracks = tracks_of(&view);
    assert_eq!(tracks["cpus"], serde_json::json!([0, 1]));
    assert_eq!(tracks["cpu_names"], serde_json::json!(["CPU 0 · trace-0.etl", "CPU 0 · trace-1.etl"]));
    let mut names: Vec<&str> = tracks["processes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|process| process["name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["one.exe", "two.exe"]);
    let threads = view.index().threads.threads.iter().filter(|thread| thread.tid == 7).count();
    assert_eq!(threads, 2);
}

#[test]
fn states_last_until_the_end_of_the_trace() {
    let mut trace = TestTrace::new(0);
    trace.add_switch(1000, 0, (0, 7), 5);
    trace.add_switch(2000, 0, (7, 8), 5);
    trace.add_event(5000, Guid::from_u128(1), (1, 0), (4, 9), &[]);
    let view = view_of(vec![trace]);
    let about = ask(|json| describe_trace(&view, json));
    assert_eq!((&about["begin"], &about["end"]), (&Value::from(100_000), &Value::from(500_000)));
    let tids = |tid| view.index().threads.threads.iter().position(|thread| thread.tid == tid).unwrap();
    let (waiting, running) = (tids(7), tids(8));
    let span = TimeSpan { from: 0, to: 600_000 };
    let drawn = draw(&view, span, &format!("c0,t{waiting},t{running}"));
    let last_end = |track: &str, width: usize| {
        let numbers = drawn["tracks"][track].as_array().unwrap();
        numbers[numbers.len() - width + 1].as_i64()
    };
    assert_eq!(last_end("c0", 5), Some(500_000));
    assert_eq!(last_end(&format!("t{waiting}"), 7), Some(500_000));
    assert_eq!(last_end(&format!("t{running}"), 7), Some(500_000));
}

#[test]
fn garbage_collections_and_lone_events_are_slices() {
    let mut trace = TestTrace::new(0);
    let ids = (50, 60);
    // A background collection contains a short one, and ends on another thread.
    for (time, id, opcode, number, tid) in
        [(10, 1, 1, 5_u32, 60), (20, 1, 1, 6, 60), (30, 2, 2, 6, 60), (40, 2, 2, 5, 61)]
    {
        trace.add_event(
            time,
            dotnet::RUNTIME,
            (id, opcode),
            (ids.0, tid),
            &[&number.to_le_bytes()[..], &[0; 16]].concat(),
        );
    }
    trace.add_event(50, Guid::from_u128(1), (1, 0), (50, 62), &[]);
    let view = view_of(vec![trace]);
    let position = |tid| view.index().threads.threads.iter().position(|thread| thread.tid == tid).unwrap();
    let (collector, lone) = (position(60), position(62));
    let drawn = draw(&view, TimeSpan { from: 0, to: 10_000 }, &format!("s{collector},s{lone}"));
    let lanes = drawn["tracks"][format!("s{collector}")].as_array().unwrap();
    let spans: Vec<(i64, i64)> =
        lanes.iter().take(2).map(|lane| (lane[0].as_i64().unwrap(), lane[1].as_i64().unwrap())).collect();
    assert_eq!(spans, [(1000, 4000), (2000, 3000)]);
    // The last lane has the events of a thread without context switches.
    assert_eq!(
        drawn["tracks"][format!("s{lone}")],
        serde_json::json!([[5000, 5000, 1, 4, position_of_kind(&view, 4)]])
    );
}

/// Returns the kind of a row.
fn position_of_kind(view: &TraceView, row: u64) -> u64 {
    let index = view.index();
    index.events.row(row, &index.store).unwrap()[crate::index::event_column::KIND]
}

#[test]
fn small_index_file_cannot_describe_much_data() {
    let mut trace = TestTrace::new(0);
    trace.add_process(1, 5, "a");
    let file = trace.finish();
    let (_, bytes) = build_view(vec![file.try_clone().unwrap()]).unwrap();
    for cut in 1..bytes.len() {
        assert!(open_view(vec![file.try_clone().unwrap()], &bytes[..cut], b"test").unwrap().is_none());
    }
}
