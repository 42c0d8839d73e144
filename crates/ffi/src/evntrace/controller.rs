//! evntrace.h for controllers: starting, controlling, stopping and listing sessions.
//!
//! ```text
//!   StartTrace ─▶ check block ─▶ read name ─▶ make configuration ─▶ start ─▶ fill block
//!   ControlTrace, StopTrace … ─▶ check block ─▶ find session ─▶ perform action ─▶ fill block
//! ```
//!
//! The block is an EVENT_TRACE_PROPERTIES with the names after it. StartTrace checks before the
//! start that the session name fits into the block. After the other actions, a name that does not
//! fit is an error, but the action is not undone. Each function has a form for UTF-16 and one for
//! UTF-8, which share one implementation here.

use traceweir::controller::{Controller, Properties, SessionConfig};
use traceweir::{Error, Status};
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::session::KERNEL_LOGGER_NAME;

use super::file_names;
use super::properties::{BlockPurpose, PropertiesBlock};
use super::sessions::{self, SessionSelector};
use crate::text::{self, TextUnit};
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

/// Starts a session; [`Controller::start`], or for a session in this process
/// [`PrivateSession::start`](traceweir::PrivateSession::start).
///
/// # Safety
///
/// Pointers are NULL or valid: `name` has a terminator, `properties` has `Wnode.BufferSize` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn StartTraceW(
    id: *mut u64,
    name: *const u16,
    properties: *mut EventTraceProperties,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `start_session` requires no more.
    boundary::to_status(|| unsafe { start_session(id, name, properties) })
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
    // SAFETY: the caller fulfils the `# Safety` section; `start_session` requires no more.
    boundary::to_status(|| unsafe { start_session(id, name, properties) })
}

/// Starts the session that a block describes, and fills in the block.
///
/// # Safety
///
/// As [`StartTraceW`].
unsafe fn start_session<U: TextUnit>(
    id: *mut u64,
    name: *const U,
    properties: *mut EventTraceProperties,
) -> Result<Status, Status> {
    // SAFETY: the caller passes NULL or a writable `id`.
    unsafe { ptr::store(id, 0) };
    if id.is_null() || name.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    // SAFETY: the caller fulfils the `# Safety` section; `open` requires no more.
    let block = unsafe { PropertiesBlock::<U>::open(properties, BlockPurpose::Start) }?;
    // SAFETY: the caller passes NULL or a text with a terminator as `name`.
    let name = unsafe { text::read_name(name) }?.unwrap_or_default();
    // SAFETY: the caller fulfils the `# Safety` section; `start_from_block` requires no more.
    unsafe { start_from_block(id, &block, name, Vec::new()) }
}

/// Starts the kernel logger. `kernel_stacks` has the form of `TraceStackTracingInfo`: it lists the
/// kernel events whose call stacks the logger records, from its start on.
///
/// # Safety
///
/// As [`StartTraceW`].
pub(crate) unsafe fn start_kernel_logger(
    id: *mut u64,
    properties: *mut EventTraceProperties,
    kernel_stacks: Vec<u8>,
) -> Result<Status, Status> {
    // SAFETY: the caller passes NULL or a writable `id`.
    unsafe { ptr::store(id, 0) };
    if id.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    // SAFETY: the caller fulfils the `# Safety` section; `open` requires no more.
    let block = unsafe { PropertiesBlock::<u16>::open(properties, BlockPurpose::Start) }?;
    // SAFETY: the caller fulfils the `# Safety` section; `start_from_block` requires no more.
    unsafe { start_from_block(id, &block, KERNEL_LOGGER_NAME.to_owned(), kernel_stacks) }
}

/// # Safety
///
/// As [`StartTraceW`]; `id` is not NULL.
unsafe fn start_from_block<U: TextUnit>(
    id: *mut u64,
    block: &PropertiesBlock<U>,
    name: String,
    kernel_stacks: Vec<u8>,
) -> Result<Status, Status> {
    // SAFETY: the caller fulfils the `# Safety` section; `config` requires no more.
    let config = SessionConfig { kernel_stacks, ..unsafe { block.config(name) }? };
    let started = sessions::start(&config).map_err(|error| error.status())?;
    file_names::store(&started, config.log_file.as_deref());
    // SAFETY: `id` is not NULL and the block was opened, so the caller guarantees that both can be
    // written.
    unsafe {
        block.fill_started(&started);
        ptr::store(id, started.api_id());
    }
    Ok(Status::ERROR_SUCCESS)
}

/// Performs an action on a session (EVENT_TRACE_CONTROL_…); [`Controller`] has a method for each.
///
/// # Safety
///
/// Pointers are NULL or valid: `name` has a terminator, `properties` has `Wnode.BufferSize` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ControlTraceW(
    id: u64,
    name: *const u16,
    properties: *mut EventTraceProperties,
    code: u32,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `control_session` requires no more.
    boundary::to_status(|| unsafe { control_session(id, name, properties, Action::from_code(code)) })
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
    // SAFETY: the caller fulfils the `# Safety` section; `control_session` requires no more.
    boundary::to_status(|| unsafe { control_session(id, name, properties, Action::from_code(code)) })
}

/// Defines functions that perform one action of ControlTrace each.
macro_rules! control_functions {
    ($($action:ident $wide:ident $narrow:ident $text:literal,)*) => {$(
        #[doc = $text]
        ///
        /// # Safety
        ///
        /// As [`ControlTraceW`].
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wide(id: u64, name: *const u16, properties: *mut EventTraceProperties) -> u32 {
            // SAFETY: the caller fulfils the `# Safety` section; `control_session` requires no
            // more.
            boundary::to_status(|| unsafe { control_session(id, name, properties, Some(Action::$action)) })
        }

        /// Like the function for UTF-16, with names in UTF-8.
        ///
        /// # Safety
        ///
        /// As [`ControlTraceA`].
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $narrow(id: u64, name: *const u8, properties: *mut EventTraceProperties) -> u32 {
            // SAFETY: the caller fulfils the `# Safety` section; `control_session` requires no
            // more.
            boundary::to_status(|| unsafe { control_session(id, name, properties, Some(Action::$action)) })
        }
    )*};
}

control_functions! {
    Query QueryTraceW QueryTraceA "Queries the state of a session; [`Controller::query`].",
    Stop StopTraceW StopTraceA "Stops a session; [`Controller::stop`].",
    Update UpdateTraceW UpdateTraceA "Changes a session; [`Controller::update`].",
    Flush FlushTraceW FlushTraceA "Writes out the buffered events of a session; [`Controller::flush`].",
}

/// Finds a session, performs an action on it, and fills in the block.
///
/// # Safety
///
/// As [`ControlTraceW`].
unsafe fn control_session<U: TextUnit>(
    id: u64,
    name: *const U,
    properties: *mut EventTraceProperties,
    action: Option<Action>,
) -> Result<Status, Status> {
    let action = action.ok_or(Status::ERROR_INVALID_PARAMETER)?;
    // SAFETY: the caller fulfils the `# Safety` section; `open` requires no more.
    let block = unsafe { PropertiesBlock::<U>::open(properties, BlockPurpose::Control) }?;
    // SAFETY: the caller passes NULL or a text with a terminator as `name`.
    let name = unsafe { text::read_name(name) }?;
    let is_kernel_logger = name.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(KERNEL_LOGGER_NAME));
    // This GUID belongs to the kernel logger, so it contradicts the name of any other session.
    if block.guid() == SYSTEM_TRACE_CONTROL && !is_kernel_logger {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let selector = SessionSelector { id, name, mode: block.structure.log_file_mode };
    // SAFETY: the caller fulfils the `# Safety` section; `perform_action` requires no more.
    let properties = unsafe { perform_action(&block, selector, action) }?;
    // SAFETY: the caller fulfils the `# Safety` section; `fill` requires no more.
    let filled = unsafe { block.fill(&properties) };
    if action == Action::Stop {
        file_names::forget(&properties);
    }
    Ok(filled)
}

/// Performs an action on a session, and returns the session's properties.
///
/// # Safety
///
/// As [`ControlTraceW`].
unsafe fn perform_action<U: TextUnit>(
    block: &PropertiesBlock<U>,
    selector: SessionSelector,
    action: Action,
) -> Result<Properties, Status> {
    let target = sessions::find(selector).map_err(|error| error.status())?;
    let outcome = match action {
        Action::Query => target.query(),
        Action::Stop => target.stop(),
        Action::Update => {
            // SAFETY: the caller fulfils the `# Safety` section; `update` requires no more.
            let update = unsafe { block.update() }?;
            let updated = target.update(&update);
            updated.inspect(|session| file_names::store(session, update.log_file.as_deref()))
        }
        Action::Flush => {
            let reason = "the log file name has no terminator, or is not valid text";
            let to_error = |status| Error::refused(status, reason);
            // SAFETY: the caller fulfils the `# Safety` section; `log_file` requires no more.
            target.flush(block.has_file_name().then_some(|| unsafe { block.log_file() }.map_err(to_error)))
        }
        Action::IncrementFile => target.increment(),
        Action::ConvertToRealTime => target.convert_to_real_time(),
    };
    outcome.map_err(|error| error.status())
}

/// Queries the state of all sessions; [`Controller::query_all`]. Private sessions are not
/// included.
///
/// # Safety
///
/// `properties_array` is NULL, or has `capacity` elements, each NULL or with `Wnode.BufferSize`
/// bytes; `session_count` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryAllTracesW(
    properties_array: *mut *mut EventTraceProperties,
    capacity: u32,
    session_count: *mut u32,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `query_all_sessions` requires no more.
    boundary::to_status(|| unsafe { query_all_sessions::<u16>(properties_array, capacity, session_count) })
}

/// Like [`QueryAllTracesW`], with names in UTF-8.
///
/// # Safety
///
/// As [`QueryAllTracesW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryAllTracesA(
    properties_array: *mut *mut EventTraceProperties,
    capacity: u32,
    session_count: *mut u32,
) -> u32 {
    // SAFETY: the caller fulfils the `# Safety` section; `query_all_sessions` requires no more.
    boundary::to_status(|| unsafe { query_all_sessions::<u8>(properties_array, capacity, session_count) })
}

/// Fills in one block for each session, and stores the number of sessions.
///
/// # Safety
///
/// As [`QueryAllTracesW`].
unsafe fn query_all_sessions<U: TextUnit>(
    properties_array: *mut *mut EventTraceProperties,
    capacity: u32,
    session_count: *mut u32,
) -> Result<Status, Status> {
    if capacity == 0 || properties_array.is_null() || session_count.is_null() {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let sessions = match Controller::find(None).map_err(|error| error.status())? {
        Some(mut daemon) => daemon.query_all().map_err(|error| error.status())?,
        None => Vec::new(),
    };
    let count = sessions.len().min(capacity as usize);
    let mut blocks = Vec::new();
    for index in 0..count {
        // SAFETY: `index` is less than `capacity`, and the caller guarantees as many elements.
        let at = unsafe { ptr::read_value(properties_array.wrapping_add(index)) }.unwrap_or_default();
        // All blocks are checked before the first is filled.
        // SAFETY: the caller guarantees that each element is NULL or a block.
        blocks.push(unsafe { PropertiesBlock::<U>::open(at, BlockPurpose::Control) }?);
    }
    let mut outcome = Status::ERROR_SUCCESS;
    for (block, session) in blocks.iter().zip(&sessions) {
        // SAFETY: the caller fulfils the `# Safety` section; `fill` requires no more.
        let filled = unsafe { block.fill(session) };
        outcome = if filled == Status::ERROR_SUCCESS { outcome } else { filled };
    }
    // SAFETY: the caller passes NULL or a writable `session_count`.
    unsafe { ptr::store(session_count, u32::try_from(sessions.len()).unwrap_or(u32::MAX)) };
    Ok(if count < sessions.len() { Status::ERROR_MORE_DATA } else { outcome })
}
