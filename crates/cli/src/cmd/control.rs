//! `weir stop`, `query`, `update` and `flush`: one request about a session. `increment` and
//! `convert-to-realtime` are older forms of `update --next-file` and `update --to-real-time`.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::session::{ProviderInfo, SessionSummary};
use traceweir::{Error, LogFileMode, Status};

use super::command_result::{self, CommandResult};
use crate::cli::{DaemonChoice, FlushArgs, OnOff, QueryArgs, StopArgs, UpdateArgs};
use crate::existing_output::MovedTrace;
use crate::exit::{CommandOutcome, with_hint};
use crate::output::print_text;
use crate::own_command::own_command;
use crate::progress::WaitLine;
use crate::sessions::{self, FoundSession, KernelState, SessionState, connect_to_session, find_session};
use crate::text::{escape, escape_path, format_count, format_number, quote_for_shell, quote_path_for_shell};

/// Exit status of `weir query` for a session that has ended.
const NOT_RUNNING: u8 = 1;

/// The session that a request is about.
#[derive(Clone, Copy)]
pub(super) struct SessionTarget<'a> {
    pub(super) name: &'a str,
    pub(super) daemon_choice: DaemonChoice,
}

pub(super) fn stop(options: &StopArgs) -> Result<CommandResult> {
    let (mut controller, session) = connect_to_session(options.daemon_choice, &options.name)?;
    // Read before the session stops, because stopping disconnects its consumers.
    let is_watched = session.query().is_ok_and(|summary| summary.consumers > 0);
    let waiting = WaitLine::new("stopping");
    let stopped = session.stop();
    drop(waiting);
    match stopped {
        Ok(stopped) => {
            // It ended by itself while this program stopped it.
            if sessions::has_ended_by_itself(&stopped) {
                sessions::dismiss_ended(&controller, &stopped);
            }
            let result = summarise(stopped, is_watched);
            print_next_command(&result);
            Ok(result)
        }
        Err(error) if sessions::is_gone(&error) => match controller.session(&options.name).outcome() {
            // The refused stop has removed the session from the list of ended sessions.
            Ok(ended) if sessions::has_ended_by_itself(&ended) => {
                eprintln!("{}", sessions::describe_earlier_end(&ended));
                Ok(summarise(ended, false))
            }
            _ => Err(sessions::missing_session_error(&mut controller, &options.name))
                .with_context(|| format_context("stop", &options.name)),
        },
        Err(error) => Err(error).with_context(|| format_context("stop", &options.name)),
    }
}

/// Prints the command that shows the trace of a stopped session.
fn print_next_command(result: &CommandResult) {
    let Some((session, _)) = &result.session else { return };
    let file = session.log_file.as_ref().filter(|file| !sessions::is_private(session.mode) && file.exists());
    if let Some(file) = file {
        eprintln!("next: {} dump {}", own_command(), quote_path_for_shell(file));
    }
}

/// Prints how a session ended, and returns the result of the command.
fn summarise(ended: SessionSummary, is_watched: bool) -> CommandResult {
    let (outcome, failure) = match sessions::print_summary(&ended, is_watched) {
        Ok(outcome) => (outcome, None),
        // The session has ended; only the output failed.
        Err(error) => (CommandOutcome::Fine, Some(error)),
    };
    CommandResult { failure, ..CommandResult::for_ended(ended, outcome) }
}

/// Runs `weir query`. With `--json` it prints one object: the session, or the error.
pub(super) fn query(options: &QueryArgs) -> Result<CommandOutcome> {
    let (mut controller, session) = match connect_to_session(options.daemon_choice, &options.name) {
        Ok(connection) => connection,
        Err(error) => return command_result::print_result(options.json, Err(error)),
    };
    match session.query() {
        Ok(summary) => {
            let providers = controller.providers()?;
            let kernel = KernelState::query(&mut controller, &session);
            print_session(&summary, SessionState::Running, &providers, kernel.as_ref(), options.json)?;
            Ok(CommandOutcome::Fine)
        }
        Err(error) if sessions::is_gone(&error) => {
            if let Ok(ended) = controller.session(&options.name).outcome() {
                print_session(&ended, SessionState::Ended, &[], None, options.json)?;
                if options.json {
                    return Err(already_ended_error(&ended));
                }
                sessions::dismiss_ended(&controller, &ended);
                eprintln!("note: {}; these were its last values", sessions::describe_end(&ended));
                return Ok(CommandOutcome::Status(NOT_RUNNING));
            }
            let failed = Err(sessions::missing_session_error(&mut controller, &options.name));
            command_result::print_result(
                options.json,
                failed.with_context(|| format_context("query", &options.name)),
            )
        }
        Err(error) => {
            let failed = Err(error).with_context(|| format_context("query", &options.name));
            command_result::print_result(options.json, failed)
        }
    }
}

fn print_session(
    summary: &SessionSummary,
    state: SessionState,
    providers: &[ProviderInfo],
    kernel: Option<&KernelState>,
    as_json: bool,
) -> Result<()> {
    let text = if as_json {
        sessions::format_json(summary, state, providers, kernel) + "\n"
    } else {
        sessions::format_page(summary, state, providers, kernel)
    };
    print_text(&text)
}

fn already_ended_error(ended: &SessionSummary) -> anyhow::Error {
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, sessions::describe_end(ended)).into()
}

pub(super) fn flush(options: &FlushArgs) -> Result<CommandResult> {
    let context = || format_context("flush", &options.name);
    let FoundSession { mut controller, session, .. } =
        find_session(options.daemon_choice, &options.name).with_context(context)?;
    let flushed = match make_absolute(options.output.as_ref())? {
        Some(file) => {
            let moved = sessions::make_room(&mut controller, &file, options.force)?;
            let flushed = session.snapshot(file).with_context(context)?;
            moved.keep();
            flushed
        }
        None => session.flush().with_context(context)?,
    };
    let (name, events) = (escape(&options.name), format_count(flushed.events, "event"));
    match &options.output {
        Some(file) => {
            let written = sessions::count_events(file).map(|n| format_count(n, "event"));
            let written = written.unwrap_or_else(|| "a snapshot".to_owned());
            eprintln!("{}: {written}; session {name} has collected {events}", escape_path(file));
        }
        None => {
            let buffers = format_count(u64::from(flushed.buffers_written), "buffer");
            eprintln!("session {name}: {events} so far, {buffers} written");
        }
    }
    Ok(CommandResult::for_running(flushed))
}

pub(super) fn update(options: &UpdateArgs) -> Result<CommandResult> {
    let target = SessionTarget { name: &options.name, daemon_choice: options.daemon_choice };
    if options.next_file {
        return switch_to_next_file(target);
    }
    if options.to_real_time {
        return convert_to_real_time(target);
    }
    let context = || format_context("update", &options.name);
    let FoundSession { mut controller, session, .. } =
        find_session(options.daemon_choice, &options.name).with_context(context)?;
    let flush_timer = options.flush_timer.filter(|seconds| *seconds != 0);
    let log_file = make_absolute(options.output.as_ref())?;
    sessions::change_kernel(&mut controller, &session, &options.kernel).with_context(context)?;
    let has_property_changes = flush_timer.is_some()
        || options.max_buffers.is_some()
        || options.real_time.is_some()
        || log_file.is_some();
    let moved = log_file.as_ref().map(|file| sessions::make_room(&mut controller, file, options.force));
    let moved = moved.transpose()?;
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
    let summary =
        if has_property_changes { update.apply() } else { session.query() }.with_context(context)?;
    moved.into_iter().for_each(MovedTrace::keep);
    let kernel = KernelState::query(&mut controller, &session);
    eprintln!("session {} now: {}", escape(&options.name), format_settings(&summary, kernel.as_ref()));
    if let Some(reason) = options.max_buffers.and_then(|requested| buffer_count_note(requested, &summary)) {
        eprintln!("warning: {reason}");
    }
    if options.flush_timer == Some(0) || options.max_buffers == Some(0) {
        eprintln!("note: 0 leaves a value as it is");
    }
    Ok(CommandResult::for_running(summary))
}

/// Formats the settings that an update can change.
fn format_settings(summary: &SessionSummary, kernel: Option<&KernelState>) -> String {
    let live = if summary.mode.contains(LogFileMode::REAL_TIME) { "on" } else { "off" };
    let mut settings = format!(
        "flush timer {} s, at most {}, real-time {live}",
        summary.flush_timer.as_secs(),
        format_count(summary.maximum_buffers.into(), "buffer")
    );
    if summary.mode.contains(LogFileMode::BUFFERING) {
        let kib = u64::from(summary.maximum_buffers).saturating_mul(u64::from(summary.buffer_kib));
        settings = format!("{settings}, keeps the newest {} KiB", format_number(kib));
    }
    if let Some(file) = &summary.log_file {
        settings = format!("{settings}, writes {}", escape_path(file));
    }
    if let Some(kernel) = kernel {
        settings = format!("{settings}, {}", kernel.format_summary());
    }
    settings
}

/// Explains why the maximum number of buffers differs from the requested one, if it does.
fn buffer_count_note(requested: u32, summary: &SessionSummary) -> Option<String> {
    let maximum = summary.maximum_buffers;
    let buffers = format_count(maximum.into(), "buffer");
    match requested.cmp(&maximum) {
        // 0 requests no change.
        _ if requested == 0 => None,
        Ordering::Equal => None,
        _ if summary.mode.contains(LogFileMode::BUFFERING) => Some(format!(
            "a flight recorder keeps the number of buffers it started with (--min-buffers): {buffers}, not {requested}"
        )),
        Ordering::Less => {
            Some(format!("a session keeps at least the buffers it started with: {buffers}, not {requested}"))
        }
        Ordering::Greater => Some(format!("memory allows {buffers}, not {requested}")),
    }
}

/// Runs `weir update NAME --next-file` and its older form `weir increment NAME`.
pub(super) fn switch_to_next_file(target: SessionTarget<'_>) -> Result<CommandResult> {
    let name = escape(target.name);
    let context = || format!("cannot switch to the next file of session {name}");
    let found = find_session(target.daemon_choice, target.name).with_context(context)?;
    let finished_file = found.summary.and_then(|summary| summary.log_file);
    let file_context = || match &finished_file {
        Some(file) => format!("{} after {}", context(), escape_path(file)),
        None => context(),
    };
    let summary = found.session.next_file().map_err(explain_wrong_mode).with_context(file_context)?;
    let finished = finished_file.as_deref().map_or_else(|| "the file".to_owned(), escape_path);
    let next = summary.log_file.as_deref().map_or_else(|| "the next file".to_owned(), escape_path);
    eprintln!("{finished} is finished; session {name} continues in {next}");
    Ok(CommandResult::for_running(summary))
}

/// Adds a hint if the session writes no sequence of files.
fn explain_wrong_mode(error: Error) -> anyhow::Error {
    if error.status() == Status::ERROR_INVALID_FUNCTION {
        let hint = "only a session started with --new-file has a next file; weir update NAME -o FILE continues \
                    in a file that you name";
        return with_hint(error, hint);
    }
    error.into()
}

/// Runs `weir update NAME --to-real-time` and its older form `weir convert-to-realtime NAME`.
pub(super) fn convert_to_real_time(target: SessionTarget<'_>) -> Result<CommandResult> {
    let context = || format_context("convert", target.name);
    let found = find_session(target.daemon_choice, target.name).with_context(context)?;
    let file = found.summary.and_then(|summary| summary.log_file);
    let summary = found.session.convert_to_real_time().with_context(context)?;
    let (name, events) = (escape(target.name), format_count(summary.events, "event"));
    let finished_text = file.map_or_else(String::new, |file| format!("{} is finished; ", escape_path(&file)));
    eprintln!(
        "{finished_text}session {name}: {events} so far, live from now on (weir watch {})",
        quote_for_shell(target.name)
    );
    Ok(CommandResult::for_running(summary))
}

fn make_absolute(path: Option<&PathBuf>) -> Result<Option<PathBuf>> {
    path.map(std::path::absolute).transpose().context("cannot resolve the current directory")
}

fn format_context(verb: &str, session: &str) -> String {
    format!("cannot {verb} session {}", escape(session))
}
