//! Compares the filter of the event list with that of `weir dump`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use traceweir_analysis::event::{ReadFlow, describes_file};
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_analysis::traces::TraceSet;
use traceweir_format::kernel::hook;

use super::*;
use crate::index::Index;
use crate::index::kinds::Kind;
use crate::kernel_trace::{self, KernelTraceLayout};
use crate::probe::endless_limits;
use crate::query::{FieldQuery, TableQuery, describe_event, describe_field, fill_table};
use crate::trace::NamedTrace;

/// An event: its stamp, processor, id and payload.
type EventKey = (i64, u16, u16, Vec<u8>);

fn key_of(record: &Record<'_>) -> EventKey {
    (record.time(), record.cpu(), record.descriptor().id, record.payload().to_vec())
}

fn open_set(path: &Path) -> TraceSet {
    TraceSet::open(&[path.to_owned()], &SchemaFiles::default(), std::sync::Arc::new(())).unwrap()
}

fn open_view(path: &Path) -> TraceView {
    let set = open_set(path);
    let traces = set.inputs.into_iter().map(|input| NamedTrace { name: input.name, trace: input.trace });
    let index = Index::new(tempfile::tempfile().unwrap());
    let view = TraceView::new(traces.collect(), set.decoder, &SymbolOptions::default(), index);
    view.build(&None, None);
    assert_eq!(view.progress().problem, None);
    view
}

/// Returns what `weir dump` prints.
fn dump(path: &Path, query: &EventQuery) -> Vec<EventKey> {
    let mut set = open_set(path);
    let filter = EventFilter::new(&query.criteria, set.start());
    let (_, texts) = query.to_event_filters(set.start());
    let mut texts: Vec<Grep<'_>> = texts.iter().map(|text| Grep::new(text, Style::default())).collect();
    let mut found = Vec::new();
    set.read(
        |record, time| filter.accepts_header(record, time) && !describes_file(record),
        |event| {
            if filter.accepts(event) && texts.iter_mut().all(|text| text.accepts(event)) {
                found.push(key_of(&event.record));
                if Some(found.len() as u64) == filter.head {
                    return Ok(ReadFlow::Stop);
                }
            }
            Ok(ReadFlow::Continue)
        },
    )
    .unwrap();
    found
}

/// Returns what the list of events shows.
fn list(view: &TraceView, query: &EventQuery) -> Vec<EventKey> {
    let lists = EventLists::default();
    let mut rows: Vec<u64> = Vec::new();
    loop {
        let first = rows.len() as u64;
        let part = take_part(view, &lists, query.clone(), |_| first, MAX_ROWS);
        rows.extend(&part.rows);
        if part.scanned >= part.rows_of_span && rows.len() as u64 == part.total {
            break;
        }
    }
    let index = view.index();
    let read = |row: &u64| {
        let values = index.events.row(*row, &index.store).unwrap();
        let position = RowPosition(values[event_column::POSITION]);
        view.with_record(position, values[0].cast_signed(), key_of).unwrap()
    };
    rows.iter().map(read).collect()
}

/// Returns filters that use what the events of a trace have.
fn make_filters(path: &Path) -> BTreeSet<String> {
    let mut filters: BTreeSet<String> =
        ["e", "process", "level:error", "level:4", "keyword:0xff", "--from 1ms", "--to 2ms", "head:3"]
            .map(str::to_owned)
            .into();
    let mut set = open_set(path);
    let mut count = 0_u64;
    set.read(
        |record, _| !describes_file(record),
        |event| {
            count += 1;
            if filters.len() > 60 {
                return Ok(ReadFlow::Stop);
            }
            let identity = event.identity();
            let mut add = |filter: String| {
                filters.insert(filter);
            };
            add(format!("provider:{}", identity.provider));
            if let Some(name) = identity.provider_name {
                add(format!("--provider \"{}\"", name.to_uppercase()));
                add(format!("\"{name}\" head:5"));
            }
            if let Some(name) = identity.event_name {
                add(format!("event:{}", name.replace(' ', "?")));
                add(format!("event:*{} cpu:0", name.chars().last().unwrap_or('x')));
            }
            let id =
                if identity.is_kernel { identity.descriptor.opcode.into() } else { identity.descriptor.id };
            add(format!("event:{id}"));
            add(format!("pid:{}", event.record.process_id()));
            add(format!("tid:{}", event.record.thread_id()));
            if let Some(actor) = event.actor {
                add(format!("pid:{} level:5", actor.pid));
                add(format!("tid:{}", actor.tid));
            }
            if let Some(process) = event.process {
                add(format!("\"{process}\""));
            }
            Ok(ReadFlow::Continue)
        },
    )
    .unwrap();
    assert!(count > 0, "{} has no events", path.display());
    filters
}

/// Traces of this project and, if they are there, samples of others.
fn traces() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fixtures =
        ["kernel", "manifest", "merged", "tracelogging", "undecodable", "wpp", "narrow", "compressed"];
    let mut paths: Vec<PathBuf> =
        fixtures.iter().map(|name| root.join(format!("fixtures/etl/{name}.etl"))).collect();
    let samples =
        std::env::var_os("TRACEWEIR_SAMPLES").map_or_else(|| root.join("../shared/data"), PathBuf::from);
    let samples = ["gcevents.etl", "SelfDescribingSingleEvent.etl"].map(|name| samples.join(name));
    paths.extend(samples.into_iter().filter(|path| path.exists()));
    paths
}

#[test]
fn filter_accepts_the_events_that_dump_prints() {
    let mut compared = 0;
    for path in traces() {
        let view = open_view(&path);
        for filter in make_filters(&path) {
            let query = EventQuery::parse(&filter).unwrap();
            let (listed, dumped) = (list(&view, &query), dump(&path, &query));
            assert_eq!(
                listed.len(),
                dumped.len(),
                "{}: {filter}: the list has another number of events than dump",
                path.display()
            );
            assert!(listed == dumped, "{}: {filter}: other events", path.display());
            compared += dumped.len();
        }
    }
    assert!(compared > 1000, "only {compared} events");
}

#[test]
fn one_time_limits_the_list_too() {
    assert_eq!(span_of(None, None), None);
    assert_eq!(span_of(Some(5), None), Some(TimeSpan { from: 5, to: i64::MAX }));
    assert_eq!(span_of(None, Some(7)), Some(TimeSpan { from: 0, to: 7 }));
    assert_eq!(span_of(Some(5), Some(7)), Some(TimeSpan { from: 5, to: 7 }));
}

fn open_kernel_trace(folder: &Path) -> TraceView {
    let path = folder.join("kernel.etl");
    let layout = KernelTraceLayout { bytes: 1 << 20, cpus: 2, processes: 5, threads: 3, name_part: "" };
    kernel_trace::write(&path, layout).unwrap();
    open_view(&path)
}

fn to_json(fill: impl FnOnce(&mut JsonWriter)) -> serde_json::Value {
    let mut json = JsonWriter::default();
    fill(&mut json);
    serde_json::from_slice(&json.into_bytes()).unwrap()
}

const WHOLE: TimeSpan = TimeSpan { from: 0, to: i64::MAX };

#[test]
fn link_of_a_file_lists_its_transfers() {
    let folder = tempfile::tempdir().unwrap();
    let view = open_kernel_trace(folder.path());
    let query = TableQuery { name: "files".to_owned(), span: WHOLE, search: String::new(), sort: None };
    let table = to_json(|json| assert!(fill_table(&view, &query, &endless_limits(), json)));
    let files = table["rows"].as_array().unwrap();
    assert!(files.len() > 10, "{}", files.len());
    for file in files {
        let (link, number) = (&file[0], file[0][1].as_u64().unwrap());
        assert_eq!(link[0], "file");
        // Transfers of files are those of disks only, so that each file has one row.
        let expected = file[3].as_u64().unwrap() + file[5].as_u64().unwrap();
        let query = EventQuery::parse(&format!("file:{number}")).unwrap();
        let lists = EventLists::default();
        complete_list(&view, &lists, &query);
        let part = take_part(&view, &lists, query, |_| 0, MAX_ROWS);
        assert_eq!(part.total, expected, "{link}");
        for row in part.rows {
            let event = to_json(|json| assert!(describe_event(&view, row, json)));
            assert_eq!(event["transfer"], *link);
        }
        assert!(list(&view, &EventQuery::parse(&format!("connection:{number}")).unwrap()).is_empty());
    }
    let other = to_json(|json| assert!(describe_event(&view, 0, json)));
    assert_eq!(other["transfer"], serde_json::Value::Null);
}

#[test]
fn links_of_values_list_the_events_that_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let view = open_kernel_trace(folder.path());
    let is_read = |kind: &Kind| kind.hook == Some(hook::DISK_READ);
    let kind = view.index().kinds.kinds.iter().position(is_read).unwrap();
    let number = u16::try_from(kind).unwrap();
    let query = FieldQuery { kind: number, field: "TransferSize".to_owned(), span: WHOLE };
    let field = to_json(|json| assert!(describe_field(&view, &query, &endless_limits(), json)));
    let count = |filter: &str| list(&view, &EventQuery::parse(filter).unwrap()).len() as u64;
    let texts = field["texts"].as_array().unwrap();
    assert!(texts.len() > 1, "{field}");
    for text in texts {
        let filter = format!("kind:{kind} field:\"TransferSize={}\"", text[0].as_str().unwrap());
        assert_eq!(text[1].as_u64().unwrap(), count(&filter), "{filter}");
    }
    // Each value is in one bar of the histogram.
    let bars = field["histogram"].as_array().unwrap().len();
    let (smallest, largest) =
        (field["numbers"]["smallest"].as_f64().unwrap(), field["numbers"]["largest"].as_f64().unwrap());
    let edge = |bar: usize| smallest + (largest - smallest) / bars as f64 * bar as f64;
    let in_bars: u64 = (0..bars)
        .map(|bar| {
            let high = if bar + 1 == bars { format!("={largest}") } else { edge(bar + 1).to_string() };
            count(&format!("kind:{kind} range:\"TransferSize={}..{high}\"", edge(bar)))
        })
        .sum();
    assert_eq!(field["read"], in_bars);
}

#[test]
fn all_lists_together_have_a_limit() {
    let list = |text: &str, rows: usize| MatchList {
        query: EventQuery::parse(text).unwrap(),
        rows: vec![0; rows],
        scanned: 0,
        block: None,
    };
    let mut lists: Vec<MatchList> = ["a", "b", "c", "d", "e"].map(|text| list(text, 10)).into();
    limit_lists(&mut lists, 25);
    let texts = |lists: &[MatchList]| lists.iter().map(|list| list.query.clone()).collect::<Vec<_>>();
    assert!(texts(&lists) == ["d", "e"].map(|text| EventQuery::parse(text).unwrap()));
    // The list that is asked for stays.
    lists.push(list("f", 100));
    limit_lists(&mut lists, 25);
    assert!(texts(&lists) == [EventQuery::parse("f").unwrap()]);
    // A list that grows takes little more memory than its rows.
    let mut rows = Vec::new();
    for _ in 0..100 {
        add_rows(&mut rows, &[1; 77], 7000);
        assert!(rows.capacity() <= 7000);
    }
    assert_eq!(rows.len(), 7000);
}

#[test]
fn rows_are_not_read_after_the_time_limit() {
    let folder = tempfile::tempdir().unwrap();
    let view = open_kernel_trace(folder.path());
    let lists = EventLists::default();
    let limits = QueryLimits::new(Duration::ZERO, std::sync::Arc::default());
    let list = |limits: &QueryLimits| {
        to_json(|json| list_events_within(&view, &lists, EventQuery::default(), 0, 50, limits, json))
    };
    let (cut, whole) = (list(&limits), list(&endless_limits()));
    let rows = |answer: &serde_json::Value| answer["rows"].as_array().unwrap().clone();
    assert_eq!((rows(&cut).len(), rows(&whole).len()), (50, 50));
    for (cut, whole) in rows(&cut).iter().zip(rows(&whole)) {
        assert_eq!((&cut["row"], &cut["name"]), (&whole["row"], &whole["name"]));
        assert!(cut["text"].as_str().unwrap().starts_with("(not read") && cut["text"] != whole["text"]);
    }
}
