//! Constants of sessions in a file: log-file modes, buffer flags and buffer types.
//!
//! Source: Documented ("Logging Mode Constants"), the internal modes from public headers; buffer
//! flags and types Observed and from public headers.

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// The name of the session of the system's kernel events. Its GUID is
/// [`SYSTEM_TRACE_CONTROL`](super::event::class::SYSTEM_TRACE_CONTROL).
pub const KERNEL_LOGGER_NAME: &str = "NT Kernel Logger";
/// The name of the system's flight recorder of kernel events.
pub const CIRCULAR_KERNEL_CONTEXT_LOGGER_NAME: &str = "Circular Kernel Context Logger";

/// A sequential log; with a size limit, the session stops there.
pub const EVENT_TRACE_FILE_MODE_SEQUENTIAL: u32 = 0x0000_0001;
/// A log that wraps at its size limit.
pub const EVENT_TRACE_FILE_MODE_CIRCULAR: u32 = 0x0000_0002;
/// A session added to an existing log.
pub const EVENT_TRACE_FILE_MODE_APPEND: u32 = 0x0000_0004;
/// A new file at each size limit.
pub const EVENT_TRACE_FILE_MODE_NEWFILE: u32 = 0x0000_0008;
/// The flush timer counts milliseconds.
pub const EVENT_TRACE_USE_MS_FLUSH_TIMER: u32 = 0x0000_0010;
/// The log has its full size from the start.
pub const EVENT_TRACE_FILE_MODE_PREALLOCATE: u32 = 0x0000_0020;
/// The session cannot be stopped.
pub const EVENT_TRACE_NONSTOPPABLE_MODE: u32 = 0x0000_0040;
/// Only users with the right to log may write to the session.
pub const EVENT_TRACE_SECURE_MODE: u32 = 0x0000_0080;
/// Events are delivered live.
pub const EVENT_TRACE_REAL_TIME_MODE: u32 = 0x0000_0100;
/// The log is opened with the first event.
pub const EVENT_TRACE_DELAY_OPEN_FILE_MODE: u32 = 0x0000_0200;
/// Events stay in memory: a flight recorder.
pub const EVENT_TRACE_BUFFERING_MODE: u32 = 0x0000_0400;
/// A private session: it runs inside the traced processes.
pub const EVENT_TRACE_PRIVATE_LOGGER_MODE: u32 = 0x0000_0800;
/// A log-file header is added.
pub const EVENT_TRACE_ADD_HEADER_MODE: u32 = 0x0000_1000;
/// MaximumFileSize counts KiB.
pub const EVENT_TRACE_USE_KBYTES_FOR_SIZE: u32 = 0x0000_2000;
/// Messages are numbered across all sessions.
pub const EVENT_TRACE_USE_GLOBAL_SEQUENCE: u32 = 0x0000_4000;
/// Messages are numbered within the session.
pub const EVENT_TRACE_USE_LOCAL_SEQUENCE: u32 = 0x0000_8000;
/// The file was written by a merge or relog.
pub const EVENT_TRACE_RELOG_MODE: u32 = 0x0001_0000;
/// The private session runs only in the process that starts it.
pub const EVENT_TRACE_PRIVATE_IN_PROC: u32 = 0x0002_0000;
/// An internal mode of Windows.
pub const EVENT_TRACE_BUFFER_INTERFACE_MODE: u32 = 0x0004_0000;
/// An internal mode for the kernel debugger.
pub const EVENT_TRACE_KD_FILTER_MODE: u32 = 0x0008_0000;
/// A reserved bit.
pub const EVENT_TRACE_MODE_RESERVED: u32 = 0x0010_0000;
/// Helps to find out why events are lost.
pub const EVENT_TRACE_LOST_EVENTS_DEBUG_MODE: u32 = 0x0020_0000;
/// The session ends at a hybrid shutdown.
pub const EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN: u32 = 0x0040_0000;
/// The session outlives a hybrid shutdown.
pub const EVENT_TRACE_PERSIST_ON_HYBRID_SHUTDOWN: u32 = 0x0080_0000;
/// Buffers are in pageable memory.
pub const EVENT_TRACE_USE_PAGED_MEMORY: u32 = 0x0100_0000;
/// The session receives kernel events.
pub const EVENT_TRACE_SYSTEM_LOGGER_MODE: u32 = 0x0200_0000;
/// Buffers are compressed.
pub const EVENT_TRACE_COMPRESSED_MODE: u32 = 0x0400_0000;
/// A failure of another session does not affect this one.
pub const EVENT_TRACE_INDEPENDENT_SESSION_MODE: u32 = 0x0800_0000;
/// One stream of buffers for all processors.
pub const EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING: u32 = 0x1000_0000;
/// Writers wait for buffers.
pub const EVENT_TRACE_BLOCKING_MODE: u32 = 0x2000_0000;
/// Buffers go into small crash dumps.
pub const EVENT_TRACE_ADDTO_TRIAGE_DUMP: u32 = 0x8000_0000;

/// Bits of TRACE_LOGFILE_HEADER.LogFileMode with their published names, shortened; low bit first.
pub const LOG_FILE_MODES: [(u32, &str); 31] = [
    (EVENT_TRACE_FILE_MODE_SEQUENTIAL, "SEQUENTIAL"),
    (EVENT_TRACE_FILE_MODE_CIRCULAR, "CIRCULAR"),
    (EVENT_TRACE_FILE_MODE_APPEND, "APPEND"),
    (EVENT_TRACE_FILE_MODE_NEWFILE, "NEWFILE"),
    (EVENT_TRACE_USE_MS_FLUSH_TIMER, "USE_MS_FLUSH_TIMER"),
    (EVENT_TRACE_FILE_MODE_PREALLOCATE, "PREALLOCATE"),
    (EVENT_TRACE_NONSTOPPABLE_MODE, "NONSTOPPABLE"),
    (EVENT_TRACE_SECURE_MODE, "SECURE"),
    (EVENT_TRACE_REAL_TIME_MODE, "REAL_TIME"),
    (EVENT_TRACE_DELAY_OPEN_FILE_MODE, "DELAY_OPEN_FILE"),
    (EVENT_TRACE_BUFFERING_MODE, "BUFFERING"),
    (EVENT_TRACE_PRIVATE_LOGGER_MODE, "PRIVATE_LOGGER"),
    (EVENT_TRACE_ADD_HEADER_MODE, "ADD_HEADER"),
    (EVENT_TRACE_USE_KBYTES_FOR_SIZE, "USE_KBYTES_FOR_SIZE"),
    (EVENT_TRACE_USE_GLOBAL_SEQUENCE, "USE_GLOBAL_SEQUENCE"),
    (EVENT_TRACE_USE_LOCAL_SEQUENCE, "USE_LOCAL_SEQUENCE"),
    (EVENT_TRACE_RELOG_MODE, "RELOG"),
    (EVENT_TRACE_PRIVATE_IN_PROC, "PRIVATE_IN_PROC"),
    (EVENT_TRACE_BUFFER_INTERFACE_MODE, "BUFFER_INTERFACE"),
    (EVENT_TRACE_KD_FILTER_MODE, "KD_FILTER"),
    (EVENT_TRACE_MODE_RESERVED, "MODE_RESERVED"),
    (EVENT_TRACE_LOST_EVENTS_DEBUG_MODE, "LOST_EVENTS_DEBUG"),
    (EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN, "STOP_ON_HYBRID_SHUTDOWN"),
    (EVENT_TRACE_PERSIST_ON_HYBRID_SHUTDOWN, "PERSIST_ON_HYBRID_SHUTDOWN"),
    (EVENT_TRACE_USE_PAGED_MEMORY, "USE_PAGED_MEMORY"),
    (EVENT_TRACE_SYSTEM_LOGGER_MODE, "SYSTEM_LOGGER"),
    (EVENT_TRACE_COMPRESSED_MODE, "COMPRESSED"),
    (EVENT_TRACE_INDEPENDENT_SESSION_MODE, "INDEPENDENT_SESSION"),
    (EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING, "NO_PER_PROCESSOR_BUFFERING"),
    (EVENT_TRACE_BLOCKING_MODE, "BLOCKING"),
    (EVENT_TRACE_ADDTO_TRIAGE_DUMP, "ADDTO_TRIAGE_DUMP"),
];

/// The mode bits of a session (LogFileMode): the kind of log file, live delivery, and more.
///
/// ```
/// use traceweir_format::spec::session::LogFileMode;
///
/// let mode = LogFileMode::CIRCULAR | LogFileMode::REAL_TIME;
/// assert!(mode.contains(LogFileMode::REAL_TIME));
/// assert_eq!(mode.to_string(), "CIRCULAR | REAL_TIME");
/// assert_eq!(mode.bits(), 0x102);
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogFileMode(u32);

impl LogFileMode {
    /// No bit: a sequential log without a size limit.
    pub const NONE: Self = Self(0);
    /// A sequential log; with a size limit, the session stops there.
    pub const SEQUENTIAL: Self = Self(EVENT_TRACE_FILE_MODE_SEQUENTIAL);
    /// A log that wraps at its size limit.
    pub const CIRCULAR: Self = Self(EVENT_TRACE_FILE_MODE_CIRCULAR);
    /// A session added to an existing log.
    pub const APPEND: Self = Self(EVENT_TRACE_FILE_MODE_APPEND);
    /// A new file at each size limit.
    pub const NEWFILE: Self = Self(EVENT_TRACE_FILE_MODE_NEWFILE);
    /// The flush timer counts milliseconds.
    pub const USE_MS_FLUSH_TIMER: Self = Self(EVENT_TRACE_USE_MS_FLUSH_TIMER);
    /// The log has its full size from the start.
    pub const PREALLOCATE: Self = Self(EVENT_TRACE_FILE_MODE_PREALLOCATE);
    /// The session cannot be stopped.
    pub const NONSTOPPABLE: Self = Self(EVENT_TRACE_NONSTOPPABLE_MODE);
    /// Only users with the right to log may write to the session.
    pub const SECURE: Self = Self(EVENT_TRACE_SECURE_MODE);
    /// Events are delivered live.
    pub const REAL_TIME: Self = Self(EVENT_TRACE_REAL_TIME_MODE);
    /// The log is opened with the first event.
    pub const DELAY_OPEN_FILE: Self = Self(EVENT_TRACE_DELAY_OPEN_FILE_MODE);
    /// Events stay in memory: a flight recorder.
    pub const BUFFERING: Self = Self(EVENT_TRACE_BUFFERING_MODE);
    /// A private session: it runs inside the traced processes.
    pub const PRIVATE_LOGGER: Self = Self(EVENT_TRACE_PRIVATE_LOGGER_MODE);
    /// A log-file header is added.
    pub const ADD_HEADER: Self = Self(EVENT_TRACE_ADD_HEADER_MODE);
    /// MaximumFileSize counts KiB.
    pub const USE_KBYTES_FOR_SIZE: Self = Self(EVENT_TRACE_USE_KBYTES_FOR_SIZE);
    /// Messages are numbered across all sessions.
    pub const USE_GLOBAL_SEQUENCE: Self = Self(EVENT_TRACE_USE_GLOBAL_SEQUENCE);
    /// Messages are numbered within the session.
    pub const USE_LOCAL_SEQUENCE: Self = Self(EVENT_TRACE_USE_LOCAL_SEQUENCE);
    /// The file was written by a merge or relog.
    pub const RELOG: Self = Self(EVENT_TRACE_RELOG_MODE);
    /// The private session runs only in the process that starts it.
    pub const PRIVATE_IN_PROC: Self = Self(EVENT_TRACE_PRIVATE_IN_PROC);
    /// An internal mode of Windows.
    pub const BUFFER_INTERFACE: Self = Self(EVENT_TRACE_BUFFER_INTERFACE_MODE);
    /// An internal mode for the kernel debugger.
    pub const KD_FILTER: Self = Self(EVENT_TRACE_KD_FILTER_MODE);
    /// A reserved bit.
    pub const MODE_RESERVED: Self = Self(EVENT_TRACE_MODE_RESERVED);
    /// Helps to find out why events are lost.
    pub const LOST_EVENTS_DEBUG: Self = Self(EVENT_TRACE_LOST_EVENTS_DEBUG_MODE);
    /// The session ends at a hybrid shutdown.
    pub const STOP_ON_HYBRID_SHUTDOWN: Self = Self(EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN);
    /// The session outlives a hybrid shutdown.
    pub const PERSIST_ON_HYBRID_SHUTDOWN: Self = Self(EVENT_TRACE_PERSIST_ON_HYBRID_SHUTDOWN);
    /// Buffers are in pageable memory.
    pub const USE_PAGED_MEMORY: Self = Self(EVENT_TRACE_USE_PAGED_MEMORY);
    /// The session receives kernel events.
    pub const SYSTEM_LOGGER: Self = Self(EVENT_TRACE_SYSTEM_LOGGER_MODE);
    /// Buffers are compressed.
    pub const COMPRESSED: Self = Self(EVENT_TRACE_COMPRESSED_MODE);
    /// A failure of another session does not affect this one.
    pub const INDEPENDENT_SESSION: Self = Self(EVENT_TRACE_INDEPENDENT_SESSION_MODE);
    /// One stream of buffers for all processors.
    pub const NO_PER_PROCESSOR_BUFFERING: Self = Self(EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING);
    /// Writers wait for buffers.
    pub const BLOCKING: Self = Self(EVENT_TRACE_BLOCKING_MODE);
    /// Buffers go into small crash dumps.
    pub const ADDTO_TRIAGE_DUMP: Self = Self(EVENT_TRACE_ADDTO_TRIAGE_DUMP);

    /// Creates a mode from its bits.
    #[must_use]
    pub const fn new(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether at least one bit of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the bits of both modes; for constants, where `|` cannot be used.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for LogFileMode {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for LogFileMode {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for LogFileMode {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for LogFileMode {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl fmt::Display for LogFileMode {
    /// Formats the names of the bits, joined by `|`; unnamed bits follow in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unnamed = self.0;
        let mut separator = "";
        for (bit, name) in LOG_FILE_MODES {
            if self.0 & bit != 0 {
                write!(f, "{separator}{name}")?;
                separator = " | ";
                unnamed &= !bit;
            }
        }
        if unnamed != 0 {
            write!(f, "{separator}{unnamed:#x}")
        } else if self.0 == 0 {
            f.write_str("NONE")
        } else {
            Ok(())
        }
    }
}

impl From<u32> for LogFileMode {
    fn from(bits: u32) -> Self {
        Self(bits)
    }
}

impl From<LogFileMode> for u32 {
    fn from(mode: LogFileMode) -> Self {
        mode.0
    }
}

/// The id of a session: its logger id in the low 16 bits, and higher bits that distinguish
/// sessions with the same logger id.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

impl SessionId {
    /// Creates an id from its number (a CONTROLTRACE_ID).
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the id.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the logger id, which buffers and event headers of the session contain.
    #[must_use]
    pub const fn logger_id(self) -> u16 {
        let [low, high, ..] = self.0.to_le_bytes();
        u16::from_le_bytes([low, high])
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl From<u64> for SessionId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<SessionId> for u64 {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

/// A flush batch ends with this buffer.
pub const BUFFER_FLAG_FLUSH_MARKER: u16 = 0x0001;
/// Events were lost before this buffer.
pub const BUFFER_FLAG_EVENTS_LOST: u16 = 0x0002;
/// A whole buffer was lost before this buffer.
pub const BUFFER_FLAG_BUFFER_LOST: u16 = 0x0004;
/// The real-time backup file is damaged.
pub const BUFFER_FLAG_RTBACKUP_CORRUPT: u16 = 0x0008;
/// The buffer comes from a real-time backup file.
pub const BUFFER_FLAG_RTBACKUP: u16 = 0x0010;
/// The processor index has eleven bits instead of eight.
pub const BUFFER_FLAG_PROC_INDEX: u16 = 0x0020;
/// The bytes after the header are compressed.
pub const BUFFER_FLAG_COMPRESSED: u16 = 0x0040;
/// All flags that report loss.
pub const BUFFER_FLAGS_OF_LOSS: u16 =
    BUFFER_FLAG_EVENTS_LOST | BUFFER_FLAG_BUFFER_LOST | BUFFER_FLAG_RTBACKUP_CORRUPT;
/// All known flags.
pub const KNOWN_BUFFER_FLAGS: u16 = BUFFER_FLAG_FLUSH_MARKER
    | BUFFER_FLAGS_OF_LOSS
    | BUFFER_FLAG_RTBACKUP
    | BUFFER_FLAG_PROC_INDEX
    | BUFFER_FLAG_COMPRESSED;

/// The kind of a buffer's content (WMI_BUFFER_HEADER.BufferType).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferType(pub u16);

#[allow(missing_docs)] // Names as published.
impl BufferType {
    pub const GENERIC: Self = Self(0);
    pub const RUNDOWN: Self = Self(1);
    pub const CTX_SWAP: Self = Self(2);
    pub const REFTIME: Self = Self(3);
    pub const HEADER: Self = Self(4);
    pub const BATCHED: Self = Self(5);
    pub const EMPTY_MARKER: Self = Self(6);
    pub const DBG_INFO: Self = Self(7);

    /// Returns whether the buffer is known to hold events.
    #[must_use]
    pub const fn holds_events(self) -> bool {
        matches!(self, Self::GENERIC | Self::RUNDOWN | Self::CTX_SWAP | Self::HEADER | Self::BATCHED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn modes_print_their_names_and_unnamed_bits() {
        assert_eq!(LogFileMode::NONE.to_string(), "NONE");
        assert_eq!(
            (LogFileMode::SEQUENTIAL | LogFileMode::INDEPENDENT_SESSION).to_string(),
            "SEQUENTIAL | INDEPENDENT_SESSION"
        );
        assert_eq!(
            (LogFileMode::REAL_TIME | LogFileMode::new(0x4000_0000)).to_string(),
            "REAL_TIME | 0x40000000"
        );
        let all = LOG_FILE_MODES.iter().fold(LogFileMode::NONE, |mode, (bit, _)| mode | (*bit).into());
        assert_eq!(all.bits(), !0x4000_0000, "a bit other than 0x40000000 has no name");
    }

    #[test]
    fn session_id_contains_the_logger_id() {
        assert_eq!(SessionId::new(0x7_0003).logger_id(), 3);
        assert_eq!(SessionId::new(0x7_0003).to_string(), "0x70003");
    }
}
