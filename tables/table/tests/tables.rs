//! Compares tables with what `weir dump --format jsonl` prints for the same traces, and feeds the
//! converters damaged traces.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_convert::{Conversion, ConvertInput};
use traceweir_format::time::FileTime;
use traceweir_table::events::{ColumnSet, EventColumn};
use traceweir_table::kernel::{KernelTable, scan_kernel_table, scan_schema};
use traceweir_table::types::{list_type_tables, scan_type_table, type_schema};
use traceweir_table::{
    FileFormat, Layout, ScanOptions, TableOptions, scan_events, write_dataset, write_file,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// The names of the traces among the fixtures.
const TRACES: [&str; 10] = [
    "compressed",
    "crashed",
    "eventsource",
    "kernel",
    "manifest",
    "merged",
    "narrow",
    "tracelogging",
    "undecodable",
    "wpp",
];

/// The options with which `weir dump` printed the expected output of a fixture.
fn input(path: &Path) -> ConvertInput {
    let schemas = SchemaFiles {
        manifests: vec![fixtures().join("manifests")],
        tmf: vec![fixtures().join("tmf")],
        ..SchemaFiles::default()
    };
    ConvertInput {
        files: vec![path.to_owned()],
        schemas,
        symbols: SymbolOptions::default(),
        criteria: FilterCriteria::default(),
        observer: Arc::new(()),
    }
}

fn fixture(name: &str) -> ConvertInput {
    input(&fixtures().join(format!("etl/{name}.etl")))
}

fn expected(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(fixtures().join(format!("expected/{name}.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn scan(input: &ConvertInput, options: &ScanOptions) -> (Vec<RecordBatch>, Conversion) {
    let mut batches = Vec::new();
    let conversion = scan_events(input, options, &mut |batch| {
        batches.push(batch);
        Ok(ReadFlow::Continue)
    })
    .unwrap();
    (batches, conversion)
}

/// Returns a value as JSON: times in nanoseconds, bytes in hexadecimal.
fn cell(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::Int8 => json!(array.as_primitive::<Int8Type>().value(row)),
        DataType::Int16 => json!(array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => json!(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => json!(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt8 => json!(array.as_primitive::<UInt8Type>().value(row)),
        DataType::UInt16 => json!(array.as_primitive::<UInt16Type>().value(row)),
        DataType::UInt32 => json!(array.as_primitive::<UInt32Type>().value(row)),
        DataType::UInt64 => json!(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float32 => float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Timestamp(..) => json!(array.as_primitive::<TimestampNanosecondType>().value(row)),
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::Binary => {
            let bytes = array.as_binary::<i32>().value(row);
            json!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[row];
            cell(dictionary.values(), key)
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|item| cell(&items, item)).collect()
        }
        other => panic!("unexpected type {other}"),
    }
}

/// Returns a number as JSON; JSON has no numbers that are not finite.
fn float(number: f64) -> Value {
    match number {
        number if number.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        number => json!(number),
    }
}

/// Returns the rows of batches as objects.
fn rows(batches: &[RecordBatch]) -> Vec<BTreeMap<String, Value>> {
    let mut rows = Vec::new();
    for batch in batches {
        let schema = batch.schema();
        for row in 0..batch.num_rows() {
            let cells = schema.fields().iter().zip(batch.columns());
            rows.push(cells.map(|(field, column)| (field.name().clone(), cell(column, row))).collect());
        }
    }
    rows
}

/// Parses a time such as `2024-05-01T10:00:00.0001000Z` into nanoseconds since 1970.
fn nanoseconds(text: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap();
    let civil = traceweir_format::time::Civil {
        year: i32::try_from(number(0..4)).unwrap(),
        month: u8::try_from(number(5..7)).unwrap(),
        day: u8::try_from(number(8..10)).unwrap(),
        hour: u8::try_from(number(11..13)).unwrap(),
        minute: u8::try_from(number(14..16)).unwrap(),
        second: u8::try_from(number(17..19)).unwrap(),
        units: u32::try_from(number(20..27)).unwrap(),
    };
    let FileTime(units) = FileTime::from_civil(&civil).unwrap();
    (units - 116_444_736_000_000_000) * 100
}

fn without_minus_one(value: &Value) -> Value {
    if *value == json!(-1) { Value::Null } else { value.clone() }
}

#[test]
fn events_equal_the_output_of_dump() {
    for name in TRACES {
        let (batches, conversion) = scan(&fixture(name), &ScanOptions::default());
        let (rows, lines) = (rows(&batches), expected(name));
        assert_eq!(rows.len(), lines.len(), "{name}");
        assert_eq!(conversion.written, lines.len() as u64);
        for (row, line) in rows.iter().zip(&lines) {
            assert_eq!(row["time"], json!(nanoseconds(line["time"].as_str().unwrap())), "{name}: {line}");
            for (column, key) in [
                ("provider", "provider"),
                ("provider_id", "guid"),
                ("event", "event"),
                ("id", "id"),
                ("version", "version"),
                ("level", "level"),
                ("opcode", "opcode"),
                ("task", "task"),
                ("cpu", "cpu"),
                ("payload_bytes", "len"),
                ("process", "process"),
                ("activity", "activity"),
                ("related_activity", "related"),
                ("message", "message"),
            ] {
                assert_eq!(
                    row[column],
                    line.get(key).cloned().unwrap_or_default(),
                    "{name}: {column} of {line}"
                );
            }
            assert_eq!(row["writer_process_id"], without_minus_one(&line["pid"]), "{name}: {line}");
            assert_eq!(row["writer_thread_id"], without_minus_one(&line["tid"]), "{name}: {line}");
            let attributed = line.get("attributed").unwrap_or(line);
            assert_eq!(row["process_id"], without_minus_one(&attributed["pid"]), "{name}: {line}");
            assert_eq!(row["thread_id"], without_minus_one(&attributed["tid"]), "{name}: {line}");
            let keywords = line["keywords"].as_str().unwrap();
            assert_eq!(row["keywords"], json!(u64::from_str_radix(&keywords[2..], 16).unwrap()));
            let is_decoded = row["payload"] != Value::Null;
            let payload: Value =
                row["payload"].as_str().map_or_else(|| json!({}), |text| serde_json::from_str(text).unwrap());
            assert_eq!(payload, line["fields"], "{name}");
            assert_eq!(row["undecoded"] == Value::Null, line.get("undecoded").is_none(), "{name}: {line}");
            let raw = line.get("raw").or_else(|| line.get("extra")).cloned().unwrap_or_default();
            assert_eq!(row["raw"], raw, "{name}: {line}");
            assert!(is_decoded || line.get("undecoded").is_some());
            if let Some(stack) = line.get("stack") {
                let hex = |address: &Value| json!(format!("{:#x}", address.as_u64().unwrap()));
                let addresses: Value = row["stack"].as_array().unwrap().iter().map(hex).collect();
                assert_eq!(addresses, *stack);
            }
        }
    }
}

#[test]
fn several_threads_read_the_same_rows_in_the_same_order() {
    for name in TRACES {
        let options =
            |threads| ScanOptions { threads: NonZero::new(threads), batch_rows: 3, ..ScanOptions::default() };
        let (serial, _) = scan(&fixture(name), &options(1));
        for threads in [2, 5] {
            let (parallel, _) = scan(&fixture(name), &options(threads));
            assert_eq!(rows(&serial), rows(&parallel), "{name} with {threads} threads");
        }
    }
}

#[test]
fn only_wanted_columns_and_events_are_read() {
    let columns = ColumnSet::new(&[EventColumn::Event, EventColumn::Time]);
    let options = ScanOptions { columns, ..ScanOptions::default() };
    let mut input = fixture("kernel");
    input.criteria.events = vec!["Process/*".to_owned()];
    let (batches, _) = scan(&input, &options);
    let names: Vec<String> = batches[0].schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["time", "event"]);
    let rows = rows(&batches);
    let wanted = expected("kernel")
        .iter()
        .filter(|l| l["event"].as_str().unwrap_or("").starts_with("Process/"))
        .count();
    assert!(wanted > 0);
    assert_eq!(rows.len(), wanted);
    let none = ScanOptions { columns: ColumnSet::new(&[]), ..ScanOptions::default() };
    let (batches, _) = scan(&fixture("kernel"), &none);
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), expected("kernel").len());
}

#[test]
fn head_and_a_reader_that_stops_end_the_scan() {
    let mut input = fixture("tracelogging");
    input.criteria.head = Some(2);
    let (batches, _) = scan(&input, &ScanOptions { batch_rows: 1, ..ScanOptions::default() });
    let all = expected("tracelogging");
    assert!(rows(&batches).len() < all.len());
    for threads in [1, 2] {
        let options = ScanOptions { batch_rows: 1, threads: NonZero::new(threads), ..ScanOptions::default() };
        let mut count = 0;
        scan_events(&fixture("tracelogging"), &options, &mut |_| {
            count += 1;
            Ok(ReadFlow::Stop)
        })
        .unwrap();
        assert_eq!(count, 1);
    }
}

/// Returns the Parquet files below a folder, by their folder relative to it.
fn parquet_files(root: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            assert!(!path.to_string_lossy().ends_with(".tmp"), "an incomplete file was left: {path:?}");
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "parquet") {
                let relative = folder.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                found.entry(relative).or_default().push(path);
            }
        }
    }
    found.values_mut().for_each(|files| files.sort());
    found
}

fn read_parquet(path: &Path) -> Vec<RecordBatch> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    builder.build().unwrap().map(Result::unwrap).collect()
}

/// Writes a dataset, and returns the rows of each table.
fn dataset(
    input: &ConvertInput,
    options: &TableOptions,
    root: &Path,
) -> BTreeMap<String, Vec<BTreeMap<String, Value>>> {
    write_dataset(input, options, root).unwrap();
    let mut tables: BTreeMap<String, Vec<BTreeMap<String, Value>>> = BTreeMap::new();
    for (folder, files) in parquet_files(root) {
        let table = folder.split('/').next().unwrap().to_owned();
        for file in files {
            tables.entry(table.clone()).or_default().extend(rows(&read_parquet(&file)));
        }
    }
    tables
}

#[test]
fn dataset_of_events_has_every_event_once() {
    for name in TRACES {
        let root = tempfile::tempdir().unwrap();
        let tables = dataset(&fixture(name), &TableOptions::default(), root.path());
        assert_eq!(tables["events"].len(), expected(name).len(), "{name}");
        assert!(tables["losses"].len() >= 2);
        let folders = parquet_files(root.path());
        let events = folders.keys().filter(|folder| folder.starts_with("events/"));
        for folder in events {
            let parts: Vec<&str> = folder.split('/').collect();
            assert!(
                parts[1].starts_with("date=20")
                    && parts[2].starts_with("host=")
                    && parts[3].starts_with("provider="),
                "{folder}"
            );
        }
        // The same conversion replaces its files.
        let again = dataset(&fixture(name), &TableOptions::default(), root.path());
        assert_eq!(again["events"].len(), expected(name).len(), "{name}");
    }
}

/// Returns a JSON value of dump in the form in which a typed column has it.
fn normalise(value: &Value, column: &Value) -> Value {
    match (value, column) {
        // Nested fields are JSON texts in columns.
        (Value::Object(_), Value::String(text)) => {
            let parsed: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parsed, *value);
            column.clone()
        }
        (Value::Array(_), Value::String(text)) => {
            let parsed: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parsed, *value);
            column.clone()
        }
        (Value::Array(items), Value::Array(columns)) => {
            assert_eq!(items.len(), columns.len());
            items.iter().zip(columns).map(|(item, column)| normalise(item, column)).collect()
        }
        (Value::String(text), Value::Number(number)) if text.starts_with("0x") => {
            let value = u64::from_str_radix(&text[2..], 16).unwrap();
            assert_eq!(number.as_u64(), Some(value));
            column.clone()
        }
        (Value::String(text), Value::Number(_)) if text.len() == 28 && text.ends_with('Z') => {
            json!(nanoseconds(text))
        }
        // Dates before 1677 have no nanoseconds.
        (Value::String(text), Value::Null) if text.starts_with("1601-") => Value::Null,
        (Value::String(text), Value::Number(number)) => {
            assert_eq!(number.to_string(), *text);
            column.clone()
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            // The JSON of a 32-bit number has only the digits that 32 bits need.
            #[allow(clippy::cast_possible_truncation)]
            let is_equal = a == b || a as f32 == b as f32;
            assert!(is_equal, "{a} and {b}");
            column.clone()
        }
        // A mapped value without a name is a number in JSON, and text in a column of names.
        (Value::Number(number), Value::String(text)) => {
            assert_eq!(number.to_string(), *text);
            column.clone()
        }
        _ => value.clone(),
    }
}

#[test]
fn tables_by_type_have_the_fields_of_dump() {
    let options = TableOptions { layout: Layout::ByType, ..TableOptions::default() };
    let mut compared = 0;
    for name in TRACES {
        let root = tempfile::tempdir().unwrap();
        let tables = dataset(&fixture(name), &options, root.path());
        let total: usize =
            tables.iter().filter(|(table, _)| *table != "losses").map(|(_, rows)| rows.len()).sum();
        let lines = expected(name);
        assert_eq!(total, lines.len(), "{name}");
        for (table, rows) in &tables {
            if ["losses", "undecoded", "other"].contains(&table.as_str()) {
                continue;
            }
            for row in rows {
                // The event of the row: with the same time and the same fields.
                let is_match = |line: &&Value| {
                    let fields = line["fields"].as_object().unwrap();
                    json!(nanoseconds(line["time"].as_str().unwrap())) == row["time"]
                        && fields.keys().all(|key| row.contains_key(&column_of(key)))
                        && line.get("raw").or_else(|| line.get("extra")).cloned().unwrap_or_default()
                            == row["raw"]
                        && table.starts_with(&traceweir_table::names::table_name(
                            line["provider"].as_str().unwrap_or(line["guid"].as_str().unwrap()),
                            line["event"].as_str().unwrap_or(&line["id"].to_string()),
                            u8::try_from(line["version"].as_u64().unwrap()).unwrap(),
                        ))
                };
                let candidates: Vec<&Value> = lines.iter().filter(is_match).collect();
                assert!(!candidates.is_empty(), "{name}: {table}: no event for {row:?}");
                if candidates.len() > 1 {
                    continue;
                }
                for (key, value) in candidates[0]["fields"].as_object().unwrap() {
                    let column = &row[&column_of(key)];
                    assert_eq!(*column, normalise(value, column), "{name}: {table}: {key}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 200, "only {compared} fields were compared");
}

/// Returns the column of a field that has a name of its own.
fn column_of(field: &str) -> String {
    let name = traceweir_table::names::column_name(field);
    let reserved = [
        "time",
        "host",
        "provider",
        "date",
        "process_id",
        "process",
        "thread_id",
        "cpu",
        "level",
        "keywords",
        "activity",
        "related_activity",
        "stack",
        "undecoded",
        "raw",
    ];
    if reserved.contains(&name.to_lowercase().as_str()) { format!("{name}_2") } else { name }
}

#[test]
fn kernel_tables_follow_processes_and_threads() {
    let root = tempfile::tempdir().unwrap();
    let options = TableOptions { layout: Layout::Kernel, ..TableOptions::default() };
    let tables = dataset(&fixture("kernel"), &options, root.path());
    let processes = &tables["processes"];
    let lines = expected("kernel");
    let mut pids: Vec<&Value> = lines
        .iter()
        .filter(|line| matches!(line["event"].as_str(), Some("Process/Start" | "Process/DCStart")))
        .map(|line| &line["fields"]["ProcessId"])
        .collect();
    pids.sort_by_key(|pid| pid.as_u64());
    pids.dedup();
    for pid in pids {
        assert!(processes.iter().any(|row| row["process_id"] == *pid), "no row of process {pid}");
    }
    let switches = lines.iter().filter(|line| line["event"] == "Thread/CSwitch").count();
    assert_eq!(tables.get("switches").map_or(0, Vec::len), switches);
    for table in KernelTable::ALL {
        let scan = |columns: &[usize]| {
            let mut batches = Vec::new();
            scan_kernel_table(&fixture("kernel"), table, Some("given"), columns, &mut |batch| {
                batches.push(batch);
                Ok(ReadFlow::Continue)
            })
            .unwrap();
            batches
        };
        let all: Vec<usize> = (0..scan_schema(table).fields().len()).collect();
        let scanned = rows(&scan(&all));
        let stored = tables.get(table.name()).map_or(&[][..], Vec::as_slice);
        assert_eq!(scanned.len(), stored.len(), "{}", table.name());
        // The rows of a file are in the order of time.
        for stored in stored {
            let is_same = |row: &&BTreeMap<String, Value>| {
                stored.iter().all(|(name, value)| name == "functions" || row[name] == *value)
            };
            assert!(scanned.iter().any(|row| is_same(&row)), "{stored:?}");
        }
        assert!(scanned.iter().all(|row| row["host"] != Value::Null));
        // The last column is the host.
        let some = [all.len() - 1, 1];
        let projected: Vec<RecordBatch> =
            scan(&all).iter().map(|batch| batch.project(&some).unwrap()).collect();
        assert_eq!(scan(&some), projected, "{}", table.name());
        assert_eq!(scan(&[]).iter().map(RecordBatch::num_rows).sum::<usize>(), scanned.len());
    }
}

#[test]
fn tables_by_type_have_only_wanted_columns() {
    let mut compared = 0;
    for name in TRACES {
        for (table, count) in list_type_tables(&fixture(name)).unwrap() {
            let Some(schema) = type_schema(&table) else { continue };
            let scan = |columns: &[usize]| {
                let mut batches = Vec::new();
                scan_type_table(&fixture(name), &table, None, columns, &mut |batch| {
                    batches.push(batch);
                    Ok(ReadFlow::Continue)
                })
                .unwrap();
                batches
            };
            let all: Vec<usize> = (0..schema.fields().len()).collect();
            let whole = scan(&all);
            assert_eq!(whole.iter().map(RecordBatch::num_rows).sum::<usize>() as u64, count, "{name}");
            let middle = all.len() / 2;
            for some in [vec![all.len() - 1, 0], vec![middle, 3, middle - 1], vec![all.len() - 2], vec![]] {
                let project = |batch: &RecordBatch| batch.project(&some).unwrap();
                assert_eq!(scan(&some), whole.iter().map(project).collect::<Vec<_>>(), "{}", table.name);
                compared += 1;
            }
        }
    }
    assert!(compared > 40, "only {compared} projections were compared");
}

#[test]
fn conversion_replaces_only_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dataset");
    let events = |root: &Path| -> usize {
        let files = parquet_files(root);
        let of_events = files.iter().filter(|(folder, _)| folder.starts_with("events"));
        of_events.flat_map(|(_, files)| files).map(|file| rows(&read_parquet(file)).len()).sum()
    };
    let convert = |bytes: &[u8], host: &str| {
        let path = folder.path().join("trace.etl");
        fs::write(&path, bytes).unwrap();
        let options = TableOptions { host: Some(host.to_owned()), ..TableOptions::default() };
        write_dataset(&input(&path), &options, &root).unwrap();
    };
    let original = write_requests(Vec::new(), 50, 1).unwrap();
    convert(&original, "a");
    let count = events(&root);
    convert(&original, "a");
    assert_eq!(events(&root), count);
    // A trace of the same name, size, host and times, with other content.
    let mut forged = original.clone();
    let at = forged.windows(11).position(|window| window == b"/shop/item/").unwrap();
    forged[at + 1] = b'x';
    convert(&forged, "a");
    assert_eq!(events(&root), 2 * count, "the rows of the first trace are still there");
}

#[test]
fn links_in_a_dataset_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("dataset"), folder.path().join("outside"));
    for path in [&root, &outside] {
        fs::create_dir(path).unwrap();
    }
    std::os::unix::fs::symlink(&outside, root.join("events")).unwrap();
    let error = write_dataset(&fixture("kernel"), &TableOptions::default(), &root).unwrap_err();
    assert!(error.to_string().contains("events: is a link"), "{error}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn hosts_share_a_dataset() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("dataset");
    for host in ["a", "b", "../c"] {
        let options = TableOptions { host: Some(host.to_owned()), ..TableOptions::default() };
        write_dataset(&fixture("tracelogging"), &options, &root).unwrap();
    }
    let files = parquet_files(&root);
    let hosts: std::collections::BTreeSet<&str> =
        files.keys().filter_map(|folder| folder.split('/').nth(2)).collect();
    assert_eq!(hosts.len(), 3, "{hosts:?}");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1, "nothing is outside of the dataset");
}

#[test]
fn single_files_have_the_rows_of_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    let (batches, _) = scan(&fixture("kernel"), &ScanOptions::default());
    let streamed = rows(&batches);
    for format in [FileFormat::Parquet, FileFormat::Arrow, FileFormat::ArrowStream] {
        let options = TableOptions { format, ..TableOptions::default() };
        write_file(&fixture("kernel"), &options, File::create(&path).unwrap()).unwrap();
        let file = File::open(&path).unwrap();
        let read: Vec<RecordBatch> = match format {
            FileFormat::Parquet => read_parquet(&path),
            FileFormat::Arrow => {
                arrow_ipc::reader::FileReader::try_new(file, None).unwrap().map(Result::unwrap).collect()
            }
            FileFormat::ArrowStream => {
                arrow_ipc::reader::StreamReader::try_new(file, None).unwrap().map(Result::unwrap).collect()
            }
        };
        assert_eq!(rows(&read), streamed, "{format:?}");
        for layout in [Layout::ByType, Layout::Kernel] {
            let error =
                write_file(&fixture("kernel"), &TableOptions { layout, ..options.clone() }, Vec::new());
            assert!(error.unwrap_err().to_string().contains("a single file has one table"));
        }
    }
}

#[test]
fn rows_of_a_file_are_sorted_and_columns_have_statistics() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(&fixture("kernel"), &TableOptions::default(), root.path()).unwrap();
    let files = parquet_files(root.path());
    let (_, files) = files.iter().find(|(folder, _)| folder.starts_with("events/")).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&files[0]).unwrap()).unwrap();
    let metadata = builder.metadata().clone();
    let group = metadata.row_group(0);
    assert_eq!(group.sorting_columns().map(|columns| columns[0].column_idx), Some(0));
    assert!(group.column(0).statistics().is_some());
    let event = group.columns().iter().find(|column| column.column_path().string() == "event").unwrap();
    assert!(event.bloom_filter_offset().is_some());
    let times: Vec<i64> =
        rows(&read_parquet(&files[0])).iter().map(|row| row["time"].as_i64().unwrap()).collect();
    assert!(times.is_sorted());
}

#[test]
fn damaged_traces_cause_errors_and_no_panics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.etl");
    let mut state = 0x9E37_79B9_u64;
    let mut random = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % limit.max(1)
    };
    let mut converted = 0;
    for name in ["kernel", "manifest", "tracelogging", "merged", "eventsource", "narrow"] {
        let whole = fs::read(fixtures().join(format!("etl/{name}.etl"))).unwrap();
        for round in 0..4 {
            let mut bytes = whole.clone();
            if round % 3 == 0 {
                bytes.truncate(random(bytes.len()));
            }
            for _ in 0..random(60) {
                let at = random(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(random(256)).unwrap();
                }
            }
            fs::write(&path, &bytes).unwrap();
            // Reading the schema files again for every trace would take most of the time.
            let mut damaged = input(&path);
            damaged.schemas = SchemaFiles::default();
            for layout in [Layout::Events, Layout::ByType, Layout::Kernel] {
                let root = tempfile::tempdir().unwrap();
                let options = TableOptions { layout, ..TableOptions::default() };
                if write_dataset(&damaged, &options, root.path()).is_ok() {
                    converted += 1;
                    for file in parquet_files(root.path()).values().flatten() {
                        read_parquet(file);
                    }
                }
            }
        }
    }
    assert!(converted > 15, "only {converted} conversions read anything");
}

#[path = "../../../tests/support/kernel_trace.rs"]
mod kernel_trace;

use kernel_trace::{KernelWriter, Switch};
use traceweir_format::kernel::{PayloadLayout, hook, thread_state};
use traceweir_format::put_kernel_event;

#[test]
fn end_of_a_thread_ends_its_absence_and_its_run() {
    const THREAD_LAYOUT: PayloadLayout = PayloadLayout::new(hook::THREAD_END, 3);
    fn put_end(writer: &mut KernelWriter, time: i64) {
        writer.payload.clear();
        put_kernel_event!(&mut writer.payload, THREAD_LAYOUT, { ProcessId: 70_u32, TThreadId: 71_u32 });
        writer.put_system(hook::THREAD_END, THREAD_LAYOUT.version(), 0, time).unwrap();
    }
    fn put_switch(writer: &mut KernelWriter, time: i64, old_tid: u32, new_tid: u32) {
        let old_state = thread_state::WAITING.cast_signed();
        writer.put_switch(0, time, Switch { new_tid, old_tid, old_state, wait_reason: 6 }).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("threads.etl");
    let mut writer = KernelWriter::create(&trace, 1).unwrap();
    for (time, old, new) in [(100, 9, 71), (250, 71, 9), (260, 9, 71), (270, 71, 9)] {
        put_switch(&mut writer, time, old, new);
    }
    // The thread ends while it waits, and another one gets its id.
    put_end(&mut writer, 300);
    put_switch(&mut writer, 400, 9, 71);
    // The switch from the thread that ends to thread 8 is missing.
    put_end(&mut writer, 450);
    put_switch(&mut writer, 500, 8, 9);
    writer.finish(600, 0).unwrap();
    let options = TableOptions { layout: Layout::Kernel, ..TableOptions::default() };
    let tables = dataset(&input(&trace), &options, &folder.path().join("out"));
    let times = |row: &BTreeMap<String, Value>| [&row["ran_ns"], &row["absent_ns"]].map(Value::as_u64);
    let found: Vec<_> = tables["switches"].iter().map(times).collect();
    let known = [
        [None, None],
        [Some(15_000), Some(15_000)],
        [Some(1_000), Some(1_000)],
        [Some(1_000), Some(1_000)],
        [Some(13_000), None],
        [None, Some(10_000)],
    ];
    assert_eq!(found, known);
}

#[path = "support/trace_maker.rs"]
#[allow(dead_code, missing_docs, unreachable_pub)]
mod trace_maker;

use trace_maker::{MadeEvent, write_requests, write_trace};

#[test]
fn hostile_names_and_many_types_stay_in_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("hostile.etl");
    let names = [
        "../../escape",
        "a/b",
        "a\\b",
        "",
        ".",
        "..",
        "CON",
        "a=b",
        "date=x",
        "\u{202e}x",
        "%2e%2e",
        "é\u{1}",
        "x\"; --",
    ];
    let bytes = write_trace(Vec::new(), 1100, |index, write| {
        let number = usize::try_from(index).unwrap();
        let name = names[number % names.len()];
        let (provider, event) = (format!("{name}{}", number % 40), format!("{name}{number}"));
        // Names that differ in case only, names of head columns, and names that no column can have.
        let fields = [("time", 8), ("Time", 8), ("TIME_2", 8), (name, 8), ("", 8), ("host", 8)];
        let offset = i64::try_from(index * 1000).unwrap();
        write(&MadeEvent { provider: &provider, event: &event, fields: &fields, payload: &[7; 24], offset });
    })
    .unwrap();
    fs::write(&trace, bytes).unwrap();
    for layout in [Layout::Events, Layout::ByType] {
        let root = folder.path().join(format!("out{layout:?}"));
        let conversion =
            write_dataset(&input(&trace), &TableOptions { layout, ..TableOptions::default() }, &root)
                .unwrap();
        assert!(conversion.events >= 1100);
        let files = parquet_files(&root);
        let mut total = 0;
        for (path, files) in &files {
            assert!(path.split('/').all(|part| !part.is_empty() && part != ".." && part != "."), "{path}");
            for file in files {
                let batches = read_parquet(file);
                if !path.starts_with("losses") {
                    total += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
                }
                for batch in &batches {
                    let schema = batch.schema();
                    let mut names: Vec<String> =
                        schema.fields().iter().map(|f| f.name().to_lowercase()).collect();
                    names.sort();
                    names.dedup();
                    assert_eq!(names.len(), schema.fields().len(), "names differ without case");
                    assert!(names.iter().all(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_')));
                }
            }
        }
        assert_eq!(total as u64, conversion.written - 2, "all rows except those of losses");
        let entries: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(entries.len() <= 3, "something was written outside of the dataset: {entries:?}");
        if layout == Layout::ByType {
            let tables = fs::read_dir(&root).unwrap().count();
            assert!(tables <= 1028, "{tables} tables");
            assert!(
                files.keys().any(|folder| folder.starts_with("other/")),
                "types beyond the limit are in other"
            );
        }
    }
}

#[test]
fn versions_of_an_event_type_have_tables_of_their_own_in_all_conversions() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("out");
    let numbers: &[(&str, u8)] = &[("n", 8)];
    let wide_numbers: &[(&str, u8)] = &[("n", 10)];
    let with_text: &[(&str, u8)] = &[("n", 8), ("text", 2)];
    let versions = [numbers, wide_numbers, with_text, numbers];
    for (index, fields) in versions.into_iter().enumerate() {
        let trace = folder.path().join(format!("{index}.etl"));
        let bytes = write_trace(Vec::new(), 3, |_, write| {
            let payload = [7, 0, 0, 0, 0, 0, 0, 0, 0];
            let size = if fields == numbers { 4 } else { 8 };
            let payload = &payload[..size];
            write(&MadeEvent { provider: "P", event: "E", fields, payload, offset: 1 });
        })
        .unwrap();
        fs::write(&trace, bytes).unwrap();
        let options = TableOptions { layout: Layout::ByType, ..TableOptions::default() };
        write_dataset(&input(&trace), &options, &root).unwrap();
    }
    let mut tables: BTreeMap<String, Vec<(DataType, usize)>> = BTreeMap::new();
    for (path, files) in parquet_files(&root) {
        let table = path.split('/').next().unwrap().to_owned();
        for batch in files.iter().flat_map(|file| read_parquet(file)) {
            let schema = batch.schema();
            let Ok(field) = schema.field_with_name("n") else { continue };
            let column = (field.data_type().clone(), schema.fields().len());
            tables.entry(table.clone()).or_default().extend(vec![column; batch.num_rows()]);
        }
    }
    let found: Vec<_> = tables.iter().map(|(name, rows)| (name.as_str(), rows.len(), &rows[0])).collect();
    let columns = found[0].2.1;
    assert_eq!(
        found,
        [
            ("p_e", 6, &(DataType::UInt32, columns)),
            ("p_e_2", 3, &(DataType::UInt64, columns)),
            ("p_e_3", 3, &(DataType::UInt32, columns + 1)),
        ]
    );
    assert!(tables.values().all(|rows| rows.iter().all(|row| *row == rows[0])), "{tables:?}");
}

#[test]
fn times_out_of_order_begin_row_groups_that_are_sorted() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("jumps.etl");
    let bytes = write_trace(Vec::new(), 2000, |index, write| {
        // Times jump by days, also far beyond the range of nanoseconds.
        let day = 864_000_000_000_i64;
        let offset = i64::try_from(index % 7).unwrap() * day * 40_000 + i64::try_from(index).unwrap();
        let fields = [("n", 8)];
        write(&MadeEvent { provider: "P", event: "E", fields: &fields, payload: &[1, 0, 0, 0], offset });
    })
    .unwrap();
    fs::write(&trace, bytes).unwrap();
    let root = folder.path().join("out");
    let conversion = write_dataset(&input(&trace), &TableOptions::default(), &root).unwrap();
    assert!(conversion.events >= 2000);
    for file in
        parquet_files(&root).iter().filter(|(path, _)| path.starts_with("events")).flat_map(|(_, f)| f)
    {
        let times: Vec<i64> =
            rows(&read_parquet(file)).iter().map(|row| row["time"].as_i64().unwrap()).collect();
        assert!(times.is_sorted(), "a day has one file with one row group here");
    }
}

#[test]
fn large_trace_is_read_in_parallel_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("large.etl");
    let count = 60_000;
    fs::write(&trace, write_requests(Vec::new(), count, 3).unwrap()).unwrap();
    let columns = ColumnSet::new(&[EventColumn::Time, EventColumn::Event, EventColumn::Payload]);
    let read = |threads| {
        let options = ScanOptions { columns, threads: NonZero::new(threads), ..ScanOptions::default() };
        let (batches, _) = scan(&input(&trace), &options);
        rows(&batches)
    };
    let serial = read(1);
    assert!(serial.len() >= usize::try_from(count).unwrap());
    assert_eq!(serial, read(3));
}
