//! `weir enable`, `disable`, `capture-state`: providers in a session that runs.

use std::collections::BTreeSet;
use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::Guid;
use traceweir::controller::{Controller, EnableCode, EnableEntry, EnableParams, ProviderEntry, SessionRef};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;

use super::answer::Answer;
use crate::cli::{Enable, SessionProviders};
use crate::export::plain;
use crate::grammar::{Known, Wanted};
use crate::sessions::{self, controller_of, tell_of_delay};

/// Runs `weir enable`.
pub(super) fn enable(options: &Enable) -> Result<Answer> {
    let targets = &options.targets;
    let mut known = Known::load(&targets.manifest)?;
    // What is wrong by itself is told before anybody is asked.
    options.wanted(&known)?;
    let (mut controller, session) = controller_of(targets.daemon_choice, &targets.name)?;
    known.enabled = enabled_in(&mut controller, &session);
    let all = options.wanted(&known)?;
    for wanted in &all {
        let (params, timeout) = (wanted.params(&options.pid), milliseconds(targets.timeout));
        let (guid, name, code) = (wanted.guid, wanted.called(), EnableCode::Enable);
        let done = controller.enable_named(&session, guid, name, code, &params, timeout);
        tell_of_delay(done).with_context(|| cannot("enable", wanted, &targets.name))?;
    }
    sessions::tell_idle(&all);
    if options.pid.is_empty() {
        sessions::tell_unseen(&mut controller, &all)?;
        if let Ok(properties) = controller.query(&session) {
            sessions::tell_left_out(&mut controller, properties.id, &all)?;
        }
    } else {
        sessions::check_pids(&mut controller, &all, &options.pid)?;
    }
    Ok(Answer::about(all))
}

/// Names and ids of the providers that a session enables, as they were given or as they are registered. A name that the session enables
/// stands for that enable, whatever GUIDs it reaches.
fn enabled_in(controller: &mut Controller, session: &SessionRef) -> Vec<(String, Guid)> {
    let (Ok(session), Ok(all)) = (controller.query(session), controller.providers()) else {
        return Vec::new();
    };
    let enables =
        all.iter().flat_map(|it| it.sessions.iter().chain(&it.privates).map(move |enable| (it, enable)));
    let own: Vec<_> = enables.filter(|(_, enable)| enable.session == session.id).collect();
    let is_by_name = |it: &ProviderEntry, enable: &EnableEntry| it.provider.is_hash_of(&enable.name);
    let by_name: BTreeSet<Guid> =
        own.iter().filter(|(it, enable)| is_by_name(it, enable)).map(|(it, _)| it.provider).collect();
    let is_reached_by_name = |it: &ProviderEntry| {
        !by_name.contains(&it.provider)
            && !it.pids.is_empty()
            && by_name.contains(&Guid::from_provider_name(&it.name))
    };
    let named = own.iter().filter(|(it, _)| !is_reached_by_name(it));
    let named = named.flat_map(|(it, enable)| [(&enable.name, it.provider), (&it.name, it.provider)]);
    named.filter(|(name, _)| !name.is_empty()).map(|(name, guid)| (name.clone(), guid)).collect()
}

/// Runs `weir disable`.
pub(super) fn disable(options: &SessionProviders) -> Result<Answer> {
    ask(options, "disable", EnableCode::Disable, |wanted| {
        // Whether a group is meant is all that matters.
        EnableParams { property: wanted.property, ..EnableParams::default() }
    })
}

/// Runs `weir capture-state`.
pub(super) fn capture_state(options: &SessionProviders) -> Result<Answer> {
    ask(options, "capture the state of", EnableCode::CaptureState, |wanted| wanted.params(&[]))
}

fn ask(
    options: &SessionProviders,
    verb: &str,
    code: EnableCode,
    params: impl Fn(&Wanted) -> EnableParams,
) -> Result<Answer> {
    let mut known = Known::load(&options.manifest)?;
    options.wanted(&known)?;
    let (mut controller, session) = controller_of(options.daemon_choice, &options.name)?;
    known.enabled = enabled_in(&mut controller, &session);
    let all = options.wanted(&known)?;
    let registered = sessions::seen(&mut controller)?;
    for wanted in &all {
        let timeout = milliseconds(options.timeout);
        let is_enabled = is_enabled(&mut controller, &session, wanted);
        let done = controller.enable(&session, wanted.guid, code, &params(wanted), timeout);
        tell_of_delay(done).with_context(|| cannot(verb, wanted, &options.name))?;
        if is_enabled == Some(false) {
            eprintln!("{} is not enabled in session {}", plain(&wanted.name), plain(&options.name));
        }
        if code == EnableCode::CaptureState && !registered.contains(&wanted.guid) {
            eprintln!("no process has registered {}: nobody was there to be asked", plain(&wanted.name));
        }
    }
    Ok(Answer::about(all))
}

/// Whether the session enables a provider, itself or through its group; `None` where nobody says.
fn is_enabled(controller: &mut Controller, session: &SessionRef, wanted: &Wanted) -> Option<bool> {
    let session = controller.query(session).ok()?;
    let all = controller.providers().ok()?;
    let is_group = wanted.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
    let entry = all.iter().find(|it| it.provider == wanted.guid && it.is_group == is_group);
    let is_through =
        |it: &&ProviderEntry| it.is_group && entry.is_some_and(|entry| entry.groups.contains(&it.provider));
    let through = all.iter().filter(is_through);
    let mut enables = entry.into_iter().chain(through).flat_map(|it| it.sessions.iter().chain(&it.privates));
    Some(enables.any(|enable| enable.session == session.id))
}

fn cannot(verb: &str, provider: &Wanted, session: &str) -> String {
    format!("cannot {verb} {} in session {}", plain(&provider.name), plain(session))
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
