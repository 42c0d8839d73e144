//! `Trace.to_arrow`: the events as a stream of Arrow batches.
//!
//! ```text
//!   thread: scan_events ─▶ channel (bounded) ─▶ BatchReader ─▶ FFI_ArrowArrayStream ─▶ PyCapsule
//! ```
//!
//! The consumer calls the stream without Python objects, so pyarrow, polars and DuckDB read it
//! without the GIL. The data of the batches is not copied.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::{Result, anyhow};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use traceweir_analysis::event::ReadFlow;
use traceweir_convert::ConvertInput;
use traceweir_table::{ColumnSet, EventColumn, ScanOptions, scan_events};

use crate::error::{TraceError, to_exception};
use crate::fork::{FORKED, OwnerProcess};
use crate::guard::{guard, panic_text};
use crate::reader::{Findings, ReadOptions};

/// Batches that wait for the consumer.
const QUEUED_BATCHES: usize = 2;
/// The most rows of a batch.
const MAX_BATCH_ROWS: usize = 1 << 20;

/// The events of a trace as an Arrow stream, for every library with the Arrow PyCapsule interface:
///
///     table = pyarrow.table(trace.to_arrow())
///     frame = polars.DataFrame(trace.to_arrow())
///     counts = duckdb.sql("select event, count(*) from stream group by all")
///
/// Every use of the stream reads the traces again.
#[pyclass(frozen, module = "traceweir")]
pub(crate) struct ArrowStream {
    options: ReadOptions,
    columns: ColumnSet,
    batch_rows: usize,
    findings: Arc<Findings>,
}

impl ArrowStream {
    /// Creates the stream of a layout.
    pub(crate) fn new(
        options: ReadOptions,
        layout: &str,
        columns: Option<Vec<String>>,
        batch_rows: Option<usize>,
        findings: Arc<Findings>,
    ) -> PyResult<Self> {
        if layout != "events" {
            return Err(PyValueError::new_err(format!("{layout:?} is not a layout; use \"events\"")));
        }
        if options.style.numeric {
            return Err(PyValueError::new_err(
                "numeric=True does not apply to Arrow; open the trace without it",
            ));
        }
        let columns = match columns {
            Some(names) => find_columns(&names, options.symbols.is_some())?,
            None if options.symbols.is_some() => ColumnSet::ALL,
            None => ColumnSet::ALL.without(EventColumn::Functions),
        };
        let batch_rows = batch_rows.unwrap_or(traceweir_table::scan::DEFAULT_BATCH_ROWS);
        if !(1..=MAX_BATCH_ROWS).contains(&batch_rows) {
            return Err(PyValueError::new_err(format!("batch_rows is a number from 1 to {MAX_BATCH_ROWS}")));
        }
        Ok(Self { options, columns, batch_rows, findings })
    }

    fn start(&self) -> Result<BatchReader> {
        let input = ConvertInput {
            files: self.options.files.clone(),
            schemas: self.options.schemas.clone(),
            symbols: self.options.symbols.clone().unwrap_or_default(),
            criteria: self.options.criteria.clone(),
            observer: self.findings.clone(),
        };
        let (columns, batch_rows) = (self.columns, self.batch_rows);
        let options = ScanOptions { columns, batch_rows, ..ScanOptions::default() };
        let findings = Arc::clone(&self.findings);
        let (sender, batches) = sync_channel(QUEUED_BATCHES);
        let run = move || {
            let mut sink = |batch: RecordBatch| match sender.send(Ok(batch)) {
                Ok(()) => Ok(ReadFlow::Continue),
                // The consumer has released the stream.
                Err(_) => Ok(ReadFlow::Stop),
            };
            let scanned = catch_unwind(AssertUnwindSafe(|| scan_events(&input, &options, &mut sink)));
            let scanned =
                scanned.unwrap_or_else(|panic| Err(anyhow!("internal error: {}", panic_text(&*panic))));
            match scanned {
                Ok(conversion) => findings.add_summary(&conversion.reading),
                // No consumer reads the error of a released stream.
                Err(error) => drop(sender.send(Err(error))),
            }
        };
        std::thread::Builder::new().name("traceweir".to_owned()).spawn(run)?;
        let (schema, process) = (self.columns.schema(), OwnerProcess::current());
        Ok(BatchReader { schema, batches: Some(batches), process })
    }
}

fn find_columns(names: &[String], has_symbols: bool) -> PyResult<ColumnSet> {
    let mut columns = Vec::new();
    for name in names {
        let Some(column) = EventColumn::find(name) else {
            let known: Vec<&str> = EventColumn::ALL.iter().map(|column| column.name()).collect();
            let known = known.join(", ");
            return Err(PyValueError::new_err(format!("{name:?} is not a column; the columns are {known}")));
        };
        if column == EventColumn::Functions && !has_symbols {
            return Err(PyValueError::new_err("the column functions needs symbols=True in traceweir.open"));
        }
        columns.push(column);
    }
    if columns.is_empty() {
        return Err(PyValueError::new_err("columns is empty; leave it out to get all"));
    }
    Ok(ColumnSet::new(&columns))
}

#[pymethods]
impl ArrowStream {
    /// Starts to read the traces, and returns the batches as a capsule "arrow_array_stream". The
    /// schema is always that of the stream.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        guard(|| {
            let reader = self.start().map_err(|error| to_exception(&error))?;
            let stream = FFI_ArrowArrayStream::new(Box::new(reader));
            PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
        })
    }

    /// Returns the schema as a capsule "arrow_schema".
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        guard(|| {
            let schema = FFI_ArrowSchema::try_from(&*self.columns.schema());
            let schema = schema.map_err(|error| TraceError::new_err(error.to_string()))?;
            PyCapsule::new_with_value(py, schema, c"arrow_schema")
        })
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&'static str> {
        self.columns.iter().map(EventColumn::name).collect()
    }

    fn __repr__(&self) -> String {
        format!("<traceweir.ArrowStream of {} columns>", self.columns.iter().count())
    }
}

/// The batches that a thread reads.
struct BatchReader {
    schema: SchemaRef,
    /// `None` only while the reader is dropped.
    batches: Option<Receiver<Result<RecordBatch>>>,
    /// The process that the thread runs in.
    process: OwnerProcess,
}

impl Drop for BatchReader {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // The thread may have held a lock of the channel when the process was forked.
            std::mem::forget(self.batches.take());
        }
    }
}

impl Iterator for BatchReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.process.is_current() {
            return Some(Err(ArrowError::ExternalError(FORKED.into())));
        }
        let batch = self.batches.as_ref()?.recv().ok()?;
        Some(batch.map_err(|error| ArrowError::ExternalError(format!("{error:#}").into())))
    }
}

impl RecordBatchReader for BatchReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
