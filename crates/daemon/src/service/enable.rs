//! `EnableProvider`: what a session wants from a provider or a group, now and from later registrations.
//!
//! Each call replaces all that the session wanted from the target before, filters included. A registration may be the target of three enables of
//! one session, directly, by its name and by its group, so what it is told is what the registry makes of them: something is wanted, and it is told that, or
//! nothing, and where it was enabled before it is told to stop.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableCode, EnableParams, MAX_PROVIDER_NAME, Message, SessionRef};

use super::access::rights_to_run;
use super::kernel::is_kernels;
use super::wait::Purpose;
use super::{Asker, LinkId, Service, enabled, refused};
use crate::error::Refusal;
use crate::filter::{self, Scope};
use crate::registry::{NameMatch, Process, Target};

/// The timeout that means "wait for ever".
const FOR_EVER: u32 = u32::MAX;
/// Enable calls of one controller that may be waiting for processes.
const MAX_WAITS: usize = 64;

/// What a controller asks of a provider.
#[derive(Debug)]
pub(super) struct EnableCall {
    pub(super) provider: Guid,
    pub(super) code: EnableCode,
    pub(super) params: EnableParams,
    /// What the controller calls the provider.
    pub(super) name: String,
    pub(super) timeout_ms: u32,
}

impl EnableCall {
    /// Refuses a name that is too long, or would do something to the terminal of who reads it.
    pub(super) fn check_name(&self) -> Result<(), Refusal> {
        let is_long = self.name.encode_utf16().count() > MAX_PROVIDER_NAME;
        if is_long || self.name.contains(char::is_control) {
            let why = format!(
                "the name of a provider has {MAX_PROVIDER_NAME} characters at most, none of them a control character"
            );
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, why));
        }
        Ok(())
    }
}

impl Service {
    /// Enables, disables or asks for state.
    pub(super) fn enable_provider(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        call: EnableCall,
    ) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        call.check_name()?;
        let (session, running) = self.sessions.find_running(session)?;
        let config = running.properties().config;
        if call.provider.is_null() {
            return Err(is_no_provider());
        }
        // What a session records is changed by who may run it, and no one else.
        self.check_right(asker.link, config.guid, rights_to_run(&config))?;
        if is_kernels(&call.provider) {
            return self.enable_kernel(asker, (session, &config), call);
        }
        let EnableCall { provider, code, params, name, timeout_ms } = call;
        self.check_enable(asker.link, provider)?;
        if self.waits.of(asker.link).len() >= MAX_WAITS {
            return Err(Refusal::new(Status::ERROR_BUSY, "too many calls of this controller are waiting"));
        }
        let target = Target::of_call(provider, params.property);
        let (mut params, scope) = filter::resolve(&provider, params)?;
        params.property &= !EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        let targets = self.select(asker.link, target, (session, &name), code, &params, scope)?;
        let wait = (timeout_ms != 0).then(|| self.waits.next_id());
        let (mut waiting, mut failure) = (0, None);
        for (link, numbers) in targets {
            match self.instruct(link, &numbers, session, code, &params, wait) {
                Ok(waits) => waiting += usize::from(waits),
                Err(refusal) => failure = failure.or(Some(refusal)),
            }
        }
        enabled!("{}, {} {provider} for session {:?}", self.who(asker.link), verb(code), config.name);
        match (wait, failure) {
            (Some(wait), failure) if waiting > 0 => {
                let deadline = Instant::now() + Duration::from_millis(u64::from(timeout_ms));
                let deadline = (timeout_ms != FOR_EVER).then_some(deadline);
                self.waits.begin(wait, waiting, deadline, Purpose::Answer(asker), failure);
            }
            (Some(_), Some(failure)) => return Err(failure),
            // Who does not wait is not told what came of it.
            _ => self.reply(asker, Message::Done),
        }
        Ok(())
    }

    /// Whether the peer of a connection may enable these at all, in whatever session.
    pub(super) fn check_enables(&mut self, asker: Asker, providers: &[Guid]) -> Result<(), Refusal> {
        for provider in providers {
            if provider.is_null() {
                return Err(is_no_provider());
            }
            self.check_enable(asker.link, *provider)?;
        }
        self.reply(asker, Message::Done);
        Ok(())
    }

    pub(super) fn check_enable(&self, link: LinkId, provider: Guid) -> Result<(), Refusal> {
        self.check_right(link, provider, Rights::TRACELOG_GUID_ENABLE)
    }

    /// Remembers what the session wants, and says which registrations are to be told.
    fn select(
        &mut self,
        link: LinkId,
        target: Target,
        (session, name): (u64, &str),
        code: EnableCode,
        params: &EnableParams,
        scope: Scope,
    ) -> Result<Vec<(LinkId, Vec<u32>)>, Refusal> {
        Ok(match code {
            EnableCode::Enable => {
                self.registry.enable(target, session, params.clone(), scope, name)?;
                if let Some((_, controller)) = self.starter(link) {
                    self.registry.set_controller(target, session, controller);
                }
                self.admit_by_name(self.registry.matches_of_enable(target, session));
                for (link, number) in self.registry.registrations_reached(target, session) {
                    self.registry.count_left_out(link, number);
                }
                self.targets(target, session, |_, _| true)
            }
            EnableCode::Disable => {
                let enabled = self.targets(target, session, |_, enabled| enabled.contains(&session));
                if self.registry.disable(target, session) { enabled } else { Vec::new() }
            }
            EnableCode::CaptureState => {
                if !self.registry.is_known(target) {
                    let why = "nobody has registered or enabled this provider";
                    return Err(Refusal::new(Status::ERROR_INVALID_FUNCTION, why));
                }
                let is_asked = |process: &Process, enabled: &BTreeSet<u64>| {
                    process.is_in(&scope) && enabled.contains(&session)
                };
                self.targets(target, session, is_asked)
            }
        })
    }

    /// Lets enables by name reach the registrations that they match, where the controller has the right to enable the GUID.
    pub(super) fn admit_by_name(&mut self, matches: Vec<NameMatch>) {
        for name_match in matches {
            let NameMatch { link, number, provider, session, ref controller } = name_match;
            let right = Rights::TRACELOG_GUID_ENABLE;
            let is_permitted = self.access.missing(controller, provider, right).is_empty();
            if !is_permitted {
                let (name, uid) = (self.who(link), controller.uid);
                refused!(
                    "{name}: {provider} is not enabled by its name for session {session:#x}: uid {uid} has no {right} on it"
                );
            }
            let was_reached = self.registry.set_reached(&name_match, is_permitted);
            if was_reached && !is_permitted && self.registry.wish(link, number, session).is_none() {
                self.switch_off(link, vec![number], session, EnableParams::default(), 0);
            }
        }
    }

    /// The registrations that a session reaches by a target and that pass a test, by process.
    pub(super) fn targets(
        &self,
        target: Target,
        session: u64,
        test: impl Fn(&Process, &BTreeSet<u64>) -> bool,
    ) -> Vec<(LinkId, Vec<u32>)> {
        let mut targets: Vec<(LinkId, Vec<u32>)> = Vec::new();
        for (link, number) in self.registry.registrations_reached(target, session) {
            let Some(process) = self.registry.processes.get(&link) else { continue };
            if !process.registrations.get(&number).is_some_and(|it| test(process, &it.sessions)) {
                continue;
            }
            match targets.last_mut() {
                Some((last, numbers)) if *last == link => numbers.push(number),
                _ => targets.push((link, vec![number])),
            }
        }
        targets
    }

    /// Tells some registrations of one process; whether the wait now waits for it. An error: the process can have no region.
    pub(super) fn instruct(
        &mut self,
        link: LinkId,
        numbers: &[u32],
        session: u64,
        code: EnableCode,
        params: &EnableParams,
        wait: Option<u64>,
    ) -> Result<bool, Refusal> {
        let mut last_order = None;
        for (wish, numbers) in self.registry.wishes(link, numbers, session) {
            let said = self.effects.len();
            let order = match (wait, self.registry.processes.get_mut(&link)) {
                (Some(_), Some(process)) => process.next_order(),
                _ => 0,
            };
            self.instruct_alike(link, numbers, session, (code, params, wish), order)?;
            if self.effects.len() > said {
                last_order = Some(order);
            }
        }
        Ok(match (wait, last_order, self.registry.processes.get_mut(&link)) {
            // An acknowledgement covers all earlier orders: the last one is enough.
            (Some(wait), Some(order), Some(process)) => {
                self.waits.is_for(wait, link);
                process.awaited.insert(order, wait).is_none()
            }
            _ => false,
        })
    }

    /// Tells registrations of which the session wants the same.
    fn instruct_alike(
        &mut self,
        link: LinkId,
        numbers: Vec<u32>,
        session: u64,
        (code, params, wish): (EnableCode, &EnableParams, Option<EnableParams>),
        order: u32,
    ) -> Result<(), Refusal> {
        match (code, wish) {
            (EnableCode::CaptureState, wish) => {
                // The provider is asked at the level and with the masks that the session has set before.
                let mut asked = params.clone();
                if let Some(EnableParams { level, match_any, match_all, .. }) = wish {
                    (asked.level, asked.match_any, asked.match_all) = (level, match_any, match_all);
                }
                self.tell(link, numbers, session, code, asked, order);
                Ok(())
            }
            (EnableCode::Enable | EnableCode::Disable, Some(wish)) => {
                let wish = EnableParams { source: params.source, ..wish };
                self.switch_on(link, &numbers, session, wish, order)
            }
            (EnableCode::Enable | EnableCode::Disable, None) => {
                self.switch_off(link, numbers, session, params.clone(), order);
                Ok(())
            }
        }
    }

    /// All processes have acknowledged, time is up, or one could not do it; the enable stands in any case.
    pub(super) fn answer_enable(&mut self, asker: Asker, outcome: Result<(), Refusal>) {
        match outcome {
            Ok(()) => self.reply(asker, Message::Done),
            Err(refusal) => self.refuse(asker, refusal),
        }
    }
}

fn is_no_provider() -> Refusal {
    Refusal::new(Status::ERROR_INVALID_PARAMETER, "the null GUID is no provider")
}

/// What a call does, for the log.
pub(super) fn verb(code: EnableCode) -> &'static str {
    match code {
        EnableCode::Enable => "enables",
        EnableCode::Disable => "disables",
        EnableCode::CaptureState => "asks for the state of",
    }
}
