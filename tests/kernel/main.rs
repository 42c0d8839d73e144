//! Tests of kernel events that the command line records. The events are compared with those of perf
//! in the same run, and with the known behaviour of programs.
//!
//! ```text
//!   weir record --kernel … -- perf record -a … -- workload
//!          │                       │                 └ workload.c prints threads, bytes, times
//!      weir dump              perf script
//!          └──── compared: only events of the workload's own threads ────┘
//! ```
//!
//! 1. The whole machine is recorded, including other programs: a test counts only the events of its
//!    own workload.
//! 2. One measurement runs at a time: two measurements would disturb each other on a small machine.
//! 3. A measurement that other load can spoil (lost events) is repeated a few times.
//!    `retry_alternately_with_busy_processors` repeats a whole test that failed, and keeps all
//!    processors busy in every second attempt except the last. No test depends on elapsed time.
//! 4. Tests that need kernel events, perf or a C compiler are skipped where these are missing.

#[path = "../support/retry.rs"]
mod retry;
#[path = "../support/stopped_thread.rs"]
mod stopped_thread;
#[path = "../util.rs"]
#[allow(dead_code)] // Shared with the other end-to-end tests.
mod util;

mod dumped;
mod perf;
mod recordings;

mod counts;
mod file;
mod io_reports;
mod loss;
mod one_trace;
mod own;
mod providers;
mod running;
mod scope;
mod stacks;
mod truth;
