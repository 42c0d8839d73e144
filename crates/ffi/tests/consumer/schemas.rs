//! The schemas that traces contain, as C programs query them through tdh.h; and payload filters,
//! which C programs build from schemas.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use traceweir::Guid;
use traceweir::controller::info::Set;
use traceweir::controller::{EnableCode, EnableParams, SessionConfig, SessionRef};
use traceweir_build::{COptions, Manifest};
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE};

use crate::support::{Link, ProgramFolder, TestDaemon, crate_path, expect_success};
use crate::{build_program, source_path};

/// ERROR_NOT_FOUND, as the C programs print it.
const NOT_FOUND: &str = "1168";
const KITCHEN_PROVIDER: Guid = Guid::from_u128(0x2b4f0c6a_91d3_4c57_8a0e_6d5b3f1e7c42);

/// Builds the writer, with its manifest compiled in.
fn build_writer(programs: &ProgramFolder) -> PathBuf {
    let manifest = Manifest::open(source_path("kitchen.man")).unwrap();
    let [header, resource] = manifest.write_c(programs.folder.path(), &COptions::default()).unwrap();
    let folder = format!("-I{}", header.parent().unwrap().display());
    let flags = [folder.as_str(), resource.to_str().unwrap(), "-Wl,--build-id", "-pthread"];
    programs.build("gcc", &source_path("kitchen_writer.c"), &flags, Link::Shared)
}

/// Returns the lines that `decode.c` prints if it knows the writer's manifest. "left" is the number
/// of bytes after the last field.
fn expected_lines() -> Vec<String> {
    let format_pot = |at: u32| {
        let (dish, heat) =
            (if at.is_multiple_of(3) { "pea SOUP" } else { "tea" }, ["low", "high"][at as usize % 2]);
        format!("2b4f0c6a 1 status 0 Kitchen degrees={} dish={dish} heat={heat} left 0", at * 10)
    };
    (0..10).map(format_pot).chain(["2b4f0c6a 2 status 0 Kitchen left 0".to_owned()]).collect()
}

/// Records the events of the writer into a file that also names the path of its program.
fn record_writer(daemon: &TestDaemon, writer: &Path) -> PathBuf {
    let mut controller = daemon.controller();
    let file = daemon.folder.path().join("kitchen.etl");
    let (name, log_file) = ("kitchen".to_owned(), Some(file.clone()));
    let config = SessionConfig {
        name,
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file,
        ..SessionConfig::default()
    };
    let session = SessionRef::Id(controller.start(&config).unwrap().id);
    controller.set_information(&session, &Set::ProviderBinaryTracking(true)).unwrap();
    let params = EnableParams { level: 5, ..EnableParams::default() };
    controller.enable(&session, KITCHEN_PROVIDER, EnableCode::Enable, &params, 30_000).unwrap();
    expect_success(&mut daemon.command(writer));
    controller.stop(&session).unwrap();
    file
}

fn run_decoder(program: &Path, file: &Path) -> Vec<String> {
    let mut command = Command::new(program);
    let output = expect_success(command.arg("file").arg(file).env("TRACEWEIR_MANIFESTS", "/nowhere"));
    output.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn trace_is_decoded_with_the_manifest_of_its_program() {
    let (programs, daemon) = (ProgramFolder::new(), TestDaemon::new());
    let (writer, reader) = (build_writer(&programs), build_program(&programs, "decode.c", &[]));
    let file = record_writer(&daemon, &writer);
    let mut lines = run_decoder(&reader, &file);
    // A query outside of a callback searches the schemas of all open traces. A closed trace has
    // none.
    assert_eq!(lines.pop().as_deref(), Some("later 0, closed 1168"));
    assert_eq!(lines, expected_lines());

    // The reader uses neither another program at the path of the writer nor a file that is not a
    // program.
    let other_program =
        programs.build("gcc", &crate_path("tests/consumer/writer.c"), &["-Wl,--build-id"], Link::Shared);
    for replacement in [std::fs::read(&other_program).unwrap(), b"no program".to_vec(), Vec::new()] {
        std::fs::remove_file(&writer).unwrap();
        std::fs::write(&writer, replacement).unwrap();
        let lines = run_decoder(&reader, &file);
        assert!(lines.iter().all(|line| line.contains(NOT_FOUND)), "{lines:?}");
    }
    // A pipe would block the reader forever if it were opened.
    std::fs::remove_file(&writer).unwrap();
    expect_success(Command::new("mkfifo").arg(&writer));
    assert!(run_decoder(&reader, &file).iter().all(|line| line.contains(NOT_FOUND)));
}

#[test]
fn live_session_is_decoded_with_the_manifest_of_its_program() {
    let (programs, daemon) = (ProgramFolder::new(), TestDaemon::new());
    let (writer, reader) = (build_writer(&programs), build_program(&programs, "decode.c", &[]));
    let mut controller = daemon.controller();
    let config = SessionConfig {
        name: "live".to_owned(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        low_latency: true,
        ..SessionConfig::default()
    };
    let session = SessionRef::Id(controller.start(&config).unwrap().id);
    controller.set_information(&session, &Set::ProviderBinaryTracking(true)).unwrap();
    let params = EnableParams { level: 5, ..EnableParams::default() };
    controller.enable(&session, KITCHEN_PROVIDER, EnableCode::Enable, &params, 30_000).unwrap();
    let mut command = daemon.command(&reader);
    command.args(["live", "live"]).env("TRACEWEIR_MANIFESTS", "/nowhere").stdout(Stdio::piped());
    let lines = run_consumer_while(command, || {
        expect_success(&mut daemon.command(&writer));
        controller.stop(&session).unwrap();
    });
    assert_eq!(lines.split_last().unwrap().1, expected_lines());
}

/// Runs a consumer, calls `action` once the consumer is ready, and returns the lines that the
/// consumer prints afterwards.
fn run_consumer_while(mut command: Command, action: impl FnOnce()) -> Vec<String> {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    action();
    let mut remaining_output = String::new();
    output.read_to_string(&mut remaining_output).unwrap();
    assert!(child.wait().unwrap().success(), "{remaining_output}");
    remaining_output.lines().map(str::to_owned).collect()
}

#[test]
fn manifests_in_events_describe_earlier_and_later_events() {
    let programs = ProgramFolder::new();
    let reader = build_program(&programs, "decode.c", &[]);
    for (trace, min_decoded) in [("eventsource", 1), ("merged", 1)] {
        let file = crate_path("../../fixtures/etl").join(format!("{trace}.etl"));
        let lines = run_decoder(&reader, &file);
        let decoded = lines.iter().filter(|line| line.contains(" status 0 ") && line.contains('=')).count();
        assert!(decoded >= min_decoded, "{trace}: {lines:#?}");
    }
}

/// Runs the writer while a session with a filter records. Returns the id and degrees of each event
/// that passes.
fn run_filtered(filter: &str) -> Vec<String> {
    let (programs, daemon) = (ProgramFolder::new(), TestDaemon::new());
    let (writer, consumer) = (build_writer(&programs), build_program(&programs, "filtered.c", &[]));
    let mut command = daemon.command(&consumer);
    command.arg(source_path("kitchen.man")).args(["kitchen", filter]);
    run_consumer_while(command, || {
        expect_success(&mut daemon.command(&writer));
        daemon.controller().stop(&SessionRef::Name("kitchen".to_owned())).unwrap();
    })
}

#[test]
fn only_events_that_pass_a_payload_filter_arrive() {
    // "hot" selects 50 to 70 degrees, "soup" dishes with soup. The event "bell" (2) has no filter,
    // and passes.
    assert_eq!(run_filtered("hot"), ["1 50", "1 60", "1 70", "2 0"]);
    assert_eq!(run_filtered("soup"), ["1 0", "1 30", "1 60", "1 90", "2 0"]);
}

#[test]
fn event_passes_all_required_filters_or_any_optional_one() {
    assert_eq!(run_filtered("both"), ["1 60", "2 0"]);
    assert_eq!(run_filtered("either"), ["1 0", "1 30", "1 50", "1 60", "1 70", "1 90", "2 0"]);
}

#[test]
fn filters_of_a_manifest_are_listed_with_their_fields() {
    let programs = ProgramFolder::new();
    let mut command = Command::new(build_program(&programs, "filters.c", &[]));
    expect_success(command.arg(source_path("kitchen.man")).env("TRACEWEIR_MANIFESTS", "/nowhere"));
}
