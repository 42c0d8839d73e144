//! End-to-end tests: the real `weir`, real files, one process a test.

#[path = "support/again.rs"]
mod again;
mod architecture;
mod baseline;
mod commands;
#[path = "support/control_group.rs"]
mod control_group;
mod golden;
mod live;
mod looks;
mod manifests;
mod samples;
mod tracelogging;
mod util;
