//! `weir start`: starts a session that runs until it is stopped.

use anstream::eprintln;
use anyhow::Result;
use traceweir::Guid;
use traceweir::controller::{Properties, SessionRef};
use traceweir_format::spec::session::{EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_REAL_TIME_MODE};

use super::answer::Answer;
use crate::cli::{self, Start};
use crate::grammar::EnableRequest;
use crate::sessions::{self, OwnSession};
use crate::text::{grouped, plain, plain_path, shell};

/// Runs `weir start`.
pub(super) fn run(options: &Start) -> Result<Answer> {
    let wanted = options.providers.wanted(&options.manifest)?;
    let mut config = sessions::config(&options.name, options.output.as_deref(), &options.shape)?;
    let is_private = sessions::is_private(&config);
    if is_private && config.guid.is_null() {
        config.guid = private_session_guid(&wanted);
    }
    let (mut session, properties) =
        OwnSession::start_with_kernel(options.daemon_choice, &mut config, &options.kernel, &wanted)?;
    session.enable(&wanted, &[])?;
    session.leave_running();
    sessions::note_literal_percent_d(&config);
    eprintln!("{}", describe_session(&properties));
    if wanted.is_empty() && options.kernel.kernel.is_none() {
        eprintln!("no provider is enabled yet: weir enable {} PROVIDER", shell(&options.name));
    }
    // Enabling a name may have added processes that registered the name with another GUID.
    let has_processes = |properties: Properties| properties.processes > 0;
    if is_private
        && properties.processes == 0
        && !session.controller().query(&SessionRef::Id(properties.id)).is_ok_and(has_processes)
    {
        let name = plain(&options.name);
        eprintln!(
            "no process takes part in session {name} yet: processes that register the provider from now on do"
        );
    }
    sessions::note_unseen_providers(session.controller(), &wanted)?;
    sessions::warn_of_left_out_processes(session.controller(), properties.id, &wanted)?;
    sessions::note_idle_filters(&wanted);
    Ok(Answer { providers: wanted, ..Answer::running(properties) })
}

/// Returns the GUID of a private session that was given none: that of the one provider whose
/// processes run it.
fn private_session_guid(wanted: &[EnableRequest]) -> Guid {
    match wanted {
        [one] => one.guid,
        _ => cli::misuse(
            "a private session runs in the processes of one provider: name it with -p PROVIDER, or give its id with --guid GUID",
        ),
    }
}

/// Describes what the session does, and how to read its events.
fn describe_session(p: &Properties) -> String {
    let (name, typed) = (plain(&p.config.name), shell(&p.config.name));
    let has = |mode| p.config.log_file_mode & mode != 0;
    let file = p.config.log_file.as_deref().map(plain_path);
    if has(EVENT_TRACE_BUFFERING_MODE) {
        let kib = u64::from(p.config.minimum_buffers) * u64::from(p.config.buffer_size);
        let memory =
            format!("session {name} runs and keeps the newest {} KiB of events in memory", grouped(kib));
        return match file {
            Some(file) => {
                format!("{memory}; weir flush {typed} writes them to {file}, and so does weir stop {typed}")
            }
            None => format!("{memory}; weir flush {typed} -o FILE writes them, weir stop {typed} drops them"),
        };
    }
    if sessions::is_private(&p.config) {
        let files = file.map_or_else(String::new, |file| {
            format!(", each process with a file of its own: {file}, further ones with _PID appended")
        });
        return format!(
            "session {name} runs in the processes of its provider{files}; weir stop {typed} ends it"
        );
    }
    let watch = has(EVENT_TRACE_REAL_TIME_MODE).then(|| format!("can be watched (weir watch {typed})"));
    let outputs: Vec<_> = file.map(|file| format!("writes {file}")).into_iter().chain(watch).collect();
    format!("session {name} runs and {}; weir stop {typed} ends it", outputs.join(" and "))
}
