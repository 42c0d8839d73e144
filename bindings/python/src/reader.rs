//! The threads that read traces and live sessions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow};
use traceweir::consumer::{Lost, Trace};
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::filter::{EventFilter, FilterCriteria};
use traceweir_analysis::grep::Grep;
use traceweir_analysis::live;
use traceweir_analysis::observer::{PassProgress, ReadObserver, ReadPass, Warning};
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_analysis::traces::{ReadSummary, TraceSet};
use traceweir_decode::format::Style;

use crate::batch::{EventBatch, EventCopier};
use crate::guard::panic_text;
use crate::queue::EventQueue;
use crate::source::lock;

/// Maximum number of warnings of one reading that are kept.
const MAX_WARNINGS: usize = 100;

/// What to read, and how.
#[derive(Clone, Default)]
pub(crate) struct ReadOptions {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) criteria: FilterCriteria,
    pub(crate) schemas: SchemaFiles,
    /// Where to search for symbols, if functions are requested.
    pub(crate) symbols: Option<SymbolOptions>,
    pub(crate) style: Style,
}

/// Keeps the warnings of a reading for Python.
#[derive(Default)]
pub(crate) struct WarningLog(Mutex<Vec<String>>);

impl WarningLog {
    /// Returns the warnings since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0))
    }

    /// Adds a warning, unless there are too many already.
    pub(crate) fn add(&self, warning: String) {
        let mut warnings = lock(&self.0);
        if warnings.len() < MAX_WARNINGS {
            warnings.push(warning);
        }
    }
}

impl ReadObserver for WarningLog {
    fn begin_pass(&self, _: ReadPass, _: u64) -> Option<PassProgress> {
        None
    }

    fn warn(&self, warning: &Warning) {
        self.add(warning.to_string());
    }
}

/// Opens the traces of `options`.
pub(crate) fn open_traces(options: &ReadOptions, log: &Arc<WarningLog>) -> Result<TraceSet> {
    let observer: Arc<dyn ReadObserver> = log.clone();
    let mut traces = TraceSet::open(&options.files, &options.schemas, observer)?;
    if let Some(symbols) = &options.symbols {
        traces.collect_symbols(symbols);
    }
    Ok(traces)
}

/// Starts a thread that reads traces into a queue.
pub(crate) fn start_reading(
    mut traces: TraceSet,
    options: &ReadOptions,
    queue: Arc<EventQueue<ReadSummary>>,
) -> Result<()> {
    let filter = EventFilter::new(&options.criteria, traces.start());
    let style = options.style;
    run_in_thread(queue, move |queue| {
        traces.choose_threads(None);
        read_traces(&mut traces, &filter, style, queue)
    })
}

fn read_traces(
    traces: &mut TraceSet,
    filter: &EventFilter,
    style: Style,
    queue: &EventQueue<ReadSummary>,
) -> Result<ReadSummary> {
    /// The events of the first batch; each further one may have twice as many.
    const FIRST_BATCH_EVENTS: usize = 64;
    let mut copier = EventCopier::new(style);
    let mut grep = Grep::new(filter, style);
    let mut batch = EventBatch::default();
    let mut max_events = FIRST_BATCH_EVENTS;
    let summary = traces.read(
        // A stopped reader accepts the next event, in order to stop at it.
        |record, time| filter.accepts_header(record, time) || queue.is_stopped(),
        |event| {
            if queue.is_stopped() {
                return Ok(ReadFlow::Stop);
            }
            if filter.accepts(event) && grep.accepts(event) {
                copier.add(event, &mut batch);
                if batch.is_full() || batch.len() >= max_events {
                    max_events = max_events.saturating_mul(2);
                    batch = queue.send(std::mem::take(&mut batch));
                }
            }
            Ok(ReadFlow::Continue)
        },
    );
    if !batch.is_empty() {
        queue.send(batch);
    }
    summary
}

/// Which events of a live session are delivered, and how.
pub(crate) struct LiveOptions {
    pub(crate) criteria: FilterCriteria,
    pub(crate) schemas: SchemaFiles,
    pub(crate) style: Style,
}

/// Starts a thread that reads a live session into a queue, until the session ends or the trace is
/// closed.
pub(crate) fn start_watching(
    trace: Trace,
    options: LiveOptions,
    log: Arc<WarningLog>,
    queue: Arc<EventQueue<Lost>>,
) -> Result<()> {
    let filter = EventFilter::new(&options.criteria, trace.header().start_time);
    run_in_thread(queue, move |queue| {
        let mut copier = EventCopier::new(options.style);
        let mut grep = Grep::new(&filter, options.style);
        let mut add = |event: &DescribedEvent<'_>| {
            // The events that describe the session are written by the session, not by a provider.
            if !describes_file(&event.record) && filter.accepts(event) && grep.accepts(event) {
                queue.add_to_last(|batch| copier.add(event, batch));
            }
        };
        live::read_events(
            trace,
            &options.schemas,
            &*log,
            |record, time| filter.accepts_header(record, time) || queue.is_stopped(),
            |event| {
                if queue.is_stopped() {
                    return Ok(ReadFlow::Stop);
                }
                add(event);
                Ok(ReadFlow::Continue)
            },
        )
    })
}

/// Starts a thread whose result ends the queue. A panic of the thread is such a result, too.
fn run_in_thread<T: Send + 'static>(
    queue: Arc<EventQueue<T>>,
    read: impl FnOnce(&EventQueue<T>) -> Result<T> + Send + 'static,
) -> Result<()> {
    let run = move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| read(&queue)));
        queue.end(outcome.unwrap_or_else(|panic| Err(anyhow!("internal error: {}", panic_text(&*panic)))));
    };
    std::thread::Builder::new().name("traceweir".to_owned()).spawn(run).context("cannot start a thread")?;
    Ok(())
}
