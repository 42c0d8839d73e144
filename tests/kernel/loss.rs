//! Tests that kernel events that do not fit into a ring are counted and reported for each
//! processor, and that the file stays sound.
//!
//! A stopped daemon reads nothing. So the rings of its session overflow while two processes of the
//! workload wake each other again and again.

use std::path::Path;

use rustix::process::Signal;

use crate::dumped::{Trace, parse_number};
use crate::recordings::Measurement;
use crate::retry::retry_alternately_with_busy_processors;
use crate::util::daemon_process::DaemonProcess;
use crate::util::{Process, Run, eventually, weir, weir_command};

/// Options that give a session little memory. The size of its rings depends on this memory.
const SMALL_SESSION: [&str; 6] = ["--kernel", "cswitch", "--buffer-size", "64", "--max-buffers", "16"];
/// Rounds of the workload, each with two switches: many more than a ring of a small session holds.
const ROUNDS: u64 = 40_000;

/// Runs `weir` with the daemon of this folder.
fn weir_in(folder: &Path, args: &[&str]) -> Run {
    let mut command = weir_command(args);
    let output = command.env("TRACEWEIR_RUNTIME_DIR", folder).output().expect("weir cannot be started");
    let (stdout, stderr) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    Run { code: output.status.code().unwrap_or(-1), stdout, stderr }
}

#[test]
fn ring_overflows_are_counted_and_reported_for_each_processor() {
    retry_alternately_with_busy_processors(5, || {
        // Only the workload of the measurement is used. The start also keeps other tests from
        // measuring, and skips this test if kernel events are not available.
        let Some(measurement) = Measurement::start() else { return };
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let daemon = DaemonProcess::start(&folder.path().join("run"), std::fs::File::create(&log).unwrap());
        let (run, file) = (folder.path().join("run"), folder.path().join("a.etl"));
        let name = file.to_str().unwrap();
        weir_in(&run, &[&["start", "small", "-o", name], &SMALL_SESSION[..]].concat()).expect(0);
        overflow_rings(&measurement, &daemon);
        let lost_by_processor = eventually("the query reports losses", || {
            let session = weir_in(&run, &["query", "small", "--json"]).expect(0).json().remove(0);
            let lost: Vec<u64> =
                session["kernel"]["lost_by_processor"].as_array()?.iter().filter_map(parse_number).collect();
            (lost.iter().sum::<u64>() > 0).then_some(lost)
        });
        let stopped = weir_in(&run, &["stop", "small"]).expect(4);
        // The hint names the buffers that the session had.
        assert!(stopped.stderr.contains("at most 16 of 64 KiB (--max-buffers,"), "{}", stopped.stderr);
        let log_text = std::fs::read_to_string(&log).unwrap();
        for (cpu, _) in lost_by_processor.iter().enumerate().filter(|(_, lost)| **lost > 0) {
            assert!(
                log_text.contains(&format!("kernel events of processor {cpu} found no room")),
                "{log_text}"
            );
        }
        check_file_and_losses(&file, lost_by_processor.iter().sum());
    });
}

/// Fails unless the file is sound and in time order, its header counts at least `min_lost` lost
/// events, and each switch of the workload is either in the file or counted as lost.
#[track_caller]
fn check_file_and_losses(file: &Path, min_lost: u64) {
    let checked = weir(["check".as_ref(), "--strict".as_ref(), file.as_os_str()]).expect(4);
    assert!(checked.stderr.contains(": sound: "), "{}", checked.stderr);
    let trace = Trace::read(file, &[]);
    let header = trace.events_named("EventTrace/Header").next().expect("the file has no header event");
    let lost = header.number("EventsLost");
    assert!(lost >= min_lost.max(1), "the file counts {lost} lost events, but {min_lost} were reported");
    let recorded = trace.events_named("Thread/CSwitch").count() as u64;
    assert!(recorded + lost >= 2 * ROUNDS, "{recorded} switches recorded and {lost} lost, of {}", 2 * ROUNDS);
    let times: Vec<f64> = trace.events.iter().map(|event| event.time_ms).collect();
    assert!(times.is_sorted(), "events are not in time order");
}

#[test]
fn recording_with_lost_events_exits_with_status_4() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let daemon = DaemonProcess::start(&run, std::process::Stdio::null());
        let file = folder.path().join("a.etl");
        let mut record =
            weir_command([&["record", "-o", file.to_str().unwrap()], &SMALL_SESSION[..]].concat());
        record.env("TRACEWEIR_RUNTIME_DIR", &run).stderr(std::process::Stdio::piped());
        let recording = Process::start(&mut record);
        eventually("the session exists", || {
            let sessions = weir_in(&run, &["list", "--json"]).expect(0).json();
            sessions
                .iter()
                .any(|session| session["name"].as_str().is_some_and(|name| name.starts_with("weir-record-")))
                .then_some(())
        });
        overflow_rings(&measurement, &daemon);
        recording.signal(Signal::INT);
        let recorded = recording.finish().expect(4);
        assert!(recorded.stderr.contains("warning: lost"), "{}", recorded.stderr);
        check_file_and_losses(&file, 1);
    });
}

/// Causes many more switches than the rings hold, while the daemon is stopped.
fn overflow_rings(measurement: &Measurement, daemon: &DaemonProcess) {
    daemon.signal(Signal::STOP);
    let workload = measurement.workload(["switches".to_owned(), ROUNDS.to_string()]);
    let output = std::process::Command::new(&workload[0]).args(&workload[1..]).output();
    daemon.signal(Signal::CONT);
    assert!(output.unwrap().status.success(), "the workload failed");
}
