//! EventSetInformation: properties that a provider sets on its registration.
//!
//! | Class | Buffer | Effect |
//! |---|---|---|
//! | 0 EventProviderBinaryTrackInfo | none (a buffer is ignored) | sessions record the module |
//! | 1 EventProviderSetReserved1 | | ERROR_NOT_SUPPORTED |
//! | 2 EventProviderSetTraits | the traits | events carry name and group; types as with class 3 |
//! | 3 EventProviderUseDescriptorType | one byte | data descriptors have types if it is not 0 |
//! | 4 and more | | ERROR_NOT_SUPPORTED |
//!
//! With traits, data descriptors always have types.
//!
//! The checks come in this order: class, registration, address, length. All checks except that of
//! the class fail with ERROR_INVALID_PARAMETER, also for a registration that has ended.

use traceweir_format::spec::event::EventInfoClass as Class;
use traceweir_format::spec::status::Status;

use super::ProviderRef;
use crate::client;
use crate::error::{Error, Result};

/// Performs EventSetInformation for a registration handle and returns the documented status.
///
/// `info` is `None` for NULL with a length of 0. For NULL with another length the caller passes 0
/// as `raw`, so that the call fails after the check of the class.
pub fn set_information(raw: u64, class: u32, info: Option<&[u8]>) -> Status {
    let result = check_class(class).and_then(|class| match ProviderRef::from_raw(raw) {
        Ok(provider) => provider.set_class(class, info),
        Err(_) => Err(ended_error()),
    });
    result.map_or_else(|e| e.status(), |()| Status::ERROR_SUCCESS)
}

impl ProviderRef {
    /// Sets a property of the registration (EventSetInformation): `class` is one of
    /// `EventInfoClass`, `info` its bytes.
    ///
    /// Fails with ERROR_NOT_SUPPORTED for an unknown class, with ERROR_INVALID_PARAMETER for a
    /// registration that has ended and for bytes that do not fit the class, and like
    /// [`set_traits`](Self::set_traits) for traits.
    pub fn set_information(&self, class: u32, info: Option<&[u8]>) -> Result<()> {
        let class = check_class(class)?;
        if self.handle.is_current() { self.set_class(class, info) } else { Err(ended_error()) }
    }

    fn set_class(&self, class: Class, info: Option<&[u8]>) -> Result<()> {
        match (class, info) {
            (Class::EventProviderBinaryTrackInfo, _) => client::track_binary(self.handle),
            (Class::EventProviderSetTraits, Some(traits)) => self.set_traits(traits),
            (Class::EventProviderUseDescriptorType, Some(&[is_typed])) => {
                self.slot().set_descriptor_types(is_typed != 0);
                Ok(())
            }
            _ => {
                Err(invalid_error(format!("the buffer has the wrong size for information class {}", class.0)))
            }
        }
    }
}

fn check_class(class: u32) -> Result<Class> {
    match Class(class) {
        known @ (Class::EventProviderBinaryTrackInfo
        | Class::EventProviderSetTraits
        | Class::EventProviderUseDescriptorType) => Ok(known),
        _ => {
            let reason = format!("a provider cannot set information class {class}, only 0, 2 and 3");
            Err(Error::refused(Status::ERROR_NOT_SUPPORTED, reason))
        }
    }
}

fn ended_error() -> Error {
    invalid_error("the registration has ended: register the provider first".to_owned())
}

fn invalid_error(reason: String) -> Error {
    Error::refused(Status::ERROR_INVALID_PARAMETER, reason)
}
