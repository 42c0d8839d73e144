//! Consumers of files: several files in time order, closing, and files that cannot be opened.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use traceweir::consumer::{Item, Trace, process};
use traceweir::{Guid, Status};
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::time::FileTime;

const START_TIME: i64 = 132_400_000_000_000_000;

/// Writes the file of a session that started `delay_seconds` seconds after the first, with events
/// of two processors at these times in units of 100 ns.
fn write_file(folder: &Path, name: &str, delay_seconds: i64, times: &[i64]) -> PathBuf {
    let start_time = FileTime(START_TIME + delay_seconds * 10_000_000);
    // The session's clock has the value 77 at the start of the session.
    let options = Options { buffer_size: 4096, processors: 2, start_time, anchor: 77, ..Default::default() };
    let mut writer = Writer::create(Vec::new(), options).unwrap();
    for (n, &time) in times.iter().enumerate() {
        let event = EventHeader { time: time + 77, provider: Guid::NULL, ..EventHeader::default() };
        let mut record = Vec::new();
        event.encode(b"payload", &mut record).unwrap();
        record.resize(record.len().next_multiple_of(8), 0);
        writer.write_record(u16::try_from(n % 2).unwrap(), &record).unwrap();
    }
    let bytes = writer.finish(Summary { end_time: FileTime(START_TIME + 1), ..Default::default() }).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Returns the trace and the time since [`START_TIME`] of each event except header events (hook
/// id 0).
fn read_wall_times(traces: Vec<Trace>) -> Vec<(usize, i64)> {
    let mut events = Vec::new();
    process(traces, |item| {
        match item {
            Item::Event(event) if event.record.hook() == Some(0) => {}
            Item::Event(event) => events.push((event.trace, event.time.0 - START_TIME)),
            other => panic!("{other:?}"),
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    events
}

fn open_status(path: &Path) -> Status {
    Trace::open(path).unwrap_err().status()
}

#[test]
fn several_files_are_read_in_wall_time_order() {
    let folder = tempfile::tempdir().unwrap();
    let first_times: Vec<i64> = (0..2000).map(|n| n * 10_000).collect();
    let second_times: Vec<i64> = (0..2000).map(|n| n * 7_000).collect();
    let paths = [
        write_file(folder.path(), "a.etl", 0, &first_times),
        write_file(folder.path(), "b.etl", 1, &second_times),
    ];
    let events = read_wall_times(paths.iter().map(|path| Trace::open(path).unwrap()).collect());
    let mut expected: Vec<(usize, i64)> = first_times.iter().map(|&time| (0, time)).collect();
    expected.extend(second_times.iter().map(|&time| (1, time + 10_000_000)));
    expected.sort_by_key(|&(trace, time)| (time, trace));
    assert_eq!(events, expected);
}

#[test]
fn single_file_has_its_header_and_all_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Trace::open(write_file(folder.path(), "a.etl", 0, &[1, 2, 3])).unwrap();
    assert_eq!(trace.header().processors, 2);
    assert_eq!(read_wall_times(vec![trace]), [(0, 1), (0, 2), (0, 3)]);
}

#[test]
fn closed_file_ends_while_the_others_continue() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [
        write_file(folder.path(), "a.etl", 0, &[10, 30, 50]),
        write_file(folder.path(), "b.etl", 0, &[20, 40, 60]),
    ];
    let traces: Vec<Trace> = paths.iter().map(|path| Trace::open(path).unwrap()).collect();
    let closer = traces[0].closer();
    let mut seen = Vec::new();
    process(traces, |item| {
        if let Item::Event(event) = item {
            let time = event.time.0 - START_TIME;
            seen.extend((event.record.hook().is_none()).then_some(time));
            if time == 20 {
                closer.close();
            }
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen, [10, 20, 40, 60]);
}

#[test]
fn callback_that_breaks_ends_processing() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Trace::open(write_file(folder.path(), "a.etl", 0, &[1, 2, 3])).unwrap();
    let mut count = 0;
    process(vec![trace], |_| {
        count += 1;
        ControlFlow::Break(())
    })
    .unwrap();
    assert_eq!(count, 1);
}

#[test]
fn file_that_cannot_be_opened_has_the_documented_status() {
    let folder = tempfile::tempdir().unwrap();
    let not_a_trace = folder.path().join("plain.etl");
    std::fs::write(&not_a_trace, "not a trace, despite its name").unwrap();
    assert_eq!(open_status(&folder.path().join("none.etl")), Status::ERROR_FILE_NOT_FOUND);
    assert_eq!(open_status(Path::new("none-such.etl")), Status::ERROR_FILE_NOT_FOUND);
    assert_eq!(open_status(&folder.path().join("none/a.etl")), Status::ERROR_PATH_NOT_FOUND);
    assert_eq!(open_status(&not_a_trace.join("a.etl")), Status::ERROR_PATH_NOT_FOUND);
    assert_eq!(open_status(folder.path()), Status::ERROR_BAD_PATHNAME);
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    // The call must not wait for a writer of the pipe.
    assert_eq!(open_status(&pipe), Status::ERROR_BAD_PATHNAME);
    assert_eq!(open_status(&not_a_trace), Status::ERROR_FILE_CORRUPT);
}

#[test]
fn one_to_sixty_four_traces_can_be_processed_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_file(folder.path(), "a.etl", 0, &[1]);
    let open_traces = |n: usize| (0..n).map(|_| Trace::open(&path).unwrap()).collect::<Vec<_>>();
    let process_status =
        |traces| process(traces, |_| ControlFlow::Continue(())).map_err(|error| error.status());
    assert_eq!(process_status(open_traces(0)), Err(Status::ERROR_BAD_LENGTH));
    assert_eq!(process_status(open_traces(65)), Err(Status::ERROR_BAD_LENGTH));
    assert_eq!(process_status(open_traces(64)), Ok(()));
}
