//! Reads the tables of event types as streams of Arrow batches.

use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::traces::TraceSet;
use traceweir_convert::{Conversion, ConvertInput};

use crate::dataset::{TypeTable, TypeTables};
use crate::events::{ColumnSet, EventColumn};
use crate::host::find_hosts;
use crate::scan::{DEFAULT_BATCH_ROWS, EventSelection, MAX_BATCH_BYTES};
use crate::typed::{HEAD_COLUMNS, TypedColumns};

/// Reads traces once, and returns the tables of the types of their events with the number of events
/// of each.
pub fn list_type_tables(input: &ConvertInput) -> Result<Vec<(TypeTable, u64)>> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let filter = EventFilter::new(&input.criteria, traces.start());
    let mut selection = EventSelection::new(&filter);
    let mut tables = TypeTables::with_head(type_head());
    let mut counts: Vec<u64> = Vec::new();
    traces.read(
        |record, time| filter.accepts_header(record, time),
        |event| {
            if !selection.accepts(event) {
                return Ok(ReadFlow::Continue);
            }
            let table = tables.find_or_add(event)? as usize;
            if counts.len() <= table {
                counts.resize(table.saturating_add(1), 0);
            }
            if let Some(count) = counts.get_mut(table) {
                *count = count.saturating_add(1);
            }
            Ok(selection.count(event))
        },
    )?;
    let all = tables.tables().iter().cloned().zip(counts);
    Ok(all.filter(|(_, count)| *count > 0).collect())
}

/// Returns the columns of a table of one type of event for a reader of traces: those of the table
/// in a dataset, and `host` after `time`.
#[must_use]
pub fn type_head() -> ColumnSet {
    let mut columns = HEAD_COLUMNS.to_vec();
    columns.push(EventColumn::Host);
    ColumnSet::new(&columns)
}

/// Reads columns of the events of one type, and passes them to `sink` in batches. The table is one of
/// those that [`list_type_tables`] returns for the same traces; the criteria may be others. The
/// columns are indices in [`type_schema`], and the batches have them in this order. Other columns are
/// not built.
pub fn scan_type_table(
    input: &ConvertInput,
    wanted: &TypeTable,
    host: Option<&str>,
    columns: &[usize],
    sink: &mut dyn FnMut(RecordBatch) -> Result<ReadFlow>,
) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let hosts = find_hosts(&mut traces, host)?;
    let mut sorted = columns.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let order: Vec<usize> = columns.iter().filter_map(|column| sorted.binary_search(column).ok()).collect();
    let mut sink = |batch: RecordBatch| sink(batch.project(&order)?);
    let filter = EventFilter::new(&input.criteria, traces.start());
    let mut selection = EventSelection::new(&filter);
    let mut tables = TypeTables::with_head(type_head());
    let mut found: Option<(u32, TypedColumns)> = None;
    let (mut rows, mut flow) = (0_u64, ReadFlow::Continue);
    let reading = traces.read(
        |record, time| filter.accepts_header(record, time),
        |event| {
            if !selection.accepts(event) {
                return Ok(ReadFlow::Continue);
            }
            let number = tables.find_or_add(event)?;
            if found.is_none() {
                let table = tables.get(number).context("the table exists")?;
                if let Some(layout) = table.layout.as_ref().filter(|_| table.identity == wanted.identity) {
                    found = Some((number, TypedColumns::with_columns(layout, table.head, columns)));
                }
            }
            if let Some((table, columns)) = &mut found
                && *table == number
            {
                columns.push_event(event, hosts.get(event.file).map_or("", String::as_str));
                rows = rows.saturating_add(1);
                if columns.rows() >= DEFAULT_BATCH_ROWS || columns.byte_count() >= MAX_BATCH_BYTES {
                    flow = sink(columns.finish()?)?;
                }
            }
            let counted = selection.count(event);
            Ok(if flow == ReadFlow::Stop { flow } else { counted })
        },
    )?;
    if let Some((_, mut columns)) = found
        && columns.rows() > 0
        && flow == ReadFlow::Continue
    {
        sink(columns.finish()?)?;
    }
    Ok(Conversion { events: rows, written: rows, written_noun: "event", reading, ..Conversion::default() })
}

/// Returns the schema of the batches of [`scan_type_table`] for a table of [`list_type_tables`].
#[must_use]
pub fn type_schema(table: &TypeTable) -> Option<SchemaRef> {
    Some(Arc::clone(table.layout.as_ref()?.schema()))
}
