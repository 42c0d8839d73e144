//! `weir list`: lists the sessions of a daemon, and once each session that ended by itself.

use std::fmt::Write;

use anstream::eprintln;
use anyhow::Result;
use traceweir::controller::Controller;
use traceweir::session::SessionSummary;

use super::providers;
use crate::cli::{ListArgs, ListProvidersArgs};
use crate::exit::CommandOutcome;
use crate::output::print_text;
use crate::sessions::{self, SessionState, mode_names};
use crate::text::{ColumnKind, escape, format_count, format_number, format_table_of, join_lines};

pub(super) fn run(options: &ListArgs) -> Result<CommandOutcome> {
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
        return Ok(CommandOutcome::Fine);
    };
    let listed = list_sessions(&mut controller)?;
    let text = if options.json {
        let providers = controller.providers()?;
        join_lines(
            listed.iter().map(|(summary, state)| sessions::format_json(summary, *state, &providers, None)),
        )
    } else {
        format_session_table(&listed)
    };
    print_text(&text)?;
    // A person has now seen how these sessions ended. Programs that read the JSON may poll.
    if !options.json {
        let ended = listed.iter().filter(|(_, state)| *state == SessionState::Ended);
        ended.for_each(|(summary, _)| sessions::dismiss_ended(&controller, summary));
    }
    Ok(CommandOutcome::Fine)
}

/// Returns the running sessions, then the sessions that ended by themselves and were not started
/// again.
fn list_sessions(controller: &mut Controller) -> Result<Vec<(SessionSummary, SessionState)>> {
    let mut sessions: Vec<_> =
        controller.sessions()?.into_iter().map(|summary| (summary, SessionState::Running)).collect();
    for ended in controller.ended_sessions()? {
        let has_same_name =
            |summary: &SessionSummary| summary.name.to_lowercase() == ended.name.to_lowercase();
        if sessions::has_ended_by_itself(&ended)
            && !sessions.iter().any(|(summary, _)| has_same_name(summary))
        {
            sessions.push((ended, SessionState::Ended));
        }
    }
    Ok(sessions)
}

/// Follows the number of lost events if further events were lost that could not be counted.
const UNKNOWN_LOSS_SUFFIX: &str = "+?";

fn format_session_table(sessions: &[(SessionSummary, SessionState)]) -> String {
    use ColumnKind::{Detail, Number, Path, Status, Text};
    if sessions.is_empty() {
        eprintln!("no session is running");
        return String::new();
    }
    const HEADINGS: [&str; 8] =
        ["Name", "Status", "Events", "Lost", "Undelivered", "Processes", "Mode", "File"];
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(sessions.iter().map(|(summary, state)| {
        let file = summary.log_file.as_ref().map_or_else(|| "-".to_owned(), |f| f.display().to_string());
        let mut lost = format_number(summary.events_lost);
        if summary.uncounted_processes > 0 {
            lost.push_str(UNKNOWN_LOSS_SUFFIX);
        }
        if summary.buffers_lost > 0 {
            let _ = write!(lost, " in {}", format_count(summary.buffers_lost.into(), "buffer"));
        }
        [
            escape(&summary.name),
            sessions::format_status(summary, *state),
            format_number(summary.events),
            lost,
            format_number(summary.real_time_events_lost),
            format_number(summary.processes.into()),
            mode_names(summary.mode),
            escape(&file),
        ]
    }));
    explain_losses(sessions);
    format_table_of(&rows, &[Text, Status, Number, Number, Number, Number, Detail, Path])
}

/// Explains the columns of losses that are not zero.
fn explain_losses(sessions: &[(SessionSummary, SessionState)]) {
    let has_any = |count: fn(&SessionSummary) -> u64| sessions.iter().any(|(summary, _)| count(summary) > 0);
    if has_any(|summary| summary.events_lost) {
        eprintln!("Lost: events that reached neither file nor consumer; weir query NAME shows the causes");
    }
    if has_any(|summary| summary.uncounted_processes.into()) {
        eprintln!(
            "{UNKNOWN_LOSS_SUFFIX}: processes lost an unknown number of events; weir query NAME shows how many processes"
        );
    }
    if has_any(|summary| summary.buffers_lost.into()) {
        eprintln!("in buffers: full buffers that could not be written; their events count as lost");
    }
    if has_any(|summary| summary.real_time_events_lost) {
        eprintln!(
            "Undelivered: events that no live consumer received, because none was connected or it was too slow; a log file contains them"
        );
    }
}
