//! Constants of sessions as a file records them: log-file modes, buffer flags and buffer types.
//!
//! Source: Documented ("Logging Mode Constants"), the internal modes from public headers; buffer
//! flags and types Observed and from public headers.

/// The session of the system's kernel events, whose GUID is
/// [`SYSTEM_TRACE_CONTROL`](super::event::class::SYSTEM_TRACE_CONTROL).
pub const KERNEL_LOGGER_NAME: &str = "NT Kernel Logger";
/// The system's flight recorder of kernel events.
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
/// The session belongs to one process.
pub const EVENT_TRACE_PRIVATE_LOGGER_MODE: u32 = 0x0000_0800;
/// A log-file header is added.
pub const EVENT_TRACE_ADD_HEADER_MODE: u32 = 0x0000_1000;
/// MaximumFileSize counts KiB.
pub const EVENT_TRACE_USE_KBYTES_FOR_SIZE: u32 = 0x0000_2000;
/// Sequence numbers across all sessions.
pub const EVENT_TRACE_USE_GLOBAL_SEQUENCE: u32 = 0x0000_4000;
/// Sequence numbers of the session.
pub const EVENT_TRACE_USE_LOCAL_SEQUENCE: u32 = 0x0000_8000;
/// Written by a merge or relog.
pub const EVENT_TRACE_RELOG_MODE: u32 = 0x0001_0000;
/// The private session is started by its own process.
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

/// Bits of TRACE_LOGFILE_HEADER.LogFileMode with their published names, low bit first.
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
        matches!(self.0, 0 | 1 | 2 | 4 | 5)
    }
}
