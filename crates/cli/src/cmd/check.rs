//! `weir check`: every rule of the format that a file breaks.

use std::path::Path;

use anstream::eprintln;
use anyhow::Result;
use traceweir_format::etl;

use super::grouped;
use crate::cli::Check;
use crate::exit::{self, Outcome};
use crate::export::write_json_string;
use crate::input;
use crate::output::Output;

/// Findings that are printed; all are counted.
const SHOWN: u64 = 100_000;

/// Runs the command.
pub(super) fn run(options: &Check) -> Result<Outcome> {
    let mut output = Output::open(None)?;
    exit::for_each(&options.files.files, |path| check(path, options.json, &mut output))
}

fn check(path: &Path, json: bool, output: &mut Output) -> Result<Outcome> {
    let mut outcome = Outcome::Fine;
    for file in input::open_one(path)? {
        let mut findings = 0_u64;
        let mut failed = Ok(());
        let events = etl::check(&file.trace, &mut |finding| {
            findings += 1;
            if findings > SHOWN || failed.is_err() {
                return;
            }
            let out = output.buffer();
            if json {
                out.extend_from_slice(b"{\"file\":");
                write_json_string(&file.name, out);
                let tail =
                    format!(",\"rule\":\"{}\",\"offset\":{},\"detail\":", finding.rule, finding.offset);
                out.extend_from_slice(tail.as_bytes());
                write_json_string(&finding.detail, out);
                out.extend_from_slice(b"}\n");
            } else {
                let line = format!(
                    "{}: {:#010x}: {}: {}\n",
                    file.name, finding.offset, finding.rule, finding.detail
                );
                out.extend_from_slice(line.as_bytes());
            }
            failed = output.settle();
        })?;
        failed?;
        output.flush()?;
        let (buffers, size) = (file.trace.buffers().len() as u64, file.trace.file_size());
        let (buffers, events, size) = (grouped(buffers), grouped(events), grouped(size));
        let read = format!("{events} events in {buffers} buffers, {size} bytes");
        if findings == 0 {
            eprintln!("{}: sound: {read}", file.name);
        } else {
            eprintln!("{}: {} findings; {read} can be read", file.name, grouped(findings));
            outcome = outcome.max(Outcome::Damaged);
        }
        if let Some(damage) = &file.damage {
            eprintln!("{}: {damage}", file.name);
            outcome = outcome.max(Outcome::Damaged);
        }
        if file.trace.header().events_lost > 0 || file.trace.header().buffers_lost > 0 {
            outcome = outcome.max(Outcome::EventsLost);
        }
    }
    Ok(outcome)
}
