//! Explains why a session cannot continue the file of an earlier one, and what to do instead.

use std::fs::File;
use std::path::Path;

use traceweir::consumer::TraceFile;
use traceweir::{ClockKind, Error, LogFileMode, Status};
use traceweir_format::etl::Trace;

use super::SessionPlan;
use crate::exit::with_hint;
use crate::text::quote_path_for_shell;

/// Adds a hint to the error of a start, if the session was to append to a file that has other
/// settings.
pub(super) fn explain_refusal(plan: &SessionPlan, error: Error) -> anyhow::Error {
    let is_append =
        plan.mode.contains(LogFileMode::APPEND) && error.status() == Status::ERROR_INVALID_PARAMETER;
    let hint = plan.log_file.as_deref().filter(|_| is_append).and_then(|file| append_hint(file, plan));
    match hint {
        Some(hint) => with_hint(error, hint),
        None => error.into(),
    }
}

fn append_hint(file: &Path, plan: &SessionPlan) -> Option<String> {
    let name = quote_path_for_shell(file);
    let Ok(trace) = Trace::open(TraceFile::from(File::open(file).ok()?)) else {
        return Some(format!("{name} is not a trace: name another file with -o"));
    };
    let header = trace.header();
    if ClockKind::from_number(header.clock_type) != Some(ClockKind::SystemTime) {
        return Some(format!(
            "only a file that was started with --clock system (or --append) can be continued: record to another \
             file, then merge the two with weir relog {name} NEXT.etl -o BOTH.etl"
        ));
    }
    let buffer_kib = header.buffer_size / 1024;
    (buffer_kib != plan.buffer_kib)
        .then(|| format!("give the session the buffer size of {name}: --buffer-size {buffer_kib}"))
}
