//! Information classes compared with actual behaviour: numbers with traces, limits with what the
//! daemon accepts, lists with registrations and enables, and unsupported settings with the daemon's
//! log.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use traceweir::controller::info::{
    Answer, ClassicEventId, CounterOwner, PeriodicCaptureState, PmcSession, ProfileInterval, ProfileSource,
    Query, Set, StackCaching,
};
use traceweir::controller::{
    Controller, EnableCode, EnableParams, NO_SESSION, OutputBuffer, SessionConfig, SessionRef, Update,
    configure_last_branch_record_bytes, enumerate_bytes, query_bytes, set_bytes,
};
use traceweir::{ControlCode, Guid, Provider, Status};
use traceweir_format::etl;
use traceweir_format::info::guids_from_bytes;
use traceweir_format::kernel::hook;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP as OF_GROUP, EVENT_ENABLE_PROPERTY_STACK_TRACE,
};
use traceweir_format::spec::event::class;
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL as SEQUENTIAL, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING,
    EVENT_TRACE_SYSTEM_LOGGER_MODE as SYSTEM_LOGGER,
};
use traceweir_format::spec::system::NO_SYSCONFIG;
use traceweir_format::stack_key::{Definitions, StackKey};

use super::table::guid;
use super::{can_profile, event, live_config, recorded_codes, recording_callback, skip};
use crate::machine::Machine;
use crate::recording::Recording;
use crate::support::until;
use crate::support_daemon::{ON_DEMAND_IDLE_EXIT, SeparateDaemon, run_in_own_process};

/// One stream for all processors.
const ONE_STREAM: u32 = EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING;
const CAPTURE_STATE: u32 = ControlCode::CaptureState.number();
/// The context switch, a frequent event on every system.
const CONTEXT_SWITCH: ClassicEventId = ClassicEventId { class: class::THREAD, opcode: 36 };

const SUCCESS: Status = Status::ERROR_SUCCESS;
const INVALID_PARAMETER: Status = Status::ERROR_INVALID_PARAMETER;
const PRIVILEGE_NOT_HELD: Status = Status::ERROR_PRIVILEGE_NOT_HELD;
/// A provider with a GUID that occurs in no other data.
const WRITER: Guid = Guid::from_u128(0x5eed_0123_4567_4abc_9def_8899_aabb_ccdd);

fn connect(folder: &Path) -> Controller {
    Controller::find_at(folder).unwrap().expect("the daemon does not answer")
}

fn status<T>(result: traceweir::Result<T>) -> Status {
    result.err().map_or(SUCCESS, |error| error.status())
}

/// Moves this thread to a processor. Returns `false` if it cannot run there.
fn move_thread_to(cpu: usize) -> bool {
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu);
    rustix::thread::sched_setaffinity(None, &only).is_ok()
}

/// Covers class 23, TraceStreamCount.
#[test]
fn stream_count_matches_the_streams_of_the_trace() {
    run_in_own_process("info_daemon::effects::stream_count_matches_the_streams_of_the_trace", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = connect(folder);
        let provider = Provider::register(WRITER, None).unwrap();
        let cpus = usize::from(traceweir_transport::cpu::possible());
        for mode in [0, ONE_STREAM] {
            let file = folder.join("streams.etl");
            let log_file = Some(file.clone());
            let config = SessionConfig {
                name: "s".into(),
                log_file,
                log_file_mode: SEQUENTIAL | mode,
                ..SessionConfig::default()
            };
            let session = SessionRef::Id(controller.start(&config).unwrap().id);
            let params = EnableParams { level: 4, ..EnableParams::default() };
            controller.enable(&session, WRITER, EnableCode::Enable, &params, 30_000).unwrap();
            let Answer::StreamCount(count) =
                controller.query_information(&session, Query::StreamCount).unwrap()
            else {
                panic!("the answer has another type")
            };
            let visited = (0..cpus)
                .filter(|cpu| move_thread_to(*cpu))
                .inspect(|_| provider.write(&event(7), &[]).unwrap());
            let visited = visited.count();
            controller.stop(&session).unwrap();
            let trace = etl::Trace::open(std::fs::File::open(&file).unwrap()).unwrap();
            let mut streams: BTreeSet<u16> = BTreeSet::new();
            let mut buffer = Vec::new();
            for info in trace.buffers() {
                trace.load(info, &mut buffer).unwrap();
                let is_ours = buffer.windows(16).any(|bytes| bytes == WRITER.to_bytes());
                streams.extend(is_ours.then_some(info.cpu));
            }
            let expected = if mode == ONE_STREAM { 1 } else { visited };
            assert_eq!(streams.len(), expected, "{mode:#x}: {streams:?}");
            assert_eq!(count as usize, if mode == ONE_STREAM { 1 } else { cpus });
            assert!(streams.iter().all(|stream| u32::from(*stream) < count), "{streams:?}");
        }
    });
}

/// Covers class 19, TraceMaxLoggersQuery.
#[test]
fn max_loggers_is_the_number_of_sessions_that_can_run() {
    run_in_own_process(
        "info_daemon::effects::max_loggers_is_the_number_of_sessions_that_can_run",
        |folder| {
            let _daemon = SeparateDaemon::new(folder);
            let mut controller = connect(folder);
            let Answer::MaxLoggers(max_sessions) =
                controller.query_information(&NO_SESSION, Query::MaxLoggers).unwrap()
            else {
                panic!("the answer has another type")
            };
            let small_config = |n: u32| SessionConfig {
                buffer_size: 4,
                maximum_buffers: 1,
                ..live_config(&n.to_string(), 0)
            };
            let ids: Vec<u64> =
                (0..max_sessions).map(|n| controller.start(&small_config(n)).unwrap().id).collect();
            assert_eq!(
                status(controller.start(&small_config(max_sessions))),
                Status::ERROR_NO_SYSTEM_RESOURCES
            );
            controller.stop(&SessionRef::Id(ids[0])).unwrap();
            assert_eq!(
                status(controller.start(&small_config(max_sessions))),
                SUCCESS,
                "a stopped session did not make room for another"
            );
        },
    );
}

/// Covers class 17, TracePeriodicCaptureStateInfo, and class 16 at its limits.
#[test]
fn periodic_capture_state_enforces_its_reported_limits() {
    run_in_own_process(
        "info_daemon::effects::periodic_capture_state_enforces_its_reported_limits",
        |folder| {
            let _daemon = SeparateDaemon::new(folder);
            let mut session = Recording::new(folder);
            let answer = session.query(Query::PeriodicCaptureState);
            let Answer::PeriodicCaptureState { least_seconds, most_providers } = answer else {
                panic!("{answer:?}")
            };
            let most = u32::from(most_providers);
            let ((first, first_callback), (last, last_callback)) =
                (recording_callback(), recording_callback());
            let _first = Provider::register(guid(1), Some(first_callback)).unwrap();
            let _last = Provider::register(guid(most), Some(last_callback)).unwrap();
            session.enable(guid(1), 0);
            session.enable(guid(most), 0);
            let capture_every = |seconds: u32, count: u32| {
                let providers = (1..=count).map(guid).collect();
                Set::PeriodicCaptureState(Some(PeriodicCaptureState { seconds, providers }))
            };
            session.set(&capture_every(least_seconds, most));
            for refused in [
                capture_every(least_seconds, most + 1),
                capture_every(least_seconds - 1, most),
                capture_every(least_seconds, 0),
            ] {
                assert_eq!(
                    status(session.controller.set_information(&session.session, &refused)),
                    INVALID_PARAMETER
                );
            }
            until(
                "the first and the last provider of the list are asked, despite the refused settings",
                || {
                    recorded_codes(&first).contains(&CAPTURE_STATE)
                        && recorded_codes(&last).contains(&CAPTURE_STATE)
                },
            );
            session.stop(|_| None::<()>);
        },
    );
}

/// Covers class 16, TracePeriodicCaptureStateListInfo.
#[test]
fn captured_state_goes_to_all_sessions_that_enable_the_provider() {
    static PROVIDER: OnceLock<Provider> = OnceLock::new();
    run_in_own_process(
        "info_daemon::effects::captured_state_goes_to_all_sessions_that_enable_the_provider",
        |folder| {
            let _daemon = SeparateDaemon::new(folder);
            let mut controller = connect(folder);
            let files =
                ["asking", "enabled", "not enabled"].map(|name| folder.join(name).with_extension("etl"));
            let sessions = [0, 1, 2].map(|n: usize| {
                let (name, log_file) = (n.to_string(), Some(files[n].clone()));
                let config =
                    SessionConfig { name, log_file, log_file_mode: SEQUENTIAL, ..SessionConfig::default() };
                SessionRef::Id(controller.start(&config).unwrap().id)
            });
            let write_state = |notice: &traceweir::provider::EnableNotice<'_>| {
                if notice.code == CAPTURE_STATE {
                    PROVIDER
                        .get()
                        .expect("the callback ran before the provider was stored")
                        .write(&event(9), &[])
                        .unwrap();
                }
            };
            PROVIDER.set(Provider::register(WRITER, Some(Box::new(write_state))).unwrap()).ok().unwrap();
            let params = EnableParams { level: 4, ..EnableParams::default() };
            for session in &sessions[..2] {
                controller.enable(session, WRITER, EnableCode::Enable, &params, 30_000).unwrap();
            }
            let periodic = PeriodicCaptureState { seconds: 10, providers: vec![WRITER] };
            controller.set_information(&sessions[0], &Set::PeriodicCaptureState(Some(periodic))).unwrap();
            until("the provider has answered twice", || controller.query(&sessions[0]).unwrap().events >= 2);
            sessions.iter().for_each(|session| drop(controller.stop(session).unwrap()));
            let counts = files.map(|file| {
                let trace = etl::Trace::open(std::fs::File::open(file).unwrap()).unwrap();
                let (mut events, mut count) = (trace.events(), 0);
                while let Some(record) = events.next().unwrap() {
                    count += u32::from(record.provider() == WRITER && record.descriptor().id == 9);
                }
                count
            });
            assert!(counts[0] >= 2 && counts[1] >= 2, "{counts:?}");
            assert_eq!(counts[2], 0, "a session that has not enabled the provider got its events");
        },
    );
}

/// Covers class 7, TraceProfileSourceListInfo, class 22, TraceMaxPmcCounterQuery, and class 25,
/// TracePmcCounterOwners.
#[test]
fn profile_sources_and_counters_match_the_machine() {
    run_in_own_process("info_daemon::effects::profile_sources_and_counters_match_the_machine", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = connect(folder);
        let mut ask = |query| controller.query_information(&NO_SESSION, query);
        let has_counters = Machine::inspect().has_counters;
        let Answer::ProfileSourceList(sources) = ask(Query::ProfileSourceList).unwrap() else {
            panic!("the answer has another type")
        };
        let ProfileSource { source, description, max_interval, .. } = &sources[0];
        assert_eq!((*source, description.as_str(), *max_interval), (0, "Timer", 1_000_000));
        // Source 0 is the timer, and those from 0x800 are counters of the kernel itself.
        let is_counter =
            |entry: &ProfileSource| entry.source != 0 && !(0x0800..0x1000).contains(&entry.source);
        assert_eq!(sources.iter().any(is_counter), has_counters, "{sources:?}");
        let has_perf = Path::new("/proc/sys/kernel/perf_event_paranoid").exists();
        let has_faults = sources.iter().any(|entry| entry.description == "PageFaults");
        // Page faults need perf events, but no hardware counter: the kernel counts them itself.
        assert_eq!(has_faults, has_perf);
        let Answer::MaxPmcCounter(counters) = ask(Query::MaxPmcCounter).unwrap() else {
            panic!("the answer has another type")
        };
        assert_eq!(counters > 0, has_counters);
        let has_watchdog =
            std::fs::read_to_string("/proc/sys/kernel/nmi_watchdog").is_ok_and(|text| text.trim() == "1");
        let mut expected = vec![CounterOwner::default(); counters as usize];
        if let (true, Some(first)) = (has_watchdog, expected.first_mut()) {
            // The counter is in use; its owner is not known.
            first.kind = 1;
        }
        let processors = u32::from(traceweir_transport::cpu::possible());
        for processor in 0..processors {
            let owners = expected.clone();
            let answer = ask(Query::PmcCounterOwners(processor)).unwrap();
            assert_eq!(answer, Answer::PmcCounterOwners { processor, owners });
        }
        assert_eq!(status(ask(Query::PmcCounterOwners(processors))), INVALID_PARAMETER);
    });
}

/// Covers class 5, TraceSampledProfileIntervalInfo: the interval applies to all sessions until it
/// is set again, within the limits of class 7.
#[test]
fn profile_interval_outlives_sessions_within_limits_of_its_source() {
    run_in_own_process(
        "info_daemon::effects::profile_interval_outlives_sessions_within_limits_of_its_source",
        |folder| {
            if !skip::holds_or_skip(can_profile(), "root", "intervals are set with CAP_PERFMON") {
                return;
            }
            let _daemon = SeparateDaemon::new(folder);
            let query_interval = |controller: &mut Controller| {
                let answer =
                    controller.query_information(&NO_SESSION, Query::SampledProfileInterval(0)).unwrap();
                let Answer::SampledProfileInterval(ProfileInterval { source: 0, interval }) = answer else {
                    panic!("{answer:?}")
                };
                interval
            };
            let mut controller = connect(folder);
            let Answer::ProfileSourceList(sources) =
                controller.query_information(&NO_SESSION, Query::ProfileSourceList).unwrap()
            else {
                panic!("the answer has another type")
            };
            let (least, most) = (sources[0].min_interval, sources[0].max_interval);
            assert_eq!(query_interval(&mut controller), 10_000.clamp(least, most), "wrong default interval");
            let session = SessionRef::Id(controller.start(&live_config("system", SYSTEM_LOGGER)).unwrap().id);
            for (requested, expected) in [(0, least), (u32::MAX, most), (50_000, 50_000.clamp(least, most))] {
                let set = Set::SampledProfileInterval(ProfileInterval { source: 0, interval: requested });
                controller.set_information(&NO_SESSION, &set).unwrap();
                assert_eq!(query_interval(&mut controller), expected, "{requested}");
            }
            let unknown = Set::SampledProfileInterval(ProfileInterval { source: 77, interval: 20_000 });
            assert_eq!(status(controller.set_information(&NO_SESSION, &unknown)), INVALID_PARAMETER);
            controller.stop(&session).unwrap();
            drop(controller);
            assert_eq!(query_interval(&mut connect(folder)), 50_000.clamp(least, most));
        },
    );
}

/// Covers WMI_GLOBAL_LOGGER_ID (1), which is not the id of the session.
#[test]
fn global_logger_id_refers_to_the_session_of_that_name() {
    run_in_own_process(
        "info_daemon::effects::global_logger_id_refers_to_the_session_of_that_name",
        |folder| {
            let _daemon = SeparateDaemon::new(folder);
            let mut controller = connect(folder);
            // Class 23 is TraceStreamCount; class 18 is TraceProviderBinaryTracking.
            let ask = |controller: &mut Controller| {
                status(query_bytes(Some(controller), 1, 23, Some(&[]), 4).result)
            };
            assert_eq!(ask(&mut controller), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
            assert_ne!(controller.start(&live_config("globallogger", 0)).unwrap().id, 1);
            assert_eq!(ask(&mut controller), SUCCESS);
            assert_eq!(status(set_bytes(Some(&mut controller), 1, 18, Some(&[1]), 1)), SUCCESS);
            let branches = configure_last_branch_record_bytes(Some(&mut controller), 1, 0, None, 0);
            assert_eq!(status(branches), if can_profile() { INVALID_PARAMETER } else { PRIVILEGE_NOT_HELD });
        },
    );
}

/// Returns whether this machine gives a system logger kernel events, and disables them again.
pub(crate) fn can_get_kernel_events(controller: &mut Controller, session: &SessionRef) -> bool {
    let set = |mask| Set::SystemTraceEnableFlags([mask, 0, 0, 0, 0, 0, 0, 0]);
    let is_available = match controller.set_information(session, &set(0x10)) {
        Ok(()) => true,
        Err(error) if [Status::ERROR_NOT_SUPPORTED, PRIVILEGE_NOT_HELD].contains(&error.status()) => false,
        Err(error) => panic!("{error}"),
    };
    controller.set_information(session, &set(0)).unwrap();
    skip::holds_or_skip(is_available, "kernel events", "context switches are not available")
}

/// Covers class 4, TraceSystemTraceEnableFlagsInfo, and EnableFlags of the properties. Two kernel
/// groups have a bit in both of the first two words: context switches (0x10 and 4) and samples
/// (0x0100_0000 and 2).
#[test]
fn kernel_groups_and_enable_flags_share_one_mask() {
    run_in_own_process("info_daemon::effects::kernel_groups_and_enable_flags_share_one_mask", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = connect(folder);
        let system = SessionRef::Id(controller.start(&live_config("system", SYSTEM_LOGGER)).unwrap().id);
        let plain = SessionRef::Id(controller.start(&live_config("plain", 0)).unwrap().id);
        let flags_and_mask = |controller: &mut Controller| {
            let flags = controller.query(&system).unwrap().config.enable_flags;
            match controller.query_information(&system, Query::SystemTraceEnableFlags).unwrap() {
                Answer::SystemTraceEnableFlags(mask) => (flags, mask),
                other => panic!("{other:?}"),
            }
        };
        let update = |flags| Update { enable_flags: Some(flags), ..Update::default() };
        let updated = controller.update(&system, &update(NO_SYSCONFIG)).unwrap();
        assert_eq!(updated.config.enable_flags, NO_SYSCONFIG);
        assert_eq!(flags_and_mask(&mut controller), (NO_SYSCONFIG, [NO_SYSCONFIG, 0, 0, 0, 0, 0, 0, 0]));
        if can_get_kernel_events(&mut controller, &system) {
            let updated = controller.update(&system, &update(0x11)).unwrap();
            assert_eq!(updated.config.enable_flags, 0x11);
            assert_eq!(flags_and_mask(&mut controller), (0x11, [0x11, 4, 0, 0, 0, 0, 0, 0]));
            // Bits of the fifth word can be set only with privilege. A refused request changes
            // nothing.
            let fifth = if can_profile() { 0x40 } else { 0 };
            let set = |fifth| Set::SystemTraceEnableFlags([1, 2, 0, 0, fifth, 0, 0, 0]);
            if !can_profile() {
                assert_eq!(status(controller.set_information(&system, &set(0x40))), PRIVILEGE_NOT_HELD);
                assert_eq!(flags_and_mask(&mut controller), (0x11, [0x11, 4, 0, 0, 0, 0, 0, 0]));
            }
            controller.set_information(&system, &set(fifth)).unwrap();
            assert_eq!(
                flags_and_mask(&mut controller),
                (0x0100_0001, [0x0100_0001, 2, 0, 0, fifth, 0, 0, 0])
            );
            controller.update(&system, &update(2)).unwrap();
            assert_eq!(flags_and_mask(&mut controller), (2, [2, 0, 0, 0, fifth, 0, 0, 0]));
        }
        let before = flags_and_mask(&mut controller);
        controller.update(&system, &Update { flush_timer: Some(3), ..Update::default() }).unwrap();
        assert_eq!(flags_and_mask(&mut controller), before, "an update without flags changed them");
        assert_eq!(status(controller.update(&system, &update(0x8000_0000)).map(drop)), INVALID_PARAMETER);
        assert_eq!(flags_and_mask(&mut controller), before);
        controller.update(&system, &update(0)).unwrap();
        assert_eq!(flags_and_mask(&mut controller), (0, [0; 8]));
        assert_eq!(status(controller.update(&plain, &update(1)).map(drop)), INVALID_PARAMETER);
        controller.update(&plain, &update(0)).unwrap();
    });
}

/// Covers classes 0 (registered or enabled providers), 2 (providers of the calling process) and 12
/// (groups).
#[test]
fn provider_lists_follow_registrations_and_enables() {
    run_in_own_process("info_daemon::effects::provider_lists_follow_registrations_and_enables", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut session = Recording::new(folder);
        let (registered, ahead, group) = (guid(1), guid(2), guid(3));
        let list_guids = |controller: &mut Controller, class| -> BTreeSet<Guid> {
            let output = OutputBuffer { length: 4096, is_null: false };
            let outcome = enumerate_bytes(Some(controller), class, None, output);
            outcome.result.unwrap();
            assert_eq!(outcome.return_length, Some(outcome.answer.len() as u32));
            let guids = guids_from_bytes(&outcome.answer);
            assert_eq!(
                guids.iter().collect::<BTreeSet<_>>().len(),
                guids.len(),
                "a provider is listed twice"
            );
            guids.into_iter().collect()
        };
        let list_all =
            |session: &mut Recording<'_>| [0, 2, 12].map(|class| list_guids(&mut session.controller, class));
        let none = BTreeSet::new();
        assert_eq!(list_all(&mut session), [none.clone(), none.clone(), none.clone()]);
        let first = Provider::register(registered, None).unwrap();
        let second = Provider::register(registered, None).unwrap();
        session.enable(ahead, 0);
        session.enable(group, OF_GROUP);
        let set_of = |guids: &[Guid]| guids.iter().copied().collect::<BTreeSet<_>>();
        let expected = [set_of(&[registered, ahead]), set_of(&[registered]), set_of(&[group])];
        until("the provider is listed once, with both enables", || list_all(&mut session) == expected);
        drop(first);
        assert_eq!(list_all(&mut session), expected, "a provider with a remaining registration is missing");
        drop(second);
        let remaining = [set_of(&[ahead]), none.clone(), set_of(&[group])];
        until("the last registration is no longer listed", || list_all(&mut session) == remaining);
        for (guid, property) in [(ahead, 0), (group, OF_GROUP)] {
            let params = EnableParams { property, ..EnableParams::default() };
            session.controller.enable(&session.session, guid, EnableCode::Disable, &params, 30_000).unwrap();
        }
        assert_eq!(list_all(&mut session), [none.clone(), none.clone(), none]);
        session.stop(|_| None::<()>);
    });
}

/// Covers class 11, TraceVersionInfo.
#[test]
fn version_is_that_of_the_library_with_and_without_daemon() {
    run_in_own_process(
        "info_daemon::effects::version_is_that_of_the_library_with_and_without_daemon",
        |folder| {
            let ask = |controller: Option<&mut Controller>| {
                let outcome = query_bytes(controller, 0, 11, Some(&[]), 8);
                outcome.result.unwrap();
                outcome.answer
            };
            let alone = ask(None);
            let _daemon = SeparateDaemon::new(folder);
            assert_eq!(ask(Some(&mut connect(folder))), alone);
            assert_eq!(alone, [1, 0, 0, 0, 0, 0, 0, 0], "version 1, and four bytes that are reserved");
        },
    );
}

/// Covers classes 3 (stack tracing), 24 (stack caching) and 28 (context registers).
#[test]
fn system_logger_gets_provider_events_with_uncached_stacks() {
    let name = "info_daemon::effects::system_logger_gets_provider_events_with_uncached_stacks";
    run_in_own_process(name, |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = connect(folder);
        let file = folder.join("system.etl");
        let config = SessionConfig {
            name: "deep".into(),
            log_file_mode: SEQUENTIAL | SYSTEM_LOGGER,
            log_file: Some(file.clone()),
            ..SessionConfig::default()
        };
        let session = SessionRef::Id(controller.start(&config).unwrap().id);
        let caching = StackCaching { is_enabled: true, ..StackCaching::default() };
        let mut sets = vec![Set::StackTracing(vec![CONTEXT_SWITCH]), Set::StackCaching(caching)];
        if skip::holds_or_skip(can_profile(), "root", "registers are asked for with CAP_PERFMON") {
            sets.push(Set::ContextRegister { types: 3, events: vec![CONTEXT_SWITCH] });
        }
        sets.iter().for_each(|set| controller.set_information(&session, set).unwrap());
        let provider = Provider::register(guid(1), None).unwrap();
        let property = EVENT_ENABLE_PROPERTY_STACK_TRACE;
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        controller.enable(&session, guid(1), EnableCode::Enable, &params, 30_000).unwrap();
        (0..3).for_each(|_| provider.write(&event(1), &[]).unwrap());
        controller.stop(&session).unwrap();

        let trace = etl::Trace::open(std::fs::File::open(&file).unwrap()).unwrap();
        let (mut events, mut definitions, mut deep_stacks) = (trace.events(), Definitions::default(), 0);
        while let Some(record) = events.next().unwrap() {
            definitions.observe(&record);
            if record.provider() == guid(1) {
                // The cache of class 24 holds only stacks of kernel events.
                assert!(StackKey::from_record(&record).is_none());
                deep_stacks +=
                    u32::from(definitions.frames(&record).is_some_and(|frames| frames.count() >= 4));
            }
        }
        assert_eq!(deep_stacks, 3);
    });
}

/// Covers classes 5 (interval, for a counter), 6, 8, 9 and 27 (counters), 20 and 21 (branches).
#[test]
fn missing_counters_and_branches_are_refused_with_a_reason() {
    let name = "info_daemon::effects::missing_counters_and_branches_are_refused_with_a_reason";
    run_in_own_process(name, |folder| {
        if !skip::holds_or_skip(can_profile(), "root", "profiling takes CAP_PERFMON") {
            return;
        }
        let log = folder.join("log");
        let _daemon = SeparateDaemon::with_log(folder, &log);
        let mut controller = connect(folder);
        let session = SessionRef::Id(controller.start(&live_config("deep", SYSTEM_LOGGER)).unwrap().id);
        let Machine { has_counters, has_branches } = Machine::inspect();
        // Profile source 19 counts cycles of the processor.
        let cycles = ProfileInterval { source: 19, interval: 70_000 };
        let cases = [
            (&NO_SESSION, Set::SampledProfileInterval(cycles), has_counters),
            (&NO_SESSION, Set::ProfileSourceConfig(vec![19]), has_counters),
            (&session, Set::PmcEventList(vec![CONTEXT_SWITCH]), has_counters),
            (&session, Set::PmcCounterList(vec![19]), has_counters),
            (&session, Set::LbrConfiguration(1), has_branches),
            (&session, Set::LbrEventList(vec![hook::CONTEXT_SWITCH.into()]), has_branches),
        ];
        for (target, set, is_available) in cases {
            let (outcome, class) = (controller.set_information(target, &set), set.class());
            let status = outcome.as_ref().err().map_or(SUCCESS, |error| error.status());
            let expected = if is_available { SUCCESS } else { Status::ERROR_NOT_SUPPORTED };
            assert_eq!(status, expected, "{class:?}");
            let log_text = std::fs::read_to_string(&log).unwrap();
            let Err(error) = outcome else { continue };
            let reason =
                if class.number() < 20 { "has no performance counters" } else { "records no branches" };
            assert!(error.to_string().contains(reason), "{class:?}: {error}");
            let words = [&format!("{} is not set: ", class.name()), reason];
            assert!(
                log_text.lines().any(|line| words.iter().all(|word| line.contains(*word))),
                "{class:?}: {log_text}"
            );
        }
        let SessionRef::Id(id) = session else { unreachable!() };
        let counter_session = PmcSession {
            logger_id: (id & 0xFFFF) as u16,
            sources: vec![19],
            hook_ids: vec![hook::CONTEXT_SWITCH],
        };
        let expected = if has_counters { vec![counter_session] } else { Vec::new() };
        let answer = controller.query_information(&NO_SESSION, Query::PmcSessions).unwrap();
        assert_eq!(answer, Answer::PmcSessions(expected), "not exactly the accepted requests are listed");
        controller.stop(&session).unwrap();
        until("the session disappears from the list", || {
            let answer = controller.query_information(&NO_SESSION, Query::PmcSessions).unwrap();
            answer == Answer::PmcSessions(Vec::new())
        });
    });
}

/// An idle daemon of a user exits, unless it keeps a setting of the system.
#[test]
fn daemon_stays_while_it_keeps_a_system_setting() {
    run_in_own_process("info_daemon::effects::daemon_stays_while_it_keeps_a_system_setting", |folder| {
        if !skip::holds_or_skip(can_profile(), "root", "intervals are set with CAP_PERFMON") {
            return;
        }
        let _daemon = SeparateDaemon::on_demand(folder);
        let set = |interval| {
            let set = Set::SampledProfileInterval(ProfileInterval { source: 0, interval });
            connect(folder).set_information(&NO_SESSION, &set).unwrap();
        };
        set(20_000);
        // Without the setting, the daemon would exit during the pause.
        std::thread::sleep(ON_DEMAND_IDLE_EXIT + Duration::from_secs(2));
        let answer =
            connect(folder).query_information(&NO_SESSION, Query::SampledProfileInterval(0)).unwrap();
        let Answer::SampledProfileInterval(profile) = answer else { panic!("{answer:?}") };
        assert_eq!(profile.interval, 20_000);
        set(10_000);
        until("the daemon exits once the setting is the default again", || {
            std::thread::sleep(Duration::from_millis(200));
            !folder.join("control.sock").exists()
        });
    });
}
