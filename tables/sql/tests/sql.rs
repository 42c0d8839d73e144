//! Runs the program on traces and datasets.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray};
use datafusion::parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_convert::ConvertInput;
use traceweir_table::{Layout, TableOptions, write_dataset};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/etl/{name}.etl"))
}

fn to_input(name: &str) -> ConvertInput {
    ConvertInput {
        files: vec![fixture(name)],
        schemas: SchemaFiles::default(),
        symbols: SymbolOptions::default(),
        criteria: FilterCriteria::default(),
        observer: Arc::new(()),
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-sql")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the rows that a query prints.
fn query(input: &Path, query: &str) -> Vec<Value> {
    let output = run(&[input.to_str().unwrap(), query, "--format", "jsonl"]);
    assert!(output.status.success(), "{query}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn error(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    assert!(output.stdout.is_empty());
    text(&output.stderr)
}

#[test]
fn events_of_a_trace_are_queried() {
    let expected =
        std::fs::read_to_string(fixture("kernel").with_file_name("../expected/kernel.jsonl")).unwrap();
    let lines: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows = query(&fixture("kernel"), "SELECT event, payload FROM events");
    assert_eq!(rows.len(), lines.len());
    for (row, line) in rows.iter().zip(&lines) {
        assert_eq!(row["event"], line["event"]);
        let payload: Value = serde_json::from_str(row["payload"].as_str().unwrap_or("{}")).unwrap();
        assert_eq!(payload, line["fields"]);
    }
    let count = query(&fixture("kernel"), "SELECT count(*) AS n FROM events");
    assert_eq!(count, [json!({"n": lines.len()})]);
}

#[test]
fn times_and_providers_select_the_same_rows_with_and_without_pushing_down() {
    for condition in [
        "time >= '2024-05-01T10:00:00.001Z' AND time < '2024-05-01T10:00:00.002Z'",
        "time BETWEEN '2024-05-01T10:00:00.0010Z' AND '2024-05-01T10:00:00.0012Z'",
        "provider = 'Windows Kernel'",
        "provider IN ('Windows Kernel', 'x') AND time > '2024-05-01T10:00:00.001Z'",
        "provider = 'windows kernel'",
    ] {
        let pushed = query(&fixture("kernel"), &format!("SELECT time, event FROM events WHERE {condition}"));
        // A condition on a sum of nothing cannot be pushed down.
        let hidden = condition
            .replace("time ", "(time + INTERVAL '0 seconds') ")
            .replace("provider ", "concat(provider, '') ");
        let all = query(&fixture("kernel"), &format!("SELECT time, event FROM events WHERE {hidden}"));
        assert_eq!(pushed, all, "{condition}");
        assert_eq!(pushed.is_empty(), condition.contains("'windows kernel'"), "{condition}");
    }
    for trace in ["merged", "undecodable", "eventsource"] {
        let groups = query(&fixture(trace), "SELECT provider, count(*) AS n FROM events GROUP BY 1");
        for group in groups.iter().filter(|group| group["provider"].is_string()) {
            let name = group["provider"].as_str().unwrap().replace('\'', "''");
            let rows = query(
                &fixture(trace),
                &format!("SELECT count(*) AS n FROM events WHERE provider = '{name}'"),
            );
            assert_eq!(rows, [json!({"n": group["n"]})], "{trace}: {name}");
        }
    }
}

#[test]
fn tables_by_type_and_of_the_kernel_are_queried() {
    let rows = query(
        &fixture("kernel"),
        "SELECT \"ImageFileName\" AS name, host FROM windows_kernel_process_start_v4",
    );
    assert_eq!(rows, [json!({"name": "child.exe", "host": "FIXTURE"})]);
    let rows = query(
        &fixture("kernel"),
        "SELECT process, exit_status, duration(duration_ns) AS d FROM processes WHERE exit_status = 7",
    );
    assert_eq!(rows, [json!({"process": "child.exe", "exit_status": 7, "d": "3.00 ms"})]);
    let rows = query(
        &fixture("kernel"),
        "SELECT count(*) AS n FROM switches s JOIN threads t ON s.new_thread_id = t.thread_id",
    );
    assert!(rows[0]["n"].as_u64() > Some(0), "{rows:?}");
    let rows = query(&fixture("kernel"), "SELECT kind, count FROM losses WHERE kind = 'events lost'");
    assert_eq!(rows, [json!({"kind": "events lost", "count": 0})]);
}

#[test]
fn functions_inspect_stacks_and_payloads() {
    let rows = query(
        &fixture("kernel"),
        "SELECT stack_leaf(stack) AS leaf, stack_contains(stack, stack[1]) AS has, symbol(stack[1], process_id, time) AS name \
         FROM events WHERE stack IS NOT NULL AND cardinality(stack) > 0",
    );
    assert!(!rows.is_empty());
    for row in &rows {
        assert_eq!(row["has"], json!(true));
        assert!(row["leaf"].as_u64().is_some() && row["name"].is_string(), "{row}");
    }
    let rows = query(
        &fixture("kernel"),
        "SELECT field(payload, 'ImageFileName') AS name, milliseconds(1500000) AS ms FROM events WHERE event = 'Process/Start'",
    );
    assert_eq!(rows, [json!({"name": "child.exe", "ms": 1.5})]);
}

#[test]
fn mistakes_get_answers_that_help() {
    let kernel = fixture("kernel");
    let kernel = kernel.to_str().unwrap();
    for (arguments, part) in [
        (&[kernel, "SELECT provder FROM events"][..], "did you mean provider"),
        (&[kernel, "SELECT * FROM proceses"], "did you mean processes"),
        (&[kernel, "SELECT FROM WHERE"], "error: "),
        (&["/no/such/file.etl", "SELECT 1"], "no such file"),
        (&[kernel, "--schema", "evnts"], "did you mean events"),
        (&[kernel, "WITH x AS (SELECT 1) INSERT INTO events SELECT * FROM x"], "error: "),
        (&[kernel, "SELECT imagefilename FROM windows_kernel_process_start_v4"], "double quotes"),
    ] {
        let message = error(arguments);
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    let created = error(&[kernel, "EXPLAIN CREATE TABLE x AS SELECT 1"]);
    assert!(created.starts_with("error: "), "{created}");
}

#[test]
fn output_has_every_format_and_tables_show_no_control_characters() {
    let trace = fixture("tracelogging");
    let trace = trace.to_str().unwrap();
    let output =
        run(&[trace, "SELECT concat('a', chr(27), 'b', chr(10), 'c') AS x, 1 AS n FROM events LIMIT 1"]);
    let table = text(&output.stdout);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(!table.contains('\u{1b}'), "{table}");
    let output =
        run(&[trace, "SELECT 1 AS a, 'x,y' AS b, [1, 2] AS c FROM events LIMIT 1", "--format", "csv"]);
    assert_eq!(text(&output.stdout), "a,b,c\n1,\"x,y\",\"[1, 2]\"\n");
    let output = run(&[trace, "SELECT event FROM events WHERE level < 0", "--format", "csv"]);
    assert_eq!(text(&output.stdout), "event\n", "the header comes without rows too");
    let output = run(&[trace, "--explain", "SELECT event FROM events WHERE provider = 'x'"]);
    let plan = text(&output.stdout);
    assert!(plan.contains("TableScan") && plan.contains("projection=[provider, event]"), "{plan}");
    let output = run(&[trace, "--schema", "events"]);
    assert!(text(&output.stdout).contains("payload"), "the columns are listed");
    let output = run(&[trace, "--tables"]);
    assert!(text(&output.stdout).contains("events"));
}

#[test]
fn closed_pipe_ends_the_program_quietly() {
    let trace = fixture("kernel");
    let trace = trace.to_str().unwrap();
    for arguments in [
        &["--help"][..],
        &[trace, "--tables"],
        &[trace, "--schema", "events"],
        &[trace, "--explain", "SELECT event FROM events"],
        &[trace, "SELECT event FROM events"],
        &[trace, "SELECT event FROM events", "--format", "csv"],
        &[trace, "SELECT event FROM events", "--format", "jsonl"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-sql"));
        let child = command.args(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", output.status);
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn names_of_folders_have_no_wildcards() {
    let root = tempfile::tempdir().unwrap();
    for (folder, trace) in [("a[b]*", "kernel"), ("ab1", "tracelogging"), ("a%5Bb%5D*", "manifest")] {
        let input = to_input(trace);
        write_dataset(&input, &TableOptions::default(), &root.path().join(folder)).unwrap();
    }
    let hosts = |folder: &str| query(&root.path().join(folder), "SELECT DISTINCT host FROM events");
    assert_eq!(hosts("a[b]*"), [json!({"host": "FIXTURE"})]);
    assert_eq!(hosts("a%5Bb%5D*"), [json!({"host": "manifest"})]);
}

#[test]
fn dataset_gives_the_answers_of_its_traces() {
    let root = tempfile::tempdir().unwrap();
    for layout in [Layout::Events, Layout::ByType] {
        for name in ["kernel", "tracelogging"] {
            let options = TableOptions { layout, host: Some("other".to_owned()), ..TableOptions::default() };
            write_dataset(&to_input(name), &options, root.path()).unwrap();
        }
    }
    let question = "SELECT event, count(*) AS n FROM events GROUP BY event ORDER BY event";
    let traces = [fixture("kernel"), fixture("tracelogging")];
    let arguments: Vec<&str> =
        traces.iter().map(|path| path.to_str().unwrap()).chain([question, "--format", "jsonl"]).collect();
    let from_traces = text(&run(&arguments).stdout);
    let rows = query(root.path(), question);
    let lines: Vec<Value> = from_traces.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows, lines);
    let hosts = query(root.path(), "SELECT DISTINCT host FROM events ORDER BY host");
    assert_eq!(hosts, [json!({"host": "FIXTURE"}), json!({"host": "other"})]);
    let one = query(
        root.path(),
        "SELECT count(*) AS n FROM events WHERE host = 'other' AND provider = 'Windows Kernel'",
    );
    assert_eq!(one, [json!({"n": 1})], "the event with the header of tracelogging");
    let typed = query(root.path(), "SELECT \"ProcessId\" AS pid FROM windows_kernel_process_start_v4");
    assert_eq!(typed, [json!({"pid": 3000})]);
    let message = error(&[root.path().to_str().unwrap(), traces[0].to_str().unwrap(), "SELECT 1"]);
    assert!(message.contains("either traces or datasets"), "{message}");
}

/// Writes a file with one row into the first folder of partitions of the table `events`: a time and
/// another column.
fn add_part(dataset: &Path, name: &str, column: (&str, ArrayRef)) {
    let mut folder = dataset.join("events");
    while let Some(inner) =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).find(|p| p.is_dir())
    {
        folder = inner;
    }
    let time: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![5]).with_timezone("UTC"));
    let batch = RecordBatch::try_from_iter([("time", time), column]).unwrap();
    let file = std::fs::File::create(folder.join(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn columns_may_be_missing_in_some_files_of_a_table() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(&to_input("kernel"), &TableOptions::default(), root.path()).unwrap();
    let count = |column: &str| {
        let rows = query(root.path(), &format!("SELECT count({column}) AS n FROM events"));
        rows[0]["n"].as_u64().unwrap()
    };
    let (rows, named) = (count("*"), count("event"));
    add_part(root.path(), "other.parquet", ("added", Arc::new(StringArray::from(vec!["x"]))));
    assert_eq!((count("*"), count("event"), count("added")), (rows + 1, named, 1));
}

#[test]
fn table_that_cannot_be_read_is_named_and_others_can_be_read() {
    for breakage in ["type", "file"] {
        let root = tempfile::tempdir().unwrap();
        write_dataset(&to_input("kernel"), &TableOptions::default(), root.path()).unwrap();
        add_part(root.path(), "other.parquet", ("level", Arc::new(StringArray::from(vec!["high"]))));
        if breakage == "file" {
            let broken = std::fs::read_dir(root.path().join("losses")).unwrap().next().unwrap().unwrap();
            std::fs::write(broken.path(), "PAR1 nothing PAR1").unwrap();
        }
        let table = if breakage == "file" { "losses" } else { "events" };
        let message = error(&[root.path().to_str().unwrap(), &format!("SELECT * FROM {table}")]);
        assert!(message.contains(&format!("cannot read the table {table}: ")), "{message}");
    }
}

#[test]
fn conditions_of_the_wrong_type_are_explained() {
    let trace = fixture("kernel");
    let trace = trace.to_str().unwrap();
    for (condition, part) in
        [("level = 'high'", "high"), ("time > 'yesterday'", "yesterday"), ("stack = 7", "=")]
    {
        let message = error(&[trace, &format!("SELECT count(*) FROM events WHERE {condition}")]);
        assert!(message.contains(part) && message.lines().count() < 4, "{condition}: {message}");
    }
}

#[test]
fn readable_part_of_a_damaged_trace_is_queried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.etl");
    let whole = std::fs::read(fixture("kernel")).unwrap();
    std::fs::write(&path, &whole[..whole.len() * 3 / 4]).unwrap();
    let all = query(&fixture("kernel"), "SELECT time, event FROM events");
    let question = "SELECT time, event FROM events UNION ALL SELECT time, event FROM events WHERE cpu > 99";
    let output = run(&[path.to_str().unwrap(), question, "--format", "jsonl"]);
    assert_eq!(output.status.code(), Some(3), "the status of a damaged trace");
    let (printed, warnings) = (text(&output.stdout), text(&output.stderr));
    let rows: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() > 5 && rows.len() < all.len(), "{}", rows.len());
    assert!(rows.iter().all(|row| all.contains(row)));
    assert!(
        warnings.contains("cut.etl: ") && warnings.lines().all(|l| l.starts_with("warning: ")),
        "{warnings}"
    );
    let mut distinct: Vec<&str> = warnings.lines().collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), warnings.lines().count(), "each warning once: {warnings}");
    let defects = query(&path, "SELECT count(*) AS n FROM losses WHERE kind = 'defect'");
    assert!(defects[0]["n"].as_u64() > Some(0), "{defects:?}");
    std::fs::write(&path, b"no trace").unwrap();
    let message = error(&[path.to_str().unwrap(), "SELECT 1 FROM events"]);
    assert!(message.contains("cut.etl: ") && message.contains("is a text file, not a trace"), "{message}");
}
