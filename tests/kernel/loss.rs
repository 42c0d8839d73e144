//! What the kernel finds no room for is counted, told for each processor, and leaves a sound file.
//!
//! A daemon that is stopped reads nothing: the rings of its session run over while the workload switches to and fro.

use std::path::Path;

use rustix::process::Signal;

use crate::again::again;
use crate::dumped::{Trace, number};
use crate::stage::Stage;
use crate::util::daemon_process::DaemonProcess;
use crate::util::{Process, Run, eventually, weir, weir_command};

/// Memory of the session, which rings have a share of: the least they can be.
const SMALL: [&str; 6] = ["--kernel", "cswitch", "--buffer-size", "64", "--max-buffers", "16"];
/// Many more switches than such a ring has room for.
const ROUNDS: u64 = 40_000;

/// `weir`, talking to the daemon of this folder.
fn at(folder: &Path, args: &[&str]) -> Run {
    let out = weir_command(args).env("TRACEWEIR_RUNTIME_DIR", folder).output().expect("weir starts");
    let (stdout, stderr) = (out.stdout, String::from_utf8_lossy(&out.stderr).into_owned());
    Run { code: out.status.code().unwrap_or(-1), stdout, stderr }
}

#[test]
fn rings_that_run_over_are_counted_for_each_processor_and_told() {
    again(5, || {
        let Some(stage) = Stage::set() else { return };
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let daemon = DaemonProcess::start(&folder.path().join("run"), std::fs::File::create(&log).unwrap());
        let (run, file) = (folder.path().join("run"), folder.path().join("a.etl"));
        let name = file.to_str().unwrap();
        at(&run, &[&["start", "small", "-o", name], &SMALL[..]].concat()).expect(0);
        overrun(&stage, &daemon);
        let asked = eventually("news of the losses", || {
            let told = at(&run, &["query", "small", "--json"]).expect(0).json().remove(0);
            let lost: Vec<u64> =
                told["kernel"]["lost_by_processor"].as_array()?.iter().filter_map(number).collect();
            (lost.iter().sum::<u64>() > 0).then_some(lost)
        });
        let stopped = at(&run, &["stop", "small"]).expect(4);
        assert!(stopped.stderr.contains("at most 16 of 64 KiB (--max-buffers,"), "{}", stopped.stderr);
        let said = std::fs::read_to_string(&log).unwrap();
        for (cpu, _) in asked.iter().enumerate().filter(|(_, lost)| **lost > 0) {
            assert!(said.contains(&format!("kernel events of processor {cpu} found no room")), "{said}");
        }
        is_sound_and_counts(&file, asked.iter().sum());
    });
}

/// The header counts at least what was told while the session ran, and there is enough missing for it.
#[track_caller]
fn is_sound_and_counts(file: &Path, least: u64) {
    let checked = weir(["check".as_ref(), file.as_os_str()]).expect(4);
    assert!(checked.text().contains("sound") || checked.stderr.contains("sound"), "{}", checked.stderr);
    let trace = Trace::read(file, &[]);
    let header = trace.named("EventTrace/Header").next().expect("a header");
    let lost = header.number("EventsLost");
    assert!(lost >= least.max(1), "{lost} in the file, {least} were told");
    let there = trace.named("Thread/CSwitch").count() as u64;
    assert!(there + lost >= 2 * ROUNDS, "{there} switches and {lost} lost, of {}", 2 * ROUNDS);
    let times: Vec<f64> = trace.0.iter().map(|event| event.ms).collect();
    assert!(times.is_sorted());
}

#[test]
fn a_recording_that_lost_events_says_so_by_its_status() {
    again(5, || {
        let Some(stage) = Stage::set() else { return };
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let daemon = DaemonProcess::start(&run, std::process::Stdio::null());
        let file = folder.path().join("a.etl");
        let mut record = weir_command([&["record", "-o", file.to_str().unwrap()], &SMALL[..]].concat());
        record.env("TRACEWEIR_RUNTIME_DIR", &run).stderr(std::process::Stdio::piped());
        let recording = Process::start(&mut record);
        eventually("the session", || {
            let sessions = at(&run, &["list", "--json"]).expect(0).json();
            sessions
                .iter()
                .any(|it| it["name"].as_str().is_some_and(|name| name.starts_with("weir-record-")))
                .then_some(())
        });
        overrun(&stage, &daemon);
        recording.signal(Signal::INT);
        let recorded = recording.finish().expect(4);
        assert!(recorded.stderr.contains("warning: lost"), "{}", recorded.stderr);
        is_sound_and_counts(&file, 1);
    });
}

/// Has many more switches happen than there is room for, while the daemon stands still.
fn overrun(stage: &Stage, daemon: &DaemonProcess) {
    daemon.signal(Signal::STOP);
    let workload = stage.workload(["switches".to_owned(), ROUNDS.to_string()]);
    let done = std::process::Command::new(&workload[0]).args(&workload[1..]).output();
    daemon.signal(Signal::CONT);
    assert!(done.unwrap().status.success());
}
