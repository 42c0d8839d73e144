//! Structures of controllers.
//!
//! Source: Documented (evntrace.h: "EVENT_TRACE_PROPERTIES structure", "EVENT_TRACE_PROPERTIES_V2
//! structure", "ENABLE_TRACE_PARAMETERS structure", "TRACE_GUID_PROPERTIES structure").

use traceweir::Guid;

use super::{FilterDescriptor, WnodeHeader};

/// EVENT_TRACE_PROPERTIES: a session. The names follow it in the same block of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventTraceProperties {
    pub wnode: WnodeHeader,
    /// Size of a buffer in KiB.
    pub buffer_size: u32,
    pub minimum_buffers: u32,
    pub maximum_buffers: u32,
    pub maximum_file_size: u32,
    pub log_file_mode: u32,
    pub flush_timer: u32,
    pub enable_flags: u32,
    /// In a union with AgeLimit, which has no effect.
    pub flush_threshold: i32,
    pub number_of_buffers: u32,
    pub free_buffers: u32,
    pub events_lost: u32,
    pub buffers_written: u32,
    pub log_buffers_lost: u32,
    pub real_time_buffers_lost: u32,
    /// A HANDLE that holds a thread id.
    pub logger_thread_id: u64,
    pub log_file_name_offset: u32,
    pub logger_name_offset: u32,
}

/// The published structure EVENT_TRACE_PROPERTIES_V2.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventTracePropertiesV2 {
    pub base: EventTraceProperties,
    /// VersionNumber in the low 8 bits.
    pub v2_control: u32,
    pub filter_desc_count: u32,
    pub filter_desc: *const FilterDescriptor,
    pub v2_options: u64,
}

/// ENABLE_TRACE_PARAMETERS_V1, with which ENABLE_TRACE_PARAMETERS begins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnableTraceParametersV1 {
    pub version: u32,
    pub enable_property: u32,
    pub control_flags: u32,
    pub source_id: Guid,
    pub enable_filter_desc: *const FilterDescriptor,
}

/// The published structure ENABLE_TRACE_PARAMETERS.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnableTraceParameters {
    pub first: EnableTraceParametersV1,
    pub filter_desc_count: u32,
}

/// The published structure TRACE_GUID_PROPERTIES.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceGuidProperties {
    pub guid: Guid,
    /// Unused; always 0.
    pub guid_type: u32,
    pub logger_id: u32,
    pub enable_level: u32,
    pub enable_flags: u32,
    pub is_enable: u8,
}

const _: () = assert!(size_of::<EventTraceProperties>() == 120 && size_of::<EventTracePropertiesV2>() == 144);
const _: () = assert!(size_of::<EnableTraceParametersV1>() == 40 && size_of::<EnableTraceParameters>() == 48);
const _: () = assert!(size_of::<TraceGuidProperties>() == 36);
