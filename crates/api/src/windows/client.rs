//! Registering and unregistering with Windows.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventInfoClass;
use traceweir_format::spec::status::Status;

use super::functions::{EventRegister, EventUnregister};
use super::registration::{Handle, Registration, SlotRef, call_back, lock_registrations, with_pending_store};
use crate::enable_notice::EnableCallback;
use crate::error::{Error, Result};

/// Registers a provider. Sets its traits and passes its handle to `store_handle` before the first
/// call of the callback. `_origin`, an address in the module, is not used: Windows finds the module
/// itself.
pub(crate) fn register(
    provider: Guid,
    traits: Option<&[u8]>,
    callback: Option<EnableCallback>,
    _origin: usize,
    store_handle: impl FnOnce(Handle),
) -> Result<Handle> {
    let registration = Registration::add(callback);
    let store_handle = Cell::new(Some(store_handle));
    let set_traits_result = Cell::new(Ok(()));
    // Runs once: in the first callback, or else after EventRegister.
    let set_traits_and_store = |handle: Handle| {
        if let Some(store_handle) = store_handle.take() {
            set_traits_result.set(traits.map_or(Ok(()), |traits| set_traits(handle, traits)));
            store_handle(handle);
        }
    };
    let status = with_pending_store(&registration, &set_traits_and_store, || {
        let context = ptr::without_provenance_mut(registration.key);
        // SAFETY: the GUID lives during the call. The registration contains the place for the
        // handle and outlives the call. `call_back` accepts any context.
        unsafe { EventRegister(&raw const provider, Some(call_back), context, registration.handle.as_ptr()) }
    });
    let handle = match (status, registration.handle()) {
        (0, Some(handle)) => handle,
        _ => {
            registration.remove();
            return Err(refusal("EventRegister", Status(status)));
        }
    };
    set_traits_and_store(handle);
    match set_traits_result.into_inner() {
        Ok(()) => Ok(handle),
        Err(error) => {
            unregister(handle);
            Err(error)
        }
    }
}

/// Ends a registration, and waits for its callback unless this thread is in it. Returns whether
/// the registration existed.
pub(crate) fn unregister(handle: Handle) -> bool {
    // SAFETY: the function takes a number, and fails if it is not the handle of a registration.
    let status = unsafe { EventUnregister(handle.to_raw()) };
    let registration: Option<Arc<Registration>> =
        lock_registrations().iter().find(|known| known.handle() == Some(handle)).cloned();
    if let Some(registration) = registration {
        registration.remove();
        drop(registration.wait_until_idle());
    }
    status == Status::ERROR_SUCCESS.0
}

/// Sets the traits of a registration.
pub(crate) fn set_traits(handle: Handle, traits: &[u8]) -> Result<()> {
    let class = EventInfoClass::EventProviderSetTraits;
    check("EventSetInformation", handle.slot().set_information(class.0, Some(traits)))
}

/// Makes sessions record the module of the provider.
pub(crate) fn track_binary(handle: Handle) -> Result<()> {
    let class = EventInfoClass::EventProviderBinaryTrackInfo;
    check("EventSetInformation", handle.slot().set_information(class.0, None))
}

impl SlotRef {
    /// Sets whether the data descriptors of a write have types.
    pub(crate) fn set_descriptor_types(self, has_types: bool) {
        let class = EventInfoClass::EventProviderUseDescriptorType;
        // Fails only for a registration that has ended.
        let _ = self.set_information(class.0, Some(&[u8::from(has_types)]));
    }
}

fn check(function: &str, status: u32) -> Result<()> {
    match Status(status) {
        Status::ERROR_SUCCESS => Ok(()),
        status => Err(refusal(function, status)),
    }
}

fn refusal(function: &str, status: Status) -> Error {
    Error::refused(status, format!("{function} failed with {status}"))
}
