//! End-to-end tests: the real `weir`, real files, one process a test.

mod baseline;
mod commands;
mod golden;
mod samples;
mod util;
