//! What registrations are told, against a naive model: random steps of processes and controllers, and after each step every registration
//! must have been told what the model says.
//!
//! The model keeps all calls in a list and looks through it each time; only for classic registrations it remembers who has them, because there
//! the order of calls decides.

use std::collections::BTreeMap;

use traceweir_format::spec::enable::{EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_FILTER_TYPE_PID};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Filter;

use super::*;

const SESSIONS: usize = 10;
/// One of the GUIDs is a provider's and a group's.
const GUIDS: u128 = 3;

type Values = (u8, u64, u64);
type Registered = BTreeMap<(LinkId, u32), Fact>;

/// A small generator; the seed is all that a failure needs to be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn guid(&mut self) -> Guid {
        Guid::from_u128(1 + u128::from(self.roll(GUIDS as u64)))
    }
}

/// A registration as its process made it.
#[derive(Clone, Debug)]
struct Fact {
    provider: Guid,
    group: Option<Guid>,
    has_traits: bool,
    classic: bool,
    /// PeerName has a classic one.
    owner: Option<u64>,
}

/// One enable call that stands.
#[derive(Clone, Debug)]
struct Call {
    guid: Guid,
    of_group: bool,
    session: u64,
    values: Values,
    /// Only for processes with the test's own id.
    own_only: bool,
}

#[derive(Default)]
struct Model {
    registered: Registered,
    calls: Vec<Call>,
}

/// The last process here has another id than the others.
fn is_own(link: LinkId) -> bool {
    link != 4
}

impl Model {
    fn calls_for(&self, at: (LinkId, u32)) -> Vec<&Call> {
        let fact = &self.registered[&at];
        let meant = |call: &&Call| {
            let is_target =
                if call.of_group { fact.group == Some(call.guid) } else { fact.provider == call.guid };
            is_target && (!call.own_only || is_own(at.0))
        };
        self.calls.iter().filter(meant).collect()
    }

    fn told(&self, at: (LinkId, u32)) -> BTreeMap<u64, Values> {
        let fact = &self.registered[&at];
        let mut told: BTreeMap<u64, Vec<Values>> = BTreeMap::new();
        for call in self.calls_for(at) {
            told.entry(call.session).or_default().push(call.values);
        }
        if fact.classic {
            told.retain(|session, _| fact.owner == Some(*session));
        }
        let sum = |values: Vec<Values>| match values[..] {
            [(level, any, _)] if fact.classic => (level, any & 0xFFFF_FFFF, 0),
            [one] => one,
            [(l, any, all), (m, some, every)] => {
                let most = |l: u8| if l == 0 { 255 } else { l };
                let full = |any: u64| if any == 0 { u64::MAX } else { any };
                (most(l).max(most(m)), full(any) | full(some), all & every)
            }
            _ => panic!("{values:?}"),
        };
        told.into_iter().map(|(session, values)| (session, sum(values))).collect()
    }

    fn enable(&mut self, call: Call) -> bool {
        let same = |other: &Call| (other.guid, other.of_group) == (call.guid, call.of_group);
        let others = self.calls.iter().filter(|other| same(other) && other.session != call.session).count();
        if others >= 8 {
            return false;
        }
        self.calls.retain(|other| !(same(other) && other.session == call.session));
        for (at, fact) in &mut self.registered {
            if fact.classic && !call.of_group && fact.provider == call.guid {
                let is_meant = !call.own_only || is_own(at.0);
                let had = fact.owner == Some(call.session);
                fact.owner = if is_meant { Some(call.session) } else { fact.owner.filter(|_| !had) };
            }
        }
        self.calls.push(call);
        true
    }

    fn disable(&mut self, which: impl Fn(&Call) -> bool) {
        for call in self.calls.iter().filter(|call| which(call) && !call.of_group) {
            let had = |fact: &&mut Fact| fact.provider == call.guid && fact.owner == Some(call.session);
            self.registered.values_mut().filter(had).for_each(|fact| fact.owner = None);
        }
        self.calls.retain(|call| !which(call));
    }

    fn register(&mut self, at: (LinkId, u32), fact: Fact) {
        self.registered.insert(at, fact);
        let owner = self.calls_for(at).last().map(|call| call.session);
        self.registered.get_mut(&at).unwrap().owner = owner;
    }
}

/// What processes have heard, kept as the library keeps it.
#[derive(Default)]
struct Processes {
    told: BTreeMap<(LinkId, u32), BTreeMap<u64, Values>>,
    regions: BTreeMap<LinkId, Vec<u64>>,
    refused: Vec<u32>,
}

impl Processes {
    fn hear(&mut self, service: &mut Service, registered: &Registered) {
        let effects = service.effects();
        for effect in effects {
            let Effect::Send { link, message, .. } = effect else { panic!("{effect:?}") };
            match message {
                Message::Region { session, .. } => self.regions.entry(link).or_default().push(session),
                Message::Enable { registrations, session, code, params, .. } => {
                    assert!(self.regions[&link].contains(&session), "a region comes first");
                    for registration in registrations {
                        let told = self.told.entry((link, registration)).or_default();
                        match code {
                            EnableCode::Enable => {
                                if registered.get(&(link, registration)).is_some_and(|fact| fact.classic) {
                                    told.clear();
                                }
                                assert_eq!((params.property, params.filters.len()), (0, 0));
                                told.insert(session, (params.level, params.match_any, params.match_all));
                            }
                            EnableCode::Disable => assert!(told.remove(&session).is_some(), "it was on"),
                            EnableCode::CaptureState => panic!("nobody asked"),
                        }
                    }
                }
                Message::CloseSession { order, session } => {
                    let its = self.told.iter_mut().filter(|(at, _)| at.0 == link);
                    its.for_each(|(_, told)| told.retain(|it, _| *it != session));
                    self.regions.get_mut(&link).unwrap().retain(|it| *it != session);
                    service.handle(
                        link,
                        Envelope { request: 0, message: Message::Ack { order }, descriptors: Vec::new() },
                    );
                }
                Message::Refused { status, .. } => self.refused.push(status),
                _ => {}
            }
        }
    }
}

struct Scene {
    service: Service,
    notices: std::sync::mpsc::Receiver<Notice>,
    model: Model,
    processes: Processes,
    sessions: Vec<u64>,
    dice: Dice,
    next: u32,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let (sender, notices) = std::sync::mpsc::channel();
        let post: Post = Arc::new(move |notice| drop(sender.send(notice)));
        let mut service = Service::new(Access::new(Scope::User, OWN), SESSIONS, 77, post, Janitor::new());
        connect(&mut service, 1, OWN);
        say(&mut service, 1, hello(Role::Controller, 1));
        for link in 2..=4 {
            let pid = if is_own(link) { std::process::id() } else { 1 };
            service.connected(link, Peer { pid, uid: OWN, gid: OWN }, ProcessKey::from_pid(pid), false);
            say(&mut service, link, hello(Role::Provider, link));
        }
        service.effects();
        let mut scene = Self {
            service,
            notices,
            model: Model::default(),
            processes: Processes::default(),
            sessions: Vec::new(),
            dice: Dice(seed),
            next: 0,
        };
        (0..SESSIONS).for_each(|_| scene.start());
        scene
    }

    fn start(&mut self) {
        self.next += 1;
        let config = SessionConfig {
            name: format!("s{}", self.next),
            log_file_mode: 0x100,
            buffer_size: 4,
            minimum_buffers: 2,
            ring_bytes: 4096,
            ..SessionConfig::default()
        };
        say(&mut self.service, 1, Message::Start(Box::new(config)));
        self.service.notice(self.notices.recv_timeout(Duration::from_secs(30)).unwrap());
        self.service.effects();
        let known = self.sessions.clone();
        self.sessions.extend(self.service.sessions.running().into_iter().filter(|id| !known.contains(id)));
    }

    fn traits(&mut self) -> (Vec<u8>, Option<Guid>) {
        let group = (self.dice.roll(3) > 0).then(|| self.dice.guid());
        let mut traits = TraitsBuilder::new("name");
        if let Some(group) = &group {
            traits.group(group);
        }
        (traits.finish().unwrap().to_vec(), group)
    }

    fn some_registration(&mut self) -> Option<(LinkId, u32)> {
        let all: Vec<_> = self.model.registered.keys().copied().collect();
        let at = self.dice.roll(all.len().max(1) as u64);
        all.get(usize::try_from(at).unwrap()).copied()
    }

    fn step(&mut self) {
        match self.dice.roll(20) {
            0..5 if self.model.registered.len() < 12 => self.register(),
            0..7 => {
                let Some((link, registration)) = self.some_registration() else { return };
                say(&mut self.service, link, Message::Unregister { registration });
                self.model.registered.remove(&(link, registration));
                self.processes.told.remove(&(link, registration));
            }
            7..9 => self.set_traits(),
            9..15 => self.call(EnableCode::Enable),
            15..19 => self.call(EnableCode::Disable),
            _ => self.stop_one(),
        }
    }

    fn register(&mut self) {
        self.next += 1;
        let (link, registration) = (2 + self.dice.roll(3), self.next);
        let (provider, classic) = (self.dice.guid(), self.dice.roll(4) == 0);
        let (traits, group) = if classic || self.dice.roll(2) == 0 { (vec![], None) } else { self.traits() };
        let has_traits = !traits.is_empty();
        say(&mut self.service, link, Message::Register { registration, provider, traits, classic });
        self.model.register((link, registration), Fact { provider, group, has_traits, classic, owner: None });
    }

    fn set_traits(&mut self) {
        let Some((link, registration)) = self.some_registration() else { return };
        let (traits, group) = self.traits();
        say(&mut self.service, link, Message::SetTraits { registration, traits });
        let fact = self.model.registered.get_mut(&(link, registration)).unwrap();
        if fact.has_traits || fact.classic {
            self.hear();
            assert_eq!(self.processes.refused.pop(), Some(87));
        } else {
            (fact.has_traits, fact.group) = (true, group);
        }
    }

    fn call(&mut self, code: EnableCode) {
        let (guid, of_group, own_only) = (self.dice.guid(), self.dice.roll(3) == 0, self.dice.roll(4) == 0);
        let at = usize::try_from(self.dice.roll(self.sessions.len() as u64)).unwrap();
        let session = self.sessions[at];
        let values = (
            [0, 1, 4, 5, 255][usize::try_from(self.dice.roll(5)).unwrap()],
            [0, 1, 6, 0xF0_0000_0001][usize::try_from(self.dice.roll(4)).unwrap()],
            self.dice.roll(4),
        );
        let own = Filter { kind: EVENT_FILTER_TYPE_PID, data: std::process::id().to_le_bytes().to_vec() };
        let params = EnableParams {
            level: values.0,
            match_any: values.1,
            match_all: values.2,
            property: if of_group { EVENT_ENABLE_PROPERTY_PROVIDER_GROUP } else { 0 },
            source: Guid::NULL,
            filters: if own_only { vec![own] } else { vec![] },
        };
        let (session_ref, params) = (SessionRef::Id(session), Box::new(params));
        say(
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
        self.hear();
        let is_fine = match code {
            EnableCode::Enable => self.model.enable(Call { guid, of_group, session, values, own_only }),
            _ => {
                self.model
                    .disable(|call| (call.guid, call.of_group, call.session) == (guid, of_group, session));
                true
            }
        };
        assert_eq!(self.processes.refused.pop(), (!is_fine).then_some(1450));
    }

    fn stop_one(&mut self) {
        let at = usize::try_from(self.dice.roll(self.sessions.len() as u64)).unwrap();
        let session = self.sessions.remove(at);
        say(
            &mut self.service,
            1,
            Message::Control { session: SessionRef::Id(session), control: Control::Stop },
        );
        self.hear();
        self.service.notice(self.notices.recv_timeout(Duration::from_secs(30)).unwrap());
        self.model.disable(|call| call.session == session);
        self.start();
    }

    fn hear(&mut self) {
        self.processes.hear(&mut self.service, &self.model.registered);
    }

    fn check(&mut self, what: &str) {
        self.hear();
        assert_eq!(self.processes.refused, [], "{what}");
        for at in self.model.registered.keys() {
            let told = self.processes.told.get(at).cloned().unwrap_or_default();
            assert_eq!(told, self.model.told(*at), "{what}: {at:?} {:?}", self.model.registered[at]);
        }
        for (link, regions) in &self.processes.regions {
            let uses = |session: &u64| {
                let mut its = self.processes.told.iter().filter(|(at, _)| at.0 == *link);
                its.any(|(_, told)| told.contains_key(session))
            };
            assert!(regions.iter().all(uses), "{what}: a region that nobody uses");
        }
    }
}

#[test]
fn every_registration_is_told_what_all_enables_come_to() {
    let (mut combined, mut classic) = (0, 0);
    for seed in 1..=12_u64 {
        let mut scene = Scene::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for step in 0..250 {
            scene.step();
            scene.check(&format!("seed {seed}, step {step}"));
        }
        for (at, fact) in &scene.model.registered {
            let sessions = scene.model.told(*at).len();
            combined += usize::from(scene.model.calls_for(*at).len() > sessions && !fact.classic);
            classic += usize::from(fact.owner.is_some());
        }
    }
    assert!(combined > 0 && classic > 0, "the steps reach what is to be tried: {combined}, {classic}");
}
