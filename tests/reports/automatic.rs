//! Tests of commands without a file or a report name: the newest recording, and the report that
//! fits the trace.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use traceweir_format::kernel::hook;

use super::trace_builder::{TraceBuilder, WAITING};
use crate::golden::run_to_end;
use crate::util::{Run, weir, weir_command};

fn weir_in(folder: &Path, arguments: &[&str]) -> Run {
    run_to_end(weir_command(arguments).current_dir(folder))
}

/// Copies a trace to a name, with a modification time in seconds since 1970.
fn copy_trace(from: &Path, to: &Path, seconds: u64) {
    std::fs::copy(from, to).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().write(true).open(to).unwrap().set_modified(time).unwrap();
}

/// Builds a trace with samples, context switches and disk transfers.
fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_thread(100, 101);
    trace.add_sample(1000, 0, 101, 0x1000);
    trace.add_switch(2000, 0, (101, 0), WAITING, 0);
    trace.add_switch(3000, 0, (0, 101), WAITING, 0);
    trace.add_transfer(4000, hook::DISK_READ, (0, 101), 0xA, (4096, 10));
    trace
}

#[test]
fn commands_without_a_file_use_the_newest_recording() {
    let mut trace = build_trace();
    let path = trace.write();
    let folder = tempfile::tempdir().unwrap();
    for verb in ["report", "flame", "dump", "info", "stats"] {
        let run = weir_in(folder.path(), &[verb]).expect(2);
        assert!(run.stderr.contains("no weir-*.etl in the current folder"), "{verb}: {}", run.stderr);
        assert!(run.stderr.contains("weir record -- COMMAND"), "{verb}: {}", run.stderr);
    }
    copy_trace(&path, &folder.path().join("weir-20260101-000001.etl"), 2_000);
    std::fs::write(folder.path().join("weir-20260101-000002.etl"), "older, and not a trace").unwrap();
    let older = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
    let file = File::options().write(true).open(folder.path().join("weir-20260101-000002.etl")).unwrap();
    file.set_modified(older).unwrap();
    std::fs::write(folder.path().join("zzz.etl"), "newest, but not a recording").unwrap();
    for arguments in [
        &["dump"][..],
        &["info"],
        &["stats"],
        &["report"],
        &["report", "cpu"],
        &["report", "disk", "--top", "3"],
        &["flame", "--collapsed"],
        &["flame", "-o", "flame.html"],
    ] {
        let run = weir_in(folder.path(), arguments).expect(0);
        assert!(run.stderr.contains("using weir-20260101-000001.etl\n"), "{arguments:?}: {}", run.stderr);
    }
    assert!(folder.path().join("flame.html").exists());
    let named = weir_in(folder.path(), &["info", path.to_str().unwrap()]).expect(0);
    assert!(!named.stderr.contains("using"), "{}", named.stderr);
}

#[test]
fn report_is_chosen_by_the_content_of_the_trace() {
    let mut trace = build_trace();
    let path = trace.write();
    let run = weir(["report", path.to_str().unwrap()]).expect(0);
    assert!(run.stderr.contains("report cpu; the trace also has events for: sched, disk"), "{}", run.stderr);
    assert_eq!(run.text(), weir(["report", "cpu", path.to_str().unwrap()]).expect(0).text());
    let json = weir(["report", path.to_str().unwrap(), "--json", "--process", "app"]).expect(0).json();
    assert!(json.iter().any(|row| row["by"] == "function"));

    let mut disk = TraceBuilder::new();
    disk.add_transfer(4000, hook::DISK_READ, (0, 101), 0xA, (4096, 10));
    let run = weir(["report", disk.write().to_str().unwrap()]).expect(0);
    assert!(run.stderr.starts_with("report disk\n"), "{}", run.stderr);

    let mut empty = TraceBuilder::new();
    let run = weir(["report", empty.write().to_str().unwrap()]).expect(1);
    for part in ["no report:", "weir stats ", "weir dump ", "weir record --kernel cpu"] {
        assert!(run.stderr.contains(part), "no {part} in {}", run.stderr);
    }
}

#[test]
fn report_names_are_not_files() {
    let mut trace = build_trace();
    let path = trace.write();
    let folder = tempfile::tempdir().unwrap();
    copy_trace(&path, &folder.path().join("cpu"), 1_000);
    let run = weir_in(folder.path(), &["report", "cpu"]).expect(2);
    assert!(run.stderr.contains("no weir-*.etl"), "{}", run.stderr);
    let run = weir_in(folder.path(), &["report", "./cpu"]).expect(0);
    assert!(run.stderr.contains("report cpu; "), "{}", run.stderr);
    weir_in(folder.path(), &["report", "cpu", "cpu"]).expect(0);
    let run = weir_in(folder.path(), &["report", "cpuu"]).expect(2);
    assert!(run.stderr.contains("no report and no file called \"cpuu\""), "{}", run.stderr);
}
