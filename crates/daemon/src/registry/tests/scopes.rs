//! The complete table of which processes an enable includes, checked against "all filters must
//! pass".
//!
//! ```text
//!   a session    not enabled; or filters of process ids, programs, packages, applications and
//!                containers, each absent, passing or failing, with and without ENABLE_SILOS:
//!                1 + 3⁵ × 2 cases
//!   a process    in a container or not; its program and control groups are given here as text
//!   in time      registered before the enable, after it, and after the disable
//! ```
//!
//! | Sessions | Cases | Checked |
//! |---|---|---|
//! | one | all of the above | the parameters that the registration receives |
//! | two | every pair of session cases | the sessions that the registration is enabled for |
//!
//! Level, masks and filters of events are applied in the process. The daemon passes them on
//! unchanged in every case here, and the tests check that.

use traceweir_format::Guid;
use traceweir_format::filter::encode;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_ENABLE_SILOS, EVENT_FILTER_TYPE_CONTAINER, EVENT_FILTER_TYPE_EVENT_ID,
    EVENT_FILTER_TYPE_EXECUTABLE_NAME, EVENT_FILTER_TYPE_PACKAGE_APP_ID, EVENT_FILTER_TYPE_PACKAGE_ID,
    EVENT_FILTER_TYPE_PID,
};
use traceweir_transport::message::{EnableParams, Filter};
use traceweir_transport::socket::Peer;

use crate::filter::{ProcessFacts, ProcessScope, resolve_filters};
use crate::process::ProcessKey;
use crate::registry::{EnableTarget, ProviderProcess, Registry};

const PROVIDER: Guid = Guid::from_u128(7);
const CONTAINER: &str = "4f1d0c3b5a69788796a5b4c3d2e1f00f4f1d0c3b5a69788796a5b4c3d2e1f00f";
const LINK: u64 = 1;

/// The effect of a filter on the process of this test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterEffect {
    Absent,
    Passes,
    Fails,
}
use FilterEffect::{Absent, Fails, Passes};

/// What a session requests: the filters in the order of [`KINDS`], and whether processes in
/// containers are included.
#[derive(Clone, Copy, Debug)]
struct Request {
    effects: [FilterEffect; 5],
    has_silos: bool,
}

const KINDS: [u32; 5] = [
    EVENT_FILTER_TYPE_PID,
    EVENT_FILTER_TYPE_EXECUTABLE_NAME,
    EVENT_FILTER_TYPE_PACKAGE_ID,
    EVENT_FILTER_TYPE_PACKAGE_APP_ID,
    EVENT_FILTER_TYPE_CONTAINER,
];

impl Request {
    /// Returns all cases of a session; `None` means that the session does not enable the provider.
    fn all() -> Vec<Option<Self>> {
        let mut requests = vec![None];
        for row in 0..243_usize {
            let effects = [1, 3, 9, 27, 81].map(|unit| [Absent, Passes, Fails][row / unit % 3]);
            requests.extend([false, true].map(|has_silos| Some(Self { effects, has_silos })));
        }
        requests
    }

    /// Returns the expected result: all filters must pass; a process in a container is included
    /// with ENABLE_SILOS, or by filters that name processes or containers.
    fn includes(&self, contained: bool) -> bool {
        // The filters of process ids and of containers.
        let names_processes = self.effects[0] != Absent || self.effects[4] != Absent;
        !self.effects.contains(&Fails) && (!contained || self.has_silos || names_processes)
    }

    fn resolve(&self) -> (EnableParams, ProcessScope) {
        let passing = [
            encode::pids(&[1, std::process::id()]),
            encode::name_list(&["other", "Program"]),
            encode::name_list(&["other", "SNAP.hello.world"]),
            encode::name_list(&["other", "World"]),
            encode::name_list(&["other", &CONTAINER[..12]]),
        ];
        let mut filters = vec![event_filter()];
        for ((kind, passing), effect) in KINDS.into_iter().zip(passing).zip(self.effects) {
            let failing =
                if kind == EVENT_FILTER_TYPE_PID { encode::pids(&[1]) } else { encode_name("other") };
            match effect {
                Absent => {}
                Passes => filters.push(Filter { kind, data: passing }),
                Fails => filters.push(Filter { kind, data: failing }),
            }
        }
        let property = if self.has_silos { EVENT_ENABLE_PROPERTY_ENABLE_SILOS } else { 0 };
        let params = EnableParams {
            level: 4,
            match_any: 6,
            match_all: 2,
            property,
            filters,
            ..EnableParams::default()
        };
        resolve_filters(&PROVIDER, params).unwrap()
    }
}

/// Returns a filter of events, which the daemon passes on unchanged.
fn event_filter() -> Filter {
    Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data: encode::event_ids(true, &[7]) }
}

fn encode_name(name: &str) -> Vec<u8> {
    encode::name_list(&[name])
}

/// Creates a registry with one process: this one, with the given facts about it.
fn registry(contained: bool) -> Registry {
    let groups = format!("0::/docker/{CONTAINER}/snap.hello.world-4711.scope\n");
    let pid = std::process::id();
    let process = ProviderProcess::new(Peer { pid, uid: 0, gid: 0 }, ProcessKey::from_pid(pid), 99);
    let mut registry = Registry::default();
    registry
        .processes
        .insert(LINK, process.with_facts(ProcessFacts::from_text("program", &groups), contained));
    registry
}

fn apply(registry: &mut Registry, session: u64, request: Option<&(EnableParams, ProcessScope)>) {
    let target = EnableTarget::Provider(PROVIDER);
    match request {
        Some((params, scope)) => {
            registry.enable(target, session, params.clone(), scope.clone(), "").unwrap();
        }
        None => {
            registry.disable(target, session);
        }
    }
}

#[test]
fn process_is_included_when_all_filters_pass_whenever_it_registers() {
    for contained in [false, true] {
        let mut registry = registry(contained);
        registry.register(LINK, 0, PROVIDER, &[], false).unwrap();
        for request in Request::all() {
            let resolved = request.map(|request| request.resolve());
            apply(&mut registry, 1, resolved.as_ref());
            registry.register(LINK, 1, PROVIDER, &[], false).unwrap();
            let is_included = request.is_some_and(|request| request.includes(contained));
            for registration in [0, 1] {
                let received = registry.combined_params(LINK, registration, 1);
                assert_eq!(received.is_some(), is_included, "{request:?}, contained: {contained}");
                if let Some(received) = received {
                    let passed_params =
                        (received.level, received.match_any, received.match_all, &received.filters[..]);
                    assert_eq!(
                        passed_params,
                        (4, 6, 2, &[event_filter()][..]),
                        "passed on unchanged: {request:?}"
                    );
                }
            }
            registry.unregister(LINK, 1).unwrap();
            apply(&mut registry, 1, None);
            registry.register(LINK, 1, PROVIDER, &[], false).unwrap();
            assert_eq!(
                [0, 1].map(|number| registry.combined_params(LINK, number, 1)),
                [None, None],
                "disabled: {request:?}"
            );
            registry.unregister(LINK, 1).unwrap();
        }
    }
}

#[test]
fn each_session_includes_a_process_independently() {
    let requests = Request::all();
    let resolved: Vec<_> = requests.iter().map(|request| request.map(|request| request.resolve())).collect();
    let mut registry = registry(true);
    registry.register(LINK, 0, PROVIDER, &[], false).unwrap();
    for (first_request, first_enable) in requests.iter().zip(&resolved) {
        apply(&mut registry, 1, first_enable.as_ref());
        for (second_request, second_enable) in requests.iter().zip(&resolved) {
            apply(&mut registry, 2, second_enable.as_ref());
            registry.register(LINK, 1, PROVIDER, &[], false).unwrap();
            let is_included =
                |request: &Option<Request>| request.is_some_and(|request| request.includes(true));
            let mut expected = Vec::new();
            expected.extend(is_included(first_request).then_some(1));
            expected.extend(is_included(second_request).then_some(2));
            for registration in [0, 1] {
                assert_eq!(
                    registry.sessions_wanting(LINK, registration),
                    expected,
                    "{first_request:?} {second_request:?}"
                );
            }
            registry.unregister(LINK, 1).unwrap();
        }
    }
}
