//! Classic providers: one session at a time, events by class and type, and messages with a number (WPP).
//!
//! ```text
//!   register(control GUID, classes, callback)
//!        │        session enables it: callback(Enable, logger) ──▶ enable_level(logger), enable_flags(logger)
//!        │                                                     ──▶ trace, trace_event, trace_event_instance, trace_message (logger, …)
//!        │        another session enables it: callback(Enable, another logger); the first gets nothing more
//!        │        session ends, disables it:  callback(Disable, logger)
//!        └─ Registration; unregistered on drop
//! ```
//!
//! | File | What it knows |
//! |---|---|
//! | `logger` | loggers: numbers that name the way from a registration to its session |
//! | `event` | events: headers as a caller fills them, data in one block or in fields |
//! | `instance` | instances of a class, and events about them |
//! | `message` | messages that a trace message format file decodes |
//!
//! Invariants
//!
//! 1. A logger is valid until the callback is called again, or the registration ends; an older one is ERROR_INVALID_HANDLE, and so is any other number.
//! 2. Whoever holds a logger writes: nothing is compared with level or flags, which are the provider's to heed.
//! 3. Writing allocates nothing and takes no lock: a signal handler may write.
//!
//! A program of today uses [`Provider`](crate::Provider); this is for those that were written for the older interface.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use traceweir::classic::{self, Event, INVALID_LOGGER, Request};
//! use traceweir::{Guid, Status};
//!
//! let logger = Arc::new(AtomicU64::new(INVALID_LOGGER));
//! let told = Arc::clone(&logger);
//! let control = Guid::from_provider_name("Example-Classic");
//! let class = Guid::from_provider_name("Example-Classic-Transfer");
//! let _registration = classic::register(
//!     control,
//!     &[class],
//!     Box::new(move |notice| {
//!         let is_on = notice.request != Request::Disable;
//!         told.store(if is_on { notice.logger } else { INVALID_LOGGER }, Ordering::Relaxed);
//!         Status::ERROR_SUCCESS
//!     }),
//! )?;
//! let logger = logger.load(Ordering::Relaxed);
//! if logger != INVALID_LOGGER {
//!     classic::trace(logger, &Event { class, kind: 1, ..Event::default() }, &[&7u32.to_le_bytes()])?;
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
use traceweir_format::spec::status::Status;

use crate::client;
use crate::error::{Error, Result};
use crate::provider::{EnableNotice, Handle};

pub use event::{Behind, Event, MAX_FIELDS, flag, trace, trace_event};
pub use instance::{InstanceInfo, create_instance_id, trace_event_instance};
pub use logger::{INVALID_LOGGER, enable_flags, enable_level};
pub use message::{MAX_ARGUMENTS, trace_message};

/// Classes of one registration.
pub const MAX_CLASSES: usize = 1 << 16;

/// What a control callback is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A session wants events, or wants others (WMI_ENABLE_EVENTS).
    Enable,
    /// No session wants events any more (WMI_DISABLE_EVENTS).
    Disable,
    /// The session asks for the provider's state, as events (WMI_CAPTURE_STATE).
    CaptureState,
}

impl Request {
    /// WMIDPREQUESTCODE.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Enable => 4,
            Self::Disable => 5,
            Self::CaptureState => 10,
        }
    }
}

/// What a control callback is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What to do.
    pub request: Request,
    /// The session that it is about, to be written to; with [`Request::Disable`] the one that is gone.
    pub logger: u64,
}

/// Called when a session enables, changes or disables the provider, or asks for its state. What it returns during the registration is what the
/// registration returns; it means nothing later.
///
/// It runs as an [`EnableCallback`](crate::provider::EnableCallback) does, and may do the same.
pub type Callback = Box<dyn Fn(&Notice) -> Status + Send + Sync>;

/// Why an event or message was not written. Loss is counted in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The logger is not valid, or not any more.
    #[error("the logger is not valid")]
    InvalidHandle,
    /// Something is missing or has a wrong size.
    #[error("a parameter is wrong")]
    InvalidParameter,
    /// The header of an event has no WNODE_FLAG_TRACED_GUID.
    #[error("the header has not the flag of a traced event")]
    InvalidFlagNumber,
    /// The header of an instance event has no WNODE_FLAG_TRACED_GUID.
    #[error("the header has not the flag of a traced event")]
    InvalidFlags,
    /// No free room in the session; the event is lost.
    #[error("no free room in the session")]
    NoRoom,
    /// Larger than 64 KiB, or than the session's buffers.
    #[error("the event does not fit into the session's buffer")]
    MoreData,
}

impl TraceError {
    /// The Win32 status that the published API returns.
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

/// A registered classic provider; unregistered on drop, which waits for a running callback unless it happens inside it.
#[derive(Debug)]
pub struct Registration {
    handle: Handle,
    classes: usize,
}

impl Registration {
    /// The numbers that stand for the classes, in the order of the registration: what instances are made of.
    pub fn class_handles(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.classes).map(|class| instance::class_handle(self.handle, class))
    }

    /// Its number.
    #[doc(hidden)]
    #[must_use]
    pub fn raw(&self) -> u64 {
        self.handle.to_raw()
    }

    /// Gives the ownership to whoever keeps the number, who ends the registration with [`unregister`].
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

/// Registers a classic provider. Together with others a process has 1024.
///
/// Where a session has it enabled already, the callback runs before the return, and a status that is not ERROR_SUCCESS is this function's: nothing stays
/// registered then.
pub fn register(control: Guid, classes: &[Guid], callback: Callback) -> Result<Registration> {
    match register_with_status(control, classes, callback)? {
        (registration, Status::ERROR_SUCCESS) => Ok(registration),
        (_, status) => Err(Error::refused(status, format!("the control callback returned {}", status.0))),
    }
}

/// As [`register`], with the callback's status beside a registration that stands whatever it is, as the published function has it.
pub fn register_with_status(
    control: Guid,
    classes: &[Guid],
    callback: Callback,
) -> Result<(Registration, Status)> {
    register_known(control, classes, callback, |_| ())
}

/// The same, where the program keeps the numbers in places of its own: `known` is told them before the callback can run, which may use them.
#[doc(hidden)]
pub fn register_known(
    control: Guid,
    classes: &[Guid],
    callback: Callback,
    known: impl FnOnce(&Registration),
) -> Result<(Registration, Status)> {
    if classes.len() > MAX_CLASSES {
        let why = format!("a provider registers at most {MAX_CLASSES} classes");
        return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why));
    }
    let teller = Arc::new(Teller::new(callback));
    let told = Arc::clone(&teller);
    let pass_on = Box::new(move |notice: &EnableNotice<'_>| told.pass_on(notice));
    let entered = |handle| {
        // Set once, here.
        let _ = teller.handle.set(handle);
        known(&std::mem::ManuallyDrop::new(Registration { handle, classes: classes.len() }));
    };
    let handle = client::register_classic(control, classes, pass_on, entered)?;
    teller.is_registering.store(false, Ordering::Relaxed);
    let status = Status(teller.status.load(Ordering::Relaxed));
    Ok((Registration { handle, classes: classes.len() }, status))
}

/// Ends a registration by its number; one that is unknown is ERROR_INVALID_PARAMETER.
pub fn unregister(raw: u64) -> Result<()> {
    let found = Handle::from_raw_of_any_kind(raw).filter(|handle| handle.slot().is_classic());
    if found.is_some_and(client::unregister) {
        return Ok(());
    }
    Err(Error::refused(Status::ERROR_INVALID_PARAMETER, "no classic provider is registered by this number"))
}

/// Turns what all providers are told into what a classic one is.
struct Teller {
    callback: Callback,
    handle: OnceLock<Handle>,
    /// The logger that was told last.
    logger: AtomicU64,
    /// The thread that registers, for as long as it does, and what the callback returned to it.
    registering: ThreadId,
    is_registering: AtomicBool,
    status: AtomicU32,
}

impl Teller {
    fn new(callback: Callback) -> Self {
        Self {
            callback,
            handle: OnceLock::new(),
            logger: AtomicU64::new(INVALID_LOGGER),
            registering: std::thread::current().id(),
            is_registering: AtomicBool::new(true),
            status: AtomicU32::new(0),
        }
    }

    fn pass_on(&self, notice: &EnableNotice<'_>) {
        let request = match notice.code {
            0 => Request::Disable,
            1 => Request::Enable,
            _ => Request::CaptureState,
        };
        let now = self.handle.get().and_then(|handle| logger::of(*handle));
        // Who is told of an end is told of what; by the time of an enable, the session may be gone again: then the end follows.
        let logger = match (request, now) {
            (Request::Disable, _) => self.logger.swap(INVALID_LOGGER, Ordering::Relaxed),
            (_, Some(logger)) => logger,
            (_, None) => INVALID_LOGGER,
        };
        if request == Request::Enable {
            self.logger.store(logger, Ordering::Relaxed);
        }
        let status = (self.callback)(&Notice { request, logger });
        if self.is_registering.load(Ordering::Relaxed) && std::thread::current().id() == self.registering {
            self.status.store(status.0, Ordering::Relaxed);
        }
    }
}
