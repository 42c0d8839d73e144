//! Providers of one modelled controller. They register, and write numbered events; sessions enable
//! them directly or by their group, with or without filters.

use std::time::{Duration, Instant};

use traceweir::controller::{EnableCode, EnableParams, Filter};
use traceweir::provider::EnableCallback;
use traceweir::{Provider, Status};
use traceweir_format::filter::{Gate, encode};
use traceweir_format::spec::enable::*;
use traceweir_format::tracelogging::TraitsBuilder;

use super::model::{EnabledProviders, MEMBER, Request, WrittenEvent};
use super::modelled_controller::{
    MAX_REGISTRATIONS, ModelledController, NAMES, PROVIDERS, UNREGISTER_NOTICE_TIME,
};
use crate::helpers::{
    INSTANCE_NOT_FOUND, INVALID_FUNCTION, INVALID_PARAMETER, NOT_ENOUGH_MEMORY, SUCCESS, enable_params,
    event_with, status,
};

/// A filter type that only providers understand.
const PROVIDER_DEFINED_FILTER: u32 = 0x1234;
const CALLBACK_TIMEOUT_MS: u32 = 10_000;
/// A registration waits up to a second for the daemon's answer. A registration that took less than
/// this time got the answer.
pub(super) const REGISTRATION_TIME: Duration = Duration::from_millis(900);

/// The target of an enable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Provider(usize),
    Group,
}

impl Target {
    /// Returns the provider of this process that the target includes.
    fn provider(self) -> usize {
        match self {
            Self::Provider(provider) => provider,
            Self::Group => MEMBER,
        }
    }

    fn property(self) -> u32 {
        if self == Self::Group { EVENT_ENABLE_PROPERTY_PROVIDER_GROUP } else { 0 }
    }

    /// Replaces the session's request for the target. Returns the previous request.
    fn set(self, enabled_providers: &mut EnabledProviders, request: Option<Request>) -> Option<Request> {
        match (self, request) {
            (Self::Group, request) => std::mem::replace(&mut enabled_providers.group_request, request),
            (Self::Provider(provider), Some(request)) => enabled_providers.requests.insert(provider, request),
            (Self::Provider(provider), None) => enabled_providers.requests.remove(&provider),
        }
    }
}

impl ModelledController<'_> {
    fn choose_target(&mut self) -> Target {
        if self.one_in(6) { Target::Group } else { Target::Provider(self.random_index(PROVIDERS)) }
    }

    /// Returns a request with random level, masks and property, and sometimes with allowed filters.
    pub(super) fn request(&mut self, may_limit_events: bool, may_limit_scope: bool) -> Request {
        let params = enable_params(self.random_below(6) as u8, self.random_below(4), self.random_below(2));
        let property = [0, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0][self.random_index(2)];
        let mut request = Request { params: EnableParams { property, ..params }, ..Request::default() };
        if may_limit_events && self.one_in(3) {
            // 9 is always listed, because a filter without ids is refused.
            let listed = (0..9).filter(|_| self.one_in(2)).chain([9]).collect();
            request = request.with_id_filter(listed, self.one_in(2));
        }
        for by_name in [false, true] {
            if may_limit_scope && self.one_in(6) {
                request = request.with_process_filter(by_name, !self.one_in(3));
            }
        }
        if self.one_in(6) {
            request = request.with_filter(PROVIDER_DEFINED_FILTER, b"for the callback".to_vec());
        }
        if self.one_in(6) {
            let filter = encode::level_keyword(Gate { any: 1, all: 0, level: 4 }, true);
            request = request.with_filter(EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, filter);
        }
        request
    }

    pub(super) fn enable(&mut self) {
        let (name, target) = (self.random_index(NAMES), self.choose_target());
        let mut request = self.request(target != Target::Group, true);
        request.params.property |= target.property();
        self.enable_or_disable(name, target, Some(request));
    }

    pub(super) fn disable(&mut self) {
        let (name, target) = (self.random_index(NAMES), self.choose_target());
        self.enable_or_disable(name, target, None);
    }

    /// Enables the target with `request`, or disables it without one. If the call waits for the
    /// callbacks of this process, the outcome of later writes is certain.
    fn enable_or_disable(&mut self, name: usize, target: Target, request: Option<Request>) {
        let waits_for_callbacks = self.one_in(2);
        let code = if request.is_some() { EnableCode::Enable } else { EnableCode::Disable };
        let disable_params = EnableParams { property: target.property(), ..EnableParams::default() };
        let params = request.as_ref().map_or(disable_params, |request| request.params.clone());
        let enable_status = self.change_enable(
            name,
            target,
            code,
            &params,
            if waits_for_callbacks { CALLBACK_TIMEOUT_MS } else { 0 },
        );
        let expected_status = self.running_status(name);
        self.expect("enable", enable_status, &[expected_status]);
        let is_registered = !self.registrations[target.provider()].is_empty();
        if let (SUCCESS, Some(model)) = (enable_status, &mut self.running[name]) {
            let enabled_providers = &mut model.enabled_providers;
            let was_enabled = target
                .set(enabled_providers, request.clone())
                .is_some_and(|before| !before.excludes_this_process);
            // If the provider is enabled neither before nor after the call, this process gets no
            // notification, and the call does not wait for it.
            let is_notified = was_enabled || request.is_some_and(|request| !request.excludes_this_process);
            if is_registered && is_notified {
                match waits_for_callbacks {
                    true => enabled_providers.unconfirmed.remove(&target.provider()),
                    false => enabled_providers.unconfirmed.insert(target.provider()),
                };
            }
        }
        self.write_all(target.provider());
    }

    fn change_enable(
        &mut self,
        name: usize,
        target: Target,
        code: EnableCode,
        params: &EnableParams,
        timeout_ms: u32,
    ) -> Status {
        let guid = match target {
            Target::Provider(provider) => self.provider(provider),
            Target::Group => self.group(),
        };
        let reference = self.reference(name);
        status(self.controller.enable(&reference, guid, code, params, timeout_ms))
    }

    pub(super) fn capture(&mut self) {
        let (name, provider) = (self.random_index(NAMES), self.random_index(PROVIDERS));
        let is_enabled = self
            .running
            .iter()
            .flatten()
            .any(|model| model.enabled_providers.requests.contains_key(&provider));
        let is_known = is_enabled || !self.registrations[provider].is_empty();
        let was_known_recently =
            self.unregistered_at[provider].is_some_and(|time| time.elapsed() < UNREGISTER_NOTICE_TIME);
        let target = Target::Provider(provider);
        let capture_status =
            self.change_enable(name, target, EnableCode::CaptureState, &EnableParams::default(), 0);
        let allowed: &[Status] = match (self.running_status(name), is_known, was_known_recently) {
            (SUCCESS, true, _) => &[SUCCESS],
            (SUCCESS, false, true) => &[SUCCESS, INVALID_FUNCTION],
            (SUCCESS, false, false) => &[INVALID_FUNCTION],
            _ => &[INSTANCE_NOT_FOUND],
        };
        self.expect("capture", capture_status, allowed);
    }

    pub(super) fn enable_with_wrong_filter(&mut self) {
        let (name, mut target) = (self.random_index(NAMES), Target::Provider(self.random_index(PROVIDERS)));
        let filter = |kind, bytes| vec![Filter { kind, data: vec![1; bytes] }];
        // A part of a process id, too many bytes, two filters of one type, event ids for a group,
        // an unknown type.
        let filters = match self.random_below(5) {
            0 => filter(EVENT_FILTER_TYPE_PID, 3),
            1 => filter(PROVIDER_DEFINED_FILTER, 1025),
            2 => [filter(7, 1), filter(7, 1)].concat(),
            3 => {
                target = Target::Group;
                let data = encode::event_ids(true, &[7]);
                vec![Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data }]
            }
            _ => filter(0x8000_0040, 4),
        };
        let params = EnableParams { filters, property: target.property(), ..EnableParams::default() };
        let enable_status = self.change_enable(name, target, EnableCode::Enable, &params, 0);
        let expected_status =
            if self.running[name].is_some() { INVALID_PARAMETER } else { INSTANCE_NOT_FOUND };
        self.expect("wrong enable", enable_status, &[expected_status]);
        self.write_all(target.provider());
    }

    pub(super) fn register(&mut self) {
        let provider = self.random_index(PROVIDERS);
        if self.registrations[provider].len() >= MAX_REGISTRATIONS {
            return;
        }
        // A first registration receives all earlier changes, so no change is unconfirmed any more.
        if self.registrations[provider].is_empty() {
            self.all_enabled().for_each(|enabled_providers| {
                enabled_providers.unconfirmed.retain(|other| *other != provider)
            });
        }
        let callback = self.one_in(2).then(|| -> EnableCallback { Box::new(|_| {}) });
        let guid = self.provider(provider);
        let start = Instant::now();
        let registration_result = match provider {
            MEMBER => Provider::register_with_traits(guid, &member_traits(self), callback),
            _ => Provider::register(guid, callback),
        };
        match registration_result {
            Ok(registration) if start.elapsed() < REGISTRATION_TIME => {
                self.registrations[provider].push(registration)
            }
            // The registration stopped waiting for the daemon, which may enable it at any time. So
            // the registration is dropped at once.
            Ok(_) => self.unregistered_at[provider] = Some(Instant::now()),
            Err(error) => self.record_divergence(format!("register: {error}")),
        }
        self.write_all(provider);
    }

    pub(super) fn unregister(&mut self) {
        let provider = self.random_index(PROVIDERS);
        if self.registrations[provider].pop().is_some() {
            self.unregistered_at[provider] = Some(Instant::now());
        }
    }

    pub(super) fn write(&mut self) {
        let provider = self.random_index(PROVIDERS);
        self.write_all(provider);
    }

    /// Writes one event, with a new number, from every registration of a provider. Records which
    /// sessions must get the event.
    fn write_all(&mut self, provider: usize) {
        for index in 0..self.registrations[provider].len() {
            let event = WrittenEvent {
                id: self.random_below(10) as u16,
                level: self.random_below(6) as u8,
                keyword: self.random_below(4),
            };
            let filler = vec![b'f'; self.random_index(100)];
            self.last_event += 1;
            let number = self.last_event;
            let Some(registration) = self.registrations[provider].get(index) else { return };
            let descriptor = event_with(event.id, event.level, event.keyword);
            let written = registration.write(&descriptor, &[&number.to_le_bytes(), &filler]);
            let error_status = written.err().map(|error| error.status());
            self.all_enabled()
                .for_each(|enabled| enabled.record_write(provider, &event, number, error_status.is_none()));
            if error_status.is_some_and(|status| status != NOT_ENOUGH_MEMORY) {
                self.record_divergence(format!("write: {error_status:?}"));
            }
        }
    }
}

fn member_traits(controller: &ModelledController<'_>) -> Vec<u8> {
    TraitsBuilder::new("Member")
        .group(&controller.group())
        .finish()
        .expect("the traits are too large")
        .to_vec()
}
