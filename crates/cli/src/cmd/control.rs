//! `weir stop`, `query`, `update`, `flush`, `increment`, `convert-to-realtime`: one request about a
//! running session.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::controller::Controller;
use traceweir::session::{ProviderInfo, SessionSummary};
use traceweir::{Error, LogFileMode, Status};

use super::answer::{self, Answer};
use crate::cli::{ConvertToRealtimeArgs, FlushArgs, IncrementArgs, OnOff, QueryArgs, StopArgs, UpdateArgs};
use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Waiting;
use crate::sessions::{self, KernelState, SessionState, connect_to_session};
use crate::text::{counted, grouped, plain, plain_path, shell};

/// Runs `weir stop`.
pub(super) fn stop(options: &StopArgs) -> Result<Answer> {
    let (controller, session) = connect_to_session(options.daemon_choice, &options.name)?;
    // Read before the session stops, because stopping disconnects its consumers.
    let is_watched = session.query().is_ok_and(|p| p.consumers > 0);
    let waiting = Waiting::new("stopping");
    let stopped = session.stop();
    drop(waiting);
    match stopped {
        Ok(stopped) => {
            let (outcome, failure) = match sessions::print_summary(&stopped, is_watched) {
                Ok(outcome) => (outcome, None),
                Err(error) => (Outcome::Fine, Some(error)),
            };
            Ok(Answer { failure, ..Answer::ended(stopped, outcome) })
        }
        Err(error) => {
            if let Some(ended) = outcome(&controller, &options.name, &error) {
                sessions::print_summary(&ended, false)?;
                return Err(already_ended(&ended));
            }
            Err(error).with_context(|| about("stop", &options.name))
        }
    }
}

/// Runs `weir query`. With `--json` it always prints an object: the session, or the error.
pub(super) fn query(options: &QueryArgs) -> Result<Outcome> {
    let (mut controller, session) = match connect_to_session(options.daemon_choice, &options.name) {
        Ok(found) => found,
        Err(error) => return answer::print(options.json, Err(error)),
    };
    match session.query() {
        Ok(summary) => {
            let providers = controller.providers()?;
            let kernel = KernelState::query(&mut controller, &session);
            show(&summary, SessionState::Running, &providers, kernel.as_ref(), options.json)?;
            Ok(Outcome::Fine)
        }
        Err(error) => {
            if let Some(ended) = outcome(&controller, &options.name, &error) {
                show(&ended, SessionState::Ended, &[], None, options.json)?;
                return Err(already_ended(&ended));
            }
            let failed = Err(error).with_context(|| about("query", &options.name));
            answer::print(options.json, failed)
        }
    }
}

fn show(
    p: &SessionSummary,
    state: SessionState,
    providers: &[ProviderInfo],
    kernel: Option<&KernelState>,
    as_json: bool,
) -> Result<()> {
    let text = if as_json {
        sessions::format_json(p, state, providers, kernel) + "\n"
    } else {
        sessions::format_page(p, state, providers, kernel)
    };
    let mut output = Output::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()
}

/// Returns the final state of a session, if `error` means that it has ended.
fn outcome(controller: &Controller, name: &str, error: &Error) -> Option<SessionSummary> {
    sessions::is_gone(error).then(|| controller.session(name).outcome().ok()).flatten()
}

fn already_ended(ended: &SessionSummary) -> anyhow::Error {
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, sessions::describe_end(ended)).into()
}

/// Runs `weir flush`.
pub(super) fn flush(options: &FlushArgs) -> Result<Answer> {
    let (_, session) = connect_to_session(options.daemon_choice, &options.name)?;
    let flushed = match absolute(options.output.as_ref())? {
        Some(file) => session.snapshot(file),
        None => session.flush(),
    };
    let flushed = flushed.with_context(|| about("flush", &options.name))?;
    let (name, events) = (plain(&options.name), counted(flushed.events, "event"));
    match &options.output {
        Some(file) => {
            let written = sessions::count_events(file).map(|n| counted(n, "event"));
            let written = written.unwrap_or_else(|| "a snapshot".to_owned());
            eprintln!("{}: {written}; session {name} has collected {events}", plain_path(file));
        }
        None => {
            let buffers = counted(u64::from(flushed.buffers_written), "buffer");
            eprintln!("session {name}: {events} so far, {buffers} written");
        }
    }
    Ok(Answer::running(flushed))
}

/// Runs `weir update`.
pub(super) fn update(options: &UpdateArgs) -> Result<Answer> {
    let (mut controller, session) = connect_to_session(options.daemon_choice, &options.name)?;
    let flush_timer = options.flush_timer.filter(|seconds| *seconds != 0);
    let log_file = absolute(options.output.as_ref())?;
    let about_it = || about("update", &options.name);
    sessions::change_kernel(&mut controller, &session, &options.kernel).with_context(about_it)?;
    let is_changed = flush_timer.is_some()
        || options.max_buffers.is_some()
        || options.real_time.is_some()
        || log_file.is_some();
    let mut update = session.update();
    if let Some(seconds) = flush_timer {
        update = update.flush_timer(Duration::from_secs(seconds.into()));
    }
    if let Some(buffers) = options.max_buffers {
        update = update.maximum_buffers(buffers);
    }
    if let Some(switch) = options.real_time {
        update = update.real_time(switch == OnOff::On);
    }
    if let Some(file) = log_file {
        update = update.log_file(file);
    }
    let now = if is_changed { update.apply() } else { session.query() }.with_context(about_it)?;
    let kernel = KernelState::query(&mut controller, &session);
    eprintln!("session {} now: {}", plain(&options.name), format_settings(&now, kernel.as_ref()));
    if let Some(reason) = options.max_buffers.and_then(|asked| buffer_count_note(asked, &now)) {
        eprintln!("note: {reason}");
    }
    if options.flush_timer == Some(0) || options.max_buffers == Some(0) {
        eprintln!("note: 0 leaves a value as it is");
    }
    Ok(Answer::running(now))
}

/// Formats the settings that an update can change.
fn format_settings(p: &SessionSummary, kernel: Option<&KernelState>) -> String {
    let live = if p.mode.contains(LogFileMode::REAL_TIME) { "on" } else { "off" };
    let mut settings = format!(
        "flush timer {} s, at most {}, real-time {live}",
        p.flush_timer.as_secs(),
        counted(p.maximum_buffers.into(), "buffer")
    );
    if p.mode.contains(LogFileMode::BUFFERING) {
        let kib = u64::from(p.maximum_buffers).saturating_mul(u64::from(p.buffer_kib));
        settings = format!("{settings}, keeps the newest {} KiB", grouped(kib));
    }
    if let Some(file) = &p.log_file {
        settings = format!("{settings}, writes {}", plain_path(file));
    }
    if let Some(kernel) = kernel {
        settings = format!("{settings}, {}", kernel.format_summary());
    }
    settings
}

/// Explains why the number of buffers differs from the one asked for.
fn buffer_count_note(asked: u32, now: &SessionSummary) -> Option<String> {
    let most = now.maximum_buffers;
    let buffers = counted(most.into(), "buffer");
    match asked.cmp(&most) {
        // 0 asks for no change.
        _ if asked == 0 => None,
        Ordering::Equal => None,
        _ if now.mode.contains(LogFileMode::BUFFERING) => Some(format!(
            "a flight recorder keeps the number of buffers it started with (--min-buffers): {buffers}, not {asked}"
        )),
        Ordering::Less => {
            Some(format!("a session keeps at least the buffers it started with: {buffers}, not {asked}"))
        }
        Ordering::Greater => Some(format!("memory allows {buffers}, not {asked}")),
    }
}

/// Runs `weir increment`.
pub(super) fn increment(options: &IncrementArgs) -> Result<Answer> {
    let (_, session) = connect_to_session(options.daemon_choice, &options.name)?;
    let about = || format!("cannot switch to the next file of session {}", plain(&options.name));
    let finished = session.query().with_context(about)?.log_file;
    let about_file = || match &finished {
        Some(file) => format!("{} after {}", about(), plain_path(file)),
        None => about(),
    };
    let now = session.next_file().with_context(about_file)?;
    let shown = |file: Option<PathBuf>| file.as_deref().map_or_else(|| "a file".to_owned(), plain_path);
    let (name, finished, next) = (plain(&options.name), shown(finished), shown(now.log_file.clone()));
    eprintln!("{finished} is finished; session {name} continues in {next}");
    Ok(Answer::running(now))
}

/// Runs `weir convert-to-realtime`.
pub(super) fn convert(options: &ConvertToRealtimeArgs) -> Result<Answer> {
    let (_, session) = connect_to_session(options.daemon_choice, &options.name)?;
    let about = || about("convert", &options.name);
    let file = session.query().with_context(about)?.log_file;
    let now = session.convert_to_real_time().with_context(about)?;
    let (name, events) = (plain(&options.name), counted(now.events, "event"));
    let finished = file.map_or_else(String::new, |file| format!("{} is finished; ", plain_path(&file)));
    eprintln!(
        "{finished}session {name}: {events} so far, live from now on (weir watch {})",
        shell(&options.name)
    );
    Ok(Answer::running(now))
}

fn absolute(path: Option<&PathBuf>) -> Result<Option<PathBuf>> {
    path.map(std::path::absolute).transpose().context("cannot resolve the current directory")
}

fn about(verb: &str, session: &str) -> String {
    format!("cannot {verb} session {}", plain(session))
}
