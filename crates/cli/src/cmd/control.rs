//! `weir stop`, `query`, `update`, `flush`, `increment`, `convert-to-realtime`: one request about a
//! running session.

use std::cmp::Ordering;
use std::path::PathBuf;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::controller::{Controller, Properties, ProviderEntry, SessionRef, Update as Change};
use traceweir::{Error, Status};
use traceweir_format::spec::session::{EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_REAL_TIME_MODE};

use super::answer::{self, Answer};
use crate::cli::{ConvertToRealtime, Flush, Increment, Query, Stop, Switch, Update};
use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Waiting;
use crate::sessions::{self, KernelState, SessionState, controller_of};
use crate::text::{counted, grouped, plain, plain_path, shell};

/// Runs `weir stop`.
pub(super) fn stop(options: &Stop) -> Result<Answer> {
    let (mut controller, session) = controller_of(options.daemon_choice, &options.name)?;
    // Read before the session stops, because stopping disconnects its consumers.
    let is_watched = controller.query(&session).is_ok_and(|p| p.consumers > 0);
    let waiting = Waiting::new("stopping");
    let stopped = controller.stop(&session);
    drop(waiting);
    match stopped {
        Ok(stopped) => {
            let (outcome, failure) = match sessions::summarise(&stopped, is_watched) {
                Ok(outcome) => (outcome, None),
                Err(error) => (Outcome::Fine, Some(error)),
            };
            Ok(Answer { failure, ..Answer::ended(stopped, outcome) })
        }
        Err(error) => {
            if let Some(ended) = outcome(&mut controller, &session, &error) {
                sessions::summarise(&ended, false)?;
                return Err(already_ended(&ended));
            }
            Err(error).with_context(|| about("stop", &options.name))
        }
    }
}

/// Runs `weir query`. With `--json` it always prints an object: the session, or the error.
pub(super) fn query(options: &Query) -> Result<Outcome> {
    let (mut controller, session) = match controller_of(options.daemon_choice, &options.name) {
        Ok(found) => found,
        Err(error) => return answer::print(options.json, Err(error)),
    };
    match controller.query(&session) {
        Ok(properties) => {
            let providers = controller.providers()?;
            let kernel = KernelState::query(&mut controller, &session);
            show(&properties, SessionState::Running, &providers, kernel.as_ref(), options.json)?;
            Ok(Outcome::Fine)
        }
        Err(error) => {
            if let Some(ended) = outcome(&mut controller, &session, &error) {
                show(&ended, SessionState::Ended, &[], None, options.json)?;
                return Err(already_ended(&ended));
            }
            let failed = Err(error).with_context(|| about("query", &options.name));
            answer::print(options.json, failed)
        }
    }
}

fn show(
    p: &Properties,
    state: SessionState,
    providers: &[ProviderEntry],
    kernel: Option<&KernelState>,
    as_json: bool,
) -> Result<()> {
    let text = if as_json {
        sessions::json(p, state, providers, kernel) + "\n"
    } else {
        sessions::page(p, state, providers, kernel)
    };
    let mut output = Output::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()
}

/// Returns the final state of a session, if `error` means that it has ended.
fn outcome(controller: &mut Controller, session: &SessionRef, error: &Error) -> Option<Properties> {
    sessions::is_gone(error).then(|| controller.outcome(session).ok()).flatten()
}

fn already_ended(ended: &Properties) -> anyhow::Error {
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, sessions::why_ended(ended)).into()
}

/// Runs `weir flush`.
pub(super) fn flush(options: &Flush) -> Result<Answer> {
    let (mut controller, session) = controller_of(options.daemon_choice, &options.name)?;
    let file = absolute(options.output.as_ref())?;
    let flushed = controller.flush(&session, file).with_context(|| about("flush", &options.name))?;
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
pub(super) fn update(options: &Update) -> Result<Answer> {
    let (mut controller, session) = controller_of(options.daemon_choice, &options.name)?;
    let update = Change {
        flush_timer: options.flush_timer.filter(|seconds| *seconds != 0),
        maximum_buffers: options.max_buffers,
        real_time: options.real_time.map(|switch| switch == Switch::On),
        log_file: absolute(options.output.as_ref())?,
        enable_flags: None,
    };
    let about_it = || about("update", &options.name);
    sessions::change_kernel(&mut controller, &session, &options.kernel).with_context(about_it)?;
    let now = if update == Change::default() {
        controller.query(&session).with_context(about_it)?
    } else {
        controller.update(&session, &update).with_context(about_it)?
    };
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
fn format_settings(p: &Properties, kernel: Option<&KernelState>) -> String {
    let c = &p.config;
    let live = if c.log_file_mode & EVENT_TRACE_REAL_TIME_MODE != 0 { "on" } else { "off" };
    let mut settings = format!(
        "flush timer {} s, at most {}, real-time {live}",
        c.flush_timer,
        counted(c.maximum_buffers.into(), "buffer")
    );
    if c.log_file_mode & EVENT_TRACE_BUFFERING_MODE != 0 {
        let kib = u64::from(c.maximum_buffers).saturating_mul(u64::from(c.buffer_size));
        settings = format!("{settings}, keeps the newest {} KiB", grouped(kib));
    }
    if let Some(file) = &c.log_file {
        settings = format!("{settings}, writes {}", plain_path(file));
    }
    if let Some(kernel) = kernel {
        settings = format!("{settings}, {}", kernel.summary());
    }
    settings
}

/// Explains why the number of buffers differs from the one asked for.
fn buffer_count_note(asked: u32, now: &Properties) -> Option<String> {
    let most = now.config.maximum_buffers;
    let buffers = counted(most.into(), "buffer");
    match asked.cmp(&most) {
        // 0 asks for no change.
        _ if asked == 0 => None,
        Ordering::Equal => None,
        _ if now.config.log_file_mode & EVENT_TRACE_BUFFERING_MODE != 0 => Some(format!(
            "a flight recorder keeps the number of buffers it started with (--min-buffers): {buffers}, not {asked}"
        )),
        Ordering::Less => {
            Some(format!("a session keeps at least the buffers it started with: {buffers}, not {asked}"))
        }
        Ordering::Greater => Some(format!("memory allows {buffers}, not {asked}")),
    }
}

/// Runs `weir increment`.
pub(super) fn increment(options: &Increment) -> Result<Answer> {
    let (mut controller, session) = controller_of(options.daemon_choice, &options.name)?;
    let about = || format!("cannot switch to the next file of session {}", plain(&options.name));
    let finished = controller.query(&session).with_context(about)?.config.log_file;
    let about_file = || match &finished {
        Some(file) => format!("{} after {}", about(), plain_path(file)),
        None => about(),
    };
    let now = controller.increment(&session).with_context(about_file)?;
    let shown = |file: Option<PathBuf>| file.as_deref().map_or_else(|| "a file".to_owned(), plain_path);
    let (name, finished, next) = (plain(&options.name), shown(finished), shown(now.config.log_file.clone()));
    eprintln!("{finished} is finished; session {name} continues in {next}");
    Ok(Answer::running(now))
}

/// Runs `weir convert-to-realtime`.
pub(super) fn convert(options: &ConvertToRealtime) -> Result<Answer> {
    let (mut controller, session) = controller_of(options.daemon_choice, &options.name)?;
    let about = || about("convert", &options.name);
    let file = controller.query(&session).with_context(about)?.config.log_file;
    let now = controller.convert_to_real_time(&session).with_context(about)?;
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
