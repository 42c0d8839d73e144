//! Watches the condition of `--until`.
//!
//! ```text
//!   PROVIDER/EVENT   a temporary live session of this provider ──event──▶ ConditionMet
//!   SIGUSR1          signal ──▶ ConditionMet
//!   file:PATH        checked at each poll
//!   exit!=0          checked when the command ends
//! ```

use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use anyhow::{Result, anyhow, bail};
use traceweir::consumer::Trace;
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::live;
use traceweir_analysis::selection::EventSelection;

use super::{RecordingEvent, setup};
use crate::cli::{self, EventFilterArgs, RecordArgs, SchemaArgs, UntilCondition};
use crate::grammar::parse_provider;
use crate::progress::TerminalObserver;
use crate::sessions::{SessionPlan, StartedSession};
use crate::signals;
use crate::text::escape_path;

/// The watched condition, and what is needed to watch it.
pub(super) struct UntilWatch {
    condition: Option<UntilCondition>,
    event_watch: Option<EventWatch>,
}

impl UntilWatch {
    /// Starts to watch the condition, if one is given.
    pub(super) fn start(options: &RecordArgs, events: &Sender<RecordingEvent>) -> Result<Self> {
        let mut event_watch = None;
        match &options.until {
            Some(UntilCondition::CommandFailure) if options.command.is_empty() => {
                cli::exit_with_conflict("--until 'exit!=0' needs a command: -- CMD")
            }
            Some(UntilCondition::File(path)) if path.exists() => {
                bail!("{} exists already: --until file:PATH waits until it is created", escape_path(path))
            }
            Some(UntilCondition::Signal(signal)) => {
                let events = events.clone();
                signals::handle_user_signal(*signal, move || {
                    drop(events.send(RecordingEvent::ConditionMet));
                })?;
            }
            Some(UntilCondition::Event { provider, event, text }) => {
                let filter = EventFilterArgs {
                    event: vec![event.clone()],
                    grep: text.clone(),
                    ..EventFilterArgs::default()
                };
                event_watch = Some(EventWatch::start(options, provider, filter, events.clone())?);
            }
            _ => {}
        }
        Ok(Self { condition: options.until.clone(), event_watch })
    }

    /// Stops watching for an event, and returns whether it was among the last events.
    pub(super) fn stop_watching(&mut self) -> bool {
        self.event_watch.take().is_some_and(EventWatch::finish)
    }

    pub(super) fn is_given(&self) -> bool {
        self.condition.is_some()
    }

    /// Returns the file that ends the recording when it is created.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.condition {
            Some(UntilCondition::File(path)) => Some(path),
            _ => None,
        }
    }

    /// Returns whether the end of the command meets the condition.
    pub(super) fn is_met_by_end(&self, status: ExitStatus) -> bool {
        self.condition == Some(UntilCondition::CommandFailure) && !status.success()
    }
}

/// A live session that waits for an event.
struct EventWatch {
    session: StartedSession,
    /// Returns whether the event arrived.
    reader: JoinHandle<bool>,
}

impl EventWatch {
    /// Starts a live session of a provider, and sends an event when a matching event arrives.
    fn start(
        options: &RecordArgs,
        provider: &str,
        filter: EventFilterArgs,
        events: Sender<RecordingEvent>,
    ) -> Result<Self> {
        let mut request = parse_provider(provider).map_err(|reason| anyhow!("{reason}"))?;
        request.set_trees(&setup::tree_roots(options));
        let plan = SessionPlan::temporary("weir-until");
        let requests = [request];
        let (session, _) = StartedSession::start(options.daemon_choice, &plan, &requests)?;
        let trace = session.session().trace()?;
        session.enable(&requests)?;
        let schemas = SchemaArgs { manifest: options.manifest.clone(), ..SchemaArgs::default() };
        let reader = std::thread::spawn(move || {
            let is_met = wait_for_event(trace, &schemas, &filter);
            if is_met {
                drop(events.send(RecordingEvent::ConditionMet));
            }
            is_met
        });
        Ok(Self { session, reader })
    }

    /// Stops the session, which delivers its last events, and returns whether the event arrived.
    fn finish(self) -> bool {
        drop(self.session);
        self.reader.join().unwrap_or(false)
    }
}

/// Waits for an event that passes the filter; returns `false` if the session ended before.
fn wait_for_event(trace: Trace, schemas: &SchemaArgs, filter: &EventFilterArgs) -> bool {
    let filter = EventFilter::new(&filter.criteria(), trace.header().start_time);
    let mut selection = EventSelection::new(&filter);
    let mut is_met = false;
    // If the session ends, the recording ends for other reasons.
    let _ = live::read_events(
        trace,
        &schemas.files(),
        &*TerminalObserver::create(true),
        |record, time| filter.accepts_header(record, time),
        |event| {
            is_met = selection.accepts(event);
            Ok(if is_met { ReadFlow::Stop } else { ReadFlow::Continue })
        },
    );
    is_met
}
