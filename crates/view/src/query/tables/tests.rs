//! Checks names and order of tables.

use super::*;
use crate::index::ThreadState;
use crate::index::series::Item;
use crate::test_trace::{TestTrace, view_of};

#[test]
fn page_offers_all_tables() {
    let page = crate::server::assets::PAGE;
    let (_, choice) = page.split_once("id=\"table-name\">").unwrap();
    let (choice, _) = choice.split_once("</select>").unwrap();
    let offered: Vec<&str> =
        choice.split("value=\"").skip(1).map(|option| option.split_once('"').unwrap().0).collect();
    // The page makes the table of functions from a flame graph.
    assert!(offered.iter().filter(|name| **name != "functions").eq(&TABLES), "{offered:?}");
    assert!(offered.contains(&"functions"));
}

/// More rows than a reply has.
const ROWS: u64 = 600;

/// Returns what a query of the whole time answers.
fn ask(table: &Table, sort: &str, search: &str) -> serde_json::Value {
    let span = TimeSpan { from: 0, to: i64::MAX };
    let query =
        TableQuery { name: String::new(), span, search: search.to_owned(), sort: TableSort::parse(sort) };
    let mut json = JsonWriter::default();
    push_table(table, &query, false, &mut json);
    serde_json::from_slice(&json.into_bytes()).unwrap()
}

/// Returns the cells of a column.
fn column(answer: &serde_json::Value, column: usize) -> Vec<serde_json::Value> {
    answer["rows"].as_array().unwrap().iter().map(|row| row[column].clone()).collect()
}

fn new_index() -> Index {
    Index::new(tempfile::tempfile().unwrap())
}

#[test]
fn column_by_which_a_table_is_sorted_is_parsed() {
    assert_eq!(TableSort::parse("3"), Some(TableSort { column: 2, is_descending: false }));
    assert_eq!(TableSort::parse("-1"), Some(TableSort { column: 0, is_descending: true }));
    for text in ["", "-", "0", "-0", "--1", "x", "1.5"] {
        assert_eq!(TableSort::parse(text), None, "{text}");
    }
}

#[test]
fn file_that_was_written_most_is_first_although_others_were_read_more() {
    let mut index = new_index();
    for number in 1..=ROWS {
        let name = format!("file-{number}");
        index.files.names.push(Some(name.into()));
        // The fewer bytes are written, the more are read.
        for (transfer, bytes) in
            [(Transfer::FileRead, (ROWS - number) * 1_000_000), (Transfer::FileWrite, number * 10)]
        {
            let values = [0, bytes, 2, number, transfer as u64, 0];
            index.transfers.push(number.cast_signed(), &values, &mut index.store);
        }
    }
    let limits = QueryLimits::new(std::time::Duration::from_secs(3600), Arc::default());
    let table = list_files(&index, TimeSpan { from: 0, to: i64::MAX }, false, &mut LoopGuard::new(&limits));
    let written = table.columns.iter().position(|(name, _)| *name == "Written").unwrap();
    let plain = ask(&table, "", "");
    assert_eq!(plain["total"], ROWS);
    assert_eq!(plain["rows"].as_array().unwrap().len(), MAX_ROWS);
    assert!(!column(&plain, written).contains(&(ROWS * 10).into()), "the reply must not have all rows");
    let sorted = column(&ask(&table, &format!("-{}", written + 1), ""), written);
    let expected = (0..MAX_ROWS as u64).map(|row| serde_json::Value::from((ROWS - row) * 10));
    assert!(expected.eq(sorted));
    let ascending = column(&ask(&table, &(written + 1).to_string(), ""), written);
    assert_eq!(ascending.len(), MAX_ROWS);
    assert_eq!(ascending[0], 10);
    // A column that the table does not have leaves the order as it is.
    assert_eq!(ask(&table, "99", ""), plain);
    let found = ask(&table, &format!("-{}", written + 1), "FILE-60");
    assert_eq!(found["total"], 2);
    assert_eq!(column(&found, written)[0], 6000);
}

#[test]
fn thread_that_only_waits_is_first_by_its_waits() {
    let mut index = new_index();
    for number in 0..ROWS {
        let tid = u32::try_from(number + 10).unwrap();
        index.threads.threads.push(crate::index::threads::Thread { tid, ..Default::default() });
        let (thread, end) = (number + 2, 1000 * (number + 1));
        if number == ROWS - 1 {
            let wait = [500, thread, 0, 0, 0];
            index.waits.push_span(end.cast_signed(), 500, &wait, &mut index.store);
            let start = end.cast_signed() - 500;
            let state = Item { start, duration: 500, value: ThreadState::Waiting as u64 };
            index.threads.threads.last_mut().unwrap().states.push(state, &mut index.store);
        } else {
            index.samples.push(end.cast_signed(), &[thread, 0, 1], &mut index.store);
        }
    }
    let limits = QueryLimits::new(std::time::Duration::from_secs(3600), Arc::default());
    let table = list_threads(&index, TimeSpan { from: 0, to: i64::MAX }, &mut LoopGuard::new(&limits));
    let waiting = table.columns.iter().position(|(name, _)| *name == "Waiting").unwrap();
    assert!(!column(&ask(&table, "", ""), waiting).contains(&500.into()));
    assert_eq!(column(&ask(&table, &format!("-{}", waiting + 1), ""), waiting)[0], 500);
}

fn ask_table(view: &TraceView, name: &str) -> serde_json::Value {
    let span = TimeSpan { from: 0, to: i64::MAX };
    let query = TableQuery { name: name.to_owned(), span, search: String::new(), sort: None };
    crate::test_trace::ask(|json| {
        fill_table(view, &query, &QueryLimits::unlimited(), json);
    })
}

#[test]
fn columns_without_events_are_null() {
    let mut trace = TestTrace::new(0);
    trace.add_process(1, 100, "a.exe");
    for time in 1..=5 {
        trace.add_sample(time * 10_000, 0, 11, 2);
    }
    let view = view_of(vec![trace]);
    for name in ["threads", "processes"] {
        let answer = ask_table(&view, name);
        let null = serde_json::Value::Null;
        let row = answer["rows"][0].as_array().unwrap();
        assert_eq!(row[2..], [&null, &null, &null, &null, &null, &10.into()].map(Clone::clone), "{name}");
        assert_eq!(answer["missing"], "not recorded: context switches (weir record --kernel sched)");
    }
    assert!(ask_table(&view, "events")["missing"].is_null());
}

#[test]
fn samples_that_are_not_recorded_are_null() {
    let mut trace = TestTrace::new(0);
    trace.add_switch(1_000, 0, (0, 11), 2);
    trace.add_switch(2_000, 0, (11, 0), 5);
    let answer = ask_table(&view_of(vec![trace]), "threads");
    let row = answer["rows"][0].as_array().unwrap();
    assert_eq!(row[2..5], [100_000, 1, 0].map(serde_json::Value::from));
    assert!(row[7].is_null());
    assert_eq!(answer["missing"], "not recorded: samples (weir record --kernel cpu)");
}
