//! Programs of known behaviour are reported as they behaved: exactly, or within the error that the
//! report states.

use serde_json::Value;

use crate::again::again;
use crate::dumped::{Event, Trace};
use crate::stage::{ATTEMPTS, Recording, Stage};

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("no number {name}: {row}"))
}

/// Returns the row of a function, by its own samples.
#[track_caller]
fn function<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    let row = rows.iter().find(|row| row["by"] == "function" && row["function"] == name);
    row.unwrap_or_else(|| panic!("{name} is not reported"))
}

fn cpu_report(recording: &Recording) -> Vec<Value> {
    recording.report("cpu", &["--process", &recording.truth.one("pid").to_string()])
}

#[test]
fn hot_function_is_reported_with_its_share_and_callers() {
    again(5, || {
        let Some(stage) = Stage::start() else { return };
        let recording = stage
            .record_complete(&["--kernel", "cpu", "--interval", "1ms"], &stage.workload(["hot", "1500"]));
        let rows = cpu_report(&recording);
        // The rest is the start of the program and its interruptions; a sample in the first
        // instructions of a function misses one frame.
        let spin = function(&rows, "spin");
        let (share, error) = (number(spin, "own_share"), number(spin, "own_error"));
        assert!(share + 3.0 * error >= 0.95, "{share} ± {error}");
        for caller in ["hot_leaf", "depth_3", "depth_2", "depth_1"] {
            let row = function(&rows, caller);
            let (all, own) = (number(row, "all_share"), number(row, "own_share"));
            assert!(all + 3.0 * number(row, "all_error") >= 0.95 && own < 0.05, "{row}");
        }
        // The number of samples matches the time that the program worked.
        let summary = rows.iter().find(|row| row["by"] == "summary").unwrap();
        let worked = recording.truth.one("worked") as f64 / number(summary, "interval_ns");
        let counted = number(spin, "own") / share;
        assert!((counted - worked).abs() <= worked * 0.1 + 10.0, "{counted} samples, {worked} were due");
        check_known_depth(&recording);
    });
}

/// Fails unless most stacks of the program have the hot function four calls below `main`.
#[track_caller]
fn check_known_depth(recording: &Recording) {
    let pid = recording.truth.one("pid").to_string();
    let mut dump: Vec<&std::ffi::OsStr> =
        ["dump", "--symbols", "--no-lines", "--pid", &pid].map(std::ffi::OsStr::new).to_vec();
    dump.push(recording.file.as_os_str());
    let text = crate::util::weir(dump).expect(0).text();
    let chain = ["spin", "hot_leaf", "depth_3", "depth_2", "depth_1", "hot", "main"];
    let lines: Vec<&str> = text.lines().collect();
    let is = |line: &&str, name: &str| {
        line.contains(&format!("!{name}+")) || line.trim_end().ends_with(&format!("!{name}"))
    };
    let complete = lines
        .windows(chain.len())
        .filter(|them| them.iter().zip(chain).all(|(line, name)| is(line, name)))
        .count();
    let begun = lines.iter().filter(|line| is(line, "spin") && !line.contains("InstructionPointer")).count();
    assert!(complete > 100 && complete * 10 >= begun * 9, "{complete} of {begun} stacks are complete");
}

#[test]
fn functions_with_a_three_to_one_share_are_reported_so() {
    again(5, || {
        let Some(stage) = Stage::start() else { return };
        let recording = stage
            .record_complete(&["--kernel", "cpu", "--interval", "1ms"], &stage.workload(["ratio", "3000"]));
        let rows = cpu_report(&recording);
        let (three, one) = (recording.truth.one("three") as f64, recording.truth.one("one") as f64);
        for (name, time) in [("three_parts", three), ("one_part", one)] {
            let row = function(&rows, name);
            // The program reads its clock between them: that time is in both measured times, and in
            // neither function.
            let (share, error, truth) =
                (number(row, "own_share"), number(row, "own_error"), time / (three + one));
            assert!(
                (share - truth).abs() <= 3.0 * error + 0.03,
                "{name}: {share} ± {error}, it worked {truth}"
            );
        }
    });
}

#[test]
fn reported_sleep_time_is_the_time_that_the_program_measured() {
    again(5, || {
        let Some(stage) = Stage::start() else { return };
        let command = stage.workload(["naps", "20", "10"]);
        let recording = stage.record_complete(&["--kernel", "process,thread,cswitch,dispatcher"], &command);
        let pid = recording.truth.one("pid");
        let rows = recording.report("sched", &["--thread", &pid.to_string()]);
        // Before it executed the program, the thread was a copy of its parent, and has a row for
        // that.
        let of_thread = rows.iter().filter(|row| row["by"] == "thread" && row["tid"] == pid);
        let row =
            of_thread.max_by(|one, other| number(one, "waiting_ns").total_cmp(&number(other, "waiting_ns")));
        let row = row.unwrap_or_else(|| panic!("the thread is not reported: {rows:?}"));
        let (waiting, ready) = (number(row, "waiting_ns"), number(row, "ready_ns"));
        let (slept, least) = (recording.truth.one("slept") as f64, 20.0 * 10e6);
        // The program measures from before it sleeps until it runs again. It may also wait to be
        // scheduled and for its file to be read, when it does not sleep.
        assert!(waiting >= least, "{waiting} ns, of {slept}");
        assert!(waiting + ready >= slept * 0.98, "{waiting} and {ready} ns, of {slept}");
        let naps = row["waits"]
            .as_array()
            .and_then(|all| all.iter().find(|wait| wait["reason"] == "UserRequest"))
            .expect("waits");
        assert!(
            number(naps, "times") >= 20.0 && number(naps, "ns") >= least && number(naps, "ns") <= slept,
            "{naps}"
        );
    });
}

#[test]
fn forks_and_bytes_are_counted_exactly() {
    again(5, || {
        let Some(stage) = Stage::start() else { return };
        let on_disk = stage.path("written");
        let command = stage.workload(["mixed".as_ref(), on_disk.as_os_str(), "10".as_ref()]);
        let options = ["--kernel", "process,thread,disk_io,disk_io_init,network_tcpip"];
        // On a busy disk, a kernel worker passes requests on and is recorded as their issuer: then
        // the test measures again.
        let is_complete = (0..ATTEMPTS).any(|_| {
            let recording = stage.record_complete(&options, &command);
            check_forks_and_traffic(&recording);
            let (leader, trace) = (recording.truth.one("leader"), recording.trace());
            let written: u64 = sum(&trace, "DiskIo/Write", ("IssuingThreadId", leader), "TransferSize");
            // Nothing is written to a disk if the folder is on none; the file system may add its
            // journal.
            written == 0 || written >= recording.truth.one("written")
        });
        assert!(is_complete, "the bytes written are not all reported");
    });
}

/// Sums `field` over the events named `name` whose field `key` has this value.
fn sum(trace: &Trace, name: &str, (key, value): (&str, u64), field: &str) -> u64 {
    trace.named(name).filter(|event| event.number(key) == value).map(|event| event.number(field)).sum()
}

#[track_caller]
fn check_forks_and_traffic(recording: &Recording) {
    let (trace, leader) = (recording.trace(), recording.truth.one("leader"));
    // 10 that end, 10 that run another program (recorded as an end and a start), and the partner.
    let children = |name| {
        let parent = move |event: &&Event| event.number("ParentId") == leader;
        trace.named(name).filter(parent).collect::<Vec<_>>()
    };
    assert_eq!((children("Process/Start").len(), children("Process/End").len()), (31, 31));
    let mut codes: Vec<u64> =
        children("Process/End").iter().map(|event| event.number("ExitStatus")).collect();
    codes.sort_unstable();
    // The first ten exit with their number, those that ran another program with 3; an exec has 0.
    let mut wanted: Vec<u64> = (0..10).chain([3; 10]).chain([0; 11]).collect();
    wanted.sort_unstable();
    assert_eq!(codes, wanted);
    let moved = |name| sum(&trace, name, ("PID", leader), "size");
    assert_eq!((moved("TcpIp/Send"), moved("TcpIp/Recv")), (40_000, 40_000));
    assert_eq!((moved("UdpIp/Send"), moved("UdpIp/Recv")), (10_000, 10_000));
}
