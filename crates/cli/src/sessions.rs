//! Finds and starts sessions for the commands, and stops them when a command ends. `shape` and
//! `kernel` turn options into the settings of a session, `report` prints how a session ended,
//! `page` formats a session and `enable_text` its enables. `untraced` warns about providers and
//! processes that are not traced, and `by_name` finds the providers that one name means. `lookup`
//! finds a session by name, and `append` explains why a file cannot be continued.

mod append;
mod by_name;
mod enable_text;
mod kernel;
mod lookup;
mod page;
mod report;
mod shape;
mod untraced;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anstream::eprintln;
use anyhow::{Context, Result, anyhow, bail};
use traceweir::controller::{Controller, Scope};
use traceweir::session::{ProviderInfo, SessionSummary};
use traceweir::{Error, Guid, LogFileMode, Session, SessionId, Status};
use traceweir_daemon::RuntimeDir;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::session::LOG_FILE_MODES;

use crate::cli::{DaemonChoice, KernelEvents};
use crate::existing_output::is_same_file;
use crate::existing_output::{self, MovedTrace};
use crate::exit::{self, format_status_suffix};
use crate::grammar::EnableRequest;
use crate::text::{escape, escape_path};

pub(crate) use by_name::{note_same_names, remove_duplicate_listings};
pub(crate) use enable_text::format_filter;
pub(crate) use kernel::{KernelState, change_kernel};
pub(crate) use lookup::{
    FoundSession, check_is_live, connect_to_session, dismiss_ended, find_session, missing_session_error,
};
pub(crate) use page::{
    SessionState, format_json, format_page, format_status, provider_kind, provider_name, put_enable,
};
pub(crate) use report::{
    SessionEnd, count_events, describe_earlier_end, describe_end, finalised_time, has_ended_by_itself,
    is_at_limit, print_summary, report_losses,
};
pub(crate) use shape::{SessionPlan, build_plan, note_literal_percent_d};
pub(crate) use untraced::{
    check_owners, note_filters_without_match, note_unseen_providers, query_registered_guids,
    registered_guids, warn_of_left_out_processes, warn_of_missing_providers, warn_of_unregistered,
};

/// How long to wait for processes when a provider is enabled.
pub(crate) const ENABLE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for a session that another client stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of sessions that enable one provider, or one group
/// (`docs/spec/control-protocol.md`).
const MAX_SESSIONS_PER_PROVIDER: usize = 8;

/// Connects to the daemon, if one runs.
pub(crate) fn find_daemon(daemon_choice: DaemonChoice) -> Result<Option<Controller>> {
    warn_of_overridden_flag(daemon_choice);
    let controller =
        Controller::find(daemon_choice.scope()).map_err(|error| add_folder_context(daemon_choice, error))?;
    if controller.is_none()
        && let Some(reason) = Controller::skipped_daemon_error(daemon_choice.scope())?
    {
        let hint = exit::find_hint(&reason).map(|hint| format!(" ({hint})")).unwrap_or_default();
        eprintln!("note: the system's daemon is running, but refuses you: {reason}{hint}");
    }
    Ok(controller)
}

/// Returns the message for the case that no daemon runs.
pub(crate) fn no_daemon_message(daemon_choice: DaemonChoice, default_message: &'static str) -> &'static str {
    if daemon_choice.system {
        "the system's daemon is not running: the service manager starts it (systemctl start traceweir.socket), \
         or root does (weir daemon --system)"
    } else {
        default_message
    }
}

/// Connects to the daemon; starts one if none runs.
pub(crate) fn find_or_start_daemon(daemon_choice: DaemonChoice) -> Result<Controller> {
    warn_of_overridden_flag(daemon_choice);
    Controller::find_or_start(daemon_choice.scope()).map_err(|error| add_folder_context(daemon_choice, error))
}

/// Returns whether this is the connection to the system's daemon.
pub(crate) fn is_system_daemon(controller: &Controller) -> bool {
    RuntimeDir::for_scope(Scope::System).is_ok_and(|dir| dir.control_socket() == controller.socket())
}

/// Warns if the environment overrides the flag.
fn warn_of_overridden_flag(daemon_choice: DaemonChoice) {
    let flag = match daemon_choice.scope() {
        Some(Scope::System) => "--system",
        Some(Scope::User) => "--user",
        _ => return,
    };
    if let Some(folder) = runtime_dir_from_env() {
        let folder = escape_path(&folder);
        eprintln!("warning: TRACEWEIR_RUNTIME_DIR is set: the daemon of {folder} is used, {flag} is ignored");
    }
}

fn runtime_dir_from_env() -> Option<PathBuf> {
    std::env::var_os("TRACEWEIR_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Adds the runtime folder to an error of the operating system.
fn add_folder_context(daemon_choice: DaemonChoice, error: Error) -> anyhow::Error {
    let is_os_error = error.is_system();
    let folder = runtime_dir_from_env().or_else(|| {
        let dir = RuntimeDir::for_scope(daemon_choice.scope().unwrap_or(Scope::User)).ok()?;
        Some(dir.path().to_owned())
    });
    match folder.filter(|_| is_os_error) {
        Some(folder) => anyhow!(error).context(format!("cannot reach a daemon in {}", escape_path(&folder))),
        None => anyhow!(error),
    }
}

/// Returns the documented names of the bits of a LogFileMode.
pub(crate) fn mode_names(mode: LogFileMode) -> String {
    let names: Vec<_> =
        LOG_FILE_MODES.iter().filter(|(bit, _)| mode.bits() & bit != 0).map(|(_, name)| *name).collect();
    names.join(" ")
}

/// Returns whether the session is private, that is, run by the processes of its provider.
pub(crate) fn is_private(mode: LogFileMode) -> bool {
    mode.contains(LogFileMode::PRIVATE_LOGGER) && !mode.contains(LogFileMode::PRIVATE_IN_PROC)
}

/// A session that this program started. Dropping it stops the session, unless it is left running.
pub(crate) struct StartedSession {
    controller: Controller,
    id: SessionId,
    name: String,
    /// Whether the session has ended or is left running, so that it must not be stopped.
    is_released: bool,
    /// The sampling interval before this session changed it.
    interval_before: Option<u32>,
    /// Names of the requested kernel groups that are left out because a privilege is missing.
    refused_groups: Vec<String>,
}

impl StartedSession {
    /// Starts a session for these providers; starts a daemon if none runs.
    pub(crate) fn start(
        daemon_choice: DaemonChoice,
        plan: &SessionPlan,
        providers: &[EnableRequest],
    ) -> Result<(Self, SessionSummary)> {
        let mut controller = find_or_start_daemon(daemon_choice)?;
        let summary = start_session(&mut controller, plan, providers)?;
        Ok((Self::new(controller, plan, &summary), summary))
    }

    /// Starts a session with the requested kernel events, or with the part that the daemon allows.
    /// The sampling interval is restored when the session ends, unless the session is left running.
    pub(crate) fn start_with_kernel(
        daemon_choice: DaemonChoice,
        plan: &mut SessionPlan,
        events: &KernelEvents,
        providers: &[EnableRequest],
    ) -> Result<(Self, SessionSummary)> {
        kernel::add_kernel_events(plan, events, events.kernel.as_ref(), providers);
        let mut controller = find_or_start_daemon(daemon_choice)?;
        let interval_before = kernel::choose_interval(&mut controller, events)?;
        let started = start_session(&mut controller, plan, providers);
        let started = match started
            .as_ref()
            .err()
            .and_then(|error| kernel::find_allowed_part(error, events.kernel.as_ref()))
        {
            Some(part) => {
                kernel::add_kernel_events(plan, events, Some(&part), providers);
                start_session(&mut controller, plan, providers).map(|summary| (summary, Some(part)))
            }
            None => started.map(|summary| (summary, events.kernel.clone())),
        };
        let (summary, kernel) = started.inspect_err(|_| {
            if let Some(interval) = interval_before {
                // The earlier failure is reported instead.
                let _ = kernel::set_interval(&mut controller, interval);
            }
        })?;
        let mut session = Self::new(controller, plan, &summary);
        session.interval_before = interval_before;
        if let (Some(requested), Some(recorded)) = (&events.kernel, &kernel) {
            session.refused_groups = requested.names_without(recorded);
        }
        if let Some(warning) =
            kernel::stack_limit_warning(plan.kernel_stack_bytes, summary.kernel_stack_bytes)
        {
            eprintln!("warning: {warning}");
        }
        if let Some(kernel) = &kernel {
            kernel::request_extra_groups(&session.session(), kernel)?;
            let requested = events.kernel.as_ref().unwrap_or(kernel);
            kernel::warn_of_limits(&requested.groups, &kernel.groups);
            let is_reported = !session.refused_groups.is_empty();
            if plan.kernel_scope.is_empty() && !is_reported {
                kernel::warn_of_own_processes(&session.controller, kernel);
            }
        }
        Ok((session, summary))
    }

    fn new(controller: Controller, plan: &SessionPlan, summary: &SessionSummary) -> Self {
        let (id, name) = (summary.id, plan.name.clone());
        Self { controller, id, name, is_released: false, interval_before: None, refused_groups: Vec::new() }
    }

    /// Enables providers.
    pub(crate) fn enable(&self, providers: &[EnableRequest]) -> Result<()> {
        let session = self.session();
        for request in providers {
            let result = request.build_enable(&session, &[]).timeout(ENABLE_TIMEOUT).apply();
            warn_of_delay(result).with_context(|| format!("cannot enable {}", escape(&request.name)))?;
        }
        Ok(())
    }

    fn restore_interval(&mut self) {
        if let Some(interval) = self.interval_before.take() {
            // A failure does not affect the session, which has ended.
            let _ = kernel::set_interval(&mut self.controller, interval);
        }
    }

    pub(crate) fn session(&self) -> Session {
        self.controller.session_with_id(self.id)
    }

    /// Returns settings and counters; `None` if the session has ended.
    pub(crate) fn query(&mut self) -> Result<Option<SessionSummary>> {
        if self.is_released {
            return Ok(None);
        }
        match self.session().query() {
            Ok(summary) => Ok(Some(summary)),
            Err(error) if is_gone(&error) => {
                self.is_released = true;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn refused_groups(&self) -> &[String] {
        &self.refused_groups
    }

    pub(crate) fn is_released(&self) -> bool {
        self.is_released
    }

    pub(crate) fn controller(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// Stops the session, unless it has ended before. The daemon collects all events and finalises
    /// the file.
    pub(crate) fn stop(mut self) -> Result<SessionEnd> {
        self.is_released = true;
        let stopped = self.session().stop();
        // If the interval were restored before the stop, the trace would record a change, although
        // all its samples have the same interval.
        self.restore_interval();
        match stopped {
            Ok(summary) => {
                // The caller reports how the session ended, so that `weir list` need not.
                if has_ended_by_itself(&summary) {
                    dismiss_ended(&self.controller, &summary);
                }
                Ok(if summary.end_status.is_none() {
                    SessionEnd::ByUs(summary)
                } else {
                    SessionEnd::BeforeStop(summary)
                })
            }
            Err(error) if is_gone(&error) || is_stopping(&error) || is_disconnect(&error) => {
                Ok(self.wait_for_end())
            }
            Err(error) => Err(error).with_context(|| format!("cannot stop session {}", escape(&self.name))),
        }
    }

    /// Waits for the end of the session and returns how it ended. If the daemon does not know the
    /// session, it is a new daemon, and the session ended with the old daemon.
    pub(crate) fn wait_for_end(&self) -> SessionEnd {
        let (session, started) = (self.session(), Instant::now());
        loop {
            match session.outcome() {
                Ok(outcome) => {
                    dismiss_ended(&self.controller, &outcome);
                    return SessionEnd::BeforeStop(outcome);
                }
                // Another client is stopping the session.
                Err(_) if started.elapsed() < STOP_TIMEOUT && session.query().is_ok() => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(_) => return SessionEnd::WithDaemon(self.controller.socket()),
            }
        }
    }

    pub(crate) fn leave_running(&mut self) {
        self.is_released = true;
        self.interval_before = None;
    }
}

impl Drop for StartedSession {
    fn drop(&mut self) {
        if !self.is_released {
            // The command reports the error that dropped the session, not one of this stop.
            let _ = self.session().stop();
        }
        self.restore_interval();
    }
}

fn start_session(
    controller: &mut Controller,
    plan: &SessionPlan,
    providers: &[EnableRequest],
) -> Result<SessionSummary> {
    let context = || format!("cannot start session {}", escape(&plan.name));
    // The start truncates the file. Checking first keeps an old trace if the session cannot run.
    check_enables(&controller.providers()?, providers).with_context(context)?;
    let guids: Vec<Guid> = providers.iter().map(|provider| provider.guid).collect();
    controller.check_enables(&guids).with_context(context)?;
    let moved = plan.first_file().map(|file| make_room(controller, &file, plan.force)).transpose()?;
    let summary = match plan.to_builder().daemon(controller).start_with_summary() {
        Ok((_, summary)) => summary,
        Err(error) => return Err(append::explain_refusal(plan, error)).with_context(context),
    };
    moved.into_iter().for_each(MovedTrace::keep);
    Ok(summary)
}

/// Moves an existing trace out of the way of a log file. The file of a running session stays, so
/// that the daemon refuses it.
pub(crate) fn make_room(controller: &mut Controller, file: &Path, force: bool) -> Result<MovedTrace> {
    if force || !file.exists() {
        return existing_output::make_room(file, force);
    }
    let sessions = controller.sessions()?;
    let is_in_use = |file: &Path| {
        let mut log_files = sessions.iter().filter_map(|session| session.log_file.as_deref());
        log_files.any(|log_file| is_same_file(log_file, file))
    };
    let old = existing_output::old_name(file);
    if is_in_use(&old) {
        bail!(
            "cannot write {}: its trace would replace {}, to which a session writes (name another file with -o)",
            escape_path(file),
            escape_path(&old)
        );
    }
    let keep_in_place = is_in_use(file);
    existing_output::make_room(file, keep_in_place)
}

/// Returns whether an error means that the session does not exist or has ended.
pub(crate) fn is_gone(error: &Error) -> bool {
    error.status() == Status::ERROR_WMI_INSTANCE_NOT_FOUND
}

fn is_stopping(error: &Error) -> bool {
    error.status() == Status::ERROR_ACTIVE_CONNECTIONS
}

pub(crate) fn is_disconnect(error: &Error) -> bool {
    error.is_disconnect()
}

/// Rejects enables that the daemon would reject once the session runs, as far as that can be
/// predicted.
fn check_enables(providers: &[ProviderInfo], requests: &[EnableRequest]) -> Result<()> {
    for request in requests {
        let is_group = request.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
        let provider =
            providers.iter().find(|provider| provider.guid == request.guid && provider.is_group == is_group);
        if provider.is_some_and(|provider| provider.sessions.len() >= MAX_SESSIONS_PER_PROVIDER) {
            let name = escape(&request.name);
            let reason = format!("eight sessions enable {name} already: stop one; nothing was changed");
            return Err(Error::refused(Status::ERROR_NO_SYSTEM_RESOURCES, reason).into());
        }
    }
    Ok(())
}

/// Turns a timeout into a warning: the provider is enabled, and slow processes apply the enable
/// later.
pub(crate) fn warn_of_delay(result: traceweir::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.status() == Status::ERROR_TIMEOUT => {
            let status = format_status_suffix(Some(error.status()));
            eprintln!("warning: some processes have not applied the change yet: {error}{status}");
            Ok(())
        }
        result => Ok(result?),
    }
}
