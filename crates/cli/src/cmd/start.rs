//! `weir start`: starts a session that runs until it is stopped.

use anstream::eprintln;
use anyhow::Result;
use traceweir::session::SessionSummary;
use traceweir::{Guid, LogFileMode};

use super::answer::Answer;
use crate::cli::{self, StartArgs};
use crate::grammar::EnableRequest;
use crate::sessions::{self, StartedSession};
use crate::text::{grouped, plain, plain_path, shell};

/// Runs `weir start`.
pub(super) fn run(options: &StartArgs) -> Result<Answer> {
    let requests = options.providers.resolve(&options.manifest)?;
    let mut plan = sessions::plan(&options.name, options.output.as_deref(), &options.shape)?;
    let is_private = sessions::is_private(plan.mode);
    if is_private && plan.guid.is_null() {
        plan.guid = private_session_guid(&requests);
    }
    let (mut session, summary) =
        StartedSession::start_with_kernel(options.daemon_choice, &mut plan, &options.kernel, &requests)?;
    session.enable(&requests, &[])?;
    session.leave_running();
    sessions::note_literal_percent_d(&plan);
    eprintln!("{}", describe_session(&summary));
    if requests.is_empty() && options.kernel.kernel.is_none() {
        eprintln!("no provider is enabled yet: weir enable {} PROVIDER", shell(&options.name));
    }
    // Enabling a name may have added processes that registered the name with another GUID.
    let has_processes = |summary: SessionSummary| summary.processes > 0;
    if is_private && summary.processes == 0 && !session.session().query().is_ok_and(has_processes) {
        let name = plain(&options.name);
        eprintln!(
            "no process takes part in session {name} yet: processes that register the provider from now on do"
        );
    }
    sessions::note_unseen_providers(session.controller(), &requests)?;
    sessions::warn_of_left_out_processes(session.controller(), summary.id, &requests)?;
    sessions::note_idle_filters(&requests);
    Ok(Answer { providers: requests, ..Answer::running(summary) })
}

/// Returns the GUID of a private session that was given none: that of the one provider whose
/// processes run it.
fn private_session_guid(requests: &[EnableRequest]) -> Guid {
    match requests {
        [one] => one.guid,
        _ => cli::misuse(
            "a private session runs in the processes of one provider: name it with -p PROVIDER, or give its id with --guid GUID",
        ),
    }
}

/// Describes what the session does, and how to read its events.
fn describe_session(p: &SessionSummary) -> String {
    let (name, typed) = (plain(&p.name), shell(&p.name));
    let file = p.log_file.as_deref().map(plain_path);
    if p.mode.contains(LogFileMode::BUFFERING) {
        let kib = u64::from(p.minimum_buffers) * u64::from(p.buffer_kib);
        let memory =
            format!("session {name} runs and keeps the newest {} KiB of events in memory", grouped(kib));
        return match file {
            Some(file) => {
                format!("{memory}; weir flush {typed} writes them to {file}, and so does weir stop {typed}")
            }
            None => format!("{memory}; weir flush {typed} -o FILE writes them, weir stop {typed} drops them"),
        };
    }
    if sessions::is_private(p.mode) {
        let files = file.map_or_else(String::new, |file| {
            format!(", each process with a file of its own: {file}, further ones with _PID appended")
        });
        return format!(
            "session {name} runs in the processes of its provider{files}; weir stop {typed} ends it"
        );
    }
    let is_live = p.mode.contains(LogFileMode::REAL_TIME);
    let watch = is_live.then(|| format!("can be watched (weir watch {typed})"));
    let outputs: Vec<_> = file.map(|file| format!("writes {file}")).into_iter().chain(watch).collect();
    format!("session {name} runs and {}; weir stop {typed} ends it", outputs.join(" and "))
}
