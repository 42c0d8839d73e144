//! The counters of a session. The session's threads write them; any thread reads them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use traceweir_transport::message::LostByCause;

use crate::logfile::Overwritten;

/// Counters of a session. All accesses are relaxed: the counters are independent. A reader that
/// needs consistent values reads them after a flush or stop, whose reply is passed through a lock.
#[derive(Debug, Default)]
pub(crate) struct SessionStats {
    /// Events collected into buffers.
    pub(crate) events: AtomicU64,
    /// Events that did not fit into a ring or a queue of the capture, or were too large for a
    /// buffer.
    pub(crate) no_room: AtomicU64,
    /// Events of processes whose regions have no rings.
    pub(crate) no_region: AtomicU64,
    /// Kernel events that did not fit into the kernel's perf buffers.
    pub(crate) kernel: AtomicU64,
    /// Events in buffers that could not be written.
    pub(crate) not_written: AtomicU64,
    /// Events in buffers of the log file that another process truncated or overwrote.
    pub(crate) overwritten: AtomicU64,
    /// Buffers of the log file that another process truncated or overwrote, header buffers
    /// included.
    pub(crate) overwritten_buffers: AtomicU32,
    /// Records that were rejected because their bytes were invalid.
    pub(crate) damaged: AtomicU64,
    /// Regions that were dropped because they broke the ring protocol.
    pub(crate) damaged_regions: AtomicU32,
    /// Buffers written, header buffers included.
    pub(crate) buffers_written: AtomicU32,
    /// Buffers that could not be written.
    pub(crate) log_buffers_lost: AtomicU32,
    /// Buffers that a live consumer or the backlog did not take.
    pub(crate) real_time_buffers_lost: AtomicU32,
    /// Events in buffers that a live consumer or the backlog did not take.
    pub(crate) real_time_events_lost: AtomicU64,
    /// Number of attached regions.
    pub(crate) processes: AtomicU32,
    /// Number of live consumers.
    pub(crate) consumers: AtomicU32,
    /// Thread id of the collector.
    pub(crate) logger_thread_id: AtomicU32,
    /// Processor time of the collector thread.
    pub(crate) collector_ns: AtomicU64,
    /// Processor time of the writer thread.
    pub(crate) writer_ns: AtomicU64,
    /// Processor time of the threads that helped one of these two.
    pub(crate) helper_ns: AtomicU64,
    /// Win32 error code of the failure that ended the session; 0 if there was none.
    pub(crate) end_status: AtomicU32,
}

impl SessionStats {
    /// Returns the lost events by cause.
    pub(crate) fn lost_by_cause(&self) -> LostByCause {
        LostByCause {
            no_room: self.no_room.load(Relaxed),
            not_written: self.not_written.load(Relaxed),
            damaged: self.damaged.load(Relaxed),
            no_region: self.no_region.load(Relaxed),
            kernel: self.kernel.load(Relaxed),
            overwritten: self.overwritten.load(Relaxed),
        }
    }

    /// Returns the total number of lost events.
    pub(crate) fn events_lost(&self) -> u64 {
        self.lost_by_cause().sum()
    }

    /// Counts a buffer of `events` events that could not be written.
    pub(crate) fn count_unwritten(&self, events: u32) {
        self.log_buffers_lost.fetch_add(1, Relaxed);
        self.not_written.fetch_add(u64::from(events), Relaxed);
    }

    /// Counts buffers that another process truncated or overwrote in the log file.
    pub(crate) fn count_overwritten(&self, overwritten: Overwritten) {
        self.overwritten_buffers.fetch_add(overwritten.buffers, Relaxed);
        self.overwritten.fetch_add(overwritten.events, Relaxed);
    }

    /// Counts a buffer of `events` events that a live consumer, or the backlog, did not take.
    pub(crate) fn count_undelivered(&self, events: u32) {
        self.real_time_buffers_lost.fetch_add(1, Relaxed);
        self.real_time_events_lost.fetch_add(u64::from(events), Relaxed);
    }

    /// Stores the processor time of the calling thread in `counter`.
    pub(crate) fn record_thread_time(counter: &AtomicU64) {
        counter.store(thread_time(), Relaxed);
    }

    /// Adds the processor time of the calling thread, which ends now.
    pub(crate) fn add_helper_time(&self) {
        self.helper_ns.fetch_add(thread_time(), Relaxed);
    }
}

/// Returns the processor time of the calling thread in nanoseconds.
fn thread_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
