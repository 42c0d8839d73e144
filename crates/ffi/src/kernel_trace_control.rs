//! KernelTraceControl.h: starts the kernel logger with call stacks, and merges traces.
//!
//! | File | Responsibility |
//! |---|---|
//! | `metadata` | schemas of events, which a merge writes into the trace |
//!
//! Source: Documented ("StartKernelTrace", "CreateMergedTraceFile", "Custom Injection of System
//! Information").

mod metadata;

use std::path::PathBuf;

use traceweir::Status;
use traceweir::consumer::Event;
use traceweir::relog::{Output, Relogger, Settings};

use crate::evntrace::controller::start_kernel_logger;
use crate::text;
use crate::types::controller::EventTraceProperties;
use crate::{boundary, ptr};
use metadata::SchemaWriter;

/// EVENT_TRACE_MERGE_EXTENDED_DATA_EVENT_METADATA.
const MERGE_EVENT_METADATA: u32 = 0x10;
/// EVENT_TRACE_MERGE_EXTENDED_DATA_COMPRESS_TRACE.
const MERGE_COMPRESS_TRACE: u32 = 0x1000_0000;
/// The most traces that one call merges.
const MAX_TRACES: usize = 4096;
/// Size of STACK_TRACING_EVENT_ID: a GUID, a type, and seven reserved bytes.
const STACK_EVENT_BYTES: usize = 24;
/// The most events with stacks that a session accepts.
const MAX_STACK_EVENTS: usize = 256;

/// Starts the session "NT Kernel Logger", which records the call stacks of the listed kernel events
/// from its start on. Listed events that the session does not enable are ignored.
///
/// # Safety
///
/// Pointers are NULL or valid: `properties` has `Wnode.BufferSize` bytes, `stack_events` has
/// `stack_count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn StartKernelTrace(
    id: *mut u64,
    properties: *mut EventTraceProperties,
    stack_events: *const [u8; STACK_EVENT_BYTES],
    stack_count: u32,
) -> u32 {
    boundary::to_status(|| {
        let count = stack_count as usize;
        if count > MAX_STACK_EVENTS {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        // SAFETY: the caller passes NULL or `stack_count` elements.
        let events =
            unsafe { ptr::read_array(stack_events, count) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
        // The elements have the layout of CLASSIC_EVENT_ID.
        // SAFETY: the caller fulfils the `# Safety` section; `start_kernel_logger` requires no
        // more.
        unsafe { start_kernel_logger(id, properties, events.concat()) }
    })
}

/// Merges traces into one file, in the order of time. Two flags have an effect:
/// EVENT_TRACE_MERGE_EXTENDED_DATA_EVENT_METADATA adds the schemas of events of manifests, and
/// EVENT_TRACE_MERGE_EXTENDED_DATA_COMPRESS_TRACE compresses the file. The other flags request the
/// identities of images, the build and the paths, which traces of this system always contain.
///
/// # Safety
///
/// `merged` is NULL or has a terminator; `traces` is NULL or has `count` elements, each NULL or
/// with a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateMergedTraceFile(
    merged: *const u16,
    traces: *const *const u16,
    count: u32,
    flags: u32,
) -> u32 {
    boundary::to_status(|| {
        if count == 0 || count as usize > MAX_TRACES {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        // SAFETY: the caller passes NULL or `count` elements.
        let traces =
            unsafe { ptr::read_array(traces, count as usize) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
        // SAFETY: the caller passes NULL or texts with terminators.
        let traces: Vec<PathBuf> =
            traces.iter().map(|path| unsafe { read_path(*path) }).collect::<Result<_, _>>()?;
        // SAFETY: the caller passes NULL or a text with a terminator.
        let merged = unsafe { read_path(merged) }?;
        merge(&traces, &merged, flags).map_err(|error| error.status())?;
        Ok(Status::ERROR_SUCCESS)
    })
}

fn merge(traces: &[PathBuf], merged: &std::path::Path, flags: u32) -> traceweir::Result<()> {
    let mut relogger = Relogger::new();
    for path in traces {
        relogger.add_file(path)?;
    }
    relogger.set_output(merged);
    relogger.set(Settings::default().compressed(flags & MERGE_COMPRESS_TRACE != 0));
    let mut schemas = (flags & MERGE_EVENT_METADATA != 0).then(SchemaWriter::default);
    relogger.process(|event: &Event<'_>, output: &mut Output| {
        if let Some(schemas) = &mut schemas {
            schemas.write_schema_of(event, output)?;
        }
        output.keep(event)
    })?;
    Ok(())
}

/// Reads a path. NULL and an empty path are invalid.
///
/// # Safety
///
/// `at` is NULL or has a terminator.
unsafe fn read_path(at: *const u16) -> Result<PathBuf, Status> {
    if at.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    // SAFETY: `at` is not NULL, so the caller guarantees a terminator.
    let path = unsafe { text::read(at, text::MAX_PATH_UNITS) }?;
    if path.is_empty() { Err(Status::ERROR_INVALID_PARAMETER) } else { Ok(path.into()) }
}
