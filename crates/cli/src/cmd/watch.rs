//! `weir watch`: prints live events, decoded.
//!
//! ```text
//!   weir watch SESSION        attaches ──▶ events ──▶ detaches; the session runs on
//!   weir watch -p PROVIDER    starts a real-time session ──▶ attaches ──▶ events ──▶ stops it
//!   weir watch --kernel WHAT  the same, with kernel events
//! ```

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result, anyhow, bail};
use traceweir::Error;
use traceweir::consumer::{Closer, Trace};
use traceweir::relog::is_context;
use traceweir::session::ProcessTree;
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::live;
use traceweir_analysis::processes;
use traceweir_decode::format::Style;
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::kernel::providers::kernel_provider_name;

use crate::cli::{self, KernelEvents, OutputFormat, WatchArgs};
use crate::exit::{self, CommandOutcome};
use crate::grammar::{EnableRequest, StackSelection, parse_provider};
use crate::printer::EventPrinter;
use crate::progress::TerminalObserver;
use crate::screen::Screen;
use crate::sessions::{self, SessionEnd, SessionPlan, StartedSession};
use crate::signals::{self, INTERRUPTED};
use crate::text::{escape, escape_path, format_count};

pub(super) fn run(options: &WatchArgs) -> Result<CommandOutcome> {
    if options.session.is_none() {
        cli::check_pid_count(&options.filters.pid);
    }
    let mut requests = options.providers.resolve(&options.schemas.manifest)?;
    if requests.is_empty() && options.session.is_none() && options.kernel.is_none() {
        requests.push(parse_provider("*").map_err(|reason| anyhow!("{reason}"))?);
    }
    if options.session.is_some() && requests.iter().any(|request| !request.can_check_all_filters()) {
        cli::exit_with_conflict(
            "events contain no program, package, application or container, and weir compares neither names \
             nor payloads: @exe, @package, @app, @container, @names, @not-names, @payload and @schematized \
             cannot filter a running session (--event filters by name)",
        );
    }
    let WatchedTrace { trace, stopper } = WatchedTrace::open(options, &requests)?;
    let interrupt_stopper = stopper.clone();
    signals::handle_interrupts(move |count| {
        if count > 1 {
            std::process::exit(INTERRUPTED.into());
        }
        interrupt_stopper.stop();
    })?;
    if std::io::stdout().is_terminal() {
        eprintln!("watching; Ctrl-C ends it");
    }
    let timer = options.duration.map(|duration| stop_after(duration, stopper.clone()));
    let result = print_events(options, &requests, trace);
    drop(timer);
    let is_stop_requested = stopper.is_stop_requested();
    let session_end = stopper.take_session_end();
    let lost = match result {
        // The reader closed the pipe.
        Err(error) if exit::is_closed_pipe(&error) => return Ok(CommandOutcome::Fine),
        Err(error) if is_daemon_disconnect(&error) => {
            return Err(daemon_ended_error(options, session_end.ok().as_ref()));
        }
        result => result?,
    };
    if !is_stop_requested && options.filters.head.is_none() {
        print_reason_of_end(options, session_end.as_ref().ok());
    }
    if lost.events > 0 || lost.buffers > 0 {
        let (events, buffers) = (format_count(lost.events, "event"), format_count(lost.buffers, "buffer"));
        eprintln!("warning: {events} and {buffers} were lost before weir received them");
        return Ok(CommandOutcome::EventsLost);
    }
    Ok(match session_end? {
        Some(SessionEnd::ByUs(mut summary) | SessionEnd::BeforeStop(mut summary)) => {
            if options.filters.head.is_some() {
                // Losses after `--head` was reached do not count.
                (summary.real_time_events_lost, summary.real_time_buffers_lost) = (0, 0);
            }
            sessions::report_losses(&summary, true)
        }
        Some(SessionEnd::WithDaemon(_)) | None => CommandOutcome::Fine,
    })
}

/// Prints why the events ended. Called only if neither a signal nor an option ended the watching.
/// `session_end` is `None` if the end of the session is unknown, and `Some(None)` if weir did not
/// start the session.
fn print_reason_of_end(options: &WatchArgs, session_end: Option<&Option<SessionEnd>>) {
    match (session_end, &options.session) {
        (Some(Some(SessionEnd::BeforeStop(summary))), _) if summary.end_status.is_none() => {
            eprintln!("the session was stopped by another process")
        }
        (Some(Some(SessionEnd::BeforeStop(summary))), _) => eprintln!("{}", sessions::describe_end(summary)),
        (_, Some(name)) => {
            let ended = sessions::connect_to_session(options.daemon_choice, name)
                .and_then(|(controller, session)| Ok((controller, session.outcome()?)));
            match ended {
                Ok((controller, summary)) => {
                    eprintln!("{}", sessions::describe_end(&summary));
                    sessions::dismiss_ended(&controller, &summary);
                }
                Err(_) => eprintln!("session {} has ended", escape(name)),
            }
        }
        _ => {}
    }
}

fn is_daemon_disconnect(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<Error>().is_some_and(sessions::is_disconnect))
}

fn daemon_ended_error(options: &WatchArgs, session_end: Option<&Option<SessionEnd>>) -> anyhow::Error {
    let location = match session_end {
        Some(Some(SessionEnd::WithDaemon(socket))) => format!(" at {}", escape_path(socket)),
        _ => String::new(),
    };
    let session = options
        .session
        .as_ref()
        .map_or_else(|| "the session".to_owned(), |n| format!("session {}", escape(n)));
    anyhow!("the daemon{location} has ended, and {session} with it")
}

fn print_events(
    options: &WatchArgs,
    requests: &[EnableRequest],
    trace: Trace,
) -> Result<traceweir::consumer::Lost> {
    let screen = Screen::open()?;
    let mut typed_filters = options.filters.clone();
    // A temporary session contains only events of the requested providers, and only those of the
    // requested processes, except that events of manifest providers of the kernel cover the machine.
    let filtering_requests = if options.session.is_some() { requests } else { &[] };
    let covers_machine = |request: &EnableRequest| kernel_provider_name(&request.guid).is_some();
    if options.session.is_none() && !requests.iter().any(covers_machine) {
        typed_filters.pid.clear();
    }
    let filter = EventFilter::new(&typed_filters.criteria(), trace.header().start_time);
    let hides_context = options.format == OutputFormat::Text;
    let own_pid = std::process::id();
    let style = Style { numeric: options.numeric };
    let mut printer = EventPrinter::new(&filter, options.format, style, options.show, screen.is_colourful());
    screen.write_with(|out| printer.write_start(out))?;
    let lost = live::read_events(
        trace,
        &options.schemas.files(),
        &*TerminalObserver::create(true),
        |record, time| {
            filter.accepts_header(record, time)
                && (filtering_requests.is_empty()
                    || filtering_requests.iter().any(|request| request.enables_event(record)))
        },
        |event| {
            // Printing an event of this process would cause further events.
            let is_own = options.kernel.is_some() && event.actor.is_some_and(|actor| actor.pid == own_pid);
            if is_own || hides_context && describes_state(&event.record) {
                return Ok(ReadFlow::Continue);
            }
            screen.write_with(|out| printer.print_event(event, out))
        },
    )?;
    screen.write_with(|out| printer.write_end(out))?;
    screen.flush()?;
    printer.report_undecoded();
    Ok(lost)
}

/// Returns whether an event describes a state, such as the processes and open files at the start of
/// the session, rather than something that happened.
fn describes_state(record: &Record<'_>) -> bool {
    let states = [hook::KERNEL_BASE, hook::PROFILE_START, hook::FILE_NAME, hook::FILE_NAME_RUNDOWN];
    is_context(record) || record.hook().is_some_and(|hook| states.contains(&hook))
}

/// An opened session, and the means to stop watching it.
struct WatchedTrace {
    trace: Trace,
    stopper: WatchStopper,
}

impl WatchedTrace {
    fn open(options: &WatchArgs, requests: &[EnableRequest]) -> Result<Self> {
        if let Some(name) = &options.session {
            let context = || format!("cannot watch session {}", escape(name));
            let found = sessions::find_session(options.daemon_choice, name).with_context(context)?;
            if let Some(summary) = &found.summary {
                sessions::check_is_live(summary, options.daemon_choice).with_context(context)?;
            }
            drop(found);
            let trace = Trace::live_in(options.daemon_choice.scope(), name).with_context(context)?;
            let stopper = WatchStopper::new(trace.closer(), None);
            return Ok(Self { trace, stopper });
        }
        let mut requests = requests.to_vec();
        requests.iter_mut().for_each(|request| request.set_trees(&options.filters.pid));
        if let Some(missing) = options.filters.pid.iter().find(|pid| !processes::exists(**pid)) {
            bail!("cannot watch process {missing}: no process has this id");
        }
        let requests = &requests;
        let mut plan = SessionPlan::temporary("weir-watch");
        plan.kernel_scope = options.filters.pid.iter().map(|pid| ProcessTree::new(*pid)).collect();
        let (mut session, _) = StartedSession::start_with_kernel(
            options.daemon_choice,
            &mut plan,
            &kernel_events(options),
            requests,
        )?;
        let trace = session.session().trace()?;
        session.enable(requests)?;
        if options.filters.pid.is_empty() {
            sessions::note_unseen_providers(session.controller(), requests)?;
        } else {
            sessions::check_owners(session.controller(), requests, &options.filters.pid)?;
            sessions::warn_of_unregistered(session.controller(), requests, &options.filters.pid)?;
        }
        sessions::note_filters_without_match(requests);
        let stopper = WatchStopper::new(trace.closer(), Some(session));
        Ok(Self { trace, stopper })
    }
}

/// Returns the kernel events to watch. Call stacks are recorded if they are printed.
fn kernel_events(options: &WatchArgs) -> KernelEvents {
    let stacks = if options.show.stacks { StackSelection::Default } else { StackSelection::None };
    KernelEvents {
        kernel: options.kernel.clone(),
        stacks: options.kernel.is_some().then_some(stacks),
        ..KernelEvents::default()
    }
}

/// Stops the watching from any thread.
#[derive(Clone)]
struct WatchStopper {
    closer: Closer,
    session: Arc<Mutex<TemporarySession>>,
}

/// The session that weir started, if any: the running session, or how it ended.
struct TemporarySession {
    running: Option<StartedSession>,
    ended: Result<Option<SessionEnd>>,
    /// Whether a signal or an option requested the end.
    is_stop_requested: bool,
}

impl WatchStopper {
    fn new(closer: Closer, session: Option<StartedSession>) -> Self {
        let session = TemporarySession { running: session, ended: Ok(None), is_stop_requested: false };
        Self { closer, session: Arc::new(Mutex::new(session)) }
    }

    /// Stops a temporary session, so that its remaining events are printed. If weir did not start
    /// the session, disconnects from it at once.
    fn stop(&self) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.is_stop_requested = true;
        match session.running.take() {
            Some(started) => session.ended = started.stop().map(Some),
            None => self.closer.close(),
        }
    }

    fn is_stop_requested(&self) -> bool {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).is_stop_requested
    }

    /// Returns how the temporary session ended, and stops it if it still runs.
    fn take_session_end(&self) -> Result<Option<SessionEnd>> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = session.running.take() {
            return started.stop().map(Some);
        }
        std::mem::replace(&mut session.ended, Ok(None))
    }
}

/// Stops the watching after `duration`, unless the returned sender is dropped before.
fn stop_after(duration: Duration, stopper: WatchStopper) -> Sender<()> {
    let (cancel, cancelled) = channel();
    std::thread::spawn(move || {
        if cancelled.recv_timeout(duration) == Err(RecvTimeoutError::Timeout) {
            stopper.stop();
        }
    });
    cancel
}
