//! `EnableProvider`: enables of a provider or a group, for existing and later registrations.
//!
//! Each call replaces the session's previous enable of the target, including its filters. A
//! registration can be the target of three enables of one session: directly, by its name and by its
//! group. The registry combines them. If at least one of them exists after the call, the
//! registration receives the combination; if not, an enabled registration is disabled.

use std::collections::BTreeSet;
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableCode, EnableParams, MAX_PROVIDER_NAME_UNITS, Message};

use super::ProviderControl;
use super::regions::send_enable;
use super::wait::WaitPurpose;
use crate::error::Refusal;
use crate::filter::{self, ProcessScope};
use crate::ids::{LinkId, ReplyTo};
use crate::log::{log_enable, log_refusal};
use crate::registry::{EnableTarget, NameMatch, ProviderProcess};
use crate::service::core::Core;

/// The timeout value that means "wait forever".
const INFINITE_TIMEOUT_MS: u32 = u32::MAX;
/// Maximum number of enable calls of one controller that wait for processes.
const MAX_WAITING_CALLS: usize = 64;

/// How long a call with timeout 0 waits for the controller's own process, which may write events
/// as soon as the call returns. Short, because a callback in that process may need a lock that the
/// calling thread holds.
const OWN_PROCESS_TIMEOUT: Duration = Duration::from_millis(50);

/// The parameters of a controller's enable call.
#[derive(Debug)]
pub(in crate::service) struct EnableCall {
    pub(in crate::service) provider: Guid,
    pub(in crate::service) code: EnableCode,
    pub(in crate::service) params: EnableParams,
    /// The provider name that the controller passes; may be empty.
    pub(in crate::service) name: String,
    pub(in crate::service) timeout_ms: u32,
}

/// The part of an enable call that is sent to registrations.
#[derive(Debug)]
pub(in crate::service) struct SessionEnable {
    pub(in crate::service) session: u64,
    pub(in crate::service) code: EnableCode,
    pub(in crate::service) params: EnableParams,
}

impl EnableCall {
    /// Refuses a name that is too long, or that could control the terminal it is printed on.
    pub(in crate::service) fn check_name(&self) -> Result<(), Refusal> {
        let is_long = self.name.encode_utf16().count() > MAX_PROVIDER_NAME_UNITS;
        if is_long || self.name.contains(char::is_control) {
            let reason = format!(
                "a provider name has at most {MAX_PROVIDER_NAME_UNITS} characters and no control characters"
            );
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
        }
        Ok(())
    }
}

impl ProviderControl {
    /// Enables or disables a provider, or requests its state, for a session. The caller has checked
    /// that the controller may run the session.
    pub(in crate::service) fn enable(
        &mut self,
        core: &mut Core,
        reply_to: ReplyTo,
        session: u64,
        session_name: &str,
        call: EnableCall,
    ) -> Result<(), Refusal> {
        let EnableCall { provider, code, params, name, timeout_ms } = call;
        core.access.check_enable(reply_to.link, provider)?;
        if self.waits.waits_replying_to(reply_to.link).len() >= MAX_WAITING_CALLS {
            return Err(Refusal::new(Status::ERROR_BUSY, "too many calls of this controller are waiting"));
        }
        let target = EnableTarget::from_call(provider, params.property);
        let (mut params, scope) = filter::resolve_filters(&provider, params)?;
        params.property &= !EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        let enable = SessionEnable { session, code, params };
        let selected = self.select_registrations(core, reply_to.link, target, &name, &enable, scope)?;
        let wait = self.waits.next_id();
        let own_pid = core.access.peer(reply_to.link).map(|peer| peer.pid);
        let (mut waiting, mut failure) = (0, None);
        for (link, numbers) in selected {
            let is_own_process = core.access.peer(link).map(|peer| peer.pid) == own_pid;
            let wait = (timeout_ms != 0 || is_own_process).then_some(wait);
            match self.send_to_process(core, link, &numbers, &enable, wait) {
                Ok(waits) => waiting += usize::from(waits),
                Err(refusal) => failure = failure.or(Some(refusal)),
            }
        }
        log_enable!(
            "{}, {} {provider} for session {:?}",
            core.access.peer_name(reply_to.link),
            log_verb(code),
            session_name
        );
        if timeout_ms == 0 {
            // A controller that passes timeout 0 is not informed of failures.
            if waiting > 0 {
                let deadline = Some(core.turn.now + OWN_PROCESS_TIMEOUT);
                self.waits.begin(wait, waiting, deadline, WaitPurpose::Confirm(reply_to), None);
            } else {
                core.turn.reply(reply_to, Message::Done);
            }
        } else if waiting > 0 {
            let deadline = core.turn.now + Duration::from_millis(u64::from(timeout_ms));
            let deadline = (timeout_ms != INFINITE_TIMEOUT_MS).then_some(deadline);
            self.waits.begin(wait, waiting, deadline, WaitPurpose::Answer(reply_to), failure);
        } else if let Some(failure) = failure {
            return Err(failure);
        } else {
            core.turn.reply(reply_to, Message::Done);
        }
        Ok(())
    }

    /// Stores or removes the enable, and returns the registrations that must receive a message.
    fn select_registrations(
        &mut self,
        core: &mut Core,
        link: LinkId,
        target: EnableTarget,
        name: &str,
        enable: &SessionEnable,
        scope: ProcessScope,
    ) -> Result<Vec<(LinkId, Vec<u32>)>, Refusal> {
        let &SessionEnable { session, code, ref params } = enable;
        Ok(match code {
            EnableCode::Enable => {
                self.registry.enable(target, session, params.clone(), scope, name)?;
                if let Some((_, controller)) = core.access.process_and_identity(link) {
                    self.registry.set_controller(target, session, controller);
                }
                self.admit_by_name(core, self.registry.matches_of_enable(target, session));
                for (link, number) in self.registry.registrations_reached(target, session) {
                    self.registry.count_left_out(link, number);
                }
                self.select_reached(target, session, |_, _| true)
            }
            EnableCode::Disable => {
                let enabled = self.select_reached(target, session, |_, enabled| enabled.contains(&session));
                if self.registry.disable(target, session) { enabled } else { Vec::new() }
            }
            EnableCode::CaptureState => {
                if !self.registry.is_known(target) {
                    let reason = "no process has registered this provider and no session has enabled it";
                    return Err(Refusal::new(Status::ERROR_INVALID_FUNCTION, reason));
                }
                let is_asked = |process: &ProviderProcess, enabled: &BTreeSet<u64>| {
                    process.is_in_scope(&scope) && enabled.contains(&session)
                };
                self.select_reached(target, session, is_asked)
            }
        })
    }

    /// Lets enables by name reach the registrations that they match, if the controller has the
    /// right to enable the GUID; disables a registration that they no longer reach.
    pub(in crate::service) fn admit_by_name(&mut self, core: &mut Core, matches: Vec<NameMatch>) {
        for name_match in matches {
            let NameMatch { link, number, provider, session, ref controller, .. } = name_match;
            let right = Rights::TRACELOG_GUID_ENABLE;
            let is_permitted = core.access.rules().missing_rights(controller, provider, right).is_empty();
            if !is_permitted {
                let (name, uid) = (core.access.peer_name(link), controller.uid);
                log_refusal!(
                    "{name}: {provider} is not enabled by its name for session {session:#x}: uid {uid} lacks {right} on the provider"
                );
            }
            let was_reached = self.registry.set_reached(&name_match, is_permitted);
            if was_reached && !is_permitted && self.registry.combined_params(link, number, session).is_none()
            {
                self.disable_registrations(core, link, vec![number], session, EnableParams::default(), 0);
            }
        }
    }

    /// Returns the registrations that a session reaches through a target and that pass the test, by
    /// process.
    pub(in crate::service) fn select_reached(
        &self,
        target: EnableTarget,
        session: u64,
        test: impl Fn(&ProviderProcess, &BTreeSet<u64>) -> bool,
    ) -> Vec<(LinkId, Vec<u32>)> {
        let mut reached: Vec<(LinkId, Vec<u32>)> = Vec::new();
        for (link, number) in self.registry.registrations_reached(target, session) {
            let Some(process) = self.registry.processes.get(&link) else { continue };
            if !process
                .registrations
                .get(&number)
                .is_some_and(|registration| test(process, &registration.sessions))
            {
                continue;
            }
            match reached.last_mut() {
                Some((last, numbers)) if *last == link => numbers.push(number),
                _ => reached.push((link, vec![number])),
            }
        }
        reached
    }

    /// Sends an enable call to some registrations of one process; returns whether the wait now
    /// includes the process. Fails if the process can get no region.
    pub(in crate::service) fn send_to_process(
        &mut self,
        core: &mut Core,
        link: LinkId,
        numbers: &[u32],
        enable: &SessionEnable,
        wait: Option<u64>,
    ) -> Result<bool, Refusal> {
        let mut last_order = None;
        for (combined, numbers) in self.registry.batch_by_params(link, numbers, enable.session) {
            let effects_before = core.turn.effects.len();
            let order = match (wait, self.registry.processes.get_mut(&link)) {
                (Some(_), Some(process)) => process.next_order(),
                _ => 0,
            };
            self.send_combined(core, link, numbers, enable, combined, order)?;
            // Without a message, the process has nothing to acknowledge.
            if core.turn.effects.len() > effects_before {
                last_order = Some(order);
            }
        }
        Ok(match (wait, last_order, self.registry.processes.get_mut(&link)) {
            // An acknowledgement covers all earlier orders, so waiting for the last one is enough.
            (Some(wait), Some(order), Some(process)) => {
                self.waits.add_link(wait, link);
                process.awaited.insert(order, wait).is_none()
            }
            _ => false,
        })
    }

    /// Sends an enable call to registrations that have the same combined parameters.
    fn send_combined(
        &mut self,
        core: &mut Core,
        link: LinkId,
        numbers: Vec<u32>,
        enable: &SessionEnable,
        combined: Option<EnableParams>,
        order: u32,
    ) -> Result<(), Refusal> {
        let &SessionEnable { session, code, ref params } = enable;
        match (code, combined) {
            (EnableCode::CaptureState, combined) => {
                // A state capture uses the level and the masks that the session has set before.
                let mut requested = params.clone();
                if let Some(EnableParams { level, match_any, match_all, .. }) = combined {
                    (requested.level, requested.match_any, requested.match_all) =
                        (level, match_any, match_all);
                }
                send_enable(core, link, numbers, session, code, requested, order);
                Ok(())
            }
            (EnableCode::Enable | EnableCode::Disable, Some(combined)) => {
                let params = EnableParams { source: params.source, ..combined };
                self.enable_registrations(core, link, &numbers, session, params, order)
            }
            (EnableCode::Enable | EnableCode::Disable, None) => {
                self.disable_registrations(core, link, numbers, session, params.clone(), order);
                Ok(())
            }
        }
    }
}

/// Returns the verb for a call in the log.
pub(in crate::service) fn log_verb(code: EnableCode) -> &'static str {
    match code {
        EnableCode::Enable => "enables",
        EnableCode::Disable => "disables",
        EnableCode::CaptureState => "asks for the state of",
    }
}
