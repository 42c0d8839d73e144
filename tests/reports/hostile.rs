//! Tests that reports on malformed traces end with a documented exit status, whatever the bytes
//! are.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use traceweir_format::kernel::hook;
use traceweir_format::wire::Put;

use super::flame::{APP_BASE, build_trace};
use super::trace_builder::{DELAY_EXECUTION, EXECUTIVE, KERNEL, RUNNING, TraceBuilder, WAITING};
use crate::util::{root, weir};

const REPORT_COMMANDS: [&[&str]; 6] = [
    &["report", "cpu", "--json"],
    &["report", "sched"],
    &["report", "disk"],
    &["flame", "--collapsed"],
    &["flame", "--kind", "off-cpu", "--speedscope"],
    &["dump", "--stacks"],
];

/// Runs each report and graph on a file. Fails unless each exits with a documented status: a panic
/// would exit with 101.
fn run_all_reports(path: &str) {
    for arguments in REPORT_COMMANDS {
        let mut command = arguments.to_vec();
        command.push(path);
        let run = weir(&command);
        assert!([0, 1, 3, 4].contains(&run.code), "{arguments:?} ended with {}: {}", run.code, run.stderr);
    }
}

#[test]
fn all_fixtures_can_be_reported() {
    for entry in std::fs::read_dir(root().join("fixtures/etl")).unwrap() {
        run_all_reports(entry.unwrap().path().to_str().unwrap());
    }
}

#[test]
fn random_bytes_do_not_crash_reports() {
    let mut trace = build_trace();
    trace.add_switch(8000, 0, (0, 101), RUNNING, EXECUTIVE);
    trace.add_switch(8100, 0, (101, 0), WAITING, DELAY_EXECUTION);
    trace.add_stack(8100, 0, (100, 101), &[KERNEL, APP_BASE]);
    trace.add_transfer(8200, hook::DISK_READ, (0, 101), 1, (4096, 10));
    let path = trace.write();
    let original = std::fs::read(&path).unwrap();
    // The first buffer, which has the log-file header, stays intact.
    let overwrites = proptest::collection::vec((0x1000..original.len(), any::<u8>()), 1..60);
    let mut runner = TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
    let result = runner.run(&overwrites, |overwrites| {
        let mut bytes = original.clone();
        overwrites.iter().for_each(|(offset, byte)| bytes[*offset] = *byte);
        std::fs::write(&path, &bytes).unwrap();
        run_all_reports(path.to_str().unwrap());
        Ok(())
    });
    result.unwrap();
}

#[test]
fn largest_field_values_are_accepted() {
    let mut trace = TraceBuilder::new();
    for (time, tid) in [(1000, u32::MAX), (2000, 0), (3000, 7)] {
        let mut sample = Vec::new();
        sample.put_u64(u64::MAX).put_u32(tid).put_u16(u16::MAX).put(&[0xFF; 2]);
        trace.add_perfinfo_event(time, 63, hook::SAMPLED_PROFILE, 2, &sample);
        trace.add_stack(time, 63, (u32::MAX, tid), &[u64::MAX, 0, 1, u64::MAX]);
        trace.add_switch(time, 63, (tid, u32::MAX - 1), 0xFF, 0xFF);
        trace.add_switch(time, 63, (u32::MAX - 1, tid), WAITING, 0xFF);
        // A microsecond has 10 ticks.
        trace.add_transfer(time, hook::DISK_READ, (u32::MAX, tid), u64::MAX, (u32::MAX, u64::MAX / 10));
        trace.add_sampling_interval(time, u32::MAX);
    }
    run_all_reports(trace.write().to_str().unwrap());
}
