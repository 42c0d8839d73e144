//! Model test of the orders that registrations receive: after each random step of processes and
//! controllers, every registration must have received exactly what a naive model predicts.
//!
//! The model keeps all calls in a list and searches it each time. Only for a classic registration
//! does it store the session that the registration follows, because the order of calls decides.

use std::collections::BTreeMap;

use traceweir_format::spec::enable::{EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_FILTER_TYPE_PID};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Filter;

use super::*;

const SESSIONS: usize = 10;
/// Number of GUIDs; each can name both a provider and a group.
const GUIDS: u128 = 3;

/// A level, and the masks of `match_any` and `match_all`.
type Values = (u8, u64, u64);
type RegistrationTable = BTreeMap<(LinkId, u32), ModelRegistration>;

/// A small random number generator; the seed is all that is needed to repeat a failure.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn guid(&mut self) -> Guid {
        Guid::from_u128(1 + u128::from(self.below(GUIDS as u64)))
    }
}

/// A registration as its process made it.
#[derive(Clone, Debug)]
struct ModelRegistration {
    provider: Guid,
    group: Option<Guid>,
    has_traits: bool,
    is_classic: bool,
    /// The session that a classic registration follows.
    follows: Option<u64>,
}

/// One enable call that is in effect.
#[derive(Clone, Debug)]
struct Call {
    guid: Guid,
    is_group: bool,
    session: u64,
    values: Values,
    /// Whether the call applies only to connections with the test's own process id.
    is_own_only: bool,
}

#[derive(Default)]
struct Model {
    registered: RegistrationTable,
    calls: Vec<Call>,
}

/// Returns whether a connection has the test's own process id; the last connection has another id.
fn is_own(link: LinkId) -> bool {
    link != 4
}

impl Model {
    fn calls_for(&self, key: (LinkId, u32)) -> Vec<&Call> {
        let registration = &self.registered[&key];
        let applies = |call: &&Call| {
            let is_target = if call.is_group {
                registration.group == Some(call.guid)
            } else {
                registration.provider == call.guid
            };
            is_target && (!call.is_own_only || is_own(key.0))
        };
        self.calls.iter().filter(applies).collect()
    }

    /// Returns what a registration must have received, by session.
    fn expected_enables(&self, key: (LinkId, u32)) -> BTreeMap<u64, Values> {
        let registration = &self.registered[&key];
        let mut by_session: BTreeMap<u64, Vec<Values>> = BTreeMap::new();
        for call in self.calls_for(key) {
            by_session.entry(call.session).or_default().push(call.values);
        }
        if registration.is_classic {
            by_session.retain(|session, _| registration.follows == Some(*session));
        }
        let combine = |values: Vec<Values>| match values[..] {
            [(level, any, _)] if registration.is_classic => (level, any & 0xFFFF_FFFF, 0),
            [single] => single,
            [(first_level, first_any, first_all), (second_level, second_any, second_all)] => {
                // Level 0 and mask 0 mean "all", so they exceed any other value.
                let nonzero_level = |level: u8| if level == 0 { 255 } else { level };
                let nonzero_mask = |any: u64| if any == 0 { u64::MAX } else { any };
                (
                    nonzero_level(first_level).max(nonzero_level(second_level)),
                    nonzero_mask(first_any) | nonzero_mask(second_any),
                    first_all & second_all,
                )
            }
            _ => panic!("{values:?}"),
        };
        by_session.into_iter().map(|(session, values)| (session, combine(values))).collect()
    }

    fn enable(&mut self, call: Call) -> bool {
        let has_same_target = |other: &Call| (other.guid, other.is_group) == (call.guid, call.is_group);
        let other_sessions =
            self.calls.iter().filter(|other| has_same_target(other) && other.session != call.session).count();
        // At most eight sessions can enable a provider or a group.
        if other_sessions >= 8 {
            return false;
        }
        self.calls.retain(|other| !(has_same_target(other) && other.session == call.session));
        for (key, registration) in &mut self.registered {
            if registration.is_classic && !call.is_group && registration.provider == call.guid {
                let applies = !call.is_own_only || is_own(key.0);
                let was_followed = registration.follows == Some(call.session);
                registration.follows =
                    if applies { Some(call.session) } else { registration.follows.filter(|_| !was_followed) };
            }
        }
        self.calls.push(call);
        true
    }

    fn disable(&mut self, matches: impl Fn(&Call) -> bool) {
        for call in self.calls.iter().filter(|call| matches(call) && !call.is_group) {
            let is_followed = |registration: &&mut ModelRegistration| {
                registration.provider == call.guid && registration.follows == Some(call.session)
            };
            self.registered
                .values_mut()
                .filter(is_followed)
                .for_each(|registration| registration.follows = None);
        }
        self.calls.retain(|call| !matches(call));
    }

    fn register(&mut self, key: (LinkId, u32), registration: ModelRegistration) {
        self.registered.insert(key, registration);
        let follows = self.calls_for(key).last().map(|call| call.session);
        self.registered.get_mut(&key).unwrap().follows = follows;
    }
}

/// The state that processes have after the messages they received, as in the provider library.
#[derive(Default)]
struct Processes {
    enabled: BTreeMap<(LinkId, u32), BTreeMap<u64, Values>>,
    regions: BTreeMap<LinkId, Vec<u64>>,
    refused: Vec<Status>,
}

impl Processes {
    fn receive(&mut self, service: &mut Service, registered: &RegistrationTable) {
        let effects = service.take_effects();
        for effect in effects {
            let LinkEffect::Send { link, message, .. } = effect else { panic!("{effect:?}") };
            match message {
                Message::Region { session, .. } => self.regions.entry(link).or_default().push(session),
                Message::Enable { registrations, session, code, params, .. } => {
                    assert!(self.regions[&link].contains(&session), "an enable needs a region");
                    for registration in registrations {
                        let enabled = self.enabled.entry((link, registration)).or_default();
                        match code {
                            EnableCode::Enable => {
                                // A classic registration follows one session only.
                                if registered
                                    .get(&(link, registration))
                                    .is_some_and(|registration| registration.is_classic)
                                {
                                    enabled.clear();
                                }
                                assert_eq!((params.property, params.filters.len()), (0, 0));
                                enabled.insert(session, (params.level, params.match_any, params.match_all));
                            }
                            EnableCode::Disable => {
                                assert!(
                                    enabled.remove(&session).is_some(),
                                    "a disabled registration was enabled before"
                                )
                            }
                            EnableCode::CaptureState => panic!("no test step asks for state"),
                        }
                    }
                }
                Message::CloseSession { order, session } => {
                    let of_link = self.enabled.iter_mut().filter(|(key, _)| key.0 == link);
                    of_link.for_each(|(_, enabled)| enabled.retain(|id, _| *id != session));
                    self.regions.get_mut(&link).unwrap().retain(|id| *id != session);
                    service.handle(
                        link,
                        Envelope { request: 0, message: Message::Ack { order }, descriptors: Vec::new() },
                        service.now(),
                    );
                }
                Message::Refused { status, .. } => self.refused.push(Status(status)),
                _ => {}
            }
        }
    }
}

struct Simulation {
    service: Service,
    notices: Notices,
    model: Model,
    processes: Processes,
    sessions: Vec<u64>,
    random: Random,
    last_number: u32,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let (mut service, notices) = service_with_notices(Scope::User, OWN_UID, SESSIONS);
        connect(&mut service, 1, OWN_UID);
        send(&mut service, 1, hello(Role::Controller, 1));
        for link in 2..=4 {
            let pid = if is_own(link) { std::process::id() } else { 1 };
            service.add_connection(
                link,
                Peer { pid, uid: OWN_UID, gid: OWN_UID },
                ProcessKey::from_pid(pid),
                false,
                service.now(),
            );
            send(&mut service, link, hello(Role::Provider, link));
        }
        service.take_effects();
        let mut simulation = Self {
            service,
            notices,
            model: Model::default(),
            processes: Processes::default(),
            sessions: Vec::new(),
            random: Random(seed),
            last_number: 0,
        };
        (0..SESSIONS).for_each(|_| simulation.start());
        simulation
    }

    fn start(&mut self) {
        self.last_number += 1;
        let config = SessionConfig {
            name: format!("s{}", self.last_number),
            log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
            buffer_size: 4,
            minimum_buffers: 2,
            ring_bytes: 4096,
            ..SessionConfig::default()
        };
        send(&mut self.service, 1, Message::Start(Box::new(config)));
        deliver_notice(&mut self.service, &self.notices);
        self.service.take_effects();
        let existing = self.sessions.clone();
        self.sessions
            .extend(self.service.core.sessions.running_ids().into_iter().filter(|id| !existing.contains(id)));
    }

    /// Returns random traits and the group that they name.
    fn random_traits(&mut self) -> (Vec<u8>, Option<Guid>) {
        let group = (self.random.below(3) > 0).then(|| self.random.guid());
        let mut traits = TraitsBuilder::new("name");
        if let Some(group) = &group {
            traits.group(group);
        }
        (traits.finish().unwrap().to_vec(), group)
    }

    fn pick_registration(&mut self) -> Option<(LinkId, u32)> {
        let keys: Vec<_> = self.model.registered.keys().copied().collect();
        let index = self.random.below(keys.len().max(1) as u64);
        keys.get(usize::try_from(index).unwrap()).copied()
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..5 if self.model.registered.len() < 12 => self.register(),
            0..7 => {
                let Some((link, registration)) = self.pick_registration() else { return };
                send(&mut self.service, link, Message::Unregister { registration });
                self.model.registered.remove(&(link, registration));
                self.processes.enabled.remove(&(link, registration));
            }
            7..9 => self.set_traits(),
            9..15 => self.make_call(EnableCode::Enable),
            15..19 => self.make_call(EnableCode::Disable),
            _ => self.replace_session(),
        }
    }

    fn register(&mut self) {
        self.last_number += 1;
        let (link, registration) = (2 + self.random.below(3), self.last_number);
        let (provider, classic) = (self.random.guid(), self.random.below(4) == 0);
        let (traits, group) =
            if classic || self.random.below(2) == 0 { (vec![], None) } else { self.random_traits() };
        let has_traits = !traits.is_empty();
        send(&mut self.service, link, Message::Register { registration, provider, traits, classic });
        self.model.register(
            (link, registration),
            ModelRegistration { provider, group, has_traits, is_classic: classic, follows: None },
        );
    }

    fn set_traits(&mut self) {
        let Some((link, registration)) = self.pick_registration() else { return };
        let (traits, group) = self.random_traits();
        send(&mut self.service, link, Message::SetTraits { registration, traits });
        let registration = self.model.registered.get_mut(&(link, registration)).unwrap();
        if registration.has_traits || registration.is_classic {
            self.receive();
            assert_eq!(self.processes.refused.pop(), Some(Status::ERROR_INVALID_PARAMETER));
        } else {
            (registration.has_traits, registration.group) = (true, group);
        }
    }

    fn make_call(&mut self, code: EnableCode) {
        let (guid, is_group, is_own_only) =
            (self.random.guid(), self.random.below(3) == 0, self.random.below(4) == 0);
        let index = usize::try_from(self.random.below(self.sessions.len() as u64)).unwrap();
        let session = self.sessions[index];
        // The last mask has bits above the lower 32, which classic registrations do not get.
        let values = (
            [0, 1, 4, 5, 255][usize::try_from(self.random.below(5)).unwrap()],
            [0, 1, 6, 0xF0_0000_0001][usize::try_from(self.random.below(4)).unwrap()],
            self.random.below(4),
        );
        let own_pid = Filter { kind: EVENT_FILTER_TYPE_PID, data: std::process::id().to_le_bytes().to_vec() };
        let params = EnableParams {
            level: values.0,
            match_any: values.1,
            match_all: values.2,
            property: if is_group { EVENT_ENABLE_PROPERTY_PROVIDER_GROUP } else { 0 },
            source: Guid::NULL,
            filters: if is_own_only { vec![own_pid] } else { vec![] },
        };
        let (session_ref, params) = (SessionRef::Id(session), Box::new(params));
        send(
            &mut self.service,
            1,
            Message::EnableProvider {
                session: session_ref,
                provider: guid,
                code,
                params,
                name: String::new(),
                timeout_ms: 0,
            },
        );
        self.receive();
        let is_accepted = match code {
            EnableCode::Enable => self.model.enable(Call { guid, is_group, session, values, is_own_only }),
            _ => {
                self.model
                    .disable(|call| (call.guid, call.is_group, call.session) == (guid, is_group, session));
                true
            }
        };
        assert_eq!(self.processes.refused.pop(), (!is_accepted).then_some(Status::ERROR_NO_SYSTEM_RESOURCES));
    }

    fn replace_session(&mut self) {
        let index = usize::try_from(self.random.below(self.sessions.len() as u64)).unwrap();
        let session = self.sessions.remove(index);
        send(
            &mut self.service,
            1,
            Message::Control { session: SessionRef::Id(session), control: Control::Stop },
        );
        self.receive();
        deliver_notice(&mut self.service, &self.notices);
        self.model.disable(|call| call.session == session);
        self.start();
    }

    fn receive(&mut self) {
        self.processes.receive(&mut self.service, &self.model.registered);
    }

    fn check(&mut self, context: &str) {
        self.receive();
        assert_eq!(self.processes.refused, [], "{context}");
        for key in self.model.registered.keys() {
            let enabled = self.processes.enabled.get(key).cloned().unwrap_or_default();
            assert_eq!(
                enabled,
                self.model.expected_enables(*key),
                "{context}: {key:?} {:?}",
                self.model.registered[key]
            );
        }
        for (link, regions) in &self.processes.regions {
            let is_used = |session: &u64| {
                let mut of_link = self.processes.enabled.iter().filter(|(key, _)| key.0 == *link);
                of_link.any(|(_, enabled)| enabled.contains_key(session))
            };
            assert!(regions.iter().all(is_used), "{context}: a region that no registration uses");
        }
    }
}

#[test]
fn every_registration_receives_the_combination_of_all_enables() {
    let (mut combined, mut classic) = (0, 0);
    for seed in 1..=12_u64 {
        let mut simulation = Simulation::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for step in 0..250 {
            simulation.step();
            simulation.check(&format!("seed {seed}, step {step}"));
        }
        for (key, registration) in &simulation.model.registered {
            let sessions = simulation.model.expected_enables(*key).len();
            combined +=
                usize::from(simulation.model.calls_for(*key).len() > sessions && !registration.is_classic);
            classic += usize::from(registration.follows.is_some());
        }
    }
    assert!(combined > 0 && classic > 0, "the steps must cover both cases: {combined}, {classic}");
}
