//! A live session whose events are counted: one for providers, one for the kernel; and what threads
//! report to the loop of the screen.
//!
//! ```text
//!   session ──▶ reader thread ──▶ shared tables
//!          └──▶ status thread ──▶ losses, once a second
//! ```

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::KeyEvent;
use traceweir::consumer::Trace;
use traceweir::session::SessionSummary;
use traceweir::{ControlCode, EnableProperties};
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::live;
use traceweir_analysis::schema_files::SchemaFiles;

use super::events::{EventCounter, EventTables, lock};
use super::kernel::{KernelCounter, KernelTables};
use super::names::find_program_name;
use crate::cli::{DaemonChoice, KernelEvents};
use crate::cmd::record::BackgroundRecording;
use crate::grammar::{EnableRequest, KernelSelection, StackSelection, parse_kernel};
use crate::progress::TerminalObserver;
use crate::sessions::{self, SessionEnd, SessionPlan, StartedSession};
use crate::text::escape;

/// The kernel events that the kernel's tab needs.
const KERNEL_GROUPS: &str = "process,thread,cswitch,dispatcher,disk_io,network_tcpip,no_sysconfig";
/// How often the losses of a session are polled.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Which events a feed counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedKind {
    Events,
    Kernel,
}

/// A report of a thread.
pub(super) enum Message {
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// SIGINT, SIGTERM or SIGHUP, or the end of the terminal.
    Quit,
    /// SIGTSTP.
    Suspend,
    /// SIGCONT.
    Continue,
    /// The session of a feed ended, or cannot be read.
    FeedEnded(FeedKind, Result<()>),
    /// How many events the session of a feed has lost.
    Lost(FeedKind, u64),
    /// A request of the user was carried out.
    Done(Box<Result<Outcome>>),
}

/// The result of a request of the user.
pub(super) enum Outcome {
    FeedStarted(Feed),
    /// All enables of the session, and what changed.
    Enabled(Vec<EnableRequest>, String),
    RecordingStarted(Box<BackgroundRecording>),
    /// The file was finalised.
    RecordingEnded,
}

/// A running session, and the threads that read it.
pub(super) struct Feed {
    pub(super) kind: FeedKind,
    session: Arc<Mutex<Option<StartedSession>>>,
}

/// What every feed needs.
#[derive(Clone)]
pub(super) struct FeedContext {
    pub(super) daemon_choice: DaemonChoice,
    pub(super) schemas: SchemaFiles,
    pub(super) messages: Sender<Message>,
}

/// Returns the kernel events that the kernel's tab needs.
pub(super) fn kernel_selection() -> Result<KernelSelection> {
    parse_kernel(KERNEL_GROUPS).map_err(anyhow::Error::msg)
}

impl Feed {
    /// Starts a session of providers.
    pub(super) fn start_events(
        context: &FeedContext,
        requests: &[EnableRequest],
        tables: Arc<Mutex<EventTables>>,
    ) -> Result<Self> {
        let (mut session, trace) = start_session("weir-top", context, &KernelEvents::default(), requests)?;
        session.enable(requests)?;
        sessions::note_unseen_providers(session.controller(), requests)?;
        sessions::note_filters_without_match(requests);
        let mut counter = EventCounter::new(tables, find_program_name);
        let (schemas, observer) = (context.schemas.clone(), TerminalObserver::create(true));
        let read = move || {
            live::read_records(trace, &schemas, &*observer, |event, live| {
                counter.count_event(event, &mut live.decoder);
                Ok(ReadFlow::Continue)
            })
            .map(drop)
        };
        Self::run(FeedKind::Events, session, context, read)
    }

    /// Starts a session of kernel events.
    pub(super) fn start_kernel(context: &FeedContext, tables: Arc<Mutex<KernelTables>>) -> Result<Self> {
        let events = KernelEvents {
            kernel: Some(kernel_selection()?),
            stacks: Some(StackSelection::None),
            ..KernelEvents::default()
        };
        let (session, trace) = start_session("weir-top-kernel", context, &events, &[])?;
        let mut counter = KernelCounter::new(tables);
        let observer = TerminalObserver::create(true);
        let read = move || {
            live::read_records(trace, &SchemaFiles::default(), &*observer, |event, live| {
                counter.count(event.record, event.time, event.clock, live);
                Ok(ReadFlow::Continue)
            })
            .map(drop)
        };
        Self::run(FeedKind::Kernel, session, context, read)
    }

    fn run(
        kind: FeedKind,
        session: StartedSession,
        context: &FeedContext,
        read: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let session = Arc::new(Mutex::new(Some(session)));
        let messages = context.messages.clone();
        // A failed send means that the screen has ended.
        let read = move || drop(messages.send(Message::FeedEnded(kind, read())));
        thread::Builder::new().name("events".to_owned()).spawn(read).context("cannot start a thread")?;
        let (polled, messages) = (Arc::clone(&session), context.messages.clone());
        let poll = move || {
            while let Some(lost) = query_losses(&polled) {
                if messages.send(Message::Lost(kind, lost)).is_err() {
                    return;
                }
                thread::sleep(STATUS_INTERVAL);
            }
        };
        thread::Builder::new().name("status".to_owned()).spawn(poll).context("cannot start a thread")?;
        Ok(Self { kind, session })
    }

    /// Returns the session, for requests of other threads.
    pub(super) fn session(&self) -> SharedSession {
        SharedSession(Arc::clone(&self.session))
    }

    /// Stops the session. Returns `None` if it was stopped before.
    pub(super) fn stop(&self) -> Result<Option<SessionEnd>> {
        let session = lock(&self.session).take();
        session.map(StartedSession::stop).transpose()
    }
}

/// The session of a feed, while it runs.
pub(super) struct SharedSession(Arc<Mutex<Option<StartedSession>>>);

impl SharedSession {
    /// Calls `request` with the session.
    pub(super) fn with<T>(&self, request: impl FnOnce(&mut StartedSession) -> Result<T>) -> Result<T> {
        match lock(&self.0).as_mut() {
            Some(session) => request(session),
            None => bail!("the session has ended"),
        }
    }
}

/// Disables providers in a session.
pub(super) fn disable(session: &StartedSession, requests: &[EnableRequest]) -> Result<()> {
    let session = session.session();
    for request in requests {
        let call = session.request(request.guid, ControlCode::Disable);
        let call = call.properties(EnableProperties::new(request.property));
        call.apply().with_context(|| format!("cannot disable {}", escape(&request.name)))?;
    }
    Ok(())
}

fn start_session(
    name_prefix: &str,
    context: &FeedContext,
    kernel: &KernelEvents,
    requests: &[EnableRequest],
) -> Result<(StartedSession, Trace)> {
    let mut plan = SessionPlan::temporary(name_prefix);
    // Rates need no event at once, and larger portions cost less.
    plan.low_latency = false;
    let (session, _) = StartedSession::start_with_kernel(context.daemon_choice, &mut plan, kernel, requests)?;
    let trace = session.session().trace()?;
    Ok((session, trace))
}

/// Returns the number of events that a session has lost; `None` once it has ended.
fn query_losses(session: &Mutex<Option<StartedSession>>) -> Option<u64> {
    let summary = lock(session).as_mut()?.query().ok()??;
    Some(count_losses(&summary))
}

fn count_losses(summary: &SessionSummary) -> u64 {
    summary.events_lost.saturating_add(summary.real_time_events_lost)
}
