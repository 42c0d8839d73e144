//! Checks that the reports of files, network and system calls agree with the known behaviour of a
//! workload.

use serde_json::Value;

use crate::recordings::Measurement;
use crate::retry::retry_alternately_with_busy_processors;

/// Sends of TCP with 1000 bytes, and of UDP with 500 bytes, by the workload.
const TCP_SENDS: u64 = 40;
const UDP_SENDS: u64 = 20;
const SENT_BYTES: u64 = TCP_SENDS * 1000 + UDP_SENDS * 500;
/// Direct writes of the workload.
const WRITES: u64 = 50;

/// Returns a number of the first row for which `is_match` holds.
#[track_caller]
fn find_number(rows: &[Value], key: &str, is_match: impl Fn(&Value) -> bool) -> u64 {
    let row = rows.iter().find(|row| is_match(row));
    let row = row.unwrap_or_else(|| panic!("no row with {key} in {rows:#?}"));
    row[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {row}"))
}

#[test]
fn reports_agree_with_the_workload() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let on_disk = measurement.path("written");
        let command = measurement.workload(["mixed".as_ref(), on_disk.as_os_str(), "100".as_ref()]);
        let options = ["--kernel", "file,net,syscall", "--stacks", "none"];
        let recording = measurement.record_complete(&options, &command);
        let leader = recording.output.number("leader");
        let is_process = |row: &Value| row["by"] == "process" && row["pid"] == leader;

        let files = recording.report("file", &[]);
        // A kernel without kprobes names only files that are open long enough, so the process counts.
        assert!(find_number(&files, "writes", is_process) >= WRITES);
        assert!(find_number(&files, "written_bytes", is_process) >= recording.output.number("written"));
        assert!(find_number(&files, "time_ns", is_process) > 0);
        let is_flush = |row: &Value| row["by"] == "operation" && row["name"] == "flush";
        assert!(find_number(&files, "operations", is_flush) >= 1);

        let network = recording.report("net", &[]);
        assert_eq!(find_number(&network, "sent", is_process), TCP_SENDS + UDP_SENDS);
        assert_eq!(find_number(&network, "sent_bytes", is_process), SENT_BYTES);
        assert_eq!(find_number(&network, "received_bytes", is_process), SENT_BYTES);
        let client = format!("127.0.0.1:{}", recording.output.number("tcp"));
        let is_client = |row: &Value| row["by"] == "connection" && row["remote"] == *client;
        assert_eq!(find_number(&network, "sent_bytes", is_client), TCP_SENDS * 1000);

        let calls = recording.report("syscall", &[]);
        let is_call = |name: &'static str| {
            move |row: &Value| row["by"] == "process_call" && row["pid"] == leader && row["call"] == name
        };
        for (name, count) in [("pwrite64", WRITES), ("fsync", 1), ("sendto", TCP_SENDS + UDP_SENDS)] {
            assert_eq!(find_number(&calls, "calls", is_call(name)), count, "{name}");
            assert_eq!(find_number(&calls, "timed", is_call(name)), count, "{name}");
            assert_eq!(find_number(&calls, "failures", is_call(name)), 0, "{name}");
        }
    });
}
