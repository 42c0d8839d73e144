//! A consumer in C compared with the Rust reader: the same file, every event passed to a callback
//! that only counts.
//!
//! ```text
//!   trace.etl ─┬─ consumer::process, a Record for each event                this program, `count`
//!              └─ OpenTrace, ProcessTrace, an EVENT_RECORD for each event   peers/consumer.c
//!
//!   figure: consumer_c_vs_rust
//! ```
//!
//! Both callbacks get the whole event, and neither reads it. `black_box` keeps the compiler from
//! removing the event.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use traceweir::consumer::{Item, Trace, process};

use crate::error::Result;
use crate::in_c::run_and_parse_number;
use crate::peer::this_program;

/// Returns the processor time of the Rust reader for a file, in its own process, and the number of
/// events.
pub(crate) fn run_ours(trace: &Path) -> Result<(Duration, u64)> {
    run_and_parse_number(Command::new(this_program()?).arg("count").arg(trace))
}

/// Prints the number of events of a file.
pub(crate) fn count(path: &Path) -> Result<()> {
    let mut count = 0_u64;
    process(vec![Trace::open(path)?], |item| {
        if let Item::Event(event) = item {
            count += 1;
            black_box(&event);
        }
        ControlFlow::Continue(())
    })?;
    println!("{count}");
    Ok(())
}
