//! Checks that cannot be made everywhere: they say so on the terminal, and fail where they are required.
//!
//! `TRACEWEIR_REQUIRE` lists by commas what must be there: names that the skips give (`samples`, `root`, …), or `all`.
#![allow(dead_code)] // Each test program uses its part.

use std::io::Write;

/// Says that a check was not made, on the terminal even while the test harness captures output; fails where it is required.
#[track_caller]
pub(crate) fn skip(extra: &str, why: &str) {
    let required = std::env::var("TRACEWEIR_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r == "all" || r == extra), "required: {why}");
    // The harness captures `eprintln!` but not the stream itself.
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped {}: {why}", thread.name().unwrap_or("a test"));
}

/// Whether a check can be made; says so where it cannot.
#[track_caller]
pub(crate) fn can(it_can: bool, extra: &str, why: &str) -> bool {
    if !it_can {
        skip(extra, why);
    }
    it_can
}
