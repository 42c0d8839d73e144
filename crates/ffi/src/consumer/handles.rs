//! Handles of opened traces: numbers that are never used twice.
//!
//! ```text
//!   OpenTrace ──▶ Opened ──ProcessTrace──▶ Busy ──▶ Done      CloseTrace in any state: removed
//!                    ▲                       │
//!                    └──── end of a file ────┘
//! ```
//!
//! 1. A number that is not in the table, whether invented or closed, is an invalid handle.
//! 2. No callback of the program runs while the table or a state is locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use traceweir::Status;
use traceweir::consumer::{Closer, Feeder, Kind, Trace, Window};

use super::deliver::TraceConsumer;
use super::details::TraceDetails;
use super::layout::BufferCompletionCallback;
use super::lock;
use super::schemas::TraceSchemas;

pub(super) const INVALID_PROCESSTRACE_HANDLE: u64 = u64::MAX;
/// The first handle. No number is a handle of two kinds: the upper half of this one is even, that
/// of a registration handle is odd, and the ids of sessions and loggers are smaller.
const FIRST_HANDLE: u64 = 0x7EAC_E000_0000_0001;

/// A function of a C program that receives the buffers that a stream has finished with.
#[derive(Clone, Copy)]
pub(super) struct CompletionCallback {
    pub(super) function: BufferCompletionCallback,
    pub(super) context: *mut std::ffi::c_void,
}

// SAFETY: the library never dereferences the context. The caller that opens the stream permits the
// threads that process or close it to use function and context.
unsafe impl Send for CompletionCallback {}
// SAFETY: as for `Send`: only the program dereferences the context.
unsafe impl Sync for CompletionCallback {}

/// Whether a trace waits for processing, is being processed, or was processed.
enum ProcessingState {
    Opened(Box<(Trace, TraceConsumer)>),
    Busy,
    Done,
}

/// An opened trace.
pub(super) struct OpenedTrace {
    pub(super) details: Arc<TraceDetails>,
    closer: Closer,
    state: Mutex<ProcessingState>,
    /// `Some` for a stream of buffers only.
    pub(super) feed: Option<BufferFeed>,
}

impl OpenedTrace {
    /// Makes a file ready to be processed once more. A handle that was closed meanwhile stays
    /// closed.
    pub(super) fn set_opened(&self, trace: Trace, consumer: TraceConsumer) {
        *lock(&self.state) = ProcessingState::Opened(Box::new((trace, consumer)));
    }

    /// Marks the processing of the trace as ended.
    pub(super) fn set_done(&self) {
        *lock(&self.state) = ProcessingState::Done;
    }
}

/// The input of a stream of buffers, and the callback for finished buffers.
pub(super) struct BufferFeed {
    pub(super) feeder: Feeder,
    pub(super) completion: CompletionCallback,
}

struct TraceTable {
    next_handle: u64,
    entries: BTreeMap<u64, Arc<OpenedTrace>>,
}

static TRACES: Mutex<TraceTable> =
    Mutex::new(TraceTable { next_handle: FIRST_HANDLE, entries: BTreeMap::new() });

/// Adds a trace to the table, and returns its handle.
pub(super) fn add_trace(trace: Trace, mut consumer: TraceConsumer, feed: Option<BufferFeed>) -> u64 {
    let details = TraceDetails::new(&trace);
    let mut table = lock(&TRACES);
    let handle = table.next_handle;
    table.next_handle = table.next_handle.saturating_add(1);
    consumer.handle = handle;
    let closer = trace.closer();
    let state = Mutex::new(ProcessingState::Opened(Box::new((trace, consumer))));
    let entry = OpenedTrace { details, closer, state, feed };
    table.entries.insert(handle, Arc::new(entry));
    handle
}

/// Finds the trace of a handle.
pub(super) fn find_trace(handle: u64) -> Result<Arc<OpenedTrace>, Status> {
    lock(&TRACES).entries.get(&handle).cloned().ok_or(Status::ERROR_INVALID_HANDLE)
}

/// Returns the schemas of all open traces.
pub(super) fn all_schemas() -> Vec<Arc<TraceSchemas>> {
    lock(&TRACES).entries.values().map(|entry| Arc::clone(&entry.details.schemas)).collect()
}

/// A trace that is about to be processed.
pub(super) struct ClaimedTrace {
    pub(super) entry: Arc<OpenedTrace>,
    pub(super) trace: Trace,
    pub(super) consumer: TraceConsumer,
}

/// Takes the traces of several handles for processing: all or none.
pub(super) fn claim_traces(handles: &[u64], window: &Window) -> Result<Vec<ClaimedTrace>, Status> {
    let table = lock(&TRACES);
    let mut entries = Vec::with_capacity(handles.len());
    for handle in handles {
        let entry = table.entries.get(handle).ok_or(Status::ERROR_INVALID_HANDLE)?;
        // No other thread can claim the trace meanwhile: the table is locked.
        if !matches!(*lock(&entry.state), ProcessingState::Opened(_)) {
            return Err(Status::ERROR_INVALID_HANDLE);
        }
        entries.push(Arc::clone(entry));
    }
    if handles.iter().collect::<BTreeSet<_>>().len() != handles.len() {
        return Err(Status::ERROR_INVALID_HANDLE);
    }
    check_kinds(&entries)?;
    if window.from.zip(window.to).is_some_and(|(from, to)| to < from) {
        return Err(Status::ERROR_INVALID_TIME);
    }
    let claim_trace = |entry: Arc<OpenedTrace>| {
        let ProcessingState::Opened(opened) =
            std::mem::replace(&mut *lock(&entry.state), ProcessingState::Busy)
        else {
            return None;
        };
        let (trace, consumer) = *opened;
        Some(ClaimedTrace { entry, trace, consumer })
    };
    Ok(entries.into_iter().filter_map(claim_trace).collect())
}

/// Checks that all traces are files, or that there is only one trace.
fn check_kinds(entries: &[Arc<OpenedTrace>]) -> Result<(), Status> {
    let are_all_files = entries.iter().all(|entry| entry.details.kind == Kind::File);
    if are_all_files || entries.len() == 1 { Ok(()) } else { Err(Status::ERROR_INVALID_PARAMETER) }
}

/// Closes a handle. A trace that is being processed ends later.
pub(super) fn close_handle(handle: u64) -> Status {
    let entry = lock(&TRACES).entries.remove(&handle);
    let Some(entry) = entry else { return Status::ERROR_INVALID_HANDLE };
    // Dropped at the end of the function, without a lock: dropping gives back the buffers of a
    // stream.
    let state = std::mem::replace(&mut *lock(&entry.state), ProcessingState::Done);
    match state {
        ProcessingState::Busy => {
            entry.closer.end();
            Status::ERROR_CTX_CLOSE_PENDING
        }
        ProcessingState::Opened(_) | ProcessingState::Done => Status::ERROR_SUCCESS,
    }
}
