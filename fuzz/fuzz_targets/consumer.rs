//! Consumers of any file and of any buffers: every address that a callback gets can be read for as long as it says, and callbacks call back.
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
use traceweir_fuzz::given::{Given, Memory, asked, folder};

const INVALID: u64 = u64::MAX;
const SUCCESS: u32 = 0;
const INVALID_HANDLE: u32 = 6;
const CLOSE_PENDING: u32 = 7007;

/// What the callbacks of one trace know; they meet it while whoever called the library does.
#[derive(Default)]
struct Told {
    handle: Cell<u64>,
    events: Cell<u32>,
    /// The event at which the trace is closed from within; 0 for never.
    close_at: u32,
    /// Buffers of a stream that are still lent.
    lent: Cell<u32>,
    /// Whether buffers are kept beyond their callback.
    keeps: bool,
    is_closed: Cell<bool>,
    sum: Cell<u64>,
}

impl Told {
    /// Reads memory, so that a sanitizer sees it.
    fn read(&self, at: *const u8, length: usize) {
        if length != 0 {
            assert!(!at.is_null());
            // SAFETY: what the library gave its callback; that it can be read is what this target is about.
            let bytes = unsafe { std::slice::from_raw_parts(at, length) };
            let add = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add((*byte).into());
            self.sum.set(bytes.iter().fold(self.sum.get(), add));
        }
    }

    fn close(&self) {
        if !self.is_closed.replace(true) {
            assert_eq!(CloseTrace(self.handle.get()), CLOSE_PENDING);
            assert_eq!(CloseTrace(self.handle.get()), INVALID_HANDLE);
        }
    }

    fn event(&self) {
        self.events.set(self.events.get() + 1);
        if self.events.get() == 1 {
            query(self.handle.get());
            assert_eq!(process(self.handle.get()), INVALID_HANDLE);
        }
        if self.events.get() == self.close_at {
            self.close();
        }
    }
}

unsafe extern "C" fn on_record(record: *mut EventRecord) {
    // SAFETY: a record and the context that was given.
    let (record, told) = unsafe { (&*record, &*(*record).user_context.cast::<Told>()) };
    told.read(record.user_data.cast(), record.user_data_length.into());
    for index in 0..usize::from(record.extended_data_count) {
        // SAFETY: as many items as it says.
        let item = unsafe { &*record.extended_data.add(index) };
        told.read(std::ptr::with_exposed_provenance(item.data_ptr as usize), item.data_size.into());
    }
    let _ = asked(|buffer, size| {
        // SAFETY: the record is the library's own, the buffer has as many bytes as are said.
        unsafe { TdhGetEventInformation(record, 0, null(), buffer.cast(), size) }
    });
    told.event();
}

thread_local! {
    /// The older callbacks have no context.
    static TOLD: Cell<*const Told> = const { Cell::new(null()) };
    static KEEPER: Sender<usize> = keeper();
}

unsafe extern "C" fn on_event(event: *mut EventTrace) {
    // SAFETY: an event, and what was put there before.
    let (event, told) = unsafe { (&*event, &*TOLD.get()) };
    told.read(event.mof_data.cast(), event.mof_length as usize);
    told.event();
}

unsafe extern "C" fn on_logfile(log: *mut EventTraceLogfile) -> u32 {
    // SAFETY: the structure and the context that was given.
    let (log, told) = unsafe { (&*log, &*(*log).context.cast::<Told>()) };
    u32::from(log.buffers_read % 7 != 6 || told.close_at & 1 == 0)
}

unsafe extern "C" fn on_buffer(
    buffer: *const BufferHead,
    size: u32,
    information: *const BufferCallbackInformation,
    context: *mut c_void,
) -> i32 {
    // SAFETY: the context that was given.
    let told = unsafe { &*context.cast::<Told>() };
    told.read(buffer.cast(), size as usize);
    assert_eq!(information_of(information).trace_handle, told.handle.get());
    if told.keeps && !told.is_closed.get() {
        assert_eq!(ProcessTraceBufferIncrementReference(told.handle.get(), buffer), SUCCESS);
        KEEPER.with(|keeper| keeper.send(buffer.expose_provenance())).expect("a thread that gives it back");
    }
    1
}

fn information_of(at: *const BufferCallbackInformation) -> BufferCallbackInformation {
    // SAFETY: valid while the callback runs.
    unsafe { at.read() }
}

/// Another thread, to which buffers go that are kept: it reads them and gives them back, during the callback or after it.
fn keeper() -> Sender<usize> {
    let (sender, buffers) = channel::<usize>();
    std::thread::spawn(move || {
        for buffer in buffers {
            let buffer: *const BufferHead = std::ptr::with_exposed_provenance(buffer);
            Told::default().read(buffer.cast(), size_of::<BufferHead>());
            assert_eq!(ProcessTraceBufferDecrementReference(buffer), SUCCESS);
        }
    });
    sender
}

unsafe extern "C" fn on_completion(_: *const BufferHead, context: *mut c_void) {
    // SAFETY: the context that was given.
    let told = unsafe { &*context.cast::<Told>() };
    told.lent.set(told.lent.get() - 1);
    // Only closing ends a stream.
    if told.lent.get() == 0 && told.handle.get() != 0 {
        told.close();
    }
}

fn query(handle: u64) {
    for class in 0..6 {
        let _ = asked(|buffer, size| {
            let room = *size;
            // SAFETY: as many bytes as are said.
            unsafe { QueryTraceProcessingHandle(handle, class, null(), 0, buffer.cast(), room, size) }
        });
    }
}

fn process(handle: u64) -> u32 {
    // SAFETY: one handle.
    unsafe { ProcessTrace(&handle, 1, null(), null()) }
}

/// Processes and closes.
fn processed(told: &Told) {
    let handle = told.handle.get();
    query(handle);
    process(handle);
    assert_eq!(process(handle), INVALID_HANDLE);
    assert_eq!(CloseTrace(handle), if told.is_closed.replace(true) { INVALID_HANDLE } else { SUCCESS });
}

fn file(given: &mut Given<'_>, told: &Told) {
    let (kind, mode, mut log) =
        (given.byte(), given.number(), Memory::new(size_of::<EventTraceLogfile>(), &[]));
    let path = folder().join("in.etl");
    std::fs::write(&path, given.0).expect("a file");
    let narrow: Vec<u8> = path.as_os_str().as_bytes().iter().copied().chain([0]).collect();
    let wide: Vec<u16> = narrow.iter().map(|byte| (*byte).into()).collect();
    let context: *mut c_void = std::ptr::from_ref(told).cast_mut().cast();
    if kind & 1 != 0 {
        let options = OpenTraceOptions {
            process_trace_modes: mode & 3,
            event_callback: (kind & 2 != 0).then_some(on_record),
            event_callback_context: context,
            buffer_callback: (kind & 4 != 0).then_some(on_buffer),
            buffer_callback_context: context,
        };
        // SAFETY: the name ends, the options are valid and live until the trace is closed.
        told.handle.set(unsafe { OpenTraceFromFile(wide.as_ptr(), &options, null_mut()) });
    } else {
        let is_wide = kind & 2 != 0;
        let name: *const c_void = if is_wide { wide.as_ptr().cast() } else { narrow.as_ptr().cast() };
        let at = log.at::<EventTraceLogfile>();
        // Not a live one: nobody is there.
        let mode = mode & !PROCESS_TRACE_MODE_REAL_TIME;
        // SAFETY: memory of the structure's size; zeros are one.
        unsafe {
            (*at).log_file_name = name.cast_mut();
            (*at).process_trace_mode = mode;
            (*at).context = context;
            (*at).buffer_callback = (kind & 4 != 0).then_some(on_logfile);
            (*at).event_callback = Some(if mode & PROCESS_TRACE_MODE_EVENT_RECORD == 0 {
                on_event
            } else {
                std::mem::transmute::<EventRecordCallback, EventCallback>(on_record)
            });
            told.handle.set(if is_wide { OpenTraceW(at) } else { OpenTraceA(at) });
        }
        log.check();
    }
    if told.handle.get() != INVALID {
        processed(told);
    }
}

fn stream(given: &mut Given<'_>, told: &Told) {
    let context: *mut c_void = std::ptr::from_ref(told).cast_mut().cast();
    let options = OpenTraceOptions {
        process_trace_modes: u32::from(given.byte() & 1),
        event_callback: Some(on_record),
        event_callback_context: context,
        buffer_callback: None,
        buffer_callback_context: null_mut(),
    };
    // SAFETY: options and context live until the trace is closed.
    let handle = unsafe { OpenTraceFromBufferStream(&options, Some(on_completion), context) };
    assert_ne!(handle, INVALID);
    let mut buffers = Vec::new();
    while !given.is_empty() {
        let bytes = given.bytes();
        let mut buffer = Memory::new(bytes.len(), &bytes);
        // SAFETY: as many bytes as are said, which stay until the trace is closed.
        if unsafe { ProcessTraceAddBufferToBufferStream(handle, buffer.at(), buffer.size()) } == SUCCESS {
            told.lent.set(told.lent.get() + 1);
            buffers.push(buffer);
        }
    }
    // From here on the last one that comes back closes it.
    told.handle.set(handle);
    if told.lent.get() == 0 {
        assert_eq!(CloseTrace(handle), SUCCESS);
    } else {
        processed(told);
    }
    assert_eq!(told.lent.get(), 0, "all buffers are given back");
    buffers.iter().for_each(Memory::check);
}

fuzz_target!(|data: &[u8]| {
    folder();
    let mut given = Given(data);
    let (close_at, kind) = (given.byte().into(), given.byte());
    let told = Told { close_at, keeps: kind & 2 != 0, ..Told::default() };
    TOLD.set(&raw const told);
    if kind & 1 == 0 { file(&mut given, &told) } else { stream(&mut given, &told) }
});
