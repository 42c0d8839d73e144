//! EVENT_TRACE_PROPERTIES: one block of memory with a structure, and names behind it.
//!
//! ```text
//!   0            120 (144 with WNODE_FLAG_VERSIONED_PROPERTIES)              Wnode.BufferSize
//!   │ structure   │ ... │ room for the session's name │ room for the name of the file │
//!                       ▲ LoggerNameOffset            ▲ LogFileNameOffset
//! ```
//!
//! Either name may be first: the room of one ends where the other begins, or where the block does. What a block is wrong in is said before anything is done
//! ([`Block::open`]); that a name does not fit is said afterwards, with everything else in place ([`Block::fill`]).

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

/// The structure is an EVENT_TRACE_PROPERTIES_V2.
const WNODE_FLAG_VERSIONED_PROPERTIES: u32 = 0x0080_0000;
/// The only version there is of it.
const VERSION: u32 = 2;

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A session to be started: flags and the room for its name are needed.
    Start,
    /// A session that runs.
    Control,
}

/// A block that was looked at: what its structure said, and where its names are.
pub(super) struct Block<U> {
    at: *mut EventTraceProperties,
    /// Bytes of it all.
    bytes: usize,
    pub(super) given: EventTraceProperties,
    /// The tail of version 2.
    tail: Option<EventTracePropertiesV2>,
    unit: PhantomData<U>,
}

impl<U: Unit> Block<U> {
    /// Looks at a block, in the published order of errors.
    ///
    /// # Safety
    ///
    /// `at` is NULL, or has as many bytes as its first member says, which can be read and written while this is used.
    pub(super) unsafe fn open(at: *mut EventTraceProperties, purpose: Use) -> Result<Self, Status> {
        // SAFETY: by the contract.
        let bytes = unsafe { ptr::copied(at.cast::<u32>()) }.ok_or(Status::ERROR_INVALID_PARAMETER)? as usize;
        if bytes < size_of::<EventTraceProperties>() {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        // SAFETY: there are as many bytes.
        let given = unsafe { at.read_unaligned() };
        let has_tail = given.wnode.flags & WNODE_FLAG_VERSIONED_PROPERTIES != 0;
        if has_tail && bytes < size_of::<EventTracePropertiesV2>() {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        // SAFETY: there are as many bytes.
        let tail = has_tail.then(|| unsafe { at.cast::<EventTracePropertiesV2>().read_unaligned() });
        let block = Self { at, bytes, given, tail, unit: PhantomData };
        if block.is_valid(purpose) { Ok(block) } else { Err(Status::ERROR_INVALID_PARAMETER) }
    }

    fn is_valid(&self, purpose: Use) -> bool {
        let starts = purpose == Use::Start;
        let is_traced = self.given.wnode.flags & classic::flag::WNODE_FLAG_TRACED_GUID != 0;
        let is_known = self.tail.is_none_or(|tail| tail.v2_control & 0xFF == VERSION);
        let size = match self.tail {
            Some(_) => size_of::<EventTracePropertiesV2>(),
            None => size_of::<EventTraceProperties>(),
        };
        let lies_inside = |offset: u32| offset == 0 || (size..self.bytes).contains(&(offset as usize));
        let (name, file) = (self.given.logger_name_offset, self.given.log_file_name_offset);
        is_known && lies_inside(name) && lies_inside(file) && (!starts || is_traced && name != 0)
    }

    /// Where a text is, and units that it has room for, which end where the other begins.
    fn place(&self, offset: u32, other: u32) -> (*mut U, usize) {
        let end = if other > offset { other as usize } else { self.bytes };
        let at = self.at.cast::<u8>().wrapping_add(offset as usize).cast::<U>();
        (at, end.saturating_sub(offset as usize).checked_div(size_of::<U>()).unwrap_or(0))
    }

    fn name_place(&self) -> (*mut U, usize) {
        self.place(self.given.logger_name_offset, self.given.log_file_name_offset)
    }

    fn file_place(&self) -> (*mut U, usize) {
        self.place(self.given.log_file_name_offset, self.given.logger_name_offset)
    }

    /// Whether there is a place for the name of the log file.
    pub(super) fn has_file_place(&self) -> bool {
        self.given.log_file_name_offset != 0
    }

    /// The log file that is named; an empty name is none.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn log_file(&self) -> Result<Option<PathBuf>, Status> {
        if !self.has_file_place() {
            return Ok(None);
        }
        let (at, room) = self.file_place();
        // SAFETY: the room lies in the block.
        let path = unsafe { text::read(at, room) }?;
        Ok(Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty()))
    }

    /// The session that it asks for. ERROR_BAD_LENGTH where a copy of the name does not fit.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open), and filters are valid.
    pub(super) unsafe fn config(&self, name: String) -> Result<SessionConfig, Status> {
        if U::encoded(OsStr::new(&name)).len() >= self.name_place().1 {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        let given = &self.given;
        let filters = match &self.tail {
            // SAFETY: by the contract.
            Some(tail) => unsafe { filters::read(tail.filter_desc, tail.filter_desc_count) }?,
            None => Vec::new(),
        };
        Ok(SessionConfig {
            name,
            guid: given.wnode.guid,
            log_file_mode: given.log_file_mode,
            clock: given.wnode.client_context,
            buffer_size: given.buffer_size,
            minimum_buffers: given.minimum_buffers,
            maximum_buffers: given.maximum_buffers,
            maximum_file_size: given.maximum_file_size,
            flush_timer: given.flush_timer,
            // SAFETY: by the contract.
            log_file: unsafe { self.log_file() }?,
            enable_flags: given.enable_flags,
            flush_threshold: u32::try_from(given.flush_threshold).unwrap_or(0),
            options: self.tail.map_or(0, |tail| tail.v2_options),
            filters,
            ..SessionConfig::default()
        })
    }

    /// The changes that it asks for: of most members 0 means none, of the mode it means no live delivery.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn update(&self) -> Result<Update, Status> {
        let given = &self.given;
        let some = |value: u32| Some(value).filter(|value| *value != 0);
        Ok(Update {
            flush_timer: some(given.flush_timer),
            maximum_buffers: some(given.maximum_buffers),
            real_time: match given.log_file_mode {
                0 => Some(false),
                mode => Some(true).filter(|_| mode & EVENT_TRACE_REAL_TIME_MODE != 0),
            },
            // SAFETY: by the contract.
            log_file: unsafe { self.log_file() }?,
            enable_flags: Some(given.enable_flags),
        })
    }

    /// Tells how a session is that was just started; the name of its file is as the caller gave it.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn fill_started(&self, session: &Properties) {
        // SAFETY: by the contract.
        unsafe { self.fill_structure(session) };
        let (at, room) = self.name_place();
        // SAFETY: the room lies in the block.
        unsafe { text::write(at, room, OsStr::new(&session.config.name)) };
    }

    /// Tells how a session is, with the names that there are places for; ERROR_MORE_DATA where one does not fit.
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
            (self.given.logger_name_offset, self.name_place(), OsStr::new(&session.config.name)),
            (self.given.log_file_name_offset, self.file_place(), file),
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
        let mut out = self.given;
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
            // SAFETY: with a tail it has these.
            unsafe { self.at.cast::<EventTracePropertiesV2>().write_unaligned(tail) };
        }
    }

    /// The GUID that it names.
    pub(super) fn guid(&self) -> Guid {
        self.given.wnode.guid
    }
}

/// The time as a FILETIME.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    FileTime::from_unix(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()).0
}
