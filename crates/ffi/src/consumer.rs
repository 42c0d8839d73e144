//! Consumers: evntcons.h, and the half of evntrace.h that opens and processes traces.
//!
//! ```text
//!   OpenTrace… ──▶ handles: number ─▶ trace, callbacks of the program
//!                     │
//!   ProcessTrace ─────┴─▶ consumer::deliver ──▶ deliver ──▶ record: EVENT_RECORD ──▶ callback
//!                                                   └─────▶ references: buffers the program keeps
//!   CloseTrace ──▶ removes the handle; processing ends soon after
//! ```
//!
//! | File | Responsibility |
//! |---|---|
//! | `open` | OpenTrace and its relatives |
//! | `handles` | the table of handles, and the state of their traces |
//! | `deliver` | calls the callback for an event, a loss or a buffer |
//! | `record` | EVENT_RECORD and EVENT_TRACE of a record |
//! | `details` | properties of a trace that can be queried while it is processed |
//! | `schemas` | the schemas that traces contain, for tdh.h |
//! | `references`, `aligned` | buffers that a program keeps after its callback; their memory |
//! | `classes` | callbacks for classes of classic events |
//! | `query` | QueryTraceProcessingHandle |
//! | `layout` | the structures of the headers |
//! | `names` | names of files and sessions |
//!
//! Callbacks may call any function here, even for their own handle: this module holds no lock while
//! they run.

mod aligned;
pub mod classes;
mod deliver;
mod details;
mod handles;
pub mod layout;
mod names;
pub mod open;
pub mod query;
mod record;
mod references;
mod schemas;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use traceweir::Status;
use traceweir::consumer::{self, Kind, Lent, Window};
use traceweir_decode::tdh::{Answer, QueryDecoder};
use traceweir_format::time::FileTime;

use crate::{boundary, ptr};
use deliver::TraceDelivery;
use handles::{BufferFeed, ClaimedTrace, CompletionCallback, OpenedTrace};
use layout::{BufferHeader, TraceLogfileHeader};
use schemas::ThreadDelivery;

/// The most handles that one call can process.
const MAX_HANDLES: u32 = 64;

/// Delivers the events of traces; [`consumer::deliver`]. Returns when the traces have ended
/// or are closed.
///
/// # Safety
///
/// `handles` is NULL or has `count` elements; the times are NULL or FILETIMEs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ProcessTrace(
    handles: *const u64,
    count: u32,
    start: *const [u32; 2],
    end: *const [u32; 2],
) -> u32 {
    boundary::to_status(|| {
        if count == 0 || count > MAX_HANDLES {
            return Status::ERROR_BAD_LENGTH;
        }
        // SAFETY: the caller guarantees that `handles` is NULL or valid.
        let Some(handles) = (unsafe { ptr::read_array(handles, count as usize) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        // Copied: a callback may change the array.
        let handles = handles.to_vec();
        // SAFETY: the caller fulfils the `# Safety` section; `read_file_time` requires no more.
        let window = unsafe { Window::new(read_file_time(start), read_file_time(end)) };
        process_traces(&handles, &window).err().unwrap_or(Status::ERROR_SUCCESS)
    })
}

/// Reads a FILETIME. Returns `None` for NULL.
///
/// # Safety
///
/// `at` is NULL or a FILETIME: the low half, then the high half.
unsafe fn read_file_time(at: *const [u32; 2]) -> Option<FileTime> {
    // SAFETY: the caller passes NULL or a readable `at`.
    let [low, high] = unsafe { ptr::read_value(at) }?;
    Some(FileTime((u64::from(high) << 32 | u64::from(low)).cast_signed()))
}

fn process_traces(handles: &[u64], window: &Window) -> Result<(), Status> {
    let claimed = handles::claim_traces(handles, window)?;
    let schemas = claimed.iter().map(|claimed| Arc::clone(&claimed.entry.details.schemas)).collect();
    let (thread_delivery, _end_delivery) = ThreadDelivery::begin(schemas);
    let mut delivery = TraceDelivery::new(thread_delivery);
    let mut traces = Vec::with_capacity(claimed.len());
    let mut guard = ProcessingGuard { entries: Vec::with_capacity(claimed.len()), handles };
    // A file can be processed again, so its trace is opened again afterwards.
    let mut second_passes = Vec::with_capacity(claimed.len());
    for ClaimedTrace { entry, trace, consumer } in claimed {
        delivery.add(consumer, Arc::clone(&entry.details));
        second_passes.push((Arc::clone(&entry), trace.clone_file()));
        guard.entries.push(entry);
        traces.push(trace);
    }
    let result = consumer::deliver(traces, window, &mut delivery);
    drop(guard);
    for ((entry, file), mut consumer) in second_passes.into_iter().zip(delivery.consumers) {
        if let Some(trace) = file {
            consumer.rewind();
            entry.set_opened(trace, consumer);
        }
    }
    if delivery.is_cancelled {
        return Err(Status::ERROR_CANCELLED);
    }
    result.map_err(|error| error.status())
}

/// Ends the processing of traces when dropped: waits until the program has released the buffers
/// that it keeps, then marks the traces as done.
struct ProcessingGuard<'h> {
    entries: Vec<Arc<OpenedTrace>>,
    handles: &'h [u64],
}

impl Drop for ProcessingGuard<'_> {
    fn drop(&mut self) {
        references::wait_for_release(self.handles);
        self.entries.iter().for_each(|entry| entry.set_done());
    }
}

/// Closes a handle; [`consumer::Closer::end`]. If a thread processes the trace, returns
/// ERROR_CTX_CLOSE_PENDING, and processing ends later.
#[unsafe(no_mangle)]
pub extern "C" fn CloseTrace(handle: u64) -> u32 {
    boundary::to_status(|| handles::close_handle(handle))
}

/// Keeps the buffer of the running buffer callback.
#[unsafe(no_mangle)]
pub extern "C" fn ProcessTraceBufferIncrementReference(handle: u64, buffer: *const BufferHeader) -> u32 {
    boundary::to_status(|| match handles::find_trace(handle) {
        Err(status) => status,
        Ok(entry) if entry.details.kind == Kind::Buffers => Status::ERROR_NOT_SUPPORTED,
        Ok(_) => references::increment(handle, buffer.addr()),
    })
}

/// Releases a buffer that was kept.
#[unsafe(no_mangle)]
pub extern "C" fn ProcessTraceBufferDecrementReference(buffer: *const BufferHeader) -> u32 {
    boundary::to_status(|| references::decrement(buffer.addr()))
}

/// A buffer of a C program that a stream has borrowed.
struct LentBuffer {
    at: *const BufferHeader,
    size: usize,
    completion: CompletionCallback,
}

// SAFETY: by the contract of `ProcessTraceAddBufferToBufferStream`, the buffer does not change
// until it is given back, and any thread may read it.
unsafe impl Send for LentBuffer {}

impl Lent for LentBuffer {
    fn bytes(&self) -> &[u8] {
        // SAFETY: `add_buffer` refused NULL, and the caller of `ProcessTraceAddBufferToBufferStream`
        // guarantees that `size` bytes can be read and do not change.
        unsafe { std::slice::from_raw_parts(self.at.cast::<u8>(), self.size) }
    }

    fn give_back(self: Box<Self>) {
        // SAFETY: the program opened the stream with a function of this type.
        unsafe { (self.completion.function)(self.at, self.completion.context) };
    }
}

/// Adds a buffer to a stream; [`consumer::Feeder::add`].
///
/// # Safety
///
/// `buffer` is NULL, or `size` bytes can be read there and do not change until the completion
/// function has received the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ProcessTraceAddBufferToBufferStream(
    handle: u64,
    buffer: *const BufferHeader,
    size: u32,
) -> u32 {
    boundary::to_status(|| add_buffer(handle, buffer, size).err().unwrap_or(Status::ERROR_SUCCESS))
}

fn add_buffer(handle: u64, at: *const BufferHeader, size: u32) -> Result<(), Status> {
    let entry = handles::find_trace(handle)?;
    let BufferFeed { feeder, completion } = entry.feed.as_ref().ok_or(Status::ERROR_INVALID_HANDLE)?;
    if at.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let is_first = feeder.header().is_none();
    let lent = LentBuffer { at, size: size as usize, completion: *completion };
    feeder.add(Box::new(lent)).map_err(|error| error.status())?;
    if let Some(header) = feeder.header().filter(|_| is_first) {
        entry.details.set_header(TraceLogfileHeader::from(header));
    }
    Ok(())
}

/// Asks the trace whose event this thread delivers. A thread that delivers no event asks all open
/// traces until one has the schema. Returns `None` if there are no traces.
pub(crate) fn ask_traces<T>(mut question: impl FnMut(&mut QueryDecoder) -> Answer<T>) -> Option<Answer<T>> {
    if let Some(thread_delivery) = ThreadDelivery::of_this_thread() {
        return thread_delivery.current_schemas().map(|schemas| schemas.ask(&mut question));
    }
    let mut last = None;
    for schemas in handles::all_schemas() {
        let answer = schemas.ask(&mut question);
        if answer.as_ref().err().is_none_or(|refusal| !refusal.is_missing_schema()) {
            return Some(answer);
        }
        last = Some(answer);
    }
    last
}

/// Locks a mutex, poisoned or not.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
