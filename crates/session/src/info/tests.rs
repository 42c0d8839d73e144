//! Tests of settings on machines with and without counters.

use std::fs;

use super::*;
use traceweir_format::info::{CounterOwner, ProfileInterval};
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::class;
use traceweir_format::spec::info::{InfoClass, software_source};

const SWITCH: ClassicEventId =
    ClassicEventId { class: class::THREAD, opcode: hook::type_of(hook::CONTEXT_SWITCH) };

fn machine_without_counters() -> Machine {
    let root = tempfile::tempdir().unwrap();
    let kernel = root.path().join("proc/sys/kernel");
    fs::create_dir_all(&kernel).unwrap();
    fs::write(kernel.join("perf_event_paranoid"), "2\n").unwrap();
    fs::write(kernel.join("perf_event_max_sample_rate"), "4000\n").unwrap();
    Machine::inspect_below(root.path(), None)
}

fn machine_with_counters() -> Machine {
    inspect_fake_machine(None, &[])
}

fn inspect_fake_machine(counters: Option<u32>, events: &[String]) -> Machine {
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

const OK: Status = Status::ERROR_SUCCESS;
const INVALID: Status = Status::ERROR_INVALID_PARAMETER;
const NOT_SUPPORTED: Status = Status::ERROR_NOT_SUPPORTED;

fn status(result: Result<()>) -> Status {
    result.err().map_or(OK, |error| error.status())
}

#[test]
fn failed_set_leaves_lists_unchanged() {
    let (machine, mut settings) = (machine_without_counters(), Settings::default());
    let list = |events: &[ClassicEventId]| Set::StackTracing(events.to_vec());
    let other = ClassicEventId { class: class::PERF_INFO, opcode: hook::type_of(hook::SAMPLED_PROFILE) };
    let unknown_class = ClassicEventId { class: Guid::from_u128(1), opcode: 1 };
    let answer = |settings: &Settings| settings.answer(Query::StackTracing).unwrap();
    settings.set(&list(&[SWITCH, other]), &machine).unwrap();
    assert_eq!(answer(&settings), Answer::StackTracing(vec![SWITCH, other]));
    assert_eq!(status(settings.set(&list(&[unknown_class]), &machine)), INVALID);
    assert_eq!(answer(&settings), Answer::StackTracing(vec![SWITCH, other]));
    settings.set(&list(&[other]), &machine).unwrap();
    assert_eq!(answer(&settings), Answer::StackTracing(vec![other]));
    settings.set(&list(&[]), &machine).unwrap();
    assert_eq!(answer(&settings), Answer::StackTracing(vec![]));
}

#[test]
fn setting_for_missing_hardware_is_not_supported_whatever_it_contains() {
    let (machine, mut settings, mut system) =
        (machine_without_counters(), Settings::default(), System::default());
    for set in [
        Set::PmcEventList(vec![SWITCH]),
        Set::PmcCounterList(vec![0]),
        Set::LbrConfiguration(3),
        Set::LbrEventList(vec![7]),
    ] {
        assert_eq!(status(settings.set(&set, &machine)), NOT_SUPPORTED, "{set:?}");
    }
    assert_eq!(settings, Settings::default());
    assert_eq!(
        status(settings.set(&Set::LbrEventList(vec![]), &machine)),
        OK,
        "a list cannot be cleared without support"
    );
    let interval = |source, interval| Set::SampledProfileInterval(ProfileInterval { source, interval });
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![2, 2]), &machine)), NOT_SUPPORTED);
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![]), &machine)), OK);
    // Source 19 is TotalCycles, which this machine lacks; source 1 is not defined.
    assert_eq!(status(system.set(&interval(19, 1), &machine)), NOT_SUPPORTED);
    assert_eq!(status(system.set(&interval(1, 1), &machine)), INVALID);
    let names: Vec<&str> = machine.sources().iter().map(|source| &source.description[..]).collect();
    assert_eq!(
        names,
        ["Timer", "TaskClock", "PageFaults", "ContextSwitches"],
        "not the timer and the software counters of the kernel"
    );
    assert_eq!(
        status(system.set(
            &Set::ProfileSourceConfig(vec![software_source::PAGE_FAULTS, software_source::TASK_CLOCK]),
            &machine
        )),
        OK
    );
    assert_eq!(
        status(system.set(&Set::ProfileSourceConfig(vec![software_source::PAGE_FAULTS, 19]), &machine)),
        NOT_SUPPORTED
    );
    assert_eq!(system.configured(), [software_source::PAGE_FAULTS, software_source::TASK_CLOCK]);
    let assert_default_interval = |source, interval| {
        let answer = System::default().answer_interval(source, &machine).unwrap();
        assert_eq!(answer, Answer::SampledProfileInterval(ProfileInterval { source, interval }));
    };
    assert_default_interval(software_source::TASK_CLOCK, 10_000);
    assert_default_interval(software_source::PAGE_FAULTS, 65_536);
    assert_eq!((machine.counters(), machine.counter_owners(0).is_ok()), (0, true));
}

#[test]
fn intervals_stay_within_bounds_and_persist() {
    let (machine, mut system) = (machine_without_counters(), System::default());
    let mut set_interval = |interval| {
        let set = Set::SampledProfileInterval(ProfileInterval { source: 0, interval });
        system.set(&set, &machine).unwrap();
        system.answer_interval(0, &machine).unwrap()
    };
    let interval_answer = |interval| Answer::SampledProfileInterval(ProfileInterval { source: 0, interval });
    assert_eq!(System::default().answer_interval(0, &machine).unwrap(), interval_answer(10_000));
    // The machine allows 4000 samples a second, so 2500 units of 100 ns are the shortest interval.
    assert_eq!(
        [set_interval(5000), set_interval(1), set_interval(u32::MAX)],
        [interval_answer(5000), interval_answer(2500), interval_answer(1_000_000)]
    );
    assert!(!system.is_default());
    let default = Set::SampledProfileInterval(ProfileInterval { source: 0, interval: 10_000 });
    system.set(&default, &machine).unwrap();
    assert!(system.is_default());
    assert_eq!(system.answer_interval(0, &machine).unwrap(), interval_answer(10_000));
    let with_counters = machine_with_counters();
    for (ids, is_default) in [(vec![19], false), (vec![], true)] {
        system.set(&Set::ProfileSourceConfig(ids), &with_counters).unwrap();
        assert_eq!(system.is_default(), is_default);
    }
    let counter = Answer::SampledProfileInterval(ProfileInterval { source: 19, interval: 65_536 });
    assert_eq!(System::default().answer_interval(19, &with_counters).unwrap(), counter);
    assert_eq!(status(System::default().answer_interval(5, &with_counters).map(drop)), INVALID);
}

#[test]
fn machine_with_counters_lists_and_accepts_them() {
    let (machine, mut settings, mut system) =
        (machine_with_counters(), Settings::default(), System::default());
    let ids: Vec<u32> = machine.sources().iter().map(|source| source.source).collect();
    assert_eq!(
        ids,
        [
            0,
            2,
            6,
            8,
            9,
            10,
            11,
            19,
            software_source::TASK_CLOCK,
            software_source::PAGE_FAULTS,
            software_source::CONTEXT_SWITCHES,
            0x1000,
            0x1001
        ]
    );
    let names: Vec<&str> = machine.sources().iter().map(|source| &source.description[..]).collect();
    assert_eq!((names[0], names[11], names[12]), ("Timer", "bus-cycles", "mem-loads"));
    assert_eq!(status(settings.set(&Set::PmcCounterList(vec![0x2000]), &machine)), INVALID);
    assert_eq!(settings.pmc_session(3), None);
    assert_eq!(status(settings.set(&Set::PmcCounterList(vec![19, 0x1001]), &machine)), OK);
    assert_eq!(status(settings.set(&Set::PmcCounterList(vec![19]), &machine)), INVALID, "set twice");
    assert_eq!(status(settings.set(&Set::PmcEventList(vec![SWITCH]), &machine)), OK);
    assert_eq!(status(settings.set(&Set::PmcEventList(vec![SWITCH]), &machine)), INVALID, "set twice");
    let session =
        PmcSession { logger_id: 3, sources: vec![19, 0x1001], hook_ids: vec![hook::CONTEXT_SWITCH] };
    assert_eq!(settings.pmc_session(3), Some(session));
    assert_eq!(
        status(settings.set(&Set::LbrEventList(vec![hook::CONTEXT_SWITCH.into()]), &machine)),
        INVALID,
        "set before TraceLbrConfigurationInfo"
    );
    // 1 and 2 leave out branches of the kernel and of programs; both at once is invalid.
    assert_eq!(status(settings.set(&Set::LbrConfiguration(3), &machine)), INVALID);
    assert_eq!(status(settings.set(&Set::LbrConfiguration(1), &machine)), OK);
    assert_eq!(status(settings.set(&Set::LbrEventList(vec![hook::CONTEXT_SWITCH.into()]), &machine)), OK);
    system.set(&Set::ProfileSourceConfig(vec![2, 19]), &machine).unwrap();
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![2, 7]), &machine)), INVALID);
    assert_eq!(status(system.set(&Set::ProfileSourceConfig(vec![0]), &machine)), INVALID);
    assert_eq!(system.configured(), [2, 19]);
    match machine.counter_owners(0).unwrap() {
        Answer::PmcCounterOwners { owners, .. } => {
            let watchdog = CounterOwner { kind: 1, ..CounterOwner::default() };
            assert_eq!((owners.len(), owners[0], owners[1]), (4, watchdog, CounterOwner::default()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(status(machine.counter_owners(u32::MAX).map(drop)), INVALID);
}

#[test]
fn stack_cache_sizes_are_adjusted_and_rejected_registers_change_nothing() {
    let (machine, mut settings) = (machine_without_counters(), Settings::default());
    settings.set(&Set::ContextRegister { types: 3, events: vec![SWITCH] }, &machine).unwrap();
    assert_eq!(status(settings.set(&Set::ContextRegister { types: 1, events: vec![] }, &machine)), INVALID);
    assert_eq!(settings.registers, [SWITCH]);
    let on = StackCaching { is_enabled: true, bytes: 0, buckets: 5 };
    settings.set(&Set::UnifiedStackCaching(on), &machine).unwrap();
    let adjusted = StackCaching { bytes: 1 << 20, buckets: 8, ..on };
    assert_eq!(settings.stack_cache(), (Some(adjusted), CachedStacks::All));
    let off = StackCaching { is_enabled: false, ..on };
    settings.set(&Set::UnifiedStackCaching(off), &machine).unwrap();
    assert_eq!(settings.stack_cache().0, None);
    settings.set(&Set::StackCaching(on), &machine).unwrap();
    assert_eq!(settings.stack_cache(), (Some(adjusted), CachedStacks::Kernel));
}

#[test]
fn call_names_at_most_the_reported_number_of_counters() {
    for (machine, counters, max_counters) in [
        (inspect_fake_machine(Some(8), &[]), 8, 8),
        (machine_with_counters(), 4, 4),
        (machine_without_counters(), 0, 4),
    ] {
        assert_eq!(
            answer_locally(Query::MaxPmcCounter, || &machine).unwrap(),
            Some(Answer::MaxPmcCounter(counters))
        );
        for (class, excess) in [
            (InfoClass::TraceProfileSourceConfigInfo, 0),
            (InfoClass::TracePmcCounterListInfo, 0),
            (InfoClass::TraceProfileSourceConfigInfo, 1),
            (InfoClass::TracePmcCounterListInfo, 1),
        ] {
            // `read_set` checks the number of the 32-bit ids, but not whether the ids exist.
            let bytes = vec![2; 4 * (max_counters + excess)];
            let read = read_set(class.number(), Some(&bytes), bytes.len(), || &machine);
            assert_eq!(
                status(read.map(drop)),
                if excess == 0 { OK } else { INVALID },
                "{}, {counters}",
                class.name()
            );
        }
    }
}

#[test]
fn too_many_events_keep_the_first_by_name() {
    let events: Vec<String> = (0..600).rev().map(|number| format!("e{number:03}")).collect();
    let machine = inspect_fake_machine(None, &events);
    // Skips the timer, seven fixed sources and three software counters.
    let names: Vec<&str> = machine.sources().iter().skip(11).map(|source| &source.description[..]).collect();
    assert_eq!((names.len(), names[0], names[1], names[511]), (512, "bus-cycles", "e000", "e510"));
}

#[test]
fn branches_and_events_are_set_together_or_not_at_all() {
    let (machine, mut settings) = (machine_with_counters(), Settings::default());
    let unknown_class = ClassicEventId { class: Guid::from_u128(1), opcode: 1 };
    let branches =
        |configuration, events: &[ClassicEventId]| Branches { configuration, events: events.to_vec() };
    settings.set_branches(&branches(1, &[SWITCH]), &machine).unwrap();
    assert_eq!((settings.lbr, &settings.lbr_events[..]), (Some(1), &[u32::from(hook::CONTEXT_SWITCH)][..]));
    let before = settings.clone();
    let error = settings.set_branches(&branches(2, &[SWITCH, unknown_class]), &machine).unwrap_err();
    assert_eq!((error.status(), error.to_string().contains("GUID")), (INVALID, true), "{error}");
    assert_eq!(status(settings.set_branches(&branches(3, &[SWITCH]), &machine)), INVALID);
    assert_eq!(
        status(settings.set_branches(&branches(1, &[unknown_class]), &machine_without_counters())),
        NOT_SUPPORTED,
        "the machine is not checked first"
    );
    assert_eq!(settings, before);
    settings.set_branches(&branches(0, &[]), &machine).unwrap();
    assert_eq!((settings.lbr, settings.lbr_events.len()), (Some(0), 0));
}

#[test]
fn machine_is_inspected_only_when_needed() {
    let inspect = || -> Machine { panic!("the machine is inspected") };
    assert_eq!(answer_locally(Query::Version, inspect).unwrap(), Some(Answer::Version(PROCESSING_VERSION)));
    assert_eq!(answer_locally(Query::MaxLoggers, inspect).unwrap(), None);
    assert_eq!(
        status(read_set(InfoClass::TraceProviderBinaryTracking.number(), Some(&[1]), 1, inspect).map(drop)),
        OK
    );
}
