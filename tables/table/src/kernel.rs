//! Tables of kernel traces: what processes, threads, processors, disks and the network did.
//!
//! ```text
//!   pass 1  lifetimes      processes, threads, images: start to end
//!   pass 2  facts          names of processes, threads and files, for pass 3
//!   pass 3  report events  switches, samples, disk_io, network, with their stacks
//! ```
//!
//! A row of `processes`, `threads` or `images` is written when the object ends, or at the end of the
//! trace. A start is null if the object already existed, an end if it still existed.

mod activity;
mod columns;
mod lifetimes;

use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::traces::TraceSet;
use traceweir_convert::{Conversion, ConvertInput};
use traceweir_format::time::FileTime;

use self::columns::{ColumnPositions, KernelColumn, KernelColumnSet};
use crate::host::find_hosts;
use crate::partitions::{PartitionKey, PartitionRows, Partitions};
use crate::rows::{Cell, RowColumns};
use crate::scan::{DEFAULT_BATCH_ROWS, MAX_BATCH_BYTES};

/// A table of a kernel trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // `docs/tables.md` describes the tables.
pub enum KernelTable {
    Processes,
    Threads,
    Images,
    Switches,
    Samples,
    DiskIo,
    Network,
}

impl KernelTable {
    /// All tables.
    pub const ALL: [Self; 7] = [
        Self::Processes,
        Self::Threads,
        Self::Images,
        Self::Switches,
        Self::Samples,
        Self::DiskIo,
        Self::Network,
    ];

    /// Returns the name of the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Threads => "threads",
            Self::Images => "images",
            Self::Switches => "switches",
            Self::Samples => "samples",
            Self::DiskIo => "disk_io",
            Self::Network => "network",
        }
    }

    /// Returns the table with a name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Returns the schema of the table in a dataset.
    #[must_use]
    pub fn schema(self) -> SchemaRef {
        schema_of(self.columns())
    }
}

fn schema_of(columns: &[KernelColumn]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|column| column.field()).collect::<Vec<_>>()))
}

/// A row of a kernel table.
struct KernelRow<'a> {
    table: KernelTable,
    /// Index of the trace.
    file: usize,
    time: FileTime,
    /// The values of columns of the table; other columns are null.
    cells: &'a [(KernelColumn, Cell<'a>)],
}

impl<'a> KernelRow<'a> {
    /// Returns the values by the positions of their columns.
    fn place<'r>(&'r self, positions: &'r ColumnPositions) -> impl Iterator<Item = (usize, &'r Cell<'a>)> {
        debug_assert!(
            self.cells.iter().all(|(column, _)| {
                *column == KernelColumn::Host || self.table.columns().contains(column)
            })
        );
        self.cells.iter().filter_map(|(column, cell)| Some((positions.get(*column)?, cell)))
    }
}

/// Receives the rows of kernel tables.
type RowSink<'s> = dyn FnMut(&KernelRow<'_>) -> Result<()> + 's;

/// Which tables to read, and how.
#[derive(Clone, Copy, Debug)]
struct KernelOptions<'o> {
    tables: &'o [KernelTable],
    /// The columns that the rows need.
    columns: KernelColumnSet,
}

/// Reads kernel tables. Rows of `switches`, `samples`, `disk_io` and `network` come in the order of
/// time, the others in the order of their ends. Of the criteria of the input, only the times apply.
fn read_tables(
    traces: &mut TraceSet,
    input: &ConvertInput,
    options: KernelOptions<'_>,
    sink: &mut RowSink<'_>,
) -> Result<Conversion> {
    let start = traces.start();
    let (from, to) = (input.criteria.from, input.criteria.to);
    let from = from.map_or(FileTime(i64::MIN), |moment| moment.to_wall_time(start));
    let to = to.map_or(FileTime(i64::MAX), |moment| moment.to_wall_time(start));
    let mut rows = 0_u64;
    let mut limited = |row: &KernelRow<'_>| {
        if row.time < from || row.time > to {
            return Ok(());
        }
        rows = rows.saturating_add(1);
        sink(row)
    };
    let mut conversion = Conversion::default();
    if options.tables.iter().any(|table| *table <= KernelTable::Images) {
        conversion.reading = lifetimes::read(traces, options.tables, &mut limited)?;
    }
    if options.tables.iter().any(|table| *table > KernelTable::Images) {
        conversion.reading = activity::read(start, input, options, &mut limited)?;
    }
    (conversion.events, conversion.written) = (rows, rows);
    let mut used = input.criteria.clone();
    (used.from, used.to) = (None, None);
    if used != traceweir_analysis::filter::FilterCriteria::default() {
        conversion.notes.push("kernel tables use only the times of the criteria".to_owned());
    }
    Ok(conversion)
}

/// Writes all kernel tables as partitions of a dataset.
pub(crate) fn write_tables(
    traces: &mut TraceSet,
    input: &ConvertInput,
    has_functions: bool,
    hosts: &[String],
    partitions: &mut Partitions,
) -> Result<Conversion> {
    let host_numbers: Vec<u32> = hosts.iter().map(|host| partitions.hosts.find_or_add(host)).collect();
    let provider = partitions.providers.find_or_add("Windows Kernel");
    let mut columns = KernelColumnSet::new(KernelColumn::ALL);
    if !has_functions {
        columns = columns.without(KernelColumn::Functions);
    }
    let positions = KernelTable::ALL.map(|table| ColumnPositions::new(table.columns()));
    let kernel_options = KernelOptions { tables: &KernelTable::ALL, columns };
    read_tables(traces, input, kernel_options, &mut |row| {
        let host = host_numbers.get(row.file).copied().unwrap_or(0);
        let key = PartitionKey { table: row.table as u32, day: partitions.day_of(row.time), host, provider };
        let begin = || {
            let rows = PartitionRows::Rows(Box::new(RowColumns::new(row.table.schema())));
            Ok((row.table.name().to_owned(), rows))
        };
        let positions = positions.get(row.table as usize).context("the table has columns")?;
        partitions.push(key, begin, |rows| rows.push_row(row.place(positions)))
    })
}

/// Returns the columns of a table for a reader of traces: those of the table, and `host`.
fn scan_columns(table: KernelTable) -> Vec<KernelColumn> {
    [table.columns(), &[KernelColumn::Host]].concat()
}

/// Returns the schema of all columns that [`scan_kernel_table`] can read: those of the table, and
/// `host`.
#[must_use]
pub fn scan_schema(table: KernelTable) -> SchemaRef {
    schema_of(&scan_columns(table))
}

/// Reads columns of one kernel table of traces, and passes them to `sink` in batches. The columns are
/// indices in [`scan_schema`], and the batches have them in this order. Other columns are not built.
pub fn scan_kernel_table(
    input: &ConvertInput,
    table: KernelTable,
    host: Option<&str>,
    columns: &[usize],
    sink: &mut dyn FnMut(RecordBatch) -> Result<ReadFlow>,
) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let hosts = find_hosts(&mut traces, host)?;
    let all = scan_columns(table);
    let columns: Vec<KernelColumn> = columns.iter().filter_map(|index| all.get(*index).copied()).collect();
    let positions = ColumnPositions::new(&columns);
    let mut rows = RowColumns::new(schema_of(&columns));
    let mut flow = ReadFlow::Continue;
    let options = KernelOptions { tables: &[table], columns: KernelColumnSet::new(&columns) };
    let conversion = read_tables(&mut traces, input, options, &mut |row| {
        if flow == ReadFlow::Stop {
            return Ok(());
        }
        let host = hosts.get(row.file).map_or(Cell::Null, |host| Cell::Text(host));
        let host = positions.get(KernelColumn::Host).map(|position| (position, &host));
        rows.push_at(row.place(&positions).chain(host));
        if rows.rows() >= DEFAULT_BATCH_ROWS || rows.byte_count() > MAX_BATCH_BYTES {
            flow = sink(rows.finish()?)?;
        }
        Ok(())
    })?;
    if rows.rows() > 0 && flow == ReadFlow::Continue {
        sink(rows.finish()?)?;
    }
    Ok(conversion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_a_column_once_and_begins_with_the_time() {
        for table in KernelTable::ALL {
            let columns = scan_columns(table);
            let positions = ColumnPositions::new(&columns);
            assert_eq!(columns.first(), Some(&KernelColumn::Time));
            for (position, column) in columns.iter().enumerate() {
                assert_eq!(positions.get(*column), Some(position), "{}: {column:?}", table.name());
            }
        }
        assert!(KernelColumn::ALL.len() <= 64, "a set has one bit for each column");
    }
}
