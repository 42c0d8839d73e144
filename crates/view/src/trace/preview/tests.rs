//! Compares previews with the index of the same trace.

use std::fs::File;

use super::*;
use crate::kernel_trace::{self, KernelTraceLayout};
use crate::probe::build_view;
use crate::test_trace::{TestTrace, view_of};
use crate::trace::TraceView;

/// Returns the share of two processors' time in which a thread ran.
fn busy_share(view: &TraceView) -> f64 {
    let index = view.index();
    let runs = index.cpus.iter().map(|cpu| cpu.runs.summarize(0, i64::MAX, &index.store));
    let busy: i64 = runs.map(|summary| summary.totals[1]).sum();
    busy as f64 / (2 * index.end()) as f64
}

fn read(view: &TraceView, bytes: u64, buffers: usize) -> Preview {
    let must_stop = &AtomicBool::new(false);
    Preview::read_within(&view.traces, view.start, ReadLimits { bytes, buffers, must_stop })
}

#[test]
fn preview_is_close_to_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.etl");
    let layout = KernelTraceLayout { bytes: 6 << 20, cpus: 2, processes: 5, threads: 3, name_part: "" };
    kernel_trace::write(&path, layout).unwrap();
    let (view, _) = build_view(vec![File::open(&path).unwrap()]).unwrap();
    let (events, end) = (view.index().events.rows() as f64, view.index().end() as f64);
    // All buffers, and each third.
    for (max_buffers, tolerance) in [(usize::MAX, 0.05), (8, 0.3)] {
        let preview = read(&view, MAX_BYTES, max_buffers);
        let is_close = |estimated: f64, exact: f64| (estimated / exact - 1.0).abs() <= tolerance;
        let estimated: f64 = preview.parts.iter().map(|part| part.events).sum();
        assert!(is_close(estimated, events), "{estimated} of {events} events");
        assert!(is_close(preview.end as f64, end), "{} of {end} ns", preview.end);
        let busy_ns = |part: &PreviewPart| part.busy.unwrap_or(0.0) * (part.end - part.start) as f64;
        let busy = preview.parts.iter().map(busy_ns).sum::<f64>() / (2.0 * end);
        let exact = busy_share(&view);
        assert!((busy - exact).abs() <= tolerance, "busy {busy}, not {exact}");
        assert_eq!(preview.cpus, 2);
        assert!(preview.parts.iter().all(|part| part.start <= part.end));
        assert!(preview.parts.len() <= max_buffers);
    }
}

#[test]
fn preview_reads_few_bytes_of_a_large_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.etl");
    let layout = KernelTraceLayout { bytes: 4 << 20, cpus: 1, processes: 2, threads: 2, name_part: "" };
    kernel_trace::write(&path, layout).unwrap();
    let (view, _) = build_view(vec![File::open(&path).unwrap()]).unwrap();
    let few = read(&view, 1 << 20, usize::MAX);
    let all = read(&view, u64::MAX, usize::MAX);
    assert!(few.parts.len() * 4 <= all.parts.len() + 4, "{} of {}", few.parts.len(), all.parts.len());
    assert!(!few.parts.is_empty());
}

#[test]
fn preview_of_many_processors_has_the_same_limits() {
    let traces = [0, 1].map(|_| {
        let mut trace = TestTrace::new(0);
        for cpu in 0..40 {
            trace.add_switch(i64::from(cpu), cpu, (10, 11), 5);
        }
        trace
    });
    let view = view_of(traces.into());
    // The first buffer of each trace has its header.
    assert!(read(&view, u64::MAX, usize::MAX).parts.len() >= 80);
    assert_eq!(read(&view, u64::MAX, 16).parts.len(), 16);
    assert!((1..40).contains(&read(&view, 40_000, 512).parts.len()));
    let must_stop = &AtomicBool::new(true);
    let limits = ReadLimits { bytes: u64::MAX, buffers: 512, must_stop };
    assert!(Preview::read_within(&view.traces, view.start, limits).parts.is_empty());
}
