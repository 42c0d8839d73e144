//! `traceweir.open` and what it returns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDateTime, PyList};
use traceweir::consumer::TraceFile;
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::hosts::{NeededFacts, read_hosts};
use traceweir_analysis::observer::ReadObserver;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_analysis::text::escape;
use traceweir_analysis::traces::{ReadSummary, TraceSet, describe_losses};
use traceweir_decode::format::Style;
use traceweir_format::etl;
use traceweir_format::time::FileTime;

use crate::arguments;
use crate::arrow::ArrowStream;
use crate::error::{TraceWarning, folder_error, to_exception};
use crate::event::Event;
use crate::guard::guard;
use crate::queue::EventQueue;
use crate::reader::{Findings, ReadOptions, open_traces, start_reading};
use crate::source::{EventSource, NextEvent, lock};
use crate::time::{datetime, extract_moment};

/// Opens traces: .etl files, and .zip and .gz archives of them. Several are read as one stream, in
/// the order of time.
///
/// Arguments:
///     path: A path, or several. "-" is standard input.
///     providers: Names or GUIDs of providers; names may have the wildcards * and ?.
///     events: Names or ids of events; names may have wildcards.
///     level: The least severe level: a number, or a name such as "warning". Events of level 0 pass.
///     keyword: Keyword bits, one of which an event must have.
///     pids: Processes that wrote the event or that it concerns.
///     tids: Threads that wrote the event or that it concerns.
///     cpus: Processors.
///     start: The first time: a datetime with a time zone, nanoseconds since 1970 as int, a timedelta
///         since the start of the trace, or a str such as "2024-05-01T10:00:00Z" or "1.5s".
///     end: The last time.
///     text: Text that names, values or the message must contain, ignoring case.
///     manifests: Manifests, programs with compiled manifests, or folders of these.
///     tmf: Message formats of WPP events: TMF files or folders of them.
///     pdb: Message formats of WPP events: PDB files.
///     symbols: Whether stack frames get the names of functions.
///     symbol_paths: Folders to search for symbols.
///     join_stacks: Whether events of the kernel get their call stacks, which are events of their own
///         in the trace. Stack events that belong to no accepted event remain.
///     numeric: Whether values with names, such as those of enumerations, are numbers.
///
/// Raises:
///     FileNotFoundError, PermissionError, IsADirectoryError: A path cannot be opened.
///     TraceError: A file is not a trace, or a manifest cannot be used.
#[pyfunction]
#[pyo3(signature = (
    path, *, providers = None, events = None, level = None, keyword = None, pids = None, tids = None,
    cpus = None, start = None, end = None, text = None, manifests = None, tmf = None, pdb = None,
    symbols = false, symbol_paths = None,
    join_stacks = false, numeric = false
))]
#[allow(clippy::too_many_arguments)] // These are keyword arguments.
pub(crate) fn open(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    providers: Option<&Bound<'_, PyAny>>,
    events: Option<&Bound<'_, PyAny>>,
    level: Option<&Bound<'_, PyAny>>,
    keyword: Option<&Bound<'_, PyAny>>,
    pids: Option<&Bound<'_, PyAny>>,
    tids: Option<&Bound<'_, PyAny>>,
    cpus: Option<&Bound<'_, PyAny>>,
    start: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
    text: Option<String>,
    manifests: Option<&Bound<'_, PyAny>>,
    tmf: Option<&Bound<'_, PyAny>>,
    pdb: Option<&Bound<'_, PyAny>>,
    symbols: bool,
    symbol_paths: Option<&Bound<'_, PyAny>>,
    join_stacks: bool,
    numeric: bool,
) -> PyResult<Trace> {
    let criteria = FilterCriteria {
        providers: arguments::provider_names(providers)?,
        events: arguments::event_names(events)?,
        level: arguments::level(level)?,
        keyword: arguments::keyword(keyword)?,
        pids: arguments::numbers(pids)?,
        tids: arguments::numbers(tids)?,
        cpus: arguments::numbers(cpus)?,
        from: start.map(extract_moment).transpose()?,
        to: end.map(extract_moment).transpose()?,
        head: None,
        text,
    };
    let schemas = SchemaFiles {
        manifests: arguments::paths(manifests)?,
        tmf: arguments::paths(tmf)?,
        pdb: arguments::paths(pdb)?,
        ignores_programs: false,
    };
    let symbol_paths = arguments::paths(symbol_paths)?;
    let symbols = symbols.then_some(SymbolOptions { paths: symbol_paths, omits_lines: false, root: None });
    let files = arguments::paths(Some(path))?;
    if files.is_empty() {
        return Err(PyValueError::new_err("no path is given"));
    }
    let style = Style { numeric };
    let options = ReadOptions { files, criteria, schemas, symbols, style, joins_stacks: join_stacks };
    guard(|| Trace::open(py, options))
}

/// Opened traces. Iterating yields their events in the order of time; every iteration reads the
/// traces again.
#[pyclass(frozen, module = "traceweir")]
pub(crate) struct Trace {
    options: ReadOptions,
    findings: Arc<Findings>,
    files: Vec<TraceFileInfo>,
    start: FileTime,
    /// The traces for the first iteration.
    opened: Mutex<Option<TraceSet>>,
    has_warned: AtomicBool,
}

impl Trace {
    fn open(py: Python<'_>, options: ReadOptions) -> PyResult<Self> {
        if let Some(folder) = options.files.iter().find(|path| path.is_dir()) {
            return Err(folder_error(folder));
        }
        let findings = Arc::new(Findings::default());
        let traces = py.detach(|| open_traces(&options, &findings)).map_err(|error| to_exception(&error))?;
        let files: Vec<TraceFileInfo> = traces
            .inputs
            .iter()
            .map(|input| TraceFileInfo::new(&input.name, &input.trace, input.damage.as_deref()))
            .collect();
        findings.set_known(files.iter().flat_map(|file| file.warnings.iter().cloned()).collect());
        Ok(Self {
            options,
            findings,
            files,
            start: traces.start(),
            opened: Mutex::new(Some(traces)),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Returns opened traces that no iteration has used.
    fn take_traces(&self, py: Python<'_>) -> PyResult<TraceSet> {
        if let Some(traces) = lock(&self.opened).take() {
            return Ok(traces);
        }
        py.detach(|| open_traces(&self.options, &self.findings)).map_err(|error| to_exception(&error))
    }

    /// Keeps the defects and losses that a complete reading has found, and warns of them once.
    fn add_summary(&self, py: Python<'_>, summary: &ReadSummary) -> PyResult<()> {
        self.findings.add_summary(summary);
        if self.has_warned.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        for warning in self.findings.known() {
            warn(py, &warning)?;
        }
        Ok(())
    }
}

/// Issues a `TraceWarning`.
pub(crate) fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let category = py.get_type::<TraceWarning>();
    py.import("warnings")?.call_method1("warn", (text, category, 1))?;
    Ok(())
}

#[pymethods]
impl Trace {
    /// The opened traces; an archive may contain several.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            self.files.iter().cloned().map(|file| Py::new(py, file)).collect::<PyResult<Vec<_>>>()?,
        )
    }

    /// When the earliest trace starts, in UTC.
    #[getter]
    fn start<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        datetime(py, self.start)
    }

    /// When the latest session ended, in UTC; None if the header of a trace has no end.
    #[getter]
    fn end<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDateTime>>> {
        let ends: Option<Vec<FileTime>> = self.files.iter().map(|file| file.end).collect();
        ends.and_then(|ends| ends.into_iter().max()).map(|end| datetime(py, end)).transpose()
    }

    /// Name of the session that wrote the first trace.
    #[getter]
    fn session(&self) -> &str {
        self.files.first().map_or("", |file| &file.session)
    }

    /// Name of the machine; None if no trace contains it. Only traces with kernel events can. The
    /// first use reads the traces up to the event with the name.
    #[getter]
    fn host(&self, py: Python<'_>) -> PyResult<Option<String>> {
        guard(|| py.detach(|| find_host(&self.options)).map_err(|error| to_exception(&error)))
    }

    /// Number of events that the sessions lost, by the headers of the traces.
    #[getter]
    fn events_lost(&self) -> u64 {
        self.files.iter().map(|file| u64::from(file.events_lost)).sum()
    }

    /// Number of buffers that the sessions lost, by the headers of the traces.
    #[getter]
    fn buffers_lost(&self) -> u64 {
        self.files.iter().map(|file| u64::from(file.buffers_lost)).sum()
    }

    /// Damage and losses: those that show without reading the events, and after a complete iteration
    /// all of them. The end of the first complete iteration issues each as a TraceWarning.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.findings.known()
    }

    /// Starts to read the events.
    fn __iter__(slf: PyRef<'_, Self>) -> PyResult<EventIterator> {
        let py = slf.py();
        guard(|| {
            let traces = slf.take_traces(py)?;
            let queue = Arc::new(EventQueue::new());
            start_reading(traces, &slf.options, Arc::clone(&queue)).map_err(|error| to_exception(&error))?;
            Ok(EventIterator { source: EventSource::new(queue), trace: slf.into() })
        })
    }

    /// Returns the events as an Arrow stream, for pyarrow, polars, pandas, DuckDB and every other
    /// library with the Arrow PyCapsule interface. The criteria of the trace apply.
    ///
    /// Arguments:
    ///     layout: "events": one row for each event, its fields as JSON in the column payload.
    ///     columns: Names of columns; None for all. Fewer columns are read faster.
    ///     batch_rows: The most rows of a batch.
    #[pyo3(signature = (layout = "events", *, columns = None, batch_rows = None))]
    fn to_arrow(
        &self,
        layout: &str,
        columns: Option<Vec<String>>,
        batch_rows: Option<usize>,
    ) -> PyResult<ArrowStream> {
        ArrowStream::new(self.options.clone(), layout, columns, batch_rows, Arc::clone(&self.findings))
    }

    fn __repr__(&self) -> String {
        match &self.files[..] {
            [file] => format!("<traceweir.Trace {}>", file.name),
            files => format!("<traceweir.Trace of {} files>", files.len()),
        }
    }
}

/// The events of a trace, in the order of time.
///
/// Several threads may share an iterator: each event goes to one of them.
#[pyclass(frozen, module = "traceweir")]
pub(crate) struct EventIterator {
    source: EventSource<ReadSummary>,
    trace: Py<Trace>,
}

#[pymethods]
impl EventIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        match self.source.next(py, None)? {
            NextEvent::Event(data) => Ok(Some(Event::new(data))),
            NextEvent::End(Some(outcome)) => {
                let summary = outcome.map_err(|error| to_exception(&error))?;
                self.trace.get().add_summary(py, &summary)?;
                Ok(None)
            }
            NextEvent::End(None) | NextEvent::Timeout => Ok(None),
        }
    }
}

/// What the header of a trace says.
#[pyclass(frozen, module = "traceweir")]
#[derive(Clone)]
pub(crate) struct TraceFileInfo {
    /// Path of the file, escaped for display; for a ZIP archive followed by a colon and the name of
    /// the member.
    #[pyo3(get)]
    name: String,
    /// Name of the session.
    #[pyo3(get)]
    session: String,
    /// Number of bytes, unpacked.
    #[pyo3(get)]
    size: u64,
    /// Number of events that the session lost.
    #[pyo3(get)]
    events_lost: u32,
    /// Number of buffers that the session lost.
    #[pyo3(get)]
    buffers_lost: u32,
    /// Number of processors of the machine.
    #[pyo3(get)]
    processors: u32,
    /// Bytes of a pointer: 4 or 8.
    #[pyo3(get)]
    pointer_size: u32,
    /// Version of the operating system: major, minor, build.
    #[pyo3(get)]
    os_version: (u8, u8, u32),
    /// Whether the session finalised the file.
    #[pyo3(get)]
    is_finalised: bool,
    /// Damage and losses that show without reading the events.
    #[pyo3(get)]
    warnings: Vec<String>,
    start: FileTime,
    end: Option<FileTime>,
    boot: FileTime,
}

impl TraceFileInfo {
    fn new(name: &str, trace: &etl::Trace<TraceFile>, damage: Option<&str>) -> Self {
        let header = trace.header();
        let [major, minor, ..] = header.versions;
        let mut warnings: Vec<String> = Vec::new();
        let mut add = |text: &str| warnings.push(format!("{name}: {text}"));
        damage.iter().for_each(|text| add(text));
        trace.defects().iter().take(20).for_each(|defect| add(&defect.to_string()));
        if !trace.is_finalised() {
            add("the session never finalised the file, or it is still being written");
        }
        if let Some((written, present)) = trace.missing_buffers() {
            add(&format!("the header counts {written} buffers, the file has {present}"));
        }
        if let Some(losses) = describe_losses(trace) {
            add(&losses);
        }
        Self {
            name: name.to_owned(),
            session: header.session_name.clone(),
            size: trace.file_size(),
            events_lost: header.events_lost,
            buffers_lost: header.buffers_lost,
            processors: header.processors,
            pointer_size: header.pointer_size,
            os_version: (major, minor, header.provider_version),
            is_finalised: trace.is_finalised(),
            warnings,
            start: trace.clock().file_time(trace.clock().anchor),
            end: Some(header.end_time).filter(|end| end.0 > 0),
            boot: header.boot_time,
        }
    }
}

#[pymethods]
impl TraceFileInfo {
    /// When the trace starts, in UTC.
    #[getter]
    fn start<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        datetime(py, self.start)
    }

    /// When the session ended, in UTC; None if the header has no end.
    #[getter]
    fn end<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDateTime>>> {
        self.end.map(|end| datetime(py, end)).transpose()
    }

    /// When the machine started, in UTC; None if the header has no such time.
    #[getter]
    fn boot<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDateTime>>> {
        Some(self.boot).filter(|boot| boot.0 > 0).map(|boot| datetime(py, boot)).transpose()
    }

    fn __repr__(&self) -> String {
        format!("<traceweir.TraceFileInfo {}, session {}>", self.name, escape(&self.session))
    }
}

/// Finds the name of the machine in the kernel event that describes it.
fn find_host(options: &ReadOptions) -> anyhow::Result<Option<String>> {
    let observer: Arc<dyn ReadObserver> = Arc::new(());
    let traces = TraceSet::open(&options.files, &SchemaFiles::default(), observer)?;
    Ok(read_hosts(&traces, NeededFacts::Name)?.into_iter().find_map(|host| host.name))
}
