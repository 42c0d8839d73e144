//! What is said about a session: how it ended, what its file holds, what was lost.

use std::cmp::Ordering;
use std::fs::File;
use std::path::{Path, PathBuf};

use anstream::eprintln;
use anyhow::{Result, anyhow};
use traceweir::consumer::TraceFile;
use traceweir::controller::{Properties, SessionConfig};
use traceweir::{Error, Status};
use traceweir_format::etl::Trace;
use traceweir_format::header::Record;
use traceweir_format::logfile::{END_GROUP_MASKS_HOOK, RUNDOWN_COMPLETE_HOOK};
use traceweir_format::spec::event::class;
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE as BUFFERING, EVENT_TRACE_FILE_MODE_APPEND as APPEND,
    EVENT_TRACE_FILE_MODE_CIRCULAR as CIRCULAR, EVENT_TRACE_FILE_MODE_NEWFILE as NEWFILE,
    EVENT_TRACE_USE_KBYTES_FOR_SIZE as KBYTES,
};

use super::is_private;
use crate::cmd::{counted, grouped};
use crate::exit::Outcome;
use crate::export::{plain, plain_path};

/// Files up to this size are read at the end of a session to say what is in them: another session may have begun the file, or the session have
/// begun in another one.
const COUNTED_BYTES: u64 = 32 << 20;

/// The largest ring of a processor that a daemon without privilege takes, without its control page.
const LARGEST_OWN_RING_KIB: u64 = 4 << 10;

/// How a session came to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// When it was asked to.
    ByUs(Properties),
    /// Before: at its limit, by a failure, or because somebody else stopped it.
    Before(Properties),
    /// With its daemon, whose socket this was.
    WithDaemon(PathBuf),
}

/// Everything that was lost on the way to the session's buffers and file, by cause; `None` where nothing was.
pub(crate) fn losses(p: &Properties) -> Option<String> {
    let cause = &p.lost_by_cause;
    let why = if is_at_limit(p) { "came after the file was full" } else { "could not be written" };
    let buffers = u64::from(p.log_buffers_lost);
    let in_buffers = format!("in {} {why}", counted(buffers, "buffer"));
    let unwritten = if buffers > 0 { &in_buffers } else { why };
    let overwritten = u64::from(p.overwritten_buffers);
    let why_overwritten = "of the file that another process truncated or overwrote";
    let in_overwritten = format!("in {} {why_overwritten}", counted(overwritten, "buffer"));
    let numbered = list_of(&[
        (cause.no_room, "event", "found no room or were too large"),
        (cause.not_written, "event", unwritten),
        (cause.damaged, "event", "in memory that its process damaged"),
        (cause.no_region, "event", "of processes that the session had no memory left for"),
        (cause.kernel, "kernel event", "found no room in the kernel's perf rings"),
        (p.events_lost.saturating_sub(cause.sum()), "event", ""),
        (if cause.not_written == 0 { buffers } else { 0 }, "buffer", why),
        (cause.overwritten, "event", &in_overwritten),
        (if cause.overwritten == 0 { overwritten } else { 0 }, "buffer", why_overwritten),
    ]);
    let processes = counted(p.uncounted_processes.into(), "process");
    let unknown = (p.uncounted_processes > 0).then(|| format!("events of {processes}, count unknown"));
    let all: Vec<String> = numbered.into_iter().chain(unknown).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Everything that live consumers did not get.
fn undelivered(p: &Properties) -> Option<String> {
    list_of(&[
        (p.real_time_events_lost, "event", "reached no live consumer"),
        (u64::from(p.real_time_buffers_lost), "buffer", "reached no live consumer"),
    ])
}

fn list_of(parts: &[(u64, &str, &str)]) -> Option<String> {
    let some = parts.iter().filter(|(n, ..)| *n > 0);
    let some: Vec<_> =
        some.map(|(n, what, why)| format!("{} {why}", counted(*n, what)).trim_end().to_owned()).collect();
    if some.is_empty() { None } else { Some(some.join(", ")) }
}

/// Says on standard error what was lost. What nobody was there to see live is no loss.
pub(crate) fn tell_loss(p: &Properties, is_watched: bool) -> Outcome {
    let live = undelivered(p);
    if let (Some(live), false) = (&live, is_watched) {
        eprintln!("nobody was watching: {live}");
    }
    let lost: Vec<_> = losses(p).into_iter().chain(live.filter(|_| is_watched)).collect();
    if lost.is_empty() {
        return Outcome::Fine;
    }
    eprintln!("warning: lost: {}", lost.join(", "));
    if p.lost_by_cause.no_room > 0 {
        let (kib, most) = (p.config.buffer_size, p.config.maximum_buffers);
        eprintln!(
            "hint: more or larger buffers lose less: it had at most {most} of {kib} KiB (--max-buffers, --buffer-size); so do fewer events and stacks"
        );
    }
    if p.lost_by_cause.kernel > 0 {
        eprintln!("hint: {}", perf_ring_hint(p));
    }
    if p.lost_by_cause.no_region > 0 {
        eprintln!("warning: some processes are missing: smaller buffers leave memory for more of them");
    }
    if p.uncounted_processes > 0 {
        eprintln!(
            "hint: these processes ended while they registered, were answered too late, got no memory or were disconnected; the daemon's log names them"
        );
    }
    Outcome::EventsLost
}

/// How to lose fewer kernel events in perf rings. Their size depends on the rights of the daemon, which properties do not
/// contain: the hint is true for any daemon.
fn perf_ring_hint(p: &Properties) -> String {
    let SessionConfig { buffer_size, maximum_buffers, stack_bytes, .. } = p.config;
    let largest_kib = LARGEST_OWN_RING_KIB.saturating_add(rustix::param::page_size() as u64 >> 10);
    let copies = if stack_bytes > 0 { "fewer bytes of --unwind, " } else { "" };
    format!(
        "larger perf rings lose less: those of a daemon with CAP_PERFMON grow with its buffers, which were at most \
         {maximum_buffers} of {buffer_size} KiB (--max-buffers, --buffer-size); those of other daemons are limited by \
         kernel.perf_event_mlock_kb and ulimit -l (sudo sysctl kernel.perf_event_mlock_kb={largest_kib}, or record as root); \
         {copies}a longer --interval and fewer events lose less, too"
    )
}

/// Prints on standard error how a session ended: what its file holds, why it ended where it did so by itself, what was
/// lost. A file that is no longer there is an error, after all else is printed.
pub(crate) fn summarise(p: &Properties, is_watched: bool) -> Result<Outcome> {
    let mut file_found = Ok(());
    match &p.config.log_file {
        Some(file) if is_private(&p.config) => tell_private(p, file),
        Some(file) => file_found = tell_file(p, file),
        None if has(p, BUFFERING) => {
            let events = counted(p.events, "event");
            eprintln!(
                "session {}: {events} collected; without a file they are gone with it",
                plain(&p.config.name)
            );
        }
        None => eprintln!("session {}: {}", plain(&p.config.name), counted(p.events, "event")),
    }
    if is_at_limit(p) {
        let (limit, unit) = (p.config.maximum_file_size, if counts_kib(p) { "KiB" } else { "MiB" });
        eprintln!("the file reached its limit of {limit} {unit}");
    }
    if p.end_status != 0 {
        eprintln!("warning: the session ended by itself: {}", Status(p.end_status));
    }
    if p.overwritten_buffers > 0
        && let Some(file) = &p.config.log_file
    {
        let name = plain_path(file);
        eprintln!("warning: another process truncated or overwrote {name} while it was recorded");
    }
    let outcome = tell_loss(p, is_watched);
    file_found?;
    Ok(if p.overwritten_buffers > 0 { outcome.max(Outcome::Damaged) } else { outcome })
}

/// What a log file holds, which may be less than was collected.
fn tell_file(p: &Properties, file: &Path) -> Result<()> {
    let (name, collected) = (plain_path(file), counted(p.events, "event"));
    let Ok(metadata) = file.metadata() else {
        let why = format!(
            "{name} is not there any more: it was removed or renamed while {collected} were recorded"
        );
        return Err(anyhow!(Error::refused(Status::ERROR_FILE_NOT_FOUND, why)));
    };
    if has(p, NEWFILE) {
        eprintln!("{name} is the last file of its row; {collected} collected in all");
        return Ok(());
    }
    let buffer = u64::from(p.config.buffer_size) << 10;
    let there = metadata.len() / buffer.max(1);
    let is_part = has(p, BUFFERING) || (has(p, CIRCULAR) && there < u64::from(p.buffers_written));
    let buffers = if is_part || has(p, APPEND) { there } else { u64::from(p.buffers_written) };
    let size = format!("{}, {} bytes", counted(buffers, "buffer"), grouped(metadata.len()));
    if !is_part && metadata.len() > COUNTED_BYTES {
        let session = plain(&p.config.name);
        eprintln!("session {session}: {collected} collected; its file {name} has {size}");
        return Ok(());
    }
    let gone = p.lost_by_cause.not_written.saturating_add(p.lost_by_cause.overwritten);
    let written = p.events.saturating_sub(gone);
    let Some(events) = count_events(file) else {
        eprintln!("of {collected} collected, {name} keeps the newest: {size}");
        return Ok(());
    };
    let holds = format!("{name}: {} in {size}", counted(events, "event"));
    match events.cmp(&written) {
        Ordering::Equal => eprintln!("{holds}"),
        Ordering::Greater => eprintln!("{holds}; this session has added {}", counted(written, "event")),
        Ordering::Less if is_part => eprintln!("{holds}; the newest of {collected} collected"),
        Ordering::Less => eprintln!("{holds}; the last file of a session that has collected {collected}"),
    }
    Ok(())
}

/// What the processes of a private session have written: each a file of its own, or none where nobody took part.
fn tell_private(p: &Properties, file: &Path) {
    let (session, name) = (plain(&p.config.name), plain_path(file));
    if p.buffers_written == 0 {
        eprintln!("session {session}: nobody took part, so no file was written");
        return;
    }
    let collected = counted(p.events, "event");
    eprintln!("session {session}: {collected}, in {name} and, for each further process, {name}_PID");
}

/// Events in a file, those of the session itself left out; `None` where it cannot be read.
pub(crate) fn count_events(file: &Path) -> Option<u64> {
    let trace = Trace::open(TraceFile::from(File::open(file).ok()?)).ok()?;
    let mut events = trace.events();
    let mut count = 0;
    while let Some(record) = events.next().ok()? {
        count += u64::from(record.provider() != class::EVENT_TRACE || is_captured(&record));
    }
    Some(count)
}

/// Whether an event about the trace itself was captured, and so counted, as kernel events are: where their rundown at the start ends, and which groups there were at the
/// end. All others are written by the session along with its file.
fn is_captured(record: &Record<'_>) -> bool {
    record.hook().is_some_and(|hook| [RUNDOWN_COMPLETE_HOOK, END_GROUP_MASKS_HOOK].contains(&hook))
}

/// Whether the session has this bit of LogFileMode.
pub(super) fn has(p: &Properties, mode: u32) -> bool {
    p.config.log_file_mode & mode != 0
}

/// Whether its size limit is in KiB.
pub(super) fn counts_kib(p: &Properties) -> bool {
    has(p, KBYTES)
}

/// Whether one more buffer would have been too much for the file.
pub(crate) fn is_at_limit(p: &Properties) -> bool {
    let limit = u64::from(p.config.maximum_file_size) << if counts_kib(p) { 0 } else { 10 };
    let next = (u64::from(p.buffers_written) + 1) * u64::from(p.config.buffer_size);
    limit > 0 && next > limit && p.end_status == 0 && !has(p, CIRCULAR | BUFFERING | NEWFILE)
}

/// Why a session is no longer there that nobody here has stopped.
pub(crate) fn why_ended(p: &Properties) -> String {
    let when =
        p.config.log_file.as_deref().and_then(end_of).map_or_else(String::new, |at| format!(" at {at}"));
    let name = plain(&p.config.name);
    match Status(p.end_status) {
        Status::ERROR_SUCCESS if is_at_limit(p) => {
            format!("session {name} ended{when}: its file reached its size")
        }
        Status::ERROR_SUCCESS => format!("session {name} was stopped{when}"),
        status => format!("session {name} ended by itself{when}: {status}"),
    }
}

/// When a file was finalised; `None` where it was not.
pub(crate) fn end_of(file: &Path) -> Option<String> {
    let trace = Trace::open(TraceFile::from(File::open(file).ok()?)).ok()?;
    let end = trace.header().end_time;
    trace.is_finalised().then(|| end.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir::controller::LostByCause;

    #[test]
    fn kernel_loss_names_perf_rings_and_their_limit() {
        let config = SessionConfig {
            buffer_size: 64,
            maximum_buffers: 512,
            stack_bytes: 16 << 10,
            ..SessionConfig::default()
        };
        let lost_by_cause = LostByCause { kernel: 306, ..LostByCause::default() };
        let p = Properties { config, events_lost: 306, lost_by_cause, ..Properties::default() };
        let told = losses(&p).unwrap();
        assert_eq!(told, "306 kernel events found no room in the kernel's perf rings");
        let hint = perf_ring_hint(&p);
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
    fn losses_of_unknown_size_are_reported_apart() {
        let mut p = Properties { uncounted_processes: 2, ..Properties::default() };
        assert_eq!(losses(&p).as_deref(), Some("events of 2 processes, count unknown"));
        (p.events_lost, p.lost_by_cause.not_written) = (3, 3);
        let text = "3 events could not be written; events of 2 processes, count unknown";
        assert_eq!(losses(&p).as_deref(), Some(text));
        p.uncounted_processes = 0;
        assert_eq!(losses(&p).as_deref(), Some("3 events could not be written"));
    }
}
