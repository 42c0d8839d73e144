//! Handles of opened traces: numbers that are never used twice.
//!
//! ```text
//!   OpenTrace ──▶ Opened ──ProcessTrace──▶ Busy ──▶ Done      CloseTrace in any state: no handle
//! ```
//!
//! 1. A number that is not in the table is not a handle: neither an invented nor a closed one is.
//! 2. No callback of the program runs while the table or a state is locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use traceweir::Status;
use traceweir::consumer::{Closer, Feeder, Kind, Trace, Window};

use super::deliver::Consumer;
use super::details::Details;
use super::layout::BufferCompletionCallback;
use super::locked;
use super::schemas::Schemas;

/// The published constant INVALID_PROCESSTRACE_HANDLE.
pub(super) const INVALID: u64 = u64::MAX;
/// The upper half is even, which that of a registration's handle never is, and larger than the ids
/// of sessions and loggers.
const FIRST: u64 = 0x7EAC_E000_0000_0001;

/// A function of a C program that receives the buffers that a stream has finished with.
#[derive(Clone, Copy)]
pub(super) struct Completion {
    pub(super) function: BufferCompletionCallback,
    pub(super) context: *mut std::ffi::c_void,
}

// SAFETY: the library never dereferences the context. The caller that opens the stream permits the
// processing thread to use function and context.
unsafe impl Send for Completion {}
// SAFETY: the same.
unsafe impl Sync for Completion {}

/// The state of a trace.
enum State {
    Opened(Box<(Trace, Consumer)>),
    Busy,
    Done,
}

/// An opened trace.
pub(super) struct Entry {
    pub(super) details: Arc<Details>,
    closer: Closer,
    state: Mutex<State>,
    /// For a stream of buffers only.
    pub(super) feed: Option<(Feeder, Completion)>,
}

impl Entry {
    /// Marks the processing of the trace as ended.
    pub(super) fn set_done(&self) {
        *locked(&self.state) = State::Done;
    }
}

struct Table {
    next: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { next: FIRST, entries: BTreeMap::new() });

/// Adds a trace to the table, and returns its handle.
pub(super) fn insert(trace: Trace, mut consumer: Consumer, feed: Option<(Feeder, Completion)>) -> u64 {
    let details = Details::new(&trace);
    let mut table = locked(&TABLE);
    let handle = table.next;
    table.next = table.next.saturating_add(1);
    consumer.handle = handle;
    let closer = trace.closer();
    let state = Mutex::new(State::Opened(Box::new((trace, consumer))));
    let entry = Entry { details, closer, state, feed };
    table.entries.insert(handle, Arc::new(entry));
    handle
}

/// Finds the trace of a handle.
pub(super) fn find(handle: u64) -> Result<Arc<Entry>, Status> {
    locked(&TABLE).entries.get(&handle).cloned().ok_or(Status::ERROR_INVALID_HANDLE)
}

/// Returns the schemas of all open traces.
pub(super) fn all_schemas() -> Vec<Arc<Schemas>> {
    locked(&TABLE).entries.values().map(|entry| Arc::clone(&entry.details.schemas)).collect()
}

/// A trace that is about to be processed.
pub(super) struct Claimed {
    pub(super) entry: Arc<Entry>,
    pub(super) trace: Trace,
    pub(super) consumer: Consumer,
}

/// Takes the traces of several handles for processing: all or none.
pub(super) fn claim(handles: &[u64], window: &Window) -> Result<Vec<Claimed>, Status> {
    let table = locked(&TABLE);
    let mut entries = Vec::with_capacity(handles.len());
    for handle in handles {
        let entry = table.entries.get(handle).ok_or(Status::ERROR_INVALID_HANDLE)?;
        // No other thread can claim it meanwhile: the table is locked.
        if !matches!(*locked(&entry.state), State::Opened(_)) {
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
    let claim_trace = |entry: Arc<Entry>| {
        let State::Opened(opened) = std::mem::replace(&mut *locked(&entry.state), State::Busy) else {
            return None;
        };
        let (trace, consumer) = *opened;
        Some(Claimed { entry, trace, consumer })
    };
    Ok(entries.into_iter().filter_map(claim_trace).collect())
}

/// Checks that all are files, or that there is only one trace.
fn check_kinds(entries: &[Arc<Entry>]) -> Result<(), Status> {
    let all_files = entries.iter().all(|entry| entry.details.kind == Kind::File);
    if all_files || entries.len() == 1 { Ok(()) } else { Err(Status::ERROR_INVALID_PARAMETER) }
}

/// Closes a handle. A trace that is being processed ends later.
pub(super) fn close(handle: u64) -> Status {
    let entry = locked(&TABLE).entries.remove(&handle);
    let Some(entry) = entry else { return Status::ERROR_INVALID_HANDLE };
    // Dropped at the end, without a lock: that gives back the buffers of a stream.
    let state = std::mem::replace(&mut *locked(&entry.state), State::Done);
    match state {
        State::Busy => {
            entry.closer.end();
            Status::ERROR_CTX_CLOSE_PENDING
        }
        State::Opened(_) | State::Done => Status::ERROR_SUCCESS,
    }
}
