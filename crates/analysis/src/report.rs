//! The base of reports and flame graphs: kernel events of traces, joined with their stacks, with
//! names for addresses.
//!
//! ```text
//!   traces ──first pass──▶ TraceFacts: processes, threads, images, stack definitions, file names
//!     │                      │
//!     └──second pass──▶ ReportEvent (sample, switch, ready, transfer, operation, call …)
//!                          │
//!                          └──Joiner──▶ with its whole stack ──▶ report
//!
//!   FunctionTable: address ─▶ function id         StackTree: stacks and their weights
//!   ProcessTable: pid and name ─▶ process id      CallPaths: stack ─▶ ids of process and functions
//!   Scheduler: switches and wakes ─▶ durations    Latencies: durations ─▶ percentiles
//! ```
//!
//! A1  A report gets events in time order, each once.
//! A2  Every table that grows with a trace has a limit; entries beyond it are merged or left out.
//! A3  Reports do not guess processes and functions: unknown threads have no process, unknown
//!     addresses no function.

pub mod callers;
pub mod disk;
mod event;
mod events_with_stacks;
pub mod file;
pub mod flame;
mod functions;
mod io;
mod io_event;
mod kernel_event;
mod latency;
mod names;
pub mod network;
mod path;
mod processes;
pub mod rows;
pub mod samples;
mod scheduler;
pub mod span;
mod stream;
pub mod switches;
pub mod system_calls;
mod trace_facts;
mod tree;
pub mod wait_cause;

pub use event::{Occurrence, ReportEvent, Transfer};
pub use functions::{CodeKind, CodeLocation, FunctionId, FunctionTable, StackFunction};
pub use io::{FileFields, elapsed_ns, is_disk_event, is_file_event, is_network_event};
pub use io_event::{FileOperation, FileOperationKind, NetworkKind, NetworkProtocol, NetworkTransfer};
pub use kernel_event::{
    DiskOperation, KernelEvent, LifeChange, ProcessEvent, ThreadEvent, read_kernel_event, read_numbers,
    ticks_to_ns,
};
pub use latency::Latencies;
pub use path::{CallPaths, EventThread, TRUNCATED, is_truncated};
pub use processes::{ProcessId, ProcessTable, ThreadSelection};
pub use scheduler::{Absence, ContextSwitch, RunSpan, Scheduler, ThreadReturn, UnfinishedState};
pub use stream::{Analysis, AnalysisOptions, NeededEvents, TimeWindow, TraceMark};
pub use trace_facts::TraceFacts;
pub use tree::{FunctionWeight, NodeId, ShownNode, StackEnds, StackTree};
