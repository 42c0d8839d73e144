//! `weir list`: lists the sessions of a daemon, including those that ended by themselves.

use anstream::eprintln;
use anyhow::Result;
use traceweir::controller::Controller;
use traceweir::session::SessionSummary;

use super::providers;
use crate::cli::{ListArgs, ListProvidersArgs};
use crate::exit::Outcome;
use crate::output::Output;
use crate::sessions::{self, SessionState, is_at_limit, mode_names};
use crate::text::{grouped, lines, plain, table};

/// Runs `weir list`.
pub(super) fn run(options: &ListArgs) -> Result<Outcome> {
    if options.providers {
        return providers::run(&ListProvidersArgs {
            pattern: None,
            json: options.json,
            daemon_choice: options.daemon_choice,
        });
    }
    let Some(mut controller) = sessions::find_daemon(options.daemon_choice)? else {
        let message = "no daemon is running, so there is no session (weir start and weir record start one)";
        eprintln!("{}", sessions::no_daemon_message(options.daemon_choice, message));
        return Ok(Outcome::Fine);
    };
    let sessions = running_and_failed_sessions(&mut controller)?;
    let text = if options.json {
        let providers = controller.providers()?;
        lines(sessions.iter().map(|(p, state)| sessions::format_json(p, *state, &providers, None)))
    } else {
        session_table(&sessions)
    };
    let mut output = Output::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()?;
    Ok(Outcome::Fine)
}

/// Returns the running sessions, then those that ended by themselves and have not been started
/// again.
fn running_and_failed_sessions(controller: &mut Controller) -> Result<Vec<(SessionSummary, SessionState)>> {
    let mut all: Vec<_> = controller.sessions()?.into_iter().map(|p| (p, SessionState::Running)).collect();
    for ended in controller.ended_sessions()? {
        let is_same = |p: &SessionSummary| p.name.to_lowercase() == ended.name.to_lowercase();
        let by_itself = ended.end_status.is_some() || is_at_limit(&ended);
        if by_itself && !all.iter().any(|(p, _)| is_same(p)) {
            all.push((ended, SessionState::Ended));
        }
    }
    Ok(all)
}

/// Appended to the number of lost events if more were lost that could not be counted.
const UNCOUNTED_SUFFIX: &str = "+?";

fn session_table(sessions: &[(SessionSummary, SessionState)]) -> String {
    if sessions.is_empty() {
        eprintln!("no session is running");
        return String::new();
    }
    const HEAD: [&str; 10] = [
        "Name",
        "Type",
        "Status",
        "Events",
        "Lost",
        "Lost buffers",
        "Undelivered",
        "Processes",
        "Mode",
        "File",
    ];
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(sessions.iter().map(|(p, state)| {
        let file = p.log_file.as_ref().map_or_else(|| "-".to_owned(), |f| f.display().to_string());
        let (mut lost, undelivered) = (grouped(p.events_lost), grouped(p.real_time_events_lost));
        if p.uncounted_processes > 0 {
            lost.push_str(UNCOUNTED_SUFFIX);
        }
        let buffers = grouped(p.buffers_lost.into());
        let (name, mode) = (plain(&p.name), mode_names(p.mode));
        let (status, processes) = (sessions::format_status(p, *state), p.processes.to_string());
        let events = grouped(p.events);
        let kind = "Trace".to_owned();
        [name, kind, status, events, lost, buffers, undelivered, processes, mode, plain(&file)]
    }));
    explain_losses(sessions);
    table(&rows, &[false, false, false, true, true, true, true, true, false, false])
}

/// Prints what the columns of losses mean, if there are losses.
fn explain_losses(sessions: &[(SessionSummary, SessionState)]) {
    let any = |count: fn(&SessionSummary) -> u64| sessions.iter().any(|(p, _)| count(p) > 0);
    if any(|p| p.events_lost) {
        eprintln!("Lost: events that reached neither file nor consumer; weir query NAME shows the causes");
    }
    if any(|p| p.uncounted_processes.into()) {
        eprintln!(
            "{UNCOUNTED_SUFFIX}: processes lost an unknown number of events; weir query NAME shows how many processes"
        );
    }
    if any(|p| p.buffers_lost.into()) {
        eprintln!("Lost buffers: full buffers that could not be written; their events count as lost");
    }
    if any(|p| p.real_time_events_lost) {
        eprintln!(
            "Undelivered: events that no live consumer received, because none was connected or it was too slow; a log file contains them"
        );
    }
}
