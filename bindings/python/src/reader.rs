//! The threads that read traces and live sessions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow};
use traceweir::consumer::{Lost, Trace};
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::filter::{EventFilter, FilterCriteria};
use traceweir_analysis::live;
use traceweir_analysis::observer::{PassProgress, ReadObserver, ReadPass, Warning};
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_analysis::traces::{ReadSummary, TraceSet};
use traceweir_decode::format::Style;
use traceweir_format::stack_walk::StackWalk;

use crate::batch::{CopiedEvent, EventBatch, EventCopier};
use crate::guard::panic_text;
use crate::queue::EventQueue;
use crate::source::lock;
use crate::stacks::StackCollector;

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
    /// Whether events get the stacks that follow them as events of their own.
    pub(crate) joins_stacks: bool,
}

/// Defects, losses and warnings of traces or of a live session, as lines of text.
#[derive(Default)]
pub(crate) struct Findings {
    /// Warnings of the reading thread since they were last taken.
    reported: Mutex<Vec<String>>,
    /// What is known about the traces.
    known: Mutex<Vec<String>>,
}

impl Findings {
    /// Replaces what is known about the traces.
    pub(crate) fn set_known(&self, known: Vec<String>) {
        *lock(&self.known) = known;
    }

    /// Adds a warning, unless there are too many already.
    pub(crate) fn report(&self, warning: String) {
        let mut reported = lock(&self.reported);
        if reported.len() < MAX_WARNINGS {
            reported.push(warning);
        }
    }

    /// Returns the warnings since the last call.
    pub(crate) fn take_reported(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.reported))
    }

    /// Replaces what is known by the result of a complete reading and its warnings.
    pub(crate) fn add_summary(&self, summary: &ReadSummary) {
        let defects = summary.warnings.iter().map(ToString::to_string);
        self.set_known(defects.chain(summary.losses.iter().cloned()).chain(self.take_reported()).collect());
    }

    /// Returns what is known about the traces.
    pub(crate) fn known(&self) -> Vec<String> {
        lock(&self.known).clone()
    }
}

impl ReadObserver for Findings {
    fn begin_pass(&self, _: ReadPass, _: u64) -> Option<PassProgress> {
        None
    }

    fn warn(&self, warning: &Warning) {
        self.report(warning.to_string());
    }
}

/// Opens the traces of `options`.
pub(crate) fn open_traces(options: &ReadOptions, findings: &Arc<Findings>) -> Result<TraceSet> {
    let observer: Arc<dyn ReadObserver> = findings.clone();
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
    let options = options.clone();
    run_in_thread(queue, move |queue| {
        traces.choose_threads(None);
        read_traces(&mut traces, &filter, &options, queue)
    })
}

fn read_traces(
    traces: &mut TraceSet,
    filter: &EventFilter,
    options: &ReadOptions,
    queue: &EventQueue<ReadSummary>,
) -> Result<ReadSummary> {
    /// The events of the first batch; each further one may have twice as many.
    const FIRST_BATCH_EVENTS: usize = 64;
    let mut copier = EventCopier::new(options.style);
    let mut selection = EventSelection::with_style(filter, options.style);
    let mut batch = EventBatch::default();
    let mut max_events = FIRST_BATCH_EVENTS;
    let mut push = |copied: CopiedEvent, record: &[u8]| {
        batch.push(copied, record);
        if batch.is_full() || batch.len() >= max_events {
            max_events = max_events.saturating_mul(2);
            batch = queue.send(std::mem::take(&mut batch));
        }
    };
    let mut stacks = options.joins_stacks.then(StackCollector::default);
    let summary = traces.read(
        // Stacks are read because their events may be accepted. A stopped reader accepts the next
        // event, in order to stop at it.
        |record, time| {
            filter.accepts_header(record, time)
                || (options.joins_stacks && StackWalk::is_stack_walk(record))
                || queue.is_stopped()
        },
        |event| {
            if queue.is_stopped() {
                return Ok(ReadFlow::Stop);
            }
            let Some(stacks) = &mut stacks else {
                if selection.accepts(event) {
                    push(copier.copy(event), event.record.bytes());
                }
                return Ok(ReadFlow::Continue);
            };
            let is_attached = stacks.attach(event);
            if !is_attached && filter.accepts_header(&event.record, event.time) && selection.accepts(event) {
                stacks.add(event, copier.copy(event));
            }
            stacks.release(&mut push);
            Ok(ReadFlow::Continue)
        },
    );
    if let Some(stacks) = &mut stacks {
        stacks.end(&mut push);
    }
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
    findings: Arc<Findings>,
    queue: Arc<EventQueue<Lost>>,
) -> Result<()> {
    let filter = EventFilter::new(&options.criteria, trace.header().start_time);
    run_in_thread(queue, move |queue| {
        let mut copier = EventCopier::new(options.style);
        let mut selection = EventSelection::with_style(&filter, options.style);
        let mut add = |event: &DescribedEvent<'_>| {
            // The events that describe the session are written by the session, not by a provider.
            if !describes_file(&event.record) && selection.accepts(event) {
                queue.add_to_last(|batch| batch.push(copier.copy(event), event.record.bytes()));
            }
        };
        live::read_events(
            trace,
            &options.schemas,
            &*findings,
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
