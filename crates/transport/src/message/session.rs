//! Sessions in messages: configuration, changes and state (EVENT_TRACE_PROPERTIES, and more
//! counters).

use std::path::PathBuf;

use traceweir_format::Guid;
use traceweir_format::spec::enable::{SESSION_FILTER_DESCRIBE_PROCESSES, SESSION_FILTER_PROCESS_TREES};
use traceweir_format::spec::session::KERNEL_LOGGER_NAME;
use traceweir_format::wire::u32_at;

use super::Filter;

/// Identifies a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRef {
    /// The session with this id.
    Id(u64),
    /// The session with this name, ignoring case, or with this GUID in text form.
    Name(String),
}

/// Id that stands for the global logger, whatever its own id is (WMI_GLOBAL_LOGGER_ID).
const GLOBAL_LOGGER_ID: u64 = 1;
const GLOBAL_LOGGER: &str = "GlobalLogger";

/// Id of the kernel logger in calls of ETW functions, whatever its own id is (WmiKernelLogger).
const KERNEL_LOGGER_ID: u64 = 0xFFFF;

impl Properties {
    /// Returns the id of the session in calls of ETW functions.
    #[must_use]
    pub fn api_id(&self) -> u64 {
        if self.config.name.eq_ignore_ascii_case(KERNEL_LOGGER_NAME) { KERNEL_LOGGER_ID } else { self.id }
    }
}

impl SessionRef {
    /// Returns the session that an id in a call of an ETW function stands for: 1 is the global
    /// logger, and 0xFFFF the kernel logger.
    #[must_use]
    pub fn from_api_id(id: u64) -> Self {
        match id {
            GLOBAL_LOGGER_ID => Self::Name(GLOBAL_LOGGER.to_owned()),
            KERNEL_LOGGER_ID => Self::Name(KERNEL_LOGGER_NAME.to_owned()),
            _ => Self::Id(id),
        }
    }

    /// Returns whether the reference names no session: no session has the id 0 or an empty name.
    #[must_use]
    pub fn names_no_session(&self) -> bool {
        match self {
            Self::Id(id) => *id == 0,
            Self::Name(name) => name.is_empty(),
        }
    }
}

/// An operation on a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Returns the state of the session.
    Query,
    /// Collects the remaining events, finalises the file and disables all providers.
    Stop,
    /// Changes properties of the session.
    Update(Update),
    /// Writes all buffers out. A flight recorder writes its snapshot to the file whose descriptor
    /// is sent with the message or, without one, to its own file.
    Flush {
        /// Name of the file that is sent with the message, for its header.
        log_file: Option<PathBuf>,
    },
    /// Returns the final state of a session that has ended recently, for any reason.
    Outcome,
    /// Continues in the next file of a file sequence (EVENT_TRACE_CONTROL_INCREMENT_FILE).
    Increment,
    /// Finalises the file and delivers live from now on (EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME).
    ConvertToRealTime,
}

/// The changes of an update; `None` changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Flush timer in seconds.
    pub flush_timer: Option<u32>,
    /// Largest number of buffers.
    pub maximum_buffers: Option<u32>,
    /// Real-time delivery on or off.
    pub real_time: Option<bool>,
    /// Path of a new log file; its descriptor is sent with the message.
    pub log_file: Option<PathBuf>,
    /// Groups of kernel events (EnableFlags), for system sessions only.
    pub enable_flags: Option<u32>,
}

/// Configuration of a session to be started (EVENT_TRACE_PROPERTIES as input).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionConfig {
    /// Name, unique among running sessions.
    pub name: String,
    /// Unique GUID; a null GUID is replaced with a new one.
    pub guid: Guid,
    /// Log file mode (`EVENT_TRACE_…_MODE` bits).
    pub log_file_mode: u32,
    /// Clock: 0 default, 1 counter, 2 system time, 3 cycles.
    pub clock: u32,
    /// Size of a buffer in KiB; 0 for 64.
    pub buffer_size: u32,
    /// Smallest number of buffers.
    pub minimum_buffers: u32,
    /// Largest number of buffers; 0 for minimum + 20.
    pub maximum_buffers: u32,
    /// Size limit of the file, in MiB or, with `EVENT_TRACE_USE_KBYTES_FOR_SIZE`, in KiB; 0 for no
    /// limit.
    pub maximum_file_size: u32,
    /// Flush timer in seconds; with 0, only full buffers are written (real-time sessions use 1).
    pub flush_timer: u32,
    /// Absolute path of the log file; its descriptor is sent with the message. For a file sequence
    /// (`EVENT_TRACE_FILE_MODE_NEWFILE`) this is the pattern with its `%d`: the descriptors are the
    /// first file, then the folder (O_PATH).
    pub log_file: Option<PathBuf>,
    /// Groups of kernel events (EnableFlags), for system sessions only.
    pub enable_flags: u32,
    /// Number of full buffers that are written together (FlushThreshold); with 0, each is written
    /// when it is full.
    pub flush_threshold: u32,
    /// V2Options of EVENT_TRACE_PROPERTIES_V2.
    pub options: u64,
    /// Filters that select the processes of a private session by process id and executable name (V2
    /// FilterDesc), the process trees of a system session ([`SESSION_FILTER_PROCESS_TREES`]), or the
    /// request to describe processes in the log file ([`SESSION_FILTER_DESCRIBE_PROCESSES`]).
    pub filters: Vec<Filter>,
    /// Whether the first event in a ring wakes the owner, instead of a certain fill of the ring.
    pub low_latency: bool,
    /// Size of one ring in each process, in bytes; 0 to derive it from the buffers.
    pub ring_bytes: u32,
    /// Whether the session stops when the connection that started it ends.
    pub tied: bool,
    /// Bytes of user stack that are copied with each stack of a kernel event, for unwinding with
    /// DWARF tables; 0 to use only frame pointers.
    pub stack_bytes: u32,
    /// Kernel events that are followed by their call stack from the start: a list like that of
    /// `TraceStackTracingInfo`. Empty in returned properties.
    pub kernel_stacks: Vec<u8>,
}

/// The largest number of trees in a [`SESSION_FILTER_PROCESS_TREES`].
pub const MAX_PROCESS_TREES: usize = 256;

/// A process and its descendants, existing and future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessTree {
    /// Process id of the root.
    pub root: u32,
    /// Whether the root itself belongs to the tree, not only its descendants.
    pub includes_root: bool,
}

impl ProcessTree {
    /// Returns the filter for these trees.
    #[must_use]
    pub fn encode(trees: &[Self]) -> Filter {
        let entry = |tree: &Self| [tree.root.to_le_bytes(), u32::from(!tree.includes_root).to_le_bytes()];
        Filter { kind: SESSION_FILTER_PROCESS_TREES, data: trees.iter().flat_map(entry).flatten().collect() }
    }

    /// Returns the trees of a filter's data; `None` if they are invalid.
    #[must_use]
    pub fn decode(data: &[u8]) -> Option<Vec<Self>> {
        let (entries, []) = data.as_chunks::<8>() else { return None };
        if entries.is_empty() || entries.len() > MAX_PROCESS_TREES {
            return None;
        }
        entries
            .iter()
            .map(|entry| match (u32_at(entry, 0), u32_at(entry, 4)) {
                (0, _) | (_, 2..) => None,
                (root, flags) => Some(Self { root, includes_root: flags == 0 }),
            })
            .collect()
    }
}

impl SessionConfig {
    /// Returns whether the log file describes the processes that take part.
    #[must_use]
    pub fn describes_processes(&self) -> bool {
        self.filters.iter().any(|filter| filter.kind == SESSION_FILTER_DESCRIBE_PROCESSES)
    }

    /// Returns the process trees that kernel events are restricted to; empty for all processes.
    #[must_use]
    pub fn process_trees(&self) -> Vec<ProcessTree> {
        let mut filters = self.filters.iter().filter(|filter| filter.kind == SESSION_FILTER_PROCESS_TREES);
        filters.next().and_then(|filter| ProcessTree::decode(&filter.data)).unwrap_or_default()
    }
}

/// State of a session (EVENT_TRACE_PROPERTIES as output, and more counters).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Session id: generation in the upper bits, logger id in the low 16.
    pub id: u64,
    /// Configuration after adjustment.
    pub config: SessionConfig,
    /// Number of allocated buffers, or the minimum if fewer are allocated.
    pub number_of_buffers: u32,
    /// Number of unused buffers.
    pub free_buffers: u32,
    /// Buffers written to the file, including the header buffer.
    pub buffers_written: u32,
    /// Events lost before they reached the session's buffers, or with buffers that could not be
    /// written or were overwritten.
    pub events_lost: u64,
    /// Buffers that could not be written to the file.
    pub log_buffers_lost: u32,
    /// Buffers that a live consumer did not get.
    pub real_time_buffers_lost: u32,
    /// Events in buffers that a live consumer did not get.
    pub real_time_events_lost: u64,
    /// Thread id of the collector.
    pub logger_thread_id: u32,
    /// Events collected into buffers so far.
    pub events: u64,
    /// Lost events by cause; `events_lost` is their sum.
    pub lost_by_cause: LostByCause,
    /// Number of processes that can write to the session now.
    pub processes: u32,
    /// Number of live consumers.
    pub consumers: u32,
    /// Regions dropped because their process broke the ring protocol.
    pub damaged_regions: u32,
    /// Number of processes that may have lost events which nothing could count: they ended before
    /// they got a region, got no region or got it too late, or were disconnected. `events_lost`
    /// does not include these events.
    pub uncounted_processes: u32,
    /// Processor time of the session's threads: collector, writer, and the threads that help them
    /// to drain and compress, in nanoseconds.
    pub collector_ns: u64,
    /// Win32 error code of the failure that ended the session; 0 while it runs or after a stop.
    pub end_status: u32,
    /// Buffers of the log file, including header buffers, that another process truncated or
    /// overwrote.
    pub overwritten_buffers: u32,
}

/// Numbers of lost events by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostByCause {
    /// Events that found a ring or the queues of a capture full, or were larger than the session's
    /// buffers or than any event may be. A process counts all of these in one counter.
    pub no_room: u64,
    /// Events in buffers that could not be written.
    pub not_written: u64,
    /// Records that the session rejected because their bytes were invalid.
    pub damaged: u64,
    /// Events of processes for whose rings the session had no memory left.
    pub no_region: u64,
    /// Kernel events that did not fit into the perf rings.
    pub kernel: u64,
    /// Events in buffers of the log file that another process truncated or overwrote.
    pub overwritten: u64,
}

impl LostByCause {
    /// Returns the total number of lost events.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let Self { no_room, not_written, damaged, no_region, kernel, overwritten } = *self;
        let before_buffers = no_room.saturating_add(damaged).saturating_add(no_region).saturating_add(kernel);
        before_buffers.saturating_add(not_written).saturating_add(overwritten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_trees_survive_encoding() {
        let trees =
            [(7, true), (u32::MAX, false)].map(|(root, includes_root)| ProcessTree { root, includes_root });
        let filter = ProcessTree::encode(&trees);
        assert_eq!(ProcessTree::decode(&filter.data).as_deref(), Some(&trees[..]));
        let config = SessionConfig { filters: vec![filter], ..SessionConfig::default() };
        assert_eq!(config.process_trees(), trees);
        assert!(SessionConfig::default().process_trees().is_empty());
    }

    #[test]
    fn invalid_process_trees_are_rejected() {
        let one = ProcessTree { root: 7, includes_root: true };
        let too_many = ProcessTree::encode(&[one; MAX_PROCESS_TREES + 1]).data;
        let mut short = ProcessTree::encode(&[one]).data;
        short.pop();
        let (no_root, unknown_flag) = ([0; 8].to_vec(), [7, 0, 0, 0, 2, 0, 0, 0].to_vec());
        for data in [Vec::new(), too_many, short, no_root, unknown_flag] {
            assert_eq!(ProcessTree::decode(&data), None, "{data:?}");
        }
        assert!(ProcessTree::decode(&ProcessTree::encode(&[one; MAX_PROCESS_TREES]).data).is_some());
    }
}
