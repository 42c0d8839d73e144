//! Private sessions of one modelled controller: those that this process starts itself, and those
//! that the controller starts.
//!
//! All modelled controllers are in one process, which can run at most three in-process sessions.
//! The start of an in-process session may fail because of this limit, and for no other reason.

use std::path::PathBuf;
use std::time::Instant;

use traceweir::controller::{EnableCode, EnableParams, SessionConfig, SessionRef, Update};
use traceweir::private::PrivateSession;
use traceweir::{Guid, Provider};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;
use traceweir_format::spec::session::{EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE};

use super::model::{EnabledProviders, ExpectedEvents, KeptEvents, ModelSession};
use super::modelled_controller::{ModelledController, PROVIDERS};
use super::providers::REGISTRATION_TIME;
use crate::helpers::{
    ALREADY_EXISTS, E_FAIL, INSTANCE_NOT_FOUND, INVALID_FUNCTION, INVALID_PARAMETER, NO_SYSTEM_RESOURCES,
    SUCCESS, enable_params, event_with, status, unique_number,
};

/// A private session that this process started.
pub(super) struct ModelledPrivateSession {
    session: PrivateSession,
    path: PathBuf,
    config: SessionConfig,
    pub(super) enabled_providers: EnabledProviders,
}

impl ModelledController<'_> {
    pub(super) fn use_private_session(&mut self) {
        let (choice, provider) = (self.random_below(8), self.random_index(PROVIDERS));
        let (request, guid) = (self.request(true, false), self.provider(provider));
        let (seconds, new_path) = (1 + self.random_below(4) as u32, self.fixture.unique_path());
        let Some(own) = &mut self.private_session else { return self.start_private() };
        // The changes of the choices 5 and 6 are not allowed for private sessions.
        let (actual_status, expected_status) = match choice {
            0 => return self.stop_private(),
            1..=2 => {
                let status_of_enable = status(own.session.enable(guid, &request.params));
                own.enabled_providers.requests.insert(provider, request);
                (status_of_enable, SUCCESS)
            }
            3 => {
                own.enabled_providers.requests.remove(&provider);
                (status(own.session.disable(guid)), SUCCESS)
            }
            4 => {
                let update =
                    Update { flush_timer: Some(seconds), log_file: Some(new_path), ..Update::default() };
                return self.update_private(&update);
            }
            5 => {
                let update = Update { real_time: Some(true), ..Update::default() };
                (status(own.session.update(&update)), INVALID_PARAMETER)
            }
            6 => {
                let property = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
                (
                    status(own.session.enable(guid, &EnableParams { property, ..request.params })),
                    INVALID_PARAMETER,
                )
            }
            _ => {
                let queried = own.session.query().config;
                let is_same = queried == SessionConfig { guid: queried.guid, ..own.config.clone() };
                // E_FAIL stands for a configuration that differs from that of the model.
                (if is_same { SUCCESS } else { E_FAIL }, SUCCESS)
            }
        };
        self.expect(&format!("in-process session, choice {choice}"), actual_status, &[expected_status]);
        self.write();
    }

    fn start_private(&mut self) {
        let path = self.fixture.unique_path();
        let config = SessionConfig {
            name: format!("own {}", unique_number()),
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            log_file: Some(path.clone()),
            buffer_size: 4,
            ..SessionConfig::default()
        };
        match PrivateSession::start(&config) {
            Ok(session) => {
                let mode = EVENT_TRACE_FILE_MODE_SEQUENTIAL
                    | EVENT_TRACE_PRIVATE_LOGGER_MODE
                    | EVENT_TRACE_PRIVATE_IN_PROC;
                let requested = SessionConfig { log_file_mode: mode, ..config };
                let config = ModelSession::new(0, &requested, ExpectedEvents::default()).config;
                self.private_session = Some(ModelledPrivateSession {
                    session,
                    path,
                    config,
                    enabled_providers: EnabledProviders::default(),
                });
            }
            Err(error) => {
                let operation = format!("in-process session, start: {error}");
                self.expect(&operation, error.status(), &[NO_SYSTEM_RESOURCES]);
                self.expect_no_file(Some(path));
            }
        }
    }

    fn update_private(&mut self, update: &Update) {
        let Some(own) = &mut self.private_session else { return };
        let answer = own.session.update(update);
        let (Ok(properties), Some(new_path)) = (&answer, &update.log_file) else {
            return self.expect("in-process session, update", status(answer), &[SUCCESS]);
        };
        let old_path = std::mem::replace(&mut own.path, new_path.clone());
        let expected = std::mem::take(&mut own.enabled_providers.expected);
        own.config.log_file = Some(new_path.clone());
        own.config.flush_timer = update.flush_timer.unwrap_or(own.config.flush_timer);
        self.check_log(std::slice::from_ref(&old_path), &expected, KeptEvents::All, properties.events_lost);
        self.remove(&[old_path]);
    }

    pub(super) fn stop_private(&mut self) {
        let Some(ModelledPrivateSession { session, path, enabled_providers, .. }) =
            self.private_session.take()
        else {
            return;
        };
        match session.stop() {
            Ok(end) => {
                self.check_log(
                    std::slice::from_ref(&path),
                    &enabled_providers.expected,
                    KeptEvents::All,
                    end.events_lost,
                );
            }
            Err(error) => self.record_divergence(format!("in-process session, stop: {error}")),
        }
        self.remove(&[path]);
    }

    /// Starts, uses and stops a private session of a controller. Only this process registers the
    /// provider, so only this process takes part in the session.
    pub(super) fn run_controller_private_session(&mut self) {
        let guid = Guid::from_u128(0xDA7A_EE00_0000 | u128::from(unique_number()));
        let (registers_late, path) = (self.one_in(2), self.fixture.unique_path());
        let early_provider = (!registers_late).then(|| Provider::register(guid, None));
        let name = format!("random {} outside", self.number);
        let session = SessionRef::Name(name.clone());
        let config = SessionConfig {
            name,
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_PRIVATE_LOGGER_MODE,
            guid,
            log_file: Some(path.clone()),
            buffer_size: 4,
            ..SessionConfig::default()
        };
        for expected_status in [SUCCESS, ALREADY_EXISTS] {
            let status_of_start = status(self.controller.start(&config));
            self.expect("private session, start", status_of_start, &[expected_status]);
        }
        let enabled =
            self.controller.enable(&session, guid, EnableCode::Enable, &enable_params(4, 1, 0), 10_000);
        self.expect("private session, enable", status(enabled), &[SUCCESS]);
        let start = Instant::now();
        let mut expected = match early_provider.unwrap_or_else(|| Provider::register(guid, None)) {
            Ok(provider) => write_events_for(4, 1, &provider),
            Err(error) => return self.record_divergence(format!("private session, register: {error}")),
        };
        if start.elapsed() >= REGISTRATION_TIME {
            expected.possible.append(&mut expected.required);
        }
        let increment_status = status(self.controller.increment(&session));
        let convert_status = status(self.controller.convert_to_real_time(&session));
        self.expect("private session, increment", increment_status, &[INVALID_FUNCTION]);
        self.expect("private session, convert", convert_status, &[INVALID_FUNCTION]);
        match self.controller.stop(&session) {
            Ok(end) => {
                self.check_log(std::slice::from_ref(&path), &expected, KeptEvents::All, end.events_lost);
            }
            Err(error) => self.record_divergence(format!("private session, stop: {error}")),
        }
        let query_status = status(self.controller.query(&session));
        self.expect("private session, query", query_status, &[INSTANCE_NOT_FOUND]);
        self.remove(&[path]);
    }
}

/// Writes events of several levels and keywords. Returns the events that a session with this level
/// and MatchAny mask must get.
fn write_events_for(max_level: u8, any: u64, provider: &Provider) -> ExpectedEvents {
    let mut expected = ExpectedEvents::default();
    for (number, (level, keyword)) in (1..).zip([(4, 1), (5, 1), (1, 2), (4, 3), (0, 0)]) {
        let is_written = provider.write(&event_with(1, level, keyword), &[&u64::to_le_bytes(number)]).is_ok();
        let is_expected = level <= max_level && (keyword == 0 || keyword & any != 0);
        let list = if is_written { &mut expected.required } else { &mut expected.possible };
        list.extend(is_expected.then_some(number));
    }
    expected
}
