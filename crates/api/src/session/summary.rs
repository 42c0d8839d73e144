//! Settings and counters of a session.

use std::path::PathBuf;
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::spec::session::{LogFileMode, SessionId};
use traceweir_format::spec::status::Status;
use traceweir_format::time::ClockKind;
use traceweir_transport::message::{LostByCause, Properties};

/// The settings and counters of a session, at the time of a call or when it stopped.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSummary {
    /// Id of the session.
    pub id: SessionId,
    /// Name of the session.
    pub name: String,
    /// GUID of the session.
    pub guid: Guid,
    /// Mode bits after adjustment.
    pub mode: LogFileMode,
    /// Clock of the time stamps.
    pub clock: Option<ClockKind>,
    /// Absolute path of the log file, if there is one.
    pub log_file: Option<PathBuf>,
    /// Size limit of the log file in bytes, if it has one.
    pub maximum_file_bytes: Option<u64>,
    /// Size of a buffer in KiB.
    pub buffer_kib: u32,
    /// Smallest number of buffers.
    pub minimum_buffers: u32,
    /// Largest number of buffers.
    pub maximum_buffers: u32,
    /// Time after which partly filled buffers are written; zero if only full ones are.
    pub flush_timer: Duration,
    /// Number of full buffers that are written together; 0 if each is written when it is full.
    pub flush_threshold: u32,
    /// Groups of kernel events (EnableFlags) of a system logger.
    pub kernel_flags: u32,
    /// Bytes of user stack that are copied with each stack of a kernel event.
    pub kernel_stack_bytes: u32,
    /// Whether each event is delivered within milliseconds.
    pub low_latency: bool,
    /// Events collected into buffers.
    pub events: u64,
    /// Events lost before they reached the session's buffers, with buffers that could not be
    /// written, or in parts of the log file that another process truncated or overwrote.
    pub events_lost: u64,
    /// The lost events by cause.
    pub lost: LostEvents,
    /// Number of allocated buffers.
    pub buffers: u32,
    /// Number of unused buffers.
    pub free_buffers: u32,
    /// Buffers written to the file, including the header buffer.
    pub buffers_written: u32,
    /// Buffers that could not be written to the file.
    pub buffers_lost: u32,
    /// Buffers that a live consumer, or the backlog before the first one, did not get.
    pub real_time_buffers_lost: u32,
    /// Events in these buffers.
    pub real_time_events_lost: u64,
    /// Buffers of the log file, including header buffers, that another process truncated or
    /// overwrote.
    pub overwritten_buffers: u32,
    /// Number of processes that write to the session.
    pub processes: u32,
    /// Number of live consumers.
    pub consumers: u32,
    /// Processes that may have lost events which nothing could count. `events_lost` does not
    /// include these events.
    pub uncounted_processes: u32,
    /// Memory regions dropped because their process broke the ring protocol.
    pub damaged_regions: u32,
    /// Id of the thread that collects events.
    pub collector_thread: u32,
    /// Processor time of the session's threads: collector, writer, and the threads that help them
    /// to drain and compress.
    pub collector_time: Duration,
    /// The reason why the session ended by itself; `None` while it runs and after a stop.
    pub end_status: Option<Status>,
}

/// Numbers of lost events by cause.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostEvents {
    /// Events lost because a ring or a queue of kernel events was full, or because the event was
    /// too large.
    pub no_room: u64,
    /// Events in buffers that could not be written.
    pub not_written: u64,
    /// Events whose bytes in the ring were invalid.
    pub damaged: u64,
    /// Events of processes for whose rings the session had no memory left.
    pub no_region: u64,
    /// Kernel events that did not fit into the buffers of the kernel.
    pub kernel: u64,
    /// Events in parts of the log file that another process truncated or overwrote.
    pub overwritten: u64,
}

impl LostEvents {
    /// Returns the total number of lost events.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let Self { no_room, not_written, damaged, no_region, kernel, overwritten } = *self;
        let before_buffers = no_room.saturating_add(damaged).saturating_add(no_region).saturating_add(kernel);
        before_buffers.saturating_add(not_written).saturating_add(overwritten)
    }

    fn from_message(lost: LostByCause) -> Self {
        let LostByCause { no_room, not_written, damaged, no_region, kernel, overwritten } = lost;
        Self { no_room, not_written, damaged, no_region, kernel, overwritten }
    }
}

impl SessionSummary {
    pub(super) fn from_message(properties: Properties) -> Self {
        let config = properties.config;
        let mode = LogFileMode::new(config.log_file_mode);
        let unit_shift = if mode.contains(LogFileMode::USE_KBYTES_FOR_SIZE) { 10 } else { 20 };
        Self {
            id: SessionId::new(properties.id),
            name: config.name,
            guid: config.guid,
            mode,
            clock: ClockKind::from_number(config.clock),
            log_file: config.log_file,
            maximum_file_bytes: Some(u64::from(config.maximum_file_size) << unit_shift)
                .filter(|bytes| *bytes != 0),
            buffer_kib: config.buffer_size,
            minimum_buffers: config.minimum_buffers,
            maximum_buffers: config.maximum_buffers,
            flush_timer: Duration::from_secs(config.flush_timer.into()),
            flush_threshold: config.flush_threshold,
            kernel_flags: config.enable_flags,
            kernel_stack_bytes: config.stack_bytes,
            low_latency: config.low_latency,
            events: properties.events,
            events_lost: properties.events_lost,
            lost: LostEvents::from_message(properties.lost_by_cause),
            buffers: properties.number_of_buffers,
            free_buffers: properties.free_buffers,
            buffers_written: properties.buffers_written,
            buffers_lost: properties.log_buffers_lost,
            real_time_buffers_lost: properties.real_time_buffers_lost,
            real_time_events_lost: properties.real_time_events_lost,
            overwritten_buffers: properties.overwritten_buffers,
            processes: properties.processes,
            consumers: properties.consumers,
            uncounted_processes: properties.uncounted_processes,
            damaged_regions: properties.damaged_regions,
            collector_thread: properties.logger_thread_id,
            collector_time: Duration::from_nanos(properties.collector_ns),
            end_status: Some(Status(properties.end_status)).filter(|status| status.0 != 0),
        }
    }
}
