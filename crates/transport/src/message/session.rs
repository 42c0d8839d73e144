//! A session as it is asked for, changed and told of (EVENT_TRACE_PROPERTIES, and more counters).

use std::path::PathBuf;

use traceweir_format::Guid;

use super::Filter;

/// Which session is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRef {
    /// By its id.
    Id(u64),
    /// By its name, without regard to case, or by its GUID in text form.
    Name(String),
}

/// The id that stands for the global logger, whatever its own is (WMI_GLOBAL_LOGGER_ID).
const GLOBAL_LOGGER_ID: u64 = 1;
/// Its name.
const GLOBAL_LOGGER: &str = "GlobalLogger";

impl SessionRef {
    /// The session of an id as published calls give it: one of them is no id, and means the global logger.
    #[must_use]
    pub fn of_call(id: u64) -> Self {
        if id == GLOBAL_LOGGER_ID { Self::Name(GLOBAL_LOGGER.to_owned()) } else { Self::Id(id) }
    }

    /// Whether it names no session at all: no session has the id 0, or no name.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Id(id) => *id == 0,
            Self::Name(name) => name.is_empty(),
        }
    }
}

/// What to do with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Say how it is.
    Query,
    /// Collect all, finalise the file, disable all providers.
    Stop,
    /// Change it.
    Update(Update),
    /// Write out what is buffered; a flight recorder writes its snapshot to the file passed along, or to its own.
    Flush {
        /// Name of the file passed along, for the header.
        log_file: Option<PathBuf>,
    },
    /// Say how it was at its end, where it has ended not long ago: by itself, or by whomever.
    Outcome,
    /// A row of files: go on in the next file now (EVENT_TRACE_CONTROL_INCREMENT_FILE).
    Increment,
    /// Finish the file and deliver live from now on (EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME).
    ConvertToRealTime,
}

/// What an update changes; `None` leaves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Seconds.
    pub flush_timer: Option<u32>,
    /// Buffers at most.
    pub maximum_buffers: Option<u32>,
    /// Real-time delivery on or off.
    pub real_time: Option<bool>,
    /// A new log file; its descriptor comes along.
    pub log_file: Option<PathBuf>,
    /// Kernel event groups, of system sessions only.
    pub enable_flags: Option<u32>,
}

/// A session to be started (EVENT_TRACE_PROPERTIES as far as it is input).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionConfig {
    /// Unique name.
    pub name: String,
    /// Unique GUID; null: one is made.
    pub guid: Guid,
    /// `EVENT_TRACE_…_MODE` bits.
    pub log_file_mode: u32,
    /// Clock: 0 default, 1 counter, 2 system time, 3 cycles.
    pub clock: u32,
    /// KiB; 0: 64.
    pub buffer_size: u32,
    /// Buffers at least.
    pub minimum_buffers: u32,
    /// Buffers at most; 0: minimum + 20.
    pub maximum_buffers: u32,
    /// MiB, or KiB by the mode; 0: no limit.
    pub maximum_file_size: u32,
    /// Seconds; 0: only full buffers (real-time: 1).
    pub flush_timer: u32,
    /// Absolute path of the log file, whose descriptor comes along. For a row of files (`EVENT_TRACE_FILE_MODE_NEWFILE`) the pattern with its `%d`:
    /// the first file comes along, and behind it the folder, as a path descriptor.
    pub log_file: Option<PathBuf>,
    /// Kernel event groups (EnableFlags), of system sessions only.
    pub enable_flags: u32,
    /// Filled buffers before a flush (FlushThreshold); 0: each is written when it is full.
    pub flush_threshold: u32,
    /// V2Options.
    pub options: u64,
    /// Processes that take part in a private session (V2 FilterDesc): by process id and executable name.
    pub filters: Vec<Filter>,
    /// Wake the owner at the first event instead of when a ring fills.
    pub low_latency: bool,
    /// Bytes of one ring in each process; 0: by the buffers.
    pub ring_bytes: u32,
    /// The session is stopped when the connection that started it ends.
    pub tied: bool,
    /// Bytes of a program's stack that come with each stack of a kernel event, to be unwound by the tables of its programs; 0: frame pointers alone.
    pub stack_bytes: u32,
    /// Kernel events that are followed by their call stack from the first on: a list as that of `TraceStackTracingInfo`. Empty in what a session tells of itself.
    pub kernel_stacks: Vec<u8>,
}

/// A session as it is (EVENT_TRACE_PROPERTIES as output, and more counters).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Session id: generation in the upper bits, logger id in the low 16.
    pub id: u64,
    /// Configuration as adjusted.
    pub config: SessionConfig,
    /// Buffers allocated.
    pub number_of_buffers: u32,
    /// Of those, unused.
    pub free_buffers: u32,
    /// Buffers written to the file, the header buffer included.
    pub buffers_written: u32,
    /// Events lost before they reached the session's buffers, or with buffers that could not be written.
    pub events_lost: u64,
    /// Buffers that could not be written to the file.
    pub log_buffers_lost: u32,
    /// Buffers that a live consumer did not get.
    pub real_time_buffers_lost: u32,
    /// Events in those.
    pub real_time_events_lost: u64,
    /// Thread id of the collector.
    pub logger_thread_id: u32,
    /// Events collected into buffers so far.
    pub events: u64,
    /// Why events were lost: by cause, `events_lost` is their sum.
    pub lost_by_cause: LostByCause,
    /// Processes that write to it now.
    pub processes: u32,
    /// Live consumers now.
    pub consumers: u32,
    /// Regions given up because their process broke the rules.
    pub damaged_regions: u32,
    /// Processes that may have lost events which nothing could count: they ended before they got a region,
    /// got none or got it too late, or were disconnected. Not among `events_lost`.
    pub uncounted_processes: u32,
    /// Processor time that collecting took, nanoseconds.
    pub collector_ns: u64,
    /// The Win32 status for which the session ended by itself; 0 while it runs or when it was stopped.
    pub end_status: u32,
    /// Buffers of the log file, the header buffer included, that another process truncated or
    /// overwrote.
    pub overwritten_buffers: u32,
}

/// Causes of lost events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostByCause {
    /// A ring was full, or the event was larger than the session's buffers or than any event may be; counted by the process, which does not tell them apart.
    pub no_room: u64,
    /// In buffers that could not be written.
    pub not_written: u64,
    /// In regions whose process broke the rules.
    pub damaged: u64,
    /// Of processes for whose rings the session had no memory left.
    pub no_region: u64,
    /// Kernel events that found no room in the perf rings.
    pub kernel: u64,
    /// In buffers of the log file that another process truncated or overwrote.
    pub overwritten: u64,
}

impl LostByCause {
    /// All of them.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let Self { no_room, not_written, damaged, no_region, kernel, overwritten } = *self;
        let before_buffers = no_room.saturating_add(damaged).saturating_add(no_region).saturating_add(kernel);
        before_buffers.saturating_add(not_written).saturating_add(overwritten)
    }
}
