//! Providers of its own: enabled alone and by their group, with filters and without; registered, and writing numbered events.

use std::time::{Duration, Instant};

use traceweir::Provider;
use traceweir::controller::{EnableCode, EnableParams, Filter};
use traceweir::provider::EnableCallback;
use traceweir_format::filter::{Gate, encode};
use traceweir_format::spec::enable::*;
use traceweir_format::tracelogging::TraitsBuilder;

use super::actor::{Actor, HEARD, INSTANCES, NAMES, PROVIDERS};
use super::model::{Listener, MEMBER, Offered, Wish};
use crate::stage::{event, status, wants};

/// A type of filter that only providers understand.
const OF_THE_PROVIDER: u32 = 0x1234;
const FOR_A_WHILE: u32 = 10_000;
/// A registration waits for a daemon for a second; one that took less has its answer.
pub(super) const PROMPT: Duration = Duration::from_millis(900);

/// What is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Provider(usize),
    Group,
}

impl Target {
    /// The providers that this is about.
    fn provider(self) -> usize {
        match self {
            Self::Provider(provider) => provider,
            Self::Group => MEMBER,
        }
    }

    fn property(self) -> u32 {
        if self == Self::Group { EVENT_ENABLE_PROPERTY_PROVIDER_GROUP } else { 0 }
    }

    /// What the session wants of it from now on; what it wanted before.
    fn set(self, listener: &mut Listener, wish: Option<Wish>) -> Option<Wish> {
        match (self, wish) {
            (Self::Group, wish) => std::mem::replace(&mut listener.of_group, wish),
            (Self::Provider(provider), Some(wish)) => listener.wanted.insert(provider, wish),
            (Self::Provider(provider), None) => listener.wanted.remove(&provider),
        }
    }
}

impl Actor<'_> {
    fn target(&mut self) -> Target {
        if self.is_one_of(6) { Target::Group } else { Target::Provider(self.pick(PROVIDERS)) }
    }

    /// Levels and masks, some properties, and now and then filters that are allowed.
    pub(super) fn wish(&mut self, may_limit_events: bool, may_limit_scope: bool) -> Wish {
        let params = wants(self.below(6) as u8, self.below(4), self.below(2));
        let property = [0, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0][self.pick(2)];
        let mut wish = Wish { params: EnableParams { property, ..params }, ..Wish::default() };
        if may_limit_events && self.is_one_of(3) {
            let listed = (0..9).filter(|_| self.is_one_of(2)).chain([9]).collect();
            wish = wish.by_ids(listed, self.is_one_of(2));
        }
        for by_name in [false, true] {
            if may_limit_scope && self.is_one_of(6) {
                wish = wish.by_scope(by_name, !self.is_one_of(3));
            }
        }
        if self.is_one_of(6) {
            wish = wish.with(OF_THE_PROVIDER, b"for the callback".to_vec());
        }
        if self.is_one_of(6) {
            let filter = encode::level_keyword(Gate { any: 1, all: 0, level: 4 }, true);
            wish = wish.with(EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, filter);
        }
        wish
    }

    pub(super) fn enable(&mut self) {
        let (name, target) = (self.pick(NAMES), self.target());
        let mut wish = self.wish(target != Target::Group, true);
        wish.params.property |= target.property();
        self.say(name, target, Some(wish));
    }

    pub(super) fn disable(&mut self) {
        let (name, target) = (self.pick(NAMES), self.target());
        self.say(name, target, None);
    }

    /// Enables or disables. Where the call waits for this process, what is written from now on is certain.
    fn say(&mut self, name: usize, target: Target, wish: Option<Wish>) {
        let waits = self.is_one_of(2);
        let code = if wish.is_some() { EnableCode::Enable } else { EnableCode::Disable };
        let off = EnableParams { property: target.property(), ..EnableParams::default() };
        let params = wish.as_ref().map_or(off, |wish| wish.params.clone());
        let told = self.order(name, target, code, &params, if waits { FOR_A_WHILE } else { 0 });
        let want = self.is_running(name);
        self.expect("enable", told, &[want]);
        let is_registered = !self.registered[target.provider()].is_empty();
        if let (0, Some(model)) = (told, &mut self.running[name]) {
            let listener = &mut model.listener;
            let was_meant = target.set(listener, wish.clone()).is_some_and(|before| !before.is_for_others);
            // Nobody is told, and so nobody waited for, where a process was not enabled and still is not.
            let is_told = was_meant || wish.is_some_and(|wish| !wish.is_for_others);
            if is_registered && is_told {
                match waits {
                    true => listener.unsettled.remove(&target.provider()),
                    false => listener.unsettled.insert(target.provider()),
                };
            }
        }
        self.write_all(target.provider());
    }

    fn order(
        &mut self,
        name: usize,
        target: Target,
        code: EnableCode,
        params: &EnableParams,
        ms: u32,
    ) -> u32 {
        let guid = match target {
            Target::Provider(provider) => self.provider(provider),
            Target::Group => self.group(),
        };
        let reference = self.reference(name);
        status(self.controller.enable(&reference, guid, code, params, ms))
    }

    pub(super) fn capture(&mut self) {
        let (name, provider) = (self.pick(NAMES), self.pick(PROVIDERS));
        let is_enabled = self.running.iter().flatten().any(|it| it.listener.wanted.contains_key(&provider));
        let is_known = is_enabled || !self.registered[provider].is_empty();
        let was_known = self.unregistered[provider].is_some_and(|at| at.elapsed() < HEARD);
        let target = Target::Provider(provider);
        let told = self.order(name, target, EnableCode::CaptureState, &EnableParams::default(), 0);
        let allowed: &[u32] = match (self.is_running(name), is_known, was_known) {
            (0, true, _) => &[0],
            (0, false, true) => &[0, 1],
            (0, false, false) => &[1],
            _ => &[4201],
        };
        self.expect("capture", told, allowed);
    }

    pub(super) fn wrong_enable(&mut self) {
        let (name, mut target) = (self.pick(NAMES), Target::Provider(self.pick(PROVIDERS)));
        let filter = |kind, bytes| vec![Filter { kind, data: vec![1; bytes] }];
        let filters = match self.below(5) {
            0 => filter(EVENT_FILTER_TYPE_PID, 3),
            1 => filter(OF_THE_PROVIDER, 1025),
            2 => [filter(7, 1), filter(7, 1)].concat(),
            3 => {
                target = Target::Group;
                let data = encode::event_ids(true, &[7]);
                vec![Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data }]
            }
            _ => filter(0x8000_0040, 4),
        };
        let params = EnableParams { filters, property: target.property(), ..EnableParams::default() };
        let told = self.order(name, target, EnableCode::Enable, &params, 0);
        let want = if self.running[name].is_some() { 87 } else { 4201 };
        self.expect("wrong enable", told, &[want]);
        self.write_all(target.provider());
    }

    pub(super) fn register(&mut self) {
        let provider = self.pick(PROVIDERS);
        if self.registered[provider].len() >= INSTANCES {
            return;
        }
        // Whoever registers is told what was said before; nobody else is left who may not have heard it.
        if self.registered[provider].is_empty() {
            self.listeners().for_each(|it| it.unsettled.retain(|other| *other != provider));
        }
        let callback = self.is_one_of(2).then(|| -> EnableCallback { Box::new(|_| {}) });
        let guid = self.provider(provider);
        let begun = Instant::now();
        let made = match provider {
            MEMBER => Provider::register_with_traits(guid, &traits(self), callback),
            _ => Provider::register(guid, callback),
        };
        match made {
            Ok(it) if begun.elapsed() < PROMPT => self.registered[provider].push(it),
            // It did not wait any longer for the daemon, and may hear of its sessions at any time.
            Ok(_) => self.unregistered[provider] = Some(Instant::now()),
            Err(e) => self.diverges(format!("register: {e}")),
        }
        self.write_all(provider);
    }

    pub(super) fn unregister(&mut self) {
        let provider = self.pick(PROVIDERS);
        if self.registered[provider].pop().is_some() {
            self.unregistered[provider] = Some(Instant::now());
        }
    }

    pub(super) fn write(&mut self) {
        let provider = self.pick(PROVIDERS);
        self.write_all(provider);
    }

    /// Every registration of a provider writes an event with a number of its own; who must get it is noted.
    fn write_all(&mut self, provider: usize) {
        for instance in 0..self.registered[provider].len() {
            let offered =
                Offered { id: self.below(10) as u16, level: self.below(6) as u8, keyword: self.below(4) };
            let filler = vec![b'f'; self.pick(100)];
            self.event += 1;
            let number = self.event;
            let Some(it) = self.registered[provider].get(instance) else { return };
            let descriptor = event(offered.id, offered.level, offered.keyword);
            let told = it.write(&descriptor, &[&number.to_le_bytes(), &filler]).err().map(|e| e.status().0);
            self.listeners().for_each(|to| to.note(provider, &offered, number, told.is_none()));
            if told.is_some_and(|told| told != 8) {
                self.diverges(format!("write: {told:?}"));
            }
        }
    }
}

fn traits(actor: &Actor<'_>) -> Vec<u8> {
    TraitsBuilder::new("Member").group(&actor.group()).finish().expect("traits").to_vec()
}
