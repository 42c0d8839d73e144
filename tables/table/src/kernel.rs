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
mod lifetimes;

use std::sync::Arc;

use anyhow::Result;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::traces::TraceSet;
use traceweir_convert::{Conversion, ConvertInput};
use traceweir_format::time::FileTime;

use crate::column::{list_type, name_type, time_type};
use crate::host::find_hosts;
use crate::partitions::{PartitionKey, PartitionRows, Partitions};
use crate::rows::{Cell, RowColumns};
use crate::scan::DEFAULT_BATCH_ROWS;

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

    /// Returns the columns of the table.
    #[must_use]
    pub fn schema(self) -> SchemaRef {
        let columns: &[(&str, DataType)] = match self {
            Self::Processes => &[
                ("time", time_type()),
                ("process_id", DataType::UInt32),
                ("parent_process_id", DataType::UInt32),
                ("process", name_type()),
                ("command_line", DataType::Utf8),
                ("user_sid", name_type()),
                ("session_id", DataType::UInt32),
                ("start", time_type()),
                ("end", time_type()),
                ("duration_ns", DataType::UInt64),
                ("exit_status", DataType::UInt32),
            ],
            Self::Threads => &[
                ("time", time_type()),
                ("thread_id", DataType::UInt32),
                ("process_id", DataType::UInt32),
                ("process", name_type()),
                ("name", name_type()),
                ("start_address", DataType::UInt64),
                ("start", time_type()),
                ("end", time_type()),
                ("duration_ns", DataType::UInt64),
            ],
            Self::Images => &[
                ("time", time_type()),
                ("process_id", DataType::UInt32),
                ("process", name_type()),
                ("file", name_type()),
                ("base", DataType::UInt64),
                ("size", DataType::UInt64),
                ("checksum", DataType::UInt32),
                ("time_date_stamp", DataType::UInt32),
                ("start", time_type()),
                ("end", time_type()),
                ("duration_ns", DataType::UInt64),
            ],
            Self::Switches => &[
                ("time", time_type()),
                ("cpu", DataType::UInt16),
                ("old_process_id", DataType::UInt32),
                ("old_process", name_type()),
                ("old_thread_id", DataType::UInt32),
                ("old_state", DataType::UInt8),
                ("old_wait_reason", DataType::UInt8),
                ("ran_ns", DataType::UInt64),
                ("new_process_id", DataType::UInt32),
                ("new_process", name_type()),
                ("new_thread_id", DataType::UInt32),
                ("absent_ns", DataType::UInt64),
                ("ready_ns", DataType::UInt64),
                ("stack_thread_id", DataType::UInt32),
                ("stack", list_type(DataType::UInt64)),
                ("functions", list_type(DataType::Utf8)),
            ],
            Self::Samples => &[
                ("time", time_type()),
                ("cpu", DataType::UInt16),
                ("process_id", DataType::UInt32),
                ("process", name_type()),
                ("thread_id", DataType::UInt32),
                ("thread_name", name_type()),
                ("address", DataType::UInt64),
                ("weight", DataType::UInt64),
                ("is_idle", DataType::Boolean),
                ("interval_ns", DataType::UInt64),
                ("stack", list_type(DataType::UInt64)),
                ("functions", list_type(DataType::Utf8)),
            ],
            Self::DiskIo => &[
                ("time", time_type()),
                ("disk", DataType::UInt32),
                ("operation", name_type()),
                ("bytes", DataType::UInt64),
                ("start", time_type()),
                ("duration_ns", DataType::UInt64),
                ("process_id", DataType::UInt32),
                ("process", name_type()),
                ("thread_id", DataType::UInt32),
                ("file", name_type()),
                ("stack", list_type(DataType::UInt64)),
                ("functions", list_type(DataType::Utf8)),
            ],
            Self::Network => &[
                ("time", time_type()),
                ("cpu", DataType::UInt16),
                ("protocol", name_type()),
                ("kind", name_type()),
                ("bytes", DataType::UInt64),
                ("process_id", DataType::UInt32),
                ("process", name_type()),
                ("local_address", name_type()),
                ("local_port", DataType::UInt16),
                ("remote_address", name_type()),
                ("remote_port", DataType::UInt16),
                ("stack", list_type(DataType::UInt64)),
                ("functions", list_type(DataType::Utf8)),
            ],
        };
        let field = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), true);
        Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
    }
}

/// A row of a kernel table.
pub(crate) struct KernelRow<'a> {
    pub(crate) table: KernelTable,
    /// Index of the trace.
    pub(crate) file: usize,
    pub(crate) time: FileTime,
    /// The columns of the table.
    pub(crate) cells: &'a [Cell<'a>],
}

/// Receives the rows of kernel tables.
pub(crate) type RowSink<'s> = dyn FnMut(&KernelRow<'_>) -> Result<()> + 's;

/// Which tables to read, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelOptions<'o> {
    pub(crate) tables: &'o [KernelTable],
    /// Whether functions are named.
    pub(crate) functions: bool,
}

/// Reads kernel tables. Rows of `switches`, `samples`, `disk_io` and `network` come in the order of
/// time, the others in the order of their ends. Of the criteria of the input, only the times apply.
pub(crate) fn read_tables(
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
    let kernel_options = KernelOptions { tables: &KernelTable::ALL, functions: has_functions };
    read_tables(traces, input, kernel_options, &mut |row| {
        let host = host_numbers.get(row.file).copied().unwrap_or(0);
        let key = PartitionKey { table: row.table as u32, day: partitions.day_of(row.time), host, provider };
        let begin = || {
            let rows = PartitionRows::Rows(Box::new(RowColumns::new(row.table.schema())));
            Ok((row.table.name().to_owned(), rows))
        };
        partitions.push(key, begin, |rows| rows.push_row(row.cells))
    })
}

/// Returns the columns of a kernel table for a reader of traces: `host`, and the columns of the table.
#[must_use]
pub fn scan_schema(table: KernelTable) -> SchemaRef {
    let host = Arc::new(Field::new("host", name_type(), true));
    let fields = table.schema().fields().iter().cloned().chain([host]).collect::<Vec<_>>();
    Arc::new(Schema::new(fields))
}

/// Reads one kernel table of traces, and passes it to `sink` in batches with the columns of
/// [`scan_schema`].
pub fn scan_kernel_table(
    input: &ConvertInput,
    table: KernelTable,
    host: Option<&str>,
    functions: bool,
    sink: &mut dyn FnMut(RecordBatch) -> Result<ReadFlow>,
) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let hosts = find_hosts(&mut traces, host)?;
    let mut rows = RowColumns::new(scan_schema(table));
    let mut flow = ReadFlow::Continue;
    let options = KernelOptions { tables: &[table], functions };
    let conversion = read_tables(&mut traces, input, options, &mut |row| {
        if flow == ReadFlow::Stop {
            return Ok(());
        }
        let host = hosts.get(row.file).map_or(Cell::Null, |host| Cell::Text(host));
        rows.push(&[row.cells, &[host]].concat());
        if rows.rows() >= DEFAULT_BATCH_ROWS || rows.byte_count() > 8 << 20 {
            flow = sink(rows.finish()?)?;
        }
        Ok(())
    })?;
    if rows.rows() > 0 && flow == ReadFlow::Continue {
        sink(rows.finish()?)?;
    }
    Ok(conversion)
}
