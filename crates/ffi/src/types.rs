//! Structures of the C headers, except `EventDescriptor`, `DataDescriptor` and `Guid`, which the
//! crate `traceweir` defines.
//!
//! Source: Documented (evntprov.h, evntrace.h, wmistr.h). A test compares every size and offset
//! with what C compilers compute from the headers.
#![allow(missing_docs)] // The fields are documented with the published structures.

pub mod record;
pub mod tdh;

use std::ffi::c_void;

use traceweir::Guid;

pub mod controller;

/// EVENT_FILTER_DESCRIPTOR: a filter, as a controller passes it and an enable callback receives it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FilterDescriptor {
    pub ptr: u64,
    pub size: u32,
    pub kind: u32,
}

/// WNODE_HEADER, which a control callback receives and EVENT_TRACE_PROPERTIES begins with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WnodeHeader {
    pub buffer_size: u32,
    pub provider_id: u32,
    /// The logger handle, or the id of the session.
    pub historical_context: u64,
    pub time_stamp: i64,
    /// The GUID of the provider or session.
    pub guid: Guid,
    pub client_context: u32,
    pub flags: u32,
}

/// EVENT_TRACE_HEADER, as a caller of TraceEvent fills it and an event callback receives it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventTraceHeader {
    /// Bytes of header and data.
    pub size: u16,
    pub field_type_flags: u16,
    pub kind: u8,
    pub level: u8,
    pub version: u16,
    pub thread_id: u32,
    pub process_id: u32,
    pub time_stamp: i64,
    /// The class, or with WNODE_FLAG_USE_GUID_PTR the address of the class in the first eight
    /// bytes.
    pub guid: Guid,
    pub client_context: u32,
    pub flags: u32,
}

/// EVENT_INSTANCE_HEADER as a caller fills it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventInstanceHeader {
    /// Bytes of header and data.
    pub size: u16,
    pub field_type_flags: u16,
    pub kind: u8,
    pub level: u8,
    pub version: u16,
    pub thread_id: u32,
    pub process_id: u32,
    pub time_stamp: i64,
    pub reg_handle: u64,
    pub instance_id: u32,
    pub parent_instance_id: u32,
    pub client_context: u32,
    pub flags: u32,
    pub parent_reg_handle: u64,
}

/// The published structure EVENT_INSTANCE_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventInstanceInfo {
    pub reg_handle: *mut c_void,
    pub instance_id: u32,
}

/// The published structure TRACE_GUID_REGISTRATION.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceGuidRegistration {
    pub guid: *const Guid,
    /// Output: the handle of the class.
    pub reg_handle: *mut c_void,
}

/// The published structure MOF_FIELD.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MofField {
    pub data_ptr: u64,
    pub length: u32,
    pub data_type: u32,
}

/// One argument of a message, which evntrace.h takes from a variable argument list.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MessageArgument {
    pub data: *const c_void,
    pub size: usize,
}

const _: () = assert!(size_of::<WnodeHeader>() == 48 && size_of::<EventTraceHeader>() == 48);
const _: () = assert!(size_of::<EventInstanceHeader>() == 56 && size_of::<EventInstanceInfo>() == 16);
