//! Tests of settings on machines with and without counters.

use std::fs;

use super::*;
use traceweir_format::info::{CounterOwner, ProfileInterval};
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::class;

const SWITCH: ClassicEventId = ClassicEventId { class: class::THREAD, opcode: 36 };

fn plain() -> Machine {
    let root = tempfile::tempdir().unwrap();
    let kernel = root.path().join("proc/sys/kernel");
    fs::create_dir_all(&kernel).unwrap();
    fs::write(kernel.join("perf_event_paranoid"), "2\n").unwrap();
    fs::write(kernel.join("perf_event_max_sample_rate"), "4000\n").unwrap();
    Machine::inspect_below(root.path(), None)
}

fn rich() -> Machine {
    rich_in(None, &[])
}

fn rich_in(counters: Option<u32>, events: &[String]) -> Machine {
    let root = tempfile::tempdir().unwrap();
    let (kernel, cpu) =
        (root.path().join("proc/sys/kernel"), root.path().join("sys/bus/event_source/devices/cpu"));
    for folder in [&kernel, &cpu.join("events"), &cpu.join("caps")] {
        fs::create_dir_all(folder).unwrap();
    }
    for file in ["perf_event_paranoid", "nmi_watchdog"] {
        fs::write(kernel.join(file), "1\n").unwrap();
    }
    for file in ["events/mem-loads", "events/bus-cycles", "events/bus-cycles.scale", "caps/branches"] {
        fs::write(cpu.join(file), "").unwrap();
    }
    for event in events {
        fs::write(cpu.join("events").join(event), "").unwrap();
    }
    Machine::inspect_below(root.path(), counters)
}

fn status(outcome: Result<()>) -> u32 {
    outcome.err().map_or(0, |e| e.status().0)
}

#[test]
fn failed_set_leaves_lists_unchanged() {
    let (machine, mut settings) = (plain(), Settings::default());
    let list = |events: &[ClassicEventId]| Set::StackTracing(events.to_vec());
    let other = ClassicEventId { class: class::PERF_INFO, opcode: 46 };
    let alien = ClassicEventId { class: Guid::from_u128(1), opcode: 1 };
    let answer = |settings: &Settings| settings.answer(Query::StackTracing).unwrap();
    settings.set(&list(&[SWITCH, other]), &machine).unwrap();
    assert_eq!(answer(&settings), Answer::StackTracing(vec![SWITCH, other]));
    assert_eq!(status(settings.set(&list(&[alien]), &machine)), 87);
    assert_eq!(answer(&settings), Answer::StackTracing(vec![SWITCH, other]));
    settings.set(&list(&[other]), &machine).unwrap();
    assert_eq!(answer(&settings), Answer::StackTracing(vec![other]));
    settings.set(&list(&[]), &machine).unwrap();
    assert_eq!(answer(&settings), Answer::StackTracing(vec![]));
}

#[test]
fn missing_hardware_is_not_supported_whatever_the_buffer_contains() {
    let (machine, mut settings, mut system) = (plain(), Settings::default(), System::default());
    for set in [
        Set::PmcEventList(vec![SWITCH]),
        Set::PmcCounterList(vec![0]),
        Set::LbrConfiguration(3),
        Set::LbrEventList(vec![7]),
    ] {
        assert_eq!(status(settings.set(&set, &machine)), 50, "{set:?}");
    }
    assert_eq!(settings, Settings::default());
    assert_eq!(
        status(settings.set(&Set::LbrEventList(vec![]), &machine)),
        0,
        "clearing works without support"
    );
    let interval = |source, interval| Set::SampledProfileInterval(ProfileInterval { source, interval });
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![2, 2]), &machine)), 50);
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![]), &machine)), 0);
    assert_eq!(status(system.set(&interval(19, 1), &machine)), 50);
    assert_eq!(status(system.set(&interval(1, 1), &machine)), 87);
    let names: Vec<&str> = machine.sources().iter().map(|source| &source.description[..]).collect();
    assert_eq!(
        names,
        ["Timer", "TaskClock", "PageFaults", "ContextSwitches"],
        "software counters of the kernel"
    );
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![0x0801, 0x0800]), &machine)), 0);
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![0x0801, 19]), &machine)), 50);
    assert_eq!(system.configured(), [0x0801, 0x0800]);
    let usual = |source, interval| {
        let answer = System::default().interval(source, &machine).unwrap();
        assert_eq!(answer, Answer::SampledProfileInterval(ProfileInterval { source, interval }));
    };
    usual(0x0800, 10_000);
    usual(0x0801, 65_536);
    assert_eq!((machine.counters(), machine.counter_owners(0).is_ok()), (0, true));
}

#[test]
fn intervals_stay_within_bounds_and_persist() {
    let (machine, mut system) = (plain(), System::default());
    let mut after = |interval| {
        let set = Set::SampledProfileInterval(ProfileInterval { source: 0, interval });
        system.set(&set, &machine).unwrap();
        system.interval(0, &machine).unwrap()
    };
    let is = |interval| Answer::SampledProfileInterval(ProfileInterval { source: 0, interval });
    assert_eq!(System::default().interval(0, &machine).unwrap(), is(10_000));
    assert_eq!([after(5000), after(1), after(u32::MAX)], [is(5000), is(2500), is(1_000_000)]);
    assert!(!system.is_default());
    let back = Set::SampledProfileInterval(ProfileInterval { source: 0, interval: 10_000 });
    system.set(&back, &machine).unwrap();
    assert!(system.is_default());
    assert_eq!(system.interval(0, &machine).unwrap(), is(10_000));
    let rich = rich();
    for (ids, is_usual) in [(vec![19], false), (vec![], true)] {
        system.set(&Set::ProfileSourceConfig(ids), &rich).unwrap();
        assert_eq!(system.is_default(), is_usual);
    }
    let counter = Answer::SampledProfileInterval(ProfileInterval { source: 19, interval: 65_536 });
    assert_eq!(System::default().interval(19, &rich).unwrap(), counter);
    assert_eq!(status(System::default().interval(5, &rich).map(drop)), 87);
}

#[test]
fn machine_with_counters_lists_reads_and_owns_them() {
    let (machine, mut settings, mut system) = (rich(), Settings::default(), System::default());
    let ids: Vec<u32> = machine.sources().iter().map(|source| source.source).collect();
    assert_eq!(ids, [0, 2, 6, 8, 9, 10, 11, 19, 0x0800, 0x0801, 0x0802, 0x1000, 0x1001]);
    let names: Vec<&str> = machine.sources().iter().map(|source| &source.description[..]).collect();
    assert_eq!((names[0], names[11], names[12]), ("Timer", "bus-cycles", "mem-loads"));
    assert_eq!(status(settings.set(&Set::PmcCounterList(vec![0x2000]), &machine)), 87);
    assert_eq!(settings.pmc_session(3), None);
    assert_eq!(status(settings.set(&Set::PmcCounterList(vec![19, 0x1001]), &machine)), 0);
    assert_eq!(status(settings.set(&Set::PmcCounterList(vec![19]), &machine)), 87, "may be set once");
    assert_eq!(status(settings.set(&Set::PmcEventList(vec![SWITCH]), &machine)), 0);
    assert_eq!(status(settings.set(&Set::PmcEventList(vec![SWITCH]), &machine)), 87, "may be set once");
    let session =
        PmcSession { logger_id: 3, sources: vec![19, 0x1001], hook_ids: vec![hook::CONTEXT_SWITCH] };
    assert_eq!(settings.pmc_session(3), Some(session));
    assert_eq!(
        status(settings.set(&Set::LbrEventList(vec![hook::CONTEXT_SWITCH.into()]), &machine)),
        87,
        "class 20 must come first"
    );
    assert_eq!(status(settings.set(&Set::LbrConfiguration(3), &machine)), 87);
    assert_eq!(status(settings.set(&Set::LbrConfiguration(1), &machine)), 0);
    assert_eq!(status(settings.set(&Set::LbrEventList(vec![hook::CONTEXT_SWITCH.into()]), &machine)), 0);
    system.set(&Set::ProfileSourceConfig(vec![2, 19]), &machine).unwrap();
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![2, 7]), &machine)), 87);
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![0]), &machine)), 87);
    assert_eq!(system.configured(), [2, 19]);
    match machine.counter_owners(0).unwrap() {
        Answer::PmcCounterOwners { owners, .. } => {
            let watchdog = CounterOwner { kind: 1, ..CounterOwner::default() };
            assert_eq!((owners.len(), owners[0], owners[1]), (4, watchdog, CounterOwner::default()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(status(machine.counter_owners(u32::MAX).map(drop)), 87);
}

#[test]
fn registers_and_caches_are_kept_in_bounds() {
    let (machine, mut settings) = (plain(), Settings::default());
    settings.set(&Set::ContextRegister { types: 3, events: vec![SWITCH] }, &machine).unwrap();
    assert_eq!(status(settings.set(&Set::ContextRegister { types: 1, events: vec![] }, &machine)), 87);
    assert_eq!(settings.registers, [SWITCH]);
    let on = StackCaching { is_enabled: true, bytes: 0, buckets: 5 };
    settings.set(&Set::UnifiedStackCaching(on), &machine).unwrap();
    let all = StackCaching { bytes: 1 << 20, buckets: 8, ..on };
    assert_eq!(settings.stack_cache(), (Some(all), StackOwners::All));
    let off = StackCaching { is_enabled: false, ..on };
    settings.set(&Set::UnifiedStackCaching(off), &machine).unwrap();
    assert_eq!(settings.stack_cache().0, None);
    settings.set(&Set::StackCaching(on), &machine).unwrap();
    assert_eq!(settings.stack_cache(), (Some(all), StackOwners::Kernel));
}

#[test]
fn call_names_at_most_the_reported_number_of_counters() {
    for (machine, counters, most) in [(rich_in(Some(8), &[]), 8, 8), (rich(), 4, 4), (plain(), 0, 4)] {
        assert_eq!(
            local_answer(Query::MaxPmcCounter, || &machine).unwrap(),
            Some(Answer::MaxPmcCounter(counters))
        );
        for (class, more) in [(6, 0), (9, 0), (6, 1), (9, 1)] {
            let bytes = vec![2; 4 * (most + more)];
            let read = read_set(class, Some(&bytes), bytes.len(), || &machine);
            assert_eq!(status(read.map(drop)), if more == 0 { 0 } else { 87 }, "{class}, {counters}");
        }
    }
}

#[test]
fn too_many_events_keep_the_first_by_name() {
    let events: Vec<String> = (0..600).rev().map(|number| format!("e{number:03}")).collect();
    let machine = rich_in(None, &events);
    let names: Vec<&str> = machine.sources().iter().skip(11).map(|source| &source.description[..]).collect();
    assert_eq!((names.len(), names[0], names[1], names[511]), (512, "bus-cycles", "e000", "e510"));
}

#[test]
fn branches_and_events_are_set_together_or_not_at_all() {
    let (machine, mut settings) = (rich(), Settings::default());
    let alien = ClassicEventId { class: Guid::from_u128(1), opcode: 1 };
    let branches =
        |configuration, events: &[ClassicEventId]| Branches { configuration, events: events.to_vec() };
    settings.set_branches(&branches(1, &[SWITCH]), &machine).unwrap();
    assert_eq!((settings.lbr, &settings.lbr_events[..]), (Some(1), &[u32::from(hook::CONTEXT_SWITCH)][..]));
    let before = settings.clone();
    let refused = settings.set_branches(&branches(2, &[SWITCH, alien]), &machine).unwrap_err();
    assert_eq!((refused.status().0, refused.to_string().contains("GUID")), (87, true), "{refused}");
    assert_eq!(status(settings.set_branches(&branches(3, &[SWITCH]), &machine)), 87);
    assert_eq!(
        status(settings.set_branches(&branches(1, &[alien]), &plain())),
        50,
        "the machine comes first"
    );
    assert_eq!(settings, before);
    settings.set_branches(&branches(0, &[]), &machine).unwrap();
    assert_eq!((settings.lbr, settings.lbr_events.len()), (Some(0), 0));
}

#[test]
fn machine_is_inspected_only_when_needed() {
    let inspect = || -> Machine { panic!("the machine is inspected") };
    assert_eq!(local_answer(Query::Version, inspect).unwrap(), Some(Answer::Version(PROCESSING_VERSION)));
    assert_eq!(local_answer(Query::MaxLoggers, inspect).unwrap(), None);
    assert_eq!(status(read_set(18, Some(&[1]), 1, inspect).map(drop)), 0);
}
