//! evntrace.h for controllers: sessions from their start to their stop, and the list of them.
//!
//! ```text
//!   StartTrace ─▶ check block ─▶ read name ─▶ apply the session's rules ─▶ start ─▶ fill block
//!   ControlTrace, StopTrace … ─▶ check block ─▶ find session ─▶ act ─▶ fill block
//! ```
//!
//! A name that does not fit into the block is an error, but does not undo the action. Each function
//! has a form for UTF-16 and one for UTF-8, which share one implementation here.

use traceweir::controller::{Controller, Properties};
use traceweir::{Error, Status};
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::session::KERNEL_LOGGER_NAME;

use super::properties::{Block, Use};
use super::sessions::{self, SessionSelector};
use crate::text::{self, Unit};
use crate::types::controller::EventTraceProperties;
use crate::{boundary, ptr};

/// An action on a session (EVENT_TRACE_CONTROL_…).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Query,
    Stop,
    Update,
    Flush,
    IncrementFile,
    ConvertToRealTime,
}

impl Action {
    fn from_code(code: u32) -> Option<Self> {
        use Action::{ConvertToRealTime, Flush, IncrementFile, Query, Stop, Update};
        [Query, Stop, Update, Flush, IncrementFile, ConvertToRealTime].get(code as usize).copied()
    }
}

/// Runs a body whose failure is a status too.
fn status(body: impl FnOnce() -> Result<Status, Status>) -> u32 {
    boundary::status(|| body().unwrap_or_else(|failed| failed))
}

/// Starts a session; [`Controller::start`], or for one in this process
/// [`PrivateSession::start`](traceweir::PrivateSession::start).
///
/// # Safety
///
/// Pointers are NULL or valid: `name` has a terminator, `properties` has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn StartTraceW(
    id: *mut u64,
    name: *const u16,
    properties: *mut EventTraceProperties,
) -> u32 {
    // SAFETY: by the contract.
    status(|| unsafe { start(id, name, properties) })
}

/// Like [`StartTraceW`], with names in UTF-8.
///
/// # Safety
///
/// As [`StartTraceW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn StartTraceA(
    id: *mut u64,
    name: *const u8,
    properties: *mut EventTraceProperties,
) -> u32 {
    // SAFETY: by the contract.
    status(|| unsafe { start(id, name, properties) })
}

/// # Safety
///
/// As [`StartTraceW`].
unsafe fn start<U: Unit>(
    id: *mut u64,
    name: *const U,
    properties: *mut EventTraceProperties,
) -> Result<Status, Status> {
    // SAFETY: by the contract.
    unsafe { ptr::store(id, 0) };
    if id.is_null() || name.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    // SAFETY: by the contract.
    let block = unsafe { Block::<U>::open(properties, Use::Start) }?;
    // SAFETY: by the contract.
    let name = unsafe { text::name(name) }?.unwrap_or_default();
    // SAFETY: by the contract.
    let config = unsafe { block.config(name) }?;
    let started = sessions::start(&config).map_err(|error| error.status())?;
    // SAFETY: by the contract.
    unsafe {
        block.fill_started(&started);
        ptr::store(id, started.id);
    }
    Ok(Status::ERROR_SUCCESS)
}

/// Queries, stops, changes or flushes a session; [`Controller`] has a method for each.
///
/// # Safety
///
/// Pointers are NULL or valid: `name` has a terminator, `properties` has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ControlTraceW(
    id: u64,
    name: *const u16,
    properties: *mut EventTraceProperties,
    code: u32,
) -> u32 {
    // SAFETY: by the contract.
    status(|| unsafe { control(id, name, properties, Action::from_code(code)) })
}

/// Like [`ControlTraceW`], with names in UTF-8.
///
/// # Safety
///
/// As [`ControlTraceW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ControlTraceA(
    id: u64,
    name: *const u8,
    properties: *mut EventTraceProperties,
    code: u32,
) -> u32 {
    // SAFETY: by the contract.
    status(|| unsafe { control(id, name, properties, Action::from_code(code)) })
}

/// Functions that perform one action of ControlTrace.
macro_rules! fixed {
    ($($action:ident $wide:ident $narrow:ident $text:literal,)*) => {$(
        #[doc = $text]
        ///
        /// # Safety
        ///
        /// As [`ControlTraceW`].
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wide(id: u64, name: *const u16, properties: *mut EventTraceProperties) -> u32 {
            // SAFETY: by the contract.
            status(|| unsafe { control(id, name, properties, Some(Action::$action)) })
        }

        /// Like the function for UTF-16, with names in UTF-8.
        ///
        /// # Safety
        ///
        /// As [`ControlTraceA`].
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $narrow(id: u64, name: *const u8, properties: *mut EventTraceProperties) -> u32 {
            // SAFETY: by the contract.
            status(|| unsafe { control(id, name, properties, Some(Action::$action)) })
        }
    )*};
}

fixed! {
    Query QueryTraceW QueryTraceA "Queries the state of a session; [`Controller::query`].",
    Stop StopTraceW StopTraceA "Stops a session; [`Controller::stop`].",
    Update UpdateTraceW UpdateTraceA "Changes a session; [`Controller::update`].",
    Flush FlushTraceW FlushTraceA "Writes out the buffered events of a session; [`Controller::flush`].",
}

/// # Safety
///
/// As [`ControlTraceW`].
unsafe fn control<U: Unit>(
    id: u64,
    name: *const U,
    properties: *mut EventTraceProperties,
    action: Option<Action>,
) -> Result<Status, Status> {
    let action = action.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    // SAFETY: by the contract.
    let block = unsafe { Block::<U>::open(properties, Use::Control) }?;
    // SAFETY: by the contract.
    let name = unsafe { text::name(name) }?;
    let is_kernel_logger = name.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(KERNEL_LOGGER_NAME));
    if block.guid() == SYSTEM_TRACE_CONTROL && !is_kernel_logger {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let selector = SessionSelector { id, name, mode: block.structure.log_file_mode };
    // SAFETY: by the contract.
    let now = unsafe { act(&block, selector, action) }?;
    // SAFETY: by the contract.
    Ok(unsafe { block.fill(&now) })
}

/// # Safety
///
/// As [`ControlTraceW`].
unsafe fn act<U: Unit>(
    block: &Block<U>,
    selector: SessionSelector,
    action: Action,
) -> Result<Properties, Status> {
    let target = sessions::find(selector).map_err(|error| error.status())?;
    let outcome = match action {
        Action::Query => target.query(),
        Action::Stop => target.stop(),
        // SAFETY: by the contract.
        Action::Update => target.update(&unsafe { block.update() }?),
        Action::Flush => {
            let reason = "the log file name has no terminator, or is not valid text";
            let wrong = |status| Error::refused(status, reason);
            // SAFETY: by the contract.
            target.flush(block.has_file_room().then_some(|| unsafe { block.log_file() }.map_err(wrong)))
        }
        Action::IncrementFile => target.increment(),
        Action::ConvertToRealTime => target.convert_to_real_time(),
    };
    outcome.map_err(|error| error.status())
}

/// Queries the state of all sessions; [`Controller::query_all`]. Sessions in processes are not
/// included.
///
/// # Safety
///
/// `all` is NULL, or has `room` elements that are NULL or have as many bytes as they say; `running`
/// is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryAllTracesW(
    all: *mut *mut EventTraceProperties,
    room: u32,
    running: *mut u32,
) -> u32 {
    // SAFETY: by the contract.
    status(|| unsafe { query_all::<u16>(all, room, running) })
}

/// Like [`QueryAllTracesW`], with names in UTF-8.
///
/// # Safety
///
/// As [`QueryAllTracesW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryAllTracesA(
    all: *mut *mut EventTraceProperties,
    room: u32,
    running: *mut u32,
) -> u32 {
    // SAFETY: by the contract.
    status(|| unsafe { query_all::<u8>(all, room, running) })
}

/// # Safety
///
/// As [`QueryAllTracesW`].
unsafe fn query_all<U: Unit>(
    all: *mut *mut EventTraceProperties,
    room: u32,
    running: *mut u32,
) -> Result<Status, Status> {
    if room == 0 || all.is_null() || running.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let sessions = match Controller::find(None).map_err(|error| error.status())? {
        Some(mut daemon) => daemon.query_all().map_err(|error| error.status())?,
        None => Vec::new(),
    };
    let count = sessions.len().min(room as usize);
    let mut blocks = Vec::new();
    for index in 0..count {
        // SAFETY: by the contract.
        let at = unsafe { ptr::copied(all.wrapping_add(index)) }.unwrap_or_default();
        // SAFETY: by the contract. All blocks are checked before the first is filled.
        blocks.push(unsafe { Block::<U>::open(at, Use::Control) }?);
    }
    let mut outcome = Status::ERROR_SUCCESS;
    for (block, session) in blocks.iter().zip(&sessions) {
        // SAFETY: by the contract.
        let filled = unsafe { block.fill(session) };
        outcome = if filled == Status::ERROR_SUCCESS { outcome } else { filled };
    }
    // SAFETY: by the contract.
    unsafe { ptr::store(running, u32::try_from(sessions.len()).unwrap_or(u32::MAX)) };
    Ok(if count < sessions.len() { Status::ERROR_MORE_DATA } else { outcome })
}
