//! evntprov.h: providers.
//!
//! Handles are looked at first, then whether anybody listens, then the other parameters: so a NULL where something must be is found where somebody listens.

use std::ffi::c_void;

use traceweir::provider::{self, DataDescriptor, EnableCallback, EnableNotice, Handle, MAX_BLOCKS, Provider};
use traceweir::{EventDescriptor, Guid, Status, WriteError};
use traceweir_format::spec::event::EVENT_ACTIVITY_CTRL_SET_ID;

use crate::types::FilterDescriptor;
use crate::{boundary, ptr};

/// UTF-16 units of a string that no record can hold any more.
const ENDLESS: usize = 1 << 15;

/// PENABLECALLBACK.
pub type EnableFunction =
    unsafe extern "C" fn(*const Guid, u32, u8, u64, u64, *mut FilterDescriptor, *mut c_void);

/// A function of C with its context.
struct Callee {
    function: EnableFunction,
    context: *mut c_void,
}

// SAFETY: the context is a number to us. That function and context may be used by the library's thread is what whoever registers them says.
unsafe impl Send for Callee {}
// SAFETY: the same.
unsafe impl Sync for Callee {}

impl Callee {
    fn call(&self, notice: &EnableNotice<'_>) {
        let mut filter = notice.filter.map(|(kind, data)| FilterDescriptor {
            ptr: data.as_ptr().expose_provenance() as u64,
            size: u32::try_from(data.len()).unwrap_or(u32::MAX),
            kind,
        });
        let filter = filter.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let EnableNotice { source, code, level, match_any, match_all, .. } = notice;
        // SAFETY: the function has this type by the contract of `EventRegister`; what it is given lives until it returns.
        unsafe { (self.function)(source, *code, *level, *match_any, *match_all, filter, self.context) };
    }
}

/// Registers a provider; [`Provider::register`].
///
/// # Safety
///
/// Pointers are NULL or valid. `callback` may be called with `context` by another thread until the registration has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventRegister(
    provider: *const Guid,
    callback: Option<EnableFunction>,
    context: *mut c_void,
    handle: *mut u64,
) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        unsafe { ptr::store(handle, 0) };
        // The module that the provider belongs to holds its callback; where there is none, its GUID, which is a constant as a rule.
        let origin = callback.map_or(provider.addr(), |function| function as usize);
        // SAFETY: by the contract.
        let (Some(provider), false) = (unsafe { ptr::copied(provider) }, handle.is_null()) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let callback = callback.map(|function| {
            let callee = Callee { function, context };
            Box::new(move |notice: &EnableNotice<'_>| callee.call(notice)) as EnableCallback
        });
        // Stored before the callback can run, which may write or end the registration: afterwards the place is the program's.
        // SAFETY: by the contract.
        let known = |registered: Handle| unsafe { ptr::store(handle, registered.to_raw()) };
        match Provider::register_known(provider, callback, origin, known) {
            Ok(registered) => {
                let _kept_by_the_program = Handle::from_provider(registered);
                Status::ERROR_SUCCESS
            }
            Err(error) => error.status(),
        }
    })
}

/// Ends a registration; [`Handle::unregister`].
#[unsafe(no_mangle)]
pub extern "C" fn EventUnregister(handle: u64) -> u32 {
    boundary::status(|| Handle::from_raw(handle).ok_or(WriteError::InvalidHandle)?.unregister())
}

/// Sets something of a registration; [`provider::set_information`].
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
    boundary::status(|| {
        if information.is_null() {
            // NULL with a length is wrong where the class is right, as a handle of 0 is.
            let handle = if length == 0 { handle } else { 0 };
            return provider::set_information(handle, class, None);
        }
        // SAFETY: by the contract.
        let bytes = unsafe { ptr::array(information.cast::<u8>(), length as usize) };
        provider::set_information(handle, class, bytes)
    })
}

/// Whether any session may want an event; [`Handle::event_enabled`].
///
/// # Safety
///
/// `descriptor` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventEnabled(handle: u64, descriptor: *const EventDescriptor) -> u8 {
    boundary::guarded(0, || {
        // SAFETY: by the contract.
        let descriptor = unsafe { ptr::copied(descriptor) };
        let enabled = Handle::from_raw(handle)
            .zip(descriptor)
            .is_some_and(|(handle, event)| handle.event_enabled(&event));
        u8::from(enabled)
    })
}

/// Whether any session may want events of a level and keyword; [`Handle::enabled`].
#[unsafe(no_mangle)]
pub extern "C" fn EventProviderEnabled(handle: u64, level: u8, keyword: u64) -> u8 {
    boundary::guarded(0, || {
        u8::from(Handle::from_raw(handle).is_some_and(|handle| handle.enabled(level, keyword)))
    })
}

/// Everything that a write is given.
struct Given {
    handle: u64,
    descriptor: *const EventDescriptor,
    filter: u64,
    flags: u32,
    activity: *const Guid,
    related: *const Guid,
    count: u32,
    data: *const DataDescriptor,
}

impl Given {
    /// [`Handle::write_descriptors`].
    ///
    /// # Safety
    ///
    /// As [`EventWriteEx`].
    #[inline(always)]
    unsafe fn write(self) -> Result<(), WriteError> {
        let handle = Handle::from_raw(self.handle).ok_or(WriteError::InvalidHandle)?;
        // SAFETY: by the contract.
        let Some(descriptor) = (unsafe { ptr::copied(self.descriptor) }) else {
            return missing(handle, 0, 0);
        };
        // One more than an event can have is enough to be refused.
        let count = (self.count as usize).min(MAX_BLOCKS.saturating_add(1));
        // SAFETY: by the contract.
        let Some(blocks) = (unsafe { ptr::array(self.data, count) }) else {
            return missing(handle, descriptor.level, descriptor.keyword);
        };
        // SAFETY: by the contract.
        let (activity, related) = unsafe { (ptr::copied(self.activity), ptr::copied(self.related)) };
        // SAFETY: by the contract.
        unsafe {
            handle.write_descriptors(
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

/// Something is NULL that must not be: wrong where anybody listens.
#[cold]
fn missing(handle: Handle, level: u8, keyword: u64) -> Result<(), WriteError> {
    if handle.enabled(level, keyword) { Err(WriteError::InvalidParameter) } else { Ok(()) }
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
    // SAFETY: by the contract.
    if unsafe { provider::write_straight(handle, descriptor, activity, related, count, data) } {
        return Status::ERROR_SUCCESS.0;
    }
    let given = Given { handle, descriptor, filter: 0, flags: 0, activity, related, count, data };
    // SAFETY: by the contract.
    boundary::status(|| unsafe { given.write() })
}

/// Writes an event with activity ids; NULL stands for the thread's, and for no related one.
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
    // SAFETY: by the contract.
    if unsafe { provider::write_straight(handle, descriptor, activity, related, count, data) } {
        return Status::ERROR_SUCCESS.0;
    }
    let given = Given { handle, descriptor, filter: 0, flags: 0, activity, related, count, data };
    // SAFETY: by the contract.
    boundary::status(|| unsafe { given.write() })
}

/// For TraceLoggingProvider.h: writes an event of its macros from where its pieces lie, if that is possible right now. Whether it was (not 0); else the macro goes
/// the published way. There is no such function on Windows, and no program calls it by itself.
///
/// # Safety
///
/// `descriptor` and `metadata` are valid, the latter for `metadata_bytes`; `data` has `count` elements, and each of them NULL or the address of as many bytes as it says, which
/// do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TraceweirWriteDescribed(
    handle: u64,
    descriptor: *const EventDescriptor,
    metadata: *const u8,
    metadata_bytes: u32,
    count: u32,
    data: *const DataDescriptor,
) -> u32 {
    // SAFETY: by the contract.
    let written = unsafe {
        provider::write_described_straight(handle, descriptor, metadata, metadata_bytes, count, data)
    };
    u32::from(written)
}

/// Writes an event, but not to the sessions whose bits `filter` has.
///
/// # Safety
///
/// Pointers are NULL or valid: `data` has `count` elements, and each of them NULL or the address of as many bytes as it says, which do not change during the call.
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
    let given = Given { handle, descriptor, filter, flags, activity, related, count, data };
    // SAFETY: by the contract.
    boundary::status(|| unsafe { given.write() })
}

/// Writes a string as an event; [`Handle::write_wide_string`].
///
/// # Safety
///
/// `text` is NULL, or UTF-16 units of which one is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventWriteString(handle: u64, level: u8, keyword: u64, text: *const u16) -> u32 {
    boundary::status(|| {
        let handle = Handle::from_raw(handle).ok_or(WriteError::InvalidHandle)?;
        if !handle.enabled(level, keyword) {
            return Ok(());
        }
        if text.is_null() {
            return Err(WriteError::InvalidParameter);
        }
        // SAFETY: by the contract.
        let length = unsafe { length_of(text) };
        // The terminator comes along.
        // SAFETY: none of the `length` units is 0, so by the contract there is one behind them.
        let bytes = unsafe { ptr::array(text.cast::<u8>(), length.saturating_add(1).saturating_mul(2)) };
        handle.write_wide_string(level, keyword, bytes.unwrap_or_default())
    })
}

/// Units in front of the terminator, at most [`ENDLESS`].
///
/// # Safety
///
/// Units can be read from `text` up to one that is 0.
unsafe fn length_of(text: *const u16) -> usize {
    let mut length = 0_usize;
    // SAFETY: none of those before was 0, so by the contract there is another one.
    while length < ENDLESS && unsafe { text.wrapping_add(length).read_unaligned() } != 0 {
        length = length.saturating_add(1);
    }
    length
}

/// Gets, sets and makes activity ids of the thread; [`provider::activity::control`].
///
/// # Safety
///
/// `id` is NULL, or a GUID can be read there, and written unless the code is EVENT_ACTIVITY_CTRL_SET_ID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn EventActivityIdControl(code: u32, id: *mut Guid) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let Some(mut value) = (unsafe { ptr::copied(id) }) else { return Status::ERROR_INVALID_PARAMETER };
        let status = provider::activity::control(code, &mut value);
        // An id that is only read may lie where nothing can be written.
        if code != EVENT_ACTIVITY_CTRL_SET_ID {
            // SAFETY: by the contract.
            unsafe { ptr::store(id, value) };
        }
        status
    })
}
