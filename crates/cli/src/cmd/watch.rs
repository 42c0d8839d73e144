//! `weir watch`: prints live events, decoded.
//!
//! ```text
//!   weir watch SESSION        attaches ──▶ events ──▶ detaches; the session runs on
//!   weir watch -p PROVIDER    starts a real-time session ──▶ attaches ──▶ events ──▶ stops it
//! ```

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result, anyhow};
use traceweir::LogFileMode;
use traceweir::consumer::{Closer, Trace};
use traceweir_decode::format::Style;

use crate::cli::{self, WatchArgs};
use crate::exit::{self, Outcome};
use crate::filter::Filter;
use crate::grammar::EnableRequest;
use crate::live::{self, Screen};
use crate::printer::Printer;
use crate::sessions::{self, SessionEnd, SessionPlan, StartedSession};
use crate::signals::{self, INTERRUPTED};
use crate::text::{counted, plain, plain_path};

/// Runs `weir watch`.
pub(super) fn run(options: &WatchArgs) -> Result<Outcome> {
    let requests = options.providers.resolve(&options.schemas.manifest)?;
    if options.session.is_some() && requests.iter().any(|w| !w.can_match_events()) {
        cli::misuse(
            "events contain no program, package, application or container, and names are chosen with --event: \
             these options cannot filter a running session",
        );
    }
    let source = Source::open(options, &requests)?;
    let Source { trace, ender } = source;
    let interrupt_ender = ender.clone();
    signals::on_interrupt(move |count| {
        if count > 1 {
            std::process::exit(INTERRUPTED.into());
        }
        interrupt_ender.end();
    })?;
    let timer = options.duration.map(|duration| end_after(duration, ender.clone()));
    let watched = print(options, &requests, trace);
    drop(timer);
    let is_asked = ender.is_asked();
    let last = ender.finish();
    let lost = match watched {
        // The reader closed the pipe.
        Err(error) if exit::is_closed_pipe(&error) => return Ok(Outcome::Fine),
        Err(error) if is_cut(&error) => return Err(daemon_ended_error(options, last.ok().as_ref())),
        watched => watched?,
    };
    if !is_asked && options.filters.head.is_none() {
        print_reason_of_end(options, last.as_ref().ok());
    }
    if lost.events > 0 || lost.buffers > 0 {
        let (events, buffers) = (counted(lost.events, "event"), counted(lost.buffers, "buffer"));
        eprintln!("warning: {events} and {buffers} were lost before weir received them");
        return Ok(Outcome::EventsLost);
    }
    Ok(match last? {
        Some(SessionEnd::ByUs(mut p) | SessionEnd::Before(mut p)) => {
            if options.filters.head.is_some() {
                // Losses after `--head` was reached do not count.
                (p.real_time_events_lost, p.real_time_buffers_lost) = (0, 0);
            }
            sessions::report_losses(&p, true)
        }
        Some(SessionEnd::WithDaemon(_)) | None => Outcome::Fine,
    })
}

/// Prints why events ended that neither a signal nor an option ended.
fn print_reason_of_end(options: &WatchArgs, own: Option<&Option<SessionEnd>>) {
    match (own, &options.session) {
        (Some(Some(SessionEnd::Before(p))), _) if p.end_status.is_none() => {
            eprintln!("the session was stopped by another process")
        }
        (Some(Some(SessionEnd::Before(p))), _) => eprintln!("{}", sessions::describe_end(p)),
        (_, Some(name)) => {
            let ended = sessions::connect_to_session(options.daemon_choice, name)
                .and_then(|(_, session)| Ok(session.outcome()?));
            match ended {
                Ok(p) => eprintln!("{}", sessions::describe_end(&p)),
                Err(_) => eprintln!("session {} has ended", plain(name)),
            }
        }
        _ => {}
    }
}

fn is_cut(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<traceweir::Error>().is_some_and(sessions::is_disconnect))
}

fn daemon_ended_error(options: &WatchArgs, own: Option<&Option<SessionEnd>>) -> anyhow::Error {
    let at = match own {
        Some(Some(SessionEnd::WithDaemon(socket))) => format!(" at {}", plain_path(socket)),
        _ => String::new(),
    };
    let session = options
        .session
        .as_ref()
        .map_or_else(|| "the session".to_owned(), |n| format!("session {}", plain(n)));
    anyhow!("the daemon{at} has ended, and {session} with it")
}

fn print(options: &WatchArgs, requests: &[EnableRequest], trace: Trace) -> Result<traceweir::consumer::Lost> {
    let screen = Screen::open()?;
    let filter = Filter::for_all_providers(&options.filters, trace.header().start_time);
    // A temporary session contains only events of these providers.
    let shown_requests = if options.session.is_some() { requests } else { &[] };
    let style = Style { numeric: options.numeric };
    let mut printer = Printer::new(&filter, options.format, style, options.show, screen.is_colourful());
    screen.write(|out| printer.begin(out))?;
    let lost = live::read(
        trace,
        &options.schemas,
        |record, time| {
            filter.wants(record, time)
                && (shown_requests.is_empty() || shown_requests.iter().any(|w| w.enables_event(record)))
        },
        |event| screen.write(|out| printer.event(event, out)),
    )?;
    screen.write(|out| printer.end(out))?;
    screen.flush()?;
    printer.report();
    Ok(lost)
}

/// An opened session, and how to end it.
struct Source {
    trace: Trace,
    ender: Ender,
}

impl Source {
    fn open(options: &WatchArgs, requests: &[EnableRequest]) -> Result<Self> {
        if let Some(name) = &options.session {
            // Looks for the daemon first, for its error message.
            drop(sessions::connect_to_session(options.daemon_choice, name)?);
            let about = || format!("cannot watch session {}", plain(name));
            let trace = Trace::live_in(options.daemon_choice.scope(), name).with_context(about)?;
            let ender = Ender::new(trace.closer(), None);
            return Ok(Self { trace, ender });
        }
        let mut plan = SessionPlan {
            name: format!("weir-watch-{}", std::process::id()),
            mode: LogFileMode::REAL_TIME,
            low_latency: true,
            stop_on_drop: true,
            ..SessionPlan::default()
        };
        plan.fill_in_defaults();
        let (mut session, _) = StartedSession::start(options.daemon_choice, &plan, requests)?;
        let trace = session.session().trace()?;
        session.enable(requests, &options.filters.pid)?;
        if options.filters.pid.is_empty() {
            sessions::note_unseen_providers(session.controller(), requests)?;
        } else {
            sessions::check_pids(session.controller(), requests, &options.filters.pid)?;
        }
        sessions::note_idle_filters(requests);
        let ender = Ender::new(trace.closer(), Some(session));
        Ok(Self { trace, ender })
    }
}

/// Ends the watching once, from any thread.
#[derive(Clone)]
struct Ender {
    closer: Closer,
    session: Arc<Mutex<Temporary>>,
}

/// The temporary session while it runs, and how it ended.
struct Temporary {
    running: Option<StartedSession>,
    ended: Result<Option<SessionEnd>>,
    /// Whether a signal or an option asked for the end.
    is_asked: bool,
}

impl Ender {
    fn new(closer: Closer, session: Option<StartedSession>) -> Self {
        let session = Temporary { running: session, ended: Ok(None), is_asked: false };
        Self { closer, session: Arc::new(Mutex::new(session)) }
    }

    /// Stops a temporary session, so that its remaining events are printed; disconnects from
    /// another session at once.
    fn end(&self) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.is_asked = true;
        match session.running.take() {
            Some(own) => session.ended = own.stop().map(Some),
            None => self.closer.close(),
        }
    }

    fn is_asked(&self) -> bool {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).is_asked
    }

    /// Returns how the temporary session ended, and stops it if it still runs.
    fn finish(&self) -> Result<Option<SessionEnd>> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = session.running.take() {
            return own.stop().map(Some);
        }
        std::mem::replace(&mut session.ended, Ok(None))
    }
}

/// Ends the watching after a while, unless the returned sender is dropped before.
fn end_after(duration: Duration, ender: Ender) -> Sender<()> {
    let (alive, gone) = channel();
    std::thread::spawn(move || {
        if gone.recv_timeout(duration) == Err(RecvTimeoutError::Timeout) {
            ender.end();
        }
    });
    alive
}
