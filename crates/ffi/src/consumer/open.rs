//! Opens traces as an EVENT_TRACE_LOGFILE or ETW_OPEN_TRACE_OPTIONS describes them.
//!
//! Each function returns a handle. On failure it sets the thread's last error and returns
//! INVALID_PROCESSTRACE_HANDLE.

use std::ffi::c_void;
use std::path::Path;

use traceweir::Status;
use traceweir::consumer::Trace;
use traceweir_format::spec::session::KERNEL_LOGGER_NAME;

use super::deliver::{LogfileWithNames, OnBuffer, OnEvent, TraceConsumer};
use super::handles::{self, BufferFeed, CompletionCallback};
use super::layout::{
    BufferCompletionCallback, ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP, EventCallback, EventRecordCallback,
    EventTraceLogfile, OpenTraceOptions, PROCESS_TRACE_MODE_EVENT_RECORD, PROCESS_TRACE_MODE_RAW_TIMESTAMP,
    PROCESS_TRACE_MODE_REAL_TIME, TraceLogfileHeader,
};
use super::names::{NameEncoding, TraceName};
use crate::{boundary, last_error, ptr};

/// Opens a file or a live session; [`Trace::open`], [`Trace::live`]. Fills the structure
/// with the header of the trace.
///
/// # Safety
///
/// `logfile` is NULL or an EVENT_TRACE_LOGFILEW whose names are NULL or end with 0. Any thread that
/// processes the trace may call its functions with its context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenTraceW(logfile: *mut EventTraceLogfile) -> u64 {
    // SAFETY: the caller fulfils the `# Safety` section; `open_by_structure` requires no more.
    handle_or_last_error(|| unsafe { open_by_structure(logfile, NameEncoding::Wide) })
}

/// Like [`OpenTraceW`], with byte strings as names.
///
/// # Safety
///
/// As [`OpenTraceW`], with an EVENT_TRACE_LOGFILEA.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenTraceA(logfile: *mut EventTraceLogfile) -> u64 {
    // SAFETY: the caller fulfils the `# Safety` section; `open_by_structure` requires no more.
    handle_or_last_error(|| unsafe { open_by_structure(logfile, NameEncoding::Narrow) })
}

/// Runs a function that opens a trace. On failure it sets the last error and returns the invalid
/// handle.
fn handle_or_last_error(open: impl FnOnce() -> Result<u64, Status>) -> u64 {
    let opened = boundary::catch_panic(Err(Status::ERROR_NOACCESS), open);
    opened.unwrap_or_else(|status| {
        last_error::set(status);
        handles::INVALID_PROCESSTRACE_HANDLE
    })
}

/// Opens the trace that a structure describes, and fills in the structure.
///
/// # Safety
///
/// As [`OpenTraceW`].
unsafe fn open_by_structure(at: *mut EventTraceLogfile, encoding: NameEncoding) -> Result<u64, Status> {
    // SAFETY: the caller passes NULL or a readable `at`.
    let structure = unsafe { ptr::read_value(at) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    // SAFETY: the caller fulfils the `# Safety` section; `read` requires no more.
    let (file, logger) =
        unsafe { (encoding.read(structure.log_file_name)?, encoding.read(structure.logger_name)?) };
    let trace = open_by_name(file.as_ref(), logger.as_ref(), structure.process_trace_mode)?;
    let header = trace.header();
    let is_kernel = trace.has_kernel_events() || is_kernel_logger(&header.session_name);
    let filled = EventTraceLogfile {
        logfile_header: TraceLogfileHeader::from(header),
        buffer_size: header.buffer_size,
        is_kernel_trace: u32::from(is_kernel),
        events_lost: header.events_lost,
        ..structure
    };
    let on_event = match structure.event_callback {
        None => OnEvent::Ignore,
        Some(function) if structure.process_trace_mode & PROCESS_TRACE_MODE_EVENT_RECORD != 0 => {
            // SAFETY: the mode says that the union holds an EVENT_RECORD callback; both types are
            // addresses of functions.
            OnEvent::Record(unsafe { std::mem::transmute::<EventCallback, EventRecordCallback>(function) })
        }
        Some(function) => OnEvent::Classic(function),
    };
    let names = [file, logger].map(|name| name.map(|name| name.copy));
    let on_buffer = match structure.buffer_callback {
        Some(function) => OnBuffer::Logfile(function, LogfileWithNames::new(&filled, names)),
        None => OnBuffer::Ignore,
    };
    let has_raw_stamps = structure.process_trace_mode & PROCESS_TRACE_MODE_RAW_TIMESTAMP != 0;
    let consumer = TraceConsumer::new(on_event, on_buffer, has_raw_stamps, structure.context);
    // SAFETY: the caller passes NULL or a writable `at`.
    unsafe { ptr::store(at, filled) };
    Ok(handles::add_trace(trace, consumer, None))
}

/// Returns whether a session name is that of the kernel logger, ignoring case.
fn is_kernel_logger(name: &str) -> bool {
    name.eq_ignore_ascii_case(KERNEL_LOGGER_NAME)
}

/// Opens the trace that the names identify. The mode must match the name that is set.
fn open_by_name(file: Option<&TraceName>, logger: Option<&TraceName>, mode: u32) -> Result<Trace, Status> {
    let is_live = mode & PROCESS_TRACE_MODE_REAL_TIME != 0;
    match (file, logger) {
        (Some(file), None) if !is_live => open_file(file),
        (None, Some(logger)) if is_live => open_live(logger),
        (None, None) => Err(Status::ERROR_BAD_PATHNAME),
        _ => Err(Status::ERROR_INVALID_PARAMETER),
    }
}

fn open_file(name: &TraceName) -> Result<Trace, Status> {
    Trace::open(Path::new(&name.text)).map_err(|error| error.status())
}

fn open_live(name: &TraceName) -> Result<Trace, Status> {
    Trace::live(&name.session_name()?).map_err(|error| error.status())
}

/// Opens a file; [`Trace::open`].
///
/// # Safety
///
/// Pointers are NULL or valid; the name ends with 0. Any thread that processes the trace may call
/// the functions of the options with their contexts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenTraceFromFile(
    name: *const u16,
    options: *const OpenTraceOptions,
    header: *mut TraceLogfileHeader,
) -> u64 {
    // SAFETY: the caller fulfils the `# Safety` section; `open_by_options` requires no more.
    handle_or_last_error(|| unsafe { open_by_options(name, options, header, open_file) })
}

/// Opens a live session; [`Trace::live`].
///
/// # Safety
///
/// As [`OpenTraceFromFile`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenTraceFromRealTimeLogger(
    name: *const u16,
    options: *const OpenTraceOptions,
    header: *mut TraceLogfileHeader,
) -> u64 {
    // SAFETY: the caller fulfils the `# Safety` section; `open_by_options` requires no more.
    handle_or_last_error(|| unsafe { open_by_options(name, options, header, open_live) })
}

/// Like [`OpenTraceFromRealTimeLogger`], with a limit for the memory of buffers that wait for the
/// program ([`Trace::set_queue_limit`]). 0 stands for the default, and the limit is never less than
/// the session's own queue. Memory partitions are not supported.
///
/// # Safety
///
/// As [`OpenTraceFromFile`]; the partition is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenTraceFromRealTimeLoggerWithAllocationOptions(
    name: *const u16,
    options: *const OpenTraceOptions,
    allocation_size: usize,
    memory_partition: *mut c_void,
    header: *mut TraceLogfileHeader,
) -> u64 {
    handle_or_last_error(|| {
        if !memory_partition.is_null() {
            return Err(Status::ERROR_NOT_SUPPORTED);
        }
        let open = |name: &TraceName| {
            let mut trace = open_live(name)?;
            trace.set_queue_limit(allocation_size);
            Ok(trace)
        };
        // SAFETY: the caller fulfils the `# Safety` section; `open_by_options` requires no more.
        unsafe { open_by_options(name, options, header, open) }
    })
}

/// Opens a trace with `open`, and stores its header.
///
/// # Safety
///
/// As [`OpenTraceFromFile`].
unsafe fn open_by_options(
    name: *const u16,
    options: *const OpenTraceOptions,
    header: *mut TraceLogfileHeader,
    open: impl FnOnce(&TraceName) -> Result<Trace, Status>,
) -> Result<u64, Status> {
    // SAFETY: the caller passes NULL or a readable `options`.
    let options = unsafe { ptr::read_value(options) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    if name.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    // SAFETY: the caller fulfils the `# Safety` section; `read` requires no more.
    let name = unsafe { NameEncoding::Wide.read(name.cast()) }?.ok_or(Status::ERROR_BAD_PATHNAME)?;
    let consumer = new_consumer(&options)?;
    let trace = open(&name)?;
    // SAFETY: the caller passes NULL or a writable `header`.
    unsafe { ptr::store(header, TraceLogfileHeader::from(trace.header())) };
    Ok(handles::add_trace(trace, consumer, None))
}

fn new_consumer(options: &OpenTraceOptions) -> Result<TraceConsumer, Status> {
    if options.process_trace_modes & !ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP != 0 {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let on_event = options.event_callback.map_or(OnEvent::Ignore, OnEvent::Record);
    let context = options.buffer_callback_context;
    let on_buffer =
        options.buffer_callback.map_or(OnBuffer::Ignore, |function| OnBuffer::Bytes(function, context));
    let has_raw_stamps = options.process_trace_modes != 0;
    Ok(TraceConsumer::new(on_event, on_buffer, has_raw_stamps, options.event_callback_context))
}

/// Opens a trace of buffers that the program supplies; [`Trace::from_buffers`].
///
/// # Safety
///
/// `options` as for [`OpenTraceFromFile`]; any thread that processes or closes the trace may call
/// the completion function with its context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OpenTraceFromBufferStream(
    options: *const OpenTraceOptions,
    completion: Option<BufferCompletionCallback>,
    context: *mut c_void,
) -> u64 {
    handle_or_last_error(|| {
        // SAFETY: the caller passes NULL or a readable `options`.
        let (Some(options), Some(function)) = (unsafe { ptr::read_value(options) }, completion) else {
            return Err(Status::ERROR_INVALID_PARAMETER);
        };
        let consumer = new_consumer(&options)?;
        let (trace, feeder) = Trace::from_buffers().map_err(|error| error.status())?;
        Ok(handles::add_trace(
            trace,
            consumer,
            Some(BufferFeed { feeder, completion: CompletionCallback { function, context } }),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_logger_name_is_recognized_in_any_case() {
        assert!(is_kernel_logger("NT Kernel Logger") && is_kernel_logger("nt kernel logger"));
        assert!(!is_kernel_logger("NT Kernel Logger 2"));
    }
}
