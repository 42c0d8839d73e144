//! EVENT_TRACE_PROPERTIES: one block of memory with a structure and the names after it.
//!
//! ```text
//!   0            120 (144 with WNODE_FLAG_VERSIONED_PROPERTIES)              Wnode.BufferSize
//!   │ structure   │ ... │ area of the session's name │ area of the file's name │
//!                       ▲ LoggerNameOffset            ▲ LogFileNameOffset
//! ```
//!
//! The names may be in either order: an area ends where the other area begins, or at the end of the
//! block.
//! [`PropertiesBlock::open`] reports errors in a block before the action. [`PropertiesBlock::fill`]
//! reports a name that does not fit after the action, with everything else filled in.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::path::PathBuf;

use traceweir::controller::{Properties, SessionConfig, Update};
use traceweir::{Guid, Status, classic};
use traceweir_format::spec::session::EVENT_TRACE_REAL_TIME_MODE;
use traceweir_format::time::FileTime;

use super::{file_names, filters};
use crate::ptr;
use crate::text::{self, TextUnit};
use crate::types::controller::{EventTraceProperties, EventTracePropertiesV2};

/// This flag says that the structure is an EVENT_TRACE_PROPERTIES_V2.
const WNODE_FLAG_VERSIONED_PROPERTIES: u32 = 0x0080_0000;
/// The only version of EVENT_TRACE_PROPERTIES_V2.
const V2_VERSION: u32 = 2;

/// The purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockPurpose {
    /// Starts a session: WNODE_FLAG_TRACED_GUID and an area for the session's name are required.
    Start,
    /// Controls a running session.
    Control,
}

/// A checked block: its address, and a copy of its structure.
pub(super) struct PropertiesBlock<U> {
    at: *mut EventTraceProperties,
    /// Size of the whole block in bytes.
    bytes: usize,
    pub(super) structure: EventTraceProperties,
    /// The whole structure of version 2, if the block has one.
    v2: Option<EventTracePropertiesV2>,
    unit: PhantomData<U>,
}

/// The part of a block that holds one name.
struct TextArea<U> {
    at: *mut U,
    units: usize,
}

impl<U: TextUnit> PropertiesBlock<U> {
    /// Checks a block: first its size (ERROR_BAD_LENGTH), then its content
    /// (ERROR_INVALID_PARAMETER).
    ///
    /// # Safety
    ///
    /// `at` is NULL, or the address of as many bytes as the first member says. They can be read and
    /// written while the `PropertiesBlock` is used.
    pub(super) unsafe fn open(at: *mut EventTraceProperties, purpose: BlockPurpose) -> Result<Self, Status> {
        // SAFETY: the caller passes NULL or a readable `at`.
        let bytes =
            unsafe { ptr::read_value(at.cast::<u32>()) }.ok_or(Status::ERROR_INVALID_PARAMETER)? as usize;
        if bytes < size_of::<EventTraceProperties>() {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        // SAFETY: the block has at least the bytes of the structure.
        let structure = unsafe { at.read_unaligned() };
        let is_v2 = structure.wnode.flags & WNODE_FLAG_VERSIONED_PROPERTIES != 0;
        if is_v2 && bytes < size_of::<EventTracePropertiesV2>() {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        // SAFETY: the block has at least the bytes of the structure.
        let v2 = is_v2.then(|| unsafe { at.cast::<EventTracePropertiesV2>().read_unaligned() });
        let block = Self { at, bytes, structure, v2, unit: PhantomData };
        if block.is_valid(purpose) { Ok(block) } else { Err(Status::ERROR_INVALID_PARAMETER) }
    }

    fn is_valid(&self, purpose: BlockPurpose) -> bool {
        let is_start = purpose == BlockPurpose::Start;
        let has_traced_flag = self.structure.wnode.flags & classic::flag::WNODE_FLAG_TRACED_GUID != 0;
        let is_known_version = self.v2.is_none_or(|v2| v2.v2_control & 0xFF == V2_VERSION);
        let size = match self.v2 {
            Some(_) => size_of::<EventTracePropertiesV2>(),
            None => size_of::<EventTraceProperties>(),
        };
        let is_inside = |offset: u32| offset == 0 || (size..self.bytes).contains(&(offset as usize));
        let (name, file) = (self.structure.logger_name_offset, self.structure.log_file_name_offset);
        is_known_version && is_inside(name) && is_inside(file) && (!is_start || has_traced_flag && name != 0)
    }

    /// Returns the area of a text: up to the other text if that comes later in the block, else to
    /// the end of the block.
    fn text_area(&self, offset: u32, other_offset: u32) -> TextArea<U> {
        let end = if other_offset > offset { other_offset as usize } else { self.bytes };
        let at = self.at.cast::<u8>().wrapping_add(offset as usize).cast::<U>();
        let units = end.saturating_sub(offset as usize).checked_div(size_of::<U>()).unwrap_or(0);
        TextArea { at, units }
    }

    fn session_name_area(&self) -> TextArea<U> {
        self.text_area(self.structure.logger_name_offset, self.structure.log_file_name_offset)
    }

    fn file_name_area(&self) -> TextArea<U> {
        self.text_area(self.structure.log_file_name_offset, self.structure.logger_name_offset)
    }

    /// Returns whether the block has an area for the name of the log file.
    pub(super) fn has_file_name(&self) -> bool {
        self.structure.log_file_name_offset != 0
    }

    /// Reads the name of the log file; an empty name is `None`.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn log_file(&self) -> Result<Option<PathBuf>, Status> {
        if !self.has_file_name() {
            return Ok(None);
        }
        let area = self.file_name_area();
        // SAFETY: the area lies in the block, which can be read.
        let path = unsafe { text::read(area.at, area.units) }?;
        Ok(Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty()))
    }

    /// Returns the configuration of the session to start, or ERROR_BAD_LENGTH if a copy of the name
    /// does not fit into the block.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open), and filters are valid.
    pub(super) unsafe fn config(&self, name: String) -> Result<SessionConfig, Status> {
        if U::encode(OsStr::new(&name)).len() >= self.session_name_area().units {
            return Err(Status::ERROR_BAD_LENGTH);
        }
        let structure = &self.structure;
        let filters = match &self.v2 {
            // SAFETY: the caller fulfils the `# Safety` section; `read` requires no more.
            Some(v2) => unsafe { filters::read(v2.filter_desc, v2.filter_desc_count) }?,
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
            // SAFETY: the caller fulfils the `# Safety` section; `log_file` requires no more.
            log_file: unsafe { self.log_file() }?,
            enable_flags: structure.enable_flags,
            flush_threshold: u32::try_from(structure.flush_threshold).unwrap_or(0),
            options: self.v2.map_or(0, |v2| v2.v2_options),
            filters,
            ..SessionConfig::default()
        })
    }

    /// Returns the requested changes. A member that is 0 changes nothing, with two exceptions: a
    /// mode of 0 ends live delivery, and the enable flags are always set.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn update(&self) -> Result<Update, Status> {
        let structure = &self.structure;
        let non_zero = |value: u32| Some(value).filter(|value| *value != 0);
        Ok(Update {
            flush_timer: non_zero(structure.flush_timer),
            maximum_buffers: non_zero(structure.maximum_buffers),
            real_time: match structure.log_file_mode {
                0 => Some(false),
                mode => Some(true).filter(|_| mode & EVENT_TRACE_REAL_TIME_MODE != 0),
            },
            // SAFETY: the caller fulfils the `# Safety` section; `log_file` requires no more.
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
        // SAFETY: the caller fulfils the `# Safety` section; `fill_structure` requires no more.
        unsafe { self.fill_structure(session) };
        let area = self.session_name_area();
        // SAFETY: the area lies in the block, which can be written.
        unsafe { text::write(area.at, area.units, OsStr::new(&session.config.name)) };
    }

    /// Writes the state of a session, with the names for which the block has an area. Returns
    /// ERROR_MORE_DATA if a name does not fit.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    pub(super) unsafe fn fill(&self, session: &Properties) -> Status {
        // SAFETY: the caller fulfils the `# Safety` section; `fill_structure` requires no more.
        unsafe { self.fill_structure(session) };
        let file = file_names::name_for(session).unwrap_or_default();
        let mut fits = true;
        for (offset, area, text) in [
            (self.structure.logger_name_offset, self.session_name_area(), OsStr::new(&session.config.name)),
            (self.structure.log_file_name_offset, self.file_name_area(), file.as_os_str()),
        ] {
            // SAFETY: the area lies in the block, which can be written.
            fits &= offset == 0 || unsafe { text::write(area.at, area.units, text) };
        }
        if fits { Status::ERROR_SUCCESS } else { Status::ERROR_MORE_DATA }
    }

    /// Writes the state of a session, without names.
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open).
    unsafe fn fill_structure(&self, session: &Properties) {
        let Properties { config, .. } = session;
        let mut filled = self.structure;
        filled.wnode.historical_context = session.api_id();
        filled.wnode.time_stamp = FileTime::now().0;
        filled.wnode.guid = config.guid;
        filled.wnode.client_context = config.clock;
        filled.wnode.flags |= classic::flag::WNODE_FLAG_TRACED_GUID;
        filled.buffer_size = config.buffer_size;
        filled.minimum_buffers = config.minimum_buffers;
        filled.maximum_buffers = config.maximum_buffers;
        filled.maximum_file_size = config.maximum_file_size;
        filled.log_file_mode = config.log_file_mode;
        filled.flush_timer = config.flush_timer;
        filled.enable_flags = config.enable_flags;
        filled.flush_threshold = i32::try_from(config.flush_threshold).unwrap_or(i32::MAX);
        filled.number_of_buffers = session.number_of_buffers;
        filled.free_buffers = session.free_buffers;
        filled.events_lost = u32::try_from(session.events_lost).unwrap_or(u32::MAX);
        filled.buffers_written = session.buffers_written;
        filled.log_buffers_lost = session.log_buffers_lost;
        filled.real_time_buffers_lost = session.real_time_buffers_lost;
        filled.logger_thread_id = u64::from(session.logger_thread_id);
        // SAFETY: the block has at least the bytes of the structure.
        unsafe { self.at.write_unaligned(filled) };
        if let Some(v2) = self.v2 {
            let v2 = EventTracePropertiesV2 { base: filled, v2_options: config.options, ..v2 };
            // SAFETY: `open` checked that the block has the bytes of the version 2 structure.
            unsafe { self.at.cast::<EventTracePropertiesV2>().write_unaligned(v2) };
        }
    }

    /// Returns the GUID in the block.
    pub(super) fn guid(&self) -> Guid {
        self.structure.wnode.guid
    }
}
