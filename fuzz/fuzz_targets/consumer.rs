//! Fuzzes consumers with any file and any buffers. Checks that every address that a callback gets
//! is readable for its stated length. The callbacks also call the library.
#![no_main]

use std::cell::Cell;
use std::ffi::c_void;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Sender, channel};

use libfuzzer_sys::fuzz_target;
use traceweir_c::consumer::layout::*;
use traceweir_c::consumer::open::{OpenTraceA, OpenTraceFromBufferStream, OpenTraceFromFile, OpenTraceW};
use traceweir_c::consumer::query::QueryTraceProcessingHandle;
use traceweir_c::consumer::*;
use traceweir_c::tdh::TdhGetEventInformation;
use traceweir_fuzz::arguments::{Arguments, GuardedMemory, call_with_sizes, work_folder};

const INVALID_TRACE_HANDLE: u64 = u64::MAX;
const ERROR_SUCCESS: u32 = 0;
const ERROR_INVALID_HANDLE: u32 = 6;
const ERROR_CTX_CLOSE_PENDING: u32 = 7007;

/// The state of the callbacks of one trace. The callbacks run on the thread that called
/// `ProcessTrace`.
#[derive(Default)]
struct CallbackState {
    handle: Cell<u64>,
    events: Cell<u32>,
    /// The event at which a callback closes the trace; 0 for never.
    close_at: u32,
    /// Number of buffers of a stream that the library still holds.
    lent_buffers: Cell<u32>,
    /// Whether a callback passes its buffer to another thread, which returns it during or after the
    /// callback.
    keeps_buffers: bool,
    is_closed: Cell<bool>,
    sum: Cell<u64>,
}

impl CallbackState {
    /// Reads memory, so that a sanitizer checks it.
    fn check_readable(&self, at: *const u8, length: usize) {
        if length != 0 {
            assert!(!at.is_null());
            // SAFETY: the library passed this memory to its callback; this target checks that it is
            // readable.
            let bytes = unsafe { std::slice::from_raw_parts(at, length) };
            let add_byte = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add((*byte).into());
            self.sum.set(bytes.iter().fold(self.sum.get(), add_byte));
        }
    }

    fn close_trace(&self) {
        if !self.is_closed.replace(true) {
            assert_eq!(CloseTrace(self.handle.get()), ERROR_CTX_CLOSE_PENDING);
            assert_eq!(CloseTrace(self.handle.get()), ERROR_INVALID_HANDLE);
        }
    }

    fn count_event(&self) {
        self.events.set(self.events.get() + 1);
        if self.events.get() == 1 {
            query_handle(self.handle.get());
            assert_eq!(process_trace(self.handle.get()), ERROR_INVALID_HANDLE);
        }
        if self.events.get() == self.close_at {
            self.close_trace();
        }
    }
}

unsafe extern "C" fn on_record(record: *mut EventRecord) {
    // SAFETY: the library passes a valid record and the context of this target.
    let (record, state) = unsafe { (&*record, &*(*record).user_context.cast::<CallbackState>()) };
    state.check_readable(record.user_data.cast(), record.user_data_length.into());
    for index in 0..usize::from(record.extended_data_count) {
        // SAFETY: the index is below the record's count of items.
        let item = unsafe { &*record.extended_data.add(index) };
        state
            .check_readable(std::ptr::with_exposed_provenance(item.data_ptr as usize), item.data_size.into());
    }
    let _ = call_with_sizes(|buffer, size| {
        // SAFETY: the library passed the record to this callback, and the buffer has `size` bytes.
        unsafe { TdhGetEventInformation(record, 0, null(), buffer.cast(), size) }
    });
    state.count_event();
}

thread_local! {
    /// The state for callbacks that get an EVENT_TRACE, which has no context.
    static CALLBACK_STATE: Cell<*const CallbackState> = const { Cell::new(null()) };
    static BUFFER_KEEPER: Sender<usize> = spawn_buffer_keeper();
}

unsafe extern "C" fn on_event(event: *mut EventTrace) {
    // SAFETY: the library passes a valid event, and the state was set before.
    let (event, state) = unsafe { (&*event, &*CALLBACK_STATE.get()) };
    state.check_readable(event.mof_data.cast(), event.mof_length as usize);
    state.count_event();
}

/// The buffer callback of EVENT_TRACE_LOGFILE. If `close_at` is odd, it ends the processing at some
/// buffer.
unsafe extern "C" fn on_logfile_buffer(log: *mut EventTraceLogfile) -> u32 {
    // SAFETY: the library passes a valid structure and the context of this target.
    let (log, state) = unsafe { (&*log, &*(*log).context.cast::<CallbackState>()) };
    u32::from(log.buffers_read % 7 != 6 || state.close_at & 1 == 0)
}

/// The buffer callback of OpenTraceFromFile.
unsafe extern "C" fn on_buffer(
    buffer: *const BufferHeader,
    size: u32,
    information: *const BufferCallbackInformation,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the context is the `CallbackState` that this target passed when it opened the trace.
    let state = unsafe { &*context.cast::<CallbackState>() };
    state.check_readable(buffer.cast(), size as usize);
    assert_eq!(read_information(information).trace_handle, state.handle.get());
    if state.keeps_buffers && !state.is_closed.get() {
        assert_eq!(ProcessTraceBufferIncrementReference(state.handle.get(), buffer), ERROR_SUCCESS);
        BUFFER_KEEPER
            .with(|keeper| keeper.send(buffer.expose_provenance()))
            .expect("the thread that returns buffers runs");
    }
    1
}

fn read_information(at: *const BufferCallbackInformation) -> BufferCallbackInformation {
    // SAFETY: the address is valid while the callback runs.
    unsafe { at.read() }
}

/// Returns a channel to another thread, which reads the buffers that it gets and returns them,
/// during the callback or after it.
fn spawn_buffer_keeper() -> Sender<usize> {
    let (sender, buffers) = channel::<usize>();
    std::thread::spawn(move || {
        for buffer in buffers {
            let buffer: *const BufferHeader = std::ptr::with_exposed_provenance(buffer);
            CallbackState::default().check_readable(buffer.cast(), size_of::<BufferHeader>());
            assert_eq!(ProcessTraceBufferDecrementReference(buffer), ERROR_SUCCESS);
        }
    });
    sender
}

unsafe extern "C" fn on_completion(_: *const BufferHeader, context: *mut c_void) {
    // SAFETY: the context is the `CallbackState` that this target passed when it opened the trace.
    let state = unsafe { &*context.cast::<CallbackState>() };
    state.lent_buffers.set(state.lent_buffers.get() - 1);
    // A stream ends only when it is closed.
    if state.lent_buffers.get() == 0 && state.handle.get() != 0 {
        state.close_trace();
    }
}

fn query_handle(handle: u64) {
    for class in 0..6 {
        let _ = call_with_sizes(|buffer, size| {
            let buffer_bytes = *size;
            // SAFETY: the buffer has `buffer_bytes` bytes.
            unsafe { QueryTraceProcessingHandle(handle, class, null(), 0, buffer.cast(), buffer_bytes, size) }
        });
    }
}

fn process_trace(handle: u64) -> u32 {
    // SAFETY: the array has one handle.
    unsafe { ProcessTrace(&handle, 1, null(), null()) }
}

/// Processes a trace twice and closes it. Only a file that is still open can be read again.
fn process_and_close(state: &CallbackState, is_file: bool) {
    let handle = state.handle.get();
    query_handle(handle);
    process_trace(handle);
    let is_open_file = is_file && !state.is_closed.get();
    let second_status = process_trace(handle);
    assert!(is_open_file || second_status == ERROR_INVALID_HANDLE, "{second_status}");
    assert!(!is_open_file || second_status != ERROR_INVALID_HANDLE, "an open file is not read again");
    assert_eq!(
        CloseTrace(handle),
        if state.is_closed.replace(true) { ERROR_INVALID_HANDLE } else { ERROR_SUCCESS }
    );
}

fn process_file(arguments: &mut Arguments<'_>, state: &CallbackState) {
    let (choices, mode) = (arguments.take_u8(), arguments.take_u32());
    let (opens_from_file, has_buffer_callback) = (choices & 1 != 0, choices & 4 != 0);
    let mut log = GuardedMemory::new(size_of::<EventTraceLogfile>(), &[]);
    let path = work_folder().join("in.etl");
    std::fs::write(&path, arguments.0).expect("the input file can be written");
    let narrow: Vec<u8> = path.as_os_str().as_bytes().iter().copied().chain([0]).collect();
    let wide: Vec<u16> = narrow.iter().map(|byte| (*byte).into()).collect();
    let context: *mut c_void = std::ptr::from_ref(state).cast_mut().cast();
    if opens_from_file {
        let has_event_callback = choices & 2 != 0;
        let options = OpenTraceOptions {
            process_trace_modes: mode & 3,
            event_callback: has_event_callback.then_some(on_record),
            event_callback_context: context,
            buffer_callback: has_buffer_callback.then_some(on_buffer),
            buffer_callback_context: context,
        };
        // SAFETY: the name is terminated; the options are valid and live until the trace is closed.
        state.handle.set(unsafe { OpenTraceFromFile(wide.as_ptr(), &options, null_mut()) });
    } else {
        let is_wide = choices & 2 != 0;
        let name: *const c_void = if is_wide { wide.as_ptr().cast() } else { narrow.as_ptr().cast() };
        let at = log.address::<EventTraceLogfile>();
        // No daemon is reachable, so the trace is not a live one.
        let mode = mode & !PROCESS_TRACE_MODE_REAL_TIME;
        // SAFETY: the memory has the structure's size, and zeros are a valid structure.
        unsafe {
            (*at).log_file_name = name.cast_mut();
            (*at).process_trace_mode = mode;
            (*at).context = context;
            (*at).buffer_callback = has_buffer_callback.then_some(on_logfile_buffer);
            (*at).event_callback = Some(if mode & PROCESS_TRACE_MODE_EVENT_RECORD == 0 {
                on_event
            } else {
                std::mem::transmute::<EventRecordCallback, EventCallback>(on_record)
            });
            state.handle.set(if is_wide { OpenTraceW(at) } else { OpenTraceA(at) });
        }
        log.check_canaries();
    }
    if state.handle.get() != INVALID_TRACE_HANDLE {
        process_and_close(state, true);
    }
}

fn process_stream(arguments: &mut Arguments<'_>, state: &CallbackState) {
    let context: *mut c_void = std::ptr::from_ref(state).cast_mut().cast();
    let options = OpenTraceOptions {
        process_trace_modes: u32::from(arguments.take_u8() & 1),
        event_callback: Some(on_record),
        event_callback_context: context,
        buffer_callback: None,
        buffer_callback_context: null_mut(),
    };
    // SAFETY: options and context live until the trace is closed.
    let handle = unsafe { OpenTraceFromBufferStream(&options, Some(on_completion), context) };
    assert_ne!(handle, INVALID_TRACE_HANDLE);
    let mut buffers = Vec::new();
    while !arguments.is_empty() {
        let bytes = arguments.take_bytes();
        let mut buffer = GuardedMemory::new(bytes.len(), &bytes);
        // SAFETY: the buffer has as many bytes as stated, and lives until the trace is closed.
        if unsafe { ProcessTraceAddBufferToBufferStream(handle, buffer.address(), buffer.size()) }
            == ERROR_SUCCESS
        {
            state.lent_buffers.set(state.lent_buffers.get() + 1);
            buffers.push(buffer);
        }
    }
    // From here on, the last returned buffer closes the trace.
    state.handle.set(handle);
    if state.lent_buffers.get() == 0 {
        assert_eq!(CloseTrace(handle), ERROR_SUCCESS);
    } else {
        process_and_close(state, false);
    }
    assert_eq!(state.lent_buffers.get(), 0, "the library must return all buffers");
    buffers.iter().for_each(GuardedMemory::check_canaries);
}

fuzz_target!(|data: &[u8]| {
    // Enters the work folder and makes daemons unreachable, before the first call of the library.
    work_folder();
    let mut arguments = Arguments(data);
    let (close_at, choices) = (arguments.take_u8().into(), arguments.take_u8());
    let (is_stream, keeps_buffers) = (choices & 1 != 0, choices & 2 != 0);
    let state = CallbackState { close_at, keeps_buffers, ..CallbackState::default() };
    CALLBACK_STATE.set(&raw const state);
    if is_stream { process_stream(&mut arguments, &state) } else { process_file(&mut arguments, &state) }
});
