//! Prints the warnings of reading traces, and adds the advice that the library does not know.

use anstream::eprintln;
use anyhow::anyhow;
use traceweir_analysis::observer::{SymbolProblem, Warning};
use traceweir_analysis::traces::follow::FollowError;
use traceweir_analysis::traces::{ReadSummary, ReadWarning, TraceSet};

use crate::exit::{self, CommandOutcome};
use crate::text::{format_count, format_number};

/// Returns the outcome of a command that has read traces. Reading a trace whose session lost events
/// is no failure.
pub(crate) const fn reading_outcome(reading: &ReadSummary) -> CommandOutcome {
    if reading.is_damaged { CommandOutcome::Damaged } else { CommandOutcome::Fine }
}

/// Prints defects and losses.
pub(crate) fn print_warnings(reading: &ReadSummary) {
    print_defects(reading);
    reading.losses.iter().for_each(|warning| exit::print_warning(warning));
}

/// Prints defects, for commands whose output contains the losses.
pub(crate) fn print_defects(reading: &ReadSummary) {
    print_defect_lines(reading);
    if reading.is_damaged {
        eprintln!("hint: weir repair FILE -o COPY.etl writes a copy without the damage");
    }
}

/// Prints defects and losses of a recording of another tool, which `weir repair` does not read.
pub(crate) fn print_import_warnings(reading: &ReadSummary) {
    print_defect_lines(reading);
    reading.losses.iter().for_each(|warning| exit::print_warning(warning));
}

fn print_defect_lines(reading: &ReadSummary) {
    for warning in &reading.warnings {
        match warning {
            ReadWarning::MoreDefects { .. } => {
                exit::print_warning(&format!("{warning} (weir check lists all)"));
            }
            ReadWarning::Defect { .. } => exit::print_warning(&warning.to_string()),
        }
    }
}

/// Prints a warning that arrives while traces are read.
pub(crate) fn print_reading_warning(warning: &Warning) {
    let advice = match warning {
        Warning::MissingFiles(files) => {
            format!("; --symbol-path may help to find {}", files.pronoun())
        }
        Warning::Symbols { problem, .. } => symbol_advice(problem).to_owned(),
        _ => String::new(),
    };
    eprintln!("warning: {warning}{advice}");
}

fn symbol_advice(problem: &SymbolProblem) -> &'static str {
    match problem {
        SymbolProblem::OtherFile => "; give the right one with --symbol-path",
        SymbolProblem::UnreadableKernel => "; give a System.map or vmlinux with --symbol-path",
        SymbolProblem::HiddenKernel => ": run as root, or allow them with 'sysctl kernel.kptr_restrict=0'",
        SymbolProblem::OtherKernel => "; give its System.map or vmlinux with --symbol-path",
        _ => "",
    }
}

/// Warns if symbols were requested and no trace names files of code.
pub(crate) fn warn_of_missing_images(traces: &TraceSet) {
    if traces.lacks_images() {
        eprintln!(
            "warning: no address gets a name: the trace has no image events, which name the files of code; weir record --kernel image_load adds them"
        );
    }
}

/// Returns a note with the remedy if most stacks lack callers.
pub(crate) fn missing_callers_note(lacking: u64, all: u64) -> Option<String> {
    (lacking > all / 2).then(|| {
        format!(
            "callers missing or unknown (?): {} of {}. Programs without frame pointers need copies of their stacks: \
             weir record --unwind 16K -- COMMAND",
            format_number(lacking),
            format_count(all, "stack")
        )
    })
}

/// Returns the error for a trace that `--follow` cannot read.
pub(crate) fn explain_follow_error(error: FollowError) -> anyhow::Error {
    match error {
        FollowError::SeveralTraces => anyhow!("--follow reads one file; run weir dump once for each file"),
        FollowError::Unpacked(name) => {
            anyhow!("{name}: --follow needs a file that a session writes, not an archive or a pipe")
        }
        FollowError::Circular(name) => anyhow!(
            "{name}: --follow cannot read a circular file, because its oldest events are overwritten; \
             weir watch SESSION prints live events"
        ),
        FollowError::Preallocated(name) => anyhow!(
            "{name}: --follow cannot read a preallocated file, whose size does not show how much is written; \
             weir watch SESSION prints live events"
        ),
    }
}
