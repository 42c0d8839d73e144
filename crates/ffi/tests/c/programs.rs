//! C programs that check the status of published functions, and the events that sessions record of
//! them: plain, linked statically, and under sanitizers and valgrind.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use traceweir::Guid;
use traceweir::controller::{EnableParams, Filter, SessionConfig};
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::filter::payload::{self, Builder, Field, Operand, Shape, Type};
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_EVENT_KEY, EVENT_ENABLE_PROPERTY_SID, EVENT_ENABLE_PROPERTY_STACK_TRACE,
    EVENT_FILTER_TYPE_PAYLOAD, PayloadOperator,
};
use traceweir_format::spec::event::ExtType;

use crate::support::{
    C, CPP, Link, ProgramFolder, SANITIZER_FLAGS, STRICT_FLAGS, TestDaemon, checked_rows, crate_path,
    expect_success, has_program, has_sanitizers, optimized_library_folder,
};

const fn provider_guid(number: u128) -> Guid {
    Guid::from_u128(0xC0FF_EE00_1111_2222_0102_0304_0506_0708 | number << 96)
}
const RECORDED: Guid = provider_guid(1);
const CALLBACK: Guid = provider_guid(2);
const CLASSIC: Guid = provider_guid(3);
const PLUGIN: Guid = provider_guid(4);
const STACK: Guid = provider_guid(5);
const EXTRAS: Guid = provider_guid(6);
const TRAITS: Guid = provider_guid(7);
const SHORTCUT: Guid = provider_guid(8);
const SIGNAL_STACK: [Guid; 2] = [provider_guid(0xC), provider_guid(0xD)];
const HELLO: Guid = Guid::from_u128(0x3d1c9f52_6c1e_4a3b_9a52_0a8f0b1d7c11);

/// TRACE_LEVEL_VERBOSE.
const VERBOSE: u8 = 5;

fn all_level_params() -> EnableParams {
    EnableParams { level: VERBOSE, ..EnableParams::default() }
}

fn source_path(name: &str) -> PathBuf {
    crate_path("tests/c").join(name)
}

/// The parts of a record that the tests compare.
#[derive(Debug, PartialEq, Eq)]
struct RecordedEvent {
    id: u16,
    level: u8,
    activity: u32,
    items: Vec<(ExtType, Vec<u8>)>,
    payload: Vec<u8>,
}

fn copy_event(record: &Record<'_>) -> RecordedEvent {
    let descriptor = record.descriptor();
    RecordedEvent {
        id: descriptor.id,
        level: descriptor.level,
        activity: record.activity().map_or(0, |id| id.data1),
        items: record.items().map(|item| (item.kind, item.data.to_vec())).collect(),
        payload: record.payload().to_vec(),
    }
}

/// Runs `status_while_unrecorded.c` under the command `wrapper`, without a daemon.
fn run_without_session(program: &Path, wrapper: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = match wrapper {
        [] => Command::new(program),
        [first, arguments @ ..] => {
            let mut command = Command::new(first);
            command.args(arguments).arg(program);
            command
        }
    };
    let output = expect_success(command.env("TRACEWEIR_RUNTIME_DIR", folder.path()));
    assert!(checked_rows(&output) > 200, "{output}");
}

/// Runs a program under the command `wrapper`, while a session records all events of a provider.
/// Checks that the session lost `expected_lost` events: those that the program writes and that are
/// too large. Returns the output, and the result of `view` for each event.
fn record_program<T>(
    program: &Path,
    provider: Guid,
    wrapper: &[&str],
    params: &EnableParams,
    expected_lost: u64,
    view: impl FnMut(&Record<'_>) -> T,
) -> (String, Vec<T>) {
    let daemon = TestDaemon::new();
    let session = daemon.record("recorded", &[provider], params);
    let mut command = match wrapper {
        [] => daemon.command(program),
        [first, arguments @ ..] => {
            let mut command = daemon.command(Path::new(first));
            command.args(arguments).arg(program);
            command
        }
    };
    let output = expect_success(&mut command);
    (output, session.stop(expected_lost, view))
}

fn classic_params() -> EnableParams {
    EnableParams { level: 4, match_any: 0x30, ..EnableParams::default() }
}

#[test]
fn calls_return_the_published_status_while_no_session_listens() {
    let programs = ProgramFolder::new();
    for compiler in C.compilers() {
        run_without_session(
            &programs.build(compiler, &source_path("status_while_unrecorded.c"), &[], Link::Shared),
            &[],
        );
    }
}

#[test]
fn programs_compile_and_run_as_cpp() {
    let programs = ProgramFolder::new();
    for compiler in CPP.compilers() {
        for standard in CPP.standards {
            let flags = [&format!("-std={standard}"), "-x", "c++"];
            let build = |name| programs.build(compiler, &source_path(name), &flags, Link::Shared);
            run_without_session(&build("status_while_unrecorded.c"), &[]);
            let (_, events) = record_program(
                &build("status_while_recorded.c"),
                RECORDED,
                &[],
                &all_level_params(),
                0,
                copy_event,
            );
            check_written_events(events);
            let (output, _) = record_program(&build("classic.c"), CLASSIC, &[], &classic_params(), 1, |_| ());
            assert!(checked_rows(&output) >= 40, "{output}");
        }
    }
}

fn check_written_events(events: Vec<RecordedEvent>) {
    // Size, no tags, the name "ev", no fields.
    let metadata = b"\x07\0\0ev\0\0".to_vec();
    let item = |kind, data: &[u8]| (kind, data.to_vec());
    let event = |id, activity, items: Vec<(ExtType, Vec<u8>)>, payload: &[u8]| RecordedEvent {
        id,
        level: 4,
        activity,
        items,
        payload: payload.to_vec(),
    };
    let related = Guid::from_u128(0xB << 96).to_bytes();
    let untyped_payload = [&metadata[..], b"\x04\0P\0data"].concat();
    let number = [4, 3, 2, 1];
    let typed_items =
        vec![item(ExtType::EVENT_SCHEMA_TL, &metadata), item(ExtType::PROV_TRAITS, b"\x04\0P\0")];
    let text = RecordedEvent { level: 3, ..event(0, 0, vec![], b"h\0\xE4\0\0\0") };
    let expected = [
        event(1, 0, vec![], b"\x04\x03\x02\x01text\0"),
        event(2, 0xA, vec![item(ExtType::RELATED_ACTIVITYID, &related)], &number),
        event(3, 0xA, vec![], b""),
        event(4, 0, vec![], &untyped_payload),
        event(5, 0, typed_items, b"data"),
        event(6, 0, vec![], &untyped_payload),
        text,
    ];
    assert_eq!(events.len(), expected.len());
    for (mut event, mut expected) in events.into_iter().zip(expected) {
        event.items.sort_by_key(|(kind, _)| kind.0);
        expected.items.sort_by_key(|(kind, _)| kind.0);
        assert_eq!(event, expected);
    }
}

#[test]
fn events_are_recorded_as_they_were_written() {
    let programs = ProgramFolder::new();
    for compiler in C.compilers() {
        let program = programs.build(compiler, &source_path("status_while_recorded.c"), &[], Link::Shared);
        let (output, events) = record_program(&program, RECORDED, &[], &all_level_params(), 0, copy_event);
        assert!(checked_rows(&output) >= 25, "{output}");
        check_written_events(events);
    }
}

#[test]
fn a_classic_provider_writes_events_instances_and_messages() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &source_path("classic.c"), &[], Link::Shared);
    let view = |record: &Record<'_>| {
        let descriptor = record.descriptor();
        (
            record.family(),
            record.provider().data1,
            descriptor.opcode,
            descriptor.id,
            record.payload().to_vec(),
        )
    };
    let (output, records) = record_program(&program, CLASSIC, &[], &classic_params(), 1, view);
    assert!(checked_rows(&output) >= 40, "{output}");
    let class = 0xC1A55;
    // Family, GUID of the class or message, event type, message number, payload.
    let expected = [
        (Family::Full, class, 1, 0, b"data".to_vec()),
        (Family::Full, class, 1, 0, b"onetwo!".to_vec()),
        (Family::Instance, class, 2, 0, b"inst".to_vec()),
        (Family::Message, 0x3E55, 0, 7, b"abcde".to_vec()),
        (Family::Message, 0x3E55, 0, 8, b"list".to_vec()),
        (Family::Message, 0, 0, 9, b"".to_vec()),
        (Family::Message, 0, 0, 10, b"".to_vec()),
    ];
    assert_eq!(records, expected);
}

#[test]
fn traits_time_stamps_and_sizes_are_honored() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &source_path("provider_extras.c"), &[], Link::Shared);
    let daemon = TestDaemon::new();
    let small = SessionConfig { buffer_size: 4, ..SessionConfig::default() };
    let session = daemon.record_with_config("more", &[EXTRAS], &all_level_params(), small);
    expect_success(&mut daemon.command(&program));
    let mut events = session.stop(1, |record| (copy_event(record), record.time()));
    events.sort_by_key(|(event, _)| event.id);
    let ids: Vec<u16> = events.iter().map(|(event, _)| event.id).collect();
    // Event 2 excludes all sessions, and event 3 is too large. The traits are set before event 4.
    // Event 5 has a stamp of its own.
    assert_eq!(ids, [1, 4, 5]);
    let traits = vec![(ExtType::PROV_TRAITS, b"\x05\0C!\0".to_vec())];
    for ((event, _), items) in events.iter().zip([&vec![], &traits, &traits]) {
        assert_eq!((&event.items, &event.payload[..]), (items, &b"pay"[..]));
    }
    let stamps: Vec<i64> = events.iter().map(|(_, stamp)| *stamp).collect();
    assert!(stamps[0] > 0x1234567 && stamps[2] == 0x1234567, "{events:?}");
}

#[test]
fn every_event_carries_the_traits_of_its_provider() {
    let programs = ProgramFolder::new();
    let decode_guid = b"\x0d\xc0\xde\xc056789abcdef0";
    // Size, the name "T", and three traits, each with its size and type: the decode GUID (2), one
    // without data (5), and one with the data "own" (0xC8).
    let traits = [b" \0T\0\x13\0\x02", &decode_guid[..], b"\x03\0\x05\x06\0\xc8own"].concat();
    for compiler in C.compilers() {
        let program = programs.build(compiler, &source_path("traits.c"), &[], Link::Shared);
        // The session knows the provider by its own GUID; the decode GUID selects the schema of the
        // events.
        let daemon = TestDaemon::new();
        let session = daemon.record("traits", &[TRAITS, Guid::from_bytes(decode_guid)], &all_level_params());
        expect_success(&mut daemon.command(&program));
        let events = session.stop(0, |record| (record.provider(), copy_event(record).items));
        assert_eq!(events.len(), 5, "{events:?}");
        for (provider, items) in events {
            assert_eq!(provider, Guid::from_bytes(decode_guid));
            for item in
                [(ExtType::CONTROL_GUID, TRAITS.to_bytes().to_vec()), (ExtType::PROV_TRAITS, traits.clone())]
            {
                assert_eq!(
                    items.iter().filter(|recorded| **recorded == item).count(),
                    1,
                    "{item:?} in {items:?}"
                );
            }
        }
    }
}

#[test]
fn callback_receives_parameters_filter_and_context() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &source_path("callback.c"), &[], Link::Shared);
    let daemon = TestDaemon::new();
    let filters = vec![Filter { kind: 7, data: b"abc".to_vec() }];
    let params =
        EnableParams { level: 4, match_any: 0x30, match_all: 0x10, filters, ..EnableParams::default() };
    let session = daemon.record("notified", &[CALLBACK], &params);
    let mut child = daemon.command(&program).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    session.capture_state(CALLBACK, &EnableParams::default());
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "captured\n");
    let written = session.stop(0, |record| (record.descriptor().id, record.payload().to_vec()));
    assert_eq!(written, [(77, b"early".to_vec())], "the event of the callback during the registration");
    let mut remaining_output = String::new();
    output.read_to_string(&mut remaining_output).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(checked_rows(&remaining_output) >= 13);
}

#[test]
fn hello_example_writes_its_events() {
    let example = crate_path("../../examples/c/hello.c");
    let programs = ProgramFolder::new();
    for compiler in C.compilers() {
        for standard in C.standards {
            let flag = format!("-std={standard}");
            let program = programs.build(compiler, &example, &[&flag], Link::Shared);
            let (_, events) = record_program(&program, HELLO, &[], &all_level_params(), 0, |record| {
                record.payload().to_vec()
            });
            let string: Vec<u8> = "that was all\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
            let greetings = [&b"\0\0\0\0world\0"[..], b"\x01\0\0\0Linux\0", b"\x02\0\0\0Windows\0"];
            assert_eq!(events[..3], greetings);
            assert_eq!(events[3..], [string]);
        }
    }
}

#[test]
fn program_can_be_linked_with_the_static_library() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &source_path("status_while_recorded.c"), &[], Link::Static);
    let needed = expect_success(Command::new("readelf").arg("-d").arg(&program));
    assert!(!needed.contains("libtraceweir"), "{needed}");
    let (_, events) = record_program(&program, RECORDED, &[], &all_level_params(), 0, copy_event);
    check_written_events(events);
}

#[test]
fn plugin_registers_and_unloads_while_the_library_stays() {
    let programs = ProgramFolder::new();
    let plugin = programs.build("gcc", &source_path("plugin.c"), &["-shared", "-fPIC"], Link::Shared);
    let host = programs.path("host");
    expect_success(
        Command::new("gcc").args(STRICT_FLAGS).arg(source_path("host.c")).arg("-o").arg(&host).arg("-ldl"),
    );
    let daemon = TestDaemon::new();
    let session = daemon.record("plugin", &[PLUGIN], &all_level_params());
    let output = expect_success(daemon.command(&host).arg(&plugin));
    assert!(checked_rows(&output) > 18);
    let mut modules = Vec::new();
    let events = session.stop_with(
        0,
        |record| {
            modules.extend(BinaryPath::is_in(record).then(|| BinaryPath::parse(record.payload()).unwrap()));
        },
        |record| (record.provider(), record.payload().to_vec()),
    );
    assert_eq!(events, [0, 1, 2].map(|n: u32| (PLUGIN, n.to_le_bytes().to_vec())));
    // The module of the registrations is the plugin, not the program.
    assert!(!modules.is_empty());
    for module in modules {
        assert_eq!(
            (module.guids, Path::new(&module.path)),
            (vec![PLUGIN], plugin.canonicalize().unwrap().as_path())
        );
    }
}

#[test]
fn call_stack_begins_in_the_function_that_wrote() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &source_path("stack.c"), &[], Link::Shared);
    let params = EnableParams { property: EVENT_ENABLE_PROPERTY_STACK_TRACE, ..all_level_params() };
    let view = |record: &Record<'_>| {
        record.items().stack().expect("the event has no stack").frames().collect::<Vec<u64>>()
    };
    let (output, stacks) = record_program(&program, STACK, &[], &params, 0, view);
    let writers: Vec<u64> = output.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!((writers.len(), stacks.len()), (4, 4));
    for (number, (writer, frames)) in writers.iter().zip(&stacks).enumerate() {
        // A writer consists of a call and little else.
        let is_near = |frame: &u64| (*writer..writer + 64).contains(frame);
        assert!(is_near(&frames[0]), "writer {number} at {writer:#x}: {frames:x?}");
    }
}

/// The most stack that a write may need in an optimized library (docs/c-api.md).
const MAX_STACK_BYTES: u32 = 2048;
/// Like [`MAX_STACK_BYTES`], for code without optimization, whose frames are several times as
/// large. The work areas of a record with a stack or key are larger than this limit, so they must
/// not be on the stack.
const MAX_STACK_BYTES_UNOPTIMIZED: u32 = 12 << 10;

/// Returns a payload filter that every event with id 2 of `signal_stack.c` passes.
fn build_payload_filter() -> Filter {
    let mut event = payload::Event::new(2, 0, false);
    let field = event.add_field(Field::single(Shape::Fixed(8))).unwrap();
    let kind = Type::Integer { bytes: 8, signed: false };
    event.add_predicate(field, kind, PayloadOperator::EQ, Operand::Number(0)).unwrap();
    let mut filters = Builder::new();
    filters.add(&event, true).unwrap();
    Filter { kind: EVENT_FILTER_TYPE_PAYLOAD, data: filters.finish().unwrap() }
}

#[test]
fn a_signal_handler_on_a_small_stack_writes_whatever_sessions_ask_for() {
    const STACK_TRACE: u32 = EVENT_ENABLE_PROPERTY_STACK_TRACE;
    const EVENT_KEY: u32 = EVENT_ENABLE_PROPERTY_EVENT_KEY;
    let programs = ProgramFolder::new();
    // The loader resolves all functions at the start: resolving a function at its first call takes
    // 3 KiB of stack.
    let program = programs.build("gcc", &source_path("signal_stack.c"), &["-Wl,-z,now"], Link::Shared);
    let params_with = |property| EnableParams { property, ..all_level_params() };
    let filtered = EnableParams { filters: vec![build_payload_filter()], ..params_with(STACK_TRACE) };
    // Code without optimization needs more stack than the documented limit.
    let is_optimized = !cfg!(debug_assertions) || optimized_library_folder().is_some();
    let (stack_bytes, max_depth) =
        if is_optimized { (8 << 10, MAX_STACK_BYTES) } else { (64 << 10, MAX_STACK_BYTES_UNOPTIMIZED) };
    let mut deepest = 0;
    for (name, sessions) in [
        ("plain", vec![params_with(0)]),
        ("keys", vec![params_with(EVENT_KEY | EVENT_ENABLE_PROPERTY_SID)]),
        ("stacks", vec![params_with(STACK_TRACE)]),
        ("filtered", vec![filtered.clone()]),
        (
            "several",
            vec![params_with(0), params_with(EVENT_KEY), params_with(STACK_TRACE | EVENT_KEY), filtered],
        ),
    ] {
        for no_rseq in ["0", "1"] {
            let daemon = TestDaemon::new();
            let record = |(number, params)| daemon.record(&format!("{name}{number}"), &SIGNAL_STACK, params);
            let recordings: Vec<_> = sessions.iter().enumerate().map(record).collect();
            let mut command = daemon.command(&program);
            let output =
                expect_success(command.arg(stack_bytes.to_string()).env("TRACEWEIR_NO_RSEQ", no_rseq));
            for line in output.lines().filter_map(|line| line.strip_prefix("depth ")) {
                let depth: u32 = line.split(' ').next().unwrap().parse().unwrap();
                assert!(depth <= max_depth, "{name}, TRACEWEIR_NO_RSEQ={no_rseq}: {line}");
                println!("{name} {no_rseq} {line}");
                deepest = deepest.max(depth);
            }
            for (recording, params) in recordings.into_iter().zip(&sessions) {
                let has_stack = params.property & STACK_TRACE != 0;
                let stacks = recording.stop_with_any_loss(|record| record.items().stack().is_some());
                assert!(
                    stacks.len() >= 20 && stacks.iter().all(|has| *has == has_stack),
                    "{name}: {stacks:?}"
                );
            }
        }
    }
    assert!(deepest > 0);
    println!("deepest write: {deepest} bytes of stack");
}

#[test]
fn shortcut_of_the_macros_writes_usual_events_and_refuses_others() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &source_path("tlg_shortcut.c"), &[], Link::Shared);
    let (output, events) = record_program(&program, SHORTCUT, &[], &all_level_params(), 0, copy_event);
    assert_eq!(checked_rows(&output), 16, "{output}");
    // Refused events are missing. The published function writes the first event. On systems without
    // the shortcut, there are no other events.
    let has_shortcut = events.len() > 1;
    let payloads: Vec<&[u8]> = events.iter().map(|event| &event.payload[..]).collect();
    let number = &7_u32.to_le_bytes()[..];
    let expected = [number, number, &[], &[number, number].concat()[..]];
    assert_eq!(payloads, expected[..if has_shortcut { 4 } else { 1 }]);
    for event in events.iter().skip(1) {
        let kinds: Vec<ExtType> = event.items.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [ExtType::PROV_TRAITS, ExtType::EVENT_SCHEMA_TL]);
        assert_eq!(event.items[0].1, b"\x08\0Short\0");
        assert_eq!(event.items[1].1, b"\x20\0\0Long enough for the moves\0n\0\x08");
    }
}

/// Runs the programs with other compiler flags, or under a tool such as valgrind.
fn run_under_tool(flags: &[&str], wrapper: &[&str]) {
    let programs = ProgramFolder::new();
    let program = |name: &str| programs.build("gcc", &source_path(name), flags, Link::Shared);
    run_without_session(&program("status_while_unrecorded.c"), wrapper);
    let (_, events) = record_program(
        &program("status_while_recorded.c"),
        RECORDED,
        wrapper,
        &all_level_params(),
        0,
        copy_event,
    );
    check_written_events(events);
    let (output, _) = record_program(&program("classic.c"), CLASSIC, wrapper, &classic_params(), 1, |_| ());
    assert!(checked_rows(&output) >= 40, "{output}");
}

#[test]
fn sanitizers_report_no_error() {
    if has_sanitizers("gcc") {
        run_under_tool(&SANITIZER_FLAGS, &[]);
    }
}

#[test]
fn valgrind_reports_no_error() {
    if has_program("valgrind") {
        // The library's thread still runs at the end, and holds memory.
        let leak_flags =
            ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"];
        run_under_tool(&[], &[&["valgrind", "--quiet", "--error-exitcode=9"], &leak_flags[..]].concat());
    }
}
