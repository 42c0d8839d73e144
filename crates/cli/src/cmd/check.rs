//! `weir check`: lists every rule of the file format that a trace breaks.
//!
//! Faults and remarks are listed alike, but only a fault is damage. An example of a remark
//! is a timestamp that goes back; a provider may have supplied it.

use std::path::Path;

use anstream::eprintln;
use anyhow::Result;
use traceweir_analysis::input::{self, TraceInput};
use traceweir_analysis::traces::describe_losses;
use traceweir_decode::format::push_json_string;
use traceweir_format::etl::{self, Finding, Rule};

use crate::cli::CheckArgs;
use crate::exit::{self, CommandOutcome};
use crate::output::BufferedOutput;
use crate::text::format_count;

/// Maximum number of faults to print, and maximum number of remarks. Further ones are only counted.
const MAX_SHOWN_FINDINGS: u64 = 100_000;

pub(super) fn run(options: &CheckArgs) -> Result<CommandOutcome> {
    let mut output = BufferedOutput::open(None)?;
    exit::process_each(&options.files.files, |path| check_path(path, options, &mut output))
}

fn check_path(path: &Path, options: &CheckArgs, output: &mut BufferedOutput) -> Result<CommandOutcome> {
    let mut outcome = CommandOutcome::Fine;
    for file in input::open_path(path)? {
        outcome = outcome.max(check_file(&file, options, output)?);
    }
    Ok(outcome)
}

fn check_file(file: &TraceInput, options: &CheckArgs, output: &mut BufferedOutput) -> Result<CommandOutcome> {
    let (mut faults, mut remarks) = (0_u64, 0_u64);
    let mut write_result = Ok(());
    let records = etl::check(&file.trace, &mut |finding| {
        let count = if finding.rule.is_remark() { &mut remarks } else { &mut faults };
        *count += 1;
        if *count > MAX_SHOWN_FINDINGS || write_result.is_err() {
            return;
        }
        write_finding(&file.name, &finding, options.json, output.buffer());
        write_result = output.flush_if_full();
    })?;
    write_result?;
    output.flush()?;
    let (buffers, size) = (file.trace.buffers().len() as u64, file.trace.file_size());
    // Records are the events and those that describe the file itself.
    let (records, buffers) = (format_count(records, "record"), format_count(buffers, "buffer"));
    let contents = format!("{records} in {buffers}, {}", format_count(size, "byte"));
    let remarks_text = match remarks {
        0 => String::new(),
        count => format!("; {}", format_count(count, "remark")),
    };
    let mut outcome = CommandOutcome::Fine;
    if faults == 0 {
        eprintln!("{}: sound: {contents}{remarks_text}", file.name);
    } else {
        let findings = format_count(faults, "finding");
        eprintln!("{}: {findings}; {contents} can be read{remarks_text}", file.name);
        outcome = CommandOutcome::Damaged;
    }
    if let Some(damage) = &file.damage {
        eprintln!("{}: {damage}", file.name);
        outcome = CommandOutcome::Damaged;
    }
    if let Some(loss) = describe_losses(&file.trace) {
        exit::print_warning(&format!("{}: {loss}", file.name));
        if options.strict {
            outcome = outcome.max(CommandOutcome::EventsLost);
        }
    }
    Ok(outcome)
}

fn write_finding(file: &str, finding: &Finding, as_json: bool, out: &mut Vec<u8>) {
    let Finding { rule, offset, detail } = finding;
    let is_remark = rule.is_remark();
    let advice = if *rule == Rule::NotFinalised { " (weir repair writes a finalised copy)" } else { "" };
    if as_json {
        out.extend_from_slice(b"{\"file\":");
        push_json_string(file, out);
        let tail = format!(",\"rule\":\"{rule}\",\"remark\":{is_remark},\"offset\":{offset},\"detail\":");
        out.extend_from_slice(tail.as_bytes());
        push_json_string(&format!("{detail}{advice}"), out);
        out.extend_from_slice(b"}\n");
    } else {
        let remark = if is_remark { "remark: " } else { "" };
        out.extend_from_slice(
            format!("{file}: {offset:#010x}: {remark}{rule}: {detail}{advice}\n").as_bytes(),
        );
    }
}
