//! The events that reports are made of.

use std::sync::Arc;

use super::io_event::{FileOperation, NetworkTransfer};
use super::scheduler::ContextSwitch;

/// An event of a report.
#[derive(Clone, Debug)]
pub struct ReportEvent {
    /// Index of the trace.
    pub file: usize,
    /// Number of the processor.
    pub cpu: u16,
    /// Bytes of a pointer in the process of the event.
    pub pointer_size: usize,
    /// Timestamp in ticks of the trace's clock.
    pub stamp: i64,
    /// Nanoseconds since the first trace began.
    pub time_ns: i64,
    /// What the event reports.
    pub occurrence: Occurrence,
}

/// The content of a [`ReportEvent`].
#[derive(Clone, Debug)]
pub enum Occurrence {
    /// A processor was executing at an address in a thread.
    Sample {
        /// The thread.
        thread: u32,
        /// The address.
        address: u64,
        /// Number of samples that the event stands for.
        weight: u64,
        /// Whether the processor was idle.
        is_idle: bool,
    },
    /// The sampling interval, in units of 100 ns.
    Interval(u64),
    /// A processor switched from one thread to another.
    Switch(ContextSwitch),
    /// A batch of switches in the compact form, which is not decoded.
    CompactSwitches,
    /// A thread became ready to run.
    Ready {
        /// The thread.
        thread: u32,
    },
    /// A thread ended.
    ThreadEnd {
        /// The thread.
        thread: u32,
    },
    /// The trace has no further events.
    TraceEnd,
    /// A disk operation completed.
    Transfer(Transfer),
    /// An event of TCP or UDP.
    Network(NetworkTransfer),
    /// A file operation began.
    FileStart(FileOperation),
    /// A file operation ended.
    FileEnd {
        /// The number that the start of the operation has too.
        irp: u64,
        /// The number of transferred bytes of a read or write.
        bytes: u64,
    },
    /// A system call began.
    SystemCallStart {
        /// The thread; unknown in traces without context switches.
        thread: Option<u32>,
        /// Address of the function in the kernel, or 0.
        address: u64,
    },
    /// A system call ended.
    SystemCallEnd {
        /// The thread; unknown in traces without context switches.
        thread: Option<u32>,
        /// The result.
        status: u32,
    },
    /// An event that was selected by name or id.
    Chosen {
        /// The process that the event concerns.
        pid: u32,
        /// The thread that the event concerns.
        thread: u32,
    },
}

/// A read, write or flush of a disk.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Number of the disk.
    pub disk: u32,
    /// "read", "write" or "flush".
    pub operation: &'static str,
    /// Number of transferred bytes.
    pub bytes: u64,
    /// Duration, if the event contains it.
    pub duration_ns: Option<u64>,
    /// The thread that issued the operation, if the event contains it.
    pub thread: Option<u32>,
    /// The process id in the event's header. It is used for event versions without a thread.
    pub pid: u32,
    /// The file, if the trace names it.
    pub file_name: Option<Arc<str>>,
}
