//! Tests of `weir report cpu --function`: callers and callees of one function.

use super::trace_builder::TraceBuilder;
use super::{find_row, number, rows_by, run_report};
use crate::util::weir;

const APP: u64 = 0x40_0000;
const LIB: u64 = 0x7F00_0000_0000;

/// Builds a trace of `app`: 30 samples in `app+0x0`, called by `app+0x100`; 20 in `lib.so+0x0`,
/// called by `app+0x0`; 10 in `lib.so+0x0`, called by `app+0x200`.
fn build_trace() -> TraceBuilder {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_thread(100, 101);
    trace.add_image(100, APP, 0x1000, "/nowhere/app");
    trace.add_image(100, LIB, 0x1000, "/nowhere/lib.so");
    for index in 0..60 {
        let time = 1000 + 10 * index;
        let frames: &[u64] = match index {
            0..30 => &[APP + 0x10, APP + 0x120],
            30..50 => &[LIB + 0x10, APP + 0x10, APP + 0x120],
            _ => &[LIB + 0x10, APP + 0x210],
        };
        trace.add_sample(time, 0, 101, frames[0]);
        trace.add_stack(time, 0, (100, 101), frames);
    }
    trace
}

#[test]
fn callers_and_callees_have_their_samples() {
    let mut trace = build_trace();
    let path = trace.write();
    let report = run_report("cpu", &path, &["--function", "app+0x0"]);
    let target = find_row(&report, "target", "app+0x0");
    assert_eq!((number(target, "own"), number(target, "all")), (30, 50));
    assert_eq!(number(find_row(&report, "caller", "app+0x100"), "samples"), 50);
    let callee = find_row(&report, "callee", "lib.so+0x0");
    assert_eq!((number(callee, "samples"), &callee["share"]), (20, &serde_json::json!(0.4)));
    assert_eq!((rows_by(&report, "caller").len(), rows_by(&report, "callee").len()), (1, 1));
    assert!(rows_by(&report, "function").is_empty());

    let report = run_report("cpu", &path, &["--function", "LIB.SO"]);
    let callers = rows_by(&report, "caller");
    let rows: Vec<_> = callers.iter().map(|row| (&row["name"], number(row, "samples"))).collect();
    assert_eq!(rows, [(&"app+0x0".into(), 20), (&"app+0x200".into(), 10)]);

    let report = run_report("cpu", &path, &["--function", "app+0x100"]);
    assert_eq!(number(find_row(&report, "caller", "(no caller)"), "samples"), 50);
    let text = weir(["report", "cpu", path.to_str().unwrap(), "--function", "app+0x0"]).expect(0).text();
    assert!(text.contains("function app+0x0: 50 samples with what it calls (83.3 "), "{text}");
    assert!(text.contains("\ncallers\n") && text.contains("\ncallees\n"), "{text}");
}

#[test]
fn ambiguous_and_unknown_functions_are_errors() {
    let mut trace = build_trace();
    let path = trace.write();
    let run = weir(["report", "cpu", path.to_str().unwrap(), "--function", "app"]).expect(1);
    assert!(run.stderr.contains("3 functions match \"app\"; name one of them:"), "{}", run.stderr);
    assert!(run.stderr.contains("app+0x0  (50 samples)"), "{}", run.stderr);
    let run = weir(["report", "cpu", path.to_str().unwrap(), "--function", "nothing"]).expect(1);
    assert!(run.stderr.contains("no function of a sample has \"nothing\" in its name"), "{}", run.stderr);
}

#[test]
fn unknown_callers_are_reported_with_the_remedy() {
    let mut trace = TraceBuilder::new();
    trace.add_process(100, "app");
    trace.add_thread(100, 101);
    trace.add_image(100, APP, 0x1000, "/nowhere/app");
    for index in 0..10 {
        let time = 1000 + 10 * index;
        trace.add_sample(time, 0, 101, APP + 0x10);
        // Without a frame pointer, the register has an address that is not code.
        trace.add_stack(time, 0, (100, 101), &[APP + 0x10, 0x1234_5678]);
    }
    let path = trace.write();
    let path = path.to_str().unwrap();
    let text = weir(["report", "cpu", path]).expect(0).text().replace('\n', " ");
    assert!(text.contains("callers missing or unknown (?): 10 of 10 stacks"), "{text}");
    let text = weir(["flame", path, "--collapsed"]).expect(0).stderr;
    assert!(text.contains("callers missing or unknown (?)") && text.contains("--unwind 16K"), "{text}");
    let text = weir(["report", "cpu", path, "--function", "caller"]).expect(1).stderr;
    assert!(text.contains("--unwind 16K"), "{text}");
}
