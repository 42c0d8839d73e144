//! Constants of sessions as a file records them: log-file modes, buffer flags and buffer types.
//!
//! Source: Documented ("Logging Mode Constants"); buffer flags and types Observed and from public headers.

/// Bits of TRACE_LOGFILE_HEADER.LogFileMode with their published names (`EVENT_TRACE_…_MODE`), low bit first.
pub const LOG_FILE_MODES: [(u32, &str); 31] = [
    (0x0000_0001, "SEQUENTIAL"),
    (0x0000_0002, "CIRCULAR"),
    (0x0000_0004, "APPEND"),
    (0x0000_0008, "NEWFILE"),
    (0x0000_0010, "USE_MS_FLUSH_TIMER"),
    (0x0000_0020, "PREALLOCATE"),
    (0x0000_0040, "NONSTOPPABLE"),
    (0x0000_0080, "SECURE"),
    (0x0000_0100, "REAL_TIME"),
    (0x0000_0200, "DELAY_OPEN_FILE"),
    (0x0000_0400, "BUFFERING"),
    (0x0000_0800, "PRIVATE_LOGGER"),
    (0x0000_1000, "ADD_HEADER"),
    (0x0000_2000, "USE_KBYTES_FOR_SIZE"),
    (0x0000_4000, "USE_GLOBAL_SEQUENCE"),
    (0x0000_8000, "USE_LOCAL_SEQUENCE"),
    (0x0001_0000, "RELOG"),
    (0x0002_0000, "PRIVATE_IN_PROC"),
    (0x0004_0000, "BUFFER_INTERFACE"),
    (0x0008_0000, "KD_FILTER"),
    (0x0010_0000, "MODE_RESERVED"),
    (0x0020_0000, "LOST_EVENTS_DEBUG"),
    (0x0040_0000, "STOP_ON_HYBRID_SHUTDOWN"),
    (0x0080_0000, "PERSIST_ON_HYBRID_SHUTDOWN"),
    (0x0100_0000, "USE_PAGED_MEMORY"),
    (0x0200_0000, "SYSTEM_LOGGER"),
    (0x0400_0000, "COMPRESSED"),
    (0x0800_0000, "INDEPENDENT_SESSION"),
    (0x1000_0000, "NO_PER_PROCESSOR_BUFFERING"),
    (0x2000_0000, "BLOCKING"),
    (0x8000_0000, "ADDTO_TRIAGE_DUMP"),
];

/// A sequential log; with a size limit, the session stops there.
pub const EVENT_TRACE_FILE_MODE_SEQUENTIAL: u32 = 0x0000_0001;
/// A log that wraps at its size limit.
pub const EVENT_TRACE_FILE_MODE_CIRCULAR: u32 = 0x0000_0002;
/// A session added to an existing log.
pub const EVENT_TRACE_FILE_MODE_APPEND: u32 = 0x0000_0004;
/// A new file at each size limit.
pub const EVENT_TRACE_FILE_MODE_NEWFILE: u32 = 0x0000_0008;
/// Written by a merge or relog.
pub const EVENT_TRACE_RELOG_MODE: u32 = 0x0001_0000;
/// Kernel events.
pub const EVENT_TRACE_SYSTEM_LOGGER_MODE: u32 = 0x0200_0000;
/// Buffers are compressed.
pub const EVENT_TRACE_COMPRESSED_MODE: u32 = 0x0400_0000;
/// MaximumFileSize counts KiB.
pub const EVENT_TRACE_USE_KBYTES_FOR_SIZE: u32 = 0x0000_2000;

/// A flush batch ends with this buffer.
pub const BUFFER_FLAG_FLUSH_MARKER: u16 = 0x0001;
/// Events were lost before this buffer.
pub const BUFFER_FLAG_EVENTS_LOST: u16 = 0x0002;
/// A whole buffer was lost.
pub const BUFFER_FLAG_BUFFER_LOST: u16 = 0x0004;
/// The real-time backup file is damaged.
pub const BUFFER_FLAG_RTBACKUP_CORRUPT: u16 = 0x0008;
/// The buffer comes from a real-time backup file.
pub const BUFFER_FLAG_RTBACKUP: u16 = 0x0010;
/// The processor index has 16 bits.
pub const BUFFER_FLAG_PROC_INDEX: u16 = 0x0020;
/// What follows the header is compressed.
pub const BUFFER_FLAG_COMPRESSED: u16 = 0x0040;
/// The flags that tell of loss.
pub const BUFFER_FLAGS_OF_LOSS: u16 =
    BUFFER_FLAG_EVENTS_LOST | BUFFER_FLAG_BUFFER_LOST | BUFFER_FLAG_RTBACKUP_CORRUPT;
/// All flags that are known.
pub const KNOWN_BUFFER_FLAGS: u16 = BUFFER_FLAG_FLUSH_MARKER
    | BUFFER_FLAGS_OF_LOSS
    | BUFFER_FLAG_RTBACKUP
    | BUFFER_FLAG_PROC_INDEX
    | BUFFER_FLAG_COMPRESSED;

/// What a buffer holds (WMI_BUFFER_HEADER.BufferType).
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

    /// Whether the buffer is known to hold events.
    #[must_use]
    pub const fn holds_events(self) -> bool {
        matches!(self.0, 0 | 1 | 2 | 4 | 5)
    }
}
