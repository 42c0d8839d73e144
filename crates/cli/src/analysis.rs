//! The base of reports and flame graphs: kernel events of traces, joined with their stacks, with
//! names for addresses.
//!
//! ```text
//!   traces ──first pass──▶ TraceFacts: processes, threads, images, stack definitions, file names
//!     │                      │
//!     └──second pass──▶ ReportEvent (sample, switch, ready, transfer, any event)
//!                          │
//!                          └──Joiner──▶ with its whole stack ──▶ report
//!
//!   Functions: addresses to function ids ──▶ Tree: stacks and their weights
//!   Scheduler: switches and wakes to durations;  Latencies: durations to percentiles
//! ```
//!
//! A1  A report gets events in time order, each once.
//! A2  Everything that grows with a trace has a limit; what exceeds it is counted and reported.
//! A3  Nothing is invented: unknown threads have no process, unknown addresses no function.

mod event;
mod fields;
mod functions;
mod latency;
mod names;
mod path;
mod processes;
mod scheduler;
mod stack_owners;
mod stream;
mod trace_facts;
mod tree;

pub(crate) use event::{Occurrence, ReportEvent, Transfer};
pub(crate) use functions::{FunctionId, Functions, Kind};
pub(crate) use latency::Latencies;
pub(crate) use path::{Paths, TRUNCATED, is_truncated};
pub(crate) use processes::{ProcessId, Processes, ThreadSelection};
pub(crate) use scheduler::{Back, Ran, Scheduler, Switch};
pub(crate) use stream::{Analysis, Wants, Window};
pub(crate) use trace_facts::TraceFacts;
pub(crate) use tree::{NodeId, ShownNode, Tree};
