//! Consumers in C: what their callbacks receive from files and live sessions, compared with what
//! the Rust reader finds there, and the statuses of calls.

mod schemas;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{C, CPP, Daemon, Link, SANITIZE, Workshop, expect_success, has, has_sanitizers, here, rows};
use traceweir::Guid;
use traceweir::controller::{EnableCode, EnableParams, SessionConfig, SessionRef};
use traceweir_format::etl::{Options, Summary, Trace, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::{Item, MAX_ITEMS};
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::ExtType;

const PROVIDER: Guid = Guid::from_u128(0xC0FF_EE0C_1111_2222_0102_0304_0506_0708);

fn source(name: &str) -> PathBuf {
    here("tests/consumer").join(name)
}

fn build(workshop: &Workshop, name: &str, flags: &[&str]) -> PathBuf {
    workshop.build("gcc", &source(name), &[flags, &["-pthread"]].concat(), Link::Shared)
}

/// Returns every trace of the fixtures.
fn fixtures() -> Vec<PathBuf> {
    let folder = here("../../fixtures/etl");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().canonicalize().unwrap())
        .collect();
    files.sort();
    assert!(files.len() >= 8, "{files:?}");
    files
}

fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01B3))
}

const HASH_START: u64 = 0xCBF2_9CE4_8422_2325;

/// Returns the line that `print_record` prints for an event.
fn line_of(record: &Record<'_>, stamp: i64) -> String {
    let descriptor = record.descriptor();
    let mut items: Vec<(u16, Vec<u8>)> = record.items().map(|i| (i.kind.0, i.data.to_vec())).collect();
    if let Some(instance) = record.instance() {
        let ids = [instance.id.to_le_bytes(), instance.parent_id.to_le_bytes()].concat();
        items.push((4, [ids, instance.parent_class.to_bytes().to_vec()].concat()));
    }
    if !record.pmc_counters().is_empty() {
        items.push((8, record.pmc_counters().to_vec()));
    }
    let has = |kind: ExtType| items.iter().any(|i| i.0 == kind.0);
    let mut flags = if record.pointer_size() == 4 { 0x20 } else { 0x40 };
    flags |= record.flags() & 4 | u16::from(!items.is_empty());
    flags |= if record.cpu_times().unwrap_or((0, 0)) == (0, 0) { 0x10 } else { 0 };
    flags |= if has(ExtType::CONTROL_GUID) { 0x80 } else { 0 };
    let property = match record.family() {
        Family::Event if descriptor.channel == 11 || has(ExtType::EVENT_SCHEMA_TL) || flags & 4 != 0 => 0,
        Family::Event => 1,
        Family::Message => {
            flags |= 8;
            0
        }
        Family::Other(_) => 0,
        _ => {
            flags |= 0x100;
            4
        }
    };
    let item_hash = items.iter().fold(HASH_START, |h, (kind, data)| hash(hash(h, &kind.to_le_bytes()), data));
    format!(
        "{stamp} {:08x} {} {} {} {} {} {} cpu {} ids {} {} flags {flags:x} property {property} activity {:08x} items {} {item_hash:016x} payload {} {:016x}",
        record.provider().data1,
        descriptor.id,
        descriptor.version,
        descriptor.level,
        descriptor.opcode,
        descriptor.task,
        descriptor.keyword,
        record.cpu(),
        record.thread_id(),
        record.process_id(),
        record.activity().map_or(0, |a| a.data1),
        items.len(),
        record.payload().len(),
        hash(HASH_START, record.payload()),
    )
}

/// Returns the lines for a file that the Rust reader reads.
fn lines_of(file: &Path, line: impl Fn(&Record<'_>, i64) -> String, is_raw: bool) -> Vec<String> {
    let trace = Trace::open(std::fs::File::open(file).unwrap()).unwrap();
    let mut events = trace.events();
    let mut lines = Vec::new();
    while let Some(record) = events.next().unwrap() {
        let stamp = if is_raw { record.time() } else { trace.clock().file_time(record.time()).0 };
        lines.push(line(&record, stamp));
    }
    lines
}

fn run(program: &Path, arguments: &[&str], files: &[&Path]) -> Vec<String> {
    let output = expect_success(Command::new(program).args(arguments).args(files));
    output.lines().map(str::to_owned).collect()
}

#[track_caller]
fn assert_same(got: &[String], want: &[String], what: &Path) {
    let differs = got.iter().zip(want).position(|(g, w)| g != w);
    if let Some(at) = differs {
        panic!("{}: event {at}\n{}\nis not\n{}", what.display(), got[at], want[at]);
    }
    assert_eq!(got.len(), want.len(), "{}", what.display());
}

#[test]
fn records_hold_what_the_file_holds() {
    let workshop = Workshop::new();
    let dump = build(&workshop, "dump.c", &[]);
    for file in fixtures() {
        assert_same(&run(&dump, &["records"], &[&file]), &lines_of(&file, line_of, false), &file);
        assert_same(&run(&dump, &["raw"], &[&file]), &lines_of(&file, line_of, true), &file);
    }
}

#[test]
fn items_of_unknown_types_arrive_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("items.etl"), [7; 40]);
    let of = |(kind, length): (u16, usize)| Item { kind: ExtType(kind), data: &data[..length] };
    let options = Options { anchor: 1, ..Options::default() };
    let mut writer = Writer::create(Vec::new(), options).unwrap();
    // One, some, and the most that an event may have.
    let many: Vec<(u16, usize)> = (0..).map(|at| (19 + at, usize::from(at))).take(MAX_ITEMS).collect();
    for (time, items) in (1_i64..).zip([&[(0x7F, 5)][..], &[(19, 0), (0x7F, 40), (0xFFFF, 1)], &many]) {
        let (items, mut record) = (items.iter().copied().map(of).collect::<Vec<_>>(), Vec::new());
        let header = EventHeader { time, provider: PROVIDER, items: &items, ..EventHeader::default() };
        header.encode(b"payload", &mut record).unwrap();
        writer.write(0, time, &record).unwrap();
    }
    std::fs::write(&file, writer.finish(Summary::default()).unwrap()).unwrap();
    let workshop = Workshop::new();
    let lines = run(&build(&workshop, "dump.c", &[]), &["records"], &[&file]);
    assert_same(&lines, &lines_of(&file, line_of, false), &file);
    for count in [1, 3, MAX_ITEMS] {
        assert!(lines.iter().any(|line| line.contains(&format!("items {count} "))), "{count}: {lines:#?}");
    }
}

#[test]
fn older_callback_receives_the_same_events() {
    let workshop = Workshop::new();
    let dump = build(&workshop, "dump.c", &[]);
    let line = |record: &Record<'_>, stamp: i64| {
        let d = record.descriptor();
        format!(
            "{stamp} {:08x} {} {} {} ids {} {} payload {} {:016x}",
            record.provider().data1,
            d.version,
            d.level,
            d.opcode,
            record.thread_id(),
            record.process_id(),
            record.payload().len(),
            hash(HASH_START, record.payload())
        )
    };
    for file in fixtures() {
        assert_same(&run(&dump, &["classic"], &[&file]), &lines_of(&file, line, false), &file);
    }
}

fn buffer_count(file: &Path) -> usize {
    Trace::open(std::fs::File::open(file).unwrap()).unwrap().buffers().len()
}

#[test]
fn buffer_callback_is_called_once_for_each_buffer() {
    let workshop = Workshop::new();
    let dump = build(&workshop, "dump.c", &[]);
    for file in fixtures() {
        let buffers = buffer_count(&file);
        let mut want = lines_of(&file, line_of, false);
        want.push(format!("buffers {buffers}"));
        assert_same(&run(&dump, &["buffers"], &[&file]), &want, &file);
    }
}

#[test]
fn several_files_are_merged_by_time_and_cut_to_a_window() {
    let workshop = Workshop::new();
    let dump = build(&workshop, "dump.c", &[]);
    let files = fixtures();
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let mut want: Vec<String> = files.iter().flat_map(|file| lines_of(file, line_of, false)).collect();
    let time = |line: &String| line.split(' ').next().unwrap().parse::<i64>().unwrap();
    let got = run(&dump, &["buffers"], &paths[..1]);
    assert!(got.len() > 1);
    let mut got = run(&dump, &["records"], &paths);
    assert!(got.windows(2).filter(|pair| time(&pair[0]) > time(&pair[1])).count() < got.len() / 100);
    got.sort();
    want.sort();
    assert_same(&got, &want, Path::new("all"));
    // The window includes both ends.
    let mut times: Vec<i64> = want.iter().map(time).collect();
    times.sort_unstable();
    let (from, to) = (times[times.len() / 4], times[times.len() / 2]);
    want.retain(|line| (from..=to).contains(&time(line)));
    let mut cut = run(&dump, &["window", &from.to_string(), &to.to_string()], &paths);
    cut.sort();
    assert_same(&cut, &want, Path::new("window"));
}

#[test]
fn kept_buffers_can_be_added_to_a_stream() {
    let workshop = Workshop::new();
    let dump = build(&workshop, "dump.c", &[]);
    for file in fixtures() {
        let mut want = lines_of(&file, line_of, false);
        let mut got = run(&dump, &["relay", &buffer_count(&file).to_string()], &[&file]);
        // A stream reports a record that cannot be read as a loss.
        let losses = got.iter().filter(|line| line.contains(" 6a399ae0 0 0 0 32 0 0 ")).count();
        assert_eq!(losses, usize::from(file.ends_with("crashed.etl")), "{}", file.display());
        got.retain(|line| !line.contains(" 6a399ae0 "));
        got.sort();
        want.sort();
        assert_same(&got, &want, &file);
    }
}

/// Makes a folder with files for the table: a trace, an empty file, and a text file.
fn table_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(here("../../fixtures/etl/manifest.etl"), folder.path().join("manifest.etl")).unwrap();
    std::fs::write(folder.path().join("empty"), b"").unwrap();
    std::fs::write(folder.path().join("text"), vec![b'x'; 100_000]).unwrap();
    folder
}

fn run_table(program: &Path, around: &[&str]) {
    let folder = table_folder();
    let mut words: Vec<&str> = around.to_vec();
    let name = program.to_str().unwrap();
    words.push(name);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(folder.path()).current_dir(folder.path());
    let output = expect_success(command.env("TRACEWEIR_RUNTIME_DIR", folder.path()));
    assert!(rows(&output) > 280, "{output}");
}

#[test]
fn calls_return_the_published_status() {
    let workshop = Workshop::new();
    for compiler in C.compilers() {
        run_table(&workshop.build(compiler, &source("table.c"), &["-pthread"], Link::Shared), &[]);
    }
    for compiler in CPP.compilers() {
        let flags = ["-pthread", "-x", "c++", "-Wno-missing-field-initializers"];
        run_table(&workshop.build(compiler, &source("table.c"), &flags, Link::Shared), &[]);
    }
}

#[test]
fn sanitizers_find_nothing() {
    if !has_sanitizers("gcc") {
        return;
    }
    let workshop = Workshop::new();
    run_table(&build(&workshop, "table.c", &SANITIZE), &[]);
    let dump = build(&workshop, "dump.c", &SANITIZE);
    for file in fixtures() {
        assert_same(&run(&dump, &["buffers"], &[&file])[..1], &lines_of(&file, line_of, false)[..1], &file);
        run(&dump, &["relay", &buffer_count(&file).to_string()], &[&file]);
    }
}

#[test]
fn valgrind_finds_nothing() {
    if has("valgrind") {
        let workshop = Workshop::new();
        let leaks = ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"];
        let around = [&["valgrind", "--quiet", "--error-exitcode=9"], &leaks[..]].concat();
        run_table(&build(&workshop, "table.c", &[]), &around);
    }
}

/// Runs a live session with its consumer in C, and returns what the consumer printed for the
/// events.
fn live(ending: &str) -> Vec<String> {
    let workshop = Workshop::new();
    let (consumer, writer) = (build(&workshop, "live.c", &[]), build(&workshop, "writer.c", &[]));
    let daemon = Daemon::new();
    let mut controller = daemon.controller();
    let config = SessionConfig {
        name: "live".to_owned(),
        log_file_mode: 0x100,
        low_latency: true,
        ..SessionConfig::default()
    };
    let session = SessionRef::Id(controller.start(&config).unwrap().id);
    let params = EnableParams { level: 5, ..EnableParams::default() };
    controller.enable(&session, PROVIDER, EnableCode::Enable, &params, 30_000).unwrap();
    let mut child = daemon.command(&consumer).args(["live", ending]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    expect_success(&mut daemon.command(&writer));
    if ending == "stop" {
        controller.stop(&session).unwrap();
    }
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    let mut lines: Vec<String> = rest.lines().map(str::to_owned).collect();
    assert_eq!(lines.pop().as_deref(), Some("done"));
    lines
}

/// Returns the ids of printed events.
fn ids(lines: &[String]) -> Vec<u16> {
    lines.iter().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_live_session_is_delivered_until_it_stops() {
    let lines = live("stop");
    assert_eq!(ids(&lines), [1, 2, 3, 4, 5, 99, 6, 7, 8, 9, 10]);
    for line in lines {
        assert!(line.contains(" c0ffee0c "), "{line}");
        assert!(line.contains(" 1 4 7 3 16 cpu ") && line.contains(" payload 2 "), "{line}");
        assert!(line.contains(" flags 50 property 1 "), "{line}");
    }
}

#[test]
fn a_callback_may_close_the_trace_that_calls_it() {
    let ids = ids(&live("inside"));
    assert!(ids.starts_with(&[1, 2, 3, 4, 5, 99]), "{ids:?}");
}

#[test]
fn another_thread_may_close_a_trace_that_waits() {
    let ids = ids(&live("outside"));
    assert!(ids.starts_with(&[1, 2, 3, 4, 5, 99]), "{ids:?}");
}
