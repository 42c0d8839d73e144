//! Compares totals of tables with traces whose times are known.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use traceweir_format::kernel::hook;

use crate::kernel_trace::{KernelWriter, Switch, Transfer, WAITING};
use crate::probe::{build_view, endless_limits};
use crate::query::{EventLists, EventQuery, TableQuery, TimeSpan, fill_table, list_events};
use crate::test_trace::ask;
use crate::trace::TraceView;

/// Thread 71 runs, waits while 72 runs and the processor is idle, is woken at 7000, and runs again. A
/// tick is 100 ns, and the trace ends at 9400.
const SWITCHES: [(i64, u32, u32); 5] =
    [(1000, 0, 71), (3000, 71, 72), (6000, 72, 0), (8000, 0, 71), (9000, 71, 0)];
const WHOLE: TimeSpan = TimeSpan { from: 0, to: i64::MAX };

fn write_trace(path: &Path) -> TraceView {
    let mut writer = KernelWriter::create(path, 1).unwrap();
    writer.put_process(70, "app.exe", "").unwrap();
    for tid in [71, 72] {
        writer.put_thread(70, tid).unwrap();
    }
    writer.put_file(0x1000, "\\Device\\a.db").unwrap();
    writer.put_file(0x2000, "\\Device\\b.db").unwrap();
    for (time, old_tid, new_tid) in SWITCHES {
        let old_state = if old_tid == 0 { 2 } else { WAITING };
        let switch = Switch { new_tid, old_tid, old_state, wait_reason: 6 };
        writer.put_switch(0, time, switch).unwrap();
        if time == 6000 {
            writer.put_ready(0, 7000, 71).unwrap();
        }
    }
    for (time, file, bytes, is_write) in [
        (9100, 0x1000, 100, false),
        (9200, 0x1000, 50, true),
        (9300, 0x2000, 1000, true),
        (9400, 0x1000, 7, false),
    ] {
        let transfer = Transfer { tid: 71, file, bytes, is_write, duration: 10 };
        writer.put_transfer(0, time, transfer).unwrap();
    }
    writer.finish(20_000, 0).unwrap();
    let (view, _) = build_view(vec![File::open(path).unwrap()]).unwrap();
    assert!(view.index().kinds.kinds.iter().any(|kind| kind.hook == Some(hook::DISK_WRITE)));
    view
}

/// Returns the cells of the row whose first cell contains a text, under the names of the columns.
fn find_row(view: &TraceView, name: &str, span: TimeSpan, text: &str) -> Value {
    let query = TableQuery { name: name.to_owned(), span, search: text.to_owned(), sort: None };
    let table = ask(|json| assert!(fill_table(view, &query, &endless_limits(), json)));
    assert_eq!(table["total"], 1, "{table}");
    let names = table["columns"].as_array().unwrap().iter().map(|column| column[0].as_str().unwrap());
    let cells = table["rows"][0].as_array().unwrap().iter();
    names.map(str::to_owned).zip(cells.cloned()).collect::<serde_json::Map<_, _>>().into()
}

fn check(row: &Value, expected: &[(&str, u64)]) {
    for (column, value) in expected {
        assert_eq!(row[column], json!(value), "{column} of {row}");
    }
}

#[test]
fn times_of_threads_are_clipped_at_the_edges_of_a_span() {
    let folder = tempfile::tempdir().unwrap();
    let view = write_trace(&folder.path().join("kernel.etl"));
    let whole =
        [("CPU time", 300_000), ("Switches", 2), ("Waits", 1), ("Waiting", 440_000), ("Ready", 100_000)];
    check(&find_row(&view, "threads", WHOLE, "thread 71"), &whole);
    check(&find_row(&view, "threads", WHOLE, "thread 72"), &[("CPU time", 300_000), ("Waits", 0)]);
    let middle = TimeSpan { from: 200_000, to: 400_000 };
    let part = [("CPU time", 100_000), ("Switches", 0), ("Waits", 1), ("Waiting", 100_000)];
    check(&find_row(&view, "threads", middle, "thread 71"), &part);
    check(&find_row(&view, "threads", middle, "thread 72"), &[("CPU time", 100_000), ("Switches", 1)]);
}

#[test]
fn process_has_the_sum_of_its_threads() {
    let folder = tempfile::tempdir().unwrap();
    let view = write_trace(&folder.path().join("kernel.etl"));
    let row = find_row(&view, "processes", WHOLE, "app.exe");
    check(&row, &[("Active threads", 2), ("CPU time", 600_000), ("Switches", 3), ("Waiting", 780_000)]);
}

#[test]
fn file_has_the_sum_of_its_transfers_in_the_span() {
    let folder = tempfile::tempdir().unwrap();
    let view = write_trace(&folder.path().join("kernel.etl"));
    let row = find_row(&view, "files", WHOLE, "a.db");
    check(&row, &[("Read", 107), ("Reads", 2), ("Written", 50), ("Writes", 1), ("Disk time", 3000)]);
    let late = TimeSpan { from: 930_000, to: i64::MAX };
    check(&find_row(&view, "files", late, "a.db"), &[("Read", 7), ("Reads", 1), ("Written", 0)]);
    check(&find_row(&view, "files", late, "b.db"), &[("Written", 1000), ("Writes", 1), ("Read", 0)]);
}

#[test]
fn index_can_grow_while_rows_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let view = write_trace(&folder.path().join("trace.etl"));
    let lists = EventLists::default();
    let list = |filter: &str| {
        let query = EventQuery::parse(filter).unwrap();
        ask(|json| list_events(&view, &lists, query.clone(), 0, 10, json))
    };
    std::thread::scope(|scope| {
        let facts = view.facts();
        // The texts of the rows need the facts.
        let reader = scope.spawn(|| list(""));
        std::thread::sleep(Duration::from_millis(100));
        assert!(view.index.try_write().is_ok(), "a question holds the index");
        drop(facts);
        assert!(!reader.join().unwrap()["rows"].as_array().unwrap().is_empty());
    });
}
