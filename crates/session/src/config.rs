//! Properties of a session, checked and adjusted by the documented rules of ETW.
//!
//! ```text
//!   names ─▶ mode flags ─▶ GUID and name ─▶ path ─▶ clock ─▶ EnableFlags ─▶ filters
//!   87       87            87               161     87       87             87
//!     ─▶ unsupported modes ─▶ sizes adjusted ─▶ file limit
//!        50                                     87
//! ```
//!
//! Errors come in this order, with these Win32 codes. A flag that is legal but not supported is
//! rejected with a reason instead of ignored, unless the rules say to ignore it (the table is in
//! `config/mode.rs`).
//! Source: Documented ("Logging Mode Constants", "EVENT_TRACE_PROPERTIES"); Traceweir chooses
//! the limits of memory.

mod file_sequence;
mod mode;

pub use file_sequence::{check_sequence_pattern, sequence_file_name};
pub(crate) use mode::{MODE_FLAGS_NOT_IN_FILES, Mode};

use traceweir_format::Guid;
use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::header::MAX_RECORD_BYTES;
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_EXECUTABLE_NAME, EVENT_FILTER_TYPE_PID, SESSION_FILTER_DESCRIBE_PROCESSES,
    SESSION_FILTER_PROCESS_TREES,
};
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::session::{
    CIRCULAR_KERNEL_CONTEXT_LOGGER_NAME, EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE,
    KERNEL_LOGGER_NAME,
};
use traceweir_format::spec::status::Status;
use traceweir_transport::abi::{self, Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::cpu;
use traceweir_transport::message::{MAX_NAME_UNITS, ProcessTree, SessionConfig};

use crate::error::{Result, refuse};
use crate::region::{Regions, wake_at_bytes};

/// Default limit of the number of sessions.
pub const DEFAULT_MAX_SESSIONS: u32 = 64;
const DEFAULT_BUFFER_KIB: u32 = 64;
const MIN_BUFFER_KIB: u32 = 4;
const MAX_BUFFER_KIB: u32 = 16384;
/// Difference between maximum and minimum number of buffers if no maximum is given.
const SPARE_BUFFERS: u32 = 20;
/// Largest ring size that is chosen by default.
const MAX_DEFAULT_RING_BYTES: u64 = 8 << 20;

/// Bytes of a header buffer in addition to the names, rounded up.
const HEADER_BUFFER_FIXED_BYTES: usize = 1024;

/// GUID of the global logger.
const GLOBAL_LOGGER: Guid = Guid::from_u128(0xe890_8abc_aa84_11d2_9a93_0080_5f85_d7c6);
/// EnableFlags bit of an internal extension block, which callers must not set.
const ENABLE_EXTENSION: u32 = 0x8000_0000;

/// The component that starts a session: some modes are allowed for one component only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionStarter {
    /// A controller, by a request.
    Controller,
    /// The daemon itself, by its configuration.
    Autologger,
}

/// A configuration that was checked and adjusted by the rules of ETW.
#[derive(Clone, Debug)]
pub struct Config {
    properties: SessionConfig,
    cpus: u16,
    /// Memory of the machine in bytes.
    memory_bytes: u64,
}

/// Size limit of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLimit {
    /// The file has no limit.
    None,
    /// The session ends at this many bytes.
    Stop(u64),
    /// The next file of the sequence begins at this many bytes.
    Next(u64),
    /// The log wraps around at this many bytes.
    Wrap(u64),
}

impl Config {
    /// Checks the properties (in the order of ETW's errors) and adjusts sizes and numbers of
    /// buffers for `cpus` CPUs.
    pub fn new(properties: SessionConfig, cpus: u16) -> Result<Self> {
        Self::with_memory(properties, cpus, memory_bytes(), SessionStarter::Controller)
    }

    /// Like [`new`](Self::new), for a session that the daemon starts by itself: it may be
    /// non-stoppable, but not a file sequence.
    pub fn for_autologger(properties: SessionConfig, cpus: u16) -> Result<Self> {
        Self::with_memory(properties, cpus, memory_bytes(), SessionStarter::Autologger)
    }

    /// Like [`new`](Self::new), for a private session that a controller starts in other processes.
    pub fn for_private(mut properties: SessionConfig, cpus: u16) -> Result<Self> {
        // The checks refuse a private session without PRIVATE_IN_PROC. The flag is only for them:
        // the session runs in its members, not in the process of the controller.
        properties.log_file_mode |= EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;
        let mut config = Self::new(properties, cpus)?;
        config.properties.log_file_mode &= !EVENT_TRACE_PRIVATE_IN_PROC;
        Ok(config)
    }

    fn with_memory(
        mut properties: SessionConfig,
        cpus: u16,
        memory_bytes: u64,
        starter: SessionStarter,
    ) -> Result<Self> {
        let mode = Mode(properties.log_file_mode);
        check_names(&properties)?;
        mode.check(&properties, starter)?;
        if is_system_logger(&properties) {
            mode.check_system()?;
        }
        if properties.guid == SYSTEM_TRACE_CONTROL && !is_kernel_logger(&properties) {
            return refuse(Status::ERROR_INVALID_PARAMETER, "this GUID belongs to the NT Kernel Logger");
        }
        if properties.log_file.is_none() && mode.needs_path() {
            return refuse(Status::ERROR_BAD_PATHNAME, "a log file is needed and none is named");
        }
        if properties.clock > 3 {
            return refuse(Status::ERROR_INVALID_PARAMETER, "the clock must be 0, 1, 2 or 3");
        }
        check_enable_flags(&properties, properties.enable_flags)?;
        check_filters(&properties)?;
        mode.check_supported()?;
        if is_system_logger(&properties) && mode.is_private() {
            let reason = "kernel events are collected by the daemon: a private session gets none";
            return refuse(Status::ERROR_NOT_SUPPORTED, reason);
        }
        if is_kernel_logger(&properties) {
            // Replaces any GUID that was given.
            properties.guid = SYSTEM_TRACE_CONTROL;
        }
        let mut config = Self { properties, cpus: cpus.clamp(1, abi::MAX_CPUS), memory_bytes };
        config.adjust();
        config.check_limit()?;
        Ok(config)
    }

    /// Returns the configuration with another maximum number of buffers, adjusted by the same
    /// rules.
    #[must_use]
    pub fn with_maximum_buffers(mut self, buffers: u32) -> Self {
        self.properties.maximum_buffers = buffers.max(1);
        self.adjust();
        self
    }

    /// Returns the configuration with another number of user stack bytes per event.
    #[must_use]
    pub fn with_stack_bytes(mut self, bytes: u32) -> Self {
        self.properties.stack_bytes = bytes;
        self
    }

    fn adjust(&mut self) {
        let streams = u32::from(self.streams());
        let mode = self.mode();
        let properties = &mut self.properties;
        let size = if properties.buffer_size == 0 { DEFAULT_BUFFER_KIB } else { properties.buffer_size };
        properties.buffer_size =
            size.clamp(MIN_BUFFER_KIB.max(header_kib(properties)), MAX_BUFFER_KIB).next_multiple_of(4);
        let affordable = affordable_buffers(properties.buffer_size, self.memory_bytes);
        properties.minimum_buffers =
            properties.minimum_buffers.max(streams.saturating_mul(2)).min(affordable);
        properties.maximum_buffers = match properties.maximum_buffers {
            _ if mode.is_buffering() => properties.minimum_buffers,
            0 => properties.minimum_buffers.saturating_add(SPARE_BUFFERS),
            n => n,
        };
        properties.maximum_buffers = properties.maximum_buffers.clamp(properties.minimum_buffers, affordable);
        // Full buffers wait until the threshold is reached. So it leaves each stream a buffer to
        // fill.
        properties.flush_threshold =
            properties.flush_threshold.min(properties.maximum_buffers.saturating_sub(streams));
        if properties.clock == 0 {
            properties.clock = 1;
        }
        if mode.is_real_time() && properties.flush_timer == 0 {
            properties.flush_timer = 1;
        }
        if properties.guid.is_null() {
            // Without random numbers, the session has no GUID, which is allowed.
            properties.guid = new_guid().unwrap_or(Guid::NULL);
        }
    }

    /// Checks that a limited log holds its header buffer and at least one other buffer.
    fn check_limit(&self) -> Result<()> {
        let min_bytes = (self.buffer_bytes() as u64).saturating_mul(2);
        match file_limit(&self.properties) {
            FileLimit::Stop(bytes) | FileLimit::Wrap(bytes) | FileLimit::Next(bytes) if bytes < min_bytes => {
                let reason = "the limit of a log file must leave room for two buffers, one for the header and one \
                              for events: raise it (128 KiB with buffers of 64 KiB), or make the buffers smaller";
                refuse(Status::ERROR_INVALID_PARAMETER, reason)
            }
            _ => Ok(()),
        }
    }

    /// Returns the adjusted properties.
    #[must_use]
    pub fn properties(&self) -> &SessionConfig {
        &self.properties
    }

    pub(crate) fn mode(&self) -> Mode {
        Mode(self.properties.log_file_mode)
    }

    /// Records the clock that the session actually uses.
    pub(crate) fn set_clock(&mut self, clock: u32) {
        self.properties.clock = clock;
    }

    /// Returns the period of the flush timer in seconds; 0 means none. A flight recorder has none:
    /// it is written only on request and at the stop.
    pub(crate) fn flush_seconds(properties: &SessionConfig) -> u32 {
        if Mode(properties.log_file_mode).is_buffering() { 0 } else { properties.flush_timer }
    }

    /// Returns the number of CPUs that regions have rings for.
    pub(crate) fn cpus(&self) -> u16 {
        self.cpus
    }

    /// Returns the number of streams: one per CPU, or one for all CPUs.
    pub(crate) fn streams(&self) -> u16 {
        stream_count(&self.properties, self.cpus)
    }

    /// Returns the size of a buffer in bytes.
    pub(crate) fn buffer_bytes(&self) -> usize {
        (self.properties.buffer_size as usize).saturating_mul(1024)
    }

    /// Returns the largest number of buffers that an update may set.
    pub(crate) fn affordable_buffers(&self) -> u32 {
        affordable_buffers(self.properties.buffer_size, self.memory_bytes)
    }

    /// Returns the object that lays out this session's regions.
    pub(crate) fn regions(&self, clock: Counter) -> Result<Regions> {
        let max_record = MAX_RECORD_BYTES.min(self.buffer_bytes().saturating_sub(HEADER_SIZE));
        // Room for two of the largest records.
        let min_bytes = (abi::size_in_ring(max_record) as u64).saturating_mul(2).next_power_of_two();
        let ring_bytes = self.ring_bytes(min_bytes);
        let largest = RegionParams {
            layout: Layout::new(self.cpus, ring_bytes)?,
            clock,
            wake_at: if self.properties.low_latency { 1 } else { wake_at_bytes(ring_bytes) },
            max_record: u32::try_from(max_record).unwrap_or(u32::MAX),
        };
        let min_bytes = u32::try_from(min_bytes).unwrap_or(abi::MAX_RING_BYTES);
        Ok(Regions::new(largest, min_bytes, cpu::online(), self.memory_bytes))
    }

    /// Returns the ring size: the requested one or a share of the session's memory, within limits,
    /// and a power of two.
    fn ring_bytes(&self, min_bytes: u64) -> u32 {
        let requested = u64::from(self.properties.ring_bytes);
        let share = (self.buffer_bytes() as u64)
            .saturating_mul(u64::from(self.properties.maximum_buffers))
            .checked_div(u64::from(self.cpus).saturating_mul(2))
            .unwrap_or(0);
        let bytes = if requested == 0 {
            share.clamp(min_bytes, MAX_DEFAULT_RING_BYTES.max(min_bytes))
        } else {
            requested.clamp(min_bytes, u64::from(abi::MAX_RING_BYTES))
        };
        u32::try_from(bytes.next_power_of_two()).unwrap_or(abi::MAX_RING_BYTES).min(abi::MAX_RING_BYTES)
    }
}

/// Returns how many buffers fit into a quarter of the machine's memory, at least two.
fn affordable_buffers(buffer_kib: u32, memory_bytes: u64) -> u32 {
    let buffers = (memory_bytes / 4).checked_div(u64::from(buffer_kib) << 10).unwrap_or(0);
    u32::try_from(buffers).unwrap_or(u32::MAX).max(2)
}

/// Returns the size limit of the log file.
pub(crate) fn file_limit(properties: &SessionConfig) -> FileLimit {
    let mode = Mode(properties.log_file_mode);
    let shift = if mode.has_limit_in_kib() { 10 } else { 20 };
    match u64::from(properties.maximum_file_size) << shift {
        0 => FileLimit::None,
        bytes if mode.is_circular() => FileLimit::Wrap(bytes),
        bytes if mode.is_file_sequence() => FileLimit::Next(bytes),
        bytes => FileLimit::Stop(bytes),
    }
}

/// Returns whether a session receives kernel events, by mode, GUID or name.
#[must_use]
pub fn is_system_logger(properties: &SessionConfig) -> bool {
    Mode(properties.log_file_mode).is_system()
        || [SYSTEM_TRACE_CONTROL, GLOBAL_LOGGER].contains(&properties.guid)
        || has_reserved_slot(properties)
}

fn is_kernel_logger(properties: &SessionConfig) -> bool {
    properties.name.eq_ignore_ascii_case(KERNEL_LOGGER_NAME)
}

/// Returns whether a session is one of the two with a reserved slot among the system loggers, by
/// name.
#[must_use]
pub fn has_reserved_slot(properties: &SessionConfig) -> bool {
    is_kernel_logger(properties) || properties.name.eq_ignore_ascii_case(CIRCULAR_KERNEL_CONTEXT_LOGGER_NAME)
}

/// Returns the number of buffer streams of a session on a machine with `cpus` CPUs.
#[must_use]
pub fn stream_count(properties: &SessionConfig, cpus: u16) -> u16 {
    if Mode(properties.log_file_mode).is_one_stream() { 1 } else { cpus.clamp(1, abi::MAX_CPUS) }
}

/// Checks that only system loggers select groups of kernel events, and that the internal extension
/// bit is not set.
pub fn check_enable_flags(properties: &SessionConfig, flags: u32) -> Result<()> {
    if flags & ENABLE_EXTENSION != 0 || flags != 0 && !is_system_logger(properties) {
        let reason = "EnableFlags must be 0 if the session gets no kernel events, and bit 31 must not be set";
        return refuse(Status::ERROR_INVALID_PARAMETER, reason);
    }
    Ok(())
}

/// Checks the filters of a session: process ids or executable names of a private session, the
/// process trees of a system logger, or the request of another session to describe processes.
fn check_filters(properties: &SessionConfig) -> Result<()> {
    let supported = [EVENT_FILTER_TYPE_PID, EVENT_FILTER_TYPE_EXECUTABLE_NAME];
    let reason = match properties.filters.as_slice() {
        [] => return Ok(()),
        [trees] if trees.kind == SESSION_FILTER_PROCESS_TREES => {
            if is_system_logger(properties) && ProcessTree::decode(&trees.data).is_some() {
                return Ok(());
            }
            "process trees must be valid, and only a session with kernel events can have them"
        }
        [request] if request.kind == SESSION_FILTER_DESCRIBE_PROCESSES => {
            let is_private = Mode(properties.log_file_mode).is_private();
            if request.data.is_empty() && !is_private && !is_system_logger(properties) {
                return Ok(());
            }
            "a private session or a system logger cannot describe processes in its log file"
        }
        _ if !Mode(properties.log_file_mode).is_private() => "only a private session can have filters",
        filters if filters.iter().any(|filter| !supported.contains(&filter.kind)) => {
            "filters of a session must be process ids or executable names"
        }
        _ => return Ok(()),
    };
    refuse(Status::ERROR_INVALID_PARAMETER, reason)
}

fn check_names(properties: &SessionConfig) -> Result<()> {
    let utf16_length = |text: &str| text.encode_utf16().count();
    if properties.name.is_empty() || utf16_length(&properties.name) > MAX_NAME_UNITS {
        return refuse(Status::ERROR_INVALID_PARAMETER, "a session name must have 1 to 1,023 characters");
    }
    let path = properties.log_file.as_ref().map_or(0, |path| utf16_length(&path.to_string_lossy()));
    if path > MAX_NAME_UNITS {
        return refuse(Status::ERROR_INVALID_PARAMETER, "a log-file name must have at most 1,023 characters");
    }
    Ok(())
}

/// Returns the size of the header buffer, which contains the names of session and file, in KiB.
fn header_kib(properties: &SessionConfig) -> u32 {
    let path = properties.log_file.as_ref().map_or(0, |path| path.to_string_lossy().encode_utf16().count());
    let units = properties.name.encode_utf16().count().saturating_add(path);
    let bytes = units.saturating_mul(2).saturating_add(HEADER_BUFFER_FIXED_BYTES);
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

/// Returns the size of the machine's memory in bytes.
#[must_use]
pub fn memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram.saturating_mul(u64::from(system.mem_unit))
}

/// Creates a random GUID; `None` if the system has no random numbers.
#[must_use]
pub fn new_guid() -> Option<Guid> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    // The version bits of a random GUID (RFC 9562, version 4): it never equals one that was derived
    // from a name.
    let [_, _, _, _, _, _, _, version, variant, ..] = &mut bytes;
    *version = *version & 0x0F | 0x40;
    *variant = *variant & 0x3F | 0x80;
    Some(Guid::from_bytes(&bytes))
}

#[cfg(test)]
mod tests;
