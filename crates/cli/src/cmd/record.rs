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

mod runnable;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, test_kill_process};
use traceweir::Guid;
use traceweir::session::{ProcessTree, SessionSummary};
use traceweir_format::kernel::providers::kernel_provider_name;

use crate::cli::{self, RecordArgs};
use crate::exit::{self, CommandOutcome};
use crate::grammar::EnableRequest;
use crate::progress::{RecordingLine, WaitLine};
use crate::sessions::{self, SessionEnd, StartedSession};
use crate::signals::{self, INTERRUPTED};
use crate::text::{escape_path, format_count, quote_path_for_shell};

/// Exit status if recording fails while a command is given.
const RECORDING_FAILED: u8 = 125;

/// How often the session is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long a command may take to end after Ctrl-C before the recording ends without it.
const COMMAND_END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long sending the stop request may take after a second Ctrl-C.
const STOP_REQUEST_TIMEOUT: Duration = Duration::from_millis(200);
/// Timeout of a wait without a deadline; any event ends the wait.
const WAIT_WITHOUT_DEADLINE: Duration = Duration::from_secs(3600);

/// An event while recording.
enum RecordingEvent {
    Interrupt,
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
    let requests = options.providers.resolve(&options.manifest)?;
    check_pid_and_kernel_providers(options, &requests);
    if let Some(missing) = options.pid.iter().find(|pid| !is_running(**pid)) {
        bail!("there is no process {missing}");
    }
    if let Err(failure) = options.command.first().map_or(Ok(()), |program| runnable::check_command(program)) {
        // This is checked before the session starts, so that a mistyped command does not truncate
        // an existing trace.
        eprintln!("error: {}", failure.text);
        return Ok(CommandOutcome::Status(failure.status));
    }
    let (events, incoming) = channel();
    let interrupts = events.clone();
    signals::handle_interrupts(move |_| drop(interrupts.send(RecordingEvent::Interrupt)))?;

    let name = format!("weir-record-{}", std::process::id());
    let mut plan = sessions::build_plan(&name, Some(&options.output), &options.shape)?;
    // The daemon finalises the file however this process ends.
    plan.stop_on_drop = true;
    plan.kernel_scope = kernel_scope(options);
    let (mut session, first_summary) =
        StartedSession::start_with_kernel(options.daemon_choice, &mut plan, &options.kernel, &requests)?;
    session.enable(&requests, &options.pid)?;
    sessions::note_literal_percent_d(&plan);
    if !options.pid.is_empty() {
        sessions::check_pids(session.controller(), &requests, &options.pid)?;
    } else if options.command.is_empty() {
        sessions::note_unseen_providers(session.controller(), &requests)?;
        sessions::note_filters_without_match(&requests);
    }
    let has_command = match spawn_command(options, &events) {
        Ok(has_command) => has_command,
        Err(status) => return Ok(CommandOutcome::Status(status)),
    };
    let has_container_warning =
        sessions::warn_of_left_out_processes(session.controller(), first_summary.id, &requests)?;
    let registered = BTreeSet::new();
    let mut recording = Recording {
        options,
        requests,
        incoming,
        session: Some(session),
        last_summary: first_summary,
        registered,
        has_name_note: false,
        has_container_warning,
        command_status: None,
        has_command,
    };
    let end_reason = recording.wait_until_done()?;
    recording.finish(end_reason, events)
}

/// Returns the process trees that kernel events are restricted to: those of the command or of
/// `--pid`. The result is empty for the whole machine.
fn kernel_scope(options: &RecordArgs) -> Vec<ProcessTree> {
    if options.all {
        Vec::new()
    } else if options.command.is_empty() {
        options.pid.iter().map(|pid| ProcessTree::new(*pid)).collect()
    } else {
        vec![ProcessTree::descendants_of(std::process::id())]
    }
}

/// Ends the program with a usage error if `--pid` is given with a manifest provider of the kernel,
/// whose events always cover the whole machine.
fn check_pid_and_kernel_providers(options: &RecordArgs, requests: &[EnableRequest]) {
    if !options.pid.is_empty() && requests.iter().any(|request| kernel_provider_name(&request.guid).is_some())
    {
        cli::exit_with_conflict(
            "--pid does not apply to providers of the kernel: their events cover the whole machine. Record groups of kernel events instead \
             (weir record --kernel cpu --pid PID), or filter afterwards: weir dump FILE --pid PID",
        );
    }
}

/// Starts the command, if one is given, and sends an event when it ends. Returns whether a command
/// was started, or the exit status for a failed start.
fn spawn_command(options: &RecordArgs, events: &Sender<RecordingEvent>) -> Result<bool, u8> {
    let Some((program, arguments)) = options.command.split_first() else { return Ok(false) };
    // Orphans of the command become children of this process, so that a search of /proc finds them.
    let _ = rustix::process::set_child_subreaper(Pid::from_raw(1));
    let child = Command::new(program).args(arguments).spawn();
    let mut child: Child = child.map_err(|error| {
        let failure = runnable::CommandFailure::new(program, error);
        eprintln!("error: {}", failure.text);
        failure.status
    })?;
    let events = events.clone();
    std::thread::spawn(move || drop(events.send(RecordingEvent::CommandEnded(child.wait()))));
    Ok(true)
}

struct Recording<'o> {
    options: &'o RecordArgs,
    /// Providers that are recorded.
    requests: Vec<EnableRequest>,
    incoming: Receiver<RecordingEvent>,
    /// The session, until it is stopped.
    session: Option<StartedSession>,
    /// Settings and counters of the session at the last poll.
    last_summary: SessionSummary,
    /// Providers that were registered at any poll.
    registered: BTreeSet<Guid>,
    /// Whether the note about several providers of one name was printed.
    has_name_note: bool,
    /// Whether the warning about left-out containers was printed.
    has_container_warning: bool,
    command_status: Option<ExitStatus>,
    has_command: bool,
}

impl Recording<'_> {
    /// Waits until the recording should end.
    fn wait_until_done(&mut self) -> Result<EndReason> {
        // The command may use the terminal, so no counter is shown.
        let recording_line = RecordingLine::new(!self.has_command);
        let mut deadline = self.options.duration.and_then(|d| Instant::now().checked_add(d));
        let mut end_reason = EndReason::Done;
        loop {
            let timeout = deadline.map_or(POLL_INTERVAL, |d| d.saturating_duration_since(Instant::now()));
            match self.incoming.recv_timeout(timeout.min(POLL_INTERVAL)) {
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
                Ok(RecordingEvent::CommandEnded(status)) => {
                    self.command_status = Some(status.context("cannot wait for the command")?);
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
            if self.has_command {
                eprintln!("warning: the recording has ended; the command is still running");
            }
            return Ok(self.has_command);
        };
        self.last_summary = summary;
        if self.requests.iter().any(|request| !self.registered.contains(&request.guid)) {
            let providers = session.controller().providers()?;
            self.registered.extend(sessions::registered_guids(&providers));
            if self.has_command && !self.has_name_note {
                self.has_name_note = sessions::note_same_names(&providers, &self.requests);
            }
        }
        let pids = &self.options.pid;
        Ok(pids.is_empty() || pids.iter().any(|pid| is_running(*pid)))
    }

    /// Stops the session, prints a summary and returns the exit status.
    fn finish(mut self, end_reason: EndReason, events: Sender<RecordingEvent>) -> Result<CommandOutcome> {
        if let Some(mut session) = self.session.take() {
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
            std::thread::spawn(move || {
                drop(events.send(RecordingEvent::SessionStopped(Box::new(session.stop()))))
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
        let outcome = self.print_summary(&session_end)?;
        Ok(match self.command_status {
            Some(status) => CommandOutcome::Status(to_exit_status(status)),
            None if self.has_command => {
                eprintln!("the command is still running");
                CommandOutcome::Status(INTERRUPTED)
            }
            None => outcome,
        })
    }

    /// Prints a summary and, if the recording ended early, the reason.
    fn print_summary(&self, session_end: &SessionEnd) -> Result<CommandOutcome> {
        let file = &self.options.output;
        let outcome = match session_end {
            SessionEnd::ByUs(summary) => sessions::print_summary(summary, false)?,
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
        sessions::warn_of_missing_providers(&self.requests, &self.registered, file);
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

/// Converts an exit status as shells do: 128 + N for signal N.
fn to_exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(RECORDING_FAILED)
}

/// Returns whether a process exists, whichever user owns it.
fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}
