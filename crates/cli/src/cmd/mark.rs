//! `weir mark`: writes a mark to running sessions.
//!
//! ```text
//!   register Traceweir.Marks ─▶ enable it in each session ─▶ write one event ─▶ unregister
//! ```
//!
//! The provider stays enabled: of two marks at the same time, the first to end must not disable the
//! provider of the other.

use anstream::eprintln;
use anyhow::{Context, Result, ensure};
use traceweir::controller::Controller;
use traceweir::session::{ProviderId, SessionSummary};
use traceweir::{Error, Provider, Status};
use traceweir_analysis::mark::{self, MarkSchema};

use crate::cli::MarkArgs;
use crate::exit::{self, CommandOutcome, with_hint};
use crate::output::print_text;
use crate::sessions::{self, ENABLE_TIMEOUT};
use crate::text::{escape, format_count};

/// Exit status if some sessions did not get the mark.
const INCOMPLETE: u8 = 1;

pub(super) fn run(options: &MarkArgs) -> Result<CommandOutcome> {
    let Some(mut controller) = sessions::find_daemon(options.daemon_choice)? else {
        return Err(no_session_error("no session is running, because no daemon is"));
    };
    let targets = list_sessions(&mut controller)?;
    let schema = MarkSchema::new()?;
    let provider = Provider::register_with_traits(schema.provider, &schema.traits, None)
        .context("cannot register the provider of marks")?;
    let (mut marked, mut failures) = (Vec::new(), Vec::new());
    for target in &targets {
        let session = controller.session_with_id(target.id);
        let call = session.enable(ProviderId::from(schema.provider).with_name(mark::PROVIDER));
        match call.timeout(ENABLE_TIMEOUT).apply() {
            // The session has ended in the meantime.
            Err(error) if sessions::is_gone(&error) => {}
            result => match sessions::warn_of_delay(result) {
                Ok(()) => marked.push(escape(&target.name)),
                Err(error) => failures
                    .push(error.context(format!("cannot enable marks in session {}", escape(&target.name)))),
            },
        }
    }
    if !marked.is_empty() {
        let event = provider.event(&mark::DESCRIPTOR).metadata(&schema.metadata);
        ensure!(
            provider.event_enabled(&mark::DESCRIPTOR),
            "the sessions did not enable marks in time; try again"
        );
        event.write(&[&schema.encode_text(&options.text)]).context("cannot write the mark")?;
        print_text(&format!(
            "marked {}: {}\n",
            format_count(marked.len() as u64, "session"),
            marked.join(", ")
        ))?;
    } else if failures.is_empty() {
        return Err(no_session_error("no session is running"));
    }
    failures.iter().for_each(exit::print_error);
    Ok(if failures.is_empty() { CommandOutcome::Fine } else { CommandOutcome::Status(INCOMPLETE) })
}

/// Returns the running sessions that can be marked.
fn list_sessions(controller: &mut Controller) -> Result<Vec<SessionSummary>> {
    let (private, shared): (Vec<_>, Vec<_>) =
        controller.sessions()?.into_iter().partition(|session| sessions::is_private(session.mode));
    for session in &private {
        eprintln!(
            "note: the private session {} is not marked: only the processes of its provider write to it",
            escape(&session.name)
        );
    }
    Ok(shared)
}

fn no_session_error(reason: &str) -> anyhow::Error {
    with_hint(
        Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason.to_owned()),
        "weir record or weir start starts one; --user and --system choose the daemon whose sessions are marked",
    )
}
