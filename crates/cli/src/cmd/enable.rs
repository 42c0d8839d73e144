//! `weir enable`, `disable`, `capture-state`: providers in a session that runs.

use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::controller::{Controller, EnableCode, EnableParams, ProviderEntry, SessionRef};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::session::EVENT_TRACE_PRIVATE_LOGGER_MODE;

use crate::cli::{Enable, Which};
use crate::exit::Outcome;
use crate::export::plain;
use crate::grammar::Wanted;
use crate::sessions::{self, controller_of, tell_of_delay};

/// Runs `weir enable`.
pub(super) fn enable(options: &Enable) -> Result<Outcome> {
    let (all, which) = (options.wanted()?, &options.which);
    let (mut controller, session) = controller_of(which.whose, &which.name)?;
    for wanted in &all {
        let (params, timeout) = (wanted.params(&options.pid), milliseconds(which.timeout));
        let done = controller.enable(&session, wanted.guid, EnableCode::Enable, &params, timeout);
        tell_of_delay(done).with_context(|| cannot("enable", wanted, &which.name))?;
    }
    sessions::tell_idle(&all);
    if options.pid.is_empty() {
        sessions::tell_unseen(&mut controller, &all)?;
    } else {
        sessions::check_pids(&mut controller, &all, &options.pid)?;
    }
    Ok(Outcome::Fine)
}

/// Runs `weir disable`.
pub(super) fn disable(options: &Which) -> Result<Outcome> {
    ask(options, "disable", EnableCode::Disable, |wanted| {
        // Whether a group is meant is all that matters.
        EnableParams { property: wanted.property, ..EnableParams::default() }
    })
}

/// Runs `weir capture-state`.
pub(super) fn capture_state(options: &Which) -> Result<Outcome> {
    ask(options, "capture the state of", EnableCode::CaptureState, |wanted| wanted.params(&[]))
}

fn ask(
    options: &Which,
    verb: &str,
    code: EnableCode,
    params: impl Fn(&Wanted) -> EnableParams,
) -> Result<Outcome> {
    let all = options.wanted()?;
    let (mut controller, session) = controller_of(options.whose, &options.name)?;
    for wanted in &all {
        let timeout = milliseconds(options.timeout);
        let is_enabled = is_enabled(&mut controller, &session, wanted);
        let done = controller.enable(&session, wanted.guid, code, &params(wanted), timeout);
        tell_of_delay(done).with_context(|| cannot(verb, wanted, &options.name))?;
        if is_enabled == Some(false) {
            eprintln!("{} is not enabled in session {}", plain(&wanted.name), plain(&options.name));
        }
    }
    Ok(Outcome::Fine)
}

/// Whether the session enables a provider, itself or through its group; `None` where nobody says.
fn is_enabled(controller: &mut Controller, session: &SessionRef, wanted: &Wanted) -> Option<bool> {
    let session = controller.query(session).ok()?;
    if session.config.log_file_mode & EVENT_TRACE_PRIVATE_LOGGER_MODE != 0 {
        return None;
    }
    let all = controller.providers().ok()?;
    let is_group = wanted.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
    let entry = all.iter().find(|it| it.provider == wanted.guid && it.is_group == is_group);
    let is_through =
        |it: &&ProviderEntry| it.is_group && entry.is_some_and(|entry| entry.groups.contains(&it.provider));
    let through = all.iter().filter(is_through);
    let mut enables = entry.into_iter().chain(through).flat_map(|it| &it.sessions);
    Some(enables.any(|enable| enable.session == session.id))
}

fn cannot(verb: &str, provider: &Wanted, session: &str) -> String {
    format!("cannot {verb} {} in session {}", plain(&provider.name), plain(session))
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
