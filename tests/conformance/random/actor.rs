//! One controller with its model: what it did, and so what it must be told.
//!
//! Names and providers of its own are touched by nobody else, so every answer about them follows from the model. Those that all share may
//! be started, stopped or enabled by another at any time: an answer about them must be one that some order of calls gives.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use traceweir::controller::{
    Controller, EnableCode, EnableParams, Filter, Properties, SessionConfig, SessionRef, Update,
};
use traceweir::{Error, Guid, Provider};

use super::Times;
use crate::stage::{Stage, event, events_of, status, wants};

/// What the names begin with that all share.
pub(super) const SHARED: &str = "random shared";

const NAMES: usize = 3;
const PROVIDERS: usize = 3;
/// Registrations of one provider by one thread.
const INSTANCES: usize = 3;
/// How long a daemon may take to hear of the end of a registration.
const HEARD: Duration = Duration::from_secs(5);

const SEQUENTIAL: u32 = 0x1;
const CIRCULAR_KIB: u32 = 0x2002;
const REAL_TIME: u32 = 0x100;
const BUFFERING: u32 = 0x400;

/// A session of the model.
struct Running {
    id: u64,
    config: SessionConfig,
    /// It wrote to more than one file.
    switched: bool,
}

pub(super) struct Actor<'s> {
    stage: &'s Stage,
    controller: Controller,
    random: u64,
    number: u64,
    running: [Option<Running>; NAMES],
    /// What each session wants from each provider.
    wanted: BTreeMap<(usize, usize), (u8, u64, u64)>,
    registered: [Vec<Provider>; PROVIDERS],
    unregistered: [Option<Instant>; PROVIDERS],
    shared: Vec<Provider>,
    done: Done,
}

/// What an actor found out.
#[derive(Default)]
pub(super) struct Done {
    pub(super) divergences: Vec<String>,
    pub(super) broken_logs: Vec<String>,
    pub(super) logs: u64,
    pub(super) times: Times,
}

type Operation<'s> = fn(&mut Actor<'s>);

impl<'s> Actor<'s> {
    /// Operations and how often they come.
    const OPERATIONS: [(&'static str, u64, Operation<'s>); 17] = [
        ("query", 22, Self::query),
        ("list", 4, Self::list),
        ("providers", 4, Self::providers),
        ("enable", 16, Self::enable),
        ("disable", 8, Self::disable),
        ("capture", 6, Self::capture),
        ("update", 6, Self::update),
        ("flush", 3, Self::flush),
        ("register", 5, Self::register),
        ("unregister", 4, Self::unregister),
        ("write", 8, Self::write),
        ("wrong start", 4, Self::wrong_start),
        ("wrong enable", 3, Self::wrong_enable),
        ("wrong update", 2, Self::wrong_update),
        ("start", 3, Self::start),
        ("stop", 2, Self::stop),
        ("shared", 10, Self::any_of_the_shared),
    ];

    pub(super) fn new(stage: &'s Stage, number: u64, seed: u64) -> Self {
        Self {
            stage,
            controller: stage.controller(),
            // A state of 0 would stay 0.
            random: (seed << 8 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            number,
            running: Default::default(),
            wanted: BTreeMap::new(),
            registered: Default::default(),
            unregistered: Default::default(),
            shared: Vec::new(),
            done: Done::default(),
        }
    }

    /// So many steps, and everything of its own is ended.
    pub(super) fn play(mut self, steps: u64) -> Done {
        for _ in 0..steps {
            let (what, _, operation) = self.next_operation();
            let start = Instant::now();
            operation(&mut self);
            let times = self.done.times.entry(what).or_default();
            *times = (times.0 + 1, times.1 + start.elapsed());
            if self.done.divergences.len() > 10 {
                break;
            }
        }
        for name in 0..NAMES {
            self.stop_one(name);
        }
        self.done
    }

    fn next_operation(&mut self) -> (&'static str, u64, Operation<'s>) {
        let all = Self::OPERATIONS.iter().map(|(_, weight, _)| weight).sum();
        let mut at = self.below(all);
        for operation in Self::OPERATIONS {
            if at < operation.1 {
                return operation;
            }
            at -= operation.1;
        }
        Self::OPERATIONS[0]
    }

    /// xorshift64*.
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    fn pick(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }

    fn is_one_of(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// The answer must be one of these.
    fn expect(&mut self, what: &str, told: u32, allowed: &[u32]) {
        if !allowed.contains(&told) {
            self.diverges(format!("{what}: {told}, and not one of {allowed:?}"));
        }
    }

    fn diverges(&mut self, what: String) {
        self.done.divergences.push(format!("thread {}: {what}", self.number));
    }

    fn name(&self, name: usize) -> String {
        format!("random {} {name}", self.number)
    }

    fn provider(&self, provider: usize) -> Guid {
        Guid::from_u128(0xDA7A_0000 | u128::from(self.number) << 8 | provider as u128)
    }

    /// A session by name, in any case, or by id where it has one.
    fn reference(&mut self, name: usize) -> SessionRef {
        let kind = self.below(3);
        match &self.running[name] {
            Some(it) if kind == 0 => SessionRef::Id(it.id),
            _ if kind == 1 => SessionRef::Name(self.name(name).to_uppercase()),
            _ => SessionRef::Name(self.name(name)),
        }
    }

    fn is_running(&self, name: usize) -> u32 {
        if self.running[name].is_some() { 0 } else { 4201 }
    }

    fn small(&mut self, name: String) -> SessionConfig {
        let (log_file_mode, maximum_file_size) =
            [(SEQUENTIAL, 0), (CIRCULAR_KIB, 64), (REAL_TIME, 0), (BUFFERING, 0)][self.pick(4)];
        let log_file = (log_file_mode != REAL_TIME).then(|| self.stage.path());
        let buffer_size = 4;
        SessionConfig {
            name,
            log_file_mode,
            maximum_file_size,
            log_file,
            buffer_size,
            ..SessionConfig::default()
        }
    }

    fn start(&mut self) {
        let name = self.pick(NAMES);
        let config = self.small(self.name(name));
        let told = self.controller.start(&config);
        let want = if self.running[name].is_some() { 183 } else { 0 };
        match told {
            Ok(it) => {
                self.expect("start", 0, &[want]);
                self.running[name] = Some(Running { id: it.id, config: it.config, switched: false });
            }
            Err(e) => {
                self.expect(&format!("start: {e}"), e.status().0, &[want]);
                self.expect_no_file(config.log_file);
            }
        }
    }

    fn expect_no_file(&mut self, path: Option<PathBuf>) {
        if path.as_ref().is_some_and(|path| path.exists()) {
            self.diverges(format!("a refused start left {path:?}"));
        }
    }

    fn wrong_start(&mut self) {
        let name = self.pick(NAMES);
        let config = self.small(self.name(name));
        let log_file = Some(self.stage.folder().join("no such folder").join("x.etl"));
        let (wrong, allowed): (_, &[u32]) = match self.below(6) {
            0 => (SessionConfig { log_file_mode: 3, ..config }, &[87]),
            1 => (SessionConfig { clock: 9, ..config }, &[87]),
            2 => (SessionConfig { log_file_mode: SEQUENTIAL, log_file: None, ..config }, &[161]),
            3 => (SessionConfig { name: String::new(), ..config }, &[87]),
            4 => (SessionConfig { log_file_mode: 2, maximum_file_size: 0, ..config }, &[87]),
            _ if self.running[name].is_some() => {
                (SessionConfig { log_file_mode: SEQUENTIAL, log_file, ..config }, &[183])
            }
            _ => (SessionConfig { log_file_mode: SEQUENTIAL, log_file, ..config }, &[3]),
        };
        let told = status(self.controller.start(&wrong));
        self.expect("wrong start", told, allowed);
        self.expect_no_file(wrong.log_file);
    }

    fn stop(&mut self) {
        let name = self.pick(NAMES);
        self.stop_one(name);
    }

    fn stop_one(&mut self, name: usize) {
        let reference = self.reference(name);
        let told = self.controller.stop(&reference);
        let want = self.is_running(name);
        match told {
            Ok(end) => {
                self.expect("stop", 0, &[want]);
                self.wanted.retain(|(session, _), _| *session != name);
                if let Some(it) = self.running[name].take() {
                    self.check_end(&end, it.switched);
                }
            }
            Err(e) => self.expect(&format!("stop: {e}"), e.status().0, &[want]),
        }
    }

    /// The log of a session that has ended is valid, and is removed.
    fn check_end(&mut self, end: &Properties, switched: bool) {
        let Some(path) = &end.config.log_file else { return };
        // A recorder that was never asked has written nothing.
        let is_empty = std::fs::metadata(path).is_ok_and(|it| it.len() == 0);
        if !(is_empty && end.config.log_file_mode & BUFFERING != 0) {
            self.done.logs += 1;
            let seen = std::panic::catch_unwind(|| events_of(path).len() as u64);
            let is_whole = end.config.log_file_mode & 0xFF == SEQUENTIAL && !switched;
            match seen {
                Err(_) => self.done.broken_logs.push(format!("{}: {:?}", path.display(), end.config)),
                Ok(seen) if is_whole && seen != end.events => {
                    self.done.broken_logs.push(format!(
                        "{}: {seen} of {} events",
                        path.display(),
                        end.events
                    ));
                }
                Ok(_) => {}
            }
        }
        let _ = std::fs::remove_file(path);
    }

    fn query(&mut self) {
        let name = self.pick(NAMES);
        let reference = self.reference(name);
        let told = self.controller.query(&reference);
        self.compare("query", name, told);
    }

    /// The answer about a session is the one of the model.
    fn compare(&mut self, what: &str, name: usize, told: Result<Properties, Error>) {
        let want = self.is_running(name);
        match (told, &self.running[name]) {
            (Ok(it), Some(model)) if it.id == model.id && it.config == model.config => {}
            (Ok(it), Some(model)) => {
                let text = format!("{what}: {it:?}, and not {:?}", model.config);
                self.diverges(text);
            }
            (told, _) => self.expect(what, status(told), &[want]),
        }
    }

    fn list(&mut self) {
        let prefix = format!("random {} ", self.number);
        match self.controller.query_all() {
            Ok(all) => {
                let mut told: Vec<u64> =
                    all.iter().filter(|it| it.config.name.starts_with(&prefix)).map(|it| it.id).collect();
                let mut want: Vec<u64> = self.running.iter().flatten().map(|it| it.id).collect();
                told.sort_unstable();
                want.sort_unstable();
                if told != want {
                    self.diverges(format!("list: {told:x?}, and not {want:x?}"));
                }
            }
            Err(e) => self.diverges(format!("list: {e}")),
        }
    }

    fn providers(&mut self) {
        let all = match self.controller.providers() {
            Ok(all) => all,
            Err(e) => return self.diverges(format!("providers: {e}")),
        };
        for provider in 0..PROVIDERS {
            let guid = self.provider(provider);
            let entry = all.iter().find(|it| it.provider == guid);
            let mut want: Vec<_> = self
                .wanted
                .iter()
                .filter(|((_, of), _)| *of == provider)
                .filter_map(|((name, _), wish)| {
                    Some((self.running[*name].as_ref()?.id, wish.0, wish.1, wish.2))
                })
                .collect();
            let told = entry.iter().flat_map(|it| &it.sessions);
            let mut told: Vec<_> = told.map(|it| (it.session, it.level, it.any, it.all)).collect();
            told.sort_unstable();
            want.sort_unstable();
            if told != want {
                self.diverges(format!("providers: {told:x?}, and not {want:x?}"));
            }
            let is_there = entry.is_some_and(|it| it.pids == [std::process::id()]);
            let was_there = self.unregistered[provider].is_some_and(|at| at.elapsed() < HEARD);
            if is_there == self.registered[provider].is_empty() && !(is_there && was_there) {
                self.diverges(format!("provider {provider}: registered is {is_there}"));
            }
        }
    }

    fn enable(&mut self) {
        let (name, provider) = (self.pick(NAMES), self.pick(PROVIDERS));
        let wish = (self.below(6) as u8, self.below(4), self.below(2));
        let timeout = if self.is_one_of(4) { 10_000 } else { 0 };
        let params = EnableParams { property: 0x10 * self.below(2) as u32, ..wants(wish.0, wish.1, wish.2) };
        let told = self.order(name, provider, EnableCode::Enable, &params, timeout);
        let want = self.is_running(name);
        self.expect("enable", told, &[want]);
        if told == 0 {
            self.wanted.insert((name, provider), wish);
        }
    }

    fn order(
        &mut self,
        name: usize,
        provider: usize,
        code: EnableCode,
        params: &EnableParams,
        ms: u32,
    ) -> u32 {
        let (reference, guid) = (self.reference(name), self.provider(provider));
        status(self.controller.enable(&reference, guid, code, params, ms))
    }

    fn disable(&mut self) {
        let (name, provider) = (self.pick(NAMES), self.pick(PROVIDERS));
        let timeout = if self.is_one_of(4) { 10_000 } else { 0 };
        let told = self.order(name, provider, EnableCode::Disable, &EnableParams::default(), timeout);
        let want = self.is_running(name);
        self.expect("disable", told, &[want]);
        if told == 0 {
            self.wanted.remove(&(name, provider));
        }
    }

    fn capture(&mut self) {
        let (name, provider) = (self.pick(NAMES), self.pick(PROVIDERS));
        let is_enabled = self.wanted.keys().any(|(_, of)| *of == provider);
        let is_known = is_enabled || !self.registered[provider].is_empty();
        let was_known = self.unregistered[provider].is_some_and(|at| at.elapsed() < HEARD);
        let told = self.order(name, provider, EnableCode::CaptureState, &EnableParams::default(), 0);
        let allowed: &[u32] = match (self.is_running(name), is_known, was_known) {
            (0, true, _) => &[0],
            (0, false, true) => &[0, 1],
            (0, false, false) => &[1],
            _ => &[4201],
        };
        self.expect("capture", told, allowed);
    }

    fn wrong_enable(&mut self) {
        let (name, provider) = (self.pick(NAMES), self.pick(PROVIDERS));
        let filter = |kind, bytes| vec![Filter { kind, data: vec![1; bytes] }];
        let filters = match self.below(4) {
            0 => filter(0x8000_0004, 3),
            1 => filter(0x1234, 1025),
            2 => [filter(7, 1), filter(7, 1)].concat(),
            _ => filter(0x8000_0040, 4),
        };
        let params = EnableParams { filters, ..EnableParams::default() };
        let told = self.order(name, provider, EnableCode::Enable, &params, 0);
        let want = if self.running[name].is_some() { 87 } else { 4201 };
        self.expect("wrong enable", told, &[want]);
    }

    fn flush(&mut self) {
        let name = self.pick(NAMES);
        let reference = self.reference(name);
        let told = self.controller.flush(&reference, None);
        self.compare("flush", name, told);
    }

    fn update(&mut self) {
        let name = self.pick(NAMES);
        let (seconds, buffers) = (self.below(4) as u32, self.below(3) as u32 * 30);
        let is_log = self.running[name].as_ref().is_some_and(|it| it.config.log_file_mode == SEQUENTIAL);
        let log_file = (is_log && self.is_one_of(8)).then(|| self.stage.path());
        let update = Update {
            flush_timer: Some(seconds),
            maximum_buffers: Some(buffers),
            log_file: log_file.clone(),
            ..Update::default()
        };
        let reference = self.reference(name);
        let told = self.controller.update(&reference, &update);
        if let Some(model) = &mut self.running[name] {
            let config = &mut model.config;
            config.flush_timer = if seconds == 0 { config.flush_timer } else { seconds };
            // What a maximum becomes below the minimum or in a recorder is a rule of its own.
            if let Ok(it) = &told {
                config.maximum_buffers = it.config.maximum_buffers;
            }
            if let Some(new) = log_file {
                model.switched = true;
                let old = config.log_file.replace(new);
                let whole = Properties {
                    config: SessionConfig { log_file: old, ..config.clone() },
                    ..Properties::default()
                };
                self.check_end(&whole, true);
            }
        }
        self.compare("update", name, told);
    }

    fn wrong_update(&mut self) {
        let name = self.pick(NAMES);
        let config = self.running[name].as_ref().map(|it| it.config.clone()).unwrap_or_default();
        let (update, want) = match config.log_file_mode {
            REAL_TIME => (Update { real_time: Some(false), ..Update::default() }, 87),
            BUFFERING => (Update { real_time: Some(true), ..Update::default() }, 87),
            _ => (Update { log_file: config.log_file, ..Update::default() }, 161),
        };
        let reference = self.reference(name);
        let told = status(self.controller.update(&reference, &update));
        let want = if self.running[name].is_some() { want } else { 4201 };
        self.expect("wrong update", told, &[want]);
    }

    fn register(&mut self) {
        let provider = self.pick(PROVIDERS);
        if self.registered[provider].len() >= INSTANCES {
            return;
        }
        let callback = self.is_one_of(2).then(|| -> traceweir::provider::EnableCallback { Box::new(|_| {}) });
        match Provider::register(self.provider(provider), callback) {
            Ok(it) => self.registered[provider].push(it),
            Err(e) => self.diverges(format!("register: {e}")),
        }
    }

    fn unregister(&mut self) {
        let provider = self.pick(PROVIDERS);
        if self.registered[provider].pop().is_some() {
            self.unregistered[provider] = Some(Instant::now());
        }
    }

    fn write(&mut self) {
        let provider = self.pick(PROVIDERS);
        let (id, level, keyword) = (self.below(9) as u16, self.below(6) as u8, self.below(4));
        for it in &self.registered[provider] {
            let told = it.write(&event(id, level, keyword), &[b"some bytes of an event"]);
            if let Err(e) = told
                && e.status().0 != 8
            {
                let text = format!("write: {e}");
                self.done.divergences.push(text);
            }
        }
    }

    /// Sessions and providers of all: what another thread does comes in between.
    fn any_of_the_shared(&mut self) {
        let name = format!("{SHARED} {}", self.below(2));
        let guid = Guid::from_u128(0xDA7A_FF00 | u128::from(self.below(2)));
        let session = SessionRef::Name(name.clone());
        // A session is not there, is about to go, or has just begun to.
        let gone = [0, 4201, 2402];
        let params = wants(self.below(6) as u8, self.below(4), 0);
        match self.below(9) {
            0 => self.start_shared(name),
            1 => self.stop_shared(&session),
            2 => {
                let told = status(self.controller.query(&session));
                self.expect("shared query", told, &gone);
            }
            3 => {
                let told = status(self.controller.flush(&session, None));
                self.expect("shared flush", told, &gone);
            }
            4 => {
                let update = Update { flush_timer: Some(2), ..Update::default() };
                let told = status(self.controller.update(&session, &update));
                self.expect("shared update", told, &gone);
            }
            5 => {
                let code = [EnableCode::Enable, EnableCode::Disable][self.pick(2)];
                let timeout = if self.is_one_of(3) { 10_000 } else { 0 };
                let told = status(self.controller.enable(&session, guid, code, &params, timeout));
                self.expect("shared enable", told, &gone);
            }
            6 => {
                let told =
                    status(self.controller.enable(&session, guid, EnableCode::CaptureState, &params, 0));
                self.expect("shared capture", told, &[0, 1, 4201]);
            }
            7 if self.shared.len() < INSTANCES => match Provider::register(guid, None) {
                Ok(it) => self.shared.push(it),
                Err(e) => self.diverges(format!("shared register: {e}")),
            },
            _ => drop(self.shared.pop()),
        }
        for it in &self.shared {
            let _ = it.write(&event(1, 4, 1), &[b"shared"]);
        }
    }

    fn start_shared(&mut self, name: String) {
        let config = self.small(name);
        let told = status(self.controller.start(&config));
        self.expect("shared start", told, &[0, 183]);
        if told != 0 {
            self.expect_no_file(config.log_file);
        }
    }

    fn stop_shared(&mut self, session: &SessionRef) {
        match self.controller.stop(session) {
            Ok(end) => self.check_end(&end, false),
            Err(e) => self.expect("shared stop", e.status().0, &[4201, 2402]),
        }
    }
}
