//! LogFileMode: the valid combinations of flags, and where each takes effect.
//!
//! ```text
//!   file              SEQUENTIAL  CIRCULAR  APPEND  NEWFILE  PREALLOCATE
//!                     COMPRESSED  USE_KBYTES_FOR_SIZE                       logfile.rs, output.rs
//!   destination       REAL_TIME  BUFFERING  PRIVATE_LOGGER
//!                     PRIVATE_IN_PROC                                       output.rs, realtime.rs
//!   streams           NO_PER_PROCESSOR_BUFFERING                            collect.rs
//!   access            SECURE (writing needs a right)
//!                     NONSTOPPABLE (autologgers only)                       the daemon
//!   sequence numbers  USE_GLOBAL_SEQUENCE  USE_LOCAL_SEQUENCE               message_sequence.rs
//!   other sessions    INDEPENDENT_SESSION (a full session does not affect
//!                     the others)                                           the enabled processes
//!   kernel events     SYSTEM_LOGGER                                         the daemon
//!   without effect    USE_PAGED_MEMORY: all buffers are pageable (error 87 for system loggers)
//!                     ADDTO_TRIAGE_DUMP: buffers are in every core dump
//!                     STOP_ON_/PERSIST_ON_HYBRID_SHUTDOWN: no such shutdown exists
//!                     DELAY_OPEN_FILE, ADD_HEADER: obsolete
//!                     MODE_RESERVED, LOST_EVENTS_DEBUG: ignored
//!   error 87          internal flags
//! ```
//!
//! Flags without effect are kept in the properties and, except those of
//! [`MODE_FLAGS_NOT_IN_FILES`], in the file's header, as ETW documents.

use traceweir_format::spec::session::{
    EVENT_TRACE_BLOCKING_MODE as BLOCKING, EVENT_TRACE_BUFFER_INTERFACE_MODE as BUFFER_INTERFACE,
    EVENT_TRACE_BUFFERING_MODE as BUFFERING, EVENT_TRACE_COMPRESSED_MODE as COMPRESSED,
    EVENT_TRACE_FILE_MODE_APPEND as APPEND, EVENT_TRACE_FILE_MODE_CIRCULAR as CIRCULAR,
    EVENT_TRACE_FILE_MODE_NEWFILE as NEWFILE, EVENT_TRACE_FILE_MODE_PREALLOCATE as PREALLOCATE,
    EVENT_TRACE_FILE_MODE_SEQUENTIAL as SEQUENTIAL, EVENT_TRACE_INDEPENDENT_SESSION_MODE as INDEPENDENT,
    EVENT_TRACE_KD_FILTER_MODE as KD_FILTER, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING as ONE_STREAM,
    EVENT_TRACE_NONSTOPPABLE_MODE as NONSTOPPABLE,
    EVENT_TRACE_PERSIST_ON_HYBRID_SHUTDOWN as PERSIST_ON_SHUTDOWN, EVENT_TRACE_PRIVATE_IN_PROC as IN_PROC,
    EVENT_TRACE_PRIVATE_LOGGER_MODE as PRIVATE, EVENT_TRACE_REAL_TIME_MODE as REAL_TIME,
    EVENT_TRACE_RELOG_MODE as RELOG, EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN as STOP_ON_SHUTDOWN,
    EVENT_TRACE_SYSTEM_LOGGER_MODE as SYSTEM_LOGGER, EVENT_TRACE_USE_GLOBAL_SEQUENCE as GLOBAL_SEQUENCE,
    EVENT_TRACE_USE_KBYTES_FOR_SIZE as KBYTES, EVENT_TRACE_USE_LOCAL_SEQUENCE as LOCAL_SEQUENCE,
    EVENT_TRACE_USE_MS_FLUSH_TIMER as MS_FLUSH_TIMER, EVENT_TRACE_USE_PAGED_MEMORY as PAGED,
};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::SessionConfig;

use super::SessionStarter;
use super::file_sequence::check_sequence_pattern;
use crate::error::{Result, refuse};

/// The only bit of LogFileMode without a documented name.
const UNDEFINED_BIT: u32 = 0x4000_0000;

/// Flags of a session that its file header does not show.
pub(crate) const MODE_FLAGS_NOT_IN_FILES: u32 =
    REAL_TIME | STOP_ON_SHUTDOWN | PERSIST_ON_SHUTDOWN | COMPRESSED;

/// Sets of flags that exclude each other: any flag of the first with any flag of the second.
const EXCLUSIVE_FLAGS: [(u32, u32, &str); 13] = [
    (SEQUENTIAL, CIRCULAR | NEWFILE, "a sequential log is neither circular nor a file sequence"),
    (CIRCULAR, APPEND | NEWFILE, "a circular log neither appends nor starts new files"),
    (APPEND, NEWFILE, "a log either appends or starts new files"),
    (APPEND, REAL_TIME | PRIVATE, "an appending session is neither real-time nor private"),
    (BUFFERING, SEQUENTIAL | CIRCULAR | APPEND | NEWFILE, "a buffering session has no file mode"),
    (BUFFERING, REAL_TIME, "a buffering session is not real-time"),
    (PRIVATE, REAL_TIME, "a private session is not real-time"),
    (PRIVATE, INDEPENDENT, "a private session is not an independent one"),
    (PRIVATE, PREALLOCATE | NEWFILE, "a private session neither preallocates nor starts new files"),
    (GLOBAL_SEQUENCE, LOCAL_SEQUENCE, "sequence numbers are either global or local"),
    (STOP_ON_SHUTDOWN, PERSIST_ON_SHUTDOWN, "a session either stops or persists at shutdown"),
    (COMPRESSED, CIRCULAR | APPEND, "a compressed log is neither circular nor appends"),
    // Both sets are equal, so that each of these flags is rejected even alone.
    (INTERNAL_FLAGS, INTERNAL_FLAGS, "a flag is internal or not defined"),
];

/// Internal flags, which callers must not set.
const INTERNAL_FLAGS: u32 = MS_FLUSH_TIMER | RELOG | BUFFER_INTERFACE | KD_FILTER | BLOCKING | UNDEFINED_BIT;

/// The LogFileMode flags of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(pub(crate) u32);

impl Mode {
    const fn has_any(self, flags: u32) -> bool {
        self.0 & flags != 0
    }

    pub(crate) const fn is_real_time(self) -> bool {
        self.has_any(REAL_TIME)
    }

    pub(crate) const fn is_buffering(self) -> bool {
        self.has_any(BUFFERING)
    }

    pub(crate) const fn is_circular(self) -> bool {
        self.has_any(CIRCULAR)
    }

    /// Returns whether older buffers may be gone before newer ones are read.
    pub(crate) const fn can_lose_old_buffers(self) -> bool {
        self.has_any(CIRCULAR | BUFFERING | REAL_TIME | NEWFILE)
    }

    pub(crate) const fn is_appending(self) -> bool {
        self.has_any(APPEND)
    }

    /// Returns whether the header buffer of a file may be written again with more records. This is
    /// not the case if another session wrote the header buffer (APPEND), or if it takes only as
    /// much room in the file as its contents (COMPRESSED).
    pub(crate) const fn can_rewrite_header(self) -> bool {
        !self.has_any(APPEND | COMPRESSED)
    }

    /// Returns whether the log is a file sequence.
    pub(crate) const fn is_file_sequence(self) -> bool {
        self.has_any(NEWFILE)
    }

    pub(crate) const fn is_preallocated(self) -> bool {
        self.has_any(PREALLOCATE)
    }

    pub(super) const fn is_system(self) -> bool {
        self.has_any(SYSTEM_LOGGER)
    }

    pub(crate) const fn is_private(self) -> bool {
        self.has_any(PRIVATE)
    }

    pub(crate) const fn is_one_stream(self) -> bool {
        self.has_any(ONE_STREAM)
    }

    pub(crate) const fn has_limit_in_kib(self) -> bool {
        self.has_any(KBYTES)
    }

    /// Returns the mode with real-time delivery on or off.
    pub(crate) const fn with_real_time(self, is_enabled: bool) -> Self {
        Self(if is_enabled { self.0 | REAL_TIME } else { self.0 & !REAL_TIME })
    }

    /// Returns the mode of a session that continues live, without a file.
    pub(crate) const fn without_file(self) -> Self {
        Self(self.0 & !(SEQUENTIAL | CIRCULAR | APPEND | NEWFILE | PREALLOCATE) | REAL_TIME)
    }

    /// Returns whether a file name is required.
    pub(super) const fn needs_path(self) -> bool {
        self.has_any(SEQUENTIAL | CIRCULAR | APPEND | NEWFILE) || !self.has_any(REAL_TIME | BUFFERING)
    }

    /// Rejects invalid combinations.
    pub(super) fn check(self, properties: &SessionConfig, starter: SessionStarter) -> Result<()> {
        let invalid = |reason| refuse(Status::ERROR_INVALID_PARAMETER, reason);
        for (first, second, reason) in EXCLUSIVE_FLAGS {
            if self.has_any(first) && self.has_any(second) {
                return invalid(reason);
            }
        }
        if self.has_any(NONSTOPPABLE) && starter != SessionStarter::Autologger {
            return invalid("only an autologger session can be non-stoppable");
        }
        if self.has_any(NEWFILE) && starter == SessionStarter::Autologger {
            return invalid("an autologger session starts no new files");
        }
        if self.has_any(APPEND) && properties.clock != 2 {
            return invalid("an appending session uses system time (clock 2)");
        }
        if self.has_any(IN_PROC) && !self.has_any(PRIVATE) {
            return invalid("an in-process session must be private");
        }
        if self.has_any(CIRCULAR | NEWFILE | PREALLOCATE) && properties.maximum_file_size == 0 {
            return invalid("this kind of log needs a maximum size");
        }
        if self.has_any(NEWFILE)
            && let Some(path) = &properties.log_file
        {
            check_sequence_pattern(path)?;
        }
        Ok(())
    }

    /// Rejects flags that are invalid for kernel events.
    pub(super) fn check_system(self) -> Result<()> {
        if self.has_any(PAGED) {
            let reason = "kernel events cannot be logged to pageable memory";
            return refuse(Status::ERROR_INVALID_PARAMETER, reason);
        }
        Ok(())
    }

    /// Rejects flags that are valid but not supported.
    pub(super) fn check_supported(self) -> Result<()> {
        if self.has_any(PRIVATE) && !self.has_any(IN_PROC) {
            let reason = "private sessions are started by their own process (PRIVATE_IN_PROC)";
            return refuse(Status::ERROR_NOT_SUPPORTED, reason);
        }
        Ok(())
    }
}
