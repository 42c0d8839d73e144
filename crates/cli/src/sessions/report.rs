//! Messages about a session: how it ended, what its file contains, what was lost.

use std::cmp::Ordering;
use std::fs::File;
use std::path::{Path, PathBuf};

use anstream::eprintln;
use anyhow::{Result, anyhow};
use traceweir::consumer::TraceFile;
use traceweir::session::SessionSummary;
use traceweir::{Error, LogFileMode, Status};
use traceweir_analysis::event::describes_file;
use traceweir_format::etl::Trace;

use super::is_private;
use crate::exit::CommandOutcome;
use crate::text::{escape, escape_path, format_count, format_number};

/// Files up to this size, and files of any size with only the newest events (circular logs,
/// snapshots), are read at the end of a session to count their events. The count may differ from
/// that of the session: another session may have started the file, or this session may have started
/// in another file.
const MAX_COUNTED_FILE_BYTES: u64 = 32 << 20;

/// The largest ring of a processor that an unprivileged daemon uses, without its control page.
const MAX_UNPRIVILEGED_RING_KIB: u64 = 4 << 10;

/// How a session ended.
#[derive(Debug)]
pub(crate) enum SessionEnd {
    /// By the stop request of this program.
    ByUs(SessionSummary),
    /// Before the stop request: at the size limit, by a failure, or by a request of another client.
    BeforeStop(SessionSummary),
    /// With the daemon that listened on this socket.
    WithDaemon(PathBuf),
}

/// Describes all losses except undelivered live events, by cause; `None` if nothing was lost.
pub(crate) fn describe_losses(summary: &SessionSummary) -> Option<String> {
    let losses = &summary.lost;
    let reason = if is_at_limit(summary) { "came after the file was full" } else { "could not be written" };
    let buffers = u64::from(summary.buffers_lost);
    let in_buffers = format!("in {} {reason}", format_count(buffers, "buffer"));
    let unwritten = if buffers > 0 { &in_buffers } else { reason };
    let overwritten = u64::from(summary.overwritten_buffers);
    let overwritten_reason = "of the file that another process truncated or overwrote";
    let in_overwritten = format!("in {} {overwritten_reason}", format_count(overwritten, "buffer"));
    let counted_losses = join_counts(&[
        (losses.no_room, "event", "without room, or too large"),
        (losses.not_written, "event", unwritten),
        (losses.damaged, "event", "in memory that its process damaged"),
        (losses.no_region, "event", "of processes that the session had no memory left for"),
        (losses.kernel, "kernel event", "found no room in the kernel's perf rings"),
        // Lost events of which the cause is unknown.
        (summary.events_lost.saturating_sub(losses.sum()), "event", ""),
        (if losses.not_written == 0 { buffers } else { 0 }, "buffer", reason),
        (losses.overwritten, "event", &in_overwritten),
        (if losses.overwritten == 0 { overwritten } else { 0 }, "buffer", overwritten_reason),
    ]);
    let processes = format_count(summary.uncounted_processes.into(), "process");
    let unknown = (summary.uncounted_processes > 0).then(|| format!("events of {processes}, count unknown"));
    let losses: Vec<String> = counted_losses.into_iter().chain(unknown).collect();
    (!losses.is_empty()).then(|| losses.join("; "))
}

/// Describes events and buffers that live consumers did not receive.
fn describe_undelivered(summary: &SessionSummary) -> Option<String> {
    join_counts(&[
        (summary.real_time_events_lost, "event", "reached no live consumer"),
        (u64::from(summary.real_time_buffers_lost), "buffer", "reached no live consumer"),
    ])
}

fn join_counts(parts: &[(u64, &str, &str)]) -> Option<String> {
    let nonzero = parts.iter().filter(|(n, ..)| *n > 0);
    let texts: Vec<_> = nonzero
        .map(|(n, noun, reason)| format!("{} {reason}", format_count(*n, noun)).trim_end().to_owned())
        .collect();
    if texts.is_empty() { None } else { Some(texts.join(", ")) }
}

/// Prints losses to standard error. Undelivered live events do not count as lost if no consumer was
/// connected.
pub(crate) fn report_losses(summary: &SessionSummary, is_watched: bool) -> CommandOutcome {
    let live = describe_undelivered(summary);
    if let (Some(live), false) = (&live, is_watched) {
        eprintln!("no consumer was connected: {live}");
    }
    let lost: Vec<_> = describe_losses(summary).into_iter().chain(live.filter(|_| is_watched)).collect();
    if lost.is_empty() {
        return CommandOutcome::Fine;
    }
    if lost.len() == 1 && has_only_late_losses(summary) {
        let events = format_count(summary.lost.not_written, "event");
        eprintln!(
            "warning: when the file was full, {events} in memory were lost, and later ones were not recorded; a larger --max-size keeps more, --circular the newest"
        );
        return CommandOutcome::EventsLost;
    }
    eprintln!("warning: lost: {}", lost.join(", "));
    if summary.lost.no_room > 0 {
        let [kib, max_buffers] =
            [summary.buffer_kib, summary.maximum_buffers].map(|count| format_number(count.into()));
        eprintln!(
            "hint: more or larger buffers lose less: the session had at most {max_buffers} of {kib} KiB (--max-buffers, --buffer-size); so do fewer events and stacks"
        );
    }
    if summary.lost.kernel > 0 {
        eprintln!("hint: {}", perf_ring_hint(summary));
    }
    if summary.lost.no_region > 0 {
        eprintln!(
            "warning: some processes are not in the trace: smaller buffers leave memory for more of them"
        );
    }
    if summary.uncounted_processes > 0 {
        eprintln!(
            "hint: these processes ended while they registered, got a late reply or no memory, or were disconnected; the daemon's log names them"
        );
    }
    CommandOutcome::EventsLost
}

/// Returns whether all losses are events that came after the file reached its size limit.
fn has_only_late_losses(summary: &SessionSummary) -> bool {
    is_at_limit(summary)
        && summary.events_lost > 0
        && summary.lost.not_written == summary.events_lost
        && summary.uncounted_processes == 0
        && summary.overwritten_buffers == 0
}

/// Describes how to lose fewer kernel events in perf rings. The size of perf rings depends on the
/// privileges of the daemon, which the summary does not contain, so the hint covers every daemon.
fn perf_ring_hint(summary: &SessionSummary) -> String {
    let [buffer_kib, maximum_buffers] =
        [summary.buffer_kib, summary.maximum_buffers].map(|count| format_number(count.into()));
    let largest_kib = MAX_UNPRIVILEGED_RING_KIB.saturating_add(rustix::param::page_size() as u64 >> 10);
    let unwind_hint = if summary.kernel_stack_bytes > 0 { "fewer bytes of --unwind, " } else { "" };
    format!(
        "larger perf rings lose less: those of a daemon with CAP_PERFMON grow with its buffers, which were at most \
         {maximum_buffers} of {buffer_kib} KiB (--max-buffers, --buffer-size); those of other daemons are limited by \
         kernel.perf_event_mlock_kb and ulimit -l (sudo sysctl kernel.perf_event_mlock_kb={largest_kib}, or record as root); \
         {unwind_hint}a longer --interval and fewer events lose less, too"
    )
}

/// Prints to standard error what the file of an ended session contains, why the session ended by
/// itself, and what was lost. Then returns an error if the file no longer exists.
pub(crate) fn print_summary(summary: &SessionSummary, is_watched: bool) -> Result<CommandOutcome> {
    let mut file_result = Ok(());
    match &summary.log_file {
        Some(file) if is_private(summary.mode) => print_private_summary(summary, file),
        Some(file) => file_result = print_file_summary(summary, file),
        None if summary.mode.contains(LogFileMode::BUFFERING) => {
            let events = format_count(summary.events, "event");
            eprintln!(
                "session {}: {events} collected; the session had no file, so they are discarded",
                escape(&summary.name)
            );
        }
        None => {
            eprintln!("session {}: {}", escape(&summary.name), format_count(summary.events, "event"))
        }
    }
    if is_at_limit(summary) {
        let bytes = summary.maximum_file_bytes.unwrap_or(0);
        let (limit, unit) =
            if is_limit_in_kib(summary) { (bytes >> 10, "KiB") } else { (bytes >> 20, "MiB") };
        eprintln!("the file reached its limit of {} {unit}", format_number(limit));
    }
    if let Some(status) = summary.end_status {
        eprintln!("warning: the session ended by itself: {status}");
    }
    if summary.overwritten_buffers > 0
        && let Some(file) = &summary.log_file
    {
        let name = escape_path(file);
        eprintln!("warning: another process truncated or overwrote {name} while it was recorded");
    }
    let outcome = report_losses(summary, is_watched);
    file_result?;
    Ok(if summary.overwritten_buffers > 0 { outcome.max(CommandOutcome::Damaged) } else { outcome })
}

/// Prints what a log file contains, which may be less than was collected.
fn print_file_summary(summary: &SessionSummary, file: &Path) -> Result<()> {
    let (name, collected) = (escape_path(file), format_count(summary.events, "event"));
    let Ok(metadata) = file.metadata() else {
        let reason =
            format!("{name} no longer exists: it was removed or renamed while {collected} were recorded");
        return Err(anyhow!(Error::refused(Status::ERROR_FILE_NOT_FOUND, reason)));
    };
    if summary.mode.contains(LogFileMode::NEWFILE) {
        match first_of_sequence(file).filter(|first| first != file) {
            Some(first) => eprintln!("{} to {name}: {collected} in all", escape_path(&first)),
            None => eprintln!("{name} is the last file of the sequence; {collected} collected in all"),
        }
        return Ok(());
    }
    let buffer_bytes = u64::from(summary.buffer_kib) << 10;
    let buffers_in_file = metadata.len() / buffer_bytes.max(1);
    let has_newest_only = summary.mode.contains(LogFileMode::BUFFERING)
        || (summary.mode.contains(LogFileMode::CIRCULAR)
            && buffers_in_file < u64::from(summary.buffers_written));
    // The memory of a flight recorder that was never half full has lost nothing.
    let has_free_memory = summary.mode.contains(LogFileMode::BUFFERING)
        && buffers_in_file.saturating_mul(2) < u64::from(summary.maximum_buffers);
    let buffers = if has_newest_only || summary.mode.contains(LogFileMode::APPEND) {
        buffers_in_file
    } else {
        u64::from(summary.buffers_written)
    };
    let size = format!("{}, {}", format_count(buffers, "buffer"), format_count(metadata.len(), "byte"));
    if !has_newest_only && metadata.len() > MAX_COUNTED_FILE_BYTES {
        let session = escape(&summary.name);
        eprintln!("session {session}: {collected} collected; its file {name} has {size}");
        return Ok(());
    }
    let lost_in_file = summary.lost.not_written.saturating_add(summary.lost.overwritten);
    let written = summary.events.saturating_sub(lost_in_file);
    let Some(events) = count_events(file) else {
        eprintln!("{collected} collected; {name} has {size}, but its events cannot be counted");
        return Ok(());
    };
    let contents = format!("{name}: {} in {size}", format_count(events, "event"));
    match events.cmp(&written) {
        Ordering::Equal => eprintln!("{contents}"),
        Ordering::Greater => {
            eprintln!("{contents}; this session has added {}", format_count(written, "event"))
        }
        Ordering::Less if has_free_memory => {
            let later = format_count(written.saturating_sub(events), "event");
            eprintln!("{contents}; {later} followed after they were written");
        }
        Ordering::Less if has_newest_only => eprintln!("{contents}; the newest of {collected} collected"),
        Ordering::Less => eprintln!("{contents}; the last file of a session that has collected {collected}"),
    }
    Ok(())
}

/// Returns the first file of the sequence that ends with `last`, if it still exists. The number may
/// be at any place in the name.
fn first_of_sequence(last: &Path) -> Option<PathBuf> {
    let name = last.file_name()?.to_str()?;
    let is_digit = |index: usize| name.as_bytes().get(index).is_some_and(u8::is_ascii_digit);
    let starts = (0..name.len()).rev().filter(|&at| is_digit(at) && (at == 0 || !is_digit(at - 1)));
    let mut candidates = starts.map(|start| {
        let end = (start..name.len()).find(|&at| !is_digit(at)).unwrap_or(name.len());
        last.with_file_name(format!("{}1{}", &name[..start], &name[end..]))
    });
    candidates.find(|file| file.exists())
}

/// Prints what the processes of a private session wrote: one file each, or none if no process took
/// part.
fn print_private_summary(summary: &SessionSummary, file: &Path) {
    let (session, name) = (escape(&summary.name), escape_path(file));
    if summary.buffers_written == 0 {
        eprintln!("session {session}: no process took part, so no file was written");
        return;
    }
    let collected = format_count(summary.events, "event");
    eprintln!("session {session}: {collected}, in {name} and, for each further process, {name}_PID");
}

/// Counts the events in a file, without those that describe the file; `None` if the file is
/// unreadable.
pub(crate) fn count_events(file: &Path) -> Option<u64> {
    let trace = Trace::open(TraceFile::from(File::open(file).ok()?)).ok()?;
    let mut events = trace.events();
    let mut count = 0;
    while let Some(record) = events.next().ok()? {
        count += u64::from(!describes_file(&record));
    }
    Some(count)
}

pub(super) fn is_limit_in_kib(summary: &SessionSummary) -> bool {
    summary.mode.contains(LogFileMode::USE_KBYTES_FOR_SIZE)
}

/// Returns whether a session ended at its size limit, which one more buffer would have exceeded.
pub(crate) fn is_at_limit(summary: &SessionSummary) -> bool {
    let continuing_modes = LogFileMode::CIRCULAR | LogFileMode::BUFFERING | LogFileMode::NEWFILE;
    let next_kib = (u64::from(summary.buffers_written) + 1) * u64::from(summary.buffer_kib);
    let is_full = summary.maximum_file_bytes.is_some_and(|limit| next_kib > limit >> 10);
    is_full && summary.end_status.is_none() && !summary.mode.intersects(continuing_modes)
}

/// Returns whether a session ended at its size limit or by a failure, not by a stop.
pub(crate) fn has_ended_by_itself(summary: &SessionSummary) -> bool {
    summary.end_status.is_some() || is_at_limit(summary)
}

/// States that a session had ended before it was stopped, and when.
pub(crate) fn describe_earlier_end(summary: &SessionSummary) -> String {
    format!("session {} had already ended by itself{}", escape(&summary.name), format_end_time(summary))
}

/// Returns the time at which the file of an ended session was finalised, to follow a verb.
fn format_end_time(summary: &SessionSummary) -> String {
    let time = summary.log_file.as_deref().and_then(finalised_time);
    time.map_or_else(String::new, |time| format!(" at {time}"))
}

/// Describes why a session ended that this program did not stop.
pub(crate) fn describe_end(summary: &SessionSummary) -> String {
    let time_text = format_end_time(summary);
    let name = escape(&summary.name);
    match summary.end_status.unwrap_or(Status::ERROR_SUCCESS) {
        Status::ERROR_SUCCESS if is_at_limit(summary) => {
            format!("session {name} ended{time_text}: its file reached its size limit")
        }
        Status::ERROR_SUCCESS => format!("session {name} was stopped{time_text}"),
        status => format!("session {name} ended by itself{time_text}: {status}"),
    }
}

/// Returns when a file was finalised; `None` if it was not.
pub(crate) fn finalised_time(file: &Path) -> Option<String> {
    let trace = Trace::open(TraceFile::from(File::open(file).ok()?)).ok()?;
    let end = trace.header().end_time;
    trace.is_finalised().then(|| end.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_loss_message_contains_perf_rings_and_their_limit() {
        let mut summary = SessionSummary::default();
        (summary.buffer_kib, summary.maximum_buffers, summary.kernel_stack_bytes) = (64, 512, 16 << 10);
        (summary.events_lost, summary.lost.kernel) = (306, 306);
        let text = describe_losses(&summary).unwrap();
        assert_eq!(text, "306 kernel events found no room in the kernel's perf rings");
        let hint = perf_ring_hint(&summary);
        for part in [
            "a daemon with CAP_PERFMON grow with its buffers, which were at most 512 of 64 KiB",
            "other daemons are limited by kernel.perf_event_mlock_kb and ulimit -l (sudo sysctl",
            "--unwind",
            "--interval",
        ] {
            assert!(hint.contains(part), "{hint}");
        }
    }

    #[test]
    fn late_losses_do_not_hide_others() {
        let mut summary = SessionSummary::default();
        (summary.buffer_kib, summary.buffers_written, summary.maximum_file_bytes) = (64, 2, Some(128 << 10));
        assert!(is_at_limit(&summary) && !has_only_late_losses(&summary), "nothing is lost");
        (summary.events_lost, summary.lost.not_written) = (3, 3);
        assert!(has_only_late_losses(&summary));
        for change in [
            |summary: &mut SessionSummary| summary.uncounted_processes = 1,
            |summary: &mut SessionSummary| summary.overwritten_buffers = 1,
            |summary: &mut SessionSummary| summary.events_lost = 4,
        ] {
            let mut changed = summary.clone();
            change(&mut changed);
            assert!(!has_only_late_losses(&changed), "{changed:?}");
        }
    }

    #[test]
    fn losses_of_unknown_size_are_reported_separately() {
        let mut summary = SessionSummary::default();
        summary.uncounted_processes = 2;
        assert_eq!(describe_losses(&summary).as_deref(), Some("events of 2 processes, count unknown"));
        (summary.events_lost, summary.lost.not_written) = (3, 3);
        let text = "3 events could not be written; events of 2 processes, count unknown";
        assert_eq!(describe_losses(&summary).as_deref(), Some(text));
        summary.uncounted_processes = 0;
        assert_eq!(describe_losses(&summary).as_deref(), Some("3 events could not be written"));
    }
}
