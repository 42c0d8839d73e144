//! Consumers in C: the events that their callbacks receive from files and live sessions, compared
//! with the events of the Rust reader, and the statuses of calls.

mod schemas;
#[path = "../support/mod.rs"]
mod support;
mod wpp;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{
    C, CPP, Link, ProgramFolder, SANITIZER_FLAGS, TestDaemon, checked_rows, crate_path, expect_success,
    has_program, has_sanitizers,
};
use traceweir::Guid;
use traceweir::controller::{EnableCode, EnableParams, SessionConfig, SessionRef};
use traceweir_format::etl::{Options, Summary, Trace, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::{Item, MAX_ITEMS};
use traceweir_format::header::{Family, Record, message};
use traceweir_format::spec::event::{
    CHANNEL_TRACELOGGING, EVENT_HEADER_FLAG_32_BIT_HEADER, EVENT_HEADER_FLAG_64_BIT_HEADER,
    EVENT_HEADER_FLAG_CLASSIC_HEADER, EVENT_HEADER_FLAG_DECODE_GUID, EVENT_HEADER_FLAG_EXTENDED_INFO,
    EVENT_HEADER_FLAG_NO_CPUTIME, EVENT_HEADER_FLAG_STRING_ONLY, EVENT_HEADER_FLAG_TRACE_MESSAGE, ExtType,
};
use traceweir_format::spec::session::EVENT_TRACE_REAL_TIME_MODE;
use traceweir_format::time::FileTime;

const PROVIDER: Guid = Guid::from_u128(0xC0FF_EE0C_1111_2222_0102_0304_0506_0708);

fn source_path(name: &str) -> PathBuf {
    crate_path("tests/consumer").join(name)
}

fn build_program(programs: &ProgramFolder, name: &str, flags: &[&str]) -> PathBuf {
    programs.build("gcc", &source_path(name), &[flags, &["-pthread"]].concat(), Link::Shared)
}

/// Returns every trace of the fixtures.
fn list_fixtures() -> Vec<PathBuf> {
    let folder = crate_path("../../fixtures/etl");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().canonicalize().unwrap())
        .collect();
    files.sort();
    assert!(files.len() >= 8, "{files:?}");
    files
}

fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// EVENT_HEADER_PROPERTY_XML.
const PROPERTY_XML: u16 = 1;
/// EVENT_HEADER_PROPERTY_LEGACY_EVENTLOG.
const PROPERTY_LEGACY_EVENTLOG: u16 = 4;
/// The first state of the hash FNV-1a.
const HASH_START: u64 = 0xCBF2_9CE4_8422_2325;

/// Returns the line that `print_record` of the C programs prints for an event.
fn expected_line(record: &Record<'_>, stamp: i64) -> String {
    let descriptor = record.descriptor();
    let mut items: Vec<(u16, Vec<u8>)> =
        record.items().map(|item| (item.kind.0, item.data.to_vec())).collect();
    if let Some(instance) = record.instance() {
        let ids = [instance.id.to_le_bytes(), instance.parent_id.to_le_bytes()].concat();
        items.push((ExtType::INSTANCE_INFO.0, [ids, instance.parent_class.to_bytes().to_vec()].concat()));
    }
    if record.family() == Family::Message
        && let Some(sequence) = message::sequence(record.bytes())
    {
        items.push((ExtType::INSTANCE_INFO.0, [&sequence.to_le_bytes()[..], &[0; 20]].concat()));
    }
    if !record.pmc_counters().is_empty() {
        items.push((ExtType::PMC_COUNTERS.0, record.pmc_counters().to_vec()));
    }
    let has_item = |kind: ExtType| items.iter().any(|(item, _)| *item == kind.0);
    let mut flags = record.flags() & EVENT_HEADER_FLAG_STRING_ONLY;
    let is_32_bit = record.pointer_size() == 4;
    for (flag, is_set) in [
        (EVENT_HEADER_FLAG_32_BIT_HEADER, is_32_bit),
        (EVENT_HEADER_FLAG_64_BIT_HEADER, !is_32_bit),
        (EVENT_HEADER_FLAG_EXTENDED_INFO, !items.is_empty()),
        (EVENT_HEADER_FLAG_NO_CPUTIME, record.cpu_times().unwrap_or((0, 0)) == (0, 0)),
        (EVENT_HEADER_FLAG_DECODE_GUID, has_item(ExtType::CONTROL_GUID)),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    let property = match record.family() {
        Family::Event
            if descriptor.channel == CHANNEL_TRACELOGGING
                || has_item(ExtType::EVENT_SCHEMA_TL)
                || flags & EVENT_HEADER_FLAG_STRING_ONLY != 0 =>
        {
            0
        }
        Family::Event => PROPERTY_XML,
        Family::Message => {
            flags |= EVENT_HEADER_FLAG_TRACE_MESSAGE;
            0
        }
        Family::Other(_) => 0,
        _ => {
            flags |= EVENT_HEADER_FLAG_CLASSIC_HEADER;
            PROPERTY_LEGACY_EVENTLOG
        }
    };
    let item_hash =
        items.iter().fold(HASH_START, |h, (kind, data)| hash_bytes(hash_bytes(h, &kind.to_le_bytes()), data));
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
        record.activity().map_or(0, |id| id.data1),
        items.len(),
        record.payload().len(),
        hash_bytes(HASH_START, record.payload()),
    )
}

/// Returns the lines for the events that the Rust reader finds in a file.
fn expected_lines(
    file: &Path,
    format_line: impl Fn(&Record<'_>, i64) -> String,
    has_raw_stamps: bool,
) -> Vec<String> {
    let trace = Trace::open(std::fs::File::open(file).unwrap()).unwrap();
    let mut events = trace.events();
    let mut lines = Vec::new();
    while let Some(record) = events.next().unwrap() {
        let stamp = if has_raw_stamps { record.time() } else { trace.clock().file_time(record.time()).0 };
        lines.push(format_line(&record, stamp));
    }
    lines
}

fn run_program(program: &Path, arguments: &[&str], files: &[&Path]) -> Vec<String> {
    let output = expect_success(Command::new(program).args(arguments).args(files));
    output.lines().map(str::to_owned).collect()
}

#[track_caller]
fn assert_same_lines(printed: &[String], expected: &[String], label: &Path) {
    let differs = printed.iter().zip(expected).position(|(printed, expected)| printed != expected);
    if let Some(at) = differs {
        panic!("{}: event {at}\n{}\nis not\n{}", label.display(), printed[at], expected[at]);
    }
    assert_eq!(printed.len(), expected.len(), "{}", label.display());
}

#[test]
fn event_records_match_the_file() {
    let programs = ProgramFolder::new();
    let dump = build_program(&programs, "dump.c", &[]);
    for file in list_fixtures() {
        assert_same_lines(
            &run_program(&dump, &["records"], &[&file]),
            &expected_lines(&file, expected_line, false),
            &file,
        );
        assert_same_lines(
            &run_program(&dump, &["raw"], &[&file]),
            &expected_lines(&file, expected_line, true),
            &file,
        );
    }
}

/// Writes a file with events of these stamps. The session started at `start_time`, when its counter
/// (10⁹ Hz) had the value `anchor`.
fn write_stamps(file: &Path, anchor: i64, start_time: FileTime, stamps: &[i64]) {
    let options = Options { anchor, start_time, perf_freq: 1_000_000_000, ..Options::default() };
    let mut writer = Writer::create(Vec::new(), options).unwrap();
    for &time in stamps {
        let mut record = Vec::new();
        EventHeader { time, provider: PROVIDER, ..EventHeader::default() }.encode(&[], &mut record).unwrap();
        writer.write(0, time, &record).unwrap();
    }
    std::fs::write(file, writer.finish(Summary::default()).unwrap()).unwrap();
}

#[test]
fn files_of_one_counter_are_merged_by_raw_stamps() {
    const START: i64 = 132_400_000_000_000_000;
    const OTHER: i64 = 3_600_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let paths = ["first.etl", "second.etl", "other.etl"].map(|name| folder.path().join(name));
    // The second session started 1,000,050 ns after the first. Rounded to 100 ns, its start is
    // 50 ns late, so that its events seem to be later than those of the first file.
    write_stamps(&paths[0], 5_000, FileTime(START), &[6_000, 1_005_060, 1_005_080, 1_005_240]);
    write_stamps(&paths[1], 1_005_050, FileTime(START + 10_001), &[1_005_051, 1_005_070, 1_005_200]);
    // A file of another machine, whose counter is an hour ahead: wall times determine its place.
    write_stamps(&paths[2], OTHER, FileTime(START + 5_000), &[OTHER + 1, OTHER + 599_900]);
    let programs = ProgramFolder::new();
    let dump = build_program(&programs, "dump.c", &[]);
    let read_stamps = |form: &str| -> Vec<i64> {
        let files: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let lines = run_program(&dump, &[form], &files);
        let events = lines.iter().filter(|line| line.contains(" c0ffee0c "));
        events.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
    };
    let raw_stamps = read_stamps("raw");
    assert_eq!(raw_stamps[2..8], [1_005_051, 1_005_060, 1_005_070, 1_005_080, 1_005_200, 1_005_240]);
    assert_eq!([raw_stamps[0], raw_stamps[1], raw_stamps[8]], [6_000, OTHER + 1, OTHER + 599_900]);
    let wall_times: Vec<i64> = read_stamps("records").iter().map(|time| time - START).collect();
    assert_eq!(wall_times, [10, 5_000, 10_000, 10_000, 10_001, 10_001, 10_002, 10_002, 10_999]);
}

#[test]
fn items_of_unknown_types_arrive_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("items.etl"), [7; 40]);
    let make_item = |(kind, length): (u16, usize)| Item { kind: ExtType(kind), data: &data[..length] };
    let options = Options { anchor: 1, ..Options::default() };
    let mut writer = Writer::create(Vec::new(), options).unwrap();
    // Events with one item, with three, and with the most that an event may have.
    let most_items: Vec<(u16, usize)> = (0..).map(|at| (19 + at, usize::from(at))).take(MAX_ITEMS).collect();
    for (time, items) in (1_i64..).zip([&[(0x7F, 5)][..], &[(19, 0), (0x7F, 40), (0xFFFF, 1)], &most_items]) {
        let (items, mut record) = (items.iter().copied().map(make_item).collect::<Vec<_>>(), Vec::new());
        let header = EventHeader { time, provider: PROVIDER, items: &items, ..EventHeader::default() };
        header.encode(b"payload", &mut record).unwrap();
        writer.write(0, time, &record).unwrap();
    }
    std::fs::write(&file, writer.finish(Summary::default()).unwrap()).unwrap();
    let programs = ProgramFolder::new();
    let lines = run_program(&build_program(&programs, "dump.c", &[]), &["records"], &[&file]);
    assert_same_lines(&lines, &expected_lines(&file, expected_line, false), &file);
    for count in [1, 3, MAX_ITEMS] {
        assert!(lines.iter().any(|line| line.contains(&format!("items {count} "))), "{count}: {lines:#?}");
    }
}

#[test]
fn older_callback_receives_the_same_events() {
    let programs = ProgramFolder::new();
    let dump = build_program(&programs, "dump.c", &[]);
    let classic_line = |record: &Record<'_>, stamp: i64| {
        let descriptor = record.descriptor();
        format!(
            "{stamp} {:08x} {} {} {} ids {} {} payload {} {:016x}",
            record.provider().data1,
            descriptor.version,
            descriptor.level,
            descriptor.opcode,
            record.thread_id(),
            record.process_id(),
            record.payload().len(),
            hash_bytes(HASH_START, record.payload())
        )
    };
    for file in list_fixtures() {
        assert_same_lines(
            &run_program(&dump, &["classic"], &[&file]),
            &expected_lines(&file, classic_line, false),
            &file,
        );
    }
}

/// The class of events that report losses, as `print_record` prints it.
const LOST_EVENT_CLASS: &str = " 6a399ae0 ";
/// The part of a line that identifies a report of lost events: class, id, version, level, opcode
/// (32: lost event), task and keyword.
const LOST_EVENTS: &str = " 6a399ae0 0 0 0 32 0 0 ";

fn buffer_count(file: &Path) -> usize {
    Trace::open(std::fs::File::open(file).unwrap()).unwrap().buffers().len()
}

#[test]
fn buffer_callback_is_called_once_for_each_buffer() {
    let programs = ProgramFolder::new();
    let dump = build_program(&programs, "dump.c", &[]);
    for file in list_fixtures() {
        let buffers = buffer_count(&file);
        let mut expected = expected_lines(&file, expected_line, false);
        expected.push(format!("buffers {buffers}"));
        assert_same_lines(&run_program(&dump, &["buffers"], &[&file]), &expected, &file);
    }
}

#[test]
fn several_files_are_merged_by_time_and_cut_to_a_window() {
    let programs = ProgramFolder::new();
    let dump = build_program(&programs, "dump.c", &[]);
    let files = list_fixtures();
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let mut expected: Vec<String> =
        files.iter().flat_map(|file| expected_lines(file, expected_line, false)).collect();
    let parse_time = |line: &String| line.split(' ').next().unwrap().parse::<i64>().unwrap();
    let printed = run_program(&dump, &["buffers"], &paths[..1]);
    assert!(printed.len() > 1);
    let mut printed = run_program(&dump, &["records"], &paths);
    assert!(
        printed.windows(2).filter(|pair| parse_time(&pair[0]) > parse_time(&pair[1])).count()
            < printed.len() / 100
    );
    printed.sort();
    expected.sort();
    assert_same_lines(&printed, &expected, Path::new("all"));
    // The window includes both ends.
    let mut times: Vec<i64> = expected.iter().map(parse_time).collect();
    times.sort_unstable();
    let (from, to) = (times[times.len() / 4], times[times.len() / 2]);
    expected.retain(|line| (from..=to).contains(&parse_time(line)));
    let mut inside_window = run_program(&dump, &["window", &from.to_string(), &to.to_string()], &paths);
    inside_window.sort();
    assert_same_lines(&inside_window, &expected, Path::new("window"));
}

#[test]
fn kept_buffers_can_be_added_to_a_stream() {
    let programs = ProgramFolder::new();
    let dump = build_program(&programs, "dump.c", &[]);
    for file in list_fixtures() {
        let mut expected = expected_lines(&file, expected_line, false);
        let mut printed = run_program(&dump, &["relay", &buffer_count(&file).to_string()], &[&file]);
        // A stream reports an unreadable record as a loss.
        let losses = printed.iter().filter(|line| line.contains(LOST_EVENTS)).count();
        assert_eq!(losses, usize::from(file.ends_with("crashed.etl")), "{}", file.display());
        printed.retain(|line| !line.contains(LOST_EVENT_CLASS));
        printed.sort();
        expected.sort();
        assert_same_lines(&printed, &expected, &file);
    }
}

/// Creates a folder with the files that `table.c` opens: a trace, an empty file, and a text file.
fn make_table_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(crate_path("../../fixtures/etl/manifest.etl"), folder.path().join("manifest.etl")).unwrap();
    std::fs::write(folder.path().join("empty"), b"").unwrap();
    std::fs::write(folder.path().join("text"), vec![b'x'; 100_000]).unwrap();
    folder
}

fn run_table(program: &Path, wrapper: &[&str]) {
    let folder = make_table_folder();
    let mut arguments: Vec<&str> = wrapper.to_vec();
    let name = program.to_str().unwrap();
    arguments.push(name);
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]).arg(folder.path()).current_dir(folder.path());
    let output = expect_success(command.env("TRACEWEIR_RUNTIME_DIR", folder.path()));
    assert!(checked_rows(&output) > 280, "{output}");
}

#[test]
fn calls_return_the_published_status() {
    let programs = ProgramFolder::new();
    for compiler in C.compilers() {
        run_table(&programs.build(compiler, &source_path("table.c"), &["-pthread"], Link::Shared), &[]);
    }
    for compiler in CPP.compilers() {
        let flags = ["-pthread", "-x", "c++", "-Wno-missing-field-initializers"];
        run_table(&programs.build(compiler, &source_path("table.c"), &flags, Link::Shared), &[]);
    }
}

#[test]
fn sanitizers_report_no_error() {
    if !has_sanitizers("gcc") {
        return;
    }
    let programs = ProgramFolder::new();
    run_table(&build_program(&programs, "table.c", &SANITIZER_FLAGS), &[]);
    let dump = build_program(&programs, "dump.c", &SANITIZER_FLAGS);
    for file in list_fixtures() {
        assert_same_lines(
            &run_program(&dump, &["buffers"], &[&file])[..1],
            &expected_lines(&file, expected_line, false)[..1],
            &file,
        );
        run_program(&dump, &["relay", &buffer_count(&file).to_string()], &[&file]);
    }
}

#[test]
fn valgrind_reports_no_error() {
    if has_program("valgrind") {
        let programs = ProgramFolder::new();
        let leak_flags =
            ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"];
        let wrapper = [&["valgrind", "--quiet", "--error-exitcode=9"], &leak_flags[..]].concat();
        run_table(&build_program(&programs, "table.c", &[]), &wrapper);
    }
}

/// Runs a live session with a consumer in C, and returns the lines that the consumer printed for
/// the events. With the ending `stop` the session stops; otherwise the consumer closes its trace,
/// in a callback (`inside`) or on another thread (`outside`).
fn run_live_session(ending: &str) -> Vec<String> {
    let programs = ProgramFolder::new();
    let (consumer, writer) =
        (build_program(&programs, "live.c", &[]), build_program(&programs, "writer.c", &[]));
    let daemon = TestDaemon::new();
    let mut controller = daemon.controller();
    let config = SessionConfig {
        name: "live".to_owned(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
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
    let mut remaining_output = String::new();
    output.read_to_string(&mut remaining_output).unwrap();
    assert!(child.wait().unwrap().success(), "{remaining_output}");
    let mut lines: Vec<String> = remaining_output.lines().map(str::to_owned).collect();
    assert_eq!(lines.pop().as_deref(), Some("done"));
    lines
}

/// Returns the ids of printed events.
fn event_ids(lines: &[String]) -> Vec<u16> {
    lines.iter().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect()
}

#[test]
fn live_session_is_delivered_until_it_stops() {
    let lines = run_live_session("stop");
    assert_eq!(event_ids(&lines), [1, 2, 3, 4, 5, 99, 6, 7, 8, 9, 10]);
    for line in lines {
        assert!(line.contains(" c0ffee0c "), "{line}");
        // Version, level, opcode, task and keyword; then flags 0x50: 64-bit header, no CPU times.
        assert!(line.contains(" 1 4 7 3 16 cpu ") && line.contains(" payload 2 "), "{line}");
        assert!(line.contains(" flags 50 property 1 "), "{line}");
    }
}

#[test]
fn callback_can_close_its_own_trace() {
    let ids = event_ids(&run_live_session("inside"));
    assert!(ids.starts_with(&[1, 2, 3, 4, 5, 99]), "{ids:?}");
}

#[test]
fn another_thread_can_close_a_waiting_trace() {
    let ids = event_ids(&run_live_session("outside"));
    assert!(ids.starts_with(&[1, 2, 3, 4, 5, 99]), "{ids:?}");
}
