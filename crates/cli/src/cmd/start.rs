//! `weir start`: starts a session that runs until it is stopped.

use anstream::eprintln;
use anyhow::Result;
use traceweir::session::SessionSummary;
use traceweir::{Guid, LogFileMode};

use super::command_result::CommandResult;
use crate::cli::{self, StartArgs};
use crate::grammar::EnableRequest;
use crate::profiles;
use crate::sessions::{self, StartedSession};
use crate::text::{escape, escape_path, format_number, quote_for_shell};

pub(super) fn run(options: &StartArgs) -> Result<CommandResult> {
    let mut requests = options.providers.resolve(&options.manifest)?;
    let prefers_memory = options.shape.buffering;
    let profile = profiles::resolve(&options.profile, prefers_memory)?;
    requests.extend(profile.providers);
    let mut kernel = options.kernel.clone();
    kernel.add(profile.kernel);
    if kernel.kernel.is_some() {
        kernel.stacks = kernel.stacks.or(profile.stacks);
    }
    kernel.check_used();
    profiles::print_notes(&options.profile, prefers_memory);
    let mut shape = options.shape.clone();
    if let Some(buffers) = profile.buffers {
        let has_mode = shape.mode_bits() != 0;
        buffers.fill_in(&mut shape);
        shape.buffering |= buffers.is_in_memory && !has_mode;
    }
    let mut plan = sessions::build_plan(&options.name, options.output.as_deref(), &shape)?;
    plan.force = options.force;
    let is_private = sessions::is_private(plan.mode);
    if is_private && plan.guid.is_null() {
        plan.guid = private_session_guid(&requests);
    }
    let (mut session, summary) =
        StartedSession::start_with_kernel(options.daemon_choice, &mut plan, &kernel, &requests)?;
    session.enable(&requests)?;
    session.leave_running();
    sessions::note_literal_percent_d(&plan);
    eprintln!("{}", describe_session(&summary));
    if requests.is_empty() && kernel.kernel.is_none() {
        eprintln!("no provider is enabled yet: weir enable {} PROVIDER", quote_for_shell(&options.name));
    }
    // Enabling a name may have added processes that registered the name with another GUID.
    let has_processes = |summary: SessionSummary| summary.processes > 0;
    if is_private && summary.processes == 0 && !session.session().query().is_ok_and(has_processes) {
        let name = escape(&options.name);
        eprintln!(
            "no process takes part in session {name} yet: processes that register the provider from now on do"
        );
    }
    sessions::note_unseen_providers(session.controller(), &requests)?;
    sessions::warn_of_left_out_processes(session.controller(), summary.id, &requests)?;
    sessions::note_filters_without_match(&requests);
    Ok(CommandResult { providers: requests, ..CommandResult::for_running(summary) })
}

/// Returns the default GUID of a private session: that of the only provider, whose processes run
/// the session.
fn private_session_guid(requests: &[EnableRequest]) -> Guid {
    match requests {
        [request] => request.guid,
        _ => cli::exit_with_conflict(
            "a private session runs in the processes of one provider: name it with -p PROVIDER, or give its id with --guid GUID",
        ),
    }
}

/// Describes the outputs of a session, and how to read its events.
fn describe_session(summary: &SessionSummary) -> String {
    let (name, shell_name) = (escape(&summary.name), quote_for_shell(&summary.name));
    let file = summary.log_file.as_deref().map(escape_path);
    if summary.mode.contains(LogFileMode::BUFFERING) {
        let kib = u64::from(summary.minimum_buffers) * u64::from(summary.buffer_kib);
        let memory = format!(
            "session {name} runs and keeps the newest {} KiB of events in memory",
            format_number(kib)
        );
        return match file {
            Some(file) => {
                format!(
                    "{memory}; weir flush {shell_name} writes them to {file}, and so does weir stop {shell_name}"
                )
            }
            None => format!(
                "{memory}; weir flush {shell_name} -o FILE writes them, weir stop {shell_name} drops them"
            ),
        };
    }
    if sessions::is_private(summary.mode) {
        let files = file.map_or_else(String::new, |file| {
            format!(", each process with a file of its own: {file}, further ones with _PID appended")
        });
        return format!(
            "session {name} runs in the processes of its provider{files}; weir stop {shell_name} ends it"
        );
    }
    let is_live = summary.mode.contains(LogFileMode::REAL_TIME);
    let watch = is_live.then(|| format!("can be watched (weir watch {shell_name})"));
    let outputs: Vec<_> = file.map(|file| format!("writes {file}")).into_iter().chain(watch).collect();
    format!("session {name} runs and {}; weir stop {shell_name} ends it", outputs.join(" and "))
}
