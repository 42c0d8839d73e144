//! The schemas that traces contain, as C programs query them through tdh.h; and payload filters,
//! which are made from such schemas.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use traceweir::Guid;
use traceweir::controller::info::Set;
use traceweir::controller::{EnableCode, EnableParams, SessionConfig, SessionRef};
use traceweir_build::{COptions, Manifest};

use crate::support::{Daemon, Link, Workshop, expect_success, here};
use crate::{build, source};

const KITCHEN: Guid = Guid::from_u128(0x2b4f0c6a_91d3_4c57_8a0e_6d5b3f1e7c42);

/// Builds the program that writes, with its manifest compiled in.
fn writer(workshop: &Workshop) -> PathBuf {
    let manifest = Manifest::open(source("kitchen.man")).unwrap();
    let [header, resource] = manifest.write_c(workshop.folder.path(), &COptions::default()).unwrap();
    let folder = format!("-I{}", header.parent().unwrap().display());
    let flags = [folder.as_str(), resource.to_str().unwrap(), "-Wl,--build-id", "-pthread"];
    workshop.build("gcc", &source("kitchen_writer.c"), &flags, Link::Shared)
}

/// Returns what `decode` prints if it knows the writer's manifest, apart from the order of arrival.
fn decoded() -> Vec<String> {
    let pot = |at: u32| {
        let (dish, heat) =
            (if at.is_multiple_of(3) { "pea SOUP" } else { "tea" }, ["low", "high"][at as usize % 2]);
        format!("2b4f0c6a 1 status 0 Kitchen degrees={} dish={dish} heat={heat} left 0", at * 10)
    };
    (0..10).map(pot).chain(["2b4f0c6a 2 status 0 Kitchen left 0".to_owned()]).collect()
}

/// Records the writer into a file, together with the path of its program.
fn record(daemon: &Daemon, writer: &Path) -> PathBuf {
    let mut controller = daemon.controller();
    let file = daemon.folder.path().join("kitchen.etl");
    let (name, log_file) = ("kitchen".to_owned(), Some(file.clone()));
    let config = SessionConfig { name, log_file_mode: 1, log_file, ..SessionConfig::default() };
    let session = SessionRef::Id(controller.start(&config).unwrap().id);
    controller.set_information(&session, &Set::ProviderBinaryTracking(true)).unwrap();
    let params = EnableParams { level: 5, ..EnableParams::default() };
    controller.enable(&session, KITCHEN, EnableCode::Enable, &params, 30_000).unwrap();
    expect_success(&mut daemon.command(writer));
    controller.stop(&session).unwrap();
    file
}

fn decode(program: &Path, file: &Path) -> Vec<String> {
    let mut command = Command::new(program);
    let output = expect_success(command.arg("file").arg(file).env("TRACEWEIR_MANIFESTS", "/nowhere"));
    output.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn events_are_decoded_by_the_program_that_their_trace_names() {
    let (workshop, daemon) = (Workshop::new(), Daemon::new());
    let (writer, reader) = (writer(&workshop), build(&workshop, "decode.c", &[]));
    let file = record(&daemon, &writer);
    let mut lines = decode(&reader, &file);
    // Outside of a callback all open traces are asked; the schemas of a closed one are gone.
    assert_eq!(lines.pop().as_deref(), Some("later 0, closed 1168"));
    assert_eq!(lines, decoded());

    // A replaced program at that path is not used, nor is a file that is not a program.
    let other = workshop.build("gcc", &here("tests/consumer/writer.c"), &["-Wl,--build-id"], Link::Shared);
    for instead in [std::fs::read(&other).unwrap(), b"no program".to_vec(), Vec::new()] {
        std::fs::remove_file(&writer).unwrap();
        std::fs::write(&writer, instead).unwrap();
        let lines = decode(&reader, &file);
        assert!(lines.iter().all(|line| line.contains("1168")), "{lines:?}");
    }
    // A pipe would block the reader forever if it were opened.
    std::fs::remove_file(&writer).unwrap();
    expect_success(Command::new("mkfifo").arg(&writer));
    assert!(decode(&reader, &file).iter().all(|line| line.contains("1168")));
}

#[test]
fn live_events_are_decoded_by_the_program_that_their_session_names() {
    let (workshop, daemon) = (Workshop::new(), Daemon::new());
    let (writer, reader) = (writer(&workshop), build(&workshop, "decode.c", &[]));
    let mut controller = daemon.controller();
    let config = SessionConfig {
        name: "live".to_owned(),
        log_file_mode: 0x100,
        low_latency: true,
        ..SessionConfig::default()
    };
    let session = SessionRef::Id(controller.start(&config).unwrap().id);
    controller.set_information(&session, &Set::ProviderBinaryTracking(true)).unwrap();
    let params = EnableParams { level: 5, ..EnableParams::default() };
    controller.enable(&session, KITCHEN, EnableCode::Enable, &params, 30_000).unwrap();
    let mut command = daemon.command(&reader);
    command.args(["live", "live"]).env("TRACEWEIR_MANIFESTS", "/nowhere").stdout(Stdio::piped());
    let lines = while_it_listens(command, || {
        expect_success(&mut daemon.command(&writer));
        controller.stop(&session).unwrap();
    });
    assert_eq!(lines.split_last().unwrap().1, decoded());
}

/// Runs a consumer, calls `act` once it is ready, and returns what it printed after that.
fn while_it_listens(mut command: Command, act: impl FnOnce()) -> Vec<String> {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    act();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    rest.lines().map(str::to_owned).collect()
}

#[test]
fn manifests_in_events_describe_earlier_and_later_events() {
    let workshop = Workshop::new();
    let reader = build(&workshop, "decode.c", &[]);
    for (trace, least) in [("eventsource", 1), ("merged", 1)] {
        let file = here("../../fixtures/etl").join(format!("{trace}.etl"));
        let lines = decode(&reader, &file);
        let decoded = lines.iter().filter(|line| line.contains(" status 0 ") && line.contains('=')).count();
        assert!(decoded >= least, "{trace}: {lines:#?}");
    }
}

/// Returns the writer's events that pass a filter: ids and degrees.
fn filtered(filter: &str) -> Vec<String> {
    let (workshop, daemon) = (Workshop::new(), Daemon::new());
    let (writer, listener) = (writer(&workshop), build(&workshop, "filtered.c", &[]));
    let mut command = daemon.command(&listener);
    command.arg(source("kitchen.man")).args(["kitchen", filter]);
    while_it_listens(command, || {
        expect_success(&mut daemon.command(&writer));
        daemon.controller().stop(&SessionRef::Name("kitchen".to_owned())).unwrap();
    })
}

#[test]
fn only_events_that_pass_a_payload_filter_arrive() {
    // The bell has no filter, and passes.
    assert_eq!(filtered("hot"), ["1 50", "1 60", "1 70", "2 0"]);
    assert_eq!(filtered("soup"), ["1 0", "1 30", "1 60", "1 90", "2 0"]);
}

#[test]
fn all_required_filters_and_one_other_must_pass() {
    assert_eq!(filtered("both"), ["1 60", "2 0"]);
    assert_eq!(filtered("either"), ["1 0", "1 30", "1 50", "1 60", "1 70", "1 90", "2 0"]);
}

#[test]
fn filters_of_a_manifest_are_listed_with_their_fields() {
    let workshop = Workshop::new();
    let mut command = Command::new(build(&workshop, "filters.c", &[]));
    expect_success(command.arg(source("kitchen.man")).env("TRACEWEIR_MANIFESTS", "/nowhere"));
}
