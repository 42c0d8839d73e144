//! evntprov.h: providers.
//!
//! A write checks the handle first, then whether any session may record the event, then the other
//! parameters: a NULL parameter is an error only if a session may record the event.

use std::ffi::c_void;

use traceweir::provider::{
    self, DataDescriptor, EnableCallback, EnableNotice, Handle, MAX_BLOCKS, Provider, ProviderRef,
};
use traceweir::{EventDescriptor, Guid, Status, WriteError};
use traceweir_format::spec::event::EVENT_ACTIVITY_CTRL_SET_ID;

use crate::types::FilterDescriptor;
use crate::{boundary, load, ptr};

/// The most UTF-16 units that are counted: a string of this length is too long for any record.
const MAX_STRING_UNITS: usize = 1 << 15;

/// The published callback type PENABLECALLBACK.
pub type EnableFunction =
    unsafe extern "C" fn(*const Guid, u32, u8, u64, u64, *mut FilterDescriptor, *mut c_void);

/// A callback function of a C program, with its context.
struct ProviderCallback {
    function: EnableFunction,
    context: *mut c_void,
}

// SAFETY: the library never dereferences the context. The caller that registers function and
// context permits the library's thread to use them.
unsafe impl Send for ProviderCallback {}
// SAFETY: as for `Send`: only the program dereferences the context.
unsafe impl Sync for ProviderCallback {}

impl ProviderCallback {
    fn call(&self, notice: &EnableNotice<'_>) {
        let mut filter = notice.filter.map(|(kind, data)| FilterDescriptor {
            ptr: data.as_ptr().expose_provenance() as u64,
            size: u32::try_from(data.len()).unwrap_or(u32::MAX),
            kind,
        });
        let filter = filter.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let EnableNotice { source, code, level, match_any, match_all, .. } = notice;
        // SAFETY: the function has this type by the contract of `EventRegister`; its arguments live
        // until it returns.
        unsafe { (self.function)(source, *code, *level, *match_any, *match_all, filter, self.context) };
    }
}

/// Registers a provider; [`Provider::register`].
///
/// # Safety
///
/// Pointers are NULL or valid. `callback` may be called with `context` by another thread until the
/// registration has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventRegister(
    provider: *const Guid,
    callback: Option<EnableFunction>,
    context: *mut c_void,
    handle: *mut u64,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a writable `handle`.
        unsafe { ptr::store(handle, 0) };
        // The provider belongs to the binary that contains its callback or, without a callback, its
        // GUID, which is usually a constant.
        let origin = callback.map_or(provider.addr(), |function| function as usize);
        // SAFETY: the caller passes NULL or a readable `provider`.
        let (Some(provider), false) = (unsafe { ptr::read_value(provider) }, handle.is_null()) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let callback = callback.map(|function| {
            let callback = ProviderCallback { function, context };
            Box::new(move |notice: &EnableNotice<'_>| callback.call(notice)) as EnableCallback
        });
        // The callback may write events or end the registration, so the handle is stored before
        // the callback can run. Afterwards the memory of the handle belongs to the program.
        // SAFETY: the caller passes NULL or a writable `handle`.
        let store_handle = |registered: Handle| unsafe { ptr::store(handle, registered.to_raw()) };
        load::expect_handler();
        match Provider::register_with_handle(provider, callback, origin, store_handle) {
            Ok(registered) => {
                let _kept_by_the_program = registered.into_handle();
                Status::ERROR_SUCCESS
            }
            Err(error) => error.status(),
        }
    })
}

/// Ends a registration; [`Handle::unregister`].
#[unsafe(no_mangle)]
pub extern "C" fn EventUnregister(handle: u64) -> u32 {
    boundary::to_status(|| Handle::from_raw(handle).ok_or(WriteError::InvalidHandle)?.unregister())
}

/// Sets an option of a registration; [`provider::set_information`].
///
/// # Safety
///
/// `information` is NULL, or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventSetInformation(
    handle: u64,
    class: u32,
    information: *const c_void,
    length: u32,
) -> u32 {
    boundary::to_status(|| {
        if information.is_null() {
            // NULL with a length is invalid. The handle 0 stands for this error, so that
            // `set_information` reports an unknown class first.
            let handle = if length == 0 { handle } else { 0 };
            return provider::set_information(handle, class, None);
        }
        // SAFETY: the caller guarantees that `information` is NULL or valid.
        let bytes = unsafe { ptr::read_array(information.cast::<u8>(), length as usize) };
        provider::set_information(handle, class, bytes)
    })
}

/// Returns whether any session may record an event; [`ProviderRef::event_enabled`].
///
/// # Safety
///
/// `descriptor` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventEnabled(handle: u64, descriptor: *const EventDescriptor) -> u8 {
    boundary::catch_panic(0, || {
        // SAFETY: the caller passes NULL or a readable `descriptor`.
        let descriptor = unsafe { ptr::read_value(descriptor) };
        let is_enabled = ProviderRef::from_raw(handle)
            .ok()
            .zip(descriptor)
            .is_some_and(|(provider, event)| provider.event_enabled(&event));
        u8::from(is_enabled)
    })
}

/// Returns whether any session may record events of a level and keyword; [`ProviderRef::enabled`].
#[unsafe(no_mangle)]
pub extern "C" fn EventProviderEnabled(handle: u64, level: u8, keyword: u64) -> u8 {
    boundary::catch_panic(0, || {
        u8::from(ProviderRef::from_raw(handle).is_ok_and(|provider| provider.enabled(level, keyword)))
    })
}

/// The arguments of a write.
struct WriteArguments {
    handle: u64,
    descriptor: *const EventDescriptor,
    filter: u64,
    flags: u32,
    activity: *const Guid,
    related: *const Guid,
    count: u32,
    data: *const DataDescriptor,
}

impl WriteArguments {
    /// Writes the event; [`ProviderRef::write_descriptors`].
    ///
    /// # Safety
    ///
    /// As [`EventWriteEx`].
    #[inline(always)]
    unsafe fn write(self) -> Result<(), WriteError> {
        let provider = ProviderRef::from_raw(self.handle)?;
        // SAFETY: the caller passes NULL or a readable `descriptor`.
        let Some(descriptor) = (unsafe { ptr::read_value(self.descriptor) }) else {
            // Without a descriptor, the event counts as one of level 0 and keyword 0.
            return refuse_null(&provider, 0, 0);
        };
        // The core refuses more than `MAX_BLOCKS` blocks, so one more is enough to read.
        let count = (self.count as usize).min(MAX_BLOCKS.saturating_add(1));
        // SAFETY: the caller guarantees that `data` is NULL or valid.
        let Some(blocks) = (unsafe { ptr::read_array(self.data, count) }) else {
            return refuse_null(&provider, descriptor.level, descriptor.keyword);
        };
        // SAFETY: the caller passes NULL or readable values as `activity` and `related`.
        let (activity, related) = unsafe { (ptr::read_value(self.activity), ptr::read_value(self.related)) };
        // SAFETY: the caller fulfils the `# Safety` section; `write_descriptors` requires no more.
        unsafe {
            provider.write_descriptors(
                &descriptor,
                self.filter,
                self.flags,
                activity.as_ref(),
                related.as_ref(),
                blocks,
            )
        }
    }
}

/// Returns the result of a write with a forbidden NULL: an error only if a session may record the
/// event.
#[cold]
fn refuse_null(provider: &ProviderRef, level: u8, keyword: u64) -> Result<(), WriteError> {
    if provider.enabled(level, keyword) { Err(WriteError::InvalidParameter) } else { Ok(()) }
}

/// Writes an event.
///
/// # Safety
///
/// As [`EventWriteEx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventWrite(
    handle: u64,
    descriptor: *const EventDescriptor,
    count: u32,
    data: *const DataDescriptor,
) -> u32 {
    let (activity, related) = (std::ptr::null(), std::ptr::null());
    // SAFETY: the caller fulfils the `# Safety` section; `try_straight` requires no more.
    if unsafe { provider::try_straight(handle, descriptor, activity, related, count, data) } {
        return Status::ERROR_SUCCESS.0;
    }
    let arguments =
        WriteArguments { handle, descriptor, filter: 0, flags: 0, activity, related, count, data };
    // SAFETY: the caller fulfils the `# Safety` section; `write` requires no more.
    boundary::to_status(|| unsafe { arguments.write() })
}

/// Writes an event with activity ids. A NULL `activity` stands for the thread's activity id; with a
/// NULL `related` the event has no related activity id.
///
/// # Safety
///
/// As [`EventWriteEx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventWriteTransfer(
    handle: u64,
    descriptor: *const EventDescriptor,
    activity: *const Guid,
    related: *const Guid,
    count: u32,
    data: *const DataDescriptor,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `try_straight` requires no more.
    if unsafe { provider::try_straight(handle, descriptor, activity, related, count, data) } {
        return Status::ERROR_SUCCESS.0;
    }
    let arguments =
        WriteArguments { handle, descriptor, filter: 0, flags: 0, activity, related, count, data };
    // SAFETY: the caller fulfils the `# Safety` section; `write` requires no more.
    boundary::to_status(|| unsafe { arguments.write() })
}

/// For the macros of TraceLoggingProvider.h: writes an event directly from its pieces if that is
/// possible right now. Returns 0 if it is not; the macro then calls the published function. Windows
/// has no such function, and programs do not call it themselves.
///
/// # Safety
///
/// `descriptor` is valid, and `metadata` has `metadata_bytes` bytes. `data` has `count` elements,
/// whose addresses are NULL or have as many bytes as the element says. The bytes do not change
/// during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceweirWriteDescribed(
    handle: u64,
    descriptor: *const EventDescriptor,
    metadata: *const u8,
    metadata_bytes: u32,
    count: u32,
    data: *const DataDescriptor,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `try_straight_described` requires no more.
    let is_written = unsafe {
        provider::try_straight_described(handle, descriptor, metadata, metadata_bytes, count, data)
    };
    u32::from(is_written)
}

/// Writes an event to all sessions except those whose bits are set in `filter`.
///
/// # Safety
///
/// Pointers are NULL or valid: `data` has `count` elements, whose addresses are NULL or
/// have as many bytes as the element says. The bytes do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventWriteEx(
    handle: u64,
    descriptor: *const EventDescriptor,
    filter: u64,
    flags: u32,
    activity: *const Guid,
    related: *const Guid,
    count: u32,
    data: *const DataDescriptor,
) -> u32 {
    let arguments = WriteArguments { handle, descriptor, filter, flags, activity, related, count, data };
    // SAFETY: the caller fulfils the `# Safety` section; `write` requires no more.
    boundary::to_status(|| unsafe { arguments.write() })
}

/// Writes a string as an event; [`ProviderRef::write_wide_string`].
///
/// # Safety
///
/// `text` is NULL, or the address of UTF-16 units that end with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventWriteString(handle: u64, level: u8, keyword: u64, text: *const u16) -> u32 {
    boundary::to_status(|| {
        let provider = ProviderRef::from_raw(handle)?;
        if !provider.enabled(level, keyword) {
            return Ok(());
        }
        if text.is_null() {
            return Err(WriteError::InvalidParameter);
        }
        // SAFETY: the caller fulfils the `# Safety` section; `count_units` requires no more.
        let length = unsafe { count_units(text) };
        // The terminator is written too.
        // SAFETY: none of the `length` units is 0, so by the contract one more follows them.
        let bytes = unsafe { ptr::read_array(text.cast::<u8>(), length.saturating_add(1).saturating_mul(2)) };
        provider.write_wide_string(level, keyword, bytes.unwrap_or_default())
    })
}

/// Counts the units before the terminator, up to [`MAX_STRING_UNITS`].
///
/// # Safety
///
/// Units can be read from `text` up to one that is 0.
unsafe fn count_units(text: *const u16) -> usize {
    let mut length = 0_usize;
    // SAFETY: no unit so far was 0, so by the contract another one follows.
    while length < MAX_STRING_UNITS && unsafe { text.wrapping_add(length).read_unaligned() } != 0 {
        length = length.saturating_add(1);
    }
    length
}

/// Gets, sets and creates activity ids of the thread; [`provider::activity::control`].
///
/// # Safety
///
/// `id` is NULL, or a GUID can be read there, and written unless the code is
/// EVENT_ACTIVITY_CTRL_SET_ID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventActivityIdControl(code: u32, id: *mut Guid) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `id`.
        let Some(mut value) = (unsafe { ptr::read_value(id) }) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let status = provider::activity::control(code, &mut value);
        // An id that is only read may lie in read-only memory.
        if code != EVENT_ACTIVITY_CTRL_SET_ID {
            // SAFETY: the caller passes NULL or a writable `id`.
            unsafe { ptr::store(id, value) };
        }
        status
    })
}
