//! Structures of evntcons.h and of the consumer half of evntrace.h.
//!
//! Source: Documented (evntcons.h, evntrace.h). A test compares every size and offset with what C
//! compilers compute from the headers. A field that is a union in C has the name of the member that
//! is used here.
#![allow(missing_docs)] // The fields are documented with the published structures.

use std::ffi::c_void;

use traceweir::Guid;
use traceweir_format::logfile::{LogFileHeader, TimeZone};

use crate::types::EventTraceHeader;
pub use crate::types::record::{BufferContext, EventHeader, EventRecord, ExtendedDataItem};

/// The published structure EVENT_EXTENDED_ITEM_INSTANCE.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InstanceItem {
    pub instance_id: u32,
    pub parent_instance_id: u32,
    pub parent_guid: Guid,
}

/// The published structure EVENT_TRACE.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventTrace {
    pub header: EventTraceHeader,
    pub instance_id: u32,
    pub parent_instance_id: u32,
    pub parent_guid: Guid,
    pub mof_data: *mut c_void,
    pub mof_length: u32,
    pub buffer_context: BufferContext,
}

/// The published structure TIME_ZONE_INFORMATION.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TimeZoneInformation {
    pub bias: i32,
    pub standard_name: [u16; 32],
    pub standard_date: [u16; 8],
    pub standard_bias: i32,
    pub daylight_name: [u16; 32],
    pub daylight_date: [u16; 8],
    pub daylight_bias: i32,
}

/// The published structure TRACE_LOGFILE_HEADER.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceLogfileHeader {
    pub buffer_size: u32,
    pub versions: [u8; 4],
    pub provider_version: u32,
    pub number_of_processors: u32,
    pub end_time: i64,
    pub timer_resolution: u32,
    pub maximum_file_size: u32,
    pub log_file_mode: u32,
    pub buffers_written: u32,
    pub start_buffers: u32,
    pub pointer_size: u32,
    pub events_lost: u32,
    pub cpu_speed_in_mhz: u32,
    pub logger_name: *mut u16,
    pub log_file_name: *mut u16,
    pub time_zone: TimeZoneInformation,
    /// C compilers insert this padding.
    pub padding: u32,
    pub boot_time: i64,
    pub perf_freq: i64,
    pub start_time: i64,
    pub reserved_flags: u32,
    pub buffers_lost: u32,
}

// SAFETY: the library never dereferences the two addresses.
unsafe impl Send for TraceLogfileHeader {}
// SAFETY: as for `Send`.
unsafe impl Sync for TraceLogfileHeader {}

/// The published callback type EVENT_CALLBACK.
pub type EventCallback = unsafe extern "C" fn(*mut EventTrace);
/// The published callback type EVENT_RECORD_CALLBACK.
pub type EventRecordCallback = unsafe extern "C" fn(*mut EventRecord);
/// The published callback type EVENT_TRACE_BUFFER_CALLBACKW and its A form.
pub type LogfileBufferCallback = unsafe extern "C" fn(*mut EventTraceLogfile) -> u32;
/// The published callback type ETW_BUFFER_CALLBACK.
pub type BufferCallback =
    unsafe extern "C" fn(*const BufferHeader, u32, *const BufferCallbackInformation, *mut c_void) -> i32;
/// The published callback type ETW_BUFFER_COMPLETION_CALLBACK.
pub type BufferCompletionCallback = unsafe extern "C" fn(*const BufferHeader, *mut c_void);

/// EVENT_TRACE_LOGFILEW and A, which differ only in the character type of the names.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventTraceLogfile {
    pub log_file_name: *mut c_void,
    pub logger_name: *mut c_void,
    pub current_time: i64,
    pub buffers_read: u32,
    pub process_trace_mode: u32,
    pub current_event: EventTrace,
    pub logfile_header: TraceLogfileHeader,
    pub buffer_callback: Option<LogfileBufferCallback>,
    pub buffer_size: u32,
    pub filled: u32,
    pub events_lost: u32,
    /// An [`EventCallback`], or an [`EventRecordCallback`] with
    /// [`PROCESS_TRACE_MODE_EVENT_RECORD`].
    pub event_callback: Option<EventCallback>,
    pub is_kernel_trace: u32,
    pub context: *mut c_void,
}

/// The published structure ETW_BUFFER_HEADER.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BufferHeader {
    pub reserved1: [u32; 4],
    pub time_stamp: i64,
    pub reserved2: [u32; 4],
    pub client_context: BufferContext,
    pub reserved3: u32,
    pub filled_bytes: u32,
    pub reserved4: [u32; 5],
}

/// The published structure ETW_BUFFER_CALLBACK_INFORMATION.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BufferCallbackInformation {
    pub trace_handle: u64,
    pub logfile_header: *const TraceLogfileHeader,
    pub buffers_read: u32,
}

/// The published structure ETW_OPEN_TRACE_OPTIONS.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OpenTraceOptions {
    pub process_trace_modes: u32,
    pub event_callback: Option<EventRecordCallback>,
    pub event_callback_context: *mut c_void,
    pub buffer_callback: Option<BufferCallback>,
    pub buffer_callback_context: *mut c_void,
}

/// The published structure ETW_TRACE_PARTITION_INFORMATION.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PartitionInformation {
    pub partition_id: Guid,
    pub parent_id: Guid,
    pub qpc_offset_from_root: i64,
    pub partition_type: u32,
}

/// The published structure ETW_TRACE_PARTITION_INFORMATION_V2.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PartitionInformationV2 {
    pub qpc_offset_from_root: i64,
    pub partition_type: u32,
    pub partition_id: *mut u16,
    pub parent_id: *mut u16,
}

// Flags of `ProcessTraceMode`.
pub const PROCESS_TRACE_MODE_REAL_TIME: u32 = 0x100;
pub const PROCESS_TRACE_MODE_RAW_TIMESTAMP: u32 = 0x1000;
pub const PROCESS_TRACE_MODE_EVENT_RECORD: u32 = 0x1000_0000;
/// A flag of the enumeration ETW_PROCESS_TRACE_MODES.
pub const ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP: u32 = 1;

const _: () = assert!(size_of::<EventTrace>() == 88 && size_of::<TraceLogfileHeader>() == 280);
const _: () = assert!(size_of::<EventTraceLogfile>() == 448 && size_of::<OpenTraceOptions>() == 40);
const _: () = assert!(size_of::<BufferHeader>() == 72 && size_of::<ExtendedDataItem>() == 16);
const _: () = assert!(size_of::<BufferHeader>() == traceweir_format::buffer::HEADER_SIZE);

impl From<&LogFileHeader> for TraceLogfileHeader {
    fn from(header: &LogFileHeader) -> Self {
        Self {
            buffer_size: header.buffer_size,
            versions: header.versions,
            provider_version: header.provider_version,
            number_of_processors: header.processors,
            end_time: header.end_time.0,
            timer_resolution: header.timer_resolution,
            maximum_file_size: header.maximum_file_size,
            log_file_mode: header.log_file_mode,
            buffers_written: header.buffers_written,
            start_buffers: header.start_buffers,
            pointer_size: header.pointer_size,
            events_lost: header.events_lost,
            cpu_speed_in_mhz: header.cpu_speed_mhz,
            logger_name: std::ptr::null_mut(),
            log_file_name: std::ptr::null_mut(),
            time_zone: TimeZoneInformation::from(&header.time_zone),
            padding: 0,
            boot_time: header.boot_time.0,
            perf_freq: header.perf_freq,
            start_time: header.start_time.0,
            reserved_flags: header.clock_type,
            buffers_lost: header.buffers_lost,
        }
    }
}

impl From<&TimeZone> for TimeZoneInformation {
    fn from(zone: &TimeZone) -> Self {
        let encode_name = |text: &str| {
            let mut name = [0; 32];
            // The last unit stays 0.
            name.iter_mut().take(31).zip(text.encode_utf16()).for_each(|(to, from)| *to = from);
            name
        };
        Self {
            bias: zone.bias,
            standard_name: encode_name(&zone.standard_name),
            standard_date: zone.standard_date,
            standard_bias: zone.standard_bias,
            daylight_name: encode_name(&zone.daylight_name),
            daylight_date: zone.daylight_date,
            daylight_bias: zone.daylight_bias,
        }
    }
}

impl EventTrace {
    /// An empty event.
    pub const NONE: Self = Self {
        header: EventTraceHeader {
            size: 0,
            field_type_flags: 0,
            kind: 0,
            level: 0,
            version: 0,
            thread_id: 0,
            process_id: 0,
            time_stamp: 0,
            guid: Guid::NULL,
            client_context: 0,
            flags: 0,
        },
        instance_id: 0,
        parent_instance_id: 0,
        parent_guid: Guid::NULL,
        mof_data: std::ptr::null_mut(),
        mof_length: 0,
        buffer_context: BufferContext { processor_index: 0, logger_id: 0 },
    };
}
