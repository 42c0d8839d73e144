//! The events that reports are made of.

use std::sync::Arc;

use super::io_event::{FileOperation, NetworkTransfer};
use super::scheduler::ContextSwitch;

/// An event of a report.
#[derive(Clone, Debug)]
pub struct ReportEvent {
    /// Index of the trace.
    pub file: usize,
    pub cpu: u16,
    pub pointer_size: usize,
    /// Timestamp in ticks of the trace's clock.
    pub stamp: i64,
    /// Nanoseconds since the first trace began.
    pub time_ns: i64,
    pub occurrence: Occurrence,
}

/// The content of a [`ReportEvent`].
#[derive(Clone, Debug)]
pub enum Occurrence {
    /// A processor was executing at an address in a thread.
    Sample { thread: u32, address: u64, weight: u64, is_idle: bool },
    /// The sampling interval, in units of 100 ns.
    Interval(u64),
    /// A processor switched from one thread to another.
    Switch(ContextSwitch),
    /// A batch of switches in the compact form, which is not decoded.
    CompactSwitches,
    /// A thread became ready to run.
    Ready { thread: u32 },
    /// A disk operation completed.
    Transfer(Transfer),
    /// An event of TCP or UDP.
    Network(NetworkTransfer),
    /// A file operation began.
    FileStart(FileOperation),
    /// A file operation ended; `bytes` is the number of transferred bytes of a read or write.
    FileEnd { irp: u64, bytes: u64 },
    /// A system call began. The thread is unknown in traces without context switches.
    SystemCallStart { thread: Option<u32>, address: u64 },
    /// A system call ended.
    SystemCallEnd { thread: Option<u32>, status: u32 },
    /// An event that was selected by name or id.
    Chosen { pid: u32, thread: u32 },
}

/// A read, write or flush of a disk.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub disk: u32,
    pub operation: &'static str,
    pub bytes: u64,
    /// Duration, if the event contains it.
    pub duration_ns: Option<u64>,
    pub thread: Option<u32>,
    /// The process id in the event's header. It is used for event versions without a thread.
    pub pid: u32,
    pub file_name: Option<Arc<str>>,
}
