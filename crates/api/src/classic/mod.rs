//! Classic providers: one session at a time, events by class and type, and messages with a number
//! (WPP).
//!
//! ```text
//!   register(control GUID, classes, callback)
//!        │   session enables it:          callback(Enable, logger)
//!        │                                  ──▶ enable_level(logger), enable_flags(logger)
//!        │                                  ──▶ trace, trace_event, trace_event_instance,
//!        │                                      trace_message (logger, …)
//!        │   another session enables it:  callback(Enable, another logger);
//!        │                                  the first session gets nothing more
//!        │   session ends or disables it:  callback(Disable, logger)
//!        └─ Registration; unregistered on drop
//! ```
//!
//! | File | Contents |
//! |---|---|
//! | `logger` | loggers: numbers that name the session of a registration |
//! | `event` | events that a caller passes as a header, and data in one block or in fields |
//! | `instance` | instances of a class, and events about them |
//! | `message` | messages that a trace message format file decodes |
//!
//! Invariants
//!
//! 1. A logger is valid until its session ends or disables the provider, another session enables
//!    the provider, or the registration ends. Any other number fails with ERROR_INVALID_HANDLE.
//! 2. Writes do not check the level and flags that the session enabled; the provider does.
//! 3. Writing allocates nothing and takes no lock: a signal handler may write.
//!
//! New programs use [`Provider`](crate::Provider); this module is for programs written for the
//! older interface.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use traceweir::classic::{self, Event, INVALID_LOGGER, Request};
//! use traceweir::{Guid, Status};
//!
//! let logger = Arc::new(AtomicU64::new(INVALID_LOGGER));
//! let current = Arc::clone(&logger);
//! let control = Guid::from_provider_name("Example-Classic");
//! let class = Guid::from_provider_name("Example-Classic-Transfer");
//! let _registration = classic::register(
//!     control,
//!     &[class],
//!     Box::new(move |notice| {
//!         let is_on = notice.request != Request::Disable;
//!         current.store(if is_on { notice.logger } else { INVALID_LOGGER }, Ordering::Relaxed);
//!         Status::ERROR_SUCCESS
//!     }),
//! )?;
//! let logger = logger.load(Ordering::Relaxed);
//! if logger != INVALID_LOGGER {
//!     let event = Event { class, kind: 1, ..Event::default() };
//!     classic::trace(logger, &event, &[&7u32.to_le_bytes()])?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod event;
mod instance;
mod logger;
mod message;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use traceweir_format::Guid;
use traceweir_format::spec::enable::ControlCode;
use traceweir_format::spec::status::Status;

use crate::client;
use crate::enable_notice::EnableNotice;
use crate::error::{Error, Result};
use crate::registration::Handle;

pub use event::{Event, MAX_FIELDS, PointerTargets, flag, trace, trace_event};
pub use instance::{InstanceInfo, create_instance_id, trace_event_instance};
pub use logger::{INVALID_LOGGER, enable_flags, enable_level};
pub use message::{MAX_ARGUMENTS, trace_message};

/// Maximum number of classes of one registration.
pub const MAX_CLASSES: usize = 1 << 16;

/// The request that a control callback gets.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A session enables events, or changes its parameters (WMI_ENABLE_EVENTS).
    Enable,
    /// No session has events enabled any more (WMI_DISABLE_EVENTS).
    Disable,
    /// The session requests the provider's state, as events (WMI_CAPTURE_STATE).
    CaptureState,
}

impl Request {
    /// Returns the WMIDPREQUESTCODE.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Enable => 4,
            Self::Disable => 5,
            Self::CaptureState => 10,
        }
    }
}

/// The arguments of a control callback.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The request to handle.
    pub request: Request,
    /// The logger of the session to write to; with [`Request::Disable`] the one that ended.
    pub logger: u64,
}

/// A function that runs when a session enables, changes or disables the provider, or requests its
/// state.
///
/// The status that it returns during the registration becomes the result of the registration; any
/// later status is ignored. It runs like an [`EnableCallback`](crate::provider::EnableCallback),
/// under the same rules.
pub type Callback = Box<dyn Fn(&Notice) -> Status + Send + Sync>;

/// The reason why an event or message was not written, or a logger or class was not found. The
/// session counts the events of the last two as lost.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The logger was never valid, or is no longer valid.
    #[error("the logger is not valid")]
    InvalidHandle,
    /// An argument is missing or invalid, or has a wrong size.
    #[error("a parameter is invalid")]
    InvalidParameter,
    /// The header of an event lacks WNODE_FLAG_TRACED_GUID.
    #[error("the header lacks WNODE_FLAG_TRACED_GUID")]
    InvalidFlagNumber,
    /// The header of an instance event lacks WNODE_FLAG_TRACED_GUID.
    #[error("the header lacks WNODE_FLAG_TRACED_GUID")]
    InvalidFlags,
    /// The event is lost because the session has no free buffer space.
    #[error("the session has no free buffer space")]
    NoRoom,
    /// The event is larger than 64 KiB, or than the session's buffers.
    #[error("the event does not fit into the session's buffer")]
    MoreData,
}

impl TraceError {
    /// Returns the Win32 status that the documented function returns.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::InvalidHandle => Status::ERROR_INVALID_HANDLE,
            Self::InvalidParameter => Status::ERROR_INVALID_PARAMETER,
            Self::InvalidFlagNumber => Status::ERROR_INVALID_FLAG_NUMBER,
            Self::InvalidFlags => Status::ERROR_INVALID_FLAGS,
            Self::NoRoom => Status::ERROR_NOT_ENOUGH_MEMORY,
            Self::MoreData => Status::ERROR_MORE_DATA,
        }
    }
}

/// A registered classic provider, which is unregistered on drop.
///
/// Dropping waits for a running callback, unless the drop happens inside the callback.
#[derive(Debug)]
pub struct Registration {
    handle: Handle,
    class_count: usize,
}

impl Registration {
    /// Iterates over the handles of the classes in the order in which they were registered.
    pub fn class_handles(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.class_count).map(|class| instance::class_handle(self.handle, class))
    }

    /// Returns the registration handle as a number.
    #[doc(hidden)]
    #[must_use]
    pub fn raw(&self) -> u64 {
        self.handle.to_raw()
    }

    /// Gives up the ownership and returns the registration handle as a number, by which
    /// [`unregister`] ends the registration.
    #[must_use]
    pub fn into_raw(self) -> u64 {
        std::mem::ManuallyDrop::new(self).handle.to_raw()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        client::unregister(self.handle);
    }
}

/// Registers a classic provider. A process can have 1024 registrations of all kinds.
///
/// If a session has the provider enabled already, the callback runs before this function returns. A
/// status other than ERROR_SUCCESS becomes the error of this function, and nothing stays registered.
pub fn register(control: Guid, classes: &[Guid], callback: Callback) -> Result<Registration> {
    match register_with_status(control, classes, callback)? {
        (registration, Status::ERROR_SUCCESS) => Ok(registration),
        (_, status) => Err(Error::refused(status, format!("the control callback returned {}", status.0))),
    }
}

/// Like [`register`], but keeps the registration whatever status the callback returns, as
/// `RegisterTraceGuids` does, and returns both.
pub fn register_with_status(
    control: Guid,
    classes: &[Guid],
    callback: Callback,
) -> Result<(Registration, Status)> {
    register_with_handles(control, classes, callback, |_| ())
}

/// Like [`register_with_status`], but passes the registration to `store_handles` before the first
/// call of the callback, which can then use the stored handles.
#[doc(hidden)]
pub fn register_with_handles(
    control: Guid,
    classes: &[Guid],
    callback: Callback,
    store_handles: impl FnOnce(&Registration),
) -> Result<(Registration, Status)> {
    if classes.len() > MAX_CLASSES {
        let reason = format!("a provider registers at most {MAX_CLASSES} classes");
        return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
    }
    let adapter = Arc::new(CallbackAdapter::new(callback));
    let shared_adapter = Arc::clone(&adapter);
    let call_control_callback =
        Box::new(move |notice: &EnableNotice<'_>| shared_adapter.call_control_callback(notice));
    let store_registration = |handle| {
        // No other code sets the handle, so this cannot fail.
        let _ = adapter.handle.set(handle);
        store_handles(&std::mem::ManuallyDrop::new(Registration { handle, class_count: classes.len() }));
    };
    let handle = client::register_classic(control, classes, call_control_callback, store_registration)?;
    adapter.is_registering.store(false, Ordering::Relaxed);
    let status = Status(adapter.status.load(Ordering::Relaxed));
    Ok((Registration { handle, class_count: classes.len() }, status))
}

/// Ends a registration by its handle.
///
/// Fails with ERROR_INVALID_PARAMETER for an unknown handle.
pub fn unregister(raw: u64) -> Result<()> {
    let handle = Handle::from_raw_any_kind(raw).filter(|handle| handle.slot().is_classic());
    if handle.is_some_and(client::unregister) {
        return Ok(());
    }
    Err(Error::refused(Status::ERROR_INVALID_PARAMETER, "no classic provider is registered with this number"))
}

/// Converts the arguments of an enable callback to those of a control callback.
struct CallbackAdapter {
    callback: Callback,
    handle: OnceLock<Handle>,
    /// The logger of the last enable call.
    logger: AtomicU64,
    registering_thread: ThreadId,
    is_registering: AtomicBool,
    /// The status that the callback last returned on the registering thread while it registered.
    status: AtomicU32,
}

impl CallbackAdapter {
    fn new(callback: Callback) -> Self {
        Self {
            callback,
            handle: OnceLock::new(),
            logger: AtomicU64::new(INVALID_LOGGER),
            registering_thread: std::thread::current().id(),
            is_registering: AtomicBool::new(true),
            status: AtomicU32::new(0),
        }
    }

    fn call_control_callback(&self, notice: &EnableNotice<'_>) {
        let request = match ControlCode::from_number(notice.code) {
            Some(ControlCode::Disable) => Request::Disable,
            Some(ControlCode::Enable) => Request::Enable,
            _ => Request::CaptureState,
        };
        let current_logger = self.handle.get().and_then(|handle| logger::current_logger(*handle));
        // A Disable names the logger that ended. A session can end before its Enable is reported:
        // then the Enable has no valid logger, and a Disable follows.
        let logger = match (request, current_logger) {
            (Request::Disable, _) => self.logger.swap(INVALID_LOGGER, Ordering::Relaxed),
            (_, Some(logger)) => logger,
            (_, None) => INVALID_LOGGER,
        };
        if request == Request::Enable {
            self.logger.store(logger, Ordering::Relaxed);
        }
        let status = (self.callback)(&Notice { request, logger });
        let is_registering_thread = std::thread::current().id() == self.registering_thread;
        if self.is_registering.load(Ordering::Relaxed) && is_registering_thread {
            self.status.store(status.0, Ordering::Relaxed);
        }
    }
}
