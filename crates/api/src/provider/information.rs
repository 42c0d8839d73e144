//! What a provider sets of its registration: EventSetInformation.
//!
//! | Class | Buffer | Effect |
//! |---|---|---|
//! | 0 EventProviderBinaryTrackInfo | none, one is tolerated | sessions are told which module the provider lives in |
//! | 1 EventProviderSetReserved1 | | 50 |
//! | 2 EventProviderSetTraits | the traits | name, group; events carry them; data descriptors have types |
//! | 3 EventProviderUseDescriptorType | one byte | data descriptors have types, or none; with traits they always have |
//! | 4 and more | | 50 |
//!
//! Looked at in this order: the class, the registration, the address, the length. All but the class are ERROR_INVALID_PARAMETER, a registration that is gone too.

use traceweir_format::spec::event::EventInfoClass as Class;
use traceweir_format::spec::status::Status;

use super::{Handle, Provider};
use crate::client;
use crate::error::{Error, Result};

/// EventSetInformation for a registration by its number: the status that the published API returns.
///
/// `info` is `None` for NULL with a length of 0. NULL with another length is an error of its own, behind the class: whoever has to tell passes 0 as `raw`.
pub fn set_information(raw: u64, class: u32, info: Option<&[u8]>) -> Status {
    let done = check_class(class).and_then(|class| match Handle::from_raw(raw) {
        Some(handle) => handle.set(class, info),
        None => Err(gone()),
    });
    done.map_or_else(|e| e.status(), |()| Status::ERROR_SUCCESS)
}

impl Provider {
    /// Sets something of the registration (EventSetInformation); see [`Handle::set_information`].
    pub fn set_information(&self, class: u32, info: Option<&[u8]>) -> Result<()> {
        self.handle().set_information(class, info)
    }
}

impl Handle {
    /// Sets something of the registration (EventSetInformation): `class` is one of `EventInfoClass`, `info` its bytes.
    ///
    /// ERROR_NOT_SUPPORTED for a class that there is not; ERROR_INVALID_PARAMETER for a registration that is gone and for bytes that are not those of
    /// the class; as [`set_traits`](Self::set_traits) for traits.
    pub fn set_information(self, class: u32, info: Option<&[u8]>) -> Result<()> {
        let class = check_class(class)?;
        if self.is_current() { self.set(class, info) } else { Err(gone()) }
    }

    fn set(self, class: Class, info: Option<&[u8]>) -> Result<()> {
        match (class, info) {
            (Class::EventProviderBinaryTrackInfo, _) => client::track_binary(self),
            (Class::EventProviderSetTraits, Some(traits)) => self.set_traits(traits),
            (Class::EventProviderUseDescriptorType, Some(&[yes])) => {
                self.slot.use_types(yes != 0);
                Ok(())
            }
            _ => Err(invalid(format!("the buffer has not the bytes that class {} takes", class.0))),
        }
    }
}

fn check_class(class: u32) -> Result<Class> {
    match Class(class) {
        known @ (Class::EventProviderBinaryTrackInfo
        | Class::EventProviderSetTraits
        | Class::EventProviderUseDescriptorType) => Ok(known),
        _ => {
            let why = format!("a provider cannot set information of class {class}: there are 0, 2 and 3");
            Err(Error::refused(Status::ERROR_NOT_SUPPORTED, why))
        }
    }
}

fn gone() -> Error {
    invalid("the registration is gone: register the provider first".to_owned())
}

fn invalid(why: String) -> Error {
    Error::refused(Status::ERROR_INVALID_PARAMETER, why)
}
