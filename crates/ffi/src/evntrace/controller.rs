//! evntrace.h for controllers: sessions from their start to their stop, and the list of them.
//!
//! ```text
//!   StartTrace ─▶ block looked at ─▶ name ─▶ the session's rules ─▶ started ─▶ block filled
//!   ControlTrace, StopTrace … ─▶ block looked at ─▶ which session? ─▶ done ─▶ block filled: a name that does not fit changes nothing about what was done
//! ```
//!
//! Each function has a form for UTF-16 and one for UTF-8, which are one function here.

use traceweir::controller::{Controller, Properties};
use traceweir::{Error, Status};
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::session::KERNEL_LOGGER_NAME;

use super::properties::{Block, Use};
use super::sessions::{self, Meant};
use crate::text::{self, Unit};
use crate::types::controller::EventTraceProperties;
use crate::{boundary, ptr};

/// What to do with a session (EVENT_TRACE_CONTROL_…).
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
    fn of(code: u32) -> Option<Self> {
        use Action::{ConvertToRealTime, Flush, IncrementFile, Query, Stop, Update};
        [Query, Stop, Update, Flush, IncrementFile, ConvertToRealTime].get(code as usize).copied()
    }
}

/// A function that returns a status from one that says why it failed.
fn status(body: impl FnOnce() -> Result<Status, Status>) -> u32 {
    boundary::status(|| body().unwrap_or_else(|failed| failed))
}

/// Starts a session; [`Controller::start`], or [`PrivateSession::start`](traceweir::PrivateSession::start) for one in this process.
///
/// # Safety
///
/// Pointers are NULL or valid: `name` ends, `properties` has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn StartTraceW(
    id: *mut u64,
    name: *const u16,
    properties: *mut EventTraceProperties,
) -> u32 {
    // SAFETY: by the contract.
    status(|| unsafe { start(id, name, properties) })
}

/// The same with names in UTF-8.
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
/// Pointers are NULL or valid: `name` ends, `properties` has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ControlTraceW(
    id: u64,
    name: *const u16,
    properties: *mut EventTraceProperties,
    code: u32,
) -> u32 {
    // SAFETY: by the contract.
    status(|| unsafe { control(id, name, properties, Action::of(code)) })
}

/// The same with names in UTF-8.
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
    status(|| unsafe { control(id, name, properties, Action::of(code)) })
}

/// Functions that do one of the things that ControlTrace does.
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

        /// The same with names in UTF-8.
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
    Query QueryTraceW QueryTraceA "How a session is; [`Controller::query`].",
    Stop StopTraceW StopTraceA "Stops a session; [`Controller::stop`].",
    Update UpdateTraceW UpdateTraceA "Changes a session; [`Controller::update`].",
    Flush FlushTraceW FlushTraceA "Writes out what a session has buffered; [`Controller::flush`].",
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
    let is_kernels = name.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(KERNEL_LOGGER_NAME));
    if block.guid() == SYSTEM_TRACE_CONTROL && !is_kernels {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let meant = Meant { id, name, mode: block.given.log_file_mode };
    // SAFETY: by the contract.
    let now = unsafe { act(&block, meant, action) }?;
    // SAFETY: by the contract.
    Ok(unsafe { block.fill(&now) })
}

/// # Safety
///
/// As [`ControlTraceW`].
unsafe fn act<U: Unit>(block: &Block<U>, meant: Meant, action: Action) -> Result<Properties, Status> {
    let target = sessions::find(meant).map_err(|error| error.status())?;
    let outcome = match action {
        Action::Query => target.query(),
        Action::Stop => target.stop(),
        // SAFETY: by the contract.
        Action::Update => target.update(&unsafe { block.update() }?),
        Action::Flush => {
            let wrong = |status| Error::refused(status, "the name of the log file has no end, or is no text");
            // SAFETY: by the contract.
            target.flush(block.has_file_place().then_some(|| unsafe { block.log_file() }.map_err(wrong)))
        }
        Action::IncrementFile => target.increment(),
        Action::ConvertToRealTime => target.convert_to_real_time(),
    };
    outcome.map_err(|error| error.status())
}

/// How all sessions are; [`Controller::query_all`]. Those in processes are not among them.
///
/// # Safety
///
/// `all` is NULL, or has `room` elements that are NULL or have as many bytes as they say; `running` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryAllTracesW(
    all: *mut *mut EventTraceProperties,
    room: u32,
    running: *mut u32,
) -> u32 {
    // SAFETY: by the contract.
    status(|| unsafe { query_all::<u16>(all, room, running) })
}

/// The same with names in UTF-8.
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
    let told = sessions.len().min(room as usize);
    let mut blocks = Vec::new();
    for index in 0..told {
        // SAFETY: by the contract.
        let at = unsafe { ptr::copied(all.wrapping_add(index)) }.unwrap_or_default();
        // SAFETY: by the contract. All are looked at before the first is filled.
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
    Ok(if told < sessions.len() { Status::ERROR_MORE_DATA } else { outcome })
}
