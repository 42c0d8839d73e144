//! `traceweir.watch` and what it returns.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use traceweir::consumer::{Closer, Lost, Trace};
use traceweir::controller::Controller;
use traceweir::session::Filter;
use traceweir::{Keywords, Level, Session, Status};
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::text::escape;
use traceweir_decode::format::Style;
use traceweir_format::spec::enable::MAX_EVENT_FILTER_PID_COUNT;

use crate::arguments;
use crate::error::{TraceError, to_exception};
use crate::event::Event;
use crate::fork::OwnerProcess;
use crate::guard::guard;
use crate::queue::EventQueue;
use crate::reader::{Findings, LiveOptions, start_watching};
use crate::source::{EventSource, NextEvent, lock};
use crate::trace::warn;

/// Watches live events, of a running session or of providers.
///
/// With the name of a session, the events of this session are delivered; the session runs on when
/// the watching ends. With providers, a temporary session is started, and a daemon if none runs. The
/// session ends with the watching.
///
///     with traceweir.watch(providers="Contoso.Shop") as events:
///         for event in events:
///             print(event.time, event.name, event.fields)
///
/// Ctrl-C raises KeyboardInterrupt and ends the watching.
///
/// Arguments:
///     session: Name of a running session. A list is taken as providers.
///     providers: Names or GUIDs of providers; names may have the wildcards * and ?. With a session:
///         only events of these providers are delivered.
///     events: Names or ids of events; names may have wildcards.
///     level: The least severe level: a number, or a name such as "warning".
///     keyword: Keyword bits, one of which an event must have.
///     pids: Processes; at most 8 without a session.
///     text: Text that names, values or the message must contain, ignoring case.
///     stacks: Whether events have call stacks; only without a session.
///     manifests: Manifests, programs with compiled manifests, or folders of these.
///     tmf: Message formats of WPP events: TMF files or folders of them.
///     pdb: Message formats of WPP events: PDB files.
///     numeric: Whether values with names, such as those of enumerations, are numbers.
///
/// Raises:
///     TraceError: The session does not run or is not live, or no daemon can be reached.
#[pyfunction]
#[pyo3(signature = (
    session = None, *, providers = None, events = None, level = None, keyword = None, pids = None,
    text = None, stacks = false, manifests = None, tmf = None, pdb = None, numeric = false
))]
#[allow(clippy::too_many_arguments)] // These are keyword arguments.
pub(crate) fn watch(
    py: Python<'_>,
    session: Option<&Bound<'_, PyAny>>,
    providers: Option<&Bound<'_, PyAny>>,
    events: Option<&Bound<'_, PyAny>>,
    level: Option<&Bound<'_, PyAny>>,
    keyword: Option<&Bound<'_, PyAny>>,
    pids: Option<&Bound<'_, PyAny>>,
    text: Option<String>,
    stacks: bool,
    manifests: Option<&Bound<'_, PyAny>>,
    tmf: Option<&Bound<'_, PyAny>>,
    pdb: Option<&Bound<'_, PyAny>>,
    numeric: bool,
) -> PyResult<Watch> {
    let (session, providers) = match session {
        Some(list) if !list.is_instance_of::<PyString>() && providers.is_none() => (None, Some(list)),
        session => (session, providers),
    };
    let session = session.map(|name| name.extract::<String>()).transpose()?;
    let providers = arguments::provider_names(providers)?;
    let pids: Vec<u32> = arguments::numbers(pids)?;
    let (level, keyword) = (arguments::level(level)?, arguments::keyword(keyword)?);
    let source = match session {
        Some(_) if stacks => {
            return Err(PyValueError::new_err("stacks cannot be requested from a running session"));
        }
        Some(name) => LiveSource::Session(name),
        None if providers.is_empty() => {
            return Err(PyValueError::new_err("name a session or providers to watch"));
        }
        None => LiveSource::Providers(ProviderRequest {
            providers: providers.clone(),
            level: level.unwrap_or(0),
            keyword: keyword.unwrap_or(0),
            pids: pids.clone(),
            stacks,
        }),
    };
    let mut criteria =
        FilterCriteria { events: arguments::event_names(events)?, text, ..FilterCriteria::default() };
    if let LiveSource::Session(_) = source {
        // A temporary session contains only requested events.
        criteria = FilterCriteria { providers, level, keyword, pids, ..criteria };
    }
    let schemas = SchemaFiles {
        manifests: arguments::paths(manifests)?,
        tmf: arguments::paths(tmf)?,
        pdb: arguments::paths(pdb)?,
        ignores_programs: false,
    };
    let options = LiveOptions { criteria, schemas, style: Style { numeric } };
    guard(|| {
        let watch = py.detach(|| Watch::start(&source, options)).map_err(|error| to_exception(&error))?;
        for warning in watch.findings.take_reported() {
            warn(py, &warning)?;
        }
        Ok(watch)
    })
}

/// Where live events come from.
enum LiveSource {
    /// A running session.
    Session(String),
    /// A temporary session.
    Providers(ProviderRequest),
}

/// The providers of a temporary session.
struct ProviderRequest {
    providers: Vec<String>,
    level: u8,
    keyword: u64,
    pids: Vec<u32>,
    stacks: bool,
}

/// Live events. Iterating yields them as they arrive, until the session ends or close() is called.
#[pyclass(frozen, module = "traceweir")]
pub(crate) struct Watch {
    source: EventSource<Lost>,
    connection: LiveConnection,
    findings: Arc<Findings>,
    name: String,
    lost: Mutex<Lost>,
}

/// A live trace and the temporary session that it comes from. Dropping it ends both.
struct LiveConnection {
    closer: Closer,
    /// The temporary session, if it has not been stopped.
    session: Mutex<Option<Session>>,
    /// The process that opened the connection.
    process: OwnerProcess,
}

impl LiveConnection {
    /// Stops the temporary session, if there is one; its last events are still delivered. Returns
    /// the numbers of events and buffers that the session could not deliver.
    fn stop_session(&self) -> Result<Lost> {
        let Some(session) = lock(&self.session).take() else { return Ok(Lost::default()) };
        match session.stop() {
            Ok(summary) => {
                Ok(Lost::new(summary.real_time_events_lost, u64::from(summary.real_time_buffers_lost)))
            }
            // Another program has stopped the session, or the daemon has ended.
            Err(error) if error.status() == Status::ERROR_WMI_INSTANCE_NOT_FOUND || error.is_disconnect() => {
                Ok(Lost::default())
            }
            Err(error) => Err(error).context("cannot stop the temporary session"),
        }
    }
}

impl Drop for LiveConnection {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // A forked process must not end the session of its parent.
            let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(session.take());
            return;
        }
        self.closer.close();
        // The session also ends with the connection.
        let _ = self.stop_session();
    }
}

impl Watch {
    fn start(source: &LiveSource, options: LiveOptions) -> Result<Self> {
        let (trace, session, name) = match source {
            LiveSource::Session(name) => {
                let context = || format!("cannot watch session {}", escape(name));
                (Trace::live(name).with_context(context)?, None, name.clone())
            }
            LiveSource::Providers(request) => {
                let (session, name) = start_session(request)?;
                (session.trace()?, Some(session), name)
            }
        };
        let process = OwnerProcess::current();
        let connection = LiveConnection { closer: trace.closer(), session: Mutex::new(session), process };
        let (findings, queue) = (Arc::new(Findings::default()), Arc::new(EventQueue::new()));
        let source_of_events = EventSource::new(Arc::clone(&queue));
        start_watching(trace, options, Arc::clone(&findings), queue)?;
        if let (LiveSource::Providers(request), Some(session)) = (source, &*lock(&connection.session)) {
            enable_providers(session, request, &findings)?;
        }
        Ok(Self { source: source_of_events, connection, findings, name, lost: Mutex::default() })
    }

    fn close_connection(&self, py: Python<'_>) -> PyResult<()> {
        if !self.connection.process.is_current() {
            return Ok(());
        }
        self.source.stop();
        let stopped = py.detach(|| {
            self.connection.closer.close();
            self.connection.stop_session()
        });
        self.add_lost(stopped.map_err(|error| to_exception(&error))?);
        Ok(())
    }

    fn add_lost(&self, more: Lost) {
        let mut lost = lock(&self.lost);
        lost.events = lost.events.saturating_add(more.events);
        lost.buffers = lost.buffers.saturating_add(more.buffers);
    }

    fn next_event(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<NextEvent<Lost>> {
        match self.source.next(py, deadline) {
            Ok(NextEvent::End(Some(outcome))) => {
                let lost = outcome.map_err(|error| to_exception(&error));
                // The session has ended, or its daemon has.
                let closed = self.close_connection(py);
                self.add_lost(lost?);
                closed?;
                Ok(NextEvent::End(None))
            }
            Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => {
                // Ctrl-C ends the watching; the exception is more important than a failed stop.
                let _ = self.close_connection(py);
                Err(error)
            }
            next => next,
        }
    }
}

/// Starts a temporary session. It ends with this process, even after a crash.
fn start_session(request: &ProviderRequest) -> Result<(Session, String)> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let name = format!("traceweir-python-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    if request.pids.len() > MAX_EVENT_FILTER_PID_COUNT {
        return Err(anyhow::anyhow!(
            "at most {MAX_EVENT_FILTER_PID_COUNT} processes can be watched; leave out pids to watch all"
        ));
    }
    let controller = Controller::find_or_start(None)?;
    let builder = Session::builder(&name).daemon(&controller).real_time().low_latency().stop_on_drop();
    Ok((builder.start()?, name))
}

fn enable_providers(session: &Session, request: &ProviderRequest, findings: &Findings) -> Result<()> {
    for provider in &request.providers {
        let mut enable = session
            .enable(provider.as_str())
            .level(Level::from_int(request.level))
            .keywords(Keywords::new(request.keyword));
        if !request.pids.is_empty() {
            enable = enable.filter(Filter::process_ids(&request.pids));
        }
        if request.stacks {
            enable = enable.stack_traces();
        }
        match enable.apply() {
            Ok(()) => {}
            // The provider is enabled, and slow processes apply the enable later.
            Err(error) if error.status() == Status::ERROR_TIMEOUT => {
                findings.report(format!("some processes have not enabled {} yet: {error}", escape(provider)));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot enable {}", escape(provider))),
        }
    }
    Ok(())
}

#[pymethods]
impl Watch {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        match self.next_event(py, None)? {
            NextEvent::Event(data) => Ok(Some(Event::new(data))),
            NextEvent::End(_) | NextEvent::Timeout => Ok(None),
        }
    }

    /// Waits for the next event. Returns None if no event arrives within this number of seconds, or if
    /// no event follows.
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<Event>> {
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|_| PyValueError::new_err("a timeout is a number of seconds, 0 or more"))?;
        let deadline = Instant::now().checked_add(timeout);
        match self.next_event(py, deadline)? {
            NextEvent::Event(data) => Ok(Some(Event::new(data))),
            NextEvent::End(_) | NextEvent::Timeout => Ok(None),
        }
    }

    /// Stops the temporary session. Iterating still yields the events that were written before, and
    /// then ends.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.process.check()?;
        if lock(&self.connection.session).is_none() {
            return Err(TraceError::new_err("the watched session is not a temporary one, or it has ended"));
        }
        let stopped = py.detach(|| self.connection.stop_session());
        self.add_lost(stopped.map_err(|error| to_exception(&error))?);
        Ok(())
    }

    /// Ends the watching, and the temporary session. Iterating yields no further event.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.close_connection(py)
    }

    /// Name of the session.
    #[getter]
    fn session(&self) -> &str {
        &self.name
    }

    /// Number of events that were lost because this program was too slow. It is complete when the
    /// watching has ended.
    #[getter]
    fn events_lost(&self) -> u64 {
        lock(&self.lost).events
    }

    /// Number of buffers that were lost because this program was too slow. It is complete when the
    /// watching has ended.
    #[getter]
    fn buffers_lost(&self) -> u64 {
        lock(&self.lost).buffers
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _exception_type: Option<&Bound<'_, PyType>>,
        _exception: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.close_connection(py)
    }

    fn __repr__(&self) -> String {
        format!("<traceweir.Watch {}>", escape(&self.name))
    }
}
