//! `weir repair`: finalises a log file that was not closed.

use std::fs::File;
use std::path::Path;

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use traceweir_analysis::input::{self, TraceInput};
use traceweir_format::{Error, etl};

use crate::cli::RepairArgs;
use crate::existing_output::{self, is_same_file};
use crate::exit::{CommandOutcome, print_warning};
use crate::text::{format_count, format_number};

/// Maximum number of holes to print; all are counted.
const MAX_SHOWN_HOLES: usize = 20;

pub(super) fn run(options: &RepairArgs) -> Result<CommandOutcome> {
    let mut inputs = input::open_paths(std::slice::from_ref(&options.file))?;
    let Some(file) = inputs.pop().filter(|_| inputs.is_empty()) else {
        bail!("{} holds several traces; unpack the one to repair", options.file.display());
    };
    if is_same_file(&options.file, &options.output) {
        bail!("{} is the input; name another file with -o", options.output.display());
    }
    let path = options.output.display();
    let moved = existing_output::make_room(&options.output, options.force)?;
    let sink = traceweir::output::create(&options.output, false).context("cannot write the output")?;
    moved.keep();
    if let Some(damage) = &file.damage {
        eprintln!("{}: {damage}", file.name);
    }
    if !file.trace.is_finalised() {
        print_warning(&format!(
            "{}: the session did not finalise the file: events that it still had in memory are missing, and no file contains how many",
            file.name
        ));
    }
    let repaired = etl::repair(&file.trace, sink).context("cannot repair")?;
    eprintln!(
        "{path}: {} in {}, ends {}",
        format_count(repaired.events, "record"),
        format_count(u64::from(repaired.buffers), "buffer"),
        repaired.end_time
    );
    if repaired.salvaged > 0 || repaired.dropped > 0 {
        let [salvaged, dropped] =
            [repaired.salvaged, repaired.dropped].map(|count| format_number(count.into()));
        eprintln!("damaged buffers: {salvaged} saved in part, {dropped} left out");
    }
    if repaired.unpadded > 0 {
        eprintln!(
            "{} not padded to the session's buffer size, which would make the file much larger than the input",
            format_count(u64::from(repaired.unpadded), "damaged buffer")
        );
    }
    let missing = file.trace.missing_buffers();
    if let Some((written, present)) = missing {
        eprintln!(
            "{}: the session wrote {} and the file has {}; the events of the others are lost",
            file.name,
            format_count(written, "buffer"),
            format_number(present)
        );
    }
    let has_holes = report_holes(&file);
    let remaining = count_faults(&options.output)?;
    if remaining > 0 {
        eprintln!(
            "{path}: still has {} that repairing does not correct (see weir check)",
            format_count(remaining, "fault")
        );
    }
    // Salvaged buffers do not count as damage: a crash often leaves half a buffer at the end, whose
    // complete records the copy contains.
    let is_damaged =
        has_holes || missing.is_some() || repaired.dropped > 0 || file.damage.is_some() || remaining > 0;
    Ok(if is_damaged { CommandOutcome::Damaged } else { CommandOutcome::Fine })
}

/// Prints where the input has no buffers; returns whether it has such holes.
fn report_holes(file: &TraceInput) -> bool {
    let mut holes = file.trace.defects().iter().filter(|defect| matches!(defect, Error::Hole { .. }));
    for hole in holes.by_ref().take(MAX_SHOWN_HOLES) {
        eprintln!("{}: {hole}; the events there are lost", file.name);
    }
    let more_holes = holes.count() as u64;
    if more_holes > 0 {
        let more_holes = format_count(more_holes, "more hole");
        eprintln!("{}: and {more_holes} (weir check lists all)", file.name);
    }
    file.trace.holes().next().is_some()
}

/// Counts the faults in the new file. Fails if the file cannot be read.
fn count_faults(path: &Path) -> Result<u64> {
    let trace = etl::Trace::open(File::open(path)?).context("cannot read the repaired file")?;
    let mut faults = 0;
    etl::check(&trace, &mut |finding| faults += u64::from(!finding.rule.is_remark()))?;
    Ok(faults)
}
