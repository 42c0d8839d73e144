//! `weir record`: runs a session while a program runs, for a time, or until Ctrl-C.
//!
//! ```text
//!   start, enable ──▶ recording ──────────────────────────────────────────────▶ stop ──▶ summary
//!                        │ CMD ended, time is up, session ended, processes gone   ▲
//!                        │ Ctrl-C: CMD receives it too; weir waits briefly        │
//!                        └────────────────────────────────────────────────────────┘
//!   second Ctrl-C, at any time: weir exits once the stop request is sent; the daemon finalises
//!   the file
//! ```

mod command;
mod runnable;
mod setup;
mod summary;
mod until;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, test_kill_process};
use traceweir::session::SessionSummary;
use traceweir::{Guid, LogFileMode};

use crate::cli::RecordArgs;
use crate::existing_output;
use crate::exit::{self, CommandOutcome};
use crate::grammar::{EnableRequest, KernelSelection};
use crate::progress::{RecordingLine, WaitLine};
use crate::recordings;
use crate::sessions::{self, SessionEnd, StartedSession};
use crate::signals::{self, INTERRUPTED};
use crate::text::{escape_path, format_count, quote_path_for_shell};
use command::{RECORDING_FAILED, describe_failure, to_exit_status};
use setup::RecordedEvents;
pub(super) use setup::apply_profile_buffers;
use summary::SummaryRequest;
use until::UntilWatch;

/// How often the session is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often it is polled if `--stop-after` or a file ends the recording.
const SHORT_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a command may take to end after Ctrl-C before the recording ends without it.
const COMMAND_END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long sending the stop request may take after a second Ctrl-C.
const STOP_REQUEST_TIMEOUT: Duration = Duration::from_millis(200);
/// Timeout of a wait without a deadline; any event ends the wait.
const WAIT_WITHOUT_DEADLINE: Duration = Duration::from_secs(3600);

/// An event while recording.
enum RecordingEvent {
    Interrupt,
    /// The condition of `--until` is met.
    ConditionMet,
    CommandEnded(io::Result<ExitStatus>),
    SessionStopped(Box<Result<SessionEnd>>),
}

/// Why a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndReason {
    /// The time is up, or the command, the processes or the session have ended.
    Done,
    /// Ctrl-C ended the recording.
    Interrupted,
    /// A second Ctrl-C ended the recording at once.
    InterruptedTwice,
}

pub(super) fn run(options: &RecordArgs) -> Result<CommandOutcome> {
    match record(options) {
        Err(error) if !options.command.is_empty() => {
            exit::print_error(&error);
            Ok(CommandOutcome::Status(RECORDING_FAILED))
        }
        result => result,
    }
}

fn record(options: &RecordArgs) -> Result<CommandOutcome> {
    if options.open {
        super::view::check_is_built()?;
    }
    let events_to_record = RecordedEvents::resolve(options)?;
    if let Some(missing) = options.pid.iter().find(|pid| !is_running(**pid)) {
        bail!("cannot record process {missing}: no process has this id");
    }
    if let Err(failure) = options.command.first().map_or(Ok(()), |program| runnable::check_command(program)) {
        // This is checked before the session starts, so that a mistyped command leaves no trace.
        eprintln!("error: {}", failure.text);
        return Ok(CommandOutcome::Status(failure.status));
    }
    if !options.pid.is_empty() {
        // This is checked before the session creates its file.
        let controller = sessions::find_or_start_daemon(options.daemon_choice)?;
        sessions::check_owners(&controller, &events_to_record.requests, &options.pid)?;
    }
    let (events, incoming) = channel();
    let interrupts = events.clone();
    signals::handle_interrupts(move |_| drop(interrupts.send(RecordingEvent::Interrupt)))?;

    let (plan, file) = setup::build_plan(options)?;
    let until = UntilWatch::start(options, &events)?;
    let (mut session, first_summary, kernel_refusal) = events_to_record.start(options, plan)?;
    let RecordedEvents { requests, named_requests, .. } = events_to_record;
    if !options.pid.is_empty() {
        sessions::warn_of_unregistered(session.controller(), &named_requests, &options.pid)?;
    } else if options.command.is_empty() {
        sessions::note_unseen_providers(session.controller(), &named_requests)?;
        sessions::note_filters_without_match(&named_requests);
    }
    let started = Instant::now();
    let has_command = match command::spawn(&options.command, &events) {
        Ok(has_command) => has_command,
        Err(status) => return Ok(CommandOutcome::Status(status)),
    };
    let has_container_warning =
        sessions::warn_of_left_out_processes(session.controller(), first_summary.id, &requests)?;
    let mut recording = Recording {
        options,
        file,
        requests,
        named_requests,
        kernel_refusal,
        until,
        is_condition_met: false,
        incoming,
        refused_groups: session.refused_groups().to_vec(),
        session: Some(session),
        last_summary: first_summary,
        has_writers: false,
        registered: BTreeSet::new(),
        has_name_note: false,
        has_container_warning,
        command_status: None,
        has_command,
        started,
        elapsed: Duration::ZERO,
    };
    let end_reason = recording.wait_until_done()?;
    let file = recording.file.clone();
    let outcome = recording.finish(end_reason, events)?;
    if options.open && end_reason != EndReason::InterruptedTwice {
        super::view::show_recording(file)?;
    }
    Ok(outcome)
}

struct Recording<'o> {
    options: &'o RecordArgs,
    /// The trace file.
    file: PathBuf,
    /// Providers that are recorded.
    requests: Vec<EnableRequest>,
    /// Those that the user named.
    named_requests: Vec<EnableRequest>,
    /// Why kernel events are left out.
    kernel_refusal: Option<String>,
    /// Requested kernel groups that need a privilege.
    refused_groups: Vec<String>,
    until: UntilWatch,
    is_condition_met: bool,
    incoming: Receiver<RecordingEvent>,
    /// The session, until it is stopped.
    session: Option<StartedSession>,
    /// Settings and counters of the session at the last poll.
    last_summary: SessionSummary,
    /// Whether a process was able to write to the session at any poll.
    has_writers: bool,
    /// Providers that were registered at any poll.
    registered: BTreeSet<Guid>,
    /// Whether the note about several providers of one name was printed.
    has_name_note: bool,
    /// Whether the warning about left-out containers was printed.
    has_container_warning: bool,
    command_status: Option<ExitStatus>,
    has_command: bool,
    started: Instant,
    /// How long the recording took.
    elapsed: Duration,
}

impl Recording<'_> {
    /// Waits until the recording should end.
    fn wait_until_done(&mut self) -> Result<EndReason> {
        // The command may use the terminal, so no counter is shown.
        let recording_line = RecordingLine::new(!self.has_command);
        let mut deadline = self.options.duration.and_then(|d| Instant::now().checked_add(d));
        let mut end_reason = EndReason::Done;
        let needs_short_poll = self.options.stop_after.is_some() || self.until.file().is_some();
        let poll_interval = if needs_short_poll { SHORT_POLL_INTERVAL } else { POLL_INTERVAL };
        loop {
            let timeout = deadline.map_or(poll_interval, |d| d.saturating_duration_since(Instant::now()));
            match self.incoming.recv_timeout(timeout.min(poll_interval)) {
                Ok(RecordingEvent::Interrupt) if end_reason == EndReason::Interrupted => {
                    return Ok(EndReason::InterruptedTwice);
                }
                Ok(RecordingEvent::Interrupt) if !self.has_command => return Ok(EndReason::Interrupted),
                Ok(RecordingEvent::Interrupt) => {
                    // The terminal sent SIGINT to the command as well. The events that the command
                    // still writes belong to the trace.
                    end_reason = EndReason::Interrupted;
                    deadline = Some(Instant::now() + COMMAND_END_TIMEOUT);
                }
                Ok(RecordingEvent::ConditionMet) => {
                    self.is_condition_met = true;
                    return Ok(end_reason);
                }
                Ok(RecordingEvent::CommandEnded(status)) => {
                    let status = status.context("cannot wait for the command")?;
                    self.is_condition_met |= self.until.is_met_by_end(status);
                    self.command_status = Some(status);
                    return Ok(end_reason);
                }
                Ok(RecordingEvent::SessionStopped(_)) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(end_reason);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if deadline.is_some_and(|d| Instant::now() >= d) || !self.should_continue()? {
                        return Ok(end_reason);
                    }
                    recording_line.show_counters(&self.last_summary);
                }
            }
        }
    }

    /// Polls the session and the recorded processes, and returns whether to continue.
    fn should_continue(&mut self) -> Result<bool> {
        let Some(session) = self.session.as_mut().filter(|s| !s.is_released()) else {
            return Ok(self.has_command);
        };
        let Some(summary) = session.query()? else {
            return Ok(false);
        };
        self.has_writers |= summary.processes > 0;
        self.last_summary = summary;
        if self.options.stop_after.is_some_and(|limit| self.last_summary.events >= limit) {
            return Ok(false);
        }
        if self.until.file().is_some_and(Path::exists) {
            self.is_condition_met = true;
            return Ok(false);
        }
        if self.named_requests.iter().any(|request| !self.registered.contains(&request.guid)) {
            let providers = session.controller().providers()?;
            self.registered.extend(sessions::registered_guids(&providers));
            if self.has_command && !self.has_name_note {
                self.has_name_note = sessions::note_same_names(&providers, &self.named_requests);
            }
        }
        let pids = &self.options.pid;
        Ok(pids.is_empty() || pids.iter().any(|pid| is_running(*pid)))
    }

    /// Stops the session, prints a summary and returns the exit status.
    fn finish(mut self, end_reason: EndReason, events: Sender<RecordingEvent>) -> Result<CommandOutcome> {
        self.elapsed = self.started.elapsed();
        if end_reason != EndReason::InterruptedTwice {
            // The event may be among the last that a command wrote.
            self.is_condition_met |= self.until.stop_watching();
        }
        if self.has_command && self.command_status.is_none() && end_reason == EndReason::Done {
            let reason = self.describe_early_end();
            eprintln!("the recording has ended{reason}; weir waits for the command");
        }
        let snapshot = self.snapshot_file(end_reason);
        let is_written = self.options.flight.is_none() || snapshot.is_some();
        if let Some(mut session) = self.session.take() {
            // The session is stopped even if this request fails.
            self.has_writers |= matches!(session.query(), Ok(Some(summary)) if summary.processes > 0);
            if end_reason != EndReason::InterruptedTwice
                && !self.has_container_warning
                && !session.is_released()
            {
                // The session is stopped even if this request fails.
                let _ = sessions::warn_of_left_out_processes(
                    session.controller(),
                    self.last_summary.id,
                    &self.requests,
                );
            }
            let force = self.options.force;
            std::thread::spawn(move || {
                let end = stop_session(session, snapshot.as_deref(), force);
                drop(events.send(RecordingEvent::SessionStopped(Box::new(end))));
            });
        }
        // While the command runs, it may use the terminal, so no line is shown.
        let is_command_running = self.has_command && self.command_status.is_none();
        let waiting = (end_reason != EndReason::InterruptedTwice && !is_command_running)
            .then(|| WaitLine::new("stopping"));
        let session_end = self.wait_for_end(end_reason);
        drop(waiting);
        let Some(session_end) = session_end? else {
            eprintln!("exited at once; the daemon finalises the file");
            return Ok(CommandOutcome::Status(INTERRUPTED));
        };
        let outcome = self.print_summary(&session_end, is_written)?;
        Ok(match self.command_status {
            Some(status) => CommandOutcome::Status(to_exit_status(status)),
            None if self.has_command => {
                eprintln!("the command is still running");
                CommandOutcome::Status(INTERRUPTED)
            }
            None => outcome,
        })
    }

    /// Returns the file that events in memory are written to; `None` if there are none, or if they
    /// are dropped because the condition of `--until` was not met.
    fn snapshot_file(&self, end_reason: EndReason) -> Option<PathBuf> {
        self.options.flight?;
        let is_wanted = !self.until.is_given() || self.is_condition_met || end_reason != EndReason::Done;
        is_wanted.then(|| self.file.clone())
    }

    /// Returns whether the recorded events are those of the profile that applies without options.
    fn is_default_profile(&self) -> bool {
        self.named_requests.is_empty() && self.options.profile.is_empty() && !self.requests.is_empty()
    }

    /// Returns why the recording ended before the command, to follow "has ended".
    fn describe_early_end(&self) -> &'static str {
        if self.is_condition_met {
            ": the condition of --until is met"
        } else if self.options.stop_after.is_some_and(|limit| self.last_summary.events >= limit) {
            ": --stop-after is reached"
        } else if self.options.duration.is_some_and(|duration| self.elapsed >= duration) {
            ": --duration is over"
        } else if self.options.shape.max_size.is_some() {
            ": --max-size is reached, or another process stopped it"
        } else {
            ""
        }
    }

    /// Prints a summary and, if the recording ended early, the reason.
    fn print_summary(&self, session_end: &SessionEnd, is_written: bool) -> Result<CommandOutcome> {
        let mut file = &self.file;
        let outcome = match session_end {
            SessionEnd::ByUs(summary) if !is_written => {
                let (events, name) = (format_count(summary.events, "event"), escape_path(file));
                eprintln!(
                    "the condition of --until was not met: {events} in memory were dropped, and {name} was not written"
                );
                return Ok(sessions::report_losses(summary, false));
            }
            SessionEnd::ByUs(summary) => {
                // The last file of a sequence has a number in its name.
                let is_sequence = summary.mode.contains(LogFileMode::NEWFILE);
                file = summary.log_file.as_ref().filter(|_| is_sequence).unwrap_or(file);
                sessions::print_summary(summary, false)?
            }
            SessionEnd::BeforeStop(summary) => {
                let outcome = sessions::print_summary(summary, false)?;
                if let Some(status) = summary.end_status {
                    let reason = format!("the recording ended early: {status}");
                    return Err(traceweir::Error::refused(status, reason).into());
                }
                if !sessions::is_at_limit(summary) {
                    eprintln!("the recording was stopped by another process");
                }
                outcome
            }
            SessionEnd::WithDaemon(socket) => bail!("{}", describe_daemon_end(socket, file)),
        };
        if !is_written {
            eprintln!("the condition of --until was not met, so {} was not written", escape_path(file));
            return Ok(outcome);
        }
        if !self.refused_groups.is_empty() {
            let groups = self.refused_groups.join(", ").to_ascii_lowercase();
            eprintln!("refused without CAP_PERFMON: {groups} (weir doctor shows how to get them)");
        }
        if let Some(reason) = &self.kernel_refusal {
            eprintln!("warning: kernel events were left out: {reason} (weir doctor shows how to get them)");
        }
        if self.until.is_given() && !self.is_condition_met && self.options.flight.is_none() {
            eprintln!("warning: the condition of --until was not met before the recording ended");
        }
        if let Some(failure) = self.command_status.and_then(describe_failure) {
            eprintln!("warning: {failure}");
        }
        sessions::warn_of_missing_providers(&self.named_requests, &self.registered, file, self.has_command);
        let collected = match session_end {
            SessionEnd::ByUs(summary) | SessionEnd::BeforeStop(summary) => summary.events,
            SessionEnd::WithDaemon(_) => 0,
        };
        let wants_switches = self.options.kernel.kernel.as_ref().is_some_and(KernelSelection::has_switches)
            || self.options.profile.iter().any(|name| name == "sched");
        let request = SummaryRequest { wants_switches, is_default_profile: self.is_default_profile() };
        let has_events = summary::print(file, &self.options.manifest, collected, self.elapsed, request);
        if self.has_writers && self.named_requests.is_empty() && !has_events {
            eprintln!(
                "warning: providers were enabled, but wrote no event that the profile records: -p '*' records all levels and keywords"
            );
        }
        Ok(outcome)
    }

    /// Waits for the end of the session and of the command; after Ctrl-C, only of the session.
    /// Returns `None` if weir should exit at once.
    fn wait_for_end(&mut self, end_reason: EndReason) -> Result<Option<SessionEnd>> {
        let mut is_interrupted = end_reason != EndReason::Done;
        let mut deadline =
            (end_reason == EndReason::InterruptedTwice).then(|| Instant::now() + STOP_REQUEST_TIMEOUT);
        let mut stopped = None;
        while stopped.is_none() || (self.has_command && self.command_status.is_none() && !is_interrupted) {
            let timeout =
                deadline.map_or(WAIT_WITHOUT_DEADLINE, |time| time.saturating_duration_since(Instant::now()));
            match self.incoming.recv_timeout(timeout) {
                // Pressing Ctrl-C again does not extend the deadline.
                Ok(RecordingEvent::Interrupt) if is_interrupted => {
                    deadline = deadline.or_else(|| Some(Instant::now() + STOP_REQUEST_TIMEOUT))
                }
                Ok(RecordingEvent::Interrupt) => is_interrupted = true,
                Ok(RecordingEvent::ConditionMet) => {}
                Ok(RecordingEvent::CommandEnded(status)) => {
                    self.command_status = Some(status.context("cannot wait for the command")?)
                }
                Ok(RecordingEvent::SessionStopped(result)) => stopped = Some((*result)?),
                Err(_) if deadline.is_some_and(|time| Instant::now() >= time) => return Ok(None),
                Err(_) => {}
            }
        }
        Ok(stopped)
    }
}

/// Describes the file of a recording whose daemon has ended.
fn describe_daemon_end(socket: &Path, file: &Path) -> String {
    let events =
        sessions::count_events(file).map_or_else(String::new, |n| format!(" ({})", format_count(n, "event")));
    let name = escape_path(file);
    let file_text = match sessions::finalised_time(file) {
        Some(_) => format!("it finalised {name}{events} before that"),
        None => {
            format!(
                "{name} is valid to its last flush{events}: weir repair {} -o COPY finalises a copy",
                quote_path_for_shell(file)
            )
        }
    };
    format!("the daemon at {} has ended; {file_text}", escape_path(socket))
}

/// Writes the events of a flight recorder to a file.
fn write_snapshot(session: &StartedSession, file: &Path, force: bool) -> Result<()> {
    let moved = existing_output::make_room(file, force)?;
    session.session().snapshot(file).context("cannot write the events in memory")?;
    moved.keep();
    Ok(())
}

/// Writes the events of a flight recorder to a file, if one is given, and stops the session.
fn stop_session(session: StartedSession, snapshot: Option<&Path>, force: bool) -> Result<SessionEnd> {
    let Some(file) = snapshot else { return session.stop() };
    let file = std::path::absolute(file).context("cannot resolve the current directory")?;
    let file = match write_snapshot(&session, &file, force) {
        Ok(()) => file,
        Err(error) => {
            // The events in memory must not be lost because a file got this name meanwhile.
            let other = recordings::find_unused_name(&file)?;
            write_snapshot(&session, &other, false).with_context(|| format!("{error:#}"))?;
            eprintln!("warning: {error:#}; the events are in {}", escape_path(&other));
            other
        }
    };
    let mut end = session.stop()?;
    if let SessionEnd::ByUs(summary) | SessionEnd::BeforeStop(summary) = &mut end {
        summary.log_file = Some(file);
    }
    Ok(end)
}

/// Returns whether a process exists, whichever user owns it.
fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}
