//! The part of evntrace.h for providers: classic providers and messages. The modules below have the
//! part for controllers.
//!
//! The header of an event may hold the address of its class GUID, and addresses of its data. This
//! module reads the class and the data there, and passes them to the core (the crate `traceweir`)
//! together with the header ([`PointerTargets`]). For a NULL address it passes nothing; the core
//! returns an error if it needs the missing part.
//!
//! TraceMessage and TraceMessageVa are inline functions of the header that make an array of their
//! arguments: only the C compiler knows how variable arguments are passed.

pub mod access;
pub mod controller;
pub mod enable;
mod file_names;
mod filters;
pub mod information;
mod properties;
mod sessions;

use std::ffi::{c_char, c_void};

use traceweir::classic::{
    self, InstanceInfo, MAX_ARGUMENTS, MAX_CLASSES, MAX_FIELDS, Notice, PointerTargets, TraceError, flag,
};
use traceweir::{Guid, Status};
use traceweir_format::header::message::{TRACE_MESSAGE_COMPONENTID, TRACE_MESSAGE_GUID};

use crate::types::{
    EventInstanceHeader, EventInstanceInfo, EventTraceHeader, MessageArgument, MofField,
    TraceGuidRegistration, WnodeHeader,
};
use crate::{boundary, last_error, load, ptr};

const WNODE_BYTES: u32 = size_of::<WnodeHeader>() as u32;

/// The published callback type WMIDPREQUEST: request code, context, size of the buffer, buffer.
pub type ControlFunction = unsafe extern "C" fn(u32, *mut c_void, *mut u32, *mut c_void) -> u32;

/// A callback function of a C program, with its context.
struct ControlCallback {
    function: ControlFunction,
    context: *mut c_void,
    control: Guid,
}

// SAFETY: the library never dereferences the context. The caller that registers function and
// context permits the library's thread to use them.
unsafe impl Send for ControlCallback {}
// SAFETY: as for `Send`: only the program dereferences the context.
unsafe impl Sync for ControlCallback {}

impl ControlCallback {
    fn call(&self, notice: &Notice) -> Status {
        let mut wnode = WnodeHeader {
            buffer_size: WNODE_BYTES,
            provider_id: 0,
            historical_context: notice.logger,
            time_stamp: 0,
            guid: self.control,
            client_context: 0,
            flags: flag::WNODE_FLAG_TRACED_GUID,
        };
        let mut size = WNODE_BYTES;
        let buffer = std::ptr::from_mut(&mut wnode).cast();
        // SAFETY: the function has this type by the contract of the registration; its arguments
        // live until it returns.
        Status(unsafe { (self.function)(notice.request.code(), self.context, &mut size, buffer) })
    }
}

/// Registers a classic provider; [`classic::register_with_handles`]. Image and resource have no
/// effect here.
///
/// # Safety
///
/// Pointers are NULL or valid: `classes` has `count` elements. `callback` may be called with
/// `context` by another thread until the registration has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RegisterTraceGuidsW(
    callback: Option<ControlFunction>,
    context: *mut c_void,
    control: *const Guid,
    count: u32,
    classes: *mut TraceGuidRegistration,
    _image: *const u16,
    _resource: *const u16,
    handle: *mut u64,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `register` requires no more.
    boundary::to_status(|| unsafe { register(callback, context, control, count, classes, handle) })
}

/// Like [`RegisterTraceGuidsW`], with image and resource in UTF-8.
///
/// # Safety
///
/// As [`RegisterTraceGuidsW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RegisterTraceGuidsA(
    callback: Option<ControlFunction>,
    context: *mut c_void,
    control: *const Guid,
    count: u32,
    classes: *mut TraceGuidRegistration,
    _image: *const c_char,
    _resource: *const c_char,
    handle: *mut u64,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `register` requires no more.
    boundary::to_status(|| unsafe { register(callback, context, control, count, classes, handle) })
}

/// Registers a classic provider, and stores the handles of the registration and its classes.
///
/// # Safety
///
/// As [`RegisterTraceGuidsW`].
unsafe fn register(
    callback: Option<ControlFunction>,
    context: *mut c_void,
    control: *const Guid,
    count: u32,
    classes: *mut TraceGuidRegistration,
    handle: *mut u64,
) -> Status {
    // SAFETY: the caller passes NULL or a writable `handle`.
    unsafe { ptr::store(handle, 0) };
    // SAFETY: the caller passes NULL or a readable `control`.
    let control = unsafe { ptr::read_value(control) };
    let (Some(function), Some(control), false) = (callback, control, handle.is_null()) else {
        return Status::ERROR_INVALID_PARAMETER;
    };
    // SAFETY: the caller fulfils the `# Safety` section; `read_class_guids` requires no more.
    let Some(guids) = (unsafe { read_class_guids(classes, count) }) else {
        return Status::ERROR_INVALID_PARAMETER;
    };
    let control_callback = ControlCallback { function, context, control };
    // The callback may use the handles, so they are stored before it can run.
    let store_handles = |registration: &classic::Registration| {
        for (index, class) in registration.class_handles().enumerate() {
            let class = std::ptr::without_provenance_mut(class as usize);
            // SAFETY: the array has an element for each class that was read from it.
            unsafe { (&raw mut (*classes.wrapping_add(index)).reg_handle).write_unaligned(class) };
        }
        // SAFETY: the caller passes NULL or a writable `handle`.
        unsafe { ptr::store(handle, registration.raw()) };
    };
    let callback = Box::new(move |notice: &Notice| control_callback.call(notice));
    load::expect_handler();
    match classic::register_with_handles(control, &guids, callback, store_handles) {
        Ok((registration, status)) => {
            let _kept_by_the_program = registration.into_raw();
            status
        }
        Err(error) => error.status(),
    }
}

/// Reads the GUIDs of classes; a NULL array has no classes. Returns `None` if the address of a GUID
/// is NULL, or if there are more than [`MAX_CLASSES`].
///
/// # Safety
///
/// `classes` is NULL, or has `count` elements, in which the address of the GUID is NULL or valid.
unsafe fn read_class_guids(classes: *const TraceGuidRegistration, count: u32) -> Option<Vec<Guid>> {
    if classes.is_null() {
        return Some(Vec::new());
    }
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_CLASSES)?;
    let read_guid = |index| {
        // SAFETY: `classes` is not NULL, so it has `count` elements, and `index` is below `count`.
        let class = unsafe { ptr::read_value(classes.wrapping_add(index)) }?;
        // SAFETY: the caller guarantees that the address of the GUID is NULL or valid.
        unsafe { ptr::read_value(class.guid) }
    };
    (0..count).map(read_guid).collect()
}

/// Ends the registration of a classic provider; [`classic::unregister`].
#[unsafe(no_mangle)]
pub extern "C" fn UnregisterTraceGuids(handle: u64) -> u32 {
    boundary::to_status(|| classic::unregister(handle))
}

/// Returns the logger in the buffer of a control callback. If the buffer is not that of a callback,
/// sets the last error and returns INVALID_HANDLE_VALUE.
///
/// # Safety
///
/// `buffer` is NULL, or the buffer that a control callback received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GetTraceLoggerHandle(buffer: *const c_void) -> u64 {
    boundary::catch_panic(classic::INVALID_LOGGER, || {
        // SAFETY: the caller passes NULL or a WNODE_HEADER, which begins with its size. The size is
        // checked before the other members are read.
        let error = match unsafe { ptr::read_value(buffer.cast::<u32>()) } {
            None => Status::ERROR_INVALID_PARAMETER,
            Some(size) if size < WNODE_BYTES => Status::ERROR_BAD_LENGTH,
            Some(_) => {
                // SAFETY: the buffer has at least the bytes of a WNODE_HEADER.
                let wnode = unsafe { ptr::read_value(buffer.cast::<WnodeHeader>()) };
                match wnode.filter(|wnode| wnode.flags & flag::WNODE_FLAG_TRACED_GUID != 0) {
                    Some(wnode) => return wnode.historical_context,
                    None => Status::ERROR_INVALID_PARAMETER,
                }
            }
        };
        last_error::set(error);
        classic::INVALID_LOGGER
    })
}

/// Returns the level at which a logger records events; [`classic::enable_level`]. For an invalid
/// logger, sets the last error and returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn GetTraceEnableLevel(logger: u64) -> u8 {
    boundary::catch_panic(0, || value_or_last_error(classic::enable_level(logger)))
}

/// Returns the flags with which a logger records events; [`classic::enable_flags`]. For an invalid
/// logger, sets the last error and returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn GetTraceEnableFlags(logger: u64) -> u32 {
    boundary::catch_panic(0, || value_or_last_error(classic::enable_flags(logger)))
}

fn value_or_last_error<T: Default>(result: Result<T, TraceError>) -> T {
    result.unwrap_or_else(|error| {
        last_error::set(error.status());
        T::default()
    })
}

/// Writes an event; [`classic::trace_event`].
///
/// # Safety
///
/// `header` is NULL, or an EVENT_TRACE_HEADER with data up to its size; addresses in it are NULL or
/// valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceEvent(logger: u64, header: *const EventTraceHeader) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `header`.
        let Some(event) = (unsafe { ptr::read_value(header) }) else { return refuse_null(logger) };
        // SAFETY: the caller fulfils the `# Safety` section; `header_and_data` requires no more.
        let block = unsafe { header_and_data(header.cast(), event.size, size_of::<EventTraceHeader>()) };
        let class = std::ptr::with_exposed_provenance(address_in_guid(&event.guid));
        let is_pointer = event.flags & flag::WNODE_FLAG_USE_GUID_PTR != 0;
        // SAFETY: the flag says that the GUID begins with an address, which is NULL or valid by the
        // contract.
        let class = if is_pointer { unsafe { ptr::read_value(class) } } else { None };
        let data = block.get(size_of::<EventTraceHeader>()..).unwrap_or_default();
        // SAFETY: the caller fulfils the `# Safety` section; `read` requires no more.
        let fields = unsafe { MofFields::read(event.flags, data) };
        classic::trace_event(
            logger,
            block,
            &PointerTargets { class: class.as_ref(), fields: fields.as_slice() },
        )
    })
}

/// Writes an event about an instance; [`classic::trace_event_instance`].
///
/// # Safety
///
/// As [`TraceEvent`], with an EVENT_INSTANCE_HEADER; `instance` and `parent` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceEventInstance(
    logger: u64,
    header: *const EventInstanceHeader,
    instance: *const EventInstanceInfo,
    parent: *const EventInstanceInfo,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or readable values as `header`, `instance` and `parent`.
        let (event, instance, parent) =
            unsafe { (ptr::read_value(header), ptr::read_value(instance), ptr::read_value(parent)) };
        let (Some(event), Some(instance)) = (event, instance) else { return refuse_null(logger) };
        // SAFETY: the caller fulfils the `# Safety` section; `header_and_data` requires no more.
        let block = unsafe { header_and_data(header.cast(), event.size, size_of::<EventInstanceHeader>()) };
        let data = block.get(size_of::<EventInstanceHeader>()..).unwrap_or_default();
        // SAFETY: the caller fulfils the `# Safety` section; `read` requires no more.
        let fields = unsafe { MofFields::read(event.flags, data) };
        let (instance, parent) = (to_instance_info(&instance), parent.as_ref().map(to_instance_info));
        classic::trace_event_instance(
            logger,
            block,
            &instance,
            parent.as_ref(),
            &PointerTargets { class: None, fields: fields.as_slice() },
        )
    })
}

fn to_instance_info(info: &EventInstanceInfo) -> InstanceInfo {
    InstanceInfo { class: info.reg_handle.addr() as u64, id: info.instance_id }
}

/// Returns the error for a forbidden NULL. An invalid logger is reported first.
#[cold]
fn refuse_null(logger: u64) -> Result<(), TraceError> {
    classic::enable_level(logger).and(Err(TraceError::InvalidParameter))
}

/// Returns a header and the data after it: `size` bytes, but at least `min_bytes`.
///
/// # Safety
///
/// `header` is not NULL, and `size` bytes, at least `min_bytes`, can be read there.
unsafe fn header_and_data<'a>(header: *const u8, size: u16, min_bytes: usize) -> &'a [u8] {
    // SAFETY: the caller guarantees that this many bytes can be read at `header`.
    unsafe { ptr::read_array(header, usize::from(size).max(min_bytes)) }.unwrap_or_default()
}

/// Returns the address in the first eight bytes of a class GUID.
fn address_in_guid(guid: &Guid) -> usize {
    let [low, high] = [guid.data1 as usize, usize::from(guid.data2) | usize::from(guid.data3) << 16];
    low | high << 32
}

/// The data that the MOF_FIELDs after a header describe.
struct MofFields<'a> {
    /// One element more than an event can have is enough for the core to refuse the event.
    data: [&'a [u8]; MAX_FIELDS + 1],
    count: usize,
}

impl<'a> MofFields<'a> {
    /// Reads the fields in the data after a header if WNODE_FLAG_USE_MOF_PTR is set; otherwise
    /// there are none. A NULL with a length gives no bytes, and the core refuses the wrong length.
    ///
    /// # Safety
    ///
    /// Addresses in the fields are NULL or valid for `'a`.
    unsafe fn read(flags: u32, data: &[u8]) -> Self {
        let mut fields = Self { data: [&[]; MAX_FIELDS + 1], count: 0 };
        if flags & flag::WNODE_FLAG_USE_MOF_PTR != 0 {
            let (described, _) = data.as_chunks::<{ size_of::<MofField>() }>();
            for (to, from) in fields.data.iter_mut().zip(described) {
                // SAFETY: the chunk has the size of the structure, which consists of numbers.
                let field = unsafe { from.as_ptr().cast::<MofField>().read_unaligned() };
                // SAFETY: the caller guarantees that the address is NULL or valid.
                *to = unsafe { ptr::read_bytes_at(field.data_ptr, field.length) }.unwrap_or_default();
                fields.count = fields.count.saturating_add(1);
            }
        }
        fields
    }

    fn as_slice(&self) -> &[&'a [u8]] {
        self.data.get(..self.count).unwrap_or_default()
    }
}

/// Creates an instance of a class; [`classic::create_instance_id`].
///
/// # Safety
///
/// `info` is NULL, or an EVENT_INSTANCE_INFO can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateTraceInstanceId(class: *mut c_void, info: *mut EventInstanceInfo) -> u32 {
    boundary::to_status(|| {
        if info.is_null() {
            return Err(TraceError::InvalidParameter);
        }
        let instance = classic::create_instance_id(class.addr() as u64)?;
        // SAFETY: the caller passes NULL or a writable `info`.
        unsafe { ptr::store(info, EventInstanceInfo { reg_handle: class, instance_id: instance.id }) };
        Ok(())
    })
}

/// Writes a message with its arguments in an array, as TraceMessage and TraceMessageVa pass them;
/// [`classic::trace_message`].
///
/// # Safety
///
/// `id` is NULL, or a GUID, or with TRACE_MESSAGE_COMPONENTID a ULONG. `arguments` has `count`
/// elements, each with the address of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceweirTraceMessage(
    logger: u64,
    flags: u32,
    id: *const Guid,
    number: u16,
    arguments: *const MessageArgument,
    count: u32,
) -> u32 {
    boundary::to_status(|| {
        // The core refuses more than `MAX_ARGUMENTS` arguments, so one more is enough to read.
        let count = (count as usize).min(MAX_ARGUMENTS.saturating_add(1));
        // SAFETY: the caller guarantees that `id` and `arguments` are NULL or valid.
        let (id, elements) = unsafe { (read_message_id(flags, id), ptr::read_array(arguments, count)) };
        let (Some(id), Some(elements)) = (id, elements) else { return refuse_null(logger) };
        let mut blocks: [&[u8]; MAX_ARGUMENTS + 1] = [&[]; MAX_ARGUMENTS + 1];
        for (to, from) in blocks.iter_mut().zip(elements) {
            // SAFETY: the caller guarantees that `from.data` is NULL or valid.
            match unsafe { ptr::read_array(from.data.cast::<u8>(), from.size) } {
                Some(bytes) => *to = bytes,
                None => return refuse_null(logger),
            }
        }
        classic::trace_message(logger, flags, &id, number, blocks.get(..elements.len()).unwrap_or_default())
    })
}

/// Reads the id of a message: a GUID, or a component id, which becomes the first part of a GUID. If
/// the flags say that the message has no id, returns the null GUID. Returns `None` for a NULL `id`
/// that the flags require.
///
/// # Safety
///
/// As [`TraceweirTraceMessage`].
unsafe fn read_message_id(flags: u32, id: *const Guid) -> Option<Guid> {
    if flags & u32::from(TRACE_MESSAGE_GUID) != 0 {
        // SAFETY: the caller passes NULL or a readable `id`.
        return unsafe { ptr::read_value(id) };
    }
    if flags & u32::from(TRACE_MESSAGE_COMPONENTID) != 0 {
        // SAFETY: with this flag, the caller passes NULL or a ULONG, and only a ULONG is read.
        let component = unsafe { ptr::read_value(id.cast::<u32>()) };
        return component.map(|data1| Guid { data1, ..Guid::NULL });
    }
    Some(Guid::NULL)
}
