mod scopes;

use traceweir_format::kernel::providers::KERNEL_PROCESS;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_ENABLE_SILOS, EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE,
    EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0, EVENT_ENABLE_PROPERTY_STACK_TRACE, EVENT_FILTER_TYPE_EVENT_ID,
    EVENT_FILTER_TYPE_EVENT_NAME, EVENT_FILTER_TYPE_PAYLOAD, EVENT_FILTER_TYPE_SCHEMATIZED,
    EVENT_FILTER_TYPE_STACKWALK,
};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Filter;
use traceweir_transport::socket::Peer;

use super::*;
use crate::filter::Conditions;
use crate::process::ProcessKey;

const PROVIDER: Guid = Guid::from_u128(7);

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.processes.insert(
        1,
        ProviderProcess::new(
            Peer { pid: std::process::id(), uid: 0, gid: 0 },
            ProcessKey::from_pid(std::process::id()),
            99,
        ),
    );
    registry
}

fn enable(registry: &mut Registry, session: u64) -> Result<(), Refusal> {
    registry.enable(EnableTarget::Provider(PROVIDER), session, EnableParams::default(), None, "")
}

#[test]
fn process_is_limited_to_1024_registrations_until_one_is_removed() {
    let mut registry = registry();
    for number in 0..1024 {
        registry.register(1, number, PROVIDER, &[], false).unwrap();
    }
    assert_eq!(
        registry.register(1, 1024, PROVIDER, &[], false).unwrap_err().status,
        Status::ERROR_NO_SYSTEM_RESOURCES
    );
    assert_eq!(
        registry.register(1, 5, PROVIDER, &[], false).unwrap_err().status,
        Status::ERROR_INVALID_PARAMETER,
        "the number is in use"
    );
    assert!(registry.unregister(1, 5).is_some());
    assert!(registry.unregister(1, 5).is_none());
    registry.register(1, 5, PROVIDER, &[], false).unwrap();
    assert_eq!(registry.registrations_of_target(EnableTarget::Provider(PROVIDER)).len(), 1024);
    assert_eq!(registry.remove_process(1).unwrap().registrations.len(), 1024);
    assert!(!registry.is_known(EnableTarget::Provider(PROVIDER)));
}

#[test]
fn total_length_of_names_of_one_process_is_bounded() {
    let mut registry = registry();
    let name = "n".repeat(20_000);
    let traits = TraitsBuilder::new(&name).finish().unwrap().to_vec();
    registry.register(1, 0, PROVIDER, &traits, false).unwrap();
    registry.register(1, 1, Guid::from_u128(8), &traits, false).unwrap();
    let names: Vec<usize> =
        registry.providers(None, &BTreeSet::new()).map(|entry| entry.name.len()).collect();
    assert_eq!(names, [20_000, 0]);
    registry.unregister(1, 0).unwrap();
    registry.register(1, 2, PROVIDER, &traits, false).unwrap();
    assert_eq!(
        registry.providers(None, &BTreeSet::new()).next().unwrap().name.len(),
        20_000,
        "the removed name no longer counts"
    );
}

#[test]
fn ninth_session_of_a_provider_is_refused_but_eighth_may_change() {
    let mut registry = registry();
    for session in 1..=8 {
        enable(&mut registry, session).unwrap();
    }
    assert_eq!(enable(&mut registry, 9).unwrap_err().status, Status::ERROR_NO_SYSTEM_RESOURCES);
    enable(&mut registry, 8).unwrap();
    assert!(registry.disable(EnableTarget::Provider(PROVIDER), 3));
    enable(&mut registry, 9).unwrap();
    for session in 1..=9 {
        registry.forget_session(session);
    }
    assert!(!registry.is_known(EnableTarget::Provider(PROVIDER)));
}

#[test]
fn acknowledgement_covers_all_earlier_orders() {
    let mut process = ProviderProcess::new(Peer { pid: 1, uid: 0, gid: 0 }, None, 0);
    process.awaited = BTreeMap::from([(1, 10), (3, 30), (7, 70)]);
    assert_eq!(process.acknowledge(0), []);
    assert_eq!(process.acknowledge(3), [10, 30]);
    assert_eq!(process.acknowledge(u32::MAX), [70]);
    process.last_order = u32::MAX;
    assert_eq!(process.next_order(), 1);
}

#[test]
fn scope_holds_processes_not_process_ids() {
    let here = ProviderProcess::new(
        Peer { pid: std::process::id(), uid: 0, gid: 0 },
        ProcessKey::from_pid(std::process::id()),
        0,
    );
    let gone = ProviderProcess::new(Peer { pid: u32::MAX, uid: 0, gid: 0 }, None, 0);
    let scope = Some(Conditions::from_processes(vec![ProcessKey::from_pid(std::process::id()).unwrap()]));
    assert!(here.is_in_scope(&scope) && !gone.is_in_scope(&scope));
    assert!(here.is_in_scope(&None) && gone.is_in_scope(&None));
    assert!(!here.is_in_scope(&Some(Conditions::from_processes(vec![]))));
}

/// Returns the parameters that a registration receives when a session enables it directly and
/// through its group.
fn combine_direct_and_group(direct: &EnableParams, group_params: &EnableParams) -> EnableParams {
    let group = Guid::from_u128(9);
    let traits = TraitsBuilder::new("member").group(&group).finish().unwrap().to_vec();
    let mut registry = registry();
    registry.register(1, 0, PROVIDER, &traits, false).unwrap();
    registry.enable(EnableTarget::Provider(PROVIDER), 5, direct.clone(), None, "").unwrap();
    registry.enable(EnableTarget::Group(group), 5, group_params.clone(), None, "").unwrap();
    registry.combined_params(1, 0, 5).unwrap()
}

/// Returns parameters with these filters, each given as its type and its only byte.
fn params_with(property: u32, filters: &[(u32, u8)]) -> EnableParams {
    let filters = filters.iter().map(|(kind, byte)| Filter { kind: *kind, data: vec![*byte] }).collect();
    EnableParams { property, filters, source: Guid::from_u128(3), ..EnableParams::default() }
}

#[test]
fn excluding_properties_need_both_enables_and_others_need_one() {
    let ignore = EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0;
    let (stacks, private) = (EVENT_ENABLE_PROPERTY_STACK_TRACE, EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE);
    let property = |direct, group| {
        combine_direct_and_group(&params_with(direct, &[]), &params_with(group, &[])).property
    };
    assert_eq!(property(ignore | stacks, private), stacks);
    assert_eq!(property(ignore | 1, ignore | 2), ignore | 1 | 2);
    assert_eq!(property(ignore | private, ignore | private), ignore | private);
    assert_eq!(
        combine_direct_and_group(&params_with(0, &[]), &params_with(0, &[])).source,
        Guid::NULL,
        "the source is not stored"
    );
}

#[test]
fn filter_of_one_enable_does_not_restrict_the_other() {
    let (ids, names) = (EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EVENT_NAME);
    let (payload, stack_ids) = (EVENT_FILTER_TYPE_PAYLOAD, EVENT_FILTER_TYPE_STACKWALK);
    let (schematized, custom, stacks) = (EVENT_FILTER_TYPE_SCHEMATIZED, 7, EVENT_ENABLE_PROPERTY_STACK_TRACE);
    let kinds = |direct: &EnableParams, group: &EnableParams| {
        combine_direct_and_group(direct, group)
            .filters
            .iter()
            .map(|f| (f.kind, f.data[0]))
            .collect::<Vec<_>>()
    };
    let filters = [(ids, 1), (names, 2), (payload, 3), (stack_ids, 4), (schematized, 5), (custom, 6)];
    let without_filters = params_with(0, &[]);
    assert_eq!(
        kinds(&params_with(stacks, &filters), &without_filters),
        [(stack_ids, 4), (schematized, 5), (custom, 6)]
    );
    assert_eq!(
        kinds(&params_with(stacks, &filters), &params_with(stacks, &[])),
        [(schematized, 5), (custom, 6)],
        "a group that asks for all stacks drops the stack filter"
    );
    let other = params_with(0, &[(custom, 8), (schematized, 9)]);
    assert_eq!(
        kinds(&params_with(0, &[(custom, 6)]), &other),
        [(custom, 6), (schematized, 9)],
        "one filter of each type stays"
    );
}

#[test]
fn malformed_traits_do_not_join_a_group() {
    let mut registry = registry();
    let group = Guid::from_u128(9);
    let good = TraitsBuilder::new("member").group(&group).finish().unwrap().to_vec();
    for (number, cut) in (0..).zip(0..good.len()) {
        registry.register(1, number, PROVIDER, &good[..cut], false).unwrap();
    }
    assert_eq!(registry.registrations_of_target(EnableTarget::Group(group)), []);
    registry.register(1, 500, PROVIDER, &good, true).unwrap();
    assert_eq!(
        registry.registrations_of_target(EnableTarget::Group(group)),
        [],
        "a classic registration has no traits"
    );
    registry.register(1, 501, PROVIDER, &good, false).unwrap();
    assert_eq!(registry.registrations_of_target(EnableTarget::Group(group)), [(1, 501)]);
    // A registration that came with trait bytes, even malformed ones (5), cannot set traits again;
    // one that came without bytes (0) can.
    assert_eq!(registry.set_traits(1, 5, &good).unwrap_err().status, Status::ERROR_INVALID_PARAMETER);
    registry.set_traits(1, 0, &good).unwrap();
    registry.remove_process(1).unwrap();
    assert!(
        !registry.is_known(EnableTarget::Group(group))
            && registry.providers(None, &BTreeSet::new()).next().is_none()
    );
}

#[test]
fn inspection_by_pid_counts_only_for_the_same_process() {
    let pid = std::process::id();
    let peer = Peer { pid, uid: 0, gid: 0 };
    let same = ProviderProcess::new(peer, ProcessKey::from_pid(pid), 0);
    assert_eq!(same.inspect(|pid| pid), Some(pid));
    let another = ProviderProcess::new(peer, ProcessKey::from_pid(1), 0);
    assert_eq!(another.inspect(|pid| pid), None, "another process had this id before");
    let unseen = ProviderProcess::new(peer, None, 0);
    assert_eq!(unseen.inspect(|pid| pid), None, "the process was not visible when it connected");
}

#[test]
fn enable_includes_contained_processes_by_property_or_filter() {
    let mut registry = registry();
    // A process that cannot be seen from here is in another namespace.
    registry.processes.insert(2, ProviderProcess::new(Peer { pid: 0, uid: 0, gid: 0 }, None, 1));
    for link in [1, 2] {
        registry.register(link, 0, PROVIDER, &[], false).unwrap();
    }
    let wanting_sessions = |registry: &Registry| [1, 2].map(|link| registry.sessions_wanting(link, 0));
    enable(&mut registry, 5).unwrap();
    assert_eq!(wanting_sessions(&registry), [vec![5], vec![]]);
    assert_eq!(registry.combined_params(2, 0, 5), None);
    let property = EVENT_ENABLE_PROPERTY_ENABLE_SILOS;
    let silos = EnableParams { property, ..EnableParams::default() };
    registry.enable(EnableTarget::Provider(PROVIDER), 5, silos, None, "").unwrap();
    assert_eq!(wanting_sessions(&registry), [vec![5], vec![5]]);
    assert_eq!(registry.combined_params(2, 0, 5).unwrap().property, property);
    assert!(
        Conditions::from_processes(Vec::new()).includes_containers()
            && !Conditions::default().includes_containers()
    );
}

#[test]
fn provider_list_continues_after_any_key() {
    let mut registry = registry();
    let group = Guid::from_u128(3);
    let traits = TraitsBuilder::new("member").group(&group).finish().unwrap().to_vec();
    for number in 1..=4 {
        registry.register(1, number, Guid::from_u128(number.into()), &traits, false).unwrap();
    }
    registry
        .enable(EnableTarget::Provider(Guid::from_u128(9)), 5, EnableParams::default(), None, "")
        .unwrap();
    registry
        .enable(EnableTarget::Provider(Guid::from_u128(2)), 5, EnableParams::default(), None, "")
        .unwrap();
    let keys = |after: Option<(u128, bool)>| -> Vec<_> {
        let after = after.map(|(guid, is_group)| (Guid::from_u128(guid), is_group));
        registry.providers(after, &BTreeSet::new()).map(|entry| (entry.provider, entry.is_group)).collect()
    };
    let all_keys = keys(None);
    let providers = [1, 2, 3, 4, 9].map(|guid| (Guid::from_u128(guid), false));
    assert_eq!(all_keys, [&providers[..], &[(group, true)]].concat());
    assert_eq!(keys(Some((2, false))), all_keys[2..]);
    assert_eq!(keys(Some((5, false))), all_keys[4..], "a key that is no longer listed");
    assert_eq!(keys(Some((3, true))), []);
}

#[test]
fn registrations_of_one_user_are_bounded_across_processes() {
    let mut registry = Registry::default();
    let process = |uid| ProviderProcess::new(Peer { pid: 1, uid, gid: 1 }, None, 0);
    let links = u64::try_from(MAX_REGISTRATIONS_OF_USER / MAX_REGISTRATIONS).unwrap();
    for link in 0..=links {
        registry.processes.insert(link, process(7));
    }
    registry.processes.insert(1000, process(8));
    for link in 0..links {
        for number in 0..u32::try_from(MAX_REGISTRATIONS).unwrap() {
            registry.register(link, number, Guid::from_u128(number.into()), &[], false).unwrap();
        }
    }
    assert_eq!(
        registry.register(links, 0, PROVIDER, &[], false).unwrap_err().status,
        Status::ERROR_NO_SYSTEM_RESOURCES
    );
    registry.register(1000, 0, PROVIDER, &[], false).expect("the limit of one user applies to another");
    registry.unregister(0, 5).unwrap();
    registry.register(links, 0, PROVIDER, &[], false).unwrap();
    assert!(registry.register(links, 1, PROVIDER, &[], false).is_err());
    registry.remove_process(0).unwrap();
    registry.register(links, 1, PROVIDER, &[], false).unwrap();
}

const NAME: &str = "Some.App";

fn traits_named(name: &str) -> Vec<u8> {
    TraitsBuilder::new(name).finish().unwrap().to_vec()
}

/// Enables a provider by its name, as a controller with every right.
fn enable_by_name(registry: &mut Registry, session: u64, level: u8) {
    let target = EnableTarget::Provider(Guid::from_provider_name(NAME));
    let params = EnableParams { level, ..EnableParams::default() };
    registry.enable(target, session, params, None, NAME).unwrap();
    registry.set_controller(target, session, root());
    for name_match in registry.matches_of_enable(target, session) {
        registry.set_reached(&name_match, true);
    }
}

fn root() -> UserIdentity {
    UserIdentity::without_groups(&Peer { pid: 1, uid: 0, gid: 0 })
}

/// Lets all enables by name reach a registration that was just added, or whose traits were just
/// set.
fn reach_registration(registry: &mut Registry, number: u32) {
    for name_match in registry.matches_of_registration(1, number) {
        registry.set_reached(&name_match, true);
    }
}

#[test]
fn only_trusted_controllers_have_names_published() {
    let mut registry = registry();
    enable_by_name(&mut registry, 5, 4);
    let names = |registry: &Registry, may_name: bool| -> Vec<String> {
        registry.published_enables(|_| may_name).into_iter().map(|enable| enable.name).collect()
    };
    assert_eq!((names(&registry, true), names(&registry, false)), (vec![NAME.into()], vec![String::new()]));
}

#[test]
fn process_is_not_enabled_for_a_provider_of_the_kernel() {
    let mut registry = registry();
    registry
        .register(1, 0, KERNEL_PROCESS, &traits_named("Microsoft-Windows-Kernel-Process"), false)
        .unwrap();
    let target = EnableTarget::Provider(KERNEL_PROCESS);
    registry.enable(target, 5, EnableParams::default(), None, "Microsoft-Windows-Kernel-Process").unwrap();
    registry.register(1, 1, KERNEL_PROCESS, &[], false).unwrap();
    assert_eq!([0, 1].map(|number| registry.sessions_wanting(1, number)), [[0_u64; 0]; 2]);
    assert_eq!(registry.combined_params(1, 1, 5), None);
    assert_eq!(registry.published_enables(|_| true).len(), 1, "the enable itself is not listed");
}

#[test]
fn name_finds_registrations_with_another_guid_now_and_later() {
    let mut registry = registry();
    registry.register(1, 0, PROVIDER, &traits_named("SOME.app"), false).unwrap();
    registry.register(1, 1, Guid::from_provider_name(NAME), &traits_named(NAME), false).unwrap();
    registry.register(1, 2, PROVIDER, &traits_named("Some.Other"), false).unwrap();
    enable_by_name(&mut registry, 5, 4);
    let wanting_sessions = |registry: &Registry| [0, 1, 2].map(|number| registry.sessions_wanting(1, number));
    assert_eq!(wanting_sessions(&registry), [vec![5], vec![5], vec![]]);
    assert_eq!(registry.combined_params(1, 0, 5).unwrap().level, 4);
    let target = EnableTarget::Provider(Guid::from_provider_name(NAME));
    assert_eq!(registry.registrations_reached(target, 5), [(1, 0), (1, 1)]);
    assert_eq!(registry.registrations_reached(target, 6), [(1, 1)]);

    registry.register(1, 3, Guid::from_u128(8), &traits_named(NAME), false).unwrap();
    assert_eq!(registry.sessions_wanting(1, 3), [], "the name matches only after the rights are checked");
    reach_registration(&mut registry, 3);
    registry.register(1, 4, Guid::from_u128(9), &[], false).unwrap();
    reach_registration(&mut registry, 4);
    assert_eq!(
        [3, 4].map(|number| registry.sessions_wanting(1, number)),
        [vec![5], vec![]],
        "a registration without a name is not reached"
    );
    registry.set_traits(1, 4, &traits_named(NAME)).unwrap();
    reach_registration(&mut registry, 4);
    assert_eq!(registry.sessions_wanting(1, 4), [5]);

    assert!(registry.disable(target, 5));
    assert_eq!([0, 1, 3, 4].map(|number| registry.sessions_wanting(1, number).len()), [0; 4]);
    assert_eq!(registry.registrations_reached(target, 5), [(1, 1)]);
    registry.remove_process(1).unwrap();
    assert!(registry.by_name_hash.is_empty() && registry.registered.is_empty());
}

#[test]
fn only_an_enable_by_name_matches_names() {
    let mut registry = registry();
    registry.register(1, 0, PROVIDER, &traits_named(NAME), false).unwrap();
    let target = EnableTarget::Provider(Guid::from_provider_name(NAME));
    registry.enable(target, 5, EnableParams::default(), None, "").unwrap();
    registry.set_controller(target, 5, root());
    assert!(registry.matches_of_enable(target, 5).is_empty(), "an enable by GUID alone matches no name");
    let other = EnableTarget::Provider(Guid::from_u128(3));
    registry.enable(other, 5, EnableParams::default(), None, NAME).unwrap();
    registry.set_controller(other, 5, root());
    assert!(
        registry.matches_of_registration(1, 0).is_empty(),
        "an enable of a GUID other than the hash matches no name"
    );
    let group = EnableTarget::Group(Guid::from_provider_name(NAME));
    registry.enable(group, 6, EnableParams::default(), None, NAME).unwrap();
    registry.set_controller(group, 6, root());
    assert!(registry.matches_of_registration(1, 0).is_empty(), "an enable of a group matches no name");
}

fn enable_pattern(registry: &mut Registry, pattern: &str, session: u64, level: u8) -> EnableTarget {
    let target = EnableTarget::Provider(Guid::from_provider_name(pattern));
    let params = EnableParams { level, ..EnableParams::default() };
    registry.enable(target, session, params, None, pattern).unwrap();
    registry.set_controller(target, session, root());
    for name_match in registry.matches_of_enable(target, session) {
        registry.set_reached(&name_match, true);
    }
    target
}

#[test]
fn pattern_reaches_matching_names_now_and_later() {
    let mut registry = registry();
    let hash = Guid::from_provider_name("Some.Other");
    registry.register(1, 0, PROVIDER, &traits_named(NAME), false).unwrap();
    registry.register(1, 1, hash, &traits_named("Some.Other"), false).unwrap();
    registry.register(1, 2, Guid::from_u128(0x99), &traits_named("Foreign"), false).unwrap();
    let target = enable_pattern(&mut registry, "some.*", 5, 4);
    assert_eq!(registry.registrations_reached(target, 5), [(1, 0), (1, 1)]);
    assert_eq!(registry.sessions_wanting(1, 1), [5], "the GUID is the hash of the name");
    assert!(registry.sessions_wanting(1, 2).is_empty());
    registry.register(1, 3, KERNEL_PROCESS, &traits_named("Some.Kernel"), false).unwrap();
    registry.register(1, 4, Guid::from_u128(0x44), &[], false).unwrap();
    (3..5).for_each(|number| reach_registration(&mut registry, number));
    assert!(registry.sessions_wanting(1, 3).is_empty(), "a process got a provider of the kernel");
    assert!(registry.sessions_wanting(1, 4).is_empty(), "a provider without a name matched");
    registry.set_traits(1, 4, &traits_named("Some.Late")).unwrap();
    reach_registration(&mut registry, 4);
    assert_eq!(registry.sessions_wanting(1, 4), [5]);
    let all = enable_pattern(&mut registry, "*", 5, 2);
    assert_eq!(registry.combined_params(1, 0, 5).unwrap().level, 4, "both patterns combine");
    assert_eq!(registry.combined_params(1, 2, 5).unwrap().level, 2);
    assert!(registry.disable(target, 5));
    assert_eq!(registry.combined_params(1, 0, 5).unwrap().level, 2);
    assert!(registry.disable(all, 5));
    assert!(registry.sessions_wanting(1, 0).is_empty() && registry.patterns.is_empty());
    enable_pattern(&mut registry, "*", 6, 0);
    registry.forget_session(6);
    assert!(registry.sessions_wanting(1, 0).is_empty() && registry.patterns.is_empty());
}

#[test]
fn session_has_a_limited_number_of_patterns() {
    let mut registry = registry();
    for number in 0..MAX_PATTERNS_PER_SESSION {
        enable_pattern(&mut registry, &format!("{number}.*"), 5, 0);
    }
    let target = EnableTarget::Provider(Guid::from_provider_name("more*"));
    let refusal = registry.enable(target, 5, EnableParams::default(), None, "more*").unwrap_err();
    assert_eq!(refusal.status, Status::ERROR_NO_SYSTEM_RESOURCES);
    registry.enable(target, 6, EnableParams::default(), None, "more*").unwrap();
}

#[test]
fn enables_by_name_and_by_guid_combine_and_are_listed_once() {
    let mut registry = registry();
    registry.register(1, 0, PROVIDER, &traits_named(NAME), false).unwrap();
    let direct = EnableParams { level: 2, match_any: 1, ..EnableParams::default() };
    registry.enable(EnableTarget::Provider(PROVIDER), 5, direct, None, "").unwrap();
    enable_by_name(&mut registry, 5, 4);
    enable_by_name(&mut registry, 6, 3);
    assert_eq!(registry.sessions_wanting(1, 0), [5, 6]);
    let params = registry.combined_params(1, 0, 5).unwrap();
    assert_eq!((params.level, params.match_any), (4, u64::MAX));
    let entry = registry.providers(None, &BTreeSet::new()).find(|entry| entry.provider == PROVIDER).unwrap();
    let sessions: Vec<_> =
        entry.sessions.iter().map(|enable| (enable.session, enable.level, enable.name.as_str())).collect();
    assert_eq!(sessions, [(5, 2, ""), (6, 3, NAME)]);
    registry.forget_session(6);
    assert!(registry.disable(EnableTarget::Provider(PROVIDER), 5));
    let params = registry.combined_params(1, 0, 5).unwrap();
    assert_eq!((params.level, params.match_any), (4, 0), "the enable by name is left");
    assert_eq!(registry.sessions_wanting(1, 0), [5]);
}

#[test]
fn processes_in_containers_are_listed_and_counted_once_by_each_enable() {
    let mut registry = registry();
    for link in [2, 3] {
        registry.processes.insert(link, ProviderProcess::new(Peer { pid: 0, uid: 0, gid: 0 }, None, link));
    }
    enable(&mut registry, 5).unwrap();
    for (link, number) in [(1, 0), (2, 0), (2, 1)] {
        registry.register(link, number, PROVIDER, &[], false).unwrap();
        registry.count_left_out(link, number);
    }
    let entry = |registry: &Registry| registry.providers(None, &BTreeSet::new()).next().unwrap();
    assert_eq!((entry(&registry).contained, entry(&registry).sessions[0].left_out), (vec![0], 1));
    registry.remove_process(2).unwrap();
    assert_eq!(
        (entry(&registry).contained, entry(&registry).sessions[0].left_out),
        (vec![], 1),
        "the process is gone, the count stays"
    );
    registry.register(3, 0, PROVIDER, &[], false).unwrap();
    registry.count_left_out(3, 0);
    assert_eq!(entry(&registry).sessions[0].left_out, 2);
    let silos = EnableParams { property: EVENT_ENABLE_PROPERTY_ENABLE_SILOS, ..EnableParams::default() };
    registry.enable(EnableTarget::Provider(PROVIDER), 5, silos, None, "").unwrap();
    registry.count_left_out(3, 0);
    assert_eq!(entry(&registry).sessions[0].left_out, 0, "the enable now includes containers");
    enable(&mut registry, 5).unwrap();
    registry.count_left_out(3, 0);
    assert_eq!(entry(&registry).sessions[0].left_out, 1);
}
