//! Tests that reports on programs of known behaviour are exact, or correct within the error that
//! the report states.

use serde_json::Value;

use crate::dumped::{Event, Trace};
use crate::recordings::{MAX_ATTEMPTS, Measurement, Recording};
use crate::retry::retry_alternately_with_busy_processors;

fn float_field(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("no number {name}: {row}"))
}

#[track_caller]
fn find_function_row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    let row = rows.iter().find(|row| row["by"] == "function" && row["function"] == name);
    row.unwrap_or_else(|| panic!("the report has no row of {name}"))
}

fn cpu_report(recording: &Recording) -> Vec<Value> {
    recording.report("cpu", &["--process", &recording.output.number("pid").to_string()])
}

#[test]
fn hot_function_is_reported_with_its_share_and_callers() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let recording = measurement.record_complete(
            &["--kernel", "cpu", "--interval", "1ms"],
            &measurement.workload(["hot", "1500"]),
        );
        let rows = cpu_report(&recording);
        // Some samples are from the start of the program or from interrupts. A sample in the first
        // instructions of a function lacks one frame.
        let spin = find_function_row(&rows, "spin");
        let (share, error) = (float_field(spin, "own_share"), float_field(spin, "own_error"));
        assert!(share + 3.0 * error >= 0.95, "the share of spin is {share} ± {error}");
        for caller in ["hot_leaf", "depth_3", "depth_2", "depth_1"] {
            let row = find_function_row(&rows, caller);
            let (all_share, own_share) = (float_field(row, "all_share"), float_field(row, "own_share"));
            let error = float_field(row, "all_error");
            assert!(all_share + 3.0 * error >= 0.95 && own_share < 0.05, "wrong shares: {row}");
        }
        // The number of samples matches the time that the program worked.
        let summary = rows.iter().find(|row| row["by"] == "summary").unwrap();
        let expected = recording.output.number("worked") as f64 / float_field(summary, "interval_ns");
        let counted = float_field(spin, "own") / share;
        assert!(
            (counted - expected).abs() <= expected * 0.1 + 10.0,
            "{counted} samples, {expected} expected"
        );
        check_known_depth(&recording);
    });
}

/// Fails unless nine of ten stacks with `spin` show all of its callers up to `main`.
#[track_caller]
fn check_known_depth(recording: &Recording) {
    let pid = recording.output.number("pid").to_string();
    let mut dump: Vec<&std::ffi::OsStr> =
        ["dump", "--symbols", "--no-lines", "--pid", &pid].map(std::ffi::OsStr::new).to_vec();
    dump.push(recording.file.as_os_str());
    let text = crate::util::weir(dump).expect(0).text();
    let chain = ["spin", "hot_leaf", "depth_3", "depth_2", "depth_1", "hot", "main"];
    let lines: Vec<&str> = text.lines().collect();
    let shows_function = |line: &&str, name: &str| {
        line.contains(&format!("!{name}+")) || line.trim_end().ends_with(&format!("!{name}"))
    };
    let complete = lines
        .windows(chain.len())
        .filter(|window| window.iter().zip(chain).all(|(line, name)| shows_function(line, name)))
        .count();
    let stack_count = lines
        .iter()
        .filter(|line| shows_function(line, "spin") && !line.contains("InstructionPointer"))
        .count();
    assert!(
        complete > 100 && complete * 10 >= stack_count * 9,
        "only {complete} of {stack_count} stacks are complete"
    );
}

#[test]
fn functions_with_a_three_to_one_share_are_reported_with_it() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let recording = measurement.record_complete(
            &["--kernel", "cpu", "--interval", "1ms"],
            &measurement.workload(["ratio", "3000"]),
        );
        let rows = cpu_report(&recording);
        let (three, one) = (recording.output.number("three") as f64, recording.output.number("one") as f64);
        for (name, time) in [("three_parts", three), ("one_part", one)] {
            let row = find_function_row(&rows, name);
            // The program reads its clock between the two functions. The measured time of each
            // function includes such a reading; the function itself does not.
            let (share, error, measured) =
                (float_field(row, "own_share"), float_field(row, "own_error"), time / (three + one));
            assert!(
                (share - measured).abs() <= 3.0 * error + 0.03,
                "{name}: reported {share} ± {error}, measured {measured}"
            );
        }
    });
}

#[test]
fn reported_sleep_time_is_the_time_that_the_program_measured() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let command = measurement.workload(["naps", "20", "10"]);
        let recording =
            measurement.record_complete(&["--kernel", "process,thread,cswitch,dispatcher"], &command);
        let pid = recording.output.number("pid");
        let rows = recording.report("sched", &["--thread", &pid.to_string()]);
        // Before the thread executed the program, it was a copy of its parent, which has a row of
        // its own.
        let thread_rows = rows.iter().filter(|row| row["by"] == "thread" && row["tid"] == pid);
        let row =
            thread_rows.max_by(|a, b| float_field(a, "waiting_ns").total_cmp(&float_field(b, "waiting_ns")));
        let row = row.unwrap_or_else(|| panic!("the thread is not reported: {rows:?}"));
        let (waiting_ns, ready_ns) = (float_field(row, "waiting_ns"), float_field(row, "ready_ns"));
        let (slept_ns, min_wait_ns) = (recording.output.number("slept") as f64, 20.0 * 10e6);
        // The program measures from before it sleeps until it runs again. At other times it may
        // also wait for a processor, or for its file to be read.
        assert!(waiting_ns >= min_wait_ns, "waiting {waiting_ns} ns, of {slept_ns}");
        assert!(
            waiting_ns + ready_ns >= slept_ns * 0.98,
            "waiting {waiting_ns} ns and ready {ready_ns} ns, of {slept_ns}"
        );
        let naps = row["waits"]
            .as_array()
            .and_then(|waits| waits.iter().find(|wait| wait["reason"] == "UserRequest"))
            .expect("the thread has no waits of a user request");
        assert!(
            float_field(naps, "times") >= 20.0
                && float_field(naps, "ns") >= min_wait_ns
                && float_field(naps, "ns") <= slept_ns,
            "{naps}"
        );
    });
}

#[test]
fn forks_and_bytes_are_counted_exactly() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let on_disk = measurement.path("written");
        let command = measurement.workload(["mixed".as_ref(), on_disk.as_os_str(), "10".as_ref()]);
        let options = ["--kernel", "process,thread,disk_io,disk_io_init,network_tcpip"];
        // On a busy disk, a kernel worker issues the requests of others, and is recorded as the
        // issuer: then the test measures again.
        let is_complete = (0..MAX_ATTEMPTS).any(|_| {
            let recording = measurement.record_complete(&options, &command);
            check_forks_and_traffic(&recording);
            let (leader, trace) = (recording.output.number("leader"), recording.trace());
            let written: u64 = sum_field(&trace, "DiskIo/Write", ("IssuingThreadId", leader), "TransferSize");
            // If the folder is not on a disk, nothing is written to a disk. A file system may also
            // write its journal.
            written == 0 || written >= recording.output.number("written")
        });
        assert!(is_complete, "the trace lacks some of the written bytes");
    });
}

/// Sums `field` over the events named `name` whose field `key` has this value.
fn sum_field(trace: &Trace, name: &str, (key, value): (&str, u64), field: &str) -> u64 {
    trace.events_named(name).filter(|event| event.number(key) == value).map(|event| event.number(field)).sum()
}

#[track_caller]
fn check_forks_and_traffic(recording: &Recording) {
    let (trace, leader) = (recording.trace(), recording.output.number("leader"));
    // There are 10 children that only end, 10 children that execute another program (each has two
    // starts and two ends, because an exec is recorded as an end and a start), and the partner of
    // the ping-pong: 10 + 20 + 1.
    let children = |name| {
        let is_child = move |event: &&Event| event.number("ParentId") == leader;
        trace.events_named(name).filter(is_child).collect::<Vec<_>>()
    };
    assert_eq!((children("Process/Start").len(), children("Process/End").len()), (31, 31));
    let mut codes: Vec<u64> =
        children("Process/End").iter().map(|event| event.number("ExitStatus")).collect();
    codes.sort_unstable();
    // The first ten children exit with their number; those that execute another program exit with
    // 3. The end that an exec is recorded as has 0, like the end of the partner.
    let mut expected: Vec<u64> = (0..10).chain([3; 10]).chain([0; 11]).collect();
    expected.sort_unstable();
    assert_eq!(codes, expected);
    // The leader sends 40 × 1,000 bytes by TCP and 20 × 500 bytes by UDP. It also receives them.
    let transferred_bytes = |name| sum_field(&trace, name, ("PID", leader), "size");
    assert_eq!((transferred_bytes("TcpIp/Send"), transferred_bytes("TcpIp/Recv")), (40_000, 40_000));
    assert_eq!((transferred_bytes("UdpIp/Send"), transferred_bytes("UdpIp/Recv")), (10_000, 10_000));
}
