//! EVENT_TRACE_PROPERTIES: one block of memory with a structure and the names after it.
//!
//! ```text
//!   0            120 (144 with WNODE_FLAG_VERSIONED_PROPERTIES)              Wnode.BufferSize
//!   │ structure   │ ... │ room for the session's name │ room for the name of the file │
//!                       ▲ LoggerNameOffset            ▲ LogFileNameOffset
//! ```
//!
//! Either name may be first: the room of one ends where the other begins, or where the block ends.
//! [`Block::open`] reports errors in a block before anything is done. [`Block::fill`] reports a
//! name that does not fit after the action, with everything else filled in.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use traceweir::controller::{Properties, SessionConfig, Update};
use traceweir::{Guid, Status, classic};
use traceweir_format::spec::session::EVENT_TRACE_REAL_TIME_MODE;
use traceweir_format::time::FileTime;

use super::filters;
use crate::ptr;
use crate::text::{self, Unit};
use crate::types::controller::{EventTraceProperties, EventTracePropertiesV2};

/// This flag says that the structure is an EVENT_TRACE_PROPERTIES_V2.
const WNODE_FLAG_VERSIONED_PROPERTIES: u32 = 0x0080_0000;
/// The only version of EVENT_TRACE_PROPERTIES_V2.
const VERSION: u32 = 2;

/// The purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Starts a session: flags and the room for its name are required.
    Start,
    /// Controls a running session.
    Control,
}

/// A checked block: a copy of its structure, and the place of its names.
pub(super) struct Block<U> {
    at: *mut EventTraceProperties,
    /// Size of the whole block in bytes.
    bytes: usize,
    pub(super) structure: EventTraceProperties,
    /// The whole structure of version 2, if it is one.
    tail: Option<EventTracePropertiesV2>,
    unit: PhantomData<U>,
}

impl<U: Unit> Block<U> {
    /// Checks a block, in the published order of errors.
    ///
    /// # Safety
    ///
    /// `at` is NULL, or has as many bytes as its first member says, which can be read and written
    /// while the `Block` is used.
    pub(super) unsafe fn open(at: *mut EventTraceProperties, purpose: Use) -> Result<Self, Status> {
        // SAFETY: by the contract.
        let bytes = unsafe { ptr::copied(at.cast::<u32>()) }.ok_or(Status::ERROR_INVALID_PARAMETER)? as usize;
        if bytes < size_of::<EventTraceProperties>() {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        // SAFETY: the block has at least the bytes of the structure.
        let structure = unsafe { at.read_unaligned() };
        let has_tail = structure.wnode.flags & WNODE_FLAG_VERSIONED_PROPERTIES != 0;
        if has_tail && bytes < size_of::<EventTracePropertiesV2>() {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        // SAFETY: the block has at least the bytes of the structure.
        let tail = has_tail.then(|| unsafe { at.cast::<EventTracePropertiesV2>().read_unaligned() });
        let block = Self { at, bytes, structure, tail, unit: PhantomData };
        if block.is_valid(purpose) { Ok(block) } else { Err(Status::ERROR_INVALID_PARAMETER) }
    }

    fn is_valid(&self, purpose: Use) -> bool {
        let starts = purpose == Use::Start;
        let is_traced = self.structure.wnode.flags & classic::flag::WNODE_FLAG_TRACED_GUID != 0;
        let is_known = self.tail.is_none_or(|tail| tail.v2_control & 0xFF == VERSION);
        let size = match self.tail {
            Some(_) => size_of::<EventTracePropertiesV2>(),
            None => size_of::<EventTraceProperties>(),
        };
        let lies_inside = |offset: u32| offset == 0 || (size..self.bytes).contains(&(offset as usize));
        let (name, file) = (self.structure.logger_name_offset, self.structure.log_file_name_offset);
        is_known && lies_inside(name) && lies_inside(file) && (!starts || is_traced && name != 0)
    }

    /// Returns the address of a text and its room in units, which ends where the other text begins.
    fn text_room(&self, offset: u32, other: u32) -> (*mut U, usize) {
        let end = if other > offset { other as usize } else { self.bytes };
        let at = self.at.cast::<u8>().wrapping_add(offset as usize).cast::<U>();
        (at, end.saturating_sub(offset as usize).checked_div(size_of::<U>()).unwrap_or(0))
    }

    fn name_room(&self) -> (*mut U, usize) {
        self.text_room(self.structure.logger_name_offset, self.structure.log_file_name_offset)
    }

    fn file_room(&self) -> (*mut U, usize) {
        self.text_room(self.structure.log_file_name_offset, self.structure.logger_name_offset)
    }

    /// Returns whether the block has room for the name of the log file.
    pub(super) fn has_file_room(&self) -> bool {
        self.structure.log_file_name_offset != 0
    }

    /// Reads the name of the log file; an empty name is `None`.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn log_file(&self) -> Result<Option<PathBuf>, Status> {
        if !self.has_file_room() {
            return Ok(None);
        }
        let (at, room) = self.file_room();
        // SAFETY: the room lies in the block.
        let path = unsafe { text::read(at, room) }?;
        Ok(Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty()))
    }

    /// Returns the configuration of the session to start, or ERROR_BAD_LENGTH if a copy of the name
    /// does not fit into the block.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open), and filters are valid.
    pub(super) unsafe fn config(&self, name: String) -> Result<SessionConfig, Status> {
        if U::encoded(OsStr::new(&name)).len() >= self.name_room().1 {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        let structure = &self.structure;
        let filters = match &self.tail {
            // SAFETY: by the contract.
            Some(tail) => unsafe { filters::read(tail.filter_desc, tail.filter_desc_count) }?,
            None => Vec::new(),
        };
        Ok(SessionConfig {
            name,
            guid: structure.wnode.guid,
            log_file_mode: structure.log_file_mode,
            clock: structure.wnode.client_context,
            buffer_size: structure.buffer_size,
            minimum_buffers: structure.minimum_buffers,
            maximum_buffers: structure.maximum_buffers,
            maximum_file_size: structure.maximum_file_size,
            flush_timer: structure.flush_timer,
            // SAFETY: by the contract.
            log_file: unsafe { self.log_file() }?,
            enable_flags: structure.enable_flags,
            flush_threshold: u32::try_from(structure.flush_threshold).unwrap_or(0),
            options: self.tail.map_or(0, |tail| tail.v2_options),
            filters,
            ..SessionConfig::default()
        })
    }

    /// Returns the requested changes. A member that is 0 changes nothing, except the mode: a mode
    /// of 0 ends live delivery.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn update(&self) -> Result<Update, Status> {
        let structure = &self.structure;
        let some = |value: u32| Some(value).filter(|value| *value != 0);
        Ok(Update {
            flush_timer: some(structure.flush_timer),
            maximum_buffers: some(structure.maximum_buffers),
            real_time: match structure.log_file_mode {
                0 => Some(false),
                mode => Some(true).filter(|_| mode & EVENT_TRACE_REAL_TIME_MODE != 0),
            },
            // SAFETY: by the contract.
            log_file: unsafe { self.log_file() }?,
            enable_flags: Some(structure.enable_flags),
        })
    }

    /// Writes the state of a session that was just started. The log file name stays as the caller
    /// set it.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn fill_started(&self, session: &Properties) {
        // SAFETY: by the contract.
        unsafe { self.fill_structure(session) };
        let (at, room) = self.name_room();
        // SAFETY: the room lies in the block.
        unsafe { text::write(at, room, OsStr::new(&session.config.name)) };
    }

    /// Writes the state of a session, with the names that the block has room for. Returns
    /// ERROR_MORE_DATA if one does not fit.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn fill(&self, session: &Properties) -> Status {
        // SAFETY: by the contract.
        unsafe { self.fill_structure(session) };
        let file = session.config.log_file.as_ref().map_or(OsStr::new(""), |path| path.as_os_str());
        let mut fits = true;
        for (offset, (at, room), text) in [
            (self.structure.logger_name_offset, self.name_room(), OsStr::new(&session.config.name)),
            (self.structure.log_file_name_offset, self.file_room(), file),
        ] {
            // SAFETY: the room lies in the block.
            fits &= offset == 0 || unsafe { text::write(at, room, text) };
        }
        if fits { Status::ERROR_SUCCESS } else { Status::ERROR_MORE_DATA }
    }

    /// # Safety
    ///
    /// As [`open`](Self::open).
    unsafe fn fill_structure(&self, session: &Properties) {
        let Properties { config, .. } = session;
        let mut out = self.structure;
        out.wnode.historical_context = session.id;
        out.wnode.time_stamp = now();
        out.wnode.guid = config.guid;
        out.wnode.client_context = config.clock;
        out.wnode.flags |= classic::flag::WNODE_FLAG_TRACED_GUID;
        out.buffer_size = config.buffer_size;
        out.minimum_buffers = config.minimum_buffers;
        out.maximum_buffers = config.maximum_buffers;
        out.maximum_file_size = config.maximum_file_size;
        out.log_file_mode = config.log_file_mode;
        out.flush_timer = config.flush_timer;
        out.enable_flags = config.enable_flags;
        out.flush_threshold = i32::try_from(config.flush_threshold).unwrap_or(i32::MAX);
        out.number_of_buffers = session.number_of_buffers;
        out.free_buffers = session.free_buffers;
        out.events_lost = u32::try_from(session.events_lost).unwrap_or(u32::MAX);
        out.buffers_written = session.buffers_written;
        out.log_buffers_lost = session.log_buffers_lost;
        out.real_time_buffers_lost = session.real_time_buffers_lost;
        out.logger_thread_id = u64::from(session.logger_thread_id);
        // SAFETY: the block has at least these bytes.
        unsafe { self.at.write_unaligned(out) };
        if let Some(tail) = self.tail {
            let tail = EventTracePropertiesV2 { first: out, v2_options: config.options, ..tail };
            // SAFETY: a block with a tail has these bytes.
            unsafe { self.at.cast::<EventTracePropertiesV2>().write_unaligned(tail) };
        }
    }

    /// Returns the GUID in the block.
    pub(super) fn guid(&self) -> Guid {
        self.structure.wnode.guid
    }
}

/// Returns the current time as a FILETIME.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    FileTime::from_unix(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()).0
}
