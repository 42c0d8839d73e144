//! Compares the layouts of tracks in the page with what the timeline contains.

use std::fs::File;

use serde_json::Value;

use super::*;
use crate::kernel_trace::{self, KernelTraceLayout};
use crate::probe::build_view;
use crate::test_trace::{TestTrace, ask, view_of};

const PAGE_LAYOUTS: &str = include_str!("../../../page/tracks.js");

/// Returns the names of the numbers of an item by kind of track, as the page has them.
fn page_layouts() -> BTreeMap<String, Vec<String>> {
    let lines = PAGE_LAYOUTS.lines().filter_map(|line| {
        let (kind, numbers) = line.strip_prefix("  ")?.strip_suffix(" },")?.split_once(": { ")?;
        let names = numbers.split(", ").enumerate().map(|(index, number)| {
            let (name, offset) = number.split_once(": ").unwrap();
            assert_eq!(offset, index.to_string(), "{line}");
            name.to_owned()
        });
        Some((kind.to_owned(), names.collect()))
    });
    lines.collect()
}

/// Checks that a list consists of items of a layout.
fn check_items(kind: &str, names: &[String], numbers: &[Value]) {
    assert!(!numbers.is_empty() && numbers.len().is_multiple_of(names.len()), "{kind}: {}", numbers.len());
    let mut last_start = i64::MIN;
    for item in numbers.chunks(names.len()) {
        let number = |name: &str| item[names.iter().position(|known| known == name).unwrap()].as_i64();
        let (start, end) = (number("start").unwrap(), number("end").unwrap());
        assert!(last_start <= start && start <= end && number("count").unwrap() >= 1, "{kind}: {item:?}");
        last_start = start;
        if kind == "c" {
            assert!(number("busy").unwrap() <= end - start, "{item:?}");
        }
        if kind == "t" {
            let total: i64 = ["running", "ready", "waiting"].iter().filter_map(|name| number(name)).sum();
            assert!(total <= end - start, "{item:?}");
        }
        if kind == "n" {
            let [smallest, largest, sum] = ["smallest", "largest", "sum"].map(number);
            assert!(smallest <= largest && largest <= sum, "{item:?}");
        }
    }
}

#[test]
fn page_reads_the_numbers_that_the_timeline_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.etl");
    let layout = KernelTraceLayout { bytes: 1 << 20, cpus: 2, processes: 5, threads: 3, name_part: "" };
    kernel_trace::write(&path, layout).unwrap();
    let (view, _) = build_view(vec![File::open(&path).unwrap()]).unwrap();
    let (busiest, slices) = {
        let threads = &view.index().threads.threads;
        let busiest = threads.iter().skip(2).max_by_key(|thread| thread.running_ns).unwrap();
        let position = threads.iter().position(|thread| std::ptr::eq(thread, busiest)).unwrap();
        (position, threads.iter().position(|thread| thread.shown_lanes().next().is_some()))
    };
    let kind = view.index().kinds.kinds.iter().position(|kind| !kind.marks.is_empty()).unwrap();
    let provider = view.index().kinds.kinds[kind].provider;
    let mut tracks = vec!["c0".to_owned(), format!("t{busiest}"), format!("k{kind}"), format!("v{provider}")];
    tracks.push("n0".to_owned());
    tracks.push(format!("p{}", view.index().threads.threads[busiest].process));
    tracks.extend(slices.map(|thread| format!("s{thread}")));
    let query = TimelineQuery {
        span: TimeSpan { from: 0, to: view.index().end() },
        pixels: 500,
        tracks: tracks.join(","),
        overview: false,
    };
    let mut json = JsonWriter::default();
    draw_timeline(&view, &query, &mut json);
    let drawn: Value = serde_json::from_slice(&json.into_bytes()).unwrap();
    let layouts = page_layouts();
    assert!(layouts.keys().map(String::as_str).eq(["c", "f", "k", "n", "p", "s", "t", "v"]), "{layouts:?}");
    for track in tracks {
        let (kind, names) = (&track[..1], &layouts[&track[..1]]);
        let numbers = drawn["tracks"][&track].as_array().unwrap();
        let lanes: Vec<&Vec<Value>> = match kind {
            "s" => numbers.iter().filter_map(Value::as_array).filter(|lane| !lane.is_empty()).collect(),
            _ => vec![numbers],
        };
        lanes.into_iter().for_each(|items| check_items(kind, names, items));
    }
}

#[test]
fn overview_counts_each_event_in_its_pixel() {
    for count in [1, 19, 360, 5000] {
        let mut trace = TestTrace::new(0);
        let times = (0..count).map(|number: i64| 10 + number * number % 7_001);
        let mut times: Vec<i64> = times.collect();
        times.sort_unstable();
        for time in &times {
            trace.add_event(*time, traceweir_format::Guid::from_u128(1), (1, 0), (100, 11), &[]);
        }
        let view = view_of(vec![trace]);
        let end = view.index().end();
        for pixels in [1, 700, 4096] {
            let query = TimelineQuery {
                span: TimeSpan { from: 0, to: end },
                pixels,
                tracks: String::new(),
                overview: true,
            };
            let answer = ask(|json| draw_timeline(&view, &query, json));
            let pixel_ns = end.unsigned_abs().div_ceil(pixels.into()).max(1);
            let mut expected = vec![0_u64; pixels as usize];
            for time in &times {
                let pixel = (time * 100).unsigned_abs() / pixel_ns;
                expected[usize::try_from(pixel.min(u64::from(pixels) - 1)).unwrap()] += 1;
            }
            let density = answer["overview"]["density"].as_array().unwrap();
            let density: Vec<u64> = density.iter().map(|count| count.as_f64().unwrap() as u64).collect();
            assert!(density == expected, "{count} events, {pixels} pixels");
        }
    }
}

#[test]
fn overview_ends_with_the_time_of_the_question() {
    let mut trace = TestTrace::new(0);
    // Processor 0 always runs a thread, processor 1 never does.
    for time in 0..100 {
        trace.add_switch(time * 1000, 0, (10 + (time % 2) as u32, 11 - (time % 2) as u32), 5);
        trace.add_switch(time * 1000 + 1, 1, (0, 0), 5);
    }
    let view = view_of(vec![trace]);
    let span = TimeSpan { from: 0, to: view.index().end() };
    let query = TimelineQuery { span, pixels: 10, tracks: String::new(), overview: true };
    let busy = |limits: &QueryLimits| {
        let drawn = ask(|json| draw_timeline_within(&view, &query, limits, json));
        assert_eq!(drawn["overview"]["cpus"], 2);
        drawn["overview"]["busy"][5].as_f64().unwrap()
    };
    assert!((busy(&QueryLimits::unlimited()) - 0.5).abs() < 0.01);
    let expired = QueryLimits::new(std::time::Duration::ZERO, std::sync::Arc::default());
    assert!((busy(&expired) - 1.0).abs() < 0.01);
}
