//! A modelled controller: one controller with a model of its sessions. Its past calls determine the
//! answers that it must get.
//!
//! No other thread uses the names and providers of a modelled controller. So the model predicts
//! every answer about them, and the numbered events that each log holds. Any thread may start, stop
//! or enable shared sessions at any time: an answer about them must be one that some order of calls
//! gives.
//!
//! | Module | Operations |
//! |---|---|
//! | this module | query a session, list sessions and providers |
//! | `sessions` | start, stop, update, flush, next file, conversion to real time |
//! | `providers` | enable, disable, capture, register, write |
//! | `logs` | contents of the files |
//! | `private` | private sessions, started by this process or by a controller |
//! | `shared` | shared sessions and providers |

use std::path::PathBuf;
use std::time::{Duration, Instant};

use traceweir::controller::{Controller, Properties, SessionRef};
use traceweir::{Error, Guid, Provider, Status};

use super::Times;
use super::model::{EnabledProviders, ExpectedEvents, MEMBER, ModelSession};
use super::private::ModelledPrivateSession;
use crate::helpers::{Fixture, INSTANCE_NOT_FOUND, SUCCESS, status};

/// Prefix of the shared session names.
pub(super) const SHARED: &str = "random shared";

/// Number of session names that each modelled controller uses.
pub(super) const NAMES: usize = 3;
/// Number of providers of each modelled controller.
pub(super) const PROVIDERS: usize = 3;
/// Maximum number of registrations of one provider by one thread.
pub(super) const MAX_REGISTRATIONS: usize = 3;
/// Time that a daemon may take to learn of the end of a registration.
pub(super) const UNREGISTER_NOTICE_TIME: Duration = Duration::from_secs(5);

pub(super) struct ModelledController<'s> {
    pub(super) fixture: &'s Fixture,
    pub(super) controller: Controller,
    random: u64,
    /// Number of the thread that runs this controller.
    pub(super) number: u64,
    pub(super) running: [Option<ModelSession>; NAMES],
    /// A private session that this process started.
    pub(super) private_session: Option<ModelledPrivateSession>,
    /// A log that later sessions append to, and its contents.
    pub(super) appended_log: Option<(PathBuf, ExpectedEvents)>,
    pub(super) registrations: [Vec<Provider>; PROVIDERS],
    /// Time of the last unregistration of each provider.
    pub(super) unregistered_at: [Option<Instant>; PROVIDERS],
    /// Registrations of shared providers.
    pub(super) shared_registrations: Vec<Provider>,
    /// Number of the last event.
    pub(super) last_event: u64,
    pub(super) results: ControllerResults,
}

/// Results of a modelled controller.
#[derive(Default)]
pub(super) struct ControllerResults {
    pub(super) divergences: Vec<String>,
    pub(super) broken_logs: Vec<String>,
    pub(super) logs: u64,
    /// Number of required events in logs that keep all events.
    pub(super) events: u64,
    pub(super) times: Times,
}

type Operation<'s> = fn(&mut ModelledController<'s>);

impl<'s> ModelledController<'s> {
    /// The operations, with their names and weights.
    const OPERATIONS: [(&'static str, u64, Operation<'s>); 21] = [
        ("query", 22, Self::query),
        ("list", 4, Self::list),
        ("providers", 4, Self::providers),
        ("enable", 16, Self::enable),
        ("disable", 8, Self::disable),
        ("capture", 6, Self::capture),
        ("update", 6, Self::update),
        ("flush", 3, Self::flush),
        ("increment", 2, Self::increment),
        ("convert", 1, Self::convert),
        ("register", 5, Self::register),
        ("unregister", 4, Self::unregister),
        ("write", 8, Self::write),
        ("wrong start", 4, Self::start_with_wrong_config),
        ("wrong enable", 3, Self::enable_with_wrong_filter),
        ("wrong update", 2, Self::update_with_wrong_values),
        ("start", 3, Self::start),
        ("stop", 2, Self::stop),
        ("in-process", 4, Self::use_private_session),
        ("private", 1, Self::run_controller_private_session),
        ("shared", 10, Self::use_shared_session),
    ];

    pub(super) fn new(fixture: &'s Fixture, number: u64, seed: u64) -> Self {
        Self {
            fixture,
            controller: fixture.connect(),
            // A state of 0 would stay 0.
            random: (seed << 8 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            number,
            running: Default::default(),
            private_session: None,
            appended_log: None,
            registrations: Default::default(),
            unregistered_at: Default::default(),
            shared_registrations: Vec::new(),
            last_event: 0,
            results: ControllerResults::default(),
        }
    }

    /// Performs this many steps, and then stops all sessions of this controller.
    pub(super) fn play(mut self, steps: u64) -> ControllerResults {
        for _ in 0..steps {
            let (name, _, operation) = self.next_operation();
            let start = Instant::now();
            operation(&mut self);
            let times = self.results.times.entry(name).or_default();
            *times = (times.0 + 1, times.1 + start.elapsed());
            if self.results.divergences.len() + self.results.broken_logs.len() > 10 {
                break;
            }
        }
        for name in 0..NAMES {
            self.stop_named(name);
        }
        self.stop_private();
        self.results
    }

    fn next_operation(&mut self) -> (&'static str, u64, Operation<'s>) {
        let total_weight = Self::OPERATIONS.iter().map(|(_, weight, _)| weight).sum();
        let mut remaining_weight = self.random_below(total_weight);
        for operation @ (_, weight, _) in Self::OPERATIONS {
            if remaining_weight < weight {
                return operation;
            }
            remaining_weight -= weight;
        }
        Self::OPERATIONS[0]
    }

    /// Returns a random number below `limit` (xorshift64*).
    pub(super) fn random_below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    pub(super) fn random_index(&mut self, limit: usize) -> usize {
        self.random_below(limit as u64) as usize
    }

    /// Returns true once in `times` calls, on average.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.random_below(times) == 0
    }

    /// Records a divergence unless the status of `operation` is one of these.
    pub(super) fn expect(&mut self, operation: &str, status: Status, allowed: &[Status]) {
        if !allowed.contains(&status) {
            self.record_divergence(format!("{operation}: {status:?}, and not one of {allowed:?}"));
        }
    }

    pub(super) fn record_divergence(&mut self, text: String) {
        self.results.divergences.push(format!("thread {}: {text}", self.number));
    }

    pub(super) fn name(&self, name: usize) -> String {
        format!("random {} {name}", self.number)
    }

    pub(super) fn provider(&self, provider: usize) -> Guid {
        Guid::from_u128(0xDA7A_0000 | u128::from(self.number) << 8 | provider as u128)
    }

    /// Returns the group of the provider `MEMBER`.
    pub(super) fn group(&self) -> Guid {
        self.provider(0xFF)
    }

    /// Returns the enabled providers of each session of this controller.
    pub(super) fn all_enabled(&mut self) -> impl Iterator<Item = &mut EnabledProviders> {
        let sessions = self.running.iter_mut().flatten().map(|model| &mut model.enabled_providers);
        sessions.chain(
            self.private_session.as_mut().map(|private_session| &mut private_session.enabled_providers),
        )
    }

    /// Refers to a session at random by its name, by its name in upper case, or by its id if the
    /// session runs.
    pub(super) fn reference(&mut self, name: usize) -> SessionRef {
        let kind = self.random_below(3);
        match &self.running[name] {
            Some(model) if kind == 0 => SessionRef::Id(model.id),
            _ if kind == 1 => SessionRef::Name(self.name(name).to_uppercase()),
            _ => SessionRef::Name(self.name(name)),
        }
    }

    /// Returns the status that a call about this session must have.
    pub(super) fn running_status(&self, name: usize) -> Status {
        if self.running[name].is_some() { SUCCESS } else { INSTANCE_NOT_FOUND }
    }

    fn query(&mut self) {
        let name = self.random_index(NAMES);
        let reference = self.reference(name);
        let answer = self.controller.query(&reference);
        self.compare("query", name, answer);
    }

    /// Records a divergence unless the answer about a session is that of the model.
    pub(super) fn compare(&mut self, operation: &str, name: usize, answer: Result<Properties, Error>) {
        let expected_status = self.running_status(name);
        match (answer, &mut self.running[name]) {
            (Ok(properties), Some(model)) => {
                if properties.id != model.id || !model.is_shown_by(&properties.config) {
                    let text = format!("{operation}: {properties:?}, and not {:?}", model.config);
                    self.record_divergence(text);
                }
            }
            (answer, _) => self.expect(operation, status(answer), &[expected_status]),
        }
    }

    fn list(&mut self) {
        let prefix = format!("random {} ", self.number);
        match self.controller.query_all() {
            Ok(sessions) => {
                let mut listed: Vec<u64> = sessions
                    .iter()
                    .filter(|session| session.config.name.starts_with(&prefix))
                    .map(|session| session.id)
                    .collect();
                let mut expected_ids: Vec<u64> =
                    self.running.iter().flatten().map(|model| model.id).collect();
                listed.sort_unstable();
                expected_ids.sort_unstable();
                if listed != expected_ids {
                    self.record_divergence(format!("list: {listed:x?}, and not {expected_ids:x?}"));
                }
            }
            Err(error) => self.record_divergence(format!("list: {error}")),
        }
    }

    fn providers(&mut self) {
        let entries = match self.controller.provider_entries() {
            Ok(entries) => entries,
            Err(error) => return self.record_divergence(format!("providers: {error}")),
        };
        for provider in 0..=PROVIDERS {
            let is_group = provider == PROVIDERS;
            let guid = if is_group { self.group() } else { self.provider(provider) };
            let entry = entries.iter().find(|entry| (entry.provider, entry.is_group) == (guid, is_group));
            let request = |model: &ModelSession| match is_group {
                true => model
                    .enabled_providers
                    .group_request
                    .as_ref()
                    .map(|request| (model.id, request.listed_values())),
                false => model
                    .enabled_providers
                    .requests
                    .get(&provider)
                    .map(|request| (model.id, request.listed_values())),
            };
            let mut expected_values: Vec<_> = self.running.iter().flatten().filter_map(request).collect();
            let listed = entry.iter().flat_map(|entry| &entry.sessions).map(|session| {
                let mut kinds: Vec<_> = session.filters.iter().map(|filter| filter.kind).collect();
                kinds.sort_unstable();
                (session.session, (session.level, session.any, session.all, session.property, kinds))
            });
            let mut listed: Vec<_> = listed.collect();
            listed.sort_unstable();
            expected_values.sort_unstable();
            if listed != expected_values {
                self.record_divergence(format!("providers: {listed:x?}, and not {expected_values:x?}"));
            }
            let member = if is_group { MEMBER } else { provider };
            let is_registered = entry.is_some_and(|entry| entry.pids == [std::process::id()]);
            let was_unregistered_recently =
                self.unregistered_at[member].is_some_and(|time| time.elapsed() < UNREGISTER_NOTICE_TIME);
            let is_divergence = is_registered == self.registrations[member].is_empty();
            if is_divergence && !(is_registered && was_unregistered_recently) {
                let state = if is_registered { "registered" } else { "not registered" };
                self.record_divergence(format!("provider {provider} is listed as {state}"));
            }
        }
    }
}
