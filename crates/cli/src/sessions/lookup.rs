//! Finds a session by name, and explains a name that no running session has.

use anyhow::{Result, anyhow};
use traceweir::controller::Controller;
use traceweir::session::SessionSummary;
use traceweir::{Error, LogFileMode, Session, Status};

use super::report::describe_end;
use super::{find_daemon, is_gone};
use crate::cli::DaemonChoice;
use crate::exit::with_hint;
use crate::text::{escape, quote_for_shell, suggest_names};

/// Maximum number of running sessions that a hint names.
const MAX_NAMED_SESSIONS: usize = 5;

/// A running session, with the connection to its daemon.
pub(crate) struct FoundSession {
    pub(crate) controller: Controller,
    pub(crate) session: Session,
    /// Settings and counters; `None` if the caller may not query the session.
    pub(crate) summary: Option<SessionSummary>,
}

/// Connects to the daemon of a session; without a daemon there is no session.
pub(crate) fn connect_to_session(daemon_choice: DaemonChoice, name: &str) -> Result<(Controller, Session)> {
    match find_daemon(daemon_choice)? {
        Some(controller) => {
            let session = controller.session(name);
            Ok((controller, session))
        }
        None => Err(anyhow!(with_hint(
            Error::refused(
                Status::ERROR_WMI_INSTANCE_NOT_FOUND,
                format!("session {} is not running, because no daemon is", escape(name)),
            ),
            "weir start NAME starts a session, and a daemon with it",
        ))),
    }
}

/// Finds a running session.
pub(crate) fn find_session(daemon_choice: DaemonChoice, name: &str) -> Result<FoundSession> {
    let (mut controller, session) = connect_to_session(daemon_choice, name)?;
    let summary = match session.query() {
        Ok(summary) => Some(summary),
        Err(error) if is_gone(&error) => return Err(missing_session_error(&mut controller, name)),
        // The caller may have other rights. A failure of another kind fails the next request too.
        Err(_) => None,
    };
    Ok(FoundSession { controller, session, summary })
}

/// Fails if a session does not deliver its events live, and names the command that changes that.
pub(crate) fn check_is_live(summary: &SessionSummary, daemon_choice: DaemonChoice) -> Result<()> {
    if summary.mode.contains(LogFileMode::REAL_TIME) {
        return Ok(());
    }
    let (name, daemon) = (quote_for_shell(&summary.name), daemon_choice.flag());
    let (reason, hint) = if summary.mode.contains(LogFileMode::BUFFERING) {
        (
            "it is a flight recorder, which keeps its events in memory",
            format!("weir flush {name}{daemon} -o FILE writes them to a file"),
        )
    } else if super::is_private(summary.mode) {
        (
            "it is a private session, which only writes files",
            format!("weir stop {name}{daemon} finalises them"),
        )
    } else {
        (
            "it only writes a file",
            format!("weir update {name}{daemon} --real-time on delivers its events live, too"),
        )
    };
    Err(with_hint(Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason), hint))
}

/// Returns the error for a name that no running session has: how the session ended, or which
/// session may be meant.
pub(crate) fn missing_session_error(controller: &mut Controller, name: &str) -> anyhow::Error {
    let reason = match controller.session(name).outcome() {
        Ok(ended) => describe_end(&ended),
        Err(_) => "no session of this name is running".to_owned(),
    };
    let sessions = controller.sessions().unwrap_or_default();
    let running: Vec<String> = sessions.into_iter().map(|session| session.name).collect();
    with_hint(
        Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason),
        missing_session_hint(name, &running),
    )
}

fn missing_session_hint(name: &str, running: &[String]) -> String {
    if let Some(question) = suggest_names(name, running) {
        return format!("{question} weir list shows the running sessions");
    }
    match running.len() {
        0 => "no session is running: weir start NAME starts one, weir list shows them".to_owned(),
        1..=MAX_NAMED_SESSIONS => {
            let names: Vec<String> = running.iter().map(|name| escape(name)).collect();
            format!("running: {} (weir list shows more about them)", names.join(", "))
        }
        _ => "weir list shows the running sessions".to_owned(),
    }
}

/// Removes a session that has ended from the list of ended sessions, because its end was reported.
pub(crate) fn dismiss_ended(controller: &Controller, ended: &SessionSummary) {
    // The daemon refuses the stop, because the session has ended, and no longer lists it.
    let _ = controller.session_with_id(ended.id).stop();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_the_closest_session_or_a_few_running_ones() {
        let running =
            |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let hint = missing_session_hint("Ap", &running(&["App", "Other"]));
        assert_eq!(hint, "Did you mean App? weir list shows the running sessions");
        let hint = missing_session_hint("X", &running(&["App", "Other"]));
        assert_eq!(hint, "running: App, Other (weir list shows more about them)");
        assert!(missing_session_hint("X", &[]).starts_with("no session is running"));
        let many = running(&["A1", "A2", "A3", "A4", "A5", "A6"]);
        assert_eq!(missing_session_hint("Zebra", &many), "weir list shows the running sessions");
    }
}
