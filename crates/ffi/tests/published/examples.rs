//! The examples in C: as sources for Windows, with the headers of mingw-w64, and as programs here.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use traceweir::Guid;
use traceweir::controller::EnableParams;
use traceweir_format::etl;

use crate::support::{C, Link, ProgramFolder, TestDaemon, crate_path, expect_success, has_program, library};

/// Examples that mingw-w64 cannot compile, and the header that mingw-w64 lacks.
const MINGW_EXCEPTIONS: &[(&str, &str)] = &[("tracelogging.c", "TraceLoggingProvider.h")];

const MINGW: &str = "x86_64-w64-mingw32-gcc";

fn list_examples() -> Vec<PathBuf> {
    let files = library::list_folder(&crate_path("../../examples/c"));
    files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "c")).collect()
}

fn file_name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn examples_compile_with_the_headers_of_mingw() {
    if !has_program(MINGW) {
        return;
    }
    let mut checked = 0;
    for source in list_examples() {
        if let Some((_, header)) = MINGW_EXCEPTIONS.iter().find(|(known, _)| *known == file_name(&source)) {
            assert!(std::fs::read_to_string(&source).unwrap().contains(header));
            continue;
        }
        let mut command = Command::new(MINGW);
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-include"]);
        expect_success(command.arg(crate_path("tests/published/mingw_lacks.h")).arg(&source));
        checked += 1;
    }
    assert!(checked >= 5, "{checked} examples");
}

fn build_example(programs: &ProgramFolder, file: &str) -> PathBuf {
    let source = crate_path("../../examples/c").join(file);
    assert!(source.is_file(), "{}", source.display());
    programs.build("gcc", &source, &["-std=c11"], Link::Shared)
}

#[test]
fn examples_compile_with_every_compiler_and_standard() {
    let programs = ProgramFolder::new();
    for source in &list_examples() {
        for compiler in C.compilers() {
            for standard in C.standards {
                programs.build(compiler, source, &[&format!("-std={standard}")], Link::Shared);
            }
        }
    }
}

/// A started program that has reported that it is ready.
struct ReadyProgram {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

fn start_program(command: &mut Command, ready_line: &str) -> ReadyProgram {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), ready_line);
    ReadyProgram { child, output }
}

impl ReadyProgram {
    /// Closes the input of the program, waits for its end, and returns its output.
    fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {printed}");
        printed
    }
}

const HELLO: &str = "{3d1c9f52-6c1e-4a3b-9a52-0a8f0b1d7c11}";
const COPIER: &str = "{5497b10c-c2dd-596b-c247-71d0da04daa1}";

/// The sizes of the payloads that the hello example writes, in bytes: three numbers, each with a
/// name, and a UTF-16 text.
const GREETING_SIZES: [u16; 4] = [10, 10, 12, 26];

#[test]
fn session_example_records_a_provider() {
    let programs = ProgramFolder::new();
    let hello = build_example(&programs, "hello.c");
    let session = build_example(&programs, "session.c");
    let daemon = TestDaemon::new();
    let file = daemon.folder.path().join("grüße.etl");
    let mut command = daemon.command(&session);
    let recording = start_program(command.arg("Hellö").arg(&file).arg(HELLO), "recording");
    let names: Vec<String> =
        daemon.controller().query_all().unwrap().into_iter().map(|running| running.config.name).collect();
    assert_eq!(names, ["Hellö"]);
    expect_success(&mut daemon.command(&hello));
    let printed = recording.finish();
    assert!(printed.starts_with("wrote ") && printed.contains("grüße.etl, 0 events lost"), "{printed}");
    let trace = etl::Trace::open(std::fs::File::open(&file).unwrap()).unwrap();
    let mut events = trace.events();
    let mut sizes = Vec::new();
    while let Some(record) = events.next().unwrap() {
        if record.provider() == HELLO.parse::<Guid>().unwrap() {
            sizes.push(record.payload().len());
        }
    }
    assert_eq!(sizes, GREETING_SIZES.map(usize::from));
}

#[test]
fn session_example_replaces_an_abandoned_session() {
    let programs = ProgramFolder::new();
    let session = build_example(&programs, "session.c");
    let daemon = TestDaemon::new();
    let abandoned = daemon.record("Left", &[], &EnableParams::default());
    let file = daemon.folder.path().join("new.etl");
    let mut command = daemon.command(&session);
    start_program(command.arg("Left").arg(&file).arg(HELLO), "recording").finish();
    assert!(file.is_file() && daemon.controller().query_all().unwrap().is_empty());
    drop(abandoned);
    let mut command = daemon.command(&session);
    let refused = command.arg("Left").arg("/nowhere/new.etl").arg(HELLO).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("the session cannot be started: "),
        "{refused:?}"
    );
}

#[test]
fn consumer_example_reads_and_merges_files() {
    let programs = ProgramFolder::new();
    let hello = build_example(&programs, "hello.c");
    let consumer = build_example(&programs, "consumer.c");
    let daemon = TestDaemon::new();
    let recording = daemon.record(
        "greetings",
        &[HELLO.parse().unwrap()],
        &EnableParams { level: 5, ..EnableParams::default() },
    );
    expect_success(&mut daemon.command(&hello));
    assert_eq!(recording.stop(0, |_| ()).len(), 4);
    let file = daemon.folder.path().join("greetings.etl");
    let printed = expect_success(Command::new(&consumer).arg(&file));
    let greetings: Vec<&str> = printed.lines().filter(|line| line.contains(HELLO)).collect();
    assert_eq!(greetings.len(), 4, "{printed}");
    for (line, size) in greetings.iter().zip(GREETING_SIZES) {
        assert!(line.ends_with(&format!(": {size} bytes")) && line.contains(" level 4 "), "{line}");
    }
    // The traces of two files are merged.
    let printed_twice = expect_success(Command::new(&consumer).arg(&file).arg(&file));
    let stamps: Vec<&str> = printed_twice
        .lines()
        .filter(|line| line.contains(HELLO))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(stamps.len() == 8 && stamps.is_sorted(), "{printed_twice}");
    let missing = Command::new(&consumer).arg(daemon.folder.path().join("none.etl")).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no such file (2)"), "{missing:?}");
}

#[test]
fn printer_example_shows_live_events_with_their_fields() {
    let programs = ProgramFolder::new();
    let writer = build_example(&programs, "tracelogging.c");
    let printer = build_example(&programs, "printer.c");
    let daemon = TestDaemon::new();
    let live = start_program(daemon.command(&printer).args(["Live", COPIER, "3"]), "listening");
    expect_success(&mut daemon.command(&writer));
    let printed = live.finish();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 3, "{printed}");
    assert!(lines[0].starts_with("MyCompany.Copier FileCopied pid "), "{printed}");
    assert!(lines[0].contains(" from=a.txt to=b.txt bytes=42 result="), "{printed}");
    assert!(lines[2].contains("total={ files=2 sizes.Count=2 sizes=[42, 0] }"), "{printed}");
    let sessions = daemon.controller().query_all().unwrap();
    assert!(sessions.is_empty(), "the printer has not stopped its session");
}

#[test]
fn list_example_shows_sessions() {
    let programs = ProgramFolder::new();
    let list = build_example(&programs, "list.c");
    let daemon = TestDaemon::new();
    let recording = daemon.record("listed", &[], &EnableParams::default());
    let list_output = expect_success(&mut daemon.command(&list));
    assert!(list_output.lines().any(|line| line.ends_with(" listed")), "{list_output}");
    let session_output = expect_success(daemon.command(&list).arg("listed"));
    assert!(
        session_output.contains("Name:             listed\n") && session_output.contains("listed.etl"),
        "{session_output}"
    );
    let unknown_output = daemon.command(&list).arg("nobody").output().unwrap();
    assert_eq!(unknown_output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&unknown_output.stderr).contains("session is not running (4201)"),
        "{unknown_output:?}"
    );
    recording.stop(0, |_| ());
}

/// A program that registers a provider and waits for the end of its input.
const PROVIDER_SOURCE: &str = r#"
#include <evntprov.h>
#include <stdio.h>
int main(void) {
    static const GUID provider = {0x3d1c9f52, 0x6c1e, 0x4a3b, {0x9a, 0x52, 0x0a, 0x8f, 0x0b, 0x1d, 0x7c, 0x11}};
    REGHANDLE handle = 0;
    puts(EventRegister(&provider, NULL, NULL, &handle) == ERROR_SUCCESS ? "registered" : "refused");
    fflush(stdout);
    return getchar() != EOF || EventUnregister(handle) != ERROR_SUCCESS;
}
"#;

#[test]
fn list_example_shows_providers_with_their_processes_and_sessions() {
    let programs = ProgramFolder::new();
    let list = build_example(&programs, "list.c");
    let source = programs.path("registered.c");
    std::fs::write(&source, PROVIDER_SOURCE).unwrap();
    let registered = programs.build("gcc", &source, &[], Link::Shared);
    let daemon = TestDaemon::new();
    let params = EnableParams { level: 4, match_any: 0x30, ..EnableParams::default() };
    let recording = daemon.record("enables", &[HELLO.parse().unwrap()], &params);
    let provider = start_program(&mut daemon.command(&registered), "registered");
    let process = format!("    process {}, session ", provider.child.id());
    let list_output = expect_success(daemon.command(&list).arg("-providers"));
    let mut lines = list_output.lines().skip_while(|line| *line != HELLO);
    assert_eq!(lines.next(), Some(HELLO), "{list_output}");
    let process_line = lines.take_while(|line| line.starts_with(' ')).find(|line| line.starts_with(&process));
    assert!(process_line.is_some_and(|line| line.ends_with(": level 4 keywords 0x30")), "{list_output}");
    provider.finish();
    recording.stop(0, |_| ());
}
