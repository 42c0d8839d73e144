//! What reports and flame graphs are made of: the kernel events of traces, joined to their stacks, with names for addresses.
//!
//! ```text
//!   traces ──look ahead──▶ Known: processes, threads, images, stacks stored once, names of files
//!     │                      │
//!     └──second pass──▶ Seen (sample, switch, ready, transfer, any event) ──Joiner──▶ Seen + whole stack ──▶ a report
//!                                                                                       │
//!                             Functions: addresses as numbers of functions ──▶ Tree: stacks and what they weigh
//!                             Scheduler: switches and wakes as times;  Latencies: times as percentiles
//! ```
//!
//! A1  A report sees events in time order, each once.
//! A2  All that grows with a trace has a bound; what is beyond it is counted, and the report says so.
//! A3  What a trace does not tell is not made up: unknown threads have no process, unknown addresses no function.

mod bearers;
mod fields;
mod functions;
mod known;
mod latency;
mod names;
mod path;
mod processes;
mod scheduler;
mod stream;
mod tree;

pub(crate) use functions::{FunctionId, Functions, Kind};
pub(crate) use known::Known;
pub(crate) use latency::Latencies;
pub(crate) use path::{CUT, Paths, is_cut};
pub(crate) use processes::{ProcessId, Processes, Wanted};
pub(crate) use scheduler::{Back, Ran, Scheduler, Switch};
pub(crate) use stream::{Analysis, Seen, Transfer, Wants, What, Window};
pub(crate) use tree::{NodeId, Shown, Tree};
