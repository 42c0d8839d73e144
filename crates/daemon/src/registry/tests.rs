use super::*;
use crate::filter::Conditions;

const PROVIDER: Guid = Guid::from_u128(7);

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.processes.insert(1, Process::new(Peer { pid: std::process::id(), uid: 0, gid: 0 }, 99));
    registry
}

fn enable(registry: &mut Registry, session: u64) -> Result<(), Refusal> {
    registry.enable(Target::Provider(PROVIDER), session, EnableParams::default(), None)
}

#[test]
fn a_process_has_1024_registrations_and_gets_room_back() {
    let mut registry = registry();
    for number in 0..1024 {
        registry.register(1, number, PROVIDER, &[], false).unwrap();
    }
    assert_eq!(registry.register(1, 1024, PROVIDER, &[], false).unwrap_err().status.0, 1450);
    assert_eq!(registry.register(1, 5, PROVIDER, &[], false).unwrap_err().status.0, 87, "a number twice");
    assert!(registry.unregister(1, 5).is_some());
    assert!(registry.unregister(1, 5).is_none());
    registry.register(1, 5, PROVIDER, &[], false).unwrap();
    assert_eq!(registry.registrations_of(Target::Provider(PROVIDER)).len(), 1024);
    assert_eq!(registry.remove(1).unwrap().registrations.len(), 1024);
    assert!(!registry.is_known(Target::Provider(PROVIDER)));
}

#[test]
fn names_of_one_process_take_bounded_room() {
    let mut registry = registry();
    let name = "n".repeat(20_000);
    let traits = traceweir_format::tracelogging::TraitsBuilder::new(&name).finish().unwrap().to_vec();
    registry.register(1, 0, PROVIDER, &traits, false).unwrap();
    registry.register(1, 1, Guid::from_u128(8), &traits, false).unwrap();
    let names: Vec<usize> = registry.providers().iter().map(|entry| entry.name.len()).collect();
    assert_eq!(names, [20_000, 0]);
    registry.unregister(1, 0).unwrap();
    registry.register(1, 2, PROVIDER, &traits, false).unwrap();
    assert_eq!(registry.providers().first().unwrap().name.len(), 20_000, "the room came back");
}

#[test]
fn the_ninth_session_of_a_provider_is_refused_but_may_change() {
    let mut registry = registry();
    for session in 1..=8 {
        enable(&mut registry, session).unwrap();
    }
    assert_eq!(enable(&mut registry, 9).unwrap_err().status.0, 1450);
    enable(&mut registry, 8).unwrap();
    assert!(registry.disable(Target::Provider(PROVIDER), 3));
    enable(&mut registry, 9).unwrap();
    for session in 1..=9 {
        registry.forget_session(session);
    }
    assert!(!registry.is_known(Target::Provider(PROVIDER)));
}

#[test]
fn an_acknowledgement_covers_all_earlier_orders() {
    let mut process = Process::new(Peer { pid: 1, uid: 0, gid: 0 }, 0);
    process.awaited = BTreeMap::from([(1, 10), (3, 30), (7, 70)]);
    assert_eq!(process.acknowledged(0), []);
    assert_eq!(process.acknowledged(3), [10, 30]);
    assert_eq!(process.acknowledged(u32::MAX), [70]);
    process.last_order = u32::MAX;
    assert_eq!(process.next_order(), 1);
}

#[test]
fn a_scope_holds_processes_not_ids() {
    let here = Process::new(Peer { pid: std::process::id(), uid: 0, gid: 0 }, 0);
    let gone = Process::new(Peer { pid: u32::MAX, uid: 0, gid: 0 }, 0);
    let scope = Some(Conditions::of(vec![ProcessKey::of(std::process::id()).unwrap()]));
    assert!(here.is_in(&scope) && !gone.is_in(&scope));
    assert!(here.is_in(&None) && gone.is_in(&None));
    assert!(!here.is_in(&Some(Conditions::of(vec![]))));
}
