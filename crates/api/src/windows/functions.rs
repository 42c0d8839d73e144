//! The functions of Windows that this crate calls, with the types of their published declarations.
#![allow(unsafe_code)]

use std::ffi::c_void;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use super::event::Block;

/// `REGHANDLE`.
pub(super) type RegHandle = u64;

/// `PENABLECALLBACK`.
pub(super) type EnableFunction = unsafe extern "system" fn(
    source: *const Guid,
    code: u32,
    level: u8,
    match_any: u64,
    match_all: u64,
    filter: *const FilterDescriptor,
    context: *mut c_void,
);

/// `EVENT_FILTER_DESCRIPTOR`.
#[repr(C)]
pub(super) struct FilterDescriptor {
    pub(super) address: u64,
    pub(super) size_bytes: u32,
    pub(super) kind: u32,
}

#[cfg_attr(windows, link(name = "advapi32"))]
#[cfg_attr(not(windows), link(name = "traceweir"))]
unsafe extern "system" {
    pub(super) fn EventRegister(
        provider: *const Guid,
        callback: Option<EnableFunction>,
        context: *mut c_void,
        handle: *mut RegHandle,
    ) -> u32;
    pub(super) fn EventUnregister(handle: RegHandle) -> u32;
    pub(super) fn EventSetInformation(
        handle: RegHandle,
        class: u32,
        information: *const c_void,
        size_bytes: u32,
    ) -> u32;
    pub(super) fn EventProviderEnabled(handle: RegHandle, level: u8, keyword: u64) -> u8;
    pub(super) fn EventEnabled(handle: RegHandle, descriptor: *const EventDescriptor) -> u8;
    pub(super) fn EventWriteTransfer(
        handle: RegHandle,
        descriptor: *const EventDescriptor,
        activity: *const Guid,
        related: *const Guid,
        count: u32,
        data: *const Block<'_>,
    ) -> u32;
    pub(super) fn EventWriteEx(
        handle: RegHandle,
        descriptor: *const EventDescriptor,
        excluded_sessions: u64,
        flags: u32,
        activity: *const Guid,
        related: *const Guid,
        count: u32,
        data: *const Block<'_>,
    ) -> u32;
    pub(super) fn EventWriteString(handle: RegHandle, level: u8, keyword: u64, text: *const u16) -> u32;
    pub(super) fn EventActivityIdControl(code: u32, id: *mut Guid) -> u32;
}

#[cfg_attr(windows, link(name = "ole32"))]
#[cfg_attr(not(windows), link(name = "traceweir"))]
unsafe extern "system" {
    pub(super) fn CoCreateGuid(guid: *mut Guid) -> i32;
}
