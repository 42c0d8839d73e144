//! `weir report`: reports where time went in a kernel trace.
//!
//! ```text
//!   as text                            with --json
//!   headline: totals, losses           one object {"by":"summary"}
//!   tables: at most --top rows each    one object per row, {"by":"function"}, …
//! ```

mod choose;
mod cpu;
mod disk;
mod file;
mod net;
mod page;
mod sched;
mod syscall;

use anyhow::Result;

pub(super) use self::choose::has_report;

use crate::cli::{ReportArgs, ReportVerb};
use crate::exit::CommandOutcome;

pub(super) fn run(options: ReportArgs) -> Result<CommandOutcome> {
    let verb = match options.verb {
        Some(verb) => verb,
        None => choose::choose_report(options.automatic)?,
    };
    match verb {
        ReportVerb::Cpu(options) => cpu::run(&options),
        ReportVerb::Sched(options) => sched::run(&options),
        ReportVerb::Disk(options) => disk::run(&options),
        ReportVerb::File(options) => file::run(&options),
        ReportVerb::Net(options) => net::run(&options),
        ReportVerb::Syscall(options) => syscall::run(&options),
    }
}
