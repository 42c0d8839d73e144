//! End-to-end tests, which run the real `weir` on real files, and checks that the code has the
//! structure that ARCHITECTURE.md describes.

#[path = "support/again.rs"]
mod again;
mod architecture;
mod baseline;
mod commands;
#[path = "support/control_group.rs"]
mod control_group;
mod golden;
mod live;
mod manifests;
mod reports;
mod samples;
mod tracelogging;
mod util;
