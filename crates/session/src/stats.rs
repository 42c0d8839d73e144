//! The counters people read. Each is written by one of the session's threads and read by anybody.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use traceweir_transport::message::LostByCause;

use crate::logfile::Overwritten;

/// What a session has counted so far. Relaxed throughout: each number stands for itself; a reader that needs several to agree
/// asks behind a flush or stop, whose answer is handed over by a lock.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Events collected into buffers.
    pub(crate) events: AtomicU64,
    /// Events that processes could not write, and those that the items they asked for made too large.
    pub(crate) no_room: AtomicU64,
    /// Events of processes whose regions have no rings.
    pub(crate) no_region: AtomicU64,
    /// Captured events that found no room in the kernel.
    pub(crate) kernel: AtomicU64,
    /// Events in buffers that could not be written.
    pub(crate) not_written: AtomicU64,
    /// Events in buffers of the log file that another process truncated or overwrote.
    pub(crate) overwritten: AtomicU64,
    /// Those buffers, the header buffer included.
    pub(crate) overwritten_buffers: AtomicU32,
    /// Records whose bytes were wrong.
    pub(crate) damaged: AtomicU64,
    /// Regions given up.
    pub(crate) damaged_regions: AtomicU32,
    /// Buffers written, header buffers included.
    pub(crate) buffers_written: AtomicU32,
    /// Buffers that could not be written.
    pub(crate) log_buffers_lost: AtomicU32,
    /// Buffers that a live consumer did not get.
    pub(crate) real_time_buffers_lost: AtomicU32,
    /// Events in those.
    pub(crate) real_time_events_lost: AtomicU64,
    /// Regions attached.
    pub(crate) processes: AtomicU32,
    /// Live consumers.
    pub(crate) consumers: AtomicU32,
    /// Thread id of the collector.
    pub(crate) logger_thread_id: AtomicU32,
    /// Processor time of the collector thread.
    pub(crate) collector_ns: AtomicU64,
    /// Processor time of the writer thread.
    pub(crate) writer_ns: AtomicU64,
    /// Why the session ended by itself.
    pub(crate) end_status: AtomicU32,
}

impl Stats {
    /// Why events were lost.
    pub(crate) fn lost(&self) -> LostByCause {
        LostByCause {
            no_room: self.no_room.load(Relaxed),
            not_written: self.not_written.load(Relaxed),
            damaged: self.damaged.load(Relaxed),
            no_region: self.no_region.load(Relaxed),
            kernel: self.kernel.load(Relaxed),
            overwritten: self.overwritten.load(Relaxed),
        }
    }

    /// How many events were lost.
    pub(crate) fn events_lost(&self) -> u64 {
        self.lost().sum()
    }

    /// A buffer that could not be written.
    pub(crate) fn count_unwritten(&self, events: u32) {
        self.log_buffers_lost.fetch_add(1, Relaxed);
        self.not_written.fetch_add(u64::from(events), Relaxed);
    }

    /// Buffers that another process truncated or overwrote in the log file.
    pub(crate) fn count_overwritten(&self, found: Overwritten) {
        self.overwritten_buffers.fetch_add(found.buffers, Relaxed);
        self.overwritten.fetch_add(found.events, Relaxed);
    }

    /// A buffer that a consumer, or the backlog, did not take.
    pub(crate) fn count_undelivered(&self, events: u32) {
        self.real_time_buffers_lost.fetch_add(1, Relaxed);
        self.real_time_events_lost.fetch_add(u64::from(events), Relaxed);
    }

    /// Notes the processor time of the calling thread.
    pub(crate) fn note_thread_time(place: &AtomicU64) {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        place.store(seconds.saturating_mul(1_000_000_000).saturating_add(nanos), Relaxed);
    }
}
