//! EVENT_RECORD and the structures in it (evntcons.h).
#![allow(missing_docs)] // The fields are documented with the published structures.

use std::ffi::c_void;

use traceweir::{EventDescriptor, Guid};

/// The published structure EVENT_HEADER.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventHeader {
    pub size: u16,
    pub header_type: u16,
    pub flags: u16,
    pub event_property: u16,
    pub thread_id: u32,
    pub process_id: u32,
    pub time_stamp: i64,
    pub provider_id: Guid,
    pub event_descriptor: EventDescriptor,
    pub kernel_time: u32,
    pub user_time: u32,
    pub activity_id: Guid,
}

/// The published structure ETW_BUFFER_CONTEXT.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BufferContext {
    /// The processor index if the header has EVENT_HEADER_FLAG_PROCESSOR_INDEX. Otherwise the
    /// processor number in the low byte and the alignment in the high byte.
    pub processor_index: u16,
    pub logger_id: u16,
}

/// The published structure EVENT_HEADER_EXTENDED_DATA_ITEM.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExtendedDataItem {
    pub reserved1: u16,
    pub ext_type: u16,
    pub linkage: u16,
    pub data_size: u16,
    pub data_ptr: u64,
}

/// The published structure EVENT_RECORD.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventRecord {
    pub event_header: EventHeader,
    pub buffer_context: BufferContext,
    pub extended_data_count: u16,
    pub user_data_length: u16,
    pub extended_data: *mut ExtendedDataItem,
    pub user_data: *mut c_void,
    pub user_context: *mut c_void,
}

const _: () = assert!(size_of::<EventHeader>() == 80 && size_of::<EventRecord>() == 112);
