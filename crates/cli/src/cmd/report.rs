//! `weir report`: reports where time went in a kernel trace.
//!
//! ```text
//!   as text                            with --json
//!   headline: totals, losses           one object {"by":"summary"}
//!   tables: at most --top rows each    one object per row, {"by":"function"}, …
//! ```

mod cpu;
mod disk;
mod page;
mod sched;

use anyhow::Result;

use crate::cli::ReportVerb;
use crate::exit::CommandOutcome;

pub(super) fn run(verb: &ReportVerb) -> Result<CommandOutcome> {
    match verb {
        ReportVerb::Cpu(options) => cpu::run(options),
        ReportVerb::Sched(options) => sched::run(options),
        ReportVerb::Disk(options) => disk::run(options),
    }
}
