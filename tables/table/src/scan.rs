//! Reads the table `events` as a stream of Arrow batches.
//!
//! ```text
//!   trace ─▶ merge ─┬─▶ worker: filter, decode, EventColumns ─┬─▶ in time order ─▶ sink
//!                   └─▶ worker: filter, decode, EventColumns ─┘
//! ```
//!
//! Times and providers are compared before anything is decoded or copied into a column. With
//! several threads, each batch covers consecutive events, and `InOrder` delivers the batches in
//! the order of the events. With one thread, a batch has up to [`ScanOptions::batch_rows`] rows. One
//! thread decodes if no column needs the fields of events; others load the buffers then.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Error, Result};
use arrow_array::RecordBatch;
use traceweir_analysis::event::{DescribedEvent, ReadFlow};
use traceweir_analysis::filter::EventFilter;
pub(crate) use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::traces::parallel::EventWorker;
use traceweir_analysis::traces::{ReadSummary, TraceSet};
use traceweir_convert::{Conversion, ConvertInput};

use crate::events::{ColumnSet, EventColumn, EventColumns};
use crate::host::find_hosts;

/// The rows of a batch, unless a reader asks for another number.
pub const DEFAULT_BATCH_ROWS: usize = 8192;
/// A batch with this many bytes ends before it has all its rows.
pub(crate) const MAX_BATCH_BYTES: usize = 8 << 20;

/// Which columns of which events to read, and how.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// The columns to read.
    pub columns: ColumnSet,
    /// The rows of a batch. With several threads, batches may have fewer.
    pub batch_rows: usize,
    /// Number of threads that decode, if it is not chosen by the size of the traces.
    pub threads: Option<NonZero<usize>>,
    /// The host of traces that do not name it.
    pub host: Option<String>,
}

impl Default for ScanOptions {
    fn default() -> Self {
        let columns = ColumnSet::ALL.without(EventColumn::Functions);
        Self { columns, batch_rows: DEFAULT_BATCH_ROWS, threads: None, host: None }
    }
}

/// Reads the events of traces in time order, and passes them to `sink` in batches until it returns
/// [`ReadFlow::Stop`].
pub fn scan_events(
    input: &ConvertInput,
    options: &ScanOptions,
    sink: &mut (dyn FnMut(RecordBatch) -> Result<ReadFlow> + Send),
) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let has_symbols = options.columns.contains(EventColumn::Functions);
    if has_symbols {
        traces.collect_symbols(&input.symbols);
    }
    let hosts = match options.columns.contains(EventColumn::Host) {
        true => find_hosts(&mut traces, options.host.as_deref())?,
        false => Vec::new(),
    };
    let filter = EventFilter::new(&input.criteria, traces.start());
    if filter.head == Some(0) {
        return Ok(Conversion { written_noun: "event", ..Conversion::default() });
    }
    // Passing an event to another thread takes as long as building columns without fields.
    let needs_fields = options.columns.needs_fields() || filter.text.is_some();
    let is_serial = has_symbols || filter.head.is_some() || !needs_fields;
    let threads = traces.choose_threads(options.threads);
    let threads = if is_serial { 1 } else { threads };
    let (rows, reading) = if threads > 1 {
        scan_in_parallel(&mut traces, &filter, options, &hosts, threads, sink)?
    } else {
        scan_serially(&mut traces, &filter, options, &hosts, sink)?
    };
    let written_noun = "event";
    Ok(Conversion { events: rows, written: rows, written_noun, reading, ..Conversion::default() })
}

fn scan_serially(
    traces: &mut TraceSet,
    filter: &EventFilter,
    options: &ScanOptions,
    hosts: &[String],
    sink: &mut (dyn FnMut(RecordBatch) -> Result<ReadFlow> + Send),
) -> Result<(u64, ReadSummary)> {
    let mut selection = EventSelection::new(filter);
    let mut columns = EventColumns::new(options.columns);
    let mut rows = 0_u64;
    let mut last_flow = ReadFlow::Continue;
    let reading = traces.read(
        |record, time| filter.accepts_header(record, time),
        |event| {
            if !selection.accepts(event) {
                return Ok(ReadFlow::Continue);
            }
            columns.push_event(event, hosts.get(event.file).map_or("", String::as_str));
            rows = rows.saturating_add(1);
            if columns.rows() >= options.batch_rows || columns.byte_count() >= MAX_BATCH_BYTES {
                last_flow = sink(columns.finish()?)?;
            }
            let flow = selection.count(event);
            Ok(if last_flow == ReadFlow::Stop { last_flow } else { flow })
        },
    )?;
    if columns.rows() > 0 && last_flow == ReadFlow::Continue {
        sink(columns.finish()?)?;
    }
    Ok((rows, reading))
}

/// The sink wants no more batches.
#[derive(Debug)]
struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader stopped")
    }
}

impl std::error::Error for Stopped {}

/// Batches of consecutive events that wait for the batches before them: by the number of their
/// first event, with the number after their last event.
#[derive(Default)]
struct InOrder {
    waiting: Mutex<BTreeMap<u64, (u64, Result<RecordBatch>)>>,
}

impl InOrder {
    fn add(&self, first: u64, end: u64, batch: Result<RecordBatch>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(first, (end, batch));
    }

    /// Removes the batch that begins with event `next`, or at the end of all events with any event.
    fn take(&self, next: u64, is_end: bool) -> Option<(u64, Result<RecordBatch>)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = waiting.first_entry()?;
        (is_end || *entry.key() == next).then(|| entry.remove())
    }
}

/// Builds batches of the events that one thread gets.
struct BatchWorker<'a> {
    selection: EventSelection<'a>,
    columns: EventColumns,
    hosts: &'a [String],
    batch_rows: usize,
    in_order: &'a InOrder,
    /// The numbers of the first event of the batch, and of the event after its last.
    span: Option<(u64, u64)>,
}

/// The bytes of a batch that one byte of text stands for. The limit of the texts that wait, 32 MiB,
/// so becomes a limit of the batches.
const BATCH_BYTES_PER_TEXT_BYTE: usize = 4;

impl BatchWorker<'_> {
    /// Passes the batch on, and appends a text that stands for it: texts wait for their turn.
    fn end_columns(&mut self, out: &mut Vec<u8>) {
        if let Some((first, end)) = self.span.take() {
            let text_len = self.columns.byte_count() / BATCH_BYTES_PER_TEXT_BYTE;
            out.resize(out.len().saturating_add(text_len), 0);
            self.in_order.add(first, end, self.columns.finish());
        }
    }
}

impl EventWorker for BatchWorker<'_> {
    fn add_event(&mut self, event: &DescribedEvent<'_>, order: u64, out: &mut Vec<u8>) {
        let (first, _) = self.span.unwrap_or((order, order));
        self.span = Some((first, order.saturating_add(1)));
        if self.selection.accepts(event) {
            self.columns.push_event(event, self.hosts.get(event.file).map_or("", String::as_str));
            if self.columns.rows() >= self.batch_rows || self.columns.byte_count() >= MAX_BATCH_BYTES {
                self.end_columns(out);
            }
        }
    }

    fn end_batch(&mut self, out: &mut Vec<u8>) {
        self.end_columns(out);
    }
}

fn scan_in_parallel(
    traces: &mut TraceSet,
    filter: &EventFilter,
    options: &ScanOptions,
    hosts: &[String],
    threads: usize,
    sink: &mut (dyn FnMut(RecordBatch) -> Result<ReadFlow> + Send),
) -> Result<(u64, ReadSummary)> {
    let in_order = InOrder::default();
    let mut workers: Vec<BatchWorker<'_>> = (0..threads)
        .map(|_| BatchWorker {
            selection: EventSelection::new(filter),
            columns: EventColumns::new(options.columns),
            hosts,
            batch_rows: options.batch_rows,
            in_order: &in_order,
            span: None,
        })
        .collect();
    let (mut next, mut rows) = (0_u64, 0_u64);
    let mut deliver = |is_end: bool| -> Result<()> {
        while let Some((end, batch)) = in_order.take(next, is_end) {
            next = end;
            let batch = batch?;
            rows = rows.saturating_add(batch.num_rows() as u64);
            if batch.num_rows() > 0 && sink(batch)? == ReadFlow::Stop {
                return Err(Error::new(Stopped));
            }
        }
        Ok(())
    };
    let reading = traces.read_in_parallel(
        &mut workers,
        |record, time| filter.accepts_header(record, time),
        |_| deliver(false),
    );
    let reading = reading.and_then(|reading| {
        deliver(true)?;
        Ok(reading)
    });
    match reading {
        Ok(reading) => Ok((rows, reading)),
        Err(error) if error.is::<Stopped>() => Ok((rows, ReadSummary::default())),
        Err(error) => Err(error),
    }
}
