//! `weir enable` and `disable`: send requests about providers of a running session.

use std::collections::BTreeSet;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::controller::Controller;
use traceweir::session::{self, ProviderEnable, ProviderInfo};
use traceweir::{ControlCode, EnableProperties, Guid, Session};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;

use super::command_result::CommandResult;
use crate::cli::{EnableArgs, SessionProviderArgs};
use crate::grammar::{EnableRequest, ManifestNames};
use crate::sessions::{self, FoundSession, find_session, warn_of_delay};
use crate::text::escape;

pub(super) fn enable(options: &EnableArgs) -> Result<CommandResult> {
    let targets = &options.targets;
    if options.capture_state {
        return capture_state(targets, |names| options.resolve(names));
    }
    let mut names = ManifestNames::load(&targets.manifest)?;
    // Reports usage errors before connecting to a daemon.
    options.resolve(&names)?;
    let context = || format!("cannot enable providers in session {}", escape(&targets.name));
    let FoundSession { mut controller, session, .. } =
        find_session(targets.daemon_choice, &targets.name).with_context(context)?;
    names.enabled = enabled_providers(&mut controller, &session);
    let requests = options.resolve(&names)?;
    sessions::check_owners(&controller, &requests, &options.pid)?;
    for request in &requests {
        let result = request.build_enable(&session, &options.pid).timeout(targets.timeout).apply();
        warn_of_delay(result).with_context(|| format_context("enable", request, &targets.name))?;
    }
    sessions::note_filters_without_match(&requests);
    if options.pid.is_empty() {
        sessions::note_unseen_providers(&mut controller, &requests)?;
        if let Ok(id) = session.query().map(|summary| summary.id) {
            sessions::warn_of_left_out_processes(&mut controller, id, &requests)?;
        }
    } else {
        sessions::warn_of_unregistered(&mut controller, &requests, &options.pid)?;
    }
    Ok(CommandResult::for_providers(requests))
}

/// Returns names and GUIDs of the providers that a session enables: the names in the enables, and
/// the registered names. An enable by name uses the hash of the name as GUID and also reaches
/// registrations of that name with other GUIDs. Those other GUIDs are not returned.
fn enabled_providers(controller: &mut Controller, session: &Session) -> Vec<(String, Guid)> {
    let (Ok(session), Ok(providers)) = (session.query(), controller.providers()) else {
        return Vec::new();
    };
    let enables = providers.iter().flat_map(|provider| {
        provider.sessions.iter().chain(&provider.private_sessions).map(move |enable| (provider, enable))
    });
    let session_enables: Vec<_> = enables.filter(|(_, enable)| enable.session == session.id).collect();
    let is_by_name =
        |provider: &ProviderInfo, enable: &ProviderEnable| provider.guid.is_hash_of(&enable.name);
    let guids_from_names: BTreeSet<Guid> = session_enables
        .iter()
        .filter(|(provider, enable)| is_by_name(provider, enable))
        .map(|(provider, _)| provider.guid)
        .collect();
    let is_reached_by_name = |provider: &ProviderInfo| {
        !guids_from_names.contains(&provider.guid)
            && !provider.pids.is_empty()
            && guids_from_names.contains(&Guid::from_provider_name(&provider.name))
    };
    let listed = session_enables.iter().filter(|(provider, _)| !is_reached_by_name(provider));
    let listed = listed
        .flat_map(|(provider, enable)| [(&enable.name, provider.guid), (&provider.name, provider.guid)]);
    listed.filter(|(name, _)| !name.is_empty()).map(|(name, guid)| (name.clone(), guid)).collect()
}

pub(super) fn disable(options: &SessionProviderArgs) -> Result<CommandResult> {
    let resolve = |names: &ManifestNames| options.resolve(names);
    send_request(options, resolve, "disable", ControlCode::Disable, |call, request| {
        // Only the group property matters for a disable.
        call.properties(EnableProperties::new(request.property))
    })
}

/// Runs `weir enable … --capture-state` and its older form `weir capture-state`. `resolve` returns
/// the providers with their levels and keywords.
pub(super) fn capture_state(
    options: &SessionProviderArgs,
    resolve: impl Fn(&ManifestNames) -> Result<Vec<EnableRequest>>,
) -> Result<CommandResult> {
    send_request(options, resolve, "capture the state of", ControlCode::CaptureState, |call, request| {
        request.add_parameters(call, &[])
    })
}

fn send_request(
    options: &SessionProviderArgs,
    resolve: impl Fn(&ManifestNames) -> Result<Vec<EnableRequest>>,
    verb: &str,
    code: ControlCode,
    add_parameters: impl for<'s> Fn(session::Enable<'s>, &EnableRequest) -> session::Enable<'s>,
) -> Result<CommandResult> {
    let mut names = ManifestNames::load(&options.manifest)?;
    resolve(&names)?;
    let context = || format!("cannot {verb} providers in session {}", escape(&options.name));
    let FoundSession { mut controller, session, .. } =
        find_session(options.daemon_choice, &options.name).with_context(context)?;
    names.enabled = enabled_providers(&mut controller, &session);
    let requests = resolve(&names)?;
    let registered = sessions::query_registered_guids(&mut controller)?;
    for request in &requests {
        let is_enabled = is_enabled(&mut controller, &session, request);
        let call = add_parameters(session.request(request.guid, code), request);
        let result = call.timeout(options.timeout).apply();
        warn_of_delay(result).with_context(|| format_context(verb, request, &options.name))?;
        if is_enabled == Some(false) {
            eprintln!("{} is not enabled in session {}", escape(&request.name), escape(&options.name));
        }
        if code == ControlCode::CaptureState && !registered.contains(&request.guid) {
            eprintln!("no process has registered {}, so no state was written", escape(&request.name));
        }
    }
    Ok(CommandResult::for_providers(requests))
}

/// Returns whether the session enables a provider, directly or through its group; `None` if
/// unknown.
fn is_enabled(controller: &mut Controller, session: &Session, request: &EnableRequest) -> Option<bool> {
    let session = session.query().ok()?;
    let providers = controller.providers().ok()?;
    let is_group = request.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
    let entry =
        providers.iter().find(|provider| provider.guid == request.guid && provider.is_group == is_group);
    let is_its_group = |provider: &&ProviderInfo| {
        provider.is_group && entry.is_some_and(|entry| entry.groups.contains(&provider.guid))
    };
    let its_groups = providers.iter().filter(is_its_group);
    let mut enables = entry
        .into_iter()
        .chain(its_groups)
        .flat_map(|provider| provider.sessions.iter().chain(&provider.private_sessions));
    Some(enables.any(|enable| enable.session == session.id))
}

fn format_context(verb: &str, provider: &EnableRequest, session: &str) -> String {
    format!("cannot {verb} {} in session {}", escape(&provider.name), escape(session))
}
