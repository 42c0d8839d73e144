//! `weir report`: where time went in a kernel trace.
//!
//! ```text
//!   headline: what there is, what is missing      one object {"by":"summary"} with --json
//!   tables: at most --top rows each               one object a row, {"by":"function"}, …
//! ```

mod cpu;
mod disk;
mod page;
mod sched;

use anyhow::Result;

use crate::cli::ReportVerb;
use crate::exit::Outcome;

/// Runs the command.
pub(super) fn run(verb: &ReportVerb) -> Result<Outcome> {
    match verb {
        ReportVerb::Cpu(options) => cpu::run(options),
        ReportVerb::Sched(options) => sched::run(options),
        ReportVerb::Disk(options) => disk::run(options),
    }
}
