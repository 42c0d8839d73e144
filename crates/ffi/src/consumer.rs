//! Consumers: evntcons.h, and the half of evntrace.h that opens and processes traces.
//!
//! ```text
//!   OpenTrace… ──▶ handles: number ─▶ trace, functions of the program
//!                     │
//!   ProcessTrace ─────┴─▶ consumer::deliver ──▶ deliver ──▶ record: EVENT_RECORD on the spot ──▶ the program's function
//!                                                   └─────▶ references: buffers that it keeps
//!   CloseTrace ──▶ the number is nobody's any more; what is being processed comes to its end
//! ```
//!
//! | File | What it knows |
//! |---|---|
//! | `open` | OpenTrace and its relatives |
//! | `handles` | which numbers are handles, and how far their traces are |
//! | `deliver` | whom to call for an event, a loss, a buffer |
//! | `record` | EVENT_RECORD and EVENT_TRACE of a record |
//! | `schemas` | what traces say about their events, for tdh.h |
//! | `references` | buffers that a program keeps beyond its callback |
//! | `classes` | functions for classes of classic events |
//! | `query` | QueryTraceProcessingHandle |
//! | `layout` | the structures of the headers |
//! | `names` | names of files and sessions |
//!
//! Callbacks may call any function here, for their own handle too; no lock is held while they run.

mod aligned;
pub mod classes;
mod deliver;
mod handles;
pub mod layout;
mod names;
pub mod open;
pub mod query;
mod record;
mod references;
pub(crate) mod schemas;

use std::sync::Arc;

use traceweir::Status;
use traceweir::consumer::{self, Kind, Lent, Window};
use traceweir_format::time::FileTime;

use crate::{boundary, ptr};
use deliver::Delivery;
use handles::{Claimed, Completion, Entry};
use layout::{BufferHead, TraceLogfileHeader};
use schemas::Delivered;

/// The most handles that are processed together.
const MOST: u32 = 64;

/// Delivers the events of traces; [`consumer::deliver`]. Returns when they have ended or were closed.
///
/// # Safety
///
/// `handles` has `count` elements; the times are NULL or FILETIMEs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ProcessTrace(
    handles: *const u64,
    count: u32,
    start: *const [u32; 2],
    end: *const [u32; 2],
) -> u32 {
    boundary::status(|| {
        if count == 0 || count > MOST {
            return Status::ERROR_BAD_LENGTH;
        }
        // SAFETY: by the contract.
        let Some(handles) = (unsafe { ptr::array(handles, count as usize) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        // Copied: a callback may change the array.
        let handles = handles.to_vec();
        // SAFETY: by the contract.
        let window = unsafe { Window { from: file_time(start), to: file_time(end) } };
        process(&handles, &window).err().unwrap_or(Status::ERROR_SUCCESS)
    })
}

/// # Safety
///
/// `at` is NULL or a FILETIME: the low half, then the high one.
unsafe fn file_time(at: *const [u32; 2]) -> Option<FileTime> {
    // SAFETY: by the contract.
    let [low, high] = unsafe { ptr::copied(at) }?;
    Some(FileTime((u64::from(high) << 32 | u64::from(low)).cast_signed()))
}

fn process(handles: &[u64], window: &Window) -> Result<(), Status> {
    let claimed = handles::claim(handles, window)?;
    let schemas = claimed.iter().map(|claimed| Arc::clone(&claimed.entry.schemas)).collect();
    let (delivered, _ends) = Delivered::begin(schemas);
    let mut delivery = Delivery::new(delivered);
    let mut traces = Vec::with_capacity(claimed.len());
    let mut over = Over { entries: Vec::with_capacity(claimed.len()), handles };
    for Claimed { entry, trace, consumer } in claimed {
        over.entries.push(entry.clone());
        delivery.add(consumer, entry);
        traces.push(trace);
    }
    let ended = consumer::deliver(traces, window, &mut delivery);
    drop(over);
    if delivery.is_cancelled {
        return Err(Status::ERROR_CANCELLED);
    }
    ended.map_err(|error| error.status())
}

/// Whichever way processing ends, its handles are done and what the program keeps of it is waited for.
struct Over<'h> {
    entries: Vec<Arc<Entry>>,
    handles: &'h [u64],
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        references::wait_for_release(self.handles);
        self.entries.iter().for_each(|entry| entry.done());
    }
}

/// Ends a handle; [`consumer::Closer::end`]. What is being processed ends later, which is ERROR_CTX_CLOSE_PENDING.
#[unsafe(no_mangle)]
pub extern "C" fn CloseTrace(handle: u64) -> u32 {
    boundary::status(|| handles::close(handle))
}

/// Keeps the buffer of the buffer callback that is running.
#[unsafe(no_mangle)]
pub extern "C" fn ProcessTraceBufferIncrementReference(handle: u64, buffer: *const BufferHead) -> u32 {
    boundary::status(|| match handles::find(handle) {
        Err(status) => status,
        Ok(entry) if entry.kind == Kind::Buffers => Status::ERROR_NOT_SUPPORTED,
        Ok(_) => references::increment(handle, buffer.addr()),
    })
}

/// Gives a buffer back that was kept.
#[unsafe(no_mangle)]
pub extern "C" fn ProcessTraceBufferDecrementReference(buffer: *const BufferHead) -> u32 {
    boundary::status(|| references::decrement(buffer.addr()))
}

/// A buffer of C that is lent to a stream.
struct LentByC {
    at: *const BufferHead,
    size: usize,
    completion: Completion,
}

// SAFETY: that the buffer stays as it is until it is given back, whichever thread reads it, is the contract of who lends it.
unsafe impl Send for LentByC {}

impl Lent for LentByC {
    fn bytes(&self) -> &[u8] {
        // SAFETY: by the contract of who lends it; NULL was refused.
        unsafe { std::slice::from_raw_parts(self.at.cast::<u8>(), self.size) }
    }

    fn give_back(self: Box<Self>) {
        // SAFETY: the function has this type by the contract of opening.
        unsafe { (self.completion.function)(self.at, self.completion.context) };
    }
}

/// Brings a buffer to a stream; [`consumer::Feeder::add`].
///
/// # Safety
///
/// `buffer` is NULL, or `size` bytes can be read there and stay as they are until the completion function has the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ProcessTraceAddBufferToBufferStream(
    handle: u64,
    buffer: *const BufferHead,
    size: u32,
) -> u32 {
    boundary::status(|| add(handle, buffer, size).err().unwrap_or(Status::ERROR_SUCCESS))
}

fn add(handle: u64, at: *const BufferHead, size: u32) -> Result<(), Status> {
    let entry = handles::find(handle)?;
    let (feeder, completion) = entry.feed.as_ref().ok_or(Status::ERROR_INVALID_HANDLE)?;
    if at.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let is_first = feeder.header().is_none();
    let lent = LentByC { at, size: size as usize, completion: *completion };
    feeder.add(Box::new(lent)).map_err(|error| error.status())?;
    if let Some(header) = feeder.header().filter(|_| is_first) {
        entry.set_header(TraceLogfileHeader::from(header));
    }
    Ok(())
}
