//! Sessions as the verbs use them: found, made, and never left behind by accident. What is said about them at their end is in
//! `report`, the page of one in `page`, who can be heard in `reach`.

mod by_name;
mod kernel;
mod page;
mod reach;
mod report;
mod shape;
mod wish;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anstream::eprintln;
use anyhow::{Context, Result, anyhow};
use traceweir::controller::{
    Controller, EnableCode, Properties, ProviderEntry, Scope, SessionConfig, SessionRef,
};
use traceweir::{Error, Guid, Status};
use traceweir_daemon::RuntimeDir;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::session::{
    EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE, LOG_FILE_MODES,
};

use crate::cli::{KernelEvents, DaemonChoice};
use crate::exit::numbered;
use crate::export::{plain, plain_path};
use crate::grammar::Wanted;

pub(crate) use by_name::{list_once, note_same_names};
pub(crate) use kernel::{KernelState, change_kernel};
pub(crate) use page::{Life, json, kind, named, page, status, wanted};
pub(crate) use reach::{check_pids, seen, seen_in, tell_idle, tell_left_out, tell_unseen, unheard};
pub(crate) use report::{Ended, count_events, end_of, is_at_limit, summarise, tell_loss, why_ended};
pub(crate) use shape::{config, roomy, tell_literal};
pub(crate) use wish::as_typed;

/// How long processes are waited for when a provider is enabled.
const ENABLE_TIMEOUT_MS: u32 = 2000;
/// How long a session that somebody else stops may take.
const STOPPING: Duration = Duration::from_secs(10);
/// Sessions that may enable one provider, or one group (`docs/spec/control-protocol.md`).
const MAX_SESSIONS_PER_PROVIDER: usize = 8;

/// The daemon, if one runs.
pub(crate) fn find(daemon_choice: DaemonChoice) -> Result<Option<Controller>> {
    tell_overruled(daemon_choice);
    let found = Controller::find(daemon_choice.scope()).map_err(|error| in_folder(daemon_choice, error))?;
    if found.is_none()
        && let Some(why) = Controller::passed_over(daemon_choice.scope())?
    {
        eprintln!("note: the system's daemon runs, and does not let you in: {why}");
    }
    Ok(found)
}

/// The daemon; one of the user's is started where none runs.
pub(crate) fn find_or_start(daemon_choice: DaemonChoice) -> Result<Controller> {
    tell_overruled(daemon_choice);
    Controller::find_or_start(daemon_choice.scope()).map_err(|error| in_folder(daemon_choice, error))
}

/// Says that the environment goes before the flag.
fn tell_overruled(daemon_choice: DaemonChoice) {
    let flag = match daemon_choice.scope() {
        Some(Scope::System) => "--system",
        Some(Scope::User) => "--user",
        _ => return,
    };
    if let Some(folder) = named_folder() {
        let folder = plain_path(&folder);
        eprintln!(
            "note: TRACEWEIR_RUNTIME_DIR is set: the daemon of {folder} is asked, {flag} is not looked at"
        );
    }
}

fn named_folder() -> Option<PathBuf> {
    std::env::var_os("TRACEWEIR_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Names the folder that an error of the system is about.
fn in_folder(daemon_choice: DaemonChoice, error: Error) -> anyhow::Error {
    let is_system = error.is_system();
    let folder = named_folder().or_else(|| {
        let dir = RuntimeDir::of(daemon_choice.scope().unwrap_or(Scope::User)).ok()?;
        Some(dir.path().to_owned())
    });
    match folder.filter(|_| is_system) {
        Some(folder) => {
            anyhow!(error).context(format!("no daemon can be reached in {}", plain_path(&folder)))
        }
        None => anyhow!(error),
    }
}

/// The daemon in which a session is said to run; a session cannot run where there is no daemon.
pub(crate) fn controller_of(daemon_choice: DaemonChoice, name: &str) -> Result<(Controller, SessionRef)> {
    match find(daemon_choice)? {
        Some(controller) => Ok((controller, SessionRef::Name(name.to_owned()))),
        None => Err(anyhow!(Error::refused(
            Status::ERROR_WMI_INSTANCE_NOT_FOUND,
            format!("session {} is not running: no daemon is (weir start begins a session)", plain(name)),
        ))),
    }
}

/// The published names of the bits of a mode.
pub(crate) fn mode_names(mode: u32) -> String {
    let names: Vec<_> =
        LOG_FILE_MODES.iter().filter(|(bit, _)| mode & bit != 0).map(|(_, name)| *name).collect();
    names.join(" ")
}

/// Whether the processes of a provider run this session.
pub(crate) fn is_private(config: &SessionConfig) -> bool {
    let kind = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;
    config.log_file_mode & kind == EVENT_TRACE_PRIVATE_LOGGER_MODE
}

/// A session that this program began and ends, however it leaves.
pub(crate) struct Own {
    controller: Controller,
    session: SessionRef,
    name: String,
    is_over: bool,
    /// How often processors were sampled before this session wanted it otherwise.
    interval_before: Option<u32>,
}

impl Own {
    /// Starts a session that is to enable these providers, with a daemon of the user's where none runs.
    pub(crate) fn start(
        daemon_choice: DaemonChoice,
        config: &SessionConfig,
        providers: &[Wanted],
    ) -> Result<(Self, Properties)> {
        let mut controller = find_or_start(daemon_choice)?;
        let properties = start(&mut controller, config, providers)?;
        Ok((Self::of(controller, config, &properties), properties))
    }

    /// Starts a session that is to receive kernel events too, where they are asked for. The interval of samples is set back when it ends, unless it is left running.
    pub(crate) fn start_with_kernel(
        daemon_choice: DaemonChoice,
        config: &mut SessionConfig,
        events: &KernelEvents,
        providers: &[Wanted],
    ) -> Result<(Self, Properties)> {
        kernel::with_kernel(config, events, events.kernel.as_ref(), providers);
        let mut controller = find_or_start(daemon_choice)?;
        let interval_before = kernel::choose_interval(&mut controller, events)?;
        let started = start(&mut controller, config, providers);
        let started =
            match started.as_ref().err().and_then(|error| kernel::own_part(error, events.kernel.as_ref())) {
                Some(part) => {
                    kernel::with_kernel(config, events, Some(&part), providers);
                    start(&mut controller, config, providers).map(|properties| (properties, Some(part)))
                }
                None => started.map(|properties| (properties, events.kernel.clone())),
            };
        let (properties, kernel) = started.inspect_err(|_| {
            if let Some(interval) = interval_before {
                // What failed before is what gets reported.
                let _ = kernel::set_interval(&mut controller, interval);
            }
        })?;
        let mut own = Self::of(controller, config, &properties);
        own.interval_before = interval_before;
        if let Some(note) = kernel::stack_limit_note(config.stack_bytes, properties.config.stack_bytes) {
            eprintln!("note: {note}");
        }
        if let Some(kernel) = &kernel {
            kernel::ask_further(&mut own.controller, &own.session, kernel)?;
            let asked = events.kernel.as_ref().unwrap_or(kernel);
            kernel::tell_limits(&asked.groups, &kernel.groups);
        }
        Ok((own, properties))
    }

    fn of(controller: Controller, config: &SessionConfig, properties: &Properties) -> Self {
        let (session, name) = (SessionRef::Id(properties.id), config.name.clone());
        Self { controller, session, name, is_over: false, interval_before: None }
    }

    /// Enables providers, in these processes or in all.
    pub(crate) fn enable(&mut self, providers: &[Wanted], pids: &[u32]) -> Result<()> {
        for wanted in providers {
            enable(&mut self.controller, &self.session, wanted, pids)?;
        }
        Ok(())
    }

    fn set_interval_back(&mut self) {
        if let Some(interval) = self.interval_before.take() {
            // What failed before is what gets reported.
            let _ = kernel::set_interval(&mut self.controller, interval);
        }
    }

    /// Which it is.
    pub(crate) fn session(&self) -> &SessionRef {
        &self.session
    }

    /// How it is; `None` when it is no longer there.
    pub(crate) fn query(&mut self) -> Result<Option<Properties>> {
        if self.is_over {
            return Ok(None);
        }
        match self.controller.query(&self.session) {
            Ok(properties) => Ok(Some(properties)),
            Err(error) if is_gone(&error) => {
                self.is_over = true;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it is known to have ended, or to be left to itself.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The daemon it runs in.
    pub(crate) fn controller(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// Collects everything and finalises the file, unless that has been done before.
    pub(crate) fn stop(mut self) -> Result<Ended> {
        self.is_over = true;
        let stopped = self.controller.stop(&self.session);
        // Behind the stop: it would be told in the trace, whose samples all have one interval.
        self.set_interval_back();
        match stopped {
            Ok(properties) if properties.end_status == 0 => Ok(Ended::ByUs(properties)),
            Ok(properties) => Ok(Ended::Before(properties)),
            Err(error) if is_gone(&error) || is_stopping(&error) || is_cut(&error) => Ok(self.outcome()),
            Err(error) => Err(error).with_context(|| format!("cannot stop session {}", plain(&self.name))),
        }
    }

    /// How it ended, once it has; a daemon that knows nothing of it is another one.
    pub(crate) fn outcome(&mut self) -> Ended {
        let started = Instant::now();
        loop {
            match self.controller.outcome(&self.session) {
                Ok(outcome) => return Ended::Before(outcome),
                // Somebody else is stopping it.
                Err(_) if started.elapsed() < STOPPING && self.controller.query(&self.session).is_ok() => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(_) => return Ended::WithDaemon(self.controller.socket().to_owned()),
            }
        }
    }

    /// Lets it run on.
    pub(crate) fn leave_running(&mut self) {
        self.is_over = true;
        self.interval_before = None;
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if !self.is_over {
            // What failed before is what gets reported.
            let _ = self.controller.stop(&self.session);
        }
        self.set_interval_back();
    }
}

/// Starts a session in this daemon.
fn start(controller: &mut Controller, config: &SessionConfig, providers: &[Wanted]) -> Result<Properties> {
    let about = || format!("cannot start session {}", plain(&config.name));
    // Before the start, which empties the file: an old trace is not given for a session that cannot be.
    check_enables(&controller.providers()?, providers).with_context(about)?;
    let guids: Vec<Guid> = providers.iter().map(|it| it.guid).collect();
    controller.check_enables(&guids).with_context(about)?;
    controller.start(config).with_context(about)
}

/// Whether an error says that there is no such session, any more or at all.
pub(crate) fn is_gone(error: &Error) -> bool {
    error.status() == Status::ERROR_WMI_INSTANCE_NOT_FOUND
}

fn is_stopping(error: &Error) -> bool {
    error.status() == Status::ERROR_ACTIVE_CONNECTIONS
}

/// Whether the daemon went away in the middle of it.
pub(crate) fn is_cut(error: &Error) -> bool {
    error.is_disconnect()
}

/// Refuses what the daemon would refuse once the session runs, as far as it can be seen ahead.
fn check_enables(known: &[ProviderEntry], wanted: &[Wanted]) -> Result<()> {
    for wanted in wanted {
        let is_group = wanted.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
        let entry = known.iter().find(|it| it.provider == wanted.guid && it.is_group == is_group);
        if entry.is_some_and(|it| it.sessions.len() >= MAX_SESSIONS_PER_PROVIDER) {
            let name = plain(&wanted.name);
            let why = format!("eight sessions enable {name} already: stop one; nothing was changed");
            return Err(Error::refused(Status::ERROR_NO_SYSTEM_RESOURCES, why).into());
        }
    }
    Ok(())
}

fn enable(controller: &mut Controller, session: &SessionRef, wanted: &Wanted, pids: &[u32]) -> Result<()> {
    let params = wanted.params(pids);
    let (guid, name, code) = (wanted.guid, wanted.called(), EnableCode::Enable);
    let done = controller.enable_named(session, guid, name, code, &params, ENABLE_TIMEOUT_MS);
    tell_of_delay(done).with_context(|| format!("cannot enable {}", plain(&wanted.name)))
}

/// A process that takes its time is no failure: the provider is enabled, and takes it up when it can.
pub(crate) fn tell_of_delay(done: traceweir::Result<()>) -> Result<()> {
    match done {
        Err(error) if error.status() == Status::ERROR_TIMEOUT => {
            let status = numbered(Some(error.status()));
            eprintln!("warning: some processes have not taken it up yet: {error}{status}");
            Ok(())
        }
        done => Ok(done?),
    }
}
