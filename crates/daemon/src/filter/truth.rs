//! The whole table of which processes are meant, against "all filters must pass".
//!
//! ```text
//!   a session    off, or: process ids × programs × packages × applications × containers,      1 + 243 × 2
//!                each absent, passing and failing; with ENABLE_SILOS and without it
//!   a process    in a container or not; what its program and control groups tell is given here as text
//!   in time      registered before the enable, after it, and after the session was disabled
//! ```
//!
//! | Sessions | What is gone through | |
//! |---|---|---|
//! | one | all of the above | what the registration is told |
//! | two | every pair of them | for which sessions the registration is enabled |
//!
//! Which events of a process arrive is decided in the process, by its own filters and by level and masks: what a daemon tells it holds those as they were
//! given, in every row here. That the two do not meet is therefore looked at by the payload of what is told: level, masks and the filters of events.

use traceweir_format::filter::encode;
use traceweir_format::spec::enable::{EVENT_ENABLE_PROPERTY_ENABLE_SILOS, EVENT_FILTER_TYPE_EVENT_ID};
use traceweir_transport::message::Filter;
use traceweir_transport::socket::Peer;

use super::*;
use crate::registry::{Process, Registry, Target};

const PROVIDER: Guid = Guid::from_u128(7);
const CONTAINER: &str = "4f1d0c3b5a69788796a5b4c3d2e1f00f4f1d0c3b5a69788796a5b4c3d2e1f00f";
const LINK: u64 = 1;

/// What a filter does to the process here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Absent,
    Passes,
    Fails,
}
use Way::{Absent, Fails, Passes};

/// What a session asks for: the filters in the order of [`KINDS`], and whether processes in containers are meant.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ways: [Way; 5],
    silos: bool,
}

const KINDS: [u32; 5] = [
    EVENT_FILTER_TYPE_PID,
    EVENT_FILTER_TYPE_EXECUTABLE_NAME,
    EVENT_FILTER_TYPE_PACKAGE_ID,
    EVENT_FILTER_TYPE_PACKAGE_APP_ID,
    EVENT_FILTER_TYPE_CONTAINER,
];

impl Asked {
    fn all() -> Vec<Option<Self>> {
        let mut all = vec![None];
        for row in 0..243_usize {
            let ways = [1, 3, 9, 27, 81].map(|unit| [Absent, Passes, Fails][row / unit % 3]);
            all.extend([false, true].map(|silos| Some(Self { ways, silos })));
        }
        all
    }

    /// "All filters must pass"; a process in a container is meant with ENABLE_SILOS, or by who names processes or containers.
    fn means(&self, contained: bool) -> bool {
        let names_processes = self.ways[0] != Absent || self.ways[4] != Absent;
        !self.ways.contains(&Fails) && (!contained || self.silos || names_processes)
    }

    fn resolved(&self) -> (EnableParams, Scope) {
        let passing = [
            encode::pids(&[1, std::process::id()]),
            encode::name_list(&["other", "Program"]),
            encode::name_list(&["other", "SNAP.hello.world"]),
            encode::name_list(&["other", "World"]),
            encode::name_list(&["other", &CONTAINER[..12]]),
        ];
        let mut filters = vec![of_events()];
        for ((kind, passing), way) in KINDS.into_iter().zip(passing).zip(self.ways) {
            let failing = if kind == EVENT_FILTER_TYPE_PID { encode::pids(&[1]) } else { wide("other") };
            match way {
                Absent => {}
                Passes => filters.push(Filter { kind, data: passing }),
                Fails => filters.push(Filter { kind, data: failing }),
            }
        }
        let property = if self.silos { EVENT_ENABLE_PROPERTY_ENABLE_SILOS } else { 0 };
        let params = EnableParams {
            level: 4,
            match_any: 6,
            match_all: 2,
            property,
            filters,
            ..EnableParams::default()
        };
        resolve(&PROVIDER, params).unwrap()
    }
}

/// A filter of events, which is none of the daemon's business.
fn of_events() -> Filter {
    Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data: encode::event_ids(true, &[7]) }
}

fn wide(name: &str) -> Vec<u8> {
    encode::name_list(&[name])
}

/// A registry with one process: this one, as if the system told these things about it.
fn registry(contained: bool) -> Registry {
    let groups = format!("0::/docker/{CONTAINER}/snap.hello.world-4711.scope\n");
    let pid = std::process::id();
    let process = Process::new(Peer { pid, uid: 0, gid: 0 }, ProcessKey::from_pid(pid), 99);
    let mut registry = Registry::default();
    registry.processes.insert(LINK, process.with_facts(Facts::told("program", &groups), contained));
    registry
}

fn say(registry: &mut Registry, session: u64, asked: Option<&(EnableParams, Scope)>) {
    let target = Target::Provider(PROVIDER);
    match asked {
        Some((params, scope)) => {
            registry.enable(target, session, params.clone(), scope.clone(), "").unwrap();
        }
        None => {
            registry.disable(target, session);
        }
    }
}

#[test]
fn a_process_is_meant_when_all_filters_pass_whenever_it_registers() {
    for contained in [false, true] {
        let mut registry = registry(contained);
        registry.register(LINK, 0, PROVIDER, &[], false).unwrap();
        for asked in Asked::all() {
            let resolved = asked.map(|it| it.resolved());
            say(&mut registry, 1, resolved.as_ref());
            registry.register(LINK, 1, PROVIDER, &[], false).unwrap();
            let is_meant = asked.is_some_and(|it| it.means(contained));
            for registration in [0, 1] {
                let told = registry.combined_params(LINK, registration, 1);
                assert_eq!(told.is_some(), is_meant, "{asked:?}, contained: {contained}");
                if let Some(told) = told {
                    let as_given = (told.level, told.match_any, told.match_all, &told.filters[..]);
                    assert_eq!(as_given, (4, 6, 2, &[of_events()][..]), "the rest travels on: {asked:?}");
                }
            }
            registry.unregister(LINK, 1).unwrap();
            say(&mut registry, 1, None);
            registry.register(LINK, 1, PROVIDER, &[], false).unwrap();
            assert_eq!([0, 1].map(|it| registry.combined_params(LINK, it, 1)), [None, None], "disabled: {asked:?}");
            registry.unregister(LINK, 1).unwrap();
        }
    }
}

#[test]
fn two_sessions_mean_a_process_each_for_itself() {
    let asked = Asked::all();
    let resolved: Vec<_> = asked.iter().map(|it| it.map(|it| it.resolved())).collect();
    let mut registry = registry(true);
    registry.register(LINK, 0, PROVIDER, &[], false).unwrap();
    for (one, first) in asked.iter().zip(&resolved) {
        say(&mut registry, 1, first.as_ref());
        for (two, second) in asked.iter().zip(&resolved) {
            say(&mut registry, 2, second.as_ref());
            registry.register(LINK, 1, PROVIDER, &[], false).unwrap();
            let gets = |it: &Option<Asked>| it.is_some_and(|it| it.means(true));
            let mut due = Vec::new();
            due.extend(gets(one).then_some(1));
            due.extend(gets(two).then_some(2));
            for registration in [0, 1] {
                assert_eq!(registry.wanted_by(LINK, registration), due, "{one:?} {two:?}");
            }
            registry.unregister(LINK, 1).unwrap();
        }
    }
}
