//! Kernel events by the command as people run it, held against perf in the same run, and against programs of known behaviour.
//!
//! ```text
//!   weir record --kernel … -- perf record -a … -- workload        what perf sees lies inside of what weir sees, the workload inside of both
//!          │                       │                 └ tells its threads, ports, bytes, times (workload.c)
//!      weir dump              perf script
//!          └──── compared: only what concerns the workload's own threads ────┘
//! ```
//!
//! 1. The whole machine is recorded, and does other things meanwhile: a test counts what its own program did.
//! 2. One measurement runs at a time: they would disturb each other, and the machine is small.
//! 3. What only noise can spoil (events that a busy machine lost) is measured again, a few times. No time that passes decides.
//! 4. What needs the kernel's events, perf or a C compiler is skipped where there is none, and says so.

#[path = "../support/again.rs"]
mod again;
#[path = "../util.rs"]
#[allow(dead_code)] // Shared with the other end-to-end tests.
mod util;

mod dumped;
mod perf;
mod stage;

mod counts;
mod file;
mod loss;
mod one_trace;
mod own;
mod running;
mod stacks;
mod truth;
