//! End-to-end tests, which run the real `weir` with real files, daemons and programs, and checks
//! that the code has the structure that ARCHITECTURE.md describes.

mod architecture;
mod baseline;
mod commands;
#[path = "support/control_group.rs"]
mod control_group;
mod golden;
mod guide;
mod live;
mod manifests;
mod parallel;
mod reports;
#[path = "support/retry.rs"]
mod retry;
mod samples;
mod tracelogging;
mod util;
